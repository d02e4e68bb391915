"""The fused operation: a convolution that pools, and the norms of its result.

Two kernels share the work: matrix_conv.cu convolves and pools, pooled_norm.cu does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array, Fused
from .._geometry import ConvGeometry, PoolGeometry
from .._strides import conv_strides
from . import matrix_conv, pooled_norm
from .launches import Instance
from .matrix_conv import MatrixPlan
from .members import CALL, PARAMETER, Members, float64_word, parameter_words
from .modes import Mode
from .pooled_norm import PooledNormPlan
from .question import LARGE, Question, Refusal

if TYPE_CHECKING:
    from .._device import Device

# A group norm of an array to another one, with weight and bias.
GroupNorm = Callable[[Array, Sequence["Array | None"], Array], None]


@dataclass(frozen=True)
class FusedPlan:
    """How the fused operation runs.

    Attributes
    ----------
    convolution : MatrixPlan
        Computes the extrema of the windows, and statistics of each channel for each block.
    norm : PooledNormPlan
        Normalises the extrema.
    """

    convolution: MatrixPlan
    norm: PooledNormPlan

    def __str__(self) -> str:
        return f"{self.convolution}; {self.norm.combine}; {self.norm.normalize}"


def plan(
    question: Question, mode: Mode, engine: str, pooled: tuple[int, ...], num_groups: int
) -> FusedPlan | Refusal:
    """Return the plan for a result of the shape `pooled`, or why there is none."""
    geometry, processor = question.geometry, question.processor
    convolution = matrix_conv.plan_in_mode(geometry, mode, processor, engine, window=2)
    if isinstance(convolution, str):
        return convolution
    norm = pooled_norm.plan(pooled, num_groups, question.dtype, processor)
    return FusedPlan(convolution, norm) if norm else LARGE


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    yield from matrix_conv.pooling_instances(target)
    if matrix_conv.engines(target):
        yield from pooled_norm.instances()


def _pooling_members(pooled: tuple[int, ...], eps: float) -> Members:
    """Return the further members of a convolution that pools."""
    _, channels, height, width = pooled
    return {
        "pooled": CALL,
        "partial": CALL,
        **{name: PARAMETER for name in ("scale", "shift", "mean", "var")},
        "eps": float64_word(eps),
        "pooled_batch": channels * height * width,
        "pooled_row": height * width,
        "pooled_pitch": width,
    }


def bind(
    plan: FusedPlan,
    question: Question,
    pooling: PoolGeometry,
    num_groups: int,
    arrays: tuple[Array, Array, Array],
    given: bool,
    eps: float,
    group_norm: GroupNorm,
    device: Device,
) -> Fused:
    """Return the fused operation for all arrays of the layouts of input, kernel and result.

    Statistics may be `given`. Where groups exceed shared memory, `group_norm` follows.
    """
    dtype, pooled_shape = question.dtype, pooling.out_shape
    geometry: ConvGeometry = question.geometry
    # The convolution's own result is never stored.
    strides = conv_strides(geometry, *arrays)
    strides = strides._replace(out=(0, 0, 0), out_axes=[0, 0])
    members = _pooling_members(pooled_shape, eps)
    convolve = matrix_conv.bind_pooling(plan.convolution, question, strides, None, device, members)
    blocks = plan.convolution.launch.grid
    template = pooled_norm.template(pooled_shape, num_groups, blocks, arrays[2], eps)
    combine, normalize = map(device.launcher, (plan.norm.combine, plan.norm.normalize))
    # The combined statistics of all blocks overwrite the first block's.
    moments_shape = (1 if given else blocks, pooled_shape[1], 2)
    single, double = np.dtype(np.float32), np.dtype(np.float64)

    def compute(
        data: Array,
        kernel: Array,
        statistics: Sequence[Array | None],
        parameters: Sequence[Array],
        out: Array,
    ) -> None:
        data, kernel = device.cast(data, dtype), device.cast(kernel, dtype)
        extrema = device.workspace(pooled_shape, single)
        moments = device.workspace(moments_shape, double)
        pooled, affine = device.address(extrema), device.address(moments)
        partial = 0 if given else affine
        known, batch_norm, last = (
            [word for array in pair for word in parameter_words(array, device)]
            for pair in (statistics, parameters[:2], parameters[2:])
        )
        convolve(data, kernel, None, None, pooled, partial, *batch_norm, *known)
        places = pooled, partial, affine, device.address(out)
        arguments = template.fill(*places, *known, *batch_norm, *last)
        combine(arguments)
        normalize(arguments)
        if plan.norm.apart:
            group_norm(extrema, parameters[2:], out)

    return compute
