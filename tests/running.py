"""Helpers of the tests that run instances on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import test_convolution
from backends import CupyBackend, EmulatorBackend, NumpyBackend
from cupyconv._device import CupyDevice
from cupyconv._kernels import choice, question
from cupyconv._kernels.launches import ELEMENTS, SIGNED, TARGETS, Instance, Launch
from emulator.device import EmulatedDevice
from reference import Array, Shape
from strategies import Convolution, convolution

# The planner's names of elements, to those of NumPy and ml_dtypes; signed integers are summed as
# unsigned ones.
DTYPE_NAMES = {element: dtype for dtype, element in {**ELEMENTS, **SIGNED}.items()}
INSTANCES = tuple(dict.fromkeys(one for target in TARGETS for one in choice.instances(target)))


def dtype_of(element: str) -> np.dtype[Any]:
    name = DTYPE_NAMES[element]
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


# What binds the plans of each kernel. The fused operation lets the dense kernel pool.
BINDERS = {
    module: "bind_pooling" if hasattr(module, "bind_pooling") else "bind"
    for module in choice.CONVOLUTIONS
}


def instances_of(source: str) -> list[Instance]:
    """The instances of a source, on all targets."""
    return [instance for instance in INSTANCES if instance.source == source]


class Recorder(EmulatorBackend):
    """Remembers what was launched, the plans of convolutions, and workspaces.

    Attributes
    ----------
    workspaces
        The bytes of each one.
    held
        As each was taken, the bytes of all that there were.
    """

    def __init__(self, kernel: str | None = None) -> None:
        super().__init__(kernel)
        self.launches: list[Launch] = []
        self.plans: list[Any] = []
        self.workspaces: list[int] = []
        self.held: list[int] = []
        device, path = self.path.device, self.path
        run, workspace = device.run, device.workspace

        def recorded(launch: Launch, arguments: Any) -> None:
            self.launches.append(launch)
            run(launch, arguments)

        def taken(shape: Shape, dtype: np.dtype[Any]) -> Array:
            memory = workspace(shape, dtype)
            self.workspaces.append(memory.nbytes)
            self.held.append(sum(one.size for one in device.kept.values()))
            return memory

        def bound(bind: Callable[..., Any], plan: question.Plan, *rest: Any) -> Any:
            self.plans.append(plan)
            return bind(plan, *rest)

        def noting(prepare: Callable[..., Any], *arguments: Any) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                for module, name in BINDERS.items():
                    patch.setattr(module, name, partial(bound, getattr(module, name)))
                return prepare(*arguments)

        device.run = recorded  # type: ignore[method-assign]
        device.workspace = taken  # type: ignore[method-assign]
        path.prepare = partial(noting, path.prepare)  # type: ignore[method-assign]
        path.fused = partial(noting, path.fused)  # type: ignore[method-assign]


# A function, the shapes of its input and its weight, and its options.
Call = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]


def call_for(
    instance: Instance, call: Call, groups: int, precision: str = "float32"
) -> Convolution:
    """A call with a bias, in the dtype that an instance is made for."""
    function, input_shape, weight_shape, options = call
    dtype = dtype_of(dict(instance.defines)["ELEMENT"])
    return convolution(
        function, input_shape, weight_shape, dtype,
        bias=True, groups=groups, precision=precision, **options,
    )  # fmt: skip


def run_once(kernel: str, case: Convolution, instance: Instance | None = None) -> Any:
    """Check a call by a kernel, which launches what its plan says; return the plan.

    What convolves is an instance, if one is named.
    """
    backend = Recorder(kernel)
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert tuple(backend.launches) == plan.launches
    assert instance in (None, plan.launch.instance)
    return plan


def on_the_emulator(*argnames: str, cases: Sequence[Any]) -> Any:
    """Run a test of instances, or of what their tiles tell apart, for each of some cases."""

    def marked(test: Callable[..., None]) -> Any:
        names = argnames if len(argnames) > 1 else argnames[0]
        test = pytest.mark.parametrize(names, cases, ids=str)(test)
        return pytest.mark.emulator(pytest.mark.instance(test))

    return marked


# Tests of kernels that copy for others, on GPUs that have these others.
every_wgmma_device = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(NumpyBackend(), id="emulator", marks=[pytest.mark.emulator]),
        pytest.param(CupyBackend(), id="cupy", marks=[pytest.mark.gpu, pytest.mark.wgmma]),
    ],
)


def made(backend: NumpyBackend, array: Array, make: Callable[[Any, Any], Any]) -> Array:
    """What `make` makes of an array, given a device and the array there.

    On the emulator, every element of it must have been written.
    """
    if isinstance(backend, CupyBackend):
        return backend.to_numpy(make(CupyDevice(), backend.asarray(array)))
    device = EmulatedDevice()
    with device.held():
        result: Array = make(device, array)
        memory = device._memory(result)
        assert memory is not None and not memory.unwritten(result)
        return result


def channels_last(x: Any, axis: int = 1) -> Any:
    """The same values with the channels, or another axis, innermost in memory."""
    return np.moveaxis(np.moveaxis(x, axis, -1).copy(), -1, axis)


def layouts(x: Any) -> Iterator[Any]:
    """The same values in packs and halves of them, across channels or samples, and one by one."""
    yield x
    for axis in (0, 1):
        yield channels_last(x, axis)
    yield x[:, :, ::-1, ::-1].copy()[:, :, ::-1, ::-1]
    longer = np.empty((*x.shape[:-1], x.shape[-1] + 16), x.dtype)
    for start in (16, max(2, 8 // x.itemsize), 1):  # rows that lie apart
        view = longer[..., start : start + x.shape[-1]]
        view[...] = x
        yield view
        longer = longer.copy()
