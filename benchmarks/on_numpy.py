"""NumPy's path beside SciPy: ``python -m benchmarks.on_numpy``, on any machine.

Filters of one image and of one signal are timed beside `scipy.ndimage.correlate`, `numpy.convolve`
and SciPy's FFT; four problems of KernelBench, with few samples and channels, beside the same sums
by `scipy.signal.convolve` or `scipy.ndimage.correlate`. Times are processor times, summed
over threads: ``OPENBLAS_NUM_THREADS=1`` is the fair setting.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from scipy import ndimage, signal

import cupyconv

from .data import Array

IMAGE = (1080, 1920)
KERNELS = (3, 5, 7, 11, 15, 31)
# Elements of a signal, and taps.
SIGNALS = (
    (1_000_000, 10),
    (1_000_000, 100),
    (100_000, 1000),
    (100_000, 10_000),
    (200_000, 100_000),
)
ENOUGH = 0.5  # seconds that a call is repeated for
BOUND = 1e-4  # of the difference of results, relative to the largest one


@dataclass(frozen=True)
class Race:
    """A call of cupyconv, and the same result by other libraries."""

    name: str
    ours: Callable[[], Array]
    others: dict[str, Callable[[], Array]]


def uniform(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Return numbers from -1 to 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def images(dtype: str) -> Iterator[Race]:
    image = uniform(IMAGE, dtype, 0)
    for size in KERNELS:
        kernel = uniform((size, size), dtype, size)
        yield Race(
            f"{size} x {size}, {IMAGE[0]} x {IMAGE[1]}",
            lambda w=kernel: cupyconv.conv2d(image[None, None], w[None, None], padding="same")[
                0, 0
            ],
            {
                "ndimage.correlate": lambda w=kernel: ndimage.correlate(image, w, mode="constant"),
                "fftconvolve": lambda w=kernel: signal.fftconvolve(image, w[::-1, ::-1], "same"),
            },
        )


def signals(dtype: str) -> Iterator[Race]:
    for size, taps in SIGNALS:
        x, w = uniform((size,), dtype, size), uniform((taps,), dtype, taps)
        yield Race(
            f"{taps} taps, {size}",
            lambda x=x, w=w: cupyconv.conv_transpose1d(x[None], w[None, None])[0],
            {
                "numpy.convolve": lambda x=x, w=w: np.convolve(x, w),
                "oaconvolve": lambda x=x, w=w: signal.oaconvolve(x, w),
            },
        )


def _transposed(x: Array, w: Array) -> Array:
    """Return a transposed convolution, channel by channel by `scipy.signal.convolve`."""

    def convolved(channel: Array, kernel: Array) -> Array:
        return signal.convolve(channel, kernel, method="direct")

    return np.stack(
        [np.stack([sum(map(convolved, sample, row)) for row in w.swapaxes(0, 1)]) for sample in x]
    )


def problems(dtype: str) -> Iterator[Race]:
    """Problems of KernelBench, with fewer samples, channels and positions."""
    x, w = uniform((2, 16, 64, 64), dtype, 1), uniform((16, 16, 3, 7), dtype, 2)
    yield Race(
        "level 1, problem 65",
        lambda x=x, w=w: cupyconv.conv_transpose2d(x, w),
        {"signal.convolve": lambda x=x, w=w: _transposed(x, w)},
    )
    x, w = uniform((1, 12, 24, 24, 24), dtype, 1), uniform((12, 6, 3, 3, 3), dtype, 2)
    yield Race(
        "level 1, problem 70",
        lambda x=x, w=w: cupyconv.conv_transpose3d(x, w),
        {"signal.convolve": lambda x=x, w=w: _transposed(x, w)},
    )
    x, w = uniform((2, 8, 256, 256), dtype, 1), uniform((8, 1, 3, 1), dtype, 2)
    yield Race(
        "level 1, problem 83",
        lambda x=x, w=w: cupyconv.depthwise_conv2d(x, w),
        {
            "ndimage.correlate": lambda x=x, w=w: np.stack(
                [
                    np.stack([ndimage.correlate(c, k[0])[1:-1] for c, k in zip(s, w, strict=True)])
                    for s in x
                ]
            )
        },
    )
    x, w = uniform((4, 16, 32, 32), dtype, 1), uniform((16, 32, 5, 5), dtype, 2)
    one, zero = np.ones(32, dtype), np.zeros(32, dtype)
    yield Race(
        "level 2, problem 11",
        lambda x=x, w=w: cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
            x, w, one, zero, one, zero, num_groups=8, padding=1
        ),
        {"signal.convolve": lambda x=x, w=w: _chain(_transposed(x, w))},
    )


def _chain(y: Array) -> Array:
    """Return the parts of problem 11 after its transposed convolution, which had no padding."""
    y = y[:, :, 1:-1, 1:-1].astype(np.float64)
    y = np.tanh((y - y.mean((0, 2, 3), keepdims=True)) / _std(y, (0, 2, 3)))
    samples, channels, height, width = y.shape
    y = y[:, :, : height // 2 * 2, : width // 2 * 2]
    y = y.reshape(samples, channels, height // 2, 2, width // 2, 2).max((3, 5))
    groups = y.reshape(samples, 8, -1)
    groups = (groups - groups.mean(2, keepdims=True)) / _std(groups, (2,))
    return groups.reshape(y.shape)


def _std(values: Array, axes: tuple[int, ...]) -> Any:
    return np.sqrt(values.var(axes, keepdims=True) + 1e-5)


def seconds(call: Callable[[], Array]) -> float:
    """Return the least processor time of a call."""
    times: list[float] = []
    while not times or (sum(times) < ENOUGH and len(times) < 20):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    dtype = parser.parse_args().dtype
    print(f"{platform.processor() or platform.machine()}, NumPy {np.__version__}, ", end="")
    print(f"SciPy {scipy.__version__}, {dtype}; milliseconds of processor time")
    for race in (*images(dtype), *signals(dtype), *problems(dtype)):
        result = race.ours()
        line = [f"{race.name:24} cupyconv {1e3 * seconds(race.ours):9.2f}"]
        for name, other in race.others.items():
            expected = other()
            worst = np.abs(result - expected).max() / np.abs(expected).max()
            assert worst < BOUND, f"{race.name}: {name} differs by {worst:.1e}"
            line.append(f"{name} {1e3 * seconds(other):9.2f}")
        print("   ".join(line), flush=True)


if __name__ == "__main__":
    main()
