"""Max pooling over the last two axes, in one pass or several.

A maximum of maxima in order has the bits of one maximum. So a large window is pooled by rows and
then by columns, a long one in parts that are joined afterwards, and the result is the same. Where
channels lie innermost in memory a thread pools a pack of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._arrays import Array
from .._geometry import PoolAxis, PoolGeometry
from .._packing import strides_of
from .launches import ELEMENTS, FLOATS, MAX_GRID, SECTOR, SIGNED, WARP, Instance, Launch, Processor
from .members import CALL, Members, Template, struct
from .views import (
    LINE,
    PACK,
    THREADS,
    UNROLL,
    Axis,
    Placed,
    axes_in_memory_order,
    c_strides,
    channels_together,
    merged_axes,
    placed,
    walk_across,
    walk_in_order,
    walk_in_runs,
)

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("max_pool2d.cu",)

# Above this many taps the rows of a window and then its columns are pooled: two passes read fewer
# elements from the caches, but move the maxima of rows through memory and take a second launch.
_MOST_TAPS = 64
_RESIDENT_THREADS = 1024  # of a multiprocessor: four blocks
_PART = 4096  # taps of a part of a window, for which a warp loads several times 16 bytes a lane
_MOST_BETWEEN = 64_000_000  # bytes of workspace, where one sample takes no more


class Across(NamedTuple):
    """Whether channels lie innermost, so that packs of channels move."""

    data: bool
    out: bool


NOWHERE = Across(data=False, out=False)


@dataclass(frozen=True)
class PoolPass:
    """One launch of max_pool2d.cu.

    Attributes
    ----------
    axes : pair of PoolAxis
        The windows, or where there are `parts` of them, the first part of each.
    lanes : int
        Threads that share a window: the threads of a warp, or one, which has several windows.
    along : int
        The axis that a warp shares, and along which parts follow each other.
    parts, part_step : int
        Parts of a window, and from one to the next in positions. Each part is pooled by itself.
    across : bool
        Whether a thread has the windows of a pack of channels.
    """

    axes: tuple[PoolAxis, PoolAxis]
    lanes: int = 1
    along: int = 1
    parts: int = 1
    part_step: int = 0
    across: bool = False

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


def _instance(dtype: str, lanes: int, across: bool) -> Instance:
    element = SIGNED.get(dtype) or ELEMENTS[dtype]
    macros = ("ELEMENT", element), ("LANES", str(lanes)), ("ACROSS", str(int(across)))
    return Instance("max_pool2d.cu", "max_pool2d", macros)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for; they are the same on each target."""
    unsigned = (name for name in ELEMENTS if name.startswith("uint"))
    for dtype in (*FLOATS, *unsigned, *SIGNED):
        for lanes, across in ((1, False), (1, True), (WARP, False)):
            yield _instance(dtype, lanes, across)


def _each(size: int) -> PoolAxis:
    """Return windows of one position each."""
    return PoolAxis(size, size, kernel=1, stride=1, dilation=1, pad=0)


