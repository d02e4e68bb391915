"""Plans: which kernel, how many blocks, and that all of it follows from rules alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import cupyconv
from cupyconv import _compile, _geometry, _paths, _plan
from cupyconv._geometry import ConvGeometry
from cupyconv._launch import Arguments, KernelPath
from cupyconv._plan import TARGETS, Instance, Launch, instances
from reference import Array, Shape
from strategies import (
    DTYPES,
    REALS,
    Case,
    batch_norms,
    convolutions,
    fused_operations,
    group_norms,
    max_pools,
)

MOST = 2**31 - 1  # blocks of a grid, and the largest coordinate of 32 bits


class Recorder:
    """A device that runs nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def address(self, array: Array) -> int:
        return array.__array_interface__["data"][0]

    def workspace(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def cast(self, array: Array, dtype: np.dtype[Any]) -> Array:
        return array.astype(dtype, copy=False)

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        def run(arguments: Arguments) -> None:
            assert arguments.typecode == "q"
            self.launches.append(launch)

        return run


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """The launches of the calls in a block, by NumPy arrays on their way to a GPU."""
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_paths, "numpy_path", KernelPath(recorder))
        yield recorder.launches


def launches_of(case: Case) -> list[Launch]:
    with recorded() as launches:
        getattr(cupyconv, case.function)(**case.arrays, **case.options)
    return launches


ALL = {target: set(instances(target)) for target in TARGETS}
any_case = st.one_of(
    convolutions(), convolutions(), batch_norms(), group_norms(), max_pools(), fused_operations()
)


def constant(source: str, name: str) -> int:
    """A ``constexpr int`` of a kernel file."""
    found = re.search(rf"^constexpr int {name} = (\d+);$", _compile.source(source), re.MULTILINE)
    assert found, (source, name)
    return int(found[1])


@given(case=any_case)
def test_every_launch_is_of_a_listed_instance(case: Case) -> None:
    launches = launches_of(case)
    assert launches or 0 in getattr(cupyconv, case.function)(**case.arrays, **case.options).shape
    for launch in launches:
        assert 1 <= launch.grid <= MOST
        assert launch.block == constant(launch.instance.source, "THREADS")
        for target in TARGETS:
            assert launch.instance in ALL[target]


@pytest.mark.parametrize("target", TARGETS)
def test_instances(target: str) -> None:
    listed = instances(target)
    assert len(listed) == len(set(listed)), "an instance is listed twice"
    compiled = {(instance.source, instance.defines) for instance in listed}
    assert 1 <= len(compiled) <= 120
    for instance in listed:
        text = _compile.source(instance.source)
        kernel = rf'extern "C" __global__ void __launch_bounds__\([^)]*\)\s+{instance.function}\('
        assert re.search(kernel, text), instance
        for name, value in instance.defines:
            assert re.search(rf"\b{name}\b", text), (instance, name)
            assert value


