"""Blocks of a precision: what is in force where, and what is said of an object that sets nothing.

What a precision does to a result is tested in test_convolution.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupyconv
from cupyconv._precision import NAMES, current

ALONE = "alone sets nothing"


@given(data=st.data())
def test_the_innermost_open_block_is_in_force(data: st.DataObject) -> None:
    """Blocks may end in any order, as in generators; one object may be open many times."""
    contextvars.copy_context().run(open_and_end_blocks, data)


def open_and_end_blocks(data: st.DataObject) -> None:
    objects = [cupyconv.precision(name) for name in (*NAMES, *NAMES)]
    for block in objects:
        with block:  # Hypothesis may stop anywhere, and leave some of them without a use
            assert current() == block._name
    opened: list[Any] = []
    for step in data.draw(st.lists(st.booleans(), max_size=12)):
        if step or not opened:
            block = data.draw(st.sampled_from(objects))
            assert block.__enter__() is block
            opened.append(block)
        else:
            block = data.draw(st.sampled_from(opened))
            block.__exit__(None, None, None)
            del opened[len(opened) - 1 - opened[::-1].index(block)]
        assert current() == (opened[-1]._name if opened else "float32")
    for block in opened:
        block.__exit__(None, None, None)
    assert current() == "float32"


def test_an_error_ends_the_block_and_passes() -> None:
    with pytest.raises(KeyError), cupyconv.precision("tf32"):
        raise KeyError
    assert current() == "float32"


def test_a_block_of_a_generator_ends_where_the_generator_does() -> None:
    def values() -> Iterator[str]:
        with cupyconv.precision("tf32"):
            yield current()

    generator = values()
    assert next(generator) == "tf32"
    with cupyconv.precision("float32"):
        generator.close()
        assert current() == "float32"
    assert current() == "float32"


def test_its_text_says_what_is_in_force() -> None:
    block = cupyconv.precision("tf32")
    assert repr(block) == "<precision 'tf32' for a block; 'float32' is in force>"
    with block:
        assert str(block) == "<precision 'tf32' for a block; 'tf32' is in force>"
        with cupyconv.precision("float32"):
            assert str(block) == "<precision 'tf32' for a block; 'float32' is in force>"


def test_a_decorated_function_runs_in_a_block() -> None:
    @cupyconv.precision("tf32")
    def inside(depth: int, *, last: str = "") -> list[str]:
        """Return what is in force, at each depth."""
        below = inside(depth - 1, last=last) if depth else [last]
        return [current(), *below]

    assert inside(2, last="x") == ["tf32", "tf32", "tf32", "x"]
    assert current() == "float32"
    assert (inside.__name__, inside.__doc__) == (
        "inside",
        "Return what is in force, at each depth.",
    )


def test_a_decorated_coroutine_runs_in_a_block() -> None:
    @cupyconv.precision("tf32")
    async def inside() -> str:
        await asyncio.sleep(0)
        return current()

    async def both() -> list[str]:
        async def beside() -> str:
            await asyncio.sleep(0)
            return current()

        return list(await asyncio.gather(inside(), beside(), inside()))

    assert asyncio.run(both()) == ["tf32", "float32", "tf32"]


def test_a_generator_cannot_be_decorated() -> None:
    def generator() -> Iterator[None]:
        yield

    async def asynchronous() -> Any:
        yield

    for function in (generator, asynchronous):
        with pytest.raises(TypeError, match=r"^precision: function must not be a generator"):
            cupyconv.precision("tf32")(function)


def test_the_name_is_checked_where_the_object_is_made() -> None:
    """And an object that could not be made has nothing to warn of."""
    with pytest.raises(ValueError, match="must be one of"):
        cupyconv.precision("half")
    with pytest.raises(TypeError, match="must be a string"):
        cupyconv.precision(16)  # type: ignore[arg-type]
    gc.collect()


def test_a_statement_alone_is_warned_of_at_its_line() -> None:
    with pytest.warns(RuntimeWarning, match=ALONE) as caught:
        line = sys._getframe().f_lineno + 1
        cupyconv.precision("tf32")
        gc.collect()
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert str(warning.message) == (
        "precision: cupyconv.precision('tf32') alone sets nothing, write "
        "`with cupyconv.precision('tf32'):` or pass precision='tf32' to a call"
    )


def test_what_is_used_is_not_warned_of() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        block = cupyconv.precision("tf32")
        with block:
            pass
        cupyconv.precision("tf32")(len)
        copy.copy(block)
        del block
        gc.collect()
    assert not caught


SCRIPT = """
import cupyconv
for _ in range(3):
    cupyconv.precision("tf32")
kept = cupyconv.precision("tf32")  # the end of the interpreter is no place for a warning
"""


@pytest.mark.parametrize(
    ("options", "count"), [([], 1), (["-W", "error"], 3), (["-W", "ignore"], 0)]
)
def test_python_shows_the_warning_by_default(options: list[str], count: int) -> None:
    """Once for a line; as errors, which cannot leave a finaliser, they are printed each."""
    done = subprocess.run(
        [sys.executable, *options, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert (
        done.stderr.count(f"RuntimeWarning: precision: cupyconv.precision('tf32') {ALONE}") == count
    )


def test_an_argument_goes_before_the_block() -> None:
    x, w = np.ones((1, 4), np.float32), np.ones((1, 1, 2), np.float32)
    with cupyconv.precision("tf32"):
        exact = cupyconv.explain(cupyconv.conv1d, x, w, target="sm_90a", precision="float32")
    assert exact == cupyconv.explain(cupyconv.conv1d, x, w, target="sm_90a")
