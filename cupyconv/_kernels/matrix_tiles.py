"""How matrix_conv.cu divides outputs into tiles, and what a block holds in shared memory.

A tiling follows from a model of the time that candidates take. It may depend on the batch, as it
changes no sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .launches import SECTOR, Processor
from .matrix_shapes import MAX_STAGES, Block, Shape, blocks_of_shapes, pool_shapes, shapes
from .modes import SLOT
from .sums import Axis, Sum, even_parts, whole_multiple

MAX_STEPS = 2048  # K steps of a stage in the kernel's table of distances
# Distances of an input from the first of its tile, along samples, z, y and x, stay below these: the
# kernel packs them into 5, 5, 10 and 12 bits.
_REACHES = (32, 32, 1024, 4096)
_COUNTED = 2**16  # chunks that the kernel numbers in a plane or a stage stay below
_OF_CHUNK, _OF_PAIR = 12, 4  # bytes of shared memory that describe a chunk, or place a pair
_AHEAD = 8  # distances after the stage's own, which are read but not used


@dataclass(frozen=True)
class Tiling:
    """How outputs are divided into tiles, and what a block holds in shared memory.

    Attributes
    ----------
    summation : Sum
        The sum of an output.
    shape : Shape
        What the kernel is built for.
    tile, tiles : tuple of int
        Positions of a tile along samples, z, y and x, and the number of tiles along each; a
        position stands for `stacked` outputs along y.
    row_tiles : int
        Tiles along the rows of the matrix product.
    plane_pitch, row_pitch, segment_pitch : int
        16-byte chunks from one plane, row and column tile to the next.
    slots, lattice_slots : int
        16-byte chunks of a half of K in a stage, and of one polyphase component.
    extent : tuple of int
        Chunks of y and x that a tile reads.
    reach : tuple of int
        Distance of the tile's last input from its first, along samples, z, y and x.
    stages, weight_stages : int
        Pipeline stages of inputs and of weights.
    chunk : int
        Blocks of channels that rounds of staging are made up of.
    deep : int
        Blocks of channels that a producer thread copies to the same chunks one after the other.
    group : int
        K steps of a stage of weights.
    resident : bool
        Whether weights are copied once for all tiles of a block.
    shared : int
        Bytes of shared memory.
    stores_most : bool
        Whether storing a tile takes about as long as its products.
    cycles : float
        The model's time.
    """

    summation: Sum
    shape: Shape
    tile: tuple[int, ...]
    tiles: tuple[int, ...]
    row_tiles: int
    plane_pitch: int
    row_pitch: int
    segment_pitch: int
    slots: int
    lattice_slots: int
    extent: tuple[int, ...]
    reach: tuple[int, ...]
    stages: int
    weight_stages: int
    chunk: int
    deep: int
    group: int
    resident: bool
    shared: int
    stores_most: bool
    cycles: float

    @property
    def stacked(self) -> int:
        """Outputs along y of a position."""
        return self.summation.stacked

    @property
    def count(self) -> int:
        """Tiles of a phase of a group."""
        return self.row_tiles * math.prod(self.tiles)

    def __str__(self) -> str:
        samples, z, y, x = self.tile
        box = " x ".join(map(str, (samples, z, y * self.stacked, x)))
        return (
            f"tiles of {self.shape.rows} rows x ({box}) outputs in {self.shape.columns} columns, "
            f"{self.slots} 16-byte chunks, {self.stages} + {self.weight_stages} stages"
            f"{', weights stay' if self.resident else ''}"
        )


# Stages of inputs and of weights, the best first: where weights are resident, where stages of
# weights are long, and otherwise.
_RESIDENT = (6, 5, 4, 3)
_LONG_RINGS = ((6, 4), (5, 4), (6, 3), (5, 3), (6, 2), (5, 2))
# One warpgroup follows another by a stage of weights.
_STACKED_RINGS = ((6, 4), (5, 4), (6, 3), (5, 3), (4, 3), (3, 3))
_RINGS = (
    *((6, 4), (5, 4), (4, 4), (6, 3), (5, 3), (4, 3)),
    *((3, 4), (3, 3), (2, 4), (2, 3), (4, 2), (3, 2), (2, 2)),
)
_MOST_SAMPLES = 32  # samples of a tile
_CHUNK = 64  # blocks of channels of a round of staging, so that few rounds are not full
# Cycles of a block beside its products: it describes and stores a tile.
_TILE_CYCLES = 1500
# The part of the shorter of products and staging that the longer one does not hide.
_IN_THE_WAY = 0.15
_SINGLE = 1.5  # factor where values are copied one by one
_SECTOR_CYCLES = 1.6  # of a multiprocessor to store a sector, about its share of memory's rate
_POOLED_A_CYCLE = 6  # sums that a block pools in a cycle
_BROUGHT_A_CYCLE = 2800  # bytes that all multiprocessors together copy from the L2 cache


@dataclass(frozen=True)
class Task:
    """What a tiling is for.

    Attributes
    ----------
    summation : Sum
        The sum of an output.
    batch, groups : int
        Samples, and groups of channels.
    engine : str
        ``"hopper"`` (wgmma) or ``"portable"`` (mma).
    processor : Processor
        The GPU.
    window : int
        2 where outputs are pooled two by two along y and x, else 1.
    factor : float
        A factor of the cycles where tasks are compared.
    """

    summation: Sum
    batch: int
    groups: int
    engine: str
    processor: Processor
    window: int = 1
    factor: float = 1


def tiling(*tasks: Task) -> Tiling | None:
    """Return the tiling that takes the fewest cycles; None where nothing fits shared memory.

    The tasks differ in their sums and factors alone. No pooling window lies in two tiles.
    """
    return fastest(
        [trial for number, task in enumerate(tasks) for trial in trials_of(task, number)]
    )


def fastest(trials: Sequence[Trial]) -> Tiling | None:
    """Return the tiling of any trial that takes the fewest cycles, None where nothing fits."""
    trials = sorted(trials, key=lambda trial: trial.least * trial.task.factor)
    # Tiles of a single sample where no others fit: whether one fits does not depend on the batch.
    for samples in (_MOST_SAMPLES, 1):
        best, key = None, (math.inf, 0, 0, 0)
        for trial in trials:
            factor = trial.task.factor
            if trial.least * factor > key[0]:
                break
            for found in candidates(trial, samples, key[0] / factor):
                other = (found.cycles * factor, trial.number, -found.tile[3], trial.block.number)
                if other < key:
                    best, key = found, other
        if best:
            return best
    return None


def trials_of(task: Task, number: int = 0) -> list[Trial]:
    """Return the task with each of the shapes that it may have."""
    mode, window, engine = task.summation.mode, task.window, task.engine
    kinds = (shapes if window == 1 else pool_shapes)(mode, engine)
    return [Trial(task, number, block) for block in blocks_of_shapes(kinds, mode, engine, window)]


class Trial:
    """A task with one of the shapes, and what all its tiles have in common.

    Attributes
    ----------
    task, block
        The task, and the shape.
    number : int
        The place of the task among the tasks that are compared.
    row_tiles, units : int
        Tiles along the rows of the matrix product, and over all rows, groups and phases.
    products : float
        Cycles of the products of a tile.
    values, pace, slower : float
        Values to copy for a position that shares no inputs, values that are copied in a cycle, and
        a factor of this time.
    groups : tuple of int
        K steps of a stage of weights where stages are short, and where they are long.
    step_bytes : int
        Bytes of the weights of a K step.
    may_stay : bool
        Whether weights stay where there is room: with a single row tile.
    copied, least_copied : float
        Bytes of the weights of a sum, and what a tile copies of them at least.
    lines : float
        Lines of outputs for each line of positions.
    least : float
        A lower bound of the cycles: it counts full tiles, and each position's inputs once.
    """

    def __init__(self, task: Task, number: int, block: Block) -> None:
        summation, mode = task.summation, task.summation.mode
        z, y, x = summation.axes
        self.task, self.number, self.block = task, number, block
        self.row_tiles = -(-summation.matrix_rows // block.rows)
        self.units = self.row_tiles * task.groups * summation.phases
        products = summation.mean_steps * block.rows * (block.columns * summation.stacked)
        self.products = products * mode.block * mode.products / mode.rate * block.narrow
        lattices = y.lattices * x.lattices
        blocks = summation.blocks * mode.block * summation.halves / 2
        self.values = blocks * lattices * z.most_taps
        # The cycles are Hopper's. Products by mma take longer, so that few producer warps matter
        # only where an input has a single tap.
        self.pace = block.pace if summation.steps_inside <= lattices else block.fast_pace
        self.slower = 1 if x.pairs else _SINGLE
        # Without chains of products the length of a weight stage changes no sum.
        self.groups = (summation.group, summation.group)
        if mode.parts == 1 and block.shape.slabs == 2:
            inside = max(1, summation.depth * summation.steps_inside)
            self.groups = (even_parts(inside, mode.group // 2), even_parts(inside, mode.group))
        self.step_bytes = block.shape.slabs * mode.slab_bytes
        self.may_stay = self.units == 1
        self.copied = summation.mean_steps * self.step_bytes
        self.least_copied = 0 if self.may_stay else self.copied
        self.lines = summation.matrix_rows / self.row_tiles / summation.fold[2].count
        multiprocessors, positions = (
            task.processor.multiprocessors,
            task.batch * summation.positions,
        )
        tiles = self.units * -(-positions // block.columns)
        # Positions of a tile, if all multiprocessors had the same number of them.
        each = positions * self.units / multiprocessors / -(-tiles // multiprocessors)
        widest = min(whole_multiple(summation.sizes[2], summation.unit * x.spread), block.columns)
        staged = self.values * each / self.pace * self.slower * (1 + 12 / widest)
        self.least = least_cycles(self, tiles, staged, self.stores(each / widest, widest))

    def stores(self, lines: float, width: int) -> float:
        """Return the cycles in which a tile of some lines of positions is stored, or pooled."""
        shape, summation = self.block.shape, self.task.summation
        if self.task.window > 1:
            return shape.rows * shape.columns / _POOLED_A_CYCLE
        width *= summation.fold[2].count * summation.mode.itemsize
        # Full sectors and partial ones.
        return self.lines * lines * (width / SECTOR + 1.5) * _SECTOR_CYCLES


def candidates(trial: Trial, samples: int, most: float) -> Iterator[Tiling]:
    """Yield tilings of at most `samples` samples.

    Some tilings that take more cycles than others, or than `most`, are left out.
    """
    task, block, summation = trial.task, trial.block, trial.task.summation
    (z, y, x), (_, axis_y, axis_x) = summation.sizes, summation.axes
    if summation.depth * summation.steps_inside > MAX_STEPS:
        return
    if _exceeds(trial, _least_chunks(trial)):
        return
    most_samples, halo = min(samples, task.batch), axis_x.halo
    for held, depth, height, width, row_pitch, by_rows in _boxes(summation, block, task.window):
        held = min(held, most_samples)
        along = (-(-task.batch // held), -(-z // depth), -(-y // height), -(-x // width))
        tiles = trial.units * math.prod(along)
        if least_cycles(trial, tiles) > most:
            continue
        row, lines = width + halo, height + axis_y.halo
        if axis_x.pairs:
            row += row % 2
        extent = (lines, min(row_pitch, row))
        staged = trial.values * held * depth * (lines * extent[1]) / trial.pace
        staged *= trial.slower * (1 + 12 / width)
        stores = trial.stores(held * depth * height, width)
        if least_cycles(trial, tiles, staged, stores) <= most:
            box = _Box((held, depth, height, width), along, extent, row_pitch, row, by_rows)
            found = _fitted(trial, box, tiles, staged, stores)
            if found:
                most = min(most, found.cycles)
                yield found


@lru_cache(maxsize=1024)
def _widths(size: int, unit: int, columns: int) -> tuple[int, ...]:
    """Return widths that divide a row of `size` positions evenly, the widest first."""
    even = {even_parts(size, widest) for widest in (*range(8, columns + 1, 8), columns)}
    widths = {whole_multiple(width, unit) if width < size else width for width in even}
    return tuple(sorted(widths, reverse=True))


def _boxes(
    summation: Sum, block: Block, window: int
) -> Iterator[tuple[int, int, int, int, int, bool]]:
    """Yield tiles: samples, z, y, x, the chunks of a row, and whether each is a column tile."""
    _, axis_y, axis_x = summation.axes
    (z, y, x), unit, columns = summation.sizes, summation.unit, block.columns
    # Tiles begin with a pooling window and with a whole period of spread inputs.
    window = math.lcm(window, axis_y.spread, axis_y.stacked) // axis_y.stacked
    rows = columns // block.shape.segment
    rows_suit = rows >= y or rows % window == 0
    for width in _widths(x, math.lcm(unit, axis_x.spread), columns):
        pitch = width + axis_x.halo
        if rows_suit and width <= block.shape.segment:
            row_pitch = max(whole_multiple(pitch, unit), block.shape.segment)
            yield 1, 1, min(y, rows), width, row_pitch, True
        if width >= x:
            pitch = _whole_row(axis_x, width)
        pitch = whole_multiple(pitch, unit)
        height = (columns - width) // pitch + 1
        if height < y:
            height -= height % window
            if height == 0:
                continue
            height = min(y, whole_multiple(even_parts(y, height), window))
        if height < y:
            yield 1, 1, height, width, pitch, False
            continue
        planes = (columns - (y - 1) * pitch - width) // (pitch * (y + axis_y.halo)) + 1
        depth = even_parts(z, min(z, planes, 32))
        yield planes // depth if depth == z else 1, depth, y, width, pitch, False


def _whole_row(axis: Axis, width: int) -> int:
    """Return the 16-byte chunks of a row of all positions.

    The padding after one row is the padding before the next one.
    """
    row = width + axis.halo
    if axis.taps.step == axis.taps.phases == 1:
        row = max(width, row - axis.absent, axis.absent + axis.taps.size_in)
    return row


def _groups_of_sum(summation: Sum, group: int) -> int:
    """Return the number of weight stages of `group` K steps in a whole sum.

    A weight stage ends with its input stage, and the last input stage of a tap of z may have fewer
    blocks of channels.
    """
    whole, rest = divmod(summation.blocks, summation.depth)
    inside = summation.steps_inside
    groups = whole * -(-summation.depth * inside // group) + -(-rest * inside // group)
    return summation.axes[0].most_taps * groups


def _rings(trial: Trial) -> Iterator[tuple[int, int, int]]:
    """Yield K steps of a weight stage, and stages of inputs and of weights, the best first.

    As two warpgroups take turns stage by stage, few long stages are better, if there is room for
    many stages of inputs.
    """
    summation, (short, long) = trial.task.summation, trial.groups
    count = _groups_of_sum(summation, short) if trial.may_stay else 0
    if 0 < count <= MAX_STAGES:
        yield from ((short, stages, count) for stages in _RESIDENT)
    if long > short:
        rings = _STACKED_RINGS if summation.stacked > 1 else _LONG_RINGS
        yield from ((long, *ring) for ring in rings)
    yield from ((short, *ring) for ring in _RINGS)


class _Box(NamedTuple):
    """The positions of a tile, and how its inputs lie in shared memory.

    `Tiling` describes the first two fields, `extent` and `row_pitch`; `x_extent` counts the
    chunks of a row, and `by_rows` says whether each row is a column tile.
    """

    tile: tuple[int, ...]
    tiles: tuple[int, ...]
    extent: tuple[int, ...]
    row_pitch: int
    x_extent: int
    by_rows: bool


def _fitted(trial: Trial, box: _Box, tiles: int, staged: float, stores: float) -> Tiling | None:
    """Return the tiling of a box, None where it exceeds shared memory or the kernel's counters."""
    task, shape, row_tiles = trial.task, trial.block.shape, trial.row_tiles
    summation, mode = task.summation, task.summation.mode
    samples, depth, height, _ = box.tile
    reach = _reach(summation, box)
    if reach[1] >= _REACHES[1] or reach[2] >= _REACHES[2] or reach[3] >= _REACHES[3]:
        return None
    plane_pitch = box.row_pitch * (height + summation.axes[1].halo)
    segment_pitch = box.row_pitch if box.by_rows else shape.segment
    reached = (
        (samples * depth - 1) * plane_pitch + (box.extent[0] - 1) * box.row_pitch + box.x_extent
    )
    slots, lattice_slots = _chunks(summation, shape, segment_pitch, box.row_pitch, reached)
    if max(slots, plane_pitch) >= _COUNTED or _exceeds(trial, slots):
        return None
    fixed, input_stage = _shared_by_inputs(trial, slots)
    room = task.processor.shared - fixed
    for group, stages, weight_stages in _rings(trial):
        used = stages * input_stage + weight_stages * group * trial.step_bytes
        if used <= room:
            break
    else:
        return None
    resident = trial.may_stay and weight_stages == _groups_of_sum(summation, group)
    deep = _deep(summation, shape.loads(mode, task.engine), stages)
    copied = 0 if resident else trial.copied
    cycles = _cycles(trial, tiles, staged, stores, copied)
    return Tiling(
        summation=summation,
        shape=shape,
        tile=box.tile,
        tiles=box.tiles,
        row_tiles=row_tiles,
        plane_pitch=plane_pitch,
        row_pitch=box.row_pitch,
        segment_pitch=segment_pitch,
        slots=slots,
        lattice_slots=lattice_slots,
        extent=box.extent,
        reach=reach,
        stages=stages,
        weight_stages=weight_stages,
        chunk=whole_multiple(min(summation.blocks, _CHUNK), math.lcm(summation.depth, deep)),
        deep=deep,
        resident=resident,
        group=group,
        shared=fixed + used,
        stores_most=task.window == 1 and stores > 1.3 * trial.products,
        cycles=cycles,
    )


