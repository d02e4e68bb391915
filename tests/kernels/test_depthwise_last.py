"""The channels-last depthwise kernels: plans, instances, and the bits of results."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_im2col_conv import ARRANGED, compute_into, last

from backends import NumpyBackend, forced_backends
from bounds import assert_convolution, assert_same_bits
from cupyconv import _compile
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import choice, depthwise_last, depthwise_last_mma, depthwise_strips
from cupyconv._kernels.launches import SHARED, SINGLES, Instance, Processor
from cupyconv._kernels.members import Template
from cupyconv._kernels.question import Question
from cupyconv._packing import c_strides
from cupyconv._strides import ConvStrides
from planning import HOPPER, Steering, conv, conv_transpose, processors
from reference import Array
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import FLOATS, STYLES, Convolution, convolution, drawn_values, poison
from subjects import Subject
from test_members import compare

FMA, MMA = instances_of("depthwise_last.cu"), instances_of("depthwise_last_mma.cu")
# The kernels that have the same order of sums for arrays in C order, which are forced.
GATHERED, ON_TENSOR_CORES = "gather", "depthwise"
SHAPES = [(height, step) for height in (3, 5, 7) for step in (1, 2)]
HALVES = [dtype for dtype in FLOATS if dtype.itemsize == 2]

SUBJECTS = (
    Subject(
        depthwise_last,
        threads=lambda instance: depthwise_last.THREADS,
        tested=FMA,
        limits={name: getattr(depthwise_last, name) for name in ("LANES", "WARPS")},
    ),
    Subject(
        depthwise_last_mma,
        threads=lambda instance: 32 * depthwise_last_mma._WARPS[height_of(instance)],
        tested=MMA,
        everywhere=False,
        limits={name: getattr(depthwise_last_mma, name) for name in ("STAGES", "WIDTH")},
    ),
)


def height_of(instance: Instance) -> int:
    return int(dict(instance.defines)["HEIGHT"])


@pytest.fixture
def of_few_channels(steer: Steering) -> None:
    steer.replace(depthwise_strips, LEAST_CHANNELS=1)


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
    geometry: ConvGeometry,
    dtype: Any = np.float32,
    processor: Processor = HOPPER,
    module: ModuleType = depthwise_last,
) -> Any:
    question = Question(geometry, np.dtype(dtype), "float32", processor)
    return module.plan(question, innermost(geometry))


@st.composite
def planes(draw: st.DrawFn) -> ConvGeometry:
    """Geometries that the kernels take, all or the one without Tensor Cores alone."""
    height, step = draw(st.sampled_from(SHAPES))
    transposed = step == 1 and draw(st.booleans())
    groups, rows = draw(st.integers(16, 400)), draw(st.integers(1, 3))
    sizes = (draw(st.integers(height, 300)), draw(st.integers(height, 300)))
    padding = tuple(draw(st.tuples(*[st.integers(0, height - 1)] * 2)) for _ in sizes)
    make, weight = (conv_transpose, (groups, rows)) if transposed else (conv, (groups * rows, 1))
    return make(
        (draw(st.integers(1, 64)), groups, *sizes),
        (*weight, height, height),
        stride=step,
        padding=padding,
        groups=groups,
    )


def check_strips(plan: Any, geometry: ConvGeometry, columns: int, strips: int, wide: int) -> None:
    """Strips cover all outputs, and shorter ones would not save turns."""
    layout, (y, x) = plan.layout, geometry.axes
    across, down = -(-x.size_out // columns), -(-y.size_out // layout.lines)
    assert 1 <= layout.lines <= y.size_out
    assert (layout.strips_of_line, layout.strips_of_sample) == (across, across * down)
    tiles = -(-geometry.batch * across * down // strips)
    assert plan.launch.grid == tiles * -(-geometry.groups * geometry.rows // wide)
    assert plan.launch.unit == plan.launch.grid
    halves = replace(layout, lines=-(-layout.lines // 2))
    assert layout.time <= halves.time and plan.cycles > 0


@given(geometry=planes(), dtype=st.sampled_from(SINGLES), processor=processors)
def test_plans(geometry: ConvGeometry, dtype: str, processor: Processor) -> None:
    plan, (y, _) = planned(geometry, dtype, processor), geometry.axes
    check_strips(plan, geometry, columns=8 // y.step, strips=4, wide=32)
    assert plan.launch.block == 128 and plan.launch.shared == 0
    macros = dict(plan.launch.instance.defines)
    assert (macros["HEIGHT"], macros["STEP"]) == (str(y.kernel), str(y.step))


@given(geometry=planes(), dtype=st.sampled_from(HALVES))
def test_plans_on_tensor_cores(geometry: ConvGeometry, dtype: np.dtype[Any]) -> None:
    plan = planned(geometry, dtype, module=depthwise_last_mma)
    height = geometry.axes[0].kernel
    assert (plan is None) == (geometry.rows > 1 or geometry.axes[0].step > 1)
    if plan is None:
        return
    warps = 8 if height == 3 else 4
    check_strips(plan, geometry, columns=64, strips=2, wide=4 * warps)
    assert plan.launch.block == 32 * warps and height_of(plan.launch.instance) == height
    assert plan.launch.shared <= SHARED["sm_86"]


@pytest.mark.parametrize(
    "geometry",
    [
        conv((8, 64, 28, 98), (64, 1, 3, 5), padding=1, groups=64),
        conv((8, 64, 28, 98), (64, 1, 4, 4), padding=1, groups=64),
        conv((8, 64, 28, 98), (64, 1, 3, 3), stride=(1, 2), groups=64),
        conv((8, 64, 28, 98), (64, 1, 3, 3), stride=3, groups=64),
        conv((8, 64, 28, 98), (64, 1, 3, 3), dilation=(1, 2), groups=64),
        conv((8, 64, 28, 98), (64, 1, 3, 3), dilation=(2, 1), groups=64),
        conv((8, 64, 280), (64, 1, 3), groups=64),
        conv((8, 64, 9, 28, 98), (64, 1, 3, 3, 3), groups=64),
        conv_transpose((8, 64, 28, 98), (64, 1, 3, 3), stride=2, groups=64),
        conv((8, 15, 28, 98), (15, 1, 3, 3), groups=15),
    ],
    ids=str,
)
def test_other_geometries_have_no_plan(geometry: ConvGeometry) -> None:
    assert planned(geometry) is None
    on_tensor_cores = planned(geometry, np.float16, module=depthwise_last_mma)
    assert (on_tensor_cores is None) != (geometry.axes[-1].kernel == 5)


@pytest.mark.parametrize("module", [depthwise_last, depthwise_last_mma])
def test_what_arrays_must_be_like(module: ModuleType) -> None:
    """Neighbouring channels of input and output lie beside each other."""
    rows = 1 if module is depthwise_last_mma else 2
    geometry = conv((8, 32, 28, 98), (32 * rows, 1, 3, 3), groups=32)
    question = Question(geometry, np.dtype(np.float16), "float32", HOPPER)
    right = innermost(geometry)
    assert module.plan(question, right) is not None
    wrong = [right._replace(input=(1, 784, 784)), right._replace(out=(1, 2 * 676, 676))]
    if rows > 1:
        wrong += [right._replace(out=(1, 1, 32)), right._replace(out=(1, 2, 32))]
        wrong += [right._replace(input_axes=[2**31, 2**28])]  # offsets have 32 bits
        wrong += [right._replace(out_axes=[2**31, -(2**28)])]
        assert planned(geometry, np.float64) is None
    assert [module.plan(question, one) for one in wrong] == [None] * len(wrong)


@pytest.mark.parametrize(
    ("dtype", "width", "plan"),
    [
        ("float32", 56, depthwise_last.PLAN),
        ("float16", 28, depthwise_last.PLAN),
        ("float16", 56, depthwise_last_mma.PLAN),
        ("bfloat16", 112, depthwise_last_mma.PLAN),
        ("float64", 56, None),
    ],
)
def test_whose_places_they_take(dtype: str, width: int, plan: Any) -> None:
    """The choice does not depend on how arrays lie, and no copies come between."""
    geometry = conv((64, 128, width, width), (128, 1, 3, 3), padding=1, groups=128)
    question = Question(geometry, next(d for d in FLOATS if d.name == dtype), "float32", HOPPER)
    chosen = choice.plan_conv(geometry, question.dtype, "float32", HOPPER)
    strides = innermost(geometry)
    assert isinstance(choice.settled(chosen, question, strides), plan or type(chosen))
    assert choice.relay(question, strides) is None
    in_order = strides._replace(input=(128 * width**2, width**2, width**2), input_axes=[width, 1])
    assert choice.settled(chosen, question, in_order) is chosen


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_variants_of_the_depthwise_kernel_stay(dtype: str) -> None:
    """Its FMA instructions multiply zeros for absent inputs, which changes the sign of a zero."""
    geometry = conv((64, 128, 28, 28), (128, 1, 3, 3), padding=1, groups=128)
    question = Question(geometry, np.dtype(dtype), "float32", HOPPER)
    with choice.forced("depthwise"):
        chosen = choice.plan_conv(geometry, question.dtype, "float32", HOPPER)
    assert choice.settled(chosen, question, innermost(geometry)) is chosen


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_names_are_those_of_the_struct(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Template] = []
    init = Template.__init__

    def noted(self: Template, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(Template, "__init__", noted)
    case = convolution("conv2d", (2, 32, 9, 56), (32, 1, 3, 3), dtype, groups=32)
    result(Recorder(GATHERED if dtype == "float32" else ON_TENSOR_CORES), case)
    (template,) = made
    assert template.source == f"depthwise_last{'' if dtype == 'float32' else '_mma'}.cu"
    compare(_compile.source(template.source), "Arguments", template.members)


# Results --------------------------------------------------------------------------------------


def check(backend: NumpyBackend, case: Convolution, of_input: str, of_out: str) -> None:
    """A result has the bits of arrays in C order, which another kernel takes."""
    expected = backend.compute(case)
    assert_convolution(expected, case.defined, case.dtype, case.precision)
    arranged = case.with_arrays(input=ARRANGED[of_input](case["input"], 1))
    out = ARRANGED[of_out](poison(np.empty_like(expected)), 1)
    assert_same_bits(compute_into(backend, arranged, out), expected)


INNERMOST = ["channels last", "whole chunks", "misaligned", "an odd gap", "cropped", "reversed"]


@st.composite
def calls(draw: st.DrawFn, tensor_cores: bool) -> Convolution:
    """Calls that a kernel takes, with arrays in C order."""
    height, step = draw(st.sampled_from(SHAPES[::2] if tensor_cores else SHAPES))
    width = draw(st.integers(2, 9)) if tensor_cores else height
    transposed = step == 1 and draw(st.booleans())
    groups = draw(st.sampled_from([2, 5, 16, 31, 33, 40]))
    rows, samples = 1 if tensor_cores else draw(st.integers(1, 3)), draw(st.integers(1, 3))
    padding = tuple(draw(st.tuples(*[st.integers(0, k - 1)] * 2)) for k in (height, width))
    columns = st.integers(48, 70) if tensor_cores else st.integers(1, 19)
    outputs = draw(st.integers(2, 9)), draw(columns)
    sizes = []
    for n, k, pads in zip(outputs, (height, width), padding, strict=True):
        size = n - k + 1 + sum(pads) if transposed else (n - 1) * step + k - sum(pads)
        sizes.append(max(1, size))
    weight = (groups, rows) if transposed else (groups * rows, 1)
    shapes = (samples, groups, *sizes), (*weight, height, width), (groups * rows,)
    dtypes = [draw(st.sampled_from(HALVES if tensor_cores else [FLOATS[0], *HALVES]))] * 3
    arrays = draw(drawn_values(shapes, dtypes, draw(st.sampled_from(STYLES))))
    named = dict(zip(("input", "weight", "bias"), arrays, strict=True))
    function = "conv_transpose2d" if transposed else "conv2d"
    options = {"stride": step, "padding": padding, "groups": groups}
    case = Convolution(function, named, options)
    return case.with_arrays(input=np.ascontiguousarray(case["input"]))


@pytest.mark.parametrize("backend", forced_backends(GATHERED))
@pytest.mark.usefixtures("of_few_channels")
@given(
    case=calls(tensor_cores=False),
    of_input=st.sampled_from(INNERMOST),
    of_out=st.sampled_from(INNERMOST),
)
def test_how_arrays_lie_changes_no_bit(
    backend: NumpyBackend, case: Convolution, of_input: str, of_out: str
) -> None:
    check(backend, case, of_input, of_out)


@pytest.mark.parametrize("backend", forced_backends(ON_TENSOR_CORES))
@pytest.mark.usefixtures("of_few_channels")
@given(
    case=calls(tensor_cores=True),
    of_input=st.sampled_from(INNERMOST),
    of_out=st.sampled_from(INNERMOST),
)
def test_how_arrays_lie_changes_no_bit_on_tensor_cores(
    backend: NumpyBackend, case: Convolution, of_input: str, of_out: str
) -> None:
    check(backend, case, of_input, of_out)


@pytest.fixture
def of_any_lines(steer: Steering, lines: int) -> None:
    """Strips have so many lines, whatever fills the GPU best."""
    layout_of = depthwise_strips.layout_of

    def steered(*arguments: Any) -> Any:
        layout = layout_of(*arguments)
        assert layout is not None
        return replace(layout, lines=min(lines, layout.axes[0].size_out))

    for module in (depthwise_last, depthwise_last_mma):
        steer.replace(module, layout_of=steered)


def result(backend: NumpyBackend, case: Convolution) -> Array:
    """The result of a call whose arrays have their channels innermost."""
    out = last(poison(np.empty(case.defined.value.shape, case.dtype)))
    return compute_into(backend, case.with_arrays(input=last(case["input"])), out)


def check_instance(kernel: str, case: Convolution, instance: Instance) -> None:
    """A call launches an instance, and nothing else."""
    backend = Recorder(kernel)
    found = result(backend, case)
    (launch,) = backend.launches
    assert launch.instance == instance
    assert_convolution(found, case.defined, case.dtype, case.precision)
    assert_same_bits(found, Recorder(kernel).compute(case))


@on_the_emulator("instance", cases=FMA)
@pytest.mark.parametrize("lines", [1, 4, 100])
@pytest.mark.usefixtures("of_any_lines")
def test_instance(instance: Instance, lines: int) -> None:
    """Several tiles of channels, and strips along both axes, the last of each a part of one."""
    height, step = height_of(instance), int(dict(instance.defines)["STEP"])
    case = convolution(
        "conv2d", (2, 20, 13, 30), (40, 1, height, height),
        dtype_of(dict(instance.defines)["ELEMENT"]),
        bias=True, groups=20, stride=step, padding=((1, height // 2), (0, 2)),
    )  # fmt: skip
    check_instance(GATHERED, case, instance)


@on_the_emulator("instance", cases=MMA)
@pytest.mark.parametrize("lines", [2, 5, 100])
@pytest.mark.usefixtures("of_any_lines")
def test_instance_on_tensor_cores(instance: Instance, lines: int) -> None:
    """The same, with an odd number of strips, of which the last tile lacks one."""
    height = height_of(instance)
    case = convolution(
        "conv2d", (3, 40, 7, 75), (40, 1, height, 3), dtype_of(dict(instance.defines)["ELEMENT"]),
        bias=True, groups=40, padding=((1, height - 1), (1, 0)),
    )  # fmt: skip
    check_instance(ON_TENSOR_CORES, case, instance)


@pytest.mark.parametrize(
    ("backend", "dtype", "step"),
    [
        pytest.param(*one.values, dtype, step, id=f"{one.id}-{step}", marks=one.marks)
        for kernel, dtype, step in (
            (GATHERED, "float32", 1),
            (GATHERED, "float32", 2),
            (ON_TENSOR_CORES, "float16", 1),
        )
        for one in forced_backends(kernel)
    ],
)
def test_special_numbers(backend: NumpyBackend, dtype: str, step: int) -> None:
    """Absent inputs leave an infinite weight alone, and the sign of a sum that is zero."""
    case = convolution(
        "conv2d", (1, 20, 9, 57), (20, 1, 3, 3), dtype,
        bias=True, groups=20, stride=step, padding=2,
    )  # fmt: skip
    x, weight = case["input"].copy(), case["weight"].copy()
    x[:, ::3, 2::5, 3::7], x[:, 1::3], x[:, 2, 3, 5::9] = np.nan, 0, np.inf
    weight[::4, :, 1, 1], weight[1::4, :, 0, 2] = np.inf, np.nan
    case = case.with_arrays(input=x, weight=weight, bias=np.full_like(case["bias"], -0.0))
    found = result(backend, case)
    assert_convolution(found, case.defined, case.dtype, case.precision)
    assert_same_bits(found, backend.compute(case))
    assert np.isnan(found).any() and np.isinf(found).any() and np.isfinite(found).any()


@pytest.mark.emulator
def test_outputs_that_overflow() -> None:
    """They are computed exactly, as in C order: the order decides which of them do."""
    case = convolution("conv2d", (1, 16, 5, 60), (16, 1, 5, 5), "float16", groups=16, padding=2)
    large = case.with_arrays(weight=case["weight"] * np.float16(20000))
    found = result(Recorder(ON_TENSOR_CORES), large)
    assert np.isinf(found).any() and np.isfinite(found).any()
    assert_same_bits(found, Recorder(ON_TENSOR_CORES).compute(large))


@pytest.mark.emulator
@pytest.mark.parametrize("kernel", [GATHERED, ON_TENSOR_CORES])
@pytest.mark.parametrize("kind", ["no bias", "no batch"])
def test_what_calls_may_lack(kernel: str, kind: str) -> None:
    case = convolution(
        "conv2d", (1, 40, 9, 59), (40, 1, 5, 5), "float16", bias=kind != "no bias", groups=40
    )
    expected = Recorder(kernel).compute(case)
    backend = Recorder(kernel)
    if kind == "no batch":
        out = last(poison(np.empty(expected.shape[1:], np.float16)), 0)
        found = compute_into(backend, case.with_arrays(input=last(case["input"][0], 0)), out)[None]
    else:
        found = result(backend, case)
    assert_same_bits(found, expected)
    (launch,) = backend.launches
    assert launch.instance.source.startswith("depthwise_last")
