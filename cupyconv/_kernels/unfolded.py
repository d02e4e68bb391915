"""Convolutions in the unfolded form, in which the taps of one axis are input channels.

`_unfolding` says what the form is. Any kernel that multiplies channels may take it. Outputs at the
ends of the axis, where padding takes away some of their taps, are left to the direct kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .._arrays import Array, Convolution
from .._axes import raised
from .._unfolding import parts, unfolded
from . import direct_conv
from .direct_conv import DirectPlan
from .launches import Launch
from .question import Kernel, Plan, Question, Refusal

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

PREFIX = "unfolded-"  # of the name of a kernel that is asked for the unfolded form
ORDER = "of the kernel, with taps of one axis as channels; at padded ends of the direct kernel"
UNIT = "Tensor Core"


@dataclass(frozen=True)
class UnfoldedPlan:
    """How a convolution runs in the unfolded form.

    Attributes
    ----------
    kernel : Kernel
        Module of the kernel.
    plan : Plan
        Its plan for the outputs that have all taps.
    ends : tuple of DirectPlan
        Plans of the direct kernel for the other outputs.
    """

    kernel: Kernel = field(repr=False)
    plan: Plan
    ends: tuple[DirectPlan, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return sum((end.launches for end in self.ends), self.plan.launches)

    @property
    def cycles(self) -> float:
        """The cycles of a multiprocessor that the kernels' models give them."""
        return sum((end.cycles for end in self.ends), self.plan.cycles)

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays, which the launches of one plan hold at a time."""
        return max(plan.workspace for plan in (self.plan, *self.ends))

    @property
    def tiles(self) -> str:
        """How the outputs are divided, in words."""
        ends = "".join(f"; an end: {end.tiles}" for end in self.ends)
        return f"taps as channels, {self.plan.tiles}{ends}"

    def __str__(self) -> str:
        return "; an end: ".join((f"taps as channels, {self.plan}", *map(str, self.ends)))


PLAN = UnfoldedPlan


def question_of(question: Question) -> Question | Refusal:
    """Return the question for the outputs that can be unfolded, or why there are none."""
    found = parts(question.geometry)
    if found:
        inner = found[0]
        return replace(question, geometry=raised(unfolded(inner.geometry, inner.axis)))
    channels = question.geometry.channels
    if channels != 1:
        return f"its groups have {channels} input channels"
    return "no output of an ordinary convolution has several taps along an axis, all of them"


def plan(question: Question, kernel: Kernel, name: str) -> UnfoldedPlan | Refusal:
    """Return the plan of a kernel, by one of its names, for the unfolded form; or why not."""
    asked = question_of(question)
    if isinstance(asked, str):
        return asked
    found = kernel.PLANS[name](asked)
    if isinstance(found, str):
        return found
    _, *ends = parts(question.geometry)
    plans = (direct_conv.plan(replace(question, geometry=end.geometry)) for end in ends)
    return UnfoldedPlan(kernel, found, tuple(plans))


def bind(
    plan: UnfoldedPlan,
    question: Question,
    strides: ConvStrides,
    bias: Array | None,
    device: Device,
) -> Convolution:
    """Return the convolution of a plan for all arrays of such strides."""
    inner, *ends = parts(question.geometry)
    form = unfolded(inner.geometry, inner.axis)
    windows = strides.unfolded(inner.geometry, inner.axis).raised(form)
    asked = replace(question, geometry=raised(form))
    convolve_inner = plan.kernel.bind(plan.plan, asked, windows, bias, device)
    if not ends:
        return convolve_inner
    runs = [(convolve_inner, inner.of_input, inner.of_output)]
    for end, own in zip(ends, plan.ends, strict=True):
        asked = replace(question, geometry=end.geometry)
        run = direct_conv.bind(own, asked, strides, bias, device)
        runs.append((run, end.of_input, end.of_output))

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        for run, of_input, of_output in runs:
            run(data[of_input], weight, bias, out[of_output])

    return convolve
