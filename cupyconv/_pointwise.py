"""Second room, the pointwise kernel: one tap and many channels, a matrix product of each sample.

The order of a sum follows from the channels of a group alone. All else may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ._geometry import ConvGeometry
from ._matrix import SLAB_ROWS, TEAM, Mode

TEAM_PLACES = 64  # positions that a team multiplies
PLACES = 2  # neighbours that a thread has, 8 bytes of them
MAX_STAGES = 8
_LEAST_STAGES = 4  # where weights stay
_RESERVED = 1024  # bytes of shared memory that a block takes beside its own
_BARRIERS = 16 * MAX_STAGES  # bytes
# Bytes behind the positions of a channel in a stage, so that a warp's loads lie in all banks.
_GAP = 32


@dataclass(frozen=True)
class Shape:
    """What the kernel is built for.

    Attributes
    ----------
    channels : int
        Of a chunk.
    teams : int
        Of threads that multiply. A multiprocessor has one block of two teams, or two of one.
    held : int
        Slabs of 64 rows whose sums a team holds.
    """

    channels: int
    teams: int
    held: int

    @property
    def threads(self) -> int:
        """Of a block, with those that bring inputs and weights."""
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
# Cycles of the model, fitted to times on an H200: in which a call begins and ends; of a chunk at
# least; and of a byte that is stored, and that memory reads or writes, by all multiprocessors. A
# multiprocessor brings so many bytes a cycle.
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
        Of the channels of a group.
    tiles_of_sample : int
        Of the positions of a sample.
    tiles : int
        Of the positions of all samples.
    units_of_group, units : int
        What blocks stay with: the rows of a block, of a group and of all.
    blocks : int
        Of each unit, which have every so many-th tile.
    stages : int
        Of the ring through which chunks come.
    stay : bool
        Whether weights are not among them, but stay in shared memory.
    alone : bool
        Whether a block has one tile, and a multiprocessor one block.
    shared : int
        Bytes of shared memory.
    cycles : float
        Of the model.
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
            f"{self.units} x {self.tiles} tiles of {rows} rows by {teams} teams, "
            f"{self.chunks} chunks in {self.stages} stages{', weights stay' if self.stay else ''}"
        )


def layout(geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int) -> Layout:
    """Return how the outputs of a convolution are divided."""
    found = _candidates(geometry, mode, shared, multiprocessors)
    return min(found, key=lambda layout: layout.cycles)


def _candidates(
    geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int
) -> Iterator[Layout]:
    g = geometry
    size = math.prod(axis.size_out for axis in g.axes)
    moved = g.batch * g.groups * size * (g.channels + g.rows) + g.groups * g.rows * g.channels
    for shape in SHAPES:
        chunks = -(-g.channels // shape.channels)
        tiles_of_sample = -(-size // shape.places)
        tiles = g.batch * tiles_of_sample
        units_of_group = -(-g.rows // shape.rows)
        units = g.groups * units_of_group
        alone = tiles * units <= multiprocessors
        beside = 1 if alone else 2 // shape.teams  # blocks of a multiprocessor
        resident = beside * multiprocessors  # blocks
        blocks = min(tiles, max(1, resident // units))
        turns = -(-units // resident)  # of more units than blocks
        rounds = -(-tiles // blocks) * turns
        weights, inputs = shape.weights(mode), shape.inputs
        for stay in (False, True):
            own = 4 * shape.rows + _BARRIERS + (chunks * weights if stay else 0)
            stage = inputs if stay else inputs + weights
            stages = min(MAX_STAGES, (shared // beside - _RESERVED * (beside - 1) - own) // stage)
            if stay and (tiles == blocks or stages < _LEAST_STAGES):
                continue
            cycles = rounds * beside * _cycles(shape, mode, chunks, stage)
            if stay:
                cycles += turns * beside * chunks * weights / _BROUGHT
            cycles = _BEGIN + max(cycles, 4 * _MEMORY * moved)
            yield Layout(
                *(shape, chunks, tiles_of_sample, tiles, units_of_group, units),
                *(blocks, stages, stay, alone, stages * stage + own, cycles),
            )


def _cycles(shape: Shape, mode: Mode, chunks: int, stage: int) -> float:
    """Return the cycles of a tile, where a chunk comes in so many bytes."""
    outputs = shape.rows * shape.places
    products = outputs * shape.channels / mode.rate
    chunk = max(products, stage / _BROUGHT, _CHUNK)
    return chunks * chunk + 4 * _STORE * outputs
