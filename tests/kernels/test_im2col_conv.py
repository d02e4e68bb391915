"""The im2col kernel: plans, arrays in place, instances, copies, and mistakes of its plans."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from test_gradient_products import aligned, assert_is_found, mode_of
from test_hopper_gradient import nearest_tf32, odd_strides_of_one

import test_convolution
import test_promises
from backends import EmulatorBackend, NumpyBackend, forced_backends
from bounds import assert_convolution, assert_same_bits
from cupyconv import _chunks, _compile
from cupyconv._device import CupyDevice
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import channels_last, choice, im2col_conv, im2col_maps, row_blocks
from cupyconv._kernels.channels_last import Transposition
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.im2col_conv import Im2colPlan
from cupyconv._kernels.launches import SHARED, TARGETS, Instance, Processor
from cupyconv._kernels.question import LARGE, MANY_AXES, Question
from cupyconv._kernels.row_blocks import RowBlocksPlan
from cupyconv._kernels.workspace import most_workspace
from cupyconv._taps import NO_AXIS, AxisTaps
from emulator.device import EmulatedDevice
from planning import (
    HOPPER,
    MOST,
    Steering,
    any_mode,
    assert_shared_memory,
    checked,
    conv,
    conv_geometries,
    conv_transpose,
    dense_geometries,
    plan_of,
)
from reference import Array
from running import (
    Recorder,
    every_wgmma_device,
    instances_of,
    made,
    on_the_emulator,
)
from strategies import (
    DTYPES,
    MODES,
    Convolution,
    convolution,
    deep_convolutions,
    drawn_convolution,
    geometries_of_either_direction,
    lay_out,
    pointwise_convolutions,
    poison,
)
from subjects import ConvolutionSubject, Example, Subject

BACKENDS = forced_backends("im2col", wgmma=True)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
PRODUCTS, COPIES = map(instances_of, ("im2col_conv.cu", "channels_last.cu"))
Mode = tuple[np.dtype[Any], str]
FULL, SINGLE, HALF = MODES[:3]
every_mode = pytest.mark.parametrize("mode", MODES, ids=["float32", "tf32", "float16", "bfloat16"])


def case_of(mode: Mode, function: str, *shapes: Any, **options: Any) -> Convolution:
    return convolution(function, *shapes, mode[0], precision=mode[1], **options)


# Several tiles and ranges of a sum; few samples, whose ranges are tiles of their own, and many.
PROMISED = [
    case_of(mode, function, *shapes, bias=True, **options)
    for mode in MODES
    for function, shapes, options in (
        ("conv2d", ((3, 70, 7, 11), (72, 70, 3, 3)), {"padding": 1}),
        ("conv_transpose2d", ((3, 36, 4, 7), (36, 66, 3, 4)), {"stride": 2, "groups": 2}),
        ("conv2d", ((30, 130, 5, 5), (9, 130, 3, 3)), {"padding": ((0, 1), (2, 0))}),
    )
]


# Small images of many channels.
CHOSEN = [
    conv((1, 64, 56, 56), (64, 64, 3, 3), padding=1),
    conv((1, 128, 56, 56), (128, 128, 1, 1), padding=1),
    conv_transpose((1, 64, 32, 32), (64, 32, 4, 4), stride=2, padding=1),
    conv((1, 32, 16, 16, 16), (64, 32, 3, 3, 3)),
    conv((1, 128, 28, 28), (128, 64, 3, 3), groups=2),
    conv((1, 512, 7, 7), (512, 512, 3, 3), padding=1),
]


def order(plan: Any) -> tuple[int, ...]:
    return (plan.layout.splits,)


SUBJECTS = (
    ConvolutionSubject(
        im2col_conv,
        threads=lambda instance: im2col_conv.THREADS,
        tested=PRODUCTS,
        everywhere=False,
        chosen=CHOSEN,
        able=lambda dtype, target: dtype in dict(MODES) and target == "sm_90a",
        order=order,
        order_of_joined=order,
        limits={"MOST_PHASES": im2col_conv.MOST_PHASES},
        examples={
            "im2col": Example(
                ("sm_90a",),
                precision="tf32",
                drawn=[deep_convolutions(), pointwise_convolutions()],
                promised=[*test_promises.STILL[2:], *PROMISED],
                lines=[
                    case_of(HALF, "conv2d", (2, 3, 5, 298), (9, 3, 3, 3), padding=1),
                    case_of(SINGLE, "conv1d", (2, 20, 301), (70, 20, 1)),
                ],
            )
        },
    ),
    Subject(
        channels_last,
        threads=lambda instance: channels_last.THREADS,
        tested=COPIES,
        everywhere=False,
    ),
)


def test_limits_of_stages() -> None:
    """The kernel and its plans count threads, stages and their bytes alike."""
    text = _compile.source("im2col_conv.cu")
    stages = im2col_conv.MOST_STAGES
    assert "WARPGROUP = 128, CONSUMERS = 2, THREADS = (CONSUMERS + 1) * WARPGROUP;" in text
    assert "BLOCKS = PIXELS / (64 * CONSUMERS);" in text and im2col_conv.THREADS == 3 * 128
    assert f"STEP_BYTES = {im2col_maps.STEP_BYTES}, STEP = STEP_BYTES" in text
    assert f"SLICE_BYTES = {im2col_maps.SLICE_BYTES}, SLICES" in text
    assert f"STAGES = ROOM / STAGE_BYTES < {stages} ? ROOM / STAGE_BYTES : {stages};" in text
    assert "PATCH = COLUMNS % 64 ? 32 : 64;" in text and "ROOM = (224 - PATCH / 2) * 1024," in text
    assert [im2col_conv.patch(columns) for columns in (64, 128, 160, 256)] == [64, 64, 32, 64]
    assert [im2col_conv.room(columns) for columns in (64, 160)] == [192 * 1024, 208 * 1024]
    assert "float sums[16][PATCH], bias[PATCH];" in text
    assert "enum Together { NOTHING, OF_CHANNELS, OF_PIXELS };" in text
    assert "WEIGHT_BYTES = COLUMNS * STEP_BYTES;" in text
    assert "STAGE_BYTES = PIXEL_BYTES + PARTS * WEIGHT_BYTES;" in text
    assert "RANGES = PARTS * PIXELS * COLUMNS <= 128 * 128;" in text
    for parts, tile in im2col_conv._WITH_TOTALS.items():
        assert parts * math.prod(tile) == 128 * 128
    copies = _compile.source("channels_last.cu")
    assert f"THREADS = {channels_last.THREADS}, CHUNKS = {channels_last.TILE};" in copies
    assert f"ELEMENTS = {channels_last.CHUNK} / sizeof(Bits);" in copies


# Plans ---------------------------------------------------------------------------------------

NO_CHANNELS = "it has no input channels"
MANY_PHASES = "its outputs have more than 8 phases"
FAR = "its taps or steps reach further than the copy engine's"
MUCH_MEMORY = "a copy of a sample would take too much memory"
# By the number of axes: corners of windows are below the first and at least minus that; offsets
# of taps are at most the second (cuTensorMapEncodeIm2col of the CUDA driver API, and PTX).
REACH = {1: (2**15, 2**16 - 1), 2: (2**7, 2**8 - 1), 3: (2**4, 2**5 - 1)}


def question_of(geometry: ConvGeometry, mode: Mode, processor: Processor = HOPPER) -> Question:
    return Question(geometry, *mode, processor, forced=True)


def axes_of(geometry: ConvGeometry) -> list[AxisTaps]:
    return [axis for axis in geometry.axes if axis != NO_AXIS] or [NO_AXIS]


def is_reached(axis: AxisTaps, axes: int) -> bool:
    """Whether the copy engine has the window of each phase of an axis, and its taps."""
    corner, most = REACH[axes]
    for phase in axis.used_phases:
        offsets = [offset for _, offset in axis.table(phase)] or [0]
        lower, upper = min(offsets), min(offsets) + (axis.positions(phase) - 1) * axis.step
        upper -= axis.size_in - 1
        if max(offsets) - lower > most or not -corner <= min(lower, upper):
            return False
        if max(lower, upper) >= corner:
            return False
    return axis.step <= 8


def copied(geometry: ConvGeometry, itemsize: int) -> int:
    """The bytes of a copy of a sample, in rows of whole chunks, or of units in several groups."""
    whole = (16 if geometry.groups == 1 else 32) // itemsize
    row = -(-geometry.channels // whole) * whole
    return itemsize * geometry.groups * row * math.prod(axis.size_in for axis in geometry.axes)


def parts_of(mode: Mode) -> int:
    """The Tensor Core numbers for each number."""
    return 2 if mode == FULL else 1


def packed(geometry: ConvGeometry, mode: Mode) -> int:
    """The bytes of a copy of the weights, in such rows for each part."""
    itemsize, kernel = mode[0].itemsize, math.prod(axis.kernel for axis in geometry.axes)
    whole = (16 if geometry.groups == 1 else 32) // itemsize
    row = -(-geometry.channels // whole) * whole * parts_of(mode)
    return itemsize * geometry.groups * geometry.rows * kernel * row


def reasons(geometry: ConvGeometry, mode: Mode) -> set[str]:
    """What must be said against a plan; one of it is."""
    axes, itemsize = axes_of(geometry), mode[0].itemsize
    inputs = geometry.groups * geometry.channels * math.prod(axis.size_in for axis in axes)
    facts = {
        MANY_AXES: len(axes) > 3,
        NO_CHANNELS: geometry.channels == 0,
        MANY_PHASES: math.prod(axis.phases for axis in axes) > 8,
        MUCH_MEMORY: copied(geometry, itemsize) > max(2**26, 4 * inputs),
    }
    return {reason for reason, holds in facts.items() if holds}


def is_large(geometry: ConvGeometry) -> bool:
    """Whether a coordinate, or a number of products or outputs, may be near 32 bits."""
    sizes = geometry.batch, geometry.groups, geometry.channels + 8, geometry.rows
    lengths = (
        max(axis.size_in, axis.size_out * axis.step, axis.dilation * axis.kernel) + abs(axis.origin)
        for axis in geometry.axes
    )
    return math.prod(sizes) * math.prod(lengths) >= 2**26


@given(
    geometry=st.one_of(conv_geometries(), dense_geometries()),
    mode=any_mode,
    multiprocessors=st.sampled_from([1, 2, 30, 132]),
)
@example(conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1), HALF, 132)
@example(conv((256, 64, 112, 112), (64, 64, 3, 3), padding=1), HALF, 132)  # many chunks
@example(conv((1, 512, 7, 7), (512, 512, 3, 3), padding=1), HALF, 132)  # ranges apart
@example(conv((999, 512, 7, 7), (64, 512, 3, 3), padding=1), SINGLE, 132)  # and in a block
@example(conv((1, 1, 2**26), (1, 1, 3)), HALF, 132)  # a sample whose copy is large
@example(conv_transpose((2, 16, 9, 9), (16, 16, 3, 3), stride=(2, 4)), HALF, 132)
@example(conv_transpose((2, 16, 3, 3), (16, 16, 1, 1), stride=(2, 4)), HALF, 132)  # empty phases
@example(conv_transpose((2, 16, 9), (16, 16, 3), stride=9), HALF, 132)
@example(conv_transpose((1, 1, 2), (1, 1, 1), stride=2, dilation=65537), SINGLE, 1)
@example(conv((2, 8, 99), (9, 8, 3), stride=8), HALF, 132)
@example(conv((2, 8, 99), (9, 8, 3), stride=9), HALF, 132)
@example(conv((1, 8, 1, 1, 5, 6, 7), (9, 8, 1, 1, 3, 3, 3)), HALF, 132)  # axes of one element
def test_im2col_plans(geometry: ConvGeometry, mode: Mode, multiprocessors: int) -> None:
    """Tiles cover the outputs of all phases, ranges the sums, within their memory."""
    processor = Processor("sm_90a", multiprocessors)
    question = question_of(geometry, mode, processor)
    axes, itemsize = axes_of(geometry), mode[0].itemsize
    plan = im2col_conv.plan(question)
    if max(axis.kernel for axis in axes) > 10_000:
        return  # tables of so many taps take long
    far = len(axes) <= 3 and not (
        max(axis.phases for axis in axes) > 8 or all(is_reached(axis, len(axes)) for axis in axes)
    )
    if isinstance(plan, str):
        expected = reasons(geometry, mode) | ({FAR} if far else set())
        assert plan in expected or (plan == LARGE and is_large(geometry)), plan
        return
    assert not reasons(geometry, mode) and not far
    checked(partial(im2col_conv.plan, question), processor, "im2col")
    layout, launch = plan.layout, plan.launch
    parts, tile = parts_of(mode), (layout.pixels, layout.columns)
    assert launch.instance == im2col_conv._instance(mode[0].name, parts, *tile)
    # Each tile has pixels of one phase, and channels of one group.
    assert (layout.column_tiles - 1) * layout.columns < geometry.rows or geometry.rows == 0
    assert geometry.rows <= layout.column_tiles * layout.columns
    outputs = [
        math.prod(counts)
        for counts in itertools.product(
            *([axis.positions(phase) for phase in axis.used_phases] for axis in axes)
        )
    ]
    assert sum(outputs) == math.prod(axis.size_out for axis in axes)
    batch = max(1, geometry.batch)
    tiles = sum(-(-batch * count // layout.pixels) for count in outputs)
    tiles *= geometry.groups * layout.column_tiles * layout.splits
    assert tiles * layout.pixels < 2**31
    assert 1 <= launch.grid <= multiprocessors and launch.block == 384 and launch.unit == 1
    # Chunks have all samples; ranges are long.
    assert sum(layout.samples) == batch and max(layout.samples) - min(layout.samples) <= 1
    step = 128 // itemsize
    blocks = -(-geometry.channels // step)
    assert 1 <= layout.splits <= 16
    taps = math.prod(axis.most_taps for axis in axes)
    assert layout.splits == 1 or taps * blocks // layout.splits >= 8
    assert not layout.apart or layout.splits > 1
    assert layout.splits == 1 or parts * math.prod(tile) <= 128 * 128
    # Memory.
    longest = max(layout.samples)
    inputs = geometry.groups * geometry.channels * math.prod(axis.size_in for axis in axes)
    results = geometry.groups * geometry.rows * sum(outputs)
    assert plan.packed == packed(geometry, mode)
    assert plan.copies == longest * copied(geometry, itemsize)
    many = longest <= -(-batch // 64)
    assert plan.copies <= max(2**26, 4 * inputs * longest) or many
    assert plan.partial == (4 * longest * layout.splits * results if layout.apart else 0)
    assert plan.partial <= 2**25
    assert plan.workspace == plan.packed + plan.copies + plan.partial
    assert not plan.partial or plan.packed + plan.partial <= most_workspace(question)
    # Each stage holds a step of both operands, and has two mbarriers.
    stage = (layout.pixels + parts * layout.columns) * 128
    patch = 32 if layout.columns == 160 else 64
    stages, patches = min((224 - patch // 2) * 1024 // stage, 8), 8 * 17 * patch * 4
    assert stages >= 4 and launch.shared == stages * (stage + 16) + patches
    assert launch.shared <= SHARED["sm_90a"]
    # What a kernel counts in 32 bits.
    assert geometry.groups * max(geometry.channels + 16, geometry.rows) + 256 <= MOST
    assert taps * blocks <= MOST and batch <= MOST
    # The order of a sum does not depend on the batch.
    for other in (1, 7 * batch + 1):
        one = im2col_conv.plan(replace(question, geometry=replace(geometry, batch=other)))
        assert one == LARGE or order(one) == order(plan)


def test_the_batch_does_not_divide_sums() -> None:
    """Also where it decides on the columns of a tile."""
    for channels, rows, size, kernel in itertools.product(
        (128, 512), (64, 192, 320, 1000), (7, 14, 28), (1, 3)
    ):
        found = set()
        for batch in (1, 2, 8, 32, 128):
            shapes = (batch, channels, size, size), (rows, channels, kernel, kernel)
            plan = im2col_conv.plan(question_of(conv(*shapes, padding=kernel // 2), HALF))
            assert isinstance(plan, Im2colPlan)
            found.add(order(plan))
        assert len(found) == 1


@given(
    geometry=st.one_of(conv_geometries(), dense_geometries()),
)
@example(conv_transpose((2, 16, 9, 9), (16, 16, 5, 4), stride=(2, 4), dilation=(3, 2)))
@example(conv((2, 16, 9, 90), (16, 16, 5, 4), stride=(2, 4), dilation=(3, 2), padding=3))
def test_windows(geometry: ConvGeometry) -> None:
    """Pixels of a phase and offsets of its taps meet the inputs of the tap table."""
    axes = axes_of(geometry)
    assume(len(axes) <= 3 and max(axis.kernel for axis in axes) < 1000)
    assume(max(axis.phases for axis in axes) < 100)
    for axis in axes:
        seen = 0
        for phase in axis.used_phases:
            window = im2col_maps.window_of(axis, phase)
            assert (window.outputs, window.first) == (axis.positions(phase), phase)
            seen += window.outputs
            last = window.lower + (window.outputs - 1) * axis.step
            assert last == axis.size_in - 1 + window.upper
            found = [
                (
                    window.tap + tap * window.tap_step,
                    window.lower + window.offset + tap * window.offset_step,
                )
                for tap in range(window.taps)
            ]
            assert found == axis.table(phase)
            offsets = [window.offset + tap * window.offset_step for tap in range(window.taps)]
            assert min(offsets, default=0) == 0
        assert seen == axis.size_out


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        (conv((2, 3, 4, 4, 4, 4), (5, 3, 2, 2, 2, 2)), MANY_AXES),
        (conv((2, 0, 9, 9), (5, 0, 3, 3)), NO_CHANNELS),
        (conv_transpose((2, 3, 9, 9), (3, 5, 3, 3), stride=3), MANY_PHASES),
        (conv((2, 3, 99), (5, 3, 3), stride=9), FAR),
        (conv((2, 3, 9, 999), (5, 3, 3, 257)), FAR),  # taps 256 apart
        (conv((2, 3, 9, 999), (5, 3, 3, 3), dilation=(1, 128)), FAR),
        (conv((2, 3, 9, 9, 99), (5, 3, 3, 3, 33)), FAR),
        (conv((2, 3, 9, 99), (5, 3, 3, 3), padding=129), FAR),  # a window that begins far outside
        (conv((2, 3, 9, 9), (5, 3, 3, 3), padding=((0, 0), (0, 130))), FAR),  # or ends there
        (conv((2, 3, 2**16 + 3), (5, 3, 2**16 + 1)), FAR),
        (conv((1, 1, 2**26), (5, 1, 3)), MUCH_MEMORY),
        (conv((1, 8, 2**31 + 9), (1, 8, 2)), LARGE),
        (conv((2**20, 8, 2**11), (1, 8, 1)), LARGE),
        (conv((1, 2**30, 1), (2, 2**29, 1), groups=2), None),
        (conv((1, 2**31, 1), (2, 2**30, 1), groups=2), LARGE),
        (conv((1, 8, 1), (2**31 - 8, 8, 1)), LARGE),
        (conv((2, 3, 9, 999), (5, 3, 3, 256)), FAR),  # corners at -128 and below
        (conv((2, 3, 9, 999), (5, 3, 3, 128)), None),
        (conv((2, 3, 9, 9), (5, 3, 3, 3), padding=(0, 128)), None),
        (conv((2, 3, 9, 9, 9), (5, 3, 3, 3, 3), padding=(0, 0, 16)), None),
        (conv((2, 3, 9, 9, 9), (5, 3, 3, 3, 3), padding=(0, 0, 17)), FAR),
        (conv((2, 3, 9), (5, 3, 3), padding=2**15), None),
        (conv((2, 3, 9), (5, 3, 3), padding=2**15 + 1), FAR),
    ],
    ids=str,
)
def test_refusals(geometry: ConvGeometry, reason: str | None) -> None:
    for mode in MODES[1:]:
        plan = im2col_conv.plan(question_of(geometry, mode))
        assert plan == reason if reason else isinstance(plan, Im2colPlan), plan
        taken = plan_of(geometry, *mode, kernel="im2col")
        assert isinstance(taken, DirectPlan if reason else Im2colPlan)


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        (conv((2, 8, 9, 9), (5, 8, 3, 3)), None),
        (conv((2, 3, 99), (5, 3, 3), stride=9), FAR),
        (conv((1, 2**30, 1), (2, 2**29, 1), groups=2), LARGE),  # with both parts of a weight
        (conv((2, 1024, 9, 9), (1024, 1024, 3, 3)), None),
        (conv((2, 2048, 9, 9), (2048, 2048, 3, 3)), None),  # in blocks of output channels
    ],
    ids=str,
)
def test_refusals_of_float32(geometry: ConvGeometry, reason: str | None) -> None:
    question = question_of(geometry, FULL)
    plan = im2col_conv.plan(question)
    assert plan == reason if reason else isinstance(plan, Im2colPlan), plan
    assert im2col_conv.plan(replace(question, forced=False)) == plan


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: np.dtype[Any]) -> None:
    """What Tensor Cores do not multiply is refused, and all GPUs without wgmma are."""
    geometry = conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1)
    for target, precision in itertools.product(TARGETS, ("float32", "tf32")):
        question = question_of(geometry, (dtype, precision), Processor(target, 132))
        found = im2col_conv.plan(question)
        if dtype not in dict(MODES):
            assert found == f"Tensor Cores do not multiply {dtype}"
        elif target != "sm_90a":
            assert found == f"{target} lacks wgmma"
        else:
            assert isinstance(found, Im2colPlan)


@every_mode
def test_shared_memory(mode: Mode) -> None:
    seen = set()
    for geometry in (
        conv((32, 256, 112, 112), (256, 256, 3, 3), padding=1),
        conv((32, 128, 56, 56), (128, 128, 3, 3), padding=1),
        conv((8, 3, 99, 99), (50, 3, 3, 3)),
    ):
        plan = im2col_conv.plan(question_of(geometry, mode))
        assert isinstance(plan, Im2colPlan)
        seen.add(plan.layout.columns)
        assert_shared_memory(plan, "sm_90a", *plan.launches)
    assert seen == ({64, 128} if mode == FULL else {64, 128, 256})


@every_mode
def test_plans_in_place(mode: Mode) -> None:
    """What is copied for arrays in C order is not counted, but for weights of two parts."""
    plan = im2col_conv.plan(question_of(conv((1, 512, 7, 7), (512, 512, 3, 3), padding=1), mode))
    assert isinstance(plan, Im2colPlan) and plan.partial
    assert plan.in_place.workspace == (plan.packed if mode == FULL else 0) + plan.partial
    saved = plan.cycles - plan.in_place.cycles
    assert saved > 0 and (saved > im2col_conv._LAUNCH) == (mode != FULL)


def test_where_it_is_chosen() -> None:
    """Where small images have many channels, and not where large ones have few."""
    deep = conv((32, 2048, 7, 7), (512, 2048, 1, 1))
    wide = conv((16, 64, 512, 1024), (128, 64, 3, 3), padding=1)
    assert isinstance(plan_of(deep, np.float16), Im2colPlan)
    assert not isinstance(plan_of(wide, np.float16), Im2colPlan)


# Against the definition ----------------------------------------------------------------------


def check(backend: NumpyBackend, case: Convolution) -> None:
    assert_convolution(backend.compute(case), case.defined, case.dtype, case.precision)


# What the kernel tells apart: a function, the shapes of an input and a weight, and options. Groups
# have whole units of 32 bytes, or not; the last K step has one unit, or all.
KINDS: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "one axis": ("conv1d", (3, 72, 70), (24, 72, 4), {"padding": ((3, 1),)}),
    "one side": ("conv2d", (3, 16, 7, 9), (8, 16, 3, 4), {"padding": ((2, 0), (0, 3))}),
    "a stride": ("conv2d", (3, 16, 9, 13), (9, 16, 3, 5), {"padding": 2, "stride": (2, 3)}),
    "beyond the kernel": ("conv2d", (3, 8, 9, 26), (9, 8, 1, 2), {"stride": (4, 7)}),
    "dilated": (
        "conv2d", (3, 8, 9, 40), (9, 8, 3, 6), {"dilation": (3, 7), "padding": (4, 0)},
    ),
    "three axes": (
        "conv3d", (2, 64, 5, 4, 6), (16, 64, 2, 3, 3), {"padding": 1, "stride": (1, 2, 1)},
    ),
    "groups": ("conv2d", (2, 48, 6, 7), (24, 16, 3, 2), {"groups": 3, "padding": 1}),
    "ragged groups": ("conv2d", (2, 27, 6, 7), (12, 9, 3, 2), {"groups": 3, "padding": 1}),
    "depthwise": ("conv2d", (2, 5, 6, 7), (10, 1, 3, 3), {"groups": 5, "padding": 1}),
    "one tap": ("conv2d", (3, 80, 6, 12), (16, 40, 1, 1), {"groups": 2}),
    "windows in the padding": ("conv2d", (1, 8, 2, 3), (5, 8, 4, 2), {"padding": 5}),
    "phases": (
        "conv_transpose2d", (3, 24, 3, 5), (24, 16, 3, 4), {"stride": (2, 3), "dilation": (1, 2)},
    ),
    "phases without taps": ("conv_transpose2d", (3, 8, 3, 4), (8, 16, 1, 2), {"stride": (2, 3)}),
    "groups of phases": (
        "conv_transpose3d", (2, 32, 2, 3, 3), (32, 8, 3, 2, 2), {"stride": (2, 1, 2), "groups": 2},
    ),
    "four axes": ("conv", (2, 8, 1, 5, 1, 6, 7), (9, 8, 1, 3, 1, 3, 3), {}),
    "no axes": ("conv", (2, 8, 1, 1, 1, 1), (9, 8, 1, 1, 1, 1), {}),
}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS)


def case_like(kind: str, mode: Mode, **more: Any) -> Convolution:
    function, input_shape, weight_shape, options = KINDS[kind]
    return case_of(mode, function, input_shape, weight_shape, bias=True, **options, **more)


@every_backend
@every_mode
@every_kind
def test_kinds(backend: NumpyBackend, mode: Mode, kind: str) -> None:
    check(backend, case_like(kind, mode))


# Of two blocks of output channels.
BLOCKED: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "one axis": ("conv1d", (3, 72, 70), (136, 72, 4), {"padding": ((3, 1),)}),
    "a stride": ("conv2d", (3, 16, 9, 13), (130, 16, 3, 5), {"padding": 2, "stride": (2, 3)}),
    "one tap": ("conv2d", (3, 80, 6, 12), (129, 80, 1, 1), {}),
    "phases": ("conv_transpose2d", (3, 24, 3, 5), (24, 200, 3, 4), {"stride": (2, 3)}),
}


def in_blocks(
    backend: NumpyBackend, mode: Mode, call: Any, steer: Steering
) -> tuple[Convolution, Im2colPlan, RowBlocksPlan]:
    """A call of which memory has room for a part of the weights; its plan without and with blocks.

    From now on it runs in blocks.
    """
    function, *shapes, options = call
    case = case_of(mode, function, *shapes, bias=True, **options)
    describe = conv_transpose if case.transposed else conv
    device = backend.path.device if isinstance(backend, EmulatorBackend) else CupyDevice()
    question = question_of(describe(*shapes, **options), mode, device.processor())
    whole = im2col_conv.plan(question)
    assert isinstance(whole, Im2colPlan)
    steer.replace(row_blocks, most_workspace=lambda question: whole.packed * 7 // 10)
    plan = choice.plan_alone("im2col", question)
    assert isinstance(plan, RowBlocksPlan) and len(plan.plans) > 1
    return case, whole, plan


every_blocked_mode = pytest.mark.parametrize("mode", [FULL, HALF], ids=["float32", "float16"])


@every_backend
@every_blocked_mode
@pytest.mark.parametrize("kind", BLOCKED)
def test_blocks_of_output_channels(
    backend: NumpyBackend, mode: Mode, kind: str, steer: Steering
) -> None:
    """They have the bits of the whole convolution, however arrays lie."""
    function, *shapes, options = BLOCKED[kind]
    expected = backend.compute(case_of(mode, function, *shapes, bias=True, **options))
    case, whole, plan = in_blocks(backend, mode, BLOCKED[kind], steer)
    assert {order(one) for one in plan.plans} == {order(whole)}
    for way in ("C order", "channels last"):
        assert_bits_as_arranged(backend, case, expected, way, way, way)


@every_backend
@every_blocked_mode
def test_blocks_of_long_sums(backend: NumpyBackend, mode: Mode, steer: Steering) -> None:
    """Their ranges follow from the rows of a block, and get the bias of its channels."""
    call = "conv2d", (3, 200, 3, 4), (130, 200, 3, 3), {"padding": 1}
    case, _, plan = in_blocks(backend, mode, call, steer)
    assert all(isinstance(one, Im2colPlan) and one.partial for one in plan.plans)
    result = backend.compute(case)
    assert_convolution(result, case.defined, case.dtype, case.precision)
    alone = case.with_arrays(input=case["input"][-1:])
    assert_same_bits(backend.compute(alone), result[-1:])


@every_backend
@test_promises.every_sum_near_overflow
def test_a_sample_beside_nan(
    backend: NumpyBackend, sample: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    """It is computed like any other, even where the order of its sum decides on an overflow."""
    test_promises.check_beside_nan(backend, sample, weight)


# How arrays lie ------------------------------------------------------------------------------


def last(a: Array, axis: int = 1, gap: int = 0, offset: int = 0) -> Array:
    """A copy of the array with an axis innermost, and NaN after its elements.

    It begins so many bytes after a multiple of 16.
    """
    moved = np.moveaxis(a, axis, -1)
    memory = np.empty((*moved.shape[:-1], moved.shape[-1] + gap), a.dtype)
    memory = aligned(poison(memory), offset)
    memory[..., : moved.shape[-1]] = moved
    return np.moveaxis(memory[..., : moved.shape[-1]], -1, axis)


def whole(a: Array, axis: int = 1) -> Array:
    """The same with room for whole chunks of 16 bytes and one more."""
    chunk = 16 // a.itemsize
    return last(a, axis, -a.shape[axis] % chunk + chunk)


def cropped(a: Array, axis: int = 1) -> Array:
    """Within a larger array, along all other axes, which NaN surrounds."""
    pads = [(0, 0) if i == axis else (1, 2) for i in range(a.ndim)]
    wide = last(np.pad(a, pads, constant_values=np.nan), axis)
    return wide[tuple(slice(b, n - e) for (b, e), n in zip(pads, wide.shape, strict=True))]


def reversed_(a: Array, axis: int = 1) -> Array:
    """With the other axes in descending order."""
    index = tuple(slice(None, None, None if i == axis else -1) for i in range(a.ndim))
    return last(a[index], axis)[index]


def every_other(a: Array, axis: int = 1) -> Array:
    """With another array's sample after each sample."""
    return last(a.repeat(2, axis=0), axis)[::2]


