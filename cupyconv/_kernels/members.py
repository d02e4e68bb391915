"""Arguments of kernels, packed by the names of the members of their ``struct Arguments``.

All members have 64 bits. A struct is a mapping of its members in order, an array of them a
sequence. What is known at the call alone, such as an address, is `CALL` in the template.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .._arrays import Array, Convolution
from .._packing import Arguments, parameter_fields
from .._taps import AxisTaps
from .launches import Launch

if TYPE_CHECKING:
    from .._device import Device


class _Call:
    """Stands for a word that each call puts in its place."""


CALL: Final = _Call()

Member: TypeAlias = "int | _Call | Mapping[str, Member] | Sequence[Member]"
Members: TypeAlias = Mapping[str, Member]


def _append(words: list[int | _Call], member: Member) -> None:
    """Append the words of a member; most are numbers, so these are looked for first."""
    if isinstance(member, (int, _Call)):
        words.append(member)
    else:
        for one in member.values() if isinstance(member, Mapping) else member:
            _append(words, one)


class Template:
    """The arguments of a launch of a ``.cu`` file, in which each call fills some places.

    `members` are those of the ``struct Arguments`` of the file `source`, in order; a test compares
    their names.
    """

    def __init__(self, source: str, members: Members) -> None:
        self.source, self.members = source, members
        words: list[int | _Call] = []
        _append(words, members)
        places = [i for i, word in enumerate(words) if isinstance(word, _Call)]
        # Most structs begin with addresses, which a call puts in their places all at once.
        self._first = sum(place == i for i, place in enumerate(places))
        self._others = tuple((place, i) for i, place in enumerate(places) if place != i)
        self._values = len(places)
        constants = (0 if isinstance(word, _Call) else word for word in words[self._first :])
        self._constants = array("q", constants)

    def __call__(self, *values: int) -> Arguments:
        """Return the arguments with these values in the places of `CALL`."""
        if len(values) != self._values:
            raise ValueError(f"{self.source} takes {self._values} values, got {len(values)}")
        if not self._others:
            return array("q", values) + self._constants
        words = array("q", values[: self._first]) + self._constants
        for place, i in self._others:
            words[place] = values[i]
        return words


def parameter(array: Array | None) -> Members:
    """Return a ``struct Parameter``, whose address belongs to the call."""
    kind, stride = parameter_fields(array)
    return {"data": CALL, "type": kind, "stride": stride}


def struct(value: Any) -> dict[str, Member]:
    """Return the members of a dataclass that has the fields of a struct, in its order."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def axis_taps(axis: AxisTaps) -> Members:
    """Return a ``struct AxisTaps``."""
    return struct(axis)


def one_launch(device: Device, launch: Launch, template: Template) -> Convolution:
    """Return a convolution of one launch, which puts the addresses of its arrays in their places.

    The `CALL` members are those of input, weight, out and the bias, in this order.
    """
    run, address = device.launcher(launch), device.address

    def convolve(input: Array, weight: Array, bias: Array | None, out: Array) -> None:
        term = 0 if bias is None else address(bias)
        run(template(address(input), address(weight), address(out), term))

    return convolve
