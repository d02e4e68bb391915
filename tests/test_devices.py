"""Streams and devices: a call runs on its arrays' device and on that device's current stream."""

from __future__ import annotations

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
