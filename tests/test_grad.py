"""Gradients against their definition, their identities, promises of bits, and errors."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import cupyconv
import cupyconv.grad
import identities
import reference
from backends import BACKENDS, NumpyBackend, every_backend, forced_backends, marked
from bounds import assert_convolution, assert_same_bits
from cupyconv import _geometry, _gradient_geometry
from gradients import KINDS, Gradient, gradient, gradients
from planning import launches_of
from reference import Array, Shape
from strategies import BORDERS, MODES, NO_BORDERS, conv_geometries, poison
from test_errors import ODD
from test_promises import VIEWS, contiguous

# The kernel for weights on Tensor Cores takes few calls of this size unless it is asked for. The
# gradient with respect to an input is a convolution, whose tests ask for each kernel.
PLACES = {"input": BACKENDS, "weight": BACKENDS + forced_backends("portable")}
every_gradient = pytest.mark.parametrize(
    ("kind", "backend"),
    [
        pytest.param(kind, *place.values, id=f"{kind}-{place.id}", marks=place.marks)
        for kind in KINDS
        for place in PLACES[kind]
    ],
)

IDENTITIES = 54  # the seed of the convolutions whose identities are tested

# A convolution's input and weight, and its options: what is easy to get wrong, kept for ever.
EXAMPLES: list[tuple[Shape, Shape, Any, dict[str, Any]]] = [
    # Kernels, strides, paddings and dilations that differ on each axis.
    ((2, 3, 12, 17), (5, 3, 3, 7), "float32",
     {"stride": (2, 3), "padding": ((0, 2), (5, 1)), "dilation": (3, 1)}),
    ((1, 2, 5, 9, 4), (2, 2, 1, 5, 3), "float64",
     {"stride": (1, 4, 1), "padding": (0, 1, 2), "dilation": (1, 2, 3)}),
    # The stride leaves the last inputs unread, by one position and by as many as it can.
    ((2, 3, 11), (4, 3, 3), "int64", {"stride": 4}),
    ((2, 3, 14), (4, 3, 3), "float32", {"stride": 4}),
    # A stride beyond the kernel.
    ((1, 2, 20), (3, 2, 2), "float32", {"stride": 7}),
    ((1, 2, 9, 11), (3, 2, 1, 2), "float32", {"stride": (5, 4), "padding": "same"}),
    # Strides and dilations with and without a common divisor.
    ((1, 2, 40), (2, 2, 4), "float32", {"stride": 4, "dilation": 6, "padding": 3}),
    ((1, 2, 17, 18), (2, 2, 3, 2), "float32", {"stride": (3, 4), "dilation": (2, 3)}),
    ((1, 2, 5), (2, 2, 2), "float32", {"stride": 2**31 - 1}),
    ((1, 2, 5), (2, 2, 1), "float32", {"dilation": 2**31 - 1}),
    # Windows that lie in the padding altogether; kernels larger than the input.
    ((1, 1, 2, 3), (2, 1, 4, 2), "float32", {"padding": 5}),
    ((2, 3, 3), (4, 3, 9), "complex64", {"padding": ((7, 2),), "stride": 2}),
    ((1, 2, 2), (3, 2, 1), "float32", {"padding": ((4, 0),), "stride": 3}),
    ((2, 3, 5), (4, 3, 3), "int8", {"stride": 2, "padding": "same"}),
    ((2, 3, 6), (4, 3, 2), "uint64", {"stride": 5, "padding": "same"}),
    # One output position or tap, many, and more of them than a partial sum has.
    ((1, 1, 2_005), (1, 1, 2_000), "float32", {}),
    ((1, 1, 9_005), (1, 1, 6), "int64", {}),
    ((3, 2, 60), (3, 2, 40), "float16", {}),
    ((3, 2, 60), (3, 2, 40), ml_dtypes.bfloat16, {}),
    ((2, 1, 300), (2, 1, 200), "int32", {}),
    ((1, 2, 20, 20), (3, 2, 19, 2), "float32", {}),
    # Few channels and many taps, which NumPy convolves: images of floats, a volume, steps.
    ((2, 2, 20, 18), (4, 1, 11, 9), "float32", {"groups": 2, "padding": ((2, 12), (0, 1))}),
    ((2, 2, 33, 30), (2, 2, 9, 12), "float16", {"stride": (1, 2), "dilation": (2, 1)}),
    ((1, 1, 9, 13, 14), (2, 1, 3, 6, 7), "float64", {"padding": (1, 5, 2)}),
    # Groups: depthwise, more than one row for each channel, and more than a grid's second axis has.
    ((2, 6, 9, 9), (6, 1, 3, 3), "float16", {"groups": 6, "padding": 1}),
    ((2, 4, 9, 9), (8, 1, 3, 3), "float32", {"groups": 4, "stride": 2}),
    ((1, 65_537, 2), (65_537, 1, 2), "float32", {"groups": 65_537}),
    ((65_537, 1, 2), (1, 1, 1), "float32", {}),
    # Nothing to sum up, or nowhere to.
    ((0, 2, 3, 3), (4, 2, 2, 2), "float32", {}),
    ((2, 0, 3, 3), (4, 0, 2, 2), "float32", {"groups": 2}),
    ((2, 2, 3, 3), (0, 2, 2, 2), "float32", {}),
    ((1, 3, 0, 5), (4, 3, 3, 3), "float32", {"padding": 2}),
    # Sums that overflow the result, but not the accumulator.
    ((1, 9, 9), (2, 9, 3), "float16", {"style": "wide"}),
    ((1, 9, 9), (2, 9, 3), ml_dtypes.bfloat16, {"style": "wide"}),
]  # fmt: skip


def check(backend: NumpyBackend, case: Gradient) -> None:
    assert_convolution(backend.compute(case), case.defined, case.dtype, case.precision)


# Against the definition ----------------------------------------------------------------------


@every_gradient
@given(data=st.data())
def test_definition(kind: str, backend: NumpyBackend, data: st.DataObject) -> None:
    check(backend, data.draw(gradients(kinds=[kind])))


@every_gradient
@pytest.mark.parametrize(
    "example",
    [marked(one, max(math.prod(one[0]), math.prod(one[1]))) for one in EXAMPLES],
    ids=lambda one: f"{one[0]}-{one[1]}-{np.dtype(one[2])}-{one[3]}".replace(" ", ""),
)
def test_definition_on_examples(
    kind: str, backend: NumpyBackend, example: tuple[Shape, Shape, Any, dict[str, Any]]
) -> None:
    input_shape, weight_shape, dtype, options = example
    check(backend, gradient(kind, input_shape, weight_shape, dtype, **options))


@every_backend
@pytest.mark.large
def test_a_kernel_of_any_length(backend: NumpyBackend) -> None:
    check(backend, gradient("weight", (1, 1, 100_005), (1, 1, 100_000)))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_special_values_beside_many_taps(value: float) -> None:
    """They reach the taps that they have products with, also where NumPy convolves."""
    case = gradient("weight", (2, 1, 30, 40), (1, 1, 11, 13), padding=(2, 3))
    for name in ("input", "grad_output"):
        special = case[name].copy()
        special[1, 0, 1, 0] = value
        check(NumpyBackend(), case.with_arrays(**{name: special}))


@every_gradient
@pytest.mark.parametrize("mode", MODES, ids=["float32", "tf32", "float16", "bfloat16"])
def test_padding_is_absence(kind: str, backend: NumpyBackend, mode: Any) -> None:
    """What has no products is zero, not even NaN where the other operand is infinite."""
    dtype, precision = mode
    options = {"stride": 3, "padding": ((7, 0), (1, 9)), "precision": precision}
    case = gradient(kind, (2, 2, 4, 5), (3, 2, 3, 2), dtype, **options)
    other = "weight" if kind == "input" else "input"
    infinite = case.with_arrays(**{other: np.full(case[other].shape, np.inf, dtype)})
    assert (infinite.defined.terms == 0).any()
    check(backend, infinite)


@every_backend
@pytest.mark.large
@pytest.mark.parametrize("style", ["signed", "positive"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 2, 130, 130), (3, 2, 3, 3)),
        ((1, 1, 65_540), (1, 1, 5)),
        ((1, 1, 264, 264), (1, 1, 9, 9)),
    ],
)
def test_long_sums_do_not_drift(
    backend: NumpyBackend, style: str, shapes: tuple[Shape, Shape]
) -> None:
    """In float32, about 65,536 products in a sum: an error of at most 1e-6 in the norm."""
    case = gradient("weight", *shapes, style=style)
    x, y = case["input"].astype(np.float64), case["grad_output"].astype(np.float64)
    space = tuple(range(2, x.ndim))
    windows = sliding_window_view(x, y.shape[2:], axis=space)  # one for each tap
    summed = (0, *(axis + len(space) for axis in space))
    expected = np.tensordot(y, windows, ((0, *space), summed))
    error = np.linalg.norm(backend.compute(case) - expected) / np.linalg.norm(expected)
    assert error <= 1e-6


@every_gradient
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_positional_arguments_are_those_of_the_convolution(
    kind: str, backend: NumpyBackend, rank: int
) -> None:
    shapes = (1, 4, 9, 8, 7)[: rank + 2], (6, 2, 2, 3, 2)[: rank + 2]
    options = {"stride": 2, "padding": 1, "dilation": 3, "groups": 2}
    case = gradient(kind, *shapes, **options)
    arrays = case.map(backend.asarray).arrays
    first = shapes[0] if kind == "input" else arrays["input"]
    second = shapes[1] if kind == "weight" else arrays["weight"]
    positional = first, second, arrays["grad_output"], *options.values()
    for name in ("conv", f"conv{rank}d"):
        result = backend.call(f"grad.{name}_{kind}", *positional)
        assert_same_bits(backend.to_numpy(result), backend.compute(case))


@every_gradient
def test_precision(kind: str, backend: NumpyBackend) -> None:
    """As of a convolution: by keyword or by a block, and for float32 alone."""
    shapes = (2, 9, 9, 9), (12, 9, 3, 3)
    case = gradient(kind, *shapes, style="positive")
    full, fast = backend.compute(case), backend.compute(case, precision="tf32")
    assert_convolution(full, case.defined, np.float32)
    assert_convolution(fast, case.defined, np.float32, "tf32")
    with cupyconv.precision("tf32"):
        assert_same_bits(backend.compute(case), fast)
        assert_same_bits(backend.compute(case, precision="float32"), full)
    complex_case = gradient(kind, *shapes, "complex64")
    assert_same_bits(backend.compute(complex_case, precision="tf32"), backend.compute(complex_case))


# Identities ----------------------------------------------------------------------------------


@every_backend
def test_identities(backend: NumpyBackend) -> None:
    """<conv(x, w), y> = <x, conv_input(y)> = <w, conv_weight(y)>, exactly, in int64."""
    for number in range(300 if backend.name == "numpy" else 15):
        rng = np.random.default_rng([IDENTITIES, number])
        try:
            identities.check(backend, rng)
        except Exception as error:
            call = identities.drawn(np.random.default_rng([IDENTITIES, number]))
            raise AssertionError(f"number {number}: {call}") from error


@given(data=st.data())
def test_the_input_gradient_is_a_transposed_convolution(data: st.DataObject) -> None:
    """Where the remainder of the stride is an output padding, it is the very same one."""
    rank = data.draw(st.integers(1, 3))
    lengths, kernel, options = data.draw(conv_geometries(rank, NO_BORDERS))
    borders = data.draw(BORDERS)
    axes = reference.conv_axes(lengths, kernel, **options)
    assume(all(axis.large for axis in axes))  # the shortest output of a transposed convolution
    shapes = (3, 4, *lengths), (6, 2, *kernel)
    forward = _geometry.conv("f", *shapes, None, **options, **borders, groups=2, rank=rank)
    transposed = _geometry.conv_transpose(
        "f",
        forward.out_shape,
        shapes[1],
        None,
        stride=options["stride"],
        padding=tuple((axis.before, axis.after) for axis in axes),
        output_padding=tuple(axis.longer for axis in axes),
        groups=2,
        dilation=options["dilation"],
        **borders,
        rank=rank,
    )
    assert _gradient_geometry.adjoint(forward) == transposed
    assert transposed.out_shape == shapes[0]
    assert _gradient_geometry.weight_shape(forward) == shapes[1]


# Promises ------------------------------------------------------------------------------------


@every_gradient
@given(data=st.data(), view=st.sampled_from(sorted(VIEWS)))
def test_bits_depend_on_values_alone(
    kind: str, backend: NumpyBackend, data: st.DataObject, view: str
) -> None:
    """The layouts of operands and of `out` change no bit, and a call writes to `out` alone."""
    case = data.draw(gradients(kinds=[kind]))
    expected = backend.compute(case.map(contiguous))
    arrays = case.map(backend.asarray).arrays
    buffer = backend.poisoned(VIEWS[view].shape(expected.shape), expected.dtype)
    out = VIEWS[view].take(buffer, expected.shape)
    assert backend.call(case.function, **arrays, **case.options, out=out) is out
    assert_same_bits(backend.to_numpy(out), expected)
    written = np.zeros(buffer.shape, bool)
    VIEWS[view].take(written, expected.shape)[...] = True
    around = backend.to_numpy(buffer)[~written]
    assert_same_bits(around, poison(np.empty_like(around)))
    for name, array in arrays.items():
        assert_same_bits(backend.to_numpy(array), case[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", [(3, 3), (9, 12)])
def test_addresses_of_odd_bytes(kind: str, kernel: Shape) -> None:
    """NumPy's arrays may lie anywhere, which changes no bit."""
    case = gradient(kind, (2, 2, 20, 21), (2, 2, *kernel))
    odd = case.map(unaligned)
    assert not any(a.flags.aligned for a in odd.arrays.values())
    assert_same_bits(NumpyBackend().compute(odd), NumpyBackend().compute(case))


