"""Pieces of the arguments of kernels, all of whose members have 64 bits."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TypeAlias

from ._arrays import Array

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


def zero_padded(values: Sequence[int], length: int) -> tuple[int, ...]:
    return (*values, *(0,) * (length - len(values)))


def lie_together(most: int, strides: Sequence[int], size: int = 0) -> int:
    """Return how many neighbours along the last axis lie together in every line, at most `most`.

    The number is a power of two, as `most` is, and divides a given `size` of the axis.
    """
    *others, last = strides
    return math.gcd(most, size, *others) if last == 1 else 1


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in elements of an array in C order, 0 for an axis of one element."""
    return tuple(math.prod(shape[axis + 1 :]) if n > 1 else 0 for axis, n in enumerate(shape))


def strides_of(array: Array) -> tuple[int, ...]:
    """Return the strides in elements, 0 for an axis of one element, whose stride never matters."""
    size = array.dtype.itemsize
    return tuple(
        stride // size if n > 1 else 0 for stride, n in zip(array.strides, array.shape, strict=True)
    )


def reciprocal(divisor: int) -> int:
    """Return the factor by which kernels divide small numbers by `divisor`."""
    return (2**32 - 1) // divisor


def long_reciprocal(divisor: int) -> int:
    """Return the factor for any number, of 64 bits, as the signed integer with these bits."""
    return (2**64 - 1) // divisor - (2**64 if divisor == 1 else 0)


def parameter_fields(array: Array | None) -> tuple[int, int]:
    """Return the members of a ``struct Parameter`` after its address."""
    if array is None:
        return 0, 0
    return PARAMETER_DTYPES.index(array.dtype.name), array.strides[0] // array.dtype.itemsize
