"""Errors that name the way out: what they say is done here, and the call is then right.

An error's advice follows its last semicolon. Most of it is an expression, which is evaluated.
"""

from __future__ import annotations

import re
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupyconv
from bounds import assert_same_bits
from reference import Array

SIZES = st.lists(st.integers(4, 9), min_size=1, max_size=3)
COUNT = st.integers(2, 3)


def values(*shape: int) -> Array:
    return np.arange(float(np.prod(shape))).reshape(shape) % 7


def refused(function: str, /, *args: Any, **options: Any) -> str:
    """The advice of the error of a wrong call."""
    with pytest.raises((TypeError, ValueError)) as caught:
        getattr(cupyconv, function)(*args, **options)
    text = str(caught.value)
    assert text.startswith(f"{function}: ")
    rule, mark, advice = text.rpartition("; ")
    assert mark and ", got " in rule, text
    return advice


def done(advice: str, **names: Any) -> Any:
    """What the expression of an advice gives."""
    known = "|".join(names)
    found = re.search(rf"numpy\.\w+\(.*?\)|\b(?:{known})(?:\[[^]]*\]|\.\w+\([^)]*\))", advice)
    assert found, advice
    return eval(found[0], {"numpy": np, **names})


def names_of(sizes: list[int]) -> tuple[str, str]:
    return f"conv{len(sizes)}d", f"conv_transpose{len(sizes)}d"


# Axes that are missing or elsewhere ----------------------------------------------------------


@given(SIZES)
def test_a_bare_kernel_and_a_bare_image(sizes: list[int]) -> None:
    image, kernel = values(*sizes), values(*(3 for _ in sizes))
    for name in names_of(sizes):
        weight = done(refused(name, image, kernel), weight=kernel)
        batch = done(refused(name, image, weight), input=image)
        assert getattr(cupyconv, name)(batch, weight).shape[0] == 1
    if len(sizes) < 3:  # three axes may be two of channels and one of space
        for name in ("conv", "conv_transpose"):
            weight = done(refused(name, image, kernel), weight=kernel)
            assert weight.shape == (1, 1, *kernel.shape)
    if len(sizes) == 2:
        batch = done(refused("max_pool2d", image, 2), input=image)
        assert cupyconv.max_pool2d(batch, 2).ndim == 3


@given(SIZES, COUNT, COUNT, st.booleans())
def test_channels_that_are_last(sizes: list[int], batch: int, channels: int, batched: bool) -> None:
    last = values(*((batch,) if batched else ()), *sizes, channels)
    first = np.moveaxis(last, -1, -len(sizes) - 1)
    weight = values(channels, channels, *(3 for _ in sizes))
    for name in names_of(sizes):
        advice = refused(name, last, weight)
        assert advice.startswith(f"input has shape {last.shape}: move the channel axis, ")
        assert_same_bits(done(advice, input=last), first)
    if len(sizes) == 2:
        single = values(channels, 1, 3, 3)
        if channels % last.shape[-3]:
            assert_same_bits(done(refused("depthwise_conv2d", last, single), input=last), first)


@given(SIZES, st.integers(2, 5))
def test_a_stack_of_images_without_a_channel_axis(sizes: list[int], batch: int) -> None:
    images, weight = values(batch, *sizes), values(1, 1, *(3 for _ in sizes))
    for name in names_of(sizes):
        stack = done(refused(name, images, weight), input=images)
        assert getattr(cupyconv, name)(stack, weight).shape[:2] == (batch, 1)


@pytest.mark.parametrize("function", ["conv2d", "conv_transpose2d", "depthwise_conv2d"])
@pytest.mark.parametrize("colours", [3, 4])
def test_one_filter_for_a_photograph_with_colours_last(function: str, colours: int) -> None:
    photograph, weight = values(6, 8, colours), values(1, 1, 3, 3)
    _, first, advice = refused(function, photograph, weight).partition("batch axis, and ")
    assert first
    planes = eval(advice.split(" its ")[0], {"input": photograph})
    filtered = getattr(cupyconv, function)(planes, weight, padding=1)
    assert filtered.shape == (colours, 1, 6, 8)
    assert_same_bits(planes[:, 0], np.moveaxis(photograph, -1, 0))


def test_no_axis_is_guessed_where_no_guess_is_right() -> None:
    for shape in ((2, 5, 6, 7), (2, 4, 6, 7), (5, 6, 7)):
        with pytest.raises(ValueError, match="input must have groups") as caught:
            cupyconv.conv2d(values(*shape), values(2, 3, 3, 3))
        assert "; " not in str(caught.value)
    with pytest.raises(ValueError, match="weight must have 4 axes") as caught:
        cupyconv.conv2d(values(1, 1, 6, 7), values(2, 3, 3))
    assert "; " not in str(caught.value)


def test_the_fused_operation_wants_a_batch() -> None:
    name = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"
    image, one = values(2, 4, 4), np.ones(2)
    parameters = values(2, 2, 3, 3), one, one, one, one
    batch = done(refused(name, image, *parameters, num_groups=1), input=image)
    assert getattr(cupyconv, name)(batch, *parameters, num_groups=1).shape[0] == 1


