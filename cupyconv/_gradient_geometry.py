"""The geometry layer of gradients: a convolution's geometry and what its adjoints make of it.

The convolution itself validates the arguments, and its result's shape is the shape that
`grad_output` must have. The gradient with respect to the input is then a transposed convolution
whose output has exactly the size of the input. The gradient with respect to the weight is described
by the convolution.
"""

from __future__ import annotations

from dataclasses import replace

from . import _arguments as arguments
from . import _geometry
from ._arguments import shown
from ._geometry import ConvGeometry
from ._shape_rules import Shape
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


def _shape(name: str, argument: str, value: object, spatial_rank: int | None) -> Shape:
    """Return a shape that the caller passed as `argument`, batch and channels included."""
    rule = "a whole shape, a sequence of integers"
    plain = value.tolist() if hasattr(value, "tolist") and hasattr(value, "dtype") else value
    if not isinstance(plain, (tuple, list)):
        raise TypeError(f"{name}: {argument} must be {rule}, got {argument}={shown(value)}")
    sizes = arguments.per_axis(
        name,
        argument,
        plain,
        len(plain),
        minimum=0,
        limit=arguments.SIZE_LIMIT,
        rule=rule,
    )
    if spatial_rank is None:
        return sizes
    whole = spatial_rank + 2
    if argument == "input_size" and len(sizes) not in (whole, whole - 1):
        raise ValueError(
            f"{name}: input_size must have {whole} sizes, or {whole - 1} without a batch axis, got "
            f"input_size={shown(value)}"
        )
    if argument == "weight_size" and len(sizes) != whole:
        raise ValueError(
            f"{name}: weight_size must have {whole} sizes, the channels' among them, got "
            f"weight_size={shown(value)}"
        )
    return sizes


def _check_grad_output(name: str, shape: Shape, convolution: ConvGeometry, call: str) -> None:
    """Raise unless `grad_output` has the shape of the convolution's result."""
    if shape != convolution.out_shape:
        before = convolution.pads_before
        raise ValueError(
            f"{name}: grad_output must have the shape of the convolution's result, "
            f"{convolution.out_shape}, got grad_output of shape {shape} with {call}, "
            f"stride={convolution.stride}, dilation={convolution.dilation}, "
            f"groups={convolution.groups} and {before} positions of padding before the input"
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
) -> ConvGeometry:
    """Return the transposed convolution that is the gradient with respect to the input."""
    if rank is None and 3 <= len(weight_shape):
        rank_of_weight: int | None = len(weight_shape) - 2
    else:
        rank_of_weight = rank
    size = _shape(name, "input_size", input_size, rank_of_weight)
    convolution = _geometry.conv(
        name, size, weight_shape, bias_shape, stride, padding, dilation, groups, rank
    )
    call = f"input_size={size}, weight of shape {weight_shape}"
    _check_grad_output(name, grad_shape, convolution, call)
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
) -> ConvGeometry:
    """Return the convolution that the gradient with respect to its weight is taken of."""
    size = _shape(name, "weight_size", weight_size, rank)
    convolution = _geometry.conv(
        name, input_shape, size, bias_shape, stride, padding, dilation, groups, rank
    )
    call = f"input of shape {input_shape}, weight_size={size}"
    _check_grad_output(name, grad_shape, convolution, call)
    return convolution
