"""Arguments of kernels, packed by the names of the members of their ``struct Arguments``.

All members have 64 bits, or are arrays of bytes that fill whole words. A struct is a mapping of its
members in order, an array of them a sequence. What is known at the call alone, such as an address,
is `CALL` in the template.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .._arrays import Array, Convolution
from .._borders import PADDING_MODES
from .._packing import Arguments, long_reciprocal, parameter_fields
from .._taps import AxisTaps
from .launches import Launch

if TYPE_CHECKING:
    from .._device import Device


class _Call:
    """Stands for a word that each call puts in its place."""


CALL: Final = _Call()

Member: TypeAlias = "int | _Call | Mapping[str, Member] | Sequence[Member]"
Members: TypeAlias = Mapping[str, Member]


def _append(words: list[int], places: list[int], members: Iterable[Member]) -> None:
    """Append the words of members, and the places of `CALL` among the words."""
    for member in members:
        if isinstance(member, int):
            words.append(member)
        elif isinstance(member, _Call):
            places.append(len(words))
            words.append(0)
        else:
            _append(words, places, member.values() if isinstance(member, Mapping) else member)


@cache
def _filler(places: tuple[int, ...]) -> Callable[[Arguments], Callable[..., Arguments]]:
    """Return a function that makes `Template.fill` of the words of a template.

    Its code is generated, one assignment for each place, because a loop over the places would take
    a tenth of the call overhead of a small convolution.
    """
    values = ", ".join(f"value{i}" for i in range(len(places)))
    assignments = [f"        filled[{place}] = value{i}" for i, place in enumerate(places)]
    lines = [
        "def filler(words):",
        f"    def fill({values}):",
        "        filled = words[:]",
        *assignments,
        "        return filled",
        "    return fill",
    ]
    scope: dict[str, Callable[[Arguments], Callable[..., Arguments]]] = {}
    exec("\n".join(lines), scope)
    return scope["filler"]


class Template:
    """The arguments of a launch of a ``.cu`` file, in which each call fills some places.

    `members` are the members of the ``struct Arguments`` of the file `source`, in order; a test
    compares their names. `fill` returns the arguments with its values in the places of `CALL`.
    The words are a multiple of `whole`, as a struct that holds tensor maps is aligned to 64 bytes.
    """

    def __init__(self, source: str, members: Members, whole: int = 1) -> None:
        self.source, self.members = source, members
        words: list[int] = []
        places: list[int] = []
        _append(words, places, members.values())
        words += [0] * (-len(words) % whole)
        self.fill = _filler(tuple(places))(array("q", words))


# A ``struct Parameter`` that is known at the call alone.
PARAMETER: Final[Members] = {"data": CALL, "type": CALL, "stride": CALL}


def parameter(array: Array | None) -> Members:
    """Return a ``struct Parameter``, whose address belongs to the call."""
    kind, stride = parameter_fields(array)
    return {"data": CALL, "type": kind, "stride": stride}


def parameter_words(array: Array | None, device: Device) -> tuple[int, int, int]:
    """Return what a call puts in the places of `PARAMETER`."""
    return 0 if array is None else device.address(array), *parameter_fields(array)


def divisor(value: int) -> Members:
    """Return a ``struct Divisor``; what is divided by zero is not used."""
    return {"value": value, "reciprocal": long_reciprocal(value) if value else 0}


def float64_word(value: float) -> int:
    """Return the word of a ``double``."""
    return int(np.float64(value).view(np.int64))


def struct(value: Any) -> dict[str, Member]:
    """Return the members of a dataclass that has the fields of a struct, in order."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def byte_words(values: Sequence[int], room: int) -> list[int]:
    """Return `values`, filled up with zeros to an array of `room` bytes, as words of eight."""
    return list(array("q", bytes(values) + bytes(room - len(values))))


def border_word(padding_mode: str | None) -> int:
    """Return the ``BorderMode`` of a padding mode."""
    return 0 if padding_mode is None else 1 + PADDING_MODES.index(padding_mode)


def axis_taps(axis: AxisTaps) -> Members:
    """Return a ``struct AxisTaps``."""
    return struct(axis)


def one_launch(device: Device, launch: Launch, template: Template) -> Convolution:
    """Return a convolution of one launch, which puts the addresses of its arrays in their places.

    The `CALL` members are the addresses of input, weight, out and the bias, in this order.
    """
    run, address = device.launcher(launch), device.address

    def convolve(data: Array, weight: Array, bias: Array | None, out: Array) -> None:
        term = 0 if bias is None else address(bias)
        run(template.fill(address(data), address(weight), address(out), term))

    return convolve
