"""The few-channel kernel: its plans, its promises, and each of its instances."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import test_convolution
import test_promises
from backends import NumpyBackend, forced_backends
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import modes, streaming_conv
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import SHARED, Instance, Processor
from cupyconv._kernels.modes import SLAB_ROWS, TEAM
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
from strategies import (
    MODES,
    convolution,
    pointwise_convolutions,
    streaming_convolutions,
)
from subjects import ConvolutionSubject, Example

BACKENDS = forced_backends("streaming", wgmma=True)
STREAMING = instances_of("streaming_conv.cu")
CHOSEN = [
    conv((1, 16, 300, 300), (128, 16, 1, 1)),
    conv((8, 48, 224, 224), (64, 48, 1, 1)),
    conv((8, 128, 128, 128), (256, 64, 1, 1), groups=2, stride=2),
    conv_transpose((1, 48, 3000), (48, 24, 1)),
    conv((8, 3, 224, 224), (768, 3, 8, 8), stride=8),
    conv((8, 3, 227, 227), (96, 3, 11, 11), stride=4),
]


LINES = [
    convolution("conv2d", (2, 20, 5, 298), (70, 20, 1, 1)),
    convolution("conv2d", (2, 20, 5, 300), (70, 20, 1, 1), "float16"),
    convolution("conv2d", (2, 3, 5, 298), (9, 3, 3, 3), "bfloat16", padding=1),
    convolution("conv1d", (2, 20, 301), (70, 20, 1), precision="tf32"),
]


def threads(instance: Instance) -> int:
    return int(dict(instance.defines)["TEAMS"]) * constant("streaming_conv.cu", "TEAM")


def order(plan: Any) -> tuple[Any, ...]:
    return plan.layout.chunks, plan.layout.shape.channels


SUBJECTS = (
    ConvolutionSubject(
        streaming_conv,
        threads=threads,
        everywhere=False,
        tested=STREAMING,
        chosen=CHOSEN,
        able=lambda dtype, target: dtype in dict(MODES) and target == "sm_90a",
        order=order,
        order_of_joined=order,
        limits={"TEAM": TEAM},
        examples={
            "streaming": Example(
                ("sm_90a",),
                drawn=[pointwise_convolutions(), streaming_convolutions()],
                promised=test_promises.STILL,
                lines=LINES,
            )
        },
    ),
)


@given(
    geometry=streaming_geometries(),
    mode=any_mode,
    multiprocessors=st.sampled_from([1, 2, 30, 132]),
)
def test_streaming_plans(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], multiprocessors: int
) -> None:
    processor = Processor("sm_90a", multiprocessors)
    plan = checked_plan_of(geometry, *mode, processor, "streaming")
    own = modes.unscaled_mode(mode[0].name, mode[1])
    assert own
    products = geometry.channels * math.prod(axis.kernel for axis in geometry.axes)
    several = products > geometry.channels
    if isinstance(plan, DirectPlan):  # weights of 64 rows do not fit, in whole chunks
        if not several and mode[0].itemsize == 2 and products > 128:
            return  # operands of so many channels have no room in registers
        room = SHARED["sm_90a"] - 256 - several * 24 * (products + 64)
        weights = (products + 64) * 64 * own.parts * mode[0].itemsize
        assert weights > room or (several and products > 400)
        return
    assert isinstance(plan, StreamingPlan)
    launch, layout, shape = plan.launch, plan.layout, plan.layout.shape
    assert launch.instance == streaming_conv._instance(own, shape)
    assert launch.block == shape.teams * TEAM
    # Chunks cover the products, passes and units the rows, tiles the positions.
    assert (layout.products, shape.taps) == (products, several)
    assert layout.chunks == -(-products // shape.channels)
    assert (layout.chunks == 1) >= (shape.held == 0)
    assert shape.held in (0, layout.passes)
    units, rest = divmod(layout.units, geometry.groups)
    assert rest == 0
    rows = layout.passes * shape.rows
    assert (units - 1) * rows < geometry.rows <= units * rows
    # Narrow passes are for what takes no more of them.
    assert -(-geometry.rows // shape.rows) == -(-geometry.rows // SLAB_ROWS)
    # The order of a sum does not depend on the batch.
    more = plan_of(replace(geometry, batch=7 * geometry.batch + 1), *mode, processor, "streaming")
    assert isinstance(more, StreamingPlan)
    assert more.layout.shape.channels == shape.channels
    outputs = geometry.batch * math.prod(axis.size_out for axis in geometry.axes)
    team = 64 if several else 64 * 4 // mode[0].itemsize
    assert (layout.positions, layout.tiles) == (outputs, -(-outputs // team))
    # Blocks stay with a unit, and each has a tile.
    assert launch.unit == layout.units
    assert launch.grid <= max(multiprocessors, layout.units)
    assert launch.grid // layout.units <= layout.tiles
    weights = rows * layout.chunks * shape.channels * mode[0].itemsize * own.parts
    tables = 24 * layout.chunks * shape.channels if several else 0
    assert launch.shared == layout.shared == weights + 4 * rows + tables


def test_the_order_of_a_streaming_sum_follows_from_its_products() -> None:
    """All shapes for several chunks have chunks of one size, and those of single ones ascend."""
    for shapes in (*streaming_conv.SHAPES.values(), *streaming_conv.TAPPED.values()):
        assert len(shapes) == len(set(shapes))
        alone = [shape.channels for shape in shapes if not shape.held]
        assert alone == sorted(alone)
        assert len({shape.channels for shape in shapes if shape.held}) <= 1


def test_what_is_not_for_the_streaming_kernel() -> None:
    for geometry in (
        conv((8, 150, 56), (64, 150, 3)),
        conv((8, 1, 56), (64, 1, 29)),
        conv_transpose((8, 64, 56), (64, 64, 1), stride=2),
        conv((8, 0, 56), (64, 0, 1)),
        conv((8, 64, 5, 5, 5, 5), (64, 64, 1, 1, 1, 1)),
        conv((1, 64, 2**30), (64, 64, 1)),
        conv((1, 64, 2**15, 2**15), (64, 64, 1, 1)),
        conv((1, 64, 9), (2**30, 64, 1)),
    ):
        assert isinstance(plan_of(geometry, processor=HOPPER, kernel="streaming"), DirectPlan)


@pytest.mark.parametrize("backend", BACKENDS)
@test_convolution.every_mode
@pytest.mark.parametrize("geometry", ["padded", "flipped", "three axes"])
def test_special_values_of_few_products(
    backend: NumpyBackend, mode: test_convolution.Mode, geometry: str
) -> None:
    """Absent inputs do not count against infinite weights."""
    function, input_shape, weight_shape, options = {
        "padded": ("conv2d", (5, 9, 11, 14), (70, 9, 3, 3), {"padding": 2, "stride": (1, 2)}),
        "flipped": ("conv_transpose2d", (5, 7, 9, 13), (7, 70, 3, 5), {"padding": (0, 2)}),
        "three axes": ("conv3d", (5, 8, 4, 7, 9), (8, 4, 2, 3, 3), {"padding": 1, "groups": 2}),
    }[geometry]
    dtype, precision = mode
    case = convolution(function, input_shape, weight_shape, dtype, precision=precision, **options)
    test_convolution.check(backend, test_convolution.special(case))


@pytest.mark.parametrize("backend", BACKENDS)
@test_convolution.every_one_tap
def test_special_values_of_one_tap(
    backend: NumpyBackend, mode: test_convolution.Mode, width: int, channels: int
) -> None:
    """In each group, and beside sums that are finite."""
    test_convolution.check(backend, test_convolution.special_one_tap(mode, width, channels))


@pytest.mark.parametrize("backend", BACKENDS)
@test_promises.every_sum_near_overflow
def test_a_sample_beside_nan(
    backend: NumpyBackend, sample: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    """It is computed like any other, even where the order of its sum decides on an overflow."""
    test_promises.check_beside_nan(backend, sample, weight)


# What the few-channel kernel tells apart, for c channels and r rows; and with several taps, for n
# products.
STREAMING_KINDS: dict[str, Any] = {
    "as one": lambda c, r: ("conv2d", (3, 2 * c, 17, 44), (2 * r, c, 1, 1), {}),
    "transposed": lambda c, r: ("conv_transpose1d", (2, 2 * c, 1012), (2 * c, r, 1), {}),
    "odd": lambda c, r: ("conv1d", (3, 2 * c, 701), (2 * r, c, 1), {}),
    "steps": lambda c, r: ("conv3d", (2, 2 * c, 3, 27, 51), (2 * r, c, 1, 1, 1), {"stride": 2}),
    "scattered": lambda c, r: ("conv3d", (2, 2 * c, 4, 15, 20), (2 * r, c, 1, 1, 1), {}),
}


TAPPED_KINDS: dict[str, Any] = {
    "padded": lambda n, r: (
        "conv2d", (3, -(-n // 9) * 2, 23, 22), (2 * r, -(-n // 9), 3, 3), {"padding": (1, 0)},
    ),
    "transposed": lambda n, r: (
        "conv_transpose1d", (2, -(-n // 5) * 2, 701), (-(-n // 5) * 2, r, 5), {"padding": 1},
    ),
    "steps": lambda n, r: (
        "conv3d", (2, -(-n // 12) * 2, 4, 35, 54), (2 * r, -(-n // 12), 2, 2, 3),
        {"stride": (1, 2, 3), "dilation": (2, 1, 2)},
    ),
}  # fmt: skip


STREAMING_CASES = [
    (instance, kind)
    for instance in STREAMING
    for kind in (TAPPED_KINDS if ("TAPS", "1") in instance.defines else STREAMING_KINDS)
]


@on_the_emulator("instance", "kind", cases=STREAMING_CASES)
def test_streaming_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """Two groups, a ragged last chunk, row tile and tile, and several tiles for each warpgroup."""
    macros = dict(instance.defines)
    held, taps = int(macros.get("HELD", 0)), "TAPS" in macros
    width = int(macros.get("PASS_ROWS", 64))
    shape = streaming_conv.Shape(int(macros["CHANNELS"]), int(macros["TEAMS"]), held, width, taps)
    steer.replace(streaming_conv, shapes=lambda mode, taps: (shape,))
    products = 2 * shape.channels + 19 if held else shape.channels - (12 if taps else 5)
    passes = max(held, 2) if width > 32 else 1  # so few rows are for convolutions that have no more
    call = (TAPPED_KINDS if taps else STREAMING_KINDS)[kind](products, width * passes - 20)
    case = call_for(instance, call, 2, "float32" if macros["PARTS"] == "2" else "tf32")
    if kind == "scattered":
        case = case.with_arrays(input=case["input"][..., :18])
    plan = run_once("streaming", case, instance)
    layout = plan.layout
    assert layout.units % 2 == 0
    assert layout.chunks == (3 if held else 1)
    assert layout.products % shape.channels
    assert layout.tiles > plan.launch.grid // layout.units * shape.teams
    assert layout.positions % 64
