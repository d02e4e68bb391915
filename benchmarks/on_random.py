"""Random plausible calls: ``python -m benchmarks random --seed S --seconds T``.

Each call runs on the kernel that is chosen for it, on every other kernel that takes it, and on
cuDNN (PyTorch, NCHW arrays, ``cudnn.benchmark`` on) in the same precision. Every result is checked
before it is timed. The regret of a call is the time of the chosen kernel over the shortest of ours;
its ratio is cuDNN's time over the chosen kernel's, capped at 5. ``--json`` writes a record, from
which the models of the kernels are fitted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cupyconv._kernels import choice

from . import cases as cases_
from . import jobs, mine, peers, run
from .cases import KERNELBENCH, Convolution
from .jobs import Job
from .on_gradients import MOST, gradient_of
from .precisions import PRECISIONS, Precision
from .random_calls import MULTIPLY_ADDS, SMALL, random_calls
from .report import AUTO, table
from .run import forced, on_kernel
from .timing import Call, Stopwatch, geometric_mean, median

COMMAND = "python -m benchmarks random"
DOUBLE = Precision("float64", "float64", 8, (), 1e-14, 2.0**-53, 2.0**-1000)
RANDOM = {**PRECISIONS, DOUBLE.name: DOUBLE}

SHORT_MS = 0.015  # calls up to this time do not count for the regret
_SAMPLES = 512  # outputs that are checked
_MOST_PRODUCTS = 65_536  # of an output, up to which its error in norm is judged, too
_SECONDS = 0.02  # for the repeats of a call on all kernels
_SLOW = 3.0  # kernels that take this many times as long as the fastest one are timed once


@dataclass
class Row:
    """A call: what was chosen, and the milliseconds of each of our kernels and of cuDNN."""

    case: str  # a line of `mine`
    precision: str
    chosen: str = ""
    ours: dict[str, float] = field(default_factory=dict)
    cudnn: float | None = None
    expected: float = 0.0
    limit: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def regret(self) -> float:
        return self.ours[self.chosen] / min(self.ours.values())

    @property
    def ratio(self) -> float | None:
        return None if self.cudnn is None else min(self.cudnn / self.ours[self.chosen], MOST)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Random calls beside cuDNN.")
    add = parser.add_argument
    add("--seed", type=int, help="of the calls and of their data; default: a fresh one")
    add("--seconds", type=float, default=300.0, help="how long to draw calls; default: 300")
    add("--calls", type=int, help="the most calls of a precision")
    add("--precision", nargs="+", default=["float32"], choices=RANDOM, help="default: float32")
    add("--small", action="store_true", help="calls of 5 to 50 million multiply-adds")
    add("--known", action="store_true", help="the benchmark's cases and gradients of KernelBench's")
    add("--only-chosen", action="store_true", help="without the other kernels")
    add("--json", type=Path, metavar="FILE", help="where to write the record")
    add("--read", nargs="+", type=Path, metavar="FILE", help="print the figures of records")
    options = parser.parse_args(arguments)
    if options.read:
        for path in options.read:
            show([Row(**row) for row in json.loads(path.read_text())["calls"]])
        return 0
    if reason := run.missing():
        parser.error(reason)
    import cupy

    seed = secrets.randbits(31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    rows: list[Row] = []
    torch = peers.load()
    about = run.about(shlex.join([*COMMAND.split(), *arguments]), torch)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, torch.on(stream) if torch else nullcontext():
        measure = Measurement(Stopwatch(), torch, seed, not options.only_chosen)
        start = time.perf_counter()
        drawn = random_calls(seed, SMALL if options.small else MULTIPLY_ADDS)
        calls = known() if options.known else drawn
        with suppress(KeyboardInterrupt):  # cuDNN may search for longer than anybody waits
            for number, case in enumerate(calls):
                if time.perf_counter() - start > options.seconds or number == options.calls:
                    break
                rows += [measure(case, RANDOM[name]) for name in options.precision]
        seconds = time.perf_counter() - start
    if options.json:
        about |= {"seconds": round(seconds), "calls": [dataclasses.asdict(row) for row in rows]}
        options.json.write_text(_text(about) + "\n")
    show(rows)
    print(f"{len(rows)} calls, {len(rows) / seconds:.1f} a second")
    wrong = [row for row in rows if row.failures]
    for row in wrong:
        print(row.case, row.precision, row.failures)
    return 1 if wrong else 0


def _text(record: dict[str, Any]) -> str:
    """Return a record as JSON, with a line for each call."""
    calls = ",\n".join(map(json.dumps, record.pop("calls")))
    return f'{json.dumps(record)[:-1]}, "calls": [\n{calls}\n]}}'


def known() -> Iterator[Convolution]:
    """Yield the convolutions of the benchmark, and the gradients of KernelBench's inputs."""
    for case in cases_.load():
        if isinstance(case, Convolution):
            yield case
            if case.section == KERNELBENCH:
                yield gradient_of(case)


