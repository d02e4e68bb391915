"""The gradient of a weight by wgmma: its plans, copies, instances, and mistakes of its plans."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from test_gradient_products import (
    DIVIDED,
    HALF,
    MANY_PLANES,
    SINGLE,
    Mistake,
    Mode,
    aligned,
    assert_divided,
    assert_is_found,
    case_like,
    case_of,
    channels_apart,
    is_large,
    mode_of,
    placed,
    question_of,
    reasons,
    run_once,
)

from backends import NumpyBackend
from bounds import assert_same_bits
from cupyconv import _chunks, _compile
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import (
    gradient_lines,
    gradient_products,
    gradient_tiles,
    hopper_gradient,
    matrix_gradient_grid,
)
from cupyconv._kernels.gradient_lines import LineAxis, Lines
from cupyconv._kernels.gradient_products import MUCH_MEMORY
from cupyconv._kernels.gradient_tiles import Shape
from cupyconv._kernels.hopper_gradient import HopperGradientPlan
from cupyconv._kernels.launches import RESERVED, SHARED, TARGETS, Instance, Processor
from cupyconv._kernels.matrix_gradient_grid import grid_of_boxes
from cupyconv._kernels.modes import unscaled_mode
from cupyconv._kernels.question import LARGE, Question
from planning import (
    MOST,
    Steering,
    any_mode,
    assert_shared_memory,
    checked,
    conv,
    conv_geometries,
    dense_geometries,
)
from reference import Array
from running import Recorder, every_wgmma_device, instances_of, made, on_the_emulator
from strategies import DTYPES, MODES
from subjects import Subject

PRODUCTS, COPIES = map(instances_of, ("hopper_gradient.cu", "gradient_lines.cu"))

every_mode = pytest.mark.parametrize("mode", MODES, ids=["float32", "tf32", "float16", "bfloat16"])

SUBJECTS = (
    Subject(
        hopper_gradient,
        threads=lambda instance: hopper_gradient.THREADS,
        tested=PRODUCTS,
        everywhere=False,
        limits={"MOST_TAPS": gradient_products.MOST_TAPS},
    ),
    Subject(
        gradient_lines,
        threads=lambda instance: gradient_lines.THREADS,
        tested=COPIES,
        everywhere=False,
    ),
)


def test_limits_of_stages() -> None:
    """The kernel and its plans count threads, stages and their bytes alike."""
    text = _compile.source("hopper_gradient.cu")
    room, stages = gradient_tiles.ROOM // 1024, gradient_tiles.MOST_STAGES
    assert f"ROOM = {room} * 1024, STAGES = ROOM / STAGE_BYTES < {stages} ?" in text
    assert f"? ROOM / STAGE_BYTES : {stages};" in text
    assert f"STEP_BYTES = {hopper_gradient.STEP_BYTES}, STEP = STEP_BYTES" in text
    assert "STAGE_BYTES = PARTS * (ROW_BYTES + COLUMN_BYTES);" in text
    assert "WARPGROUP = 128, CONSUMERS = 2;" in text
    assert "THREADS = CONSUMERS * WARPGROUP + 32;" in text
    assert hopper_gradient.THREADS == 2 * 128 + 32
    lines = _compile.source("gradient_lines.cu")
    assert f"CHUNK = {gradient_lines.CHUNK}, ELEMENTS" in lines
    assert f"THREADS = {gradient_lines.THREADS}, SPAN = 4 * THREADS * CHUNK;" in lines
    assert gradient_lines.SPAN == 4 * gradient_lines.THREADS * gradient_lines.CHUNK


# Plans ---------------------------------------------------------------------------------------


@given(
    geometry=st.one_of(conv_geometries(), dense_geometries()),
    mode=any_mode,
    multiprocessors=st.sampled_from([1, 2, 30, 132]),
)
@example(conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1), SINGLE, 132)
@example(conv((32, 64, 56, 56), (64, 64, 1, 1)), HALF, 132)  # in place
@example(conv((256, 64, 112, 112), (64, 64, 3, 3), padding=1), HALF, 132)  # many chunks
@example(conv((3, 64, 170, 170), (64, 64, 3, 3)), HALF, 132)  # two of them, not as long
@example(conv((3, 512, 200, 200), (64, 512, 3, 3)), SINGLE, 132)  # much memory
@example(conv((1, 4096, 9, 9), (4096, 4096, 3, 3)), SINGLE, 132)  # partial sums beyond 32 MB
@example(conv((4, 600, 9, 9), (300, 600, 2, 2), stride=2, dilation=3), SINGLE, 30)
@example(conv((3, 4, 50), (9, 4, 3), stride=40), HALF, 1)
def test_gradient_plans(geometry: ConvGeometry, mode: Mode, multiprocessors: int) -> None:
    """Tiles, boxes and ranges cover the gradient and its sums, within their memory."""
    assume(not geometry.transposed)
    processor = Processor("sm_90a", multiprocessors)
    question = question_of(geometry, mode, processor)
    plan = hopper_gradient.plan(question)
    if isinstance(plan, str):
        expected = reasons(geometry) or {MANY_PLANES, MUCH_MEMORY}
        assert plan in expected or (plan == LARGE and is_large(geometry)), plan
        return
    assert not reasons(geometry)
    checked(partial(hopper_gradient.plan, question), processor)
    layout, own = plan.layout, unscaled_mode(mode[0].name, mode[1])
    assert own is not None
    shape, grid = layout.shape, layout.grid
    taps = math.prod(axis.kernel for axis in geometry.axes)
    # Boxes have channels of a tap: so many that instructions of 8 columns have no two taps, and
    # that whole ones make a tile, each of them brought by a lane of a warp.
    assert layout.box in (8, 16, 32, 64, 128, 256) and shape.columns % layout.box == 0
    assert shape.columns // layout.box <= 32 and shape.rows <= 256
    width = taps * -(-geometry.channels // layout.box) * layout.box
    longest = max(layout.samples)
    assert_divided(plan, geometry, mode, width, grid.steps(longest))
    whole, itemsize = 16 // own.itemsize, own.itemsize
    places = -(-longest * math.prod(axis.pitch for axis in grid.axes) // whole) * whole
    channels = geometry.groups * (geometry.rows + geometry.channels * grid.planes)
    assert plan.copies == itemsize * own.parts * places * channels
    inputs = max(places, longest * math.prod(axis.size_in for axis in geometry.axes))
    numbers = geometry.groups * (geometry.rows * places + geometry.channels * inputs)
    assert plan.copies <= max(2**26 * longest, 8 * numbers)
    # Each stage holds a step of both operands, and has two mbarriers.
    stage = own.parts * (shape.rows + shape.columns) * 128
    stages = shape.stages(own.parts)
    assert 2 <= stages <= 8 and plan.launch.shared == stages * (stage + 16)
    assert plan.launch.shared + RESERVED <= SHARED["sm_90a"]
    assert plan.launch.block == 288
    # The coordinates of boxes, and the places that gradient_lines.cu counts.
    shift = sum(
        max(tap.shift for tap in axis.taps) * math.prod(line.pitch for line in grid.axes[i + 1 :])
        for i, axis in enumerate(grid.axes)
    )
    assert grid.steps(longest) // grid.samples(longest) * 128 // itemsize + shift <= MOST
    assert geometry.groups * max(geometry.rows, geometry.channels) + 256 <= MOST


@pytest.mark.parametrize(
    ("geometry", "taken"),
    [
        (conv((1, 1, 2**29), (1, 1, 2), dilation=8), True),
        (conv((1, 1, 2**30 + 9), (1, 1, 2), dilation=8), False),  # places, with a shift
        (conv((1, 2**31 - 999, 1), (1, 2**31 - 999, 1)), True),
        (conv((1, 2**31 - 99, 1), (1, 2**31 - 99, 1)), False),  # channels, with a box
    ],
    ids=str,
)
def test_coordinates_fit_31_bits(geometry: ConvGeometry, taken: bool) -> None:
    for mode in MODES:
        plan = hopper_gradient.plan(question_of(geometry, mode))
        assert isinstance(plan, HopperGradientPlan) if taken else plan == LARGE


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: np.dtype[Any]) -> None:
    """What Tensor Cores do not multiply is refused, and all GPUs without wgmma are."""
    geometry = conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1)
    for target in TARGETS:
        found = hopper_gradient.plan(Question(geometry, dtype, "float32", Processor(target, 132)))
        if dtype == np.float64:
            assert found == "wgmma does not multiply float64"
        elif dtype not in dict(MODES):
            assert found == f"Tensor Cores do not multiply {dtype}"
        elif target != "sm_90a":
            assert found == f"{target} lacks wgmma"
        else:
            assert isinstance(found, HopperGradientPlan)


def test_memory_of_samples() -> None:
    """Copies of two floats for each number may be of any size, others of 64 MB at the most."""
    small, large = (conv((1, 64, n, n), (64, 64, 3, 3)) for n in (150, 600))
    single, _, half, _ = MODES
    assert isinstance(hopper_gradient.plan(question_of(small, single)), HopperGradientPlan)
    assert isinstance(hopper_gradient.plan(question_of(large, half)), HopperGradientPlan)
    assert hopper_gradient.plan(question_of(large, single)) == MUCH_MEMORY


def test_many_planes() -> None:
    """Few inputs in wide padding, where each tap has a plane of its own."""
    geometry = conv((1, 1, 2, 2, 2), (1, 1, 64, 64, 64), stride=64, padding=62)
    for mode in MODES:
        assert hopper_gradient.plan(question_of(geometry, mode)) == MANY_PLANES


@every_mode
def test_shared_memory(mode: Mode) -> None:
    for geometry in (
        conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1),
        conv((32, 512, 7, 7), (512, 512, 3, 3), padding=1, stride=2),
        conv((1, 3, 9, 9), (5, 3, 3, 3)),
    ):
        plan = hopper_gradient.plan(question_of(geometry, mode))
        assert isinstance(plan, HopperGradientPlan)
        assert_shared_memory(plan, "sm_90a", *plan.launches)


@pytest.mark.parametrize(
    ("kernel", "options", "planes"),
    [(1, {}, 1), (3, {}, 3), (9, {}, 8), (3, {"dilation": 4}, 2), (5, {"dilation": 8}, 1),
     (3, {"dilation": 3}, 7), (3, {"stride": 2}, 3), (3, {"dilation": 2, "stride": 2}, 3)],
)  # fmt: skip
def test_planes_of_shifts(kernel: int, options: dict[str, int], planes: int) -> None:
    """Boxes begin at whole chunks, here of eight numbers; taps between them have planes."""
    grid = grid_of_boxes(conv((2, 3, 40), (7, 3, kernel), padding=24, **options), 2, 1)
    assert grid.planes == grid.axes[2].planes == planes


# Arrays in place ------------------------------------------------------------------------------


def apart(a: Array) -> Array:
    """A copy of the array whose channels lie 16 bytes further from each other."""
    places = math.prod(a.shape[2:])
    memory = aligned(np.empty((*a.shape[:2], places + 16 // a.itemsize), a.dtype), 0)
    view = memory[..., :places].reshape(a.shape)
    assert np.shares_memory(view, memory)
    view[...] = a
    return view


def odd_strides_of_one(a: Array) -> Array:
    """The array with other strides, none of them of whole chunks, for axes of one element."""
    strides = [s if n > 1 else -6 for s, n in zip(a.strides, a.shape, strict=True)]
    return as_strided(a, a.shape, strides)


@pytest.mark.emulator
@every_mode
def test_arrays_that_are_read_in_place(mode: Mode) -> None:
    """Those of one part and one tap whose channels are whole chunks without gaps."""
    rng, bits = np.random.default_rng(0), []
    for layout, copied in (
        ("contiguous", 0), ("interleaved", 0), ("offset", 2), ("cropped", 2), ("transposed", 2),
        ("reversed", 2), ("apart", 0), ("broken", 2), ("one offset", 1),
    ):  # fmt: skip
        case = case_like("one tap", mode).map(lambda a: aligned(a, 0))
        if layout == "reversed":
            case = case.map(lambda a: aligned(a[:, ::-1], 0)[:, ::-1])
        elif layout in ("apart", "broken"):
            case = case.map(apart if layout == "apart" else channels_apart)
        elif layout == "one offset":
            case = case.with_arrays(input=aligned(case["input"], case["input"].itemsize))
        else:
            case = case.map(lambda a, layout=layout: placed(rng, a, layout))
        backend = Recorder("hopper")
        bits.append(backend.compute(case))
        functions = [launch.instance.function for launch in backend.launches]
        copies = ["gradient_lines"] * (2 if mode == SINGLE else copied)
        assert functions == [*copies, "hopper_gradient", "gradient_sum"], layout
        assert_same_bits(bits[0], bits[-1])


@pytest.mark.emulator
def test_strides_of_one_element_do_not_matter() -> None:
    """The driver would refuse some of them."""
    case = case_of(HALF, (1, 1, 8, 8), (9, 1, 1, 1)).map(lambda a: aligned(a, 0))
    backend = Recorder("hopper")
    expected = backend.compute(case)
    assert_same_bits(backend.compute(case.map(odd_strides_of_one)), expected)
    assert "gradient_lines" not in {launch.instance.function for launch in backend.launches}


# Instances -----------------------------------------------------------------------------------


@on_the_emulator("instance", cases=PRODUCTS)
@pytest.mark.parametrize("kind", DIVIDED)
def test_products_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """Several tiles of rows and of columns, the last ones ragged, ranges, groups and chunks.

    Each range has more steps than there are stages.
    """
    defines = dict(instance.defines)
    mode, parts = mode_of(instance), int(defines["PARTS"])
    shape = Shape(int(defines["DOWN"]), int(defines["SEGMENT"]))
    steer.replace(hopper_gradient, _SHAPES={parts: (shape,)})
    steer.replace(hopper_gradient, fastest_splits=lambda *arguments: 2)
    steer.replace(_chunks, _CHUNK_BYTES=1)
    places = (2 * shape.stages(parts) + 4) * 128 // mode[0].itemsize
    *shapes, options = DIVIDED[kind](shape.rows + 9, shape.columns // 6 + 3, places)
    geometry = conv(*shapes, groups=2, **options)
    case = case_of(mode, *shapes, groups=2, **options)
    plan, _ = run_once("hopper", case, geometry, mode, 2)
    layout = plan.layout
    assert plan.launch.instance == instance
    assert layout.row_tiles == layout.column_tiles == 2
    assert geometry.channels % layout.box, "the last box would be a whole one"
    assert layout.splits == 2 and len(layout.samples) == 2
    assert layout.grid.words(1) % layout.grid.step, "the last step would be a whole one"
    assert layout.grid.steps(1) // 2 > shape.stages(parts)


# Of each axis the places, inputs, step, first one, and planes with the inputs between them.
AXES: dict[str, tuple[tuple[int, ...], ...]] = {
    "chunks over the ends of lines and samples": ((2, 2), (3, 2), (3, 3)),
    "a line of one place": ((1, 1), (1, 1), (1, 1)),
    "one axis": ((1, 1), (1, 1), (21, 19)),
    "padding on both sides": ((3, 2, 1, -1), (4, 3, 1, -1), (9, 6, 1, -2)),
    "planes along all axes": ((2, 4, 2, 0, 2, 1), (3, 5, 2, -1, 2, 1), (5, 11, 6, -3, 3, 2)),
    "inputs that no plane has": ((2, 9, 5, 1), (2, 7, 4, -2, 1, 1), (3, 9, 4, 0, 2, 1)),
}


def lines_of(kind: str, samples: int, parts: int, itemsize: int) -> Lines:
    axes = [
        LineAxis(places, size, *rest[:2], *(rest[3:] + rest[2:3])[:2])
        for places, size, *rest in AXES[kind]
    ]
    return Lines((axes[0], axes[1], axes[2]), samples, parts, itemsize)


def by_definition(array: Array, lines: Lines) -> Array:
    """The copies of an array by definition: planes, channels and places."""
    channels = len(array)
    _, planes, _, places = lines.shape(channels)
    result = np.zeros((planes, channels, places), array.dtype)
    numbers = np.indices([axis.planes for axis in lines.axes]).reshape(3, -1).T
    for plane, each in enumerate(numbers):
        grids = [
            np.arange(axis.places) * axis.step + axis.first + axis.apart * number
            for axis, number in zip(lines.axes, each, strict=True)
        ]
        inside = [(0 <= at) & (at < axis.size) for at, axis in zip(grids, lines.axes, strict=True)]
        z, y, x = (np.where(known, at, 0) for at, known in zip(grids, inside, strict=True))
        present = inside[0][:, None, None] & inside[1][:, None] & inside[2]
        values = np.where(present, array[:, :, z[:, None, None], y[:, None], x], 0)
        line = values.reshape(channels, -1)
        result[plane, :, : line.shape[1]] = line
    return result


def nearest_tf32(values: Array) -> Array:
    unit = np.ldexp(1.0, np.frexp(values.astype(np.float64))[1] - 11)
    return (np.rint(values / unit) * unit).astype(np.float32)


def by_channel(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, layout: str) -> Array:
    """An array without zeros, as views lie."""
    if layout == "channels last":
        return np.moveaxis(by_channel(rng, (*shape[1:], shape[0]), dtype, ""), -1, 0)
    if layout == "reversed":
        return by_channel(rng, shape, dtype, "")[:, ::-1, ::-1, :, ::-1]
    if layout == "repeated":
        return np.broadcast_to(by_channel(rng, (shape[0], 1, *shape[2:]), dtype, ""), shape)
    if dtype == np.uint16:
        return rng.integers(1, 2**16, shape, np.uint16)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))).astype(np.float32)


def by_kernel(backend: NumpyBackend, array: Array, lines: Lines) -> Array:
    """The copies that the kernel makes."""
    return made(backend, array, lambda device, a: gradient_lines.bind(lines, a, device)(a))


@every_wgmma_device
@pytest.mark.instance
@pytest.mark.parametrize("instance", COPIES, ids=str)
@pytest.mark.parametrize("kind", AXES)
def test_copies_instance(instance: Instance, kind: str, backend: NumpyBackend) -> None:
    """Every bit that is copied, in more than one block, with planes and zeros between lines."""
    defines = dict(instance.defines)
    parts, itemsize = int(defines["PARTS"]), 2 if "short" in defines["BITS"] else 4
    dtype, rng = np.uint16 if itemsize == 2 else np.float32, np.random.default_rng()
    for layout in ("", "channels last", "reversed", "repeated"):
        for channels, samples in ((3, 5), (1, 1), (800, 2)):
            if channels > 3 and layout:
                continue
            lines = lines_of(kind, samples, parts, itemsize)
            launch = gradient_lines.launch(lines, channels)
            assert launch.instance == instance
            assert channels <= 3 or launch.grid > 1
            shape = channels, samples, *(axis.size for axis in lines.axes)
            array = by_channel(rng, shape, dtype, layout)
            found, values = by_kernel(backend, array, lines), by_definition(array, lines)
            if parts == 1:
                assert_same_bits(found[0], values)
            else:
                high = nearest_tf32(values)
                assert_same_bits(found[0], high)
                assert_same_bits(found[1], values - high)


# Mistakes ------------------------------------------------------------------------------------

MODULES = hopper_gradient, gradient_lines, matrix_gradient_grid
STRIDES = case_of(SINGLE, (2, 3, 7, 9, 11), (3, 3, 3, 3, 3), stride=2)
MISTAKES: dict[str, Mistake] = {
    "floats in place": ("grid_of_boxes", "and parts == 1", "", case_like("one tap", SINGLE)),
    "inputs without padding": (
        "_Chunk", "axis.step, axis.origin, line.apart", "axis.step, 0, line.apart",
        case_like("one side", HALF),
    ),
    "inputs without a stride": (
        "_Chunk", "axis.step, axis.origin, line.apart", "1, axis.origin, line.apart",
        case_like("a stride", HALF),
    ),
    "planes of neighbours": (
        "_Chunk", "axis.origin, line.apart, line.planes", "axis.origin, 1, line.planes",
        case_like("a common divisor", HALF),
    ),
    "boxes of rows for inputs": (
        "_Chunk", "(inputs, of_inputs, layout.box)", "(inputs, of_inputs, layout.shape.rows)",
        case_like("one axis", HALF),
    ),
    "arrays in place that begin anywhere": (
        "_Operand", "address(array) % CHUNK_BYTES == 0", "True",
        case_like("one tap", HALF).map(lambda a: aligned(a, 2)),
    ),
    "channels in place at any distance": (
        "_Operand", "stride % CHUNK_BYTES == 0", "True",
        case_like("one tap", HALF).map(channels_apart),
    ),
    "repeated channels in place": (
        "_Operand", "stride > 0 and", "", case_like("one tap", HALF).map(
            lambda a: np.broadcast_to(a[:, :1], a.shape)
        ),
    ),
    "gaps in place": (
        "_Operand", "lie_without_gaps(array.shape[2:], [stride // itemsize for stride in places])",
        "True", case_like("one tap", HALF).map(lambda a: aligned(a.repeat(2, 3), 0)[..., ::2]),
    ),
    "samples of one line": (
        "_Operand", "(line, line // samples)", "(line, line)",
        case_like("one tap", HALF).map(channels_apart),
    ),
    "boxes over the end of a sample": (
        "_Operand", "lines.places // samples if grid.flat else lines.places", "lines.places",
        case_of(HALF, (3, 10, 4, 10), (12, 5, 1, 1), groups=2),
    ),
    "the planes of x for those of y": (
        "_arguments", "y.planes * x.planes", "x.planes", STRIDES,
    ),
    "lines of y for planes of z": ("_arguments", "y.pitch * x.pitch", "x.pitch", STRIDES),
    "the first plane for a low part": (
        "_arguments", '"planes": grid.planes', '"planes": 1', STRIDES,
    ),
    "the first sample for all": (
        "_arguments", '"samples": apart', '"samples": 1', case_like("one tap", HALF),
    ),
    "too few tiles of columns": (
        "_layout", "-(-columns // shape.columns)", "max(1, columns // shape.columns)",
        case_of(HALF, (1, 40, 3, 14), (3, 40, 2, 7)),
    ),
    "too few boxes": (
        "_layout", "taps * -(-geometry.channels // box) * box", "taps * geometry.channels",
        case_of(HALF, (1, 17, 3, 14), (3, 17, 2, 7)),
    ),
    "boxes of more columns than a tile": (
        "_box", " if 1 << i <= columns", "", case_of(HALF, (1, 200, 3, 14), (3, 200, 1, 1)),
    ),
    "no room for barriers": ("plan", " + BARRIERS", "", case_like("one axis", SINGLE)),
}  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, steer: Steering) -> None:
    assert_is_found("hopper", MISTAKES[mistake], MODULES, steer)
