"""How the FMA kernel divides outputs into tiles, and what lies in its shared memory.

The order of a sum is fixed by the geometry of one sample. Tiles follow from a model of the time
that candidates take, and may depend on the batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .._axes import mean_products
from .._geometry import ConvGeometry
from .._taps import AxisTaps, on_three_axes
from .launches import RESERVED, SECTOR, Processor
from .question import LARGE, Refusal

THREADS, WARPS = 128, 4
ROWS = 8  # output channels of a thread: a row tile
MAX_PHASES = 8
CHUNK = 4  # inputs that are copied together
STORED = 16  # bytes that are stored together
_SHIFT = CHUNK - 1  # elements by which a pitch may exceed the line
BLOCK_START = 1500  # instructions that it takes to begin a block
MAX_SUM = 384  # products of a sum, so that rounding does not drift
_PARTS = (1, 2, 4, 8, 16)  # sizes of tiles along z and y, and their row tiles
_MOST_PASSES = 8
_SHARED, _LINE = 144, 16  # bytes of ``Shared`` and of a ``Line`` in plain_conv.cu
_COUNTED = 2**16  # what the kernel counts in a line stays below
_MAX_COORDINATE = 2**30
MOST_POSITIONS = 2**29  # of lines: coordinates exceed them by padding and by a tile


@dataclass(frozen=True)
class Shape:
    """What a kernel is built for; the macros of plain_conv.cu.

    Attributes
    ----------
    positions : int
        Positions of a thread along x.
    columns : int
        Threads side by side along x.
    resident : int
        Blocks that a multiprocessor shall hold, which bounds the registers.
    """

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
    shape : Shape
        The kernel.
    axes : tuple of AxisTaps
        The taps of z, y and x.
    tile, tiles : tuple of int
        Positions of a tile in each phase, and how many tiles there are.
    slabs, slabs_of_tile : int
        Row tiles, of eight output channels, in a group and in a tile.
    lines : int
        Lines of a tile that are computed together.
    steps : int
        Products of an output channel in all phases of x, where z and y have most.
    low, extent : int
        Of x: the least input offset of any tap, and inputs that are staged.
    extents : tuple of int
        Inputs of z and of y that are staged.
    pitches : tuple of int
        Least distance from one plane, line and set of inputs with one residue of x to the next.
    channel_pitch : int
        Least distance from one staged channel to the next.
    places : tuple of int
        Bytes of shared memory before the descriptions of lines of outputs, the bias, the weights,
        the places of steps, the inputs and the buffer of outputs.
    buffer_line : int
        From one line of outputs to the next in the buffer, 0 where x has one phase.
    shared : int
        Bytes of shared memory.
    bulk : bool
        Whether lines of outputs are stored in bulk.
    units : int
        What blocks stay in: phases of z and y that have taps, rows of a tile, and groups.
    count : int
        Tiles of each unit, over all samples.
    tiles_of_block : int
        Tiles that a block takes.
    cycles : float
        Cycles that the model gives it.
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
    pitches: tuple[int, int, int]
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
        """Tiles along the rows of a group."""
        return -(-self.slabs // self.slabs_of_tile)

    @property
    def passes(self) -> int:
        """How often a block computes lines of a tile."""
        return self.tile[0] * self.tile[1] // self.lines

    @property
    def phases(self) -> int:
        """Phases of z and y."""
        return self.axes[0].phases * self.axes[1].phases

    @property
    def busy(self) -> list[int]:
        """Phases of z and y that have taps."""
        return _busy(*self.axes[:2])

    def __str__(self) -> str:
        box = " x ".join(map(str, self.tile))
        rows = ROWS * self.slabs_of_tile
        return f"{self.units} x {self.count} tiles of ({box}) positions and {rows} rows"


def layout_of(geometry: ConvGeometry, itemsize: int, processor: Processor) -> Layout | Refusal:
    """Return the layout that takes the fewest cycles, or why the kernel has none."""
    axes = on_three_axes(geometry.axes)
    if max(axis.phases for axis in axes) > MAX_PHASES:
        return f"its stride is larger than {MAX_PHASES}"
    most = geometry.channels * math.prod(axis.most_taps for axis in axes)
    if not 0 < most <= MAX_SUM:
        return f"a sum has {most} products, not 1 to {MAX_SUM}"
    if max(axis.reach for axis in axes) >= _MAX_COORDINATE:
        return LARGE
    layouts = candidates(_Problem(geometry, axes, itemsize, processor))
    best = min(layouts, key=lambda layout: layout.cycles, default=None)
    return best or "no tile fits shared memory"


def pieces(extent: int, chunks: bool) -> int:
    """Return in how many pieces a line of inputs is staged: chunks that begin anywhere, or each."""
    return (extent + 2 * _SHIFT) // CHUNK if chunks else extent


def _busy(z: AxisTaps, y: AxisTaps) -> list[int]:
    """Return the phases of z and y that have taps, numbered along y first."""
    deep, high = ([a.progression(phase)[1] for phase in range(a.phases)] for a in (z, y))
    return [i * len(high) + j for i, n in enumerate(deep) for j, m in enumerate(high) if n * m]


# Candidates -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    """A convolution that is divided into tiles, and what is the same for all candidates."""

    geometry: ConvGeometry
    axes: tuple[AxisTaps, ...]
    itemsize: int
    processor: Processor

    @cached_property
    def slabs(self) -> int:
        """Row tiles of a group."""
        return -(-self.geometry.rows // ROWS)

    @cached_property
    def steps(self) -> int:
        """Products of an output channel in all phases of x, in whole chunks."""
        z, y, x = self.axes
        most = self.geometry.channels * z.most_taps * y.most_taps * x.kernel
        return -(-most // CHUNK) * CHUNK

    @cached_property
    def busy(self) -> int:
        """Number of phases of z and y that have taps."""
        return len(_busy(*self.axes[:2]))

    @cached_property
    def idle(self) -> float:
        """Phases of z and y for each one that has taps."""
        z, y, _ = self.axes
        return z.phases * y.phases / self.busy

    @cached_property
    def products(self) -> float:
        """Products of a position in all phases of x, on average over phases that have taps."""
        return mean_products(self.geometry) * self.axes[2].phases * self.idle


@dataclass(frozen=True)
class _Tile:
    """What a block computes at a time: a box of positions, for some row tiles.

    `lines` of the box are computed together.
    """

    shape: Shape
    box: tuple[int, int, int]
    slabs: int
    lines: int

    @property
    def passes(self) -> int:
        """How often a block computes its lines for a tile."""
        return self.box[0] * self.box[1] // self.lines

    @property
    def rows(self) -> int:
        """Output channels."""
        return self.slabs * ROWS

    @property
    def lines_of_rows(self) -> int:
        """Lines of all output channels."""
        return self.rows * self.box[0] * self.box[1]


def candidates(problem: _Problem) -> Iterator[Layout]:
    """Yield the layouts that fit shared memory."""
    for shape in SHAPES:
        for tile in _tiles(problem, shape):
            layout = _layout(problem, tile)
            if layout:
                yield layout


def _tiles(problem: _Problem, shape: Shape) -> Iterator[_Tile]:
    """Yield the tiles that the threads of a block can have, and that are no larger than they need.

    None of them could be half as large along z, y or the row tiles and still be a single one.
    """
    together = THREADS // shape.columns  # lines that threads have at a time
    z, y, _ = problem.axes
    for slabs, height, depth in itertools.product(_PARTS, repeat=3):
        if slabs > together or slabs >= 2 * problem.slabs:
            continue
        lines = min(depth * height, 1 << (together // slabs).bit_length() - 1)
        if depth * height > _MOST_PASSES * lines:
            continue
        if depth < 2 * z.positions(0) and height < 2 * y.positions(0):
            yield _Tile(shape, (depth, height, shape.width), slabs, lines)


@dataclass(frozen=True)
class _StagedInputs:
    """The inputs of a tile in shared memory.

    Attributes
    ----------
    extent : int
        Inputs of a line.
    extents : tuple of int
        Inputs along z and y.
    pitches, channel_pitch
        Those of `Layout`.
    lines : int
        Lines of all channels.
    size : int
        Elements of shared memory.
    """

    extent: int
    extents: tuple[int, int]
    pitches: tuple[int, int, int]
    channel_pitch: int
    lines: int
    size: int


def _stage(problem: _Problem, tile: _Tile) -> _StagedInputs:
    """Return how the inputs of a tile are staged; threads side by side read different banks."""
    channels, x, shape = problem.geometry.channels, problem.axes[2], tile.shape
    depth, height = (
        (size - 1) * axis.step + (axis.most_taps - 1) * abs(axis.offset_step) + 1
        for axis, size in zip(problem.axes[:2], tile.box, strict=False)
    )
    low, top = x.offsets
    extent = (shape.width - 1) * x.step + top - low + 1
    plane = -(-extent // x.step)
    line = plane * x.step + 2 * _SHIFT
    line += (shape.columns - line) % 32 if shape.columns < 32 else -line % CHUNK
    pitches = (height * (line + _SHIFT), line, plane)
    channel_pitch = depth * (pitches[0] + _SHIFT)
    size = channels * (channel_pitch + _SHIFT) + _SHIFT
    size += -size % CHUNK
    return _StagedInputs(
        extent, (depth, height), pitches, channel_pitch, channels * depth * height, size
    )


def _buffer(problem: _Problem, tile: _Tile) -> tuple[int, int]:
    """Return the elements of a line, and of all rows, in the buffer of outputs.

    Lines of several phases of x are put together there.
    """
    phases = problem.axes[2].phases
    if phases == 1:
        return 0, 0
    together = STORED // problem.itemsize
    line = tile.shape.width * phases + together - 1
    line += -line % together
    return line, tile.rows * (tile.lines * line + together - 1)


def _layout(problem: _Problem, tile: _Tile) -> Layout | None:
    """Return the layout by a tile, None where it has no room in shared memory."""
    geometry, processor = problem.geometry, problem.processor
    staged = _stage(problem, tile)
    buffer_line, buffer = _buffer(problem, tile)
    sizes = (
        _SHARED + _LINE * staged.lines,
        _LINE * tile.box[0] * tile.box[1],
        4 * tile.rows,
        4 * tile.rows * problem.steps,
        4 * problem.steps,
        4 * staged.size,
        buffer * problem.itemsize,
    )
    *places, shared = itertools.accumulate(sizes)
    if shared > processor.shared or max(staged.extent, *staged.extents) >= _COUNTED // 2:
        return None
    tiles = tuple(
        -(-axis.positions(0) // size) for axis, size in zip(problem.axes, tile.box, strict=True)
    )
    units = geometry.groups * -(-problem.slabs // tile.slabs) * problem.busy
    count = geometry.batch * math.prod(tiles)
    turns = -(-count * units // processor.multiprocessors)
    resident = min(tile.shape.resident, (processor.shared + RESERVED) // (shared + RESERVED))
    instructions = _instructions(problem, tile, staged)
    # If each block takes b of n tiles, n / b blocks begin in turn, and the last ones wait for each
    # other for b / 2 tiles. This b has the least sum of both costs.
    best = math.sqrt(2 * BLOCK_START / instructions * turns / resident)
    alone = 1 + _ALONE / min(resident, max(1, turns))
    return Layout(
        shape=tile.shape,
        axes=problem.axes,
        tile=tile.box,
        tiles=tiles,
        slabs=problem.slabs,
        slabs_of_tile=tile.slabs,
        lines=tile.lines,
        steps=problem.steps,
        low=problem.axes[2].offsets[0],
        extent=staged.extent,
        extents=staged.extents,
        pitches=staged.pitches,
        channel_pitch=staged.channel_pitch,
        places=tuple(places),
        buffer_line=buffer_line,
        shared=shared,
        bulk=processor.copies_in_bulk,
        units=units,
        count=count,
        tiles_of_block=max(1, round(best)),
        cycles=turns * (instructions * alone + _bytes(problem, tile, staged) / _BYTES),
    )


# Instructions of a thread: at a step beside its products, to stage a piece of a line, for an output
# that it stores itself or puts into the buffer, and for a line without products.
_STEP, _STAGED, _OUTPUT, _BUFFERED, _FILLED = 6, 70, 7, 5, 70
_TILE = 300  # instructions to find out where a tile lies, and to wait for its inputs
_ALONE = 1.2  # how much longer a block takes by itself: several blocks hide each other's waits
_BYTES = 12  # bytes that a multiprocessor moves in a cycle, while it does little else


def _instructions(problem: _Problem, tile: _Tile, staged: _StagedInputs) -> float:
    """Return the instructions of a thread for a tile."""
    x, positions = problem.axes[2], tile.shape.positions
    outputs = tile.passes * positions * ROWS * x.phases
    return (
        tile.passes * problem.products * ((ROWS + 1) * positions + _STEP)
        + -(-staged.lines * pieces(staged.extent, x.step == 1) // THREADS) * _STAGED
        + outputs * (_BUFFERED if x.phases > 1 else _OUTPUT)
        + (problem.idle - 1) * tile.lines_of_rows / WARPS * _FILLED
        + _TILE
    )


def _bytes(problem: _Problem, tile: _Tile, staged: _StagedInputs) -> float:
    """Return the bytes that a tile moves, the ones that its lines move in vain included."""
    outputs = tile.shape.width * problem.axes[2].phases
    stored = problem.idle * tile.lines_of_rows * (outputs * problem.itemsize + SECTOR)
    return stored + staged.lines * (problem.itemsize * staged.extent + SECTOR)
