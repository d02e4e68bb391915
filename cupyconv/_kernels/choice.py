"""Which kernel runs a call: the one place where kernels are compared with each other.

Every kernel is asked for its plan, and the one that should take the least time, for arrays in C
order and with channels last, runs the call. The times follow from the geometry of one sample, not
from a timing, the batch or how the arrays of a call lie, so that a sample has the same bits in
every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _fft as fft
from .._axes import COMPARED_BATCH, compared
from .._geometry import ConvGeometry
from . import (
    borders,
    channels_last,
    depthwise_conv,
    depthwise_gradient,
    depthwise_last,
    depthwise_last_mma,
    direct_conv,
    fused,
    gather_conv,
    gradient_lines,
    gradient_sum,
    hopper_gradient,
    im2col_conv,
    im2col_gradient,
    matrix_conv,
    matrix_gradient,
    max_pool2d,
    modes,
    normalize,
    plain_conv,
    relayed,
    row_blocks,
    spectra,
    streaming_conv,
    sum_splits,
    sums,
    unfolded,
    weight_gradient,
)
from .chips import CHIPS, Chip
from .costs import COPY, COSTS, FFT, TRANSPOSED, elements, terms
from .depthwise_conv import DepthwisePlan
from .depthwise_last import DepthwiseLastPlan
from .depthwise_last_mma import DepthwiseLastMmaPlan
from .direct_conv import DirectPlan
from .fused import FusedPlan
from .gather_conv import GatherPlan
from .launches import TARGETS, Instance, Processor
from .question import Kernel, Plan, Question, Refusal, not_multiplied
from .relayed import Relay
from .row_blocks import RowBlocksPlan, in_place, within_memory
from .unfolded import UnfoldedPlan

if TYPE_CHECKING:
    from .._strides import ConvStrides

# Modules of kernels for convolutions, and of other operations.
CONVOLUTIONS: tuple[Any, ...] = (
    direct_conv,
    depthwise_conv,
    gather_conv,
    plain_conv,
    streaming_conv,
    matrix_conv,
    im2col_conv,
)
OTHERS: tuple[Any, ...] = (
    channels_last,
    depthwise_last,
    depthwise_last_mma,
    matrix_gradient,
    hopper_gradient,
    gradient_lines,
    im2col_gradient,
    depthwise_gradient,
    gradient_sum,
    fused,
    normalize,
    max_pool2d,
    sum_splits,
    borders,
    spectra,
)

# Kernels that multiply channels, by the names for the unfolded form, in which taps are channels.
UNFOLDED: dict[str, tuple[Any, str]] = {
    unfolded.PREFIX + name: (matrix_conv, name) for name in ("hopper", "portable")
}

# Names of all kernels for convolutions.
KERNELS = (
    *dict.fromkeys(name for module in CONVOLUTIONS for name in module.PLANS),
    *UNFOLDED,
)

_forced: ContextVar[str | None] = ContextVar("cupyconv_kernel", default=None)
forced_kernel = _forced.get  # of the enclosing block


@contextmanager
def forced(kernel: str | None) -> Iterator[None]:
    """Let convolutions run by one of `KERNELS` where it can: for tests and benchmarks."""
    if kernel not in (None, *KERNELS):
        raise ValueError(f"kernel must be one of {KERNELS}, got {kernel!r}")
    token = _forced.set(kernel)
    try:
        yield
    finally:
        _forced.reset(token)


def instances(target: str) -> tuple[Instance, ...]:
    """Return the kernel instances that plans ask for on `target`, such as ``"sm_90a"``.

    Where the kernel is `forced`, plans for Hopper may ask for instances of ``"sm_80"``, too.
    """
    if target not in TARGETS:
        raise ValueError(f"target must be one of {TARGETS}, got {target!r}")
    found = (one for module in (*CONVOLUTIONS, *OTHERS) for one in module.instances(target))
    return tuple(dict.fromkeys(found))


def kernel_of(plan: Plan) -> Kernel:
    """Return the module of the kernel that a plan is for."""
    module: Kernel = _MODULES[type(plan)]
    return module


_MODULES: dict[type, Any] = {
    module.PLAN: module
    for module in (*CONVOLUTIONS, depthwise_last, depthwise_last_mma, unfolded, row_blocks)
}


def settled(plan: Plan, question: Question, strides: ConvStrides) -> Plan:
    """Return the plan for arrays of such strides, which adds up each sum in the same order.

    The FMA kernel joins axes that lie as one. The channels-last depthwise kernels take the places
    of the gather kernel and of the depthwise one on Tensor Cores.
    """
    if isinstance(plan, plain_conv.PlainPlan):
        return plain_conv.on_long_lines(plan, question, strides)[0]
    if isinstance(plan, GatherPlan):
        return depthwise_last.plan(question, strides) or plan
    if _is_depthwise_on_tensor_cores(plan):
        return depthwise_last_mma.plan(question, strides) or plan
    return plan


def relay(question: Question, strides: ConvStrides) -> Relay | None:
    """Return how a convolution of arrays with such strides is relayed, if it is.

    That is where its kernel reads lines of places, as all but four do.
    """
    found = relayed.relay(question, strides)
    if found is None:
        return None
    plan = plan_conv(question.geometry, question.dtype, question.precision, question.processor)
    taken = settled(plan, question, strides)
    others = DirectPlan, DepthwiseLastPlan, DepthwiseLastMmaPlan
    return None if isinstance(taken, others) or in_place(taken) else found


# Kernels for the gradient of a weight, by their names.
GRADIENTS: dict[str, Any] = {
    "direct": weight_gradient,
    "matrix": matrix_gradient,
    "hopper": hopper_gradient,
    "im2col": im2col_gradient,
    "depthwise": depthwise_gradient,
}


def choose_weight_gradient(question: Question) -> Choice:
    """Return which of `GRADIENTS` runs the gradient of the weight of a convolution, and its plan.

    Where a kernel is `forced`, the gradient runs by the one of this name, or by the one on Tensor
    Cores if it has no plan.
    """
    return _choose_weight_gradient(question, forced_kernel())


@lru_cache(maxsize=4096)
def _choose_weight_gradient(question: Question, kernel: str | None) -> Choice:
    plans: dict[str, Plan] = {}
    refused: dict[str, Refusal] = {}
    for name, module in GRADIENTS.items():
        plan = module.plan(question)
        if isinstance(plan, str):
            refused[name] = plan
        else:
            plans[name] = plan
    times = {name: time_of_gradient(name, plan, question) for name, plan in plans.items()}
    taken = min(times, key=times.__getitem__)
    if kernel is not None:
        taken = next(name for name in (kernel, "matrix", "direct") if name in plans)
    return Choice(taken, plans[taken], refused | _slower(times, taken))


def time_of_gradient(
    kernel: str, plan: Plan, question: Question, chip: Chip | None = None
) -> float:
    """Return the microseconds that the gradient of a weight should take, as `time_of` does."""
    if kernel == "direct":
        geometry = weight_gradient.as_convolution(question.geometry)
        return time_of("direct", plan, replace(question, geometry=geometry), chip)
    chip = chip or CHIPS[question.processor.target]
    name = f"{kernel} gradient"
    return COSTS[name].time(*terms(name, plan, question, GRADIENTS[kernel].UNIT, chip))


# Convolutions ----------------------------------------------------------------------------------


class Choice(NamedTuple):
    """What runs a convolution.

    Attributes
    ----------
    kernel : str
        One of `KERNELS`.
    plan : Plan
        Its plan.
    refused : dict
        Why other kernels do not run it, by their names.
    """

    kernel: str
    plan: Plan
    refused: dict[str, Refusal]


def plan_conv(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> Plan:
    """Return how a convolution of `dtype` runs; the geometry must have outputs."""
    return choose(geometry, dtype, precision, processor).plan


def choose(geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor) -> Choice:
    """Return which kernel runs a convolution, its plan, and why the others do not.

    With a padding mode, all kernels but the depthwise one get a padded copy of the input.
    """
    # Other kernels divide by the sizes of the input, or load from where it would lie.
    kernel = "direct" if geometry.batch and geometry.is_empty else forced_kernel()
    return _choose(
        Question(geometry, dtype, precision, processor, forced=kernel is not None), kernel
    )


@lru_cache(maxsize=4096)
def _choose(question: Question, kernel: str | None) -> Choice:
    if kernel is not None:
        plan, refused = _plan(kernel, question), dict[str, Refusal]()
        if isinstance(plan, str):
            refused[kernel], kernel = plan, "direct"
            plan = direct_conv.plan(question)
        return Choice(kernel, plan, refused)
    times, refused = _compared(_typical(question))
    for name in _ranked(times):
        plan = _plan(name, question)
        if isinstance(plan, str):  # its sizes are too large with the call's own batch
            refused = {**refused, name: plan}
        else:
            c_order = {one: both.c_order for one, both in times.items()}
            where = " in C order, but longer with channels last"
            return Choice(name, plan, _slower(c_order, name, where) | refused)
    raise AssertionError("the direct kernel takes every call")


def _typical(question: Question) -> Question:
    """Return the question that decides which kernel is taken."""
    return replace(question, geometry=compared(question.geometry))


class _Times(NamedTuple):
    """Microseconds of a call for arrays in C order, and for those whose channels lie innermost."""

    c_order: float
    channels_last: float


# The kernel must not depend on how the arrays of a call lie. So the kernel of the least geometric
# mean of both times is taken, among those that take up to this many times as long as the fastest
# one in C order.
_NEAR = 1.15


def _ranked(times: dict[str, _Times]) -> list[str]:
    """Return the names of the kernels, the one to be taken first."""
    near = _NEAR * min(both.c_order for both in times.values())
    return sorted(times, key=lambda name: (times[name].c_order > near, math.prod(times[name])))


@lru_cache(maxsize=4096)
def _compared(question: Question) -> tuple[dict[str, _Times], dict[str, Refusal]]:
    """Return the times of the kernels that take a call, and why others do not."""
    times: dict[str, _Times] = {}
    refused: dict[str, Refusal] = {}
    engine = modes.engine_of(question.processor)
    copy = _time_of_copy(question)
    for name in _PLANS:
        copied = 0.0 if name == "depthwise" else copy
        if name.removeprefix(unfolded.PREFIX) in {"portable", "hopper"} - {engine}:
            continue
        fastest = min((both.c_order for both in times.values()), default=math.inf)
        if _NEAR * fastest < copied + least_time(name, question):
            refused[name] = "it would take longer"
            continue
        plan = plan_alone(name, question)
        if isinstance(plan, str):
            refused[name] = plan
        else:
            last = _time_channels_last(name, plan, question)
            times[name] = _Times(copied + time_of(name, plan, question), copied + last)
    return times, refused


def _time_channels_last(kernel: str, plan: Plan, question: Question) -> float:
    """Return the microseconds for arrays whose channels lie innermost."""
    if as_they_lie := in_place(plan):
        return time_of(kernel, as_they_lie, question)
    nbytes = 2 * sum(elements(question.geometry)) * question.dtype.itemsize
    copy_rate = CHIPS[question.processor.target].copy_rate
    return time_of(kernel, plan, question) + TRANSPOSED.time(0, 1e6 * nbytes / copy_rate)


def _time_of_copy(question: Question) -> float:
    """Return the microseconds of a padded copy of the input, where the call has a padding mode."""
    geometry, chip = question.geometry, CHIPS[question.processor.target]
    if geometry.padding_mode is None:
        return 0.0
    sizes = math.prod(geometry.bordered_sizes) + math.prod(geometry.padded_sizes)
    nbytes = math.prod(geometry.padded_shape[:2]) * sizes * question.dtype.itemsize
    return COPY.time(0, 1e6 * nbytes / chip.copy_rate)


def plan_alone(kernel: str, question: Question) -> Plan | Refusal:
    """Return a kernel's plan for arrays without gaps, or why it has none."""
    if kernel == "plain":
        as_one = (True,) * (question.geometry.rank - 1)
        return plain_conv.plan_joined(question, as_one)[1]
    return _plan(kernel, question)


