"""First room: arguments to a frozen description of the call. No arrays, only shapes.

All validation of shapes and values happens here, and the output shape is computed here and nowhere
else. Errors name the function, the argument, the rule and the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from . import _arguments as arguments
from ._taps import AxisTaps, conv_taps, conv_transpose_taps

Shape = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]

# The most spatial axes of a convolution: as many as the kernels hold.
MAX_RANK = 24

_LARGEST_ITEM = 16  # bytes of a complex128


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


def _spatial_rank(name: str, weight_shape: Shape, rank: int | None, weight: str = "weight") -> int:
    if rank is not None and len(weight_shape) != rank + 2:
        raise ValueError(
            f"{name}: {weight} must have {rank + 2} axes, got {weight} of shape {weight_shape}"
        )
    if not 1 <= len(weight_shape) - 2 <= MAX_RANK:
        raise ValueError(
            f"{name}: {weight} must have 1 to {MAX_RANK} spatial axes after its two channel axes, "
            f"got {weight} of shape {weight_shape}"
        )
    return len(weight_shape) - 2


def _batched(name: str, input_shape: Shape, rank: int) -> bool:
    if len(input_shape) not in (rank + 1, rank + 2):
        raise ValueError(
            f"{name}: input must have {rank + 2} axes, or {rank + 1} without a batch axis, "
            f"got input of shape {input_shape}"
        )
    return len(input_shape) == rank + 2


def _check_common(
    name: str, weight: str, weight_shape: Shape, bias_shape: Shape | None, channels_out: int
) -> None:
    if 0 in weight_shape[2:]:
        raise ValueError(
            f"{name}: {weight} must have kernel axes of at least 1, "
            f"got {weight} of shape {weight_shape}"
        )
    if bias_shape is not None and bias_shape != (channels_out,):
        raise ValueError(
            f"{name}: bias must have shape ({channels_out},), one value for each output channel, "
            f"got bias of shape {bias_shape}"
        )


def _check_sizes(
    name: str, call: str, shapes: Iterable[Shape], extents: Iterable[int] = ()
) -> None:
    """Raise where an array would have 2**63 bytes, or an axis of the padded input or output.

    NumPy too leaves axes of no elements out when it asks whether an array is too large.
    """
    elements = max(math.prod(max(size, 1) for size in shape) for shape in shapes)
    if max(elements * _LARGEST_ITEM, *extents, 0) >= arguments.SIZE_LIMIT:
        raise ValueError(
            f"{name}: sizes must stay below 2**63, counted in bytes at {_LARGEST_ITEM} an element, "
            f"got {call}"
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
    _check_common(name, "weight", weight_shape, bias_shape, channels_out)
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
    call = (
        f"input of shape {input_shape} with weight of shape {weight_shape}, stride={stride}, "
        f"padding={padding}, dilation={dilation}"
    )
    if any(p < e for p, e in zip(padded, extent, strict=True)):
        raise ValueError(
            f"{name}: the kernel must not be larger than the padded input, got {call}: a kernel of "
            f"extent {extent} on a padded input of size {padded}"
        )
    size_out = tuple((p - e) // s + 1 for p, e, s in zip(padded, extent, stride, strict=True))
    geometry = ConvGeometry(
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
    _check_sizes(name, call, (input_shape, weight_shape, geometry.out_shape), padded)
    return geometry


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
        arguments.positive(name, "groups", groups),
    )


def _padding(name: str, padding: object, rank: int) -> Pads | str:
    if not isinstance(padding, str):
        return arguments.pads(name, padding, rank)
    for known in ("valid", "same"):
        if padding == known:
            return known
    raise ValueError(
        f"{name}: padding given by name must be 'valid' or 'same', got "
        f"padding={arguments.shown(padding)}"
    )


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
            f"{name}: weight.shape[0] must be a multiple of the input's channels, got weight of "
            f"shape {weight_shape} with input of shape {input_shape}"
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
    weight: str,
) -> ConvGeometry:
    rank = len(stride)
    batched = _batched(name, input_shape, rank)
    batch = input_shape[0] if batched else 1
    channels_in, size_in = input_shape[-rank - 1], input_shape[-rank:]
    rows, kernel = weight_shape[1], weight_shape[2:]
    channels_out = rows * groups
    _check_common(name, weight, weight_shape, bias_shape, channels_out)
    if weight_shape[0] != channels_in:
        raise ValueError(
            f"{name}: input must have {weight}.shape[0] channels, got {channels_in} channels with "
            f"{weight} of shape {weight_shape}"
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
    call = (
        f"input of shape {input_shape} with {weight} of shape {weight_shape}, stride={stride}, "
        f"padding={padding}, output_padding={output_padding}, dilation={dilation}"
    )
    if any(size < 1 for size in size_out):
        raise ValueError(
            f"{name}: every spatial size of the output must be at least 1, got {call}: output size "
            f"{size_out}"
        )
    geometry = ConvGeometry(
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
    _check_sizes(name, call, (input_shape, weight_shape, geometry.out_shape), (*full, *extent))
    return geometry


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
    weight: str = "weight",
) -> ConvGeometry:
    """Return the geometry of a transposed convolution; `rank` as for `conv`.

    `weight` is what the function calls its weight.
    """
    rank = _spatial_rank(name, weight_shape, rank, weight)
    return _conv_transpose(
        name,
        input_shape,
        weight_shape,
        bias_shape,
        arguments.per_axis(name, "stride", stride, rank, minimum=1),
        _padding(name, padding, rank),
        arguments.per_axis(name, "output_padding", output_padding, rank, minimum=0),
        arguments.positive(name, "groups", groups),
        arguments.per_axis(name, "dilation", dilation, rank, minimum=1),
        weight,
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

    @property
    def last(self) -> int:
        """The last position of the last window."""
        return (self.size_out - 1) * self.stride - self.pad + self.dilation * (self.kernel - 1)

    @property
    def is_inside(self) -> bool:
        """Whether no window reaches out of the array."""
        return self.pad <= 0 and self.last < self.size_in

    @property
    def taps(self) -> int:
        """The most taps of one window that lie in the array."""
        return min(self.kernel, -(-self.size_in // self.dilation))

    @property
    def trimmed(self) -> PoolAxis:
        """The same windows without the taps and the positions that none of them has in the array.

        `pad` is negative where the first window then begins behind the first position.
        """
        last_start = (self.size_out - 1) * self.stride - self.pad
        first = max(0, -(last_start // self.dilation))
        end = min(self.kernel, (self.size_in - 1 + self.pad) // self.dilation + 1)
        axis = replace(self, kernel=end - first, pad=self.pad - first * self.dilation)
        return replace(axis, size_in=min(self.size_in, axis.last + 1))


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
    name: str,
    call: str,
    size: int,
    kernel: int,
    stride: int,
    pad: int,
    dilation: int,
    ceil_mode: bool,
) -> PoolAxis:
    extent = dilation * (kernel - 1) + 1
    if 2 * pad > extent:
        raise ValueError(
            f"{name}: padding must be at most half of the window's extent, got {call}: padding "
            f"{pad} and a window of extent {extent}"
        )
    reach = size + 2 * pad - extent
    size_out = (-(-reach // stride) if ceil_mode else reach // stride) + 1
    if ceil_mode and (size_out - 1) * stride >= size + pad:
        size_out -= 1  # the last window would start behind the input
    if size_out < 1:
        raise ValueError(
            f"{name}: every spatial size of the output must be at least 1, got {call}: a window of "
            f"extent {extent} on a padded input of size {size + 2 * pad}"
        )
    # Only a window that starts in the front padding can miss the input altogether: where the first
    # of its positions behind the padding, which is its start modulo the dilation, is too far.
    start, last = -pad, (size_out - 1) * stride - pad
    while start <= min(last, -1):
        first = start % dilation
        if first >= size:
            raise ValueError(
                f"{name}: every window must hold at least one input, got {call}: the window at "
                f"{start} holds none"
            )
        start += -((first - size) // stride) * stride  # to the next one that could be too far
    return PoolAxis(size, size_out, kernel, stride, dilation, pad)


@lru_cache(maxsize=4096)
def _pool(
    name: str,
    subject: str,
    input_shape: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
) -> PoolGeometry:
    call = (
        f"{subject} of shape {input_shape} with kernel_size={kernel}, stride={stride}, "
        f"padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}"
    )
    height, width = (
        _pool_axis(name, call, size, k, s, p, d, ceil_mode)
        for size, k, s, p, d in zip(
            input_shape[-2:], kernel, stride, padding, dilation, strict=True
        )
    )
    geometry = PoolGeometry(lead=input_shape[:-2], axes=(height, width))
    _check_sizes(name, call, (input_shape, geometry.out_shape))
    return geometry


def max_pool2d(
    name: str,
    input_shape: Shape,
    kernel_size: object,
    stride: object,
    padding: object,
    dilation: object,
    ceil_mode: object,
    subject: str = "input",
) -> PoolGeometry:
    """Return the geometry of a pooling; `stride` defaults to the kernel size.

    `subject` is what errors call the pooled array.
    """
    if len(input_shape) not in (3, 4):
        raise ValueError(
            f"{name}: input must have 4 axes, or 3 without a batch axis, got input of shape "
            f"{input_shape}"
        )
    kernel = arguments.per_axis(name, "kernel_size", kernel_size, 2, minimum=1)
    return _pool(
        name,
        subject,
        input_shape,
        kernel,
        kernel if stride is None else arguments.per_axis(name, "stride", stride, 2, minimum=1),
        arguments.per_axis(name, "padding", padding, 2, minimum=0),
        arguments.per_axis(name, "dilation", dilation, 2, minimum=1),
        arguments.boolean(name, "ceil_mode", ceil_mode),
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
    subject: str,
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
            f"{name}: cannot normalise over no values, got {subject} of shape {input_shape}"
        )
    channels = input_shape[1]
    for argument, shape in parameters.items():
        if shape is not None and shape != (channels,):
            raise ValueError(
                f"{name}: {argument} must have shape ({channels},), one value for each channel, "
                f"got {argument} of shape {shape}"
            )
    _check_sizes(name, f"{subject} of shape {input_shape}", (input_shape,))


def batch_norm(
    name: str,
    input_shape: Shape,
    parameters: dict[str, Shape | None],
    *,
    given: bool,
    subject: str = "input",
) -> NormGeometry:
    """Return the sets of a batch norm: the channels; `given` statistics need no values.

    `subject` is what errors call the normalised array.
    """
    values = () if given else input_shape[:1] + input_shape[2:]
    _check_norm(name, subject, input_shape, parameters, values)
    return NormGeometry(shape=input_shape, sets=input_shape[1], sets_per_sample=0, channels=1)


def group_norm(
    name: str,
    input_shape: Shape,
    num_groups: object,
    parameters: dict[str, Shape | None],
    subject: str = "input",
) -> NormGeometry:
    """Return the sets of a group norm: each sample's groups of neighbouring channels.

    `subject` is what errors call the normalised array.
    """
    _check_norm(name, subject, input_shape, parameters, input_shape[1:])
    groups = arguments.positive(name, "num_groups", num_groups)
    if input_shape[1] % groups:
        raise ValueError(
            f"{name}: num_groups must divide the channels, got num_groups={groups} and {subject} "
            f"of shape {input_shape}"
        )
    return NormGeometry(
        shape=input_shape,
        sets=input_shape[0] * groups,
        sets_per_sample=groups,
        channels=input_shape[1] // groups,
    )
