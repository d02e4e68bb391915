"""The least work of a call against counts by loops over windows and taps."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from cupyconv._geometry import conv as convolution
from cupyconv._geometry import conv_transpose, max_pool2d
from cupyconv._least_work import least_work, pairs_inside, pooled_share, positions_read

SMALL = st.integers(1, 9)
SIZE = st.integers(0, 30)
WINDOWS = st.integers(0, 12)
PAD = st.integers(0, 12)


def met(windows: int, kernel: int, stride: int, dilation: int, pad: int, size: int) -> list[int]:
    """Position of each pair of a window and a tap that lies inside."""
    everywhere = (
        window * stride - pad + tap * dilation
        for window, tap in itertools.product(range(windows), range(kernel))
    )
    return [position for position in everywhere if 0 <= position < size]


@given(WINDOWS, SMALL, SMALL, SMALL, PAD, SIZE)
@example(12, 9, 6, 4, 3, 30)
def test_pairs_and_positions(
    windows: int, kernel: int, stride: int, dilation: int, pad: int, size: int
) -> None:
    arguments = windows, kernel, stride, dilation, pad, size
    pairs = met(*arguments)
    assert pairs_inside(*arguments) == len(pairs)
    assert 0 <= positions_read(*arguments) <= len(set(pairs))


@given(WINDOWS, SMALL, SMALL, PAD, st.integers(0, 12))
def test_positions_are_exact_where_windows_leave_no_gap(
    windows: int, kernel: int, stride: int, pad: int, after: int
) -> None:
    stride = min(stride, kernel)
    size = (windows - 1) * stride + kernel - pad - after
    if windows and size >= 0:
        arguments = windows, kernel, stride, 1, pad, size
        assert positions_read(*arguments) == len(set(met(*arguments))) == size


@given(st.integers(1, 6), SMALL, SMALL)
def test_positions_between_windows_are_not_read(windows: int, kernel: int, gap: int) -> None:
    stride = kernel + gap
    size = (windows - 1) * stride + kernel
    assert positions_read(windows, kernel, stride, 1, 0, size) == windows * kernel


@given(
    st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL, PAD, PAD), min_size=1, max_size=3),
    st.booleans(),
    st.integers(1, 3),
)
def test_of_convolutions(
    axes: list[tuple[int, int, int, int, int, int]], transposed: bool, batch: int
) -> None:
    """A product for each axis; the shares are at most the shares of elements that are used."""
    sizes, kernels, strides, dilations, *ends = zip(*axes, strict=True)
    options = strides, tuple(zip(*ends, strict=True))
    shapes = (batch, 4, *sizes), (4, 2, *kernels), None
    try:
        if transposed:
            geometry = conv_transpose("conv", *shapes, *options, 0, 2, dilations, None)
        else:
            geometry = convolution("conv", *shapes, *options, dilations, 2, None)
    except ValueError:  # no such output
        return
    found = least_work(geometry)
    pairs, inputs, taps = 1, 1.0, 1.0
    for axis, stride, dilation, pad in zip(
        geometry.axes, strides, dilations, geometry.pads_before, strict=True
    ):
        long, short = axis.size_in, axis.size_out
        if transposed:
            long, short = short, long
        grid = np.arange(short)[:, None] * stride - pad + np.arange(axis.kernel) * dilation
        inside = (grid >= 0) & (grid < long)
        pairs *= int(inside.sum())
        used = inside.any(axis=1).sum() if transposed else len(set(grid[inside]))
        inputs *= used / axis.size_in
        taps *= inside.any(axis=0).mean()
    assert (
        found.multiply_adds == batch * geometry.groups * geometry.rows * geometry.channels * pairs
    )
    assert found.input_share <= inputs * (1 + 1e-12)
    assert found.weight_share <= taps * (1 + 1e-12)


def test_ordinary_layers_read_all_of_their_arrays() -> None:
    for kernel, stride, padding in ((3, 1, 1), (3, 2, 1), (7, 2, 3), (1, 1, 0), (5, 1, 2)):
        shapes = (2, 4, 56, 56), (4, 4, kernel, kernel), None
        found = least_work(convolution("conv", *shapes, stride, padding, 1, 1, 2))
        assert (found.input_share, found.weight_share) == (1, 1)
        found = least_work(conv_transpose("conv", *shapes, stride, padding, 0, 1, 1, 2))
        assert found.input_share > 0.96
        assert found.weight_share == 1
    halved = least_work(convolution("conv", (1, 4, 56, 56), (4, 4, 1, 1), None, 2, 0, 1, 1, 2))
    assert halved.input_share == 1 / 4


def test_of_poolings() -> None:
    assert pooled_share(max_pool2d("pool", (1, 1, 8, 8), 2, None, 0, 1, False)) == 1
    assert pooled_share(max_pool2d("pool", (1, 1, 8, 8), 1, (2, 4), 0, 1, False)) == 1 / 8


def test_counts_of_any_size_take_no_time() -> None:
    far = 2**40
    assert pairs_inside(far, far, 1, 1, far - 1, far) == far * (far + 1) // 2
    assert positions_read(far, 3, 1, 1, 1, far) == far
    assert pairs_inside(far, 2, 2**31 - 1, 2**31 - 5, 0, math.prod((far, far))) == 2 * far
