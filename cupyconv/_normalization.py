"""Batch norm and group norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real

from . import _arrays as arrays
from . import _geometry
from ._arguments import shown
from ._arrays import AnyArray, Array, ArrayT
from ._paths import path_of
from ._signatures import readable


def check_eps(name: str, eps: object) -> float:
    """Return `eps` as a float; raise unless it is a finite number of at least 0."""
    if isinstance(eps, bool) or not isinstance(eps, Real):
        raise TypeError(f"{name}: eps must be a real number, got eps={shown(eps)}")
    try:
        value = float(eps)
    except OverflowError:  # an integer or a fraction above the largest float
        value = math.inf
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: eps must be finite and not negative, got eps={shown(eps)}")
    return value


def shapes(parameters: Mapping[str, Array | None]) -> dict[str, tuple[int, ...] | None]:
    """Return the shape of each parameter, or None for a parameter that the caller did not pass."""
    return {
        argument: None if array is None else array.shape for argument, array in parameters.items()
    }


@readable
def batch_norm(
    input: ArrayT,
    mean: AnyArray | None = None,
    var: AnyArray | None = None,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    *,
    eps: float = 1e-5,
    out: AnyArray | None = None,
) -> ArrayT:
    """Batch normalisation: bring each channel to mean 0 and variance 1, then scale and shift it.

    Parameters
    ----------
    input : ndarray, shape ``(N, C, *spatial)``
        NumPy or CuPy array with any strides, always with a batch axis. Its dtype is float16,
        bfloat16, float32, float64 or an integer.
    mean, var : ndarray, shape ``(C,)``, optional
        Mean and variance of each channel, both or neither. By default they are computed from
        `input`, over all samples and positions; the variance is biased (divided by the number of
        values).
    weight, bias : ndarray, shape ``(C,)``, optional
        Scale and shift of each channel, by default 1 and 0.
    eps : float, default 1e-5
        Added to the variance.
    out : ndarray, optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C, *spatial)``
        `out`, or a new array with the dtype of `input` (float64 for integers). All arithmetic is in
        float64 and rounded once, at the end.

    Raises
    ------
    ValueError
        If a value is out of range, or if shapes do not fit each other. Nothing is written then.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, or if a dtype is not
        supported.

    See Also
    --------
    group_norm : normalises groups of channels of each sample.

    Notes
    -----
    ``(input - mean) / sqrt(var + eps) * weight + bias``, see [1]_.

    References
    ----------
    .. [1] S. Ioffe and C. Szegedy, "Batch normalization: accelerating deep network training by
       reducing internal covariate shift", ICML 2015.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> cupyconv.batch_norm(np.array([[1.0], [3.0]]), eps=0.0)
    array([[-1.],
           [ 1.]])
    """
    name = "batch_norm"
    parameters = {"mean": mean, "var": var, "weight": weight, "bias": bias}
    arrays.check(name, {"input": input}, {**parameters, "out": out}, arrays.NORMALISED)
    if (mean is None) != (var is None):
        alone = "var" if mean is None else "mean"
        raise ValueError(f"{name}: mean and var must be given together, got {alone} alone")
    geometry = _geometry.batch_norm(name, input.shape, shapes(parameters), given=mean is not None)
    eps = check_eps(name, eps)
    result: ArrayT = arrays.output(
        name, out, input.shape, arrays.floating(input.dtype), {"input": input, **parameters}
    )
    if result.size:
        with arrays.on_device(input):
            path_of(input).normalize(geometry, input, mean, var, weight, bias, eps, result)
    return result


@readable
def group_norm(
    input: ArrayT,
    num_groups: int,
    weight: AnyArray | None = None,
    bias: AnyArray | None = None,
    eps: float = 1e-5,
    *,
    out: AnyArray | None = None,
) -> ArrayT:
    """Group normalisation: bring each sample's groups of channels to mean 0 and variance 1.

    Each channel is scaled and shifted afterwards, as in `batch_norm`.

    Parameters
    ----------
    input : ndarray, shape ``(N, C, *spatial)``
        As in `batch_norm`.
    num_groups : int
        Number of groups of neighbouring channels; divides C.
    weight, bias : ndarray, shape ``(C,)``, optional
        As in `batch_norm`.
    eps : float, default 1e-5
        As in `batch_norm`.
    out : ndarray, optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C, *spatial)``
        As from `batch_norm`.

    See Also
    --------
    batch_norm : normalises single channels over all samples; has the errors.

    Notes
    -----
    ``(input - mean) / sqrt(var + eps) * weight + bias`` with the mean and the biased variance of
    the group, see [1]_.

    References
    ----------
    .. [1] Y. Wu and K. He, "Group normalization", ECCV 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> cupyconv.group_norm(np.array([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
    array([[-1.,  1., -1.,  1.]])
    """
    name = "group_norm"
    parameters = {"weight": weight, "bias": bias}
    arrays.check(name, {"input": input}, {**parameters, "out": out}, arrays.NORMALISED)
    geometry = _geometry.group_norm(name, input.shape, num_groups, shapes(parameters))
    eps = check_eps(name, eps)
    result: ArrayT = arrays.output(
        name, out, input.shape, arrays.floating(input.dtype), {"input": input, **parameters}
    )
    if result.size:
        with arrays.on_device(input):
            path_of(input).normalize(geometry, input, None, None, weight, bias, eps, result)
    return result
