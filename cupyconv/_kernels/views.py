"""Views of arrays, and how threads walk through them: the structs of kernels/view.cuh.

Kernels that touch each element once, norms and poolings, take arrays of any shape and any strides
by them. The order of a walk follows from where the elements lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .._packing import long_reciprocal, zero_padded
from .members import Members

THREADS = 256  # of a block
PACK = 16  # bytes that a thread loads by one instruction
UNROLL = 4  # steps of a thread on one walk
MAX_AXES = 28  # of a view: the batch, groups, their channels, spatial axes, and lanes
LINE = 128  # bytes of a cache line, which neighbouring threads move together
SHARERS = 16  # threads that have neighbouring places: a sector of 16-bit elements


class Axis(NamedTuple):
    """One axis of a view: its size and its stride in each array."""

    size: int
    strides: tuple[int, ...]


def merged_axes(shape: Sequence[int], *strides: Sequence[int]) -> tuple[Axis, ...]:
    """Return the axes along which arrays are walked in step, at least one.

    Neighbouring axes are merged if they are contiguous with each other in each array.
    """
    axes: list[Axis] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1].strides == tuple(step * size for step in steps):
            size *= axes.pop().size
        axes.append(Axis(size, tuple(steps)))
    return tuple(axes) or (Axis(1, (0,) * len(strides)),)


def axes_in_memory_order(
    array: int, shape: Sequence[int], *strides: Sequence[int]
) -> tuple[Axis, ...]:
    """Return the merged axes in the memory order of one `array`, its largest stride first."""
    order = sorted(range(len(shape)), key=lambda axis: -abs(strides[array][axis]))
    return merged_axes(
        [shape[axis] for axis in order],
        *([array_strides[axis] for axis in order] for array_strides in strides),
    )


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous array in C order, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Placed(NamedTuple):
    """The layout of an array, without its address."""

    strides: tuple[int, ...]  # in elements
    itemsize: int
    past: int  # index of the first element modulo `PACK` elements, a multiple of every pack


def placed(address: int, strides: tuple[int, ...], itemsize: int) -> Placed:
    """Return the layout of an array that begins at an address, with strides in elements."""
    return Placed(strides, itemsize, address // itemsize % PACK)


# Structs --------------------------------------------------------------------------------------


def view(axes: Sequence[Axis]) -> Members:
    """Return a ``struct View``, whose first axis is the fastest."""
    axes = axes[::-1]
    sizes = [axis.size for axis in axes]
    strides_of_arrays = zip(*(axis.strides for axis in axes), strict=True)
    return {
        "axes": len(axes),
        "size": zero_padded(sizes, MAX_AXES),
        "reciprocal": zero_padded([long_reciprocal(size) for size in sizes], MAX_AXES),
        "stride": [zero_padded(strides, MAX_AXES) for strides in strides_of_arrays],
    }


def walk_in_order(axes: Sequence[Axis], width: int) -> Members:
    """Return a ``struct Walk`` that visits single values in order."""
    return {
        "width": width,
        "threads": math.prod(axis.size for axis in axes),
        "run": 1,
        "lanes": 1,
        "stride": [0 for _ in axes[0].strides],
        "starts": view([Axis(axis.size, (*axis.strides, 0)) for axis in axes]),
    }


def walk_in_runs(axes: Sequence[Axis], width: int, line: int, still: int = 0) -> Members:
    """Return a ``struct Walk`` in steps of `width` neighbours.

    A thread runs along the longest axis on which the last `still` arrays have a stride of 0. If
    that is the last axis, as many threads share a run as there are steps in a `line`.
    """
    *others, last = axes
    axes = [*others, Axis(last.size // width, tuple(width * stride for stride in last.strides))]
    none = (0,) * len(last.strides)
    runs = [i for i, axis in enumerate(axes) if not any(axis.strides[len(none) - still :])]
    run = max(runs, key=lambda i: axes[i].size, default=len(axes))
    size, strides = axes[run] if runs else Axis(1, none)
    lanes = line if run == len(others) else 1
    tiles = -(-size // (lanes * UNROLL))
    lanes = -(-size // (tiles * UNROLL))
    steps = tuple(lanes * stride for stride in strides)
    # One more array holds the number of a thread's first step on the run.
    starts = [Axis(axis.size, (*axis.strides, 0)) for axis in axes]
    starts[run : run + 1] = [
        Axis(tiles, (*(UNROLL * step for step in steps), lanes * UNROLL)),
        Axis(lanes, (*strides, 1)),
    ]
    return _walk(width, size, lanes, steps, starts)


def walk_across(
    places: Sequence[Axis], run: int, channels: Axis, width: int, first: int, rounds: int = 1
) -> tuple[Members, int]:
    """Return a ``struct Walk`` in steps of `width` channels, and its rounds, at most `rounds`.

    A thread runs along the axis `run` of the `places`, in rounds of `UNROLL` steps. Neighbouring
    threads have the `first` channels of a place, then up to `SHARERS` places of the run, and then
    more channels. Where an array has no channels innermost, the first ones are those of a sector:
    the threads of a warp have whole sectors along channels and along places.
    """
    packs = Axis(channels.size // width, tuple(width * stride for stride in channels.strides))
    inner = math.gcd(packs.size, max(1, first // width))
    size, strides = places[run]
    tiles = -(-size // (SHARERS * UNROLL * rounds))
    steps_of_thread = -(-size // (SHARERS * tiles))
    lanes = -(-size // (steps_of_thread * tiles))
    rounds = -(-steps_of_thread // UNROLL)
    span = lanes * UNROLL * rounds
    # One more array holds the number of a thread's first step on the run.
    starts = [
        *(Axis(axis.size, (*axis.strides, 0)) for i, axis in enumerate(places) if i != run),
        Axis(tiles, (*(span * stride for stride in strides), span)),
        Axis(packs.size // inner, (*(inner * stride for stride in packs.strides), 0)),
        Axis(lanes, (*strides, 1)),
        Axis(inner, (*packs.strides, 0)),
    ]
    steps = tuple(lanes * stride for stride in strides)
    return _walk(width, size, lanes, steps, starts), rounds


def _walk(
    width: int, run: int, lanes: int, steps: Sequence[int], starts: Sequence[Axis]
) -> Members:
    """Return a ``struct Walk`` whose threads start at `starts`, in this order."""
    strides_of_arrays = zip(*(axis.strides for axis in starts), strict=True)
    starting = merged_axes([axis.size for axis in starts], *strides_of_arrays)
    return {
        "width": width,
        "threads": math.prod(axis.size for axis in starting),
        "run": run,
        "lanes": lanes,
        "stride": steps,
        "starts": view(starting),
    }


def channels_together(channels: int, data: Placed, pack: int, axis: int = 1) -> int:
    """Return how many neighbouring channels one instruction moves: a pack, half of one, or 1.

    They are contiguous and aligned at each place of an array whose `axis` has the channels; a pack
    of them does not go from one group of `channels` to the next.
    """
    others = data.strides[:axis] + data.strides[axis + 1 :]
    width = math.gcd(pack, channels, data.past, *others) if data.strides[axis] == 1 else 1
    return width if width in (pack, pack // 2) else 1
