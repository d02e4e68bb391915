"""The gradient of a depthwise weight: one input channel for each group.

A block has an output channel and a range of the tiles of its outputs; the ranges are added in
order. The order of a sum follows from the geometry, the batch included, and from the number of
multiprocessors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array, WeightGradient, accumulator
from .._geometry import ConvGeometry
from .._packing import reciprocal
from .._strides import batch_strides
from .._taps import AxisTaps, on_three_axes
from . import gradient_sum
from .launches import ELEMENTS, FLOATS, INT32_LIMIT, MAX_GRID, RESERVED, Instance, Launch
from .members import CALL, Members, Template, byte_words
from .question import LARGE, Question, Refusal, not_one_channel

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("depthwise_gradient.cu",)
UNIT = "FMA"

THREADS = 128
WARPS = THREADS // 32
SIDE = 4  # outputs of a thread, and taps of a window
MOST_TAPS = 64
_LINE = 16  # bytes of a line's description
_MOST_STAGED = 2**16  # elements that the kernel counts
_BLOCKS = 8  # of a multiprocessor
_AREA = 4096  # most outputs of a tile
_MANY_WINDOWS = 16  # of which the last ones may leave warps without work


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles, and tiles into ranges.

    Attributes
    ----------
    samples, high, wide : int
        Outputs of a tile: of so many samples, along y and x.
    tiles : tuple of int
        Tiles along the samples, z, y and x.
    staged_high : int
        Lines of inputs of a sample and a tap along z.
    pitch : int
        Staged inputs of a line for each residue of the stride along x.
    windows : tuple of int
        Where the windows of taps along x begin in a line.
    of, places : tuple of int
        Of each tap along x, its window and its place there.
    splits : int
        Ranges of the tiles of an output channel.
    cycles : float
        The model's time.
    """

    samples: int
    high: int
    wide: int
    tiles: tuple[int, ...]
    staged_high: int
    pitch: int
    windows: tuple[int, ...]
    of: tuple[int, ...]
    places: tuple[int, ...]
    splits: int = 1
    cycles: float = 0.0

    def lines(self, axes: tuple[AxisTaps, ...]) -> int:
        """Return the staged lines of inputs."""
        return self.samples * axes[0].kernel * self.staged_high

    def staged(self, axes: tuple[AxisTaps, ...]) -> int:
        """Return the staged elements of both arrays."""
        inputs = self.lines(axes) * axes[2].step * self.pitch
        return self.samples * self.high * self.wide + inputs

    def shared(self, axes: tuple[AxisTaps, ...], itemsize: int) -> int:
        """Return the bytes of shared memory."""
        rows = self.samples * self.high
        sums = self.windows_of_taps(axes) * self.parts(axes) * SIDE
        table = (rows + self.lines(axes)) * _LINE + 4 * rows
        return (self.staged(axes) + sums) * itemsize + table

    def windows_of_taps(self, axes: tuple[AxisTaps, ...]) -> int:
        """Return the windows of all taps."""
        return axes[0].kernel * axes[1].kernel * len(self.windows)

    def parts(self, axes: tuple[AxisTaps, ...]) -> int:
        """Return the parts of a window's outputs: where windows are few, all warps have as many."""
        windows = self.windows_of_taps(axes)
        return WARPS // math.gcd(WARPS, windows) if windows < _MANY_WINDOWS else 1

    def __str__(self) -> str:
        box = f"{self.samples} x {self.high} x {self.wide}"
        return f"{math.prod(self.tiles)} tiles of {box} outputs, {self.splits} ranges"


class DepthwiseGradientPlan(gradient_sum.SummedPlan[Layout]):
    """How the gradient of a depthwise weight runs by depthwise_gradient.cu."""


def _instance(dtype: str) -> Instance:
    return Instance(SOURCES[0], "depthwise_gradient", (("ELEMENT", ELEMENTS[dtype]),))


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    yield from map(_instance, FLOATS)


def plan(question: Question) -> DepthwiseGradientPlan | Refusal:
    """Return the plan of a gradient, or why there is none; `question` has the convolution."""
    geometry = question.geometry
    other = not_one_channel(geometry, question.dtype)
    if other:
        return other
    if geometry.is_empty or 0 in geometry.out_shape:
        return "its sums have no products"
    if geometry.axes[-1].kernel > MOST_TAPS:
        return f"its kernel has more than {MOST_TAPS} taps along x"
    if geometry.batch >= INT32_LIMIT - _AREA:  # the last tile may end after the last sample
        return LARGE
    axes, itemsize = on_three_axes(geometry.axes), accumulator(question.dtype).itemsize
    layout = _layout(question, axes, itemsize)
    if layout is None:
        return "no tile fits shared memory"
    blocks = geometry.groups * geometry.rows * layout.splits
    launch = Launch(
        _instance(question.dtype.name), blocks, THREADS, layout.shared(axes, itemsize), blocks
    )
    if blocks > MAX_GRID:
        return "it has too many channels"
    partial = layout.splits * gradient_sum.nbytes(question)
    add = gradient_sum.launch(question.dtype, geometry)
    return DepthwiseGradientPlan(launch, layout, add, partial)


