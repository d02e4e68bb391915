"""What a call would do: it goes its ordinary way, to a device that only takes notes.

So an explanation cannot differ from the call. Arrays are blueprints, with a layout and no memory.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Mapping

import numpy as np

from . import _arguments, _precision, grad
from . import _arrays as arrays
from ._arguments import shown
from ._arrays import Array, Blueprint
from ._convolution import conv, conv1d, conv2d, conv3d, depthwise_conv2d
from ._explanation import Explanation
from ._fused import conv_transpose2d_batchnorm_tanh_maxpool_groupnorm
from ._gpus import assumed, current, named, names
from ._kernels.chips import Chip
from ._normalization import batch_norm, group_norm
from ._noting import NotingPath, bytes_of
from ._pooling import max_pool2d
from ._signatures import readable
from ._transposed_convolution import (
    conv_transpose,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)

_GRADIENTS: tuple[Callable[..., Array], ...] = tuple(getattr(grad, name) for name in grad.__all__)
FUNCTIONS: tuple[Callable[..., Array], ...] = (
    batch_norm,
    conv,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose2d_batchnorm_tanh_maxpool_groupnorm,
    conv_transpose3d,
    depthwise_conv2d,
    group_norm,
    max_pool2d,
    *_GRADIENTS,
)

_LAUNCH = 3e-6  # seconds of a launch beside its work

_MOST_AXES = 64  # NumPy's limit

# How the functions call their arrays.
_ARRAYS = frozenset(
    "input weight bias kernel grad_output mean var bn_weight bn_bias gn_weight gn_bias out".split()
)


@readable
def explain(
    function: Callable[..., Array],
    /,
    *args: object,
    dtype: object = "float32",
    target: str | None = None,
    verbose: bool = False,
    **kwargs: object,
) -> Explanation:
    """Say what a call would do, without running it.

    Parameters
    ----------
    function : callable
        A function of this library that takes arrays, such as `conv2d`.
    *args
        Arguments of the function. A shape, which is a tuple of int, may stand for an array. NumPy
        arrays are treated as if they were on the GPU. A `cupyconv.precision` block counts as it
        does for the call itself.
    dtype : dtype or str, default "float32"
        Dtype of the arrays that are given as shapes.
    target : str, optional
        GPU to explain the call for. The machine needs no GPU for this. It is a name, such as
        ``"H100"``, ``"A100"`` or ``"RTX 4090"``, or a compute capability, such as ``"9.0"`` or
        ``"sm_90"``. The capabilities 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0 stand for a T4, A100,
        RTX 3090, RTX 4090, H100, B200 and RTX 5090. By default it is the device of the arrays, or
        the current one. On a machine without a GPU NumPy arrays need no target: it is an H100 then.
    verbose : bool, default False
        Whether ``print`` also shows which kernels do not take the call, each with the reason.
    **kwargs
        Arguments of the function by name.

    Returns
    -------
    Explanation
        Description of the call, which ``print`` shows. Its fields are ``out_shape``, ``dtype``,
        ``kernel``, ``refused``, ``plans``, ``launches``, ``operations``, ``bytes``, ``limit_ms``,
        ``limited_by``, ``expected_ms``, ``expected_share``, ``workspace``, and ``function``,
        ``shapes``, ``gpu``, ``target``, ``multiprocessors``.

    Raises
    ------
    ValueError
        If the call itself would raise it, if `target` is unknown, or if there is neither a target
        nor a GPU, nor an array.
    TypeError
        If the call itself would raise it, or if `function` is not one of this library.

    See Also
    --------
    show_config : prints versions and devices.

    Notes
    -----
    The limit is the roofline of [1]_, with the peak rates that the maker states. A call takes at
    least as long as memory needs for the bytes that the call must read and write, each once, and at
    least as long as the fastest units that may be used need for its products. Products with the
    padding and inputs between windows do not count. For float32 accuracy these units are Tensor
    Cores with two float16 products for each product (compute capability 9.0; a kernel of this
    library computes three, and no fewer than two can read both parts of both factors) or three
    TF32 ones, or the units of float32, whichever are faster. complex64 takes four such products
    for each of its own. Integers have no such rate: only their
    bytes count. Only a call whose arrays lie in the GPU's cache already may take less than the
    bytes allow.

    The expected time comes from the model by which kernels are chosen. It was fitted to times of an
    H100, where it is within a factor of 1.5 for nine of ten random calls, and within 3 for 99 of
    100.

    References
    ----------
    .. [1] S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance
       model for multicore architectures", Communications of the ACM 52(4), 2009.

    Examples
    --------
    >>> import cupyconv
    >>> call = cupyconv.explain(
    ...     cupyconv.conv_transpose2d, (8, 64, 512, 512), (64, 64, 3, 7), target="H200", stride=2
    ... )
    >>> call.out_shape
    (8, 64, 1025, 1029)
    >>> call.kernel
    'hopper'
    >>> call.refused["depthwise"]
    'its groups have 64 input channels'
    >>> [launch.instance.function for launch in call.launches]
    ['pack_weights', 'matrix_conv']
    >>> call.limited_by
    'operations'
    """
    if not any(function is one for one in FUNCTIONS):
        raise TypeError(_not_a_function(function))
    verbose = _arguments.boolean("explain", "verbose", verbose)
    made_of = arrays.named("explain", dtype)
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"explain: {function.__name__}: {error}") from None
    given = {name: value for name, value in bound.arguments.items() if name in _ARRAYS}
    real = {name: a for name, a in given.items() if arrays.is_cupy(a) or arrays.is_numpy(a)}
    arrays.check(f"explain: {function.__name__}", real, {})
    chip = _chip(target, real)
    path = NotingPath(chip)
    for name, value in given.items():
        if value is not None:
            bound.arguments[name] = blueprint = _blueprint(name, value, made_of)
            blueprint.path = path
    result = function(*bound.args, **bound.kwargs)
    prints = {n: a for n, a in bound.arguments.items() if isinstance(a, Blueprint) and n != "out"}
    least = sum(map(path.least_bytes, prints.values())) + bytes_of(result)
    options = bound.arguments.get("precision")
    rate = chip.product_rate(result.dtype, _precision.resolve(function.__name__, options))
    seconds = {
        "bytes": least / chip.bandwidth,
        "operations": path.needed / rate if rate else 0.0,
    }
    limited_by = max(seconds, key=seconds.__getitem__)
    limit = seconds[limited_by]
    notebook = path.notebook
    launched = (len(notebook.launches) - path.timed + notebook.copies) * _LAUNCH
    work = max(path.seconds + notebook.copied / chip.copy_rate, limit)
    return Explanation(
        function=function.__name__,
        shapes={name: array.shape for name, array in prints.items()},
        out_shape=result.shape,
        dtype=result.dtype,
        gpu=chip.name,
        target=chip.processor.target,
        multiprocessors=chip.processor.multiprocessors,
        kernel=" + ".join(path.kernels) or "none",
        refused=path.refused,
        plans=tuple(path.plans),
        launches=tuple(notebook.launches),
        operations=round(2 * path.products),
        bytes=sum(map(bytes_of, (*prints.values(), result))),
        limit_ms=1e3 * limit,
        limited_by=limited_by,
        expected_ms=1e3 * (work + launched),
        workspace=notebook.most,
        verbose=verbose,
    )


def _not_a_function(value: object) -> str:
    """Return the text of the error for what is none of `FUNCTIONS`."""
    known = {one.__name__: _public_name(one) for one in FUNCTIONS}
    text = f"explain: function must be one of cupyconv's {', '.join(sorted(known.values()))}, got "
    if arrays.is_cupy(value) or arrays.is_numpy(value):
        array: Array = value
        return (
            f"{text}an array of shape {array.shape}; the function and its arguments are apart, as "
            "in explain(cupyconv.conv2d, input, weight)"
        )
    name = value if isinstance(value, str) else getattr(value, "__name__", None)
    advice = f"; cupyconv.{known[name]} is one" if isinstance(name, str) and name in known else ""
    return f"{text}{shown(value)}{advice}"


def _public_name(function: Callable[..., Array]) -> str:
    """Return the name of one of `FUNCTIONS` in the package."""
    return f"grad.{function.__name__}" if function in _GRADIENTS else function.__name__


def _blueprint(name: str, value: object, dtype: np.dtype) -> Blueprint:
    """Return what stands for an array, or for one of a shape."""
    if arrays.is_cupy(value):
        cupy: Array = value
        return Blueprint(cupy.shape, cupy.dtype, cupy.strides, cupy.data.ptr)
    if arrays.is_numpy(value):
        numpy: Array = value
        return numpy.view(Blueprint)  # type: ignore[no-any-return]
    got = shown(value)
    rule = "an array or a shape"
    if not isinstance(value, (tuple, list)) or any(isinstance(item, list) for item in value):
        advice = arrays.advice("explain", name, value, "numpy")
        raise TypeError(f"explain: {name} must be {rule}, got {got}{advice}")
    limit = _arguments.SIZE_LIMIT
    shape = _arguments.per_axis(
        "explain", name, value, len(value), minimum=0, limit=limit, rule=rule
    )
    if len(shape) > _MOST_AXES:
        raise ValueError(f"explain: {name} must have at most {_MOST_AXES} axes, got {name}={got}")
    if math.prod(max(size, 1) for size in shape) * dtype.itemsize >= arrays.MOST_BYTES:
        raise ValueError(f"explain: {name} must have less than 2**62 bytes, got {name}={got}")
    return Blueprint(shape, dtype)


def _chip(target: str | None, given: Mapping[str, Array]) -> Chip:
    """Return the GPU that a call is explained for."""
    if target is not None:
        return named(target)
    with contextlib.suppress(Exception), contextlib.ExitStack() as block:
        for array in given.values():
            block.enter_context(arrays.on_device(array))
        return current()
    if any(map(arrays.is_numpy, given.values())):
        return assumed()  # the call itself needs no GPU either
    raise ValueError(f"explain: there is no GPU here: name one as target, of {names()}")
