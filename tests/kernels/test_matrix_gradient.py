"""The gradient of a weight on Tensor Cores: its plans, its promises, and each of its instances."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from backends import NumpyBackend, forced_backends
from bounds import assert_convolution, assert_same_bits
from cupyconv import _chunks, _compile
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import gradient_sum, matrix_gradient, matrix_gradient_grid
from cupyconv._kernels.launches import RESERVED, SHARED, TARGETS, Instance, Processor
from cupyconv._kernels.matrix_gradient import Layout, MatrixGradientPlan, Shape
from cupyconv._kernels.matrix_gradient_grid import CHUNK_BYTES, STEP_BYTES, classes_of, grid_of
from cupyconv._kernels.question import LARGE, MANY_AXES, Question
from cupyconv._taps import on_three_axes
from gradients import Gradient, gradient, gradients
from planning import (
    HOPPER,
    Steering,
    assert_shared_memory,
    checked,
    conv,
    conv_geometries,
    dense_geometries,
    processors,
)
from reference import Array
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import BFLOAT16, DTYPES, LAYOUTS, MODES, NO_BORDERS, STYLES, lay_out, poison
from subjects import Subject

BACKENDS = forced_backends("portable")
PRODUCTS = instances_of("matrix_gradient.cu")
SUMS = instances_of("gradient_sum.cu")
every_backend = pytest.mark.parametrize("backend", BACKENDS)
SINGLE, HALF, DOUBLE = MODES[0], MODES[2], (np.dtype(np.float64), "float32")
PRODUCED = [*MODES, DOUBLE]
every_mode = pytest.mark.parametrize(
    "mode", PRODUCED, ids=["float32", "tf32", "float16", "bfloat16", "float64"]
)
Mode = tuple[np.dtype[Any], str]


def threads(instance: Instance) -> int:
    return 32 * int(dict(instance.defines)["WARPS"])


SUBJECTS = (
    Subject(
        matrix_gradient,
        threads=threads,
        tested=PRODUCTS,
        everywhere=False,
        limits={"STAGES": matrix_gradient.STAGES},
    ),
)


def test_limits_of_taps() -> None:
    """Tables of the kernel have room for as many taps and classes as plans have."""
    text = _compile.source("matrix_gradient.cu")
    found = re.search(r"MOST_TAPS = (\d+), MOST_CLASSES = (\d+);", text)
    assert found
    assert tuple(map(int, found.groups())) == (
        matrix_gradient.MOST_TAPS,
        matrix_gradient.MOST_CLASSES,
    )
    assert f"PITCH = WORDS + {matrix_gradient.APART};" in text
    assert f"WORDS = {STEP_BYTES} / sizeof(Word);" in text
    assert f"CHUNK = {CHUNK_BYTES} / sizeof(Word);" in text
    assert "THREADS = 32 * WARPS;" in text


# Plans ---------------------------------------------------------------------------------------


def question_of(geometry: ConvGeometry, mode: Mode, processor: Processor = HOPPER) -> Question:
    return Question(geometry, *mode, processor)


def columns_of(geometry: ConvGeometry) -> int:
    return geometry.channels * math.prod(axis.kernel for axis in geometry.axes)


@given(
    geometry=st.one_of(conv_geometries(), dense_geometries()),
    mode=st.sampled_from(PRODUCED),
    processor=processors,
)
@example(conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1), SINGLE, HOPPER)
@example(conv((256, 64, 112, 112), (64, 64, 3, 3), padding=1), HALF, HOPPER)  # many chunks
@example(conv((3, 512, 200, 200), (64, 512, 3, 3)), SINGLE, HOPPER)  # two of them, not as long
@example(conv((1, 4096, 9, 9), (4096, 4096, 3, 3)), SINGLE, HOPPER)  # partial sums beyond 32 MB
@example(conv((2, 3, 4000), (5, 3, 64), dilation=61), SINGLE, HOPPER)  # too many classes
@example(conv((1, 1, 70), (1, 1, 65)), SINGLE, HOPPER)
@example(conv((1, 1, 2**31 + 9), (1, 1, 2)), SINGLE, HOPPER)
# Both its tiles and its gradient are too large.
@example(conv((5, 3, 3, 6, 6), (2**26, 3, 2, 5, 5), stride=(1, 1, 2)), HALF, Processor("sm_86", 1))
def test_gradient_plans(geometry: ConvGeometry, mode: Mode, processor: Processor) -> None:
    """Tiles and ranges cover the gradient and its sums, within the memory that they may take."""
    assume(not geometry.transposed)
    question = question_of(geometry, mode, processor)
    plan = matrix_gradient.plan(question)
    if isinstance(plan, str):
        expected = reasons(geometry, processor) or {MANY_CLASSES, MANY_PLANES, NO_TILE}
        assert plan in expected or (plan == LARGE and is_large(geometry)), plan
        return
    assert not reasons(geometry, processor)
    checked(partial(matrix_gradient.plan, question), processor)
    layout, columns = plan.layout, columns_of(geometry)
    shape, elements = layout.shape, geometry.groups * geometry.rows * columns
    for size, tile, tiles in (
        (geometry.rows, shape.rows, layout.row_tiles),
        (columns, shape.columns, layout.column_tiles),
    ):
        assert (tiles - 1) * tile < size <= tiles * tile
    # Chunks have all samples, and no range of the longest one is empty.
    assert sum(layout.samples) == geometry.batch
    assert max(layout.samples) - min(layout.samples) <= 1
    assert 1 <= layout.splits <= layout.grid.steps(max(layout.samples))
    tiles = geometry.groups * layout.row_tiles * layout.column_tiles
    assert plan.launch.grid == plan.launch.unit == tiles * layout.splits
    assert plan.partial == max(4, mode[0].itemsize) * elements * layout.splits
    assert layout.splits == 1 or plan.partial <= 2**25
    assert plan.copies <= 2**26 or max(layout.samples) <= -(-geometry.batch // 64)
    itemsize = mode[0].itemsize
    places = math.prod(axis.pitch for axis in layout.grid.axes) * max(layout.samples)
    channels = geometry.groups * (geometry.rows + geometry.channels * layout.grid.planes)
    assert plan.copies == itemsize * places * channels
    assert plan.workspace == plan.partial + plan.copies
    assert places // layout.grid.samples(max(layout.samples)) % (16 // itemsize) == 0
    # The stages of a pipeline, each of rows of gradients and lines of inputs, and 16 bytes for the
    # description of a line.
    classes = classes_of(layout.grid)
    stage = shape.rows * (128 + 4 * layout.grid.word) + layout.lines * classes.chunks * 16
    assert plan.launch.shared == 3 * stage + 16 * layout.lines
    assert plan.launch.shared + RESERVED <= SHARED[processor.target]
    assert_lines(layout, geometry)


MANY_TAPS = "its kernel has more than 64 taps along an axis"
MANY_CLASSES = "its taps need more than 32 lines of inputs"
MANY_PLANES = "its taps reach into too many planes of inputs"
NO_TILE, NO_PRODUCTS = "no tile fits shared memory", "its sums have no products"


def reasons(geometry: ConvGeometry, processor: Processor) -> set[str]:
    """What must be said against a gradient of a dtype that Tensor Cores multiply; one of it is."""
    facts = {
        f"{processor.target} lacks the instructions": processor.target == "sm_75",
        NO_PRODUCTS: geometry.is_empty or 0 in geometry.out_shape,
        MANY_AXES: geometry.rank > 3,
        MANY_TAPS: max(axis.kernel for axis in geometry.axes) > matrix_gradient.MOST_TAPS,
        LARGE: geometry.groups * geometry.rows * columns_of(geometry) >= 2**31,
    }
    return {reason for reason, holds in facts.items() if holds}


def is_large(geometry: ConvGeometry) -> bool:
    """Whether a coordinate, or a number of columns or blocks, may be near 32 bits."""
    sizes = (geometry.batch, geometry.channels, geometry.rows, geometry.groups)
    lengths = (
        max(axis.size_in, axis.size_out * axis.step, axis.dilation * axis.kernel) + abs(axis.origin)
        for axis in geometry.axes
    )
    return math.prod(sizes) * max(lengths) * columns_of(geometry) >= 2**28


def assert_lines(layout: Layout, geometry: ConvGeometry) -> None:
    """Assert that lines of inputs hold the words of all taps, and that tiles have room for them."""
    grid, classes = layout.grid, classes_of(layout.grid)
    x = grid.axes[2]
    assert 1 <= len(classes.firsts) <= matrix_gradient.MOST_CLASSES
    for tap, number, shift in zip(x.taps, classes.of, classes.shifts, strict=True):
        word, parity = divmod(tap.shift, grid.packed)
        plane, first = classes.firsts[number]
        assert (plane, first + shift) == (parity * x.planes + tap.plane, word)
        assert first % grid.chunk == 0, "copies have 16 bytes"
        assert 0 <= shift and grid.step + shift <= grid.chunk * classes.chunks
    kernel, columns = len(x.taps), columns_of(geometry)
    for first in range(0, columns, layout.shape.columns)[:99]:
        last = min(first + layout.shape.columns, columns) - 1
        assert (last // kernel - first // kernel + 1) * len(classes.firsts) <= layout.lines


@given(geometry=dense_geometries(), mode=st.sampled_from(PRODUCED))
@example(conv((2, 3, 9, 11), (7, 3, 3, 3), padding=1, stride=2), SINGLE)
@example(conv((1, 1, 9), (1, 1, 4), dilation=3, padding=((0, 9),)), HALF)
def test_a_tap_is_a_shift_along_a_line(geometry: ConvGeometry, mode: Mode) -> None:
    """An output meets its input there, or zero: in its own line or at the begin of a later one."""
    assume(not geometry.transposed)
    grid = grid_of(geometry, mode[0].itemsize)
    for axis, line in zip(on_three_axes(geometry.axes), grid.axes, strict=True):
        for number, tap in enumerate(line.taps):
            residue = tap.plane * line.apart
            assert 0 <= residue < axis.step and tap.shift >= 0

            def at(place: Any, residue: int = residue, axis: Any = axis) -> Any:
                """The place in the input, of a place of the tap's plane."""
                return place * axis.step + residue + axis.origin

            outputs = np.arange(axis.size_out)
            met = at(outputs + tap.shift)
            assert (met == outputs * axis.step + number * axis.dilation + axis.origin).all()
            present = (met >= 0) & (met < axis.size_in)
            after, place = divmod(outputs + tap.shift, line.pitch)
            assert not (present & (after > 0)).any(), "an input lies in another line"
            first = at(place[after > 0])
            assert not ((first >= 0) & (first < axis.size_in)).any(), "another line's input is met"
    lines = 1 if not grid.flat else math.prod(axis.pitch for axis in grid.axes[:2])
    assert lines * grid.axes[2].pitch * mode[0].itemsize % 16 == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: np.dtype[Any]) -> None:
    """What Tensor Cores do not multiply is refused, on all GPUs."""
    geometry = conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1)
    for target in TARGETS:
        found = matrix_gradient.plan(Question(geometry, dtype, "float32", Processor(target, 132)))
        able = dtype in dict(PRODUCED) and target != "sm_75"
        assert isinstance(found, MatrixGradientPlan) == able
        if not able and dtype not in dict(PRODUCED):
            assert found == f"Tensor Cores do not multiply {dtype}"
        elif not able:
            assert found == "sm_75 lacks the instructions"


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        (conv((0, 3, 9, 9), (5, 3, 3, 3)), NO_PRODUCTS),
        (conv((2, 0, 9, 9), (5, 0, 3, 3)), NO_PRODUCTS),
        (conv((2, 3, 9, 9), (0, 3, 3, 3)), NO_PRODUCTS),
        (conv((2, 3, 0, 9), (5, 3, 3, 3), padding=2), NO_PRODUCTS),
        (conv((2, 3, 4, 4, 4, 4), (5, 3, 2, 2, 2, 2)), MANY_AXES),
        (conv((2, 3, 99, 9), (5, 3, 65, 3)), MANY_TAPS),
        (conv((2, 3, 5000), (5, 3, 40), dilation=99), MANY_CLASSES),
        (conv((1, 1, 2**31 + 9), (1, 1, 2)), LARGE),
    ],
    ids=str,
)
def test_refusals(geometry: ConvGeometry, reason: str) -> None:
    for mode in MODES:
        assert matrix_gradient.plan(question_of(geometry, mode)) == reason