def test_every_kernel_has_an_instance() -> None:
    for path in _compile.directory().glob("*.cu"):
        kernels = set(
            re.findall(r"__global__ void __launch_bounds__\([^)]*\)\s+(\w+)\(", path.read_text())
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
    assert _plan.MAX_AXES >= _geometry.MAX_RANK + 2


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


def rank_of(geometry: ConvGeometry, dtype: Any = np.float32) -> int:
    """The kernel's RANK; 0 stands for any number of axes and 64-bit coordinates."""
    plan = _plan.plan_conv(geometry, np.dtype(dtype))
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
    assert rank in (0, geometry.rank)
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
    assert rank_of(make(2**31 - 1000)) == make(1000).rank
    assert rank_of(make(2**31 + 200)) == 0
    assert rank_of(make(2**32 - 8)) == 0


@pytest.mark.parametrize("rank", range(1, 8))
def test_rank(rank: int) -> None:
    small = conv((1, 1, *(5,) * rank), (1, 1, *(2,) * rank))
    assert rank_of(small) == (rank if rank <= 3 else 0)
    small = conv_transpose((1, 1, *(5,) * rank), (1, 1, *(2,) * rank), stride=2)
    assert rank_of(small) == (rank if rank <= 3 else 0)


@given(geometry=conv_geometries(), dtype=st.sampled_from(DTYPES))
@example(geometry=conv((2**40, 1, 9), (1, 1, 9)), dtype=np.dtype(np.float32))
@example(geometry=conv((1, 2**34, 9), (2**34, 1, 9), groups=2**34), dtype=np.dtype(np.float64))
def test_conv_plans(geometry: ConvGeometry, dtype: np.dtype[Any]) -> None:
    plan = _plan.plan_conv(geometry, dtype)
    again = _plan.plan_conv.__wrapped__(geometry, dtype)
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    assert plan.launch.instance in ALL["sm_90a"]
    assert plan.launch.block == constant("direct_conv.cu", "THREADS")
    printed(plan, plan.launch)
    # The tiles cover all rows of a group and all positions of the largest phase.
    defines = dict(plan.launch.instance.defines)
    row_threads = int(defines["ROW_THREADS"])
    rows = row_threads * int(defines["THREAD_ROWS"])
    positions = plan.launch.block // row_threads * int(defines["THREAD_POSITIONS"])
    largest = geometry.batch * math.prod(-(-axis.size_out // axis.phases) for axis in geometry.axes)
    assert (plan.row_tiles - 1) * rows < geometry.rows <= plan.row_tiles * rows
    assert (plan.position_tiles - 1) * positions < largest <= plan.position_tiles * positions
    phases = [min(axis.phases, axis.size_out) for axis in geometry.axes]
    assert plan.phases == math.prod(phases), "one for each residue that has outputs"
    tiles = plan.phases * plan.row_tiles * plan.position_tiles * geometry.groups
    assert plan.launch.grid == min(tiles, MOST)


def printed(plan: Any, *launches: Launch) -> None:
    """Whoever reads a printed plan can launch it by hand."""
    for launch in launches:
        instance = launch.instance
        assert f"{instance.source}:{instance.function} [" in str(plan)
        for name, value in instance.defines:
            assert f"{name}={value}" in str(plan)
        assert f"{launch.grid} blocks of {launch.block} threads" in str(plan)


@given(geometry=conv_geometries(), dtype=st.sampled_from(DTYPES), batch=lengths)
def test_the_batch_does_not_choose_the_kernel(
    geometry: ConvGeometry, dtype: np.dtype[Any], batch: int
) -> None:
    """Nor, therefore, the order in which a sum is added up."""
    plans = []
    for n in (1, 7, batch):
        shape = vars(geometry) | {"batch": n}
        fields = {name: shape[name] for name in ConvGeometry.__dataclass_fields__}
        plans.append(_plan.plan_conv(ConvGeometry(**fields), dtype))
    assert len({(p.launch.instance, p.phases, p.row_tiles) for p in plans}) == 1


def with_samples(case: Case, n: int) -> Case:
    """The case with its first sample n times."""
    x = case["input"][:1]
    return case.with_arrays(input=np.broadcast_to(x, (n, *x.shape[1:])))


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
    assert [launch.instance for launch in one] == [launch.instance for launch in seven]


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
    kind=st.sampled_from(["batch", "given", "group"]),
    dtype=st.sampled_from([d for d in REALS if d.kind not in "iu"]),
)
@example(shape=(1, 1, 1), groups=1, kind="batch", dtype=np.dtype(np.float32))
@example(shape=(2**40, 1, 1), groups=1, kind="group", dtype=np.dtype(np.float32))
def test_norm_plans(shape: Shape, groups: int, kind: str, dtype: np.dtype[Any]) -> None:
    shape = (shape[0], groups * shape[1], *shape[2:])
    if kind == "group":
        geometry = _geometry.group_norm("f", shape, groups, {})
    else:
        geometry = _geometry.batch_norm("f", shape, {}, given=kind == "given")
    plan = _plan.plan_norm(geometry, dtype, dtype, kind == "given")
    again = _plan.plan_norm.__wrapped__(geometry, dtype, dtype, kind == "given")
    assert plan == again and hash(plan) == hash(again) and str(plan) == str(again)
    launches = (*plan.statistics, plan.normalize)
    printed(plan, *launches)
    for launch in launches:
        assert launch.instance in ALL["sm_75"]
        assert 1 <= launch.grid <= MOST
        assert launch.block == constant("normalize.cu", "THREADS")
    # Segments, which decide the order of a sum, follow from the size of a set alone.
    assert plan.segment % launches[0].block == 0
    assert (plan.segments - 1) * plan.segment < geometry.elements <= plan.segments * plan.segment
    if kind == "group":
        alone = _geometry.group_norm("f", (1, *shape[1:]), groups, {})
        single = _plan.plan_norm(alone, dtype, dtype, False)
        assert (single.segment, single.segments) == (plan.segment, plan.segments)


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
    blocks = -(-math.prod(geometry.out_shape) // plan.block)
    assert plan.grid == max(1, min(blocks, MOST))


def test_instances_are_values() -> None:
    """Two descriptions of one kernel are one key."""
    (one, *_), (other, *_) = instances("sm_90a"), instances("sm_75")
    assert one == other and hash(one) == hash(other) and isinstance(one, Instance)
    with pytest.raises(AttributeError):
        one.source = "another.cu"  # type: ignore[misc]
