"""Every kernel instance compiles for the targets, and takes what the committed table says."""

from __future__ import annotations

import datetime
import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import resources
from cupyconv import _device
from cupyconv._kernels import direct_conv
from cupyconv._kernels.choice import instances
from cupyconv._kernels.launches import SHARED, TARGETS, Instance, Launch, Processor
from subjects import threads

TABLE: dict[str, Any] = json.loads(resources.TABLE.read_text(encoding="utf-8"))

# Limits of all targets: registers of a thread, and of a multiprocessor; shared memory that a block
# has without asking for more.
THREAD_REGISTERS = 255
REGISTERS = 65536
SHARED_UNASKED = 48 * 1024


# To save time, targets that have the same kernels as sm_80 take a share of the instances.
LIKE_SM_80 = ["sm_86", "sm_89", "sm_100", "sm_120"]
# What has been compiled for the table already is compiled again in parts, another one each day.
DAYS = 60


def unknown(target: str) -> list[Instance]:
    """The instances whose text, options or compiler differ from the table's."""
    rows = TABLE[target]
    return [i for i in instances(target) if rows[str(i)][3] != resources.digest(i)]


@pytest.mark.parametrize("target", TARGETS)
def test_instances_fit(target: str) -> None:
    assert TABLE[target].keys() == set(map(str, instances(target))), "run python tests/resources.py"
    share = DAYS * (len(LIKE_SM_80) if target in LIKE_SM_80 else 1)
    turn = datetime.date.today().toordinal() + TARGETS.index(target)
    new, known = unknown(target), instances(target)[turn % share :: share]
    measured = resources.measured(target, dict.fromkeys((*new, *known)))
    assert len(measured) >= max(len(new), len(instances(target)) // share)
    for name, (registers, _, shared) in measured.items():
        assert 0 < registers <= THREAD_REGISTERS, name
        assert shared <= SHARED_UNASKED, name
    if resources.version() != TABLE["nvrtc"]:
        return  # another compiler takes other registers
    changed = {
        name: f"{TABLE[target][name][:3]} -> {list(found)}"
        for name, found in measured.items()
        if TABLE[target][name][:3] != list(found)
    }
    assert not changed, f"run python tests/resources.py and look at the difference: {changed}"
    assert not new, f"run python tests/resources.py: {new}"


def test_an_instance_that_has_changed_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its text, a header's text or the options change; comments do not count."""
    assert unknown("sm_80") == []
    text = resources._compile.source

    def changed(name: str, more: str) -> str:
        return text(name) + more * (name == "normalize.cu")

    monkeypatch.setattr(resources._compile, "source", partial(changed, more=" // a comment"))
    assert unknown("sm_80") == []
    monkeypatch.setattr(resources._compile, "source", partial(changed, more="int changed;"))
    found = unknown("sm_80")
    assert found == [i for i in instances("sm_80") if i.source == "normalize.cu"]
    monkeypatch.setattr(resources._compile, "source", text)
    monkeypatch.setattr(resources._compile, "options", lambda instance: ("-std=c++20",))
    assert unknown("sm_80") == list(instances("sm_80"))


def test_resident_blocks_fit() -> None:
    """As many blocks as an instance asks for share a multiprocessor's registers."""
    for target in TARGETS:
        for instance in instances(target):
            macros = dict(instance.defines)
            if "RESIDENT" in macros:
                registers = TABLE[target][str(instance)][0] * direct_conv.THREADS
                assert registers * int(macros["RESIDENT"]) <= REGISTERS, instance


def test_registers_of_a_block() -> None:
    """A multiprocessor has them for a block, before warps give any of them to others."""
    for target in TARGETS:
        for instance in instances(target):
            registers = -(-TABLE[target][str(instance)][0] // 8) * 8
            assert registers * threads(instance) <= REGISTERS, (target, instance)


# Bytes that instances on Tensor Cores spill on the GPU that they were measured on, as the table's
# compiler counts them.
MOST_SPILLED = 450


def test_spills_of_measured_instances() -> None:
    rows = [row for name, row in TABLE["sm_90a"].items() if "ENGINE=WgmmaEngine" in name]
    assert rows
    assert max(spills for _, spills, *_ in rows) <= MOST_SPILLED


def test_products_that_wait_are_found() -> None:
    """As for the compiler of CUDA 12 where sums seem to add to what was never defined."""
    instance = next(
        i
        for i in instances("sm_90a")
        if i.source == "streaming_conv.cu" and {("PARTS", "1"), ("HELD", "1")} <= set(i.defines)
    )
    code, options = resources._compile.code(instance), resources._compile.options(instance)
    undefined = code.replace("Sums sums[HELD] = {};", "Sums sums[HELD];")
    assert undefined != code
    with pytest.raises(AssertionError, match="wait for each other"):
        resources.compiled(undefined, options, "sm_90a")


def test_an_instance_that_does_not_compile_is_found() -> None:
    broken = Instance("max_pool2d.cu", "max_pool2d", (("ELEMENT", "no_such_type"),))
    options = resources._compile.options(broken)
    with pytest.raises(AssertionError, match="no_such_type"):
        resources.compiled(resources._compile.code(broken), options, "sm_90a")


def test_shared_memory_that_a_launch_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block may have all that its GPU has, whatever was launched before and its kernel declares.

    Without asking, what a kernel declares and what its launch adds are 48 KiB together.
    """
    declared, launched = 1024, SHARED_UNASKED - 512
    kernel = SimpleNamespace(
        shared_size_bytes=declared,
        max_dynamic_shared_size_bytes=SHARED_UNASKED - declared,
        kernel=SimpleNamespace(linear_launch=None),
    )
    monkeypatch.setattr(_device._compile, "kernel", lambda instance: kernel)
    monkeypatch.setattr(_device, "processor_of", lambda device: Processor("sm_90a", 132))
    device = _device.CupyDevice.__new__(_device.CupyDevice)
    device._runtime, device._pointer = SimpleNamespace(getDevice=lambda: 77), None
    device.launcher(Launch(instances("sm_90a")[0], 1, 32, launched))
    assert launched <= kernel.max_dynamic_shared_size_bytes <= SHARED["sm_90a"] - declared
