"""Weight gradients beside PyTorch: ``python -m benchmarks.on_weight_gradients``.

The calls are KernelBench's convolutions, the convolutions of a JSON file (``--cases``), or random
ones (``--random N``). A result is checked at elements drawn at random, against sums in float64. It
is timed beside ``aten::convolution_backward`` with the gradient of the weight alone, NCHW arrays
and ``cudnn.benchmark`` on, in the same precision. With ``--kernels`` each of our own kernels is
timed. ``--json`` writes a record.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import cupyconv
import cupyconv.grad
from cupyconv._kernels.choice import GRADIENTS, forced

from . import cases, peers, run, timing
from .cases import KERNELBENCH, Convolution
from .data import poison, uniform
from .on_gradients import MOST
from .precisions import PRECISIONS, Precision
from .random_calls import MULTIPLY_ADDS, random_calls

COMMAND = "python -m benchmarks.on_weight_gradients"
SECONDS = 0.15  # of a case
ELEMENTS = 16  # of a gradient that are checked


def chosen(options: argparse.Namespace) -> Iterable[Convolution]:
    """Return the calls that are measured."""
    if options.random:
        return itertools.islice(random_calls(options.seed, MULTIPLY_ADDS), options.random)
    if options.cases:
        items = [{"bias": False, **item} for item in json.loads(options.cases.read_text())]
        found = cases.parse(options.cases.stem, items)
    else:
        found = [case for case in cases.load() if case.section == KERNELBENCH]
    return (case for case in found if isinstance(case, Convolution))


def arrays(case: Convolution, precision: Precision, seed: int) -> tuple[Any, Any]:
    """Return the arrays that the taps move on, and the one that they do not: input and gradient.

    For a transposed convolution they change places.
    """
    dtype, shapes = precision.numpy_dtype(), [case.input, case.output]
    long, short = shapes[::-1] if case.transposed else shapes
    return uniform(long, dtype, seed, -1.0), uniform(short, dtype, seed + 1, -1.0)


def exact(case: Convolution, long: Any, short: Any, element: tuple[int, ...]) -> float:
    """Return an element of the gradient as it is defined, in float64."""
    import cupy

    row, column, *taps = element
    group = row // (short.shape[1] // case.groups)
    channel = group * case.weight[1] + column
    moved, still = long[:, channel], short[:, row]
    for axis, tap in enumerate(taps):
        start = tap * case.dilation[axis] - case.padding[axis]
        step, size = case.stride[axis], moved.shape[1 + axis]
        first = max(0, -(start // step))
        last = min(still.shape[1 + axis], -(-(size - start) // step))
        if last <= first:
            return 0.0
        begin = start + first * step
        inputs = slice(begin, begin + (last - first - 1) * step + 1, step)
        moved = moved[(slice(None),) * (1 + axis) + (inputs,)]
        still = still[(slice(None),) * (1 + axis) + (slice(first, last),)]
    return float(cupy.multiply(moved, still, dtype=np.float64).sum())


def check(case: Convolution, long: Any, short: Any, out: Any) -> float:
    """Return the error of a gradient in the norm, over elements drawn at random."""
    rng = np.random.default_rng(0)
    places = [tuple(int(rng.integers(n)) for n in out.shape) for _ in range(ELEMENTS)]
    wanted = np.array([exact(case, long, short, place) for place in places])
    found = np.array([float(out[place]) for place in places])
    norm = np.linalg.norm(wanted)
    return float(np.linalg.norm(found - wanted) / norm) if norm else float(np.abs(found).max())


def measured(
    case: Convolution,
    precision: Precision,
    torch: peers.Torch,
    watch: timing.Stopwatch,
    kernels: bool,
) -> dict[str, Any]:
    """Return the milliseconds of a call, ours and PyTorch's, and the errors of both."""
    import cupy

    long, short = arrays(case, precision, seed=0)
    out = cupy.empty(case.weight, precision.numpy_dtype())
    poison(out)
    options = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation}
    options |= {"groups": case.groups, "precision": precision.mode}
    gradient = getattr(cupyconv.grad, f"conv{case.rank}d_weight")
    arguments = long, case.weight, short
    call = partial(gradient, *arguments, **options, out=out)
    explain = partial(cupyconv.explain, gradient, *arguments, **options)
    row: dict[str, Any] = {"id": case.id, "groups": case.groups, "channels": case.weight[1]}
    call()
    row["error"] = check(case, long, short, out)
    operands = (long, short) if case.transposed else (short, long)
    peer = torch.gradient(case, precision, (*operands, out), of_weight=True)
    row["torch_error"] = check(case, long, short, torch.array(peer()))
    mine, other = map(timing.median, watch.alternate_within([call, peer], SECONDS))
    row |= {"ours": mine, "torch": other}
    explained = explain()
    row |= {"kernel": explained.kernel, "expected": explained.expected_ms}
    row["limit"] = explained.limit_ms
    for kernel in GRADIENTS if kernels else ():
        with forced("portable" if kernel == "matrix" else kernel):
            if explain().kernel == kernel:
                call()
                row[kernel] = timing.median(watch.alternate_within([call], 0.02)[0])
    return row


def show(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the figures of some calls."""
    ratios = [row["torch"] / row["ours"] for row in rows]
    if ratios:
        mean = timing.geometric_mean(min(ratio, MOST) for ratio in ratios)
        below = sum(ratio < 1 for ratio in ratios)
        worst = max(row["error"] / max(row["torch_error"], 1e-9) for row in rows)
        most = max(row["error"] for row in rows)
        print(f"{name}: {mean:.2f} over {len(rows)} calls, lowest {min(ratios):.2f},", end=" ")
        print(f"{below} below 1, error at most {most:.1e} and {worst:.2f} times PyTorch's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--precision", nargs="+", default=["float32", "tf32", "float16"])
    parser.add_argument("--cases", type=Path, metavar="FILE")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch = peers.load()
    if torch is None:
        parser.error("PyTorch and a GPU are needed")
    import cupy

    record: dict[str, list[dict[str, Any]]] = {name: [] for name in options.precision}
    stream = cupy.cuda.Stream(non_blocking=True)
    pool = cupy.get_default_memory_pool()
    with stream, torch.on(stream), suppress(KeyboardInterrupt):
        watch = timing.Stopwatch()
        for case in chosen(options):
            for name in options.precision:
                row = measured(case, PRECISIONS[name], torch, watch, options.kernels)
                record[name].append(row)
                print(f"{name:8} {_text(row)} {'x'.join(map(str, case.weight))}", flush=True)
                pool.free_all_blocks()
                torch.free()
    for name, rows in record.items():
        depthwise = [row for row in rows if row["channels"] == 1 < row["groups"]]
        show(f"{name} dense", [row for row in rows if row not in depthwise])
        show(f"{name} depthwise", depthwise)
        show(name, rows)
    if options.json:
        text = json.dumps({**run.about(COMMAND, torch), "cases": record}, indent=1)
        options.json.write_text(text + "\n")


def _text(row: dict[str, Any]) -> str:
    times = f"{row['ours']:8.3f} ms, PyTorch {row['torch']:8.3f}, {row['torch'] / row['ours']:5.2f}"
    others = "".join(f" {name} {row[name]:.3f}" for name in GRADIENTS if name in row)
    errors = f"{row['error']:.1e} {row['torch_error']:.1e}"
    expected = math.nan if row["expected"] is None else row["expected"]
    return f"{row['id']:24} {times} {row['kernel']} {expected:.3f}{others} errors {errors}"


if __name__ == "__main__":
    main()
