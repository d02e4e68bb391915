"""The comparison itself: it passes what is right, and it fails what it must."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import bounds
import reference
from bounds import assert_close, assert_normalized, assert_same_bits
from cupyconv._kernels import modes, streaming_conv

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
COMPLEX = [np.complex64, np.complex128]


def rejects(actual: Any, expected: Any, error: Any, dtype: Any) -> None:
    with pytest.raises(AssertionError):
        assert_close(actual, np.asarray(expected), error, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_rounding_is_allowed_and_no_more(dtype: Any) -> None:
    third = np.full(3, 1 / 3)
    assert_close(third.astype(dtype), third, 0.0, dtype)
    for direction in (-np.inf, np.inf):
        off = third.astype(dtype)
        off[1] = np.nextafter(off[1], np.asarray(direction, dtype))
        rejects(off, third, 0.0, dtype)


def test_bfloat16_is_rounded_once() -> None:
    """Beside a tie, between two subnormal numbers, and beyond the largest one."""
    tie, least, large = 1 + 2.0**-8, 2.0**-133, 2.0**128 * (1 - 2.0**-9)
    values = np.array([tie - 2.0**-40, tie, tie + 2.0**-40, 1.5 * least, 0.5 * least, large])
    right = np.array([1, 1, 1 + 2.0**-7, 2 * least, 0, np.inf])
    for sign in (1, -1):
        found = bounds.rounded(sign * values, ml_dtypes.bfloat16)
        assert found.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found.astype(np.float64), sign * right)
    once, twice = np.array([tie + 2.0**-40]), np.array([1.0], ml_dtypes.bfloat16)
    assert_close(np.array([1 + 2.0**-7], ml_dtypes.bfloat16), once, 0.0, ml_dtypes.bfloat16)
    rejects(twice, once, 0.0, ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_error_is_allowed_and_no_more(dtype: Any) -> None:
    step = float(ml_dtypes.finfo(dtype).eps)
    expected = np.ones(2)
    assert_close(np.array([1, 1 + 4 * step], dtype), expected, 4 * step, dtype)
    rejects(np.array([1, 1 + 5 * step], dtype), expected, 4 * step, dtype)
    rejects(np.array([1, 1 - 5 * step], dtype), expected, 4 * step, dtype)
    each = np.array([0.0, 4 * step])  # a bound for one element does not serve another
    rejects(np.array([1 + 4 * step, 1], dtype), expected, each, dtype)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("error", [0.0, 1.0, 1e30])
def test_nan_never_passes_for_a_number(dtype: Any, error: float) -> None:
    rejects(np.array([1, np.nan], dtype), [1.0, 1.0], error, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinities_must_be_where_the_reference_has_them(dtype: Any) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 0.0])
    assert_close(odd.astype(dtype), odd, np.array([np.nan, np.inf, np.inf, 0.0]), dtype)
    for position in range(3):
        for other in (0.0, np.nan, np.inf, -np.inf):
            if not np.array_equal(odd[position], other, equal_nan=True):
                changed = odd.astype(dtype)
                changed[position] = other
                rejects(changed, odd, 1.0, dtype)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers_are_compared_by_their_components(dtype: Any) -> None:
    expected = np.array([1 + 2j, 3 - 1j])
    assert_close(expected.astype(dtype), expected, 0.0, dtype)
    for change in (0.01, 0.01j):
        rejects((expected + [0, change]).astype(dtype), expected, 0.001, dtype)
    assert_close(
        np.array([complex(np.inf, np.nan)], dtype), np.array([complex(np.nan, 1)]), 0.0, dtype
    )
    rejects(np.array([1 + 1j], dtype), np.array([complex(np.nan, 1)]), 1.0, dtype)
    rejects(np.array([complex(np.inf, 1)], dtype), np.array([1 + 1j]), 1e30, dtype)


def test_a_reference_beyond_the_largest_number_is_an_infinity() -> None:
    assert_close(np.array([np.inf], np.float16), np.array([65520.0]), 0.0, np.float16)
    assert_close(np.array([65504], np.float16), np.array([65519.0]), 0.0, np.float16)
    rejects(np.array([65504], np.float16), [65520.0], 0.0, np.float16)
    rejects(np.array([np.inf], np.float16), [65519.0], 0.0, np.float16)
    rejects(np.array([-np.inf], np.float16), [65520.0], 0.0, np.float16)
    for value in (65504, np.inf):  # the rounding may fall on either side
        assert_close(np.array([value], np.float16), np.array([65520.0]), 1.0, np.float16)


def test_integers_are_equal() -> None:
    large = np.array([2**63 - 1, -(2**63)], np.int64)
    assert_close(large.copy(), large, 0.0, np.int64)
    rejects(large - [1, 0], large, 10.0, np.int64)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX + [np.int8, np.uint64])
def test_one_wrong_element_among_many_is_found(dtype: Any) -> None:
    expected = np.arange(24).reshape(2, 3, 4)
    expected = expected if np.dtype(dtype).kind in "iu" else expected.astype(np.float64)
    for index in np.ndindex(expected.shape):
        wrong = expected.astype(dtype)
        wrong[index] += np.asarray(1, dtype)
        rejects(wrong, expected, 0.4, dtype)


def test_shape_and_dtype_are_compared() -> None:
    expected = np.zeros((2, 1))
    rejects(np.zeros(2, np.float32), expected, 0.0, np.float32)
    rejects(np.zeros((1, 2), np.float32), expected, 0.0, np.float32)
    rejects(np.zeros((2, 1), np.float64), expected, 0.0, np.float32)
    rejects(np.zeros((0, 1), np.float32), np.zeros((0, 2)), 0.0, np.float32)
    rejects(0.0, np.float64(0), 0.0, np.float64)


def test_a_bound_that_is_no_number_is_refused() -> None:
    rejects(np.ones(2, np.float32), [1.0, 1.0], np.array([0.0, np.nan]), np.float32)
    rejects(np.ones(2, np.float32), [1.0, 1.0], np.array([np.inf, 0.0]), np.float32)


def test_tolerances() -> None:
    assert bounds.tolerance(np.array(5), np.float32) == 18 * 2.0**-24
    assert bounds.tolerance(np.array(15), np.float32) == 35 * 2.0**-24
    assert bounds.tolerance(np.array(5), np.float16) == 18 * 2.0**-24
    assert bounds.tolerance(np.array(5), ml_dtypes.bfloat16) == 18 * 2.0**-24
    assert bounds.tolerance(np.array(5), np.float32, "tf32") == 2.0**-10 + 13 * 2.0**-23
    assert bounds.tolerance(np.array(5), np.float64) == 13 * 2.0**-53
    assert bounds.tolerance(np.array(5), np.complex64) == 18 * 2.0**-24
    assert bounds.tolerance(np.array(5), np.complex128, "tf32") == 18 * 2.0**-53


def test_no_chain_is_longer_than_the_bound_of_float32_allows() -> None:
    """A group of steps on the dense kernel, a chunk of channels or products on the others."""
    groups = [mode.group for mode in modes.modes("hopper") if mode.parts == 2]
    block = modes.unscaled_mode("float32", "float32").block
    shapes = (*streaming_conv.SHAPES[4, 3], *streaming_conv.TAPPED[4, 3])
    chunks = [shape.channels // block for shape in shapes]
    assert max(groups + chunks) == bounds.CHAIN


def test_the_bound_of_a_sum_is_not_far_from_what_happens() -> None:
    """A float32 sum in plain order passes, one in float16 or TF32 does not."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, (1, 1, 200)).astype(np.float32)
    w = rng.uniform(0.5, 1.5, (1, 1, 100)).astype(np.float32)
    expected = reference.conv(x, w)

    def sliding(dtype: Any) -> Any:
        total = np.zeros((1, 1, 101), dtype)
        for tap in range(100):
            total += x[..., tap : tap + 101].astype(dtype) * w[..., tap].astype(dtype)
        return total.astype(np.float32)

    bounds.assert_convolution(sliding(np.float32), expected, np.float32)
    with pytest.raises(AssertionError):
        bounds.assert_convolution(sliding(np.float16), expected, np.float32)

    def to_tf32(a: Any) -> Any:
        bits = a.view(np.uint32)
        return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)

    x, w = to_tf32(x), to_tf32(w)
    bounds.assert_convolution(sliding(np.float32), expected, np.float32, "tf32")
    with pytest.raises(AssertionError):
        bounds.assert_convolution(sliding(np.float32), expected, np.float32)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_the_bound_of_a_norm_tells_stable_statistics_from_others(offset: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2, 50)) + offset
    expected = reference.batch_norm(x)
    error = bounds.norm_error(expected)
    rows = expected.x
    mean = rows.sum(axis=1, keepdims=True) / rows.shape[1]

    def normalized(variance: Any) -> Any:
        scale = 1 / np.sqrt(variance + 1e-5)
        return rows * scale - mean * scale

    two_passes = np.square(rows - mean).mean(axis=1, keepdims=True)
    assert_close(normalized(two_passes), expected.value, error, np.float64)
    if offset:
        one_pass = np.square(rows).mean(axis=1, keepdims=True) - mean**2
        rejects(normalized(one_pass), expected.value, error, np.float64)
        rejects(normalized(two_passes * 50 / 49), expected.value, error, np.float64)


