"""How the depthwise kernel divides outputs into tiles, and how it stages their inputs.

A plan takes the tiles that are fastest by a model, among those that fit shared memory. Tiles may
depend on the batch: a sum is computed in one thread, or on Tensor Cores line by line of its taps,
whatever its tile is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from .._geometry import ConvGeometry
from .._taps import AxisTaps, on_three_axes
from .launches import RESERVED, SECTOR, Processor
from .question import LARGE, Refusal

THREADS = 128
WARPS = THREADS // 32
MAX_PHASES = 8
MAX_TAPS = 1024
CHUNK = 16  # bytes of a load
# How inputs reach shared memory: by elements, by chunks that begin at multiples of 16 bytes in
# memory, or by chunks that begin anywhere there.
ELEMENTWISE, ALIGNED, ANYWHERE = 0, 1, 2
_RUN, _STRIP, _TAPS, _BARRIER = 16, 32, 16, 16  # bytes of descriptions in shared memory
_LEAST_LINE = 16  # chunks of a staged line that one bulk copy brings
_COUNTED = 2**16  # what the kernel counts in a tile stays below
_MAX_COORDINATE = 2**30
# Targets without a Tensor Core variant: sm_75 lacks bfloat16, and float16 alone is not worth one.
WITHOUT_TENSOR_CORES = ("sm_75",)


@dataclass(frozen=True)
class Shape:
    """What a kernel is built for; the macros of depthwise_conv.cu.

    Attributes
    ----------
    taps : int
        Width of the kernels whose taps slide; 1 for Tensor Cores, which take several widths.
    lines : int
        Lines of outputs of a thread.
    resident : int
        Blocks that a multiprocessor shall hold, which bounds the registers.
    tensor_cores : bool
        Whether Tensor Cores multiply, and not FMA instructions.
    """

    taps: int
    lines: int
    resident: int
    tensor_cores: bool = False


# By the accumulator's size: a kernel for each width whose taps slide. The first one also takes all
# geometries whose taps do not.
SHAPES = {
    4: (Shape(3, 8, 6), Shape(1, 8, 6), Shape(5, 4, 6), Shape(7, 8, 4)),
    8: (Shape(3, 4, 4),),
}
# For 16-bit elements, where taps of these widths slide.
TENSOR_CORE_SHAPE = Shape(1, 8, 8, tensor_cores=True)
_TENSOR_CORE_WIDTHS = range(2, 10)


# A number, or an array of it: one layout then stands for many, which are compared without a loop.
Number: TypeAlias = Any

_DESCRIBED = 6  # chunks that a thread could load in the time in which it describes a run


@dataclass(frozen=True)
class Runs:
    """How threads share a staged line: as `count` runs, in which each thread copies one chunk."""

    chunks: Number
    count: Number

    @property
    def total(self) -> Number:
        """Chunks of a line."""
        return self.chunks * self.count

    @property
    def cost(self) -> Number:
        """Chunk loads of a thread in the time of a line, with idle threads and descriptions."""
        return self.count * (THREADS / (THREADS // self.chunks) + _DESCRIBED)


@dataclass(frozen=True)
class Staging:
    """How lines of inputs reach shared memory.

    Attributes
    ----------
    vectors, elements : Runs
        Chunks of a line that is staged 16 bytes at a time, or element by element.
    pitch : int
        The most elements from one line to the next.
    whole : bool
        Whether a line is one bulk copy, where strides allow it: the array's lines are whole chunks,
        and long enough.
    cost : float
        Chunk loads of a thread in the time of a line, with idle threads and descriptions.
    """

    vectors: Runs
    elements: Runs
    pitch: Number
    whole: bool
    cost: Number

    @classmethod
    def of_many(cls, stagings: Sequence[Staging]) -> Staging:
        """Return one whose numbers are arrays."""
        chunks = (
            (one.vectors.chunks, one.vectors.count, one.elements.chunks, one.elements.count)
            for one in stagings
        )
        vectors, count, elements, element_count = np.array(list(chunks)).T
        return cls(
            Runs(vectors, count),
            Runs(elements, element_count),
            np.array([one.pitch for one in stagings]),
            stagings[0].whole,
            np.array([one.cost for one in stagings]),
        )

    def runs(self, loads: int) -> Runs:
        """Return how threads share a line that is staged by such loads."""
        return self.elements if loads == ELEMENTWISE else self.vectors


@dataclass(frozen=True)
class Layout:
    """Tiles along z, y and x, and what lies in shared memory.

    Attributes
    ----------
    geometry, itemsize, processor
        The convolution, the bytes of an element, and the GPU.
    shape : Shape
        The kernel.
    axes, offsets : tuple
        The taps of z, y and x, and the least and the largest input offset of any of them.
    taps : int
        Taps of the kernel, over all axes.
    slides : bool
        Whether neighbouring outputs share windows of inputs.
    tile : tuple of int
        Positions of a tile in each phase.
    channels, rows : int
        Channels of a tile, and output channels of each.
    staging : Staging
        How lines of inputs reach shared memory.
    """

    geometry: ConvGeometry
    itemsize: int
    processor: Processor
    shape: Shape
    axes: tuple[AxisTaps, ...]
    offsets: tuple[tuple[int, int], ...]
    taps: int
    slides: bool
    tile: tuple[Number, ...]
    channels: Number
    rows: int
    staging: Staging

    @property
    def tiles(self) -> tuple[Number, ...]:
        """Tiles along each axis."""
        sizes = zip(self.axes, self.tile, strict=True)
        return tuple(-(-axis.positions(0) // size) for axis, size in sizes)

    @property
    def channel_tiles(self) -> Number:
        """Tiles along the channels."""
        return -(-self.geometry.groups // self.channels)

    @property
    def row_tiles(self) -> int:
        """Tiles along the output channels of a channel."""
        return -(-self.geometry.rows // self.rows)

    @property
    def count(self) -> Number:
        """Tiles, over all samples."""
        tiles = self.channel_tiles * math.prod(self.tiles) * self.row_tiles
        return self.geometry.batch * tiles

    @cached_property
    def extent(self) -> tuple[Number, ...]:
        """Inputs that are staged along each axis."""
        sizes = zip(self.axes, self.tile, self.offsets, strict=True)
        return tuple(_extent(axis, size, offsets) for axis, size, offsets in sizes)

    @property
    def low(self) -> tuple[int, ...]:
        """The least input offset of any tap along each axis."""
        return tuple(low for low, _ in self.offsets)

    @property
    def section(self) -> Number:
        """Outputs of a section where the lines of a thread are sections of one, else 0."""
        in_sections = _has_one_line(self.axes)
        return self.tile[2] * self.axes[2].phases // self.shape.lines if in_sections else 0

    @property
    def columns(self) -> Number:
        """Threads along x, each with two neighbouring outputs of a line, or of each section."""
        width = self.tile[2] * self.axes[2].phases
        return (self.section if _has_one_line(self.axes) else width) // 2

    @property
    def strips(self) -> Number:
        """Threads along y in each phase."""
        return 1 if _has_one_line(self.axes) else self.tile[1] // self.shape.lines

    @property
    def staged(self) -> Number:
        """Lines of inputs that are staged."""
        return self.channels * self.extent[0] * self.extent[1]

    @cached_property
    def items(self) -> Number:
        """Strips of outputs."""
        z, y, _ = self.axes
        return self.rows * self.channels * self.tile[0] * z.phases * self.strips * y.phases

    @property
    def values(self) -> Number:
        """Weights and biases."""
        return self.rows * self.channels * (self.taps + 1)

    @property
    def inputs(self) -> Number:
        """Elements of shared memory for inputs."""
        depth, height, _ = self.extent
        chunk = CHUNK // self.itemsize
        plane = depth * (height * self.staging.pitch + chunk - 1) + chunk - 1
        return -(-(self.channels * plane + chunk - 1) // chunk) * chunk

    @cached_property
    def shared(self) -> Number:
        """Bytes of shared memory."""
        runs = np.maximum(self.staging.vectors.count, self.staging.elements.count)
        shared = 3 * MAX_PHASES * _TAPS + _BARRIER + self.staged * runs * _RUN + self.items * _STRIP
        shared += self.inputs * self.itemsize + self.values * max(4, self.itemsize)
        if self.shape.tensor_cores:
            z, y, _ = self.axes
            shared += self.rows * self.channels * z.kernel * y.kernel * _DIAGONALS + WARPS * _BAND
        return shared

    @property
    def fits(self) -> Number:
        """Whether shared memory has room for a tile, and the kernel can count what is in it."""
        counted = np.maximum(np.maximum(self.inputs, self.items), self.values) < _COUNTED
        return counted & (self.shared <= self.processor.shared)

    @cached_property
    def cycles(self) -> Number:
        """The cycles that the model gives it."""
        return _cycles(self)

    def __str__(self) -> str:
        box = " x ".join(map(str, self.tile))
        return (
            f"{self.count} tiles of {self.channels} x ({box}) positions and {self.rows} rows"
            f"{', taps slide' if self.slides else ''}{', in sections' if self.section else ''}"
            f"{', by Tensor Cores' if self.shape.tensor_cores else ''}"
        )


def _has_one_line(axes: tuple[AxisTaps, ...]) -> bool:
    """Return whether outputs have one line in each phase, which threads then divide in sections."""
    return axes[1].positions(0) == 1


def _extent(axis: AxisTaps, size: Number, offsets: tuple[int, int]) -> Number:
    """Return the inputs that `size` positions of each phase reach."""
    low, high = offsets
    return (size - 1) * axis.step + high - low + 1


def layout_of(geometry: ConvGeometry, itemsize: int, processor: Processor) -> Layout | Refusal:
    """Return the layout that takes the fewest cycles, or why the kernel has none."""
    axes = on_three_axes(geometry.axes)
    taps = math.prod(axis.kernel for axis in axes)
    reach = max(axis.reach for axis in axes)
    phases = max(axis.phases for axis in axes)
    if taps > MAX_TAPS:
        return f"its kernel has {taps} taps, more than {MAX_TAPS}"
    if phases > MAX_PHASES:
        return f"its stride is larger than {MAX_PHASES}"
    outputs = geometry.batch * geometry.groups * geometry.rows
    outputs *= math.prod(axis.size_out for axis in axes)
    if reach >= _MAX_COORDINATE or outputs >= 2**62:  # counts of tiles stay below 64 bits
        return LARGE
    return next(candidates(geometry, itemsize, processor), "no tile fits shared memory")


def _slides(axes: tuple[AxisTaps, ...], widths: Container[int]) -> bool:
    """Return whether the next output, and the next line, take the next inputs."""
    z, y, x = axes
    across = x.step == abs(x.offset_step) == 1 and x.kernel in widths
    down = y.kernel == 1 or (not _has_one_line(axes) and y.step == abs(y.offset_step) == 1)
    return across and down and z.phases == y.phases == x.phases == 1


def _shape(axes: tuple[AxisTaps, ...], itemsize: int, processor: Processor) -> tuple[Shape, bool]:
    """Return the kernel for a convolution, and whether its taps slide."""
    if (
        processor.target not in WITHOUT_TENSOR_CORES
        and itemsize == 2
        and not _has_one_line(axes)
        and axes[2].positions(0) >= _LEAST_WIDTH
        and _slides(axes, _TENSOR_CORE_WIDTHS)
    ):
        return TENSOR_CORE_SHAPE, True
    shapes = SHAPES[max(4, itemsize)]
    if not _slides(axes, [shape.taps for shape in shapes]):
        return shapes[0], False
    return next(shape for shape in shapes if shape.taps == axes[2].kernel), True


@lru_cache(maxsize=4096)
def _runs(chunks: int, unit: int, most: int) -> Runs:
    """Return runs of a multiple of `unit` chunks that leave few threads idle.

    A line has at least `chunks` of them, and at most `most`.
    """
    sizes = np.arange(unit, min(THREADS, most) + 1, unit)
    runs = Runs(sizes, -(-chunks // sizes))
    # Of runs that cost the same, those of most chunks.
    best = np.lexsort((-sizes, runs.cost, runs.total > most))[0]
    return Runs(int(runs.chunks[best]), int(runs.count[best]))


def _fewest_runs(chunks: int) -> Runs:
    """Return few runs of an even number of chunks, for lines whose time matters little."""
    count = next(n for n in itertools.count(-(-chunks // THREADS)) if chunks % (2 * n) == 0)
    return Runs(chunks // count, count)


def _staging(
    shape: Shape, axis: AxisTaps, width: int, extent: int, itemsize: int, processor: Processor
) -> Staging:
    """Return how lines of `extent` inputs are staged, for `width` positions in each phase."""
    chunk = CHUNK // itemsize
    aside = chunk - 1  # elements of a chunk before the first input, or after the last one
    needed = -(-(extent + 2 * aside) // chunk)
    ragged = axis.size_in % chunk != 0
    whole = processor.copies_in_bulk and not ragged and needed >= _LEAST_LINE
    if shape.tensor_cores:
        # Chunks of the outputs that a warp computes together, and two more for the last of these.
        needed = -(-width // _BAND_WIDTH) * _BAND_WIDTH // chunk + 2
        vectors = _runs(needed, 1, needed + needed // 16)
        length = vectors.total * chunk
        # An odd number of chunks spreads lines over all banks of shared memory.
        pitch = length + (chunk if vectors.total % 2 == 0 else 0)
        cost = vectors.cost * (_SHIFTED if ragged else 1)
        return Staging(vectors, _fewest_runs(length), pitch, whole, cost)
    vectors = _runs(needed, 1, needed + needed // 16)
    pitch = vectors.total * chunk + aside
    elements = _runs(extent, 2, pitch)
    # The strides are not known yet: the model takes the array to have no gaps between lines.
    cost = elements.cost if axis.size_in % 2 else vectors.cost + (_RAGGED if ragged else 0)
    return Staging(vectors, elements, pitch, whole and itemsize > 2, cost)


def _splits(size: int, unit: int, most: int) -> list[int]:
    """Return multiples of `unit`, up to `most`, that divide `size` into 1, 2, 4, ... even parts."""
    splits: list[int] = []
    parts = -(-size // most)
    while not splits or splits[-1] > unit:
        part = -(-size // parts)
        splits.append(-(-part // unit) * unit)
        parts *= 2
    return sorted(set(splits))


def _boxes(axes: tuple[AxisTaps, ...], shape: Shape, chunk: int) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of the tiles that are tried."""
    z, y, x = axes
    in_sections = _has_one_line(axes)
    unit = chunk if shape.tensor_cores else math.lcm(2, x.phases) // x.phases
    sections = shape.lines if in_sections else 1
    most = 2 * THREADS // x.phases // unit * unit
    widths = _splits(x.positions(0), unit * sections, most * sections)
    heights = [1] if in_sections else _splits(y.positions(0), shape.lines, 128)
    depths = _splits(z.positions(0), 1, 32)
    for width, height, depth in itertools.product(widths, heights, depths):
        yield depth, height, width


