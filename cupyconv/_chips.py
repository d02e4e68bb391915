"""Peak rates of GPUs, as their makers state them. They bound the speed of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ._device import CupyDevice
from ._kernels.launches import Processor


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
    "sm_86": _Rates(2, 128, 128, 256),
    "sm_89": _Rates(2, 128, 128, 256),
    "sm_90a": _H200,
    "sm_100": _Rates(64, 128, 2048, 4096),
    "sm_120": _Rates(2, 128, 128, 256),
}
# Fractions of its peak rates that an H200 sustains: the bandwidth in a copy, the multiply-adds in
# long matrix products, and the clock.
_COPY, _PRODUCTS, _CLOCK = 0.88, 0.76, 0.89


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
        return _RATES[self.processor.target]

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
        if unit == "Tensor Core" and dtype.itemsize == 2:
            return max(1, _H200.half / self._rates.half)
        return max(1, _H200.tf32 / self._rates.tf32) if unit == "Tensor Core" else 1

    def product_rate(self, dtype: np.dtype, precision: str) -> float | None:
        """Return the multiply-adds per second that long matrix products sustain.

        Return None for integers.
        """
        if dtype.kind in "iu":
            return None
        tensor_cores = 0.0
        if dtype.name == "float32":  # float32 accuracy takes three TF32 products
            tensor_cores = self._rates.tf32 / (3 if precision == "float32" else 1)
        elif dtype.itemsize == 2 and (dtype.name == "float16" or self._rates.tf32):
            tensor_cores = self._rates.half
        cycles = self.processor.multiprocessors * self.clock
        return _PRODUCTS * max(tensor_cores, self._scalar(dtype)) * cycles


# A well-known GPU for each target.
CHIPS = {
    chip.processor.target: chip
    for chip in (
        Chip("T4", Processor("sm_75", 40), 1.59e9, 0.32e12),
        Chip("A100", Processor("sm_80", 108), 1.41e9, 2.04e12),
        Chip("RTX 3090", Processor("sm_86", 82), 1.70e9, 0.94e12),
        Chip("RTX 4090", Processor("sm_89", 128), 2.52e9, 1.01e12),
        Chip("H200", Processor("sm_90a", 132), 1.98e9, 4.80e12),
        Chip("B200", Processor("sm_100", 148), 1.97e9, 8.00e12),
        Chip("RTX 5090", Processor("sm_120", 170), 2.41e9, 1.79e12),
    )
}


def current() -> Chip:
    """Return the current CUDA device with the rates that the driver reports."""
    import cupy

    device = cupy.cuda.Device()
    processor = CupyDevice().processor()
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    attributes: dict[str, Any] = device.attributes  # clock rates in kHz, the bus width in bits
    known = CHIPS[processor.target]
    clock = 1e3 * attributes.get("ClockRate", 0) or known.clock
    transfers = 2e3 * attributes.get("MemoryClockRate", 0)  # two transfers per cycle
    width = attributes.get("GlobalMemoryBusWidth", 0)
    bandwidth = transfers * width / 8 or known.bandwidth
    return Chip(name, processor, clock, bandwidth)
