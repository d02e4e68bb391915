"""Convolutions of arrays whose channels lie innermost, by wgmma: an implicit matrix product.

The copy engine brings pixels at the offset of a tap (im2col) and boxes of weights. What it cannot
read is copied first, with the same bits in the sums:

- an input whose channels do not lie innermost, or whose other strides or address are not multiples
  of 16 bytes; in several groups also one whose groups are not multiples of 32 bytes;
- a weight that does not lie as output channels, taps and input channels in memory; for float32
  accuracy all weights, as two TF32 numbers each.

The order of a sum follows from the geometry of a sample and from the number of multiprocessors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .._arrays import Array, Convolution
from .._chunks import chunks
from .._geometry import ConvGeometry
from .._packing import c_strides
from .._strides import ConvStrides
from .._taps import NO_AXIS, AxisTaps
from .._tensor_maps import ALIGNED as ALIGNED_WORDS
from .._tensor_maps import WORDS as MAP_WORDS
from . import sum_splits
from .im2col_maps import (
    ALIGNED,
    BROUGHT,
    SLICE_BYTES,
    STEP_BYTES,
    Copies,
    Source,
    Window,
    along,
    axes_of,
    inputs_of,
    is_expressible,
    phases_of,
    row_of,
    weights_of,
    window_of,
)
from .launches import ELEMENTS, INT32_LIMIT, SINGLES, WGMMA, Instance, Launch
from .members import CALL, Member, Members, Template, divisor, parameter
from .memory import lie_without_gaps
from .modes import TEAM, Mode, unscaled_mode
from .question import LARGE, MANY_AXES, Question, Refusal, TiledPlan, fits_32_bits, not_multiplied
from .workspace import most_workspace

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("im2col_conv.cu",)
ORDER = "taps of z, y and x, then channels; split-K ranges in order"
UNIT = "Tensor Core"

THREADS = 3 * TEAM  # two warpgroups multiply, two threads of the third have operands brought
MOST_STAGES = 8
MOST_PHASES = 8
_BARRIERS = 16  # bytes of a stage's two
# By the parts of a number: pixels and output channels of a tile; and the most of both for which
# there are registers for totals of ranges.
_TILES = {
    1: ((128, 256), (256, 160), (256, 128), (256, 64), (128, 128), (128, 64)),
    2: ((128, 128), (256, 64), (128, 64)),
}
_WITH_TOTALS = {1: (128, 128), 2: (128, 64)}
# A sum has at most this many split-K ranges, each of at least this many K steps.
_MOST_SPLITS, _LEAST_STEPS = 16, 8
_MOST_PARTIAL, _MOST_COPY = 32 << 20, 64 << 20  # bytes


# Plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How outputs and sums are divided.

    Attributes
    ----------
    pixels, columns : int
        Pixels and output channels of a tile.
    column_tiles : int
        Tiles of a group along the output channels.
    splits : int
        Ranges of a sum.
    apart : bool
        Whether ranges are tiles of their own, whose sums are stored.
    samples : tuple of int
        Samples of each chunk, where the input is copied or sums are stored.
    cycles, arranging : float
        The model's time for arrays in C order, and what copies and stores have of it that arrays
        whose channels lie innermost do not need.
    """

    pixels: int
    columns: int
    column_tiles: int
    splits: int
    apart: bool
    samples: tuple[int, ...]
    cycles: float
    arranging: float

    def __str__(self) -> str:
        apart = " apart" if self.apart else ""
        ranges = f", {self.splits} ranges{apart}" if self.splits > 1 else ""
        return f"tiles of {self.pixels} pixels x {self.columns} channels{ranges}"


