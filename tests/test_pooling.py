"""Max pooling against its definition: the result is one of the inputs, so it is equal."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cupyconv
import reference
from backends import NumpyBackend, check_lines, every_backend, examples
from bounds import assert_close, assert_same_bits
from cupyconv import _geometry
from cupyconv._kernels import max_pool2d
from cupyconv._kernels.launches import Processor
from reference import Array
from strategies import Case, max_pools


def check(backend: NumpyBackend, case: Case) -> None:
    expected = reference.max_pool2d(case["input"], **case.options)
    if expected.dtype.kind not in "iu":
        expected = expected.astype(np.float64)
    assert_close(backend.compute(case), expected, 0.0, case["input"].dtype)


def check_bits(backend: NumpyBackend, case: Case) -> None:
    """The first of equal numbers, as -0 and 0, and of NaN. A GPU takes subnormal ones for 0."""
    expected = reference.max_pool2d(case["input"], **case.options)
    assert backend.compute(case).tobytes() == expected.tobytes(), "wrong"


def pool(x: Any, *sizes: Any, dtype: Any = np.float32) -> Case:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    options = dict(zip(names, sizes, strict=False))
    return Case("max_pool2d", {"input": np.asarray(x).astype(dtype, copy=False)}, options)


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape)


def single(*shape: int) -> Array:
    return noise(*shape).astype(np.float32)


@every_backend
@given(case=max_pools())
def test_definition(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


H100 = Processor("sm_90a", 132)


def plan_of(shape: tuple[int, ...], *sizes: Any, dtype: Any = np.float32) -> max_pool2d.PoolPlan:
    names = (0, None, 0, 1, False)
    geometry = _geometry.max_pool2d("f", shape, *sizes, *names[len(sizes) :])
    return max_pool2d.plan(geometry, np.dtype(dtype), H100)


def passes(plan: max_pool2d.PoolPlan) -> list[tuple[int, int, int]]:
    """Of each pass the threads that share a window, the axis of these, and parts of a window."""
    return [(one.lanes, one.along, one.parts) for one in plan.passes]


# Windows of several passes, of lines that a warp shares, and of others.
few = st.integers(1, 2)
large_pools = max_pools(
    samples=few, channels=few, kernels=st.sampled_from([1, 2, 9, 12, 33, 40]), unbatched=False
)


@every_backend
@given(case=large_pools)
def test_definition_of_large_windows(backend: NumpyBackend, case: Case) -> None:
    assume(case["input"].size < 20_000)  # the emulator would take minutes
    check(backend, case)


LINE = np.random.default_rng(0).permutation(18_000).reshape(1, 1, 1, -1)

EXAMPLES = [
    # Windows of many taps: rows, then columns; some rows and columns lie outside of the array.
    pool(noise(2, 3, 20, 21), 9, 1, 4),
    pool(noise(2, 1, 20, 21), (11, 12), (3, 2), (5, 6), 1, True),
    pool(noise(1, 2, 40, 37), 10, (2, 1), 3, (3, 2)),
    pool(noise(1, 2, 40, 37), (10, 9), (40, 9)),
    # Windows of more taps than the array has elements.
    pool(noise(1, 1, 1, 1), 2**10, 1, 2**9),
    pool(noise(1, 2, 3, 2), 2**20, 2**19, 2**19),
    pool(noise(1, 2, 70, 2), (2**20, 2), 2**19, (2**19, 1)),
    pool(noise(1, 2, 2, 70), (1, 2**20), 2**19, (0, 2**19)),
    pool(noise(1, 2, 5, 70), (3, 2**20 + 1), (1, 7), (1, 3 * 2**19), (2, 3)),
    # Global pooling; lines of 16 bytes that are not whole, and not aligned.
    pool(noise(1, 3, 41, 43), (41, 43)),
    pool(single(1, 3, 45, 47)[..., 1:-1, 1:], (43, 46)),
    pool(single(1, 3, 41, 71)[..., ::-1, ::2], (41, 36)),
    pool(single(2, 3, 50, 4).swapaxes(-1, -2), (4, 50)),
    pool(noise(3, 5, 2, 67), (2, 64), 1, dtype=np.int8),
    pool(noise(3, 5, 2, 67), (2, 33), 1, dtype=np.float16),
    pool(noise(3, 5, 2, 67), (2, 64), 1, dtype=np.float64),
    pool(-1 - abs(noise(3, 5, 67, 2)), (64, 1), 1, (32, 0), dtype=ml_dtypes.bfloat16),
    # Windows in parts, some of them outside of the array; and more than one window.
    pool(LINE, (1, 18_000)),
    pool(LINE.swapaxes(-1, -2), (18_000, 1), dtype=np.uint16),
    pool(LINE[..., ::-1], (1, 17_000), 700, dtype=np.int64),
    pool(-LINE, (1, 30_001), 7_000, (0, 15_000), dtype=np.float64),
    pool(np.full_like(LINE, -np.inf, np.float32), (1, 30_001), 7_000, (0, 15_000)),
    pool(LINE.reshape(1, 1, 2, 9_000), (2, 9_000), dtype=np.float32),
    pool(LINE.reshape(1, 1, 2, 9_000), (1, 4_200), 300, 0, 2, dtype=np.int32),
    pool(noise(2, 3, 7, 9), 2),
    pool(noise(2, 3, 7, 9), (3, 1), (1, 2)),
    pool(noise(2, 3, 7, 9), (2, 3), (3, 5), (1, 1)),
    # Windows all below zero: padding is not a zero.
    pool(-1 - abs(noise(1, 2, 4, 4)), 3, 1, 1),
    pool(-np.ones((1, 1, 4, 4)), 3, 1, 1, dtype=np.int8),
    pool(np.full((1, 1, 4, 4), -np.inf), 3, 1, 1),
    pool(np.full((1, 1, 4, 4), np.iinfo(np.int64).min), 3, 1, 1, dtype=np.int64),
    # With ceil_mode the last window reaches over the end, unless it starts there.
    pool(noise(1, 1, 5, 6), 2, 2, 0, 1, True),
    pool(noise(1, 1, 5, 6), 3, 4, 1, 1, True),
    pool(noise(1, 1, 2, 2), 2, 3, 1, 1, True),
    pool(noise(1, 1, 9, 8), 3, 2, 2, (2, 3), True),
    # Integers that float64 cannot tell apart.
    pool(2**62 + np.arange(16).reshape(1, 1, 4, 4), 2, dtype=np.uint64),
    # More samples or channels than a grid has blocks on its second axis.
    pool(noise(65_537, 1, 2, 2), 2),
    pool(noise(1, 65_537, 2, 2), 2),
    pool(noise(1, 1, 2, 3), 1, 2**31 - 1),
    pool(noise(1, 1, 3, 3), 1, 1, 0, 2**31 - 1),
]


@every_backend
@examples(EXAMPLES)
def test_definition_on_examples(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


@every_backend
@pytest.mark.parametrize("width", [6, 7, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_lines_that_are_no_whole_chunks(backend: NumpyBackend, width: int, dtype: Any) -> None:
    check_lines(backend, pool(8 * noise(2, 3, 5, width), 2, dtype=dtype))


@every_backend
def test_nan_reaches_each_window_that_holds_it(backend: NumpyBackend) -> None:
    for position in np.ndindex(4, 4):
        x = np.full((1, 1, 4, 4), np.inf, np.float32)
        x[(0, 0, *position)] = np.nan
        case = pool(x, 2, 1)
        assert np.isnan(backend.compute(case)).any()
        check(backend, case)


def odd_numbers(dtype: Any, position: int, kind: str, *shape: int) -> Array:
    """Zeros of both signs, or lower numbers and NaN of several payloads, from a position on."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    count = int(np.prod(shape))
    negative = np.full(count, -1, dtype).view(unsigned)
    later = np.arange(count) >= position
    if kind == "zeros":  # the first one is negative or positive, and then they take turns
        zeros = np.full(count, -0.0, dtype).view(unsigned)
        bits = np.where(later & ((np.arange(count) - position) % 2 == position % 2), 0, zeros)
        bits = np.where(later, bits, negative)
    else:
        nan = np.full(count, np.nan, dtype).view(unsigned)
        bits = np.where(later, nan ^ (np.arange(count) % 7).astype(unsigned), negative)
    return bits.astype(unsigned).view(dtype).reshape(shape)


