"""Threads, and processes that were forked and spawned."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cupyconv
from backends import CupyBackend, NumpyBackend
from bounds import assert_same_bits
from cupyconv import _calls, _compile, _device, _precision
from cupyconv._kernels import choice
from cupyconv._kernels.launches import Instance, Launch, Processor
from strategies import FUSED, Case, convolution

THREADS = 8
ROUNDS = 8

CASES = [
    *(convolution("conv2d", (2, 4, 6, size), (6, 2, 3, 2), groups=2) for size in range(5, 11)),
    convolution("conv2d", (2, 32, 20, 21), (32, 32, 3, 3), bias=True, padding="same"),
    convolution("conv_transpose2d", (2, 32, 9, 10), (32, 24, 3, 3), stride=2, output_padding=1),
    convolution("conv1d", (2, 3, 50), (5, 3, 4), bias=True, dilation=3),
    convolution("depthwise_conv2d", (2, 3, 16, 17), (6, 1, 3, 3)),
    Case("batch_norm", {"input": np.arange(90.0).reshape(3, 5, 6)}, {}),
    Case("max_pool2d", {"input": np.arange(90.0).reshape(3, 5, 6)}, {"kernel_size": 2}),
    Case(
        FUSED,
        {
            "input": np.arange(256, dtype=np.float32).reshape(1, 4, 8, 8) % 7,
            "kernel": np.arange(144, dtype=np.float32).reshape(4, 4, 3, 3) % 5,
            **{
                f"{norm}_{part}": np.ones(4) for norm in ("bn", "gn") for part in ("weight", "bias")
            },
        },
        {"num_groups": 2},
    ),
]

BACKENDS = [
    pytest.param(NumpyBackend(), id="numpy"),
    pytest.param(CupyBackend(), id="cupy", marks=pytest.mark.gpu),
]


@contextmanager
def own_stream(backend: NumpyBackend) -> Iterator[None]:
    if backend.name == "numpy":
        yield
        return
    import cupy

    with cupy.cuda.Stream(non_blocking=True):
        yield


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads(backend: NumpyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread makes calls with arrays of its own, and gets what it would get alone."""
    cases = [
        [case.map(functools.partial(np.multiply, factor)) for case in CASES]
        for factor in range(1, THREADS + 1)
    ]
    expected = [[backend.compute(case) for case in own] for own in cases]
    monkeypatch.setattr(_calls, "kept", {})
    monkeypatch.setattr(_calls, "MOST", 4)  # kept calls are dropped time and again
    _compile.kernel.cache_clear()
    start = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        order = np.random.default_rng(thread)
        start.wait()
        with own_stream(backend):
            for index in itertools.chain(*(order.permutation(len(CASES)) for _ in range(ROUNDS))):
                assert_same_bits(backend.compute(cases[thread][index]), expected[thread][index])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
    finally:
        sys.setswitchinterval(interval)


def test_precision_is_a_thread_s_own() -> None:
    def inside(name: str, seen: threading.Barrier) -> str:
        with cupyconv.precision(name):
            seen.wait()  # now both are inside of their blocks
            return _precision.current()

    with ThreadPoolExecutor(2) as pool, cupyconv.precision("tf32"):
        assert pool.submit(_precision.current).result() == "float32"
        names = ["tf32", "float32"]
        assert list(pool.map(inside, names, [threading.Barrier(2)] * 2)) == names
        assert _precision.current() == "tf32"


# A parent calls the library and starts children, which call it with the same arrays.
SCRIPT = """
import importlib
import multiprocessing
import sys

import numpy

import cupyconv


def call(module):
    arrays = importlib.import_module(module)
    x = arrays.asarray(numpy.arange(2 * 16 * 40 * 41, dtype="float32").reshape(2, 16, 40, 41) % 5)
    w = arrays.asarray(numpy.arange(16 * 16 * 9, dtype="float32").reshape(16, 16, 3, 3) % 7)
    results = cupyconv.conv2d(x, w, padding=1), cupyconv.batch_norm(x), cupyconv.max_pool2d(x, 2)
    return [getattr(a, "get", lambda a=a: a)().tobytes() for a in results]


if __name__ == "__main__":
    method, parent, child = sys.argv[1:]
    own = call(parent)
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = pool.map(call, [child] * 3)
    if child == parent:
        assert all(result == own for result in results)
    else:
        assert all(result == call(child) for result in results)
    print("done")
"""


def run_script(tmp_path: Path, *arguments: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(cupyconv.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes(method: str, tmp_path: Path) -> None:
    run_script(tmp_path, method, "numpy", "numpy")


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_on_a_gpu(method: str, tmp_path: Path) -> None:
    run_script(tmp_path, method, "cupy", "cupy")


@pytest.mark.gpu
def test_forked_process_of_a_parent_that_uses_a_gpu(tmp_path: Path) -> None:
    """CUDA itself does not survive a fork; NumPy arrays are as good as ever."""
    run_script(tmp_path, "fork", "cupy", "numpy")


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Instance], object]], None]:
    """Loads the kernels of three launches, with a function in the place of the compiler."""
    device = _device.CupyDevice.__new__(_device.CupyDevice)
    device._runtime = SimpleNamespace(getDevice=lambda: 0, setDevice=lambda device: None)
    launches = [Launch(instance, 1, 32) for instance in choice.instances("sm_90a")[:3]]
    monkeypatch.setattr(_device, "processor_of", lambda device: Processor("sm_90a", 132))
    monkeypatch.setattr(_device, "_functions", {})

    def load(compile: Callable[[Instance], object]) -> None:
        def kernel(instance: Instance) -> SimpleNamespace:
            compile(instance)
            return SimpleNamespace(shared_size_bytes=0, kernel=instance)

        monkeypatch.setattr(_compile, "kernel", kernel)
        device.load((*launches, launches[0]))

    return load


def test_kernels_of_a_call_compile_at_the_same_time(
    loading: Callable[[Callable[[Instance], object]], None],
) -> None:
    threads, all_at_once = threading.active_count(), threading.Barrier(3)
    loading(lambda instance: bool(all_at_once.wait(timeout=10)))
    assert threading.active_count() == threads
    loading(lambda instance: pytest.fail("it is loaded"))


def test_errors_of_kernels_that_compile_at_the_same_time(
    loading: Callable[[Callable[[Instance], object]], None],
) -> None:
    """The first launch's error is raised, though others end before it."""
    threads, second_failed = threading.active_count(), threading.Event()
    first, second, _ = choice.instances("sm_90a")[:3]

    def compile(instance: Instance) -> None:
        if instance == first:
            assert second_failed.wait(timeout=10)
        elif instance == second:
            second_failed.set()
        else:
            return
        raise RuntimeError(str(instance))

    with pytest.raises(RuntimeError) as error:
        loading(compile)
    assert str(error.value) == str(first)
    assert threading.active_count() == threads
