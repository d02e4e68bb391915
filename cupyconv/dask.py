"""The functions of cupyconv on Dask arrays, whose chunks are CuPy or NumPy arrays.

Arrays may be divided into chunks over the batch and over space, not over channels. A result is
that of the whole array, computed block by block: each block reads the inputs that reach it, from
as many chunks as it takes, and is padded only where the whole array ends. Nothing is computed
before the result is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _blocks, _convolution, _geometry
from ._arguments import IntOrSequence, Padding
from ._arrays import Array

if TYPE_CHECKING:
    import dask.array as da

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


def conv(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """N-dimensional convolution of a Dask array.

    The number of spatial axes is taken from `weight`.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, *kernel)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, dilation, groups
        As in `cupyconv.conv`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, *spatial_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv : the same on a whole array, with the definition.

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
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _blocks.convolve(
        _convolution.conv, _geometry.conv, input, weight, bias, options, None, precision
    )


def conv1d(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """1-D convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, L)`` or ``(C_in, L)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv1d`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, dilation, groups
        As in `cupyconv.conv1d`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv1d`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, L_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv1d : the same on a whole array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> x = da.from_array(np.array([[1.0, 2.0, 3.0, 4.0]]), chunks=2)
    >>> cupyconv.dask.conv1d(x, np.array([[[1.0, 1.0, 1.0]]]), padding="same").compute()
    array([[3., 6., 9., 7.]])
    """
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _blocks.convolve(
        _convolution.conv1d, _geometry.conv, input, weight, bias, options, 1, precision
    )


def conv2d(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """2-D convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv2d`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K_h, K_w)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, dilation, groups
        As in `cupyconv.conv2d`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv2d`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv2d : the same on a whole array, with the definition.

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
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _blocks.convolve(
        _convolution.conv2d, _geometry.conv, input, weight, bias, options, 2, precision
    )


def conv3d(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """3-D convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv3d`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K_d, K_h, K_w)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, dilation, groups
        As in `cupyconv.conv3d`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv3d`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, D_out, H_out, W_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv3d : the same on a whole array, with the definition.

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
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _blocks.convolve(
        _convolution.conv3d, _geometry.conv, input, weight, bias, options, 3, precision
    )


def _transposed(
    function: Callable[..., Array],
    input: da.Array,
    weight: Array,
    bias: Array | None,
    steps: tuple[object, ...],
    rank: int | None,
    precision: str | None,
) -> da.Array:
    """Return a transposed convolution; `steps` are its arguments behind the arrays, in order."""
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    options = dict(zip(names, steps, strict=True))
    describe = _geometry.conv_transpose
    return _blocks.convolve(function, describe, input, weight, bias, options, rank, precision)


def conv_transpose(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """N-dimensional transposed convolution of a Dask array.

    The number of spatial axes is taken from `weight`.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv_transpose`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, *kernel)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, output_padding, groups, dilation
        As in `cupyconv.conv_transpose`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv_transpose`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, *spatial_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o // stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv_transpose : the same on a whole array, with the definition.

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
    steps = stride, padding, output_padding, groups, dilation
    return _transposed(_convolution.conv_transpose, input, weight, bias, steps, None, precision)


def conv_transpose1d(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """1-D transposed convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, L)`` or ``(C_in, L)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv_transpose1d`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, K)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, output_padding, groups, dilation
        As in `cupyconv.conv_transpose1d`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv_transpose1d`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, L_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o // stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv_transpose1d : the same on a whole array, with the definition.

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
    steps = stride, padding, output_padding, groups, dilation
    return _transposed(_convolution.conv_transpose1d, input, weight, bias, steps, 1, precision)


def conv_transpose2d(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """2-D transposed convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv_transpose2d`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, K_h, K_w)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, output_padding, groups, dilation
        As in `cupyconv.conv_transpose2d`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv_transpose2d`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o // stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv_transpose2d : the same on a whole array, with the definition.

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
    steps = stride, padding, output_padding, groups, dilation
    return _transposed(_convolution.conv_transpose2d, input, weight, bias, steps, 2, precision)


def conv_transpose3d(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    dilation: IntOrSequence = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """3-D transposed convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk;
        dtypes as in `cupyconv.conv_transpose3d`.
    weight : ndarray or dask.array.Array, shape ``(C_in, C_out/groups, K_d, K_h, K_w)``
        Kernel; not flipped. Each block of the result needs all of it.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, output_padding, groups, dilation
        As in `cupyconv.conv_transpose3d`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv_transpose3d`; by default that of the
        `cupyconv.precision` block around this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, D_out, H_out, W_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o // stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.conv_transpose3d : the same on a whole array, with the definition.

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
    steps = stride, padding, output_padding, groups, dilation
    return _transposed(_convolution.conv_transpose3d, input, weight, bias, steps, 3, precision)


def depthwise_conv2d(
    input: da.Array,
    weight: Array,
    bias: Array | None = None,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    *,
    precision: str | None = None,
) -> da.Array:
    """2-D depthwise convolution of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk. dtypes as in
        `cupyconv.depthwise_conv2d`.
    weight : ndarray or dask.array.Array, shape ``(C_out, 1, K_h, K_w)``
        Kernel; not flipped. ``C_out`` is a multiple of ``C_in``.
    bias : ndarray or dask.array.Array, shape ``(C_out,)``, optional
        Added to each output channel.
    stride, padding, dilation
        As in `cupyconv.depthwise_conv2d`.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.depthwise_conv2d`; by default that of the `cupyconv.precision` block around
        this call.

    Returns
    -------
    dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.depthwise_conv2d : the same on a whole array, with the definition.

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
    return _blocks.convolve(
        _convolution.depthwise_conv2d,
        _geometry.depthwise_conv,
        input,
        weight,
        bias,
        {"stride": stride, "padding": padding, "dilation": dilation},
        2,
        precision,
    )


def batch_norm(
    input: da.Array,
    mean: Array,
    var: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
) -> da.Array:
    """Batch normalisation of a Dask array, with given statistics.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C, *spatial)``
        Chunks are NumPy or CuPy arrays, with all channels in one chunk. dtypes as in
        `cupyconv.batch_norm`.
    mean, var : ndarray or dask.array.Array, shape ``(C,)``
        Statistics of the channels. Those of `input` itself are reductions of Dask, see the
        example.
    weight, bias : ndarray or dask.array.Array, shape ``(C,)``, optional
        Scale and shift of the channels; 1 and 0 where they are not given.
    eps : float, default 1e-5
        Added to the variance.

    Returns
    -------
    dask.array.Array, shape ``(N, C, *spatial)``
        In the chunks of `input`.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for channels in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.batch_norm : the same on a whole array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import cupyconv.dask
    >>> x = da.arange(8.0, chunks=8).reshape(4, 1, 2).rechunk((1, -1, -1))
    >>> mean, var = x.mean(axis=(0, 2)), x.var(axis=(0, 2))
    >>> y = cupyconv.dask.batch_norm(x, mean, var, eps=0.0)
    >>> float(y.std())
    1.0
    """
    return _blocks.batch_norm(input, mean, var, weight, bias, eps)


def group_norm(
    input: da.Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> da.Array:
    """Group normalisation of a Dask array that is divided along its batch alone.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C, *spatial)``
        Chunks are NumPy or CuPy arrays, with each sample in one chunk. dtypes as in
        `cupyconv.group_norm`.
    num_groups : int
        Number of groups of neighbouring channels; divides C.
    weight, bias : ndarray or dask.array.Array, shape ``(C,)``, optional
        Scale and shift of the channels; 1 and 0 where they are not given.
    eps : float, default 1e-5
        Added to the variance.

    Returns
    -------
    dask.array.Array, shape ``(N, C, *spatial)``
        In the chunks of `input`.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and for samples in several chunks.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    cupyconv.group_norm : the same on a whole array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> x = da.from_array(np.array([[1.0, 3.0, 10.0, 30.0]] * 2), chunks=(1, -1))
    >>> cupyconv.dask.group_norm(x, 2, eps=0.0).compute()
    array([[-1.,  1., -1.,  1.],
           [-1.,  1., -1.,  1.]])
    """
    return _blocks.group_norm(input, num_groups, weight, bias, eps)


def max_pool2d(
    input: da.Array,
    kernel_size: IntOrSequence,
    stride: IntOrSequence | None = None,
    padding: IntOrSequence = 0,
    dilation: IntOrSequence = 1,
    ceil_mode: bool = False,
) -> da.Array:
    """2-D max pooling of a Dask array.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C, H, W)`` or ``(C, H, W)``
        Chunks are NumPy or CuPy arrays; here channels may be divided, too. dtypes as in
        `cupyconv.max_pool2d`.
    kernel_size, stride, padding, dilation, ceil_mode
        As in `cupyconv.max_pool2d`.

    Returns
    -------
    dask.array.Array, shape ``(N, C, H_out, W_out)``
        Its chunks are NumPy or CuPy arrays, as those of `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last one.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and where a window would hold no input.
    TypeError
        For arrays of another kind and unsupported dtypes.

    See Also
    --------
    cupyconv.max_pool2d : the same on a whole array.

    Examples
    --------
    >>> import dask.array as da
    >>> import cupyconv.dask
    >>> x = da.arange(16, chunks=16).reshape(1, 4, 4).rechunk((1, 3, 1))
    >>> cupyconv.dask.max_pool2d(x, 2).compute()
    array([[[ 5,  7],
            [13, 15]]])
    """
    options = {
        "kernel_size": kernel_size,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": ceil_mode,
    }
    return _blocks.max_pool2d(input, options)
