"""Copies of arrays with their channels innermost, by channels_last.cu."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array
from .._shape_rules import Shape
from .launches import BITS, ELEMENTS, MAX_GRID, WGMMA, Instance, Launch
from .members import CALL, Members, Template
from .memory import lie_without_gaps

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("channels_last.cu",)

THREADS, CHUNK = 256, 16  # of a block; bytes
TILE, MOST_WIDTH = 1024, 3  # chunks of a tile, at most 2**MOST_WIDTH along the channels

_SIZES = 2, 4  # bytes of an element


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
    split : bool
        Whether the two groups are the high and the low parts of the same floats, as TF32 numbers.
    """

    sizes: Shape
    strides: Shape
    row: int
    split: bool = False

    @property
    def shape(self) -> Shape:
        """Shape of the copy."""
        samples, blocks, groups, _, *places = self.sizes
        return samples, blocks, math.prod(places), groups, self.row


def _instance(itemsize: int, parts: int = 1) -> Instance:
    defines = ("BITS", ELEMENTS[BITS[itemsize]]), ("PARTS", str(parts))
    return Instance(SOURCES[0], "channels_last", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that calls can ask for on a target."""
    yield from map(_instance, _SIZES)
    if target in WGMMA:
        yield _instance(4, 2)


def launch(copies: Sequence[Transposition], itemsize: int) -> Launch:
    """Return the launch that makes one copy or two."""
    instance = _instance(itemsize, 1 + any(copy.split for copy in copies))
    return Launch(instance, min(_all_tiles(copies, itemsize), MAX_GRID), THREADS)


def _all_tiles(copies: Sequence[Transposition], itemsize: int) -> int:
    return sum(math.prod(_tiles(copy, itemsize)) for copy in copies)


def _width(copy: Transposition, itemsize: int) -> int:
    """Return the binary logarithm of a tile's chunks along the channels."""
    return min((-(-copy.row * itemsize // CHUNK) - 1).bit_length(), MOST_WIDTH)


def _tiles(copy: Transposition, itemsize: int) -> tuple[int, int, int]:
    """Return the tiles along channels and along places, and how many times there are these."""
    samples, blocks, places, groups, row = copy.shape
    chunks = 1 << _width(copy, itemsize)
    channels = chunks * CHUNK // itemsize
    return -(-row // channels), -(-places * chunks // TILE), groups * blocks * samples


def bind(
    copies: Sequence[Transposition], dtype: np.dtype, device: Device
) -> Callable[..., list[Array]]:
    """Return a function that returns copies of one or two arrays, by their addresses."""
    write = bind_into(copies, dtype, device)

    def copied(*arrays: int) -> list[Array]:
        memory = [device.workspace(copy.shape, dtype) for copy in copies]
        write(*itertools.chain(*zip(arrays, map(device.address, memory), strict=True)))
        return memory

    return copied


def bind_into(
    copies: Sequence[Transposition], dtype: np.dtype, device: Device
) -> Callable[..., None]:
    """Return a function that copies one or two arrays, by the addresses of each and its copy."""
    members = [_members(copy, dtype.itemsize) for copy in copies]
    tiles = _all_tiles(copies, dtype.itemsize)
    members += [{**members[0], "array": 0, "out": 0, "tiles": 0}] * (2 - len(members))
    template = Template(SOURCES[0], {"copy": members, "tiles": tiles})
    run = device.launcher(launch(copies, dtype.itemsize))
    return lambda *addresses: run(template.fill(*addresses))


def _members(copy: Transposition, itemsize: int) -> Members:
    """Return the members of ``struct Copy``."""
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
        "split": int(copy.split),
        "width": _width(copy, itemsize),
        "channel_tiles": channel_tiles,
        "place_tiles": place_tiles,
        "tiles": channel_tiles * place_tiles * times,
    }
