"""The geometry layer: it turns the arguments of a call into a frozen description of the call.

No array enters this layer. It validates all shapes and values by the rules of `_arguments` and
`_shape_rules`, and computes the output's shape, which happens nowhere else. A rule that needs the
output's shape is therefore in this module. Errors name the function, the argument, the rule and the
values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from . import _arguments as arguments
from . import _pads
from . import _shape_rules as rules
from ._arguments import Pads
from ._placement import Placement
from ._shape_rules import MAX_RANK as MAX_RANK
from ._shape_rules import Shape
from ._taps import AxisTaps, conv_taps, conv_transpose_taps


@dataclass(frozen=True)
class ConvGeometry:
    """A convolution or transposed convolution: ``groups`` independent ones of equal shape.

    Attributes
    ----------
    transposed : bool
        Whether the convolution is a transposed one.
    batched : bool
        Whether the caller's arrays have a batch axis.
    batch, groups : int
        Number of samples and of groups.
    channels, rows : int
        Input and output channels of one group.
    axes : tuple of AxisTaps
        The taps along each spatial axis.
    stride, dilation : tuple of int
        The caller's values, one for each axis.
    pads_before : tuple of int
        Padding at the start of each axis; the sizes determine the padding at its end.
    padding_mode : str, optional
        What lies in the padding; None if nothing does, or if no output reaches it.
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
    padding_mode: str | None = None

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.axes)

    @cached_property
    def out_shape(self) -> Shape:
        """Shape of the result, without a batch axis if the input has none."""
        shape = (self.groups * self.rows, *(axis.size_out for axis in self.axes))
        return (self.batch, *shape) if self.batched else shape

    @property
    def is_empty(self) -> bool:
        """Whether no output has a product."""
        return 0 in (self.batch, self.channels, *(axis.size_in for axis in self.axes))

    @property
    def bordered_sizes(self) -> Shape:
        """Spatial sizes of the array that `padding_mode` continues: the long side."""
        return tuple(axis.size_out if self.transposed else axis.size_in for axis in self.axes)

    @property
    def padded_sizes(self) -> Shape:
        """Spatial sizes of that array with its padding, as far as taps reach."""
        short = (axis.size_in if self.transposed else axis.size_out for axis in self.axes)
        steps = zip(short, self.axes, self.stride, self.dilation, strict=True)
        return tuple(
            (size - 1) * stride + dilation * (axis.kernel - 1) + 1
            for size, axis, stride, dilation in steps
        )

    @property
    def padded_shape(self) -> Shape:
        """Shape of that array with its padding, batch included."""
        channels = self.rows if self.transposed else self.channels
        return (self.batch, self.groups * channels, *self.padded_sizes)

    @property
    def placement(self) -> Placement:
        """How that array lies in the padded one."""
        lead, none, ones = self.padded_shape[:2], (0, 0), (1,) * (2 + self.rank)
        return Placement(
            sizes=(*lead, *self.bordered_sizes),
            padded=self.padded_shape,
            before=(*none, *self.pads_before),
            steps=ones,
            strides=ones,
            components=ones,
            shifts=ones,
            mode=self.padding_mode,
        )

    @property
    def reaches_padding(self) -> bool:
        """Whether an output of a convolution, or an input of a transposed one, reaches padding."""
        sides = zip(self.pads_before, self.padded_sizes, self.bordered_sizes, strict=True)
        return any(before or padded > size for before, padded, size in sides)

    @cached_property
    def padded(self) -> ConvGeometry:
        """The same convolution of the padded array, or a transposed one that results in it."""
        steps = zip(self.axes, self.padded_sizes, self.stride, self.dilation, strict=True)
        axes = (
            conv_transpose_taps(axis.size_in, padded, axis.kernel, stride, dilation, 0)
            if self.transposed
            else conv_taps(padded, axis.size_out, axis.kernel, stride, dilation, 0)
            for axis, padded, stride, dilation in steps
        )
        none = (0,) * self.rank
        return replace(self, axes=tuple(axes), pads_before=none, padding_mode=None)


