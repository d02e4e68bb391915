"""GPUs as their makers describe them: how fast a call could be at best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ._device import CupyDevice
from ._kernels.launches import Processor


class _Rates(NamedTuple):
    """Multiply-adds a cycle of a multiprocessor: those of matrix units with sums in float32."""

    double: int
    single: int
    tf32: int
    half: int  # and bfloat16, where there is TF32


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
# What an H200 keeps up of these figures: in a copy, in long matrix products, and of the clock.
_COPY, _PRODUCTS, _CLOCK = 0.88, 0.76, 0.89


@dataclass(frozen=True)
class Chip:
    """What limits are computed from.

    Attributes
    ----------
    clock : float
        Cycles a second, at most.
    bandwidth : float
        Bytes a second that the memory moves, at most.
    """

    name: str
    processor: Processor
    clock: float
    bandwidth: float

    @property
    def copy_rate(self) -> float:
        """Bytes a second of a copy, those read and those written."""
        return _COPY * self.bandwidth

    def seconds(self, cycles: float) -> float:
        """Return the time of so many cycles."""
        return cycles / (_CLOCK * self.clock)

    @property
    def _rates(self) -> _Rates:
        return _RATES[self.processor.target]

    def _scalar(self, dtype: np.dtype) -> float:
        """Return the multiply-adds a cycle of a multiprocessor without matrix units."""
        rate = self._rates.double if dtype.name in ("float64", "complex128") else self._rates.single
        return rate / 4 if dtype.kind == "c" else rate

    def scalar_slowness(self, dtype: np.dtype) -> float:
        """Return how much longer a cycle's work in float32 of an H200 takes."""
        return _H200.single / self._scalar(dtype)

    def matrix_slowness(self, dtype: np.dtype) -> float:
        """Return how much longer a cycle's work of an H200's matrix units takes."""
        if dtype.itemsize == 2:
            return max(1, _H200.half / self._rates.half)
        return max(1, _H200.tf32 / self._rates.tf32)

    def product_rate(self, dtype: np.dtype, precision: str) -> float | None:
        """Return the multiply-adds a second of long matrix products; None for integers."""
        if dtype.kind in "iu":
            return None
        units = 0.0
        if dtype.name == "float32":
            units = self._rates.tf32 / (3 if precision == "float32" else 1)
        elif dtype.itemsize == 2 and (dtype.name == "float16" or self._rates.tf32):
            units = self._rates.half
        cycles = self.processor.multiprocessors * self.clock
        return _PRODUCTS * max(units, self._scalar(dtype)) * cycles


# For each target a GPU that it is known by, with the figures of its maker.
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
    """Return the current CUDA device, as its driver describes it."""
    import cupy

    device = cupy.cuda.Device()
    processor = CupyDevice().processor()
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    facts: dict[str, Any] = device.attributes  # kHz and bits; two transfers a cycle
    known = CHIPS[processor.target]
    clock = 1e3 * facts.get("ClockRate", 0) or known.clock
    bits = facts.get("GlobalMemoryBusWidth", 0)
    bandwidth = 2e3 * facts.get("MemoryClockRate", 0) * bits / 8 or known.bandwidth
    return Chip(name, processor, clock, bandwidth)
