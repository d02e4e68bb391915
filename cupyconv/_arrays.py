"""Arrays as the library sees them: where they live, their common dtype, and a safe ``out``."""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._arguments import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class CupyArray(Protocol):
    """A CuPy array to a type checker: CuPy has no stubs, and is imported by its users alone."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def size(self) -> int: ...
    def get(self) -> NDArray[Any]: ...  # what tells it from a NumPy array


# In what users call: a NumPy or a CuPy array, and of the two the kind that the input is of.
AnyArray: TypeAlias = "NDArray[Any] | CupyArray"
ArrayT = TypeVar("ArrayT", NDArray[Any], CupyArray)
# Inside of the library, where the two are alike.
Array: TypeAlias = Any
# What writes a convolution of input, weight and bias to out.
Convolution: TypeAlias = "Callable[[Array, Array, Array | None, Array], None]"
# Takes input, kernel, (mean, var), the norms' weights and biases, and the output.
Fused: TypeAlias = "Callable[[Array, Array, Sequence[Array | None], Sequence[Array], Array], None]"

# Bounds the exact overlap search; what is harder than this counts as overlapping.
_OVERLAP_WORK = 1_000_000

_REAL = frozenset("float16 bfloat16 float32 float64".split())
_COMPLEX = frozenset("complex64 complex128".split())
_INTEGER = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
CONVOLVED = _REAL | _COMPLEX | _INTEGER
NORMALISED = _REAL | _INTEGER


# Of one array, and of the addresses of those without memory.
MOST_BYTES = 2**62


class Blueprint(np.ndarray):
    """An array with a layout but no memory: what `explain` gives to functions. It is never read.

    `path` is where its calls go.
    """

    path: Any
    _next = _first = 2**40  # addresses, of which nothing but overlaps is asked

    def __new__(
        cls,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...] | None = None,
        address: int | None = None,
    ) -> Blueprint:
        """Return an array at an address of its own, in C order, where nothing else is said."""
        if address is None:
            address = cls._next
            end = address + -(-math.prod(shape) * dtype.itemsize // 512) * 512 + 512
            cls._next = end if end < MOST_BYTES else cls._first
        anywhere = _Layout(address, shape, strides, dtype.itemsize, read_only=False)
        return np.asarray(anywhere).view(dtype).view(cls)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.dtype})"

    __str__ = __repr__


def is_cupy(array: object) -> bool:
    """Return whether `array` is a CuPy array, without importing CuPy."""
    kind = getattr(sys.modules.get("cupy"), "ndarray", None)  # None while a thread imports it
    return kind is not None and isinstance(array, kind)


def is_numpy(array: object) -> bool:
    """Return whether `array` is a NumPy array with no meaning beyond that."""
    # Masked arrays, matrices and what has an arithmetic of its own, such as arrays with units, have
    # a meaning that would silently be lost.
    if not isinstance(array, np.ndarray) or isinstance(array, (np.ma.MaskedArray, np.matrix)):
        return False
    return type(array).__array_ufunc__ is np.ndarray.__array_ufunc__


def kind_of(array: Array) -> Callable[[tuple[int, ...], np.dtype], Array]:
    """Return the class of NumPy's or of CuPy's arrays, which makes new ones."""
    if isinstance(array, Blueprint):
        return Blueprint
    return sys.modules["cupy"].ndarray if is_cupy(array) else np.ndarray


_HERE = nullcontext()


def on_device(array: Array) -> AbstractContextManager[Any]:
    """Return a block in which the device of `array` is the current one."""
    if not is_cupy(array) or array.data.device_id == sys.modules["cupy"].cuda.runtime.getDevice():
        return _HERE  # much faster than to make a device the current one again
    return array.device  # type: ignore[no-any-return]


def layout(array: Array) -> tuple[object, ...] | None:
    """Return all but the address and the contents of an array: arrays that share it are alike.

    There is none for classes derived from NumPy's and CuPy's, which may have more to them.
    """
    kind = type(array)
    if kind is np.ndarray:
        return kind, array.shape, array.strides, array.dtype
    if kind is not getattr(sys.modules.get("cupy"), "ndarray", None):
        return None
    data = array.data
    alignment = data.ptr % array.itemsize
    return data.device_id, array.shape, array.strides, array.dtype, alignment


# Who reads an array of another library in place, by the kind of device that DLPack names: memory of
# the host, of a GPU, of the host but pinned, and of both.
_DLPACK = {1: "numpy", 2: "cupy", 3: "numpy", 13: "cupy"}
_INTERFACES = {"__cuda_array_interface__": "cupy", "__array_interface__": "numpy"}


def _advice(argument: str, array: object) -> str:
    """Return how to make an array of another library one of NumPy's or CuPy's, where it can be."""
    if isinstance(array, (np.ndarray, np.generic)):  # of NumPy, and refused for their meaning
        return ""
    # An object may answer with any error of its own, which must not hide ours. DLPack is asked
    # first: a tensor of PyTorch that needs a gradient does not tell of its other interfaces.
    with suppress(Exception):
        device, _ = array.__dlpack_device__()  # type: ignore[attr-defined]
        return f"; {_DLPACK[device]}.from_dlpack({argument}) makes it one"
    for interface, module in _INTERFACES.items():
        with suppress(Exception):
            getattr(array, interface)
            return f"; {module}.asarray({argument}) makes it one"
    return ""


def check(
    name: str,
    required: Mapping[str, object],
    optional: Mapping[str, object],
    dtypes: frozenset[str] = CONVOLVED,
) -> None:
    """Raise unless all arrays live on one device and have dtypes of the library.

    Those of `optional` may be None: they were not given.
    """
    arrays = {**required, **{key: array for key, array in optional.items() if array is not None}}
    kinds: dict[str, str] = {}
    for argument, array in arrays.items():
        if is_cupy(array):
            kinds[argument] = "CuPy"
        elif is_numpy(array):
            kinds[argument] = "NumPy"
        else:
            raise TypeError(
                f"{name}: {argument} must be a NumPy or CuPy array, got {type(array).__name__}"
                + _advice(argument, array)
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
        given: dict[str, Array] = {argument: arrays[argument] for argument in kinds}
        devices = {argument: one.device.id for argument, one in given.items()}
        if len(set(devices.values())) > 1:
            raise ValueError(f"{name}: arrays must be on one device, got devices {devices}")
        for argument, one in given.items():
            _check_alignment(name, argument, one)


def _check_alignment(name: str, argument: str, array: Array) -> None:
    part = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
    if array.data.ptr % part or any(stride % array.dtype.itemsize for stride in array.strides):
        raise ValueError(
            f"{name}: {argument} must lie at multiples of its element size, got address "
            f"{array.data.ptr} and strides {array.strides} with dtype {array.dtype}"
        )


@lru_cache(maxsize=1024)
def _result_dtype(
    name: str, input_dtype: np.dtype, weight_dtype: np.dtype, weight: str
) -> np.dtype:
    try:
        dtype = np.result_type(input_dtype, weight_dtype)
    except TypeError as error:
        raise TypeError(
            f"{name}: input and {weight} must have a common dtype, got {input_dtype} and "
            f"{weight_dtype}"
        ) from error
    return dtype


def result_dtype(name: str, input: Array, weight: Array, weight_name: str = "weight") -> np.dtype:
    """Return NumPy's result type of input and weight; errors call the latter `weight_name`."""
    return _result_dtype(name, input.dtype, weight.dtype, weight_name)


