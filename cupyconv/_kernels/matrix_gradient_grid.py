"""The copies that two gradients of a weight multiply, in which a tap is a shift along memory.

Both arrays are copied by channel, with zeros between lines and between samples. Inputs that taps
reach in steps have planes of their own, one for each residue of a stride. matrix_gradient.cu has
others for the odd positions of 16-bit numbers, of which Tensor Cores read pairs;
hopper_gradient.cu, whose boxes begin at whole chunks (`grid_of_boxes`), for each shift of a tap
within a chunk.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from .._axes import is_pointwise
from .._geometry import ConvGeometry
from .._taps import AxisTaps, on_three_axes

STEP_BYTES, CHUNK_BYTES = 128, 16  # of a step, and of a copy
_BANK_BYTES = 128  # of all banks of shared memory


class Tap(NamedTuple):
    """Where a tap of an axis finds its inputs: in a plane, so many places further."""

    plane: int
    shift: int


@dataclass(frozen=True)
class Line:
    """An axis of the copies.

    Attributes
    ----------
    pitch : int
        Places along the axis: outputs, and zeros where taps leave the input.
    planes, apart : int
        Planes of inputs, and inputs from the first one of a plane to that of the next.
    taps : tuple of Tap
        The taps.
    """

    pitch: int
    planes: int
    apart: int
    taps: tuple[Tap, ...]


def line_of(axis: AxisTaps, whole: int) -> Line:
    """Return an axis of the copies, whose places are a multiple of `whole`."""
    apart = math.gcd(axis.dilation, axis.step)
    steps = [divmod(tap * axis.dilation, axis.step) for tap in range(axis.kernel)]
    taps = tuple(Tap(residue // apart, shift) for shift, residue in steps)
    pitch = axis.size_out
    for shift, residue in steps:
        # Inputs begin and end at these places of the tap's plane. What lies past the last place is
        # the first place of the next line, and must be zero, too.
        first = max(0, -((residue + axis.origin) // axis.step))
        end = -((residue + axis.origin - axis.size_in) // axis.step)
        reach = axis.size_out + shift
        pitch = max(pitch, min(end, reach), reach - first)
    planes = 1 + max(tap.plane for tap in taps)
    return Line(-(-pitch // whole) * whole, planes, apart, taps)


@dataclass(frozen=True)
class Grid:
    """The copies of both arrays, whose numbers lie as words.

    A word has 32 bits, or is a number of 64.

    Attributes
    ----------
    axes : tuple of Line
        z, y and x.
    itemsize : int
        Bytes of a number.
    flat : bool
        Whether the places of a sample lie as in arrays without gaps, which need no copies.
    parities : int
        Planes of inputs for each of those of the axes: 2 if taps reach odd places of pairs.
    """

    axes: tuple[Line, ...]
    itemsize: int
    flat: bool
    parities: int

    @property
    def word(self) -> int:
        """Bytes of a word."""
        return max(4, self.itemsize)

    @property
    def packed(self) -> int:
        """Numbers of a word."""
        return self.word // self.itemsize

    @property
    def step(self) -> int:
        """Words of a step."""
        return STEP_BYTES // self.word

    @property
    def chunk(self) -> int:
        """Words of a copy."""
        return CHUNK_BYTES // self.word

    @property
    def planes(self) -> int:
        """Planes of inputs: those along z, y and x, and of these first the even ones."""
        return math.prod(axis.planes for axis in self.axes) * self.parities

    def words(self, batch: int) -> int:
        """Return the words of a channel, in whole copies."""
        places = batch * math.prod(axis.pitch for axis in self.axes)
        return -(-places * self.itemsize // CHUNK_BYTES) * self.chunk

    def samples(self, batch: int) -> int:
        """Return how many parts of a channel have steps of their own."""
        return batch if self.flat else 1

    def steps(self, batch: int) -> int:
        """Return the steps of a channel."""
        samples = self.samples(batch)
        return samples * -(-self.words(batch) // (samples * self.step))


def in_whole_chunks(line: Line, step: int, whole: int) -> Line:
    """Return an axis with planes of their own for taps whose shift is no multiple of `whole`.

    Such a plane is a residue of shifts further, in the order of components as far as `step`.
    """
    components = step // line.apart
    residues = [tap.shift % whole for tap in line.taps]
    unit = math.gcd(whole, *residues) if components == 1 else 1
    taps = tuple(
        Tap(tap.plane + components * (residue // unit), tap.shift - residue)
        for tap, residue in zip(line.taps, residues, strict=True)
    )
    return Line(line.pitch, 1 + max(tap.plane for tap in taps), unit * line.apart, taps)


def grid_of_boxes(geometry: ConvGeometry, itemsize: int, parts: int) -> Grid:
    """Return the copies for boxes, which begin at whole chunks of a line.

    Numbers of two parts are always copied.
    """
    grid = grid_of(geometry, itemsize)
    if grid.flat and parts == 1:
        return grid
    whole = CHUNK_BYTES // itemsize
    z, y, x = on_three_axes(geometry.axes)
    along_x = in_whole_chunks(line_of(x, whole), x.step, whole)
    return Grid((line_of(z, 1), line_of(y, 1), along_x), itemsize, False, 1)


def grid_of(geometry: ConvGeometry, itemsize: int) -> Grid:
    whole = CHUNK_BYTES // itemsize
    z, y, x = on_three_axes(geometry.axes)
    places = math.prod(axis.size_out for axis in geometry.axes)
    if all(map(is_pointwise, geometry.axes)) and places % whole == 0:
        return Grid((line_of(z, 1), line_of(y, 1), line_of(x, 1)), itemsize, True, 1)
    axes = [line_of(z, 1), line_of(y, 1), line_of(x, whole)]
    odd = itemsize == 2 and any(tap.shift % 2 for tap in axes[2].taps)
    if odd:  # an odd plane is one place ahead, in the order of components as far as a stride
        axes[2] = replace(axes[2], planes=x.step // axes[2].apart)
    return Grid(tuple(axes), itemsize, False, 2 if odd else 1)


@dataclass(frozen=True)
class Classes:
    """The taps along x by what they share: a plane, and a line of words.

    `firsts` has of each class its plane and its first word, `of` and `shifts` of each tap its class
    and the words from there. `word` has the bytes of a word.
    """

    word: int
    firsts: tuple[tuple[int, int], ...]
    of: tuple[int, ...]
    shifts: tuple[int, ...]

    @cached_property
    def chunks(self) -> int:
        """Copies of a line of inputs: the fewest that lead to few bank conflicts."""
        needed = -(-(STEP_BYTES + max(self.shifts) * self.word) // CHUNK_BYTES)
        return min(range(needed, needed + _BANK_BYTES // CHUNK_BYTES), key=self._conflicts)

    def _conflicts(self, chunks: int) -> int:
        """Return how often warps wait for banks to load the words of eight columns."""
        lines, turns, line = len(self.firsts), 0, chunks * CHUNK_BYTES // self.word
        for first in range(len(self.of)):
            words: set[int] = set()
            for column in range(first, first + 8):
                row, tap = divmod(column, len(self.of))
                start = (row * lines + self.of[tap]) * line + self.shifts[tap]
                words |= {start + place for place in range(4)}
            turns += max(Counter(word % (_BANK_BYTES // self.word) for word in words).values())
        return turns


@lru_cache(maxsize=4096)
def classes_of(grid: Grid) -> Classes:
    places = []  # plane and word of each tap
    for tap in grid.axes[2].taps:
        word, parity = divmod(tap.shift, grid.packed)
        places.append((parity * grid.axes[2].planes + tap.plane, word))
    firsts: list[tuple[int, int]] = []
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for plane, word in sorted(places):
        if not firsts or firsts[-1][0] != plane or word - firsts[-1][1] > grid.step:
            firsts.append((plane, word // grid.chunk * grid.chunk))
        found[plane, word] = len(firsts) - 1, word - firsts[-1][1]
    of, shifts = zip(*(found[place] for place in places), strict=True)
    return Classes(grid.word, tuple(firsts), of, shifts)
