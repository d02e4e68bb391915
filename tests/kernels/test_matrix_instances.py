"""The dense kernel: each of its instances on the emulator that does not pool."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import test_convolution
import test_windows
from backends import EmulatorBackend
from bounds import assert_convolution
from cupyconv._kernels.launches import Instance, Processor
from cupyconv._kernels.matrix_conv import MatrixPlan
from matrices import choose_shape, parts_of
from planning import Steering
from running import (
    Recorder,
    call_for,
    instances_of,
    on_the_emulator,
    run_once,
)
from strategies import Convolution, convolution

MATRIX = [i for i in instances_of("matrix_conv.cu") if ("POOLS", "1") not in i.defines]


LINES = [
    convolution("conv2d", (2, 9, 5, 150), (9, 9, 3, 3), padding=1),
    convolution("conv2d", (2, 9, 5, 150), (20, 9, 3, 3), "float16", padding=1, stride=(1, 3)),
    convolution("conv2d", (1, 9, 5, 149), (9, 9, 3, 3), "bfloat16"),
    convolution("conv_transpose2d", (1, 9, 3, 74), (9, 9, 3, 4), precision="tf32", stride=(1, 2)),
]


# What the dense kernel tells apart, each by the length n of the last axis of the output (or of one
# of its phases, or packed), by the input channels c of a group, and by its rows r.
KINDS: dict[str, Any] = {
    "polyphase components": lambda n, c, r: (
        "conv2d", (1, 2 * c, 4, 2 * n), (2 * r, c, 2, 2), {"stride": (1, 2)},
    ),
    "phases": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, n - 4), (2 * c, r, 4, 3),
        {"stride": (2, 1), "dilation": (3, 2), "padding": (1, 0)},
    ),
    "three axes": lambda n, c, r: (
        "conv3d", (1, 2 * c, 3, 1, n + 1), (2 * r, c, 2, 2, 2), {"padding": (0, 1, 0)},
    ),
    "a fold": lambda n, c, r: (
        "conv2d", (2, 2 * c, 2, 4 * n), (2 * 9, c, 1, 3), {"padding": (0, 1)},
    ),
    "three axes, transposed": lambda n, c, r: (
        "conv_transpose3d", (1, 2 * c, 1, 1, n - 1), (2 * c, r, 4, 2, 2), {"stride": (2, 1, 1)},
    ),
    "a packed stride": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, n - 1), (2 * c, 17, 2, 9), {"stride": (1, 8)},
    ),
    "two packed strides": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, n - 1), (2 * c, 9, 5, 3), {"stride": (3, 2)},
    ),
    "three packed strides": lambda n, c, r: (
        "conv_transpose3d", (1, 2 * c, 1, 2, n - 1), (2 * c, 7, 6, 2, 4), {"stride": (2, 2, 3)},
    ),
    "a fold of rows": lambda n, c, r: (
        "conv2d", (2, 2 * c, 5, n), (2 * 17, c, 3, 1), {},
    ),
    "a fold of places": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, 2 * n - 1), (2 * c, 17, 2, 3), {"stride": (1, 2)},
    ),
}  # fmt: skip

# How many outputs along z, y and x are one.
FOLDS = {
    "a fold": (1, 1, 4),
    "a packed stride": (1, 1, 8),
    "two packed strides": (1, 3, 2),
    "three packed strides": (2, 2, 3),
    "a fold of rows": (1, 2, 1),
    "a fold of places": (1, 1, 4),
}


def kind_of(instance: Instance) -> str:
    """All of them in turn, for each mode; the largest shapes cannot pack outputs with strides."""
    before = 0
    for _, same in itertools.groupby(MATRIX, lambda other: parts_of(other)[:4]):
        own = list(same)
        if instance in own:
            place = own.index(instance)
            break
        before += len(own) // 4
    return list(KINDS)[(place % 4 + (place // 4 + before) * 2) % len(KINDS)]


def matrix_case(instance: Instance) -> Convolution:
    """A call of its kind, with an odd number of columns and more channels than rings hold."""
    _, _, precision, mode, shape = parts_of(instance)
    channels = (12 if shape.teams == 1 else 6) * mode.block + 3
    call = KINDS[kind_of(instance)](3 * shape.columns // 4 + 7, channels, shape.rows + 9)
    return call_for(instance, call, 2, precision)


@pytest.fixture
def several(instance: Instance, steer: Steering) -> None:
    """Of the tilings, plans choose among those of the instance that divide x and another axis."""
    choose_shape(steer, parts_of(instance), FOLDS.get(kind_of(instance), (1, 1, 1)))


@on_the_emulator("instance", cases=MATRIX)
@pytest.mark.usefixtures("several")
def test_matrix_instance(instance: Instance) -> None:
    plan = run_once(parts_of(instance).kernel, matrix_case(instance), instance)
    sum, tiling = plan.summation, plan.layout
    assert plan.launch.grid < 2 * tiling.count * sum.phases, "each block has one tile"
    assert sum.axes[2].taps.positions(0) % tiling.tile[3]
    assert sum.channels % 8
    assert -(-sum.blocks // sum.depth) * sum.axes[0].most_taps > tiling.stages
    assert sum.steps > tiling.weight_stages * sum.group
    kind = kind_of(instance)
    if kind != "a fold":  # whose rows are few
        assert tiling.row_tiles > 1 or sum.matrix_rows % tiling.shape.rows
    assert (kind == "polyphase components") == (sum.axes[2].lattices > 1 and sum.folds == 1)
    assert ("phases" in kind or "transposed" in kind) == (sum.phases > 1)
    assert tuple(fold.count for fold in sum.fold) == FOLDS.get(kind, (1, 1, 1))
    assert ("three" in kind) == (sum.axes[0].most_taps > 1)


@on_the_emulator(
    "case",
    cases=[
        test_windows.late("float32", 2112),
        test_windows.late("tf32", 2112),
        convolution("conv2d", (2, 64, 3, 5), (64, 64, 5, 7), "float16", padding="same"),
    ],
)
def test_rows_that_blocks_share(case: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a GPU has multiprocessors to spare, blocks share the weights of some rows."""
    backend = Recorder("hopper")
    monkeypatch.setattr(backend.path.device, "processor", lambda: Processor("sm_90a", 32))
    result = backend.compute(case)
    assert_convolution(result, case.defined, case["input"].dtype, case.precision)
    (plan,) = backend.plans
    assert backend.launches == [plan.pack, plan.launch]
    assert plan.splits > 1 and plan.pack.grid >= 2 * 64 // plan.summation.mode.pack_rows


@on_the_emulator("precision", cases=["float32", "tf32"])
def test_one_tap_where_shared_memory_is_small(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages of many channels are shorter there, or none would fit."""
    backend = Recorder("portable")
    monkeypatch.setattr(backend.path.device, "processor", lambda: Processor("sm_86", 2))
    case = convolution("conv2d", (2, 75, 17, 44), (70, 75, 1, 1), bias=True, precision=precision)
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert isinstance(plan, MatrixPlan)
    assert plan.summation.depth == (2 if precision == "float32" else 4)


@pytest.mark.emulator
@pytest.mark.parametrize("function", ["conv_transpose2d", "conv2d"])
def test_weights_that_stay_for_several_passes(function: str) -> None:
    """Of an odd number of K blocks the last stage has one, where the others have two."""
    weight = (48, 16, 3, 3) if function == "conv_transpose2d" else (16, 48, 3, 3)
    case = convolution(function, (1, 48, 4, 8), weight, style="whole")
    case["input"][:, ::3] *= 2.0**20  # which takes passes of its own
    test_convolution.check(EmulatorBackend("hopper", multiprocessors=132), case)
