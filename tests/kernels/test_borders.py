"""Borders: their copies and their transpose, tiles that fill their halo, and chunks of samples."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import ndimage

import cupyconv
import reference
import test_convolution
import test_grad
from backends import (
    EmulatorBackend,
    NumpyBackend,
    every_backend,
    every_matrix_kernel,
    without_bulk_copies,
)
from bounds import assert_same_bits
from cupyconv import _borders, _chunks, _paths
from cupyconv._arrays import partial_dtype
from cupyconv._borders import segments
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import borders, depthwise_tiles, members
from cupyconv._kernels.launches import Instance
from cupyconv._placement import Placement
from gradients import gradient
from planning import Steering, constant, conv, conv_transpose
from reference import Array, Axis, Shape
from running import Recorder, dtype_of, instances_of, on_the_emulator
from strategies import (
    COMPLEX,
    DTYPES,
    FLOATS,
    LAYOUTS,
    PADDING_MODES,
    Case,
    Convolution,
    convolution,
    lay_out,
    poison,
    values,
)
from subjects import Subject

BORDERS = instances_of("borders.cu")


def threads(_: Instance) -> int:
    return constant("borders.cu", "THREADS")


SUBJECTS = (Subject(borders, threads=threads, tested=BORDERS, limits={"THREADS": borders.THREADS}),)

every_padding_mode = pytest.mark.parametrize("mode", PADDING_MODES)


# Copies, and their transpose -----------------------------------------------------------------


def test_modes_are_those_of_the_kernels() -> None:
    """Their words in NumPy, and the order in which the kernels number them."""
    assert _borders.PADDING_MODES == PADDING_MODES
    assert [members.border_word(mode) for mode in (None, *PADDING_MODES)] == [0, 1, 2, 3, 4]


@given(
    size=st.integers(1, 9),
    ends=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    left_out=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    mode=st.sampled_from(PADDING_MODES),
)
def test_segments(size: int, ends: tuple[int, int], left_out: tuple[int, int], mode: str) -> None:
    """They show what numpy.pad shows, as far as the padded axis is taken."""
    shown = np.pad(np.arange(size), ends, mode)  # type: ignore[call-overload]
    shown = shown[: max(1, len(shown) - left_out[1])]
    start = min(left_out[0], len(shown) - 1)
    shown = shown[start:]
    found = segments(size, ends[0] - start, len(shown), mode)
    assert [one.start for one in found[1:]] == [one.stop for one in found[:-1]]
    elements = [one.first + one.step * np.arange(one.stop - one.start) for one in found]
    np.testing.assert_array_equal(np.concatenate(elements), shown)
    for one, expected in zip(found, elements, strict=True):
        np.testing.assert_array_equal(np.arange(size)[one.elements], np.unique(expected))


# By rank, the longest axis and the longest pad.
LONGEST = {1: (40, 90), 2: (7, 20), 3: (4, 9), 4: (3, 5)}


@st.composite
def bordered(draw: st.DrawFn, transposed: bool) -> tuple[ConvGeometry, list[Axis]]:
    """A geometry with one tap, whose strides may leave the last positions out, and its axes."""
    rank = draw(st.integers(1, 4))
    size, pad = LONGEST[rank]
    sizes = tuple(draw(st.integers(1, size)) for _ in range(rank))
    padding = tuple(draw(st.tuples(st.integers(0, pad), st.integers(0, pad))) for _ in range(rank))
    stride = tuple(draw(st.sampled_from([1, 1, 3])) for _ in range(rank))
    batch, channels = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    mode, ones = draw(st.sampled_from(PADDING_MODES)), (1,) * rank
    options: dict[str, Any] = {"stride": stride, "padding": padding, "padding_mode": mode}
    axes = reference.conv_axes(sizes, ones, stride, padding)
    if transposed:
        small = (batch, 2, *(axis.small for axis in axes))
        weight = (2, channels, *ones)
        geometry = conv_transpose(small, weight, **options, output_size=sizes)
    else:
        geometry = conv((batch, channels, *sizes), (2, channels, *ones), **options)
    assume(geometry.padding_mode)
    return geometry, axes


def read_part(geometry: ConvGeometry) -> tuple[slice, ...]:
    """The positions of the whole padded array that a convolution reads."""
    return (..., *(slice(0, size) for size in geometry.padded_sizes))  # type: ignore[return-value]


def whole(geometry: ConvGeometry, axes: list[Axis], wide: Array) -> Array:
    """The whole padded array: zeros where a convolution does not read."""
    result = np.zeros((*wide.shape[:2], *(axis.bordered.large for axis in axes)), wide.dtype)
    result[read_part(geometry)] = wide
    return result


def check_pad(backend: NumpyBackend, geometry: ConvGeometry, axes: list[Axis], data: Array) -> None:
    """The padded copy of an array, by NumPy's own words."""
    ends = [(0, 0), (0, 0), *((axis.before, axis.after) for axis in axes)]
    expected = np.pad(data, ends, str(geometry.padding_mode))  # type: ignore[call-overload]
    x, wide = backend.asarray(data), backend.poisoned(geometry.padded_shape, data.dtype)
    path_of(backend, x).prepare_pad(geometry.placement, x, 1)(x, wide)
    assert_same_bits(backend.to_numpy(wide), expected[read_part(geometry)])


