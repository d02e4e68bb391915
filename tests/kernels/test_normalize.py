"""The kernels of norms: their plans, and each of their instances on the emulator."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import test_fused
import test_norms
from bounds import assert_same_bits
from cupyconv import _geometry
from cupyconv._geometry import group_norm
from cupyconv._kernels import normalize, views
from cupyconv._kernels.launches import SHARED, TARGETS, WARP, Instance, Launch, Processor
from cupyconv._kernels.normalize import Across
from planning import (
    ALL,
    MOST,
    Steering,
    assert_shared_memory,
    checked,
    constant,
    large_shapes,
    processors,
)
from reference import Shape
from running import Recorder, dtype_of, instances_of, layouts, on_the_emulator
from strategies import REALS, Case, values
from subjects import Subject

INSTANCES = instances_of("normalize.cu")
FUSED_DTYPES = [
    i for i in INSTANCES if dict(i.defines).get("INPUT") != dict(i.defines).get("OUTPUT")
]
FUSED_ONLY = [i for i in INSTANCES if i in FUSED_DTYPES or i.function == "normalize_tanh"]
NORMS = [i for i in INSTANCES if i not in FUSED_ONLY]
OF_SETS = "normalize_sets", "normalize_bundles"
NOWHERE = Across(statistics=False, normalize=False, bundle=0)


def threads(instance: Instance) -> int:
    most = "MOST_THREADS" if instance.function in OF_SETS else "THREADS"
    return constant("normalize.cu", most)


SUBJECTS = (
    Subject(
        normalize,
        threads=threads,
        any_warps=OF_SETS,
        tested=[*NORMS, *FUSED_ONLY],
        limits={
            "MAX_AXES": views.MAX_AXES,
            **{name: getattr(normalize, name) for name in ("MOST_THREADS", "MOST_CHANNELS")},
            "LANES": WARP,
            **{name: getattr(views, name) for name in ("THREADS", "UNROLL")},
        },
    ),
)


def test_a_kernel_has_all_axes() -> None:
    assert views.MAX_AXES >= _geometry.MAX_RANK + 4  # a batch, groups, their channels, lanes


@given(
    shape=large_shapes(3),
    groups=st.integers(1, 8),
    kind=st.sampled_from(["batch", "given", "tanh", "group"]),
    dtype=st.sampled_from([d for d in REALS if d.kind not in "iu"]),
    innermost=st.booleans(),
    processor=processors,
)
@example((1, 1, 1), 1, "batch", np.dtype(np.float32), False, Processor("sm_90a", 132))
@example((2**40, 1, 1), 1, "group", np.dtype(np.float32), False, Processor("sm_90a", 132))
@example((1, 1, 2**40), 1, "group", np.dtype(np.float32), True, Processor("sm_90a", 132))
def test_norm_plans(
    shape: Shape,
    groups: int,
    kind: str,
    dtype: np.dtype[Any],
    innermost: bool,
    processor: Processor,
) -> None:
    if kind == "tanh":
        dtype = np.dtype(np.float32)
    shape = (shape[0], groups * shape[1], *shape[2:])
    if kind == "group":
        geometry = _geometry.group_norm("f", shape, groups, {})
    else:
        geometry = _geometry.batch_norm("f", shape, {}, given=kind == "given")
    by_channel = normalize._lines(geometry) == geometry.channels
    whole = shape[1] % (16 // dtype.itemsize) == 0
    across = Across(innermost and by_channel and whole, innermost, math.gcd(groups, 4) * innermost)
    arguments = dtype, dtype, kind == "given", kind == "tanh", across, processor
    plan = checked(partial(normalize.plan, geometry, *arguments), processor)
    for launch in plan.launches:
        assert launch.instance in ALL["sm_75"]
        assert launch.block % 32 == 0 and launch.block <= threads(launch.instance)
    if kind == "group":  # nothing that decides the order of a sum follows from the batch
        alone = _geometry.group_norm("f", (1, *shape[1:]), groups, {})
        single = normalize.plan(alone, *arguments)
        assert (single.segment, single.segments) == (plan.segment, plan.segments)
        assert single.normalize.block == plan.normalize.block
        assert len(single.statistics) == len(plan.statistics)
    parameters = (geometry.channels + 1) * normalize.PARAMETERS
    used = geometry.elements * dtype.itemsize + parameters
    if plan.statistics:
        assert {launch.block for launch in plan.launches} == {constant("normalize.cu", "THREADS")}
        assert (plan.segments > 0) == (plan.reads == 2) == (kind != "given")
        if plan.segments:  # follow from the size of a set alone
            line = geometry.elements // normalize._lines(geometry)
            assert plan.segment % (plan.pack * WARP) == 0
            assert (plan.segments - 1) * plan.segment < line <= plan.segments * plan.segment
        assert kind != "group" or used + normalize.SHARED_ASIDE > SHARED[processor.target]
    else:
        assert kind == "group"
        assert plan.reads == 1
        assert plan.bundle in (1, across.bundle)
        assert plan.normalize.grid == min(geometry.sets // plan.bundle, MOST)
        assert used <= plan.normalize.shared / plan.bundle < used + 16
        assert plan.normalize.shared + normalize.SHARED_ASIDE <= SHARED[processor.target]


def test_large_groups_have_a_third_of_a_multiprocessor() -> None:
    """Blocks that load, that compute and that store side by side."""
    geometry = _geometry.group_norm("f", (512, 128, 34, 34), 8, {})
    dtype, h200 = np.dtype(np.float32), Processor("sm_90a", 132)
    launch = normalize.plan(geometry, dtype, dtype, False, False, NOWHERE, h200).normalize
    assert 3 * (launch.shared + normalize.SHARED_ASIDE) <= SHARED["sm_90a"]
    assert launch.block == 256


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_of_norms(target: str) -> None:
    """What a kernel declares and what its launch asks for fit, for sets of all sizes."""
    processor, single = Processor(target, 132), np.dtype(np.float32)
    for elements in range(1000, 70_000, 199):
        geometry = group_norm("group_norm", (2, 1, elements), 1, {})
        plan = normalize.plan(geometry, single, single, False, False, NOWHERE, processor)
        assert_shared_memory(plan, target, plan.normalize)


@pytest.fixture
def few_fit(steer: Steering) -> None:
    """Shared memory is for none but the smallest groups."""
    steer.replace(normalize, SHARED_ASIDE=SHARED["sm_90a"] - 64)


def norms_on_all_layouts(
    function: str, shape: tuple[int, ...], dtype: Any, arrays: dict[str, Any], **options: Any
) -> list[Launch]:
    """Check a norm on each layout, of the input and of the result: all have the same bits."""
    x = values(np.random.default_rng(0), shape, dtype)
    backend, results = Recorder(), []
    for view in layouts(x):
        case = Case(function, {"input": view, **arrays}, options)
        test_norms.check(backend, case)
        results.append(backend.compute(case))
        for out in layouts(np.empty_like(x)):
            results.append(backend.compute(Case(function, case.arrays, options), out=out))
    for result in results[1:]:
        assert_same_bits(result, results[0])
    return backend.launches


@cache
def norm_launches(kind: str, dtype: Any, width: int) -> list[Launch]:
    """Several segments in each set, or several sets of several packs for each thread."""
    weight = values(np.random.default_rng(1), (8,), np.float64)
    arrays: dict[str, Any] = {"weight": weight, "bias": weight[::-1]}
    if kind == "sets":
        shape = (3, 8, 23, width)
        return norms_on_all_layouts("group_norm", shape, dtype, arrays, num_groups=2)
    if kind == "given":
        arrays |= {"mean": weight, "var": weight * weight}
        return norms_on_all_layouts("batch_norm", (2, 8, 5, width), dtype, arrays)
    return norms_on_all_layouts("batch_norm", (8, 8, 45, width), dtype, arrays)


@on_the_emulator("instance", cases=NORMS)
@pytest.mark.parametrize("width", [48, 47])
def test_norm_instance(instance: Instance, width: int) -> None:
    """Instances that one call has together are tested by it."""
    kind = {**dict.fromkeys(OF_SETS, "sets"), "given": "given"}.get(instance.function, "batch")
    dtype = dtype_of(dict(instance.defines)["INPUT"])
    assert instance in [launch.instance for launch in norm_launches(kind, dtype, width)]


@on_the_emulator("groups", cases=[2, 8, 16, 48])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_bundles_of_groups(groups: int, dtype: Any) -> None:
    """One channel or several in a group; a step has channels of several groups."""
    weight = values(np.random.default_rng(1), (48,), np.float64)
    arrays = {"weight": weight, "bias": weight[::-1]}
    launches = norms_on_all_layouts("group_norm", (2, 48, 5, 8), dtype, arrays, num_groups=groups)
    sets = {launch.grid for launch in launches if launch.instance.function == "normalize_bundles"}
    sector, channels = 32 // np.dtype(dtype).itemsize, 48 // groups
    bundle = next(n for n in range(1, 48) if groups % n == 0 and n * channels >= sector)
    assert sets == {2 * groups // bundle}


@on_the_emulator("width", cases=[48, 47])
@pytest.mark.usefixtures("few_fit")
def test_groups_that_do_not_fit(width: int) -> None:
    launches = norms_on_all_layouts("group_norm", (4, 4, 25, width), np.float32, {}, num_groups=2)
    functions = {launch.instance.function for launch in launches}
    across = {"statistics_across", "normalize_across"}
    assert functions == {"statistics", "combine", "normalize", *across}


@on_the_emulator("instance", cases=FUSED_ONLY)
def test_instance_of_the_fused_operation(
    instance: Instance, request: pytest.FixtureRequest
) -> None:
    if instance.function != "normalize_sets":
        request.getfixturevalue("few_fit")
    backend = Recorder("direct")
    dtype = dtype_of(dict(instance.defines)["OUTPUT"])
    shapes = (2, 4, 22, 26), (4, 6, 3, 3)
    test_fused.check(backend, test_fused.fused_case(*shapes, dtype, num_groups=3))
    assert instance in [launch.instance for launch in backend.launches]
