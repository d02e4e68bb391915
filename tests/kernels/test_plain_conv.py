"""The FMA kernel: its plans, and each of its instances on the emulator."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cupyconv import _taps
from cupyconv._axes import joined
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import plain_conv, plain_tiles
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import Instance, Processor
from cupyconv._kernels.plain_conv import PlainPlan
from planning import (
    MOST,
    Steering,
    any_mode,
    checked_plan_of,
    constant,
    conv,
    conv_transpose,
    plan_of,
    processors,
)
from running import (
    DTYPE_NAMES,
    call_for,
    instances_of,
    on_the_emulator,
    run_once,
)
from strategies import MODES, convolution
from subjects import ConvolutionSubject, Example

PLAIN = [i for i in instances_of("plain_conv.cu") if i.function == "plain_conv"]
CHOSEN = [
    conv((8, 2, 1024, 1024), (2, 2, 3, 3), padding=1),
    conv_transpose((1, 32, 64, 64), (32, 8, 3, 3), stride=3, padding=1, groups=4),
]


LINES = [
    convolution("conv2d", (2, 4, 5, 298), (9, 4, 3, 3), padding=1),
    convolution("conv2d", (2, 4, 5, 77), (8, 2, 3, 3), "bfloat16", groups=2, padding=1),
    convolution("conv_transpose2d", (2, 4, 5, 75), (4, 9, 3, 4), "float16", stride=(1, 3)),
    convolution("conv_transpose2d", (2, 4, 5, 75), (4, 9, 1, 3), bias=True, stride=2),
]


def threads(_: Instance) -> int:
    return constant("plain_conv.cu", "THREADS")


SUBJECTS = (
    ConvolutionSubject(
        plain_conv,
        threads=threads,
        tested=PLAIN,
        elsewhere=("pack_plain",),
        chosen=CHOSEN,
        able=lambda dtype, target: dtype.name in ("float32", "float16", "bfloat16"),
        limits={
            name: getattr(plain_tiles, name) for name in ("THREADS", "ROWS", "MAX_PHASES", "CHUNK")
        },
        examples={"plain": Example(lines=LINES)},
    ),
)


@st.composite
def plain_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Groups of few channels, and strides that leave few taps for an output."""
    rng = draw(st.randoms(use_true_random=False))
    rank = draw(st.sampled_from([1, 2, 3]))
    most = {1: 30_000, 2: rng.choice([16, 600]), 3: rng.choice([8, 70])}[rank]

    def each(low: int, high: int) -> list[int]:
        return [rng.randint(low, high) for _ in range(rank)]

    kernel, stride = each(1, rng.choice([3, 7])), each(1, rng.choice([1, 2, 7]))
    dilation = each(1, rng.choice([1, 1, 3]))
    groups, rows, channels = rng.randint(1, 5), rng.randint(1, 80), rng.randint(1, 40)
    lengths = [n + d * (k - 1) for n, k, d in zip(each(1, most), kernel, dilation, strict=True)]
    transposed = draw(st.booleans())
    weight = (groups * channels, rows) if transposed else (groups * rows, channels)
    return (conv_transpose if transposed else conv)(
        (rng.choice([1, 2, 16, 100]), groups * channels, *lengths),
        (*weight, *kernel),
        stride=tuple(stride),
        padding=tuple(
            (rng.randint(0, d * (k - 1)), 0) for d, k in zip(dilation, kernel, strict=True)
        ),
        dilation=tuple(dilation),
        groups=groups,
    )


