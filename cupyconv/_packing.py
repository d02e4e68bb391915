"""Pieces of the arguments of kernels, all of whose members have 64 bits."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from functools import lru_cache
from typing import TypeAlias

from ._arrays import Array
from ._geometry import PoolAxis
from ._taps import AxisTaps

# What a kernel is given, 64 bits each.
Arguments: TypeAlias = "array[int]"

# In the order of `ParameterType` in scalar.cuh.
PARAMETER_DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)


def packed_words(values: Iterable[int]) -> Arguments:
    return array("q", values)


def zero_padded(values: Sequence[int], length: int) -> tuple[int, ...]:
    return (*values, *(0,) * (length - len(values)))


@lru_cache(maxsize=4096)
def fields_of(axes: tuple[AxisTaps, ...] | tuple[PoolAxis, ...], length: int) -> tuple[int, ...]:
    """Return the members of the structs of `length` axes, zeros behind the last one."""
    fields = [field for axis in axes for field in astuple(axis)]
    return zero_padded(fields, len(fields) // len(axes) * length)


def lie_together(most: int, strides: Sequence[int], size: int = 0) -> int:
    """Return how many neighbours along the last axis lie together, in every line alike.

    At most `most`, a power of two; a `size` of the axis is to be a multiple as well.
    """
    *others, last = strides
    return math.gcd(most, size, *others) if last == 1 else 1


def reciprocal(divisor: int) -> int:
    """Return by what kernels divide small numbers by `divisor`."""
    return (2**32 - 1) // divisor


def long_reciprocal(divisor: int) -> int:
    """Return the same for any number, in 64 bits, as the signed number of these bits."""
    return (2**64 - 1) // divisor - (2**64 if divisor == 1 else 0)


def parameter_fields(array: Array | None) -> tuple[int, int]:
    """Return the members of a ``struct Parameter`` behind its address."""
    if array is None:
        return 0, 0
    return PARAMETER_DTYPES.index(array.dtype.name), array.strides[0] // array.dtype.itemsize