ARRANGED: dict[str, Callable[[Array, int], Array]] = {
    "C order": lambda a, axis: aligned(a, 0),
    "channels last": lambda a, axis: last(a, axis),
    "whole chunks": whole,
    "misaligned": lambda a, axis: last(a, axis, offset=a.itemsize),
    "an odd gap": lambda a, axis: last(a, axis, gap=3),
    "cropped": cropped,
    "reversed": reversed_,
    "every other": every_other,
    "another axis": lambda a, axis: last(a, a.ndim - 1 if axis != a.ndim - 1 else 0),
    "random": lambda a, axis: lay_out(np.random.default_rng(0), a, "transposed"),
}
REPEATED = ("samples", "places", "channels")


def repeated(a: Array, kind: str) -> Array:
    """The first entry along an axis for all of them, with a stride of zero."""
    axis = {"samples": 0, "places": a.ndim - 1, "channels": 1}[kind]
    first = last(a.take([0], axis))
    return np.broadcast_to(first, a.shape)


def input_channels(case: Convolution) -> int:
    """The axis of the weight along which its input channels are."""
    return 0 if case.transposed else 1


def compute_into(backend: NumpyBackend, case: Convolution, out: Array) -> Array:
    """The result of a call, written to an array that lies in some way."""
    arrays, out = case.map(backend.asarray), backend.asarray(out)
    backend.call(case.function, **arrays.arrays, **case.options, out=out)
    return backend.to_numpy(out)