def named(name: str, dtype: Any) -> np.dtype:
    """Return the dtype of the library that `dtype` names, ``"bfloat16"`` among them."""
    found: np.dtype | None = None
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        found = np.dtype(ml_dtypes.bfloat16)
    elif dtype is not None:  # of which NumPy makes float64
        with suppress(Exception):  # NumPy has many for what names no dtype
            found = np.dtype(dtype)
    if found is None or found.name not in CONVOLVED:
        raise TypeError(
            f"{name}: dtype must be one of {', '.join(sorted(CONVOLVED))}, got dtype={shown(dtype)}"
        )
    return found


def floating(dtype: np.dtype) -> np.dtype:
    """Return `dtype`, or float64 in the place of an integer."""
    return np.dtype(np.float64) if dtype.name in _INTEGER else dtype.newbyteorder("=")


def accumulator(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which sums of `dtype` are accumulated."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def check_bias(name: str, bias: Array | None, dtype: np.dtype) -> None:
    """Raise a `TypeError` where `bias` cannot enter a sum that gives `dtype`."""
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
    """Return `out` after checking it, or a new array on the device of the inputs."""
    if out is not None:
        check_out(name, out, shape, dtype, inputs)
        return out
    first: Array = next(iter(inputs.values()))
    with on_device(first):
        return kind_of(first)(shape, dtype)


class _Layout:
    """Address, shape and strides of an array, in the form that NumPy reads but never follows."""

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
    """Return a NumPy array with the layout of `array`, whose elements must not be touched."""
    if is_cupy(array):
        array = _Layout(array.data.ptr, array.shape, array.strides, array.itemsize)
    return np.asarray(array)


@lru_cache(maxsize=4096)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return how far elements lie in front of and behind the first one, in bytes."""
    ends = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0) + itemsize


def _span(array: Array) -> tuple[int, int]:
    """Return the addresses between which the elements of a CuPy array lie."""
    low, high = _reach(array.shape, array.strides, array.itemsize)
    return array.data.ptr + low, array.data.ptr + high


def overlap(a: Array, b: Array) -> bool:
    """Return whether two arrays share memory, decided from addresses and strides alone.

    What is too hard to decide counts as sharing.
    """
    if is_cupy(a) and is_cupy(b):  # NumPy begins with this too, but takes longer to be asked
        (low_a, high_a), (low_b, high_b) = _span(a), _span(b)
        if high_a <= low_b or high_b <= low_a:
            return False
    bounded: Any = np.shares_memory  # its stub knows no other bounds than -1 and 0
    try:
        return bool(bounded(_layout(a), _layout(b), max_work=_OVERLAP_WORK))
    except (np.exceptions.TooHardError, OverflowError):
        return True


def overlaps_itself(array: Array) -> bool:
    """Return whether two different indices of `array` reach the same memory.

    Two such indices differ on some axis; shifted along all other axes they are an element of the
    slice 0 and one of the slices behind it, on that axis. So one overlap test an axis decides.
    """
    if array.size < 2 or array.flags.c_contiguous or array.flags.f_contiguous:
        return False
    reach = array.dtype.itemsize
    for stride, size in sorted(
        (abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)
    ):
        if size > 1 and stride < reach:
            break
        reach += stride * (size - 1)
    else:
        return False  # each axis steps over all that the finer axes reach
    layout = _layout(array)
    for axis in range(layout.ndim):
        front, rest = np.split(layout, [1], axis)
        if overlap(front, rest):
            return True
    return False
