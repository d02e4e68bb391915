"""The taps of one axis as input channels, which fills the K dimension of Tensor Cores.

Filter banks of one input channel (a spectrogram, patches of a grey image) leave that dimension
nearly empty. Along an axis without padding they are products of matrices::

    out[row, o] = sum over k of input[o*stride + k*dilation] * weight[row, k]
                = sum over k of window[k, o] * weight[row, k]

The windows are a view of the input, with a stride of `dilation` elements along the channels and of
`stride` along the positions, so nothing is copied. With padding, the outputs that lack some of the
taps are computed apart: an output has all channels or none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ._geometry import ConvGeometry
from ._taps import AxisTaps, conv_taps


@dataclass(frozen=True)
class Part:
    """Some outputs of a convolution along one axis.

    Attributes
    ----------
    geometry : ConvGeometry
        The convolution that computes them.
    axis : int
        The axis.
    first : int
        First position of its input.
    outputs : range
        Positions of its outputs.
    """

    geometry: ConvGeometry
    axis: int
    first: int
    outputs: range

    @property
    def of_input(self) -> tuple[object, ...]:
        """Index of its input in the input."""
        return self._along_axis(slice(self.first, None))

    @property
    def of_output(self) -> tuple[object, ...]:
        """Index of its outputs in the result."""
        return self._along_axis(slice(self.outputs.start, self.outputs.stop))

    def _along_axis(self, part: slice) -> tuple[object, ...]:
        return (..., part, *(slice(None),) * (self.geometry.rank - 1 - self.axis))


def _inner(axis: AxisTaps) -> range:
    """Return the outputs of a convolution all of whose taps have an input."""
    first = max(0, -(axis.origin // axis.step))
    room = axis.size_in - 1 - axis.origin - axis.dilation * (axis.kernel - 1)
    return range(first, max(first, min(axis.size_out, room // axis.step + 1)))


def _part(geometry: ConvGeometry, number: int, outputs: range) -> Part:
    """Return some outputs along an axis, with the inputs from the first one that they take on."""
    axis = geometry.axes[number]
    start = axis.origin + outputs.start * axis.step
    first = max(0, min(start, axis.size_in - 1))  # outputs may lie in the padding altogether
    own = replace(axis, size_in=axis.size_in - first, size_out=len(outputs), origin=start - first)
    before, after = slice(number), slice(number + 1, None)
    geometry = replace(
        geometry,
        axes=(*geometry.axes[before], own, *geometry.axes[after]),
        pads_before=(*geometry.pads_before[before], -own.origin, *geometry.pads_before[after]),
    )
    return Part(geometry, number, first, outputs)


def parts(geometry: ConvGeometry) -> tuple[Part, ...]:
    """Return the outputs that can be unfolded along an axis, then those before and after them.

    There are none unless the groups have one input channel, since kernels know one stride of
    channels. Of several axes it is the one with most taps, where outputs that are computed apart
    count as none: kernels multiply channels in blocks.
    """
    if geometry.channels != 1 or geometry.transposed:
        return ()
    found = [
        (axis.kernel * len(_inner(axis)) / axis.size_out, number)
        for number, axis in enumerate(geometry.axes)
        if axis.kernel > 1
    ]
    taps, number = max(found, default=(0, 0))
    if not taps:
        return ()
    inner = _inner(geometry.axes[number])
    ends = range(inner.start), range(inner.stop, geometry.axes[number].size_out)
    return tuple(_part(geometry, number, outputs) for outputs in (inner, *filter(len, ends)))


def unfolded(geometry: ConvGeometry, number: int) -> ConvGeometry:
    """Return the same convolution with the taps of an axis without padding as input channels.

    The products of an output stay the same, their order does not.
    """
    axis = geometry.axes[number]

    def with_one(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values[:number], 1, *values[number + 1 :])

    one_tap = conv_taps(axis.size_out, axis.size_out, kernel=1, stride=1, dilation=1, pad=0)
    return replace(
        geometry,
        channels=axis.kernel,
        axes=(*geometry.axes[:number], one_tap, *geometry.axes[number + 1 :]),
        stride=with_one(geometry.stride),
        dilation=with_one(geometry.dilation),
    )
