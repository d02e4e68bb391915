"""The geometry layer of gradients: it describes them by the geometry of their convolution.

The rules of the convolution validate the arguments, and its result has the shape that `grad_output`
must have. The gradient with respect to the input is then a transposed convolution whose output has
exactly the size of the input. The gradient with respect to the weight is described by the
convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from . import _arguments as arguments
from . import _geometry
from ._arguments import shown
from ._geometry import ConvGeometry
from ._shape_rules import MAX_RANK, Shape
from ._taps import conv_transpose_taps


def adjoint(convolution: ConvGeometry) -> ConvGeometry:
    """Return the transposed convolution that maps results back to inputs of the same size.

    Its output padding is what the stride leaves of the input, so it follows from the sizes.
    """
    axes = (
        conv_transpose_taps(axis.size_out, axis.size_in, axis.kernel, stride, dilation, pad)
        for axis, stride, dilation, pad in zip(
            convolution.axes,
            convolution.stride,
            convolution.dilation,
            convolution.pads_before,
            strict=True,
        )
    )
    return replace(
        convolution,
        transposed=True,
        channels=convolution.rows,
        rows=convolution.channels,
        axes=tuple(axes),
    )


def weight_shape(convolution: ConvGeometry) -> Shape:
    """Return the shape of a convolution's weight."""
    rows = convolution.groups * convolution.rows
    return rows, convolution.channels, *(axis.kernel for axis in convolution.axes)


def _shape(name: str, argument: str, value: object) -> Shape:
    """Return a shape that the caller passed as `argument`, batch and channels included."""
    rule = "a whole shape, which is a sequence of integers"
    plain = value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else value
    if not isinstance(plain, Sequence) or isinstance(plain, (str, bytes, bytearray)):
        shape = getattr(value, "shape", None)  # of an array that was passed by mistake
        got = f"{argument}={shown(value)}"
        if isinstance(shape, tuple) and len(shape) > 2:  # a number has the shape ()
            got = f"an array; its shape, {shape}, is one"
        raise TypeError(f"{name}: {argument} must be {rule}, got {got}")
    if len(plain) > MAX_RANK + 2:
        raise ValueError(
            f"{name}: {argument} must have at most {MAX_RANK + 2} axes, got "
            f"{argument}={shown(value)}"
        )
    axes, limit = len(plain), arguments.SIZE_LIMIT
    return arguments.per_axis(name, argument, plain, axes, minimum=0, limit=limit, rule=rule)


def _check_grad_output(name: str, shape: Shape, convolution: ConvGeometry, call: str) -> None:
    """Raise unless `grad_output` has the shape of the convolution's result."""
    if shape != convolution.out_shape:
        raise ValueError(
            f"{name}: grad_output must have the shape of the convolution's result, "
            f"{convolution.out_shape}, got grad_output of shape {shape} with {call}, "
            f"dilation={convolution.dilation}"
        )


def conv_input(
    name: str,
    grad_shape: Shape,
    weight_shape: Shape,
    bias_shape: None,
    input_size: object,
    stride: object,
    padding: object,
    dilation: object,
    groups: object,
    rank: int | None,
    padding_mode: object = None,
) -> ConvGeometry:
    """Return the transposed convolution that is the gradient with respect to the input."""
    size = _shape(name, "input_size", input_size)
    options = stride, padding, dilation, groups, rank, padding_mode
    names = "input_size", "weight"
    convolution = _geometry.conv(name, size, weight_shape, bias_shape, *options, names)
    _check_grad_output(
        name,
        grad_shape,
        convolution,
        f"input_size={size}, weight of shape {weight_shape}, stride={convolution.stride}, "
        f"padding={shown(padding)}",
    )
    return adjoint(convolution)


def conv_weight(
    name: str,
    input_shape: Shape,
    grad_shape: Shape,
    bias_shape: None,
    weight_size: object,
    stride: object,
    padding: object,
    dilation: object,
    groups: object,
    rank: int | None,
    padding_mode: object = None,
) -> ConvGeometry:
    """Return the convolution whose gradient with respect to the weight a call computes."""
    size = _shape(name, "weight_size", weight_size)
    options = stride, padding, dilation, groups, rank, padding_mode
    names = "input", "weight_size"
    convolution = _geometry.conv(name, input_shape, size, bias_shape, *options, names)
    _check_grad_output(
        name,
        grad_shape,
        convolution,
        f"input of shape {input_shape}, weight_size={size}, stride={convolution.stride}, "
        f"padding={shown(padding)}",
    )
    return convolution
