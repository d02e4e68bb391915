"""The direct kernel: its plans, and each of its instances on the emulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bounds import assert_convolution, assert_same_bits
from cupyconv import _geometry
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import direct_conv
from cupyconv._kernels.direct_conv import DirectPlan, Layout
from cupyconv._kernels.launches import TARGETS, Instance
from cupyconv._kernels.question import Question
from planning import (
    ALL,
    GROWING,
    HOPPER,
    MOST,
    Steering,
    checked_plan_of,
    constant,
    conv,
    conv_geometries,
    conv_transpose,
    is_small,
    plan_of,
)
from reference import Array
from running import (
    Recorder,
    dtype_of,
    instances_of,
    on_the_emulator,
    run_once,
)
from strategies import DTYPES, Convolution, convolution, values
from subjects import ConvolutionSubject, Example

CONVOLUTIONS = instances_of("direct_conv.cu")
CANDIDATES = direct_conv.candidates  # as for a GPU
CHOSEN = [
    conv((8, 1, 9000), (1, 1, 2000), dilation=2),
    conv_transpose((8, 64, 9, 9), (64, 1, 9, 9), stride=9, groups=64),
    conv((8, 0, 9, 9), (64, 0, 3, 3)),
    conv((1, 16, 9, 9, 9, 9), (32, 16, 3, 3, 3, 3)),
]


LINES = [convolution("conv2d", (2, 3, 5, 77), (5, 3, 3, 3), padding=1)]


def threads(_: Instance) -> int:
    return constant("direct_conv.cu", "THREADS")


def order(plan: Any) -> tuple[Any, ...]:
    """The element and the segments; the tile, the number of axes and ranges of segments change
    nothing.
    """
    instance = plan.launch.instance
    return instance.function, instance.defines[0], plan.layout.phases, plan.segment


SUBJECTS = (
    ConvolutionSubject(
        direct_conv,
        threads=threads,
        tested=CONVOLUTIONS,
        chosen=CHOSEN,
        able=lambda dtype, target: True,
        order=order,
        limits={"MAX_RANK": _geometry.MAX_RANK},
        examples={"direct": Example(lines=LINES)},
    ),
)


def rank_of(geometry: ConvGeometry, dtype: Any = np.float32) -> int:
    """The RANK of direct_conv.cu: 0 is for any number of axes and for 64-bit coordinates.

    Wide tiles have a 3, all others a 2 for one axis or two.
    """
    plan = plan_of(geometry, dtype, kernel="direct")
    assert isinstance(plan, DirectPlan)
    rank, tile = int(dict(plan.launch.instance.defines)["RANK"]), tile_of(plan.launch.instance)
    wide = tile == direct_conv._TILES[4][0]
    assert rank in (0, 3 if wide else max(2, geometry.rank))
    return rank


def needed(geometry: ConvGeometry) -> int:
    """The largest number that a kernel keeps in a coordinate: where the taps of all outputs lie,
    how far apart they are, and how many products a sum has, in chunks of 8 channels."""
    numbers = [geometry.channels, 8]
    for axis, stride, dilation in zip(
        geometry.axes, geometry.stride, geometry.dilation, strict=True
    ):
        reach = dilation * (axis.kernel - 1)
        if geometry.transposed:
            low, high = (axis.origin - reach) // stride, (axis.size_out - 1 + axis.origin) // stride
        else:
            low, high = axis.origin, (axis.size_out - 1) * stride + axis.origin + reach
        numbers += [
            axis.size_in,
            axis.kernel,
            -low,
            high,
            reach // (stride if axis.phases > 1 else 1),
        ]
    taps = math.prod(-(-axis.kernel // axis.tap_step) for axis in geometry.axes)
    return max(*numbers, taps * max(geometry.channels, 8))


def spare(geometry: ConvGeometry) -> int:
    """A number as large as `needed`, and not much larger."""
    numbers = [
        (axis.size_out + 1) * axis.step + axis.size_in + abs(axis.origin) + dilation * axis.kernel
        for axis, dilation in zip(geometry.axes, geometry.dilation, strict=True)
    ]
    taps = math.prod(axis.kernel for axis in geometry.axes)
    return max(*numbers, taps * (geometry.channels + 8))


@given(geometry=conv_geometries())
def test_32_bit_coordinates(geometry: ConvGeometry) -> None:
    rank = rank_of(geometry)
    if rank:
        assert geometry.rank <= 3
        assert needed(geometry) <= MOST
    elif geometry.rank <= 3:
        assert spare(geometry) > MOST


@pytest.mark.parametrize("respect", GROWING)
def test_where_32_bits_end(respect: str) -> None:
    make = GROWING[respect]
    assert rank_of(make(2**31 - 1000)) > 0
    assert rank_of(make(2**31 + 200)) == 0
    assert rank_of(make(2**32 - 8)) == 0


@pytest.mark.parametrize("rank", range(1, 8))
def test_rank(rank: int) -> None:
    small = conv((1, 1, *(5,) * rank), (1, 1, *(2,) * rank))
    assert (rank_of(small) > 0) == (rank <= 3)
    small = conv_transpose((1, 1, *(5,) * rank), (1, 1, *(2,) * rank), stride=2)
    assert (rank_of(small) > 0) == (rank <= 3)


@given(geometry=conv_geometries(), dtype=st.sampled_from(DTYPES))
@example(geometry=conv((2**40, 1, 9), (1, 1, 9)), dtype=np.dtype(np.float32))
@example(geometry=conv((1, 2**34, 9), (2**34, 1, 9), groups=2**34), dtype=np.dtype(np.float64))
def test_direct_plans(geometry: ConvGeometry, dtype: np.dtype[Any]) -> None:
    plan = checked_plan_of(geometry, dtype, kernel="direct")
    assert isinstance(plan, DirectPlan)
    assert all(plan.launch.instance in ALL[target] for target in TARGETS)
    assert plan.launch.block == constant("direct_conv.cu", "THREADS")
    # The tiles cover all rows of a group and all positions of the largest phase.
    defines = dict(plan.launch.instance.defines)
    row_threads = int(defines["ROW_THREADS"])
    rows = row_threads * int(defines["THREAD_ROWS"])
    positions = plan.launch.block // row_threads * int(defines["THREAD_POSITIONS"])
    largest = geometry.batch * math.prod(-(-axis.size_out // axis.phases) for axis in geometry.axes)
    layout = plan.layout
    assert (layout.row_tiles - 1) * rows < geometry.rows <= layout.row_tiles * rows
    assert (layout.position_tiles - 1) * positions < largest <= layout.position_tiles * positions
    phases = [min(axis.phases, axis.size_out) for axis in geometry.axes]
    assert layout.phases == math.prod(phases), "one for each residue that has outputs"
    tiles = layout.phases * layout.row_tiles * layout.position_tiles * geometry.groups
    assert layout.blocks == tiles * layout.splits
    assert plan.launch.grid == min(layout.blocks, MOST)
    assert (plan.add is None) == (layout.splits == 1)
    assert plan.workspace <= 2**25
    if layout.splits > 1:  # a range is a segment, and none is empty in the phase of the most taps
        steps = direct_conv._most_steps(geometry)
        assert layout.split_steps == plan.segment
        assert (layout.splits - 1) * plan.segment < steps <= layout.splits * plan.segment


def tile_of(instance: Instance) -> direct_conv.Tile:
    macros = {name: value for name, value in instance.defines if name not in ("ELEMENT", "RANK")}
    return direct_conv.Tile(*map(int, macros.values()))


def convolution_for(instance: Instance, transposed: bool) -> Convolution:
    """A call that the instance runs: two groups, one and a half tiles of rows and positions."""
    macros = dict(instance.defines)
    tile, rank = tile_of(instance), int(macros["RANK"]) or 4
    rows = tile.rows + tile.rows // 2 + 1
    channels = max(11, 3 * tile.depth // 5 + 2)  # more than a chunk of them, and not a multiple
    lengths = (1,) * (rank - 1) + (tile.positions // 2 + tile.positions // 4 + 1 | 1,)
    kernel = (1,) * (rank - 1) + (5,)
    rng = np.random.default_rng(0)
    dtype = dtype_of(macros["ELEMENT"])
    weight = (2 * channels, rows, *kernel) if transposed else (2 * rows, channels, *kernel)
    arrays = {
        "input": values(rng, (2, 2 * channels, *lengths), dtype),
        "weight": values(rng, weight, dtype),
        "bias": values(rng, (2 * rows,), dtype),
    }
    padding = (0,) * (rank - 1) + (2,)
    function = "conv_transpose" if transposed else "conv"
    return Convolution(function, arrays, {"padding": padding, "groups": 2})


def has_tile(tile: direct_conv.Tile) -> Callable[[Layout], bool]:
    return lambda layout: layout.tile == tile


def preferring(suitable: Callable[[Layout], bool]) -> Callable[..., list[Layout]]:
    """The suitable candidates where there are any; the real plan of a complex call has none."""

    def candidates(*arguments: Any) -> list[Layout]:
        layouts = list(CANDIDATES(*arguments))
        return [layout for layout in layouts if suitable(layout)] or layouts

    return candidates


@on_the_emulator("instance", cases=CONVOLUTIONS)
def test_convolution_instance(instance: Instance, steer: Steering) -> None:
    transposed = sum(map(ord, str(instance))) % 2 == 0
    case, tile = convolution_for(instance, transposed), tile_of(instance)
    steer.replace(direct_conv, candidates=preferring(has_tile(tile)), FEWEST_STEPS=512)
    launch = run_once("direct", case, instance).launch
    positions, rows = 2 * case["input"].shape[-1], case["bias"].size // 2
    row_tiles, position_tiles = -(-rows // tile.rows), -(-positions // tile.positions)
    assert launch.grid == 2 * row_tiles * position_tiles
    assert row_tiles > 1
    assert rows % tile.rows
    assert position_tiles > 1
    assert positions % tile.positions
    assert case["weight"].shape[1 - transposed] * 5 > 3 * tile.depth


def computed(
    case: Convolution, steer: Steering, suitable: Callable[[Layout], bool]
) -> tuple[Array, DirectPlan]:
    """The result by one of the suitable layouts, and its plan."""
    steer.replace(direct_conv, candidates=preferring(suitable))
    backend = Recorder("direct")
    result = backend.compute(case)
    (plan,) = backend.plans
    assert suitable(plan.layout)
    assert tuple(backend.launches) == plan.launches
    return result, plan


@on_the_emulator("dtype", cases=["float32", "bfloat16", "complex128"])
@pytest.mark.parametrize("channels", [21, 24])
def test_tiles_have_the_same_bits(dtype: str, channels: int, steer: Steering) -> None:
    """Which tile a call has depends on its batch as well."""
    shapes = (3, channels, 7, 9), (13, channels, 3, 3)
    case = convolution("conv2d", *shapes, dtype, bias=True, padding=1)
    case["weight"][6, 5, 1, 1] = np.inf
    results = [computed(case, steer, has_tile(tile))[0] for tile in direct_conv._tiles(dtype)]
    for result in results[1:]:
        assert_same_bits(results[0], result)


SPLIT = {
    "padded": ("conv2d", (3, 40, 4, 3), (9, 40, 5, 3), {"padding": (2, 1)}),
    "one output": ("conv3d", (3, 3, 7, 6, 5), (5, 3, 7, 6, 5), {}),
    "groups": ("conv1d", (2, 202, 5), (6, 101, 7), {"padding": 3, "groups": 2}),
    # The last phases have fewer taps, and so fewer ranges.
    "phases": ("conv_transpose1d", (2, 170, 3), (170, 3, 7), {"stride": 3}),
}


@on_the_emulator("kind", cases=SPLIT)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "complex128"])
@pytest.mark.parametrize("segment", [128, 256])
def test_split_sums(kind: str, dtype: str, segment: int, steer: Steering) -> None:
    """One block for all ranges gives the same bits as a block for each, and so does any batch."""
    function, input_shape, weight_shape, options = SPLIT[kind]
    case = convolution(function, input_shape, weight_shape, dtype, bias=True, **options)
    steer.replace(direct_conv, FEWEST_STEPS=128, _MOST_SEGMENT=segment)
    steer.replace(direct_conv, _ENOUGH_WAVES=0)
    split, plan = computed(case, steer, lambda layout: layout.splits > 1)
    assert plan.segment == segment and plan.layout.splits > 1 and len(plan.launches) == 2
    assert_convolution(split, case.defined, case.dtype)
    for suitable in (
        lambda layout: layout.splits == 1 and not is_small(layout.tile),
        lambda layout: layout.splits == 1 and is_small(layout.tile),
    ):
        whole, plan = computed(case, steer, suitable)
        assert plan.segment == segment and len(plan.launches) == 1
        assert_same_bits(split, whole)
    one = case.with_arrays(input=case["input"][1:2])
    alone, plan = computed(one, steer, lambda layout: layout.splits > 1)
    assert plan.layout.splits > 1
    assert_same_bits(split[1:2], alone)


@pytest.mark.parametrize(
    ("geometry", "splits"),
    [
        (conv((1, 512, 7, 7), (4096, 512, 7, 7)), True),
        (conv((1, 1, 32, 32, 32), (1, 1, 31, 31, 31)), True),
        (conv((1, 512, 14, 14), (512, 512, 3, 3), padding=1), False),
        (conv((1, 64, 14, 14), (64, 64, 3, 3), padding=1), False),
    ],
)
def test_few_outputs_are_split(geometry: ConvGeometry, splits: bool) -> None:
    """Where a sample does not fill the GPU and has long sums; the batch changes no segment."""
    plans = [
        plan_of(replace(geometry, batch=n), np.float32, processor=HOPPER, kernel="direct")
        for n in (1, 3, 64, 10**6)
    ]
    assert all(isinstance(plan, DirectPlan) for plan in plans)
    assert len({plan.segment for plan in plans}) == 1
    assert (plans[0].layout.splits > 1) == splits
    assert (plans[0].segment > direct_conv.SEGMENT) == splits
    assert plans[-1].layout.splits == 1, "its partial sums would exceed 32 MB"


def test_few_rows_have_few_rows_in_a_tile() -> None:
    for rows, most in ((1, 4), (3, 4), (4, 4), (5, 8), (16, 8), (64, 64)):
        geometry = conv_transpose((8, 64, 512, 512), (64, rows, 5, 5), padding=2)
        plan = plan_of(geometry, np.float32, processor=HOPPER, kernel="direct")
        assert plan.layout.tile.rows == most


def test_cycles_count_padded_work() -> None:
    """A row more than a tile has costs a tile more, and a 133rd block a further block."""

    def cycles(rows: int, positions: int) -> float:
        geometry = conv((1, 64, positions), (rows, 64, 1))
        question = Question(geometry, np.dtype(np.float32), "float32", HOPPER)
        tile = direct_conv._TILES[4][0]
        return direct_conv._layout(question, tile).issue

    positions = 132 * 128
    assert cycles(64, positions) == cycles(1, positions)
    assert cycles(65, positions) == cycles(64, positions + 1) == 2 * cycles(64, positions)
