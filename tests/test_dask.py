"""Dask arrays: a result equals the whole array's, whatever the chunks."""

from __future__ import annotations

import doctest
import inspect
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.core import slices_from_chunks
from dask.distributed import Client, LocalCluster, wait
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import cupyconv
import cupyconv.dask
from backends import CupyBackend, NumpyBackend
from benchmarks import cluster as benchmark
from bounds import assert_by_fft, assert_convolution, assert_same_bits
from cupyconv import _borders, _convolution, _transposed_convolution, _windows
from cupyconv._numpy_path import NumpyPath
from cupyconv._windows import Axis
from reference import Array
from strategies import (
    BFLOAT16,
    Case,
    Convolution,
    batch_norms,
    convolution,
    convolutions,
    group_norms,
    max_pools,
    rounded_pairs,
    twice,
)
from test_errors import ODD, right_call, shapes_of
from test_import import python

# A graph costs more than the call that it describes: fewer examples than elsewhere.
quick = settings(max_examples=max(settings().max_examples // 5, 10))

NUMPY, CUPY = NumpyBackend(), CupyBackend()
on_numpy_and_cupy = pytest.mark.parametrize(
    "backend",
    [pytest.param(NUMPY, id="numpy"), pytest.param(CUPY, id="cupy", marks=pytest.mark.gpu)],
)


MODES = ("reflect", "symmetric", "edge", "wrap")

# Chunks --------------------------------------------------------------------------------------


@st.composite
def divisions(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """Chunks of an axis: single elements, all in one, chunks of no element among them."""
    if draw(st.integers(0, 3)) == 3:
        return (1,) * size or (0,)
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=4)))
    return tuple(stop - start for start, stop in pairwise([0, *cuts, size]))


def in_chunks(a: Array, chunks: Any, backend: NumpyBackend = NUMPY) -> da.Array:
    """A Dask array whose chunks are arrays of the backend."""
    x = da.from_array(a, chunks=chunks)
    if backend is NUMPY:
        return x
    return x.map_blocks(backend.asarray, dtype=x.dtype, meta=backend.asarray(np.empty(0, x.dtype)))


def channel_axis(case: Convolution) -> int:
    return case["input"].ndim - case["weight"].ndim + 1


@st.composite
def divided(draw: st.DrawFn, cases: Any, *, batch_alone: bool = False) -> tuple[Any, Any]:
    """A call and chunks for its input: channels are in one, for `batch_alone` space, too."""
    case = draw(cases)
    shape = case["input"].shape
    channels = channel_axis(case) if isinstance(case, Convolution) else 1
    whole = range(channels, len(shape)) if batch_alone else [channels]
    chunks = [(n,) if i in whole else draw(divisions(n)) for i, n in enumerate(shape)]
    return case, tuple(chunks)


@st.composite
def bordered(draw: st.DrawFn, cases: Any) -> Any:
    """A call with a padding mode; its padding may be longer than the array."""
    case = draw(cases)
    assume(all(axis.large for axis in case.axes))
    mode = draw(st.sampled_from(MODES))
    return replace(case, options={**case.options, "padding_mode": mode})


def build(case: Case, chunks: Any, backend: NumpyBackend = NUMPY) -> da.Array:
    """The call on a Dask array."""
    arrays = {**case.map(backend.asarray).arrays, "input": None}
    arrays["input"] = in_chunks(case["input"], chunks, backend)
    return getattr(cupyconv.dask, case.function)(**arrays, **case.options)


def gathered(y: da.Array, backend: NumpyBackend = NUMPY, scheduler: Any = None) -> Array:
    """The result as one NumPy array; each block is what the Dask array announced.

    NumPy arrays are computed on threads, where no scheduler is given.
    """
    scheduler = scheduler or ("threads" if backend is NUMPY else "sync")
    blocks = dask.compute(*y.to_delayed().ravel(), scheduler=scheduler)
    result = np.empty(y.shape, y.dtype)
    for block, place in zip(blocks, slices_from_chunks(y.chunks), strict=True):
        assert type(block) is type(y._meta)
        assert block.dtype == y.dtype
        assert block.shape == result[place].shape
        result[place] = backend.to_numpy(block)
    return result


def compute(case: Case, chunks: Any, backend: NumpyBackend = NUMPY, scheduler: Any = None) -> Array:
    return gathered(build(case, chunks, backend), backend, scheduler)


# Index arithmetic ----------------------------------------------------------------------------


@st.composite
def stretches(draw: st.DrawFn) -> tuple[bool, int, int, Axis, int, int]:
    """A direction, kernel and dilation, an axis, and a stretch of its outputs."""
    transposed = draw(st.booleans())
    size, kernel, stride, dilation = draw(
        st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
    )
    pads = draw(st.tuples(st.integers(0, 12), st.integers(0, 12)))
    longer = draw(st.integers(0, max(stride, dilation) - 1)) if transposed else 0
    extent = dilation * (kernel - 1) + 1
    if transposed:
        outputs = (size - 1) * stride + extent + longer - sum(pads)
    else:
        outputs = (size + sum(pads) - extent) // stride + 1
    assume(outputs > 0)
    start, stop = sorted(draw(st.lists(st.integers(0, outputs), min_size=2, max_size=2)))
    assume(start < stop)
    axis = Axis(size, outputs, extent, stride, pads[0])
    return transposed, kernel, dilation, axis, start, stop


