"""Pointwise convolutions of 16-bit floats: one tap and many channels.

The order of a sum follows from the channels of a group alone. All else may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from .._geometry import ConvGeometry
from .._packing import lie_together, long_reciprocal
from .launches import ELEMENTS, INT32_LIMIT, RESERVED, WGMMA, Instance, Launch
from .members import CALL, Members, Template, parameter
from .memory import space, weight_strides
from .modes import TEAM
from .pointwise import not_pointwise
from .question import LARGE, Question, Refusal, TiledPlan, fits_32_bits

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("pointwise16_conv.cu",)
ORDER = "K steps of channels; the bias last"
UNIT = "Tensor Core"

SIDE = 64  # numbers of a side of a block: rows, positions, and channels of a chunk
BLOCK_BYTES = 2 * SIDE * SIDE
MAX_STAGES = 12
WORD = 8  # numbers of the largest copy or store
_BARRIERS = 16 * MAX_STAGES  # bytes


@dataclass(frozen=True)
class Shape:
    """What the kernel is built for; its fields are macros of pointwise16_conv.cu.

    Attributes
    ----------
    teams : int
        Consumer warpgroups.
    slabs : int
        Row tiles of a warpgroup.
    blocks : int
        Column tiles of 64 positions.
    resident : int
        Blocks of threads that share a multiprocessor.
    """

    teams: int
    slabs: int
    blocks: int
    resident: int

    @property
    def threads(self) -> int:
        """Threads of a block: consumer warpgroups and one of producers."""
        return TEAM * (self.teams + 1)

    @property
    def rows(self) -> int:
        """Output channels of a tile."""
        return SIDE * self.teams * self.slabs

    @property
    def stage(self) -> int:
        """Bytes of a pipeline stage."""
        return BLOCK_BYTES * (self.blocks + self.teams * self.slabs)


# Cycles of a chunk for each shape, fitted to times on an H100 as the numbers below.
SHAPES = {
    Shape(2, 1, 4, 1): 1020,
    Shape(2, 1, 2, 1): 560,
    Shape(1, 1, 2, 2): 360,
    Shape(1, 1, 1, 4): 254,
}
_BEGIN = 12_300  # cycles of the beginning and end of a call
_STORE = 0.045  # cycles for each byte that is stored
_MEMORY = 6e-4  # cycles for each byte that memory reads or writes, for all multiprocessors
_LESS = 0.2  # share of the shorter of products and memory that the longer one does not hide


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    shape : Shape
        What the kernel is built for.
    chunks : int
        Chunks of the channels of a group.
    blocks_of_sample, blocks : int
        Column tiles of the positions of a sample, and of all samples.
    tiles : int
        Tiles of `shape.blocks` column tiles.
    units_of_group, units : int
        Row tiles of a block (a unit) in a group, and in all groups. A block stays with its unit.
    sharing : int
        Blocks of threads that share the tiles of a unit.
    stages : int
        Pipeline stages, each of one chunk.
    shared : int
        Bytes of shared memory.
    cycles : float
        The model's time.
    """

    shape: Shape
    chunks: int
    blocks_of_sample: int
    blocks: int
    tiles: int
    units_of_group: int
    units: int
    sharing: int
    stages: int
    shared: int
    cycles: float

    def __str__(self) -> str:
        shape = self.shape
        return (
            f"{self.units} x {self.tiles} tiles of {shape.rows} rows by {SIDE * shape.blocks} "
            f"positions, {self.chunks} chunks in {self.stages} stages"
        )


class Pointwise16Plan(TiledPlan[Layout]):
    """How a convolution runs by pointwise16_conv.cu."""


PLAN = Pointwise16Plan


def plan(question: Question) -> Pointwise16Plan | Refusal:
    """Return the plan for one tap and many channels, or why there is none."""
    geometry, processor = question.geometry, question.processor
    refusal = not_pointwise(question)
    if refusal:
        return refusal
    if question.dtype.itemsize != 2:
        return f"it is not for {question.dtype}"
    tiled = _layout(geometry, processor.shared, processor.multiprocessors)
    shape = tiled.shape
    size = math.prod(axis.size_out for axis in geometry.axes)
    largest = max(size, geometry.rows, tiled.blocks)
    if not fits_32_bits(geometry) or largest >= INT32_LIMIT // 8:
        return LARGE
    launch = Launch(
        _instance(question.dtype.name, shape),
        tiled.sharing * tiled.units,
        shape.threads,
        tiled.shared,
        tiled.units,
    )
    return Pointwise16Plan(launch, tiled)


