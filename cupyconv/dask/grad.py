"""Gradients of convolutions on Dask arrays, with respect to the input and to the weight.

A gradient equals that of the undivided arrays. `conv_input` is computed block by block, like a
transposed convolution. `conv_weight` adds up the gradients of all chunks, in an order that follows
from the chunks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import _convolution_blocks, _transposed_convolution, _weight_blocks
from .. import _gradient_geometry as geometry
from .._arguments import IntOrSequence, Padding
from .._blocks import ArrayOrDask
from .._signatures import readable

if TYPE_CHECKING:
    import dask.array as da

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


def _input_gradient(
    name: str,
    grad_output: da.Array,
    weight: ArrayOrDask,
    values: tuple[object, ...],
    rank: int | None,
    precision: str | None,
    method: str,
) -> da.Array:
    """Return a gradient with respect to the input, which is a transposed convolution."""
    names = ("input_size", "stride", "padding", "dilation", "groups", "padding_mode")
    return _convolution_blocks.convolve(
        _transposed_convolution.conv_transpose,
        geometry.conv_input,
        (grad_output, weight, None),
        dict(zip(names, values, strict=True)),
        rank,
        precision,
        method,
        name,
        "grad_output",
    )


def _weight_gradient(
    name: str,
    operands: tuple[da.Array, da.Array],
    values: tuple[object, ...],
    rank: int | None,
    precision: str | None,
    method: str,
) -> da.Array:
    """Return a gradient with respect to the weight."""
    names = ("weight_size", "stride", "padding", "dilation", "groups", "padding_mode")
    options = dict(zip(names, values, strict=True))
    return _weight_blocks.conv_weight(name, operands, options, rank, precision, method)


@readable
def conv_input(
    input_size: Sequence[int],
    weight: ArrayOrDask,
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of an N-dimensional convolution of a Dask array with respect to its input.

    Parameters
    ----------
    input_size : sequence of int
        Shape of the convolution's input, ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, *kernel)``
        As in `cupyconv.grad.conv_input`. Each block of the result needs the whole kernel.
    grad_output : dask.array.Array, shape ``(N, C_out, *spatial_out)`` or ``(C_out, *spatial_out)``
        Its chunks are NumPy or CuPy arrays, with all channels in one chunk and a dtype as in
        `cupyconv.grad.conv_input`.
    stride, padding, dilation, groups : optional
        The arguments that `cupyconv.conv` was called with.
    method : {"direct", "fft", "auto"}, default "direct"
        As in `cupyconv.conv`. With ``"auto"`` the sizes of the whole array decide, so that all
        blocks are computed by one method.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        The `padding_mode` that `cupyconv.conv` was called with.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv`. The `cupyconv.precision` block that counts is the one around this
        call, not one around the computation.

    Returns
    -------
    dask.array.Array, shape `input_size`
        Array whose chunks are NumPy or CuPy arrays, as in `grad_output`. The position ``i`` of the
        input belongs to the chunk that holds `grad_output` at ``i // stride``, or to the last
        chunk.

    Raises
    ------
    ValueError
        As from `cupyconv.grad.conv_input`, and if the channels lie in several chunks.
    TypeError
        As from `cupyconv.grad.conv_input`, and if `grad_output` is not a Dask array.

    See Also
    --------
    conv_weight : the gradient with respect to the weight.
    cupyconv.grad.conv_input : the same for one array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> w, y = np.array([[[1.0, 2.0, 3.0]]]), da.ones((1, 3), chunks=(1, 2))
    >>> gradient = cupyconv.dask.grad.conv_input((1, 8), w, y, stride=2)
    >>> gradient.chunks
    ((1,), (4, 4))
    >>> gradient.compute()
    array([[1., 2., 4., 2., 4., 2., 3., 0.]])
    """
    values = input_size, stride, padding, dilation, groups, padding_mode
    return _input_gradient("conv_input", grad_output, weight, values, None, precision, method)


