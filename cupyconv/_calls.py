"""What earlier calls came to, by all that they follow from: one like them starts from there.

What is kept knows nothing of addresses and of contents.
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
    """Return all that a call follows from, or None where that has no exact form.

    Those are its options and the layouts of its arrays, ``()`` for one that is not given. The
    caller vouches for `more`.
    """
    if None in layouts or not arguments.exact(options):
        return None
    return name, path, layouts, options, _precision.current(), _plan.forced_kernel(), *more


def keep(key: Key, call: object) -> None:
    """Add a call to those that are kept, which are dropped all together where they are too many."""
    if len(kept) >= MOST:
        kept.clear()
    if key is not None:
        kept[key] = call
