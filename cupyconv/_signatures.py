"""Signatures of public functions with types that a reader knows, for `help`.

The annotations are written for type checkers: a type variable ties the kind of the result to that
of the input, and a protocol stands for the arrays of CuPy, which has no type stubs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_READABLE = {
    "AnyArray": "ndarray",
    "Array": "ndarray",
    "ArrayOrDask": "ndarray | dask.array.Array",
    "ArrayT": "ndarray",
    "da.Array": "dask.array.Array",
    "Iterator": "AbstractContextManager",  # `contextmanager` makes one of a generator
    "IntOrSequence": "int | Sequence[int]",
    "Padding": "int | str | Sequence[int] | Sequence[tuple[int, int]]",
}


class _Unquoted(str):
    """An annotation that `inspect` prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def readable(function: Function) -> Function:
    """Give `function` a signature whose types `help` prints in plain words."""

    def plain(annotation: object) -> object:
        if not isinstance(annotation, str):  # the marker of an argument that has none
            return annotation
        words = re.sub(r"[\w.]+", lambda word: _READABLE.get(word[0], word[0]), annotation)
        return _Unquoted(words)

    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(annotation=plain(p.annotation)) for p in parameters],
        return_annotation=plain(signature.return_annotation),
    )
    return function
