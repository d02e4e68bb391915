"""Copies of arrays with their channels innermost, by channels_last.cu."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array
from .._shape_rules import Shape
from .launches import MAX_GRID, Instance, Launch
from .members import CALL, Members, Template
from .memory import lie_without_gaps

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("channels_last.cu",)

THREADS, CHUNK = 256, 16  # of a block; bytes
TILE, MOST_WIDTH = 1024, 3  # chunks of a tile, of which 2**MOST_WIDTH or fewer along the channels

_BITS = {2: "unsigned short", 4: "unsigned"}  # by bytes of an element


@dataclass(frozen=True)
class Transposition:
    """An array by sample, block, group, channel and place, and its copy with the channels last.

    Attributes
    ----------
    sizes : tuple of int
        Samples, blocks of a sample, groups, channels, and the places along z, y and x.
    strides : tuple of int
        Elements from one to the next in the array, in the same order.
    row : int
        Channels of a group in the copy.
    """

    sizes: Shape
    strides: Shape
    row: int

    @property
    def shape(self) -> Shape:
        """Shape of the copy."""
        samples, blocks, groups, _, *places = self.sizes
        return samples, blocks, math.prod(places), groups, self.row


def _instance(itemsize: int) -> Instance:
    return Instance(SOURCES[0], "channels_last", (("BITS", _BITS[itemsize]),))


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that calls can ask for on a target."""
    yield from map(_instance, _BITS)


def launch(copy: Transposition, itemsize: int) -> Launch:
    return Launch(_instance(itemsize), min(math.prod(_tiles(copy, itemsize)), MAX_GRID), THREADS)


def _width(copy: Transposition, itemsize: int) -> int:
    """Return the binary logarithm of a tile's chunks along the channels."""
    return min((-(-copy.row * itemsize // CHUNK) - 1).bit_length(), MOST_WIDTH)


def _tiles(copy: Transposition, itemsize: int) -> tuple[int, int, int]:
    """Return the tiles along channels and along places, and how many times there are these."""
    samples, blocks, places, groups, row = copy.shape
    chunks = 1 << _width(copy, itemsize)
    channels = chunks * CHUNK // itemsize
    return -(-row // channels), -(-places * chunks // TILE), groups * blocks * samples


def bind(copy: Transposition, dtype: np.dtype, device: Device) -> Callable[[int], Array]:
    """Return a function that returns copies of arrays that lie so, by their addresses."""
    write = bind_into(copy, dtype, device)

    def copied(array: int) -> Array:
        memory = device.workspace(copy.shape, dtype)
        write(array, device.address(memory))
        return memory

    return copied


def bind_into(copy: Transposition, dtype: np.dtype, device: Device) -> Callable[[int, int], None]:
    """Return a function that copies arrays that lie so, by the addresses of array and copy."""
    template = Template(SOURCES[0], _arguments(copy, dtype.itemsize))
    run = device.launcher(launch(copy, dtype.itemsize))
    return lambda array, to: run(template.fill(array, to))


def _arguments(copy: Transposition, itemsize: int) -> Members:
    """Return the members of ``struct Arguments``."""
    samples, blocks, groups, channels, *size = copy.sizes
    sample, block, group, channel, *axes = copy.strides
    channel_tiles, place_tiles, times = _tiles(copy, itemsize)
    if lie_without_gaps(size, axes):  # as if along one axis
        size, axes = [1, 1, math.prod(size)], [0, 0, 1]
    along_one = size[0] * size[1] == 1 and axes[2] == 1
    far = sample, block, group, channel
    return {
        "array": CALL,
        "out": CALL,
        "samples": samples,
        "blocks": blocks,
        "groups": groups,
        "channels": channels,
        "size": size,
        "sample": sample,
        "block": block,
        "group": group,
        "channel": channel,
        "axis": axes,
        "row": copy.row,
        "along_channels": int(channel == 1),
        "aligned": int(along_one and all(stride * itemsize % CHUNK == 0 for stride in far)),
        "width": _width(copy, itemsize),
        "channel_tiles": channel_tiles,
        "place_tiles": place_tiles,
        "tiles": channel_tiles * place_tiles * times,
    }
