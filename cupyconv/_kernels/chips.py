"""Peak rates of GPUs, as their maker states them.

No call is faster than the peak rates allow. Kernels are compared by the rates of the GPU that
stands for a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .launches import Processor


class _Rates(NamedTuple):
    """Peak multiply-adds per cycle and multiprocessor."""

    double: int  # float64, without Tensor Cores
    single: int  # float32, without Tensor Cores
    tf32: int  # on Tensor Cores
    half: int  # float16 on Tensor Cores with sums in float32; also bfloat16 on GPUs with TF32


_H200 = _Rates(64, 128, 1024, 2048)
_RATES = {
    "sm_75": _Rates(2, 64, 0, 512),
    "sm_80": _Rates(32, 64, 512, 1024),
    "sm_86": _Rates(2, 128, 256, 512),
    "sm_89": _Rates(2, 128, 256, 512),
    "sm_90a": _H200,
    "sm_100": _Rates(64, 128, 2048, 4096),
    "sm_120": _Rates(2, 128, 256, 512),
}
# GPUs with this word in their name sum Tensor Core products in float32 at half of the rate.
_HALVED = "GeForce"
# Fractions of its peak rates that an H200 sustains: the bandwidth in a copy, and the clock.
_COPY, _CLOCK = 0.88, 0.89


@dataclass(frozen=True)
class Chip:
    """A GPU and its peak rates.

    Attributes
    ----------
    name : str
        The maker's name of the GPU.
    processor : Processor
        The properties that plans depend on.
    clock : float
        Peak clock in cycles per second.
    bandwidth : float
        Peak memory bandwidth in bytes per second.
    """

    name: str
    processor: Processor
    clock: float
    bandwidth: float

    @property
    def copy_rate(self) -> float:
        """Bytes per second that a copy sustains, where read and written bytes both count."""
        return _COPY * self.bandwidth

    def seconds(self, cycles: float) -> float:
        """Return the seconds that `cycles` take at the sustained clock."""
        return cycles / (_CLOCK * self.clock)

    @property
    def _rates(self) -> _Rates:
        rates = _RATES[self.processor.target]
        if _HALVED in self.name:
            return rates._replace(tf32=rates.tf32 // 2, half=rates.half // 2)
        return rates

    def _scalar(self, dtype: np.dtype) -> float:
        """Return the multiply-adds per cycle and multiprocessor without Tensor Cores."""
        rate = self._rates.double if dtype.name in ("float64", "complex128") else self._rates.single
        return rate / 4 if dtype.kind == "c" else rate

    def slowness(self, unit: str, dtype: np.dtype) -> float:
        """Return the cycles that a unit of this GPU takes for one cycle's work of an H200's.

        The models of kernels have the rates of an H200: of Tensor Cores, of float32 multiply-adds
        ("FMA"), or of memory in bytes a cycle, which counts as equal everywhere.
        """
        if unit == "FMA":
            return _H200.single / self._scalar(dtype)
        if unit == "Tensor Core" and dtype.itemsize == 8:
            return _H200.double / self._rates.double
        if unit == "Tensor Core" and dtype.itemsize == 2:
            return max(1, _H200.half / self._rates.half)
        return max(1, _H200.tf32 / self._rates.tf32) if unit == "Tensor Core" else 1

    def product_rate(self, dtype: np.dtype, precision: str) -> float | None:
        """Return the multiply-adds per second of the fastest units that may be used, at their peak.

        Return None for integers.
        """
        if dtype.kind in "iu":
            return None
        rates, tensor_cores = self._rates, 0.0
        if dtype.name in ("float32", "complex64"):
            # float32 accuracy takes three TF32 products. On GPUs with wgmma, inputs may be scaled
            # to float16 numbers: to one for TF32, to pairs with two products for float32. A complex
            # product takes four real ones, always in float32 accuracy.
            full = precision == "float32" or dtype.kind == "c"
            tensor_cores = rates.tf32 / (3 if full else 1)
            if self.processor.has_wgmma:
                tensor_cores = max(tensor_cores, rates.half / (2 if full else 1))
            if dtype.kind == "c":
                tensor_cores /= 4
        elif dtype.itemsize == 2 and (dtype.name == "float16" or rates.tf32):
            tensor_cores = rates.half
        cycles = self.processor.multiprocessors * self.clock
        return max(tensor_cores, self._scalar(dtype)) * cycles


# Well-known GPUs. The first one of a target stands for the target.
KNOWN = (
    Chip("T4", Processor("sm_75", 40), 1.59e9, 0.32e12),
    Chip("A100", Processor("sm_80", 108), 1.41e9, 2.04e12),
    Chip("GeForce RTX 3090", Processor("sm_86", 82), 1.70e9, 0.94e12),
    Chip("A10", Processor("sm_86", 72), 1.70e9, 0.60e12),
    Chip("GeForce RTX 4090", Processor("sm_89", 128), 2.52e9, 1.01e12),
    Chip("L4", Processor("sm_89", 58), 2.04e9, 0.30e12),
    Chip("L40S", Processor("sm_89", 142), 2.52e9, 0.87e12),
    Chip("H100", Processor("sm_90a", 132), 1.98e9, 3.36e12),
    Chip("H200", Processor("sm_90a", 132), 1.98e9, 4.80e12),
    Chip("B200", Processor("sm_100", 148), 1.97e9, 8.00e12),
    Chip("GeForce RTX 5090", Processor("sm_120", 170), 2.41e9, 1.79e12),
)
CHIPS: dict[str, Chip] = {}
for _chip in KNOWN:
    CHIPS.setdefault(_chip.processor.target, _chip)