# Outputs after the last one that the inputs reach.
@example((True, 1, 4, Axis(size_in=4, size_out=7, extent=1, stride=1, pad=0), 5, 7))
@given(stretches())
def test_a_window_gives_the_products_of_its_stretch(drawn: Any) -> None:
    """Exactly those, by inputs that exist, and with arguments that a call accepts."""
    transposed, kernel, dilation, axis, start, stop = drawn
    find = _windows.conv_transpose_window if transposed else _windows.conv_window
    window = find(axis, start, stop)
    size, outputs = window.stop - window.start, stop - start
    assert 0 <= window.start <= window.stop <= axis.size_in
    assert window.before >= 0 and window.after >= 0
    pads = window.before + window.after
    if transposed:
        assert 0 <= window.output_padding < max(axis.stride, dilation)
        assert (size - 1) * axis.stride + axis.extent + window.output_padding - pads == outputs
    else:
        assert (size + pads - axis.extent) // axis.stride + 1 == outputs

    def products(inputs: range, pad: int, wanted: range) -> set[tuple[int, int, int]]:
        """Input, tap and output of each product."""
        if transposed:
            found = {(i, k, i * axis.stride - pad + k * dilation) for i in inputs for k in taps}
            return {(i, k, o) for i, k, o in found if o in wanted}
        found = {(o * axis.stride - pad + k * dilation, k, o) for o in wanted for k in taps}
        return {(i, k, o) for i, k, o in found if i in inputs}

    taps = range(kernel)
    expected = products(range(axis.size_in), axis.pad, range(start, stop))
    own = products(range(size), window.before, range(outputs))
    assert {(i + window.start, k, o + start) for i, k, o in own} == expected


@quick
@given(stretches())
def test_the_window_of_a_whole_axis_is_the_axis(drawn: Any) -> None:
    transposed, *_, axis, _, _ = drawn
    find = _windows.conv_transpose_window if transposed else _windows.conv_window
    window = find(axis, 0, axis.size_out)
    assert (window.start, window.stop) == (0, axis.size_in)
    assert window.before == axis.pad or axis.size_in == 0


@quick
@given(stretches(), st.data())
def test_output_chunks_follow_the_input_chunks(drawn: Any, data: st.DataObject) -> None:
    transposed, *_, axis, _, _ = drawn
    chunks = data.draw(divisions(axis.size_in))
    divide = _windows.conv_transpose_borders if transposed else _windows.conv_borders
    borders = divide(axis, chunks)
    owner = np.repeat(np.arange(len(chunks)), chunks)  # of each input
    lead = [o // axis.stride if transposed else o * axis.stride for o in range(axis.size_out)]
    owners = [owner[min(i, axis.size_in - 1)] if axis.size_in else 0 for i in lead]
    changes = [o for o in range(1, axis.size_out) if owners[o] != owners[o - 1]]
    assert borders == (0, *changes, axis.size_out)


@quick
@given(st.data())
def test_parts_cover_a_window_once(data: st.DataObject) -> None:
    chunks = data.draw(st.integers(0, 12).flatmap(divisions))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, sum(chunks))] * 2)))
    ends = np.cumsum(chunks).tolist()
    parts = _windows.parts(ends, start, stop)
    values = np.arange(sum(chunks))
    blocks = np.split(values, ends[:-1])
    window = np.full(stop - start, -1)
    for part in parts:
        assert (window[part.place] == -1).all()
        window[part.place] = blocks[part.chunk][part.inside]
        assert part.whole == (len(blocks[part.chunk][part.inside]) == chunks[part.chunk])
        assert len(parts) == 1 or window[part.place].size > 0
    assert (window == values[start:stop]).all()


@st.composite
def padded_windows(draw: st.DrawFn) -> tuple[int, int, int, str, int, int, tuple[int, ...]]:
    """An axis with its padding, a mode, a window, and chunks of what the window is read from."""
    size, before = draw(st.integers(1, 7)), draw(st.integers(0, 20))
    padded = draw(st.integers(1, before + size + 20))
    of_elements = draw(st.booleans())
    start, stop = sorted(draw(st.tuples(*[st.integers(0, size if of_elements else padded)] * 2)))
    chunks = draw(divisions(padded if of_elements else size))
    return size, before, padded, draw(st.sampled_from(MODES)), start, stop, chunks


def shown_elements(size: int, before: int, padded: int, mode: Any) -> Array:
    after = max(padded - before - size, 0)
    return np.pad(np.arange(size), (before, after), mode)[:padded]


@quick
@given(padded_windows())
def test_padded_parts_are_numpy_s_padding(drawn: Any) -> None:
    size, before, padded, mode, start, stop, chunks = drawn
    assume(sum(chunks) == size and stop <= padded)
    ends = np.cumsum(chunks).tolist()
    blocks = np.split(np.arange(size), ends[:-1])
    window = np.full(stop - start, -1)
    segments = _borders.segments(size, before, padded, mode)
    for part in _windows.padded_parts(segments, ends, start, stop):
        assert (window[part.place] == -1).all()
        window[part.place] = blocks[part.chunk][part.inside]
    assert (window == shown_elements(size, before, padded, mode)[start:stop]).all()


@quick
@given(padded_windows())
def test_folded_parts_land_where_the_padding_shows_them(drawn: Any) -> None:
    size, before, padded, mode, start, stop, chunks = drawn
    assume(sum(chunks) == padded and stop <= size)
    ends = np.cumsum(chunks).tolist()
    values = np.random.default_rng(0).integers(99, size=padded)
    expected = np.zeros(size, int)
    np.add.at(expected, shown_elements(size, before, padded, mode), values)
    blocks = np.split(values, ends[:-1])
    window = np.zeros(stop - start, int)
    segments = _borders.segments(size, before, padded, mode)
    for part in _windows.folded_parts(segments, ends, start, stop):
        values, place = blocks[part.chunk][part.inside], window[part.place]
        place += values if len(values) == len(place) else values.sum()
    assert (window == expected[start:stop]).all()


# Results -------------------------------------------------------------------------------------


def bits_are_equal(case: Convolution, chunks: Any) -> bool:
    """Whether NumPy's path gives the bits of the whole array.

    Integers have them in any chunks. How a float filter of one channel is divided follows from one
    sample alone, so chunks along the batch do not change it. Products of matrices may be summed in
    another order where the matrix has another size, and the parts of complex products be rounded.
    """
    channel = channel_axis(case)
    channels = case["input"].shape[channel] // case.groups
    whole = all(len(one) == 1 for one in chunks[channel:])
    return case.dtype.kind in "iu" or (whole and channels == 1 and case.dtype.kind != "c")


def check(backend: NumpyBackend, case: Convolution, chunks: Any) -> None:
    result = compute(case, chunks, backend)
    assert_convolution(result, case.defined, case.dtype, case.precision)
    if backend is NUMPY and bits_are_equal(case, chunks):
        assert_same_bits(result, backend.compute(case))


