"""Axes of a convolution: which inputs its outputs take, and how a plan may arrange them."""

from __future__ import annotations

import math
from dataclasses import replace

from ._geometry import ConvGeometry
from ._taps import NO_AXIS, AxisTaps

# The batches for which sums, and kernels and methods, are compared; a call's own never counts.
NOMINAL_BATCH, COMPARED_BATCH = 64, 8
_MOST_JOINED = 2**30  # positions of an axis that two were joined to
_FAR_APART = 3  # a stride with which neighbouring rows of outputs have few rows of inputs in common


def mean_products(geometry: ConvGeometry) -> float:
    """Return the products of an output, on average, products with the padding included."""
    return geometry.channels * math.prod(axis.kernel / axis.phases for axis in geometry.axes)


def multiply_adds(geometry: ConvGeometry) -> float:
    """Return the multiply-adds of a convolution, including those with the padding."""
    taps = math.prod(axis.size_out * axis.kernel / axis.phases for axis in geometry.axes)
    return geometry.batch * geometry.groups * geometry.rows * geometry.channels * taps


def is_inside(axis: AxisTaps) -> bool:
    """Return whether all taps of all outputs have an input."""
    low, high = axis.offsets
    return low >= 0 and (axis.size_out - 1) * axis.step + high < axis.size_in


def _takes_one(axis: AxisTaps) -> bool:
    """Return whether each output takes one input, and there is one for it."""
    return axis.kernel == axis.phases == 1 and axis.origin == 0 and is_inside(axis)


def has_one_tap(geometry: ConvGeometry) -> bool:
    """Return whether each output takes one input of a channel."""
    return all(map(_takes_one, geometry.axes))


def is_pointwise(axis: AxisTaps) -> bool:
    """Return whether outputs take the one input at their own place."""
    one = axis.kernel == axis.phases == axis.step == 1
    return one and axis.origin == 0 and axis.size_in == axis.size_out


def joined(geometry: ConvGeometry, axis: int) -> ConvGeometry | None:
    """Return the same convolution with the axis after `axis` as a part of it, or None.

    The second axis must be pointwise, the first must have one phase and no stride, and the result
    must stay below 2**30 positions. Lines are longer then; the same products are added in the same
    order in either form.
    """
    first, second = geometry.axes[axis : axis + 2]
    width = second.size_in
    if not is_pointwise(second):
        return None
    reach = first.dilation * first.kernel if first.kernel > 1 else 1
    largest = max(first.size_in, first.size_out, reach) * width
    if not first.phases == first.step == 1 or largest >= _MOST_JOINED:
        return None
    factor = width if first.kernel > 1 else 1  # a single tap has no distance to another one
    one = replace(
        first,
        size_in=first.size_in * width,
        size_out=first.size_out * width,
        origin=first.origin * width,
        dilation=first.dilation * factor,
        offset_step=first.offset_step * factor,
    )

    def without_second(values: tuple[int, ...], factor: int = 1) -> tuple[int, ...]:
        return (*values[:axis], values[axis] * factor, *values[axis + 2 :])

    return replace(
        geometry,
        axes=(*geometry.axes[:axis], one, *geometry.axes[axis + 2 :]),
        stride=without_second(geometry.stride),
        dilation=without_second(geometry.dilation, factor),
        pads_before=without_second(geometry.pads_before, width),
    )


def compared(geometry: ConvGeometry) -> ConvGeometry:
    """Return the convolution for which kernels are compared, whatever the batch is.

    Where axes without taps lie as one they may have been joined before, and a choice must not
    depend on that: here they always are.
    """
    found = replace(geometry, batch=COMPARED_BATCH)
    if any(axis.kernel > 1 for axis in found.axes):
        return found
    axes = tuple(replace(axis, dilation=1, offset_step=1) for axis in found.axes)
    found = replace(found, axes=axes, dilation=(1,) * found.rank)
    for axis in reversed(range(found.rank - 1)):
        found = joined(found, axis) or found
    return found


def is_raised(geometry: ConvGeometry) -> bool:
    """Return whether a 2-d convolution is planned as one of z and x: see `raised`."""
    return (
        not geometry.transposed
        and geometry.rank == 2
        and geometry.stride[0] >= _FAR_APART
        and geometry.channels >= 2
    )


def raised(geometry: ConvGeometry) -> ConvGeometry:
    """Return a 2-d convolution with a long stride along its first axis as one of z and x.

    The dense kernel stages the inputs of each tap of z by themselves, but the inputs of all taps of
    y together. A long stride leaves neighbouring rows few inputs in common, so nothing is lost, and
    tiles take a fraction of the shared memory.
    """
    if not is_raised(geometry):
        return geometry
    first, last = geometry.axes
    return replace(
        geometry,
        axes=(first, NO_AXIS, last),
        stride=(geometry.stride[0], 1, geometry.stride[1]),
        dilation=(geometry.dilation[0], 1, geometry.dilation[1]),
        pads_before=(geometry.pads_before[0], 0, geometry.pads_before[1]),
    )
