"""The gather kernel: one input channel for each group, on strides and odd widths.

The order of a sum is fixed by the geometry of one sample. Tiles follow from a model of the time
that candidates take, and may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._arrays import Array, Convolution
from .._geometry import ConvGeometry
from .._packing import long_reciprocal
from .._taps import AxisTaps, on_three_axes
from .launches import ELEMENTS, FLOATS, MAX_GRID, RESERVED, Instance, Launch, Processor
from .members import CALL, Members, Template, one_launch, parameter
from .memory import along_three_axes, lie_without_gaps
from .question import LARGE, Question, Refusal, TiledPlan, not_one_channel

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("gather_conv.cu",)
ORDER = "the bias, then the taps of z, y and x in the order of their inputs"
UNIT = "memory"

THREADS = 128
_BLOCKS = (64, 128, 160, 256)  # threads of blocks with strips
MOST_THREADS = max(_BLOCKS)
TOGETHER = 4  # output channels that a thread has at a time
LINES = 8  # most outputs of a strip
WIDTHS = (3, 5, 7)  # of kernels
_STEPS = (1, 2)  # from one output of a strip to the next
MAX_TAPS = 1024
CHUNK = 16  # bytes of a copy
_BARRIER, _CHANNEL = 16, 16  # bytes of the mbarrier, and of a channel's description
# Output channels of a tile: without strips, a multiple of TOGETHER.
_CHANNELS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_COUNTED = 2**20  # what the kernel counts in a tile stays below
_MOST_APART = 2**30  # elements along an axis from one place to another, absent ones included
_RESIDENT = {3: 8, 5: 7, 7: 6}  # blocks of a multiprocessor, by registers; half as many in float64
_REGISTERS = {3: 64, 5: 104, 7: 120}  # of a thread with strips, roughly


@dataclass(frozen=True)
class Shape:
    """What a kernel is built for; the macros of gather_conv.cu.

    Where `height` is 0, threads have positions, else strips of up to `lines` outputs.
    """

    taps: int
    height: int = 0
    step: int = 1
    lines: int = 1

    def weights(self, deep: int) -> int:
        """Return the weights of a channel, and its bias, in shared memory: planes of vectors."""
        return deep * -(-(self.height * self.taps + 1) // TOGETHER) * TOGETHER


SHAPES = (
    *(Shape(width) for width in WIDTHS),
    *(Shape(width, width, step, LINES) for width in WIDTHS for step in _STEPS),
)


def _shape(axes: tuple[AxisTaps, ...]) -> Shape:
    """Return the kernel for some taps: by strips, where outputs below each other share lines."""
    _, y, x = axes
    next_to_each_other = abs(y.offset_step) == abs(x.offset_step) == 1
    if y.kernel == x.kernel and y.step in _STEPS and next_to_each_other:
        return Shape(x.kernel, y.kernel, y.step, LINES)
    return Shape(x.kernel)


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    shape : Shape
        The kernel.
    axes : tuple of AxisTaps
        z, y and x.
    band : int
        The one of these axes that is divided; the axes before it have one element.
    tile, tiles : int
        Outputs of a tile along it, and how many tiles there are.
    positions : int
        Positions on the axes after it, for each output along it.
    lines : int
        Outputs of a strip.
    channels, channel_tiles : int
        Output channels of a tile, and how many tiles they are divided into.
    room : int
        Elements of shared memory for an input channel.
    shared : int
        Bytes of shared memory.
    count : int
        Tiles, over all samples.
    threads : int
        Threads of a block.
    bulk : bool
        Whether a piece of inputs is one copy, and not one for each chunk.
    cycles : float
        The model's time.
    """

    shape: Shape
    axes: tuple[AxisTaps, ...]
    band: int
    tile: int
    tiles: int
    positions: int
    lines: int
    channels: int
    channel_tiles: int
    room: int
    shared: int
    count: int
    threads: int
    bulk: bool
    cycles: float

    @property
    def whole(self) -> bool:
        """Whether each tile needs all inputs of its channels."""
        axis = self.axes[self.band]
        low, high = axis.offsets
        last = (axis.size_out - 1) * axis.step + high
        return self.tiles == 1 and low <= 0 and last >= axis.size_in - 1

    @property
    def pitches(self) -> tuple[int, ...]:
        """Staged elements from one input to the next along each axis."""
        return _pitches(self.axes)

    def __str__(self) -> str:
        box = ["1"] * self.band + [str(axis.size_out) for axis in self.axes[self.band :]]
        box[self.band] = str(self.tile)
        strips = f", strips of {self.lines}" if self.shape.height else ""
        return (
            f"{self.count} tiles of ({' x '.join(box)}) positions and {self.channels} channels"
            f"{strips}"
        )


