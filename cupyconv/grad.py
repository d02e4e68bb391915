"""Gradients of convolutions with respect to the input and to the weight.

`conv_input` is the exact adjoint of `cupyconv.conv` as a function of its input, and `conv_weight`
as a function of its weight. Nothing is conjugated.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import _gradient_geometry as geometry
from ._arguments import IntOrSequence, Padding
from ._arrays import AnyArray, ArrayT
from ._convolve import INPUT_GRADIENT, WEIGHT_GRADIENT, convolve
from ._signatures import readable

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
    "conv_input",
    "conv_weight",
]


@readable
def conv_input(
    input_size: Sequence[int],
    weight: AnyArray,
    grad_output: ArrayT,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of an N-dimensional convolution with respect to its input.

    It is the exact adjoint of `cupyconv.conv` as a function of the input, for inputs of the given
    size. The number of spatial axes follows from `weight`. `conv1d_input`, `conv2d_input` and
    `conv3d_input` are the same for one number of axes each.

    Parameters
    ----------
    input_size : sequence of int
        Shape of the convolution's input, ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``. Several
        sizes can lead to one shape of the result, so that the size cannot be computed.
    weight : ndarray, shape ``(C_out, C_in/groups, *kernel)``
        The weight that the convolution was called with.
    grad_output : ndarray, shape ``(N, C_out, *spatial_out)`` or ``(C_out, *spatial_out)``
        Gradient with respect to the convolution's result: a NumPy or CuPy array with any strides
        that has the shape of the result. Its dtype is float16, bfloat16, float32, float64,
        complex64, complex128 or an integer. The two dtypes may differ, as long as NumPy has a
        common one.
    stride, padding, dilation, groups : optional
        The arguments that `cupyconv.conv` was called with.
    method : {"direct", "fft", "auto"}, default "direct"
        ``"direct"`` sums over the taps, ``"fft"`` multiplies spectra, and ``"auto"`` chooses FFT
        where that should be at least 1.2 times as fast, and never for integers. FFT is for floats
        and complex numbers on up to three axes; the notes of `cupyconv.conv` bound its error.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        The `padding_mode` that `cupyconv.conv` was called with.
    precision : {"float32", "tf32"}, optional
        Accuracy of the result for float32 arrays. By default the enclosing `cupyconv.precision`
        block sets it; outside of any block it is ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Array that the result is written to: any writable view with the shape and dtype of the
        result that shares no memory with an operand or with itself.

    Returns
    -------
    ndarray, shape ``input_size``
        `out`, or a new array on the device of `grad_output`. Its dtype is NumPy's ``result_type``
        of `grad_output` and `weight`. 16-bit floats are accumulated in float32. Integers are exact
        modulo ``2**bits``.

    Raises
    ------
    ValueError
        If a value is out of range, if ``method="fft"`` has more than three spatial axes, or if
        shapes do not fit each other: `grad_output` must have the shape of the convolution's result.
        Nothing is written then.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, if a dtype is not
        supported, or if integers have ``method="fft"``.
    RuntimeError
        If a call by FFT is captured in a CUDA graph.

    See Also
    --------
    conv_weight : the gradient with respect to the weight.
    cupyconv.conv_transpose : the same sum, for a size that follows from its arguments.

    Notes
    -----
    Along one axis, by scatter-add, where positions outside of the input are dropped::

        grad_input[c, o*stride - pad_before + k*dilation] += grad_output[m, o] * weight[m, c, k]

    For all arrays ``x`` and ``y`` of the right shapes::

        sum(conv(x, w) * y) == sum(x * conv_input(x.shape, w, y))

    Nothing is conjugated: the adjoint of a complex operator takes ``conj(weight)``. The gradient
    with respect to a bias is ``grad_output.sum`` over the batch and the spatial axes.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x, w = np.arange(12.0).reshape(1, 2, 6), np.array([[[1.0, 2.0], [3.0, 4.0]]])
    >>> y = cupyconv.conv(x, w, stride=3)
    >>> cupyconv.grad.conv_input(x.shape, w, np.ones_like(y), stride=3)
    array([[[1., 2., 0., 1., 2., 0.],
            [3., 4., 0., 3., 4., 0.]]])
    """
    operands = grad_output, weight, None
    options = (input_size, stride, padding, dilation, groups, None, padding_mode)
    describe = geometry.conv_input
    return convolve(
        "conv_input", describe, operands, options, precision, out, INPUT_GRADIENT, method
    )


