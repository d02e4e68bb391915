"""Public docstrings are complete and in numpydoc's form."""

from __future__ import annotations

import inspect
import operator
import pydoc
import re

import pytest
from numpydoc.validate import validate

import cupyconv
import cupyconv.cudnn
import cupyconv.dask
import cupyconv.grad
import cupyconv.signal

MODULES = {
    "cudnn": cupyconv.cudnn,
    "dask": cupyconv.dask,
    "dask.grad": cupyconv.dask.grad,
    "grad": cupyconv.grad,
    "signal": cupyconv.signal,
}
NAMES = (
    *cupyconv.__all__,
    *(f"{module}.{name}" for module, contents in MODULES.items() for name in contents.__all__),
)

# What numpydoc checks and this library does otherwise.
OTHERWISE = {
    "ES01": "a summary of one line is all that some functions need",
    "SA03": "what follows a name in See Also goes on from it, and begins with a small letter",
}


# Annotations that only a type checker understands.
FOREIGN = ("'", "~", "AnyArray", "ArrayT", "ArrayOrDask", "IntOrSequence", "Padding", "da.Array")


def codes(name: str) -> set[str]:
    """What numpydoc finds wrong with a docstring."""
    return {code for code, _ in validate(f"cupyconv.{name}")["errors"]}


@pytest.mark.parametrize("name", NAMES)
def test_docstring(name: str) -> None:
    assert codes(name) <= set(OTHERWISE), validate(f"cupyconv.{name}")["errors"]


def test_nothing_is_exempt_in_vain() -> None:
    assert set().union(*map(codes, NAMES)) == set(OTHERWISE)


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_plain_types(name: str) -> None:
    function = operator.attrgetter(name)(cupyconv)
    first = pydoc.render_doc(function, renderer=pydoc.plaintext).splitlines()[2]
    types = re.sub(r"= '\w+'", "", first)  # a default value is in quotes
    assert function.__name__ in types
    assert not [word for word in FOREIGN if word in types], first


def test_annotations_stay_those_of_type_checkers() -> None:
    assert cupyconv.conv2d.__annotations__["input"] == "ArrayT"
    assert (
        str(inspect.signature(cupyconv.conv1d).parameters["bias"]) == "bias: ndarray | None = None"
    )
