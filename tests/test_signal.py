"""Convolution and correlation of signals: definition, SciPy, promises, errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
import scipy.signal
from hypothesis import given
from hypothesis import strategies as st

import cupyconv
import reference
from backends import NumpyBackend, every_backend
from bounds import assert_by_fft, assert_convolution, assert_same_bits
from cupyconv import _calls, signal
from cupyconv._numpy_path import NumpyPath
from reference import Array, Shape, Sums
from strategies import (
    BFLOAT16,
    DTYPES,
    STYLES,
    Case,
    drawn_values,
    dtype_pairs,
    lay_out,
    twice,
    values,
)
from test_errors import ODD, ODD_DTYPES, WithUnit, every_cupy

FUNCTIONS = ("signal.convolve", "signal.correlate")
MODES = ("full", "same", "valid")
every_function = pytest.mark.parametrize("function", FUNCTIONS)


class Signal(Case):
    """A call of a function of `cupyconv.signal`."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the result."""
        return np.result_type(self["in1"], self["in2"])

    @property
    def axes(self) -> Shape:
        """The axes that are convolved, in order."""
        named, rank = self.options.get("axes"), self["in1"].ndim
        if named is None:
            return tuple(range(rank))
        return tuple(sorted(axis % rank for axis in np.atleast_1d(named).tolist()))

    @property
    def pairs(self) -> tuple[Shape, Array, Array]:
        """The batch, and both signals broadcast to it, with the convolved axes last."""
        lead = self["in1"].ndim - len(self.axes)
        last = range(-len(self.axes), 0)
        first, second = (np.moveaxis(self[name], self.axes, last) for name in ("in1", "in2"))
        batch = np.broadcast_shapes(first.shape[:lead], second.shape[:lead])
        first, second = (np.broadcast_to(a, (*batch, *a.shape[lead:])) for a in (first, second))
        return batch, first, second

    def placed(self, parts: list[Array], shape: Shape) -> Array:
        """The results of all pairs as one array, with its axes in the order of the signals'."""
        return np.moveaxis(np.array(parts).reshape(shape), range(-len(self.axes), 0), self.axes)

    @property
    def defined(self) -> Sums:
        """The result by definition: of each pair the full convolution, of which a part is taken."""
        batch, first, second = self.pairs
        if self.function == "signal.correlate":
            second = np.flip(second, tuple(range(len(batch), second.ndim))).conj()
        n, k = (np.array(a.shape[len(batch) :]) for a in (first, second))
        mode = self.options.get("mode", "full")
        size = {"full": n + k - 1, "same": n, "valid": abs(n - k) + 1}[mode]
        start = (n + k - 1 - size) // 2  # the middle
        window = tuple(slice(a, a + b) for a, b in zip(start, size, strict=True))
        if 0 in batch:
            nothing = self.placed([], (*batch, *size))
            return Sums(nothing.astype(self.dtype), nothing, nothing)
        sums = [
            reference.conv_transpose(first[place][None], second[place][None, None])
            for place in np.ndindex(batch)
        ]
        parts = zip(*sums, strict=True)
        shape = (*batch, *size)
        return Sums(*(self.placed([p[0][window] for p in part], shape) for part in parts))

    def by_scipy(self) -> Array:
        """The result of SciPy's function, pair by pair."""
        batch, first, second = self.pairs
        function = getattr(scipy.signal, self.function.rpartition(".")[2])
        mode = self.options.get("mode", "full")
        parts = [function(first[i], second[i], mode, "direct") for i in np.ndindex(batch)]
        return self.placed(parts, (*batch, *parts[0].shape))


# Sizes of axes that are not convolved; axes of no elements are drawn, but not often.
BATCHES = [(2, 2), (3, 3), (1, 1), (1, 3), (1, 2), (2, 1), (3, 1)] * 3 + [(0, 0), (1, 0), (0, 1)]


