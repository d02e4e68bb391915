"""The channels-last depthwise kernel: planes of arrays whose channels lie innermost.

It takes the place of the gather kernel where input and output both lie so, and adds up a sum in the
same order.
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
from .launches import ELEMENTS, INT32_LIMIT, SINGLES, Instance, Launch
from .members import Template, one_launch
from .question import Question, TiledPlan

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

SOURCES = ("depthwise_last.cu",)
UNIT = "memory"

LANES, WARPS = 32, 4  # output channels of a tile, and its strips
THREADS = LANES * WARPS
_COLUMNS = 8  # outputs of a strip along x, for a step of one
# Blocks of a multiprocessor, by height and step of the kernel: as many as registers leave room for
# where compute capability 9.0 spills none.
_RESIDENT = {(3, 1): 5, (3, 2): 6, (5, 1): 4, (5, 2): 4, (7, 1): 3, (7, 2): 3}


class DepthwiseLastPlan(TiledPlan[Layout]):
    """How a convolution runs by depthwise_last.cu."""


PLAN = DepthwiseLastPlan


def plan(question: Question, strides: ConvStrides) -> DepthwiseLastPlan | None:
    """Return the plan for arrays whose channels lie innermost, None for all others.

    The gather kernel has a plan for the same question.
    """
    axes, dtype = plane_of(question), question.dtype.name
    if axes is None or dtype not in SINGLES or not lie_innermost(question.geometry, strides):
        return None
    y, x = axes
    if y.kernel != x.kernel or (y.kernel, y.step) not in _RESIDENT:
        return None
    # Offsets of the columns of a strip have 32 bits.
    reach = _COLUMNS + x.kernel
    if any(abs(a[-1]) * reach >= INT32_LIMIT for a in (strides.input_axes, strides.out_axes)):
        return None
    layout = layout_of(question, axes, _tile(y.kernel, y.step))
    if layout is None:
        return None
    instance, blocks = _instance(dtype, y.kernel, y.step), layout.count
    return DepthwiseLastPlan(Launch(instance, blocks, THREADS, unit=blocks), layout)


def _tile(height: int, step: int) -> Tile:
    columns = _COLUMNS // step
    read = (columns - 1) * step + height
    # Products, and an address for each load and store.
    turn = height**2 * columns + 2 * (step * read + columns)
    return Tile(LANES, WARPS, columns, _RESIDENT[height, step], WARPS * turn)


def _instance(dtype: str, height: int, step: int) -> Instance:
    defines = (
        ("ELEMENT", ELEMENTS[dtype]),
        ("HEIGHT", str(height)),
        ("STEP", str(step)),
        ("RESIDENT", str(_RESIDENT[height, step])),
    )
    return Instance(SOURCES[0], "depthwise_last", defines)


def instances(target: str) -> Iterator[Instance]:
    """Yield all instances that plans can ask for on a target."""
    for dtype in SINGLES:
        for height, step in _RESIDENT:
            yield _instance(dtype, height, step)


def bind(
    plan: DepthwiseLastPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    members = {
        **arrays(strides, bias),
        "rows": question.geometry.rows,
        "weight_group": strides.weight[0],
        "weight_row": strides.weight[1],
        **plane(plan.layout, strides),
        **strips(plan.layout),
    }
    return one_launch(device, plan.launch, Template(SOURCES[0], members))