def test_as_many_taps_as_tables_hold() -> None:
    for kernel, options in (((64,), {}), ((64, 64), {"dilation": 2}), ((32,), {"dilation": 99})):
        shape = (2, 3, *[4000 if len(kernel) == 1 else 200] * len(kernel))
        plan = matrix_gradient.plan(question_of(conv(shape, (5, 3, *kernel), **options), SINGLE))
        assert isinstance(plan, MatrixGradientPlan)


def test_a_long_sum_fills_the_gpu() -> None:
    """A layer of ResNet-50: its gradient has fewer tiles than a GPU has multiprocessors."""
    for mode in MODES:
        geometry = conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1)
        plan = matrix_gradient.plan(question_of(geometry, mode))
        assert isinstance(plan, MatrixGradientPlan)
        assert plan.layout.splits > 10
        assert HOPPER.multiprocessors < plan.launch.grid


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "sm_75"])
@every_mode
def test_shared_memory(target: str, mode: Mode) -> None:
    """What both kernels declare and what their launches ask for fit."""
    for geometry in (
        conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1),
        conv((32, 64, 56, 56), (64, 64, 1, 1)),
        conv((32, 512, 7, 7), (512, 512, 3, 3), padding=1, stride=2),
        conv((8, 32, 90, 90), (32, 32, 7, 12), dilation=2),
    ):
        plan = matrix_gradient.plan(question_of(geometry, mode, Processor(target, 132)))
        if plan == NO_TILE:  # lines of 16-bit numbers at odd places, or a stride apart, are many
            assert mode[0].itemsize == 2 and SHARED[target] < 2**17
            continue
        assert isinstance(plan, MatrixGradientPlan)
        assert_shared_memory(plan, target, *plan.launches)


