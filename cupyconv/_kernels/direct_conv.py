"""The direct kernel, which takes every convolution: both directions, any rank, any element type.

It is an implicit matrix product for each group and each phase: the output channels of the group
(rows) by the outputs of the phase (positions). The order of a sum follows from the geometry of one
sample and the GPU. The tile may depend on the batch.

Few outputs with long sums are split along K: the blocks of a tile compute ranges of the sums, which
a second launch adds in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from .._arrays import Array, Convolution, partial_dtype
from .._geometry import MAX_RANK, ConvGeometry
from .._taps import NO_AXIS, AxisTaps
from . import sum_splits
from .launches import ELEMENTS, MAX_GRID, Instance, Launch, element
from .members import CALL, Members, Template, axis_taps, one_launch, parameter
from .memory import weight_strides
from .question import Question, TiledPlan, fits_32_bits
from .views import c_strides

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("direct_conv.cu",)
ORDER = (
    "chunks of 8 channels, in each its taps, for each tap channels; segments of 128 products, or "
    "of 512 to 2,048 where a sample has few outputs"
)
UNIT = "FMA"

THREADS = 128


@dataclass(frozen=True)
class Tile:
    """How a block divides rows and positions among its threads; the macros of direct_conv.cu.

    Attributes
    ----------
    row_threads : int
        Threads along the rows; the others lie along the positions.
    thread_rows, thread_positions : int
        Rows and positions of a thread.
    depth : int
        Steps of the sum in a slice, which is staged in shared memory.
    resident : int
        Blocks that a multiprocessor shall hold, which bounds the registers.
    """

    row_threads: int
    thread_rows: int
    thread_positions: int
    depth: int
    resident: int

    @property
    def rows(self) -> int:
        """Output channels of a block."""
        return self.row_threads * self.thread_rows

    @property
    def positions(self) -> int:
        """Output positions of a block."""
        return THREADS // self.row_threads * self.thread_positions

    @property
    def issue(self) -> float:
        """Instructions of a thread for a K step, counted in machine code of compute capability 9.0.

        The four warps of a block issue at the same time, so they are cycles of a multiprocessor.
        """
        products = self.thread_rows * self.thread_positions
        operands = -(-self.thread_rows // 4) + -(-self.thread_positions // 4)
        staged = (8 * self.positions + 16 * self.rows) / THREADS
        return products + operands + staged + 50 / self.depth


# Tiles by the accumulator's size, since a thread holds a sum and a total for each of its outputs in
# registers: wide ones; narrow ones, for groups of few output channels, in which each thread has all
# rows of its positions; small ones for calls that do not fill the GPU and mostly wait for memory,
# in which a thread has one output and a slice has many steps. A tall one is for few positions.
SMALL, _TALL = Tile(8, 1, 1, 32, 4), Tile(32, 1, 1, 32, 4)
_TILES = {
    4: (Tile(8, 8, 8, 8, 2), Tile(1, 8, 4, 4, 4), Tile(1, 4, 4, 4, 4), _TALL, SMALL),
    8: (Tile(8, 8, 4, 8, 2), Tile(1, 4, 4, 4, 4), SMALL),
    16: (Tile(8, 4, 4, 8, 2), Tile(1, 4, 2, 4, 4), SMALL),
}

_ANY_RANK: Final = 0  # the RANK of the kernel for any number of axes, with 64-bit coordinates
# A convolution of fewer axes has further ones of one element in a wide tile, since they take hardly
# any time beside its many products.
_WIDE_RANKS, _RANKS = (3, _ANY_RANK), (2, 3)


def _tiles(dtype: str) -> tuple[Tile, ...]:
    """Return the tiles for an element, the wide one first."""
    size = max(4, np.dtype(dtype).itemsize) if dtype != "bfloat16" else 4
    return _TILES[size]


def _instance(dtype: str, rank: int, tile: Tile) -> Instance:
    return Instance(
        "direct_conv.cu",
        "direct_conv",
        (
            ("ELEMENT", ELEMENTS[dtype]),
            ("RANK", str(rank)),
            ("ROW_THREADS", str(tile.row_threads)),
            ("THREAD_ROWS", str(tile.thread_rows)),
            ("THREAD_POSITIONS", str(tile.thread_positions)),
            ("DEPTH", str(tile.depth)),
            ("RESIDENT", str(tile.resident)),
        ),
    )


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for dtype in ELEMENTS:
        wide, *others = _tiles(dtype)
        for tile, ranks in (wide, _WIDE_RANKS), *((other, _RANKS) for other in others):
            for rank in ranks:
                yield _instance(dtype, rank, tile)


# Plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles, and what the time of a call follows from.

    Attributes
    ----------
    tile : Tile
        The tile.
    rank : int
        Axes of the kernel; 0 for any number.
    phases : int
        Phases that have outputs.
    row_tiles, position_tiles : int
        Tiles along the rows of a group and along the positions of its largest phase.
    blocks : int
        Blocks that have work, one for each tile and range.
    waves : float
        Blocks over the number that the GPU holds at a time.
    issue : float
        Instructions that the busiest multiprocessor issues, also for the padding of tiles.
    cycles : float
        Cycles that the model gives it: of these instructions, or of waiting for memory.
    splits, split_steps : int
        Ranges of the K steps, and the steps of each. A single range has no partial sums.
    """

    tile: Tile
    rank: int
    phases: int
    row_tiles: int
    position_tiles: int
    blocks: int
    waves: float
    issue: float
    cycles: float
    splits: int = 1
    split_steps: int = 0

    def __str__(self) -> str:
        ranges = f", {self.splits} split-K slices" if self.splits > 1 else ""
        return f"{self.phases} phases of {self.row_tiles} x {self.position_tiles} tiles{ranges}"


