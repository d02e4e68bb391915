"""Devices that kernels run on: a CUDA device through CuPy, or an object that replaces it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from . import _compile, _dependent_launch, _tensor_maps
from ._arrays import Array
from ._kernels.launches import SHARED, TARGETS, Instance, Launch, Processor
from ._packing import Arguments
from ._tensor_maps import Boxes, Pixels

if TYPE_CHECKING:
    from cupy.cuda.function import Function


class Device(Protocol):
    """A device that kernels run on."""

    def processor(self) -> Processor:
        """Return the properties of the device that plans depend on."""

    def address(self, array: Array) -> int:
        """Return the address of the first element of `array`."""

    def tensor_map(self, address: int, array: Boxes | Pixels) -> tuple[int, ...]:
        """Return the words of the tensor map of an array at an address, a multiple of 16."""

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call."""

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` itself if it has `dtype`, else a cast copy in C order in workspace."""

    def split(self, array: Array, real: Array, imag: Array, conjugate: bool = False) -> None:
        """Write the parts of the numbers of `array`, or of their conjugates, to float32 arrays.

        `array` is complex64, or of a real dtype that is cast to it.
        """

    def conjugate(self, array: Array) -> Array:
        """Return the conjugate numbers in workspace."""

    def transform(
        self, spectrum: Array, lengths: tuple[int, ...], dtype: np.dtype, inverse: bool
    ) -> None:
        """Transform the last axes of arrays of `dtype`, in their own memory and without a scale.

        `lengths` are those of the arrays; `spectrum` is the memory as complex numbers.
        """

    def write(self, values: Array, bias: Array | None, out: Array) -> None:
        """Write values to `out`, with a bias that is broadcast to them."""

    def load(self, launches: Iterable[Launch]) -> None:
        """Load the kernels of launches at the same time, since each may take seconds to compile."""

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return a function that launches a kernel with packed arguments on the current stream.

        The function is valid for the device that is current now.
        """


@lru_cache(maxsize=64)
def processor_of(device: int) -> Processor:
    """Return the properties of a CUDA device, with the last of the targets that it can run."""
    from cupy.cuda import runtime

    properties = runtime.getDeviceProperties(device)
    capability = 10 * properties["major"] + properties["minor"]
    runnable = [
        target
        for target in TARGETS
        if int(target.strip("sm_a")) <= capability and ("a" not in target or capability == 90)
    ]
    return Processor(runnable[-1] if runnable else TARGETS[0], properties["multiProcessorCount"])


_functions: dict[tuple[Instance, int], Function] = {}  # the loaded kernels, by device


def _function_of(instance: Instance, device: int) -> Function:
    """Return a kernel on the current device, whose blocks may use all shared memory of a block.

    CUDA's default limit is 48 KiB for the static and the dynamic shared memory together. The limit
    is raised once, when the function is loaded, and so never depends on earlier launches.
    """
    function = _functions.get((instance, device))
    if function is None:
        kernel = _compile.kernel(instance)
        limit = SHARED[processor_of(device).target]
        kernel.max_dynamic_shared_size_bytes = limit - kernel.shared_size_bytes
        function = _functions[instance, device] = kernel.kernel
    return function


class CupyDevice:
    """The current CUDA device, through CuPy."""

    def __init__(self) -> None:
        import cupy
        from cupy.cuda.function import CPointer

        self._cupy, self._runtime, self._pointer = cupy, cupy.cuda.runtime, CPointer
        self._split = cupy.ElementwiseKernel(
            "complex64 number, bool conjugate",
            "float32 real_part, float32 imag_part",
            "real_part = number.real(); imag_part = conjugate ? -number.imag() : number.imag();",
            "cupyconv_split",
        )

    def processor(self) -> Processor:
        """Return the properties of the device that plans depend on."""
        return processor_of(self._runtime.getDevice())

    def address(self, array: Array) -> int:
        """Return the address of the first element of `array`."""
        return array.data.ptr  # type: ignore[no-any-return]

    def tensor_map(self, address: int, array: Boxes | Pixels) -> tuple[int, ...]:
        """Return the words of the tensor map of an array at an address, a multiple of 16."""
        return _tensor_maps.encode(address, array)

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call.

        During a stream capture the memory belongs to the graph itself. CuPy's pool would hand out
        its block again after the capture, and each replay would overwrite the new owner's data.
        """
        cupy = self._cupy
        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            return cupy.ndarray(shape, dtype)
        size = max(1, int(np.prod(shape)) * dtype.itemsize)
        memory = cupy.cuda.memory.MemoryAsync(size, stream)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` itself if it has `dtype`, else a cast copy in C order in workspace."""
        if array.dtype == dtype:
            return array
        copy = self.workspace(array.shape, dtype)
        copy[...] = array
        return copy

    def split(self, array: Array, real: Array, imag: Array, conjugate: bool = False) -> None:
        """Write the parts of the numbers of `array`, or of their conjugates, to float32 arrays.

        `array` is complex64, or of a real dtype that is cast to it. One kernel reads each complex
        number once and writes both of its parts.
        """
        if array.dtype.kind == "c":
            self._split(array, conjugate, real, imag)
        else:
            real[...] = array
            imag[...] = -0.0 if conjugate else 0.0

    def conjugate(self, array: Array) -> Array:
        """Return the conjugate numbers in workspace."""
        copy = self.workspace(array.shape, array.dtype)
        self._cupy.conjugate(array, out=copy)
        return copy

    def transform(
        self, spectrum: Array, lengths: tuple[int, ...], dtype: np.dtype, inverse: bool
    ) -> None:
        """Transform the last axes of arrays of `dtype`, in their own memory and without a scale.

        `lengths` are those of the arrays; `spectrum` is the memory as complex numbers.
        """
        from ._transforms import plan

        batch = int(np.prod(spectrum.shape[: -len(lengths)]))
        found, direction = plan(lengths, batch, dtype, inverse)
        found.fft(spectrum, spectrum, direction)

    def write(self, values: Array, bias: Array | None, out: Array) -> None:
        """Write values to `out`, with a bias that is broadcast to them."""
        if bias is None:
            out[...] = values
        else:
            self._cupy.add(values, bias, out=out, casting="unsafe")

    def load(self, launches: Iterable[Launch]) -> None:
        """Load the kernels of launches at the same time, since each may take seconds to compile.

        The compiler runs without the interpreter's lock. The first error in the order of the
        launches is raised when all threads have ended.
        """
        device = self._runtime.getDevice()
        instances = dict.fromkeys(launch.instance for launch in launches)
        missing = [one for one in instances if (one, device) not in _functions]
        if len(missing) < 2:
            return  # `launcher` loads it
        from concurrent.futures import ThreadPoolExecutor

        def load(instance: Instance) -> None:
            self._runtime.setDevice(device)
            _function_of(instance, device)

        with ThreadPoolExecutor(len(missing)) as pool:
            list(pool.map(load, missing))

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return a function that launches a kernel with packed arguments on the current stream.

        The function is valid for the device that is current now.
        """
        function = _function_of(launch.instance, self._runtime.getDevice())
        dependent = _dependent_launch.driver() if launch.early else None
        if dependent:
            return _dependent_launch.launcher(
                dependent, function, launch.grid, launch.block, launch.shared
            )
        start, pointer = function.linear_launch, self._pointer
        threads, block, shared = launch.grid * launch.block, launch.block, launch.shared

        def run(arguments: Arguments) -> None:
            # CuPy uses its own pointer type as it is, but looks up the address of other arguments.
            start(threads, (pointer(arguments.buffer_info()[0]),), shared, block)

        return run
