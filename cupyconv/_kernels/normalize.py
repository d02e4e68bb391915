"""Batch norm and group norm: sets of values are brought to mean 0 and variance 1.

A group norm whose groups fit in shared memory takes one launch, which reads the input once. In all
other norms (batch norms and norms with tanh among them) sets are cut into segments, whose
statistics one launch computes and another one combines, and the input is read twice. Where the
caller gives mean and variance, it is read once. The order of a sum follows from the size of a set.

Where channels lie innermost in memory, other kernels move packs of channels. The bits are the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._arrays import Array
from .._geometry import NormGeometry
from .._packing import lie_together, strides_of
from .launches import (
    ELEMENTS,
    FLOATS,
    INT32_LIMIT,
    MAX_GRID,
    SECTOR,
    WARP,
    Instance,
    Launch,
    Processor,
)
from .members import CALL, PARAMETER, Members, Template, float64_word, parameter_words
from .views import (
    LINE,
    PACK,
    THREADS,
    UNROLL,
    Axis,
    Placed,
    axes_in_memory_order,
    c_strides,
    channels_together,
    merged_axes,
    placed,
    walk_across,
    walk_in_order,
    walk_in_runs,
)

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("normalize.cu",)

# A norm keeps its input's dtype; the fused operation rounds from float32 only at its end.
_ROUNDED = (("float32", "float16"), ("float32", "bfloat16"))
_DTYPES = (*((name, name) for name in FLOATS), *_ROUNDED)
# Kernels that read or write no values of the arrays, and kernels that read them but write none.
_OF_STATISTICS = ("combine", "given")
_OF_INPUTS = ("statistics", "statistics_across")

MOST_THREADS = 384  # of a block of `normalize_sets`
MOST_CHANNELS = 4  # of a step of `normalize_bundles`
WARPS = THREADS // WARP  # of a block of `statistics`, each with a segment
PARAMETERS = 16  # bytes of each channel, and of each set, in a block of `normalize_sets`
SHARED_ASIDE = 2048  # bytes of shared memory beside the parameters and values of such a block
_MANY_RESIDENT = 3  # blocks of `normalize_sets` that fill a multiprocessor with fewer threads
_BLOCKS = 12  # of `normalize` for each multiprocessor, which holds 3 of them at a time
_RESIDENT_ACROSS = 2  # blocks of `normalize_across` for each multiprocessor at a time
# Rounds for which a thread of `normalize_across` keeps its parameters: for 16-bit floats it loads
# 256 bytes of them and moves 2048 bytes of channels.
_MOST_ROUNDS = 16
_MIN_SEGMENT = 2048
_MAX_SEGMENTS = 8192


class Across(NamedTuple):
    """Whether channels lie innermost, so that packs of channels move."""

    statistics: bool  # in the input, whose lines are channels
    normalize: bool  # in the input or in the result
    bundle: (
        int  # neighbouring sets whose channels fill a sector in the input or in the result, or 0
    )


@dataclass(frozen=True)
class NormPlan:
    """How a norm runs.

    Attributes
    ----------
    statistics : tuple of Launch
        The kernels that compute the statistics of the sets: two, one where the statistics are
        given, none where `normalize` computes them itself.
    normalize : Launch
        The kernel that normalises.
    pack : int
        Values that a thread sums at a time.
    segment, segments : int
        Elements of a segment of a line, and their number; 0 where there are none.
    rounds : int
        Most rounds of a thread of `normalize_across`; 0 if another kernel normalises.
    bundle : int
        Sets of a block where it has whole sets, else 0.
    """

    statistics: tuple[Launch, ...]
    normalize: Launch
    pack: int
    segment: int = 0
    segments: int = 0
    rounds: int = 0
    bundle: int = 0

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return (*self.statistics, self.normalize)

    @property
    def reads(self) -> int:
        """How often the input is read."""
        return 2 if self.segments else 1

    def __str__(self) -> str:
        return "; ".join(map(str, self.launches))


def _instance(function: str, input_dtype: str, output_dtype: str) -> Instance:
    """Return a kernel, the same for all dtypes that make no difference to it."""
    if function in _OF_STATISTICS:
        input_dtype = "float32"
    if function in _OF_STATISTICS + _OF_INPUTS:
        output_dtype = input_dtype
    return Instance(
        "normalize.cu",
        function,
        (
            ("INPUT", ELEMENTS[input_dtype]),
            ("OUTPUT", ELEMENTS[output_dtype]),
            (function.upper(), "1"),
        ),
    )


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for; they are the same on each target."""
    functions = (*_OF_STATISTICS, *_OF_INPUTS, "normalize", "normalize_sets")
    for function, dtypes in itertools.product(functions, _DTYPES):
        yield _instance(function, *dtypes)
    for name in FLOATS:
        yield _instance("normalize_across", name, name)
        yield _instance("normalize_bundles", name, name)
    for name in ("float32", "float64"):
        yield _instance("normalize_tanh", name, name)


