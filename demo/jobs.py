"""What the demo does with each operation: call it, time it, compare it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .backend import Array, Backend


@dataclass(frozen=True)
class Job:
    """One call of the library, its inputs on the host, and a judge of its result."""

    name: str
    arrays: tuple[np.ndarray, ...]
    call: Callable[..., Array]
    error: Callable[[np.ndarray], float]


@dataclass(frozen=True)
class Report:
    """A line of the table."""

    name: str
    shapes: str
    backend: str
    dtype: str
    milliseconds: float
    error: float


def run(job: Job, backend: Backend) -> tuple[Report, np.ndarray]:
    arrays = [backend.to_device(array) for array in job.arrays]
    result = backend.to_host(job.call(*arrays))
    report = Report(
        name=job.name,
        shapes=f"{_shape(job.arrays[0])} * {_shape(job.arrays[1])} -> {_shape(result)}",
        backend=backend.name,
        dtype=result.dtype.name,
        milliseconds=backend.milliseconds(lambda: job.call(*arrays)),
        error=job.error(result),
    )
    return report, result


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def table(reports: list[Report]) -> str:
    head = ("operation", "input * weight -> output", "backend", "dtype", "ms", "error")
    rows = [head]
    for r in reports:
        figures = f"{r.milliseconds:.3f}", f"{r.error:.1e}"
        first, *more = r.name.splitlines()
        rows.append((first, r.shapes, r.backend, r.dtype, *figures))
        rows += [(line, "", "", "", "", "") for line in more]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    justify = (str.ljust,) * 4 + (str.rjust,) * 2
    return "\n".join(
        "  ".join(j(cell, w) for j, cell, w in zip(justify, row, widths, strict=True)).rstrip()
        for row in rows
    )


def _shape(array: np.ndarray) -> str:
    return "×".join(map(str, array.shape))
