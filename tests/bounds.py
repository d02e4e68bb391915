"""How far a result may be from its reference: bounds on rounding errors, element by element.

The exact result lies within ``error`` of the reference, and one rounding to the result's dtype is
monotonic, so a right result lies between the two ends of that interval, rounded:

    round(reference - error) <= result <= round(reference + error)

This is ``|result - reference| <= error + half an ulp``, said so that it also holds where the
rounding overflows to infinity.  The error is ``tol*S + underflow``: S is the sum of the absolute
values of the terms, K is their number, and tol is a multiple of the accumulator's rounding unit.
NaN must be where the reference is NaN and nowhere else; integers must be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import reference
from reference import Array, Fused, Normalized, Sums

UNIT32 = 2.0**-24  # relative error of one rounding to nearest
UNIT64 = 2.0**-53
FLUSH = 2.0**-126  # below this, float32 may become zero
CHAIN = 12  # the most Tensor Core instructions that a float32 sum adds up before it rounds


def accumulator(dtype: DTypeLike) -> np.dtype[Any]:
    """The real type in which sums of products are accumulated."""
    single = np.dtype(dtype).name in ("float16", "bfloat16", "float32", "complex64")
    return np.dtype(np.float32 if single else np.float64)


def tolerance(terms: Array, dtype: DTypeLike, precision: str = "float32") -> NDArray[np.float64]:
    """The error of a sum of products relative to S.

    A sum of K rounded products, in any order, with one more term (the bias), is off by at most
    about K units.

    A Tensor Core adds n products to a number without rounding (tests/emulator/instructions.ipp).
    It aligns all of them to the largest one and truncates them there, which takes less than one
    unit of each but the largest.  Then it truncates their sum to float32: two units, with what
    the alignment has taken.  That is at most n + 1 units for each block of products that are not
    all zero, and at most 2*K for a whole sum.  So it is for 16-bit factors and for TF32, which
    rounds both factors to 11 bits first (2 * 2**-11).

    For float32, factors are split into two numbers of 11 bits.  The rest of each is up to
    2 units, and the product of both low parts, which is left out, up to 4: 8 in all.  (Of float16
    parts at the low end of their window the rests are 4 units each, but such sums have 5 products
    at least, of which an instruction takes 16.)  The products of low and high parts come first,
    where truncation is smaller by 2**10.  The others are added up in chains of at most ``CHAIN``
    instructions, which start at zero and are added to the sum with rounding.  So a block's n + 1
    units are of its chain alone, and the sum takes one more for each chain: at most K, and one
    for each block of the longest chain, of which there are no more than products.

    One component of a complex sum adds 2*K real products, and sum(|a||c| + |b||d|) <= sum(|x||w|)
    by Cauchy and Schwarz, so that S of the absolute values serves with 2*K terms.  On Tensor Cores
    it is a float32 sum of 2*K products, whose chains may add up to ``CHAIN`` units more.  The bound
    leaves them out: from 2*K = 206 on one chain's products (12 * 17 units) are fewer than all, and
    a shorter sum comes close only if all its roundings are nearly as large as can be, and of one
    sign.  (Random factors reach 0.8 of it for K = 1 and less than half of it for K = 2.)
    """
    dtype = np.dtype(dtype)
    if dtype == np.float32 and precision == "tf32":
        return 2.0**-10 + (terms + 8) * 2.0**-23
    unit = UNIT64 if accumulator(dtype) == np.float64 else UNIT32
    if dtype == np.float32:
        return (terms + np.minimum(terms, CHAIN) + 8) * unit
    return ((1 if dtype == np.float64 else 2) * terms + 8) * unit


def sum_error(sums: Sums, dtype: DTypeLike, precision: str = "float32") -> NDArray[np.float64]:
    """The error before the last rounding, for factors that are zero or normal numbers.

    The reference is itself a sum in float64 with an error of at most (K + 1) * 2**-53 * S (twice
    the terms if complex).  Each product, partial sum and the result may be flushed to zero below
    the smallest normal number.
    """
    real_terms = (2 if np.dtype(dtype).kind == "c" else 1) * sums.terms
    underflow = (2 * real_terms + 2) * float(np.finfo(accumulator(dtype)).smallest_normal)
    relative = tolerance(sums.terms, dtype, precision) + (real_terms + 1) * UNIT64
    with np.errstate(invalid="ignore"):  # S is infinite or NaN where the value is
        return relative * sums.scale + underflow


def statistics_error(norm: Normalized) -> NDArray[np.float64]:
    """The error of a normalisation computed in float64, with u = 2**-53 and n values in a set.

    The computed mean is off by at most (n + 1)*u*mean|x|, which moves the result by that times
    |w|/std.  A variance by two passes or by Welford's and Chan's updates is off by at most about
    (n + 8)*u*sigma*rms(x) (its condition number is rms(x)/sigma; sums of squares that are not
    centred lose a factor rms(x)/sigma more, and fail); a relative error r of std**2 moves the
    result by |w|*|x - mean|/std * r/2.  Last, evaluating (x - mean)/std*w + b, in this form or as
    x*(w/std) + (b - mean*w/std), rounds numbers of the size of |w|*(|x| + |mean|)/std + |b|
    fewer than eight times.  The factor 2 is for the reference, which is float64 as well.
    """
    x, mean, std, gain = norm.x, norm.mean, norm.std, np.abs(norm.weight)
    scale = gain * (np.abs(x) + np.abs(mean)) / std + np.abs(norm.bias)
    terms = 0
    if norm.own:
        terms = x.shape[1]
        sigma, rms = np.sqrt(norm.variance), _rms(x)
        scale = scale + gain * np.abs(x).mean(axis=1, keepdims=True) / std
        scale = scale + gain * np.abs(norm.unit) * (sigma * rms) / (2 * std**2)
    return 2 * (terms + 8) * UNIT64 * scale


def norm_error(norm: Normalized) -> NDArray[np.float64]:
    """statistics_error, and what flushing to zero costs: in rows, before the last rounding."""
    with np.errstate(invalid="ignore", divide="ignore"):
        error = statistics_error(norm) + FLUSH
        return _of_settled(norm, error, statistics_error(_plain(norm)))


def _plain(norm: Normalized) -> Normalized:
    return norm._replace(weight=np.ones_like(norm.weight), bias=np.zeros_like(norm.bias))


def _of_settled(
    norm: Normalized, error: NDArray[np.float64], plain: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The error where the value is finite, else 0; infinite where even the sign is open.

    That is where an infinite weight multiplies a (x - mean)/std that may be positive, zero or
    negative within its own error, ``plain``: infinity, NaN and -infinity are all right.
    """
    known = np.isfinite(norm.value)
    assert np.isfinite(error[known]).all(), "no bound on the error where the reference is finite"
    open_sign = np.isinf(norm.weight) & (np.abs(norm.unit) <= plain) & (plain > 0)
    return np.where(open_sign, np.inf, np.where(known, error, 0.0))


