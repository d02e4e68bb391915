"""Launches by the driver itself: what it is handed, and where it has none that serves."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cupy import cuda

from cupyconv import _dependent_launch
from cupyconv._kernels import choice
from cupyconv._kernels.choice import plan_conv
from cupyconv._kernels.launches import Processor
from cupyconv._kernels.matrix_conv import MatrixPlan
from planning import conv, forget


def test_structures_are_those_of_the_driver() -> None:
    """The offsets of CUlaunchAttribute and CUlaunchConfig in cuda.h, with pointers of 8 bytes."""
    attribute, config = _dependent_launch._Attribute, _dependent_launch._Config
    assert (ctypes.sizeof(attribute), attribute.value.offset) == (72, 8)
    offsets = [getattr(config, name).offset for name, _ in config._fields_]
    assert offsets == [0, 12, 24, 32, 40, 48]
    assert ctypes.sizeof(config) == 56
    assert ctypes.sizeof(ctypes.c_void_p) == 8


def test_what_the_driver_is_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def start(config: Any, function: int, parameters: Any, extra: None) -> int:
        attribute = config.attributes[0]
        values = ctypes.cast(parameters._obj.value, ctypes.POINTER(ctypes.c_int64))
        calls.append((config.grid[:], config.block[:], config.shared, config.stream, config.count))
        calls.append((attribute.id, attribute.value, function, values[:3], extra))
        return 0

    monkeypatch.setattr(cuda, "get_current_stream", lambda: SimpleNamespace(ptr=77))
    run = _dependent_launch.launcher(start, SimpleNamespace(ptr=5), 132, 512, 4096)
    run(array("q", [3, -1, 2**40]))
    assert calls == [
        ([132, 1, 1], [512, 1, 1], 4096, 77, 1),
        (6, 1, 5, [3, -1, 2**40], None),
    ]


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The driver is looked for in the test, and again after it."""
    forget(_dependent_launch)
    yield
    forget(_dependent_launch)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("lacks", ["library", "function", "version", "nothing"])
def test_where_there_is_none(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver, or with an old one, CuPy's own launches do."""

    def library(name: str) -> Any:
        if lacks == "library":
            raise OSError(name)
        return SimpleNamespace(**{} if lacks == "function" else {"cuLaunchKernelEx": start})

    start = SimpleNamespace()
    version = 12030 if lacks == "version" else 12040
    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(cuda.runtime, "driverGetVersion", lambda: version)
    found = _dependent_launch.driver()
    assert found is (start if lacks == "nothing" else None)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_which_kernels_begin_early(target: str, dtype: str) -> None:
    """The convolution after the packing of its weights, on the GPUs that can; no other kernel."""
    geometry = conv((4, 64, 56, 56), (64, 64, 3, 3))
    with choice.forced("hopper" if target == "sm_90a" else "portable"):
        plan = plan_conv(geometry, np.dtype(dtype), "float32", Processor(target, 132))
    assert isinstance(plan, MatrixPlan)
    assert plan.launch.early == (target == "sm_90a")
    assert not plan.pack.early


@pytest.mark.gpu
def test_the_driver_of_a_gpu() -> None:
    """It has the launch, and says what is wrong with one that it refuses."""
    start = _dependent_launch.driver()
    if cuda.runtime.driverGetVersion() < 12040:
        assert start is None
        return
    assert start
    run = _dependent_launch.launcher(start, SimpleNamespace(ptr=0), 1, 1, 0)
    with pytest.raises(cuda.driver.CUDADriverError):
        run(array("q", [0]))
