"""Helpers of the tests of the dense kernel's instances: what an instance is made for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from cupyconv._kernels import choice, matrix_conv, matrix_shapes, matrix_tiles, modes, sums
from cupyconv._kernels.launches import Instance


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


def choose_shape(
    monkeypatch: pytest.MonkeyPatch, parts: Parts, folds: tuple[int, int, int]
) -> None:
    """Of the tilings, plans choose among those of a shape that divide x and another axis."""
    candidates = matrix_tiles._candidates

    def suitable(*arguments: Any) -> Iterator[matrix_tiles.Tiling]:
        for tiling in candidates(*arguments):
            *outer, x = tiling.tiles
            if tiling.shape == parts.shape and x > 1 and math.prod(outer) > 1:
                yield tiling

    monkeypatch.setattr(matrix_tiles, "_candidates", suitable)
    monkeypatch.setattr(matrix_tiles, "_least_cycles", lambda *_: 0)
    monkeypatch.setattr(modes, "mode", lambda *arguments: parts.mode)
    monkeypatch.setattr(sums, "folds_of", lambda *arguments: [folds])
    monkeypatch.setattr(matrix_conv, "_sum", matrix_conv._sum.__wrapped__)
    monkeypatch.setattr(choice, "_plan_conv", choice._plan_conv.__wrapped__)
    monkeypatch.setattr(choice, "_plan_fused", choice._plan_fused.__wrapped__)
