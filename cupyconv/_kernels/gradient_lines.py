"""Copies by channel in which a tap is a shift along memory, as gradient_lines.cu writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._arrays import Array
from .._packing import long_reciprocal, strides_of
from .._shape_rules import Shape
from .launches import BITS, ELEMENTS, MAX_GRID, Instance, Launch
from .members import CALL, Members, Template
from .memory import along_three_axes

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("gradient_lines.cu",)

THREADS, CHUNK = 256, 16  # of a block, and bytes that a thread writes at a time
SPAN = 4 * THREADS * CHUNK  # bytes of a line that a block writes

# The parts that numbers come in, by their bytes.
_PARTS = {2: (1,), 4: (1, 2)}


@dataclass(frozen=True)
class LineAxis:
    """An axis of the copies: place i of plane p holds input ``i * step + first + apart * p``.

    Attributes
    ----------
    places : int
        Places of a line.
    size : int
        Inputs.
    step, first, apart, planes : int
        Which inputs.
    """

    places: int
    size: int
    step: int = 1
    first: int = 0
    apart: int = 1
    planes: int = 1


@dataclass(frozen=True)
class Lines:
    """Copies ``[part, plane, channel, place]`` of an array by channel and sample.

    Attributes
    ----------
    axes : tuple of LineAxis
        z, y and x.
    samples : int
        Samples of a line.
    parts : int
        2 for the two TF32 numbers of a float, else 1.
    itemsize : int
        Bytes of an element.
    """

    axes: tuple[LineAxis, LineAxis, LineAxis]
    samples: int
    parts: int
    itemsize: int

    @property
    def places(self) -> int:
        """Elements of a line, in whole chunks."""
        own = CHUNK // self.itemsize
        return -(-self.samples * math.prod(axis.places for axis in self.axes) // own) * own

    def shape(self, channels: int) -> Shape:
        planes = math.prod(axis.planes for axis in self.axes)
        return self.parts, planes, channels, self.places


def _instance(itemsize: int, parts: int) -> Instance:
    defines = ("BITS", ELEMENTS[BITS[itemsize]]), ("PARTS", str(parts))
    return Instance(SOURCES[0], "gradient_lines", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that calls can ask for on a target."""
    if target == "sm_90a":
        for itemsize, parts in _PARTS.items():
            yield from (_instance(itemsize, part) for part in parts)


def launch(lines: Lines, channels: int) -> Launch:
    _, planes, channels, _ = lines.shape(channels)
    blocks = min(planes * channels * _spans(lines), MAX_GRID)
    return Launch(_instance(lines.itemsize, lines.parts), blocks, THREADS)


def _spans(lines: Lines) -> int:
    """Return the spans of a line."""
    return -(-lines.places * lines.itemsize // SPAN)


def bind(lines: Lines, array: Array, device: Device) -> Callable[[Array], Array]:
    """Return a function that copies arrays by channel and sample, with the strides of `array`."""
    shape = lines.shape(array.shape[0])
    template = Template(SOURCES[0], _arguments(lines, shape, strides_of(array)))
    run, address = device.launcher(launch(lines, array.shape[0])), device.address

    def copies(array: Array) -> Array:
        copy = device.workspace(shape, array.dtype)
        run(template.fill(address(array), address(copy)))
        return copy

    return copies


def _arguments(lines: Lines, shape: Shape, strides: Sequence[int]) -> Members:
    """Return the members of ``struct Arguments``."""
    _, planes, channels, places = shape
    channel, sample, *along = strides
    axes: list[Members] = [
        {
            "places": axis.places,
            "per_places": long_reciprocal(axis.places),
            "size": axis.size,
            "step": axis.step,
            "first": axis.first,
            "apart": axis.apart,
            "planes": axis.planes,
            "stride": stride,
        }
        for axis, stride in zip(lines.axes, along_three_axes(along), strict=True)
    ]
    return {
        "array": CALL,
        "lines": CALL,
        "axis": axes,
        "samples": lines.samples,
        "sample": sample,
        "channels": channels,
        "channel": channel,
        "places": places,
        "spans": _spans(lines),
        "tasks": planes * channels * _spans(lines),
        "part": planes * channels * places,
    }
