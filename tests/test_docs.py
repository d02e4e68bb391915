"""The examples of the documents run, here on NumPy arrays."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import cupyconv

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_readme_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert "import cupy as cp\n" in example
    exec(example.replace("import cupy as cp\n", "import numpy as cp\n"), {})


def test_readme_lists_every_function():
    table = README.partition("## Functions")[2].partition("##")[0]
    assert set(re.findall(r"`(\w+)[`(]", table)) == set(cupyconv.__all__)


@pytest.mark.parametrize("name", cupyconv.__all__)
def test_docstring_example_runs(name):
    value = getattr(cupyconv, name)
    examples = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    attempted = sum(runner.run(example).attempted for example in examples)
    assert attempted > 0, f"{name} has no example"
    assert runner.failures == 0
