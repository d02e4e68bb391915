"""Sums of several split-K slices by the dense kernel: plans, promises, and instances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import test_convolution
import test_windows
from backends import NumpyBackend, forced_backends
from bounds import assert_convolution, assert_same_bits
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import matrix_conv, matrix_tiles, modes
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import Instance
from cupyconv._kernels.matrix_conv import MatrixPlan
from cupyconv._kernels.question import Question
from matrices import parts_of
from planning import HOPPER, Steering, conv, conv_transpose, plan_of
from running import (
    call_for,
    instances_of,
    on_the_emulator,
    run_once,
)
from strategies import MODES, Convolution, convolution, deep_convolutions
from subjects import Example

BACKENDS = forced_backends("spans", wgmma=True)
SPANS = [i for i in instances_of("matrix_conv.cu") if ("SPANS", "1") in i.defines]


# Many channels on small images: sums of several slices, whose samples alone have few tiles.
DEEP = [
    convolution(function, input_shape, weight_shape, dtype, precision=precision, bias=True, **more)
    for dtype, precision in MODES
    for function, input_shape, weight_shape, more in (
        ("conv2d", (4, 70, 7, 9), (70, 70, 3, 3), {"padding": 1}),
        ("conv_transpose2d", (3, 80, 5, 7), (80, 40, 3, 4), {"stride": 2, "groups": 2}),
    )
]
for case in DEEP[::2]:
    case["input"][1, :, 3] = np.nan
    case["input"][2, 5, 1, ::3] = np.inf


EXAMPLE = Example(
    ("sm_90a",),
    conv((8, 64, 14, 14), (64, 64, 3, 3), padding=1),  # its slices have several K blocks
    drawn=[deep_convolutions()],
    promised=DEEP,
    lines=[convolution("conv2d", (2, 70, 4, 38), (20, 70, 3, 3), "float16", padding=1)],
)


def test_the_number_of_slices_is_the_best_one() -> None:
    """For a single sample, whatever the call's batch is."""
    for channels, size in (128, 16), (192, 12), (256, 7), (512, 16), (512, 7):
        geometry = conv((4, channels, size, size), (channels, channels, 3, 3))
        mode = modes.mode("float16", "float32", "hopper", geometry, False)
        assert mode

        def cycles(spans: int, geometry: ConvGeometry = geometry, mode: modes.Mode = mode) -> float:
            compared = replace(geometry, batch=1)
            plan = matrix_conv.plan_in_mode(compared, mode, HOPPER, "hopper", spans=spans)
            return math.inf if isinstance(plan, str) else plan.layout.cycles

        plan = matrix_conv.plan_split_k(Question(geometry, np.dtype(np.float16), "float32", HOPPER))
        whole = matrix_conv.plan_in_mode(geometry, mode, HOPPER, "hopper")
        assert isinstance(plan, MatrixPlan) and isinstance(whole, MatrixPlan)
        most = min(
            whole.summation.blocks,
            whole.summation.steps // matrix_conv._LEAST_STEPS,
            matrix_conv._MOST_SPANS,
        )
        numbers = [spans for spans in range(2, most + 1) if whole.summation.blocks % spans == 0]
        assert cycles(plan.summation.spans) == min(map(cycles, numbers))


def test_phases_without_taps_have_no_slices() -> None:
    """There a warpgroup may be any number of tiles ahead of the other one."""
    sizes = (4, 140, 5, 6), (140, 73, 1, 2)
    for stride, dilation, kind in ((3, 3, DirectPlan), (1, 3, MatrixPlan)):
        geometry = conv_transpose(*sizes, stride=stride, dilation=dilation, groups=2)
        assert isinstance(plan_of(geometry, processor=HOPPER, kernel="spans"), kind)


