"""Fourth room: arguments packed, kernels put on the current stream.

`KernelPath` packs the arguments in the order of the kernels' ``struct Arguments`` (all members have
64 bits) and leaves to a device what only it knows: addresses, workspace, the launch itself.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from . import _compile, _depthwise, _early, _plain
from ._arrays import Array, Convolution, Fused, floating
from ._geometry import MAX_RANK, ConvGeometry, NormGeometry, PoolAxis, PoolGeometry
from ._plan import (
    MAX_AXES,
    MOST_CHANNELS,
    PACK,
    TARGETS,
    UNROLL,
    DepthwisePlan,
    DirectPlan,
    GatherPlan,
    Launch,
    MatrixPlan,
    NormPlan,
    PlainPlan,
    Processor,
    plan_conv,
    plan_fused,
    plan_joined,
    plan_norm,
    plan_pool,
)
from ._taps import NO_AXIS, AxisTaps

# In the order of `ParameterType` in scalar.cuh.
PARAMETER_DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)


_LINE = 128  # bytes that neighbouring threads move together
_FAR_APART = 3  # a stride with which neighbouring rows of outputs have few rows of inputs in common

# What a kernel is given, 64 bits each.
Arguments: TypeAlias = "array[int]"


class Device(Protocol):
    """What kernels run on."""

    def processor(self) -> Processor:
        """Return what plans know of the device."""

    def address(self, array: Array) -> int:
        """Return the address of the first element."""

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call."""

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in C order in workspace."""

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return what puts a kernel with its packed arguments on the current stream.

        It holds for the device that is the current one now.
        """


@lru_cache(maxsize=64)
def _processor(device: int) -> Processor:
    """Return what plans know of a CUDA device: of the targets, the last that it can run."""
    from cupy.cuda import runtime

    properties = runtime.getDeviceProperties(device)
    capability = 10 * properties["major"] + properties["minor"]
    able = [
        t
        for t in TARGETS
        if int(t.strip("sm_a")) <= capability and ("a" not in t or capability == 90)
    ]
    return Processor(able[-1] if able else TARGETS[0], properties["multiProcessorCount"])


# What a block may have of shared memory without asking.
_SHARED_UNASKED = 48 * 1024
# Two threads may ask one kernel for different amounts; the larger one has to stay.
_asking = Lock()


