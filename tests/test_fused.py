"""The fused operation against the composition of its parts' definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import cupyconv
import reference
from backends import (
    NumpyBackend,
    check_lines,
    every_backend,
    every_matrix_kernel,
    every_run,
    examples,
)
from bounds import assert_normalized, assert_same_bits, fused_error
from strategies import BFLOAT16, FUSED, Case, floating, fused_operations, values


def check(backend: NumpyBackend, case: Case) -> None:
    options = dict(case.options)
    precision = options.pop("precision", None) or "float32"
    fused = getattr(reference, FUSED)(**case.arrays, **options)
    dtype = floating(np.result_type(case["input"], case["kernel"]))
    if dtype != np.float32:  # others ignore the precision
        precision = "float32"
    shape = fused.pooled.shape
    error = fused_error(fused, dtype, precision).reshape(shape)
    assert_normalized(backend.compute(case), fused.group.value.reshape(shape), error, dtype)


def fused_case(
    input_shape: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    dtype: Any = np.float32,
    *,
    given: bool = False,
    **options: Any,
) -> Case:
    rng = np.random.default_rng(0)
    channels = (kernel_shape[1] * options.get("groups", 1),)
    arrays: dict[str, Any] = {
        "input": values(rng, input_shape, dtype),
        "kernel": values(rng, kernel_shape, dtype),
    }
    for name in ("bn_weight", "bn_bias", "gn_weight", "gn_bias"):
        arrays[name] = values(rng, channels, np.float32)
    if given:
        arrays["mean"] = values(rng, channels, np.float32)
        arrays["var"] = values(rng, channels, np.float32, "positive")
    return Case(FUSED, arrays, options)


@every_matrix_kernel
@given(case=fused_operations())
def test_definition(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


EXAMPLES = [
    # Narrow kernels of any orientation, and an odd row and column that no window takes.
    fused_case((2, 6, 5, 9), (6, 8, 3, 7), num_groups=4),
    fused_case((2, 6, 9, 5), (6, 8, 7, 3), num_groups=8, given=True),
    fused_case((2, 3, 4, 4), (3, 4, 2, 2), num_groups=1, stride=(2, 3), output_padding=(1, 2)),
    # Large enough for more than one tile of any kernel.
    fused_case((3, 24, 20, 18), (24, 40, 5, 5), num_groups=4, padding=1),
    fused_case((2, 24, 20, 18), (24, 20, 4, 4), np.float16, num_groups=5, stride=2, groups=2),
    fused_case((2, 24, 9, 10), (24, 10, 3, 3), BFLOAT16, num_groups=2, groups=4, given=True),
    fused_case((2, 5, 9, 10), (5, 7, 3, 3), np.float64, num_groups=7),
    fused_case((2, 5, 9, 10), (5, 6, 3, 3), np.int16, num_groups=3),
    fused_case((65_537, 1, 1, 1), (1, 2, 2, 2), num_groups=2),
    fused_case((1, 1, 1, 1), (1, 65_538, 2, 2), num_groups=2),
    fused_case((0, 2, 3, 3), (2, 4, 2, 2), num_groups=2, given=True),
    fused_case((2, 0, 3, 3), (0, 4, 2, 2), num_groups=2),
    fused_case((2, 6, 0, 5), (6, 8, 5, 3), num_groups=4, stride=(2, 1)),
    fused_case((2, 6, 5, 0), (6, 8, 3, 5), np.float16, num_groups=2, given=True),
]


@every_matrix_kernel
@examples(EXAMPLES)
def test_definition_on_examples(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


@every_matrix_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_lines_that_are_no_whole_chunks(backend: NumpyBackend, dtype: Any) -> None:
    check_lines(backend, fused_case((2, 6, 5, 42), (6, 8, 3, 3), dtype, num_groups=4, padding=1))


@every_matrix_kernel
@pytest.mark.parametrize("given", [False, True])
def test_groups_that_shared_memory_does_not_hold(backend: NumpyBackend, given: bool) -> None:
    case = fused_case((1, 3, 62, 62), (3, 64, 2, 1), np.float16, num_groups=1, given=given)
    check(backend, case)


@every_matrix_kernel
@pytest.mark.parametrize(
    ("stride", "height", "precision"),
    [((2, 2), 9, "float32"), ((1, 2), 13, "tf32"), ((3, 1), 9, "float32"), ((2, 5), 9, "tf32")],
)
def test_inputs_that_lie_apart(
    backend: NumpyBackend, stride: tuple[int, int], height: int, precision: str
) -> None:
    """Strides, in several tiles along both axes."""
    case = fused_case(
        (1, 9, height, 116 // max(2, stride[1]) + 3),
        (9, 6, 4, 5),
        num_groups=3,
        stride=stride,
        padding=(1, 2),
        output_padding=tuple(s - 1 for s in stride),
        precision=precision,
    )
    check(backend, case)


@every_matrix_kernel
def test_an_infinite_weight_times_what_may_be_zero(backend: NumpyBackend) -> None:
    """Two windows saturate alike: in float32 they are equal, in the reference they are not."""
    case = fused_case((1, 1, 1, 3), (1, 1, 2, 2), num_groups=1, given=True)
    ones = np.ones(1, np.float32)
    case = case.with_arrays(
        input=np.array([[[[9, 9, 9.5]]]], np.float32),
        kernel=np.ones((1, 1, 2, 2), np.float32),
        gn_weight=np.array([np.inf], np.float32),
        bn_weight=ones, bn_bias=ones, mean=ones, var=ones,
    )  # fmt: skip
    check(backend, case)


@every_matrix_kernel
@pytest.mark.parametrize("scale", [-np.inf, np.inf])
@pytest.mark.parametrize("shift", [-np.inf, np.inf])
def test_scale_and_shift_are_infinite(backend: NumpyBackend, scale: float, shift: float) -> None:
    """A sum on one side of the mean is NaN then, and so is each window that has one."""
    case = fused_case((2, 2, 5, 9), (2, 70, 2, 2), num_groups=70)
    bn_weight, bn_bias = case["bn_weight"].copy(), case["bn_bias"].copy()
    bn_weight[1::2], bn_bias[1::2] = scale, shift
    check(backend, case.with_arrays(bn_weight=bn_weight, bn_bias=bn_bias))


@every_matrix_kernel
@pytest.mark.parametrize("style", ["constant", "large", "small"])
def test_saturated_and_constant_stages(backend: NumpyBackend, style: str) -> None:
    """Statistics without variance, and a tanh that is 1 all over."""
    case = fused_case((2, 3, 5, 5), (3, 4, 2, 2), num_groups=2, padding=1)
    change = {"constant": np.zeros_like, "large": lambda a: a * 1e6, "small": lambda a: a * 1e-6}
    check(backend, case.with_arrays(input=change[style](case["input"])))
    check(backend, case.with_arrays(bn_weight=change[style](case["bn_weight"])))
    check(backend, case.with_arrays(bn_bias=change[style](case["bn_bias"])))


@every_matrix_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_means_far_from_zero(backend: NumpyBackend, dtype: Any) -> None:
    """Channels whose mean is thousands of times their deviation, through several tiles."""
    case = fused_case((1, 3, 9, 40), (3, 70, 1, 1), dtype, num_groups=7)
    noise = case["input"].astype(np.float64) * 2e-4
    check(
        backend,
        case.with_arrays(
            input=(1 + noise).astype(dtype), kernel=np.abs(case["kernel"]) + dtype(0.25)
        ),
    )


@every_run
def test_the_same_bits_in_every_run(backend: NumpyBackend) -> None:
    case = fused_case((3, 24, 20, 18), (24, 40, 5, 5), num_groups=4, padding=1)
    assert_same_bits(backend.compute(case), backend.compute(case))


@every_backend
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_groups", 3),
        ("num_groups", 0),
        ("padding", -1),
        ("padding", 3),
        ("output_padding", 1),
        ("groups", 2),
    ],
)
def test_what_is_refused(backend: NumpyBackend, name: str, value: int) -> None:
    case = fused_case((2, 3, 5, 5), (3, 4, 2, 2), num_groups=2)
    case = Case(FUSED, case.arrays, {**case.options, name: value})
    with pytest.raises(ValueError, match=f"{FUSED}.*{name}|{FUSED}.*output size"):
        backend.compute(case)


@every_backend
def test_both_statistics_or_none(backend: NumpyBackend) -> None:
    case = fused_case((2, 3, 5, 5), (3, 4, 2, 2), num_groups=2, given=True)
    for name in ("mean", "var"):
        with pytest.raises(ValueError, match=r"mean.*var"):
            backend.compute(case.with_arrays(**{name: None}))


@every_backend
def test_complex_numbers_are_refused(backend: NumpyBackend) -> None:
    case = fused_case((2, 3, 5, 5), (3, 4, 2, 2), np.complex64, num_groups=2)
    with pytest.raises(TypeError, match="complex64"):
        backend.compute(case)


def test_eps_is_no_string_after_a_call_like_it() -> None:
    """What is kept of a call tells its eps from a text of the same bits."""
    one = np.ones(1)
    arrays = np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), one, one, one, one
    for eps in (1e-5, 1e-5):
        getattr(cupyconv, FUSED)(*arrays, num_groups=1, eps=eps)
    with pytest.raises(TypeError, match="eps must be a real number"):
        getattr(cupyconv, FUSED)(*arrays, num_groups=1, eps=(1e-5).hex())