def path_of(backend: NumpyBackend, array: Any) -> Any:
    return backend.path if isinstance(backend, EmulatorBackend) else _paths.path_of(array)


def check_fold(
    backend: NumpyBackend,
    geometry: ConvGeometry,
    axes: list[Axis],
    wide: Array,
    bias: Array | None,
    out: Array,
) -> None:
    """The array that a padded one is folded to, for sums that are exact."""
    expected = reference.fold(whole(geometry, axes, wide), axes, geometry.padding_mode)
    if bias is not None:
        expected = expected + bias.astype(wide.dtype).reshape(-1, *(1,) * len(axes))
    result = folded(backend, geometry, wide, bias, out)
    assert_same_bits(result + 0, expected.astype(out.dtype) + 0)  # zeros have no sign


def folded(
    backend: NumpyBackend, geometry: ConvGeometry, wide: Array, bias: Array | None, out: Array
) -> Array:
    on = backend.asarray
    arrays = on(wide), None if bias is None else on(bias), on(out)
    path_of(backend, arrays[2]).prepare_fold(geometry.placement, *arrays[1:], 1)(*arrays)
    return backend.to_numpy(arrays[2])


@every_backend
@given(
    drawn=bordered(transposed=False),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 2**32 - 1),
)
def test_pad(
    backend: NumpyBackend,
    drawn: tuple[ConvGeometry, list[Axis]],
    dtype: np.dtype[Any],
    layout: str,
    seed: int,
) -> None:
    """Of arrays of any strides, with pads of many periods, on axes of any number."""
    geometry, axes = drawn
    rng = np.random.default_rng(seed)
    data = values(rng, (*geometry.padded_shape[:2], *geometry.bordered_sizes), dtype)
    check_pad(backend, geometry, axes, lay_out(rng, data, layout))


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Components of up to three axes, whose elements lie apart if there is no mode."""
    rank, mode = draw(st.integers(1, 3)), draw(st.sampled_from([None, *PADDING_MODES]))
    columns = [
        (
            draw(st.integers(1, 9)),
            draw(st.integers(1, 40 if axis == rank - 1 else 11)),
            draw(st.integers(-5, 9)),
            1 if mode else draw(st.integers(1, 3)),
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 4)),
        )
        for axis in range(rank)
    ]
    lead = [(size, size, 0, 1, 1, 1, 1) for size in (draw(st.integers(1, 3)), 2)]
    return Placement(*zip(*lead, *columns, strict=True), mode=mode)  # type: ignore[misc, arg-type]


@every_backend
@given(
    placement=placements(),
    dtype=st.sampled_from(FLOATS + COMPLEX).filter(lambda dtype: dtype.itemsize >= 4),
)
def test_polyphase_components(
    backend: NumpyBackend, placement: Placement, dtype: np.dtype[Any]
) -> None:
    """Of each axis, the elements that lie at the places of all positions of all components."""
    check_components(backend, placement, values(np.random.default_rng(0), placement.sizes, dtype))


def check_components(backend: NumpyBackend, placement: Placement, data: Array) -> None:
    """The components of a placed array, element by element."""
    axes = zip(
        *(placement.sizes, placement.padded, placement.before, placement.steps),
        *(placement.strides, placement.components, placement.shifts),
        strict=True,
    )
    shown = []  # by component and position; a zero follows the elements
    for size, padded, before, step, stride, count, shift in axes:
        place = shift * np.arange(count)[:, None] + stride * np.arange(padded) - before
        if placement.mode:
            periods = np.pad(np.arange(size), 300, placement.mode)  # type: ignore[call-overload]
            shown.append(periods[place + 300])
        else:
            there = (place >= 0) & (place < size * step) & (place % step == 0)
            shown.append(np.where(there, place // step, size))
    elements = np.pad(data, [(0, 1)] * data.ndim)
    expected = [
        elements[np.ix_(*(axis[m] for axis, m in zip(shown, component, strict=True)))]
        for component in np.ndindex(*placement.components)
    ]
    first, *others = placement.padded
    wide = backend.poisoned((len(expected) * first, *others), data.dtype)
    x = backend.asarray(data)
    path_of(backend, x).prepare_pad(placement, x, 1)(x, wide)
    assert_same_bits(backend.to_numpy(wide), np.concatenate(expected))


@every_backend
@given(
    drawn=bordered(transposed=True),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from([layout for layout in LAYOUTS if layout != "broadcast"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_fold(
    backend: NumpyBackend,
    drawn: tuple[ConvGeometry, list[Axis]],
    dtype: np.dtype[Any],
    layout: str,
    seed: int,
) -> None:
    """To views of any strides; the same geometries."""
    geometry, axes = drawn
    rng = np.random.default_rng(seed)
    wide = values(rng, geometry.padded_shape, partial_dtype(dtype), "whole")
    bias = values(rng, geometry.out_shape[1:2], dtype, "whole") if rng.integers(2) else None
    out = lay_out(rng, poison(np.empty(geometry.out_shape, dtype)), layout)
    check_fold(backend, geometry, axes, wide, bias, out)


@pytest.mark.emulator
@given(drawn=bordered(transposed=True), dtype=st.sampled_from(DTYPES[:5]))
def test_a_sum_is_in_row_major_order(
    drawn: tuple[ConvGeometry, list[Axis]], dtype: np.dtype[Any]
) -> None:
    """Of all positions that show an element, one after the other; the bias comes last."""
    geometry, axes = drawn
    rng = np.random.default_rng(0)
    wide = values(rng, geometry.padded_shape, partial_dtype(dtype), "wide")
    bias = values(rng, geometry.out_shape[1:2], dtype)
    expected = np.zeros(geometry.out_shape, wide.dtype)
    parts = [
        reference.shown(axis, str(geometry.padding_mode))[:size]
        for axis, size in zip(axes, geometry.padded_sizes, strict=True)
    ]
    for position in np.ndindex(*geometry.padded_sizes):
        element = (..., *(int(part[i]) for part, i in zip(parts, position, strict=True)))
        expected[element] += wide[(..., *position)]
    expected = expected + bias.astype(wide.dtype).reshape(-1, *(1,) * len(axes))
    with np.errstate(over="ignore"):
        expected = expected.astype(dtype)
    out = poison(np.empty(geometry.out_shape, dtype))
    assert_same_bits(folded(EmulatorBackend(), geometry, wide, bias, out), expected)


@on_the_emulator("instance", cases=BORDERS)
@every_padding_mode
def test_borders_instance(instance: Instance, mode: str) -> None:
    """Several blocks, some with lines of many elements and some with lines of few."""
    element = dict(instance.defines)["ELEMENT"]
    dtype = dtype_of(element)
    rng = np.random.default_rng(0)
    for sizes, padding in (((9, 70), ((3, 5), (1, 90))), ((300, 3), ((7, 0), (2, 2)))):
        options = {"padding": padding, "padding_mode": mode}
        axes = reference.conv_axes(sizes, (1, 1), 1, padding)
        backend = Recorder()
        if instance.function == "components":
            columns = ((2, 2, 0, 1, 1, 1, 1), (9, 30, 1, 1, 2, 3, 1), (70, 90, 5, 1, 3, 2, 2))
            placement = Placement(*zip(*columns, strict=True), mode=mode)  # type: ignore[misc, arg-type]
            check_components(backend, placement, values(rng, placement.sizes, dtype))
        elif instance.function == "pad":
            geometry = conv((2, 5, *sizes), (1, 5, 1, 1), **options)
            check_pad(backend, geometry, axes, values(rng, (2, 5, *sizes), dtype))
        else:
            small = (2, 1, *(axis.small for axis in axes))
            geometry = conv_transpose(small, (1, 5, 1, 1), **options)
            wide = values(rng, geometry.padded_shape, partial_dtype(dtype), "whole")
            bias = values(rng, (5,), dtype, "whole")
            out = poison(np.empty(geometry.out_shape, dtype))
            check_fold(backend, geometry, axes, wide, bias, out)
        (launch,) = backend.launches
        assert launch.instance == instance
        assert launch.grid > 1


# Tiles that fill their halo ------------------------------------------------------------------


def padded_first(case: Convolution) -> Convolution:
    """The call without padding on what numpy.pad gives."""
    options = {**case.options, "padding": 0}
    mode = options.pop("padding_mode")
    return Convolution(
        case.function,
        {**case.arrays, "input": reference.pad(case["input"], case.axes, mode)},
        options,
    )


# Shapes of inputs and of kernels, and options, for what stages and sums up in different ways.
STAGED: dict[str, tuple[Shape, Shape, str, dict[str, Any]]] = {
    "elements": ((2, 3, 21, 37), (3, 3), "float32", {"padding": 1}),
    "chunks": ((2, 3, 21, 72), (3, 3), "float32", {"padding": ((1, 2), (0, 1))}),
    "double": ((1, 3, 21, 38), (3, 3), "float64", {"padding": 1}),
    "halves, one by one": ((1, 3, 21, 37), (3, 1), "float16", {"padding": (1, 5)}),
    "sections": ((2, 3, 602), (3,), "float32", {"padding": 9}),
    "three axes": ((1, 3, 5, 17, 18), (3, 3, 3), "float32", {"padding": (1, 2, 1)}),
    "steps": (
        (2, 3, 43, 70), (3, 3), "float32", {"stride": (2, 1), "dilation": (1, 3), "padding": 4},
    ),
    "channels": ((2, 70, 7, 7), (3, 3), "float32", {"padding": 1}),
    "pads of many periods": ((2, 3, 3, 5), (9, 11), "float32", {"padding": (13, 20)}),
    "taps beyond the array": ((1, 2, 1, 40), (5, 3), "float32", {"padding": (4, 3)}),
    # Where taps begin in a chunk decides on the order of a sum.
    "Tensor Cores": ((2, 3, 37, 72), (3, 5), "float16", {"padding": (1, 8)}),
    "Tensor Cores, odd lines": ((2, 3, 37, 61), (3, 5), "bfloat16", {"padding": (4, 16)}),
    "Tensor Cores, three axes": ((1, 3, 3, 18, 64), (3, 3, 3), "float16", {"padding": (1, 1, 8)}),
}  # fmt: skip


@pytest.fixture
def several_tiles(steer: Steering) -> None:
    """Of the layouts, plans choose among those with tiles at each border, if there are any."""

    def suitable(_: ConvGeometry, layout: depthwise_tiles.Layout) -> bool:
        long = [axis.positions(0) >= 16 for axis in layout.axes]
        return all(tiles > 1 for tiles, needed in zip(layout.tiles, long, strict=True) if needed)

    steer.choose_among(depthwise_tiles, suitable)


def staged_case(kind: str, mode: str, style: str = "signed") -> Convolution:
    shape, kernel, dtype, options = STAGED[kind]
    weight = (2 * shape[1], 1, *kernel)
    return convolution(
        "conv", shape, weight, dtype,
        bias=True, style=style, groups=shape[1], padding_mode=mode, **options,
    )  # fmt: skip


@on_the_emulator("kind", "mode", cases=[(kind, mode) for kind in STAGED for mode in PADDING_MODES])
@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "chunks"])
@pytest.mark.usefixtures("several_tiles")
def test_staged_borders(kind: str, mode: str, bulk: bool) -> None:
    """They are what a padded array has, bit by bit, from infinite numbers and weights, too."""
    case = staged_case(kind, mode)
    with nullcontext() if bulk else without_bulk_copies():
        backend = Recorder("depthwise")
        result = backend.compute(case)
        (plan,) = backend.plans
        assert tuple(backend.launches) == plan.launches
        assert plan.launch.instance.function == "depthwise_conv"
        assert ("Tensor" in kind) == (("MATRIX", "1") in plan.launch.instance.defines)
        assert_same_bits(result, backend.compute(padded_first(case)))
        assert backend.plans[1].launch.instance == plan.launch.instance
        if "Tensor" in kind:
            case = Convolution("conv", case.arrays, {**case.options, "padding": 3})
        test_convolution.check(backend, infinite(case))


def infinite(case: Convolution) -> Convolution:
    """The case with infinite and undefined weights, and with such inputs next to borders."""
    x, weight = case["input"].copy(), case["weight"].copy()
    weight[0, ..., 0], weight[1, ..., -1] = np.inf, np.nan
    x[-1, -1, ..., 0], x[-1, -1, ..., -1] = np.nan, -np.inf
    return case.with_arrays(input=x, weight=weight)


@every_backend
@every_padding_mode
@pytest.mark.parametrize("function", ["conv2d", "conv_transpose2d"])
def test_nothing_is_absent(backend: NumpyBackend, function: str, mode: str) -> None:
    """An infinite weight reaches all outputs, even those whose windows lie in the padding."""
    case = convolution(
        function, (1, 2, 6, 7), (2, 2, 3, 3), style="positive", padding=2, padding_mode=mode
    )
    weight = case["weight"].copy()
    weight[:, :, 0, 0] = np.inf
    result = backend.compute(case.with_arrays(weight=weight))
    test_convolution.check(backend, case.with_arrays(weight=weight))
    assert function != "conv2d" or np.isinf(result).all()


# Numbers, weights, and a number that is so large that the others, scaled with it, lose digits as
# float16 numbers. Their sum lies between two bfloat16 numbers.
NUMBERS = (
    7.82012939453125e-05, 1.4781951904296875e-04, 1.1873245239257812e-04, 1.3637542724609375e-04,
    1.1157989501953125e-04, -1.4781951904296875e-04, -4.024505615234375e-04, 2.613067626953125e-04,
    -1.2874603271484375e-04, 3.757476806640625e-04,
)  # fmt: skip
WEIGHTS = (
    -0.28515625, -0.0400390625, 29.375, 324, -10.3125, -0.77734375, 3.53125, 0.04443359375,
    -0.022705078125, 10.625,
)  # fmt: skip
LARGE = 19005440


@every_matrix_kernel
def test_bfloat16_numbers_beside_a_large_one(backend: NumpyBackend) -> None:
    case = convolution(
        "conv_transpose2d", (1, 10, 2, 8), (10, 3, 4, 1), "bfloat16", stride=(2, 1),
        padding=(1, 0), padding_mode="reflect",
    )  # fmt: skip
    x, weight = (np.zeros_like(case[name]) for name in ("input", "weight"))
    x[0, :, 0, 2], x[0, 8, 0, 6], weight[:, 1, 1, 0] = NUMBERS, LARGE, WEIGHTS
    test_convolution.check(backend, case.with_arrays(input=x, weight=weight))


# Chunks of samples ---------------------------------------------------------------------------

# Calls that one kernel is much faster for: the length of chunks is a part of a model, too.
CHUNKED: dict[str, Case] = {
    "conv": convolution("conv2d", (5, 9, 7, 8), (4, 9, 3, 3), bias=True, padding=2),
    "conv of two dtypes": convolution("conv1d", (5, 3, 31), (4, 3, 3), "float16", padding=2),
    "complex": convolution("conv1d", (5, 3, 30), (4, 3, 3), "complex64", bias=True, padding=2),
    "conv_transpose": convolution(
        "conv_transpose2d", (5, 4, 7, 8), (4, 3, 3, 3), "float16", bias=True, padding=1, stride=2
    ),
    "gradient": gradient("input", (5, 3, 7, 8), (4, 3, 3, 3), padding=2),
}
CHUNKED["conv of two dtypes"] = CHUNKED["conv of two dtypes"].with_arrays(
    weight=CHUNKED["conv of two dtypes"]["weight"].astype(np.float32)
)


def with_mode(case: Any, mode: str) -> Any:
    return type(case)(case.function, case.arrays, {**case.options, "padding_mode": mode})


@every_backend
@every_padding_mode
@pytest.mark.parametrize("kind", CHUNKED)
def test_chunks_of_samples_change_no_bit(
    backend: NumpyBackend, kind: str, mode: str, steer: Steering
) -> None:
    """Chunks of one sample, and of two and one."""
    case = with_mode(CHUNKED[kind], mode)
    check = test_grad.check if kind == "gradient" else test_convolution.check
    check(backend, case)
    expected = backend.compute(case)
    for most in (5, 3):
        steer.replace(_chunks, _CHUNK_BYTES=1, _MOST_CHUNKS=most)
        assert len(_chunks.chunks(5, 1)) == most
        assert_same_bits(backend.compute(case), expected)


@every_backend
@every_padding_mode
@pytest.mark.parametrize("dtype", ["int32", "float16", "complex64"])
@pytest.mark.parametrize("most", [5, 3, 2])
def test_weight_gradients_add_chunks(
    backend: NumpyBackend, dtype: str, most: int, mode: str, steer: Steering
) -> None:
    steer.replace(_chunks, _CHUNK_BYTES=1, _MOST_CHUNKS=most)
    case = gradient("weight", (5, 3, 7, 8), (4, 3, 3, 3), dtype, padding=2, padding_mode=mode)
    test_grad.check(backend, case)
    assert_same_bits(backend.compute(case), backend.compute(case))


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_120"])
@given(drawn=st.data())
def test_memory(target: str, drawn: st.DataObject) -> None:
    """One copy in float32, or 64 MB if that is more; packed weights and partial sums beside it.

    The gradient of a weight may cast a padded sample and the gradient of the output, and copy both
    of them in two parts or planes, in lines that are rounded up.
    """
    draw = drawn.draw
    size, batch = draw(st.integers(8, 600)), draw(st.sampled_from([1, 3, 64, 1000]))
    channels, rows = draw(st.sampled_from([1, 3, 32, 100])), draw(st.sampled_from([1, 3, 32, 100]))
    kernel, pad = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    function = draw(st.sampled_from(["conv2d", "conv_transpose2d", "weight", "input"]))
    options = {"padding": pad, "padding_mode": draw(st.sampled_from(PADDING_MODES))}
    explain = partial(
        cupyconv.explain, target=target, dtype=draw(st.sampled_from(["float32", "float16"]))
    )
    size = max(size, kernel, 2 * pad + 1)
    x, w = (batch, channels, size, size), (rows, channels, kernel, kernel)
    y = (batch, rows, *(size + 2 * pad - kernel + 1,) * 2)
    copied = (batch, channels, size + 2 * pad, size + 2 * pad)
    if function == "conv2d":
        found = explain(cupyconv.conv2d, x, w, **options)
    elif function == "conv_transpose2d":
        found = explain(cupyconv.conv_transpose2d, y, w, **options)
    elif function == "weight":
        found = explain(cupyconv.grad.conv2d_weight, x, w, y, **options)
    else:
        found = explain(cupyconv.grad.conv2d_input, x, w, y, **options)
    # Each chunk has one sample of 64 at least; float16 numbers are cast for sums of float32.
    sample = math.prod(copied[1:]) * (3 if function == "weight" else 1)
    sample += math.prod(y[1:]) * {"conv2d": 0, "weight": 3}.get(function, 1)
    weights = 4 * kernel**2 * -(-rows // 16) * 16 * -(-channels // 16) * 16
    assert found.workspace <= max(2**26, 4 * sample * -(-batch // 64)) + 2**25 + 2**22 + weights * 5


# SciPy's borders -----------------------------------------------------------------------------

SCIPY = {"reflect": "mirror", "symmetric": "reflect", "edge": "nearest", "wrap": "wrap"}


@every_padding_mode
@pytest.mark.parametrize("sizes", [((9, 12), (3, 5)), ((4, 6), (7, 5)), ((3, 2, 5), (5, 3, 3))])
def test_scipy(mode: str, sizes: tuple[Shape, Shape]) -> None:
    """A filter of an odd size, in SciPy's words, with borders longer than the array."""
    shape, kernel = sizes
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape), rng.standard_normal(kernel)
    padding = tuple(k // 2 for k in kernel)
    result = cupyconv.conv(x[None, None], w[None, None], padding=padding, padding_mode=mode)
    expected = ndimage.correlate(x, w, mode=SCIPY[mode])
    np.testing.assert_allclose(result[0, 0], expected, rtol=0, atol=1e-12)
