"""output_size: which sizes a transposed convolution may have, and that nothing else changes."""

from __future__ import annotations

import re
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cupyconv
import cupyconv.dask
from cupyconv import _calls, _geometry
from cupyconv._geometry import ConvGeometry
from strategies import inner

Options = dict[str, Any]


def output(size: int, kernel: int, options: Options) -> int | None:
    """The size that a convolution gives, or None where the kernel does not fit."""
    shapes = (1, 1, size), (1, 1, kernel), None
    try:
        return _geometry.conv("conv1d", *shapes, **options, groups=1, rank=1).out_shape[-1]
    except ValueError:
        return None


def transposed(size: int, kernel: int, options: Options, **more: Any) -> ConvGeometry:
    shapes = (1, 1, size), (1, 1, kernel), None
    options = {"output_padding": 0, "groups": 1, **options, **more}
    return _geometry.conv_transpose("conv_transpose1d", *shapes, **options, rank=1)


axes = st.fixed_dictionaries(
    {
        "stride": st.integers(1, 6),
        "dilation": st.integers(1, 4),
        "padding": st.tuples(st.tuples(st.integers(0, 9), st.integers(0, 9)))
        | st.sampled_from(["same", "valid"]),
    }
)


@given(size=st.integers(1, 7), kernel=st.integers(1, 5), options=axes)
@example(size=1, kernel=3, options={"stride": 5, "dilation": 1, "padding": ((1, 1),)})
@example(size=2, kernel=2, options={"stride": 5, "dilation": 1, "padding": "same"})
def test_the_sizes_are_those_that_a_convolution_maps_to_the_input(
    size: int, kernel: int, options: Options
) -> None:
    """All of them, and no other one; by the sizes that `conv` gives for each."""
    longest = size * options["stride"] + options["dilation"] * kernel
    mapped = [n for n in range(1, longest + 2) if output(n, kernel, options) == size]
    for n in range(1, longest + 2):
        if n in mapped:
            geometry = transposed(size, kernel, options, output_size=n)
            assert geometry.out_shape == (1, 1, n)
            forward = _geometry.conv(
                "conv1d", (1, 1, n), (1, 1, kernel), None, **options, groups=1, rank=1
            )
            assert geometry.pads_before == forward.pads_before
            continue
        with pytest.raises(ValueError) as caught:
            transposed(size, kernel, options, output_size=n)
        text = str(caught.value)
        if mapped:
            assert f"from ({mapped[0]},) to ({mapped[-1]},)" in text and f"({n},)" in text
        else:
            assert "every spatial size of the output must be at least 1" in text


@given(size=st.integers(0, 7), kernel=st.integers(1, 5), options=axes, data=st.data())
def test_a_size_is_an_output_padding_below_the_stride(
    size: int, kernel: int, options: Options, data: st.DataObject
) -> None:
    """It leads to the same call, for an input of no length, too; "same" alone changes its pads."""
    if options["padding"] == "same":
        size = max(size, 1)
        n = size * options["stride"]  # the size that "same" has by itself
        assert transposed(size, kernel, options, output_size=n) == transposed(size, kernel, options)
        return
    extra = data.draw(st.integers(0, options["stride"] - 1))
    try:
        geometry = transposed(size, kernel, options, output_padding=extra)
    except ValueError:  # the output has no length
        return
    n = geometry.out_shape[-1]
    assert transposed(size, kernel, options, output_size=n) == geometry


Y, W = np.arange(9).reshape(1, 1, 3, 3), np.arange(1, 7).reshape(1, 1, 3, 2)
STRIDE = (2, 3)  # for sizes from (7, 8) to (8, 10)


@pytest.mark.parametrize("size", [8, np.int64(8), (8, 8), [8, 8], np.array([8, 8]), range(8, 10)])
def test_forms_of_a_size(size: Any) -> None:
    """A number is the size of every axis; the result is what output_padding gives."""
    sizes = (8, 8) if np.ndim(size) == 0 else tuple(size)
    padding = sizes[0] - 7, sizes[1] - 8
    expected = cupyconv.conv_transpose(Y, W, stride=STRIDE, output_padding=padding)
    assert expected.shape[2:] == sizes
    for function in (cupyconv.conv_transpose, cupyconv.conv_transpose2d):
        result = function(Y, W, stride=STRIDE, output_size=size)
        np.testing.assert_array_equal(result, expected)
        assert cupyconv.explain(
            function, Y, W, stride=STRIDE, output_size=size, target="sm_90a"
        ).out_shape == (1, 1, *sizes)


def test_every_axis_has_a_range_of_its_own() -> None:
    for size in ((6, 8), (9, 8), (7, 7), (7, 11), 7, 9):
        with pytest.raises(ValueError, match=re.escape("must be from (7, 8) to (8, 10)")):
            cupyconv.conv_transpose2d(Y, W, stride=STRIDE, output_size=size)


def test_a_prepared_call_has_its_size() -> None:
    """Calls that differ in the size alone do not meet in the cache."""
    _calls.kept.clear()
    for _ in range(2):
        for size in ((7, 8), (8, 10), None, (8, 8)):
            result = cupyconv.conv_transpose2d(Y, W, stride=STRIDE, output_size=size)
            assert result.shape[2:] == (size or (7, 8))
    assert len(_calls.kept) == 4


@pytest.mark.parametrize("padding", [0, ((2, 1), (0, 3)), "same"])
@pytest.mark.parametrize("size", [(10, 13), (11, 14), (12, 15)])
def test_dask_gives_the_transpose(padding: Any, size: tuple[int, int]) -> None:
    """Across chunks, with groups; the sums of integers are exact."""
    rng = np.random.default_rng(0)
    options = {"stride": 3, "padding": padding, "dilation": (1, 2), "groups": 2}
    x, w = rng.integers(-9, 10, (2, 4, *size)), rng.integers(-9, 10, (6, 2, 3, 2))
    forward = cupyconv.conv2d(x, w, **options)
    y = rng.integers(-9, 10, forward.shape)
    divided = da.from_array(y, chunks=(1, 6, 2, 3))
    backward = cupyconv.dask.conv_transpose2d(divided, w, output_size=size, **options)
    assert backward.shape == x.shape and len(backward.chunks[2]) > 1
    assert inner(forward, y) == inner(x, backward.compute(scheduler="sync"))