def unaligned(a: Array) -> Array:
    memory = np.empty(a.nbytes + 1, np.uint8)[1:]
    view = memory.view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


@every_backend
@given(case=gradients(kinds=["input"], samples=st.sampled_from([2, 3, 5]), unbatched=False))
def test_a_sample_alone_or_in_a_batch(backend: NumpyBackend, case: Gradient) -> None:
    last = backend.compute(case)[-1:]
    y, size = case["grad_output"], case.options["input_size"]
    alone = case.with_arrays(grad_output=y[-1:]).with_options(input_size=(1, *size[1:]))
    assert_same_bits(backend.compute(alone), last)
    unbatched = case.with_arrays(grad_output=y[-1]).with_options(input_size=size[1:])
    assert_same_bits(backend.compute(unbatched), last[0])


@every_backend
@given(case=gradients(kinds=["weight"], samples=st.just(1), unbatched=False))
def test_a_sample_without_a_batch_axis(backend: NumpyBackend, case: Gradient) -> None:
    alone = case.map(lambda a: a[0])
    assert_same_bits(backend.compute(alone), backend.compute(case))


# Errors and explanations ---------------------------------------------------------------------

SHAPES = {"input": (2, 4, 6, 7), "weight": (6, 2, 3, 2), "grad_output": (2, 6, 4, 6)}


