"""A call of any convolution, of either direction and any number of axes: check, prepare, run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import _arrays as arrays
from . import _calls, _precision
from ._arrays import Array, ArrayT, Convolution
from ._geometry import ConvGeometry
from ._paths import path_of


@dataclass
class _Call:
    """A call with checked arguments."""

    geometry: ConvGeometry
    kind: Callable[[tuple[int, ...], np.dtype], Array]  # array class of the result
    dtype: np.dtype
    precision: str
    convolve: Convolution | None = None  # None until the first call prepares it


def _checked(
    name: str,
    describe: Callable[..., ConvGeometry],
    operands: tuple[Array, Array, Array | None],
    options: tuple[object, ...],
    precision: str | None,
    out: Array | None,
) -> _Call:
    """Check all arguments, except that the shape, dtype and memory of `out` come later."""
    data, weight, bias = operands
    arrays.check(name, {"input": data, "weight": weight}, {"bias": bias, "out": out})
    bias_shape = None if bias is None else bias.shape
    geometry = describe(name, data.shape, weight.shape, bias_shape, *options)
    dtype = arrays.result_dtype(name, data, weight)
    arrays.check_bias(name, bias, dtype)
    return _Call(geometry, arrays.kind_of(data), dtype, _precision.resolve(name, precision))


def convolve(
    name: str,
    describe: Callable[..., ConvGeometry],
    operands: tuple[ArrayT, Array, Array | None],
    options: tuple[object, ...],
    precision: str | None,
    out: Array | None,
) -> ArrayT:
    """Return the result of a convolution. `describe` turns shapes and `options` into a geometry."""
    data, weight, bias = operands
    path = path_of(data)
    layouts = (
        arrays.layout(data),
        arrays.layout(weight),
        () if bias is None else arrays.layout(bias),
        () if out is None else arrays.layout(out),
    )
    key = _calls.key(name, path, layouts, (*options, precision))
    call: _Call = _calls.kept.get(key) or _checked(
        name, describe, operands, options, precision, out
    )
    shape = call.geometry.out_shape
    if out is not None:
        inputs = {"input": data, "weight": weight, "bias": bias}
        arrays.check_out(name, out, shape, call.dtype, inputs)
    with arrays.on_device(data):
        result: ArrayT = call.kind(shape, call.dtype) if out is None else out
        if result.size:
            if call.convolve is None:
                call.convolve = path.prepare(call.geometry, *operands, result, call.precision)
                _calls.keep(key, call)
            call.convolve(data, weight, bias, result)
    return result
