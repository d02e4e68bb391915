"""The gradient with respect to the weight, on NumPy arrays.

Along each axis, output position ``short`` and tap ``tap`` of a convolution meet at input position
``short*stride - pad + tap*dilation``. Output positions and taps enter alike: for a given tap the
input positions are those of a strided slice, one for each output position, and for a given output
position those of a slice that the dilation strides, one for each tap. So on each axis the loop runs
over taps or over output positions, whichever are fewer. An iteration takes one matrix product of a
slice of `grad_output` with a slice of the input, over the batch and the sliced output positions.

With few channels and many taps the copies of the slices take most of that time. Then, for images
and volumes of floats, each sample is convolved with its `grad_output`, as by `_numpy_filters`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ._arrays import accumulator
from ._geometry import ConvGeometry
from ._numpy_filters import PARTIAL_TAPS, Axis, add_bands, suits_bands
from ._numpy_products import by_parts, quiet
from ._taps import AxisTaps

# Products of one partial sum of a matrix product. A sum of partial sums keeps rounding errors low.
_PARTIAL_PRODUCTS = 4096

# Most pairs of channels, of input and of result in a group, for which samples are convolved.
_FEW_PAIRS = 8

# What one iteration takes of an axis: slices of the input and of `grad_output`, and its taps.
_Step: TypeAlias = tuple[slice, slice, "int | slice"]


def _steps(axis: AxisTaps, stride: int, dilation: int, pad: int, over_taps: bool) -> list[_Step]:
    """Return the iterations along one axis that have products."""
    steps: list[_Step] = []
    if over_taps:
        pairing = Axis(stride, dilation, pad, axis.size_in, axis.size_out)
        for tap in range(axis.kernel):
            source, positions = pairing.pair(tap)
            steps.append((source, positions, tap))
    else:
        pairing = Axis(dilation, stride, pad, axis.size_in, axis.kernel)
        for position in range(axis.size_out):
            source, taps = pairing.pair(position)
            steps.append((source, slice(position, position + 1), taps))
    return [step for step in steps if step[0].stop > step[0].start]


def _suits_filters(geometry: ConvGeometry, values: np.ndarray) -> bool:
    """Return whether the samples of the input, `values`, are convolved with `grad_output`.

    The zeros of a banded matrix would make NaN of infinities.
    """
    axes = geometry.axes
    return (
        geometry.rank > 1
        and geometry.channels * geometry.rows <= _FEW_PAIRS
        and math.prod(min(axis.kernel, axis.size_out) for axis in axes) > PARTIAL_TAPS
        and suits_bands(_transposed_pairs(geometry)[-2], axes[-2].size_out, values.dtype)
        and bool(np.isfinite(values).all())
    )


def _transposed_pairs(geometry: ConvGeometry) -> list[Axis]:
    """Return the pairing of each axis with output positions as taps, and taps as positions."""
    steps = zip(
        geometry.axes, geometry.stride, geometry.dilation, geometry.pads_before, strict=True
    )
    return [
        Axis(dilation, stride, pad, axis.size_in, axis.kernel)
        for axis, stride, dilation, pad in steps
    ]


def _add_filtered_samples(
    geometry: ConvGeometry, values: np.ndarray, grads: np.ndarray, total: np.ndarray
) -> None:
    """Add to `total` the convolution of each sample of the input with its `grad_output`.

    The shapes are those of `_add_products`.
    """
    pairs = [
        [pairing.pair(position) for position in range(axis.size_out)]
        for pairing, axis in zip(_transposed_pairs(geometry), geometry.axes, strict=True)
    ]
    for sample, grad in zip(values, grads, strict=True):
        # The channels of the input take the place of samples, and its groups stay groups.
        channels = np.ascontiguousarray(sample.swapaxes(0, 1))
        result = np.zeros((*channels.shape[:2], *grad.shape[1:2], *total.shape[3:]), total.dtype)
        add_bands(channels, np.ascontiguousarray(grad), result, pairs)
        total += np.moveaxis(result, 0, 2)


def _product(grads: np.ndarray, values: np.ndarray) -> Any:
    """Return ``grads @ values.swapaxes(1, 2)`` for each group, by partial sums in order."""
    total: Any = 0
    for begin in range(0, grads.shape[2], _PARTIAL_PRODUCTS):
        part = (..., slice(begin, begin + _PARTIAL_PRODUCTS))
        total = total + by_parts(np.matmul, grads[part], values[part].swapaxes(1, 2))
    return total


def _add_products(
    values: np.ndarray,
    grads: np.ndarray,
    total: np.ndarray,
    steps: Sequence[Sequence[_Step]],
    over_taps: Sequence[bool],
) -> None:
    """Add the products of all iterations to `total`.

    The shapes are ``(N, groups, channels, *size_in)``, ``(N, groups, rows, *size_out)`` and
    ``(groups, rows, channels, *kernel)``.
    """
    rank = len(steps)
    groups, rows, channels = total.shape[:3]
    # An axis with a loop over output positions keeps its taps. It comes before the batch, which is
    # summed over like the axes after it.
    kept = [axis for axis in range(rank) if not over_taps[axis]]
    summed = [axis for axis in range(rank) if over_taps[axis]]
    order = (1, 2, *(3 + axis for axis in kept), 0, *(3 + axis for axis in summed))
    values = np.ascontiguousarray(values.transpose(order))
    grads = np.ascontiguousarray(grads.transpose(order))
    additions = math.prod(len(steps[axis]) for axis in kept)  # to each element
    partial = np.zeros_like(total) if additions > PARTIAL_TAPS else total
    whole = slice(None)
    for count, chosen in enumerate(itertools.product(*steps), 1):
        sources, positions, taps = zip(*chosen, strict=True)
        window = values[_place(sources, kept, summed)]
        lines = grads[_place(positions, kept, summed)]
        kept_sizes = window.shape[2 : 2 + len(kept)]
        product = _product(
            np.ascontiguousarray(lines).reshape(groups, rows, -1),
            np.ascontiguousarray(window).reshape(groups, channels * math.prod(kept_sizes), -1),
        )
        partial[(whole, whole, whole) + taps] += product.reshape(
            groups, rows, channels, *kept_sizes
        )
        if partial is not total and count % PARTIAL_TAPS == 0:
            total += partial
            partial[...] = 0
    if partial is not total:
        total += partial


def _place(slices: Sequence[slice], kept: Sequence[int], summed: Sequence[int]) -> tuple[Any, ...]:
    """Return the index of the slices of all axes in an array of groups, channels and the rest."""
    whole = slice(None)
    kept_slices, summed_slices = ([slices[axis] for axis in axes] for axes in (kept, summed))
    return (whole, whole, *kept_slices, whole, *summed_slices)


@quiet
def write_weight_gradient(
    geometry: ConvGeometry, data: np.ndarray, grad_output: np.ndarray, out: np.ndarray
) -> None:
    """Write the gradient with respect to the weight of the convolution `geometry`.

    16-bit floats are accumulated in float32.
    """
    dtype = accumulator(out.dtype)
    batch, groups = geometry.batch, geometry.groups
    channels, rows, axes = geometry.channels, geometry.rows, geometry.axes
    total = np.zeros((groups, rows, channels, *(axis.kernel for axis in axes)), dtype)
    if data.size and grad_output.size:
        space_in, space_out = zip(*((axis.size_in, axis.size_out) for axis in axes), strict=True)
        values, grads = (np.require(array, dtype, ["C", "A"]) for array in (data, grad_output))
        values = values.reshape(batch, groups, channels, *space_in)
        grads = grads.reshape(batch, groups, rows, *space_out)
        if _suits_filters(geometry, values):
            _add_filtered_samples(geometry, values, grads, total)
        else:
            over_taps = [axis.kernel <= axis.size_out for axis in axes]
            options = geometry.stride, geometry.dilation, geometry.pads_before, over_taps
            _add_products(values, grads, total, list(map(_steps, axes, *options)), over_taps)
    out[...] = total.reshape(out.shape)
