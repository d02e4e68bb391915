"""How long a kernel takes: physical facts of a GPU, and three numbers of each kernel.

The time of a call is a constant and the longer of two times that overlap: the cycles of the
kernel's own model at the GPU's clock and rates, and the bytes that memory moves at its copy rate.
The factors of a kernel were fitted to measured times; ``python -m benchmarks.fit`` fits them again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .._geometry import ConvGeometry
from .chips import Chip
from .launches import SECTOR
from .question import Plan, Question


class Cost(NamedTuple):
    """What a kernel's time is made up of.

    Attributes
    ----------
    begin : float
        Microseconds of a call of hardly any work: its launches, and what they wait for.
    cycles : float
        Factor of the time that the kernel's model gives it.
    moved : float
        Factor of the time in which memory moves the arrays and the workspace.
    """

    begin: float
    cycles: float
    moved: float

    def time(self, cycles: float, moved: float) -> float:
        """Return the microseconds for those of the cycles and those of memory.

        The longer one hides the shorter one, but not where they are about equal.
        """
        parts = (self.cycles * cycles) ** _OVERLAP + (self.moved * moved) ** _OVERLAP
        return float(self.begin + parts ** (1 / _OVERLAP))


_OVERLAP = 3
# Kernels that store the outputs of a phase at a time. Along x they lie apart, and memory writes a
# sector again for each phase.
_BY_PHASE = ("direct", "portable", "hopper")

COSTS = {
    "direct": Cost(15.3, 1.67, 3.08),
    "depthwise": Cost(9.49, 1.22, 0.815),
    "depthwise on Tensor Cores": Cost(8.37, 1.1, 0.00122),
    "gather": Cost(6.37, 0.978, 0.973),
    "plain": Cost(16.1, 0.661, 1),
    "streaming": Cost(12.1, 1.02, 0.961),
    "portable": Cost(21.8, 1.74, 0.763),
    "hopper": Cost(19.3, 1.09, 0.81),
    "im2col": Cost(6.3, 1.0, 0.76),
    "matrix gradient": Cost(8.0, 1.0, 1.0),
    "hopper gradient": Cost(8.0, 1.0, 1.0),
    "im2col gradient": Cost(8.0, 1.0, 1.0),
    "depthwise gradient": Cost(8.0, 1.0, 1.0),
}
# Of a call by FFT, with the begin of each tile; fitted to 150 calls of an H100
# (``python -m benchmarks.on_filters --random``).
FFT = Cost(60.0, 0, 1.46)
COPY = Cost(6.0, 0, 1.6)  # of an input with its borders
TRANSPOSED = Cost(6.0, 0, 1.2)  # of copies between layouts


def terms(
    kernel: str, plan: Plan, question: Question, unit: str, chip: Chip
) -> tuple[float, float]:
    """Return the microseconds of a plan's cycles, and of what memory moves."""
    itemsize = question.dtype.itemsize
    cycles = plan.cycles * chip.slowness(unit, question.dtype)
    times = min(question.geometry.axes[-1].phases, SECTOR // itemsize)
    inputs, outputs = elements(question.geometry)
    nbytes = (inputs + outputs * (times if kernel in _BY_PHASE else 1)) * itemsize
    return 1e6 * chip.seconds(cycles), 1e6 * (nbytes + 2 * plan.workspace) / chip.copy_rate


def elements(geometry: ConvGeometry) -> tuple[int, int]:
    """Return the elements of input and weight, and of the output."""
    axes = geometry.axes
    inputs = geometry.batch * geometry.channels * math.prod(axis.size_in for axis in axes)
    weights = geometry.channels * geometry.rows * math.prod(axis.kernel for axis in axes)
    outputs = geometry.batch * geometry.rows * math.prod(axis.size_out for axis in axes)
    return geometry.groups * (inputs + weights), geometry.groups * outputs
