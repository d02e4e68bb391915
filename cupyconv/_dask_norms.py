"""Batch norm, group norm and max pooling of Dask arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from . import _arrays as arrays
from . import _blocks, _geometry, _normalization
from ._arguments import IntOrSequence
from ._arrays import Array
from ._blocks import ArrayOrDask
from ._geometry import PoolAxis, PoolGeometry
from ._paths import path_of
from ._signatures import readable
from ._windows import Axis, Window

if TYPE_CHECKING:
    import dask.array as da


@readable
def batch_norm(
    input: da.Array,
    mean: ArrayOrDask,
    var: ArrayOrDask,
    weight: ArrayOrDask | None = None,
    bias: ArrayOrDask | None = None,
    *,
    eps: float = 1e-5,
) -> da.Array:
    """Batch normalisation of a Dask array with given statistics.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C, *spatial)``
        Its chunks are NumPy or CuPy arrays, with all channels in one chunk.
    mean, var : ndarray or dask.array.Array, shape ``(C,)``
        Mean and variance of each channel. Dask's own reductions compute the statistics of `input`
        itself, as in the example.
    weight, bias : ndarray or dask.array.Array, shape ``(C,)``, optional
        As in `cupyconv.batch_norm`.
    eps : float, default 1e-5
        As in `cupyconv.batch_norm`.

    Returns
    -------
    dask.array.Array, shape ``(N, C, *spatial)``
        Array with the chunks of `input`.

    Raises
    ------
    ValueError
        As from `cupyconv.batch_norm`, and if the channels lie in several chunks.
    TypeError
        As from `cupyconv.batch_norm`, and if `input` is not a Dask array.

    See Also
    --------
    cupyconv.batch_norm : the same for one array, with the definition.

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
    name = "batch_norm"
    statistics, parameters = {"mean": mean, "var": var}, {"weight": weight, "bias": bias}
    _blocks.check(name, {"input": input, **statistics}, parameters, arrays.NORMALISED)
    shapes = _normalization.shapes({**statistics, **parameters})
    _geometry.batch_norm(name, input.shape, shapes, given=True)
    eps = _normalization.check_eps(name, eps)
    _blocks.check_one_chunk(name, "all channels", input, [1])
    function = partial(_normalization.batch_norm, eps=eps)
    return _normalised(name, function, input, [mean, var, weight, bias])


@readable
def group_norm(
    input: da.Array,
    num_groups: int,
    weight: ArrayOrDask | None = None,
    bias: ArrayOrDask | None = None,
    eps: float = 1e-5,
) -> da.Array:
    """Group normalisation of a Dask array that is divided along its batch only.

    Parameters
    ----------
    input : dask.array.Array, shape ``(N, C, *spatial)``
        Its chunks are NumPy or CuPy arrays, with each sample in one chunk.
    num_groups : int
        As in `cupyconv.group_norm`.
    weight, bias : ndarray or dask.array.Array, shape ``(C,)``, optional
        As in `cupyconv.group_norm`.
    eps : float, default 1e-5
        As in `cupyconv.group_norm`.

    Returns
    -------
    dask.array.Array, shape ``(N, C, *spatial)``
        Array with the chunks of `input`.

    Raises
    ------
    ValueError
        As from `cupyconv.group_norm`, and if a sample lies in several chunks.
    TypeError
        As from `cupyconv.group_norm`, and if `input` is not a Dask array.

    See Also
    --------
    cupyconv.group_norm : the same for one array, with the definition.

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
    name = "group_norm"
    parameters = {"weight": weight, "bias": bias}
    _blocks.check(name, {"input": input}, parameters, arrays.NORMALISED)
    shapes = _normalization.shapes(parameters)
    geometry = _geometry.group_norm(name, input.shape, num_groups, shapes)
    eps = _normalization.check_eps(name, eps)
    _blocks.check_one_chunk(name, "each sample", input, range(1, input.ndim))
    function = partial(_group_norm, num_groups=geometry.sets_per_sample, eps=eps)
    return _normalised(name, function, input, [weight, bias])


def _group_norm(
    array: Array, weight: Array | None, bias: Array | None, *, num_groups: int, eps: float
) -> Array:
    """Call `group_norm` with the arguments in the order in which a block's task passes them."""
    return _normalization.group_norm(array, num_groups, weight, bias, eps)


