"""The gradient of a weight from partial sums of ranges, which gradient_sum.cu adds in order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._arrays import Array, accumulator
from .._geometry import ConvGeometry
from .._packing import strides_of
from .._strides import batch_strides
from .._taps import on_three_axes
from .launches import ELEMENTS, FLOATS, MAX_GRID, SECTOR, Instance, Launch
from .members import CALL, Members, Template
from .memory import along_three_axes
from .question import LayoutT, Question, TiledPlan
from .views import merged_axes, view

SOURCES = ("gradient_sum.cu",)

THREADS, TILE = 128, 1024  # of a block: threads, and sums that pass through shared memory
_SECTOR = SECTOR // 4  # partial sums, of 32 bits
MOST_PARTIAL = 32 << 20  # bytes of the partial sums of a call


def _instance(dtype: str) -> Instance:
    return Instance(SOURCES[0], "gradient_sum", (("ELEMENT", ELEMENTS[dtype]),))


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    yield from map(_instance, FLOATS)


@dataclass(frozen=True)
class SummedPlan(TiledPlan[LayoutT]):
    """A plan of a launch that writes partial sums, and of one that adds them.

    Attributes
    ----------
    add : Launch
        Adds the partial sums.
    partial, copies : int
        Bytes of the partial sums, and of what the first launch reads in the place of the arrays.
    """

    add: Launch
    partial: int
    copies: int = 0

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order; those that copy are not among them."""
        return self.launch, self.add

    @property
    def workspace(self) -> int:
        """Bytes of the copies and of the partial sums."""
        return self.partial + self.copies

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.add}"


def columns(geometry: ConvGeometry) -> int:
    """Return the elements of the gradient for each output channel."""
    return geometry.channels * math.prod(axis.kernel for axis in geometry.axes)


def elements(geometry: ConvGeometry) -> int:
    """Return the elements of the gradient."""
    return geometry.groups * geometry.rows * columns(geometry)


def nbytes(question: Question) -> int:
    """Return the bytes of the partial sums of a range."""
    return accumulator(question.dtype).itemsize * elements(question.geometry)


def launch(dtype: np.dtype, geometry: ConvGeometry, together: int = 1) -> Launch:
    """Return the launch for the gradient of the weight of a convolution.

    So many partial sums of a tap lie `together`: one, or those of all channels.
    """
    blocks = -(-elements(geometry) // THREADS)
    if width := _width(geometry, together):
        blocks = geometry.groups * geometry.rows * -(-together // width)
    return Launch(_instance(dtype.name), min(blocks, MAX_GRID), THREADS)


def template(
    splits: int,
    geometry: ConvGeometry,
    data: Array,
    grad_output: Array,
    out: Array,
    together: int = 1,
) -> Template:
    """Return the arguments; a call puts in the addresses of the arrays and of the partial sums.

    So many of these lie `together`, as `launch` says.
    """
    data_batch, data_channel, *data_axes = batch_strides(geometry, data, out.dtype)
    grad_batch, grad_row, *grad_axes = batch_strides(geometry, grad_output, out.dtype)
    members: Members = {
        "input": CALL,
        "grad": CALL,
        "partial": CALL,
        "out": CALL,
        "splits": splits,
        "groups": geometry.groups,
        "rows": geometry.rows,
        "columns": columns(geometry),
        "together": together,
        "width": _width(geometry, together),
        "batch": geometry.batch,
        "input_batch": data_batch,
        "input_group": geometry.channels * data_channel,
        "input_channel": data_channel,
        "grad_batch": grad_batch,
        "grad_group": geometry.rows * grad_row,
        "grad_row": grad_row,
        "axis": axes(geometry, data_axes, grad_axes),
        "view": view(merged_axes(out.shape, strides_of(out))),
    }
    return Template(SOURCES[0], members)


def _width(geometry: ConvGeometry, together: int) -> int:
    """Return the channels of a tile, in whole sectors; 0 if there are no tiles.

    That is where sums lie as the gradient does, and where a tile would have few channels.
    """
    taps = columns(geometry) // together
    most = TILE // taps // _SECTOR * _SECTOR
    if together == 1 or taps == 1 or not most:
        return 0
    even = -(-together // -(-together // most))
    return min(together, -(-even // _SECTOR) * _SECTOR)


def axes(geometry: ConvGeometry, data: list[int], grad_output: list[int]) -> list[Members]:
    """Return a ``struct Axis`` for z, y and x, with the strides of both arrays."""
    of_arrays = zip(
        on_three_axes(geometry.axes),
        along_three_axes(data),
        along_three_axes(grad_output),
        strict=True,
    )
    return [
        {
            "size_in": axis.size_in,
            "size_out": axis.size_out,
            "kernel": axis.kernel,
            "step": axis.step,
            "dilation": axis.dilation,
            "pad": -axis.origin,
            "input": of_data,
            "grad": of_grad,
        }
        for axis, of_data, of_grad in of_arrays
    ]