@given(geometry=plain_geometries(), mode=any_mode, processor=processors)
@example(
    geometry=conv((1, 34, 1), (1, 34, 1), stride=7),
    mode=MODES[0],
    processor=Processor("sm_75", 1),
)
def test_plain_plans(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], processor: Processor
) -> None:
    dtype, precision = mode
    plan = checked_plan_of(geometry, dtype, precision, processor, "plain")
    if not isinstance(plan, PlainPlan):
        most = math.prod(max(a.progression(p)[1] for p in range(a.phases)) for a in geometry.axes)
        few = geometry.channels * most <= plain_tiles.MAX_SUM
        # There may be no room for the inputs and weights of the smallest tile.
        assert (
            not few or geometry.channels * math.prod(a.kernel * a.step for a in geometry.axes) > 40
        )
        return
    layout, (z, y, x) = plan.layout, plan.layout.axes
    assert plan.launch.shared == layout.shared
    # The tiles cover all rows and positions, and blocks all tiles of all units.
    for size, tile, tiles in (
        (geometry.rows, plain_tiles.ROWS * layout.slabs_of_tile, layout.row_tiles),
        *zip((a.positions(0) for a in layout.axes), layout.tile, layout.tiles, strict=True),
    ):
        assert (tiles - 1) * tile < size <= tiles * tile
    assert layout.count == geometry.batch * math.prod(layout.tiles)
    busy = [sum(bool(axis.table(phase)) for phase in range(axis.phases)) for axis in (z, y)]
    assert layout.units == geometry.groups * layout.row_tiles * math.prod(busy)
    assert 0 < plan.launch.grid <= layout.count * layout.units
    assert plan.launch.unit == layout.units
    # A block has threads for the lines of a pass, and passes for those of a tile.
    shape = layout.shape
    assert layout.lines * layout.slabs_of_tile * shape.columns <= plain_tiles.THREADS
    assert layout.passes * layout.lines == layout.tile[0] * layout.tile[1]
    assert layout.tile[2] == shape.positions * shape.columns
    # What is staged reaches all inputs of all taps; steps are those of the phases that have most.
    offsets = [o for phase in range(x.phases) for _, o in x.table(phase)] or [0]
    assert layout.low == min(offsets)
    assert layout.low + layout.extent > (layout.tile[2] - 1) * x.step + max(offsets)
    for axis, tile, extent in zip((z, y), layout.tile, layout.extents, strict=False):
        for phase in range(axis.phases):
            own = [o for _, o in axis.table(phase)] or [0]
            assert extent > (tile - 1) * axis.step + max(own) - min(own)
    most = [max(len(a.table(p)) for p in range(a.phases)) for a in (z, y)]
    assert 0 <= layout.steps - geometry.channels * math.prod(most) * x.kernel < 4
    # What lies in shared memory is aligned to 16 bytes, and has room for lines that begin anywhere
    # in a chunk; planes of x do not overlap.
    assert all(place % 16 == 0 for place in layout.places)
    plane, line, lattice = layout.pitches
    room = 2 * (plain_tiles.CHUNK - 1)
    assert lattice * x.step >= layout.extent and line >= lattice * x.step + room
    assert plane >= layout.extents[1] * (line + plain_tiles.CHUNK - 1)
    assert layout.channel_pitch >= layout.extents[0] * plane
    inputs = (layout.places[5] - layout.places[4]) // 4
    assert inputs >= geometry.channels * layout.channel_pitch + room // 2
    # A line of outputs begins anywhere within 16 bytes, wherever its row lies.
    together = 16 // dtype.itemsize
    if x.phases > 1:
        assert layout.buffer_line % together == 0
        assert layout.buffer_line >= layout.tile[2] * x.phases + together - 1
        row = layout.lines * layout.buffer_line + together - 1
        room = plain_tiles.ROWS * layout.slabs_of_tile * row * dtype.itemsize
        assert layout.shared >= layout.places[5] + room
    else:
        assert layout.buffer_line == 0


def test_few_products_in_arrays_as_large_as_memory() -> None:
    many = (32768, 2, 2), (16384, 2, 3, 3)
    geometries = [conv((n, *many[0]), many[1], padding=1, groups=16384) for n in (1, 2**16)]
    plans = [plan_of(geometry, kernel="plain") for geometry in geometries]
    assert all(isinstance(plan, PlainPlan) and plan.launch.grid <= MOST for plan in plans)
    assert isinstance(plan_of(conv((1, 2, 1, 1), (2**31 + 8, 2, 1, 1))), DirectPlan)
    assert isinstance(plan_of(conv((0, 2, 256, 256), (3, 2, 3, 3)), kernel="plain"), PlainPlan)


