"""The channels-last depthwise kernel: its plans, its instances, and the bits of its results."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_im2col_conv import ARRANGED, compute_into, last

from backends import NumpyBackend, forced_backends
from bounds import assert_convolution, assert_same_bits
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import choice, depthwise_last
from cupyconv._kernels.depthwise_last import DepthwiseLastPlan
from cupyconv._kernels.launches import SINGLES, Instance, Processor
from cupyconv._kernels.question import Question
from cupyconv._packing import c_strides
from cupyconv._strides import ConvStrides
from planning import HOPPER, Steering, conv, conv_transpose, processors
from reference import Array
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import FLOATS, STYLES, Convolution, convolution, drawn_values, poison
from subjects import Subject

BACKENDS = forced_backends("gather")
INSTANCES = instances_of("depthwise_last.cu")
SHAPES = [(height, step) for height in (3, 5, 7) for step in (1, 2)]

SUBJECTS = (
    Subject(
        depthwise_last,
        threads=lambda instance: depthwise_last.THREADS,
        tested=INSTANCES,
        limits={name: getattr(depthwise_last, name) for name in ("LANES", "WARPS")},
    ),
)


@pytest.fixture
def of_few_channels(steer: Steering) -> None:
    steer.replace(depthwise_last, LEAST_CHANNELS=1)


# Plans ----------------------------------------------------------------------------------------


def innermost(geometry: ConvGeometry) -> ConvStrides:
    """The strides of arrays without gaps whose channels lie innermost."""
    groups, rows = geometry.groups, geometry.rows
    sizes_in = tuple(axis.size_in for axis in geometry.axes)
    sizes_out = tuple(axis.size_out for axis in geometry.axes)
    taps = tuple(axis.kernel for axis in geometry.axes)
    outputs = groups * rows
    return ConvStrides(
        (groups * math.prod(sizes_in), 1, 1),
        (rows * math.prod(taps), math.prod(taps), 0),
        (outputs * math.prod(sizes_out), rows, 1),
        [groups * step for step in c_strides(sizes_in)],
        list(c_strides(taps)),
        [outputs * step for step in c_strides(sizes_out)],
    )


def planned(
    geometry: ConvGeometry, dtype: Any = np.float32, processor: Processor = HOPPER
) -> DepthwiseLastPlan | None:
    question = Question(geometry, np.dtype(dtype), "float32", processor)
    return depthwise_last.plan(question, innermost(geometry))


@st.composite
def planes(draw: st.DrawFn, longest: int = 300) -> ConvGeometry:
    """Geometries that the kernel takes."""
    height, step = draw(st.sampled_from(SHAPES))
    transposed = step == 1 and draw(st.booleans())
    groups, rows = draw(st.integers(16, 400)), draw(st.integers(1, 3))
    sizes = (draw(st.integers(height, longest)), draw(st.integers(height, longest)))
    padding = tuple(draw(st.tuples(*[st.integers(0, height - 1)] * 2)) for _ in sizes)
    make, weight = (conv_transpose, (groups, rows)) if transposed else (conv, (groups * rows, 1))
    return make(
        (draw(st.integers(1, 64)), groups, *sizes),
        (*weight, height, height),
        stride=step,
        padding=padding,
        groups=groups,
    )


@given(geometry=planes(), dtype=st.sampled_from(SINGLES), processor=processors)
def test_plans(geometry: ConvGeometry, dtype: str, processor: Processor) -> None:
    """Strips cover all outputs, and none is without one."""
    plan = planned(geometry, dtype, processor)
    assert plan is not None
    layout, (y, x) = plan.layout, geometry.axes
    columns = 8 // y.step
    across, down = -(-x.size_out // columns), -(-y.size_out // layout.lines)
    assert (layout.strips_of_line, layout.strips_of_sample) == (across, across * down)
    tiles = -(-geometry.batch * across * down // 4)
    assert plan.launch.grid == tiles * -(-geometry.groups * geometry.rows // 32)
    assert plan.launch.unit == plan.launch.grid
    assert plan.launch.block == 128 and plan.launch.shared == 0
    macros = dict(plan.launch.instance.defines)
    assert (macros["HEIGHT"], macros["STEP"]) == (str(y.kernel), str(y.step))
    # A shorter strip would not save turns.
    halves = replace(layout, lines=-(-layout.lines // 2))
    assert layout.time <= halves.time and plan.cycles > 0


@pytest.mark.parametrize(
    "geometry",
    [
        conv((8, 64, 28, 28), (64, 1, 3, 5), padding=1, groups=64),
        conv((8, 64, 28, 28), (64, 1, 4, 4), padding=1, groups=64),
        conv((8, 64, 28, 28), (64, 1, 3, 3), stride=(1, 2), groups=64),
        conv((8, 64, 28, 28), (64, 1, 3, 3), stride=3, groups=64),
        conv((8, 64, 28, 28), (64, 1, 3, 3), dilation=(1, 2), groups=64),
        conv((8, 64, 28, 28), (64, 1, 3, 3), dilation=(2, 1), groups=64),
        conv((8, 64, 280), (64, 1, 3), groups=64),
        conv((8, 64, 9, 28, 28), (64, 1, 3, 3, 3), groups=64),
        conv_transpose((8, 64, 28, 28), (64, 1, 3, 3), stride=2, groups=64),
        conv((8, 15, 28, 28), (15, 1, 3, 3), groups=15),
    ],
    ids=str,
)
def test_other_geometries_have_no_plan(geometry: ConvGeometry) -> None:
    assert planned(geometry) is None


def test_what_arrays_must_be_like() -> None:
    """Input and output have neighbouring channels beside each other, in numbers of 32 bits."""
    geometry = conv((8, 32, 28, 28), (64, 1, 3, 3), groups=32)
    question, right = (
        Question(geometry, np.dtype(np.float32), "float32", HOPPER),
        innermost(geometry),
    )
    assert depthwise_last.plan(question, right) is not None
    assert planned(geometry, np.float64) is None
    for wrong in (
        right._replace(input=(1, 784, 784)),
        right._replace(out=(1, 1352, 676)),
        right._replace(out=(right.out[0], 2, 32)),
        right._replace(out=(right.out[0], 1, 32)),
        right._replace(input_axes=[2**31, 2**28]),
        right._replace(out_axes=[2**31, -(2**28)]),
    ):
        assert depthwise_last.plan(question, wrong) is None


def test_it_takes_the_place_of_the_gather_kernel_alone() -> None:
    """The choice does not depend on how arrays lie, because Tensor Cores have other bits."""
    gathered = conv((64, 128, 56, 56), (128, 1, 3, 3), padding=1, groups=128)
    for dtype, place in (("float32", True), ("float16", False)):
        question = Question(gathered, np.dtype(dtype), "float32", HOPPER)
        plan = choice.plan_conv(gathered, question.dtype, "float32", HOPPER)
        last_plan = choice.settled(plan, question, innermost(gathered))
        assert isinstance(last_plan, DepthwiseLastPlan) == place
        assert (choice.relay(question, innermost(gathered)) is None) == place


# Results --------------------------------------------------------------------------------------


def check(backend: NumpyBackend, case: Convolution, of_input: str, of_out: str) -> None:
    """A result has the bits of the gather kernel, which takes arrays in C order."""
    expected = backend.compute(case)
    assert_convolution(expected, case.defined, case.dtype, case.precision)
    arranged = case.with_arrays(input=ARRANGED[of_input](case["input"], 1))
    out = ARRANGED[of_out](poison(np.empty_like(expected)), 1)
    assert_same_bits(compute_into(backend, arranged, out), expected)


INNERMOST = ["channels last", "whole chunks", "misaligned", "an odd gap", "cropped", "reversed"]


@st.composite
def calls(draw: st.DrawFn) -> Convolution:
    height, step = draw(st.sampled_from(SHAPES))
    transposed = step == 1 and draw(st.booleans())
    groups = draw(st.sampled_from([1, 2, 5, 16, 31, 33, 40]))
    rows, samples = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    padding = tuple(draw(st.tuples(*[st.integers(0, height - 1)] * 2)) for _ in range(2))
    outputs = draw(st.tuples(st.integers(1, 9), st.integers(1, 19)))
    if transposed:
        sizes = [max(1, n - height + 1 + sum(p)) for n, p in zip(outputs, padding, strict=True)]
    else:
        sizes = [
            max(1, (n - 1) * step + height - sum(p)) for n, p in zip(outputs, padding, strict=True)
        ]
    weight = (groups, rows) if transposed else (groups * rows, 1)
    shapes = (samples, groups, *sizes), (*weight, height, height), (groups * rows,)
    dtypes = [draw(st.sampled_from([dtype for dtype in FLOATS if dtype.itemsize <= 4]))] * 3
    arrays = draw(drawn_values(shapes, dtypes, draw(st.sampled_from(STYLES))))
    options = {"stride": step, "padding": padding, "groups": groups}
    function = "conv_transpose2d" if transposed else "conv2d"
    named = dict(zip(("input", "weight", "bias"), arrays, strict=True))
    return Convolution(function, named, options).with_arrays(
        input=np.ascontiguousarray(named["input"])
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("of_few_channels")
@given(case=calls(), of_input=st.sampled_from(INNERMOST), of_out=st.sampled_from(INNERMOST))
def test_how_arrays_lie_changes_no_bit(
    backend: NumpyBackend, case: Convolution, of_input: str, of_out: str
) -> None:
    check(backend, case, of_input, of_out)


@pytest.fixture
def of_any_lines(steer: Steering, lines: int) -> None:
    """Strips have so many lines, whatever fills the GPU best."""
    layout = depthwise_last._layout
    steer.replace(depthwise_last, _layout=lambda *question: replace(layout(*question), lines=lines))


def arranged(case: Convolution) -> Convolution:
    return case.with_arrays(input=last(case["input"]))


def result(backend: NumpyBackend, case: Convolution) -> Array:
    """The result of a call whose arrays have their channels innermost."""
    out = last(poison(np.empty(case.defined.value.shape, case.dtype)))
    return compute_into(backend, arranged(case), out)


@on_the_emulator("instance", cases=INSTANCES)
@pytest.mark.parametrize("lines", [1, 4, 100])
@pytest.mark.usefixtures("of_any_lines")
def test_instance(instance: Instance, lines: int) -> None:
    """Several tiles of channels, and strips along both axes, the last of each a part of one."""
    macros = dict(instance.defines)
    height, step = int(macros["HEIGHT"]), int(macros["STEP"])
    case = convolution(
        "conv2d", (2, 20, 13, 30), (40, 1, height, height), dtype_of(macros["ELEMENT"]),
        bias=True, groups=20, stride=step, padding=((1, height // 2), (0, 2)),
    )  # fmt: skip
    backend = Recorder("gather")
    found = result(backend, case)
    (launch,) = backend.launches
    assert launch.instance == instance
    assert_convolution(found, case.defined, case.dtype, case.precision)
    assert_same_bits(found, Recorder("gather").compute(case))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", [1, 2])
def test_special_numbers(backend: NumpyBackend, step: int) -> None:
    """Absent inputs leave an infinite weight alone, and the sign of a bias that is zero."""
    case = convolution(
        "conv2d", (1, 20, 9, 21), (20, 1, 3, 3), bias=True, groups=20, stride=step, padding=2
    )
    x, weight = case["input"].copy(), case["weight"].copy()
    x[:, ::3, 2::5, 3::7], x[:, 1::3] = np.nan, 0
    weight[::4, :, 1, 1], weight[1::4, :, 0, 2] = np.inf, np.nan
    case = case.with_arrays(input=x, weight=weight, bias=np.full_like(case["bias"], -0.0))
    found = result(backend, case)
    assert_convolution(found, case.defined, case.dtype, case.precision)
    assert_same_bits(found, backend.compute(case))
    assert np.signbit(found[0, 4]).any() and np.isnan(found).any() and np.isfinite(found).any()


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["one sample", "no bias", "no batch"])
def test_what_calls_may_lack(kind: str) -> None:
    case = convolution(
        "conv2d", (1, 40, 9, 9), (40, 1, 5, 5), "float16", bias=kind != "no bias", groups=40
    )
    if kind == "no batch":
        case = case.with_arrays(input=case["input"][0])
        out = last(poison(np.empty((40, 5, 5), np.float16)), 0)
        found = compute_into(
            Recorder("gather"), case.with_arrays(input=last(case["input"], 0)), out
        )
    else:
        found = result(Recorder("gather"), case)
    assert_same_bits(found, Recorder("gather").compute(case))
