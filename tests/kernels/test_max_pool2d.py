"""The kernel of max pooling: its plans, and each of its instances on the emulator."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import test_pooling
from bounds import assert_same_bits
from cupyconv import _geometry
from cupyconv._kernels import max_pool2d, views
from cupyconv._kernels.launches import Instance
from planning import ALL, HOPPER, MOST, checked, constant, large_shapes, steps
from reference import Shape
from running import Recorder, channels_last, dtype_of, instances_of, layouts, on_the_emulator
from strategies import REALS, Case, values
from subjects import Subject

POOLS = instances_of("max_pool2d.cu")
ACROSS = [instance for instance in POOLS if dict(instance.defines)["ACROSS"] == "1"]


def threads(_: Instance) -> int:
    return constant("max_pool2d.cu", "THREADS")


SUBJECTS = (
    Subject(
        max_pool2d,
        threads=threads,
        tested=POOLS,
        limits={name: getattr(views, name) for name in ("THREADS", "UNROLL")},
    ),
)


@given(
    shape=large_shapes(4),
    kernel=st.integers(1, 99),
    stride=steps,
    dtype=st.sampled_from(REALS),
    across=st.builds(max_pool2d.Across, st.booleans(), st.booleans()),
)
@example(
    shape=(2**40, 1, 8, 8),
    kernel=1,
    stride=1,
    dtype=np.dtype(np.int8),
    across=max_pool2d.NOWHERE,
)
def test_pool_plans(
    shape: Shape, kernel: int, stride: int, dtype: np.dtype[Any], across: max_pool2d.Across
) -> None:
    shape = (*shape[:2], *(size + kernel for size in shape[2:]))
    geometry = _geometry.max_pool2d("f", shape, kernel, stride, 0, 1, False)
    plan = checked(partial(max_pool2d.plan, geometry, dtype, HOPPER, across))
    assert plan.passes[-1].out_shape == geometry.out_shape[-2:]
    assert len(plan.passes) == len(plan.launches) == len(plan.between) + 1
    most = max(max_pool2d._MOST_BETWEEN, sum(plan.between) // plan.samples * dtype.itemsize)
    assert sum(plan.between) * dtype.itemsize <= most
    lead = plan.samples * shape[1]
    for one, launch in zip(plan.passes, plan.launches, strict=True):
        assert launch.instance in ALL["sm_120"]
        macros = dict(launch.instance.defines)
        assert (macros["LANES"], macros["ACROSS"]) == (str(one.lanes), str(int(one.across)))
        assert launch.block == constant("max_pool2d.cu", "THREADS")
        windows = launch.block // one.lanes * (views.UNROLL if one.lanes == 1 else 1)
        windows *= views.PACK // dtype.itemsize if one.across else 1
        assert launch.grid == min(-(-lead * math.prod(one.out_shape) // windows), MOST)
    ends = plan.passes[0], plan.passes[-1]
    innermost = [one for one, whether in zip(ends, across, strict=True) if whether]
    assert [one for one in plan.passes if one.across] == [
        one for one in plan.passes if one in innermost and one.lanes == 1
    ]


@on_the_emulator("instance", cases=[one for one in POOLS if one not in ACROSS])
@pytest.mark.parametrize("number", range(3))
def test_pool_instance(instance: Instance, number: int) -> None:
    """Several blocks; windows that reach out of the array, pairs, and others.

    A warp shares lines, two of them, or columns.
    """
    macros = dict(instance.defines)
    height, widths, windows = {
        "1": (41, (23, 24), [(3, 2, 1), (2, 2, 0), (3, 1, 0)]),
        "32": (43, (67, 72), [((1, 40), (5, 40), (0, 20)), ((2, 32), 32, 0), ((33, 1), 33, 0)]),
    }[macros["LANES"]]
    options = dict(zip(("kernel_size", "stride", "padding"), windows[number], strict=True))
    backend = Recorder()
    for width in widths:
        for x in layouts(
            values(np.random.default_rng(0), (2, 3, height, width), dtype_of(macros["ELEMENT"]))
        ):
            test_pooling.check(backend, Case("max_pool2d", {"input": x}, options))
    assert {launch.instance for launch in backend.launches} == {instance}
    assert max(launch.grid for launch in backend.launches) > 1


@on_the_emulator("instance", cases=ACROSS)
@pytest.mark.parametrize("number", range(3))
def test_channels_innermost(instance: Instance, number: int) -> None:
    """Several blocks; the input, the result or both have their channels innermost."""
    windows = [(3, 1, 1), ((2, 3), (1, 2), (0, 1)), ((1, 5), 1, (0, 2))][number]
    options = dict(zip(("kernel_size", "stride", "padding"), windows, strict=True))
    shape, dtype = (3, 32, 13, 17), dtype_of(dict(instance.defines)["ELEMENT"])
    x = values(np.random.default_rng(number), shape, dtype)
    backend = Recorder()
    expected = backend.compute(Case("max_pool2d", {"input": x}, options))
    results = []
    for view in (x, channels_last(x)):
        case = Case("max_pool2d", {"input": view}, options)
        test_pooling.check(backend, case)
        outs = np.empty_like(expected), channels_last(np.empty_like(expected))
        results += [backend.compute(case, out=out) for out in outs]
    for result in results:
        assert_same_bits(result, expected)
    # Both layouts in C order, one of them, and none.
    launched = [launch.instance == instance for launch in backend.launches]
    assert launched == [False, False, False, True, True, True, True]
    assert max(launch.grid for launch in backend.launches) > 1
