"""What the demo does with each operation: call it, time it, compare it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .backend import Array, Backend


@dataclass(frozen=True)
class Job:
    """One call of the library, its inputs on the host, and a judge of its result.

    Attributes
    ----------
    name : str
        What people know it by; the lines below it say which function computes it.
    peer : callable
        The same work without the library, on the same arrays: SciPy's or cupyx's function, or as
        many of its calls as one of ``parts`` output channels takes.
    """

    name: str
    arrays: tuple[np.ndarray, ...]
    call: Callable[..., Array]
    error: Callable[[np.ndarray], float]
    peer: Callable[..., Array]
    parts: int = 1


@dataclass(frozen=True)
class Report:
    """A line of the table."""

    name: str
    shapes: str
    dtype: str
    milliseconds: float
    peer: float
    error: float


def run(job: Job, backend: Backend) -> tuple[Report, np.ndarray]:
    arrays = [backend.to_device(array) for array in job.arrays]
    result = backend.to_host(job.call(*arrays))
    report = Report(
        name=job.name,
        shapes=f"{_shape(job.arrays[0])} * {_shape(job.arrays[1])} -> {_shape(result)}",
        dtype=result.dtype.name,
        milliseconds=backend.milliseconds(lambda: job.call(*arrays)),
        peer=job.parts * backend.milliseconds(lambda: job.peer(*arrays)),
        error=job.error(result),
    )
    return report, result


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def table(reports: list[Report], peer: str) -> str:
    head = ("what it is", "input * weight -> output", "dtype", "ms", f"{peer}, ms", "×", "error")
    rows = [head]
    for r in reports:
        times = f"{r.milliseconds:.3f}", f"{r.peer:.3f}", f"{r.peer / r.milliseconds:.1f}"
        first, *more = r.name.splitlines()
        rows.append((first, r.shapes, r.dtype, *times, f"{r.error:.1e}"))
        rows += [(f"  {line}", *("",) * 6) for line in more]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    justify = (str.ljust,) * 3 + (str.rjust,) * 4
    return "\n".join(
        "  ".join(j(cell, w) for j, cell, w in zip(justify, row, widths, strict=True)).rstrip()
        for row in rows
    )


def _shape(array: np.ndarray) -> str:
    return "×".join(map(str, array.shape))
