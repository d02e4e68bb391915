"""Gradients of depthwise weights: the kernel, its tiles and windows, and the sum of its ranges."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import cupyconv
import cupyconv.grad
import reference
from backends import NumpyBackend, forced_backends
from bounds import assert_convolution, assert_same_bits
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import choice, depthwise_gradient, gradient_sum
from cupyconv._kernels.launches import FLOATS, Instance, Processor
from cupyconv._kernels.question import Question
from cupyconv._taps import on_three_axes
from gradients import Gradient, gradient, gradients
from planning import HOPPER, checked, constant, conv, conv_geometries, processors
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import NO_BORDERS, STYLES, drawn_values, lay_out, poison, values
from subjects import Subject

GRADIENTS, SUMS = map(instances_of, ("depthwise_gradient.cu", "gradient_sum.cu"))
every_device = pytest.mark.parametrize("backend", forced_backends("depthwise"))
FLOAT_PAIRS = st.sampled_from([(np.dtype(name),) * 2 for name in ("float16", "float32", "float64")])


def threads(instance: Instance) -> int:
    return constant(instance.source, "THREADS")


SUBJECTS = (
    Subject(
        depthwise_gradient,
        threads=threads,
        tested=GRADIENTS,
        limits={
            name: getattr(depthwise_gradient, name) for name in ("THREADS", "SIDE", "MOST_TAPS")
        },
    ),
    Subject(gradient_sum, threads=threads, tested=SUMS, limits={"THREADS": gradient_sum.THREADS}),
)


@given(
    forward=conv_geometries(),
    name=st.sampled_from(FLOATS),
    processor=processors,
    single=st.booleans(),
)
@example(conv((16, 64, 512, 512), (64, 1, 3, 3), groups=64), "float32", HOPPER, True)
@example(conv((4, 16, 1024, 1024), (16, 1, 65, 1), groups=16), "float32", HOPPER, True)
@example(conv((16, 1, 3000, 17), (159, 1, 5, 7)), "float64", HOPPER, True)
@example(conv((1, 1, 128, 128, 128), (8, 1, 15, 15, 15)), "float64", HOPPER, True)
def test_plans(forward: ConvGeometry, name: str, processor: Processor, single: bool) -> None:
    """Tiles cover all outputs, windows all taps along x; partial sums take 32 MB at the most."""
    assume(not forward.transposed and 0 not in forward.out_shape)
    if single:
        assume(forward.channels == 1)
    question = Question(forward, np.dtype(name), "float32", processor)
    if isinstance(depthwise_gradient.plan(question), str):
        return
    plan = checked(partial(depthwise_gradient.plan, question), processor)
    layout, (z, y, x) = plan.layout, on_three_axes(forward.axes)
    assert math.prod(layout.tiles) >= layout.splits >= 1
    sizes = forward.batch, z.size_out, y.size_out, x.size_out
    parts = layout.samples, 1, layout.high, layout.wide
    assert layout.tiles == tuple(-(-n // part) for n, part in zip(sizes, parts, strict=True))
    for tap, (window, place) in enumerate(zip(layout.of, layout.places, strict=True)):
        shift, residue = divmod(tap * x.dilation, x.step)
        assert layout.windows[window] + place == residue * layout.pitch + shift
        assert shift + layout.wide <= layout.pitch
    itemsize = max(4, np.dtype(name).itemsize)
    least = gradient_sum.elements(forward) * itemsize
    assert plan.workspace == layout.splits * least <= max(2**25, least)


@pytest.mark.parametrize(
    ("forward", "dtype", "words"),
    [
        (conv((2, 4, 9), (4, 2, 3), groups=2), "float32", "have 2 input channels"),
        (conv((2, 4, 9), (4, 1, 3), groups=4), "complex64", "not for complex64"),
        (conv((2, 4, 99), (4, 1, 65), groups=4), "float32", "more than 64 taps along x"),
        (conv((0, 4, 9), (4, 1, 3), groups=4), "float32", "no products"),
        (conv((2, 4, 2**20), (4, 1, 3), groups=4, dilation=2**18), "float32", "shared memory"),
        (conv((2**31, 1, 3), (1, 1, 3)), "float16", "exceed 32 bits"),
    ],
)
def test_refusals(forward: ConvGeometry, dtype: str, words: str) -> None:
    answer = depthwise_gradient.plan(Question(forward, np.dtype(dtype), "float32", HOPPER))
    assert words in str(answer)


@st.composite
def depthwise(draw: st.DrawFn) -> Gradient:
    """A gradient of a weight whose groups have one channel."""
    case = draw(
        gradients(kinds=["weight"], dtypes=FLOAT_PAIRS, borders=NO_BORDERS).filter(
            lambda case: case["input"].size < 5000 and case.options["weight_size"][1] > 0
        )
    )
    shape = case.options["weight_size"]
    groups = case.options["groups"] * shape[1]
    rows = shape[0] // case.options["groups"]
    batch = case["input"].shape[: -len(shape) + 1]
    out_shape = (*batch, groups * rows, *case["grad_output"].shape[-len(shape) + 2 :])
    style = draw(st.sampled_from(STYLES))
    (grad,) = draw(drawn_values([out_shape], (case.dtype,), style))
    options = {"weight_size": (groups * rows, 1, *shape[2:]), "groups": groups}
    arrays = {"input": case["input"], "grad_output": grad}
    return Gradient(case.function, arrays, {**case.options, **options})


@every_device
@given(case=depthwise())
@example(gradient("weight", (2, 3, 9, 11), (3, 1, 3, 3), groups=3, stride=2, padding=1))
@example(gradient("weight", (5, 2, 7, 7), (4, 1, 7, 7), groups=2, padding=3))
@example(gradient("weight", (1, 2, 300), (2, 1, 9), groups=2, stride=3, dilation=2))
@example(gradient("weight", (2, 1, 3, 5, 40), (1, 1, 2, 3, 5), padding=1, dilation=(1, 2, 1)))
def test_definition(backend: NumpyBackend, case: Gradient) -> None:
    assert_convolution(backend.compute(case), case.defined, case.dtype)


@every_device
@pytest.mark.parametrize("layout", ["cropped", "reversed", "transposed", "interleaved"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_layouts(backend: NumpyBackend, layout: str, dtype: str) -> None:
    """Views, and results that are views, have the bits of arrays without gaps."""
    case = gradient("weight", (3, 4, 11, 37), (8, 1, 3, 5), dtype, groups=4, padding=(1, 2))
    expected = backend.compute(case)
    rng = np.random.default_rng(0)
    arrays = case.map(lambda a: backend.asarray(lay_out(rng, a, layout))).arrays
    out = backend.asarray(lay_out(rng, poison(np.empty_like(expected)), layout))
    backend.call(case.function, **arrays, **case.options, out=out)
    assert_same_bits(backend.to_numpy(out), expected)


@every_device
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["input", "grad_output"])
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 8, 10), (1, 1, 4, 5)])
def test_infinity_and_nan(
    backend: NumpyBackend, value: float, name: str, place: tuple[int, ...]
) -> None:
    """They meet no padding, and reach the elements whose products they are a factor of."""
    case = gradient("weight", (2, 3, 9, 11), (3, 1, 3, 3), groups=3, padding=1)
    case[name][place] = value
    with np.errstate(invalid="ignore"):
        expected = case.defined.value
    result = backend.compute(case)
    finite = np.isfinite(expected)
    assert not finite.all() and finite.any()
    np.testing.assert_array_equal(result[~finite], expected[~finite].astype(result.dtype))
    np.testing.assert_allclose(result[finite], expected[finite], rtol=1e-4, atol=1e-4)


@on_the_emulator("instance", cases=GRADIENTS)
def test_instance(instance: Instance) -> None:
    """Several tiles on each axis, the last ones ragged, and several ranges of them."""
    dtype = dtype_of(dict(instance.defines)["ELEMENT"])
    forward = conv((3, 2, 19, 270), (4, 1, 3, 2), groups=2, padding=1)
    rng = np.random.default_rng(0)
    data, grad_output = values(rng, (3, 2, 19, 270), dtype), values(rng, forward.out_shape, dtype)
    out = poison(np.empty((4, 1, 3, 2), dtype))
    backend = Recorder()
    with pytest.MonkeyPatch.context() as patch, choice.forced("depthwise"):
        patch.setattr(depthwise_gradient, "_AREA", 512)
        choice._choose_weight_gradient.cache_clear()
        arguments = forward, data, grad_output, out, "float32"
        backend.path.prepare_weight_gradient(*arguments)(data, grad_output, out)
    choice._choose_weight_gradient.cache_clear()
    expected = reference.conv_weight(data, out.shape, grad_output, padding=1, groups=2)
    assert_convolution(out, expected, dtype)
    sums, add = backend.launches
    assert sums.instance == instance and sums.grid > 4
    assert add.instance == next(one for one in SUMS if one.defines == instance.defines)


def test_explain() -> None:
    """A depthwise gradient names its kernel; a dense one says why it is not for it."""
    x, gy = (np.zeros((4, 64, 56, 56), np.float32),) * 2
    told = cupyconv.explain(cupyconv.grad.conv2d_weight, x, (64, 1, 3, 3), gy, padding=1, groups=64)
    assert told.kernel == "depthwise"
    assert "direct" in told.refused
    told = cupyconv.explain(cupyconv.grad.conv2d_weight, x, (64, 64, 3, 3), gy, padding=1)
    assert told.refused["depthwise"] == "its groups have 64 input channels"
