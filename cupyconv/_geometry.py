"""First room: arguments to a frozen description of the call. No arrays, only shapes.

All validation of shapes and values happens here, and the output shape is computed here and nowhere
else. Errors name the function, the argument, the rule and the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from . import _arguments as arguments
from ._taps import AxisTaps, conv_taps, conv_transpose_taps

Shape = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ConvGeometry:
    """A convolution or transposed convolution, seen as ``groups`` independent ones.

    Attributes
    ----------
    transposed : bool
        Direction.
    batched : bool
        Whether the caller's arrays have a batch axis.
    batch, groups : int
        Samples and groups.
    channels, rows : int
        Input and output channels of one group.
    axes : tuple of AxisTaps
        One for each spatial axis.
    stride, dilation : tuple of int
        As given.
    pads_before : tuple of int
        Padding in front of each axis; what lies behind follows from the sizes.
    """

    transposed: bool
    batched: bool
    batch: int
    groups: int
    channels: int
    rows: int
    axes: tuple[AxisTaps, ...]
    stride: Shape
    dilation: Shape
    pads_before: Shape

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.axes)

    @cached_property
    def out_shape(self) -> Shape:
        """Shape of the result, without a batch axis where the input has none."""
        shape = (self.groups * self.rows, *(axis.size_out for axis in self.axes))
        return (self.batch, *shape) if self.batched else shape

    @cached_property
    def products(self) -> int:
        """Length of the longest sum: taps times channels of a group."""
        return self.channels * math.prod(axis.kernel for axis in self.axes)


def _spatial_rank(name: str, weight_shape: Shape, rank: int | None) -> int:
    if rank is None:
        if len(weight_shape) < 3:
            raise ValueError(
                f"{name}: weight must have at least one spatial axis after its two channel axes, "
                f"got weight of shape {weight_shape}"
            )
        return len(weight_shape) - 2
    if len(weight_shape) != rank + 2:
        raise ValueError(
            f"{name}: weight must have {rank + 2} axes, got weight of shape {weight_shape}"
        )
    return rank


def _batched(name: str, input_shape: Shape, rank: int) -> bool:
    if len(input_shape) not in (rank + 1, rank + 2):
        raise ValueError(
            f"{name}: input must have {rank + 2} axes, or {rank + 1} without a batch axis, "
            f"got input of shape {input_shape}"
        )
    return len(input_shape) == rank + 2


def _check_common(
    name: str, weight_shape: Shape, bias_shape: Shape | None, channels_out: int, groups: int
) -> None:
    if groups < 1:
        raise ValueError(f"{name}: groups must be positive, got groups={groups}")
    if 0 in weight_shape[2:]:
        raise ValueError(
            f"{name}: weight must have kernel axes of at least 1, "
            f"got weight of shape {weight_shape}"
        )
    if bias_shape is not None and bias_shape != (channels_out,):
        raise ValueError(
            f"{name}: bias must have shape ({channels_out},), one value for each output channel, "
            f"got bias of shape {bias_shape}"
        )


def _check_sizes(name: str, size_out: Shape, extents: tuple[int, ...], elements: int) -> None:
    if any(size < 1 for size in size_out):
        raise ValueError(
            f"{name}: every spatial size of the output must be at least 1, got output size "
            f"{size_out}"
        )
    largest_item = 16
    if max(*extents, elements * largest_item) >= arguments.SIZE_LIMIT:
        raise ValueError(
            f"{name}: sizes must stay below 2**63 bytes and coordinates, got output size "
            f"{size_out} and extents {tuple(extents)}"
        )


@lru_cache(maxsize=4096)
def _conv(
    name: str,
    input_shape: Shape,
    weight_shape: Shape,
    bias_shape: Shape | None,
    stride: Shape,
    padding: Pads | str,
    dilation: Shape,
    groups: int,
) -> ConvGeometry:
    rank = len(stride)
    batched = _batched(name, input_shape, rank)
    batch = input_shape[0] if batched else 1
    channels_in, size_in = input_shape[-rank - 1], input_shape[-rank:]
    channels_out, channels, kernel = weight_shape[0], weight_shape[1], weight_shape[2:]
    _check_common(name, weight_shape, bias_shape, channels_out, groups)
    if channels * groups != channels_in:
        raise ValueError(
            f"{name}: input must have groups * weight.shape[1] channels, got {channels_in} "
            f"channels with groups={groups} and weight of shape {weight_shape}"
        )
    if channels_out % groups:
        raise ValueError(
            f"{name}: groups must divide the output channels, got groups={groups} and weight of "
            f"shape {weight_shape}"
        )
    extent = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    if isinstance(padding, str):
        total = tuple(
            max((-(-size // s) - 1) * s + e - size, 0) if padding == "same" else 0
            for size, s, e in zip(size_in, stride, extent, strict=True)
        )
        padding = tuple((t // 2, t - t // 2) for t in total)
    padded = tuple(
        size + before + after for size, (before, after) in zip(size_in, padding, strict=True)
    )
    if any(p < e for p, e in zip(padded, extent, strict=True)):
        raise ValueError(
            f"{name}: the kernel must not be larger than the padded input, got a kernel of extent "
            f"{extent} (kernel {kernel}, dilation {dilation}) with a padded input of size {padded}"
        )
    size_out = tuple((p - e) // s + 1 for p, e, s in zip(padded, extent, stride, strict=True))
    _check_sizes(name, size_out, (*padded, *extent), batch * channels_out * math.prod(size_out))
    return ConvGeometry(
        transposed=False,
        batched=batched,
        batch=batch,
        groups=groups,
        channels=channels,
        rows=channels_out // groups,
        axes=tuple(map(conv_taps, size_in, size_out, kernel, stride, dilation, _first(padding))),
        stride=stride,
        dilation=dilation,
        pads_before=_first(padding),
    )


def _first(padding: Pads) -> Shape:
    return tuple(before for before, _ in padding)


def conv(
    name: str,
    input_shape: Shape,
    weight_shape: Shape,
    bias_shape: Shape | None,
    stride: object,
    padding: object,
    dilation: object,
    groups: object,
    rank: int | None,
) -> ConvGeometry:
    """Return the geometry of a convolution; `rank` is taken from the weight where it is None."""
    rank = _spatial_rank(name, weight_shape, rank)
    return _conv(
        name,
        input_shape,
        weight_shape,
        bias_shape,
        arguments.per_axis(name, "stride", stride, rank, minimum=1),
        _padding(name, padding, rank),
        arguments.per_axis(name, "dilation", dilation, rank, minimum=1),
        arguments.integer(name, "groups", groups),
    )


def _padding(name: str, padding: object, rank: int) -> Pads | str:
    if not isinstance(padding, str):
        return arguments.pads(name, padding, rank)
    if padding not in ("valid", "same"):
        raise ValueError(
            f"{name}: padding given by name must be 'valid' or 'same', got padding={padding!r}"
        )
    return padding


def depthwise_conv(
    name: str,
    input_shape: Shape,
    weight_shape: Shape,
    bias_shape: Shape | None,
    stride: object,
    padding: object,
    dilation: object,
    rank: int,
) -> ConvGeometry:
    """Return the geometry of a depthwise convolution: as many groups as input channels."""
    _spatial_rank(name, weight_shape, rank)
    _batched(name, input_shape, rank)
    channels_in, channels_out = input_shape[-rank - 1], weight_shape[0]
    if weight_shape[1] != 1:
        raise ValueError(
            f"{name}: weight must have shape (C_out, 1, *kernel), got weight of shape "
            f"{weight_shape}"
        )
    if channels_out % channels_in if channels_in else channels_out:
        raise ValueError(
            f"{name}: the output channels must be a multiple of the input channels, got input of "
            f"shape {input_shape} with weight of shape {weight_shape}"
        )
    if not channels_in:  # nothing to divide into groups: a convolution of no channels
        weight_shape = (0, 0, *weight_shape[2:])
    return conv(
        name,
        input_shape,
        weight_shape,
        bias_shape,
        stride,
        padding,
        dilation,
        max(channels_in, 1),
        rank,
    )


@lru_cache(maxsize=4096)
def _conv_transpose(
    name: str,
    input_shape: Shape,
    weight_shape: Shape,
    bias_shape: Shape | None,
    stride: Shape,
    padding: Pads | str,
    output_padding: Shape,
    groups: int,
    dilation: Shape,
) -> ConvGeometry:
    rank = len(stride)
    batched = _batched(name, input_shape, rank)
    batch = input_shape[0] if batched else 1
    channels_in, size_in = input_shape[-rank - 1], input_shape[-rank:]
    rows, kernel = weight_shape[1], weight_shape[2:]
    channels_out = rows * groups
    _check_common(name, weight_shape, bias_shape, channels_out, groups)
    if weight_shape[0] != channels_in:
        raise ValueError(
            f"{name}: input must have weight.shape[0] channels, got {channels_in} channels with "
            f"weight of shape {weight_shape}"
        )
    if channels_in % groups:
        raise ValueError(
            f"{name}: groups must divide the input channels, got groups={groups} and input of "
            f"shape {input_shape}"
        )
    if any(
        extra >= max(s, d) for extra, s, d in zip(output_padding, stride, dilation, strict=True)
    ):
        raise ValueError(
            f"{name}: output_padding must be smaller than stride or dilation on each axis, got "
            f"output_padding={output_padding} with stride={stride}, dilation={dilation}"
        )
    extent = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    if isinstance(padding, str):
        if padding == "same" and any(output_padding):
            raise ValueError(
                f"{name}: output_padding must be 0 with padding='same', got "
                f"output_padding={output_padding}"
            )
        same = padding == "same"
        total = tuple(max(e - s, 0) * same for e, s in zip(extent, stride, strict=True))
        padding = tuple((t // 2, t - t // 2) for t in total)
        if same:
            output_padding = tuple(max(s - e, 0) for e, s in zip(extent, stride, strict=True))
    full = tuple(
        (size - 1) * s + e + extra
        for size, s, e, extra in zip(size_in, stride, extent, output_padding, strict=True)
    )
    size_out = tuple(f - before - after for f, (before, after) in zip(full, padding, strict=True))
    _check_sizes(
        name,
        size_out,
        (*full, *extent, *(max(pair) for pair in padding)),
        batch * channels_out * math.prod(size_out),
    )
    return ConvGeometry(
        transposed=True,
        batched=batched,
        batch=batch,
        groups=groups,
        channels=channels_in // groups,
        rows=rows,
        axes=tuple(
            map(conv_transpose_taps, size_in, size_out, kernel, stride, dilation, _first(padding))
        ),
        stride=stride,
        dilation=dilation,
        pads_before=_first(padding),
    )


def conv_transpose(
    name: str,
    input_shape: Shape,
    weight_shape: Shape,
    bias_shape: Shape | None,
    stride: object,
    padding: object,
    output_padding: object,
    groups: object,
    dilation: object,
    rank: int | None,
) -> ConvGeometry:
    """Return the geometry of a transposed convolution; `rank` as for `conv`."""
    rank = _spatial_rank(name, weight_shape, rank)
    return _conv_transpose(
        name,
        input_shape,
        weight_shape,
        bias_shape,
        arguments.per_axis(name, "stride", stride, rank, minimum=1),
        _padding(name, padding, rank),
        arguments.per_axis(name, "output_padding", output_padding, rank, minimum=0),
        arguments.integer(name, "groups", groups),
        arguments.per_axis(name, "dilation", dilation, rank, minimum=1),
    )


@dataclass(frozen=True)
class PoolAxis:
    """One axis of a pooling window."""

    size_in: int
    size_out: int
    kernel: int
    stride: int
    dilation: int
    pad: int


@dataclass(frozen=True)
class PoolGeometry:
    """A pooling over the last two axes; `lead` is the shape in front of them."""

    lead: Shape
    axes: tuple[PoolAxis, PoolAxis]

    @property
    def out_shape(self) -> Shape:
        """Shape of the result."""
        return (*self.lead, *(axis.size_out for axis in self.axes))


def _pool_axis(
    name: str, size: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool
) -> PoolAxis:
    extent = dilation * (kernel - 1) + 1
    if 2 * pad > extent:
        raise ValueError(
            f"{name}: padding must be at most half of the window's extent, got padding={pad} with "
            f"a window of extent {extent} (kernel_size {kernel}, dilation {dilation})"
        )
    reach = size + 2 * pad - extent
    size_out = (-(-reach // stride) if ceil_mode else reach // stride) + 1
    if ceil_mode and (size_out - 1) * stride >= size + pad:
        size_out -= 1  # the last window would start behind the input
    if size_out < 1:
        raise ValueError(
            f"{name}: every spatial size of the output must be at least 1, got an input of size "
            f"{size} with padding {pad} and a window of extent {extent}"
        )
    # Only a window that starts in the front padding can miss the input altogether.
    for start in range(-pad, min(0, (size_out - 1) * stride - pad + 1), stride):
        taps_before = -(start // dilation)
        if taps_before >= kernel or start + taps_before * dilation >= size:
            raise ValueError(
                f"{name}: every window must hold at least one input, got an input of size {size} "
                f"with padding {pad}, kernel_size {kernel} and dilation {dilation}"
            )
    if max(size + 2 * pad, extent) >= arguments.SIZE_LIMIT:
        raise ValueError(f"{name}: sizes must stay below 2**63, got a window of extent {extent}")
    return PoolAxis(size, size_out, kernel, stride, dilation, pad)


@lru_cache(maxsize=4096)
def _pool(
    name: str,
    input_shape: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
) -> PoolGeometry:
    height, width = (
        _pool_axis(name, size, k, s, p, d, ceil_mode)
        for size, k, s, p, d in zip(
            input_shape[-2:], kernel, stride, padding, dilation, strict=True
        )
    )
    return PoolGeometry(lead=input_shape[:-2], axes=(height, width))


def max_pool2d(
    name: str,
    input_shape: Shape,
    kernel_size: object,
    stride: object,
    padding: object,
    dilation: object,
    ceil_mode: object,
) -> PoolGeometry:
    """Return the geometry of a pooling; `stride` defaults to the kernel size."""
    if len(input_shape) not in (3, 4):
        raise ValueError(
            f"{name}: input must have 4 axes, or 3 without a batch axis, got input of shape "
            f"{input_shape}"
        )
    kernel = arguments.per_axis(name, "kernel_size", kernel_size, 2, minimum=1)
    return _pool(
        name,
        input_shape,
        kernel,
        kernel if stride is None else arguments.per_axis(name, "stride", stride, 2, minimum=1),
        arguments.per_axis(name, "padding", padding, 2, minimum=0),
        arguments.per_axis(name, "dilation", dilation, 2, minimum=1),
        bool(ceil_mode),
    )


@dataclass(frozen=True)
class NormGeometry:
    """Sets of values that are normalised together.

    The channel ``c`` of sample ``n`` belongs to set ``n * sets_per_sample + c // channels``
    (``sets_per_sample`` is 0 where a set runs over the batch).
    """

    shape: Shape
    sets: int
    sets_per_sample: int
    channels: int

    @property
    def elements(self) -> int:
        """Number of values in one set."""
        return math.prod(self.shape) // self.sets if self.sets else 0


def _check_norm(
    name: str,
    input_shape: Shape,
    parameters: dict[str, Shape | None],
    values: Shape,
) -> None:
    if len(input_shape) < 2:
        raise ValueError(
            f"{name}: input must have a batch and a channel axis, got input of shape {input_shape}"
        )
    if 0 in values:
        raise ValueError(
            f"{name}: cannot normalise over no values, got input of shape {input_shape}"
        )
    channels = input_shape[1]
    for argument, shape in parameters.items():
        if shape is not None and shape != (channels,):
            raise ValueError(
                f"{name}: {argument} must have shape ({channels},), one value for each channel, "
                f"got {argument} of shape {shape}"
            )


def batch_norm(
    name: str, input_shape: Shape, parameters: dict[str, Shape | None], *, given: bool
) -> NormGeometry:
    """Return the sets of a batch norm: the channels; `given` statistics need no values."""
    values = () if given else input_shape[:1] + input_shape[2:]
    _check_norm(name, input_shape, parameters, values)
    return NormGeometry(shape=input_shape, sets=input_shape[1], sets_per_sample=0, channels=1)


def group_norm(
    name: str, input_shape: Shape, num_groups: object, parameters: dict[str, Shape | None]
) -> NormGeometry:
    """Return the sets of a group norm: each sample's groups of neighbouring channels."""
    _check_norm(name, input_shape, parameters, input_shape[1:])
    groups = arguments.integer(name, "num_groups", num_groups)
    if groups < 1:
        raise ValueError(f"{name}: num_groups must be positive, got num_groups={groups}")
    if input_shape[1] % groups:
        raise ValueError(
            f"{name}: num_groups must divide the channels, got num_groups={groups} and input of "
            f"shape {input_shape}"
        )
    return NormGeometry(
        shape=input_shape,
        sets=input_shape[0] * groups,
        sets_per_sample=groups,
        channels=input_shape[1] // groups,
    )
