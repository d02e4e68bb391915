"""The few-channel kernel: one tap or few products, operands loaded straight from memory.

Warpgroups of compute capability 9.0 multiply inputs in registers by weights in shared memory. The
order of a sum follows from the products of an output and the rows of a group alone. All else may
depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from .._axes import has_one_tap, is_inside
from .._geometry import ConvGeometry
from .._taps import on_three_axes
from .launches import INT32_LIMIT, WGMMA, Instance, Launch
from .members import CALL, Members, Template, parameter
from .memory import along_three_axes, neighbours_together, space, weight_strides
from .modes import SLAB_ROWS, TEAM, Mode, modes, unscaled_mode
from .question import (
    LARGE,
    MANY_AXES,
    Question,
    Refusal,
    TiledPlan,
    fits_32_bits,
    not_multiplied,
)

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("streaming_conv.cu",)
ORDER = "K steps of channels, or of products of taps and channels; the bias last"
UNIT = "Tensor Core"

_MOST_PRODUCTS = 400  # of an output, with several taps
_MOST_BITS = 30  # of the taps of all axes, one for each
_TERM = 24  # bytes of the tables that a product takes with several taps


@dataclass(frozen=True)
class Shape:
    """What a kernel is built for; the macros of streaming_conv.cu.

    Attributes
    ----------
    channels : int
        Input channels of a chunk; with several taps, products of a chunk.
    teams : int
        Warpgroups of a block, which the registers of a multiprocessor have to hold.
    held : int
        Passes whose sums a warpgroup holds while it goes over several chunks; 0 where one chunk has
        all channels of a group.
    rows : int
        Output channels of a pass.
    taps : bool
        Whether there are several.
    """

    channels: int
    teams: int
    held: int = 0
    rows: int = SLAB_ROWS
    taps: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return TEAM * self.teams

    def weights(self, mode: Mode, chunks: int) -> int:
        """Return the bytes of the weights and biases of a pass."""
        steps = chunks * self.channels // mode.block
        return (steps * mode.slab_bytes // SLAB_ROWS + 4) * self.rows


# By the bytes of an element and the Tensor Core products of a K step.
SHAPES = {
    (4, 3): (Shape(32, 4), Shape(64, 2), Shape(96, 2), Shape(64, 2, 1), Shape(64, 2, 2)),
    (4, 1): (
        *(Shape(32, 4), Shape(64, 2), Shape(96, 2), Shape(128, 2)),
        *(Shape(64, 3, 1), Shape(64, 3, 2)),
    ),
    (2, 1): (Shape(32, 4), Shape(64, 2), Shape(96, 2), Shape(128, 2)),
}
_TAPPED = {
    (4, 3): (
        *(Shape(32, 4), Shape(32, 3), Shape(64, 3), Shape(64, 3, rows=48), Shape(88, 2)),
        *(Shape(32, 3, 1), Shape(32, 3, 1, rows=48), Shape(32, 4, 1, rows=32)),
    ),
    (4, 1): (
        *(Shape(32, 4), Shape(48, 3)),
        *(Shape(32, 4, 1), Shape(32, 4, 1, rows=32), Shape(32, 3, 2)),
    ),
    (2, 1): (
        *(Shape(32, 4), Shape(32, 3), Shape(64, 4)),
        *(Shape(32, 4, 1), Shape(32, 4, 1, rows=32), Shape(32, 3, 2)),
    ),
}
TAPPED = {
    kind: tuple(replace(shape, taps=True) for shape in shapes) for kind, shapes in _TAPPED.items()
}


def shapes(mode: Mode, taps: bool = False) -> tuple[Shape, ...]:
    """Return what kernels are built for."""
    return (TAPPED if taps else SHAPES)[mode.itemsize, mode.products]


def _instance(mode: Mode, shape: Shape) -> Instance:
    return Instance(
        "streaming_conv.cu",
        "streaming_conv",
        (
            ("ELEMENT", mode.element),
            ("PARTS", str(mode.parts)),
            ("CHANNELS", str(shape.channels)),
            ("TEAMS", str(shape.teams)),
            *((("HELD", str(shape.held)),) if shape.held else ()),
            *((("PASS_ROWS", str(shape.rows)),) if shape.rows != SLAB_ROWS else ()),
            *((("TAPS", "1"),) if shape.taps else ()),
        ),
    )


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for mode in modes("hopper") if target in WGMMA else ():
        if mode.scaled:
            continue
        for taps in (False, True):
            for shape in shapes(mode, taps):
                yield _instance(mode, shape)


# Plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How outputs are divided into tiles.

    Attributes
    ----------
    shape : Shape
        The kernel.
    products : int
        Products of an output.
    chunks : int
        Chunks of these products.
    positions : int
        Positions of the outputs of all samples.
    tiles : int
        Tiles of positions; a warpgroup takes one at a time.
    passes : int
        Passes over which a warpgroup goes for a tile.
    units : int
        What blocks stay with: the rows of all passes, of a group.
    shared : int
        Bytes of shared memory.
    cycles : float
        Cycles that the model gives it.
    """

    shape: Shape
    products: int
    chunks: int
    positions: int
    tiles: int
    passes: int
    units: int
    shared: int
    cycles: float

    def __str__(self) -> str:
        return (
            f"{self.units} x {self.tiles} tiles of {self.passes * self.shape.rows} rows x "
            f"{-(-self.positions // self.tiles)} outputs"
        )


