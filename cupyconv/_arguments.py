"""Reading of scalar and per-axis arguments, with errors that repeat the caller's own values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TypeAlias

IntOrSequence: TypeAlias = "int | Sequence[int]"
Padding: TypeAlias = "int | str | Sequence[int] | Sequence[tuple[int, int]]"

# Strides and dilations stay below this, so that products of two of them fit 64-bit integers.
STEP_LIMIT = 2**31
# Sizes, paddings and every coordinate derived from them stay below this.
SIZE_LIMIT = 2**63


def integer(function: str, argument: str, value: object) -> int:
    """Return `value` as an int; bool and everything without ``__index__`` is a `TypeError`."""
    if type(value) is int:
        return value
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(
        f"{function}: {argument} must hold integers, got {value!r} of type {type(value).__name__}"
    )


def _items(function: str, argument: str, value: object) -> list[object]:
    if isinstance(value, (str, bytes, dict, set)) or not hasattr(value, "__iter__"):
        raise TypeError(
            f"{function}: {argument} must be an integer or a sequence of integers, got {value!r}"
        )
    return list(value)


def _is_scalar(value: object) -> bool:
    return type(value) is int or hasattr(value, "__index__") or not hasattr(value, "__iter__")


def per_axis(
    function: str,
    argument: str,
    value: object,
    rank: int,
    *,
    minimum: int,
    limit: int = STEP_LIMIT,
) -> tuple[int, ...]:
    """Return one integer for each of `rank` axes, each at least `minimum` and below `limit`."""
    if _is_scalar(value):
        result = (integer(function, argument, value),) * rank
    else:
        result = tuple(
            integer(function, argument, item) for item in _items(function, argument, value)
        )
        if len(result) != rank:
            raise ValueError(
                f"{function}: {argument} must have one value for each of {rank} spatial axes, "
                f"got {argument}={value!r}"
            )
    if any(item < minimum for item in result):
        rule = {0: "not be negative", 1: "be positive"}[minimum]
        raise ValueError(f"{function}: {argument} must {rule}, got {argument}={value!r}")
    if any(item >= limit for item in result):
        raise ValueError(f"{function}: {argument} must be below {limit}, got {argument}={value!r}")
    return result


def pads(
    function: str, value: object, rank: int, *, limit: int = SIZE_LIMIT
) -> tuple[tuple[int, int], ...]:
    """Return ``(before, after)`` for each axis from an integer, a flat or a nested sequence."""
    nested = not _is_scalar(value) and any(
        not _is_scalar(item) for item in _items(function, "padding", value)
    )
    if not nested:
        return tuple(
            (pad, pad) for pad in per_axis(function, "padding", value, rank, minimum=0, limit=limit)
        )
    pairs = _items(function, "padding", value)
    if len(pairs) != rank or any(
        _is_scalar(pair) or len(_items(function, "padding", pair)) != 2 for pair in pairs
    ):
        raise ValueError(
            f"{function}: padding must be an integer, one integer or one (before, after) pair "
            f"for each of {rank} spatial axes, 'valid' or 'same', got padding={value!r}"
        )
    before_after = tuple(
        per_axis(function, "padding", pair, 2, minimum=0, limit=limit) for pair in pairs
    )
    return tuple((pair[0], pair[1]) for pair in before_after)
