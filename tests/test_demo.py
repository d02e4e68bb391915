"""The demo: what it compares itself with does the same work, and what its table says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from demo import photograph, problems
from demo.backend import NumpyBackend
from demo.jobs import Job, Report, run, table

BACKEND = NumpyBackend()


def small(problem: problems.Convolution) -> problems.Convolution:
    batch, channels, *space = problem.small
    return replace(problem, small=(batch, channels, *(min(size, 12) for size in space)))


@pytest.mark.parametrize("problem", problems.CONVOLUTIONS, ids=lambda p: p.function.__name__)
def test_a_channel_by_scipy_is_the_first_channel(problem: problems.Convolution) -> None:
    job = small(problem).job(BACKEND, np.random.default_rng(3))
    ours = job.call(*job.arrays)
    assert job.parts == ours.shape[1]
    np.testing.assert_allclose(job.peer(*job.arrays), ours[:, 0], rtol=0, atol=2e-4)


def test_work_on_the_photograph_has_the_same_result() -> None:
    """Up to what the borders of an enlargement hold."""
    image = photograph.photograph()[:, :, :20, :30]
    for job in (photograph.enlargement(BACKEND, image), photograph.blur(BACKEND, image)):
        ours = job.call(*job.arrays)
        assert job.parts == 1
        assert job.error(ours) < 1e-6
        np.testing.assert_allclose(job.peer(*job.arrays), ours, rtol=0, atol=1e-5)


def test_the_time_of_a_part_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumpyBackend, "milliseconds", lambda self, call: float(call().sum()))
    ones = np.ones((1, 2), np.float32)
    job = Job("one\ntwo", (ones, ones), lambda x, w: 2 * x, lambda result: 0.5, lambda x, w: x, 8)
    report, _ = run(job, BACKEND)
    assert (report.milliseconds, report.peer, report.error) == (4, 16, 0.5)


def test_the_table_has_names_first_and_the_peer_beside() -> None:
    text = table([Report("a blur\nconv2d", "1×2 * 3×4", "float32", 0.5, 2.0, 1e-7)], "SciPy")
    head, _, first, second = text.splitlines()
    assert head.split("  ")[0] == "what it is" and "SciPy, ms" in head
    assert first.startswith("a blur ") and first.split()[-4:] == [
        "0.500",
        "2.000",
        "4.0",
        "1.0e-07",
    ]
    assert second == "  conv2d"
