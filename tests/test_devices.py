"""Streams, devices and allocators of CuPy: a call runs where and with what CuPy says by then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cupyconv

pytestmark = pytest.mark.gpu


def test_current_stream() -> None:
    """Work on a busy stream is not overtaken, and the call itself does not wait for it."""
    import cupy

    x = cupy.zeros((1, 1, 64, 64), "float32")
    w = cupy.ones((1, 1, 3, 3), "float32")
    cupyconv.conv2d(x, w)
    big = cupy.ones((1, 64, 512, 512), "float32")
    kernel = cupy.ones((64, 64, 3, 3), "float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(20):
            cupyconv.conv2d(big, kernel)
        x.fill(1)
        y = cupyconv.conv2d(x, w)
        assert not stream.done, "the calls waited for the stream"
        stream.synchronize()
        assert (y == 9).all()


def calls_with_workspaces() -> list[Any]:
    """Results of a convolution with packed weights, one with casts, a norm, the fused operation."""
    import cupy

    rng = np.random.default_rng(0)
    x, w = (cupy.asarray(rng.random(s, "float32")) for s in ((4, 64, 24, 24), (64, 64, 3, 3)))
    c = cupy.ones(64, "float32")
    fused = cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm
    return [
        cupyconv.conv2d(x, w),
        cupyconv.conv_transpose2d(x.astype("float16"), w, stride=2),
        cupyconv.batch_norm(x),
        fused(x, w, c, c, c, c, num_groups=8),
    ]


def test_streams_side_by_side() -> None:
    """Workspaces of calls that run at the same time are not one another's."""
    import cupy

    expected = calls_with_workspaces()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    cupy.cuda.Device().synchronize()
    results = []
    for _ in range(10):
        for stream in streams:
            with stream:
                results.append(calls_with_workspaces())
    for stream in streams:
        stream.synchronize()
    for result in results:
        for y, right in zip(result, expected, strict=True):
            assert (y == right).all()


@pytest.mark.parametrize("kind", ["no pool", "pool", "managed", "asynchronous"])
def test_allocators(kind: str) -> None:
    import cupy

    expected = calls_with_workspaces()
    pools = {
        "no pool": None,
        "pool": cupy.cuda.MemoryPool().malloc,
        "managed": cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc,
        "asynchronous": cupy.cuda.MemoryAsyncPool().malloc,
    }
    with cupy.cuda.using_allocator(pools[kind]):
        for _ in range(3):
            results = calls_with_workspaces()
            others = [cupy.full(2**k, k, "float32") for k in range(22)]
            for y, right in zip(results, expected, strict=True):
                assert (y == right).all()
            for other in others:
                assert (other == np.log2(other.size)).all()
        del results, others, y, other


# The first launches of two kernels that declare shared memory, with nearly 48 KiB beside it.
NEARLY_UNASKED = """
import cupy

import cupyconv

x = cupy.arange(6120, dtype=DTYPE).reshape(1, 1, 6120)
cupyconv.group_norm(x, 1)
one = cupy.ones(54, "float32")
image = cupy.ones((1, 6, 17, 40), "float16")
kernel = cupy.ones((6, 27, 3, 2), "float16")
cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
    image, kernel, one, one, one, one, num_groups=3, stride=2, padding=((1, 1), (0, 0)),
    output_padding=1, groups=2, mean=one, var=one,
)
cupy.cuda.Device().synchronize()
"""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_first_launch_of_a_process_with_nearly_48_kib(dtype: str) -> None:
    """What a kernel declares and what its launch adds are more than a block has unasked."""
    code = NEARLY_UNASKED.replace("DTYPE", repr(dtype))
    environment = {**os.environ, "PYTHONPATH": str(Path(cupyconv.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_every_device_of_this_machine() -> None:
    """Whatever device is the current one, a call runs where its arrays are."""
    import cupy

    rng = np.random.default_rng()
    a, b = rng.standard_normal((2, 3, 8, 8)), rng.standard_normal((3, 5, 3, 3))
    expected = cupyconv.conv_transpose2d(a, b, stride=2)
    count = cupy.cuda.runtime.getDeviceCount()
    for home in range(count):
        with cupy.cuda.Device(home):
            x, w = cupy.asarray(a), cupy.asarray(b)
        for current in range(count):
            with cupy.cuda.Device(current):
                y = cupyconv.conv_transpose2d(x, w, stride=2)
                z = cupyconv.batch_norm(x)
                assert cupy.cuda.runtime.getDevice() == current
            assert y.device.id == z.device.id == home
            with cupy.cuda.Device(home):
                np.testing.assert_allclose(cupy.asnumpy(y), expected, rtol=0, atol=1e-12)
                np.testing.assert_allclose(
                    cupy.asnumpy(z), cupyconv.batch_norm(a), rtol=0, atol=1e-12
                )
