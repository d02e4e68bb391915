"""The kinds of arrays that the one suite runs on."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike

import cupyconv
from bounds import assert_same_bits
from cupyconv import _paths
from cupyconv._kernels import choice, launches
from emulator.device import MULTIPROCESSORS, EmulatedDevice, EmulatedPath
from planning import forget
from reference import Array, Shape
from strategies import Case, lay_out, poison


class NumpyBackend:
    """NumPy arrays through the public functions.

    `kernel` is the one by which convolutions run where it can take them; None leaves the choice to
    the planner.
    """

    name = "numpy"

    def __init__(self, kernel: str | None = None) -> None:
        self.kernel = kernel

    def asarray(self, a: Array) -> Any:
        """The backend's array with the values and the memory layout of a."""
        return a

    def to_numpy(self, a: Any) -> Array:
        assert type(a) is np.ndarray, f"NumPy in, but {type(a)} out"
        return a

    def poisoned(self, shape: Shape, dtype: DTypeLike) -> Any:
        """A fresh array full of NaN, or of the largest integer, to be written through ``out``."""
        return self.asarray(poison(np.empty(shape, dtype)))

    def call(self, function: str, *arrays: Any, **options: Any) -> Any:
        with choice.forced(self.kernel):
            return operator.attrgetter(function)(cupyconv)(*arrays, **options)

    def compute(self, case: Case, **options: Any) -> Array:
        """The case's result as a NumPy array."""
        arrays = case.map(self.asarray).arrays
        return self.to_numpy(self.call(case.function, **arrays, **case.options, **options))


class CupyBackend(NumpyBackend):
    """CuPy arrays through the public functions."""

    name = "cupy"

    def asarray(self, a: Array) -> Any:
        import cupy

        if a.size == 0:
            return cupy.empty(a.shape, a.dtype)
        # The memory from the first byte to the last, moved to an address with the same alignment.
        low, high = byte_bounds(a)
        before = low % 16 // a.itemsize
        reversals = tuple(slice(None, None, -1 if s < 0 else 1) for s in a.strides)
        length = (high - low) // a.itemsize
        memory = np.zeros(before + length, a.dtype)
        memory[before:] = as_strided(a[reversals], (length,), (a.itemsize,))
        start = a.__array_interface__["data"][0] - low
        pointer = cupy.asarray(memory.view(np.uint8)).data + before * a.itemsize + start
        return cupy.ndarray(a.shape, a.dtype, memptr=pointer, strides=a.strides)

    def to_numpy(self, a: Any) -> Array:
        import cupy

        assert type(a) is cupy.ndarray, f"CuPy in, but {type(a)} out"
        return cupy.asnumpy(a)


class EmulatorBackend(NumpyBackend):
    """NumPy arrays through the public functions and the shipped kernels, on the CPU."""

    name = "emulator"

    def __init__(
        self,
        kernel: str | None = None,
        patches: dict[str, str] | None = None,
        multiprocessors: int = MULTIPROCESSORS,
    ) -> None:
        super().__init__(kernel)
        self.path = EmulatedPath(EmulatedDevice(patches or {}, multiprocessors))

    def call(self, function: str, *arrays: Any, **options: Any) -> Any:
        with mock.patch.object(_paths, "numpy_path", self.path):
            return super().call(function, *arrays, **options)


@contextmanager
def without_bulk_copies() -> Iterator[None]:
    """Inputs are copied chunk by chunk, as on older GPUs."""
    with mock.patch.object(launches, "BULK_COPIES", ()):
        forget()
        try:
            yield
        finally:
            forget()


def check_lines(backend: NumpyBackend, case: Case) -> None:
    """Assert that lines that begin at multiples of 16 bytes, and end within, change no bit."""
    result = backend.compute(case)
    rng = np.random.default_rng(0)
    for layout in ("aligned", "interleaved", "cropped"):
        arrays = case.map(lambda a, layout=layout: backend.asarray(lay_out(rng, a, layout))).arrays
        out = backend.asarray(lay_out(rng, poison(np.empty_like(result)), layout))
        backend.call(case.function, **arrays, **case.options, out=out)
        assert_same_bits(backend.to_numpy(out), result)


# Each test runs on all of these; another backend is one more line.
BACKENDS = [
    pytest.param(NumpyBackend(), id="numpy"),
    pytest.param(EmulatorBackend(), id="emulator", marks=pytest.mark.emulator),
    pytest.param(CupyBackend(), id="cupy", marks=pytest.mark.gpu),
]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def forced_backends(kernel: str, wgmma: bool = False) -> list[Any]:
    """One kernel for all calls that it can take, on the emulator and on a GPU.

    With `wgmma` it needs the Tensor Core instructions of compute capability 9.0.
    """
    marks = [pytest.mark.gpu, *[pytest.mark.wgmma] * wgmma]
    return [
        pytest.param(EmulatorBackend(kernel), id=f"emulator-{kernel}", marks=pytest.mark.emulator),
        pytest.param(CupyBackend(kernel), id=f"cupy-{kernel}", marks=marks),
    ]


# Tests of convolutions run on these as well, each with one kernel for all that it can take. Kernels
# that take few of them have cases of their own, in tests/kernels/.
FORCED = [
    *forced_backends("direct"),
    *forced_backends("depthwise"),
    *forced_backends("plain"),
    *forced_backends("portable"),
    *forced_backends("hopper", wgmma=True),
]
every_kernel = pytest.mark.parametrize("backend", BACKENDS + FORCED)
# Tests of what may differ from run to run: the emulator has one order of threads for the same call.
every_run = pytest.mark.parametrize(
    "backend", BACKENDS + [p for p in FORCED if isinstance(p.values[0], CupyBackend)]
)
# The fused operation has kernels of its own on Tensor Cores alone.
every_matrix_kernel = pytest.mark.parametrize(
    "backend", BACKENDS + [p for p in FORCED if str(p.id).endswith(("portable", "hopper"))]
)

# From so many elements on, an example is for the other backends: the emulator would take minutes.
LARGE = 20_000


def marked(value: Any, size: int) -> Any:
    """A parameter of a test, with the mark `large` where its arrays have so many elements."""
    return pytest.param(value, marks=[pytest.mark.large] if size >= LARGE else [])


def examples(cases: Sequence[Case]) -> Any:
    """Run a test on each of some calls."""
    sizes = [max(a.size for a in case.arrays.values() if a is not None) for case in cases]
    parameters = [marked(case, size) for case, size in zip(cases, sizes, strict=True)]
    return pytest.mark.parametrize("case", parameters, ids=str)
