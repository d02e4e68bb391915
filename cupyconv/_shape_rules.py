"""Rules for the shapes of a call's arrays, with errors that repeat the caller's values.

The argument `name` is the public function, which begins each message.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

from ._arguments import SIZE_LIMIT, Pads

Shape: TypeAlias = tuple[int, ...]

# Most spatial axes of a convolution. The argument structs of the kernels have this many entries.
MAX_RANK = 24

_LARGEST_ITEM = 16  # bytes of complex128


def given(argument: str, shape: Shape) -> str:
    """Return the words for the argument of a call that has, or is, this shape."""
    return f"{argument}={shape}" if is_shape(argument) else f"{argument} of shape {shape}"


def is_shape(argument: str) -> bool:
    """Return whether an argument is the shape of an array that the caller does not pass."""
    return argument.endswith("_size")


def spatial_rank(name: str, weight_shape: Shape, rank: int | None, weight: str = "weight") -> int:
    """Return the number of spatial axes of a weight, which must equal `rank` if it is not None."""
    bare = len(weight_shape) == rank or (rank is None and 1 <= len(weight_shape) <= 2)
    bare = bare and not is_shape(weight)
    advice = f"; {weight}[None, None] adds both channel axes" if bare else ""
    if rank is not None and len(weight_shape) != rank + 2:
        raise ValueError(
            f"{name}: {weight} must have {rank + 2} axes, got {given(weight, weight_shape)}{advice}"
        )
    if not 1 <= len(weight_shape) - 2 <= MAX_RANK:
        raise ValueError(
            f"{name}: {weight} must have 1 to {MAX_RANK} spatial axes after its two channel axes, "
            f"got {given(weight, weight_shape)}{advice}"
        )
    return len(weight_shape) - 2


def batched(name: str, input_shape: Shape, rank: int, subject: str = "input") -> bool:
    """Return whether an input with `rank` spatial axes has a batch axis."""
    if len(input_shape) not in (rank + 1, rank + 2):
        bare = len(input_shape) == rank and not is_shape(subject)
        advice = f"; {subject}[None] adds a channel axis" if bare else ""
        raise ValueError(
            f"{name}: {subject} must have {rank + 2} axes, or {rank + 1} without a batch axis, "
            f"got {given(subject, input_shape)}{advice}"
        )
    return len(input_shape) == rank + 2


def check_kernel_and_bias(
    name: str, weight: str, weight_shape: Shape, bias_shape: Shape | None, channels_out: int
) -> None:
    """Raise if the kernel has an axis without taps, or if the bias does not fit the output."""
    if 0 in weight_shape[2:]:
        raise ValueError(
            f"{name}: {weight} must have kernel axes of at least 1, "
            f"got {given(weight, weight_shape)}"
        )
    if bias_shape is not None and bias_shape != (channels_out,):
        elements = math.prod(bias_shape)
        advice = ""
        if elements == channels_out:
            advice = "; bias.reshape(-1) has it"
        elif elements == 1:
            advice = f"; bias.repeat({channels_out}) has it"
        raise ValueError(
            f"{name}: bias must have shape ({channels_out},), one value for each output channel, "
            f"got bias of shape {bias_shape}{advice}"
        )


def _channel_advice(input_shape: Shape, rank: int, channels: int) -> str:
    """Return how an input gets its `channels` if they are its last axis or have no axis, or ""."""
    before = len(input_shape) - rank - 1  # axes before the channel axis
    if input_shape[-1] == channels:
        axes = range(len(input_shape))
        order = (*axes[:before], axes[-1], *axes[before:-1])
        return f"; input has shape {input_shape}: move the channel axis, input.transpose{order}"
    if before == 0 and channels == 1:
        colours = ""
        if rank == 2 and input_shape[-1] in (3, 4):
            colours = ", and input.transpose(2, 0, 1)[:, None] its last one, of colours"
        return (
            f"; input has shape {input_shape}: input[:, None] makes its first axis a batch axis"
            + colours
        )
    return ""


def check_conv_channels(
    name: str,
    input_shape: Shape,
    weight_shape: Shape,
    groups: int,
    names: tuple[str, str] = ("input", "weight"),
) -> None:
    """Raise unless the channels of a convolution fit its weight and its groups.

    Errors give the `names` to the input and the weight.
    """
    subject, weight = names
    channels_in, channels = input_shape[1 - len(weight_shape)], weight_shape[1] * groups
    if channels != channels_in:
        sizes = weight if is_shape(weight) else f"{weight}.shape"
        advice = _channel_advice(input_shape, len(weight_shape) - 2, channels)
        raise ValueError(
            f"{name}: {subject} must have groups * {sizes}[1] channels, got {channels_in} "
            f"channels with groups={groups} and {given(weight, weight_shape)}"
            + ("" if is_shape(subject) else advice)
        )
    if weight_shape[0] % groups:
        raise ValueError(
            f"{name}: groups must divide the output channels, got groups={groups} and "
            f"{given(weight, weight_shape)}"
        )


def check_depthwise_channels(
    name: str, channels_in: int, input_shape: Shape, weight_shape: Shape
) -> None:
    """Raise unless the weight has an equal number of kernels for each input channel."""
    if weight_shape[1] != 1:
        raise ValueError(
            f"{name}: weight must have shape (C_out, 1, *kernel), got weight of shape "
            f"{weight_shape}"
        )
    channels_out = weight_shape[0]
    if channels_out % channels_in if channels_in else channels_out:
        raise ValueError(
            f"{name}: weight.shape[0] must be a multiple of the input's channels, got weight of "
            f"shape {weight_shape} with input of shape {input_shape}"
            + _channel_advice(input_shape, len(weight_shape) - 2, channels_out)
        )


def check_conv_transpose_channels(
    name: str, weight: str, input_shape: Shape, weight_shape: Shape, groups: int
) -> None:
    """Raise unless the channels of a transposed convolution fit its weight and its groups."""
    channels_in = input_shape[1 - len(weight_shape)]
    if weight_shape[0] != channels_in:
        raise ValueError(
            f"{name}: input must have {weight}.shape[0] channels, got {channels_in} channels with "
            f"{weight} of shape {weight_shape}"
            + _channel_advice(input_shape, len(weight_shape) - 2, weight_shape[0])
        )
    if channels_in % groups:
        raise ValueError(
            f"{name}: groups must divide the input channels, got groups={groups} and input of "
            f"shape {input_shape}"
        )


def check_output_padding(
    name: str,
    padding: Pads | str,
    output_padding: Shape,
    output_size: Shape | None,
    stride: Shape,
    dilation: Shape,
) -> None:
    """Raise unless the output padding is small enough, and 0 where another argument replaces it."""
    limits = map(max, stride, dilation)
    if any(extra >= limit for extra, limit in zip(output_padding, limits, strict=True)):
        raise ValueError(
            f"{name}: output_padding must be smaller than stride or dilation on each axis, got "
            f"output_padding={output_padding} with stride={stride}, dilation={dilation}"
        )
    if padding == "same" and any(output_padding):
        raise ValueError(
            f"{name}: output_padding must be 0 with padding='same', got "
            f"output_padding={output_padding}"
        )
    if output_size is not None and any(output_padding):
        raise ValueError(
            f"{name}: output_padding must be 0 with output_size, which replaces it, got "
            f"output_padding={output_padding} with output_size={output_size}"
        )


def check_output_size(
    name: str, output_size: Shape, smallest: Shape, largest: Shape, call: str
) -> None:
    """Raise unless the output size lies between `smallest` and `largest` on each axis."""
    if any(size < 1 for size in largest):
        raise ValueError(
            f"{name}: every spatial size of the output must be at least 1, got {call}: output size "
            f"from {smallest} to {largest}"
        )
    smallest = tuple(max(size, 1) for size in smallest)
    ranges = zip(output_size, smallest, largest, strict=True)
    if any(not low <= size <= high for size, low, high in ranges):
        raise ValueError(
            f"{name}: output_size must be from {smallest} to {largest}, the sizes that a "
            f"convolution with the same arguments maps to the input's size, got "
            f"output_size={output_size} for {call}"
        )


def check_norm(
    name: str,
    subject: str,
    input_shape: Shape,
    parameters: dict[str, Shape | None],
    values: Shape,
) -> None:
    """Raise unless a norm can be taken of an input of this shape with these `parameters`.

    The product of the sizes `values` is the number of values that share a mean.
    """
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
    check_sizes(name, f"{subject} of shape {input_shape}", (input_shape,))


def check_sizes(name: str, call: str, shapes: Iterable[Shape], extents: Iterable[int] = ()) -> None:
    """Raise if an array would have 2**63 bytes, or a padded axis 2**63 positions.

    The bytes of an array are counted as if its empty axes had one element, as NumPy does.
    """
    elements = max(math.prod(max(size, 1) for size in shape) for shape in shapes)
    if max(elements * _LARGEST_ITEM, *extents, 0) >= SIZE_LIMIT:
        raise ValueError(
            f"{name}: sizes must stay below 2**63, counted in bytes at {_LARGEST_ITEM} an element, "
            f"got {call}"
        )
