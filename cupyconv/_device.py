"""What kernels run on: a CUDA device by way of CuPy, or one that stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from . import _compile, _dependent_launch
from ._arrays import Array
from ._kernels.launches import SHARED, TARGETS, Instance, Launch, Processor
from ._packing import Arguments

if TYPE_CHECKING:
    from cupy.cuda.function import Function


class Device(Protocol):
    """What kernels run on."""

    def processor(self) -> Processor:
        """Return what plans know of the device."""

    def address(self, array: Array) -> int:
        """Return the address of the first element."""

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call."""

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in C order in workspace."""

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return what puts a kernel with its packed arguments on the current stream.

        It holds for the device that is the current one now.
        """


@lru_cache(maxsize=64)
def processor_of(device: int) -> Processor:
    """Return what plans know of a CUDA device: of the targets, the last that it can run."""
    from cupy.cuda import runtime

    properties = runtime.getDeviceProperties(device)
    capability = 10 * properties["major"] + properties["minor"]
    able = [
        t
        for t in TARGETS
        if int(t.strip("sm_a")) <= capability and ("a" not in t or capability == 90)
    ]
    return Processor(able[-1] if able else TARGETS[0], properties["multiProcessorCount"])


@lru_cache(maxsize=4096)
def _function_of(instance: Instance, device: int) -> Function:
    """Return a kernel on the current device, whose blocks may take all the shared memory there is.

    By default a block has 48 KiB, what its kernel declares and what its launch adds together. The
    attribute is raised once, as the function is loaded: it never depends on earlier launches.
    """
    kernel = _compile.kernel(instance)
    most = SHARED[processor_of(device).target]
    kernel.max_dynamic_shared_size_bytes = most - kernel.shared_size_bytes
    return kernel.kernel


class CupyDevice:
    """The current CUDA device, by way of CuPy."""

    def __init__(self) -> None:
        import cupy
        from cupy.cuda.function import CPointer

        self._cupy, self._runtime, self._pointer = cupy, cupy.cuda.runtime, CPointer

    def processor(self) -> Processor:
        """Return what plans know of the device."""
        return processor_of(self._runtime.getDevice())

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        return array.data.ptr  # type: ignore[no-any-return]

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call.

        While the stream is being captured the memory comes from the graph itself: a block of
        CuPy's pool would be handed out again after the capture, and overwritten by each replay.
        """
        cupy = self._cupy
        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            return cupy.ndarray(shape, dtype)
        size = max(1, int(np.prod(shape)) * dtype.itemsize)
        memory = cupy.cuda.memory.MemoryAsync(size, stream)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in C order in workspace."""
        if array.dtype == dtype:
            return array
        copy = self.workspace(array.shape, dtype)
        copy[...] = array
        return copy

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return what puts a kernel with its packed arguments on the current stream.

        It holds for the device that is the current one now.
        """
        function = _function_of(launch.instance, self._runtime.getDevice())
        early = _dependent_launch.driver() if launch.early else None
        if early:
            return _dependent_launch.launcher(
                early, function, launch.grid, launch.block, launch.shared
            )
        start, pointer = function.linear_launch, self._pointer
        threads, block, shared = launch.grid * launch.block, launch.block, launch.shared

        def run(arguments: Arguments) -> None:
            # A pointer of its own CuPy takes as it is; the address of an array it looks for anew.
            start(threads, (pointer(arguments.buffer_info()[0]),), shared, block)

        return run