def _passes(
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
            *_passes(rows, planes, multiprocessors),
            *_passes(columns, planes, multiprocessors),
        )
    outputs = planes * height.size_out * width.size_out
    threads = multiprocessors * _RESIDENT_THREADS
    along = 0 if width.taps == 1 else 1
    axis = axes[along]
    far_apart = along == 1 and (width.size_out == 1 or width.stride >= WARP)
    if axis.taps < WARP or not (far_apart or outputs < threads):
        return (PoolPass(axes),)
    parts = min(threads // WARP // outputs, axis.taps // _PART)
    if parts <= 1:
        return (PoolPass(axes, WARP, along),)
    # Parts may overlap by less than their number of taps, so that all have the same.
    step = axis.kernel // parts
    part = replace(axis, kernel=axis.kernel - (parts - 1) * step)
    cut = (part, width) if along == 0 else (height, part)
    first = PoolPass(cut, WARP, along, parts, step * axis.dilation)
    wide = PoolAxis(width.size_out * parts, width.size_out, parts, parts, dilation=1, pad=0)
    joined = _each(height.size_out), wide
    return (first, *_passes(joined, planes, multiprocessors))


@lru_cache(maxsize=4096)
def plan(
    geometry: PoolGeometry, dtype: np.dtype, processor: Processor, across: Across = NOWHERE
) -> PoolPlan:
    """Return how a max pooling of `dtype` runs; the geometry must have outputs."""
    height, width = geometry.axes
    planes, batch = math.prod(geometry.lead), geometry.lead[0]
    passes = _passes((height.trimmed, width.trimmed), planes, processor.multiprocessors)
    sizes = [planes // batch * math.prod(one.out_shape) for one in passes]  # of one sample
    most = sum(sizes[:-1]) * dtype.itemsize
    samples = min(batch, max(1, _MOST_BETWEEN // most)) if most else batch
    if samples == batch or len(geometry.lead) > 1:  # all channels at a time
        ends = {0: across.data}
        ends[len(passes) - 1] = ends.get(len(passes) - 1, False) or across.out
        passes = tuple(
            replace(one, across=one.lanes == 1 and ends.get(number, False))
            for number, one in enumerate(passes)
        )
    launches = []
    for one, size in zip(passes, sizes, strict=True):
        windows = THREADS // one.lanes if one.lanes > 1 else THREADS * UNROLL  # of a block
        if one.across:
            windows *= PACK // dtype.itemsize
        grid = min(-(-samples * size // windows), MAX_GRID)
        launches.append(Launch(_instance(dtype.name, one.lanes, one.across), grid, THREADS))
    between = tuple(samples * size for size in sizes[:-1])
    return PoolPlan(passes, tuple(launches), samples, between)


def lies_across(geometry: PoolGeometry, data: Placed, out: Placed) -> Across:
    """Return where channels lie innermost, in whole packs."""
    of_data, of_out = (_pack_together(geometry.lead, array) for array in (data, out))
    apart = data.strides[len(geometry.lead) - 1] != 0  # not one channel, broadcast
    return Across(of_data, of_out and (of_data or apart))


def _pack_together(lead: tuple[int, ...], array: Placed) -> bool:
    pack, axis = PACK // array.itemsize, len(lead) - 1
    return channels_together(lead[axis], array, pack, axis) == pack > 1


# Arguments ------------------------------------------------------------------------------------


def run(plan: PoolPlan, geometry: PoolGeometry, data: Array, out: Array, device: Device) -> None:
    """Launch the passes of a plan, for as many samples at a time as it says."""
    size = out.dtype.itemsize
    (batch, *channels), workspaces = geometry.lead, []
    in_strides, out_strides = strides_of(data), strides_of(out)
    # For each array its address, its strides, and the bytes from one sample to the next.
    arrays = [(device.address(data), in_strides, in_strides[0] * size)]
    for one, elements in zip(plan.passes, plan.between, strict=False):
        workspaces.append(device.workspace((elements,), out.dtype))
        strides = c_strides((plan.samples, *channels, *one.out_shape))
        # Each group of samples uses the same workspace.
        arrays.append((device.address(workspaces[-1]), strides, 0))
    arrays.append((device.address(out), out_strides, out_strides[0] * size))
    for first in range(0, batch, plan.samples):
        lead = (min(plan.samples, batch - first), *channels)
        for one, launch, source, target in zip(
            plan.passes, plan.launches, arrays, arrays[1:], strict=False
        ):
            (read, strides, step), (written, result_strides, result_step) = source, target
            read, written = read + first * step, written + first * result_step
            template = _template(
                one, lead, placed(read, strides, size), placed(written, result_strides, size)
            )
            device.launcher(launch)(template.fill(read, written))


@lru_cache(maxsize=4096)
def _template(one: PoolPass, lead: tuple[int, ...], data: Placed, out: Placed) -> Template:
    """Return the arguments of a pass for all arrays of such layouts.

    The axis that the threads of a warp share comes last.
    """
    height, width = one.axes
    *_, line, step = data.strides
    inside = height.is_inside and width.is_inside and one.parts == 1
    shape, strides = _outputs(one, lead, data, out.strides, inside)
    outputs = merged_axes(shape, *strides)
    walk, gaps = _walk(one, outputs, data.itemsize), (0, 0)
    if one.across:
        walk, gaps = _walk_across(lead, data, out, shape, strides)
    # Elements from an aligned address to the first window, from row to row, and between windows.
    offsets = (data.past, height.dilation * line, *(axis.strides[0] for axis in outputs))
    pairs = (
        inside
        and height.kernel == width.kernel == 2
        and width.dilation == step == 1
        and math.gcd(2, *offsets) == 2
        and (height.pad, width.pad) == (0, 0)
    )
    shared = one.lanes > 1
    order = (0, 1) if one.along else (1, 0)
    members: Members = {
        "input": CALL,
        "out": CALL,
        "axis": [struct(one.axes[axis]) for axis in order],
        "input_axis": [(line, step)[axis] for axis in order],
        "inside": inside,
        "pairs": pairs,
        "packs": shared and (line, step)[one.along] == one.axes[one.along].dilation == 1,
        "gaps": gaps,
        "outputs": walk,
    }
    return Template(SOURCES[0], members)


def _walk(one: PoolPass, outputs: Sequence[Axis], itemsize: int) -> Members:
    if one.lanes > 1:
        return walk_in_order(outputs, 1)
    return walk_in_runs(outputs, 1, LINE // itemsize)


def _walk_across(
    lead: tuple[int, ...],
    data: Placed,
    out: Placed,
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
) -> tuple[Members, tuple[int, int]]:
    """Return the walk of packs of channels over the outputs, and the gaps of its steps."""
    axis, pack = len(lead) - 1, PACK // data.itemsize
    together = [_pack_together(lead, array) for array in (data, out)]
    places = axes_in_memory_order(
        0 if all(together) else together.index(False),
        *([*sizes[:axis], *sizes[axis + 1 :]] for sizes in (shape, *strides)),
    )
    channels = Axis(shape[axis], tuple(steps[axis] for steps in strides))
    first = shape[axis] if all(together) else SECTOR // data.itemsize
    walk, _ = walk_across(places, len(places) - 1, channels, pack, first)
    of_data, of_out = (
        0 if whole else steps[axis] for whole, steps in zip(together, strides, strict=False)
    )
    return walk, (of_data, of_out)


def _outputs(
    one: PoolPass,
    lead: tuple[int, ...],
    data: Placed,
    out_strides: tuple[int, ...],
    inside: bool,
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the shape of the outputs, and the strides of views of that shape.

    The views are the first elements of the windows, the result, and the first positions of the
    windows on both axes, which stay 0 if all windows lie `inside` of the array.
    """
    height, width = one.axes
    *outer, line, step = data.strides
    none = (0,) * len(lead)
    starts = [(*none, height.stride, 0, 0), (*none, 0, width.stride, 0)]
    starts[one.along] = (*starts[one.along][:-1], one.part_step)
    return (*lead, height.size_out, width.size_out, one.parts), [
        (
            *outer,
            height.stride * line,
            width.stride * step,
            one.part_step * (line, step)[one.along],
        ),
        (*out_strides[:-1], out_strides[-1] * one.parts, out_strides[-1]),
        *((0,) * len(axis) if inside else axis for axis in starts[:: 1 if one.along else -1]),
    ]
