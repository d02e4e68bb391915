"""The gradient of a weight by wgmma, from arrays whose channels lie innermost: float16, bfloat16.

It is an implicit matrix product whose sum runs over the output pixels of all samples: the copy
engine brings pixels of both arrays, those of the input at the offset of a tap (im2col). An array
that it cannot read is copied first (channels_last.cu), with the same bits in the sums.

The order of a sum follows from the geometry, the batch included, and from the number of
multiprocessors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._arrays import Array, WeightGradient
from .._geometry import ConvGeometry
from .._packing import strides_of
from .._tensor_maps import ALIGNED as ALIGNED_WORDS
from .._tensor_maps import WORDS as MAP_WORDS
from .._tensor_maps import Pixels
from . import gradient_products, gradient_sum
from .direct_conv import LAUNCH
from .gradient_products import (
    MUCH_MEMORY,
    SumLayout,
    cycles_to_add,
    fastest_splits,
    multiplied,
    samples_of_chunks,
)
from .gradient_tiles import BARRIERS, ENDS, MOST_STAGES, STORED, Shape, stages_of
from .im2col_maps import (
    BROUGHT,
    STEP_BYTES,
    Copies,
    Image,
    Operand,
    Source,
    View,
    along,
    axes_of,
    is_expressible,
    whole_row,
    window_of,
)
from .launches import MAX_GRID, WARP, WGMMA, Instance, Launch
from .members import CALL, Members, Template
from .modes import TEAM, Mode
from .question import LARGE, Question, Refusal

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("im2col_gradient.cu",)
UNIT = "Tensor Core"

THREADS = 3 * TEAM  # two warpgroups multiply, a warp of the third has operands brought
PIXELS = 64  # of a K step
_ROW_BOX = 64  # channels of a box of rows
_BOXES = (64, 32, 16, 8)  # channels of a box of columns
_BLOCK = 1024  # bytes at whose multiples boxes begin
_MOST_FURTHER = PIXELS  # between taps that share a box: two boxes have no more pixels
_DTYPES = ("float16", "bfloat16")
_SHAPES = (
    Shape(2, 192, blocks=2),
    *(Shape(1, segment, blocks=2) for segment in (192, 96)),
    *(Shape(2, segment) for segment in (256, 224, 192, 160, 128, 64)),
    *(Shape(1, segment) for segment in (224, 192, 160, 128, 96, 64)),
)
_MOST_COPIES = 64 << 20  # bytes of a sample, unless they are no more than its floats would be
FAR_TAPS = "its taps or steps reach further than the copy engine's"


# Plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """How taps and input channels are columns of the product.

    Attributes
    ----------
    box : int
        Input channels of a box.
    shared : int
        Neighbouring taps along the last axis that share a box.
    apart : int
        Pixels from one of these taps to the next.
    """

    box: int
    shared: int
    apart: int

    @property
    def further(self) -> int:
        """Pixels from the first of these taps to the last one."""
        return (self.shared - 1) * self.apart

    @property
    def pixels(self) -> int:
        """Pixels of a box."""
        return PIXELS + self.further

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in whole blocks of the swizzle."""
        return -(-2 * self.pixels * self.box // _BLOCK) * _BLOCK

    def boxes(self, shape: Shape) -> int:
        """Return the boxes of a tile."""
        return shape.columns // (self.box * self.shared)

    def stage(self, shape: Shape) -> int:
        """Return the bytes of a stage."""
        return shape.rows * STEP_BYTES + self.boxes(shape) * self.box_bytes


@dataclass(frozen=True)
class Layout(SumLayout[Shape]):
    """How the gradient is divided."""

    columns: Columns


class Im2colGradientPlan(gradient_sum.SummedPlan[Layout]):
    """How the gradient of a weight runs by im2col_gradient.cu.

    The first launch is for each chunk.
    """


def _instance(dtype: str, shape: Shape) -> Instance:
    macros = {"DOWN": shape.down, "BLOCKS": shape.blocks, "SEGMENT": shape.segment}
    defines = (("ELEMENT", dtype), *((name, str(value)) for name, value in macros.items()))
    return Instance(SOURCES[0], "im2col_gradient", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    if target in WGMMA:
        for dtype in _DTYPES:
            yield from (_instance(dtype, shape) for shape in _SHAPES)


def plan(question: Question) -> Im2colGradientPlan | Refusal:
    """Return the plan of a gradient, or why there is none; `question` has the convolution."""
    geometry, processor = question.geometry, question.processor
    mode = multiplied(question)
    if isinstance(mode, str):
        return mode
    if mode.itemsize > 2:
        return "it is for 16-bit numbers"
    if not processor.has_wgmma:
        return f"{processor.target} lacks wgmma"
    if not is_expressible(axes_of(geometry)):
        return FAR_TAPS
    nbytes, numbers = _sample_bytes(geometry), _numbers(geometry)
    if nbytes > max(_MOST_COPIES, 4 * numbers):
        return MUCH_MEMORY
    layout = min(_layouts(question, mode), key=lambda layout: layout.cycles)
    shape, longest = layout.shape, max(layout.samples)
    blocks = geometry.groups * layout.row_tiles * layout.column_tiles * layout.splits
    # Numbers of pixels, and coordinates of channels up to the end of a tile.
    pixels = _steps(geometry, longest, layout.columns) * PIXELS
    channels = geometry.groups * max(_rows(geometry))
    if max(blocks, pixels, channels + shape.rows + shape.columns) > MAX_GRID:
        return LARGE
    instance = _instance(question.dtype.name, shape)
    stage = layout.columns.stage(shape)
    shared = stages_of(stage) * stage + MOST_STAGES * BARRIERS
    return Im2colGradientPlan(
        Launch(instance, blocks, THREADS, shared, blocks, early=True),
        layout,
        gradient_sum.launch(question.dtype, geometry, geometry.channels),
        gradient_sum.nbytes(question) * layout.splits,
        nbytes * longest,
    )


def _places(geometry: ConvGeometry) -> tuple[int, int]:
    """Return the outputs and the inputs of a channel of a sample."""
    axes = geometry.axes
    return math.prod(axis.size_out for axis in axes), math.prod(axis.size_in for axis in axes)


def _rows(geometry: ConvGeometry) -> tuple[int, int]:
    """Return the output and the input channels of a group in copies."""
    groups = geometry.groups
    return whole_row(groups, geometry.rows, 2), whole_row(groups, geometry.channels, 2)


def _sample_bytes(geometry: ConvGeometry) -> int:
    """Return the bytes of the copies of a sample."""
    rows = zip(_places(geometry), _rows(geometry), strict=True)
    return 2 * geometry.groups * sum(places * row for places, row in rows)


def _numbers(geometry: ConvGeometry) -> int:
    """Return the elements of a sample of both arrays."""
    outputs, inputs = _places(geometry)
    return geometry.groups * (outputs * geometry.rows + inputs * geometry.channels)


def _steps(geometry: ConvGeometry, samples: int, columns: Columns) -> int:
    """Return the K steps of so many samples."""
    *others, x = (axis.size_out for axis in axes_of(geometry))
    return -(-samples * math.prod(others) * (x + columns.further) // PIXELS)


def _columns(geometry: ConvGeometry, shape: Shape) -> Iterator[Columns]:
    """Yield how taps and channels can be columns of a tile."""
    axes = axes_of(geometry)
    x, (corner, _) = axes[-1], Pixels.most(len(axes))
    for box in (box for box in _BOXES if shape.segment % box == 0):
        alone, found = Columns(box, 1, 0), Columns(box, shape.segment // box, x.dilation)
        if alone.boxes(shape) <= WARP:
            yield alone
        if (
            found.shared > 1
            and x.kernel % found.shared == 0
            and x.step == 1
            and found.further <= _MOST_FURTHER
            and all(view.upper < corner for views in _views(geometry, found) for view in views)
        ):
            yield found


# The least bytes of a pixel that the copy engine brings in the time of its bytes: an estimate.
# Bytes of shared memory that are read or written in a cycle, and of copies that a multiprocessor
# makes in one: there are no weights among them, which take longer.
_LEAST_PIXEL, _SHARED, _COPIED = 64, 128, 7


def _layouts(question: Question, mode: Mode) -> Iterator[Layout]:
    """Yield the layouts with tiles and boxes of all shapes."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    nbytes = _sample_bytes(geometry)
    samples = samples_of_chunks(geometry, nbytes)
    # A chunk has a launch for its copies, and one for its products.
    copied = geometry.batch * nbytes / (_COPIED * multiprocessors) + 2 * len(samples) * LAUNCH
    for shape in _SHAPES:
        for columns in _columns(geometry, shape):
            yield _layout(question, mode, shape, columns, samples, copied)


def _layout(
    question: Question,
    mode: Mode,
    shape: Shape,
    columns: Columns,
    samples: tuple[int, ...],
    copied: float,
) -> Layout:
    """Return a layout with the fastest number of ranges, by the cycles of the copies."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    taps, steps = _taps(geometry), _steps(geometry, max(samples), columns)
    width = taps * -(-geometry.channels // columns.box) * columns.box
    row_tiles, column_tiles = -(-geometry.rows // shape.rows), -(-width // shape.columns)
    tiles = geometry.groups * row_tiles * column_tiles
    products = shape.rows * shape.columns * PIXELS / mode.rate
    pixels = columns.boxes(shape) * columns.pixels
    brought = shape.rows * STEP_BYTES + pixels * max(2 * columns.box, _LEAST_PIXEL)
    # Of each 64 rows by a segment, an instruction reads both operands.
    read = shape.rows * shape.columns * STEP_BYTES * (1 / shape.segment + 1 / _ROW_BOX)
    step = max(products, brought / BROUGHT, (read + columns.stage(shape)) / _SHARED)

    def cycles(splits: int) -> float:
        waves = -(-tiles * splits // multiprocessors)
        busy = len(samples) * waves * (-(-steps // splits) + ENDS) * step
        return copied + busy + cycles_to_add(question, len(samples), splits, STORED)

    splits = fastest_splits(question, tiles, multiprocessors, steps, cycles)
    return Layout(shape, row_tiles, column_tiles, samples, splits, cycles(splits), columns)


def _taps(geometry: ConvGeometry) -> int:
    return math.prod(axis.kernel for axis in geometry.axes)


def _views(geometry: ConvGeometry, columns: Columns) -> tuple[list[View], list[View]]:
    """Return where copies find pixels of the gradient of the output and of the input.

    Along the last axis there are as many more as taps share a box.
    """
    axes = axes_of(geometry)
    more = [0] * (len(axes) - 1) + [columns.further]
    windows = [window_of(axis, 0) for axis in axes]
    return [View(0, further, 1) for further in more], [
        View(window.lower, window.upper + further, axis.step)
        for window, axis, further in zip(windows, axes, more, strict=True)
    ]


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: Im2colGradientPlan,
    question: Question,
    data: Array,
    grad_output: Array,
    out: Array,
    device: Device,
) -> WeightGradient:
    """Return the gradient of a plan for all arrays with the layouts of these."""

    def prepare(count: int, views: list[Array]) -> _Chunk:
        return _Chunk(count, question, plan, views, device)

    together = question.geometry.channels
    return gradient_products.bind(plan, question, data, grad_output, out, device, prepare, together)


class _Chunk:
    """The launches of a number of samples."""

    def __init__(
        self,
        samples: int,
        question: Question,
        plan: Im2colGradientPlan,
        views: list[Array],
        device: Device,
    ) -> None:
        geometry, dtype = question.geometry, question.dtype
        inputs, grads = views
        operands = _operands(geometry, plan.layout.columns, inputs, grads)
        self.device = device
        self.sources = [Source(operand, device) for operand in operands]
        self.copies = Copies(self.sources, dtype, device)
        members = _arguments(geometry, plan.layout, samples)
        self.template = Template(SOURCES[0], members, ALIGNED_WORDS)
        self.run = device.launcher(plan.launch)

    def multiply(self, inputs: Array, grads: Array, partial: int, adds: bool) -> None:
        """Write or add the sums of the products of a chunk, from copies where they are needed."""
        arrays = self.device.address(grads), self.device.address(inputs)
        pairs = [*zip(self.sources, arrays, strict=True)]
        rows, columns = (not source.is_readable(array) for source, array in pairs)
        kept = self.copies.make((rows, columns), arrays)
        (grad, grad_group), (data, data_group) = (
            source.read(array, copy) for (source, array), copy in zip(pairs, kept, strict=True)
        )
        self.run(self.template.fill(*grad, *data, partial, int(adds), grad_group, data_group))


def _operands(
    geometry: ConvGeometry, columns: Columns, inputs: Array, grads: Array
) -> tuple[Operand, Operand]:
    """Return the maps of `grad_output` and of the input, which are views by channel and sample."""
    of_grads, of_inputs = _views(geometry, columns)
    axes = axes_of(geometry)
    rows = _image(grads, geometry, geometry.rows, [axis.size_out for axis in axes])
    others = _image(inputs, geometry, geometry.channels, [axis.size_in for axis in axes])
    return (
        rows.operand([of_grads], _ROW_BOX, PIXELS),
        others.operand([of_inputs], columns.box, columns.pixels),
    )


def _image(array: Array, geometry: ConvGeometry, channels: int, sizes: Sequence[int]) -> Image:
    """Return a view by channel and sample, with so many channels of a group."""
    channel, sample, *places = strides_of(array)
    itemsize, groups = array.dtype.itemsize, geometry.groups
    return Image(
        (array.shape[1], groups, channels),
        (sample, channels * channel, channel),
        tuple(sizes),
        tuple(along(geometry, places)),
        whole_row(groups, channels, itemsize),
        itemsize,
    )


def _arguments(geometry: ConvGeometry, layout: Layout, samples: int) -> Members:
    """Return the members of ``struct Arguments`` of im2col_gradient.cu."""
    axes, columns = axes_of(geometry), layout.columns
    shared = [*[1] * (len(axes) - 1), columns.shared]  # taps that share a box, along each axis
    grads, inputs = _views(geometry, columns)
    pixel = 2 * columns.box

    def of_x_y_z(values: Iterable[int], missing: int = 1) -> list[int]:
        return [*reversed([*values]), *[missing] * (3 - len(axes))]

    return {
        "grad": [CALL] * MAP_WORDS,
        "input": [CALL] * MAP_WORDS,
        "partial": CALL,
        "adds": CALL,
        "grad_group": CALL,
        "input_group": CALL,
        "rows": geometry.rows,
        "channels": geometry.channels,
        "groups": geometry.groups,
        "steps": _steps(geometry, samples, columns),
        "axes": len(axes),
        "places": of_x_y_z(a.size_out + view.upper for a, view in zip(axes, grads, strict=True)),
        "lower": of_x_y_z((view.lower for view in inputs), 0),
        "step": of_x_y_z(axis.step for axis in axes),
        "boxes": of_x_y_z(axis.kernel // n for axis, n in zip(axes, shared, strict=True)),
        "offset": of_x_y_z(axis.dilation * n for axis, n in zip(axes, shared, strict=True)),
        "box": columns.box,
        "shared": columns.shared,
        "pixels": columns.pixels,
        "box_bytes": columns.box_bytes,
        "apart": columns.apart * pixel if columns.shared > 1 else columns.box_bytes,
        "taps": _taps(geometry),
        "row_tiles": layout.row_tiles,
        "column_tiles": layout.column_tiles,
        "splits": layout.splits,
    }
