"""What a call would do: it goes its ordinary way, to a device that only takes notes.

So an explanation cannot differ from the call. Arrays are blueprints, with a layout and no memory.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from . import _arguments, _precision
from . import _arrays as arrays
from ._arguments import shown
from ._arrays import Array, Blueprint, Convolution, WeightGradient
from ._chips import Chip, assumed, current, named, names
from ._convolution import (
    conv,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    depthwise_conv2d,
)
from ._fused import conv_transpose2d_batchnorm_tanh_maxpool_groupnorm
from ._geometry import ConvGeometry, NormGeometry, PoolGeometry
from ._gradient_geometry import adjoint
from ._kernels import choice
from ._kernels.fused import FusedPlan
from ._kernels.launches import Launch, Processor
from ._kernels.max_pool2d import PoolPlan
from ._kernels.normalize import NormPlan
from ._kernels.question import Plan, Question, Refusal, multiply_adds
from ._kernels.weight_gradient import WeightGradientPlan
from ._launch import KernelPath
from ._least_work import LeastWork, least_work, pooled_share
from ._normalization import batch_norm, group_norm
from ._packing import Arguments
from ._pooling import max_pool2d
from ._signatures import readable
from ._strides import ConvStrides
from .grad import (
    conv1d_input,
    conv1d_weight,
    conv2d_input,
    conv2d_weight,
    conv3d_input,
    conv3d_weight,
    conv_input,
    conv_weight,
)

_GRADIENTS: tuple[Callable[..., Array], ...] = (
    conv1d_input,
    conv1d_weight,
    conv2d_input,
    conv2d_weight,
    conv3d_input,
    conv3d_weight,
    conv_input,
    conv_weight,
)
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

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a call would do; ``print`` it, or read its fields.

    Attributes
    ----------
    function : str
        Name of the function.
    shapes : dict of str to tuple of int
        Shapes of the arrays of the call.
    out_shape : tuple of int
        Shape of the result.
    dtype : numpy.dtype
        Dtype of the result.
    gpu, target : str
        The GPU, and the target that its kernels are compiled for.
    multiprocessors : int
        Multiprocessors of the GPU.
    kernel : str
        What does the work: for convolutions the name of a kernel, such as ``"hopper"`` or
        ``"direct"``, else ``"fused"``, ``"normalize"`` or ``"max_pool2d"``; several of them are
        joined by ``" + "``, and a result without elements has ``"none"``.
    refused : dict of str to str
        Kernels that were asked before it, each with the reason why it does not take the call. They
        are printed if `explain` was called with ``verbose=True``.
    plans : tuple of str
        The plans, with tiles.
    launches : tuple of Launch
        The launches in order, each with its ``instance`` (``source``, ``function`` and macros),
        ``grid``, ``block`` and ``shared``, the bytes of shared memory.
    operations : int
        Multiplications and additions of the convolution, as they are usually counted.
    bytes : int
        Bytes of all arrays of the call, the result among them, each counted once.
    limit_ms : float
        The shortest time that the GPU could take, in milliseconds, see `explain`.
    limited_by : str
        ``"bytes"`` or ``"operations"``.
    expected_ms : float
        The time that the planner's model gives the call and its launches, in milliseconds, and at
        least `limit_ms`.
    workspace : int
        Most bytes of memory beside arrays and result at any time.
    """

    function: str
    shapes: dict[str, Shape]
    out_shape: Shape
    dtype: np.dtype
    gpu: str
    target: str
    multiprocessors: int
    kernel: str
    refused: dict[str, str]
    plans: tuple[str, ...]
    launches: tuple[Launch, ...]
    operations: int
    bytes: int
    limit_ms: float
    limited_by: str
    expected_ms: float
    workspace: int
    verbose: bool = field(default=False, compare=False)

    @property
    def expected_share(self) -> float:
        """The limit over the expected time, at most 1, which is as fast as can be."""
        return self.limit_ms / self.expected_ms if self.expected_ms else 1.0

    def __repr__(self) -> str:
        gpu = f"{self.gpu} ({self.target}, {self.multiprocessors} multiprocessors)"
        unit = "OP" if self.dtype.kind in "iu" else "FLOP"
        work = [_scaled(self.bytes, "B")]
        if self.operations:
            intensity = f"{self.operations / self.bytes:.3g} {unit} a byte"
            work = [_scaled(self.operations, unit), *work, intensity]
        refused = self.refused.items() if self.verbose else ()
        rows = [
            ("kernel", self.kernel),
            (
                "expected",
                f"{_time(self.expected_ms)}, {_percent(self.expected_share)} of the limit",
            ),
            ("limit", f"{_time(self.limit_ms)}, by {self.limited_by}"),
            ("workspace", _scaled(self.workspace, "B")),
            ("work", ", ".join(work)),
            *((name, str(shape)) for name, shape in self.shapes.items()),
            ("result", f"{self.out_shape}, {self.dtype}"),
            *(("plan", plan) for plan in self.plans),
            *(("launch", _brief(launch)) for launch in self.launches),
            *(("refused", f"{name}: {reason}") for name, reason in refused),
        ]
        width = max(len(name) for name, _ in rows)
        lines = (f"  {name:{width}}  {text}" for name, text in rows)
        return "\n".join((f"{self.function} on {gpu}", *lines))


