"""Convolutions of large arrays on the GPU, recomputed at a few of their outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import bounds
from reference import Sums


def outputs(
    rng: np.random.Generator, shape: tuple[int, ...], count: int
) -> Iterator[tuple[int, ...]]:
    """The corners of an array of `shape` and `count` random places in it."""
    yield from itertools.islice(itertools.product(*({0, n - 1} for n in shape)), 16)
    for _ in range(count):
        yield tuple(int(rng.integers(n)) for n in shape)


def window(
    place: tuple[int, ...], case: dict[str, Any]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Input positions and taps of each axis that meet at an output, from the gather definition."""
    positions, taps = [], []
    for o, size, kernel, stride, pad, dilation in zip(
        place,
        case["input"][2:],
        case["weight"][2:],
        case["stride"],
        case["padding"],
        case["dilation"],
        strict=True,
    ):
        k = np.arange(kernel)
        if case["transposed"]:
            numerator = o + pad - k * dilation
            k = k[numerator % stride == 0]
            i = (o + pad - k * dilation) // stride
        else:
            i = o * stride - pad + k * dilation
        inside = (i >= 0) & (i < size)
        positions.append(i[inside])
        taps.append(k[inside])
    return positions, taps


def check_outputs(
    case: dict[str, Any],
    x: Any,
    w: Any,
    bias: Any,
    y: Any,
    places: Iterable[tuple[int, ...]],
    precision: str = "float32",
) -> int:
    """Compare a convolution with float64 sums at some outputs, within the bound; count them."""
    import cupy

    rows, channels = y.shape[1] // case["groups"], x.shape[1] // case["groups"]
    host_w = cupy.asnumpy(w).astype(np.float64)
    host_b = np.zeros(y.shape[1]) if bias is None else cupy.asnumpy(bias).astype(np.float64)
    count = 0
    for n, c, *place in places:
        positions, taps = window(tuple(place), case)
        group, row = divmod(c, rows)
        own = np.arange(group * channels, (group + 1) * channels)
        seen = cupy.asnumpy(x[n][tuple(map(cupy.asarray, np.ix_(own, *positions)))])
        if case["transposed"]:
            matrix = host_w[np.ix_(own, [row], *taps)][:, 0]
        else:
            matrix = host_w[c][np.ix_(np.arange(channels), *taps)]
        products = seen.astype(np.float64) * matrix
        expected = Sums(
            value=np.array(products.sum() + host_b[c]),
            scale=np.array(np.abs(products).sum() + abs(host_b[c])),
            terms=np.array(products.size),
        )
        result = cupy.asnumpy(y[(n, c, *place)]).reshape(())
        bounds.assert_convolution(result, expected, y.dtype, precision)
        count += 1
    return count
