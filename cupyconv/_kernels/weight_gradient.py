"""The gradient of a weight: a convolution of the input with the gradient of the output.

Along one axis, for a convolution that pairs output ``o`` and tap ``k`` with the input position
``o*stride - pad + k*dilation``::

    gradient[r, c, k] = sum over n, o of input[n, c, o*stride - pad + k*dilation] * grad[n, r, o]

The sum is itself a convolution. Its outputs are the taps ``k``, its stride is the dilation and its
dilation the stride; the gradient of the output is its weight, the input channels are its samples,
and its input channels are the samples ``n``. Groups stay groups: only strides change, so no array
is copied.

Such a convolution has few outputs with long sums. direct_conv.cu computes ranges of the sums, and
sum_splits.cu adds the ranges in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array, WeightGradient, accumulator
from .._geometry import ConvGeometry
from .._packing import strides_of
from .._strides import ConvStrides, cast_strides
from .._taps import AxisTaps, conv_taps
from . import direct_conv, sum_splits
from .direct_conv import DirectPlan
from .launches import Launch
from .question import Question
from .views import c_strides

if TYPE_CHECKING:
    from .._device import Device


def _axis(forward: AxisTaps) -> AxisTaps:
    """Return the taps of the gradient along one axis."""
    return conv_taps(
        size_in=forward.size_in,
        size_out=forward.kernel,
        kernel=forward.size_out,
        stride=forward.dilation,
        dilation=forward.step,
        pad=-forward.origin,
    )


def as_convolution(forward: ConvGeometry) -> ConvGeometry:
    """Return the convolution that gives the gradient of the weight of `forward`.

    With one or two axes the samples are one more axis, the first, with a tap for each sample. The
    sums then run along the last axis first, and neighbouring products find their operands together
    in memory. With more axes they are channels, since the kernels have no fourth axis.
    """
    geometry = replace(
        forward,
        batched=True,
        batch=forward.channels,
        channels=forward.batch,
        axes=tuple(map(_axis, forward.axes)),
        stride=forward.dilation,
        dilation=forward.stride,
    )
    if not forward.batch or geometry.rank > 2:
        return geometry
    samples = conv_taps(forward.batch, 1, forward.batch, 1, 1, 0)
    return replace(
        geometry,
        channels=1,
        axes=(samples, *geometry.axes),
        stride=(1, *geometry.stride),
        dilation=(1, *geometry.dilation),
        pads_before=(0, *geometry.pads_before),
    )


def strides_for(
    forward: ConvGeometry, convolution: ConvGeometry, data: Array, grad_output: Array, out: Array
) -> ConvStrides:
    """Return the strides of that `convolution`: input channels are samples, samples channels."""
    lead: tuple[int, ...] = () if forward.batched else (0,)
    data_batch, data_channel, *data_axes = (*lead, *cast_strides(data, out.dtype))
    grad_batch, grad_row, *grad_axes = (*lead, *cast_strides(grad_output, out.dtype))
    out_row, out_channel, *out_axes = strides_of(out)
    samples = convolution.rank > forward.rank  # they are an axis
    return ConvStrides(
        input=(data_channel, forward.channels * data_channel, data_batch),
        weight=(forward.rows * grad_row, grad_row, grad_batch),
        out=(out_channel, forward.rows * out_row, out_row),
        input_axes=[data_batch] * samples + data_axes,
        weight_axes=[grad_batch] * samples + grad_axes,
        out_axes=[0] * samples + out_axes,
    )


# Plan and launch ------------------------------------------------------------------------------

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
