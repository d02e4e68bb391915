"""The convolutions of ``cupy.cudnn``, which CuPy had up to its version 13.

Names, arguments and meaning are those of CuPy's module, so that a program ports by changing an
import. A result is written into an array of the caller's, and nothing is returned. Both ends of an
axis have the same padding. NumPy arrays are taken as well as CuPy arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import _arguments as arguments
from . import _arrays as arrays
from . import _geometry, _gradient_geometry
from . import _shape_rules as rules
from ._arguments import IntOrSequence, shown
from ._arrays import AnyArray, Array, ArrayT
from ._convolve import INPUT_GRADIENT, WEIGHT_GRADIENT, convolve
from ._geometry import ConvGeometry
from ._shape_rules import Shape
from ._signatures import readable

__all__ = [
    "convolution_backward_data",
    "convolution_backward_filter",
    "convolution_forward",
]

# Accuracy of float32 arrays by the words of `tensor_core`.
_PRECISIONS = {"never": "float32", "auto": "float32", "always": "tf32"}

_PAD = "an integer or one integer for each spatial axis, which pads both of its ends"


def _precision(name: str, tensor_core: object) -> str:
    """Return the precision that `tensor_core` asks for."""
    if not isinstance(tensor_core, str):
        raise TypeError(f"{name}: tensor_core must be a string, got {shown(tensor_core)}")
    for word, precision in _PRECISIONS.items():
        if tensor_core == word:
            return precision
    raise ValueError(
        f"{name}: tensor_core must be one of {tuple(_PRECISIONS)}, got "
        f"tensor_core={shown(tensor_core)}"
    )


def _check_layouts(name: str, layouts: dict[str, tuple[object, str]]) -> None:
    """Raise unless all layouts are 0. The strings are the arrays that a layout is of."""
    for argument, (layout, names) in layouts.items():
        if not isinstance(layout, (int, np.integer)) or layout != 0:
            views = " and ".join(f"numpy.moveaxis({array}, -1, 1)" for array in names.split())
            raise ValueError(
                f"{name}: {argument} must be 0, channels before the spatial axes, got "
                f"{argument}={shown(layout)}; move the channel axis by a view, {views}"
            )


def _check_arrays(
    name: str, required: dict[str, object], optional: dict[str, object], pad: object, kernel: Array
) -> None:
    """Raise unless arrays and `pad` are right. A weight without kernel axes is refused later."""
    arrays.check(name, required, optional)
    rank = kernel.ndim - 2
    if rank > 0:
        limit = arguments.SIZE_LIMIT
        arguments.per_axis(name, "pad", pad, rank, minimum=0, limit=limit, rule=_PAD)


@contextmanager
def _renamed(name: str, names: dict[str, str]) -> Iterator[None]:
    """Give the arguments in errors of the function `name` the `names` that they have here.

    A shape that is an argument elsewhere is the shape of an array here.
    """

    def renamed(word: re.Match[str]) -> str:
        shape = ".shape" if word[1].endswith("_size") and word[2] else ""
        return f"{names[word[1]]}{shape}{word[2]}"

    try:
        yield
    except (TypeError, ValueError) as error:
        if not str(error).startswith(f"{name}: "):
            raise
        words = rf"\b(?:the )?({'|'.join(names)})\b([=[]?)"
        text = re.sub(words, renamed, str(error)).replace("padding=", "pad=")
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(text) from None


def _backward_data(
    name: str,
    x_shape: Shape,
    weight_shape: Shape,
    bias_shape: Shape | None,
    *options: Any,
) -> ConvGeometry:
    """Return the geometry of an input gradient that a bias is added to."""
    geometry = _gradient_geometry.conv_input(name, x_shape, weight_shape, None, *options)
    channels = geometry.groups * geometry.rows
    rules.check_kernel_and_bias(name, "weight", weight_shape, bias_shape, channels)
    return geometry


@readable
def convolution_forward(
    x: ArrayT,
    W: AnyArray,
    b: AnyArray | None,
    y: AnyArray,
    pad: IntOrSequence,
    stride: IntOrSequence,
    dilation: IntOrSequence,
    groups: int,
    *,
    auto_tune: bool,
    tensor_core: str,
    d_layout: int = 0,
    w_layout: int = 0,
) -> None:
    """Write a convolution into an array.

    It is ``cupyconv.conv(x, W, b, stride, pad, dilation, groups, out=y)``.

    Parameters
    ----------
    x : ndarray, shape ``(N, C_in, *spatial)``
        NumPy or CuPy array with any strides and a dtype as in `cupyconv.conv`.
    W : ndarray, shape ``(C_out, C_in/groups, *kernel)``
        Kernel, which is not flipped (cross-correlation).
    b : ndarray, shape ``(C_out,)``, or None
        Added to each output channel before the single rounding at the end.
    y : ndarray, shape ``(N, C_out, *spatial_out)``
        Array that the result is written to: any writable view of the dtype that NumPy gives to a
        product of `x` and `W`. It shares no memory with them.
    pad : int or sequence of int
        Positions of padding at both ends: one number for all axes, or one for each.
    stride : int or sequence of int
        Input positions between neighbouring outputs: one number for all axes, or one for each.
    dilation : int or sequence of int
        Input positions between neighbouring taps: one number for all axes, or one for each.
    groups : int
        Number of groups that the channels are divided into.
    auto_tune : bool
        Changes nothing: rules choose the kernel, not a timing.
    tensor_core : {"never", "auto", "always"}
        ``"always"`` allows TF32 for float32 arrays. The other two mean float32 accuracy, which
        kernels may have from Tensor Cores. A `cupyconv.precision` block has no influence.
    d_layout, w_layout : int, default 0
        Only 0, channels before the spatial axes, is taken.

    Raises
    ------
    ValueError
        If a value is out of range, if shapes do not fit each other, or if a layout is not 0.
        Nothing is written then.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, or if a dtype is not
        supported.

    See Also
    --------
    convolution_backward_data : the gradient with respect to `x`.
    convolution_backward_filter : the gradient with respect to `W`.
    cupyconv.conv : the same, with an array that is returned and with padding of any form.

    Examples
    --------
    >>> import numpy as np
    >>> from cupyconv import cudnn
    >>> x, W = np.arange(6.0).reshape(1, 1, 2, 3), np.ones((1, 1, 2, 2))
    >>> y = np.empty((1, 1, 1, 2))
    >>> cudnn.convolution_forward(
    ...     x, W, None, y, (0, 0), (1, 1), (1, 1), 1, auto_tune=True, tensor_core="auto"
    ... )
    >>> y
    array([[[[ 8., 12.]]]])
    """
    name = "convolution_forward"
    precision = _precision(name, tensor_core)
    _check_layouts(name, {"d_layout": (d_layout, "x y"), "w_layout": (w_layout, "W")})
    _check_arrays(name, {"x": x, "W": W, "y": y}, {"b": b}, pad, W)
    with _renamed(name, {"input": "x", "weight": "W", "bias": "b", "out": "y"}):
        options = (stride, pad, dilation, groups, None)
        convolve(name, _geometry.conv, (x, W, b), options, precision, y)


@readable
def convolution_backward_data(
    W: AnyArray,
    x: ArrayT,
    b: AnyArray | None,
    y: AnyArray,
    pad: IntOrSequence,
    stride: IntOrSequence,
    dilation: IntOrSequence,
    groups: int,
    *,
    deterministic: bool,
    auto_tune: bool,
    tensor_core: str,
    d_layout: int = 0,
    w_layout: int = 0,
) -> None:
    """Write the gradient with respect to a convolution's input into an array.

    It is ``cupyconv.grad.conv_input(y.shape, W, x, stride, pad, dilation, groups, out=y)``. It can
    add a bias, for calls that use it as a transposed convolution.

    Parameters
    ----------
    W : ndarray, shape ``(C_out, C_in/groups, *kernel)``
        The kernel that the convolution was called with.
    x : ndarray, shape ``(N, C_out, *spatial_out)``
        Gradient with respect to the convolution's result, despite its name.
    b : ndarray, shape ``(C_in,)``, or None
        Added to each channel of the result before the single rounding at the end.
    y : ndarray, shape ``(N, C_in, *spatial)``
        Array that the result is written to. Its shape is the shape of the convolution's input.
    pad, stride, dilation, groups : int or sequence of int
        The arguments that the convolution was called with.
    deterministic, auto_tune : bool
        Change nothing: the same call always gives the same bits, and rules choose the kernel.
    tensor_core, d_layout, w_layout : optional
        As in `convolution_forward`.

    Raises
    ------
    ValueError
        As from `convolution_forward`. `x` must have the shape of the convolution's result.
    TypeError
        As from `convolution_forward`.

    See Also
    --------
    convolution_forward : the convolution, with all parameters.
    cupyconv.grad.conv_input : the same, with an array that is returned.
    cupyconv.conv_transpose : the same sum, for a size that follows from its arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from cupyconv import cudnn
    >>> gy, W = np.array([[[[1.0, 2.0]]]]), np.ones((1, 1, 2, 2))
    >>> gx = np.empty((1, 1, 2, 3))
    >>> cudnn.convolution_backward_data(
    ...     W, gy, None, gx, (0, 0), (1, 1), (1, 1), 1,
    ...     deterministic=True, auto_tune=False, tensor_core="never",
    ... )
    >>> gx
    array([[[[1., 3., 2.],
             [1., 3., 2.]]]])
    """
    name = "convolution_backward_data"
    precision = _precision(name, tensor_core)
    _check_layouts(name, {"d_layout": (d_layout, "x y"), "w_layout": (w_layout, "W")})
    _check_arrays(name, {"W": W, "x": x, "y": y}, {"b": b}, pad, W)
    names = {"input": "y", "input_size": "y", "grad_output": "x"}
    with _renamed(name, {**names, "weight": "W", "bias": "b", "out": "y"}):
        options = (y.shape, stride, pad, dilation, groups, None)
        convolve(name, _backward_data, (x, W, b), options, precision, y, INPUT_GRADIENT)


@readable
def convolution_backward_filter(
    x: ArrayT,
    gy: AnyArray,
    gW: AnyArray,
    pad: IntOrSequence,
    stride: IntOrSequence,
    dilation: IntOrSequence,
    groups: int,
    *,
    deterministic: bool,
    auto_tune: bool,
    tensor_core: str,
    d_layout: int = 0,
    w_layout: int = 0,
) -> None:
    """Write the gradient with respect to a convolution's kernel into an array.

    It is ``cupyconv.grad.conv_weight(x, gW.shape, gy, stride, pad, dilation, groups, out=gW)``.

    Parameters
    ----------
    x : ndarray, shape ``(N, C_in, *spatial)``
        The input that the convolution was called with.
    gy : ndarray, shape ``(N, C_out, *spatial_out)``
        Gradient with respect to the convolution's result.
    gW : ndarray, shape ``(C_out, C_in/groups, *kernel)``
        Array that the result is written to. Its shape is the shape of the kernel.
    pad, stride, dilation, groups : int or sequence of int
        The arguments that the convolution was called with.
    deterministic, auto_tune : bool
        Change nothing: the same call always gives the same bits, and rules choose the kernel.
    tensor_core, d_layout, w_layout : optional
        As in `convolution_forward`.

    Raises
    ------
    ValueError
        As from `convolution_forward`. `gy` must have the shape of the convolution's result.
    TypeError
        As from `convolution_forward`.

    See Also
    --------
    convolution_forward : the convolution, with all parameters.
    cupyconv.grad.conv_weight : the same, with an array that is returned.

    Examples
    --------
    >>> import numpy as np
    >>> from cupyconv import cudnn
    >>> x, gy = np.arange(6.0).reshape(1, 1, 2, 3), np.ones((1, 1, 1, 2))
    >>> gW = np.empty((1, 1, 2, 2))
    >>> cudnn.convolution_backward_filter(
    ...     x, gy, gW, (0, 0), (1, 1), (1, 1), 1,
    ...     deterministic=True, auto_tune=False, tensor_core="never",
    ... )
    >>> gW
    array([[[[1., 3.],
             [7., 9.]]]])
    """
    name = "convolution_backward_filter"
    precision = _precision(name, tensor_core)
    _check_layouts(name, {"d_layout": (d_layout, "x gy"), "w_layout": (w_layout, "gW")})
    _check_arrays(name, {"x": x, "gy": gy, "gW": gW}, {}, pad, gW)
    names = {"input": "x", "weight_size": "gW", "grad_output": "gy"}
    with _renamed(name, {**names, "out": "gW"}):
        options = (gW.shape, stride, pad, dilation, groups, None)
        operands = x, gy, None
        describe = _gradient_geometry.conv_weight
        convolve(name, describe, operands, options, precision, gW, WEIGHT_GRADIENT)
