"""Which kernel takes a call: the one place where kernels are compared with each other.

Kernels are asked in turn, and the first that has a plan takes the call; before some of them stands
a rule that says why others are faster. Rules look at the geometry of one sample, never at a timing,
the batch or how arrays lie, so that a sample has the same bits in every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._axes import NOMINAL_BATCH, has_one_tap, mean_products, nominal
from .._geometry import ConvGeometry
from . import (
    depthwise_conv,
    depthwise_tiles,
    direct_conv,
    fused,
    gather_conv,
    matrix_conv,
    max_pool2d,
    modes,
    normalize,
    plain_conv,
    streaming_conv,
    sum_splits,
    sums,
    weight_gradient,
)
from .fused import FusedPlan
from .launches import TARGETS, Instance, Processor
from .matrix_tiles import Task, tiling
from .modes import Mode
from .plain_tiles import MOST_POSITIONS
from .question import LARGE, MANY_AXES, Kernel, Plan, Question, Refusal, not_multiplied
from .weight_gradient import WeightGradientPlan

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
)
OTHERS: tuple[Any, ...] = (fused, normalize, max_pool2d, sum_splits)

# Names of all kernels for convolutions.
KERNELS = tuple(dict.fromkeys(name for module in CONVOLUTIONS for name in module.PLANS))

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


_MODULES: dict[type, Any] = {module.PLAN: module for module in CONVOLUTIONS}


def settled(plan: Plan, question: Question, strides: ConvStrides) -> Plan:
    """Return the plan for arrays of such strides: the FMA kernel joins axes that lie as one."""
    if isinstance(plan, plain_conv.PlainPlan):
        return plain_conv.on_long_lines(plan, question, strides)[0]
    return plan


@lru_cache(maxsize=4096)
def plan_weight_gradient(question: Question) -> WeightGradientPlan:
    """Return how the gradient of a weight runs, as the convolution `question`."""
    return weight_gradient.plan(question)


def plan_conv(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> Plan:
    """Return how a convolution of `dtype` runs; the geometry must have outputs."""
    return _plan_conv(geometry, dtype, precision, processor, forced_kernel())


@lru_cache(maxsize=4096)
def _plan_conv(
    geometry: ConvGeometry,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
    kernel: str | None,
) -> Plan:
    found = candidates(geometry, dtype, precision, processor, kernel)
    return next(plan for _, plan in found if not isinstance(plan, str))


def candidates(
    geometry: ConvGeometry,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
    kernel: str | None = None,
) -> Iterator[tuple[str, Plan | Refusal]]:
    """Yield which of `KERNELS` are asked, in order, each with its plan or why it has none."""
    if _is_empty(geometry):  # other kernels divide by its sizes, or load from where it would lie
        kernel = "direct"
    question = Question(geometry, dtype, precision, processor, forced=kernel is not None)
    engine = modes.engine_of(processor)
    for name, rule in IN_TURN.items():
        if kernel is None:
            if name in ("portable", "hopper") and name != engine:
                continue
            refusal = rule(question) if rule else None
            yield name, refusal or _PLANS[name](question)
        elif name in (kernel, "direct"):
            yield name, _PLANS[name](question)


def _is_empty(geometry: ConvGeometry) -> bool:
    """Return whether the samples of the input have no elements, so that outputs are the bias."""
    return 0 in (geometry.channels, *(axis.size_in for axis in geometry.axes))


def plan_fused(
    convolution: ConvGeometry,
    pooled: tuple[int, ...],
    num_groups: int,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
) -> FusedPlan | Refusal:
    """Return how the fused operation runs in two steps, or why it is composed of its parts.

    It is composed for float64 and integers, for calls that do not suit Tensor Cores, and for large
    strides.
    """
    return _plan_fused(
        convolution, pooled, num_groups, dtype, precision, processor, forced_kernel()
    )


# Pooling in the epilogue replaces a stride by zero insertion, which multiplies the products by the
# strides. Up to this many Tensor Core products for each multiply-add of the convolution, that costs
# less than separate kernels.
_MOST_PRODUCTS_WITH_ZEROS = 4


@lru_cache(maxsize=4096)
def _plan_fused(
    convolution: ConvGeometry,
    pooled: tuple[int, ...],
    num_groups: int,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
    kernel: str | None,
) -> FusedPlan | Refusal:
    engine = kernel or modes.engine_of(processor)
    question = Question(convolution, dtype, precision, processor, forced=kernel is not None)
    mode = matrix_conv.mode_of(question, engine)
    if mode is None:
        return not_multiplied(dtype)
    if kernel not in (None, "portable", "hopper"):
        return f"the {kernel} kernel does not pool"
    if _is_empty(convolution):
        return "its input has no elements"
    if kernel is None:
        few = _refuse_tensor_cores(convolution, mode, processor)
        if few:
            return few
        strides = math.prod(axis.phases for axis in convolution.axes)
        if strides > 1 and strides * mode.products > _MOST_PRODUCTS_WITH_ZEROS:
            return "with such strides, most products of a convolution that pools would be zero"
        if strides == 1 and sums.packings_of(convolution, mode)[0] != (1, 1, 1):
            return "packing neighbouring outputs into rows saves more than pooling in the epilogue"
    return fused.plan(question, mode, engine, pooled, num_groups)


# One input channel in each group ---------------------------------------------------------------

_LONG_LINE = 224  # bytes, from which on the depthwise kernel may copy whole lines


def _gathering(gather: gather_conv.Layout, staged: depthwise_tiles.Layout, itemsize: int) -> float:
    """Return the ratio of the kernels' cycles up to which the gather kernel is chosen."""
    if not staged.slides:
        return 1.4
    if not gather.shape.height:
        return 1.2
    width = staged.axes[2].size_in
    whole = width * itemsize % depthwise_tiles.CHUNK == 0
    if staged.shape.tensor_cores:
        return 0.7 if whole else 1.4 if width % 2 else 1.0
    return 0.7 if whole and width * itemsize >= _LONG_LINE else 0.95


