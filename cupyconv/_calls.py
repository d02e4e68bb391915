"""Prepared calls, by everything that they depend on: an equal call skips checks and plans.

A prepared call holds nothing that depends on the address or the contents of an array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from . import _arguments as arguments
from . import _plan, _precision
from ._paths import Path

Key: TypeAlias = "tuple[object, ...] | None"

MOST = 4096
kept: dict[Key, Any] = {}


def key(
    name: str,
    path: Path,
    layouts: tuple[tuple[object, ...] | None, ...],
    options: tuple[object, ...],
    *more: str,
) -> Key:
    """Return everything that a prepared call depends on, or None if it must not be kept.

    `layouts` has ``()`` for an array that is not given. A call is not kept if an array has no
    layout, or if equal options may differ in type. Strings of `more` are taken as they are.
    """
    if None in layouts or not arguments.exact(options):
        return None
    return name, path, layouts, options, _precision.current(), _plan.forced_kernel(), *more


def keep(key: Key, call: object) -> None:
    """Keep a prepared call. If too many are kept, drop all of them first."""
    if len(kept) >= MOST:
        kept.clear()
    if key is not None:
        kept[key] = call
