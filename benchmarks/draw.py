"""Draw a section of cases: ``python -m benchmarks.draw dense > benchmarks/dense_seeded.json``,
and the same with ``depthwise`` and ``fused``.

They hold rules that were tuned on known shapes to others. Nobody picks them, they come from a seed:
a case is drawn again until it is within the bounds, and the whole set until it covers what it
should.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .cases import Case, Convolution, Fused, Shape

T = TypeVar("T")

SEED = 1

# Bounds of a case, so that a run of all stays short.
OPERATIONS = (200 * 10**6, 300 * 10**9)  # of a dense one
ELEMENTS = (10**6, 300 * 10**6)  # of a depthwise one: of its input and of its output
ARRAY_BYTES = 2 * 10**9  # of each array in float32

CHANNELS = (32, 48, 64, 80, 96, 100, 128, 192, 256, 384, 512)
MANY_CHANNELS = (256, 384, 512)
LINE = ((7,),)
PLANE = ((1, 1), (3, 3), (5, 5), (3, 7))
SPACE = ((3, 3, 3),)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Stratum:
    """A number of cases, and what each is drawn from.

    ``sizes`` are the smallest and the largest size of a spatial axis of the input.
    """

    count: int
    batches: Sequence[int]
    channels: Sequence[int]
    sizes: tuple[int, int]
    kernels: Sequence[Shape]


DENSE = (
    # Small images: much work a position, few positions.
    Stratum(4, (1,), MANY_CHANNELS, (14, 56), PLANE),
    Stratum(4, (8, 16, 32, 64), MANY_CHANNELS, (14, 56), PLANE),
    Stratum(4, BATCHES, CHANNELS, (512, 131072), LINE),
    Stratum(8, BATCHES, CHANNELS, (28, 512), PLANE),
    Stratum(4, BATCHES, CHANNELS, (8, 96), SPACE),
)


@dataclass(frozen=True)
class Depthwise:
    """The same for depthwise cases; rows are the output channels of an input channel."""

    count: int
    batches: Sequence[int]
    sizes: tuple[int, int]
    kernels: Sequence[Shape]
    rows: int = 1
    transposed: bool = False


DEPTHWISE_CHANNELS = (32, 48, 64, 96, 100, 144, 192, 240, 384, 512, 768, 1024)
SQUARES = ((3, 3), (5, 5), (7, 7))
LARGE_BATCHES = (16, 32, 64)
IMAGES = (7, 112)

DEPTHWISE = (
    Depthwise(2, (1,), IMAGES, SQUARES),
    Depthwise(4, LARGE_BATCHES, IMAGES, SQUARES),
    Depthwise(2, BATCHES, IMAGES, SQUARES, rows=2),
    Depthwise(1, LARGE_BATCHES, IMAGES, SQUARES, transposed=True),
    Depthwise(1, BATCHES, (512, 16384), ((3,), (7,))),
    Depthwise(2, BATCHES, (7, 56), SPACE),
)


@dataclass(frozen=True)
class Fusion:
    """The same for fused operations."""

    count: int
    batches: Sequence[int]
    sizes: tuple[int, int]
    kernels: Sequence[Shape]
    stride: int = 1


FUSED_OPERATIONS = (10**9, 300 * 10**9)
FUSED_ELEMENTS = 80 * 10**6  # at most, of the convolution's result: the check holds all of it
FUSED_CHANNELS = (32, 48, 64, 96, 100, 128, 192, 256)
FUSED_KERNELS = ((3, 3), (5, 5), (3, 7))
DOUBLING = ((4, 4),)  # with stride 2, as in most decoders

FUSED = (
    Fusion(1, (1,), (24, 256), FUSED_KERNELS),
    Fusion(1, (4,), (24, 256), FUSED_KERNELS),
    Fusion(3, (16, 32, 64, 128), (12, 72), FUSED_KERNELS),
    Fusion(1, (16, 32, 64, 128), (12, 72), DOUBLING, stride=2),
)

Layer = TypeVar("Layer", Stratum, Depthwise, Fusion)
Drawn = TypeVar("Drawn", Convolution, Fused)


def dense() -> list[Convolution]:
    """Return the dense convolutions of `SEED`."""
    return _drawn("d", DENSE, Draws.dense, dense_fits, dense_covers)


def depthwise() -> list[Convolution]:
    """Return the depthwise convolutions of `SEED`."""
    return _drawn("e", DEPTHWISE, Draws.depthwise, depthwise_fits, depthwise_covers)


def fused() -> list[Fused]:
    """Return the fused operations of `SEED`."""
    return _drawn("f", FUSED, Draws.fused, fused_fits, fused_covers)


def _drawn(
    prefix: str,
    strata: Sequence[Layer],
    case: Callable[[Draws, str, Layer], Drawn],
    fits: Callable[[Drawn], bool],
    covers: Callable[[Sequence[Drawn]], bool],
) -> list[Drawn]:
    draws = Draws(SEED)

    def fitting(id: str, stratum: Layer) -> Drawn:
        while True:
            found = case(draws, id, stratum)
            if fits(found):
                return found

    while True:
        cases = [
            fitting(f"{prefix}/{number:02}", stratum)
            for number, stratum in enumerate((s for s in strata for _ in range(s.count)), 1)
        ]
        if covers(cases):
            return cases


class Draws:
    """Draws from `random.Random.random` alone, which every Python repeats for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def size(self, low: int, high: int) -> int:
        """Return a size from `low` to `high`, uniform in its logarithm."""
        return int(low * ((high + 1) / low) ** self._random())

    def dense(self, id: str, stratum: Stratum) -> Convolution:
        transposed = self.pick((False, True))
        kernel = self.pick(stratum.kernels)
        channels, rows = self.pick(stratum.channels), self.pick(stratum.channels)
        batch = self.pick(stratum.batches)
        space = (self.size(*stratum.sizes) for _ in kernel)
        stride = self.pick((1, 1, 2))
        dilation = self.pick((1, 1, 1, 2)) if max(kernel) > 1 else 1
        halves = self.pick((0, 1, 2))  # of the padding that is "same" at stride 1
        extra = self.pick((0, 1)) if transposed and stride > 1 else 0
        return Convolution(
            section="dense_seeded",
            id=id,
            transposed=transposed,
            input=(batch, channels, *space),
            weight=((channels, rows) if transposed else (rows, channels)) + kernel,
            stride=(stride,) * len(kernel),
            padding=tuple(halves * same // 2 for same in same_padding(kernel, dilation)),
            output_padding=(extra,) * len(kernel),
            dilation=(dilation,) * len(kernel),
            groups=1,
            bias=self.pick((False, True)),
        )

    def depthwise(self, id: str, stratum: Depthwise) -> Convolution:
        kernel, channels = self.pick(stratum.kernels), self.pick(DEPTHWISE_CHANNELS)
        batch = self.pick(stratum.batches)
        space = (self.size(*stratum.sizes) for _ in kernel)
        stride = self.pick((1, 2))
        halves = self.pick((0, 2, 2))
        extra = self.pick((0, 1)) if stratum.transposed and stride > 1 else 0
        rows = stratum.rows
        return Convolution(
            section="depthwise_seeded",
            id=id,
            transposed=stratum.transposed,
            input=(batch, channels, *space),
            weight=((channels, rows) if stratum.transposed else (channels * rows, 1)) + kernel,
            stride=(stride,) * len(kernel),
            padding=tuple(halves * same // 2 for same in same_padding(kernel, 1)),
            output_padding=(extra,) * len(kernel),
            dilation=(1,) * len(kernel),
            groups=channels,
            bias=self.pick((False, True)),
        )

    def fused(self, id: str, stratum: Fusion) -> Fused:
        kernel = self.pick(stratum.kernels)
        channels, rows = self.pick(FUSED_CHANNELS), self.pick(FUSED_CHANNELS)
        batch = self.pick(stratum.batches)
        space = (self.size(*stratum.sizes) for _ in kernel)
        halves = self.pick((0, 1, 2))
        return Fused(
            section="fused_seeded",
            id=id,
            input=(batch, channels, *space),
            weight=(channels, rows, *kernel),
            stride=(stratum.stride,) * len(kernel),
            padding=tuple(halves * same // 2 for same in same_padding(kernel, 1)),
            output_padding=(self.pick(range(stratum.stride)),) * len(kernel),
            groups=1,
            # All of a sample in one group, a channel in each, and what lies between.
            num_groups=self.pick([n for n in range(1, rows + 1) if rows % n == 0]),
            statistics=self.pick(("batch", "batch", "given")),
        )


def dense_fits(case: Convolution) -> bool:
    """Return whether a case is dense and within the bounds."""
    low, high = OPERATIONS
    arrays = (case.input, case.weight, case.output)
    return (
        case.kind == "dense"
        and low <= case.operations <= high
        and all(4 * math.prod(shape) < ARRAY_BYTES for shape in arrays)
    )


def dense_covers(cases: Sequence[Convolution]) -> bool:
    """Return whether a set of dense cases holds every sort of case that it should."""
    small = small_images(cases)
    spread = [case for case in cases if max(case.weight[2:]) > 1]
    directions = (
        *([case for case in cases if case.rank == rank] for rank in (1, 2, 3)),
        [case for case in small if case.input[0] == 1],
        [case for case in small if case.input[0] >= 8],
        [case for case in cases if max(case.stride) > 1],
        [case for case in cases if max(case.dilation) > 1],
        [case for case in spread if not any(case.padding)],
        [c for c in spread if c.padding == same_padding(c.weight[2:], c.dilation[0])],
    )
    return (
        all({case.transposed for case in some} == {False, True} for some in directions)
        and {count for case in cases for count in case.weight[:2]} == set(CHANNELS)
        and {case.weight[2:] for case in cases} == {*LINE, *PLANE, *SPACE}
        and any(max(case.output_padding) for case in cases)
        and 3 * sum(case.input[-1] % 2 for case in cases) >= len(cases)
        and 2 * sum(case.bias for case in cases) == len(cases)
    )


def depthwise_fits(case: Convolution) -> bool:
    """Return whether a case is depthwise and within the bounds."""
    low, high = ELEMENTS
    arrays = (case.input, case.output)
    return (
        case.kind == "depthwise"
        and min(case.output) > 0
        and all(low <= math.prod(shape) <= high for shape in arrays)
    )


def depthwise_covers(cases: Sequence[Convolution]) -> bool:
    """Return whether a set of depthwise cases holds every sort of case that it should."""
    images = [case for case in cases if case.rank == 2]
    channels = [case.input[1] for case in images]
    return (
        {case.weight[2:] for case in images if max(case.stride) == 1} == set(SQUARES)
        and all(
            {max(case.stride) for case in images if (case.input[0] == 1) == alone} == {1, 2}
            for alone in (False, True)
        )
        and {max(case.stride) for case in cases if case.rank == 3} == {1, 2}
        and {max(case.stride) for case in cases if case.transposed} == {2}
        and any(max(c.input[2:]) <= 14 and not c.transposed for c in images)
        and any(min(case.input[2:]) >= 56 for case in images)
        and min(channels) <= 64
        and max(channels) >= 768
        and any(not any(case.padding) for case in images)
        and len(cases) <= 3 * sum(case.input[-1] % 2 for case in cases) <= 2 * len(cases)
        and 2 * sum(case.bias for case in cases) == len(cases)
    )


def fused_fits(case: Fused) -> bool:
    """Return whether a fused operation is within the bounds."""
    low, high = FUSED_OPERATIONS
    return (
        low <= case.operations <= high
        and math.prod(case.convolution.output) <= FUSED_ELEMENTS
        and min(case.output) > 0
    )


def fused_covers(cases: Sequence[Fused]) -> bool:
    """Return whether a set of fused operations holds every sort of case that it should."""
    channels = [case.weight[:2] for case in cases]
    return (
        {case.weight[2:] for case in cases} == {*FUSED_KERNELS, *DOUBLING}
        and {case.statistics for case in cases} == {"batch", "given"}
        and any(c < rows for c, rows in channels)
        and any(c > rows for c, rows in channels)
        and any(rows % 32 for _, rows in channels)
        and any(case.num_groups == 1 for case in cases)
        and any(case.num_groups == case.output[1] for case in cases)
        and len({case.num_groups for case in cases}) >= 4
        and 2 * sum(case.input[-1] % 2 for case in cases) >= len(cases)
        # Pooling drops a row of some, a column of others.
        and all(any(case.convolution.output[axis] % 2 for case in cases) for axis in (2, 3))
    )


def small_images(cases: Sequence[Convolution]) -> list[Convolution]:
    """Return the cases with 14×14 to 56×56 positions in and 256 or more channels in and out."""
    return [
        case
        for case in cases
        if case.rank == 2
        and all(14 <= size <= 56 for size in case.input[2:])
        and min(case.weight[:2]) >= min(MANY_CHANNELS)
    ]


def same_padding(kernel: Shape, dilation: int) -> Shape:
    """Return the padding that keeps sizes at stride 1, for kernels of odd sizes."""
    return tuple(dilation * (size - 1) // 2 for size in kernel)


def text(cases: Sequence[Case]) -> str:
    """Return a section's file: a line for each case."""
    return "[\n" + ",\n".join(json.dumps(_item(case)) for case in cases) + "\n]\n"


def _item(case: Case) -> dict[str, Any]:
    shapes = {"input": case.input, "weight": case.weight, "output": case.output}
    lattice = {
        "stride": case.stride,
        "padding": case.padding,
        "output_padding": case.output_padding,
    }
    sizes = {
        "gflop": round(case.operations / 1e9, 2),
        "gbyte_f32": round(4 * case.elements / 1e9, 3),
    }
    if isinstance(case, Fused):
        norms = {"num_groups": case.num_groups, "statistics": case.statistics}
        head = {"id": case.id, "operation": "fused"}
        return {**head, **shapes, **lattice, "groups": case.groups, **norms, **sizes}
    rest = {"dilation": case.dilation, "groups": case.groups, "bias": case.bias}
    return {"id": case.id, "transposed": case.transposed, **shapes, **lattice, **rest, **sizes}


SECTIONS: dict[str, Callable[[], Sequence[Case]]] = {
    "dense": dense,
    "depthwise": depthwise,
    "fused": fused,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.draw", description="Print a drawn section of cases."
    )
    parser.add_argument("section", choices=SECTIONS)
    options = parser.parse_args(arguments)
    sys.stdout.write(text(SECTIONS[options.section]()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
