"""The benchmark on random calls, without a GPU: what is drawn, what is timed, and the figures."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from benchmarks import jobs, mine, on_random
from benchmarks.cases import Convolution
from benchmarks.on_random import DOUBLE, Measurement, Row
from benchmarks.random_calls import MULTIPLY_ADDS, SMALL, random_calls
from cupyconv._kernels import choice
from test_benchmarks import SHAPES, Stopwatch, convolution, explained, job

CALLS = list(itertools.islice(random_calls(1, MULTIPLY_ADDS), 300))


def test_a_seed_repeats_its_calls() -> None:
    assert list(itertools.islice(random_calls(1, MULTIPLY_ADDS), 20)) == CALLS[:20]
    assert next(random_calls(2, MULTIPLY_ADDS)) != CALLS[0]


def test_calls_are_of_every_sort() -> None:
    assert all(min(case.output) > 0 for case in CALLS)
    for name, has in on_random.CLASSES.items():
        assert any(map(has, CALLS)), name
    assert {case.rank for case in CALLS} == {1, 2, 3}
    assert any(max(case.dilation) > 50 for case in CALLS)
    assert any(max(case.output_padding) for case in CALLS)


def test_a_line_is_its_call() -> None:
    for case in CALLS:
        again = mine.parse(mine.line(case), case.id)
        assert again == dataclasses.replace(case, section=mine.SECTION)


@pytest.mark.parametrize("bounds", [MULTIPLY_ADDS, SMALL])
def test_multiply_adds(bounds: tuple[int, int]) -> None:
    for case in itertools.islice(random_calls(3, bounds), 50):
        assert bounds[0] / 1.5 <= case.operations / 2 <= bounds[1] * 1.5


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what measures a job on NumPy arrays; call `n` of a round takes `n` milliseconds."""
    monkeypatch.setattr(jobs, "poison", lambda array: array.fill(np.nan))
    monkeypatch.setattr(jobs, "count_nan", lambda array: int(np.isnan(array).sum()))
    pool = mock.MagicMock()
    monkeypatch.setitem(
        sys.modules, "cupy", SimpleNamespace(ndarray=(), get_default_memory_pool=pool)
    )

    def measure(one: jobs.Job) -> Row:
        monkeypatch.setattr(jobs, "prepare", lambda *arguments: one)
        return Measurement(Stopwatch(), None, 1, True)(one.case, one.precision)  # type: ignore[arg-type]

    return measure


def taken_by_two() -> Any:
    """What explains a call that "plain" and "direct" take; "direct" is chosen."""
    return explained("plain" if choice.forced_kernel() == "plain" else "direct")


def test_a_call_is_timed_on_all_kernels(measured: Any) -> None:
    one = job(convolution(SHAPES["stride"], False))
    row = measured(jobs.Job(**{**vars(one), "explained": taken_by_two}))
    assert (row.chosen, row.ours, row.failures) == ("direct", {"direct": 1.0, "plain": 2.0}, {})
    assert (row.regret, row.expected, row.limit) == (1.0, 1.5, 0.25)


def test_a_wrong_kernel_is_not_timed(measured: Any) -> None:
    one = job(convolution(SHAPES["stride"], False))

    def call() -> Any:
        one.call()
        one.out[:] += choice.forced_kernel() == "plain"

    row = measured(jobs.Job(**{**vars(one), "explained": taken_by_two, "call": call}))
    assert list(row.ours) == ["direct"]
    assert "in norm" in row.failures["plain"]


def test_double_precision_is_judged_in_its_own_units() -> None:
    case = convolution(SHAPES["stride"], True)
    rng = np.random.default_rng(5)
    x, w = rng.uniform(-1, 1, case.input), rng.uniform(-1, 1, case.weight)
    where = jobs.reference.places(case.output, 100, rng)
    sums = jobs.reference.sums_at(case, where, x, w, None)
    bound = jobs.reference.bound(sums, DOUBLE)
    assert (bound < 1e-13).all() and (bound > 0).all()


def row_of(case: Convolution, chosen: float, other: float, cudnn: float) -> Row:
    return Row(mine.line(case), "float32", "a", {"a": chosen, "b": other}, cudnn, 0.1, 0.05)


def test_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row_of(CALLS[0], 0.1, 0.05, 0.2),
        row_of(CALLS[1], 0.2, 0.4, 0.1),
        row_of(CALLS[2], 0.01, 0.001, 1.0),
    ]
    assert [row.regret for row in rows[:2]] == [2.0, 1.0]
    assert [row.ratio for row in rows] == [2.0, 0.5, 5.0]  # the last one is capped
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"calls": [asdict(row) for row in rows]}))
    assert on_random.main(["--read", str(path)]) == 0
    shown = capsys.readouterr().out
    # Two calls count for the regret; 5 ** (1 / 3) is the mean ratio; one call is below 1.
    line = next(line.split() for line in shown.splitlines() if line.startswith("all"))
    assert line == ["all", "3", "1.50", "1.00", "2.0", "1.71", "33%", "0%", "33%", "67%"]
    assert f"faster than their limits:\n{mine.line(CALLS[2])}" in shown


def test_no_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.run.missing", lambda: "there is no GPU")
    with pytest.raises(SystemExit):
        on_random.main(["--seconds", "1"])
