"""Whether arrays share memory, decided exactly, and the dtypes of results and of sums."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import cupyconv
from backends import NumpyBackend
from cupyconv import _arrays
from reference import Array
from strategies import BFLOAT16, COMPLEX, DTYPES, FLOATS, INTEGERS
from test_errors import HostBackend

# Arrays of either kind, with the itemsizes that it has. Nothing reads or writes them.
NUMPY = (NumpyBackend(), [f"V{size}" for size in (1, 2, 3, 5, 8)])
CUPY = (HostBackend(), ["uint8", "uint16", "float32", "float64", "complex128"])
every_kind = pytest.mark.parametrize(("backend", "dtypes"), [NUMPY, CUPY], ids=["numpy", "cupy"])


def reached(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> list[range]:
    """The bytes of each element, relative to the first one."""
    starts = [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    ]
    return [range(start, start + itemsize) for start in starts]


MEMORY = np.zeros(1000, np.uint8)
MIDDLE = 500

View = tuple[int, tuple[int, ...], tuple[int, ...]]


@st.composite
def views(draw: st.DrawFn) -> View:
    """First address, shape and strides of a view into `MEMORY`."""
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(0, 4 if rank < 4 else 3)) for _ in range(rank))
    strides = tuple(draw(st.integers(-20, 20)) for _ in range(rank))
    return MIDDLE + draw(st.integers(-30, 30)), shape, strides


def bytes_of(view: View, itemsize: int) -> list[int]:
    """The addresses of a view's bytes, each as often as elements have it."""
    start, shape, strides = view
    return [start + b for element in reached(shape, strides, itemsize) for b in element]


def array_of(view: View, dtype: Any) -> Array:
    start, shape, strides = view
    return np.ndarray(shape, dtype, MEMORY, start, strides)


@every_kind
@given(data=st.data(), a=views(), b=views())
@example(data=None, a=(500, (3, 2), (6, 2)), b=(504, (3,), (6,)))  # between the elements of a
@example(data=None, a=(500, (2,), (-8,)), b=(492, (1,), (0,)))
@example(data=None, a=(500, (0, 3), (1, 1)), b=(500, (3,), (1,)))
def test_overlap(backend: NumpyBackend, dtypes: list[str], data: Any, a: View, b: View) -> None:
    pairs = [(dtypes[1], dtypes[1])]
    if data is not None:
        pairs = [(data.draw(st.sampled_from(dtypes)), data.draw(st.sampled_from(dtypes)))]
    for first, second in pairs:
        one, other = array_of(a, first), array_of(b, second)
        shared = set(bytes_of(a, one.itemsize)) & set(bytes_of(b, other.itemsize))
        one, other = backend.asarray(one), backend.asarray(other)
        assert _arrays.overlap(one, other) is bool(shared)
        assert _arrays.overlap(other, one) is bool(shared)


@every_kind
@given(data=st.data(), a=views())
def test_overlaps_itself(backend: NumpyBackend, dtypes: list[str], data: Any, a: View) -> None:
    array = array_of(a, data.draw(st.sampled_from(dtypes)))
    addresses = bytes_of(a, array.itemsize)
    expected = len(set(addresses)) < len(addresses)
    assert _arrays.overlaps_itself(backend.asarray(array)) is expected


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 4), (8, 2), False),
        ((3, 4), (6, 2), True),  # the end of a row is the start of the next one
        ((4, 3), (2, 8), False),
        ((3, 2), (4, 6), False),  # neither axis steps over the other: 0 6 4 10 8 14
        ((4, 2), (4, 6), False),  # 0 4 8 12, 6 10 14 18
        ((4, 3), (4, 6), True),  # 12 is three steps of 4, and two of 6
        ((3, 2), (-4, 4), True),
        ((5,), (0,), True),
        ((1, 5), (0, 2), False),
        ((5,), (1,), True),  # elements of two bytes
        ((0, 5), (0, 0), False),
        ((), (), False),
    ],
)
def test_known_overlaps_of_an_array_with_itself(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: bool
) -> None:
    for dtype in ("V2", "uint16"):
        array = array_of((MIDDLE, shape, strides), dtype)
        assert _arrays.overlaps_itself(array) is expected
    assert _arrays.overlaps_itself(HostBackend().asarray(array)) is expected


def test_channels_of_one_buffer() -> None:
    """Interleaved arrays share a buffer and no memory, so one may be the other's result."""
    buffer = np.random.default_rng(0).standard_normal((2, 6, 7, 3))
    first, second, third = (buffer[None, ..., i] for i in range(3))
    for a, b in itertools.permutations((first, second, third), 2):
        assert not _arrays.overlap(a, b)
    expected = cupyconv.conv2d(first.copy(), np.ones((1, 2, 1, 1)))
    third, kept = third[:, :1], buffer[..., :2].copy()
    assert cupyconv.conv2d(first, np.ones((1, 2, 1, 1)), out=third) is third
    np.testing.assert_array_equal(third, expected)
    np.testing.assert_array_equal(buffer[..., :2], kept)


# Two sets of sums that have none in common, which takes more work to see than is allowed.
HARD = (
    [123366, 964126, 1110318, 1548948, 5605612, 6115422]
    + [7308688, 7755004, 7779794, 7818682, 8119552, 8139660],
    [690876, 1000232, 1247924, 3022604, 3080484, 4335776]
    + [6940522, 7244738, 7465320, 8029660, 8159000, 8230860],
)
HARD_OFFSET = 768


