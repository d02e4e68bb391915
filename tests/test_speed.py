"""The path for NumPy arrays is no toy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy import signal

import cupyconv
from strategies import values


def best_seconds(run: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


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
    theirs = best_seconds(pair_by_pair, 5) * pairs
    ours = best_seconds(lambda: cupyconv.conv_transpose2d(x, w), 5)
    assert 10 * ours <= theirs, f"{ours:.4f} s, and SciPy {theirs:.4f} s"
