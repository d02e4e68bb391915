"""Arguments of kernels, packed by the names of the members of their ``struct Arguments``.

All members have 64 bits. A struct is a mapping of its members in order, an array of them a
sequence. What is known at the call alone, such as an address, is `CALL` in the template.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypeAlias

from .._arrays import Array
from .._packing import Arguments, parameter_fields
from .._taps import AxisTaps


class _Call:
    """Stands for a word that each call puts in its place."""


CALL: Final = _Call()

Member: TypeAlias = "int | _Call | Mapping[str, Member] | Sequence[Member]"
Members: TypeAlias = Mapping[str, Member]


def _words(member: Member) -> Iterator[int | _Call]:
    if isinstance(member, Mapping):
        for one in member.values():
            yield from _words(one)
    elif isinstance(member, Sequence):
        for one in member:
            yield from _words(one)
    else:
        yield member


class Template:
    """The arguments of a launch of a ``.cu`` file, in which each call fills some places.

    `members` are those of the ``struct Arguments`` of the file `source`, in order; a test compares
    their names.
    """

    def __init__(self, source: str, members: Members) -> None:
        self.source, self.members = source, members
        words = list(_words(members))
        self._places = tuple(i for i, word in enumerate(words) if isinstance(word, _Call))
        self._words = array("q", (0 if isinstance(word, _Call) else word for word in words))

    def __call__(self, *values: int) -> Arguments:
        """Return the arguments with these values in the places of `CALL`."""
        words = self._words[:]
        for place, value in zip(self._places, values, strict=True):
            words[place] = value
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