@st.composite
def signals(
    draw: st.DrawFn, *, dtypes: Any = dtype_pairs, styles: Any = STYLES, batches: Any = BATCHES
) -> Signal:
    """A call of either function: axes that are convolved, and others of every kind."""
    convolved = draw(st.sampled_from([1, 2, 1, 2, 3]))
    sizes = st.integers(1, {1: 14, 2: 6, 3: 4}[convolved])
    spaces = [(draw(sizes), draw(sizes)) for _ in range(convolved)]
    mode = draw(st.sampled_from(MODES))
    if mode == "valid":
        larger = draw(st.sampled_from([0, 1]))
        spaces = [tuple(sorted(pair, reverse=larger == 0)) for pair in spaces]
    others = draw(st.lists(st.sampled_from(batches), max_size=3))
    pairs = [*spaces, *others]
    order = draw(st.permutations(range(len(pairs))))
    shapes = [tuple(pairs[i][which] for i in order) for which in (0, 1)]
    axes: Any = tuple(order.index(i) for i in range(convolved))
    axes = tuple(axis - len(order) if draw(st.booleans()) else axis for axis in axes)
    if not others and draw(st.booleans()):
        axes = None
    elif convolved == 1 and draw(st.booleans()):
        axes = axes[0]
    arrays = draw(drawn_values(shapes, draw(dtypes), draw(st.sampled_from(styles))))
    named = dict(zip(("in1", "in2"), arrays, strict=True))
    options = {"mode": mode, "axes": axes, "method": "direct"}
    return Signal(draw(st.sampled_from(FUNCTIONS)), named, options)


def call_of(
    function: str, first: Shape, second: Shape, dtype: Any = np.float32, **options: Any
) -> Signal:
    """A call with given shapes, for explicit examples: of direct sums by default."""
    options = {"method": "direct", **options}
    rng = np.random.default_rng(0)
    arrays = {"in1": values(rng, first, dtype), "in2": values(rng, second, dtype)}
    return Signal(function, arrays, options)


# What is easy to get wrong: even sizes and in1 smaller than in2 in "same"; the larger signal on
# another axis than the other; no weight with more than one element; every kind of batch axis, and
# empty ones.
SHAPES: list[tuple[Shape, Shape, Any]] = [
    ((7,), (4,), None),
    ((4,), (7,), None),
    ((1,), (6,), None),
    ((6,), (1,), None),
    ((1, 1), (1, 1), None),
    ((9, 4), (4, 2), None),
    ((3, 2), (6, 9), None),
    ((12, 2), (3, 20), None),
    ((1, 8), (8, 1), None),
    ((5, 20, 31), (1, 4, 5), None),
    ((5, 20, 31), (1, 4, 5), (1, 2)),
    ((1, 4, 5), (5, 20, 31), (-1, -2)),
    ((2, 9, 1, 3), (2, 4, 5, 1), 1),
    ((2, 3, 9, 4), (2, 1, 4, 4), [2]),
    ((0, 5), (1, 3), 1),
    ((3, 5, 1), (3, 3, 0), 1),
]


# Against the definition and SciPy --------------------------------------------------------------


def check(backend: NumpyBackend, case: Signal) -> None:
    assert_convolution(backend.compute(case), case.defined, case.dtype)


@every_backend
@given(case=signals())
def test_definition(backend: NumpyBackend, case: Signal) -> None:
    check(backend, case)


def calls_of(function: str, mode: str, shapes: tuple[Shape, Shape, Any]) -> Iterator[Signal]:
    """The calls of two dtypes with given shapes and axes, if the mode has any."""
    first, second, axes = shapes
    for dtype in ("float32", "complex64"):
        case = call_of(function, first, second, dtype, mode=mode, axes=axes)
        n, k = (np.array(a.shape)[list(case.axes)] for a in (case["in1"], case["in2"]))
        if mode != "valid" or (n >= k).all() or (n <= k).all():
            yield case


@every_backend
@every_function
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_definition_on_examples(
    backend: NumpyBackend, function: str, mode: str, shapes: tuple[Shape, Shape, Any]
) -> None:
    for case in calls_of(function, mode, shapes):
        check(backend, case)