def _refuse_gather(question: Question) -> Refusal | None:
    """Return why the depthwise kernel is preferred to the gather kernel, None where it is not."""
    dtype, processor = question.dtype, question.processor
    geometry = replace(question.geometry, batch=NOMINAL_BATCH)
    typical = Question(geometry, dtype, "float32", processor)
    gather = gather_conv.plan(typical)
    if isinstance(gather, str):
        return None  # its own plan says why
    staged = depthwise_conv.plan(typical)
    if isinstance(staged, str):
        return None
    most = _gathering(gather.layout, staged.layout, dtype.itemsize) * staged.layout.cycles
    if gather.layout.cycles > most:
        return "the depthwise kernel takes less time"
    return None


# Few products of an output: FMA or Tensor Cores ------------------------------------------------

# The FMA kernel may be faster than Tensor Cores up to this many products of an output.
_FEW_PRODUCTS = 110
# The FMA kernel is faster up to these ratios of its cycles to the dense kernel's. The keys are
# Tensor Core products of a K step and bytes of an element. The FMA kernel takes long to store lines
# that consist of several phases, above all of an odd number of them.
_NO_PHASES = {(3, 4): 1.6, (1, 4): 2.2, (1, 2): 1.3}
_EVEN_PHASES = {(3, 4): 2.0, (1, 4): 2.7, (1, 2): 2.2}
_ODD_PHASES = {(3, 4): 2.5, (1, 4): 3.0, (1, 2): 2.6}


def _refuse_fma(question: Question) -> Refusal | None:
    """Return why the FMA kernel is not the fastest for a convolution, None where it is."""
    dtype, processor = question.dtype, question.processor
    engine = modes.engine_of(processor)
    each = mean_products(question.geometry)
    if each > _FEW_PRODUCTS:
        return f"its outputs have {each:g} products each, more than {_FEW_PRODUCTS}"
    small = _refuse_small_sample(each * _outputs(question.geometry))
    if small:
        return small
    geometry = nominal(question.geometry)
    axes = geometry.axes
    size = math.prod(axis.size_out for axis in axes)
    if all(axis.kernel == 1 for axis in axes) and size >= MOST_POSITIONS:
        return LARGE
    typical = replace(question, geometry=geometry)
    mode = matrix_conv.mode_of(typical, engine)
    if mode is None or _refuse_tensor_cores(geometry, mode, processor):
        return None
    cycles = _dense_cycles(geometry, mode, processor, engine)
    _, plan = plain_conv.plan_joined(typical, (True,) * (geometry.rank - 1))
    if cycles is None or isinstance(plan, str):
        return None
    phases = axes[-1].phases
    factors = _NO_PHASES if phases == 1 else _ODD_PHASES if phases % 2 else _EVEN_PHASES
    if plan.layout.cycles > factors[mode.products, dtype.itemsize] * cycles:
        return "Tensor Cores take less time"
    return None


# An estimate of the FMA kernel in the cycles of other kernels' models: `_PLAIN_CYCLE` for each
# cycle of its own model, and `_PLAIN_BEGINS` for a call.
_PLAIN_BEGINS, _PLAIN_CYCLE = 63_000, 0.7


