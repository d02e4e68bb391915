"""A call of any convolution or gradient, of any number of axes: check, prepare, run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from . import _arrays as arrays
from . import _calls, _fft, _padded_calls, _precision
from ._arrays import Array, ArrayT, Convolution
from ._geometry import ConvGeometry
from ._gradient_geometry import weight_shape
from ._paths import Path, path_of

Operands: TypeAlias = "tuple[Array, Array, Array | None]"


def _prepare_convolution(
    path: Path, geometry: ConvGeometry, operands: Operands, out: Array, precision: str
) -> Convolution:
    return _padded_calls.prepare(path, geometry, operands, out, precision)


def _prepare_weight_gradient(
    path: Path, geometry: ConvGeometry, operands: Operands, out: Array, precision: str
) -> Convolution:
    data, grad_output, _ = operands
    gradient = _padded_calls.prepare_weight_gradient(
        path, geometry, data, grad_output, out, precision
    )
    return lambda data, grad_output, _, out: gradient(data, grad_output, out)


def _weight_gradient_by_fft(
    path: Path, geometry: ConvGeometry, operands: Operands, out: Array
) -> Convolution:
    data, grad_output, _ = operands
    gradient = _fft.prepare_weight_gradient(path, geometry, data, grad_output, out)
    return lambda data, grad_output, _, out: gradient(data, grad_output, out)


@dataclass(frozen=True)
class Operation:
    """What calls of one kind have in common.

    Attributes
    ----------
    names : tuple of str
        The names that errors give to the two operands.
    out_shape : callable
        Takes the geometry of a call and returns the shape of its result.
    prepare : callable
        Lets a path prepare the call.
    by_fft : callable
        Returns the call by FFT.
    """

    names: tuple[str, str]
    out_shape: Callable[[ConvGeometry], tuple[int, ...]]
    prepare: Callable[[Path, ConvGeometry, Operands, Array, str], Convolution]
    by_fft: Callable[[Path, ConvGeometry, Operands, Array], Convolution]


def _out_shape(geometry: ConvGeometry) -> tuple[int, ...]:
    return geometry.out_shape


CONVOLUTION = Operation(("input", "weight"), _out_shape, _prepare_convolution, _fft.prepare)
INPUT_GRADIENT = replace(CONVOLUTION, names=("grad_output", "weight"))
WEIGHT_GRADIENT = Operation(
    ("input", "grad_output"), weight_shape, _prepare_weight_gradient, _weight_gradient_by_fft
)


@dataclass
class _Call:
    """A call with checked arguments."""

    geometry: ConvGeometry
    kind: Callable[[tuple[int, ...], np.dtype], Array]  # array class of the result
    shape: tuple[int, ...]
    dtype: np.dtype
    precision: str
    method: str
    convolve: Convolution | None = None  # None until the first call prepares it


def _checked(
    name: str,
    operation: Operation,
    describe: Callable[..., ConvGeometry],
    operands: Operands,
    options: tuple[object, ...],
    precision: str | None,
    method: str,
    out: Array | None,
) -> _Call:
    """Check all arguments, except that the shape, dtype and memory of `out` come later."""
    first, second, bias = operands
    names = operation.names
    arrays.check(name, dict(zip(names, operands, strict=False)), {"bias": bias, "out": out})
    bias_shape = None if bias is None else bias.shape
    geometry = describe(name, first.shape, second.shape, bias_shape, *options)
    dtype = arrays.result_dtype(name, first, second, names[1], names[0])
    arrays.check_bias(name, bias, dtype)
    return _Call(
        geometry,
        arrays.kind_of(first),
        operation.out_shape(geometry),
        dtype,
        _precision.resolve(name, precision),
        _fft.checked(name, method, geometry, dtype),
    )


def convolve(
    name: str,
    describe: Callable[..., ConvGeometry],
    operands: tuple[ArrayT, Array, Array | None],
    options: tuple[object, ...],
    precision: str | None,
    out: Array | None,
    operation: Operation = CONVOLUTION,
    method: str = "direct",
) -> ArrayT:
    """Return the result of a convolution or of one of its gradients.

    `describe` turns the name, the shapes of the operands and `options` into a geometry.
    """
    first, second, bias = operands
    path = path_of(first)
    layouts = (
        arrays.layout(first),
        arrays.layout(second),
        () if bias is None else arrays.layout(bias),
        () if out is None else arrays.layout(out),
    )
    key = _calls.key(name, path, layouts, (*options, precision, method))
    call: _Call = _calls.kept.get(key) or _checked(
        name, operation, describe, operands, options, precision, method, out
    )
    if out is not None:
        inputs = dict(zip((*operation.names, "bias"), operands, strict=True))
        arrays.check_out(name, out, call.shape, call.dtype, inputs)
    with arrays.on_device(first):
        result: ArrayT = call.kind(call.shape, call.dtype) if out is None else out
        if result.size:
            if call.convolve is None:
                call.convolve = _prepared(path, operation, call, operands, result)
                _calls.keep(key, call)
            call.convolve(first, second, bias, result)
    return result


def _prepared(
    path: Path, operation: Operation, call: _Call, operands: Operands, out: Array
) -> Convolution:
    """Return the function that runs a call."""
    geometry = call.geometry
    question = geometry, call.dtype, call.precision, operation is WEIGHT_GRADIENT
    method = settled(path, call.method, *question)
    if _fft.suits(geometry, call.dtype):
        path.note_method(method, lambda: path.gain_by_fft(*question))
    if method == "fft":
        return operation.by_fft(path, geometry, operands, out)
    return operation.prepare(path, geometry, operands, out, call.precision)


def settled(
    path: Path,
    method: str,
    geometry: ConvGeometry,
    dtype: np.dtype,
    precision: str,
    gradient: bool = False,
) -> str:
    """Return "direct" or "fft": the method by which a call runs.

    The call is the `gradient` with respect to the weight, or the convolution.
    """
    if not _fft.suits(geometry, dtype):
        return "direct"
    if method != "auto":
        return method
    gain = path.gain_by_fft(geometry, dtype, precision, gradient)
    return "fft" if gain >= _fft.LEAST_GAIN else "direct"
