"""What the gradients of a weight on Tensor Cores promise, and what their tests have in common."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from backends import EmulatorBackend, NumpyBackend, forced_backends
from bounds import assert_convolution, assert_same_bits
from cupyconv import _chunks
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import direct_conv, hopper_gradient, im2col_gradient, matrix_gradient
from cupyconv._kernels.gradient_products import MOST_TAPS
from cupyconv._kernels.gradient_sum import SummedPlan
from cupyconv._kernels.launches import Instance, Processor
from cupyconv._kernels.matrix_gradient_grid import grid_of, grid_of_boxes
from cupyconv._kernels.question import LARGE, MANY_AXES, Question
from cupyconv._taps import on_three_axes
from gradients import Gradient, gradient, gradients
from mutants.matrix_gradient import UNREPAIRED
from planning import HOPPER, Steering, any_mode, conv, dense_geometries
from reference import Array
from running import Recorder, dtype_of
from strategies import BFLOAT16, LAYOUTS, MODES, NO_BORDERS, STYLES, lay_out, poison

Mode = tuple[np.dtype[Any], str]

# By the kernels' names. What the others do not take, forced backends run by the first one.
MODULES: dict[str, Any] = {
    "portable": matrix_gradient,
    "hopper": hopper_gradient,
    "im2col": im2col_gradient,
}
BACKENDS = [
    *forced_backends("portable"),
    *forced_backends("hopper", wgmma=True),
    *forced_backends("im2col", wgmma=True),
]
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_kernel = pytest.mark.parametrize("kernel", MODULES)
SINGLE, HALF, DOUBLE = MODES[0], MODES[2], (np.dtype(np.float64), "float32")
PRODUCED = [*MODES, DOUBLE]
MODE_NAMES = ["float32", "tf32", "float16", "bfloat16", "float64"]
every_mode = pytest.mark.parametrize("mode", PRODUCED, ids=MODE_NAMES)
TAKEN = {"portable": PRODUCED, "hopper": MODES, "im2col": MODES[2:]}


def named(mode: Mode) -> str:
    return MODE_NAMES[PRODUCED.index(mode)]


every_kernel_and_mode = pytest.mark.parametrize(
    ("kernel", "mode"),
    [
        pytest.param(kernel, mode, id=f"{kernel}-{named(mode)}")
        for kernel, modes in TAKEN.items()
        for mode in modes
    ],
)
every_backend_and_mode = pytest.mark.parametrize(
    ("backend", "mode"),
    [
        pytest.param(*backend.values, mode, id=f"{backend.id}-{named(mode)}", marks=backend.marks)
        for backend in BACKENDS
        for mode in TAKEN[str(backend.values[0].kernel)]
    ],
)

# Plans ---------------------------------------------------------------------------------------


def question_of(geometry: ConvGeometry, mode: Mode, processor: Processor = HOPPER) -> Question:
    return Question(geometry, *mode, processor)


def columns_of(geometry: ConvGeometry) -> int:
    return geometry.channels * math.prod(axis.kernel for axis in geometry.axes)


def planned(
    kernel: str, geometry: ConvGeometry, mode: Mode, processor: Processor = HOPPER
) -> SummedPlan[Any]:
    """The plan of a kernel that takes the gradient."""
    plan = MODULES[kernel].plan(question_of(geometry, mode, processor))
    assert isinstance(plan, SummedPlan)
    return plan


MANY_TAPS = "its kernel has more than 64 taps along an axis"
MANY_PLANES = "its taps reach into too many planes of inputs"
NO_PRODUCTS = "its sums have no products"


def reasons(geometry: ConvGeometry) -> set[str]:
    """What must be said against a gradient of a dtype that Tensor Cores multiply; one of it is."""
    facts = {
        NO_PRODUCTS: geometry.is_empty or 0 in geometry.out_shape,
        MANY_AXES: geometry.rank > 3,
        MANY_TAPS: max(axis.kernel for axis in geometry.axes) > MOST_TAPS,
        LARGE: geometry.groups * geometry.rows * columns_of(geometry) >= 2**31,
    }
    return {reason for reason, holds in facts.items() if holds}


def is_large(geometry: ConvGeometry) -> bool:
    """Whether a coordinate, or a number of columns or blocks, may be near 32 bits."""
    sizes = (geometry.batch, geometry.channels, geometry.rows, geometry.groups)
    lengths = (
        max(axis.size_in, axis.size_out * axis.step, axis.dilation * axis.kernel) + abs(axis.origin)
        for axis in geometry.axes
    )
    return math.prod(sizes) * max(lengths) * columns_of(geometry) >= 2**28


def assert_divided(plan: Any, geometry: ConvGeometry, mode: Mode, columns: int, steps: int) -> None:
    """Assert that tiles cover the gradient, and chunks and ranges its sums, within their memory.

    The tiles have so many columns in all, and the longest chunk so many K steps.
    """
    layout, shape = plan.layout, plan.layout.shape
    for size, tile, tiles in (
        (geometry.rows, shape.rows, layout.row_tiles),
        (columns, shape.columns, layout.column_tiles),
    ):
        assert (tiles - 1) * tile < size <= tiles * tile
    # Chunks have all samples, and no range of the longest one is empty.
    longest = max(layout.samples)
    assert sum(layout.samples) == geometry.batch and longest - min(layout.samples) <= 1
    assert 1 <= layout.splits <= steps
    tiles = geometry.groups * layout.row_tiles * layout.column_tiles
    assert plan.launch.grid == plan.launch.unit == tiles * layout.splits
    elements = geometry.groups * geometry.rows * columns_of(geometry)
    assert plan.partial == max(4, mode[0].itemsize) * elements * layout.splits
    assert layout.splits == 1 or plan.partial <= 2**25
    assert plan.copies <= 2**26 or longest <= -(-geometry.batch // 64)
    assert plan.workspace == plan.partial + plan.copies


@every_kernel
@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        (conv((0, 3, 9, 9), (5, 3, 3, 3)), NO_PRODUCTS),
        (conv((2, 0, 9, 9), (5, 0, 3, 3)), NO_PRODUCTS),
        (conv((2, 3, 9, 9), (0, 3, 3, 3)), NO_PRODUCTS),
        (conv((2, 3, 0, 9), (5, 3, 3, 3), padding=2), NO_PRODUCTS),
        (conv((2, 3, 4, 4, 4, 4), (5, 3, 2, 2, 2, 2)), MANY_AXES),
        (conv((2, 3, 99, 9), (5, 3, 65, 3)), MANY_TAPS),
        (conv((1, 1, 2**31 + 9), (1, 1, 2)), LARGE),
    ],
    ids=str,
)
def test_refusals(kernel: str, geometry: ConvGeometry, reason: str) -> None:
    for mode in MODES:
        assert MODULES[kernel].plan(question_of(geometry, mode)) == reason


@every_kernel
def test_as_many_taps_as_tables_hold(kernel: str) -> None:
    for taps, options in (((64,), {}), ((64, 64), {"dilation": 2}), ((32,), {"dilation": 99})):
        shape = (2, 3, *[4000 if len(taps) == 1 else 200] * len(taps))
        planned(kernel, conv(shape, (5, 3, *taps), **options), TAKEN[kernel][0])


@every_kernel_and_mode
def test_a_long_sum_fills_the_gpu(kernel: str, mode: Mode) -> None:
    """A layer of ResNet-50: its gradient has fewer tiles than a GPU has multiprocessors.

    Ranges are chosen by whole waves of blocks, of which the last one may lack a few.
    """
    plan = planned(kernel, conv((32, 64, 56, 56), (64, 64, 3, 3), padding=1), mode)
    assert plan.layout.splits > 10
    assert 0.95 * HOPPER.multiprocessors < plan.launch.grid


@every_kernel
def test_chunks_take_time(kernel: str, steer: Steering) -> None:
    """Each has launches, and adds to the partial sums; one of arrays in place has no copies."""
    shapes = (8, 64, 28, 28), (64, 64, 3, 3)
    counts = (2, 2) if kernel == "im2col" else (3, 1)
    calls = (shapes[1], {"padding": 1}), ((64, 64, 1, 1), {})
    for (weight, options), launches in zip(calls, counts, strict=True):
        cycles = []
        for samples in ((8,), (4, 4), (2, 2, 2, 2)):
            steer.replace(MODULES[kernel], samples_of_chunks=lambda *_, found=samples: found)
            steer.replace(MODULES[kernel], fastest_splits=lambda *_: 4)
            plan = planned(kernel, conv(shapes[0], weight, **options), HALF)
            assert plan.layout.samples == samples
            cycles.append(plan.cycles)
        for more, (fewer, many) in zip((1, 2), itertools.pairwise(cycles), strict=True):
            assert many - fewer > more * launches * direct_conv.LAUNCH


@pytest.mark.parametrize("of_boxes", [False, True])
@given(geometry=dense_geometries(), mode=any_mode)
@example(conv((2, 3, 9, 11), (7, 3, 3, 3), padding=1, stride=2), SINGLE)
@example(conv((1, 1, 9), (1, 1, 4), dilation=3, padding=((0, 9),)), HALF)
def test_a_tap_is_a_shift_along_a_line(of_boxes: bool, geometry: ConvGeometry, mode: Mode) -> None:
    """An output meets its input there, or zero: in its own line or at the begin of a later one."""
    assume(not geometry.transposed)
    itemsize = mode[0].itemsize
    grid = grid_of_boxes(geometry, itemsize, 1) if of_boxes else grid_of(geometry, itemsize)
    whole = 16 // itemsize
    for axis, line in zip(on_three_axes(geometry.axes), grid.axes, strict=True):
        for number, tap in enumerate(line.taps):
            residue = tap.plane * line.apart
            assert tap.shift >= 0
            if of_boxes and line is grid.axes[2]:
                assert 0 <= residue < axis.step * whole and tap.shift % whole == 0
            else:
                assert 0 <= residue < axis.step

            def at(place: Any, residue: int = residue, axis: Any = axis) -> Any:
                """The place in the input, of a place of the tap's plane."""
                return place * axis.step + residue + axis.origin

            outputs = np.arange(axis.size_out)
            met = at(outputs + tap.shift)
            assert (met == outputs * axis.step + number * axis.dilation + axis.origin).all()
            present = (met >= 0) & (met < axis.size_in)
            after, place = divmod(outputs + tap.shift, line.pitch)
            assert not (present & (after > 0)).any(), "an input lies in another line"
            first = at(place[after > 0])
            assert not ((first >= 0) & (first < axis.size_in)).any(), "another line's input is met"
    lines = 1 if not grid.flat else math.prod(axis.pitch for axis in grid.axes[:2])
    assert lines * grid.axes[2].pitch % whole == 0


