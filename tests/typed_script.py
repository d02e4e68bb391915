"""A user's script, which test_packaging.py checks by mypy in strict mode, and runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import cupyconv
from cupyconv import cudnn, grad, signal

AnyArray = NDArray[Any]


def convolutions(x: NDArray[np.float32]) -> None:
    """A NumPy array gives a NumPy array, whatever the other arrays hold."""
    w = np.ones((4, 4, 3, 3), np.float32)
    bias, out = np.zeros(4), np.empty((1, 4, 6, 6))
    assert_type(cupyconv.conv2d(x, w), AnyArray)
    assert_type(cupyconv.conv2d(x, w[:, :2], bias, (2, 1), "same", groups=2), AnyArray)
    assert_type(cupyconv.conv2d(x, w.astype(np.float64), out=out), AnyArray)
    assert_type(cupyconv.conv(x, w, padding=[(1, 0), (0, 1)], precision="tf32"), AnyArray)
    assert_type(cupyconv.conv1d(x[0, :, 0], w[:, :, 0]), AnyArray)
    assert_type(cupyconv.conv3d(x[:, :, None], w[:, :, None]), AnyArray)
    assert_type(cupyconv.depthwise_conv2d(x, w[:, :1], dilation=2), AnyArray)
    y = cupyconv.conv_transpose2d(x, w, bias, stride=2, output_padding=(0, 1))
    assert_type(y.astype(np.float32), NDArray[np.float32])
    assert_type(cupyconv.conv_transpose(x, w, groups=2), AnyArray)
    assert_type(cupyconv.conv_transpose2d(x, w, stride=2, output_size=(17, 18)), AnyArray)
    assert_type(cupyconv.conv_transpose1d(x[0, :, 0], w[:, :, 0]), AnyArray)
    assert_type(cupyconv.conv_transpose3d(x[:, :, None], w[:, :, None]), AnyArray)


def gradients(x: NDArray[np.float32], w: NDArray[np.float32]) -> None:
    y = cupyconv.conv2d(x, w)
    assert_type(grad.conv2d_input(x.shape, w, y), AnyArray)
    assert_type(grad.conv2d_weight(x, w.shape, y, precision="tf32"), AnyArray)
    gx, gw = np.empty_like(x), np.empty_like(w)
    options = 0, (1, 1), (1, 1), 1
    mode = {"deterministic": True, "auto_tune": False}
    cudnn.convolution_backward_data(w, y, None, gx, *options, **mode, tensor_core="never")
    cudnn.convolution_backward_filter(x, y, gw, *options, **mode, tensor_core="never")


def signals(x: NDArray[np.float32], v: NDArray[np.float64]) -> None:
    assert_type(signal.convolve(x, v, "same", axes=(2, 3)), AnyArray)
    assert_type(signal.correlate(x, x, mode="valid", method="direct", axes=-1), AnyArray)


def the_rest(x: NDArray[np.float32], c: NDArray[np.float64]) -> None:
    assert_type(cupyconv.batch_norm(x), AnyArray)
    assert_type(cupyconv.batch_norm(x, mean=c, var=c, eps=1e-3), AnyArray)
    assert_type(cupyconv.group_norm(x, 2, c, c), AnyArray)
    assert_type(cupyconv.max_pool2d(x, (2, 3), ceil_mode=True), AnyArray)
    fused = cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm
    assert_type(fused(x, np.ones((4, 4, 3, 3)), c, c, c, c, num_groups=2), AnyArray)
    call = cupyconv.explain(cupyconv.conv2d, x, (4, 4, 3, 3), target="sm_80", stride=2)
    assert_type(call.out_shape, tuple[int, ...])
    assert_type(call.limit_ms, float)
    cupyconv.show_config()
    with cupyconv.precision("tf32") as block:
        assert_type(block, cupyconv.precision)
    assert_type(cupyconv.precision("tf32")(len)([1]), int)


def cupy_arrays(x: Any) -> None:
    """CuPy has no type stubs."""
    assert_type(cupyconv.conv2d(x, x), Any)


def wrong_calls(x: NDArray[np.float32]) -> None:
    """In strict mode a comment that hides no error is an error itself."""
    cupyconv.conv2d([[1.0]], x)  # type: ignore[type-var]
    cupyconv.conv2d(x, [[1.0]])  # type: ignore[arg-type]
    cupyconv.conv2d(x, x, stride=2.0)  # type: ignore[arg-type]
    cupyconv.conv_transpose2d(x, x, padding=(1.5, 1))  # type: ignore[arg-type]
    cupyconv.conv2d(x, x, None, 1, 0, 1, 1, "tf32")  # type: ignore[call-arg]
    cupyconv.max_pool2d(x)  # type: ignore[call-arg]
    signal.convolve(x, [[1.0]])  # type: ignore[arg-type]
    cupyconv.group_norm(x, num_groups="2")  # type: ignore[arg-type]
    cupyconv.batch_norm(x).shapes  # type: ignore[attr-defined]  # noqa: B018


if __name__ == "__main__":
    image = np.ones((1, 4, 8, 8), np.float32)
    convolutions(image)
    gradients(image, np.ones((4, 4, 3, 3), np.float32))
    signals(image, np.ones((1, 1, 3, 3)))
    the_rest(image, np.ones(4))