def _fma_is_faster(question: Question, cycles: float) -> Refusal | None:
    """Return why the FMA kernel takes less than `cycles`, None where it does not."""
    plain = plain_conv.plan(question)
    if isinstance(plain, str):
        return None
    if plain.layout.cycles * _PLAIN_CYCLE + _PLAIN_BEGINS < cycles:
        return "the FMA kernel takes less time"
    return None


# The few-channel kernel ------------------------------------------------------------------------

# With one tap the few-channel kernel is taken without a comparison up to this many channels (by the
# Tensor Core products of a K step). Above, the dense kernel's packed weights may be better, as this
# kernel loads its weights again for each row tile or two. Each of several taps loads its inputs,
# so there the limit is low.
_MANY_CHANNELS = {1: 512, 3: 256}
_MANY_CHANNELS_WITH_TAPS = 16
# The few-channel kernel is chosen up to these ratios of its cycles to the dense kernel's: with one
# tap, and with several taps by the stride along x. Its model tells only a stride of 1 from longer
# ones.
_OF_DENSE_WITH_MANY_CHANNELS = 1.0
_OF_DENSE = {1: 0.94, 2: 1.12}
_OF_DENSE_FAR = 1.5


def _refuse_few_channel(question: Question) -> Refusal | None:
    """Return why other kernels are faster than the few-channel one, None where they are not."""
    geometry, processor = nominal(question.geometry), question.processor
    typical = replace(question, geometry=geometry)
    plan = streaming_conv.plan(typical)
    mode = modes.unscaled_mode(question.dtype.name, question.precision)
    if isinstance(plan, str) or mode is None:
        return None  # its own plan says why
    small = _refuse_small_sample(mean_products(geometry) * _outputs(geometry))
    if small:
        return small
    one_tap, channels = has_one_tap(geometry), geometry.channels
    if one_tap:
        if mode.itemsize == 2 and geometry.axes[-1].size_out % 4:
            return "its lines do not consist of four outputs together"
    elif channels > _MANY_CHANNELS_WITH_TAPS:
        return f"its groups have {channels} input channels, more than {_MANY_CHANNELS_WITH_TAPS}"
    faster = _fma_is_faster(typical, plan.layout.cycles)
    if faster:
        return faster
    if one_tap and channels <= _MANY_CHANNELS[mode.products]:
        return None
    if one_tap:
        split = _refuse_split_k(typical) or matrix_conv.plan_split_k(typical)
        if not isinstance(split, str):
            return "split-K sums take less time"
    dense_mode = matrix_conv.mode_of(typical, "hopper")
    if dense_mode is None or _refuse_tensor_cores(geometry, dense_mode, processor):
        return None
    cycles = _dense_cycles(geometry, dense_mode, processor, "hopper")
    of_taps = _OF_DENSE.get(geometry.axes[-1].step, _OF_DENSE_FAR)
    share = _OF_DENSE_WITH_MANY_CHANNELS if one_tap else of_taps
    if cycles and plan.layout.cycles > share * cycles:
        return "the dense kernel takes less time"
    return None


# Tensor Cores ----------------------------------------------------------------------------------

# Tensor Cores are worth the packing of the weights from this many products at each position, and
# of one sample.
_DENSE_PLACE = 40
_DENSE_PRODUCTS = 2**18


def _outputs(geometry: ConvGeometry) -> int:
    """Return the outputs of one sample."""
    return geometry.groups * geometry.rows * math.prod(axis.size_out for axis in geometry.axes)


def _refuse_small_sample(products: float) -> Refusal | None:
    """Return why a sample has too few products to pack weights for, None where it has enough."""
    few = f"a sample has {products:g} products, fewer than {_DENSE_PRODUCTS}"
    return few if products < _DENSE_PRODUCTS else None


def _refuse_tensor_cores(
    geometry: ConvGeometry, mode: Mode, processor: Processor
) -> Refusal | None:
    """Return why Tensor Cores have not enough to do, None where they have."""
    if geometry.rank > 3:
        return MANY_AXES
    taps = math.prod(axis.kernel / axis.phases for axis in geometry.axes)
    place = geometry.channels * geometry.rows * taps
    if place < _DENSE_PLACE:
        return f"a group has {place:g} products at each place, fewer than {_DENSE_PLACE}"
    size = math.prod(axis.size_out for axis in geometry.axes)
    small = _refuse_small_sample(geometry.groups * place * size)
    if small:
        return small
    folds = sums.packings_of(geometry, mode)
    found = (sums.sum_of(geometry, mode, processor.shared, counts) for counts in folds)
    useful = max(one.efficiency for one in found)
    if useful * mode.rate / mode.products < direct_conv.rate(geometry):
        return f"only {useful:.1%} of the Tensor Cores' products would be of use"
    return None


