"""The direct kernel: its plans, and each of its instances on the emulator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bounds import assert_same_bits
from cupyconv import _geometry
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import direct_conv
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import TARGETS, Instance
from planning import (
    ALL,
    GROWING,
    MOST,
    Steering,
    checked_plan_of,
    constant,
    conv,
    conv_geometries,
    conv_transpose,
    plan_of,
)
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
CHOSEN = [
    conv((8, 3, 8, 8), (5, 3, 3, 3)),
    conv((8, 1, 9000), (1, 1, 2000), dilation=2),
    conv_transpose((8, 64, 9, 9), (64, 1, 9, 9), stride=9, groups=64),
    conv((8, 0, 9, 9), (64, 0, 3, 3)),
    conv((1, 16, 9, 9, 9, 9), (32, 16, 3, 3, 3, 3)),
]


LINES = [convolution("conv2d", (2, 3, 5, 77), (5, 3, 3, 3), padding=1)]


def threads(_: Instance) -> int:
    return constant("direct_conv.cu", "THREADS")


def order(plan: Any) -> tuple[Any, ...]:
    """The element; it adds up step by step in any tile, for any number of axes."""
    instance = plan.launch.instance
    return instance.function, instance.defines[0], plan.layout.phases


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
    wide = tile == direct_conv._WIDE[4]
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
    assert plan.launch.grid == min(tiles, MOST)


def tile_of(instance: Instance) -> direct_conv.Tile:
    macros = {name: value for name, value in instance.defines if name not in ("ELEMENT", "RANK")}
    return direct_conv.Tile(*map(int, macros.values()))


def convolution_for(instance: Instance, transposed: bool) -> Convolution:
    """A call that the instance runs: two groups, one and a half tiles of rows and positions."""
    macros = dict(instance.defines)
    tile, rank = tile_of(instance), int(macros["RANK"]) or 4
    rows = tile.rows + tile.rows // 2 + 1
    if tile.row_threads == 1:
        rows = min(rows, direct_conv.NARROW_ROWS - 1)
    channels = max(11, 3 * tile.depth // 5 + 2)  # more than a chunk of them, and not a multiple
    lengths = (1,) * (rank - 1) + (tile.positions // 2 + tile.positions // 4 + 1,)
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


@on_the_emulator("instance", cases=CONVOLUTIONS)
def test_convolution_instance(instance: Instance, steer: Steering) -> None:
    transposed = sum(map(ord, str(instance))) % 2 == 0
    case, tile = convolution_for(instance, transposed), tile_of(instance)
    steer.replace(direct_conv, SMALL_TILES=16 if tile == direct_conv.SMALL else 0)
    launch = run_once("direct", case, instance).launch
    positions, rows = 2 * case["input"].shape[-1], case["bias"].size // 2
    row_tiles, position_tiles = -(-rows // tile.rows), -(-positions // tile.positions)
    assert launch.grid == 2 * row_tiles * position_tiles
    assert row_tiles > 1
    assert rows % tile.rows
    assert position_tiles > 1
    assert positions % tile.positions
    assert case["weight"].shape[1 - transposed] * 5 > 3 * tile.depth


@on_the_emulator("dtype", cases=["float32", "bfloat16", "complex128"])
@pytest.mark.parametrize("rows", [13, 21])
def test_small_tiles_have_the_same_bits(dtype: str, rows: int, steer: Steering) -> None:
    """Which tile a call has depends on its batch as well."""
    case = convolution("conv2d", (3, 21, 7, 9), (rows, 21, 3, 3), dtype, bias=True, padding=1)
    case["weight"][rows // 2, 5, 1, 1] = np.inf
    results, tiles = [], []
    for most in (0, 99):
        steer.replace(direct_conv, SMALL_TILES=most)
        backend = Recorder("direct")
        results.append(backend.compute(case))
        (launch,) = backend.launches
        tiles.append(tile_of(launch.instance))
    assert tiles[0] != tiles[1] == direct_conv.SMALL
    assert_same_bits(*results)
