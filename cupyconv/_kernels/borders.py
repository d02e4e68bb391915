"""Copies with borders and their transpose: borders.cu pads an array, or folds a padded one back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import Array
from .._packing import c_strides, long_reciprocal, strides_of, zero_padded
from .._placement import Placement
from .launches import BITS, ELEMENTS, INT32_LIMIT, MAX_GRID, Instance, Launch, element
from .members import CALL, Members, Template, border_word, parameter
from .views import MAX_AXES

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("borders.cu",)

THREADS = 256
ROWS, COLUMNS = 8, 8  # lines of a task, and elements of each of its threads along a line
_LANES = 32  # threads that share a line at the most


def _instance(function: str, dtype: str) -> Instance:
    return Instance(SOURCES[0], function, (("ELEMENT", ELEMENTS[dtype]),))


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that calls can ask for on a target."""
    for name in (*BITS.values(), "complex64", "complex128"):
        yield _instance("pad", name)
    for name in ("uint16", "uint32", "uint64", "complex64", "complex128"):
        yield _instance("components", name)
    for name in ELEMENTS:
        yield _instance("fold", name)


def _pad_launch(placement: Placement, dtype: np.dtype) -> Launch:
    # Complex numbers are copied as such, since no integer has 16 bytes.
    name = dtype.name if dtype.kind == "c" else BITS[dtype.itemsize]
    function = "pad" if placement.whole == placement.padded else "components"
    return _launch(_instance(function, name), placement.padded, math.prod(placement.components))


def _lanes(width: int) -> int:
    """Return the threads that share a line: a power of two."""
    return int(min(_LANES, 1 << (width - 1).bit_length()))


def _parts(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tasks along each axis of a result."""
    *others, height, width = shape
    return (*others, -(-height // ROWS), -(-width // (COLUMNS * _lanes(width))))


def _launch(instance: Instance, result: tuple[int, ...], count: int = 1) -> Launch:
    blocks = -(-count * math.prod(_parts(result)) * _lanes(result[-1]) // THREADS)
    return Launch(instance, min(blocks, MAX_GRID), THREADS)


def _reach(placement: Placement) -> int:
    """Return a bound of the positions that a kernel computes on an axis."""
    axes = zip(placement.sizes, placement.whole, placement.before, placement.steps, strict=True)
    return max(2 * (size * step + whole + abs(before)) for size, whole, before, step in axes)


def _template(
    placement: Placement, array: Array, bias: Array | None, result: tuple[int, ...]
) -> Template:
    """Return the arguments for an array; a call puts in both addresses and that of the bias."""
    parts = *_parts(result), math.prod(placement.components)
    members: Members = {
        "array": CALL,
        "wide": CALL,
        "bias": parameter(bias),
        "mode": border_word(placement.mode),
        "axes": len(result),
        "tasks": math.prod(parts),
        "lanes": _lanes(result[-1]),
        "far": int(_reach(placement) >= INT32_LIMIT),
        "size": zero_padded(placement.sizes, MAX_AXES),
        "wide_size": zero_padded(placement.padded, MAX_AXES),
        "before": zero_padded(placement.before, MAX_AXES),
        "step": zero_padded(placement.steps, MAX_AXES),
        "elements": math.prod(placement.padded),
        "wide_step": zero_padded(placement.strides, MAX_AXES),
        "components": zero_padded(placement.components, MAX_AXES),
        "shift": zero_padded(placement.shifts, MAX_AXES),
        "stride": zero_padded(strides_of(array), MAX_AXES),
        "wide_stride": zero_padded(c_strides(placement.padded), MAX_AXES),
        "parts": zero_padded(parts, MAX_AXES),
        "reciprocal": zero_padded([long_reciprocal(count) for count in parts], MAX_AXES),
    }
    return Template(SOURCES[0], members)


def bind_pad(placement: Placement, data: Array, device: Device) -> Callable[[Array, Array], None]:
    """Return a function that places arrays with the strides of `data` in contiguous larger ones."""
    template = _template(placement, data, None, placement.padded)
    run, address = device.launcher(_pad_launch(placement, data.dtype)), device.address
    return lambda data, wide: run(template.fill(address(data), address(wide), 0))


def bind_fold(
    placement: Placement, bias: Array | None, out: Array, device: Device
) -> Callable[[Array, Array | None, Array], None]:
    """Return a function that folds padded arrays to results with the strides of `out`."""
    template = _template(placement, out, bias, placement.sizes)
    launch = _launch(_instance("fold", element(out.dtype)), placement.sizes)
    run, address = device.launcher(launch), device.address

    def fold(wide: Array, bias: Array | None, out: Array) -> None:
        term = 0 if bias is None else address(bias)
        run(template.fill(address(out), address(wide), term))

    return fold
