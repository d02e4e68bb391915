"""Complex convolutions as real ones: real and imaginary parts are channels.

With the parts ``Xr, Xi`` of the input and ``Wr, Wi`` of the weight, the result has the parts

    real = Wr * Xr - Wi * Xi
    imag = Wi * Xr + Wr * Xi

Each is a real convolution of twice as many input channels, in which channels ``2*c`` and
``2*c + 1`` are the parts of channel ``c``. The real convolution has float32 accuracy and runs on
Tensor Cores.

    input    a planar copy of a chunk of samples      (n, C_in, 2, *spatial)
    weight   the weights of both real convolutions    (2, C_out, C_in/groups, 2, *kernel)
             of both transposed ones                  (2, C_in, 2, C_out/groups, *kernel)
    result   no copy: it is stored as float32 numbers, with strides of twice as many elements

The parts of the result are two groups that read the same inputs. A convolution that has groups
already would need two strides of groups, so it runs once for each part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ._arrays import Array, Blueprint, Convolution
from ._chunks import chunks
from ._device import Device
from ._geometry import ConvGeometry
from ._kernels.choice import parts_geometry
from ._packing import c_strides, strides_of
from ._strides import ConvStrides

_COMPLEX64, _FLOAT32 = np.dtype(np.complex64), np.dtype(np.float32)

# Chooses and binds a kernel for a geometry, strides, a dtype, a precision and a bias; a call runs
# it the given number of times.
Bind: TypeAlias = Callable[
    [ConvGeometry, ConvStrides, np.dtype, str, "Array | None", int], Convolution
]


@dataclass(frozen=True)
class _Parts:
    """The arrays of a complex convolution as a real one."""

    geometry: ConvGeometry

    @property
    def joint(self) -> bool:
        """Whether a launch computes both parts of the result."""
        return self.geometry.groups == 1

    @property
    def planes(self) -> tuple[int, ...]:
        """Shape of the planar copy of a sample."""
        channels = self.geometry.groups * self.geometry.channels
        return (channels, 2, *(axis.size_in for axis in self.geometry.axes))

    @property
    def weights(self) -> tuple[int, ...]:
        """Shape of the real weights."""
        geometry = self.geometry
        kernel = (axis.kernel for axis in geometry.axes)
        if geometry.transposed:
            return (2, geometry.groups * geometry.channels, 2, geometry.rows, *kernel)
        return (2, geometry.groups * geometry.rows, geometry.channels, 2, *kernel)

    @property
    def terms(self) -> tuple[int, ...]:
        """Shape of the real biases."""
        return (2, self.geometry.groups * self.geometry.rows)

    def strides(self, out: Array) -> ConvStrides:
        """Return the strides of the real convolution in elements of float32."""
        geometry = self.geometry
        rows, channels = geometry.rows, 2 * geometry.channels
        plane, taps = math.prod(self.planes[2:]), math.prod(self.weights[4:])
        row, channel = (taps, rows * taps) if geometry.transposed else (channels * taps, taps)
        complex_strides = strides_of(out) if geometry.batched else (0, *strides_of(out))
        out_batch, out_row, *out_axes = (2 * stride for stride in complex_strides)
        return ConvStrides(
            (math.prod(self.planes), 0 if self.joint else channels * plane, plane),
            (rows * channels * taps, row, channel),
            (out_batch, 1 if self.joint else rows * out_row, out_row),
            list(c_strides(self.planes[2:])),
            list(c_strides(self.weights[4:])),
            out_axes,
        )


def prepare(
    geometry: ConvGeometry, bias: Array | None, out: Array, device: Device, bind: Bind, times: int
) -> Convolution:
    """Return the complex64 convolution for all arrays with the layouts of these ones.

    A call runs it the given number of times.
    """
    parts = _Parts(geometry)
    samples = chunks(geometry.batch, math.prod(parts.planes) * _FLOAT32.itemsize)
    real, strides = parts_geometry(geometry), parts.strides(out)
    terms_of_run = math.prod(parts.terms) // (1 if parts.joint else 2)
    term = None if bias is None else Blueprint((terms_of_run,), _FLOAT32)
    sizes = Counter(chunk.stop - chunk.start for chunk in samples)
    runs = {
        size: bind(
            replace(real, batch=size),
            strides,
            _FLOAT32,
            "float32",
            term,
            times * chunks_of_size * (1 if parts.joint else 2),
        )
        for size, chunks_of_size in sizes.items()
    }

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        weights = _real_weights(weight, parts, device)
        terms = None if bias is None else _real_biases(bias, parts, device)
        if not geometry.batched:
            data, out = data[None], out[None]
        for chunk in samples:
            convolve_chunk(data[chunk], weights, terms, out[chunk])

    def convolve_chunk(data: Array, weights: Array, terms: Array | None, out: Array) -> None:
        # The planar copy of a chunk is freed here, before the next chunk asks for memory.
        planes = device.workspace((len(data), *parts.planes), _FLOAT32)
        device.split(data, planes[:, :, 0], planes[:, :, 1])
        run = runs[len(data)]
        if parts.joint:
            run(planes, weights, terms, out.real)
            return
        for part, result in enumerate((out.real, out.imag)):
            run(planes, weights[part], None if terms is None else terms[part], result)

    return convolve


def _real_weights(weight: Array, parts: _Parts, device: Device) -> Array:
    """Return the weights ``[Wr, -Wi]`` of the real part and ``[Wi, Wr]`` of the imaginary part."""
    weights = device.workspace(parts.weights, _FLOAT32)
    of_real, of_imag = weights
    # Index of the axis of the input's parts, which comes after the axis of its channels.
    inputs = [(slice(None),) * (1 if parts.geometry.transposed else 2) + (part,) for part in (0, 1)]
    device.split(weight, of_real[inputs[0]], of_imag[inputs[0]])
    device.split(weight, of_imag[inputs[1]], of_real[inputs[1]], conjugate=True)
    return weights


def _real_biases(bias: Array, parts: _Parts, device: Device) -> Array:
    """Return the parts of the bias."""
    terms = device.workspace(parts.terms, _FLOAT32)
    device.split(device.cast(bias, _COMPLEX64), terms[0], terms[1])
    return terms
