"""The gradient of a weight: a direct convolution with sums split along K, and their addition.

Such a convolution has few outputs with long sums. direct_conv.cu computes ranges of the sums, and
sum_splits.cu adds the ranges in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array, WeightGradient, accumulator
from . import direct_conv, sum_splits
from .direct_conv import DirectPlan
from .launches import Launch
from .question import Question
from .views import c_strides

if TYPE_CHECKING:
    from .._device import Device
    from .._geometry import ConvGeometry
    from .._strides import ConvStrides

_MOST_PARTIAL = 32 << 20  # bytes of the partial sums of a call


@dataclass(frozen=True)
class WeightGradientPlan:
    """How the gradient of a weight runs.

    Attributes
    ----------
    sums : DirectPlan
        Computes ranges of the sums, or the gradient where there is a single range.
    add : Launch, optional
        Adds the ranges.
    partial : int
        Bytes of the partial sums.
    """

    sums: DirectPlan
    add: Launch | None
    partial: int

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return self.sums.launches if self.add is None else (*self.sums.launches, self.add)

    @property
    def cycles(self) -> float:
        """The cycles of a multiprocessor that the direct kernel's model gives it."""
        return self.sums.cycles

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays."""
        return self.partial

    @property
    def tiles(self) -> str:
        """How the outputs are divided, in words."""
        return self.sums.tiles

    def __str__(self) -> str:
        return f"{self.sums}; {self.add}" if self.add else str(self.sums)


def _shape(geometry: ConvGeometry) -> tuple[int, ...]:
    """Return the shape of the partial sums of a range: groups, rows, samples, positions."""
    space = (axis.size_out for axis in geometry.axes)
    return geometry.groups, geometry.rows, geometry.batch, *space


def plan(question: Question) -> WeightGradientPlan:
    """Return the plan of the convolution that gives the gradient of a weight."""
    outputs = math.prod(_shape(question.geometry))
    itemsize = accumulator(question.dtype).itemsize
    range_bytes = max(4, itemsize) * outputs  # small integers are summed in 32 bits
    sums = direct_conv.plan_split(question, _MOST_PARTIAL // range_bytes)
    splits = sums.layout.splits
    if splits == 1:
        return WeightGradientPlan(sums, None, 0)
    add = sum_splits.launch(question.dtype, outputs)
    return WeightGradientPlan(sums, add, splits * range_bytes)


def bind(
    plan: WeightGradientPlan, question: Question, strides: ConvStrides, device: Device
) -> WeightGradient:
    """Return the gradient of a plan for all arrays of such strides."""
    address, geometry, dtype = device.address, question.geometry, question.dtype
    if plan.add is None:
        convolve = direct_conv.bind(plan.sums, question, strides, None, device)

        def at_once(data: Array, grad_output: Array, out: Array) -> None:
            convolve(device.cast(data, dtype), device.cast(grad_output, dtype), None, out)

        return at_once

    shape = _shape(geometry)
    group, row, batch, *axes = c_strides(shape)
    partial = strides._replace(out=(batch, group, row), out_axes=axes)
    out_batch, *out_rows = strides.out
    out_strides = (*out_rows, out_batch, *strides.out_axes)
    layout = plan.sums.layout
    fill = direct_conv.split_template(layout, geometry, partial, math.prod(shape)).fill
    fill_add = sum_splits.template(layout.splits, shape, out_strides).fill
    run, add = device.launcher(plan.sums.launch), device.launcher(plan.add)
    byte = np.dtype(np.uint8)

    def in_ranges(data: Array, grad_output: Array, out: Array) -> None:
        data, grad_output = device.cast(data, dtype), device.cast(grad_output, dtype)
        memory = device.workspace((plan.partial,), byte)
        run(fill(address(data), address(grad_output), address(memory), 0))
        add(fill_add(address(memory), address(out)))

    return in_ranges
