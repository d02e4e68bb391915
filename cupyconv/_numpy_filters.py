"""Filters of one input channel on NumPy arrays, for images, volumes and signals.

There are three ways, each for all taps of a call. Images of floats are matrix products of a banded
matrix, which holds the taps of one column of the kernel, with lines of the input. Signals of floats
are scalar products, as by `numpy.correlate`. Else each tap is multiplied by a slice of the input
and added to a slice of the output, tile by tile, so that the sums stay in the processor's cache.

How the outputs are divided, and so every bit, follows from one sample alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

# Taps of one partial sum. A sum of partial sums keeps the rounding errors of many taps low.
PARTIAL_TAPS = 64
# Elements of an output tile, which lies in the L2 cache beside its products and inputs.
_TILE = 2**15
# Taps of one scalar product. OpenBLAS adds them up in many partial sums, without threads.
_DOT_TAPS = 1024
# Outputs along the first axis of a banded matrix, if the kernel has no more taps than these.
_BAND_LINES = 16
# Most columns of a banded matrix for each of its taps; in more of them, most products are zeros.
_BAND_COLUMNS = 32
# Products of a signal from which on a call of `numpy.correlate` costs little beside its work.
_DOT_PRODUCTS = 2**15

Slices: TypeAlias = tuple[slice, ...]
Pairs: TypeAlias = Sequence[tuple[slice, slice]]  # of source and target, for each tap of an axis
_ANY = (...,)  # the axes before the spatial ones


@dataclass(frozen=True)
class Axis:
    """How the taps of one axis pair the positions of the long and of the short side.

    Position ``short * stride - pad + tap * dilation`` of the long side, of `long` positions, is
    paired with position ``short`` of the short side, of `short` positions.
    """

    stride: int
    dilation: int
    pad: int
    long: int
    short: int

    def pair(self, tap: int) -> tuple[slice, slice]:
        """Return the slices of the long and of the short side that a tap pairs."""
        offset = tap * self.dilation - self.pad
        first = max(0, -(offset // self.stride))
        count = min(self.short, (self.long - 1 - offset) // self.stride + 1) - first
        if count <= 0:
            return slice(0, 0, 1), slice(0, 0, 1)
        start = first * self.stride + offset
        stop = start + count * self.stride
        return slice(start, stop, self.stride), slice(first, first + count, 1)


def _cut(source: slice, target: slice, begin: int, end: int) -> tuple[slice, slice]:
    """Return the part of paired slices whose target is in a tile, and its place in the tile."""
    first = max(0, -((target.start - begin) // target.step))
    stop = min(target.stop, end)
    count = max(0, -((target.start - stop) // target.step) - first)
    read, write = source.start + first * source.step, target.start + first * target.step - begin
    return (
        slice(read, read + count * source.step, source.step),
        slice(write, write + count * target.step, target.step),
    )


def _tiles(shape: Sequence[int]) -> Iterator[tuple[Slices, int, int]]:
    """Yield the samples and groups of each tile of an output, and its lines on the first axis.

    The shape is ``(N, groups, rows, *space)``. A tile has whole samples or groups, or it has lines
    of one group.
    """
    batch, groups = shape[:2]
    group = math.prod(shape[2:])
    together = min(groups, max(1, _TILE // group))
    samples = max(1, _TILE // (group * groups)) if together == groups else 1
    lines = max(1, _TILE * shape[3] // group)
    for n, g, line in itertools.product(
        range(0, batch, samples), range(0, groups, together), range(0, shape[3], lines)
    ):
        some = slice(n, n + samples), slice(g, g + together)
        yield some, line, min(line + lines, shape[3])


def add_filtered(
    values: np.ndarray,
    weights: np.ndarray,
    out: np.ndarray,
    axes: Sequence[Axis],
    transposed: bool,
) -> None:
    """Add to `out` the convolution of each group's only channel.

    The shapes of `values`, `weights` and `out` are ``(N, groups, *space)``, ``(groups, rows,
    *kernel)`` and ``(N, groups, rows, *space)``. All have one dtype, and are in C order.
    """
    if not out.size or not values.size:
        return
    kernel = weights.shape[2:]
    if len(axes) == 1 and _suits_dot_products(axes[0], kernel[0], out.dtype):
        _add_dot_products(values, weights, out, axes[0], transposed)
        return
    pairs = [[one.pair(tap) for tap in range(size)] for one, size in zip(axes, kernel, strict=True)]
    if transposed:
        pairs = [[(short, long) for long, short in line] for line in pairs]
    if len(axes) > 1 and _suits_bands(axes[-2], kernel[-2], out.dtype):
        # The zeros of a banded matrix would make NaN of infinities.
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if finite.all():
            _add_bands(values, weights, out, pairs)
            return
        banded = np.zeros_like(out[finite])
        _add_bands(values[finite], weights, banded, pairs)
        out[finite] = banded
        rest = np.zeros_like(out[~finite])
        _add_tiles(values[~finite], weights, rest, pairs)
        out[~finite] = rest
        return
    _add_tiles(values, weights, out, pairs)


def _add_tiles(
    values: np.ndarray, weights: np.ndarray, out: np.ndarray, pairs: Sequence[Pairs]
) -> None:
    """Add to `out` the products of each tap, tile by tile."""
    rank, kernel = len(pairs), weights.shape[2:]
    ones = (1,) * rank
    factors = np.moveaxis(weights, (0, 1), (-2, -1)).reshape(*kernel, *weights.shape[:2], *ones)
    for (samples, groups), begin, end in _tiles(out.shape):
        _add_tile(
            values[samples, groups, None],
            factors[(slice(None),) * rank + (groups,)],
            out[samples, groups, :, begin:end],
            [[_cut(*pair, begin, end) for pair in pairs[0]], *pairs[1:]],
        )


def _add_tile(
    values: np.ndarray,
    factors: np.ndarray,
    out: np.ndarray,
    pairs: Sequence[Pairs],
) -> None:
    """Add to a tile the products of each tap with the slice of `values` that `pairs` has for it."""
    scratch = np.empty(out.size, out.dtype)
    partial = out if math.prod(map(len, pairs)) <= PARTIAL_TAPS else np.zeros(out.shape, out.dtype)
    for count, taps in enumerate(itertools.product(*(range(len(line)) for line in pairs)), 1):
        sliced = [line[tap] for line, tap in zip(pairs, taps, strict=True)]
        sources, targets = (tuple(pair[side] for pair in sliced) for side in (0, 1))
        place = partial[_ANY + targets]
        if place.size:
            product = scratch[: place.size].reshape(place.shape)
            np.multiply(values[_ANY + sources], factors[taps], out=product)
            np.add(place, product, out=place)
        if partial is not out and count % PARTIAL_TAPS == 0:
            out += partial
            partial[...] = 0
    if partial is not out:
        out += partial


def _suits_bands(axis: Axis, taps: int, dtype: np.dtype) -> bool:
    """Return whether a banded matrix along `axis` has few enough zeros."""
    columns = max(_BAND_LINES, taps) * axis.stride + (taps - 1) * axis.dilation
    return dtype.kind == "f" and taps > 1 and columns <= _BAND_COLUMNS * taps


def _add_bands(
    values: np.ndarray, weights: np.ndarray, out: np.ndarray, pairs: Sequence[Pairs]
) -> None:
    """Add to `out` products of banded matrices with lines along the last axis of finite `values`.

    An element of a matrix is the weight of a line of the input, along its columns, for a line of
    the output, along its rows.
    """
    *outer, along, across = pairs
    taps = len(along)
    height, ones = max(_BAND_LINES, taps), (1,) * len(outer)
    scratch = np.empty(out.size // out.shape[-2] * height, out.dtype)
    values = values[:, :, None]
    # The taps of each column of the kernel come last: (*outer, K_w, groups, rows, K_h).
    columns = np.moveaxis(weights, (0, 1, -2), (-3, -2, -1))
    for begin in range(0, out.shape[-2], height):
        end = min(begin + height, out.shape[-2])
        cut = [_cut(*pair, begin, end) for pair in along]
        # For each weight of a column of the kernel, and each place that it has in the matrix.
        line, row = (np.concatenate([_positions(pair[side]) for pair in cut]) for side in (0, 1))
        if not line.size:
            continue
        tap = np.repeat(np.arange(taps), [len(_positions(source)) for source, _ in cut])
        first, last = line.min(), line.max() + 1
        shape = (*weights.shape[:2], *ones, end - begin, last - first)
        for taps_across in np.ndindex(columns.shape[:-3]):
            band = np.zeros((*weights.shape[:2], end - begin, last - first), out.dtype)
            band[:, :, row, line - first] = columns[taps_across][:, :, tap]
            sliced = [axis[k] for axis, k in zip((*outer, across), taps_across, strict=True)]
            *sources, source = (source for source, _ in sliced)
            *targets, target = (target for _, target in sliced)
            lines = values[_ANY + (*sources, slice(first, last), source)]
            place = out[_ANY + (*targets, slice(begin, end), target)]
            if place.size:
                product = scratch[: place.size].reshape(place.shape)
                place += np.matmul(band.reshape(shape), lines, out=product)


def _positions(part: slice) -> np.ndarray:
    return np.arange(part.start, part.stop, part.step)


def _suits_dot_products(axis: Axis, taps: int, dtype: np.dtype) -> bool:
    """Return whether scalar products serve taps along one axis, and are long or many enough."""
    neighbours = axis.stride == axis.dilation == 1
    return dtype.kind == "f" and neighbours and axis.short * taps >= _DOT_PRODUCTS


def _add_dot_products(
    values: np.ndarray, weights: np.ndarray, out: np.ndarray, axis: Axis, transposed: bool
) -> None:
    """Add to `out` what `add_filtered` adds, for neighbouring taps along one axis."""
    taps = weights.shape[2]
    pad = taps - 1 - axis.pad if transposed else axis.pad
    kernels = np.ascontiguousarray(weights[..., ::-1]) if transposed else weights
    for sample, group, row in np.ndindex(out.shape[:3]):
        for first, begin in itertools.product(
            range(0, taps, _DOT_TAPS), range(0, out.shape[3], _TILE)
        ):
            _add_correlation(
                values[sample, group],
                kernels[group, row, first : first + _DOT_TAPS],
                pad - first - begin,
                out[sample, group, row, begin : begin + _TILE],
            )


def _add_correlation(values: np.ndarray, kernel: np.ndarray, pad: int, out: np.ndarray) -> None:
    """Add ``values[o - pad + k] * kernel[k]`` for each k to each ``out[o]``."""
    taps = len(kernel)
    first, last = max(0, -pad), min(len(values), len(out) - pad + taps - 1)
    if first >= last:
        return
    values, pad = values[first:last], pad + first
    if pad == 0 and len(values) == len(out) + taps - 1:
        out += np.correlate(values, kernel, "valid")
        return
    begin, end = max(0, pad - taps + 1), min(len(out), len(values) + pad)
    shift = taps - 1 - pad
    out[begin:end] += np.correlate(values, kernel, "full")[begin + shift : end + shift]
