"""The definitions that the library is measured against, written to be read, not to be fast.

A convolution and its transpose are sums of products over channels and taps; on every axis

    large = small*stride - before + tap*dilation

ties a position of the small array (the output of a convolution, the input of a transposed one)
to a position of the large array.  Padding is absence: a position outside the array has no product.
With a padding mode, a convolution without padding takes the padded array, and its transpose results
in a padded array, whose positions add to the elements that they show.

Everything is computed in float64 or complex128, integers exactly modulo 2**64.  Each reference
comes with what its error bound needs (see bounds.py): the same sum over absolute values, and the
number of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]


class Sums(NamedTuple):
    """A result, and for each of its elements the scale of its rounding errors."""

    value: Array
    scale: Array  # the sum of the absolute values of the terms
    terms: Array  # the number of terms


class Axis(NamedTuple):
    """One axis of a convolution, all numbers explicit."""

    large: int
    small: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def extent(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def longer(self) -> int:
        """By how much the large array is longer than what its windows reach: output_padding."""
        padded = self.large + self.before + self.after
        return padded - (self.small - 1) * self.stride - self.extent

    @property
    def bordered(self) -> Axis:
        """The axis whose large array is the padded one."""
        return self._replace(large=self.large + self.before + self.after, before=0, after=0)


# Arguments -----------------------------------------------------------------------------------


def per_axis(value: int | Sequence[int], rank: int) -> Shape:
    """A scalar means the same on each axis."""
    return tuple(value) if isinstance(value, Sequence) else (value,) * rank


def pairs(padding: Any, rank: int) -> list[tuple[int, int]]:
    """One (before, after) for each axis, from an int, ints, or pairs."""
    return [
        (p[0], p[1]) if isinstance(p, Sequence) else (p, p)
        for p in (padding if isinstance(padding, Sequence) else (padding,) * rank)
    ]


def conv_axes(
    lengths: Shape, kernel: Shape, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> list[Axis]:
    """The axes of a convolution of a large array."""
    rank = len(kernel)
    axes = []
    for i, (large, k, s, d) in enumerate(
        zip(lengths, kernel, per_axis(stride, rank), per_axis(dilation, rank), strict=True)
    ):
        extent = d * (k - 1) + 1
        if padding == "valid":
            before, after = 0, 0
        elif padding == "same":
            total = max((math.ceil(large / s) - 1) * s + extent - large, 0)
            before, after = total // 2, total - total // 2
        else:
            before, after = pairs(padding, rank)[i]
        small = (large + before + after - extent) // s + 1
        axes.append(Axis(large, small, k, s, d, before, after))
    return axes


def conv_transpose_axes(
    lengths: Shape,
    kernel: Shape,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    output_size: int | Sequence[int] | None = None,
) -> list[Axis]:
    """The axes of a transposed convolution of a small array.

    With an output_size they are the axes of the convolution of an array of that size.
    """
    rank = len(kernel)
    if output_size is not None:
        axes = conv_axes(per_axis(output_size, rank), kernel, stride, padding, dilation)
        assert tuple(axis.small for axis in axes) == tuple(lengths)
        return axes
    axes = []
    for i, (small, k, s, d) in enumerate(
        zip(lengths, kernel, per_axis(stride, rank), per_axis(dilation, rank), strict=True)
    ):
        extent = d * (k - 1) + 1
        longer = per_axis(output_padding, rank)[i]
        if padding == "valid":
            before, after = 0, 0
        elif padding == "same":
            total = max(extent - s, 0)
            before, after = total // 2, total - total // 2
            longer = max(s - extent, 0)
        else:
            before, after = pairs(padding, rank)[i]
        large = (small - 1) * s - before - after + extent + longer
        axes.append(Axis(large, small, k, s, d, before, after))
    return axes


# Borders -------------------------------------------------------------------------------------


def shown(axis: Axis, mode: str) -> Array:
    """The element that each position of a padded axis shows."""
    return np.pad(np.arange(axis.large), (axis.before, axis.after), mode)  # type: ignore[call-overload, no-any-return]


def pad(a: Array, axes: Sequence[Axis], mode: str | None, xp: Any = np) -> Array:
    """The array with its borders, or the array itself without a mode."""
    for i, axis in enumerate(axes if mode else (), a.ndim - len(axes)):
        a = a.take(xp.asarray(shown(axis, str(mode))), i)
    return a


def fold(a: Array, axes: Sequence[Axis], mode: str | None, xp: Any = np) -> Array:
    """The transpose of `pad`: each position adds to the element that it shows."""
    for i, axis in enumerate(axes if mode else (), a.ndim - len(axes)):
        lines = a.swapaxes(0, i)
        total = xp.zeros((axis.large, *lines.shape[1:]), a.dtype)
        places = xp.asarray(shown(axis, str(mode)))
        if total.dtype.kind == "c":  # which cupy.add.at does not take
            xp.add.at(total.real, places, lines.real)
            xp.add.at(total.imag, places, lines.imag)
        else:
            xp.add.at(total, places, lines)
        a = total.swapaxes(0, i)
    return a


def padded_axes(axes: list[Axis], mode: str | None) -> list[Axis]:
    """The axes of the convolution without padding, or the same ones without a mode."""
    return [axis.bordered for axis in axes] if mode else axes


# Convolution ---------------------------------------------------------------------------------


def conv(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str | None = None,
) -> Sums:
    """out[n, g*M + m, o] = sum over c, k of
    input[n, g*C + c, o*stride - before + k*dilation] * weight[g*M + m, c, k]."""
    lengths, kernel = input.shape[2 - weight.ndim :], weight.shape[2:]
    axes = conv_axes(lengths, kernel, stride, padding, dilation)
    wide = padded_axes(axes, padding_mode)
    return _sums(
        lambda x, w: _gather(pad(x, axes, padding_mode), w, wide, groups), input, weight, bias
    )


def conv_transpose(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    output_size: int | Sequence[int] | None = None,
    padding_mode: str | None = None,
) -> Sums:
    """out[n, g*M + m, i*stride - before + k*dilation] +=
    input[n, g*C + c, i] * weight[g*C + c, m, k], where it lies inside out."""
    lengths, kernel = input.shape[2 - weight.ndim :], weight.shape[2:]
    axes = conv_transpose_axes(
        lengths, kernel, stride, padding, output_padding, dilation, output_size
    )
    wide = padded_axes(axes, padding_mode)
    return _sums(
        lambda x, w: fold(_scatter(x, w, wide, groups), axes, padding_mode), input, weight, bias
    )


def depthwise_conv2d(
    input: Array, weight: Array, bias: Array | None = None, **options: Any
) -> Sums:
    """A convolution in which each input channel is its own group."""
    return conv(input, weight, bias, groups=input.shape[-3], **options)


conv1d = conv2d = conv3d = conv
conv_transpose1d = conv_transpose2d = conv_transpose3d = conv_transpose


def conv_input(
    input_size: Shape,
    weight: Array,
    grad_output: Array,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str | None = None,
) -> Sums:
    """grad[n, g*C + c, o*stride - before + k*dilation] +=
    grad_output[n, g*M + m, o] * weight[g*M + m, c, k], where it lies inside an input."""
    lengths, kernel = tuple(input_size)[2 - weight.ndim :], weight.shape[2:]
    axes = conv_axes(lengths, kernel, stride, padding, dilation)
    wide = padded_axes(axes, padding_mode)
    return _sums(
        lambda y, w: fold(_scatter(y, w, wide, groups), axes, padding_mode),
        grad_output,
        weight,
        None,
    )


def conv_weight(
    input: Array,
    weight_size: Shape,
    grad_output: Array,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str | None = None,
) -> Sums:
    """grad[g*M + m, c, k] += grad_output[n, g*M + m, o] * input[n, g*C + c, i] for each output
    position o and each input position i = o*stride - before + k*dilation inside the input."""
    rank = len(weight_size) - 2
    lengths, kernel = input.shape[-rank:], tuple(weight_size)[2:]
    axes = conv_axes(lengths, kernel, stride, padding, dilation)
    if input.ndim == rank + 1:
        input, grad_output = input[None], grad_output[None]
    wide = padded_axes(axes, padding_mode)
    return _sums(
        lambda x, y: _products_of_taps(pad(x, axes, padding_mode), y, wide, groups),
        input,
        grad_output,
        None,
    )


conv1d_input = conv2d_input = conv3d_input = conv_input
conv1d_weight = conv2d_weight = conv3d_weight = conv_weight


def _products_of_taps(x: Array, y: Array, axes: list[Axis], groups: int) -> Array:
    """For each output position: what it adds to each tap that finds an input."""
    batch = x.shape[0]
    x = x.reshape(batch, groups, x.shape[1] // groups, *x.shape[2:])
    y = y.reshape(batch, groups, y.shape[1] // groups, *y.shape[2:])
    out = np.zeros((groups, y.shape[2], x.shape[2], *(axis.kernel for axis in axes)), x.dtype)
    for position in np.ndindex(*(axis.small for axis in axes)):
        source, target = [], []
        for axis, o in zip(axes, position, strict=True):
            inputs = o * axis.stride - axis.before + np.arange(axis.kernel) * axis.dilation
            inside = (inputs >= 0) & (inputs < axis.large)
            source.append(inputs[inside])
            target.append(np.flatnonzero(inside))
        products = np.einsum("ngm,ngc...->gmc...", y[(..., *position)], x[(..., *np.ix_(*source))])
        out[(..., *np.ix_(*target))] += products
    return out.reshape(groups * out.shape[1], *out.shape[2:])


def _gather(x: Array, w: Array, axes: list[Axis], groups: int) -> Array:
    """For each tap: the outputs that it reaches, and a strided slice of the input."""
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    channels = w.shape[0]
    w = w.reshape(groups, channels // groups, *w.shape[1:])
    out = np.zeros((x.shape[0], *w.shape[:2], *(axis.small for axis in axes)), x.dtype)
    for tap in np.ndindex(w.shape[3:]):
        source, target = [], []
        for axis, k in zip(axes, tap, strict=True):
            shift = k * axis.dilation - axis.before
            start = max(-(shift // axis.stride), 0)
            stop = max(min((axis.large - 1 - shift) // axis.stride + 1, axis.small), start)
            target.append(slice(start, stop))
            first, last = start * axis.stride + shift, (stop - 1) * axis.stride + shift
            source.append(slice(first, last + 1, axis.stride) if stop > start else slice(0, 0))
        products = _products(x[(..., *source)], w[(..., *tap)])
        out[(..., *target)] += products
    return out.reshape(out.shape[0], channels, *out.shape[3:])


def _scatter(x: Array, w: Array, axes: list[Axis], groups: int) -> Array:
    """For each tap: the position that each input adds to, where there is one."""
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    channels = groups * w.shape[2]
    out = np.zeros((x.shape[0], groups, w.shape[2], *(axis.large for axis in axes)), x.dtype)
    for tap in np.ndindex(w.shape[3:]):
        source, target = [], []
        for axis, k in zip(axes, tap, strict=True):
            positions = np.arange(axis.small) * axis.stride - axis.before + k * axis.dilation
            inside = (positions >= 0) & (positions < axis.large)
            source.append(np.flatnonzero(inside))
            target.append(positions[inside])
        values = x[(..., *np.ix_(*source))]
        products = _products(values, w[(..., *tap)].swapaxes(1, 2))
        np.add.at(out, (slice(None), slice(None), slice(None), *np.ix_(*target)), products)
    return out.reshape(out.shape[0], channels, *out.shape[3:])


def _products(values: Array, matrix: Array) -> Array:
    """The sum over c of values[n, g, c, ...] * matrix[g, m, c]."""
    if values.dtype.kind != "f":  # BLAS has no integers, and of complex infinities it makes NaN
        return np.einsum("ngc...,gmc->ngm...", values, matrix)
    batch, groups, channels, *space = values.shape
    columns = values.reshape(batch, groups, channels, math.prod(space))
    return np.matmul(matrix, columns).reshape(batch, groups, matrix.shape[1], *space)


def _sums(
    operation: Callable[[Array, Array], Array], input: Array, weight: Array, bias: Array | None
) -> Sums:
    """The operation on the values, on their absolute values, and on ones."""
    dtype = np.result_type(input, weight)
    exact = dtype.kind in "iu"
    wide = np.dtype(np.uint64 if exact else np.complex128 if dtype.kind == "c" else np.float64)
    unbatched = input.ndim == weight.ndim - 1
    x = input[None] if unbatched else input
    with np.errstate(invalid="ignore"):  # Inf - Inf, Inf * 0
        value = operation(x.astype(wide), weight.astype(wide))
        scale = operation(_magnitude(x), _magnitude(weight))
        terms = operation(np.ones(x.shape), np.ones(weight.shape))
        if bias is not None:
            column = bias.reshape(-1, *(1,) * (weight.ndim - 2))
            value = value + column.astype(wide)
            scale = scale + _magnitude(column)
    value = value.astype(dtype) if exact else value
    return Sums(value[0], scale[0], terms[0]) if unbatched else Sums(value, scale, terms)


def _magnitude(a: Array) -> Array:
    return np.abs(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64))


# Normalisation -------------------------------------------------------------------------------


class Normalized(NamedTuple):
    """(x - mean) / std * weight + bias, in rows: one row for each set that shares a mean.

    weight and bias have one number for each element of the rows; own says that the mean and the
    variance are the row's own.
    """

    x: Array
    mean: Array
    variance: Array
    eps: float
    weight: Array
    bias: Array
    own: bool

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance + self.eps)

    @property
    def unit(self) -> Array:
        return (self.x - self.mean) / self.std

    @property
    @np.errstate(invalid="ignore", divide="ignore")
    def value(self) -> Array:
        return self.unit * self.weight + self.bias


def normalized_rows(
    x: Array,
    weight: Array,
    bias: Array,
    eps: float,
    mean: Array | None = None,
    var: Array | None = None,
) -> Normalized:
    own = mean is None or var is None
    if own:
        mean = x.mean(axis=1, keepdims=True)
        var = np.square(x - mean).mean(axis=1, keepdims=True)
    assert mean is not None and var is not None
    return Normalized(x, mean, var, eps, weight, bias, own)


def channel_rows(a: Array) -> Array:
    """(N, C, *spatial) as (C, N*spatial)."""
    return np.moveaxis(a, 1, 0).reshape(a.shape[1], a.shape[0] * math.prod(a.shape[2:]))


def from_channel_rows(rows: Array, shape: Shape) -> Array:
    return np.moveaxis(rows.reshape(shape[1], shape[0], *shape[2:]), 0, 1)


def group_rows(a: Array, num_groups: int) -> Array:
    """(N, C, *spatial) as (N*num_groups, C/num_groups*spatial)."""
    return a.reshape(a.shape[0] * num_groups, math.prod(a.shape[1:]) // num_groups)


def per_channel(parameter: Array | None, default: float, shape: Shape) -> Array:
    """A parameter of shape (C,) spread over (N, C, *spatial), in float64."""
    column = np.full(shape[1], default) if parameter is None else parameter.astype(np.float64)
    return np.broadcast_to(column.reshape(-1, *(1,) * (len(shape) - 2)), shape)


def batch_norm(
    input: Array,
    mean: Array | None = None,
    var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
) -> Normalized:
    """Normalised over all but the channels; the rows are channel_rows."""
    shape = input.shape
    with np.errstate(invalid="ignore"):
        return normalized_rows(
            channel_rows(input.astype(np.float64)),
            channel_rows(per_channel(weight, 1.0, shape)),
            channel_rows(per_channel(bias, 0.0, shape)),
            eps,
            None if mean is None else mean.astype(np.float64)[:, None],
            None if var is None else var.astype(np.float64)[:, None],
        )


def group_norm(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Normalized:
    """Normalised over each group of channels of each sample; the rows are group_rows."""
    shape = input.shape
    with np.errstate(invalid="ignore"):
        return normalized_rows(
            group_rows(input.astype(np.float64), num_groups),
            group_rows(per_channel(weight, 1.0, shape), num_groups),
            group_rows(per_channel(bias, 0.0, shape), num_groups),
            eps,
        )


# Pooling -------------------------------------------------------------------------------------


def pool_size(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """The number of windows on one axis; with ceil_mode the last one may reach over the end,
    but it starts inside the input or the padding before it."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    return count - (ceil_mode and (count - 1) * stride >= size + padding)


