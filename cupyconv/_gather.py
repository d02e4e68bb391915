"""Second room, the gathering kernel: one input channel for each group, where taps do not slide.

The order of a sum is fixed by the geometry of one sample. Tiles follow from a model of the time
that candidates take, and may depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ._geometry import ConvGeometry
from ._taps import NO_AXIS, AxisTaps

THREADS = 128
TOGETHER = 4  # output channels that a thread has at a time
WIDTHS = (3, 5, 7)  # of kernels
MAX_TAPS = 1024
CHUNK = 16  # bytes of a copy
_CHANNEL = 16  # bytes of its description
_MOST_CHANNELS = 64  # of a tile
_COUNTED = 2**20  # what the kernel counts in a tile stays below
_MOST_APART = 2**30  # elements along an axis from one place to another, absent ones included
_RESERVED = 1024  # bytes that a multiprocessor keeps of each block's shared memory
_RESIDENT = {3: 8, 5: 7, 7: 6}  # blocks of a multiprocessor, by registers; half as many in float64


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    axes : tuple of AxisTaps
        z, y and x.
    band : int
        The axis that is divided, of these; those in front of it have one element.
    tile, tiles : int
        Outputs of a tile along it, and how many tiles there are.
    positions : int
        Of each output along it.
    channels, channel_tiles : int
        Output channels of a tile, and how many tiles they are divided into.
    room : int
        Elements of shared memory for an input channel.
    shared : int
        Bytes of shared memory.
    count : int
        Tiles, over all samples.
    cycles : float
        Of the model.
    """

    axes: tuple[AxisTaps, ...]
    band: int
    tile: int
    tiles: int
    positions: int
    channels: int
    channel_tiles: int
    room: int
    shared: int
    count: int
    cycles: float

    @property
    def pitches(self) -> tuple[int, ...]:
        """Staged elements from one input to the next along each axis."""
        return _pitches(self.axes)

    def __str__(self) -> str:
        box = ["1"] * self.band + [str(axis.size_out) for axis in self.axes[self.band :]]
        box[self.band] = str(self.tile)
        return f"{self.count} tiles of ({' x '.join(box)}) positions and {self.channels} channels"


def _pitches(axes: tuple[AxisTaps, ...]) -> tuple[int, ...]:
    _, y, x = axes
    return y.size_in * x.size_in, x.size_in, 1


def suits(geometry: ConvGeometry) -> bool:
    """Return whether the kernel is for the taps of a convolution."""
    taps = math.prod(axis.kernel for axis in geometry.axes)
    phases = max(axis.phases for axis in geometry.axes)
    return geometry.axes[-1].kernel in WIDTHS and taps <= MAX_TAPS and phases == 1


def layout(
    geometry: ConvGeometry, itemsize: int, shared: int, multiprocessors: int
) -> Layout | None:
    """Return the layout that takes the fewest cycles; None where no tile has room."""
    axes = (NO_AXIS,) * (3 - geometry.rank) + geometry.axes
    spans = (axis.reach * pitch for axis, pitch in zip(axes, _pitches(axes), strict=True))
    if max(spans) >= _MOST_APART:
        return None
    found = _candidates(geometry, axes, itemsize, shared, multiprocessors)
    return min(found, key=lambda layout: layout.cycles, default=None)


# Cycles of a warp: for a tile, for 32 chunks of inputs, for positions, for their outputs beside
# the products, for a line of taps of the channels that it has at a time, for products, and for
# weights. Fitted, as all that follows, to the times of ten tilings of each of 51 convolutions in
# float32 and float16 on an H200.
_TILE, _CHUNKS, _POSITION, _OUTPUT, _LINE, _PRODUCT, _WEIGHT = 16, 16, 10, 8, 4, 1, 44
_BYTES = 14  # that a multiprocessor moves in a cycle
_WAIT = 400  # for the first inputs of the tiles that it has at a time
_ALONE = 3.5  # what few blocks wait for, many hide


def _candidates(
    geometry: ConvGeometry,
    axes: tuple[AxisTaps, ...],
    itemsize: int,
    shared: int,
    multiprocessors: int,
) -> Iterator[Layout]:
    g, outputs = geometry, geometry.groups * geometry.rows
    taps = math.prod(axis.kernel for axis in axes)
    trivial = (a.size_in == a.size_out == a.kernel == 1 for a in axes[:2])
    band = next((i for i, one in enumerate(trivial) if not one), 2)
    axis, inner = axes[band], axes[band + 1 :]
    positions = math.prod(a.size_out for a in inner)
    elements = math.prod(a.size_in for a in inner)
    chunk = CHUNK // itemsize
    most = _RESIDENT[axes[2].kernel] * 4 // max(4, itemsize)
    parts = 1
    while True:
        tile = -(-axis.size_out // parts)
        tiles = -(-axis.size_out // tile)
        reach = (tile - 1) * axis.step + (axis.kernel - 1) * abs(axis.offset_step) + 1
        lines = min(axis.size_in, reach)
        room = (-(-lines * elements // chunk) + 1) * chunk
        channels = TOGETHER
        while channels <= _MOST_CHANNELS and room < _COUNTED:
            groups = min(g.groups, (channels + g.rows - 2) // g.rows + 1)
            weights = channels * (taps + 1)
            own = channels * _CHANNEL + weights * max(4, itemsize) + groups * room * itemsize
            if own > shared or max(tile * positions, groups * room) >= _COUNTED:
                break
            channel_tiles = -(-outputs // channels)
            count = g.batch * channel_tiles * tiles
            resident = min(most, (shared + _RESERVED) // (own + _RESERVED))
            turns = -(-tile * positions // THREADS)
            output = _OUTPUT + taps / axes[2].kernel * _LINE / TOGETHER + taps * _PRODUCT
            warp = _TILE + turns * (_POSITION + channels * output)
            warp += groups * -(-room // (32 * chunk)) / (THREADS // 32) * _CHUNKS
            warp += -(-weights // THREADS) * _WEIGHT
            moved = (groups * room + channels * tile * positions) * itemsize
            waves = -(-count // multiprocessors)
            busy = max(THREADS // 32 * warp, moved / _BYTES)
            alone = 1 + _ALONE / min(resident, waves) ** 2
            yield Layout(
                axes=axes,
                band=band,
                tile=tile,
                tiles=tiles,
                positions=positions,
                channels=channels,
                channel_tiles=channel_tiles,
                room=room,
                shared=own,
                count=count,
                cycles=waves * busy * alone + -(-waves // resident) * _WAIT,
            )
            channels *= 2
        if tile == 1:
            return
        parts *= 2
