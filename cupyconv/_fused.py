"""The fused operation: transposed convolution, batch norm, tanh, max pool, group norm."""

from __future__ import annotations

from . import _arrays as arrays
from . import _geometry, _precision
from ._arguments import IntOrSequence, Padding
from ._arrays import AnyArray, ArrayT
from ._normalization import check_eps, shapes
from ._paths import path_of


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
        NumPy or CuPy array of any strides. dtypes: float16, bfloat16, float32, float64 and the
        integers.
    kernel : ndarray, shape ``(C_in, C_out/groups, K_h, K_w)``
        Weight of the transposed convolution.
    bn_weight, bn_bias : ndarray, shape ``(C_out,)``
        Scale and shift of the batch norm.
    gn_weight, gn_bias : ndarray, shape ``(C_out,)``
        Scale and shift of the group norm.
    num_groups : int
        Groups of the group norm; divides C_out.
    stride : int or sequence of int, default 1
        Of the transposed convolution, as in `conv_transpose2d`.
    padding : int, sequence of int, sequence of pairs, "valid" or "same", default 0
        Of the transposed convolution.
    output_padding : int or sequence of int, default 0
        Of the transposed convolution.
    groups : int, default 1
        Of the transposed convolution.
    mean, var : ndarray, shape ``(C_out,)``, optional
        Statistics of the batch norm; without them those of the convolution's result are taken.
    eps : float, default 1e-5
        Added to the variances of both norms.
    precision : {"float32", "tf32"}, optional
        Accuracy asked of the convolution of float32 arrays, as in `conv_transpose2d`.
    out : ndarray, optional
        Where to write the result: any writable view of the right shape and dtype that shares no
        memory with an input or with itself.

    Returns
    -------
    ndarray, shape ``(N, C_out, H_out // 2, W_out // 2)``
        `out`, or a new array, where H_out and W_out are the convolution's. Its dtype is NumPy's
        ``result_type`` of input and kernel (float64 for integers). 16-bit floats are rounded once,
        at the end; until then the values are float32.

    Raises
    ------
    ValueError
        For shapes and values that do not fit each other; nothing is written then.
    TypeError
        For arrays of another kind, mixed NumPy and CuPy arrays and unsupported dtypes.

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
    name = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"
    parameters = {"bn_weight": bn_weight, "bn_bias": bn_bias}
    group_parameters = {"gn_weight": gn_weight, "gn_bias": gn_bias}
    required = {"input": input, "kernel": kernel, **parameters, **group_parameters}
    statistics = {"mean": mean, "var": var}
    arrays.check(name, required, {**statistics, "out": out}, arrays.NORMALISED)
    if (mean is None) != (var is None):
        alone = "var" if mean is None else "mean"
        raise ValueError(f"{name}: mean and var must be given together, got {alone} alone")
    if len(input.shape) != 4:
        raise ValueError(f"{name}: input must have 4 axes, got input of shape {input.shape}")

    convolution = _geometry.conv_transpose(
        name,
        input.shape,
        kernel.shape,
        None,
        stride,
        padding,
        output_padding,
        groups,
        1,
        2,
        "kernel",
    )
    call = f"input of shape {input.shape} with kernel of shape {kernel.shape}"
    batch_norm = _geometry.batch_norm(
        name,
        convolution.out_shape,
        shapes({**parameters, **statistics}),
        given=mean is not None,
        subject=f"{call}: a convolution result",
    )
    pooling = _geometry.max_pool2d(
        name, convolution.out_shape, 2, None, 0, 1, False, subject=f"{call}: a convolution result"
    )
    group_norm = _geometry.group_norm(
        name,
        pooling.out_shape,
        num_groups,
        shapes(group_parameters),
        subject=f"{call}: a pooled result",
    )
    eps = check_eps(name, eps)
    precision = _precision.resolve(name, precision)
    dtype = arrays.floating(arrays.result_dtype(name, input, kernel, "kernel"))
    result: ArrayT = arrays.output(name, out, pooling.out_shape, dtype, {**required, **statistics})
    if result.size:
        with arrays.on_device(input):
            path = path_of(input)
            fused = path.fused(convolution, pooling, group_norm, precision, result)
            if fused:
                affine = bn_weight, bn_bias, gn_weight, gn_bias
                fused(input, kernel, (mean, var), affine, eps, result)
                return result
            # Each intermediate is dropped as soon as the next one is there.
            working = arrays.accumulator(dtype)
            values = path.workspace(convolution.out_shape, working)
            input, kernel = path.cast(input, working), path.cast(kernel, working)
            convolve = path.prepare(convolution, input, kernel, None, values, precision)
            convolve(input, kernel, None, values)
            path.normalize(
                batch_norm, values, mean, var, bn_weight, bn_bias, eps, values, tanh=True
            )
            pooled = path.workspace(pooling.out_shape, working)
            path.max_pool2d(pooling, values, pooled)
            path.normalize(group_norm, pooled, None, None, gn_weight, gn_bias, eps, result)
    return result