def candidates(geometry: ConvGeometry, itemsize: int, processor: Processor) -> Iterator[Layout]:
    """Yield the layouts that fit shared memory, the fastest first."""
    axes = on_three_axes(geometry.axes)
    shape, slides = _shape(axes, itemsize, processor)
    offsets = tuple(axis.offsets for axis in axes)
    z, y, x = axes
    taps = math.prod(axis.kernel for axis in axes)
    rows = min(geometry.rows, max(1, MAX_TAPS // (taps * z.phases * y.phases)))
    stagings: dict[int, Staging] = {}
    tiles = []
    for tile in _boxes(axes, shape, CHUNK // itemsize):
        width, extents = tile[2], list(map(_extent, axes, tile, offsets))
        if max(extents) >= _COUNTED:
            continue
        if width not in stagings:
            stagings[width] = _staging(shape, x, width, extents[2], itemsize, processor)
        # A tile has several channels only where it has all positions of each.
        one = all(axis.positions(0) <= size for axis, size in zip(axes, tile, strict=True))
        for channels in _splits(geometry.groups, 1, 256) if one else [1]:
            tiles.append((*tile, channels))
    if not tiles:
        return
    layouts = Layout(
        geometry=geometry,
        itemsize=itemsize,
        processor=processor,
        shape=shape,
        axes=axes,
        offsets=offsets,
        taps=taps,
        slides=slides,
        tile=tuple(np.array(tiles).T[:3]),
        channels=np.array(tiles).T[3],
        rows=rows,
        staging=Staging.of_many([stagings[width] for _, _, width, _ in tiles]),
    )
    for one in np.argsort(layouts.cycles, kind="stable").tolist():
        if layouts.fits[one]:
            *tile, channels = tiles[one]
            yield replace(layouts, tile=tuple(tile), channels=channels, staging=stagings[tile[2]])


# Instructions of a thread: for a chunk of inputs, for its outputs beside their products, for each
# output, and for each product where taps slide and where they do not.
_CHUNK, _ITEM, _OUTPUT, _SLIDING, _GATHERED = 30, 60, 4, 1.25, 3
_RAGGED = 28  # chunks that a line costs more if its ends lie within chunks
_SHIFTED = 1.5  # how much more a line for Tensor Cores costs if it is not whole chunks
# On Tensor Cores: bytes of the weights of a line of taps, and of a strip of outputs; the lines and
# outputs of a band; instructions of a warp for a band, and for each line of taps. For images of
# fewer outputs than _LEAST_WIDTH, FMA instructions are faster.
_DIAGONALS, _BAND, _BAND_LINES, _BAND_WIDTH = 160, 8 * 36 * 4, 16, 64
_BAND_COST, _LINE_COST = 320, 35
_LEAST_WIDTH = 48
_ALONE, _ALONE_ON_TENSOR_CORES = 4, 8  # how much longer one block takes than one of many
_TILE = 600  # to describe a tile and to bring its weights
_BYTES = 19  # bytes that a multiprocessor moves in a cycle


def _cycles(layout: Layout) -> Number:
    """Return the model's time of a multiprocessor."""
    z, y, x = layout.axes
    depth, height, width = layout.tile
    shape, processor, itemsize = layout.shape, layout.processor, layout.itemsize
    rows = layout.rows * layout.channels
    instructions = layout.staged * layout.staging.cost / THREADS * _CHUNK
    if shape.tensor_cores:
        bands = rows * depth * -(-height // _BAND_LINES)
        cost = _BAND_COST + _LINE_COST * z.kernel * y.kernel
        instructions += bands * cost * -(-width // _BAND_WIDTH) / WARPS
    else:
        turns = -(-layout.items // (THREADS // layout.columns))
        taps = layout.taps / math.prod(axis.phases for axis in layout.axes)
        output = _OUTPUT + taps * (_SLIDING if layout.slides else _GATHERED)
        instructions += turns * (_ITEM + 2 * shape.lines * output)
    lines = rows * depth * z.phases * height * y.phases  # of outputs
    moved = layout.staged * (layout.extent[2] * itemsize + SECTOR)
    moved += lines * (width * x.phases * itemsize + SECTOR)
    tiles = -(-layout.count // processor.multiprocessors)
    held = (processor.shared + RESERVED) // (layout.shared + RESERVED)
    resident = np.maximum(1, np.minimum(shape.resident, held))
    # Many blocks hide what few wait for.
    alone = _ALONE_ON_TENSOR_CORES if shape.tensor_cores else _ALONE
    waiting = 1 + alone / np.minimum(resident, tiles) ** 2
    return tiles * (np.maximum(instructions, moved / _BYTES) + _TILE) * waiting
