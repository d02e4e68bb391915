"""Helpers of the tests of plans: geometries, random ones too, and a device that runs nothing."""

from __future__ import annotations

import json
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import cupyconv
import resources
from cupyconv import _calls, _compile, _fft, _geometry, _paths
from cupyconv._device import Arguments
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import choice, direct_conv
from cupyconv._kernels.choice import instances
from cupyconv._kernels.direct_conv import Layout, Tile
from cupyconv._kernels.launches import SHARED, TARGETS, Instance, Launch, Processor
from cupyconv._kernels.question import Question
from cupyconv._launch import KernelPath
from cupyconv._tensor_maps import WORDS, Boxes, Pixels
from reference import Array, Shape
from strategies import (
    MODES,
    Case,
    batch_norms,
    convolutions,
    fused_operations,
    group_norms,
    max_pools,
)

MOST = 2**31 - 1  # blocks of a grid, and the largest coordinate of 32 bits
processors = st.builds(Processor, st.sampled_from(TARGETS), st.sampled_from([1, 2, 30, 132]))
HOPPER = Processor("sm_90a", 132)
ALL = {target: set(instances(target)) for target in TARGETS}
# The package of the modules that plan, and the module that divides calls by FFT into tiles.
PLANNERS = choice.__name__.rpartition(".")[0], _fft.__name__


def listed(target: str, kernel: str | None) -> set[Instance]:
    """The instances that plans may ask for; for Hopper, mma has to be forced."""
    forced = target == "sm_90a" and kernel in ("portable", "unfolded-portable")
    return ALL["sm_80" if forced else target]


any_mode = st.sampled_from(MODES)
any_case = st.one_of(
    convolutions(), convolutions(), batch_norms(), group_norms(), max_pools(), fused_operations()
)


def forget(*modules: ModuleType) -> None:
    """Empty the caches of some modules, or of all that plan, and drop all prepared calls."""
    planners = [module for name, module in sys.modules.items() if name.startswith(PLANNERS)]
    for module in modules or planners:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
    _calls.kept.clear()


