"""Second room, the streaming kernel: one tap or few products, operands straight from memory.

The order of a sum follows from the products of an output and the rows of a group alone. All else
may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ._geometry import ConvGeometry
from ._matrix import SLAB_ROWS, TEAM, Mode
from ._taps import AxisTaps

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
    rows : int
        Of a pass.
    taps : bool
        Whether there are several. What is said of channels is then said of products.
    """

    channels: int
    teams: int
    held: int = 0
    rows: int = SLAB_ROWS
    taps: bool = False

    @property
    def threads(self) -> int:
        """Of a block."""
        return TEAM * self.teams

    def weights(self, mode: Mode, chunks: int) -> int:
        """Return the bytes of the weights and biases of a pass."""
        steps = chunks * self.channels // mode.block
        return (steps * mode.slab_bytes // SLAB_ROWS + 4) * self.rows


# By bytes of an element and the products of a step.
SHAPES = {
    (4, 3): (Shape(32, 4), Shape(64, 2), Shape(96, 2), Shape(64, 2, 1), Shape(64, 2, 2)),
    (4, 1): (
        *(Shape(32, 4), Shape(64, 2), Shape(96, 2), Shape(128, 2)),
        *(Shape(64, 3, 1), Shape(64, 3, 2), Shape(64, 2, 4)),
    ),
    (2, 1): (Shape(32, 4), Shape(64, 2), Shape(96, 2), Shape(128, 2)),
}
_TAPPED = {
    (4, 3): (
        *(Shape(32, 4), Shape(32, 3), Shape(64, 3), Shape(64, 3, rows=48), Shape(88, 2)),
        *(Shape(32, 3, 1), Shape(32, 3, 1, rows=48), Shape(32, 4, 1, rows=32)),
    ),
    (4, 1): (
        *(Shape(32, 4), Shape(48, 3)),
        *(Shape(32, 4, 1), Shape(32, 4, 1, rows=32), Shape(32, 3, 2)),
    ),
    (2, 1): (
        *(Shape(32, 4), Shape(32, 3), Shape(64, 4)),
        *(Shape(32, 4, 1), Shape(32, 4, 1, rows=32), Shape(32, 3, 2)),
    ),
}
TAPPED = {
    kind: tuple(replace(shape, taps=True) for shape in shapes) for kind, shapes in _TAPPED.items()
}
# What a tile's loads take, and the weights of a pass, in the time that a team takes for a pass.
_LOADS, _WEIGHTS = 2, 2
# Cycles of a position in a multiprocessor with one tap, fitted to times on an H200: to load the
# input of a channel; to store a byte, and so many times as long where neighbours do not lie
# together, by the bytes of an element.
_LOAD = 0.12
_STORE, _SCATTERED = 0.05, {4: 2.6, 2: 6.0}
# The same with several taps: to load the input of a product, longer where those of neighbours lie
# apart, or for each channel beyond eight whose lines the L1 cache has to keep; to multiply, of what
# matrix units take; to store; to find a position, and its absent taps.
_LOAD_OF_TAPS, _FAR, _CROWDED = 0.048, 1.8, 0.006
_MULTIPLY_OF_TAPS = {4: 1.15, 2: 1.95}
_STORE_OF_TAPS, _SCATTERED_OF_TAPS = 0.028, {4: 2.1, 2: 4.2}
_FIND, _PADDED = {4: 4.5, 2: 6.2}, 6.0
_BEGIN = 5000  # cycles in which a block brings its weights, behind another one
_LINE, _FEW_TEAMS = 128, 3  # bytes of a line of memory, and teams that share few of them
_NARROW = 32  # rows of passes for convolutions that have no more


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
        Over which a team goes.
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
            f"{self.units} x {self.tiles} tiles of {self.passes * self.shape.rows} rows x "
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
    if 0 in (g.channels, g.rows) or any(axis.phases > 1 for axis in g.axes):
        return False
    if has_one_tap(g):
        return True
    bits = sum(axis.kernel for axis in g.axes) + 3 - g.rank
    return bits <= _MOST_BITS and products(g) <= _MOST_PRODUCTS


def layout(geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int) -> Layout | None:
    """Return how the outputs of a convolution are divided; None where weights have no room."""
    found = [
        candidate
        for shape in _suited(geometry, mode)
        for candidate in _candidates(geometry, mode, shape, shared, multiprocessors)
    ]
    return min(found, key=lambda pair: pair[0], default=(0, None))[1]


def _suited(geometry: ConvGeometry, mode: Mode) -> list[Shape]:
    """Return the shapes that a convolution may have, all with chunks of the same size.

    Which size these have follows from the geometry of a sample, as the order of a sum does from it.
    """
    g, each = geometry, products(geometry)
    every = shapes(mode, taps=not has_one_tap(g))
    narrow = [shape for shape in every if g.rows <= shape.rows == _NARROW]
    # Others take as few passes as there are, and of these the narrowest ones.
    passes = -(-g.rows // SLAB_ROWS)
    room = [shape for shape in every if passes * shape.rows >= g.rows]
    alone = [shape for shape in room if not shape.held and shape.channels >= each]
    if narrow or not alone:
        held = narrow or [shape for shape in room if shape.held]
        return [shape for shape in held if shape.rows == min(own.rows for own in held)]
    # Where planes of outputs begin within lines of memory, few teams write them faster.
    plane = math.prod(axis.size_out for axis in g.axes) * mode.itemsize
    within = alone[0].taps and plane % _LINE
    few = [shape for shape in alone if shape.teams == _FEW_TEAMS] if within else []
    return [min(few or alone, key=lambda shape: shape.channels * shape.rows)]


def _candidates(
    geometry: ConvGeometry, mode: Mode, shape: Shape, shared: int, multiprocessors: int
) -> Iterator[tuple[float, Layout]]:
    """Yield the layouts with as many passes as there is room for, and how long a block takes."""
    g, each = geometry, products(geometry)
    positions = g.batch * math.prod(axis.size_out for axis in g.axes)
    pairs = places(shape, mode.itemsize) // 2  # of products side by side
    tiles = -(-positions // (64 * pairs))
    chunks = -(-each // shape.channels)
    terms = _TERM * chunks * shape.channels if shape.taps else 0
    all_passes = -(-g.rows // shape.rows)
    weights = shape.weights(mode, chunks)
    room = (shared - terms) // weights
    for passes in [shape.held] if shape.held else range(min(all_passes, room), 0, -1):
        if passes > room:
            continue
        size = passes * weights + terms
        units = g.groups * -(-all_passes // passes)
        blocks, waves = max(1, multiprocessors // units), -(-units // multiprocessors)
        rounds = -(-tiles // (blocks * shape.teams)) * waves
        share = passes * shape.rows / SLAB_ROWS
        time = rounds * (_LOADS + share) + _WEIGHTS * share
        cycles = positions * units / multiprocessors
        cycles *= _cycles(g, shape, mode, chunks * shape.channels, passes)
        cycles += (waves - 1) * _BEGIN
        yield time, Layout(shape, each, chunks, positions, tiles, passes, units, size, cycles)


def _cycles(geometry: ConvGeometry, shape: Shape, mode: Mode, products: int, passes: int) -> float:
    """Return the cycles of a position, of arrays without gaps, in so many passes."""
    g, size, last = geometry, mode.itemsize, geometry.axes[-1]
    rows = passes * shape.rows
    multiplied = rows * products * mode.products / mode.rate
    stored = min(rows, g.rows) * size
    scattered = last.size_out % places(shape, size) > 0
    if not shape.taps:
        stores = _STORE * stored * (_SCATTERED[size] if scattered else 1)
        return _LOAD * products + multiplied + stores
    load = (
        _LOAD_OF_TAPS * _FAR if last.step > 1 else _LOAD_OF_TAPS + _CROWDED * max(0, g.channels - 8)
    )
    loads = load * products
    stores = _STORE_OF_TAPS * stored * (_SCATTERED_OF_TAPS[size] if scattered else 1)
    find = _FIND[size] + _PADDED * (not all(map(is_inside, g.axes)))
    return loads + _MULTIPLY_OF_TAPS[size] * multiplied + stores + find
