"""Parsing of scalar and per-axis arguments, with errors that repeat the caller's values."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from ._borders import OTHER_NAMES, PADDING_MODES

IntOrSequence: TypeAlias = "int | Sequence[int]"
Padding: TypeAlias = "int | str | Sequence[int] | Sequence[tuple[int, int]]"
# (before, after) for each axis.
Pads: TypeAlias = tuple[tuple[int, int], ...]

# Upper bound (exclusive) of strides and dilations: the product of two of them fits in 64 bits.
STEP_LIMIT = 2**31
# Upper bound (exclusive) of sizes, paddings and all coordinates that follow from them.
SIZE_LIMIT = 2**63

# Most characters of a caller's value in an error.
_MOST_SHOWN = 200
_REPR = reprlib.Repr()
_REPR.maxlevel = 3
_REPR.maxtuple = _REPR.maxlist = _REPR.maxdict = _REPR.maxset = _REPR.maxarray = 32
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = _MOST_SHOWN

_EACH = "an integer or a sequence of integers"
_PADDING = (
    "an integer, one integer or one (before, after) pair for each of {rank} spatial axes, "
    "'valid' or 'same'"
)


def shown(value: object, form: Callable[[Any], str] = _REPR.repr) -> str:
    """Return a text of a caller's value for an error, whatever the value's class does.

    Long or deeply nested texts are cut. A value whose text cannot be made, such as an integer of
    5000 digits, is described by its type.
    """
    try:
        text = form(value)
    except Exception:
        return f"a {type(value).__name__} that has no repr"
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _index(value: object) -> int | None:
    """Return `value` as an int, or None if it is no integer. A bool is not an integer here.

    An array of one integer is not an integer either: to read a CuPy array would wait for the GPU.
    """
    if type(value) is int:
        return value
    if isinstance(value, bool) or hasattr(value, "__iter__"):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


_EXACT = frozenset((int, str, type(None)))


def exact(values: tuple[object, ...], depth: int = 2) -> bool:
    """Return whether `values` has only ints, strings, None and tuples of these.

    Such values mean the same if they compare equal. In contrast, True and 1.0 equal 1 but are
    different arguments. Tuples nest at most twice: the deepest option is a padding of pairs.
    """
    for value in values:
        if type(value) not in _EXACT and not (
            depth and type(value) is tuple and exact(value, depth - 1)
        ):
            return False
    return True


def _plain(value: object) -> object:
    """Return a NumPy array as nested lists of numbers, and any other value unchanged."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _integers(
    function: str,
    argument: str,
    items: Sequence[object],
    rule: str,
    value: object,
    minimum: int,
    limit: int,
) -> tuple[int, ...]:
    """Return the `items` of the argument `value` as integers between `minimum` and `limit`."""
    result = tuple(index for item in items if (index := _index(item)) is not None)
    if len(result) != len(items):
        raise TypeError(f"{function}: {argument} must be {rule}, got {argument}={shown(value)}")
    if any(item < minimum for item in result):
        bound = {0: "not be negative", 1: "be positive"}[minimum]
        raise ValueError(f"{function}: {argument} must {bound}, got {argument}={shown(value)}")
    if any(item >= limit for item in result):
        bound = f"be below 2**{limit.bit_length() - 1}"
        raise ValueError(f"{function}: {argument} must {bound}, got {argument}={shown(value)}")
    return result


def positive(function: str, argument: str, value: object) -> int:
    """Return one positive integer."""
    return _integers(function, argument, [_plain(value)], "an integer", value, 1, SIZE_LIMIT)[0]


