"""A volume on several GPUs: ``python -m benchmarks.cluster``, on a machine with two of them.

A cluster of Dask has one worker process for each GPU. A volume of integers in float32, in slabs
along its first axis, is made on the workers, convolved by `cupyconv.dask.conv3d` and reduced to one
number for each slab. The volume is larger than a worker may hold: its memory pool has a limit.

The same is timed with one worker and with more, and once more with each slab convolved by itself,
without what its neighbours hold: the difference is what the halo costs. Sums of small integers are
exact, so that crops of the result must equal a direct convolution to the last bit.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.distributed import Client, Nanny, Scheduler, SpecCluster
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

import cupyconv
import cupyconv.dask

from .data import Array, uniform
from .run import gpu_name

GIB = 2**30
CROP = 12  # outputs of a crop along each axis
AHEAD = 3  # so many slabs a worker makes before it has reduced an earlier one
HERE = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """A volume, the kernel and the limits.

    Attributes
    ----------
    size : tuple of int
        Of the volume; the first axis is divided into slabs.
    slab : int
        Planes of a slab.
    channels, kernel : int
        Input and output channels, and taps along each axis.
    limit : float
        What a worker's memory pool may hold, in GiB; for GPUs alone.
    gpu : bool
        Whether chunks are CuPy arrays.
    seed : int
        Of the integers.
    """

    size: tuple[int, int, int]
    slab: int
    channels: int
    kernel: int
    limit: float
    gpu: bool
    seed: int

    @property
    def slabs(self) -> int:
        return -(-self.size[0] // self.slab)

    @property
    def bytes(self) -> int:
        """Of the volume; of the result as well."""
        return 4 * self.channels * math.prod(self.size)

    @property
    def halo_read(self) -> float:
        """Inputs that are read by a neighbour as well, over all inputs."""
        return (self.slabs - 1) * (self.kernel - 1) / self.size[0]

    @property
    def meta(self) -> Array:
        return integers(self, (0, 0, 0, 0), 0)

    @property
    def weight(self) -> Array:
        return integers(self, (self.channels, self.channels, *(self.kernel,) * 3), 0)


def integers(job: Job, shape: tuple[int, ...], number: int) -> Array:
    """Return integers from -4 to 4 in float32; `number` tells arrays of one job apart."""
    seed = job.seed * 2**16 + number
    if not job.gpu:
        return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)
    import cupy

    values = uniform(shape, np.float32, seed, -4.0, 5.0)
    return cupy.floor(values, out=values)


# Tasks -----------------------------------------------------------------------------------------


def make_slab(job: Job, number: int, *reduced: Array) -> Array:
    planes = min(job.slab, job.size[0] - number * job.slab)
    return integers(job, (job.channels, planes, *job.size[1:]), 1 + number)


def make_weight(job: Job, block_id: tuple[int, ...]) -> Array:
    return job.weight


def alone(slab: Array, job: Job) -> Array:
    return cupyconv.conv3d(slab, job.weight, padding="same")


def largest(block: Array) -> np.ndarray:
    return np.full((1, 1, 1, 1), float(abs(block).max()))


def on_host(block: Array) -> np.ndarray:
    return block if isinstance(block, np.ndarray) else block.get()


# Graphs ----------------------------------------------------------------------------------------


def orders(job: Job, workers: Sequence[str]) -> list[list[int]]:
    """Return the slabs of each worker, neighbours, in the order in which it makes them.

    Every second worker goes backwards, so that two that share a border come to it together.
    """
    share = -(-job.slabs // len(workers))
    shares = [list(range(i, min(i + share, job.slabs))) for i in range(0, job.slabs, share)]
    return [own[:: number % 2 * 2 - 1] for number, own in enumerate(shares)]


def slabs(job: Job, workers: Sequence[str], name: str, after: str | None) -> MaterializedLayer:
    """Return the tasks that make slabs, each on the worker that needs most of it.

    Each waits for an earlier block of `after`, where there is one. With nothing to wait for, all
    would be made before the first one is used, and a worker would hold more than it may. For the
    first one at a border, which waits for another worker, none does.
    """
    tasks, worker_of = {}, {}
    for worker, order in zip(workers, orders(job, workers), strict=False):
        for place, i in enumerate(order):
            earlier = [(after, 0, order[place - AHEAD], 0, 0)] if after and place > AHEAD else []
            tasks[name, 0, i, 0, 0] = (partial(make_slab, job), i, *earlier)
            worker_of[i] = worker
    return MaterializedLayer(tasks, {"workers": lambda key: [worker_of[key[2]]]})


def volume(job: Job, workers: Sequence[str], purpose: str) -> da.Array:
    name = f"slab-{tokenize(job, workers, purpose)}"
    graph = HighLevelGraph({name: slabs(job, workers, name, None)}, {name: set()})
    planes = tuple(min(job.slab, job.size[0] - z) for z in range(0, job.size[0], job.slab))
    chunks = ((job.channels,), planes, (job.size[1],), (job.size[2],))
    return da.Array(graph, name, chunks, meta=job.meta)


def weight(job: Job) -> da.Array:
    chunks = tuple((size,) for size in (job.channels, job.channels, *(job.kernel,) * 3))
    return da.map_blocks(make_weight, job, chunks=chunks, meta=job.meta[None])


def whole(job: Job, x: da.Array) -> da.Array:
    return cupyconv.dask.conv3d(x, weight(job), padding="same")


def in_parts(job: Job, x: da.Array) -> da.Array:
    """Return each slab's convolution without what its neighbours hold."""
    return x.map_blocks(alone, job, meta=job.meta)