def _brief(launch: Launch) -> str:
    shared = f", {launch.shared} bytes of shared memory" if launch.shared else ""
    kernel = f"{launch.instance.source}:{launch.instance.function}"
    return f"{kernel}, {launch.grid} blocks of {launch.block} threads{shared}"


def _scaled(number: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"


def _time(ms: float) -> str:
    for factor, unit in ((1, "ms"), (1e-3, "us")):
        if ms >= factor:
            return f"{ms / factor:.3g} {unit}"
    return f"{1e6 * ms:.3g} ns"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"


_LAUNCH = 3e-6  # seconds of a launch beside its work

_MOST_AXES = 64  # NumPy's limit

# How the functions call their arrays.
_ARRAYS = frozenset(
    "input weight bias kernel grad_output mean var bn_weight bn_bias gn_weight gn_bias out".split()
)


class _Notebook:
    """A device that takes notes, of memory and of launches."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self.launches: list[Launch] = []
        self.workspaces = 0  # bytes
        self.most = 0

    def processor(self) -> Processor:
        """Return what plans know of the device."""
        return self._processor

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        return int(array.__array_interface__["data"][0])

    def workspace(self, shape: Shape, dtype: np.dtype) -> Array:
        """Return what stands for memory; it counts for as long as it is there."""
        memory = Blueprint(shape, dtype)
        self._count(memory.nbytes)
        weakref.finalize(memory, self._count, -memory.nbytes)
        return memory

    def _count(self, nbytes: int) -> None:
        self.workspaces += nbytes
        self.most = max(self.most, self.workspaces)

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in C order in workspace."""
        return array if array.dtype == dtype else self.workspace(array.shape, dtype)

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return what notes a launch."""
        return lambda arguments: self.launches.append(launch)


class _NotingPath(KernelPath):
    """The kernels' path, with notes of its plans and of the time that they should take."""

    def __init__(self, chip: Chip) -> None:
        self.notebook = _Notebook(chip.processor)
        super().__init__(self.notebook)
        self.chip = chip
        self.kernels: list[str] = []
        self.refused: dict[str, str] = {}
        self.plans: list[str] = []
        self.products = 0.0  # multiply-adds, as they are usually counted
        self.needed = 0  # multiply-adds that the result needs
        self.shares: dict[int, float] = {}  # fractions of arrays that must be read, by their ids
        self.nbytes = 0  # of the arrays of a convolution
        self.seconds = 0.0

    def _note(self, kernel: str, tiles: object, nbytes: int, cycles: float = 0) -> None:
        self.kernels.append(kernel)
        self.plans.append(str(tiles))
        self.seconds += max(nbytes / self.chip.copy_rate, self.chip.seconds(cycles))

    def _count(self, geometry: ConvGeometry) -> LeastWork:
        """Count the work of a convolution, and return the least of it."""
        least = least_work(geometry)
        self.products += multiply_adds(geometry)
        self.needed += least.multiply_adds
        return least

    def least_bytes(self, array: Array) -> float:
        """Return the bytes of an array of the call that must be read."""
        return _bytes(array) * self.shares.get(id(array), 1.0)

    def _cycles(self, plan: Plan, dtype: np.dtype) -> float:
        """Return the cycles that the planner's model gives a convolution on this GPU."""
        return plan.cycles * self.chip.slowness(choice.kernel_of(plan).UNIT, dtype)

    def prepare(
        self,
        geometry: ConvGeometry,
        data: Array,
        weight: Array,
        bias: Array | None,
        out: Array,
        precision: str,
    ) -> Convolution:
        """Return what notes the launches of a convolution."""
        least = self._count(geometry)
        self.shares |= {id(data): least.input_share, id(weight): least.weight_share}
        self.nbytes = sum(map(_bytes, (data, weight, out)))
        return super().prepare(geometry, data, weight, bias, out, precision)

    def prepare_weight_gradient(
        self,
        geometry: ConvGeometry,
        data: Array,
        grad_output: Array,
        out: Array,
        precision: str,
    ) -> WeightGradient:
        """Return a function that notes the launches of a gradient with respect to the weight."""
        read = self._count(geometry).input_share
        self.shares |= {id(data): read, id(grad_output): least_work(adjoint(geometry)).input_share}
        self.nbytes = sum(map(_bytes, (data, grad_output, out)))
        return super().prepare_weight_gradient(geometry, data, grad_output, out, precision)

    def _plan_weight_gradient(self, question: Question) -> WeightGradientPlan:
        """Note the plan of a gradient with respect to the weight."""
        plan = super()._plan_weight_gradient(question)
        nbytes = self.nbytes + 2 * plan.workspace  # partial sums are written and read
        self._note("direct", plan.tiles, nbytes, self._cycles(plan.sums, question.dtype))
        return plan

    def _plan_conv(self, question: Question, strides: ConvStrides) -> Plan:
        """Note the plan of a convolution, and why other kernels have none."""
        geometry, dtype, precision = question.geometry, question.dtype, question.precision
        forced = choice.forced_kernel()
        for kernel, plan in choice.candidates(
            geometry, dtype, precision, question.processor, forced
        ):
            if not isinstance(plan, str):
                settled = choice.settled(plan, question, strides)
                self._note(kernel, settled.tiles, self.nbytes, self._cycles(settled, dtype))
                return plan
            self.refused[kernel] = plan
        raise AssertionError("the direct kernel takes every call")

    def _normalize(
        self,
        plan: NormPlan,
        geometry: NormGeometry,
        data: Array,
        parameters: Sequence[Array | None],
        eps: float,
        out: Array,
    ) -> None:
        """Note the launches of a norm."""
        sets = f"{geometry.sets} sets of {geometry.elements} values"
        self._note("normalize", sets, plan.reads * data.nbytes + out.nbytes)
        super()._normalize(plan, geometry, data, parameters, eps, out)

    def _max_pool2d(self, plan: PoolPlan, geometry: PoolGeometry, data: Array, out: Array) -> None:
        """Note the launches of a max pooling."""
        self.shares[id(data)] = pooled_share(geometry)
        turns = -(-geometry.lead[0] // plan.samples)
        between = 2 * turns * sum(plan.between) * out.itemsize  # written and read
        self._note("max_pool2d", f"{out.size} windows", data.nbytes + out.nbytes + between)
        super()._max_pool2d(plan, geometry, data, out)

    def _plan_fused(
        self,
        convolution: ConvGeometry,
        pooled: tuple[int, ...],
        num_groups: int,
        out: Array,
        precision: str,
    ) -> FusedPlan | Refusal:
        """Note the plan of the fused operation, or why it is composed of its parts."""
        plan = super()._plan_fused(convolution, pooled, num_groups, out, precision)
        if isinstance(plan, str):
            self.refused["fused"] = plan
        else:
            self._count(convolution)
            cycles = self._cycles(plan.convolution, out.dtype)
            # The extrema are written and read as float32, and the result is written.
            self._note("fused", plan.convolution.tiles, 3 * 4 * out.size, cycles)
        return plan


def _bytes(array: Array) -> int:
    """Return the bytes of an array in memory: a broadcast axis counts as one element."""
    sizes = (size for size, stride in zip(array.shape, array.strides, strict=True) if stride)
    return math.prod(sizes) * array.dtype.itemsize if array.size else 0


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
        RTX 3090, RTX 4090, H200, B200 and RTX 5090. By default it is the device of the arrays, or
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
    TF32 ones, or the units of float32, whichever are faster. Integers have no such rate: only their
    bytes count. Only a call whose arrays lie in the GPU's cache already may take less than the
    bytes allow.

    The expected time comes from the planner's model, which was fitted on an H200, plus 3 µs for
    each launch. For three of four convolutions of the benchmark it is right within a factor of two.
    It is mostly too short, and less accurate the smaller the call is.

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
    >>> call.refused["plain"]
    'its outputs have 336 products each, more than 110'
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
    path = _NotingPath(chip)
    for name, value in given.items():
        if value is not None:
            bound.arguments[name] = blueprint = _blueprint(name, value, made_of)
            blueprint.path = path
    result = function(*bound.args, **bound.kwargs)
    prints = {n: a for n, a in bound.arguments.items() if isinstance(a, Blueprint) and n != "out"}
    least = sum(map(path.least_bytes, prints.values())) + _bytes(result)
    options = bound.arguments.get("precision")
    rate = chip.product_rate(result.dtype, _precision.resolve(function.__name__, options))
    seconds = {
        "bytes": least / chip.bandwidth,
        "operations": path.needed / rate if rate else 0.0,
    }
    limited_by = max(seconds, key=seconds.__getitem__)
    limit = seconds[limited_by]
    notebook = path.notebook
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
        bytes=sum(map(_bytes, (*prints.values(), result))),
        limit_ms=1e3 * limit,
        limited_by=limited_by,
        expected_ms=1e3 * (max(path.seconds, limit) + len(notebook.launches) * _LAUNCH),
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
