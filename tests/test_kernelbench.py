"""The convolutions of KernelBench's level 1 at full size, against float64 sums at some outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cupyconv
from benchmarks.data import count_nan, poison, uniform
from benchmarks.precisions import PRECISIONS
from cupyconv._kernels import choice
from device_data import check_outputs, outputs

CASES = json.loads(
    (Path(__file__).parents[1] / "benchmarks" / "kernelbench_l1.json").read_text(encoding="utf-8")
)


# Two and three axes, both directions, strides, dilations, groups, kernels of one tap.
HANDFUL = ("1/56", "1/58", "1/62", "1/73", "1/75", "1/79", "1/86b")
forced_kernels = pytest.mark.parametrize(
    "kernel", ["portable", pytest.param("hopper", marks=pytest.mark.wgmma)]
)
signs = pytest.mark.parametrize("low", [-1.0, 0.0], ids=["both_signs", "positive"])


def run(case: dict[str, Any], x: Any, w: Any, bias: Any, out: Any, precision: str) -> Any:
    options = {name: case[name] for name in ("stride", "padding", "dilation", "groups")}
    options["precision"] = precision
    if case["transposed"]:
        options["output_padding"] = case["output_padding"]
        return cupyconv.conv_transpose(x, w, bias, **options, out=out)
    return cupyconv.conv(x, w, bias, **options, out=out)


def check(case: dict[str, Any], name: str, low: float) -> None:
    """Compare a case at some of its outputs, in one of the precisions of the benchmarks."""
    import cupy

    precision = PRECISIONS[name]
    dtype = precision.numpy_dtype()
    rng = np.random.default_rng()
    seed = int(rng.integers(2**32))
    x = uniform(tuple(case["input"]), dtype, seed, low)
    w = uniform(tuple(case["weight"]), dtype, seed + 1, low)
    bias = uniform((case["output"][1],), dtype, seed + 2, low) if case["bias"] else None
    out = cupy.empty(case["output"], dtype)
    poison(out)
    assert run(case, x, w, bias, out, precision.mode) is out
    assert not count_nan(out), "outputs that nothing was written to"
    places = outputs(rng, out.shape, 48)
    assert check_outputs(case, x, w, bias, out, places, precision.mode) >= 48, f"seed {seed}"


@pytest.mark.gpu
@signs
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_full_size(case: dict[str, Any], low: float) -> None:
    check(case, "float32", low)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [name for name in PRECISIONS if name != "float32"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_other_precisions(case: dict[str, Any], precision: str) -> None:
    check(case, precision, -1.0)


@pytest.mark.gpu
@forced_kernels
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", HANDFUL)
def test_forced_kernels(name: str, precision: str, kernel: str) -> None:
    (case,) = (case for case in CASES if case["id"] == name)
    with choice.forced(kernel):
        check(case, precision, 0.0)


@pytest.mark.gpu
@forced_kernels
@signs
@pytest.mark.parametrize("channels", [64, 4096, 65_536])
def test_accuracy(channels: int, low: float, kernel: str) -> None:
    """float32 sums are off by at most 1e-6 in the norm, however long they are."""
    import cupy

    x = uniform((2, channels, 15, 16), np.float32, 1, low)
    w = uniform((96, channels, 1, 1), np.float32, 2, low)
    with choice.forced(kernel):
        result = cupyconv.conv2d(x, w).astype(np.float64)
    matrix = w.astype(np.float64).reshape(96, channels)
    exact = (matrix @ x.astype(np.float64).reshape(2, channels, -1)).reshape(result.shape)
    assert cupy.linalg.norm((result - exact).ravel()) <= 1e-6 * cupy.linalg.norm(exact.ravel())
