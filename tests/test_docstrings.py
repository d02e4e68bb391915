"""Public docstrings are complete and in numpydoc's form."""

from __future__ import annotations

import pytest
from numpydoc.validate import validate

import cupyconv

# What numpydoc checks and this library does otherwise.
OTHERWISE = {
    "ES01": "a summary of one line is all that some functions need",
    "SA03": "what follows a name in See Also goes on from it, and begins with a small letter",
    "YD01": "a context manager is a generator to Python alone; it yields nothing to its users",
}


def codes(name: str) -> set[str]:
    """What numpydoc finds wrong with a docstring."""
    return {code for code, _ in validate(f"cupyconv.{name}")["errors"]}


@pytest.mark.parametrize("name", cupyconv.__all__)
def test_docstring(name: str) -> None:
    assert codes(name) <= set(OTHERWISE), validate(f"cupyconv.{name}")["errors"]


def test_nothing_is_exempt_in_vain() -> None:
    assert set().union(*map(codes, cupyconv.__all__)) == set(OTHERWISE)
