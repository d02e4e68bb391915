"""The path for NumPy arrays: matrix products and strided adds.

A convolution and its transposed convolution pair the same positions. Along each axis, position
``short`` of one array (the short side) is paired with position ``short * stride - pad + tap *
dilation`` of the other array (the long side). The long side is the input of a convolution and the
output of a transposed convolution. So one loop over the taps serves both directions: for each tap
it multiplies the tap's matrix by a strided slice of the input and adds the product to a slice of
the output. Real filters of one channel have faster ways (`_numpy_filters`). The gradient with
respect to the weight pairs the same positions (`_numpy_gradients`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import _fft, _numpy_fft
from ._arrays import Convolution, WeightGradient, accumulator
from ._axes import COMPARED_BATCH, multiply_adds
from ._borders import Segment, segments
from ._fft import complex_dtype, spectrum_lengths
from ._geometry import ConvGeometry, NormGeometry, PoolAxis, PoolGeometry
from ._numpy_filters import PARTIAL_TAPS, Axis, add_filtered
from ._numpy_gradients import write_weight_gradient
from ._numpy_products import by_parts, quiet
from ._placement import Placement


def _pairs(taps: Sequence[int], axes: Sequence[Axis]) -> tuple[Any, Any]:
    """Return the slices of the long and of the short side that a tap pairs.

    `taps` has the tap's index on each axis.
    """
    long_side, short_side = zip(*map(Axis.pair, axes, taps), strict=True)
    return (..., *long_side), (..., *short_side)


def _product(matrix: np.ndarray, values: np.ndarray) -> Any:
    """Return ``matrix @ values`` over the channels, for each group, sample and position.

    The shapes are ``(groups, rows, channels)`` and ``(N, groups, channels, *space)``.
    """
    groups, rows, channels = matrix.shape
    space = values.shape[3:]
    if channels == 1:  # complex: real channels are filtered tile by tile
        return by_parts(np.multiply, matrix.reshape(groups, rows, *(1,) * len(space)), values)
    batch = values.shape[0]
    flat = np.ascontiguousarray(values).reshape(batch, groups, channels, math.prod(space))
    result = by_parts(np.matmul, np.ascontiguousarray(matrix), flat)
    return result.reshape(batch, groups, rows, *space)


def _add_products(
    values: np.ndarray,
    matrices: np.ndarray,
    total: np.ndarray,
    axes: Sequence[Axis],
    transposed: bool,
) -> None:
    """Add to `total` the product of each tap's matrix with a slice of `values`."""
    kernel = matrices.shape[3:]
    partial_sum = np.zeros_like(total) if math.prod(kernel) > PARTIAL_TAPS else total
    for count, tap in enumerate(itertools.product(*map(range, kernel)), 1):
        long, short = _pairs(tap, axes)
        source, target = (short, long) if transposed else (long, short)
        partial_sum[target] += _product(matrices[(slice(None),) * 3 + tap], values[source])
        if partial_sum is not total and count % PARTIAL_TAPS == 0:
            total += partial_sum
            partial_sum[...] = 0
    if partial_sum is not total:
        total += partial_sum


