"""What every plan is made of: GPU targets and their limits, kernel instances, launches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Compute capabilities that the kernels are built for, and the shared memory of a block in bytes.
SHARED = {
    "sm_75": 64 * 1024,
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90a": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_120": 99 * 1024,
}
TARGETS = tuple(SHARED)
BULK_COPIES = ("sm_90a", "sm_100", "sm_120")  # the targets with cp.async.bulk
WGMMA = ("sm_90a",)  # the targets with wgmma

MAX_GRID = 2**31 - 1
INT32_LIMIT = 2**31
WARP = 32  # threads
SECTOR = 32  # bytes that memory is read and written by
RESERVED = 1024  # bytes of shared memory that the system takes for each block

# Device types of elements. Signed integers are summed as unsigned ones, modulo 2**bits.
ELEMENTS = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "complex<float>",
    "complex128": "complex<double>",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "unsigned long long",
}
SIGNED = {
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
}


def element(dtype: np.dtype) -> str:
    """Return the dtype that a kernel is compiled for: signed integers are summed as unsigned."""
    return f"u{dtype.name}" if dtype.kind == "i" else str(dtype.name)


BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}  # by the bytes of a number
FLOATS = ("float16", "bfloat16", "float32", "float64")
SINGLES = FLOATS[:3]  # whose sums are in float32


@dataclass(frozen=True)
class Instance:
    """A kernel of a ``.cu`` file with its macros."""

    source: str
    function: str
    defines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        macros = ", ".join(f"{name}={value}" for name, value in self.defines)
        return f"{self.source}:{self.function} [{macros}]"


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    instance: Instance
    grid: int
    block: int
    shared: int = 0  # bytes of a block, beside what the kernel declares
    unit: int = 1  # the grid may be any multiple of this
    early: bool = False  # whether it may begin before the previous launch has ended

    def __str__(self) -> str:
        shared = f" and {self.shared} bytes" if self.shared else ""
        return f"{self.instance}, {self.grid} blocks of {self.block} threads{shared}"


@dataclass(frozen=True)
class Processor:
    """A GPU as plans know it: the target that its kernels are built for, and its size."""

    target: str
    multiprocessors: int

    @property
    def shared(self) -> int:
        """The shared memory of a block in bytes."""
        return SHARED[self.target]

    @property
    def has_wgmma(self) -> bool:
        """Whether the GPU has the Tensor Core instructions of compute capability 9.0."""
        return self.target in WGMMA

    @property
    def copies_in_bulk(self) -> bool:
        """Whether the GPU has cp.async.bulk."""
        return self.target in BULK_COPIES