def _refuse_engine(question: Question, engine: str) -> Refusal | None:
    """Return why an engine's Tensor Cores have not enough to do, None where they have."""
    mode = matrix_conv.mode_of(question, engine)
    return _refuse_tensor_cores(question.geometry, mode, question.processor) if mode else None


_refuse_split_k = partial(_refuse_engine, engine="hopper")


def _dense_cycles(
    geometry: ConvGeometry, mode: Mode, processor: Processor, engine: str
) -> float | None:
    """Return the dense kernel's cycles, as the factors of this module were fitted to them.

    They were fitted to packings of all phases along all axes, or to the default without phases.
    """
    plan = matrix_conv.plan_in_mode(geometry, mode, processor, engine)
    if isinstance(plan, str):
        return None
    folds = sums.packings_of(geometry, mode)[0]
    phased = any(axis.phases > 1 for axis in geometry.axes)
    if phased or tuple(fold.count for fold in plan.summation.fold) == folds:
        return plan.layout.cycles
    summation = sums.sum_of(geometry, mode, processor.shared, folds)
    tiled = tiling(Task(summation, geometry.batch, geometry.groups, engine, processor))
    return tiled.cycles if tiled else plan.layout.cycles


# Complex numbers -------------------------------------------------------------------------------

# Targets whose Tensor Cores take less time for a float32 product than the FMA units. The others
# multiply TF32 numbers at a quarter of the rate or less, and a float32 product takes three.
_FAST_TENSOR_CORES = ("sm_80", "sm_90a", "sm_100")
# Complex convolutions are compared for a batch of this many samples: between a single sample, for
# which the launches of copies take most of the time, and a large batch.
_COMPLEX_BATCH = 4
# Bytes that a multiprocessor of an H100 moves in a cycle; and bytes beside those of the real
# convolution, for each complex number of the input (read and written by the planar copy) and of
# the result (stored as two halves of a sector at different times, so that memory merges them).
_COMPLEX_RATE, _COMPLEX_BYTES = 12, 16
# Cycles of the launches of copies, their call overhead included.
_COMPLEX_BEGINS = 60_000


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
    if _is_empty(geometry):
        return "its input has no elements"
    typical = replace(nominal(geometry), batch=_COMPLEX_BATCH)
    return _refuse_parts(typical, processor, forced_kernel())


@lru_cache(maxsize=4096)
def _refuse_parts(
    geometry: ConvGeometry, processor: Processor, kernel: str | None
) -> Refusal | None:
    if kernel is None and processor.target not in _FAST_TENSOR_CORES:
        return f"Tensor Cores of {processor.target} multiply float32 no faster than FMA units"
    plan = _plan_conv(parts_geometry(geometry), np.dtype(np.float32), "float32", processor, kernel)
    if kernel_of(plan).UNIT != "Tensor Core":
        return "the real convolution of its parts does not run on Tensor Cores"
    if kernel is not None:
        return None
    outputs = geometry.batch * _outputs(geometry)
    inputs = math.prod(axis.size_in for axis in geometry.axes)
    inputs *= geometry.batch * geometry.groups * geometry.channels
    copied = _COMPLEX_BYTES * (inputs + outputs) / _COMPLEX_RATE / processor.multiprocessors
    runs = 1 if geometry.groups == 1 else 2
    direct = direct_conv.plan(Question(geometry, np.dtype(np.complex64), "float32", processor))
    if 4 * direct.cycles <= runs * plan.cycles + copied + _COMPLEX_BEGINS:
        return "copies of its parts take more time than Tensor Cores save"
    return None


# The kernels in the order in which they are asked, each with the rule that stands before it.
_Rule = Callable[[Question], "Refusal | None"]
IN_TURN: dict[str, _Rule | None] = {
    "gather": _refuse_gather,
    "depthwise": None,
    "streaming": _refuse_few_channel,
    "plain": _refuse_fma,
    "spans": _refuse_split_k,
    "portable": partial(_refuse_engine, engine="portable"),
    "hopper": partial(_refuse_engine, engine="hopper"),
    "direct": None,
}
_PLANS: dict[str, Callable[[Question], Plan | Refusal]] = {
    name: plan for module in CONVOLUTIONS for name, plan in module.PLANS.items()
}