class StreamingPlan(TiledPlan[Layout]):
    """How a convolution runs by streaming_conv.cu."""


PLAN = StreamingPlan


def plan(question: Question) -> StreamingPlan | Refusal:
    """Return the plan for one tap or few products, or why there is none."""
    geometry, processor = question.geometry, question.processor
    mode = unscaled_mode(question.dtype.name, question.precision)
    if mode is None:
        return not_multiplied(question.dtype)
    if not _suits(geometry):
        return "it has phases, many taps, or more products than tables are made of"
    if geometry.rank > 3:
        return MANY_AXES
    if not processor.has_wgmma:
        return f"{processor.target} lacks the instructions"
    layout = _layout(geometry, mode, processor.shared, processor.multiprocessors)
    if layout is None:
        return "registers have no room for its channels, or shared memory for weights of 64 rows"
    size = math.prod(axis.size_out for axis in geometry.axes)
    largest = max(size, geometry.batch, geometry.rows, layout.tiles, layout.units)
    if not fits_32_bits(geometry) or largest >= INT32_LIMIT // 2:
        return LARGE
    blocks = min(layout.tiles, max(1, processor.multiprocessors // layout.units))
    launch = Launch(
        _instance(mode, layout.shape),
        blocks * layout.units,
        layout.shape.threads,
        layout.shared,
        layout.units,
    )
    return StreamingPlan(launch, layout)


PLANS = {"streaming": plan}


# Arguments ------------------------------------------------------------------------------------


def bind(
    plan: StreamingPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    geometry, shape, itemsize = question.geometry, plan.layout.shape, question.dtype.itemsize
    template = Template(SOURCES[0], _arguments(plan.layout, geometry, strides, bias))
    # With several taps, a thread's neighbours are taken together in the result alone.
    places = _places(shape, itemsize)
    together = neighbours_together(geometry, strides, places, not shape.taps)
    launch, address = device.launcher(plan.launch), device.address

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source, result = address(data), address(out)
        term = 0 if bias is None else address(bias)
        loaded = 0 if shape.taps else source
        aligned = together and (loaded | result) % (places * itemsize) == 0
        launch(template.fill(source, address(weight), result, term, aligned))

    return convolve


def _arguments(
    layout: Layout, geometry: ConvGeometry, strides: ConvStrides, bias: Array | None
) -> Members:
    """Return the members of ``struct Arguments``."""
    axes = on_three_axes(geometry.axes)
    return {
        "input": CALL,
        "weight": CALL,
        "out": CALL,
        "bias": parameter(bias),
        "positions": layout.positions,
        "products": layout.products,
        "rows": geometry.rows,
        **weight_strides(strides),
        "space": space(geometry, strides),
        "units": layout.units,
        "passes": layout.passes,
        "chunks": layout.chunks,
        "taps": layout.products // geometry.channels,
        "kernel": [axis.kernel for axis in axes],
        "size_in": [axis.size_in for axis in axes],
        "step": [axis.step for axis in axes],
        "low": [axis.origin for axis in axes],
        "apart": [axis.offset_step for axis in axes],
        "weight_axis": along_three_axes(strides.weight_axes),
        "padded": not all(map(is_inside, axes)),
        "together": CALL,
    }


# Tiles ----------------------------------------------------------------------------------------


def _places(shape: Shape, itemsize: int) -> int:
    """Return how many positions a thread has: 8 bytes of them, or two."""
    return 2 if shape.taps else 8 // itemsize


def _products(geometry: ConvGeometry) -> int:
    """Return the products of an output, products with the padding included."""
    return geometry.channels * math.prod(axis.kernel for axis in geometry.axes)


def _suits(geometry: ConvGeometry) -> bool:
    """Return whether the kernel is for the taps of a convolution."""
    if 0 in (geometry.channels, geometry.rows) or any(axis.phases > 1 for axis in geometry.axes):
        return False
    if has_one_tap(geometry):
        return True
    bits = sum(axis.kernel for axis in geometry.axes) + 3 - geometry.rank
    return bits <= _MOST_BITS and _products(geometry) <= _MOST_PRODUCTS


def _layout(geometry: ConvGeometry, mode: Mode, shared: int, multiprocessors: int) -> Layout | None:
    """Return how the outputs of a convolution are divided; None where weights have no room."""
    found = [
        candidate
        for shape in _suited(geometry, mode)
        for candidate in candidates(geometry, mode, shape, shared, multiprocessors)
    ]
    return min(found, key=lambda pair: pair[0], default=(0, None))[1]


_LINE, _FEW_TEAMS = 128, 3  # bytes of a line of memory, and warpgroups that share few of them
_NARROW = 32  # rows of passes for convolutions that have no more


def _suited(geometry: ConvGeometry, mode: Mode) -> list[Shape]:
    """Return the shapes that a convolution may have, all with chunks of the same size.

    The size of a chunk is the order of a sum, so it follows from the geometry of one sample.
    """
    rows, products = geometry.rows, _products(geometry)
    every = shapes(mode, taps=not has_one_tap(geometry))
    narrow = [shape for shape in every if rows <= shape.rows == _NARROW]
    # Others take as few passes as there are, and of these the narrowest ones.
    passes = -(-rows // SLAB_ROWS)
    enough = [shape for shape in every if passes * shape.rows >= rows]
    alone = [shape for shape in enough if not shape.held and shape.channels >= products]
    if narrow or not alone:
        held = narrow or [shape for shape in enough if shape.held]
        return [shape for shape in held if shape.rows == min(one.rows for one in held)]
    # Where planes of outputs begin within lines of memory, few warpgroups write them faster.
    plane = math.prod(axis.size_out for axis in geometry.axes) * mode.itemsize
    within = alone[0].taps and plane % _LINE
    few = [shape for shape in alone if shape.teams == _FEW_TEAMS] if within else []
    return [min(few or alone, key=lambda shape: shape.channels * shape.rows)]


# The time of a tile's loads, and of the weights of a pass: in passes of a warpgroup.
_LOADS, _WEIGHTS = 2, 2
_BEGIN = 5000  # cycles in which a block brings its weights, after another one


def candidates(
    geometry: ConvGeometry, mode: Mode, shape: Shape, shared: int, multiprocessors: int
) -> Iterator[tuple[float, Layout]]:
    """Yield a layout for each number of passes that fits, with the time of a block in passes."""
    products = _products(geometry)
    positions = geometry.batch * math.prod(axis.size_out for axis in geometry.axes)
    pairs = _places(shape, mode.itemsize) // 2  # of products side by side
    tiles = -(-positions // (64 * pairs))
    chunks = -(-products // shape.channels)
    terms = _TERM * chunks * shape.channels if shape.taps else 0
    all_passes = -(-geometry.rows // shape.rows)
    weights = shape.weights(mode, chunks)
    most = (shared - terms) // weights
    for passes in [shape.held] if shape.held else range(min(all_passes, most), 0, -1):
        if passes > most:
            continue
        size = passes * weights + terms
        units = geometry.groups * -(-all_passes // passes)
        blocks, waves = max(1, multiprocessors // units), -(-units // multiprocessors)
        rounds = -(-tiles // (blocks * shape.teams)) * waves
        share = passes * shape.rows / SLAB_ROWS
        time = rounds * (_LOADS + share) + _WEIGHTS * share
        cycles = positions * units / multiprocessors
        cycles *= _cycles(geometry, shape, mode, chunks * shape.channels, passes)
        cycles += (waves - 1) * _BEGIN
        layout = Layout(
            shape=shape,
            products=products,
            chunks=chunks,
            positions=positions,
            tiles=tiles,
            passes=passes,
            units=units,
            shared=size,
            cycles=cycles,
        )
        yield time, layout


# Cycles of a position in a multiprocessor with one tap, fitted to times on an H200: to load the
# input of a channel; to store a byte, and the factor by which that takes longer where neighbours do
# not lie together, by the bytes of an element.
_LOAD = 0.12
_STORE, _SCATTERED = 0.05, {4: 2.6, 2: 6.0}
# The same with several taps: to load the input of a product, longer where the inputs of neighbours
# lie apart, or for each channel beyond eight whose lines the L1 cache has to keep; to multiply, as
# a factor of the time of Tensor Cores; to store; to find a position, and its absent taps.
_LOAD_OF_TAPS, _FAR, _CROWDED = 0.048, 1.8, 0.006
_MULTIPLY_OF_TAPS = {4: 1.15, 2: 1.95}
_STORE_OF_TAPS, _SCATTERED_OF_TAPS = 0.028, {4: 2.1, 2: 4.2}
_FIND, _PADDED = {4: 4.5, 2: 6.2}, 6.0


def _cycles(geometry: ConvGeometry, shape: Shape, mode: Mode, products: int, passes: int) -> float:
    """Return the cycles of a position in `passes` passes, for arrays without gaps."""
    size, last = mode.itemsize, geometry.axes[-1]
    rows = passes * shape.rows
    multiplied = rows * products * mode.products / mode.rate
    stored = min(rows, geometry.rows) * size
    scattered = last.size_out % _places(shape, size) > 0
    if not shape.taps:
        stores = _STORE * stored * (_SCATTERED[size] if scattered else 1)
        return _LOAD * products + multiplied + stores
    load = (
        _LOAD_OF_TAPS * _FAR
        if last.step > 1
        else _LOAD_OF_TAPS + _CROWDED * max(0, geometry.channels - 8)
    )
    loads = load * products
    stores = _STORE_OF_TAPS * stored * (_SCATTERED_OF_TAPS[size] if scattered else 1)
    find = _FIND[size] + _PADDED * (not all(map(is_inside, geometry.axes)))
    return loads + _MULTIPLY_OF_TAPS[size] * multiplied + stores + find
