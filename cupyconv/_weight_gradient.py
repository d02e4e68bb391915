"""The gradient of a weight as a convolution: of the input with the gradient of the output.

Along one axis, for a convolution that pairs output ``o`` and tap ``k`` with the input position
``o*stride - pad + k*dilation``::

    gradient[r, c, k] = sum over n, o of input[n, c, o*stride - pad + k*dilation] * grad[n, r, o]

The sum is itself a convolution. Its outputs are the taps ``k``, its stride is the dilation and its
dilation the stride; the gradient of the output is its weight, the input channels are its samples,
and its input channels are the samples ``n``. Groups stay groups: only strides change, so no array
is copied.
"""

from __future__ import annotations

from dataclasses import replace

from ._arrays import Array
from ._geometry import ConvGeometry
from ._packing import strides_of
from ._strides import ConvStrides, cast_strides
from ._taps import AxisTaps, conv_taps


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


def as_convolution(
    forward: ConvGeometry, data: Array, grad_output: Array, out: Array
) -> tuple[ConvGeometry, ConvStrides]:
    """Return the convolution that gives the gradient of the weight of `forward`, and its strides.

    With one or two axes the samples are one more axis, the first, with a tap for each sample. The
    sums then run along the last axis first, and neighbouring products find their operands together
    in memory. With more axes they are channels, since the kernels have no fourth axis.
    """
    lead: tuple[int, ...] = () if forward.batched else (0,)
    data_batch, data_channel, *data_axes = (*lead, *cast_strides(data, out.dtype))
    grad_batch, grad_row, *grad_axes = (*lead, *cast_strides(grad_output, out.dtype))
    out_row, out_channel, *out_axes = strides_of(out)
    axes = tuple(map(_axis, forward.axes))
    geometry = replace(
        forward,
        batched=True,
        batch=forward.channels,
        channels=forward.batch,
        axes=axes,
        stride=forward.dilation,
        dilation=forward.stride,
    )
    if forward.batch and len(axes) < 3:
        samples = conv_taps(forward.batch, 1, forward.batch, 1, 1, 0)
        geometry = replace(
            geometry,
            channels=1,
            axes=(samples, *axes),
            stride=(1, *forward.dilation),
            dilation=(1, *forward.stride),
            pads_before=(0, *forward.pads_before),
        )
        data_axes, grad_axes = [data_batch, *data_axes], [grad_batch, *grad_axes]
        out_axes = [0, *out_axes]
    return geometry, ConvStrides(
        input=(data_channel, forward.channels * data_channel, data_batch),
        weight=(forward.rows * grad_row, grad_row, grad_batch),
        out=(out_channel, forward.rows * out_row, out_row),
        input_axes=data_axes,
        weight_axes=grad_axes,
        out_axes=out_axes,
    )