def propagated_norm_error(
    norm: Normalized, error: NDArray[np.float64], unit: float
) -> NDArray[np.float64]:
    """What errors of x, at most ``error`` element by element, become after a normalisation.

    Let x' = x + d with |d| <= error.  The mean moves by at most mean(error).  sigma is the root
    mean square of the centred x, a norm, so it moves by at most rms(d) <= rms(error), and so does
    std = sqrt(sigma**2 + eps), whose slope against sigma is at most 1.  With z = (x - mean)/std

        z' - z = ((d - mean(d)) - z*(std' - std)) / std'
        |z' - z| <= (error + mean(error) + |z|*rms(error)) / max(std - rms(error), sqrt(eps))

    exactly, to all orders.  Statistics that are given do not move: |z' - z| <= error/std.  The
    evaluation itself rounds to the intermediates' type (``unit``) fewer than eight times, numbers
    of the size of |w|*(|x| + |mean|)/std + |b|, on top of the statistics' own error; that these
    two are taken at x and not at x' is of second order, and the factor 1.01 covers it.

    Where the error is infinite, nothing is known of x, nor then of z or of any statistics.
    """
    lost = np.isinf(error)
    error = np.where(lost, 0.0, error)
    std = norm.std
    moved = error / std
    if norm.own:
        lost = lost.any(axis=1, keepdims=True)
        rms = _rms(error)
        moved = error + error.mean(axis=1, keepdims=True) + np.abs(norm.unit) * rms
        moved = moved / np.maximum(std - rms, np.sqrt(norm.eps))

    def total(norm: Normalized) -> NDArray[np.float64]:
        gain = np.abs(norm.weight)
        size = gain * (np.abs(norm.x) + np.abs(norm.mean)) / std + np.abs(norm.bias)
        return 1.01 * (gain * moved + 8 * unit * size + statistics_error(norm))

    return np.where(lost, np.inf, _of_settled(norm, total(norm), total(_plain(norm))))


def fused_error(fused: Fused, dtype: DTypeLike, precision: str = "float32") -> NDArray[np.float64]:
    """The error of the fused operation before its last rounding, in rows of its last stage.

    The convolution's error, and its rounding where it is stored, pass through the batch norm.
    tanh is monotonic, so an interval's ends go to the ends of its image (which is at most as long,
    as tanh has the Lipschitz constant 1, and much shorter where tanh saturates); its own rounding
    is at most eight units.  The largest element of a window moves by at most the largest error in
    it.  Then comes the group norm.
    """
    unit = UNIT64 if accumulator(dtype) == np.float64 else UNIT32
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        sums = fused.convolved
        error = sum_error(sums, dtype, precision) + unit * np.abs(sums.value)
        error = np.where(np.isfinite(sums.value), error, 0.0)  # infinities have no error
        y = fused.batch.value
        error = propagated_norm_error(fused.batch, reference.channel_rows(error), unit)
        image = np.maximum(np.tanh(y + error) - np.tanh(y), np.tanh(y) - np.tanh(y - error))
        image = np.where(np.isfinite(y), image, error)  # 0, or open
        error = image + 8 * unit * np.abs(np.tanh(y)) + FLUSH
        error = reference.from_channel_rows(error, fused.activated.shape)
        error = reference.max_pool2d(error, 2).reshape(fused.group.x.shape)
        return propagated_norm_error(fused.group, error, unit) + FLUSH