@on_numpy_and_cupy
@quick
@given(divided(convolutions()))
@example((convolution("depthwise_conv2d", (1, 0, 1), (1, 1, 1, 1), padding=1), ((1,), (0,), (1,))))
@example((convolution("depthwise_conv2d", (1, 1, 3, 2), (1, 1, 2, 1)), ((1,), (1,), (3,), (1, 1))))
def test_convolutions(backend: NumpyBackend, drawn: tuple[Convolution, Any]) -> None:
    check(backend, *drawn)


@on_numpy_and_cupy
@quick
@given(divided(st.one_of(convolutions(), bordered(convolutions())), batch_alone=True))
def test_chunks_of_the_batch_change_no_bit(
    backend: NumpyBackend, drawn: tuple[Convolution, Any]
) -> None:
    case, chunks = drawn
    assert_same_bits(compute(case, chunks, backend), backend.compute(case))


def check_borders(backend: NumpyBackend, case: Convolution, chunks: Any) -> None:
    """Sums of integers are those of the whole arrays, and chunks those without a padding mode."""
    y = build(case, chunks, backend)
    result, expected = gathered(y, backend), backend.compute(case)
    assert result.dtype == expected.dtype
    assert (result == expected).all()
    options = {name: value for name, value in case.options.items() if name != "padding_mode"}
    assert y.chunks == build(replace(case, options=options), chunks, backend).chunks


@on_numpy_and_cupy
@quick
@given(divided(bordered(convolutions(dtypes=rounded_pairs, styles=["whole"]))))
def test_borders_are_those_of_the_whole_array(
    backend: NumpyBackend, drawn: tuple[Convolution, Any]
) -> None:
    check_borders(backend, *drawn)


BORDERED = [
    # Padding of several periods, and an array of one position.
    (convolution("conv1d", (1, 2, 3), (3, 2, 4), bias=True, padding=((20, 11),)), (1, 2, 1)),
    (convolution("conv1d", (1, 1, 1), (1, 1, 2), padding=5), (1, 1, 1)),
    (convolution("conv_transpose1d", (1, 2, 16), (2, 3, 4), bias=True, padding=((9, 7),)),
     (1, 2, 1)),
    (convolution("conv_transpose1d", (1, 1, 9), (1, 1, 1), padding=4), (1, 1, 2)),
    # Outputs that no position of the padded result reaches, in chunks of their own.
    (convolution("conv_transpose1d", (1, 1, 3), (1, 1, 1), bias=True, stride=2, dilation=9,
                 padding=((1, 0),), output_padding=8), (1, 1, 1)),
    # One axis is divided, and one not.
    (convolution("conv2d", (1, 2, 9, 8), (3, 2, 3, 5), "float16", padding=2), (1, 2, 4, 8)),
    (convolution("depthwise_conv2d", (1, 2, 9, 8), (2, 1, 3, 5), padding=2), (1, 2, 9, 3)),
    (convolution("conv_transpose2d", (1, 2, 9, 8), (2, 3, 3, 5), "float16", bias=True, padding=2,
                 stride=2), (1, 2, 4, 8)),
]  # fmt: skip


@on_numpy_and_cupy
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("case", "chunks"), BORDERED, ids=lambda value: str(value))
def test_examples_of_borders(
    backend: NumpyBackend, case: Convolution, chunks: Any, mode: str
) -> None:
    rng = np.random.default_rng(0)
    case = case.map(lambda a: rng.integers(-8, 9, a.shape).astype(a.dtype))
    check_borders(backend, replace(case, options={**case.options, "padding_mode": mode}), chunks)


@pytest.mark.parametrize("mode", MODES)
def test_borders_are_numpy_s(mode: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 9, (2, 1, 7, 6)), rng.integers(-9, 9, (2, 1, 3, 4))
    pads = ((4, 9), (2, 1))
    wide = np.pad(x, ((0, 0), (0, 0), *pads), mode)
    y = cupyconv.dask.conv2d(in_chunks(x, (1, 1, 3, 2)), w, padding=pads, padding_mode=mode)
    assert_same_bits(gathered(y), cupyconv.conv2d(wide, w))


@on_numpy_and_cupy
def test_a_folded_sum_of_16_bits_is_rounded_once(backend: NumpyBackend) -> None:
    """Its bias is added before that, though it alone would be lost."""
    x, w = np.ones((1, 1, 2052), np.float16), backend.asarray(np.ones((1, 1, 1), np.float16))
    lazy = in_chunks(x, (1, 1, 2), backend)
    options: dict[str, Any] = {"padding": ((2048, 0),), "padding_mode": "edge"}
    y = cupyconv.dask.conv_transpose1d(lazy, w, w[0, 0], **options)
    assert y.chunks[2] == (2, 2)
    assert_same_bits(gathered(y, backend), np.array([[[2050, 2, 2, 2]]], np.float16))
    expected = cupyconv.conv_transpose1d(backend.asarray(x), w, w[0, 0], **options)
    assert_same_bits(gathered(y, backend), backend.to_numpy(expected))


