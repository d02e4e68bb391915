"""Max pooling against its definition: the result is one of the inputs, so it is equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import reference
from backends import NumpyBackend, every_backend, examples
from bounds import assert_close, assert_same_bits
from reference import Array
from strategies import Case, max_pools


def check(backend: NumpyBackend, case: Case) -> None:
    expected = reference.max_pool2d(case["input"], **case.options)
    if expected.dtype.kind not in "iu":
        expected = expected.astype(np.float64)
    assert_close(backend.compute(case), expected, 0.0, case["input"].dtype)


def pool(x: Any, *sizes: Any, dtype: Any = np.float32) -> Case:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    options = dict(zip(names, sizes, strict=False))
    return Case("max_pool2d", {"input": np.asarray(x).astype(dtype)}, options)


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape)


@every_backend
@given(case=max_pools())
def test_definition(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


EXAMPLES = [
    pool(noise(2, 3, 7, 9), 2),
    pool(noise(2, 3, 7, 9), (3, 1), (1, 2)),
    pool(noise(2, 3, 7, 9), (2, 3), (3, 5), (1, 1)),
    # Windows all below zero: padding is not a zero.
    pool(-1 - abs(noise(1, 2, 4, 4)), 3, 1, 1),
    pool(-np.ones((1, 1, 4, 4)), 3, 1, 1, dtype=np.int8),
    pool(np.full((1, 1, 4, 4), -np.inf), 3, 1, 1),
    pool(np.full((1, 1, 4, 4), np.iinfo(np.int64).min), 3, 1, 1, dtype=np.int64),
    # With ceil_mode the last window reaches over the end, unless it starts there.
    pool(noise(1, 1, 5, 6), 2, 2, 0, 1, True),
    pool(noise(1, 1, 5, 6), 3, 4, 1, 1, True),
    pool(noise(1, 1, 2, 2), 2, 3, 1, 1, True),
    pool(noise(1, 1, 9, 8), 3, 2, 2, (2, 3), True),
    # Integers that float64 cannot tell apart.
    pool(2**62 + np.arange(16).reshape(1, 1, 4, 4), 2, dtype=np.uint64),
    # More samples or channels than a grid has blocks on its second axis.
    pool(noise(65_537, 1, 2, 2), 2),
    pool(noise(1, 65_537, 2, 2), 2),
    pool(noise(1, 1, 2, 3), 1, 2**31 - 1),
    pool(noise(1, 1, 3, 3), 1, 1, 0, 2**31 - 1),
]


@every_backend
@examples(EXAMPLES)
def test_definition_on_examples(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


@every_backend
def test_nan_reaches_each_window_that_holds_it(backend: NumpyBackend) -> None:
    for position in np.ndindex(4, 4):
        x = np.full((1, 1, 4, 4), np.inf, np.float32)
        x[(0, 0, *position)] = np.nan
        case = pool(x, 2, 1)
        assert np.isnan(backend.compute(case)).any()
        check(backend, case)


@every_backend
def test_positional_arguments_are_in_the_order_of_the_field(backend: NumpyBackend) -> None:
    case = pool(noise(1, 1, 9, 9), 3, 2, 1, 2, True)
    x = backend.asarray(case["input"])
    positional = backend.call("max_pool2d", x, *case.options.values())
    assert_same_bits(backend.to_numpy(positional), backend.compute(case))


@every_backend
@pytest.mark.parametrize(
    "case",
    [
        pool(noise(1, 1, 4, 4), 5),
        pool(noise(1, 1, 4, 4), 3, 1, 2),
        pool(noise(1, 1, 4, 4), 2, 1, 2, 2),
        pool(noise(1, 1, 4, 4), (2, 1), 1, 1),
        pool(noise(1, 1, 4, 4), 2, 1, -1),
        pool(noise(1, 1, 4, 4), 0),
        pool(noise(1, 1, 4, 4), 2, 0),
        pool(noise(1, 1, 4, 4), 2, 1, 0, 0),
        pool(noise(1, 1, 4, 4), (2, 2, 2)),
        pool(noise(1, 1, 1, 4), 2, 1, (2, 0), 3),  # a window of nothing but padding
        pool(noise(1, 1, 0, 4), 1),
        pool(noise(4, 4), 2),
    ],
    ids=str,
)
def test_what_is_refused(backend: NumpyBackend, case: Case) -> None:
    with pytest.raises(ValueError, match="max_pool2d"):
        backend.compute(case)


@every_backend
def test_complex_numbers_have_no_maximum(backend: NumpyBackend) -> None:
    with pytest.raises(TypeError, match="complex64"):
        backend.compute(pool(noise(1, 1, 4, 4), 2, dtype=np.complex64))
