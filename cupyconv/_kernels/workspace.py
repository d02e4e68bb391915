"""How much memory a plan may take beside the arrays."""

from __future__ import annotations

import math

from .question import Question

_WHOLE = 16  # channels up to whose multiples weights may be packed
_SLACK, _MOST_PARTIAL = 2**22, 2**25  # bytes: of packed weights of any size, and of partial sums


def most_workspace(question: Question) -> int:
    """Return the most bytes of packed weights and partial sums that a plan may take."""
    geometry = question.geometry
    sizes = geometry.groups * geometry.rows, geometry.channels
    rows, channels = (-(-size // _WHOLE) * _WHOLE for size in sizes)
    taps = math.prod(axis.kernel for axis in geometry.axes)
    weights = rows * channels * taps * question.dtype.itemsize
    return weights * 11 // 10 + _SLACK + _MOST_PARTIAL