# Arguments of other forms --------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3))
def test_pairs_of_padding_are_nested(pairs: list[tuple[int, int]]) -> None:
    rank = len(pairs)
    flat = tuple(end for pair in pairs for end in pair)
    x, w = values(1, 1, *(9 for _ in pairs)), values(1, 1, *(2 for _ in pairs))
    for padding in (flat, list(flat)):
        advice = refused(f"conv{rank}d", x, w, padding=padding)
        assert advice == f"pairs of (before, after) are nested, padding={tuple(pairs)}"
    cupyconv.conv(x, w, padding=pairs)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3, 1), (1, 3, 1)])
def test_a_bias_of_another_shape(shape: tuple[int, ...]) -> None:
    x, w, bias = values(1, 1, 5), values(3, 1, 2), np.full(shape, 2.0)
    expected = cupyconv.conv1d(x, w, np.full(3, 2.0))
    found = done(refused("conv1d", x, w, bias), bias=bias)
    assert_same_bits(cupyconv.conv1d(x, w, found), expected)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), 2j])
def test_a_number_for_each_channel(value: Any) -> None:
    x, w = values(1, 3, 5), values(3, 3, 2).astype(np.result_type(value))
    bias = done(refused("conv1d", x, w, value), bias=value, channels=3)
    assert_same_bits(cupyconv.conv1d(x, w, bias), cupyconv.conv1d(x, w) + value)
    if not isinstance(value, complex):
        scale = done(refused("batch_norm", x, weight=value), weight=value, channels=3)
        assert scale.shape == (3,)
    with pytest.raises(TypeError, match="must be a NumPy or CuPy array, got") as caught:
        cupyconv.conv1d(x, value)
    assert "; " not in str(caught.value)


@pytest.mark.parametrize("function", ["conv1d", "conv_transpose1d"])
def test_a_full_padding(function: str) -> None:
    x, w = values(1, 1, 6), values(1, 1, 3)
    advice = refused(function, x, w, padding="full")
    for dilation in (1, 2):
        (given,) = re.findall(r"padding=(\S+(?: - 1\))?)", advice)
        padding = eval(given.rstrip(","), {"dilation": dilation, "kernel": 3})
        result = getattr(cupyconv, function)(x, w, padding=padding, dilation=dilation)
        assert result.shape[-1] == 6 + 2 * dilation


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((mode, mode) for mode in ("reflect", "symmetric", "edge", "wrap")),
        ("mirror", "reflect"),
        ("replicate", "edge"),
        ("nearest", "edge"),
        ("circular", "wrap"),
    ],
)
def test_borders_are_numpy_s(name: str, mode: str) -> None:
    x, w = values(1, 1, 6), values(1, 1, 3)
    for function in ("conv1d", "conv_transpose1d"):
        advice = refused(function, x, w, padding=name)
        assert advice == f"padding_mode={mode!r} says what lies in a padding given by numbers"
        if name != mode:
            advice = refused(function, x, w, padding=1, padding_mode=name)
            assert advice == f"in NumPy's words it is {mode!r}"
        result = getattr(cupyconv, function)(x, w, padding=1, padding_mode=mode)
        assert result.shape == (1, 1, 6)


@pytest.mark.parametrize("name", ["zeros", "constant"])
def test_absence_is_no_mode(name: str) -> None:
    x, w = values(1, 1, 6), values(1, 1, 3)
    advice = refused("conv1d", x, w, padding_mode=name)
    assert advice == "without a padding_mode the padding contributes nothing"


@pytest.mark.parametrize("option", ["padding", "padding_mode"])
def test_words_that_mean_nothing_have_no_advice(option: str) -> None:
    for function in ("conv1d", "conv_transpose1d"):
        with pytest.raises(ValueError, match="must be") as caught:
            getattr(cupyconv, function)(values(1, 1, 6), values(1, 1, 3), **{option: "half"})
        assert "; " not in str(caught.value)


# Values that are no arrays -------------------------------------------------------------------


def test_lists_and_their_like() -> None:
    x, w = values(1, 1, 5), values(1, 1, 2)
    expected = cupyconv.conv1d(x, w)
    for value in (x.tolist(), tuple(x.tolist()), memoryview(x)):
        array = done(refused("conv1d", value, w), input=value)
        assert_same_bits(cupyconv.conv1d(array, w), expected)
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(x[0])
    array = done(refused("conv1d", matrix, w), input=matrix)
    assert_same_bits(cupyconv.conv1d(array, w), expected[0])


def test_lists_beside_cupy_arrays() -> None:
    """They become arrays of the library that the others are of."""
    import cupy

    memory = np.ones((1, 1, 3))
    pointer = cupy.cuda.UnownedMemory(memory.ctypes.data, memory.nbytes, memory, device_id=0)
    x = cupy.ndarray(memory.shape, memory.dtype, memptr=cupy.cuda.MemoryPointer(pointer, 0))
    assert refused("conv1d", x, [[[1.0]]]) == "cupy.asarray(weight) makes it one"
    assert refused("conv1d", x, x, 2.0) == "cupy.full(channels, bias) is an array of it"


def test_masked_arrays() -> None:
    x, w = np.ma.masked_greater(values(1, 1, 5), 3), values(1, 1, 2)
    array = done(refused("conv1d", x, w), input=x, value=0.0)
    assert_same_bits(cupyconv.conv1d(array, w), cupyconv.conv1d(values(1, 1, 5) * ~x.mask, w))


def test_dask_arrays() -> None:
    x, w = values(1, 1, 5), values(1, 1, 2)
    lazy = da.from_array(x)
    for call in ((lazy, w), (x, da.from_array(w))):
        assert refused("conv1d", *call) == "the functions of cupyconv.dask take Dask arrays"
