"""Calls on Dask arrays: one call for each block of the output, on the inputs that the block reads.

`_windows` determines which inputs a block reads. `_geometry` validates the shapes and values of the
undivided arrays, so errors read the same as for a call on one array. Nothing is computed here: the
result is a graph with two kinds of tasks. If a block needs a part of a chunk, a task cuts this part
out on the worker that holds the chunk, so workers exchange halos rather than whole chunks. A second
task, one for each block, joins the parts and calls the function.

A window may also be one of an axis with its padding, in the words of `_borders`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from . import _arrays as arrays
from . import _borders
from . import _windows as windows_
from ._arrays import Array
from ._borders import Segment
from ._geometry import ConvGeometry
from ._windows import Axis, Part, Window

Chunks: TypeAlias = tuple[tuple[int, ...], ...]
# A NumPy or CuPy array, or a Dask array of such chunks.
ArrayOrDask: TypeAlias = Any
# A function that computes a block of the result from the joined inputs and the parameters.
Function: TypeAlias = Callable[..., Array]
Key: TypeAlias = tuple[Any, ...]
Graph: TypeAlias = dict[Key, Any]
# The segments of each axis whose windows are windows of the padded axis.
Padded: TypeAlias = Mapping[int, Sequence[Segment]]


# Arguments ------------------------------------------------------------------------------------


def check(
    name: str,
    required: Mapping[str, ArrayOrDask],
    optional: Mapping[str, ArrayOrDask | None],
    dtypes: frozenset[str] = arrays.CONVOLVED,
    divided: Sequence[str] = ("input",),
) -> None:
    """Raise unless the arrays `divided` are Dask arrays, and all have one kind and known sizes."""
    for argument in divided:
        if not isinstance(required[argument], da.Array):
            kind = type(required[argument]).__name__
            raise TypeError(f"{name}: {argument} must be a Dask array, got {kind}")
    arrays.check(name, _like_chunks(required), _like_chunks(optional), dtypes)
    for argument, array in {**required, **optional}.items():
        if isinstance(array, da.Array) and any(math.isnan(size) for size in array.shape):
            raise ValueError(
                f"{name}: {argument} must have chunks of known sizes, got {argument} of shape "
                f"{array.shape}; its method compute_chunk_sizes finds them"
            )


def _like_chunks(given: Mapping[str, ArrayOrDask | None]) -> dict[str, Array | None]:
    """Return the arrays, but for each Dask array an empty array of the same kind as its chunks."""
    return {
        argument: array._meta if isinstance(array, da.Array) else array
        for argument, array in given.items()
    }


def check_one_chunk(
    name: str, what: str, array: da.Array, axes: Sequence[int], argument: str = "input"
) -> None:
    """Raise if the `argument` of the call, `array`, is divided along one of the axes."""
    for axis in axes:
        if len(array.chunks[axis]) > 1:
            raise ValueError(
                f"{name}: {argument} must have {what} in one chunk, got chunks "
                f"{array.chunks[axis]} along axis {axis} of {argument} of shape {array.shape}; "
                f"{argument}.rechunk({{{axis}: -1}}) joins them"
            )


def joined(array: ArrayOrDask | None) -> da.Array | None:
    """Return a parameter as a Dask array of one chunk."""
    if array is None:
        return None
    if isinstance(array, da.Array):
        return array.rechunk(-1, method="tasks")
    return da.from_array(array, chunks=-1)


# Axes of convolutions -------------------------------------------------------------------------


def axes_of(geometry: ConvGeometry) -> list[Axis]:
    """Return the spatial axes in the form that `_windows` needs."""
    return [
        Axis(axis.size_in, axis.size_out, dilation * (axis.kernel - 1) + 1, stride, pad)
        for axis, stride, dilation, pad in zip(
            geometry.axes, geometry.stride, geometry.dilation, geometry.pads_before, strict=True
        )
    ]


def padded_axes(geometry: ConvGeometry, sizes: Chunks, lead: int) -> dict[int, list[Segment]]:
    """Return the segments of the axes that a convolution with a padding mode is divided along.

    `sizes` are the outputs of each block. The function of a block continues the axes of one block.
    Axes are counted with the `lead` axes before the spatial ones.
    """
    if geometry.padding_mode is None:
        return {}
    return {
        lead + number: segments
        for number, segments in enumerate(_borders.of_axes(geometry))
        if sum(size > 0 for size in sizes[number]) > 1
    }


# Graph ----------------------------------------------------------------------------------------


def only_key(array: da.Array | None) -> Key | None:
    """Return the key of the chunk of a parameter."""
    return None if array is None else (array.name, *(0,) * array.ndim)


def _whole(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def cut(chunk: Array, inside: tuple[slice, ...]) -> Array:
    """Return a copy of a part of a chunk. A view would keep the whole chunk alive."""
    with arrays.on_device(chunk):
        return chunk[inside].copy()


@dataclass(frozen=True)
class Reading:
    """What one block reads: a window of an array, in parts from one or several chunks.

    Attributes
    ----------
    block : tuple of int
        Index of the block along each axis.
    windows : tuple of Window
        The window along each axis.
    keys : list of tuple
        Keys of the parts in the graph.
    places : list of tuple of slice
        The place of each part within the window.
    """

    block: tuple[int, ...]
    windows: tuple[Window, ...]
    keys: list[Key]
    places: list[tuple[slice, ...]]

    def task(self, function: Function) -> Function:
        """Return a task that takes the parts and further arguments of `function`.

        It calls `function` on the joined parts.
        """
        shape = tuple(window.stop - window.start for window in self.windows)
        return partial(_on_parts, function, shape, self.places)


def _on_parts(
    function: Function,
    shape: tuple[int, ...],
    places: Sequence[tuple[slice, ...]],
    parts: Sequence[Array],
    *parameters: Array | None,
) -> Array:
    """Join the parts in an array of this shape, each in its place, and call the function on it."""
    first, *others = parts
    if not others and places[0] == _whole(shape) == _whole(first.shape):
        return function(first, *parameters)
    with arrays.on_device(first):
        window = arrays.kind_of(first)(shape, first.dtype)
        for place, part in zip(places, parts, strict=True):
            window[place] = part
    return function(window, *parameters)


def read_windows(
    graph: Graph,
    halo: str,
    array: da.Array,
    windows: Sequence[Sequence[Window]],
    padded: Padded | None = None,
) -> Iterator[Reading]:
    """Yield what each block reads of `array`, the blocks in row-major order.

    `windows` has, for each axis, the windows that the blocks along this axis read; along a `padded`
    axis they are windows of the axis with its padding. The tasks that cut parts out of chunks are
    added to `graph`; the first item of their keys is `halo`.
    """
    finders: list[Callable[..., list[Part]]] = [windows_.parts] * array.ndim
    for number, segments in (padded or {}).items():
        finders[number] = partial(windows_.padded_parts, segments)
    parts_along = [
        [find(ends, window.start, window.stop) for window in along]
        for find, along, ends in zip(finders, windows, map(ends_of, array.chunks), strict=True)
    ]
    for block, pieces in pieces_of(parts_along):
        keys, places = [], []
        for number, piece in enumerate(pieces):
            key = chunk = (array.name, *(part.chunk for part in piece))
            if not all(part.whole for part in piece):
                key = (halo, *block, number)
                graph[key] = (partial(cut, inside=tuple(part.inside for part in piece)), chunk)
            keys.append(key)
            places.append(tuple(part.place for part in piece))
        block_windows = tuple(along[i] for along, i in zip(windows, block, strict=True))
        yield Reading(block, block_windows, keys, places)


def pieces_of(
    parts_along: Sequence[Sequence[Sequence[Part]]],
) -> Iterator[tuple[tuple[int, ...], Iterator[tuple[Part, ...]]]]:
    """Yield the index of each block, and its pieces: one part along each axis."""
    for block in itertools.product(*(range(len(along)) for along in parts_along)):
        parts = (along[i] for along, i in zip(parts_along, block, strict=True))
        yield block, itertools.product(*parts)


def by_block(
    name: str,
    identity: object,
    array: da.Array,
    windows: Sequence[Sequence[Window]],
    function_on: Callable[[tuple[Window, ...]], Function],
    parameters: Sequence[da.Array | None],
    chunks: Chunks,
    dtype: np.dtype,
    padded: Padded | None = None,
) -> da.Array:
    """Return a Dask array whose blocks are functions of windows of the input, `array`.

    `windows` has, for each axis, the windows that the blocks along this axis read. `function_on`
    returns the function that computes a block from its windows. Equal `name`, `array`, `parameters`
    and `identity` must imply an equal result.
    """
    token = tokenize(name, array, *parameters, identity)
    result, halo = f"{name}-{token}", f"{name}-halo-{token}"
    given = [parameter for parameter in parameters if parameter is not None]
    parameter_keys = [only_key(parameter) for parameter in parameters]
    graph: Graph = {}
    for reading in read_windows(graph, halo, array, windows, padded):
        task = reading.task(function_on(reading.windows))
        key = (result, *reading.block)
        graph[key] = (task, reading.keys, *parameter_keys)
    layers = HighLevelGraph.from_collections(result, graph, dependencies=[array, *given])
    meta = arrays.kind_of(array._meta)((0,) * len(chunks), dtype)
    return da.Array(layers, result, chunks, meta=meta)


def ends_of(chunks: Iterable[int]) -> list[int]:
    """Return the position at which each chunk ends."""
    return [int(end) for end in accumulate(chunks)]


def one_to_one(chunks: Iterable[int]) -> list[Window]:
    """Return the windows of blocks that each read the chunk of the same index and nothing else."""
    return [Window(start, stop) for start, stop in pairwise([0, *ends_of(chunks)])]


def divided(
    axes: Sequence[Axis], chunks: Chunks, *, transposed: bool = False
) -> tuple[list[list[Window]], Chunks]:
    """Return the windows along each spatial axis, and the output's chunks."""
    divide, window = windows_.conv_borders, windows_.conv_window
    if transposed:
        divide, window = windows_.conv_transpose_borders, windows_.conv_transpose_window
    windows, sizes = [], []
    for axis, along in zip(axes, chunks, strict=True):
        blocks = list(pairwise(divide(axis, along)))
        windows.append([window(axis, start, stop) for start, stop in blocks])
        sizes.append(tuple(stop - start for start, stop in blocks))
    return windows, tuple(sizes)
