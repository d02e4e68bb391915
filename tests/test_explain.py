"""Explanations: they tell what the call itself does, and cost neither memory nor a GPU."""

from __future__ import annotations

import inspect
import json
import math
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupyconv
import cupyconv.dask
import cupyconv.grad
from benchmarks.cases import Convolution, load
from benchmarks.precisions import PRECISIONS
from cupyconv import _explain, _gpus
from cupyconv._explain import Explanation
from cupyconv._kernels import choice
from cupyconv._kernels.chips import CHIPS
from planning import any_case, launches_of
from strategies import BFLOAT16, Case
from test_errors import nested
from test_foreign import Exchanged

explain = cupyconv.explain
FUSED = cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm
C = (128,)
KERNELBENCH = {"num_groups": 8, "padding": 1, "target": "sm_90a"}  # level 2, problem 11
KERNELBENCH_SHAPES = ((512, 64, 32, 32), (64, 128, 5, 5), C, C, C, C)


def explained(case: Case, target: str, **more: Any) -> Explanation:
    call = getattr(cupyconv, case.function)
    return explain(call, **case.arrays, **case.options, target=target, **more)


@given(case=any_case, target=st.sampled_from(tuple(CHIPS)))
def test_what_is_explained_is_what_is_done(case: Case, target: str) -> None:
    """Launches and result are the same as in the call on such a GPU."""
    found = explained(case, target)
    assert list(found.launches) == launches_of(case, CHIPS[target].processor)
    result = getattr(cupyconv, case.function)(**case.arrays, **case.options)
    assert (found.out_shape, found.dtype) == (result.shape, result.dtype)
    given = {name: a for name, a in case.arrays.items() if a is not None}
    assert found.shapes == {name: a.shape for name, a in given.items()}
    once = (a[tuple(slice(None if s else 1) for s in a.strides)] for a in given.values())
    assert found.bytes == result.nbytes + sum(a.nbytes for a in once)
    assert (found.kernel == "none") == (not result.size) == (not found.launches)
    assert 0 <= found.limit_ms <= found.expected_ms
    assert 0 <= found.expected_share <= 1


@given(case=any_case)
def test_shapes_do_as_well_as_contiguous_arrays(case: Case) -> None:
    whole = {n: None if a is None else np.zeros(a.shape, a.dtype) for n, a in case.arrays.items()}
    dtypes = {a.dtype for a in whole.values() if a is not None}
    if len(dtypes) > 1:
        return
    (dtype,) = dtypes
    shapes = {n: None if a is None else a.shape for n, a in whole.items()}
    by_array = explained(case.with_arrays(**whole), "sm_90a")
    call = getattr(cupyconv, case.function)
    by_shape = explain(call, **shapes, **case.options, target="sm_90a", dtype=dtype)
    assert by_shape == by_array


def test_nothing_is_made_for_a_call_of_any_size() -> None:
    """2**53 bytes: no memory has them."""
    found = explain(cupyconv.conv2d, (2**20, 8, 2**14, 2**14), (8, 8, 3, 3), target="sm_90a")
    assert found.bytes > 2**53
    assert found.limit_ms > 1e6


def test_every_function_that_takes_arrays_can_be_explained() -> None:
    def annotations(function: Any) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters
        return {n: inspect.unwrap(function).__annotations__[n] for n in parameters}

    public = [getattr(cupyconv, name) for name in cupyconv.__all__]
    public += [getattr(cupyconv.grad, name) for name in cupyconv.grad.__all__]
    functions = [function for function in public if inspect.isfunction(function)]
    takers = [f for f in functions if any("Array" in a for a in annotations(f).values())]
    takers.remove(explain)
    assert set(_explain.FUNCTIONS) == set(takers)
    named = {n for f in takers for n, a in annotations(f).items() if "Array" in a}
    assert named == _explain._ARRAYS


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (((2, 3, 8), (4, 2, 3)), {}),
        (((2, 3, 8), (4, 3, 9)), {}),
        (((2, 3, 8), (4, 3, 3), (5,)), {}),
        (((2, 3, 8), (4, 3, 3)), {"stride": 0}),
        (((2, 3, 8), (4, 3, 3)), {"padding": "full"}),
        (((2, 3, 8), (4, 3, 3)), {"precision": "float16"}),
        (((2, 3, 8), (4, 3, 3)), {"stride": 1.5}),
    ],
)
def test_errors_are_those_of_the_call(arguments: Any, options: Any) -> None:
    def message(call: Any) -> tuple[type[Exception], str]:
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        return caught.type, str(caught.value)

    arrays = [np.zeros(shape, np.float32) for shape in arguments]
    assert message(
        lambda: explain(cupyconv.conv1d, *arguments, target="sm_80", **options)
    ) == message(lambda: cupyconv.conv1d(*arrays, **options))


