"""Convolutions: thin wrappers around one N-d implementation."""

from __future__ import annotations

from . import _geometry
from ._arguments import IntOrSequence, Padding
from ._arrays import AnyArray, ArrayT
from ._convolve import convolve
from ._signatures import readable


@readable
def conv(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
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
    """N-dimensional convolution.

    The number of spatial axes follows from `weight`. `conv1d`, `conv2d` and `conv3d` are the same
    for one number of axes each.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        NumPy or CuPy array with any strides, with or without a batch axis. Its dtype is float16,
        bfloat16, float32, float64, complex64, complex128 or an integer.
    weight : ndarray, shape ``(C_out, C_in/groups, *kernel)``
        Kernel, which is not flipped (cross-correlation). It lies on the same device as `input`. The
        two dtypes may differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the single rounding at the end.
    stride : int or sequence of int, default 1
        Input positions between neighbouring outputs: one number for all axes, or one for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Positions added at both ends of the input: one number for all axes, one for each, or a pair
        ``(before, after)`` for each. These positions are absent rather than zero: they contribute
        nothing, even to an infinite weight. ``"valid"`` is 0; ``"same"`` gives an output of size
        ``ceil(size / stride)``.
    dilation : int or sequence of int, default 1
        Input positions between neighbouring taps of the kernel: one number for all axes, or one for
        each.
    groups : int, default 1
        Number of groups that the channels are divided into. Each group is convolved separately.
    method : {"direct", "fft", "auto"}, default "direct"
        ``"direct"`` sums over the taps. ``"fft"`` multiplies spectra instead, for floats and
        complex numbers on up to three axes: it is faster for large kernels, but its error is
        bounded only in the norm, and one Inf or NaN reaches more outputs (see the notes).
        ``"auto"`` chooses FFT where that should be at least 1.2 times as fast, and never for
        integers.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        What lies in the padding, in the words of ``numpy.pad``: the result is the one of
        ``numpy.pad(input, ..., padding_mode)`` without padding. By default nothing does.
    precision : {"float32", "tf32"}, optional
        Accuracy of the result for float32 arrays. By default the enclosing `cupyconv.precision`
        block sets it; outside of any block it is ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Array that the result is written to: any writable view with the shape and dtype of the
        result that shares no memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, *spatial_out)``
        `out`, or a new array on the device of `input`; it has no batch axis if `input` has none.
        Its dtype is NumPy's ``result_type`` of `input` and `weight`. 16-bit floats are accumulated
        in float32. Integers are exact modulo ``2**bits``.

    Raises
    ------
    ValueError
        If a value is out of range, if shapes do not fit each other, or if ``method="fft"`` has more
        than three spatial axes. Nothing is written then.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, if a dtype is not
        supported, or if integers have ``method="fft"``.
    RuntimeError
        If a call by FFT is captured in a CUDA graph.

    See Also
    --------
    conv_transpose : the transpose of this operation.

    Notes
    -----
    Along one axis, where positions outside of ``input`` contribute nothing::

        out[o] = bias + sum over c, k of input[c, i(o, k)] * weight[c, k]
        i(o, k) = o*stride - pad_before + k*dilation
        size_out = (size_in + pad_before + pad_after - dilation*(kernel - 1) - 1) // stride + 1

    The definition is from [1]_.

    With ``method="fft"`` the error of a sample is bounded in the norm, for transforms of ``size``
    elements and with a small constant ``C``::

        norm(error) <= C * eps * log2(size) * norm(input) * norm(weight)

    so that outputs that are small beside others may have no correct digit. 16-bit floats are
    transformed in float32. An Inf or NaN of an input may reach every output of its group in its
    sample, one of a weight every output of its output channel. The same call gives the same bits,
    but the last bits of a sample may depend on its batch.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x = np.arange(8.0).reshape(1, 8)
    >>> cupyconv.conv(x, np.array([[[1.0, 0.0, -1.0]]]), stride=2)
    array([[-2., -2., -2.]])
    """
    options = (stride, padding, dilation, groups, None, padding_mode)
    operands = input, weight, bias
    return convolve("conv", _geometry.conv, operands, options, precision, out, method=method)


@readable
def conv1d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
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
    """1-D convolution: `conv` with one spatial axis.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, L)`` or ``(C_in, L)``
        As in `conv`.
    weight : ndarray, shape ``(C_out, C_in/groups, K)``
        As in `conv`.
    bias, stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C_out, L_out)``
        As from `conv`.

    See Also
    --------
    conv : all parameters, the definition and the errors.
    conv_transpose1d : the transpose of this operation.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> cupyconv.conv1d(x, np.array([[[1.0, 1.0, 1.0]]]), padding="same")
    array([[3., 6., 9., 7.]])
    """
    options = (stride, padding, dilation, groups, 1, padding_mode)
    operands = input, weight, bias
    return convolve("conv1d", _geometry.conv, operands, options, precision, out, method=method)


@readable
def conv2d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
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
    """2-D convolution: `conv` with two spatial axes.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv`.
    weight : ndarray, shape ``(C_out, C_in/groups, K_h, K_w)``
        As in `conv`.
    bias, stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out, W_out)``
        As from `conv`.

    See Also
    --------
    conv : all parameters, the definition and the errors.
    conv_transpose2d : the transpose of this operation.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> image = np.arange(16.0).reshape(1, 4, 4)
    >>> laplace = np.array([[[[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]]])
    >>> cupyconv.conv2d(image, laplace)
    array([[[0., 0.],
            [0., 0.]]])
    """
    options = (stride, padding, dilation, groups, 2, padding_mode)
    operands = input, weight, bias
    return convolve("conv2d", _geometry.conv, operands, options, precision, out, method=method)


@readable
def conv3d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
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
    """3-D convolution: `conv` with three spatial axes.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        As in `conv`.
    weight : ndarray, shape ``(C_out, C_in/groups, K_d, K_h, K_w)``
        As in `conv`.
    bias, stride, padding, dilation, groups, method, padding_mode, precision, out : optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C_out, D_out, H_out, W_out)``
        As from `conv`.

    See Also
    --------
    conv : all parameters, the definition and the errors.
    conv_transpose3d : the transpose of this operation.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> volume = np.ones((1, 2, 4, 4, 4), np.float32)
    >>> cupyconv.conv3d(volume, np.ones((5, 2, 3, 3, 3), np.float32), stride=(1, 2, 2)).shape
    (1, 5, 2, 1, 1)
    """
    options = (stride, padding, dilation, groups, 3, padding_mode)
    operands = input, weight, bias
    return convolve("conv3d", _geometry.conv, operands, options, precision, out, method=method)


@readable
def depthwise_conv2d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """2-D depthwise convolution: each input channel has kernels of its own.

    It is `conv2d` with as many groups as input channels.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv`.
    weight : ndarray, shape ``(C_out, 1, K_h, K_w)``
        As in `conv`. ``C_out`` is a multiple of ``C_in``: output channel ``c*multiplier + m`` is
        computed from input channel ``c``.
    bias, stride, padding, dilation, method, padding_mode, precision, out : optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out, W_out)``
        As from `conv`.

    See Also
    --------
    conv : all parameters, the definition and the errors.
    conv2d : takes any number of groups.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> image = np.arange(18.0).reshape(2, 3, 3)
    >>> box = np.ones((2, 1, 3, 3)) / 9
    >>> cupyconv.depthwise_conv2d(image, box)
    array([[[ 4.]],
    <BLANKLINE>
           [[13.]]])
    """
    options = (stride, padding, dilation, 2, padding_mode)
    operands = input, weight, bias
    return convolve(
        "depthwise_conv2d",
        _geometry.depthwise_conv,
        operands,
        options,
        precision,
        out,
        method=method,
    )
