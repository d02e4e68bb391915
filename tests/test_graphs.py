"""CUDA graphs: a call is captured, other arrays come and go, and replays still do what it did.

A workspace that went back to CuPy's pool after the capture would be handed to those other arrays,
and each replay would write over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cupyconv

pytestmark = pytest.mark.gpu

FUSED = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"


def operands(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    import cupy

    rng = np.random.default_rng()
    return [cupy.asarray(rng.standard_normal(shape).astype(dtype)) for shape in shapes]


def conv_call() -> tuple[list[Any], Callable[..., Any]]:
    return operands((2, 4, 9, 9), (6, 4, 3, 3)), cupyconv.conv2d


def mixed_dtypes_call() -> tuple[list[Any], Callable[..., Any]]:
    x, w = operands((2, 4, 9, 9), (4, 6, 3, 3))
    return [x.astype("float16"), w.astype("float64")], cupyconv.conv_transpose2d


def complex_call() -> tuple[list[Any], Callable[..., Any]]:
    """A call that runs as a real one, between copies of the parts of its numbers."""
    x, w = operands((2, 64, 64, 64), (64, 64, 3, 3), dtype="complex64")
    return [x * (1 + 2j), w * (2 - 1j)], cupyconv.conv2d


def batch_norm_call() -> tuple[list[Any], Callable[..., Any]]:
    return operands((8, 4, 33, 33)), cupyconv.batch_norm


def group_norm_call() -> tuple[list[Any], Callable[..., Any]]:
    return operands((8, 4, 33, 33)), lambda x, out=None: cupyconv.group_norm(x, 2, out=out)


def max_pool_call() -> tuple[list[Any], Callable[..., Any]]:
    return operands((8, 4, 33, 33)), lambda x, out=None: cupyconv.max_pool2d(x, 2, out=out)


def fused_call() -> tuple[list[Any], Callable[..., Any]]:
    arrays = operands((4, 3, 8, 8), (3, 6, 3, 3), *[(6,)] * 4)
    return arrays, lambda *a, out=None: getattr(cupyconv, FUSED)(*a, num_groups=2, out=out)


def fused_float16_call() -> tuple[list[Any], Callable[..., Any]]:
    arrays, function = fused_call()
    return [a.astype("float16") for a in arrays], function


CALLS = [
    conv_call,
    mixed_dtypes_call,
    complex_call,
    batch_norm_call,
    group_norm_call,
    max_pool_call,
    fused_call,
    fused_float16_call,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_replay(call: Callable[..., Any], warm: bool) -> None:
    import cupy

    from cupyconv import _calls, _compile, _device

    arrays, function = call()
    expected = function(*arrays)
    out = cupy.full(expected.shape, np.nan, expected.dtype)
    cupy.cuda.Device().synchronize()  # the stream does not wait for the one that wrote these
    if not warm:
        _compile.kernel.cache_clear()  # the first call of a process may be the captured one
        _device._functions.clear()
        _calls.kept.clear()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        function(*arrays, out=out)
        graph = stream.end_capture()
        # Arrays of all the sizes that a workspace may have had.
        others = [cupy.full(2**k, k, "float32") for k in range(22) for _ in range(4)]
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
        assert (out == expected).all(), "the replay gives another result"
        for other in others:
            assert (other == np.log2(other.size)).all(), "the replay wrote over another array"

        # The graph reads its inputs anew: new contents, new result.
        for array in arrays:
            array += cupy.asarray(np.random.default_rng().random(array.shape)).astype(array.dtype)
        graph.launch(stream)
        stream.synchronize()
        assert (out == function(*arrays)).all(), "the replay does not see new inputs"


@pytest.mark.parametrize("signals", [5, 1])
def test_captured_copies_of_signals(signals: int) -> None:
    """A conjugate, and axes to be joined that lie apart: the graph owns the copies.

    These are the batch axes of several signals, or the filters for one.
    """
    import cupy

    x, v = operands((6, 4, 400), (6, 4, 50), dtype="complex64")
    x, v = (x * (1 + 2j))[:signals, :3], (v * (2 - 1j))[:5, :3]
    expected = cupyconv.signal.correlate(x, v, method="direct", axes=2)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        y = cupyconv.signal.correlate(x, v, method="direct", axes=2)
        graph = stream.end_capture()
        others = [cupy.full(2**k, k, "float32") for k in range(22) for _ in range(4)]
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
        assert (y == expected).all()
        for other in others:
            assert (other == np.log2(other.size)).all(), "the replay wrote over another array"


def test_captured_result_without_out() -> None:
    import cupy

    x, w = operands((2, 4, 9, 9), (6, 4, 3, 3))
    expected = cupyconv.conv2d(x, w)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        y = cupyconv.conv2d(x, w)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        assert (y == expected).all()
