"""Weights for Tensor Cores, packed by pack_weights.cu in the order in which products take them.

Several kernels multiply packed weights. Each sum (`Sum`) has its own order of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .._geometry import ConvGeometry
from .._packing import long_reciprocal
from .._taps import on_three_axes
from .launches import Instance, Launch
from .members import CALL, Members, Template, axis_taps, struct
from .memory import along_three_axes, weight_strides
from .modes import Mode
from .sums import Sum

if TYPE_CHECKING:
    from .._strides import ConvStrides

SOURCE = "pack_weights.cu"

# A block packs at least this many turns of its rows, where several blocks share some rows; and a
# turn has this many blocks of channels.
_PACK_TURNS, _PACK_DEEP = 16, 4


def macros(mode: Mode) -> tuple[tuple[str, str], ...]:
    """Return the macros of the kernels that pack or multiply packed weights."""
    operand = (("OPERAND", mode.operand),) if mode.scaled else ()
    return (("ELEMENT", mode.element), *operand, ("PARTS", str(mode.parts)))


def instance(mode: Mode) -> Instance:
    """Return the kernel that packs weights."""
    return Instance(SOURCE, "pack_weights", macros(mode))


def launch(summation: Sum, rows: int, batch: int, multiprocessors: int) -> tuple[Launch, int]:
    """Return the launch that packs the weights of `rows` rows, and how many blocks share some rows.

    A block packs the weights of some rows, or a part of their K steps. It first looks at all of
    them where they are scaled; further blocks then look at the samples of the input.
    """
    mode = summation.mode
    packs = rows // mode.pack_rows
    spare = (1 if mode.scaled else 8) * multiprocessors // packs
    turns = summation.steps // summation.blocks * -(-summation.blocks // _PACK_DEEP)
    splits = max(1, min(spare, turns // _PACK_TURNS))
    packs *= splits
    if mode.scaled:
        packs += batch
    phases = summation.phases
    packs = -(-min(packs, (2 if mode.scaled else 4) * multiprocessors) // phases) * phases
    return Launch(instance(mode), packs, 512 if mode.scaled else 256, unit=phases), splits


# Arguments ------------------------------------------------------------------------------------


def template(
    geometry: ConvGeometry,
    summation: Sum,
    strides: ConvStrides,
    *,
    row_tiles: int,
    slabs: int,
    splits: int,
) -> Template:
    """Return the arguments of pack_weights.cu.

    A call puts in the addresses of the weights, the packed weights and the input, and of the shifts
    of rows and samples where floats are scaled.

    Parameters
    ----------
    geometry, summation, strides
        The convolution, its sums, and where its arrays lie.
    row_tiles, slabs : int
        Tiles along the rows of the matrix product, and row tiles of one.
    splits : int
        Blocks that share some rows.
    """
    source = strides.source or (geometry, strides)
    judged = _judged(*source) if summation.mode.scaled else {}
    members = {
        "weight": CALL,
        "packed": CALL,
        "groups": geometry.groups,
        "rows": geometry.rows,
        **weight_strides(strides),
        "phases": summation.phases,
        "row_tiles": row_tiles,
        "slabs": slabs,
        "steps": summation.steps,
        "splits": splits,
        "sum": steps(summation),
        "fold": [struct(fold) for fold in summation.fold],
        "folds": summation.folds,
        "axis": matrix_axes(summation, strides),
        "input": CALL,
        "lines": lines_of(*source, summation.mode.itemsize),
        **judged,
    }
    return Template(SOURCE, members)


def _judged(geometry: ConvGeometry, strides: ConvStrides) -> Members:
    """Return the members that describe the inputs, whose range decides their scale."""
    groups = 1 if strides.share_inputs else geometry.groups
    return {
        "row_shifts": CALL,
        "sample_shifts": CALL,
        "batch": max(1, geometry.batch),
        "input_channels": groups * geometry.channels,
        "input_size": [axis.size_in for axis in on_three_axes(geometry.axes)],
        "input_batch": strides.input[0],
        "input_channel": strides.input[2],
        "input_axis": along_three_axes(strides.input_axes),
    }


def matrix_axes(summation: Sum, strides: ConvStrides) -> list[Members]:
    """Return three ``struct MatrixAxis``."""
    along = zip(summation.axes, along_three_axes(strides.weight_axes), strict=True)
    return [
        {
            "taps": axis_taps(axis.taps),
            "weight_stride": stride,
            "spacing": axis.spacing,
            "lattices": axis.lattices,
            "pairs": axis.pairs,
            "spread": axis.spread,
            "spread_reciprocal": long_reciprocal(axis.spread),
        }
        for axis, stride in along
    ]


def steps(summation: Sum) -> Members:
    """Return a ``struct Steps``."""
    return {
        "channels": summation.channels,
        "blocks": summation.blocks,
        "depth": summation.depth,
        "halves": summation.halves,
        "apart": summation.axes[2].apart,
    }


_PREFETCHED = 2**24  # bytes of an input that are worth a place in the L2 cache


def lines_of(geometry: ConvGeometry, strides: ConvStrides, element: int) -> int:
    """Return the lines of 128 bytes of a small input without gaps, which the L2 cache shall hold.

    The number is 0 for any other input.
    """
    sizes = (
        geometry.batch,
        geometry.groups,
        geometry.channels,
        *(axis.size_in for axis in geometry.axes),
    )
    along = (*strides.input, *strides.input_axes)
    last = sum((size - 1) * stride for size, stride in zip(sizes, along, strict=True))
    size = math.prod(sizes)
    dense = min(along) >= 0 and last + 1 == size
    return -(-size * element // 128) if dense and size * element <= _PREFETCHED else 0