# What is easy to get wrong; each in chunks of one element as well.
EXAMPLES = [
    # Outputs that no input reaches, in chunks of their own and at the end.
    (convolution("conv_transpose1d", (1, 2, 4), (2, 3, 2), bias=True, stride=7),
     ((1,), (2,), (1, 3))),
    (convolution("conv_transpose1d", (1, 2, 4), (2, 3, 1), bias=True, stride=3, dilation=9,
                 output_padding=8), ((1,), (2,), (3, 1))),
    # Windows that lie in the padding altogether.
    (convolution("conv1d", (2, 1, 5), (2, 1, 2), bias=True, padding=((6, 7),)),
     ((1, 1), (1,), (2, 3))),
    # Chunk borders that are no multiples of the stride, a halo of several chunks, empty chunks.
    (convolution("conv1d", (1, 2, 20), (3, 2, 4), stride=3, dilation=4, padding=5),
     ((1,), (2,), (1, 0, 2, 7, 1, 1, 8, 0))),
    (convolution("conv_transpose1d", (1, 2, 9), (2, 3, 5), bias=True, stride=3, dilation=4,
                 padding=((7, 9),), output_padding=2), ((1,), (2,), (0, 2, 1, 4, 0, 2))),
    # Padding that cuts away what whole inputs reach.
    (convolution("conv_transpose1d", (1, 1, 9), (1, 1, 2), stride=2, padding=((7, 6),)),
     ((1,), (1,), (2, 2, 5))),
    # Padding is absence.
    (convolution("conv2d", (1, 1, 4, 4), (1, 1, 3, 3), padding=1).with_arrays(
        weight=np.full((1, 1, 3, 3), np.inf, "float32")), ((1,), (1,), (2, 2), (2, 2))),
    (convolution("conv2d", (0, 2, 4, 4), (2, 2, 3, 3)), ((0,), (2,), (2, 2), (2, 2))),
    (convolution("conv3d", (2, 3, 5, 6, 7), (4, 3, 3, 2, 3), bias=True, padding="same",
                 stride=(1, 2, 3)), ((1, 1), (3,), (2, 3), (1, 5), (3, 1, 3))),
    (convolution("conv_transpose3d", (2, 4, 3, 3, 4), (4, 3, 3, 2, 3), padding="same",
                 stride=(1, 2, 4)), ((2,), (4,), (2, 1), (1, 2), (1, 2, 1))),
]  # fmt: skip


@on_numpy_and_cupy
@pytest.mark.parametrize(("case", "chunks"), EXAMPLES, ids=lambda value: str(value))
def test_examples(backend: NumpyBackend, case: Convolution, chunks: Any) -> None:
    check(backend, case, chunks)
    single = [(1,) * n or (0,) for n in case["input"].shape]
    single[1] = case["input"].shape[1:2]
    check(backend, case, tuple(single))


@on_numpy_and_cupy
@quick
@given(divided(max_pools()))
def test_max_pools(backend: NumpyBackend, drawn: tuple[Case, Any]) -> None:
    case, chunks = drawn
    assert_same_bits(compute(case, chunks, backend), backend.compute(case))


@on_numpy_and_cupy
@quick
@given(divided(batch_norms(given=True)))
def test_batch_norms(backend: NumpyBackend, drawn: tuple[Case, Any]) -> None:
    case, chunks = drawn
    assert_same_bits(compute(case, chunks, backend), backend.compute(case))


@on_numpy_and_cupy
@quick
@given(divided(group_norms(), batch_alone=True))
def test_group_norms(backend: NumpyBackend, drawn: tuple[Case, Any]) -> None:
    case, chunks = drawn
    assert_same_bits(compute(case, chunks, backend), backend.compute(case))


def test_a_chain_of_calls() -> None:
    """Chunks of a result are chunks for the next call."""
    rng = np.random.default_rng()
    x = rng.integers(-9, 9, (2, 3, 23, 17))
    w = rng.integers(-9, 9, (4, 3, 3, 5))

    def chain(module: Any, x: Any) -> Any:
        y = module.conv2d(x, w, stride=2, padding=1)
        y = module.max_pool2d(y, 3, stride=2, padding=1)
        return module.conv_transpose2d(y, w, stride=3, output_padding=(1, 2))

    y = chain(cupyconv.dask, in_chunks(x, (1, -1, 5, 4)))
    assert_same_bits(gathered(y), chain(cupyconv, x))


# Fourier transforms --------------------------------------------------------------------------

FLOATS = twice(["float16", "float32", "float64", "complex64", "complex128", BFLOAT16])


def wide(a: Array) -> Array:
    """An array whose sums of small integers are exact."""
    return a.astype(complex if a.dtype.kind == "c" else float)


@on_numpy_and_cupy
@quick
@given(
    drawn=divided(
        st.one_of(
            convolutions(dtypes=FLOATS, styles=["whole"]),
            bordered(convolutions(dtypes=FLOATS, styles=["whole"])),
        )
    )
)
def test_transforms(backend: NumpyBackend, drawn: tuple[Convolution, Any]) -> None:
    case, chunks = drawn
    assume(case["weight"].ndim <= 5)
    result = compute(replace(case, options={**case.options, "method": "fft"}), chunks, backend)
    assert_by_fft(result, NUMPY.compute(case.map(wide)), [*case.arrays.values()], case.dtype)


def module_of(function: str) -> Any:
    """The module from which Dask's functions take a function on whole arrays."""
    return _transposed_convolution if "transpose" in function else _convolution


def settled(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, gain: float, build: Any
) -> tuple[list[str], list[Any]]:
    """The methods of all blocks, and the geometries that the model is asked about meanwhile."""
    methods: list[str] = []
    asked: list[Any] = []

    def spy(*arrays: Array, method: str, **options: Any) -> Array:
        methods.append(method)
        return real(*arrays, method=method, **options)

    def model(_: Any, geometry: Any, dtype: Any, precision: str, gradient: bool) -> float:
        asked.append((tuple(axis.size_in for axis in geometry.axes), gradient))
        return gain

    real = getattr(module, name)
    spy.__name__ = name
    monkeypatch.setattr(module, name, spy)
    monkeypatch.setattr(NumpyPath, "gain_by_fft", model)
    build().compute(scheduler="sync")
    return methods, asked


@pytest.mark.parametrize(("gain", "taken"), [(1.19, "direct"), (1.2, "fft")])
@pytest.mark.parametrize("function", ["conv1d", "conv_transpose1d"])
def test_the_whole_array_settles_the_method(
    monkeypatch: pytest.MonkeyPatch, function: str, gain: float, taken: str
) -> None:
    x = da.ones((1, 1, 8), chunks=(1, 1, 3), dtype=np.float32)

    def build() -> da.Array:
        w = np.ones((1, 1, 2), np.float32)
        return getattr(cupyconv.dask, function)(x, w, method="auto")

    methods, asked = settled(monkeypatch, module_of(function), function, gain, build)
    assert methods == [taken] * 3
    assert asked == [((8,), False)]