class Steering:
    """Replaces parts of the planner for one test: the fixture `steer` of conftest.py.

    Nothing that was planned before a replacement is found in a cache after it.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def replace(self, owner: Any, **parts: Any) -> None:
        """Give attributes of a module or of an object other values."""
        for name, part in parts.items():
            self._patch.setattr(owner, name, part)
        forget()

    def choose_among(self, module: ModuleType, suitable: Callable[[Any, Any], bool]) -> None:
        """Let a kernel's plans choose among the suitable ones of its candidates.

        `suitable` is given what the planner looks for candidates of, and a candidate.
        """
        candidates = module.candidates

        def chosen(problem: Any, *rest: Any) -> Iterator[Any]:
            return (one for one in candidates(problem, *rest) if suitable(problem, one))

        self.replace(module, candidates=chosen)


class Recorder:
    """A device that runs nothing and remembers what it was asked for."""

    def __init__(self, processor: Processor) -> None:
        self.launches: list[Launch] = []
        self.arguments: list[list[int]] = []  # of each launch
        self.splits: list[Shape] = []  # of the numbers whose parts were copied
        self._processor = processor

    def processor(self) -> Processor:
        return self._processor

    def address(self, array: Array) -> int:
        return array.__array_interface__["data"][0]

    def tensor_map(self, address: int, array: Boxes | Pixels) -> tuple[int, ...]:
        return (0,) * WORDS

    def workspace(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def cast(self, array: Array, dtype: np.dtype[Any]) -> Array:
        return array if array.dtype == dtype else array.astype(dtype, order="C")

    def split(self, array: Array, real: Array, imag: Array, conjugate: bool = False) -> None:
        assert array.shape == real.shape == imag.shape
        self.splits.append(array.shape)

    def load(self, launches: Iterable[Launch]) -> None:
        pass

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        def run(arguments: Arguments) -> None:
            assert arguments.typecode == "q"
            self.launches.append(launch)
            self.arguments.append(arguments.tolist())

        return run


class EmulatedTiles:
    """Lets the direct kernel's calls be as small for the emulator as tests draw them.

    Else nearly all of them would have its small tiles, and no sum would be split.
    """

    MOST = 2  # small tiles for each multiprocessor

    def __init__(self) -> None:
        self.candidates = direct_conv.candidates
        self.times = direct_conv.LATENCY, direct_conv.LAUNCH
        self.fewest_steps = direct_conv.FEWEST_STEPS

    def use(self, emulated: bool) -> None:
        """Let the planner choose for the emulator, or as it does for a GPU."""
        direct_conv.candidates = self.few_small if emulated else self.candidates
        direct_conv.LATENCY, direct_conv.LAUNCH = (0, 0) if emulated else self.times
        direct_conv.FEWEST_STEPS = 128 if emulated else self.fewest_steps

    def few_small(self, question: Question, *rest: Any) -> Iterator[Layout]:
        most = self.MOST * question.processor.multiprocessors
        layouts = [(is_small(one.tile), one) for one in self.candidates(question, *rest)]
        fits = any(small and one.blocks <= most * one.splits for small, one in layouts)
        return (one for small, one in layouts if small == fits)


def is_small(tile: Tile) -> bool:
    """Whether each thread has one output, as for calls that mostly wait for memory."""
    return tile.thread_rows * tile.thread_positions == 1


@contextmanager
def recorded(processor: Processor = HOPPER) -> Iterator[Recorder]:
    """What the calls in a block ask for, of NumPy arrays on their way to a GPU."""
    recorder = Recorder(processor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_paths, "numpy_path", KernelPath(recorder))
        yield recorder


def launches_of(case: Case, processor: Processor = HOPPER) -> list[Launch]:
    with recorded(processor) as recorder:
        operator.attrgetter(case.function)(cupyconv)(**case.arrays, **case.options)
    return recorder.launches


def constant(source: str, name: str) -> int:
    """A ``constexpr int`` of a kernel file."""
    pattern = rf"^constexpr int {name} = (\d+);(?: *//.*)?$"
    found = re.search(pattern, _compile.source(source), re.MULTILINE)
    assert found, (source, name)
    return int(found[1])


lengths = st.one_of(st.integers(1, 9), st.integers(1, 2**34), st.integers(2**31 - 99, 2**31 + 99))
steps = st.one_of(st.integers(1, 5), st.integers(1, 2**31 - 1))


@st.composite
def conv_geometries(
    draw: st.DrawFn,
    ranks: Sequence[int] = (1, 2, 3, 1, 2, 3, 4, 5),
    directions: Sequence[bool] = (False, True),
) -> ConvGeometry:
    """Descriptions of convolutions that may be very large in one respect or two.

    A direction is whether they are transposed.
    """
    rank = draw(st.sampled_from(ranks))
    names = ("kernel", "extra", "pad", "stride", "dilation", "batch", "channels", "rows", "groups")
    large = draw(st.sets(st.sampled_from(names), max_size=2))
    rng = draw(st.randoms(use_true_random=False))

    def size(name: str, least: int = 1) -> int:
        return draw(lengths) if name in large else rng.randint(least, 5)

    def sizes(name: str, least: int = 1) -> list[int]:
        """One large size at most."""
        return [size(name, least), *(rng.randint(least, 5) for _ in range(rank - 1))]

    kernel, pad = sizes("kernel"), sizes("pad", 0)
    stride, dilation = ([min(s, MOST) for s in sizes(name)] for name in ("stride", "dilation"))
    groups, channels, rows = size("groups"), size("channels", 0), size("rows") * rng.randint(1, 20)
    padding = [(p, rng.randint(0, p)) for p in pad]
    batch, more = size("batch"), sizes("extra")
    try:
        if draw(st.sampled_from(directions)):
            shape = (batch, groups * channels, *(m + 2 * p for m, p in zip(more, pad, strict=True)))
            weight = (groups * channels, rows, *kernel)
            return _geometry.conv_transpose(
                "f", shape, weight, None, stride, padding, 0, groups, dilation, rank
            )
        extents = (d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
        lacking = (max(e - sum(p), 0) for e, p in zip(extents, padding, strict=True))
        shape = (batch, groups * channels, *(m + n for m, n in zip(more, lacking, strict=True)))
        weight = (groups * rows, channels, *kernel)
        return _geometry.conv("f", shape, weight, None, stride, padding, dilation, groups, rank)
    except ValueError as error:
        assert "sizes must stay below 2**63" in str(error)
        assume(False)
        raise


@st.composite
def dense_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Convolutions with work for Tensor Cores, up to the sizes of large networks."""
    rng = draw(st.randoms(use_true_random=False))
    rank = draw(st.sampled_from([1, 2, 3]))
    most = {1: 3000, 2: 200, 3: 40}[rank]

    def each(low: int, high: int) -> list[int]:
        return [rng.randint(low, high) for _ in range(rank)]

    kernel, pad, stride = each(1, 7), each(0, 6), each(1, rng.choice([1, 2, 4]))
    dilation = each(1, rng.choice([1, 1, 3]))
    groups = rng.choice([1, 1, 1, 3])
    channels, rows = (rng.randint(1, rng.choice([9, 70, 600])) for _ in range(2))
    batch = rng.choice([1, 2, 16, 100])
    lengths = [n + d * (k - 1) for n, k, d in zip(each(1, most), kernel, dilation, strict=True)]
    padding = tuple((min(p, d * (k - 1)), 0) for p, d, k in zip(pad, dilation, kernel, strict=True))
    sizes, steps = (batch, groups, channels, rows), (tuple(stride), padding, tuple(dilation))
    return either(draw(st.booleans()), sizes, lengths, kernel, *steps)


