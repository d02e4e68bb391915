"""Which inputs a stretch of outputs reads, along one axis, and how chunks hold them.

Plain integers, for arrays that are divided into chunks (`cupyconv.dask`). Outputs ``start`` to
``stop`` of a long axis are computed from a `Window` of its inputs. Padding is absence, so the
window is padded only where the array itself ends: that is what makes the result that of the whole
axis. (The windows of kernels/windows.cuh are ranges of exponents.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution, of a transposed one, or of a pooling.

    ``extent`` is ``dilation*(kernel - 1) + 1``, ``pad`` the padding in front.
    """

    size_in: int
    size_out: int
    extent: int
    stride: int
    pad: int


@dataclass(frozen=True)
class Window:
    """Inputs ``start`` to ``stop``, and the padding with which they give a stretch of outputs."""

    start: int
    stop: int
    before: int = 0
    after: int = 0
    output_padding: int = 0


def conv_window(axis: Axis, start: int, stop: int) -> Window:
    """Return what the outputs from `start` to `stop` of a convolution read.

    Output ``o`` reads the positions from ``o*stride - pad`` on, ``extent`` of them. The last
    outputs take what is left of the input as well, so that the window of a whole axis is the axis.
    """
    first = start * axis.stride - axis.pad
    last = (stop - 1) * axis.stride - axis.pad + axis.extent
    if stop == axis.size_out:
        last = max(last, axis.size_in)
    low, high = (min(max(end, 0), axis.size_in) for end in (first, last))
    if low == high:  # they lie in the padding altogether
        return Window(low, high, before=last - first)
    return Window(low, high, before=low - first, after=last - high)


def conv_transpose_window(axis: Axis, start: int, stop: int) -> Window:
    """Return what the outputs from `start` to `stop` of a transposed convolution read.

    Input ``i`` reaches the outputs from ``i*stride - pad`` on, ``extent`` of them. The window
    begins with the first input that reaches `start` or something behind it, but not behind the
    place of `start` itself: padding cuts outputs off and cannot add any in front. So where the
    kernel is shorter than the stride, an input may be read that reaches none of the outputs. The
    first and the last outputs take all inputs that the array has on their side, as above.
    """
    place = start + axis.pad  # counted from where the first input begins
    low, high = 0, axis.size_in
    if start > 0:
        reaching = -((axis.extent - 1 - place) // axis.stride)
        low = max(min(reaching, place // axis.stride, axis.size_in - 1), 0)
    if stop < axis.size_out:
        high = min((stop - 1 + axis.pad) // axis.stride + 1, axis.size_in)
    before = place - low * axis.stride
    own = (high - low - 1) * axis.stride + axis.extent - before  # outputs from `start` on
    spare = own - (stop - start)
    return Window(low, high, before, after=max(spare, 0), output_padding=max(-spare, 0))


def conv_borders(axis: Axis, chunks: Sequence[int]) -> tuple[int, ...]:
    """Return where the output's chunks begin and end, given the input's chunks.

    The output at ``o`` belongs to the chunk that holds the input at ``o*stride``.
    """
    return _borders(axis, chunks, lambda end: -(-end // axis.stride))


def conv_transpose_borders(axis: Axis, chunks: Sequence[int]) -> tuple[int, ...]:
    """Return the same for a transposed convolution.

    The output at ``o`` belongs to the chunk that holds the input at ``o // stride``.
    """
    return _borders(axis, chunks, lambda end: end * axis.stride)


def _borders(
    axis: Axis, chunks: Sequence[int], first_behind: Callable[[int], int]
) -> tuple[int, ...]:
    """`first_behind` is the first output that belongs behind an end of a chunk.

    Outputs behind all inputs belong to the last chunk, and chunks of no output are left out.
    """
    inner = (first_behind(end) for end in accumulate(chunks) if end < axis.size_in)
    return tuple(sorted({0, axis.size_out, *(min(border, axis.size_out) for border in inner)}))


@dataclass(frozen=True)
class Part:
    """What a chunk holds of a window: where it lies in the chunk, and where in the window."""

    chunk: int
    inside: slice
    place: slice
    whole: bool  # the part is all of the chunk


def parts(ends: Sequence[int], start: int, stop: int) -> list[Part]:
    """Return where chunks with these `ends` hold the positions from `start` to `stop`.

    There is always a part: an empty window has an empty one, of the first chunk.
    """
    found = []
    for chunk in range(bisect_right(ends, start), len(ends)):
        begin, end = ends[chunk - 1] if chunk else 0, ends[chunk]
        if begin >= stop:
            break
        low, high = max(start, begin), min(stop, end)
        if low < high:
            inside, place = slice(low - begin, high - begin), slice(low - start, high - start)
            found.append(Part(chunk, inside, place, whole=(low, high) == (begin, end)))
    return found or [Part(0, slice(0), slice(0), whole=ends[0] == 0)]
