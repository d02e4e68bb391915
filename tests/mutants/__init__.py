"""Mutants of the shipped kernels: one module for each kernel, which ends in its `SUITE`.

A mutant is a patch to a kernel's text that the tests must reject. ``tests/test_mutants.py`` finds
the modules by itself and runs their suites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import test_convolution
from backends import EmulatorBackend
from cupyconv import _compile
from reference import Shape
from strategies import Case, Convolution, convolution


class Mutant(NamedTuple):
    file: str
    before: str
    after: str
    caught: str  # by what: part of the emulator's message, or "wrong" for a comparison
    everywhere: bool = False
    by: str | None = None  # the kernel that a convolution runs by, where a suite has several
    case: str | None = None  # of the suite's cases; None searches for one
    chunks: bool = False  # copied one by one, as on GPUs without bulk copies

    def patch(self, including: str) -> dict[str, str]:
        """The changed text of a kernel's file, all headers included.

        `including` is the file that includes a header.
        """
        kernel = self.file if self.file.endswith(".cu") else including
        text = _compile.source(kernel)
        count = text.count(self.before)
        assert count, f"the patch no longer applies: {self.before!r}"
        assert self.everywhere or count == 1, f"the patch applies {count} times: {self.before!r}"
        return {kernel: text.replace(self.before, self.after)}


@dataclass(frozen=True)
class Suite:
    """The mutants of one kernel, and the calls in which they go wrong."""

    name: str  # in the ids of the tests
    file: str  # which includes the headers that are patched
    mutants: Mapping[str, Mutant]
    # Calls as small as they can be. The kernel as it is must be right in all of them.
    cases: Mapping[str, Case] = field(default_factory=dict)
    kernels: tuple[str, ...] = ("direct",)  # by which convolutions run
    chunks: bool = False  # the cases run once more on a GPU without bulk copies
    search: st.SearchStrategy[Case] | None = None  # the calls for mutants without a case
    view: Case | None = None  # a call whose elements are located by view.cuh
    check: Callable[[EmulatorBackend, Any], None] = test_convolution.check

    def backend(self, mutant: Mutant) -> EmulatorBackend:
        """What runs a mutant instead of the kernel."""
        return EmulatorBackend(mutant.by or self.kernels[0], mutant.patch(self.file))

    def verdict(self, backend: EmulatorBackend, case: Case) -> str | None:
        """What the tests say against the result of a case, or nothing."""
        try:
            self.check(backend, case)
        except AssertionError as error:
            return str(error)
        return None


def depthwise(
    function: str,
    shape: Shape,
    kernel: Shape,
    multiplier: int = 1,
    dtype: str = "float32",
    **options: Any,
) -> Convolution:
    """A call with one input channel in each group."""
    groups = shape[1]
    rows = (groups, multiplier) if function.startswith("conv_t") else (groups * multiplier, 1)
    weight = (*rows, *kernel)
    return convolution(function, shape, weight, dtype, bias=True, groups=groups, **options)


def infinite(case: Convolution) -> Convolution:
    """The case with some infinite weights."""
    weight = case["weight"].copy()
    weight.flat[::7] = np.inf
    return case.with_arrays(weight=weight)


def enormous(case: Convolution) -> Convolution:
    """The case with inputs that tf32 rounds to infinity, and a bias that counts beside them."""
    x, weight = case["input"].copy(), case["weight"]
    x[:, 3::20, ..., ::9] = np.finfo(np.float32).max
    rows = np.arange(1, len(weight) + 1).reshape(-1, *(1,) * (weight.ndim - 1)) % 7 + 1
    small = np.float32(2.0**-10) * np.broadcast_to(rows, weight.shape).astype(np.float32)
    return case.with_arrays(input=x, weight=small, bias=np.full_like(case["bias"], 2.0**112))