@pytest.mark.parametrize("backend", [NumpyBackend(), HostBackend()], ids=["numpy", "cupy-host"])
def test_what_is_too_hard_to_decide_counts_as_overlapping(backend: NumpyBackend) -> None:
    memory = np.zeros(2**26, np.uint8)
    shape = (2,) * 12
    x = as_strided(memory.view(np.float16), shape, HARD[0])
    out = as_strided(memory[HARD_OFFSET:].view(np.float16), shape, HARD[1])
    sums = [{sum(chosen) for chosen in itertools.product(*((0, s) for s in h))} for h in HARD]
    assert sums[0].isdisjoint(s + HARD_OFFSET for s in sums[1])
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(x, out, max_work=_arrays._OVERLAP_WORK)

    x, out = backend.asarray(x), backend.asarray(out)
    assert _arrays.overlap(x, out)
    assert not _arrays.overlaps_itself(out)
    with pytest.raises(ValueError, match=r"^batch_norm: out must not share memory with input$"):
        cupyconv.batch_norm(x, out=out)
    assert not memory.any()


@pytest.mark.parametrize("backend", [NumpyBackend(), HostBackend()], ids=["numpy", "cupy-host"])
def test_strides_beyond_64_bits_count_as_overlapping(backend: NumpyBackend) -> None:
    """No memory is that large, but no view must end in another error than the library's."""
    x = as_strided(MEMORY.view(np.float16), (12, 64), (6, 1004535446929088768))
    out = as_strided(MEMORY.view(np.float16), (12, 64), (7230728049067473920, 3339428394733713408))
    with pytest.raises(OverflowError):
        np.shares_memory(x, out, max_work=_arrays._OVERLAP_WORK)
    with pytest.raises(ValueError, match=r"^batch_norm: out must not share memory with input$"):
        cupyconv.batch_norm(backend.asarray(x), out=backend.asarray(out))
    assert not MEMORY.any()


def test_a_cupy_array_s_layout_is_its_own() -> None:
    """The NumPy array that stands for it has its address, shape and strides."""
    view = array_of((MIDDLE, (2, 3, 2), (-24, 0, 8)), np.float32)
    layout = _arrays._layout(HostBackend().asarray(view))
    assert layout.__array_interface__["data"] == (view.__array_interface__["data"][0], True)
    assert (layout.shape, layout.strides, layout.itemsize) == (view.shape, view.strides, 4)


# dtypes -------------------------------------------------------------------------------------


def test_the_library_s_dtypes() -> None:
    assert {dtype.name for dtype in DTYPES} == _arrays.CONVOLVED
    assert {dtype.name for dtype in FLOATS + INTEGERS} == _arrays.NORMALISED


@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_result_dtype(a: np.dtype[Any]) -> None:
    """NumPy's result type, in the machine's byte order, and always one of the library's."""
    for b in DTYPES:
        try:
            expected = np.result_type(a, b)
        except TypeError:
            assert BFLOAT16 in (a, b)
            with pytest.raises(TypeError, match=f"^f: input and w must have .* {a} and {b}$"):
                _arrays.result_dtype("f", np.ones(1, a), np.ones(1, b), "w")
            continue
        result = _arrays.result_dtype("f", np.ones(1, a), np.ones(1, b))
        assert result == expected == _arrays.result_dtype("f", np.ones(1, b), np.ones(1, a))
        assert result.name in _arrays.CONVOLVED
    if a != BFLOAT16:
        swapped = np.ones(1, a.newbyteorder())
        assert _arrays.result_dtype("f", swapped, swapped) == a


def test_accumulators() -> None:
    for dtype in DTYPES:
        short = dtype in (np.dtype(np.float16), BFLOAT16)
        assert _arrays.accumulator(dtype) == (np.float32 if short else dtype)


def test_floating() -> None:
    for dtype in FLOATS + COMPLEX:
        assert _arrays.floating(dtype) == dtype
        if dtype != BFLOAT16:
            assert _arrays.floating(dtype.newbyteorder()) == dtype
    for dtype in INTEGERS:
        assert _arrays.floating(dtype) == np.float64


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind in "fiuc"], ids=str)
def test_arrays_in_the_other_byte_order(dtype: np.dtype[Any]) -> None:
    x, w = np.arange(8).reshape(1, 1, 8), np.arange(3).reshape(1, 1, 3)
    swapped = dtype.newbyteorder()
    result = cupyconv.conv1d(x.astype(swapped), w.astype(swapped))
    assert result.dtype == dtype and result.dtype.isnative
    np.testing.assert_array_equal(result, cupyconv.conv1d(x, w).astype(dtype))


def test_cupy_that_another_thread_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is there from the beginning of its import on, and has nothing yet."""
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    ones = np.ones((1, 1, 9))
    assert cupyconv.conv1d(ones, ones[..., :3]).tolist() == [[[3.0] * 7]]
    with pytest.raises(TypeError, match="conv1d: input"):
        cupyconv.conv1d([1.0], ones)  # type: ignore[type-var]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: cupyconv.conv2d(x, np.ones((1, 1, 2, 2), np.float32)),
        lambda x: cupyconv.conv2d(x, np.ones((1, 1, 2, 2), np.float64)),
        lambda x: cupyconv.conv_transpose2d(x.astype(np.float32), x),
        lambda x: cupyconv.batch_norm(x),
        lambda x: cupyconv.max_pool2d(x, 2),
    ],
)
def test_signalling_nan_and_overflow_warn_of_nothing(call: Any) -> None:
    """Warnings are errors here."""
    x = np.full((1, 1, 3, 3), 0x7FA00000, np.uint32).view(np.float32)
    assert np.isnan(call(x)).all()


def test_a_cast_that_overflows_warns_of_nothing() -> None:
    x = np.full((1, 1, 3), 1e300)
    out = np.empty((1, 1, 3), np.float64)
    assert np.isinf(cupyconv.conv1d(x, np.full((1, 1, 1), 1e300), out=out)).all()
