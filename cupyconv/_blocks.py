"""Calls on Dask arrays: one call for each block of the output, on the inputs that it reads.

What a block reads is in `_windows`; shapes and values are validated in `_geometry`, on the whole
array, so that errors read the same as those of the whole array's function. Nothing is computed
here: the result is a graph of two kinds of tasks. Where a block reads a part of a chunk, a task
cuts it out, on the worker that has the chunk, so that neighbours exchange their borders and no
more. One task for each block puts the parts together and calls the function.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

try:
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph
except ImportError as error:
    raise ImportError("cupyconv.dask needs Dask: pip install 'cupyconv[dask]'") from error

from . import _arrays as arrays
from . import _geometry, _normalization, _precision
from . import _windows as windows_
from ._arrays import Array
from ._geometry import ConvGeometry, PoolAxis, PoolGeometry
from ._paths import path_of
from ._windows import Axis, Window

Chunks: TypeAlias = tuple[tuple[int, ...], ...]
# Computes a block of the result from the inputs that it reads and the parameters.
Call: TypeAlias = Callable[..., Array]


# Arguments ------------------------------------------------------------------------------------


def _check(
    name: str,
    required: Mapping[str, Array],
    optional: Mapping[str, Array | None],
    dtypes: frozenset[str] = arrays.CONVOLVED,
) -> None:
    """Raise unless the input is a Dask array, and all are of one kind and of known sizes."""
    if not isinstance(required["input"], da.Array):
        kind = type(required["input"]).__name__
        raise TypeError(f"{name}: input must be a Dask array, got {kind}")
    arrays.check(name, _kinds(required), _kinds(optional), dtypes)
    for argument, array in {**required, **optional}.items():
        if isinstance(array, da.Array) and any(math.isnan(size) for size in array.shape):
            raise ValueError(
                f"{name}: {argument} must have chunks of known sizes, got {argument} of shape "
                f"{array.shape}; its method compute_chunk_sizes finds them"
            )


def _kinds(given: Mapping[str, Array | None]) -> dict[str, Array | None]:
    """Return what stands for each Dask array: an empty array like its chunks."""
    return {
        argument: array._meta if isinstance(array, da.Array) else array
        for argument, array in given.items()
    }


def _check_one_chunk(name: str, what: str, input: da.Array, axes: Sequence[int]) -> None:
    """Raise where `input` is divided along one of the axes."""
    for axis in axes:
        if len(input.chunks[axis]) > 1:
            raise ValueError(
                f"{name}: input must have {what} in one chunk, got chunks {input.chunks[axis]} "
                f"along axis {axis} of an input of shape {input.shape}; "
                f"input.rechunk({{{axis}: -1}}) joins them"
            )


def _joined(array: Array | None) -> da.Array | None:
    """Return a parameter as a Dask array of one chunk."""
    if array is None:
        return None
    if isinstance(array, da.Array):
        return array.rechunk(-1, method="tasks")
    return da.from_array(array, chunks=-1)


# Graph ----------------------------------------------------------------------------------------


def _cut(chunk: Array, inside: tuple[slice, ...]) -> Array:
    """Return a part of a chunk as an array of its own, which does not keep the chunk alive."""
    with arrays.on_device(chunk):
        return chunk[inside].copy()


def _on_parts(
    call: Call,
    shape: tuple[int, ...],
    places: Sequence[tuple[slice, ...]],
    parts: Sequence[Array],
    *parameters: Array | None,
) -> Array:
    """Put the parts of an array of this shape in their places, and call the function on it."""
    first, *others = parts
    if not others:
        return call(first, *parameters)
    with arrays.on_device(first):
        window = arrays.kind_of(first)(shape, first.dtype)
        for place, part in zip(places, parts, strict=True):
            window[place] = part
    return call(window, *parameters)


def _by_block(
    name: str,
    identity: object,
    input: da.Array,
    windows: Sequence[Sequence[Window]],
    call_on: Callable[[tuple[Window, ...]], Call],
    parameters: Sequence[da.Array | None],
    chunks: Chunks,
    dtype: np.dtype,
) -> da.Array:
    """Return the Dask array whose blocks are calls on windows of `input`.

    `windows` has, for each axis, those that the blocks along it read; `call_on` makes the call of
    a block from its own. The result follows from `name`, `input`, `parameters` and `identity`.
    """
    token = tokenize(name, input, *parameters, identity)
    result, halo = f"{name}-{token}", f"{name}-halo-{token}"
    last = [None if p is None else (p.name, *(0,) * p.ndim) for p in parameters]
    read = [
        [windows_.parts(ends, window.start, window.stop) for window in along]
        for along, ends in zip(windows, map(_ends, input.chunks), strict=True)
    ]
    graph: dict[tuple[Any, ...], Any] = {}
    for block in itertools.product(*(range(len(along)) for along in windows)):
        own = tuple(along[i] for along, i in zip(windows, block, strict=True))
        found = list(itertools.product(*(along[i] for along, i in zip(read, block, strict=True))))
        keys = []
        for number, parts in enumerate(found):
            key = chunk = (input.name, *(part.chunk for part in parts))
            if not all(part.whole for part in parts):
                key = (halo, *block, number)
                graph[key] = (partial(_cut, inside=tuple(part.inside for part in parts)), chunk)
            keys.append(key)
        shape = tuple(window.stop - window.start for window in own)
        places = [tuple(part.place for part in parts) for parts in found]
        key = (result, *block)
        graph[key] = (partial(_on_parts, call_on(own), shape, places), keys, *last)
    collections = [array for array in (input, *parameters) if array is not None]
    layers = HighLevelGraph.from_collections(result, graph, dependencies=collections)
    meta = arrays.kind_of(input._meta)((0,) * len(chunks), dtype)
    return da.Array(layers, result, chunks, meta=meta)


def _ends(chunks: Iterable[int]) -> list[int]:
    return [int(end) for end in accumulate(chunks)]


def _themselves(chunks: Iterable[int]) -> list[Window]:
    """Return the windows of blocks that read the chunk in their own place."""
    return [Window(start, stop) for start, stop in pairwise([0, *_ends(chunks)])]


def _divided(
    axes: Sequence[Axis], chunks: Chunks, *, transposed: bool = False
) -> tuple[list[list[Window]], Chunks]:
    """Return the windows along each spatial axis, and the output's chunks."""
    divide, window = windows_.conv_borders, windows_.conv_window
    if transposed:
        divide, window = windows_.conv_transpose_borders, windows_.conv_transpose_window
    windows, sizes = [], []
    for axis, along in zip(axes, chunks, strict=True):
        stretches = list(pairwise(divide(axis, along)))
        windows.append([window(axis, start, stop) for start, stop in stretches])
        sizes.append(tuple(stop - start for start, stop in stretches))
    return windows, tuple(sizes)