@dataclass(frozen=True)
class DirectPlan(TiledPlan[Layout]):
    """How a convolution runs by direct_conv.cu.

    Attributes
    ----------
    launch : Launch
        Computes the outputs, or ranges of their sums.
    layout : Layout
        The tiles.
    segment : int
        K steps that are added up before they are added to the total.
    add : Launch, optional
        Adds the ranges.
    partial : int
        Bytes of the partial sums.
    """

    segment: int
    add: Launch | None
    partial: int

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return (self.launch,) if self.add is None else (self.launch, self.add)

    @property
    def workspace(self) -> int:
        """Bytes of the partial sums."""
        return self.partial

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.add}" if self.add else super().__str__()


PLAN = DirectPlan


SEGMENT = 128  # K steps; direct_conv.cu: a range is a whole number of segments
FEWEST_STEPS = 512  # of a range, so that the partial sums are few beside the products
_MOST_SEGMENT = 2048  # K steps; rounding errors of sums of one sign stay below 1e-6 of them
_ENOUGH_WAVES = 4  # of small blocks of a sample, so that all multiprocessors have the same work
_MOST_PARTIAL = 32 << 20  # bytes of the partial sums of a call
LATENCY = 700  # cycles from the load of a slice until it lies in shared memory
LAUNCH = 4000  # cycles of a further launch

# Ranges of the K steps, and the steps of each.
_Ranges = tuple[int, int]
_WHOLE: _Ranges = (1, 0)


def _most_steps(geometry: ConvGeometry) -> int:
    """Return the K steps of the phase that has the most."""
    return geometry.channels * math.prod(axis.most_taps for axis in geometry.axes)


