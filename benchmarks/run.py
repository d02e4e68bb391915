"""A run of the benchmark on the current GPU."""

from __future__ import annotations

import gc
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any

import numpy as np

import cupyconv

from . import jobs, limits, peers, reference
from .cases import SMALL, Case
from .jobs import Job
from .limits import Ceilings
from .precisions import PRECISIONS, Precision
from .report import AUTO, HostRow, Report, Row, Timing
from .timing import Call, Stopwatch, host_microseconds, median, quartiles


@dataclass(frozen=True)
class Options:
    """How a run is made.

    Attributes
    ----------
    seconds : float
        Time for the repeats of a case.
    repeats : int or None
        A fixed number of them.
    peer, compiled : bool
        Whether PyTorch runs beside us where it is installed, and torch.compile too.
    positive : bool
        Whether inputs and weights are positive.
    channels_last : bool
        Whether our arrays have their channels innermost.
    kernel : str
        The kernel that dense convolutions are forced to run on, or ``"auto"``.
    beside : sequence of str
        Kernels that our calls are timed on as well.
    """

    seed: int
    seconds: float = 0.5
    repeats: int | None = None
    peer: bool = True
    compiled: bool = False
    positive: bool = False
    channels_last: bool = False
    kernel: str = AUTO
    beside: Sequence[str] = ()

    @property
    def low(self) -> float:
        """The lower end of inputs and weights."""
        return 0.0 if self.positive else -1.0


def missing() -> str | None:
    """Return what a run lacks on this machine."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed; the benchmark needs it, and an NVIDIA GPU"
    return None if cupy.cuda.is_available() else "there is no NVIDIA GPU here that CuPy can use"


def forced(kernel: str) -> AbstractContextManager[None]:
    """Return what makes our dense convolutions run on a kernel while it is entered."""
    if kernel == AUTO:
        return nullcontext()
    from cupyconv._kernels import choice

    return choice.forced(kernel)


def run(
    cases: Sequence[Case],
    precisions: Sequence[Precision],
    host: bool,
    options: Options,
    save: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Measure cases in precisions; `save` is called after each with what there is so far."""
    import cupy

    start = time.perf_counter()
    torch = peers.load()
    peer = torch if options.peer else None
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, torch.on(stream) if torch else nullcontext(), forced(options.kernel):
        stopwatch = Stopwatch()
        report = Report(
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            gpu=gpu_name(),
            seed=options.seed,
            data=f"uniform in [{options.low:g}, 1)"
            + (", channels last" if options.channels_last else ""),
            versions=versions() | (torch.versions if torch else {}),
            ceilings=limits.measure(stopwatch, options.seed, torch),
            kernel=options.kernel,
        )
        _free(torch)

        def one(case: Case, precision: Precision) -> None:
            report.rows.append(measure(case, precision, report.ceilings, stopwatch, peer, options))

        def small() -> None:
            report.host = small_calls(stopwatch, peer, options)

        tasks: list[tuple[str, Callable[[], None]]] = [
            (f"{case.id} {precision.name}", partial(one, case, precision))
            for precision in precisions
            for case in cases
        ]
        if host:
            tasks.append(("small calls", small))
        for task in _progress(tasks):
            task()
            report.seconds = round(time.perf_counter() - start, 1)
            save(report)
    return report


def measure(
    case: Case,
    precision: Precision,
    ceilings: Ceilings,
    stopwatch: Stopwatch,
    peer: peers.Torch | None,
    options: Options,
) -> Row:
    """Check a case, then time it beside its peers."""
    try:
        _free(peer)
        job = jobs.prepare(
            *(case, precision, options.seed, options.low), channels_last=options.channels_last
        )
        sample = job.checked()
        calls: dict[str, Call] = {}
        timings = {"ours": Timing(error=reference.relative_error(sample, job.exact.values))}
        _add_kernels(job, options.beside, calls, timings)
        calls["ours"] = job.call  # the last one to write `job.out`
        if peer is not None:
            _add_peers(peer, job, options.compiled, calls, timings)
        if options.repeats is None:
            times = stopwatch.alternate_within(list(calls.values()), options.seconds)
        else:
            times = stopwatch.alternate(list(calls.values()), options.repeats)
        job.check_again(sample)
        for name, own in zip(calls, times, strict=True):
            timings[name] = Timing(median(own), quartiles(own), timings[name].error)
        repeats = len(times[0])
    except Exception as error:
        timings, repeats = {"ours": Timing(failure=_reason(error))}, 0
    limit = limits.limit(case, precision, ceilings)
    plain = limits.plain_limit(case, precision, ceilings)
    return Row(
        section=case.section,
        id=case.id,
        precision=precision.name,
        shapes=str(case),
        operations=case.operations,
        nbytes=limits.nbytes(case, precision),
        limit_ms=limit.ms,
        limited_by=limit.by,
        plain_limit_ms=None if plain is None else plain.ms,
        repeats=repeats,
        ours=timings.pop("ours"),
        peers=timings,
    )