def assert_bits_as_arranged(
    backend: NumpyBackend,
    case: Convolution,
    expected: np.ndarray,
    of_input: str,
    of_weight: str,
    of_out: str,
) -> None:
    """A call of arrays that lie in some of the ways of `ARRANGED` has the expected bits."""
    arranged = case.with_arrays(
        input=ARRANGED[of_input](case["input"], 1),
        weight=ARRANGED[of_weight](case["weight"], input_channels(case)),
    )
    out = ARRANGED[of_out](poison(np.empty_like(expected)), 1)
    assert_same_bits(compute_into(backend, arranged, out), expected)


@st.composite
def arranged_calls(draw: st.DrawFn) -> tuple[Convolution, Convolution, str]:
    """A call of arrays in C order, and of arrays that lie otherwise; and how its result lies."""
    transposed, lengths, kernel, options = draw(geometries_of_either_direction())
    assume(math.prod(kernel) <= 30 and "padding_mode" not in options)
    assume(not transposed or math.prod(np.broadcast_to(options["stride"], len(kernel))) <= 8)
    groups, samples = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    channels = draw(st.sampled_from([8, 16, 24, 64, 72, 5, 1, 70]))
    rows = draw(st.sampled_from([8, 16, 64, 72, 136, 9, 1]))
    sizes = samples, groups, channels, rows
    case = drawn_convolution(draw, transposed, sizes, lengths, kernel, options)
    case = case.map(np.ascontiguousarray)
    assume(case["input"].size)
    x, weight = case["input"], case["weight"]
    if draw(st.integers(0, 4)) == 0:
        x = repeated(x, draw(st.sampled_from(REPEATED)))
    if draw(st.integers(0, 4)) == 0:
        weight = repeated(weight, draw(st.sampled_from(REPEATED)))
    case = case.with_arrays(input=np.ascontiguousarray(x), weight=np.ascontiguousarray(weight))
    ways = st.sampled_from([*ARRANGED])
    if 0 not in x.strides:
        x = ARRANGED[draw(ways)](x, 1)
    if 0 not in weight.strides:
        weight = ARRANGED[draw(ways)](weight, input_channels(case))
    return case, case.with_arrays(input=x, weight=weight), draw(ways)


