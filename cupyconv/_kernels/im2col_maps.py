"""A convolution in the words of the copy engine: windows of pixels, boxes of weights, and copies.

The engine reads channels that lie innermost, at strides and addresses that are multiples of 16
bytes. Where an array is not such, a copy of it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .._arrays import Array
from .._geometry import ConvGeometry
from .._strides import ConvStrides
from .._taps import NO_AXIS, AxisTaps
from .._tensor_maps import Boxes, Pixels
from . import channels_last
from .channels_last import Transposition
from .memory import along_three_axes

if TYPE_CHECKING:
    import numpy as np

    from .._device import Device

STEP_BYTES, SLICE_BYTES, ALIGNED = 128, 32, 16  # of a K step, an instruction, and a stride
MOST_STEP = 8  # from one pixel to the next
# Bytes of operands that reach a multiprocessor in a cycle. Fitted with the constants of
# `im2col_conv`.
BROUGHT = 37


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
    """Return the input channels of a group in copies."""
    return whole_row(geometry.groups, geometry.channels, itemsize)


def whole_row(groups: int, channels: int, itemsize: int) -> int:
    """Return the channels of a group in copies, which has so many in the array."""
    whole = (SLICE_BYTES if groups > 1 else ALIGNED) // itemsize
    return -(-channels // whole) * whole


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


class Source:
    """What an operand is read from: an array at an address, or a copy."""

    def __init__(self, operand: Operand, device: Device) -> None:
        self.operand, self.device = operand, device

    def is_readable(self, address: int) -> bool:
        """Return whether the copy engine reads the array itself."""
        return bool(self.operand.own) and address % ALIGNED == 0

    def read(self, address: int, copy: Array | None) -> tuple[list[int], int]:
        """Return the words of the maps, and the channels from group to group."""
        maps = self.operand.own if copy is None else self.operand.of_copy
        begin = address if copy is None else self.device.address(copy)
        words = [word for own in maps for word in self.device.tensor_map(begin, own)]
        return words, self.operand.groups[copy is not None]


class Copies:
    """Copies of two operands, by one launch."""

    def __init__(self, sources: Sequence[Source], dtype: np.dtype, device: Device) -> None:
        copies = [source.operand.copy for source in sources]
        # By which of the operands are copied.
        self._copiers = {
            needed: channels_last.bind([*itertools.compress(copies, needed)], dtype, device)
            for needed in ((True, True), (True, False), (False, True))
        }

    def make(self, needed: tuple[bool, bool], addresses: tuple[int, int]) -> list[Array | None]:
        """Return the copies of the arrays at the addresses that are `needed`."""
        if not any(needed):
            return [None, None]
        copies = iter(self._copiers[needed](*itertools.compress(addresses, needed)))
        return [next(copies) if copied else None for copied in needed]


def _whole(strides: Sequence[int], itemsize: int) -> bool:
    return all(stride > 0 and stride * itemsize % ALIGNED == 0 for stride in strides)


class View(NamedTuple):
    """Where copies find their pixels along an axis: the corners of a window, and a step."""

    lower: int
    upper: int
    step: int


@dataclass(frozen=True)
class Image:
    """An array by sample, group, channel and place along one to three axes.

    Attributes
    ----------
    sizes : tuple of int
        Samples, groups, channels.
    strides : tuple of int
        Elements from one to the next.
    axes, along : tuple of int
        Places along each axis, and elements from one to the next.
    row : int
        Channels of a group in a copy.
    itemsize : int
        Bytes of an element.
    """

    sizes: tuple[int, int, int]
    strides: tuple[int, int, int]
    axes: tuple[int, ...]
    along: tuple[int, ...]
    row: int
    itemsize: int

    def operand(
        self, views: Sequence[Sequence[View]], channels: int, pixels: int, exact: bool = False
    ) -> Operand:
        """Return maps for copies of so many channels and pixels, one for the views of each phase.

        Views are along the axes.
        """
        (samples, groups, of_group), (sample, group, channel) = self.sizes, self.strides
        itemsize, sizes = self.itemsize, self.axes
        # The parts of a complex result are groups that read the same channels.
        apart = group == of_group and of_group * itemsize % SLICE_BYTES == 0

        def maps(width: int, pitches: Sequence[int]) -> tuple[Pixels, ...]:
            """Return them for channels of all groups, and strides along axes and samples."""
            return tuple(
                Pixels(
                    itemsize,
                    (width, *reversed(sizes), samples),
                    tuple(itemsize * pitch for pitch in (*reversed(pitches[:-1]), pitches[-1])),
                    tuple(view.lower for view in reversed(phase)),
                    tuple(view.upper for view in reversed(phase)),
                    tuple(view.step for view in reversed(phase)),
                    channels,
                    pixels,
                    exact,
                )
                for phase in views
            )

        # Strides of axes of one element are zero; any other one does as well.
        width = groups * self.row
        packed = [*itertools.accumulate((width, *reversed(sizes)), lambda a, b: a * b)]
        of_copy = maps(width, (*reversed(packed[:-1]), packed[-1]))
        pitches = [
            stride if size > 1 else width
            for stride, size in zip((*self.along, sample), (*sizes, samples), strict=True)
        ]
        readable = (
            (channel == 1 or groups * of_group == 1)
            and (groups == 1 or apart)
            and _whole(pitches, itemsize)
        )
        copy = Transposition(
            (samples, 1, groups, of_group, *_three(sizes)),
            (sample, 0, group, channel, *along_three_axes(self.along)),
            self.row,
        )
        own = maps(groups * of_group, pitches) if readable else ()
        return Operand(own, of_copy, copy, (of_group, self.row))


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
    axes, row = axes_of(geometry), row_of(geometry, itemsize)
    image = Image(
        (samples, geometry.groups, geometry.channels),
        strides.input,
        tuple(axis.size_in for axis in axes),
        tuple(along(geometry, strides.input_axes)),
        row,
        itemsize,
    )
    views = [
        [
            View(window.lower, window.upper, axis.step)
            for window, axis in zip(windows, axes, strict=True)
        ]
        for windows in phases_of(axes)
    ]
    return image.operand(views, STEP_BYTES // itemsize, pixels, exact)


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
