"""Plans: which kernel, how many blocks, and that all of it follows from rules alone."""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import cupyconv
import subjects
from cupyconv import _compile, _strides
from cupyconv._axes import joined
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import (
    choice,
    gather_conv,
    matrix_conv,
    matrix_tiles,
    packed_weights,
    plain_tiles,
)
from cupyconv._kernels.choice import KERNELS, instances
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import TARGETS, Instance, Launch, Processor
from cupyconv._kernels.question import Question
from planning import (
    ALL,
    GROWING,
    HOPPER,
    MOST,
    any_case,
    any_mode,
    conv,
    conv_geometries,
    conv_transpose,
    dense_geometries,
    forget,
    launches_of,
    listed,
    plan_of,
    processors,
)
from strategies import (
    DTYPES,
    MODES,
    Case,
    batch_norms,
    convolutions,
    fused_operations,
    group_norms,
    max_pools,
)

subjects.subjects()  # imports tests, which a test of Hypothesis may not do


@given(case=any_case, processor=processors, kernel=st.sampled_from([None, *KERNELS]))
def test_every_launch_is_of_a_listed_instance(
    case: Case, processor: Processor, kernel: str | None
) -> None:
    with choice.forced(kernel):
        launches = launches_of(case, processor)
    assert launches or 0 in getattr(cupyconv, case.function)(**case.arrays, **case.options).shape
    for launch in launches:
        assert 1 <= launch.grid <= MOST
        assert launch.grid % launch.unit == 0
        if subjects.takes_any_warps(launch.instance):
            assert launch.block % 32 == 0 and launch.block <= subjects.threads(launch.instance)
        else:
            assert launch.block == subjects.threads(launch.instance)
        assert launch.instance in listed(processor.target, kernel)
        if subjects.of_instance(launch.instance).everywhere:
            assert all(launch.instance in ALL[target] for target in TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_instances(target: str) -> None:
    own = instances(target)
    assert len(own) == len(set(own)), "an instance is listed twice"
    assert len(own) <= (495 if target == "sm_90a" else 344)
    for instance in own:
        text = _compile.source(instance.source)
        kernel = (
            rf'extern "C" __global__ void (__launch_bounds__\([^)]*\)\s+)?{instance.function}\('
        )
        assert re.search(kernel, text), instance
        for name, value in instance.defines:
            assert re.search(rf"\b{name}\b", text), (instance, name)
            assert value
        if ("ENGINE", "WgmmaEngine") in instance.defines:
            assert target == "sm_90a"


def test_every_kernel_has_an_instance() -> None:
    for path in _compile.directory().glob("*.cu"):
        kernels = set(
            re.findall(
                r"__global__ void (?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(", path.read_text()
            )
        )
        found = {i.function for t in TARGETS for i in instances(t) if i.source == path.name}
        assert kernels == found, path.name


@pytest.mark.parametrize("target", ["sm_90", "sm_70", "", "9.0", None])
def test_unknown_target(target: Any) -> None:
    with pytest.raises(ValueError, match=r"^target must be one of .*'sm_90a'.*, got ") as caught:
        instances(target)
    assert str(caught.value).endswith(f"got {target!r}")


# Geometries of any size, without arrays -----------------------------------------------------


@pytest.mark.parametrize("kernel", [None, *KERNELS])
def test_large_arrays_are_planned_as_quickly(kernel: str | None) -> None:
    """The ways to divide them do not grow in number with any size."""
    more = {
        "rows": lambda n: conv((1, 2, 1, 1), (n, 2, 1, 1)),
        "rows with taps": lambda n: conv((1, 2, 5, 5), (n // 16, 2, 3, 3)),
        "groups": lambda n: conv((1, n // 8, 4), (n // 8, 2, 3), groups=n // 16),
        "samples": lambda n: conv((n // 64, 4, 16), (4, 4, 3)),
        "phases": lambda n: conv_transpose((1, 64, 8), (64, 64, n >> 16), stride=n >> 16),
    }
    for respect, make in {**GROWING, **more}.items():
        for dtype, precision in MODES:
            forget(choice)
            start = time.process_time()
            plan_of(make(2**31), dtype, precision, kernel=kernel)
            assert time.process_time() - start < 1, respect


# Convolutions on Tensor Cores ----------------------------------------------------------------


def strides_of(geometry: ConvGeometry, gap: int) -> _strides.ConvStrides:
    """The strides of contiguous arrays, but for a gap after each line of the input's last axis."""

    def along(sizes: list[int], gap: int) -> list[int]:
        lines = [*sizes[:-1], sizes[-1] + gap]
        return [math.prod(lines[axis + 1 :]) for axis in range(len(lines))]

    inputs = along([axis.size_in for axis in geometry.axes], gap)
    outputs = along([axis.size_out for axis in geometry.axes], 0)
    kernels = along([axis.kernel for axis in geometry.axes], 0)
    return _strides.ConvStrides((0, 0, 0), (0, 0, 0), (0, 0, 0), inputs, kernels, outputs)


@given(data=st.data(), element=st.sampled_from([2, 4]))
def test_lines_of_an_input(data: st.DataObject, element: int) -> None:
    """Those from its first element to its last one, of any input that has no gaps."""
    n, c, y, x = data.draw(st.tuples(*[st.integers(1, 4)] * 4))
    g = conv((n, 2 * c, y, x), (2, c, 1, 1), groups=2)
    sizes = [g.batch, g.groups, g.channels, *(axis.size_in for axis in g.axes)]
    order = data.draw(st.permutations(range(len(sizes))))
    gap, at = data.draw(st.sampled_from([0, 0, 1])), data.draw(st.integers(0, len(sizes) - 1))
    strides, stride = [0] * len(sizes), 1
    for axis in order:
        strides[axis] = stride
        stride *= sizes[axis]
        stride += gap if axis == order[at] else 0
    if data.draw(st.booleans()):
        strides[at] *= data.draw(st.sampled_from([-1, 0, 1]))
    own = strides_of(g, 0)._replace(input=tuple(strides[:3]), input_axes=strides[3:])
    offsets = {sum(map(operator.mul, strides, place)) for place in np.ndindex(*sizes)}
    lines = packed_weights.lines_of(g, own, element)
    if lines:
        assert min(offsets) == 0
        assert lines == math.ceil((max(offsets) + 1) * element / 128)
    else:
        assert min(strides) < 0 or offsets != set(range(math.prod(sizes)))


def test_lines_of_a_large_input() -> None:
    small, large = (conv((batch, 64, 256, 256), (64, 64, 3, 3)) for batch in (1, 2))
    inside = (64 * 256 * 256, 64 * 256 * 256, 256 * 256)
    own = [strides_of(g, 0)._replace(input=inside) for g in (small, large)]
    lines = [packed_weights.lines_of(g, s, 4) for g, s in zip((small, large), own, strict=True)]
    assert lines == [2**24 // 128, 0]


@pytest.mark.parametrize(
    ("geometry", "merged"),
    [
        (conv((2, 8, 5, 7), (8, 8, 1, 1)), [35]),
        (conv_transpose((2, 8, 3, 5, 7), (8, 8, 1, 1, 1)), [105]),
        (conv((2, 8, 9, 5, 7), (8, 8, 3, 1, 1)), [9, 5, 7]),
        (conv((2, 8, 2**16, 2**16, 7), (8, 8, 1, 1, 1)), [2**16, 7 * 2**16]),
        (conv((2, 8, 9, 5, 7), (8, 8, 1, 3, 1)), [9, 5, 7]),
        (conv((2, 8, 5, 7), (8, 8, 1, 1), stride=(2, 1)), [5, 7]),
        (conv((2, 8, 5, 7), (8, 8, 1, 1), padding=(0, 1)), [5, 7]),
        (conv_transpose((2, 8, 5, 7), (8, 8, 1, 1), stride=(1, 2)), [5, 7]),
        (conv((2, 8, 2**16, 2**16), (8, 8, 1, 1)), [2**16, 2**16]),
        (conv((2, 8, 3, 3, 5, 7), (8, 8, 1, 1, 1, 1)), [3, 3, 5, 7]),
    ],
    ids=str,
)
def test_axes_of_a_pointwise_convolution_are_one(geometry: ConvGeometry, merged: list[int]) -> None:
    got, strides = _strides.merged(geometry, strides_of(geometry, 0))
    assert [axis.size_in for axis in got.axes] == merged
    assert len(got.stride) == len(got.dilation) == len(got.pads_before) == len(merged)
    assert [len(own) for own in strides[3:6]] == [len(merged)] * 3
    assert strides.input_axes[-1] == strides.out_axes[-1] == 1
    outputs = [math.prod(axis.size_out for axis in g.axes) for g in (got, geometry)]
    assert outputs[0] == outputs[1]
    if len(merged) == 1:
        apart = strides_of(geometry, 3)
        assert len(_strides.merged(geometry, apart)[0].axes) > 1


# Choices --------------------------------------------------------------------------------------


@given(
    rank=st.sampled_from([2, 3]),
    size=st.integers(8, 60),
    dilation=st.integers(1, 2**30),
    channels=st.integers(1, 40),
    rows=st.integers(1, 70),
    processor=processors,
)
@example(rank=2, size=256, dilation=10**7, channels=2, rows=64, processor=HOPPER)
@example(rank=2, size=24_000, dilation=1, channels=3, rows=8, processor=HOPPER)
def test_what_lies_as_one_does_not_choose_the_kernel(
    rank: int, size: int, dilation: int, channels: int, rows: int, processor: Processor
) -> None:
    """A pointwise convolution of an array and of a view of another one have the same bits."""
    shapes = (2, channels, *(size,) * rank), (rows, channels, *(1,) * rank)
    geometry = conv(*shapes, dilation=(dilation, *(1,) * (rank - 1)))
    merged, _ = _strides.merged(geometry, strides_of(geometry, 0))
    assert merged.rank == 1
    plans = plan_of(merged, processor=processor), plan_of(geometry, processor=processor)
    assert len({type(plan) for plan in plans}) == 1


def test_phases_of_which_none_has_a_tap() -> None:
    """Their taps would be for outputs that padding takes away."""
    geometry = conv_transpose(
        (1, 64, 64, 1), (64, 64, 3, 1),
        stride=(1, 17), padding=((0, 0), (1, 0)), output_padding=(0, 16),
    )  # fmt: skip
    for target in TARGETS:
        assert plan_of(geometry, processor=Processor(target, 132)).launches


CHOSEN = [(one, geometry) for one in subjects.convolutions() for geometry in one.chosen]
ENGINES = {"portable": "MmaEngine", "hopper": "WgmmaEngine"}


@pytest.mark.parametrize(("kernel", "geometry"), CHOSEN, ids=str)
def test_the_choice_of_a_kernel(
    kernel: subjects.ConvolutionSubject, geometry: ConvGeometry
) -> None:
    """Each kernel has calls that it is the fastest for; elsewhere one runs that is able to."""
    plan = plan_of(geometry, processor=HOPPER)
    assert subjects.of_plan(plan) is kernel
    for target in TARGETS:
        for dtype in DTYPES:
            taken = choice.choose(geometry, dtype, "float32", Processor(target, 132))
            one = subjects.of_plan(taken.plan)
            assert one.able(dtype, target)
            engines = {
                dict(launch.instance.defines).get("ENGINE") for launch in taken.plan.launches
            }
            assert engines <= {None, ENGINES.get(taken.kernel)}
            assert taken.kernel != ("portable" if target == "sm_90a" else "hopper")


# Calls that no kernel on Tensor Cores can take, even where one is forced: the direct kernel does.
REFUSED = {
    "four axes": conv((1, 64, 9, 9, 9, 9), (64, 64, 3, 3, 3, 3)),
    "no channels": conv((1, 0, 56, 56), (64, 0, 3, 3)),
    "64-bit coordinates": conv((1, 64, 2**31), (64, 64, 3)),
    "kernels too long for the table of distances": conv((1, 64, 9000), (64, 64, 5000)),
    "inputs of a tile that shared memory does not hold": conv(
        (1, 64, 3000, 3000), (64, 64, 2, 2), dilation=2000
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_direct_kernel_takes_the_rest(name: str) -> None:
    for mode in MODES:
        for kernel in ("portable", "hopper"):
            assert isinstance(plan_of(REFUSED[name], *mode, HOPPER, kernel), DirectPlan)
        assert choice.choose(REFUSED[name], *mode, HOPPER).kernel not in matrix_conv.PLANS


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name not in choice.UNFOLDED])
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_run_where_they_can(target: str, kernel: str) -> None:
    """Each takes one input channel in each group, though it may not be what is chosen for it."""
    example, processor = subjects.examples()[kernel], Processor(target, 132)
    plan = plan_of(
        subjects.ONE_CHANNEL, precision=example.precision, processor=processor, kernel=kernel
    )
    (kind,) = [one.module.PLAN for one in subjects.convolutions() if kernel in one.examples]
    assert isinstance(plan, kind if target in example.targets else DirectPlan)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_dilation_of_a_single_tap_does_not_choose_the_kernel(target: str) -> None:
    """Where two axes lie as one, nothing is left of the second one's."""
    sizes = (1, 120, 20, 24), (70, 120, 1, 1)
    far = conv(*sizes, dilation=(1, 2**31 - 1))
    plans = [plan_of(g, processor=Processor(target, 132)) for g in (conv(*sizes), far)]
    assert type(plans[0]) is type(plans[1]) is not DirectPlan


@given(
    channels=st.sampled_from([3, 16, 17, 64, 200, 256, 512, 2048, 4096]),
    rows=st.integers(1, 600),
    image=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    mode=any_mode,
    multiprocessors=st.sampled_from([30, 132]),
)
@example(4096, 512, (7, 7), MODES[2], 132)
def test_axes_that_lie_as_one_do_not_choose_the_kernel(
    channels: int,
    rows: int,
    image: tuple[int, int],
    mode: tuple[np.dtype[Any], str],
    multiprocessors: int,
) -> None:
    """Nor, therefore, does the layout of an array; what is added up stays the same."""
    apart = conv((8, channels, *image), (rows, channels, 1, 1))
    one = joined(apart, 0)
    assert one
    plans = [plan_of(g, *mode, Processor("sm_90a", multiprocessors)) for g in (apart, one)]
    assert type(plans[0]) is type(plans[1])
    order = subjects.of_plan(plans[0]).order_of_joined
    assert order(plans[0]) == order(plans[1])


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kernel must be one of .*'hopper'.*, got 'wgmma'"):
        plan_of(subjects.ONE_CHANNEL, kernel="wgmma")


@given(
    geometry=st.one_of(conv_geometries(), dense_geometries()),
    mode=st.one_of(any_mode, st.sampled_from([(dtype, "float32") for dtype in DTYPES])),
    processor=processors,
    batch=st.one_of(st.integers(1, 300), st.integers(1, 2**20)),
)
@example(
    geometry=conv((1, 86, 4, 4, 3), (32, 86, 1, 3, 2)),
    mode=(np.dtype("float32"), "float32"),
    processor=Processor("sm_86", 1),
    batch=7,
)  # a tile of several samples does not fit shared memory
def test_the_batch_does_not_choose_the_kernel(
    geometry: ConvGeometry, mode: tuple[np.dtype[Any], str], processor: Processor, batch: int
) -> None:
    """Nor, therefore, the order in which a sum is added up, in arrays that a GPU may hold."""
    outputs = geometry.groups * geometry.rows * math.prod(a.size_out for a in geometry.axes)
    inputs = geometry.groups * geometry.channels * math.prod(a.size_in for a in geometry.axes)
    assume(max(inputs, outputs) * max(batch, 7) < 2**34)
    one, seven, many = (
        plan_of(replace(geometry, batch=n), *mode, processor) for n in (1, 7, batch)
    )
    for plan in (seven, many):
        assert subjects.order_of(plan) == subjects.order_of(one)


def with_samples(case: Case, n: int) -> Case:
    """The case with its first sample n times."""
    x = case["input"][:1]
    return case.with_arrays(input=np.broadcast_to(x, (n, *x.shape[1:])))


def kinds(launches: Sequence[Launch]) -> list[tuple[str, str]]:
    """What decides on the order of a sum: the shape of a tile does not, neither on Tensor Cores nor
    in the direct kernel, whose macros after the element and the rank say the shape; nor does which
    kernel adds the ranges of the im2col one.
    """
    found = []
    for instance in [launch.instance for launch in launches]:
        if instance.function == "direct_conv":
            found.append((instance.function, str(instance.defines[:2])))
        elif instance.function == "im2col_conv":
            found.append((instance.function, ""))
        elif found and found[-1][0] == "im2col_conv" and instance.function == "sum_splits":
            continue
        else:
            engine = dict(instance.defines).get("ENGINE", str(instance))
            found.append((instance.function, engine))
    return found


@given(
    case=st.one_of(
        convolutions(unbatched=False),
        batch_norms(given=True),
        group_norms(),
        max_pools(unbatched=False),
        fused_operations(given=True),
    )
)
def test_one_sample_and_seven(case: Case) -> None:
    assume(case["input"].shape[0])
    one, seven = (launches_of(with_samples(case, n)) for n in (1, 7))
    assert kinds(one) == kinds(seven)


def test_instances_are_values() -> None:
    """Two descriptions of one kernel are one key."""
    (one, *_), (other, *_) = instances("sm_90a"), instances("sm_75")
    assert one == other and hash(one) == hash(other) and isinstance(one, Instance)
    with pytest.raises(AttributeError):
        one.source = "another.cu"  # type: ignore[misc]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "precision"), [*MODES, (np.dtype(np.float64), "float32")])
@pytest.mark.parametrize("channels", [1, 3, 64])
def test_many_phases_are_planned_quickly(
    target: str, dtype: np.dtype[Any], precision: str, channels: int
) -> None:
    """A stride as large as a large kernel has a phase for each tap: no loop runs over them."""
    seconds = []
    for size in (8, 10, 12):  # other taps each time, which no cache has
        geometry = conv_transpose((1, channels, size, size), (channels, 64, 512, 512), stride=512)
        begun = time.perf_counter()
        choice.plan_conv(geometry, dtype, precision, Processor(target, 132))
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.02


# The most layouts that a plan makes, and by which kernels. Other tiles are left out by their bounds
# or compared as arrays, so that a plan takes a millisecond.
FEW_LAYOUTS = {
    "an image": (conv((64, 64, 56, 56), (64, 64, 3, 3), padding=1), 6, ("hopper", "portable")),
    "a line": (conv((1, 3, 150_000), (256, 3, 3), stride=3), 6, ("hopper", "portable")),
    "packed outputs": (conv((4, 8, 255, 204), (8, 8, 3, 9)), 12, ("hopper", "portable")),
    "a volume": (
        conv_transpose((16, 32, 15, 15, 17), (32, 2, 3, 3, 3), stride=2),
        *(12, ("hopper", "portable")),
    ),
    "few products": (conv((64, 3, 64, 64), (8, 3, 3, 3)), 1, ("plain",)),
    "channels": (conv((4, 96, 56, 56), (96, 1, 5, 5), groups=96), 1, ("gather",)),
}


@pytest.mark.parametrize("name", FEW_LAYOUTS)
def test_plans_make_few_layouts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    geometry, most, kernels = FEW_LAYOUTS[name]
    made: list[Any] = []

    def noted(layout: type) -> Callable[..., Any]:
        def make(**members: Any) -> Any:
            made.append(members)
            return layout(**members)

        return make

    for module, kind in (matrix_tiles, "Tiling"), (plain_tiles, "Layout"), (gather_conv, "Layout"):
        monkeypatch.setattr(module, kind, noted(getattr(module, kind)))
    for kernel in kernels:
        made.clear()
        forget()
        question = Question(geometry, np.dtype(np.float16), "float32", HOPPER)
        assert not isinstance(choice._PLANS[kernel](question), str)
        assert 1 <= len(made) <= most
    forget()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "precision"), MODES)
def test_plans_run_over_no_phases(target: str, dtype: np.dtype[Any], precision: str) -> None:
    """A million phases of an axis are planned like a few, whether or not all have outputs."""
    many = 2**20
    for kernel, padding in ((many, 0), (many // 2, 0), (many, 3 * many + 7), (many + 7, 3 * many)):
        seconds = []
        for size in (8, 10, 12):  # other taps each time, which no cache has
            geometry = conv_transpose(
                (2, 64, size), (64, 64, kernel), stride=many, padding=(padding,)
            )
            begun = time.perf_counter()
            choice.plan_conv(geometry, dtype, precision, Processor(target, 132))
            seconds.append(time.perf_counter() - begun)
        assert min(seconds) < 0.1
