"""Tensor maps: descriptions of arrays, of which the copy engine of a GPU brings boxes.

Only the driver knows their format, and CuPy has no call for it, so this module calls the driver
itself (cuTensorMapEncodeTiled of the CUDA driver API). `kernels/ptx_tensor.cuh` has the copies.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import Any, NamedTuple

# CUtensorMapDataType by bytes of an element: unsigned integers, whose bits a copy keeps.
_TYPES = {2: 1, 4: 2}
_NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTION_256B, _ZEROS = 0, 3, 3, 0
WORDS = 16  # of 64 bits


class Boxes(NamedTuple):
    """An array of three axes, and the boxes that are copied of it; the innermost axis is first.

    Attributes
    ----------
    itemsize : int
        Bytes of an element, 2 or 4.
    sizes : tuple of int
        Elements along each axis of the array.
    strides : tuple of int
        Bytes from one element to the next along the second and the third axis: multiples of 16.
    box : tuple of int
        Elements of a box along each axis, up to 256; 128 bytes along the first.
    """

    itemsize: int
    sizes: tuple[int, int, int]
    strides: tuple[int, int]
    box: tuple[int, int, int]


@lru_cache(maxsize=1)
def _encode() -> Any:
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    encode = library.cuTensorMapEncodeTiled
    encode.restype = ctypes.c_int
    pointer, word = ctypes.c_void_p, ctypes.c_uint
    encode.argtypes = (pointer, word, word, *[pointer] * 5, *[word] * 4)
    return encode


@lru_cache(maxsize=256)
def _arguments(boxes: Boxes) -> tuple[Any, ...]:
    """Return the arrays of sizes and strides that the driver reads."""
    return (
        (ctypes.c_uint64 * 3)(*boxes.sizes),
        (ctypes.c_uint64 * 2)(*boxes.strides),
        (ctypes.c_uint * 3)(*boxes.box),
        (ctypes.c_uint * 3)(1, 1, 1),
    )


def encode(address: int, boxes: Boxes) -> tuple[int, ...]:
    """Return the words of the tensor map of an array at an address, a multiple of 16.

    Raises
    ------
    CUDADriverError
        If the driver refuses it.
    """
    from cupy import cuda

    buffer = (ctypes.c_uint64 * (WORDS + 7))()  # of which a part is aligned to 64 bytes
    first = -ctypes.addressof(buffer) % 64 // 8
    status = _encode()(
        ctypes.addressof(buffer) + 8 * first,
        _TYPES[boxes.itemsize],
        3,
        address,
        *_arguments(boxes),
        *(_NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTION_256B, _ZEROS),
    )
    if status:
        raise cuda.driver.CUDADriverError(status)
    words = buffer[first : first + WORDS]
    return tuple(word - (word >> 63 << 64) for word in words)  # as signed numbers
