"""cupyconv.cudnn: the definitions, what is written and returned, and errors in its own names."""

from __future__ import annotations

import doctest
import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import cupyconv
from backends import CupyBackend, NumpyBackend, every_backend
from bounds import assert_same_bits
from cupyconv import cudnn
from reference import Array
from strategies import (
    DTYPES,
    LAYOUTS,
    NO_BORDERS,
    Convolution,
    exact_convolutions,
    lay_out,
    poison,
    twice,
    values,
)

# The functions behind these have many examples elsewhere.
quick = settings(max_examples=max(settings().max_examples // 5, 10))

on_numpy_and_cupy = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(NumpyBackend(), id="numpy"),
        pytest.param(CupyBackend(), id="cupy", marks=pytest.mark.gpu),
    ],
)
PRECISIONS = {"never": "float32", "auto": "float32", "always": "tf32"}


@st.composite
def symmetric(draw: st.DrawFn) -> Convolution:
    """A convolution whose sums are exact, with a batch axis and equal padding at both ends."""
    case = draw(exact_convolutions("conv", dtypes=twice(DTYPES), borders=NO_BORDERS)).explicit
    pads = [(axis.before, axis.after) for axis in case.axes]
    assume(all(before == after for before, after in pads))
    options = {**case.options, "padding": tuple(before for before, _ in pads)}
    return Convolution("conv", case.arrays, options)


geometry = st.tuples(symmetric(), st.sampled_from(LAYOUTS), st.integers(0, 2**32 - 1))
modes = st.fixed_dictionaries(
    {"auto_tune": st.booleans(), "tensor_core": st.sampled_from([*PRECISIONS])}
)
backward_modes = st.builds(
    lambda mode, deterministic: {**mode, "deterministic": deterministic}, modes, st.booleans()
)


def positional(case: Convolution) -> tuple[Any, ...]:
    """What follows the arrays in a call."""
    return tuple(case.options[name] for name in ("padding", "stride", "dilation", "groups"))


def target(shape: tuple[int, ...], dtype: Any, layout: str, seed: int) -> Array:
    """An array to be written to, which holds nothing that may pass for a result."""
    layout = "contiguous" if layout == "broadcast" else layout
    return lay_out(np.random.default_rng(seed), poison(np.empty(shape, dtype)), layout)


