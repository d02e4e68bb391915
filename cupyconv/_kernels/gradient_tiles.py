"""Tiles of the gradient of a weight by wgmma, as gradient_tile.cuh has them, and their stages."""

from __future__ import annotations

from dataclasses import dataclass

STEP_BYTES = 128  # of a row or a column in a K step
ROOM, MOST_STAGES = 224 * 1024, 8  # bytes of all stages
BARRIERS = 16  # bytes of a stage's two

# Steps in whose time a block begins and ends, and cycles in which a multiprocessor stores a sum.
# Fitted with the constants of `gradient_products`.
ENDS, STORED = 4, 0.3


@dataclass(frozen=True)
class Shape:
    """The tile of a block: macros of the kernels.

    Attributes
    ----------
    down : int
        Warpgroups above each other, one or both.
    segment : int
        Columns of a warpgroup.
    blocks : int
        Blocks of 64 rows of a warpgroup.
    """

    down: int
    segment: int
    blocks: int = 1

    @property
    def rows(self) -> int:
        """Output channels of a tile."""
        return 64 * self.down * self.blocks

    @property
    def columns(self) -> int:
        """Input channels times taps of a tile."""
        return self.segment * (2 // self.down)

    def stage(self, parts: int) -> int:
        """Return the bytes of a stage."""
        return parts * (self.rows + self.columns) * STEP_BYTES

    def stages(self, parts: int) -> int:
        """Return the stages of a block."""
        return stages_of(self.stage(parts))


def stages_of(nbytes: int) -> int:
    """Return the stages of a block, each of so many bytes."""
    return min(ROOM // nbytes, MOST_STAGES)
