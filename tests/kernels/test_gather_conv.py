"""The kernel that gathers inputs: its plans, its promises, and each of its instances."""

from __future__ import annotations

import math
import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupyconv
import test_convolution
from backends import NumpyBackend, forced_backends, without_bulk_copies
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import gather_conv
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.gather_conv import GatherPlan
from cupyconv._kernels.launches import SHARED, Instance, Processor
from planning import (
    HOPPER,
    Steering,
    checked_plan_of,
    constant,
    conv,
    conv_transpose,
    depthwise_geometries,
    plan_of,
    processors,
)
from reference import Shape
from running import (
    call_for,
    instances_of,
    on_the_emulator,
    run_once,
)
from strategies import FLOATS, Convolution, convolution, one_channel_convolutions
from subjects import ConvolutionSubject, Example

BACKENDS = forced_backends("gather")
GATHER = instances_of("gather_conv.cu")
CHOSEN = [
    conv((8, 64, 33, 65), (64, 1, 3, 3), groups=64, stride=2, padding=1),
    conv((8, 256, 15, 15), (256, 1, 5, 5), groups=256, stride=2, padding=2),
    conv((8, 512, 14, 14), (512, 1, 7, 7), groups=512, stride=2, padding=3),
    conv((8, 512, 14, 14), (512, 1, 3, 3), groups=512, padding=1),
    conv((8, 256, 8, 14, 14), (256, 1, 3, 3, 3), groups=256, stride=2, padding=1),
    conv((8, 256, 9000), (256, 1, 7), groups=256, dilation=4),
    conv_transpose((8, 64, 14, 14), (64, 1, 3, 3), padding=1, groups=64),
    conv((8, 64, 55, 55), (64, 1, 3, 3), padding=1, groups=64),
    conv((8, 64, 57, 57), (64, 1, 3, 3), stride=2, groups=64),
]


LINES = [
    convolution("conv2d", (2, 9, 9, 14), (9, 1, 3, 3), "float16", groups=9, padding=1),
    convolution("conv2d", (2, 5, 9, 74), (5, 1, 5, 5), groups=5, stride=2, padding=2),
    convolution("conv3d", (2, 3, 5, 7, 9), (3, 1, 2, 3, 3), groups=3),
]
# One channel in each group: whole images, strips, a stride, steps that differ, several axes.
GATHERED = [
    convolution("depthwise_conv2d", (3, 9, 7, 7), (18, 1, 3, 3), dtype, bias=True, padding=1)
    for dtype in ("float32", "float16", "float64")
] + [
    convolution("depthwise_conv2d", (3, 5, 21, 13), (5, 1, 5, 5), bias=True, stride=2, padding=2),
    convolution("depthwise_conv2d", (2, 5, 9, 23), (5, 1, 4, 3), stride=(1, 3), dilation=(2, 1)),
    convolution(
        "conv_transpose2d", (3, 4, 9, 10), (4, 2, 3, 3), "bfloat16", bias=True, groups=4, padding=1
    ),
    convolution("conv3d", (2, 3, 5, 7, 9), (6, 1, 2, 3, 3), bias=True, groups=3, stride=(1, 2, 2)),
]
for case in GATHERED[::2]:
    case["input"][1, :, ..., 3] = np.nan
    case["weight"].flat[3] = np.inf


def threads(_: Instance) -> int:
    return constant("gather_conv.cu", "MOST_THREADS")


SUBJECTS = (
    ConvolutionSubject(
        gather_conv,
        threads=threads,
        any_warps=("gather_conv",),
        tested=GATHER,
        chosen=CHOSEN,
        able=lambda dtype, target: dtype in FLOATS,
        order=lambda plan: plan.launch.instance,
        limits={name: getattr(gather_conv, name) for name in ("MOST_THREADS", "TOGETHER")},
        examples={
            "gather": Example(
                drawn=[one_channel_convolutions(chunks=False)], promised=GATHERED, lines=LINES
            )
        },
    ),
)