@dataclass(frozen=True)
class Im2colPlan(TiledPlan[Layout]):
    """How a convolution runs by im2col_conv.cu.

    Attributes
    ----------
    parts : int
        Tensor Core numbers of a number; weights of two parts are copied however they lie.
    packed, copies, partial : int
        Bytes of the weights with their channels last, of a chunk's input, and of partial sums.
    """

    parts: int
    packed: int
    copies: int
    partial: int

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays."""
        return self.packed + self.copies + self.partial

    @property
    def in_place(self) -> Im2colPlan:
        """The plan as it is timed for arrays whose channels lie innermost."""
        cycles = self.layout.cycles - self.layout.arranging
        packed = self.packed if self.parts > 1 else 0
        return replace(self, layout=replace(self.layout, cycles=cycles), packed=packed, copies=0)


PLAN = Im2colPlan


def _stage(parts: int, pixels: int, columns: int) -> int:
    """Return the bytes of a stage."""
    return (pixels + parts * columns) * STEP_BYTES


def _stages(parts: int, pixels: int, columns: int) -> int:
    return min(room(columns) // _stage(parts, pixels, columns), MOST_STAGES)


def patch(columns: int) -> int:
    """Return the output channels that a warp stores at a time."""
    return 32 if columns % 64 else 64


def room(columns: int) -> int:
    """Return the bytes for stages, beside the patches."""
    return (224 - patch(columns) // 2) * 1024


def _patches(columns: int) -> int:
    """Return the bytes of the patches of all warps, with the bias."""
    return 8 * 4 * (16 + 1) * patch(columns)


def _instance(dtype: str, parts: int, pixels: int, columns: int) -> Instance:
    numbers = {"PARTS": parts, "PIXELS": pixels, "COLUMNS": columns}
    defines = (("ELEMENT", ELEMENTS[dtype]), *((name, str(n)) for name, n in numbers.items()))
    return Instance(SOURCES[0], "im2col_conv", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    if target in WGMMA:
        for dtype in SINGLES:
            yield from (_instance(dtype, 1, *tile) for tile in _TILES[1])
        yield from (_instance("float32", 2, *tile) for tile in _TILES[2])


def plan(question: Question) -> Im2colPlan | Refusal:
    """Return the plan of a convolution, or why there is none."""
    geometry, processor = question.geometry, question.processor
    mode = unscaled_mode(question.dtype.name, question.precision)
    if mode is None:
        return not_multiplied(question.dtype)
    if not processor.has_wgmma:
        return f"{processor.target} lacks wgmma"
    axes = axes_of(geometry)
    if len(axes) > 3:
        return MANY_AXES
    if not geometry.channels:
        return "it has no input channels"
    # Channels of all groups, or of both parts, up to the end of a tile or a K step, are coordinates
    # of 32 bits.
    row = mode.parts * row_of(geometry, mode.itemsize)
    across = geometry.groups * max(row, geometry.rows)
    if not fits_32_bits(geometry) or across >= INT32_LIMIT - 256:
        return LARGE
    if math.prod(axis.phases for axis in axes) > MOST_PHASES:
        return f"its outputs have more than {MOST_PHASES} phases"
    if not is_expressible(axes):
        return "its taps or steps reach further than the copy engine's"
    inputs = math.prod(axis.size_in for axis in axes) * geometry.groups * geometry.channels
    if _sample_bytes(geometry, mode) > max(_MOST_COPY, 4 * inputs):
        return "a copy of a sample would take too much memory"
    layout = min(_layouts(question, mode, axes), key=lambda layout: layout.cycles)
    tile = mode.parts, layout.pixels, layout.columns
    tiles = _tiles(axes, max(1, geometry.batch), layout.pixels) * geometry.groups
    tiles *= layout.column_tiles * layout.splits
    if tiles >= INT32_LIMIT // layout.pixels:
        return LARGE
    shared = _stages(*tile) * (_stage(*tile) + _BARRIERS) + _patches(layout.columns)
    return Im2colPlan(
        Launch(
            _instance(question.dtype.name, *tile),
            max(1, min(tiles, processor.multiprocessors)),
            THREADS,
            shared,
            early=True,
        ),
        layout,
        mode.parts,
        _packed(geometry, mode),
        _sample_bytes(geometry, mode) * max(layout.samples),
        _partial(geometry, layout.splits) * max(layout.samples) * layout.apart,
    )


PLANS: dict[str, Callable[[Question], Im2colPlan | Refusal]] = {"im2col": plan}


def _tiles(axes: Sequence[AxisTaps], samples: int, pixels: int) -> int:
    """Return the tiles of so many pixels of a group."""
    return sum(-(-samples * pixels_of(windows) // pixels) for windows in phases_of(axes))


def pixels_of(windows: Sequence[Window]) -> int:
    """Return the outputs of a sample in a phase."""
    return math.prod(window.outputs for window in windows)


def _packed(geometry: ConvGeometry, mode: Mode) -> int:
    taps = math.prod(axis.kernel for axis in geometry.axes)
    row = mode.parts * row_of(geometry, mode.itemsize)
    return geometry.groups * geometry.rows * taps * row * mode.itemsize


def _sample_bytes(geometry: ConvGeometry, mode: Mode) -> int:
    inputs = math.prod(axis.size_in for axis in geometry.axes)
    return geometry.groups * inputs * row_of(geometry, mode.itemsize) * mode.itemsize


def _outputs(geometry: ConvGeometry) -> int:
    """Return the outputs of a sample."""
    return geometry.groups * geometry.rows * math.prod(axis.size_out for axis in geometry.axes)


def _partial(geometry: ConvGeometry, splits: int) -> int:
    """Return the bytes of a sample's partial sums."""
    return 4 * _outputs(geometry) * splits


