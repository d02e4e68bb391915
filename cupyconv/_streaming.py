"""Second room, the streaming kernel: one tap or few products, operands straight from memory.

The order of a sum follows from the products of an output alone. All else may depend on the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ._geometry import ConvGeometry
from ._matrix import SLAB_ROWS, Mode
from ._taps import AxisTaps

TEAM = 128  # threads
_MOST_PRODUCTS = 400  # of an output, with several taps
_MOST_BITS = 30  # of the taps of all axes, one for each
_TERM = 24  # bytes of the tables that a product takes with several taps


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
    taps : bool
        Whether there are several. What is said of channels is then said of products.
    """

    channels: int
    teams: int
    held: int = 0
    taps: bool = False


# By bytes of an element and the products of a step.
SHAPES = {
    (4, 3): (Shape(32, 4), Shape(64, 3), Shape(96, 2), Shape(64, 2, 1), Shape(64, 2, 2)),
    (4, 1): (
        *(Shape(32, 4), Shape(64, 3), Shape(96, 2), Shape(128, 2)),
        *(Shape(64, 3, 1), Shape(64, 3, 2), Shape(64, 2, 4)),
    ),
    (2, 1): (Shape(32, 4), Shape(64, 3), Shape(96, 2), Shape(128, 2)),
}
_TAPPED = {
    (4, 3): (Shape(32, 4), Shape(64, 3), Shape(64, 2, 1), Shape(64, 2, 2)),
    (4, 1): (Shape(32, 4), Shape(64, 3), Shape(64, 3, 1), Shape(64, 3, 2)),
    (2, 1): (Shape(32, 4), Shape(64, 4), Shape(64, 3, 1), Shape(64, 3, 2)),
}
TAPPED = {
    kind: tuple(replace(shape, taps=True) for shape in shapes) for kind, shapes in _TAPPED.items()
}
# What a tile's loads take, and the weights of a pass, in the time that a team takes for a pass.
_LOADS, _WEIGHTS = 2, 2
# Cycles of a position in a multiprocessor, fitted to times on an H200: to load the input of a
# product, longer where neighbours of several taps lie apart; to store a byte, and so many times as
# long where neighbours do not lie together, by the bytes of an element; to find absent taps; and
# with several taps for 16-bit elements, of which each is loaded by itself.
_LOAD, _FAR = 0.12, 1.5
_STORE, _SCATTERED = 0.05, {4: 2.6, 2: 6.0}
_PADDED, _SIXTEEN = 3.5, 5.0
_BEGIN = 5000  # cycles in which a block brings its weights, behind another one


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    shape : Shape
        What the kernel is built for.
    products : int
        Of an output.
    chunks : int
        Of these.
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
    cycles : float
        Of the model.
    """

    shape: Shape
    products: int
    chunks: int
    positions: int
    tiles: int
    passes: int
    units: int
    shared: int
    cycles: float

    def __str__(self) -> str:
        return (
            f"{self.units} x {self.tiles} tiles of {self.passes * SLAB_ROWS} rows x "
            f"{-(-self.positions // self.tiles)} outputs"
        )


def shapes(mode: Mode, taps: bool = False) -> tuple[Shape, ...]:
    """Return what the kernel is built for."""
    return (TAPPED if taps else SHAPES)[mode.itemsize, mode.products]


def is_inside(axis: AxisTaps) -> bool:
    """Whether all taps of all outputs have an input."""
    low, high = axis.offsets
    return low >= 0 and (axis.size_out - 1) * axis.step + high < axis.size_in


def _takes_one(axis: AxisTaps) -> bool:
    """Whether each output takes one input, and there is one for it."""
    return axis.kernel == axis.phases == 1 and axis.origin == 0 and is_inside(axis)


def has_one_tap(geometry: ConvGeometry) -> bool:
    """Whether each output takes one input of a channel."""
    return all(map(_takes_one, geometry.axes))


def places(shape: Shape, itemsize: int) -> int:
    """Return how many positions a thread has: 8 bytes of them, or two."""
    return 2 if shape.taps else 8 // itemsize


def products(geometry: ConvGeometry) -> int:
    """Return the products of an output, those with the padding included."""
    return geometry.channels * math.prod(axis.kernel for axis in geometry.axes)


def suits(geometry: ConvGeometry) -> bool:
    """Return whether the kernel is for the taps of a convolution."""
    g = geometry
    if g.channels == 0 or any(axis.phases > 1 for axis in g.axes):
        return False
    if has_one_tap(g):
        return True
    bits = sum(axis.kernel for axis in g.axes) + 3 - g.rank
    return bits <= _MOST_BITS and products(g) <= _MOST_PRODUCTS


def layout(geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int) -> Layout | None:
    """Return how the outputs of a convolution are divided; None where weights have no room."""
    g = geometry
    slabs, each = -(-g.rows // SLAB_ROWS), products(g)
    positions = g.batch * math.prod(axis.size_out for axis in g.axes)
    every = shapes(mode, taps=not has_one_tap(g))
    alone = [shape for shape in every if not shape.held and shape.channels >= each][:1]
    found = []
    for shape in alone or [shape for shape in every if shape.held]:
        pairs = places(shape, mode.itemsize) // 2  # of products side by side
        tiles = -(-positions // (64 * pairs))
        chunks = -(-each // shape.channels)
        terms = _TERM * chunks * shape.channels if shape.taps else 0
        own = chunks * shape.channels // mode.block * mode.slab_bytes + 4 * SLAB_ROWS  # with biases
        for passes in [shape.held] if shape.held else range(slabs, 0, -1):
            size = passes * own + terms
            if size > shared:
                continue
            units = g.groups * -(-slabs // passes)
            blocks, waves = max(1, multiprocessors // units), -(-units // multiprocessors)
            rounds = -(-tiles // (blocks * shape.teams)) * waves
            time = rounds * (_LOADS + passes) + _WEIGHTS * passes
            cycles = positions * units / multiprocessors
            cycles *= _cycles(g, shape, mode, chunks * shape.channels, passes)
            cycles += (waves - 1) * _BEGIN
            one = Layout(shape, each, chunks, positions, tiles, passes, units, size, cycles)
            found.append((time, one))
    return min(found, key=lambda pair: pair[0], default=(0, None))[1]


def _cycles(geometry: ConvGeometry, shape: Shape, mode: Mode, products: int, passes: int) -> float:
    """Return the cycles of a position, of arrays without gaps, in so many passes."""
    g, size, last = geometry, mode.itemsize, geometry.axes[-1]
    rows = passes * SLAB_ROWS
    loads = _LOAD * products * (_FAR if shape.taps and last.step > 1 else 1)
    multiplied = rows * products * mode.products / mode.rate
    stores = _STORE * min(rows, g.rows) * size
    if last.size_out % places(shape, size):
        stores *= _SCATTERED[size]
    if shape.taps:
        loads += _PADDED * (not all(map(is_inside, g.axes))) + _SIXTEEN * (size == 2)
    return loads + multiplied + stores
