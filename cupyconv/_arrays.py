"""Checks of the arrays of a call: library, device, dtype, and whether ``out`` overlaps an input.

No check reads an element. The argument `name` is the public function, which begins each message.
"""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from numbers import Number
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._arguments import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class CupyArray(Protocol):
    """A CuPy array for type checkers. CuPy has no type stubs and is not imported here."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def size(self) -> int: ...
    def get(self) -> NDArray[Any]: ...  # distinguishes it from a NumPy array


# Types for public signatures. `ArrayT` ties the kind of the result to the kind of the input.
AnyArray: TypeAlias = "NDArray[Any] | CupyArray"
ArrayT = TypeVar("ArrayT", NDArray[Any], CupyArray)
# The type of arrays inside the library, which treats both kinds alike.
Array: TypeAlias = Any
# A function that convolves input, weight and bias and writes the result to its last argument.
Convolution: TypeAlias = "Callable[[Array, Array, Array | None, Array], None]"
# A function that writes the gradient with respect to the weight; it takes input, grad_output and
# the array for the gradient.
WeightGradient: TypeAlias = "Callable[[Array, Array, Array], None]"
# A function that runs the fused operation. Its arguments are input, kernel, (mean, var), the
# weights and biases of the norms, and the output.
Fused: TypeAlias = "Callable[[Array, Array, Sequence[Array | None], Sequence[Array], Array], None]"

# Limit of the steps of the exact search for an overlap. Arrays for which the search would take more
# count as overlapping.
_OVERLAP_WORK = 1_000_000

_REAL = frozenset("float16 bfloat16 float32 float64".split())
_COMPLEX = frozenset("complex64 complex128".split())
_INTEGER = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
CONVOLVED = _REAL | _COMPLEX | _INTEGER
NORMALISED = _REAL | _INTEGER


# Upper bound of the bytes of an array and of the addresses of blueprints.
MOST_BYTES = 2**62


class Blueprint(np.ndarray):
    """An array with a layout but no memory, which `explain` passes to functions. It is never read.

    `path` is the `Path` of calls with this array.
    """

    path: Any
    _next = _first = 2**40  # addresses; only the search for overlaps uses them

    def __new__(
        cls,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...] | None = None,
        address: int | None = None,
    ) -> Blueprint:
        """Return an array, by default in C order and without an overlap with other blueprints."""
        if address is None:
            address = cls._next
            end = address + -(-math.prod(shape) * dtype.itemsize // 512) * 512 + 512
            cls._next = end if end < MOST_BYTES else cls._first
        description = _Layout(address, shape, strides, dtype.itemsize, read_only=False)
        return np.asarray(description).view(dtype).view(cls)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.dtype})"

    __str__ = __repr__


def is_cupy(array: object) -> bool:
    """Return whether `array` is a CuPy array, without importing CuPy."""
    # The attribute is missing while another thread imports CuPy.
    kind = getattr(sys.modules.get("cupy"), "ndarray", None)
    return kind is not None and isinstance(array, kind)


def is_numpy(array: object) -> bool:
    """Return whether `array` is a NumPy array with NumPy's arithmetic."""
    # A call would ignore the mask of a masked array, the matrix product of `numpy.matrix` and the
    # units of classes that redefine arithmetic, all without a warning.
    if not isinstance(array, np.ndarray) or isinstance(array, (np.ma.MaskedArray, np.matrix)):
        return False
    return type(array).__array_ufunc__ is np.ndarray.__array_ufunc__


def kind_of(array: Array) -> Callable[[tuple[int, ...], np.dtype], Array]:
    """Return the array class of `array`. Called with a shape and a dtype, it makes a new array."""
    if isinstance(array, Blueprint):
        return Blueprint
    return sys.modules["cupy"].ndarray if is_cupy(array) else np.ndarray


_ON_CURRENT_DEVICE = nullcontext()


def on_device(array: Array) -> AbstractContextManager[Any]:
    """Return a context in which the device of `array` is the current one."""
    if not is_cupy(array) or array.data.device_id == sys.modules["cupy"].cuda.runtime.getDevice():
        return _ON_CURRENT_DEVICE  # much faster than to make the current device current again
    return array.device  # type: ignore[no-any-return]


def layout(array: Array) -> tuple[object, ...] | None:
    """Return all properties of an array that a plan depends on: all but its address and contents.

    Return None for subclasses of NumPy's and CuPy's arrays, since those may behave differently.
    """
    kind = type(array)
    if kind is np.ndarray:
        return kind, array.shape, array.strides, array.dtype
    if kind is not getattr(sys.modules.get("cupy"), "ndarray", None):
        return None
    data = array.data
    alignment = data.ptr % array.itemsize
    return data.device_id, array.shape, array.strides, array.dtype, alignment


# The library that reads a foreign array in place, by DLPack's number of the device type: CPU, CUDA,
# pinned host memory and CUDA managed memory.
_DLPACK = {1: "numpy", 2: "cupy", 3: "numpy", 13: "cupy"}
_INTERFACES = {"__cuda_array_interface__": "cupy", "__array_interface__": "numpy"}

