"""Arrays of other libraries: the error names the one line that makes an array of them, and it does.

Small classes stand for those libraries. Each shows what one of them shows of its arrays.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cupyconv
from bounds import assert_same_bits
from reference import Array
from test_errors import FUNCTIONS, right_call, shapes_of


class OnHost:
    """An array in the memory of the host that other libraries can look at."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Exchanged:
    """An array that is handed on by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class OnDevice:
    """An array on a GPU, or, where `array` is NumPy's, something that says so."""

    def __init__(self, array: Any) -> None:
        self.array = array
        on_gpu = not isinstance(array, np.ndarray)
        self.__cuda_array_interface__ = array.__cuda_array_interface__ if on_gpu else {}


class Claims(Exchanged):
    """An array that names a device of its own."""

    def __init__(self, array: Array, device: int) -> None:
        super().__init__(array)
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class NeedsGradient(Exchanged):
    """A tensor that shows DLPack, and answers with an error where it is asked for more."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("this tensor needs a gradient")

    __array_interface__ = __cuda_array_interface__


class Refuses:
    """An object that answers with an error of its own, whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is not for you")


class Unreachable(OnHost):
    """An array whose place DLPack has no name for."""

    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError("this array is spread over several devices")


def advice(function: str, argument: str, value: Any) -> str:
    """What the error says after the type of the argument that is wrong."""
    call = {**right_call(function), argument: value}
    with pytest.raises(TypeError) as raised:
        getattr(cupyconv, function)(**call)
    wrong = f"{function}: {argument} must be a NumPy or CuPy array, got {type(value).__name__}"
    text = str(raised.value)
    assert text.startswith(wrong)
    return text.removeprefix(wrong)


ARGUMENTS = [(function, name) for function in FUNCTIONS for name in shapes_of(function)]


@pytest.mark.parametrize(("function", "argument"), ARGUMENTS)
@pytest.mark.parametrize(
    ("kind", "conversion"),
    [(OnHost, "numpy.asarray"), (Exchanged, "numpy.from_dlpack"), (OnDevice, "cupy.asarray")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_argument(function: str, argument: str, kind: Any, conversion: str) -> None:
    value = kind(right_call(function)[argument])
    assert advice(function, argument, value) == f"; {conversion}({argument}) makes it one"


@pytest.mark.parametrize(
    ("device", "conversion"),
    [(1, "numpy"), (2, "cupy"), (3, "numpy"), (13, "cupy")],
    ids=["host", "cuda", "cuda-host", "cuda-managed"],
)
def test_device_of_dlpack(device: int, conversion: str) -> None:
    text = advice("conv2d", "input", Claims(np.ones(1), device))
    assert text == f"; {conversion}.from_dlpack(input) makes it one"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NeedsGradient(np.ones(1)), "; numpy.from_dlpack(weight) makes it one"),
        (Unreachable(np.ones(1)), "; numpy.asarray(weight) makes it one"),
        (Refuses(), ""),
        (Claims(np.ones(1), 10), ""),  # a GPU of another maker
        (np.float32(1), ""),
        (None, ""),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_objects_that_answer_otherwise(value: Any, text: str) -> None:
    assert advice("conv2d", "weight", value) == text


def converted(module: Any, function: str, argument: str, value: Any) -> Any:
    """What comes out of the conversion that the error names."""
    text = advice(function, argument, value)
    (conversion,) = re.findall(r"^; \w+\.(\w+)\(", text)
    return getattr(module, conversion)(value)


@pytest.mark.parametrize("kind", [OnHost, Exchanged])
def test_the_conversion_on_numpy(kind: Any) -> None:
    """It gives a view of the same memory, which the library takes."""
    x, w = np.random.default_rng().standard_normal((2, 1, 3, 3))[:, None]
    value = converted(np, "conv2d", "input", kind(x))
    assert type(value) is np.ndarray and np.shares_memory(value, x)
    assert_same_bits(cupyconv.conv2d(value, w), cupyconv.conv2d(x, w))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [OnDevice, Exchanged])
def test_the_conversion_on_cupy(kind: Any) -> None:
    import cupy

    x, w = cupy.asarray(np.random.default_rng().standard_normal((2, 1, 3, 3)))[:, None]
    value = converted(cupy, "conv2d", "input", kind(x))
    assert type(value) is cupy.ndarray and value.data.ptr == x.data.ptr
    assert (cupyconv.conv2d(value, w) == cupyconv.conv2d(x, w)).all()
