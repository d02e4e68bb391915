"""Convolutions and transposed convolutions of Dask arrays, by blocks of the output.

With a padding mode the function that computes a block continues the axes that are one block. Along
a divided axis a block of a convolution reads its window of the padded input. A divided transposed
convolution first gives the padded result in blocks; a task for each block of the result then adds
up what lands in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from . import _arrays as arrays
from . import _blocks as blocks
from . import _borders, _fft, _precision
from . import _windows as windows_of
from ._arrays import Array
from ._blocks import ArrayOrDask, Chunks, Function, Graph, Key, Padded
from ._convolve import settled
from ._geometry import ConvGeometry
from ._paths import path_of
from ._windows import Part, Window

# Input, weight and bias of a convolution.
Operands: TypeAlias = tuple[da.Array, ArrayOrDask, ArrayOrDask | None]


def convolve(
    function: Function,
    describe: Callable[..., ConvGeometry],
    operands: Operands,
    options: dict[str, Any],
    rank: int | None,
    precision: str | None,
    method: str,
    name: str = "",
    argument: str = "input",
) -> da.Array:
    """Return a convolution by `function`. `describe` turns shapes and `options` into its geometry.

    `rank` is the number of spatial axes, or None if the weight determines it. Errors call the
    function `name`, by default its own name, and the first operand `argument`.
    """
    array, weight, bias = operands
    name = name or function.__name__
    blocks.check(name, {argument: array, "weight": weight}, {"bias": bias}, divided=(argument,))
    bias_shape = None if bias is None else bias.shape
    geometry = describe(name, array.shape, weight.shape, bias_shape, **options, rank=rank)
    dtype = arrays.result_dtype(name, array, weight, data_name=argument)
    arrays.check_bias(name, bias, dtype)
    # Workers compute outside of the `precision` block that encloses this call.
    precision = _precision.resolve(name, precision)
    method = _fft.checked(name, method, geometry, dtype)
    lead = array.ndim - geometry.rank  # axes before the spatial ones
    blocks.check_one_chunk(name, "all channels", array, [lead - 1], argument)
    if 0 in geometry.out_shape[lead:]:  # the input of a convolution may have empty axes
        shape = geometry.out_shape
        chunks = (*array.chunks[: lead - 1], *((size,) for size in shape[lead - 1 :]))
        return da.zeros_like(array, dtype=dtype, shape=shape, chunks=chunks)
    # The whole array decides, so that all blocks run by one method.
    with arrays.on_device(array._meta):
        method = settled(path_of(array._meta), method, geometry, dtype, precision)
    axes = blocks.axes_of(geometry)
    windows, sizes = blocks.divided(axes, array.chunks[lead:], transposed=geometry.transposed)
    # These values come from the geometry, so the graph holds no object that the caller can change.
    known = {"stride": geometry.stride, "dilation": geometry.dilation, "groups": geometry.groups}
    fixed = {option: value for option, value in known.items() if option in options}
    call = _Call(name, partial(function, **fixed), geometry, precision, method)
    parameters = blocks.joined(weight), blocks.joined(bias)
    padded = blocks.padded_axes(geometry, sizes, lead)
    if padded and geometry.transposed:
        return call.folded(array, *parameters, sizes, dtype)
    for number in padded:
        axis, outputs = axes[number - lead], blocks.one_to_one(sizes[number - lead])
        windows[number - lead] = [
            windows_of.padded_conv_window(axis, block.start, block.stop) for block in outputs
        ]
    return call.by_block(array, windows, parameters, sizes, dtype, padded)


@dataclass(frozen=True)
class _Call:
    """A convolution by `function`, which knows all options but the padding."""

    name: str
    function: Function
    geometry: ConvGeometry
    precision: str
    method: str

    def function_on(self, windows: Sequence[Window]) -> Function:
        """Return the function that computes a block from its windows."""
        spatial = windows[-self.geometry.rank :]
        pads: dict[str, object] = {
            "padding": tuple((window.before, window.after) for window in spatial),
            "padding_mode": self.geometry.padding_mode,
        }
        if self.geometry.transposed:
            pads["output_padding"] = tuple(window.output_padding for window in spatial)
        return partial(self.function, **pads, precision=self.precision, method=self.method)

    def by_block(
        self,
        array: da.Array,
        windows: Sequence[Sequence[Window]],
        parameters: Sequence[da.Array | None],
        sizes: Chunks,
        dtype: np.dtype,
        padded: Padded | None = None,
    ) -> da.Array:
        """Return the result. `windows` and `sizes` are those of its blocks along spatial axes."""
        lead = array.ndim - self.geometry.rank
        return blocks.by_block(
            self.name,
            (self.geometry, self.precision, self.method),
            array,
            [*map(blocks.one_to_one, array.chunks[:lead]), *windows],
            self.function_on,
            parameters,
            (*array.chunks[: lead - 1], (self.geometry.groups * self.geometry.rows,), *sizes),
            dtype,
            padded,
        )

    def folded(
        self,
        array: da.Array,
        weight: da.Array | None,
        bias: da.Array | None,
        sizes: Chunks,
        dtype: np.dtype,
    ) -> da.Array:
        """Return the transposed convolution whose padded result is folded back.

        A block of the padded result is one of the result, and the padding beside it. Its dtype is
        the one in which sums are accumulated, because a sum is rounded once. Products of 16-bit
        floats are exact in TF32.
        """
        wide = arrays.accumulator(dtype)
        windows, padded_sizes = [], []
        padded = self.geometry.padded
        for axis, before, along in zip(
            blocks.axes_of(padded), self.geometry.pads_before, sizes, strict=True
        ):
            inner = (min(end + before, axis.size_out) for end in blocks.ends_of(along[:-1]))
            ranges = list(pairwise(sorted({0, *inner, axis.size_out})))
            windows.append([windows_of.conv_transpose_window(axis, *ends) for ends in ranges])
            padded_sizes.append(tuple(stop - start for start, stop in ranges))
        call = _Call(
            f"{self.name}-padded",
            self.function if wide == dtype else partial(_widened, self.function, wide),
            padded,
            _precision.of_partial_sums(dtype, self.precision),
            self.method,
        )
        result = call.by_block(array, windows, [weight, None], tuple(padded_sizes), wide)
        return _fold(self.name, self.geometry, result, bias, sizes, dtype)


def _widened(
    function: Function, dtype: np.dtype, data: Array, weight: Array, _: None, **options: Any
) -> Array:
    """Return the result of a function of operands that are cast to `dtype`."""
    path = path_of(data)
    with arrays.on_device(data):
        return function(path.cast(data, dtype), path.cast(weight, dtype), **options)


def _fold(
    name: str,
    geometry: ConvGeometry,
    padded: da.Array,
    bias: da.Array | None,
    sizes: Chunks,
    dtype: np.dtype,
) -> da.Array:
    """Return the result of a transposed convolution from the padded result.

    A block cuts parts out of the chunk of the same index itself, since nearly all of that chunk
    lands in the block.
    """
    lead = padded.ndim - geometry.rank
    chunks = (*padded.chunks[:lead], *sizes)
    finders: list[Callable[..., list[Part]]] = [windows_of.parts] * lead
    finders += [
        partial(windows_of.folded_parts, segments) for segments in _borders.of_axes(geometry)
    ]
    chunk_ends = map(blocks.ends_of, padded.chunks)
    parts_along = [
        [find(ends, window.start, window.stop) for window in blocks.one_to_one(along)]
        for find, ends, along in zip(finders, chunk_ends, chunks, strict=True)
    ]
    token = tokenize(name, padded, bias, geometry)
    result, halo = f"{name}-{token}", f"{name}-halo-{token}"
    graph: Graph = {}
    for block, pieces in blocks.pieces_of(parts_along):
        keys, insides, places = [], [], []
        for number, piece in enumerate(pieces):
            index = tuple(part.chunk for part in piece)
            inside = tuple(part.inside for part in piece)
            key: Key = (padded.name, *index)
            if index != block:
                cut = (halo, *block, number)
                graph[cut] = (partial(blocks.cut, inside=inside), key)
                key, inside = cut, ()
            keys.append(key)
            insides.append(inside)
            places.append(tuple(part.place for part in piece))
        shape = tuple(along[i] for along, i in zip(chunks, block, strict=True))
        task = partial(_add_parts, shape, insides, places, geometry.rank, dtype)
        result_key = (result, *block)
        graph[result_key] = (task, keys, blocks.only_key(bias))
    dependencies = [padded] if bias is None else [padded, bias]
    layers = HighLevelGraph.from_collections(result, graph, dependencies=dependencies)
    meta = arrays.kind_of(padded._meta)((0,) * len(chunks), dtype)
    return da.Array(layers, result, chunks, meta=meta)


def _add_parts(
    shape: tuple[int, ...],
    insides: Sequence[tuple[slice, ...]],
    places: Sequence[tuple[slice, ...]],
    rank: int,
    dtype: np.dtype,
    chunks: Sequence[Array],
    bias: Array | None,
) -> Array:
    """Return an array of this shape with a part of each chunk, added to its place in order.

    A part is summed along an axis on which it is longer than its place, which is one element then.
    """
    first = chunks[0]
    path = path_of(first)
    with arrays.on_device(first), np.errstate(all="ignore"):
        total = arrays.kind_of(first)(shape, first.dtype)
        total[...] = 0
        for inside, place, chunk in zip(insides, places, chunks, strict=True):
            part, target = chunk[inside], total[place]
            lengths = enumerate(zip(part.shape, target.shape, strict=True))
            summed = tuple(axis for axis, (length, room) in lengths if length > room)
            if summed:
                part = part.sum(summed, part.dtype, keepdims=True)
            target += part
        if bias is not None:
            total += path.cast(bias, total.dtype).reshape((-1, *(1,) * rank))
        return path.cast(total, dtype)
