"""Pointwise convolutions in TF32: one tap and many channels, a matrix product of each sample.

The order of a sum follows from the channels of a group alone. All else may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array, Convolution
from .._geometry import ConvGeometry
from .._packing import long_reciprocal
from . import modes, packed_weights, sums
from .launches import INT32_LIMIT, RESERVED, WGMMA, Instance, Launch
from .members import CALL, Members, Template, parameter
from .memory import neighbours_together, space, weight_strides
from .modes import SLAB_ROWS, TEAM, Mode
from .pointwise import not_pointwise
from .question import LARGE, PackedPlan, Question, Refusal, fits_32_bits
from .sums import Sum

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("pointwise_conv.cu", packed_weights.SOURCE)
ORDER = "K steps of channels; the bias last"
UNIT = "Tensor Core"

TEAM_PLACES = 64  # positions that a warpgroup multiplies
PLACES = 2  # neighbouring positions of a thread, 8 bytes of them
MAX_STAGES = 8
LEAST_STAGES = 4  # where weights stay
_BARRIERS = 16 * MAX_STAGES  # bytes
# Bytes after the positions of a channel in a stage, so that a warp's loads lie in all banks.
_GAP = 32


@dataclass(frozen=True)
class Shape:
    """What the kernel is built for; its fields are macros of pointwise_conv.cu.

    Attributes
    ----------
    channels : int
        Channels of a chunk.
    teams : int
        Consumer warpgroups. A multiprocessor has one block of two, or two blocks of one.
    held : int
        Row tiles whose sums a warpgroup holds.
    """

    channels: int
    teams: int
    held: int

    @property
    def threads(self) -> int:
        """Threads of a block: consumer warpgroups and one of producers."""
        return TEAM * (self.teams + 1)

    @property
    def rows(self) -> int:
        """Output channels of a block."""
        return SLAB_ROWS * self.held

    @property
    def places(self) -> int:
        """Positions of a block."""
        return self.teams * TEAM_PLACES

    def weights(self, mode: Mode) -> int:
        """Return the bytes of a chunk's weights."""
        return self.channels // mode.block * self.held * mode.slab_bytes

    @property
    def inputs(self) -> int:
        """Bytes of a chunk's inputs, in a stage."""
        return self.channels * (4 * self.places + _GAP)


SHAPES = (Shape(32, 2, 4), Shape(32, 2, 3), Shape(32, 2, 2), Shape(32, 1, 2), Shape(32, 1, 1))
# Cycles of the model, fitted to times on an H200: the beginning and end of a call; the least of a
# chunk; and for each byte that is stored, and that memory reads or writes for all multiprocessors.
# A multiprocessor copies `_BROUGHT` bytes a cycle.
_BEGIN = 14_000
_CHUNK = 600
_STORE, _MEMORY = 0.026, 5.2e-4
_BROUGHT = 36


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    shape : Shape
        What the kernel is built for.
    chunks : int
        Chunks of the channels of a group.
    tiles_of_sample, tiles : int
        Tiles of the positions of a sample, and of all samples.
    units_of_group, units : int
        Row tiles of a block (a unit) in a group, and in all groups. A block stays with its unit.
    blocks : int
        Blocks that share the tiles of a unit.
    stages : int
        Pipeline stages, each of one chunk.
    stay : bool
        Whether weights are no part of the stages, but stay in shared memory.
    alone : bool
        Whether a block has one tile, and a multiprocessor one block.
    shared : int
        Bytes of shared memory.
    cycles : float
        The model's time.
    """

    shape: Shape
    chunks: int
    tiles_of_sample: int
    tiles: int
    units_of_group: int
    units: int
    blocks: int
    stages: int
    stay: bool
    alone: bool
    shared: int
    cycles: float

    def __str__(self) -> str:
        rows, teams = self.shape.rows, self.shape.teams
        return (
            f"{self.units} x {self.tiles} tiles of {rows} rows by {teams} warpgroups, "
            f"{self.chunks} chunks in {self.stages} stages{', weights stay' if self.stay else ''}"
        )


@dataclass(frozen=True)
class PointwisePlan(PackedPlan[Layout]):
    """How a convolution runs by pointwise_conv.cu.

    Attributes
    ----------
    pack, launch : Launch
        The kernels: one packs the weights, one convolves.
    layout : Layout
        How outputs are divided into tiles.
    summation : Sum
        What is summed, and in which order.
    packed : int
        Bytes of the packed weights.
    splits : int
        Blocks of the first kernel that share some rows: each packs a part of their K steps.
    """

    summation: Sum
    packed: int
    splits: int

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays."""
        return self.packed