# Cycles in which a tile begins and ends, and sums that it stores in a cycle; bytes of copies with
# their channels last that a multiprocessor makes in a cycle, and of partial sums that it writes and
# reads; results that are stored one by one, for each phase along x; cycles of the launch of copies;
# and what products of two parts take beside theirs.
_TILE, _SUMS, _COPIED, _ADDED, _SCATTERED, _LAUNCH, _PARTS = 2500, 6, 5, 9, 1.8, 4900, 1.15


def _splits(question: Question, mode: Mode, axes: Sequence[AxisTaps], steps: int) -> int:
    """Return the ranges of sums of so many steps, which do not depend on the batch."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    pixels, columns = _WITH_TOTALS[mode.parts]
    tiles = geometry.groups * -(-geometry.rows // columns) * _tiles(axes, 1, pixels)
    splits = min(_MOST_SPLITS, steps // _LEAST_STEPS, multiprocessors // tiles)
    return max(1, min(splits, _MOST_PARTIAL // _partial(geometry, 1)))


def _layouts(question: Question, mode: Mode, axes: Sequence[AxisTaps]) -> Iterator[Layout]:
    """Yield the layouts with tiles of all shapes."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    step, phases = STEP_BYTES // mode.itemsize, phases_of(axes)
    blocks = -(-geometry.channels // step)
    counts = [math.prod(window.taps for window in windows) * blocks for windows in phases]
    splits = _splits(question, mode, axes, max(counts))
    steps, batch = sum(counts) / len(counts), max(1, geometry.batch)
    copied = batch * _sample_bytes(geometry, mode)
    places = math.prod(axis.size_out for axis in axes)
    in_units = len(phases) == 1 and places % 4 == 0  # as `_together` finds them in C order
    stored = 0 if in_units else axes[-1].phases * batch * _outputs(geometry) / _SCATTERED
    arranging = (copied / _COPIED + stored) / multiprocessors
    products = mode.products * (_PARTS if mode.parts > 1 else 1)
    packing = _LAUNCH + _packed(geometry, mode) / (_COPIED * multiprocessors)
    if mode.parts == 1:  # else weights are copied however they lie
        arranging, packing = arranging + packing, 0
    for apart in (False, True)[: 1 + (splits > 1)]:
        partial = _partial(geometry, splits) if apart else 0
        # The input may be a padded copy already, or the result be padded.
        parts = chunks(batch, max(1, _sample_bytes(geometry, mode), partial), copies=2)
        samples = tuple(part.stop - part.start for part in parts)
        if apart and _packed(geometry, mode) + partial * max(samples) > most_workspace(question):
            continue
        for pixels, columns in _TILES[mode.parts]:
            if splits > 1 and pixels * columns > math.prod(_WITH_TOTALS[mode.parts]):
                continue
            column_tiles, parts_of_tile = -(-geometry.rows // columns), 1
            tiles = sum(_tiles(axes, count, pixels) for count in samples)
            tiles *= geometry.groups * column_tiles
            if apart:
                tiles, parts_of_tile = tiles * splits, splits
            brought = _stage(mode.parts, pixels, columns) / BROUGHT
            of_step = max(pixels * columns * step * products / mode.rate, brought)
            of_tile = steps / parts_of_tile * of_step + _TILE + pixels * columns / _SUMS
            busy = -(-tiles // multiprocessors) * of_tile
            added = 2 * partial * batch / (_ADDED * multiprocessors)
            cycles = busy + added + arranging + packing
            yield Layout(
                *(pixels, columns, column_tiles, splits, apart, samples, cycles, arranging)
            )


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: Im2colPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    geometry, layout, item = question.geometry, plan.layout, question.dtype.itemsize
    operand = weights_of(geometry, strides, item, layout.columns, plan.parts)
    weights = Source(operand, device)
    # Chunks of as many samples have the same launches.
    counts = {*layout.samples, max(1, geometry.batch)}
    prepared = {n: _Chunk(n, plan, question, strides, bias, weights, device) for n in counts}
    whole, address = prepared[max(1, geometry.batch)], device.address
    parts = [*itertools.pairwise(itertools.accumulate(layout.samples, initial=0))]
    of_input, of_out = item * strides.input[0], item * strides.out[0]

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source, result, kernels = address(data), address(out), address(weight)
        term = 0 if bias is None else address(bias)
        as_one = not layout.apart and whole.inputs.is_readable(source)
        packed = None
        for first, end in [(0, geometry.batch)] if as_one else parts:
            chunk, begin = prepared[end - first], source + first * of_input
            packed = chunk.run(begin, kernels, packed, term, result + first * of_out)
        del packed  # the memory that these launches read

    return convolve


class _Chunk:
    """The launches of a number of samples."""

    def __init__(
        self,
        samples: int,
        plan: Im2colPlan,
        question: Question,
        strides: ConvStrides,
        bias: Array | None,
        weights: Source,
        device: Device,
    ) -> None:
        geometry, layout, dtype = question.geometry, plan.layout, question.dtype
        self.device, splits = device, layout.splits
        exact, pixels = plan.parts > 1, layout.pixels
        operand = inputs_of(samples, geometry, strides, dtype.itemsize, pixels, exact)
        self.inputs, self.weights = Source(operand, device), weights
        self.copies = Copies((weights, self.inputs), dtype, device)
        stored = strides
        self.partial = samples * _partial(geometry, splits) * layout.apart
        if layout.apart:
            # Partial sums lie as results do, as far as these lie together.
            across = geometry.groups, geometry.rows
            places = tuple(axis.size_out for axis in geometry.axes)
            shape: tuple[int, ...] = samples, *places, *across
            sample, *axes, group, row = c_strides(shape)
            of_out = strides.out[0], *strides.out_axes, *strides.out[1:]
            neighbours = 1
            if _together(geometry, strides) == OF_PIXELS:
                shape, neighbours = (samples, *across, *places), math.prod(places)
                sample, group, row, *axes = c_strides(shape)
                of_out = *strides.out, *strides.out_axes
            stored = strides._replace(out=(sample, group, row), out_axes=axes)
            self.sums = sum_splits.template(splits, shape, of_out, bias, neighbours)
            add = sum_splits.launch(dtype, math.prod(shape))
            self.add = device.launcher(replace(add, early=True))
        tiles = _tiles(axes_of(geometry), samples, layout.pixels)
        tiles *= geometry.groups * layout.column_tiles
        tiles *= splits if layout.apart else 1
        members = _arguments(samples, tiles, question, layout, stored, bias)
        self.missing = [0] * (MAP_WORDS * MOST_PHASES - MAP_WORDS * len(operand.of_copy))
        self.together = _together(geometry, stored)
        self.template = Template(SOURCES[0], members, ALIGNED_WORDS)
        grid = min(tiles, question.processor.multiprocessors)
        self.launch = device.launcher(replace(plan.launch, grid=grid))

    def run(
        self, data: int, kernels: int, packed: Array | None, bias: int, out: int
    ) -> Array | None:
        """Convolve the samples at an address; return the copy of the weights, if there is one."""
        packed, copy = self.copied(data, kernels, packed)
        maps, group = self.inputs.read(data, copy)
        weights, _ = self.weights.read(kernels, packed)
        partial = 0
        if self.partial:
            memory = self.device.workspace((self.partial,), np.dtype(np.uint8))
            partial = self.device.address(memory)
        together = self.together if (partial or out) % ALIGNED == 0 else NOTHING
        words = (*maps, *self.missing, *weights, out, partial, bias, group, data, kernels)
        self.launch(self.template.fill(*words, together))
        if self.partial:
            self.add(self.sums.fill(partial, out, bias))
        return packed

    def copied(
        self, data: int, kernels: int, packed: Array | None
    ) -> tuple[Array | None, Array | None]:
        """Return copies of weights and input, by one launch, where the copy engine needs them."""
        needed = (
            packed is None and not self.weights.is_readable(kernels),
            not self.inputs.is_readable(data),
        )
        own, copy = self.copies.make(needed, (kernels, data))
        return own if needed[0] else packed, copy


NOTHING, OF_CHANNELS, OF_PIXELS = range(3)


def _together(geometry: ConvGeometry, strides: ConvStrides) -> int:
    """Return what lies together in an output: a value of ``enum Together`` of im2col_conv.cu."""
    sample, group, row = strides.out
    sizes, steps = [axis.size_out for axis in geometry.axes], strides.out_axes
    if row == 1 and math.gcd(8, sample, *steps, geometry.rows) == 8:
        return OF_CHANNELS
    in_order = lie_without_gaps(sizes, steps) and all(axis.phases == 1 for axis in geometry.axes)
    units = math.gcd(4, sample, group, row, math.prod(sizes)) == 4
    return OF_PIXELS if in_order and units else NOTHING


def _arguments(
    samples: int,
    tiles: int,
    question: Question,
    layout: Layout,
    strides: ConvStrides,
    bias: Array | None,
) -> Members:
    """Return the members of ``struct Arguments``; `strides` are those of what is stored."""
    geometry, item = question.geometry, question.dtype.itemsize
    axes = axes_of(geometry)
    step, slices = STEP_BYTES // item, SLICE_BYTES // item
    blocks = -(-geometry.channels // step)
    last = geometry.channels - (blocks - 1) * step
    phases = phases_of(axes)
    counts = [-(-samples * pixels_of(windows) // layout.pixels) for windows in phases]
    firsts = itertools.accumulate(counts, initial=0)
    members: list[Members] = [
        {
            "window": _along_x_y_z([struct_of(window) for window in windows], _NO_WINDOW),
            "tile": first,
            "pixels": samples * pixels_of(windows),
        }
        for windows, first in zip(phases, firsts, strict=False)
    ]
    none = {**members[0], "tile": 0, "pixels": 0}

    def of_x_y_z(strides: Sequence[int]) -> list[int]:
        return _along_x_y_z(along(geometry, strides), 0)

    kernel = _along_x_y_z([axis.kernel for axis in axes], 1)
    return {
        "input": [CALL] * (MAP_WORDS * MOST_PHASES),
        "weight": [CALL] * MAP_WORDS,
        "out": CALL,
        "partial": CALL,
        "bias": parameter(bias),
        "input_group": CALL,
        "low_part": row_of(geometry, item),
        "array": CALL,
        "kernels": CALL,
        "phase": [*members, *[none] * (MOST_PHASES - len(members))],
        "phases": len(phases),
        "axes": len(axes),
        "step": _along_x_y_z([axis.step for axis in axes], 1),
        "apart": _along_x_y_z([axis.phases for axis in axes], 1),
        "kernel": kernel[:2],
        "channels": geometry.channels,
        "rows": geometry.rows,
        "groups": divisor(geometry.groups),
        "blocks": divisor(blocks),
        "last_slices": -(-last // slices),
        "sample": strides.input[0],
        "group": strides.input[1],
        "channel": strides.input[2],
        "axis": of_x_y_z(strides.input_axes),
        "size": _along_x_y_z([axis.size_in for axis in axes], 1),
        "of_group": strides.weight[0],
        "of_row": strides.weight[1],
        "of_channel": strides.weight[2],
        "of_axis": of_x_y_z(strides.weight_axes),
        "out_sample": strides.out[0],
        "out_group": strides.out[1],
        "out_row": strides.out[2],
        "out_axis": of_x_y_z(strides.out_axes),
        "range": samples * _outputs(geometry),
        "together": CALL,
        "pixel_tiles": divisor(sum(counts)),
        "column_tiles": divisor(layout.column_tiles),
        "splits": divisor(layout.splits),
        "tiles": tiles,
    }


T = TypeVar("T")


def _along_x_y_z(values: list[T], missing: T) -> list[T]:
    """Return values along x, y and z for those along the last axes of z, y and x."""
    return values[::-1] + [missing] * (3 - len(values))


def struct_of(window: Window) -> Members:
    """Return the members of ``struct Window``."""
    members: dict[str, Member] = {**vars(window)}
    del members["upper"]
    return {**members, "outputs": divisor(window.outputs), "taps": divisor(window.taps)}


_NO_WINDOW = struct_of(window_of(NO_AXIS, 0))
