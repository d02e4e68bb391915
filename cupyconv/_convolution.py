"""Convolution and transposed convolution: one N-d implementation, thin names around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import _arrays as arrays
from . import _calls, _geometry, _precision
from ._arguments import IntOrSequence, Padding
from ._arrays import AnyArray, Array, ArrayT, Convolution
from ._geometry import ConvGeometry
from ._paths import path_of


@dataclass
class _Call:
    """A call that was found right."""

    geometry: ConvGeometry
    kind: Callable[[tuple[int, ...], np.dtype], Array]  # of the result
    dtype: np.dtype
    precision: str
    convolve: Convolution | None = None  # once it has been prepared


def _checked(
    name: str,
    describe: Callable[..., ConvGeometry],
    input: Array,
    weight: Array,
    bias: Array | None,
    options: tuple[object, ...],
    precision: str | None,
    out: Array | None,
) -> _Call:
    """Return the call of these arguments, or raise what is wrong with them but for `out`."""
    arrays.check(name, {"input": input, "weight": weight}, {"bias": bias, "out": out})
    bias_shape = None if bias is None else bias.shape
    geometry = describe(name, input.shape, weight.shape, bias_shape, *options)
    dtype = arrays.result_dtype(name, input, weight)
    arrays.check_bias(name, bias, dtype)
    return _Call(geometry, arrays.kind_of(input), dtype, _precision.resolve(name, precision))


def _run(
    name: str,
    describe: Callable[..., ConvGeometry],
    input: ArrayT,
    weight: Array,
    bias: Array | None,
    options: tuple[object, ...],
    precision: str | None,
    out: Array | None,
) -> ArrayT:
    """Return a convolution, whose geometry `describe` makes of the shapes and the `options`."""
    path = path_of(input)
    layouts = (
        arrays.layout(input),
        arrays.layout(weight),
        () if bias is None else arrays.layout(bias),
        () if out is None else arrays.layout(out),
    )
    key = _calls.key(name, path, layouts, (*options, precision))
    call: _Call = _calls.kept.get(key) or _checked(
        name, describe, input, weight, bias, options, precision, out
    )
    shape = call.geometry.out_shape
    if out is not None:
        inputs = {"input": input, "weight": weight, "bias": bias}
        arrays.check_out(name, out, shape, call.dtype, inputs)
    with arrays.on_device(input):
        result: ArrayT = call.kind(shape, call.dtype) if out is None else out
        if result.size:
            if call.convolve is None:
                operands = input, weight, bias, result
                call.convolve = path.prepare(call.geometry, *operands, call.precision)
                _calls.keep(key, call)
            call.convolve(input, weight, bias, result)
    return result


def conv(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """N-dimensional convolution.

    The number of spatial axes is taken from `weight`.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_out, C_in/groups, *kernel)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of neighbouring outputs, in inputs, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Absent inputs at the borders, for all axes, for each, or as ``(before, after)`` for each;
        they contribute nothing, even to an infinite weight.
        ``"valid"`` is 0; ``"same"`` gives an output of ``ceil(size / stride)``.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, *spatial_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv_transpose : the transpose of this operation.

    Notes
    -----
    Along one axis, with nothing where ``input`` has no element::

        out[o] = bias + sum over c, k of input[c, o*stride - pad_before + k*dilation] * weight[c, k]
        size_out = (size_in + pad_before + pad_after - dilation*(kernel - 1) - 1) // stride + 1

    The definition is that of [1]_.

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
    options = (stride, padding, dilation, groups, None)
    return _run("conv", _geometry.conv, input, weight, bias, options, precision, out)


def conv1d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """1-D convolution.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, L)`` or ``(C_in, L)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_out, C_in/groups, K)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of neighbouring outputs, in inputs, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Absent inputs at the borders, for all axes, for each, or as ``(before, after)`` for each;
        they contribute nothing, even to an infinite weight.
        ``"valid"`` is 0; ``"same"`` gives an output of ``ceil(size / stride)``.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, L_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv_transpose1d : the transpose of this operation.

    Notes
    -----
    Along one axis, with nothing where ``input`` has no element::

        out[o] = bias + sum over c, k of input[c, o*stride - pad_before + k*dilation] * weight[c, k]
        size_out = (size_in + pad_before + pad_after - dilation*(kernel - 1) - 1) // stride + 1

    The definition is that of [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> cupyconv.conv1d(x, np.array([[[1.0, 1.0, 1.0]]]), padding="same")
    array([[3., 6., 9., 7.]])
    """
    options = (stride, padding, dilation, groups, 1)
    return _run("conv1d", _geometry.conv, input, weight, bias, options, precision, out)


