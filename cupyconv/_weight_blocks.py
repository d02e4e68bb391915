"""The gradient with respect to a weight on Dask arrays: a sum over the chunks of `grad_output`.

Each chunk of `grad_output` and the window of the input that its positions read give a gradient with
respect to the whole weight. A tree of sums adds these up. The tree follows from the chunks alone,
so the order of the additions, and with it every bit, is the same in each computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from . import _arrays as arrays
from . import _blocks, _fft, _precision, grad
from . import _gradient_geometry as gradients
from ._arrays import Array
from ._blocks import Graph, Key
from ._convolve import settled
from ._geometry import ConvGeometry
from ._paths import path_of
from ._windows import Window, conv_window, padded_conv_window

# Gradients that one task adds up. A worker holds so many at a time, each as large as the weight.
FAN_IN = 8


class _Stretch(NamedTuple):
    """A chunk of `grad_output` along one axis, and the window that its positions read."""

    chunk: int
    window: Window


def _stretches(
    grad_output: da.Array, channels: int, geometry: ConvGeometry, padded: _blocks.Padded
) -> list[list[_Stretch]]:
    """Return the stretches along each axis. The input has all `channels` in one chunk.

    Chunks without elements are left out, except that the first one stays if all are empty. The
    windows of `padded` axes are windows of the axes with their padding.
    """
    lead = grad_output.ndim - geometry.rank  # axes before the spatial ones
    find: list[Callable[[int, int], Window]] = [Window] * (lead - 1)
    find.append(lambda start, stop: Window(0, channels))
    for number, axis in enumerate(_blocks.axes_of(geometry), lead):
        find.append(partial(padded_conv_window if number in padded else conv_window, axis))
    result = []
    for chunks, window in zip(grad_output.chunks, find, strict=True):
        ends = list(accumulate(chunks))
        filled = [chunk for chunk, size in enumerate(chunks) if size] or [0]
        result.append(
            [_Stretch(chunk, window(ends[chunk] - chunks[chunk], ends[chunk])) for chunk in filled]
        )
    return result


def _gradient(window: Array, grad_output: Array, dtype: np.dtype, **options: Any) -> Array:
    """Return the gradient of one chunk, from operands that are cast to `dtype`."""
    path = path_of(window)
    with arrays.on_device(window):
        window, grad_output = path.cast(window, dtype), path.cast(grad_output, dtype)
    return grad.conv_weight(window, grad_output=grad_output, **options)


def _add(gradients: Sequence[Array], dtype: np.dtype) -> Array:
    """Return the sum of some gradients, added up in order and cast to `dtype`."""
    first, *others = gradients
    with arrays.on_device(first), np.errstate(all="ignore"):
        total = first.copy()
        for gradient in others:
            total += gradient
        return path_of(first).cast(total, dtype)


def _add_tree(
    graph: Graph, name: str, keys: Sequence[Key], dtypes: tuple[np.dtype, np.dtype]
) -> tuple[Any, ...]:
    """Return the task that adds up the gradients of `keys`; sums of parts go into `graph`.

    `dtypes` are the ones of the sums of parts and of the result.
    """
    part, result = dtypes
    level = 0
    while len(keys) > FAN_IN:
        groups = [list(keys[i : i + FAN_IN]) for i in range(0, len(keys), FAN_IN)]
        sums = [(name, level, number) for number in range(len(groups))]
        for key, group in zip(sums, groups, strict=True):
            graph[key] = (partial(_add, dtype=part), group)
        keys, level = sums, level + 1
    return (partial(_add, dtype=result), list(keys))


def conv_weight(
    name: str,
    operands: tuple[da.Array, da.Array],
    options: dict[str, Any],
    rank: int | None,
    precision: str | None,
    method: str,
) -> da.Array:
    """Return the gradient with respect to the weight, of input and `grad_output`, as one chunk.

    `rank` is the number of spatial axes, or None if ``options["weight_size"]`` determines it.
    """
    array, grad_output = operands
    named = {"input": array, "grad_output": grad_output}
    _blocks.check(name, named, {}, divided=tuple(named))
    geometry = gradients.conv_weight(
        name, array.shape, grad_output.shape, None, **options, rank=rank
    )
    dtype = arrays.result_dtype(name, array, grad_output, "grad_output")
    # Workers compute outside of the `precision` block that encloses this call.
    precision = _precision.resolve(name, precision)
    method = _fft.checked(name, method, geometry, dtype)
    lead = array.ndim - geometry.rank  # axes before the spatial ones
    for argument, operand in named.items():
        _blocks.check_one_chunk(name, "all channels", operand, [lead - 1], argument)
    # 16-bit floats are summed in float32 and rounded once, like the gradient of undivided arrays.
    total_dtype = arrays.accumulator(dtype)
    shape = gradients.weight_shape(geometry)
    # The whole arrays decide, so that all chunks run by one method.
    with arrays.on_device(array._meta):
        method = settled(path_of(array._meta), method, geometry, dtype, precision, gradient=True)
    fixed: dict[str, Any] = {
        "dtype": total_dtype,
        "padding_mode": geometry.padding_mode,
        "weight_size": shape,
        "stride": geometry.stride,
        "dilation": geometry.dilation,
        "groups": geometry.groups,
        "precision": precision if total_dtype == dtype else "float32",
        "method": method,
    }
    token = tokenize(name, array, grad_output, (geometry, precision, method))
    result, chunk, halo = f"{name}-{token}", f"{name}-chunk-{token}", f"{name}-halo-{token}"
    graph: Graph = {}
    keys = []
    padded = _blocks.padded_axes(geometry, grad_output.chunks[lead:], lead)
    stretches = _stretches(grad_output, array.shape[lead - 1], geometry, padded)
    windows = [[stretch.window for stretch in along] for along in stretches]
    for reading in _blocks.read_windows(graph, halo, array, windows, padded):
        padding = tuple((window.before, window.after) for window in reading.windows[lead:])
        task = reading.task(partial(_gradient, **fixed, padding=padding))
        block = zip(stretches, reading.block, strict=True)
        partner = (grad_output.name, *(along[number].chunk for along, number in block))
        key = (chunk, *reading.block)
        graph[key] = (task, reading.keys, partner)
        keys.append(key)
    key = (result, *(0,) * len(shape))
    graph[key] = _add_tree(graph, f"{name}-sum-{token}", keys, (total_dtype, dtype))
    layers = HighLevelGraph.from_collections(result, graph, dependencies=[array, grad_output])
    meta = arrays.kind_of(array._meta)((0,) * len(shape), dtype)
    return da.Array(layers, result, tuple((size,) for size in shape), meta=meta)
