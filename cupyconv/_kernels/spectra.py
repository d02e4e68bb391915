"""Products of spectra, summed over channels, by spectra.cu: the middle of a convolution by FFT."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .._arrays import Array
from .._packing import long_reciprocal, strides_of
from .launches import ELEMENTS, MAX_GRID, Instance, Launch
from .members import CALL, Members, Template, float64_word

if TYPE_CHECKING:
    from .._device import Device

SOURCES = ("spectra.cu",)

THREADS = 128
_TILES = 1, 4  # sums of a thread along rows and columns


def _instance(dtype: str, tile: int) -> Instance:
    defines = ("ELEMENT", ELEMENTS[dtype]), ("TILE", str(tile))
    return Instance(SOURCES[0], "spectra", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that calls can ask for on a target."""
    for dtype in ("complex64", "complex128"):
        for tile in _TILES:
            yield _instance(dtype, tile)


def bind(
    a: Array, b: Array, out: Array, scale: float, adds: bool, device: Device
) -> Callable[[Array, Array, Array], None]:
    """Return a function that writes or adds the product of spectra with these layouts.

    They are ``(g, i, k, *f)`` and ``(g, k, j, *f)``, with frequencies in C order.
    """
    tile, (groups, rows, columns) = _TILES[min(out.shape[1:3]) > 1], out.shape[:3]
    frequencies = math.prod(out.shape[3:])
    parts = -(-frequencies // THREADS), -(-columns // tile), -(-rows // tile)
    tasks = groups * math.prod(parts)
    (a_group, a_row, a_depth), (b_group, b_depth, b_column), (out_group, out_row, out_column) = (
        strides_of(array)[:3] for array in (a, b, out)
    )
    members: Members = {
        "a": CALL,
        "b": CALL,
        "out": CALL,
        "adds": int(adds),
        "scale": float64_word(scale),
        "tasks": tasks,
        "frequencies": frequencies,
        "rows": rows,
        "columns": columns,
        "depth": a.shape[2],
        "a_group": a_group,
        "a_row": a_row,
        "a_depth": a_depth,
        "b_group": b_group,
        "b_depth": b_depth,
        "b_column": b_column,
        "out_group": out_group,
        "out_row": out_row,
        "out_column": out_column,
        "parts": parts,
        "reciprocals": [long_reciprocal(count) for count in parts],
    }
    template = Template(SOURCES[0], members)
    launch = Launch(_instance(out.dtype.name, tile), min(tasks, MAX_GRID), THREADS)
    run, address = device.launcher(launch), device.address
    return lambda a, b, out: run(template.fill(address(a), address(b), address(out)))