def _lines(geometry: NormGeometry) -> int:
    """Return the lines of a set: its channels if a warp has enough to do with one of a sample."""
    by_channel = geometry.sets_per_sample and math.prod(geometry.shape[2:]) >= _MIN_SEGMENT // 2
    return geometry.channels if by_channel else 1


@lru_cache(maxsize=4096)
def plan(
    geometry: NormGeometry,
    input_dtype: np.dtype,
    output_dtype: np.dtype,
    given: bool,
    tanh: bool,
    across: Across,
    processor: Processor,
) -> NormPlan:
    """Return how a norm runs; `given` means that the caller brings mean and variance.

    `tanh` follows if asked for.
    """
    pack, elements = PACK // input_dtype.itemsize, geometry.elements

    def launch(function: str, blocks: int, threads: int = THREADS, shared: int = 0) -> Launch:
        instance = _instance(function, input_dtype.name, output_dtype.name)
        return Launch(instance, max(1, min(blocks, MAX_GRID)), threads, shared)

    packs = -(-elements // pack)
    shared = packs * PACK + (geometry.channels + 1) * PARAMETERS
    resident = processor.shared // (shared + SHARED_ASIDE)
    if geometry.sets_per_sample and resident and not tanh:
        # As many threads as fill a multiprocessor, but for the smallest sets.
        threads = MOST_THREADS if resident < _MANY_RESIDENT else THREADS
        while threads > WARP and threads >= 2 * packs:
            threads //= 2
        if not across.bundle or input_dtype != output_dtype:
            normalize = launch("normalize_sets", geometry.sets, threads, shared)
            return NormPlan((), normalize, pack, bundle=1)
        # One block shall load while another one computes.
        fit = 2 * (across.bundle * shared + SHARED_ASIDE) <= processor.shared
        bundle = across.bundle if fit else 1
        blocks = geometry.sets // bundle
        normalize = launch("normalize_bundles", blocks, threads, bundle * shared)
        return NormPlan((), normalize, pack, bundle=bundle)

    rounds, size = 0, math.prod(geometry.shape)
    if across.normalize and not tanh and input_dtype == output_dtype:
        most = _RESIDENT_ACROSS * processor.multiprocessors
        blocks = -(-size // (THREADS * UNROLL * pack))
        waves = -(-blocks // (most * _MOST_ROUNDS))
        rounds = -(-blocks // (most * waves))
        normalize = launch("normalize_across", -(-blocks // rounds))
    else:
        blocks = -(-size // (THREADS * UNROLL))
        function = "normalize_tanh" if tanh else "normalize"
        normalize = launch(function, min(blocks, _BLOCKS * processor.multiprocessors))
    if given:
        statistics = launch("given", -(-geometry.sets // THREADS))
        return NormPlan((statistics,), normalize, pack, rounds=rounds)
    lines = _lines(geometry)
    line, unit = elements // lines, WARP * UNROLL * pack
    segment = max(_MIN_SEGMENT, -(-line // (_MAX_SEGMENTS * unit)) * unit)
    segments = max(1, -(-line // segment))
    function, width = ("statistics_across", pack) if across.statistics else ("statistics", 1)
    partial = launch(function, -(-geometry.sets * lines // width * segments // WARPS))
    combine = launch("combine", geometry.sets)
    return NormPlan((partial, combine), normalize, pack, segment, segments, rounds)


def lies_across(geometry: NormGeometry, data: Placed, out: Placed) -> Across:
    """Return where channels lie innermost."""
    channels, pack = geometry.shape[1], PACK // data.itemsize
    (*_, last) = _values(geometry, data.strides)
    # A thread of `statistics_across` loads places of the same distance.
    whole = last.size % pack == 0 or last.size == geometry.elements // _lines(geometry)
    by_channel = geometry.channels == _lines(geometry)
    widths = [channels_together(channels, array, pack) for array in (data, out)]
    return Across(
        statistics=whole and by_channel and widths[0] == pack,
        normalize=max(widths) > 1
        and channels < INT32_LIMIT
        and (widths[0] > 1 or data.strides[1] != 0),
        bundle=_bundle(geometry, data, out) if geometry.sets_per_sample else 0,
    )


def _bundle(geometry: NormGeometry, data: Placed, out: Placed) -> int:
    """Return how many neighbouring sets fill a sector, 0 if channels lie innermost nowhere."""
    sector, pack = SECTOR // data.itemsize, PACK // data.itemsize
    bundles = [n for n in range(1, sector + 1) if geometry.sets_per_sample % n == 0]
    if geometry.elements % pack:  # packs of the next set would not be aligned in shared memory
        bundles = [1]
    bundle = next((n for n in bundles if n * geometry.channels >= sector), bundles[-1])
    widths = [_channels_together(geometry, bundle, array) for array in (data, out)]
    return bundle if max(widths) > 1 else 0


def _channels_together(geometry: NormGeometry, bundle: int, array: Placed) -> int:
    """Return how many channels of a bundle of sets a thread of `normalize_bundles` moves."""
    most = min(MOST_CHANNELS, PACK // array.itemsize)
    return channels_together(bundle * geometry.channels, array, most)


# Arguments ------------------------------------------------------------------------------------


def run(
    plan: NormPlan,
    geometry: NormGeometry,
    data: Array,
    parameters: Sequence[Array | None],
    eps: float,
    out: Array,
    device: Device,
) -> None:
    """Launch the kernels of a plan; `parameters` are mean, variance, weight and bias."""
    sets, double = geometry.sets, np.dtype(np.float64)
    segments = _lines(geometry) * plan.segments
    source, result = device.address(data), device.address(out)
    alone = not plan.statistics
    shapes = () if alone else ((sets, 2), (geometry.shape[1], 2), (sets, segments, 2))
    workspaces = [device.workspace(shape, double) for shape in shapes]
    template = _template(
        geometry,
        plan,
        placed(source, strides_of(data), data.dtype.itemsize),
        placed(result, strides_of(out), out.dtype.itemsize),
    )
    arguments = template.fill(
        source,
        result,
        *(map(device.address, workspaces) if workspaces else (0, 0, 0)),
        *(word for array in parameters for word in parameter_words(array, device)),
        float64_word(eps),
    )
    for launch in plan.launches:
        device.launcher(launch)(arguments)


@lru_cache(maxsize=4096)
def _template(geometry: NormGeometry, plan: NormPlan, data: Placed, out: Placed) -> Template:
    """Return the arguments for all arrays of such layouts."""
    alone = not plan.statistics
    lines = 1 if alone else _lines(geometry)
    width = geometry.channels // lines  # channels of a line
    per_sample = geometry.sets_per_sample * lines
    members: Members = {
        "input": CALL,
        "out": CALL,
        "moments": CALL,
        "affine": CALL,
        "partials": CALL,
        "mean": PARAMETER,
        "var": PARAMETER,
        "weight": PARAMETER,
        "bias": PARAMETER,
        "eps": CALL,
        "segment": plan.segment,
        "segments": plan.segments,
        "channels": geometry.shape[1],
        "sets": geometry.sets,
        "set_channels": geometry.channels,
        "set_lines": lines,
        "elements": geometry.elements,
        "line": geometry.elements // lines,
        "lines_per_sample": per_sample or geometry.sets,
        "sample_strides": [array.strides[0] if per_sample else 0 for array in (data, out)],
        "line_strides": [array.strides[1] * width for array in (data, out)],
        "bundle": plan.bundle,
        **(_alone if alone else _walks)(geometry, plan, data, out),
    }
    return Template(SOURCES[0], members)


def _values(geometry: NormGeometry, strides: Sequence[int]) -> tuple[Axis, ...]:
    """Return the axes of the values of a line: strides in the input, and of a value's number."""
    samples, _, *space = geometry.shape
    outer, step = samples, strides[0]  # a line of a batch norm extends over the samples
    if geometry.sets_per_sample:
        outer, step = geometry.channels // _lines(geometry), strides[1]
    shape = (outer, *space)
    return merged_axes(shape, (step, *strides[2:]), c_strides(shape))


def _walks(geometry: NormGeometry, plan: NormPlan, data: Placed, out: Placed) -> Members:
    """Return the last members of ``struct Arguments`` where blocks share all sets."""
    values = _values(geometry, data.strides)
    starts = data.past, data.strides[0], data.strides[1] * (geometry.channels // _lines(geometry))
    width = _width(plan.pack, values, [starts if geometry.sets_per_sample else starts[::2]])
    walk = _places_across if plan.rounds else _places
    places, rounds, gaps = walk(geometry, plan, data, out)
    return {
        "in_order": 0,
        "values": walk_in_order(values, width),
        "places": places,
        "rounds": rounds,
        "value_gap": 0,
        "place_gaps": gaps,
    }


def _places(
    geometry: NormGeometry, plan: NormPlan, data: Placed, out: Placed
) -> tuple[Members, int, tuple[int, int]]:
    """Return the walk of `normalize` along the results, its rounds and the gaps of its steps."""
    samples, channels, *space = geometry.shape
    none = (0,) * len(space)
    places = axes_in_memory_order(
        1,
        # The channel axis is divided into groups, so that the set has a stride along each axis.
        (samples, channels // geometry.channels, geometry.channels, *space),
        *(
            (strides[0], strides[1] * geometry.channels, *strides[1:])
            for strides in (data.strides, out.strides)
        ),
        (0, geometry.channels, 1, *none),
        (geometry.sets_per_sample, 1, 0, *none),
    )
    width = _width_of_places(plan.pack, places, [(data.past,), (out.past,)])
    return walk_in_runs(places, width, LINE // data.itemsize, still=2), 1, (0, 0)


def _places_across(
    geometry: NormGeometry, plan: NormPlan, data: Placed, out: Placed
) -> tuple[Members, int, tuple[int, int]]:
    """Return the walk of `normalize_across`, its rounds and the gaps of its steps."""
    samples, channels, *space = geometry.shape
    none = (0,) * len(space)
    widths = [channels_together(channels, array, plan.pack) for array in (data, out)]
    together = min(widths) > 1
    places = axes_in_memory_order(
        1 if together else widths.index(1),
        (samples, *space),
        *((array.strides[0], *array.strides[2:]) for array in (data, out)),
        (0, *none),
        (geometry.sets_per_sample, *none),
    )
    places = (Axis(1, (0,) * 4), *places)  # along which the set is the same
    still = [i for i, axis in enumerate(places) if axis.strides[3] == 0]
    walk, rounds = walk_across(
        places,
        max(still, key=lambda i: places[i].size) if together else still[-1],
        Axis(channels, (data.strides[1], out.strides[1], 1, 0)),
        min(widths) if together else max(widths),
        channels if together else SECTOR // data.itemsize,
        plan.rounds,
    )
    gaps = [
        0 if width > 1 else array.strides[1]
        for width, array in zip(widths, (data, out), strict=True)
    ]
    return walk, rounds, (gaps[0], gaps[1])


def _alone(geometry: NormGeometry, plan: NormPlan, data: Placed, out: Placed) -> Members:
    """Return the last members of ``struct Arguments`` where a block has sets in shared memory."""
    channels = plan.bundle * geometry.channels
    shape: tuple[int, ...] = (channels, *geometry.shape[2:])
    space, numbers, line = shape[1:], c_strides(shape), LINE // data.itemsize
    none = (0,) * len(space)
    starts = [(array.past, array.strides[0], array.strides[1] * channels) for array in (data, out)]
    loaded, stored = 1, 1
    if plan.normalize.instance.function == "normalize_bundles":
        loaded, stored = (_channels_together(geometry, plan.bundle, a) for a in (data, out))
    in_order = False
    if loaded > 1:
        values = axes_in_memory_order(0, space, data.strides[2:], numbers[1:])
        channel = Axis(channels, (1, numbers[0]))
        load, _ = walk_across(values, len(values) - 1, channel, loaded, SECTOR // data.itemsize)
    else:
        values = axes_in_memory_order(0, shape, data.strides[1:], numbers)
        width = _width(plan.pack, values, [starts[0], (0,)])
        load = walk_in_runs(values, width, line // width)
        in_order = width == plan.pack and [axis.strides for axis in values] == [(1, 1)]
    if stored > 1:
        places = axes_in_memory_order(1, space, numbers[1:], out.strides[2:], none, none)
        channel = Axis(channels, (numbers[0], 1, 1, 0))
        store, _ = walk_across(places, len(places) - 1, channel, stored, SECTOR // data.itemsize)
    else:
        places = axes_in_memory_order(1, shape, numbers, out.strides[1:], (1, *none), (0, *none))
        width = _width_of_places(plan.pack, places, [(0,), starts[1]])
        store = walk_in_runs(places, width, line // width, still=2)
    return {
        "in_order": in_order,
        "values": load,
        "places": store,
        "rounds": 1,
        "value_gap": numbers[0] if loaded > 1 else 0,
        "place_gaps": (numbers[0] if stored > 1 else 0, 0),
    }


def _width_of_places(pack: int, axes: Sequence[Axis], starts: Sequence[Sequence[int]]) -> int:
    """Return how many neighbours of one channel and set one instruction moves."""
    return 1 if any(axes[-1].strides[2:]) else _width(pack, axes, starts)


def _width(pack: int, axes: Sequence[Axis], starts: Sequence[Sequence[int]]) -> int:
    """Return how many neighbours one instruction moves: a pack, half of one, or 1.

    The neighbours are contiguous and aligned in each of the first arrays. For each of these,
    `starts` has the elements from an aligned address to the first element, and between sets.
    """
    widths = [
        lie_together(pack, [*offsets, *(axis.strides[array] for axis in axes)], axes[-1].size)
        for array, offsets in enumerate(starts)
    ]
    return width if (width := min(widths)) in (pack, pack // 2) else 1