# Against the definition ----------------------------------------------------------------------


def check(backend: NumpyBackend, case: Gradient) -> None:
    assert_convolution(backend.compute(case), case.defined, case.dtype, case.precision)


def case_of(mode: Mode, input_shape: Any, weight_shape: Any, **options: Any) -> Gradient:
    dtype, precision = mode
    return gradient("weight", input_shape, weight_shape, dtype, precision=precision, **options)


multiplied = st.sampled_from([(dtype, dtype) for dtype, _ in PRODUCED])

# The end of the last line of an image meets the first one of the next.
OVERHANGING = {"padding": 1, "stride": 2}


@every_backend
@given(
    case=gradients(
        kinds=["weight"], dtypes=multiplied, borders=NO_BORDERS, samples=st.integers(1, 5)
    )
)
@example(case_of(SINGLE, (2, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING))
@example(case_of(HALF, (2, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING))
@example(case_of(SINGLE, (2, 2, 5, 7, 9), (3, 2, 3, 3, 3), **OVERHANGING))
# 16-bit numbers at odd places: all taps of a line, every other one, and with planes of a stride.
@example(case_of(HALF, (2, 3, 5, 20), (7, 3, 2, 5)))
@example(case_of(HALF, (2, 3, 40), (7, 3, 5), dilation=3, padding=((5, 0),)))
@example(case_of((BFLOAT16, "float32"), (2, 3, 41), (7, 3, 4), stride=3, dilation=5))
@example(case_of(HALF, (3, 3, 41), (7, 3, 4), stride=2, dilation=2, padding=3))
def test_definition(backend: NumpyBackend, case: Gradient) -> None:
    check(backend, case)


# What the kernel tells apart: the shapes of an input and a weight, and options.
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "one axis": ((3, 5, 70), (9, 5, 4), {"padding": ((3, 1),)}),
    "one side": ((3, 4, 7, 9), (9, 4, 3, 4), {"padding": ((2, 0), (0, 3))}),
    "a stride": ((3, 4, 9, 13), (9, 4, 3, 5), {"padding": 2, "stride": (2, 3)}),
    "a common divisor": ((3, 4, 29), (9, 4, 4), {"stride": 6, "dilation": 4, "padding": 5}),
    "beyond the kernel": ((3, 4, 9, 26), (9, 4, 1, 2), {"stride": (4, 7)}),
    "unread inputs": ((3, 4, 14), (9, 4, 3), {"stride": 4}),
    "dilated": ((3, 4, 9, 40), (9, 4, 3, 6), {"dilation": (3, 7), "padding": (4, 0)}),
    "three axes": ((2, 3, 5, 4, 6), (9, 3, 2, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
    "groups": ((2, 9, 6, 7), (12, 3, 3, 2), {"groups": 3, "padding": 1}),
    "depthwise": ((2, 5, 6, 7), (10, 1, 3, 3), {"groups": 5, "padding": 1}),
    "without a batch": ((3, 6, 7), (9, 3, 2, 2), {}),
    "one output": ((5, 3, 4, 6), (9, 3, 4, 6), {}),
    "windows in the padding": ((1, 2, 2, 3), (5, 2, 4, 2), {"padding": 5}),
    "one tap": ((3, 10, 6, 12), (12, 5, 1, 1), {"groups": 2}),
    "one tap, an odd size": ((3, 5, 7, 9), (9, 5, 1, 1), {}),
    "one sample of one tap": ((1, 5, 8, 8), (9, 5, 1, 1), {}),
    "lines apart": ((2, 2, 300), (5, 2, 5), {"dilation": 61}),
}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS)


def case_like(kind: str, mode: Mode, **options: Any) -> Gradient:
    input_shape, weight_shape, others = KINDS[kind]
    return case_of(mode, input_shape, weight_shape, **others, **options)


@every_backend
@every_mode
@every_kind
def test_kinds(backend: NumpyBackend, mode: Mode, kind: str) -> None:
    check(backend, case_like(kind, mode))


@every_backend
@every_mode
@pytest.mark.parametrize("style", STYLES)
def test_magnitudes(backend: NumpyBackend, mode: Mode, style: str) -> None:
    check(backend, case_like("a stride", mode, style=style))


@every_backend
@every_mode
@pytest.mark.parametrize("batch", [3, 5, 6])
def test_chunks_of_samples(backend: NumpyBackend, mode: Mode, batch: int, steer: Steering) -> None:
    """Which may have a sample more than others; later ones are added to the first one's sums."""
    steer.replace(_chunks, _CHUNK_BYTES=4 * sample_bytes(mode) + 2)
    case = case_of(mode, (batch, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING)
    geometry = conv((batch, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING)
    plan = matrix_gradient.plan(question_of(geometry, mode))
    assert isinstance(plan, MatrixGradientPlan)
    assert len(plan.layout.samples) == -(-batch // 2)
    check(backend, case)


def sample_bytes(mode: Mode) -> int:
    geometry = conv((1, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING)
    plan = matrix_gradient.plan(question_of(geometry, mode))
    assert isinstance(plan, MatrixGradientPlan)
    return plan.copies


@pytest.mark.emulator
@pytest.mark.parametrize("batch", [1, 3, 4])
def test_workspace_is_what_is_taken(batch: int, steer: Steering) -> None:
    """The partial sums, and the copies of the largest chunk."""
    steer.replace(_chunks, _CHUNK_BYTES=4 * sample_bytes(SINGLE) + 2)
    backend, taken = Recorder("portable"), []
    device = backend.path.device
    workspace = device.workspace

    def noted(shape: Any, dtype: np.dtype[Any]) -> Array:
        taken.append(math.prod(shape) * dtype.itemsize)
        return workspace(shape, dtype)

    device.workspace = noted  # type: ignore[method-assign]
    backend.compute(case_of(SINGLE, (batch, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING))
    geometry = conv((batch, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING)
    plan = matrix_gradient.plan(question_of(geometry, SINGLE, device.processor()))
    assert isinstance(plan, MatrixGradientPlan)
    partial, *copies = taken
    assert plan.partial == partial
    assert plan.copies == max(a + b for a, b in zip(copies[::2], copies[1::2], strict=True))


# How far sums of products of one sign may be off, against their size. A result in bfloat16 is
# rounded, and one in float16 would overflow.
MOST_ERROR = {"float32": 2.0**-20, "tf32": 2.0**-12, "bfloat16": 2.0**-8}


def check_long_sum(backend: NumpyBackend, mode: Mode, length: int) -> None:
    """Errors do not grow with the number of products, although Tensor Cores truncate sums."""
    case = case_of(mode, (1, 1, length + 1), (1, 1, 2), style="positive")
    found = backend.compute(case).astype(np.float64).ravel()
    x, y = (case[name].astype(np.float64).ravel() for name in ("input", "grad_output"))
    expected = np.array([x[:-1] @ y, x[1:] @ y])
    name = mode[1] if mode[0] == np.float32 else mode[0].name
    assert np.abs(found - expected).max() <= MOST_ERROR[name] * expected.max()


@every_backend
@pytest.mark.parametrize("mode", [SINGLE, MODES[1], MODES[3]], ids=MOST_ERROR)
@pytest.mark.large
def test_long_sums_of_one_sign(backend: NumpyBackend, mode: Mode) -> None:
    check_long_sum(backend, mode, 2**20)


@every_backend
def test_sums_of_one_sign(backend: NumpyBackend) -> None:
    check_long_sum(backend, SINGLE, 2**14)


# Infinities and NaN --------------------------------------------------------------------------


def planted(case: Gradient, places: dict[str, Sequence[tuple[Any, float]]]) -> Gradient:
    """The case with values at some places of its arrays."""
    arrays = {name: case[name].copy() for name in places}
    for name, values_at in places.items():
        for place, value in values_at:
            arrays[name][place] = value
    return case.with_arrays(**arrays)


@every_backend
@every_mode
@every_kind
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("name", ["input", "grad_output"])
def test_special_values(
    backend: NumpyBackend, mode: Mode, kind: str, value: float, name: str
) -> None:
    """At the first place, the last one and one in the middle, each in a channel of its own.

    They reach the taps that they have products with: not those for which they would meet padding,
    and none at all where a stride leaves them unread.
    """
    case = case_like(kind, mode)
    a = case[name]
    rank = len(case.options["weight_size"]) - 2
    lead = a.shape[: a.ndim - rank]
    corners = [
        (*(0,) * (len(lead) - 1), channel % lead[-1], *(end(n) for n in a.shape[len(lead) :]))
        for channel, end in enumerate((lambda n: 0, lambda n: n - 1, lambda n: n // 2))
    ]
    check(backend, planted(case, {name: [(place, value) for place in corners]}))


@every_backend
@every_mode
def test_infinities_that_meet(backend: NumpyBackend, mode: Mode) -> None:
    """Infinity times zero, opposite infinities of two ranges, and one that meets another."""
    case = case_of(mode, (2, 2, 9, 40), (3, 2, 3, 3), padding=1)
    x, y = ((0, 0, 3, 4), np.inf), ((0, 0, 3, 4), 0.0)
    check(backend, planted(case, {"input": [x], "grad_output": [y]}))
    check(backend, planted(case, {"input": [x, ((1, 0, 3, 4), -np.inf)]}))
    check(backend, planted(case, {"input": [x], "grad_output": [((1, 1, 0, 0), -np.inf)]}))


@every_backend
@every_mode
@pytest.mark.parametrize("sign", [0, 1])
def test_nan_of_all_bits(backend: NumpyBackend, mode: Mode, sign: int) -> None:
    """A NaN that a carry would make zero, as numbers are rounded to fewer bits."""
    dtype, _ = mode
    for name in ("input", "grad_output"):
        case = case_like("one side", mode)
        a = case[name].copy()
        kind = np.dtype(f"uint{8 * dtype.itemsize}")
        a.view(kind)[1, 2, 3, 3] = np.iinfo(kind).max >> (1 - sign)
        assert np.isnan(a[1, 2, 3, 3])
        check(backend, case.with_arrays(**{name: a}))


@every_backend
@every_mode
def test_the_largest_numbers(backend: NumpyBackend, mode: Mode) -> None:
    """They are finite, also where rounded to TF32 they would not be."""
    dtype, _ = mode
    case = case_like("one axis", mode)
    x, small = case["input"].copy(), case["grad_output"] / dtype.type(256)
    x[1, 2, 20:23] = ml_dtypes.finfo(dtype).max
    check(backend, case.with_arrays(input=x, grad_output=small))


# Layouts -------------------------------------------------------------------------------------


@every_backend
@every_mode
@pytest.mark.parametrize("kind", ["one side", "a stride", "three axes", "one tap", "groups"])
def test_layouts_change_no_bit(backend: NumpyBackend, mode: Mode, kind: str) -> None:
    case = case_like(kind, mode)
    expected = backend.compute(case)
    layouts = [layout for layout in LAYOUTS if layout not in ("contiguous", "broadcast")]
    for number, layout in enumerate(layouts):
        rng = np.random.default_rng(number)
        arrays = case.map(
            lambda a, layout=layout, rng=rng: backend.asarray(lay_out(rng, a, layout))
        )
        out = backend.asarray(lay_out(rng, poison(np.empty_like(expected)), layout))
        backend.call(case.function, **arrays.arrays, **case.options, out=out)
        assert_same_bits(backend.to_numpy(out), expected)


@every_backend
@every_mode
@pytest.mark.parametrize("kind", ["a stride", "one tap"])
@pytest.mark.parametrize("axis", range(4))
def test_repeated_values(backend: NumpyBackend, mode: Mode, axis: int, kind: str) -> None:
    """Arrays with a stride of zero, which `broadcast_to` returns."""
    case = case_like(kind, mode)
    flat = case.map(lambda a: np.broadcast_to(a.take([0], axis), a.shape))
    expected = backend.compute(flat.map(np.ascontiguousarray))
    assert_same_bits(backend.compute(flat), expected)


@pytest.mark.emulator
@every_mode
def test_arrays_that_are_read_in_place(mode: Mode) -> None:
    """Those of one tap whose channels are whole chunks without gaps; others are copied."""
    bits = []
    rng = np.random.default_rng(0)
    for layout, copied in (
        ("contiguous", 0), ("interleaved", 0), ("offset", 2), ("cropped", 2), ("transposed", 2),
    ):  # fmt: skip
        backend = Recorder("portable")
        case = case_like("one tap", mode).map(lambda a, layout=layout: placed(rng, a, layout))
        bits.append(backend.compute(case))
        functions = [launch.instance.function for launch in backend.launches]
        assert functions == ["pad"] * copied + ["matrix_gradient", "gradient_sum"], layout
        assert_same_bits(bits[0], bits[-1])


def placed(rng: np.random.Generator, a: Array, layout: str) -> Array:
    """The array in memory that begins at a multiple of 16 bytes, but for offset ones."""
    if layout == "transposed":
        return a.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)
    if layout == "contiguous":
        return aligned(a, 0)
    if layout == "offset":
        return aligned(a, a.itemsize)
    if layout == "interleaved":
        return aligned(a.repeat(2, axis=1), 0)[:, ::2]
    return lay_out(rng, a, layout)


def aligned(a: Array, offset: int) -> Array:
    """A copy of the array so many bytes after a multiple of 16."""
    memory = np.empty(a.nbytes + 32, np.uint8)
    first = -memory.ctypes.data % 16 + offset
    view = memory[first : first + a.nbytes].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


# Instances -----------------------------------------------------------------------------------


def mode_of(instance: Instance) -> Mode:
    defines = dict(instance.defines)
    dtype = dtype_of(defines["ELEMENT"])
    fast = dtype == np.float32 and defines["PARTS"] == "1"
    return dtype, "tf32" if fast else "float32"


def shape_of(instance: Instance) -> Shape:
    names = "ROW_TILES", "COLUMN_TILES", "WARPS", "WARPS_DOWN"
    return Shape(*(int(dict(instance.defines)[name]) for name in names))


def run_once(
    case: Gradient, geometry: ConvGeometry, mode: Mode, multiprocessors: int
) -> tuple[MatrixGradientPlan, Recorder]:
    """Check a gradient, which launches what its plan says; return the plan."""
    backend = Recorder("portable")
    backend.path.device.multiprocessors = multiprocessors
    check(backend, case)
    plan = matrix_gradient.plan(question_of(geometry, mode, backend.path.device.processor()))
    assert isinstance(plan, MatrixGradientPlan)
    copies = [launch for launch in backend.launches if launch.instance.source == "borders.cu"]
    rest = [launch for launch in backend.launches if launch.instance.source != "borders.cu"]
    chunks = len(plan.layout.samples)
    assert len(copies) == 2 * chunks
    assert rest == [plan.launch] * chunks + [plan.add]
    return plan, backend


# Shapes of an input and a weight, by the rows and the channels of a group, and options.
DIVIDED: dict[str, Any] = {
    "a stride": lambda rows, channels: (
        (2, 2 * channels, 5, 130), (2 * rows, channels, 2, 3),
        {"stride": (1, 2), "padding": (0, 1)},
    ),
    "three axes": lambda rows, channels: (
        (2, 2 * channels, 2, 4, 37), (2 * rows, channels, 1, 2, 3), {"padding": (0, 1, 1)},
    ),
}  # fmt: skip


@on_the_emulator("instance", cases=PRODUCTS)
@pytest.mark.parametrize("kind", DIVIDED)
def test_products_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """Several tiles of rows and of columns, the last ones ragged, ranges, groups and chunks."""
    mode, shape = mode_of(instance), shape_of(instance)
    registers = 2 if mode == DOUBLE else int(dict(instance.defines)["PARTS"])
    steer.replace(matrix_gradient, _SHAPES={**matrix_gradient._SHAPES, registers: (shape,)})
    steer.replace(_chunks, _CHUNK_BYTES=1)
    *shapes, options = DIVIDED[kind](shape.rows + 9, shape.columns // 6 + 3)
    geometry = conv(*shapes, groups=2, **options)
    case = case_of(mode, *shapes, groups=2, **options)
    plan, _ = run_once(case, geometry, mode, 2 * shape.warps)
    layout = plan.layout
    assert plan.launch.instance == instance
    assert layout.row_tiles == layout.column_tiles == 2
    assert layout.splits > 1 and len(layout.samples) == 2
    assert layout.grid.words(1) % layout.grid.step, "the last step would be a whole one"
    assert layout.grid.steps(1) > layout.splits, "each range has a step"


@on_the_emulator("instance", cases=SUMS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=["in order", "transposed"])
def test_sums_instance(instance: Instance, order: tuple[int, ...]) -> None:
    """Several ranges, more than one block of elements, of which some are not finite."""
    dtype = dtype_of(dict(instance.defines)["ELEMENT"])
    case = case_of((dtype, "float32"), (3, 6, 200), (10, 3, 5), stride=2, padding=2, groups=2)
    case = planted(
        case, {"input": [((1, 1, 0), np.inf), ((2, 4, 3), np.nan)],
               "grad_output": [((0, 9, 99), -np.inf)]},
    )  # fmt: skip
    geometry = conv((3, 6, 200), (10, 3, 5), stride=2, padding=2, groups=2)
    plan, backend = run_once(case, geometry, (dtype, "float32"), 2)
    assert plan.add.instance == instance
    assert plan.add.grid > 1 and plan.layout.splits > 1
    expected = backend.compute(case)
    assert 0 < np.isfinite(expected).sum() < expected.size
    out = poison(np.empty([expected.shape[axis] for axis in order], dtype))
    out = out.transpose(np.argsort(order))
    backend.call(case.function, **case.arrays, **case.options, out=out)
    assert_same_bits(out, expected)


def channels_apart(a: Array) -> Array:
    """A copy of the array whose channels lie one element further from each other."""
    places = math.prod(a.shape[2:])
    memory = aligned(np.empty((*a.shape[:2], places + 1), a.dtype), 0)
    view = memory[..., :places].reshape(a.shape)
    assert np.shares_memory(view, memory)
    view[...] = a
    return view


# Mistakes ------------------------------------------------------------------------------------

# What a plan or its arguments could do wrong, as a change of a function's text, and a call that
# shows it; the mutants of the kernels are in tests/mutants/.
MISTAKES: dict[str, tuple[str, str, str, Gradient]] = {
    "a line's end meets the next line": (
        "line_of", "reach - first", "0",
        case_of(SINGLE, (2, 2, 8, 8), (3, 2, 4, 4), padding=((0, 3), (0, 3))),
    ),
    "no room for inputs beyond the outputs": (
        "line_of", "min(end, reach)", "0",
        case_of(SINGLE, (2, 2, 8, 8), (3, 2, 4, 4), padding=((3, 0), (3, 0))),
    ),
    "planes of inputs that no tap reaches": (
        "line_of", "Tap(residue // apart, shift)", "Tap(residue, shift)",
        case_of(SINGLE, (3, 4, 29), (9, 4, 4), stride=6, dilation=4, padding=5),
    ),
    "no planes of odd places": (
        "grid_of", "any(tap.shift % 2 for tap in axes[2].taps)", "False",
        case_like("one axis", HALF),
    ),
    "copies that begin anywhere": (
        "classes_of", "word // grid.chunk * grid.chunk", "word", case_like("lines apart", SINGLE),
    ),
    "no room for a line that two tiles share": (
        "_layout", "(shape.columns - 1) // x) + 1", "shape.columns // x)",
        case_of(SINGLE, (1, 40, 3, 14), (3, 40, 2, 7)),
    ),
    "no room for the descriptions of lines": (
        "_shared", "+ _PLACE * layout.lines", "", case_like("one axis", SINGLE),
    ),
    "the planes of x for those of y": (
        "_arguments", "y.planes * planes_x", "planes_x",
        case_of(SINGLE, (2, 3, 7, 9, 11), (3, 3, 3, 3, 3), stride=2),
    ),
    "an exact sum without padding": (
        "axes", "-axis.origin", "0",
        planted(case_like("one side", SINGLE), {"input": [((0, 0, 0, 0), np.inf)]}),
    ),
    "arrays in place that begin anywhere": (
        "_Copy", "self.device.address(array) % CHUNK_BYTES == 0", "True",
        case_like("one tap", SINGLE).map(lambda a: aligned(a, 4)),
    ),
    "channels in place at any distance": (
        "_Copy", "and not (channels % whole or samples % whole)", "",
        case_like("one tap", SINGLE).map(channels_apart),
    ),
    "steps over the end of a sample": (
        "_arguments", "words // grid.samples(samples)", "words", case_like("one tap", SINGLE),
    ),
}  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, steer: Steering) -> None:
    name, before, after, case = MISTAKES[mistake]
    (backend,) = (p.values[0] for p in BACKENDS if p.values[0].name == "emulator")
    check(backend, case)
    modules = matrix_gradient_grid, matrix_gradient, gradient_sum
    own = next(module for module in modules if name in vars(module))
    text = inspect.getsource(getattr(own, name))
    assert text.count(before) == 1
    changed = dict(vars(own))
    exec(text.replace(before, after), changed)
    for module in modules:
        if name in vars(module):
            steer.replace(module, **{name: changed[name]})
    with pytest.raises(AssertionError):
        check(backend, case)
