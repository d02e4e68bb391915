"""Arrays of more than 2**31 elements, and axes longer than that, on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cupyconv
from benchmarks.data import uniform
from device_data import check_outputs, outputs

pytestmark = pytest.mark.gpu

LIMIT = 2**31


@pytest.fixture(autouse=True)
def released() -> Any:
    """Gives the pool's memory back, so that the next array of many gigabytes finds its place."""
    import cupy

    yield
    cupy.get_default_memory_pool().free_all_blocks()


def geometry(case: dict[str, Any]) -> dict[str, Any]:
    rank = len(case["weight"]) - 2
    ones, zeros = [1] * rank, [0] * rank
    given = {"transposed": False, "stride": ones, "padding": zeros, "dilation": ones, "groups": 1}
    return {**given, **case}


CONVOLUTIONS = {
    "many_outputs": {"input": (1, 1, 32768, 33000), "weight": (2, 1, 1, 3)},
    "many_inputs": {"input": (2, 1, 33000, 33000), "weight": (2, 1, 3, 3), "stride": [4, 4]},
    "many_of_both_transposed": {
        "transposed": True,
        "input": (1, 1, 46400, 46400),
        "weight": (1, 1, 2, 3),
        "padding": [1, 1],
    },
    "wide_rows": {"input": (1, 20, 12000, 9100), "weight": (20, 20, 1, 1)},
    "one_long_axis": {"input": (1, 1, LIMIT + 1001), "weight": (1, 1, 3), "stride": [2]},
    "one_long_axis_transposed": {
        "transposed": True,
        "input": (1, 1, LIMIT // 3 + 501),
        "weight": (1, 1, 2),
        "stride": [3],
    },
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str) -> None:
    import cupy

    case = geometry(CONVOLUTIONS[name])
    x = uniform(case["input"], "float16", 1)
    w = uniform(case["weight"], "float16", 2)
    function = cupyconv.conv_transpose if case["transposed"] else cupyconv.conv
    y = function(x, w, stride=case["stride"], padding=case["padding"], dilation=case["dilation"])
    assert max(x.size, y.size) > LIMIT
    assert not cupy.isnan(y).any()
    assert check_outputs(case, x, w, None, y, outputs(np.random.default_rng(), y.shape, 64)) >= 64


def test_batch_norm() -> None:
    x = uniform((3, 2, 20000, 18000), "float16", 3, 2.0, 6.0)
    assert x.size > LIMIT
    y = cupyconv.batch_norm(x)
    # Uniform on [2, 6]: mean 4, variance 16/12; the statistics of 10**9 values are as good as that.
    for place in outputs(np.random.default_rng(), y.shape, 64):
        expected = (float(x[place]) - 4) / np.sqrt(16 / 12)
        assert float(y[place]) == pytest.approx(expected, abs=2e-3)


def test_max_pool2d() -> None:
    import cupy

    x = uniform((2, 2, 24000, 23000), "float16", 4)
    assert x.size > LIMIT
    y = cupyconv.max_pool2d(x, 2)
    for n, c, h, w in outputs(np.random.default_rng(), y.shape, 64):
        assert y[n, c, h, w] == cupy.max(x[n, c, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2])


def test_out_of_memory_leaves_the_library_working() -> None:
    import cupy

    x = uniform((1, 1, 8, 8), "float32", 5)
    w = uniform((1, 1, 3, 3), "float32", 6)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupyconv.conv_transpose2d(x, w, stride=2**20)
    assert cupyconv.conv2d(x, w).shape == (1, 1, 6, 6)
