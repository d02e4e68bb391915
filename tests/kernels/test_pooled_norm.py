"""The fused operation's second kernel, and the dense kernel where it pools."""

from __future__ import annotations

import pytest

import test_fused
from cupyconv._kernels import pooled_norm, views
from cupyconv._kernels.launches import ELEMENTS, Instance
from matrices import choose_shape, parts_of
from planning import Steering, constant
from running import INSTANCES, Recorder, dtype_of, instances_of, on_the_emulator
from subjects import Subject

POOLED = [i for i in instances_of("matrix_conv.cu") if ("POOLS", "1") in i.defines]


def threads(instance: Instance) -> int:
    most = "MOST_THREADS" if instance.function == "normalize" else "THREADS"
    return constant("pooled_norm.cu", most)


SUBJECTS = (
    Subject(
        pooled_norm,
        threads=threads,
        any_warps=("normalize",),
        everywhere=False,
        tested=POOLED,
        elsewhere=("combine", "normalize", "activate"),  # the last one by test_fused
        limits={"THREADS": views.THREADS},
    ),
)


@pytest.fixture
def several(instance: Instance, steer: Steering) -> None:
    """Of the tilings, plans choose among those of the instance that divide x and another axis."""
    choose_shape(steer, parts_of(instance), (1, 1, 1))


@on_the_emulator("instance", cases=POOLED)
@pytest.mark.usefixtures("several")
def test_pooled_instance(instance: Instance) -> None:
    """The fused operation, with odd sizes and more rows than a block has."""
    kernel, dtype, precision, _, shape = parts_of(instance)
    channels = shape.rows + 8
    case = test_fused.fused_case(
        (1, 22, 5, shape.columns // 2 + 5),
        (22, channels, 3, 5),
        dtype_of(ELEMENTS[dtype]),
        num_groups=channels,
        groups=2,
        precision=precision,
    )
    backend = Recorder(kernel)
    test_fused.check(backend, case)
    (plan,) = backend.plans
    assert plan.launch.instance == instance
    assert [launch.instance.function for launch in backend.launches] == [
        *("pack_weights", "matrix_conv", "combine", "normalize")
    ]
    assert {launch.instance for launch in backend.launches[2:]} <= set(INSTANCES)
    assert plan.launch.grid < 2 * plan.layout.count, "each block has one tile"
