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

from dataclasses import replace
from typing import TYPE_CHECKING

from .._arrays import Array, WeightGradient
from .._geometry import ConvGeometry
from .._packing import strides_of
from .._strides import ConvStrides, batch_strides
from .._taps import AxisTaps, conv_taps
from . import direct_conv
from .direct_conv import DirectPlan
from .question import Question

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


def _strides(
    forward: ConvGeometry, convolution: ConvGeometry, data: Array, grad_output: Array, out: Array
) -> ConvStrides:
    """Return the strides of that `convolution`: input channels are samples, samples channels."""
    data_batch, data_channel, *data_axes = batch_strides(forward, data, out.dtype)
    grad_batch, grad_row, *grad_axes = batch_strides(forward, grad_output, out.dtype)
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


def plan(question: Question) -> DirectPlan:
    """Return how the gradient runs as a convolution; none is refused."""
    geometry = as_convolution(question.geometry)
    return direct_conv.plan_weight_gradient(replace(question, geometry=geometry))


def bind(
    plan: DirectPlan,
    question: Question,
    data: Array,
    grad_output: Array,
    out: Array,
    device: Device,
) -> WeightGradient:
    """Return the gradient of a plan for all arrays with the layouts of these."""
    convolution = as_convolution(question.geometry)
    strides = _strides(question.geometry, convolution, data, grad_output, out)
    asked = replace(question, geometry=convolution)
    convolve = direct_conv.bind(plan, asked, strides, None, device)
    cast, dtype = device.cast, question.dtype

    def gradient(data: Array, grad_output: Array, out: Array) -> None:
        convolve(cast(data, dtype), cast(grad_output, dtype), None, out)

    return gradient
