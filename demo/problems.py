"""Four problems of KernelBench (https://github.com/ScalingIntelligence/KernelBench).

SciPy and cupyx have no convolution of channels. One output channel, a sum of `ndimage.correlate`
over the input channels, is timed and multiplied by the number of output channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import cupyconv

from . import reference
from .backend import Array, Backend
from .jobs import Job, normal

SAMPLES = 4096  # outputs that are compared with float64 sums


@dataclass(frozen=True)
class Convolution:
    """One of the level 1 problems; all have stride 1 and no padding."""

    name: str
    function: Callable[..., Array]
    weight: tuple[int, ...]
    full: tuple[int, ...]  # the input's shape on a GPU
    small: tuple[int, ...]  # and on NumPy
    groups: int = 1

    @property
    def transposed(self) -> bool:
        return "transpose" in self.function.__name__

    def job(self, backend: Backend, rng: np.random.Generator) -> Job:
        input = normal(rng, self.full if backend.full_size else self.small)
        weight = normal(rng, self.weight)

        def error(result: np.ndarray) -> float:
            where = reference.random_positions(result.shape, SAMPLES, rng)
            exact = reference.outputs_at(
                where, input, weight, transposed=self.transposed, groups=self.groups
            )
            return reference.relative_error(result[where], exact)

        return Job(
            name=self.name,
            arrays=(input, weight),
            call=lambda x, w: self.function(x, w, groups=self.groups),
            error=error,
            peer=lambda x, w: one_channel(
                backend, x, w, transposed=self.transposed, groups=self.groups
            ),
            parts=self.weight[1] if self.transposed else self.weight[0],
        )


CONVOLUTIONS = (
    Convolution(
        "decoder layer, 3×7 kernel\nKernelBench 1/65, conv_transpose2d",
        cupyconv.conv_transpose2d,
        weight=(64, 64, 3, 7),
        full=(8, 64, 512, 512),
        small=(1, 64, 128, 128),
    ),
    Convolution(
        "decoder layer of volumes\nKernelBench 1/70, conv_transpose3d",
        cupyconv.conv_transpose3d,
        weight=(48, 24, 3, 3, 3),
        full=(8, 48, 96, 96, 96),
        small=(1, 48, 32, 32, 32),
    ),
    Convolution(
        "vertical filter of each channel\nKernelBench 1/83, conv2d",
        cupyconv.conv2d,
        weight=(8, 1, 3, 1),
        full=(64, 8, 512, 512),
        small=(4, 8, 512, 512),
        groups=8,
    ),
)


def one_channel(
    backend: Backend, input: Array, weight: Array, *, transposed: bool, groups: int = 1
) -> Array:
    """Return the first output channel of a convolution with stride 1 and no padding."""
    taps = weight.shape[2:]
    reach = tuple((k - 1, k - 1) if transposed else (0, 0) for k in taps)
    padded = backend.xp.pad(input, ((0, 0), (0, 0), *reach))
    valid = tuple(
        slice(k // 2, k // 2 + n - k + 1) for k, n in zip(taps, padded.shape[2:], strict=True)
    )
    total = 0
    for c in range(input.shape[1] // groups):
        kernel = backend.xp.flip(weight[c, 0]) if transposed else weight[0, c]
        total = total + backend.ndimage.correlate(padded[:, c], kernel[None], mode="constant")
    return total[(slice(None), *valid)]


def fused(backend: Backend, rng: np.random.Generator) -> Job:
    """Level 2, problem 11: five operations in one call."""
    channels = 128
    input = normal(rng, (512 if backend.full_size else 16, 64, 32, 32))
    kernel = normal(rng, (64, channels, 5, 5))
    bn_weight, gn_weight = (1 + normal(rng, (channels,)) / 8 for _ in range(2))
    bn_bias, gn_bias = (normal(rng, (channels,)) / 8 for _ in range(2))
    arrays = (input, kernel, bn_weight, bn_bias, gn_weight, gn_bias)
    options = {"num_groups": 8, "padding": 1}

    def error(result: np.ndarray) -> float:
        exact = reference.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(*arrays, **options)
        return reference.relative_error(result, exact)

    return Job(
        name="generator block\nKernelBench 2/11, conv_transpose2d, batch norm,\n"
        "tanh, max pool, group norm",
        arrays=arrays,
        call=lambda *a: cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(*a, **options),
        error=error,
        peer=lambda x, w, *_: one_channel(backend, x, w, transposed=True),  # the convolution alone
        parts=channels,
    )
