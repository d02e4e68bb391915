"""Sizes of random convolutions, cut down to a budget, and the padding that suits them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from reference import Shape
from strategies import dilation_extent

T = TypeVar("T")


@dataclass(frozen=True)
class Budget:
    """The most products of a call and elements of one of its arrays."""

    products: float
    elements: int


ON_GPU = Budget(3e7, 300_000)
ON_NUMPY = Budget(1e6, 20_000)
ON_EMULATOR = Budget(6e4, 3_000)
BUDGETS = {"cupy": ON_GPU, "numpy": ON_NUMPY, "emulator": ON_EMULATOR}


@dataclass(frozen=True)
class Draw:
    """A seeded source of choices."""

    rng: np.random.Generator

    def one(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self, low: int, high: int) -> int:
        """A number whose logarithm is uniform: small ones are as likely as large ones."""
        return min(high, int(low * math.exp(self.rng.random() * math.log((high + 1) / low))))

    def each(self, rank: int, low: int, high: int) -> Shape:
        return tuple(self.size(low, high) for _ in range(rank))


@dataclass
class Sizes:
    """The sizes of a convolution, before they are cut down to a budget."""

    samples: int
    groups: int
    channels: int  # of a group
    rows: int  # output channels of a group
    kernel: list[int]
    lengths: list[int]
    stride: list[int]
    dilation: list[int]

    @property
    def rank(self) -> int:
        return len(self.kernel)


def _general(draw: Draw) -> Sizes:
    rank = draw.one([1, 2, 2, 2, 3, 3, 4])
    most = {1: 20, 2: 7, 3: 4, 4: 3}[rank]
    return Sizes(
        draw.size(1, 5),
        draw.one([1, 1, 1, 2, 3, 5]),
        draw.size(1, 24),
        draw.size(1, 40),
        list(draw.each(rank, 1, most)),
        list(draw.each(rank, 1, {1: 600, 2: 64, 3: 20, 4: 8}[rank])),
        list(draw.each(rank, 1, {1: 6, 2: 5, 3: 3, 4: 2}[rank])),
        list(draw.each(rank, 1, 4)),
    )


def _depthwise(draw: Draw) -> Sizes:
    """One input channel in each group; taps mostly slide, in lines of one tile and of more."""
    rank = draw.one([1, 2, 2, 2, 3])
    slides = draw.chance(0.7)
    ones = [1] * rank
    kernel = list(draw.each(rank, 1, 5))
    kernel[-1] = draw.integer(1, 9)
    lengths = list(draw.each(rank, 1, {1: 6000, 2: 70, 3: 16}[rank]))
    if rank > 1 and draw.chance(0.7):
        lengths[-1] = draw.integer(40, 300)
    return Sizes(
        draw.size(1, 4),
        draw.size(1, 40),
        1,
        draw.one([1, 1, 2, 3, 4]),
        kernel,
        lengths,
        ones if slides else list(draw.each(rank, 1, 4)),
        ones if slides else list(draw.each(rank, 1, 3)),
    )


def _pointwise(draw: Draw) -> Sizes:
    rank = draw.one([1, 2, 2, 3])
    return Sizes(
        draw.size(1, 5),
        draw.one([1, 1, 1, 2, 3]),
        draw.size(1, 320),
        draw.size(1, 200),
        [1] * rank,
        list(draw.each(rank, 1, {1: 900, 2: 40, 3: 12}[rank])),
        list(draw.each(rank, 1, 2)),
        [1] * rank,
    )


def _few_channels(draw: Draw) -> Sizes:
    """Few products of an output, some times with few channels of it as well."""
    rank = draw.one([1, 2, 2, 3])
    return Sizes(
        draw.size(1, 4),
        draw.one([1, 1, 1, 2, 3]),
        draw.integer(1, 5),
        draw.size(1, 100),
        list(draw.each(rank, 1, {1: 40, 2: 7, 3: 3}[rank])),
        list(draw.each(rank, 1, {1: 3000, 2: 90, 3: 24}[rank])),
        list(draw.each(rank, 1, 4)),
        list(draw.each(rank, 1, 3)),
    )


def _dense(draw: Draw) -> Sizes:
    """Many channels, round numbers of them and others, on small images."""
    rank = draw.one([1, 2, 2, 2, 3])
    return Sizes(
        draw.size(1, 6),
        draw.one([1, 1, 1, 2, 3]),
        draw.one([16, 32, 48, 64, 128, draw.integer(9, 150)]),
        draw.one([16, 32, 64, 128, draw.integer(1, 150)]),
        [draw.one([1, 2, 3, 3, 4, 5])] * rank,
        list(draw.each(rank, 1, {1: 300, 2: 32, 3: 10}[rank])),
        [draw.one([1, 1, 1, 2, 3])] * rank,
        [draw.one([1, 1, 1, 2])] * rank,
    )


def _large_kernel(draw: Draw) -> Sizes:
    """Kernels up to 33 wide, strides up to the kernel's size and beyond, large dilations."""
    rank = draw.one([1, 2, 2, 3])
    kernel = list(draw.each(rank, 2, {1: 200, 2: 33, 3: 9}[rank]))
    patches = draw.chance(0.3)
    return Sizes(
        draw.size(1, 3),
        draw.one([1, 1, 2, 4]),
        draw.size(1, 6),
        draw.size(1, 20),
        kernel,
        [draw.size(1, 3 * k + 20) for k in kernel],
        [k + draw.integer(0, 1) if patches else draw.size(1, 4) for k in kernel],
        [1 if patches else draw.one([1, 1, 2, 5, 64][: 5 if rank == 1 else 3]) for _ in kernel],
    )