# Against the definition ----------------------------------------------------------------------


def check(backend: NumpyBackend, case: Gradient) -> None:
    assert_convolution(backend.compute(case), case.defined, case.dtype, case.precision)


def case_of(mode: Mode, input_shape: Any, weight_shape: Any, **options: Any) -> Gradient:
    dtype, precision = mode
    return gradient("weight", input_shape, weight_shape, dtype, precision=precision, **options)


multiplied = st.sampled_from([(dtype, dtype) for dtype, _ in PRODUCED])

# The end of the last line of an image meets the first one of the next.
OVERHANGING = {"padding": 1, "stride": 2}


@every_backend
@given(
    case=gradients(
        kinds=["weight"], dtypes=multiplied, borders=NO_BORDERS, samples=st.integers(1, 5)
    )
)
@example(case_of(SINGLE, (2, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING))
@example(case_of(HALF, (2, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING))
@example(case_of(SINGLE, (2, 2, 5, 7, 9), (3, 2, 3, 3, 3), **OVERHANGING))
# 16-bit numbers at odd places: all taps of a line, every other one, and with planes of a stride.
@example(case_of(HALF, (2, 3, 5, 20), (7, 3, 2, 5)))
@example(case_of(HALF, (2, 3, 40), (7, 3, 5), dilation=3, padding=((5, 0),)))
@example(case_of((BFLOAT16, "float32"), (2, 3, 41), (7, 3, 4), stride=3, dilation=5))
@example(case_of(HALF, (3, 3, 41), (7, 3, 4), stride=2, dilation=2, padding=3))
def test_definition(backend: NumpyBackend, case: Gradient) -> None:
    check(backend, case)


# What the kernels tell apart: the shapes of an input and a weight, and options.
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "one axis": ((3, 5, 70), (9, 5, 4), {"padding": ((3, 1),)}),
    "one side": ((3, 4, 7, 9), (9, 4, 3, 4), {"padding": ((2, 0), (0, 3))}),
    "a stride": ((3, 4, 9, 13), (9, 4, 3, 5), {"padding": 2, "stride": (2, 3)}),
    "a common divisor": ((3, 4, 29), (9, 4, 4), {"stride": 6, "dilation": 4, "padding": 5}),
    "beyond the kernel": ((3, 4, 9, 26), (9, 4, 1, 2), {"stride": (4, 7)}),
    "unread inputs": ((3, 4, 14), (9, 4, 3), {"stride": 4}),
    "dilated": ((3, 4, 9, 40), (9, 4, 3, 6), {"dilation": (3, 7), "padding": (4, 0)}),
    "three axes": ((2, 3, 5, 4, 6), (9, 3, 2, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
    "groups": ((2, 9, 6, 7), (12, 3, 3, 2), {"groups": 3, "padding": 1}),
    "depthwise": ((2, 5, 6, 7), (10, 1, 3, 3), {"groups": 5, "padding": 1}),
    "without a batch": ((3, 6, 7), (9, 3, 2, 2), {}),
    "one output": ((5, 3, 4, 6), (9, 3, 4, 6), {}),
    "windows in the padding": ((1, 2, 2, 3), (5, 2, 4, 2), {"padding": 5}),
    "one tap": ((3, 10, 6, 12), (12, 5, 1, 1), {"groups": 2}),
    "one tap, an odd size": ((3, 5, 7, 9), (9, 5, 1, 1), {}),
    "one sample of one tap": ((1, 5, 8, 8), (9, 5, 1, 1), {}),
    "lines apart": ((2, 2, 300), (5, 2, 5), {"dilation": 61}),
    "rows of three taps": ((2, 33, 4, 9), (9, 33, 2, 3), {"padding": ((0, 1), (2, 1))}),
    "rows of taps apart": ((3, 20, 40), (9, 20, 5), {"padding": 3, "dilation": 2}),
}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS)


def case_like(kind: str, mode: Mode, **options: Any) -> Gradient:
    input_shape, weight_shape, others = KINDS[kind]
    return case_of(mode, input_shape, weight_shape, **others, **options)


@every_backend_and_mode
@every_kind
def test_kinds(backend: NumpyBackend, mode: Mode, kind: str) -> None:
    check(backend, case_like(kind, mode))


@every_backend_and_mode
@pytest.mark.parametrize("style", STYLES)
def test_magnitudes(backend: NumpyBackend, mode: Mode, style: str) -> None:
    check(backend, case_like("a stride", mode, style=style))


@every_backend_and_mode
@pytest.mark.parametrize("batch", [3, 5, 6])
@pytest.mark.parametrize("channels", [3, 4])
def test_chunks_of_samples(
    backend: NumpyBackend, mode: Mode, batch: int, channels: int, steer: Steering
) -> None:
    """Which may have a sample more than others; later ones are added to the first one's sums."""
    kernel = str(backend.kernel)
    steer.replace(_chunks, _CHUNK_BYTES=4 * sample_bytes(kernel, mode, channels) + 2)
    shapes = (batch, channels, 9, 11), (7, channels, 3, 3)
    layout = planned(kernel, conv(*shapes, **OVERHANGING), mode).layout
    assert len(layout.samples) == -(-batch // 2)
    check(backend, case_of(mode, *shapes, **OVERHANGING))


def sample_bytes(kernel: str, mode: Mode, channels: int = 3) -> int:
    geometry = conv((1, channels, 9, 11), (7, channels, 3, 3), **OVERHANGING)
    return planned(kernel, geometry, mode).copies


@pytest.mark.emulator
@every_kernel_and_mode
@pytest.mark.parametrize("batch", [1, 3, 4])
def test_workspace_is_what_is_taken(kernel: str, mode: Mode, batch: int, steer: Steering) -> None:
    """The partial sums, and the copies of the largest chunk."""
    steer.replace(_chunks, _CHUNK_BYTES=4 * sample_bytes(kernel, mode) + 2)
    backend = Recorder(kernel)
    backend.compute(case_of(mode, (batch, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING))
    geometry = conv((batch, 3, 9, 11), (7, 3, 3, 3), **OVERHANGING)
    plan = planned(kernel, geometry, mode, backend.path.device.processor())
    partial, *copies = backend.workspaces
    assert plan.partial == partial
    assert plan.copies == max(a + b for a, b in zip(copies[::2], copies[1::2], strict=True))


# How far sums of products of one sign may be off, against their size. A result in bfloat16 is
# rounded, and one in float16 would overflow.
MOST_ERROR = {"float32": 2.0**-20, "tf32": 2.0**-12, "bfloat16": 2.0**-8}


def check_long_sum(backend: NumpyBackend, mode: Mode, length: int) -> None:
    """Errors do not grow with the number of products, although Tensor Cores truncate sums."""
    case = case_of(mode, (1, 1, length + 1), (1, 1, 2), style="positive")
    found = backend.compute(case).astype(np.float64).ravel()
    x, y = (case[name].astype(np.float64).ravel() for name in ("input", "grad_output"))
    expected = np.array([x[:-1] @ y, x[1:] @ y])
    name = mode[1] if mode[0] == np.float32 else mode[0].name
    assert np.abs(found - expected).max() <= MOST_ERROR[name] * expected.max()


@every_backend
@pytest.mark.parametrize("mode", [SINGLE, MODES[1], MODES[3]], ids=MOST_ERROR)
@pytest.mark.large
def test_long_sums_of_one_sign(backend: NumpyBackend, mode: Mode) -> None:
    check_long_sum(backend, mode, 2**20)


@every_backend
def test_sums_of_one_sign(backend: NumpyBackend) -> None:
    check_long_sum(backend, SINGLE, 2**14)


# Infinities and NaN --------------------------------------------------------------------------


def planted(case: Gradient, places: dict[str, Sequence[tuple[Any, float]]]) -> Gradient:
    """The case with values at some places of its arrays."""
    arrays = {name: case[name].copy() for name in places}
    for name, values_at in places.items():
        for place, value in values_at:
            arrays[name][place] = value
    return case.with_arrays(**arrays)


@every_backend_and_mode
@every_kind
@pytest.mark.parametrize("name", ["input", "grad_output"])
def test_special_values(backend: NumpyBackend, mode: Mode, kind: str, name: str) -> None:
    """At the first place, the last one and one in the middle, each in a channel of its own.

    They reach the taps that they have products with: not those for which they would meet padding,
    and none at all where a stride leaves them unread.
    """
    case = case_like(kind, mode)
    a = case[name]
    rank = len(case.options["weight_size"]) - 2
    lead = a.shape[: a.ndim - rank]
    corners = [
        (*(0,) * (len(lead) - 1), channel % lead[-1], *(end(n) for n in a.shape[len(lead) :]))
        for channel, end in enumerate((lambda n: 0, lambda n: n - 1, lambda n: n // 2))
    ]
    values = np.inf, np.nan, -np.inf
    check(backend, planted(case, {name: [*zip(corners, values, strict=True)]}))


@every_backend_and_mode
def test_infinities_that_meet(backend: NumpyBackend, mode: Mode) -> None:
    """Infinity times zero, opposite infinities of two ranges, and one that meets another."""
    case = case_of(mode, (2, 2, 9, 40), (3, 2, 3, 3), padding=1)
    x, y = ((0, 0, 3, 4), np.inf), ((0, 0, 3, 4), 0.0)
    check(backend, planted(case, {"input": [x], "grad_output": [y]}))
    check(backend, planted(case, {"input": [x, ((1, 0, 3, 4), -np.inf)]}))
    check(backend, planted(case, {"input": [x], "grad_output": [((1, 1, 0, 0), -np.inf)]}))


@every_backend_and_mode
@pytest.mark.parametrize("sign", [0, 1])
def test_nan_of_all_bits(backend: NumpyBackend, mode: Mode, sign: int) -> None:
    """A NaN that a carry would make zero, as numbers are rounded to fewer bits."""
    dtype, _ = mode
    for name in ("input", "grad_output"):
        case = case_like("one side", mode)
        a = case[name].copy()
        kind = np.dtype(f"uint{8 * dtype.itemsize}")
        a.view(kind)[1, 2, 3, 3] = np.iinfo(kind).max >> (1 - sign)
        assert np.isnan(a[1, 2, 3, 3])
        check(backend, case.with_arrays(**{name: a}))


@every_backend_and_mode
def test_the_largest_numbers(backend: NumpyBackend, mode: Mode) -> None:
    """They are finite, also where rounded to TF32 they would not be."""
    dtype, _ = mode
    case = case_like("one axis", mode)
    x, small = case["input"].copy(), case["grad_output"] / dtype.type(256)
    x[1, 2, 20:23] = ml_dtypes.finfo(dtype).max
    check(backend, case.with_arrays(input=x, grad_output=small))


# Layouts -------------------------------------------------------------------------------------


@every_backend_and_mode
@pytest.mark.parametrize("kind", ["one side", "a stride", "three axes", "one tap", "groups"])
def test_layouts_change_no_bit(backend: NumpyBackend, mode: Mode, kind: str) -> None:
    case = case_like(kind, mode)
    expected = backend.compute(case)
    layouts = [layout for layout in LAYOUTS if layout not in ("contiguous", "broadcast")]
    for number, layout in enumerate(layouts):
        rng = np.random.default_rng(number)
        arrays = case.map(
            lambda a, layout=layout, rng=rng: backend.asarray(lay_out(rng, a, layout))
        )
        out = backend.asarray(lay_out(rng, poison(np.empty_like(expected)), layout))
        backend.call(case.function, **arrays.arrays, **case.options, out=out)
        assert_same_bits(backend.to_numpy(out), expected)


@every_backend_and_mode
@pytest.mark.parametrize("kind", ["a stride", "one tap"])
@pytest.mark.parametrize("axis", range(4))
def test_repeated_values(backend: NumpyBackend, mode: Mode, axis: int, kind: str) -> None:
    """Arrays with a stride of zero, which `broadcast_to` returns."""
    case = case_like(kind, mode)
    flat = case.map(lambda a: np.broadcast_to(a.take([0], axis), a.shape))
    expected = backend.compute(flat.map(np.ascontiguousarray))
    assert_same_bits(backend.compute(flat), expected)


def placed(rng: np.random.Generator, a: Array, layout: str) -> Array:
    """The array in memory that begins at a multiple of 16 bytes, but for offset ones."""
    if layout == "transposed":
        return a.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)
    if layout == "contiguous":
        return aligned(a, 0)
    if layout == "offset":
        return aligned(a, a.itemsize)
    if layout == "interleaved":
        return aligned(a.repeat(2, axis=1), 0)[:, ::2]
    return lay_out(rng, a, layout)


def aligned(a: Array, offset: int) -> Array:
    """A copy of the array so many bytes after a multiple of 16."""
    memory = np.empty(a.nbytes + 32, np.uint8)
    first = -memory.ctypes.data % 16 + offset
    view = memory[first : first + a.nbytes].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def channels_apart(a: Array) -> Array:
    """A copy of the array whose channels lie one element further from each other."""
    places = math.prod(a.shape[2:])
    memory = aligned(np.empty((*a.shape[:2], places + 1), a.dtype), 0)
    view = memory[..., :places].reshape(a.shape)
    assert np.shares_memory(view, memory)
    view[...] = a
    return view


# Instances -----------------------------------------------------------------------------------


def mode_of(instance: Instance) -> Mode:
    defines = dict(instance.defines)
    dtype = dtype_of(defines["ELEMENT"])
    fast = dtype == np.float32 and defines["PARTS"] == "1"
    return dtype, "tf32" if fast else "float32"


def run_once(
    kernel: str, case: Gradient, geometry: ConvGeometry, mode: Mode, multiprocessors: int
) -> tuple[Any, Recorder]:
    """Check a gradient, which launches copies and what its plan says; return the plan.

    Where all numbers are finite, no sum is computed again.
    """
    backend = Recorder(kernel)
    backend.path.device.multiprocessors = multiprocessors
    if all(np.isfinite(a).all() for a in case.arrays.values()):
        backend.path.device.patches = UNREPAIRED
    check(backend, case)
    plan = planned(kernel, geometry, mode, backend.path.device.processor())
    copies = [one for one in backend.launches if one.instance.source == COPIES[kernel]]
    rest = [one for one in backend.launches if one.instance.source != COPIES[kernel]]
    chunks = len(plan.layout.samples)
    assert len(copies) == chunks * (1 if kernel == "im2col" else 2)
    assert rest == [plan.launch] * chunks + [plan.add]
    return plan, backend


# Of both arrays by one launch or by two.
COPIES = {
    "portable": "borders.cu", "hopper": "gradient_lines.cu", "im2col": "channels_last.cu"
}  # fmt: skip


# Shapes of an input and a weight, and options, by the rows and the channels of a group and, about,
# the outputs of a sample in a channel.
DIVIDED: dict[str, Any] = {
    "a stride": lambda rows, channels, places: (
        (2, 2 * channels, 5, places // 2), (2 * rows, channels, 2, 3),
        {"stride": (1, 2), "padding": (0, 1)},
    ),
    "three axes": lambda rows, channels, places: (
        (2, 2 * channels, 2, 4, places // 8), (2 * rows, channels, 1, 2, 3),
        {"padding": (0, 1, 1)},
    ),
}  # fmt: skip


# Mistakes ------------------------------------------------------------------------------------

# What a plan or its arguments could do wrong: the name of a function, a piece of its text and what
# takes its place, and a call that shows it. The mutants of the kernels are in tests/mutants/.
Mistake = tuple[str, str, str, Gradient]


def assert_is_found(
    kernel: str, mistake: Mistake, modules: Sequence[ModuleType], steer: Steering
) -> None:
    """Assert that a kernel is right in a call, and wrong with a mistake in one of the modules."""
    name, before, after, case = mistake
    backend = EmulatorBackend(kernel)
    check(backend, case)
    right = next(vars(module)[name] for module in modules if name in vars(module))
    text = inspect.getsource(right)
    assert text.count(before) == 1
    changed = dict(vars(inspect.getmodule(right)))
    exec(text.replace(before, after), changed)
    for module in modules:
        if vars(module).get(name) is right:
            steer.replace(module, **{name: changed[name]})
    with pytest.raises(AssertionError):
        check(backend, case)
