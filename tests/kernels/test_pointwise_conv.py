"""The pointwise kernels, of 16-bit numbers and of others: plans, promises, and instances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import test_convolution
import test_promises
from backends import EmulatorBackend, NumpyBackend, forced_backends
from bounds import assert_same_bits
from cupyconv._axes import has_one_tap
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import modes, pointwise16_conv, pointwise_conv, question
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import SHARED, Instance, Launch, Processor
from cupyconv._kernels.modes import SLAB_ROWS, TEAM
from cupyconv._kernels.pointwise16_conv import Pointwise16Plan
from cupyconv._kernels.pointwise_conv import PointwisePlan
from cupyconv._kernels.streaming_conv import StreamingPlan
from planning import (
    HOPPER,
    Steering,
    any_mode,
    checked_plan_of,
    constant,
    conv,
    conv_transpose,
    plan_of,
    streaming_geometries,
)
from running import (
    call_for,
    instances_of,
    on_the_emulator,
    run_once,
)
from strategies import FLOATS, Convolution, convolution, many_channels
from subjects import ConvolutionSubject, Example

BACKENDS = forced_backends("pointwise", wgmma=True)
# This kernel and another one, whose sums have the same order.
PAIRS = [
    pytest.param([few.values[0], many.values[0]], id=few.values[0].name, marks=few.marks)
    for few, many in zip(forced_backends("streaming", wgmma=True), BACKENDS, strict=True)
]
POINTWISE = instances_of("pointwise_conv.cu")
POINTWISE16 = instances_of("pointwise16_conv.cu")
# With one product of a K step; else the few-channel kernel has them.
CHOSEN = [
    conv((8, 256, 56, 56), (64, 256, 1, 1)),
    conv((1, 512, 28, 28), (1024, 512, 1, 1)),
    conv((8, 512, 14, 14), (300, 256, 1, 1), groups=2),
    conv_transpose((1, 200, 3000), (200, 24, 1)),
]
CHOSEN16 = [
    conv((8, 64, 56, 56), (64, 64, 1, 1)),
    conv((1, 512, 28, 28), (1024, 512, 1, 1)),
    conv((8, 512, 14, 14), (300, 256, 1, 1), groups=2),
    conv_transpose((1, 200, 3000), (200, 24, 1)),
]


LINES = [
    convolution("conv1d", (3, 80, 298), (70, 80, 1), precision="tf32"),
    convolution("conv1d", (3, 80, 301), (70, 80, 1), precision="tf32"),
    convolution("conv1d", (3, 132, 300), (70, 132, 1), "float16"),
    convolution("conv1d", (3, 154, 302), (70, 154, 1), "bfloat16"),
    convolution("conv_transpose1d", (2, 150, 304), (150, 76, 1), "float16"),
    convolution("conv2d", (2, 80, 3, 100), (70, 80, 1, 1), precision="tf32"),
]


def threads(instance: Instance) -> int:
    return (int(dict(instance.defines)["TEAMS"]) + 1) * constant(instance.source, "TEAM")


SUBJECTS = (
    ConvolutionSubject(
        pointwise_conv,
        threads=threads,
        everywhere=False,
        tested=POINTWISE,
        chosen=CHOSEN,
        able=lambda dtype, target: dtype == np.float32 and target == "sm_90a",
        limits={name: getattr(pointwise_conv, name) for name in ("TEAM", "MAX_STAGES")},
        examples={
            "pointwise": Example(
                ("sm_90a",),
                CHOSEN[0],
                "tf32",
                drawn=[many_channels()],
                promised=test_promises.STILL,
                lines=LINES,
            )
        },
    ),
    ConvolutionSubject(
        pointwise16_conv,
        threads=threads,
        everywhere=False,
        tested=POINTWISE16,
        chosen=CHOSEN16,
        able=lambda dtype, target: dtype.itemsize == 2 and dtype in FLOATS and target == "sm_90a",
        limits={
            "TEAM": TEAM,
            **{name: getattr(pointwise16_conv, name) for name in ("SIDE", "WORD", "MAX_STAGES")},
        },
        examples={},
    ),
)


@given(
    geometry=streaming_geometries(),
    mode=any_mode,
    multiprocessors=st.sampled_from([1, 2, 30, 132]),
)
@example(
    geometry=conv((1, 191 * 944, 2), (191 * 1857, 944, 1), groups=191),
    mode=(np.dtype(np.float32), "tf32"),
    multiprocessors=1,
)
def test_pointwise_plans(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], multiprocessors: int
) -> None:
    processor = Processor("sm_90a", multiprocessors)
    plan = checked_plan_of(geometry, *mode, processor, "pointwise")
    own = modes.unscaled_mode(mode[0].name, mode[1])
    assert own
    if own.products > 1 or not has_one_tap(geometry):
        assert isinstance(plan, DirectPlan)
        return
    if own.itemsize == 2:
        check_pointwise16(geometry, mode[0], processor, plan)
        return
    if not isinstance(plan, PointwisePlan):  # the packing kernel divides its steps in 28 bits
        slabs = geometry.groups * -(-geometry.rows // SLAB_ROWS)
        assert 6 * SLAB_ROWS * slabs * (geometry.channels // own.block + 4) >= 2**28
        return
    launch, layout, shape = plan.launch, plan.layout, plan.layout.shape
    assert launch.instance == pointwise_conv._instance(own, shape)
    assert launch.early and launch.block == shape.threads
    # Chunks cover the channels, units the rows, tiles the positions.
    places = shape.teams * 64
    size = math.prod(axis.size_out for axis in geometry.axes)
    assert layout.chunks == -(-geometry.channels // shape.channels)
    assert layout.units == geometry.groups * layout.units_of_group
    assert layout.units_of_group == -(-geometry.rows // (64 * shape.held))
    assert layout.tiles_of_sample == -(-size // places)
    assert layout.tiles == geometry.batch * layout.tiles_of_sample
    # Weights are packed for whole chunks and units.
    assert plan.summation.steps == layout.chunks * shape.channels // own.block
    assert plan.packed == layout.units * 64 * shape.held * plan.summation.steps * 32
    # Blocks stay with a unit, each has a tile, and those of a multiprocessor have room.
    assert launch.unit == layout.units
    assert launch.grid // layout.units <= layout.tiles
    assert layout.alone == (layout.tiles * layout.units <= multiprocessors)
    beside = 1 if layout.alone else 2 // shape.teams
    assert launch.grid <= max(beside * multiprocessors, layout.units)
    assert 3 <= layout.stages <= 8
    assert beside * (launch.shared + 1024) - 1024 <= SHARED["sm_90a"]
    inputs = shape.channels * (shape.teams * 256 + 32)
    weights = shape.rows * shape.channels * 4
    brought = layout.chunks if layout.stay else layout.stages
    room = layout.stages * inputs + brought * weights + 4 * shape.rows + 128
    assert launch.shared == layout.shared == room
    # Weights stay where blocks take several tiles and inputs keep some stages.
    assert not layout.stay or (layout.blocks < layout.tiles and layout.stages >= 4)


def check_pointwise16(
    geometry: ConvGeometry, dtype: np.dtype[Any], processor: Processor, plan: question.Plan
) -> None:
    """The plan of 16-bit numbers: blocks of 64 by 64 of them."""
    assert isinstance(plan, Pointwise16Plan)
    launch, layout, shape = plan.launch, plan.layout, plan.layout.shape
    assert launch.instance == pointwise16_conv._instance(dtype.name, shape)
    assert not launch.early and launch.block == shape.threads
    # Chunks cover the channels, units the rows, blocks and tiles the positions.
    size = math.prod(axis.size_out for axis in geometry.axes)
    assert layout.chunks == -(-geometry.channels // 64)
    assert layout.units == geometry.groups * layout.units_of_group
    assert layout.units_of_group == -(-geometry.rows // (64 * shape.teams * shape.slabs))
    assert layout.blocks_of_sample == -(-size // 64)
    assert layout.blocks == geometry.batch * layout.blocks_of_sample
    assert layout.tiles == -(-layout.blocks // shape.blocks)
    # Blocks of threads stay with a unit, each has a tile, and those of a multiprocessor have room.
    assert launch.unit == layout.units and launch.grid == layout.units * layout.sharing
    assert 1 <= layout.sharing <= layout.tiles
    beside = min(shape.resident, -(-layout.tiles * layout.units // processor.multiprocessors))
    assert launch.grid <= max(beside * processor.multiprocessors, layout.units)
    assert 2 <= layout.stages <= 12
    assert beside * (launch.shared + 1024) - 1024 <= SHARED["sm_90a"]
    stage = 8192 * (shape.blocks + shape.teams * shape.slabs)
    assert launch.shared == layout.shared == layout.stages * stage + 4 * shape.rows + 192


def test_weights_stay_where_tiles_of_few_rows_share_out_evenly() -> None:
    plan = plan_of(conv((32, 256, 36, 39), (384, 256, 1, 1)), precision="tf32", processor=HOPPER)
    assert isinstance(plan, PointwisePlan)
    assert plan.layout.stay and plan.layout.shape.rows == 128
    few = plan_of(conv((1, 256, 36, 39), (384, 256, 1, 1)), precision="tf32", processor=HOPPER)
    assert isinstance(few, PointwisePlan) and not few.layout.stay
    # A block would bring them anew for each of its units.
    geometry = conv((1, 300 * 128, 256), (300 * 128, 128, 1), groups=300)
    many = plan_of(geometry, precision="tf32", processor=HOPPER)
    assert isinstance(many, PointwisePlan) and not many.layout.stay


def test_the_batch_does_not_choose_the_pointwise_kernel() -> None:
    """Not even where weights are almost too many: the shape of a block follows from the batch."""
    for channels in (2_000_000, 4_000_000, 6_000_000):
        plans = [
            plan_of(conv((n, channels, 1, 2), (128, channels, 1, 1)), precision="tf32", kernel=name)
            for n in (1, 64, 256)
            for name in ("pointwise", None)
        ]
        assert len(set(map(type, plans[::2]))) == len(set(map(type, plans[1::2]))) == 1


def test_lines_that_do_not_lie_as_one_are_not_for_the_pointwise_kernel() -> None:
    for stride, kind in (1, PointwisePlan), ((2, 1), StreamingPlan), ((1, 2), StreamingPlan):
        geometry = conv((8, 256, 56, 56), (64, 256, 1, 1), stride=stride)
        assert isinstance(plan_of(geometry, precision="tf32", processor=HOPPER), kind)


def test_what_is_not_for_the_pointwise_kernel() -> None:
    for geometry in (
        conv((8, 150, 56), (64, 150, 3)),
        conv((8, 256, 56), (64, 256, 1), padding=1),
        conv_transpose((8, 256, 56), (256, 64, 1), stride=2),
        conv((8, 0, 56), (64, 0, 1)),
        conv((8, 256, 5, 5, 5, 5), (64, 256, 1, 1, 1, 1)),
        conv((1, 256, 2**30), (64, 256, 1)),
    ):
        plan = plan_of(geometry, precision="tf32", processor=HOPPER, kernel="pointwise")
        assert isinstance(plan, DirectPlan)


@pytest.mark.parametrize("backends", PAIRS)
@given(case=many_channels())
def test_many_channels_have_the_same_bits_by_two_kernels(
    backends: Sequence[NumpyBackend], case: Convolution
) -> None:
    channels = case["input"].shape[1] // case.options["groups"]
    assume(channels <= 128 or case["input"].dtype == np.float32)  # or it is the direct kernel
    first, second = (backend.compute(case) for backend in backends)
    assert_same_bits(first, second)


# What the pointwise kernel tells apart, for c channels, r rows and tiles of n positions: inputs
# copied in bulk, or in pieces of 16 and 8 bytes; a single tile; inputs that do not lie together.
POINTWISE_KINDS: dict[str, Any] = {
    "in bulk": lambda c, r, n: ("conv1d", (3, 2 * c, n + 24), (2 * r, c, 1), {}),
    "in pieces": lambda c, r, n: ("conv_transpose1d", (3, 2 * c, n + 20), (2 * c, r, 1), {}),
    "one tile": lambda c, r, n: ("conv2d", (1, c + 3, 2, 16), (r // 2, c + 3, 1, 1), {}),
    "odd": lambda c, r, n: ("conv1d", (2, 2 * c, n + 33), (2 * r, c, 1), {}),
    "steps": lambda c, r, n: ("conv2d", (2, 2 * c, 5, 80), (2 * r, c, 1, 1), {"stride": 2}),
}


def pointwise_case(
    instance: Instance, kind: str, chunks: int, batch: int | None, steer: Steering
) -> Convolution:
    """A convolution of some whole chunks and a ragged one, planned in the instance's shape."""
    macros = dict(instance.defines)
    shape = pointwise_conv.Shape(*(int(macros[name]) for name in ("CHANNELS", "TEAMS", "HELD")))
    steer.replace(pointwise_conv, SHAPES=(shape,))
    channels, rows = chunks * shape.channels + 5, shape.rows + 33
    function, input_shape, *rest = POINTWISE_KINDS[kind](channels, rows, shape.places)
    input_shape = (batch or input_shape[0], *input_shape[1:])
    groups = input_shape[1] // channels
    return call_for(instance, (function, input_shape, *rest), groups, "tf32")


