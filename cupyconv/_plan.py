"""Second room: geometry and dtype to a frozen, printable launch plan. No arrays, no GPU.

Plans follow from rules, never from a timing, and are cached. `instances` lists every kernel that a
plan can ask for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from . import _matrix, _plain, _pointwise, _pointwise16, _streaming
from ._geometry import ConvGeometry, NormGeometry, PoolAxis, PoolGeometry
from ._kernels import depthwise_conv, depthwise_tiles, direct_conv, gather_conv
from ._kernels.depthwise_conv import DepthwisePlan
from ._kernels.direct_conv import DirectPlan
from ._kernels.gather_conv import GatherPlan
from ._kernels.launches import (
    BULK_COPIES,
    ELEMENTS,
    FLOATS,
    INT32_LIMIT,
    MAX_GRID,
    SHARED,
    SIGNED,
    SINGLES,
    TARGETS,
    Instance,
    Launch,
    Processor,
)
from ._kernels.question import (
    LARGE,
    MANY_AXES,
    Question,
    Refusal,
    fits_32_bits,
)
from ._matrix import SLAB_ROWS, Mode, Sum, Tiling

# The kernels for convolutions: for everything, for one input channel in each group, for the same
# with strides or on small and oddly wide images, for few products of an output, for one tap and for
# few on the matrix units of compute capability 9.0, there for one tap of many channels, for all
# taps on those since 8.0, and on those of 9.0; the last one also with sums of several spans, where
# a sample has few tiles.
KERNELS = (
    *("direct", "depthwise", "gather", "plain", "streaming", "pointwise"),
    *("spans", "portable", "hopper"),
)

# The most axes of a view (view.cuh): a batch, groups and their channels, those of space, and lanes.
MAX_AXES = 28

# A norm keeps its input's dtype; the fused operation rounds from float32 only at its end.
_NORM_DTYPES = (
    *((name, name) for name in FLOATS),
    ("float32", "float16"),
    ("float32", "bfloat16"),
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


@dataclass(frozen=True)
class MatrixPlan:
    """How a convolution runs by matrix_conv.cu.

    Attributes
    ----------
    pack, launch : Launch
        The kernels: one packs the weights, one convolves.
    packed : int
        Bytes of the packed weights, and of shifts where floats are multiplied as float16 numbers.
    splits : int
        Blocks of the first kernel that share some rows: each packs a part of their steps.
    partial, arrived : int
        Bytes of the sums of spans, and numbers by which these are counted.
    sum : Sum
        What is summed, and in which order.
    tiling : Tiling
        What a block computes.
    by_phase : bool
        Whether blocks beside each other have the same phase, and not all phases in turn.
    """

    pack: Launch
    launch: Launch
    packed: int
    splits: int
    partial: int
    arrived: int
    sum: Sum
    tiling: Tiling
    by_phase: bool

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays."""
        return self.partial + self.packed + 4 * self.arrived

    def __str__(self) -> str:
        return f"{self.pack}; {self.launch}: {self.tiling}"


LayoutT = TypeVar("LayoutT")


@dataclass(frozen=True)
class _TiledPlan(Generic[LayoutT]):
    """One launch, and how it divides the outputs into tiles."""

    launch: Launch
    layout: LayoutT

    def __str__(self) -> str:
        return f"{self.launch}: {self.layout}"


@dataclass(frozen=True)
class PlainPlan:
    """How a convolution runs by plain_conv.cu.

    Attributes
    ----------
    pack, launch : Launch
        The kernels: one packs the weights, one convolves.
    layout : Layout
        How outputs are divided into tiles.
    slabs : int
        Of all groups and phases of z and y, whose weights are packed.
    """

    pack: Launch
    launch: Launch
    layout: _plain.Layout
    slabs: int

    def __str__(self) -> str:
        return f"{self.pack}; {self.launch}: {self.layout}"


class StreamingPlan(_TiledPlan[_streaming.Layout]):
    """How a convolution runs by streaming_conv.cu."""


@dataclass(frozen=True)
class PointwisePlan:
    """How a convolution runs by pointwise_conv.cu.

    Attributes
    ----------
    pack, launch : Launch
        The kernels: one packs the weights, one convolves.
    packed : int
        Bytes of the packed weights.
    splits : int
        Blocks of the first kernel that share some rows: each packs a part of their steps.
    sum : Sum
        What is summed, and in which order.
    layout : Layout
        How outputs are divided into tiles.
    """

    pack: Launch
    launch: Launch
    packed: int
    splits: int
    sum: Sum
    layout: _pointwise.Layout

    def __str__(self) -> str:
        return f"{self.pack}; {self.launch}: {self.layout}"


class Pointwise16Plan(_TiledPlan[_pointwise16.Layout]):
    """How a convolution runs by pointwise16_conv.cu."""


@dataclass(frozen=True)
class FusedPlan:
    """How the fused operation runs: a convolution that pools, and what norms its result.

    Attributes
    ----------
    convolution : MatrixPlan
        Leaves the extrema of the windows, and statistics of each channel for each block.
    combine, normalize : Launch
        The statistics of all blocks; batch norm, tanh and group norm of the extrema.
    apart : bool
        Whether groups are too large for this, and a group norm of its own goes behind the others.
    """

    convolution: MatrixPlan
    combine: Launch
    normalize: Launch
    apart: bool

    def __str__(self) -> str:
        return f"{self.convolution}; {self.combine}; {self.normalize}"


# How a convolution runs.
ConvPlan: TypeAlias = (
    DirectPlan
    | DepthwisePlan
    | GatherPlan
    | PlainPlan
    | StreamingPlan
    | PointwisePlan
    | Pointwise16Plan
    | MatrixPlan
)


def _is_empty(geometry: ConvGeometry) -> bool:
    """Return whether the samples of the input have no elements, so that outputs are the bias."""
    return 0 in (geometry.channels, *(axis.size_in for axis in geometry.axes))


def _engine(processor: Processor) -> str:
    return "hopper" if processor.target == "sm_90a" else "portable"


