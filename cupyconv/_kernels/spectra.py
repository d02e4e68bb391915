"""Products of spectra, summed over channels, by spectra.cu: the middle of a convolution by FFT."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._arrays import Array
from .._packing import long_reciprocal, strides_of
from .launches import ELEMENTS, MAX_GRID, Instance, Launch
from .members import Members, Template, float64_word

if TYPE_CHECKING:
    import numpy as np

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


def _parts(shape: tuple[int, ...], tile: int) -> tuple[int, int, int]:
    """Return the tasks along frequencies, columns and rows of a result."""
    _, rows, columns, *lengths = shape
    return -(-math.prod(lengths) // THREADS), -(-columns // tile), -(-rows // tile)


def _tile(shape: tuple[int, ...]) -> int:
    return _TILES[min(shape[1:3]) > 1]


def launch(shape: tuple[int, ...], dtype: np.dtype) -> Launch:
    """Return the launch for a result of this shape: groups, rows, columns and frequencies."""
    tile = _tile(shape)
    tasks = shape[0] * math.prod(_parts(shape, tile))
    return Launch(_instance(dtype.name, tile), min(tasks, MAX_GRID), THREADS)


def run(a: Array, b: Array, out: Array, scale: float, adds: bool, device: Device) -> None:
    """Write or add the product of spectra ``(g, i, k, *f)`` and ``(g, k, j, *f)`` to `out`."""
    rows, columns = out.shape[1:3]
    parts = _parts(out.shape, _tile(out.shape))
    (a_group, a_row, a_depth), (b_group, b_depth, b_column), (out_group, out_row, out_column) = (
        strides_of(array)[:3] for array in (a, b, out)
    )
    members: Members = {
        "a": device.address(a),
        "b": device.address(b),
        "out": device.address(out),
        "adds": int(adds),
        "scale": float64_word(scale),
        "tasks": out.shape[0] * math.prod(parts),
        "frequencies": math.prod(out.shape[3:]),
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
    device.launcher(launch(out.shape, out.dtype))(Template(SOURCES[0], members).fill())
