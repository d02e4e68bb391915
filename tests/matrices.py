"""Helpers of the tests of the dense kernel's instances: what an instance is made for."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cupyconv._kernels import matrix_shapes, matrix_tiles, modes, sums
from cupyconv._kernels.launches import Instance
from planning import Steering


class Parts(NamedTuple):
    """The kernel, the dtype, the precision, the mode and the shape that an instance is made for."""

    kernel: str
    dtype: str
    precision: str
    mode: modes.Mode
    shape: matrix_shapes.Shape


def parts_of(instance: Instance) -> Parts:
    macros = dict(instance.defines)
    element, parts = macros["ELEMENT"], int(macros["PARTS"])
    shape = [int(macros[name]) for name in ("TEAMS", "SLABS", "SEGMENT", "SEGMENTS")]
    return Parts(
        {"MmaEngine": "portable", "WgmmaEngine": "hopper"}[macros["ENGINE"]],
        "float32" if element == "float" else element,
        "tf32" if element == "float" and parts == 1 else "float32",
        modes.Mode(element, macros.get("OPERAND", element), parts),
        matrix_shapes.Shape(*shape),
    )


def choose_shape(steer: Steering, parts: Parts, folds: tuple[int, int, int]) -> None:
    """Of the tilings, plans choose among those of a shape that divide x and another axis."""

    def suitable(_: Any, tiling: matrix_tiles.Tiling) -> bool:
        *outer, x = tiling.tiles
        return tiling.shape == parts.shape and x > 1 and math.prod(outer) > 1

    steer.choose_among(matrix_tiles, suitable)
    steer.replace(matrix_tiles, least_cycles=lambda *_: 0)
    steer.replace(modes, mode=lambda *arguments: parts.mode)
    steer.replace(sums, packings_of=lambda *arguments: [folds])