@on_the_emulator("instance", cases=POINTWISE)
@pytest.mark.parametrize("kind", POINTWISE_KINDS)
def test_pointwise_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """A ragged last chunk, row tile and tile, and more chunks than stages."""
    plan = run_once("pointwise", pointwise_case(instance, kind, 9, None, steer), instance)
    layout = plan.layout
    assert layout.alone == (kind == "one tile")
    assert plan.launch.early
    assert layout.units == (1 if layout.alone else 4)
    assert layout.chunks == 10 > layout.stages


@on_the_emulator("instance", cases=POINTWISE)
@pytest.mark.parametrize("kind", ["in bulk", "odd"])
def test_weights_that_stay(instance: Instance, kind: str, steer: Steering) -> None:
    """Of blocks with several tiles, and more chunks than stages."""
    case = pointwise_case(instance, kind, 2, 5, steer)
    steer.replace(pointwise_conv, LEAST_STAGES=2, MAX_STAGES=2)
    steer.choose_among(pointwise_conv, lambda _, layout: layout.stay)
    layout = run_once("pointwise", case, instance).layout
    assert layout.stay and (layout.chunks, layout.stages, layout.units) == (3, 2, 4)
    assert layout.tiles == 10 > layout.blocks


@on_the_emulator("channels", "bulk", cases=[(67, False), (68, True)])
def test_each_warp_has_channels_to_copy_in_bulk(channels: int, bulk: bool) -> None:
    """With fewer than four in the last chunk, one could fall behind the others by a phase."""
    backend, packed = EmulatorBackend("pointwise"), []
    run = backend.path.device.run

    def seen(launch: Launch, arguments: Any) -> None:
        packed.append((launch.instance.source, arguments[-2]))
        run(launch, arguments)

    backend.path.device.run = seen  # type: ignore[method-assign]
    case = convolution("conv1d", (3, channels, 300), (70, channels, 1), precision="tf32")
    test_convolution.check(backend, case)
    assert packed[-1] == ("pointwise_conv.cu", bulk)


