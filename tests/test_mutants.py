"""Mutants of the shipped kernels, run on the emulator: the suite must reject every one.

A mutant is a change of a kernel's text. Most are generated (``mutations.py``), and rejected by any
of the calls of their suite, or listed as survivors with a reason. Others are patches, which stand
in the kernel's module of the package ``mutants``. A patch that does not apply fails its test, so
that it is brought up to date with the kernel.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings

from backends import EmulatorBackend, without_bulk_copies
from cupyconv import _compile
from judging import REJECTED, SUITES, SURVIVES, judge, offered, picks, survivors
from mutants import Suite
from mutations import Mutation, chosen, mutations
from strategies import Case

# Instructions and conversions, of which tests/test_instructions.py and others test each alone.
UNCHANGED = {"scalar.cuh"} | {path.name for path in _compile.directory().glob("ptx*")}
NO_CODE = "It does not compile."  # a reason in the table of survivors
GENERATED = [
    pytest.param(suite, mutation, id=f"{suite.name}-{mutation.key}")
    for suite in SUITES
    for mutation in picks(suite)
]


def each_case(suites: Iterable[Suite], by_chunks: bool = False) -> Any:
    """Run a test for each case of some suites, or each by chunks, by each kernel of the suite."""
    parameters = []
    for suite in suites:
        for kernel in suite.kernels:
            label = f"{suite.name}-{kernel}" if len(suite.kernels) > 1 else suite.name
            parameters += [
                pytest.param(suite, kernel, case, id=f"{label}-{name}")
                for name, case in suite.cases.items()
                if not by_chunks or name in suite.by_chunks
            ]
    return pytest.mark.parametrize(("suite", "kernel", "case"), parameters)


@pytest.mark.emulator
@each_case(SUITES)
def test_the_kernel_is_right(suite: Suite, kernel: str, case: Case) -> None:
    """In the cases in which its mutants are not."""
    assert suite.verdict(EmulatorBackend(kernel), case) is None


@pytest.mark.emulator
@each_case(SUITES, by_chunks=True)
def test_the_kernel_is_right_by_chunks(suite: Suite, kernel: str, case: Case) -> None:
    with without_bulk_copies():
        assert suite.verdict(EmulatorBackend(kernel), case) is None


@pytest.mark.emulator
@pytest.mark.parametrize(("suite", "mutation"), GENERATED)
def test_generated(suite: Suite, mutation: Mutation, pytestconfig: pytest.Config) -> None:
    """A generated mutant is rejected, unless it is listed as one that cannot be.

    Where a day has a share of the tests, it has a share of the calls for listed mutants, too.
    """
    reason = survivors().get(mutation.name)
    if reason is None:
        verdict = judge(suite, mutation.patch())
        assert verdict.kind == REJECTED, f"{mutation.name} {verdict.kind}"
    else:
        shares, day = pytestconfig.option.share, datetime.date.today().toordinal()
        calls = suite.calls()[day % shares :: shares] or suite.calls()[:1]
        verdict = judge(suite, mutation.patch(), calls)
        assert verdict.kind != REJECTED, f"{mutation.name} is listed, but: {verdict}"
        assert verdict.kind == SURVIVES or reason == NO_CODE, f"{mutation.name} {verdict.kind}"


def test_survivors_exist() -> None:
    """What the table lists is in the texts, once, and has a reason."""
    names = {mutation.name for suite in SUITES for mutation in offered(suite)}
    assert set(survivors()) <= names, "the table lists what no pattern makes"
    assert all(survivors().values())


def test_each_file_is_changed_by_one_suite() -> None:
    files = Counter(file for suite in SUITES for file in suite.files)
    shipped = {path.name for path in _compile.directory().glob("*.cu*")}
    assert set(files) == shipped - UNCHANGED
    assert set(files.values()) == {1}


def test_a_choice_is_spread_and_stays() -> None:
    """All patterns are among the chosen, and an edit of another function changes few of them."""
    everything = list(mutations("gather_conv.cu"))
    few = chosen(everything, 60)
    assert len({mutation.change.pattern for mutation in few}) >= 12
    function = few[0].group[1]
    others = [mutation for mutation in everything if mutation.group[1] != function]
    kept = [mutation for mutation in few if mutation.group[1] != function]
    assert set(kept) <= set(chosen(others, 60))


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
    """A mutant is caught in its case."""
    mutant = suite.mutants[name]
    with without_bulk_copies() if mutant.chunks else nullcontext():
        found = suite.verdict(suite.backend(mutant), suite.cases[str(mutant.case)])
    assert found is not None, "nothing rejects it"


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
        return suite.verdict(backend, case) is not None

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