# Calls ----------------------------------------------------------------------------------------


def convolve(
    function: Call,
    describe: Callable[..., ConvGeometry],
    input: da.Array,
    weight: Array,
    bias: Array | None,
    options: dict[str, Any],
    rank: int | None,
    precision: str | None,
) -> da.Array:
    """Return a convolution by `function`, whose geometry `describe` makes of the `options`."""
    name = function.__name__
    _check(name, {"input": input, "weight": weight}, {"bias": bias})
    bias_shape = None if bias is None else bias.shape
    geometry = describe(name, input.shape, weight.shape, bias_shape, **options, rank=rank)
    dtype = arrays.result_dtype(name, input, weight)
    arrays.check_bias(name, bias, dtype)
    # The precision is that of the block around this call, not of what is around a worker later on.
    precision = _precision.resolve(name, precision)
    lead = input.ndim - geometry.rank
    _check_one_chunk(name, "all channels", input, [lead - 1])

    axes = [
        Axis(axis.size_in, axis.size_out, dilation * (axis.kernel - 1) + 1, stride, pad)
        for axis, stride, dilation, pad in zip(
            geometry.axes, geometry.stride, geometry.dilation, geometry.pads_before, strict=True
        )
    ]
    windows, sizes = _divided(axes, input.chunks[lead:], transposed=geometry.transposed)
    # As the geometry has them: the graph keeps nothing of the caller's that may change later.
    known = {"stride": geometry.stride, "dilation": geometry.dilation, "groups": geometry.groups}
    settled = {name: value for name, value in known.items() if name in options}

    def call_on(own: Sequence[Window]) -> Call:
        pads: dict[str, object] = {
            "padding": tuple((window.before, window.after) for window in own[lead:])
        }
        if geometry.transposed:
            pads["output_padding"] = tuple(window.output_padding for window in own[lead:])
        return partial(function, **settled, **pads, precision=precision)

    return _by_block(
        name,
        (geometry, precision),
        input,
        [*map(_themselves, input.chunks[:lead]), *windows],
        call_on,
        [_joined(weight), _joined(bias)],
        (*input.chunks[: lead - 1], (geometry.groups * geometry.rows,), *sizes),
        dtype,
    )


