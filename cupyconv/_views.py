"""Views of arrays along their axes, as norms and poolings walk through them (kernels/view.cuh)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ._geometry import NormGeometry, PoolGeometry
from ._packing import Arguments, fields_of, lie_together, long_reciprocal, packed_words, zero_padded
from ._plan import MAX_AXES, MOST_CHANNELS, PACK, UNROLL

_LINE = 128  # bytes that neighbouring threads move together


class _Axis(NamedTuple):
    """One axis of a view: its size and its stride in each array."""

    size: int
    strides: tuple[int, ...]


def _view(shape: Sequence[int], *strides: Sequence[int]) -> tuple[_Axis, ...]:
    """Return the axes that arrays are walked along together; there is at least one.

    Neighbours are merged where they lie as one in each array.
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
    """Return a packed ``struct View``."""
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
    """Return a packed ``struct Walk`` whose starts are all values, one by one."""
    starts = [_Axis(axis.size, (*axis.strides, 0)) for axis in axes]
    none = (0,) * len(axes[0].strides)
    return width, math.prod(axis.size for axis in axes), 1, 1, *none, *_packed_view(starts)


def _packed_walk(axes: Sequence[_Axis], width: int, line: int, still: int = 0) -> tuple[int, ...]:
    """Return a packed ``struct Walk`` in steps of `width` neighbours.

    Its run is the longest axis along which the last arrays, `still` of them, do not grow. Where
    that is the last axis, threads take turns on it, as many as there are steps in a `line`.
    """
    *others, last = axes
    axes = [*others, _Axis(last.size // width, tuple(width * own for own in last.strides))]
    none = (0,) * len(last.strides)
    runs = [i for i, axis in enumerate(axes) if not any(axis.strides[len(none) - still :])]
    run = max(runs, key=lambda i: axes[i].size, default=len(axes))
    size, strides = axes[run] if runs else _Axis(1, none)
    lanes = line if run == len(others) else 1
    tiles = -(-size // (lanes * UNROLL))
    lanes = -(-size // (tiles * UNROLL))
    steps = tuple(lanes * own for own in strides)
    starts = [_Axis(axis.size, (*axis.strides, 0)) for axis in axes]
    starts[run : run + 1] = [
        _Axis(tiles, (*(UNROLL * own for own in steps), lanes * UNROLL)),
        _Axis(lanes, (*strides, 1)),
    ]
    view = _view([axis.size for axis in starts], *zip(*(a.strides for a in starts), strict=True))
    threads = math.prod(axis.size for axis in view)
    return width, threads, size, lanes, *steps, *_packed_view(view)


class Placed(NamedTuple):
    """How an array lies in memory: what there is to know of it but for its address."""

    strides: tuple[int, ...]  # in elements
    itemsize: int
    past: int  # elements from the last address that is a multiple of so many


class _NormAxes(NamedTuple):
    """The axes that a norm goes along, and where its sets begin in input and result."""

    values: tuple[_Axis, ...]  # of a set: input, number
    places: tuple[_Axis, ...]  # of what is stored: where it comes from, result, channel, set
    sample_strides: tuple[int, int]
    set_strides: tuple[int, int]


def _norm_axes(
    geometry: NormGeometry, of_input: Sequence[int], of_out: Sequence[int], alone: bool
) -> _NormAxes:
    """Return the axes for a block that has a set `alone`, or for blocks that share all of them."""
    g = geometry
    samples, channels, *space = g.shape
    none = (0,) * len(space)
    shape: tuple[int, ...] = (g.channels, *space)
    numbers = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    set_strides = of_input[1] * g.channels, of_out[1] * g.channels
    if alone:
        values = _ordered(0, shape, of_input[1:], numbers)
        places = _ordered(1, shape, numbers, of_out[1:], (1, *none), (0, *none))
        return _NormAxes(values, places, (of_input[0], of_out[0]), set_strides)
    if g.sets_per_sample:
        values = _view(shape, of_input[1:], numbers)
        sample_strides = of_input[0], of_out[0]
    else:  # a set runs over the samples
        shape = (samples, *space)
        numbers = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        values = _view(shape, (of_input[0], *of_input[2:]), numbers)
        sample_strides = 0, 0
    places = _ordered(
        1,
        # Channels as groups of them, so that the number of the set grows evenly along each axis.
        (samples, channels // g.channels, g.channels, *space),
        *((own[0], own[1] * g.channels, *own[1:]) for own in (of_input, of_out)),
        (0, g.channels, 1, *none),
        (g.sets_per_sample, 1, 0, *none),
    )
    return _NormAxes(values, places, sample_strides, set_strides)


def _ordered(array: int, shape: Sequence[int], *strides: Sequence[int]) -> tuple[_Axis, ...]:
    """Return a view in the order in which an array lies in memory."""
    order = sorted(range(len(shape)), key=lambda axis: -abs(strides[array][axis]))
    return _view([shape[a] for a in order], *([own[a] for a in order] for own in strides))


def _width(pack: int, axes: Sequence[_Axis], starts: Sequence[Sequence[int]]) -> int:
    """Return how many neighbours one instruction moves: a pack, half of one, or 1.

    They lie together and aligned in each of the first arrays. Of these `starts` has where they
    begin, and how far apart their parts do, in elements.
    """
    widths = [
        lie_together(pack, [*own, *(axis.strides[array] for axis in axes)], axes[-1].size)
        for array, own in enumerate(starts)
    ]
    return width if (width := min(widths)) in (pack, pack // 2) else 1


@lru_cache(maxsize=4096)
def norm_layout(
    geometry: NormGeometry, pack: int, alone: bool, input: Placed, out: Placed
) -> Arguments:
    """Return the packed arguments of norms of arrays that lie so, but for those of each call.

    A block has a set `alone`, or blocks share all of them.
    """
    g, line = geometry, _LINE // input.itemsize
    axes = _norm_axes(g, input.strides, out.strides, alone)
    starts = input.past, out.past
    sets = list(zip(starts, axes.sample_strides, axes.set_strides, strict=True))
    values_width = _width(pack, axes.values, [sets[0], (0,)] if alone else sets[:1])
    width = _width(pack, axes.places, [(0,), sets[1]] if alone else [starts[:1], starts[1:]])
    *_, to_channel, to_set = axes.places[-1].strides
    if to_channel or to_set:
        width = 1 if alone else min(width, MOST_CHANNELS)
    return packed_words(
        (
            *(g.shape[1], g.sets, g.sets_per_sample or g.sets, g.channels),
            *(*axes.sample_strides, *axes.set_strides, g.elements),
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


def lies_across(geometry: NormGeometry, input: Placed) -> bool:
    """Whether the channels lie in packs, each a set of its own: those of a batch norm."""
    (samples, channels, *space), (own, step, *steps) = geometry.shape, input.strides
    pack = PACK // input.itemsize
    axes = zip((samples, channels, *space), (own, 0, *steps), strict=True)
    strides = [stride for size, stride in axes if size > 1]
    return (
        geometry.sets_per_sample == 0
        and step == 1
        and math.gcd(pack, channels, input.past, *strides) == pack
    )


@lru_cache(maxsize=4096)
def pool_layout(geometry: PoolGeometry, input: Placed, of_out: tuple[int, ...]) -> Arguments:
    """Return the packed arguments of poolings of arrays that lie so, but for their addresses."""
    h, w = geometry.axes
    *lead, line, step = input.strides
    inside = h.is_inside and w.is_inside
    none = (0,) * len(lead)
    outputs = _view(
        geometry.out_shape,
        (*lead, h.stride * line, w.stride * step),
        of_out,
        (*none, not inside, 0),
        (*none, 0, not inside),
    )
    steps = (input.past, h.dilation * line, *(axis.strides[0] for axis in outputs))
    pairs = (
        inside
        and h.kernel == w.kernel == 2
        and w.dilation == step == 1
        and math.gcd(2, *steps) == 2
    )
    return packed_words(
        (
            *fields_of(geometry.axes, 2),
            *(line, step, inside, pairs),
            *_packed_walk(outputs, 1, _LINE // input.itemsize),
        )
    )