# Laziness ------------------------------------------------------------------------------------


def untouchable(shape: tuple[int, ...], chunks: Any) -> da.Array:
    def refuse(block: Array) -> Array:
        raise RuntimeError("computed")

    return da.ones(shape, chunks=chunks).map_blocks(refuse, dtype=float, meta=np.empty(0))


def test_nothing_is_computed_before_the_result_is() -> None:
    x, w, b = untouchable((2, 4, 9, 9), (1, 4, 3, 3)), da.ones((4, 2, 3, 3)), da.ones(4)
    refused = untouchable((4, 2, 3, 3), -1)
    c = untouchable((4,), -1)
    results = [
        cupyconv.dask.conv2d(x, w, b, padding=1, groups=2),
        cupyconv.dask.conv2d(da.ones_like(x), refused, b, groups=2),
        cupyconv.dask.conv_transpose2d(x, w, stride=2),
        cupyconv.dask.conv2d(x, w, padding=5, groups=2, padding_mode="wrap"),
        cupyconv.dask.conv_transpose2d(x, w, padding=1, padding_mode="reflect"),
        cupyconv.dask.depthwise_conv2d(x, w[:, :1], c),
        cupyconv.dask.max_pool2d(x, 2),
        cupyconv.dask.batch_norm(x, c, c),
        cupyconv.dask.group_norm(x.rechunk((1, 4, 9, 9)), 2, c),
    ]
    for result in results:
        assert not any(math.isnan(size) for along in result.chunks for size in along)
        with pytest.raises(RuntimeError, match="computed"):
            result.compute(scheduler="sync")


def test_a_block_reads_its_neighbours_alone() -> None:
    touched: set[tuple[int, ...]] = set()

    def touch(block: Array, block_id: tuple[int, ...]) -> Array:
        touched.add(block_id)
        return block

    x = da.ones((3, 1, 40), chunks=(1, 1, 8)).map_blocks(touch, dtype=float, meta=np.empty(0))
    y = cupyconv.dask.conv1d(x, np.ones((1, 1, 3)), padding=1)
    y.blocks[1, 0, 2].compute(scheduler="sync")
    assert touched == {(1, 0, 1), (1, 0, 2), (1, 0, 3)}


def test_neighbours_exchange_their_borders_alone() -> None:
    """What is cut out of chunks is the halo: of a volume in cubes its faces, edges and corners."""
    x = da.ones((1, 1, 30, 30, 30), chunks=(1, 1, 10, 10, 10))
    y = cupyconv.dask.conv3d(x, np.ones((1, 1, 3, 5, 1)), padding=(1, 2, 0))
    cut = [key for key in dict(y.dask) if "halo" in key[0]]
    parts = dask.get(y.dask, cut)
    assert sum(part.size for part in parts) == 30 * (30 + 4) * (30 + 8) - 30**3
    assert all(part.base is None for part in parts), "a part keeps its chunk alive"


@pytest.mark.parametrize("mode", MODES)
def test_blocks_exchange_the_borders_of_divided_axes_alone(mode: str) -> None:
    """Few parts: the axis that is not divided is continued by the function of a block."""
    x = da.ones((1, 1, 40, 20), chunks=(1, 1, 10, 20))

    def cut(function: str) -> list[tuple[int, ...]]:
        options: dict[str, Any] = {"padding": (1, 2), "padding_mode": mode}
        y = getattr(cupyconv.dask, function)(x, np.ones((1, 1, 3, 5)), **options)
        keys = [key for key in dict(y.dask) if key[0].startswith(f"{function}-halo")]
        return [part.shape[2:] for part in dask.get(y.dask, keys)]

    assert cut("conv2d") == [(1, 20)] * (6 + 2)
    # Sums of other blocks land in a block where the padding shows what lies at the other end.
    expected = [(1, 2), (1, 20), (1, 2)] * 2 if mode == "wrap" else []
    assert cut("conv_transpose2d") == expected


@pytest.mark.parametrize("chunks", [-1, 1, (2, 1, 2, 3)])
def test_a_weight_may_be_a_dask_array(chunks: Any) -> None:
    case = convolution("conv2d", (2, 2, 9, 9), (4, 2, 3, 3), "int32", bias=True)
    weight, bias = da.from_array(case["weight"], chunks=chunks), da.from_array(case["bias"])
    x = in_chunks(case["input"], (1, 2, 4, 4))
    y = cupyconv.dask.conv2d(x, weight, bias.rechunk(1))
    assert_same_bits(gathered(y), NUMPY.compute(case))


def test_names_follow_from_the_arguments() -> None:
    def call(scale: float = 1, function: str = "conv2d", **options: Any) -> str:
        x = da.ones((1, 2, 9, 9), chunks=(1, 2, 4, 4))
        options = {"precision": "float32", **options}
        weight = np.full((2, 2, 3, 3), scale)
        return getattr(cupyconv.dask, function)(x, weight, **options).name

    assert call() == call()
    others = [
        call(2.0), call(bias=np.ones(2)), call(padding=1), call(padding=((1, 0), (0, 1))),
        call(padding=((0, 1), (1, 0))), call(dilation=2), call(precision="tf32"),
        call(method="fft"),
        call(function="conv"), call(function="conv_transpose2d", stride=2),
        call(function="conv_transpose2d", stride=2, output_padding=1),
        call(function="conv_transpose2d", stride=2, output_size=(19, 20)),
        *(call(padding=1, padding_mode=mode) for mode in MODES),
        *(call(function="conv_transpose2d", padding=1, padding_mode=mode) for mode in MODES),
        call(function="conv_transpose2d", padding=1, padding_mode="wrap", bias=np.ones(2)),
        call(function="conv_transpose2d", padding=1, padding_mode="wrap", method="fft"),
    ]  # fmt: skip
    assert len({call(), *others}) == len(others) + 1


# Options that change later -------------------------------------------------------------------


class Changing:
    """An integer of the caller's, which may be another one later."""

    def __init__(self, value: int = 2) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def change(value: Any) -> None:
    """Change a value in place, and what is in it."""
    if isinstance(value, Changing):
        value.value -= 1
        return
    for i, item in enumerate(value):
        if isinstance(item, (list, np.ndarray, Changing)):
            change(item)
        else:
            value[i] = item + 1


