"""Which elements a padding mode shows along one axis, in the words of `numpy.pad`.

An axis with its padding is a row of segments, in which the shown elements ascend, descend or stay
the same. `kernels/border_modes.cuh` has the same rule for single positions.
"""

from __future__ import annotations

from typing import NamedTuple

# What others call the modes. `BorderMode` in `kernels/border_modes.cuh` has the same order.
OTHER_NAMES = {
    "reflect": ("mirror",),
    "symmetric": ("grid-mirror", "symm"),
    "edge": ("replicate", "nearest"),
    "wrap": ("circular", "grid-wrap"),
}
PADDING_MODES = tuple(OTHER_NAMES)


class Segment(NamedTuple):
    """Neighbouring positions of a padded axis.

    Attributes
    ----------
    start, stop : int
        The positions, counted from the begin of the padding.
    first : int
        The element that the first position shows.
    step : int
        From the element of one position to that of the next: 1, -1 or 0.
    """

    start: int
    stop: int
    first: int
    step: int

    @property
    def positions(self) -> slice:
        """The positions as a slice of the padded axis."""
        return slice(self.start, self.stop)

    @property
    def elements(self) -> slice:
        """The elements in ascending order as a slice of the axis."""
        last = self.first + self.step * (self.stop - self.start - 1)
        return slice(min(self.first, last), max(self.first, last) + 1)


def segments(size: int, before: int, padded: int, mode: str) -> list[Segment]:
    """Return the segments of `padded` positions, which begin `before` ahead of `size` elements."""
    if mode == "edge" or size == 1:
        ends = sorted({0, *(min(end, padded) for end in (before, before + size)), padded})
        firsts = [min(max(start - before, 0), size - 1) for start in ends[:-1]]
        return [
            Segment(start, stop, first, int(before <= start < before + size))
            for start, stop, first in zip(ends, ends[1:], firsts, strict=False)
        ]
    length = size - 1 if mode == "reflect" else size  # from one turn to the next
    found = []
    start = 0
    while start < padded:
        turns, place = divmod(start - before, length)
        stop = min(start + length - place, padded)
        descends = mode != "wrap" and turns % 2
        found.append(
            Segment(start, stop, size - 1 - place if descends else place, 1 - 2 * descends)
        )
        start = stop
    return found