def _plan(kernel: str, question: Question) -> Plan | Refusal:
    """Return a kernel's plan, in blocks of output channels where it would take too much memory."""
    return within_memory(_PLANS[kernel](question), kernel, question)


def least_time(kernel: str, question: Question) -> float:
    """Return microseconds that a kernel takes at least, whatever its plan is."""
    nbytes = sum(elements(question.geometry)) * question.dtype.itemsize
    moved = 1e6 * nbytes / CHIPS[question.processor.target].copy_rate
    return COSTS[kernel.removeprefix(unfolded.PREFIX)].time(0, moved)


def time_of(kernel: str, plan: Plan, question: Question, chip: Chip | None = None) -> float:
    """Return the microseconds that a kernel should take on a GPU, by default on its target's."""
    chip = chip or CHIPS[question.processor.target]
    if isinstance(plan, RowBlocksPlan):
        asked = row_blocks.questions(question, plan.rows)
        runs = zip(plan.plans, asked, strict=True)
        return sum(time_of(kernel, own, block, chip) for own, block in runs)
    if isinstance(plan, UnfoldedPlan):
        name = kernel.removeprefix(unfolded.PREFIX)
        ends = sum(time_of("direct", end, question, chip) for end in plan.ends)
        return ends + time_of(name, plan.plan, question, chip)
    parts = terms(kernel, plan, question, kernel_of(plan).UNIT, chip)
    return COSTS[cost_name(kernel, plan)].time(*parts)


