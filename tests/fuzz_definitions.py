"""Definitions of convolutions, gradients and poolings tap by tap, on NumPy's and CuPy's arrays.

They are those of `reference`, fast enough for thousands of calls a second on a GPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference import Axis, Sums, fold, pad, padded_axes

Result = Any  # an array of NumPy's or of CuPy's


def _cupy() -> Any:
    import cupy

    return cupy


def sums(
    x: Result,
    w: Result,
    b: Result | None,
    axes: list[Axis],
    groups: int,
    transposed: bool,
    padding_mode: str | None = None,
) -> Sums:
    """The sum of products, tap by tap, of arrays on their own device."""
    xp = np if isinstance(x, np.ndarray) else _cupy()
    x = x if transposed else pad(x, axes, padding_mode, xp)
    bordered, axes = axes, padded_axes(axes, padding_mode)
    dtype = np.result_type(x, w)
    exact = dtype.kind in "iu"
    wide = np.dtype(np.uint64 if exact else np.complex128 if dtype.kind == "c" else np.float64)
    batch, lengths = x.shape[0], [a.large if transposed else a.small for a in axes]
    x = x.astype(wide).reshape(batch, groups, x.shape[1] // groups, *x.shape[2:])
    w = w.astype(wide).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    rows = w.shape[2] if transposed else w.shape[1]
    value = xp.zeros((batch, groups, rows, *lengths), wide)
    scale = value if exact else xp.zeros(value.shape, np.float64)
    terms = np.zeros(lengths)
    for tap in np.ndindex(w.shape[3:]):
        small, large = _reached(axes, tap)
        source, target = (small, large) if transposed else (large, small)
        columns = x[(..., *source)]
        if columns.size == 0:
            continue
        shape = columns.shape[3:]
        columns = columns.reshape(*columns.shape[:3], math.prod(shape))
        matrix = w[(..., *tap)]
        matrix = matrix.swapaxes(1, 2) if transposed else matrix
        value[(..., *target)] += _product(xp, matrix, columns, shape)
        terms[target] += matrix.shape[2]
        if not exact:
            scale[(..., *target)] += _product(xp, abs(matrix), abs(columns), shape)
    shape = (batch, groups * rows, *lengths)
    value, scale = value.reshape(shape), scale.reshape(shape)
    if transposed:
        value, scale = (fold(a, bordered, padding_mode, xp) for a in (value, scale))
        terms = fold(terms, bordered, padding_mode)
    if b is not None:
        column = b.reshape(-1, *(1,) * len(axes))
        value = value + column.astype(wide)
        if not exact:
            scale = scale + abs(column.astype(wide))
    return Sums(value, scale, xp.asarray(terms))


def _product(xp: Any, matrix: Result, columns: Result, shape: tuple[int, ...]) -> Result:
    # With one channel a sum is a product, which is faster.
    product = matrix * columns if matrix.shape[2] == 1 else xp.matmul(matrix, columns)
    return product.reshape(*product.shape[:3], *shape)


def weight_sums(
    x: Result, y: Result, axes: list[Axis], groups: int, padding_mode: str | None = None
) -> Sums:
    """The gradient with respect to the weight, tap by tap, of batches on their own device."""
    xp = np if isinstance(x, np.ndarray) else _cupy()
    x, axes = pad(x, axes, padding_mode, xp), padded_axes(axes, padding_mode)
    dtype = np.result_type(x, y)
    exact = dtype.kind in "iu"
    wide = np.dtype(np.uint64 if exact else np.complex128 if dtype.kind == "c" else np.float64)
    x, y = (
        a.astype(wide)
        .reshape(a.shape[0], groups, a.shape[1] // groups, *a.shape[2:])
        .swapaxes(0, 1)
        for a in (x, y)
    )
    kernel = tuple(axis.kernel for axis in axes)
    value = xp.zeros((groups, y.shape[2], x.shape[2], *kernel), wide)
    scale = value if exact else xp.zeros(value.shape, np.float64)
    terms = np.zeros(kernel)
    for tap in np.ndindex(*kernel):
        small, large = _reached(axes, tap)
        rows, columns = (
            xp.moveaxis(a[(..., *place)], 2, 1) for a, place in ((y, small), (x, large))
        )
        if rows.size == 0 or columns.size == 0:
            continue
        rows, columns = (a.reshape(*a.shape[:2], -1) for a in (rows, columns))
        columns = columns.swapaxes(1, 2)
        value[(..., *tap)] = xp.matmul(rows, columns)
        terms[tap] = rows.shape[2]
        if not exact:
            scale[(..., *tap)] = xp.matmul(abs(rows), abs(columns))
    shape = (groups * value.shape[1], *value.shape[2:])
    return Sums(value.reshape(shape), scale.reshape(shape), xp.asarray(terms))


def _reach(axis: Axis, tap: int) -> tuple[slice, slice]:
    """Positions of the small and of the large array that a tap ties to each other."""
    shift = tap * axis.dilation - axis.before
    start = max(-(shift // axis.stride), 0)
    stop = max(min((axis.large - 1 - shift) // axis.stride + 1, axis.small), start)
    if stop == start:
        return slice(0, 0), slice(0, 0)
    first, last = start * axis.stride + shift, (stop - 1) * axis.stride + shift
    return slice(start, stop), slice(first, last + 1, axis.stride)


def _reached(axes: list[Axis], tap: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The same on all axes."""
    small, large = zip(*map(_reach, axes, tap), strict=True)
    return small, large


def largest(
    x: Result,
    shape: tuple[int, ...],
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Result:
    """The largest element of each window, tap by tap; a NaN is larger than all."""
    xp = np if isinstance(x, np.ndarray) else _cupy()
    sizes = kernel_size, kernel_size if stride is None else stride, dilation, padding
    axes = [
        Axis(large, small, k, s, d, p, p)
        for large, small, k, s, d, p in zip(x.shape[-2:], shape[-2:], *sizes, strict=True)
    ]
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    found = xp.full(shape, lowest, x.dtype)
    for tap in np.ndindex(*kernel_size):
        small, large = _reached(axes, tap)
        part = found[(..., *small)]
        if part.size:
            with np.errstate(invalid="ignore"):  # ml_dtypes warns of a bfloat16 NaN
                found[(..., *small)] = xp.maximum(part, x[(..., *large)])
    return found
