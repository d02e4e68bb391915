"""Padding in numbers, also where it is given by name, and the sizes that follow from it."""

from __future__ import annotations

from ._arguments import Pads
from ._shape_rules import Shape


def extents(kernel: Shape, dilation: Shape) -> Shape:
    """Return the number of positions from the first to the last tap on each axis, both included."""
    return tuple(distance * (taps - 1) + 1 for distance, taps in zip(dilation, kernel, strict=True))


def _halved(total: Shape) -> Pads:
    """Divide a total padding between both ends; the odd position goes to the end."""
    return tuple((pads // 2, pads - pads // 2) for pads in total)


def before(padding: Pads) -> Shape:
    """Return the padding at the start of each axis."""
    return tuple(start for start, _ in padding)


def conv_pads(padding: Pads | str, size_in: Shape, stride: Shape, extents: Shape) -> Pads:
    """Return the padding of a convolution in numbers, also for padding that is given by name."""
    if not isinstance(padding, str):
        return padding
    if padding == "valid":
        return ((0, 0),) * len(stride)
    return _halved(
        tuple(
            max((-(-size // step) - 1) * step + extent - size, 0)
            for size, step, extent in zip(size_in, stride, extents, strict=True)
        )
    )


def output_sizes(
    padding: Pads | str, size_in: Shape, stride: Shape, extents: Shape
) -> tuple[Shape, Shape]:
    """Return the smallest and the largest input that a convolution maps to `size_in` outputs."""
    last = tuple((size - 1) * step for size, step in zip(size_in, stride, strict=True))
    if padding == "same":
        smallest = tuple(start + 1 for start in last)
    else:
        pads = conv_pads(padding, size_in, stride, extents)
        smallest = tuple(
            start + extent - sum(ends)
            for start, extent, ends in zip(last, extents, pads, strict=True)
        )
    return smallest, tuple(size + step - 1 for size, step in zip(smallest, stride, strict=True))


def transpose_pads(
    padding: Pads | str,
    output_padding: Shape,
    output_size: Shape | None,
    size_in: Shape,
    stride: Shape,
    extents: Shape,
) -> tuple[Pads, Shape]:
    """Return the padding and the output padding of a transposed convolution in numbers."""
    if padding == "same" and output_size is None:
        output_size = tuple(size * step for size, step in zip(size_in, stride, strict=True))
    # "same" depends on the size of the input of the convolution, which is the output here.
    pads = conv_pads(padding, output_size or (), stride, extents)
    if output_size is None:
        return pads, output_padding
    smallest, _ = output_sizes(pads, size_in, stride, extents)
    return pads, tuple(size - least for size, least in zip(output_size, smallest, strict=True))
