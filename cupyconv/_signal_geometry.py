"""The geometry layer of `cupyconv.signal`: it arranges two signals as the operands of `conv`.

No array enters this layer. The signals are convolved along some axes and broadcast along the
others. Position ``o`` of their full convolution along one axis is the sum over ``j`` of
``in1[j] * in2[o - j]``, and each mode is a window of such positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from . import _shape_rules as rules
from ._arguments import Pads, shown
from ._shape_rules import MAX_RANK, Shape

_MODES = ("full", "same", "valid")


def mode_named(name: str, mode: object) -> str:
    """Return the mode as a plain string."""
    for known in _MODES:
        if isinstance(mode, str) and mode == known:
            return known
    raise ValueError(f"{name}: mode must be 'full', 'same' or 'valid', got mode={shown(mode)}")


def check_ranks(name: str, first: Shape, second: Shape) -> None:
    """Raise unless both signals have the same number of axes."""
    if len(first) != len(second):
        raise ValueError(
            f"{name}: in1 and in2 must have the same number of axes, got {_signals(first, second)}"
        )


def _signals(first: Shape, second: Shape) -> str:
    return f"in1 of shape {first} with in2 of shape {second}"


def _along(shape: Shape, axes: Iterable[int]) -> Shape:
    return tuple(shape[axis] for axis in axes)


def _window(mode: str, first: int, second: int) -> tuple[int, int]:
    """Return the start and the size of the result in the full convolution along one axis."""
    if mode == "full":
        return 0, first + second - 1
    if mode == "same":
        return (second - 1) // 2, first
    return min(first, second) - 1, abs(first - second) + 1


@lru_cache(maxsize=4096)
def result_shape(name: str, first: Shape, second: Shape, mode: str, axes: Shape) -> Shape:
    """Return the shape of the result of signals that are convolved along `axes`, or raise."""
    sizes = [(first[axis], second[axis]) for axis in axes]
    given = f"{_signals(first, second)}, axes={axes}"
    for argument, shape in (("in1", first), ("in2", second)):
        empty_result = argument == "in1" and mode == "same"
        if 0 in _along(shape, axes) and not empty_result:
            raise ValueError(
                f"{name}: {argument} must not be empty along a convolved axis, got {given}"
            )
    larger, smaller = any(n > k for n, k in sizes), any(n < k for n, k in sizes)
    if mode == "valid" and larger and smaller:
        raise ValueError(
            f"{name}: with mode='valid' one of in1 and in2 must be at least as large as the other "
            f"on every convolved axis, got {given}"
        )
    result = []
    for axis, (n, k) in enumerate(zip(first, second, strict=True)):
        if axis in axes:
            result.append(_window(mode, n, k)[1])
        elif n == k or 1 in (n, k):
            result.append(k if n == 1 else n)
        else:
            raise ValueError(
                f"{name}: in1 and in2 must broadcast on the axes that are not convolved, got "
                f"{given}"
            )
    rules.check_sizes(name, given, (first, second, tuple(result)))
    return tuple(result)


@dataclass(frozen=True)
class Arrangement:
    """A convolution of two signals as a call of `conv`.

    Attributes
    ----------
    first, second : tuple of slice
        The parts of both signals that have products in the result, one slice for each axis.
    swapped : bool
        Whether the second signal is the input and the first one the weight.
    batch, groups, channels, space : tuple of int
        The signals' axes by what they are to `conv`. An axis along which the weight has one element
        is a batch axis, also if it is convolved. Both signals have the axes of `groups`; only the
        weight has those of `channels`, which become output channels.
    input_shape, weight_shape : tuple of int
        The shapes of the operands, ``(N, G, *space)`` and ``(G*C, 1, *kernel)``.
    padding : tuple of pairs
        The padding along the axes of `space`.
    """

    first: tuple[slice, ...]
    second: tuple[slice, ...]
    swapped: bool
    batch: Shape
    groups: Shape
    channels: Shape
    space: Shape
    input_shape: Shape
    weight_shape: Shape
    padding: Pads

    @property
    def order(self) -> Shape:
        """The signals' axes in the order in which `conv` has them."""
        return self.batch + self.groups + self.channels + self.space


def _needed(size: int, other: int, start: int, outputs: int) -> slice:
    """Return the positions of a signal with products in a window of the full convolution."""
    return slice(max(start - other + 1, 0), min(start + outputs, size))


@lru_cache(maxsize=4096)
def arrange(name: str, first: Shape, second: Shape, mode: str, axes: Shape) -> Arrangement:
    """Return the arrangement of signals whose result has elements.

    The signal with fewer elements along the convolved axes becomes the weight.
    """
    parts = [slice(0, size) for size in first], [slice(0, size) for size in second]
    windows = {}
    for axis in axes:
        n, k = first[axis], second[axis]
        start, outputs = _window(mode, n, k)
        parts[0][axis] = _needed(n, k, start, outputs)
        parts[1][axis] = _needed(k, n, start, outputs)
        windows[axis] = start - parts[0][axis].start - parts[1][axis].start, outputs
    sizes = [tuple(part.stop - part.start for part in signal) for signal in parts]
    swapped = math.prod(_along(sizes[0], axes)) < math.prod(_along(sizes[1], axes))
    data, kernel = reversed(sizes) if swapped else sizes
    space = tuple(axis for axis in axes if kernel[axis] > 1)
    if len(space) > MAX_RANK:
        raise ValueError(
            f"{name}: at most {MAX_RANK} axes can be convolved, got {_signals(first, second)}, "
            f"axes={axes}"
        )
    others = [axis for axis in range(len(first)) if axis not in space]
    batch = tuple(axis for axis in others if kernel[axis] == 1)
    groups = tuple(axis for axis in others if kernel[axis] > 1 and data[axis] > 1)
    channels = tuple(axis for axis in others if kernel[axis] > 1 and data[axis] == 1)
    count = math.prod(_along(kernel, groups))
    pads = []
    for axis in space:
        start, outputs = windows[axis]
        pads.append((kernel[axis] - 1 - start, start + outputs - data[axis]))
    # `conv` takes one axis at least.
    return Arrangement(
        first=tuple(parts[0]),
        second=tuple(parts[1]),
        swapped=swapped,
        batch=batch,
        groups=groups,
        channels=channels,
        space=space,
        input_shape=(math.prod(_along(data, batch)), count, *(_along(data, space) or (1,))),
        weight_shape=(
            count * math.prod(_along(kernel, channels)),
            1,
            *(_along(kernel, space) or (1,)),
        ),
        padding=tuple(pads) or ((0, 0),),
    )