@given(
    case=signals(
        dtypes=twice(["float64", "complex128", "int64", "int32"]),
        styles=["whole"],
        batches=[pair for pair in BATCHES if 0 not in pair],
    )
)
def test_scipy(case: Signal) -> None:
    """Small integers, whose sums are exact in every dtype."""
    case = case.map(lambda a: a % 16 if a.dtype.kind == "i" else a)
    expected = case.by_scipy()
    result = NumpyBackend().compute(case)
    assert result.shape == expected.shape
    assert result.dtype == case.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("first", "second", "axes"),
    [((4, 9, 3), (4, 5, 3), 1), ((1, 5, 3), (4, 9, 1), 1), ((3, 8, 9), (1, 3, 4), (2, 1))],
)
def test_axes_are_those_of_fftconvolve(mode: str, first: Shape, second: Shape, axes: Any) -> None:
    case = call_of("signal.convolve", first, second, np.float64, mode=mode, axes=axes)
    full = scipy.signal.fftconvolve(case["in1"], case["in2"], "full", axes)
    result = NumpyBackend().compute(case)
    if mode == "same" and first[0] < second[0]:  # where SciPy also cuts out the middle of the batch
        n, k = first[1], second[1]
        np.testing.assert_allclose(result, full[:, (k - 1) // 2 :][:, :n], atol=1e-12)
    else:
        expected = scipy.signal.fftconvolve(case["in1"], case["in2"], mode, axes)
        np.testing.assert_allclose(result, expected, atol=1e-12)


@every_backend
@every_function
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_arrays_without_axes(
    backend: NumpyBackend, function: str, dtype: np.dtype[Any], mode: str
) -> None:
    """Their product, as an array."""
    case = call_of(function, (1,), (1,), dtype)
    first, second = case["in1"], case["in2"]
    bare = case.map(lambda a: a.reshape(()))
    result = backend.compute(Signal(function, bare.arrays, {"mode": mode}))
    assert result.shape == ()
    exact = first * (second.conj() if function == "signal.correlate" else second)
    if dtype.kind in "iu":
        assert_same_bits(result, exact.reshape(()))
    else:
        np.testing.assert_allclose(
            result.astype(complex), exact[0].astype(complex), float(ml_dtypes.finfo(dtype).eps)
        )


@every_backend
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "uint64"])
def test_integers_wrap(backend: NumpyBackend, dtype: str) -> None:
    """Sums are exact modulo the range, against Python's integers."""
    case = call_of("signal.convolve", (40,), (30,), dtype)
    bits = np.iinfo(dtype).bits
    exact = np.convolve(case["in1"].astype(object), case["in2"].astype(object))
    assert any(abs(number) >= 2**bits for number in exact)
    wrapped = np.array([number % 2**bits for number in exact], object)
    result = backend.compute(case)
    assert result.dtype == dtype
    assert (result.astype(object) % 2**bits == wrapped).all()


@pytest.mark.parametrize("mode", ["full", "valid"])
def test_exchanged_inputs(mode: str) -> None:
    """A convolution does not change, a correlation is reversed and conjugated."""
    a, b = call_of("signal.convolve", (9, 7), (5, 3), np.complex128).arrays.values()
    np.testing.assert_allclose(signal.convolve(a, b, mode), signal.convolve(b, a, mode))
    back = np.flip(signal.correlate(b, a, mode)).conj()
    np.testing.assert_allclose(signal.correlate(a, b, mode), back)


def test_same_of_an_empty_signal_is_empty() -> None:
    for first, second, axes in (((0,), (3,), None), ((2, 0), (1, 3), 1), ((0, 4), (3, 2), None)):
        result = signal.convolve(np.ones(first, np.float32), np.ones(second), "same", axes=axes)
        assert (result.shape, result.dtype) == (first, np.float64)


# Fourier transforms ----------------------------------------------------------------------------

FLOATS = ["float16", "float32", "float64", "complex64", "complex128", BFLOAT16]


def by_method(case: Signal, method: str, backend: NumpyBackend | None = None) -> Array:
    """The result of a call by another method."""
    backend = backend or NumpyBackend()
    options = {**case.options, "method": method}
    return backend.compute(Signal(case.function, case.arrays, options))