def check_arranged(backend: NumpyBackend, calls: tuple[Convolution, Convolution, str]) -> None:
    """How arrays lie changes no bit."""
    case, arranged, way = calls
    expected = backend.compute(case)
    assert_convolution(expected, case.defined, case.dtype, case.precision)
    out = ARRANGED[way](poison(np.empty_like(expected)), 1)
    assert_same_bits(compute_into(backend, arranged, out), expected)


@every_backend
@every_mode
def test_frames_of_a_signal(backend: NumpyBackend, mode: Mode) -> None:
    """Samples are channels of frames that begin every 16 bytes, so that they overlap."""
    hop = 16 // mode[0].itemsize
    case = case_of(mode, "conv1d", (2, 5 * hop, 40), (24, 5 * hop, 3))
    signals = np.ascontiguousarray(case["input"].reshape(2, -1)[:, : 44 * hop])
    frames = sliding_window_view(aligned(signals, 0), 5 * hop, 1)[:, ::hop]
    case = case.with_arrays(input=frames.swapaxes(1, 2))
    expected = backend.compute(case.map(np.ascontiguousarray))
    assert_convolution(expected, case.defined, case.dtype, case.precision)
    assert_same_bits(backend.compute(case), expected)


@every_backend
@given(calls=arranged_calls())
def test_how_arrays_lie_changes_no_bit(
    backend: NumpyBackend, calls: tuple[Convolution, Convolution, str]
) -> None:
    check_arranged(backend, calls)


