"""Second room, the pointwise kernel: one tap, operands straight from memory.

The order of a sum follows from the channels of a group alone. All else may depend on the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._geometry import ConvGeometry
from ._matrix import SLAB_ROWS, Mode
from ._taps import AxisTaps

TEAM = 128  # threads
BYTES = 8  # that a thread loads and stores together, of neighbouring positions


@dataclass(frozen=True)
class Shape:
    """What the kernel is built for.

    Attributes
    ----------
    channels : int
        Of a chunk.
    teams : int
        Of threads, for whose registers a multiprocessor has room.
    held : int
        Passes whose sums a team holds while it goes over several chunks; 0 where one has all
        channels of a group.
    """

    channels: int
    teams: int
    held: int = 0


# By bytes of an element and the products of a step.
SHAPES = {
    (4, 3): (Shape(32, 4), Shape(64, 3), Shape(96, 2), Shape(64, 2, 1), Shape(64, 2, 2)),
    (4, 1): (
        *(Shape(32, 4), Shape(64, 3), Shape(96, 2), Shape(128, 2)),
        *(Shape(64, 3, 1), Shape(64, 3, 2), Shape(64, 2, 4)),
    ),
    (2, 1): (
        *(Shape(32, 4), Shape(64, 3), Shape(96, 2), Shape(128, 2)),
        *(Shape(64, 3, 1), Shape(64, 2, 2)),
    ),
}
# What a tile's loads take, and the weights of a pass, in the time that a team takes for a pass.
_LOADS, _WEIGHTS = 2, 2
_PRODUCT = 32  # cycles of one of 64 positions by 64 rows


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    shape : Shape
        What the kernel is built for.
    chunks : int
        Of the channels of a group.
    positions : int
        Of the outputs of all samples.
    tiles : int
        Of so many of these as a team takes at a time.
    passes : int
        Of 64 rows each, over which a team goes.
    units : int
        What blocks stay with: so many rows of a group.
    shared : int
        Bytes of shared memory.
    cycles : int
        That the products take on the matrix units.
    """

    shape: Shape
    chunks: int
    positions: int
    tiles: int
    passes: int
    units: int
    shared: int
    cycles: int

    def __str__(self) -> str:
        return (
            f"{self.units} x {self.tiles} tiles of {self.passes * SLAB_ROWS} rows x "
            f"{-(-self.positions // self.tiles)} outputs"
        )


def shapes(mode: Mode) -> tuple[Shape, ...]:
    """Return what the kernel is built for."""
    return SHAPES[mode.itemsize, mode.products]


def _takes_one(axis: AxisTaps) -> bool:
    """Whether each output takes one input, and there is one for it."""
    single = axis.kernel == axis.phases == 1 and axis.origin == 0
    return single and (axis.size_out - 1) * axis.step < axis.size_in


def suits(geometry: ConvGeometry) -> bool:
    """Return whether the kernel is for the taps of a convolution."""
    return geometry.channels > 0 and all(map(_takes_one, geometry.axes))


def layout(geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int) -> Layout | None:
    """Return how the outputs of a convolution are divided; None where weights have no room."""
    g = geometry
    slabs = -(-g.rows // SLAB_ROWS)
    positions = g.batch * math.prod(axis.size_out for axis in g.axes)
    tiles = -(-positions // (64 * 4 // mode.itemsize))
    alone = [shape for shape in shapes(mode) if not shape.held and shape.channels >= g.channels][:1]
    found = []
    for shape in alone or [shape for shape in shapes(mode) if shape.held]:
        chunks = -(-g.channels // shape.channels)
        own = chunks * shape.channels // mode.block * mode.slab_bytes + 4 * SLAB_ROWS  # with biases
        for passes in [shape.held] if shape.held else range(slabs, 0, -1):
            if passes * own > shared:
                continue
            units = g.groups * -(-slabs // passes)
            blocks, waves = max(1, multiprocessors // units), -(-units // multiprocessors)
            rounds = -(-tiles // (blocks * shape.teams)) * waves
            time = rounds * (_LOADS + passes) + _WEIGHTS * passes
            work = waves * -(-tiles // blocks) * passes * chunks * shape.channels // mode.block
            cycles = work * mode.products * 4 // mode.itemsize * _PRODUCT
            one = Layout(shape, chunks, positions, tiles, passes, units, passes * own, cycles)
            found.append((time, one))
    return min(found, key=lambda pair: pair[0], default=(0, None))[1]
