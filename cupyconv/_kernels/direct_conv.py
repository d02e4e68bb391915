"""The direct kernel, which takes every convolution: both directions, any rank, any element type.

It is an implicit matrix product for each group and each phase: the output channels of the group
(rows) by the outputs of the phase (positions). The order of a sum follows from the geometry of one
sample. The tile may depend on the batch.

Gradients of weights, which have few outputs and long sums, are split along K: the blocks of a tile
compute ranges of the sums, which a second launch adds in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from .._arrays import Array, Convolution
from .._geometry import MAX_RANK, ConvGeometry
from .._taps import NO_AXIS, AxisTaps
from .launches import ELEMENTS, MAX_GRID, Instance, Launch
from .members import CALL, Members, Template, axis_taps, one_launch, parameter
from .question import Question, TiledPlan, fits_32_bits, multiply_adds

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("direct_conv.cu",)
ORDER = "chunks of 8 channels, in each its taps, for each tap channels; segments of 128 products"
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
    def loads(self) -> float:
        """Loads from shared memory for each multiply-add."""
        return 1 / self.thread_rows + 1 / self.thread_positions


# By the accumulator's size: a thread holds a sum and a total for each of its outputs in registers.
_WIDE = {4: Tile(8, 8, 8, 8, 2), 8: Tile(8, 8, 4, 8, 2), 16: Tile(8, 4, 4, 8, 2)}
# For groups of few output channels: each thread computes all rows of its positions.
_NARROW = {4: Tile(1, 8, 4, 4, 4), 8: Tile(1, 4, 4, 4, 4), 16: Tile(1, 4, 2, 4, 4)}
NARROW_ROWS = 16
# For calls that do not fill the GPU, and mostly wait for memory: a thread has one output, and a
# slice has many steps. Up to this many blocks for each multiprocessor, it takes less time than the
# narrow tile; up to half as many, less than the wide one.
SMALL = Tile(8, 1, 1, 32, 4)
SMALL_TILES = 16

_ANY_RANK: Final = 0  # the RANK of the kernel for any number of axes, with 64-bit coordinates
# By the tile: the wide, the narrow and the small one. A convolution of fewer axes has further ones
# of one element, which take hardly any time beside the many products of a wide tile.
_RANKS = ((3, _ANY_RANK), (2, 3), (2, 3))


def _element(dtype: np.dtype) -> str:
    """Return the dtype that the kernel is compiled for: signed integers are summed as unsigned."""
    return f"u{dtype.name}" if dtype.kind == "i" else str(dtype.name)


def _tiles(dtype: str) -> tuple[Tile, Tile, Tile]:
    """Return the wide, the narrow and the small tile."""
    size = max(4, np.dtype(dtype).itemsize) if dtype != "bfloat16" else 4
    return _WIDE[size], _NARROW[size], SMALL


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
        for tile, ranks in zip(_tiles(dtype), _RANKS, strict=True):
            for rank in ranks:
                yield _instance(dtype, rank, tile)


# Plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    rank : int
        Axes of the kernel; 0 for any number.
    phases : int
        Phases that have outputs.
    row_tiles, position_tiles : int
        Tiles along the rows of a group and along the positions of its largest phase.
    cycles : float
        Cycles that the model gives it.
    splits, split_steps : int
        Ranges of the K steps, and the steps of each. A single range has no partial sums.
    """

    rank: int
    phases: int
    row_tiles: int
    position_tiles: int
    cycles: float
    splits: int = 1
    split_steps: int = 0

    def __str__(self) -> str:
        ranges = f", {self.splits} split-K slices" if self.splits > 1 else ""
        return f"{self.phases} phases of {self.row_tiles} x {self.position_tiles} tiles{ranges}"


class DirectPlan(TiledPlan[Layout]):
    """How a convolution runs by direct_conv.cu."""


PLAN = DirectPlan


# Multiply-adds in float32 that a multiprocessor makes in a cycle where a group fills the eight rows
# of a thread; with fewer rows it makes fewer in proportion.
_RATE, _THREAD_ROWS = 64, 8


def rate(geometry: ConvGeometry) -> float:
    """Return the multiply-adds that a multiprocessor makes in a cycle."""
    return _RATE * min(1, geometry.rows / _THREAD_ROWS)


