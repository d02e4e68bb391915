"""Float64 results to compare with, written from the definitions on NumPy arrays alone.

The convolutions here have stride 1, no padding and no dilation, as the demo's problems do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def relative_error(result: np.ndarray, exact: np.ndarray) -> float:
    """The norm of the difference over the norm of the exact result."""
    return float(np.linalg.norm(result - exact) / np.linalg.norm(exact))


def random_positions(
    shape: tuple[int, ...], count: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """An index array for each axis of an array of this shape."""
    return tuple(rng.integers(size, size=count) for size in shape)


def outputs_at(
    positions: tuple[np.ndarray, ...],
    input: np.ndarray,
    weight: np.ndarray,
    *,
    transposed: bool,
    groups: int,
) -> np.ndarray:
    """The outputs of a convolution, or a transposed one, at some positions only."""
    sample, channel, *output = positions
    in_per_group = input.shape[1] // groups
    out_per_group = weight.shape[1] if transposed else weight.shape[0] // groups
    group, member = np.divmod(channel, out_per_group)
    in_channels = group[:, None] * in_per_group + np.arange(in_per_group)

    total = np.zeros(sample.shape)
    for tap in np.ndindex(weight.shape[2:]):
        if transposed:
            source = [o - k for o, k in zip(output, tap, strict=True)]
            factors = weight[(in_channels, member[:, None], *tap)]
        else:
            source = [o + k for o, k in zip(output, tap, strict=True)]
            factors = weight[(channel, slice(None), *tap)]
        limits = zip(source, input.shape[2:], strict=True)
        inside = np.all([(0 <= i) & (i < size) for i, size in limits], axis=0)
        indices = [np.where(inside, i, 0)[:, None] for i in source]
        values = input[(sample[:, None], in_channels, *indices)]
        products = values.astype(np.float64) * factors.astype(np.float64)
        total += np.where(inside, products.sum(axis=1), 0)
    return total


def conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
    input: np.ndarray,
    kernel: np.ndarray,
    bn_weight: np.ndarray,
    bn_bias: np.ndarray,
    gn_weight: np.ndarray,
    gn_bias: np.ndarray,
    *,
    num_groups: int,
    padding: int,
    eps: float = 1e-5,
) -> np.ndarray:
    """Batch norm over the whole batch, then the rest, a few samples at a time."""
    convolved = np.concatenate(
        [_conv_transpose2d(part, kernel, padding) for part in _few_samples(input)]
    )
    mean = convolved.mean(axis=(0, 2, 3), keepdims=True)
    var = convolved.var(axis=(0, 2, 3), keepdims=True)

    def rest(part: np.ndarray) -> np.ndarray:
        normed = (part - mean) / np.sqrt(var + eps) * bn_weight[:, None, None]
        active = np.tanh(normed + bn_bias[:, None, None])
        n, c, h, w = active.shape
        windows = active[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2)
        pooled = windows.max(axis=(3, 5))
        grouped = pooled.reshape(n, num_groups, -1)
        centred = grouped - grouped.mean(axis=2, keepdims=True)
        scaled = centred / np.sqrt(grouped.var(axis=2, keepdims=True) + eps)
        return scaled.reshape(pooled.shape) * gn_weight[:, None, None] + gn_bias[:, None, None]

    return np.concatenate([rest(part) for part in _few_samples(convolved)])


def _few_samples(array: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(array), 16):
        yield array[first : first + 16].astype(np.float64)


def _conv_transpose2d(input: np.ndarray, kernel: np.ndarray, padding: int) -> np.ndarray:
    """Scatter-add, one matrix product for each tap, onto a canvas that keeps the padding."""
    n, channels, h, w = input.shape
    _, out_channels, kernel_h, kernel_w = kernel.shape
    canvas = np.zeros((n, out_channels, h + kernel_h - 1, w + kernel_w - 1))
    pixels = input.reshape(n, channels, h * w)
    for y, x in np.ndindex(kernel_h, kernel_w):
        matrix = kernel[:, :, y, x].T.astype(np.float64)
        canvas[:, :, y : y + h, x : x + w] += (matrix @ pixels).reshape(n, out_channels, h, w)
    return canvas[:, :, padding:-padding, padding:-padding]
