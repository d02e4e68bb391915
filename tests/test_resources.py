"""Every kernel instance compiles for the targets, and takes what the committed table says."""

from __future__ import annotations

import datetime
import itertools
import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import resources
from cupyconv import _device
from cupyconv._geometry import group_norm
from cupyconv._kernels import direct_conv
from cupyconv._plan import (
    SHARED,
    TARGETS,
    DepthwisePlan,
    GatherPlan,
    Instance,
    Launch,
    MatrixPlan,
    PlainPlan,
    Processor,
    instances,
    plan_norm,
)
from strategies import MODES
from test_plan import CHOSEN, conv, conv_transpose, plan_of, threads

TABLE: dict[str, Any] = json.loads(resources.TABLE.read_text(encoding="utf-8"))

# Of all targets: registers of a thread, and of a multiprocessor; shared memory that a block has
# without asking for more.
THREAD_REGISTERS = 255
REGISTERS = 65536
SHARED_UNASKED = 48 * 1024


# To save time, targets that have the same kernels as sm_80 take a share of the instances.
LIKE_SM_80 = ["sm_86", "sm_89", "sm_100", "sm_120"]
# What has been compiled for the table already is compiled again in parts, another one each day.
DAYS = 12


def unknown(target: str) -> list[Instance]:
    """The instances whose text, options or compiler are not those of the table."""
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
    """Be it by its text but for comments, that of a header, or the options."""
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


# Bytes that instances on matrix units spill on the GPU that they were measured on. With 900 the
# portable engine took 1.4 times as long as with 300, and as long with 330; with 250 in float32 it
# took 1.12 times as long as with 40. Bytes are those of the table's compiler; the two last times
# are of NVRTC 13.0, whose own bytes differ.
MOST_SPILLED = {
    "ENGINE=MmaEngine": 340,
    "PARTS=2, ENGINE=MmaEngine": 60,
    "ENGINE=WgmmaEngine": 450,
    "pointwise_conv.cu": 320,
}


def test_spills_of_measured_instances() -> None:
    for part, most in MOST_SPILLED.items():
        rows = [row for name, row in TABLE["sm_90a"].items() if part in name]
        assert rows
        assert max(spills for _, spills, *_ in rows) <= most, part


# Which take much of a block's shared memory: long rows, many taps, large steps, many channels.
GREEDY = [
    *CHOSEN["matrix_conv.cu"],
    conv((16, 512, 512, 512), (512, 512, 3, 3), padding=1),
    conv((16, 64, 224, 224), (64, 64, 7, 7), stride=4, padding=3),
    conv((16, 64, 224, 224), (16, 64, 3, 3), dilation=8),
    conv((16, 256, 100_000), (256, 256, 31), stride=8),
    conv_transpose((16, 64, 64, 64, 64), (64, 64, 4, 4, 4), stride=2, padding=1),
    conv_transpose((16, 64, 224, 224), (64, 12, 9, 9), stride=4),
]


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_of_plans(target: str) -> None:
    """What a kernel declares and what its launch asks for fit."""
    found = 0
    for kernel, geometry, mode in itertools.product(("portable", "hopper"), GREEDY, MODES):
        for multiprocessors in (1, 132):
            plan = plan_of(geometry, *mode, Processor(target, multiprocessors), kernel)
            if isinstance(plan, MatrixPlan):
                declared = TABLE[target][str(plan.launch.instance)][2]
                assert declared + plan.launch.shared <= SHARED[target], plan
                found += 1
    assert (found > 0) == (target != "sm_75")


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_with_one_input_channel(target: str) -> None:
    for geometry in (*CHOSEN["depthwise_conv.cu"], *CHOSEN["gather_conv.cu"]):
        plan = plan_of(geometry, processor=Processor(target, 132))
        assert isinstance(plan, DepthwisePlan | GatherPlan)
        declared = TABLE[target][str(plan.launch.instance)][2]
        assert declared + plan.launch.shared <= SHARED[target], plan


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_with_few_products(target: str) -> None:
    for geometry in CHOSEN["plain_conv.cu"]:
        plan = plan_of(geometry, processor=Processor(target, 132))
        assert isinstance(plan, PlainPlan)
        for launch in (plan.pack, plan.launch):
            declared = TABLE[target][str(launch.instance)][2]
            assert declared + launch.shared <= SHARED[target], plan


def test_products_that_wait_are_found() -> None:
    """As for the compiler of CUDA 12 where sums seem to add to what was never defined."""
    instance = next(i for i in instances("sm_90a") if i.source == "pointwise16_conv.cu")
    code, options = resources._compile.code(instance), resources._compile.options(instance)
    undefined = code.replace("float sums[SLABS][SUMS] = {};", "float sums[SLABS][SUMS];")
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


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_of_norms(target: str) -> None:
    """What a kernel declares and what its launch asks for fit, for sets of all sizes."""
    processor, single = Processor(target, 132), np.dtype(np.float32)
    for elements in range(1000, 70_000, 199):
        geometry = group_norm("group_norm", (2, 1, elements), 1, {})
        plan = plan_norm(geometry, single, single, False, False, False, processor)
        declared = TABLE[target][str(plan.normalize.instance)][2]
        assert declared + plan.normalize.shared <= SHARED[target], plan
