"""Second room, plain multiply-adds: how a convolution of few products is divided into tiles.

The order of a sum is fixed by the geometry of one sample. Tiles follow from a model of the time
that candidates take, and may depend on the batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ._geometry import ConvGeometry
from ._taps import AxisTaps, on_three_axes

THREADS, WARPS = 128, 4
ROWS = 8  # output channels of a thread
MAX_PHASES = 8
CHUNK = 4  # inputs that are copied together
STORED = 16  # bytes that are stored together
_SHIFT = CHUNK - 1  # by which a pitch may exceed what it is for
_BEGIN = 1500  # instructions that it takes to begin a block
MAX_SUM = 384  # products of a sum, so that rounding does not drift
_PARTS = (1, 2, 4, 8, 16)  # sizes of tiles along z and y, and their slabs
_MOST_PASSES = 8
SHARED, _LINE = 144, 16  # bytes of ``Shared`` and of a ``Line`` in plain_conv.cu
_COUNTED = 2**16  # what the kernel counts in a line stays below
_MAX_COORDINATE = 2**30
MOST_POSITIONS = 2**29  # of lines, with room for what else coordinates come to
_MOST_JOINED = 2**30  # places of axes that are joined
_RESERVED = 1024  # bytes that a multiprocessor keeps of each block's shared memory


@dataclass(frozen=True)
class Shape:
    """What a kernel is built for; the macros of plain_conv.cu."""

    positions: int
    columns: int
    resident: int

    @property
    def width(self) -> int:
        """Positions of a tile along x."""
        return self.positions * self.columns


SHAPES = (Shape(2, 32, 7), Shape(4, 16, 5), Shape(4, 32, 5), Shape(8, 16, 4))


@dataclass(frozen=True)
class Layout:
    """Tiles along z, y and x, and what lies in shared memory.

    Attributes
    ----------
    tile, tiles : tuple of int
        Positions of a tile in each phase, and how many tiles there are.
    slabs, slabs_of_tile : int
        Of eight output channels of a group.
    lines : int
        Of a tile, that are computed together.
    steps : int
        Products of an output channel in all phases of x, where z and y have most.
    low, extent : int
        Of x: the least input offset of any tap, and inputs that are staged.
    extents : tuple of int
        Of z and y, inputs that are staged.
    pitches : tuple of int
        From one plane, line and set of places with one residue of x to the next, at least.
    channel_pitch : int
        Staged elements of a channel, at least.
    places : tuple of int
        Where in shared memory the descriptions of lines of outputs lie, the bias, the weights, the
        places of steps, the inputs and the buffer of outputs.
    buffer_line : int
        From one line of outputs to the next in the buffer, 0 where x has one phase.
    shared : int
        Bytes of shared memory.
    bulk : bool
        Whether lines of outputs are stored in bulk.
    units : int
        What blocks stay in: phases of z and y that have taps, rows of a tile, and groups.
    count : int
        Tiles of each, over all samples.
    tiles_of_block : int
        How many tiles a block takes.
    cycles : float
        Of the model.
    """

    shape: Shape
    axes: tuple[AxisTaps, ...]
    tile: tuple[int, ...]
    tiles: tuple[int, ...]
    slabs: int
    slabs_of_tile: int
    lines: int
    steps: int
    low: int
    extent: int
    extents: tuple[int, int]
    pitches: tuple[int, ...]
    channel_pitch: int
    places: tuple[int, ...]
    buffer_line: int
    shared: int
    bulk: bool
    units: int
    count: int
    tiles_of_block: int
    cycles: float

    @property
    def row_tiles(self) -> int:
        """Return the tiles along the rows of a group."""
        return -(-self.slabs // self.slabs_of_tile)

    @property
    def passes(self) -> int:
        """Return how often a block computes lines of a tile."""
        return self.tile[0] * self.tile[1] // self.lines

    @property
    def phases(self) -> int:
        """Return the phases of z and y."""
        return self.axes[0].phases * self.axes[1].phases

    @property
    def busy(self) -> list[int]:
        """Return those that have taps."""
        return _busy(*self.axes[:2])

    def __str__(self) -> str:
        box = " x ".join(map(str, self.tile))
        rows = ROWS * self.slabs_of_tile
        return f"{self.units} x {self.count} tiles of ({box}) positions and {rows} rows"


def products(geometry: ConvGeometry) -> float:
    """Return the products of an output, on average, those with the padding included."""
    return geometry.channels * math.prod(axis.kernel / axis.phases for axis in geometry.axes)


def is_pointwise(axis: AxisTaps) -> bool:
    """Whether outputs take the one input at their own place."""
    one = axis.kernel == axis.phases == axis.step == 1
    return one and axis.origin == 0 and axis.size_in == axis.size_out


def joined(geometry: ConvGeometry, axis: int) -> ConvGeometry | None:
    """Return the same convolution with the axis behind `axis` as a part of it, None if it has taps.

    Lines are longer then. The same products are added in the same order in either form.
    """
    g = geometry
    first, second = g.axes[axis : axis + 2]
    width = second.size_in
    if not is_pointwise(second):
        return None
    span = first.dilation * first.kernel if first.kernel > 1 else 1
    largest = max(first.size_in, first.size_out, span) * width
    if not first.phases == first.step == 1 or largest >= _MOST_JOINED:
        return None
    factor = width if first.kernel > 1 else 1  # what one tap would be apart from another counts not
    one = replace(
        first,
        size_in=first.size_in * width,
        size_out=first.size_out * width,
        origin=first.origin * width,
        dilation=first.dilation * factor,
        offset_step=first.offset_step * factor,
    )

    def without(values: tuple[int, ...], factor: int = 1) -> tuple[int, ...]:
        return (*values[:axis], values[axis] * factor, *values[axis + 2 :])

    return replace(
        g,
        axes=(*g.axes[:axis], one, *g.axes[axis + 2 :]),
        stride=without(g.stride),
        dilation=without(g.dilation, factor),
        pads_before=without(g.pads_before, width),
    )


def layout(
    geometry: ConvGeometry, itemsize: int, shared: int, multiprocessors: int, bulk_copies: bool
) -> Layout | None:
    """Return the layout that takes the fewest cycles; None for what the kernel cannot take."""
    axes = on_three_axes(geometry.axes)
    if (
        max(axis.reach for axis in axes) >= _MAX_COORDINATE
        or max(a.phases for a in axes) > MAX_PHASES
    ):
        return None
    if not 0 < geometry.channels * math.prod(axis.most_taps for axis in axes) <= MAX_SUM:
        return None
    found = _candidates(geometry, axes, itemsize, shared, multiprocessors, bulk_copies)
    return min(found, key=lambda layout: layout.cycles, default=None)


def pieces(extent: int, chunks: bool) -> int:
    """Return in how many pieces a line of inputs is staged: chunks that begin anywhere, or each."""
    return (extent + 2 * _SHIFT) // CHUNK if chunks else extent


def _busy(z: AxisTaps, y: AxisTaps) -> list[int]:
    """Return the phases of z and y that have taps, of which those of y are numbered first."""
    deep, high = ([a.progression(phase)[1] for phase in range(a.phases)] for a in (z, y))
    return [i * len(high) + j for i, n in enumerate(deep) for j, m in enumerate(high) if n * m]


# What a thread does, in instructions: at a step beside its products, to stage a piece of a line,
# for an output that it stores itself or puts into the buffer, and for a line without products.
_STEP, _STAGED, _OUTPUT, _BUFFERED, _FILLED = 6, 70, 7, 5, 70
_TILE = 300  # to find out where a tile lies, and to wait for its inputs
_ALONE = 1.2  # how much longer a block takes by itself: what few blocks wait for, many hide
_BYTES = 12  # that a multiprocessor moves in a cycle, while it does little else
_SECTOR = 32  # bytes that a line moves in vain, at its two ends


def _candidates(
    geometry: ConvGeometry,
    axes: tuple[AxisTaps, ...],
    itemsize: int,
    shared: int,
    multiprocessors: int,
    bulk_copies: bool,
) -> Iterator[Layout]:
    g, (z, y, x) = geometry, axes
    deep, high = z.most_taps, y.most_taps
    steps = -(-g.channels * deep * high * x.kernel // CHUNK) * CHUNK
    busy = len(_busy(z, y))
    idle = z.phases * y.phases / busy  # phases for each one that has taps
    together = STORED // itemsize
    most = products(g) * x.phases * idle  # of a position, on average
    low, top = x.offsets
    slabs = -(-g.rows // ROWS)
    for shape in SHAPES:
        slots = THREADS // shape.columns
        for slabs_of_tile, height, depth in itertools.product(_PARTS, repeat=3):
            tile = (depth, height, shape.width)
            if slabs_of_tile > slots:
                continue
            lines = min(depth * height, 1 << (slots // slabs_of_tile).bit_length() - 1)
            if slabs_of_tile >= 2 * slabs or depth * height > _MOST_PASSES * lines:
                continue
            if any(s >= 2 * axis.positions(0) for axis, s in zip((z, y), tile, strict=False)):
                continue
            passes = depth * height // lines
            extents = [
                (size - 1) * axis.step + (taps - 1) * abs(axis.offset_step) + 1
                for axis, size, taps in zip((z, y), tile, (deep, high), strict=False)
            ]
            extent = (shape.width - 1) * x.step + top - low + 1
            plane = -(-extent // x.step)
            line = plane * x.step + 2 * _SHIFT
            line += (shape.columns - line) % 32 if shape.columns < 32 else -line % CHUNK
            pitches = (extents[1] * (line + _SHIFT), line, plane)
            channel_pitch = extents[0] * (pitches[0] + _SHIFT)
            inputs = g.channels * (channel_pitch + _SHIFT) + _SHIFT
            inputs += -inputs % CHUNK
            rows = slabs_of_tile * ROWS
            buffer_line = buffer = 0
            if x.phases > 1:
                buffer_line = shape.width * x.phases + together - 1
                buffer_line += -buffer_line % together
                buffer = rows * (lines * buffer_line + together - 1)
            source_lines = g.channels * extents[0] * extents[1]
            sizes = (
                SHARED + _LINE * source_lines,
                _LINE * depth * height,
                4 * rows,
                4 * rows * steps,
                4 * steps,
                4 * inputs,
                buffer * itemsize,
            )
            *places, own = itertools.accumulate(sizes)
            if own > shared or max(extent, *extents) >= _COUNTED // 2:
                continue
            tiles = tuple(
                -(-axis.positions(0) // size) for axis, size in zip(axes, tile, strict=True)
            )
            row_tiles = -(-slabs // slabs_of_tile)
            units = g.groups * row_tiles * busy
            count = g.batch * math.prod(tiles)
            outputs = passes * shape.positions * ROWS * x.phases
            own_lines = rows * depth * height
            instructions = (
                passes * most * ((ROWS + 1) * shape.positions + _STEP)
                + -(-source_lines * pieces(extent, x.step == 1) // THREADS) * _STAGED
                + outputs * (_BUFFERED if buffer else _OUTPUT)
                + (idle - 1) * own_lines / WARPS * _FILLED
                + _TILE
            )
            moved = idle * own_lines * (shape.width * x.phases * itemsize + _SECTOR)
            moved += source_lines * (itemsize * extent + _SECTOR)
            turns = -(-count * units // multiprocessors)
            resident = min(shape.resident, (shared + _RESERVED) // (own + _RESERVED))
            alone = 1 + _ALONE / min(resident, max(1, turns))
            # Of n tiles that a place for a block has to take, b by each block, blocks begin n / b
            # times, and the last ones wait b / 2 tiles for each other: least in all for this b.
            best = math.sqrt(2 * _BEGIN / instructions * turns / resident)
            yield Layout(
                shape=shape,
                axes=axes,
                tile=tile,
                tiles=tiles,
                slabs=slabs,
                slabs_of_tile=slabs_of_tile,
                lines=lines,
                steps=steps,
                low=low,
                extent=extent,
                extents=(extents[0], extents[1]),
                pitches=pitches,
                channel_pitch=channel_pitch,
                places=tuple(places),
                buffer_line=buffer_line,
                shared=own,
                bulk=bulk_copies,
                units=units,
                count=count,
                tiles_of_block=max(1, round(best)),
                cycles=turns * (instructions * alone + moved / _BYTES),
            )