def _normalised(
    name: str,
    function: partial[Array],
    array: da.Array,
    parameters: Sequence[ArrayOrDask | None],
) -> da.Array:
    """Return a norm by `function`, each of whose blocks reads one chunk."""
    return _blocks.by_block(
        name,
        function.keywords,
        array,
        [_blocks.one_to_one(along) for along in array.chunks],
        lambda windows: function,
        [_blocks.joined(parameter) for parameter in parameters],
        array.chunks,
        arrays.floating(array.dtype),
    )


@readable
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
        Its chunks are NumPy or CuPy arrays. The channels may lie in several chunks.
    kernel_size : int or sequence of int
        As in `cupyconv.max_pool2d`.
    stride, padding, dilation, ceil_mode : optional
        As in `cupyconv.max_pool2d`.

    Returns
    -------
    dask.array.Array, shape ``(N, C, H_out, W_out)`` or ``(C, H_out, W_out)``
        Array whose chunks are NumPy or CuPy arrays, as in `input`. The output at ``o`` belongs to
        the chunk that holds the input at ``o*stride``, or to the last chunk.

    Raises
    ------
    ValueError
        As from `cupyconv.max_pool2d`.
    TypeError
        As from `cupyconv.max_pool2d`, and if `input` is not a Dask array.

    See Also
    --------
    cupyconv.max_pool2d : the same for one array, with the definition.

    Examples
    --------
    >>> import dask.array as da
    >>> import cupyconv.dask
    >>> x = da.arange(16, chunks=16).reshape(1, 4, 4).rechunk((1, 3, 1))
    >>> cupyconv.dask.max_pool2d(x, 2).compute()
    array([[[ 5,  7],
            [13, 15]]])
    """
    name = "max_pool2d"
    _blocks.check(name, {"input": input}, {}, arrays.NORMALISED)
    geometry = _geometry.max_pool2d(
        name, input.shape, kernel_size, stride, padding, dilation, ceil_mode
    )
    axes = [
        Axis(
            axis.size_in,
            axis.size_out,
            axis.dilation * (axis.kernel - 1) + 1,
            axis.stride,
            axis.pad,
        )
        for axis in geometry.axes
    ]
    windows, sizes = _blocks.divided(axes, input.chunks[-2:])

    def function_on(block_windows: Sequence[Window]) -> _blocks.Function:
        height, width = map(_pooled_window, geometry.axes, block_windows[-2:])
        return partial(_pool, (height, width))

    return _blocks.by_block(
        name,
        geometry,
        input,
        [*map(_blocks.one_to_one, input.chunks[:-2]), *windows],
        function_on,
        [],
        (*input.chunks[:-2], *sizes),
        input.dtype.newbyteorder("="),
    )


def _pooled_window(axis: PoolAxis, window: Window) -> PoolAxis:
    """Return the description of the pooling of one window along an axis."""
    size = window.stop - window.start
    reach = window.before + size + window.after - axis.dilation * (axis.kernel - 1) - 1
    return replace(axis, size_in=size, size_out=reach // axis.stride + 1, pad=window.before)


def _pool(axes: tuple[PoolAxis, PoolAxis], array: Array) -> Array:
    """Pool a window. Its padding may differ at its two ends, unlike the padding of a call."""
    geometry = PoolGeometry(array.shape[:-2], axes)
    with arrays.on_device(array):
        out = arrays.kind_of(array)(geometry.out_shape, array.dtype.newbyteorder("="))
        if out.size:
            path_of(array).max_pool2d(geometry, array, out)
    return out