PLAN = PointwisePlan


def plan(question: Question) -> PointwisePlan | Refusal:
    """Return the plan for one tap and many channels, or why there is none."""
    geometry, processor = question.geometry, question.processor
    refusal = not_pointwise(question)
    if refusal:
        return refusal
    mode = modes.unscaled_mode(question.dtype.name, question.precision)
    if mode is None or mode.itemsize != 4:
        return f"it is not for {question.dtype}"
    tiled = _layout(geometry, mode, processor.shared, processor.multiprocessors)
    shape = tiled.shape
    summation = sums.of_one_tap(geometry, mode, tiled.chunks * shape.channels // mode.block)
    size = math.prod(axis.size_out for axis in geometry.axes)
    # The packing kernel divides these steps. Shapes do not count, as they depend on the batch.
    slabs = geometry.groups * -(-geometry.rows // SLAB_ROWS)
    steps = 6 * SLAB_ROWS * slabs * (geometry.channels // mode.block + 4)
    largest = max(size, geometry.rows, tiled.tiles, steps)
    if not fits_32_bits(geometry) or largest >= INT32_LIMIT // 8:
        return LARGE
    pack, splits = packed_weights.launch(
        summation, tiled.units * shape.rows, geometry.batch, processor.multiprocessors
    )
    launch = Launch(
        _instance(mode, shape),
        tiled.blocks * tiled.units,
        shape.threads,
        tiled.shared,
        tiled.units,
        early=True,
    )
    packed = tiled.units * shape.held * summation.steps * mode.slab_bytes
    return PointwisePlan(pack, launch, tiled, summation, packed, splits)


PLANS = {"pointwise": plan}


def _instance(mode: Mode, shape: Shape) -> Instance:
    defines = (
        ("ELEMENT", mode.element),
        ("PARTS", str(mode.parts)),
        ("CHANNELS", str(shape.channels)),
        ("TEAMS", str(shape.teams)),
        ("HELD", str(shape.held)),
    )
    return Instance(SOURCES[0], "pointwise_conv", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for mode in modes.modes("hopper") if target in WGMMA else ():
        if not mode.scaled and mode.products == 1 and mode.itemsize == 4:
            for shape in SHAPES:
                yield packed_weights.instance(mode)
                yield _instance(mode, shape)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: PointwisePlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    geometry, tiled, shape = question.geometry, plan.layout, plan.layout.shape
    pack_template = packed_weights.template(
        geometry,
        plan.summation,
        strides,
        row_tiles=tiled.units_of_group,
        slabs=shape.held,
        splits=plan.splits,
    )
    template = Template(SOURCES[0], _arguments(tiled, geometry, strides, bias))
    axis = geometry.axes[-1]
    together = geometry.rank == 1 and axis.step * strides.input_axes[0] == 1
    together = together and neighbours_together(geometry, strides, PLACES, True)
    # Each producer warp has a channel in each chunk, or it could fall behind by a phase.
    bulks = together and not tiled.alone and (geometry.channels - 1) % shape.channels >= 3
    bulks = bulks and math.gcd(*strides.input, axis.size_out) % 4 == 0
    pack, launch = device.launcher(plan.pack), device.launcher(plan.launch)
    address, byte = device.address, np.dtype(np.uint8)

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source, weights, result = address(data), address(weight), address(out)
        term = 0 if bias is None else address(bias)
        aligned = together and (source | result) % 8 == 0
        bulk = aligned and bulks and source % 16 == 0
        memory = device.workspace((plan.packed,), byte)
        packed = address(memory)
        pack(pack_template.fill(weights, packed, source))
        launch(template.fill(source, weights, packed, result, term, bulk, aligned))

    return convolve


def _arguments(
    tiled: Layout, geometry: ConvGeometry, strides: ConvStrides, bias: Array | None
) -> Members:
    """Return the members of ``struct Arguments``."""
    return {
        "input": CALL,
        "weight": CALL,
        "packed": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "channels": geometry.channels,
        "rows": geometry.rows,
        **weight_strides(strides),
        "space": space(geometry, strides),
        "tiles": tiled.tiles,
        "tiles_of_sample": tiled.tiles_of_sample,
        "per_tiles": long_reciprocal(tiled.tiles_of_sample),
        "units": tiled.units,
        "units_of_group": tiled.units_of_group,
        "chunks": tiled.chunks,
        "stages": tiled.stages,
        "stay": tiled.stay,
        "bulk": CALL,
        "together": CALL,
    }


# Tiles ----------------------------------------------------------------------------------------


def _layout(geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int) -> Layout:
    """Return how the outputs of a convolution are divided."""
    found = candidates(geometry, mode, shared, multiprocessors)
    return min(found, key=lambda layout: layout.cycles)


def candidates(
    geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int
) -> Iterator[Layout]:
    """Yield the layouts that fit shared memory."""
    batch, groups = geometry.batch, geometry.groups
    rows, channels = geometry.rows, geometry.channels
    size = math.prod(axis.size_out for axis in geometry.axes)
    moved = batch * groups * size * (channels + rows) + groups * rows * channels
    for shape in SHAPES:
        chunks = -(-channels // shape.channels)
        tiles_of_sample = -(-size // shape.places)
        tiles = batch * tiles_of_sample
        units_of_group = -(-rows // shape.rows)
        units = groups * units_of_group
        alone = tiles * units <= multiprocessors
        beside = 1 if alone else 2 // shape.teams  # blocks of a multiprocessor
        resident = beside * multiprocessors  # blocks
        blocks = min(tiles, max(1, resident // units))
        turns = -(-units // resident)  # over 1 if units outnumber blocks
        rounds = -(-tiles // blocks) * turns
        weights, inputs = shape.weights(mode), shape.inputs
        for stay in (False, True):
            fixed = 4 * shape.rows + _BARRIERS + (chunks * weights if stay else 0)
            stage = inputs if stay else inputs + weights
            stages = min(MAX_STAGES, (shared // beside - RESERVED * (beside - 1) - fixed) // stage)
            if stay and (tiles == blocks or stages < LEAST_STAGES):
                continue
            cycles = rounds * beside * _cycles(shape, mode, chunks, stage)
            if stay:
                cycles += turns * beside * chunks * weights / _BROUGHT
            cycles = _BEGIN + max(cycles, 4 * _MEMORY * moved)
            yield Layout(
                shape=shape,
                chunks=chunks,
                tiles_of_sample=tiles_of_sample,
                tiles=tiles,
                units_of_group=units_of_group,
                units=units,
                blocks=blocks,
                stages=stages,
                stay=stay,
                alone=alone,
                shared=stages * stage + fixed,
                cycles=cycles,
            )


def _cycles(shape: Shape, mode: Mode, chunks: int, stage: int) -> float:
    """Return the cycles of a tile whose chunks have `stage` bytes."""
    outputs = shape.rows * shape.places
    products = outputs * shape.channels / mode.rate
    chunk = max(products, stage / _BROUGHT, _CHUNK)
    return chunks * chunk + 4 * _STORE * outputs
