"""Batch norm and group norm against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import reference
from backends import NumpyBackend, check_lines, every_backend, marked
from bounds import assert_normalized, assert_same_bits, norm_error
from strategies import BFLOAT16, Case, batch_norms, floating, group_norms, values


def check(backend: NumpyBackend, case: Case) -> None:
    shape = case["input"].shape
    norm = getattr(reference, case.function)(**case.arrays, **case.options)
    expected, error = norm.value, norm_error(norm)
    if case.function == "batch_norm":
        expected = reference.from_channel_rows(expected, shape)
        error = reference.from_channel_rows(error, shape)
    dtype = floating(case["input"].dtype)
    assert_normalized(backend.compute(case), expected.reshape(shape), error.reshape(shape), dtype)


@every_backend
@given(case=batch_norms())
def test_batch_norm(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


@every_backend
@given(case=group_norms())
def test_group_norm(backend: NumpyBackend, case: Case) -> None:
    check(backend, case)


NOISE = np.random.default_rng(0).standard_normal((3, 4, 50))
INPUTS: dict[str, tuple[Any, Any, float]] = {
    "many axes": (NOISE[:, :, :1, None, None], np.float32, 1e-5),
    "one value, or one in each channel": (NOISE[:1, :, 0], np.float32, 1e-5),
    "constant": (np.full((2, 2, 3), 7.1), np.float32, 1e-5),
    # Means far from 0: uncentred sums of squares lose what the variance is made of.
    "float32 mean": (NOISE + 1e4, np.float32, 1e-5),
    "float64 mean": (NOISE + 1e7, np.float64, 1e-5),
    "float16 mean": (NOISE + 1e3, np.float16, 1e-5),
    "bfloat16 mean": (NOISE * 30 + 1e4, BFLOAT16, 1e-5),
    "integers": (NOISE * 1e12, np.int64, 1e-5),
    # Squares out of float32's range.
    "large squares": (NOISE * 1e25, np.float32, 1e-5),
    "small squares": (NOISE * 1e-25, np.float32, 1e-30),
    "no epsilon": (NOISE, np.float32, 0.0),
    "long": (np.random.default_rng(0).uniform(0.5, 1.5, (2, 4, 70_000)), np.float32, 1e-5),
    "more channels than a grid has blocks": (np.ones((1, 65_538, 2)) * [1, 2], np.float32, 1e-5),
    "more samples than a grid has blocks": (np.ones((65_537, 2, 2)) * [1, 2], np.float32, 1e-5),
}


@every_backend
@pytest.mark.parametrize("name", [marked(name, x.size) for name, (x, *_) in INPUTS.items()])
def test_examples(backend: NumpyBackend, name: str) -> None:
    x, dtype, eps = INPUTS[name]
    arrays = {"input": x.astype(dtype)}
    check(backend, Case("batch_norm", arrays, {"eps": eps}))
    check(backend, Case("group_norm", arrays, {"eps": eps, "num_groups": 2}))
    check(backend, Case("group_norm", arrays, {"eps": eps, "num_groups": 1}))


@every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (2, 8, 20), (3, 12), (2, 4, 3, 7)])
def test_lines_that_are_no_whole_chunks(
    backend: NumpyBackend, shape: tuple[int, ...], dtype: Any
) -> None:
    x = values(np.random.default_rng(0), shape, dtype)
    mean, var = np.zeros(shape[1], np.float32), np.ones(shape[1], np.float32)
    check_lines(backend, Case("batch_norm", {"input": x}, {}))
    check_lines(backend, Case("batch_norm", {"input": x, "mean": mean, "var": var}, {}))
    check_lines(backend, Case("group_norm", {"input": x}, {"num_groups": 2}))


@every_backend
@pytest.mark.parametrize(("dtype", "bits"), [(np.float16, 11), (BFLOAT16, 8)])
def test_results_are_rounded_once(backend: NumpyBackend, dtype: Any, bits: int) -> None:
    """What is a little off a tie of 16 bits would be one in float32, and go to the even side."""
    half, little = 2.0**-bits, 2.0**-40
    weight = np.array([1 + half + little, 1 + half, 1 + 3 * half - little, -1 - half - little])
    ones, zeros = np.ones((1, 4), dtype), np.zeros(4)
    arrays = {"input": ones, "mean": zeros, "var": zeros + 1, "weight": weight}
    result = backend.compute(Case("batch_norm", arrays, {"eps": 0.0}))
    np.testing.assert_array_equal(
        result.astype(np.float64), [[1 + 2 * half, 1, 1 + 2 * half, -1 - 2 * half]]
    )


@every_backend
@pytest.mark.large
def test_as_many_groups_as_channels(backend: NumpyBackend) -> None:
    x = values(np.random.default_rng(0), (1, 65_537, 2), np.float32)
    check(backend, Case("group_norm", {"input": x}, {"num_groups": 65_537}))


@every_backend
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_odd_numbers_stay_in_their_set(backend: NumpyBackend, value: float) -> None:
    x = NOISE.astype(np.float32)
    x[1, 2, 3] = value
    result = backend.compute(Case("batch_norm", {"input": x}, {}))
    assert np.isnan(result[:, 2]).all()
    assert np.isfinite(np.delete(result, 2, axis=1)).all()
    result = backend.compute(Case("group_norm", {"input": x}, {"num_groups": 2}))
    assert np.isnan(result[1, 2:]).all()
    assert np.isfinite(result[[0, 2]]).all()
    assert np.isfinite(result[1, :2]).all()


@every_backend
def test_positional_arguments_are_in_the_order_of_the_field(backend: NumpyBackend) -> None:
    x, mean, weight, bias = (
        backend.asarray(a.astype(np.float32)) for a in (NOISE, *values_of_channels())
    )
    var = weight * weight
    parameters = {"weight": weight, "bias": bias}
    assert_same_bits(
        backend.to_numpy(backend.call("batch_norm", x, mean, var, weight, bias)),
        backend.to_numpy(backend.call("batch_norm", x, mean=mean, var=var, **parameters)),
    )
    assert_same_bits(
        backend.to_numpy(backend.call("group_norm", x, 2, weight, bias, 0.1)),
        backend.to_numpy(backend.call("group_norm", x, num_groups=2, eps=0.1, **parameters)),
    )


def values_of_channels() -> Any:
    return np.random.default_rng(1).standard_normal((3, 4))


@every_backend
@pytest.mark.parametrize("name", ["mean", "var"])
def test_one_statistic_alone_is_refused(backend: NumpyBackend, name: str) -> None:
    with pytest.raises(ValueError, match=r"mean.*var"):
        backend.compute(Case("batch_norm", {"input": NOISE, name: np.ones(4)}, {}))


@every_backend
def test_a_norm_over_no_values_is_refused(backend: NumpyBackend) -> None:
    for shape in ((0, 4, 3), (2, 4, 0)):
        with pytest.raises(ValueError, match="batch_norm"):
            backend.compute(Case("batch_norm", {"input": np.ones(shape)}, {}))
    with pytest.raises(ValueError, match="group_norm"):
        backend.compute(Case("group_norm", {"input": np.ones((2, 4, 0))}, {"num_groups": 2}))


@every_backend
@pytest.mark.parametrize("num_groups", [0, -1, 3, 8])
def test_groups_divide_the_channels(backend: NumpyBackend, num_groups: int) -> None:
    with pytest.raises(ValueError, match="num_groups"):
        backend.compute(Case("group_norm", {"input": NOISE}, {"num_groups": num_groups}))


@every_backend
def test_complex_numbers_have_no_norm(backend: NumpyBackend) -> None:
    x = NOISE.astype(np.complex64)
    with pytest.raises(TypeError, match="complex64"):
        backend.compute(Case("batch_norm", {"input": x}, {}))
    with pytest.raises(TypeError, match="complex64"):
        backend.compute(Case("group_norm", {"input": x}, {"num_groups": 2}))
