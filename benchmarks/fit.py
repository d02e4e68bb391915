"""Fit the times of kernels: ``python -m benchmarks.fit RECORD ...``, from records of random calls.

The factors of `cupyconv._kernels.costs.Cost` are fitted for each kernel to its measured times, by
least squares of the logarithms in which far-off times count little. Printed are the table for
``costs.py``, how far the times are off, and the regret of the choice by these factors.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from cupyconv import _geometry
from cupyconv._arrays import Blueprint
from cupyconv._geometry import ConvGeometry
from cupyconv._gpus import named
from cupyconv._kernels import choice
from cupyconv._kernels.chips import Chip
from cupyconv._kernels.costs import COSTS, Cost, terms
from cupyconv._kernels.question import Question
from cupyconv._strides import arranged, conv_strides

from . import mine
from .cases import Convolution
from .on_random import RANDOM, SHORT_MS, Row

_LEAST = 1e-3  # of a factor


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--keep", action="store_true", help="judge the present factors")
    options = parser.parse_args(arguments)
    found = [one for path in options.records for one in measured(path)]
    by_kernel: dict[str, list[Measured]] = defaultdict(list)
    for one in found:
        by_kernel[one.kernel].append(one)
    costs = dict(COSTS) if options.keep else {k: fit(v) for k, v in by_kernel.items()}
    print("COSTS = {")
    for kernel in filter(costs.__contains__, COSTS):
        numbers = ", ".join(f"{number:.3g}" for number in costs[kernel])
        print(f'    "{kernel}": Cost({numbers}),')
    print("}")
    for kernel in filter(by_kernel.__contains__, COSTS):
        print(f"{kernel:10} {errors(by_kernel[kernel], costs[kernel])}")
    print(regrets(found, costs))


class Measured:
    """A kernel's time of a call in microseconds, and the terms that it should be the sum of."""

    def __init__(self, row: Row, kernel: str, chip: Chip) -> None:
        self.call, self.kernel = (row.case, row.precision), kernel
        self.time = 1e3 * row.ours[kernel]
        question = _question(row, kernel if kernel != row.chosen else None, chip)
        plan = choice.plan_alone(kernel, question)
        self.taken = not isinstance(plan, str)
        if not isinstance(plan, str):
            unit = choice.kernel_of(plan).UNIT
            self.terms = terms(kernel, plan, question, unit, chip)
            self.kernel = choice.cost_name(kernel, plan)


def measured(path: Path) -> Iterable[Measured]:
    """Yield the times of a record's calls, without kernels that take other calls only."""
    record = json.loads(path.read_text())
    chip = named(record["gpu"])
    for values in record["calls"]:
        row = Row(**values)
        for kernel in row.ours:
            if kernel in COSTS and (one := Measured(row, kernel, chip)).taken:
                yield one


def _question(row: Row, forced: str | None, chip: Chip) -> Question:
    precision, case = RANDOM[row.precision], mine.parse(row.case, "")
    assert isinstance(case, Convolution)
    dtype, mode = precision.numpy_dtype(), precision.mode
    geometry = geometry_of(case)
    arrays = (Blueprint(shape, dtype) for shape in (case.input, case.weight, case.output))
    geometry, _ = arranged(geometry, conv_strides(geometry, *arrays))
    return Question(geometry, dtype, mode, chip.processor, forced is not None)


def geometry_of(case: Convolution) -> ConvGeometry:
    """Return the geometry of a case."""
    call = (case.function, case.input, case.weight, None, case.stride, case.padding)
    if case.transposed:
        extra = case.output_padding
        return _geometry.conv_transpose(*call, extra, case.groups, case.dilation, case.rank)
    return _geometry.conv(*call, case.dilation, case.groups, case.rank)


def fit(found: Sequence[Measured]) -> Cost:
    """Return the factors of a kernel, none of them negative."""
    times = np.log([one.time for one in found])

    def off(logarithms: np.ndarray) -> np.ndarray:
        cost = Cost(*np.exp(logarithms))
        return np.log([cost.time(*one.terms) for one in found]) - times

    start = np.log([10.0, 1.0, 1.0])
    best = least_squares(off, start, loss="soft_l1", f_scale=0.1, bounds=(np.log(_LEAST), 5))
    return Cost(*(float(f"{number:.3g}") for number in np.exp(best.x)))


def errors(found: Sequence[Measured], cost: Cost) -> str:
    """Return in words how far the times are off."""
    off = np.array([abs(np.log(cost.time(*one.terms) / one.time)) for one in found])
    within = (f"{np.mean(off < np.log(most)):.0%} within {most}" for most in (1.25, 1.5, 3))
    return f"{len(found)} times, {', '.join(within)}, the worst off by {np.exp(off.max()):.1f}"


def regrets(found: Sequence[Measured], costs: dict[str, Cost]) -> str:
    """Return in words the regret of calls by the kernel that has the least time by its cost."""
    calls: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for one in found:
        expected = costs[one.kernel].time(*one.terms)
        calls[one.call].append((expected, one.time))
    ratios = []
    for times in calls.values():
        taken = min(times)[1]
        if taken > 1e3 * SHORT_MS:
            ratios.append(taken / min(time for _, time in times))
    high = np.quantile(ratios, 0.99)
    mean = np.mean(ratios)
    return f"regret of {len(ratios)} calls: {mean:.2f}, 99% {high:.2f}, worst {max(ratios):.1f}"


if __name__ == "__main__":
    main()
