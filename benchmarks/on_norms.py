"""Norms and max pooling by layout: ``python -m benchmarks.on_norms``.

Each operation runs with input and ``out`` in C order, with channels innermost, and with one of
both. The bits of the results are compared before they are timed. A share of the copy rate counts
the input, twice where statistics are computed from it, and the result.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import cupyconv

from . import limits, timing
from .data import uniform, with_channels_last

SECONDS = 0.3  # of a case
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C order": lambda array: array.copy(),
    "channels last": with_channels_last,
}


class Operation(NamedTuple):
    """A call with `out`, and how often it counts its input."""

    name: str
    call: Callable[..., Any]
    reads: int


def operations(channels: int, groups: int) -> Iterator[Operation]:
    """Yield what is timed, on inputs of so many channels."""
    parameters = [uniform((channels,), np.dtype(np.float32), seed, 0.5) for seed in range(4)]
    mean, var, weight, bias = parameters
    affine = {"weight": weight, "bias": bias}
    yield Operation(
        "batch norm, batch statistics",
        lambda x, **options: cupyconv.batch_norm(x, **affine, **options),
        2,
    )
    yield Operation(
        "batch norm, given statistics",
        lambda x, **options: cupyconv.batch_norm(x, mean, var, **affine, **options),
        1,
    )
    yield Operation(
        f"group norm, {groups} groups",
        lambda x, **options: cupyconv.group_norm(x, groups, **affine, **options),
        2,
    )
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 1)):
        yield Operation(
            f"max pooling, {kernel}×{kernel}, stride {stride}",
            lambda x, sizes=(kernel, stride, padding), **options: cupyconv.max_pool2d(
                x, *sizes, **options
            ),
            1,
        )


def shares(
    operation: Operation, data: Any, watch: timing.Stopwatch, copy: float
) -> Iterator[tuple[str, float]]:
    """Yield the layouts of input and result, and the share of the copy rate."""
    import cupy

    expected = operation.call(data)
    nbytes = operation.reads * data.nbytes + expected.nbytes
    for layouts in itertools.product(LAYOUTS, repeat=2):
        x, out = (LAYOUTS[name](a) for name, a in zip(layouts, (data, expected), strict=True))
        out.fill(0)

        def run(x: Any = x, out: Any = out) -> None:
            operation.call(x, out=out)

        run()
        bits = f"u{out.dtype.itemsize}"
        assert (cupy.ascontiguousarray(out).view(bits) == expected.view(bits)).all()
        (times,) = watch.alternate_within([run], SECONDS)
        yield " to ".join(layouts), nbytes / (1e-3 * timing.median(times)) / copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    sizes = ("N", "C", "H", "W")
    parser.add_argument("--shape", type=int, nargs=4, metavar=sizes, default=[512, 128, 34, 34])
    parser.add_argument("--groups", type=int, default=8)
    options = parser.parse_args()
    watch = timing.Stopwatch()
    copy = limits.copy_rate(watch, seed=0)
    print(f"copy rate {copy / 1e12:.2f} TB/s")
    for dtype in map(np.dtype, ("float32", "float16")):
        data = uniform(tuple(options.shape), dtype, 0, -1.0)
        for operation in operations(options.shape[1], options.groups):
            for layouts, share in shares(operation, data, watch, copy):
                print(f"{dtype} {operation.name}, {layouts}: {share:.2f}", flush=True)


if __name__ == "__main__":
    main()
