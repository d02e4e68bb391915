"""What the sum of an output looks like on Tensor Cores: its axes, K steps and their order.

A sum follows from the geometry of one sample, the dtype, the precision and the GPU. It never
depends on the batch, so that a sample has the same bits in any batch. Neighbouring outputs may be
packed into the rows of the matrix product (`Fold`), where output channels alone would leave a row
tile half empty.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

from .._geometry import ConvGeometry
from .._taps import AxisTaps, conv_taps, conv_transpose_taps, on_three_axes, residues_below
from .launches import SECTOR
from .modes import SLAB_ROWS, Mode


@dataclass(frozen=True)
class Fold:
    """How many neighbouring outputs of an axis are packed into rows, and which taps these have.

    Tap j of the packed axis is, for output `fold` of the `count`, the kernel's tap
    ``(start + j * step + fold * apart) / divisor``, if that is an integer within the kernel.
    """

    count: int
    kernel: int
    start: int = 0
    step: int = 1
    apart: int = 0
    divisor: int = 1


@dataclass(frozen=True)
class Axis:
    """An axis as matrix_conv.cu sees it; its lattices are the polyphase components of the input.

    Attributes
    ----------
    spacing : int
        Inputs from one polyphase component to the next.
    lattices : int
        Polyphase components that taps read.
    most_taps : int
        Taps of the phase that has most.
    read_taps : int
        Taps whose inputs are read: one more where K steps take two and the last one has one.
    skew : int
        1 where, in some phase, staging begins one input early, so that it begins at an even one.
    pairs : bool
        Whether neighbouring inputs can be staged together.
    stacked : int
        Outputs along the axis that a position stands for: the rows of a pooling window where each
        has a column tile of its own, else 1.
    spread : int
        Distance of the array's elements among the inputs; the inputs between them are absent.
    """

    taps: AxisTaps
    spacing: int
    lattices: int
    most_taps: int
    read_taps: int
    skew: int
    pairs: bool
    stacked: int = 1
    spread: int = 1

    @property
    def in_odd_lattices(self) -> bool:
        """True if pairs of inputs straddle polyphase components, which odd strides cause."""
        return self.pairs and self.lattices > 1 and self.lattices % 2 == 1

    @property
    def apart(self) -> int:
        """Taps from one to the next in the same polyphase component."""
        return self.taps.step // self.spacing

    def steps(self, halves: int) -> int:
        """Return the K steps of the phase with most taps; with one half, a step has two taps."""
        if halves == 2:
            return self.most_taps
        both, rest = divmod(self.most_taps, 2 * self.apart)
        return both * self.apart + min(rest, self.apart)

    @cached_property
    def absent(self) -> int:
        """Inputs before the array that are staged, in the one phase."""
        _, count, offset = self.taps.progression(0)
        return max(0, self.skew - offset - (count - 1) * min(0, self.taps.offset_step))

    @cached_property
    def halo(self) -> int:
        """Distance of the last tap from the first staged input, in 16-byte chunks."""
        last = max(0, self.read_taps - 1) * abs(self.taps.offset_step) + self.skew
        return (last + self.stacked - 1) // self.taps.step


def _pooled_axis(taps: AxisTaps, stacked: int, last: bool) -> Axis:
    """Return an axis in one phase, whose positions stand for `stacked` outputs each.

    Their inputs lie in as many polyphase components, and each output reads all of them. A strided
    transposed convolution is computed without stride, on inputs with absent ones between them.
    """
    spread = taps.phases
    if spread > 1:
        size_in = (taps.size_in - 1) * spread + 1
        taps = conv_transpose_taps(
            size_in, taps.size_out, taps.kernel, 1, taps.dilation, taps.origin
        )
    if stacked == 1:
        return replace(_axis(taps, last and spread == 1), spread=spread)
    axis = _axis(replace(taps, step=stacked, size_out=-(-taps.size_out // stacked)), last=False)
    return replace(axis, spacing=1, lattices=stacked, stacked=stacked, spread=spread)


@lru_cache(maxsize=1024)
def _axis(taps: AxisTaps, last: bool) -> Axis:
    """Return an axis; along the last one neighbouring inputs may be staged as pairs."""
    most, _, _ = taps.tap_counts
    apart = abs(taps.offset_step)
    spacing = math.gcd(taps.step, apart)
    # Inputs of two polyphase components are pairs, too: of an even and an odd component where there
    # are as many of both, or of an odd number of components where taps lie on all of them.
    reached = most if taps.step % 2 else most * apart
    all_used = spacing == 1 and reached >= taps.step
    pairs = last and taps.size_in % 2 == 0 and (taps.step == 1 or all_used)
    skew = int(pairs and taps.begins_odd)
    lattices, stride = taps.step // spacing, apart // spacing
    if not pairs and most < lattices:
        # The smallest number of components, from the first one on, that holds all taps.
        taps_on = partial(residues_below, count=most, step=stride, start=0, divisor=lattices)
        lattices = max(1, bisect_left(range(lattices), most, key=taps_on))
    return Axis(taps, spacing, lattices, most, most, skew, pairs)


@dataclass(frozen=True)
class Sum:
    """The sum of an output: its terms and their order, the same in any batch.

    Attributes
    ----------
    taps : tuple of AxisTaps
        z, y and x as called; an axis that a call lacks has one element.
    axes : tuple of Axis
        z, y and x as computed, perhaps with outputs packed into rows.
    fold : tuple of Fold
        The packing of outputs along each of them.
    mode : Mode
        What is multiplied.
    channels, rows : int
        Input and output channels of a group.
    blocks : int
        Blocks of channels, one K step wide.
    depth : int
        Blocks of channels of a pipeline stage.
    group : int
        K steps of a stage of weights.
    halves : int
        Halves of a K step that are channels: 2, or 1 where a step has two taps of x.
    """

    taps: tuple[AxisTaps, ...]
    axes: tuple[Axis, ...]
    fold: tuple[Fold, ...]
    mode: Mode
    channels: int
    rows: int
    blocks: int
    depth: int
    group: int
    halves: int

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Positions of a phase along z, y and x, where it has most."""
        return tuple(axis.taps.positions(0) for axis in self.axes)

    @cached_property
    def positions(self) -> int:
        """Positions of a sample in the phase that has most."""
        return math.prod(self.sizes)

    @property
    def stacked(self) -> int:
        """Outputs along y that a position stands for."""
        return self.axes[1].stacked

    @cached_property
    def steps_inside(self) -> int:
        """K steps of a block of channels in a stage: the taps of y and x."""
        return _steps_inside(self.axes, self.halves)

    @cached_property
    def steps(self) -> int:
        """K steps of the phase with most."""
        return self.blocks * self.axes[0].most_taps * self.steps_inside

    @cached_property
    def folds(self) -> int:
        """Neighbouring outputs that are packed into the rows of one column."""
        return math.prod(fold.count for fold in self.fold)

    @cached_property
    def unit(self) -> int:
        """Tiles have a multiple of this many outputs along x: no vector store straddles two."""
        four = self.fold[2].count == self.axes[2].taps.phases == 1
        return 4 if four and self.taps[2].size_out % 4 == 0 else 2

    @cached_property
    def mean_steps(self) -> float:
        """K steps, in the mean of the phases."""
        taps = math.prod(axis.taps.kernel for axis in self.axes) / self.phases
        return self.blocks * taps * self._steps_a_tap

    @cached_property
    def matrix_rows(self) -> int:
        """Rows of the matrix product with packed outputs, before row tiles are filled up."""
        return _matrix_rows(self.rows, self.folds)

    @property
    def _steps_a_tap(self) -> float:
        x = self.axes[2]
        return x.steps(self.halves) / max(1, x.most_taps)

    @cached_property
    def phases(self) -> int:
        """Phases that have outputs."""
        return math.prod(len(axis.taps.used_phases) for axis in self.axes)

    @cached_property
    def phase_taps(self) -> list[int]:
        """Taps of each phase, 0 where some axis has none."""
        axes = (axis.taps for axis in self.axes)
        counts = ([taps.progression(phase)[1] for phase in taps.used_phases] for taps in axes)
        return [math.prod(taps) for taps in itertools.product(*counts)]

    @cached_property
    def phase_order(self) -> list[int]:
        """Phases in descending order of taps; empty if they exceed the kernel's table."""
        if self.phases > MOST_ORDERED:
            return []
        return sorted(range(self.phases), key=lambda phase: -self.phase_taps[phase])