OPTIONS = [
    (function, option)
    for function in cupyconv.dask.__all__
    for option in inspect.signature(getattr(cupyconv.dask, function)).parameters
    if option not in {"input", "weight", "bias", "mean", "var"}
    # Numbers and words never change.
    and option not in {"eps", "precision", "method", "padding_mode", "ceil_mode"}
]


def changeable(option: str, rank: int, pairs: bool) -> Iterator[Any]:
    """Values of an option that can be changed in place."""
    if option in ("groups", "num_groups"):
        yield Changing()
        return
    values = {"stride": [2] * rank, "kernel_size": [2] * rank, "dilation": [2] * rank}
    values["output_size"] = [28] * rank
    value: list[Any] = values.get(option, [1] * rank)
    yield from (value, np.array(value), [Changing(max(item, 2)) for item in value])
    if pairs:
        yield [[1, 0] for _ in range(rank)]
        yield np.array([[1, 0]] * rank)


def test_options_are_those_of_the_call() -> None:
    """A graph holds nothing of the caller's that may be another value when it is computed."""
    assert {option for _, option in OPTIONS} == {
        *("stride", "padding", "output_padding", "dilation", "groups", "num_groups", "kernel_size"),
        "output_size",
    }
    for function, option in OPTIONS:
        rank = next((int(c) for c in function if c.isdigit()), 2)
        channels = 1 if "depthwise" in function else 4
        x = np.random.default_rng(0).integers(9, size=(2, channels, *(9,) * rank)).astype(float)
        arguments: dict[str, Any] = {}
        if "conv" in function:
            arguments["weight"] = np.ones((channels, channels, *(3,) * rank))
            if option == "groups":
                arguments["weight"] = np.ones((4, 2, *(3,) * rank))
            if option in ("output_padding", "output_size"):
                arguments["stride"] = 3
        if function == "max_pool2d" and option != "kernel_size":
            arguments["kernel_size"] = 4
        pairs = option == "padding" and function != "max_pool2d"
        for value in changeable(option, rank, pairs):
            arguments[option] = value
            expected = getattr(cupyconv, function)(x, **arguments)
            chunks = (1, channels, *(9 if function == "group_norm" else 4,) * rank)
            y = getattr(cupyconv.dask, function)(da.from_array(x, chunks=chunks), **arguments)
            change(value)
            assert_same_bits(gathered(y), expected)


def test_a_weight_is_that_of_the_call() -> None:
    """An array is copied when it becomes a Dask array, as `dask.array.from_array` does it."""
    x, w = np.ones((1, 1, 8)), np.ones((1, 1, 3))
    y = cupyconv.dask.conv1d(da.from_array(x, chunks=(1, 1, 4)), w, b := np.zeros(1))
    w += 1
    b += 1
    assert_same_bits(gathered(y), np.full((1, 1, 6), 3.0))


# The precision of a block ------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [None, "float32", "tf32"])
@pytest.mark.parametrize("around", ["float32", "tf32"])
@pytest.mark.parametrize("function", ["conv1d", "conv_transpose1d"])
def test_the_precision_is_that_of_the_call(
    monkeypatch: pytest.MonkeyPatch, function: str, around: str, argument: str | None
) -> None:
    seen = []

    def spy(*arrays: Array, precision: str | None = None, **options: Any) -> Array:
        seen.append(precision)
        return real(*arrays, **options)

    module = module_of(function)
    real = getattr(module, function)
    spy.__name__ = function
    monkeypatch.setattr(module, function, spy)
    x = da.ones((1, 1, 8), chunks=4, dtype=np.float32)
    with cupyconv.precision(around):
        y = getattr(cupyconv.dask, function)(x, np.ones((1, 1, 1), np.float32), precision=argument)
    with cupyconv.precision("float32" if around == "tf32" else "tf32"):
        y.compute(scheduler="sync")
    assert seen == [argument or around] * 2


# Errors --------------------------------------------------------------------------------------

WRONG = [
    ("conv2d", (1, 2, 5, 5), (3, 2, 3, 3), {"stride": 0}),
    ("conv2d", (1, 2, 5, 5), (3, 2, 3, 3), {"padding": "full"}),
    ("conv2d", (1, 2, 5, 5), (3, 1, 3, 3), {}),
    ("conv2d", (1, 2, 5, 5), (3, 2, 7, 3), {}),
    ("conv2d", (2, 5), (3, 2, 3, 3), {}),
    ("conv2d", (1, 2, 5, 5), (3, 2, 3, 3), {"precision": "float64"}),
    ("conv2d", (1, 2, 5, 5), (3, 2, 3, 3), {"method": "fast"}),
    ("conv_transpose2d", (1, 2, 5, 5), (2, 3, 3, 3), {"method": None}),
    ("conv", (1, 2, 5, 5, 5, 5), (3, 2, 3, 3, 3, 3), {"method": "fft"}),
    ("conv2d", (1, 2, 5, 5), (3, 2, 3, 3), {"padding": 1, "padding_mode": "circular"}),
    ("conv2d", (1, 2, 0, 5), (3, 2, 3, 3), {"padding": 2, "padding_mode": "edge"}),
    ("conv_transpose2d", (1, 2, 5, 5), (2, 3, 3, 3), {"stride": 2, "output_padding": (2, 0)}),
    ("conv_transpose2d", (1, 2, 5, 5), (2, 3, 3, 3), {"padding": 5}),
    ("conv_transpose2d", (1, 2, 5, 5), (2, 3, 3, 3), {"stride": 2, "output_size": (12, 13)}),
    ("depthwise_conv2d", (1, 2, 5, 5), (3, 1, 3, 3), {}),
    ("group_norm", (1, 3, 5, 5), None, {"num_groups": 2}),
    ("group_norm", (1, 3, 5, 5), None, {"num_groups": 3, "eps": -1}),
    ("max_pool2d", (1, 3, 5, 5), None, {"kernel_size": 6}),
    ("max_pool2d", (5, 5), None, {"kernel_size": 2}),
]


