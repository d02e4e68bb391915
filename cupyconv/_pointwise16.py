"""Second room, the pointwise kernel of 16-bit numbers: one tap and many channels.

The order of a sum follows from the channels of a group alone. All else may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ._geometry import ConvGeometry
from ._matrix import TEAM

SIDE = 64  # numbers of a side of a block: rows, positions, and channels of a chunk
BLOCK_BYTES = 2 * SIDE * SIDE
MAX_STAGES = 12
WORD = 8  # numbers that are copied, or stored, at once
_RESERVED = 1024  # bytes of shared memory that a block takes beside its own
_BARRIERS = 16 * MAX_STAGES  # bytes


@dataclass(frozen=True)
class Shape:
    """What the kernel is built for.

    Attributes
    ----------
    teams : int
        Of threads that multiply.
    slabs : int
        Of 64 rows that a team has.
    blocks : int
        Of 64 positions of a tile.
    resident : int
        Blocks of threads that share a multiprocessor.
    """

    teams: int
    slabs: int
    blocks: int
    resident: int

    @property
    def threads(self) -> int:
        """Of a block, with those that copy."""
        return TEAM * (self.teams + 1)

    @property
    def rows(self) -> int:
        """Output channels of a tile."""
        return SIDE * self.teams * self.slabs

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return BLOCK_BYTES * (self.blocks + self.teams * self.slabs)


# With the cycles of a chunk, fitted to times on an H100 as all else of the model: in which a call
# begins and ends; of a byte that is stored, and that memory reads or writes, by all
# multiprocessors. What takes less, products or memory, adds a part of its time to the other's.
SHAPES = {
    Shape(2, 1, 4, 1): 1020,
    Shape(2, 2, 2, 1): 1005,
    Shape(2, 1, 2, 1): 560,
    Shape(1, 1, 2, 2): 360,
    Shape(1, 1, 1, 4): 254,
}
_BEGIN = 12_300
_STORE, _MEMORY, _LESS = 0.045, 6e-4, 0.2


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    shape : Shape
        What the kernel is built for.
    chunks : int
        Of the channels of a group.
    blocks_of_sample, blocks : int
        Of the positions of a sample, and of all.
    tiles : int
        Of so many blocks of positions.
    units_of_group, units : int
        What blocks of threads stay with: the rows of a tile, of a group and of all.
    sharing : int
        Blocks of threads of each unit, which have every so many-th tile.
    stages : int
        Of the ring through which chunks come.
    shared : int
        Bytes of shared memory.
    cycles : float
        Of the model.
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


def layout(geometry: ConvGeometry, shared: int, multiprocessors: int) -> Layout:
    """Return how the outputs of a convolution are divided."""
    found = _candidates(geometry, shared, multiprocessors)
    return min(found, key=lambda layout: layout.cycles)


def _candidates(geometry: ConvGeometry, shared: int, multiprocessors: int) -> Iterator[Layout]:
    g = geometry
    size = math.prod(axis.size_out for axis in g.axes)
    chunks = -(-g.channels // SIDE)
    blocks_of_sample = -(-size // SIDE)
    blocks = g.batch * blocks_of_sample
    moved = 2 * g.groups * (g.batch * size * (g.channels + g.rows) + g.rows * g.channels)
    for shape, chunk in SHAPES.items():
        tiles = -(-blocks // shape.blocks)
        units_of_group = -(-g.rows // shape.rows)
        units = g.groups * units_of_group
        beside = min(shape.resident, -(-tiles * units // multiprocessors))
        sharing = min(tiles, max(1, beside * multiprocessors // units))
        turns = -(-units // (beside * multiprocessors))  # of more units than blocks
        rounds = -(-tiles // sharing) * turns
        own = 4 * shape.rows + _BARRIERS
        room = shared // beside - _RESERVED * (beside - 1)
        stages = min(MAX_STAGES, (room - own) // shape.stage)
        stored = 2 * shape.rows * SIDE * shape.blocks
        products = rounds * beside * (chunks * chunk + _STORE * stored)
        less, more = sorted((products, _MEMORY * moved))
        yield Layout(
            *(shape, chunks, blocks_of_sample, blocks, tiles, units_of_group, units, sharing),
            *(stages, stages * shape.stage + own, _BEGIN + more + _LESS * less),
        )
