"""The path for NumPy arrays is no toy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from scipy import signal

import cupyconv
from strategies import values


def seconds_of(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def best_seconds(*runs: Callable[[], object], repeats: int) -> list[float]:
    """The shortest time of each, in turn, so that a busy moment is one for all of them."""
    turns = [[seconds_of(run) for run in runs] for _ in range(repeats)]
    return [min(times) for times in zip(*turns, strict=True)]


@pytest.mark.timed
def test_ten_times_as_fast_as_scipy_channel_pair_by_channel_pair() -> None:
    """conv_transpose2d of 1x64x64x64 by 64x64x3x7, against one convolution in SciPy for each of
    the 4,096 pairs of channels; a random sample of the pairs is timed and scaled up."""
    rng = np.random.default_rng(0)
    x = values(rng, (1, 64, 64, 64), np.float32)
    w = values(rng, (64, 64, 3, 7), np.float32)
    sample = rng.integers(0, 64, (64, 2))
    total = np.zeros((66, 70), np.float32)

    def pair_by_pair() -> None:
        for c, m in sample:
            np.add(total, signal.convolve(x[0, c], w[c, m]), out=total)

    pairs = w.shape[0] * w.shape[1] / len(sample)
    ours, theirs = best_seconds(lambda: cupyconv.conv_transpose2d(x, w), pair_by_pair, repeats=9)
    assert 10 * ours <= pairs * theirs, f"{ours:.4f} s, and SciPy {pairs * theirs:.4f} s"
