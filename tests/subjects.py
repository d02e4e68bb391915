"""What tests of all kernels need to know of each: its own tests say it, in their SUBJECTS."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cupyconv._geometry import ConvGeometry
from cupyconv._kernels.launches import TARGETS, Instance
from cupyconv._kernels.row_blocks import RowBlocksPlan
from cupyconv._kernels.unfolded import UnfoldedPlan
from planning import conv
from strategies import Case, Convolution

HERE = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Subject:
    """A module of a kernel.

    Attributes
    ----------
    module
        In ``cupyconv/_kernels/``.
    threads
        How many threads a block of an instance has, or has at most.
    tested
        The instances that tests of instances run.
    any_warps
        The functions for which plans choose how many warps a block has.
    elsewhere
        The functions that tests of other instances, or of the operation, launch.
    everywhere
        Whether all targets have its instances.
    limits
        Constants of the kernel's file, each with the value that plans take it for.
    """

    module: Any
    threads: Callable[[Instance], int]
    tested: Sequence[Instance]
    any_warps: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    everywhere: bool = True
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The file of the kernel; further sources pack weights for it."""
        source: str = self.module.SOURCES[0]
        return source


@dataclass(frozen=True)
class Example:
    """A call that a kernel takes if it is asked for: with one input channel in each group.

    Attributes
    ----------
    targets
        Which have what the kernel needs.
    precision
        The accuracy that is asked of float32.
    drawn
        Random calls that the kernel takes, where tests of all kernels draw few of them.
    promised
        Calls that must keep all promises of equal bits.
    lines
        Calls with several tiles along lines that are no whole chunks of 16 bytes: of an odd number
        of elements, of pairs and of fours.
    """

    targets: Sequence[str] = TARGETS
    precision: str = "float32"
    drawn: Sequence[st.SearchStrategy[Convolution]] = ()
    promised: Sequence[Case] = ()
    lines: Sequence[Convolution] = ()


ONE_CHANNEL = conv((8, 1, 512, 512), (64, 1, 3, 5))


@dataclass(frozen=True)
class ConvolutionSubject(Subject):
    """A module of a kernel for convolutions.

    Attributes
    ----------
    chosen
        Geometries that plans choose the kernel for, in float32 on an H100.
    able
        Whether it takes such a dtype on such a target.
    examples
        For each name of the kernel, a call that it takes; no two modules share a name.
    order
        What decides on the order in which a planned sum is added up.
    order_of_joined
        The same, as far as two axes that lie as one leave it as it is.
    """

    chosen: Sequence[ConvGeometry] = field(kw_only=True)
    able: Callable[[np.dtype[Any], str], bool] = field(kw_only=True)
    examples: Mapping[str, Example] = field(kw_only=True)
    order: Callable[[Any], object] = field(default=lambda plan: (), kw_only=True)
    order_of_joined: Callable[[Any], object] = field(default=lambda plan: (), kw_only=True)


@cache
def subjects() -> tuple[Subject, ...]:
    """All of them, in the order of the names of their tests."""
    modules = [importlib.import_module(path.stem) for path in sorted(HERE.glob("test_*.py"))]
    return tuple(one for module in modules for one in getattr(module, "SUBJECTS", ()))


def convolutions() -> tuple[ConvolutionSubject, ...]:
    """Those for convolutions."""
    return tuple(one for one in subjects() if isinstance(one, ConvolutionSubject))


def examples() -> dict[str, Example]:
    """An example for each name of a kernel for convolutions."""
    return {name: one for kernel in convolutions() for name, one in kernel.examples.items()}


def order_of(plan: Any) -> tuple[object, ...]:
    """What decides on the order in which a planned sum is added up."""
    plans = (plan,)
    if isinstance(plan, UnfoldedPlan):
        plans = (plan.plan, *plan.ends)
    elif isinstance(plan, RowBlocksPlan):
        plans = plan.plans
    return type(plan), *((type(one), of_plan(one).order(one)) for one in plans)


def of_plan(plan: Any) -> ConvolutionSubject:
    """The kernel that a plan is for."""
    (found,) = [one for one in convolutions() if isinstance(plan, one.module.PLAN)]
    return found


def of_instance(instance: Instance) -> Subject:
    """The kernel of an instance, or the first one that it packs weights for."""
    for one in subjects():
        if instance.source == one.source:
            return one
    return next(one for one in subjects() if instance.source in one.module.SOURCES)


def threads(instance: Instance) -> int:
    """How many threads a block of an instance has, or has at most."""
    return of_instance(instance).threads(instance)


def takes_any_warps(instance: Instance) -> bool:
    """Whether plans choose how many warps a block has."""
    return instance.function in of_instance(instance).any_warps