def weight_gradient(x: Array, gy: Array, case: Convolution) -> Array:
    """gW[g*M + m, c, k] = sum over n and o of
    x[n, g*C + c, o*stride - pad + k*dilation] * gy[n, g*M + m, o], with zeros as padding; integers
    modulo 2**64."""
    wide = {"c": np.complex128, "f": np.float64}.get(np.result_type(x, gy).kind, np.int64)
    if x.dtype.name == "bfloat16" or gy.dtype.name == "bfloat16":
        wide = np.float64
    pads = [(0, 0), (0, 0), *((axis.before, axis.after) for axis in case.axes)]
    x, gy = np.pad(x.astype(wide), pads), gy.astype(wide)
    rows, groups = case["weight"].shape[0], case.groups
    gW = np.zeros(case["weight"].shape, wide)
    for tap in np.ndindex(gW.shape[2:]):
        window = tuple(
            slice(
                k * axis.dilation,
                k * axis.dilation + (axis.small - 1) * axis.stride + 1,
                axis.stride,
            )
            for k, axis in zip(tap, case.axes, strict=True)
        )
        shape = x.shape[0], groups, x.shape[1] // groups, math.prod(gy.shape[2:])
        inputs = x[(..., *window)].reshape(shape)
        outputs = gy.reshape(shape[0], groups, rows // groups, shape[-1])
        gW[(..., *tap)] = np.einsum("ngmo,ngco->gmc", outputs, inputs).reshape(gW.shape[:2])
    return gW


@on_numpy_and_cupy
@quick
@given(geometry, modes)
def test_forward(backend: NumpyBackend, drawn: Any, mode: Any) -> None:
    case, layout, seed = drawn
    expected = case.defined.value.astype(case.dtype)
    x, W, b = (None if a is None else backend.asarray(a) for a in case.arrays.values())
    y = backend.asarray(target(expected.shape, case.dtype, layout, seed))
    assert cudnn.convolution_forward(x, W, b, y, *positional(case), **mode) is None
    np.testing.assert_array_equal(backend.to_numpy(y), expected)


@on_numpy_and_cupy
@quick
@given(geometry, backward_modes, st.booleans())
def test_backward_data(backend: NumpyBackend, drawn: Any, mode: Any, with_bias: bool) -> None:
    """The transpose by scatter-add, of the size of y, and a bias for each of y's channels."""
    case, layout, seed = drawn
    adjoint = case.adjoint
    shape = case["input"].shape
    bias = values(np.random.default_rng(seed), shape[1:2], case.dtype, "whole")
    adjoint = adjoint.with_arrays(bias=bias if with_bias else None)
    gy, W, b = (None if a is None else backend.asarray(a) for a in adjoint.arrays.values())
    gx = backend.asarray(target(shape, case.dtype, layout, seed))
    assert cudnn.convolution_backward_data(W, gy, b, gx, *positional(case), **mode) is None
    np.testing.assert_array_equal(backend.to_numpy(gx), adjoint.defined.value.astype(case.dtype))


@on_numpy_and_cupy
@quick
@given(geometry, backward_modes)
def test_backward_filter(backend: NumpyBackend, drawn: Any, mode: Any) -> None:
    case, layout, seed = drawn
    x, gy = case["input"], case.cotangent
    gW = backend.asarray(target(case["weight"].shape, case.dtype, layout, seed))
    x_there, gy_there = backend.asarray(x), backend.asarray(gy)
    assert (
        cudnn.convolution_backward_filter(x_there, gy_there, gW, *positional(case), **mode) is None
    )
    expected = weight_gradient(x, gy, case).astype(case.dtype)
    np.testing.assert_array_equal(backend.to_numpy(gW), expected)


@every_backend
def test_bits_of_the_functions_behind_them(backend: NumpyBackend) -> None:
    rng = np.random.default_rng(0)
    sizes = (2, 32, 7, 8), (32, 16, 3, 3), (2, 32, 4, 4), (32,)
    x, W, gy, b = (backend.asarray(rng.standard_normal(size).astype(np.float32)) for size in sizes)
    options = {"stride": 2, "padding": 1, "groups": 2, "precision": "tf32"}
    mode = {"auto_tune": False, "tensor_core": "always"}
    backward = {**mode, "deterministic": False}
    transposed = {**options, "output_padding": (0, 1)}

    def written(name: str, *arrays: Any, like: Any, **mode: Any) -> Array:
        out = backend.poisoned(like.shape, np.float32)
        backend.call(f"cudnn.{name}", *arrays, out, 1, 2, 1, 2, **mode)
        return backend.to_numpy(out)

    def right(name: str, *arguments: Any, **options: Any) -> Array:
        return backend.to_numpy(backend.call(name, *arguments, **options))

    assert_same_bits(
        written("convolution_forward", x, W, b, like=gy, **mode),
        right("conv2d", x, W, b, **options),
    )
    assert_same_bits(
        written("convolution_backward_data", W, gy, b, like=x, **backward),
        right("conv_transpose2d", gy, W, b, **transposed),
    )
    assert_same_bits(
        written("convolution_backward_filter", x, gy, like=W, **backward),
        right("grad.conv2d_weight", x, W.shape, gy, **options),
    )


@pytest.mark.parametrize("tensor_core", PRECISIONS)
@pytest.mark.parametrize("name", cudnn.__all__)
def test_precision(name: str, tensor_core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy arrays have one accuracy in all precisions, so look at what is passed on."""
    passed = []
    monkeypatch.setattr(cudnn, "convolve", lambda *args: passed.append(args[4]))
    with cupyconv.precision("tf32"):
        call(name, tensor_core=tensor_core)
    assert passed == [PRECISIONS[tensor_core]]


# Errors --------------------------------------------------------------------------------------

# The arrays of a right call in the order of its arguments, and the result's name last.
SHAPES = {"x": (2, 4, 6, 7), "W": (6, 2, 3, 2), "y": (2, 6, 3, 7)}
ARRAYS = {
    "convolution_forward": {**SHAPES, "b": (6,)},
    "convolution_backward_data": {"W": SHAPES["W"], "x": SHAPES["y"], "b": (4,), "y": SHAPES["x"]},
    "convolution_backward_filter": {"x": SHAPES["x"], "gy": SHAPES["y"], "gW": SHAPES["W"]},
}
FORWARD, BACKWARD_DATA, BACKWARD_FILTER = ARRAYS


def right_call(name: str) -> dict[str, Any]:
    arrays = {argument: np.ones(shape, np.float32) for argument, shape in ARRAYS[name].items()}
    options = {"pad": 1, "stride": (2, 1), "dilation": (1, 2), "groups": 2, "tensor_core": "auto"}
    return {**arrays, **options, "auto_tune": True}


def call(name: str, **changes: Any) -> None:
    arguments = {**right_call(name), **changes}
    if name != FORWARD:
        arguments["deterministic"] = False
    getattr(cudnn, name)(**arguments)


def of(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


EVERYWHERE: list[tuple[Mapping[str, Any], type[Exception], str]] = [
    (
        {"tensor_core": "no"},
        ValueError,
        "tensor_core must be one of ('never', 'auto', 'always'), got",
    ),
    ({"tensor_core": None}, TypeError, "tensor_core must be a string, got None"),
    ({"pad": ((1, 1), (0, 0))}, TypeError, "pad must be an integer or one integer for each"),
    ({"pad": "same"}, TypeError, "pad must be an integer or one integer for each spatial axis"),
    ({"pad": (1,)}, ValueError, "pad must have one value for each of 2 spatial axes, got pad=(1,)"),
    ({"pad": (1, -1)}, ValueError, "pad must not be negative, got pad=(1, -1)"),
    ({"stride": 0}, ValueError, "stride must be positive, got stride=0"),
    ({"dilation": 1.0}, TypeError, "dilation must be an integer or a sequence of integers"),
    ({"groups": 0}, ValueError, "groups must be positive, got groups=0"),
    (
        {"w_layout": 1},
        ValueError,
        "w_layout must be 0, channels before the spatial axes, got w_layout=1",
    ),
    (
        {"d_layout": 1},
        ValueError,
        "d_layout must be 0, channels before the spatial axes, got d_layout=1",
    ),
    ({"d_layout": None}, ValueError, "d_layout must be 0, channels before the spatial axes, got"),
]
WRONG: list[tuple[str, Mapping[str, Any], type[Exception], str]] = [
    (FORWARD, {"y": None}, TypeError, "y must be a NumPy or CuPy array, got NoneType"),
    (FORWARD, {"x": [1.0]}, TypeError, "x must be a NumPy or CuPy array, got list"),
    (
        FORWARD,
        {"W": of(3, 2)},
        ValueError,
        "W must have 1 to 24 spatial axes after its two channel",
    ),
    (
        FORWARD,
        {"x": of(6, 7)},
        ValueError,
        "x must have 4 axes, or 3 without a batch axis, got x of",
    ),
    (FORWARD, {"x": of(2, 3, 6, 7)}, ValueError, "x must have groups * W.shape[1] channels, got 3"),
    (
        FORWARD,
        {"b": of(3)},
        ValueError,
        "b must have shape (6,), one value for each output channel",
    ),
    (FORWARD, {"b": of(6, dtype="c8")}, TypeError, "b must be castable to the result's dtype"),
    (
        FORWARD,
        {"y": of(2, 6, 3, 8)},
        ValueError,
        "y must have shape (2, 6, 3, 7), got (2, 6, 3, 8)",
    ),
    (
        FORWARD,
        {"y": of(2, 6, 3, 7, dtype="f8")},
        TypeError,
        "y must have dtype float32, got float64",
    ),
    (
        FORWARD,
        {"dilation": 9},
        ValueError,
        "the kernel must not be larger than the padded x, got x of",
    ),
    (BACKWARD_DATA, {"y": None}, TypeError, "y must be a NumPy or CuPy array, got NoneType"),
    (BACKWARD_DATA, {"b": of(6)}, ValueError, "b must have shape (4,), one value for each output"),
    (
        BACKWARD_DATA,
        {"x": of(2, 6, 2, 7)},
        ValueError,
        "x must have the shape of the convolution's result, (2, 6, 3, 7), got x of shape "
        "(2, 6, 2, 7) with y.shape=(2, 4, 6, 7), W of shape (6, 2, 3, 2), ",
    ),
    (BACKWARD_DATA, {"y": of(6, 7)}, ValueError, "y must have 4 axes, or 3 without a batch"),
    (BACKWARD_DATA, {"y": of(2, 3, 6, 7)}, ValueError, "y must have groups * W.shape[1] channels"),
    (BACKWARD_DATA, {"y": of(2, 4, 6, 7, dtype="f8")}, TypeError, "y must have dtype float32, got"),
    (BACKWARD_FILTER, {"gW": None}, TypeError, "gW must be a NumPy or CuPy array, got NoneType"),
    (
        BACKWARD_FILTER,
        {"gW": of(6, 1, 3, 2)},
        ValueError,
        "x must have groups * gW.shape[1] channels",
    ),
    (
        BACKWARD_FILTER,
        {"gy": of(1, 6, 3, 7)},
        ValueError,
        "gy must have the shape of the convolution's result, (2, 6, 3, 7), got gy of shape "
        "(1, 6, 3, 7) with x of shape (2, 4, 6, 7), gW.shape=(6, 2, 3, 2), ",
    ),
    (
        BACKWARD_FILTER,
        {"x": of(2, 4, 6, 7, dtype=bool)},
        TypeError,
        "x must have one of the dtypes",
    ),
    *((name, *row) for name in ARRAYS for row in EVERYWHERE),
]
RESULT = {FORWARD: "y", BACKWARD_DATA: "y", BACKWARD_FILTER: "gW"}
# Names that other functions have for these arguments.
OTHER_NAMES = re.compile(r"\b(input|weight|bias|out|grad_output|input_size|weight_size|padding=)\b")


@pytest.mark.parametrize("name", ARRAYS)
def test_the_right_call_is_right(name: str) -> None:
    call(name)


@pytest.mark.parametrize(("name", "changes", "error", "text"), WRONG)
def test_wrong_calls(
    name: str, changes: Mapping[str, Any], error: type[Exception], text: str
) -> None:
    result = changes.get(RESULT[name], of(*ARRAYS[name][RESULT[name]]))
    before = None if result is None else result.copy()
    with pytest.raises(error) as caught:
        call(name, **{RESULT[name]: result, **changes})
    assert str(caught.value).startswith(f"{name}: {text}")
    assert not OTHER_NAMES.search(str(caught.value)), caught.value
    if before is not None:
        assert_same_bits(result, before)


@pytest.mark.parametrize("name", ARRAYS)
def test_result_that_shares_memory(name: str) -> None:
    arguments = right_call(name)
    shared = RESULT[name]
    for other in set(ARRAYS[name]) - {shared}:
        memory = np.ones(1000, np.float32)
        changed = {
            key: memory[: arguments[key].size].reshape(arguments[key].shape)
            for key in (shared, other)
        }
        with pytest.raises(
            ValueError, match=f"^{name}: {shared} must not share memory with {other}$"
        ):
            call(name, **changed)


@pytest.mark.parametrize("name", ARRAYS)
def test_the_view_that_an_error_advises(name: str) -> None:
    """It is the array with channels before the spatial axes."""
    arguments = {key: a for key, a in right_call(name).items() if isinstance(a, np.ndarray)}
    last = {key: np.moveaxis(a, 1, -1) for key, a in arguments.items() if a.ndim > 1}
    for layout in ("d_layout", "w_layout"):
        with pytest.raises(ValueError) as caught:
            call(name, **{layout: 1})
        _, _, advice = str(caught.value).partition("; move the channel axis by a view, ")
        for view in advice.split(" and "):
            array = view.removeprefix("numpy.moveaxis(").partition(",")[0]
            assert eval(view, {"numpy": np, **last}).shape == arguments[array].shape


def test_errors_of_others_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors of this module's functions are reworded."""

    def broken(*args: Any) -> None:
        raise ValueError("an input of another library")

    monkeypatch.setattr(cudnn, "convolve", broken)
    with pytest.raises(ValueError, match="an input of another library"):
        call(FORWARD)


@pytest.mark.parametrize("name", cudnn.__all__)
def test_examples_of_the_module_run(name: str) -> None:
    (example,) = doctest.DocTestFinder().find(getattr(cudnn, name), name, globs={})
    result = doctest.DocTestRunner().run(example)
    assert result.failed == 0
    assert result.attempted > 3


def test_signatures() -> None:
    """Those of CuPy 13, in which `auto_tune`, `deterministic` and `tensor_core` are required."""
    numbers = "pad, stride, dilation, groups"
    options = "auto_tune, tensor_core, d_layout=0, w_layout=0"
    expected = {
        FORWARD: f"(x, W, b, y, {numbers}, *, {options})",
        BACKWARD_DATA: f"(W, x, b, y, {numbers}, *, deterministic, {options})",
        BACKWARD_FILTER: f"(x, gy, gW, {numbers}, *, deterministic, {options})",
    }
    for name, text in expected.items():
        signature = inspect.signature(getattr(cudnn, name))
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        bare = signature.replace(parameters=plain, return_annotation=signature.empty)
        assert str(bare) == text
