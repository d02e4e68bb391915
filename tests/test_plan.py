"""Plans: which kernel, how many blocks, and that all of it follows from rules alone."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import cupyconv
from cupyconv import (
    _compile,
    _geometry,
    _matrix,
    _paths,
    _plain,
    _plan,
    _pointwise,
    _pointwise16,
    _streaming,
    _strides,
    _taps,
)
from cupyconv._device import Arguments
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import depthwise_tiles, gather_conv
from cupyconv._launch import KernelPath
from cupyconv._plan import (
    KERNELS,
    SHARED,
    TARGETS,
    ConvPlan,
    DepthwisePlan,
    DirectPlan,
    GatherPlan,
    Instance,
    Launch,
    MatrixPlan,
    PlainPlan,
    Pointwise16Plan,
    PointwisePlan,
    Processor,
    StreamingPlan,
    instances,
)
from reference import Array, Shape
from strategies import (
    DTYPES,
    FLOATS,
    MODES,
    REALS,
    Case,
    batch_norms,
    convolutions,
    fused_operations,
    group_norms,
    max_pools,
)

MOST = 2**31 - 1  # blocks of a grid, and the largest coordinate of 32 bits


processors = st.builds(Processor, st.sampled_from(TARGETS), st.sampled_from([1, 2, 30, 132]))
HOPPER = Processor("sm_90a", 132)


class Recorder:
    """A device that runs nothing and remembers what it was asked for."""

    def __init__(self, processor: Processor) -> None:
        self.launches: list[Launch] = []
        self._processor = processor

    def processor(self) -> Processor:
        return self._processor

    def address(self, array: Array) -> int:
        return array.__array_interface__["data"][0]

    def workspace(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def cast(self, array: Array, dtype: np.dtype[Any]) -> Array:
        return array if array.dtype == dtype else array.astype(dtype, order="C")

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        def run(arguments: Arguments) -> None:
            assert arguments.typecode == "q"
            self.launches.append(launch)

        return run


@contextmanager
def recorded(processor: Processor) -> Iterator[list[Launch]]:
    """The launches of the calls in a block, by NumPy arrays on their way to a GPU."""
    recorder = Recorder(processor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_paths, "numpy_path", KernelPath(recorder))
        yield recorder.launches


def launches_of(case: Case, processor: Processor = HOPPER) -> list[Launch]:
    with recorded(processor) as launches:
        getattr(cupyconv, case.function)(**case.arrays, **case.options)
    return launches


ALL = {target: set(instances(target)) for target in TARGETS}
any_case = st.one_of(
    convolutions(), convolutions(), batch_norms(), group_norms(), max_pools(), fused_operations()
)


def constant(source: str, name: str) -> int:
    """A ``constexpr int`` of a kernel file."""
    pattern = rf"^constexpr int {name} = (\d+);(?: *//.*)?$"
    found = re.search(pattern, _compile.source(source), re.MULTILINE)
    assert found, (source, name)
    return int(found[1])


def packing(instance: Instance, name: str) -> int:
    """The same of the kernel that packs weights, where scaled ones have another."""
    pattern = rf"^constexpr int {name} = SCALED \? (\d+) : (\d+);$"
    found = re.search(pattern, _compile.source("pack_weights.cu"), re.MULTILINE)
    assert found, name
    return int(found[1 if "OPERAND" in dict(instance.defines) else 2])


def takes_any_warps(instance: Instance) -> bool:
    """Whether plans choose how many warps a block has."""
    return instance.function in ("normalize_sets", "gather_conv") or (
        (instance.source, instance.function) == ("pooled_norm.cu", "normalize")
    )


def threads(instance: Instance) -> int:
    """How many threads a kernel is made for."""
    if instance.source == "pack_weights.cu":
        return packing(instance, "THREADS")
    if takes_any_warps(instance):
        return constant(instance.source, "MOST_THREADS")
    if instance.source == "streaming_conv.cu":
        return int(dict(instance.defines)["TEAMS"]) * constant(instance.source, "TEAM")
    if instance.source in ("pointwise_conv.cu", "pointwise16_conv.cu"):
        return (int(dict(instance.defines)["TEAMS"]) + 1) * constant(instance.source, "TEAM")
    if instance.source != "matrix_conv.cu":
        return constant(instance.source, "THREADS")
    defines = dict(instance.defines)
    multiplying, text = int(defines["TEAMS"]), _compile.source(instance.source)
    if defines["ENGINE"] == "WgmmaEngine":
        assert "STAGING_TEAMS = 4 - TEAMS;" in text
        staging = 4 - multiplying
    else:
        # A multiplying thread has a 128th of a slab of each segment: its SEGMENT / 2 columns.
        pieces = max(1, int(defines["SLABS"]) // multiplying) * int(defines["SEGMENTS"])
        sums = pieces * int(defines["SEGMENT"]) // 2 * int(defines["PARTS"])
        staging = 2 if sums <= portable_staging()[0] and "POOLS" not in defines else 1
    return (multiplying + staging) * constant(instance.source, "TEAM")


def portable_staging() -> tuple[int, int]:
    """Sums of a thread beside which the portable kernel has two teams that stage, and its loads."""
    found = re.search(
        r"STAGING_TEAMS = ROWS \* COLUMNS \* 4 \* PARTS <= (\d+) && !POOLS \? 2 : 1, "
        r"LOADS = (\d+);",
        _compile.source("matrix_conv.cu"),
    )
    assert found
    return int(found[1]), int(found[2])


@given(case=any_case, processor=processors, kernel=st.sampled_from([None, *KERNELS]))
def test_every_launch_is_of_a_listed_instance(
    case: Case, processor: Processor, kernel: str | None
) -> None:
    with _plan.forced(kernel):
        launches = launches_of(case, processor)
    assert launches or 0 in getattr(cupyconv, case.function)(**case.arrays, **case.options).shape
    for launch in launches:
        assert 1 <= launch.grid <= MOST
        assert launch.grid % launch.unit == 0
        if takes_any_warps(launch.instance):
            assert launch.block % 32 == 0 and launch.block <= threads(launch.instance)
        else:
            assert launch.block == threads(launch.instance)
        assert launch.instance in ALL[processor.target]
        if launch.instance.source not in (
            *("matrix_conv.cu", "pack_weights.cu", "pooled_norm.cu"),
            *HOPPER_ALONE,
        ):
            assert all(launch.instance in ALL[target] for target in TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_instances(target: str) -> None:
    listed = instances(target)
    assert len(listed) == len(set(listed)), "an instance is listed twice"
    compiled = {(instance.source, instance.defines) for instance in listed}
    assert 1 <= len(compiled) <= 391
    for instance in listed:
        text = _compile.source(instance.source)
        kernel = (
            rf'extern "C" __global__ void (__launch_bounds__\([^)]*\)\s+)?{instance.function}\('
        )
        assert re.search(kernel, text), instance
        for name, value in instance.defines:
            assert re.search(rf"\b{name}\b", text), (instance, name)
            assert value
        if ("ENGINE", "WgmmaEngine") in instance.defines:
            assert target == "sm_90a"


def test_every_kernel_has_an_instance() -> None:
    for path in _compile.directory().glob("*.cu"):
        kernels = set(
            re.findall(
                r"__global__ void (?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(", path.read_text()
            )
        )
        listed = {i.function for t in TARGETS for i in instances(t) if i.source == path.name}
        assert kernels == listed, path.name


@pytest.mark.parametrize("target", ["sm_90", "sm_70", "", "9.0", None])
def test_unknown_target(target: Any) -> None:
    with pytest.raises(ValueError, match=r"^target must be one of .*'sm_90a'.*, got ") as caught:
        instances(target)
    assert str(caught.value).endswith(f"got {target!r}")


def test_limits_of_the_kernels() -> None:
    """The numbers that the kernels and the library must agree upon."""
    assert constant("direct_conv.cu", "MAX_RANK") == _geometry.MAX_RANK
    assert constant("normalize.cu", "MAX_AXES") == _plan.MAX_AXES
    assert _plan.MAX_AXES >= _geometry.MAX_RANK + 4  # a batch, groups, their channels, lanes
    for name in ("_THREADS", "_MOST_THREADS", "UNROLL", "MOST_CHANNELS"):
        assert constant("normalize.cu", name.lstrip("_")) == getattr(_plan, name)
    for name in ("SLAB_ROWS", "TEAM", "MAX_STAGES", "MOST_FOLDS", "MOST_ORDERED"):
        assert constant("matrix_conv.cu", name) == getattr(_matrix, name)
    assert constant("matrix_conv.cu", "SLOT_BYTES") == _matrix.SLOT
    for name in ("THREADS", "MAX_PHASES"):
        assert constant("depthwise_conv.cu", name) == getattr(depthwise_tiles, name)
    for name in ("MOST_THREADS", "TOGETHER"):
        assert constant("gather_conv.cu", name) == getattr(gather_conv, name)
    assert max(gather_conv._CHANNELS) <= min(gather_conv._BLOCKS)  # a thread has a channel
    assert constant("streaming_conv.cu", "TEAM") == _matrix.TEAM
    for name in ("TEAM", "MAX_STAGES"):
        assert constant("pointwise_conv.cu", name) == getattr(_pointwise, name)
    assert constant("pointwise16_conv.cu", "TEAM") == _matrix.TEAM
    for name in ("SIDE", "WORD", "MAX_STAGES"):
        assert constant("pointwise16_conv.cu", name) == getattr(_pointwise16, name)
    for name in ("THREADS", "ROWS", "MAX_PHASES", "CHUNK"):
        assert constant("plain_conv.cu", name) == getattr(_plain, name)


@pytest.mark.parametrize("engine", ["portable", "hopper"])
def test_loads_are_those_of_the_kernel(engine: str) -> None:
    """A kernel that has fewer of them under way than its plan says would stage nothing."""
    text = _compile.source("matrix_conv.cu")
    hopper = re.search(r"LOADS = PARTS \* PIECES \* SEGMENT / 2 <= (\d+) \? (\d+) : (\d+);", text)
    assert hopper
    least, small, large = map(int, hopper.groups())
    few, loads_of_all = portable_staging()
    for mode in _matrix.modes(engine):
        shapes = (*_matrix.shapes(mode, engine), *_matrix.pool_shapes(mode, engine))
        for shape in (*shapes, *_matrix.span_shapes(mode)):
            pieces = max(1, shape.slabs // shape.teams) * shape.segments
            sums = mode.parts * pieces * shape.segment // 2
            loads = small if sums <= least else large
            expected = loads_of_all if engine == "portable" else loads
            assert shape.loads(mode, engine) == expected, shape
            if engine == "portable":
                assert shape.staging_teams(mode, engine, 1) == (2 if sums <= few else 1), shape
                assert shape.staging_teams(mode, engine, 2) == 1
        if mode.keeps_spans:  # as many sums beside them
            assert all(shape.sums(mode) <= least for shape in _matrix.span_shapes(mode))


# Geometries of any size, without arrays -----------------------------------------------------

lengths = st.one_of(st.integers(1, 9), st.integers(1, 2**34), st.integers(2**31 - 99, 2**31 + 99))
steps = st.one_of(st.integers(1, 5), st.integers(1, 2**31 - 1))


@st.composite
def conv_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Descriptions of convolutions that may be very large in one respect or two."""
    rank = draw(st.sampled_from([1, 2, 3, 1, 2, 3, 4, 5]))
    names = ("kernel", "extra", "pad", "stride", "dilation", "batch", "channels", "rows", "groups")
    large = draw(st.sets(st.sampled_from(names), max_size=2))
    rng = draw(st.randoms(use_true_random=False))

    def size(name: str, least: int = 1) -> int:
        return draw(lengths) if name in large else rng.randint(least, 5)

    def sizes(name: str, least: int = 1) -> list[int]:
        """One large size at most."""
        return [size(name, least), *(rng.randint(least, 5) for _ in range(rank - 1))]

    kernel, pad = sizes("kernel"), sizes("pad", 0)
    stride, dilation = ([min(s, MOST) for s in sizes(name)] for name in ("stride", "dilation"))
    groups, channels, rows = size("groups"), size("channels", 0), size("rows") * rng.randint(1, 20)
    padding = [(p, rng.randint(0, p)) for p in pad]
    batch, more = size("batch"), sizes("extra")
    try:
        if draw(st.booleans()):
            shape = (batch, groups * channels, *(m + 2 * p for m, p in zip(more, pad, strict=True)))
            weight = (groups * channels, rows, *kernel)
            return _geometry.conv_transpose(
                "f", shape, weight, None, stride, padding, 0, groups, dilation, rank
            )
        extents = (d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
        lacking = (max(e - sum(p), 0) for e, p in zip(extents, padding, strict=True))
        shape = (batch, groups * channels, *(m + n for m, n in zip(more, lacking, strict=True)))
        weight = (groups * rows, channels, *kernel)
        return _geometry.conv("f", shape, weight, None, stride, padding, dilation, groups, rank)
    except ValueError as error:
        assert "sizes must stay below 2**63" in str(error)
        assume(False)
        raise


def plan_of(
    geometry: ConvGeometry,
    dtype: Any = np.float32,
    precision: str = "float32",
    processor: Processor = HOPPER,
    kernel: str | None = None,
) -> ConvPlan:
    with _plan.forced(kernel):
        return _plan.plan_conv(geometry, np.dtype(dtype), precision, processor)


def rank_of(geometry: ConvGeometry, dtype: Any = np.float32) -> int:
    """The RANK of direct_conv.cu: 2 is also for one axis, 0 for any number of them and for 64-bit
    coordinates."""
    plan = plan_of(geometry, dtype, kernel="direct")
    assert isinstance(plan, DirectPlan)
    return int(dict(plan.launch.instance.defines)["RANK"])


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
    assert rank in (0, max(2, geometry.rank))
    if rank:
        assert geometry.rank <= 3
        assert needed(geometry) <= MOST
    elif geometry.rank <= 3:
        assert spare(geometry) > MOST


def conv(shape: Shape, kernel: Shape, **options: Any) -> ConvGeometry:
    arguments = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **options}
    return _geometry.conv("f", shape, kernel, None, **arguments, rank=len(kernel) - 2)


