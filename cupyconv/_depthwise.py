"""Second room, the depthwise kernel: how one input channel for each group is divided into tiles.

The order of a sum is fixed by the geometry of one sample. Tiles follow from a model of the time
that candidates take, and may depend on the batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ._geometry import ConvGeometry
from ._taps import AxisTaps, on_three_axes

THREADS = 128
MAX_PHASES = 8
MAX_TAPS = 1024
CHUNK = 16  # bytes of a load
ALIGNED, ANYWHERE = 1, 2  # where chunks begin in memory; 0 where elements are staged one by one
_RUN, _STRIP, _TAPS, _BARRIER = 16, 32, 16, 16  # bytes of descriptions
_LEAST_LINE = 16  # chunks of a staged line that is copied whole
_COUNTED = 2**16  # what the kernel counts in a tile stays below
_MAX_COORDINATE = 2**30
_RESERVED = 1024  # bytes that a multiprocessor keeps of each block's shared memory


@dataclass(frozen=True)
class Shape:
    """What a kernel is built for; the macros of depthwise_conv.cu."""

    taps: int
    lines: int
    resident: int
    matrix: bool = False


# By the accumulator's size, widths of kernels whose taps slide. The first is for all others, too.
SHAPES = {
    4: (Shape(3, 8, 6), Shape(1, 8, 6), Shape(5, 4, 6), Shape(7, 8, 4)),
    8: (Shape(3, 4, 4),),
}


# For 16-bit elements, kernels of these widths whose taps slide by matrix units.
MATRIX_SHAPE = Shape(1, 8, 8, matrix=True)
_MATRIX_WIDTHS = range(2, 10)


_DESCRIBED = 6  # what the description of a run costs, in chunks


@dataclass(frozen=True)
class Runs:
    """How threads share the chunks of a staged line: in runs, of which a block takes several."""

    chunks: int  # of a run
    count: int  # of a line

    @property
    def cost(self) -> float:
        """Chunks that all threads could take in the time of a line."""
        return self.count * (THREADS / (THREADS // self.chunks) + _DESCRIBED)


@lru_cache(maxsize=4096)
def _runs(chunks: int, unit: int, room: int) -> Runs:
    """Return runs of a multiple of `unit` chunks, `room` in all, that leave few threads idle."""
    sizes = range(unit, min(THREADS, room) + 1, unit)
    found = (Runs(size, -(-chunks // size)) for size in sizes)
    fitting = (runs for runs in found if runs.chunks * runs.count <= room)
    return min(fitting, key=lambda runs: (runs.cost, -runs.chunks))


def _fewest_runs(chunks: int) -> Runs:
    """Return few runs of an even number of `chunks` in all: those whose time matters little."""
    count = next(n for n in itertools.count(-(-chunks // THREADS)) if chunks % (2 * n) == 0)
    return Runs(chunks // count, count)


@dataclass(frozen=True)
class Layout:
    """Tiles along z, y and x, and what lies in shared memory.

    Attributes
    ----------
    tile, tiles : tuple of int
        Positions of a tile in each phase, and how many tiles there are.
    extent : tuple of int
        Inputs that are staged.
    channels, rows : int
        Channels of a tile, and output channels of each.
    slides : bool
        Whether neighbouring outputs share windows of inputs.
    section : int
        Outputs of a section where the lines of a thread are sections of one, else 0.
    columns, strips : int
        Threads along x, and along y in each phase.
    staged, items : int
        Lines that are staged, and strips of outputs.
    whole : bool
        Whether a staged line is one copy, where strides allow it: the array's lines are whole
        chunks, and long enough.
    vectors, elements : Runs
        Of lines that are staged by chunks of 16 bytes, or element by element.
    pitch : int
        Elements from one staged line to the next for matrix units; 0 where it follows from strides.
    inputs : int
        Room for staged inputs.
    shared : int
        Bytes of shared memory.
    cycles : float
        Of the model.
    """

    shape: Shape
    axes: tuple[AxisTaps, ...]
    low: tuple[int, ...]
    tile: tuple[int, ...]
    tiles: tuple[int, ...]
    extent: tuple[int, ...]
    channels: int
    channel_tiles: int
    rows: int
    row_tiles: int
    slides: bool
    section: int
    columns: int
    strips: int
    staged: int
    items: int
    whole: bool
    vectors: Runs
    elements: Runs
    pitch: int
    inputs: int
    shared: int
    count: int  # of tiles, over all samples
    cycles: float

    def __str__(self) -> str:
        box = " x ".join(map(str, self.tile))
        return (
            f"{self.count} tiles of {self.channels} x ({box}) positions and {self.rows} rows"
            f"{', taps slide' if self.slides else ''}{', in sections' if self.section else ''}"
            f"{', by matrix units' if self.shape.matrix else ''}"
        )


def _slides(axes: tuple[AxisTaps, ...], widths: Container[int], in_sections: bool) -> bool:
    """Return whether the next output, and the next line, take the next inputs."""
    z, y, x = axes
    across = x.step == abs(x.offset_step) == 1 and x.kernel in widths
    down = y.kernel == 1 or (not in_sections and y.step == abs(y.offset_step) == 1)
    return across and down and z.phases == y.phases == x.phases == 1


def _splits(size: int, unit: int, most: int) -> list[int]:
    """Return multiples of `unit`, up to `most`, that divide `size` into 1, 2, 4, ... even parts."""
    found: list[int] = []
    parts = -(-size // most)
    while not found or found[-1] > unit:
        part = -(-size // parts)
        found.append(-(-part // unit) * unit)
        parts *= 2
    return sorted(set(found))


def layout(
    geometry: ConvGeometry,
    itemsize: int,
    shared: int,
    multiprocessors: int,
    matrix_units: bool,
    bulk_copies: bool,
) -> Layout | None:
    """Return the layout that takes the fewest cycles; None for what the kernel cannot take."""
    axes = on_three_axes(geometry.axes)
    taps = math.prod(axis.kernel for axis in axes)
    reach = max(axis.reach for axis in axes)
    if taps > MAX_TAPS or reach >= _MAX_COORDINATE or max(a.phases for a in axes) > MAX_PHASES:
        return None
    found = _candidates(
        geometry, axes, itemsize, shared, multiprocessors, matrix_units, bulk_copies
    )
    return min(found, key=lambda layout: layout.cycles, default=None)


# What a thread does, in instructions: for a chunk of inputs, for its outputs beside their products,
# for each output, and for each product where taps slide and where they do not.
_CHUNK, _ITEM, _OUTPUT, _SLIDING, _GATHERED = 30, 60, 4, 1.25, 3
_RAGGED = 28  # chunks that a line costs more whose ends lie within some
_SHIFTED = 1.5  # what a line for matrix units costs, in those, that is not whole chunks
# Of matrix units: bytes of the weights of a line of taps, and of a strip of outputs; the lines and
# outputs of a band. What a warp does for it, and for each line of taps. Fewer outputs than these
# are better off without.
_DIAGONALS, _BAND, _BAND_LINES, _BAND_WIDTH = 160, 8 * 36 * 4, 16, 64
_BAND_COST, _LINE_COST = 320, 35
_LEAST_WIDTH = 48
_ALONE, _ALONE_ON_MATRIX_UNITS = 4, 8  # how much longer one block takes than one of many
_TILE = 600  # to describe a tile and to bring its weights
_BYTES = 19  # that a multiprocessor moves in a cycle
_SECTOR = 32  # bytes that a line moves in vain, at its two ends


def _candidates(
    geometry: ConvGeometry,
    axes: tuple[AxisTaps, ...],
    itemsize: int,
    shared: int,
    multiprocessors: int,
    matrix_units: bool,
    bulk_copies: bool,
) -> Iterator[Layout]:
    accumulator = max(4, itemsize)
    shapes = SHAPES[accumulator]
    z, y, x = axes
    in_sections = y.positions(0) == 1
    matrix = (
        matrix_units
        and itemsize == 2
        and not in_sections
        and x.positions(0) >= _LEAST_WIDTH
        and _slides(axes, _MATRIX_WIDTHS, in_sections)
    )
    slides = matrix or _slides(axes, [shape.taps for shape in shapes], in_sections)
    shape = next((s for s in shapes if slides and s.taps == x.kernel), shapes[0])
    if matrix:
        shape = MATRIX_SHAPE
    taps = math.prod(axis.kernel for axis in axes)
    offsets = [axis.offsets for axis in axes]
    rows = min(geometry.rows, max(1, MAX_TAPS // (taps * z.phases * y.phases)))
    row_tiles = -(-geometry.rows // rows)
    unit = CHUNK // itemsize if matrix else math.lcm(2, x.phases) // x.phases
    lines = shape.lines if in_sections else 1
    most_columns = 2 * THREADS // x.phases // unit * unit
    widths = _splits(x.positions(0), unit * lines, most_columns * lines)
    heights = [1] if in_sections else _splits(y.positions(0), shape.lines, 128)
    depths = _splits(z.positions(0), 1, 32)
    for width, height, depth in itertools.product(widths, heights, depths):
        tile = (depth, height, width)
        tiles = tuple(-(-axis.positions(0) // size) for axis, size in zip(axes, tile, strict=True))
        extent = tuple(
            (size - 1) * axis.step + high - low + 1
            for axis, size, (low, high) in zip(axes, tile, offsets, strict=True)
        )
        # A line may begin with any element of a chunk; pairs of elements are read together.
        most = CHUNK // itemsize - 1  # by which a pitch exceeds what it is for
        needed = -(-(extent[2] + 2 * most) // (most + 1))
        vectors = _runs(needed, 1, needed + needed // 16)
        pitch = vectors.chunks * vectors.count * (most + 1) + most
        elements = _runs(extent[2], 2, pitch)
        if matrix:  # blocks for outputs that are summed up together, and two more for the last ones
            blocks = -(-width // _BAND_WIDTH) * _BAND_WIDTH // (most + 1) + 2
            vectors = _runs(blocks, 1, blocks + blocks // 16)
            pitch = vectors.chunks * vectors.count * (most + 1)
            elements = _fewest_runs(pitch)
            pitch += most + 1 if vectors.chunks * vectors.count % 2 == 0 else 0  # over all banks
        whole = bulk_copies and (matrix or itemsize > 2)
        ragged = x.size_in % (most + 1) != 0
        whole &= not ragged and needed >= _LEAST_LINE
        # As if there were no gaps between lines.
        if matrix:
            line_cost = vectors.cost * (_SHIFTED if ragged else 1)
        elif x.size_in % 2:
            line_cost = elements.cost
        else:
            line_cost = vectors.cost + (_RAGGED if ragged else 0)
        plane = (extent[0] * (extent[1] * pitch + most)) + most
        columns = width * x.phases // (2 * lines)
        strips = height // shape.lines if not in_sections else 1
        for channels in _splits(geometry.groups, 1, 256) if max(tiles) == 1 else [1]:
            staged = channels * extent[0] * extent[1]
            inputs = -(-(channels * plane + most) // (most + 1)) * (most + 1)
            values = rows * channels * (taps + 1)
            items = rows * channels * depth * z.phases * strips * y.phases
            descriptions = staged * max(vectors.count, elements.count) * _RUN + items * _STRIP
            own = 3 * MAX_PHASES * _TAPS + _BARRIER + descriptions
            own += inputs * itemsize + values * accumulator
            if matrix:
                own += rows * channels * z.kernel * y.kernel * _DIAGONALS + THREADS // 32 * _BAND
            if own > shared or max(inputs, items, values) >= _COUNTED:
                continue
            channel_tiles = -(-geometry.groups // channels)
            count = geometry.batch * channel_tiles * math.prod(tiles) * row_tiles
            resident = min(shape.resident, (shared + _RESERVED) // (own + _RESERVED))
            outputs = 2 * shape.lines
            terms = taps / math.prod(axis.phases for axis in axes)
            product = _SLIDING if slides else _GATHERED
            instructions = staged * line_cost / THREADS * _CHUNK
            if matrix:
                bands = rows * channels * depth * -(-height // _BAND_LINES)
                cost = _BAND_COST + _LINE_COST * z.kernel * y.kernel
                cost *= -(-width // _BAND_WIDTH)
                instructions += bands * cost / (THREADS // 32)
            else:
                turns_of_items = -(-items // (THREADS // columns))
                instructions += turns_of_items * (_ITEM + outputs * (_OUTPUT + terms * product))
            written = channels * rows * depth * z.phases * height * y.phases  # lines
            moved = staged * (extent[2] * itemsize + _SECTOR)
            moved += written * (width * x.phases * itemsize + _SECTOR)
            turns = -(-count // multiprocessors)
            # What few blocks wait for, many hide.
            alone = 1 + (_ALONE_ON_MATRIX_UNITS if matrix else _ALONE) / min(resident, turns) ** 2
            yield Layout(
                shape=shape,
                axes=axes,
                low=tuple(low for low, _ in offsets),
                tile=tile,
                tiles=tiles,
                extent=extent,
                channels=channels,
                channel_tiles=channel_tiles,
                rows=rows,
                row_tiles=row_tiles,
                slides=slides,
                section=width * x.phases // lines if in_sections else 0,
                columns=columns,
                strips=strips,
                staged=staged,
                items=items,
                whole=whole,
                vectors=vectors,
                elements=elements,
                pitch=pitch if matrix else 0,
                inputs=inputs,
                shared=own,
                count=count,
                cycles=turns * (max(instructions, moved / _BYTES) + _TILE) * alone,
            )