class CupyDevice:
    """The current CUDA device, by way of CuPy."""

    def __init__(self) -> None:
        import cupy
        from cupy.cuda.function import CPointer

        self._cupy, self._runtime, self._pointer = cupy, cupy.cuda.runtime, CPointer

    def processor(self) -> Processor:
        """Return what plans know of the device."""
        return _processor(self._runtime.getDevice())

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        return array.data.ptr  # type: ignore[no-any-return]

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call.

        While the stream is being captured the memory comes from the graph itself: a block of
        CuPy's pool would be handed out again after the capture, and overwritten by each replay.
        """
        cupy = self._cupy
        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            return cupy.ndarray(shape, dtype)
        size = max(1, int(np.prod(shape)) * dtype.itemsize)
        memory = cupy.cuda.memory.MemoryAsync(size, stream)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in C order in workspace."""
        if array.dtype == dtype:
            return array
        copy = self.workspace(array.shape, dtype)
        copy[...] = array
        return copy

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return what puts a kernel with its packed arguments on the current stream.

        It holds for the device that is the current one now.
        """
        kernel = _compile.kernel(launch.instance)
        if launch.shared > _SHARED_UNASKED:
            with _asking:
                asked = kernel.max_dynamic_shared_size_bytes
                kernel.max_dynamic_shared_size_bytes = max(launch.shared, asked)
        early = _early.driver() if launch.early else None
        if early:
            function = kernel.kernel
            return _early.launcher(early, function, launch.grid, launch.block, launch.shared)
        start, pointer = kernel.kernel.linear_launch, self._pointer
        threads, block, shared = launch.grid * launch.block, launch.block, launch.shared

        def run(arguments: Arguments) -> None:
            # A pointer of its own CuPy takes as it is; the address of an array it looks for anew.
            start(threads, (pointer(arguments.buffer_info()[0]),), shared, block)

        return run


def _packed(values: Iterable[int]) -> Arguments:
    return array("q", values)


def _strides(array: Array) -> tuple[int, ...]:
    """Return the strides in elements; those of an axis of one element never matter."""
    size = array.dtype.itemsize
    return tuple(
        stride // size if n > 1 else 0 for stride, n in zip(array.strides, array.shape, strict=True)
    )


def _cast_strides(array: Array, dtype: np.dtype) -> tuple[int, ...]:
    """Return the strides in elements of what a device casts `array` to."""
    if array.dtype == dtype:
        return _strides(array)
    return tuple(
        math.prod(array.shape[axis + 1 :]) if n > 1 else 0 for axis, n in enumerate(array.shape)
    )


class _ConvStrides(NamedTuple):
    """Strides in elements: of the batch, groups and channels, or of groups, rows and channels."""

    input: tuple[int, int, int]
    weight: tuple[int, int, int]
    out: tuple[int, int, int]
    input_axes: list[int]
    weight_axes: list[int]
    out_axes: list[int]


def _conv_strides(geometry: ConvGeometry, input: Array, weight: Array, out: Array) -> _ConvStrides:
    g = geometry
    lead: tuple[int, ...] = () if g.batched else (0,)
    input_batch, input_channel, *input_axes = (*lead, *_cast_strides(input, out.dtype))
    out_batch, out_row, *out_axes = (*lead, *_strides(out))
    weight_0, weight_1, *weight_axes = _cast_strides(weight, out.dtype)
    return _ConvStrides(
        (input_batch, g.channels * input_channel, input_channel),
        (g.channels * weight_0, weight_1, weight_0)
        if g.transposed
        else (g.rows * weight_0, weight_0, weight_1),
        (out_batch, g.rows * out_row, out_row),
        input_axes,
        weight_axes,
        out_axes,
    )


def _lie_as_one(strides: _ConvStrides, axis: int, width: int) -> bool:
    """Whether an axis and the next one, of `width` places, are one in input and output."""
    return all(own[axis] == own[axis + 1] * width for own in (strides.input_axes, strides.out_axes))


def _without(strides: _ConvStrides, axis: int) -> _ConvStrides:
    """Return the strides where an axis and the next one are one."""
    s = strides
    return s._replace(
        input_axes=s.input_axes[:axis] + s.input_axes[axis + 1 :],
        weight_axes=s.weight_axes[: axis + 1] + s.weight_axes[axis + 2 :],
        out_axes=s.out_axes[:axis] + s.out_axes[axis + 1 :],
    )


def _merged(geometry: ConvGeometry, strides: _ConvStrides) -> tuple[ConvGeometry, _ConvStrides]:
    """Return the same pointwise convolution with neighbouring axes as one, where they lie so.

    Images of odd width then have long rows, of which more are even. More than three axes stay, as
    they are for another kernel, whose sums have other bits; so do the axes of other convolutions,
    as the order of a sum depends on which axis a tap belongs to.
    """
    g, s = geometry, strides
    if g.rank > 3 or not all(map(_plain.is_pointwise, g.axes)):
        return g, s
    for axis in reversed(range(g.rank - 1)):
        one = _plain.joined(g, axis)
        if one and _lie_as_one(s, axis, g.axes[axis + 1].size_in):
            g, s = one, _without(s, axis)
    return g, s


def _raised(geometry: ConvGeometry, strides: _ConvStrides) -> tuple[ConvGeometry, _ConvStrides]:
    """Return the same 2-d convolution as one of z and x, where it strides far along its first axis.

    The dense kernel stages the inputs of each tap of z on their own, and those of all taps of y
    together. Where a stride leaves neighbouring rows few inputs in common, nothing is lost by that,
    and tiles take a fraction of the shared memory.
    """
    g, s = geometry, strides
    if g.transposed or g.rank != 2 or g.stride[0] < _FAR_APART or g.channels < 2:
        return g, s
    first, last = g.axes
    return (
        replace(
            g,
            axes=(first, NO_AXIS, last),
            stride=(g.stride[0], 1, g.stride[1]),
            dilation=(g.dilation[0], 1, g.dilation[1]),
            pads_before=(g.pads_before[0], 0, g.pads_before[1]),
        ),
        s._replace(
            input_axes=[s.input_axes[0], 0, s.input_axes[1]],
            weight_axes=[s.weight_axes[0], 0, s.weight_axes[1]],
            out_axes=[s.out_axes[0], 0, s.out_axes[1]],
        ),
    )


def on_long_lines(
    geometry: ConvGeometry, strides: _ConvStrides, dtype: np.dtype, processor: Processor
) -> tuple[PlainPlan, ConvGeometry, _ConvStrides]:
    """Return the plan for few products, with axes as one where that is faster and they lie so."""
    g, s = geometry, strides
    widths = [axis.size_in for axis in g.axes[1:]]
    lie_as_one = tuple(_lie_as_one(s, axis, width) for axis, width in enumerate(widths))
    axes, plan = plan_joined(g, dtype, processor, lie_as_one)
    assert isinstance(plan, PlainPlan)
    for axis in axes:
        g = _plain.joined(g, axis) or g
        s = _without(s, axis)
    return plan, g, s


def laid_out(
    geometry: ConvGeometry, input: Array, weight: Array, out: Array
) -> tuple[ConvGeometry, _ConvStrides]:
    """Return a convolution as the planner is asked for it, and the strides of its arrays."""
    return _raised(*_merged(geometry, _conv_strides(geometry, input, weight, out)))


def _padded(values: Sequence[int], length: int) -> tuple[int, ...]:
    return (*values, *(0,) * (length - len(values)))


@lru_cache(maxsize=4096)
def _fields(axes: tuple[AxisTaps, ...] | tuple[PoolAxis, ...], length: int) -> tuple[int, ...]:
    """Return the members of the structs of `length` axes, zeros behind the last one."""
    fields = [field for axis in axes for field in astuple(axis)]
    return _padded(fields, len(fields) // len(axes) * length)


class _Axis(NamedTuple):
    """One axis of a view: its size and its stride in each array."""

    size: int
    strides: tuple[int, ...]


def _view(shape: Sequence[int], *strides: Sequence[int]) -> tuple[_Axis, ...]:
    """Return the axes that arrays are walked along together; there is at least one.

    Neighbours are merged where they lie as one in each array.
    """
    axes: list[_Axis] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1].strides == tuple(step * size for step in steps):
            size *= axes.pop().size
        axes.append(_Axis(size, tuple(steps)))
    return tuple(axes) or (_Axis(1, (0,) * len(strides)),)


def _packed_view(axes: Sequence[_Axis]) -> tuple[int, ...]:
    """Return a packed ``struct View``."""
    axes = axes[::-1]
    sizes = [axis.size for axis in axes]
    arrays = zip(*(axis.strides for axis in axes), strict=True)
    return (
        len(axes),
        *_padded(sizes, MAX_AXES),
        *_padded([_long_reciprocal(size) for size in sizes], MAX_AXES),
        *(stride for strides in arrays for stride in _padded(strides, MAX_AXES)),
    )


def _packed_numbers(axes: Sequence[_Axis], width: int) -> tuple[int, ...]:
    """Return a packed ``struct Walk`` whose starts are all values, one by one."""
    starts = [_Axis(axis.size, (*axis.strides, 0)) for axis in axes]
    none = (0,) * len(axes[0].strides)
    return width, math.prod(axis.size for axis in axes), 1, 1, *none, *_packed_view(starts)


def _packed_walk(axes: Sequence[_Axis], width: int, line: int, still: int = 0) -> tuple[int, ...]:
    """Return a packed ``struct Walk`` in steps of `width` neighbours.

    Its run is the longest axis along which the last arrays, `still` of them, do not grow. Where
    that is the last axis, threads take turns on it, as many as there are steps in a `line`.
    """
    *others, last = axes
    axes = [*others, _Axis(last.size // width, tuple(width * own for own in last.strides))]
    none = (0,) * len(last.strides)
    runs = [i for i, axis in enumerate(axes) if not any(axis.strides[len(none) - still :])]
    run = max(runs, key=lambda i: axes[i].size, default=len(axes))
    size, strides = axes[run] if runs else _Axis(1, none)
    lanes = line if run == len(others) else 1
    tiles = -(-size // (lanes * UNROLL))
    lanes = -(-size // (tiles * UNROLL))
    steps = tuple(lanes * own for own in strides)
    starts = [_Axis(axis.size, (*axis.strides, 0)) for axis in axes]
    starts[run : run + 1] = [
        _Axis(tiles, (*(UNROLL * own for own in steps), lanes * UNROLL)),
        _Axis(lanes, (*strides, 1)),
    ]
    view = _view([axis.size for axis in starts], *zip(*(a.strides for a in starts), strict=True))
    threads = math.prod(axis.size for axis in view)
    return width, threads, size, lanes, *steps, *_packed_view(view)


def _together(most: int, strides: Sequence[int], size: int = 0) -> int:
    """Return how many neighbours along the last axis lie together, in every line alike.

    At most `most`, a power of two; a `size` of the axis is to be a multiple as well.
    """
    *others, last = strides
    return math.gcd(most, size, *others) if last == 1 else 1


def _pitches(
    line: int, sizes: tuple[int, int], strides: tuple[int, int, int], chunk: int
) -> list[int]:
    """Return what separates lines, planes and channels in shared memory.

    A line has room for `line` elements at least, a plane and a channel have `sizes` of them. Each
    equals its stride modulo a chunk, so that chunks are aligned there as they are in memory.
    """
    pitches = []
    for size, stride in zip((1, *sizes), strides, strict=True):
        line *= size
        line += (stride - line) % chunk
        pitches.append(line)
    return pitches


_PREFETCHED = 2**24  # bytes of an input that are worth a place in the L2 cache


def _lines(geometry: ConvGeometry, strides: _ConvStrides, element: int) -> int:
    """Return how many lines of 128 bytes a small input without gaps fills, 0 for any other."""
    g = geometry
    sizes = (g.batch, g.groups, g.channels, *(axis.size_in for axis in g.axes))
    along = (*strides.input, *strides.input_axes)
    last = sum((size - 1) * stride for size, stride in zip(sizes, along, strict=True))
    size = math.prod(sizes)
    dense = min(along) >= 0 and last + 1 == size
    return -(-size * element // 128) if dense and size * element <= _PREFETCHED else 0


def _reciprocal(divisor: int) -> int:
    """Return by what kernels divide small numbers by `divisor`."""
    return (2**32 - 1) // divisor


def _long_reciprocal(divisor: int) -> int:
    """Return the same for any number, in 64 bits, as the signed number of these bits."""
    return (2**64 - 1) // divisor - (2**64 if divisor == 1 else 0)


def _element(array: Array | None) -> tuple[int, int]:
    """Return the members of a ``struct Parameter`` behind its address."""
    if array is None:
        return 0, 0
    return PARAMETER_DTYPES.index(array.dtype.name), array.strides[0] // array.dtype.itemsize


class _Placed(NamedTuple):
    """How an array lies in memory: what there is to know of it but for its address."""

    strides: tuple[int, ...]  # in elements
    itemsize: int
    past: int  # elements from the last address that is a multiple of so many


class _NormAxes(NamedTuple):
    """The axes that a norm goes along, and where its sets begin in input and result."""

    values: tuple[_Axis, ...]  # of a set: input, number
    places: tuple[_Axis, ...]  # of what is stored: where it comes from, result, channel, set
    sample_strides: tuple[int, int]
    set_strides: tuple[int, int]


def _norm_axes(
    geometry: NormGeometry, of_input: Sequence[int], of_out: Sequence[int], alone: bool
) -> _NormAxes:
    """Return the axes for a block that has a set `alone`, or for blocks that share all of them."""
    g = geometry
    samples, channels, *space = g.shape
    none = (0,) * len(space)
    shape: tuple[int, ...] = (g.channels, *space)
    numbers = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    set_strides = of_input[1] * g.channels, of_out[1] * g.channels
    if alone:
        values = _ordered(0, shape, of_input[1:], numbers)
        places = _ordered(1, shape, numbers, of_out[1:], (1, *none), (0, *none))
        return _NormAxes(values, places, (of_input[0], of_out[0]), set_strides)
    if g.sets_per_sample:
        values = _view(shape, of_input[1:], numbers)
        sample_strides = of_input[0], of_out[0]
    else:  # a set runs over the samples
        shape = (samples, *space)
        numbers = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        values = _view(shape, (of_input[0], *of_input[2:]), numbers)
        sample_strides = 0, 0
    places = _ordered(
        1,
        # Channels as groups of them, so that the number of the set grows evenly along each axis.
        (samples, channels // g.channels, g.channels, *space),
        *((own[0], own[1] * g.channels, *own[1:]) for own in (of_input, of_out)),
        (0, g.channels, 1, *none),
        (g.sets_per_sample, 1, 0, *none),
    )
    return _NormAxes(values, places, sample_strides, set_strides)


def _ordered(array: int, shape: Sequence[int], *strides: Sequence[int]) -> tuple[_Axis, ...]:
    """Return a view in the order in which an array lies in memory."""
    order = sorted(range(len(shape)), key=lambda axis: -abs(strides[array][axis]))
    return _view([shape[a] for a in order], *([own[a] for a in order] for own in strides))


def _width(pack: int, axes: Sequence[_Axis], starts: Sequence[Sequence[int]]) -> int:
    """Return how many neighbours one instruction moves: a pack, half of one, or 1.

    They lie together and aligned in each of the first arrays. Of these `starts` has where they
    begin, and how far apart their parts do, in elements.
    """
    widths = [
        _together(pack, [*own, *(axis.strides[array] for axis in axes)], axes[-1].size)
        for array, own in enumerate(starts)
    ]
    return width if (width := min(widths)) in (pack, pack // 2) else 1


@lru_cache(maxsize=4096)
def _norm_layout(
    geometry: NormGeometry, pack: int, alone: bool, input: _Placed, out: _Placed
) -> Arguments:
    """Return the packed arguments of norms of arrays that lie so, but for those of each call.

    A block has a set `alone`, or blocks share all of them.
    """
    g, line = geometry, _LINE // input.itemsize
    axes = _norm_axes(g, input.strides, out.strides, alone)
    starts = input.past, out.past
    sets = list(zip(starts, axes.sample_strides, axes.set_strides, strict=True))
    values_width = _width(pack, axes.values, [sets[0], (0,)] if alone else sets[:1])
    width = _width(pack, axes.places, [(0,), sets[1]] if alone else [starts[:1], starts[1:]])
    *_, to_channel, to_set = axes.places[-1].strides
    if to_channel or to_set:
        width = 1 if alone else min(width, MOST_CHANNELS)
    return _packed(
        (
            *(g.shape[1], g.sets, g.sets_per_sample or g.sets, g.channels),
            *(*axes.sample_strides, *axes.set_strides, g.elements),
            values_width == pack and [axis.strides for axis in axes.values] == [(1, 1)],
            *(
                _packed_walk(axes.values, values_width, line // values_width)
                if alone
                else _packed_numbers(axes.values, values_width)
            ),
            *_packed_walk(axes.places, width, line // width, still=2),
            *((to_channel, to_set) if width > 1 else (0, 0)),
        )
    )


def _lies_across(geometry: NormGeometry, input: _Placed) -> bool:
    """Whether the channels lie in packs, each a set of its own: those of a batch norm."""
    (samples, channels, *space), (own, step, *steps) = geometry.shape, input.strides
    pack = PACK // input.itemsize
    axes = zip((samples, channels, *space), (own, 0, *steps), strict=True)
    strides = [stride for size, stride in axes if size > 1]
    return (
        geometry.sets_per_sample == 0
        and step == 1
        and math.gcd(pack, channels, input.past, *strides) == pack
    )


@lru_cache(maxsize=4096)
def _pool_layout(geometry: PoolGeometry, input: _Placed, of_out: tuple[int, ...]) -> Arguments:
    """Return the packed arguments of poolings of arrays that lie so, but for their addresses."""
    h, w = geometry.axes
    *lead, line, step = input.strides
    inside = h.is_inside and w.is_inside
    none = (0,) * len(lead)
    outputs = _view(
        geometry.out_shape,
        (*lead, h.stride * line, w.stride * step),
        of_out,
        (*none, not inside, 0),
        (*none, 0, not inside),
    )
    steps = (input.past, h.dilation * line, *(axis.strides[0] for axis in outputs))
    pairs = (
        inside
        and h.kernel == w.kernel == 2
        and w.dilation == step == 1
        and math.gcd(2, *steps) == 2
    )
    return _packed(
        (
            *_fields(geometry.axes, 2),
            *(line, step, inside, pairs),
            *_packed_walk(outputs, 1, _LINE // input.itemsize),
        )
    )


class KernelPath:
    """Convolutions, norms and pooling by the kernels of a device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call."""
        return self.device.workspace(shape, dtype)

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in workspace."""
        return self.device.cast(array, dtype)

    def _parameter(self, array: Array | None) -> tuple[int, int, int]:
        """Return a packed ``struct Parameter``."""
        return 0 if array is None else self.device.address(array), *_element(array)

    def prepare(
        self,
        geometry: ConvGeometry,
        input: Array,
        weight: Array,
        bias: Array | None,
        out: Array,
        precision: str,
    ) -> Convolution:
        """Return the convolution of `geometry` for all arrays of the layouts of these.

        It holds no address, and nothing that comes from the contents of an array.
        """
        geometry, strides = laid_out(geometry, input, weight, out)
        plan = plan_conv(geometry, out.dtype, precision, self.device.processor())
        if isinstance(plan, DirectPlan):
            convolve = self._direct(plan, geometry, strides, bias)
        elif isinstance(plan, DepthwisePlan):
            convolve = self._depthwise(plan, geometry, strides, bias, out)
        elif isinstance(plan, GatherPlan):
            convolve = self._gather(plan, geometry, strides, bias)
        elif isinstance(plan, PlainPlan):
            convolve = self._plain(geometry, strides, bias, out.dtype)
        else:
            convolve = self._matrix(plan, geometry, strides, bias, out.dtype.itemsize)
        dtype, cast = out.dtype, self.device.cast
        if input.dtype == weight.dtype == dtype:
            return convolve
        return lambda input, weight, *rest: convolve(cast(input, dtype), cast(weight, dtype), *rest)

    def _direct(
        self, plan: DirectPlan, geometry: ConvGeometry, strides: _ConvStrides, bias: Array | None
    ) -> Convolution:
        g = geometry
        rank = int(dict(plan.launch.instance.defines)["RANK"])
        length = rank or MAX_RANK
        missing = max(0, rank - g.rank)  # axes in front
        lead = (0,) * missing
        constants = _packed(
            (
                *_element(bias),
                *(g.rank, g.batch, g.groups, g.channels, g.rows),
                *strides.input,
                *strides.weight,
                *strides.out,
                *(plan.phases, plan.row_tiles, plan.position_tiles),
                *_fields((NO_AXIS,) * missing + g.axes, length),
                *_padded((*lead, *strides.input_axes), length),
                *_padded((*lead, *strides.weight_axes), length),
                *_padded((*lead, *strides.out_axes), length),
            )
        )
        launch = self.device.launcher(plan.launch)
        address = self.device.address

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            term = 0 if bias is None else address(bias)
            launch(_packed((address(input), address(weight), address(out), term)) + constants)

        return convolve

    def _depthwise(
        self,
        plan: DepthwisePlan,
        geometry: ConvGeometry,
        strides: _ConvStrides,
        bias: Array | None,
        out: Array,
    ) -> Convolution:
        g, layout, itemsize = geometry, plan.layout, out.dtype.itemsize
        z, y, x = layout.axes
        taps = z.kernel * y.kernel * x.kernel
        lead = (0,) * (3 - g.rank)
        inputs, weights, outs = (
            (*lead, *axes) for axes in (strides.input_axes, strides.weight_axes, strides.out_axes)
        )
        depth, height, _ = layout.extent
        chunk = _depthwise.CHUNK // itemsize
        apart = (strides.input[1], *inputs)
        if layout.shape.matrix:  # whole chunks in every sample
            vectors = _together(chunk, (strides.input[0], *apart)) == chunk
            line = layout.pitch
            plane, channel = line * height, line * height * depth
        else:  # pairs of neighbours need what separates lines, planes and channels to be even
            vectors = _together(2, apart) == 2
            runs = layout.vectors if vectors else layout.elements
            width = chunk if vectors else 1
            line, plane, channel = _pitches(
                runs.chunks * runs.count * width,
                (height, depth),
                (inputs[1], inputs[0], strides.input[1]),
                width,
            )
        fields = [
            value
            for axis, *rest in zip(
                layout.axes,
                layout.low,
                (abs(axis.offset_step) for axis in layout.axes),
                layout.tile,
                layout.tiles,
                layout.extent,
                (plane, line, 1),
                inputs,
                weights,
                outs,
                strict=True,
            )
            for value in (*astuple(axis), *rest)
        ]
        section = layout.section
        further = section // x.phases * x.step  # inputs from one section to the next
        lines = (
            (section * outs[2], 0, further, further)
            if section
            else (y.phases * outs[1], y.step, 0, y.step * line)
        )
        strips, planes = layout.strips, layout.tile[0]

        def packed(vectors: bool) -> Arguments:
            runs = layout.vectors if vectors else layout.elements
            return _packed(
                (
                    *_element(bias),
                    *(g.groups, g.rows, *strides.input[:2], *strides.weight[:2], *strides.out),
                    *fields,
                    *(layout.count, layout.row_tiles, layout.channel_tiles),
                    *(layout.rows, layout.channels, channel),
                    *(layout.staged * runs.count, layout.items, taps),
                    *(layout.inputs, runs.chunks, runs.count, vectors, layout.slides),
                    *(layout.low[2] % chunk, layout.columns, strips, section, *lines),
                    *map(
                        _long_reciprocal,
                        (layout.row_tiles, *reversed(layout.tiles), layout.channel_tiles),
                    ),
                    *map(
                        _reciprocal,
                        (
                            runs.chunks,
                            runs.count,
                            depth,
                            height,
                            layout.columns,
                            strips,
                            strips * y.phases,
                        )
                        + (planes, planes * z.phases, layout.channels, x.phases)
                        + (x.kernel, y.kernel, taps + 1, section or 1),
                    ),
                )
            )

        constants = packed(vectors)
        # Where the first input is not aligned.
        by_elements = packed(False) if layout.shape.matrix else constants
        # Neighbouring outputs are a thread's own where taps slide.
        pairs = layout.slides and _together(2, (*strides.out, *outs)) == 2
        launch = self.device.launcher(plan.launch)
        address = self.device.address

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            result = address(out)
            source = address(input)
            term = 0 if bias is None else address(bias)
            own = constants if source % _depthwise.CHUNK == 0 else by_elements
            aligned = pairs and result % (2 * itemsize) == 0
            launch(_packed((source, address(weight), result, term)) + own + _packed((aligned,)))

        return convolve

    def _gather(
        self, plan: GatherPlan, geometry: ConvGeometry, strides: _ConvStrides, bias: Array | None
    ) -> Convolution:
        g, layout = geometry, plan.layout
        lead = (0,) * (3 - g.rank)
        inputs = (*lead, *strides.input_axes)
        fields = [
            value
            for axis, input, weight, out, pitch in zip(
                layout.axes,
                inputs,
                (*lead, *strides.weight_axes),
                (*lead, *strides.out_axes),
                layout.pitches,
                strict=True,
            )
            for value in (
                *(axis.size_in, axis.size_out, axis.kernel),
                *(axis.step, axis.offsets[0], abs(axis.offset_step)),
                input,
                *((0, weight) if axis.offset_step > 0 else ((axis.kernel - 1) * weight, -weight)),
                *(out, pitch),
            )
        ]
        # Axes of one element may have any stride.
        dense = all(
            axis.size_in == 1 or stride == pitch
            for axis, stride, pitch in zip(layout.axes, inputs, layout.pitches, strict=True)
        )
        constants = _packed(
            (
                *_element(bias),
                *(g.groups * g.rows, g.rows),
                *(*strides.input[:2], *strides.weight[:2], *strides.out),
                *fields,
                *(layout.band, layout.tile, layout.tiles, layout.positions),
                *(layout.channels, layout.channel_tiles, layout.room),
                *(math.prod(axis.kernel for axis in layout.axes), dense),
            )
        )
        launch = self.device.launcher(plan.launch)
        address = self.device.address

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            term = 0 if bias is None else address(bias)
            launch(_packed((address(input), address(weight), address(out), term)) + constants)

        return convolve

    def _plain(
        self, geometry: ConvGeometry, strides: _ConvStrides, bias: Array | None, dtype: np.dtype
    ) -> Convolution:
        plan, g, strides = on_long_lines(geometry, strides, dtype, self.device.processor())
        layout = plan.layout
        x = layout.axes[2]
        lead = (0,) * (3 - g.rank)
        inputs = (*lead, *strides.input_axes)
        chunks = dtype == np.float32 and x.step == inputs[2] == 1
        deep, high = layout.extents
        line, plane, channel = _pitches(
            layout.pitches[1],
            (high, deep),
            (inputs[1], inputs[0], strides.input[2]),
            _plain.CHUNK if chunks else 1,
        )
        fields = [
            value
            for axis, *rest in zip(
                layout.axes,
                layout.tile,
                layout.tiles,
                (plane, line, layout.pitches[2]),
                inputs,
                (*lead, *strides.weight_axes),
                (*lead, *strides.out_axes),
                strict=True,
            )
            for value in (*astuple(axis), *rest)
        ]
        constants = _packed(
            (
                *(g.groups, g.rows, g.channels, *strides.input, *strides.weight, *strides.out),
                *fields,
                *(layout.units, layout.count),
                *(layout.row_tiles, layout.slabs, layout.slabs_of_tile),
                *(layout.lines, layout.passes),
                *(
                    layout.steps,
                    layout.low,
                    layout.extent,
                    channel,
                    *layout.places,
                    layout.buffer_pitch,
                ),
                *map(_long_reciprocal, reversed(layout.tiles)),
                *map(_reciprocal, (x.step, layout.lines)),
                chunks,
            )
        )
        pairs = _together(2, (*strides.out, *strides.out_axes), x.size_out) == 2
        weights = 4 * _plain.ROWS * plan.slabs * layout.steps
        pack, launch = self.device.launcher(plan.pack), self.device.launcher(plan.launch)
        element, address, byte = _element(bias), self.device.address, np.dtype(np.uint8)

        def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
            packed = self.device.workspace((weights + 4 * plan.slabs,), byte)
            place = address(packed)
            term = 0 if bias is None else address(bias)
            arrays = address(input), address(weight), address(out), term
            paired = pairs and arrays[2] % (2 * dtype.itemsize) == 0
            arguments = _packed((*arrays, *element, place, place + weights)) + constants
            arguments.append(paired)
            pack(arguments)
            launch(arguments)

        return convolve

    def _matrix(
        self,
        plan: MatrixPlan,
        geometry: ConvGeometry,
        strides: _ConvStrides,
        bias: Array | None,
        element: int,
    ) -> Callable[..., None]:
        """Return a convolution of elements of so many bytes.

        Behind its arrays, or None in their place, it takes further arguments of its kernel.
        """
        g, sum, tiling = geometry, plan.sum, plan.tiling
        lead = (0,) * (3 - g.rank)
        weight_axes = (*lead, *strides.weight_axes)
        axes = [
            value
            for axis, stride in zip(sum.axes, weight_axes, strict=True)
            for value in (
                *(*astuple(axis.taps), stride),
                *(axis.spacing, axis.lattices, axis.pairs, axis.spread),
            )
        ]
        fold = astuple(sum.fold)
        order = (sum.channels, sum.blocks, sum.depth, sum.halves, sum.axes[2].apart)
        pack_constants = _packed(
            (
                *(g.groups, g.rows, *strides.weight),
                *(sum.phases, tiling.row_tiles, tiling.shape.slabs, sum.steps, plan.splits),
                *order,
                *fold,
                *axes,
            )
        )
        scaled = sum.mode.scaled
        batch = max(1, g.batch)
        judged = _packed(
            (
                *(batch, g.groups * g.channels, *(axis.size_in for axis in sum.taps)),
                *(strides.input[0], strides.input[2], *lead, *strides.input_axes),
            )
        )
        rows = g.groups * sum.phases * tiling.row_tiles * tiling.shape.rows
        shifts = plan.packed - 4 * batch - 8 * rows, plan.packed - 4 * batch
        x = sum.axes[2]
        input_pairs = x.pairs and _together(2, (*strides.input, *strides.input_axes)) == 2
        own = sum.fold.count % 2 == 0 or sum.fold.count == x.taps.phases == 1
        out_strides = (*strides.out, *strides.out_axes)
        unit = _together(sum.unit if own else 1, out_strides, g.axes[-1].size_out)
        groups = tiling.slots // 32
        constants = _packed(
            (
                *_element(bias),
                *(g.batch, g.groups, g.rows),
                *(*strides.input, *lead, *strides.input_axes),
                *strides.weight,
                *(*strides.out, *lead, *strides.out_axes),
                *(value for axis in sum.taps for value in astuple(axis)),
                *axes,
                *fold,
                *order,
                *(sum.phases, sum.steps),
                *(tiling.row_tiles, *tiling.tiles, *tiling.tile),
                *(tiling.plane_pitch, tiling.row_pitch, tiling.segment_pitch),
                *(tiling.slots, tiling.lattice_slots, *tiling.extent, *tiling.reach),
                *(
                    tiling.stages,
                    tiling.weight_stages,
                    tiling.chunk,
                    tiling.deep,
                    tiling.resident,
                    tiling.group,
                ),
                *map(_reciprocal, (tiling.plane_pitch, tiling.row_pitch, tiling.tile[1])),
                *(_long_reciprocal(n) for n in (tiling.row_tiles, *reversed(tiling.tiles))),
            )
        )
        pack, launch = self.device.launcher(plan.pack), self.device.launcher(plan.launch)
        address = self.device.address
        byte = np.dtype(np.uint8)
        lines = _lines(g, strides, element)

        def convolve(
            input: Array, weight: Array, bias: Array | None, out: Array | None, *more: int
        ) -> None:
            packed = self.device.workspace((plan.packed,), byte)
            weights = address(weight), address(packed)
            source, result = address(input), 0 if out is None else address(out)
            if scaled:
                found = weights[1] + shifts[0], weights[1] + shifts[1]
                pack(_packed(weights) + pack_constants + _packed((source, lines, *found)) + judged)
                more = (*found, *more)
            else:
                pack(_packed(weights) + pack_constants + _packed((source, lines)))
            addresses = source, *weights, result, 0 if bias is None else address(bias)
            paired = input_pairs and source % (2 * element) == 0
            last = _reciprocal(groups // 2 if paired else groups), paired
            aligned = math.gcd(unit, result // element)
            launch(_packed(addresses) + constants + _packed((*last, aligned, *more)))

        return convolve

    def fused(
        self,
        convolution: ConvGeometry,
        pooling: PoolGeometry,
        group_norm: NormGeometry,
        precision: str,
        input: Array,
        kernel: Array,
        given: bool,
        eps: float,
        out: Array,
    ) -> Fused | None:
        """Return the fused operation for all arrays of the layouts of these.

        None where it has no plan. Statistics may be `given`.
        """
        device, dtype, pooled_shape = self.device, out.dtype, pooling.out_shape
        num_groups = group_norm.sets_per_sample
        processor = device.processor()
        plan = plan_fused(convolution, pooled_shape, num_groups, dtype, precision, processor)
        if isinstance(plan, str):
            return None
        samples, channels, height, width = pooled_shape
        space, blocks = height * width, plan.convolution.launch.grid
        # The convolution's own result lies nowhere.
        strides = _conv_strides(convolution, input, kernel, out)
        strides = strides._replace(out=(0, 0, 0), out_axes=[0, 0])
        convolve = self._matrix(plan.convolution, convolution, strides, None, dtype.itemsize)
        combine, normalize = device.launcher(plan.combine), device.launcher(plan.normalize)
        # In the place of the first block's statistics lies what `combine` makes of all.
        moments_shape = (1 if given else blocks, channels, 2)
        bits = int(np.float64(eps).view(np.int64))
        own = channels // num_groups
        sizes = samples, blocks, channels, num_groups, own, space, width
        constants = _packed((*sizes, *_strides(out), bits))
        single, double = np.dtype(np.float32), np.dtype(np.float64)

        def compute(
            input: Array,
            kernel: Array,
            statistics: Sequence[Array | None],
            parameters: Sequence[Array],
            out: Array,
        ) -> None:
            input, kernel = device.cast(input, dtype), device.cast(kernel, dtype)
            extrema = device.workspace(pooled_shape, single)
            moments = device.workspace(moments_shape, double)
            pooled, affine = device.address(extrema), device.address(moments)
            partials = 0 if given else affine
            known = [field for a in statistics for field in self._parameter(a)]
            before, behind = (
                [field for a in pair for field in self._parameter(a)]
                for pair in (parameters[:2], parameters[2:])
            )
            layout = channels * space, space, width
            convolve(input, kernel, None, None, pooled, partials, *before, *known, bits, *layout)
            arguments = _packed(
                (pooled, partials, affine, device.address(out), *known, *before, *behind)
            )
            arguments += constants
            combine(arguments)
            normalize(arguments)
            if plan.apart:
                norm = self._plan_norm(group_norm, extrema, out, given=False, tanh=False)
                self._normalize(norm, group_norm, extrema, (None, None, *parameters[2:]), eps, out)

        return compute

    def normalize(
        self,
        geometry: NormGeometry,
        input: Array,
        mean: Array | None,
        var: Array | None,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        out: Array,
        tanh: bool = False,
    ) -> None:
        """Write the normalised `input` to `out`, computed in float64; tanh follows if asked for."""
        input = self.device.cast(input, floating(input.dtype))
        plan = self._plan_norm(geometry, input, out, given=mean is not None, tanh=tanh)
        self._normalize(plan, geometry, input, (mean, var, weight, bias), eps, out)

    def _plan_norm(
        self, geometry: NormGeometry, input: Array, out: Array, *, given: bool, tanh: bool
    ) -> NormPlan:
        across = _lies_across(geometry, self._placed(input))
        processor = self.device.processor()
        return plan_norm(geometry, input.dtype, out.dtype, given, tanh, across, processor)

    def _normalize(
        self,
        plan: NormPlan,
        geometry: NormGeometry,
        input: Array,
        parameters: Sequence[Array | None],
        eps: float,
        out: Array,
    ) -> None:
        g, address = geometry, self.device.address
        alone = not plan.statistics
        workspaces = [
            self.device.workspace(shape, np.dtype(np.float64))
            for shape in ((g.sets, 2), (g.shape[1], 2), (g.sets, plan.segments, 2))
            if not alone
        ]
        own = _packed(
            (
                *(address(input), address(out)),
                *(map(address, workspaces) if workspaces else (0, 0, 0)),
                *(field for array in parameters for field in self._parameter(array)),
                int(np.float64(eps).view(np.int64)),
                *(plan.segment, plan.segments),
            )
        )
        input_placed, out_placed = self._placed(input), self._placed(out)
        arguments = own + _norm_layout(g, plan.pack, alone, input_placed, out_placed)
        for launch in (*plan.statistics, plan.normalize):
            self.device.launcher(launch)(arguments)

    def _placed(self, array: Array) -> _Placed:
        size = array.dtype.itemsize
        return _Placed(_strides(array), size, self.device.address(array) // size % PACK)

    def max_pool2d(self, geometry: PoolGeometry, input: Array, out: Array) -> None:
        """Write the maximum of each window to `out`; a NaN in a window is its maximum."""
        addresses = _packed((self.device.address(input), self.device.address(out)))
        layout = _pool_layout(geometry, self._placed(input), _strides(out))
        self.device.launcher(plan_pool(geometry, out.dtype))(addresses + layout)
