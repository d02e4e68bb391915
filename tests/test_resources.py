"""Every kernel instance compiles for every target, and takes what the committed table says."""

from __future__ import annotations

import json
from typing import Any

import pytest

import resources
from cupyconv._plan import TARGETS, Instance, Tile, instances

TABLE: dict[str, Any] = json.loads(resources.TABLE.read_text(encoding="utf-8"))

# Of all targets: registers of a thread, and of a multiprocessor; shared memory that a block has
# without asking for more.
THREAD_REGISTERS = 255
REGISTERS = 65536
SHARED = 48 * 1024


@pytest.mark.parametrize("target", TARGETS)
def test_instances_fit(target: str) -> None:
    measured = resources.measured(target)
    for name, (registers, _, shared) in measured.items():
        assert 0 < registers <= THREAD_REGISTERS, name
        assert shared <= SHARED, name
    assert measured.keys() == TABLE[target].keys(), "run python tests/resources.py"
    if resources.version() != TABLE["nvrtc"]:
        return  # another compiler takes other registers
    changed = {
        name: f"{TABLE[target][name]} -> {list(found)}"
        for name, found in measured.items()
        if TABLE[target][name] != list(found)
    }
    assert not changed, f"run python tests/resources.py and look at the difference: {changed}"


def test_resident_blocks_fit() -> None:
    """As many blocks as an instance asks for share a multiprocessor's registers."""
    for target in TARGETS:
        for instance in instances(target):
            macros = dict(instance.defines)
            if "RESIDENT" in macros:
                registers = TABLE[target][str(instance)][0]
                assert registers * Tile.THREADS * int(macros["RESIDENT"]) <= REGISTERS, instance


def test_an_instance_that_does_not_compile_is_found() -> None:
    broken = Instance("max_pool2d.cu", "max_pool2d", (("ELEMENT", "no_such_type"),))
    options = resources._compile.options(broken)
    with pytest.raises(AssertionError, match="no_such_type"):
        resources.compiled(resources._compile.source(broken.source), options, "sm_90a")
