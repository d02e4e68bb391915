"""Gradients with respect to the input beside PyTorch: ``python -m benchmarks.on_gradients``.

The gradient of each convolution of KernelBench level 1 is itself a convolution of the other
direction, and is checked as one: outputs drawn at random, against float64. It is timed beside
``aten::convolution_backward`` with the gradient of the input alone, NCHW arrays and
``cudnn.benchmark`` on, in the same precision. ``--json`` writes a record.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cupyconv
import cupyconv.grad

from . import cases, jobs, peers, run, timing
from .cases import KERNELBENCH, Convolution
from .jobs import Job
from .precisions import PRECISIONS

COMMAND = "python -m benchmarks.on_gradients"
MOST = 5.0  # ratios are capped at this
SECONDS = 0.3  # of a case


def gradient_of(case: Convolution) -> Convolution:
    """Return the convolution that is the gradient with respect to the input of `case`."""
    extra = tuple(
        size - ((out - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1)
        for size, out, stride, pad, dilation, kernel in zip(
            case.input[2:],
            case.output[2:],
            case.stride,
            case.padding,
            case.dilation,
            case.weight[2:],
            strict=True,
        )
    )
    return dataclasses.replace(
        case,
        transposed=not case.transposed,
        input=case.output,
        output_padding=(0,) * case.rank if case.transposed else extra,
        bias=False,
    )


def ours(case: Convolution, job: Job) -> Callable[[], Any]:
    """Return the gradient of `case` as a user calls it; `job` has the arrays."""
    options = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation}
    options |= {"groups": case.groups, "precision": job.precision.mode, "out": job.out}
    grad_output, weight = job.arrays["input"], job.arrays["weight"]
    if case.transposed:
        function = getattr(cupyconv, f"conv{case.rank}d")
        return lambda: function(grad_output, weight, **options)
    function = getattr(cupyconv.grad, f"conv{case.rank}d_input")
    return lambda: function(case.input, weight, grad_output, **options)


def measured(
    precision: str, torch: peers.Torch, watch: timing.Stopwatch
) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds of each case, ours and PyTorch's."""
    import cupy

    for case in cases.load():
        if not isinstance(case, Convolution) or case.section != KERNELBENCH:
            continue
        job = jobs.prepare(gradient_of(case), PRECISIONS[precision], seed=0, low=-1.0)
        call = ours(case, job)
        job = dataclasses.replace(job, call=call)
        before = job.checked()
        # The gradient's own memory has the shape of the input.
        arrays = job.arrays["input"], job.out, job.arrays["weight"]
        peer = torch.gradient(case, job.precision, arrays, of_weight=False)
        values = job.sample(torch.array(peer()))
        worst = float(abs(values - before).max() / abs(before).max())
        mine, other = map(timing.median, watch.alternate_within([call, peer], SECONDS))
        job.check_again(before)
        yield {"id": case.id, "ours": mine, "torch": other, "difference": worst}
        del job, call, peer, before, values
        cupy.get_default_memory_pool().free_all_blocks()
        torch.free()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--precision", nargs="+", default=["float32", "tf32", "float16"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = peers.load()
    if torch is None:
        parser.error("PyTorch and a GPU are needed")
    import cupy

    record: dict[str, Any] = {}
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, torch.on(stream):
        watch = timing.Stopwatch()
        for precision in options.precision:
            rows = []
            for row in measured(precision, torch, watch):
                rows.append(row)
                ratio = row["torch"] / row["ours"]
                times = f"{row['ours']:9.3f} ms, PyTorch {row['torch']:9.3f} ms"
                print(f"{precision} {row['id']:6} {times}, {ratio:5.2f}", flush=True)
            ratios = [row["torch"] / row["ours"] for row in rows]
            mean = timing.geometric_mean(min(ratio, MOST) for ratio in ratios)
            below = sum(ratio < 1 for ratio in ratios)
            print(f"{precision}: {mean:.2f} over {len(rows)} cases, {below} below 1", flush=True)
            record[precision] = rows
            if options.json:
                text = json.dumps({**run.about(COMMAND, torch), "cases": record}, indent=1)
                options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