@every_backend
@pytest.mark.parametrize("method", ["fft", "auto"])
@given(case=signals(dtypes=twice(FLOATS), styles=["whole"]))
def test_transforms(backend: NumpyBackend, method: str, case: Signal) -> None:
    result = by_method(case, method, backend)
    assert_by_fft(result, case.defined.value, [case["in1"], case["in2"]], case.dtype)


@every_backend
@every_function
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_transforms_of_examples(
    backend: NumpyBackend, function: str, mode: str, shapes: tuple[Shape, Shape, Any]
) -> None:
    """Of random numbers; small elements of a result lie beside large ones."""
    for case in calls_of(function, mode, shapes):
        result = by_method(case, "fft", backend)
        assert_by_fft(result, case.defined.value, [case["in1"], case["in2"]], case.dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_transforms_are_those_of_fftconvolve(mode: str, dtype: str) -> None:
    case = call_of("signal.convolve", (3, 90, 31), (3, 41, 8), dtype, mode=mode, axes=(1, 2))
    expected = scipy.signal.fftconvolve(case["in1"], case["in2"], mode, (1, 2))
    assert_by_fft(by_method(case, "fft"), expected, [case["in1"], case["in2"]], dtype)


@pytest.mark.parametrize(("gain", "taken"), [(1.19, "direct"), (1.2, "fft")])
def test_auto_takes_what_should_be_faster(
    monkeypatch: pytest.MonkeyPatch, gain: float, taken: str
) -> None:
    case = call_of("signal.correlate", (50, 40), (11, 9))
    results = {method: by_method(case, method) for method in ("direct", "fft")}
    assert (results["direct"] != results["fft"]).any()
    _calls.kept.clear()  # of calls that the model has settled already
    monkeypatch.setattr(NumpyPath, "gain_by_fft", lambda *_: gain)
    assert_same_bits(by_method(case, "auto"), results[taken])
    assert inspect.signature(signal.correlate).parameters["method"].default == "auto"


def test_auto_is_direct_where_there_are_no_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of integers, and along more than three axes."""
    _calls.kept.clear()
    monkeypatch.setattr(NumpyPath, "gain_by_fft", lambda *_: 100.0)
    for case in (
        call_of("signal.convolve", (50,), (9,), np.int64),
        call_of("signal.convolve", (4, 3, 4, 3), (2, 2, 2, 3), np.float32),
    ):
        assert_same_bits(by_method(case, "auto"), by_method(case, "direct"))


def test_only_axes_of_the_weight_are_transformed() -> None:
    """Three of four, as the smaller signal has one element along the other."""
    case = call_of("signal.convolve", (2, 5, 4, 6), (1, 2, 3, 2), np.float64)
    result = by_method(case, "fft")
    assert_by_fft(result, case.defined.value, [case["in1"], case["in2"]], case.dtype)


@pytest.mark.parametrize("method", ["auto", "direct", "fft"])
def test_small_arrays_by_every_method(method: str) -> None:
    two, nothing = np.array(2.0), np.ones((0, 3))
    assert signal.convolve(two, two, method=method) == 4
    result = signal.convolve(nothing, np.ones((0, 2)), method=method, axes=1)
    assert result.shape == (0, 4)
    assert signal.convolve(nothing, np.ones((2, 2)), "same", method=method).shape == (0, 3)


# How it is done --------------------------------------------------------------------------------


def operands(case: Signal) -> tuple[Array, Array, dict[str, Any]]:
    """The input and the weight of the only convolution of a call, its padding and groups."""
    with mock.patch.object(signal, "convolve_channels", wraps=signal.convolve_channels) as inner:
        NumpyBackend().compute(case)
    ((_, _, (data, weight, bias), options, *_), _) = inner.call_args
    assert inner.call_count == 1
    assert bias is None
    return data, weight, {"padding": options[1], "groups": options[3]}


@every_function
def test_a_stack_is_one_call_without_copies(function: str) -> None:
    """Of images and one kernel, whether the kernel comes first or second, its axis named or not."""
    stack, kernel = (4, 5, 20, 31), (1, 1, 3, 4)
    options = {"padding": ((2, 2), (3, 3)), "groups": 1}
    for axes in ((2, 3), None):
        for shapes in ((stack, kernel), (kernel, stack)):
            case = call_of(function, *shapes, axes=axes)
            data, weight, passed = operands(case)
            assert (data.shape, weight.shape, passed) == ((20, 1, 20, 31), (1, 1, 3, 4), options)
            for operand in (data, weight):
                assert any(np.shares_memory(operand, a) for a in case.arrays.values())


def test_axes_by_what_they_are() -> None:
    """Batch axes of the input, groups of both, and output channels of the weight."""
    case = call_of("signal.convolve", (3, 50, 2, 1), (1, 7, 2, 5), axes=1, mode="same")
    data, weight, passed = operands(case)
    assert (data.shape, weight.shape) == ((3, 2, 50), (10, 1, 7))
    assert passed == {"padding": ((3, 3),), "groups": 2}
    check(NumpyBackend(), case)


def test_only_what_has_products_is_read() -> None:
    """Of a long signal the middle alone reaches a short result of "same"."""
    for first, second, read in (
        ((10,), (1_000,), ((19,), (10,))),
        ((10, 1_000), (1_000, 10), ((10, 1_000), (19, 10))),
    ):
        data, weight, _ = operands(call_of("signal.convolve", first, second, mode="same"))
        assert (data.shape[2:], weight.shape[2:]) == read


def test_batch_axes_that_are_not_one_are_copied() -> None:
    case = call_of("signal.convolve", (6, 3, 40), (1, 1, 5), axes=2)
    apart = case.with_arrays(in1=lay_out(np.random.default_rng(0), case["in1"], "sliced"))
    data, _, _ = operands(apart)
    assert data.shape == (18, 1, 40)
    assert not np.shares_memory(data, apart["in1"])
    assert_same_bits(NumpyBackend().compute(apart), NumpyBackend().compute(case))


@pytest.mark.parametrize(
    ("shapes", "copies"), [(((1, 4, 40), (3, 4, 5)), 1), (((4, 1, 40), (4, 3, 5)), 0)]
)
def test_filters_that_are_not_one_are_copied(shapes: Any, copies: int) -> None:
    """A copy that `reshape` made instead would not belong to a graph that captures the call."""
    case = call_of("signal.convolve", *shapes, axes=2)
    with mock.patch.object(signal, "_copy", wraps=signal._copy) as copy:
        _, weight, _ = operands(case)
    assert weight.shape == (12, 1, 5)
    assert copy.call_count == copies
    assert np.shares_memory(weight, case["in2"]) != bool(copies)
    check(NumpyBackend(), case)


# Promises --------------------------------------------------------------------------------------


@every_backend
@given(case=signals(batches=[pair for pair in BATCHES if 0 not in pair]))
def test_layouts_change_no_bit(backend: NumpyBackend, case: Signal) -> None:
    plain = case.map(lambda a: np.array(a, order="C"))
    assert_same_bits(backend.compute(case), backend.compute(plain))


@every_backend
@every_function
@pytest.mark.parametrize("dtype", ["float32", "complex64", BFLOAT16], ids=str)
def test_a_signal_alone_or_in_a_stack(backend: NumpyBackend, function: str, dtype: Any) -> None:
    """The same bits, as the order of a sum does not depend on a batch."""
    case = call_of(function, (5, 40, 3), (1, 9, 3), dtype, axes=1)
    result = backend.compute(case)
    for n in range(5):
        alone = backend.compute(case.with_arrays(in1=case["in1"][n : n + 1]))
        assert_same_bits(alone, result[n : n + 1])


def test_padding_is_absence() -> None:
    """SciPy adds zeros, which would give NaN with an infinite kernel."""
    x, w = np.array([1.0, 2.0]), np.array([np.inf, 1.0])
    result = signal.convolve(x, w, method="direct")
    np.testing.assert_array_equal(result, [np.inf, np.inf, 2.0])


@every_backend
def test_precision_of_a_block(backend: NumpyBackend) -> None:
    """It is that of the convolution, which on Tensor Cores is another one than by default."""
    case = call_of("signal.convolve", (1, 2_000), (64, 200), axes=1, mode="valid")
    arrays = [backend.asarray(a) for a in (case["in1"][None], case["in2"][:, None, ::-1])]
    results = {
        name: backend.to_numpy(backend.call("conv1d", *arrays, precision=name))[0]
        for name in ("float32", "tf32")
    }
    for name, expected in results.items():
        with cupyconv.precision(name):
            assert_same_bits(backend.compute(case), expected)
    assert backend.name == "numpy" or (results["float32"] != results["tf32"]).any()


@every_function
def test_inputs_stay_as_they_are(function: str) -> None:
    case = call_of(function, (9, 4), (3, 2), np.complex64)
    before = case.map(np.copy)
    NumpyBackend().compute(case)
    for name in ("in1", "in2"):
        assert_same_bits(case[name], before[name])


# Errors ----------------------------------------------------------------------------------------


def ones(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


WRONG: list[tuple[dict[str, Any], type, str]] = [
    ({"in1": [1.0, 2.0]}, TypeError,
     "in1 must be a NumPy or CuPy array, got list; numpy.asarray(in1) makes it one"),
    ({"in2": 2.0}, TypeError, "in2 must be a NumPy or CuPy array, got float"),
    ({"in2": ones(2, 3).view(WithUnit)}, TypeError,
     "in2 must be a NumPy or CuPy array, got WithUnit"),
    ({"in1": ones(4, 5, dtype=BFLOAT16), "in2": ones(2, 3, dtype=np.int32)}, TypeError,
     "in1 and in2 must have a common dtype, got bfloat16 and int32"),
    ({"in2": ones(3)}, ValueError, "in1 and in2 must have the same number of axes, got in1 of "
     "shape (4, 5) with in2 of shape (3,)"),
    ({"in2": ones(3), "axes": 0}, ValueError, "in1 and in2 must have the same number of axes, got "
     "in1 of shape (4, 5) with in2 of shape (3,)"),
    ({"axes": 1}, ValueError, "in1 and in2 must broadcast on the axes that are not convolved, got "
     "in1 of shape (4, 5) with in2 of shape (2, 3), axes=(1,)"),
    ({"in2": ones(5, 3), "mode": "valid"}, ValueError, "with mode='valid' one of in1 and in2 must "
     "be at least as large as the other on every convolved axis, got in1 of shape (4, 5) with in2 "
     "of shape (5, 3), axes=(0, 1)"),
    ({"in1": ones(0, 5)}, ValueError, "in1 must not be empty along a convolved axis, got in1 of "
     "shape (0, 5) with in2 of shape (2, 3), axes=(0, 1)"),
    ({"in2": ones(2, 0), "mode": "same"}, ValueError, "in2 must not be empty along a convolved "
     "axis, got in1 of shape (4, 5) with in2 of shape (2, 0), axes=(0, 1)"),
    ({"in1": ones(0, 5), "mode": "valid"}, ValueError, "in1 must not be empty along a convolved "
     "axis, got in1 of shape (0, 5) with in2 of shape (2, 3), axes=(0, 1)"),
    ({"mode": "fill"}, ValueError, "mode must be 'full', 'same' or 'valid', got mode='fill'"),
    ({"mode": 2}, ValueError, "mode must be 'full', 'same' or 'valid', got mode=2"),
    ({"mode": None}, ValueError, "mode must be 'full', 'same' or 'valid', got mode=None"),
    ({"method": "fast"}, ValueError,
     "method must be one of 'direct', 'fft', 'auto', got method='fast'"),
    ({"method": None}, TypeError,
     "method must be one of 'direct', 'fft', 'auto', got method=None"),
    ({"in1": ones(4, 5, dtype=np.int16), "in2": ones(2, 3, dtype=np.int32), "method": "fft"},
     TypeError, "method='fft' is for floats and complex numbers, got in1 and in2 with the result "
     "type int32; method='direct' is exact"),
    ({"in1": ones(0, 3, dtype=int), "in2": ones(1, 3, dtype=int), "mode": "same", "method": "fft"},
     TypeError, "method='fft' is for floats and complex numbers, got in1 and in2 with the result "
     "type int64; method='direct' is exact"),
    ({"in1": ones(3, 3, 3, 3), "in2": ones(2, 2, 2, 2), "method": "fft"}, ValueError,
     "method='fft' is for at most 3 spatial axes, got 4"),
    ({"axes": ()}, ValueError, "axes must name one axis at least, got axes=()"),
    ({"axes": 2}, ValueError, "axes must be axes of the arrays, got axes=2 for 2 axes"),
    ({"axes": (0, -3)}, ValueError, "axes must be axes of the arrays, got axes=(0, -3) for 2 axes"),
    ({"axes": (1, -1)}, ValueError, "axes must name no axis twice, got axes=(1, -1) for 2 axes"),
    ({"axes": 1.0}, TypeError, "axes must be an integer or a sequence of integers, got axes=1.0"),
    ({"axes": (0, True)}, TypeError,
     "axes must be an integer or a sequence of integers, got axes=(0, True)"),
    ({"in1": ones(), "in2": ones(), "axes": 0}, ValueError,
     "axes must be axes of the arrays, got axes=0 for 0 axes"),
    ({"in1": ones(*(2,) * 25), "in2": np.broadcast_to(np.float32(1), (2,) * 25)}, ValueError,
     f"at most 24 axes can be convolved, got in1 of shape {(2,) * 25} with in2 of shape "
     f"{(2,) * 25}, axes={tuple(range(25))}"),
]  # fmt: skip


def refusal(function: str, **changes: Any) -> tuple[type, str]:
    """The type and the text of the error of a call with some of its arguments changed."""
    arguments = {"in1": ones(4, 5), "in2": ones(2, 3), **changes}
    name = function.rpartition(".")[2]
    with pytest.raises((TypeError, ValueError)) as caught:
        getattr(signal, name)(**arguments)
    return caught.type, str(caught.value)


@every_function
def test_wrong_calls(function: str) -> None:
    for changes, error, text in WRONG:
        assert refusal(function, **changes) == (error, f"{function}: {text}")


@every_function
@pytest.mark.parametrize("name", ["in1", "in2"])
def test_wrong_dtypes(function: str, name: str) -> None:
    for dtype in ODD_DTYPES:
        error, text = refusal(function, **{name: np.zeros((2, 2), dtype)})
        assert error is TypeError
        assert text.startswith(f"{function}: {name} must have one of the dtypes bfloat16, ")


@every_cupy
@every_function
def test_numpy_beside_cupy(backend: NumpyBackend, function: str) -> None:
    text = f"{function}: arrays must be all from NumPy or all from CuPy, got in1 from "
    device = backend.asarray(ones(2, 3))
    assert refusal(function, in1=device) == (TypeError, text + "CuPy, in2 from NumPy")
    assert refusal(function, in2=device) == (TypeError, text + "NumPy, in2 from CuPy")


@every_function
@pytest.mark.parametrize("name", ["mode", "method", "axes"])
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_odd_values(function: str, name: str, value: Any) -> None:
    error, text = refusal(function, **{name: value})
    assert error in (ValueError, TypeError)
    assert text.startswith(f"{function}: {name} ") and ", got " in text and len(text) < 500


def test_too_large_to_count() -> None:
    wide = np.broadcast_to(np.int8(1), (2**30, 2**30))
    error, text = refusal("signal.convolve", in1=wide, in2=wide)
    assert error is ValueError
    assert text.startswith("signal.convolve: sizes must stay below 2**63, counted in bytes")


def test_both_functions_have_scipys_arguments() -> None:
    for name in signal.__all__:
        ours = inspect.signature(getattr(signal, name)).parameters
        theirs = inspect.signature(getattr(scipy.signal, name)).parameters
        assert list(ours) == [*theirs, "axes"]
        assert all(ours[key].default == theirs[key].default for key in theirs)
