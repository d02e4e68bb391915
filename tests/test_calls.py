"""A call like an earlier one: nothing is checked or planned twice, and nothing is mixed up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupyconv
from backends import EmulatorBackend, NumpyBackend, every_backend, every_kernel
from bounds import assert_same_bits
from cupyconv import _arrays, _calls, _geometry
from cupyconv._kernels import choice
from cupyconv._launch import KernelPath
from planning import Recorder, recorded
from reference import Array
from strategies import FUSED, Case, convolution, convolutions
from test_errors import HostBackend, nested

FUNCTIONS = {
    "conv2d": ((2, 4, 6, 7), (6, 2, 3, 2), {"groups": 2, "stride": (2, 1)}),
    "conv_transpose2d": ((2, 4, 6, 7), (4, 3, 3, 2), {"groups": 2, "padding": ((1, 0), (0, 1))}),
    "conv": ((4, 6), (6, 4, 3), {"padding": "same"}),
    "depthwise_conv2d": ((2, 3, 6, 7), (6, 1, 3, 2), {}),
}


@pytest.fixture(autouse=True)
def no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without earlier calls."""
    monkeypatch.setattr(_calls, "kept", {})


def fail(*_: Any, **__: Any) -> Any:
    raise AssertionError("this was done for an earlier call")


@contextmanager
def nothing_is_checked_or_planned() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("check", "check_bias", "result_dtype"):
            patch.setattr(_arrays, name, fail)
        for name in ("conv", "conv_transpose", "depthwise_conv", "batch_norm", "max_pool2d"):
            patch.setattr(_geometry, name, fail)
        for name in ("prepare", "fused"):
            patch.setattr(KernelPath, name, fail)
        yield


@pytest.fixture
def device() -> Iterator[Recorder]:
    with recorded() as recorder:
        yield recorder


@every_backend
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_second_call_checks_and_plans_nothing(backend: NumpyBackend, function: str) -> None:
    input_shape, weight_shape, options = FUNCTIONS[function]
    case = convolution(function, input_shape, weight_shape, bias=True, **options)
    first = backend.compute(case)
    other = case.map(lambda a: a + 1)
    with nothing_is_checked_or_planned():
        assert_same_bits(backend.compute(case), first)
        second = backend.compute(other)
        with pytest.raises(AssertionError, match="earlier call"):
            backend.compute(case.map(np.asfortranarray))
    _calls.kept.clear()
    assert_same_bits(backend.compute(other), second)


@every_kernel
@pytest.mark.parametrize("function", FUNCTIONS)
def test_contents_are_read_anew(backend: NumpyBackend, function: str) -> None:
    """The same arrays with other contents give what other arrays with these contents give."""
    input_shape, weight_shape, options = FUNCTIONS[function]
    case = convolution(function, input_shape, weight_shape, bias=True, **options)
    arrays = case.map(lambda a: backend.asarray(a.copy())).arrays
    seen = [backend.to_numpy(backend.call(function, **arrays, **options)).copy()]
    for name in ("input", "weight", "bias"):
        arrays[name][...] *= 2
        with nothing_is_checked_or_planned():
            result = backend.to_numpy(backend.call(function, **arrays, **options)).copy()
        assert all((result != before).any() for before in seen)
        seen.append(result)
    _calls.kept.clear()
    assert_same_bits(backend.compute(case.map(lambda a: a * 2)), seen[-1])


@every_backend
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("given", [False, True])
def test_fused_calls(backend: NumpyBackend, given: bool, dtype: str) -> None:
    """On Tensor Cores nothing is planned anew; what is composed prepares its parts."""
    rng = np.random.default_rng(0)
    shapes = ((2, 9, 5, 6), (9, 8, 3, 3), (8,), (8,), (8,), (8,))
    arrays = [backend.asarray(rng.random(shape).astype(dtype)) for shape in shapes]
    statistics = {name: backend.asarray(rng.random(8) + 1) for name in ("mean", "var")}
    function = FUSED

    def compute(num_groups: int = 2, **options: Any) -> Array:
        known = statistics if given else {}
        result = backend.call(function, *arrays, num_groups=num_groups, **known, **options)
        return backend.to_numpy(result).copy()

    first = compute()
    assert len(_calls.kept) == 1
    for array in arrays:
        array[...] *= 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_arrays, "check", fail)
        patch.setattr(_geometry, "conv_transpose", fail)
        patch.setattr(KernelPath, "fused", fail)
        second = compute()
        for other in ({"num_groups": 4}, {"eps": 1e-3}, {"eps": 1}, {"padding": 1}):
            with pytest.raises(AssertionError, match="earlier call"):
                compute(**other)
    assert (second != first).any()
    assert (compute(eps=1e-3) != second).any() and len(_calls.kept) == 2
    _calls.kept.clear()
    assert_same_bits(compute(), second)
    for wrong in (True, 1.0):
        with pytest.raises(TypeError, match="stride"):
            compute(stride=wrong)


