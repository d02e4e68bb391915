"""The rows and columns of a block of matrix_conv.cu that kernels are built for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .modes import SLAB_ROWS, TEAM, Mode
from .sums import whole_multiple

# Up to this many accumulators of a thread a shape counts as small: shapes for mma get a second
# producer warpgroup, shapes for wgmma fewer loads in flight.
_FEW_SUMS = 64
MAX_STAGES = 16


@dataclass(frozen=True)
class Shape:
    """The rows and columns of a block; its fields are macros of matrix_conv.cu.

    Attributes
    ----------
    teams : int
        Consumer warpgroups.
    slabs : int
        Row tiles.
    segment, segments : int
        Columns of a column tile, and column tiles of a warpgroup.
    """

    teams: int
    slabs: int
    segment: int
    segments: int

    def sums(self, mode: Mode) -> int:
        """Return the number of sums that a thread has in registers."""
        return self.rows * self.columns // (self.teams * TEAM) * mode.parts

    def staging_teams(self, mode: Mode, engine: str, window: int) -> int:
        """Return the producer warpgroups: one warp copies weights, the others inputs."""
        if engine == "hopper":
            return 4 - self.teams
        return 2 if self.sums(mode) <= _FEW_SUMS and window == 1 else 1

    def threads(self, mode: Mode, engine: str, window: int) -> int:
        """Return the threads of a block."""
        return TEAM * (self.teams + self.staging_teams(mode, engine, window))

    @property
    def rows(self) -> int:
        """Output channels of a block."""
        return self.slabs * SLAB_ROWS

    @property
    def columns(self) -> int:
        """Outputs of a block, in each row."""
        return -(-self.teams // self.slabs) * self.team_columns

    @property
    def team_columns(self) -> int:
        """Outputs of a warpgroup, in each row."""
        return self.segment * self.segments

    def loads(self, mode: Mode, engine: str) -> int:
        """Return the registers that hold the loads in flight of a producer thread.

        Small tiles are for small calls, which wait for every instruction.
        """
        return 16 if engine == "hopper" and self.sums(mode) <= _FEW_SUMS else 32


def shapes(mode: Mode, engine: str) -> tuple[Shape, ...]:
    """Return the shapes that kernels are built for.

    Large and small shapes alternate; then come large ones with narrower column tiles, and with half
    of the columns.
    """
    small = {
        "portable": (Shape(2, 1, 64, 1), Shape(2, 2, 64, 1)),
        # With the sums and chains of two row tiles, a single warpgroup would lack registers.
        "hopper": (
            Shape(2, 1, 64, 1) if mode.parts == 2 else Shape(1, 2, 64, 1),
            Shape(1, 1, 32, 1),
        ),
    }[engine]
    segments = 2 // mode.parts
    narrow = [(120, 120), (104, 104 if mode.parts == 2 else 96)] if engine == "hopper" else []
    large = [
        Shape(2, slabs, segment, segments)
        for pair in ((128, 128), *narrow)
        for slabs, segment in zip((1, 2), pair, strict=True)
    ]
    half: tuple[Shape, ...] = ()
    if segments == 2:
        half = tuple(Shape(2, slabs, 128, 1) for slabs in ((2,) if engine == "hopper" else (1, 2)))
    return large[0], small[0], large[1], small[1], *large[2:], *half


def pool_shapes(mode: Mode, engine: str) -> tuple[Shape, ...]:
    """Return the shapes of blocks that pool their outputs.

    Where a warpgroup has two column tiles, these are the two rows of its windows (`stacked`).
    """
    if engine == "portable":  # larger shapes take long to compile
        return tuple(Shape(2, slabs, 128 // mode.parts, 1) for slabs in (1, 2))
    return tuple(Shape(2, slabs, 112, 2 // mode.parts) for slabs in (1, 2))


def stacked(mode: Mode, engine: str) -> int:
    """Return how many rows of a pooling window have a column tile of their own."""
    return pool_shapes(mode, engine)[0].segments


# What plans need of a shape -------------------------------------------------------------------

_ONE_TEAM = 1.06  # factor for tiles of one warpgroup
_SHORT_TURNS = 1.4  # factor for products of two warpgroups with one instruction in a K step
_STAGED_A_CYCLE = 4 / 7  # values that a producer warp copies in a cycle, as pairs
_MOST_WIDE = 32  # tiles in the kernel's list for another pass


class Block(NamedTuple):
    """What the tiles of a shape have in common, whatever the sum is.

    Attributes
    ----------
    shape, number
        The shape, and its place among the shapes that are tried.
    rows, columns : int
        Rows and columns of a tile; stacked columns count once.
    declared : int
        Bytes of ``struct Shared``.
    narrow, slower : float
        Factors of the time of products, and of a tile.
    pace, fast_pace : float
        Values that are copied in a cycle: by the engine's producers, and by Hopper's.
    """

    shape: Shape
    number: int
    rows: int
    columns: int
    declared: int
    narrow: float
    pace: float
    fast_pace: float
    slower: float


@lru_cache(maxsize=64)
def blocks_of_shapes(
    kinds: tuple[Shape, ...], mode: Mode, engine: str, window: int
) -> tuple[Block, ...]:
    """Return what the tiles of shapes have in common, whatever the sum is."""
    blocks = []
    for number, shape in enumerate(kinds):
        # Narrow instructions take as long as wider ones, and so do short turns.
        short = engine == "hopper" and shape.teams == 2 and shape.segments * mode.products == 1
        pace, fast_pace = (
            _STAGED_A_CYCLE * (4 * shape.staging_teams(mode, name, window) - 1)
            for name in (engine, "hopper")
        )
        blocks.append(
            Block(
                shape,
                number,
                shape.rows,
                shape.columns // (stacked(mode, engine) if window > 1 else 1),
                _declared(shape, mode, engine, window),
                max(_SHORT_TURNS if short else 1.1, 128 / shape.segment),
                pace,
                fast_pace,
                _ONE_TEAM if shape.teams == 1 else 1,
            )
        )
    return tuple(blocks)


def _declared(shape: Shape, mode: Mode, engine: str, window: int) -> int:
    """Return the bytes of ``struct Shared`` in matrix_arguments.cuh, member by member."""
    teams, wgmma = shape.teams, engine == "hopper"
    pass_tiles = min(32 // mode.itemsize, shape.team_columns // (8 if wgmma else 32))
    columns = whole_multiple(shape.team_columns, pass_tiles * 8)  # of a warpgroup: whole buffers
    rows = -(-shape.slabs // teams) * SLAB_ROWS  # of a warpgroup
    barriers, phase, padding = 4 * MAX_STAGES * 8, 88, 24
    column_members = columns * (8 + 4 + 2 * 4)  # column_offset, column_place, column_folds
    size = barriers + phase + padding + teams * (column_members + rows * 4)  # and bias
    if mode.scaled:
        windows, shifts, powers = 4 * MAX_STAGES * 4, 2 * rows * 4, 2 * columns * 4
        size += windows + teams * (shifts + powers)
        size += (_MOST_WIDE + 2) * 4  # wide_tiles, wide_count, wide_windows
    if window == 1:
        pitch = 4 * pass_tiles + 4
        size += teams * 4 * 16 * pitch * 2 * mode.itemsize  # buffer
        size += teams * rows // 16 * 32  # rows
        return whole_multiple(size, 128)
    # A warp has 8 rows and all columns, or the four warps of a warpgroup share them.
    pass_rows, column_warps = (32, 1) if wgmma else (8, 4)
    if stacked(mode, engine) > 1:
        pass_rows = 1
    size += min(teams, shape.slabs) * pass_rows * (shape.columns + 8) * 4  # values
    size += shape.columns // 4 * 16 + 16  # window
    size += 2 * teams * columns * 4  # present
    size += teams * rows * (24 * column_warps + 4)  # moments, flip
    return whole_multiple(size, 128)
