"""Where the arrays of a convolution lie, and which of its axes are one there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from . import _plain
from ._arrays import Array
from ._geometry import ConvGeometry
from ._kernels.launches import Processor
from ._plan import PlainPlan, plan_joined
from ._taps import NO_AXIS

_FAR_APART = 3  # a stride with which neighbouring rows of outputs have few rows of inputs in common


def strides_of(array: Array) -> tuple[int, ...]:
    """Return the strides in elements; those of an axis of one element never matter."""
    size = array.dtype.itemsize
    return tuple(
        stride // size if n > 1 else 0 for stride, n in zip(array.strides, array.shape, strict=True)
    )


def _cast_strides(array: Array, dtype: np.dtype) -> tuple[int, ...]:
    """Return the strides in elements of what a device casts `array` to."""
    if array.dtype == dtype:
        return strides_of(array)
    return tuple(
        math.prod(array.shape[axis + 1 :]) if n > 1 else 0 for axis, n in enumerate(array.shape)
    )


class ConvStrides(NamedTuple):
    """Strides in elements: of the batch, groups and channels, or of groups, rows and channels."""

    input: tuple[int, int, int]
    weight: tuple[int, int, int]
    out: tuple[int, int, int]
    input_axes: list[int]
    weight_axes: list[int]
    out_axes: list[int]


def conv_strides(geometry: ConvGeometry, input: Array, weight: Array, out: Array) -> ConvStrides:
    g = geometry
    lead: tuple[int, ...] = () if g.batched else (0,)
    input_batch, input_channel, *input_axes = (*lead, *_cast_strides(input, out.dtype))
    out_batch, out_row, *out_axes = (*lead, *strides_of(out))
    weight_0, weight_1, *weight_axes = _cast_strides(weight, out.dtype)
    return ConvStrides(
        (input_batch, g.channels * input_channel, input_channel),
        (g.channels * weight_0, weight_1, weight_0)
        if g.transposed
        else (g.rows * weight_0, weight_0, weight_1),
        (out_batch, g.rows * out_row, out_row),
        input_axes,
        weight_axes,
        out_axes,
    )


def _lie_as_one(strides: ConvStrides, axis: int, width: int) -> bool:
    """Whether an axis and the next one, of `width` places, are one in input and output."""
    return all(own[axis] == own[axis + 1] * width for own in (strides.input_axes, strides.out_axes))


def _without(strides: ConvStrides, axis: int) -> ConvStrides:
    """Return the strides where an axis and the next one are one."""
    s = strides
    return s._replace(
        input_axes=s.input_axes[:axis] + s.input_axes[axis + 1 :],
        weight_axes=s.weight_axes[: axis + 1] + s.weight_axes[axis + 2 :],
        out_axes=s.out_axes[:axis] + s.out_axes[axis + 1 :],
    )


def merged(geometry: ConvGeometry, strides: ConvStrides) -> tuple[ConvGeometry, ConvStrides]:
    """Return the same pointwise convolution with neighbouring axes as one, where they lie so.

    Images of odd width then have long rows, of which more are even. More than three axes stay, as
    they are for another kernel, whose sums have other bits; so do the axes of other convolutions,
    as the order of a sum depends on which axis a tap belongs to.
    """
    g, s = geometry, strides
    if g.rank > 3 or not all(map(_plain.is_pointwise, g.axes)):
        return g, s
    for axis in reversed(range(g.rank - 1)):
        one = _plain.joined(g, axis)
        if one and _lie_as_one(s, axis, g.axes[axis + 1].size_in):
            g, s = one, _without(s, axis)
    return g, s


def _raised(geometry: ConvGeometry, strides: ConvStrides) -> tuple[ConvGeometry, ConvStrides]:
    """Return the same 2-d convolution as one of z and x, where it strides far along its first axis.

    The dense kernel stages the inputs of each tap of z on their own, and those of all taps of y
    together. Where a stride leaves neighbouring rows few inputs in common, nothing is lost by that,
    and tiles take a fraction of the shared memory.
    """
    g, s = geometry, strides
    if g.transposed or g.rank != 2 or g.stride[0] < _FAR_APART or g.channels < 2:
        return g, s
    first, last = g.axes
    return (
        replace(
            g,
            axes=(first, NO_AXIS, last),
            stride=(g.stride[0], 1, g.stride[1]),
            dilation=(g.dilation[0], 1, g.dilation[1]),
            pads_before=(g.pads_before[0], 0, g.pads_before[1]),
        ),
        s._replace(
            input_axes=[s.input_axes[0], 0, s.input_axes[1]],
            weight_axes=[s.weight_axes[0], 0, s.weight_axes[1]],
            out_axes=[s.out_axes[0], 0, s.out_axes[1]],
        ),
    )


def on_long_lines(
    geometry: ConvGeometry, strides: ConvStrides, dtype: np.dtype, processor: Processor
) -> tuple[PlainPlan, ConvGeometry, ConvStrides]:
    """Return the plan for few products, with axes as one where that is faster and they lie so."""
    g, s = geometry, strides
    widths = [axis.size_in for axis in g.axes[1:]]
    lie_as_one = tuple(_lie_as_one(s, axis, width) for axis, width in enumerate(widths))
    axes, plan = plan_joined(g, dtype, processor, lie_as_one)
    assert isinstance(plan, PlainPlan)
    for axis in axes:
        g = _plain.joined(g, axis) or g
        s = _without(s, axis)
    return plan, g, s


def laid_out(
    geometry: ConvGeometry, input: Array, weight: Array, out: Array
) -> tuple[ConvGeometry, ConvStrides]:
    """Return a convolution as the planner is asked for it, and the strides of its arrays."""
    return _raised(*merged(geometry, conv_strides(geometry, input, weight, out)))


_PREFETCHED = 2**24  # bytes of an input that are worth a place in the L2 cache


def lines_of(geometry: ConvGeometry, strides: ConvStrides, element: int) -> int:
    """Return how many lines of 128 bytes a small input without gaps fills, 0 for any other."""
    g = geometry
    sizes = (g.batch, g.groups, g.channels, *(axis.size_in for axis in g.axes))
    along = (*strides.input, *strides.input_axes)
    last = sum((size - 1) * stride for size, stride in zip(sizes, along, strict=True))
    size = math.prod(sizes)
    dense = min(along) >= 0 and last + 1 == size
    return -(-size * element // 128) if dense and size * element <= _PREFETCHED else 0
