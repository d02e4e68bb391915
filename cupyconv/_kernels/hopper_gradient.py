"""The gradient of a weight by wgmma, for GPUs of compute capability 9.0.

It is a matrix product whose sum runs over all outputs; its rows are output channels, its columns
are input channels with their taps. gradient_lines.cu copies both arrays first, so that a tap is a
shift along memory; the copy engine brings boxes of the copies to shared memory (`Boxes`).

The order of a sum follows from the geometry, the batch included, and from the number of
multiprocessors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._arrays import Array, WeightGradient
from .._geometry import ConvGeometry
from .._packing import strides_of
from .._taps import on_three_axes
from .._tensor_maps import ALIGNED as ALIGNED_WORDS
from .._tensor_maps import WORDS as MAP_WORDS
from .._tensor_maps import Boxes
from . import gradient_lines, gradient_products, gradient_sum
from .gradient_lines import LineAxis, Lines
from .gradient_products import (
    MANY_PLANES,
    MOST_TAPS,
    MUCH_MEMORY,
    ProductLayout,
    cycles_to_add,
    cycles_to_copy,
    fastest_splits,
    has_too_many_planes,
    multiplied,
    sample_bytes,
    samples_of_chunks,
)
from .gradient_tiles import BARRIERS, ENDS, STORED, Shape
from .launches import MAX_GRID, WGMMA, Instance, Launch
from .matrix_gradient_grid import CHUNK_BYTES, STEP_BYTES, Grid, Line, grid_of_boxes
from .members import CALL, Members, Template
from .memory import lie_without_gaps
from .modes import TEAM, Mode, modes
from .question import LARGE, Question, Refusal

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("hopper_gradient.cu",)
UNIT = "Tensor Core"

THREADS = 2 * TEAM + 32  # two warpgroups multiply, a warp has boxes brought
_MOST_BOX = 256  # channels
_MOST_COPIES = 64 << 20  # bytes of a sample, unless numbers take no more than two floats


# By the parts of a number: with two, a chain takes as many registers as the sums.
_SHAPES = {
    1: (Shape(2, 256), Shape(2, 128), Shape(1, 128), Shape(1, 64)),
    2: (Shape(2, 128), Shape(2, 64), Shape(1, 128), Shape(1, 64)),
}


# Plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout(ProductLayout[Shape]):
    """How the gradient is divided.

    Attributes
    ----------
    box : int
        Input channels of a box.
    """

    box: int


class HopperGradientPlan(gradient_sum.SummedPlan[Layout]):
    """How the gradient of a weight runs by hopper_gradient.cu.

    The first launch is for each chunk.
    """


def _instance(mode: Mode, shape: Shape) -> Instance:
    defines = (
        ("ELEMENT", mode.element),
        ("PARTS", str(mode.parts)),
        ("DOWN", str(shape.down)),
        ("SEGMENT", str(shape.segment)),
    )
    return Instance(SOURCES[0], "hopper_gradient", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    if target in WGMMA:
        for mode in modes("portable"):
            for shape in _SHAPES[mode.parts]:
                yield _instance(mode, shape)


def plan(question: Question) -> HopperGradientPlan | Refusal:
    """Return the plan of a gradient, or why there is none; `question` has the convolution."""
    geometry, processor = question.geometry, question.processor
    mode = multiplied(question)
    if isinstance(mode, str):
        return mode
    if mode.wide:
        return "wgmma does not multiply float64"
    if not processor.has_wgmma:
        return f"{processor.target} lacks wgmma"
    grid = grid_of_boxes(geometry, mode.itemsize, mode.parts)
    if has_too_many_planes(grid, geometry):
        return MANY_PLANES
    if _takes_much_memory(geometry, grid, mode):
        return MUCH_MEMORY
    layout = min(
        (_layout(question, mode, grid, shape) for shape in _SHAPES[mode.parts]),
        key=lambda layout: layout.cycles,
    )
    blocks = geometry.groups * layout.row_tiles * layout.column_tiles * layout.splits
    places = grid.words(max(layout.samples)) * grid.packed
    channels = geometry.groups * max(geometry.rows, geometry.channels)
    if max(blocks, 2 * places, channels + _MOST_BOX) > MAX_GRID:
        return LARGE
    shape = layout.shape
    shared = shape.stages(mode.parts) * (shape.stage(mode.parts) + BARRIERS)
    launch = Launch(_instance(mode, shape), blocks, THREADS, shared, blocks, early=True)
    return HopperGradientPlan(
        launch,
        layout,
        gradient_sum.launch(question.dtype, geometry, geometry.channels),
        gradient_sum.nbytes(question) * layout.splits,
        sample_bytes(geometry, grid, mode.parts, max(layout.samples)),
    )


def _takes_much_memory(geometry: ConvGeometry, grid: Grid, mode: Mode) -> bool:
    """Return whether copies of a sample are large, and more than two floats for each number."""
    copies, places = sample_bytes(geometry, grid, mode.parts), grid.words(1) * grid.packed
    inputs = max(places, math.prod(axis.size_in for axis in geometry.axes))
    numbers = geometry.groups * (geometry.rows * places + geometry.channels * inputs)
    return copies > max(_MOST_COPIES, 8 * numbers)


# Bytes of boxes that reach a multiprocessor in a cycle, and cycles of a box beside its bytes.
# Fitted with the constants of `gradient_products`.
_BROUGHT, _BOX = 30, 24


def _box(channels: int, taps: int, columns: int) -> int:
    """Return the channels of a box for the fewest tiles, and of those the largest."""

    def tiles(box: int) -> int:
        return -(-taps * -(-channels // box) * box // columns)

    sizes = [1 << i for i in range(8, 2, -1) if 1 << i <= columns]
    return min(sizes, key=tiles)


def _layout(question: Question, mode: Mode, grid: Grid, shape: Shape) -> Layout:
    """Return the layout with tiles of a shape."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    taps = math.prod(axis.kernel for axis in geometry.axes)
    box = _box(geometry.channels, taps, shape.columns)
    columns = taps * -(-geometry.channels // box) * box
    row_tiles, column_tiles = -(-geometry.rows // shape.rows), -(-columns // shape.columns)
    tiles = geometry.groups * row_tiles * column_tiles
    nbytes = sample_bytes(geometry, grid, mode.parts)
    samples = samples_of_chunks(geometry, nbytes)
    steps = grid.steps(max(samples))
    products = (
        shape.rows * shape.columns * (STEP_BYTES // grid.itemsize) * mode.products / mode.rate
    )
    boxes = mode.parts * shape.columns / box
    step = max(products, shape.stage(mode.parts) / _BROUGHT + boxes * _BOX)
    copied = cycles_to_copy(question, grid, mode.parts, len(samples))

    def cycles(splits: int) -> float:
        waves = -(-tiles * splits // multiprocessors)
        busy = waves * (-(-steps // splits) + ENDS) * step
        return copied + len(samples) * busy + cycles_to_add(question, len(samples), splits, STORED)

    splits = fastest_splits(question, tiles, multiprocessors, steps, cycles)
    return Layout(shape, row_tiles, column_tiles, samples, splits, cycles(splits), grid, box)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: HopperGradientPlan,
    question: Question,
    data: Array,
    grad_output: Array,
    out: Array,
    device: Device,
) -> WeightGradient:
    """Return the gradient of a plan for all arrays with the layouts of these."""
    mode = multiplied(question)
    assert isinstance(mode, Mode)

    def prepare(count: int, views: list[Array]) -> _Chunk:
        return _Chunk(count, question.geometry, mode.parts, plan, views, device)

    channels = question.geometry.channels
    return gradient_products.bind(plan, question, data, grad_output, out, device, prepare, channels)


class _Chunk:
    """The copies of a number of samples, and the arguments of their products."""

    def __init__(
        self,
        count: int,
        geometry: ConvGeometry,
        parts: int,
        plan: HopperGradientPlan,
        views: list[Array],
        device: Device,
    ) -> None:
        self.device, layout, grid = device, plan.layout, plan.layout.grid
        inputs, grads = views
        axes = [*zip(on_three_axes(geometry.axes), grid.axes, strict=True)]
        of_inputs = (
            LineAxis(line.pitch, axis.size_in, axis.step, axis.origin, line.apart, line.planes)
            for axis, line in axes
        )
        of_grads = (LineAxis(line.pitch, axis.size_out) for axis, line in axes)
        itemsize = inputs.dtype.itemsize
        self.grads, self.inputs = (
            _Operand(array, Lines((z, y, x), count, parts, itemsize), grid, box, device)
            for array, (z, y, x), box in (
                (grads, of_grads, layout.shape.rows),
                (inputs, of_inputs, layout.box),
            )
        )
        self.template = Template(SOURCES[0], _arguments(layout, geometry, count), ALIGNED_WORDS)
        self.run = device.launcher(plan.launch)

    def multiply(self, inputs: Array, grads: Array, partial: int, adds: bool) -> None:
        """Copy the arrays of a chunk, and write or add the sums of their products."""
        kept = [operand(array) for operand, array in ((self.grads, grads), (self.inputs, inputs))]
        maps = [word for _, words in kept for word in words]
        self.run(self.template.fill(*maps, partial, int(adds)))


class _Operand:
    """Boxes of an array by channel, sample and place, or of its copy.

    The array itself is read where places lie without gaps and channels begin at whole chunks.
    """

    def __init__(self, array: Array, lines: Lines, grid: Grid, box: int, device: Device) -> None:
        self.device, itemsize = device, lines.itemsize
        channel, sample, *places = (itemsize * stride for stride in strides_of(array))
        line, (channels, samples) = itemsize * lines.places, array.shape[:2]
        boxes = STEP_BYTES // itemsize, box, 1
        self.in_place = (
            grid.flat
            and lie_without_gaps(array.shape[2:], [stride // itemsize for stride in places])
            and all(
                size == 1 or (stride > 0 and stride % CHUNK_BYTES == 0)
                for size, stride in ((channels, channel), (samples, sample))
            )
        )
        size = lines.places // samples if grid.flat else lines.places
        self.own = Boxes(
            itemsize, (size, channels, samples), (channel or line, sample or line), boxes
        )
        planes, strides = math.prod(lines.shape(channels)[:2]), (line, line * channels)
        if grid.flat:
            planes, strides = samples, (line, line // samples)
        self.of_copy = Boxes(itemsize, (size, channels, planes), strides, boxes)
        self.copies = gradient_lines.bind(lines, array, device)

    def __call__(self, array: Array) -> tuple[Array, tuple[int, ...]]:
        """Return an array, and the words of its tensor map."""
        address, tensor_map = self.device.address, self.device.tensor_map
        if self.in_place and address(array) % CHUNK_BYTES == 0:
            return array, tensor_map(address(array), self.own)
        copy = self.copies(array)
        return copy, tensor_map(address(copy), self.of_copy)


def _arguments(layout: Layout, geometry: ConvGeometry, samples: int) -> Members:
    """Return the members of ``struct Arguments`` of hopper_gradient.cu."""
    grid, apart = layout.grid, layout.grid.samples(samples)
    z, y, x = grid.axes

    def places(line: Line, planes: int, pitch: int) -> Sequence[Members]:
        found = [{"plane": tap.plane * planes, "shift": tap.shift * pitch} for tap in line.taps]
        return [*found, *[{"plane": 0, "shift": 0}] * (MOST_TAPS - len(found))]

    return {
        "grad": [CALL] * MAP_WORDS,
        "input": [CALL] * MAP_WORDS,
        "partial": CALL,
        "adds": CALL,
        "rows": geometry.rows,
        "channels": geometry.channels,
        "groups": geometry.groups,
        "samples": apart,
        "steps": grid.steps(samples) // apart,
        "box": layout.box,
        "taps": math.prod(len(axis.taps) for axis in grid.axes),
        "planes": grid.planes,
        "row_tiles": layout.row_tiles,
        "column_tiles": layout.column_tiles,
        "splits": layout.splits,
        "kernel": [len(axis.taps) for axis in grid.axes],
        "tap": [
            places(z, y.planes * x.planes, y.pitch * x.pitch),
            places(y, x.planes, x.pitch),
            places(x, 1, 1),
        ],
    }
