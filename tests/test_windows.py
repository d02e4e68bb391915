"""Numbers of all magnitudes in one sum: floats that Tensor Cores multiply as float16 numbers.

float16 has few exponents, so such sums are computed window by window (kernels/windows.cuh). What a
result may be off by does not depend on how far its terms lie apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends import NumpyBackend, every_kernel, every_matrix_kernel
from bounds import assert_convolution, assert_same_bits
from reference import Array, Shape
from strategies import Convolution, convolution

PRECISIONS = ("float32", "tf32")
# Function, input and weight, and options: one tile, several samples in a tile, rows of two row
# tiles, packed outputs, phases, two taps a step, groups.
CALLS: dict[str, tuple[str, Shape, Shape, dict[str, Any]]] = {
    "plain": ("conv2d", (2, 20, 6, 9), (11, 20, 3, 3), {"padding": 1}),
    "samples": ("conv2d", (5, 9, 4, 4), (70, 9, 2, 3), {}),
    "strided": ("conv2d", (2, 17, 9, 11), (9, 17, 3, 3), {"stride": 2}),
    "phases": ("conv_transpose2d", (2, 18, 3, 5), (18, 70, 3, 4), {"stride": 2}),
    "two taps a step": ("conv1d", (2, 6, 40), (10, 6, 5), {"padding": 2}),
    "groups": ("conv2d", (2, 30, 4, 5), (24, 10, 3, 3), {"groups": 3, "padding": "same"}),
    "three axes": ("conv3d", (2, 9, 4, 3, 5), (10, 9, 3, 2, 3), {"padding": 1}),
}
# How the magnitudes of an array are spread: over what, in powers of two.
SPREADS = (
    *("none", "elements", "first axis", "second axis", "places", "slope"),
    *("a few", "zeros", "specials"),
)


def spread(rng: np.random.Generator, a: Array, kind: str, powers: int, level: int) -> Array:
    """The array with factors of up to 2**powers and down to 2**-powers, and all by 2**level."""
    shape = {
        "elements": a.shape,
        "first axis": (a.shape[0], *(1,) * (a.ndim - 1)),
        "second axis": (1, a.shape[1], *(1,) * (a.ndim - 2)),
        "places": (1, 1, *a.shape[2:]),
    }.get(kind, (1,) * a.ndim)
    factor = np.exp2(rng.integers(-powers, powers + 1, shape) + float(level))
    if kind == "slope":  # so that neighbours are small together
        factor = np.exp2(np.linspace(powers, -powers, a.shape[-1]).round() + level)
    if kind == "none":
        factor = np.exp2(float(level))
    if kind in ("a few", "zeros", "specials"):
        factor = np.full(a.shape, np.exp2(float(level)))
        chosen = rng.random(a.shape) < (0.5 if kind == "zeros" else 0.02)
        other = {"a few": np.exp2(level + rng.choice([-powers, powers], a.shape)), "zeros": 0.0}
        factor = np.where(chosen, other.get(kind, np.inf), factor)
    return (a * factor).astype(a.dtype)


@st.composite
def wide_calls(draw: st.DrawFn) -> Convolution:
    name, precision = draw(st.sampled_from(list(CALLS))), draw(st.sampled_from(PRECISIONS))
    function, input_shape, weight_shape, options = CALLS[name]
    case = convolution(
        function, input_shape, weight_shape, bias=True, precision=precision, **options
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return case.with_arrays(
        **{
            array: spread(
                rng,
                case[array],
                draw(st.sampled_from(SPREADS)),
                draw(st.sampled_from([3, 10, 20, 35])),
                draw(st.sampled_from([0, -20, 20])),
            )
            for array in ("input", "weight")
        }
    )


def wide(name: str, precision: str, of_input: str, of_weight: str, powers: int) -> Convolution:
    """A call of a name, for explicit examples."""
    function, input_shape, weight_shape, options = CALLS[name]
    case = convolution(function, input_shape, weight_shape, precision=precision, **options)
    rng = np.random.default_rng(0)
    return case.with_arrays(
        input=spread(rng, case["input"], of_input, powers, 0),
        weight=spread(rng, case["weight"], of_weight, powers, 0),
    )


def silent(name: str, precision: str, powers: int) -> Convolution:
    """A call whose largest weights meet zeros, so that all others count."""
    case = wide(name, precision, "none", "none", 0)
    x, w = case["input"].copy(), case["weight"].copy()
    x[:, 0] = 0
    (w if case.transposed else w.swapaxes(0, 1))[0] *= np.float32(2.0**powers)
    return case.with_arrays(input=x, weight=w)


def late(precision: str, channels: int = 288, first: int = 256) -> Convolution:
    """A call whose small weights are the last ones of each row, and all that count."""
    case = convolution("conv1d", (1, channels, 9), (64, channels, 1), precision=precision)
    x, w = case["input"].copy(), case["weight"].copy()
    x[:, :first] = 0
    w[:, :first] *= np.float32(2.0**45)
    return case.with_arrays(input=x, weight=w)


def late_taps(precision: str) -> Convolution:
    """The same with more taps than a row has threads, and more channels than one of these loads."""
    case = convolution("conv1d", (1, 24, 152), (64, 24, 150), precision=precision)
    x, w = case["input"].copy(), case["weight"].copy()
    x[:, :20] = 0
    x[:, :, :130] = 0  # what is left meets the taps from 128 on
    small = w[:, 20:, 128:].copy()
    w *= np.float32(2.0**45)
    w[:, 20:, 128:] = small
    return case.with_arrays(input=x, weight=w)


def nearly_zero(
    precision: str, powers: tuple[int, ...], levels: tuple[int, int] = (0, 0)
) -> Convolution:
    """A call of many tiles, in which single numbers count, of one power of two in each sample.

    As if they were zero by chance, and a tile is summed up again for each. All numbers are
    multiplied by the powers of two `levels`, one list for the input and one for the weight.
    """
    shapes = (max(4, len(powers) + 1), 96, 9, 11), (70, 96, 3, 3)
    case = convolution("conv2d", *shapes, padding=1, precision=precision)
    x, w = case["input"].copy(), case["weight"].copy()
    for n, power in enumerate(powers):
        x[n, :, 2:7, 3:8] = 0
        x[n, 70, 4, 5] = 1.37 * 2.0**power
    x, w = (np.ldexp(a, level) for a, level in zip((x, w), levels, strict=True))
    return case.with_arrays(input=x, weight=w)


@every_matrix_kernel
@given(case=wide_calls())
@example(case=wide("plain", "float32", "elements", "none", 20))
@example(case=wide("plain", "tf32", "second axis", "none", 40))
@example(case=wide("plain", "float32", "none", "elements", 20))
@example(case=wide("samples", "float32", "first axis", "second axis", 20))
@example(case=wide("strided", "float32", "elements", "none", 10))
@example(case=wide("three axes", "tf32", "a few", "a few", 20))
@example(case=wide("plain", "float32", "slope", "none", 35))
@example(case=wide("three axes", "tf32", "slope", "none", 25))
@example(case=wide("phases", "float32", "slope", "none", 35))
@example(case=silent("plain", "float32", 20))
@example(case=silent("plain", "float32", 45))
@example(case=silent("phases", "tf32", 33))
@example(case=silent("samples", "float32", 90))
@example(case=late("float32"))
@example(case=late("tf32"))
@example(case=late("float32", 320, 288))
@example(case=late_taps("float32"))
@example(case=late_taps("tf32"))
@example(case=nearly_zero("float32", (-31,)))
@example(case=nearly_zero("tf32", (-31,)))
@example(case=nearly_zero("tf32", (-31, -60, -40)))
@example(case=nearly_zero("tf32", (24, -31)))
@example(case=nearly_zero("tf32", (-60, 24, -100)))
@example(case=nearly_zero("tf32", (-31, -33), (-70, -40)))
def test_magnitudes(backend: NumpyBackend, case: Convolution) -> None:
    assert_convolution(backend.compute(case), case.defined, np.float32, case.precision)


@every_kernel
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["elements", "first axis", "a few", "specials"])
def test_a_sample_beside_others(backend: NumpyBackend, kind: str, precision: str) -> None:
    """What lies beside a sample in a tile changes no bit of it, nor how an array lies in memory."""
    case = wide("samples", precision, "none", "none", 20)
    rng = np.random.default_rng(1)
    x = case["input"].copy()
    x[1:] = spread(rng, x[1:], kind, 40, 0)
    case = case.with_arrays(input=x)
    result = backend.compute(case)
    for n in range(len(x)):
        alone = backend.compute(case.with_arrays(input=x[n : n + 1]))
        assert_same_bits(alone, result[n : n + 1])
    assert_same_bits(backend.compute(case.with_arrays(input=np.asfortranarray(x))), result)


@every_kernel
def test_views_of_a_pointwise_convolution(backend: NumpyBackend) -> None:
    """Its axes are taken for one where they lie so: the shift of a sample stays the same."""
    case = convolution("conv2d", (2, 100, 6, 9), (11, 100, 1, 1))
    x = spread(np.random.default_rng(0), case["input"], "elements", 40, 0)
    wider = np.zeros((2, 100, 6, 12), np.float32)
    wider[..., :9] = x
    result = backend.compute(case.with_arrays(input=x))
    assert_same_bits(backend.compute(case.with_arrays(input=wider[..., :9])), result)
