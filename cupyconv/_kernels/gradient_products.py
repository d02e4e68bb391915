"""What gradients of a weight on Tensor Cores do: products whose sums run over all outputs.

They multiply chunks of samples, or copies of these, and add the sums of later chunks to the sums of
the first chunk. `Grid` describes the copies of two of the kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from .._arrays import Array, Blueprint, WeightGradient
from .._chunks import chunks
from .._geometry import ConvGeometry
from . import gradient_sum
from .direct_conv import LAUNCH
from .launches import MAX_GRID
from .matrix_gradient_grid import Grid
from .modes import Mode, unscaled_mode
from .question import LARGE, MANY_AXES, Question, Refusal, fits_32_bits, not_multiplied

if TYPE_CHECKING:
    from .._device import Device

MOST_TAPS = 64  # of an axis
DOUBLE = Mode("double", "double", 1)


# Words of the copies for each input of a channel at the most, where there are many.
_MOST_COPIED, _MANY_INPUTS = 8, 2**12


class Shape(Protocol):
    """The tile of a block."""

    @property
    def rows(self) -> int:
        """Output channels of a tile."""

    @property
    def columns(self) -> int:
        """Input channels times taps of a tile."""


ShapeT = TypeVar("ShapeT", bound=Shape)


@dataclass(frozen=True)
class SumLayout(Generic[ShapeT]):
    """How a gradient is divided into tiles, and its sums into chunks of samples and ranges.

    Attributes
    ----------
    shape : Shape
        Rows and columns of a tile.
    row_tiles, column_tiles : int
        Tiles of a group.
    samples : tuple of int
        Samples of each chunk.
    splits : int
        Ranges of a chunk.
    cycles : float
        The model's time.
    """

    shape: ShapeT
    row_tiles: int
    column_tiles: int
    samples: tuple[int, ...]
    splits: int
    cycles: float

    def __str__(self) -> str:
        return (
            f"{self.row_tiles} x {self.column_tiles} tiles of {self.shape.rows} x "
            f"{self.shape.columns}, {self.splits} ranges of {len(self.samples)} chunks of samples"
        )


@dataclass(frozen=True)
class ProductLayout(SumLayout[ShapeT]):
    """How a gradient is divided that multiplies copies in which a tap is a shift.

    Attributes
    ----------
    grid : Grid
        The copies.
    """

    grid: Grid


def has_too_many_planes(grid: Grid, geometry: ConvGeometry) -> bool:
    inputs = math.prod(axis.size_in for axis in geometry.axes)
    return grid.planes * grid.words(1) > _MOST_COPIED * (inputs + _MANY_INPUTS)


MANY_PLANES = "its taps reach into too many planes of inputs"
MUCH_MEMORY = "copies of a sample would take too much memory"


def multiplied(question: Question) -> Mode | Refusal:
    """Return how Tensor Cores multiply the arrays of a gradient, or why they do not."""
    geometry, name = question.geometry, question.dtype.name
    mode = DOUBLE if name == "float64" else unscaled_mode(name, question.precision)
    if mode is None:
        return not_multiplied(question.dtype)
    if geometry.is_empty or 0 in geometry.out_shape:
        return "its sums have no products"
    if geometry.rank > 3:
        return MANY_AXES
    if not fits_32_bits(geometry) or gradient_sum.elements(geometry) > MAX_GRID:
        return LARGE
    if max(axis.kernel for axis in geometry.axes) > MOST_TAPS:
        return f"its kernel has more than {MOST_TAPS} taps along an axis"
    return mode


def sample_bytes(geometry: ConvGeometry, grid: Grid, parts: int = 1, samples: int = 1) -> int:
    """Return the bytes of the copies of a sample, or of some samples."""
    channels = geometry.rows + geometry.channels * grid.planes
    return grid.word * parts * geometry.groups * channels * grid.words(samples)


def samples_of_chunks(geometry: ConvGeometry, nbytes: int) -> tuple[int, ...]:
    """Return the samples of each chunk, where the copies of a sample take so many bytes."""
    # The input may be a padded copy already.
    parts = chunks(geometry.batch, nbytes, copies=2)
    return tuple(part.stop - part.start for part in parts)


# What a multiprocessor copies in a cycle: elements that it loads, and bytes that it writes. These
# numbers and those of both kernels were fitted to the times of an H200 for KernelBench's gradients
# (``python -m benchmarks.on_weight_gradients --kernels``).
_LOADED, _WRITTEN = 5, 10


def cycles_to_copy(question: Question, grid: Grid, parts: int, chunks: int) -> float:
    """Return the cycles of the copies of all chunks, and of the chunks' launches."""
    if grid.flat:
        return chunks * LAUNCH
    geometry = question.geometry
    elements = geometry.batch * sample_bytes(geometry, grid) / grid.itemsize
    copied = elements / _LOADED + elements * parts * grid.itemsize / _WRITTEN
    # A chunk has a copy of each array, and the products.
    return 3 * chunks * LAUNCH + copied / question.processor.multiprocessors


