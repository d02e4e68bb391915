"""The gradient of a weight by mma: its plans, each of its instances, and mistakes of its plans."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from test_gradient_products import (
    DIVIDED,
    DOUBLE,
    HALF,
    MANY_PLANES,
    PRODUCED,
    SINGLE,
    Mistake,
    Mode,
    aligned,
    assert_divided,
    assert_is_found,
    case_like,
    case_of,
    channels_apart,
    columns_of,
    every_mode,
    is_large,
    mode_of,
    placed,
    planted,
    question_of,
    reasons,
    run_once,
)

from bounds import assert_same_bits
from cupyconv import _chunks, _compile
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import gradient_sum, matrix_gradient, matrix_gradient_grid
from cupyconv._kernels.launches import RESERVED, SHARED, TARGETS, Instance, Processor
from cupyconv._kernels.matrix_gradient import Layout, MatrixGradientPlan, Shape
from cupyconv._kernels.matrix_gradient_grid import CHUNK_BYTES, STEP_BYTES, classes_of
from cupyconv._kernels.question import LARGE, Question
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
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import DTYPES, MODES, poison
from subjects import Subject

PRODUCTS = instances_of("matrix_gradient.cu")
SUMS = instances_of("gradient_sum.cu")


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
        expected = all_reasons(geometry, processor) or {MANY_CLASSES, MANY_PLANES, NO_TILE}
        assert plan in expected or (plan == LARGE and is_large(geometry)), plan
        return
    assert not all_reasons(geometry, processor)
    checked(partial(matrix_gradient.plan, question), processor)
    layout, itemsize, longest = plan.layout, mode[0].itemsize, max(plan.layout.samples)
    assert_divided(plan, geometry, mode, columns_of(geometry), layout.grid.steps(longest))
    places = math.prod(axis.pitch for axis in layout.grid.axes) * longest
    channels = geometry.groups * (geometry.rows + geometry.channels * layout.grid.planes)
    assert plan.copies == itemsize * places * channels
    assert places // layout.grid.samples(longest) % (16 // itemsize) == 0
    # The stages of a pipeline, each of rows of gradients and lines of inputs, and 16 bytes for the
    # description of a line.
    classes = classes_of(layout.grid)
    stage = layout.shape.rows * (128 + 4 * layout.grid.word) + layout.lines * classes.chunks * 16
    assert plan.launch.shared == 3 * stage + 16 * layout.lines
    assert plan.launch.shared + RESERVED <= SHARED[processor.target]
    assert_lines(layout, geometry)


MANY_CLASSES = "its taps need more than 32 lines of inputs"
NO_TILE, NO_INSTRUCTIONS = "no tile fits shared memory", "sm_75 lacks the instructions"


def all_reasons(geometry: ConvGeometry, processor: Processor) -> set[str]:
    old = processor.target == "sm_75"
    return reasons(geometry) | {NO_INSTRUCTIONS} if old else reasons(geometry)


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
            assert found == NO_INSTRUCTIONS


def test_many_classes() -> None:
    geometry = conv((2, 3, 5000), (5, 3, 40), dilation=99)
    for mode in MODES:
        assert matrix_gradient.plan(question_of(geometry, mode)) == MANY_CLASSES


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


# Instances -----------------------------------------------------------------------------------


def shape_of(instance: Instance) -> Shape:
    names = "ROW_TILES", "COLUMN_TILES", "WARPS", "WARPS_DOWN"
    return Shape(*(int(dict(instance.defines)[name]) for name in names))


@on_the_emulator("instance", cases=PRODUCTS)
@pytest.mark.parametrize("kind", DIVIDED)
def test_products_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """Several tiles of rows and of columns, the last ones ragged, ranges, groups and chunks."""
    mode, shape = mode_of(instance), shape_of(instance)
    registers = 2 if mode == DOUBLE else int(dict(instance.defines)["PARTS"])
    steer.replace(matrix_gradient, _SHAPES={**matrix_gradient._SHAPES, registers: (shape,)})
    steer.replace(_chunks, _CHUNK_BYTES=1)
    *shapes, options = DIVIDED[kind](shape.rows + 9, shape.columns // 6 + 3, 300)
    geometry = conv(*shapes, groups=2, **options)
    case = case_of(mode, *shapes, groups=2, **options)
    plan, _ = run_once("portable", case, geometry, mode, 2 * shape.warps)
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
    plan, backend = run_once("portable", case, geometry, (dtype, "float32"), 2)
    assert plan.add.instance == instance
    assert plan.add.grid > 1 and plan.layout.splits > 1
    expected = backend.compute(case)
    assert 0 < np.isfinite(expected).sum() < expected.size
    out = poison(np.empty([expected.shape[axis] for axis in order], dtype))
    out = out.transpose(np.argsort(order))
    backend.call(case.function, **case.arrays, **case.options, out=out)
    assert_same_bits(out, expected)


# Mistakes ------------------------------------------------------------------------------------

MODULES = matrix_gradient_grid, matrix_gradient, gradient_sum
MISTAKES: dict[str, Mistake] = {
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
    assert_is_found("portable", MISTAKES[mistake], MODULES, steer)
