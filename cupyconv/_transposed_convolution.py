"""Transposed convolutions: thin wrappers around one N-d implementation."""

from __future__ import annotations

from . import _geometry
from ._arguments import IntOrSequence, Padding
from ._arrays import AnyArray, ArrayT
from ._convolve import convolve
from ._signatures import readable


@readable
def conv_transpose(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    output_size: IntOrSequence | None = None,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """N-dimensional transposed convolution.

    The number of spatial axes follows from `weight`. `conv_transpose1d`, `conv_transpose2d` and
    `conv_transpose3d` are the same for one number of axes each.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        NumPy or CuPy array with any strides, with or without a batch axis. Its dtype is float16,
        bfloat16, float32, float64, complex64, complex128 or an integer.
    weight : ndarray, shape ``(C_in, C_out/groups, *kernel)``
        Kernel: the same array that `conv` takes for the opposite direction. Each input adds it to
        the output as it is, so that with a stride of 1 the result is the convolution of signal
        processing, with a flipped kernel, as by ``numpy.convolve``. It lies on the same device as
        `input`. The two dtypes may differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the single rounding at the end.
    stride : int or sequence of int, default 1
        Output positions between the contributions of neighbouring inputs: one number for all axes,
        or one for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Positions cut off at both ends of the output: one number for all axes, one for each, or a
        pair ``(before, after)`` for each. ``"valid"`` is 0; ``"same"`` gives an output of size
        ``size * stride``.
    output_padding : int or sequence of int, default 0
        Positions by which the output is longer at its end, smaller than the stride or the dilation.
        It never enters an index. It must be 0 with ``padding="same"`` or an `output_size`.
    groups : int, default 1
        Number of groups that the channels are divided into. Each group is convolved separately.
    dilation : int or sequence of int, default 1
        Output positions between neighbouring taps of the kernel: one number for all axes, or one
        for each.
    output_size : int or sequence of int, optional
        Spatial sizes of the output: one number for all axes, or one for each. A strided `conv` maps
        several sizes to one, and the result is its exact transpose for an input of this size. By
        default `output_padding` determines the size.
    method : {"direct", "fft", "auto"}, default "direct"
        ``"direct"`` sums over the taps, ``"fft"`` multiplies spectra, and ``"auto"`` chooses FFT
        where that should be at least 1.2 times as fast, and never for integers. FFT is for floats
        and complex numbers on up to three axes; the notes of `conv` bound its error.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        Where contributions to the positions that `padding` cuts off are added, in the words of
        ``numpy.pad``: to the outputs that such a padding of the output shows. This is the transpose
        of `conv` with the same mode. By default these contributions are dropped.
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
        than three spatial axes. Nothing is written then. The error for an `output_size` names the
        sizes that are possible.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, if a dtype is not
        supported, or if integers have ``method="fft"``.
    RuntimeError
        If a call by FFT is captured in a CUDA graph.

    See Also
    --------
    conv : the transpose of this operation.

    Notes
    -----
    The linear transpose of `conv` with the same weight array and arguments (for complex arrays, the
    adjoint of `conv` takes ``conj(weight)``). Along one axis, by scatter-add::

        out[i*stride - pad_before + k*dilation] += input[c, i] * weight[c, k]
        size_out = (size_in - 1)*stride - pad_before - pad_after
                   + dilation*(kernel - 1) + output_padding + 1

    Contributions outside of the output are dropped. An `output_size` is from ``size_out`` without
    output padding to ``stride - 1`` more. With ``padding="same"`` it is from
    ``(size_in - 1)*stride + 1`` to ``size_in*stride``, and the padding is the one that `conv` takes
    for an input of that size. The definition is from [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x = np.array([[1.0, 2.0, 3.0]])
    >>> cupyconv.conv_transpose(x, np.array([[[1.0, 1.0, 1.0]]]), stride=2)
    array([[1., 1., 3., 2., 5., 3., 3.]])

    A stride of 2 maps an input of size 8 to the same size as one of size 7:

    >>> cupyconv.conv_transpose(x, np.array([[[1.0, 1.0, 1.0]]]), stride=2, output_size=8)
    array([[1., 1., 3., 2., 5., 3., 3., 0.]])
    """
    options = (stride, padding, output_padding, groups, dilation, None, output_size, padding_mode)
    operands = input, weight, bias
    return convolve(
        "conv_transpose", _geometry.conv_transpose, operands, options, precision, out, method=method
    )


@readable
def conv_transpose1d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    output_size: IntOrSequence | None = None,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """1-D transposed convolution: `conv_transpose` with one spatial axis.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, L)`` or ``(C_in, L)``
        As in `conv_transpose`.
    weight : ndarray, shape ``(C_in, C_out/groups, K)``
        As in `conv_transpose`.
    bias, stride, padding, output_padding, groups, dilation : optional
        As in `conv_transpose`.
    output_size, method, padding_mode, precision, out : optional
        As in `conv_transpose`.

    Returns
    -------
    ndarray, shape ``(N, C_out, L_out)``
        As from `conv_transpose`.

    See Also
    --------
    conv_transpose : all parameters, the definition and the errors.
    conv1d : the transpose of this operation.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x = np.array([[1.0, 2.0, 3.0]])
    >>> cupyconv.conv_transpose1d(x, np.array([[[0.5, 1.0, 0.5]]]), stride=2, padding=1)
    array([[1. , 1.5, 2. , 2.5, 3. ]])
    >>> cupyconv.conv_transpose1d(x, np.array([[[1.0, 10.0]]]))
    array([[ 1., 12., 23., 30.]])
    >>> np.convolve(x[0], np.array([1.0, 10.0]))
    array([ 1., 12., 23., 30.])
    """
    options = (stride, padding, output_padding, groups, dilation, 1, output_size, padding_mode)
    operands = input, weight, bias
    return convolve(
        "conv_transpose1d",
        _geometry.conv_transpose,
        operands,
        options,
        precision,
        out,
        method=method,
    )


@readable
def conv_transpose2d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    output_size: IntOrSequence | None = None,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """2-D transposed convolution: `conv_transpose` with two spatial axes.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv_transpose`.
    weight : ndarray, shape ``(C_in, C_out/groups, K_h, K_w)``
        As in `conv_transpose`.
    bias, stride, padding, output_padding, groups, dilation : optional
        As in `conv_transpose`.
    output_size, method, padding_mode, precision, out : optional
        As in `conv_transpose`.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out, W_out)``
        As from `conv_transpose`.

    See Also
    --------
    conv_transpose : all parameters, the definition and the errors.
    conv2d : the transpose of this operation.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    >>> cupyconv.conv_transpose2d(x, np.ones((1, 1, 2, 2)), stride=2)
    array([[[1., 1., 2., 2.],
            [1., 1., 2., 2.],
            [3., 3., 4., 4.],
            [3., 3., 4., 4.]]])
    """
    options = (stride, padding, output_padding, groups, dilation, 2, output_size, padding_mode)
    operands = input, weight, bias
    return convolve(
        "conv_transpose2d",
        _geometry.conv_transpose,
        operands,
        options,
        precision,
        out,
        method=method,
    )


@readable
def conv_transpose3d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    output_size: IntOrSequence | None = None,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """3-D transposed convolution: `conv_transpose` with three spatial axes.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        As in `conv_transpose`.
    weight : ndarray, shape ``(C_in, C_out/groups, K_d, K_h, K_w)``
        As in `conv_transpose`.
    bias, stride, padding, output_padding, groups, dilation : optional
        As in `conv_transpose`.
    output_size, method, padding_mode, precision, out : optional
        As in `conv_transpose`.

    Returns
    -------
    ndarray, shape ``(N, C_out, D_out, H_out, W_out)``
        As from `conv_transpose`.

    See Also
    --------
    conv_transpose : all parameters, the definition and the errors.
    conv3d : the transpose of this operation.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> volume = np.ones((1, 2, 4, 4, 4), np.float32)
    >>> weight = np.ones((2, 3, 3, 3, 3), np.float32)
    >>> cupyconv.conv_transpose3d(volume, weight, stride=2, padding=1, output_padding=1).shape
    (1, 3, 8, 8, 8)
    """
    options = (stride, padding, output_padding, groups, dilation, 3, output_size, padding_mode)
    operands = input, weight, bias
    return convolve(
        "conv_transpose3d",
        _geometry.conv_transpose,
        operands,
        options,
        precision,
        out,
        method=method,
    )