def _statistics(values: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the biased variance over `axes`."""
    mean = values.mean(axis=axes, keepdims=True)
    return mean, np.square(values - mean).mean(axis=axes, keepdims=True)


def _to_odd(values: np.ndarray) -> np.ndarray:
    """Return `values` in float32, rounded to odd.

    If the result is then rounded to bfloat16, it equals `values` rounded once. ml_dtypes itself
    rounds float64 twice: to float32, then to bfloat16.
    """
    rounded = values.astype(np.float32)
    away = np.abs(rounded) > np.abs(values)
    truncated = np.where(away, np.nextafter(rounded, np.float32(0)), rounded)
    bits: np.ndarray = truncated.view(np.uint32) | (np.abs(truncated) < np.abs(values))
    return bits.view(np.float32)


def _pooled(values: np.ndarray, axis: PoolAxis) -> np.ndarray:
    """Return the maximum of each window along the last axis.

    If several elements equal the maximum, such as zeros of both signs, the first one counts. If a
    window has a NaN, the result is its first NaN.
    """
    result = np.empty((*values.shape[:-1], axis.size_out), values.dtype)
    if axis.size_out < axis.kernel:  # the loop over windows is shorter than the one over taps
        for position in range(axis.size_out):
            start = position * axis.stride - axis.pad
            end = start + axis.dilation * (axis.kernel - 1) + 1
            inside = slice(start if start >= 0 else start % axis.dilation, None, axis.dilation)
            window = values[..., :end][..., inside]
            first = window.argmax(axis=-1, keepdims=True)
            result[..., position] = np.take_along_axis(window, first, axis=-1)[..., 0]
        return result
    seen = np.zeros(axis.size_out, bool)
    pairing = Axis(axis.stride, axis.dilation, axis.pad, axis.size_in, axis.size_out)
    for tap in range(axis.kernel):
        source, target = _pairs((tap,), (pairing,))
        candidate, best = values[source], result[target]
        larger = (candidate > best) | ((candidate != candidate) & (best == best))
        result[target] = np.where(seen[target[-1]] & ~larger, best, candidate)
        seen[target[-1]] = True
    return result


# Borders ---------------------------------------------------------------------------------------


def _segments(placement: Placement) -> list[list[Segment]]:
    """Return the segments of each padded axis."""
    axes = placement.sizes, placement.before, placement.padded
    return [segments(*axis, str(placement.mode)) for axis in zip(*axes, strict=True)]


def _inside(size: int, padded: int, before: int, step: int) -> tuple[slice, slice]:
    """Return the elements of an axis that lie in a larger one, and their places."""
    first, end = max(0, -(before // step)), min(size, (padded - 1 - before) // step + 1)
    end = max(first, end)
    start = before + first * step
    return slice(first, end), slice(start, start + (end - first) * step, step)


def _place(placement: Placement, data: np.ndarray, wide: np.ndarray) -> None:
    if placement.mode is None:
        wide[...] = 0
        axes = placement.sizes, placement.padded, placement.before, placement.steps
        source, target = zip(*map(_inside, *axes), strict=True)
        wide[target] = data[source]
        return
    for axis, found in enumerate(_segments(placement)):
        steps = [one.first + one.step * np.arange(one.stop - one.start) for one in found]
        data = np.take(data, np.concatenate(steps), axis)
    wide[...] = data


def _pad(placement: Placement, data: np.ndarray, wide: np.ndarray) -> None:
    if placement.whole == placement.padded:
        return _place(placement, data, wide)
    whole = np.empty(placement.whole, data.dtype)
    _place(replace(placement, padded=whole.shape), data, whole)
    shape = *placement.components, *placement.padded
    steps = (*placement.shifts, *placement.strides)
    strides = tuple(step * stride for step, stride in zip(steps, 2 * whole.strides, strict=True))
    wide.reshape(shape)[...] = as_strided(whole, shape, strides)


@quiet
def _fold(placement: Placement, wide: np.ndarray, bias: np.ndarray | None, out: np.ndarray) -> None:
    for axis, (found, size) in enumerate(zip(_segments(placement), placement.sizes, strict=True)):
        if size == placement.padded[axis] and not placement.before[axis]:
            continue
        lines = np.moveaxis(wide, axis, 0)
        total = np.zeros((size, *lines.shape[1:]), wide.dtype)
        for segment in found:
            part = lines[segment.positions]
            if segment.step == 0:
                part = part.sum(0, wide.dtype, keepdims=True)
            total[segment.elements] += part[::-1] if segment.step < 0 else part
        wide = np.moveaxis(total, 0, axis)
    if bias is not None:
        wide = wide + bias.astype(wide.dtype).reshape(-1, *(1,) * (wide.ndim - 2))
    out[...] = wide


@quiet
def _add_both(terms: np.ndarray, out: np.ndarray) -> None:
    out[...] = terms[0] + terms[1]


# Points of transforms, each times the logarithm of its size, in the time of a multiply-add: of
# filters of one channel, and of matrix products.
_PER_FILTERED, _PER_MULTIPLIED = 0.3, 0.12


class NumpyPath:
    """Convolutions, norms and pooling of NumPy arrays."""

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return uninitialised memory for one call."""
        return np.empty(shape, dtype)

    @quiet
    def cast(self, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return `array` itself if it has `dtype`, else a cast copy."""
        return array.astype(dtype, copy=False)

    def prepare(
        self,
        geometry: ConvGeometry,
        data: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray | None,
        out: np.ndarray,
        precision: str,
        times: int = 1,
    ) -> Convolution:
        """Return a function that convolves with full accuracy, whatever the `precision`."""
        return partial(self._convolve, geometry)

    @quiet
    def _convolve(
        self,
        geometry: ConvGeometry,
        data: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray | None,
        out: np.ndarray,
    ) -> None:
        dtype = accumulator(out.dtype)
        groups, channels, rows = geometry.groups, geometry.channels, geometry.rows
        kernel = tuple(axis.kernel for axis in geometry.axes)
        size_in = tuple(axis.size_in for axis in geometry.axes)
        size_out = tuple(axis.size_out for axis in geometry.axes)
        values = np.require(data, dtype, ["C", "A"]).reshape(
            geometry.batch, groups, channels, *size_in
        )
        matrices = np.require(weight, dtype, ["C", "A"])
        if geometry.transposed:
            matrices = matrices.reshape(groups, channels, rows, *kernel).swapaxes(1, 2)
        else:
            matrices = matrices.reshape(groups, rows, channels, *kernel)

        sizes = (size_out, size_in) if geometry.transposed else (size_in, size_out)
        steps = geometry.stride, geometry.dilation, geometry.pads_before
        axes = list(map(Axis, *steps, *sizes))
        direct = out.dtype == dtype and out.flags.c_contiguous and out.flags.aligned
        total = out if direct else np.empty(out.shape, dtype)
        total = total.reshape(geometry.batch, groups, rows, *size_out)
        total[...] = 0
        if channels == 1 and dtype.kind != "c":
            transposed = geometry.transposed
            add_filtered(values[:, :, 0], matrices[:, :, 0], total, axes, transposed)
        else:
            _add_products(values, matrices, total, axes, geometry.transposed)
        if bias is not None:
            total += bias.astype(dtype).reshape(groups, rows, *(1,) * geometry.rank)
        if not direct:
            out[...] = total.reshape(out.shape)

    def takes_borders(self, geometry: ConvGeometry, dtype: np.dtype, precision: str) -> bool:
        """Return False: borders are copied."""
        return False

    def prepare_pad(
        self, placement: Placement, data: np.ndarray, times: int
    ) -> Callable[[np.ndarray, np.ndarray], None]:
        """Return a function that writes padded copies."""
        return partial(_pad, placement)

    def prepare_fold(
        self, placement: Placement, bias: np.ndarray | None, out: np.ndarray, times: int
    ) -> Callable[[np.ndarray, np.ndarray | None, np.ndarray], None]:
        """Return a function that adds what lies in the padding to the elements that it shows."""
        return partial(_fold, placement)

    def prepare_sum(
        self, shape: tuple[int, ...], out: np.ndarray
    ) -> Callable[[np.ndarray, np.ndarray], None]:
        """Return a function that adds two arrays of this shape, which follow each other."""
        return _add_both

    def gain_by_fft(
        self, geometry: ConvGeometry, dtype: np.dtype, precision: str, gradient: bool
    ) -> float:
        """Return how many times as long sums over taps should take as FFT, whatever the batch."""
        typical = replace(geometry, batch=COMPARED_BATCH, padding_mode=None)
        work = _fft.gradient_work if gradient else _fft.work
        points = _PER_FILTERED if geometry.channels == 1 else _PER_MULTIPLIED
        return points * multiply_adds(typical) / work(typical, dtype).points

    def note_method(self, method: str, gain: Callable[[], float]) -> None:
        """Do nothing."""

    def prepare_spectrum(
        self, array: np.ndarray, placement: Placement, dtype: np.dtype, conjugate: bool
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function that gives the spectra of arrays, or of conjugates, in larger ones."""
        first, *others = placement.padded
        shape = math.prod(placement.components) * first, *others

        def spectrum(array: np.ndarray) -> np.ndarray:
            array = self.cast(array, dtype)
            wide = np.empty(shape, dtype)
            _pad(placement, array.conj() if conjugate else array, wide)
            return _numpy_fft.forward(wide, wide.ndim - 3, dtype)

        return spectrum

    def spectra(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return memory for the spectra of arrays of a shape."""
        lead, lengths = shape[:3], shape[3:]
        frequencies = spectrum_lengths(lengths, dtype)
        return np.empty((*lead, *frequencies), complex_dtype(dtype))

    def prepare_multiply(
        self, a: np.ndarray, b: np.ndarray, out: np.ndarray, scale: float, adds: bool
    ) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
        """Return a function that writes or adds scaled products of spectra."""
        shapes, strides = zip(*((array.shape, array.strides) for array in (a, b, out)), strict=True)

        def multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            a, b, out = map(as_strided, (a, b, out), shapes, strides)
            _numpy_fft.multiply(a, b, out, scale, adds)

        return multiply

    def values(self, spectrum: np.ndarray, lengths: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return the arrays of spectra, without their scale."""
        return _numpy_fft.inverse(spectrum, lengths, dtype)

    @quiet
    def write(self, values: np.ndarray, bias: np.ndarray | None, out: np.ndarray) -> None:
        """Write values to `out`, with a bias that is broadcast to them."""
        out[...] = values if bias is None else values + bias.astype(values.dtype)

    def prepare_weight_gradient(
        self,
        geometry: ConvGeometry,
        data: np.ndarray,
        grad_output: np.ndarray,
        out: np.ndarray,
        precision: str,
        times: int = 1,
    ) -> WeightGradient:
        """Return a function that writes a weight gradient, whatever the `precision`."""
        return partial(write_weight_gradient, geometry)

    def fused(self, *_: Any) -> None:
        """Return None: the fused operation is composed of its parts."""

    @quiet
    def normalize(
        self,
        geometry: NormGeometry,
        data: np.ndarray,
        mean: np.ndarray | None,
        var: np.ndarray | None,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        eps: float,
        out: np.ndarray,
        tanh: bool = False,
    ) -> None:
        """Normalise in float64, apply tanh if `tanh` is set, and write the result to `out`."""
        shape = geometry.shape
        per_channel = (shape[1], *(1,) * (len(shape) - 2))
        values = data.astype(np.float64, order="C")

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

    @quiet
    def max_pool2d(self, geometry: PoolGeometry, data: np.ndarray, out: np.ndarray) -> None:
        """Write the maximum of each window to `out`; it is NaN if the window has a NaN."""
        height, width = geometry.axes
        rows = _pooled(data, width)
        out[...] = _pooled(rows.swapaxes(-1, -2), height).swapaxes(-1, -2)
