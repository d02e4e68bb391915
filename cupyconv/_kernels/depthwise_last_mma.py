"""The channels-last depthwise kernel on Tensor Cores: 16-bit planes whose channels lie innermost.

It takes the place of the depthwise kernel's Tensor Core variant where input and output both lie so,
and adds up a sum in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from .depthwise_strips import (
    Layout,
    Tile,
    arrays,
    layout_of,
    lie_innermost,
    plane,
    plane_of,
    strips,
)
from .depthwise_tiles import CHUNK, WITHOUT_TENSOR_CORES
from .launches import ELEMENTS, Instance, Launch
from .members import Template, one_launch
from .question import Question, TiledPlan

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("depthwise_last_mma.cu",)
UNIT = "memory"

STAGES, STRIPS, WIDTH = 4, 2, 64  # lines in shared memory, strips of a tile, outputs of their lines
_WARP_CHANNELS = 4
_MOST_TAPS = 7  # of a line, so that each lane has weights for one of three blocks of inputs
_PIXELS, _OUTPUTS = WIDTH + 16, 2  # inputs of a line, lines of outputs
_LINE_OF_TAPS, _BIAS, _STRIP = 160, 4, 32  # bytes
# Warps of a block, by the height of the kernel, and blocks of a multiprocessor: as many as
# registers leave room for where compute capability 9.0 spills next to none.
_WARPS = {3: 8, 5: 4, 7: 4}
_RESIDENT = {3: 2, 5: 3, 7: 3}


class DepthwiseLastMmaPlan(TiledPlan[Layout]):
    """How a convolution runs by depthwise_last_mma.cu."""


PLAN = DepthwiseLastMmaPlan


def plan(question: Question, strides: ConvStrides) -> DepthwiseLastMmaPlan | None:
    """Return the plan for arrays whose channels lie innermost, None for all others.

    The depthwise kernel has a plan on Tensor Cores for the same question.
    """
    axes, geometry = plane_of(question), question.geometry
    if axes is None or geometry.rows > 1 or not lie_innermost(geometry, strides):
        return None
    (height, width), step = (axis.kernel for axis in axes), axes[0].step
    if height not in _WARPS or width > _MOST_TAPS or step > 1:
        return None
    layout = layout_of(question, axes, _tile(height))
    if layout is None:
        return None
    blocks, threads = layout.count, 32 * _WARPS[height]
    launch = Launch(
        _instance(question.dtype.name, height), blocks, threads, shared_bytes(height), unit=blocks
    )
    return DepthwiseLastMmaPlan(launch, layout)


def shared_bytes(height: int) -> int:
    """Return the bytes of ``struct Shared``: inputs and outputs of lines, taps, bias, strips."""
    pixels = STRIPS * _PIXELS * (STAGES + _OUTPUTS)
    channels = _WARPS[height] * _WARP_CHANNELS
    return channels * (2 * pixels + height * _LINE_OF_TAPS + _BIAS) + STRIPS * _STRIP


def _tile(height: int) -> Tile:
    warps = _WARPS[height]
    # A load of weights, with a selection and a product for each of three blocks of inputs; and
    # loads of inputs, copies and the epilogue, as counted in the compiled kernel.
    turn = (1 + 2 * 3) * height * _WARP_CHANNELS + 180
    return Tile(warps * _WARP_CHANNELS, STRIPS, WIDTH, _RESIDENT[height], warps * turn)


def _instance(dtype: str, height: int) -> Instance:
    defines = (
        ("ELEMENT", ELEMENTS[dtype]),
        ("HEIGHT", str(height)),
        ("RESIDENT", str(_RESIDENT[height])),
    )
    return Instance(SOURCES[0], "depthwise_last_mma", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    if target not in WITHOUT_TENSOR_CORES:
        for dtype in ("float16", "bfloat16"):
            for height in _WARPS:
                yield _instance(dtype, height)


def bind(
    plan: DepthwiseLastMmaPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    layout, chunk = plan.layout, CHUNK // question.dtype.itemsize
    _, x = layout.axes

    def in_chunks(batch: int, axes: list[int]) -> bool:
        return all(stride % chunk == 0 for stride in (layout.channels, batch, *axes))

    members = {
        **arrays(strides, bias),
        "width": x.kernel,
        "weight_channel": strides.weight[0],
        "skew": x.offsets[0] % chunk,
        **plane(layout, strides),
        **strips(layout),
        "chunks": [
            in_chunks(strides.input[0], strides.input_axes),
            in_chunks(strides.out[0], strides.out_axes),
        ],
    }
    return one_launch(device, plan.launch, Template(SOURCES[0], members))
