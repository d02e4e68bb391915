"""How the FMA kernel divides outputs into tiles, and what lies in its shared memory.

The order of a sum is fixed by the geometry of one sample. Tiles follow from a model of the time
that candidates take, and may depend on the batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

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


_IntT = TypeVar("_IntT", int, np.ndarray)


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
    extents: tuple[int, ...]
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
    problem = _Problem(geometry, axes, itemsize, processor)
    return next(candidates(problem), "no tile fits shared memory")


def pieces(extent: _IntT, chunks: bool) -> _IntT:
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


# Instructions of a thread: at a step beside its products, to stage a piece of a line, for an output
# that it stores itself or puts into the buffer, and for a line without products.
_STEP, _STAGED, _OUTPUT, _BUFFERED, _FILLED = 6, 70, 7, 5, 70
_TILE = 300  # instructions to find out where a tile lies, and to wait for its inputs
_ALONE = 1.2  # how much longer a block takes by itself: several blocks hide each other's waits
_BYTES = 12  # bytes that a multiprocessor moves in a cycle, while it does little else


class _Tiles(NamedTuple):
    """Tiles as arrays: boxes of positions of all row tiles, and how threads compute them.

    A loop over hundreds of candidates would take most of the time of planning.

    Attributes
    ----------
    shape : array of int
        Index in `SHAPES`.
    slabs, height, depth, lines
        Row tiles, lines and planes of a box, and lines that are computed together.
    positions, columns, resident
        Those of the shapes.
    """

    shape: np.ndarray
    slabs: np.ndarray
    height: np.ndarray
    depth: np.ndarray
    lines: np.ndarray
    positions: np.ndarray
    columns: np.ndarray
    resident: np.ndarray


def _tiles() -> _Tiles:
    """Return the tiles that the threads of a block can have."""
    tiles = []
    for number, shape in enumerate(SHAPES):
        together = THREADS // shape.columns  # lines that threads have at a time
        for slabs, height, depth in itertools.product(_PARTS, repeat=3):
            if slabs <= together:
                lines = min(depth * height, 1 << (together // slabs).bit_length() - 1)
                if depth * height <= _MOST_PASSES * lines:
                    shaped = (shape.positions, shape.columns, shape.resident)
                    tiles.append((number, slabs, height, depth, lines, *shaped))
    return _Tiles(*np.array(tiles).T)


_TILES = _tiles()


def candidates(problem: _Problem) -> Iterator[Layout]:
    """Yield the layouts that fit shared memory, the fastest first.

    None of their tiles could be half as large along z, y or the row tiles and still be a single
    one.
    """
    z, y, _ = problem.axes
    needed = _TILES.slabs < 2 * problem.slabs
    needed &= (_TILES.depth < 2 * z.positions(0)) & (_TILES.height < 2 * y.positions(0))
    return _Layouts(problem, _Tiles(*np.array(_TILES)[:, needed])).by_time()


class _Layouts:
    """Layouts as arrays; `Layout` describes the members."""

    def __init__(self, problem: _Problem, tiles: _Tiles) -> None:
        self._problem, self._tiles = problem, tiles
        self._place()
        self._estimate()

    def _place(self) -> None:
        """Place inputs in shared memory, so that threads side by side read different banks."""
        problem, (z, y, x) = self._problem, self._problem.axes
        shape, slabs, height, depth, lines, positions, columns, _ = self._tiles
        channels, self.width, self.rows = (
            problem.geometry.channels,
            positions * columns,
            slabs * ROWS,
        )
        # Refused anyway from `_COUNTED` on: products of larger numbers could exceed 64 bits.
        self.extents = [
            np.minimum((size - 1) * axis.step + reach, _COUNTED)
            for axis, size, reach in (
                (z, depth, (z.most_taps - 1) * abs(z.offset_step) + 1),
                (y, height, (y.most_taps - 1) * abs(y.offset_step) + 1),
                (x, self.width, x.offsets[1] - x.offsets[0] + 1),
            )
        ]
        staged_depth, staged_height, extent = self.extents
        self.plane = -(-extent // x.step)
        line = self.plane * x.step + 2 * _SHIFT
        self.line = line + np.where(columns < 32, (columns - line) % 32, -line % CHUNK)
        self.line_pitch = staged_height * (self.line + _SHIFT)
        self.channel_pitch = staged_depth * (self.line_pitch + _SHIFT)
        size = channels * (self.channel_pitch + _SHIFT) + _SHIFT
        self.staged = channels * staged_depth * staged_height  # lines of inputs
        # Lines of several phases of x are put together in a buffer.
        self.buffer_line, buffer = np.zeros(len(shape), int), 0
        if x.phases > 1:
            together = STORED // problem.itemsize
            self.buffer_line = -(-(self.width * x.phases + together - 1) // together) * together
            buffer = self.rows * (lines * self.buffer_line + together - 1)
        sizes = (
            _SHARED + _LINE * self.staged,
            _LINE * depth * height,
            4 * self.rows,
            4 * self.rows * problem.steps,
            np.full(len(shape), 4 * problem.steps),
            4 * (size + -size % CHUNK),
            buffer * problem.itemsize,
        )
        *self.places, self.shared = itertools.accumulate(sizes)
        largest = np.maximum(np.maximum(staged_depth, staged_height), extent)
        self.fits = (self.shared <= problem.processor.shared) & (largest < _COUNTED // 2)

    def _estimate(self) -> None:
        """Estimate the time of the tiles."""
        problem, x, processor = self._problem, self._problem.axes[2], self._problem.processor
        _, slabs, height, depth, lines, positions, _, resident = self._tiles
        geometry, itemsize = problem.geometry, problem.itemsize
        passes, lines_of_rows = depth * height // lines, self.rows * depth * height
        extent = self.extents[2]
        pieces_of_line = pieces(extent, x.step == 1)
        instructions = (
            passes * problem.products * ((ROWS + 1) * positions + _STEP)
            + -(-self.staged * pieces_of_line // THREADS) * _STAGED
            + passes * positions * (ROWS * x.phases * (_BUFFERED if x.phases > 1 else _OUTPUT))
            + (problem.idle - 1) * lines_of_rows / WARPS * _FILLED
            + _TILE
        )
        # Lines move a part of a sector in vain.
        moved = problem.idle * lines_of_rows * (self.width * x.phases * itemsize + SECTOR)
        moved = moved + self.staged * (itemsize * extent + SECTOR)
        self.tiles = [
            -(-axis.positions(0) // size)
            for axis, size in zip(problem.axes, (depth, height, self.width), strict=True)
        ]
        units = float(geometry.groups * problem.busy) * -(-problem.slabs // slabs)
        count = float(geometry.batch) * self.tiles[0] * self.tiles[1] * self.tiles[2]
        turns = np.ceil(count * units / processor.multiprocessors)
        held = (processor.shared + RESERVED) // (self.shared + RESERVED)
        resident = np.maximum(1, np.minimum(resident, held))
        # If each block takes b of n tiles, n / b blocks begin in turn, and the last ones wait for
        # each other for b / 2 tiles. This b has the least sum of both costs.
        self.tiles_of_block = np.sqrt(2 * BLOCK_START / instructions * turns / resident)
        alone = 1 + _ALONE / np.minimum(resident, np.maximum(1, turns))
        self.cycles = turns * (instructions * alone + moved / _BYTES)

    def by_time(self) -> Iterator[Layout]:
        """Yield the layouts that fit, the fastest first."""
        order = np.argsort(self.cycles, kind="stable")
        return map(self._layout, order[self.fits[order]].tolist())

    def _layout(self, one: int) -> Layout:
        """Return layout `one`."""
        problem = self._problem

        def numbers(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
            return tuple(int(array[one]) for array in arrays)

        shape, slabs, height, depth, lines, *_ = numbers(self._tiles)
        counts, extents = numbers(self.tiles), numbers(self.extents)
        return Layout(
            shape=SHAPES[shape],
            axes=problem.axes,
            tile=(depth, height, int(self.width[one])),
            tiles=counts,
            slabs=problem.slabs,
            slabs_of_tile=slabs,
            lines=lines,
            steps=problem.steps,
            low=problem.axes[2].offsets[0],
            extent=extents[2],
            extents=extents[:2],
            pitches=numbers((self.line_pitch, self.line, self.plane)),
            channel_pitch=int(self.channel_pitch[one]),
            places=numbers(self.places),
            buffer_line=int(self.buffer_line[one]),
            shared=int(self.shared[one]),
            bulk=problem.processor.copies_in_bulk,
            units=problem.geometry.groups * -(-problem.slabs // slabs) * problem.busy,
            count=problem.geometry.batch * math.prod(counts),
            tiles_of_block=max(1, round(float(self.tiles_of_block[one]))),
            cycles=float(self.cycles[one]),
        )
