"""Random convolutions and their gradients in int64: both identities hold to the last bit.

::

    PYTHONPATH=.:tests python tests/identities.py --count 10000 --seed 1 [--cupy]

With ``<a, b>`` the sum of products modulo 2**64, ``<conv(x, w), y>``, ``<x, conv_input(y)>`` and
``<w, conv_weight(y)>`` are equal for all x, w and y. Each convolution is drawn from the seed and
its number. The command prints a failure with its number, and its exit code is then 1.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from backends import CupyBackend, NumpyBackend
from gradients import result_shape
from reference import Array, Shape
from strategies import PADDING_MODES

Convolution = tuple[Shape, Shape, dict[str, Any]]


def drawn(rng: np.random.Generator) -> Convolution:
    """The shapes of an input and of a weight, and options with which they fit each other."""
    rank = int(rng.choice([1, 1, 2, 2, 2, 3, 3, 4]))
    longest = (0, 40, 14, 8, 4)[rank]

    def each(low: int, high: int) -> Shape:
        return tuple(int(n) for n in rng.integers(low, high, rank, endpoint=True))

    while True:
        kernel = each(1, max(3, longest // 2))
        stride, dilation = each(1, 5), each(1, 3)
        lengths = each(0, longest)
        pads: Any = tuple(zip(each(0, 6), each(0, 6), strict=True))
        padding = (pads, each(0, 4), int(rng.integers(5)), "same", "valid", pads)[rng.integers(6)]
        groups = int(rng.choice([1, 1, 2, 3, 7]))
        channels, rows = (int(n) for n in rng.choice([1, 1, 2, 3, 5, 0], 2))
        batch = [(), (0,), (1,), (2,), (3,)][rng.choice(5, p=[0.15, 0.05, 0.3, 0.3, 0.2])]
        shapes = (*batch, groups * channels, *lengths), (groups * rows, channels, *kernel)
        steps = {"stride": stride, "padding": padding, "dilation": dilation}
        if all(lengths) and rng.random() < 0.25:
            steps["padding_mode"] = str(rng.choice(PADDING_MODES))
        out_shape = result_shape(*shapes, **steps)
        if min(out_shape[-rank:]) > 0 and np.prod(out_shape) < 20_000:
            return *shapes, {**steps, "groups": groups}


def inner(a: Array, b: Array) -> int:
    """The sum of products, modulo 2**64."""
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
    return int((a * b).sum(dtype=np.int64))


def check(backend: NumpyBackend, rng: np.random.Generator) -> Convolution:
    """Assert both identities of a drawn convolution, with numbers of the whole range."""
    input_shape, weight_shape, options = drawn(rng)
    steps = {name: value for name, value in options.items() if name != "groups"}
    shapes = input_shape, weight_shape, result_shape(input_shape, weight_shape, **steps)
    x, w, y = (rng.integers(-(2**63), 2**63, shape, np.int64) for shape in shapes)
    on = backend.asarray
    result = backend.call("conv", on(x), on(w), **options)
    for_input = backend.call("grad.conv_input", input_shape, on(w), on(y), **options)
    for_weight = backend.call("grad.conv_weight", on(x), weight_shape, on(y), **options)
    expected = inner(backend.to_numpy(result), y)
    assert inner(x, backend.to_numpy(for_input)) == expected, "the gradient of the input is wrong"
    assert inner(w, backend.to_numpy(for_weight)) == expected, "the gradient of the weight is wrong"
    return input_shape, weight_shape, options


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cupy", action="store_true", help="CuPy arrays, on a GPU")
    options = parser.parse_args()
    backend = CupyBackend() if options.cupy else NumpyBackend()
    failures = 0
    for number in range(options.count):
        try:
            check(backend, np.random.default_rng([options.seed, number]))
        except Exception as error:
            failures += 1
            call = drawn(np.random.default_rng([options.seed, number]))
            print(f"number {number}, {call}: {type(error).__name__}: {error}")
    print(f"{options.count} convolutions, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