def cost_name(kernel: str, plan: Plan) -> str:
    """Return the name of a kernel in `COSTS`: variants have their own."""
    return f"{kernel} on Tensor Cores" if _is_depthwise_on_tensor_cores(plan) else kernel


def _is_depthwise_on_tensor_cores(plan: Plan) -> bool:
    return isinstance(plan, DepthwisePlan) and plan.layout.shape.tensor_cores


def _slower(times: dict[str, float], taken: str, where: str = "") -> dict[str, Refusal]:
    """Return why other kernels that take a call do not run it.

    `where` follows the factor of one that is faster than the kernel that is taken.
    """
    return {
        name: f"it would take {time / times[taken]:.2f} times as long"
        + where * (time < times[taken])
        for name, time in times.items()
        if name != taken
    }


# FFT -------------------------------------------------------------------------------------------


def gain_by_fft(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, gradient: bool, processor: Processor
) -> float:
    """Return how many times as long sums over taps should take as FFT.

    That is for the `gradient` with respect to the weight, or for the convolution. It does not
    depend on the batch.
    """
    typical = replace(geometry, padding_mode=None, batch=COMPARED_BATCH)
    return _gain_by_fft(Question(typical, dtype, precision, processor), gradient)


@lru_cache(maxsize=4096)
def _gain_by_fft(question: Question, gradient: bool) -> float:
    geometry, dtype = question.geometry, question.dtype
    if gradient:
        taken = _choose_weight_gradient(question, None)
        time = time_of_gradient(taken.kernel, taken.plan, question)
        return time / _time_by_fft(fft.gradient_work(geometry, dtype), question)
    return _time_of_sums(question) / _time_by_fft(fft.work(geometry, dtype), question)


