"""Programmatic dependent launch: a kernel may begin before the previous kernel has ended.

The latency of the kernel's start then overlaps with the previous kernel. CuPy has no such launch,
so this module calls the driver itself. The kernel waits before it reads the previous kernel's
results (``wait_for_grids`` in ``kernels/ptx_barriers.cuh``).
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_DRIVER = 12040  # the first driver that captures such launches into graphs


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
    """Return the driver's cuLaunchKernelEx, or None if the driver lacks it or is too old."""
    from cupy.cuda import runtime

    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        launch: Any = library.cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    launch.argtypes = (
        ctypes.POINTER(_Config),
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
    )
    launch.restype = ctypes.c_int
    return launch if runtime.driverGetVersion() >= _DRIVER else None


def launcher(
    launch: Callable[..., int], function: Any, grid: int, block: int, shared: int
) -> Callable[[array[int]], None]:
    """Return a function that launches the kernel `function` of CuPy on the current stream.

    `launch` is the driver's call. The returned function takes the packed arguments of the kernel.
    """
    from cupy import cuda

    attribute = _Attribute(_SERIALIZATION, value=1)
    sizes = (grid, 1, 1), (block, 1, 1), shared

    @lru_cache(maxsize=16)
    def config(stream: int) -> _Config:
        return _Config(*sizes, stream, ctypes.pointer(attribute), 1)

    def run(arguments: array[int]) -> None:
        parameter = ctypes.c_void_p(arguments.buffer_info()[0])
        stream = cuda.get_current_stream().ptr
        status = launch(config(stream), function.ptr, ctypes.byref(parameter), None)
        if status:
            raise cuda.driver.CUDADriverError(status)

    return run
