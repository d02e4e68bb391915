"""The sum of split-K ranges: partial sums of outputs, added in order by sum_splits.cu."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .._arrays import Array
from .launches import ELEMENTS, MAX_GRID, Instance, Launch, element
from .members import CALL, Members, Template, parameter
from .views import merged_axes, view

if TYPE_CHECKING:
    import numpy as np

SOURCES = ("sum_splits.cu",)

THREADS = 128


def _instance(dtype: str) -> Instance:
    return Instance(SOURCES[0], "sum_splits", (("ELEMENT", ELEMENTS[dtype]),))


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    yield from map(_instance, ELEMENTS)


def launch(dtype: np.dtype, outputs: int) -> Launch:
    """Return the launch for a number of outputs."""
    return Launch(_instance(element(dtype)), min(-(-outputs // THREADS), MAX_GRID), THREADS)


def template(
    splits: int,
    shape: Sequence[int],
    strides: Sequence[int],
    bias: Array | None = None,
    neighbours: int = 1,
) -> Template:
    """Return the arguments for an output of this shape and these strides, in elements.

    So many `neighbours` have one bias, then come those of the next one. A call puts in the
    addresses of the partial sums, of the output and of the bias.
    """
    members: Members = {
        "partial": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "splits": splits,
        "outputs": math.prod(shape),
        "row_outputs": neighbours,
        "rows": bias.size if bias is not None else 1,
        "view": view(merged_axes(shape, strides)),
    }
    return Template(SOURCES[0], members)
