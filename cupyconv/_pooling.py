"""Max pooling."""

from __future__ import annotations

from . import _arrays as arrays
from . import _geometry
from ._arguments import IntOrSequence
from ._arrays import AnyArray, ArrayT
from ._paths import path_of
from ._signatures import readable


@readable
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
        NumPy or CuPy array with any strides. Its dtype is float16, bfloat16, float32, float64 or an
        integer.
    kernel_size : int or sequence of int
        Positions of a window along an axis: one number for both axes, or one for each.
    stride : int or sequence of int, optional
        Input positions between neighbouring windows, by default `kernel_size`.
    padding : int or sequence of int, default 0
        Positions added at both ends of the input, at most half of the window's extent. They take no
        part in the maximum.
    dilation : int or sequence of int, default 1
        Input positions between neighbouring positions of a window.
    ceil_mode : bool, default False
        Whether to keep a last window that ends after the padded input, as long as it begins inside
        the input or the padding before it.
    out : ndarray, optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C, H_out, W_out)`` or ``(C, H_out, W_out)``
        `out`, or a new array with the dtype of `input`. The maximum of a window with a NaN is NaN.

    Raises
    ------
    ValueError
        If a value is out of range, if shapes do not fit each other, or if a window would hold no
        input. Nothing is written then.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, or if a dtype is not
        supported.

    See Also
    --------
    conv_transpose2d_batchnorm_tanh_maxpool_groupnorm : contains a pooling of 2x2 windows.

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
