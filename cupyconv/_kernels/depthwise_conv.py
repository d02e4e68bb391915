"""The depthwise kernel: one input channel for each group, inputs staged with their halo.

A tile is a box of outputs of some channels. Its inputs are staged in shared memory line by line,
and each thread computes lines of two outputs, or Tensor Cores multiply (16-bit elements whose taps
slide). The order of a sum is fixed by the geometry of one sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from .._geometry import ConvGeometry
from .._packing import lie_together, long_reciprocal, reciprocal
from .depthwise_tiles import (
    ALIGNED,
    ANYWHERE,
    CHUNK,
    ELEMENTWISE,
    SHAPES,
    TENSOR_CORE_SHAPE,
    THREADS,
    WITHOUT_TENSOR_CORES,
    Layout,
    Runs,
    Shape,
    layout_of,
)
from .launches import ELEMENTS, FLOATS, MAX_GRID, Instance, Launch
from .members import CALL, Members, Template, axis_taps, border_word, parameter
from .memory import along_three_axes, staged_pitches
from .question import LARGE, Question, Refusal, TiledPlan, not_one_channel

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("depthwise_conv.cu",)
ORDER = "the bias, then the taps of z, y and x in the order of their inputs"
UNIT = "memory"


class DepthwisePlan(TiledPlan[Layout]):
    """How a convolution runs by depthwise_conv.cu."""


PLAN = DepthwisePlan


def plan(question: Question) -> DepthwisePlan | Refusal:
    """Return the plan by which inputs are staged with a halo, or why there is none."""
    geometry, dtype = question.geometry, question.dtype
    other = not_one_channel(geometry, dtype)
    if other:
        return other
    layout = layout_of(geometry, dtype.itemsize, question.processor)
    if isinstance(layout, str):
        return layout
    if layout.count > MAX_GRID // 2:
        return LARGE
    instance = _instance(dtype.name, layout.shape)
    return DepthwisePlan(Launch(instance, layout.count, THREADS, int(layout.shared)), layout)


PLANS = {"depthwise": plan}


def _instance(dtype: str, shape: Shape) -> Instance:
    return Instance(
        "depthwise_conv.cu",
        "depthwise_conv",
        (
            ("ELEMENT", ELEMENTS[dtype]),
            ("TAPS", str(shape.taps)),
            ("LINES", str(shape.lines)),
            ("RESIDENT", str(shape.resident)),
            *((("MATRIX", "1"),) if shape.tensor_cores else ()),
        ),
    )


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for dtype in FLOATS:
        for shape in SHAPES[8 if dtype == "float64" else 4]:
            yield _instance(dtype, shape)
        if "16" in dtype and target not in WITHOUT_TENSOR_CORES:
            yield _instance(dtype, TENSOR_CORE_SHAPE)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: DepthwisePlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    layout, itemsize = plan.layout, question.dtype.itemsize
    chunk = CHUNK // itemsize
    apart = strides.input[1], *along_three_axes(strides.input_axes)
    # Whether each line of each sample begins with a chunk and ends with one.
    size = layout.axes[2].size_in
    in_chunks = lie_together(chunk, (strides.input[0], *apart), size) == chunk
    if layout.shape.tensor_cores:
        # Lines that do not begin with a chunk are put together from chunks anywhere in the array.
        others = ANYWHERE if apart[-1] == 1 else ELEMENTWISE
        loads = ALIGNED if in_chunks else others
    else:
        # Pairs of neighbours need an even number of elements between lines, planes and channels.
        loads = others = ALIGNED if lie_together(2, apart) == 2 else ELEMENTWISE
    whole = layout.staging.whole and in_chunks and loads == ALIGNED

    def template(loads: int, whole: bool) -> Template:
        members = _arguments(layout, question.geometry, strides, bias, loads, whole)
        return Template(SOURCES[0], members)

    # The arguments for an input that begins with a chunk, and for any other.
    aligned = unaligned = template(loads, whole)
    if whole or loads != others:
        unaligned = template(others, whole=False)
    # A thread has neighbouring outputs where taps slide.
    out_strides = (*strides.out, *along_three_axes(strides.out_axes))
    in_pairs = layout.slides and lie_together(2, out_strides) == 2
    launch, address = device.launcher(plan.launch), device.address

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source, result = address(data), address(out)
        term = 0 if bias is None else address(bias)
        arguments = aligned if source % CHUNK == 0 else unaligned
        pairs = in_pairs and result % (2 * itemsize) == 0
        launch(arguments.fill(source, address(weight), result, term, pairs))

    return convolve


def _pitches(layout: Layout, strides: ConvStrides, loads: int) -> tuple[int, int, int]:
    """Return the staged elements from one line, plane and channel to the next.

    For Tensor Cores they are whole chunks.
    """
    depth, height, _ = layout.extent
    if layout.shape.tensor_cores:
        line = layout.staging.pitch
        return line, line * height, line * height * depth
    along_z, along_y, _ = along_three_axes(strides.input_axes)
    chunk = CHUNK // layout.itemsize if loads else 1
    line = layout.staging.runs(loads).total * chunk
    array_strides = along_y, along_z, strides.input[1]
    return staged_pitches(line, (height, depth), array_strides, chunk)


def _arguments(
    layout: Layout,
    geometry: ConvGeometry,
    strides: ConvStrides,
    bias: Array | None,
    loads: int,
    whole: bool,
) -> Members:
    """Return the members of ``struct Arguments``."""
    runs = layout.staging.runs(loads)
    line, plane, channel = _pitches(layout, strides, loads)
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "groups": geometry.groups,
        "rows": geometry.rows,
        "input_batch": strides.input[0],
        "input_group": strides.input[1],
        "weight_group": strides.weight[0],
        "weight_row": strides.weight[1],
        "out_batch": strides.out[0],
        "out_group": strides.out[1],
        "out_row": strides.out[2],
        "axis": _axes(layout, strides, (plane, line, 1)),
        "tiles": layout.count,
        "row_tiles": layout.row_tiles,
        "channel_tiles": layout.channel_tiles,
        "rows_of_tile": layout.rows,
        "channels": layout.channels,
        "channel_pitch": channel,
        "runs_of_tile": layout.staged * runs.count,
        "strips_of_tile": layout.items,
        "taps": layout.taps,
        "inputs": layout.inputs,
        "chunks": runs.chunks,
        "runs": runs.count,
        "vectors": loads,
        "whole": layout.staged if whole else 0,
        "slides": layout.slides,
        "skew": layout.low[2] % (CHUNK // layout.itemsize),
        "columns": layout.columns,
        "strips": layout.strips,
        "border": border_word(geometry.padding_mode),
        "section": layout.section,
        **_lines_of_a_thread(layout, strides, line),
        **_reciprocals(layout, runs),
        "pairs": CALL,
    }


def _axes(layout: Layout, strides: ConvStrides, pitches: tuple[int, ...]) -> list[Members]:
    """Return the ``struct Axis`` of z, y and x."""
    of_axes = zip(
        layout.axes,
        layout.low,
        layout.tile,
        layout.tiles,
        layout.extent,
        pitches,
        along_three_axes(strides.input_axes),
        along_three_axes(strides.weight_axes),
        along_three_axes(strides.out_axes),
        strict=True,
    )
    return [
        {
            "taps": axis_taps(axis),
            "low": low,
            "apart": abs(axis.offset_step),
            "tile": tile,
            "tiles": tiles,
            "extent": extent,
            "pitch": pitch,
            "input": along_input,
            "weight": along_weight,
            "out": along_out,
        }
        for axis, low, tile, tiles, extent, pitch, along_input, along_weight, along_out in of_axes
    ]


def _lines_of_a_thread(layout: Layout, strides: ConvStrides, pitch: int) -> Members:
    """Return what separates the lines of a thread: sections of a line, or lines along y."""
    _, y, x = layout.axes
    _, along_y, along_x = along_three_axes(strides.out_axes)
    if layout.section:
        inputs = layout.section // x.phases * x.step
        return {
            "line_out": layout.section * along_x,
            "line_place": [0, inputs],
            "line_pitch": inputs,
        }
    return {
        "line_out": y.phases * along_y,
        "line_place": [y.step, 0],
        "line_pitch": y.step * pitch,
    }


def _reciprocals(layout: Layout, runs: Runs) -> Members:
    """Return the reciprocals of the numbers by which the kernel divides."""
    z, y, x = layout.axes
    depth, height, _ = layout.extent
    planes, strips = layout.tile[0], layout.strips
    tiles = layout.row_tiles, *reversed(layout.tiles), layout.channel_tiles
    return {
        "tile_reciprocals": [long_reciprocal(count) for count in tiles],
        "per_chunks": reciprocal(runs.chunks),
        "per_runs": reciprocal(runs.count),
        "per_extent": [reciprocal(depth), reciprocal(height)],
        "per_columns": reciprocal(layout.columns),
        "per_strips": [reciprocal(strips), reciprocal(strips * y.phases)],
        "per_planes": [reciprocal(planes), reciprocal(planes * z.phases)],
        "per_channels": reciprocal(layout.channels),
        "per_phases": reciprocal(x.phases),
        "per_width": reciprocal(x.kernel),
        "per_height": reciprocal(y.kernel),
        "per_values": reciprocal(layout.taps + 1),
        "per_section": reciprocal(layout.section or 1),
    }
