"""Where the demo runs: CuPy where there is a GPU, else NumPy."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.ndimage

Array = Any  # numpy.ndarray or cupy.ndarray


class NumpyBackend:
    """NumPy on the processor; the problems come in a smaller size."""

    full_size = False
    xp: ModuleType = np
    ndimage: ModuleType = scipy.ndimage
    peer = "SciPy"

    def describe(self) -> str:
        return f"NumPy {np.__version__} on {os.cpu_count()} cores, problems at reduced size"

    def to_device(self, array: np.ndarray) -> Array:
        return array

    def to_host(self, array: Array) -> np.ndarray:
        return array

    def milliseconds(self, call: Callable[[], Array]) -> float:
        """Median of five calls."""
        return statistics.median(self._once(call) for _ in range(5))

    def _once(self, call: Callable[[], Array]) -> float:
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)


class CupyBackend:
    """CuPy on the current device, at full size."""

    full_size = True
    peer = "cupyx"

    def __init__(self, cupy: ModuleType) -> None:
        import cupyx.scipy.ndimage

        self.xp, self.ndimage = cupy, cupyx.scipy.ndimage

    def describe(self) -> str:
        cuda = self.xp.cuda
        device = cuda.runtime.getDeviceProperties(cuda.Device().id)["name"].decode()
        return f"CuPy {self.xp.__version__} on one {device}, problems at full size"

    def to_device(self, array: np.ndarray) -> Array:
        return self.xp.asarray(array)

    def to_host(self, array: Array) -> np.ndarray:
        return self.xp.asnumpy(array)

    def milliseconds(self, call: Callable[[], Array]) -> float:
        """Median of twenty calls between CUDA events, after two that are not counted."""
        for _ in range(2):
            call()
        return statistics.median(self._once(call) for _ in range(20))

    def _once(self, call: Callable[[], Array]) -> float:
        start, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        start.record()
        call()
        end.record()
        end.synchronize()
        return self.xp.cuda.get_elapsed_time(start, end)


Backend = NumpyBackend | CupyBackend


def choose() -> Backend:
    try:
        import cupy
    except ImportError:
        return NumpyBackend()
    return CupyBackend(cupy) if cupy.cuda.is_available() else NumpyBackend()