def max_pool2d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Array:
    """The first of the largest elements of each window in row-major order, in the input's dtype;
    a NaN is larger than all."""
    kernels = per_axis(kernel_size, 2)
    strides = kernels if stride is None else per_axis(stride, 2)
    pads, dilations = per_axis(padding, 2), per_axis(dilation, 2)
    axes = [
        Axis(size, pool_size(size, k, s, p, d, ceil_mode), k, s, d, p, p)
        for size, k, s, p, d in zip(
            input.shape[-2:], kernels, strides, pads, dilations, strict=True
        )
    ]
    largest = np.zeros((*input.shape[:-2], *(axis.small for axis in axes)), input.dtype)
    for position in np.ndindex(*(axis.small for axis in axes)):
        window = input
        for dimension, (axis, o) in enumerate(zip(axes, position, strict=True), input.ndim - 2):
            taps = o * axis.stride - axis.before + np.arange(axis.kernel) * axis.dilation
            window = window.take(taps[(taps >= 0) & (taps < axis.large)], axis=dimension)
        elements = window.reshape(*window.shape[:-2], math.prod(window.shape[-2:]))
        first = elements.argmax(axis=-1, keepdims=True)  # of equal ones, and of NaN
        largest[(..., *position)] = np.take_along_axis(elements, first, axis=-1)[..., 0]
    return largest


# The fused operation -------------------------------------------------------------------------


class Fused(NamedTuple):
    """Each stage of the fused operation, in float64."""

    convolved: Sums
    batch: Normalized  # channel_rows
    activated: Array
    pooled: Array
    group: Normalized  # group_rows


def conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
    input: Array,
    kernel: Array,
    bn_weight: Array,
    bn_bias: Array,
    gn_weight: Array,
    gn_bias: Array,
    *,
    num_groups: int,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    mean: Array | None = None,
    var: Array | None = None,
    eps: float = 1e-5,
) -> Fused:
    floating = input.astype(np.float64), kernel.astype(np.float64)
    convolved = conv_transpose(*floating, None, stride, padding, output_padding, groups)
    batch = batch_norm(convolved.value, mean, var, bn_weight, bn_bias, eps=eps)
    activated = np.tanh(from_channel_rows(batch.value, convolved.value.shape))
    pooled = max_pool2d(activated, 2)
    group = group_norm(pooled, num_groups, gn_weight, gn_bias, eps)
    return Fused(convolved, batch, activated, pooled, group)