def _packed_taps(
    taps: AxisTaps, transposed: bool, stride: int, dilation: int, count: int
) -> tuple[AxisTaps, Fold] | None:
    """Return an axis with `count` neighbouring outputs packed into rows, and its taps.

    For a transposed convolution these are all phases of one or several positions.
    """
    kernel, pad = taps.kernel, taps.origin
    if count == 1:
        return taps, Fold(1, kernel)
    step, rest = divmod(count, stride) if transposed else (count, stride - 1)
    if rest or (step > 1 and dilation > 1):
        return None
    if not transposed:
        offset, length = pad, kernel + count - 1
        fold = Fold(count, kernel, 0, 1, -1)
    elif stride > 1 and dilation % stride == 0:
        # One phase has all taps. The other outputs' taps lie a kernel's length outside of it.
        only = -pad % stride
        first = (only + pad) // stride
        apart = dilation // stride
        virtual = conv_taps(
            taps.size_in, -(-taps.size_out // count), kernel, 1, apart, (kernel - 1) * apart - first
        )
        return virtual, Fold(count, kernel, kernel - 1 - only * kernel, -1, kernel)
    else:
        offset = -(((kernel - 1) * dilation - pad) // stride)
        length = (count - 1 + pad) // stride - offset + 1
        fold = Fold(count, kernel, pad - stride * offset, -stride, 1, dilation)
    size_out = -(-taps.size_out // count)
    packed = conv_taps(taps.size_in, size_out, length, step, 1, -offset)
    return packed, fold


MOST_FOLDS = 32  # outputs that are packed into the rows of a column
MOST_ORDERED = 32  # phases in the kernel's table
_MOST_PHASES = 8  # of an axis whose outputs are packed
_SCATTERED = 0.8  # cycles of a store to a sector of its own, where phases alternate in memory
_ROOM = 160 * 1024  # bytes that hold two long stages with any halo of a small kernel


def whole_multiple(number: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is not below `number`."""
    return -(-number // unit) * unit


def even_parts(number: int, most: int) -> int:
    """Return the size of the fewest parts of at most `most`, as even as they can be."""
    return -(-number // -(-number // most))


def _tiled_rows(rows: int) -> int:
    return whole_multiple(rows, SLAB_ROWS)


def _matrix_rows(rows: int, folds: int) -> int:
    return whole_multiple(rows, 8) * folds if folds > 1 else rows


def _steps_inside(axes: tuple[Axis, ...], halves: int) -> int:
    return axes[1].most_taps * axes[2].steps(halves)


def packings_of(geometry: ConvGeometry, mode: Mode) -> list[tuple[int, ...]]:
    """Return how many outputs along z, y and x may be packed into rows, the default first.

    The others are worth a comparison: several outputs along y or z as well, if one block has the
    rows of all of them, and other numbers along x. The default does not depend on whether axes
    without taps have been joined.
    """
    taps, strides, dilations = _three(geometry)
    own = [n if geometry.transposed and n <= _MOST_PHASES else 1 for n in strides]

    def cost(count: int) -> float:
        """Return the cycles of an output along x in all rows: its products and its store."""
        packed = _packed_axis(geometry, 2, count)
        if packed is None or packed[0].kernel < 1:
            return math.inf
        rows = _matrix_rows(geometry.rows, count)
        length = packed[0].kernel / packed[0].phases
        products = _tiled_rows(rows) * length / count * terms * mode.products / mode.rate
        scattered = packed[0].phases > 1
        return products + geometry.rows * (_SCATTERED if scattered else mode.itemsize / SECTOR)

    outer = math.prod(axis.kernel / axis.phases for axis in geometry.axes[:-1])
    terms = whole_multiple(geometry.channels, mode.block) * outer
    first = min(sorted({1, 2, 4, own[2]}), key=cost)
    found: list[tuple[int, ...]] = [(1, 1, first)]
    if first == 1 < taps[2].phases or all(axis.kernel == axis.phases == 1 for axis in taps):
        return found
    z, y = ({1, n} if d % n else {1} for n, d in zip(own[:2], dilations[:2], strict=True))
    phased = any(axis.phases > 1 for axis in taps)
    x = {n for n in (own[2], 2 * own[2]) if n <= _MOST_PHASES}
    if not phased:
        x = {1, 2, 4}
        if geometry.rank > 1 and strides[1] == dilations[1] == 1:
            y = {1, 2}
    for counts in itertools.product(sorted(z), sorted(y), sorted(x)):
        folds = math.prod(counts)
        rows = _tiled_rows(_matrix_rows(geometry.rows, folds))
        fewer = rows <= 2 * SLAB_ROWS and (phased or rows < folds * _tiled_rows(geometry.rows))
        possible = all(_packed_axis(geometry, *axis) for axis in enumerate(counts))
        if (fewer or folds == 1) and possible and counts not in found:
            found.append(counts)
    return found


def _packed_axis(geometry: ConvGeometry, axis: int, count: int) -> tuple[AxisTaps, Fold] | None:
    """Return z, y or x with `count` outputs packed into rows, None where they cannot be."""
    taps, strides, dilations = _three(geometry)
    return _packed_taps(taps[axis], geometry.transposed, strides[axis], dilations[axis], count)


def _three(geometry: ConvGeometry) -> tuple[tuple[AxisTaps, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the taps of z, y and x, their strides and their dilations."""
    lead = (1,) * (3 - geometry.rank)
    return on_three_axes(geometry.axes), lead + geometry.stride, lead + geometry.dilation


def sum_of(
    geometry: ConvGeometry,
    mode: Mode,
    shared: int,
    folds: tuple[int, ...] = (1, 1, 1),
    *,
    stacked: int = 0,
) -> Sum:
    """Return how the sums of a convolution of rank 1 to 3 are computed.

    Parameters
    ----------
    geometry : ConvGeometry
        The convolution.
    mode : Mode
        What is multiplied.
    shared : int
        Bytes of shared memory of a block.
    folds : tuple of int
        Outputs along z, y and x that are packed into the rows of one column.
    stacked : int
        Where outputs are pooled (and phases are one), rows of a window with a column tile of their
        own, at least 1; else 0.
    """
    taps, _, _ = _three(geometry)
    own = [_packed_axis(geometry, *axis) for axis in enumerate(folds)]
    fold = tuple(found[1] for found in own if found)
    z, y, x = (_axis(found[0], a == 2) for a, found in enumerate(own) if found)
    if stacked:
        y, x = _pooled_axis(taps[1], stacked, last=False), _pooled_axis(taps[2], 1, last=True)
    axes = (z, y, x)
    # With few channels a K step has two taps of x, which lie equally far apart everywhere.
    halves = 1 if 2 * geometry.channels <= mode.block and x.most_taps > x.apart else 2
    if halves == 1:
        rest = x.most_taps % (2 * x.apart)
        absent = x.apart + min(rest, x.apart) - rest if rest else 0
        axes = (*axes[:2], replace(x, read_taps=x.most_taps + absent))
    inside = _steps_inside(axes, halves)
    blocks = -(-geometry.channels // mode.block)
    lattices = axes[1].lattices * axes[2].lattices
    # A stage has several K steps, or products wait often; but more stages hide more of a load's
    # latency. Chains of products end with their stage, so stages are longer where there is room.
    room = inside > 6 and lattices == 1 and shared >= _ROOM
    longest = 18 if mode.parts == 2 and room else 6
    # Two stages must fit shared memory.
    deepest = 2 if mode.parts == 2 and shared < _ROOM else 4
    depth = max(1, min(blocks, deepest, longest // max(1, inside * lattices)))
    steps = max(1, depth * inside)
    group = even_parts(steps, mode.group)
    return Sum(
        taps, axes, fold, mode, geometry.channels, geometry.rows, blocks, depth, group, halves
    )


def one_by_one(whole: Sum) -> Sum | None:
    """Return the same sum with its inputs staged one by one, None where pairs need no table.

    The order is the same. With an odd number of polyphase components, a table in shared memory says
    where pairs lie.
    """
    z, y, x = whole.axes
    if not x.in_odd_lattices:
        return None
    return replace(whole, axes=(z, y, replace(x, pairs=False, skew=0)))
