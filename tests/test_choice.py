"""The choice of a kernel: it is cheap in memory, and the same for every batch and layout.

The factors by which times are compared are fitted (`benchmarks.fit`); tests hold for any of them.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import subjects
import test_convolution
from backends import EmulatorBackend, NumpyBackend, forced_backends
from benchmarks import fit, mine, on_random
from benchmarks.cases import Convolution as Call
from benchmarks.on_random import Row
from benchmarks.random_calls import MULTIPLY_ADDS, random_calls
from bounds import assert_same_bits
from cupyconv import _fft as fft
from cupyconv._axes import COMPARED_BATCH, joined
from cupyconv._device import CupyDevice
from cupyconv._geometry import ConvGeometry
from cupyconv._gpus import named
from cupyconv._kernels import choice, row_blocks, workspace
from cupyconv._kernels.chips import CHIPS, KNOWN
from cupyconv._kernels.costs import COSTS, Cost
from cupyconv._kernels.im2col_conv import Im2colPlan
from cupyconv._kernels.launches import Processor
from cupyconv._kernels.matrix_conv import MatrixPlan
from cupyconv._kernels.question import LARGE, Question
from cupyconv._kernels.row_blocks import RowBlocksPlan
from cupyconv._strides import conv_strides
from planning import HOPPER, Steering, conv, conv_transpose
from strategies import MODES, Convolution, convolution

AMPERE = Processor("sm_80", 108)
SEEDS = (3, 14)
MODE_NAMES = ["float32", "tf32", "float16", "bfloat16"]
DOUBLE = (np.dtype(np.float64), "float32")


@cache
def some_calls(seed: int, count: int) -> tuple[Call, ...]:
    return tuple(itertools.islice(random_calls(seed, MULTIPLY_ADDS), count))


def some_geometries(count: int) -> list[ConvGeometry]:
    """As many geometries of each of the seeds."""
    return [fit.geometry_of(call) for seed in SEEDS for call in some_calls(seed, count)]


def samples(count: int) -> Iterator[tuple[ConvGeometry, Any, Processor]]:
    """Geometries with a dtype and a precision, and a GPU, each in turn."""
    modes = itertools.cycle([*MODES, DOUBLE])
    gpus = itertools.cycle((HOPPER, AMPERE))
    return zip(some_geometries(count), modes, gpus, strict=False)


# What does not count ---------------------------------------------------------------------------


def test_the_batch_does_not_choose_the_kernel() -> None:
    """Nor the order of a sum, or the blocks of output channels."""
    for geometry, mode, gpu in samples(60):
        found = {}
        for batch in (1, 2, 8, 9, 64):
            taken = choice.choose(replace(geometry, batch=batch), *mode, gpu)
            blocks = taken.plan.rows if isinstance(taken.plan, RowBlocksPlan) else ()
            found[batch] = taken.kernel, subjects.order_of(taken.plan), blocks
        assert all(one == found[1] for one in found.values()), geometry


# Calls whose partial sums take more memory in some batches than in others.
DEEP = {
    "three batches": conv((1, 512, 14, 14), (256, 512, 5, 5), padding=2),
    "few rows": conv((1, 1024, 7, 7), (64, 1024, 5, 5), padding=2),
    "large weights": conv((1, 1024, 7, 7), (1024, 1024, 3, 3), padding=1),
}


@pytest.mark.parametrize("name", DEEP)
def test_the_memory_of_a_batch_does_not_choose(name: str) -> None:
    found = set()
    for batch in (1, 8, 64, 1024):
        taken = choice.choose(replace(DEEP[name], batch=batch), *MODES[0], HOPPER)
        found.add((taken.kernel, subjects.order_of(taken.plan)))
    assert len(found) == 1


def test_axes_that_lie_as_one_do_not_choose_the_kernel() -> None:
    """Pointwise calls, whose axes are one where they lie so in memory."""
    tried = 0
    modes_and_gpus = itertools.product(MODES, (HOPPER, AMPERE))
    calls = (call for seed in SEEDS for call in some_calls(seed, 80))
    for call, (mode, gpu) in zip(calls, itertools.cycle(modes_and_gpus), strict=False):
        if call.rank == 1 or call.transposed:
            continue
        weight = (*call.weight[:2], *(1,) * call.rank)
        apart = conv(call.input, weight, groups=call.groups)
        one = joined(apart, call.rank - 2)
        if one is None:
            continue
        tried += 1
        taken, of_one = (choice.choose(geometry, *mode, gpu) for geometry in (apart, one))
        assert taken.kernel == of_one.kernel, apart
        order = subjects.of_plan(taken.plan).order_of_joined
        assert order(taken.plan) == order(of_one.plan), apart
    assert tried >= 20


# Memory ----------------------------------------------------------------------------------------


def memory(geometry: ConvGeometry, mode: Any, gpu: Processor) -> tuple[int, int]:
    """The bytes that a call takes beside its arrays, and the most that it may take.

    Copies of chunks of the input have a limit of their own.
    """
    question, plan = Question(geometry, *mode, gpu), choice.plan_conv(geometry, *mode, gpu)
    plans = plan.plans if isinstance(plan, RowBlocksPlan) else (plan,)
    taken = (
        one.workspace - one.copies if isinstance(one, Im2colPlan) else one.workspace
        for one in plans
    )
    return max(taken), workspace.most_workspace(question)


def test_memory_of_random_calls() -> None:
    for geometry, mode, gpu in samples(80):
        taken, most = memory(geometry, mode, gpu)
        assert taken <= most, geometry


@pytest.mark.parametrize("mode", [*MODES, DOUBLE], ids=[*MODE_NAMES, "float64"])
@pytest.mark.parametrize("gpu", [HOPPER, AMPERE], ids=str)
@pytest.mark.parametrize(
    "geometry",
    [
        conv((32, 512, 7, 7), (4096, 512, 7, 7)),
        conv((1, 64, 41, 41), (64, 1, 41, 41), groups=64),
        conv((8, 128, 64, 64), (128, 1, 41, 41), groups=128, padding=20),
        conv((1, 1280, 16, 16), (1280, 1280, 3, 3), padding=1),
        conv_transpose((1, 1024, 8, 8), (1024, 1024, 5, 5), stride=2),
    ],
    ids=["VGG", "one window", "depthwise", "diffusion", "transposed"],
)
def test_memory_of_large_weights(geometry: ConvGeometry, gpu: Processor, mode: Any) -> None:
    taken, most = memory(geometry, mode, gpu)
    assert taken <= most


def test_large_weights_are_packed_in_blocks() -> None:
    geometry = conv((1, 1280, 16, 16), (1280, 1280, 3, 3), padding=1)
    taken = choice.choose(geometry, *MODES[0], HOPPER)
    assert choice.kernel_of(taken.plan).UNIT == "Tensor Core"
    assert isinstance(taken.plan, RowBlocksPlan)
    rows = [row for block in taken.plan.rows for row in block]
    assert rows == list(range(1280))
    assert len(taken.plan.plans) == len(taken.plan.rows) > 1
    whole = choice._PLANS[taken.kernel](Question(geometry, *MODES[0], HOPPER))
    assert not isinstance(whole, str)
    assert whole.workspace > workspace.most_workspace(Question(geometry, *MODES[0], HOPPER))


# Their packed weights take as much memory as they may, or more, by the rows of a tile.
@pytest.mark.parametrize(
    "geometry",
    [
        conv((1, 1136, 28, 28), (960, 1136, 3, 3), padding=1),
        conv((1, 9056, 14, 14), (1088, 9056, 1, 1)),
        conv((1, 448, 8, 8), (896, 224, 7, 7), padding=3, groups=2),
    ],
    ids=["nine taps", "one tap", "groups"],
)
@pytest.mark.parametrize("kernel", ["portable", "hopper", None])
def test_blocks_do_not_depend_on_the_batch(geometry: ConvGeometry, kernel: str | None) -> None:
    """Nor does the kernel, which is another one where several groups take too much memory."""
    with choice.forced(kernel):
        sizes = (replace(geometry, batch=batch) for batch in (1, 2, 8, 64))
        taken = [choice.choose(one, *MODES[0], HOPPER) for one in sizes]
    assert len({(one.kernel, getattr(one.plan, "rows", None)) for one in taken}) == 1


def test_blocks_of_the_im2col_kernel_read_channels_last() -> None:
    """So neither their plans nor the arrays of a call are transposed."""
    geometry = conv((8, 1280, 16, 16), (1280, 1280, 3, 3), padding=1)
    question = Question(geometry, *MODES[0], HOPPER)
    plan = choice.plan_alone("im2col", question)
    assert isinstance(plan, RowBlocksPlan)
    blocks = zip(plan.plans, row_blocks.questions(question, plan.rows), strict=True)
    expected = sum(choice._time_channels_last("im2col", *block) for block in blocks)
    assert choice._time_channels_last("im2col", plan, question) == expected
    x = np.moveaxis(np.empty((8, 16, 16, 1280), np.float32), -1, 1)
    strides = conv_strides(geometry, x, np.empty((1280, 1280, 3, 3), np.float32), x)
    for kernel in ("im2col", "hopper"):
        with choice.forced(kernel):
            assert isinstance(choice.plan_conv(geometry, *MODES[0], HOPPER), RowBlocksPlan)
            assert (choice.relay(question, strides) is None) == (kernel == "im2col")


# Blocks of output channels ---------------------------------------------------------------------

BLOCKED: dict[str, Callable[[Any, str], Convolution]] = {
    "conv": lambda dtype, precision: convolution(
        "conv2d", (3, 40, 6, 9), (150, 40, 3, 2), dtype,
        bias=True, padding=1, precision=precision,
    ),
    "transposed": lambda dtype, precision: convolution(
        "conv_transpose2d", (2, 40, 5, 7), (40, 131, 3, 3), dtype,
        bias=True, stride=2, precision=precision,
    ),
    "without bias": lambda dtype, precision: convolution(
        "conv1d", (2, 70, 33), (129, 70, 5), dtype, dilation=2, precision=precision,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", [MODES[0], MODES[2]], ids=["float32", "float16"])
@pytest.mark.parametrize(
    "backend",
    [
        *forced_backends("portable"),
        *(one for name in ("hopper", "im2col") for one in forced_backends(name, wgmma=True)),
    ],
)
@pytest.mark.parametrize("name", BLOCKED)
def test_blocks_of_output_channels(
    name: str, backend: NumpyBackend, mode: Any, steer: Steering
) -> None:
    """They are the whole convolution, in any batch and without one."""
    case = BLOCKED[name](*mode)
    device = backend.path.device if isinstance(backend, EmulatorBackend) else CupyDevice()
    question = Question(geometry_of(case), *mode, device.processor(), forced=True)
    whole = choice._PLANS[str(backend.kernel)](question)
    assert isinstance(whole, (MatrixPlan, Im2colPlan))
    steer.replace(row_blocks, most_workspace=lambda question: whole.packed * 9 // 10)
    plan = choice.plan_alone(str(backend.kernel), question)
    assert isinstance(plan, RowBlocksPlan) and len(plan.rows[0]) > len(plan.rows[-1])
    test_convolution.check(backend, case)
    result = backend.compute(case)
    for n in range(len(result)):
        one = case.with_arrays(input=case["input"][n : n + 1])
        assert_same_bits(backend.compute(one), result[n : n + 1])
    alone = case.with_arrays(input=case["input"][-1])
    assert_same_bits(backend.compute(alone), result[-1])


def geometry_of(case: Convolution) -> ConvGeometry:
    make = conv_transpose if case.transposed else conv
    options = {name: value for name, value in case.options.items() if name != "precision"}
    return make(case["input"].shape, case["weight"].shape, **options)


# Times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
def test_a_time_grows_with_work(cost: Cost) -> None:
    """And is no less than each of its parts, nor more than their sum."""
    times = [0.0, 1.0, 3.0, 10.0, 1e4]
    for cycles, moved in itertools.product(times, times):
        found = cost.time(cycles, moved)
        parts = cost.cycles * cycles, cost.moved * moved
        longest, sum_of_all = max(parts), sum(parts)
        assert longest <= (found - cost.begin) * (1 + 1e-9)
        assert found - cost.begin <= sum_of_all * (1 + 1e-9)
        assert cost.time(cycles + 1, moved) > found or parts[1] > 100 * parts[0]
        assert cost.time(cycles, moved + 1) > found or parts[0] > 100 * parts[1]


@pytest.mark.parametrize("chip", KNOWN, ids=lambda chip: chip.name)
def test_a_slower_gpu_takes_longer(chip: Any) -> None:
    """The time of a plan on the GPU of twice the clock and bandwidth is less, but for its start."""
    geometry = conv((8, 256, 56, 56), (256, 256, 3, 3), padding=1)
    question = Question(geometry, *MODES[0], chip.processor)
    plan = choice.plan_alone("direct", question)
    assert not isinstance(plan, str)
    slow = choice.time_of("direct", plan, question, chip)
    twice = replace(chip, clock=2 * chip.clock, bandwidth=2 * chip.bandwidth)
    fast = choice.time_of("direct", plan, question, twice)
    begin = COSTS["direct"].begin
    assert fast - begin == pytest.approx((slow - begin) / 2)


def test_every_kernel_has_a_cost() -> None:
    names = {name.removeprefix("unfolded-") for name in choice.KERNELS}
    assert names <= set(COSTS)
    assert all(number > 0 for cost in COSTS.values() for number in cost)


def test_where_tensor_cores_gain_nothing() -> None:
    """On compute capability 8.6 three TF32 products take longer than an FMA, but float16 ones do
    not.
    """
    dense = conv((8, 256, 56, 56), (256, 256, 3, 3), padding=1)
    for target in ("sm_86", "sm_89", "sm_120"):
        gpu = CHIPS[target].processor
        assert choice.choose(dense, *MODES[0], gpu).kernel == "direct"
        assert choice.choose(dense, *MODES[2], gpu).kernel == "portable"
    for target, kernel in (("sm_80", "portable"), ("sm_90a", "hopper")):
        assert choice.choose(dense, *MODES[0], CHIPS[target].processor).kernel == kernel


# Fastest by one kernel in C order, and nearly as fast by another one, which gains by channels last.
FAST_CHANNELS_LAST = conv((8, 64, 56, 56), (64, 64, 3, 3))


def test_the_best_kernel_for_both_orders_is_taken() -> None:
    """Of those that are nearly the fastest in C order; the others say how long they would take."""
    in_both = 0
    for geometry, mode, gpu in [(FAST_CHANNELS_LAST, MODES[0], HOPPER), *samples(30)]:
        question = Question(geometry, *mode, gpu)
        taken = choice.choose(geometry, *mode, gpu)
        times, last = {}, {}
        typical = choice._typical(question)
        other = "portable" if gpu is HOPPER else "hopper"
        for name in choice.KERNELS:
            plan = choice.plan_alone(name, typical)
            if isinstance(plan, str):
                continue
            if not name.endswith(other):
                times[name] = choice.time_of(name, plan, typical)
                last[name] = choice._time_channels_last(name, plan, typical)
                assert times[name] >= choice.least_time(name, typical) * (1 - 1e-9)
        near = [name for name, time in times.items() if time <= choice._NEAR * min(times.values())]
        assert taken.kernel == min(near, key=lambda name: times[name] * last[name])
        fastest = min(times, key=times.__getitem__)
        if fastest != taken.kernel:
            in_both += 1
            factor = times[fastest] / times[taken.kernel]
            words = f"it would take {factor:.2f} times as long in C order, but longer with channels"
            assert taken.refused[fastest] == f"{words} last"
            assert last[fastest] > last[taken.kernel]
    assert in_both


def test_a_kernel_that_the_batch_is_too_large_for_says_so() -> None:
    taken = choice.choose(FAST_CHANNELS_LAST, *MODES[0], HOPPER)
    large = choice.choose(replace(FAST_CHANNELS_LAST, batch=2**22), *MODES[0], HOPPER)
    assert taken.kernel == "im2col" and large.kernel == "hopper"
    assert large.refused["im2col"] == LARGE
    assert "times as long" in large.refused["direct"]


# Gradients of weights --------------------------------------------------------------------------

RESNET = conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1)
# The copies of a thousand output channels would be as long as the input, and the gradient is short.
FAR_APART = conv((1, 2, 10**6 + 9), (1000, 2, 2), dilation=10**6)


def test_the_faster_kernel_takes_the_gradient_of_a_weight() -> None:
    """The one by wgmma on compute capability 9.0 alone."""
    kernels: dict[Processor, set[str]] = {HOPPER: set(), AMPERE: set()}
    for geometry, mode, gpu in samples(60):
        if geometry.transposed:
            continue
        question = Question(geometry, *mode, gpu)
        plans = {name: module.plan(question) for name, module in choice.GRADIENTS.items()}
        times = {
            name: choice.time_of_gradient(name, plan, question)
            for name, plan in plans.items()
            if not isinstance(plan, str)
        }
        taken = choice.choose_weight_gradient(question)
        kernels[gpu].add(taken.kernel)
        assert times[taken.kernel] == min(times.values())
        assert taken.plan == plans[taken.kernel]
        assert {*taken.refused} == set(plans) - {taken.kernel}
        for name, reason in taken.refused.items():
            factor = times[name] / times[taken.kernel] if name in times else 0
            words = f"it would take {factor:.2f} times as long" if factor else plans[name]
            assert reason == words
    assert kernels[HOPPER] == {"direct", "matrix", "hopper", "im2col", "depthwise"}
    assert kernels[AMPERE] == {"direct", "matrix", "depthwise"}


@pytest.mark.parametrize("mode", MODES, ids=MODE_NAMES)
def test_wgmma_takes_the_gradients_of_deep_layers(mode: Any) -> None:
    """Of many channels and few places, where there is wgmma."""
    deep = conv((32, 512, 7, 7), (512, 512, 3, 3), padding=1)
    for target, chip in CHIPS.items():
        taken = choice.choose_weight_gradient(Question(deep, *mode, chip.processor))
        assert (taken.kernel in ("hopper", "im2col")) == (target == "sm_90a")


def test_the_kernel_that_is_asked_for_takes_the_gradient() -> None:
    """Of that name, or on Tensor Cores if it has no plan; the direct one where neither has one."""
    for geometry, faster in ((RESNET, "matrix"), (FAR_APART, "direct")):
        question = Question(geometry, *MODES[0], HOPPER)
        assert choice.choose_weight_gradient(question).kernel == faster
        for name in choice.KERNELS:
            with choice.forced(name):
                expected = name if name in ("direct", "hopper") else "matrix"
                assert choice.choose_weight_gradient(question).kernel == expected
                double = replace(question, dtype=np.dtype(np.float64))
                expected = "direct" if name == "direct" else "matrix"
                assert choice.choose_weight_gradient(double).kernel == expected
                small = replace(question, dtype=np.dtype(np.int8))
                assert choice.choose_weight_gradient(small).kernel == "direct"


def test_an_fft_is_compared_with_the_faster_gradient() -> None:
    question = Question(replace(RESNET, batch=COMPARED_BATCH), *MODES[0], HOPPER)
    taken = choice.choose_weight_gradient(question)
    assert taken.kernel == "matrix"
    by_fft = choice._time_by_fft(fft.gradient_work(question.geometry, question.dtype), question)
    gain = choice.gain_by_fft(RESNET, *MODES[0], gradient=True, processor=HOPPER)
    assert gain == choice.time_of_gradient("matrix", taken.plan, question) / by_fft


# The fit of the factors --------------------------------------------------------------------------


def a_record(costs: dict[str, Cost], noise: float, path: Path) -> Path:
    """A record of calls whose times are those of some factors, a bit off, as `on_random` writes."""
    rng = np.random.default_rng(0)
    rows = []
    for call, name in itertools.product(some_calls(SEEDS[0], 80), ("float32", "float16")):
        row = Row(mine.line(call), name, "direct", dict.fromkeys(costs, 1.0))
        for kernel, cost in costs.items():
            one = fit.Measured(row, kernel, named("H100"))
            if one.taken:
                off = math.exp(rng.normal(0, noise))
                row.ours[kernel] = 1e-3 * cost.time(*one.terms) * off
            else:
                del row.ours[kernel]
        rows.append(asdict(row))
    record = {"gpu": "NVIDIA H100 80GB HBM3", "calls": rows}
    path.write_text(on_random._text(record))
    return path


def test_factors_are_found_again(tmp_path: Path) -> None:
    known = {"direct": Cost(12.0, 1.3, 2.0), "hopper": Cost(25.0, 1.2, 0.9)}
    path = a_record(known, 0.01, tmp_path / "record.json")
    rows = json.loads(path.read_text())["calls"]
    found = list(fit.measured(path))
    assert len(found) > 150
    by_call = {(row["case"], row["precision"]): row for row in rows}
    for one in found:
        assert one.time == pytest.approx(1e3 * by_call[one.call]["ours"][one.kernel])
        assert one.time == pytest.approx(known[one.kernel].time(*one.terms), rel=0.06)
    for kernel, cost in known.items():
        fitted = fit.fit([one for one in found if one.kernel == kernel])
        assert fitted == pytest.approx(cost, rel=0.05)
    assert fit.errors(found[:1], known[found[0].kernel]).startswith("1 times, 100% within 1.25")
