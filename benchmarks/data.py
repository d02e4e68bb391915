"""Large arrays on the GPU: random values, poison, and the search for NaN."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # a NumPy or a CuPy array

_HASH = """
    unsigned long long z = i + seed * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    y = T(low + (high - low) * double(z >> 11) / 9007199254740992.0);
"""


@lru_cache(maxsize=1)
def _uniform_kernel() -> Any:
    import cupy

    arguments = "uint64 seed, float64 low, float64 high"
    return cupy.ElementwiseKernel(arguments, "T y", _HASH, "hashed_uniform")


@lru_cache(maxsize=8)
def _nan_kernel(magnitude: int, infinity: int) -> Any:
    import cupy

    is_nan = f"(bits & {magnitude}u) > {infinity}u"
    return cupy.ReductionKernel(
        "U bits", "int64 count", is_nan, "a + b", "count = a", "0", "count_nan"
    )


def uniform(
    shape: tuple[int, ...], dtype: Any, seed: int, low: float = -1.0, high: float = 1.0
) -> Array:
    """Return a CuPy array of uniform values: a hash of their index and the seed."""
    import cupy

    return _uniform_kernel()(np.uint64(seed), low, high, cupy.empty(shape, dtype))


def poison(array: Array) -> None:
    """Fill a CuPy array of floats without gaps with NaN: all bits set."""
    array.data.memset_async(0xFF, array.nbytes)


def count_nan(array: Array) -> int:
    """Return how many NaN a contiguous CuPy array holds, in one pass and with no copy."""
    kernel = _nan_kernel(*nan_bits(array.dtype))
    return int(kernel(array.view(np.dtype(f"u{array.dtype.itemsize}"))))


def nan_bits(dtype: np.dtype) -> tuple[int, int]:
    """Return a mask and a bound: a value is NaN where its masked bits are above the bound."""
    infinity = np.array(np.inf).astype(dtype).view(f"u{dtype.itemsize}")
    return 2 ** (8 * dtype.itemsize - 1) - 1, int(infinity)


def with_channels_last(array: Array) -> Array:
    """Return a copy whose second axis lies innermost."""
    import cupy

    return cupy.moveaxis(cupy.ascontiguousarray(cupy.moveaxis(array, 1, -1)), -1, 1)
