"""Convolutions as matrix products on Tensor Cores, by wgmma ("hopper") or mma ("portable").

An implicit GEMM: output channels (rows) by output positions (columns), K being channels and taps.
Outputs may be pooled in the epilogue.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array, Convolution
from .._axes import NOMINAL_BATCH
from .._geometry import ConvGeometry
from .._packing import lie_together, long_reciprocal, reciprocal, zero_padded
from . import modes, packed_weights, sums
from .launches import INT32_LIMIT, MAX_GRID, WGMMA, Instance, Launch, Processor
from .matrix_blocks import blocks_of, by_phase
from .matrix_shapes import Shape, pool_shapes, shapes, stacked
from .matrix_tiles import Task, Tiling, tiling
from .members import CALL, Members, Template, axis_taps, byte_words, parameter, struct
from .memory import along_three_axes, weight_strides
from .modes import SLAB_ROWS, SLOT, Mode
from .question import LARGE, MANY_AXES, PackedPlan, Question, Refusal, fits_32_bits, not_multiplied
from .sums import MOST_FOLDS, MOST_ORDERED, Sum

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("matrix_conv.cu", packed_weights.SOURCE)
ORDER = "taps of z, then blocks of channels, then taps of y and x"
UNIT = "Tensor Core"

_SCALING = 1.2  # factor of the time where floats are multiplied as float16 numbers


@dataclass(frozen=True)
class MatrixPlan(PackedPlan[Tiling]):
    """How a convolution runs by matrix_conv.cu.

    Attributes
    ----------
    pack, launch : Launch
        The kernels: one packs the weights, one convolves.
    layout : Tiling
        What a block computes.
    summation : Sum
        What is summed, and in which order.
    packed : int
        Bytes of the packed weights, and of the shifts of scaled floats.
    splits : int
        Blocks of the first kernel that share some rows: each packs a part of their K steps.
    by_phase : bool
        Whether neighbouring blocks have the same phase, not all phases in turn.
    """

    summation: Sum
    packed: int
    splits: int
    by_phase: bool

    @property
    def cycles(self) -> float:
        """The cycles of a multiprocessor, with the time that scaling floats takes."""
        return self.layout.cycles * (_SCALING if self.summation.mode.scaled else 1)

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays."""
        return self.packed


PLAN = MatrixPlan


def mode_of(question: Question, engine: str) -> Mode | None:
    """Return what Tensor Cores multiply, None where they do not multiply the dtype."""
    return modes.mode(
        question.dtype.name, question.precision, engine, question.geometry, question.forced
    )


def plan(question: Question, engine: str) -> MatrixPlan | Refusal:
    """Return the plan by an engine's instructions, or why there is none."""
    mode = mode_of(question, engine)
    if mode is None:
        return not_multiplied(question.dtype)
    return plan_in_mode(question.geometry, mode, question.processor, engine)


def plan_in_mode(
    geometry: ConvGeometry,
    mode: Mode,
    processor: Processor,
    engine: str,
    window: int = 1,
) -> MatrixPlan | Refusal:
    """Return the plan in a mode, or why there is none.

    A `window` of 2 pools the outputs two by two along y and x.
    """
    refusal = _refusal(geometry, processor, engine)
    if refusal:
        return refusal
    nominal_batch = replace(geometry, batch=NOMINAL_BATCH)
    summation = _sum(nominal_batch, mode, processor, engine, window)
    phases, groups = summation.phases, geometry.groups
    most_rows = summation.matrix_rows + 2 * SLAB_ROWS
    if groups * phases * most_rows * summation.steps >= INT32_LIMIT // 8:
        return LARGE  # the packing kernel divides its steps, of 129 rows or more, in 21 bits
    tiled = tiling(Task(summation, geometry.batch, groups, engine, processor, window))
    if tiled is None:
        return "no tile fits shared memory"
    shape = tiled.shape
    tiles = tiled.count * groups
    multiprocessors = processor.multiprocessors
    same_phase = by_phase(geometry, summation, tiles, multiprocessors)
    blocks = blocks_of(geometry, summation, tiles, same_phase, multiprocessors)
    if max(blocks, tiles) > MAX_GRID:
        return LARGE
    if tiled.resident and tiled.stores_most and 1 < tiled.tiles[-1] < blocks < tiles // 32:
        # Where the same blocks always have the ends of rows, they fall behind. Then neighbours
        # write parts of a sector so long after each other that memory reads and writes it twice.
        blocks = next(n for n in range(blocks, 0, -1) if math.gcd(n, tiled.tiles[-1]) == 1)
    rows = groups * phases * tiled.row_tiles * shape.rows
    packed = rows * summation.steps * 2 * mode.parts * SLOT
    if mode.scaled:
        packed = 2 * packed + 8 * rows + 4 * geometry.batch
    pack, splits = packed_weights.launch(summation, rows, geometry.batch, processor.multiprocessors)
    threads = shape.threads(mode, engine, window)
    # Where statistics are kept for each block, the number of blocks is not free.
    unit = phases if window == 1 else blocks
    kernel = _instance(mode, shape, engine, window)
    return MatrixPlan(
        pack=pack,
        launch=Launch(kernel, blocks, threads, tiled.shared, unit, early=engine == "hopper"),
        layout=tiled,
        summation=summation,
        packed=packed,
        splits=splits,
        by_phase=same_phase,
    )


