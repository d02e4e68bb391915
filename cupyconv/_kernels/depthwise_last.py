"""The channels-last depthwise kernel: planes of arrays whose channels lie innermost.

It takes the place of the gather kernel where input and output both lie so, and adds up a sum in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from .._geometry import ConvGeometry
from .._packing import long_reciprocal
from .._taps import NO_AXIS, AxisTaps
from .launches import ELEMENTS, INT32_LIMIT, MAX_GRID, SINGLES, Instance, Launch, Processor
from .members import CALL, Members, Template, one_launch, parameter
from .question import Question, TiledPlan

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("depthwise_last.cu",)
UNIT = "memory"

LANES, WARPS = 32, 4  # output channels of a tile, and its strips
THREADS = LANES * WARPS
COLUMNS = 8  # outputs of a strip along x, for a step of one
# With fewer channels than these most threads of a block are idle.
LEAST_CHANNELS = LANES // 2
# Blocks of a multiprocessor, by height and step of the kernel: as many as registers leave room for
# where none is spilled.
_RESIDENT = {(3, 1): 6, (3, 2): 8, (5, 1): 4, (5, 2): 5, (7, 1): 3, (7, 2): 4}
_BEGIN = 2  # waits for memory before the first products: for weights, and for a first line
_SCHEDULERS = 4


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into strips.

    Attributes
    ----------
    geometry : ConvGeometry
        The convolution.
    axes : tuple of AxisTaps
        y and x.
    lines : int
        Most lines of a strip.
    multiprocessors : int
        Of the GPU.
    """

    geometry: ConvGeometry
    axes: tuple[AxisTaps, AxisTaps]
    lines: int
    multiprocessors: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height of the kernel, and its step: the macros of depthwise_last.cu."""
        return self.axes[0].kernel, self.axes[0].step

    @property
    def channels(self) -> int:
        """Output channels of all groups."""
        return self.geometry.groups * self.geometry.rows

    @property
    def strips_of_line(self) -> int:
        """Strips beside each other."""
        return -(-self.axes[1].size_out * self.shape[1] // COLUMNS)

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
        return -(-self.channels // LANES)

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.strips // WARPS) * self.channel_tiles

    @property
    def turns(self) -> int:
        """Turns of a strip: one for each of its lines, and those before its first output."""
        height, step = self.shape
        return self.lines + (height - 1) // step

    @property
    def time(self) -> int:
        """Turns that follow each other on a multiprocessor, waits included."""
        slots = self.multiprocessors * _RESIDENT[self.shape]
        return -(-self.count // slots) * (self.turns + _BEGIN)

    @property
    def cycles(self) -> float:
        """The cycles that its instructions take."""
        height, step = self.shape
        columns = COLUMNS // step
        read = (columns - 1) * step + height
        # An address for each load and store.
        turn = height**2 * columns + 2 * (step * read + columns)
        return self.count * WARPS * self.turns * turn / (_SCHEDULERS * self.multiprocessors)

    def __str__(self) -> str:
        return (
            f"{self.count} tiles of {WARPS} strips of {self.lines} x {COLUMNS // self.shape[1]} "
            f"outputs and {LANES} channels, which lie innermost"
        )


class DepthwiseLastPlan(TiledPlan[Layout]):
    """How a convolution runs by depthwise_last.cu."""


PLAN = DepthwiseLastPlan


def plan(question: Question, strides: ConvStrides) -> DepthwiseLastPlan | None:
    """Return the plan for arrays whose channels lie innermost, None for all others.

    The gather kernel has a plan for the same question.
    """
    axes = _planes(question)
    if axes is None or not _lie_innermost(question.geometry, strides, axes):
        return None
    layout = _layout(question.geometry, axes, question.processor)
    if layout.count > MAX_GRID // 2 or layout.strips >= INT32_LIMIT:
        return None
    instance, blocks = _instance(question.dtype.name, *layout.shape), layout.count
    return DepthwiseLastPlan(Launch(instance, blocks, THREADS, unit=blocks), layout)


def _planes(question: Question) -> tuple[AxisTaps, AxisTaps] | None:
    """Return the taps of y and x where they are such as the kernel has, else None."""
    *others, y, x = (NO_AXIS, *question.geometry.axes)
    same = y.kernel == x.kernel and y.step == x.step and (y.kernel, y.step) in _RESIDENT
    together = abs(y.offset_step) == abs(x.offset_step) == 1
    planes = y.phases == x.phases == 1 and all(axis == NO_AXIS for axis in others)
    return (y, x) if planes and same and together and question.dtype.name in SINGLES else None


def _lie_innermost(
    geometry: ConvGeometry, strides: ConvStrides, axes: tuple[AxisTaps, AxisTaps]
) -> bool:
    """Return whether there are many channels, and neighbouring ones lie together."""
    groups, rows = geometry.groups, geometry.rows
    # Offsets of the columns of a strip have 32 bits.
    reach = COLUMNS + axes[1].kernel
    return (
        groups * rows >= LEAST_CHANNELS
        and (groups == 1 or (strides.input[1] == 1 and strides.out[1] == rows))
        and (rows == 1 or strides.out[2] == 1)
        and all(abs(a[-1]) * reach < INT32_LIMIT for a in (strides.input_axes, strides.out_axes))
    )


def _layout(
    geometry: ConvGeometry, axes: tuple[AxisTaps, AxisTaps], processor: Processor
) -> Layout:
    """Return the layout of fewest turns: longer strips have less halo, shorter ones fill a GPU."""
    size = axes[0].size_out
    heights = [-(-size // 2**n) for n in range((size - 1).bit_length() + 1)]
    layouts = (Layout(geometry, axes, lines, processor.multiprocessors) for lines in heights)
    return min(layouts, key=lambda layout: layout.time)


def _instance(dtype: str, height: int, step: int) -> Instance:
    defines = (
        ("ELEMENT", ELEMENTS[dtype]),
        ("HEIGHT", str(height)),
        ("STEP", str(step)),
        ("RESIDENT", str(_RESIDENT[height, step])),
    )
    return Instance(SOURCES[0], "depthwise_last", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for dtype in SINGLES:
        for height, step in _RESIDENT:
            yield _instance(dtype, height, step)


def bind(
    plan: DepthwiseLastPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    return one_launch(device, plan.launch, Template(SOURCES[0], _members(plan, strides, bias)))


def _members(plan: DepthwiseLastPlan, strides: ConvStrides, bias: Array | None) -> Members:
    """Return the members of ``struct Arguments``."""
    layout = plan.layout
    along = zip(
        layout.axes,
        strides.input_axes[-2:],
        strides.weight_axes[-2:],
        strides.out_axes[-2:],
        strict=True,
    )
    axes = [_axis(*one) for one in along]
    # Weights are in the order of their inputs.
    first = sum(
        (axis.kernel - 1) * weight
        for axis, weight in zip(layout.axes, strides.weight_axes[-2:], strict=True)
        if axis.offset_step < 0
    )
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "channels": layout.channels,
        "rows": layout.geometry.rows,
        "input_batch": strides.input[0],
        "out_batch": strides.out[0],
        "weight_first": first,
        "weight_group": strides.weight[0],
        "weight_row": strides.weight[1],
        "axis": axes,
        "lines": layout.lines,
        "strips": layout.strips,
        "strips_of_line": layout.strips_of_line,
        "strips_of_sample": layout.strips_of_sample,
        "channel_tiles": layout.channel_tiles,
        "per_line": long_reciprocal(layout.strips_of_line),
        "per_sample": long_reciprocal(layout.strips_of_sample),
        "per_channel_tiles": long_reciprocal(layout.channel_tiles),
    }


def _axis(axis: AxisTaps, data: int, weight: int, out: int) -> Members:
    """Return a ``struct Axis``."""
    return {
        "size_in": axis.size_in,
        "size_out": axis.size_out,
        "low": axis.offsets[0],
        "input": data,
        "weight": weight if axis.offset_step > 0 else -weight,
        "out": out,
    }
