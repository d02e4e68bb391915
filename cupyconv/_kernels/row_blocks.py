"""Convolutions in blocks of output channels, so that their packed weights take little memory.

A kernel that packs weights is run for some output channels after others, each time in the same
workspace. The blocks follow from the geometry of one sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._arrays import Array, Convolution
from . import im2col_conv, matrix_conv
from .im2col_conv import Im2colPlan
from .launches import Launch
from .matrix_conv import MatrixPlan
from .question import Plan, Question, Refusal
from .sums import whole_multiple
from .unfolded import UnfoldedPlan
from .workspace import most_workspace

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

ORDER = "of the kernel"
UNIT = "Tensor Core"

# The kernels that pack weights, by their plans.
_KERNELS: dict[type, Any] = {MatrixPlan: matrix_conv, Im2colPlan: im2col_conv}
_WHOLE = 64  # rows of a tile, or half of them; a block has a multiple of them
_MOST_BLOCKS = 16


@dataclass(frozen=True)
class RowBlocksPlan:
    """How a convolution runs in blocks of output channels.

    Attributes
    ----------
    plans : tuple of MatrixPlan or of Im2colPlan
        Plan of each block.
    rows : tuple of range
        Output channels of each block.
    """

    plans: tuple[MatrixPlan | Im2colPlan, ...]
    rows: tuple[range, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return sum((plan.launches for plan in self.plans), ())

    @property
    def cycles(self) -> float:
        """The cycles of a multiprocessor that the kernel's model gives the blocks."""
        return sum(plan.cycles for plan in self.plans)

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays, which the blocks take in turn."""
        return max(plan.workspace for plan in self.plans)

    @property
    def tiles(self) -> str:
        """How the outputs are divided, in words."""
        return f"{len(self.rows)} blocks of up to {len(self.rows[0])} rows, {self.plans[0].tiles}"

    def __str__(self) -> str:
        return "; ".join(map(str, self.plans))


PLAN = RowBlocksPlan


def questions(question: Question, rows: tuple[range, ...]) -> list[Question]:
    """Return the question for each block."""
    sizes = (replace(question.geometry, rows=len(block)) for block in rows)
    return [replace(question, geometry=geometry) for geometry in sizes]


def in_place(plan: Plan) -> Plan | None:
    """Return an im2col plan as it is timed for arrays whose channels lie innermost, else None."""
    if isinstance(plan, RowBlocksPlan):
        plans = tuple(one.in_place for one in plan.plans if isinstance(one, Im2colPlan))
        return replace(plan, plans=plans) if plans else None
    return plan.in_place if isinstance(plan, Im2colPlan) else None


def within_memory(plan: Plan | Refusal, kernel: str, question: Question) -> Plan | Refusal:
    """Return a kernel's plan, in blocks if it would pack more weights than memory has room for."""
    whole = plan.plan if isinstance(plan, UnfoldedPlan) else plan
    if not isinstance(whole, (MatrixPlan, Im2colPlan)):
        return plan
    needed, most = _bytes_in_any_batch(whole, question.geometry.batch), most_workspace(question)
    if needed <= most:
        return plan
    if plan is whole and question.geometry.groups == 1:
        return _in_blocks(_KERNELS[type(whole)].PLANS[kernel], question, needed, most)
    return _refusal(needed)


def _bytes_in_any_batch(plan: MatrixPlan | Im2colPlan, batch: int) -> int:
    """Return the bytes that decide on blocks: as a sum's order, they do not depend on the batch.

    The rows of a tile follow from the batch, so weights count as if padded to the tallest tiles.
    """
    if isinstance(plan, Im2colPlan):
        return plan.packed
    tiled, shifts = plan.layout, 4 * batch if plan.summation.mode.scaled else 0
    rows = tiled.row_tiles * tiled.shape.rows
    return (plan.packed - shifts) // rows * whole_multiple(plan.summation.matrix_rows, 2 * _WHOLE)


def _refusal(workspace: int) -> Refusal:
    """Return why a plan that would take so many bytes is none."""
    return f"it would take {workspace:,} bytes beside the arrays"


def _in_blocks(
    plan: Callable[[Question], MatrixPlan | Im2colPlan | Refusal],
    question: Question,
    whole: int,
    most: int,
) -> RowBlocksPlan | Refusal:
    """Return the plan of a kernel in blocks that take at most so many bytes each.

    `plan` returns the kernel's plan of a block, and `whole` are the bytes that one block of all
    rows would take. The convolution has one group.
    """
    geometry = question.geometry
    most_blocks = min(_MOST_BLOCKS, -(-geometry.rows // _WHOLE))
    for count in range(-(-whole // most), most_blocks + 1):
        size = -(-geometry.rows // (count * _WHOLE)) * _WHOLE
        starts = range(0, geometry.rows, size)
        rows = tuple(range(start, min(start + size, geometry.rows)) for start in starts)
        plans = [plan(one) for one in questions(question, rows)]
        found = tuple(one for one in plans if not isinstance(one, str))
        if len(found) < len(plans):
            return _refusal(whole)
        if max(_bytes_in_any_batch(one, geometry.batch) for one in found) <= most:
            return RowBlocksPlan(found, rows)
    return _refusal(whole)


def bind(
    plan: RowBlocksPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    geometry = question.geometry
    lead: tuple[slice, ...] = (slice(None),) if geometry.batched else ()
    runs = []
    for own, asked, rows in zip(plan.plans, questions(question, plan.rows), plan.rows, strict=True):
        block = slice(rows.start, rows.stop)
        own_bias = None if bias is None else bias[block]
        runs.append((_KERNELS[type(own)].bind(own, asked, strides, own_bias, device), block))

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        for run, block in runs:
            own_weight = weight[:, block] if geometry.transposed else weight[block]
            run(data, own_weight, None if bias is None else bias[block], out[lead + (block,)])

    return convolve
