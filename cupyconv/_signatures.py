"""Signatures of public functions whose types are familiar to a reader of `help`.

The annotations in the code serve type checkers: a type variable ties the kind of the result to the
kind of the input, and a protocol replaces CuPy's arrays, since CuPy has no type stubs.
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
    "IntOrSequence": "int | Sequence[int]",
    "Padding": "int | str | Sequence[int] | Sequence[tuple[int, int]]",
}


class _Unquoted(str):
    """An annotation that `inspect` prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def readable(function: Function) -> Function:
    """Give a function or a class a signature whose types `help` prints in plain words."""

    def plain(annotation: object) -> object:
        if not isinstance(annotation, str):  # inspect's marker of an argument without annotation
            return annotation
        words = re.sub(r"[\w.]+", lambda word: _READABLE.get(word[0], word[0]), annotation)
        return _Unquoted(words)

    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            parameter.replace(annotation=plain(parameter.annotation)) for parameter in parameters
        ],
        return_annotation=plain(signature.return_annotation),
    )
    return function
