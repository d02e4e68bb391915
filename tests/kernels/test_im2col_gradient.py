"""The gradient of a weight by wgmma from pixels: its plans, arrays, instances, and mistakes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from test_gradient_products import (
    BACKENDS,
    DIVIDED,
    HALF,
    Mistake,
    Mode,
    assert_divided,
    assert_is_found,
    case_like,
    case_of,
    check,
    is_large,
    mode_of,
    placed,
    planted,
    question_of,
    reasons,
    run_once,
)

from backends import NumpyBackend
from bounds import assert_same_bits
from cupyconv import _chunks, _compile
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import gradient_products, gradient_tiles, im2col_gradient, im2col_maps
from cupyconv._kernels.gradient_products import MUCH_MEMORY
from cupyconv._kernels.gradient_tiles import Shape
from cupyconv._kernels.im2col_gradient import FAR_TAPS, Columns, Im2colGradientPlan
from cupyconv._kernels.im2col_maps import axes_of
from cupyconv._kernels.launches import RESERVED, SHARED, TARGETS, Instance, Processor
from cupyconv._kernels.question import LARGE, Question
from cupyconv._tensor_maps import Pixels
from planning import (
    MOST,
    Steering,
    assert_shared_memory,
    checked,
    conv,
    conv_geometries,
    dense_geometries,
)
from reference import Array
from running import Recorder, instances_of, on_the_emulator
from strategies import DTYPES, MODES
from subjects import Subject

INSTANCES = instances_of("im2col_gradient.cu")
BOXES = (64, 32, 16, 8)
every_mode = pytest.mark.parametrize("mode", MODES[2:], ids=["float16", "bfloat16"])
every_backend = pytest.mark.parametrize("backend", BACKENDS[-2:])

SUBJECTS = (
    Subject(
        im2col_gradient,
        threads=lambda instance: im2col_gradient.THREADS,
        tested=INSTANCES,
        everywhere=False,
    ),
)


def test_limits_of_stages() -> None:
    """The kernel and its plans count threads, pixels, stages and their bytes alike."""
    text = _compile.source("im2col_gradient.cu")
    room, stages = gradient_tiles.ROOM // 1024, gradient_tiles.MOST_STAGES
    assert f"ROOM = {room} * 1024, MOST_STAGES = {stages};" in text
    assert f"PIXELS = {im2col_gradient.PIXELS}, DEPTH = 16;" in text
    assert "ROW_BOX = 64, ROWS = ROW_BOX * BLOCKS * DOWN, COLUMNS = SEGMENT" in text
    assert "WARPGROUP = 128, CONSUMERS = 2;" in text
    assert "THREADS = (CONSUMERS + 1) * WARPGROUP;" in text
    assert im2col_gradient.THREADS == 3 * 128


def shape_of(instance: Instance) -> Shape:
    defines = dict(instance.defines)
    return Shape(int(defines["DOWN"]), int(defines["SEGMENT"]), int(defines["BLOCKS"]))


# Plans ---------------------------------------------------------------------------------------


@given(
    geometry=st.one_of(conv_geometries(), dense_geometries()),
    mode=st.sampled_from(MODES[2:]),
    multiprocessors=st.sampled_from([1, 2, 30, 132]),
)
@example(conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1), HALF, 132)
@example(conv((256, 64, 112, 112), (64, 64, 3, 3), padding=1), HALF, 132)  # many chunks
@example(conv((3, 64, 170, 170), (64, 64, 3, 3)), HALF, 132)  # two of them, not as long
@example(conv((1, 4096, 9, 9), (4096, 4096, 3, 3)), HALF, 132)  # partial sums beyond 32 MB
@example(conv((4, 600, 9, 9), (300, 600, 2, 2), stride=2, dilation=3), HALF, 30)
@example(conv((1, 64, 129, 129), (64, 64, 1, 3), padding=((0, 0), (1, 0))), HALF, 132)
@example(conv((1, 64, 30, 64), (64, 64, 1, 3), padding=((0, 0), (126, 126))), HALF, 132)
@example(conv((8, 8, 30, 30, 60), (64, 8, 1, 1, 24), padding=(0, 0, 12)), HALF, 132)
def test_gradient_plans(geometry: ConvGeometry, mode: Mode, multiprocessors: int) -> None:
    """Tiles, boxes and ranges cover the gradient and its sums, within their memory."""
    assume(not geometry.transposed)
    processor = Processor("sm_90a", multiprocessors)
    question = question_of(geometry, mode, processor)
    plan = im2col_gradient.plan(question)
    if isinstance(plan, str):
        expected = reasons(geometry) or {FAR_TAPS, MUCH_MEMORY}
        assert plan in expected or (plan == LARGE and is_large(geometry)), plan
        return
    assert not reasons(geometry)
    checked(partial(im2col_gradient.plan, question), processor)
    layout, columns = plan.layout, plan.layout.columns
    shape, x = layout.shape, axes_of(geometry)[-1]
    taps = math.prod(axis.kernel for axis in geometry.axes)
    # Boxes have channels of a tap, or of neighbouring ones: these are the columns of a warpgroup.
    # Whole boxes make a tile, each of them brought by a lane of a warp.
    box, shared = columns.box, columns.shared
    assert box in BOXES and shape.segment % (box * shared) == 0
    assert columns.boxes(shape) == shape.columns // (box * shared) <= 32
    assert columns.pixels == 64 + (shared - 1) * columns.apart <= 128
    assert (
        0 <= columns.box_bytes - 2 * box * columns.pixels < 1024 and columns.box_bytes % 1024 == 0
    )
    if shared > 1:
        assert (x.step, columns.apart, box * shared) == (1, x.dilation, shape.segment)
        assert x.kernel % shared == 0
    corner, _ = Pixels.most(len(axes_of(geometry)))
    for views in im2col_gradient._views(geometry, columns):
        assert all(-corner <= end < corner for view in views for end in (view.lower, view.upper))
    width = taps * -(-geometry.channels // box) * box
    longest = max(layout.samples)
    lines = math.prod(axis.size_out for axis in axes_of(geometry)[:-1])
    steps = -(-longest * lines * (x.size_out + (shared - 1) * columns.apart) // 64)
    assert_divided(plan, geometry, mode, width, steps)
    assert steps * 64 <= MOST
    whole = 16 if geometry.groups > 1 else 8
    rows, channels = (-(-n // whole) * whole for n in (geometry.rows, geometry.channels))
    outputs, inputs = (
        math.prod(getattr(axis, name) for axis in geometry.axes) for name in ("size_out", "size_in")
    )
    sample = 2 * geometry.groups * (rows * outputs + channels * inputs)
    numbers = geometry.groups * (geometry.rows * outputs + geometry.channels * inputs)
    assert plan.copies == longest * sample <= max(2**26, 4 * numbers) * longest
    # Each stage holds a step of both operands; there are two mbarriers for each of eight stages.
    stage = shape.rows * 128 + columns.boxes(shape) * columns.box_bytes
    assert stage <= 2**16 and plan.launch.shared == min(8, 224 * 1024 // stage) * stage + 128
    assert plan.launch.shared + RESERVED <= SHARED["sm_90a"]
    assert plan.launch.block == 384
    assert geometry.groups * max(rows, channels) + shape.rows + shape.columns <= MOST


def test_windows_of_shared_boxes_are_expressible() -> None:
    """They reach further than those of single taps, whose ends may be the last that there are."""
    for padding, shared in ((127, True), (128, False), (129, False)):
        geometry = conv((1, 64, 2, 64), (64, 64, 1, 3), padding=((0, 0), (0, padding)))
        assert isinstance(im2col_gradient.plan(question_of(geometry, HALF)), Im2colGradientPlan)
        found = {columns.shared for columns in im2col_gradient._columns(geometry, Shape(2, 192))}
        assert (3 in found) == shared, padding


@pytest.mark.parametrize(
    ("geometry", "taken"),
    [
        (conv((1, 2**31 - 999, 1), (1, 2**31 - 999, 1)), True),
        (conv((1, 2**31 - 299, 1), (1, 2**31 - 299, 1)), False),  # channels, with a tile
        (conv((64, 8, 2**25 - 2**9), (8, 8, 1)), True),
        (conv((1, 8, 2**30), (8, 8, 2), dilation=2), True),
    ],
    ids=str,
)
def test_coordinates_fit_31_bits(geometry: ConvGeometry, taken: bool) -> None:
    for mode in MODES[2:]:
        plan = im2col_gradient.plan(question_of(geometry, mode))
        assert isinstance(plan, Im2colGradientPlan) if taken else plan == LARGE


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: np.dtype[Any]) -> None:
    """It is for 16-bit numbers, and for GPUs with wgmma."""
    geometry = conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1)
    for target in TARGETS:
        found = im2col_gradient.plan(Question(geometry, dtype, "float32", Processor(target, 132)))
        if dtype in (np.float32, np.float64):
            assert found == "it is for 16-bit numbers"
        elif dtype not in dict(MODES):
            assert found == f"Tensor Cores do not multiply {dtype}"
        elif target != "sm_90a":
            assert found == f"{target} lacks wgmma"
        else:
            assert isinstance(found, Im2colGradientPlan)


@every_mode
def test_memory_of_samples(mode: Mode) -> None:
    """Copies of a float for each number may be of any size, others of 64 MB at the most."""
    for channels, places, taken in ((8, 3000, True), (1, 1400, True), (1, 3000, False)):
        geometry = conv((1, channels, places, places), (channels, channels, 3, 3))
        plan = im2col_gradient.plan(question_of(geometry, mode))
        assert isinstance(plan, Im2colGradientPlan) if taken else plan == MUCH_MEMORY


def test_reach_of_the_copy_engine() -> None:
    for options, taken in (
        ({"stride": 8}, True), ({"stride": 9}, False), ({"dilation": 127, "padding": 127}, True),
        ({"dilation": 128, "padding": 128}, False),
    ):  # fmt: skip
        geometry = conv((2, 16, 300, 300), (16, 16, 3, 3), **options)
        plan = im2col_gradient.plan(question_of(geometry, HALF))
        assert isinstance(plan, Im2colGradientPlan) if taken else plan == FAR_TAPS


@every_mode
def test_shared_memory(mode: Mode) -> None:
    for geometry in (
        conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1),
        conv((32, 512, 7, 7), (512, 512, 3, 3), padding=1, stride=2),
        conv((1, 3, 9, 9), (5, 3, 3, 3)),
    ):
        plan = im2col_gradient.plan(question_of(geometry, mode))
        assert isinstance(plan, Im2colGradientPlan)
        assert_shared_memory(plan, "sm_90a", *plan.launches)


# Arrays in place ------------------------------------------------------------------------------


def channels_last(a: Array) -> Array:
    return placed(np.random.default_rng(0), np.moveaxis(a, 1, -1).copy(), "contiguous")


@pytest.mark.emulator
@every_mode
def test_arrays_that_are_read_in_place(mode: Mode) -> None:
    """Those whose channels lie innermost, at whole chunks, change no bit."""
    case = case_of(mode, (2, 16, 6, 9), (8, 16, 3, 3), padding=1, stride=(1, 2))
    backend = Recorder("im2col")
    expected = backend.compute(case.map(np.ascontiguousarray))
    assert backend.launches[0].instance.function == "channels_last"
    last = case.map(channels_last)
    ways: dict[str, tuple[Any, int]] = {
        "innermost": (lambda a: a, 0),
        "cropped": (lambda a: np.pad(a, ((0, 1), (1, 2), (3, 0), (0, 0)))[:-1, 1:-2, 3:], 0),
        "every other channel": (lambda a: a.repeat(2, 3)[..., ::2], 1),
        "no whole chunks": (lambda a: np.pad(a, ((0, 0),) * 3 + ((0, 1),))[..., :-1], 1),
        "reversed": (lambda a: a[:, ::-1].copy()[:, ::-1], 1),
    }
    for way, (lay, copied) in ways.items():
        backend.launches.clear()
        laid = last.map(lambda a, lay=lay: np.moveaxis(lay(a), -1, 1))
        assert_same_bits(backend.compute(laid), expected)
        functions = [one.instance.function for one in backend.launches]
        assert functions == [*["channels_last"] * copied, "im2col_gradient", "gradient_sum"], way


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["input", "grad_output"])
def test_one_array_is_copied(name: str) -> None:
    case = case_of(HALF, (2, 16, 6, 9), (8, 16, 3, 3), padding=1)
    backend = Recorder("im2col")
    expected = backend.compute(case)
    last = np.moveaxis(channels_last(case[name]), -1, 1)
    backend.launches.clear()
    assert_same_bits(backend.compute(case.with_arrays(**{name: last})), expected)
    assert backend.launches[0].instance.function == "channels_last"


# Taps that share a box ------------------------------------------------------------------------


def steered(steer: Steering, shape: Shape, box: int, shared: bool) -> None:
    """Let plans have tiles of a shape, and boxes of so many channels."""
    columns = im2col_gradient._columns
    steer.replace(im2col_gradient, _SHAPES=(shape,))
    steer.replace(
        im2col_gradient,
        _columns=lambda *given: (
            one for one in columns(*given) if (one.box, one.shared > 1) == (box, shared)
        ),
    )


# The shapes of an input and a weight, and options, by the taps that share boxes.
SHARING: dict[str, Any] = {
    "one axis": lambda taps: ((3, 5, 40 + taps), (9, 5, taps), {"padding": ((3, 0),)}),
    "boxes of a row": lambda taps: ((2, 5, 4, 7), (9, 5, 2, 2 * taps), {"padding": (0, 2 * taps)}),
    "taps apart": lambda taps: (
        (2, 9, 5, 3 * taps), (9, 9, 2, taps), {"dilation": (2, 2), "stride": (2, 1)},
    ),
    "three axes": lambda taps: (
        (2, 3, 4, 4, taps), (9, 3, 2, 2, taps), {"padding": (1, 0, taps // 2)},
    ),
    "one output of a row": lambda taps: ((2, 3, 5, taps), (9, 3, 3, taps), {"padding": (1, 0)}),
}  # fmt: skip


@every_backend
@pytest.mark.parametrize("kind", SHARING)
@pytest.mark.parametrize("box", BOXES)
def test_taps_that_share_a_box(backend: NumpyBackend, kind: str, box: int, steer: Steering) -> None:
    for shape in (Shape(2, 192), Shape(1, 128)):
        taps = shape.segment // box
        if kind == "three axes" and taps > 16:
            continue  # windows of three axes end 15 places after an axis
        input_shape, weight_shape, options = SHARING[kind](taps)
        steered(steer, shape, box, shared=True)
        check(backend, case_of(HALF, input_shape, weight_shape, **options))
        plan = im2col_gradient.plan(question_of(conv(input_shape, weight_shape, **options), HALF))
        assert isinstance(plan, Im2colGradientPlan)
        assert plan.layout.columns.shared == taps


@every_backend
@pytest.mark.parametrize("name", ["input", "grad_output"])
def test_infinities_beside_shared_boxes(backend: NumpyBackend, name: str, steer: Steering) -> None:
    """They meet zeros at the ends of rows, and inputs of the row before and after."""
    steered(steer, Shape(2, 192), 64, shared=True)
    case = case_of(HALF, (2, 3, 4, 8), (5, 3, 1, 3), padding=(0, 1))
    for place in ((0, 1, 1, 0), (0, 1, 1, 7), (1, 2, 3, 7)):
        check(backend, planted(case, {name: [(place, np.inf)]}))


# Instances -----------------------------------------------------------------------------------


def columns_of(shape: Shape, kind: str) -> tuple[int, int]:
    """The channels of a box for a test of a shape, and how many taps share it."""
    if kind == "shared":
        box = 32 if shape.segment % 64 else 64
        return box, shape.segment // box
    return (32 if shape.segment % 64 or kind == "three axes" else 64), 1


@on_the_emulator("instance", cases=INSTANCES)
@pytest.mark.parametrize("kind", [*DIVIDED, "shared"])
def test_products_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """Several tiles of rows and of columns, the last ones ragged, ranges, groups and chunks.

    Each range has more steps than there are stages.
    """
    mode, shape = mode_of(instance), shape_of(instance)
    box, shared = columns_of(shape, kind)
    if shared == 1 and kind == "shared":
        return  # a box is a warpgroup's columns
    columns = Columns(box, shared, int(shared > 1))
    steered(steer, shape, box, shared > 1)
    steer.replace(im2col_gradient, fastest_splits=lambda *arguments: 2)
    steer.replace(_chunks, _CHUNK_BYTES=1)
    stages = gradient_tiles.stages_of(columns.stage(shape))
    places = (2 * stages + 4) * 64 + 12
    rows = shape.rows + 9
    if kind == "shared":
        channels = box * (shape.columns // (box * shared)) + 3
        shapes = (2, 2 * channels, 1, places // 9 * 8), (2 * rows, channels, 1, shared)
        options: dict[str, Any] = {"padding": (0, 1)}
    else:
        *shapes, options = DIVIDED[kind](rows, shape.columns // 6 + 3, places)
    geometry = conv(*shapes, groups=2, **options)
    case = case_of(mode, *shapes, groups=2, **options)
    plan, _ = run_once("im2col", case, geometry, mode, 2)
    layout = plan.layout
    assert plan.launch.instance == instance and layout.columns == columns
    assert layout.row_tiles == 2 <= layout.column_tiles
    assert geometry.channels % box, "the last box would be a whole one"
    assert layout.splits == 2 and len(layout.samples) == 2
    steps = im2col_gradient._steps(geometry, 1, columns)
    assert math.prod(axis.size_out for axis in geometry.axes) % 64, "the last step would be whole"
    assert steps // 2 > stages


# Mistakes ------------------------------------------------------------------------------------

MODULES = im2col_gradient, im2col_maps, gradient_products
# Three boxes of a row, each of three taps.
ROWS = case_of(HALF, (2, 5, 3, 40), (5, 5, 2, 9), dilation=(1, 2), padding=(0, 5))
MISTAKES: dict[str, Mistake] = {
    "inputs without padding": (
        "_arguments", "(view.lower for view in inputs)", "(0 for view in inputs)",
        case_like("one side", HALF),
    ),
    "neighbours for a step": (
        "_arguments", "axis.step for axis in axes", "1 for axis in axes",
        case_of(HALF, (2, 9, 90), (9, 9, 3), stride=2),
    ),
    "boxes of each tap": (
        "_arguments", "axis.kernel // n for", "axis.kernel for", ROWS,
    ),
    "boxes of neighbouring taps": (
        "_arguments", "axis.dilation * n for", "axis.dilation for", ROWS,
    ),
    "neighbouring pixels for taps apart": (
        "_arguments", "columns.apart * pixel if", "pixel if", ROWS,
    ),
    "rows of as many places as outputs": (
        "_arguments", "a.size_out + view.upper for", "a.size_out for", ROWS,
    ),
    "axes in another order": (
        "_arguments", "[*reversed([*values])", "[*[*values]", case_like("a stride", HALF),
    ),
    "a window of outputs alone": ("_views", "View(0, further, 1)", "View(0, 0, 1)", ROWS),
    "a window of the first tap": (
        "_views", "window.upper + further", "window.upper", ROWS,
    ),
    "boxes of 64 pixels": ("_operands", "columns.box, columns.pixels", "columns.box, PIXELS", ROWS),
    "groups of one channel": (
        "_image", "(sample, channels * channel, channel)", "(sample, channel, channel)",
        case_like("groups", HALF),
    ),
    "steps of outputs alone": (
        "_steps", "(x + columns.further)", "x", case_of(HALF, (1, 30, 2, 66), (5, 30, 1, 3)),
    ),
    "too few tiles of columns": (
        "_layout", "-(-width // shape.columns)", "max(1, width // shape.columns)",
        case_of(HALF, (1, 40, 4, 40), (3, 40, 3, 3)),
    ),
    "too few boxes": (
        "_layout", "taps * -(-geometry.channels // columns.box) * columns.box",
        "taps * geometry.channels", case_of(HALF, (1, 17, 3, 14), (3, 17, 2, 7)),
    ),
    "boxes without blocks of the swizzle": (
        "Columns", "-(-2 * self.pixels * self.box // _BLOCK) * _BLOCK",
        "2 * self.pixels * self.box", ROWS,
    ),
    "no room for barriers": (
        "plan", " + MOST_STAGES * BARRIERS", "", case_like("one axis", HALF),
    ),
}  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, steer: Steering) -> None:
    assert_is_found("im2col", MISTAKES[mistake], MODULES, steer)