def _time_of_sums(question: Question) -> float:
    """Return the microseconds of a convolution by sums over taps."""
    geometry = question.geometry
    if refuse_parts(geometry, question.dtype, question.processor) is None:
        parts = replace(question, geometry=parts_geometry(geometry), dtype=np.dtype(np.float32))
        return (1 if geometry.groups == 1 else 2) * _time_of_sums(parts)
    taken = _choose(question, None)
    return time_of(taken.kernel, taken.plan, question)


def _time_by_fft(work: fft.Work, question: Question) -> float:
    """Return the microseconds of a call by FFT: memory decides, and the launches of each tile."""
    moved = 1e6 * work.moved / CHIPS[question.processor.target].copy_rate
    return FFT._replace(begin=FFT.begin * work.tiles).time(0, moved)


# The fused operation ----------------------------------------------------------------------------


def plan_fused(
    convolution: ConvGeometry,
    pooled: tuple[int, ...],
    num_groups: int,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
) -> FusedPlan | Refusal:
    """Return how the fused operation runs in two steps, or why it is composed of its parts.

    It is composed where another kernel than the dense one convolves faster, by more time than
    pooling in the epilogue saves; for large strides; and where packing outputs saves more.
    """
    kernel = forced_kernel()
    question = Question(convolution, dtype, precision, processor, forced=kernel is not None)
    return _plan_fused(question, pooled, num_groups, kernel)


# Pooling in the epilogue replaces a stride by zero insertion, which multiplies the products by the
# strides. Up to this many Tensor Core products for each multiply-add of the convolution, that costs
# less than separate kernels.
_MOST_PRODUCTS_WITH_ZEROS = 4