@pytest.mark.parametrize(("function", "shape", "weight", "options"), WRONG)
def test_errors_are_those_of_whole_arrays(
    function: str, shape: Any, weight: Any, options: dict[str, Any]
) -> None:
    arrays = [] if weight is None else [np.ones(weight)]
    with pytest.raises((TypeError, ValueError)) as whole:
        getattr(cupyconv, function)(np.ones(shape), *arrays, **options)
    with pytest.raises(whole.type) as divided:
        getattr(cupyconv.dask, function)(da.ones(shape), *arrays, **options)
    assert str(divided.value) == str(whole.value)


@pytest.mark.parametrize("function", ["conv1d", "conv_transpose1d"])
def test_integers_have_no_fft(function: str) -> None:
    x, w = np.ones((1, 1, 5), int), np.ones((1, 1, 2), int)
    with pytest.raises(TypeError) as whole:
        getattr(cupyconv, function)(x, w, method="fft")
    with pytest.raises(TypeError) as divided:
        getattr(cupyconv.dask, function)(in_chunks(x, (1, 1, 2)), w, method="fft")
    assert str(divided.value) == str(whole.value)
    y = getattr(cupyconv.dask, function)(in_chunks(x, (1, 1, 2)), w, method="auto")
    assert_same_bits(gathered(y), getattr(cupyconv, function)(x, w))


@pytest.mark.parametrize("function", cupyconv.dask.__all__)
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_errors_of_odd_values_are_those_of_whole_arrays(function: str, value: Any) -> None:
    arguments = {name: a for name, a in right_call(function).items() if name != "out"}
    lazy = {**arguments, "input": da.from_array(arguments["input"])}
    for name in inspect.signature(getattr(cupyconv.dask, function)).parameters:
        if name not in shapes_of(function):
            with pytest.raises((TypeError, ValueError)) as whole:
                getattr(cupyconv, function)(**{**arguments, name: value})
            with pytest.raises(whole.type) as divided:
                getattr(cupyconv.dask, function)(**{**lazy, name: value})
            assert str(divided.value) == str(whole.value)


@pytest.mark.parametrize(
    "dtypes", [("bool", "float32", "float32"), ("int8", "int8", "float32")], ids=str
)
def test_errors_of_dtypes_are_those_of_whole_arrays(dtypes: Sequence[str]) -> None:
    x, w, b = (np.ones(s, d) for s, d in zip([(1, 2, 5), (3, 2, 3), 3], dtypes, strict=True))
    with pytest.raises(TypeError) as whole:
        cupyconv.conv1d(x, w, b)
    with pytest.raises(TypeError) as divided:
        cupyconv.dask.conv1d(da.from_array(x), w, da.from_array(b))
    assert str(divided.value) == str(whole.value)


@pytest.mark.parametrize("function", ["conv2d", "conv_transpose2d", "depthwise_conv2d"])
def test_channels_in_several_chunks(function: str) -> None:
    weight = np.ones((4, 1 if "depth" in function else 4, 3, 3))
    for x, axis in [
        (da.ones((1, 4, 5, 5), chunks=(1, 3, 5, 5)), 1),
        (da.ones((4, 5, 5), chunks=3), 0),
    ]:
        with pytest.raises(ValueError) as raised:
            getattr(cupyconv.dask, function)(x, weight)
        assert str(raised.value) == (
            f"{function}: input must have all channels in one chunk, got chunks (3, 1) along axis "
            f"{axis} of input of shape {x.shape}; input.rechunk({{{axis}: -1}}) joins them"
        )
        getattr(cupyconv.dask, function)(x.rechunk({axis: -1}), weight)


def test_norms_of_divided_channels_and_samples() -> None:
    x, c = da.ones((2, 4, 6), chunks=(1, 2, 6)), np.ones(4)
    with pytest.raises(ValueError, match="batch_norm: input must have all channels in one chunk"):
        cupyconv.dask.batch_norm(x, c, c)
    for chunks in [(1, 2, 6), (1, 4, 3)]:
        with pytest.raises(ValueError, match="group_norm: input must have each sample in one chun"):
            cupyconv.dask.group_norm(x.rechunk(chunks), 2)


def test_sizes_that_are_not_known() -> None:
    x = da.ones((6, 2, 5), chunks=(3, 2, 5))
    some = x[x[:, 0, 0] > 0]
    with pytest.raises(ValueError, match=r"conv1d: input must have chunks of known sizes, got inp"):
        cupyconv.dask.conv1d(some, np.ones((1, 2, 3)))
    assert cupyconv.dask.conv1d(some.compute_chunk_sizes(), np.ones((1, 2, 3))).shape == (6, 1, 3)


def test_arrays_of_another_kind() -> None:
    x, w = np.ones((1, 2, 5)), np.ones((1, 2, 3))
    with pytest.raises(TypeError, match="conv1d: input must be a Dask array, got ndarray"):
        cupyconv.dask.conv1d(x, w)
    with pytest.raises(TypeError, match="conv1d: weight must be a NumPy or CuPy array, got list"):
        cupyconv.dask.conv1d(da.from_array(x), w.tolist())
    masked = da.from_array(np.ma.ones((1, 2, 5)))
    with pytest.raises(TypeError, match="conv1d: input must be a NumPy or CuPy array, got Masked"):
        cupyconv.dask.conv1d(masked, w)


# The module ----------------------------------------------------------------------------------

WITHOUT_DASK = """
import sys
sys.modules["dask"] = None
import cupyconv
try:
    import cupyconv.dask
except ImportError as error:
    print(error)
"""


def test_import_of_cupyconv_loads_no_dask() -> None:
    assert python("import sys, cupyconv; print('dask' in sys.modules)") == "False"


def test_without_dask_the_error_names_the_extra() -> None:
    assert python(WITHOUT_DASK) == "cupyconv.dask needs Dask: pip install 'cupyconv[dask]'"


