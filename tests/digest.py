"""A digest of all launches and argument words of random calls: what a redesign must not change.

::

    PYTHONPATH=.:tests python tests/digest.py --count 3000 --lines before.txt

Take it before the change and after each step, and compare the files of lines, one for each call, to
find a difference. Nothing runs: calls go to a device that takes notes.
"""

from __future__ import annotations

import argparse
import hashlib
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import cupyconv
import fuzz_cases
from cupyconv import _calls
from cupyconv._arrays import Blueprint
from cupyconv._kernels import choice
from cupyconv._kernels.choice import KERNELS
from cupyconv._kernels.launches import Launch, Processor
from cupyconv._launch import KernelPath
from cupyconv._tensor_maps import WORDS, Boxes, Pixels
from fuzz_sizes import ON_GPU
from reference import Shape
from strategies import Case

TARGETS = ("sm_90a", "sm_75", "sm_80", "sm_120")
RESULT, WORKSPACE = 2**38, 2**39  # addresses


class Notes:
    """A device that runs nothing, and adds what it is asked for to a digest."""

    def __init__(self, processor: Processor, addresses: dict[int, int]) -> None:
        self._processor, self.addresses = processor, addresses
        self.digest = hashlib.sha256()
        self.memory: list[Any] = []  # kept, so that no other array has the same id

    def processor(self) -> Processor:
        return self._processor

    def address(self, array: Any) -> int:
        return self.addresses.get(id(array), RESULT)

    def tensor_map(self, address: int, array: Boxes | Pixels) -> tuple[int, ...]:
        self.digest.update(f"{address} {array}".encode())
        return (0,) * WORDS

    def workspace(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        self.digest.update(repr((tuple(shape), dtype.name)).encode())
        memory = Blueprint(tuple(shape), dtype)
        self.addresses[id(memory)] = WORKSPACE
        self.memory.append(memory)
        return memory

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        return array if array.dtype == dtype else self.workspace(array.shape, dtype)

    def split(self, array: Any, real: Any, imag: Any, conjugate: bool = False) -> None:
        layouts = [(a.shape, a.strides, a.dtype.name) for a in (array, real, imag)]
        self.digest.update(f"{layouts} {conjugate}".encode())

    def load(self, launches: Iterable[Launch]) -> None:
        pass

    def launcher(self, launch: Launch) -> Callable[[Any], None]:
        def run(arguments: Any) -> None:
            self.digest.update(f"{launch} {launch.unit} {launch.early}".encode())
            self.digest.update(arguments.tobytes())

        return run


def noted(case: Case, kernels: tuple[str | None, ...], processor: Processor) -> str:
    """The digest of a call by each of some kernels."""
    addresses: dict[int, int] = {}
    device = Notes(processor, addresses)
    arrays: dict[str, Any] = {}
    for number, (name, a) in enumerate(case.arrays.items(), 1):
        arrays[name] = None
        if a is not None:
            address = 2**33 * number + a.__array_interface__["data"][0] % 16
            arrays[name] = Blueprint(a.shape, a.dtype, a.strides, address)
            arrays[name].path = KernelPath(device)
            addresses[id(arrays[name])] = address
    for kernel in kernels:
        _calls.kept.clear()
        with choice.forced(kernel):
            operator.attrgetter(case.function)(cupyconv)(**arrays, **case.options)
    return device.digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--lines", type=Path)
    options = parser.parse_args()
    lines = []
    for target in TARGETS:
        for number in range(options.count if target == "sm_90a" else options.count // 3):
            example = fuzz_cases.example(0, number, ON_GPU)
            if len(example.cases) > 1:
                continue
            every = target == "sm_90a" and number % 3 == 0
            kernels = (None, *KERNELS) if every else example.kernels[0][:1]
            found = noted(example.case, kernels, Processor(target, 132))
            lines.append(f"{target} {number} {example.case.function} {found}\n")
    if options.lines:
        options.lines.write_text("".join(lines), encoding="utf-8")
    print(len(lines), hashlib.sha256("".join(lines).encode()).hexdigest()[:16])


if __name__ == "__main__":
    main()
