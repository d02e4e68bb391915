"""Which tests run where, and how many examples Hypothesis draws."""

from __future__ import annotations

import datetime
import functools
import importlib.util
import os
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from cupyconv._kernels import launches
from emulator.device import build_ahead
from planning import EmulatedTiles, Steering, forget

# On a CI server Hypothesis would by itself draw the same examples in each run; here it never does.
# No example has a deadline: the first one of a kernel compiles it, which takes seconds.
base = settings(settings.get_profile("default"), deadline=None, print_blob=True)
settings.register_profile("default", base, max_examples=300)
settings.register_profile("thorough", base, max_examples=10_000)
settings.register_profile("check", base, max_examples=30)
settings.register_profile("emulator", base, max_examples=15)
settings.register_profile("sanitizer", base, max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

examples = 0
set_aside = 0
tiles = EmulatedTiles()
without_sigpy = 0

# Else an import of PyLops loads cuBLAS wherever CuPy is installed, with a GPU or without.
os.environ.setdefault("CUPY_PYLOPS", "0")

if os.environ.get("CUPYCONV_NO_POOL"):  # tests/sanitize.py
    import cupy

    cupy.cuda.set_allocator(None)

if os.environ.get("CUPYCONV_NO_BULK"):  # tests/sanitize.py
    launches.BULK_COPIES = ()


def gpu_is_present() -> bool:
    """Whether CuPy is installed and sees a GPU."""
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def has_wgmma() -> bool:
    """Whether the GPU is one of the only generation with the matrix products of a warpgroup."""
    import cupy

    return cupy.cuda.Device().compute_capability == "90"


def in_share(name: str, shares: int, day: int) -> bool:
    """Whether a test is in the share of a day; as many days as there are shares have all tests."""
    return (zlib.crc32(name.encode()) + day) % shares == 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="run one of N shares of the selected tests that have parameters, another one each day",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Count each example: Hypothesis runs a test's body as ``test.hypothesis.inner_test``."""
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    if handle is None or hasattr(handle.inner_test, "counted"):
        return
    body = handle.inner_test

    @functools.wraps(body)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global examples
        examples += 1
        return body(*args, **kwargs)

    counted.counted = True  # type: ignore[attr-defined]
    handle.inner_test = counted


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Keep the share of the day. Without a GPU, set the tests aside that need one; fail where
    nothing else was asked for. Without SigPy, set its tests aside.

    Large arrays are not for the emulator: the other backends have them.
    """
    global set_aside, without_sigpy
    slow = [
        item for item in items if {"emulator", "large"} <= {m.name for m in item.iter_markers()}
    ]
    items[:] = [item for item in items if item not in slow]
    config.hook.pytest_deselected(items=slow)
    yield  # then the selection by -m and -k
    shares, day = config.option.share, datetime.date.today().toordinal()
    own, others = [], []
    for item in items:
        whole = not hasattr(item, "callspec")
        (own if whole or in_share(item.nodeid, shares, day) else others).append(item)
    items[:] = own
    config.hook.pytest_deselected(items=others)
    if importlib.util.find_spec("sigpy") is None:
        callers = [item for item in items if item.get_closest_marker("sigpy")]
        items[:] = [item for item in items if item not in callers]
        config.hook.pytest_deselected(items=callers)
        without_sigpy = len(callers)
    needy = [item for item in items if item.get_closest_marker("gpu")]
    if needy and gpu_is_present():
        needy = [item for item in needy if item.get_closest_marker("wgmma") and not has_wgmma()]
    if not needy:
        return
    if config.option.markexpr and len(needy) == len(items):
        raise pytest.UsageError(
            f"the {len(needy)} selected tests need an NVIDIA GPU and CuPy, and there is none here"
        )
    items[:] = [item for item in items if item not in needy]
    config.hook.pytest_deselected(items=needy)
    set_aside = len(needy)


@pytest.fixture
def steer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steering]:
    """What replaces parts of the planner in a test; no later test finds plans that it made."""
    yield Steering(monkeypatch)
    forget()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let calls be as small for the emulator as tests draw them, and others not."""
    tiles.use(item.get_closest_marker("emulator") is not None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let a second core compile what the tests of instances will run on the emulator."""
    parameters = [
        item.callspec.params
        for item in session.items
        if item.get_closest_marker("emulator") and hasattr(item, "callspec")
    ]
    instances = [own["instance"] for own in parameters if "instance" in own]
    if len(instances) > 1 and not session.config.option.collectonly:
        build_ahead(instances)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"hypothesis examples: {examples}")
    if without_sigpy:
        terminalreporter.write_line(
            f"sigpy: {without_sigpy} tests set aside, as SigPy is not installed; 'make clients' "
            "installs it and runs them"
        )
    if set_aside:
        terminalreporter.write_line(
            f"gpu: {set_aside} tests set aside, as there is no GPU here that runs them; "
            "'pytest -m gpu' runs them on a machine with an NVIDIA GPU and CuPy"
        )