# Windows for one thread, by rows and columns, for a warp each, and in parts; and overlapping ones.
WINDOWS = [
    ((1, 1, 6, 7), (6, 7), 1),
    ((1, 1, 12, 13), (12, 13), 1),
    ((1, 1, 36, 47), (36, 47), 1),
    ((1, 1, 40, 3), (40, 1), 1),
    ((1, 1, 1, 18_001), (1, 18_001), 1),
    ((1, 1, 12, 13), (3, 4), 1),
    ((1, 1, 30, 31), (9, 10), (1, 2)),
]


@every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("kind", ["zeros", "nan"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_first_one_stays(backend: NumpyBackend, window: Any, kind: str, dtype: Any) -> None:
    """Of zeros that are equal, and of NaN, bit by bit; a sample has one position of the first."""
    shape, kernel, stride = window
    size = int(np.prod(shape))
    positions = {0, 1, 2, 5, 31, 32, 33, size // 3, size // 2 + 1, size - 2, size - 1}
    samples = [odd_numbers(dtype, p, kind, *shape) for p in sorted(positions) if p < size]
    check_bits(backend, pool(np.concatenate(samples), kernel, stride, dtype=dtype))


@every_backend
def test_samples_in_turn(backend: NumpyBackend) -> None:
    """Workspace is for a few samples at a time."""
    x = noise(5, 2, 12, 13)
    with mock.patch.object(max_pool2d, "_MOST_BETWEEN", 2 * 4 * 2 * 12 * 5):
        max_pool2d.plan.cache_clear()
        try:
            assert plan_of(x.shape, 9, 1).samples == 2
            check(backend, pool(x, 9, 1))
        finally:
            max_pool2d.plan.cache_clear()


def test_passes() -> None:
    """Small windows take one; large ones rows and columns; a warp shares few or far windows."""
    alone, row, column = (1, 1, 1), (32, 1, 1), (32, 0, 1)
    assert passes(plan_of((32, 64, 112, 112), 2)) == [alone]
    assert passes(plan_of((32, 64, 112, 112), 3, 2, 1)) == [alone]
    assert passes(plan_of((512, 2048, 7, 7), 7)) == [alone]
    assert passes(plan_of((8, 64, 256, 256), 31, 1)) == [alone, alone]
    assert passes(plan_of((8, 64, 256, 256), 32, 1)) == [alone, alone]
    assert passes(plan_of((8, 64, 256, 256), 32)) == [row, column]
    assert passes(plan_of((1, 1, 4096, 4096), 4096)) == [row, column]
    assert passes(plan_of((64, 256, 1, 4096), (1, 4096))) == [row]
    assert passes(plan_of((64, 256, 4096, 1), (4096, 1))) == [column]
    assert passes(plan_of((1, 1, 1, 2**26), (1, 2**26))) == [(32, 1, 4224), row]
    assert passes(plan_of((1, 1, 2**26, 1), (2**26, 1))) == [(32, 0, 4224), row]
    assert passes(plan_of((1, 1, 1, 1), 2**20, 2**19, 2**19)) == [alone]


def test_parts_of_a_window_larger_than_the_array() -> None:
    """They divide the taps inside."""
    plan = plan_of((1, 1, 1, 2**26), (1, 2**31 - 1), None, (0, 2**30 - 1))
    assert plan.passes[0].axes[1].kernel <= -(-(2**26) // 4224) + 4224


@given(case=max_pools(kernels=st.integers(1, 9)))
def test_trimmed_axes(case: Case) -> None:
    """They have the same windows, whose first and last taps are inside somewhere."""
    sizes = case.options.values()
    axes = _geometry.max_pool2d("f", case["input"].shape, *sizes).axes

    def inside(axis: Any) -> list[list[int]]:
        starts = range(-axis.pad, axis.size_out * axis.stride - axis.pad, axis.stride)
        windows = ([s + k * axis.dilation for k in range(axis.kernel)] for s in starts)
        return [[i for i in window if 0 <= i < axis.size_in] for window in windows]

    for axis in axes:
        trimmed = axis.trimmed
        assert inside(trimmed) == inside(axis)
        assert trimmed.size_in <= axis.size_in
        last_start = (axis.size_out - 1) * axis.stride - trimmed.pad
        assert last_start >= 0 or last_start + trimmed.dilation > 0
        assert -trimmed.pad + trimmed.dilation * (trimmed.kernel - 1) < axis.size_in


def test_workspace_between_passes() -> None:
    """At most 64 MB, or one sample."""
    plan = plan_of((8, 64, 256, 256), 31, 1)
    assert (plan.samples, plan.between) == (4, (4 * 64 * 256 * 226,))
    plan = plan_of((8, 64, 1024, 1024), 31, 1)
    assert (plan.samples, plan.between) == (1, (64 * 1024 * 994,))
    assert plan_of((8, 64, 256, 256), 3).between == ()


@pytest.mark.timed
def test_taps_outside_of_the_array_take_no_time() -> None:
    x = np.ones((1, 1, 1, 1), np.float32)
    begun = time.perf_counter()
    assert cupyconv.max_pool2d(x, 2**10, padding=2**9).max() == 1
    cupyconv.max_pool2d(x, 2**20, 2**19, 2**19)
    assert time.perf_counter() - begun < 0.1


@every_backend
def test_positional_arguments_are_in_the_order_of_the_field(backend: NumpyBackend) -> None:
    case = pool(noise(1, 1, 9, 9), 3, 2, 1, 2, True)
    x = backend.asarray(case["input"])
    positional = backend.call("max_pool2d", x, *case.options.values())
    assert_same_bits(backend.to_numpy(positional), backend.compute(case))


@every_backend
@pytest.mark.parametrize(
    "case",
    [
        pool(noise(1, 1, 4, 4), 5),
        pool(noise(1, 1, 4, 4), 3, 1, 2),
        pool(noise(1, 1, 4, 4), 2, 1, 2, 2),
        pool(noise(1, 1, 4, 4), (2, 1), 1, 1),
        pool(noise(1, 1, 4, 4), 2, 1, -1),
        pool(noise(1, 1, 4, 4), 0),
        pool(noise(1, 1, 4, 4), 2, 0),
        pool(noise(1, 1, 4, 4), 2, 1, 0, 0),
        pool(noise(1, 1, 4, 4), (2, 2, 2)),
        pool(noise(1, 1, 1, 4), 2, 1, (2, 0), 3),  # a window of nothing but padding
        pool(noise(1, 1, 0, 4), 1),
        pool(noise(4, 4), 2),
    ],
    ids=str,
)
def test_what_is_refused(backend: NumpyBackend, case: Case) -> None:
    with pytest.raises(ValueError, match="max_pool2d"):
        backend.compute(case)


@every_backend
def test_complex_numbers_have_no_maximum(backend: NumpyBackend) -> None:
    with pytest.raises(TypeError, match="complex64"):
        backend.compute(pool(noise(1, 1, 4, 4), 2, dtype=np.complex64))
