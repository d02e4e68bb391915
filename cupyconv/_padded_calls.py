"""Convolutions and gradients of arrays with borders: padded copies, and results folded back.

A convolution with a padding mode is the one without padding of a padded copy of its input. Its
transpose first gives the padded result; what lies in the padding is then added to the elements that
the padding shows. Copies and padded results are made for a chunk of samples at a time. A kernel
that takes the borders itself needs neither.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from . import _precision
from ._arrays import Array, Blueprint, Convolution, WeightGradient, partial_dtype
from ._chunks import chunks
from ._geometry import ConvGeometry
from ._gradient_geometry import weight_shape

if TYPE_CHECKING:
    from ._paths import Path


def prepare(
    path: Path,
    geometry: ConvGeometry,
    operands: tuple[Array, Array, Array | None],
    out: Array,
    precision: str,
) -> Convolution:
    """Return a function that convolves arrays with the layouts of these arrays."""
    if geometry.padding_mode is None or path.takes_borders(geometry, out.dtype, precision):
        return path.prepare(geometry, *operands, out, precision)
    prepare_chunk = _prepare_folded if geometry.transposed else _prepare_padded
    data, weight, bias = operands
    data, out = with_batch(geometry, data), with_batch(geometry, out)
    # A transposed convolution takes its input in the dtype of the padded result.
    dtype = partial_dtype(out.dtype) if geometry.transposed else out.dtype
    samples = chunks(geometry.batch, _copied_bytes(geometry, (data,), dtype))
    runs = {
        size: prepare_chunk(
            path,
            _of_chunk(geometry, size),
            (data[:size], weight, bias),
            out[:size],
            precision,
            times,
        )
        for size, times in _sizes(samples).items()
    }

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        data, out = with_batch(geometry, data), with_batch(geometry, out)
        for chunk in samples:
            runs[chunk.stop - chunk.start](data[chunk], weight, bias, out[chunk])

    return convolve


def _prepare_padded(
    path: Path,
    geometry: ConvGeometry,
    operands: tuple[Array, Array, Array | None],
    out: Array,
    precision: str,
    times: int,
) -> Convolution:
    """Return the convolution of a padded copy of the input."""
    data, weight, bias = operands
    padded = _padder(path, geometry, data, out.dtype, times)
    copy = Blueprint(geometry.padded_shape, out.dtype)
    run = path.prepare(geometry.padded, copy, weight, bias, out, precision, times)
    return lambda data, *rest: run(padded(data), *rest)


def _prepare_folded(
    path: Path,
    geometry: ConvGeometry,
    operands: tuple[Array, Array, Array | None],
    out: Array,
    precision: str,
    times: int,
) -> Convolution:
    """Return the transposed convolution whose padded result is folded back."""
    data, weight, bias = operands
    precision = _precision.of_partial_sums(out.dtype, precision)

    def prepare_wide(wide: Array) -> Convolution:
        return path.prepare(geometry.padded, data, weight, None, wide, precision, times)

    return prepare_folded(path, geometry, prepare_wide, bias, out, times)


def prepare_folded(
    path: Path,
    geometry: ConvGeometry,
    prepare_wide: Callable[[Array], Convolution],
    bias: Array | None,
    out: Array,
    times: int = 1,
) -> Convolution:
    """Return a function that folds the padded result of another one, and adds the bias.

    `prepare_wide` returns that one for the layout of the padded result, which has the dtype of
    partial sums, because a sum is rounded once.
    """
    shape, dtype = geometry.padded_shape, partial_dtype(out.dtype)
    run = prepare_wide(Blueprint(shape, dtype))
    fold = path.prepare_fold(geometry.placement, bias, with_batch(geometry, out), times)

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        wide = path.workspace(shape, dtype)
        run(data, weight, None, wide)
        fold(wide, bias, with_batch(geometry, out))

    return convolve


def prepare_weight_gradient(
    path: Path, geometry: ConvGeometry, data: Array, grad_output: Array, out: Array, precision: str
) -> WeightGradient:
    """Return a function that writes a weight gradient for arrays with these layouts."""
    if geometry.padding_mode is None:
        return path.prepare_weight_gradient(geometry, data, grad_output, out, precision)
    data, grad_output = with_batch(geometry, data), with_batch(geometry, grad_output)
    operands = data, grad_output
    copied = _copied_bytes(geometry, operands, partial_dtype(out.dtype))
    samples = chunks(geometry.batch, copied, copies=2)  # Tensor Cores take copies of this one
    shape, dtype = weight_shape(geometry), partial_dtype(out.dtype)
    partial = Blueprint(shape, dtype) if len(samples) > 1 else out
    runs = {
        size: _gradient_of_chunk(
            path,
            _of_chunk(geometry, size),
            data[:size],
            grad_output[:size],
            partial,
            precision,
            times,
        )
        for size, times in _sizes(samples).items()
    }
    if len(samples) == 1:
        run = runs[geometry.batch]
        return lambda data, grad_output, out: run(
            with_batch(geometry, data), with_batch(geometry, grad_output), out
        )
    add, finish = (path.prepare_sum(shape, result) for result in (partial, out))

    def gradient(data: Array, grad_output: Array, out: Array) -> None:
        data, grad_output = with_batch(geometry, data), with_batch(geometry, grad_output)
        sums = path.workspace((2, *shape), dtype)
        for number, chunk in enumerate(samples):
            run = runs[chunk.stop - chunk.start]
            run(data[chunk], grad_output[chunk], sums[min(number, 1)])
            if number == len(samples) - 1:
                finish(sums, out)
            elif number:
                add(sums, sums[0])

    return gradient


def _gradient_of_chunk(
    path: Path,
    geometry: ConvGeometry,
    data: Array,
    grad_output: Array,
    out: Array,
    precision: str,
    times: int,
) -> WeightGradient:
    padded = _padder(path, geometry, data, out.dtype, times)
    copy = Blueprint(geometry.padded_shape, out.dtype)
    run = path.prepare_weight_gradient(geometry.padded, copy, grad_output, out, precision, times)
    return lambda data, *rest: run(padded(data), *rest)


# Chunks and copies -----------------------------------------------------------------------------


def _of_chunk(geometry: ConvGeometry, size: int) -> ConvGeometry:
    """Return the geometry of a chunk of samples, which has a batch axis."""
    return replace(geometry, batch=size, batched=True)


def with_batch(geometry: ConvGeometry, array: Array) -> Array:
    """Return the samples of a convolution, or its one sample, with a batch axis."""
    return array if geometry.batched else array[None]


def _sizes(samples: list[slice]) -> Counter[int]:
    """Return how many chunks have each size."""
    return Counter(chunk.stop - chunk.start for chunk in samples)


def _copied_bytes(geometry: ConvGeometry, operands: tuple[Array, ...], dtype: np.dtype) -> int:
    """Return the bytes that the copies of one sample take, of arrays that are cast, too."""
    padded = math.prod(geometry.padded_shape[1:]) * partial_dtype(dtype).itemsize
    if dtype.name == "complex64":
        padded *= 2  # its parts may be copied once more
    cast: int = sum(math.prod(array.shape[1:]) for array in operands if array.dtype != dtype)
    return padded + cast * dtype.itemsize


def _padder(
    path: Path, geometry: ConvGeometry, data: Array, dtype: np.dtype, times: int
) -> Callable[[Array], Array]:
    """Return a function that makes padded copies in `dtype` of arrays with the layout of `data`."""
    shape = geometry.padded_shape
    source = data if data.dtype == dtype else Blueprint(data.shape, dtype)
    write = path.prepare_pad(geometry.placement, source, times)

    def padded(data: Array) -> Array:
        copy = path.workspace(shape, dtype)
        write(path.cast(data, dtype), copy)
        return copy

    return padded