# Arguments with one value for each channel; so is the weight of a norm.
_PER_CHANNEL = frozenset("bias mean var bn_weight bn_bias gn_weight gn_bias".split())


def advice(function: str, argument: str, value: object, library: str) -> str:
    """Return how `value` becomes an array of "numpy" or "cupy", or "" if there is no way.

    The `library` of the call's other arrays is named if both NumPy and CuPy could read `value`.
    """
    reading = f"; {library}.asarray({argument}) makes it one"
    if isinstance(value, np.ma.MaskedArray):
        return f"; {argument}.filled(value) makes it one, with that value where it is masked"
    if isinstance(value, (np.matrix, list, tuple, memoryview)):
        return reading
    if isinstance(value, (Number, np.number)):
        per_channel = argument in _PER_CHANNEL or (argument == "weight" and "norm" in function)
        return f"; {library}.full(channels, {argument}) is an array of it" if per_channel else ""
    if isinstance(value, (np.ndarray, np.generic)):  # `is_numpy` refuses it on purpose
        return ""
    if type(value).__module__.partition(".")[0] == "dask":
        return "; the functions of cupyconv.dask take Dask arrays"
    # The attributes of a foreign object may raise anything, which must not hide our error. DLPack
    # comes first, since a PyTorch tensor that requires a gradient has no other usable interface.
    with suppress(Exception):
        device, _ = value.__dlpack_device__()  # type: ignore[attr-defined]
        return f"; {_DLPACK[device]}.from_dlpack({argument}) makes it one"
    for interface, module in _INTERFACES.items():
        with suppress(Exception):
            getattr(value, interface)
            return f"; {module}.asarray({argument}) makes it one"
    return ""


def check(
    name: str,
    required: Mapping[str, object],
    optional: Mapping[str, object],
    dtypes: frozenset[str] = CONVOLVED,
) -> None:
    """Raise unless all arrays are on one device and have one of the `dtypes`.

    A value of `optional` is None if the caller did not pass the array.
    """
    arrays = {**required, **{key: array for key, array in optional.items() if array is not None}}
    kinds: dict[str, str] = {}
    for argument, array in arrays.items():
        if is_cupy(array):
            kinds[argument] = "CuPy"
        elif is_numpy(array):
            kinds[argument] = "NumPy"
        else:
            library = "cupy" if any(map(is_cupy, arrays.values())) else "numpy"
            raise TypeError(
                f"{name}: {argument} must be a NumPy or CuPy array, got {type(array).__name__}"
                + advice(name, argument, array, library)
            )
        dtype = array.dtype  # type: ignore[attr-defined]
        if dtype.name not in dtypes:
            raise TypeError(
                f"{name}: {argument} must have one of the dtypes {', '.join(sorted(dtypes))}, "
                f"got {shown(dtype, str)}"
            )
    if len(set(kinds.values())) > 1:
        listing = ", ".join(f"{argument} from {kind}" for argument, kind in kinds.items())
        raise TypeError(f"{name}: arrays must be all from NumPy or all from CuPy, got {listing}")
    if "CuPy" in kinds.values():
        cupy_arrays: dict[str, Array] = {argument: arrays[argument] for argument in kinds}
        devices = {argument: array.device.id for argument, array in cupy_arrays.items()}
        if len(set(devices.values())) > 1:
            raise ValueError(f"{name}: arrays must be on one device, got devices {devices}")
        for argument, array in cupy_arrays.items():
            _check_alignment(name, argument, array)


def _check_alignment(name: str, argument: str, array: Array) -> None:
    # CuPy's own kernels load both parts of a complex number by one instruction.
    if any(place % array.dtype.itemsize for place in (array.data.ptr, *array.strides)):
        raise ValueError(
            f"{name}: {argument} must lie at multiples of its element size, got address "
            f"{array.data.ptr} and strides {array.strides} with dtype {array.dtype}"
        )


@lru_cache(maxsize=1024)
def _result_dtype(
    name: str, first_dtype: np.dtype, second_dtype: np.dtype, second: str, first: str
) -> np.dtype:
    try:
        dtype = np.result_type(first_dtype, second_dtype)
    except TypeError as error:
        raise TypeError(
            f"{name}: {first} and {second} must have a common dtype, got {first_dtype} and "
            f"{second_dtype}"
        ) from error
    return dtype


def result_dtype(
    name: str, data: Array, weight: Array, weight_name: str = "weight", data_name: str = "input"
) -> np.dtype:
    """Return NumPy's result type of two arrays, which errors call `data_name` and `weight_name`."""
    return _result_dtype(name, data.dtype, weight.dtype, weight_name, data_name)