def test_an_out_that_cannot_be_written_is_refused_as_in_the_call() -> None:
    x, w = np.zeros((1, 1, 8), np.float32), np.zeros((1, 1, 1), np.float32)
    for out in (x, np.zeros((1, 1, 7), np.float32), np.broadcast_to(np.float32(0), (1, 1, 8))):
        with pytest.raises(ValueError, match="conv1d: out must"):
            explain(cupyconv.conv1d, x, w, out=out, target="sm_80")
    # Arrays of shapes lie apart from each other; out is the result, and no array more.
    shapes = (1, 1, 8000), w.shape
    found = explain(cupyconv.conv1d, *shapes, out=shapes[0], target="sm_80")
    assert found == explain(cupyconv.conv1d, *shapes, target="sm_80")


def test_what_explain_itself_refuses() -> None:
    shapes = (1, 1, 8), (1, 1, 3)
    with pytest.raises(TypeError, match=r"explain: function must be one of cupyconv's batch_norm"):
        explain(np.convolve, *shapes, target="sm_80")
    for name in ("sm_35", "9.1", "H", "", "a", "sm_"):
        rule = f"explain: target must be one of T4, .*H100, .*sm_90a, .*, got '{name}'$"
        with pytest.raises(ValueError, match=rule):
            explain(cupyconv.conv1d, *shapes, target=name)
    with pytest.raises(ValueError, match=r"explain: target must be one of .*, got \['sm_80'\]"):
        explain(cupyconv.conv1d, *shapes, target=["sm_80"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"explain: weight must be an array or a shape, got 3"):
        explain(cupyconv.conv1d, shapes[0], 3, target="sm_80")
    with pytest.raises(ValueError, match=r"explain: input must not be negative"):
        explain(cupyconv.conv1d, (1, 1, -8), shapes[1], target="sm_80")
    with pytest.raises(TypeError, match="explain: verbose must be a bool, got verbose=1"):
        explain(cupyconv.conv1d, *shapes, target="sm_80", verbose=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="explain: conv1d: missing a required argument: 'weight'"):
        explain(cupyconv.conv1d, shapes[0], target="sm_80")


def test_what_is_given_for_a_function_or_an_array_is_told_from_it() -> None:
    x, w = np.ones((1, 1, 8)), np.ones((1, 1, 3))
    for array in (cupyconv.conv1d(x, w), cupyconv.conv1d(x[0], w)):
        with pytest.raises(TypeError) as caught:
            explain(cupyconv.conv1d(array, w))  # type: ignore[arg-type]
        text = str(caught.value)
        assert text.startswith("explain: function must be one of cupyconv's batch_norm, ")
        assert "got an array of shape (1, " in text
        assert text.endswith(", as in explain(cupyconv.conv2d, input, weight)")
    for name in ("conv1d", cupyconv.dask.conv1d):
        with pytest.raises(TypeError, match=r"; cupyconv.conv1d is one$"):
            explain(name, x, w)
    with pytest.raises(
        TypeError, match=r"^explain: input must be .*; numpy.asarray\(input\) makes"
    ):
        explain(cupyconv.conv1d, x.tolist(), w, target="H100")
    with pytest.raises(TypeError, match=r"^explain: input must be .*; numpy.from_dlpack\(input\)"):
        explain(cupyconv.conv1d, Exchanged(x), w, target="H100")


@pytest.mark.parametrize(
    ("names", "gpu", "target"),
    [
        ("7.5, sm_75, 75, T4, Tesla T4", "T4", "sm_75"),
        ("8.0, sm_80, A100, NVIDIA A100-SXM4-80GB, a100", "A100", "sm_80"),
        ("8.6, sm_86, RTX 3090, RTX3090, 3090", "GeForce RTX 3090", "sm_86"),
        ("A10, NVIDIA A10", "A10", "sm_86"),
        ("8.9, sm_89, NVIDIA GeForce RTX 4090", "GeForce RTX 4090", "sm_89"),
        ("L4, NVIDIA L4", "L4", "sm_89"),
        ("L40S", "L40S", "sm_89"),
        ("H200, NVIDIA H200, h200", "H200", "sm_90a"),
        ("9.0, sm_90, sm_90a, sm90, SM 90, 90, H100, NVIDIA H100 80GB HBM3", "H100", "sm_90a"),
        ("10.0, sm_100, sm_100a, B200", "B200", "sm_100"),
        ("12.0, sm_120, RTX 5090", "GeForce RTX 5090", "sm_120"),
    ],
)
def test_names_of_gpus(names: str, gpu: str, target: str) -> None:
    for name in names.split(", "):
        found = explain(cupyconv.conv1d, (1, 1, 8), (1, 1, 3), target=name)
        assert (found.gpu, found.target) == (gpu, target)


DEEP: Any = "f4"
for _ in range(1000):
    DEEP = [("a", DEEP)]


@pytest.mark.parametrize(
    "dtype",
    [
        None,
        bool,
        object,
        "object",
        "U3",
        "S3",
        "datetime64[s]",
        "timedelta64[s]",
        "longdouble",
        "V4",
        "f4,f4",
        [("a", "f4"), ("b", "i4")],
        [("a", "f4"), ("a", "i4")],
        ("f4", (2,)),
        {"names": ["a"], "formats": []},
        {},
        [],
        (),
        "",
        "float33",
        "bfloat32",
        "f4" * 1000,
        3,
        b"\xff",
        np.zeros(3),
        np.array(["bfloat16", "f4"]),
        Ellipsis,
        DEEP,
        nested(1, 5),
        nested(1, 100_000),
        1.5,
        int.__add__,
    ],
    ids=lambda dtype: ascii(type(dtype).__name__),
)
def test_odd_dtypes(dtype: Any) -> None:
    """The error is explain's own, whatever NumPy says; so it is where no array has the dtype."""
    shapes = (1, 1, 8), (1, 1, 3)
    for arrays in (shapes, [np.zeros(shape, np.float32) for shape in shapes]):
        with pytest.raises(TypeError) as caught:
            explain(cupyconv.conv1d, *arrays, dtype=dtype, target="sm_80")
        text = str(caught.value)
        assert text.startswith("explain: dtype must be one of bfloat16, complex128, ")
        assert ", got dtype=" in text and len(text) < 500


@pytest.mark.parametrize("dtype", ["bfloat16", ml_dtypes.bfloat16, np.float16, ">f4", "i1", int])
def test_dtypes_by_name_and_class(dtype: Any) -> None:
    found = explain(cupyconv.conv1d, (1, 1, 8), (1, 1, 3), dtype=dtype, target="sm_80")
    named = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    assert found.dtype == np.dtype(named).newbyteorder("=")


def test_odd_arguments_of_explain() -> None:
    shapes = (1, 1, 8), (1, 1, 3)
    deep = nested(1, 1000)
    for odd in (deep, np.zeros(3), 10**5000, ["x"] * 1000):
        with pytest.raises(TypeError, match=r"^explain: function must be one of") as caught:
            explain(odd, *shapes, target="sm_80")
        assert len(str(caught.value)) < 600
        with pytest.raises(ValueError, match=r"^explain: target must be one of") as caught:
            explain(cupyconv.conv1d, *shapes, target=odd)
        assert len(str(caught.value)) < 500
    for odd in (deep, [1, deep], 10**5000, (1, 1, "x" * 1000), {1: 2}):
        with pytest.raises(TypeError, match=r"^explain: weight must be an") as caught:
            explain(cupyconv.conv1d, shapes[0], odd, target="sm_80")
        assert len(str(caught.value)) < 500
    for shape, rule in (
        ((1,) * 65, "have at most 64 axes"),
        ((2**61, 1, 2), "have less than 2**62 bytes"),
        ((0, 2**61, 2), "have less than 2**62 bytes"),
        ((1, 1, 10**5000), "be below 2**63"),
    ):
        with pytest.raises(ValueError, match=f"^explain: input must {re.escape(rule)}, got input="):
            explain(cupyconv.conv1d, shape, shapes[1], target="sm_80")


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes need a target then. NumPy arrays need none, as the call itself needs no GPU."""

    def nowhere() -> None:
        raise RuntimeError("no device")

    monkeypatch.setattr(_explain, "current", nowhere)
    shapes = (1, 1, 8), (1, 1, 3)
    with pytest.raises(ValueError, match=r"there is no GPU here: name one as target, of T4, "):
        explain(cupyconv.conv1d, *shapes)
    x, w = (np.ones(shape, np.float32) for shape in shapes)
    expected = explain(cupyconv.conv1d, *shapes, target="H100")
    for arrays in ((x, w), (x, shapes[1]), (shapes[0], w)):
        assert explain(cupyconv.conv1d, *arrays) == expected


def kernel_of(*args: Any, **options: Any) -> tuple[str, dict[str, str]]:
    """The kernel of a call, and for each other kernel that is asked, why it does not run it."""
    found = explain(*args, **{"target": "sm_90a", **options})
    engine = "hopper" if found.target == "sm_90a" else "portable"
    if found.kernel in choice.KERNELS and not choice.forced_kernel():
        others = {"hopper", "portable"} - {engine}
        asked = {name for name in choice.KERNELS if name.split("-")[-1] not in others}
        other = {name for name in found.refused if name.startswith("method=")}
        assert {*found.refused} - other == asked - {found.kernel}
        for reason in found.refused.values():
            if reason.endswith("times as long"):
                assert float(reason.split()[3]) >= 1
    kernels = {name: why for name, why in found.refused.items() if not name.startswith("method=")}
    return found.kernel, kernels


def assert_reasons(kernel: str, reasons: dict[str, str], *args: Any, **options: Any) -> None:
    """Assert which kernel runs, and why these others do not: in patterns."""
    found, refused = kernel_of(*args, **options)
    assert found == kernel
    for name, reason in reasons.items():
        assert re.fullmatch(reason, refused[name]), (name, refused[name])


LONGER = r"it would take (longer|\d+\.\d\d times as long)"


def test_kernels_and_reasons() -> None:
    few = {
        "depthwise": "its groups have 64 input channels",
        "gather": "its groups have 64 input channels",
        "streaming": "it has phases, many taps, or more products than tables are made of",
        "plain": "a sum has 576 products, not 1 to 384",
    }
    dense = (cupyconv.conv2d, (8, 64, 224, 224), (64, 64, 3, 3))
    assert_reasons("hopper", {**few, "direct": LONGER}, *dense)
    ampere = {**few, "direct": LONGER, "im2col": "sm_80 lacks wgmma"}
    assert_reasons("portable", ampere, *dense, target="sm_80")
    turing = {**few, "portable": "sm_75 lacks the instructions"}
    assert_reasons("direct", turing, *dense, target="sm_75")
    double = dict.fromkeys(
        ("streaming", "im2col", "hopper"), "Tensor Cores do not multiply float64"
    )
    assert_reasons("direct", double, *dense, dtype="float64")
    assert_reasons(
        *("im2col", {"hopper": LONGER}),
        *(cupyconv.conv2d, (8, 1024, 7, 7), (512, 1024, 3, 3)),
        padding=1,
    )
    one = (cupyconv.conv2d, (8, 64, 112, 112), (64, 1, 5, 9))
    wide = {"direct": LONGER, "gather": "its kernel is 9 wide, not 3, 5 or 7"}
    assert_reasons("depthwise", wide, *one, groups=64)
    colours = {"depthwise": "its groups have 3 input channels", "direct": LONGER, "hopper": LONGER}
    assert_reasons("plain", colours, cupyconv.conv2d, (8, 3, 512, 512), (4, 3, 3, 3))
    assert_reasons(
        *("streaming", {"hopper": LONGER, "plain": LONGER}),
        *(cupyconv.conv2d, (8, 256, 56, 56), (64, 256, 1, 1)),
        precision="tf32",
    )
    no_room = "registers have no room for its channels, or shared memory for weights of 64 rows"
    many_channels = (cupyconv.conv2d, (8, 256, 56, 56), (64, 256, 1, 1))
    longer = {"streaming": no_room, "hopper": LONGER}
    assert_reasons("im2col", longer, *many_channels, dtype="float16")
    four_axes = dict.fromkeys(
        ("hopper", "streaming", "plain"), "it has more than three spatial axes"
    )
    assert_reasons("direct", four_axes, cupyconv.conv, (2, 8, 4, 4, 4, 4), (8, 8, 2, 2, 2, 2))
    # Most of the taps are padding, and packed weights would take a thousand times the arrays.
    large = (cupyconv.conv2d, (1, 64, 41, 41), (64, 1, 41, 41))
    memory = r"it would take [\d,]+ bytes beside the arrays"
    assert_reasons(kernel_of(*large, groups=64)[0], {"hopper": memory}, *large, groups=64)
    # Also where another kernel is faster for the convolution alone, but not by what follows it.
    for mode in ({}, {"precision": "tf32"}, {"dtype": "float16"}, {"dtype": "bfloat16"}):
        assert kernel_of(FUSED, *KERNELBENCH_SHAPES, num_groups=8, **mode) == ("fused", {})
    deep = (FUSED, (16, 2048, 7, 7), (2048, 512, 3, 3), *[(512,)] * 4)
    reason = "the im2col kernel takes less time for the convolution"
    refused = kernel_of(*deep, num_groups=4, padding=1, dtype="float16")[1]
    assert refused["fused"] == reason
    composed = kernel_of(FUSED, *KERNELBENCH_SHAPES, num_groups=8, dtype="float64")
    assert composed[0] == "direct + normalize + max_pool2d + normalize"
    assert composed[1]["fused"] == "Tensor Cores do not multiply float64"
    with choice.forced("portable"):
        assert kernel_of(*dense) == ("portable", {})


def gradient_of(*shapes: Any, **options: Any) -> Explanation:
    return explain(cupyconv.grad.conv2d_weight, *shapes, **{"target": "sm_90a", **options})


def test_the_gradient_of_a_weight() -> None:
    shapes, options = ((16, 64, 56, 56), (64, 64, 3, 3), (16, 64, 56, 56)), {"padding": 1}
    found = gradient_of(*shapes, **options)
    assert found.kernel == "matrix" and re.fullmatch(LONGER, found.refused["direct"])
    functions = [launch.instance.function for launch in found.launches]
    assert functions == ["pad", "pad", "matrix_gradient", "gradient_sum"]
    tiles = r"\d+ x \d+ tiles of \d+ x \d+, \d+ ranges of 1 chunks of samples"
    assert re.fullmatch(tiles, found.plans[0])
    assert "kernel       matrix\n" in str(found)
    assert "  refused      direct: it would take " in str(
        gradient_of(*shapes, **options, verbose=True)
    )
    # One number for each range and element, and lines of 60 places of both arrays.
    ranges = int(found.plans[0].split(", ")[1].split()[0])
    assert found.workspace == 4 * (ranges * 64 * 64 * 9 + 2 * 16 * 64 * 57 * 60)
    # Samples that would take too much memory are copied chunk by chunk; launches repeat for each.
    large = gradient_of((128, 64, 112, 112), (64, 64, 3, 3), (128, 64, 112, 112), padding=1)
    chunks = len(large.launches) // 3
    assert chunks > 1 and large.plans[0].endswith(f" of {chunks} chunks of samples")
    assert large.workspace <= 2**25 + 2**26

    def refused(**changes: Any) -> str:
        found = gradient_of(*shapes, **{**options, **changes})
        assert found.kernel == "direct"
        return found.refused["matrix"]

    double = gradient_of(*shapes, **options, dtype="float64")
    assert double.kernel == "matrix"
    assert double.refused["hopper"] == "wgmma does not multiply float64"
    assert refused(dtype="int8") == "Tensor Cores do not multiply int8"
    assert refused(target="sm_75") == "sm_75 lacks the instructions"
    assert refused(target="sm_75", dtype="float16") == "sm_75 lacks the instructions"
    small = gradient_of((1, 3, 9, 9), (4, 3, 3, 3), (1, 4, 7, 7))
    assert small.kernel == "direct" and re.fullmatch(LONGER, small.refused["matrix"])
    with choice.forced("direct"):
        assert gradient_of(*shapes, **options).kernel == "direct"
    with choice.forced("portable"):
        assert gradient_of((1, 3, 9, 9), (4, 3, 3, 3), (1, 4, 7, 7)).kernel == "matrix"


def test_precision_is_that_of_the_call_or_of_the_block() -> None:
    shapes = (8, 64, 112, 112), (64, 64, 3, 3)
    exact = explain(cupyconv.conv2d, *shapes, target="sm_90a")
    fast = explain(cupyconv.conv2d, *shapes, target="sm_90a", precision="tf32")
    with cupyconv.precision("tf32"):
        assert explain(cupyconv.conv2d, *shapes, target="sm_90a") == fast
    assert dict(exact.launches[0].instance.defines)["PARTS"] == "2"
    assert dict(fast.launches[0].instance.defines)["PARTS"] == "1"
    assert fast.expected_ms < exact.expected_ms


def test_workspace_is_the_most_at_a_time() -> None:
    dense = explain(cupyconv.conv2d, (8, 64, 224, 224), (64, 64, 3, 3), target="sm_90a")
    # The packed weights, in two parts and two windows, and the shifts of rows and samples.
    assert dense.workspace == 2 * 2 * 2 * 64 * 64 * 9 + 8 * 64 + 4 * 8
    # The same in eight row tiles and five phases of y, each with 32 x 3 steps at most; a flag.
    few = explain(
        cupyconv.conv_transpose2d, (16, 32, 64, 128), (32, 64, 3, 3),
        stride=5, padding=1, dilation=2, target="sm_90a",
    )  # fmt: skip
    assert few.workspace == 8 * 5 * (4 * 8 * 32 * 3 + 4)
    mixed = explain(cupyconv.conv1d, np.zeros((1, 3, 5), np.float16), (2, 3, 3), target="sm_80")
    assert mixed.workspace == 4 * 15  # the input in float32
    # Fused: pooled values, packed weights, and the statistics of channels and blocks.
    fused = explain(FUSED, *KERNELBENCH_SHAPES, **KERNELBENCH)
    blocks = fused.launches[1].grid
    pooled = 4 * math.prod(fused.out_shape)
    packed = 2 * 2 * 2 * 64 * 128 * 25 + 8 * 128 + 4 * 512
    assert fused.workspace == pooled + packed + 16 * 128 * blocks
    # Composed: the result of the convolution, and what is pooled of it; the batch norm has given
    # back its statistics by then, and the group norm has its own in shared memory.
    composed = explain(FUSED, *KERNELBENCH_SHAPES, **KERNELBENCH, dtype="float64")
    values = 8 * 512 * 128 * (34 * 34 + 17 * 17)
    assert composed.workspace == values
    # Two numbers for each channel's statistics, for its parameters and for each of its segments.
    norm = explain(cupyconv.batch_norm, (8, 5, 5000), target="sm_90a")
    assert norm.workspace == 16 * 5 * (1 + 1 + 20)
    assert explain(cupyconv.group_norm, (8, 5, 5000), 5, target="sm_90a").workspace == 0


def test_norms_read_their_input_no_more_often_than_they_must() -> None:
    def passes(*args: Any, **options: Any) -> float:
        found = explain(*args, target="sm_90a", **options)
        work = found.expected_ms - 3e-3 * len(found.launches)
        chip = CHIPS["sm_90a"]
        # The limit is of one reading and one writing at the peak bandwidth.
        return work / found.limit_ms * chip.copy_rate / chip.bandwidth * 2

    shape = (64, 128, 34, 34)
    assert passes(cupyconv.batch_norm, shape) == pytest.approx(3)
    assert passes(cupyconv.batch_norm, shape, C, C) == pytest.approx(2, rel=1e-3)
    assert passes(cupyconv.group_norm, shape, 8) == pytest.approx(2)
    assert passes(cupyconv.group_norm, shape, 1) == pytest.approx(3)  # 591,872 bytes


def test_work() -> None:
    dense = explain(cupyconv.conv2d, (8, 64, 56, 56), (32, 64, 3, 3), target="sm_90a", padding=1)
    assert dense.operations == 2 * 8 * 64 * 32 * 9 * 56 * 56
    assert dense.bytes == 4 * (8 * 64 * 56 * 56 + 32 * 64 * 9 + 8 * 32 * 56 * 56)
    strided = explain(
        cupyconv.conv_transpose2d, (8, 64, 56, 56), (64, 32, 4, 4), target="sm_90a", stride=2
    )
    assert strided.operations == pytest.approx(2 * 8 * 64 * 32 * 16 * 56 * 56, rel=0.04)
    assert explain(cupyconv.max_pool2d, (8, 8, 8), 2, target="sm_90a").operations == 0
    whole = explain(cupyconv.conv2d, (8, 64, 56, 56), (32, 64, 3, 3), target="sm_80", dtype="int8")
    assert whole.limited_by == "bytes"  # nothing is said of the rate of integers


def test_limits_follow_from_the_rates() -> None:
    """By operations, in units of one float16 product."""

    def limit(**options: Any) -> float:
        shapes = (8, 4096, 56, 56), (4096, 4096, 3, 3)
        found = explain(cupyconv.conv2d, *shapes, **{"target": "H200", **options})
        assert found.limited_by == "operations"
        return found.limit_ms

    def products(target: str, **options: Any) -> float:
        return limit(target=target, **options) / limit(target=target, dtype="float16")

    # On Hopper a float32 product counts as two float16 ones, and a TF32 one as a float16 one.
    assert products("H200") == pytest.approx(2)
    assert products("H200", precision="tf32") == pytest.approx(1)
    # Elsewhere a TF32 product takes two, and float32 three TF32 ones, or its own units.
    assert products("A100") == pytest.approx(6)
    assert products("A100", precision="tf32") == pytest.approx(2)
    assert products("RTX 4090") == pytest.approx(2)  # without Tensor Cores
    assert products("RTX 4090", precision="tf32") == pytest.approx(2)
    assert products("L40S") == pytest.approx(4)
    for target in ("H200", "A100", "RTX 4090"):
        assert products(target, dtype="bfloat16") == products(target, dtype=BFLOAT16) == 1
        assert products(target, dtype="complex64") == pytest.approx(4 * products(target))
        assert products(target, dtype="complex128") == 4 * products(target, dtype="float64")
    assert products("H200", dtype="float64") == pytest.approx(32)
    assert products("RTX 4090", dtype="float64") == pytest.approx(128)
    # No bfloat16 and no TF32 on Tensor Cores.
    for options in ({"dtype": "bfloat16"}, {"precision": "tf32"}, {}):
        assert products("T4", **options) == pytest.approx(8)
    chip = CHIPS["sm_90a"]
    peak = 2 * 2048 * 132 * chip.clock
    operations = 2 * 8 * 4096 * 4096 * 9 * 54 * 54
    assert limit(dtype="float16") == pytest.approx(1e3 * operations / peak)


def test_limits_count_what_must_be_done_alone() -> None:
    def limit(*shapes: Any, **options: Any) -> tuple[float, str]:
        found = explain(cupyconv.conv2d, *shapes, target="H200", **options)
        return found.limit_ms, found.limited_by

    # Padding has no products: on an image of one pixel all taps but one lie in it.
    alone, by = limit((256, 4096, 1, 1), (4096, 4096, 1, 1), dtype="float64")
    padded, also = limit((256, 4096, 1, 1), (4096, 4096, 3, 3), padding=1, dtype="float64")
    assert (alone, by) == (pytest.approx(padded), also) and by == "operations"
    # A stride steps over three quarters of the inputs.
    strided, by = limit((8, 8, 512, 512), (8, 8, 1, 1), stride=2)
    assert by == "bytes"
    assert strided == pytest.approx(limit((8, 8, 256, 256), (8, 8, 1, 1))[0])


def test_broadcast_axes_are_read_once() -> None:
    x = np.broadcast_to(np.ones((1, 4, 1, 64), np.float32), (8, 4, 32, 64))
    w = np.ones((4, 4, 1, 1), np.float32)
    found = explain(cupyconv.conv2d, x, w, target="sm_80")
    assert found.bytes == 4 * (4 * 64 + w.size + 8 * 4 * 32 * 64)
    assert explain(cupyconv.conv2d, x[:0], w, target="sm_80").bytes == w.nbytes


RECORDS = Path(__file__).parents[1] / "benchmarks" / "records"


@pytest.mark.parametrize("gpu", ["H200", "H100"])
@pytest.mark.parametrize("precision", ["float32", "tf32", "float16", "bfloat16"])
def test_limits_and_times_of_the_benchmark(precision: str, gpu: str) -> None:
    """No time of the committed records is below its limit."""
    cases = {case.id: case for case in load() if isinstance(case, Convolution)}
    mode = PRECISIONS[precision]
    limits, times = [], []
    for row in json.loads((RECORDS / f"{gpu.lower()}-{precision}.json").read_text())["rows"]:
        case = cases.get(row["id"])
        if case is None:
            continue
        options = {"output_padding": case.output_padding} if case.transposed else {}
        found = explain(
            getattr(cupyconv, case.function),
            case.input,
            case.weight,
            stride=case.stride,
            padding=case.padding,
            dilation=case.dilation,
            groups=case.groups,
            target=gpu,
            dtype=mode.dtype,
            precision="tf32" if precision == "tf32" else "float32",
            **options,
        )
        limits.append(found.limit_ms / row["ours"]["ms"])
        times.append(row["ours"]["ms"] / found.expected_ms)
    assert len(times) >= 60
    assert 0.7 < max(limits) < 1
    assert np.median(limits) > 0.25
    assert np.mean(np.abs(np.log2(times)) < 1) >= 0.9
    assert 0.8 < np.median(times) < 1.25


def test_text_has_all_of_it() -> None:
    found = explain(FUSED, *KERNELBENCH_SHAPES, **KERNELBENCH)
    text = str(found)
    assert text == repr(found)
    assert text.splitlines()[0].endswith(" on H100 (sm_90a, 132 multiprocessors)")
    rows = re.findall(r"^  (\w*) +(.*)$", text, re.M)
    assert ("result", "(512, 128, 17, 17), float32") in rows
    assert ("kernel", "fused") in rows
    assert [name for name, _ in rows].count("launch") == len(found.launches) == 4
    for launch in found.launches:
        assert f"{launch.grid} blocks of {launch.block} threads" in text
    assert f"{1e3 * found.limit_ms:.3g} us, by operations" in text
    assert f"{found.expected_ms:.3g} ms, {found.expected_share:.0%} of the limit" in text
    assert "242 GFLOP, 211 MB" in text
    assert "77.7 MB" in text


@given(case=any_case, target=st.sampled_from(tuple(CHIPS)))
def test_what_a_user_wants_comes_first(case: Case, target: str) -> None:
    """Kernel, time and memory; then the shapes; the reasons of other kernels if asked for."""
    found, verbose = explained(case, target), explained(case, target, verbose=True)
    assert found == verbose
    names = [line.split()[0] for line in str(found).splitlines()[1:]]
    assert names[:5] == ["kernel", "expected", "limit", "workspace", "work"]
    assert "refused" not in names
    added = str(verbose).removeprefix(str(found)).splitlines()[1:]
    reasons = [f"  refused    {name}: {reason}" for name, reason in found.refused.items()]
    assert [re.sub(" +", " ", line) for line in added] == [re.sub(" +", " ", r) for r in reasons]


def test_small_numbers_of_the_text() -> None:
    text = str(explain(cupyconv.conv1d, (1, 1, 8), (1, 1, 3), target="H100"))
    assert re.search(r"^  expected +\S+ us, less than 1% of the limit$", text, re.M)
    assert re.search(r"^  limit +\S+ ns, by bytes$", text, re.M)


def test_shapes_longer_than_32_bits() -> None:
    """And one that is too large for any address spoils none that come later."""
    explain = cupyconv.explain
    with pytest.raises(ValueError, match=r"explain: input must have less than 2\*\*62 bytes"):
        explain(cupyconv.conv1d, (2**30, 8, 2**30), (1, 8, 3), target="sm_90a")
    for _ in range(5):
        call = explain(cupyconv.conv1d, (2**29, 2, 2**28), (1, 2, 3), target="sm_90a")
        assert call.out_shape == (2**29, 1, 2**28 - 2)
    assert explain(cupyconv.conv1d, (1, 1, 2**31), (1, 1, 3), target="sm_90a").out_shape[2] > 2**30


def test_a_blueprint_says_what_it_is() -> None:
    """Its elements lie nowhere: to print them would read them."""
    blueprint = _explain.Blueprint((2, 3), np.dtype(np.float32))
    assert str(blueprint) == repr(blueprint) == "Blueprint((2, 3), float32)"


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    import cupy

    x, w = cupy.ones((8, 64, 57, 58), np.float32)[::2, :, ::-1], cupy.ones((64, 64, 3, 3), "f4")
    found = explain(cupyconv.conv2d, x, w, padding=1)
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    assert found.gpu == properties["name"].decode()
    assert found.multiprocessors == properties["multiProcessorCount"]
    out = cupyconv.conv2d(x, w, padding=1)
    assert (found.out_shape, found.dtype) == (out.shape, out.dtype)
    with pytest.raises(ValueError, match="share memory"):
        explain(cupyconv.conv2d, x, w, padding=1, out=x)
    for name in {"H100", "H200"} & {*found.gpu.split()}:
        chip, known = _gpus.current(), _gpus.named(name)
        assert chip.clock == pytest.approx(known.clock, rel=0.02)
        assert chip.bandwidth == pytest.approx(known.bandwidth, rel=0.05)
