"""Fourth layer: plans are bound to the layouts of arrays, and kernels put on the current stream.

Each kernel's module packs its own arguments. A device gives what only it knows: addresses,
workspace, the launch itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from . import _complex
from ._arrays import Array, Blueprint, Convolution, Fused, WeightGradient, floating
from ._device import Device
from ._fft import complex_dtype, spectrum_lengths
from ._geometry import ConvGeometry, NormGeometry, PoolGeometry
from ._kernels import (
    borders,
    choice,
    fused,
    max_pool2d,
    normalize,
    relayed,
    spectra,
    sum_splits,
)
from ._kernels.choice import Choice
from ._kernels.fused import FusedPlan
from ._kernels.max_pool2d import PoolPlan
from ._kernels.normalize import NormPlan
from ._kernels.question import Plan, Question, Refusal
from ._kernels.relayed import Relay
from ._kernels.views import Placed, placed
from ._packing import strides_of
from ._placement import Placement
from ._strides import ConvStrides, arranged, conv_strides


class KernelPath:
    """Convolutions, norms and pooling by the kernels of a device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for the launches of one call."""
        return self.device.workspace(shape, dtype)

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy in workspace."""
        return self.device.cast(array, dtype)

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
        """Return a function that convolves any arrays with these shapes, strides and dtypes.

        The function holds no address, and nothing that comes from the contents of an array. A call
        runs it the given number of times.
        """
        if self._refuse_parts(geometry, out.dtype) is None:
            return _complex.prepare(geometry, bias, out, self.device, self._bind, times)
        strides = conv_strides(geometry, data, weight, out)
        convolve = self._bind(geometry, strides, out.dtype, precision, bias, times)
        dtype, cast = out.dtype, self.device.cast
        if data.dtype == weight.dtype == dtype:
            return convolve
        return lambda data, weight, *rest: convolve(cast(data, dtype), cast(weight, dtype), *rest)

    def takes_borders(self, geometry: ConvGeometry, dtype: np.dtype, precision: str) -> bool:
        """Return whether the kernel that is chosen stages the borders of the input itself."""
        if geometry.transposed:
            return False
        taken = choice.choose(geometry, dtype, precision, self.device.processor())
        return taken.kernel == "depthwise"

    def prepare_pad(
        self, placement: Placement, data: Array, times: int
    ) -> Callable[[Array, Array], None]:
        """Return a function that writes padded copies of arrays with the strides of `data`."""
        return borders.bind_pad(placement, data, self.device)

    def prepare_fold(
        self, placement: Placement, bias: Array | None, out: Array, times: int
    ) -> Callable[[Array, Array | None, Array], None]:
        """Return a function that folds padded results to arrays with the strides of `out`."""
        return borders.bind_fold(placement, bias, out, self.device)

    def prepare_sum(self, shape: tuple[int, ...], out: Array) -> Callable[[Array, Array], None]:
        """Return a function that adds two arrays of this shape, which follow each other."""
        template = sum_splits.template(2, shape, strides_of(out))
        run = self.device.launcher(sum_splits.launch(out.dtype, math.prod(shape)))
        address = self.device.address
        return lambda terms, out: run(template.fill(address(terms), address(out), 0))

    def gain_by_fft(
        self, geometry: ConvGeometry, dtype: np.dtype, precision: str, gradient: bool
    ) -> float:
        """Return how many times as long sums over taps should take as FFT, whatever the batch."""
        return choice.gain_by_fft(geometry, dtype, precision, gradient, self.device.processor())

    def note_method(self, method: str, gain: Callable[[], float]) -> None:
        """Do nothing."""

    def prepare_spectrum(
        self, array: Array, placement: Placement, dtype: np.dtype, conjugate: bool
    ) -> Callable[[Array], Array]:
        """Return a function that gives the spectra of arrays, or of conjugates, in larger ones.

        A larger array is transformed in its own memory, where lines of real numbers have room for
        the last frequency.
        """
        device, (first, *others) = self.device, placement.padded
        shape = math.prod(placement.components) * first, *others
        conjugate &= dtype.kind == "c"
        source = Blueprint(array.shape, dtype) if conjugate or array.dtype != dtype else array
        frequencies = spectrum_lengths(shape[3:], dtype)
        lines = Blueprint((*placement.padded[:3], *frequencies), complex_dtype(dtype))
        placement = replace(placement, padded=lines.view(dtype).shape)
        place = borders.bind_pad(placement, source, device)

        def spectrum(array: Array) -> Array:
            array = device.cast(array, dtype)
            memory = self.spectra(shape, dtype)
            place(device.conjugate(array) if conjugate else array, memory)
            device.transform(memory, shape[3:], dtype, inverse=False)
            return memory

        return spectrum

    def spectra(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return memory for the spectra of arrays of a shape."""
        frequencies = spectrum_lengths(shape[3:], dtype)
        return self.device.workspace((*shape[:3], *frequencies), complex_dtype(dtype))

    def prepare_multiply(
        self, a: Array, b: Array, out: Array, scale: float, adds: bool
    ) -> Callable[[Array, Array, Array], None]:
        """Return a function that writes or adds scaled products of spectra."""
        return spectra.bind(a, b, out, scale, adds, self.device)

    def values(self, spectrum: Array, lengths: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return the arrays of spectra, without their scale, in the same memory."""
        self.device.transform(spectrum, lengths, dtype, inverse=True)
        return spectrum.view(dtype)[..., : lengths[-1]]

    def write(self, values: Array, bias: Array | None, out: Array) -> None:
        """Write values to `out`, with a bias that is broadcast to them."""
        self.device.write(values, bias, out)

    def prepare_weight_gradient(
        self,
        geometry: ConvGeometry,
        data: Array,
        grad_output: Array,
        out: Array,
        precision: str,
        times: int = 1,
    ) -> WeightGradient:
        """Return a function that writes the gradient of the weight of the convolution `geometry`.

        It takes any input, gradient of the output and result with such shapes, strides and dtypes.
        """
        question = Question(geometry, out.dtype, precision, self.device.processor())
        chosen = self._choose_weight_gradient(question)
        self.device.load(chosen.plan.launches)
        kernel = choice.GRADIENTS[chosen.kernel]
        bound: WeightGradient = kernel.bind(
            chosen.plan, question, data, grad_output, out, self.device
        )
        return bound

    def _choose_weight_gradient(self, question: Question) -> Choice:
        return choice.choose_weight_gradient(question)

    def _refuse_parts(self, geometry: ConvGeometry, dtype: np.dtype) -> Refusal | None:
        return choice.refuse_parts(geometry, dtype, self.device.processor())

    def _bind(
        self,
        geometry: ConvGeometry,
        strides: ConvStrides,
        dtype: np.dtype,
        precision: str,
        bias: Array | None,
        times: int = 1,
    ) -> Convolution:
        """Return the convolution by the kernel that is chosen for it; a call runs it `times`."""
        geometry, strides = arranged(geometry, strides)
        question = Question(geometry, dtype, precision, self.device.processor())
        if found := choice.relay(question, strides):
            return self._relay(found, question, strides, bias)
        return self._bind_plan(bias, question, strides)

    def _relay(
        self, found: Relay, question: Question, strides: ConvStrides, bias: Array | None
    ) -> Convolution:
        """Return the convolution by way of copies in C order."""
        bind_chunk = partial(self._bind_plan, bias)
        return relayed.bind(found, question, strides, self.device, bind_chunk)

    def _bind_plan(
        self, bias: Array | None, question: Question, strides: ConvStrides, times: int = 1
    ) -> Convolution:
        """Return the convolution by the kernel that is chosen for it, without copies."""
        plan = choice.settled(self._plan_conv(question, strides), question, strides)
        self.device.load(plan.launches)
        return choice.kernel_of(plan).bind(plan, question, strides, bias, self.device)

    def _plan_conv(self, question: Question, strides: ConvStrides) -> Plan:
        return choice.plan_conv(
            question.geometry, question.dtype, question.precision, question.processor
        )

    def fused(
        self,
        convolution: ConvGeometry,
        pooling: PoolGeometry,
        group_norm: NormGeometry,
        precision: str,
        data: Array,
        kernel: Array,
        given: bool,
        eps: float,
        out: Array,
    ) -> Fused | None:
        """Return a function that runs the fused operation on arrays like these.

        The result is None where the operation has no plan. Statistics may be `given`.
        """
        groups, processor = group_norm.sets_per_sample, self.device.processor()
        plan = self._plan_fused(convolution, pooling.out_shape, groups, out, precision)
        if isinstance(plan, str):
            return None
        self.device.load((*plan.convolution.launches, plan.norm.combine, plan.norm.normalize))

        def normalize_groups(
            extrema: Array, parameters: Sequence[Array | None], out: Array
        ) -> None:
            norm = self._plan_norm(group_norm, extrema, out, given=False, tanh=False)
            self._normalize(norm, group_norm, extrema, (None, None, *parameters), eps, out)

        return fused.bind(
            plan,
            Question(convolution, out.dtype, precision, processor),
            pooling,
            groups,
            (data, kernel, out),
            given,
            eps,
            normalize_groups,
            self.device,
        )

    def _plan_fused(
        self,
        convolution: ConvGeometry,
        pooled: tuple[int, ...],
        num_groups: int,
        out: Array,
        precision: str,
    ) -> FusedPlan | Refusal:
        processor = self.device.processor()
        return choice.plan_fused(convolution, pooled, num_groups, out.dtype, precision, processor)

    def normalize(
        self,
        geometry: NormGeometry,
        data: Array,
        mean: Array | None,
        var: Array | None,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        out: Array,
        tanh: bool = False,
    ) -> None:
        """Write the normalised `data` to `out`, computed in float64, and with `tanh` its tanh."""
        data = self.device.cast(data, floating(data.dtype))
        plan = self._plan_norm(geometry, data, out, given=mean is not None, tanh=tanh)
        self._normalize(plan, geometry, data, (mean, var, weight, bias), eps, out)

    def _plan_norm(
        self, geometry: NormGeometry, data: Array, out: Array, *, given: bool, tanh: bool
    ) -> NormPlan:
        across = normalize.lies_across(geometry, self._placed(data), self._placed(out))
        processor = self.device.processor()
        return normalize.plan(geometry, data.dtype, out.dtype, given, tanh, across, processor)

    def _normalize(
        self,
        plan: NormPlan,
        geometry: NormGeometry,
        data: Array,
        parameters: Sequence[Array | None],
        eps: float,
        out: Array,
    ) -> None:
        normalize.run(plan, geometry, data, parameters, eps, out, self.device)

    def _placed(self, array: Array) -> Placed:
        return placed(self.device.address(array), strides_of(array), array.dtype.itemsize)

    def max_pool2d(self, geometry: PoolGeometry, data: Array, out: Array) -> None:
        """Write the maximum of each window to `out`; a NaN in a window is its maximum."""
        across = max_pool2d.lies_across(geometry, self._placed(data), self._placed(out))
        plan = max_pool2d.plan(geometry, out.dtype, self.device.processor(), across)
        self._max_pool2d(plan, geometry, data, out)

    def _max_pool2d(self, plan: PoolPlan, geometry: PoolGeometry, data: Array, out: Array) -> None:
        max_pool2d.run(plan, geometry, data, out, self.device)