def _add_kernels(
    job: Job, kernels: Sequence[str], calls: dict[str, Call], timings: dict[str, Timing]
) -> None:
    """Check our call on each of these kernels, and add it to the calls where it is right."""
    for kernel in kernels:
        try:
            with forced(kernel):
                taker = job.kernel()
                if taker != kernel:
                    raise jobs.NotTimed(f"{taker} takes it")
                error = reference.relative_error(job.checked(), job.exact.values)
        except Exception as reason:
            timings[kernel] = Timing(failure=_reason(reason))
        else:
            calls[kernel], timings[kernel] = on_kernel(kernel, job.call), Timing(error=error)


def on_kernel(kernel: str, call: Call) -> Call:
    """Return a call that runs on a kernel where it can."""

    def forced_call() -> None:
        with forced(kernel):
            call()

    return forced_call


def _add_peers(
    peer: peers.Torch, job: Job, compiled: bool, calls: dict[str, Call], timings: dict[str, Timing]
) -> None:
    """Run each peer once, which lets cuDNN search, and add each that runs to the calls."""
    for name, ready in peer.contenders(job, compiled).items():
        try:
            call = ready()
            error = reference.relative_error(job.sample(peer.array(call())), job.exact.values)
            if not np.isfinite(error):
                raise ArithmeticError("the result is not finite")
        except Exception as reason:
            timings[name] = Timing(failure=_reason(reason))
        else:
            calls[name], timings[name] = call, Timing(error=error)


def small_calls(stopwatch: Stopwatch, peer: peers.Torch | None, options: Options) -> list[HostRow]:
    """Check small float32 calls, and time their call overhead beside the peer's."""
    rows = []
    for case in SMALL:
        text = f"{case.function}, float32, {case}"
        try:
            job = jobs.prepare(case, PRECISIONS["float32"], options.seed, options.low)
            job.checked()
            function = getattr(cupyconv, case.function)
            calls: list[Call] = [partial(function, job.arrays["input"], job.arrays["weight"])]
            if peer is not None:
                calls.append(peer.small_call(case.function, job.arrays))
            ours, *theirs = host_microseconds(calls, stopwatch.synchronize)
        except Exception as error:
            rows.append(HostRow(text, failure=_reason(error)))
        else:
            rows.append(HostRow(text, ours, theirs[0] if theirs else None))
    return rows


def about(command: str, torch: peers.Torch | None = None) -> dict[str, Any]:
    """Return what the record of a command begins with."""
    return {
        "command": command,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "gpu": gpu_name(),
        "versions": versions() | (torch.versions if torch else {}),
    }


def gpu_name() -> str:
    """Return the maker's name of the current GPU."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    name: str = properties["name"].decode()
    return name


def versions() -> dict[str, str]:
    """Return the versions of what is ours, CuPy's and CUDA's."""
    import cupy

    runtime = cupy.cuda.runtime
    return {
        "cupyconv": cupyconv.__version__,
        "CuPy": cupy.__version__,
        "NumPy": np.__version__,
        "Python": platform.python_version(),
        "CUDA runtime": _cuda_version(runtime.runtimeGetVersion()),
        "CUDA driver": _cuda_version(runtime.driverGetVersion()),
    }


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _reason(error: Exception) -> str:
    """Return an exception in one line."""
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, jobs.NotTimed) else f"{type(error).__name__}: {text}"[:200]


def _free(torch: peers.Torch | None) -> None:
    import cupy

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    if torch is not None:
        torch.free()


def _progress(tasks: Sequence[tuple[str, Callable[[], None]]]) -> Iterator[Callable[[], None]]:
    """Yield named tasks, with tqdm's bar on a terminal, else with a line for each."""
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if tqdm is not None and sys.stderr.isatty():
        with tqdm(tasks, unit="case") as bar:
            for name, task in bar:
                bar.set_postfix_str(name)
                yield task
    else:
        for number, (name, task) in enumerate(tasks, 1):
            print(f"[{number}/{len(tasks)}] {name}", file=sys.stderr, flush=True)
            yield task