def _reach(summation: Sum, box: _Box) -> tuple[int, int, int, int]:
    """Return the distance of a tile's last input from its first, along samples, z, y and x."""
    z, y, x = summation.axes
    return (
        box.tile[0] - 1,
        (box.tile[1] - 1) * z.taps.step,
        (box.extent[0] - 1) * y.taps.step + (y.lattices - 1) * y.spacing,
        (box.extent[1] - 1) * x.taps.step + (x.lattices - 1) * x.spacing,
    )


def _shared_by_inputs(trial: Trial, slots: int) -> tuple[int, int]:
    """Return bytes of shared memory without stages, and of a stage of inputs of `slots` chunks."""
    summation = trial.task.summation
    steps = summation.depth * summation.steps_inside + _AHEAD
    chunk = _OF_CHUNK + (_OF_PAIR if summation.axes[2].in_odd_lattices else 0)
    fixed = trial.block.declared + slots * chunk + 4 * summation.stacked * steps
    return fixed, summation.depth * slots * summation.mode.parts * summation.halves * SLOT


def _exceeds(trial: Trial, slots: int) -> bool:
    """Return whether shared memory has no room for two stages of inputs and one of weights."""
    fixed, input_stage = _shared_by_inputs(trial, slots)
    least = fixed + 2 * input_stage + trial.groups[0] * trial.step_bytes
    return least > trial.task.processor.shared