def _refusal(geometry: ConvGeometry, processor: Processor, engine: str) -> Refusal | None:
    """Return why a convolution has no plan, whatever its tiles are."""
    capable = {"portable": processor.target != "sm_75", "hopper": processor.has_wgmma}
    if not capable[engine]:
        return f"{processor.target} lacks the instructions"
    if geometry.rank > 3:
        return MANY_AXES
    if not geometry.channels:
        return "it has no input channels"
    # Coordinates grow by what packed outputs and whole tiles add.
    reach = max(axis.size_out + axis.phases + axis.step for axis in geometry.axes)
    if not fits_32_bits(geometry) or reach >= INT32_LIMIT // 2:
        return LARGE
    return None


# Sums -----------------------------------------------------------------------------------------

# Factors of cycles: of the default packing, as a gain must exceed the error of the model; and of
# packings of the phases of several positions, whose inputs lie in polyphase components.
_GAIN, _SEVERAL_PLACES = 0.9, 1.1


@lru_cache(maxsize=4096)
def _sum(geometry: ConvGeometry, mode: Mode, processor: Processor, engine: str, window: int) -> Sum:
    """Return the default sum, or one that takes far fewer cycles.

    The geometry has the nominal batch: the order of a sum must not depend on a call's.
    """
    shared = processor.shared
    if window > 1:
        found = [sums.sum_of(geometry, mode, shared, stacked=stacked(mode, engine))]
    else:
        packings = sums.packings_of(geometry, mode)
        found = [sums.sum_of(geometry, mode, shared, counts) for counts in packings]
    found = [one for pairs in found for one in (pairs, sums.one_by_one(pairs)) if one]
    if len(found) == 1:
        return found[0]

    def task(summation: Sum) -> Task:
        several = 1 < geometry.axes[-1].phases < summation.fold[2].count
        doubt = _GAIN if summation.fold == found[0].fold else _SEVERAL_PLACES if several else 1
        batch, groups = geometry.batch, geometry.groups
        return Task(summation, batch, groups, engine, processor, window, doubt)

    best = tiling(*map(task, found))
    return best.summation if best else found[0]


PLANS: dict[str, Callable[[Question], MatrixPlan | Refusal]] = {
    "hopper": partial(plan, engine="hopper"),
    "portable": partial(plan, engine="portable"),
}


# Instances ------------------------------------------------------------------------------------


def _instance(mode: Mode, shape: Shape, engine: str, window: int = 1) -> Instance:
    """Return the kernel that convolves, and pools where there are windows."""
    shaped = (
        ("ENGINE", {"portable": "MmaEngine", "hopper": "WgmmaEngine"}[engine]),
        ("TEAMS", str(shape.teams)),
        ("SLABS", str(shape.slabs)),
        ("SEGMENT", str(shape.segment)),
        ("SEGMENTS", str(shape.segments)),
        *((("POOLS", "1"),) if window > 1 else ()),
    )
    macros = packed_weights.macros(mode) + shaped
    return Instance(SOURCES[0], "matrix_conv", macros)


