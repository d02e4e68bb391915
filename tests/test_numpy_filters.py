"""Each way in which NumPy arrays of one channel are filtered, against the definition.

Small integers have exact sums, so that all ways agree to the last bit.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupyconv
from benchmarks import on_numpy
from bounds import assert_same_bits
from cupyconv import _numpy_filters
from cupyconv._numpy_filters import Axis, add_filtered
from reference import Array

SMALL = st.integers(1, 5)
AXES = st.lists(
    st.builds(Axis, SMALL, SMALL, st.integers(0, 6), st.integers(1, 12), st.integers(1, 9)),
    min_size=1,
    max_size=3,
)


def filtered(values: Array, weights: Array, axes: list[Axis], transposed: bool) -> Array:
    """The definition: a sum over all pairs of positions and taps."""
    space = [axis.long if transposed else axis.short for axis in axes]
    out = np.zeros((len(values), *weights.shape[:2], *space), values.dtype)
    for tap in itertools.product(*map(range, weights.shape[2:])):
        for short in itertools.product(*(range(axis.short) for axis in axes)):
            long = [
                position * axis.stride - axis.pad + k * axis.dilation
                for axis, position, k in zip(axes, short, tap, strict=True)
            ]
            if all(0 <= at < axis.long for at, axis in zip(long, axes, strict=True)):
                source, target = (short, tuple(long)) if transposed else (tuple(long), short)
                factor = weights[(..., *tap)]
                out[(..., *target)] += values[(..., *source)][..., None] * factor
    return out


def integers(data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> Array:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return rng.integers(-4, 5, shape).astype(dtype)


def arrays(
    data: st.DataObject, axes: list[Axis], transposed: bool, dtype: Any
) -> tuple[Array, Array]:
    """Values and weights of one to three samples, groups and rows."""
    few = st.integers(1, 3)
    batch, groups, rows = (data.draw(few) for _ in range(3))
    kernel = [data.draw(st.integers(1, 4)) for _ in axes]
    space = [axis.short if transposed else axis.long for axis in axes]
    values = integers(data, (batch, groups, *space), dtype)
    return values, integers(data, (groups, rows, *kernel), dtype)


@given(st.data(), AXES, st.booleans(), st.sampled_from(["f4", "f8", "i1", "u8"]), st.booleans())
def test_each_way_is_the_definition(
    data: st.DataObject, axes: list[Axis], transposed: bool, dtype: str, tiny: bool
) -> None:
    """With tiles, bands, scalar products and partial sums of a few elements, and of all."""
    values, weights = arrays(data, axes, transposed, dtype)
    expected = filtered(values, weights, axes, transposed)
    with pytest.MonkeyPatch.context() as patched:
        if tiny:
            for name, limit in (
                ("_TILE", 7),
                ("PARTIAL_TAPS", 3),
                ("_DOT_TAPS", 3),
                ("_DOT_PRODUCTS", 1),
                ("_BAND_LINES", 2),
            ):
                patched.setattr(_numpy_filters, name, limit)
        out = np.zeros(expected.shape, expected.dtype)
        add_filtered(values, weights, out, axes, transposed)
    assert_same_bits(out + 0, expected + 0)


@given(st.data(), AXES, st.booleans())
def test_infinities_reach_their_outputs_alone(
    data: st.DataObject, axes: list[Axis], transposed: bool
) -> None:
    """And a sample that has one changes no bit of another."""
    values, weights = arrays(data, axes, transposed, "f8")
    weights[weights == 0] = 1
    values[(slice(None), slice(None), *(0 for _ in axes))] = np.inf
    values[1:] = integers(data, values[1:].shape, "f8") / 3
    with np.errstate(invalid="ignore"):
        out = np.zeros((len(values), *filtered(values[:1], weights, axes, transposed).shape[1:]))
        alone = np.zeros_like(out)
        expected = filtered(values[:1], weights, axes, transposed)
        add_filtered(values, weights, out, axes, transposed)
        for sample in range(len(values)):
            one = slice(sample, sample + 1)
            add_filtered(values[one], weights, alone[one], axes, transposed)
    assert_same_bits(out, alone)
    assert_same_bits(out[:1] + 0, expected + 0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("padding", [0, 3, 700, "same"])
def test_signals_are_numpy_s(dtype: str, padding: Any) -> None:
    """A convolution is `numpy.correlate`, a transposed one `numpy.convolve`, which flips."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, 3000).astype(dtype), rng.integers(-4, 5, 2111).astype(dtype)
    before = 1055 if padding == "same" else padding
    full = np.correlate(x, w, "full")
    out = cupyconv.conv1d(x[None], w[None, None], padding=padding)[0]
    assert_same_bits(out, full[len(w) - 1 - before :][: out.size])
    full = np.convolve(x, w)
    out = cupyconv.conv_transpose1d(x[None], w[None, None], padding=padding)[0]
    assert_same_bits(out, full[before:][: out.size])


def test_long_sums_stay_accurate() -> None:
    """All terms are positive, so that rounding errors do not cancel."""
    rng = np.random.default_rng(0)
    x, w = (rng.random(size, np.float32) for size in (66_000, 65_536))
    out = cupyconv.conv1d(x[None], w[None, None])[0]
    exact = np.correlate(x.astype(float), w.astype(float))
    assert np.linalg.norm(out - exact) <= 1e-6 * np.linalg.norm(exact)
    image, kernel = rng.random((300, 300), np.float32), rng.random((255, 257), np.float32)
    out = cupyconv.conv2d(image[None, None], kernel[None, None])
    exact = cupyconv.conv2d(image[None, None].astype(float), kernel[None, None].astype(float))
    assert np.linalg.norm(out - exact) <= 1e-6 * np.linalg.norm(exact)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_benchmark_beside_scipy(
    dtype: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asserts that all of a line compute the same."""
    monkeypatch.setattr(on_numpy, "IMAGE", (40, 50))
    monkeypatch.setattr(on_numpy, "KERNELS", (3, 5))
    monkeypatch.setattr(on_numpy, "SIGNALS", ((900, 11), (700, 200)))
    monkeypatch.setattr(on_numpy, "ENOUGH", 0)
    monkeypatch.setattr("sys.argv", ["on_numpy", "--dtype", dtype])
    on_numpy.main()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith(f"{dtype}; milliseconds of processor time")
    assert len(lines) == 2 + 2 + 4
    assert all("cupyconv" in line for line in lines)
