"""The second step of the fused operation: batch norm, tanh and group norm of pooled extrema."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._packing import strides_of
from .launches import ELEMENTS, MAX_GRID, WARP, Instance, Launch, Processor
from .members import CALL, PARAMETER, Members, Template, float64_word

if TYPE_CHECKING:
    import numpy as np

    from .._arrays import Array

SOURCES = ("pooled_norm.cu",)

_THREADS = 256
_WARPS = 8  # warps of a block
_DECLARED = 1024  # bytes of shared memory that the kernel declares itself


@dataclass(frozen=True)
class PooledNormPlan:
    """How pooled extrema are normalised.

    Attributes
    ----------
    combine, normalize : Launch
        The statistics of all blocks; batch norm and tanh of the extrema, and their group norm
        unless `apart`.
    apart : bool
        Whether groups exceed shared memory, so that a group norm of its own follows.
    """

    combine: Launch
    normalize: Launch
    apart: bool


def _instance(function: str, dtype: str) -> Instance:
    return Instance(SOURCES[0], function, (("OUTPUT", ELEMENTS[dtype]),))


def plan(
    pooled: tuple[int, ...], num_groups: int, dtype: np.dtype, processor: Processor
) -> PooledNormPlan | None:
    """Return the plan for extrema of the shape `pooled`, None where it needs too many blocks."""
    samples, channels, *space = pooled
    combine = Launch(_instance("combine", "float32"), min(channels, MAX_GRID), _THREADS)
    values, blocks = channels // num_groups * math.prod(space), samples * num_groups
    apart = 4 * values > processor.shared - _DECLARED
    if apart:
        blocks = min(-(-samples * channels // _WARPS), 16 * processor.multiprocessors)
        normalize = Launch(_instance("activate", "float32"), blocks, _THREADS)
    else:
        # With fewer values for each thread, the fixed work of a warp takes most of the time.
        threads = min(max(64, 1 << (values // WARP).bit_length() >> 1), 512)
        instance = _instance("normalize", dtype.name)
        normalize = Launch(instance, blocks, threads, 4 * values, unit=blocks)
    if blocks > MAX_GRID:
        return None
    return PooledNormPlan(combine, normalize, apart)


def instances() -> Iterator[Instance]:
    """Yield all instances that plans can ask for."""
    for dtype in ("float32", "float16", "bfloat16"):
        yield _instance("normalize", dtype)
    yield _instance("combine", "float32")
    yield _instance("activate", "float32")


def template(
    pooled: tuple[int, ...], num_groups: int, parts: int, out: Array, eps: float
) -> Template:
    """Return the arguments of both kernels, for statistics in `parts` parts.

    A call puts in the addresses of the extrema, the partial statistics, the combined ones and the
    result, and all of the parameters.
    """
    samples, channels, height, width = pooled
    out_batch, out_channel, *out_axes = strides_of(out)
    names = ("mean", "var", "bn_weight", "bn_bias", "gn_weight", "gn_bias")
    members: Members = {
        "pooled": CALL,
        "partial": CALL,
        "affine": CALL,
        "out": CALL,
        **{name: PARAMETER for name in names},
        "samples": samples,
        "parts": parts,
        "channels": channels,
        "groups": num_groups,
        "group_channels": channels // num_groups,
        "space": height * width,
        "width": width,
        "out_batch": out_batch,
        "out_channel": out_channel,
        "out_axis": out_axes,
        "eps": float64_word(eps),
    }
    return Template(SOURCES[0], members)
