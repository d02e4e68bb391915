"""The gradient of a weight on Tensor Cores: a matrix product whose sum runs over all outputs.

Its rows are output channels, its columns are input channels with their taps. Both arrays are copied
first, by channel, with zeros between lines and between samples: then a tap is a shift along memory
(`Grid`). Inputs that taps reach in steps have planes of their own, one for each residue of a
stride, and so have the odd places of 16-bit numbers, of which Tensor Cores read pairs.

The order of a sum follows from the geometry, the batch included, and from the number of
multiprocessors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._arrays import Array, WeightGradient
from .._geometry import ConvGeometry
from .._packing import reciprocal, strides_of
from .._placement import Placement
from .._shape_rules import Shape as Sizes
from . import borders, gradient_products, gradient_sum
from .gradient_products import (
    DOUBLE,
    MANY_PLANES,
    MOST_TAPS,
    ProductLayout,
    cycles_to_add,
    cycles_to_copy,
    fastest_splits,
    has_too_many_planes,
    multiplied,
    sample_bytes,
    samples_of_chunks,
)
from .launches import MAX_GRID, RESERVED, Instance, Launch
from .matrix_gradient_grid import CHUNK_BYTES, STEP_BYTES, Grid, Line, classes_of, grid_of
from .members import CALL, Members, Template, byte_words
from .memory import lie_without_gaps
from .modes import Mode, modes
from .question import LARGE, Question, Refusal

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("matrix_gradient.cu",)
UNIT = "Tensor Core"

APART, STAGES = 4, 3  # words between rows in shared memory
MOST_CLASSES = 32
_RESIDENT = 8  # warps of a multiprocessor, by registers
_PLACE = 16  # bytes of a line's description


@dataclass(frozen=True)
class Shape:
    """The tile of a block: macros of matrix_gradient.cu."""

    row_tiles: int
    column_tiles: int
    warps: int
    warps_down: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def rows(self) -> int:
        """Output channels of a tile."""
        return self.warps_down * self.row_tiles * 16

    @property
    def columns(self) -> int:
        """Input channels times taps of a tile."""
        return self.warps // self.warps_down * self.column_tiles * 8


# By the registers of a sum: a double takes two, and with two parts of a number there is a total.
_SHAPES = {
    1: (Shape(4, 8, 8, 2), Shape(4, 8, 4, 2), Shape(4, 8, 4, 1), Shape(2, 8, 4, 1)),
    2: (Shape(4, 4, 8, 2), Shape(4, 4, 4, 1), Shape(2, 8, 4, 1)),
}


# Plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout(ProductLayout[Shape]):
    """How the gradient is divided.

    Attributes
    ----------
    lines : int
        Most lines of inputs of a tile.
    """

    lines: int


class MatrixGradientPlan(gradient_sum.SummedPlan[Layout]):
    """How the gradient of a weight runs by matrix_gradient.cu.

    The first launch is for each chunk.
    """


def _registers(mode: Mode) -> int:
    return 2 if mode.wide else mode.parts


def _instance(mode: Mode, shape: Shape) -> Instance:
    defines = (
        ("ELEMENT", mode.element),
        ("PARTS", str(mode.parts)),
        ("ROW_TILES", str(shape.row_tiles)),
        ("COLUMN_TILES", str(shape.column_tiles)),
        ("WARPS", str(shape.warps)),
        ("WARPS_DOWN", str(shape.warps_down)),
    )
    return Instance(SOURCES[0], "matrix_gradient", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    if target == "sm_75":
        return
    for mode in (*modes("portable"), DOUBLE):
        for shape in _SHAPES[_registers(mode)]:
            yield _instance(mode, shape)


def plan(question: Question) -> MatrixGradientPlan | Refusal:
    """Return the plan of a gradient, or why there is none; `question` has the convolution."""
    geometry, processor = question.geometry, question.processor
    mode = multiplied(question)
    if isinstance(mode, str):
        return mode
    if processor.target == "sm_75":
        return f"{processor.target} lacks the instructions"
    grid = grid_of(geometry, mode.itemsize)
    if len(classes_of(grid).firsts) > MOST_CLASSES:
        return f"its taps need more than {MOST_CLASSES} lines of inputs"
    if has_too_many_planes(grid, geometry):
        return MANY_PLANES
    layouts = (_layout(question, mode, grid, shape) for shape in _SHAPES[_registers(mode)])
    found = [layout for layout in layouts if layout is not None]
    if not found:
        return "no tile fits shared memory"
    layout = min(found, key=lambda layout: layout.cycles)
    blocks = geometry.groups * layout.row_tiles * layout.column_tiles * layout.splits
    copies = sample_bytes(geometry, grid) * max(layout.samples)
    if blocks > MAX_GRID:
        return LARGE
    launch = Launch(
        _instance(mode, layout.shape), blocks, layout.shape.threads, _shared(layout), blocks
    )
    add = gradient_sum.launch(question.dtype, geometry)
    partial = gradient_sum.nbytes(question) * layout.splits
    return MatrixGradientPlan(launch, layout, add, partial, copies)


def _shared(layout: Layout) -> int:
    chunks = classes_of(layout.grid).chunks
    row = STEP_BYTES + APART * layout.grid.word
    stage = layout.shape.rows * row + layout.lines * chunks * CHUNK_BYTES
    return STAGES * stage + _PLACE * layout.lines


# Cycles of a multiprocessor for 16 x 8 products of 8 words, and for a copy of 16 bytes to shared
# memory; steps in whose time a block begins and ends; and cycles in which it stores a partial sum.
# Fitted with those of `gradient_products`.
_PRODUCT, _COPY, _ENDS, _STORED = 1.9, 0.65, 8, 1
_DOUBLE_PRODUCT = 8  # the same products of doubles, at an H200's peak rate


def _layout(question: Question, mode: Mode, grid: Grid, shape: Shape) -> Layout | None:
    """Return the layout with tiles of a shape; None where they do not fit shared memory."""
    geometry, multiprocessors = question.geometry, question.processor.multiprocessors
    columns, classes, x = gradient_sum.columns(geometry), classes_of(grid), geometry.axes[-1].kernel
    groups = min(-(-(shape.columns - 1) // x) + 1, columns // x)
    lines = groups * len(classes.firsts)
    row_tiles, column_tiles = -(-geometry.rows // shape.rows), -(-columns // shape.columns)
    tiles = geometry.groups * row_tiles * column_tiles
    samples = samples_of_chunks(geometry, sample_bytes(geometry, grid))
    steps = grid.steps(max(samples))
    product = _DOUBLE_PRODUCT if mode.wide else _PRODUCT
    step = shape.rows // 16 * shape.columns // 8 * (grid.step // 8) * mode.products * product
    step += (shape.rows * STEP_BYTES // CHUNK_BYTES + lines * classes.chunks) * _COPY
    at_once = _RESIDENT // shape.warps
    resident = at_once * multiprocessors
    copied = cycles_to_copy(question, grid, 1, len(samples))

    def cycles(splits: int) -> float:
        waves = -(-tiles * splits // resident)
        busy = waves * at_once * (-(-steps // splits) + _ENDS) * step
        sums = cycles_to_add(question, len(samples), splits, _STORED)
        return copied + len(samples) * busy + sums

    splits = fastest_splits(question, tiles, resident, steps, cycles)
    layout = Layout(shape, row_tiles, column_tiles, samples, splits, cycles(splits), grid, lines)
    return layout if _shared(layout) + RESERVED <= question.processor.shared else None


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: MatrixGradientPlan,
    question: Question,
    data: Array,
    grad_output: Array,
    out: Array,
    device: Device,
) -> WeightGradient:
    """Return the gradient of a plan for all arrays with the layouts of these."""
    layout = plan.layout

    def prepare(count: int, views: list[Array]) -> _Chunk:
        return _Chunk(count, question.geometry, layout, views, plan.launch, device)

    return gradient_products.bind(plan, question, data, grad_output, out, device, prepare)


class _Chunk:
    """The copies of a number of samples, and the arguments of their products."""

    def __init__(
        self,
        count: int,
        geometry: ConvGeometry,
        layout: Layout,
        views: list[Array],
        launch: Launch,
        device: Device,
    ) -> None:
        self.device, grid = device, layout.grid
        axes = grid.axes[-geometry.rank :]
        inputs, grads = views
        pitches = tuple(axis.pitch for axis in axes)
        self.shapes = (
            (grads.shape[0], count, *pitches),
            (grid.planes, inputs.shape[0], count, *pitches),
        )
        ones, none = (1,) * grads.ndim, (0,) * grads.ndim
        of_grads = Placement(grads.shape, self.shapes[0], none, ones, ones, ones, none)
        planes = [axis.planes for axis in axes]
        planes[-1] *= grid.parities
        of_inputs = Placement(
            inputs.shape,
            self.shapes[1][1:],
            (0, 0, *(-axis.origin for axis in geometry.axes)),
            ones,
            (1, 1, *(axis.step for axis in geometry.axes)),
            (1, 1, *planes),
            (0, 0, *(axis.apart for axis in axes)),
        )
        self.copies = [
            _Copy(array, placement, self.shapes[number], grid, device)
            for number, (array, placement) in enumerate([(grads, of_grads), (inputs, of_inputs)])
        ]
        self.template = Template(SOURCES[0], _arguments(layout, geometry, count))
        self.run = device.launcher(launch)

    def multiply(self, inputs: Array, grads: Array, partial: int, adds: bool) -> None:
        """Copy the arrays of a chunk, and write or add the sums of their products."""
        pairs = zip(self.copies, (grads, inputs), strict=True)
        read = [copy(array) for copy, array in pairs]
        addresses = [self.device.address(array) for array, *_ in read]
        strides = itertools.chain(*(strides for _, *strides in read))
        self.run(self.template.fill(*addresses, partial, int(adds), *strides))


class _Copy:
    """What the products read in the place of an array by channel, sample and place.

    That is the array itself where places lie without gaps, in whole chunks.
    """

    def __init__(
        self, array: Array, placement: Placement, shape: Sizes, grid: Grid, device: Device
    ) -> None:
        self.device, self.shape, self.dtype = device, shape, array.dtype
        channels, samples, *places = strides_of(array)
        whole = CHUNK_BYTES // array.dtype.itemsize
        self.in_place = (
            grid.flat
            and lie_without_gaps(array.shape[2:], places)
            and not (channels % whole or samples % whole)
        )
        self.strides = samples // grid.packed, channels // grid.packed
        words = grid.words(1)
        self.of_copy = words, array.shape[1] * words
        # Of one sample, lines of several channels are copied together.
        self.one = array.shape[1] == 1
        if self.one:
            array, placement = array[:, 0], _without_samples(placement)
        self.place = borders.bind_pad(placement, array, device)

    def __call__(self, array: Array) -> tuple[Array, int, int]:
        """Return an array, and its words from one sample and from one channel to the next."""
        if self.in_place and self.device.address(array) % CHUNK_BYTES == 0:
            return array, *self.strides
        copy = self.device.workspace(self.shape, self.dtype)
        self.place(array[:, 0] if self.one else array, copy)
        return copy, *self.of_copy


def _without_samples(placement: Placement) -> Placement:
    """Return a placement without the second axis, which has one element."""
    values: dict[str, Any] = vars(placement)
    shapes = {name: value for name, value in values.items() if isinstance(value, tuple)}
    kept: dict[str, Any] = {name: (shape[0], *shape[2:]) for name, shape in shapes.items()}
    return replace(placement, **kept)


def _arguments(layout: Layout, geometry: ConvGeometry, samples: int) -> Members:
    """Return the members of ``struct Arguments`` of matrix_gradient.cu."""
    grid, classes = layout.grid, classes_of(layout.grid)
    words, channels = grid.words(samples), geometry.groups * geometry.channels
    z, y, x = grid.axes
    of_plane = channels * words
    planes_x = x.planes * grid.parities
    planes_y = y.planes * planes_x

    def places(line: Line, planes: int, apart: int) -> list[Members]:
        found = [
            _place(tap.plane * planes * of_plane, tap.shift * apart // grid.packed)
            for tap in line.taps
        ]
        return found + [_place(0, 0)] * (MOST_TAPS - len(found))

    firsts = [_place(plane * of_plane, word) for plane, word in classes.firsts]
    return {
        "grad": CALL,
        "input": CALL,
        "partial": CALL,
        "adds": CALL,
        "rows": geometry.rows,
        "channels": geometry.channels,
        "columns": gradient_sum.columns(geometry),
        "groups": geometry.groups,
        "samples": grid.samples(samples),
        "words": words // grid.samples(samples),
        "grad_sample": CALL,
        "grad_row": CALL,
        "input_sample": CALL,
        "input_channel": CALL,
        "row_tiles": layout.row_tiles,
        "column_tiles": layout.column_tiles,
        "splits": layout.splits,
        "kernel": [len(axis.taps) for axis in grid.axes],
        "tap_z": places(z, planes_y, y.pitch * x.pitch),
        "tap_y": places(y, planes_x, x.pitch),
        "class_x": firsts + [_place(0, 0)] * (MOST_CLASSES - len(firsts)),
        "classes": len(firsts),
        "class_of": byte_words(classes.of, MOST_TAPS),
        "shift_of": byte_words(classes.shifts, MOST_TAPS),
        "line_chunks": classes.chunks,
        "per_line_chunks": reciprocal(classes.chunks),
        "lines": layout.lines,
    }


def _place(plane: int, shift: int) -> Members:
    """Return a ``struct Place``."""
    return {"plane": plane, "shift": shift}