@given(geometry=depthwise_geometries(), dtype=st.sampled_from(FLOATS), processor=processors)
def test_gather_plans(geometry: ConvGeometry, dtype: np.dtype[Any], processor: Processor) -> None:
    plan = checked_plan_of(geometry, dtype, processor=processor, kernel="gather")
    outputs, shared = geometry.groups * geometry.rows, SHARED[processor.target]
    taps, accumulator = math.prod(axis.kernel for axis in geometry.axes), max(4, dtype.itemsize)

    def used(channels: int, groups: int, room: int, values: int) -> int:
        """Bytes of the mbarrier, of descriptions, of weights and biases, and of inputs."""
        return 16 + channels * (16 + values * accumulator) + groups * room * dtype.itemsize

    if isinstance(plan, DirectPlan):
        one_phase = all(axis.phases == 1 for axis in geometry.axes)
        if geometry.axes[-1].kernel in gather_conv.WIDTHS and one_phase:  # there is no room
            inputs = math.prod(axis.size_in for axis in geometry.axes)
            values = taps + 4 * geometry.axes[0].kernel  # planes of them are whole vectors
            room = inputs + 32 // dtype.itemsize
            assert used(4, min(4, geometry.groups), room, values) > shared
        return
    assert isinstance(plan, GatherPlan)
    layout = plan.layout
    *front, band = layout.axes[: layout.band + 1]
    behind = layout.axes[layout.band + 1 :]
    macros = dict(plan.launch.instance.defines)
    assert macros["TAPS"] == str(layout.axes[2].kernel)
    _, y, x = layout.axes
    strips = y.kernel == x.kernel and y.step < 3 and abs(y.offset_step) == abs(x.offset_step) == 1
    values = taps + 1
    if strips:
        assert (macros["HEIGHT"], macros["STEP"]) == (str(y.kernel), str(y.step))
        assert 1 <= layout.lines <= int(macros["LINES"])
        plane = y.kernel * x.kernel + 1
        values = taps // (plane - 1) * (plane + -plane % 4)
    else:
        assert macros["HEIGHT"] == "0"
    assert plan.launch.block == layout.threads
    assert layout.threads in (gather_conv._BLOCKS if strips else (gather_conv.THREADS,))
    assert layout.threads % 32 == 0
    assert layout.bulk == (processor.target in ("sm_90a", "sm_100", "sm_120"))
    # The tiles cover all output channels, and all outputs along the band's axis.
    for size, tile, tiles in (
        (outputs, layout.channels, layout.channel_tiles),
        (band.size_out, layout.tile, layout.tiles),
    ):
        assert (tiles - 1) * tile < size <= tiles * tile
    assert layout.channels in gather_conv._CHANNELS
    assert strips or layout.channels % gather_conv.TOGETHER == 0
    assert all(axis.size_in == axis.size_out == axis.kernel == 1 for axis in front)
    assert layout.positions == math.prod(axis.size_out for axis in behind)
    assert layout.count == geometry.batch * layout.channel_tiles * layout.tiles
    assert plan.launch.grid == plan.launch.unit == layout.count
    # There is room for all inputs that the taps of a tile reach, wherever they begin in a chunk.
    offsets = [offset for _, offset in band.table(0)]
    pitch, chunk = layout.pitches[layout.band], 16 // dtype.itemsize
    assert pitch == math.prod(axis.size_in for axis in behind)
    for start in range(0, band.size_out, layout.tile):
        last = min(start + layout.tile, band.size_out) - 1
        low = max(start * band.step + min(offsets), 0)
        high = min(last * band.step + max(offsets), band.size_in - 1)
        assert layout.room >= (high - low + 1) * pitch + chunk - 1
    assert layout.room % chunk == 0
    # A tile holds the inputs of all groups that its channels belong to.
    groups = max(
        (min(first + layout.channels, outputs) - 1) // geometry.rows - first // geometry.rows + 1
        for first in range(0, outputs, layout.channels)
    )
    assert plan.launch.shared == layout.shared
    assert layout.shared >= used(layout.channels, groups, layout.room, values)
    # What is counted in a tile is as small as small_quotient in division.cuh divides.
    counted = layout.tile * layout.positions, groups * layout.room, layout.channels * (taps + 1)
    assert max(counted) < 2**20


def test_channels_of_a_tile_are_a_multiple_of_its_teams() -> None:
    """A channel has 42 strips: of 128 threads there are three groups, which share six or three."""
    volumes = conv((64, 192, 14, 9, 11), (192, 1, 3, 3, 3), groups=192, stride=2, padding=1)
    plan = plan_of(volumes, processor=HOPPER, kernel="gather")
    assert isinstance(plan, GatherPlan)
    assert plan.layout.channels % 3 == 0 and plan.layout.threads == 128


def test_more_output_channels_than_32_bits_count_are_not_gathered() -> None:
    many = conv((1, 1, 3), (2**31 + 8, 1, 3)), conv((1, 2**30, 3), (2**31, 1, 3), groups=2**30)
    for geometry in many:
        assert not isinstance(plan_of(geometry, kernel="gather"), GatherPlan)


def test_a_thread_has_a_channel_at_most() -> None:
    assert max(gather_conv._CHANNELS) <= min(gather_conv._BLOCKS)