def test_addresses_are_those_of_the_call(device: Recorder) -> None:
    def addresses(*operands: Array) -> list[int]:
        return [a.__array_interface__["data"][0] for a in operands]

    constants = []
    for _ in range(2):
        x, w, b = (np.ones(shape, np.float32) for shape in ((2, 3, 5, 5), (4, 3, 3, 3), (4,)))
        with choice.forced("direct"):
            y = cupyconv.conv2d(x, w, b)
        arguments = device.arguments.pop()
        *operands, partial, bias = arguments[:5]
        assert [*operands, bias] == addresses(x, w, y, b)
        assert partial == 0
        constants.append(arguments[5:])
    assert constants[0] == constants[1]
    with choice.forced("direct"):
        cupyconv.conv2d(x, w)
    assert device.arguments.pop()[4] == 0


def test_the_calls_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calls, "MOST", 4)
    w = np.ones((1, 1, 2), np.float32)
    for size in (*range(2, 12), *range(2, 12)):
        assert cupyconv.conv1d(np.ones((1, size), np.float32), w).tolist() == [[2.0] * (size - 1)]
        assert 1 <= len(_calls.kept) <= 4


def test_a_wrong_call_is_not_kept() -> None:
    x, w = np.ones((1, 1, 5)), np.ones((1, 1, 3))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^conv1d: stride must be positive, got stride=0$"):
            cupyconv.conv1d(x, w, stride=0)
        with pytest.raises(ValueError, match=r"^conv1d: out must not share memory with input$"):
            cupyconv.conv1d(x, w, padding=1, out=x)
    assert not _calls.kept


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"stride": 1}, {"stride": True}),
        ({"stride": 1}, {"stride": 1.0}),
        ({"dilation": (1, 1)}, {"dilation": (1, True)}),
        ({"padding": ((0, 1), (1, 1))}, {"padding": ((0, 1), (True, 1))}),
        ({"padding": ((0, 1), (1, 1))}, {"padding": ((False, 1), (1, 1))}),
        ({"groups": 1}, {"groups": 1.0}),
        ({"groups": 1}, {"groups": np.array([1])}),
    ],
    ids=str,
)
def test_equal_arguments_of_other_types(right: dict[str, Any], wrong: dict[str, Any]) -> None:
    """True and 1.0 equal 1 and are refused all the same."""
    x, w = np.ones((1, 1, 5, 5)), np.ones((1, 1, 3, 3))
    cupyconv.conv2d(x, w, **right)
    with pytest.raises(TypeError, match=r"^conv2d: "):
        cupyconv.conv2d(x, w, **wrong)


def test_arguments_of_other_types_that_are_taken() -> None:
    x, w = np.ones((1, 1, 5, 5)), np.ones((1, 1, 3, 3))
    expected = cupyconv.conv2d(x, w, stride=(2, 1))
    assert len(_calls.kept) == 1
    for stride in ([2, 1], (np.int64(2), 1), np.array([2, 1])):
        assert_same_bits(cupyconv.conv2d(x, w, stride=stride), expected)
    assert len(_calls.kept) == 1


def test_other_classes_of_arrays() -> None:
    """A class derived from NumPy's is taken, but has no call kept for it; some are refused."""

    class Derived(np.ndarray):
        pass

    x, w = np.ones((1, 5)), np.ones((1, 1, 3))
    result = cupyconv.conv1d(x.view(Derived), w)
    assert type(result) is np.ndarray and not _calls.kept
    cupyconv.conv1d(x, w)
    for wrong in (x.view(np.matrix), np.ma.masked_array(x)):
        with pytest.raises(TypeError, match=r"^conv1d: input must be a NumPy or CuPy array, got "):
            cupyconv.conv1d(wrong, w)
    with pytest.raises(TypeError, match=r"^conv1d: arrays must be all from NumPy or all from CuPy"):
        cupyconv.conv1d(x, HostBackend().asarray(w))


def test_an_out_that_overlaps_is_seen_in_each_call() -> None:
    memory = np.ones((2, 1, 1, 6))
    w = np.ones((1, 1, 3))
    for x, out in ((memory[0], memory[1]), (memory[1], memory[0])):
        assert cupyconv.conv1d(x, w, padding=1, out=out) is out
    with pytest.raises(ValueError, match=r"^conv1d: out must not share memory with input$"):
        cupyconv.conv1d(memory[0], w, padding=1, out=memory[0])
    memory.flags.writeable = False
    with pytest.raises(ValueError, match=r"^conv1d: out must be writable, got a read-only array$"):
        cupyconv.conv1d(np.ones((1, 1, 6)), w, padding=1, out=memory[0])