def boolean(function: str, argument: str, value: object) -> bool:
    """Return a bool; any other type is a `TypeError`, even if it has a truth value."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{function}: {argument} must be a bool, got {argument}={shown(value)}")
    return bool(value)


def per_axis(
    function: str,
    argument: str,
    value: object,
    rank: int,
    *,
    minimum: int,
    limit: int = STEP_LIMIT,
    rule: str = _EACH,
    advice: str = "",
) -> tuple[int, ...]:
    """Return one integer for each of `rank` axes, each at least `minimum` and below `limit`.

    The error for another number of integers ends with the `advice`.
    """
    plain = _plain(value)
    if not _is_sequence(plain):
        return _integers(function, argument, [plain], rule, value, minimum, limit) * rank
    # One item too many suffices for the error: a range may have any number of items.
    items = list(islice(plain, rank + 1))
    result = _integers(function, argument, items, rule, value, minimum, limit)
    if len(result) != rank:
        raise ValueError(
            f"{function}: {argument} must have one value for each of {rank} spatial axes, "
            f"got {argument}={shown(value)}{advice}"
        )
    return result


def axes(function: str, value: object, ndim: int) -> tuple[int, ...]:
    """Return which of the `ndim` axes of an array are named, in order; None names all of them."""
    if value is None:
        return tuple(range(ndim))
    plain = _plain(value)
    items = list(islice(plain, ndim + 1)) if _is_sequence(plain) else [plain]
    indices = [index for item in items if (index := _index(item)) is not None]
    given = f"got axes={shown(value)}"
    if len(indices) != len(items):
        raise TypeError(f"{function}: axes must be {_EACH}, {given}")
    if not indices:
        raise ValueError(f"{function}: axes must name one axis at least, {given}")
    if any(not -ndim <= index < ndim for index in indices):
        raise ValueError(f"{function}: axes must be axes of the arrays, {given} for {ndim} axes")
    result = sorted({index % ndim for index in indices})
    if len(result) != len(indices):
        raise ValueError(f"{function}: axes must name no axis twice, {given} for {ndim} axes")
    return tuple(result)


def sizes(function: str, argument: str, value: object, rank: int) -> tuple[int, ...] | None:
    """Return one positive size for each of `rank` axes, or None if `value` is None."""
    if value is None:
        return None
    advice = ""
    plain = _plain(value)
    # Some functions elsewhere take the whole shape here, with one or two axes before the spatial.
    items = tuple(islice(plain, rank + 3)) if _is_sequence(plain) else ()
    if len(items) in (rank + 1, rank + 2):
        advice = f"; without the batch and channel axes it is {argument}={shown(items[-rank:])}"
    return per_axis(function, argument, value, rank, minimum=1, limit=SIZE_LIMIT, advice=advice)


def pads(function: str, value: object, rank: int) -> Pads:
    """Return ``(before, after)`` for each axis from an integer, a flat or a nested sequence."""
    plain = _plain(value)
    rule = _PADDING.format(rank=rank)
    items = [_plain(item) for item in islice(plain, rank + 1)] if _is_sequence(plain) else []
    pairs = [item for item in items if _is_sequence(item)]
    if not pairs:
        advice = ""
        if _is_sequence(plain) and len(plain) == 2 * rank:
            nested = tuple(zip(plain[::2], plain[1::2], strict=True))
            advice = f"; pairs of (before, after) are nested, padding={shown(nested)}"
        flat = per_axis(
            function,
            "padding",
            value,
            rank,
            minimum=0,
            limit=SIZE_LIMIT,
            rule=rule,
            advice=advice,
        )
        return tuple((pad, pad) for pad in flat)
    if not len(pairs) == len(items) == rank or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{function}: padding must be {rule}, got padding={shown(value)}")
    ends = [end for pair in pairs for end in pair]
    flat = _integers(function, "padding", ends, rule, value, 0, SIZE_LIMIT)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def padding(function: str, value: object, rank: int) -> Pads | str:
    """Return ``(before, after)`` for each axis, or the name of a padding."""
    if not isinstance(value, str):
        return pads(function, value, rank)
    for known in ("valid", "same"):
        if value == known:
            return known  # a plain string, also if `value` is of a derived class
    raise ValueError(
        f"{function}: padding given by name must be 'valid' or 'same', got padding={shown(value)}"
        + _padding_advice(function, value)
    )


def padding_mode(function: str, value: object) -> str | None:
    """Return the name of what lies in the padding, or None if nothing does."""
    if value is None:
        return None
    rule = f"None or one of {', '.join(map(repr, PADDING_MODES))}"
    if not isinstance(value, str):
        raise TypeError(f"{function}: padding_mode must be {rule}, got padding_mode={shown(value)}")
    mode = _border(value)
    if mode == value:
        return mode
    advice = f"; in NumPy's words it is {mode!r}" if mode else ""
    if value in ("zeros", "constant"):
        advice = "; without a padding_mode the padding contributes nothing"
    raise ValueError(
        f"{function}: padding_mode must be {rule}, got padding_mode={shown(value)}{advice}"
    )


METHODS = ("direct", "fft", "auto")


def method(function: str, value: object) -> str:
    """Return the name of a method: sums over taps, FFT, or whichever should be faster."""
    rule = f"one of {', '.join(map(repr, METHODS))}"
    if not isinstance(value, str):
        raise TypeError(f"{function}: method must be {rule}, got method={shown(value)}")
    if value not in METHODS:
        raise ValueError(f"{function}: method must be {rule}, got method={shown(value)}")
    return str(value)


def _border(name: str) -> str | None:
    """Return NumPy's name of what `name` means here or elsewhere, if it means any."""
    return next((mode for mode, names in OTHER_NAMES.items() if name in (mode, *names)), None)


def _padding_advice(function: str, name: str) -> str:
    """Return how to get what the padding `name` means elsewhere, or ""."""
    if name == "full" and "transpose" in function:
        return "; the default, padding=0, is the full result"
    if name == "full":
        return "; padding=dilation*(kernel - 1) on each axis is the full convolution"
    mode = _border(name)
    return f"; padding_mode={mode!r} says what lies in a padding given by numbers" if mode else ""