def cycles_to_add(question: Question, chunks: int, splits: int, stored: float) -> float:
    """Return the cycles of the partial sums of all chunks.

    A multiprocessor takes `stored` cycles to store one, and twice as many to add to it.
    """
    sums = splits * gradient_sum.nbytes(question) / 4
    return (2 * chunks - 1) * sums * stored / question.processor.multiprocessors


def fastest_splits(
    question: Question, tiles: int, resident: int, steps: int, cycles: Callable[[int], float]
) -> int:
    """Return how many ranges of steps take the fewest cycles, by those of a number of ranges.

    So many blocks are `resident` on a GPU; the partial sums take `gradient_sum.MOST_PARTIAL` bytes
    at the most.
    """
    most = min(steps, max(1, gradient_sum.MOST_PARTIAL // gradient_sum.nbytes(question)))
    counts = {min(most, max(1, waves * resident // tiles)) for waves in range(1, 9)}
    return min(sorted(counts), key=cycles)


class Chunk(Protocol):
    """The launches of a number of samples."""

    def multiply(self, inputs: Array, grads: Array, partial: int, adds: bool) -> None:
        """Copy arrays by channel and sample, and write or add the sums of their products."""


def bind(
    plan: gradient_sum.SummedPlan[Any],
    question: Question,
    data: Array,
    grad_output: Array,
    out: Array,
    device: Device,
    prepare: Callable[[int, list[Array]], Chunk],
    together: int = 1,
) -> WeightGradient:
    """Return the gradient of a plan for all arrays with the layouts of these.

    `prepare` returns the launches of a number of samples, for views by channel and sample. So many
    partial sums of a tap lie `together`.
    """
    geometry, dtype, samples = question.geometry, question.dtype, plan.layout.samples
    add, cast, address = device.launcher(plan.add), device.cast, device.address
    channels = geometry.groups * geometry.channels, geometry.groups * geometry.rows
    shapes = [array.shape[-geometry.rank :] for array in (data, grad_output)]

    def by_channel(array: Array, number: int) -> Array:
        """Return a view by channel, sample and place."""
        array = array.reshape(geometry.batch, channels[number], *shapes[number])
        return array.swapaxes(0, 1)

    like = [_cast_blueprint(array, dtype) for array in (data, grad_output)]
    views = [by_channel(array, number) for number, array in enumerate(like)]
    # Chunks of as many samples have the same launches.
    prepared = {count: prepare(count, [view[:, :count] for view in views]) for count in {*samples}}
    starts = [*itertools.accumulate(samples, initial=0)]
    parts = [(slice(*ends), ends[0] > 0) for ends in itertools.pairwise(starts)]
    sums = gradient_sum.template(plan.layout.splits, geometry, data, grad_output, out, together)

    def gradient(data: Array, grad_output: Array, out: Array) -> None:
        data, grad_output = cast(data, dtype), cast(grad_output, dtype)
        inputs, grads = by_channel(data, 0), by_channel(grad_output, 1)
        partial = device.workspace((plan.partial,), np.dtype(np.uint8))
        for part, adds in parts:
            chunk = prepared[part.stop - part.start]
            chunk.multiply(inputs[:, part], grads[:, part], address(partial), adds)
        add(sums.fill(address(data), address(grad_output), address(partial), address(out)))

    return gradient


def _cast_blueprint(array: Array, dtype: np.dtype) -> Array:
    """Return an array that lies as what a device casts `array` to."""
    return array if array.dtype == dtype else Blueprint(array.shape, dtype)
