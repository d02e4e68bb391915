"""The fused operation: transposed convolution, batch norm, tanh, max pool, group norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from . import _arrays as arrays
from . import _calls, _geometry, _precision
from ._arguments import IntOrSequence, Padding
from ._arrays import AnyArray, Array, ArrayT, Fused
from ._geometry import ConvGeometry, NormGeometry, PoolGeometry
from ._normalization import check_eps, shapes
from ._paths import Path, path_of
from ._signatures import readable

_NAME = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"
_REQUIRED = ("input", "kernel", "bn_weight", "bn_bias", "gn_weight", "gn_bias")


@readable
def conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
    input: ArrayT,
    kernel: AnyArray,
    bn_weight: AnyArray,
    bn_bias: AnyArray,
    gn_weight: AnyArray,
    gn_bias: AnyArray,
    *,
    num_groups: int,
    stride: IntOrSequence = 1,
    padding: Padding = 0,
    output_padding: IntOrSequence = 0,
    groups: int = 1,
    mean: AnyArray | None = None,
    var: AnyArray | None = None,
    eps: float = 1e-5,
    precision: str | None = None,
    out: AnyArray | None = None,
) -> ArrayT:
    """Transposed convolution, batch norm, tanh, 2x2 max pool of stride 2 and group norm.

    Parameters
    ----------
    input : ndarray, shape ``(N, C_in, H, W)``
        NumPy or CuPy array with any strides. Its dtype is float16, bfloat16, float32, float64 or an
        integer.
    kernel : ndarray, shape ``(C_in, C_out/groups, K_h, K_w)``
        Weight of the transposed convolution.
    bn_weight, bn_bias : ndarray, shape ``(C_out,)``
        Scale and shift of the batch norm.
    gn_weight, gn_bias : ndarray, shape ``(C_out,)``
        Scale and shift of the group norm.
    num_groups : int
        Groups of the group norm; divides C_out.
    stride, padding, output_padding, groups : optional
        Options of the transposed convolution, as in `conv_transpose`.
    mean, var : ndarray, shape ``(C_out,)``, optional
        Mean and variance for the batch norm, as in `batch_norm`. By default they are computed from
        the result of the convolution.
    eps : float, default 1e-5
        Added to the variances of both norms.
    precision : {"float32", "tf32"}, optional
        Accuracy of the transposed convolution, as in `conv_transpose`.
    out : ndarray, optional
        As in `conv`.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out // 2, W_out // 2)``
        `out`, or a new array, where H_out and W_out are the sizes after the convolution. Its dtype
        is NumPy's ``result_type`` of `input` and `kernel` (float64 for integers). 16-bit floats are
        rounded once, at the end; until then the values are float32.

    Raises
    ------
    ValueError
        If a value is out of range, or if shapes do not fit each other. Nothing is written then.
    TypeError
        If an array is neither from NumPy nor from CuPy, if the two are mixed, or if a dtype is not
        supported.

    See Also
    --------
    conv_transpose2d, batch_norm, max_pool2d, group_norm : the parts.

    Notes
    -----
    KernelBench [1]_ has this chain as problem 11 of its level 2.

    References
    ----------
    .. [1] A. Ouyang et al., "KernelBench: can LLMs write efficient GPU kernels?",
       arXiv:2502.10517, 2025.

    Examples
    --------
    >>> import numpy as np
    >>> import cupyconv
    >>> rng = np.random.default_rng(0)
    >>> x, w = rng.normal(size=(2, 3, 4, 4)), rng.normal(size=(3, 4, 3, 3))
    >>> one, zero = np.ones(4), np.zeros(4)
    >>> y = cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
    ...     x, w, one, zero, one, zero, num_groups=2, padding=1
    ... )
    >>> y.shape
    (2, 4, 2, 2)
    """
    path = path_of(input)
    operands = (input, kernel, bn_weight, bn_bias, gn_weight, gn_bias, mean, var, out)
    layouts = tuple(() if array is None else arrays.layout(array) for array in operands)
    options = (num_groups, stride, padding, output_padding, groups, precision)
    if type(eps) is not float:
        eps = check_eps(_NAME, eps)
    # Zeros of both signs compare equal, but their digits differ.
    key = _calls.key(_NAME, path, layouts, options, eps.hex())
    required = dict(zip(_REQUIRED, operands, strict=False))
    statistics = {"mean": mean, "var": var}
    call: _Call = _calls.kept.get(key) or _checked(
        required,
        {**statistics, "out": out},
        num_groups,
        (stride, padding, output_padding, groups),
        eps,
        precision,
    )
    if out is not None:
        inputs = {**required, **statistics}
        arrays.check_out(_NAME, out, call.pooling.out_shape, call.dtype, inputs)
    with arrays.on_device(input):
        written: Array = call.kind(call.pooling.out_shape, call.dtype) if out is None else out
        if written.size:
            if call.compute is None:
                call.compute = path.fused(
                    call.convolution,
                    call.pooling,
                    call.group_norm,
                    call.precision,
                    input,
                    kernel,
                    mean is not None,
                    call.eps,
                    written,
                ) or partial(_compose, path, call)
                _calls.keep(key, call)
            affine = bn_weight, bn_bias, gn_weight, gn_bias
            call.compute(input, kernel, (mean, var), affine, written)
    result: ArrayT = written
    return result


@dataclass
class _Call:
    """A call with checked arguments."""

    convolution: ConvGeometry
    batch_norm: NormGeometry
    pooling: PoolGeometry
    group_norm: NormGeometry
    eps: float
    kind: Callable[[tuple[int, ...], np.dtype], Array]  # array class of the result
    dtype: np.dtype
    precision: str
    compute: Fused | None = None  # None until the first call prepares it


def _checked(
    required: Mapping[str, Array],
    optional: Mapping[str, Array | None],
    num_groups: int,
    options: tuple[IntOrSequence, Padding, IntOrSequence, int],
    eps: float,
    precision: str | None,
) -> _Call:
    """Check all arguments, except that the shape, dtype and memory of `out` come later."""
    arrays.check(_NAME, required, optional, arrays.NORMALISED)
    mean, var, _ = optional.values()
    if (mean is None) != (var is None):
        alone = "var" if mean is None else "mean"
        raise ValueError(f"{_NAME}: mean and var must be given together, got {alone} alone")
    data, kernel = required["input"], required["kernel"]
    if len(data.shape) != 4:
        advice = "; input[None] adds a batch axis" if len(data.shape) == 3 else ""
        raise ValueError(
            f"{_NAME}: input must have 4 axes, got input of shape {data.shape}{advice}"
        )

    convolution = _geometry.conv_transpose(
        _NAME,
        data.shape,
        kernel.shape,
        None,
        *options,
        1,
        2,
        weight="kernel",
    )
    call = f"input of shape {data.shape} with kernel of shape {kernel.shape}"
    parameters = {name: required[name] for name in ("bn_weight", "bn_bias")}
    batch_norm = _geometry.batch_norm(
        _NAME,
        convolution.out_shape,
        shapes({**parameters, "mean": mean, "var": var}),
        given=mean is not None,
        subject=f"{call}: a convolution result",
    )
    pooling = _geometry.max_pool2d(
        _NAME, convolution.out_shape, 2, None, 0, 1, False, subject=f"{call}: a convolution result"
    )
    group_norm = _geometry.group_norm(
        _NAME,
        pooling.out_shape,
        num_groups,
        shapes({name: required[name] for name in ("gn_weight", "gn_bias")}),
        subject=f"{call}: a pooled result",
    )
    eps = check_eps(_NAME, eps)
    precision = _precision.resolve(_NAME, precision)
    dtype = arrays.floating(arrays.result_dtype(_NAME, data, kernel, "kernel"))
    kind = arrays.kind_of(data)
    return _Call(convolution, batch_norm, pooling, group_norm, eps, kind, dtype, precision)


def _compose(
    path: Path,
    call: _Call,
    data: Array,
    kernel: Array,
    statistics: Sequence[Array | None],
    parameters: Sequence[Array],
    out: Array,
) -> None:
    """Compute the fused operation part by part."""
    (mean, var), (bn_weight, bn_bias, gn_weight, gn_bias) = statistics, parameters
    working = arrays.accumulator(call.dtype)
    values = path.workspace(call.convolution.out_shape, working)
    data, kernel = path.cast(data, working), path.cast(kernel, working)
    precision = _precision.of_partial_sums(call.dtype, call.precision)
    convolve = path.prepare(call.convolution, data, kernel, None, values, precision)
    convolve(data, kernel, None, values)
    path.normalize(
        call.batch_norm, values, mean, var, bn_weight, bn_bias, call.eps, values, tanh=True
    )
    pooled = path.workspace(call.pooling.out_shape, working)
    path.max_pool2d(call.pooling, values, pooled)
    path.normalize(call.group_norm, pooled, None, None, gn_weight, gn_bias, call.eps, out)
