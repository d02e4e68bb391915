"""Times: by CUDA events for what the GPU does, by the wall clock for what a call costs Python."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Call = Callable[[], Any]

MIN_REPEATS = 5
MAX_REPEATS = 100


def repeats_within(seconds: float, round_ms: float) -> int:
    """Return how many rounds fit into `seconds`, but at least `MIN_REPEATS`."""
    return max(MIN_REPEATS, min(MAX_REPEATS, int(1e3 * seconds / max(round_ms, 1e-6))))


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, method="inclusive")
    return first, third


def geometric_mean(values: Iterable[float]) -> float | None:
    logarithms = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logarithms)) if logarithms else None


class Stopwatch:
    """Times calls on the current stream of the current GPU.

    Before each timed call a buffer several times as large as the L2 cache is written. So the call
    finds none of its data there, but other data that is still to be written back, as its own will
    be after its end. The writing also takes longer than launching a call, so that the call never
    waits for Python, and its time is the GPU's.
    """

    def __init__(self) -> None:
        import cupy

        self._cuda = cupy.cuda
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self._buffer = cupy.empty(8 * max(properties["l2CacheSize"], 2**22), cupy.uint8)

    def _flush(self) -> None:
        self._buffer.data.memset_async(0, self._buffer.nbytes)

    def alternate(self, calls: Sequence[Call], repeats: int) -> list[list[float]]:
        """Run the calls in turn, `repeats` times, and return the milliseconds of each."""
        spans: list[list[tuple[Any, Any]]] = [[] for _ in calls]
        for _ in range(repeats):
            for call, own in zip(calls, spans, strict=True):
                start, end = self._cuda.Event(), self._cuda.Event()
                self._flush()
                start.record()
                call()
                end.record()
                own.append((start, end))
        self.synchronize()
        elapsed = self._cuda.get_elapsed_time
        return [[elapsed(*span) for span in own] for own in spans]

    def alternate_within(self, calls: Sequence[Call], seconds: float) -> list[list[float]]:
        """Run the calls in turn as often as fits into `seconds`, after one round not counted."""
        start = time.perf_counter()
        self.alternate(calls, 1)
        round_ms = 1e3 * (time.perf_counter() - start)
        return self.alternate(calls, repeats_within(seconds, round_ms))

    def synchronize(self) -> None:
        self._cuda.get_current_stream().synchronize()


def host_microseconds(
    calls: Sequence[Call], synchronize: Call, blocks: int = 25, calls_a_block: int = 200
) -> list[float]:
    """Return the wall time of each call: the median over blocks that alternate, each of many calls
    that do not wait for the GPU. The first block of each is not counted.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(blocks + 1):
        for call, own in zip(calls, times, strict=True):
            synchronize()
            start = time.perf_counter()
            for _ in range(calls_a_block):
                call()
            own.append(1e6 * (time.perf_counter() - start) / calls_a_block)
    synchronize()
    return [median(own[1:]) for own in times]
