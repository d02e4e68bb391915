"""What a kernel is asked, and what it answers: a plan, or why it does not take the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from .._arrays import Array, Convolution
from .._geometry import ConvGeometry
from .._taps import AxisTaps
from .launches import FLOATS, INT32_LIMIT, Instance, Launch, Processor

if TYPE_CHECKING:
    from .._device import Device
    from .._strides import ConvStrides

# Why a kernel does not take a call, in words that go on from "not this one: ".
Refusal: TypeAlias = str

MANY_AXES = "it has more than three spatial axes"
LARGE = "its sizes exceed 32 bits"


@dataclass(frozen=True)
class Question:
    """A convolution that looks for a kernel.

    Attributes
    ----------
    geometry : ConvGeometry
        The convolution, which has outputs.
    dtype : numpy.dtype
        Dtype of the result, to which the arrays are cast.
    precision : str
        The accuracy asked of float32.
    processor : Processor
        The GPU.
    forced : bool
        Whether a test or a benchmark asks for this kernel: it then takes all that it can.
    """

    geometry: ConvGeometry
    dtype: np.dtype
    precision: str
    processor: Processor
    forced: bool = False


class Plan(Protocol):
    """How a kernel runs a convolution; frozen and printable."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""

    @property
    def cycles(self) -> float:
        """The cycles of a multiprocessor that the kernel's model gives it."""

    @property
    def workspace(self) -> int:
        """Bytes of memory beside the arrays."""

    @property
    def tiles(self) -> str:
        """How the outputs are divided, in words."""


class Layout(Protocol):
    """How outputs are divided into tiles; its str says it in words."""

    @property
    def cycles(self) -> float:
        """The cycles that the kernel's model gives it."""


LayoutT = TypeVar("LayoutT", bound=Layout)


@dataclass(frozen=True)
class TiledPlan(Generic[LayoutT]):
    """A plan of one launch, with the layout of its tiles."""

    launch: Launch
    layout: LayoutT

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launch."""
        return (self.launch,)

    @property
    def cycles(self) -> float:
        """The cycles of a multiprocessor that the kernel's model gives it."""
        return self.layout.cycles

    @property
    def workspace(self) -> int:
        """No memory beside the arrays."""
        return 0

    @property
    def tiles(self) -> str:
        """How the outputs are divided, in words."""
        return str(self.layout)

    def __str__(self) -> str:
        return f"{self.launch}: {self.layout}"


@dataclass(frozen=True)
class PackedPlan(Generic[LayoutT]):
    """A plan of two launches: one packs the weights, one convolves."""

    pack: Launch
    launch: Launch
    layout: LayoutT

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order."""
        return self.pack, self.launch

    @property
    def cycles(self) -> float:
        """The cycles of a multiprocessor that the kernel's model gives it."""
        return self.layout.cycles

    @property
    def tiles(self) -> str:
        """How the outputs are divided, in words."""
        return str(self.layout)

    def __str__(self) -> str:
        return f"{self.pack}; {self.launch}: {self.layout}"


class Kernel(Protocol):
    """What a module of a kernel offers."""

    SOURCES: tuple[str, ...]
    ORDER: str  # the order of summation of an output, which decides its bits
    UNIT: str  # what its model's cycles depend on: "Tensor Core", "FMA" or "memory"
    PLAN: type[Plan]
    # How the kernel runs a convolution, or why it does not; by the names in `explain` and `forced`.
    PLANS: Mapping[str, Callable[[Question], Plan | Refusal]]

    def instances(self, target: str) -> Iterator[Instance]:
        """Yield all instances that plans can ask for on a target."""

    def bind(
        self,
        plan: Plan,
        question: Question,
        strides: ConvStrides,
        bias: Array | None,
        device: Device,
    ) -> Convolution:
        """Return the convolution of a plan for all arrays of such strides."""


def fits_32_bits(geometry: ConvGeometry) -> bool:
    """Return whether every coordinate and the number of products stay below 2**31."""

    def reach(axis: AxisTaps) -> int:
        # A single tap is no further from another one, and axes may have been joined without it.
        span = axis.dilation * axis.kernel if axis.kernel > 1 else 1
        return max(axis.size_in + axis.step, axis.size_out * axis.step + abs(axis.origin) + span)

    products = math.prod(axis.kernel for axis in geometry.axes) * (geometry.channels + 8)
    return max(products, *map(reach, geometry.axes)) < INT32_LIMIT


def not_multiplied(dtype: np.dtype) -> Refusal:
    """Return the refusal for a dtype that Tensor Cores do not multiply."""
    return f"Tensor Cores do not multiply {dtype}"


def not_one_channel(geometry: ConvGeometry, dtype: np.dtype) -> Refusal | None:
    """Return why a call is not for kernels of one input channel in each group, or None."""
    if geometry.channels != 1:
        return f"its groups have {geometry.channels} input channels"
    if dtype.name not in FLOATS:
        return f"it is not for {dtype}"
    if geometry.rank > 3:
        return MANY_AXES
    if not fits_32_bits(geometry) or geometry.groups * geometry.rows >= INT32_LIMIT:
        return LARGE
    return None