@readable
def conv1d_input(
    input_size: Sequence[int],
    weight: ArrayOrDask,
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of `cupyconv.dask.conv1d` with respect to its input.

    It is `conv_input` with one spatial axis.

    Parameters
    ----------
    input_size : sequence of int
        Shape ``(N, C_in, L)`` or ``(C_in, L)``, as in `conv_input`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K)``
        As in `conv_input`.
    grad_output : dask.array.Array, shape ``(N, C_out, L_out)``
        With a batch axis or without, as in `conv_input`.
    stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv_input`.

    Returns
    -------
    dask.array.Array, shape `input_size`
        As from `conv_input`.

    See Also
    --------
    conv_input : the chunks, and the errors.
    conv1d_weight : the gradient with respect to the weight.
    cupyconv.grad.conv1d_input : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> w, y = np.array([[[1.0, 10.0]]]), da.from_array(np.array([[1.0, 2.0, 3.0]]), chunks=2)
    >>> cupyconv.dask.grad.conv1d_input((1, 4), w, y).compute()
    array([[ 1., 12., 23., 30.]])
    """
    values = input_size, stride, padding, dilation, groups, padding_mode
    return _input_gradient("conv1d_input", grad_output, weight, values, 1, precision, method)


@readable
def conv2d_input(
    input_size: Sequence[int],
    weight: ArrayOrDask,
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of `cupyconv.dask.conv2d` with respect to its input.

    It is `conv_input` with two spatial axes.

    Parameters
    ----------
    input_size : sequence of int
        Shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``, as in `conv_input`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K_h, K_w)``
        As in `conv_input`.
    grad_output : dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        With a batch axis or without, as in `conv_input`.
    stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv_input`.

    Returns
    -------
    dask.array.Array, shape `input_size`
        As from `conv_input`.

    See Also
    --------
    conv_input : the chunks, and the errors.
    conv2d_weight : the gradient with respect to the weight.
    cupyconv.grad.conv2d_input : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> y = da.ones((8, 16, 128, 128), chunks=(4, -1, 64, 64))
    >>> gradient = cupyconv.dask.grad.conv2d_input(
    ...     (8, 3, 256, 256), np.ones((16, 3, 3, 3)), y, stride=2, padding=1
    ... )
    >>> gradient.chunks
    ((4, 4), (3,), (128, 128), (128, 128))
    >>> gradient[0, 0, 127:129, 0].compute()
    array([32., 16.])
    """
    values = input_size, stride, padding, dilation, groups, padding_mode
    return _input_gradient("conv2d_input", grad_output, weight, values, 2, precision, method)


@readable
def conv3d_input(
    input_size: Sequence[int],
    weight: ArrayOrDask,
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of `cupyconv.dask.conv3d` with respect to its input.

    It is `conv_input` with three spatial axes.

    Parameters
    ----------
    input_size : sequence of int
        Shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``, as in `conv_input`.
    weight : ndarray or dask.array.Array, shape ``(C_out, C_in/groups, K_d, K_h, K_w)``
        As in `conv_input`.
    grad_output : dask.array.Array, shape ``(N, C_out, D_out, H_out, W_out)``
        With a batch axis or without, as in `conv_input`.
    stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv_input`.

    Returns
    -------
    dask.array.Array, shape `input_size`
        As from `conv_input`.

    See Also
    --------
    conv_input : the chunks, and the errors.
    conv3d_weight : the gradient with respect to the weight.
    cupyconv.grad.conv3d_input : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> import cupyconv.dask
    >>> y, w = da.ones((2, 60, 40, 40), chunks=(-1, 20, 20, -1)), np.ones((2, 1, 3, 3, 3))
    >>> gradient = cupyconv.dask.grad.conv3d_input((1, 60, 40, 40), w, y, padding="same")
    >>> gradient.chunks
    ((1,), (20, 20, 20), (20, 20), (40,))
    >>> float(gradient[0, 30, 20, 20])
    54.0
    """
    values = input_size, stride, padding, dilation, groups, padding_mode
    return _input_gradient("conv3d_input", grad_output, weight, values, 3, precision, method)


@readable
def conv_weight(
    input: da.Array,
    weight_size: Sequence[int],
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of an N-dimensional convolution of a Dask array with respect to its weight.

    The gradients of all chunks of `grad_output` are added up. The order of the additions follows
    from the chunks, so the same chunks give the same bits.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, *spatial)`` or ``(C_in, *spatial)``
        The input that the convolution was called with. Its chunks are NumPy or CuPy arrays, with
        all channels in one chunk and a dtype as in `cupyconv.grad.conv_weight`.
    weight_size : sequence of int
        Shape of the convolution's weight, ``(C_out, C_in/groups, *kernel)``.
    grad_output : dask.array.Array, shape ``(N, C_out, *spatial_out)`` or ``(C_out, *spatial_out)``
        Gradient with respect to the convolution's result, with all channels in one chunk. Its other
        chunks may differ from the ones of `input`.
    stride, padding, dilation, groups : optional
        The arguments that `cupyconv.conv` was called with.
    method : {"direct", "fft", "auto"}, default "direct"
        As in `cupyconv.conv`. With ``"auto"`` the sizes of the whole arrays decide, so that all
        blocks are computed by one method.
    padding_mode : {"reflect", "symmetric", "edge", "wrap"}, optional
        The `padding_mode` that `cupyconv.conv` was called with.
    precision : {"float32", "tf32"}, optional
        As in `cupyconv.conv`. The `cupyconv.precision` block that counts is the one around this
        call, not one around the computation.

    Returns
    -------
    dask.array.Array, shape `weight_size`
        Array of one chunk, which is a NumPy or CuPy array, as in `input`. Its dtype is the one of
        `cupyconv.grad.conv_weight`; 16-bit floats are summed in float32.

    Raises
    ------
    ValueError
        As from `cupyconv.grad.conv_weight`, and if the channels lie in several chunks.
    TypeError
        As from `cupyconv.grad.conv_weight`, and if `input` or `grad_output` is not a Dask array.

    See Also
    --------
    conv_input : the gradient with respect to the input.
    cupyconv.grad.conv_weight : the same for one array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import cupyconv.dask
    >>> x, y = da.arange(8.0, chunks=3).reshape(1, 8), da.ones((1, 3), chunks=(1, 2))
    >>> gradient = cupyconv.dask.grad.conv_weight(x, (1, 1, 3), y, stride=2)
    >>> gradient.chunks
    ((1,), (1,), (3,))
    >>> gradient.compute()
    array([[[ 6.,  9., 12.]]])
    """
    values = weight_size, stride, padding, dilation, groups, padding_mode
    return _weight_gradient("conv_weight", (input, grad_output), values, None, precision, method)


@readable
def conv1d_weight(
    input: da.Array,
    weight_size: Sequence[int],
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of `cupyconv.dask.conv1d` with respect to its weight.

    It is `conv_weight` with one spatial axis.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, L)`` or ``(C_in, L)``
        As in `conv_weight`.
    weight_size : sequence of int
        Shape ``(C_out, C_in/groups, K)``, as in `conv_weight`.
    grad_output : dask.array.Array, shape ``(N, C_out, L_out)``
        With a batch axis or without, as in `conv_weight`.
    stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv_weight`.

    Returns
    -------
    dask.array.Array, shape `weight_size`
        As from `conv_weight`.

    See Also
    --------
    conv_weight : the chunks, and the errors.
    conv1d_input : the gradient with respect to the input.
    cupyconv.grad.conv1d_weight : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import cupyconv.dask
    >>> x, y = da.arange(6.0, chunks=6).reshape(1, 6), da.ones((1, 4), chunks=(1, 2))
    >>> cupyconv.dask.grad.conv1d_weight(x.rechunk((1, 3)), (1, 1, 3), y).compute()
    array([[[ 6., 10., 14.]]])
    """
    values = weight_size, stride, padding, dilation, groups, padding_mode
    return _weight_gradient("conv1d_weight", (input, grad_output), values, 1, precision, method)