def _with_borders(
    name: str, geometry: ConvGeometry, padding_mode: str | None, padding: Pads
) -> ConvGeometry:
    """Return the geometry with its padding mode, or raise if there is nothing to continue."""
    if padding_mode is None:
        return geometry
    if any(
        size == 0 and sum(ends) for size, ends in zip(geometry.bordered_sizes, padding, strict=True)
    ):
        raise ValueError(
            f"{name}: padding_mode={padding_mode!r} must have at least one position to continue on "
            f"each axis, got spatial sizes {geometry.bordered_sizes} with padding={padding}"
        )
    if geometry.is_empty or not geometry.reaches_padding:
        return geometry
    return replace(geometry, padding_mode=padding_mode)


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
    padding_mode: str | None,
    names: tuple[str, str],
) -> ConvGeometry:
    rank = len(stride)
    subject, weight = names
    batched = rules.batched(name, input_shape, rank, subject)
    size_in = input_shape[-rank:]
    channels_out, channels, kernel = weight_shape[0], weight_shape[1], weight_shape[2:]
    rules.check_kernel_and_bias(name, weight, weight_shape, bias_shape, channels_out)
    rules.check_conv_channels(name, input_shape, weight_shape, groups, names)
    extents = _pads.extents(kernel, dilation)
    padding = _pads.conv_pads(padding, size_in, stride, extents)
    padded = tuple(size + sum(pads) for size, pads in zip(size_in, padding, strict=True))
    call = (
        f"{rules.given(subject, input_shape)} with {rules.given(weight, weight_shape)}, "
        f"stride={stride}, padding={padding}, dilation={dilation}"
    )
    if any(size < extent for size, extent in zip(padded, extents, strict=True)):
        raise ValueError(
            f"{name}: the kernel must not be larger than the padded input, got {call}: a kernel of "
            f"extent {extents} on a padded input of size {padded}"
        )
    size_out = tuple(
        (size - extent) // step + 1
        for size, extent, step in zip(padded, extents, stride, strict=True)
    )
    pads_before = _pads.before(padding)
    taps = map(conv_taps, size_in, size_out, kernel, stride, dilation, pads_before)
    geometry = ConvGeometry(
        transposed=False,
        batched=batched,
        batch=input_shape[0] if batched else 1,
        groups=groups,
        channels=channels,
        rows=channels_out // groups,
        axes=tuple(taps),
        stride=stride,
        dilation=dilation,
        pads_before=pads_before,
    )
    rules.check_sizes(name, call, (input_shape, weight_shape, geometry.out_shape), padded)
    return _with_borders(name, geometry, padding_mode, padding)


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
    padding_mode: object = None,
    names: tuple[str, str] = ("input", "weight"),
) -> ConvGeometry:
    """Return the geometry of a convolution. If `rank` is None, the weight determines it.

    Errors call the input and the weight by `names`; the caller may know only their shapes.
    """
    rank = rules.spatial_rank(name, weight_shape, rank, names[1])
    return _conv(
        name,
        input_shape,
        weight_shape,
        bias_shape,
        arguments.per_axis(name, "stride", stride, rank, minimum=1),
        arguments.padding(name, padding, rank),
        arguments.per_axis(name, "dilation", dilation, rank, minimum=1),
        arguments.positive(name, "groups", groups),
        arguments.padding_mode(name, padding_mode),
        names,
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
    padding_mode: object = None,
) -> ConvGeometry:
    """Return the geometry of a depthwise convolution: as many groups as input channels."""
    rules.spatial_rank(name, weight_shape, rank)
    rules.batched(name, input_shape, rank)
    channels_in = input_shape[-rank - 1]
    rules.check_depthwise_channels(name, channels_in, input_shape, weight_shape)
    if not channels_in:  # described as a single group that has no channels
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
        padding_mode,
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
    output_size: Shape | None,
    padding_mode: str | None,
    weight: str,
) -> ConvGeometry:
    rank = len(stride)
    batched = rules.batched(name, input_shape, rank)
    channels_in, size_in = input_shape[-rank - 1], input_shape[-rank:]
    rows, kernel = weight_shape[1], weight_shape[2:]
    rules.check_kernel_and_bias(name, weight, weight_shape, bias_shape, rows * groups)
    rules.check_conv_transpose_channels(name, weight, input_shape, weight_shape, groups)
    rules.check_output_padding(name, padding, output_padding, output_size, stride, dilation)
    extents = _pads.extents(kernel, dilation)
    operands = f"input of shape {input_shape} with {weight} of shape {weight_shape}"
    if output_size is not None:
        sizes = _pads.output_sizes(padding, size_in, stride, extents)
        call = f"{operands}, stride={stride}, padding={padding!r}, dilation={dilation}"
        rules.check_output_size(name, output_size, *sizes, call)
    padding, output_padding = _pads.transpose_pads(
        padding, output_padding, output_size, size_in, stride, extents
    )
    full = tuple(
        (size - 1) * step + extent + extra
        for size, step, extent, extra in zip(size_in, stride, extents, output_padding, strict=True)
    )
    size_out = tuple(size - sum(pads) for size, pads in zip(full, padding, strict=True))
    call = (
        f"{operands}, stride={stride}, padding={padding}, output_padding={output_padding}, "
        f"dilation={dilation}"
    )
    if any(size < 1 for size in size_out):
        raise ValueError(
            f"{name}: every spatial size of the output must be at least 1, got {call}: output size "
            f"{size_out}"
        )
    pads_before = _pads.before(padding)
    taps = map(conv_transpose_taps, size_in, size_out, kernel, stride, dilation, pads_before)
    geometry = ConvGeometry(
        transposed=True,
        batched=batched,
        batch=input_shape[0] if batched else 1,
        groups=groups,
        channels=channels_in // groups,
        rows=rows,
        axes=tuple(taps),
        stride=stride,
        dilation=dilation,
        pads_before=pads_before,
    )
    rules.check_sizes(
        name, call, (input_shape, weight_shape, geometry.out_shape), (*full, *extents)
    )
    return _with_borders(name, geometry, padding_mode, padding)


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
    output_size: object = None,
    padding_mode: object = None,
    weight: str = "weight",
) -> ConvGeometry:
    """Return the geometry of a transposed convolution. If `rank` is None, the weight determines it.

    `output_size` is None if the other arguments determine the size of the output. `weight` is the
    name that errors give to the weight.
    """
    rank = rules.spatial_rank(name, weight_shape, rank, weight)
    return _conv_transpose(
        name,
        input_shape,
        weight_shape,
        bias_shape,
        arguments.per_axis(name, "stride", stride, rank, minimum=1),
        arguments.padding(name, padding, rank),
        arguments.per_axis(name, "output_padding", output_padding, rank, minimum=0),
        arguments.positive(name, "groups", groups),
        arguments.per_axis(name, "dilation", dilation, rank, minimum=1),
        arguments.sizes(name, "output_size", output_size, rank),
        arguments.padding_mode(name, padding_mode),
        weight,
    )


