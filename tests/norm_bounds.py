"""How far a result by FFT may be from its reference: a bound in the norm.

For each sample and output channel the largest error is

    |err| <= C * eps * log2(size) * ||x|| * ||w||

with the Euclidean norms of the sample's group, as it is padded, and of the channel's weight, and
the size of the transforms. That is what rounding errors of a product of spectra are bounded by,
whatever their phases (Cauchy and Schwarz, and Parseval); transforms with rounding errors at random
stay far below C, and a result by another definition far above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

import reference
from bounds import UNIT32, UNIT64, accumulator, assert_close
from gradients import Gradient
from reference import Array, Axis
from strategies import Convolution

C = 2

AnyCase: TypeAlias = "Convolution | Gradient"


def _batched(a: Array, rank: int) -> Array:
    return a[None] if a.ndim == rank + 1 else a


def _in_groups(a: Array, groups: int) -> Array:
    """Samples by group and channel, in a dtype that the squares of float32 numbers fit in."""
    wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    return wide.reshape(a.shape[0], groups, a.shape[1] // groups, *a.shape[2:])


def _norm(a: Array, kept: int) -> Array:
    """Euclidean norms over all axes but the first `kept`; NaN or infinite where an element is."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.sqrt(np.square(np.abs(a)).sum(tuple(range(kept, a.ndim))))


def transform_size(axes: Sequence[Axis]) -> int:
    """At least the places that one transform holds."""
    lengths = (
        max(axis.large + axis.before + axis.after, (axis.small - 1) * axis.stride + 1)
        + (axis.kernel - 1) * axis.dilation
        for axis in axes
    )
    return 2 * math.prod(lengths)


def products_of_norms(case: AnyCase) -> Array:
    """||x|| * ||w|| for each element of a batched result, but with a 1 for each spatial axis.

    Where a padded result is folded, an element has the errors of all places that show it.
    """
    axes, mode = case.axes, case.padding_mode
    rank, ones = len(axes), (1,) * len(axes)
    kind = case.kind if isinstance(case, Gradient) else ""
    groups = case.groups if isinstance(case, Convolution) else case.options.get("groups", 1)
    if kind == "weight":
        x = reference.pad(_batched(case["input"], rank), axes, mode)
        x = _norm(_in_groups(x, groups).swapaxes(0, 1).swapaxes(1, 2), 2)
        y = _batched(case["grad_output"], rank)
        y = _norm(_in_groups(y, groups).swapaxes(0, 1).swapaxes(1, 2), 2)
        with np.errstate(invalid="ignore"):
            found = y[:, :, None] * x[:, None]
        return found.reshape(groups * y.shape[1], x.shape[1], *ones)
    transposed = kind == "input" or (isinstance(case, Convolution) and case.transposed)
    x = _batched(case["grad_output" if kind else "input"], rank)
    x = _in_groups(x if transposed else reference.pad(x, axes, mode), groups)
    weight = case["weight"]
    weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    if transposed:
        weight = weight.swapaxes(1, 2)
    wide = weight.astype(np.complex128 if weight.dtype.kind == "c" else np.float64)
    with np.errstate(invalid="ignore"):
        found = _norm(x, 2)[:, :, None] * _norm(wide, 2)
    found = found.reshape(len(x), groups * weight.shape[1], *ones)
    if transposed and mode:
        for axis in axes:
            found = found * np.bincount(reference.shown(axis, mode)).max()
    return found


def check_by_fft(case: AnyCase, result: Array, expected: Array) -> None:
    """Assert that a result keeps to the bound, and that an Inf or NaN spreads no further.

    The value is rounded to the accumulator's type, the bias is rounded and added to it, and the
    sum is rounded to the result's dtype.
    """
    scale = products_of_norms(case)
    if expected.ndim < scale.ndim:
        scale = scale[0]
    scale = np.broadcast_to(scale, expected.shape)
    single = accumulator(case.dtype) == np.float32
    unit = UNIT32 if single else UNIT64
    tiny = float(np.finfo(np.float32 if single else np.float64).smallest_normal)
    size = transform_size(case.axes)
    bias = case.arrays.get("bias")
    added: Any = 0.0
    if bias is not None:
        added = np.abs(bias.astype(np.complex128)).reshape(-1, *(1,) * len(case.axes))
    with np.errstate(invalid="ignore"):
        error = C * 2 * unit * math.log2(size) * scale
        error = error + 4 * unit * (np.abs(expected) + added) + C * size * tiny
    free = ~np.isfinite(scale)  # an Inf or NaN reaches these
    result, expected = np.where(free, result.dtype.type(0), result), np.where(free, 0, expected)
    error = np.where(np.isfinite(error), error, 0.0)  # an infinite bias is the same in both
    assert_close(result, expected, error, case.dtype)
