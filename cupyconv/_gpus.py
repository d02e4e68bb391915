"""The names that GPUs go by, and the rates of the current one."""

from __future__ import annotations

import re
from typing import Any

from ._arguments import shown
from ._device import CupyDevice
from ._kernels.chips import CHIPS, KNOWN, Chip

_ASSUMED = "H100"  # by `assumed`

# Parts of names that tell no two GPUs apart: the maker's words, the memory, spaces and marks.
_INDISTINCT = re.compile(
    r"nvidia|geforce|tesla|rtx|sm(?=[_ ]?\d)|sxm\d*|\b\d+gb|hbm\d\w*|[^a-z0-9]"
)


def _plain(name: str) -> str:
    """Return what tells the name of a GPU from others: ``"h100"``, ``"3090"``, ``"90"``."""
    return _INDISTINCT.sub("", name.lower())


# By plain names of GPUs, and of compute capabilities with and without a suffix.
_BY_NAME = {_plain(chip.name): chip for chip in KNOWN}
for _target, _chip in CHIPS.items():
    _capability = _target.strip("sm_a")
    _BY_NAME |= {_capability: _chip, f"{_capability}a": _chip}


def named(name: object) -> Chip:
    """Return the GPU that a name, a target or a compute capability stands for, or raise."""
    chip = _BY_NAME.get(_plain(name)) if isinstance(name, str) else None
    if chip is None:
        raise ValueError(f"explain: target must be one of {names()}, got {shown(name)}")
    return chip


def names() -> str:
    """Return the names of all GPUs and the targets that kernels are compiled for, in words."""
    return f"{', '.join(chip.name for chip in KNOWN)}, {', '.join(CHIPS)}"


def assumed() -> Chip:
    """Return the GPU that calls on NumPy arrays are explained for where there is none."""
    return named(_ASSUMED)


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