@given(geometry=plain_geometries(), axis=st.integers(0, 1))
def test_axes_without_taps_are_joined(geometry: ConvGeometry, axis: int) -> None:
    """Each output has the same products, in the same order."""
    assume(axis + 1 < geometry.rank)
    last = _taps.conv_taps(7, 7, 1, 1, 1, 0)
    axes = (*geometry.axes[: axis + 1], last, *geometry.axes[axis + 2 :])
    geometry = replace(geometry, axes=axes)
    one, first = joined(geometry, axis), geometry.axes[axis]
    if one is None:
        assert not first.phases == first.step == 1
        return
    longer = one.axes[axis]
    assert one.rank == geometry.rank - 1
    assert (longer.size_in, longer.size_out) == (first.size_in * 7, first.size_out * 7)
    assert longer.table(0) == [(tap, offset * 7) for tap, offset in first.table(0)]
    assert longer.step == longer.phases == 1


# What the FMA kernel tells apart, by the width n of its tiles. Groups have two row tiles; the
# second one is ragged.
PLAIN_KINDS: dict[str, Any] = {
    "neighbours": lambda n: (
        "conv2d", (2, 6, 19, n + n // 2 + 1), (22, 3, 2, 3), {"padding": (1, 2)},
    ),
    "phases": lambda n: (
        "conv_transpose2d", (1, 10, 13, n + 9), (10, 11, 3, 4), {"stride": (2, 3), "padding": 1},
    ),
    "pairs": lambda n: (
        "conv_transpose2d", (2, 4, 14, n + 8), (4, 9, 3, 2), {"stride": 2},
    ),
    "steps": lambda n: (
        "conv2d", (2, 4, 19, 2 * n + 31), (22, 2, 2, 3),
        {"stride": (1, 2), "dilation": (1, 3), "padding": (0, 4)},
    ),
    "three axes": lambda n: (
        "conv_transpose3d", (1, 6, 5, 9, n + 3), (6, 10, 2, 3, 2),
        {"stride": (2, 1, 1), "padding": (0, 1, 0)},
    ),
    "phases without taps": lambda n: (
        "conv_transpose2d", (1, 6, 9, n + 5), (6, 10, 3, 3), {"stride": 2, "dilation": 2},
    ),
    "lines without taps": lambda n: (
        "conv_transpose2d", (1, 6, 13, n + 5), (6, 10, 3, 3),
        {"stride": (5, 1), "dilation": (2, 1)},
    ),
    "planes without taps": lambda n: (
        "conv_transpose3d", (1, 6, 5, 9, n + 3), (6, 10, 2, 3, 2),
        {"stride": (3, 1, 2), "padding": (0, 1, 0)},
    ),
    "one axis": lambda n: ("conv1d", (3, 10, 2 * n - 7), (22, 5, 7), {"padding": 3}),
}  # fmt: skip


@pytest.fixture
def several_tiles(instance: Instance, steer: Steering) -> None:
    """Of the layouts, plans choose among those of the instance that divide x and another axis.

    Where lines are many, tiles have several passes, and blocks have several tiles.
    """
    dtype = DTYPE_NAMES[dict(instance.defines)["ELEMENT"]]

    def suitable(problem: Any, layout: plain_tiles.Layout) -> bool:
        *outer, x = layout.tiles
        several = x > 1 and (math.prod(outer) > 1 < layout.passes or problem.geometry.rank == 1)
        return several and instance == plain_conv._instances(dtype, layout.shape)[1]

    steer.choose_among(plain_tiles, suitable)
    steer.replace(plain_tiles, BLOCK_START=10**12)


@on_the_emulator("instance", cases=PLAIN)
@pytest.mark.usefixtures("several_tiles")
@pytest.mark.parametrize("kind", PLAIN_KINDS)
def test_plain_instance(instance: Instance, kind: str) -> None:
    macros = dict(instance.defines)
    call = PLAIN_KINDS[kind](int(macros["POSITIONS"]) * int(macros["COLUMNS"]))
    groups = 1 if kind in ("three axes", "planes without taps") else 2
    launch = run_once("plain", call_for(instance, call, groups), instance).launch
    assert launch.grid == launch.unit, "a block has some of the tiles of a unit"
