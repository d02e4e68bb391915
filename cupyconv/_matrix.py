"""Second room, the dense kernel: how a convolution is laid out on matrix units.

What the sum of an output looks like (`Sum`) follows from the geometry of one sample and the
precision alone, so that it has the same bits in any batch. How outputs are divided into tiles
(`Tiling`) follows from a model of the time that candidates take, and may depend on the batch.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

from ._geometry import ConvGeometry
from ._taps import AxisTaps, conv_taps, conv_transpose_taps, on_three_axes, residues_below

SLAB_ROWS = 64
SLOT = 16  # bytes
SECTOR = 32  # bytes that memory is written by
TEAM = 128  # threads
MOST_PARTIAL = 2**25  # bytes of sums of spans
MAX_STAGES = 16
MAX_STEPS = 2048  # of a stage, as far as the table of distances goes
_FEW_SUMS = 64  # of a thread: they leave registers for as many beside them, or for many threads
_AHEAD = 8  # distances behind those of a stage, which are read but not used
INT32_LIMIT = 2**31


@dataclass(frozen=True)
class Mode:
    """What a matrix unit multiplies.

    Attributes
    ----------
    element : str
        Device type of the arrays' elements.
    operand : str
        What they are multiplied as: the same, of which float is tf32, or float16 numbers, of which
        a float takes a power of two besides (windows.cuh).
    parts : int
        Numbers into which an element is split; two of them take three products.
    """

    element: str
    operand: str
    parts: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 4 if self.element == "float" else 2

    @property
    def scaled(self) -> bool:
        """Whether elements are multiplied as numbers of fewer exponents."""
        return self.operand != self.element

    @property
    def block(self) -> int:
        """Channels of a step of the sum."""
        return 2 * SLOT // (4 if self.operand == "float" else 2)

    @property
    def rate(self) -> int:
        """Multiply-adds a cycle of a multiprocessor (that of compute capability 9.0)."""
        return 64 * self.block * 2

    @property
    def products(self) -> int:
        """Matrix products of a step."""
        return 3 if self.parts == 2 else 1

    @property
    def keeps_spans(self) -> bool:
        """Whether a block has registers for sums of spans in turn, beside those that it adds."""
        return self.parts == 1

    @property
    def slab_bytes(self) -> int:
        """Weights of 64 rows in a step."""
        return 2 * SLOT * SLAB_ROWS * self.parts

    @property
    def pack_rows(self) -> int:
        """Rows whose weights a block packs at a time."""
        return 4 if self.scaled else 8

    @property
    def group(self) -> int:
        """Steps of the largest group of weights: 32 KiB a slab."""
        return 32768 // self.slab_bytes


# By dtype and, for float32, precision.
_TF32 = {"float32": Mode("float", "float", 2), "tf32": Mode("float", "float", 1)}
_SCALED = {"float32": Mode("float", "float16", 2), "tf32": Mode("float", "float16", 1)}
_SIXTEEN = {name: Mode(name, name, 1) for name in ("float16", "bfloat16")}
# Up to so many channels leave half of a float16 step empty even where it has two taps.
_FEW_CHANNELS = 4
# From so many tf32 products of a sum on, half as many are worth what it takes to place numbers. In
# the tf32 mode fewer are for large samples, above all with strides, which stage more for a product.
_MANY_PRODUCTS, _SOME_PRODUCTS, _STRIDED_PRODUCTS = 50, 36, 24
_LARGE_SAMPLE = 2**28  # products


def mode(
    dtype: str, precision: str, engine: str, geometry: ConvGeometry, forced: bool = False
) -> Mode | None:
    """Return how matrix units multiply numbers, None where they do not.

    Where the kernel is `forced`, few products are no reason for another mode.
    """
    plain = plain_mode(dtype, precision)
    if plain is None or dtype != "float32":
        return plain
    g, tf32 = geometry, plain
    taps = math.prod(axis.kernel / axis.phases for axis in g.axes)
    products = -(-g.channels // tf32.block) * taps * tf32.products
    least = _MANY_PRODUCTS
    sample = taps * g.groups * g.channels * g.rows * math.prod(axis.size_out for axis in g.axes)
    if tf32.products == 1 and sample >= _LARGE_SAMPLE:
        least = _STRIDED_PRODUCTS if g.axes[-1].step > 1 else _SOME_PRODUCTS
    scaled = engine == "hopper" and g.channels > _FEW_CHANNELS and (forced or products >= least)
    return _SCALED[precision] if scaled else tf32


def plain_mode(dtype: str, precision: str) -> Mode | None:
    """Return how matrix units multiply numbers as they are, None where they do not."""
    return _TF32[precision] if dtype == "float32" else _SIXTEEN.get(dtype)


def modes(engine: str) -> tuple[Mode, ...]:
    """Return the modes that an engine's kernels are built for."""
    scaled = _SCALED if engine == "hopper" else {}
    return (*_TF32.values(), *scaled.values(), *_SIXTEEN.values())


