"""The cache of prepared calls: a call that equals an earlier one skips checks and plans.

The key of the cache has everything that a prepared call depends on. A prepared call holds nothing
that depends on the address or the contents of an array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from . import _arguments as arguments
from . import _precision
from ._kernels.choice import forced_kernel
from ._paths import Path

Key: TypeAlias = "tuple[object, ...] | None"

MOST = 4096  # entries of the cache
kept: dict[Key, Any] = {}


def key(
    name: str,
    path: Path,
    layouts: tuple[tuple[object, ...] | None, ...],
    options: tuple[object, ...],
    *more: str,
) -> Key:
    """Return the key of a call, or None if the call must not be kept.

    `layouts` has ``()`` for an array that the caller did not pass. A call must not be kept if an
    array has no layout, or if options that compare equal may differ in type. The strings `more`
    become part of the key.
    """
    if None in layouts or not arguments.exact(options):
        return None
    return name, path, layouts, options, _precision.current(), forced_kernel(), *more


def keep(key: Key, call: object) -> None:
    """Keep a prepared call. If the cache is full, drop all of its entries first."""
    if len(kept) >= MOST:
        kept.clear()
    if key is not None:
        kept[key] = call