PLANS = {"pointwise": plan}


def _instance(dtype: str, shape: Shape) -> Instance:
    defines = (
        ("ELEMENT", ELEMENTS[dtype]),
        ("PARTS", "1"),
        ("TEAMS", str(shape.teams)),
        ("SLABS", str(shape.slabs)),
        ("BLOCKS", str(shape.blocks)),
        ("RESIDENT", str(shape.resident)),
    )
    return Instance(SOURCES[0], "pointwise16_conv", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for dtype in ("float16", "bfloat16") if target in WGMMA else ():
        for shape in SHAPES:
            yield _instance(dtype, shape)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: Pointwise16Plan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    geometry = question.geometry
    template = Template(SOURCES[0], _arguments(plan.layout, geometry, strides, bias))
    inputs = outs = 1
    if geometry.rank == 1:
        axis = geometry.axes[0]
        steps = *strides.input, strides.input_axes[0] * axis.step
        inputs = lie_together(WORD, steps, axis.size_out)
        outs = lie_together(WORD, (*strides.out, *strides.out_axes), axis.size_out)
    group, row, channel = strides.weight
    by_channels = lie_together(WORD, strides.weight, geometry.channels)
    by_rows = lie_together(WORD, (group, channel, row), geometry.rows)
    most = inputs, max(by_channels, by_rows), outs
    launch, address = device.launcher(plan.launch), device.address

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        arrays = address(data), address(weight), address(out)
        term = 0 if bias is None else address(bias)
        moved = [math.gcd(n, place // 2) for n, place in zip(most, arrays, strict=True)]
        across = by_rows > by_channels and min(moved[:2]) > 1
        launch(template.fill(*arrays, term, *moved, across))

    return convolve


def _arguments(
    tiled: Layout, geometry: ConvGeometry, strides: ConvStrides, bias: Array | None
) -> Members:
    """Return the members of ``struct Arguments``."""
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "channels": geometry.channels,
        "rows": geometry.rows,
        **weight_strides(strides),
        "space": space(geometry, strides),
        "blocks": tiled.blocks,
        "blocks_of_sample": tiled.blocks_of_sample,
        "per_blocks": long_reciprocal(tiled.blocks_of_sample),
        "units": tiled.units,
        "units_of_group": tiled.units_of_group,
        "stages": tiled.stages,
        "inputs_of": CALL,
        "weights_of": CALL,
        "outs_of": CALL,
        "across": CALL,
    }


# Tiles ----------------------------------------------------------------------------------------


def _layout(geometry: ConvGeometry, shared: int, multiprocessors: int) -> Layout:
    """Return how the outputs of a convolution are divided."""
    found = candidates(geometry, shared, multiprocessors)
    return min(found, key=lambda layout: layout.cycles)


def candidates(geometry: ConvGeometry, shared: int, multiprocessors: int) -> Iterator[Layout]:
    """Yield the layouts that fit shared memory."""
    batch, groups, rows, channels = (
        geometry.batch,
        geometry.groups,
        geometry.rows,
        geometry.channels,
    )
    size = math.prod(axis.size_out for axis in geometry.axes)
    chunks = -(-channels // SIDE)
    blocks_of_sample = -(-size // SIDE)
    blocks = batch * blocks_of_sample
    moved = 2 * groups * (batch * size * (channels + rows) + rows * channels)
    for shape, chunk in SHAPES.items():
        tiles = -(-blocks // shape.blocks)
        units_of_group = -(-rows // shape.rows)
        units = groups * units_of_group
        beside = min(shape.resident, -(-tiles * units // multiprocessors))
        sharing = min(tiles, max(1, beside * multiprocessors // units))
        turns = -(-units // (beside * multiprocessors))  # over 1 if units outnumber blocks
        rounds = -(-tiles // sharing) * turns
        fixed = 4 * shape.rows + _BARRIERS
        room = shared // beside - RESERVED * (beside - 1)
        stages = min(MAX_STAGES, (room - fixed) // shape.stage)
        stored = 2 * shape.rows * SIDE * shape.blocks
        products = rounds * beside * (chunks * chunk + _STORE * stored)
        shorter, longer = sorted((products, _MEMORY * moved))
        yield Layout(
            shape=shape,
            chunks=chunks,
            blocks_of_sample=blocks_of_sample,
            blocks=blocks,
            tiles=tiles,
            units_of_group=units_of_group,
            units=units,
            sharing=sharing,
            stages=stages,
            shared=stages * shape.stage + fixed,
            cycles=_BEGIN + longer + _LESS * shorter,
        )
