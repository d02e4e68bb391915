"""The rows and columns of a block of matrix_conv.cu that kernels are built for."""

from __future__ import annotations

from dataclasses import dataclass

from .modes import SLAB_ROWS, TEAM, Mode

# Up to this many accumulators of a thread a shape counts as small: shapes for mma get a second
# producer warpgroup, shapes for wgmma fewer loads in flight.
_FEW_SUMS = 64


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

    @property
    def partial_bytes(self) -> int:
        """Bytes of the partial sums of a tile."""
        return 4 * self.rows * self.columns


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


def span_shapes(mode: Mode) -> tuple[Shape, ...]:
    """Return the shapes for split-K sums, by wgmma: none for tf32 numbers, whose sums are short.

    In modes of one product a thread has few sums, and keeps as many totals of earlier slices.
    """
    if mode.operand == "float":
        return ()
    if mode.parts == 1:
        return Shape(2, 2, 128, 1), Shape(1, 2, 64, 1), Shape(1, 1, 32, 1)
    return Shape(2, 1, 128, 1), Shape(2, 2, 128, 1), Shape(2, 1, 64, 1), Shape(1, 1, 32, 1)


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