def _pitches(axes: tuple[AxisTaps, ...]) -> tuple[int, ...]:
    _, y, x = axes
    return y.size_in * x.size_in, x.size_in, 1


class GatherPlan(TiledPlan[Layout]):
    """How a convolution runs by gather_conv.cu."""


PLAN = GatherPlan


def plan(question: Question) -> GatherPlan | Refusal:
    """Return the plan by which threads gather what an output needs, or why there is none."""
    geometry, processor = question.geometry, question.processor
    other = not_one_channel(geometry, question.dtype)
    if other:
        return other
    unsuited = _unsuited(geometry)
    if unsuited:
        return unsuited
    layout = _layout(geometry, question.dtype.itemsize, processor)
    if layout is None:
        return "no tile fits shared memory, or its inputs lie too far apart"
    if layout.count > MAX_GRID // 2:
        return LARGE
    blocks = layout.count
    instance = _instance(question.dtype.name, layout.shape)
    return GatherPlan(Launch(instance, blocks, layout.threads, layout.shared, blocks), layout)


PLANS = {"gather": plan}


def _instance(dtype: str, shape: Shape) -> Instance:
    defines = (
        ("ELEMENT", ELEMENTS[dtype]),
        ("TAPS", str(shape.taps)),
        ("HEIGHT", str(shape.height)),
        ("STEP", str(shape.step)),
        ("LINES", str(shape.lines)),
    )
    return Instance("gather_conv.cu", "gather_conv", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for dtype in FLOATS:
        for shape in SHAPES:
            yield _instance(dtype, shape)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: GatherPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    template = Template(SOURCES[0], _arguments(plan.layout, question.geometry, strides, bias))
    return one_launch(device, plan.launch, template)


def _arguments(
    layout: Layout, geometry: ConvGeometry, strides: ConvStrides, bias: Array | None
) -> Members:
    """Return the members of ``struct Arguments``."""
    input_axes, weight_axes = map(along_three_axes, (strides.input_axes, strides.weight_axes))
    axes = zip(
        layout.axes,
        input_axes,
        weight_axes,
        along_three_axes(strides.out_axes),
        layout.pitches,
        strict=True,
    )
    sizes, taps = zip(*((axis.size_in, axis.kernel) for axis in layout.axes), strict=True)
    dense = lie_without_gaps(sizes, input_axes)
    joined = layout.whole and lie_without_gaps(
        (geometry.groups, *sizes), (strides.input[1], *input_axes)
    )
    # The rows of all groups of a convolution are one axis; in a transposed one they may be.
    group, row = strides.weight[:2]
    rows, group, row = (1, row, 0) if group == geometry.rows * row else (geometry.rows, group, row)
    weights_joined = (
        rows == 1
        and all(axis.offset_step > 0 for axis in layout.axes)
        and lie_without_gaps((geometry.groups * geometry.rows, *taps), (group, *weight_axes))
    )
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "outputs": geometry.groups * geometry.rows,
        "rows": geometry.rows,
        "input_batch": strides.input[0],
        "input_group": strides.input[1],
        "out_batch": strides.out[0],
        "out_row": strides.out[2],
        "weight_rows": rows,
        "weight_group": group,
        "weight_row": row,
        "axis": [_axis(*one) for one in axes],
        "band": layout.band,
        "tile": layout.tile,
        "tiles": layout.tiles,
        "positions": layout.positions,
        "lines": layout.lines,
        "channels": layout.channels,
        "channel_tiles": layout.channel_tiles,
        "per_tiles": long_reciprocal(layout.tiles),
        "per_channel_tiles": long_reciprocal(layout.channel_tiles),
        "room": layout.room,
        "taps": math.prod(taps),
        "dense": dense,
        "bulk": dense and layout.bulk,
        "joined": joined,
        "weights_joined": weights_joined,
    }


def _axis(axis: AxisTaps, data: int, weight: int, out: int, pitch: int) -> Members:
    """Return a ``struct Axis``; its weights are in the order of their inputs."""
    ascending = axis.offset_step > 0
    return {
        "size_in": axis.size_in,
        "size_out": axis.size_out,
        "kernel": axis.kernel,
        "step": axis.step,
        "low": axis.offsets[0],
        "apart": abs(axis.offset_step),
        "input": data,
        "weight_first": 0 if ascending else (axis.kernel - 1) * weight,
        "weight": weight if ascending else -weight,
        "out": out,
        "pitch": pitch,
    }


# Tiles ----------------------------------------------------------------------------------------


def _unsuited(geometry: ConvGeometry) -> Refusal | None:
    """Return why the kernel is not for the taps of a convolution, None where it is."""
    taps = math.prod(axis.kernel for axis in geometry.axes)
    if geometry.axes[-1].kernel not in WIDTHS:
        return f"its kernel is {geometry.axes[-1].kernel} wide, not 3, 5 or 7"
    if taps > MAX_TAPS:
        return f"its kernel has {taps} taps, more than {MAX_TAPS}"
    if max(axis.phases for axis in geometry.axes) > 1:
        return "it is transposed with a stride"
    return None


