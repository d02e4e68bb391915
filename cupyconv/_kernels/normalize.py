"""Batch norm and group norm: sets of values are brought to mean 0 and variance 1.

A group norm whose groups fit in shared memory takes one launch, which reads the input once. In all
other norms (batch norms and norms with tanh among them) sets are cut into segments, whose
statistics one launch computes and another one combines, and the input is read twice. Where the
caller gives mean and variance, it is read once. The order of a sum follows from the size of a set.
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
from .launches import ELEMENTS, FLOATS, MAX_GRID, WARP, Instance, Launch, Processor
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
    merged_axes,
    placed,
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
MOST_CHANNELS = 4  # of a step
PARAMETERS = 16  # bytes of each channel of a set in a block of `normalize_sets`
SHARED_ASIDE = 2048  # bytes of shared memory beside the parameters and values of such a block
_MANY_RESIDENT = 3  # blocks of `normalize_sets` that fill a multiprocessor with fewer threads
_BLOCKS = 12  # of `normalize` for each multiprocessor, which holds 3 of them at a time
_MIN_SEGMENT = 16384
_MAX_SEGMENTS = 1024


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
        Elements of a segment of a set, and their number; 0 where there are none.
    """

    statistics: tuple[Launch, ...]
    normalize: Launch
    pack: int
    segment: int = 0
    segments: int = 0

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
    for name in ("float32", "float64"):
        yield _instance("normalize_tanh", name, name)


