"""Sums that are split along K, for gradients of weights: their plans, and their addition."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import reference
from bounds import assert_convolution
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import choice, sum_splits, weight_gradient
from cupyconv._kernels.launches import INT32_LIMIT, Instance, Processor
from cupyconv._kernels.question import Question
from planning import HOPPER, MOST, checked, constant, conv, conv_geometries, processors
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import DTYPES, poison, values
from subjects import Subject

SUMS = instances_of("sum_splits.cu")


def threads(_: Instance) -> int:
    return constant("sum_splits.cu", "THREADS")


SUBJECTS = (
    Subject(sum_splits, threads=threads, tested=SUMS, limits={"THREADS": sum_splits.THREADS}),
)


@given(forward=conv_geometries(), dtype=st.sampled_from(DTYPES), processor=processors)
@example(conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1), np.dtype(np.float32), HOPPER)
@example(conv((1, 1, 2**22), (3, 1, 9)), np.dtype(np.complex128), HOPPER)
@example(conv((2**20, 1, 9), (512, 1, 9)), np.dtype(np.int8), HOPPER)
@example(conv((0, 3, 9, 9), (5, 3, 3, 3)), np.dtype(np.float32), HOPPER)
def test_split_plans(forward: ConvGeometry, dtype: np.dtype[Any], processor: Processor) -> None:
    """The ranges cover all K steps, none is empty, and partial sums take 32 MB at the most."""
    assume(not forward.transposed)
    geometry = weight_gradient.as_convolution(forward)
    assert geometry.out_shape[:2] == (forward.channels, forward.groups * forward.rows)
    assume(0 not in geometry.out_shape)
    question = Question(forward, dtype, "float32", processor)
    plan = checked(partial(weight_gradient.plan, question), processor)
    layout, steps = (
        plan.layout,
        geometry.channels * math.prod(axis.kernel for axis in geometry.axes),
    )
    assert layout.phases == 1
    assert steps <= layout.splits * layout.split_steps
    assert steps == 0 or (layout.splits - 1) * layout.split_steps < steps
    assert layout.split_steps % constant("direct_conv.cu", "SEGMENT") == 0
    tiles = layout.row_tiles * layout.position_tiles * geometry.groups
    assert plan.launch.grid == min(tiles * layout.splits, MOST)
    assert (plan.add is None) == (layout.splits == 1)
    itemsize = max(4, np.dtype(dtype).itemsize)
    if plan.add is not None:
        assert plan.workspace == layout.splits * math.prod(geometry.out_shape) * itemsize <= 2**25
        assert steps < INT32_LIMIT or dict(plan.launch.instance.defines)["RANK"] == "0"
    else:
        assert plan.workspace == 0


def test_a_long_sum_fills_the_gpu() -> None:
    """A layer of ResNet-50: its gradient has fewer tiles than a GPU has multiprocessors."""
    forward = conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1)
    question = Question(forward, np.dtype(np.float32), "float32", HOPPER)
    plan = weight_gradient.plan(question)
    assert 1.5 * HOPPER.multiprocessors < plan.launch.grid <= 2 * HOPPER.multiprocessors


@on_the_emulator("instance", cases=SUMS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=["in order", "transposed"])
def test_sums_of_splits(instance: Instance, order: tuple[int, ...]) -> None:
    """Several ranges, the last one shorter, and more than one block of outputs."""
    dtype = dtype_of(dict(instance.defines)["ELEMENT"])
    rng = np.random.default_rng(0)
    forward = conv((2, 5, 700), (9, 5, 3), stride=2)
    data = values(rng, (2, 5, 700), dtype)
    grad_output = values(rng, forward.out_shape, dtype)
    out = poison(np.empty([(9, 5, 3)[axis] for axis in order], dtype))
    out = out.transpose(np.argsort(order))
    backend = Recorder()
    arguments = forward, data, grad_output, out, "float32"
    with choice.forced("direct"):
        backend.path.prepare_weight_gradient(*arguments)(data, grad_output, out)
    assert_convolution(out, reference.conv_weight(data, out.shape, grad_output, stride=2), dtype)
    sums, add = backend.launches
    assert add.instance == instance
    assert add.grid > 1
    assert sums.grid > 2, "several ranges, and two tiles of rows"
    assert 2 * forward.out_shape[-1] % constant("direct_conv.cu", "SEGMENT")