def named(name: str, dtype: Any) -> np.dtype:
    """Return the supported dtype that `dtype` names, ``"bfloat16"`` among them, or raise."""
    supported: np.dtype | None = None
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        supported = np.dtype(ml_dtypes.bfloat16)
    elif dtype is not None:  # NumPy reads None as float64
        with suppress(Exception):  # NumPy raises various exceptions if the value is no dtype
            supported = np.dtype(dtype)
    if supported is None or supported.name not in CONVOLVED:
        raise TypeError(
            f"{name}: dtype must be one of {', '.join(sorted(CONVOLVED))}, got dtype={shown(dtype)}"
        )
    return supported


def floating(dtype: np.dtype) -> np.dtype:
    """Return `dtype` in native byte order, or float64 for an integer."""
    return np.dtype(np.float64) if dtype.name in _INTEGER else dtype.newbyteorder("=")


def accumulator(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which sums of elements of `dtype` are accumulated."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def partial_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which kernels store partial sums of elements of `dtype`."""
    if dtype.kind in "iu" and dtype.itemsize < 4:
        return np.dtype(np.uint32)
    return accumulator(dtype)


def check_bias(name: str, bias: Array | None, dtype: np.dtype) -> None:
    """Raise a `TypeError` if `bias` cannot be added to sums whose result has `dtype`."""
    if bias is not None and not np.can_cast(bias.dtype, accumulator(dtype), "same_kind"):
        raise TypeError(
            f"{name}: bias must be castable to the result's dtype without a change of kind, got "
            f"{bias.dtype} with a result of {dtype}"
        )


def check_out(
    name: str,
    out: Array,
    shape: tuple[int, ...],
    dtype: np.dtype,
    inputs: Mapping[str, Array | None],
) -> None:
    """Raise unless a result of this shape and dtype can be written to `out`."""
    if out.dtype != dtype:
        raise TypeError(f"{name}: out must have dtype {dtype}, got {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"{name}: out must have shape {shape}, got {out.shape}")
    if not is_cupy(out) and not out.flags.writeable:
        raise ValueError(f"{name}: out must be writable, got a read-only array")
    if overlaps_itself(out):
        raise ValueError(
            f"{name}: out must not overlap itself, got shape {out.shape} with strides {out.strides}"
        )
    for argument, array in inputs.items():
        if array is not None and overlap(out, array):
            raise ValueError(f"{name}: out must not share memory with {argument}")


def output(
    name: str,
    out: Array | None,
    shape: tuple[int, ...],
    dtype: np.dtype,
    inputs: Mapping[str, Array | None],
) -> Array:
    """Return `out` after checks, or a new array on the device of the inputs if `out` is None."""
    if out is not None:
        check_out(name, out, shape, dtype, inputs)
        return out
    first: Array = next(iter(inputs.values()))
    with on_device(first):
        return kind_of(first)(shape, dtype)


class _Layout:
    """Address, shape and strides of an array as NumPy's array interface, which reads no memory."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        itemsize: int,
        read_only: bool = True,
    ) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, read_only),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
        }


def _layout(array: Array) -> np.ndarray:
    """Return a NumPy array with the layout of `array`. Its elements must not be touched."""
    if is_cupy(array):
        array = _Layout(array.data.ptr, array.shape, array.strides, array.itemsize)
    return np.asarray(array)


@lru_cache(maxsize=4096)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the lowest and the end address of an array, relative to its first element."""
    ends = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0) + itemsize


def _bounds(array: Array) -> tuple[int, int]:
    """Return the lowest and the end address of a CuPy array."""
    low, high = _reach(array.shape, array.strides, array.itemsize)
    return array.data.ptr + low, array.data.ptr + high


def overlap(a: Array, b: Array) -> bool:
    """Return whether two arrays share memory. Only their addresses and strides are used.

    Return True if an exact answer would take too long.
    """
    if is_cupy(a) and is_cupy(b):  # NumPy compares the bounds as well, but takes longer
        (low_a, high_a), (low_b, high_b) = _bounds(a), _bounds(b)
        if high_a <= low_b or high_b <= low_a:
            return False
    shares_memory: Any = np.shares_memory  # its type stub allows only -1 and 0 for max_work
    try:
        return bool(shares_memory(_layout(a), _layout(b), max_work=_OVERLAP_WORK))
    except (np.exceptions.TooHardError, OverflowError):
        return True


def overlaps_itself(array: Array) -> bool:
    """Return whether two different indices of `array` reach the same memory.

    Two such indices differ on some axis. If both are shifted along this axis by the same distance,
    one lies in the axis's first slice and the other one in the remaining slices. So one test per
    axis, whether its first slice overlaps the rest, decides.
    """
    if array.size < 2 or array.flags.c_contiguous or array.flags.f_contiguous:
        return False
    reach = array.dtype.itemsize
    for stride, size in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if size > 1 and stride < reach:
            break
        reach += stride * (size - 1)
    else:
        return False  # each stride exceeds the memory that the axes of smaller strides span
    layout = _layout(array)
    for axis in range(layout.ndim):
        first, rest = np.split(layout, [1], axis)
        if overlap(first, rest):
            return True
    return False
