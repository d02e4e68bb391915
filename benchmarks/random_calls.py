"""Random plausible convolutions: what people might call, with no case picked by hand.

A call is drawn again until its arrays are not too large and its multiply-adds lie near a number
that is uniform in its logarithm, so that small and large calls are equally frequent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .cases import Convolution
from .draw import Draws, same_padding

SECTION = "random"
MULTIPLY_ADDS = (5 * 10**6, 4 * 10**11)
SMALL = (5 * 10**6, 5 * 10**7)
_NEAR = 1.5  # factor by which the multiply-adds may miss the number that they are drawn for
_ELEMENTS = 5 * 10**8  # of all arrays of a call

_RANKS = (1, 2, 2, 3)
_SIZES = {1: (64, 400_000), 2: (5, 1200), 3: (5, 256)}  # of a spatial axis, by the rank
_KERNELS = {
    1: (1, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 31),
    2: (1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 7, 9, 11, 15, 31),
    3: (1, 2, 3, 3, 3, 4, 5, 7),
}
_LARGE_KERNELS = {1: 65, 2: 65, 3: 15}
_ROUND = (8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024)
_FEW = (1, 2, 3, 4)
_MOST_CHANNELS, _MOST_BATCH, _MOST_DILATION = 1024, 64, 512


def random_calls(seed: int, multiply_adds: tuple[int, int]) -> Iterator[Convolution]:
    """Yield the endless sequence of calls of a seed, with so many multiply-adds."""
    draws = Draws(seed)
    for number in itertools.count():
        wanted = draws.size(*multiply_adds)
        while True:
            case = _drawn(draws, f"{seed}/{number}")
            if _fits(case, wanted):
                yield case
                break


def _fits(case: Convolution, wanted: int) -> bool:
    """Return whether a call has an output, arrays that are not too large, and the work wanted."""
    if min(case.output) < 1 or case.elements > _ELEMENTS:
        return False
    return wanted / _NEAR <= case.operations / 2 <= wanted * _NEAR


def _drawn(draws: Draws, id: str) -> Convolution:
    rank = draws.pick(_RANKS)
    transposed = draws.pick((False, False, True))
    groups, channels, rows = _channels(draws)
    if draws.pick(range(10)) == 0:
        kernel = (_LARGE_KERNELS[rank],) * rank
    elif draws.pick(range(4)) == 0:
        kernel = tuple(draws.pick(_KERNELS[rank]) for _ in range(rank))
    else:
        kernel = (draws.pick(_KERNELS[rank]),) * rank
    stride = (draws.pick((1, 1, 1, 1, 1, 2, 2, 3, 4)),) * rank
    if draws.pick(range(16)) == 0:
        stride = kernel
    if draws.pick(range(5)) or max(kernel) == 1:
        dilation = 1
    else:
        dilation = draws.size(2, _MOST_DILATION if rank == 1 else 8)
    halves = draws.pick((0, 1, 2, 2))  # of the padding that is "same" at stride 1
    pads = tuple(halves * same // 2 for same in same_padding(kernel, dilation))
    extra = tuple(draws.pick(range(step)) if transposed else 0 for step in stride)
    batch = draws.size(1, _MOST_BATCH)
    image = draws.size(*_SIZES[rank])
    square = draws.pick((False, True))
    space = tuple(image if square else draws.size(*_SIZES[rank]) for _ in kernel)
    weight = (channels * groups, rows) if transposed else (rows * groups, channels)
    return Convolution(
        section=SECTION,
        id=id,
        transposed=transposed,
        input=(batch, channels * groups, *space),
        weight=weight + kernel,
        stride=stride,
        padding=pads,
        output_padding=extra,
        dilation=(dilation,) * rank,
        groups=groups,
        bias=draws.pick((False, True)),
    )


def _channels(draws: Draws) -> tuple[int, int, int]:
    """Return groups, and the input and output channels of each."""

    def count() -> int:
        kind = draws.pick(range(10))
        if kind < 2:
            return draws.pick(_FEW)
        return draws.pick(_ROUND) if kind < 7 else draws.size(1, _MOST_CHANNELS)

    kind = draws.pick(range(20))
    channels, rows = count(), count()
    if kind < 13:
        return 1, channels, rows
    if kind < 17:
        return channels, 1, draws.pick((1, 1, 1, 2, 4))  # depthwise
    groups = draws.pick((2, 3, 4, 8, 16, 32))
    return groups, max(1, channels // groups), max(1, rows // groups)