def _layout(geometry: ConvGeometry, itemsize: int, processor: Processor) -> Layout | None:
    """Return the layout that takes the fewest cycles; None where no tile fits."""
    axes = on_three_axes(geometry.axes)
    spans = (axis.reach * pitch for axis, pitch in zip(axes, _pitches(axes), strict=True))
    if max(spans) >= _MOST_APART:
        return None
    return next(candidates(geometry, axes, itemsize, processor), None)


# Cycles of a warp: for a tile, for 32 chunks of inputs, for positions, for their outputs beside
# the products, for a line of taps of TOGETHER channels, for products, and for weights. These and
# the following numbers were fitted to the times of ten tilings of each of 51 convolutions in
# float32 and float16 on an H200.
_TILE, _CHUNKS, _POSITION, _OUTPUT, _LINE, _PRODUCT, _WEIGHT = 16, 16, 10, 8, 4, 1, 44
_BYTES = 14  # bytes that a multiprocessor moves in a cycle
_WAIT = 400  # cycles until the first inputs of a multiprocessor's tiles arrive
_ALONE = 3.5  # factor of the latency that few blocks do not hide

# The model of strips, in instructions of a warp: for a tile, for the strips of all threads, for a
# strip of a channel, for a product, to load an input or a weight from shared memory, for steps of
# two, which use every second bank, to widen 16 bits, and to copy a weight to shared memory. The
# numbers were fitted to 22 tilings of each of 80 convolutions.
_BLOCK, _PLACES, _STRIP, _ADD, _LOAD, _EVEN, _WIDEN, _BRING = 100, 15, 85, 0.35, 2.7, 1.1, 2.3, 130
_COPY = 40  # for 32 chunks without bulk copies: counted, not measured
_SCHEDULERS = 4
_STRIP_BYTES, _STRIP_WAIT = 22.8, 2900
_FEW_WARPS = 1.56  # factor of the latency that few warps do not hide
_APART = 1.17  # share that does not overlap where a multiprocessor has all its tiles at a time


class _Tiles(NamedTuple):
    """The quantities that the time of tiles depends on, as arrays: one element for each tiling.

    Attributes
    ----------
    channels, groups : array of int
        Output and input channels of a tile.
    room : array of int
        Elements of shared memory for an input channel.
    items : array of int
        Positions, or strips, of each output channel.
    lines : array of int
        Outputs of a strip.
    threads : array of int
        Threads of a block.
    moved : array of int
        Bytes of inputs and outputs.
    waves, resident : array
        Tiles of a multiprocessor, and tiles that it holds at a time.
    """

    channels: np.ndarray
    groups: np.ndarray
    room: np.ndarray
    items: np.ndarray
    lines: np.ndarray
    threads: np.ndarray
    moved: np.ndarray
    waves: np.ndarray
    resident: np.ndarray