# What the 16-bit kernel tells apart, for c channels, r rows and tiles of n positions: inputs and
# weights in words of 16 bytes, halves, pairs, and one by one; small images that share a tile.
POINTWISE16_KINDS: dict[str, Any] = {
    "words": lambda c, r, n: ("conv1d", (3, 2 * c, n + 24), (2 * r, c, 1), {}),
    "halves": lambda c, r, n: ("conv_transpose1d", (3, 2 * c, n + 20), (2 * c, r // 4 * 4, 1), {}),
    "halves of weights": lambda c, r, n: (
        "conv1d", (1, 2 * (c + 4), n + 12), (2 * r, c + 4, 1), {},
    ),
    "pairs": lambda c, r, n: ("conv1d", (3, 2 * c, n + 22), (2 * r, c, 1), {}),
    "pairs of weights": lambda c, r, n: ("conv1d", (1, 2 * (c + 2), n + 8), (2 * r, c + 2, 1), {}),
    "rows of weights": lambda c, r, n: (
        "conv_transpose1d", (1, 2 * c, n + 8), (2 * c, r + 7, 1), {},
    ),
    "odd": lambda c, r, n: ("conv1d", (2, 2 * c, n + 33), (2 * r, c, 1), {}),
    "odd, transposed": lambda c, r, n: (
        "conv_transpose1d", (1, 2 * c, n + 33), (2 * c, r + 7, 1), {},
    ),
    "weights one by one": lambda c, r, n: ("conv1d", (1, 2 * (c + 1), n), (2 * r, c + 1, 1), {}),
    "small": lambda c, r, n: ("conv2d", (7, c, 3, 8), (r, c, 1, 1), {}),
    "steps": lambda c, r, n: ("conv2d", (4, 2 * c, 5, 80), (2 * r, c, 1, 1), {"stride": 2}),
}  # fmt: skip


@on_the_emulator("instance", cases=POINTWISE16)
@pytest.mark.parametrize("kind", POINTWISE16_KINDS)
def test_pointwise16_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """A ragged last chunk, row tile and tile, and more chunks than stages."""
    macros = dict(instance.defines)
    names = "TEAMS", "SLABS", "BLOCKS", "RESIDENT"
    shape = pointwise16_conv.Shape(*(int(macros[name]) for name in names))
    steer.replace(pointwise16_conv, SHAPES={shape: 1}, MAX_STAGES=2)
    sizes = 3 * pointwise16_conv.SIDE + 8, shape.rows + 33, pointwise16_conv.SIDE * shape.blocks
    groups = 1 if kind == "small" else 2
    case = call_for(instance, POINTWISE16_KINDS[kind](*sizes), groups)
    layout = run_once("pointwise", case, instance).layout
    assert (layout.units, layout.chunks, layout.stages) == (2 * groups, 4, 2)
    assert layout.blocks > shape.blocks or kind in ("small", "weights one by one")