@lru_cache(maxsize=4096)
def _plan_fused(
    question: Question, pooled: tuple[int, ...], num_groups: int, kernel: str | None
) -> FusedPlan | Refusal:
    convolution, engine = question.geometry, kernel or modes.engine_of(question.processor)
    mode = matrix_conv.mode_of(question, engine)
    if mode is None:
        return not_multiplied(question.dtype)
    if kernel not in (None, "portable", "hopper"):
        return f"the {kernel} kernel does not pool"
    if convolution.is_empty:
        return "its input has no elements"
    if kernel is None:
        taker = _choose(question, None).kernel
        if taker not in matrix_conv.PLANS and not _pays_to_pool(question, engine, taker):
            return f"the {taker} kernel takes less time for the convolution"
        strides = math.prod(axis.phases for axis in convolution.axes)
        if strides > 1 and strides * mode.products > _MOST_PRODUCTS_WITH_ZEROS:
            return "with such strides, most products of a convolution that pools would be zero"
        if strides == 1 and sums.packings_of(convolution, mode)[0] != (1, 1, 1):
            return "packing neighbouring outputs into rows saves more than pooling in the epilogue"
    return fused.plan(question, mode, engine, pooled, num_groups)


_PASSES = 4  # over the result of the convolution, which pooling in the epilogue saves


def _pays_to_pool(question: Question, engine: str, taker: str) -> bool:
    """Return whether a kernel that pools takes less time than a faster one and what follows it."""
    typical = _typical(question)
    times, _ = _compared(typical)
    moved = 1e6 * elements(typical.geometry)[1] * typical.dtype.itemsize
    saved = _PASSES * COPY.time(0, moved / CHIPS[typical.processor.target].copy_rate)
    return engine in times and times[engine].c_order < times[taker].c_order + saved


# Complex numbers -------------------------------------------------------------------------------

# Bytes beside those of the real convolution, for each complex number of the input (read and written
# by the planar copy) and of the result (stored as two halves of a sector at different times, so
# that memory merges them).
_PARTS_BYTES = 16
_PARTS_BEGIN = 34.0  # microseconds of the copies' launches, their call overhead included


def parts_geometry(geometry: ConvGeometry) -> ConvGeometry:
    """Return the real convolution that computes a complex one, or one part of it.

    Its channels are the parts of the complex ones. If the complex convolution has one group, the
    real one has two, which read the same channels: the parts of the result. Otherwise it has the
    same groups, and computes one part.
    """
    groups = 2 if geometry.groups == 1 else geometry.groups
    return replace(geometry, groups=groups, channels=2 * geometry.channels)


def refuse_parts(geometry: ConvGeometry, dtype: np.dtype, processor: Processor) -> Refusal | None:
    """Return why a convolution does not run as a real one of its parts, None where it does.

    It does where the real one runs on Tensor Cores, and takes less time together with the copies.
    """
    if dtype.name != "complex64":
        return f"Tensor Cores do not multiply the parts of {dtype}"
    if geometry.is_empty:
        return "its input has no elements"
    typical = _typical(Question(geometry, dtype, "float32", processor))
    return _refuse_parts(typical, forced_kernel())


@lru_cache(maxsize=4096)
def _refuse_parts(question: Question, kernel: str | None) -> Refusal | None:
    geometry, chip = question.geometry, CHIPS[question.processor.target]
    parts = replace(
        question,
        geometry=parts_geometry(geometry),
        dtype=np.dtype(np.float32),
        forced=kernel is not None,
    )
    taken = _choose(parts, kernel)
    if kernel_of(taken.plan).UNIT != "Tensor Core":
        return "the real convolution of its parts does not run on Tensor Cores"
    if kernel is not None:
        return None
    runs = 1 if geometry.groups == 1 else 2
    time = runs * time_of(taken.kernel, taken.plan, parts)
    time += _PARTS_BEGIN + 1e6 * _PARTS_BYTES * _copied(geometry) / chip.copy_rate
    if time >= time_of("direct", direct_conv.plan(question), question):
        return "copies of its parts take more time than Tensor Cores save"
    return None


def _copied(geometry: ConvGeometry) -> int:
    """Return the complex numbers of the input and of the result."""
    inputs = geometry.channels * math.prod(axis.size_in for axis in geometry.axes)
    outputs = geometry.rows * math.prod(axis.size_out for axis in geometry.axes)
    return geometry.batch * geometry.groups * (inputs + outputs)


_PLANS: dict[str, Callable[[Question], Plan | Refusal]] = {
    **{name: plan for module in CONVOLUTIONS for name, plan in module.PLANS.items()},
    **{
        full: partial(unfolded.plan, kernel=module, name=name)
        for full, (module, name) in UNFOLDED.items()
    },
}
