"""The window of inputs that a range of outputs reads along one axis, and the chunks that hold it.

Arrays that are divided into chunks (`cupyconv.dask`) need this. Outputs ``start`` to ``stop`` of a
long axis are computed from a `Window` of the inputs, which includes the halo that neighbouring
chunks hold. Padding means that inputs are absent, so a window is padded only at the ends of the
array itself: the outputs then equal the outputs of the undivided axis. (``kernels/windows.cuh`` is
about something else, the exponent windows of the float16 emulation of float32.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ._borders import Segment


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution, a transposed convolution or a pooling.

    ``extent`` is ``dilation*(kernel - 1) + 1``, and ``pad`` is the padding before the first input.
    """

    size_in: int
    size_out: int
    extent: int
    stride: int
    pad: int


@dataclass(frozen=True)
class Window:
    """Inputs ``start`` to ``stop``, and the padding with which they yield a range of outputs."""

    start: int
    stop: int
    before: int = 0
    after: int = 0
    output_padding: int = 0


def conv_window(axis: Axis, start: int, stop: int) -> Window:
    """Return the window that outputs `start` to `stop` of a convolution read.

    Output ``o`` reads ``extent`` positions from ``o*stride - pad`` on. The window of the last
    outputs extends to the end of the input, so the window of all outputs is the whole axis.
    """
    first = start * axis.stride - axis.pad
    last = (stop - 1) * axis.stride - axis.pad + axis.extent
    if stop == axis.size_out:
        last = max(last, axis.size_in)
    low, high = (min(max(end, 0), axis.size_in) for end in (first, last))
    if low == high:  # the window lies entirely in the padding
        return Window(low, high, before=last - first)
    return Window(low, high, before=low - first, after=last - high)


def padded_conv_window(axis: Axis, start: int, stop: int) -> Window:
    """Return the window of the padded input that outputs `start` to `stop` read."""
    return Window(start * axis.stride, (stop - 1) * axis.stride + axis.extent)


def conv_transpose_window(axis: Axis, start: int, stop: int) -> Window:
    """Return the window that outputs `start` to `stop` of a transposed convolution read.

    Input ``i`` contributes to ``extent`` outputs from ``i*stride - pad`` on. The window begins with
    the first input that contributes to `start` or to a later output. Its first contribution must
    not be after `start`, though, since padding removes outputs and cannot add any. So if the kernel
    is shorter than the stride, the window may begin with an input that contributes to none of the
    outputs. The windows of the first and of the last outputs extend to the first and to the last
    input.
    """
    place = start + axis.pad  # distance of output `start` from the first contribution of input 0
    low, high = 0, axis.size_in
    if start > 0:
        contributing = -((axis.extent - 1 - place) // axis.stride)
        low = max(min(contributing, place // axis.stride, axis.size_in - 1), 0)
    if stop < axis.size_out:
        high = min((stop - 1 + axis.pad) // axis.stride + 1, axis.size_in)
    before = place - low * axis.stride
    # Outputs from `start` on to which the window contributes.
    covered = (high - low - 1) * axis.stride + axis.extent - before
    spare = covered - (stop - start)
    return Window(low, high, before, after=max(spare, 0), output_padding=max(-spare, 0))


def conv_borders(axis: Axis, chunks: Sequence[int]) -> tuple[int, ...]:
    """Return the borders of the output's chunks for input chunks of these sizes.

    Output ``o`` belongs to the chunk that holds input ``o*stride``.
    """
    return _borders(axis, chunks, lambda end: -(-end // axis.stride))


def conv_transpose_borders(axis: Axis, chunks: Sequence[int]) -> tuple[int, ...]:
    """Return the borders of the output's chunks of a transposed convolution.

    Output ``o`` belongs to the chunk that holds input ``o // stride``.
    """
    return _borders(axis, chunks, lambda end: end * axis.stride)


def _borders(
    axis: Axis, chunks: Sequence[int], first_after: Callable[[int], int]
) -> tuple[int, ...]:
    """Return the borders of the output's chunks.

    `first_after` maps the end of an input chunk to the first output of the next chunk. Outputs
    after the last input belong to the last chunk. Chunks without an output are left out.
    """
    inner = (first_after(end) for end in accumulate(chunks) if end < axis.size_in)
    return tuple(sorted({0, axis.size_out, *(min(border, axis.size_out) for border in inner)}))


@dataclass(frozen=True)
class Part:
    """The part of a window that one chunk holds."""

    chunk: int
    inside: slice  # the part within the chunk
    place: slice  # the part within the window
    whole: bool  # whether the part is the entire chunk


def parts(ends: Sequence[int], start: int, stop: int) -> list[Part]:
    """Return the parts of the window from `start` to `stop` in chunks with these `ends`.

    The list is never empty: an empty window gets an empty part of the first chunk.
    """
    result = []
    for chunk in range(bisect_right(ends, start), len(ends)):
        begin, end = ends[chunk - 1] if chunk else 0, ends[chunk]
        if begin >= stop:
            break
        low, high = max(start, begin), min(stop, end)
        if low < high:
            inside, place = slice(low - begin, high - begin), slice(low - start, high - start)
            result.append(Part(chunk, inside, place, whole=(low, high) == (begin, end)))
    return result or [Part(0, slice(0, 0), slice(0, 0), whole=ends[0] == 0)]


def padded_parts(
    segments: Sequence[Segment], ends: Sequence[int], start: int, stop: int
) -> list[Part]:
    """Return the parts of the window from `start` to `stop` of the padded axis.

    The elements of the axis lie in chunks with these `ends`. A place descends where the padding is
    a reflection, and is longer than its part, which is one element, where that is repeated.
    """
    shown = (segment.within(start, stop) for segment in segments)
    return [
        part
        for segment in filter(None, shown)
        for part in _placed(segment, ends, segment.elements, segment.positions, start)
    ]


def folded_parts(
    segments: Sequence[Segment], ends: Sequence[int], start: int, stop: int
) -> list[Part]:
    """Return the parts of the padded axis that show elements of the window from `start` to `stop`.

    The positions of the padded axis lie in chunks with these `ends`. A place descends where the
    padding is a reflection, and is one element where all positions of the part show that. The list
    is never empty, as that of `parts`.
    """
    showing = (segment.showing(start, stop) for segment in segments)
    return [
        part
        for segment in filter(None, showing)
        for part in _placed(segment, ends, segment.positions, segment.elements, start)
    ] or [Part(0, slice(0, 0), slice(0, 0), whole=False)]


def _placed(
    segment: Segment, ends: Sequence[int], source: slice, target: slice, start: int
) -> list[Part]:
    """Return the parts of `source`, with their places in `target`, in a window from `start` on.

    Both are ranges of positions and of elements of the segment, in ascending order.
    """
    first, last = target.start - start, target.stop - 1 - start
    result = []
    for part in parts(ends, source.start, source.stop):
        low, high = part.place.start, part.place.stop
        place = slice(first, last + 1)
        if segment.step > 0:
            place = slice(first + low, first + high)
        elif segment.step < 0:
            end = last - high
            place = slice(last - low, end if end >= 0 else None, -1)
        result.append(replace(part, place=place))
    return result
