"""Mutants of the shipped kernels, run on the emulator: the suite must reject every one.

A mutant is a patch to a kernel's text. One that no longer applies fails its test, so that it is
brought up to date with the kernel. The mutants of a kernel stand in its module of the package
``mutants``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings

import mutants
from backends import EmulatorBackend, without_bulk_copies
from cupyconv import _compile
from mutants import Suite
from strategies import Case

MODULES = sorted(module.name for module in pkgutil.iter_modules(mutants.__path__))
SUITES: list[Suite] = [importlib.import_module(f"mutants.{name}").SUITE for name in MODULES]


def each_case(suites: Iterable[Suite]) -> Any:
    """Run a test for each case of some suites, by each kernel of the suite."""
    parameters = []
    for suite in suites:
        for kernel in suite.kernels:
            label = f"{suite.name}-{kernel}" if len(suite.kernels) > 1 else suite.name
            parameters += [
                pytest.param(suite, kernel, case, id=f"{label}-{name}")
                for name, case in suite.cases.items()
            ]
    return pytest.mark.parametrize(("suite", "kernel", "case"), parameters)


@pytest.mark.emulator
@each_case(SUITES)
def test_the_kernel_is_right(suite: Suite, kernel: str, case: Case) -> None:
    """In the cases in which its mutants are not."""
    assert suite.verdict(EmulatorBackend(kernel), case) is None


@pytest.mark.emulator
@each_case(suite for suite in SUITES if suite.chunks)
def test_the_kernel_is_right_by_chunks(suite: Suite, kernel: str, case: Case) -> None:
    with without_bulk_copies():
        assert suite.verdict(EmulatorBackend(kernel), case) is None


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("suite", "name"),
    [
        pytest.param(suite, name, id=f"{suite.name}-{name}")
        for suite in SUITES
        for name, mutant in suite.mutants.items()
        if mutant.case is not None
    ],
)
def test_is_rejected_by_its_cases(suite: Suite, name: str) -> None:
    """A mutant is caught, in its case, by what it is said to be."""
    mutant = suite.mutants[name]
    with without_bulk_copies() if mutant.chunks else nullcontext():
        found = suite.verdict(suite.backend(mutant), suite.cases[str(mutant.case)])
    assert found, "nothing rejects it"
    assert re.search(mutant.caught, found), found


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("suite", "name"),
    [
        pytest.param(suite, name, id=name)
        for suite in SUITES
        for name, mutant in suite.mutants.items()
        if mutant.case is None
    ],
)
def test_is_rejected(suite: Suite, name: str) -> None:
    """A mutant without a case is caught in one of the calls that Hypothesis draws."""
    mutant = suite.mutants[name]
    backend = suite.backend(mutant)

    def rejected(case: Case) -> bool:
        return re.search(mutant.caught, suite.verdict(backend, case) or "") is not None

    search = settings(
        max_examples=400,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],  # a new instance takes a second to build
        database=None,
    )
    assert suite.search is not None
    find(suite.search, rejected, settings=search)  # raises NoSuchExample where nothing rejects it


@pytest.mark.emulator
def test_places_of_large_numbers() -> None:
    """Numbers of more than 31 bits are divided in another way, right for small ones as well."""

    def found(change: Callable[[str], str]) -> list[str | None]:
        return [
            suite.verdict(
                EmulatorBackend(patches={suite.file: change(_compile.source(suite.file))}),
                suite.view,
            )
            for suite in SUITES
            if suite.view is not None
        ]

    always = "if (number >> 31)", "if (true)"
    assert set(found(lambda text: text.replace(*always))) == {None}
    cut = "return close + (number - close * divisor >= divisor);", "return close;"
    assert all(found(lambda text: text.replace(*always).replace(*cut)))