def test_what_a_layout_tells_apart() -> None:
    memory = np.zeros(64, np.uint8)
    host = HostBackend()
    arrays = [
        host.asarray(memory[start : start + 16].view(dtype).reshape(shape)[::step], device)
        for start in (0, 1)
        for dtype in ("float32", "int32")
        for shape in ((4,), (2, 2))
        for step in (1, -1)
        for device in (0, 1)
    ]
    layouts = [_arrays.layout(array) for array in arrays]
    assert None not in layouts and len(set(layouts)) == len(layouts)
    assert _arrays.layout(host.asarray(memory[4:20].view("float32"))) == layouts[0]
    assert _arrays.layout(memory[:16].view("float32")) not in layouts


def test_precision_and_forced_kernels(device: Recorder) -> None:
    """Settings of the enclosing block belong to a call."""
    x, w = np.ones((4, 64, 16, 16), np.float32), np.ones((64, 64, 3, 3), np.float32)

    def kernels(**options: Any) -> list[str]:
        cupyconv.conv2d(x, w, **options)
        launches = [str(launch) for launch in device.launches]
        device.launches.clear()
        return launches

    for _ in range(2):
        exact = kernels()
        with cupyconv.precision("tf32"):
            fast = kernels()
            assert kernels(precision="float32") == exact != fast
        assert kernels(precision="tf32") == fast
        with choice.forced("direct"):
            assert ["direct_conv.cu" in launch for launch in kernels()] == [True]


def test_casts_are_made_in_each_call() -> None:
    """An input of another dtype and order is read at its own address, however it lies."""
    backend = EmulatorBackend()
    x = np.asfortranarray(np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(np.int16))
    w = np.asfortranarray(np.random.default_rng(0).standard_normal((3, 3, 2, 2)))
    for _ in range(2):
        expected = backend.call("conv2d", np.ascontiguousarray(x, np.float64), w.copy("C"))
        assert_same_bits(backend.call("conv2d", x, w), expected)
        x += 1


@given(cases=st.lists(convolutions(), min_size=2, max_size=3))
def test_calls_do_not_meet(cases: list[Case]) -> None:
    """What calls give does not depend on what was called before."""
    backend = NumpyBackend()
    alone = []
    for case in cases:
        _calls.kept.clear()
        alone.append(backend.compute(case))
    for case, expected in zip(cases, alone, strict=True):
        assert_same_bits(backend.compute(case), expected)


# For each function, a right call and the options that are not arrays.
OPTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "conv2d": (
        partial(cupyconv.conv2d, np.ones((1, 2, 4, 4)), np.ones((2, 2, 3, 3))),
        ("stride", "padding", "dilation", "groups", "precision"),
    ),
    "conv_transpose2d": (
        partial(cupyconv.conv_transpose2d, np.ones((1, 2, 4, 4)), np.ones((2, 2, 3, 3))),
        ("stride", "padding", "output_padding", "groups", "dilation", "output_size", "precision"),
    ),
    "max_pool2d": (
        partial(cupyconv.max_pool2d, np.ones((1, 2, 4, 4)), kernel_size=2),
        ("stride", "padding", "dilation", "ceil_mode"),
    ),
    "fused": (
        partial(
            cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm,
            *(np.ones((2, 4, 6, 6)), np.ones((4, 4, 3, 3)), *(np.ones(4) for _ in range(4))),
            num_groups=2,
            eps=1e-5,
        ),
        ("num_groups", "stride", "padding", "output_padding", "groups", "eps", "precision"),
    ),
}
ODD_VALUES = [
    *(1, 2, 0, -1, True, False, 1.0, 2.0, 1e-5, 0.0, -0.0, np.nan, 10**30, 10**5000, None, 1j),
    *("same", "valid", "float32", "tf32", "1", "", b"same", (1e-5).hex()),
    *(np.int64(1), np.int8(2), np.float64(1e-5), np.array(1), np.array([1, 2]), np.True_),
    *(6, 6.0, (6, 6), (6, 6.0), [6, 6], np.int64(6)),
    *((1, 1), (1, True), ((0, 1), (1, 1)), [1, 1], [[0, 1], [1, 1]], (), (1,), {1}, {"a": 1}),
    *(("float", (1e-5).hex()), (float, (1e-5).hex()), float, range(1, 3), Fraction(1, 3)),
    *(nested((), 3, tuple), nested((), 1000, tuple), nested([], 1000), nested([], 100_000)),
]


