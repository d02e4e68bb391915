"""Verdicts on generated mutants, each found in a process of its own.

``python tests/judging.py --workers 8`` judges all of them and prints a line for each: the verdict,
the suite, the seconds it took, the call that decided and the mutant's name. ``--suite`` selects
suites, and ``--share I/N`` every N-th mutant from the I-th on. Seconds are of CPU time, which the
compiler takes most of.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path[:0] = [str(here.parent), str(here), str(here / "kernels")]

import mutants
from backends import EmulatorBackend, without_bulk_copies
from emulator.device import BuildError, runtime
from mutants import Call, Suite
from mutations import Mutation, chosen, mutations
from planning import EmulatedTiles

MODULES = sorted(module.name for module in pkgutil.iter_modules(mutants.__path__))
SUITES: list[Suite] = [importlib.import_module(f"mutants.{name}").SUITE for name in MODULES]
SECONDS = 30  # of CPU time that one call may take, many times what the longest takes

REJECTED, SURVIVES, UNCOMPILED = "rejected", "survives", "does not compile"


class Verdict(NamedTuple):
    kind: str
    call: str  # that decided
    message: str


# The call that rejected the last mutant of a suite comes first: neighbours have much in common.
last: dict[str, Call] = {}


def judge(suite: Suite, patches: dict[str, str], calls: Iterable[Call] | None = None) -> Verdict:
    """Run a suite's calls on a patched kernel, in a child process, until one of them rejects it.

    A mutant may loop, or crash; then the process ends by a signal, which is a rejection.
    """
    calls = suite.calls() if calls is None else calls
    calls = sorted(calls, key=lambda call: call != last.get(suite.name))
    runtime()  # once for all child processes
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # NumPy's BLAS may have threads; the child process does not use them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w", buffering=1) as stream:  # by lines, as it may end at once
            try:
                stream.writelines(f"{json.dumps(line)}\n" for line in run(suite, calls, patches))
            except BaseException:
                stream.write(json.dumps(["error", 0, traceback.format_exc()]) + "\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        lines = [json.loads(line) for line in stream if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    kind, number, message = lines[-1]
    if os.WIFSIGNALED(status):
        kind, message = REJECTED, f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    if kind == "error":
        raise RuntimeError(message)
    if kind == REJECTED:
        last[suite.name] = calls[number]
    return Verdict(kind, str(calls[number]), message)


def run(suite: Suite, calls: list[Call], patches: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """Yield the state before each call, and the verdict in the end.

    An instance may not compile; another one may, and be rejected.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    state, message = SURVIVES, ""
    for number, call in enumerate(calls):
        yield "under way", number, ""
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, most))
        with without_bulk_copies() if call.chunks else nullcontext():
            try:
                found = suite.verdict(EmulatorBackend(call.kernel, patches), call.case)
            except BuildError as error:
                state, message = UNCOMPILED, str(error)
                continue
        if found is not None:
            yield REJECTED, number, found
            return
    yield state, len(calls) - 1, message


@lru_cache(maxsize=1)
def survivors() -> dict[str, str]:
    """Mutants that nothing rejects, by name, and why.

    In the table a reason stands before the names, which are indented.
    """
    reasons, reason = {}, ""
    table = Path(mutants.__file__).with_name("survivors.txt")
    for line in table.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            reasons[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line
    return reasons


def offered(suite: Suite) -> list[Mutation]:
    """All mutations of the files of a suite."""
    return [
        mutation
        for kernel in suite.sources()
        for mutation in mutations(kernel)
        if mutation.file_changed in suite.files
    ]


def picks(suite: Suite) -> list[Mutation]:
    """Those that are run."""
    return chosen(offered(suite), suite.most)


def cpu_time() -> float:
    """Return the CPU seconds of all child processes, compilers among them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


jobs: list[tuple[Suite, Mutation]] = []  # of the command, as its processes see them


def report(number: int) -> str:
    """The line of one mutant."""
    suite, mutation = jobs[number]
    start = cpu_time()
    verdict = judge(suite, mutation.patch())
    seconds = cpu_time() - start
    message = verdict.message.replace("\n", " ")[:160]
    fields = verdict.kind, suite.name, f"{seconds:.1f}", verdict.call, mutation.name, message
    return "\t".join(fields)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--suite", nargs="*", default=[suite.name for suite in SUITES])
    parser.add_argument("--share", default="0/1")
    options = parser.parse_args()
    share, shares = map(int, options.share.split("/"))
    chosen_suites = [suite for suite in SUITES if suite.name in options.suite]
    jobs.extend([(suite, mutation) for suite in chosen_suites for mutation in picks(suite)])
    EmulatedTiles().use(emulated=True)  # as for all tests on the emulator
    runtime()  # once for all processes
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        for line in pool.imap_unordered(report, range(len(jobs))[share::shares]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
