"""The FMA kernel: few products of each output, by multiply-adds of the CUDA cores.

A first launch packs the weights in the order of the sums, a second one convolves. The order of a
sum is fixed by the geometry of one sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array, Convolution
from .._axes import joined
from .._geometry import ConvGeometry
from .._packing import long_reciprocal, reciprocal
from .._taps import AxisTaps
from .launches import ELEMENTS, INT32_LIMIT, MAX_GRID, SINGLES, Instance, Launch, Processor
from .members import CALL, Members, Template, axis_taps, byte_words, parameter
from .memory import along_three_axes, staged_pitches, weight_strides
from .plain_tiles import (
    CHUNK,
    MAX_PHASES,
    ROWS,
    SHAPES,
    STORED,
    THREADS,
    Layout,
    Shape,
    layout_of,
    pieces,
)
from .question import LARGE, MANY_AXES, PackedPlan, Question, Refusal, fits_32_bits

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("plain_conv.cu",)
ORDER = "channels, then the taps of z, y and x; the bias last"
UNIT = "memory"


@dataclass(frozen=True)
class PlainPlan(PackedPlan[Layout]):
    """How a convolution runs by plain_conv.cu.

    Attributes
    ----------
    pack, launch : Launch
        The kernels: one packs the weights, one convolves.
    layout : Layout
        How outputs are divided into tiles.
    slabs : int
        Row tiles of `ROWS` output channels whose weights are packed, over all groups of the
        convolution and phases of z and y.
    """

    slabs: int

    @property
    def packed(self) -> int:
        """Bytes of the packed weights."""
        return 4 * ROWS * self.slabs * self.layout.steps

    @property
    def workspace(self) -> int:
        """Bytes of the packed weights, and of a mark for each row tile with infinities or NaN."""
        return self.packed + 4 * self.slabs


PLAN = PlainPlan


def plan(question: Question) -> PlainPlan | Refusal:
    """Return the plan by multiply-adds, or why there is none."""
    return _plan(question.geometry, question.dtype, question.processor)


PLANS = {"plain": plan}


@lru_cache(maxsize=4096)
def _plan(geometry: ConvGeometry, dtype: np.dtype, processor: Processor) -> PlainPlan | Refusal:
    if dtype.name not in SINGLES:
        return f"it is not for {dtype}"
    if geometry.rank > 3:
        return MANY_AXES
    if not fits_32_bits(geometry) or geometry.rows >= INT32_LIMIT // 2:
        return LARGE
    layout = layout_of(geometry, dtype.itemsize, processor)
    if isinstance(layout, str):
        return layout
    if max(layout.count, layout.units) > MAX_GRID // 2:
        return LARGE
    pack, convolve = _instances(dtype.name, layout.shape)
    slabs = geometry.groups * layout.slabs * layout.phases
    blocks = -(-layout.count // layout.tiles_of_block)
    blocks = min(blocks, MAX_GRID // layout.units) * layout.units
    return PlainPlan(
        Launch(pack, min(slabs, 16 * processor.multiprocessors), THREADS),
        Launch(
            convolve,
            blocks,
            THREADS,
            layout.shared,
            layout.units,
            early=processor.has_wgmma,
        ),
        layout,
        slabs,
    )


def plan_joined(
    question: Question, lie_as_one: tuple[bool, ...]
) -> tuple[tuple[int, ...], PlainPlan | Refusal]:
    """Return axes to join with the next one, in this order, and the plan of the joined geometry.

    An axis without taps makes longer lines as a part of the axis before it, where the two
    `lie_as_one`. The sums stay the same.
    """
    return _plan_joined(question.geometry, question.dtype, question.processor, lie_as_one)


@lru_cache(maxsize=4096)
def _plan_joined(
    geometry: ConvGeometry, dtype: np.dtype, processor: Processor, lie_as_one: tuple[bool, ...]
) -> tuple[tuple[int, ...], PlainPlan | Refusal]:
    best, axes = _plan(geometry, dtype, processor), tuple[int, ...]()
    for axis in reversed(range(geometry.rank - 1)):
        one = joined(geometry, axis) if lie_as_one[axis] else None
        if isinstance(best, str) or not one:
            continue
        other = _plan(one, dtype, processor)
        if not isinstance(other, str) and other.layout.cycles < best.layout.cycles:
            best, geometry, axes = other, one, (*axes, axis)
    return axes, best


def on_long_lines(
    plan: PlainPlan, question: Question, strides: ConvStrides
) -> tuple[PlainPlan, ConvGeometry, ConvStrides]:
    """Return a plan with axes joined where they lie as one and that is faster, and what it is for.

    `plan` is the plan with the axes as they are.
    """
    geometry = question.geometry
    widths = [axis.size_in for axis in geometry.axes[1:]]
    lie_as_one = tuple(strides.lie_as_one(axis, width) for axis, width in enumerate(widths))
    axes, longer = plan_joined(question, lie_as_one)
    if not axes or isinstance(longer, str):
        return plan, geometry, strides
    for axis in axes:
        geometry = joined(geometry, axis) or geometry
        strides = strides.joined(axis)
    return longer, geometry, strides


def _instances(dtype: str, shape: Shape) -> tuple[Instance, Instance]:
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


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for dtype in SINGLES:
        for shape in SHAPES:
            yield from _instances(dtype, shape)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: PlainPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    plan, geometry, strides = on_long_lines(plan, question, strides)
    together = STORED // question.dtype.itemsize
    members = _arguments(plan.layout, geometry, strides, bias, together)
    template = Template(SOURCES[0], members)
    pack, launch = device.launcher(plan.pack), device.launcher(plan.launch)
    address, byte = device.address, np.dtype(np.uint8)
    workspace, weights = (plan.workspace,), plan.packed

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        memory = device.workspace(workspace, byte)
        packed = address(memory)
        term = 0 if bias is None else address(bias)
        arrays = address(data), address(weight), address(out), term
        arguments = template.fill(*arrays, packed, packed + weights)
        pack(arguments)
        launch(arguments)

    return convolve


def _arguments(
    layout: Layout,
    geometry: ConvGeometry,
    strides: ConvStrides,
    bias: Array | None,
    together: int,
) -> Members:
    """Return the members of ``struct Arguments``; `together` outputs are stored at a time."""
    x = layout.axes[2]
    chunks = x.step == strides.input_axes[-1] == 1
    depth, height = layout.extents
    along_z, along_y, _ = along_three_axes(strides.input_axes)
    line, plane, channel = staged_pitches(
        layout.pitches[1],
        (height, depth),
        (along_y, along_z, strides.input[2]),
        CHUNK if chunks else 1,
    )
    parts = pieces(layout.extent, chunks)
    results, biases, weights, offsets, inputs, buffer = layout.places
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "packed": CALL,
        "special": CALL,
        "groups": geometry.groups,
        "rows": geometry.rows,
        "channels": geometry.channels,
        "input_batch": strides.input[0],
        "input_group": strides.input[1],
        "input_channel": strides.input[2],
        **weight_strides(strides),
        "out_batch": strides.out[0],
        "out_group": strides.out[1],
        "out_row": strides.out[2],
        "axis": _axes(layout, strides, (plane, line, layout.pitches[2])),
        "phases": [_phases(axis) for axis in layout.axes],
        "busy": len(layout.busy),
        "order": _order(layout),
        "units": layout.units,
        "tiles": layout.count,
        "row_tiles": layout.row_tiles,
        "slabs": layout.slabs,
        "slabs_of_tile": layout.slabs_of_tile,
        "lines": layout.lines,
        "passes": layout.passes,
        "steps": layout.steps,
        "low": layout.low,
        "extent": layout.extent,
        "channel_pitch": channel,
        "place_results": results,
        "place_bias": biases,
        "place_weights": weights,
        "place_offsets": offsets,
        "place_inputs": inputs,
        "place_buffer": buffer,
        "buffer_line": layout.buffer_line,
        "buffer_row": layout.lines * layout.buffer_line + strides.out[2] % together,
        "pieces": parts,
        "reciprocals": [long_reciprocal(tiles) for tiles in reversed(layout.tiles)],
        "per_step": reciprocal(x.step),
        "per_lines": reciprocal(layout.lines),
        "per_pieces": reciprocal(parts),
        "chunks": chunks,
        "bulk": layout.bulk,
    }


def _axes(layout: Layout, strides: ConvStrides, pitches: tuple[int, int, int]) -> list[Members]:
    """Return the ``struct Axis`` of z, y and x."""
    columns = zip(
        layout.axes,
        layout.tile,
        layout.tiles,
        pitches,
        along_three_axes(strides.input_axes),
        along_three_axes(strides.weight_axes),
        along_three_axes(strides.out_axes),
        strict=True,
    )
    return [
        {
            "taps": axis_taps(axis),
            "tile": tile,
            "tiles": tiles,
            "pitch": pitch,
            "input": along_input,
            "weight": along_weight,
            "out": along_out,
        }
        for axis, tile, tiles, pitch, along_input, along_weight, along_out in columns
    ]


# Fills the struct members of phases beyond the last one, which the kernel never reads.
_BEYOND = dict.fromkeys(("first", "count", "offset", "before", "positions"), 0)


def _phases(axis: AxisTaps) -> list[Members]:
    """Return the ``struct Phase`` of all phases of an axis."""
    phases: list[Members] = []
    before = 0
    for phase in range(axis.phases):
        first, count, offset = axis.progression(phase)
        phases.append(
            {
                "first": first,
                "count": count,
                "offset": offset,
                "before": before,
                "positions": axis.positions(phase),
            }
        )
        before += count
    return phases + [_BEYOND] * (MAX_PHASES - axis.phases)


def _order(layout: Layout) -> list[int]:
    """Return the phases of z and y, phases with taps first: an array of bytes, as words."""
    busy = layout.busy
    order = sorted(range(layout.phases), key=lambda phase: phase not in busy)
    return byte_words(order, MAX_PHASES**2)
