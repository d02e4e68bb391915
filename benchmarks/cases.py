"""What is measured: the cases of the JSON files beside this module.

A file is a section: a list of cases, each with an ``id`` of its own. A convolution has the keys of
`Convolution`, with one value for each spatial axis; more keys may be there and are ignored. With
``"operation": "fused"`` a case has the keys of `Fused`. A new file is found without a change here.
"""

from __future__ import annotations

import fnmatch
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

DIRECTORY = Path(__file__).parent
HOST = "host"  # the name of the host time of a small call
MATRIX = "matrix"  # the name of KernelBench's dense convolutions, on which Tensor Cores are judged
KERNELBENCH = "kernelbench_l1"

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """A convolution, or a transposed one."""

    section: str
    id: str
    transposed: bool
    input: Shape
    weight: Shape
    stride: Shape
    padding: Shape
    output_padding: Shape
    dilation: Shape
    groups: int
    bias: bool

    @property
    def rank(self) -> int:
        return len(self.input) - 2

    @property
    def function(self) -> str:
        """The name that the call has in cupyconv and in torch.nn.functional."""
        return f"conv{'_transpose' if self.transposed else ''}{self.rank}d"

    @property
    def channels(self) -> int:
        """Input channels of one group."""
        return self.input[1] // self.groups

    @property
    def rows(self) -> int:
        """Output channels of one group."""
        return self.weight[1] if self.transposed else self.weight[0] // self.groups

    @property
    def output(self) -> Shape:
        sizes = (
            (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + extra + 1
            if self.transposed
            else (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, pad, extra, dilation in zip(
                self.input[2:],
                self.weight[2:],
                self.stride,
                self.padding,
                self.output_padding,
                self.dilation,
                strict=True,
            )
        )
        return (self.input[0], self.rows * self.groups, *sizes)

    @property
    def operations(self) -> int:
        """Multiplications and additions, products with the padding included."""
        taps = math.prod(self.weight[2:])
        if self.transposed:
            return 2 * math.prod(self.input) * self.rows * taps
        return 2 * math.prod(self.output) * self.channels * taps

    @property
    def elements(self) -> int:
        """Numbers that are read or written: input, weight, bias and output, once each."""
        parts = (self.input, self.weight, self.output)
        return sum(map(math.prod, parts)) + (self.output[1] if self.bias else 0)

    @property
    def kind(self) -> str:
        """What sort of kernel the case asks for."""
        if self.groups > 1:
            return "depthwise" if self.channels == 1 else "grouped"
        if self.channels <= 4:
            return "few-channels"
        apart = all(s >= k for s, k in zip(self.stride, self.weight[2:], strict=True))
        if self.transposed and apart and max(self.stride) > 1:
            return "sparse"
        return "dense"

    @property
    def names(self) -> frozenset[str]:
        """The names by which the case can be chosen."""
        direction = "transposed" if self.transposed else "standard"
        names = {self.id, self.section, self.kind, direction, f"{self.rank}d"}
        if math.prod(self.weight[2:]) == 1:
            names.add("pointwise")
        if self.section == KERNELBENCH and self.kind == "dense":
            names.add(MATRIX)
        return frozenset(names)

    def __str__(self) -> str:
        defaults = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}
        parts = [f"{_times(self.input)} * {_times(self.weight)}"]
        if self.transposed:
            parts.append("T")
        for name, default in defaults.items():
            values = getattr(self, name)
            if set(values) != {default}:
                same = len(set(values)) == 1
                parts.append(name[0] + (str(values[0]) if same else ",".join(map(str, values))))
        if self.groups > 1:
            parts.append(f"g{self.groups}")
        return " ".join(parts)


@dataclass(frozen=True)
class Fused:
    """Transposed convolution, batch norm, tanh, max pool and group norm in one call.

    The statistics of the batch norm are computed from the ``"batch"``, or ``"given"``.
    """

    section: str
    id: str
    input: Shape
    weight: Shape
    stride: Shape
    padding: Shape
    output_padding: Shape
    groups: int
    num_groups: int
    statistics: str

    @property
    def convolution(self) -> Convolution:
        return Convolution(
            section=self.section,
            id=self.id,
            transposed=True,
            input=self.input,
            weight=self.weight,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=(1,) * len(self.stride),
            groups=self.groups,
            bias=False,
        )

    @property
    def parameters(self) -> int:
        """Arrays of one value for each channel."""
        return 6 if self.statistics == "given" else 4

    @property
    def output(self) -> Shape:
        samples, channels, *space = self.convolution.output
        return (samples, channels, *(size // 2 for size in space))

    @property
    def operations(self) -> int:
        """Those of the convolution."""
        return self.convolution.operations

    @property
    def elements(self) -> int:
        """Numbers that are read or written: input, parameters and output, once each."""
        parts = (self.input, self.weight, self.output)
        return sum(map(math.prod, parts)) + self.parameters * self.output[1]

    @property
    def kind(self) -> str:
        return "fused"

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.id, self.section, self.kind})

    def __str__(self) -> str:
        return f"{self.convolution}, {self.num_groups} groups, {self.statistics} statistics"


Case: TypeAlias = Convolution | Fused


def _times(shape: Shape) -> str:
    return "×".join(map(str, shape))


# Cases for measuring the call overhead.
SMALL = tuple(
    Convolution(
        section=HOST,
        id=HOST,
        transposed=transposed,
        input=(1, 8, 8, 8),
        weight=(8, 8, 3, 3),
        stride=(1, 1),
        padding=(0, 0),
        output_padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        bias=False,
    )
    for transposed in (False, True)
)


def parse(section: str, items: Iterable[dict[str, Any]]) -> list[Case]:
    """Return the cases of a section from the items of its file."""
    cases: list[Case] = []
    for item in items:
        kind = {"convolution": Convolution, "fused": Fused}[item.get("operation", "convolution")]
        values = {**item, "section": section}
        arguments = {field.name: values[field.name] for field in fields(kind)}
        cases.append(
            kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})
        )
    return cases


def load(directory: Path = DIRECTORY) -> list[Case]:
    """Return all cases of a directory, file by file."""
    cases: list[Case] = []
    for path in sorted(directory.glob("*.json")):
        cases += parse(path.stem, json.loads(path.read_text(encoding="utf-8")))
    return cases


def select(cases: Sequence[Case], names: Sequence[str]) -> tuple[list[Case], bool]:
    """Return the cases that have one of `names`, or match one as a pattern, and whether the host
    time is asked for. No names mean everything.
    """
    if not names:
        return list(cases), True
    wanted = [name for name in names if name != HOST]
    for name in wanted:
        if not any(_has(case, name) for case in cases):
            known = sorted({n for case in cases for n in case.names - {case.id}} | {HOST})
            raise ValueError(f"no case is called {name!r}; there are ids, and {', '.join(known)}")
    return [case for case in cases if any(_has(case, name) for name in wanted)], HOST in names


def _has(case: Case, name: str) -> bool:
    return any(fnmatch.fnmatchcase(own, name) for own in case.names)
