"""Launches of kernels that may begin before the one in front of them has ended.

So the time that a kernel takes to begin passes while the other one still runs. CuPy has no call for
it, which NVIDIA's programming guide calls a programmatic dependent launch: this one goes to the
driver itself. The kernel waits, where it needs what the other one writes (``wait_for_grids`` in
``kernels/ptx.cuh``).
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_DRIVER = 12040  # since then, such launches may be captured into graphs


class _Attribute(ctypes.Structure):  # CUlaunchAttribute
    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_int * 15),
    )


class _Config(ctypes.Structure):  # CUlaunchConfig
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@lru_cache(maxsize=1)
def driver() -> Callable[..., int] | None:
    """Return the driver's launch with attributes, None where it has none that serves."""
    from cupy.cuda import runtime

    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        start: Any = library.cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    start.argtypes = (
        ctypes.POINTER(_Config),
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
    )
    start.restype = ctypes.c_int
    return start if runtime.driverGetVersion() >= _DRIVER else None


def launcher(
    start: Callable[..., int], function: Any, grid: int, block: int, shared: int
) -> Callable[[array[int]], None]:
    """Return what puts a function of CuPy's, with its packed arguments, on the current stream."""
    from cupy import cuda

    attribute = _Attribute(_EARLY, value=1)
    sizes = (grid, 1, 1), (block, 1, 1), shared

    @lru_cache(maxsize=16)
    def config(stream: int) -> _Config:
        return _Config(*sizes, stream, ctypes.pointer(attribute), 1)

    def run(arguments: array[int]) -> None:
        parameter = ctypes.c_void_p(arguments.buffer_info()[0])
        stream = cuda.get_current_stream().ptr
        status = start(config(stream), function.ptr, ctypes.byref(parameter), None)
        if status:
            raise cuda.driver.CUDADriverError(status)

    return run