def max_pool2d(input: da.Array, options: dict[str, Any]) -> da.Array:
    """Return a max pooling; the channels may be divided as well."""
    name = "max_pool2d"
    _check(name, {"input": input}, {}, arrays.NORMALISED)
    geometry = _geometry.max_pool2d(name, input.shape, **options)
    axes = [
        Axis(
            axis.size_in,
            axis.size_out,
            axis.dilation * (axis.kernel - 1) + 1,
            axis.stride,
            axis.pad,
        )
        for axis in geometry.axes
    ]
    windows, sizes = _divided(axes, input.chunks[-2:])

    def call_on(own: Sequence[Window]) -> Call:
        height, width = (
            _pooled_window(axis, window)
            for axis, window in zip(geometry.axes, own[-2:], strict=True)
        )
        return partial(_pool, (height, width))

    return _by_block(
        name,
        geometry,
        input,
        [*map(_themselves, input.chunks[:-2]), *windows],
        call_on,
        [],
        (*input.chunks[:-2], *sizes),
        input.dtype.newbyteorder("="),
    )


def _pooled_window(axis: PoolAxis, window: Window) -> PoolAxis:
    size = window.stop - window.start
    reach = window.before + size + window.after - axis.dilation * (axis.kernel - 1) - 1
    return replace(axis, size_in=size, size_out=reach // axis.stride + 1, pad=window.before)


def _pool(axes: tuple[PoolAxis, PoolAxis], input: Array) -> Array:
    """Pool a window, whose padding may differ in front and behind, unlike that of a call."""
    geometry = PoolGeometry(input.shape[:-2], axes)
    with arrays.on_device(input):
        out = arrays.kind_of(input)(geometry.out_shape, input.dtype.newbyteorder("="))
        if out.size:
            path_of(input).max_pool2d(geometry, input, out)
    return out


def batch_norm(
    input: da.Array,
    mean: Array,
    var: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> da.Array:
    """Return a batch norm with given statistics, each block on its own."""
    name = "batch_norm"
    statistics, parameters = {"mean": mean, "var": var}, {"weight": weight, "bias": bias}
    _check(name, {"input": input, **statistics}, parameters, arrays.NORMALISED)
    shapes = _normalization.shapes({**statistics, **parameters})
    _geometry.batch_norm(name, input.shape, shapes, given=True)
    eps = _normalization.check_eps(name, eps)
    _check_one_chunk(name, "all channels", input, [1])
    call = partial(_normalization.batch_norm, eps=eps)
    return _normalised(name, call, input, [mean, var, weight, bias])


def group_norm(
    input: da.Array, num_groups: int, weight: Array | None, bias: Array | None, eps: float
) -> da.Array:
    """Return a group norm, each block on its own."""
    name = "group_norm"
    parameters = {"weight": weight, "bias": bias}
    _check(name, {"input": input}, parameters, arrays.NORMALISED)
    shapes = _normalization.shapes(parameters)
    geometry = _geometry.group_norm(name, input.shape, num_groups, shapes)
    eps = _normalization.check_eps(name, eps)
    _check_one_chunk(name, "each sample", input, range(1, input.ndim))
    call = partial(_group_norm, num_groups=geometry.sets_per_sample, eps=eps)
    return _normalised(name, call, input, [weight, bias])


def _group_norm(
    input: Array, weight: Array | None, bias: Array | None, *, num_groups: int, eps: float
) -> Array:
    """Take the arguments in the order of a block's call."""
    return _normalization.group_norm(input, num_groups, weight, bias, eps)


def _normalised(
    name: str, call: partial[Array], input: da.Array, parameters: Sequence[Array | None]
) -> da.Array:
    return _by_block(
        name,
        call.keywords,
        input,
        [_themselves(along) for along in input.chunks],
        lambda own: call,
        [_joined(parameter) for parameter in parameters],
        input.chunks,
        arrays.floating(input.dtype),
    )
