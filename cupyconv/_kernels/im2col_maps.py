"""A convolution in the words of the copy engine: windows of pixels, boxes of weights, and copies.

The engine reads channels that lie innermost, at strides and addresses that are multiples of 16
bytes. Where an array is not such, a copy of it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .._geometry import ConvGeometry
from .._strides import ConvStrides
from .._taps import NO_AXIS, AxisTaps
from .._tensor_maps import Boxes, Pixels
from .channels_last import Transposition
from .memory import along_three_axes

STEP_BYTES, SLICE_BYTES, ALIGNED = 128, 32, 16  # of a K step, an instruction, and a stride
MOST_STEP = 8  # from one pixel to the next


@dataclass(frozen=True)
class Window:
    """An axis in a phase: the members of ``struct Window`` of im2col_conv.cu, and its end.

    Attributes
    ----------
    outputs, taps : int
        Outputs and taps of the phase.
    first : int
        The first of the outputs.
    tap, tap_step : int
        The first tap, and from one to the next.
    offset, offset_step : int
        From the window's corner to the first tap, and from one tap to the next.
    lower, upper : int
        Where the first pixel lies, and the last one, counted from the end of the axis.
    """

    outputs: int
    taps: int
    first: int
    tap: int
    tap_step: int
    offset: int
    offset_step: int
    lower: int
    upper: int


def window_of(axis: AxisTaps, phase: int) -> Window:
    tap, taps, offset = axis.progression(phase)
    offset = offset if taps else 0  # else it may lie out of reach
    outputs = axis.positions(phase)
    lower = min(offset, offset + max(0, taps - 1) * axis.offset_step)
    upper = lower + (outputs - 1) * axis.step - (axis.size_in - 1)
    return Window(
        *(outputs, taps, phase, tap, axis.tap_step),
        *(offset - lower, axis.offset_step, lower, upper),
    )


def axes_of(geometry: ConvGeometry) -> tuple[AxisTaps, ...]:
    """Return the axes of a convolution without those of one element, of which one is kept."""
    return tuple(axis for axis in geometry.axes if axis != NO_AXIS) or (NO_AXIS,)


def along(geometry: ConvGeometry, strides: Sequence[int]) -> list[int]:
    """Return the strides along the axes of `axes_of`."""
    pairs = zip(geometry.axes, strides, strict=True)
    return [stride for axis, stride in pairs if axis != NO_AXIS] or [0]


def phases_of(axes: Sequence[AxisTaps]) -> list[tuple[Window, ...]]:
    """Return the windows of each phase that has outputs."""
    phases = itertools.product(*(axis.used_phases for axis in axes))
    return [
        tuple(window_of(axis, phase) for axis, phase in zip(axes, own, strict=True))
        for own in phases
    ]


def is_expressible(axes: Sequence[AxisTaps]) -> bool:
    """Return whether the copy engine has such steps, corners of windows and offsets of taps."""
    corner, offset = Pixels.most(len(axes))
    return all(axis.step <= MOST_STEP for axis in axes) and all(
        -corner <= min(window.lower, window.upper)
        and max(window.lower, window.upper) < corner
        and (window.taps - 1) * abs(window.offset_step) <= offset
        for windows in phases_of(axes)
        for window in windows
    )


def row_of(geometry: ConvGeometry, itemsize: int) -> int:
    """Return the channels of a group in copies."""
    whole = (SLICE_BYTES if geometry.groups > 1 else ALIGNED) // itemsize
    return -(-geometry.channels // whole) * whole


@dataclass(frozen=True)
class Operand:
    """The maps of an array, or of a copy.

    Attributes
    ----------
    own : tuple
        Maps of the array itself; there are none where the copy engine cannot read it.
    of_copy : tuple
        Maps of the copy.
    copy : Transposition
        The copy.
    groups : tuple of int
        Channels from one group to the next, in the array and in the copy.
    """

    own: tuple[Boxes | Pixels, ...]
    of_copy: tuple[Boxes | Pixels, ...]
    copy: Transposition
    groups: tuple[int, int]


def _whole(strides: Sequence[int], itemsize: int) -> bool:
    return all(stride > 0 and stride * itemsize % ALIGNED == 0 for stride in strides)


def inputs_of(
    samples: int,
    geometry: ConvGeometry,
    strides: ConvStrides,
    itemsize: int,
    pixels: int,
    exact: bool,
) -> Operand:
    """Return the maps of so many samples of an input, one for each phase, for pixels of a tile.

    Floats are brought as they are where the kernel needs them `exact`.
    """
    of_sample, of_group, channel = strides.input
    groups, channels, row = geometry.groups, geometry.channels, row_of(geometry, itemsize)
    axes = axes_of(geometry)
    of_axes = along(geometry, strides.input_axes)
    sizes = [axis.size_in for axis in axes]

    def maps(width: int, pitches: Sequence[int]) -> tuple[Pixels, ...]:
        """Return them for channels of all groups, and strides along the axes and the samples."""
        return tuple(
            Pixels(
                itemsize,
                (width, *reversed(sizes), samples),
                tuple(itemsize * pitch for pitch in (*reversed(pitches[:-1]), pitches[-1])),
                tuple(window.lower for window in reversed(windows)),
                tuple(window.upper for window in reversed(windows)),
                tuple(axis.step for axis in reversed(axes)),
                STEP_BYTES // itemsize,
                pixels,
                exact,
            )
            for windows in phases_of(axes)
        )

    # Strides of axes of one element are zero; any other one does as well.
    width = groups * row
    packed = [*itertools.accumulate((width, *reversed(sizes)), lambda a, b: a * b)]
    of_copy = maps(width, (*reversed(packed[:-1]), packed[-1]))
    pitches = [
        stride if size > 1 else width
        for stride, size in zip((*of_axes, of_sample), (*sizes, samples), strict=True)
    ]
    readable = (
        (channel == 1 or groups * channels == 1)
        and (groups == 1 or channels * itemsize % SLICE_BYTES == 0)
        and _whole(pitches, itemsize)
    )
    copy = Transposition(
        (samples, 1, groups, channels, *_three(sizes)),
        (of_sample, 0, of_group, channel, *along_three_axes(of_axes)),
        row,
    )
    own = maps(groups * channels, pitches) if readable else ()
    return Operand(own, of_copy, copy, (channels, row))


def weights_of(
    geometry: ConvGeometry, strides: ConvStrides, itemsize: int, columns: int, parts: int
) -> Operand:
    """Return the map of a weight by channel, tap, and output channel of all groups.

    Two `parts` are those of a copy: a tap's channels have the high ones first, then the low ones.
    """
    of_group, of_row, channel = strides.weight
    taps = [axis.kernel for axis in axes_of(geometry)]
    of_axes = along(geometry, strides.weight_axes)
    count, rows, row = math.prod(taps), geometry.groups * geometry.rows, row_of(geometry, itemsize)

    def boxes(channels: int, along_taps: int, along_rows: int) -> tuple[Boxes]:
        lengths = itemsize * along_taps, itemsize * along_rows
        box = STEP_BYTES // itemsize, 1, columns
        return (Boxes(itemsize, (channels, count, rows), lengths, box),)

    # From a tap to the next one, if all lie as far apart.
    apart = [
        stride / after
        for stride, size, after in zip(
            of_axes, taps, (math.prod(taps[i + 1 :]) for i in range(len(taps))),
            strict=True,
        )
        if size > 1
    ]  # fmt: skip
    uniform = len({*apart}) <= 1
    pitch = int(apart[0]) if apart else row
    along_rows = of_row if rows > 1 else pitch * count
    readable = (
        parts == 1
        and (channel == 1 or geometry.channels == 1)
        and uniform
        and (geometry.groups == 1 or of_group == geometry.rows * of_row)
        and _whole((pitch, along_rows), itemsize)
    )
    # Along what lies together, as far as there are axes for it.
    across, width = (parts, geometry.channels), parts * row
    sizes: tuple[int, ...] = geometry.groups, geometry.rows, *across, *_three(taps)
    steps: tuple[int, ...] = of_group, of_row, 0, channel, *along_three_axes(of_axes)
    of_copy = boxes(width, width, width * count)
    if uniform and abs(of_row) < abs(pitch):
        sizes = count, geometry.groups, *across, 1, 1, geometry.rows
        steps = pitch, of_group, 0, channel, 0, 0, of_row
        of_copy = boxes(width, width * rows, width)
    elif uniform:
        sizes = geometry.groups, 1, *across, 1, geometry.rows, count
        steps = of_group, 0, 0, channel, 0, of_row, pitch
    own = boxes(geometry.channels, pitch, along_rows) if readable else ()
    copy = Transposition(sizes, steps, row, split=parts > 1)
    return Operand(own, of_copy, copy, (geometry.channels, row))


def _three(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes along z, y and x."""
    return (*[1] * (3 - len(sizes)), *sizes)
