"""A path that takes notes: it plans calls for a chip, and launches nothing."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ._arrays import Array, Blueprint, Convolution, WeightGradient, partial_dtype
from ._axes import multiply_adds
from ._fft import passes
from ._geometry import ConvGeometry, NormGeometry, PoolGeometry
from ._gradient_geometry import adjoint
from ._kernels import choice
from ._kernels.chips import Chip
from ._kernels.choice import Choice
from ._kernels.costs import FFT
from ._kernels.fused import FusedPlan
from ._kernels.launches import Launch, Processor
from ._kernels.max_pool2d import PoolPlan
from ._kernels.normalize import NormPlan
from ._kernels.question import Plan, Question, Refusal
from ._kernels.relayed import Relay
from ._launch import KernelPath
from ._least_work import LeastWork, least_work, pooled_share
from ._packing import Arguments
from ._placement import Placement
from ._shape_rules import Shape
from ._strides import ConvStrides
from ._tensor_maps import WORDS, Boxes, Pixels


class Notebook:
    """A device that takes notes, of memory and of launches."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self.launches: list[Launch] = []
        self.workspaces = 0  # bytes
        self.most = 0
        self.copies = 0  # of the parts of complex numbers
        self.copied = 0  # bytes that they read and write

    def processor(self) -> Processor:
        """Return what plans know of the device."""
        return self._processor

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        return int(array.__array_interface__["data"][0])

    def tensor_map(self, address: int, array: Boxes | Pixels) -> tuple[int, ...]:
        """Return words that no kernel reads."""
        return (0,) * WORDS

    def workspace(self, shape: Shape, dtype: np.dtype) -> Array:
        """Return what stands for memory; it counts for as long as it is there."""
        memory = Blueprint(shape, dtype)
        self._count(memory.nbytes)
        weakref.finalize(memory, self._count, -memory.nbytes)
        return memory

    def _count(self, nbytes: int) -> None:
        self.workspaces += nbytes
        self.most = max(self.most, self.workspaces)

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in C order in workspace."""
        return array if array.dtype == dtype else self.workspace(array.shape, dtype)

    def split(self, array: Array, real: Array, imag: Array, conjugate: bool = False) -> None:
        """Note the copy of the parts of complex numbers."""
        self.copies += 1
        self.copied += array.nbytes + real.nbytes + imag.nbytes

    def conjugate(self, array: Array) -> Array:
        """Return what stands for the conjugate numbers."""
        return self.workspace(array.shape, array.dtype)

    def transform(self, spectrum: Array, lengths: Shape, dtype: np.dtype, inverse: bool) -> None:
        """Transform nothing."""

    def write(self, values: Array, bias: Array | None, out: Array) -> None:
        """Write nothing."""

    def load(self, launches: Iterable[Launch]) -> None:
        """Load nothing."""

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return what notes a launch."""
        return lambda arguments: self.launches.append(launch)


