"""The dense kernel: its plans."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import test_matrix_instances
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cupyconv import _compile, _taps
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import (
    choice,
    matrix_conv,
    matrix_shapes,
    matrix_tiles,
    modes,
    packed_weights,
    sums,
)
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import TARGETS, Instance, Processor
from cupyconv._kernels.matrix_conv import MatrixPlan
from cupyconv._kernels.modes import SLAB_ROWS
from cupyconv._kernels.question import Question
from cupyconv._kernels.row_blocks import RowBlocksPlan
from planning import (
    HOPPER,
    MOST,
    Steering,
    any_mode,
    assert_shared_memory,
    checked_plan_of,
    constant,
    conv,
    conv_transpose,
    dense_geometries,
    forget,
    plan_of,
)
from reference import Shape
from running import instances_of
from strategies import MODES
from subjects import ConvolutionSubject, Example

CHOSEN = [
    conv((1, 64, 224, 224), (64, 64, 3, 3), padding=1),
    conv((1, 128, 300, 300), (128, 128, 1, 1), padding=1),
    conv_transpose((1, 64, 128, 128), (64, 32, 4, 4), stride=2, padding=1),
    conv((1, 512, 1000), (512, 512, 9), dilation=4),
    conv((1, 32, 64, 64, 64), (64, 32, 3, 3, 3)),
    conv((1, 128, 128, 128), (128, 64, 3, 3), groups=2),
    conv((8, 24, 512, 512), (64, 24, 5, 5)),
]
# The kernel's names, each with the targets that it runs on.
CAPABLE: dict[str, tuple[str, ...]] = {
    "portable": tuple(target for target in TARGETS if target != "sm_75"),
    "hopper": ("sm_90a",),
}
matrix_kernels = st.sampled_from(["portable", "hopper"])


def packing(instance: Instance, name: str) -> int:
    """The same of the kernel that packs weights, where scaled ones have another."""
    pattern = rf"^constexpr int {name} = SCALED \? (\d+) : (\d+);$"
    found = re.search(pattern, _compile.source("pack_weights.cu"), re.MULTILINE)
    assert found, name
    return int(found[1 if "OPERAND" in dict(instance.defines) else 2])


def portable_staging() -> tuple[int, int]:
    """Sums of a thread up to which the portable kernel has two producer warpgroups; its loads."""
    found = re.search(
        r"PRODUCER_WARPGROUPS = ROWS \* COLUMNS \* 4 \* PARTS <= (\d+) && !POOLS \? 2 : 1, "
        r"LOADS = (\d+);",
        _compile.source("matrix_conv.cu"),
    )
    assert found
    return int(found[1]), int(found[2])


def threads(instance: Instance) -> int:
    """How many threads the kernel, or the one that packs its weights, is made for."""
    if instance.source == "pack_weights.cu":
        return packing(instance, "THREADS")
    defines = dict(instance.defines)
    multiplying, text = int(defines["TEAMS"]), _compile.source(instance.source)
    if defines["ENGINE"] == "WgmmaEngine":
        assert "PRODUCER_WARPGROUPS = 4 - TEAMS;" in text
        staging = 4 - multiplying
    else:
        # A multiplying thread has a 128th of a row tile of each column tile: SEGMENT / 2 columns.
        pieces = max(1, int(defines["SLABS"]) // multiplying) * int(defines["SEGMENTS"])
        partial = pieces * int(defines["SEGMENT"]) // 2 * int(defines["PARTS"])
        staging = 2 if partial <= portable_staging()[0] and "POOLS" not in defines else 1
    return (multiplying + staging) * constant(instance.source, "WARPGROUP")


def order(plan: Any) -> tuple[Any, ...]:
    return plan.summation, dict(plan.launch.instance.defines)["ENGINE"]


def order_of_joined(plan: Any) -> tuple[Any, ...]:
    return tuple(getattr(plan.summation, n) for n in ("mode", "blocks", "depth", "halves"))


SUBJECTS = (
    ConvolutionSubject(
        matrix_conv,
        threads=threads,
        everywhere=False,
        tested=[i for i in instances_of("matrix_conv.cu") if ("POOLS", "1") not in i.defines],
        elsewhere=("pack_weights",),
        chosen=CHOSEN,
        able=lambda dtype, target: dtype in dict(MODES) and target != "sm_75",
        order=order,
        order_of_joined=order_of_joined,
        limits={
            "SLAB_ROWS": modes.SLAB_ROWS,
            "WARPGROUP": modes.TEAM,
            **{name: getattr(sums, name) for name in ("MOST_FOLDS", "MOST_ORDERED")},
            "MAX_STAGES": matrix_tiles.MAX_STAGES,
            "SLOT_BYTES": modes.SLOT,
        },
        examples={
            name: Example(CAPABLE[name], lines=test_matrix_instances.LINES)
            for name in ("portable", "hopper")
        },
    ),
)


@pytest.mark.parametrize("engine", ["portable", "hopper"])
def test_loads_are_those_of_the_kernel(engine: str) -> None:
    """A kernel that has fewer of them under way than its plan says would stage nothing."""
    text = _compile.source("matrix_conv.cu")
    hopper = re.search(r"LOADS = PARTS \* PIECES \* SEGMENT / 2 <= (\d+) \? (\d+) : (\d+);", text)
    assert hopper
    least, small, large = map(int, hopper.groups())
    few, loads_of_all = portable_staging()
    for mode in modes.modes(engine):
        shapes = (*matrix_shapes.shapes(mode, engine), *matrix_shapes.pool_shapes(mode, engine))
        for shape in shapes:
            pieces = max(1, shape.slabs // shape.teams) * shape.segments
            sums = mode.parts * pieces * shape.segment // 2
            loads = small if sums <= least else large
            expected = loads_of_all if engine == "portable" else loads
            assert shape.loads(mode, engine) == expected, shape
            if engine == "portable":
                assert shape.staging_teams(mode, engine, 1) == (2 if sums <= few else 1), shape
                assert shape.staging_teams(mode, engine, 2) == 1


def furthest(axis: sums.Axis) -> int:
    """How far, in 16-byte chunks, any tap is from the first input that is staged."""
    shifts = (tap * abs(axis.taps.offset_step) + axis.skew for tap in range(axis.read_taps))
    return max((shift // axis.taps.step for shift in shifts), default=0)


@given(geometry=dense_geometries(), mode=any_mode, kernel=matrix_kernels, data=st.data())
def test_matrix_plans(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], kernel: str, data: st.DataObject
) -> None:
    target = data.draw(st.sampled_from(CAPABLE[kernel]))
    processor = Processor(target, data.draw(st.sampled_from([1, 2, 30, 132])))
    plan = checked_plan_of(geometry, *mode, processor, kernel)
    if isinstance(plan, DirectPlan):
        return  # its inputs do not fit shared memory
    if isinstance(plan, RowBlocksPlan):
        geometry, plan = replace(geometry, rows=len(plan.rows[0])), plan.plans[0]
    sum, tiling = plan.summation, plan.layout
    shape = tiling.shape
    # The tiles cover all rows of a group and all outputs of the largest phase.
    assert (tiling.row_tiles - 1) * shape.rows < sum.matrix_rows <= tiling.row_tiles * shape.rows
    assert sum.matrix_rows >= geometry.rows * sum.folds
    sizes = (geometry.batch, *(axis.taps.positions(0) for axis in sum.axes))
    for size, tile, tiles in zip(sizes, tiling.tile, tiling.tiles, strict=True):
        assert (tiles - 1) * tile < size <= tiles * tile
    for size, fold, axis in zip(sizes[1:], sum.fold, sum.taps, strict=True):
        assert size * fold.count >= axis.positions(0)
    # Phases have the taps of the tap table, and an order in which none comes before one of more.
    tables = ([len(a.taps.table(phase)) for phase in a.taps.used_phases] for a in sum.axes)
    assert sum.phase_taps == [math.prod(taps) for taps in itertools.product(*tables)]
    assert not plan.by_phase or sum.phases <= sums.MOST_ORDERED
    if sum.phases <= sums.MOST_ORDERED:
        assert sorted(sum.phase_order) == list(range(sum.phases))
        ranked = [sum.phase_taps[phase] for phase in sum.phase_order]
        assert ranked == sorted(ranked, reverse=True)
    # Each block stays in its phase, and has a tile to begin with.
    assert plan.launch.unit == sum.phases
    tiles = sum.phases * tiling.count * geometry.groups
    assert plan.launch.grid <= tiles <= MOST
    # Each output of a tile has a column.
    samples, depth, height, width = tiling.tile
    for plane in range(samples * depth):
        for y in range(height):
            first = plane * tiling.plane_pitch + y * tiling.row_pitch
            for slot in (first, first + width - 1):
                segment, column = divmod(slot, tiling.segment_pitch)
                assert column < shape.segment or tiling.segment_pitch == shape.segment
                assert segment * shape.segment + column < shape.columns
    # Outputs of a tile read within a polyphase component, and any column reads within the stage.
    _, along_y, along_x = sum.axes
    last = (samples * depth - 1) * tiling.plane_pitch
    last += (height - 1 + furthest(along_y)) * tiling.row_pitch + width - 1 + furthest(along_x)
    lattices = along_y.lattices * along_x.lattices
    assert lattices == 1 or last < tiling.lattice_slots
    columns = (shape.columns // shape.segment - 1) * tiling.segment_pitch + shape.segment
    distance = furthest(along_y) * tiling.row_pitch + furthest(along_x)
    assert (lattices - 1) * tiling.lattice_slots + columns + distance <= tiling.slots
    # Outputs that are stored together lie in one row of one tile.
    if sum.unit == 4:
        pitches = (tiling.row_pitch, tiling.plane_pitch, tiling.segment_pitch)
        assert not any(columns % 4 for columns in (width, *pitches))
    # Stages of a chunk are whole ones.
    assert tiling.chunk % sum.depth == 0
    # All phases, rows and steps have packed weights; as float16 numbers they lie in two windows.
    # Each row has two shifts and each sample one.
    assert sum.blocks == -(-geometry.channels // sum.mode.block)
    slabs = geometry.groups * sum.phases * tiling.row_tiles * shape.slabs
    weights = slabs * sum.steps * sum.mode.slab_bytes
    shifts = 8 * slabs * SLAB_ROWS + 4 * geometry.batch
    assert plan.packed == (2 * weights + shifts if sum.mode.scaled else weights)
    # Steps are as many as small_quotient in division.cuh divides. Blocks that share rows have some
    # each, which are found by a product in 32 bits, as are numbers of blocks.
    assert sum.steps < 2**21 and plan.splits * sum.steps <= MOST
    assert slabs * SLAB_ROWS * 2 * sum.steps <= MOST
    turns = sum.steps // sum.blocks * -(-sum.blocks // packed_weights._PACK_DEEP)
    assert plan.splits == 1 or turns // plan.splits >= 16
    assert packing(plan.pack.instance, "SIDE") == sum.mode.pack_rows
    assert packed_weights._PACK_DEEP == constant("pack_weights.cu", "DEEP")
    assert plan.pack.block == threads(plan.pack.instance)


@pytest.mark.parametrize(
    ("batch", "sizes", "kernel", "dilation", "turns"),
    [
        (16, (16, 32, 32), 2, 1, 1),
        *((batch, (16, 32, 32), 3, 2, turns) for batch, turns in ((16, 16), (4, 8), (1, 4))),
        (16, (128, 128), 3, 2, 16),
    ],
)
def test_blocks_of_phases(
    batch: int, sizes: tuple[int, ...], kernel: int, dilation: int, turns: int
) -> None:
    """More of them where one phase has most taps, as long as there are many outputs."""
    shapes = (batch, 32, *sizes), (32, 64, *[kernel] * len(sizes))
    plan = plan_of(conv_transpose(*shapes, stride=2, dilation=dilation), processor=HOPPER)
    assert isinstance(plan, MatrixPlan)
    assert plan.launch.grid == HOPPER.multiprocessors * turns


@pytest.mark.parametrize(
    ("input", "weight", "options", "dtype", "by_phase"),
    [
        # Planes with a tap and with two, or lines where what is multiplied counts.
        ((8, 64, 32, 32, 32), (64, 64, 3, 3, 3), {"padding": 1}, "float16", True),
        ((2, 128, 16, 16, 16), (128, 64, 3, 3, 3), {"padding": 1}, "float16", True),
        ((16, 128, 128, 128), (128, 64, 3, 3), {"padding": 1}, "float32", True),
        ((16, 128, 128, 128), (128, 64, 3, 3), {"padding": 1}, "float16", False),
        # The same taps everywhere, and no more tiles than multiprocessors.
        ((8, 64, 32, 32, 32), (64, 64, 2, 2, 2), {}, "float16", False),
        ((1, 256, 8, 8, 8), (256, 128, 3, 3, 3), {"padding": 1}, "float16", False),
        # Phases without taps, in small outputs and in large ones.
        ((1, 512, 6040), (512, 512, 7), {"padding": 3, "dilation": 2}, "float16", True),
        ((16, 32, 16, 32, 32), (32, 64, 3, 3, 3), {"dilation": 2}, "float16", False),
    ],
)
def test_phases_beside_each_other(
    input: Shape, weight: Shape, options: dict[str, int], dtype: str, by_phase: bool
) -> None:
    """Blocks begin with the phases of most taps, where others would wait for them."""
    geometry = conv_transpose(input, weight, stride=2, **options)
    plan = plan_of(geometry, np.dtype(dtype), processor=HOPPER, kernel="hopper")
    assert isinstance(plan, MatrixPlan)
    assert plan.by_phase == by_phase
    if by_phase:
        tiles = plan.layout.count * geometry.groups
        assert plan.launch.grid == plan.summation.phases * min(tiles, HOPPER.multiprocessors)


@given(geometry=dense_geometries(), mode=any_mode, kernel=matrix_kernels)
def test_tiles_that_are_not_looked_at_take_longer(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], kernel: str
) -> None:
    processor = Processor(CAPABLE[kernel][-1], 132)
    plan = plan_of(geometry, *mode, processor, kernel)
    assume(isinstance(plan, MatrixPlan))
    with pytest.MonkeyPatch.context() as patch:
        Steering(patch).replace(matrix_tiles, least_cycles=lambda *_: 0)
        assert plan == plan_of(geometry, *mode, processor, kernel)
    forget()


@given(
    transposed=st.booleans(),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 4),
    kernel=st.integers(1, 5),
    pad=st.integers(0, 4),
    size=st.integers(1, 6),
    places=st.integers(1, 4),
)
def test_folds_have_the_taps_of_their_outputs(
    transposed: bool, stride: int, dilation: int, kernel: int, pad: int, size: int, places: int
) -> None:
    """A convolution without strides, or a transposed one whose phases are packed into rows."""
    if not transposed:
        stride = 1
    if places > 1 or not transposed:
        dilation = 1
    count = stride * places
    reach = dilation * (kernel - 1)
    if transposed:
        size_out, taps_of = (size - 1) * stride + reach + 1 - 2 * pad, _taps.conv_transpose_taps
    else:
        size_out, taps_of = (size + 2 * pad - reach - 1) // stride + 1, _taps.conv_taps
    assume(size_out > 0)
    taps = taps_of(size, size_out, kernel, stride, dilation, pad)
    found = sums._packed_taps(taps, transposed, stride, dilation, count)
    assert found
    packed, fold = found
    for output in range(size_out):
        phase, place = output % taps.phases, output // taps.phases
        own = {(tap, place * taps.step + offset) for tap, offset in taps.table(phase)}
        column, row = divmod(output, count)
        numerators = (
            (fold.start + j * fold.step + row * fold.apart, column * packed.step + offset)
            for j, offset in packed.table(0)
        )
        assert own == {
            (tap // fold.divisor, input)
            for tap, input in numerators
            if tap >= 0 and tap % fold.divisor == 0 and tap // fold.divisor < fold.kernel
        }


def test_phases_of_all_axes_are_folds_where_a_block_has_their_rows() -> None:
    options: dict[str, Any] = {"stride": 2, "padding": (1, 2, 3), "output_padding": 1, "groups": 4}
    geometry = conv_transpose((8, 32, 12, 24, 48), (32, 8, 3, 5, 7), **options)
    for precision in ("float32", "tf32"):
        plan = choice.plan_conv(geometry, np.dtype(np.float32), precision, HOPPER)
        assert isinstance(plan, MatrixPlan)
        assert [fold.count for fold in plan.summation.fold] == [
            2,
            2,
            2,
        ] and plan.summation.phases == 1
    rows = conv_transpose((8, 32, 24, 48), (32, 40, 3, 3), stride=2)
    for counts in sums.packings_of(rows, modes._TF32["tf32"]):
        assert counts[:2] == (1, 1), "a block has no room for them"


def test_pairs_of_inputs_with_an_odd_stride() -> None:
    """They are staged together unless their places take the room of a better tile."""
    near = plan_of(conv((64, 64, 524280), (128, 64, 3), stride=3, dilation=4), processor=HOPPER)
    geometry = conv((16, 64, 448, 1, 448), (128, 64, 7, 1, 7), stride=(3, 1, 3))
    far = plan_of(geometry, processor=Processor("sm_80", 108))
    for plan, pairs in ((near, True), (far, False)):
        assert isinstance(plan, MatrixPlan)
        assert (plan.summation.axes[2].lattices % 2, plan.summation.axes[2].pairs) == (1, pairs)


def test_room_behind_the_distances_of_a_stage() -> None:
    ahead = re.search(r"AHEAD = TEAMS == 1 \? (\d+) : ", _compile.source("matrix_conv.cu"))
    assert ahead and 2 * int(ahead[1]) == matrix_tiles._AHEAD


def test_small_tiles_are_not_smaller_than_their_weights_are_worth() -> None:
    """Each brings the weights of its rows: half as many do with lines that fill its columns."""
    geometry = conv((1, 128, 28, 28), (128, 128, 3, 3), padding=1)
    for mode in (np.dtype(np.float32), "tf32"), (np.dtype(np.float16), "float32"):
        plan = plan_of(geometry, *mode, HOPPER, kernel="hopper")
        assert isinstance(plan, MatrixPlan)
        assert (plan.layout.shape.columns, plan.layout.tile) == (32, (1, 1, 1, 28))


@pytest.mark.parametrize(("rows", "share"), [(1, 0.99), (64, 0.66), (200, 0.39)])
def test_as_many_steps_as_are_divided(rows: int, share: float) -> None:
    """Longer sums, of as many channels as memory may hold, are not for Tensor Cores."""

    def plan(channels: int) -> Any:
        geometry = conv((1, channels, 9), (rows, channels, 1))
        return matrix_conv.plan(
            Question(geometry, np.dtype(np.float16), "float32", HOPPER), "hopper"
        )

    numbers = range(1024, 2**26)
    first = bisect.bisect_left(numbers, True, key=lambda n: not isinstance(plan(n), MatrixPlan))
    most = plan(numbers[first] - 1)
    assert isinstance(most, MatrixPlan) and share < most.summation.steps / 2**21 < 1


@pytest.mark.parametrize(
    ("batch", "rows", "divisors_matter"),
    [
        (16, 128, True),
        (1, 128, False),  # too few tiles for blocks to fall far behind
        (16, 16, False),  # packed outputs: products take longer than stores
    ],
)
def test_the_ends_of_rows_belong_to_all_blocks(
    batch: int, rows: int, divisors_matter: bool
) -> None:
    """Where stores are most of the work, blocks and tiles of a row have no common divisor."""
    plan = plan_of(conv((batch, 16, 1024, 1024), (rows, 16, 3, 3)), np.float16)
    assert isinstance(plan, MatrixPlan)
    blocks, across = plan.launch.grid, plan.layout.tiles[-1]
    assert math.gcd(HOPPER.multiprocessors, across) > 1
    if divisors_matter:
        assert math.gcd(blocks, across) == 1
        assert 128 <= blocks < HOPPER.multiprocessors
    else:
        assert blocks == HOPPER.multiprocessors


def test_plans_of_a_network_print_readably() -> None:
    plan = plan_of(conv((16, 64, 224, 224), (128, 64, 3, 3), padding=1), processor=HOPPER)
    assert re.fullmatch(
        r"pack_weights\.cu:pack_weights \[ELEMENT=float, OPERAND=float16, PARTS=2\], "
        r"\d+ blocks of 512 threads; matrix_conv\.cu:matrix_conv "
        r"\[ELEMENT=float, OPERAND=float16, PARTS=2, ENGINE=WgmmaEngine, TEAMS=\d, "
        r"SLABS=\d, SEGMENT=\d+, SEGMENTS=\d\], \d+ blocks of \d+ threads and \d+ bytes: "
        r"tiles of \d+ rows x \(\d+ x \d+ x \d+ x \d+\) outputs in \d+ columns, .*",
        str(plan),
    )


@pytest.mark.parametrize("engine", ["hopper", "portable"])
@given(
    case=st.tuples(st.integers(1, 12), st.integers(1, 150), st.integers(1, 64)),
    kernel=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    mode=st.sampled_from(MODES),
    multiprocessors=st.sampled_from([1, 2, 132]),
)
@example(case=(2, 48, 16), kernel=[3, 3], mode=MODES[0], multiprocessors=132)
def test_weights_that_stay_fill_their_ring(
    engine: str, case: tuple[int, int, int], kernel: list[int], mode: Any, multiprocessors: int
) -> None:
    """A block that goes through a sum again finds each group of weights where it was."""
    size, channels, rows = case
    geometry = conv((1, channels, *(k + size for k in kernel)), (rows, channels, *kernel))
    plan = plan_of(geometry, *mode, Processor("sm_90a", multiprocessors), engine)
    if not isinstance(plan, MatrixPlan) or not plan.layout.resident:
        return
    sum, tiling = plan.summation, plan.layout
    taps = sum.axes[0].most_taps
    stages = [min(sum.depth, sum.blocks - first) for first in range(0, sum.blocks, sum.depth)]
    groups = [-(-blocks * sum.steps_inside // tiling.group) for blocks in stages]
    assert tiling.weight_stages == taps * math.fsum(groups)


# Which take much of a block's shared memory: long rows, many taps, large steps, many channels.
GREEDY = [
    *CHOSEN,
    conv((16, 512, 512, 512), (512, 512, 3, 3), padding=1),
    conv((16, 64, 224, 224), (64, 64, 7, 7), stride=4, padding=3),
    conv((16, 64, 224, 224), (16, 64, 3, 3), dilation=8),
    conv((16, 256, 100_000), (256, 256, 31), stride=8),
    conv_transpose((16, 64, 64, 64, 64), (64, 64, 4, 4, 4), stride=2, padding=1),
    conv_transpose((16, 64, 224, 224), (64, 12, 9, 9), stride=4),
]


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_of_plans(target: str) -> None:
    """What a kernel declares and what its launch asks for fit."""
    found = 0
    for kernel, geometry, mode in itertools.product(matrix_conv.engines(target), GREEDY, MODES):
        for multiprocessors in (1, 132):
            plan = plan_of(geometry, *mode, Processor(target, multiprocessors), kernel)
            if isinstance(plan, MatrixPlan):
                assert_shared_memory(plan, target, plan.launch)
                found += 1
    assert (found > 0) == (target != "sm_75")