@readable
def conv2d_weight(
    input: da.Array,
    weight_size: Sequence[int],
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of `cupyconv.dask.conv2d` with respect to its weight.

    It is `conv_weight` with two spatial axes.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, H, W)`` or ``(C_in, H, W)``
        As in `conv_weight`.
    weight_size : sequence of int
        Shape ``(C_out, C_in/groups, K_h, K_w)``, as in `conv_weight`.
    grad_output : dask.array.Array, shape ``(N, C_out, H_out, W_out)``
        With a batch axis or without, as in `conv_weight`.
    stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv_weight`.

    Returns
    -------
    dask.array.Array, shape `weight_size`
        As from `conv_weight`.

    See Also
    --------
    conv_weight : the chunks, and the errors.
    conv2d_input : the gradient with respect to the input.
    cupyconv.grad.conv2d_weight : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import cupyconv.dask
    >>> x = da.ones((8, 3, 256, 256), chunks=(4, -1, 128, 128))
    >>> y = da.ones((8, 16, 128, 128), chunks=(4, -1, 64, 64))
    >>> gradient = cupyconv.dask.grad.conv2d_weight(x, (16, 3, 3, 3), y, stride=2, padding=1)
    >>> gradient[0, 0].compute() / 8
    array([[16129., 16256., 16256.],
           [16256., 16384., 16384.],
           [16256., 16384., 16384.]])
    """
    values = weight_size, stride, padding, dilation, groups, padding_mode
    return _weight_gradient("conv2d_weight", (input, grad_output), values, 2, precision, method)


@readable
def conv3d_weight(
    input: da.Array,
    weight_size: Sequence[int],
    grad_output: da.Array,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    dilation: IntOrSequence = 1,
    groups: int = 1,
    *,
    method: str = "direct",
    padding_mode: str | None = None,
    precision: str | None = None,
) -> da.Array:
    """Gradient of `cupyconv.dask.conv3d` with respect to its weight.

    It is `conv_weight` with three spatial axes.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C_in, D, H, W)`` or ``(C_in, D, H, W)``
        As in `conv_weight`.
    weight_size : sequence of int
        Shape ``(C_out, C_in/groups, K_d, K_h, K_w)``, as in `conv_weight`.
    grad_output : dask.array.Array, shape ``(N, C_out, D_out, H_out, W_out)``
        With a batch axis or without, as in `conv_weight`.
    stride, padding, dilation, groups, method, padding_mode, precision : optional
        As in `conv_weight`.

    Returns
    -------
    dask.array.Array, shape `weight_size`
        As from `conv_weight`.

    See Also
    --------
    conv_weight : the chunks, and the errors.
    conv3d_input : the gradient with respect to the input.
    cupyconv.grad.conv3d_weight : the same for one array.

    Examples
    --------
    >>> import dask.array as da
    >>> import cupyconv.dask
    >>> x = da.ones((1, 60, 40, 40), chunks=(-1, 20, 20, -1))
    >>> y = da.ones((2, 60, 40, 40), chunks=(-1, 20, 20, -1))
    >>> gradient = cupyconv.dask.grad.conv3d_weight(x, (2, 1, 3, 3, 3), y, padding="same")
    >>> gradient[0, 0, :, 1, 1].compute()
    array([94400., 96000., 94400.])
    """
    values = weight_size, stride, padding, dilation, groups, padding_mode
    return _weight_gradient("conv3d_weight", (input, grad_output), values, 3, precision, method)