@pytest.mark.parametrize("backend", BACKENDS)
@given(case=one_channel_convolutions(chunks=False))
def test_definition_where_inputs_are_copied_in_chunks(
    backend: NumpyBackend, case: Convolution
) -> None:
    with without_bulk_copies():
        test_convolution.check(backend, case)


# What the kernel that gathers inputs tells apart, by the width k of its kernel.
GATHER_KINDS: dict[str, Any] = {
    "steps": lambda k: (
        "conv2d", (2, 5, 37, 43), (10, 1, 4, k), {"stride": 2, "padding": (1, k // 2)},
    ),
    "a large image": lambda k: (
        "conv2d", (1, 7, 53, 60), (7, 1, 4, k), {"padding": (2, k // 2)},
    ),
    "three axes": lambda k: (
        "conv3d", (2, 3, 13, 9, 14), (6, 1, 3, 2, k),
        {"stride": (2, 1, 2), "padding": (1, 0, k // 2)},
    ),
    "one axis": lambda k: ("conv1d", (2, 5, 613), (10, 1, k), {"stride": 3, "padding": 1}),
    "dilated": lambda k: (
        "conv2d", (2, 5, 21, 45), (10, 1, 2, k), {"dilation": (2, 3), "padding": (1, k)},
    ),
    "flipped": lambda k: (
        "conv_transpose2d", (2, 3, 17, 18), (3, 2, 4, k), {"padding": (1, 2)},
    ),
    "scattered": lambda k: (
        "conv3d", (2, 3, 11, 8, 14), (9, 1, 3, 2, k), {"stride": (1, 2, 1), "padding": 1},
    ),
}  # fmt: skip


# The same of strips, by the width k of a square kernel and the step s along y.
STRIP_KINDS: dict[str, Any] = {
    "steps": lambda k, s: (
        "conv2d", (2, 5, 61, 43), (10, 1, k, k), {"stride": (s, 2), "padding": k // 2},
    ),
    "a large image": lambda k, s: (
        "conv2d", (1, 7, 83, 70), (7, 1, k, k), {"stride": (s, 1), "padding": (2, k // 2)},
    ),
    "cropped": lambda k, s: (
        "conv2d", (2, 9, 47, 31), (9, 1, k, k), {"stride": (s, 3)},
    ),
    "three axes": lambda k, s: (
        "conv3d", (2, 3, 15, 19, 14), (6, 1, 3, k, k),
        {"stride": (2, s, 1), "padding": (1, 1, k // 2), "dilation": (2, 1, 1)},
    ),
    "scattered": lambda k, s: (
        "conv3d", (2, 3, 12, 12, 14), (9, 1, 2, k, k), {"stride": (1, s, 2), "padding": 1},
    ),
}  # fmt: skip


def strips(instance: Instance) -> bool:
    return dict(instance.defines)["HEIGHT"] != "0"


@pytest.fixture
def several_bands(steer: Steering) -> None:
    """Of the layouts, plans choose among those that divide channels and an axis, and not evenly."""

    def suitable(geometry: ConvGeometry, layout: gather_conv.Layout) -> bool:
        outputs, size = geometry.groups * geometry.rows, layout.axes[layout.band].size_out
        uneven = outputs % layout.channels > 0 and size % layout.tile > 0
        return outputs > layout.channels and uneven

    steer.choose_among(gather_conv, suitable)


GATHER_CASES = [(i, k) for i in GATHER for k in (STRIP_KINDS if strips(i) else GATHER_KINDS)]


@on_the_emulator("instance", "kind", cases=GATHER_CASES)
@pytest.mark.usefixtures("several_bands")
def test_gather_instance(instance: Instance, kind: str) -> None:
    macros = dict(instance.defines)
    width, step = int(macros["TAPS"]), int(macros["STEP"])
    call = STRIP_KINDS[kind](width, step) if strips(instance) else GATHER_KINDS[kind](width)
    case = call_for(instance, call, groups=call[1][1])
    if kind == "scattered":
        x = np.moveaxis(np.moveaxis(case["input"], 1, -1).copy(), -1, 1)
        case = case.with_arrays(input=x)
    layout = run_once("gather", case, instance).layout
    assert layout.tiles > 1
    assert layout.channel_tiles > 1
    axes = {"three axes": 0, "scattered": 0, "one axis": 2}
    assert layout.band == axes.get(kind, 1)
    assert (abs(layout.axes[2].offset_step) > 1) == (kind == "dilated")
    assert (layout.axes[2].offset_step < 0) == (kind == "flipped")


def bulk_copies(bulk: bool) -> AbstractContextManager[None]:
    """Copies in bulk, or none."""
    return nullcontext() if bulk else without_bulk_copies()


@on_the_emulator("shape", "dtype", cases=[((2, 70, 7, 7), "float32"), ((1, 90, 5, 8), "float16")])
@pytest.mark.parametrize("height", [2, 3])
@pytest.mark.parametrize("bulk", [True, False])
def test_a_tile_has_whole_images(bulk: bool, height: int, shape: Shape, dtype: str) -> None:
    """Those of several groups, which begin anywhere in a chunk."""
    groups = shape[1]
    case = convolution(
        "conv2d", shape, (groups, 1, height, 3), dtype, bias=True, groups=groups, padding=1
    )
    with bulk_copies(bulk):
        layout = run_once("gather", case).layout
    assert layout.whole and layout.bulk == bulk
    assert 1 < layout.channels < groups


@on_the_emulator(
    "function", "options",
    cases=[("conv2d", {"stride": (2, 1)}), ("conv_transpose2d", {"padding": (4, 1)})],
)  # fmt: skip
def test_a_tile_has_images_but_for_some_lines(function: str, options: dict[str, Any]) -> None:
    """Channels that lie together, of which no output takes the first lines or the last one."""
    case = convolution(function, (2, 30, 10, 9), (30, 1, 3, 3), bias=True, groups=30, **options)
    layout = run_once("gather", case).layout
    assert layout.tiles == 1 and layout.channels > 1 and not layout.whole


@on_the_emulator("channels", "height", cases=[(2, 3), (3, 3), (6, 3), (12, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tiles_of_any_number_of_channels(
    dtype: str, channels: int, height: int, steer: Steering
) -> None:
    """Which begin and end among the five of a group, and anywhere in a chunk; strips or not."""
    steer.choose_among(gather_conv, lambda _, x: x.channels == channels)
    case = convolution(
        "conv3d", (2, 5, 4, 5, 7), (25, 1, 3, height, 3), dtype,
        bias=True, groups=5, stride=2, padding=1,
    )  # fmt: skip
    assert run_once("gather", case).layout.channels == channels


@on_the_emulator("height", cases=[3, 4])
def test_many_pieces_of_inputs(height: int, steer: Steering) -> None:
    """More than a warp copies at a time, and ends and weights for several turns of all threads."""
    steer.choose_among(gather_conv, lambda _, x: x.channels == 64 and x.threads <= 128)
    case = convolution(
        "conv2d", (1, 140, height + 7, 9), (140, 1, height, 3), bias=True, groups=140, stride=2
    )
    layout = run_once("gather", case).layout
    assert layout.channels > 32 and not layout.whole
    assert layout.channels * height * 3 > 4 * layout.threads


@on_the_emulator("bulk", cases=[True, False])
def test_a_piece_that_begins_inside_of_a_chunk(bulk: bool) -> None:
    """Of so many inputs that they are whole turns of a warp, and a part of a chunk more."""
    case = convolution("conv2d", (1, 5, 8, 16), (5, 1, 3, 3), groups=5, padding=1)
    memory = np.full(case["input"].size + 8, np.nan, np.float32)
    first = next(i for i in range(8) if memory[i:].ctypes.data % 16 == 4)
    x = memory[first:][: case["input"].size].reshape(case["input"].shape)
    x[...] = case["input"]
    with bulk_copies(bulk):
        run_once("gather", case.with_arrays(input=x))


@on_the_emulator("height", cases=[2, 3])
@pytest.mark.parametrize("axes", [(1, 0, 2, 3), (0, 1, 3, 2), (0, 1, 2, 3)], ids=str)
def test_weights_that_do_not_lie_together(axes: tuple[int, ...], height: int) -> None:
    """In another order, or with gaps between channels."""
    case = convolution(
        "conv_transpose2d", (2, 6, 9, 10), (6, 3, height, 3), bias=True, groups=6, padding=1
    )
    memory = np.full((12, 3, height, 3), np.nan, np.float32).transpose(axes)
    weight = memory.transpose(np.argsort(axes))[::2]
    weight[...] = case["weight"]
    run_once("gather", case.with_arrays(weight=weight))


def test_reasons() -> None:
    """What `explain` prints where another kernel is faster, and where this one has no plan."""

    def reason(weight: tuple[int, ...], **options: Any) -> str | None:
        shapes = (8, 64, 112, 112), weight
        found = cupyconv.explain(cupyconv.conv2d, *shapes, target="sm_90a", **options)
        assert found.kernel != "gather" or "gather" not in found.refused
        return None if found.kernel == "gather" else found.refused["gather"]

    slower = reason((64, 1, 3, 3), groups=64, dtype="float16")
    assert slower and re.fullmatch(r"it would take 1\.\d+ times as long", slower)
    assert reason((64, 1, 3, 3), groups=64, stride=2) is None
    assert reason((64, 64, 3, 3)) == "its groups have 64 input channels"