def test_only_an_open_sign_makes_an_infinite_weight_pass_as_anything() -> None:
    """x within its error of the mean, times infinity; what is farther away must be right."""
    x, weight = np.array([[[1.0], [1 + 1e-8], [3.0]]]), np.array([np.inf, np.inf, np.inf])
    given = {"mean": np.ones(3), "var": np.ones(3), "weight": weight}
    norm = reference.batch_norm(x, **given)
    value = norm.value.astype(np.float32)
    assert np.isinf(bounds.norm_error(norm)).tolist() == [[True], [False], [False]]
    error = bounds.propagated_norm_error(norm, np.full(norm.x.shape, 1e-7), 2.0**-24)
    assert np.isinf(error).tolist() == [[True], [True], [False]]
    for odd in (np.nan, np.inf, -np.inf):
        value[:2] = odd
        assert_normalized(value, norm.value, error, np.float32)
    value[2] = np.nan
    with pytest.raises(AssertionError):
        assert_normalized(value, norm.value, error, np.float32)


@pytest.mark.parametrize("given", [False, True])
def test_the_bound_of_the_fused_operation_holds_for_perturbed_convolutions(given: bool) -> None:
    """Random errors as large as the bound allows, pushed through the exact remaining stages."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 2, 5, 5)), rng.standard_normal((2, 4, 3, 3))
    parameters = list(rng.standard_normal((4, 4)))
    statistics = {"mean": rng.standard_normal(4), "var": rng.uniform(0.1, 2, 4)} if given else {}
    fused = reference.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
        x, w, *parameters, num_groups=2, **statistics
    )
    shape = fused.convolved.value.shape
    for scale in (1.0, 1e3, 5e4):  # of the convolution's own error: from 1e-6 to 0.1
        sums = fused.convolved._replace(scale=fused.convolved.scale * scale)
        error = bounds.sum_error(sums, np.float32)
        bound = bounds.fused_error(fused._replace(convolved=sums), np.float32)
        ratio = 0.0
        for _ in range(30):
            moved = sums.value + error * rng.choice([-1.0, 1.0], shape)
            batch = reference.batch_norm(
                moved, **statistics, weight=parameters[0], bias=parameters[1]
            )
            activated = np.tanh(reference.from_channel_rows(batch.value, shape))
            result = reference.group_norm(reference.max_pool2d(activated, 2), 2, *parameters[2:])
            difference = np.abs(result.value - fused.group.value)
            ratio = max(ratio, float((difference / bound).max()))
        assert 0.01 < ratio <= 1  # neither wrong nor empty


def test_same_bits() -> None:
    for dtype in (*FLOATS, *COMPLEX, np.int32):
        a = np.arange(6).astype(dtype).reshape(2, 3)
        assert_same_bits(a, a.copy(order="F"))
        with pytest.raises(AssertionError):
            assert_same_bits(a, a.reshape(3, 2))
        for index in np.ndindex(a.shape):
            other = a.copy()
            other[index] += np.asarray(1, dtype)
            with pytest.raises(AssertionError):
                assert_same_bits(a, other)
    with pytest.raises(AssertionError):
        assert_same_bits(np.zeros(1), -np.zeros(1))
    with pytest.raises(AssertionError):
        assert_same_bits(np.zeros(1), np.full(1, np.nan))
    with pytest.raises(AssertionError):
        assert_same_bits(np.zeros(1, np.float32), np.zeros(1))
    assert_same_bits(np.array([np.nan]), -np.array([np.nan]))
