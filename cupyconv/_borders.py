"""Which elements a padding mode shows along one axis, in the words of `numpy.pad`.

An axis with its padding is a row of segments, in which the shown elements ascend, descend or stay
the same. `kernels/border_modes.cuh` has the same rule for single positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._geometry import ConvGeometry

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

    def at(self, start: int, stop: int) -> Segment:
        """Return what the positions from `start` to `stop` show; they lie in this segment."""
        return Segment(start, stop, self.first + self.step * (start - self.start), self.step)

    def within(self, start: int, stop: int) -> Segment | None:
        """Return what the positions from `start` to `stop` show, as far as they lie in it."""
        start, stop = max(start, self.start), min(stop, self.stop)
        return self.at(start, stop) if start < stop else None

    def showing(self, start: int, stop: int) -> Segment | None:
        """Return the positions that show an element from `start` to `stop`."""
        elements = self.elements
        low, high = max(start, elements.start), min(stop, elements.stop)
        if low >= high:
            return None
        if self.step == 0:
            return self
        first = low if self.step > 0 else high - 1
        begin = self.start + abs(first - self.first)
        return self.at(begin, begin + high - low)


def segments(size: int, before: int, padded: int, mode: str) -> list[Segment]:
    """Return the segments of `padded` positions, which begin `before` ahead of `size` elements.

    A negative `before` begins that far inside the elements, or beyond them.
    """
    if mode == "edge" or size == 1:
        ends = sorted({0, *(min(max(end, 0), padded) for end in (before, before + size)), padded})
        firsts = [min(max(start - before, 0), size - 1) for start in ends[:-1]]
        return [
            Segment(start, stop, first, int(before <= start < before + size))
            for start, stop, first in zip(ends, ends[1:], firsts, strict=False)
        ]
    # A period is the array, and what is reflected of it: all elements, or all but both ends.
    period = size + {"wrap": 0, "symmetric": size, "reflect": size - 2}[mode]
    found = []
    start = 0
    while start < padded:
        place = (start - before) % period
        if place < size:
            segment = Segment(start, min(start + size - place, padded), place, 1)
        else:
            first = period - place - (mode == "symmetric")
            segment = Segment(start, min(start + period - place, padded), first, -1)
        found.append(segment)
        start = segment.stop
    return found


def of_axes(geometry: ConvGeometry) -> list[list[Segment]]:
    """Return the segments of each axis of a convolution with a padding mode."""
    sides = geometry.bordered_sizes, geometry.pads_before, geometry.padded_sizes
    mode = str(geometry.padding_mode)
    return [segments(*axis, mode) for axis in zip(*sides, strict=True)]
