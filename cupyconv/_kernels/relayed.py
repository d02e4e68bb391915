"""Convolutions of large arrays whose channels lie innermost, by kernels that read along places.

Copies in C order come between: channels_last.cu transposes the input of a chunk of samples, and the
results. The kernel and its order of summation are those for any other layout.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from .._chunks import chunks
from .._packing import c_strides
from .._strides import ConvStrides
from . import channels_last
from .channels_last import Transposition
from .question import Question

if TYPE_CHECKING:
    from .._device import Device

# Bytes of an array that is copied, and of its channels: fewer take longer in this way.
LEAST_BYTES, LEAST_WIDTH = 2**22, 64
_ALIGNED = 16  # each channel of a copy begins at a multiple of so many bytes


@dataclass(frozen=True)
class _Side:
    """An input or a result by sample, channel and place.

    Attributes
    ----------
    channels, places : int
        Sizes.
    sample, place : int
        Elements from one to the next; channels lie together.
    pitch : int
        Places of a channel in a copy.
    """

    channels: int
    places: int
    sample: int
    place: int
    pitch: int


def _side(
    groups: int, channels: int, sizes: Sequence[int], strides: tuple[int, int, int],
    axes: Sequence[int], itemsize: int,
) -> _Side | None:  # fmt: skip
    """Return an array of groups of channels whose channels lie together, else None."""
    sample, group, channel = strides
    width, places = groups * channels, math.prod(sizes)
    place = min((s for s, n in zip(axes, sizes, strict=True) if n > 1), default=0)
    pitches = [place * pitch for pitch in c_strides(tuple(sizes))]
    found = (
        places > 1
        and width * itemsize >= LEAST_WIDTH
        and place >= width
        and (channels == 1 or channel == 1)
        and (groups == 1 or group == channels)
        and all(n == 1 or s == p for n, s, p in zip(sizes, axes, pitches, strict=True))
    )
    whole = _ALIGNED // itemsize
    return _Side(width, places, sample, place, -(-places // whole) * whole) if found else None


@dataclass(frozen=True)
class Relay:
    """Which sides of a convolution are copied, with the strides that its kernel sees."""

    input: _Side | None
    out: _Side | None
    strides: ConvStrides

    @property
    def kept(self) -> int:
        """Elements of a sample's copies."""
        return sum(side.channels * side.pitch for side in (self.input, self.out) if side)

    def nbytes(self, question: Question) -> int:
        """Return the bytes of all copies of a call."""
        return question.geometry.batch * self.kept * question.dtype.itemsize


def relay(question: Question, strides: ConvStrides) -> Relay | None:
    """Return how a convolution of arrays with such strides is relayed, if it is."""
    geometry, dtype = question.geometry, question.dtype
    item, groups = dtype.itemsize, geometry.groups
    if strides.source is not None or strides.share_inputs or dtype.kind not in "fV" or item > 4:
        return None
    sizes_in = [axis.size_in for axis in geometry.axes]
    sizes_out = [axis.size_out for axis in geometry.axes]
    data = _side(groups, geometry.channels, sizes_in, strides.input, strides.input_axes, item)
    out = _side(groups, geometry.rows, sizes_out, strides.out, strides.out_axes, item)
    if data and geometry.batch * data.channels * data.places * item < LEAST_BYTES:
        data = None
    # Results are written as one array.
    if out and (
        geometry.batch * out.channels * out.places * item < LEAST_BYTES
        or out.place != out.channels
        or (geometry.batch > 1 and out.sample != out.channels * out.places)
    ):
        out = None
    if data:
        own = data.channels * data.pitch, geometry.channels * data.pitch, data.pitch
        strides = strides._replace(input=own, input_axes=list(c_strides(tuple(sizes_in))))
    if out:
        own = out.channels * out.pitch, geometry.rows * out.pitch, out.pitch
        strides = strides._replace(out=own, out_axes=list(c_strides(tuple(sizes_out))))
    return Relay(data, out, strides) if data or out else None


def bind(
    found: Relay,
    question: Question,
    strides: ConvStrides,
    device: Device,
    bind_chunk: Callable[[Question, ConvStrides, int], Convolution],
) -> Convolution:
    """Return the convolution of arrays with such strides by way of copies.

    `bind_chunk` returns the one of a number of samples with the strides of copies, given how often
    a call runs it.
    """
    geometry, dtype = question.geometry, question.dtype
    item, address = dtype.itemsize, device.address
    samples = [part.stop - part.start for part in chunks(geometry.batch, found.kept * item)]
    runs, enter, leave = {}, {}, {}
    for count, times in Counter(samples).items():
        one = replace(question, geometry=replace(geometry, batch=count))
        runs[count] = bind_chunk(one, found.strides, times)
        if side := found.input:
            sizes = count, 1, 1, side.places, 1, 1, side.channels
            steps = side.sample, 0, 0, side.place, 0, 0, 1
            copy = Transposition(sizes, steps, side.pitch)
            enter[count] = channels_last.bind([copy], dtype, device)
        if side := found.out:
            sizes = count, 1, 1, side.channels, 1, 1, side.places
            steps = side.channels * side.pitch, 0, 0, side.pitch, 0, 0, 1
            copy = Transposition(sizes, steps, side.channels)
            leave[count] = channels_last.bind_into([copy], dtype, device)
    starts = [*itertools.accumulate(samples, initial=0)]
    sizes_in = [axis.size_in for axis in geometry.axes]
    sizes_out = [axis.size_out for axis in geometry.axes]

    def shaped(copy: Array, side: _Side, sizes: Sequence[int]) -> Array:
        """Return a copy with the axes of its array, since some kernels take slices of these."""
        samples = (-1,) if geometry.batched else ()
        by_channel = copy.reshape(-1, side.channels, side.pitch)[..., : side.places]
        return by_channel.reshape(*samples, side.channels, *sizes)

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source, result = address(data), address(out)
        for first, count in zip(starts, samples, strict=False):
            chunk = slice(first, first + count)
            own, stored = (a[chunk] if len(samples) > 1 else a for a in (data, out))
            if side := found.input:
                (own,) = enter[count](source + first * strides.input[0] * item)
                own = shaped(own, side, sizes_in)
            if side := found.out:
                stored = device.workspace((count, side.channels, side.pitch), dtype)
                stored = shaped(stored, side, sizes_out)
            runs[count](own, weight, bias, stored)
            if found.out:
                leave[count](address(stored), result + first * strides.out[0] * item)

    return convolve