def right_call(kind: str) -> dict[str, Any]:
    """The arguments of a call that is right, with two groups."""
    other, size = ("weight", "input_size") if kind == "input" else ("input", "weight_size")
    arrays = {name: np.ones(SHAPES[name], np.float32) for name in (other, "grad_output")}
    return {**arrays, size: SHAPES[kind], "groups": 2}


def changed(kind: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {**right_call(kind), **changes}


WHOLE = "must be a whole shape, which is a sequence of integers, got"
RESULT = (
    "grad_output must have the shape of the convolution's result, (2, 6, 4, 6), got grad_output"
)
X, W, Y = (np.ones(shape, np.float32) for shape in SHAPES.values())
WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    # Shapes that are passed.
    ("input", {"input_size": 5}, TypeError, f"input_size {WHOLE} input_size=5"),
    ("input", {"input_size": None}, TypeError, f"input_size {WHOLE} input_size=None"),
    ("input", {"input_size": "2467"}, TypeError, f"input_size {WHOLE} input_size='2467'"),
    ("input", {"input_size": (2, 4, 6.0, 7)}, TypeError,
     f"input_size {WHOLE} input_size=(2, 4, 6.0, 7)"),
    ("input", {"input_size": X}, TypeError,
     f"input_size {WHOLE} an array; its shape, (2, 4, 6, 7), is one"),
    ("input", {"input_size": np.array(3)}, TypeError,
     f"input_size {WHOLE} input_size=array(3)"),
    ("weight", {"weight_size": W}, TypeError,
     f"weight_size {WHOLE} an array; its shape, (6, 2, 3, 2), is one"),
    ("weight", {"weight_size": (6, 2, 3, True)}, TypeError,
     f"weight_size {WHOLE} weight_size=(6, 2, 3, True)"),
    ("input", {"input_size": (2, 4, -1, 7)}, ValueError,
     "input_size must not be negative, got input_size=(2, 4, -1, 7)"),
    ("weight", {"weight_size": (6, 2, 2**63, 2)}, ValueError,
     f"weight_size must be below 2**63, got weight_size=(6, 2, {2**63}, 2)"),
    ("input", {"input_size": (6, 7)}, ValueError,
     "input_size must have 4 axes, or 3 without a batch axis, got input_size=(6, 7)"),
    ("input", {"input_size": range(27)}, ValueError,
     "input_size must have at most 26 axes, got input_size=range(0, 27)"),
    ("weight", {"weight_size": (3, 2)}, ValueError,
     "weight_size must have 4 axes, got weight_size=(3, 2)"),
    ("weight", {"weight_size": (6, 2, 0, 2)}, ValueError,
     "weight_size must have kernel axes of at least 1, got weight_size=(6, 2, 0, 2)"),
    ("input", {"input_size": (2, 3, 6, 7)}, ValueError,
     "input_size must have groups * weight.shape[1] channels, got 3 channels with groups=2 and "
     "weight of shape (6, 2, 3, 2)"),
    ("weight", {"weight_size": (6, 3, 3, 2)}, ValueError,
     "input must have groups * weight_size[1] channels, got 4 channels with groups=2 and "
     "weight_size=(6, 3, 3, 2)"),
    ("weight", {"weight_size": (5, 2, 3, 2)}, ValueError,
     "groups must divide the output channels, got groups=2 and weight_size=(5, 2, 3, 2)"),
    ("input", {"input_size": (2, 4, 2, 7)}, ValueError,
     "the kernel must not be larger than the padded input, got input_size=(2, 4, 2, 7) with weight "
     "of shape (6, 2, 3, 2), stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1): a kernel of "
     "extent (3, 2) on a padded input of size (2, 7)"),
    # Arrays that do not fit.
    ("input", {"grad_output": Y[0]}, ValueError,
     f"{RESULT} of shape (6, 4, 6) with input_size=(2, 4, 6, 7), weight of shape (6, 2, 3, 2), "
     "stride=(1, 1), padding=0, dilation=(1, 1)"),
    ("input", {"grad_output": Y, "stride": 1, "padding": "same"}, ValueError,
     f"{RESULT.replace('4, 6)', '6, 7)')} of shape (2, 6, 4, 6) with input_size=(2, 4, 6, 7), "
     "weight of shape (6, 2, 3, 2), stride=(1, 1), padding='same', dilation=(1, 1)"),
    ("weight", {"grad_output": Y[:1]}, ValueError,
     f"{RESULT} of shape (1, 6, 4, 6) with input of shape (2, 4, 6, 7), "
     "weight_size=(6, 2, 3, 2), stride=(1, 1), padding=0, dilation=(1, 1)"),
    ("input", {"weight": W[0]}, ValueError,
     "weight must have 4 axes, got weight of shape (2, 3, 2)"),
    ("weight", {"input": X[0, 0]}, ValueError,
     "input must have 4 axes, or 3 without a batch axis, got input of shape (6, 7); input[None] "
     "adds a channel axis"),
    ("weight", {"grad_output": [1.0]}, TypeError,
     "grad_output must be a NumPy or CuPy array, got list; numpy.asarray(grad_output) makes it "
     "one"),
    ("weight", {"input": X.astype(np.float16), "grad_output": Y.astype(ml_dtypes.bfloat16)},
     TypeError, "input and grad_output must have a common dtype, got float16 and bfloat16"),
    ("input", {"weight": W.astype(np.float16), "grad_output": Y.astype(ml_dtypes.bfloat16)},
     TypeError, "grad_output and weight must have a common dtype, got bfloat16 and float16"),
    # Options and `out`, by the checks of convolutions.
    ("input", {"stride": 0}, ValueError, "stride must be positive, got stride=0"),
    ("weight", {"dilation": (1, 2, 3)}, ValueError,
     "dilation must have one value for each of 2 spatial axes, got dilation=(1, 2, 3)"),
    ("weight", {"groups": 1.0}, TypeError, "groups must be an integer, got groups=1.0"),
    ("input", {"padding_mode": "circular"}, ValueError,
     "padding_mode must be None or one of 'reflect', 'symmetric', 'edge', 'wrap', got "
     "padding_mode='circular'; in NumPy's words it is 'wrap'"),
    ("weight", {"input": X[..., :0], "padding": 1, "padding_mode": "edge"}, ValueError,
     "padding_mode='edge' must have at least one position to continue on each axis, got spatial "
     "sizes (6, 0) with padding=((1, 1), (1, 1))"),
    ("input", {"precision": "half"}, ValueError,
     "precision must be one of ('float32', 'tf32'), got precision='half'"),
    ("input", {"out": np.empty((2, 4, 6, 6), np.float32)}, ValueError,
     "out must have shape (2, 4, 6, 7), got (2, 4, 6, 6)"),
    ("weight", {"out": np.empty(SHAPES["weight"])}, TypeError,
     "out must have dtype float32, got float64"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "changes", "error", "text"), WRONG, ids=[t for *_, t in WRONG])
