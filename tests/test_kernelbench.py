"""The convolutions of KernelBench's level 1 at full size, against float64 sums at some outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cupyconv
from benchmarks.data import uniform
from device_data import check_outputs, outputs

CASES = json.loads(
    (Path(__file__).parents[1] / "benchmarks" / "kernelbench_l1.json").read_text(encoding="utf-8")
)


def run(case: dict[str, Any], x: Any, w: Any, bias: Any, out: Any) -> Any:
    options = {name: case[name] for name in ("stride", "padding", "dilation", "groups")}
    if case["transposed"]:
        options["output_padding"] = case["output_padding"]
        return cupyconv.conv_transpose(x, w, bias, **options, out=out)
    return cupyconv.conv(x, w, bias, **options, out=out)


@pytest.mark.gpu
@pytest.mark.parametrize("low", [-1.0, 0.0], ids=["both_signs", "positive"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_full_size(case: dict[str, Any], low: float) -> None:
    import cupy

    rng = np.random.default_rng()
    seed = int(rng.integers(2**32))
    x = uniform(tuple(case["input"]), "float32", seed, low)
    w = uniform(tuple(case["weight"]), "float32", seed + 1, low)
    bias = uniform((case["output"][1],), "float32", seed + 2, low) if case["bias"] else None
    out = cupy.full(case["output"], np.nan, "float32")
    assert run(case, x, w, bias, out) is out
    assert not cupy.isnan(out).any(), "outputs that nothing was written to"
    places = outputs(rng, out.shape, 48)
    assert check_outputs(case, x, w, bias, out, places) >= 48, f"seed {seed}"
