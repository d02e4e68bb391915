"""The reference against SciPy where the two overlap, against each other, and worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy import signal

import bounds
import reference
from reference import Array
from strategies import (
    Convolution,
    convolution,
    convolutions,
    exact_convolutions,
    exact_pairs,
    inner,
    zero_stuffed,
)

# Against SciPy -------------------------------------------------------------------------------


def by_scipy(case: Convolution) -> Array:
    """The case by one call of scipy.signal for each sample and pair of channels."""
    x, w, b = case["input"], case["weight"], case.arrays["bias"]
    rank, groups = w.ndim - 2, case.options.get("groups", 1)
    stride, dilation = (
        reference.per_axis(case.options.get(name, 1), rank) for name in ("stride", "dilation")
    )
    transposed = case.function.startswith("conv_transpose")
    wide = np.result_type(x, w, np.float64)
    x, w = x.astype(wide), zero_stuffed(w.astype(wide), dilation)
    inputs = x.shape[1] // groups
    outputs = w.shape[1] if transposed else w.shape[0] // groups
    samples = []
    for sample in x:
        channels = []
        for g, m in np.ndindex(groups, outputs):
            total: Any = 0
            for c in range(inputs):
                plane = sample[g * inputs + c]
                if transposed:
                    plane = zero_stuffed(plane, stride)
                    total = total + signal.convolve(
                        plane, w[g * inputs + c, m], "full", method="direct"
                    )
                else:
                    plane = np.pad(plane, case.options["padding"])
                    total = total + signal.correlate(
                        plane, w[g * outputs + m, c].conj(), "valid", method="direct"
                    )
            if transposed:
                ends = zip(case.options["padding"], case.options["output_padding"], strict=True)
                for axis, ((before, after), longer) in enumerate(ends):
                    width = [(0, 0)] * rank
                    width[axis] = (0, longer)
                    kept = total.shape[axis] + longer - after
                    total = np.pad(total, width).take(range(before, kept), axis)
            else:
                total = total[tuple(slice(None, None, s) for s in stride)]
            channels.append(total + (0 if b is None else b[g * outputs + m]))
        samples.append(channels)
    return np.array(samples)


CASES = [
    convolution("conv", (2, 3, 17), (4, 3, 5), np.float64, bias=True,
                stride=1, padding=((2, 0),), dilation=2),
    convolution("conv", (1, 4, 11), (6, 2, 3), np.float64,
                stride=3, padding=((1, 4),), groups=2),
    convolution("conv", (2, 2, 9, 8), (3, 2, 3, 5), np.float64, bias=True,
                stride=(2, 1), padding=((0, 1), (2, 3)), dilation=(1, 2)),
    convolution("conv", (1, 3, 6, 7), (3, 1, 1, 3), np.complex128,
                stride=(1, 4), padding=((1, 1), (0, 0)), groups=3),
    convolution("conv", (1, 2, 5, 6, 4), (2, 2, 2, 3, 1), np.float64, bias=True,
                stride=(1, 2, 3), padding=((0, 1), (1, 0), (2, 2)), dilation=(2, 1, 1)),
    convolution("conv", (1, 2, 5, 3, 4), (2, 1, 2, 3, 3), np.complex128,
                stride=1, padding=((0, 0), (1, 1), (0, 0)), groups=2),
    convolution("conv_transpose", (2, 3, 7), (3, 4, 5), np.float64, bias=True,
                stride=2, padding=((2, 1),), dilation=3, output_padding=(2,)),
    convolution("conv_transpose", (1, 4, 6), (4, 3, 2), np.float64,
                stride=5, padding=((0, 4),), groups=2, output_padding=(4,)),
    convolution("conv_transpose", (2, 2, 4, 5), (2, 3, 3, 7), np.float64, bias=True,
                stride=(2, 3), padding=((0, 1), (2, 3)), dilation=(1, 2), output_padding=(1, 0)),
    convolution("conv_transpose", (1, 3, 3, 4), (3, 2, 4, 1), np.complex128,
                stride=(3, 1), padding=((1, 1), (0, 0)), groups=3, output_padding=(0, 0)),
    convolution("conv_transpose", (1, 2, 3, 2, 4), (2, 2, 2, 3, 1), np.float64, bias=True,
                stride=(1, 2, 3), padding=((0, 1), (1, 0), (2, 2)), dilation=(2, 1, 1),
                output_padding=(1, 0, 2)),
    convolution("conv_transpose", (1, 2, 3, 3, 4), (2, 1, 2, 3, 3), np.complex128,
                stride=1, padding=((0, 0), (1, 1), (0, 0)), groups=2, output_padding=(0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scipy(case: Convolution) -> None:
    bounds.assert_close(
        by_scipy(case),
        case.defined.value,
        bounds.sum_error(case.defined, case.dtype),
        case.dtype,
    )


# By its own definition -----------------------------------------------------------------------


@given(convolutions(functions=["conv", "conv_transpose"], dtypes=exact_pairs, styles=["positive"]))
def test_scale_and_terms(case: Convolution) -> None:
    """S is the same sum over absolute values, and K counts the products of each output."""
    sums = case.defined
    assert sums.value.shape == sums.scale.shape == sums.terms.shape
    if case.dtype.kind == "f" and np.isfinite(sums.value).all():
        magnitudes = case.map(np.abs).defined
        np.testing.assert_allclose(sums.scale, magnitudes.value, rtol=1e-12)
    ones = case.map(lambda a: np.ones(a.shape)).with_arrays(bias=None)
    np.testing.assert_array_equal(sums.terms, ones.defined.value)


@given(exact_convolutions("conv", "conv_transpose"))
def test_each_is_the_transpose_of_the_other(case: Convolution) -> None:
    """<f(x, w), y> = <x, f_transposed(y, conj(w))>: the two are written apart, by gather and by
    scatter, and agree exactly where the sums are exact."""
    x, y = case["input"], case.cotangent
    forward, backward = case.with_arrays(bias=None).defined.value, case.adjoint.defined.value
    backward = backward[tuple(map(slice, x.shape))]
    assert inner(forward, y) == inner(x, backward)


# Worked by hand ------------------------------------------------------------------------------

X = np.array([[[1.0, 2.0, 3.0]]])
W = np.array([[[10.0, 20.0]]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [50, 80]),
        ({"padding": 1}, [20, 50, 80, 30]),
        ({"padding": ((2, 0),)}, [0, 20, 50, 80]),
        ({"padding": 1, "stride": 2}, [20, 80]),
        ({"padding": 1, "stride": 3}, [20, 30]),
        ({"dilation": 2}, [70]),
        ({"padding": ((0, 2),), "dilation": 2}, [70, 20, 30]),
        ({"padding": "same"}, [50, 80, 30]),
        ({"padding": "same", "stride": 2}, [50, 30]),
        ({"padding": "same", "stride": 3}, [50]),
        ({"padding": "same", "dilation": 2}, [40, 70, 20]),
        ({"padding": "valid"}, [50, 80]),
        ({"bias": np.array([1.0])}, [51, 81]),
    ],
)
def test_conv_by_hand(options: Any, expected: list[float]) -> None:
    np.testing.assert_array_equal(reference.conv(X, W, **options).value, [[expected]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [10, 40, 70, 60]),
        ({"padding": 1}, [40, 70]),
        ({"padding": ((2, 0),)}, [70, 60]),
        ({"stride": 2}, [10, 20, 20, 40, 30, 60]),
        ({"stride": 3}, [10, 20, 0, 20, 40, 0, 30, 60]),
        ({"stride": 2, "output_padding": 1}, [10, 20, 20, 40, 30, 60, 0]),
        ({"stride": 2, "padding": ((0, 1),), "output_padding": 1}, [10, 20, 20, 40, 30, 60]),
        ({"dilation": 2}, [10, 20, 50, 40, 60]),
        ({"dilation": 2, "stride": 2}, [10, 0, 40, 0, 70, 0, 60]),
        ({"padding": "same"}, [10, 40, 70]),
        ({"padding": "same", "stride": 3}, [10, 20, 0, 20, 40, 0, 30, 60, 0]),
        ({"padding": "same", "dilation": 2}, [20, 50, 40]),
        ({"padding": "valid", "bias": np.array([1.0])}, [11, 41, 71, 61]),
    ],
)
def test_conv_transpose_by_hand(options: Any, expected: list[float]) -> None:
    np.testing.assert_array_equal(reference.conv_transpose(X, W, **options).value, [[expected]])


def test_groups_by_hand() -> None:
    x = np.array([[[1], [2], [3], [4]]])
    np.testing.assert_array_equal(
        reference.conv(x, np.array([[[1], [10]], [[1], [100]]]), groups=2).value,
        [[[21], [403]]],
    )
    np.testing.assert_array_equal(
        reference.conv_transpose(x, np.array([[[1]], [[10]], [[1]], [[100]]]), groups=2).value,
        [[[21], [403]]],
    )
    np.testing.assert_array_equal(
        reference.depthwise_conv2d(
            np.array([[[2]], [[3]]]), np.array([1, 10, 100, 1000]).reshape(4, 1, 1, 1)
        ).value.ravel(),
        [2, 20, 300, 3000],
    )


def test_integers_are_exact_modulo_their_range() -> None:
    x = np.full((1, 3, 2), -128, np.int8)
    w = np.full((1, 3, 1), 127, np.int8)
    expected = (-128 * 127 * 3 + 100 + 128) % 256 - 128
    bias = np.array([100], np.int8)
    value = reference.conv(x, w, bias).value
    assert value.dtype == np.int8
    np.testing.assert_array_equal(value, np.full((1, 1, 2), expected))
    big = np.full((1, 1, 1), 2**64 - 1, np.uint64)
    np.testing.assert_array_equal(reference.conv_transpose(big, big).value, [[[1]]])


def test_padding_is_absence() -> None:
    infinite = np.full((1, 1, 3), np.inf)
    np.testing.assert_array_equal(
        reference.conv(np.zeros((1, 1, 1)), infinite, padding=5).value[0, 0],
        [0] * 3 + [np.nan] * 3 + [0] * 3,
    )
    np.testing.assert_array_equal(
        reference.conv_transpose(np.zeros((1, 1, 1)), infinite, stride=4, output_padding=3).value,
        [[[np.nan] * 3 + [0] * 3]],
    )


def test_empty_sums() -> None:
    empty = np.zeros((2, 0, 5)), np.zeros((3, 0, 2)), np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(
        reference.conv(*empty).value, np.broadcast_to([[1], [2], [3]], (2, 3, 4))
    )
    assert reference.conv(np.zeros((0, 2, 5)), np.zeros((3, 2, 2))).value.shape == (0, 3, 4)
    assert reference.conv(np.zeros((2, 2, 5)), np.zeros((0, 2, 2))).value.shape == (2, 0, 4)


def test_batch_norm_by_hand() -> None:
    x = np.array([[[1.0, 3.0], [0.0, 4.0]], [[5.0, 7.0], [0.0, 4.0]]])
    norm = reference.batch_norm(x, eps=1.0, weight=np.array([6.0, 5.0]), bias=np.array([1.0, 0.0]))
    value = reference.from_channel_rows(norm.value, x.shape)
    s = np.sqrt(6.0)  # the first channel: mean 4, variance 5
    np.testing.assert_allclose(value[:, 0], [[1 - 18 / s, 1 - 6 / s], [1 + 6 / s, 1 + 18 / s]])
    t = np.sqrt(5.0)  # the second: mean 2, variance 4
    np.testing.assert_allclose(value[:, 1], [[-10 / t, 10 / t]] * 2)
    given_ = reference.batch_norm(x, np.array([1.0, 0.0]), np.array([3.0, 15.0]), eps=1.0)
    np.testing.assert_allclose(given_.value, [[0, 1, 2, 3], [0, 1, 0, 1]])


def test_group_norm_by_hand() -> None:
    x = np.array([[[1.0], [3.0], [0.0], [4.0]], [[5.0], [5.0], [2.0], [2.0]]])
    norm = reference.group_norm(x, 2, np.array([1.0, 2.0, 3.0, 4.0]), eps=0.25)
    s, t = np.sqrt(1.25), np.sqrt(4.25)
    np.testing.assert_allclose(
        norm.value.reshape(x.shape)[..., 0], [[-1 / s, 2 / s, -6 / t, 8 / t], [0, 0, 0, 0]]
    )


def test_max_pool2d_by_hand() -> None:
    x = np.arange(20).reshape(1, 4, 5)
    pool = reference.max_pool2d
    np.testing.assert_array_equal(pool(x, 2), [[[6, 8], [16, 18]]])
    np.testing.assert_array_equal(pool(x, 2, ceil_mode=True), [[[6, 8, 9], [16, 18, 19]]])
    np.testing.assert_array_equal(pool(x, (3, 2), 1), [[[11, 12, 13, 14], [16, 17, 18, 19]]])
    np.testing.assert_array_equal(pool(x, 2, (3, 2), (1, 0)), [[[1, 3], [16, 18]]])
    np.testing.assert_array_equal(pool(x, 2, 1, 0, (3, 4)), [[[19]]])
    np.testing.assert_array_equal(pool(-x, 2, 2, 1), [[[0, -1, -3], [-5, -6, -8], [-15, -16, -18]]])
    # A last window that would start in the padding after the input is left out.
    np.testing.assert_array_equal(pool(np.ones((1, 2, 2)), 2, 2, 1, 1, True).shape, (1, 2, 2))
    odd = np.array([[[np.nan, -np.inf], [-np.inf, -np.inf]]])
    np.testing.assert_array_equal(pool(odd, 1), odd)
    np.testing.assert_array_equal(pool(odd, 2), [[[np.nan]]])


def test_fused_by_hand() -> None:
    """A 1x1 kernel of 1, statistics that change nothing, one window, one value in each group."""
    x = np.array([[[[1.0, 2.0], [3.0, 4.0]]]])
    one, zero = np.ones(1), np.zeros(1)
    fused = reference.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
        x, np.ones((1, 1, 1, 1)), one / 4, zero, one, zero + 5,
        num_groups=1, mean=zero, var=one, eps=0.0,
    )  # fmt: skip
    np.testing.assert_allclose(fused.activated, np.tanh(x / 4))
    np.testing.assert_allclose(fused.pooled, [[[[np.tanh(1.0)]]]])
    assert fused.group.mean == np.tanh(1.0)
    assert fused.group.variance == 0
