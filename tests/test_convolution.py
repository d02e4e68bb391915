"""Convolutions and transposed convolutions against their definition, and their identities.

Identities are tested with small integers in any dtype: their sums are exact, so both sides of an
identity are equal to the last bit, whatever the order of summation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cupyconv
from backends import (
    NumpyBackend,
    every_backend,
    every_kernel,
    every_matrix_kernel,
    examples,
)
from bounds import assert_convolution, assert_same_bits
from reference import Array, Shape
from strategies import (
    MODES,
    NO_BORDERS,
    Convolution,
    convolution,
    convolutions,
    exact_convolutions,
    inner,
    rounded_pairs,
    short_sums,
    values,
    zero_stuffed,
)

# For each mistake of a well-known wrong kernel, a case that shows it.
WRONG_KERNEL = {
    "output_padding added to the index": convolution(
        "conv_transpose2d", (1, 2, 3, 4), (2, 2, 3, 3), stride=(2, 3), padding=1,
        output_padding=(1, 2),
    ),
    "divided without a test of divisibility": convolution(
        "conv_transpose2d", (1, 2, 3, 4), (2, 2, 3, 3), stride=(2, 3), padding=1,
    ),
    "groups ignored": convolution(
        "conv_transpose2d", (2, 4, 3, 3), (4, 3, 2, 2), groups=2,
    ),
}  # fmt: skip

# Cases that are easy to get wrong, kept for ever.
EXAMPLES = [
    *WRONG_KERNEL.values(),
    # Kernels, strides, paddings and dilations that differ on each axis.
    convolution("conv2d", (2, 3, 12, 17), (5, 3, 3, 7), bias=True, stride=(2, 3),
                padding=((0, 2), (5, 1)), dilation=(3, 1)),
    convolution("conv_transpose2d", (2, 3, 5, 4), (3, 5, 3, 7), bias=True, stride=(2, 3),
                padding=((0, 2), (5, 1)), dilation=(3, 1)),
    convolution("conv3d", (1, 2, 5, 9, 4), (2, 2, 1, 5, 3), stride=(1, 4, 1),
                padding=(0, 1, 2), dilation=(1, 2, 3)),
    # A stride beyond the kernel leaves inputs unread, or outputs without any product.
    convolution("conv1d", (1, 2, 20), (3, 2, 2), bias=True, stride=7),
    convolution("conv_transpose1d", (1, 2, 4), (2, 3, 2), bias=True, stride=7),
    convolution("conv_transpose2d", (1, 2, 3, 3), (2, 3, 1, 2), bias=True, stride=(5, 4),
                output_padding=(4, 3)),
    # Strides and dilations with and without a common divisor; output_padding up to the dilation.
    convolution("conv_transpose1d", (2, 3, 8), (3, 2, 5), stride=3, dilation=2,
                output_padding=2),
    convolution("conv_transpose1d", (2, 3, 8), (3, 2, 5), stride=4, dilation=6,
                output_padding=5),
    convolution("conv_transpose2d", (1, 2, 4, 4), (2, 2, 3, 2), stride=(3, 4), dilation=(2, 6),
                padding=(1, 2)),
    convolution("conv1d", (1, 2, 40), (2, 2, 4), stride=4, dilation=6, padding=3),
    convolution("conv1d", (1, 2, 5), (2, 2, 2), stride=2**31 - 1),
    convolution("conv1d", (1, 2, 5), (2, 2, 1), dilation=2**31 - 1),
    convolution("conv_transpose1d", (1, 2, 1), (2, 2, 3), stride=2**31 - 1, output_padding=5),
    convolution("conv_transpose1d", (1, 2, 5), (2, 2, 1), dilation=2**31 - 1, output_padding=5),
    # Padding as large as the kernel: some windows lie in it altogether.
    convolution("conv2d", (1, 1, 2, 3), (2, 1, 4, 2), bias=True, padding=5),
    convolution("conv1d", (2, 3, 5), (4, 3, 3), "int8", bias=True,
                stride=2, padding="same"),
    convolution("conv_transpose1d", (2, 3, 5), (3, 4, 2), "uint64", bias=True,
                stride=5, padding="same"),
    # A table of taps of any length.
    convolution("conv1d", (1, 1, 100_005), (1, 1, 100_000), style="positive"),
    convolution("conv1d", (1, 1, 100_005), (1, 1, 100_000), "int32"),
    # More samples, groups or channels than a grid has blocks on its second axis.
    convolution("conv1d", (65_537, 1, 2), (1, 1, 1)),
    convolution("conv_transpose1d", (65_537, 1, 1), (1, 1, 2)),
    convolution("conv1d", (1, 65_537, 2), (65_537, 1, 2), groups=65_537),
    convolution("conv_transpose1d", (1, 65_537, 1), (65_537, 1, 2), groups=65_537),
    convolution("conv1d", (1, 1, 2), (65_537, 1, 1)),
    convolution("conv1d", (1, 65_537, 1), (1, 65_537, 1)),
    convolution("depthwise_conv2d", (1, 3, 5, 6), (6, 1, 2, 3), stride=2, padding=1),
    # Steps of three and five, with pairs of inputs, one of which begins before the first input.
    convolution("conv1d", (2, 9, 70), (70, 9, 3), stride=3, dilation=4),
    convolution("conv2d", (1, 9, 13, 60), (18, 9, 3, 5), stride=(2, 5), padding=(1, 3)),
    # Taps so far apart that only in 64 bits is there a number of the elements between them.
    convolution("conv2d", (1, 1, 3, 128), (1, 1, 3, 3), dilation=(2**24, 1), padding=(2**24, 1)),
    # Nothing to sum up, or nowhere to.
    convolution("conv2d", (2, 0, 3, 3), (4, 0, 2, 2), bias=True, groups=2),
    convolution("conv_transpose2d", (2, 0, 3, 3), (0, 4, 2, 2), bias=True),
    convolution("conv2d", (0, 2, 3, 3), (4, 2, 2, 2), bias=True),
    convolution("conv_transpose2d", (0, 2, 3, 3), (2, 4, 2, 2), bias=True),
    convolution("conv2d", (2, 2, 3, 3), (0, 2, 2, 2), bias=True),
    convolution("conv_transpose2d", (2, 2, 3, 3), (2, 0, 2, 2), bias=True),
    # An input of no length, whose outputs are all padding.
    convolution("conv_transpose2d", (1, 64, 0, 30), (64, 64, 5, 5), bias=True, stride=(2, 1)),
    convolution("conv_transpose2d", (1, 9, 0, 30), (9, 9, 5, 5), stride=(2, 1), precision="tf32"),
    convolution("conv2d", (1, 64, 0, 30), (64, 64, 5, 5), bias=True, padding=((6, 6), (2, 2))),
    convolution("conv2d", (4, 186, 0, 4), (6, 62, 9, 9), stride=(5, 1), dilation=(3, 2), groups=3,
                padding=((18, 7), (13, 13))),
    convolution("conv3d", (1, 18, 0, 6, 4), (18, 9, 11, 2, 5), dilation=5, groups=2,
                padding=((34, 34), (5, 5), (10, 10)), precision="tf32"),
    convolution("depthwise_conv2d", (2, 3, 5, 0), (6, 1, 3, 3), "float16", bias=True, padding=2),
    convolution("conv_transpose2d", (2, 20, 7, 0), (20, 9, 3, 5), precision="tf32"),
    convolution("conv3d", (1, 18, 0, 3, 0), (18, 9, 3, 2, 2), "float16", groups=2, padding=3),
    # A first input that is odd, and after all that a tile reads of the row before it.
    convolution("conv_transpose2d", (1, 8, 22, 1), (8, 24, 1, 1), padding=((0, 2), (1, 0)),
                dilation=(1, 3), output_padding=(0, 2)),
    # Few products: each instruction of a Tensor Core truncates as much as it can.
    convolution("conv_transpose3d", (2, 1, 6, 7, 9), (1, 16, 2, 3, 5), style="uneven", stride=2,
                padding=((0, 0), (2, 0), (2, 0)), output_padding=(0, 1, 1)),
    convolution("conv_transpose2d", (2, 4, 10, 12), (4, 3, 5, 5), style="uneven", stride=(5, 2),
                padding=2, groups=4),
    convolution("conv_transpose2d", (1, 1, 12, 17), (1, 16, 7, 7), style="uneven", stride=(4, 5),
                padding=((3, 3), (0, 0)), output_padding=(0, 2)),
    convolution("conv_transpose2d", (1, 2, 20, 20), (2, 16, 3, 3), style="uneven", stride=(1, 3),
                dilation=(1, 2), groups=2),
    convolution("conv2d", (1, 1, 20, 40), (16, 1, 1, 2), style="uneven"),
    convolution("conv_transpose2d", (1, 1, 20, 30), (1, 32, 2, 2), style="uneven", seed=1,
                stride=(1, 2)),
    convolution("conv2d", (2, 3, 20, 21), (60, 1, 2, 2), style="wide", stride=4, dilation=3,
                padding=1, groups=3),
    # Sums that overflow the result, but not the accumulator; and that overflow half-way.
    convolution("conv1d", (1, 9, 9), (2, 9, 3), "float16", style="wide"),
    convolution("conv1d", (1, 9, 9), (2, 9, 3), ml_dtypes.bfloat16, style="wide"),
]  # fmt: skip


Mode = tuple[np.dtype[Any], str]
every_mode = pytest.mark.parametrize("mode", MODES, ids=["float32", "tf32", "float16", "bfloat16"])


def check(backend: NumpyBackend, case: Convolution) -> None:
    assert_convolution(backend.compute(case), case.defined, case.dtype, case.precision)


# Against the definition ----------------------------------------------------------------------


@every_kernel
@given(case=convolutions())
def test_definition(backend: NumpyBackend, case: Convolution) -> None:
    check(backend, case)


@every_matrix_kernel
@given(case=short_sums())
def test_definition_of_short_sums(backend: NumpyBackend, case: Convolution) -> None:
    check(backend, case)


@every_kernel
@examples(EXAMPLES)
def test_definition_on_examples(backend: NumpyBackend, case: Convolution) -> None:
    check(backend, case)


@pytest.mark.parametrize("mistake", [None, *WRONG_KERNEL])
def test_the_examples_catch_the_well_known_wrong_kernel(mistake: str | None) -> None:
    for name, case in WRONG_KERNEL.items():
        wrong = gathered(case.explicit, mistake)
        if mistake == name:
            with pytest.raises(AssertionError):
                assert_convolution(wrong, case.defined, case.dtype)
        elif mistake is None:
            assert_convolution(wrong, case.defined, case.dtype)


def gathered(case: Convolution, mistake: str | None) -> Array:
    """A transposed convolution by gather, each output on its own, with a mistake or with none."""
    x, w, axes, groups = case["input"], case["weight"], case.axes, case.groups
    inputs, outputs = x.shape[1] // groups, w.shape[1]
    out = np.zeros((x.shape[0], groups * outputs, *(axis.large for axis in axes)), x.dtype)
    for n, channel, *position in np.ndindex(out.shape):
        group, m = divmod(channel, outputs)
        channels = range(group * inputs, (group + 1) * inputs)
        if mistake == "groups ignored":
            channels = range(x.shape[1])
        for tap in np.ndindex(w.shape[2:]):
            index = []
            for o, k, axis in zip(position, tap, axes, strict=True):
                shifted = o + axis.before - k * axis.dilation
                if mistake == "output_padding added to the index":
                    shifted += axis.longer
                if mistake == "divided without a test of divisibility":
                    index.append(int(shifted / axis.stride))  # toward zero, as C++ does
                elif shifted % axis.stride == 0:
                    index.append(shifted // axis.stride)
            if len(index) == len(axes) and all(
                0 <= i < axis.small for i, axis in zip(index, axes, strict=True)
            ):
                for input_channel in channels:
                    factor = w[(input_channel, m, *tap)]
                    out[(n, channel, *position)] += x[(n, input_channel, *index)] * factor
    return out


@every_kernel
@every_mode
def test_padding_is_absence(backend: NumpyBackend, mode: Mode) -> None:
    """A window in the padding has no products, not even with infinite weights."""
    dtype, precision = mode
    for function, shape in (("conv2d", (2, 2, 3, 2)), ("conv_transpose2d", (2, 2, 3, 2))):
        for padding in (0, 1, 4) if function == "conv2d" else (0, 1):
            case = convolution(function, (1, 2, 3, 3), shape, dtype, bias=True, padding=padding,
                               stride=2 if function == "conv_transpose2d" else 1,
                               precision=precision)  # fmt: skip
            check(backend, case.with_arrays(weight=np.full(shape, np.inf, dtype)))


# Cases that kernels on Tensor Cores treat apart: function, shapes and options.
MATRIX: dict[str, tuple[str, Shape, Shape, dict[str, Any]]] = {
    "one axis": ("conv1d", (5, 19, 37), (9, 19, 4), {"padding": (1,)}),
    "polyphase components": (
        "conv2d", (5, 11, 9, 17), (70, 11, 3, 5),
        {"stride": (2, 3), "dilation": (3, 2), "padding": ((0, 2), (5, 1))},
    ),
    "a packed axis": ("conv2d", (5, 9, 3, 23), (5, 9, 3, 3), {"padding": 1}),
    "a packed axis, transposed": ("conv_transpose2d", (5, 9, 3, 23), (9, 5, 2, 4), {"padding": 1}),
    "a packed stride": (
        "conv_transpose2d", (5, 18, 3, 9), (18, 10, 2, 7),
        {"stride": (1, 4), "padding": ((0, 0), (3, 0)), "output_padding": (0, 2)},
    ),
    "phases": (
        "conv_transpose2d", (5, 18, 3, 5), (18, 70, 3, 4), {"stride": (2, 3), "dilation": (1, 2)},
    ),
    "phases without taps": ("conv_transpose2d", (5, 9, 3, 4), (9, 70, 1, 2), {"stride": (2, 5)}),
    "three axes": (
        "conv3d", (5, 9, 4, 3, 5), (10, 9, 3, 2, 3), {"stride": (2, 1, 1), "padding": 1},
    ),
    "three axes, transposed": (
        "conv_transpose3d", (5, 17, 2, 3, 3), (17, 10, 3, 2, 2), {"stride": (2, 1, 2)},
    ),
    "groups": ("conv2d", (5, 30, 4, 5), (24, 10, 3, 3), {"groups": 3, "padding": "same"}),
}  # fmt: skip
every_geometry = pytest.mark.parametrize("geometry", MATRIX)


def matrix_case(geometry: str, mode: Mode) -> Convolution:
    function, input_shape, weight_shape, options = MATRIX[geometry]
    dtype, precision = mode
    return convolution(
        function, input_shape, weight_shape, dtype, bias=True, precision=precision, **options
    )


@every_kernel
@every_mode
@every_geometry
def test_matrix_units(backend: NumpyBackend, mode: Mode, geometry: str) -> None:
    check(backend, matrix_case(geometry, mode))


def special(case: Convolution) -> Convolution:
    """Infinities, NaN and the largest number, each in a sample and in a row of its own.

    The others are small enough for sums with the largest number to be finite. tf32 would round it
    to infinity.
    """
    largest = ml_dtypes.finfo(case.dtype).max
    x, w = (case[name] / case.dtype.type(16) for name in ("input", "weight"))
    rows = w.swapaxes(0, 1) if case.transposed else w
    inside = tuple(n // 2 for n in x.shape[2:])
    for i, value in enumerate((np.inf, np.nan, largest, -np.inf)):
        x[(i, i, *inside)] = value
        # At the first tap, next to the padding, and at the last one.
        rows[(i, i, *(0 for _ in inside))] = value
        rows[(i, i, *(-1 for _ in inside))] = value
    return case.with_arrays(input=x, weight=w)


@every_kernel
@every_mode
@every_geometry
def test_special_values(backend: NumpyBackend, mode: Mode, geometry: str) -> None:
    """They are in the outputs that have them in their sums, and nowhere else."""
    check(backend, special(matrix_case(geometry, mode)))


def every_one_tap(test: Callable[..., None]) -> Any:
    """Run a test on calls of one tap in each mode, of few channels and many, on lines of a kind."""
    channels = pytest.mark.parametrize("channels", [20, 140])
    width = pytest.mark.parametrize("width", [20, 21])
    return every_mode(width(channels(test)))


def special_one_tap(mode: Mode, width: int, channels: int) -> Convolution:
    """Special values in each group, and beside sums that are finite."""
    dtype, precision = mode
    sizes = (4, 2 * channels, 9, width), (140, channels, 1, 1)
    case = special(convolution("conv2d", *sizes, dtype, groups=2, precision=precision))
    x = case["input"]
    x[:, channels:] = x[::-1, :channels]
    return case


@every_backend
@every_one_tap
def test_special_values_of_one_tap(
    backend: NumpyBackend, mode: Mode, width: int, channels: int
) -> None:
    """In each group, and beside sums that are finite."""
    check(backend, special_one_tap(mode, width, channels))


@every_kernel
@pytest.mark.large
@pytest.mark.parametrize("style", ["signed", "positive"])
@pytest.mark.parametrize(
    ("function", "input_shape", "weight_shape"),
    [
        ("conv1d", (1, 16_384, 8), (4, 16_384, 4)),
        ("conv1d", (1, 1, 65_540), (4, 1, 65_535)),
        ("conv_transpose1d", (1, 65_536, 2), (65_536, 4, 1)),
    ],
)
def test_long_sums_do_not_drift(
    backend: NumpyBackend, style: str, function: str, input_shape: Any, weight_shape: Any
) -> None:
    """In float32, about 65,536 products in a sum: an error of at most 1e-6 in the norm."""
    case = convolution(function, input_shape, weight_shape, style=style)
    expected = case.defined.value
    error = np.linalg.norm(backend.compute(case) - expected) / np.linalg.norm(expected)
    assert error <= 1e-6


@every_backend
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_positional_arguments_are_in_the_order_of_the_field(
    backend: NumpyBackend, rank: int
) -> None:
    x, w, b = np.ones((1, 4, 3, 3, 3)[: rank + 2]), np.ones((4, 2, 2, 2, 2)[: rank + 2]), np.ones(4)
    arrays = [backend.asarray(a.astype(np.float32)) for a in (x, w, b)]
    stride, padding, dilation, output_padding, groups = 2, 1, 3, 1, 2
    for suffix in ("", f"{rank}d"):
        assert_same_bits(
            backend.to_numpy(
                backend.call(f"conv{suffix}", *arrays, stride, padding, dilation - 1, groups)
            ),
            backend.to_numpy(
                backend.call(
                    f"conv{suffix}", *arrays, stride=stride, padding=padding,
                    dilation=dilation - 1, groups=groups,
                )
            ),
        )  # fmt: skip
        assert_same_bits(
            backend.to_numpy(
                backend.call(
                    f"conv_transpose{suffix}", *arrays, stride, padding, output_padding, groups,
                    dilation,
                )
            ),
            backend.to_numpy(
                backend.call(
                    f"conv_transpose{suffix}", *arrays, stride=stride, padding=padding,
                    output_padding=output_padding, groups=groups, dilation=dilation,
                )
            ),
        )  # fmt: skip


# Precision -----------------------------------------------------------------------------------

PRECISE = convolution("conv2d", (2, 5, 9, 9), (6, 5, 3, 3), style="positive", padding=1)


@every_kernel
def test_precision(backend: NumpyBackend) -> None:
    """float32 by default; TF32 by keyword or in a block; a keyword wins over a block."""

    def result(setting: str, **options: Any) -> Array:
        array = backend.compute(PRECISE, **options)
        assert_convolution(array, PRECISE.defined, np.float32, setting)
        return array

    full, fast = result("float32"), result("tf32", precision="tf32")
    assert_same_bits(result("float32", precision="float32"), full)
    with cupyconv.precision("tf32"):
        assert_same_bits(result("tf32"), fast)
        assert_same_bits(result("float32", precision="float32"), full)
        with cupyconv.precision("float32"):
            assert_same_bits(result("float32"), full)
        assert_same_bits(result("tf32"), fast)
    assert_same_bits(result("float32"), full)
    with pytest.raises(RuntimeError, match="stop"), cupyconv.precision("tf32"):
        raise RuntimeError("stop")
    assert_same_bits(result("float32"), full)


@every_backend
def test_unknown_precisions_are_refused(backend: NumpyBackend) -> None:
    with pytest.raises(ValueError, match="float16"):
        backend.compute(PRECISE, precision="float16")
    with pytest.raises(ValueError, match="float16"), cupyconv.precision("float16"):
        pass


# Identities ----------------------------------------------------------------------------------


def zeros_before(a: Array, widths: tuple[int, ...]) -> Array:
    """The array with zeros before its last axes."""
    return np.pad(a, [(0, 0)] * (a.ndim - len(widths)) + [(width, 0) for width in widths])


@every_kernel
@given(
    case=exact_convolutions("conv", "conv_transpose", "depthwise_conv2d"),
    factors=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_linearity(backend: NumpyBackend, case: Convolution, factors: tuple[int, int]) -> None:
    """In the input, in the weight, and the bias is added."""
    dtype, rng = case.dtype, np.random.default_rng(0)
    a, b = (np.asarray(factor, dtype) for factor in factors)
    plain = case.with_arrays(bias=None)
    result = backend.compute(plain)
    for name in ("input", "weight"):
        other = values(rng, case[name].shape, dtype, "whole")
        combined = backend.compute(plain.with_arrays(**{name: a * case[name] + b * other}))
        separate = backend.compute(plain.with_arrays(**{name: other}))
        np.testing.assert_array_equal(combined, a * result + b * separate)
    if case.arrays["bias"] is not None:
        bias = case["bias"].reshape(-1, *(1,) * (case["weight"].ndim - 2))
        np.testing.assert_array_equal(
            backend.compute(case), (result + bias).astype(dtype, copy=False)
        )


@every_kernel
@given(case=exact_convolutions("conv", "conv_transpose"))
def test_each_is_the_adjoint_of_the_other(backend: NumpyBackend, case: Convolution) -> None:
    """<f(x, w), y> = <x, f_transposed(y, conj(w))>."""
    assume(all(axis.small and axis.large for axis in case.axes))  # no result has no length
    x, y = case["input"], case.cotangent
    forward = backend.compute(case.with_arrays(bias=None))
    backward = backend.compute(case.adjoint)[tuple(map(slice, x.shape))]
    assert inner(forward, y) == inner(x, backward)


@every_kernel
@given(case=exact_convolutions("conv", "conv_transpose", dtypes=rounded_pairs, borders=NO_BORDERS))
def test_shifts(backend: NumpyBackend, case: Convolution) -> None:
    """A shifted input gives a shifted result, by stride inputs for one output and vice versa."""
    case = case.explicit
    strides = tuple(axis.stride for axis in case.axes)
    ones = (1,) * len(strides)
    into, out_of = (ones, strides) if case.transposed else (strides, ones)
    shifted = case.with_arrays(input=zeros_before(case["input"], into))
    kept = backend.compute(shifted)[(..., *(slice(width, None) for width in out_of))]
    np.testing.assert_array_equal(kept, backend.compute(case))


@every_kernel
@given(case=exact_convolutions("conv", "conv_transpose", dtypes=rounded_pairs))
def test_groups_are_independent(backend: NumpyBackend, case: Convolution) -> None:
    """A grouped call is the concatenation of a call for each group."""
    groups = case.groups
    x, w = np.split(case["input"], groups, axis=1), np.split(case["weight"], groups, axis=0)
    bias = case.arrays["bias"]
    b = [None] * groups if bias is None else np.split(bias, groups)
    options = {**case.options, "groups": 1}
    parts = [
        backend.compute(
            Convolution(case.function, {"input": x[i], "weight": w[i], "bias": b[i]}, options)
        )
        for i in range(groups)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), backend.compute(case))


@every_kernel
@given(case=exact_convolutions("conv", "conv_transpose", dtypes=rounded_pairs))
def test_dilation_is_a_zero_stuffed_kernel(backend: NumpyBackend, case: Convolution) -> None:
    dilation = tuple(axis.dilation for axis in case.axes)
    options: dict[str, Any] = {**case.options}
    if case.transposed:  # without dilation, output_padding has a smaller bound
        options |= {"padding": 0, "output_padding": 0, "output_size": None}
        assume(all(axis.small for axis in case.axes))  # whose outputs may need output_padding
    dilated = Convolution(case.function, case.arrays, options)
    stuffed = Convolution(case.function, case.arrays, {**options, "dilation": 1})
    np.testing.assert_array_equal(
        backend.compute(stuffed.with_arrays(weight=zero_stuffed(case["weight"], dilation))),
        backend.compute(dilated),
    )


@every_kernel
@given(case=exact_convolutions("conv", "conv_transpose", dtypes=rounded_pairs))
def test_a_unit_axis_changes_nothing(backend: NumpyBackend, case: Convolution) -> None:
    """1-D equals 2-D with a unit axis, and so on."""
    case = case.explicit
    neutral = {"stride": 1, "padding": (0, 0), "dilation": 1, "output_padding": 0}
    options = {
        name: (*value, neutral[name]) if name in neutral else value
        for name, value in case.options.items()
    }
    arrays = {"input": case["input"][..., None], "weight": case["weight"][..., None]}
    function = "conv_transpose" if case.transposed else "conv"
    taller = Convolution(function, {**case.arrays, **arrays}, options)
    np.testing.assert_array_equal(backend.compute(taller)[..., 0], backend.compute(case))