def _least_chunks(trial: Trial) -> int:
    """Return a lower bound of the chunks of a stage: the inputs of a row of the least width."""
    summation, segment = trial.task.summation, trial.block.shape.segment
    (_, _, x), (_, axis_y, axis_x) = summation.sizes, summation.axes
    row = min(8, x) + axis_x.halo
    if x <= trial.block.columns:
        row = min(row, _whole_row(axis_x, x))
    return _chunks(summation, trial.block.shape, segment, row, axis_y.halo * row + row)[0]


def least_cycles(trial: Trial, tiles: int, staged: float = 0, stores: float = 0) -> float:
    """Return a lower bound of the cycles, as if weights stayed wherever they may.

    Most candidates exceed another tiling's cycles already by this bound.
    """
    return _cycles(trial, tiles, staged, stores, trial.least_copied)


def _cycles(trial: Trial, tiles: int, staged: float, stores: float, weights: float) -> float:
    """Return the cycles of the tiles.

    Products, `staged` and `stores` are the cycles of a tile, and `weights` the bytes of its weights
    that are not in shared memory yet.
    """
    products, multiprocessors = trial.products, trial.task.processor.multiprocessors
    longer, shorter = (products, staged) if products > staged else (staged, products)
    hidden = longer + _IN_THE_WAY * shorter
    # All blocks together copy the weights of their tiles.
    copied = min(tiles, multiprocessors) * weights / _BROUGHT_A_CYCLE
    each = max(hidden, copied) + _TILE_CYCLES + stores
    return -(-tiles // multiprocessors) * each * trial.block.slower


def _chunks(
    summation: Sum, shape: Shape, segment_pitch: int, row_pitch: int, used: int
) -> tuple[int, int]:
    """Return the 16-byte chunks of a half of K in a stage, and of a polyphase component.

    The tile's columns read `used` chunks of a component. Columns outside of the tile may read the
    next component.
    """
    _, y, x = summation.axes
    lattices = y.lattices * x.lattices
    column_tiles = shape.columns // shape.segment // summation.stacked
    read = (column_tiles - 1) * segment_pitch + shape.segment + y.halo * row_pitch + x.halo
    # Producers take 32 chunks, or 32 pairs, at a time: with an even number of components the odd
    # ones begin at half of all chunks.
    if x.pairs and x.lattices % 2 == 0:
        component = whole_multiple(read, 32)
        return whole_multiple(lattices * component, 64), component
    component = whole_multiple(min(used, read), 2)
    return whole_multiple((lattices - 1) * component + read, 64), component


def _deep(summation: Sum, loads: int, stages: int) -> int:
    """Return for how many blocks of channels a producer thread keeps its chunks.

    It computes their addresses once. Half of the ring is staged while the other half is read.
    """
    pixels = 2 if summation.axes[2].pairs else 1
    words = -(-pixels * summation.mode.itemsize // 4)  # registers of a load
    most = loads // (summation.mode.block * words)
    return max(1, min(most, summation.blocks, stages * summation.depth // 2))