@readable
def conv1d_input(
    input_size: Sequence[int],
    weight: AnyArray,
    grad_output: ArrayT,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of `cupyconv.conv1d` with respect to its input.

    It is `conv_input` with one spatial axis.

    Parameters
    ----------
    input_size : sequence of int
        Shape ``(N, C_in, L)`` or ``(C_in, L)``, as in `conv_input`.
    weight : ndarray, shape ``(C_out, C_in/groups, K)``
        As in `conv_input`.
    grad_output : ndarray, shape ``(N, C_out, L_out)``
        With a batch axis or without, as in `conv_input`.
    stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv_input`.

    Returns
    -------
    ndarray, shape ``input_size``
        As from `conv_input`.

    See Also
    --------
    conv_input : all parameters, the definition and the errors.
    conv1d_weight : the gradient with respect to the weight.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> y = np.array([[1.0, 10.0]])
    >>> cupyconv.grad.conv1d_input((1, 5), np.array([[[1.0, 2.0, 3.0]]]), y, stride=2)
    array([[ 1.,  2., 13., 20., 30.]])
    >>> cupyconv.grad.conv1d_input((1, 6), np.array([[[1.0, 2.0, 3.0]]]), y, stride=2)
    array([[ 1.,  2., 13., 20., 30.,  0.]])
    """
    operands = grad_output, weight, None
    options = (input_size, stride, padding, dilation, groups, 1, padding_mode)
    describe = geometry.conv_input
    return convolve(
        "conv1d_input", describe, operands, options, precision, out, INPUT_GRADIENT, method
    )


@readable
def conv2d_input(
    input_size: Sequence[int],
    weight: AnyArray,
    grad_output: ArrayT,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of `cupyconv.conv2d` with respect to its input.

    It is `conv_input` with two spatial axes.

    Parameters
    ----------
    input_size : sequence of int
        Shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``, as in `conv_input`.
    weight : ndarray, shape ``(C_out, C_in/groups, K_h, K_w)``
        As in `conv_input`.
    grad_output : ndarray, shape ``(N, C_out, H_out, W_out)``
        With a batch axis or without, as in `conv_input`.
    stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv_input`.

    Returns
    -------
    ndarray, shape ``input_size``
        As from `conv_input`.

    See Also
    --------
    conv_input : all parameters, the definition and the errors.
    conv2d_weight : the gradient with respect to the weight.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> y, w = np.ones((8, 6, 14, 14), np.float32), np.ones((6, 3, 3, 3), np.float32)
    >>> cupyconv.grad.conv2d_input((8, 3, 28, 28), w, y, stride=2, padding=1).shape
    (8, 3, 28, 28)
    """
    operands = grad_output, weight, None
    options = (input_size, stride, padding, dilation, groups, 2, padding_mode)
    describe = geometry.conv_input
    return convolve(
        "conv2d_input", describe, operands, options, precision, out, INPUT_GRADIENT, method
    )


@readable
def conv3d_input(
    input_size: Sequence[int],
    weight: AnyArray,
    grad_output: ArrayT,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of `cupyconv.conv3d` with respect to its input.

    It is `conv_input` with three spatial axes.

    Parameters
    ----------
    input_size : sequence of int
        Shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``, as in `conv_input`.
    weight : ndarray, shape ``(C_out, C_in/groups, K_d, K_h, K_w)``
        As in `conv_input`.
    grad_output : ndarray, shape ``(N, C_out, D_out, H_out, W_out)``
        With a batch axis or without, as in `conv_input`.
    stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv_input`.

    Returns
    -------
    ndarray, shape ``input_size``
        As from `conv_input`.

    See Also
    --------
    conv_input : all parameters, the definition and the errors.
    conv3d_weight : the gradient with respect to the weight.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> y, w = np.ones((5, 4, 4, 4), np.float32), np.ones((5, 2, 3, 3, 3), np.float32)
    >>> cupyconv.grad.conv3d_input((2, 4, 8, 8), w, y, stride=(1, 2, 2), padding="same").shape
    (2, 4, 8, 8)
    """
    operands = grad_output, weight, None
    options = (input_size, stride, padding, dilation, groups, 3, padding_mode)
    describe = geometry.conv_input
    return convolve(
        "conv3d_input", describe, operands, options, precision, out, INPUT_GRADIENT, method
    )


@readable
def conv_weight(
    input: ArrayT,
    weight_size: Sequence[int],
    grad_output: AnyArray,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of an N-dimensional convolution with respect to its weight.

    It is the exact adjoint of `cupyconv.conv` as a function of the weight. The number of spatial
    axes follows from `weight_size`. `conv1d_weight`, `conv2d_weight` and `conv3d_weight` are the
    same for one number of axes each.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        The input that the convolution was called with: a NumPy or CuPy array with any strides. Its
        dtype is float16, bfloat16, float32, float64, complex64, complex128 or an integer.
    weight_size : sequence of int
        Shape of the convolution's weight, ``(C_out, C_in/groups, *kernel)``.
    grad_output : ndarray, shape ``(N, C_out, *spatial_out)`` or ``(C_out, *spatial_out)``
        Gradient with respect to the convolution's result, which has the shape of the result. It
        lies on the same device as `input`. The two dtypes may differ, as long as NumPy has a common
        one.
    stride, padding, dilation, groups : optional
        The arguments that `cupyconv.conv` was called with.
    method : {"direct", "fft", "auto"}, default "direct"
        ``"direct"`` sums over the taps, ``"fft"`` multiplies spectra, and ``"auto"`` chooses FFT
        where that should be at least 1.2 times as fast, and never for integers. FFT is for floats
        and complex numbers on up to three axes; the notes of `cupyconv.conv` bound its error,
        here with the norms of the whole arrays.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        The `padding_mode` that `cupyconv.conv` was called with.
    precision : {"float32", "tf32"}, optional
        Accuracy of the result for float32 arrays. By default the enclosing `cupyconv.precision`
        block sets it; outside of any block it is ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Array that the result is written to: any writable view with the shape and dtype of the
        result that shares no memory with an operand or with itself.

    Returns
    -------
    ndarray, shape ``weight_size``
        `out`, or a new array on the device of `input`. Its dtype is NumPy's ``result_type`` of
        `input` and `grad_output`. 16-bit floats are accumulated in float32. Integers are exact
        modulo ``2**bits``. For an empty batch it is zeros.

    Raises
    ------
    ValueError
        If a value is out of range, if ``method="fft"`` has more than three spatial axes, or if
        shapes do not fit each other: `grad_output` must have the shape of the convolution's result.
        Nothing is written then.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, if a dtype is not
        supported, or if integers have ``method="fft"``.
    RuntimeError
        If a call by FFT is captured in a CUDA graph.

    See Also
    --------
    conv_input : the gradient with respect to the input.

    Notes
    -----
    Along one axis, where positions outside of ``input`` contribute nothing::

        grad_weight[m, c, k] = sum over n, o of
            grad_output[n, m, o] * input[n, c, o*stride - pad_before + k*dilation]

    For all arrays ``w`` and ``y`` of the right shapes::

        sum(conv(x, w) * y) == sum(w * conv_weight(x, w.shape, y))

    Nothing is conjugated: the adjoint of a complex operator takes ``conj(input)``. The sum extends
    over the batch, so its rounding depends on the batch; the same call gives the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x, w = np.arange(12.0).reshape(1, 2, 6), np.array([[[1.0, 2.0], [3.0, 4.0]]])
    >>> y = cupyconv.conv(x, w, stride=3)
    >>> cupyconv.grad.conv_weight(x, w.shape, np.ones_like(y), stride=3)
    array([[[ 3.,  5.],
            [15., 17.]]])
    """
    operands = input, grad_output, None
    options = (weight_size, stride, padding, dilation, groups, None, padding_mode)
    describe = geometry.conv_weight
    return convolve(
        "conv_weight", describe, operands, options, precision, out, WEIGHT_GRADIENT, method
    )


@readable
def conv1d_weight(
    input: ArrayT,
    weight_size: Sequence[int],
    grad_output: AnyArray,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of `cupyconv.conv1d` with respect to its weight.

    It is `conv_weight` with one spatial axis.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, L)`` or ``(C_in, L)``
        As in `conv_weight`.
    weight_size : sequence of int
        Shape ``(C_out, C_in/groups, K)``, as in `conv_weight`.
    grad_output : ndarray, shape ``(N, C_out, L_out)``
        With a batch axis or without, as in `conv_weight`.
    stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv_weight`.

    Returns
    -------
    ndarray, shape ``weight_size``
        As from `conv_weight`.

    See Also
    --------
    conv_weight : all parameters, the definition and the errors.
    conv1d_input : the gradient with respect to the input.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x, y = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]), np.array([[1.0, 10.0]])
    >>> cupyconv.grad.conv1d_weight(x, (1, 1, 3), y, stride=2)
    array([[[31., 42., 53.]]])
    """
    operands = input, grad_output, None
    options = (weight_size, stride, padding, dilation, groups, 1, padding_mode)
    describe = geometry.conv_weight
    return convolve(
        "conv1d_weight", describe, operands, options, precision, out, WEIGHT_GRADIENT, method
    )


@readable
def conv2d_weight(
    input: ArrayT,
    weight_size: Sequence[int],
    grad_output: AnyArray,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of `cupyconv.conv2d` with respect to its weight.

    It is `conv_weight` with two spatial axes.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv_weight`.
    weight_size : sequence of int
        Shape ``(C_out, C_in/groups, K_h, K_w)``, as in `conv_weight`.
    grad_output : ndarray, shape ``(N, C_out, H_out, W_out)``
        With a batch axis or without, as in `conv_weight`.
    stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv_weight`.

    Returns
    -------
    ndarray, shape ``weight_size``
        As from `conv_weight`.

    See Also
    --------
    conv_weight : all parameters, the definition and the errors.
    conv2d_input : the gradient with respect to the input.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x, y = np.ones((8, 4, 28, 28), np.float32), np.ones((8, 6, 14, 14), np.float32)
    >>> gradient = cupyconv.grad.conv2d_weight(x, (6, 2, 3, 3), y, stride=2, padding=1, groups=2)
    >>> gradient[0, 0]
    array([[1352., 1456., 1456.],
           [1456., 1568., 1568.],
           [1456., 1568., 1568.]], dtype=float32)
    """
    operands = input, grad_output, None
    options = (weight_size, stride, padding, dilation, groups, 2, padding_mode)
    describe = geometry.conv_weight
    return convolve(
        "conv2d_weight", describe, operands, options, precision, out, WEIGHT_GRADIENT, method
    )


@readable
def conv3d_weight(
    input: ArrayT,
    weight_size: Sequence[int],
    grad_output: AnyArray,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Gradient of `cupyconv.conv3d` with respect to its weight.

    It is `conv_weight` with three spatial axes.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        As in `conv_weight`.
    weight_size : sequence of int
        Shape ``(C_out, C_in/groups, K_d, K_h, K_w)``, as in `conv_weight`.
    grad_output : ndarray, shape ``(N, C_out, D_out, H_out, W_out)``
        With a batch axis or without, as in `conv_weight`.
    stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv_weight`.

    Returns
    -------
    ndarray, shape ``weight_size``
        As from `conv_weight`.

    See Also
    --------
    conv_weight : all parameters, the definition and the errors.
    conv3d_input : the gradient with respect to the input.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x, y = np.ones((2, 4, 8, 8), np.float32), np.ones((5, 4, 4, 4), np.float32)
    >>> size = 5, 2, 3, 3, 3
    >>> cupyconv.grad.conv3d_weight(x, size, y, stride=(1, 2, 2), padding="same").shape
    (5, 2, 3, 3, 3)
    """
    operands = input, grad_output, None
    options = (weight_size, stride, padding, dilation, groups, 3, padding_mode)
    describe = geometry.conv_weight
    return convolve(
        "conv3d_weight", describe, operands, options, precision, out, WEIGHT_GRADIENT, method
    )
