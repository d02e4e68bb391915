"""Gradients of Dask arrays: those of the whole arrays, whatever the chunks."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cupyconv
import cupyconv.dask
import cupyconv.grad
from backends import NumpyBackend
from bounds import assert_by_fft, assert_convolution, assert_same_bits
from cupyconv import _transposed_convolution, _weight_blocks
from gradients import Gradient, gradient, gradients
from reference import Array
from strategies import inner, rounded_pairs
from test_dask import (
    FLOATS,
    MODES,
    NUMPY,
    divisions,
    gathered,
    in_chunks,
    on_numpy_and_cupy,
    quick,
    settled,
    untouchable,
    wide,
)
from test_grad import WRONG, changed

Chunks = dict[str, tuple[tuple[int, ...], ...]]


@st.composite
def divided(draw: st.DrawFn, cases: Any) -> tuple[Gradient, Chunks]:
    """A call, and chunks for each of its arrays that is divided, all channels in one."""
    case = draw(cases)
    weight_shape = case.options.get("weight_size") or case["weight"].shape
    rank = len(weight_shape) - 2
    chunks: Chunks = {}
    for name in ("input", "grad_output"):
        if name in case.arrays:
            shape = case[name].shape
            channels = len(shape) - rank - 1
            axes = enumerate(shape)
            chunks[name] = tuple((n,) if i == channels else draw(divisions(n)) for i, n in axes)
    return case, chunks


def build(case: Gradient, chunks: Chunks, backend: NumpyBackend = NUMPY) -> da.Array:
    """The call on Dask arrays."""
    arrays: dict[str, Any] = dict(case.map(backend.asarray).arrays)
    for name, along in chunks.items():
        arrays[name] = in_chunks(case[name], along, backend)
    function = getattr(cupyconv.dask.grad, case.function.removeprefix("grad."))
    return function(**arrays, **case.options)


def check(backend: NumpyBackend, case: Gradient, chunks: Chunks) -> None:
    result = gathered(build(case, chunks, backend), backend)
    assert_convolution(result, case.defined, case.dtype, case.precision)


def in_singles(case: Gradient) -> Chunks:
    """Chunks of one element, but for the channels, of arrays with a batch axis."""
    names = [name for name in ("input", "grad_output") if name in case.arrays]
    return {
        name: tuple(
            (n,) if axis == 1 else (1,) * n or (0,) for axis, n in enumerate(case[name].shape)
        )
        for name in names
    }


# Results -------------------------------------------------------------------------------------


@on_numpy_and_cupy
@quick
@given(drawn=divided(gradients()))
def test_gradients(backend: NumpyBackend, drawn: tuple[Gradient, Chunks]) -> None:
    check(backend, *drawn)


def check_borders(backend: NumpyBackend, case: Gradient, chunks: Chunks) -> None:
    """Sums of integers are those of the whole arrays."""
    result = gathered(build(case, chunks, backend), backend)
    expected = backend.compute(case)
    assert result.dtype == expected.dtype
    assert (result == expected).all()


@on_numpy_and_cupy
@quick
@given(
    drawn=divided(gradients(dtypes=rounded_pairs, styles=["whole"])), mode=st.sampled_from(MODES)
)
def test_borders_are_those_of_the_whole_array(
    backend: NumpyBackend, drawn: tuple[Gradient, Chunks], mode: str
) -> None:
    case, chunks = drawn
    assume(all(axis.large for axis in case.axes))
    check_borders(backend, case.with_options(padding_mode=mode), chunks)


@on_numpy_and_cupy
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["input", "weight"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_examples_of_borders(backend: NumpyBackend, dtype: str, kind: str, mode: str) -> None:
    """Padding of several periods along one axis, of a single position along the other."""
    padding = ((9, 2), (3, 4))
    case = gradient(kind, (2, 2, 4, 1), (3, 2, 3, 2), dtype, style="whole", padding=padding)
    check_borders(backend, case.with_options(padding_mode=mode), in_singles(case))


# What is easy to get wrong: the shapes of a convolution's input and weight, and its options.
EXAMPLES: list[tuple[tuple[int, ...], tuple[int, ...], str, dict[str, Any]]] = [
    # A remainder of the stride, and borders of chunks that are no multiples of it.
    ((2, 2, 15), (3, 2, 4), "int64", {"stride": 4, "dilation": 2, "padding": ((3, 1),)}),
    ((1, 2, 9, 8), (2, 2, 3, 2), "float32", {"stride": (2, 3), "padding": "same"}),
    # Windows that lie in the padding altogether, and an input of no length.
    ((2, 1, 5), (2, 1, 2), "float32", {"padding": ((6, 7),)}),
    ((1, 3, 0, 5), (4, 3, 3, 3), "float32", {"padding": 2}),
    # No samples, and no channels.
    ((0, 2, 5), (4, 2, 2), "float32", {}),
    ((2, 0, 5), (4, 0, 2), "float32", {"groups": 2}),
    ((2, 2, 5), (0, 2, 2), "float32", {}),
    # Groups, and three axes.
    ((2, 6, 5, 4), (6, 1, 3, 3), "float16", {"groups": 6, "padding": 1}),
    ((2, 2, 4, 3, 4), (4, 1, 2, 3, 2), "complex64", {"groups": 2, "stride": (1, 2, 3)}),
]


@on_numpy_and_cupy
@pytest.mark.parametrize("kind", ["input", "weight"])
@pytest.mark.parametrize("given", EXAMPLES, ids=str)
def test_examples(backend: NumpyBackend, kind: str, given: Any) -> None:
    input_shape, weight_shape, dtype, options = given
    case = gradient(kind, input_shape, weight_shape, dtype, **options)
    check(backend, case, in_singles(case))


def test_chunks_without_elements() -> None:
    """They have no gradient, and the chunks after them keep their places."""
    case = gradient("weight", (3, 2, 8), (3, 2, 3), "int64", stride=2, padding=1)
    empty = ((1, 0, 2), (3,), (0, 2, 0, 2))
    for x in (((0, 3), (2,), (8,)), ((3,), (2,), (3, 0, 5, 0))):
        check(NUMPY, case, {"input": x, "grad_output": empty})


def test_sums_of_16_bits_are_rounded_once() -> None:
    """300 gradients of chunks, each of which would lose its last bits in float16."""
    case = gradient("weight", (300, 1, 3), (1, 1, 3), "float16", style="positive")
    check(NUMPY, case, in_singles(case))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_infinite_sample_reaches_what_it_reaches_undivided(dtype: str) -> None:
    case = gradient("weight", (3, 2, 6), (2, 2, 3), dtype, padding=2)
    x = case["input"].copy()
    x[1, 0, 5], x[2, 0, 0] = np.inf, -np.inf
    infinite = case.with_arrays(input=x)
    check(NUMPY, infinite, in_singles(infinite))


@pytest.mark.parametrize("mode", [None, *MODES])
def test_both_identities(mode: str | None) -> None:
    """<conv(x, w), y> = <x, conv_input(y)> = <w, conv_weight(y)>, all of them on Dask arrays."""
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {"stride": (3, 2), "padding": ((1, 2), (0, 1)), "groups": 2}
    options["padding_mode"] = mode
    x, w = rng.integers(-99, 99, (5, 4, 17, 14)), rng.integers(-99, 99, (6, 2, 4, 3))
    lazy = in_chunks(x, ((2, 3), 4, 5, 6))
    forward = cupyconv.dask.conv2d(lazy, w, **options)
    y = da.from_array(rng.integers(-99, 99, forward.shape), chunks=((4, 1), 6, 2, 3))
    for_input = cupyconv.dask.grad.conv2d_input(x.shape, w, y, **options)
    for_weight = cupyconv.dask.grad.conv2d_weight(lazy, w.shape, y, **options)
    expected = inner(gathered(forward), y.compute())
    assert inner(x, gathered(for_input)) == expected
    assert inner(w, gathered(for_weight)) == expected


# Fourier transforms --------------------------------------------------------------------------


@on_numpy_and_cupy
@quick
@given(
    drawn=divided(gradients(dtypes=FLOATS, styles=["whole"])),
    mode=st.sampled_from([None, None, *MODES]),
)
def test_transforms(
    backend: NumpyBackend, drawn: tuple[Gradient, Chunks], mode: str | None
) -> None:
    case, chunks = drawn
    assume(len(case.axes) <= 3 and (mode is None or all(axis.large for axis in case.axes)))
    case = case.with_options(padding_mode=mode)
    result = gathered(build(case.with_options(method="fft"), chunks, backend), backend)
    assert_by_fft(result, NUMPY.compute(case.map(wide)), [*case.arrays.values()], case.dtype)


@pytest.mark.parametrize(("gain", "taken"), [(1.19, "direct"), (1.2, "fft")])
@pytest.mark.parametrize("kind", ["input", "weight"])
def test_the_whole_arrays_settle_the_method(
    monkeypatch: pytest.MonkeyPatch, kind: str, gain: float, taken: str
) -> None:
    x, y = (da.ones((1, 1, n), chunks=(1, 1, 3), dtype=np.float32) for n in (9, 8))

    def call() -> da.Array:
        if kind == "weight":
            return cupyconv.dask.grad.conv1d_weight(x, (1, 1, 2), y, method="auto")
        w = np.ones((1, 1, 2), np.float32)
        return cupyconv.dask.grad.conv1d_input(x.shape, w, y, method="auto")

    module, name = cupyconv.grad, "conv_weight"
    if kind == "input":
        module, name = _transposed_convolution, "conv_transpose"
    methods, asked = settled(monkeypatch, module, name, gain, call)
    assert methods == [taken] * 3
    assert asked == [((9,), True) if kind == "weight" else ((8,), False)]


# The sum over the chunks ---------------------------------------------------------------------


ADD = _weight_blocks._add
SIZES = [("input", 1, 7), ("grad_output", 2, 5)]


def weights(chunks: int) -> tuple[Gradient, da.Array]:
    """A gradient with respect to the weight, of so many chunks."""
    case = gradient("weight", (chunks, 1, 7), (2, 1, 3), style="wide")
    return case, build(case, {name: ((1,) * chunks, (n,), (m,)) for name, n, m in SIZES})


@pytest.mark.parametrize("chunks", [1, _weight_blocks.FAN_IN, 5 * _weight_blocks.FAN_IN**2 + 3])
def test_no_task_adds_many_gradients(chunks: int) -> None:
    _, result = weights(chunks)
    graph = dict(result.dask)
    sums = [task for task in graph.values() if type(task) is tuple and task[0].func is ADD]
    assert sum(len(task[1]) for task in sums) == chunks + len(sums) - 1, "not a tree"
    assert all(len(task[1]) <= _weight_blocks.FAN_IN for task in sums)


def test_the_order_of_the_sum_does_not_depend_on_the_run() -> None:
    case, result = weights(150)
    expected = gathered(result, scheduler="sync")
    assert_convolution(expected, case.defined, case.dtype)
    for _ in range(5):
        assert_same_bits(gathered(weights(150)[1], scheduler="threads"), expected)


def test_a_gradient_is_the_sum_of_its_chunks_in_their_order() -> None:
    case, result = weights(_weight_blocks.FAN_IN)
    total: Any = 0
    for x, y in zip(case["input"], case["grad_output"], strict=True):
        total = total + cupyconv.grad.conv1d_weight(x[None], (2, 1, 3), y[None])
    assert_same_bits(gathered(result), total)


def test_no_gradient_of_a_chunk_is_changed() -> None:
    """A scheduler may keep the results of tasks, also those that a sum begins with."""
    parts = [np.full(3, 2.0, np.float32) for _ in range(3)]
    assert (ADD(parts, np.dtype(np.float16)) == 6).all()
    assert all((part == 2).all() for part in parts)


# Laziness ------------------------------------------------------------------------------------


def test_a_chunk_reads_its_window_alone() -> None:
    """Of the chunks beside its own it reads the borders."""
    x, y = (da.ones((1, 1, n, n), chunks=(1, 1, 10, 10)) for n in (30, 30))
    gradient = cupyconv.dask.grad.conv2d_weight(x, (1, 1, 3, 5), y, padding="same")
    cut = [key for key in dict(gradient.dask) if "halo" in key[0]]
    parts = dask.get(gradient.dask, cut)
    assert sum(part.size for part in parts) == (30 + 4) * (30 + 8) - 30**2
    assert all(part.base is None for part in parts), "a part keeps its chunk alive"


def test_nothing_is_computed_before_the_gradient_is() -> None:
    x, y = untouchable((2, 4, 9), (1, 4, 3)), untouchable((2, 6, 7), (1, 6, 3))
    w = untouchable((6, 4, 3), -1)
    for result in (
        cupyconv.dask.grad.conv1d_input(x.shape, np.ones(w.shape), y),
        cupyconv.dask.grad.conv1d_input(x.shape, w, da.ones_like(y)),
        cupyconv.dask.grad.conv1d_weight(x, w.shape, da.ones_like(y)),
        cupyconv.dask.grad.conv1d_weight(da.ones_like(x), w.shape, y),
        cupyconv.dask.grad.conv1d_input((2, 4, 7), w, y, padding=1, padding_mode="edge"),
        cupyconv.dask.grad.conv1d_weight(x[..., 2:], w.shape, y, padding=1, padding_mode="edge"),
    ):
        with pytest.raises(RuntimeError, match="computed"):
            result.compute(scheduler="sync")


def test_names_follow_from_the_arguments() -> None:
    x, y = da.ones((2, 2, 9), chunks=(1, 2, 5)), da.ones((2, 2, 7), chunks=(1, 2, 5))

    def names(x: da.Array = x, y: da.Array = y, **options: Any) -> list[str]:
        options = {"precision": "float32", **options}
        w = np.ones((2, 2 // options.get("groups", 1), 3))
        for_input = cupyconv.dask.grad.conv1d_input(x.shape, w, y, **options)
        return [for_input.name, cupyconv.dask.grad.conv1d_weight(x, w.shape, y, **options).name]

    assert names() == names()
    longer = da.ones((2, 2, 10), chunks=(1, 2, 5))
    others = [
        *names(), *names(y=y + 1), *names(precision="tf32"), *names(groups=2),
        *names(method="fft"),
        *names(x=longer, padding=((0, 1),), stride=1, y=da.ones((2, 2, 9))),
    ]  # fmt: skip
    assert len(set(others)) == len(others)


def test_a_graph_holds_nothing_that_the_caller_can_change() -> None:
    stride, padding, size = [2], [[1, 0]], [1, 1, 9]
    kernel = [1, 1, 3]
    x, y = np.arange(9).reshape(1, 1, 9), np.arange(4).reshape(1, 1, 4)
    w = np.arange(3).reshape(1, 1, 3)
    options: dict[str, Any] = {"stride": stride, "padding": padding}
    expected = [
        cupyconv.grad.conv1d_input(size, w, y, **options),
        cupyconv.grad.conv1d_weight(x, kernel, y, **options),
    ]
    lazy_x, lazy_y = da.from_array(x, chunks=(1, 1, 4)), da.from_array(y, chunks=(1, 1, 2))
    results = [
        cupyconv.dask.grad.conv1d_input(size, w, lazy_y, **options),
        cupyconv.dask.grad.conv1d_weight(lazy_x, kernel, lazy_y, **options),
    ]
    for value in (stride, padding[0], size, kernel):
        value[-1] += 1
    for result, whole in zip(results, expected, strict=True):
        assert_same_bits(gathered(result), whole)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("argument", [None, "float32", "tf32"])
@pytest.mark.parametrize("around", ["float32", "tf32"])
def test_the_precision_is_that_of_the_call(
    monkeypatch: pytest.MonkeyPatch, around: str, argument: str | None, dtype: str
) -> None:
    """For 16-bit floats it is float32's, as for undivided arrays."""
    seen = []

    def spy(*arrays: Array, precision: str | None = None, **options: Any) -> Array:
        seen.append(precision)
        return real(*arrays, **options)

    real = cupyconv.grad.conv_weight
    monkeypatch.setattr(cupyconv.grad, "conv_weight", spy)
    x, y = (da.ones((1, 1, n), chunks=5, dtype=dtype) for n in (10, 8))
    with cupyconv.precision(around):
        result = cupyconv.dask.grad.conv1d_weight(x, (1, 1, 3), y, precision=argument)
    with cupyconv.precision("float32" if around == "tf32" else "tf32"):
        result.compute(scheduler="sync")
    expected = (argument or around) if dtype == "float32" else "float32"
    assert seen == [expected] * 2


# Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "changes", "error", "text"), WRONG, ids=[t for *_, t in WRONG])
def test_errors_are_those_of_whole_arrays(
    kind: str, changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    arguments = changed(kind, changes)
    if "out" in arguments or isinstance(arguments["grad_output"], list):
        return  # the functions on Dask arrays have another error for a list
    for name in ("input", "grad_output"):
        if name in arguments:
            arguments[name] = da.from_array(arguments[name])
    with pytest.raises(error) as caught:
        getattr(cupyconv.dask.grad, f"conv2d_{kind}")(**arguments)
    assert str(caught.value) == f"conv2d_{kind}: {text}"


def test_methods_that_are_none() -> None:
    """An error when the graph is built, which reads as that of whole arrays."""
    for dtype, rank, method in (("int64", 1, "fft"), ("float32", 4, "fft"), ("float32", 1, "fast")):
        x, y, w = (np.ones((1, 1, *(n,) * rank), dtype) for n in (4, 3, 2))
        lazy_x, lazy_y = map(da.from_array, (x, y))
        for name, whole, divided in (
            ("conv_input", (x.shape, w, y), (x.shape, w, lazy_y)),
            ("conv_weight", (x, w.shape, y), (lazy_x, w.shape, lazy_y)),
        ):
            with pytest.raises((TypeError, ValueError)) as expected:
                getattr(cupyconv.grad, name)(*whole, method=method)
            with pytest.raises(expected.type) as caught:
                getattr(cupyconv.dask.grad, name)(*divided, method=method)
            assert str(caught.value) == str(expected.value)
            assert str(caught.value).startswith(f"{name}: method")


def test_arrays_that_are_not_divided() -> None:
    x, y = np.ones((1, 2, 5)), np.ones((1, 2, 3))
    for arrays, name in (((da.from_array(x), y), "grad_output"), ((x, da.from_array(y)), "input")):
        with pytest.raises(TypeError) as caught:
            cupyconv.dask.grad.conv1d_weight(arrays[0], (2, 2, 3), arrays[1])
        assert str(caught.value) == f"conv1d_weight: {name} must be a Dask array, got ndarray"
    with pytest.raises(TypeError, match="conv1d_input: grad_output must be a Dask array, got ndar"):
        cupyconv.dask.grad.conv1d_input(x.shape, np.ones((2, 2, 3)), y)


def test_channels_in_several_chunks() -> None:
    x, y, w = da.ones((2, 4, 5)), da.ones((2, 6, 3)), np.ones((6, 4, 3))

    def text(name: str, argument: str, chunks: str, shape: str) -> str:
        return (
            f"{name}: {argument} must have all channels in one chunk, got chunks {chunks} along "
            f"axis 1 of {argument} of shape {shape}; {argument}.rechunk({{1: -1}}) joins them"
        )

    few, some = x.rechunk((2, 3, 5)), y.rechunk((2, 3, 3))
    function = cupyconv.dask.grad.conv1d_weight
    with pytest.raises(ValueError) as caught:
        function(few, w.shape, y)
    assert str(caught.value) == text("conv1d_weight", "input", "(3, 1)", "(2, 4, 5)")
    with pytest.raises(ValueError) as caught:
        function(x, w.shape, some)
    assert str(caught.value) == text("conv1d_weight", "grad_output", "(3, 3)", "(2, 6, 3)")
    with pytest.raises(ValueError) as caught:
        cupyconv.dask.grad.conv1d_input(x.shape, w, some)
    assert str(caught.value) == text("conv1d_input", "grad_output", "(3, 3)", "(2, 6, 3)")


# The module ----------------------------------------------------------------------------------


def test_functions_are_those_of_whole_arrays() -> None:
    """The same names, with the same arguments in the same order, but for one."""
    assert cupyconv.dask.grad.__all__ == cupyconv.grad.__all__
    for name in cupyconv.grad.__all__:
        whole = inspect.signature(getattr(cupyconv.grad, name)).parameters
        divided = inspect.signature(getattr(cupyconv.dask.grad, name)).parameters
        assert list(divided) == [argument for argument in whole if argument != "out"]
        for argument, parameter in divided.items():
            assert parameter.kind == whole[argument].kind
            assert parameter.default == whole[argument].default


def test_examples_of_the_module_run() -> None:
    for name in cupyconv.dask.grad.__all__:
        finder = doctest.DocTestFinder()
        (one,) = finder.find(getattr(cupyconv.dask.grad, name), name, globs={})
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(one)
        assert result.failed == 0
        assert result.attempted > 3, name
