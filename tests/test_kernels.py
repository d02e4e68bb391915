"""What holds for each kernel: its tests in tests/kernels/ say of it what these tests need."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import subjects
import test_convolution
import test_promises
from backends import NumpyBackend, check_lines, forced_backends
from cupyconv._kernels.launches import TARGETS, Processor
from planning import assert_shared_memory, constant, plan_of
from strategies import MODES, Case, Convolution


def of_all(kind: str) -> list[Any]:
    """What the examples of kernels have of a kind, each with the backends that force the kernel."""
    found = []
    for kernel, example in subjects.examples().items():
        for backend in forced_backends(kernel, wgmma=tuple(example.targets) == ("sm_90a",)):
            for place, one in enumerate(getattr(example, kind)):
                name = f"{backend.id}-{one if isinstance(one, Case) else place}"
                found.append(pytest.param(backend.values[0], one, id=name, marks=backend.marks))
    return found


def of_module(kernel: subjects.Subject) -> str:
    return kernel.source.removesuffix(".cu")


@pytest.mark.parametrize("kernel", subjects.subjects(), ids=of_module)
def test_limits(kernel: subjects.Subject) -> None:
    """Constants that plans and the kernel have in common."""
    for name, value in kernel.limits.items():
        assert constant(kernel.source, name) == value, name


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", subjects.convolutions(), ids=of_module)
def test_shared_memory(kernel: subjects.ConvolutionSubject, target: str) -> None:
    """What a kernel declares and what its launch asks for fit."""
    for geometry in kernel.chosen:
        for mode in MODES:
            plan = plan_of(geometry, *mode, Processor(target, 132))
            assert_shared_memory(plan, target, *plan.launches)


@pytest.mark.parametrize(("backend", "calls"), of_all("drawn"))
@given(data=st.data())
def test_definition(
    backend: NumpyBackend, calls: st.SearchStrategy[Convolution], data: st.DataObject
) -> None:
    test_convolution.check(backend, data.draw(calls))


@pytest.mark.parametrize(("backend", "case"), of_all("promised"))
def test_promises_of_equal_bits(backend: NumpyBackend, case: Case) -> None:
    test_promises.check_promises(backend, case)


@pytest.mark.parametrize(("backend", "case"), of_all("lines"))
def test_lines_that_are_no_whole_chunks(backend: NumpyBackend, case: Convolution) -> None:
    """Where each begins at a multiple of 16 bytes, what is loaded and stored ends with the line."""
    test_convolution.check(backend, case)
    check_lines(backend, case)