@dataclass(frozen=True)
class PoolAxis:
    """A pooling along one axis. The fields equal the members of ``struct PoolAxis``, in order."""

    size_in: int
    size_out: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    @property
    def last(self) -> int:
        """Last input position of the last window, which may lie in the padding."""
        return (self.size_out - 1) * self.stride - self.pad + self.dilation * (self.kernel - 1)

    @property
    def is_inside(self) -> bool:
        """Whether all windows lie inside the array."""
        return self.pad <= 0 and self.last < self.size_in

    @property
    def taps(self) -> int:
        """Largest number of taps of one window that lie inside the array."""
        return min(self.kernel, -(-self.size_in // self.dilation))

    @property
    def trimmed(self) -> PoolAxis:
        """The same windows without the taps and the inputs that take no part in any maximum.

        Such taps lie in the padding for every window, and no window reads such inputs. `pad` is
        then negative if the first window begins after the first input.
        """
        last_start = (self.size_out - 1) * self.stride - self.pad
        first = max(0, -(last_start // self.dilation))
        end = min(self.kernel, (self.size_in - 1 + self.pad) // self.dilation + 1)
        axis = replace(self, kernel=end - first, pad=self.pad - first * self.dilation)
        return replace(axis, size_in=min(self.size_in, axis.last + 1))


@dataclass(frozen=True)
class PoolGeometry:
    """A pooling over the last two axes; `lead` is the shape before them."""

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
        size_out -= 1  # the last window would start after the input
    if size_out < 1:
        raise ValueError(
            f"{name}: every spatial size of the output must be at least 1, got {call}: a window of "
            f"extent {extent} on a padded input of size {size + 2 * pad}"
        )
    # A window holds no input only if it starts in the padding before the input and its dilation
    # steps over the whole input. The window's first position outside of that padding is its start
    # modulo the dilation.
    start, last = -pad, (size_out - 1) * stride - pad
    while start <= min(last, -1):
        first = start % dilation
        if first >= size:
            raise ValueError(
                f"{name}: every window must hold at least one input, got {call}: the window at "
                f"{start} holds none"
            )
        start += -((first - size) // stride) * stride  # skip windows that must hold an input
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
        _pool_axis(name, call, *sizes, ceil_mode)
        for sizes in zip(input_shape[-2:], kernel, stride, padding, dilation, strict=True)
    )
    geometry = PoolGeometry(lead=input_shape[:-2], axes=(height, width))
    rules.check_sizes(name, call, (input_shape, geometry.out_shape))
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

    Errors call the pooled array `subject`.
    """
    rules.batched(name, input_shape, 2)
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
    """How an array is divided into sets of values; a set shares a mean and a variance.

    Channel ``c`` of sample ``n`` belongs to set ``n * sets_per_sample + c // channels``.
    ``sets_per_sample`` is 0 if a set extends over the batch.
    """

    shape: Shape
    sets: int
    sets_per_sample: int
    channels: int

    @property
    def elements(self) -> int:
        """Number of values in one set."""
        return math.prod(self.shape) // self.sets if self.sets else 0


def batch_norm(
    name: str,
    input_shape: Shape,
    parameters: dict[str, Shape | None],
    *,
    given: bool,
    subject: str = "input",
) -> NormGeometry:
    """Return the geometry of a batch norm, in which each channel is a set.

    If the mean and the variance are `given`, the sets may be empty. Errors call the normalised
    array `subject`.
    """
    values = () if given else input_shape[:1] + input_shape[2:]
    rules.check_norm(name, subject, input_shape, parameters, values)
    return NormGeometry(shape=input_shape, sets=input_shape[1], sets_per_sample=0, channels=1)


def group_norm(
    name: str,
    input_shape: Shape,
    num_groups: object,
    parameters: dict[str, Shape | None],
    subject: str = "input",
) -> NormGeometry:
    """Return the geometry of a group norm, in which a group of channels of one sample is a set.

    Errors call the normalised array `subject`.
    """
    rules.check_norm(name, subject, input_shape, parameters, input_shape[1:])
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