def engines(target: str) -> tuple[str, ...]:
    """Return the engine that plans on a target ask for unless one is forced, if there is any."""
    return () if target == "sm_75" else ("hopper" if target in WGMMA else "portable",)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that convolutions can ask for on a target."""
    for engine in engines(target):
        for mode in modes.modes(engine):
            yield packed_weights.instance(mode)
            for shape in shapes(mode, engine):
                yield _instance(mode, shape, engine)


def pooling_instances(target: str) -> Iterator[Instance]:
    """Yield the instances that pool, for the fused operation on a target."""
    for engine in engines(target):
        for mode in modes.modes(engine):
            for shape in pool_shapes(mode, engine):
                yield _instance(mode, shape, engine, window=2)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: MatrixPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    return bind_pooling(plan, question, strides, bias, device, {})


def bind_pooling(
    plan: MatrixPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
    pooling: Members,
) -> Callable[..., None]:
    """Return a convolution with the further members of a kernel that pools.

    After its arrays, the result being None, it takes the values of the members that are `CALL`.
    """
    geometry, summation, tiled = question.geometry, plan.summation, plan.layout
    element, scaled = question.dtype.itemsize, summation.mode.scaled
    pack_template = packed_weights.template(
        geometry,
        summation,
        strides,
        row_tiles=tiled.row_tiles,
        slabs=tiled.shape.slabs,
        splits=plan.splits,
    )
    template = Template(SOURCES[0], _arguments(plan, geometry, strides, bias, pooling))
    batch = max(1, geometry.batch)
    rows = geometry.groups * summation.phases * tiled.row_tiles * tiled.shape.rows
    sample_shifts = plan.packed - 4 * batch
    row_shifts = sample_shifts - 8 * rows
    x = summation.axes[2]
    input_pairs = x.pairs and lie_together(2, (*strides.input, *strides.input_axes)) == 2
    unit = _unit(summation, geometry, strides)
    groups = tiled.slots // 32
    pack, launch = device.launcher(plan.pack), device.launcher(plan.launch)
    address, byte = device.address, np.dtype(np.uint8)

    def convolve(
        data: Array, weight: Array, bias: Array | None, out: Array | None, *more: int
    ) -> None:
        memory = device.workspace((plan.workspace,), byte)
        weights, packed = address(weight), address(memory)
        source, result = address(data), 0 if out is None else address(out)
        looked_at: tuple[int, ...] = (source,)
        if scaled:
            shifts = packed + row_shifts, packed + sample_shifts
            looked_at, more = (source, *shifts), (*shifts, *more)
        pack(pack_template.fill(weights, packed, *looked_at))
        paired = input_pairs and source % (2 * element) == 0
        launch(
            template.fill(
                *(source, weights, packed, result, 0 if bias is None else address(bias)),
                *(reciprocal(groups // 2 if paired else groups), paired),
                math.gcd(unit, result // element),
                *more,
            )
        )

    return convolve


def _unit(summation: Sum, geometry: ConvGeometry, strides: ConvStrides) -> int:
    """Return how many neighbouring outputs are one store where the result is aligned."""
    along_x = summation.fold[2].count
    shared = along_x % 2 == 0 or along_x == summation.axes[2].taps.phases == 1
    out = (*strides.out, *strides.out_axes)
    return lie_together(summation.unit if shared else 1, out, geometry.axes[-1].size_out)


def _arguments(
    plan: MatrixPlan,
    geometry: ConvGeometry,
    strides: ConvStrides,
    bias: Array | None,
    pooling: Members,
) -> Members:
    """Return the members of ``struct Arguments``."""
    summation = plan.summation
    out_axes = along_three_axes(strides.out_axes)
    scaled: Members = {"row_shifts": CALL, "sample_shifts": CALL}
    return {
        "input": CALL,
        "weight": CALL,
        "packed": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "batch": geometry.batch,
        "groups": geometry.groups,
        "rows": geometry.rows,
        "input_batch": strides.input[0],
        "input_group": strides.input[1],
        "input_channel": strides.input[2],
        "input_axis": along_three_axes(strides.input_axes),
        **weight_strides(strides),
        "out_batch": strides.out[0],
        "out_group": strides.out[1],
        "out_row": strides.out[2],
        "out_axis": out_axes,
        "taps": [axis_taps(axis) for axis in summation.taps],
        "axis": packed_weights.matrix_axes(summation, strides),
        "fold": [struct(fold) for fold in summation.fold],
        "folds": summation.folds,
        "fold_offset": zero_padded(_fold_offsets(summation, out_axes), MOST_FOLDS),
        "sum": packed_weights.steps(summation),
        "phases": summation.phases,
        "steps": summation.steps,
        "by_phase": plan.by_phase,
        "phase_order": byte_words(summation.phase_order, MOST_ORDERED),
        **_tiling_members(plan.layout),
        "groups_reciprocal": CALL,
        "input_pairs": CALL,
        "output_unit": CALL,
        **(scaled if summation.mode.scaled else {}),
        **pooling,
    }


def _fold_offsets(summation: Sum, strides: Sequence[int]) -> list[int]:
    """Return the offsets of the outputs that are packed into the rows of a column."""
    along_z, along_y, along_x = strides
    places = itertools.product(*(range(fold.count) for fold in summation.fold))
    return [z * along_z + y * along_y + x * along_x for z, y, x in places]


def _tiling_members(tiled: Tiling) -> Members:
    """Return the members that say how outputs are divided into tiles."""
    return {
        "row_tiles": tiled.row_tiles,
        "tiles": tiled.tiles,
        "tile": tiled.tile,
        "plane_pitch": tiled.plane_pitch,
        "row_pitch": tiled.row_pitch,
        "segment_pitch": tiled.segment_pitch,
        "slots": tiled.slots,
        "lattice_slots": tiled.lattice_slots,
        "extent": tiled.extent,
        "reach": tiled.reach,
        "stages": tiled.stages,
        "weight_stages": tiled.weight_stages,
        "chunk": tiled.chunk,
        "deep": tiled.deep,
        "resident": tiled.resident,
        "group": tiled.group,
        "plane_reciprocal": reciprocal(tiled.plane_pitch),
        "row_reciprocal": reciprocal(tiled.row_pitch),
        "depth_reciprocal": reciprocal(tiled.tile[1]),
        "tile_reciprocals": [long_reciprocal(n) for n in (tiled.row_tiles, *reversed(tiled.tiles))],
    }
