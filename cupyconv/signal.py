"""Convolution and correlation of signals, with the arguments and the results of ``scipy.signal``.

Each is one call of `cupyconv.conv` on views of its inputs.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from . import _arguments as arguments
from . import _arrays as arrays
from . import _fft, _geometry
from . import _signal_geometry as geometry
from ._arguments import IntOrSequence
from ._arrays import AnyArray, Array, ArrayT
from ._convolve import convolve as convolve_channels
from ._paths import path_of
from ._shape_rules import Shape
from ._signatures import readable

__all__ = ["convolve", "correlate"]


def _flipped(array: Array, axes: Shape) -> Array:
    """Return a view of `array` in reverse along `axes`."""
    backwards = slice(None, None, -1)
    return array[tuple(backwards if axis in axes else slice(None) for axis in range(array.ndim))]


def _copy(array: Array, conjugate: bool = False) -> Array:
    """Return a copy of `array`, or of its conjugate, for one call."""
    # A CUDA graph that captures the call must own the copy, since each replay writes it again.
    new = path_of(array).workspace if arrays.is_cupy(array) else np.empty
    copy = new(array.shape, array.dtype)
    if conjugate:
        np.conjugate(array, out=copy)
    else:
        copy[...] = array
    return copy


def _are_one(array: Array, axes: Shape) -> bool:
    """Return whether a view of `array` can have these axes as a single one."""
    longer = [axis for axis in axes if array.shape[axis] > 1]
    return all(
        array.strides[axis] == array.strides[after] * array.shape[after]
        for axis, after in pairwise(longer)
    )


def _operand(array: Array, plan: geometry.Arrangement, shape: Shape) -> Array:
    """Return a signal as an operand of `conv`: a view, or a copy if axes to be joined are not one.

    The input has one element along the axes of `channels`; the weight has them after its groups.
    """
    joined = (plan.batch, plan.groups + plan.channels)
    view = array.transpose(plan.order)
    if not all(_are_one(array, axes) for axes in joined):
        view = _copy(view)
    return view.reshape(shape)


def _convolve(
    name: str,
    first: Array,
    second: Array,
    mode: str,
    method: str,
    axes: IntOrSequence | None,
    correlating: bool = False,
) -> Array:
    """Return the convolution of two signals, or their correlation.

    The correlation is the convolution with the conjugate of the second signal in reverse.
    """
    arrays.check(name, {"in1": first, "in2": second}, {})
    dtype = arrays.result_dtype(name, first, second, "in2", "in1")
    mode = geometry.mode_named(name, mode)
    method = _fft.checked_for_dtype(name, method, dtype, "in1 and in2")
    geometry.check_ranks(name, first.shape, second.shape)
    convolved = arguments.axes(name, axes, first.ndim)
    call = name, first.shape, second.shape, mode, convolved
    shape = geometry.result_shape(*call)
    with arrays.on_device(first):
        if 0 in shape:
            return arrays.kind_of(first)(shape, dtype)
        plan = geometry.arrange(*call)
        if correlating:
            second = _flipped(second, convolved)
        first, second = first[plan.first], second[plan.second]
        if correlating and second.dtype.kind == "c":
            second = _copy(second, conjugate=True)
        data, kernel = (second, first) if plan.swapped else (first, second)
        data = _operand(data, plan, plan.input_shape)
        kernel = _operand(_flipped(kernel, plan.space), plan, plan.weight_shape)
        groups = plan.input_shape[1]
        options = 1, plan.padding, 1, groups, None
        operands = data, kernel, None
        result = convolve_channels(
            name, _geometry.conv, operands, options, None, None, method=method
        )
        sizes = [shape[axis] for axis in plan.order]
        places = [plan.order.index(axis) for axis in range(len(shape))]
        return result.reshape(sizes).transpose(places)


@readable
def convolve(
    in1: ArrayT,
    in2: AnyArray,
    mode: str = "full",
    method: str = "auto",
    axes: IntOrSequence | None = None,
) -> ArrayT:
    """Convolve two arrays, as ``scipy.signal.convolve`` does.

    The kernel is flipped, as in mathematics. Along axes that are not convolved the arrays are
    broadcast, so that one call filters a stack of images or applies a bank of filters.

    Parameters
    ----------
    in1 : ndarray
        NumPy or CuPy array with any strides and any number of axes, also with none. Its dtype is
        float16, bfloat16, float32, float64, complex64, complex128 or an integer.
    in2 : ndarray
        Array with the same number of axes on the same device. The two dtypes may differ, as long as
        NumPy has a common one.
    mode : {"full", "same", "valid"}, default "full"
        Which part of the convolution is returned. ``"full"``: all positions at which the arrays
        overlap, ``n1 + n2 - 1`` along an axis of sizes ``n1`` and ``n2``. ``"same"``: the middle of
        these, of the size of `in1`. ``"valid"``: positions at which one array lies within the other
        one, ``abs(n1 - n2) + 1``. Either array may be the larger one, along all convolved axes.
    method : {"auto", "direct", "fft"}, default "auto"
        ``"direct"``: sums of products. ``"fft"``: by Fourier transforms, along at most three axes,
        not for integers. ``"auto"``: by Fourier transforms where they should be at least 1.2 times
        as fast, and directly otherwise.
    axes : int or sequence of int, optional
        Axes that are convolved. By default all of them are.

    Returns
    -------
    ndarray
        New array, of the size that `mode` gives along the convolved axes and of the size to which
        `in1` and `in2` broadcast along the others. It is a transposed view if those are not the
        first axes. Its dtype is NumPy's ``result_type`` of `in1` and `in2`. 16-bit floats are
        accumulated in float32. Integers are convolved directly, which is exact modulo ``2**bits``.
        The enclosing `cupyconv.precision` block sets the accuracy of direct sums of float32 arrays.

    Raises
    ------
    ValueError
        If the arrays have different numbers of axes, do not broadcast, or are empty along a
        convolved axis (only an empty `in1` with ``mode="same"`` has a result, an empty one). If
        with ``mode="valid"`` neither array is at least as large as the other one along all
        convolved axes. If a value is out of range, or if more than 24 axes are convolved, or more
        than three with ``method="fft"``.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, or if a dtype is not
        supported. Integers are not with ``method="fft"``.

    See Also
    --------
    correlate : the same without a flip, with the conjugate of `in2`.
    cupyconv.conv : convolution of channels, with strides and dilations.

    Notes
    -----
    Along one axis, with ``j`` from 0 to ``n1 - 1`` and without positions outside of `in2`::

        full[o] = sum over j of in1[j] * in2[o - j]
        same = full[(n2 - 1) // 2 :][:n1]
        valid = full[min(n1, n2) - 1 : max(n1, n2)]

    The results are those of ``scipy.signal.convolve`` [1]_, and `axes` are those of
    ``scipy.signal.fftconvolve``. Other than there, ``mode="same"`` broadcasts along axes that are
    not convolved also if `in1` has the size 1. Integers with ``method="fft"`` are an error here;
    SciPy rounds what the transforms give.

    The error of ``method="fft"`` is bounded by the norms of both signals, so that a small element
    of the result may be less accurate than a direct sum. An infinity or NaN spreads over all
    convolutions that its signal takes part in.

    The array with fewer elements along the convolved axes becomes the weight of one call of
    `cupyconv.conv`. An axis that it does not have, or has with the size 1, is a batch axis.

    References
    ----------
    .. [1] SciPy, "scipy.signal.convolve",
       https://docs.scipy.org/doc/scipy/reference/generated/scipy.signal.convolve.html

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> cupyconv.signal.convolve(np.array([1, 2, 3]), np.array([0, 1, 10]))
    array([ 0,  1, 12, 23, 30])
    >>> cupyconv.signal.convolve(np.array([1, 2, 3]), np.array([0, 1, 10]), mode="same")
    array([ 1, 12, 23])

    A stack of images with one kernel, and a signal with a bank of filters:

    >>> images, kernel = np.ones((100, 32, 32)), np.ones((1, 5, 5))
    >>> cupyconv.signal.convolve(images, kernel, mode="valid", axes=(1, 2)).shape
    (100, 28, 28)
    >>> signal, bank = np.ones((1, 1000)), np.ones((16, 64))
    >>> cupyconv.signal.convolve(signal, bank, mode="same", axes=-1).shape
    (16, 1000)
    """
    result: ArrayT = _convolve("signal.convolve", in1, in2, mode, method, axes)
    return result


@readable
def correlate(
    in1: ArrayT,
    in2: AnyArray,
    mode: str = "full",
    method: str = "auto",
    axes: IntOrSequence | None = None,
) -> ArrayT:
    """Correlate two arrays, as ``scipy.signal.correlate`` does.

    It is `convolve` with the conjugate of `in2` in reverse along the convolved axes.

    Parameters
    ----------
    in1 : ndarray
        As in `convolve`.
    in2 : ndarray
        As in `convolve`. If it is complex, it is conjugated.
    mode, method, axes : optional
        As in `convolve`.

    Returns
    -------
    ndarray
        As from `convolve`.

    See Also
    --------
    convolve : all parameters and the errors.

    Notes
    -----
    Along one axis, without positions outside of `in1`::

        full[o] = sum over k of in1[o - (n2 - 1) + k] * conj(in2[k])

    The modes are windows of ``full`` as those of `convolve`, so that
    ``full[n2 - 1]`` is the sum of products without a shift. The results are those of
    ``scipy.signal.correlate`` [1]_. To exchange the inputs conjugates and reverses the result.

    References
    ----------
    .. [1] SciPy, "scipy.signal.correlate",
       https://docs.scipy.org/doc/scipy/reference/generated/scipy.signal.correlate.html

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> cupyconv.signal.correlate(np.array([1, 2, 3]), np.array([0, 1, 10]))
    array([10, 21, 32,  3,  0])

    Where a pattern lies in each of two signals:

    >>> signals = np.array([[0, 0, 1, 2, 1, 0], [1, 2, 1, 0, 0, 0]])
    >>> pattern = np.array([[1, 2, 1]])
    >>> cupyconv.signal.correlate(signals, pattern, mode="valid", axes=1).argmax(axis=1)
    array([2, 0])
    """
    result: ArrayT = _convolve("signal.correlate", in1, in2, mode, method, axes, correlating=True)
    return result