@pytest.mark.parametrize("backend", BACKENDS)
@test_convolution.every_mode
@pytest.mark.parametrize("geometry", ["padded", "phases", "three axes"])
def test_special_values_in_spans(
    backend: NumpyBackend, mode: test_convolution.Mode, geometry: str
) -> None:
    """In one of them or in several."""
    function, input_shape, weight_shape, options = {
        "padded": ("conv2d", (4, 70, 6, 7), (70, 70, 3, 3), {"padding": 2}),
        "phases": ("conv_transpose2d", (4, 40, 4, 5), (40, 70, 3, 4), {"stride": 2}),
        "three axes": ("conv3d", (4, 80, 3, 4, 5), (20, 40, 2, 3, 3), {"groups": 2}),
    }[geometry]
    dtype, precision = mode
    case = convolution(function, input_shape, weight_shape, dtype, precision=precision, **options)
    case = test_convolution.special(case)
    x = case["input"].copy()
    x[3, -1] = -x[0, 0]
    test_convolution.check(backend, case.with_arrays(input=x))


@st.composite
def deep_calls(draw: st.DrawFn) -> Convolution:
    """Calls in which a range of channels, or of samples, is spread: what one slice sees."""
    samples = draw(st.sampled_from([1, 2, 5]))
    case = convolution(
        "conv2d", (samples, 70, 5, 7), (70, 70, 3, 3), padding=1,
        precision=draw(st.sampled_from(test_windows.PRECISIONS)),
    )  # fmt: skip
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = {}
    for name in ("input", "weight"):
        a = case[name].copy()
        first, last = sorted(draw(st.tuples(st.integers(0, 70), st.integers(0, 70))))
        own = a[draw(st.sampled_from([slice(None), slice(0, 1)])), first:last]
        own[...] = test_windows.spread(rng, own, draw(st.sampled_from(test_windows.SPREADS)), 30, 0)
        arrays[name] = a
    return case.with_arrays(**arrays)


@pytest.mark.parametrize("backend", BACKENDS)
@given(case=deep_calls())
@example(case=test_windows.late("float32"))
@example(case=test_windows.late("tf32"))
def test_magnitudes_in_spans(backend: NumpyBackend, case: Convolution) -> None:
    result = backend.compute(case)
    assert_convolution(result, case.defined, np.float32, case.precision)
    alone = backend.compute(case.with_arrays(input=case["input"][-1:]))
    assert_same_bits(alone, result[-1:])


# What sums of several slices tell apart, by the channels c and the rows r of a group.
SPLIT_K_KINDS: dict[str, Any] = {
    "apart": lambda c, r: ("conv2d", (1, 2 * c, 5, 9), (2 * r, c, 3, 2), {"padding": 1}),
    "together": lambda c, r: (
        "conv_transpose2d", (9, 2 * c, 5, 13), (2 * c, r, 3, 3), {"stride": (2, 1)},
    ),
    "three axes": lambda c, r: ("conv3d", (2, 2 * c, 4, 5, 7), (2 * r, c, 2, 1, 3), {}),
}  # fmt: skip


@on_the_emulator("instance", cases=SPANS)
@pytest.mark.parametrize("kind", SPLIT_K_KINDS)
def test_split_k_instance(instance: Instance, kind: str, steer: Steering) -> None:
    """Two groups, and three slices, the last one with a ragged block of channels."""
    _, _, precision, mode, shape = parts_of(instance)
    apart, candidates = kind != "together", matrix_tiles.candidates

    def chosen(*arguments: Any) -> Iterator[matrix_tiles.Tiling]:
        return (replace(one, apart=apart) for one in candidates(*arguments))

    for module in (matrix_conv, matrix_tiles):
        steer.replace(module, span_shapes=lambda mode: (shape,))
    steer.replace(matrix_tiles, candidates=chosen)
    steer.replace(modes, mode=lambda *arguments: mode)
    call = SPLIT_K_KINDS[kind](9 * mode.block - 5, shape.rows + 9)
    plan = run_once("spans", call_for(instance, call, 2, precision), instance)
    sum, tiling = plan.summation, plan.layout
    assert sum.spans in (3, 9) and sum.channels % mode.block
    assert tiling.apart == apart and not tiling.resident
    assert tiling.row_tiles > 1
    tiles = 2 * tiling.count * sum.phases
    assert plan.launch.grid < tiles * (sum.spans if apart else 1), "each block has one tile"
