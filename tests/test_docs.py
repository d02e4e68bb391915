"""The examples of the documents run, here on NumPy arrays."""

from __future__ import annotations

import doctest
import operator
import re
from pathlib import Path

import pytest

import cupyconv
import cupyconv.grad
import cupyconv.signal

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.parametrize("arrays", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_readme_examples_run(arrays):
    """All of them, one after the other as a reader would, and with the results that are shown."""
    snippets = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
    assert [language for language, _ in snippets] == ["pycon"] * 3
    text = "".join(example for _, example in snippets)
    assert "import cupy as cp " in text
    text = text.replace("import cupy as cp ", f"import {arrays} as cp ")
    example = doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)
    results = doctest.DocTestRunner().run(example)
    assert (results.failed, results.attempted) == (0, text.count(">>> "))


def test_readme_is_short_and_not_crowded_with_numbers():
    lines = README.splitlines()
    assert len(lines) <= 140
    text = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    prose = " ".join(line for line in text.splitlines() if line[:1] not in ("|", "#", "!"))
    sentences = re.split(r"(?<=[.:;])\s", prose)
    crowded = [s for s in sentences if len(re.findall(r"(?<![\w.])\d[\d.]*", s)) > 3]
    assert not crowded


def test_readme_lists_every_function():
    table = README.partition("## Functions")[2].partition("##")[0]
    assert set(re.findall(r"`(\w+)[`(]", table)) == set(cupyconv.__all__)


@pytest.mark.parametrize(
    "name",
    [
        *cupyconv.__all__,
        *(f"grad.{name}" for name in cupyconv.grad.__all__),
        *(f"signal.{name}" for name in cupyconv.signal.__all__),
    ],
)
def test_docstring_example_runs(name):
    value = operator.attrgetter(name)(cupyconv)
    examples = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    attempted = sum(runner.run(example).attempted for example in examples)
    assert attempted > 0, f"{name} has no example"
    assert runner.failures == 0