class NotingPath(KernelPath):
    """The kernels' path, with notes of its plans and of the time that they should take."""

    def __init__(self, chip: Chip) -> None:
        self.notebook = Notebook(chip.processor)
        super().__init__(self.notebook)
        self.chip = chip
        self.kernels: list[str] = []
        self.refused: dict[str, str] = {}
        self.plans: list[str] = []
        self.products = 0.0  # multiply-adds, as they are usually counted
        self.needed = 0  # multiply-adds that the result needs
        self.shares: dict[int, float] = {}  # fractions of arrays that must be read, by their ids
        self.times = 1  # that a call runs a convolution
        self.seconds = 0.0
        self.timed = 0  # launches whose latency is a part of these seconds

    def _note(self, kernel: str, tiles: object, seconds: float) -> None:
        self.kernels.append(kernel)
        self.plans.append(str(tiles))
        self.seconds += self.times * seconds

    def _note_convolution(self, kernel: str, plan: Plan, question: Question) -> None:
        self._note_plan(kernel, plan, choice.time_of(kernel, plan, question, self.chip))

    def _note_plan(self, kernel: str, plan: Plan, microseconds: float) -> None:
        self._note(kernel, plan.tiles, 1e-6 * microseconds)
        self.timed += self.times * len(plan.launches)

    def _moved(self, nbytes: float) -> float:
        """Return the seconds in which so many bytes are read and written."""
        return nbytes / self.chip.copy_rate

    def _count(self, geometry: ConvGeometry, times: int = 1) -> LeastWork:
        """Count the work of a convolution that a call runs so often; return the least of it."""
        least = least_work(geometry)
        self.products += times * multiply_adds(geometry)
        self.needed += times * least.multiply_adds
        return least

    def least_bytes(self, array: Array) -> float:
        """Return the bytes of an array of the call that must be read."""
        return bytes_of(array) * self.shares.get(id(array), 1.0)

    def prepare(
        self,
        geometry: ConvGeometry,
        data: Array,
        weight: Array,
        bias: Array | None,
        out: Array,
        precision: str,
        times: int = 1,
    ) -> Convolution:
        """Return what notes the launches of a convolution."""
        least = self._count(geometry, times)
        self.shares |= {id(data): least.input_share, id(weight): least.weight_share}
        known = len(self.kernels)
        convolve = super().prepare(geometry, data, weight, bias, out, precision, times)
        # Chunks of samples of different sizes run by one kernel.
        self.kernels[known:] = dict.fromkeys(self.kernels[known:])
        return convolve

    def _refuse_parts(self, geometry: ConvGeometry, dtype: np.dtype) -> Refusal | None:
        """Note why a complex convolution does not run as a real one."""
        refusal = super()._refuse_parts(geometry, dtype)
        if refusal and dtype.name == "complex64":
            self.refused["parts"] = refusal
        return refusal

    def _bind(
        self,
        geometry: ConvGeometry,
        strides: ConvStrides,
        dtype: np.dtype,
        precision: str,
        bias: Array | None,
        times: int = 1,
    ) -> Convolution:
        """Note how often a call runs a convolution."""
        self.times = times
        convolve = super()._bind(geometry, strides, dtype, precision, bias, times)
        self.times = 1
        return convolve

    def _relay(
        self, found: Relay, question: Question, strides: ConvStrides, bias: Array | None
    ) -> Convolution:
        """Note the copies of a call, which are read and written."""
        self.seconds += self.times * self._moved(2 * found.nbytes(question))
        return super()._relay(found, question, strides, bias)

    def _bind_plan(
        self, bias: Array | None, question: Question, strides: ConvStrides, times: int = 1
    ) -> Convolution:
        """Note how often a call runs a convolution of as many samples."""
        self.times *= times
        convolve = super()._bind_plan(bias, question, strides)
        self.times //= times
        return convolve

    def prepare_weight_gradient(
        self,
        geometry: ConvGeometry,
        data: Array,
        grad_output: Array,
        out: Array,
        precision: str,
        times: int = 1,
    ) -> WeightGradient:
        """Return a function that notes the launches of a gradient with respect to the weight."""
        read = self._count(geometry, times).input_share
        self.shares |= {id(data): read, id(grad_output): least_work(adjoint(geometry)).input_share}
        self.times = times
        gradient = super().prepare_weight_gradient(geometry, data, grad_output, out, precision)
        self.times = 1
        return gradient

    def note_method(self, method: str, gain: Callable[[], float]) -> None:
        """Note how long the other method should take."""
        factor = gain()
        if method == "fft":
            self._note("fft", "transforms, products of spectra and transforms back", 0)
            self.refused["method='direct'"] = f"it would take {factor:.2f} times as long"
        elif factor < 1:
            self.refused["method='fft'"] = f"it would take {1 / factor:.2f} times as long"
        else:
            self.refused["method='fft'"] = f"it should take {1 / factor:.2f} of the time"

    def prepare_spectrum(
        self, array: Array, placement: Placement, dtype: np.dtype, conjugate: bool
    ) -> Callable[[Array], Array]:
        """Return a function that notes that arrays are placed and transformed."""
        spectrum_of = super().prepare_spectrum(array, placement, dtype, conjugate)

        def noted(array: Array) -> Array:
            spectrum = spectrum_of(array)
            self._note_transform(spectrum, placement.padded[3:], array.nbytes)
            return spectrum

        return noted

    def _note_transform(self, spectrum: Array, lengths: Shape, nbytes: int) -> None:
        transforms = 2 * passes(lengths) * spectrum.nbytes
        self.seconds += FFT.moved * self._moved(transforms + spectrum.nbytes + nbytes)

    def prepare_multiply(
        self, a: Array, b: Array, out: Array, scale: float, adds: bool
    ) -> Callable[[Array, Array, Array], None]:
        """Return a function that notes products of spectra."""
        multiply = super().prepare_multiply(a, b, out, scale, adds)

        def noted(a: Array, b: Array, out: Array) -> None:
            self.seconds += FFT.moved * self._moved(a.nbytes + b.nbytes + out.nbytes)
            multiply(a, b, out)

        return noted

    def values(self, spectrum: Array, lengths: Shape, dtype: np.dtype) -> Array:
        """Note that spectra are transformed back, and that the result is written."""
        self._note_transform(spectrum, lengths, spectrum.nbytes)
        return super().values(spectrum, lengths, dtype)

    def prepare_pad(
        self, placement: Placement, data: Array, times: int
    ) -> Callable[[Array, Array], None]:
        """Note padded copies of an input."""
        padded = math.prod(placement.padded) * data.dtype.itemsize
        self._note_copies("pad", placement, data.nbytes + padded, times)
        return super().prepare_pad(placement, data, times)

    def prepare_fold(
        self, placement: Placement, bias: Array | None, out: Array, times: int
    ) -> Callable[[Array, Array | None, Array], None]:
        """Note that padded results are folded."""
        padded = math.prod(placement.padded) * partial_dtype(out.dtype).itemsize
        self._note_copies("fold", placement, out.nbytes + padded, times)
        return super().prepare_fold(placement, bias, out, times)

    def _note_copies(self, name: str, placement: Placement, nbytes: int, times: int) -> None:
        if name not in self.kernels:
            self.kernels.append(name)
            self.plans.append(f"{placement.mode or 'zero'} borders of {placement.sizes[2:]}")
        self.seconds += times * self._moved(nbytes)

    def _choose_weight_gradient(self, question: Question) -> Choice:
        """Note the plan of a gradient with respect to the weight."""
        chosen = super()._choose_weight_gradient(question)
        time = choice.time_of_gradient(chosen.kernel, chosen.plan, question, self.chip)
        self._note_plan(chosen.kernel, chosen.plan, time)
        self.refused |= chosen.refused
        return chosen

    def _plan_conv(self, question: Question, strides: ConvStrides) -> Plan:
        """Note the plan of a convolution, and why other kernels have none."""
        chosen = choice.choose(
            question.geometry, question.dtype, question.precision, question.processor
        )
        plan = choice.settled(chosen.plan, question, strides)
        self._note_convolution(chosen.kernel, plan, question)
        self.refused |= chosen.refused
        return chosen.plan

    def _normalize(
        self,
        plan: NormPlan,
        geometry: NormGeometry,
        data: Array,
        parameters: Sequence[Array | None],
        eps: float,
        out: Array,
    ) -> None:
        """Note the launches of a norm."""
        sets = f"{geometry.sets} sets of {geometry.elements} values"
        self._note("normalize", sets, self._moved(plan.reads * data.nbytes + out.nbytes))
        super()._normalize(plan, geometry, data, parameters, eps, out)

    def _max_pool2d(self, plan: PoolPlan, geometry: PoolGeometry, data: Array, out: Array) -> None:
        """Note the launches of a max pooling."""
        self.shares[id(data)] = pooled_share(geometry)
        turns = -(-geometry.lead[0] // plan.samples)
        between = 2 * turns * sum(plan.between) * out.itemsize  # written and read
        moved = self._moved(data.nbytes + out.nbytes + between)
        self._note("max_pool2d", f"{out.size} windows", moved)
        super()._max_pool2d(plan, geometry, data, out)

    def _plan_fused(
        self,
        convolution: ConvGeometry,
        pooled: tuple[int, ...],
        num_groups: int,
        out: Array,
        precision: str,
    ) -> FusedPlan | Refusal:
        """Note the plan of the fused operation, or why it is composed of its parts."""
        plan = super()._plan_fused(convolution, pooled, num_groups, out, precision)
        if isinstance(plan, str):
            self.refused["fused"] = plan
        else:
            self._count(convolution)
            question = Question(convolution, out.dtype, precision, self.chip.processor)
            time = choice.time_of("hopper", plan.convolution, question, self.chip)
            # The convolution is not stored. Its extrema are written and read as float32, and the
            # result is written, which takes about as long.
            self._note("fused", plan.convolution.tiles, 1e-6 * time)
        return plan


def bytes_of(array: Array) -> int:
    """Return the bytes of an array in memory: a broadcast axis counts as one element."""
    sizes = (size for size, stride in zip(array.shape, array.strides, strict=True) if stride)
    return math.prod(sizes) * array.dtype.itemsize if array.size else 0