def either(
    transposed: bool,
    sizes: tuple[int, int, int, int],
    lengths: Sequence[int],
    kernel: Sequence[int],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> ConvGeometry:
    """A convolution or a transposed one: of samples, groups, and channels and rows of a group."""
    batch, groups, channels, rows = sizes
    make = conv_transpose if transposed else conv
    weight = (groups * channels, rows) if transposed else (groups * rows, channels)
    shapes = (batch, groups * channels, *lengths), (*weight, *kernel)
    return make(*shapes, stride=stride, padding=padding, dilation=dilation, groups=groups)


@st.composite
def depthwise_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Up to the sizes of large networks."""
    rng = draw(st.randoms(use_true_random=False))
    rank = draw(st.sampled_from([1, 2, 3]))
    most = {1: 30_000, 2: rng.choice([16, 600]), 3: rng.choice([8, 70])}[rank]

    def each(low: int, high: int) -> list[int]:
        return [rng.randint(low, high) for _ in range(rank)]

    kernel, stride = each(1, 7), each(1, rng.choice([1, 1, 2, 7]))
    dilation = each(1, rng.choice([1, 1, 3]))
    groups, rows = rng.randint(1, rng.choice([9, 1200])), rng.randint(1, rng.choice([1, 2, 200]))
    lengths = [n + d * (k - 1) for n, k, d in zip(each(1, most), kernel, dilation, strict=True)]
    padding = tuple((rng.randint(0, d * (k - 1)), 0) for d, k in zip(dilation, kernel, strict=True))
    sizes = rng.choice([1, 2, 16, 100]), groups, 1, rows
    steps = tuple(stride), padding, tuple(dilation)
    return either(draw(st.booleans()), sizes, lengths, kernel, *steps)


@st.composite
def streaming_geometries(draw: st.DrawFn) -> ConvGeometry:
    """Calls whose weights the few-channel kernel may hold in shared memory."""
    rng = draw(st.randoms(use_true_random=False))
    rank = draw(st.sampled_from([1, 2, 3]))
    most = {1: 30_000, 2: rng.choice([16, 600]), 3: rng.choice([8, 70])}[rank]
    lengths = [rng.randint(1, most) for _ in range(rank)]
    groups, rows = rng.randint(1, rng.choice([3, 200])), rng.randint(1, rng.choice([70, 2000]))
    channels, batch = rng.randint(1, rng.choice([70, 2000])), rng.choice([1, 2, 16, 100])
    kernel = tuple(rng.randint(1, rng.choice([1, 5])) for _ in lengths)
    if math.prod(kernel) > 1:
        channels = rng.randint(1, rng.choice([5, 40]))
    lengths = [n + k for n, k in zip(lengths, kernel, strict=True)]
    transposed = draw(st.booleans())
    stride = 1 if transposed else tuple(rng.randint(1, 3) for _ in lengths)
    return either(transposed, (batch, groups, channels, rows), lengths, kernel, stride)


@st.composite
def large_shapes(draw: st.DrawFn, rank: int) -> Shape:
    """Shapes with one large axis."""
    shape = [draw(st.integers(1, 20)) for _ in range(rank)]
    shape[draw(st.integers(0, rank - 1))] = draw(lengths)
    return tuple(shape)


def plan_of(
    geometry: ConvGeometry,
    dtype: Any = np.float32,
    precision: str = "float32",
    processor: Processor = HOPPER,
    kernel: str | None = None,
) -> Any:
    with choice.forced(kernel):
        return choice.plan_conv(geometry, np.dtype(dtype), precision, processor)


def conv(shape: Shape, kernel: Shape, **options: Any) -> ConvGeometry:
    arguments = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **options}
    return _geometry.conv("f", shape, kernel, None, **arguments, rank=len(kernel) - 2)


def conv_transpose(shape: Shape, kernel: Shape, **options: Any) -> ConvGeometry:
    arguments = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}
    rank = len(kernel) - 2
    return _geometry.conv_transpose("f", shape, kernel, None, **{**arguments, **options}, rank=rank)


# Geometries of growing size, each in another respect; n is the largest number that a plan forms.
GROWING = {
    "input": lambda n: conv((1, 1, n), (1, 1, 1)),
    "input of 2 axes": lambda n: conv((1, 1, 3, n), (1, 1, 1, 1)),
    "input of 3 axes": lambda n: conv((1, 1, 3, n, 3), (1, 1, 1, 1, 1)),
    "strided input": lambda n: conv((1, 1, n), (1, 1, 1), stride=2),
    "padding": lambda n: conv((1, 1, 1), (1, 1, 1), padding=((0, n),)),
    "reach of the taps": lambda n: conv((1, 1, n // 2 + 1), (1, 1, 2), dilation=n // 2),
    "taps": lambda n: conv((1, 1, n // 9), (1, 1, n // 9)),
    "channels": lambda n: conv((1, n // 4, 4), (1, n // 4, 4)),
    "channels and taps": lambda n: conv((1, n // 16, 4, 4), (1, n // 16, 4, 4)),
    "output": lambda n: conv_transpose((1, 1, n), (1, 1, 1)),
    "strided output": lambda n: conv_transpose((1, 1, n // 8), (1, 1, 1), stride=8),
    "input after the output": lambda n: conv_transpose((1, 1, n), (1, 1, 1), padding=((0, n - 5),)),
    "output after the padding": lambda n: conv_transpose(
        (1, 1, n - 300), (1, 1, 2), dilation=299, padding=((n - 9, 0),)
    ),
    "channels of a transposed one": lambda n: conv_transpose((1, n // 4, 4), (n // 4, 1, 4)),
}


def checked(
    plan: Callable[[], Any], processor: Processor = HOPPER, kernel: str | None = None
) -> Any:
    """The plan that a function returns, with what has to hold for the plans of all kernels.

    It follows from the function's arguments alone, whoever reads it can launch it by hand, and its
    launches suit the processor.
    """
    found = plan()
    forget()
    again = plan()
    assert found == again and hash(found) == hash(again) and str(found) == str(again)
    for launch in found.launches:
        instance = launch.instance
        assert f"{instance.source}:{instance.function} [" in str(found)
        for name, value in instance.defines:
            assert f"{name}={value}" in str(found)
        assert f"{launch.grid} blocks of {launch.block} threads" in str(found)
        assert instance in listed(processor.target, kernel)
        assert launch.shared <= SHARED[processor.target]
        assert 1 <= launch.grid <= MOST and launch.grid % launch.unit == 0
    return found


def checked_plan_of(
    geometry: ConvGeometry,
    dtype: Any = np.float32,
    precision: str = "float32",
    processor: Processor = HOPPER,
    kernel: str | None = None,
) -> Any:
    """The plan of a convolution, with what has to hold for the plans of all kernels."""
    question = geometry, dtype, precision, processor, kernel
    return checked(lambda: plan_of(*question), processor, kernel)


@cache
def _resources() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(resources.TABLE.read_text(encoding="utf-8"))
    return table


def assert_shared_memory(plan: Any, target: str, *launches: Launch) -> None:
    """Assert that what some kernels of a plan declare and what their launches ask for fit."""
    for launch in launches:
        declared = _resources()[target][str(launch.instance)][2]
        assert declared + launch.shared <= SHARED[target], plan
