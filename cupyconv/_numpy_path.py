"""The path for NumPy arrays: matrix products and strided adds.

A convolution and a transposed convolution pair the same positions: along each axis the longer side
is at ``short * stride - pad + tap * dilation``. So one loop over the taps serves both: it
multiplies the matrix of the tap with a strided slice of the one side and adds into a slice of the
other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ._arrays import Convolution, accumulator
from ._geometry import ConvGeometry, NormGeometry, PoolAxis, PoolGeometry

# As on a GPU, overflow, infinities and signalling NaN are results like others, without warnings.
_quiet = np.errstate(all="ignore")

# Taps are added in segments of this many, so that rounding does not drift over long sums.
_SEGMENT = 64


def _pairs(taps: Sequence[int], axes: Sequence[tuple[int, int, int, int, int]]) -> tuple[Any, Any]:
    """Return the indices of the long and the short side that `taps` pair.

    Each of the `axes` is ``(stride, dilation, pad, long, short)``.
    """
    long_side, short_side = [], []
    for tap, (stride, dilation, pad, long, short) in zip(taps, axes, strict=True):
        offset = tap * dilation - pad
        first = max(0, -(offset // stride))
        count = max(0, min(short, (long - 1 - offset) // stride + 1) - first)
        start = first * stride + offset
        long_side.append(slice(start, start + count * stride, stride) if count else slice(0))
        short_side.append(slice(first, first + count))
    return (..., *long_side), (..., *short_side)


def _product(matrix: np.ndarray, values: np.ndarray) -> Any:
    """Return ``matrix @ values`` for (groups, rows, channels) and (N, groups, channels, *space)."""
    groups, rows, channels = matrix.shape
    space = values.shape[3:]
    if channels == 1:
        return _by_parts(np.multiply, matrix.reshape(groups, rows, *(1,) * len(space)), values)
    batch = values.shape[0]
    flat = np.ascontiguousarray(values).reshape(batch, groups, channels, math.prod(space))
    result = _by_parts(np.matmul, np.ascontiguousarray(matrix), flat)
    return result.reshape(batch, groups, rows, *space)


def _by_parts(multiply: Callable[..., Any], a: np.ndarray, b: np.ndarray) -> Any:
    """Return ``multiply(a, b)``, for complex numbers from the products of their real parts.

    A complex matrix product of BLAS ends in a multiplication by 1 + 0j, and 0 * inf is NaN. Of two
    equal complex products of elements, NumPy may round one with multiply-adds and the other, left
    over by its vectors, without.
    """
    if a.dtype.kind != "c":
        return multiply(a, b)
    (ar, ai), (br, bi) = ((np.ascontiguousarray(part) for part in (m.real, m.imag)) for m in (a, b))
    real = multiply(ar, br) - multiply(ai, bi)
    result = np.empty(real.shape, a.dtype)
    result.real = real
    result.imag = multiply(ar, bi) + multiply(ai, br)
    return result


def _statistics(values: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    mean = values.mean(axis=axes, keepdims=True)
    return mean, np.square(values - mean).mean(axis=axes, keepdims=True)


def _to_odd(values: np.ndarray) -> np.ndarray:
    """Return float32 on the odd side of what it cannot hold.

    Rounded to fewer bits it then gives what `values` themselves would give in one rounding;
    ml_dtypes would make two.
    """
    nearest = values.astype(np.float32)
    beyond = np.abs(nearest) > np.abs(values)
    nearest = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    bits: np.ndarray = nearest.view(np.uint32) | (np.abs(nearest) < np.abs(values))
    return bits.view(np.float32)


def _pooled(values: np.ndarray, axis: PoolAxis) -> np.ndarray:
    """Return the maximum of each window along the last axis: its first one, or its first NaN."""
    result = np.empty((*values.shape[:-1], axis.size_out), values.dtype)
    if axis.size_out < axis.kernel:  # window by window, else tap by tap
        for o in range(axis.size_out):
            start = o * axis.stride - axis.pad
            inside = slice(start if start >= 0 else start % axis.dilation, None, axis.dilation)
            window = values[..., : start + axis.dilation * (axis.kernel - 1) + 1][..., inside]
            first = window.argmax(axis=-1, keepdims=True)
            result[..., o] = np.take_along_axis(window, first, axis=-1)[..., 0]
        return result
    seen = np.zeros(axis.size_out, bool)
    pairing = axis.stride, axis.dilation, axis.pad, axis.size_in, axis.size_out
    for tap in range(axis.kernel):
        source, target = _pairs((tap,), (pairing,))
        other, best = values[source], result[target]
        larger = (other > best) | ((other != other) & (best == best))
        result[target] = np.where(seen[target[-1]] & ~larger, best, other)
        seen[target[-1]] = True
    return result


class NumpyPath:
    """Convolutions, norms and pooling of NumPy arrays."""

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return uninitialised memory for one call."""
        return np.empty(shape, dtype)

    @_quiet
    def cast(self, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return `array` in `dtype`: itself, or a copy."""
        return array.astype(dtype, copy=False)

    def prepare(
        self,
        geometry: ConvGeometry,
        input: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray | None,
        out: np.ndarray,
        precision: str,
    ) -> Convolution:
        """Return the convolution of `geometry`, at full precision whatever `precision`."""
        return partial(self._convolve, geometry)

    @_quiet
    def _convolve(
        self,
        geometry: ConvGeometry,
        input: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray | None,
        out: np.ndarray,
    ) -> None:
        g = geometry
        dtype = accumulator(out.dtype)
        kernel = tuple(axis.kernel for axis in g.axes)
        size_in = tuple(axis.size_in for axis in g.axes)
        size_out = tuple(axis.size_out for axis in g.axes)
        values = input.astype(dtype, order="C").reshape(g.batch, g.groups, g.channels, *size_in)
        if g.transposed:
            matrices = weight.astype(dtype, order="C").reshape(
                g.groups, g.channels, g.rows, *kernel
            )
            matrices = matrices.swapaxes(1, 2)
        else:
            matrices = weight.astype(dtype, order="C").reshape(
                g.groups, g.rows, g.channels, *kernel
            )

        sizes = (size_out, size_in) if g.transposed else (size_in, size_out)
        axes = list(zip(g.stride, g.dilation, g.pads_before, *sizes, strict=True))
        total = np.zeros((g.batch, g.groups, g.rows, *size_out), dtype)
        segment = np.zeros_like(total) if math.prod(kernel) > _SEGMENT else total
        for count, tap in enumerate(itertools.product(*map(range, kernel)), 1):
            long, short = _pairs(tap, axes)
            source, target = (short, long) if g.transposed else (long, short)
            segment[target] += _product(matrices[(slice(None),) * 3 + tap], values[source])
            if segment is not total and count % _SEGMENT == 0:
                total += segment
                segment[...] = 0
        if segment is not total:
            total += segment
        if bias is not None:
            total += bias.astype(dtype).reshape(g.groups, g.rows, *(1,) * g.rank)
        out[...] = total.reshape(out.shape)

    def fused(self, *_: Any) -> None:
        """Leave the fused operation to its parts."""

    @_quiet
    def normalize(
        self,
        geometry: NormGeometry,
        input: np.ndarray,
        mean: np.ndarray | None,
        var: np.ndarray | None,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        eps: float,
        out: np.ndarray,
        tanh: bool = False,
    ) -> None:
        """Write the normalised `input` to `out`, computed in float64; tanh follows if asked for."""
        shape = geometry.shape
        per_channel = (shape[1], *(1,) * (len(shape) - 2))
        values = input.astype(np.float64, order="C")

        def parameter(array: np.ndarray) -> np.ndarray:
            return array.astype(np.float64).reshape(per_channel)

        if mean is not None and var is not None:
            centre, variance = parameter(mean), parameter(var)
            values = (values - centre) / np.sqrt(variance + eps)
        elif geometry.sets_per_sample:
            sets = values.reshape(shape[0], geometry.sets_per_sample, -1)
            centre, variance = _statistics(sets, (2,))
            values = ((sets - centre) / np.sqrt(variance + eps)).reshape(shape)
        else:
            axes = (0, *range(2, len(shape)))
            centre, variance = _statistics(values, axes)
            values = (values - centre) / np.sqrt(variance + eps)
        if weight is not None:
            values = values * parameter(weight)
        if bias is not None:
            values = values + parameter(bias)
        values = np.tanh(values) if tanh else values
        out[...] = _to_odd(values) if out.dtype.name == "bfloat16" else values

    @_quiet
    def max_pool2d(self, geometry: PoolGeometry, input: np.ndarray, out: np.ndarray) -> None:
        """Write the maximum of each window to `out`; a NaN in a window is its maximum."""
        height, width = geometry.axes
        rows = _pooled(input, width)
        out[...] = _pooled(rows.swapaxes(-1, -2), height).swapaxes(-1, -2)