def reduced(
    job: Job, workers: Sequence[str], convolve: Callable[[Job, da.Array], da.Array]
) -> da.Array:
    """Return a number for each block of a convolution, with few slabs made ahead."""
    x = volume(job, workers, convolve.__name__)
    y = convolve(job, x)
    chunks = tuple((1,) * blocks for blocks in y.numblocks)
    result = y.map_blocks(largest, chunks=chunks, dtype=np.float64, meta=np.empty((0,) * 4))
    layers = {**result.dask.layers, x.name: slabs(job, workers, x.name, result.name)}
    graph = HighLevelGraph(layers, result.dask.dependencies)
    return da.Array(graph, result.name, result.chunks, meta=result._meta)


# Checks ----------------------------------------------------------------------------------------


def crops(job: Job) -> Iterator[tuple[slice, ...]]:
    """Yield places to compare: the volume's corners, and around the border in its middle."""
    middle = job.slabs // 2 * job.slab
    starts = [0, max(min(middle - CROP // 2, job.size[0] - CROP), 0), max(job.size[0] - CROP, 0)]
    for start, end in zip(starts, (False, True, True), strict=True):
        others = [max(size - CROP, 0) if end else 0 for size in job.size[1:]]
        yield tuple(
            slice(low, min(low + CROP, size))
            for low, size in zip((start, *others), job.size, strict=True)
        )


def check(job: Job, x: da.Array, y: da.Array) -> int:
    """Compare crops of `y` with a direct convolution; return how many values were compared."""
    before, compared = (job.kernel - 1) // 2, 0
    after = job.kernel - 1 - before
    taps = on_host(job.weight)
    for crop in crops(job):
        low = [max(place.start - before, 0) for place in crop]
        high = [min(place.stop + after, size) for place, size in zip(crop, job.size, strict=True)]
        region = x[(slice(None), *map(slice, low, high))].map_blocks(
            on_host, meta=np.empty((0,) * 4)
        )
        padding = tuple(
            (before - (place.start - lo), after - (hi - place.stop))
            for place, lo, hi in zip(crop, low, high, strict=True)
        )
        expected = cupyconv.conv3d(region.compute(), taps, padding=padding)
        part = y[(slice(None), *crop)].map_blocks(on_host, meta=np.empty((0,) * 4))
        if not np.array_equal(part.compute(), expected):
            raise SystemExit(f"the result is wrong in {crop}")
        compared += expected.size
    return compared


# Runs ------------------------------------------------------------------------------------------


def set_up(limit: int) -> None:
    """Limit the memory pool of a worker, and let CuPy arrays travel through the host's memory."""
    import cupy
    from distributed.protocol import dask_deserialize, dask_serialize
    from distributed.protocol.numpy import deserialize_numpy_ndarray, serialize_numpy_ndarray

    cupy.get_default_memory_pool().set_limit(size=limit)
    dask_serialize.register(cupy.ndarray, lambda x: serialize_numpy_ndarray(cupy.asnumpy(x)))
    dask_deserialize.register(
        cupy.ndarray, lambda header, frames: cupy.asarray(deserialize_numpy_ndarray(header, frames))
    )


def held() -> int:
    """Return the bytes of a worker's pool: the most that it has held."""
    import cupy

    return cupy.get_default_memory_pool().total_bytes()


@contextmanager
def cluster(job: Job, count: int) -> Iterator[Client]:
    """A cluster of `count` processes on this machine, each with a GPU of its own."""
    common = {"host": HERE, "dashboard_address": f"{HERE}:0"}
    workers = {
        number: {
            "cls": Nanny,
            "options": {
                "host": HERE,
                "nthreads": 1,
                "memory_limit": 0,  # of the host: none
                "silence_logs": logging.WARNING,
                "env": {"CUDA_VISIBLE_DEVICES": str(number)} if job.gpu else {},
            },
        }
        for number in range(count)
    }
    scheduler = {"cls": Scheduler, "options": common}
    processes = SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.WARNING)
    with processes, Client(processes) as client:
        client.wait_for_workers(count)
        if job.gpu:
            client.run(set_up, int(job.limit * GIB))
        yield client


def seconds(array: da.Array, repeats: int) -> list[float]:
    """Return the times of `repeats` computations, after one that compiles the kernels."""
    array.compute()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        array.compute()
        times.append(time.perf_counter() - start)
    return times


def measure(job: Job, count: int, repeats: int) -> dict[str, Any]:
    """Return times, crops compared and memory of a run with so many workers."""
    # The scheduler, in this process, would fuse tasks and lose where slabs are to be made.
    with cluster(job, count) as client, dask.config.set({"optimization.fuse.active": False}):
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        x = volume(job, workers, "check")
        return {
            "workers": count,
            "compared": check(job, x, whole(job, x)),
            "seconds": seconds(reduced(job, workers, whole), repeats),
            "seconds_without_halo": seconds(reduced(job, workers, in_parts), repeats),
            "pool_bytes": sorted(client.run(held).values()) if job.gpu else None,
        }


def report(job: Job, counts: Sequence[int], repeats: int) -> dict[str, Any]:
    """Return all numbers: for each run its times, its speed-up over the first, the halo's share."""
    runs = [measure(job, count, repeats) for count in counts]
    for run in runs:
        time_of = {key: statistics.median(run[key]) for key in ("seconds", "seconds_without_halo")}
        run["speed_up"] = statistics.median(runs[0]["seconds"]) / time_of["seconds"]
        run["halo_time"] = 1 - time_of["seconds_without_halo"] / time_of["seconds"]
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "gpu": gpu_name() if job.gpu else None,
        "job": asdict(job),
        "volume_bytes": job.bytes,
        "limit_bytes": int(job.limit * GIB) if job.gpu else None,
        "halo_read": job.halo_read,
        "versions": {"dask": dask.__version__, "numpy": np.__version__},
        "runs": runs,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers; default: 1 2")
    add("--size", type=int, nargs=3, default=[1024, 1024, 1024], help="default: 1024 1024 1024")
    add("--slab", type=int, default=64, help="planes of a slab; default: 64")
    add("--channels", type=int, default=16, help="default: 16")
    add("--kernel", type=int, default=5, help="default: 5")
    add("--limit", type=float, default=40, help="GiB that a worker may hold; default: 40")
    add("--repeats", type=int, default=5, help="default: 5")
    add("--seed", type=int, default=1, help="of the volume; default: 1")
    add("--cpu", action="store_true", help="NumPy arrays, for a trial at a small size")
    add("--json", type=Path, metavar="FILE", help="write all numbers")
    options = parser.parse_args(arguments)
    job = Job(
        size=tuple(options.size),
        slab=options.slab,
        channels=options.channels,
        kernel=options.kernel,
        limit=options.limit,
        gpu=not options.cpu,
        seed=options.seed,
    )
    if max(options.workers) > job.slabs:
        parser.error(f"{job.slabs} slabs are too few for {max(options.workers)} workers")
    if job.gpu and job.bytes <= job.limit * GIB:
        parser.error(f"a volume of {job.bytes / GIB:.1f} GiB is not larger than the limit")
    command = shlex.join(["python", "-m", "benchmarks.cluster", *(arguments or sys.argv[1:])])
    result = {"command": command, **report(job, options.workers, options.repeats)}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(
        f"volume of {job.bytes / GIB:.1f} GiB in {job.slabs} slabs; {job.halo_read:.1%} read twice"
    )
    for run in result["runs"]:
        print(
            f"{run['workers']} workers: {statistics.median(run['seconds']):.3f} s, speed-up "
            f"{run['speed_up']:.2f}, halo {run['halo_time']:.1%} of the time, "
            f"{run['compared']} values compared"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