def test_wrong_calls(kind: str, changes: dict[str, Any], error: type[Exception], text: str) -> None:
    name = f"conv2d_{kind}"
    with pytest.raises(error) as caught:
        getattr(cupyconv.grad, name)(**changed(kind, changes))
    assert str(caught.value) == f"{name}: {text}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_odd_values_of_a_shape(kind: str, value: Any) -> None:
    """Nested, long and unprintable values get a short text, from `explain` as from the call."""
    function = getattr(cupyconv.grad, f"conv2d_{kind}")
    call = changed(kind, {f"{kind}_size": value})
    for refusing in (function, partial(cupyconv.explain, function, target="sm_80")):
        with pytest.raises((ValueError, TypeError)) as caught:
            refusing(**call)
        text = str(caught.value)
        assert text.startswith(f"conv2d_{kind}: {kind}_size must ")
        assert ", got " in text and len(text) < 500


@pytest.mark.parametrize("kind", KINDS)
def test_out_that_shares_memory(kind: str) -> None:
    call = right_call(kind)
    shape = SHAPES[kind]
    buffer = np.ones(4 * math.prod(shape), np.float32)
    call["grad_output"] = buffer[: math.prod(SHAPES["grad_output"])].reshape(SHAPES["grad_output"])
    out = buffer[1 : 1 + math.prod(shape)].reshape(shape)
    with pytest.raises(ValueError, match=f"conv2d_{kind}: out must not share memory with grad_out"):
        getattr(cupyconv.grad, f"conv2d_{kind}")(**call, out=out)
    assert (buffer == 1).all()


def test_every_public_name_is_listed() -> None:
    functions = {
        name: function
        for name, function in vars(cupyconv.grad).items()
        if inspect.isfunction(function) and function.__module__ == cupyconv.grad.__name__
    }
    assert sorted(functions) == cupyconv.grad.__all__
    for name, function in functions.items():
        signature = list(inspect.signature(function).parameters)
        first = ["input", "weight_size"] if name.endswith("weight") else ["input_size", "weight"]
        rest = list(inspect.signature(cupyconv.conv).parameters)[3:]
        assert signature == [*first, "grad_output", *rest]


@given(case=gradients())
def test_an_explanation_is_that_of_the_call(case: Gradient) -> None:
    function = getattr(cupyconv.grad, case.function.removeprefix("grad."))
    found = cupyconv.explain(function, **case.arrays, **case.options, target="sm_90a")
    assert list(found.launches) == launches_of(case)
    assert found.out_shape == case.options[f"{case.kind}_size"]
    assert found.dtype == case.dtype
    assert (found.kernel == "none") == (0 in found.out_shape) == (not found.launches)
    assert 0 <= found.limit_ms <= found.expected_ms