def conv_transpose(shape: Shape, kernel: Shape, **options: Any) -> ConvGeometry:
    arguments = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}
    rank = len(kernel) - 2
    return _geometry.conv_transpose("f", shape, kernel, None, **{**arguments, **options}, rank=rank)


# Of growing size, each in another respect; n is the largest number that is formed of it.
GROWING = {
    "input": lambda n: conv((1, 1, n), (1, 1, 1)),
    "input of 2 axes": lambda n: conv((1, 1, 3, n), (1, 1, 1, 1)),
    "input of 3 axes": lambda n: conv((1, 1, 3, n, 3), (1, 1, 1, 1, 1)),
    "strided input": lambda n: conv((1, 1, n), (1, 1, 1), stride=2),
    "padding": lambda n: conv((1, 1, 1), (1, 1, 1), padding=((0, n),)),
    "reach of the taps": lambda n: conv((1, 1, n // 2 + 1), (1, 1, 2), dilation=n // 2),
    "taps": lambda n: conv((1, 1, n // 9), (1, 1, n // 9)),
    "channels": lambda n: conv((1, n // 4, 4), (1, n // 4, 4)),
    "channels and taps": lambda n: conv((1, n // 16, 4, 4), (1, n // 16, 4, 4)),
    "output": lambda n: conv_transpose((1, 1, n), (1, 1, 1)),
    "strided output": lambda n: conv_transpose((1, 1, n // 8), (1, 1, 1), stride=8),
    "input behind the output": lambda n: conv_transpose(
        (1, 1, n), (1, 1, 1), padding=((0, n - 5),)
    ),
    "output behind the padding": lambda n: conv_transpose(
        (1, 1, n - 300), (1, 1, 2), dilation=299, padding=((n - 9, 0),)
    ),
    "channels of a transposed one": lambda n: conv_transpose((1, n // 4, 4), (n // 4, 1, 4)),
}


@pytest.mark.parametrize("respect", GROWING)
def test_where_32_bits_end(respect: str) -> None:
    make = GROWING[respect]
    assert rank_of(make(2**31 - 1000)) == max(2, make(1000).rank)
    assert rank_of(make(2**31 + 200)) == 0
    assert rank_of(make(2**32 - 8)) == 0


@pytest.mark.parametrize("kernel", [None, *KERNELS])
def test_large_arrays_are_planned_as_quickly(
    kernel: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ways to divide them do not grow in number with any size."""
    monkeypatch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
    more = {
        "rows": lambda n: conv((1, 2, 1, 1), (n, 2, 1, 1)),
        "rows with taps": lambda n: conv((1, 2, 5, 5), (n // 16, 2, 3, 3)),
        "groups": lambda n: conv((1, n // 8, 4), (n // 8, 2, 3), groups=n // 16),
        "samples": lambda n: conv((n // 64, 4, 16), (4, 4, 3)),
        "phases": lambda n: conv_transpose((1, 64, 8), (64, 64, n >> 16), stride=n >> 16),
    }
    for respect, make in {**GROWING, **more}.items():
        for dtype, precision in MODES:
            start = time.process_time()
            plan_of(make(2**31), dtype, precision, kernel=kernel)
            assert time.process_time() - start < 1, respect


@pytest.mark.parametrize("rank", range(1, 8))
def test_rank(rank: int) -> None:
    small = conv((1, 1, *(5,) * rank), (1, 1, *(2,) * rank))
    assert rank_of(small) == (max(2, rank) if rank <= 3 else 0)
    small = conv_transpose((1, 1, *(5,) * rank), (1, 1, *(2,) * rank), stride=2)
    assert rank_of(small) == (max(2, rank) if rank <= 3 else 0)


@given(geometry=conv_geometries(), dtype=st.sampled_from(DTYPES))
@example(geometry=conv((2**40, 1, 9), (1, 1, 9)), dtype=np.dtype(np.float32))
@example(geometry=conv((1, 2**34, 9), (2**34, 1, 9), groups=2**34), dtype=np.dtype(np.float64))
def test_direct_plans(geometry: ConvGeometry, dtype: np.dtype[Any]) -> None:
    plan = plan_of(geometry, dtype, kernel="direct")
    again = _plan._plan_conv.__wrapped__(geometry, dtype, "float32", HOPPER, "direct")
    assert isinstance(plan, DirectPlan)
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    assert all(plan.launch.instance in ALL[target] for target in TARGETS)
    assert plan.launch.block == constant("direct_conv.cu", "THREADS")
    printed(plan, plan.launch)
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


def printed(plan: Any, *launches: Launch) -> None:
    """Whoever reads a printed plan can launch it by hand."""
    for launch in launches:
        instance = launch.instance
        assert f"{instance.source}:{instance.function} [" in str(plan)
        for name, value in instance.defines:
            assert f"{name}={value}" in str(plan)
        assert f"{launch.grid} blocks of {launch.block} threads" in str(plan)


# Convolutions on matrix units ----------------------------------------------------------------


@st.composite
def dense_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Convolutions with work for the matrix units, up to the sizes of large networks."""
    rng = draw(st.randoms(use_true_random=False))
    rank = draw(st.sampled_from([1, 2, 3]))
    most = {1: 3000, 2: 200, 3: 40}[rank]

    def each(low: int, high: int) -> list[int]:
        return [rng.randint(low, high) for _ in range(rank)]

    kernel, pad, stride = each(1, 7), each(0, 6), each(1, rng.choice([1, 2, 4]))
    dilation = each(1, rng.choice([1, 1, 3]))
    groups = rng.choice([1, 1, 1, 3])
    channels, rows = (rng.randint(1, rng.choice([9, 70, 600])) for _ in range(2))
    batch = rng.choice([1, 2, 16, 100])
    lengths = [n + d * (k - 1) for n, k, d in zip(each(1, most), kernel, dilation, strict=True)]
    transposed = draw(st.booleans())
    make = conv_transpose if transposed else conv
    weight = (groups * channels, rows) if transposed else (groups * rows, channels)
    padding = tuple((min(p, d * (k - 1)), 0) for p, d, k in zip(pad, dilation, kernel, strict=True))
    return make(
        (batch, groups * channels, *lengths),
        (*weight, *kernel),
        stride=tuple(stride),
        padding=padding,
        dilation=tuple(dilation),
        groups=groups,
    )


modes = st.sampled_from(MODES)
matrix_kernels = st.sampled_from(["portable", "hopper", "spans"])
# What all targets have as long as they can run the kernel.
CAPABLE = {
    "direct": TARGETS,
    "depthwise": TARGETS,
    "gather": TARGETS,
    "plain": TARGETS,
    "streaming": ("sm_90a",),
    "pointwise": ("sm_90a",),
    "spans": ("sm_90a",),
    "portable": tuple(target for target in TARGETS if target != "sm_75"),
    "hopper": ("sm_90a",),
}


def furthest(axis: _matrix.Axis) -> int:
    """How far, in slots, any tap is from the first input that is staged."""
    shifts = (tap * abs(axis.taps.offset_step) + axis.skew for tap in range(axis.read_taps))
    return max((shift // axis.taps.step for shift in shifts), default=0)


@given(geometry=dense_geometries(), mode=modes, kernel=matrix_kernels, data=st.data())
def test_matrix_plans(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], kernel: str, data: st.DataObject
) -> None:
    target = data.draw(st.sampled_from(CAPABLE[kernel]))
    processor = Processor(target, data.draw(st.sampled_from([1, 2, 30, 132])))
    plan = plan_of(geometry, *mode, processor, kernel)
    if isinstance(plan, DirectPlan):
        return  # there is no room for its inputs in shared memory, or there are no spans
    again = _plan._plan_conv.__wrapped__(geometry, *mode, processor, kernel)
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan.pack, plan.launch)
    assert {plan.pack.instance, plan.launch.instance} <= ALL[target]
    assert plan.launch.shared <= SHARED[target]
    sum, tiling = plan.sum, plan.tiling
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
    assert not plan.by_phase or sum.phases <= _matrix.MOST_ORDERED
    if sum.phases <= _matrix.MOST_ORDERED:
        assert sorted(sum.phase_order) == list(range(sum.phases))
        ranked = [sum.phase_taps[phase] for phase in sum.phase_order]
        assert ranked == sorted(ranked, reverse=True)
    # Each block stays in its phase, and has a tile to begin with.
    assert plan.launch.unit == sum.phases
    assert plan.launch.grid % sum.phases == 0
    tiles = sum.phases * tiling.count * geometry.groups
    numbered = tiles * (sum.spans if tiling.apart else 1)
    assert plan.launch.grid <= numbered <= MOST
    # Each output of a tile has a column.
    samples, depth, height, width = tiling.tile
    for plane in range(samples * depth):
        for y in range(height):
            first = plane * tiling.plane_pitch + y * tiling.row_pitch
            for slot in (first, first + width - 1):
                segment, column = divmod(slot, tiling.segment_pitch)
                assert column < shape.segment or tiling.segment_pitch == shape.segment
                assert segment * shape.segment + column < shape.columns
    # What outputs of a tile read of a lattice is its own, and what any column reads is the stage's.
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
    # The packed weights are those of all phases, rows and steps; as float16 numbers they lie in two
    # windows, and each row has two shifts and each sample one.
    # Spans are whole blocks of channels. Their sums are kept, a tile's or a block's, and counted by
    # each warp, unless a block in turn keeps them in registers; how many there are does not depend
    # on the batch.
    blocks = -(-geometry.channels // sum.mode.block)
    assert sum.spans == tiling.spans and sum.spans * sum.blocks == blocks
    assert (sum.spans > 1) == (kernel == "spans") and tiling.apart <= (sum.spans > 1)
    in_turn = sum.spans > 1 and not sum.mode.keeps_spans
    kept = numbered if tiling.apart else plan.launch.grid if in_turn else 0
    assert plan.partial == 4 * kept * shape.rows * shape.columns <= 2**25
    assert plan.arrived == (tiles * plan.launch.block // 32 if tiling.apart else 0)
    if sum.spans > 1:
        single = plan_of(replace(geometry, batch=1), *mode, processor, kernel)
        assert isinstance(single, MatrixPlan) and single.sum == sum
        assert not tiling.resident
    slabs = geometry.groups * sum.phases * tiling.row_tiles * shape.slabs
    weights = slabs * sum.steps * sum.mode.slab_bytes
    shifts = 8 * slabs * _matrix.SLAB_ROWS + 4 * geometry.batch
    assert plan.packed == (2 * weights + shifts if sum.mode.scaled else weights)
    # Steps are as many as small_quotient in division.cuh divides. Blocks that share rows have some
    # each, which are found by a product in 32 bits, as are numbers of blocks.
    assert sum.steps < 2**21 and plan.splits * sum.steps <= MOST
    assert slabs * _matrix.SLAB_ROWS * 2 * sum.steps <= MOST
    blocks = sum.spans * sum.blocks
    turns = sum.steps // blocks * -(-blocks // _plan._PACK_DEEP)
    assert plan.splits == 1 or turns // plan.splits >= 16
    assert packing(plan.pack.instance, "SIDE") == sum.mode.pack_rows
    assert f"\nconstexpr int DEEP = {_plan._PACK_DEEP};\n" in _compile.source("pack_weights.cu")
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
    """Blocks begin with those of most taps, where others would wait for them."""
    geometry = conv_transpose(input, weight, stride=2, **options)
    plan = plan_of(geometry, np.dtype(dtype), processor=HOPPER, kernel="hopper")
    assert isinstance(plan, MatrixPlan)
    assert plan.by_phase == by_phase
    if by_phase:
        tiles = plan.tiling.count * geometry.groups
        assert plan.launch.grid == plan.sum.phases * min(tiles, HOPPER.multiprocessors)


@given(geometry=dense_geometries(), mode=modes, kernel=matrix_kernels)
def test_tiles_that_are_not_looked_at_take_longer(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], kernel: str
) -> None:
    processor = Processor(CAPABLE[kernel][-1], 132)
    plan = plan_of(geometry, *mode, processor, kernel)
    assume(isinstance(plan, MatrixPlan))
    _plan._matrix_sum.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_matrix, "_least_cycles", lambda *_: 0)
        assert plan == _plan._plan_conv.__wrapped__(geometry, *mode, processor, kernel)


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
    """Of a convolution without strides, or of a transposed one whose phases are folds."""
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
    found = _matrix._folded(taps, transposed, stride, dilation, count)
    assert found
    folded, fold = found
    for output in range(size_out):
        phase, place = output % taps.phases, output // taps.phases
        own = {(tap, place * taps.step + offset) for tap, offset in taps.table(phase)}
        column, row = divmod(output, count)
        numerators = (
            (fold.start + j * fold.step + row * fold.apart, column * folded.step + offset)
            for j, offset in folded.table(0)
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
        plan = _plan.plan_conv(geometry, np.dtype(np.float32), precision, HOPPER)
        assert isinstance(plan, MatrixPlan)
        assert [fold.count for fold in plan.sum.fold] == [2, 2, 2] and plan.sum.phases == 1
    rows = conv_transpose((8, 32, 24, 48), (32, 40, 3, 3), stride=2)
    for counts in _matrix.folds_of(rows, _matrix._TF32["tf32"]):
        assert counts[:2] == (1, 1), "a block has no room for them"


def test_pairs_of_inputs_with_an_odd_stride() -> None:
    """They are staged together unless their places take the room of a better tile."""
    near = plan_of(conv((64, 64, 524280), (128, 64, 3), stride=3, dilation=4), processor=HOPPER)
    geometry = conv((16, 64, 448, 1, 448), (128, 64, 7, 1, 7), stride=(3, 1, 3))
    far = plan_of(geometry, processor=Processor("sm_80", 108))
    for plan, pairs in ((near, True), (far, False)):
        assert isinstance(plan, MatrixPlan)
        assert (plan.sum.axes[2].lattices % 2, plan.sum.axes[2].pairs) == (1, pairs)


def test_room_behind_the_distances_of_a_stage() -> None:
    ahead = re.search(r"AHEAD = TEAMS == 1 \? (\d+) : ", _compile.source("matrix_conv.cu"))
    assert ahead and 2 * int(ahead[1]) == _matrix._AHEAD


def strides_of(geometry: ConvGeometry, gap: int) -> _strides.ConvStrides:
    """Those of contiguous arrays, and of an input with a gap behind each line of its last axis."""

    def along(sizes: list[int], gap: int) -> list[int]:
        lines = [*sizes[:-1], sizes[-1] + gap]
        return [math.prod(lines[axis + 1 :]) for axis in range(len(lines))]

    inputs = along([axis.size_in for axis in geometry.axes], gap)
    outputs = along([axis.size_out for axis in geometry.axes], 0)
    kernels = along([axis.kernel for axis in geometry.axes], 0)
    return _strides.ConvStrides((0, 0, 0), (0, 0, 0), (0, 0, 0), inputs, kernels, outputs)


@given(data=st.data(), element=st.sampled_from([2, 4]))
def test_lines_of_an_input(data: st.DataObject, element: int) -> None:
    """Those from its first element to its last one, of any input that has no gaps."""
    n, c, y, x = data.draw(st.tuples(*[st.integers(1, 4)] * 4))
    g = conv((n, 2 * c, y, x), (2, c, 1, 1), groups=2)
    sizes = [g.batch, g.groups, g.channels, *(axis.size_in for axis in g.axes)]
    order = data.draw(st.permutations(range(len(sizes))))
    gap, at = data.draw(st.sampled_from([0, 0, 1])), data.draw(st.integers(0, len(sizes) - 1))
    strides, stride = [0] * len(sizes), 1
    for axis in order:
        strides[axis] = stride
        stride *= sizes[axis]
        stride += gap if axis == order[at] else 0
    if data.draw(st.booleans()):
        strides[at] *= data.draw(st.sampled_from([-1, 0, 1]))
    own = strides_of(g, 0)._replace(input=tuple(strides[:3]), input_axes=strides[3:])
    offsets = {sum(map(operator.mul, strides, place)) for place in np.ndindex(*sizes)}
    lines = _strides.lines_of(g, own, element)
    if lines:
        assert min(offsets) == 0
        assert lines == math.ceil((max(offsets) + 1) * element / 128)
    else:
        assert min(strides) < 0 or offsets != set(range(math.prod(sizes)))


def test_lines_of_a_large_input() -> None:
    small, large = (conv((batch, 64, 256, 256), (64, 64, 3, 3)) for batch in (1, 2))
    inside = (64 * 256 * 256, 64 * 256 * 256, 256 * 256)
    own = [strides_of(g, 0)._replace(input=inside) for g in (small, large)]
    lines = [_strides.lines_of(g, s, 4) for g, s in zip((small, large), own, strict=True)]
    assert lines == [2**24 // 128, 0]


@pytest.mark.parametrize(
    ("geometry", "merged"),
    [
        (conv((2, 8, 5, 7), (8, 8, 1, 1)), [35]),
        (conv_transpose((2, 8, 3, 5, 7), (8, 8, 1, 1, 1)), [105]),
        (conv((2, 8, 9, 5, 7), (8, 8, 3, 1, 1)), [9, 5, 7]),
        (conv((2, 8, 2**16, 2**16, 7), (8, 8, 1, 1, 1)), [2**16, 7 * 2**16]),
        (conv((2, 8, 9, 5, 7), (8, 8, 1, 3, 1)), [9, 5, 7]),
        (conv((2, 8, 5, 7), (8, 8, 1, 1), stride=(2, 1)), [5, 7]),
        (conv((2, 8, 5, 7), (8, 8, 1, 1), padding=(0, 1)), [5, 7]),
        (conv_transpose((2, 8, 5, 7), (8, 8, 1, 1), stride=(1, 2)), [5, 7]),
        (conv((2, 8, 2**16, 2**16), (8, 8, 1, 1)), [2**16, 2**16]),
        (conv((2, 8, 3, 3, 5, 7), (8, 8, 1, 1, 1, 1)), [3, 3, 5, 7]),
    ],
    ids=str,
)
def test_axes_of_a_pointwise_convolution_are_one(geometry: ConvGeometry, merged: list[int]) -> None:
    got, strides = _strides.merged(geometry, strides_of(geometry, 0))
    assert [axis.size_in for axis in got.axes] == merged
    assert len(got.stride) == len(got.dilation) == len(got.pads_before) == len(merged)
    assert [len(own) for own in strides[3:]] == [len(merged)] * 3
    assert strides.input_axes[-1] == strides.out_axes[-1] == 1
    outputs = [math.prod(axis.size_out for axis in g.axes) for g in (got, geometry)]
    assert outputs[0] == outputs[1]
    if len(merged) == 1:
        apart = strides_of(geometry, 3)
        assert len(_strides.merged(geometry, apart)[0].axes) > 1


# One input channel in each group ---------------------------------------------------------------


@st.composite
def depthwise_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Up to the sizes of large networks."""
    rng = draw(st.randoms(use_true_random=False))
    rank = draw(st.sampled_from([1, 2, 3]))
    most = {1: 30_000, 2: rng.choice([16, 600]), 3: rng.choice([8, 70])}[rank]

    def each(low: int, high: int) -> list[int]:
        return [rng.randint(low, high) for _ in range(rank)]

    kernel, stride = each(1, 7), each(1, rng.choice([1, 1, 2, 7]))
    dilation = each(1, rng.choice([1, 1, 3]))
    groups, rows = rng.randint(1, rng.choice([9, 1200])), rng.randint(1, rng.choice([1, 2, 200]))
    lengths = [n + d * (k - 1) for n, k, d in zip(each(1, most), kernel, dilation, strict=True)]
    transposed = draw(st.booleans())
    make = conv_transpose if transposed else conv
    weight = (groups, rows) if transposed else (groups * rows, 1)
    padding = tuple((rng.randint(0, d * (k - 1)), 0) for d, k in zip(dilation, kernel, strict=True))
    return make(
        (rng.choice([1, 2, 16, 100]), groups, *lengths),
        (*weight, *kernel),
        stride=tuple(stride),
        padding=padding,
        dilation=tuple(dilation),
        groups=groups,
    )


@given(geometry=depthwise_geometries(), dtype=st.sampled_from(FLOATS), processor=processors)
def test_depthwise_plans(
    geometry: ConvGeometry, dtype: np.dtype[Any], processor: Processor
) -> None:
    plan = plan_of(geometry, dtype, processor=processor, kernel="depthwise")
    if isinstance(plan, DirectPlan):
        # There is no room for the inputs of the smallest tile, which there is for small kernels.
        assert geometry.rank > 1 and max(axis.kernel * axis.step for axis in geometry.axes) > 3
        return
    assert isinstance(plan, DepthwisePlan)
    again = _plan._plan_conv.__wrapped__(geometry, dtype, "float32", processor, "depthwise")
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan.launch)
    assert plan.launch.instance in ALL[processor.target]
    assert plan.launch.shared <= SHARED[processor.target]
    layout = plan.layout
    # The tiles cover all channels, rows and positions.
    for size, tile, tiles in (
        (geometry.groups, layout.channels, layout.channel_tiles),
        (geometry.rows, layout.rows, layout.row_tiles),
        *zip((a.positions(0) for a in layout.axes), layout.tile, layout.tiles, strict=True),
    ):
        assert (tiles - 1) * tile < size <= tiles * tile
    tiles = layout.channel_tiles * layout.row_tiles * math.prod(layout.tiles)
    assert plan.launch.grid == geometry.batch * tiles <= MOST
    anywhere = f"\nconstexpr int ANYWHERE = {depthwise_tiles.ANYWHERE};"
    assert anywhere in _compile.source("depthwise_conv.cu")
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
        # Lines begin with a chunk on matrix units, anywhere in one and end so elsewhere.
        aside = layout.low[2] % unit if layout.shape.tensor_cores else 2 * (unit - 1)
        assert runs.chunks * runs.count * unit >= layout.extent[2] + aside
        assert unit > 1 or runs.chunks % 2 == 0


@given(geometry=depthwise_geometries(), dtype=st.sampled_from(FLOATS), processor=processors)
def test_gather_plans(geometry: ConvGeometry, dtype: np.dtype[Any], processor: Processor) -> None:
    plan = plan_of(geometry, dtype, processor=processor, kernel="gather")
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
    again = _plan._plan_conv.__wrapped__(geometry, dtype, "float32", processor, "gather")
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan.launch)
    assert plan.launch.instance in ALL[processor.target]
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
    assert plan.launch.grid == plan.launch.unit == layout.count <= MOST
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
    assert plan.launch.shared == layout.shared <= shared
    assert layout.shared >= used(layout.channels, groups, layout.room, values)
    # What is counted in a tile is as small as small_quotient in division.cuh divides.
    counted = layout.tile * layout.positions, groups * layout.room, layout.channels * (taps + 1)
    assert max(counted) < 2**20


def test_channels_of_a_tile_are_a_multiple_of_its_teams() -> None:
    """A channel has 42 strips: of 128 threads there are three teams, which share six or three."""
    volumes = conv((64, 192, 14, 9, 11), (192, 1, 3, 3, 3), groups=192, stride=2, padding=1)
    plan = plan_of(volumes, processor=HOPPER, kernel="gather")
    assert isinstance(plan, GatherPlan)
    assert plan.layout.channels % 3 == 0 and plan.layout.threads == 128


def test_more_output_channels_than_32_bits_count_are_not_gathered() -> None:
    many = conv((1, 1, 3), (2**31 + 8, 1, 3)), conv((1, 2**30, 3), (2**31, 1, 3), groups=2**30)
    for geometry in many:
        assert not isinstance(plan_of(geometry, kernel="gather"), GatherPlan)


def test_small_tiles_are_not_smaller_than_their_weights_are_worth() -> None:
    """Each brings the weights of its rows: half as many do with lines that fill its columns."""
    geometry = conv((1, 128, 28, 28), (128, 128, 3, 3), padding=1)
    for mode in (np.dtype(np.float32), "tf32"), (np.dtype(np.float16), "float32"):
        plan = plan_of(geometry, *mode, HOPPER)
        assert isinstance(plan, MatrixPlan)
        assert (plan.tiling.shape.columns, plan.tiling.tile) == (32, (1, 1, 1, 28))


# One tap --------------------------------------------------------------------------------------


@st.composite
def streaming_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Calls for which the streaming kernel may have room."""
    rng = draw(st.randoms(use_true_random=False))
    rank = draw(st.sampled_from([1, 2, 3]))
    most = {1: 30_000, 2: rng.choice([16, 600]), 3: rng.choice([8, 70])}[rank]
    lengths = [rng.randint(1, most) for _ in range(rank)]
    groups, rows = rng.randint(1, rng.choice([3, 200])), rng.randint(1, rng.choice([70, 2000]))
    channels, batch = rng.randint(1, rng.choice([70, 2000])), rng.choice([1, 2, 16, 100])
    kernel = tuple(rng.randint(1, rng.choice([1, 5])) for _ in lengths)
    if math.prod(kernel) > 1:
        channels = rng.randint(1, rng.choice([5, 40]))
    lengths = [n + k for n, k in zip(lengths, kernel, strict=True)]
    if draw(st.booleans()):
        return conv_transpose(
            (batch, groups * channels, *lengths), (groups * channels, rows, *kernel),
            groups=groups,
        )  # fmt: skip
    return conv(
        (batch, groups * channels, *lengths), (groups * rows, channels, *kernel),
        stride=tuple(rng.randint(1, 3) for _ in lengths), groups=groups,
    )  # fmt: skip


@given(
    geometry=streaming_geometries(),
    mode=modes,
    multiprocessors=st.sampled_from([1, 2, 30, 132]),
)
def test_streaming_plans(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], multiprocessors: int
) -> None:
    processor = Processor("sm_90a", multiprocessors)
    plan = plan_of(geometry, *mode, processor, "streaming")
    own = _matrix.plain_mode(mode[0].name, mode[1])
    assert own
    products = geometry.channels * math.prod(axis.kernel for axis in geometry.axes)
    several = products > geometry.channels
    if isinstance(plan, DirectPlan):  # weights of 64 rows do not fit, in whole chunks
        if not several and mode[0].itemsize == 2 and products > 128:
            return  # which is for the pointwise kernel
        room = SHARED["sm_90a"] - 256 - several * 24 * (products + 64)
        weights = (products + 64) * 64 * own.parts * mode[0].itemsize
        assert weights > room or (several and products > 400)
        return
    assert isinstance(plan, StreamingPlan)
    again = _plan._plan_conv.__wrapped__(geometry, *mode, processor, "streaming")
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan.launch)
    launch, layout, shape = plan.launch, plan.layout, plan.layout.shape
    assert launch.instance in ALL["sm_90a"]
    assert launch.instance == _plan._streaming_conv(own, shape)
    assert launch.block == shape.teams * _matrix.TEAM
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
    assert -(-geometry.rows // shape.rows) == -(-geometry.rows // _matrix.SLAB_ROWS)
    # The order of a sum does not depend on the batch.
    more = plan_of(replace(geometry, batch=7 * geometry.batch + 1), *mode, processor, "streaming")
    assert isinstance(more, StreamingPlan)
    assert more.layout.shape.channels == shape.channels
    outputs = geometry.batch * math.prod(axis.size_out for axis in geometry.axes)
    team = 64 if several else 64 * 4 // mode[0].itemsize
    assert (layout.positions, layout.tiles) == (outputs, -(-outputs // team))
    # Blocks stay with a unit, and each has a tile.
    assert launch.unit == layout.units and launch.grid % layout.units == 0
    assert launch.grid <= max(multiprocessors, layout.units)
    assert launch.grid // layout.units <= layout.tiles
    weights = rows * layout.chunks * shape.channels * mode[0].itemsize * own.parts
    tables = 24 * layout.chunks * shape.channels if several else 0
    assert launch.shared == layout.shared == weights + 4 * rows + tables <= SHARED["sm_90a"]


def test_the_order_of_a_streaming_sum_follows_from_its_products() -> None:
    """All shapes for several chunks have chunks of one size, and those of single ones ascend."""
    for shapes in (*_streaming.SHAPES.values(), *_streaming.TAPPED.values()):
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


@given(
    geometry=streaming_geometries(),
    mode=modes,
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
    plan = plan_of(geometry, *mode, processor, "pointwise")
    own = _matrix.plain_mode(mode[0].name, mode[1])
    assert own
    if own.products > 1 or not _streaming.has_one_tap(geometry):
        assert isinstance(plan, DirectPlan)
        return
    if own.itemsize == 2:
        check_pointwise16(geometry, mode, processor, plan)
        return
    if not isinstance(plan, PointwisePlan):  # the packing kernel divides its steps in 28 bits
        slabs = geometry.groups * -(-geometry.rows // _matrix.SLAB_ROWS)
        assert 6 * _matrix.SLAB_ROWS * slabs * (geometry.channels // own.block + 4) >= 2**28
        return
    again = _plan._plan_conv.__wrapped__(geometry, *mode, processor, "pointwise")
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan.pack, plan.launch)
    launch, layout, shape = plan.launch, plan.layout, plan.layout.shape
    assert {plan.pack.instance, launch.instance} <= set(ALL["sm_90a"])
    assert launch.instance == _plan._pointwise_conv(own, shape)
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
    assert plan.sum.steps == layout.chunks * shape.channels // own.block
    assert plan.packed == layout.units * 64 * shape.held * plan.sum.steps * 32
    # Blocks stay with a unit, each has a tile, and those of a multiprocessor have room.
    assert launch.unit == layout.units and launch.grid % layout.units == 0
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
    geometry: ConvGeometry,
    mode: tuple[np.dtype[Any], str],
    processor: Processor,
    plan: _plan.ConvPlan,
) -> None:
    """The plan of 16-bit numbers: blocks of 64 by 64 of them."""
    assert isinstance(plan, Pointwise16Plan)
    again = _plan._plan_conv.__wrapped__(geometry, *mode, processor, "pointwise")
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan.launch)
    launch, layout, shape = plan.launch, plan.layout, plan.layout.shape
    assert launch.instance in ALL["sm_90a"]
    assert launch.instance == _plan._pointwise16_conv(mode[0].name, shape)
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


# Few products of each output ------------------------------------------------------------------


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


@given(geometry=plain_geometries(), mode=modes, processor=processors)
@example(
    geometry=conv((1, 34, 1), (1, 34, 1), stride=7),
    mode=MODES[0],
    processor=Processor("sm_75", 1),
)
def test_plain_plans(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], processor: Processor
) -> None:
    dtype, precision = mode
    plan = plan_of(geometry, dtype, precision, processor, "plain")
    if not isinstance(plan, PlainPlan):
        most = math.prod(max(a.progression(p)[1] for p in range(a.phases)) for a in geometry.axes)
        few = geometry.channels * most <= _plain.MAX_SUM
        # There may be no room for the inputs and weights of the smallest tile.
        assert (
            not few or geometry.channels * math.prod(a.kernel * a.step for a in geometry.axes) > 40
        )
        return
    again = _plan._plan_conv.__wrapped__(geometry, dtype, precision, processor, "plain")
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan.pack, plan.launch)
    layout, (z, y, x) = plan.layout, plan.layout.axes
    assert {plan.pack.instance, plan.launch.instance} <= set(ALL[processor.target])
    assert plan.launch.shared == layout.shared <= SHARED[processor.target]
    # The tiles cover all rows and positions, and blocks all tiles of all units.
    for size, tile, tiles in (
        (geometry.rows, _plain.ROWS * layout.slabs_of_tile, layout.row_tiles),
        *zip((a.positions(0) for a in layout.axes), layout.tile, layout.tiles, strict=True),
    ):
        assert (tiles - 1) * tile < size <= tiles * tile
    assert layout.count == geometry.batch * math.prod(layout.tiles)
    busy = [sum(bool(axis.table(phase)) for phase in range(axis.phases)) for axis in (z, y)]
    assert layout.units == geometry.groups * layout.row_tiles * math.prod(busy)
    assert 0 < plan.launch.grid <= layout.count * layout.units
    assert plan.launch.grid % layout.units == 0 and plan.launch.unit == layout.units
    # A block has threads for the lines of a pass, and passes for those of a tile.
    shape = layout.shape
    assert layout.lines * layout.slabs_of_tile * shape.columns <= _plain.THREADS
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
    room = 2 * (_plain.CHUNK - 1)
    assert lattice * x.step >= layout.extent and line >= lattice * x.step + room
    assert plane >= layout.extents[1] * (line + _plain.CHUNK - 1)
    assert layout.channel_pitch >= layout.extents[0] * plane
    inputs = (layout.places[5] - layout.places[4]) // 4
    assert inputs >= geometry.channels * layout.channel_pitch + room // 2
    # A line of outputs begins anywhere among those of 16 bytes, wherever its row lies.
    together = 16 // dtype.itemsize
    if x.phases > 1:
        assert layout.buffer_line % together == 0
        assert layout.buffer_line >= layout.tile[2] * x.phases + together - 1
        row = layout.lines * layout.buffer_line + together - 1
        room = _plain.ROWS * layout.slabs_of_tile * row * dtype.itemsize
        assert layout.shared >= layout.places[5] + room
    else:
        assert layout.buffer_line == 0


def test_few_products_are_for_plain_multiply_adds() -> None:
    """The nearest ones on either side: the choice is by the models, but for many products."""

    def refusals(geometry: ConvGeometry, precision: str = "float32") -> dict[str, object]:
        found = _plan.candidates(geometry, np.dtype(np.float32), precision, HOPPER)
        return {kernel: plan for kernel, plan in found if isinstance(plan, str)}

    strided = conv_transpose((16, 32, 64, 128), (32, 64, 3, 3), stride=5, padding=1, dilation=2)
    for precision in ("float32", "tf32"):
        assert "plain" not in refusals(strided, precision)
    image = conv((64, 3, 224, 224), (16, 3, 3, 3), padding=1)
    assert "plain" not in refusals(image)
    assert refusals(image, "tf32")["plain"] == "matrix units take less time"
    many = conv((64, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    assert refusals(many)["plain"] == "its outputs have 147 products each, more than 110"
    small = conv((64, 2, 16, 16), (8, 2, 3, 3))
    assert "a sample has 28224 products, fewer than" in str(refusals(small)["plain"])


@given(
    rank=st.sampled_from([2, 3]),
    size=st.integers(8, 60),
    dilation=st.integers(1, 2**30),
    channels=st.integers(1, 40),
    rows=st.integers(1, 70),
    processor=processors,
)
@example(rank=2, size=256, dilation=10**7, channels=2, rows=64, processor=HOPPER)
@example(rank=2, size=24_000, dilation=1, channels=3, rows=8, processor=HOPPER)
def test_what_lies_as_one_does_not_choose_the_kernel(
    rank: int, size: int, dilation: int, channels: int, rows: int, processor: Processor
) -> None:
    """A pointwise convolution of an array and of a view of another one have the same bits."""
    shapes = (2, channels, *(size,) * rank), (rows, channels, *(1,) * rank)
    geometry = conv(*shapes, dilation=(dilation, *(1,) * (rank - 1)))
    merged, _ = _strides.merged(geometry, strides_of(geometry, 0))
    assert merged.rank == 1
    plans = plan_of(merged, processor=processor), plan_of(geometry, processor=processor)
    assert len({type(plan) for plan in plans}) == 1


def test_few_products_in_arrays_as_large_as_memory() -> None:
    many = (32768, 2, 2), (16384, 2, 3, 3)
    geometries = [conv((n, *many[0]), many[1], padding=1, groups=16384) for n in (1, 2**16)]
    plans = [plan_of(geometry, kernel="plain") for geometry in geometries]
    assert all(isinstance(plan, PlainPlan) and plan.launch.grid <= MOST for plan in plans)
    assert isinstance(plan_of(conv((1, 2, 1, 1), (2**31 + 8, 2, 1, 1))), DirectPlan)
    assert isinstance(plan_of(conv((0, 2, 256, 256), (3, 2, 3, 3)), kernel="plain"), PlainPlan)


@pytest.mark.parametrize(("rows", "share"), [(1, 0.99), (64, 0.66), (200, 0.39)])
def test_as_many_steps_as_are_divided(rows: int, share: float) -> None:
    """Longer sums, of as many channels as memory may hold, are not for matrix units."""

    def plan(channels: int) -> ConvPlan:
        geometry = conv((1, channels, 9), (rows, channels, 1))
        return plan_of(geometry, np.float16, kernel="hopper")

    numbers = range(1024, 2**26)
    first = bisect.bisect_left(numbers, True, key=lambda n: not isinstance(plan(n), MatrixPlan))
    most = plan(numbers[first] - 1)
    assert isinstance(most, MatrixPlan) and share < most.sum.steps / 2**21 < 1


def test_phases_of_which_none_has_a_tap() -> None:
    """Their taps would be for outputs that padding takes away."""
    geometry = conv_transpose(
        (1, 64, 64, 1), (64, 64, 3, 1),
        stride=(1, 17), padding=((0, 0), (1, 0)), output_padding=(0, 16),
    )  # fmt: skip
    for target in TARGETS:
        assert isinstance(plan_of(geometry, processor=Processor(target, 132)), ConvPlan)


@given(geometry=plain_geometries(), axis=st.integers(0, 1))
def test_axes_without_taps_are_joined(geometry: ConvGeometry, axis: int) -> None:
    """Each output has the same products, in the same order."""
    assume(axis + 1 < geometry.rank)
    last = _taps.conv_taps(7, 7, 1, 1, 1, 0)
    axes = (*geometry.axes[: axis + 1], last, *geometry.axes[axis + 2 :])
    geometry = replace(geometry, axes=axes)
    one, first = _plain.joined(geometry, axis), geometry.axes[axis]
    if one is None:
        assert not first.phases == first.step == 1
        return
    joined = one.axes[axis]
    assert one.rank == geometry.rank - 1
    assert (joined.size_in, joined.size_out) == (first.size_in * 7, first.size_out * 7)
    assert joined.table(0) == [(tap, offset * 7) for tap, offset in first.table(0)]
    assert joined.step == joined.phases == 1


@pytest.mark.parametrize(
    ("batch", "rows", "divisors_matter"),
    [
        (16, 128, True),
        (1, 128, False),  # too few tiles for blocks to fall far behind
        (16, 16, False),  # folded: products take longer than stores
    ],
)
def test_the_ends_of_rows_belong_to_all_blocks(
    batch: int, rows: int, divisors_matter: bool
) -> None:
    """Where stores are most of the work, blocks and tiles of a row have no common divisor."""
    plan = plan_of(conv((batch, 16, 1024, 1024), (rows, 16, 3, 3)), np.float16)
    assert isinstance(plan, MatrixPlan)
    blocks, across = plan.launch.grid, plan.tiling.tiles[-1]
    assert math.gcd(HOPPER.multiprocessors, across) > 1
    if divisors_matter:
        assert math.gcd(blocks, across) == 1
        assert 128 <= blocks < HOPPER.multiprocessors
    else:
        assert blocks == HOPPER.multiprocessors


def test_plans_of_a_network_print_readably() -> None:
    plan = plan_of(conv((16, 64, 56, 56), (128, 64, 3, 3), padding=1), processor=HOPPER)
    assert re.fullmatch(
        r"pack_weights\.cu:pack_weights \[ELEMENT=float, OPERAND=float16, PARTS=2\], "
        r"\d+ blocks of 512 threads; matrix_conv\.cu:matrix_conv "
        r"\[ELEMENT=float, OPERAND=float16, PARTS=2, ENGINE=WgmmaEngine, TEAMS=\d, "
        r"SLABS=\d, SEGMENT=\d+, SEGMENTS=\d\], \d+ blocks of \d+ threads and \d+ bytes: "
        r"tiles of \d+ rows x \(\d+ x \d+ x \d+ x \d+\) outputs in \d+ columns, .*",
        str(plan),
    )


# Of each kernel that plans choose, geometries that it is chosen for.
CHOSEN = {
    "matrix_conv.cu": [
        conv((1, 64, 56, 56), (64, 64, 3, 3), padding=1),
        conv((1, 128, 56, 56), (128, 128, 1, 1), padding=1),
        conv_transpose((1, 64, 32, 32), (64, 32, 4, 4), stride=2, padding=1),
        conv((1, 512, 1000), (512, 512, 9), dilation=4),
        conv((1, 32, 16, 16, 16), (64, 32, 3, 3, 3)),
        conv((1, 128, 28, 28), (128, 64, 3, 3), groups=2),
        conv((8, 24, 512, 512), (64, 24, 5, 5)),
        conv((1, 512, 7, 7), (512, 512, 3, 3), padding=1),
    ],
    "streaming_conv.cu": [
        conv((1, 16, 100, 100), (128, 16, 1, 1)),
        conv((8, 48, 56, 56), (64, 48, 1, 1)),
        conv((8, 128, 32, 32), (256, 64, 1, 1), groups=2, stride=2),
        conv_transpose((1, 48, 3000), (48, 24, 1)),
        conv((8, 3, 224, 224), (768, 3, 8, 8), stride=8),
        conv((8, 3, 227, 227), (96, 3, 11, 11), stride=4),
    ],
    "pointwise_conv.cu": [  # with one product of a step; else the streaming kernel has them
        conv((8, 256, 56, 56), (64, 256, 1, 1)),
        conv((1, 512, 28, 28), (1024, 512, 1, 1)),
        conv((8, 512, 14, 14), (300, 256, 1, 1), groups=2),
        conv_transpose((1, 200, 3000), (200, 24, 1)),
    ],
    "pointwise16_conv.cu": [
        conv((8, 64, 56, 56), (64, 64, 1, 1)),
        conv((1, 512, 28, 28), (1024, 512, 1, 1)),
        conv((8, 512, 14, 14), (300, 256, 1, 1), groups=2),
        conv_transpose((1, 200, 3000), (200, 24, 1)),
    ],
    "depthwise_conv.cu": [
        conv((8, 64, 112, 112), (64, 1, 5, 9), groups=64),
        conv((8, 1, 512, 512), (64, 1, 3, 5)),
        conv((8, 4, 512, 512), (16, 1, 3, 3), groups=4),
        conv((1, 64, 112, 112), (128, 1, 4, 4), groups=64, stride=2, padding=2),
        conv((1, 512, 56, 56), (512, 1, 5, 7), groups=512, padding=(2, 3)),
        conv((8, 32, 16, 128, 128), (32, 1, 3, 3, 3), groups=32),
        conv((8, 256, 9000), (256, 1, 31), groups=256, dilation=4),
        conv_transpose((8, 64, 32, 32), (64, 2, 4, 4), stride=2, padding=1, groups=64),
    ],
    "gather_conv.cu": [
        conv((8, 64, 33, 65), (64, 1, 3, 3), groups=64, stride=2, padding=1),
        conv((8, 256, 15, 15), (256, 1, 5, 5), groups=256, stride=2, padding=2),
        conv((8, 512, 14, 14), (512, 1, 7, 7), groups=512, stride=2, padding=3),
        conv((8, 512, 14, 14), (512, 1, 3, 3), groups=512, padding=1),
        conv((8, 256, 8, 14, 14), (256, 1, 3, 3, 3), groups=256, stride=2, padding=1),
        conv((8, 256, 9000), (256, 1, 7), groups=256, dilation=4),
        conv_transpose((8, 64, 14, 14), (64, 1, 3, 3), padding=1, groups=64),
        conv((8, 64, 55, 55), (64, 1, 3, 3), padding=1, groups=64),
        conv((8, 64, 57, 57), (64, 1, 3, 3), stride=2, groups=64),
    ],
    "plain_conv.cu": [
        conv((8, 64, 112, 112), (32, 2, 3, 3), groups=32),
        conv((1, 64, 112, 112), (64, 2, 3, 3), groups=32),
        conv((8, 2, 1024, 1024), (2, 2, 3, 3), padding=1),
        conv_transpose((1, 32, 64, 64), (32, 8, 3, 3), stride=3, padding=1, groups=4),
    ],
    "direct_conv.cu": [
        conv((8, 3, 8, 8), (5, 3, 3, 3)),
        conv((8, 1, 9000), (1, 1, 2000), dilation=2),
        conv_transpose((8, 64, 9, 9), (64, 1, 9, 9), stride=9, groups=64),
        conv((8, 0, 9, 9), (64, 0, 3, 3)),
        conv((1, 16, 9, 9, 9, 9), (32, 16, 3, 3, 3, 3)),
    ],
}


HOPPER_ALONE = {"streaming_conv.cu", "pointwise_conv.cu", "pointwise16_conv.cu"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_choice_of_a_kernel(dtype: np.dtype[Any], target: str) -> None:
    able = {
        "matrix_conv.cu": dtype in [own for own, _ in MODES] and target != "sm_75",
        "streaming_conv.cu": dtype in [own for own, _ in MODES] and target == "sm_90a",
        "pointwise_conv.cu": dtype == np.float32 and target == "sm_90a",
        "pointwise16_conv.cu": dtype.itemsize == 2 and dtype in FLOATS and target == "sm_90a",
        "depthwise_conv.cu": dtype in FLOATS,
        "gather_conv.cu": dtype in FLOATS,
        "plain_conv.cu": dtype.name in ("float32", "float16", "bfloat16"),
        "direct_conv.cu": True,
    }
    engine = "WgmmaEngine" if target == "sm_90a" else "MmaEngine"
    for source, geometries in CHOSEN.items():
        for geometry in geometries:
            for precision in ("float32", "tf32"):
                plan = plan_of(geometry, dtype, precision, Processor(target, 132))
                instance = plan.launch.instance
                own, others = {source}, {"direct_conv.cu", "plain_conv.cu"}
                if source in HOPPER_ALONE:
                    others |= {"matrix_conv.cu", *HOPPER_ALONE}
                if source == "pointwise_conv.cu" and precision == "float32":
                    own = {"matrix_conv.cu", "streaming_conv.cu"}
                assert instance.source in (own if able[source] else others)
                assert able[instance.source]
                if instance.source == "matrix_conv.cu":
                    assert dict(instance.defines)["ENGINE"] == engine


# What the matrix units' kernels cannot take: the direct one does, even where they are asked for.
REFUSED = {
    "four axes": conv((1, 64, 9, 9, 9, 9), (64, 64, 3, 3, 3, 3)),
    "no channels": conv((1, 0, 56, 56), (64, 0, 3, 3)),
    "64-bit coordinates": conv((1, 64, 2**31), (64, 64, 3)),
    "kernels too long for the table of distances": conv((1, 64, 9000), (64, 64, 5000)),
    "inputs of a tile that shared memory does not hold": conv(
        (1, 64, 3000, 3000), (64, 64, 2, 2), dilation=2000
    ),
}


@pytest.mark.parametrize("kernel", ["portable", "hopper", None])
@pytest.mark.parametrize("name", REFUSED)
def test_the_direct_kernel_takes_the_rest(name: str, kernel: str | None) -> None:
    for mode in MODES:
        assert isinstance(plan_of(REFUSED[name], *mode, HOPPER, kernel), DirectPlan)


@pytest.mark.parametrize("kernel", CAPABLE)
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_run_where_they_can(target: str, kernel: str) -> None:
    """Each takes one input channel in each group, though it may not be what is chosen for it.

    But for one tap of many channels, by one product, and for sums of several spans, which take two
    blocks of channels and more.
    """
    geometry, precision = CHOSEN["depthwise_conv.cu"][1], "float32"
    if kernel == "pointwise":
        geometry, precision = CHOSEN["pointwise_conv.cu"][0], "tf32"
    if kernel == "spans":
        assert isinstance(
            plan_of(geometry, processor=Processor(target, 132), kernel=kernel), DirectPlan
        )
        geometry = conv((8, 64, 14, 14), (64, 64, 3, 3), padding=1)
    plan = plan_of(geometry, precision=precision, processor=Processor(target, 132), kernel=kernel)
    kinds = {
        "direct": DirectPlan,
        "depthwise": DepthwisePlan,
        "gather": GatherPlan,
        "plain": PlainPlan,
        "streaming": StreamingPlan,
        "pointwise": PointwisePlan,
    }
    kind = kinds.get(kernel, MatrixPlan)
    assert isinstance(plan, kind if target in CAPABLE[kernel] else DirectPlan)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_dilation_of_a_single_tap_does_not_choose_the_kernel(target: str) -> None:
    """Where two axes lie as one, nothing is left of the second one's."""
    sizes = (1, 120, 20, 24), (70, 120, 1, 1)
    far = conv(*sizes, dilation=(1, 2**31 - 1))
    plans = [plan_of(g, processor=Processor(target, 132)) for g in (conv(*sizes), far)]
    assert type(plans[0]) is type(plans[1]) is not DirectPlan


@given(
    channels=st.sampled_from([3, 16, 17, 64, 200, 256, 512, 2048, 4096]),
    rows=st.integers(1, 600),
    image=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    mode=modes,
    multiprocessors=st.sampled_from([30, 132]),
)
@example(4096, 512, (7, 7), MODES[2], 132)
def test_axes_that_lie_as_one_do_not_choose_the_kernel(
    channels: int,
    rows: int,
    image: tuple[int, int],
    mode: tuple[np.dtype[Any], str],
    multiprocessors: int,
) -> None:
    """Nor, therefore, does the layout of an array; what is added up stays the same."""
    apart = conv((8, channels, *image), (rows, channels, 1, 1))
    one = _plain.joined(apart, 0)
    assert one
    plans = [plan_of(g, *mode, Processor("sm_90a", multiprocessors)) for g in (apart, one)]

    def order(plan: ConvPlan) -> tuple[Any, ...]:
        if isinstance(plan, MatrixPlan):
            s = plan.sum
            return s.mode, s.spans, s.blocks, s.depth, s.halves
        if isinstance(plan, StreamingPlan):
            return plan.layout.chunks, plan.layout.shape.channels
        return ()

    assert type(plans[0]) is type(plans[1])
    assert order(plans[0]) == order(plans[1])


def test_spans_are_compared_in_all_batches() -> None:
    """Also those that large ones alone tell are not worth it."""
    chosen = []
    for channels, size in (128, 16), (192, 12), (256, 7), (256, 14), (256, 20), (512, 16), (512, 7):
        geometry = conv((1, channels, size, size), (channels, channels, 3, 3))
        mode = _matrix.mode("float16", "float32", "hopper", geometry, False)
        assert mode

        def cycles(
            spans: int, geometry: ConvGeometry = geometry, mode: _matrix.Mode = mode
        ) -> float:
            plans = [
                _plan._plan_matrix(replace(geometry, batch=n), mode, HOPPER, "hopper", spans=spans)
                for n in (1, 4, 16, 64)
            ]
            return math.prod(
                p.tiling.cycles + _plan._BESIDE for p in plans if not isinstance(p, str)
            )

        plan = _plan._plan_spans(geometry, np.dtype(np.float16), "float32", HOPPER, False)
        whole = _plan._plan_matrix(geometry, mode, HOPPER, "hopper")
        assert not isinstance(whole, str)
        most = min(whole.sum.blocks, whole.sum.steps // _plan._LEAST_STEPS, _plan._MOST_SPANS)
        numbers = [spans for spans in range(2, most + 1) if whole.sum.blocks % spans == 0]
        best = min(numbers, key=cycles)
        gains = cycles(best) <= _plan._GAIN * cycles(1)
        assert (plan.sum.spans if isinstance(plan, MatrixPlan) else 1) == (best if gains else 1)
        chosen.append(gains)
    assert set(chosen) == {True, False}


def test_phases_without_taps_have_no_spans() -> None:
    """There a team may be any number of tiles ahead of the other one."""
    sizes = (4, 140, 5, 6), (140, 73, 1, 2)
    for stride, dilation, kind in ((3, 3, DirectPlan), (1, 3, MatrixPlan)):
        geometry = conv_transpose(*sizes, stride=stride, dilation=dilation, groups=2)
        assert isinstance(plan_of(geometry, processor=HOPPER, kernel="spans"), kind)


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kernel must be one of .*'hopper'.*, got 'wgmma'"):
        plan_of(CHOSEN["matrix_conv.cu"][0], kernel="wgmma")


def with_batch(geometry: ConvGeometry, batch: int) -> ConvGeometry:
    fields = {name: getattr(geometry, name) for name in ConvGeometry.__dataclass_fields__}
    return ConvGeometry(**{**fields, "batch": batch})


@given(
    geometry=st.one_of(conv_geometries(), dense_geometries()),
    mode=st.one_of(modes, st.sampled_from([(dtype, "float32") for dtype in DTYPES])),
    processor=processors,
    batch=st.one_of(st.integers(1, 300), st.integers(1, 2**20)),
)
@example(
    geometry=conv((1, 86, 4, 4, 3), (32, 86, 1, 3, 2)),
    mode=(np.dtype("float32"), "float32"),
    processor=Processor("sm_86", 1),
    batch=7,
)  # a tile of several samples does not fit shared memory
@example(
    geometry=conv((1, 65, 16), (253, 65, 1)),
    mode=(np.dtype("float32"), "tf32"),
    processor=HOPPER,
    batch=300,
)  # for the pointwise kernel
def test_the_batch_does_not_choose_the_kernel(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], processor: Processor, batch: int
) -> None:
    """Nor, therefore, the order in which a sum is added up, in arrays that a GPU may hold."""
    outputs = geometry.groups * geometry.rows * math.prod(a.size_out for a in geometry.axes)
    inputs = geometry.groups * geometry.channels * math.prod(a.size_in for a in geometry.axes)
    assume(max(inputs, outputs) * max(batch, 7) < 2**34)
    one, seven, many = (plan_of(with_batch(geometry, n), *mode, processor) for n in (1, 7, batch))
    for plan in (seven, many):
        if isinstance(one, DirectPlan):  # which adds up step by step in any tile
            assert isinstance(plan, DirectPlan)
            assert kind(plan.launch) == kind(one.launch)
            assert plan.layout.phases == one.layout.phases
        elif isinstance(one, DepthwisePlan):
            assert isinstance(plan, DepthwisePlan)
            assert plan.launch.instance == one.launch.instance
        elif isinstance(one, GatherPlan):
            assert isinstance(plan, GatherPlan)
            assert plan.launch.instance == one.launch.instance
        elif isinstance(one, PlainPlan):
            assert isinstance(plan, PlainPlan)
        elif isinstance(one, StreamingPlan):
            assert isinstance(plan, StreamingPlan)
            chunks = {(p.layout.chunks, p.layout.shape.channels) for p in (one, plan)}
            assert len(chunks) == 1
        elif isinstance(one, PointwisePlan):  # which adds up channel by channel in any shape
            assert isinstance(plan, PointwisePlan)
        else:
            assert isinstance(plan, MatrixPlan)
            assert plan.sum == one.sum
            engines = {dict(p.launch.instance.defines)["ENGINE"] for p in (one, plan)}
            assert len(engines) == 1


def with_samples(case: Case, n: int) -> Case:
    """The case with its first sample n times."""
    x = case["input"][:1]
    return case.with_arrays(input=np.broadcast_to(x, (n, *x.shape[1:])))


def kind(launch: Launch) -> tuple[str, str]:
    """What decides on the order of a sum: the shape of a tile does not on matrix units, nor does
    that of the direct kernel, behind its element and its rank.
    """
    instance = launch.instance
    if instance.function == "direct_conv":
        return instance.function, str(instance.defines[:2])
    return instance.function, dict(instance.defines).get("ENGINE", str(instance))


@given(
    case=st.one_of(
        convolutions(unbatched=False),
        batch_norms(given=True),
        group_norms(),
        max_pools(unbatched=False),
        fused_operations(given=True),
    )
)
def test_one_sample_and_seven(case: Case) -> None:
    assume(case["input"].shape[0])
    one, seven = (launches_of(with_samples(case, n)) for n in (1, 7))
    assert [kind(launch) for launch in one] == [kind(launch) for launch in seven]


# Norms and pooling --------------------------------------------------------------------------


@st.composite
def large_shapes(draw: st.DrawFn, rank: int) -> Shape:
    """Shapes with one large axis."""
    shape = [draw(st.integers(1, 20)) for _ in range(rank)]
    shape[draw(st.integers(0, rank - 1))] = draw(lengths)
    return tuple(shape)


@given(
    shape=large_shapes(3),
    groups=st.integers(1, 8),
    kind=st.sampled_from(["batch", "given", "tanh", "group"]),
    dtype=st.sampled_from([d for d in REALS if d.kind not in "iu"]),
    processor=processors,
)
@example((1, 1, 1), 1, "batch", np.dtype(np.float32), Processor("sm_90a", 132))
@example((2**40, 1, 1), 1, "group", np.dtype(np.float32), Processor("sm_90a", 132))
@example((1, 1, 2**40), 1, "group", np.dtype(np.float32), Processor("sm_90a", 132))
def test_norm_plans(
    shape: Shape, groups: int, kind: str, dtype: np.dtype[Any], processor: Processor
) -> None:
    if kind == "tanh":
        dtype = np.dtype(np.float32)
    shape = (shape[0], groups * shape[1], *shape[2:])
    if kind == "group":
        geometry = _geometry.group_norm("f", shape, groups, {})
    else:
        geometry = _geometry.batch_norm("f", shape, {}, given=kind == "given")
    across = kind == "batch" and shape[1] % (16 // dtype.itemsize) == 0
    arguments = dtype, dtype, kind == "given", kind == "tanh", across, processor
    plan = _plan.plan_norm(geometry, *arguments)
    again = _plan.plan_norm.__wrapped__(geometry, *arguments)
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    launches = (*plan.statistics, plan.normalize)
    printed(plan, *launches)
    for launch in launches:
        assert launch.instance in ALL["sm_75"]
        assert 1 <= launch.grid <= MOST
        assert launch.block % 32 == 0 and launch.block <= threads(launch.instance)
    if kind == "group":  # nothing that decides the order of a sum follows from the batch
        alone = _geometry.group_norm("f", (1, *shape[1:]), groups, {})
        single = _plan.plan_norm(alone, *arguments)
        assert (single.segment, single.segments) == (plan.segment, plan.segments)
        assert single.normalize.block == plan.normalize.block
        assert len(single.statistics) == len(plan.statistics)
    parameters = geometry.channels * _plan._PARAMETERS
    used = geometry.elements * dtype.itemsize + parameters
    if plan.statistics:
        assert {launch.block for launch in launches} == {constant("normalize.cu", "THREADS")}
        assert (plan.segments > 0) == (plan.reads == 2) == (kind != "given")
        if plan.segments:  # follow from the size of a set alone
            assert plan.segment % (plan.pack * launches[0].block) == 0
            assert (plan.segments - 1) * plan.segment < geometry.elements
            assert geometry.elements <= plan.segments * plan.segment
        assert kind != "group" or used + _plan._SHARED_ASIDE > _plan.SHARED[processor.target]
    else:
        assert kind == "group"
        assert plan.reads == 1
        assert used <= plan.normalize.shared < used + 16
        assert plan.normalize.shared + _plan._SHARED_ASIDE <= _plan.SHARED[processor.target]


def test_large_groups_have_a_third_of_a_multiprocessor() -> None:
    """Blocks that load, that compute and that store side by side."""
    geometry = _geometry.group_norm("f", (512, 128, 34, 34), 8, {})
    dtype, h200 = np.dtype(np.float32), Processor("sm_90a", 132)
    launch = _plan.plan_norm(geometry, dtype, dtype, False, False, False, h200).normalize
    assert 3 * (launch.shared + _plan._SHARED_ASIDE) <= _plan.SHARED["sm_90a"]
    assert launch.block == 256


@given(
    shape=large_shapes(4),
    kernel=st.integers(1, 9),
    stride=steps,
    dtype=st.sampled_from(REALS),
)
@example(shape=(2**40, 1, 8, 8), kernel=1, stride=1, dtype=np.dtype(np.int8))
def test_pool_plans(shape: Shape, kernel: int, stride: int, dtype: np.dtype[Any]) -> None:
    shape = (*shape[:2], *(size + kernel for size in shape[2:]))
    geometry = _geometry.max_pool2d("f", shape, kernel, stride, 0, 1, False)
    plan = _plan.plan_pool(geometry, dtype)
    again = _plan.plan_pool.__wrapped__(geometry, dtype)
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    printed(plan, plan)
    assert plan.instance in ALL["sm_120"]
    assert plan.block == constant("max_pool2d.cu", "THREADS")
    blocks = -(-math.prod(geometry.out_shape) // (plan.block * _plan.UNROLL))
    assert plan.grid == max(1, min(blocks, MOST))


def test_instances_are_values() -> None:
    """Two descriptions of one kernel are one key."""
    (one, *_), (other, *_) = instances("sm_90a"), instances("sm_75")
    assert one == other and hash(one) == hash(other) and isinstance(one, Instance)
    with pytest.raises(AttributeError):
        one.source = "another.cu"  # type: ignore[misc]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "precision"), [*MODES, (np.dtype(np.float64), "float32")])
@pytest.mark.parametrize("channels", [1, 3, 64])
def test_many_phases_are_planned_quickly(
    target: str, dtype: np.dtype[Any], precision: str, channels: int
) -> None:
    """A stride as large as a large kernel has a phase for each tap: no loop runs over them."""
    seconds = []
    for attempt in range(3):
        geometry = conv_transpose(
            (1 + attempt, channels, 8, 8), (channels, 64, 512, 512), stride=512
        )
        begun = time.perf_counter()
        _plan.plan_conv(geometry, dtype, precision, Processor(target, 132))
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.02
