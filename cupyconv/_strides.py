"""Where the arrays of a convolution lie, and which of its axes are one there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._arrays import Array
from ._axes import is_pointwise, is_raised, joined, raised
from ._geometry import ConvGeometry
from ._packing import c_strides, strides_of


def cast_strides(array: Array, dtype: np.dtype) -> tuple[int, ...]:
    """Return the strides in elements of what a device casts `array` to."""
    if array.dtype == dtype:
        return strides_of(array)
    return c_strides(array.shape)


def batch_strides(geometry: ConvGeometry, array: Array, dtype: np.dtype) -> tuple[int, ...]:
    """Return the strides in elements of what a device casts an input or a result to.

    The first one is of the batch, 0 where the call has none.
    """
    strides = cast_strides(array, dtype)
    return strides if geometry.batched else (0, *strides)


class ConvStrides(NamedTuple):
    """Strides in elements: of the batch, groups and channels, or of groups, rows and channels.

    Where taps became channels, `source` is the convolution before, in which each input has a place
    of its own.
    """

    input: tuple[int, int, int]
    weight: tuple[int, int, int]
    out: tuple[int, int, int]
    input_axes: list[int]
    weight_axes: list[int]
    out_axes: list[int]
    source: tuple[ConvGeometry, ConvStrides] | None = None

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

    def raised(self, geometry: ConvGeometry) -> ConvStrides:
        """Return the strides of z and x for those of y and x, where a convolution is raised."""
        if not is_raised(geometry):
            return self
        (in_y, in_x), (weight_y, weight_x), (out_y, out_x) = (
            self.input_axes,
            self.weight_axes,
            self.out_axes,
        )
        return self._replace(
            input_axes=[in_y, 0, in_x],
            weight_axes=[weight_y, 0, weight_x],
            out_axes=[out_y, 0, out_x],
        )

    def unfolded(self, geometry: ConvGeometry, axis: int) -> ConvStrides:
        """Return the strides with the taps of an axis of `geometry` as input channels."""
        taps, input_axes, weight_axes = geometry.axes[axis], [*self.input_axes], [*self.weight_axes]
        input_axes[axis] *= taps.step
        weight_axes[axis] = 0  # a single tap
        return self._replace(
            input=(*self.input[:2], taps.dilation * self.input_axes[axis]),
            weight=(*self.weight[:2], self.weight_axes[axis]),
            input_axes=input_axes,
            weight_axes=weight_axes,
            source=(geometry, self),
        )


def conv_strides(geometry: ConvGeometry, data: Array, weight: Array, out: Array) -> ConvStrides:
    input_batch, input_channel, *input_axes = batch_strides(geometry, data, out.dtype)
    out_batch, out_row, *out_axes = batch_strides(geometry, out, out.dtype)
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


def arranged(geometry: ConvGeometry, strides: ConvStrides) -> tuple[ConvGeometry, ConvStrides]:
    """Return a convolution as the planner is asked for it, and the strides of its arrays."""
    geometry, strides = merged(geometry, strides)
    return raised(geometry), strides.raised(geometry)
