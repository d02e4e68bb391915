"""Convolutions and gradients by FFT: products of spectra in the place of sums over taps.

Along one axis, let ``v`` be the input with its padding, or with zeros between its elements where
the convolution is a transposed one. In both directions a dense result is a correlation,

    z[p] = sum over k of v[p + k*dilation] * w[k]

of which a strided convolution takes every ``stride``-th value. Its taps ``m + i*period``, where
``period = stride / gcd(stride, dilation)``, read every ``stride``-th place from ``m*dilation`` on:
polyphase components of ``v`` and ``w`` for each ``m`` are correlated without a stride, and added
like input channels. So the spectrum of the result is the product of the ones of ``v`` and the
conjugate ones of ``w``, summed over components and input channels. Where spectra of the whole array
would take too much memory, samples, output channels and then the axes are divided (overlap-save):
a block of outputs needs the inputs of the block and of the taps beyond it.

The gradient with respect to the weight is the correlation of the input with ``grad_output``, summed
over the samples, at the places of the taps. The dilation is its stride.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from . import _arguments
from ._arrays import Array, Blueprint, Convolution, WeightGradient, accumulator
from ._geometry import ConvGeometry
from ._padded_calls import prepare_folded
from ._placement import Placement
from ._shape_rules import Shape

if TYPE_CHECKING:
    from ._paths import Path

_MOST_AXES = 3  # of cuFFT's transforms
_ODD_FACTORS = 3, 5, 7  # beside 2, of lengths whose transforms are fast
Operands: TypeAlias = "tuple[Array, Array, Array | None]"

LEAST_GAIN = 1.2  # with which method="auto" takes the FFT
_SPARE_BYTES = 256 << 20  # that spectra may take beside twice the arrays


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of spectra of arrays of `dtype`."""
    return np.result_type(dtype, np.complex64)


