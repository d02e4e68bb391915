"""Random calls on a GPU for a given time, each checked in float64 and by the library's promises.

::

    PYTHONPATH=.:tests python tests/fuzz.py --seed 1 --seconds 400
    PYTHONPATH=.:tests python tests/fuzz.py --seed 1 --seconds 400 --divided
    PYTHONPATH=.:tests python tests/fuzz.py --seed 1 --replay 4711

With ``--divided`` calls run in parts, as calls on large arrays do.

All kernel instances are compiled in parallel first. Then the worker processes share the numbers
from 0 on: `fuzz_cases` draws an example from the seed and a number, `fuzz_checks` runs it. Each
failure is printed with what was drawn and with the number that replays it. A worker that hangs or
dies is reported with its number and replaced, since a process cannot use its GPU any more after an
illegal access. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import fuzz_cases
import fuzz_checks
from cupyconv import _chunks, _compile, _device, _fft
from cupyconv._kernels import (
    choice,
    im2col_conv,
    matrix_blocks,
    max_pool2d,
    relayed,
    row_blocks,
)
from cupyconv._kernels.launches import Instance
from fuzz_sizes import BUDGETS

HANGS = 90.0  # seconds that an example may take
REPORT = 1.0  # seconds between a worker's counts
PROGRESS = 30.0  # seconds between lines of progress


@dataclass(frozen=True)
class Task:
    """The numbers of one worker: from `first` on, in steps, until the deadline."""

    backend: str
    seed: int
    first: int
    step: int
    deadline: float  # of time.time()
    divided: bool = False


def divide() -> None:
    """Let this process's small calls run as large ones do.

    Arrays whose channels lie innermost are copied, in chunks of samples; large weights are packed
    for a block of output channels at a time; a multiprocessor has several blocks of a strided
    transposed convolution in turn; samples are pooled or transformed a few at a time.
    """
    relayed.LEAST_BYTES, relayed.LEAST_WIDTH = 1, 16
    _chunks._CHUNK_BYTES = 2**14
    row_blocks.most_workspace = im2col_conv.most_workspace = lambda question: 2**18
    matrix_blocks._TURN_BYTES, matrix_blocks._KEPT_BYTES = 2**14, 2**15
    max_pool2d._MOST_BETWEEN, _fft._SPARE_BYTES = 2**14, 2**18


def describe(seed: int, number: int, example: Any, launches: Sequence[Any], error: str) -> str:
    """All that reproduces a failure, as one line of JSON, and what went wrong."""
    record = {
        "seed": seed,
        "number": number,
        "calls": [repr(case) for case in example.cases] if example else None,
        "forced": example.kernels if example else None,
        "layouts": example.layouts if example else None,
        "launches": list(dict.fromkeys(map(str, launches))),
    }
    return f"{json.dumps(record)}\n{error}"


def run(backend: str, seed: int, number: int, checker: Any) -> str | None:
    """Run one example; return what is wrong with it, if anything is."""
    drawn = None
    try:
        drawn = fuzz_cases.example(seed, number, BUDGETS[backend])
        checker.run(drawn, number)
    except Exception:
        return describe(seed, number, drawn, checker.launches, traceback.format_exc(limit=-4))
    return None


def work(task: Task, state: Any, parent: Connection) -> None:
    """Run a worker's examples; tell the parent of failures and, each second, what was counted."""
    if task.divided:
        divide()
    checker = fuzz_checks.Checker(task.backend)
    number, examples, told = task.first, 0, time.time()
    while time.time() < task.deadline:
        state[0], state[1] = number, time.time()
        error = run(task.backend, task.seed, number, checker)
        examples += 1
        if error is not None:
            parent.send(("failed", number, error))
            if not _usable(task.backend):
                os._exit(3)
        if time.time() - told > REPORT:
            parent.send(("counts", examples, dict(checker.calls), dict(checker.seen)))
            examples, told = 0, time.time()
            checker.calls.clear()
            checker.seen.clear()
        number += task.step
    parent.send(("counts", examples, dict(checker.calls), dict(checker.seen)))
    parent.send(("done",))


def _usable(backend: str) -> bool:
    """Whether the process can go on: no sticky error of its GPU."""
    if backend != "cupy":
        return True
    import cupy

    try:
        cupy.cuda.Device().synchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return False
    return True


# The parent ----------------------------------------------------------------------------------


@dataclass
class Summary:
    """What all workers counted and found."""

    examples: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        self.failures.append(text)
        print(f"FAILED {text}", flush=True)


class Worker:
    """A process, where it is, and what it sends."""

    def __init__(self, work: Callable[..., None], task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.work, self.task, self.done = work, task, False
        self.state = context.Array("d", [task.first, time.time()], lock=False)
        self.connection, child = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(task, self.state, child), daemon=True)
        self.process.start()
        child.close()

    @property
    def number(self) -> int:
        return int(self.state[0])

    def hangs(self, limit: float) -> bool:
        return time.time() - self.state[1] > limit

    def described(self, error: str) -> str:
        """What the worker was at, and what became of it."""
        t = self.task
        drawn = fuzz_cases.example(t.seed, self.number, BUDGETS[t.backend])
        return describe(t.seed, self.number, drawn, (), error)

    def successor(self) -> Worker:
        """The worker that goes on with the next number."""
        return Worker(self.work, replace(self.task, first=self.number + self.task.step))


