"""Tensor maps: descriptions of arrays, of which the copy engine of a GPU brings boxes or pixels.

Only the driver knows their format, and CuPy has no call for it, so this module calls the driver
itself (cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col of the CUDA driver API).
`kernels/ptx_tensor.cuh` has the copies.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import Any, NamedTuple

# CUtensorMapDataType by bytes of an element: a copy keeps the bits of unsigned integers (_UINT16,
# _UINT32), and rounds floats to TF32 numbers (_TFLOAT32).
_TYPES, _ROUNDED = {2: 1, 4: 2}, {2: 1, 4: 11}
_NO_INTERLEAVE, _PROMOTION_256B, _ZEROS = 0, 3, 0
_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle by the bytes of a row that is copied
WORDS, ALIGNED = 16, 8  # of 64 bits: of a map, and to which a struct with maps is aligned


class Boxes(NamedTuple):
    """An array of three axes, and the boxes that are copied of it; the innermost axis is first.

    Attributes
    ----------
    itemsize : int
        Bytes of an element: 2, or 4 of floats, which are rounded to TF32 numbers.
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

    @property
    def row(self) -> int:
        """Bytes of a row that is copied."""
        return self.itemsize * self.box[0]


class Pixels(NamedTuple):
    """An array of samples, up to three axes and channels, and the pixels that are copied of it.

    Axes are in the order x, y, z.

    Attributes
    ----------
    itemsize : int
        Bytes of an element: 2, or 4 of floats, which are rounded to TF32 numbers if not `exact`.
    sizes : tuple of int
        Channels, the sizes of the axes, and samples.
    strides : tuple of int
        Bytes from one element to the next along the axes and the samples: multiples of 16.
    lower, upper : tuple of int
        Where the window of pixels begins along each axis, and where it ends, counted from the
        axis's own end.
    steps : tuple of int
        From one pixel to the next along each axis, 1 to 8.
    channels, pixels : int
        How many are copied: 16, 32, 64 or 128 bytes of channels.
    exact : bool
        Whether floats are copied as they are.
    """

    itemsize: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]
    channels: int
    pixels: int
    exact: bool = False

    @property
    def row(self) -> int:
        """Bytes of a row that is copied."""
        return self.itemsize * self.channels

    @staticmethod
    def most(axes: int) -> tuple[int, int]:
        """Return what corners of windows are below, and at the least minus that; and offsets."""
        return {1: (2**15, 2**16 - 1), 2: (2**7, 2**8 - 1), 3: (2**4, 2**5 - 1)}[axes]


# The driver's calls, and their parameters: pointers and words.
_BOXES = "cuTensorMapEncodeTiled", "pwwpppppwwww"
_PIXELS = "cuTensorMapEncodeIm2col", "pwwpppppwwpwwww"


@lru_cache(maxsize=2)
def _call(name: str, parameters: str) -> Any:
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    encode = library[name]
    encode.restype = ctypes.c_int
    kinds: dict[str, Any] = {"p": ctypes.c_void_p, "w": ctypes.c_uint}
    encode.argtypes = [kinds[kind] for kind in parameters]
    return encode


@lru_cache(maxsize=256)
def _arguments(array: Boxes | Pixels) -> tuple[Any, ...]:
    """Return what the driver reads after the address."""
    sizes = (ctypes.c_uint64 * len(array.sizes))(*array.sizes)
    strides = (ctypes.c_uint64 * len(array.strides))(*array.strides)
    if isinstance(array, Boxes):
        return sizes, strides, (ctypes.c_uint * 3)(*array.box), (ctypes.c_uint * 3)(1, 1, 1)
    corners = ((ctypes.c_int * len(corner))(*corner) for corner in (array.lower, array.upper))
    steps = (ctypes.c_uint * len(array.sizes))(1, *array.steps, 1)
    return sizes, strides, *corners, array.channels, array.pixels, steps


def encode(address: int, array: Boxes | Pixels) -> tuple[int, ...]:
    """Return the words of the tensor map of an array at an address, a multiple of 16.

    Raises
    ------
    CUDADriverError
        If the driver refuses it.
    """
    buffer = (ctypes.c_uint64 * (WORDS + 7))()  # of which a part is aligned to 64 bytes
    first = -ctypes.addressof(buffer) % 64 // 8
    types = _TYPES if isinstance(array, Pixels) and array.exact else _ROUNDED
    status = _call(*(_BOXES if isinstance(array, Boxes) else _PIXELS))(
        ctypes.addressof(buffer) + 8 * first,
        types[array.itemsize],
        len(array.sizes),
        address,
        *_arguments(array),
        *(_NO_INTERLEAVE, _SWIZZLES[array.row], _PROMOTION_256B, _ZEROS),
    )
    if status:
        from cupy import cuda

        raise cuda.driver.CUDADriverError(status)
    words = buffer[first : first + WORDS]
    return tuple(word - (word >> 63 << 64) for word in words)  # as signed numbers
