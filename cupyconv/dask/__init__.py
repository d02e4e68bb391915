"""The functions of cupyconv on Dask arrays, whose chunks are CuPy or NumPy arrays.

An array may be divided into chunks along its batch and its spatial axes, but not along its channels
(only `max_pool2d` allows the latter). A result equals the result of the undivided array. It is
computed block by block: each block reads the inputs that its outputs need, from one or several
chunks, and is padded only at the ends of the undivided array. Computation starts when the result is
asked for, as usual in Dask.

Gradients of convolutions are in `cupyconv.dask.grad`.
"""

from __future__ import annotations

from collections.abc import Callable

try:
    import dask.array as da
except ImportError as error:
    raise ImportError("cupyconv.dask needs Dask: pip install 'cupyconv[dask]'") from error

from .. import _convolution, _convolution_blocks, _geometry
from .. import _transposed_convolution as transposes
from .._arguments import IntOrSequence, Padding
from .._arrays import Array
from .._blocks import ArrayOrDask
from .._convolution_blocks import Operands
from .._dask_norms import batch_norm, group_norm, max_pool2d
from .._signatures import readable
from . import grad as grad

__all__ = [
    "batch_norm",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "depthwise_conv2d",
    "group_norm",
    "max_pool2d",
]


def _convolved(
    function: Callable[..., Array],
    rank: int | None,
    operands: Operands,
    values: tuple[object, ...],
    precision: str | None,
    method: str,
) -> da.Array:
    """Return a convolution; `values` are its options in the order of the signature."""
    names = ("stride", "padding", "dilation", "groups", "padding_mode")
    options = dict(zip(names, values, strict=True))
    return _convolution_blocks.convolve(
        function, _geometry.conv, operands, options, rank, precision, method
    )


