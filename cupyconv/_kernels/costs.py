"""How long a kernel takes: physical facts of a GPU, and three numbers of each kernel.

The time of a call is the sum of three terms: a constant, the cycles of the kernel's own model at
the GPU's clock and rates, and the bytes of the arrays at its copy rate. The factors of a kernel
were fitted to measured times; ``python -m benchmarks.fit`` fits them again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .._geometry import ConvGeometry
from .chips import Chip
from .question import Plan, Question


class Cost(NamedTuple):
    """What a kernel's time is made up of.

    Attributes
    ----------
    begin : float
        Microseconds of a call of hardly any work: its launches, and what they wait for.
    cycles : float
        Factor of the time that the kernel's model gives it.
    copied : float
        Factor of the time in which the arrays and the workspace are copied.
    """

    begin: float
    cycles: float
    copied: float


COSTS = {
    "direct": Cost(14.5, 1.49, 2.95),
    "depthwise": Cost(9.89, 1.19, 0.0297),
    "gather": Cost(6.8, 0.81, 0.437),
    "plain": Cost(16.5, 0.661, 0.001),
    "streaming": Cost(12.2, 0.977, 0.299),
    "spans": Cost(21.6, 0.827, 0.787),
    "portable": Cost(22, 1.74, 0.001),
    "hopper": Cost(19.7, 1.01, 0.311),
}


def terms(plan: Plan, question: Question, unit: str, chip: Chip) -> tuple[float, float, float]:
    """Return what `Cost` has the factors of: one, and microseconds of cycles and of copies."""
    cycles = plan.cycles * chip.slowness(unit, question.dtype)
    nbytes = elements(question.geometry) * question.dtype.itemsize + 2 * plan.workspace
    return 1.0, 1e6 * chip.seconds(cycles), 1e6 * nbytes / chip.copy_rate


def microseconds(kernel: str, plan: Plan, question: Question, unit: str, chip: Chip) -> float:
    """Return the time that a kernel should take for a plan."""
    parts = terms(plan, question, unit, chip)
    return sum(factor * part for factor, part in zip(COSTS[kernel], parts, strict=True))


def elements(geometry: ConvGeometry) -> int:
    """Return the elements of input, weight and output."""
    axes = geometry.axes
    inputs = geometry.channels * math.prod(axis.size_in for axis in axes)
    outputs = geometry.rows * math.prod(axis.size_out for axis in axes)
    weights = geometry.channels * geometry.rows * math.prod(axis.kernel for axis in axes)
    return geometry.groups * (geometry.batch * (inputs + outputs) + weights)