def _cycles(tiles: _Tiles, axes: tuple[AxisTaps, ...], itemsize: int) -> np.ndarray:
    """Return the model's time where a thread has a position in several channels."""
    taps, width = math.prod(axis.kernel for axis in axes), axes[2].kernel
    turns = -(-tiles.items // THREADS)
    output = _OUTPUT + taps / width * _LINE / TOGETHER + taps * _PRODUCT
    warp = _TILE + turns * (_POSITION + tiles.channels * output)
    chunks = -(-tiles.room * itemsize // (32 * CHUNK))
    warp = warp + tiles.groups * chunks / (THREADS // 32) * _CHUNKS
    warp = warp + -(-tiles.channels * (taps + 1) // THREADS) * _WEIGHT
    busy = np.maximum(THREADS // 32 * warp, tiles.moved / _BYTES)
    resident = np.minimum(tiles.resident, _RESIDENT[width] * 4 // max(4, itemsize))
    alone = 1 + _ALONE / np.minimum(resident, tiles.waves) ** 2
    cycles: np.ndarray = tiles.waves * busy * alone + np.ceil(tiles.waves / resident) * _WAIT
    return cycles


def _cycles_of_strips(
    tiles: _Tiles, shape: Shape, deep: int, itemsize: int, bulk_copies: bool
) -> np.ndarray:
    """Return the model's time where a thread has a strip of outputs in several channels."""
    area, warps = shape.taps * shape.height, tiles.threads // 32
    inputs = ((tiles.lines - 1) * shape.step + shape.height) * shape.taps
    load = _LOAD + (_EVEN if shape.step == 2 and itemsize == 4 else 0)
    load += _WIDEN if itemsize == 2 else 0
    strip = _STRIP + deep * (area * (tiles.lines * _ADD + _LOAD) + inputs * load)
    turns, sharers = -(-tiles.items // tiles.threads), np.maximum(1, tiles.threads // tiles.items)
    warp = _BLOCK + turns * (_PLACES + -(-tiles.channels // sharers) * strip)
    warp = warp + tiles.channels * deep * area / tiles.threads * _BRING
    if not bulk_copies:
        warp = warp + tiles.groups * -(-tiles.room * itemsize // (32 * CHUNK)) / warps * _COPY
    registers = _REGISTERS[shape.taps] * max(4, itemsize) // 4
    resident = np.maximum(1, np.minimum(tiles.resident, 2**16 // (registers * tiles.threads)))
    computed = tiles.waves * warps * warp / _SCHEDULERS
    moved = tiles.waves * tiles.moved / _STRIP_BYTES
    apart = _APART * np.minimum(computed, moved) * np.minimum(1, resident / tiles.waves)
    few = 1 + _FEW_WARPS / (np.minimum(resident, tiles.waves) * warps / _SCHEDULERS) ** 2
    cycles: np.ndarray = (np.maximum(computed, moved) + apart) * few
    cycles += np.ceil(tiles.waves / resident) * _STRIP_WAIT
    return cycles


def candidates(
    geometry: ConvGeometry,
    axes: tuple[AxisTaps, ...],
    itemsize: int,
    processor: Processor,
) -> Iterator[Layout]:
    """Yield the layouts that fit shared memory, the fastest first.

    They are compared as arrays: a loop over hundreds of them would take most of the time of
    planning.
    """
    trivial = (a.size_in == a.size_out == a.kernel == 1 for a in axes[:2])
    band = next((i for i, one in enumerate(trivial) if not one), 2)
    axis, inner, shape, deep = axes[band], axes[band + 1 :], _shape(axes), axes[0].kernel
    tile, channels, threads = np.ix_(
        [-(-axis.size_out // (1 << n)) for n in range((axis.size_out - 1).bit_length() + 1)],
        [count for count in _CHANNELS if shape.height or count % TOGETHER == 0],
        _BLOCKS if shape.height else [THREADS],
    )
    taps = math.prod(a.kernel for a in axes)
    positions = math.prod(a.size_out for a in inner)
    if positions >= _COUNTED:
        return
    chunk = CHUNK // itemsize
    tiles = -(-axis.size_out // tile)
    reach = (tile - 1) * axis.step + (axis.kernel - 1) * abs(axis.offset_step) + 1
    elements = np.minimum(axis.size_in, reach) * math.prod(a.size_in for a in inner)
    room = (-(-elements // chunk) + 1) * chunk
    groups = np.minimum(geometry.groups, (channels + geometry.rows - 2) // geometry.rows + 1)
    weights = shape.weights(deep) if shape.height else taps + 1  # of an output channel
    used = _BARRIER + channels * (_CHANNEL + weights * max(4, itemsize)) + groups * room * itemsize
    fits = (used <= processor.shared) & (np.maximum(tile * positions, groups * room) < _COUNTED)
    rows = tile if band == 1 else np.full_like(tile, axes[1].size_out)
    strips = -(-rows // shape.lines)
    channel_tiles = -(-geometry.groups * geometry.rows // channels)
    work = _Tiles(
        channels=channels,
        groups=groups,
        room=room,
        items=tile * positions // rows * strips if shape.height else tile * positions,
        lines=-(-rows // strips),
        threads=threads,
        moved=(groups * room + channels * tile * positions) * itemsize,
        waves=np.ceil(float(geometry.batch) * channel_tiles * tiles / processor.multiprocessors),
        resident=np.maximum(1, (processor.shared + RESERVED) // (used + RESERVED)),
    )
    bulk = processor.copies_in_bulk
    if shape.height:
        cycles = _cycles_of_strips(work, shape, deep, itemsize, bulk)
    else:
        cycles = _cycles(work, axes, itemsize)
    found = {
        "tile": tile,
        "tiles": tiles,
        "lines": work.lines,
        "channels": channels,
        "channel_tiles": channel_tiles,
        "room": room,
        "shared": used,
        "threads": threads,
        "cycles": cycles,
    }
    columns = [np.broadcast_to(array, cycles.shape).flat for array in found.values()]
    order = np.argsort(cycles, axis=None, kind="stable")
    for one in order[np.broadcast_to(fits, cycles.shape).flat[order]].tolist():
        numbers = {name: column[one].item() for name, column in zip(found, columns, strict=True)}
        count = geometry.batch * numbers["channel_tiles"] * numbers["tiles"]  # of any size
        yield Layout(
            shape=shape,
            axes=axes,
            band=band,
            positions=positions,
            count=count,
            bulk=bulk,
            **numbers,
        )
