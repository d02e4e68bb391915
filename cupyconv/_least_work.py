"""The least work of a call, from which its limit follows: multiply-adds and elements read.

Products with the padding and inputs between windows cost nothing, so a limit must not count them.
All counts are exact integers or lower bounds, in a time that does not grow with the sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._geometry import ConvGeometry, PoolGeometry
from ._taps import floor_sum


@dataclass(frozen=True)
class LeastWork:
    """What a convolution cannot do without.

    Attributes
    ----------
    multiply_adds : int
        Products of an input with a weight.
    input_share, weight_share : float
        Lower bounds of the fractions of the input and of the weight that take part in a product.
    """

    multiply_adds: int
    input_share: float
    weight_share: float


def least_work(geometry: ConvGeometry) -> LeastWork:
    """Return the least work of a convolution of either direction."""
    multiply_adds = geometry.batch * geometry.groups * geometry.rows * geometry.channels
    input_share = weight_share = 1.0
    steps = zip(geometry.stride, geometry.dilation, geometry.pads_before, strict=True)
    for axis, (stride, dilation, pad) in zip(geometry.axes, steps, strict=True):
        long, short = axis.size_in, axis.size_out
        if geometry.transposed:
            long, short = short, long
        pairs = pairs_inside(short, axis.kernel, stride, dilation, pad, long)
        if geometry.transposed:
            inputs = -(-pairs // axis.kernel)  # an input has at most a product with each tap
        else:
            inputs = positions_read(short, axis.kernel, stride, dilation, pad, long)
        multiply_adds *= pairs
        input_share *= inputs / max(axis.size_in, 1)
        weight_share *= -(-pairs // max(short, 1)) / axis.kernel
    return LeastWork(multiply_adds, input_share, weight_share)


def pooled_share(geometry: PoolGeometry) -> float:
    """Return a lower bound of the fraction of a pooling's input that is in a window."""
    return math.prod(
        positions_read(
            axis.size_out, axis.kernel, axis.stride, axis.dilation, axis.pad, axis.size_in
        )
        / max(axis.size_in, 1)
        for axis in geometry.axes
    )


def positions_read(
    windows: int, kernel: int, stride: int, dilation: int, pad: int, size: int
) -> int:
    """Return a lower bound of the positions of an axis of `size` elements that windows contain.

    It is exact if stride or dilation is 1 and every position of the padding is in a window.
    """
    common = math.gcd(stride, dilation)
    # A position that two windows share lies dilation/common windows and stride/common taps apart.
    shared = max(0, windows - dilation // common) * max(0, kernel - stride // common)
    last = (windows - 1) * stride - pad + (kernel - 1) * dilation
    beyond = -(-pad // common) + -(-max(0, last + 1 - size) // common)
    return min(size, max(0, windows * kernel - shared - beyond))


def pairs_inside(windows: int, kernel: int, stride: int, dilation: int, pad: int, size: int) -> int:
    """Return how many pairs of a window and a tap meet inside of an axis of `size` elements."""
    arguments = windows, kernel, stride, dilation
    return _pairs_below(pad + size, *arguments) - _pairs_below(pad, *arguments)


def _pairs_below(end: int, windows: int, kernel: int, stride: int, dilation: int) -> int:
    """Return how many ``window * stride + tap * dilation`` are less than `end`."""
    # The first windows have all of their taps below the end, the next ones some of them.
    whole = min(max((end - 1 - (kernel - 1) * dilation) // stride + 1, 0), windows)
    some = min(max((end - 1) // stride + 1, 0), windows)
    partly = some - whole
    nearest = end - 1 - (some - 1) * stride
    return whole * kernel + partly + floor_sum(partly, stride, nearest, dilation)
