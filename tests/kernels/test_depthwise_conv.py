"""The depthwise kernel: its plans, and each of its instances on the emulator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import test_convolution
from backends import NumpyBackend, forced_backends
from cupyconv import _compile
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import depthwise_conv, depthwise_tiles
from cupyconv._kernels.depthwise_conv import DepthwisePlan
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import Instance, Processor
from planning import (
    Steering,
    checked_plan_of,
    constant,
    conv,
    conv_transpose,
    depthwise_geometries,
    processors,
)
from reference import Shape
from running import (
    call_for,
    instances_of,
    on_the_emulator,
    run_once,
)
from strategies import FLOATS, convolution, one_channel_convolutions
from subjects import ConvolutionSubject, Example

BACKENDS = forced_backends("depthwise")
DEPTHWISE = instances_of("depthwise_conv.cu")
CHOSEN = [
    conv((8, 64, 112, 112), (64, 1, 5, 9), groups=64),
    conv((8, 1, 512, 512), (64, 1, 3, 5)),
    conv((1, 64, 112, 112), (128, 1, 4, 4), groups=64, stride=2, padding=2),
    conv((1, 512, 56, 56), (512, 1, 5, 7), groups=512, padding=(2, 3)),
    conv((8, 32, 16, 128, 128), (32, 1, 3, 3, 3), groups=32),
    conv((8, 256, 9000), (256, 1, 31), groups=256, dilation=4),
    conv_transpose((8, 64, 32, 32), (64, 2, 4, 4), stride=2, padding=1, groups=64),
]


LINES = [
    convolution("conv2d", (2, 3, 9, 298), (6, 1, 3, 5), "float16", groups=3, padding=(1, 2)),
    convolution("conv_transpose2d", (1, 2, 9, 76), (2, 4, 2, 4), "bfloat16", groups=2),
    convolution("conv_transpose3d", (1, 2, 3, 5, 61), (2, 1, 2, 3, 3), "float16", groups=2),
    # A chunk before the array, and one with two elements after its end.
    convolution("conv2d", (1, 1, 1, 5508), (2, 1, 2, 2), "bfloat16", padding=(1, 0)),
    convolution("conv2d", (2, 3, 9, 298), (6, 1, 3, 3), groups=3, padding=1),
    convolution("conv2d", (2, 3, 9, 75), (3, 1, 3, 7), groups=3, padding=(0, 5)),
    convolution("conv2d", (1, 3, 9, 39), (3, 1, 3, 3), "float64", groups=3, stride=(1, 2)),
]


def threads(_: Instance) -> int:
    return constant("depthwise_conv.cu", "THREADS")


SUBJECTS = (
    ConvolutionSubject(
        depthwise_conv,
        threads=threads,
        tested=DEPTHWISE,
        chosen=CHOSEN,
        able=lambda dtype, target: dtype in FLOATS,
        order=lambda plan: plan.launch.instance,
        limits={name: getattr(depthwise_tiles, name) for name in ("THREADS", "MAX_PHASES")},
        examples={"depthwise": Example(drawn=[one_channel_convolutions(chunks=True)], lines=LINES)},
    ),
)


@given(geometry=depthwise_geometries(), dtype=st.sampled_from(FLOATS), processor=processors)
def test_depthwise_plans(
    geometry: ConvGeometry, dtype: np.dtype[Any], processor: Processor
) -> None:
    plan = checked_plan_of(geometry, dtype, processor=processor, kernel="depthwise")
    if isinstance(plan, DirectPlan):
        # There is no room for the inputs of the smallest tile, which there is for small kernels.
        assert geometry.rank > 1 and max(axis.kernel * axis.step for axis in geometry.axes) > 3
        return
    assert isinstance(plan, DepthwisePlan)
    layout = plan.layout
    # The tiles cover all channels, rows and positions.
    for size, tile, tiles in (
        (geometry.groups, layout.channels, layout.channel_tiles),
        (geometry.rows, layout.rows, layout.row_tiles),
        *zip((a.positions(0) for a in layout.axes), layout.tile, layout.tiles, strict=True),
    ):
        assert (tiles - 1) * tile < size <= tiles * tile
    tiles = layout.channel_tiles * layout.row_tiles * math.prod(layout.tiles)
    assert plan.launch.grid == geometry.batch * tiles
    loads = depthwise_tiles.ELEMENTWISE, depthwise_tiles.ALIGNED, depthwise_tiles.ANYWHERE
    assert loads == (0, 1, 2)
    names = "enum Loads : int64 { ELEMENTWISE, ALIGNED, ANYWHERE };"
    assert names in _compile.source("depthwise_conv.cu")
    # A block has threads for all columns, and lines for all positions along y.
    x = layout.axes[2]
    lines = layout.shape.lines
    assert layout.columns <= depthwise_tiles.THREADS
    assert layout.tile[2] * x.phases == 2 * layout.columns * (lines if layout.section else 1)
    assert layout.section % (2 * x.phases // math.gcd(2, x.phases)) == 0
    assert layout.tile[1] == (1 if layout.section else layout.strips * lines)
    # What is staged reaches all inputs of all taps.
    for axis, low, tile, extent in zip(
        layout.axes, layout.low, layout.tile, layout.extent, strict=True
    ):
        offsets = [o for phase in range(axis.phases) for _, o in axis.table(phase)] or [0]
        assert low == min(offsets)
        assert low + extent > (tile - 1) * axis.step + max(offsets)
    staging, chunk = layout.staging, depthwise_tiles.CHUNK // dtype.itemsize
    for runs, unit in ((staging.vectors, chunk), (staging.elements, 1)):
        assert runs.chunks <= depthwise_tiles.THREADS
        # Lines begin with a chunk on Tensor Cores, anywhere in one and end so elsewhere.
        aside = layout.low[2] % unit if layout.shape.tensor_cores else 2 * (unit - 1)
        assert runs.chunks * runs.count * unit >= layout.extent[2] + aside
        assert unit > 1 or runs.chunks % 2 == 0


@pytest.mark.parametrize("apart", [(2, 0, 0), (0, 2, 0), (0, 0, 2)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_whole_chunks_that_lie_between_others(
    backend: NumpyBackend, apart: tuple[int, int, int]
) -> None:
    """Lines of chunks of 16 bytes, with half a chunk after each line, channel or sample."""
    case = convolution("conv2d", (2, 3, 9, 80), (3, 1, 3, 3), groups=3, padding=1)
    line = 80 + apart[0]
    channel = 9 * line + apart[1]
    sample = 3 * channel + apart[2]
    memory = np.full(2 * sample, np.nan, np.float32)
    strides = [4 * n for n in (sample, channel, line, 1)]
    x = np.lib.stride_tricks.as_strided(memory, case["input"].shape, strides)
    x[...] = case["input"]
    test_convolution.check(backend, case.with_arrays(input=x))


# What the kernel for one input channel in each group tells apart, by the width k of its kernel.
DEPTHWISE_KINDS: dict[str, Any] = {
    "slides": lambda k: (
        "conv3d", (2, 3, 5, 21, 46 - k), (6, 1, 2, 4, k), {"padding": (0, 1, k // 2)},
    ),
    "slides, even lines": lambda k: (
        "conv2d", (2, 5, 37, 42), (5, 1, 3, k), {"padding": (1, k // 2)},
    ),
    "slides, transposed": lambda k: (
        "conv_transpose2d", (2, 3, 21, 38), (3, 2, 9, k), {"padding": (2, 1)},
    ),
    "slides in sections": lambda k: ("conv1d", (2, 3, 602), (3, 1, k), {"padding": 2}),
    "steps": lambda k: (
        "conv2d", (2, 3, 43, 70), (6, 1, 3, k),
        {"stride": (2, 1), "dilation": (1, 3), "padding": (1, 4)},
    ),
    "steps in sections": lambda k: ("conv1d", (2, 3, 611), (6, 1, k), {"stride": 3}),
    "phases": lambda k: (
        "conv_transpose3d", (1, 3, 3, 12, 22), (3, 2, 2, 4, k),
        {"stride": (1, 2, 3), "dilation": (2, 1, 1), "padding": (0, 1, 2)},
    ),
    "slides on Tensor Cores": lambda _: (
        "conv2d", (2, 3, 37, 72), (6, 1, 3, 5), {"padding": (1, 3)},
    ),
    "slides on Tensor Cores, odd lines": lambda _: (
        "conv2d", (2, 3, 37, 61), (6, 1, 3, 5), {"padding": (1, 3)},
    ),
    "slides on Tensor Cores, even lines": lambda _: (
        "conv_transpose2d", (2, 3, 37, 70), (3, 1, 2, 4), {"padding": (0, 1)},
    ),
    "slides on Tensor Cores, transposed": lambda _: (
        "conv_transpose3d", (2, 3, 3, 18, 56), (3, 1, 2, 3, 8), {"padding": (0, 1, 2)},
    ),
}  # fmt: skip


# What does not slide is for the first instance of its dtype.
DEPTHWISE_CASES = [
    (instance, kind)
    for instance in DEPTHWISE
    for kind in DEPTHWISE_KINDS
    if ("Tensor Cores" in kind) == (("MATRIX", "1") in instance.defines)
    and ("slides" in kind or ("TAPS", "3") in instance.defines)
]


@pytest.fixture
def several_boxes(steer: Steering) -> None:
    """Of the layouts, plans choose among those with several tiles on each axis that is long."""

    def suitable(_: ConvGeometry, layout: depthwise_tiles.Layout) -> bool:
        long = [axis.positions(0) >= 16 for axis in layout.axes]
        return all(tiles > 1 for tiles, needed in zip(layout.tiles, long, strict=True) if needed)

    steer.choose_among(depthwise_tiles, suitable)


@on_the_emulator("instance", "kind", cases=DEPTHWISE_CASES)
@pytest.mark.usefixtures("several_boxes")
def test_depthwise_instance(instance: Instance, kind: str) -> None:
    call = DEPTHWISE_KINDS[kind](int(dict(instance.defines)["TAPS"]))
    plan = run_once("depthwise", call_for(instance, call, groups=call[1][1]), instance)
    layout = plan.layout
    assert layout.slides == ("slides" in kind)
    assert (layout.section > 0) == ("sections" in kind)
    assert ("phases" in kind) == (max(axis.phases for axis in layout.axes) > 1)
    assert math.prod(layout.tiles) > 1
    assert any(
        axis.positions(0) % tile for axis, tile in zip(layout.axes, layout.tile, strict=True)
    )


@on_the_emulator("shape", "dtype", cases=[((2, 70, 7, 7), "float32"), ((1, 90, 8, 6), "float16")])
def test_many_channels_share_a_tile(shape: Shape, dtype: str) -> None:
    """Small images: the planes of many channels, with a ragged last tile."""
    channels = shape[1]
    case = convolution(
        "conv2d", shape, (channels, 1, 3, 3), dtype, bias=True, groups=channels, padding=1
    )
    assert 1 < run_once("depthwise", case).layout.channels < channels