@lru_cache(maxsize=4096)
def plan(
    geometry: NormGeometry,
    input_dtype: np.dtype,
    output_dtype: np.dtype,
    given: bool,
    tanh: bool,
    across: bool,
    processor: Processor,
) -> NormPlan:
    """Return how a norm runs; `given` means that the caller brings mean and variance.

    `tanh` follows if asked for. `across` says that each channel is a set and that channels lie in
    packs (see `lies_across`): then the statistics of the channels of a pack are computed together.
    """
    pack, elements = PACK // input_dtype.itemsize, geometry.elements

    def launch(function: str, blocks: int, threads: int = THREADS, shared: int = 0) -> Launch:
        instance = _instance(function, input_dtype.name, output_dtype.name)
        return Launch(instance, max(1, min(blocks, MAX_GRID)), threads, shared)

    packs = -(-elements // pack)
    shared = packs * PACK + geometry.channels * PARAMETERS
    resident = processor.shared // (shared + SHARED_ASIDE)
    if geometry.sets_per_sample and resident and not tanh:
        # As many threads as fill a multiprocessor, but for the smallest sets.
        threads = MOST_THREADS if resident < _MANY_RESIDENT else THREADS
        while threads > WARP and threads >= 2 * packs:
            threads //= 2
        return NormPlan((), launch("normalize_sets", geometry.sets, threads, shared), pack)

    blocks = -(-math.prod(geometry.shape) // (THREADS * UNROLL))
    function = "normalize_tanh" if tanh else "normalize"
    normalize = launch(function, min(blocks, _BLOCKS * processor.multiprocessors))
    if given:
        return NormPlan((launch("given", -(-geometry.sets // THREADS)),), normalize, pack)
    unit = THREADS * UNROLL * pack
    segment = max(_MIN_SEGMENT, -(-elements // (_MAX_SEGMENTS * unit)) * unit)
    segments = max(1, -(-elements // segment))
    function, bundle = ("statistics_across", pack) if across else ("statistics", 1)
    partial = launch(function, geometry.sets // bundle * segments)
    combine = launch("combine", geometry.sets)
    return NormPlan((partial, combine), normalize, pack, segment, segments)


def lies_across(geometry: NormGeometry, data: Placed) -> bool:
    """Return whether a pack holds several channels of a batch norm, a set each."""
    (samples, channels, *space), (sample_step, step, *steps) = geometry.shape, data.strides
    pack = PACK // data.itemsize
    axes = zip((samples, channels, *space), (sample_step, 0, *steps), strict=True)
    strides = [stride for size, stride in axes if size > 1]
    return (
        geometry.sets_per_sample == 0
        and step == 1
        and math.gcd(pack, channels, data.past, *strides) == pack
    )


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
    sets, segments, double = geometry.sets, plan.segments, np.dtype(np.float64)
    source, result = device.address(data), device.address(out)
    alone = not plan.statistics
    shapes = () if alone else ((sets, 2), (geometry.shape[1], 2), (sets, segments, 2))
    workspaces = [device.workspace(shape, double) for shape in shapes]
    template = _template(
        geometry,
        plan.pack,
        (plan.segment, segments),
        alone,
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
def _template(
    geometry: NormGeometry,
    pack: int,
    segments: tuple[int, int],
    alone: bool,
    data: Placed,
    out: Placed,
) -> Template:
    """Return the arguments for all arrays of such layouts.

    Each block has one set `alone`, or blocks share all sets. `segments` are the elements of a
    segment and the number of segments.
    """
    axes = _axes(geometry, data.strides, out.strides, alone)
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
        "segment": segments[0],
        "segments": segments[1],
        "channels": geometry.shape[1],
        "sets": geometry.sets,
        "sets_per_sample": geometry.sets_per_sample or geometry.sets,
        "set_channels": geometry.channels,
        "sample_strides": axes.sample_strides,
        "set_strides": axes.set_strides,
        "elements": geometry.elements,
        **_walks(axes, pack, alone, data, out),
    }
    return Template(SOURCES[0], members)


class _NormAxes(NamedTuple):
    """The axes that a norm walks along, and the strides of samples and sets."""

    values: tuple[Axis, ...]  # values of a set; strides: in the input, of the value's number
    places: tuple[Axis, ...]  # results; strides: of the source, in the result, of channel and set
    sample_strides: tuple[int, int]  # in the input and in the result
    set_strides: tuple[int, int]  # in the input and in the result


def _axes(
    geometry: NormGeometry, in_strides: Sequence[int], out_strides: Sequence[int], alone: bool
) -> _NormAxes:
    """Return the axes for blocks that each have one set `alone`, or that share all sets."""
    samples, channels, *space = geometry.shape
    none = (0,) * len(space)
    shape: tuple[int, ...] = (geometry.channels, *space)
    numbers = c_strides(shape)
    set_strides = in_strides[1] * geometry.channels, out_strides[1] * geometry.channels
    if alone:
        values = axes_in_memory_order(0, shape, in_strides[1:], numbers)
        places = axes_in_memory_order(1, shape, numbers, out_strides[1:], (1, *none), (0, *none))
        return _NormAxes(values, places, (in_strides[0], out_strides[0]), set_strides)
    if geometry.sets_per_sample:
        values = merged_axes(shape, in_strides[1:], numbers)
        sample_strides = in_strides[0], out_strides[0]
    else:  # a set extends over the samples
        shape = (samples, *space)
        values = merged_axes(shape, (in_strides[0], *in_strides[2:]), c_strides(shape))
        sample_strides = 0, 0
    places = axes_in_memory_order(
        1,
        # The channel axis is divided into groups, so that the set has a stride along each axis.
        (samples, channels // geometry.channels, geometry.channels, *space),
        *(
            (strides[0], strides[1] * geometry.channels, *strides[1:])
            for strides in (in_strides, out_strides)
        ),
        (0, geometry.channels, 1, *none),
        (geometry.sets_per_sample, 1, 0, *none),
    )
    return _NormAxes(values, places, sample_strides, set_strides)


def _walks(axes: _NormAxes, pack: int, alone: bool, data: Placed, out: Placed) -> Members:
    """Return the last members of ``struct Arguments``: how values and results are walked."""
    line = LINE // data.itemsize
    starts = data.past, out.past
    sets = list(zip(starts, axes.sample_strides, axes.set_strides, strict=True))
    values_width = _width(pack, axes.values, [sets[0], (0,)] if alone else sets[:1])
    width = _width(pack, axes.places, [(0,), sets[1]] if alone else [starts[:1], starts[1:]])
    *_, to_channel, to_set = axes.places[-1].strides
    if to_channel or to_set:
        width = 1 if alone else min(width, MOST_CHANNELS)
    return {
        "in_order": values_width == pack and [axis.strides for axis in axes.values] == [(1, 1)],
        "values": (
            walk_in_runs(axes.values, values_width, line // values_width)
            if alone
            else walk_in_order(axes.values, values_width)
        ),
        "places": walk_in_runs(axes.places, width, line // width, still=2),
        "to_channel": to_channel if width > 1 else 0,
        "to_set": to_set if width > 1 else 0,
    }


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