@every_backend
@pytest.mark.parametrize("mode", MODES[2:], ids=["float16", "bfloat16"])
@every_kind
def test_every_combination(backend: NumpyBackend, mode: Mode, kind: str) -> None:
    """Arrays that the copy engine reads and writes in place, and arrays in C order."""
    case = case_like(kind, mode)
    expected = backend.compute(case)
    ways = ["C order", "channels last", "cropped"]
    for of_input, of_weight, of_out in itertools.product(ways, repeat=3):
        assert_bits_as_arranged(backend, case, expected, of_input, of_weight, of_out)


@every_backend
@every_mode
@pytest.mark.parametrize("rows", [8, 24, 40, 64, 72, 9, 12, 4])
@pytest.mark.parametrize("groups", [1, 2])
def test_outputs_whose_channels_lie_together(
    backend: NumpyBackend, mode: Mode, rows: int, groups: int
) -> None:
    """Units of eight are stored at once where all of them are aligned; nothing lies beyond.

    So are units of four pixels.
    """
    shapes = (2, 16 * groups, 9, 11), (rows * groups, 16, 2, 3)
    case = case_of(mode, "conv2d", *shapes, groups=groups, bias=True)
    expected = backend.compute(case)
    assert_convolution(expected, case.defined, case.dtype, case.precision)
    for way in ("channels last", "whole chunks", "misaligned", "an odd gap", "reversed"):
        out = ARRANGED[way](poison(np.empty_like(expected)), 1)
        assert_same_bits(compute_into(backend, case, out), expected)


@every_backend
@every_mode
@pytest.mark.parametrize("places", [(8, 9), (7, 9), (1, 10), (6, 22), (2, 1)])
@pytest.mark.parametrize("rows", [3, 66])
def test_outputs_whose_pixels_lie_together(
    backend: NumpyBackend, mode: Mode, places: tuple[int, int], rows: int
) -> None:
    """Units of four are stored at once where all of them are aligned and of one sample."""
    shapes = (3, 16, places[0] + 1, places[1] + 2), (2 * rows, 8, 2, 3)
    case = case_of(mode, "conv2d", *shapes, groups=2, bias=True)
    channels_last = compute_into(
        backend, case, last(poison(np.empty(case.defined.value.shape, case.dtype)))
    )
    assert_convolution(channels_last, case.defined, case.dtype, case.precision)
    for gap, first in ((0, 0), (-places[1] % 4, 0), (0, 1), (1, 0)):
        shape = *channels_last.shape[:3], places[1] + gap
        memory = poison(np.empty(first + math.prod(shape), case.dtype))
        out = memory[first:].reshape(shape)[..., : places[1]]
        assert_same_bits(compute_into(backend, case, out), channels_last)


def copies_of(backend: Recorder) -> int:
    functions = [launch.instance.function for launch in backend.launches]
    assert functions.count("im2col_conv") == 1
    backend.launches.clear()
    return functions.count("channels_last")


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("kind", "of_input", "of_weight", "copies"),
    [
        ("one side", "channels last", "channels last", 0),
        ("one side", "whole chunks", "whole chunks", 0),
        ("one side", "cropped", "channels last", 0),
        ("one side", "every other", "every other", 0),
        ("one side", "channels last", "C order", 1),
        ("one side", "C order", "channels last", 1),
        ("one side", "C order", "C order", 1),
        ("one side", "misaligned", "channels last", 1),
        ("one side", "channels last", "misaligned", 1),
        ("one side", "an odd gap", "an odd gap", 1),
        ("one side", "reversed", "reversed", 1),
        ("one side", "channels last", "cropped", 1),  # taps of z and y at distances of their own
        ("one axis", "channels last", "cropped", 0),
        ("three axes", "channels last", "channels last", 0),
        ("four axes", "channels last", "channels last", 0),
        ("no axes", "channels last", "channels last", 0),
        ("no axes", "C order", "C order", 0),  # the same
        ("groups", "channels last", "channels last", 0),
        ("ragged groups", "whole chunks", "channels last", 1),
        ("ragged groups", "whole chunks", "whole chunks", 1),  # weights of groups are boxes anyway
        ("depthwise", "channels last", "channels last", 1),
        ("phases", "channels last", "channels last", 0),
        ("phases without taps", "channels last", "channels last", 0),
        ("groups of phases", "channels last", "channels last", 1),  # input channels come first
    ],
)
@every_mode
def test_arrays_that_are_read_in_place(
    kind: str, of_input: str, of_weight: str, copies: int, mode: Mode
) -> None:
    """Those whose channels lie innermost, in whole chunks of 16 bytes.

    For float32 accuracy the weights are copied in any case, with both of their parts.
    """
    backend, case = Recorder("im2col"), case_like(kind, mode)
    arranged = case.with_arrays(
        input=ARRANGED[of_input](case["input"], 1),
        weight=ARRANGED[of_weight](case["weight"], input_channels(case)),
    )
    backend.path.device.multiprocessors = 1  # no ranges, and so no chunks
    found = backend.compute(arranged)
    (plan,) = backend.plans
    assert copies_of(backend) == (1 if mode == FULL else copies)
    if copies == 0:
        assert backend.workspaces == ([plan.packed] if mode == FULL else [])
    assert_same_bits(backend.compute(case), found)