def _rms(rows: Array) -> Array:
    return np.sqrt(np.square(rows).mean(axis=1, keepdims=True))


# Comparison ----------------------------------------------------------------------------------


def assert_close(
    actual: Array, expected: Array, error: NDArray[np.float64] | float, dtype: DTypeLike
) -> None:
    """Every element of actual is expected, within error and one rounding to dtype."""
    dtype = np.dtype(dtype)
    assert isinstance(actual, np.ndarray), f"not an array: {type(actual)}"
    assert actual.dtype == dtype, f"dtype {actual.dtype}, expected {dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    error = np.broadcast_to(error, expected.shape)
    known = np.isfinite(expected)
    assert np.isfinite(error[known]).all(), "no bound on the error where the reference is finite"
    if dtype.kind in "iu":
        right = actual == expected
    elif dtype.kind == "c":
        # Which component of a product with an infinity is NaN depends on how it is written out.
        parts = [
            _within(part(actual), part(expected), error, np.dtype(part(actual).dtype))
            for part in (np.real, np.imag)
        ]
        right = np.where(known, parts[0] & parts[1], ~np.isfinite(actual))
    else:
        right = _within(actual, expected, error, dtype)
    if not right.all():
        wrong = tuple(int(i) for i in np.argwhere(~right)[0])
        raise AssertionError(
            f"{np.count_nonzero(~right)} of {right.size} elements are wrong; at {wrong} "
            f"{actual[wrong]!r}, expected {expected[wrong]!r} within {error[wrong]!r}"
        )


def rounded(value: NDArray[np.float64], dtype: DTypeLike) -> Array:
    """One rounding to nearest, ties to even; ml_dtypes makes two, the first one to float32."""
    if np.dtype(dtype).name == "bfloat16":
        step = np.ldexp(1.0, np.maximum(np.frexp(value)[1], -125) - 8)  # 8 bits, the last of them 1
        value = np.rint(value / step) * step
    with np.errstate(over="ignore"):
        return value.astype(dtype)


def _within(
    actual: Array, expected: Array, error: NDArray[np.float64], dtype: np.dtype[Any]
) -> NDArray[np.bool_]:
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = rounded(expected, dtype).astype(np.float64)
        low = np.where(np.isfinite(expected), rounded(expected - error, dtype), nearest)
        high = np.where(np.isfinite(expected), rounded(expected + error, dtype), nearest)
        value = actual.astype(np.float64)
        return ((low <= value) & (value <= high)) | (np.isnan(value) & np.isnan(expected))


def assert_normalized(
    actual: Array, expected: Array, error: NDArray[np.float64], dtype: DTypeLike
) -> None:
    """assert_close, but nothing is asked where the error is infinite (see _of_settled)."""
    settled = np.isfinite(error)
    checked = np.array(actual)
    checked[~settled] = expected[~settled]
    assert_close(checked, expected, np.where(settled, error, 0.0), dtype)


def assert_convolution(
    actual: Array, expected: Sums, dtype: DTypeLike, precision: str = "float32"
) -> None:
    exact = np.dtype(dtype).kind in "iu"
    error = 0.0 if exact else sum_error(expected, dtype, precision)
    assert_close(actual, expected.value, error, dtype)


def assert_by_fft(
    actual: Array, expected: Array, operands: Sequence[Array | None], dtype: DTypeLike
) -> None:
    """The result of an FFT of two operands, and perhaps a bias, has an error bounded in the norm.

    A transform adds log2(size) numbers to each, one after the other, and there are three of them.
    """
    first, second = (np.linalg.norm(a.astype(np.complex128).ravel()) for a in operands[:2])
    unit = UNIT32 if accumulator(dtype) == np.float32 else UNIT64
    size = sum(a.size for a in operands[:2])
    error = 3 * unit * np.log2(2 + size) * first * second
    for bias in operands[2:]:
        if bias is not None:
            error += unit * float(np.abs(bias.astype(np.complex128)).max(initial=0))
    assert_close(actual, expected, error, dtype)


def assert_same_bits(actual: Array, expected: Array) -> None:
    """Equal bit by bit, zeros' signs included; NaN is NaN, whatever its payload."""
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    right = _bits(actual) == _bits(expected)
    if not right.all():
        where = np.argwhere(~right)[0]
        raise AssertionError(
            f"{np.count_nonzero(~right)} of {right.size} numbers differ, the first at {where}:\n"
            f"{actual}\n{expected}"
        )


def _bits(a: Array) -> Array:
    a = a.flatten()  # a copy
    if a.dtype.kind == "c":
        a = a.view(a.real.dtype)
    bits = a.view(f"u{a.dtype.itemsize}")
    if a.dtype.kind not in "iu":
        bits[np.isnan(a)] = np.iinfo(bits.dtype).max
    return bits
