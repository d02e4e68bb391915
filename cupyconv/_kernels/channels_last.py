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

THREADS, WORD = 256, 4  # of a block; bytes

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
    return Launch(_instance(itemsize), min(_tiles(copy, itemsize)[2], MAX_GRID), THREADS)


def _tiles(copy: Transposition, itemsize: int) -> tuple[int, int, int]:
    """Return the tiles along channels, along places, and all tiles."""
    samples, blocks, places, groups, row = copy.shape
    size = 32 * WORD // itemsize
    channel_tiles, place_tiles = -(-row // size), -(-places // size)
    return channel_tiles, place_tiles, channel_tiles * place_tiles * groups * blocks * samples


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
    channel_tiles, place_tiles, tiles = _tiles(copy, itemsize)
    if lie_without_gaps(size, axes):  # as if along one axis
        size, axes = [1, 1, math.prod(size)], [0, 0, 1]
    near, *far = (channel, axes[2]) if channel == 1 else (axes[2], channel)
    far += [sample, block, group]
    along_one = size[0] * size[1] == 1 and near == 1
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
        "words": int(along_one and all(stride * itemsize % WORD == 0 for stride in far)),
        "channel_tiles": channel_tiles,
        "place_tiles": place_tiles,
        "tiles": tiles,
    }
