"""How the arrays of a convolution lie in memory, in the words that kernels take."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._geometry import ConvGeometry
from .._packing import lie_together, long_reciprocal
from .._taps import on_three_axes
from .members import Members

if TYPE_CHECKING:
    from .._strides import ConvStrides


def along_three_axes(strides: Sequence[int]) -> list[int]:
    """Return the strides along z, y and x; they are 0 along axes that the convolution lacks."""
    return [*(0,) * (3 - len(strides)), *strides]


def space(geometry: ConvGeometry, strides: ConvStrides) -> dict[str, int | list[int]]:
    """Return the members of a ``struct Space`` (``kernels/space.cuh``)."""
    axes = on_three_axes(geometry.axes)
    along = list(zip(axes, along_three_axes(strides.input_axes), strict=True))
    z, y, x = (axis.size_out for axis in axes)
    sizes = y, x, z * y * x
    return {
        "first": sum(stride * axis.origin for axis, stride in along),
        "input_batch": strides.input[0],
        "input_group": strides.input[1],
        "input_channel": strides.input[2],
        "input_axis": [stride * axis.step for axis, stride in along],
        "out_batch": strides.out[0],
        "out_group": strides.out[1],
        "out_row": strides.out[2],
        "out_axis": along_three_axes(strides.out_axes),
        "sizes": [y, x],
        "size": sizes[2],
        "reciprocals": [long_reciprocal(size) for size in sizes],
        "scattered": geometry.rank > 1,
    }


def staged_pitches(
    line: int, sizes: tuple[int, int], strides: tuple[int, int, int], chunk: int
) -> tuple[int, int, int]:
    """Return the staged elements from one line, plane and channel to the next.

    A line has at least `line` elements; `sizes` are the lines of a plane and the planes of a
    channel. Each pitch equals the array's stride (along y, z and the channels) modulo a chunk, so
    that what is aligned in the array is aligned in shared memory.
    """
    lines, planes = sizes
    along_y, along_z, across = strides
    line += (along_y - line) % chunk
    plane = line * lines
    plane += (along_z - plane) % chunk
    channel = plane * planes
    channel += (across - channel) % chunk
    return line, plane, channel


def neighbours_together(
    geometry: ConvGeometry, strides: ConvStrides, places: int, inputs: bool
) -> bool:
    """Return whether `places` neighbouring outputs lie together in memory.

    With `inputs`, the inputs of their first taps have to lie together as well.
    """
    axes = zip(geometry.axes, strides.input_axes, strict=True)
    ins = (*strides.input, *(stride * axis.step for axis, stride in axes))
    outs = (*strides.out, *strides.out_axes)
    size = geometry.axes[-1].size_out
    return all(lie_together(places, one, size) == places for one in (outs, ins)[: 1 + inputs])


def weight_strides(strides: ConvStrides) -> Members:
    """Return the strides of weights from group to group, row to row, and channel to channel."""
    group, row, channel = strides.weight
    return {"weight_group": group, "weight_row": row, "weight_channel": channel}


def lie_without_gaps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements lie in C order; axes of one element may have any stride."""
    pitches = itertools.accumulate(reversed(sizes[1:]), operator.mul, initial=1)
    places = zip(reversed(sizes), reversed(strides), pitches, strict=True)
    return all(size == 1 or stride == pitch for size, stride, pitch in places)