def _layout(
    question: Question, tile: Tile, rank: int = _ANY_RANK, ranges: _Ranges = _WHOLE
) -> Layout:
    """Return how a tile divides the outputs of a convolution, and a number of ranges its sums."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    splits, split_steps = ranges
    phases = math.prod(len(axis.used_phases) for axis in geometry.axes)
    positions = geometry.batch * math.prod(axis.positions(0) for axis in geometry.axes)
    row_tiles, position_tiles = -(-geometry.rows // tile.rows), -(-positions // tile.positions)
    blocks = phases * row_tiles * position_tiles * geometry.groups * splits
    taps = math.prod(axis.kernel / axis.phases for axis in geometry.axes)
    steps = geometry.channels * taps if splits == 1 else split_steps
    issue = -(-blocks // multiprocessors) * steps * tile.issue
    in_turn = -(-blocks // (tile.resident * multiprocessors))
    waiting = in_turn * (_most_steps(geometry) if splits == 1 else split_steps) / tile.depth
    return Layout(
        tile,
        rank,
        phases,
        row_tiles,
        position_tiles,
        blocks,
        blocks / (tile.resident * multiprocessors),
        issue,
        max(issue, waiting * LATENCY),
        *ranges,
    )


def candidates(
    question: Question, ranges_of: Callable[[Layout], Iterator[_Ranges]]
) -> Iterator[Layout]:
    """Yield the layouts that a convolution can have, for each tile with some ranges of its sums."""
    geometry = question.geometry
    wide, *others = _tiles(element(question.dtype))
    any_rank = geometry.rank > 3 or not fits_32_bits(geometry)
    tiles = [(wide, _ANY_RANK if any_rank else 3)]
    if not any_rank:
        tiles += [(tile, max(2, geometry.rank)) for tile in others]
    for tile, rank in tiles:
        for ranges in ranges_of(_layout(question, tile)):
            yield _layout(question, tile, rank, ranges)


def _shape(geometry: ConvGeometry) -> tuple[int, ...]:
    """Return the shape of the partial sums of a range: groups, rows, samples, positions."""
    space = (axis.size_out for axis in geometry.axes)
    return geometry.groups, geometry.rows, geometry.batch, *space


def _plan(
    question: Question, segment: int, ranges_of: Callable[[Layout, int], Iterator[_Ranges]]
) -> DirectPlan:
    """Return the plan of the least cycles, with one of the ranges that tiles may have.

    `ranges_of` is given the layout of a tile without ranges, and the most ranges whose partial sums
    may be stored.
    """
    outputs = math.prod(_shape(question.geometry))
    range_bytes = partial_dtype(question.dtype).itemsize * outputs
    most = _MOST_PARTIAL // range_bytes

    def cost(layout: Layout) -> tuple[float, float]:
        return layout.cycles + (LAUNCH if layout.splits > 1 else 0), layout.issue

    layout = min(candidates(question, lambda whole: ranges_of(whole, most)), key=cost)
    instance = _instance(element(question.dtype), layout.rank, layout.tile)
    launch = Launch(instance, min(layout.blocks, MAX_GRID), THREADS)
    if layout.splits == 1:
        return DirectPlan(launch, layout, segment, None, 0)
    add = sum_splits.launch(question.dtype, outputs)
    return DirectPlan(launch, layout, segment, add, layout.splits * range_bytes)


def plan(question: Question) -> DirectPlan:
    """Return the plan of a convolution; the kernel refuses none.

    A sample whose smallest tiles do not fill the GPU, and whose sums are long, has segments as long
    as ranges: then a block for each range and one block for all of them add in the same order, and
    the batch may choose between them.
    """
    one = _layout(replace(question, geometry=replace(question.geometry, batch=1)), SMALL)
    steps = _most_steps(question.geometry)
    if one.waves >= 1 or steps < 2 * FEWEST_STEPS:
        return _plan(question, SEGMENT, lambda whole, most: iter((_WHOLE,)))
    segment = FEWEST_STEPS
    while segment < _MOST_SEGMENT and one.waves * -(-steps // segment) > _ENOUGH_WAVES:
        segment *= 2
    splits = -(-steps // segment)

    def ranges_of(whole: Layout, most: int) -> Iterator[_Ranges]:
        yield _WHOLE
        if 1 < splits <= most:
            yield splits, segment

    return _plan(question, segment, ranges_of)


PLANS = {"direct": plan}


def plan_weight_gradient(question: Question) -> DirectPlan:
    """Return the plan of a convolution that gives the gradient of a weight.

    There are as many ranges as give each multiprocessor the blocks that it can hold. Unlike the
    order of other sums, the ranges depend on the batch.
    """
    steps = _most_steps(question.geometry)

    def ranges_of(whole: Layout, most: int) -> Iterator[_Ranges]:
        room = whole.tile.resident * question.processor.multiprocessors // whole.blocks
        ranges = max(1, min(room, steps // FEWEST_STEPS, most))
        split_steps = max(1, -(-steps // (ranges * SEGMENT))) * SEGMENT
        yield max(1, -(-steps // split_steps)), split_steps

    return _plan(question, SEGMENT, ranges_of)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: DirectPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    geometry = question.geometry
    if plan.add is None:
        template = Template(SOURCES[0], _arguments(plan, geometry, strides, bias))
        return one_launch(device, plan.launch, template)

    shape, address = _shape(geometry), device.address
    group, row, batch, *axes = c_strides(shape)
    of_partial = strides._replace(out=(batch, group, row), out_axes=axes)
    sums = Template(
        SOURCES[0],
        {
            **_arguments(plan, geometry, of_partial, None),
            "out": 0,
            "partial": CALL,
            "split_outputs": math.prod(shape),
        },
    )
    out_batch, *out_rows = strides.out
    out_strides = (*out_rows, out_batch, *strides.out_axes)
    neighbours = math.prod(shape[2:])
    added = sum_splits.template(plan.layout.splits, shape, out_strides, bias, neighbours)
    run, add = device.launcher(plan.launch), device.launcher(plan.add)
    byte = np.dtype(np.uint8)

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        memory = device.workspace((plan.partial,), byte)
        partial, term = address(memory), 0 if bias is None else address(bias)
        run(sums.fill(address(data), address(weight), partial, 0))
        add(added.fill(partial, address(out), term))

    return convolve


# What the kernel finds in the place of an axis beyond the last one, and never reads.
_BEYOND = AxisTaps(*(0 for _ in fields(AxisTaps)))


def _arguments(
    plan: DirectPlan, geometry: ConvGeometry, strides: ConvStrides, bias: Array | None
) -> Members:
    """Return the members of ``struct Arguments``."""
    layout = plan.layout
    missing = max(0, layout.rank - geometry.rank)  # axes before the first one of the convolution
    beyond = (layout.rank or MAX_RANK) - missing - geometry.rank

    def on_axes(strides: list[int]) -> list[int]:
        return [*(0,) * missing, *strides, *(0,) * beyond]

    axes = (NO_AXIS,) * missing + geometry.axes + (_BEYOND,) * beyond
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "partial": 0,
        "bias": parameter(bias),
        "rank": geometry.rank,
        "batch": geometry.batch,
        "groups": geometry.groups,
        "channels": geometry.channels,
        "rows": geometry.rows,
        "input_batch": strides.input[0],
        "input_group": strides.input[1],
        "input_channel": strides.input[2],
        **weight_strides(strides),
        "out_batch": strides.out[0],
        "out_group": strides.out[1],
        "out_row": strides.out[2],
        "phases": layout.phases,
        "row_tiles": layout.row_tiles,
        "position_tiles": layout.position_tiles,
        "splits": layout.splits,
        "split_steps": layout.split_steps,
        "split_outputs": 0,
        "segment_steps": plan.segment,
        "axis": [axis_taps(axis) for axis in axes],
        "input_axis": on_axes(strides.input_axes),
        "weight_axis": on_axes(strides.weight_axes),
        "out_axis": on_axes(strides.out_axes),
    }