def plan_conv(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> ConvPlan:
    """Return how a convolution of `dtype` runs; the geometry must have outputs."""
    return _plan_conv(geometry, dtype, precision, processor, forced_kernel())


@lru_cache(maxsize=4096)
def _plan_conv(
    geometry: ConvGeometry,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
    kernel: str | None,
) -> ConvPlan:
    found = candidates(geometry, dtype, precision, processor, kernel)
    return next(plan for _, plan in found if not isinstance(plan, str))


def candidates(
    geometry: ConvGeometry,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
    kernel: str | None = None,
) -> Iterator[tuple[str, ConvPlan | Refusal]]:
    """Yield which of `KERNELS` are asked, in order, each with its plan or why it has none."""
    if _is_empty(geometry):  # other kernels divide by its sizes, or load from where it would lie
        kernel = "direct"
    if kernel in (None, "gather"):
        staged = _better_staged(geometry, dtype, processor) if kernel is None else None
        yield "gather", staged or gather_conv.plan(Question(geometry, dtype, precision, processor))
    if kernel in (None, "depthwise"):
        yield "depthwise", depthwise_conv.plan(Question(geometry, dtype, precision, processor))
    if kernel in (None, "pointwise"):
        few = _few_channels(geometry, dtype, precision, processor) if kernel is None else None
        yield "pointwise", few or _plan_pointwise(geometry, dtype, precision, processor)
    if kernel in (None, "streaming"):
        slow = _too_slow(geometry, dtype, precision, processor) if kernel is None else None
        yield "streaming", slow or _plan_streaming(geometry, dtype, precision, processor)
    if kernel in (None, "plain"):
        many = _too_many(geometry, dtype, precision, processor) if kernel is None else None
        yield "plain", many or plan_plain(geometry, dtype, processor)
    if kernel in (None, "spans"):
        yield "spans", _plan_spans(geometry, dtype, precision, processor, kernel is not None)
    if kernel in (None, "portable", "hopper"):
        engine = kernel or _engine(processor)
        mode = _matrix.mode(dtype.name, precision, engine, geometry, kernel is not None)
        few = _too_few(geometry, mode, processor) if mode and kernel is None else None
        if mode is None:
            yield engine, _no_mode(dtype)
        else:
            yield engine, few or _plan_matrix(geometry, mode, processor, engine)
    yield "direct", direct_conv.plan(Question(geometry, dtype, precision, processor))


def _no_mode(dtype: np.dtype) -> Refusal:
    return f"matrix units do not multiply {dtype}"


_LONG_LINE = 224  # bytes, from which on the depthwise kernel may copy whole lines


def _gathering(gather: gather_conv.Layout, staged: depthwise_tiles.Layout, itemsize: int) -> float:
    """Return what gathering may take of the depthwise kernel's time, by their models."""
    if not staged.slides:
        return 1.4
    if not gather.shape.height:
        return 1.2
    width = staged.axes[2].size_in
    whole = width * itemsize % depthwise_tiles.CHUNK == 0
    if staged.shape.tensor_cores:
        return 0.7 if whole else 1.4 if width % 2 else 1.0
    return 0.7 if whole and width * itemsize >= _LONG_LINE else 0.95


def _better_staged(geometry: ConvGeometry, dtype: np.dtype, processor: Processor) -> Refusal | None:
    """Return why inputs are better staged with a halo, None where they are not."""
    g = replace(geometry, batch=_NOMINAL_BATCH)
    question = Question(g, dtype, "float32", processor)
    gather = gather_conv.plan(question)
    if isinstance(gather, str):
        return None  # which is said by its own plan
    staged = depthwise_conv.plan(question)
    if isinstance(staged, str):
        return None
    most = _gathering(gather.layout, staged.layout, dtype.itemsize) * staged.layout.cycles
    if gather.layout.cycles > most:
        return "the depthwise kernel takes less time"
    return None


def _plain_instances(dtype: str, shape: _plain.Shape) -> tuple[Instance, Instance]:
    """Return the kernels that pack weights and that convolve."""
    element = ("ELEMENT", ELEMENTS[dtype])
    shaped = (
        ("POSITIONS", str(shape.positions)),
        ("COLUMNS", str(shape.columns)),
        ("RESIDENT", str(shape.resident)),
    )
    return (
        Instance("plain_conv.cu", "pack_plain", (element,)),
        Instance("plain_conv.cu", "plain_conv", (element, *shaped)),
    )


@lru_cache(maxsize=4096)
def plan_plain(
    geometry: ConvGeometry, dtype: np.dtype, processor: Processor
) -> PlainPlan | Refusal:
    """Return the plan by plain multiply-adds, or why there is none."""
    g = geometry
    if dtype.name not in SINGLES:
        return f"it is not for {dtype}"
    if g.rank > 3:
        return MANY_AXES
    if not fits_32_bits(g) or g.rows >= INT32_LIMIT // 2:
        return LARGE
    shared = SHARED[processor.target]
    bulk_copies = processor.target in BULK_COPIES
    layout = _plain.layout(g, dtype.itemsize, shared, processor.multiprocessors, bulk_copies)
    if layout is None:
        return "its kernel, or its stride, is too large for tiles"
    if max(layout.count, layout.units) > MAX_GRID // 2:
        return LARGE
    pack, convolve = _plain_instances(dtype.name, layout.shape)
    slabs = g.groups * layout.slabs * layout.phases
    blocks = -(-layout.count // layout.tiles_of_block)
    blocks = min(blocks, MAX_GRID // layout.units) * layout.units
    return PlainPlan(
        Launch(pack, min(slabs, 16 * processor.multiprocessors), _plain.THREADS),
        Launch(
            convolve,
            blocks,
            _plain.THREADS,
            layout.shared,
            layout.units,
            early=processor.target == "sm_90a",
        ),
        layout,
        slabs,
    )


@lru_cache(maxsize=4096)
def plan_joined(
    geometry: ConvGeometry, dtype: np.dtype, processor: Processor, lie_as_one: tuple[bool, ...]
) -> tuple[tuple[int, ...], PlainPlan | Refusal]:
    """Return axes to join with the one behind, in this order, and the plan by plain multiply-adds.

    An axis without taps makes longer lines as a part of the one in front of it, where the two
    `lie_as_one`. The sums stay the same.
    """
    plan, axes = plan_plain(geometry, dtype, processor), tuple[int, ...]()
    for axis in reversed(range(geometry.rank - 1)):
        one = _plain.joined(geometry, axis) if lie_as_one[axis] else None
        other = plan_plain(one, dtype, processor) if one else "it is as it was"
        if isinstance(plan, str) or isinstance(other, str) or not one:
            continue
        if other.layout.cycles < plan.layout.cycles:
            plan, geometry, axes = other, one, (*axes, axis)
    return axes, plan


# Up to here plain multiply-adds may be faster than matrix units: products of an output.
_FEW_PRODUCTS = 110
# How the models compare: what plain multiply-adds may take, in the cycles of matrix units, for each
# number of products and of bytes of an element. Those take long to store lines that consist of
# several phases, above all of an odd number of them.
_NO_PHASES = {(3, 4): 1.6, (1, 4): 2.2, (1, 2): 1.3}
_EVEN_PHASES = {(3, 4): 2.0, (1, 4): 2.7, (1, 2): 2.2}
_ODD_PHASES = {(3, 4): 2.5, (1, 4): 3.0, (1, 2): 2.6}
_NOMINAL_BATCH = 64  # for which they are compared, as the choice must not depend on the batch


def _nominal(geometry: ConvGeometry) -> ConvGeometry:
    """Return a convolution for which kernels are compared, whatever the batch is.

    Where axes without taps lie as one they may have been joined before, and a choice must not
    depend on that: here they always are.
    """
    g = replace(geometry, batch=_NOMINAL_BATCH)
    if any(axis.kernel > 1 for axis in g.axes):
        return g
    axes = tuple(replace(axis, dilation=1, offset_step=1) for axis in g.axes)
    g = replace(g, axes=axes, dilation=(1,) * g.rank)
    for axis in reversed(range(g.rank - 1)):
        g = _plain.joined(g, axis) or g
    return g


def _too_many(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> Refusal | None:
    """Return why plain multiply-adds are not the fastest for a convolution, None where they are."""
    g = geometry
    each = _plain.products(g)
    if each > _FEW_PRODUCTS:
        return f"its outputs have {each:g} products each, more than {_FEW_PRODUCTS}"
    small = _small(each * g.groups * g.rows * math.prod(axis.size_out for axis in g.axes))
    if small:
        return small
    g = _nominal(g)
    if (
        all(axis.kernel == 1 for axis in g.axes)
        and math.prod(axis.size_out for axis in g.axes) >= _plain.MOST_POSITIONS
    ):
        return LARGE
    engine = _engine(processor)
    mode = _matrix.mode(dtype.name, precision, engine, g, False)
    if mode is None or _too_few(g, mode, processor):
        return None
    cycles = _dense_cycles(g, mode, processor, engine)
    _, plan = plan_joined(g, dtype, processor, (True,) * (g.rank - 1))
    if cycles is None or isinstance(plan, str):
        return None
    phases = g.axes[-1].phases
    factors = _NO_PHASES if phases == 1 else _ODD_PHASES if phases % 2 else _EVEN_PHASES
    factor = factors[mode.products, dtype.itemsize]
    if plan.layout.cycles > factor * cycles:
        return "matrix units take less time"
    return None


def _streaming_conv(mode: Mode, shape: _streaming.Shape) -> Instance:
    return Instance(
        "streaming_conv.cu",
        "streaming_conv",
        (
            ("ELEMENT", mode.element),
            ("PARTS", str(mode.parts)),
            ("CHANNELS", str(shape.channels)),
            ("TEAMS", str(shape.teams)),
            *((("HELD", str(shape.held)),) if shape.held else ()),
            *((("PASS_ROWS", str(shape.rows)),) if shape.rows != SLAB_ROWS else ()),
            *((("TAPS", "1"),) if shape.taps else ()),
        ),
    )


def _plan_streaming(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> StreamingPlan | Refusal:
    """Return the plan for one tap or few products, or why there is none."""
    g = geometry
    mode = _matrix.plain_mode(dtype.name, precision)
    if mode is None:
        return _no_mode(dtype)
    if not _streaming.suits(g):
        return "it has phases, many taps, or more products than tables are made of"
    if g.rank > 3:
        return MANY_AXES
    if processor.target != "sm_90a":
        return f"{processor.target} has not the instructions"
    layout = _streaming.layout(g, mode, SHARED[processor.target], processor.multiprocessors)
    if layout is None:
        return "registers have no room for its channels, or shared memory for weights of 64 rows"
    size = math.prod(axis.size_out for axis in g.axes)
    largest = max(size, g.batch, g.rows, layout.tiles, layout.units)
    if not fits_32_bits(g) or largest >= INT32_LIMIT // 2:
        return LARGE
    blocks = min(layout.tiles, max(1, processor.multiprocessors // layout.units))
    launch = Launch(
        _streaming_conv(mode, layout.shape),
        blocks * layout.units,
        layout.shape.threads,
        layout.shared,
        layout.units,
    )
    return StreamingPlan(launch, layout)


# Turns that a block packs of its rows at least, where several share these; K blocks of a turn.
_PACK_TURNS, _PACK_DEEP = 16, 4


def _pack_weights(mode: Mode, spanned: bool = False) -> Instance:
    operand = (("OPERAND", mode.operand),) if mode.scaled else ()
    spans = (("SPANS", "1"),) if spanned else ()
    macros = (("ELEMENT", mode.element), *operand, ("PARTS", str(mode.parts)), *spans)
    return Instance("pack_weights.cu", "pack_weights", macros)


def _packing(sum: Sum, rows: int, batch: int, multiprocessors: int) -> tuple[Launch, int]:
    """Return how the weights of so many rows are packed, and how many blocks share some of them.

    A block packs the weights of some rows, or a part of their steps; scaled ones it all looks at
    before, and at the inputs of samples.
    """
    mode = sum.mode
    packs = rows // mode.pack_rows
    spare = (1 if mode.scaled else 8) * multiprocessors // packs
    blocks = sum.spans * sum.blocks
    turns = sum.steps // blocks * -(-blocks // _PACK_DEEP)
    splits = max(1, min(spare, turns // _PACK_TURNS))
    packs *= splits
    if mode.scaled:
        packs += batch
    packs = -(-min(packs, (2 if mode.scaled else 4) * multiprocessors) // sum.phases) * sum.phases
    instance = _pack_weights(mode, sum.spans > 1)
    return Launch(instance, packs, 512 if mode.scaled else 256, unit=sum.phases), splits


def _pointwise_conv(mode: Mode, shape: _pointwise.Shape) -> Instance:
    return Instance(
        "pointwise_conv.cu",
        "pointwise_conv",
        (
            *(("ELEMENT", mode.element), ("PARTS", str(mode.parts))),
            *(("CHANNELS", str(shape.channels)), ("TEAMS", str(shape.teams))),
            ("HELD", str(shape.held)),
        ),
    )


def _pointwise16_conv(dtype: str, shape: _pointwise16.Shape) -> Instance:
    return Instance(
        "pointwise16_conv.cu",
        "pointwise16_conv",
        (
            *(("ELEMENT", ELEMENTS[dtype]), ("PARTS", "1")),
            *(("TEAMS", str(shape.teams)), ("SLABS", str(shape.slabs))),
            *(("BLOCKS", str(shape.blocks)), ("RESIDENT", str(shape.resident))),
        ),
    )


def _plan_pointwise(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> PointwisePlan | Pointwise16Plan | Refusal:
    """Return the plan for one tap and many channels, or why there is none."""
    g = geometry
    mode = _matrix.plain_mode(dtype.name, precision)
    if mode is None:
        return _no_mode(dtype)
    if mode.products > 1:
        return "its precision takes three products"
    if not _streaming.has_one_tap(g):
        return "its outputs have several taps, or some have none"
    if g.rank > 3:
        return MANY_AXES
    if not g.channels:
        return "it has no input channels"
    if processor.target != "sm_90a":
        return f"{processor.target} has not the instructions"
    if dtype.itemsize == 2:
        return _plan_pointwise16(g, dtype, processor)
    multiprocessors = processor.multiprocessors
    layout = _pointwise.layout(g, mode, SHARED[processor.target], multiprocessors)
    shape = layout.shape
    sum = _matrix.of_one_tap(g, mode, layout.chunks * shape.channels // mode.block)
    size = math.prod(axis.size_out for axis in g.axes)
    # Of the packing kernel, which divides them, by whichever shape: the batch must not count.
    slabs = g.groups * -(-g.rows // SLAB_ROWS)
    steps = 6 * SLAB_ROWS * slabs * (g.channels // mode.block + 4)
    if not fits_32_bits(g) or max(size, g.rows, layout.tiles, steps) >= INT32_LIMIT // 8:
        return LARGE
    pack, splits = _packing(sum, layout.units * shape.rows, g.batch, multiprocessors)
    launch = Launch(
        _pointwise_conv(mode, shape),
        layout.blocks * layout.units,
        shape.threads,
        layout.shared,
        layout.units,
        early=True,
    )
    packed = layout.units * shape.held * sum.steps * mode.slab_bytes
    return PointwisePlan(pack, launch, packed, splits, sum, layout)


def _plan_pointwise16(
    geometry: ConvGeometry, dtype: np.dtype, processor: Processor
) -> Pointwise16Plan | Refusal:
    g = geometry
    layout = _pointwise16.layout(g, SHARED[processor.target], processor.multiprocessors)
    shape = layout.shape
    size = math.prod(axis.size_out for axis in g.axes)
    if not fits_32_bits(g) or max(size, g.rows, layout.blocks) >= INT32_LIMIT // 8:
        return LARGE
    launch = Launch(
        _pointwise16_conv(dtype.name, shape),
        layout.sharing * layout.units,
        shape.threads,
        layout.shared,
        layout.units,
    )
    return Pointwise16Plan(launch, layout)


# The kernel for few products: cycles in which it begins, and what one of its model is worth in the
# models of the kernels that it is compared with here.
_PLAIN_BEGINS, _PLAIN_CYCLE = 63_000, 0.7


def _plain_is_faster(
    geometry: ConvGeometry, dtype: np.dtype, processor: Processor, cycles: float
) -> Refusal | None:
    """Return why plain multiply-adds are faster than so many cycles, None where they are not."""
    plain = plan_plain(geometry, dtype, processor)
    if isinstance(plain, str):
        return None
    if plain.layout.cycles * _PLAIN_CYCLE + _PLAIN_BEGINS < cycles:
        return "plain multiply-adds take less time"
    return None


# Up to so many channels of a group its inputs are better loaded to registers at once: by the bytes
# of an element.
_FEW_CHANNELS = {4: 64, 2: 48}


def _few_channels(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> Refusal | None:
    """Return why other kernels are faster than the pointwise one, None where they are not.

    The batch does not count, nor how arrays lie.
    """
    g = _nominal(geometry)
    plan = _plan_pointwise(g, dtype, precision, processor)
    if isinstance(plan, str):
        return None  # which is said by its own plan
    size = dtype.itemsize
    if g.channels <= _FEW_CHANNELS[size]:
        return f"its groups have {g.channels} input channels, no more than {_FEW_CHANNELS[size]}"
    axis = g.axes[-1]
    if g.rank > 1 or axis.step > 1 or axis.size_out % 2:
        return "neighbouring outputs, or their inputs, do not lie together"
    if size == 2 and (g.rows if g.transposed else g.channels) % 2:
        return "neighbouring weights do not lie together"
    small = _small(g.channels * g.groups * g.rows * math.prod(axis.size_out for axis in g.axes))
    if small:
        return small
    return _plain_is_faster(g, dtype, processor, plan.layout.cycles)


# From here on weights may be better packed: channels of one tap, which are loaded again for each 64
# rows or two times so many, by the products of a step. And, for certain, channels with several
# taps, of which each loads its inputs.
_MANY_CHANNELS = {1: 512, 3: 256}
_MANY_CHANNELS_WITH_TAPS = 16
# How the models compare: what it may take of the dense kernel's cycles, with one tap, and with
# several by how far that strides, which leaves its model behind.
_OF_DENSE_WITH_MANY_CHANNELS = 1.0
_OF_DENSE = {1: 0.94, 2: 1.12}
_OF_DENSE_FAR = 1.5


def _too_slow(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor
) -> Refusal | None:
    """Return why other kernels are faster than the streaming one, None where they are not.

    The batch does not count, nor how arrays lie.
    """
    g = _nominal(geometry)
    plan = _plan_streaming(g, dtype, precision, processor)
    mode = _matrix.plain_mode(dtype.name, precision)
    if isinstance(plan, str) or mode is None:
        return None  # which is said by its own plan
    products = _streaming.products(g)
    small = _small(products * g.groups * g.rows * math.prod(axis.size_out for axis in g.axes))
    if small:
        return small
    one_tap = _streaming.has_one_tap(g)
    if one_tap:
        many = g.channels > _MANY_CHANNELS[mode.products]
        if mode.itemsize == 2 and g.axes[-1].size_out % 4:
            return "its lines do not consist of four outputs together"
    elif g.channels > _MANY_CHANNELS_WITH_TAPS:
        return f"its groups have {g.channels} input channels, more than {_MANY_CHANNELS_WITH_TAPS}"
    faster = _plain_is_faster(g, dtype, processor, plan.layout.cycles)
    if faster:
        return faster
    if one_tap and not many:
        return None
    if one_tap and not isinstance(_plan_spans(g, dtype, precision, processor, False), str):
        return "the sum of a sample is divided into spans"
    dense_mode = _matrix.mode(dtype.name, precision, "hopper", g)
    if dense_mode is None or _too_few(g, dense_mode, processor):
        return None
    cycles = _dense_cycles(g, dense_mode, processor, "hopper")
    of_taps = _OF_DENSE.get(g.axes[-1].step, _OF_DENSE_FAR)
    share = _OF_DENSE_WITH_MANY_CHANNELS if one_tap else of_taps
    if cycles and plan.layout.cycles > share * cycles:
        return "the dense kernel takes less time"
    return None


# From here on the matrix units are worth the packing of the weights: products at each place, and of
# one sample.
_DENSE_PLACE = 40
_DENSE_PRODUCTS = 2**18


def _small(products: float) -> Refusal | None:
    """Return why so many products of a sample are too few to pack weights for, None if not."""
    few = f"a sample has {products:g} products, fewer than {_DENSE_PRODUCTS}"
    return few if products < _DENSE_PRODUCTS else None


def _too_few(geometry: ConvGeometry, mode: Mode, processor: Processor) -> Refusal | None:
    """Return why matrix units have not enough to do, None where they have.

    The batch does not count, as it changes no bits.
    """
    g = geometry
    if g.rank > 3:
        return MANY_AXES
    place = g.channels * g.rows * math.prod(axis.kernel / axis.phases for axis in g.axes)
    if place < _DENSE_PLACE:
        return f"a group has {place:g} products at each place, fewer than {_DENSE_PLACE}"
    small = _small(g.groups * place * math.prod(axis.size_out for axis in g.axes))
    if small:
        return small
    shared = SHARED[processor.target]
    folds = _matrix.folds_of(g, mode)
    useful = max(_matrix.sum_of(g, mode, shared, counts).efficiency for counts in folds)
    if useful * mode.rate / mode.products < direct_conv.rate(g):
        return f"only {useful:.1%} of the matrix units' products would be its own"
    return None


def _dense_cycles(
    geometry: ConvGeometry, mode: Mode, processor: Processor, engine: str
) -> float | None:
    """Return the dense kernel's cycles, as other kernels have been compared with it.

    That was with phases as folds of all axes, and without them with the folds that suit first.
    """
    g = geometry
    plan = _plan_matrix(g, mode, processor, engine)
    if isinstance(plan, str):
        return None
    folds = _matrix.folds_of(g, mode)[0]
    phased = any(axis.phases > 1 for axis in g.axes)
    if phased or tuple(fold.count for fold in plan.sum.fold) == folds:
        return plan.tiling.cycles
    sum = _matrix.sum_of(g, mode, SHARED[processor.target], folds)
    tiling = _tiling(sum, g.batch, g.groups, processor, engine, window=1)
    return tiling.cycles if tiling else plan.tiling.cycles


def _matrix_conv(
    mode: Mode, shape: _matrix.Shape, engine: str, window: int = 1, spanned: bool = False
) -> Instance:
    """Return the kernel that convolves, and pools where there are windows."""
    shaped = (
        ("ENGINE", {"portable": "MmaEngine", "hopper": "WgmmaEngine"}[engine]),
        ("TEAMS", str(shape.teams)),
        ("SLABS", str(shape.slabs)),
        ("SEGMENT", str(shape.segment)),
        ("SEGMENTS", str(shape.segments)),
        *((("POOLS", "1"),) if window > 1 else ()),
    )
    macros = _pack_weights(mode, spanned).defines
    return Instance("matrix_conv.cu", "matrix_conv", macros + shaped)


def _matrix_instances(
    mode: Mode, shape: _matrix.Shape, engine: str, window: int = 1, spanned: bool = False
) -> tuple[Instance, Instance]:
    """Return the kernels that pack weights and that convolve."""
    return _pack_weights(mode, spanned), _matrix_conv(mode, shape, engine, window, spanned)


# Spans of a sum, and steps of one: fewer do not pay for the sums that are handed over.
_MOST_SPANS, _LEAST_STEPS = 16, 32
# For which batches they are compared, as their number must not depend on the batch, and the cycles
# that a call takes beside its kernel's. What they gain must be more than a model errs.
_SPANNED_BATCHES, _BESIDE, _GAIN = (64, 16, 4, 1), 25000, 0.9
# How much longer folds take that are the phases of several places: their inputs lie in lattices.
_SEVERAL_PLACES = 1.1
# How many blocks a multiprocessor has, one after the other, where one of the phases has many more
# taps than they have in the mean; twice as many where some have none. Those of few taps run ahead,
# and outputs beside each other, which share sectors of memory, had better be written soon after
# each other: a turn of these has so many bytes.
_UNEQUAL = 1.6
_LEAST_TURNS, _MOST_TURNS = 4, 8
_TURN_BYTES = 2**24


def _output_bytes(geometry: ConvGeometry, sum: Sum) -> int:
    g = geometry
    outputs = g.batch * g.groups * g.rows * math.prod(axis.size_out for axis in g.axes)
    return outputs * sum.mode.itemsize


def _turns(geometry: ConvGeometry, sum: Sum) -> int:
    """Return how many blocks each multiprocessor has in turn, a power of two."""
    if sum.phases == 1:
        return 1
    most, fewest, every = zip(*(axis.taps.tap_counts for axis in sum.axes), strict=True)
    if math.prod(most) * sum.phases <= _UNEQUAL * math.prod(every):
        return 1
    most_turns = _MOST_TURNS * (1 if all(fewest) else 2)
    turns = _output_bytes(geometry, sum) // _TURN_BYTES
    return max(_LEAST_TURNS, min(most_turns, 1 << turns.bit_length() >> 1))


# Small outputs stay in the L2 cache until all phases have written theirs.
_KEPT_BYTES = 2**25
# Of so many tiles of a phase for a multiprocessor, of which products count most, another block for
# each phase costs little.
_MANY_TILES = 4


def _by_phase(geometry: ConvGeometry, sum: Sum, tiles: int, multiprocessors: int) -> bool:
    """Return whether blocks beside each other have the same phase, each `tiles`, the longest first.

    Else they have all phases in turn. Then a block of many taps may begin last, or all blocks wait
    for those of the phase that has most.
    """
    if sum.spans > 1 or not sum.phase_order or tiles * sum.phases <= multiprocessors:
        return False
    taps = sum.phase_taps
    if min(taps) == 0 < max(taps):
        return _output_bytes(geometry, sum) <= _KEPT_BYTES
    many = sum.mode.parts == 2 and tiles >= _MANY_TILES * multiprocessors
    if sum.axes[0].taps.phases == 1 and not many:
        return False
    in_turn = -(-tiles // max(1, multiprocessors // sum.phases)) * max(taps)
    if tiles < multiprocessors:
        return tiles * math.fsum(taps) / multiprocessors + max(taps) / 2 < in_turn
    return -(-tiles // multiprocessors) * math.fsum(taps) < in_turn


def _plan_spans(
    geometry: ConvGeometry, dtype: np.dtype, precision: str, processor: Processor, forced: bool
) -> MatrixPlan | Refusal:
    """Return the plan with sums of several spans, or why there is none.

    They are for samples of few tiles and long sums, unless the kernel is `forced`. How many there
    are, if any, follows from the cycles of a few batches: those that gain in small ones what they
    lose in large ones.
    """
    mode = _matrix.mode(dtype.name, precision, "hopper", geometry, forced)
    if mode is None:
        return _no_mode(dtype)
    few = None if forced else _too_few(geometry, mode, processor)
    if few:
        return few
    nominal = _nominal(geometry)
    whole = _plan_matrix(nominal, mode, processor, "hopper")
    if isinstance(whole, str):
        return whole
    sum = whole.sum
    if any(axis.taps.tap_counts[1] == 0 for axis in sum.axes):
        return "it has phases without taps, in which nothing keeps the teams of a block together"
    smallest = _matrix.span_shapes(mode)[-1]
    columns = math.prod(axis.taps.positions(0) for axis in sum.axes)
    tiles = -(-sum.matrix_rows // smallest.rows) * -(-columns // smallest.columns)
    tiles *= geometry.groups * sum.phases
    if not forced and tiles > processor.multiprocessors // 2:
        return f"a sample has {tiles} small tiles, more than half as many as multiprocessors"

    def cycles(spans: int, limit: float = math.inf) -> float:
        """Return the product of the cycles of all batches, by `_BESIDE`: all count alike.

        Where it is beyond the limit it is infinite, and mostly known so from large batches.
        """
        product = 1.0
        for batch in _SPANNED_BATCHES:
            sample = replace(nominal, batch=batch)
            plan = _plan_matrix(sample, mode, processor, "hopper", spans=spans)
            product *= math.inf if isinstance(plan, str) else plan.tiling.cycles / _BESIDE + 1
            if product > limit:
                return math.inf
        return product

    least = 1 if forced else _LEAST_STEPS
    most = min(sum.blocks, sum.steps // least, _MOST_SPANS)
    numbers = [spans for spans in range(2, most + 1) if sum.blocks % spans == 0]
    if not numbers:
        return f"sums of {sum.steps} steps, in {sum.blocks} blocks of channels, have no spans"
    limit = math.inf if forced else _GAIN * cycles(1)
    taken, spans = min((cycles(spans, limit), spans) for spans in numbers)
    if taken > limit:
        return "spans gain in small batches hardly more than they lose in large ones"
    return _plan_matrix(geometry, mode, processor, "hopper", spans=spans)


def _tiling(
    sum: Sum, batch: int, groups: int, processor: Processor, engine: str, window: int
) -> Tiling | None:
    shared, multiprocessors = SHARED[processor.target], processor.multiprocessors
    return _matrix.tiling(sum, batch, groups, engine, shared, multiprocessors, window)


@lru_cache(maxsize=4096)
def _matrix_sum(
    geometry: ConvGeometry, mode: Mode, processor: Processor, engine: str, window: int, spans: int
) -> Sum:
    """Return how the matrix kernel sums up: as suits first, or what takes far fewer cycles.

    The batch is a nominal one: the order of a sum must not depend on a call's.
    """
    g, shared = geometry, SHARED[processor.target]
    if window > 1:
        stacked = _matrix.stacked(mode, engine)
        sums = [_matrix.sum_of(g, mode, shared, stacked=stacked)]
    else:
        sums = [_matrix.sum_of(g, mode, shared, counts) for counts in _matrix.folds_of(g, mode)]
    if spans > 1:
        sums = [_matrix.spanned(sum, spans) for sum in sums]
    found = [one for sum in sums for one in (sum, _matrix.one_by_one(sum)) if one]
    first = found[0].fold

    def cycles(sum: Sum) -> float:
        tiling = _tiling(sum, g.batch, g.groups, processor, engine, window)
        several = 1 < g.axes[-1].phases < sum.fold[2].count
        doubt = _GAIN if sum.fold == first else _SEVERAL_PLACES if several else 1
        return tiling.cycles * doubt if tiling else math.inf

    return min(found, key=cycles) if len(found) > 1 else found[0]


def _plan_matrix(
    geometry: ConvGeometry,
    mode: Mode,
    processor: Processor,
    engine: str,
    window: int = 1,
    spans: int = 1,
) -> MatrixPlan | Refusal:
    """Return the plan on matrix units, or why there is none.

    A `window` of 2 pools the outputs two by two along y and x.
    """
    g = geometry
    capable = {"portable": processor.target != "sm_75", "hopper": processor.target == "sm_90a"}
    if not capable[engine]:
        return f"{processor.target} has not the instructions"
    if g.rank > 3:
        return MANY_AXES
    if not g.channels:
        return "it has no input channels"
    # Room for what folding and whole tiles add to coordinates.
    reach = max(axis.size_out + axis.phases + axis.step for axis in g.axes)
    if not fits_32_bits(g) or reach >= INT32_LIMIT // 2:
        return LARGE
    sum = _matrix_sum(replace(g, batch=_NOMINAL_BATCH), mode, processor, engine, window, spans)
    if (
        g.groups * sum.phases * (sum.matrix_rows + 2 * _matrix.SLAB_ROWS) * sum.steps
        >= INT32_LIMIT // 8
    ):
        return LARGE  # the packing kernel divides its steps, of 129 rows or more, in 21 bits
    tiling = _tiling(sum, g.batch, g.groups, processor, engine, window)
    if tiling is None:
        return "no tile fits shared memory"
    multiprocessors = processor.multiprocessors
    shape = tiling.shape
    slots = g.groups * sum.phases * tiling.row_tiles * shape.rows * sum.steps * 2
    convolve = _matrix_conv(mode, shape, engine, window, spans > 1)
    blocks = multiprocessors * _turns(g, sum)
    stored = spans > 1 and (tiling.apart or not mode.keeps_spans)
    partial = shape.partial_bytes if stored else 0
    if stored:
        blocks = min(blocks, _matrix.MOST_PARTIAL // partial)
    tiles = tiling.count * g.groups * (spans if tiling.apart else 1)
    by_phase = _by_phase(g, sum, tiles, multiprocessors)
    blocks = multiprocessors if by_phase else max(1, blocks // sum.phases)
    blocks = min(tiles, blocks) * sum.phases
    if max(blocks, tiles) > MAX_GRID:
        return LARGE
    if tiling.resident and tiling.stores_most and 1 < tiling.tiles[-1] < blocks < tiles // 32:
        # Where the same blocks always have the ends of rows, they fall behind. Then neighbours
        # write parts of a sector so long after each other that memory reads and writes it twice.
        blocks = next(n for n in range(blocks, 0, -1) if math.gcd(n, tiling.tiles[-1]) == 1)
    workspace = slots * mode.parts * _matrix.SLOT
    rows = g.groups * sum.phases * tiling.row_tiles * shape.rows
    if mode.scaled:
        workspace = 2 * workspace + 8 * rows + 4 * g.batch
    pack, splits = _packing(sum, rows, g.batch, multiprocessors)
    warps = shape.threads(mode, engine, window) // 32
    return MatrixPlan(
        pack,
        # Where statistics are kept for each block, their number is no longer free.
        Launch(
            convolve,
            blocks,
            shape.threads(mode, engine, window),
            tiling.shared,
            sum.phases if window == 1 else blocks,
            early=engine == "hopper",
        ),
        workspace,
        splits,
        (tiles * sum.phases if tiling.apart else blocks) * partial,
        tiling.count * g.groups * sum.phases * warps if tiling.apart else 0,
        sum,
        tiling,
        by_phase,
    )


_THREADS = 256  # of the kernels in pooled_norm.cu, normalize.cu and max_pool2d.cu
_NORM_WARPS = 8  # of a block in pooled_norm.cu
_MOST_SPREAD = 4  # products for one of an input, up to which those with zeros cost less than parts


def _pooled_norm(function: str, dtype: str) -> Instance:
    return Instance("pooled_norm.cu", function, (("OUTPUT", ELEMENTS[dtype]),))


def plan_fused(
    convolution: ConvGeometry,
    pooled: tuple[int, ...],
    num_groups: int,
    dtype: np.dtype,
    precision: str,
    processor: Processor,
) -> FusedPlan | Refusal:
    """Return how the fused operation runs in two steps, or why it is composed of its parts.

    The latter are float64 and integers, calls that do not suit the matrix units, large strides.
    """
    return _plan_fused(
        convolution, pooled, num_groups, dtype, precision, processor, forced_kernel()
    )


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
    engine = kernel or _engine(processor)
    mode = _matrix.mode(dtype.name, precision, engine, convolution, kernel is not None)
    if mode is None:
        return _no_mode(dtype)
    if kernel not in (None, "portable", "hopper"):
        return f"the {kernel} kernel does not pool"
    if _is_empty(convolution):
        return "its input has no elements"
    if kernel is None:
        few = _too_few(convolution, mode, processor)
        if few:
            return few
        strides = math.prod(axis.phases for axis in convolution.axes)
        if strides > 1 and strides * mode.products > _MOST_SPREAD:
            return "with such strides, most products of one that pools at once would be zero"
        if strides == 1 and _matrix.folds_of(convolution, mode)[0] != (1, 1, 1):
            return "to fold neighbouring outputs into rows is worth more than to pool at once"
    plan = _plan_matrix(convolution, mode, processor, engine, window=2)
    if isinstance(plan, str):
        return plan
    samples, channels, *space = pooled
    combine = Launch(_pooled_norm("combine", "float32"), min(channels, MAX_GRID), _THREADS)
    values, blocks = channels // num_groups * math.prod(space), samples * num_groups
    apart = 4 * values > SHARED[processor.target] - 1024  # what the kernel declares beside it
    if apart:
        blocks = min(-(-samples * channels // _NORM_WARPS), 16 * processor.multiprocessors)
        normalize = Launch(_pooled_norm("activate", "float32"), blocks, _THREADS)
    else:
        # A thread has at least so many values, or what a warp does anyway takes most of the time.
        threads = min(max(64, 1 << (values // 32).bit_length() >> 1), 512)
        instance = _pooled_norm("normalize", dtype.name)
        normalize = Launch(instance, blocks, threads, 4 * values, unit=blocks)
    if blocks > MAX_GRID:
        return LARGE
    return FusedPlan(plan, combine, normalize, apart)


_MOST_THREADS = 384  # of `normalize_sets`
_WARP = 32
PACK = 16  # bytes of input that a thread sums at a time
UNROLL = 4  # steps of a thread (view.cuh)
MOST_CHANNELS = 4  # of a step
_MIN_SEGMENT = 16384
_MAX_SEGMENTS = 1024
_PARAMETERS = 16  # bytes of each channel of a set in a block of `normalize_sets`
_SHARED_ASIDE = 2048  # bytes of it beside these and the values
_MANY_RESIDENT = 3  # blocks of it that fill a multiprocessor with fewer threads
_BLOCKS = 12  # of `normalize` for each multiprocessor, which holds 3 of them at a time


@dataclass(frozen=True)
class NormPlan:
    """How a norm runs.

    Attributes
    ----------
    statistics : tuple of Launch
        What gives the sets' statistics: two kernels, one where they are given, none where the other
        one does it all.
    normalize : Launch
        The kernel that normalises.
    pack : int
        Values that a thread sums at a time.
    segment, segments : int
        Elements of a segment of a set, and their number; 0 where there are none.
    """

    statistics: tuple[Launch, ...]
    normalize: Launch
    pack: int
    segment: int = 0
    segments: int = 0

    @property
    def reads(self) -> int:
        """How often the input is read."""
        return 2 if self.segments else 1

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.statistics, self.normalize)))


def _norm(function: str, input_dtype: str, output_dtype: str) -> Instance:
    return Instance(
        "normalize.cu",
        function,
        (
            ("INPUT", ELEMENTS[input_dtype]),
            ("OUTPUT", ELEMENTS[output_dtype]),
            (function.upper(), "1"),
        ),
    )


@lru_cache(maxsize=4096)
def plan_norm(
    geometry: NormGeometry,
    input_dtype: np.dtype,
    output_dtype: np.dtype,
    given: bool,
    tanh: bool,
    across: bool,
    processor: Processor,
) -> NormPlan:
    """Return how a norm runs; `given` means that the caller brings mean and variance.

    `tanh` follows if asked for. `across` says that each channel is a set and that channels lie in
    packs: then those of a pack have their statistics together.
    """
    g, pack = geometry, PACK // input_dtype.itemsize

    def launch(function: str, blocks: int, threads: int = _THREADS, shared: int = 0) -> Launch:
        instance = _norm(function, input_dtype.name, output_dtype.name)
        return Launch(instance, max(1, min(blocks, MAX_GRID)), threads, shared)

    packs = -(-g.elements // pack)
    shared = packs * PACK + g.channels * _PARAMETERS
    resident = SHARED[processor.target] // (shared + _SHARED_ASIDE)
    if g.sets_per_sample and resident and not tanh:
        # As many threads as fill a multiprocessor, but for the smallest sets.
        threads = _MOST_THREADS if resident < _MANY_RESIDENT else _THREADS
        while threads > _WARP and threads >= 2 * packs:
            threads //= 2
        return NormPlan((), launch("normalize_sets", g.sets, threads, shared), pack)

    blocks = -(-math.prod(g.shape) // (_THREADS * UNROLL))
    function = "normalize_tanh" if tanh else "normalize"
    normalize = launch(function, min(blocks, _BLOCKS * processor.multiprocessors))
    if given:
        return NormPlan((launch("given", -(-g.sets // _THREADS)),), normalize, pack)
    unit = _THREADS * UNROLL * pack
    segment = max(_MIN_SEGMENT, -(-g.elements // (_MAX_SEGMENTS * unit)) * unit)
    segments = max(1, -(-g.elements // segment))
    function, bundle = ("statistics_across", pack) if across else ("statistics", 1)
    partial = launch(function, g.sets // bundle * segments)
    return NormPlan((partial, launch("combine", g.sets)), normalize, pack, segment, segments)


def _max_pool2d(dtype: str, lanes: int) -> Instance:
    element = SIGNED.get(dtype) or ELEMENTS[dtype]
    return Instance("max_pool2d.cu", "max_pool2d", (("ELEMENT", element), ("LANES", str(lanes))))


# Taps of a window, above which its rows and then its columns are pooled: two passes read fewer
# elements from the caches, but move those between them through memory and take a second launch.
_MOST_TAPS = 64
_RESIDENT_THREADS = 1024  # of a multiprocessor: four blocks
_PART = 4096  # taps of a part of a window, for which a warp loads several times 16 bytes a lane
_MOST_BETWEEN = 64_000_000  # bytes of workspace, where one sample takes no more


@dataclass(frozen=True)
class PoolPass:
    """One launch of max_pool2d.cu.

    Attributes
    ----------
    axes : pair of PoolAxis
        The windows, or where there are `parts` of them, the first part of each.
    lanes : int
        Threads that share a window: those of a warp, or one, which has several windows.
    along : int
        The axis that a warp shares, and that parts follow each other on.
    parts, part_step : int
        Parts of a window, and from one to the next in positions. Each part is pooled by itself.
    """

    axes: tuple[PoolAxis, PoolAxis]
    lanes: int = 1
    along: int = 1
    parts: int = 1
    part_step: int = 0

    @property
    def out_shape(self) -> tuple[int, int]:
        """Shape of a plane of the result; the parts of a window lie together."""
        height, width = self.axes
        return height.size_out, width.size_out * self.parts


@dataclass(frozen=True)
class PoolPlan:
    """How a max pooling runs.

    Attributes
    ----------
    passes : tuple of PoolPass
        Each pools what the one before it has written to workspace.
    launches : tuple of Launch
        Their kernels.
    samples : int
        Indices of the first axis that the passes take at a time.
    between : tuple of int
        Elements that each pass but the last one writes to workspace.
    """

    passes: tuple[PoolPass, ...]
    launches: tuple[Launch, ...]
    samples: int
    between: tuple[int, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.launches))


def _each(size: int) -> PoolAxis:
    """Return windows of one position each."""
    return PoolAxis(size, size, kernel=1, stride=1, dilation=1, pad=0)


def _pool_passes(
    axes: tuple[PoolAxis, PoolAxis], planes: int, multiprocessors: int
) -> tuple[PoolPass, ...]:
    """Return the passes of a pooling; each keeps the first maximum of a window in row-major order.

    - Windows of many taps take two passes: rows first, then columns.
    - A warp shares long windows where threads would be few, or far apart in memory.
    - Where even the warps would be few, windows are cut into parts, which another pass joins.
    """
    height, width = axes
    if min(height.taps, width.taps) > 1 and height.taps * width.taps > _MOST_TAPS:
        rows, columns = (_each(height.size_in), width), (height, _each(width.size_out))
        return (
            *_pool_passes(rows, planes, multiprocessors),
            *_pool_passes(columns, planes, multiprocessors),
        )
    outputs = planes * height.size_out * width.size_out
    threads = multiprocessors * _RESIDENT_THREADS
    along = 0 if width.taps == 1 else 1
    axis = axes[along]
    far_apart = along == 1 and (width.size_out == 1 or width.stride >= _WARP)
    if axis.taps < _WARP or not (far_apart or outputs < threads):
        return (PoolPass(axes),)
    parts = min(threads // _WARP // outputs, axis.taps // _PART)
    if parts <= 1:
        return (PoolPass(axes, _WARP, along),)
    # Parts may overlap by less than their number of taps, so that all have the same.
    step = axis.kernel // parts
    part = replace(axis, kernel=axis.kernel - (parts - 1) * step)
    cut = (part, width) if along == 0 else (height, part)
    first = PoolPass(cut, _WARP, along, parts, step * axis.dilation)
    wide = PoolAxis(width.size_out * parts, width.size_out, parts, parts, dilation=1, pad=0)
    joined = _each(height.size_out), wide
    return (first, *_pool_passes(joined, planes, multiprocessors))


@lru_cache(maxsize=4096)
def plan_pool(geometry: PoolGeometry, dtype: np.dtype, processor: Processor) -> PoolPlan:
    """Return how a max pooling of `dtype` runs; the geometry must have outputs."""
    height, width = geometry.axes
    planes, batch = math.prod(geometry.lead), geometry.lead[0]
    passes = _pool_passes((height.trimmed, width.trimmed), planes, processor.multiprocessors)
    sizes = [planes // batch * math.prod(one.out_shape) for one in passes]  # of one sample
    most = sum(sizes[:-1]) * dtype.itemsize
    samples = min(batch, max(1, _MOST_BETWEEN // most)) if most else batch
    launches = []
    for one, size in zip(passes, sizes, strict=True):
        block = _THREADS // one.lanes if one.lanes > 1 else _THREADS * UNROLL  # windows
        grid = min(-(-samples * size // block), MAX_GRID)
        launches.append(Launch(_max_pool2d(dtype.name, one.lanes), grid, _THREADS))
    between = tuple(samples * size for size in sizes[:-1])
    return PoolPlan(passes, tuple(launches), samples, between)


def instances(target: str) -> tuple[Instance, ...]:
    """Return all kernel instances that plans can ask for on `target`, such as ``"sm_90a"``."""
    if target not in TARGETS:
        raise ValueError(f"target must be one of {TARGETS}, got {target!r}")
    direct = direct_conv.instances(target)
    depthwise = depthwise_conv.instances(target)
    gather = gather_conv.instances(target)
    plain = (
        instance
        for dtype in SINGLES
        for shape in _plain.SHAPES
        for instance in _plain_instances(dtype, shape)
    )
    streaming = (
        _streaming_conv(mode, shape)
        for mode in _matrix.modes("hopper")
        if target == "sm_90a" and not mode.scaled
        for taps in (False, True)
        for shape in _streaming.shapes(mode, taps)
    )
    pointwise = (
        instance
        for mode in _matrix.modes("hopper")
        if target == "sm_90a" and not mode.scaled and (mode.products, mode.itemsize) == (1, 4)
        for shape in _pointwise.SHAPES
        for instance in (_pack_weights(mode), _pointwise_conv(mode, shape))
    )
    pointwise16 = (
        _pointwise16_conv(name, shape)
        for name in ("float16", "bfloat16")
        if target == "sm_90a"
        for shape in _pointwise16.SHAPES
    )
    norms = (
        _norm(function, *dtypes)
        for dtypes in _NORM_DTYPES
        for function in ("statistics", "combine", "given", "normalize", "normalize_sets")
        if function != "given" or dtypes[0] == dtypes[1]  # the fused operation ends in a group norm
    )
    norms_with_tanh = (_norm("normalize_tanh", name, name) for name in ("float32", "float64"))
    norms_across = (_norm("statistics_across", name, name) for name in FLOATS)
    unsigned = (name for name in ELEMENTS if name.startswith("uint"))
    pools = (
        _max_pool2d(dtype, lanes) for dtype in (*FLOATS, *unsigned, *SIGNED) for lanes in (1, _WARP)
    )
    engines = {"sm_75": (), "sm_90a": ("portable", "hopper")}.get(target, ("portable",))
    matrix = (
        instance
        for engine in engines
        for mode in _matrix.modes(engine)
        for shape in _matrix.shapes(mode, engine)
        for instance in _matrix_instances(mode, shape, engine)
    )
    spans = (
        instance
        for mode in _matrix.modes("hopper")
        if target == "sm_90a"
        for shape in _matrix.span_shapes(mode)
        for instance in _matrix_instances(mode, shape, "hopper", spanned=True)
    )
    pooled = (
        instance
        for engine in engines
        for mode in _matrix.modes(engine)
        for shape in _matrix.pool_shapes(mode, engine)
        for instance in _matrix_instances(mode, shape, engine, window=2)
    )
    pooled_norms = (
        _pooled_norm(function, dtype)
        for function, dtype in (
            *(("normalize", dtype) for dtype in ("float32", "float16", "bfloat16")),
            ("combine", "float32"),
            ("activate", "float32"),
        )
        if engines
    )
    norm_kernels = (*norms, *norms_with_tanh, *norms_across)
    found = (
        *direct,
        *depthwise,
        *gather,
        *plain,
        *streaming,
        *pointwise,
        *pointwise16,
        *matrix,
        *spans,
        *pooled,
        *pooled_norms,
        *norm_kernels,
        *pools,
    )
    return tuple(dict.fromkeys(found))