@pytest.mark.emulator
@pytest.mark.parametrize("channels", [8, 12])
def test_strides_of_one_element_do_not_matter(channels: int) -> None:
    """The driver would refuse some of them."""
    shapes = (1, channels, 1, 7), (1, channels, 1, 3)
    case = case_of(HALF, "conv2d", *shapes).map(whole)
    backend = Recorder("im2col")
    expected = backend.compute(case)
    assert copies_of(backend) == 0
    assert_same_bits(backend.compute(case.map(odd_strides_of_one)), expected)
    assert copies_of(backend) == 0


# Infinities and NaN --------------------------------------------------------------------------


def in_channels_last(case: Convolution) -> Convolution:
    """The case with arrays that are read in place, and NaN after their channels."""
    x, weight = whole(case["input"]), whole(case["weight"], input_channels(case))
    return case.with_arrays(input=x, weight=weight)


@every_backend
@every_mode
@test_convolution.every_geometry
def test_special_values(backend: NumpyBackend, mode: Mode, geometry: str) -> None:
    """They are in the outputs that have them in their sums, and nowhere else."""
    case = test_convolution.special(test_convolution.matrix_case(geometry, mode))
    check(backend, case)
    check(backend, in_channels_last(case))


@every_backend
@every_mode
@every_kind
@pytest.mark.parametrize("name", ["input", "weight"])
def test_special_values_of_kinds(backend: NumpyBackend, mode: Mode, kind: str, name: str) -> None:
    """At the first place, the last one and one in the middle, each in a channel of its own.

    The first and the last channel of a group lie beside other groups.
    """
    case = case_like(kind, mode)
    a = case[name].copy()
    corners = enumerate((lambda n: 0, lambda n: n - 1, lambda n: n // 2))
    for (channel, end), value in zip(corners, (np.inf, np.nan, -np.inf), strict=True):
        a[(channel % len(a), *(end(n) for n in a.shape[1:]))] = value
    case = case.with_arrays(**{name: a})
    check(backend, case)
    if mode != SINGLE:
        assert_same_bits(backend.compute(in_channels_last(case)), backend.compute(case))


@every_backend
@every_mode
@pytest.mark.parametrize("channels", [16, 48, 64, 80, 9, 70])
@pytest.mark.parametrize("of_nan", [0, 1, 2])
def test_groups_beside_nan(backend: NumpyBackend, mode: Mode, channels: int, of_nan: int) -> None:
    """A K step has no channels of the next group, and no weight of it."""
    shapes = (2, 3 * channels, 4, 5), (3 * 9, channels, 2, 2)
    case = case_of(mode, "conv2d", *shapes, groups=3)
    expected = backend.compute(case)
    for name, count in (("input", channels), ("weight", 9)):
        a, axis = case[name].copy(), ("weight", "input").index(name)
        np.moveaxis(a, axis, 0)[of_nan * count :][:count] = np.nan
        changed = case.with_arrays(**{name: a})
        for arrays in (changed, in_channels_last(changed)):
            found = backend.compute(arrays)
            for group in range(3):
                own = slice(9 * group, 9 * group + 9)
                if group == of_nan:
                    assert np.isnan(found[:, own]).all()
                else:
                    assert_same_bits(found[:, own], expected[:, own])


@every_backend
@every_mode
def test_infinities_of_ranges(backend: NumpyBackend, mode: Mode) -> None:
    """Infinity times zero, opposite infinities of two ranges, and one beside finite ranges."""
    case = case_of(mode, "conv2d", (3, 600, 3, 4), (9, 600, 3, 3), padding=1)
    for channels, values in (((2, 599), (np.inf, -np.inf)), ((2, 3), (np.inf, 1)), ((599,), None)):
        x, weight = case["input"].copy(), np.abs(case["weight"])
        for channel, value in zip(channels, values or (np.inf,), strict=True):
            x[1, channel, 1, 1] = value
        weight[3, 599] = 0 if values is None else 1
        check(backend, case.with_arrays(input=x, weight=weight))


@every_backend
@every_mode
@pytest.mark.parametrize("sign", [0, 1])
def test_nan_of_all_bits(backend: NumpyBackend, mode: Mode, sign: int) -> None:
    """A NaN that a carry would make zero, as numbers are rounded to fewer bits."""
    dtype, _ = mode
    for name in ("input", "weight"):
        case = case_like("one side", mode)
        a = case[name].copy()
        kind = np.dtype(f"uint{8 * dtype.itemsize}")
        a.view(kind)[1, 2, 2, 3] = np.iinfo(kind).max >> (1 - sign)
        assert np.isnan(a[1, 2, 2, 3])
        check(backend, case.with_arrays(**{name: a}))


@every_backend
@every_mode
def test_the_largest_numbers(backend: NumpyBackend, mode: Mode) -> None:
    """They are finite, also where rounded to TF32 they would not be."""
    dtype, _ = mode
    case = case_like("one axis", mode)
    x, small = case["input"].copy(), case["weight"] / dtype.type(256)
    x[1, 2, 20:23] = ml_dtypes.finfo(dtype).max
    check(backend, case.with_arrays(input=x, weight=small))


# The batch, and memory -----------------------------------------------------------------------

# Sums of two ranges on the emulator, and more on a GPU; and of one. Long ones are apart in few
# samples.
BATCHES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "long ranges": ((600, 3, 4), (9, 600, 3, 3), {"padding": 1}),
    "ranges": ((130, 5, 7), (60, 130, 3, 3), {"padding": 1}),
    "one range": ((16, 5, 7), (72, 16, 3, 3), {"padding": 1}),
    "groups": ((96, 6, 6), (18, 48, 3, 3), {"groups": 2}),
}


@every_backend
@every_mode
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("in_place", [False, True])
def test_a_sample_of_many(backend: NumpyBackend, mode: Mode, kind: str, in_place: bool) -> None:
    """It has the bits that it has alone, although many samples have their ranges in one block."""
    sample, weight, options = BATCHES[kind]
    case = case_of(mode, "conv2d", (20, *sample), weight, bias=True, **options)
    many = in_channels_last(case) if in_place else case
    result = backend.compute(many)
    assert_convolution(result, case.defined, case.dtype, case.precision)
    for batch in (1, 2, 5):
        for first in (0, 9, 20 - batch):
            few = many.with_arrays(input=many["input"][first : first + batch])
            assert_same_bits(backend.compute(few), result[first : first + batch])


@pytest.mark.parametrize(("batch", "apart"), [(1, True), (20, False)])
def test_ranges_are_apart_in_few_samples(batch: int, apart: bool) -> None:
    """The test above runs both ways on the emulator."""
    sample, weight, options = BATCHES["ranges"]
    geometry = conv((batch, *sample), weight, **options)
    for mode in MODES:
        plan = im2col_conv.plan(question_of(geometry, mode, EmulatedDevice().processor()))
        assert isinstance(plan, Im2colPlan)
        assert (plan.layout.splits, plan.layout.apart) == (2, apart)


@every_mode
@pytest.mark.emulator
@pytest.mark.parametrize("multiprocessors", [2, 6])
def test_ranges_apart_have_the_same_bits(mode: Mode, multiprocessors: int, steer: Steering) -> None:
    """As ranges that the block of their tile adds, infinities and NaN among them."""
    sample, weight, options = BATCHES["ranges"]
    case = case_of(mode, "conv2d", (4, *sample), weight, bias=True, **options)
    case["input"][1, 3, 2, ::2] = np.inf, np.nan, -np.inf, np.inf
    case["input"][2, 129, 2, ::2] = np.inf, np.nan, -np.inf, np.inf
    layouts, found = im2col_conv._layouts, []
    for apart in (False, True):
        steer.replace(
            im2col_conv,
            _layouts=lambda *rest, apart=apart: [
                one for one in layouts(*rest) if one.apart == apart or one.splits == 1
            ],
        )
        backend = EmulatorBackend("im2col", multiprocessors=multiprocessors)
        check(backend, case)
        found.append(backend.compute(case))
    assert_same_bits(*found)


@every_backend
@every_mode
@pytest.mark.parametrize("kind", BATCHES)
def test_chunks_of_samples(backend: NumpyBackend, mode: Mode, kind: str, steer: Steering) -> None:
    """Which may have a sample more than others, and begin at addresses that are not aligned."""
    sample, weight, options = BATCHES[kind]
    case = case_of(mode, "conv2d", (5, *sample), weight, bias=True, **options)
    expected = backend.compute(case)
    assert_convolution(expected, case.defined, case.dtype, case.precision)
    for most in (1, 3):
        geometry = conv((1, *sample), weight, **options)
        steer.replace(_chunks, _CHUNK_BYTES=2 * most * copied(geometry, mode[0].itemsize))
        for way in ("C order", "channels last", "misaligned"):
            out = ARRANGED[way](poison(np.empty_like(expected)), 1)
            assert_same_bits(compute_into(backend, case, out), expected)
            arranged = case.with_arrays(input=ARRANGED[way](case["input"], 1))
            assert_same_bits(backend.compute(arranged), expected)


@pytest.mark.emulator
@every_mode
@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize("kind", BATCHES)
def test_workspace_is_what_is_taken(mode: Mode, batch: int, kind: str, steer: Steering) -> None:
    """The weights, and the copies and partial sums of the largest chunk."""
    sample, weight, options = BATCHES[kind]
    geometry = conv((batch, *sample), weight, **options)
    steer.replace(_chunks, _CHUNK_BYTES=4 * copied(geometry, mode[0].itemsize))
    backend = Recorder("im2col")
    backend.compute(case_of(mode, "conv2d", (batch, *sample), weight, **options))
    (plan,) = backend.plans
    packed, *rest = backend.workspaces
    assert plan.packed == packed
    pairs = 2 if plan.layout.apart else 1
    assert len(rest) == pairs * len(plan.layout.samples)
    assert plan.copies == max(rest[::pairs])
    assert plan.partial == (max(rest[1::2]) if pairs == 2 else 0)
    assert max(backend.held) == plan.workspace


# Instances -----------------------------------------------------------------------------------


# By the number of axes: calls of so many rows and channels of a group, with as many pixels as two
# tiles have and more.
DIVIDED: dict[str, Any] = {
    "strided": {
        1: lambda r, c: ("conv1d", (2, 2 * c, 281), (2 * r, c, 5), {"stride": 2, "padding": 3}),
        2: lambda r, c: (
            "conv2d", (2, 2 * c, 9, 37), (2 * r, c, 2, 3), {"stride": (1, 2), "padding": (0, 1)},
        ),
        3: lambda r, c: (
            "conv3d", (2, 2 * c, 3, 5, 19), (2 * r, c, 1, 2, 3), {"padding": (0, 1, 1)},
        ),
    },
    "phases": {
        1: lambda r, c: ("conv_transpose1d", (2, 2 * c, 83), (2 * c, r, 10), {"stride": 2}),
        2: lambda r, c: (
            "conv_transpose2d", (2, 2 * c, 4, 23), (2 * c, r, 3, 4),
            {"stride": (1, 2), "padding": (0, 1)},
        ),
        3: lambda r, c: (
            "conv_transpose3d", (2, 2 * c, 2, 4, 17), (2 * c, r, 1, 2, 3),
            {"stride": (2, 1, 1), "padding": (0, 0, 1)},
        ),
    },
}  # fmt: skip


@on_the_emulator("instance", cases=PRODUCTS)
@pytest.mark.parametrize("kind", DIVIDED)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_products_instance(instance: Instance, kind: str, axes: int, steer: Steering) -> None:
    """Several tiles of pixels and of columns, the last ones ragged, for each block, and groups.

    Sums have more steps than there are stages, and a last one that is not whole.
    """
    defines, mode = dict(instance.defines), mode_of(instance)
    parts, width, columns = (int(defines[name]) for name in ("PARTS", "PIXELS", "COLUMNS"))
    steer.replace(im2col_conv, _TILES={parts: ((width, columns),)})
    if parts * width * columns > 128 * 128:
        steer.replace(im2col_conv, _splits=lambda *rest: 1)
    step = 128 // mode[0].itemsize
    call = DIVIDED[kind][axes](columns + 9, 2 * step + step // 4 + 1)
    function, *shapes, options = call
    case = case_of(mode, function, *shapes, groups=2, bias=True, **options)
    backend = Recorder("im2col")
    check(backend, case)
    (plan,) = backend.plans
    assert plan.launch.instance == instance
    assert plan.layout.column_tiles == 2
    stages = min(192 * 1024 // ((width + parts * columns) * 128), 8)
    describe = conv_transpose if case.transposed else conv
    geometry = describe(*shapes, groups=2, **options)
    phases = math.prod(axis.phases for axis in geometry.axes)
    assert phases == (2 if kind == "phases" else 1)
    taps = math.prod(axis.most_taps for axis in geometry.axes)
    assert 3 * taps > stages
    pixels = geometry.batch * math.prod(axis.size_out for axis in geometry.axes)
    assert pixels > width and pixels % width and pixels * 8 / width > 2 * plan.launch.grid


def by_definition(array: Array, copy: Transposition) -> Array:
    """The copy of an array by sample, block, group, channel and place."""
    samples, blocks, groups, channels = array.shape[:4]
    rows = np.moveaxis(array, (2, 3), (-2, -1)).reshape(samples, blocks, -1, groups, channels)
    result = np.zeros(copy.shape, array.dtype)
    result[..., :channels] = rows
    if copy.split:
        numbers = result.view(np.float32)
        numbers[..., 0, :] = nearest_tf32(numbers[..., 0, :])
        numbers[..., 1, :] -= numbers[..., 0, :]
    return result


def by_kernel(backend: NumpyBackend, array: Array, copy: Transposition) -> Array:
    """The copy that the kernel makes."""

    def transposed(device: Any, a: Any) -> Any:
        (found,) = channels_last.bind([copy], array.dtype, device)(device.address(a))
        return found

    return made(backend, array, transposed)


@every_wgmma_device
@pytest.mark.instance
@pytest.mark.parametrize("instance", COPIES, ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        (2, 1, 1, 5, 3, 4, 7),
        (1, 2, 3, 37, 1, 5, 13),
        (2, 1, 2, 64, 1, 1, 32),
        (1, 1, 1, 70, 1, 1, 264),
        (1, 2, 1, 8, 1, 1, 1040),
        (3, 1, 1, 1, 1, 1, 1),
    ],
    ids=str,
)
def test_copies_instance(instance: Instance, shape: tuple[int, ...], backend: NumpyBackend) -> None:
    """Every bit that is copied, in several tiles of channels and of places, and zeros after them.

    Arrays lie in C order, with their channels innermost, in descending order, or repeat values.
    Parts of floats are groups, of an array that has one.
    """
    defines, rng = dict(instance.defines), np.random.default_rng()
    split = defines["PARTS"] == "2"
    if split:
        shape = *shape[:2], 1, *shape[3:]
    dtype = np.dtype(np.uint16 if "short" in defines["BITS"] else np.uint32)
    array = rng.integers(1, np.iinfo(dtype).max, shape, dtype)
    if split:
        array = rng.standard_normal(shape, np.float32).view(dtype)
    row = -(-shape[3] // 8) * 8
    for view in (
        array, last(array, 3), array[:, ::-1, ::-1, :, ::-1, :, ::-1],
        array[:, :, :, ::-1], np.broadcast_to(array[:1, :, :, :1], shape),
    ):  # fmt: skip
        groups = np.broadcast_to(view, (*shape[:2], 2, *shape[3:])) if split else view
        strides = tuple(stride // dtype.itemsize for stride in groups.strides)
        copy = Transposition(groups.shape, strides, row, split)
        assert channels_last.launch([copy], dtype.itemsize).instance == instance
        assert_same_bits(by_kernel(backend, groups, copy), by_definition(groups, copy))


# Mistakes ------------------------------------------------------------------------------------


def in_ways(case: Convolution, of_input: str, of_weight: str = "channels last") -> Convolution:
    """The case with arrays that lie so."""
    x = ARRANGED[of_input](case["input"], 1)
    return case.with_arrays(
        input=x, weight=ARRANGED[of_weight](case["weight"], input_channels(case))
    )


def with_gaps(a: Array) -> Array:
    """The array of four axes with room between its channels."""
    return a if a.ndim == 1 else whole(a.repeat(2, 1))[:, ::2]


RANGES = case_of(HALF, "conv2d", (3, 600, 3, 4), (72, 600, 3, 3), padding=1)  # they are apart
Mistake = tuple[str, str, str, Convolution]
MISTAKES: dict[str, Mistake] = {
    "taps of the first phase": (
        "window_of", "axis.progression(phase)", "axis.progression(0)", case_like("phases", HALF),
    ),
    "outputs of the first phase": (
        "window_of", "taps, phase, tap", "taps, 0, tap", case_like("phases", HALF),
    ),
    "neighbouring taps of a phase": (
        "window_of", "axis.tap_step", "1", case_like("phases", HALF),
    ),
    "a window that begins at the first of descending taps": (
        "window_of", "min(offset, offset + max(0, taps - 1) * axis.offset_step)", "offset",
        case_like("phases", HALF),
    ),
    "a window that ends a pixel too late": (
        "window_of", "- (axis.size_in - 1)", "- axis.size_in + 2", case_like("one side", HALF),
    ),
    "a window without a step": (
        "window_of", "(outputs - 1) * axis.step", "outputs - 1", case_like("a stride", HALF),
    ),
    "axes of the weight in another order": (
        "_arguments", "kernel[:2]", "kernel[1::-1]", case_like("one side", HALF),
    ),
    "axes of the input in another order": (
        "Image", "(width, *reversed(sizes), samples)", "(width, *sizes, samples)",
        case_like("one side", HALF),
    ),
    "windows in another order": (
        "Image", "tuple(view.lower for view in reversed(phase))",
        "tuple(view.lower for view in phase)", case_like("one side", HALF),
    ),
    "steps in another order": (
        "Image", "tuple(view.step for view in reversed(phase))",
        "tuple(view.step for view in phase)", case_like("a stride", HALF),
    ),
    "strides in another order": (
        "Image", "(*reversed(pitches[:-1]), pitches[-1]))", "pitches)",
        in_ways(case_like("one side", HALF), "cropped"),
    ),
    "channels in place at any distance": (
        "Image", "(channel == 1 or groups * of_group == 1)", "True",
        case_like("one side", HALF).map(with_gaps),
    ),
    "weights in place at any distance": (
        "weights_of", "(channel == 1 or geometry.channels == 1)", "True",
        case_like("one side", HALF).map(with_gaps),
    ),
    "taps in place at any distance": (
        "weights_of", "len({*apart}) <= 1", "True",
        in_ways(case_of(HALF, "conv2d", (3, 32, 7, 9), (8, 32, 3, 4)), "C order", "cropped"),
    ),
    "weights of groups in place": (
        "weights_of", "(geometry.groups == 1 or of_group == geometry.rows * of_row)", "True",
        in_ways(case_like("groups of phases", HALF), "channels last"),
    ),
    "strides in place that are no chunks": (
        "_whole", "stride * itemsize % ALIGNED == 0", "True",
        in_ways(case_like("one side", HALF), "an odd gap"),
    ),
    "descending places in place": (
        "_whole", "stride > 0 and ", "", in_ways(case_like("one side", HALF), "reversed"),
    ),
    "repeated places in place": (
        "_whole", "stride > 0 and ", "stride >= 0 and ",
        case_like("one side", HALF).map(lambda a: a if a.ndim == 1 else repeated(a, "places")),
    ),
    "arrays in place that begin anywhere": (
        "Source", "address % ALIGNED == 0", "True",
        in_ways(case_like("one side", HALF), "misaligned"),
    ),
    "groups of the array in its copy": (
        "Source", "groups[copy is not None]", "groups[0]", case_like("ragged groups", HALF),
    ),
    "outputs that lie together at any distance": (
        "_together", "math.gcd(8, sample, *steps, geometry.rows) == 8", "True",
        case_of(HALF, "conv1d", (3, 8, 5), (9, 8, 5)),
    ),
    "units of the pixels of a phase": (
        "_together", " and all(axis.phases == 1 for axis in geometry.axes)", "",
        case_of(HALF, "conv_transpose1d", (3, 8, 8), (8, 9, 2), stride=2),
    ),
    "floats that are rounded on their way": (
        "inputs_of", "pixels, exact)", "pixels, False)", case_like("one side", FULL),
    ),
    "weights in place where they have parts": (
        "weights_of", "parts == 1\n        and", "True\n        and",
        in_ways(case_like("one side", FULL), "channels last"),
    ),
    "parts of weights that are not divided": (
        "weights_of", "split=parts > 1", "split=False", case_like("one side", FULL),
    ),
    "rows of one part": ("weights_of", "parts * row", "row", case_like("one side", FULL)),
    "low parts where the high ones are": (
        "_arguments", '"low_part": row_of(geometry, item)', '"low_part": 0',
        case_like("one side", FULL),
    ),
    "units of a whole last step": (
        "_arguments", "-(-last // slices)", "max(1, last // slices)", case_like("one tap", HALF),
    ),
    "blocks of a tap that is not whole": (
        "_arguments", "-(-geometry.channels // step)", "max(1, geometry.channels // step)", RANGES,
    ),
    "tiles of the first phase": (
        "_arguments", '"tile": first', '"tile": 0', case_like("phases", HALF),
    ),
    "pixels of one sample": (
        "_arguments", '"pixels": samples * pixels_of', '"pixels": pixels_of', RANGES,
    ),
    "outputs of phases beside each other": (
        "_arguments", "[axis.phases for axis in axes]", "[1 for axis in axes]",
        case_like("phases", HALF),
    ),
    "an input without a step": (
        "_arguments", "[axis.step for axis in axes]", "[1 for axis in axes]",
        case_of(HALF, "conv2d", (5, 16, 9, 13), (9, 16, 3, 5), padding=2, stride=(2, 3)),
    ),
    "ranges of one sample": ("_arguments", '"range": samples * ', '"range": ', RANGES),
    "axes that copies do not know": ("_arguments", "len(axes)", "3", RANGES),
    "partial sums where results lie": (
        "_Chunk", "stored = strides._replace(out=(sample, group, row), out_axes=axes)", "pass",
        case_of(HALF, "conv2d", (1, 550, 3, 3), (9, 550, 3, 3), padding=1),
    ),
    "partial sums of pixels with the bias of others": (
        "_Chunk", "*places), math.prod(places)", "*places), 1",
        case_of(HALF, "conv2d", (1, 550, 4, 4), (9, 550, 3, 3), padding=1, bias=True),
    ),
    "partial sums of one sample": ("_Chunk", "samples * _partial(", "_partial(", RANGES),
    "too few tiles of columns": (
        "_layouts", "-(-geometry.rows // columns)", "max(1, geometry.rows // columns)", RANGES,
    ),
    "channels of a row that the array lacks": (
        "Image", "(samples, 1, groups, of_group, *_three(sizes))",
        "(samples, 1, groups, self.row, *_three(sizes))", case_like("depthwise", HALF),
    ),
}  # fmt: skip
MISTAKES_OF_COPIES: dict[str, Mistake] = {
    "too few tiles of places": (
        "_tiles", "-(-places * chunks // TILE)", "max(1, places * chunks // TILE)",
        case_of(HALF, "conv1d", (1, 64, 200), (8, 64, 3)),
    ),
    "too few tiles of channels": (
        "_tiles", "-(-row // channels)", "max(1, row // channels)", case_like("one axis", HALF),
    ),
    "a row without zeros": (
        "_members", '"row": copy.row', '"row": channels', case_like("ragged groups", HALF),
    ),
    "numbers of 16 bits": (
        "_instance", "BITS[itemsize]", "BITS[2]", case_like("one axis", SINGLE),
    ),
}  # fmt: skip
# In chunks of one sample.
MISTAKES_OF_CHUNKS: dict[str, Mistake] = {
    "the first chunk's input": ("bind", "source + first * of_input", "source", RANGES),
    "the first chunk's results": ("bind", "result + first * of_out", "result", RANGES),
    "elements for bytes": ("bind", "item * strides.input[0]", "strides.input[0]", RANGES),
}
MODULES = im2col_conv, im2col_maps


@pytest.mark.emulator
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, steer: Steering) -> None:
    assert_is_found("im2col", MISTAKES[mistake], MODULES, steer)


@pytest.mark.emulator
@pytest.mark.parametrize("mistake", MISTAKES_OF_COPIES)
def test_a_mistake_of_copies_is_found(mistake: str, steer: Steering) -> None:
    assert_is_found("im2col", MISTAKES_OF_COPIES[mistake], (channels_last,), steer)


@pytest.mark.emulator
@pytest.mark.parametrize("mistake", MISTAKES_OF_CHUNKS)
def test_a_mistake_of_chunks_is_found(mistake: str, steer: Steering) -> None:
    steer.replace(_chunks, _CHUNK_BYTES=1)
    assert_is_found("im2col", MISTAKES_OF_CHUNKS[mistake], MODULES, steer)