@dataclass
class Measurement:
    """What measures calls on the current GPU."""

    watch: Stopwatch
    torch: peers.Torch | None
    seed: int
    all_kernels: bool

    def __call__(self, case: Convolution, precision: Precision) -> Row:
        """Return the checked times of a call."""
        import cupy

        row = Row(mine.line(case), precision.name)
        try:
            job = jobs.prepare(case, precision, self.seed, -1.0, _SAMPLES)
            if case.channels * math.prod(case.weight[2:]) > _MOST_PRODUCTS:
                job = dataclasses.replace(job, exact=dataclasses.replace(job.exact, error=math.inf))
            self._measure(job, row)
        except Exception as error:
            row.failures["call"] = f"{type(error).__name__}: {error}"
        job = None  # type: ignore[assignment]  # the memory is free before the next call
        cupy.get_default_memory_pool().free_all_blocks()
        if self.torch:
            self.torch.free()
        return row

    def _measure(self, job: Job, row: Row) -> None:
        expected = job.explained()
        row.chosen = expected.kernel
        row.expected, row.limit = expected.expected_ms, expected.limit_ms
        calls: dict[str, Call] = {}
        kernels = choice.KERNELS if self.all_kernels else ()
        for kernel in dict.fromkeys((row.chosen, *kernels)):
            with forced(AUTO if kernel == row.chosen else kernel):
                if job.kernel() != kernel:
                    continue
                try:
                    job.checked()
                except Exception as error:
                    row.failures[kernel] = f"{type(error).__name__}: {error}"
                else:
                    calls[kernel] = on_kernel(AUTO if kernel == row.chosen else kernel, job.call)
        if self.torch:
            calls["cudnn"] = self.torch.contenders(job, False)[peers.EAGER]()
            calls["cudnn"]()  # lets cuDNN search
        times = self._times(calls)
        row.cudnn = times.pop("cudnn", None)
        row.ours = times

    def _times(self, calls: Mapping[str, Call]) -> dict[str, float]:
        # In a first round Python may take longer than the flush, which hides a call's launch.
        rounds = self.watch.alternate(list(calls.values()), 2)
        times = {name: own[1] for name, own in zip(calls, rounds, strict=True)}
        most = _SLOW * min(times.values())
        fast = [name for name in calls if times[name] <= most]
        more = self.watch.alternate_within([calls[name] for name in fast], _SECONDS)
        return times | {name: median(own) for name, own in zip(fast, more, strict=True)}


# Figures --------------------------------------------------------------------------------------


def show(rows: Sequence[Row]) -> None:
    """Print the figures of each precision, and of each class of its calls."""
    for precision in dict.fromkeys(row.precision for row in rows):
        own = [r for r in rows if r.precision == precision and r.chosen in r.ours]
        print(f"\n{precision}")
        heads = "class calls regret 99% worst ratio <1 <0.5 within_1.5 within_3".split()
        lines = [_figures(name, some) for name, some in _classes(own)]
        print(table([heads, *lines], markdown=False, left=1))
        below = [r.case for r in own if r.limit > r.ours[r.chosen]]
        if below:
            print("faster than their limits:", *below, sep="\n")


def _figures(name: str, rows: Sequence[Row]) -> list[str]:
    regrets = sorted(row.regret for row in rows if row.ours[row.chosen] > SHORT_MS)
    ratios = [row.ratio for row in rows if row.ratio is not None]
    off = [max(r.expected / r.ours[r.chosen], r.ours[r.chosen] / r.expected) for r in rows]
    figures = [name, str(len(rows))]
    if regrets:
        mean, high = sum(regrets) / len(regrets), regrets[int(0.99 * (len(regrets) - 1))]
        figures += [f"{mean:.2f}", f"{high:.2f}", f"{regrets[-1]:.1f}"]
    else:
        figures += ["-"] * 3
    if ratios:
        figures += [f"{geometric_mean(ratios):.2f}"]
        figures += [_share(ratio < least for ratio in ratios) for least in (1, 0.5)]
    else:
        figures += ["-"] * 3
    return figures + [_share(factor <= most for factor in off) for most in (1.5, 3)]


def _share(found: Iterable[bool]) -> str:
    values = list(found)
    return f"{100 * sum(values) / len(values):.0f}%"


def _classes(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the classes that have calls, all calls first."""
    yield "all", list(rows)
    cases = [mine.parse(row.case, "") for row in rows]
    for name, has in CLASSES.items():
        found = [row for row, case in zip(rows, cases, strict=True) if has(case)]  # type: ignore[arg-type]
        if found:
            yield name, found


def _between(low: float, high: float) -> Callable[[Convolution], bool]:
    return lambda case: low <= case.operations / 2 < high


CLASSES: dict[str, Callable[[Convolution], bool]] = {
    "1-d": lambda case: case.rank == 1,
    "2-d": lambda case: case.rank == 2,
    "3-d": lambda case: case.rank == 3,
    "standard": lambda case: not case.transposed,
    "transposed": lambda case: case.transposed,
    "dense": lambda case: case.groups == 1,
    "depthwise": lambda case: case.kind == "depthwise",
    "grouped": lambda case: case.kind == "grouped",
    "few channels in": lambda case: case.kind != "depthwise" and case.channels <= 4,
    "few channels out": lambda case: case.kind != "depthwise" and case.rows <= 4,
    "large kernel": lambda case: max(case.weight[2:]) >= (10 if case.rank > 1 else 30),
    "dilated": lambda case: max(case.dilation) > 1,
    "strided": lambda case: max(case.stride) > 1,
    "below 1e8": _between(0, 1e8),
    "below 1e9": _between(1e8, 1e9),
    "below 1e10": _between(1e9, 1e10),
    "above 1e10": _between(1e10, 1e13),
}
