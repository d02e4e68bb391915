"""Max pooling."""

from __future__ import annotations

from . import _arrays as arrays
from . import _geometry
from ._arguments import IntOrSequence
from ._arrays import AnyArray, ArrayT
from ._paths import path_of


def max_pool2d(
    input: ArrayT,
    kernel_size: IntOrSequence,
    stride: IntOrSequence | None = None,
    padding: IntOrSequence = 0,
    dilation: IntOrSequence = 1,
    ceil_mode: bool = False,
    *,
    out: AnyArray | None = None,
) -> ArrayT:
    """2-D max pooling: the largest value of each window.

    Parameters
    ----------
    input : ndarray, shape ``(N, C, H, W)`` or ``(C, H, W)``
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64 and the
        integers.
    kernel_size : int or sequence of int
        Size of the window, for both axes or for each.
    stride : int or sequence of int, optional
        Distance of neighbouring windows; the size of the window where it is not given.
    padding : int or sequence of int, default 0
        Positions around the input at which windows may begin and end; at most half of the window's
        extent. They take no part in the maximum.
    dilation : int or sequence of int, default 1
        Distance of neighbouring positions in a window.
    ceil_mode : bool, default False
        Whether a last window that ends behind the padded input counts, as long as it begins inside
        of the input or its front padding.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with the input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C, H_out, W_out)`` or ``(C, H_out, W_out)``
        `out`, or a new array of the dtype of `input`. A NaN in a window is its maximum.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other, and where a window would hold no input;
        nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

    See Also
    --------
    conv_transpose2d_batchnorm_tanh_maxpool_groupnorm : has one of 2x2 windows among its parts.

    Notes
    -----
    Along one axis ``size_out = (size_in + 2*padding - dilation*(kernel - 1) - 1) / stride + 1``,
    rounded down, or up with `ceil_mode`.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> cupyconv.max_pool2d(np.arange(16).reshape(1, 4, 4), 2)
    array([[[ 5,  7],
            [13, 15]]])
    """
    name = "max_pool2d"
    arrays.check(name, {"input": input}, {"out": out}, arrays.NORMALISED)
    geometry = _geometry.max_pool2d(
        name, input.shape, kernel_size, stride, padding, dilation, ceil_mode
    )
    dtype = input.dtype.newbyteorder("=")
    result: ArrayT = arrays.output(name, out, geometry.out_shape, dtype, {"input": input})
    if result.size:
        with arrays.on_device(input):
            path_of(input).max_pool2d(geometry, input, result)
    return result