@pytest.mark.parametrize("name", cupyconv.dask.__all__)
def test_functions_are_those_of_whole_arrays(name: str) -> None:
    """The same arguments in the same order, but for `out`; batch statistics must be given."""
    whole = inspect.signature(getattr(cupyconv, name)).parameters
    divided = inspect.signature(getattr(cupyconv.dask, name)).parameters
    assert list(divided) == [argument for argument in whole if argument != "out"]
    for argument, parameter in divided.items():
        assert parameter.kind == whole[argument].kind
        if argument not in ("mean", "var"):
            assert parameter.default == whole[argument].default


def test_examples_of_the_module_run() -> None:
    for name in cupyconv.dask.__all__:
        (example,) = doctest.DocTestFinder().find(getattr(cupyconv.dask, name), name, globs={})
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
        assert result.failed == 0
        assert result.attempted > 3, name


# A cluster: two processes on this machine ----------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster) as one,
    ):
        yield one


# It is the thread of the cluster's client that uses `random`, while an example is drawn.
@pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")
@quick
@given(
    st.one_of(
        divided(convolutions()),
        divided(max_pools()),
        divided(batch_norms(given=True)),
        divided(group_norms(), batch_alone=True),
    )
)
def test_results_of_a_cluster(client: Client, drawn: tuple[Case, Any]) -> None:
    case, chunks = drawn
    result = compute(case, chunks, scheduler=client)
    if isinstance(case, Convolution):
        assert_convolution(result, case.defined, case.dtype, case.precision)
    else:
        assert_same_bits(result, NUMPY.compute(case))


def test_processes_of_a_cluster(client: Client) -> None:
    rng = np.random.default_rng()
    x, w = rng.integers(-9, 9, (2, 2, 14, 15, 16)), rng.integers(-9, 9, (3, 2, 3, 4, 5))
    y = in_chunks(x, (1, 2, 5, 8, 6))
    y = cupyconv.dask.conv3d(y, w, stride=(2, 1, 3), padding="same")
    z = cupyconv.dask.conv_transpose3d(y, w, stride=(2, 1, 3), padding=1)
    y, z = client.persist([y, z])
    wait([y, z])
    holders = {worker for where in client.who_has([y, z]).values() for worker in where}
    assert len(holders) == 2, "one worker did it all"
    expected = cupyconv.conv3d(x, w, stride=(2, 1, 3), padding="same")
    assert_same_bits(y.compute(), expected)
    expected = cupyconv.conv_transpose3d(expected, w, stride=(2, 1, 3), padding=1)
    assert_same_bits(z.compute(), expected)


JOB = benchmark.Job((30, 16, 14), slab=7, channels=2, kernel=4, limit=0, gpu=False, seed=3)


def test_the_benchmark_makes_neighbouring_slabs_on_one_worker(client: Client) -> None:
    workers = sorted(client.scheduler_info()["workers"])
    with dask.config.set({"optimization.fuse.active": False}):
        slabs = client.persist(benchmark.volume(JOB, workers, "test"))
        wait(slabs)
    holders = client.who_has(slabs)
    assert [holders[key] for key in sorted(holders)] == [(workers[0],)] * 3 + [(workers[1],)] * 2


def test_the_benchmark_compares_its_results(client: Client) -> None:
    x = benchmark.volume(JOB, sorted(client.scheduler_info()["workers"]), "test")
    y = benchmark.whole(JOB, x)
    assert benchmark.check(JOB, x, y) == 3 * 2 * 12**3
    with pytest.raises(SystemExit, match="the result is wrong"):
        benchmark.check(JOB, x, y + (da.arange(30, chunks=7) > 28)[:, None, None])


# What a worker in this process has made, by number, and reduced, None. Of functions of a module
# a worker has these themselves; a closure would be copied.
EVENTS: list[int | None] = []
make_slab, largest = benchmark.make_slab, benchmark.largest


def note_slab(job: benchmark.Job, number: int, *reduced: Array) -> Array:
    EVENTS.append(number)
    return make_slab(job, number, *reduced)


def note_largest(block: Array) -> Array:
    EVENTS.append(None)
    return largest(block)


def test_the_benchmark_makes_each_slab_once_and_few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(JOB, size=(60, 4, 4), slab=5)
    monkeypatch.setattr(benchmark, "make_slab", note_slab)
    monkeypatch.setattr(benchmark, "largest", note_largest)
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tcp"}
    with (
        dask.config.set({"optimization.fuse.active": False}),
        LocalCluster(1, processes=False, threads_per_worker=1, **here) as cluster,
        Client(cluster) as client,
    ):
        workers = list(client.scheduler_info()["workers"])
        benchmark.reduced(job, workers, benchmark.whole).compute()
    assert sorted(event for event in EVENTS if event is not None) == list(range(12))
    ahead = [len(EVENTS[:i]) - 2 * EVENTS[:i].count(None) for i in range(len(EVENTS) + 1)]
    assert max(ahead) <= benchmark.AHEAD + 1, EVENTS


def test_the_benchmark_runs(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(benchmark, "cluster", lambda job, count: nullcontext(client))
    small = "--cpu --workers 2 --size 30 16 14 --slab 7 --channels 2 --kernel 4 --repeats 1"
    benchmark.main([*small.split(), "--json", str(tmp_path / "cluster.json")])
    result = json.loads((tmp_path / "cluster.json").read_text())
    # Five slabs: at each of four borders, the two sides read three planes of each other.
    assert result["halo_read"] == 4 * 3 / 30
    assert result["command"].startswith(f"python -m benchmarks.cluster {small}")
    assert result["date"] and result["versions"]
    assert [run["speed_up"] for run in result["runs"]] == [1]
    assert "speed-up 1.00" in capsys.readouterr().out


def test_the_page_has_the_measured_figures() -> None:
    root = Path(__file__).parents[1]
    record = json.loads((root / "benchmarks/records/dask/h200.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "dask.rst").read_text(encoding="utf-8")
    for run in record["runs"]:
        whole, alone = (statistics.median(run[key]) for key in ("seconds", "seconds_without_halo"))
        figures = run["workers"], f"{whole:.2f}", f"{run['speed_up']:.2f}", f"{alone:.2f}"
        assert re.search(r" +".join(map(str, figures)), page)