def conv2d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """2-D convolution.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_out, C_in/groups, K_h, K_w)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of neighbouring outputs, in inputs, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Absent inputs at the borders, for all axes, for each, or as ``(before, after)`` for each;
        they contribute nothing, even to an infinite weight.
        ``"valid"`` is 0; ``"same"`` gives an output of ``ceil(size / stride)``.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out, W_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv_transpose2d : the transpose of this operation.

    Notes
    -----
    Along one axis, with nothing where ``input`` has no element::

        out[o] = bias + sum over c, k of input[c, o*stride - pad_before + k*dilation] * weight[c, k]
        size_out = (size_in + pad_before + pad_after - dilation*(kernel - 1) - 1) // stride + 1

    The definition is that of [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

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
    options = (stride, padding, dilation, groups, 2)
    return _run("conv2d", _geometry.conv, input, weight, bias, options, precision, out)


def conv3d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """3-D convolution.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_out, C_in/groups, K_d, K_h, K_w)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of neighbouring outputs, in inputs, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Absent inputs at the borders, for all axes, for each, or as ``(before, after)`` for each;
        they contribute nothing, even to an infinite weight.
        ``"valid"`` is 0; ``"same"`` gives an output of ``ceil(size / stride)``.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, D_out, H_out, W_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv_transpose3d : the transpose of this operation.

    Notes
    -----
    Along one axis, with nothing where ``input`` has no element::

        out[o] = bias + sum over c, k of input[c, o*stride - pad_before + k*dilation] * weight[c, k]
        size_out = (size_in + pad_before + pad_after - dilation*(kernel - 1) - 1) // stride + 1

    The definition is that of [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> volume = np.ones((1, 2, 4, 4, 4), np.float32)
    >>> cupyconv.conv3d(volume, np.ones((5, 2, 3, 3, 3), np.float32), stride=(1, 2, 2)).shape
    (1, 5, 2, 1, 1)
    """
    options = (stride, padding, dilation, groups, 3)
    return _run("conv3d", _geometry.conv, input, weight, bias, options, precision, out)


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
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """N-dimensional transposed convolution.

    The number of spatial axes is taken from `weight`.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_in, C_out/groups, *kernel)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of the outputs that neighbouring inputs begin at, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Outputs cut off at the borders, for all axes, for each, or as ``(before, after)`` for
        each. ``"valid"`` is 0; ``"same"`` gives an output of ``size * stride``.
    output_padding : int or sequence of int, default 0
        Lengthens the output at its end, to tell apart the sizes that a strided convolution maps to
        one; smaller than the stride or the dilation. It never enters an index.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, *spatial_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv : the transpose of this operation.

    Notes
    -----
    The linear transpose of the convolution with the same weight array and arguments (for complex
    arrays the adjoint is the one with ``conj(weight)``). Along one axis, by scatter-add::

        out[i*stride - pad_before + k*dilation] += input[c, i] * weight[c, k]
        size_out = (size_in - 1)*stride - pad_before - pad_after
                   + dilation*(kernel - 1) + output_padding + 1

    Contributions outside of the output are dropped. The definition is that of [1]_.

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
    """
    options = (stride, padding, output_padding, groups, dilation, None)
    return _run(
        "conv_transpose", _geometry.conv_transpose, input, weight, bias, options, precision, out
    )


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
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """1-D transposed convolution.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, L)`` or ``(C_in, L)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_in, C_out/groups, K)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of the outputs that neighbouring inputs begin at, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Outputs cut off at the borders, for all axes, for each, or as ``(before, after)`` for
        each. ``"valid"`` is 0; ``"same"`` gives an output of ``size * stride``.
    output_padding : int or sequence of int, default 0
        Lengthens the output at its end, to tell apart the sizes that a strided convolution maps to
        one; smaller than the stride or the dilation. It never enters an index.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, L_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv1d : the transpose of this operation.

    Notes
    -----
    The linear transpose of the convolution with the same weight array and arguments (for complex
    arrays the adjoint is the one with ``conj(weight)``). Along one axis, by scatter-add::

        out[i*stride - pad_before + k*dilation] += input[c, i] * weight[c, k]
        size_out = (size_in - 1)*stride - pad_before - pad_after
                   + dilation*(kernel - 1) + output_padding + 1

    Contributions outside of the output are dropped. The definition is that of [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> x = np.array([[1.0, 2.0, 3.0]])
    >>> cupyconv.conv_transpose1d(x, np.array([[[0.5, 1.0, 0.5]]]), stride=2, padding=1)
    array([[1. , 1.5, 2. , 2.5, 3. ]])
    """
    options = (stride, padding, output_padding, groups, dilation, 1)
    return _run(
        "conv_transpose1d", _geometry.conv_transpose, input, weight, bias, options, precision, out
    )


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
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """2-D transposed convolution.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_in, C_out/groups, K_h, K_w)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of the outputs that neighbouring inputs begin at, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Outputs cut off at the borders, for all axes, for each, or as ``(before, after)`` for
        each. ``"valid"`` is 0; ``"same"`` gives an output of ``size * stride``.
    output_padding : int or sequence of int, default 0
        Lengthens the output at its end, to tell apart the sizes that a strided convolution maps to
        one; smaller than the stride or the dilation. It never enters an index.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out, W_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv2d : the transpose of this operation.

    Notes
    -----
    The linear transpose of the convolution with the same weight array and arguments (for complex
    arrays the adjoint is the one with ``conj(weight)``). Along one axis, by scatter-add::

        out[i*stride - pad_before + k*dilation] += input[c, i] * weight[c, k]
        size_out = (size_in - 1)*stride - pad_before - pad_after
                   + dilation*(kernel - 1) + output_padding + 1

    Contributions outside of the output are dropped. The definition is that of [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

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
    options = (stride, padding, output_padding, groups, dilation, 2)
    return _run(
        "conv_transpose2d", _geometry.conv_transpose, input, weight, bias, options, precision, out
    )


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
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """3-D transposed convolution.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_in, C_out/groups, K_d, K_h, K_w)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of the outputs that neighbouring inputs begin at, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Outputs cut off at the borders, for all axes, for each, or as ``(before, after)`` for
        each. ``"valid"`` is 0; ``"same"`` gives an output of ``size * stride``.
    output_padding : int or sequence of int, default 0
        Lengthens the output at its end, to tell apart the sizes that a strided convolution maps to
        one; smaller than the stride or the dilation. It never enters an index.
    groups : int, default 1
        Channels are divided into so many groups, each convolved on its own.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, D_out, H_out, W_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv3d : the transpose of this operation.

    Notes
    -----
    The linear transpose of the convolution with the same weight array and arguments (for complex
    arrays the adjoint is the one with ``conj(weight)``). Along one axis, by scatter-add::

        out[i*stride - pad_before + k*dilation] += input[c, i] * weight[c, k]
        size_out = (size_in - 1)*stride - pad_before - pad_after
                   + dilation*(kernel - 1) + output_padding + 1

    Contributions outside of the output are dropped. The definition is that of [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> volume = np.ones((1, 2, 4, 4, 4), np.float32)
    >>> weight = np.ones((2, 3, 3, 3, 3), np.float32)
    >>> cupyconv.conv_transpose3d(volume, weight, stride=2, padding=1, output_padding=1).shape
    (1, 3, 8, 8, 8)
    """
    options = (stride, padding, output_padding, groups, dilation, 3)
    return _run(
        "conv_transpose3d", _geometry.conv_transpose, input, weight, bias, options, precision, out
    )


def depthwise_conv2d(
    input: ArrayT,
    weight: AnyArray,
    bias: AnyArray | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    *,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """2-D depthwise convolution: each channel has kernels of its own.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64,
        complex64, complex128 and the integers.
    weight : ndarray, shape ``(C_out, 1, K_h, K_w)``
        Kernel; not flipped (cross-correlation). On the same device as `input`. Its dtype may
        differ, as long as NumPy has a common one. ``C_out`` is a multiple of ``C_in``; output
        channel ``c*multiplier + m`` belongs to input channel ``c``.
    bias : ndarray, shape ``(C_out,)``, optional
        Added to each output channel before the one rounding at the end.
    stride : int or sequence of int, default 1
        Distance of neighbouring outputs, in inputs, for all axes or for each.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Absent inputs at the borders, for all axes, for each, or as ``(before, after)`` for each;
        they contribute nothing, even to an infinite weight.
        ``"valid"`` is 0; ``"same"`` gives an output of ``ceil(size / stride)``.
    dilation : int or sequence of int, default 1
        Distance of neighbouring taps of the kernel, for all axes or for each.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of float32 arrays; by default that of the enclosing
        `cupyconv.precision` block, else ``"float32"``. Other dtypes ignore it.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out, W_out)``
        `out`, or a new array on the device of `input`; no batch axis where `input` has none. Its
        dtype is NumPy's ``result_type`` of input and weight. 16-bit floats are summed in float32;
        integers are exact modulo 2**bits.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv2d : the same with any number of groups.

    Notes
    -----
    Along one axis, with nothing where ``input`` has no element::

        out[o] = bias + sum over k of input[o*stride - pad_before + k*dilation] * weight[k]
        size_out = (size_in + pad_before + pad_after - dilation*(kernel - 1) - 1) // stride + 1

    The definition is that of [1]_.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning",
       arXiv:1603.07285, 2016.

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
    options = (stride, padding, dilation, 2)
    describe = _geometry.depthwise_conv
    return _run("depthwise_conv2d", describe, input, weight, bias, options, precision, out)
