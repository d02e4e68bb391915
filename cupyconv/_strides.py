"""Where the arrays of a convolution lie, and which of its axes are one there."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ._arrays import Array
from ._axes import is_pointwise, joined
from ._geometry import ConvGeometry
from ._packing import c_strides, strides_of
from ._taps import NO_AXIS

_FAR_APART = 3  # a stride with which neighbouring rows of outputs have few rows of inputs in common


def cast_strides(array: Array, dtype: np.dtype) -> tuple[int, ...]:
    """Return the strides in elements of what a device casts `array` to."""
    if array.dtype == dtype:
        return strides_of(array)
    return c_strides(array.shape)


class ConvStrides(NamedTuple):
    """Strides in elements: of the batch, groups and channels, or of groups, rows and channels."""

    input: tuple[int, int, int]
    weight: tuple[int, int, int]
    out: tuple[int, int, int]
    input_axes: list[int]
    weight_axes: list[int]
    out_axes: list[int]

    @property
    def share_inputs(self) -> bool:
        """Return whether all groups read the same input channels.

        The parts of a complex result do. In any other convolution with such a stride of groups, the
        stride of channels is 0 as well.
        """
        return self.input[1] == 0 != self.input[2]

    def lie_as_one(self, axis: int, width: int) -> bool:
        """Return whether an axis and the next one, of `width` positions, lie as one.

        Input and output both have to.
        """
        axes = self.input_axes, self.out_axes
        return all(strides[axis] == strides[axis + 1] * width for strides in axes)

    def joined(self, axis: int) -> ConvStrides:
        """Return the strides with an axis and the next one as one."""
        return self._replace(
            input_axes=self.input_axes[:axis] + self.input_axes[axis + 1 :],
            weight_axes=self.weight_axes[: axis + 1] + self.weight_axes[axis + 2 :],
            out_axes=self.out_axes[:axis] + self.out_axes[axis + 1 :],
        )


def conv_strides(geometry: ConvGeometry, data: Array, weight: Array, out: Array) -> ConvStrides:
    lead: tuple[int, ...] = () if geometry.batched else (0,)
    input_batch, input_channel, *input_axes = (*lead, *cast_strides(data, out.dtype))
    out_batch, out_row, *out_axes = (*lead, *strides_of(out))
    weight_0, weight_1, *weight_axes = cast_strides(weight, out.dtype)
    return ConvStrides(
        (input_batch, geometry.channels * input_channel, input_channel),
        (geometry.channels * weight_0, weight_1, weight_0)
        if geometry.transposed
        else (geometry.rows * weight_0, weight_0, weight_1),
        (out_batch, geometry.rows * out_row, out_row),
        input_axes,
        weight_axes,
        out_axes,
    )


def merged(geometry: ConvGeometry, strides: ConvStrides) -> tuple[ConvGeometry, ConvStrides]:
    """Return the same pointwise convolution with neighbouring axes joined where they lie as one.

    Rows are longer then, and even more often. More than three axes stay, because another kernel
    takes them, whose sums have other bits. The axes of other convolutions stay, because the order
    of a sum depends on the axis that a tap belongs to.
    """
    if geometry.rank > 3 or not all(map(is_pointwise, geometry.axes)):
        return geometry, strides
    for axis in reversed(range(geometry.rank - 1)):
        one = joined(geometry, axis)
        if one and strides.lie_as_one(axis, geometry.axes[axis + 1].size_in):
            geometry, strides = one, strides.joined(axis)
    return geometry, strides


def _raised(geometry: ConvGeometry, strides: ConvStrides) -> tuple[ConvGeometry, ConvStrides]:
    """Return a 2-d convolution with a long stride along its first axis as one of z and x.

    The dense kernel stages the inputs of each tap of z by themselves, but the inputs of all taps of
    y together. A long stride leaves neighbouring rows few inputs in common, so nothing is lost, and
    tiles take a fraction of the shared memory.
    """
    if (
        geometry.transposed
        or geometry.rank != 2
        or geometry.stride[0] < _FAR_APART
        or geometry.channels < 2
    ):
        return geometry, strides
    first, last = geometry.axes
    return (
        replace(
            geometry,
            axes=(first, NO_AXIS, last),
            stride=(geometry.stride[0], 1, geometry.stride[1]),
            dilation=(geometry.dilation[0], 1, geometry.dilation[1]),
            pads_before=(geometry.pads_before[0], 0, geometry.pads_before[1]),
        ),
        strides._replace(
            input_axes=[strides.input_axes[0], 0, strides.input_axes[1]],
            weight_axes=[strides.weight_axes[0], 0, strides.weight_axes[1]],
            out_axes=[strides.out_axes[0], 0, strides.out_axes[1]],
        ),
    )


def arranged(geometry: ConvGeometry, strides: ConvStrides) -> tuple[ConvGeometry, ConvStrides]:
    """Return a convolution as the planner is asked for it, and the strides of its arrays."""
    return _raised(*merged(geometry, strides))
