"""Order in which norms and poolings walk through the axes of arrays (kernels/view.cuh)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ._geometry import NormGeometry
from ._packing import Arguments, fields_of, lie_together, long_reciprocal, packed_words, zero_padded
from ._plan import MAX_AXES, MOST_CHANNELS, PACK, UNROLL, PoolPass

_LINE = 128  # bytes of a cache line, which neighbouring threads move together


class _Axis(NamedTuple):
    """One axis of a view: its size and its stride in each array."""

    size: int
    strides: tuple[int, ...]


def _view(shape: Sequence[int], *strides: Sequence[int]) -> tuple[_Axis, ...]:
    """Return the axes along which arrays are walked in step, at least one.

    Neighbouring axes are merged if they are contiguous with each other in each array.
    """
    axes: list[_Axis] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1].strides == tuple(step * size for step in steps):
            size *= axes.pop().size
        axes.append(_Axis(size, tuple(steps)))
    return tuple(axes) or (_Axis(1, (0,) * len(strides)),)


def _packed_view(axes: Sequence[_Axis]) -> tuple[int, ...]:
    """Return the members of a ``struct View``."""
    axes = axes[::-1]
    sizes = [axis.size for axis in axes]
    arrays = zip(*(axis.strides for axis in axes), strict=True)
    return (
        len(axes),
        *zero_padded(sizes, MAX_AXES),
        *zero_padded([long_reciprocal(size) for size in sizes], MAX_AXES),
        *(stride for strides in arrays for stride in zero_padded(strides, MAX_AXES)),
    )


def _packed_numbers(axes: Sequence[_Axis], width: int) -> tuple[int, ...]:
    """Return the members of a ``struct Walk`` that visits single values in order."""
    starts = [_Axis(axis.size, (*axis.strides, 0)) for axis in axes]
    none = (0,) * len(axes[0].strides)
    return width, math.prod(axis.size for axis in axes), 1, 1, *none, *_packed_view(starts)


def _packed_walk(axes: Sequence[_Axis], width: int, line: int, still: int = 0) -> tuple[int, ...]:
    """Return the members of a ``struct Walk`` in steps of `width` neighbours.

    A thread runs along the longest axis on which the last `still` arrays have a stride of 0. If
    that is the last axis, as many threads share a run as there are steps in a `line`.
    """
    *others, last = axes
    axes = [*others, _Axis(last.size // width, tuple(width * stride for stride in last.strides))]
    none = (0,) * len(last.strides)
    runs = [i for i, axis in enumerate(axes) if not any(axis.strides[len(none) - still :])]
    run = max(runs, key=lambda i: axes[i].size, default=len(axes))
    size, strides = axes[run] if runs else _Axis(1, none)
    lanes = line if run == len(others) else 1
    tiles = -(-size // (lanes * UNROLL))
    lanes = -(-size // (tiles * UNROLL))
    steps = tuple(lanes * stride for stride in strides)
    starts = [_Axis(axis.size, (*axis.strides, 0)) for axis in axes]
    starts[run : run + 1] = [
        _Axis(tiles, (*(UNROLL * step for step in steps), lanes * UNROLL)),
        _Axis(lanes, (*strides, 1)),
    ]
    view = _view([axis.size for axis in starts], *zip(*(a.strides for a in starts), strict=True))
    threads = math.prod(axis.size for axis in view)
    return width, threads, size, lanes, *steps, *_packed_view(view)


class Placed(NamedTuple):
    """The layout of an array, without its address."""

    strides: tuple[int, ...]  # in elements
    itemsize: int
    past: int  # elements from the last aligned address to the first element


class _NormAxes(NamedTuple):
    """The axes that a norm walks along, and the strides of samples and sets."""

    values: tuple[_Axis, ...]  # values of a set; strides: in the input, of the value's number
    places: tuple[_Axis, ...]  # results; strides: of the source, in the result, of channel and set
    sample_strides: tuple[int, int]  # in the input and in the result
    set_strides: tuple[int, int]  # in the input and in the result


def _norm_axes(
    geometry: NormGeometry, in_strides: Sequence[int], out_strides: Sequence[int], alone: bool
) -> _NormAxes:
    """Return the axes for blocks that each have one set `alone`, or that share all sets."""
    samples, channels, *space = geometry.shape
    none = (0,) * len(space)
    shape: tuple[int, ...] = (geometry.channels, *space)
    numbers = _c_strides(shape)
    set_strides = in_strides[1] * geometry.channels, out_strides[1] * geometry.channels
    if alone:
        values = _ordered(0, shape, in_strides[1:], numbers)
        places = _ordered(1, shape, numbers, out_strides[1:], (1, *none), (0, *none))
        return _NormAxes(values, places, (in_strides[0], out_strides[0]), set_strides)
    if geometry.sets_per_sample:
        values = _view(shape, in_strides[1:], numbers)
        sample_strides = in_strides[0], out_strides[0]
    else:  # a set extends over the samples
        shape = (samples, *space)
        values = _view(shape, (in_strides[0], *in_strides[2:]), _c_strides(shape))
        sample_strides = 0, 0
    places = _ordered(
        1,
        # The channel axis is divided into groups, so that the set has a stride along each axis.
        (samples, channels // geometry.channels, geometry.channels, *space),
        *(
            (strides[0], strides[1] * geometry.channels, *strides[1:])
            for strides in (in_strides, out_strides)
        ),
        (0, geometry.channels, 1, *none),
        (geometry.sets_per_sample, 1, 0, *none),
    )
    return _NormAxes(values, places, sample_strides, set_strides)


def _c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous array in C order, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _ordered(array: int, shape: Sequence[int], *strides: Sequence[int]) -> tuple[_Axis, ...]:
    """Return a view in the memory order of one `array`, the largest stride first."""
    order = sorted(range(len(shape)), key=lambda axis: -abs(strides[array][axis]))
    return _view(
        [shape[axis] for axis in order],
        *([array_strides[axis] for axis in order] for array_strides in strides),
    )


def _width(pack: int, axes: Sequence[_Axis], starts: Sequence[Sequence[int]]) -> int:
    """Return how many neighbours one instruction moves: a pack, half of one, or 1.

    The neighbours are contiguous and aligned in each of the first arrays. For each of these,
    `starts` has the elements from an aligned address to the first element, and between sets.
    """
    widths = [
        lie_together(pack, [*offsets, *(axis.strides[array] for axis in axes)], axes[-1].size)
        for array, offsets in enumerate(starts)
    ]
    return width if (width := min(widths)) in (pack, pack // 2) else 1


@lru_cache(maxsize=4096)
def norm_layout(
    geometry: NormGeometry, pack: int, alone: bool, data: Placed, out: Placed
) -> Arguments:
    """Return the packed arguments of a norm except for the members that a call sets.

    Each block has one set `alone`, or blocks share all sets.
    """
    line = _LINE // data.itemsize
    axes = _norm_axes(geometry, data.strides, out.strides, alone)
    starts = data.past, out.past
    sets = list(zip(starts, axes.sample_strides, axes.set_strides, strict=True))
    values_width = _width(pack, axes.values, [sets[0], (0,)] if alone else sets[:1])
    width = _width(pack, axes.places, [(0,), sets[1]] if alone else [starts[:1], starts[1:]])
    *_, to_channel, to_set = axes.places[-1].strides
    if to_channel or to_set:
        width = 1 if alone else min(width, MOST_CHANNELS)
    return packed_words(
        (
            *(geometry.shape[1], geometry.sets),
            *(geometry.sets_per_sample or geometry.sets, geometry.channels),
            *(*axes.sample_strides, *axes.set_strides, geometry.elements),
            values_width == pack and [axis.strides for axis in axes.values] == [(1, 1)],
            *(
                _packed_walk(axes.values, values_width, line // values_width)
                if alone
                else _packed_numbers(axes.values, values_width)
            ),
            *_packed_walk(axes.places, width, line // width, still=2),
            *((to_channel, to_set) if width > 1 else (0, 0)),
        )
    )


def lies_across(geometry: NormGeometry, data: Placed) -> bool:
    """Return whether a pack holds channels of a batch norm, each of which is a set."""
    (samples, channels, *space), (sample_step, step, *steps) = geometry.shape, data.strides
    pack = PACK // data.itemsize
    axes = zip((samples, channels, *space), (sample_step, 0, *steps), strict=True)
    strides = [stride for size, stride in axes if size > 1]
    return (
        geometry.sets_per_sample == 0
        and step == 1
        and math.gcd(pack, channels, data.past, *strides) == pack
    )


@lru_cache(maxsize=4096)
def pool_layout(
    one: PoolPass, lead: tuple[int, ...], data: Placed, out_strides: tuple[int, ...]
) -> Arguments:
    """Return the packed arguments of a pass except for the addresses.

    The axis that the threads of a warp share comes last.
    """
    h, w = one.axes
    *outer, line, step = data.strides
    shared = one.lanes > 1
    inside = h.is_inside and w.is_inside and one.parts == 1
    none = (0,) * len(lead)
    starts = [(*none, h.stride, 0, 0), (*none, 0, w.stride, 0)]  # along each axis, in positions
    starts[one.along] = (*starts[one.along][:-1], one.part_step)
    outputs = _view(
        (*lead, h.size_out, w.size_out, one.parts),
        (*outer, h.stride * line, w.stride * step, one.part_step * (line, step)[one.along]),
        (*out_strides[:-1], out_strides[-1] * one.parts, out_strides[-1]),
        *((0,) * len(axis) if inside else axis for axis in starts[:: 1 if one.along else -1]),
    )
    steps = (data.past, h.dilation * line, *(axis.strides[0] for axis in outputs))
    pairs = (
        inside
        and h.kernel == w.kernel == 2
        and w.dilation == step == 1
        and math.gcd(2, *steps) == 2
        and (h.pad, w.pad) == (0, 0)
    )
    order = (0, 1) if one.along else (1, 0)
    packs = shared and (line, step)[one.along] == one.axes[one.along].dilation == 1
    return packed_words(
        (
            *fields_of((one.axes[order[0]], one.axes[order[1]]), 2),
            *((line, step)[axis] for axis in order),
            *(inside, pairs, packs),
            *(
                _packed_numbers(outputs, 1)
                if shared
                else _packed_walk(outputs, 1, _LINE // data.itemsize)
            ),
        )
    )
