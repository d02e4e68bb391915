"""Convolutions in blocks of output channels, so that their packed weights take little memory.

A kernel that packs weights is run for some output channels after others, each time in the same
workspace. The blocks follow from the geometry of one sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from . import matrix_conv
from .launches import Launch
from .matrix_conv import MatrixPlan
from .question import Question, Refusal

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

ORDER = "of the kernel"
UNIT = "Tensor Core"

_WHOLE = 64  # rows of a tile; a block has a multiple of them
_MOST_BLOCKS = 16


@dataclass(frozen=True)
class RowBlocksPlan:
    """How a convolution runs in blocks of output channels.

    Attributes
    ----------
    plans : tuple of MatrixPlan
        Plan of each block.
    rows : tuple of range
        Output channels of each block.
    """

    plans: tuple[MatrixPlan, ...]
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


def bytes_in_any_batch(plan: MatrixPlan, batch: int) -> int:
    """Return the bytes that decide on blocks: as a sum's order, they do not depend on the batch."""
    shifts = 4 * max(1, batch) if plan.summation.mode.scaled else 0
    return plan.packed - shifts


def refusal(workspace: int) -> Refusal:
    """Return why a plan that would take so many bytes is none."""
    return f"it would take {workspace:,} bytes beside the arrays"


def plan(question: Question, kernel: str, whole: int, most: int) -> RowBlocksPlan | Refusal:
    """Return the plan of a kernel in blocks that take at most so many bytes each.

    `whole` are the bytes that one block of all rows would take. The convolution has one group.
    """
    geometry = question.geometry
    most_blocks = min(_MOST_BLOCKS, -(-geometry.rows // _WHOLE))
    for count in range(-(-whole // most), most_blocks + 1):
        size = -(-geometry.rows // (count * _WHOLE)) * _WHOLE
        starts = range(0, geometry.rows, size)
        rows = tuple(range(start, min(start + size, geometry.rows)) for start in starts)
        plans = [matrix_conv.PLANS[kernel](one) for one in questions(question, rows)]
        found = tuple(one for one in plans if isinstance(one, MatrixPlan))
        if len(found) < len(plans):
            return refusal(whole)
        if max(bytes_in_any_batch(one, geometry.batch) for one in found) <= most:
            return RowBlocksPlan(found, rows)
    return refusal(whole)


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
    runs = [
        (matrix_conv.bind(own, asked, strides, bias, device), slice(rows.start, rows.stop))
        for own, asked, rows in zip(
            plan.plans, questions(question, plan.rows), plan.rows, strict=True
        )
    ]

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        for run, rows in runs:
            own_weight = weight[:, rows] if geometry.transposed else weight[rows]
            run(data, own_weight, None if bias is None else bias[rows], out[lead + (rows,)])

    return convolve
