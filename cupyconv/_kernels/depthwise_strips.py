"""Strips of planes whose channels lie innermost: what the channels-last depthwise kernels share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._arrays import Array
from .._geometry import ConvGeometry
from .._packing import long_reciprocal
from .._taps import NO_AXIS, AxisTaps
from .launches import INT32_LIMIT, MAX_GRID
from .members import CALL, Member, Members, parameter
from .question import Question

if TYPE_CHECKING:
    from .._strides import ConvStrides

# With fewer channels than half a warp most threads are idle.
LEAST_CHANNELS = 16
_BEGIN = 2  # waits for memory before the first products: for weights, and for a first line
_SCHEDULERS = 4
_PARTS = (1, 3, 5, 7)  # into which lines are divided, before they are halved


@dataclass(frozen=True)
class Tile:
    """What a block of threads computes.

    Attributes
    ----------
    channels : int
        Output channels.
    strips, columns : int
        Strips, and outputs of a line of each.
    resident : int
        Blocks of a multiprocessor.
    instructions : float
        Instructions of its warps for a line of inputs, or for the lines of one step.
    """

    channels: int
    strips: int
    columns: int
    resident: int
    instructions: float


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into strips.

    Attributes
    ----------
    geometry : ConvGeometry
        The convolution.
    axes : tuple of AxisTaps
        y and x.
    tile : Tile
        What a block computes.
    lines : int
        Most lines of a strip.
    multiprocessors : int
        Of the GPU.
    """

    geometry: ConvGeometry
    axes: tuple[AxisTaps, AxisTaps]
    tile: Tile
    lines: int
    multiprocessors: int

    @property
    def channels(self) -> int:
        """Output channels of all groups."""
        return self.geometry.groups * self.geometry.rows

    @property
    def strips_of_line(self) -> int:
        """Strips beside each other."""
        return -(-self.axes[1].size_out // self.tile.columns)

    @property
    def strips_of_sample(self) -> int:
        """Strips of a sample."""
        return self.strips_of_line * -(-self.axes[0].size_out // self.lines)

    @property
    def strips(self) -> int:
        """Strips of all samples."""
        return self.geometry.batch * self.strips_of_sample

    @property
    def channel_tiles(self) -> int:
        """Tiles along the channels."""
        return -(-self.channels // self.tile.channels)

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.strips // self.tile.strips) * self.channel_tiles

    @property
    def turns(self) -> int:
        """Turns of a strip: one for each of its lines, and those before its first output."""
        y, _ = self.axes
        return self.lines + (y.kernel - 1) // y.step

    @property
    def time(self) -> int:
        """Turns that follow each other on a multiprocessor, waits included."""
        slots = self.multiprocessors * self.tile.resident
        return -(-self.count // slots) * (self.turns + _BEGIN)

    @property
    def cycles(self) -> float:
        """The cycles that its instructions take."""
        instructions = self.count * self.turns * self.tile.instructions
        return instructions / (_SCHEDULERS * self.multiprocessors)

    def __str__(self) -> str:
        tile = self.tile
        return (
            f"{self.count} tiles of {tile.strips} strips of {self.lines} x {tile.columns} outputs "
            f"and {tile.channels} channels, which lie innermost"
        )


def plane_of(question: Question) -> tuple[AxisTaps, AxisTaps] | None:
    """Return the taps of y and x if neighbours are one step apart on each, and are one input."""
    *others, y, x = (NO_AXIS, *question.geometry.axes)
    neighbours = abs(y.offset_step) == abs(x.offset_step) == 1 and y.phases == x.phases == 1
    planes = y.step == x.step and all(axis == NO_AXIS for axis in others)
    return (y, x) if planes and neighbours and question.geometry.padding_mode is None else None


def lie_innermost(geometry: ConvGeometry, strides: ConvStrides) -> bool:
    """Return whether there are many channels, and neighbouring ones lie together."""
    groups, rows = geometry.groups, geometry.rows
    return (
        groups * rows >= LEAST_CHANNELS
        and (groups == 1 or (strides.input[1] == 1 and strides.out[1] == rows))
        and (rows == 1 or strides.out[2] == 1)
    )


def layout_of(question: Question, axes: tuple[AxisTaps, AxisTaps], tile: Tile) -> Layout | None:
    """Return the layout of fewest turns: longer strips have less halo, shorter ones fill a GPU."""
    size = axes[0].size_out
    halvings = range((size - 1).bit_length() + 1)
    heights = {-(-size // (odd << n)) for odd in _PARTS for n in halvings}
    multiprocessors = question.processor.multiprocessors
    tallest_first = sorted(heights, reverse=True)
    layouts = (Layout(question.geometry, axes, tile, n, multiprocessors) for n in tallest_first)
    layout = min(layouts, key=lambda layout: layout.time)
    return layout if layout.count <= MAX_GRID // 2 and layout.strips < INT32_LIMIT else None


# Arguments ------------------------------------------------------------------------------------


def arrays(strides: ConvStrides, bias: Array | None) -> Members:
    """Return the members of the arrays, and strides from sample to sample."""
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "input_batch": strides.input[0],
        "out_batch": strides.out[0],
    }


def plane(layout: Layout, strides: ConvStrides) -> dict[str, Member]:
    """Return the members of the taps, with weights in the order of their inputs."""
    along = zip(
        layout.axes,
        strides.input_axes[-2:],
        strides.weight_axes[-2:],
        strides.out_axes[-2:],
        strict=True,
    )
    axes, first = [], 0
    for axis, data, weight, out in along:
        flipped = axis.offset_step < 0
        first += (axis.kernel - 1) * weight if flipped else 0
        axes.append(
            {
                "size_in": axis.size_in,
                "size_out": axis.size_out,
                "low": axis.offsets[0],
                "input": data,
                "weight": -weight if flipped else weight,
                "out": out,
            }
        )
    return {"weight_first": first, "axis": axes}


def strips(layout: Layout) -> Members:
    """Return the members of the strips."""
    return {
        "channels": layout.channels,
        "lines": layout.lines,
        "strips": layout.strips,
        "strips_of_line": layout.strips_of_line,
        "strips_of_sample": layout.strips_of_sample,
        "channel_tiles": layout.channel_tiles,
        "per_line": long_reciprocal(layout.strips_of_line),
        "per_sample": long_reciprocal(layout.strips_of_sample),
        "per_channel_tiles": long_reciprocal(layout.channel_tiles),
    }