FAMILIES: list[Callable[[Draw], Sizes]] = [
    _general,
    _general,
    _depthwise,
    _depthwise,
    _pointwise,
    _few_channels,
    _dense,
    _dense,
    _large_kernel,
]


def padding(draw: Draw, s: Sizes, transposed: bool, empty_axis: bool) -> tuple[Any, Any]:
    """Padding and output_padding; lengths and kernels grow where an output would be empty."""
    if empty_axis:
        s.lengths[draw.integer(0, s.rank - 1)] = 0
        for i, (n, k, d) in enumerate(zip(s.lengths, s.kernel, s.dilation, strict=True)):
            if transposed and n == 0 and dilation_extent(k, d) <= s.stride[i]:
                s.stride[i], s.kernel[i] = 1, max(2, k)
    extents = [dilation_extent(k, d) for k, d in zip(s.kernel, s.dilation, strict=True)]
    forms = ["valid", "int", "each", "pairs", "pairs", "same"]
    form = draw.one(["pairs", "each"] if empty_axis else forms)
    if transposed:
        return _transposed_padding(draw, s, extents, form)
    if form in ("valid", "same"):
        s.lengths[:] = [max(n, e) for n, e in zip(s.lengths, extents, strict=True)]
        return form, 0
    pads = []
    for i, e in enumerate(extents):
        more = draw.chance(0.1)  # outputs that are all padding
        before = draw.integer(0, e + 2 if more else e - 1)
        after = before if form != "pairs" else draw.integer(0, e + 2 if more else e - 1)
        short = e - before - after - s.lengths[i]
        if short > 0 and s.lengths[i] == 0:
            before, after = before - (-short // 2), after - (-short // 2)
        elif short > 0:
            s.lengths[i] += short
        pads.append((before, after))
    if form == "int":
        most = max(before for before, _ in pads)
        return most, 0
    return tuple(before for before, _ in pads) if form == "each" else tuple(pads), 0


def _transposed_padding(draw: Draw, s: Sizes, extents: list[int], form: str) -> tuple[Any, Any]:
    if form == "same":
        s.lengths[:] = [max(1, n) for n in s.lengths]
        return form, 0
    longer = [
        draw.integer(0, max(stride, dilation) - 1) if draw.chance(0.5) else 0
        for stride, dilation in zip(s.stride, s.dilation, strict=True)
    ]
    if form == "valid":
        s.lengths[:] = [max(1, n) for n in s.lengths]
        return form, tuple(longer)
    pads = []
    for n, stride, e, more in zip(s.lengths, s.stride, extents, longer, strict=True):
        removable = (n - 1) * stride + e + more - 1  # an output keeps one position
        before = draw.integer(0, min(removable // (1 if form == "pairs" else 2), e))
        after = draw.integer(0, min(removable - before, e)) if form == "pairs" else before
        pads.append((before, after))
    if form == "int":
        return min(before for before, _ in pads), tuple(longer)
    return tuple(before for before, _ in pads) if form == "each" else tuple(pads), tuple(longer)


def _outputs(s: Sizes, transposed: bool) -> list[int]:
    """Upper bounds on the lengths of the result."""
    return [
        max(n, 1) * stride + dilation_extent(k, d) + stride
        if transposed
        else (n + 2 * dilation_extent(k, d)) // stride + 1
        for n, k, stride, d in zip(s.lengths, s.kernel, s.stride, s.dilation, strict=True)
    ]


def too_large(s: Sizes, transposed: bool, budget: Budget) -> bool:
    outputs = math.prod(_outputs(s, transposed))
    inputs = math.prod(map(float, s.lengths))
    positions = inputs if transposed else outputs
    taps = math.prod(s.kernel)
    images = s.samples * s.groups
    products = images * max(1, s.rows) * max(1, s.channels) * taps * positions
    weights = s.groups * s.rows * s.channels * taps
    elements = max(images * s.rows * outputs, images * s.channels * inputs, weights)
    return products > budget.products or elements > budget.elements


def shrink(draw: Draw, s: Sizes, transposed: bool) -> None:
    """Halve what is large, by chance."""
    if s.samples > 1 and draw.chance(0.3):
        s.samples = -(-s.samples // 2)
        return
    sizes = {
        "lengths": max(s.lengths),
        "outputs": max(_outputs(s, transposed)),
        "channels": s.channels,
        "rows": s.rows,
        "groups": s.groups,
        "kernel": max(s.kernel),
    }
    names = [name for name, size in sizes.items() if size > 1]
    weights = np.array([sizes[name] for name in names], float)
    name = names[int(draw.rng.choice(len(names), p=weights / weights.sum()))]
    if name in ("lengths", "kernel"):
        longest = getattr(s, name)
        longest[longest.index(max(longest))] = -(-max(longest) // 2)
    elif name == "outputs":
        for steps in (s.stride, s.dilation):
            steps[:] = [-(-n // 2) if n > 4 else n for n in steps]
        s.lengths[:] = [-(-n // 2) for n in s.lengths]
        s.kernel[:] = [-(-k // 2) if k > 4 else k for k in s.kernel]
    else:
        setattr(s, name, -(-getattr(s, name) // 2))