@dataclass(frozen=True)
class Shape:
    """Rows and columns of a block: ``slabs`` of 64 rows, segments of columns for each team."""

    teams: int
    slabs: int
    segment: int
    segments: int

    def sums(self, mode: Mode) -> int:
        """Return how many sums a thread has in registers."""
        return self.rows * self.columns // (self.teams * TEAM) * mode.parts

    def staging_teams(self, mode: Mode, engine: str, window: int) -> int:
        """Return the teams that bring operands: one warp weights, the others inputs."""
        if engine == "hopper":
            return 4 - self.teams
        return 2 if self.sums(mode) <= _FEW_SUMS and window == 1 else 1

    def threads(self, mode: Mode, engine: str, window: int) -> int:
        """Return the threads of a block."""
        return TEAM * (self.teams + self.staging_teams(mode, engine, window))

    @property
    def rows(self) -> int:
        """Output channels of a block."""
        return self.slabs * SLAB_ROWS

    @property
    def columns(self) -> int:
        """Outputs of a block, in each row."""
        return -(-self.teams // self.slabs) * self.team_columns

    @property
    def team_columns(self) -> int:
        """Outputs of a team, in each row."""
        return self.segment * self.segments

    def loads(self, mode: Mode, engine: str) -> int:
        """Return the registers in which a staging thread has loads under way.

        Small tiles are for small calls, in which every instruction is waited for.
        """
        return 16 if engine == "hopper" and self.sums(mode) <= _FEW_SUMS else 32

    @property
    def partial_bytes(self) -> int:
        """Bytes of the sums of a tile."""
        return 4 * self.rows * self.columns


def shapes(mode: Mode, engine: str) -> tuple[Shape, ...]:
    """Return the shapes that kernels are built for.

    These are by turns a large and a small one, then large ones of narrower segments, and of half
    the columns.
    """
    small = {
        "portable": (Shape(2, 1, 64, 1), Shape(2, 2, 64, 1)),
        # With sums and chains of two slabs a single team would have few registers left.
        "hopper": (
            Shape(2, 1, 64, 1) if mode.parts == 2 else Shape(1, 2, 64, 1),
            Shape(1, 1, 32, 1),
        ),
    }[engine]
    segments = 2 // mode.parts
    narrow = [(120, 120), (104, 104 if mode.parts == 2 else 96)] if engine == "hopper" else []
    large = [
        Shape(2, slabs, segment, segments)
        for pair in ((128, 128), *narrow)
        for slabs, segment in zip((1, 2), pair, strict=True)
    ]
    half: tuple[Shape, ...] = ()
    if segments == 2:
        half = tuple(Shape(2, slabs, 128, 1) for slabs in ((2,) if engine == "hopper" else (1, 2)))
    return large[0], small[0], large[1], small[1], *large[2:], *half


def span_shapes(mode: Mode) -> tuple[Shape, ...]:
    """Return the shapes for sums that are divided into spans (Hopper's matrix units).

    Of one product a thread has few sums in each, and keeps as many of spans before.
    """
    if mode.parts == 1:
        return Shape(2, 2, 128, 1), Shape(1, 2, 64, 1), Shape(1, 1, 32, 1)
    return Shape(2, 1, 128, 1), Shape(2, 2, 128, 1), Shape(2, 1, 64, 1), Shape(1, 1, 32, 1)


def pool_shapes(mode: Mode, engine: str) -> tuple[Shape, ...]:
    """Return the shapes of blocks that pool their outputs.

    Where a team has two segments they are the two rows of its windows (`stacked`).
    """
    if engine == "portable":  # larger ones take long to compile
        return tuple(Shape(2, slabs, 128 // mode.parts, 1) for slabs in (1, 2))
    return tuple(Shape(2, slabs, 112, 2 // mode.parts) for slabs in (1, 2))


def stacked(mode: Mode, engine: str) -> int:
    """Return how many rows of a window are in segments of their own where outputs are pooled."""
    return pool_shapes(mode, engine)[0].segments


@dataclass(frozen=True)
class Fold:
    """How many neighbouring outputs are one, and which tap belongs to a tap of the folded axis.

    It is ``(start + j * step + fold * apart) / divisor``, if that is one of the kernel's.
    """

    count: int
    kernel: int
    start: int = 0
    step: int = 1
    apart: int = 0
    divisor: int = 1


@dataclass(frozen=True)
class Axis:
    """An axis as the kernel sees it; lattices as in matrix_tile.cuh.

    Attributes
    ----------
    spacing : int
        Inputs from one lattice to the next.
    lattices : int
        Grids of inputs that taps lie on.
    most_taps : int
        Taps of the phase that has most.
    read_taps : int
        Taps whose inputs are read: one more where steps take two and the last one has one.
    skew : int
        1 where, in some phase, staging begins with the input in front of the first, an even one.
    pairs : bool
        Whether neighbouring inputs can be staged together.
    stacked : int
        Outputs that a position stands for, as many rows as a window of the pool where each row is
        in a segment of its own.
    spread : int
        How far apart the array's elements lie among the inputs; those between them are absent.
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
        """Whether pairs of inputs lie in an odd number of lattices, their places in a table."""
        return self.pairs and self.lattices > 1 and self.lattices % 2 == 1

    @property
    def apart(self) -> int:
        """Taps from one to the next on the same lattice."""
        return self.taps.step // self.spacing

    def steps(self, halves: int) -> int:
        """Return the steps of the phase that has most taps; of one half, two taps are a step."""
        if halves == 2:
            return self.most_taps
        both, rest = divmod(self.most_taps, 2 * self.apart)
        return both * self.apart + min(rest, self.apart)

    @property
    def absent(self) -> int:
        """Inputs in front of the array that are staged, in the one phase."""
        _, count, offset = self.taps.progression(0)
        return max(0, self.skew - offset - (count - 1) * min(0, self.taps.offset_step))

    @cached_property
    def halo(self) -> int:
        """How far, in slots, the last tap is from the first input that is staged."""
        last = max(0, self.read_taps - 1) * abs(self.taps.offset_step) + self.skew
        return (last + self.stacked - 1) // self.taps.step


def _pooled_axis(taps: AxisTaps, stacked: int, last: bool) -> Axis:
    """Return an axis in one phase, of which a position stands for so many outputs.

    Their inputs lie on as many lattices, which all of them read. A transposed convolution that
    strides is one that does not, of inputs with absent ones between them.
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
    # Inputs of two lattices are pairs too: of an even and an odd one, where there are as many of
    # both, or of an odd number of lattices, where taps lie on all of them.
    reached = most if taps.step % 2 else most * apart
    all_used = spacing == 1 and reached >= taps.step
    pairs = last and taps.size_in % 2 == 0 and (taps.step == 1 or all_used)
    skew = int(pairs and taps.begins_odd)
    lattices, stride = taps.step // spacing, apart // spacing
    if not pairs and most < lattices:
        # As many of them, from the first one on, as it takes to have all taps.
        taps_on = partial(residues_below, count=most, step=stride, start=0, divisor=lattices)
        lattices = max(1, bisect_left(range(lattices), most, key=taps_on))
    return Axis(taps, spacing, lattices, most, most, skew, pairs)


@dataclass(frozen=True)
class Sum:
    """The sum of an output, and what it is a sum over: the same in any batch.

    Attributes
    ----------
    taps : tuple of AxisTaps
        z, y and x as called; axes that a call lacks have one element.
    axes : tuple of Axis
        z, y and x as computed, perhaps folded.
    fold : tuple of Fold
        Of each of them.
    blocks : int
        K blocks of channels, of a span.
    depth : int
        K blocks of a stage.
    group : int
        Steps of a group of weights.
    halves : int
        Halves of K that are channels: 2, or 1 where a step has two taps of x.
    spans : int
        Sums of which this one is the sum, in order: each of so many K blocks.
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
    spans: int = 1

    @property
    def stacked(self) -> int:
        """Outputs along y that a position stands for."""
        return self.axes[1].stacked

    @cached_property
    def steps_inside(self) -> int:
        """Steps of a K block in a stage: those of y and x."""
        return _steps_inside(self.axes, self.halves)

    @cached_property
    def steps(self) -> int:
        """Steps of the phase that has most."""
        return self.spans * self.blocks * self.axes[0].most_taps * self.steps_inside

    @cached_property
    def folds(self) -> int:
        """Outputs that are rows of one column."""
        return math.prod(fold.count for fold in self.fold)

    @cached_property
    def unit(self) -> int:
        """Outputs along x that tiles have together: four may be one store."""
        four = self.fold[2].count == self.axes[2].taps.phases == 1
        return 4 if four and self.taps[2].size_out % 4 == 0 else 2

    @cached_property
    def mean_steps(self) -> float:
        """Steps of a span, for a phase in the mean."""
        taps = math.prod(axis.taps.kernel for axis in self.axes) / self.phases
        return self.blocks * taps * self._steps_a_tap

    @cached_property
    def matrix_rows(self) -> int:
        """Rows of the matrix product, folds included, before slabs are filled up."""
        return _matrix_rows(self.rows, self.folds)

    @property
    def _steps_a_tap(self) -> float:
        x = self.axes[2]
        return x.steps(self.halves) / max(1, x.most_taps)

    @property
    def efficiency(self) -> float:
        """The part of the computed products that outputs have terms for."""

        def taps(axes: Iterable[AxisTaps]) -> float:
            return math.prod(axis.kernel / axis.phases for axis in axes)

        useful = self.rows * self.folds * self.channels * taps(self.taps)
        channels = self.spans * self.blocks * self.mode.block * self._steps_a_tap
        computed = _slab_rows(self.matrix_rows) * channels * taps(a.taps for a in self.axes)
        return useful / computed if computed else 0.0  # no phase that has outputs has a tap

    @cached_property
    def phases(self) -> int:
        """Phases that have outputs."""
        return math.prod(len(axis.taps.used_phases) for axis in self.axes)

    @cached_property
    def phase_taps(self) -> list[int]:
        """Taps of each phase, none where some axis has none."""
        axes = (axis.taps for axis in self.axes)
        counts = ([taps.progression(phase)[1] for phase in taps.used_phases] for taps in axes)
        return [math.prod(taps) for taps in itertools.product(*counts)]

    @cached_property
    def phase_order(self) -> list[int]:
        """Phases by their taps, those of most first; of more than the kernel has room for, none."""
        if self.phases > MOST_ORDERED:
            return []
        return sorted(range(self.phases), key=lambda phase: -self.phase_taps[phase])


def _folded(
    taps: AxisTaps, transposed: bool, stride: int, dilation: int, count: int
) -> tuple[AxisTaps, Fold] | None:
    """Return the axis of which `count` neighbouring outputs are one, and its taps.

    Of a transposed convolution these are all phases of one or several places.
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
        # One phase has all taps. A fold that is not its own is as far apart as the kernel is long.
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
    folded = conv_taps(taps.size_in, size_out, length, step, 1, -offset)
    return folded, fold


MOST_FOLDS = 32  # of a column
MOST_ORDERED = 32  # phases
_MOST_PHASES = 8  # of an axis that is folded
_SCATTERED = 0.8  # cycles of a store to a sector of its own: phases lie between each other
_ROOM = 160 * 1024  # bytes that take two long stages with any halo of a small kernel


def _whole(number: int, unit: int) -> int:
    """Return `number` or the next one that is a multiple of `unit`."""
    return -(-number // unit) * unit


def _evenly(number: int, most: int) -> int:
    """Return the size of the fewest parts of at most `most`, as even as they can be."""
    return -(-number // -(-number // most))


def _slab_rows(rows: int) -> int:
    return _whole(rows, SLAB_ROWS)


def _matrix_rows(rows: int, folds: int) -> int:
    return _whole(rows, 8) * folds if folds > 1 else rows


def _steps_inside(axes: tuple[Axis, ...], halves: int) -> int:
    return axes[1].most_taps * axes[2].steps(halves)


def folds_of(geometry: ConvGeometry, mode: Mode) -> list[tuple[int, ...]]:
    """Return how many outputs along z, y and x may be rows of one column: what suits first.

    The others are worth a comparison: several along y or z as well, if a block has the rows of all,
    and other numbers along x. Phases lie between each other, and stay so along x, or none do. Axes
    without taps may have been joined, and what suits first does not depend on that.
    """
    g = geometry
    taps, strides, dilations = _three(g)
    own = [n if g.transposed and n <= _MOST_PHASES else 1 for n in strides]

    def cost(count: int) -> float:
        """Cycles of an output along x, in all rows: of products, and to store it."""
        folded = _axis_folded(g, 2, count)
        if folded is None or folded[0].kernel < 1:
            return math.inf
        rows = _matrix_rows(g.rows, count)
        length = folded[0].kernel / folded[0].phases
        products = _slab_rows(rows) * length / count * terms * mode.products / mode.rate
        scattered = folded[0].phases > 1
        return products + g.rows * (_SCATTERED if scattered else mode.itemsize / SECTOR)

    outer = math.prod(axis.kernel / axis.phases for axis in g.axes[:-1])
    terms = _whole(g.channels, mode.block) * outer
    first = min(sorted({1, 2, 4, own[2]}), key=cost)
    found: list[tuple[int, ...]] = [(1, 1, first)]
    if first == 1 < taps[2].phases or all(axis.kernel == axis.phases == 1 for axis in taps):
        return found
    z, y = ({1, n} if d % n else {1} for n, d in zip(own[:2], dilations[:2], strict=True))
    phased = any(axis.phases > 1 for axis in taps)
    x = {n for n in (own[2], 2 * own[2]) if n <= _MOST_PHASES}
    if not phased:
        x = {1, 2, 4}
        if g.rank > 1 and strides[1] == dilations[1] == 1:
            y = {1, 2}
    for counts in itertools.product(sorted(z), sorted(y), sorted(x)):
        folds = math.prod(counts)
        rows = _slab_rows(_matrix_rows(g.rows, folds))
        fewer = rows <= 2 * SLAB_ROWS and (phased or rows < folds * _slab_rows(g.rows))
        possible = all(_axis_folded(g, *axis) for axis in enumerate(counts))
        if (fewer or folds == 1) and possible and counts not in found:
            found.append(counts)
    return found


def _axis_folded(geometry: ConvGeometry, axis: int, count: int) -> tuple[AxisTaps, Fold] | None:
    """Return z, y or x of which `count` neighbouring outputs are one, None where they cannot be."""
    taps, strides, dilations = _three(geometry)
    return _folded(taps[axis], geometry.transposed, strides[axis], dilations[axis], count)


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
    """Return how sums are computed, of rank 1 to 3, by blocks with `shared` bytes.

    So many outputs along z, y and x are `folds` of one. Where outputs are pooled, there is one
    phase, and so many rows are `stacked`, of at least one.
    """
    g = geometry
    taps, _, _ = _three(g)
    own = [_axis_folded(g, *axis) for axis in enumerate(folds)]
    fold = tuple(found[1] for found in own if found)
    z, y, x = (_axis(found[0], a == 2) for a, found in enumerate(own) if found)
    if stacked:
        y, x = _pooled_axis(taps[1], stacked, last=False), _pooled_axis(taps[2], 1, last=True)
    axes = (z, y, x)
    # Of few channels a step takes two taps of x, which lie as far apart everywhere.
    halves = 1 if 2 * g.channels <= mode.block and x.most_taps > x.apart else 2
    if halves == 1:
        rest = x.most_taps % (2 * x.apart)
        absent = x.apart + min(rest, x.apart) - rest if rest else 0
        axes = (*axes[:2], replace(x, read_taps=x.most_taps + absent))
    inside = _steps_inside(axes, halves)
    blocks = -(-g.channels // mode.block)
    lattices = axes[1].lattices * axes[2].lattices
    # A stage has some steps, or products wait often; but more stages hide more of a load's latency.
    # Chains of products end with their stage: where there is room, stages are longer for them.
    room = inside > 6 and lattices == 1 and shared >= _ROOM
    longest = 18 if mode.parts == 2 and room else 6
    # Two of them must fit shared memory.
    deepest = 2 if mode.parts == 2 and shared < _ROOM else 4
    depth = max(1, min(blocks, deepest, longest // max(1, inside * lattices)))
    # Groups of even lengths.
    steps = max(1, depth * inside)
    group = _evenly(steps, mode.group)
    return Sum(taps, axes, fold, mode, g.channels, g.rows, blocks, depth, group, halves)


def of_one_tap(geometry: ConvGeometry, mode: Mode, blocks: int) -> Sum:
    """Return a sum over channels alone, in so many K blocks, of which the last may be empty."""
    g = geometry
    taps, _, _ = _three(g)
    axes = tuple(_axis(axis, last=False) for axis in taps)
    return Sum(taps, axes, (Fold(1, 1),) * 3, mode, g.channels, g.rows, blocks, 1, 1, 2)


def spanned(sum: Sum, spans: int) -> Sum:
    """Return the sum as that of so many spans; these must divide its K blocks."""
    blocks = sum.blocks // spans
    depth = min(sum.depth, blocks)
    group = _evenly(max(1, depth * sum.steps_inside), sum.mode.group)
    return replace(sum, spans=spans, blocks=blocks, depth=depth, group=group)


def one_by_one(sum: Sum) -> Sum | None:
    """Return the sum whose inputs are staged one by one, None where pairs take no room.

    Its order is the same. With an odd number of lattices, places of pairs are in shared memory.
    """
    z, y, x = sum.axes
    if not x.in_odd_lattices:
        return None
    return replace(sum, axes=(z, y, replace(x, pairs=False, skew=0)))


@dataclass(frozen=True)
class Tiling:
    """How outputs are divided into tiles, and what a block holds in shared memory.

    ``tile`` and ``tiles`` run along samples, z, y and x, in positions of which each stands for so
    many `stacked` outputs along y; pitches and slots are those of matrix_conv.cu.
    """

    shape: Shape
    tile: tuple[int, ...]
    tiles: tuple[int, ...]
    row_tiles: int
    plane_pitch: int
    row_pitch: int
    segment_pitch: int
    slots: int
    lattice_slots: int
    extent: tuple[int, ...]
    reach: tuple[int, ...]
    stages: int
    weight_stages: int
    chunk: int  # K blocks of which rounds of staging are made up
    deep: int  # K blocks that a staging thread takes of the same slots, one after the other
    group: int  # steps of a stage of weights
    resident: bool  # whether weights are brought once for all tiles of a block
    shared: int
    stacked: int
    stores_most: bool  # whether to store a tile takes about as long as its products
    spans: int  # of a sum
    apart: bool  # whether they are those of blocks beside each other, not of one in turn
    cycles: float  # of the model

    @property
    def count(self) -> int:
        """Tiles of a phase and a group of channels."""
        return self.row_tiles * math.prod(self.tiles)

    def __str__(self) -> str:
        samples, z, y, x = self.tile
        box = " x ".join(map(str, (samples, z, y * self.stacked, x)))
        order = "apart" if self.apart else "in turn"
        return (
            f"tiles of {self.shape.rows} rows x ({box}) outputs in {self.shape.columns} columns, "
            f"{self.slots} slots, {self.stages} + {self.weight_stages} stages"
            f"{', weights stay' if self.resident else ''}"
            f"{f', {self.spans} spans {order}' if self.spans > 1 else ''}"
        )


# Stages of inputs and of weights, the best first; where weights stay, where groups are long, else.
_RESIDENT = (6, 5, 4, 3)
_LONG_RINGS = ((6, 4), (5, 4), (6, 3), (5, 3), (6, 2), (5, 2))
_STACKED_RINGS = ((6, 4), (5, 4), (6, 3), (5, 3), (4, 3), (3, 3))  # a team is behind by a group
_RINGS = (
    *((6, 4), (5, 4), (4, 4), (6, 3), (5, 3), (4, 3)),
    *((3, 4), (3, 3), (2, 4), (2, 3), (4, 2), (3, 2), (2, 2)),
)
_MOST_SAMPLES = 32  # of a tile
_CHUNK = 64  # K blocks of which rounds are made up: few of them are not full
# What a block takes beside its products, in cycles: to describe and store a tile.
_TILE_CYCLES = 1500
# How much of the lesser of products and staging is not hidden behind the greater.
_IN_THE_WAY = 0.15
_ONE_TEAM = 1.06  # how much longer tiles of one team take
_SHORT_TURNS = 1.4  # and products of two teams that have one instruction in a step
_STAGED_A_CYCLE = 4 / 7  # values that a staging warp brings in a cycle, as pairs
_SINGLE = 1.5  # how much longer others take
_SECTOR_CYCLES = 1.6  # in which a multiprocessor stores a sector, about its share of memory's rate
_POOLED_A_CYCLE = 6  # sums that a block pools
_BROUGHT_A_CYCLE = 2800  # bytes that all multiprocessors bring from the L2 cache together
_PASSED_A_CYCLE = 64  # bytes of sums of spans that one writes to it or reads


def tiling(
    sum: Sum,
    batch: int,
    groups: int,
    engine: str,
    shared: int,
    multiprocessors: int,
    window: int = 1,
) -> Tiling | None:
    """Return the tiling that takes the fewest cycles; None where nothing fits `shared` bytes.

    With a `window` of 2, outputs are pooled two by two along y and x, and no window lies in two
    tiles.
    """
    if sum.spans > 1:
        found_shapes = span_shapes(sum.mode)
    else:
        found_shapes = (shapes if window == 1 else pool_shapes)(sum.mode, engine)
    # Tiles of a single sample where no others fit: whether one fits does not depend on the batch.
    for samples in (min(batch, _MOST_SAMPLES), 1):
        best = None
        for shape in found_shapes:
            most = best.cycles if best else math.inf
            for found in _candidates(
                sum, shape, batch, samples, groups, engine, shared, multiprocessors, window, most
            ):
                if best is None or (found.cycles, -found.tile[3]) < (best.cycles, -best.tile[3]):
                    best = found
        if best:
            return best
    return None


@lru_cache(maxsize=256)
def _boxes(sum: Sum, shape: Shape, window: int) -> tuple[tuple[int, int, int, int, bool], ...]:
    """Return candidates: most samples, outputs along z, y and x, and whether a row is a segment."""
    found = []
    z, y, x = (axis.taps.positions(0) for axis in sum.axes)
    columns = shape.columns // sum.stacked
    # Tiles begin with a window, and where inputs that are spread begin anew.
    window = math.lcm(window, sum.axes[1].spread, sum.stacked) // sum.stacked
    unit = math.lcm(sum.unit, sum.axes[2].spread)
    widths = set()
    for widest in (*range(8, columns + 1, 8), columns):
        width = _evenly(x, widest)
        widths.add(_whole(width, unit) if width < x else width)
    for width in sorted(widths, reverse=True):
        rows = columns // shape.segment
        if width <= shape.segment and (rows >= y or rows % window == 0):
            found.append((1, 1, min(y, rows), width, True))
        pitch = _row_pitch(sum, width)
        height = min(y, (columns - width) // pitch + 1)
        if height < y:
            height -= height % window
            if height == 0:
                continue
            height = min(y, _whole(_evenly(y, height), window))
        planes = 1
        if height == y:
            plane = pitch * (y + sum.axes[1].halo)
            planes = (columns - (y - 1) * pitch - width) // plane + 1
        depth = min(z, planes, 32)
        depth = _evenly(z, depth)
        samples = planes // depth if depth == z else 1
        found.append((samples, depth, height, width, False))
    return tuple(found)


def _groups_of_sum(sum: Sum, group: int) -> int:
    """Return how many groups of so many steps a whole sum has, as the kernel walks through it.

    A group ends with its stage, and the last stage of a tap of z may have fewer K blocks.
    """
    whole, rest = divmod(sum.blocks, sum.depth)
    inside = sum.steps_inside
    groups = whole * -(-sum.depth * inside // group) + -(-rest * inside // group)
    return sum.axes[0].most_taps * groups


def _rings(sum: Sum, slabs: int, inside: int, staying: bool) -> Iterator[tuple[int, int, int]]:
    """Yield the length of a group, and stages of inputs and of weights, the best first.

    A stage has so many steps `inside`, and the weights of a sum may be `staying` in their ring.
    Without chains, how steps are grouped changes no sum: as two teams take turns group by group,
    few long ones are better, if there is room for many stages of inputs beside two slabs of them.
    """
    most = sum.mode.group
    groups = [sum.group]
    if sum.mode.parts == 1 and slabs == 2:
        groups = [_evenly(inside, length) for length in (most // 2, most)]
    short, long = groups[0], groups[-1]
    count = _groups_of_sum(sum, short) if staying else 0
    if 0 < count <= MAX_STAGES:
        yield from ((short, stages, count) for stages in _RESIDENT)
    if long > short:
        rings = _STACKED_RINGS if sum.stacked > 1 else _LONG_RINGS
        yield from ((long, *ring) for ring in rings)
    yield from ((short, *ring) for ring in _RINGS)


def _row_pitch(sum: Sum, width: int) -> int:
    """Return the slots of a row.

    Where a tile has whole rows, what is absent behind a row and in front of the next one is shared.
    """
    axis = sum.axes[2]
    pitch = width + axis.halo
    if width >= axis.taps.positions(0) and axis.taps.step == axis.taps.phases == 1:
        pitch = max(width, pitch - axis.absent, axis.absent + axis.taps.size_in)
    return _whole(pitch, sum.unit)


def _candidates(
    sum: Sum,
    shape: Shape,
    batch: int,
    samples: int,
    groups: int,
    engine: str,
    shared: int,
    multiprocessors: int,
    window: int,
    most: float,
) -> Iterator[Tiling]:
    """Yield tilings; not all of those that take more cycles than others, or than `most`."""
    mode = sum.mode
    sizes = (batch, *(axis.taps.positions(0) for axis in sum.axes))
    row_tiles = -(-sum.matrix_rows // shape.rows)
    z_taps = sum.axes[0].most_taps
    lattices = sum.axes[1].lattices * sum.axes[2].lattices
    inside = max(1, sum.depth * sum.steps_inside)
    if inside > MAX_STEPS:
        return
    static = _static(shape, mode, engine, window)
    # Where there is but one tile of rows, of whole sums, and room, its weights stay.
    one_row_tile = row_tiles * groups * sum.phases * sum.spans == 1
    products = sum.mean_steps * shape.rows * shape.columns * mode.block * mode.products / mode.rate
    # An instruction takes some time anyway, and so does a turn.
    short = engine == "hopper" and shape.teams == 2 and shape.segments * mode.products == 1
    products *= max(_SHORT_TURNS if short else 1.1, 128 / shape.segment)
    # The cycles are Hopper's. Portable products take longer, so that there few staging warps
    # show only where an input has a single tap.
    staging = engine if sum.steps_inside <= lattices else "hopper"
    stagers = 4 * shape.staging_teams(mode, staging, window) - 1
    loads = shape.loads(mode, engine)
    for most_samples, *inner, by_rows in _boxes(sum, shape, window):
        tile = (min(samples, most_samples), *inner)
        tiles = tuple(-(-size // extent) for size, extent in zip(sizes, tile, strict=True))
        count = row_tiles * math.prod(tiles) * groups * sum.phases
        row_pitch = tile[3] + sum.axes[2].halo if by_rows else _row_pitch(sum, tile[3])
        if by_rows:
            row_pitch = max(_whole(row_pitch, sum.unit), shape.segment)
        x_extent = tile[3] + sum.axes[2].halo
        if sum.axes[2].pairs:
            x_extent += x_extent % 2
        extent = (tile[2] + sum.axes[1].halo, min(row_pitch, x_extent))
        present = tile[0] * tile[1] * math.prod(extent) * lattices  # slots with an input
        staged = sum.blocks * mode.block * sum.halves / 2 * present * z_taps
        staged /= _STAGED_A_CYCLE * stagers
        staged *= (1 if sum.axes[2].pairs else _SINGLE) * (1 + 12 / tile[3])
        along_x = sum.fold[2].count
        lines = sum.matrix_rows / row_tiles / along_x * math.prod(tile[:3])
        sectors = lines * (tile[3] * along_x * mode.itemsize / SECTOR + 1.5)  # full or not
        stores = sectors * _SECTOR_CYCLES
        if window > 1:
            stores = shape.rows * shape.columns / _POOLED_A_CYCLE
        work = sum, shape, count, multiprocessors, products, staged, stores
        if _least_cycles(work) > most:
            continue
        plane_pitch = row_pitch * (tile[2] + sum.axes[1].halo)
        segment_pitch = row_pitch if by_rows else shape.segment
        segments = shape.columns // shape.segment // sum.stacked
        last_segment = (segments - 1) * segment_pitch
        reach = sum.axes[1].halo * row_pitch + sum.axes[2].halo
        reaches = (
            tile[0] - 1,
            (tile[1] - 1) * sum.axes[0].taps.step,
            *(
                (n - 1) * axis.taps.step + (axis.lattices - 1) * axis.spacing
                for n, axis in zip(extent, sum.axes[1:], strict=True)
            ),
        )
        if any(r >= limit for r, limit in zip(reaches, (32, 32, 1024, 4096), strict=True)):
            continue
        # What all columns read of a lattice, and what those of the tile do. Columns that are not
        # the tile's may read the next lattice.
        read = last_segment + shape.segment + reach
        used = (tile[0] * tile[1] - 1) * plane_pitch + (extent[0] - 1) * row_pitch + x_extent
        # Stagers take 32 slots at a time, or 32 pairs: the odd ones of an even number of lattices
        # begin at half of all slots.
        if sum.axes[2].pairs and sum.axes[2].lattices % 2 == 0:
            lattice_slots = _whole(read, 32)
            slots = _whole(lattices * lattice_slots, 64)
        else:
            lattice_slots = _whole(min(used, read), 2)
            slots = _whole((lattices - 1) * lattice_slots + read, 64)
        input_stage = sum.depth * slots * mode.parts * sum.halves * SLOT
        fixed = static + slots * 12 + 4 * sum.stacked * (sum.depth * sum.steps_inside + _AHEAD)
        if sum.axes[2].in_odd_lattices:
            fixed += slots * 4  # where pairs of inputs are staged
        for group, stages, weight_stages in _rings(sum, shape.slabs, inside, one_row_tile):
            weights = weight_stages * group * shape.slabs * mode.slab_bytes
            shared_bytes = fixed + stages * input_stage + weights
            if shared_bytes <= shared:
                break
        else:
            continue
        if max(slots, plane_pitch) >= 2**16:
            continue
        resident = one_row_tile and weight_stages == _groups_of_sum(sum, group)
        deep = _deep(sum, loads, stages)
        chunk = math.lcm(sum.depth, deep)
        brought = 0 if resident else sum.mean_steps * shape.slabs * mode.slab_bytes
        cycles, apart = _cycles(*work, brought)
        most = min(most, cycles)
        yield Tiling(
            shape=shape,
            tile=tile,
            tiles=tiles,
            row_tiles=row_tiles,
            plane_pitch=plane_pitch,
            row_pitch=row_pitch,
            segment_pitch=segment_pitch,
            slots=slots,
            lattice_slots=lattice_slots,
            extent=extent,
            reach=reaches,
            stages=stages,
            weight_stages=weight_stages,
            chunk=_whole(min(sum.blocks, _CHUNK), chunk),
            deep=deep,
            resident=resident,
            group=group,
            shared=shared_bytes,
            stacked=sum.stacked,
            stores_most=window == 1 and stores > 1.3 * products,
            spans=sum.spans,
            apart=apart,
            cycles=cycles,
        )


# What the time of tiles depends on but for their weights: the first arguments of `_cycles`.
_Work: TypeAlias = tuple[Sum, Shape, int, int, float, float, float]


def _least_cycles(work: _Work) -> float:
    """Return no more cycles than the tiles take: those in which no weights are brought.

    Most boxes take more than another tiling, and need no look at what has room.
    """
    return _cycles(*work, 0)[0]


def _cycles(
    sum: Sum,
    shape: Shape,
    tiles: int,
    multiprocessors: int,
    products: float,
    staged: float,
    stores: float,
    weights: float,
) -> tuple[float, bool]:
    """Return the cycles of so many tiles, and whether their spans are computed apart for that.

    Products, staging and bytes of weights are those of a span.
    """
    hidden = max(products, staged) + _IN_THE_WAY * min(products, staged)

    def own(blocks: int) -> float:
        """Return the cycles of a tile or a span, where so many of them bring weights at a time."""
        brought = min(blocks, multiprocessors) * weights / _BROUGHT_A_CYCLE
        return max(hidden, brought) + _TILE_CYCLES

    slower = _ONE_TEAM if shape.teams == 1 else 1
    waves = -(-tiles // multiprocessors)
    if sum.spans == 1:
        return waves * (own(tiles) + stores) * slower, False

    def passed(blocks: int) -> float:
        """Return the cycles that so many blocks take to write their sums, or to read them."""
        together = min(blocks, multiprocessors) / _BROUGHT_A_CYCLE
        return shape.partial_bytes * max(1 / _PASSED_A_CYCLE, together)

    # A span's sums are written, and read by whom they are added up by.
    spans, all = sum.spans, tiles * sum.spans
    apart = -(-all // multiprocessors) * (own(all) + passed(all))
    apart += waves * (spans * passed(tiles) + stores)
    kept = 0 if sum.mode.keeps_spans else 2 * passed(tiles)
    together = waves * (spans * (own(tiles) + kept) + stores)
    if apart < together and all * shape.partial_bytes <= MOST_PARTIAL:
        return apart * slower, True
    return together * slower, False


def _deep(sum: Sum, loads: int, stages: int) -> int:
    """Return of how many K blocks a staging thread has the same slots in turn.

    It computes their addresses once. Half of the ring is staged while the other half is read.
    """
    pixels = 2 if sum.axes[2].pairs else 1
    words = -(-pixels * sum.mode.itemsize // 4)  # of a load
    most = loads // (sum.mode.block * words)
    return max(1, min(most, sum.blocks, stages * sum.depth // 2))


def _static(shape: Shape, mode: Mode, engine: str, window: int) -> int:
    """Return the bytes of ``Shared`` in matrix_conv.cu."""
    tiles = min(32 // mode.itemsize, shape.team_columns // (8 if engine == "hopper" else 32))
    team_rows = -(-shape.slabs // shape.teams) * SLAB_ROWS
    columns = _whole(shape.team_columns, tiles * 8)  # whole buffers
    own = 4 * MAX_STAGES * 8 + 88 + 24 + shape.teams * (columns * 20 + team_rows * 4)
    if mode.scaled:
        own += MAX_STAGES * 16 + shape.teams * (team_rows * 8 + columns * 8) + 34 * 4
    if window == 1:
        own += shape.teams * 4 * 16 * (4 * tiles + 4) * 2 * mode.itemsize
        own += shape.teams * team_rows // 16 * 32
    else:
        # A warp has 8 rows and all columns, or the four of a team share them.
        pass_rows, sharing = (32, 1) if engine == "hopper" else (8, 4)
        if stacked(mode, engine) > 1:
            pass_rows = 1
        own += 2 * shape.teams * columns * 4
        buffers = min(shape.teams, shape.slabs)
        own += buffers * pass_rows * (shape.columns + 8) * 4 + shape.columns // 4 * 16 + 16
        own += shape.teams * team_rows * (24 * sharing + 4)
    return _whole(own, 128)