def outcome(call: Callable[..., Any], **options: Any) -> tuple[Any, ...]:
    try:
        result = call(**options)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return result.shape, result.tobytes()


@pytest.mark.parametrize("function", OPTIONS)
@given(data=st.data())
def test_a_call_is_what_it_is_without_the_calls_before_it(function: str, data: Any) -> None:
    """Whatever is given to options: a value is refused, or computed with, as in a first call."""
    call, names = OPTIONS[function]
    name = data.draw(st.sampled_from(names))
    values = data.draw(st.lists(st.sampled_from(range(len(ODD_VALUES))), min_size=1, max_size=4))
    call()
    for index in values:
        again = outcome(call, **{name: ODD_VALUES[index]})
        _calls.kept.clear()
        assert again == outcome(call, **{name: ODD_VALUES[index]})


@pytest.mark.parametrize("function", OPTIONS)
def test_each_odd_value_is_computed_with_or_refused(function: str) -> None:
    """No value brings an error of Python's own, and an error repeats no more than it need."""
    call, names = OPTIONS[function]
    for name in names:
        for value in ODD_VALUES:
            error, *text = outcome(call, **{name: value})
            assert not isinstance(error, type) or len(text[0]) < 2000


class Integer(int):
    """An integer of a derived class."""


class Number(float):
    """A float of a derived class."""


class Word(str):
    """A string of a derived class."""


class Values(tuple):  # type: ignore[type-arg]
    """A tuple of a derived class."""


def disguises(value: Any) -> st.SearchStrategy[Any]:
    """Values that equal `value`, or that a key could hold in its place."""
    if isinstance(value, (bool, int, float)):
        number = float(value)
        forms = [int(number), number, -number, bool(number), Integer(number), Number(number)]
        forms += [np.int64(number), np.float64(number), np.bool_(number), Fraction(number)]
        forms += [complex(number), str(value), number.hex(), ("float", number.hex())]
        forms += [(float, number), ("float", number), np.array(value), np.float32(value)]
        return st.sampled_from([*forms, (value,), [value], (value, value), b"\1"])
    if isinstance(value, str):
        return st.sampled_from([Word(value), np.str_(value), value.encode(), (value,), [value]])
    if isinstance(value, tuple):
        items = st.tuples(*(st.just(item) | disguises(item) for item in value))
        return items | st.builds(list, items) | st.builds(Values, items) | st.just(np.array(value))
    return st.sampled_from([None, "None", (), False])


def assert_apart(function: str, name: str, first: Any, second: Any, **more: Any) -> None:
    """A call gives what it gives as the first one, although another one was called before it."""
    call, _ = OPTIONS[function]
    _calls.kept.clear()
    alone = outcome(call, **{name: second}, **more)
    _calls.kept.clear()
    outcome(call, **{name: first}, **more)
    assert outcome(call, **{name: second}, **more) == alone


@pytest.mark.parametrize("function", OPTIONS)
@given(data=st.data())
def test_no_value_is_taken_for_one_that_equals_it(function: str, data: Any) -> None:
    name = data.draw(st.sampled_from(OPTIONS[function][1]))
    values = [1, 2, 1.0, 1e-5, 0, 6, "same", "tf32", (1, 1), (6, 6), ((0, 1), (1, 1)), None]
    first = data.draw(st.sampled_from(values))
    assert_apart(function, name, first, data.draw(disguises(first)))


@pytest.mark.parametrize(
    ("function", "name", "first", "second"),
    [
        ("fused", "eps", 1e-5, ("float", (1e-5).hex())),
        ("fused", "eps", 1e-5, (1e-5).hex()),
        ("fused", "eps", 1.0, True),
        ("conv2d", "groups", 1, True),
        ("conv2d", "padding", ((0, 1), (1, 1)), ((0, 1), (1, 1.0))),
        ("conv2d", "padding", "same", Word("same")),
        ("conv_transpose2d", "output_size", 6, 6.0),
        ("conv_transpose2d", "output_size", (6, 6), (6, 6.0)),
    ],
)
def test_values_that_were_taken_for_others(
    function: str, name: str, first: Any, second: Any
) -> None:
    assert_apart(function, name, first, second)


def test_zeros_of_both_signs() -> None:
    """A variance of -0.0 tells them apart."""
    statistics = {"mean": np.ones(4), "var": np.full(4, -0.0)}
    with np.errstate(all="ignore"):
        for first in (0.0, -0.0):
            assert_apart("fused", "eps", first, -first, **statistics)


def test_an_eps_of_any_class_is_kept() -> None:
    call, _ = OPTIONS["fused"]
    for eps in (1.0, 1, np.float32(1), Fraction(1)):
        call(eps=eps)
    assert len(_calls.kept) == 1