def _windows(x: AxisTaps, pitch: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return where windows of taps begin in a line, and of each tap its window and place."""
    firsts: list[int] = []
    of, places = [], []
    for tap in range(x.kernel):
        shift, residue = divmod(tap * x.dilation, x.step)
        first = residue * pitch + shift // SIDE * SIDE
        if first not in firsts:
            firsts.append(first)
        of.append(firsts.index(first))
        places.append(shift % SIDE)
    return tuple(firsts), tuple(of), tuple(places)


# Instructions of a warp to stage an element of each thread, for four outputs of each thread with a
# window, for a part of a window, and for a tile beside them; cycles of an instruction, and how many
# more where a block has a multiprocessor for itself. Fitted to the times of 13 calls of an H200.
_STAGE, _WINDOW, _PART, _TILE = 7, 26, 50, 400
_CYCLES, _ALONE = 2.2, 4


def _layout(question: Question, axes: tuple[AxisTaps, ...], itemsize: int) -> Layout | None:
    """Return the layout that takes the fewest cycles; None where no tile fits shared memory."""
    geometry, processor = question.geometry, question.processor
    z, y, x = axes
    channels = geometry.groups * geometry.rows

    def layouts() -> Iterator[Layout]:
        for power in range((_AREA // SIDE).bit_length()):
            high = min(1 << power, y.size_out)
            wide = min(-(-x.size_out // SIDE) * SIDE, _AREA // high // SIDE * SIDE)
            yield tiles(1, high, wide)
            if high == y.size_out:
                if wide >= x.size_out:
                    most = min(geometry.batch, _AREA // (high * wide))
                    yield from (tiles(samples, high, wide) for samples in {most, -(-most // 4)})
                return

    def tiles(samples: int, high: int, wide: int) -> Layout:
        pitch = ((wide - 1 + (x.kernel - 1) * x.dilation // x.step) // SIDE + 2) * SIDE
        staged_high = (high - 1) * y.step + (y.kernel - 1) * y.dilation + 1
        counts = (
            -(-geometry.batch // samples),
            z.size_out,
            -(-y.size_out // high),
            -(-x.size_out // wide),
        )
        return Layout(samples, high, wide, counts, staged_high, pitch, *_windows(x, pitch))

    def planned(layout: Layout) -> Layout | None:
        bytes_of_block = layout.shared(axes, itemsize) + RESERVED
        if bytes_of_block > processor.shared or layout.staged(axes) >= _MOST_STAGED:
            return None
        count = math.prod(layout.tiles)
        most = gradient_sum.MOST_PARTIAL // gradient_sum.nbytes(question)
        splits = max(1, min(count, most, 2 * _BLOCKS * processor.multiprocessors // channels))
        outputs = -(-layout.samples * layout.high * layout.wide // (32 * SIDE))
        windows = layout.windows_of_taps(axes)
        tile = _STAGE * layout.staged(axes) / 32 + _WINDOW * outputs * windows + _TILE
        tile += _PART * windows * layout.parts(axes)
        waves = -(-channels * splits // processor.multiprocessors)
        alone = 1 + _ALONE / min(_BLOCKS, processor.shared // bytes_of_block, waves) ** 2
        cycles = waves * -(-count // splits) * tile / WARPS * _CYCLES * alone
        return replace(layout, splits=splits, cycles=cycles)

    found = [one for layout in layouts() if (one := planned(layout)) is not None]
    return min(found, key=lambda layout: layout.cycles, default=None)


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: DepthwiseGradientPlan,
    question: Question,
    data: Array,
    grad_output: Array,
    out: Array,
    device: Device,
) -> WeightGradient:
    """Return the gradient of a plan for all arrays with the layouts of these."""
    geometry, dtype = question.geometry, question.dtype
    arguments = _arguments(plan.layout, geometry, data, grad_output, out)
    template = Template(SOURCES[0], arguments)
    added = gradient_sum.template(plan.layout.splits, geometry, data, grad_output, out)
    run, add = device.launcher(plan.launch), device.launcher(plan.add)
    cast, address, byte = device.cast, device.address, np.dtype(np.uint8)

    def gradient(data: Array, grad_output: Array, out: Array) -> None:
        data, grad_output = cast(data, dtype), cast(grad_output, dtype)
        memory = device.workspace((plan.partial,), byte)
        arrays = address(data), address(grad_output), address(memory)
        run(template.fill(*arrays))
        add(added.fill(*arrays, address(out)))

    return gradient


def _arguments(
    layout: Layout, geometry: ConvGeometry, data: Array, grad_output: Array, out: Array
) -> Members:
    """Return the members of ``struct Arguments``."""
    data_batch, data_group, *data_axes = batch_strides(geometry, data, out.dtype)
    grad_batch, grad_row, *grad_axes = batch_strides(geometry, grad_output, out.dtype)
    residues, room = geometry.axes[-1].step, MOST_TAPS - len(layout.windows)
    return {
        "input": CALL,
        "grad": CALL,
        "partial": CALL,
        "rows": geometry.rows,
        "channels": geometry.groups * geometry.rows,
        "batch": geometry.batch,
        "input_batch": data_batch,
        "input_group": data_group,
        "grad_batch": grad_batch,
        "grad_row": grad_row,
        "axis": gradient_sum.axes(geometry, data_axes, grad_axes),
        "samples": layout.samples,
        "high": layout.high,
        "wide": layout.wide,
        "tiles_y": layout.tiles[2],
        "tiles_x": layout.tiles[3],
        "tiles": math.prod(layout.tiles),
        "splits": layout.splits,
        "staged_high": layout.staged_high,
        "residues": residues,
        "pitch": layout.pitch,
        "per_pitch": reciprocal(residues * layout.pitch // SIDE),
        "per_wide": reciprocal(layout.wide // SIDE),
        "windows": len(layout.windows),
        "parts": layout.parts(on_three_axes(geometry.axes)),
        "window": [*layout.windows, *(0,) * room],
        "window_of": byte_words(layout.of, MOST_TAPS),
        "place_of": byte_words(layout.places, MOST_TAPS),
    }