def supervise(
    tasks: Sequence[Task], work: Callable[..., None] = work, limit: float = HANGS
) -> Summary:
    """Run the tasks, each in a process of its own, and replace workers that hang or die."""
    summary = Summary()
    workers = [Worker(work, task) for task in tasks]
    told = time.time()
    while workers:
        if time.time() - told > PROGRESS:
            told = time.time()
            calls = sum(summary.calls.values())
            print(f"{calls} calls, {len(summary.failures)} failures", flush=True)
        wait([w.connection for w in workers] + [w.process.sentinel for w in workers], timeout=0.5)
        for worker in list(workers):
            failed = _receive(worker, summary)
            ended = not worker.process.is_alive()
            if ended:
                failed |= _receive(worker, summary)
            hangs = not ended and worker.hangs(limit)
            if not ended and not hangs:
                continue
            if hangs:
                summary.fail(worker.described(f"it hangs: no end after {limit} s"))
                worker.process.kill()
            elif not worker.done and not failed:
                code = worker.process.exitcode
                summary.fail(worker.described(f"it ended its process with exit code {code}"))
            worker.process.join()
            workers.remove(worker)
            if not worker.done and time.time() < worker.task.deadline:
                workers.append(worker.successor())
    return summary


def _receive(worker: Worker, summary: Summary) -> bool:
    """Take what a worker has sent; return whether it failed at the number where it is."""
    failed = False
    try:
        while worker.connection.poll():
            kind, *rest = worker.connection.recv()
            if kind == "failed":
                summary.fail(rest[1])
                failed = rest[0] == worker.number
            elif kind == "counts":
                summary.examples += rest[0]
                summary.calls.update(rest[1])
                summary.launches.update(rest[2])
            else:
                worker.done = True
    except EOFError:
        pass
    return failed


def _instances() -> tuple[Instance, ...]:
    """Return the instances that calls on this GPU may ask for, forced kernels among them."""
    target = _device.CupyDevice().processor().target
    forced = choice.instances("sm_80") if target == "sm_90a" else ()
    return tuple(dict.fromkeys((*choice.instances(target), *forced)))


def _compile_some(numbers: Sequence[int]) -> None:
    """Compile some of the instances; CuPy keeps the binaries on disk."""
    instances = _instances()
    for number in numbers:
        _compile.kernel(instances[number]).compile()


def compile_all(processes: int) -> int:
    """Compile all instances of the GPU in parallel; return how many there are."""
    count = len(_instances())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        shares = [range(i, count, 4 * processes) for i in range(4 * processes)]
        list(pool.map(_compile_some, shares))
    return count


def show(summary: Summary, seconds: float) -> None:
    calls = sum(summary.calls.values())
    print(f"{summary.examples} examples, {calls} calls in {seconds:.0f} s", end="")
    print(f" ({calls / max(seconds, 1e-9):.0f} calls a second)")
    for title, counts in (("calls", summary.calls), ("launches", summary.launches)):
        print(f"{title}:")
        for name, count in sorted(counts.items()):
            print(f"  {count:9d} {name}")
    print(f"{len(summary.failures)} failures")


def replay(backend: str, seed: int, numbers: Sequence[int]) -> int:
    """Run single numbers in this process, and say what they are."""
    checker = fuzz_checks.Checker(backend)
    failed = 0
    for number in numbers:
        drawn = fuzz_cases.example(seed, number, BUDGETS[backend])
        error = run(backend, seed, number, checker)
        failed += error is not None
        print(error or describe(seed, number, drawn, checker.launches, "right"), flush=True)
    return min(failed, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seed", type=int, required=True)
    add("--seconds", type=float, default=60)
    add("--share", default="0/1", metavar="I/N", help="the numbers I, I + N, ... alone")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 3))
    add("--backend", choices=list(BUDGETS), default="cupy")
    add("--divided", action="store_true", help="calls run in parts, as on large arrays")
    add("--replay", type=int, nargs="+", metavar="NUMBER", help="run these numbers alone")
    options = parser.parse_args(arguments)
    if options.replay:
        if options.divided:
            divide()
        return replay(options.backend, options.seed, options.replay)
    if options.backend == "cupy":
        begun = time.time()
        count = compile_all(os.cpu_count() or 2)
        print(f"compiled {count} instances in {time.time() - begun:.0f} s", flush=True)
    part, parts = map(int, options.share.split("/"))
    step, begun = parts * options.workers, time.time()
    end, divided = begun + options.seconds, options.divided
    tasks = [
        Task(options.backend, options.seed, part + parts * w, step, end, divided)
        for w in range(options.workers)
    ]
    summary = supervise(tasks)
    show(summary, time.time() - begun)
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
