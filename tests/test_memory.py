"""Device memory: a call takes what its plan says beside its arrays, and keeps none of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cupyconv
from cupyconv import _device
from cupyconv._kernels import choice
from cupyconv._kernels.matrix_conv import MatrixPlan
from planning import conv, conv_transpose, plan_of
from strategies import MODES

pytestmark = pytest.mark.gpu

UNIT = 512  # bytes of which CuPy's pool makes its blocks

CALLS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "conv2d": (conv, (8, 64, 56, 56), (96, 64, 3, 3), {"padding": 1}),
    "conv1d": (conv, (8, 100, 3000), (100, 50, 9), {"groups": 2, "stride": 2}),
    "conv_transpose2d": (conv_transpose, (8, 64, 28, 28), (64, 48, 4, 4), {"stride": 2}),
    "conv_transpose3d": (conv_transpose, (2, 32, 9, 10, 11), (32, 40, 3, 3, 3), {"stride": 2}),
}


@pytest.mark.parametrize(
    "kernel",
    ["portable", pytest.param("hopper", marks=pytest.mark.wgmma)],
)
@pytest.mark.parametrize("mode", MODES, ids=["float32", "tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("function", CALLS)
def test_workspace(function: str, mode: tuple[np.dtype[Any], str], kernel: str) -> None:
    """The packed weights, and no copy of an input or an output."""
    import cupy

    describe, input_shape, weight_shape, options = CALLS[function]
    dtype, precision = mode
    processor = _device.processor_of(cupy.cuda.runtime.getDevice())
    geometry = describe(input_shape, weight_shape, **options)
    plan = plan_of(geometry, dtype, precision, processor, kernel)
    assert isinstance(plan, MatrixPlan)
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        x, w = (cupy.zeros(shape, dtype) for shape in (input_shape, weight_shape))
        out = cupy.empty(geometry.out_shape, dtype)
        before = pool.used_bytes(), pool.total_bytes()
        for _ in range(2):
            with cupyconv.precision(precision), choice.forced(kernel):
                getattr(cupyconv, function)(x, w, **options, out=out)
            assert pool.used_bytes() == before[0], "a call keeps memory"
            # A new pool takes from the device what is in use at once.
            assert pool.total_bytes() - before[1] == -(-plan.workspace // UNIT) * UNIT


@pytest.mark.parametrize("kernel", ["portable", pytest.param("hopper", marks=pytest.mark.wgmma)])
@pytest.mark.parametrize("groups", [1, 2])
def test_workspace_of_parts(groups: int, kernel: str) -> None:
    """What an explanation says: real weights, a real bias, and the parts of a chunk of samples."""
    import cupy

    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc), choice.forced(kernel):
        x, w = (cupy.zeros(s, "complex64") for s in ((8, 64, 128, 128), (64, 64 // groups, 3, 3)))
        bias, out = cupy.zeros(64, "complex64"), cupy.empty((8, 64, 126, 126), "complex64")
        before = pool.used_bytes(), pool.total_bytes()
        for _ in range(2):
            cupyconv.conv2d(x, w, bias, groups=groups, out=out)
            assert pool.used_bytes() == before[0], "a call keeps memory"
        said = cupyconv.explain(cupyconv.conv2d, x, w, bias, groups=groups, out=out).workspace
        assert 0 <= pool.total_bytes() - before[1] - said < 4 * UNIT


@pytest.mark.parametrize("kernel", ["portable", pytest.param("hopper", marks=pytest.mark.wgmma)])
@pytest.mark.parametrize("mode", MODES, ids=["float32", "tf32", "float16", "bfloat16"])
def test_fused_workspace(mode: tuple[np.dtype[Any], str], kernel: str) -> None:
    """No result of the convolution: its extrema, packed weights, 16 bytes a channel and block."""
    import cupy

    dtype, precision = mode
    name = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        x, w = cupy.ones((8, 64, 32, 32), dtype), cupy.ones((64, 128, 5, 5), dtype)
        parameters = [cupy.ones(128, np.float32) for _ in range(4)]
        out = cupy.empty((8, 128, 17, 17), dtype)
        processor = _device.processor_of(cupy.cuda.runtime.getDevice())
        geometry = conv_transpose(x.shape, w.shape, padding=1)
        with choice.forced(kernel):
            plan = choice.plan_fused(geometry, out.shape, 8, np.dtype(dtype), precision, processor)
        assert plan is not None
        before = pool.used_bytes(), pool.total_bytes()
        for _ in range(2):
            with cupyconv.precision(precision), choice.forced(kernel):
                getattr(cupyconv, name)(x, w, *parameters, num_groups=8, padding=1, out=out)
            assert pool.used_bytes() == before[0], "a call keeps memory"
            parts = plan.convolution.packed, 4 * out.size, 16 * 128 * plan.convolution.launch.grid
            taken = sum(-(-part // UNIT) * UNIT for part in parts)
            assert pool.total_bytes() - before[1] == taken