@lru_cache(maxsize=4096)
def fast_length(least: int) -> int:
    """Return the smallest even number from `least` on that has no factor above 7."""
    odds = [1]
    for factor in _ODD_FACTORS:
        for odd in odds:  # those that are appended, too
            if odd * factor < least:
                odds.append(odd * factor)
    return min(odd << max(1, (-(-least // odd) - 1).bit_length()) for odd in odds)


@dataclass(frozen=True)
class Axis:
    """One axis of a correlation.

    Attributes
    ----------
    size, before, step : int
        Elements of the input, the place of the first one, and places from one to the next.
    kernel, dilation : int
        Taps, and places from one to the next.
    outputs, stride : int
        Outputs, and places from one to the next.
    """

    size: int
    before: int
    step: int
    kernel: int
    dilation: int
    outputs: int
    stride: int

    @property
    def components(self) -> int:
        """Polyphase components that taps read."""
        return min(self.kernel, self.stride // math.gcd(self.stride, self.dilation))

    @property
    def reach(self) -> int:
        """Places of a component from the first to the last tap, both included."""
        common = math.gcd(self.stride, self.dilation)
        return (self.kernel - 1) // (self.stride // common) * (self.dilation // common) + 1

    def length(self, outputs: int) -> int:
        """Return the length of the transform for a block of so many outputs."""
        return fast_length(outputs - 1 + self.reach)


def axes_of(geometry: ConvGeometry) -> tuple[Axis, ...]:
    """Return the axes of a convolution or of a transposed one as axes of a correlation."""
    found = []
    steps = zip(
        geometry.axes, geometry.stride, geometry.dilation, geometry.pads_before, strict=True
    )
    for axis, stride, dilation, pad in steps:
        if geometry.transposed:
            before, apart, every = (axis.kernel - 1) * dilation - pad, stride, 1
        else:
            before, apart, every = pad, 1, stride
        found.append(Axis(axis.size_in, before, apart, axis.kernel, dilation, axis.size_out, every))
    return tuple(found)


def _components(axes: Sequence[Axis]) -> int:
    return math.prod(axis.components for axis in axes)


def spectrum_lengths(lengths: Sequence[int], dtype: np.dtype) -> Shape:
    """Return the frequencies of each axis: the last one of real arrays has half of them."""
    *others, last = lengths
    return (*others, last if dtype.kind == "c" else last // 2 + 1)


def _spectrum_bytes(lengths: Sequence[int], dtype: np.dtype) -> int:
    frequencies = math.prod(spectrum_lengths(lengths, dtype))
    return frequencies * dtype.itemsize * (1 if dtype.kind == "c" else 2)


@dataclass(frozen=True)
class Tile:
    """What is transformed at a time: samples, output channels, and outputs of each axis."""

    samples: int
    rows: int
    outputs: Shape

    def lengths(self, axes: Sequence[Axis]) -> Shape:
        """Return the lengths of the transforms."""
        return tuple(axis.length(count) for axis, count in zip(axes, self.outputs, strict=True))

    def workspace(self, geometry: ConvGeometry, axes: Sequence[Axis], dtype: np.dtype) -> int:
        """Return the bytes of three spectra, and of as much for each kind of transform."""
        one = _spectrum_bytes(self.lengths(axes), dtype)
        channels = geometry.groups * geometry.channels * _components(axes)
        weights, inputs = self.rows * channels, self.samples * channels
        results = geometry.groups * self.samples * self.rows
        return one * (weights + inputs + 2 * results + sum({weights, inputs}))

    def halved(self, axes: Sequence[Axis]) -> Tile | None:
        """Return a smaller tile, or None if blocks would hardly exceed the kernel."""
        if self.samples > 1 or self.rows > 1:
            if self.samples >= self.rows:
                return replace(self, samples=-(-self.samples // 2))
            return replace(self, rows=-(-self.rows // 2))
        sizes = [count / axis.reach for axis, count in zip(axes, self.outputs, strict=True)]
        longest = max(range(len(sizes)), key=sizes.__getitem__)
        if sizes[longest] <= 1 or self.outputs[longest] == 1:
            return None
        outputs = list(self.outputs)
        outputs[longest] = -(-outputs[longest] // 2)
        return replace(self, outputs=tuple(outputs))


@lru_cache(maxsize=4096)
def tile_of(geometry: ConvGeometry, dtype: np.dtype, arrays: int) -> Tile:
    """Return the largest tile whose spectra fit beside arrays of so many bytes."""
    axes, most = axes_of(geometry), 2 * arrays + _SPARE_BYTES
    tile = Tile(geometry.batch, geometry.rows, tuple(axis.outputs for axis in axes))
    while tile.workspace(geometry, axes, accumulator(dtype)) > most or (
        math.prod(tile.lengths(axes)) >= 2**31
    ):
        smaller = tile.halved(axes)
        if smaller is None:
            break
        tile = smaller
    return tile


def _parts(count: int, most: int) -> list[slice]:
    return [slice(start, min(start + most, count)) for start in range(0, count, most)]


# Work ------------------------------------------------------------------------------------------

_ONE_PASS = 4096  # the longest transform that reads and writes memory once


@dataclass(frozen=True)
class Work:
    """What a call by FFT takes.

    Attributes
    ----------
    moved : float
        Bytes that are read and written.
    points : float
        Elements of all transforms, each times the logarithm of its size.
    tiles : int
        How often arrays are transformed, multiplied and transformed back.
    """

    moved: float
    points: float
    tiles: int


def work(geometry: ConvGeometry, dtype: np.dtype) -> Work:
    """Return the work of a convolution by FFT."""
    axes, dtype = axes_of(geometry), accumulator(dtype)
    tile = tile_of(geometry, dtype, _array_bytes(geometry, dtype))
    row_parts, parts = -(-geometry.rows // tile.rows), -(-geometry.batch // tile.samples)
    blocks = math.prod(
        -(-axis.outputs // count) for axis, count in zip(axes, tile.outputs, strict=True)
    )
    channels = geometry.groups * geometry.channels * _components(axes)
    weights, inputs = geometry.rows * channels, geometry.batch * channels
    inputs *= row_parts * blocks
    results = geometry.groups * geometry.batch * geometry.rows * blocks
    read = weights * parts * blocks + inputs
    tiles = row_parts * parts * blocks
    return _work(tile.lengths(axes), dtype, weights + inputs, read, results, tiles)


def gradient_work(geometry: ConvGeometry, dtype: np.dtype) -> Work:
    """Return the work of the gradient of a convolution with respect to its weight."""
    dtype = accumulator(dtype)
    groups, channels, rows = geometry.groups, geometry.channels, geometry.rows
    axes, arrays = _gradient_axes(geometry), _array_bytes(geometry, dtype)
    lengths = tuple(axis.length(axis.outputs) for axis in axes)
    tiles = -(-geometry.batch // _samples_at_a_time(geometry, axes, dtype, arrays))
    inputs = groups * geometry.batch * (channels + rows) * _components(axes)
    results = groups * rows * channels
    read = inputs + 2 * results * (tiles - 1)
    return _work(lengths, dtype, inputs, read, results, tiles)


def passes(lengths: Shape) -> int:
    """Return how often a transform reads and writes memory."""
    return len(lengths) + sum(length > _ONE_PASS for length in lengths)


def _work(
    lengths: Shape,
    dtype: np.dtype,
    inputs: int,
    read: int,
    results: int,
    tiles: int,
) -> Work:
    """Return the work for numbers of arrays that are transformed, multiplied and made."""
    one = _spectrum_bytes(lengths, dtype)
    placed = 2 * (inputs + results)  # read and written in front of transforms, or after them
    moved = one * (placed + 2 * passes(lengths) * (inputs + results) + read + results)
    size = math.prod(lengths)
    points = (inputs + results) * size * math.log2(size)
    return Work(moved, points, tiles)


def _array_bytes(geometry: ConvGeometry, dtype: np.dtype) -> int:
    """Return the bytes of the input, the weight and the result."""
    inputs = geometry.channels * math.prod(axis.size_in for axis in geometry.axes)
    results = geometry.rows * math.prod(axis.size_out for axis in geometry.axes)
    weights = geometry.channels * geometry.rows * math.prod(axis.kernel for axis in geometry.axes)
    return geometry.groups * (geometry.batch * (inputs + results) + weights) * dtype.itemsize


def suits(geometry: ConvGeometry, dtype: np.dtype) -> bool:
    """Return whether a call may run by FFT."""
    return dtype.kind not in "iu" and geometry.rank <= _MOST_AXES and not geometry.is_empty


def checked(name: str, method: object, geometry: ConvGeometry, dtype: np.dtype) -> str:
    """Return the name of a method by which a call may run, or raise."""
    method = checked_for_dtype(name, method, dtype)
    if method == "fft" and geometry.rank > _MOST_AXES:
        raise ValueError(
            f"{name}: method='fft' is for at most {_MOST_AXES} spatial axes, got {geometry.rank}"
        )
    return method


def checked_for_dtype(name: str, method: object, dtype: np.dtype, operands: str = "arrays") -> str:
    """Return the name of a method for results of `dtype`, or raise. Errors name the `operands`."""
    method = _arguments.method(name, method)
    if method == "fft" and dtype.kind in "iu":
        raise TypeError(
            f"{name}: method='fft' is for floats and complex numbers, got {operands} with the "
            f"result type {dtype}; method='direct' is exact"
        )
    return method


# Convolutions ----------------------------------------------------------------------------------


def prepare(path: Path, geometry: ConvGeometry, operands: Operands, out: Array) -> Convolution:
    """Return a function that convolves arrays with the layouts of these by FFT."""
    if not (geometry.transposed and geometry.padding_mode):
        return _prepare(path, geometry, operands, out)
    data, weight, bias = operands
    prepare_wide = partial(_prepare, path, geometry.padded, (data, weight, None))
    return prepare_folded(path, geometry, prepare_wide, bias, out)


class _Step(NamedTuple):
    """The convolution of a tile: a box of the result, and what leads to it."""

    sample: slice
    box: tuple[Any, ...]
    inputs: Callable[[Array], Array]  # returns the spectrum
    multiply: Callable[[Array, Array, Array], None]


def _prepare(path: Path, geometry: ConvGeometry, operands: Operands, out: Array) -> Convolution:
    data, weight, _ = operands
    dtype, axes = accumulator(out.dtype), axes_of(geometry)
    tile = tile_of(geometry, dtype, data.nbytes + weight.nbytes + out.nbytes)
    lengths, frequencies = tile.lengths(axes), spectrum_lengths(tile.lengths(axes), dtype)
    scale = 1 / math.prod(lengths)
    values, taps = _by_channel(geometry, data, weight)
    channels = geometry.channels * _components(axes)

    def spectra(*lead: int) -> Blueprint:
        return Blueprint((*lead, *frequencies), complex_dtype(dtype))

    def step(row: slice, sample: slice, block: Sequence[slice]) -> _Step:
        rows, samples = row.stop - row.start, sample.stop - sample.start
        source = values[:, :, sample]
        placement = _inputs(axes, source, lengths, block, geometry.padding_mode)
        inputs = path.prepare_spectrum(source, placement, dtype, False)
        factors = (
            spectra(channels, geometry.groups, rows).swapaxes(0, 1).swapaxes(1, 2),
            spectra(channels, geometry.groups, samples).swapaxes(0, 1),
            spectra(samples, geometry.groups, rows).swapaxes(0, 1).swapaxes(1, 2),
        )
        box = sample, slice(None), row, *block
        return _Step(sample, box, inputs, path.prepare_multiply(*factors, scale, False))

    blocks = [
        *itertools.product(
            *(_parts(axis.outputs, n) for axis, n in zip(axes, tile.outputs, strict=True))
        )
    ]
    samples = _parts(geometry.batch, tile.samples)
    runs = []
    for row in _parts(geometry.rows, tile.rows):
        part = taps[:, :, row]
        weights = path.prepare_spectrum(part, _taps(axes, part, lengths), dtype, True)
        steps = [step(row, sample, block) for sample in samples for block in blocks]
        runs.append((row, weights, steps))

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        data, weight = _by_channel(geometry, data, weight)
        out = _in_groups(geometry, out, geometry.rows)
        if bias is not None:
            bias = bias.reshape(geometry.groups, geometry.rows, *(1,) * geometry.rank)
        for row, spectrum_of, steps in runs:
            weights, term = spectrum_of(weight[:, :, row]), None if bias is None else bias[:, row]
            for sample, box, inputs_of, multiply in steps:
                target = out[box]
                inputs = inputs_of(data[:, :, sample])
                product = path.spectra((*target.shape[:3], *lengths), dtype)
                multiply(weights, inputs, product)
                del inputs  # its memory is free for the transform
                values = path.values(product, lengths, dtype)
                path.write(values[_outputs(target)], term, target)

    return convolve


def _in_groups(geometry: ConvGeometry, array: Array, channels: int) -> Array:
    """Return samples by group and channel of a group, as a view."""
    shape = array.shape[-geometry.rank :]
    return array.reshape(geometry.batch, geometry.groups, channels, *shape)


def _by_channel(geometry: ConvGeometry, data: Array, weight: Array) -> tuple[Array, Array]:
    """Return views by input channel and group: samples, and output channels with ascending taps."""
    values = _in_groups(geometry, data, geometry.channels).swapaxes(0, 2)
    lead, kernel = (geometry.groups, geometry.rows, geometry.channels), weight.shape[2:]
    if not geometry.transposed:
        return values, weight.reshape(*lead, *kernel).swapaxes(0, 2).swapaxes(1, 2)
    backwards = ..., *(slice(None, None, -1),) * geometry.rank
    weight = weight.reshape(lead[0], lead[2], lead[1], *kernel)[backwards]
    return values, weight.swapaxes(0, 1)


def _taps(axes: Sequence[Axis], weight: Array, lengths: Shape) -> Placement:
    """Return how the weight lies in the arrays that are transformed."""
    return _placement(axes, weight, [(0, axis.dilation) for axis in axes], lengths, None)


def _inputs(
    axes: Sequence[Axis], data: Array, lengths: Shape, block: Sequence[slice], mode: str | None
) -> Placement:
    """Return how the inputs of a block of outputs lie in the arrays that are transformed."""
    sides = zip(axes, block, strict=True)
    places = [(axis.before - part.start * axis.stride, axis.step) for axis, part in sides]
    return _placement(axes, data, places, lengths, mode)


def _placement(
    axes: Sequence[Axis], array: Array, places: Sequence[Shape], lengths: Shape, mode: str | None
) -> Placement:
    """Return how an array lies, with the place of the first element and the step of each axis."""
    described = (
        (*place, axis.stride, axis.components, axis.dilation)
        for axis, place in zip(axes, places, strict=True)
    )
    columns = zip(*[(0, 1, 1, 1, 1)] * 3, *described, strict=True)
    before, steps, strides, components, shifts = columns
    padded = *array.shape[:3], *lengths
    return Placement(array.shape, padded, before, steps, strides, components, shifts, mode)


def _outputs(out: Array) -> tuple[Any, ...]:
    """Return the places of a block's outputs in a result."""
    return (..., *(slice(count) for count in out.shape[3:]))


# Gradients with respect to the weight ----------------------------------------------------------


def prepare_weight_gradient(
    path: Path, geometry: ConvGeometry, data: Array, grad_output: Array, out: Array
) -> WeightGradient:
    """Return a function that writes a weight gradient by FFT, for arrays with these layouts."""
    dtype, axes = accumulator(out.dtype), _gradient_axes(geometry)
    groups, channels, rows = geometry.groups, geometry.channels, geometry.rows
    lengths = tuple(axis.length(axis.outputs) for axis in axes)
    nbytes = data.nbytes + grad_output.nbytes + out.nbytes
    most = _samples_at_a_time(geometry, axes, dtype, nbytes)
    frequencies, kind = spectrum_lengths(lengths, dtype), complex_dtype(dtype)
    first = [slice(0, 1)] * geometry.rank
    values = _in_groups(geometry, data, channels)
    grads = _in_groups(geometry, grad_output, rows)
    steps = []
    for sample in _parts(geometry.batch, most):
        source, grad = values[sample], grads[sample]
        placement = _inputs(axes, source, lengths, first, geometry.padding_mode)
        terms = len(source) * _components(axes)
        factors = (
            Blueprint((terms, groups, rows, *frequencies), kind).swapaxes(0, 1).swapaxes(1, 2),
            Blueprint((terms, groups, channels, *frequencies), kind).swapaxes(0, 1),
            Blueprint((groups, rows, channels, *frequencies), kind),
        )
        scale, adds = 1 / math.prod(lengths), sample.start > 0
        steps.append(
            (
                sample,
                path.prepare_spectrum(source, placement, dtype, False),
                path.prepare_spectrum(grad, _taps(axes, grad, lengths), dtype, True),
                path.prepare_multiply(*factors, scale, adds),
            )
        )

    def gradient(data: Array, grad_output: Array, out: Array) -> None:
        values = _in_groups(geometry, data, channels)
        grads = _in_groups(geometry, grad_output, rows)
        target = out.reshape(groups, rows, channels, *out.shape[2:])
        product = path.spectra((groups, rows, channels, *lengths), dtype)
        for sample, spectrum_of, spectrum_of_grad, multiply in steps:
            multiply(spectrum_of_grad(grads[sample]), spectrum_of(values[sample]), product)
        result = path.values(product, lengths, dtype)
        path.write(result[_outputs(target)], None, target)

    return gradient


def _gradient_axes(geometry: ConvGeometry) -> list[Axis]:
    """Return the axes of the correlation with `grad_output`, whose outputs are the taps."""
    return [
        replace(
            axis,
            kernel=axis.outputs,
            dilation=axis.stride,
            outputs=axis.kernel,
            stride=axis.dilation,
        )
        for axis in axes_of(geometry)
    ]


def _samples_at_a_time(
    geometry: ConvGeometry, axes: Sequence[Axis], dtype: np.dtype, arrays: int
) -> int:
    one = _spectrum_bytes([axis.length(axis.outputs) for axis in axes], dtype)
    results = 2 * geometry.rows * geometry.channels
    each = 2 * (geometry.rows + geometry.channels) * _components(axes)
    most = (2 * arrays + _SPARE_BYTES) // (one * geometry.groups) - results
    return min(max(most // each, 1), geometry.batch)