def plan(question: Question) -> DirectPlan:
    """Return the plan of a convolution; the kernel refuses none."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    phases = math.prod(len(axis.used_phases) for axis in geometry.axes)
    largest_phase = geometry.batch * math.prod(axis.positions(0) for axis in geometry.axes)

    def tiles_along(tile: Tile) -> tuple[int, int]:
        return -(-geometry.rows // tile.rows), -(-largest_phase // tile.positions)

    def blocks(tile: Tile) -> int:
        return phases * math.prod(tiles_along(tile)) * geometry.groups

    dtype = _element(question.dtype)
    wide, narrow, small = _tiles(dtype)
    if geometry.rank > 3 or not fits_32_bits(geometry):
        tile, rank = wide, _ANY_RANK
    else:
        tile, most = (
            (wide, SMALL_TILES // 2) if geometry.rows > NARROW_ROWS else (narrow, SMALL_TILES)
        )
        if blocks(small) <= most * multiprocessors:
            tile = small
        rank = 3 if tile is wide else max(2, geometry.rank)
    cycles = multiply_adds(geometry) / multiprocessors / rate(geometry)
    launch = Launch(_instance(dtype, rank, tile), min(blocks(tile), MAX_GRID), THREADS)
    return DirectPlan(launch, Layout(rank, phases, *tiles_along(tile), cycles))


PLANS = {"direct": plan}

FEWEST_STEPS = 512  # of a range, so that the partial sums are few beside the products
_SEGMENT = 128  # K steps; SEGMENT of direct_conv.cu: a range is a whole number of segments


def plan_split(question: Question, most: int) -> DirectPlan:
    """Return the plan of a convolution whose sums are split along K into at most `most` ranges.

    There are as many ranges as give each multiprocessor the blocks that it can hold. Unlike the
    order of other sums, the ranges depend on the batch and on the GPU.
    """
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    positions = geometry.batch * math.prod(axis.positions(0) for axis in geometry.axes)
    steps = geometry.channels * math.prod(axis.most_taps for axis in geometry.axes)
    dtype = _element(question.dtype)

    def tiles_along(tile: Tile) -> tuple[int, int]:
        return -(-geometry.rows // tile.rows), -(-positions // tile.positions)

    def cost(tile: Tile) -> float:
        """Return the computed products of a K step, and their loads from shared memory."""
        return math.prod(tiles_along(tile)) * tile.rows * tile.positions * (1 + tile.loads)

    any_rank = geometry.rank > 3 or not fits_32_bits(geometry)
    wide, narrow, small = _tiles(dtype)
    tile = wide if any_rank else min((wide, narrow, small), key=cost)
    rank = _ANY_RANK if any_rank else 3 if tile is wide else max(2, geometry.rank)
    phases = math.prod(len(axis.used_phases) for axis in geometry.axes)
    blocks = phases * math.prod(tiles_along(tile)) * geometry.groups
    room = tile.resident * multiprocessors // blocks
    ranges = max(1, min(room, steps // FEWEST_STEPS, most))
    split_steps = max(1, -(-steps // (ranges * _SEGMENT))) * _SEGMENT
    splits = max(1, -(-steps // split_steps))
    layout = Layout(
        rank,
        phases,
        *tiles_along(tile),
        cycles=multiply_adds(geometry) / multiprocessors / rate(geometry),
        splits=splits,
        split_steps=split_steps,
    )
    grid = min(blocks * splits, MAX_GRID)
    return DirectPlan(Launch(_instance(dtype, rank, tile), grid, THREADS), layout)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: DirectPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    template = Template(SOURCES[0], _arguments(plan.layout, question.geometry, strides, bias))
    return one_launch(device, plan.launch, template)


def split_template(
    layout: Layout, geometry: ConvGeometry, strides: ConvStrides, outputs: int
) -> Template:
    """Return the arguments of a split convolution, whose `outputs` partial sums have `strides.out`.

    A call puts in the addresses of input, weight and partial sums, and a 0 for the bias.
    """
    members = {
        **_arguments(layout, geometry, strides, None),
        "out": 0,
        "partial": CALL,
        "split_outputs": outputs,
    }
    return Template(SOURCES[0], members)


# What the kernel finds in the place of an axis beyond the last one, and never reads.
_BEYOND = AxisTaps(*(0 for _ in fields(AxisTaps)))


def _arguments(
    layout: Layout, geometry: ConvGeometry, strides: ConvStrides, bias: Array | None
) -> Members:
    """Return the members of ``struct Arguments``."""
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
        "weight_group": strides.weight[0],
        "weight_row": strides.weight[1],
        "weight_channel": strides.weight[2],
        "out_batch": strides.out[0],
        "out_group": strides.out[1],
        "out_row": strides.out[2],
        "phases": layout.phases,
        "row_tiles": layout.row_tiles,
        "position_tiles": layout.position_tiles,
        "splits": layout.splits,
        "split_steps": layout.split_steps,
        "split_outputs": 0,
        "axis": [axis_taps(axis) for axis in axes],
        "input_axis": on_axes(strides.input_axes),
        "weight_axis": on_axes(strides.weight_axes),
        "out_axis": on_axes(strides.out_axes),
    }