@readable
def conv(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """N-dimensional convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        Its chunks are NumPy or CuPy arrays, with all channels in one chunk and a dtype as in
        `cupyconv.conv`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, *kernel)``
        As in `cupyconv.conv`. Each block of the result needs the whole kernel.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        As in `cupyconv.conv`.
    stride, padding, dilation, groups : optional
        As in `cupyconv.conv`.
    method : {"direct", "fft", "auto"}, default "direct"
        As in `cupyconv.conv`. With ``"auto"`` the sizes of the whole array decide, so that all
        blocks are computed by one method.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        As in `cupyconv.conv`: what lies in the padding of the whole array, whatever its chunks.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv`. The `cupyconv.precision` block that counts is the one around this
        call, not one around the computation.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, *spatial_out)``
        Array whose chunks are NumPy or CuPy arrays, as in `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last chunk.

    Raises
    ------
    ValueError
        As from `cupyconv.conv`, and if the channels lie in several chunks.
    TypeError
        As from `cupyconv.conv`, and if `input` is not a Dask array.

    See Also
    --------
    cupyconv.conv : the same for one array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> x = da.arange(8.0, chunks=3).reshape(1, 8)
    >>> y = cupyconv.dask.conv(x, np.array([[[1.0, 0.0, -1.0]]]), stride=2)
    >>> y.chunks
    ((1,), (2, 1))
    >>> y.compute()
    array([[-2., -2., -2.]])
    """
    values = stride, padding, dilation, groups, padding_mode
    operands = input, weight, bias
    return _convolved(_convolution.conv, None, operands, values, precision, method)


@readable
def conv1d(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """1-D convolution of a Dask array: `conv` with one spatial axis.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, L)`` or ``(C_in, L)``
        As in `conv`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K)``
        As in `conv`.
    bias, stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv`.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, L_out)``
        As from `conv`.

    See Also
    --------
    conv : the chunks, and the errors.
    cupyconv.conv1d : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> x = da.from_array(np.array([[1.0, 2.0, 3.0, 4.0]]), chunks=2)
    >>> cupyconv.dask.conv1d(x, np.array([[[1.0, 1.0, 1.0]]]), padding="same").compute()
    array([[3., 6., 9., 7.]])
    """
    values = stride, padding, dilation, groups, padding_mode
    operands = input, weight, bias
    return _convolved(_convolution.conv1d, 1, operands, values, precision, method)


@readable
def conv2d(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """2-D convolution of a Dask array: `conv` with two spatial axes.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K_h, K_w)``
        As in `conv`.
    bias, stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv`.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        As from `conv`.

    See Also
    --------
    conv : the chunks, and the errors.
    cupyconv.conv2d : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> images = da.ones((8, 3, 512, 512), chunks=(4, -1, 256, 256))
    >>> y = cupyconv.dask.conv2d(images, np.ones((16, 3, 3, 3)), stride=2, padding=1)
    >>> y.chunks
    ((4, 4), (16,), (128, 128), (128, 128))
    >>> y[0, 0, 100:102, 0].compute()
    array([18., 18.])
    """
    values = stride, padding, dilation, groups, padding_mode
    operands = input, weight, bias
    return _convolved(_convolution.conv2d, 2, operands, values, precision, method)


@readable
def conv3d(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """3-D convolution of a Dask array: `conv` with three spatial axes.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        As in `conv`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K_d, K_h, K_w)``
        As in `conv`.
    bias, stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv`.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, D_out, H_out, W_out)``
        As from `conv`.

    See Also
    --------
    conv : the chunks, and the errors.
    cupyconv.conv3d : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> volume = da.ones((1, 60, 40, 40), chunks=(-1, 20, 20, -1))
    >>> y = cupyconv.dask.conv3d(volume, np.ones((2, 1, 3, 3, 3)), padding="same")
    >>> y.chunks
    ((2,), (20, 20, 20), (20, 20), (40,))
    >>> float(y[0, 30, 20, 20])
    27.0
    """
    values = stride, padding, dilation, groups, padding_mode
    operands = input, weight, bias
    return _convolved(_convolution.conv3d, 3, operands, values, precision, method)


def _transposed(
    function: Callable[..., Array],
    rank: int | None,
    operands: Operands,
    values: tuple[object, ...],
    precision: str | None,
    method: str,
) -> da.Array:
    """Return a transposed convolution; `values` are its options in the order of the signature."""
    names = "stride", "padding", "output_padding", "groups", "dilation", "output_size"
    options = dict(zip((*names, "padding_mode"), values, strict=True))
    describe = _geometry.conv_transpose
    return _convolution_blocks.convolve(
        function, describe, operands, options, rank, precision, method
    )


@readable
def conv_transpose(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
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
) -> da.Array:
    """N-dimensional transposed convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        Its chunks are NumPy or CuPy arrays, with all channels in one chunk and a dtype as in
        `cupyconv.conv_transpose`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, *kernel)``
        As in `cupyconv.conv_transpose`. Each block of the result needs the whole kernel.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        As in `cupyconv.conv_transpose`.
    stride, padding, output_padding, groups, dilation, output_size : optional
        As in `cupyconv.conv_transpose`.
    method : {"direct", "fft", "auto"}, default "direct"
        As in `cupyconv.conv_transpose`. With ``"auto"`` the sizes of the whole array decide, so
        that all blocks are computed by one method.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        As in `cupyconv.conv_transpose`, with the padding of the whole result.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv_transpose`. The `cupyconv.precision` block that counts is the one
        around this call, not one around the computation.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, *spatial_out)``
        Array whose chunks are NumPy or CuPy arrays, as in `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o // stride``, or to the last chunk.

    Raises
    ------
    ValueError
        As from `cupyconv.conv_transpose`, and if the channels lie in several chunks.
    TypeError
        As from `cupyconv.conv_transpose`, and if `input` is not a Dask array.

    See Also
    --------
    cupyconv.conv_transpose : the same for one array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> x = da.from_array(np.array([[1.0, 2.0, 3.0]]), chunks=2)
    >>> y = cupyconv.dask.conv_transpose(x, np.array([[[1.0, 1.0, 1.0]]]), stride=2)
    >>> y.chunks
    ((1,), (4, 3))
    >>> y.compute()
    array([[1., 1., 3., 2., 5., 3., 3.]])
    """
    values = stride, padding, output_padding, groups, dilation, output_size, padding_mode
    operands = input, weight, bias
    return _transposed(transposes.conv_transpose, None, operands, values, precision, method)


@readable
def conv_transpose1d(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
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
) -> da.Array:
    """1-D transposed convolution of a Dask array: `conv_transpose` with one spatial axis.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, L)`` or ``(C_in, L)``
        As in `conv_transpose`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, K)``
        As in `conv_transpose`.
    bias, stride, padding, output_padding, groups, dilation : optional
        As in `conv_transpose`.
    output_size, method, padding_mode, precision : optional
        As in `conv_transpose`.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, L_out)``
        As from `conv_transpose`.

    See Also
    --------
    conv_transpose : the chunks, and the errors.
    cupyconv.conv_transpose1d : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> x = da.from_array(np.array([[1.0, 2.0, 3.0]]), chunks=1)
    >>> kernel = np.array([[[1.0, 10.0, 100.0]]])
    >>> cupyconv.dask.conv_transpose1d(
    ...     x, kernel, stride=2, padding=1, output_padding=1
    ... ).compute()
    array([[ 10., 102.,  20., 203.,  30., 300.]])
    """
    values = stride, padding, output_padding, groups, dilation, output_size, padding_mode
    operands = input, weight, bias
    return _transposed(transposes.conv_transpose1d, 1, operands, values, precision, method)


@readable
def conv_transpose2d(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
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
) -> da.Array:
    """2-D transposed convolution of a Dask array: `conv_transpose` with two spatial axes.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv_transpose`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, K_h, K_w)``
        As in `conv_transpose`.
    bias, stride, padding, output_padding, groups, dilation : optional
        As in `conv_transpose`.
    output_size, method, padding_mode, precision : optional
        As in `conv_transpose`.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        As from `conv_transpose`.

    See Also
    --------
    conv_transpose : the chunks, and the errors.
    cupyconv.conv_transpose2d : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> x = da.ones((8, 16, 256, 256), chunks=(4, -1, 128, 128))
    >>> y = cupyconv.dask.conv_transpose2d(
    ...     x, np.ones((16, 3, 4, 4)), stride=2, padding=1
    ... )
    >>> y.chunks
    ((4, 4), (3,), (256, 256), (256, 256))
    >>> float(y[0, 0, 255, 255])
    64.0
    """
    values = stride, padding, output_padding, groups, dilation, output_size, padding_mode
    operands = input, weight, bias
    return _transposed(transposes.conv_transpose2d, 2, operands, values, precision, method)


@readable
def conv_transpose3d(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
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
) -> da.Array:
    """3-D transposed convolution of a Dask array: `conv_transpose` with three spatial axes.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        As in `conv_transpose`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, K_d, K_h, K_w)``
        As in `conv_transpose`.
    bias, stride, padding, output_padding, groups, dilation : optional
        As in `conv_transpose`.
    output_size, method, padding_mode, precision : optional
        As in `conv_transpose`.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, D_out, H_out, W_out)``
        As from `conv_transpose`.

    See Also
    --------
    conv_transpose : the chunks, and the errors.
    cupyconv.conv_transpose3d : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> volume = da.ones((2, 30, 20, 20), chunks=(-1, 10, 10, -1))
    >>> y = cupyconv.dask.conv_transpose3d(volume, np.ones((2, 1, 2, 2, 2)), stride=2)
    >>> y.chunks
    ((1,), (20, 20, 20), (20, 20), (40,))
    """
    values = stride, padding, output_padding, groups, dilation, output_size, padding_mode
    operands = input, weight, bias
    return _transposed(transposes.conv_transpose3d, 3, operands, values, precision, method)


@readable
def depthwise_conv2d(
    input: da.Array,
    weight: ArrayOrDask,
    bias: ArrayOrDask | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """2-D depthwise convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv`.
    weight : ndarray or dask.array.Array, shape ``(C_out, 1, K_h, K_w)``
        As in `cupyconv.depthwise_conv2d`.
    bias, stride, padding, dilation, method, padding_mode, precision : optional
        As in `conv`.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        As from `conv`.

    See Also
    --------
    conv : the chunks, and the errors.
    cupyconv.depthwise_conv2d : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> image = da.arange(18.0, chunks=18).reshape(2, 3, 3)
    >>> box = np.ones((2, 1, 3, 3)) / 9
    >>> cupyconv.dask.depthwise_conv2d(image.rechunk((2, 1, 2)), box).compute()
    array([[[ 4.]],
    <BLANKLINE>
           [[13.]]])
    """
    function, describe = _convolution.depthwise_conv2d, _geometry.depthwise_conv
    options = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "padding_mode": padding_mode,
    }
    operands = input, weight, bias
    return _convolution_blocks.convolve(function, describe, operands, options, 2, precision, method)
