"""What does not change a bit of a result, for each function of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from backends import (
    NumpyBackend,
    every_backend,
    every_kernel,
    every_matrix_kernel,
    every_run,
)
from bounds import assert_same_bits
from reference import Array, Shape
from strategies import (
    MODES,
    Case,
    batch_norms,
    convolution,
    convolutions,
    fused_operations,
    group_norms,
    lay_out,
    max_pools,
    poison,
)

any_case = st.one_of(
    *[convolutions()] * 6, batch_norms(), group_norms(), max_pools(), fused_operations()
)
# Functions in which samples have nothing to do with each other: no batch statistics.
samples = st.sampled_from([2, 3, 5, 1])
independent_samples = st.one_of(
    *[convolutions(samples=samples, unbatched=False)] * 6,
    batch_norms(given=True),
    group_norms(),
    max_pools(unbatched=False),
    fused_operations(given=True),
)
# Axes with one tap, which may lie as one; with more of them the order of a sum would be another.
ONE_TAP = [
    convolution("conv2d", (2, 70, 15, 19), (90, 70, 1, 1), bias=True),
    convolution("conv_transpose3d", (1, 40, 3, 15, 17), (40, 30, 3, 1, 1)),
    convolution("conv", (1, 20, 3, 15, 7, 2), (17, 20, 1, 1, 1, 1)),
]
# Large enough for several tiles, a split sum, and the products of a matrix library.
LARGE = [
    convolution("conv2d", (3, 40, 17, 13), (70, 40, 3, 3), bias=True, padding=1),
    convolution("conv2d", (3, 40, 17, 13), (72, 10, 3, 5), bias=True, stride=(2, 1), groups=4),
    convolution("conv_transpose2d", (3, 40, 9, 11), (40, 70, 3, 5), bias=True, stride=2),
    convolution("conv_transpose3d", (2, 6, 4, 5, 3), (6, 5, 3, 3, 3), bias=True, padding=1),
    convolution("conv1d", (3, 700, 5), (9, 700, 5), bias=True),
    convolution("conv1d", (3, 700, 5), (9, 700, 5), "float16", bias=True),
    convolution("conv1d", (3, 70, 50), (90, 70, 5), "complex64", bias=True),
    convolution("depthwise_conv2d", (3, 70, 17, 13), (140, 1, 3, 3), bias=True, padding=1),
    convolution("depthwise_conv2d", (3, 7, 61, 53), (14, 1, 5, 5), bias=True, stride=2),
    convolution("depthwise_conv2d", (3, 5, 21, 72), (10, 1, 3, 5), "float16", bias=True, padding=2),
    convolution("depthwise_conv2d", (3, 5, 21, 59), (10, 1, 3, 5), "float16", bias=True, padding=2),
]


# The same for each engine and each precision of the Tensor Cores: several row tiles, phases,
# outputs packed along an axis.
MATRIX = [
    convolution(function, input_shape, weight_shape, dtype, precision=precision, **options)
    for dtype, precision in MODES
    for function, input_shape, weight_shape, options in (
        ("conv2d", (3, 20, 7, 11), (70, 20, 3, 3), {"padding": 1}),
        ("conv_transpose2d", (3, 18, 4, 7), (18, 66, 3, 4), {"stride": 2}),
        ("conv2d", (3, 18, 5, 23), (12, 9, 3, 3), {"groups": 2, "padding": ((0, 1), (2, 0))}),
    )
]


# One tap: neighbours that lie together, and an odd number of them; several chunks of channels.
STILL = [
    convolution(function, input_shape, weight_shape, dtype, precision=precision, bias=True)
    for dtype, precision in MODES
    for function, input_shape, weight_shape in (
        ("conv2d", (3, 40, 8, 11), (70, 40, 1, 1)),
        ("conv_transpose1d", (3, 140, 77), (140, 70, 1)),
    )
]
for case in STILL[::2]:  # what is not finite is computed again, and nothing beside it
    case["input"][1, :, 3] = np.nan
    case["input"][2, 5, 1, ::3] = np.inf


# Values of one channel that a vector of NumPy's holds, and values that it leaves over.
COMPLEX = convolution("depthwise_conv2d", (7, 1, 1, 1), (1, 1, 1, 1), "complex64")


def contiguous(a: Array) -> Array:
    return np.array(a, order="C")


def one_sample(case: Case, n: int) -> Case:
    return case.with_arrays(input=case["input"][n : n + 1])


@every_run
@given(case=any_case)
def test_run_to_run(backend: NumpyBackend, case: Case) -> None:
    assert_same_bits(backend.compute(case), backend.compute(case))


@every_backend
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_large_cases(backend: NumpyBackend, case: Case) -> None:
    check_promises(backend, case)


@every_matrix_kernel
@pytest.mark.parametrize("case", MATRIX, ids=str)
def test_matrix_units(backend: NumpyBackend, case: Case) -> None:
    check_promises(backend, case)


@every_backend
@pytest.mark.parametrize("case", STILL, ids=str)
def test_one_tap(backend: NumpyBackend, case: Case) -> None:
    check_promises(backend, case)


def check_promises(backend: NumpyBackend, case: Case) -> None:
    """Each of these calls is also one more run, so the same call need not be made twice."""
    result = backend.compute(case)
    rng = np.random.default_rng(0)
    for layout in ("offset", "sliced", "reversed", "transposed", "fortran"):
        laid_out = case.map(lambda a, layout=layout: lay_out(rng, a, layout))
        assert_same_bits(backend.compute(laid_out), result)
    for n in range(len(result)):
        assert_same_bits(backend.compute(one_sample(case, n)), result[n : n + 1])
    unbatched = case.with_arrays(input=case["input"][-1])
    assert_same_bits(backend.compute(unbatched), result[-1])


@every_kernel
@given(case=independent_samples)
@example(case=COMPLEX)
def test_a_sample_alone_or_in_a_batch(backend: NumpyBackend, case: Case) -> None:
    result = backend.compute(case)
    for n in range(case["input"].shape[0]):
        assert_same_bits(backend.compute(one_sample(case, n)), result[n : n + 1])


every_sum_near_overflow = pytest.mark.parametrize(
    ("sample", "weight"), [((16, 8), (8, 16, 1)), ((4, 4), (8, 4, 4))], ids=["one tap", "taps"]
)


@every_kernel
@every_sum_near_overflow
def test_a_sample_beside_nan(
    backend: NumpyBackend, sample: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    """It is computed like any other, even where the order of its sum decides on an overflow."""
    check_beside_nan(backend, sample, weight)


def check_beside_nan(
    backend: NumpyBackend, sample: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    x = np.zeros((40, *sample), np.float16)  # more than one sample in a tile, of any kernel
    # Below 65520, where rounding to float16 gives infinity, by less than the last terms add up to;
    # but in float32 each of them alone is lost.
    terms = np.array([65504, 15.9921875, 2**-8, *[0.0015] * 3])
    x.reshape(40, 16, -1)[:, :6] = terms[:, None]
    x[1::2] = np.nan
    case = Case("conv1d", {"input": x, "weight": np.ones(weight, np.float16)}, {})
    alone = backend.compute(one_sample(case, 0))
    assert_same_bits(backend.compute(case)[:1], alone)


@every_kernel
@given(
    case=st.one_of(
        *[convolutions(samples=samples, unbatched=False)] * 4,
        max_pools(samples=samples, unbatched=False),
    )
)
def test_unbatched(backend: NumpyBackend, case: Case) -> None:
    unbatched = case.with_arrays(input=case["input"][0])
    assert_same_bits(backend.compute(unbatched), backend.compute(one_sample(case, 0))[0])


@every_kernel
@given(case=any_case)
def test_memory_layouts(backend: NumpyBackend, case: Case) -> None:
    """Any view of the inputs gives what their contiguous copies give."""
    assert_same_bits(backend.compute(case), backend.compute(case.map(contiguous)))


@every_kernel
def test_overlapping_windows_of_one_buffer(backend: NumpyBackend) -> None:
    """A view whose elements share memory is an input like another."""
    x = sliding_window_view(np.random.default_rng(0).standard_normal((2, 3, 20)), 8, axis=-1)
    case = convolution("conv2d", (2, 3, 13, 8), (4, 3, 3, 3), np.float64).with_arrays(input=x)
    assert_same_bits(backend.compute(case), backend.compute(case.map(contiguous)))


@every_kernel
@given(case=any_case)
def test_inputs_are_not_modified(backend: NumpyBackend, case: Case) -> None:
    arrays = case.map(backend.asarray).arrays
    backend.call(case.function, **arrays, **case.options)
    for name, array in arrays.items():
        if array is not None:
            assert_same_bits(backend.to_numpy(array), case[name])


# out -----------------------------------------------------------------------------------------


class View:
    """A kind of view: the buffer that it needs, and how it is taken."""

    def __init__(self, shape: Callable[[Shape], Shape], take: Callable[[Any, Shape], Any]) -> None:
        self.shape, self.take = shape, take


VIEWS = {
    "contiguous": View(lambda shape: shape, lambda b, shape: b),
    "every other channel": View(
        lambda shape: (shape[0], 2 * shape[1] + 1, *shape[2:]), lambda b, shape: b[:, 1::2]
    ),
    "sliced": View(
        lambda shape: (*(n + 2 for n in shape[:-1]), 3 * shape[-1] + 2),
        lambda b, shape: b[(*(slice(1, 1 + n) for n in shape[:-1]), slice(1, -1, 3))],
    ),
    "padded": View(
        lambda shape: (*shape[:-1], (shape[-1] // 16 + 1) * 16),
        lambda b, shape: b[..., : shape[-1]],
    ),
    "reversed": View(lambda shape: shape, lambda b, shape: b[..., ::-1]),
    "transposed": View(lambda shape: shape[::-1], lambda b, shape: b.T),
    "channels last": View(
        lambda shape: (shape[0], *shape[2:], shape[1]),
        lambda b, shape: b.transpose(0, len(shape) - 1, *range(1, len(shape) - 1)),
    ),
    "offset": View(lambda shape: (int(np.prod(shape)) + 1,), lambda b, shape: b[1:].reshape(shape)),
}


@every_kernel
@given(case=any_case, kind=st.sampled_from(list(VIEWS)))
@example(case=LARGE[0], kind="channels last")
@example(case=LARGE[3], kind="sliced")
@example(case=ONE_TAP[0], kind="sliced")
@example(case=ONE_TAP[1], kind="transposed")
@example(case=ONE_TAP[2], kind="sliced")
def test_out(backend: NumpyBackend, case: Case, kind: str) -> None:
    """A result that is written to any view is the one that is returned, and it is all that is."""
    expected = backend.compute(case)
    view = VIEWS[kind]
    buffer = backend.poisoned(view.shape(expected.shape), expected.dtype)
    out = view.take(buffer, expected.shape)
    arrays = case.map(backend.asarray).arrays
    assert backend.call(case.function, **arrays, **case.options, out=out) is out
    assert_same_bits(backend.to_numpy(out), expected)
    written = np.zeros(buffer.shape, bool)
    view.take(written, expected.shape)[...] = True
    around = backend.to_numpy(buffer)[~written]
    assert_same_bits(around, poison(np.empty_like(around)))


CASE = convolution("conv2d", (2, 3, 5, 6), (3, 3, 3, 3), padding=1, stride=1)


@every_kernel
def test_out_between_the_channels_of_the_input(backend: NumpyBackend) -> None:
    """Interleaved channels of one buffer do not overlap."""
    buffer = np.zeros((2, 6, 5, 6), np.float32)
    buffer[:, ::2] = CASE["input"]
    buffer = backend.asarray(buffer)
    out = buffer[:, 1::2]
    weight = backend.asarray(CASE["weight"])
    backend.call("conv2d", buffer[:, ::2], weight, padding=1, out=out)
    assert_same_bits(backend.to_numpy(out), backend.compute(CASE))
    assert_same_bits(backend.to_numpy(buffer)[:, ::2], CASE["input"])


def in_place(backend: NumpyBackend) -> tuple[Any, Any]:
    x = backend.asarray(CASE["input"].copy())
    return x, x


def one_row_further(backend: NumpyBackend) -> tuple[Any, Any]:
    buffer = backend.asarray(np.ones((2, 3, 6, 6), np.float32))
    return buffer[:, :, :-1], buffer[:, :, 1:]


def reversed_in_place(backend: NumpyBackend) -> tuple[Any, Any]:
    x = backend.asarray(CASE["input"].copy())
    return x, x[..., ::-1]


def onto_itself(backend: NumpyBackend) -> tuple[Any, Any]:
    memory = np.zeros((2, 3, 5, 6), np.float32)
    return backend.asarray(CASE["input"]), backend.asarray(
        as_strided(memory, memory.shape, (*memory.strides[:2], 4, 4))
    )


def of_another_shape(backend: NumpyBackend) -> tuple[Any, Any]:
    return backend.asarray(CASE["input"]), backend.poisoned((2, 3, 6, 5), np.float32)


@every_backend
@pytest.mark.parametrize(
    "make", [in_place, one_row_further, reversed_in_place, onto_itself, of_another_shape]
)
def test_an_out_that_is_refused_is_left_untouched(
    backend: NumpyBackend, make: Callable[[NumpyBackend], tuple[Any, Any]]
) -> None:
    x, out = make(backend)
    before = backend.to_numpy(out).copy()
    with pytest.raises(ValueError, match="conv2d: out"):
        backend.call("conv2d", x, backend.asarray(CASE["weight"]), padding=1, out=out)
    assert_same_bits(backend.to_numpy(out), before)


@every_backend
def test_an_out_of_another_dtype_is_refused(backend: NumpyBackend) -> None:
    out = backend.poisoned((2, 3, 5, 6), np.float64)
    with pytest.raises(TypeError, match="conv2d: out"):
        backend.compute(CASE, out=out)
    assert np.isnan(backend.to_numpy(out)).all()


@every_backend
@pytest.mark.parametrize(
    "wrong", [{"stride": 0}, {"padding": -1}, {"dilation": 3}, {"groups": 2}, {"precision": "?"}]
)
def test_a_wrong_call_leaves_out_untouched(backend: NumpyBackend, wrong: dict[str, Any]) -> None:
    out = backend.poisoned((2, 3, 5, 6), np.float32)
    case = Case(CASE.function, CASE.arrays, {**CASE.options, **wrong})
    with pytest.raises(ValueError, match="conv2d"):
        backend.compute(case, out=out)
    assert np.isnan(backend.to_numpy(out)).all()
