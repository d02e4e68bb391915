"""Every instance that the planner can return, on the emulator: more than one tile on each axis,
a ragged last tile, and sums that are longer than what the kernel has under way at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import test_convolution
import test_fused
import test_norms
import test_pooling
import test_windows
from backends import EmulatorBackend, without_bulk_copies
from bounds import assert_convolution, assert_same_bits
from cupyconv import (
    _launch,
    _matrix,
    _plain,
    _plan,
    _pointwise,
    _pointwise16,
    _streaming,
    _strides,
)
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import depthwise_conv, depthwise_tiles, direct_conv, gather_conv
from cupyconv._kernels.launches import ELEMENTS, SIGNED
from cupyconv._plan import (
    Instance,
    Launch,
    MatrixPlan,
    Pointwise16Plan,
    PointwisePlan,
    Processor,
    StreamingPlan,
)
from strategies import Case, Convolution, convolution, values

# The planner's names of elements, to those of NumPy and ml_dtypes; signed integers are summed as
# unsigned ones.
DTYPES = {element: dtype for dtype, element in {**ELEMENTS, **SIGNED}.items()}
INSTANCES = _plan.instances("sm_90a")
CONVOLUTIONS = [i for i in INSTANCES if i.source == "direct_conv.cu"]
DEPTHWISE = [i for i in INSTANCES if i.source == "depthwise_conv.cu"]
GATHER = [i for i in INSTANCES if i.source == "gather_conv.cu"]
STREAMING = [i for i in INSTANCES if i.source == "streaming_conv.cu"]
POINTWISE = [i for i in INSTANCES if i.source == "pointwise_conv.cu"]
POINTWISE16 = [i for i in INSTANCES if i.source == "pointwise16_conv.cu"]
PLAIN = [i for i in INSTANCES if i.function == "plain_conv"]
POOLED = [i for i in INSTANCES if ("POOLS", "1") in i.defines]
SPANS = [i for i in INSTANCES if i.source == "matrix_conv.cu" and ("SPANS", "1") in i.defines]
MATRIX = [i for i in INSTANCES if i.source == "matrix_conv.cu" and i not in POOLED + SPANS]
HAVE_OWN_TESTS = ("_conv.cu", "pack_weights.cu", "pooled_norm.cu")
OTHERS = [i for i in INSTANCES if not i.source.endswith(HAVE_OWN_TESTS)]


def dtype_of(element: str) -> np.dtype[Any]:
    name = DTYPES[element]
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class Recorder(EmulatorBackend):
    """Remembers what was launched, and the plans of the kernels that divide outputs into tiles."""

    def __init__(self, kernel: str | None = None) -> None:
        super().__init__(kernel)
        self.launches: list[Launch] = []
        self.plans: list[Any] = []
        run, path = self.path.device.run, self.path
        prepared: dict[type, Any] = {
            MatrixPlan: path._matrix,
            StreamingPlan: path._streaming,
            PointwisePlan: path._pointwise,
            Pointwise16Plan: path._pointwise16,
        }

        def recorded(launch: Launch, arguments: Any) -> None:
            self.launches.append(launch)
            run(launch, arguments)

        def planned(
            plan: _plan.ConvPlan,
            *rest: Any,
        ) -> Any:
            self.plans.append(plan)
            return prepared[type(plan)](plan, *rest)

        prepare = path.prepare

        def preparing(*arguments: Any) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                for module in (depthwise_conv, gather_conv):
                    patch.setattr(module, "bind", partial(bound, module.bind))
                return prepare(*arguments)

        def bound(bind: Callable[..., Any], plan: _plan.ConvPlan, *rest: Any) -> Any:
            self.plans.append(plan)
            return bind(plan, *rest)

        path.device.run = recorded  # type: ignore[method-assign]
        path.prepare = preparing  # type: ignore[method-assign]
        path._matrix = planned  # type: ignore[method-assign]
        path._streaming = planned  # type: ignore[method-assign]
        path._pointwise = planned  # type: ignore[method-assign]
        path._pointwise16 = planned  # type: ignore[method-assign]


def tile_of(instance: Instance) -> direct_conv.Tile:
    macros = {name: value for name, value in instance.defines if name not in ("ELEMENT", "RANK")}
    return direct_conv.Tile(*map(int, macros.values()))


def convolution_for(instance: Instance, transposed: bool) -> Convolution:
    """A call that the instance runs: two groups, one and a half tiles of rows and positions."""
    macros = dict(instance.defines)
    tile, rank = tile_of(instance), int(macros["RANK"]) or 4
    rows = tile.rows + tile.rows // 2 + 1
    if tile.row_threads == 1:
        rows = min(rows, direct_conv._NARROW_ROWS - 1)
    channels = max(11, 3 * tile.depth // 5 + 2)  # more than a chunk of them, and not a multiple
    lengths = (1,) * (rank - 1) + (tile.positions // 2 + tile.positions // 4 + 1,)
    kernel = (1,) * (rank - 1) + (5,)
    rng = np.random.default_rng(0)
    dtype = dtype_of(macros["ELEMENT"])
    weight = (2 * channels, rows, *kernel) if transposed else (2 * rows, channels, *kernel)
    arrays = {
        "input": values(rng, (2, 2 * channels, *lengths), dtype),
        "weight": values(rng, weight, dtype),
        "bias": values(rng, (2 * rows,), dtype),
    }
    padding = (0,) * (rank - 1) + (2,)
    function = "conv_transpose" if transposed else "conv"
    return Convolution(function, arrays, {"padding": padding, "groups": 2})


@pytest.mark.emulator
@pytest.mark.parametrize("instance", CONVOLUTIONS, ids=str)
def test_convolution_instance(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    transposed = sum(map(ord, str(instance))) % 2 == 0
    case, tile = convolution_for(instance, transposed), tile_of(instance)
    monkeypatch.setattr(direct_conv, "_SMALL_TILES", 16 if tile == direct_conv._SMALL else 0)
    monkeypatch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
    backend = Recorder("direct")
    test_convolution.check(backend, case)
    (launch,) = backend.launches
    assert launch.instance == instance
    positions, rows = 2 * case["input"].shape[-1], case["bias"].size // 2
    row_tiles, position_tiles = -(-rows // tile.rows), -(-positions // tile.positions)
    assert launch.grid == 2 * row_tiles * position_tiles
    assert row_tiles > 1
    assert rows % tile.rows
    assert position_tiles > 1
    assert positions % tile.positions
    assert case["weight"].shape[1 - transposed] * 5 > 3 * tile.depth


@pytest.mark.emulator
@pytest.mark.parametrize("rows", [13, 21])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128"])
def test_small_tiles_have_the_same_bits(
    dtype: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which tile a call has depends on its batch as well."""
    case = convolution("conv2d", (3, 21, 7, 9), (rows, 21, 3, 3), dtype, bias=True, padding=1)
    case["weight"][rows // 2, 5, 1, 1] = np.inf
    monkeypatch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
    results, tiles = [], []
    for most in (0, 99):
        monkeypatch.setattr(direct_conv, "_SMALL_TILES", most)
        backend = Recorder("direct")
        results.append(backend.compute(case))
        (launch,) = backend.launches
        tiles.append(tile_of(launch.instance))
    assert tiles[0] != tiles[1] == direct_conv._SMALL
    assert_same_bits(*results)


# What the kernel for one input channel in each group tells apart, by the width k of its kernel.
DEPTHWISE_KINDS: dict[str, Any] = {
    "slides": lambda k: (
        "conv3d", (2, 3, 5, 21, 46 - k), (6, 1, 2, 4, k), {"padding": (0, 1, k // 2)},
    ),
    "slides, even lines": lambda k: (
        "conv2d", (2, 5, 37, 42), (5, 1, 3, k), {"padding": (1, k // 2)},
    ),
    "slides, transposed": lambda k: (
        "conv_transpose2d", (2, 3, 21, 38), (3, 2, 9, k), {"padding": (2, 1)},
    ),
    "slides in sections": lambda k: ("conv1d", (2, 3, 602), (3, 1, k), {"padding": 2}),
    "steps": lambda k: (
        "conv2d", (2, 3, 43, 70), (6, 1, 3, k),
        {"stride": (2, 1), "dilation": (1, 3), "padding": (1, 4)},
    ),
    "steps in sections": lambda k: ("conv1d", (2, 3, 611), (6, 1, k), {"stride": 3}),
    "phases": lambda k: (
        "conv_transpose3d", (1, 3, 3, 12, 22), (3, 2, 2, 4, k),
        {"stride": (1, 2, 3), "dilation": (2, 1, 1), "padding": (0, 1, 2)},
    ),
    "slides on matrix units": lambda _: (
        "conv2d", (2, 3, 37, 72), (6, 1, 3, 5), {"padding": (1, 3)},
    ),
    "slides on matrix units, odd lines": lambda _: (
        "conv2d", (2, 3, 37, 61), (6, 1, 3, 5), {"padding": (1, 3)},
    ),
    "slides on matrix units, even lines": lambda _: (
        "conv_transpose2d", (2, 3, 37, 70), (3, 1, 2, 4), {"padding": (0, 1)},
    ),
    "slides on matrix units, transposed": lambda _: (
        "conv_transpose3d", (2, 3, 3, 18, 56), (3, 1, 2, 3, 8), {"padding": (0, 1, 2)},
    ),
}  # fmt: skip


# What does not slide is for the first instance of its dtype.
DEPTHWISE_CASES = [
    (instance, kind)
    for instance in DEPTHWISE
    for kind in DEPTHWISE_KINDS
    if ("matrix" in kind) == (("MATRIX", "1") in instance.defines)
    and ("slides" in kind or ("TAPS", "3") in instance.defines)
]


def choose_among(
    monkeypatch: pytest.MonkeyPatch, room: ModuleType, suitable: Callable[[ConvGeometry, Any], bool]
) -> None:
    """Of the layouts of a kernel, plans choose among the suitable ones."""
    candidates = room._candidates

    def chosen(geometry: ConvGeometry, *rest: Any) -> Iterator[Any]:
        return (x for x in candidates(geometry, *rest) if suitable(geometry, x))

    monkeypatch.setattr(room, "_candidates", chosen)
    monkeypatch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)


@pytest.fixture
def several_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the layouts, plans choose among those with several tiles on each axis that is long."""

    def suitable(geometry: ConvGeometry, layout: depthwise_tiles.Layout) -> bool:
        long = [axis.positions(0) >= 16 for axis in layout.axes]
        return all(tiles > 1 for tiles, needed in zip(layout.tiles, long, strict=True) if needed)

    choose_among(monkeypatch, depthwise_tiles, suitable)


@pytest.mark.emulator
@pytest.mark.usefixtures("several_boxes")
@pytest.mark.parametrize(("instance", "kind"), DEPTHWISE_CASES, ids=str)
def test_depthwise_instance(instance: Instance, kind: str) -> None:
    macros = dict(instance.defines)
    function, input_shape, weight_shape, options = DEPTHWISE_KINDS[kind](int(macros["TAPS"]))
    groups = input_shape[1]
    case = convolution(
        function, input_shape, weight_shape, dtype_of(macros["ELEMENT"]),
        bias=True, groups=groups, **options,
    )  # fmt: skip
    backend = Recorder("depthwise")
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert backend.launches == [plan.launch]
    layout = plan.layout
    assert layout.slides == ("slides" in kind)
    assert (layout.section > 0) == ("sections" in kind)
    assert ("phases" in kind) == (max(axis.phases for axis in layout.axes) > 1)
    assert plan.launch.instance == instance
    assert math.prod(layout.tiles) > 1
    assert any(
        axis.positions(0) % tile for axis, tile in zip(layout.axes, layout.tile, strict=True)
    )


@pytest.mark.emulator
def test_many_channels_share_a_tile() -> None:
    """Small images: the planes of many channels, with a ragged last tile."""
    for shape, dtype in (((2, 70, 7, 7), "float32"), ((1, 90, 8, 6), "float16")):
        case = convolution(
            "conv2d", shape, (shape[1], 1, 3, 3), dtype, bias=True, groups=shape[1], padding=1
        )
        backend = Recorder("depthwise")
        test_convolution.check(backend, case)
        (plan,) = backend.plans
        assert 1 < plan.layout.channels < shape[1]


# What the kernel that gathers inputs tells apart, by the width k of its kernel.
GATHER_KINDS: dict[str, Any] = {
    "steps": lambda k: (
        "conv2d", (2, 5, 37, 43), (10, 1, 4, k), {"stride": 2, "padding": (1, k // 2)},
    ),
    "a large image": lambda k: (
        "conv2d", (1, 7, 53, 60), (7, 1, 4, k), {"padding": (2, k // 2)},
    ),
    "three axes": lambda k: (
        "conv3d", (2, 3, 13, 9, 14), (6, 1, 3, 2, k),
        {"stride": (2, 1, 2), "padding": (1, 0, k // 2)},
    ),
    "one axis": lambda k: ("conv1d", (2, 5, 613), (10, 1, k), {"stride": 3, "padding": 1}),
    "dilated": lambda k: (
        "conv2d", (2, 5, 21, 45), (10, 1, 2, k), {"dilation": (2, 3), "padding": (1, k)},
    ),
    "flipped": lambda k: (
        "conv_transpose2d", (2, 3, 17, 18), (3, 2, 4, k), {"padding": (1, 2)},
    ),
    "scattered": lambda k: (
        "conv3d", (2, 3, 11, 8, 14), (9, 1, 3, 2, k), {"stride": (1, 2, 1), "padding": 1},
    ),
}  # fmt: skip
# The same of strips, by the width k of a square kernel and the step s along y.
STRIP_KINDS: dict[str, Any] = {
    "steps": lambda k, s: (
        "conv2d", (2, 5, 61, 43), (10, 1, k, k), {"stride": (s, 2), "padding": k // 2},
    ),
    "a large image": lambda k, s: (
        "conv2d", (1, 7, 83, 70), (7, 1, k, k), {"stride": (s, 1), "padding": (2, k // 2)},
    ),
    "cropped": lambda k, s: (
        "conv2d", (2, 9, 47, 31), (9, 1, k, k), {"stride": (s, 3)},
    ),
    "three axes": lambda k, s: (
        "conv3d", (2, 3, 15, 19, 14), (6, 1, 3, k, k),
        {"stride": (2, s, 1), "padding": (1, 1, k // 2), "dilation": (2, 1, 1)},
    ),
    "scattered": lambda k, s: (
        "conv3d", (2, 3, 12, 12, 14), (9, 1, 2, k, k), {"stride": (1, s, 2), "padding": 1},
    ),
}  # fmt: skip


def strips(instance: Instance) -> bool:
    return dict(instance.defines)["HEIGHT"] != "0"


@pytest.fixture
def several_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the layouts, plans choose among those that divide channels and an axis, and not evenly."""

    def suitable(geometry: ConvGeometry, layout: gather_conv.Layout) -> bool:
        outputs, size = geometry.groups * geometry.rows, layout.axes[layout.band].size_out
        uneven = outputs % layout.channels > 0 and size % layout.tile > 0
        return outputs > layout.channels and uneven

    choose_among(monkeypatch, gather_conv, suitable)


@pytest.mark.emulator
@pytest.mark.usefixtures("several_bands")
@pytest.mark.parametrize(
    ("instance", "kind"),
    [(i, k) for i in GATHER for k in (STRIP_KINDS if strips(i) else GATHER_KINDS)],
    ids=str,
)
def test_gather_instance(instance: Instance, kind: str) -> None:
    macros = dict(instance.defines)
    width, step = int(macros["TAPS"]), int(macros["STEP"])
    drawn = STRIP_KINDS[kind](width, step) if strips(instance) else GATHER_KINDS[kind](width)
    function, input_shape, weight_shape, options = drawn
    case = convolution(
        function, input_shape, weight_shape, dtype_of(macros["ELEMENT"]),
        bias=True, groups=input_shape[1], **options,
    )  # fmt: skip
    if kind == "scattered":
        x = np.moveaxis(np.moveaxis(case["input"], 1, -1).copy(), -1, 1)
        case = case.with_arrays(input=x)
    backend = Recorder("gather")
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert backend.launches == [plan.launch]
    assert plan.launch.instance == instance
    layout = plan.layout
    assert layout.tiles > 1
    assert layout.channel_tiles > 1
    axes = {"three axes": 0, "scattered": 0, "one axis": 2}
    assert layout.band == axes.get(kind, 1)
    assert (abs(layout.axes[2].offset_step) > 1) == (kind == "dilated")
    assert (layout.axes[2].offset_step < 0) == (kind == "flipped")


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 70, 7, 7), "float32"), ((1, 90, 5, 8), "float16")], ids=str
)
@pytest.mark.parametrize("height", [2, 3])
@pytest.mark.parametrize("bulk", [True, False])
def test_a_tile_has_whole_images(
    bulk: bool, height: int, shape: tuple[int, ...], dtype: str
) -> None:
    """Those of several groups, which begin anywhere in a chunk."""
    groups = shape[1]
    case = convolution(
        "conv2d", shape, (groups, 1, height, 3), dtype, bias=True, groups=groups, padding=1
    )
    backend = Recorder("gather")
    with nullcontext() if bulk else without_bulk_copies():
        test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert plan.layout.whole and plan.layout.bulk == bulk
    assert 1 < plan.layout.channels < groups


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("function", "options"),
    [("conv2d", {"stride": (2, 1)}), ("conv_transpose2d", {"padding": (4, 1)})],
    ids=str,
)
def test_a_tile_has_images_but_for_some_lines(function: str, options: dict[str, Any]) -> None:
    """Channels that lie together, of which no output takes the first lines or the last one."""
    case = convolution(function, (2, 30, 10, 9), (30, 1, 3, 3), bias=True, groups=30, **options)
    backend = Recorder("gather")
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert plan.layout.tiles == 1 and plan.layout.channels > 1 and not plan.layout.whole


@pytest.mark.emulator
@pytest.mark.parametrize(("channels", "height"), [(2, 3), (3, 3), (6, 3), (12, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tiles_of_any_number_of_channels(
    dtype: str, channels: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which begin and end among the five of a group, and anywhere in a chunk; strips or not."""
    choose_among(monkeypatch, gather_conv, lambda _, x: x.channels == channels)
    case = convolution(
        "conv3d", (2, 5, 4, 5, 7), (25, 1, 3, height, 3), dtype,
        bias=True, groups=5, stride=2, padding=1,
    )  # fmt: skip
    backend = Recorder("gather")
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert plan.layout.channels == channels


@pytest.mark.emulator
@pytest.mark.parametrize("height", [3, 4])
def test_many_pieces_of_inputs(height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a warp copies at a time, and ends and weights for several turns of all threads."""
    choose_among(monkeypatch, gather_conv, lambda _, x: x.channels == 64 and x.threads <= 128)
    case = convolution(
        "conv2d", (1, 140, height + 7, 9), (140, 1, height, 3), bias=True, groups=140, stride=2
    )
    backend = Recorder("gather")
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert plan.layout.channels > 32 and not plan.layout.whole
    assert plan.layout.channels * height * 3 > 4 * plan.layout.threads


@pytest.mark.emulator
@pytest.mark.parametrize("bulk", [True, False])
def test_a_piece_that_begins_inside_of_a_chunk(bulk: bool) -> None:
    """Of so many inputs that they are whole turns of a warp, and a part of a chunk more."""
    case = convolution("conv2d", (1, 5, 8, 16), (5, 1, 3, 3), groups=5, padding=1)
    memory = np.full(case["input"].size + 8, np.nan, np.float32)
    first = next(i for i in range(8) if memory[i:].ctypes.data % 16 == 4)
    x = memory[first:][: case["input"].size].reshape(case["input"].shape)
    x[...] = case["input"]
    with nullcontext() if bulk else without_bulk_copies():
        test_convolution.check(EmulatorBackend("gather"), case.with_arrays(input=x))


@pytest.mark.emulator
@pytest.mark.parametrize("height", [2, 3])
@pytest.mark.parametrize("axes", [(1, 0, 2, 3), (0, 1, 3, 2), (0, 1, 2, 3)], ids=str)
def test_weights_that_do_not_lie_together(axes: tuple[int, ...], height: int) -> None:
    """In another order, or with gaps between channels."""
    case = convolution(
        "conv_transpose2d", (2, 6, 9, 10), (6, 3, height, 3), bias=True, groups=6, padding=1
    )
    memory = np.full((12, 3, height, 3), np.nan, np.float32).transpose(axes)
    weight = memory.transpose(np.argsort(axes))[::2]
    weight[...] = case["weight"]
    test_convolution.check(EmulatorBackend("gather"), case.with_arrays(weight=weight))


# What the streaming kernel tells apart, for c channels and r rows; and with several taps, for n
# products.
STREAMING_KINDS: dict[str, Any] = {
    "as one": lambda c, r: ("conv2d", (3, 2 * c, 17, 44), (2 * r, c, 1, 1), {}),
    "transposed": lambda c, r: ("conv_transpose1d", (2, 2 * c, 1012), (2 * c, r, 1), {}),
    "odd": lambda c, r: ("conv1d", (3, 2 * c, 701), (2 * r, c, 1), {}),
    "steps": lambda c, r: ("conv3d", (2, 2 * c, 3, 27, 51), (2 * r, c, 1, 1, 1), {"stride": 2}),
    "scattered": lambda c, r: ("conv3d", (2, 2 * c, 4, 15, 20), (2 * r, c, 1, 1, 1), {}),
}
TAPPED_KINDS: dict[str, Any] = {
    "padded": lambda n, r: (
        "conv2d", (3, -(-n // 9) * 2, 23, 22), (2 * r, -(-n // 9), 3, 3), {"padding": (1, 0)},
    ),
    "transposed": lambda n, r: (
        "conv_transpose1d", (2, -(-n // 5) * 2, 701), (-(-n // 5) * 2, r, 5), {"padding": 1},
    ),
    "steps": lambda n, r: (
        "conv3d", (2, -(-n // 12) * 2, 4, 35, 54), (2 * r, -(-n // 12), 2, 2, 3),
        {"stride": (1, 2, 3), "dilation": (2, 1, 2)},
    ),
}  # fmt: skip
STREAMING_CASES = [
    (instance, kind)
    for instance in STREAMING
    for kind in (TAPPED_KINDS if ("TAPS", "1") in instance.defines else STREAMING_KINDS)
]


@pytest.mark.emulator
@pytest.mark.parametrize(("instance", "kind"), STREAMING_CASES, ids=str)
def test_streaming_instance(instance: Instance, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups, a ragged last chunk, slab and tile, and several tiles for each team."""
    macros = dict(instance.defines)
    held, taps = int(macros.get("HELD", 0)), "TAPS" in macros
    width = int(macros.get("PASS_ROWS", 64))
    shape = _streaming.Shape(int(macros["CHANNELS"]), int(macros["TEAMS"]), held, width, taps)
    monkeypatch.setattr(_streaming, "shapes", lambda mode, taps: (shape,))
    products = 2 * shape.channels + 19 if held else shape.channels - (12 if taps else 5)
    passes = max(held, 2) if width > 32 else 1  # so few rows are for convolutions that have no more
    rows = width * passes - 20
    kinds = TAPPED_KINDS if taps else STREAMING_KINDS
    function, input_shape, weight_shape, options = kinds[kind](products, rows)
    precision = "float32" if macros["PARTS"] == "2" else "tf32"
    case = convolution(
        function, input_shape, weight_shape, dtype_of(macros["ELEMENT"]),
        bias=True, groups=2, precision=precision, **options,
    )  # fmt: skip
    if kind == "scattered":
        case = case.with_arrays(input=case["input"][..., :18])
    backend = Recorder("streaming")
    with monkeypatch.context() as patch:
        patch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
        test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert backend.launches == [plan.launch]
    assert plan.launch.instance == instance
    layout = plan.layout
    assert layout.units % 2 == 0
    assert layout.chunks == (3 if held else 1)
    assert layout.products % shape.channels
    assert layout.tiles > plan.launch.grid // layout.units * shape.teams
    assert layout.positions % 64


# What the pointwise kernel tells apart, for c channels, r rows and tiles of n positions: inputs
# copied in bulk, or in pieces of 16 and 8 bytes; a single tile; inputs that do not lie together.
POINTWISE_KINDS: dict[str, Any] = {
    "in bulk": lambda c, r, n: ("conv1d", (3, 2 * c, n + 24), (2 * r, c, 1), {}),
    "in pieces": lambda c, r, n: ("conv_transpose1d", (3, 2 * c, n + 20), (2 * c, r, 1), {}),
    "one tile": lambda c, r, n: ("conv2d", (1, c + 3, 2, 16), (r // 2, c + 3, 1, 1), {}),
    "odd": lambda c, r, n: ("conv1d", (2, 2 * c, n + 33), (2 * r, c, 1), {}),
    "steps": lambda c, r, n: ("conv2d", (2, 2 * c, 5, 80), (2 * r, c, 1, 1), {"stride": 2}),
}


def pointwise_case(
    instance: Instance, kind: str, chunks: int, batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> Convolution:
    """A convolution of some whole chunks and a ragged one, planned in the instance's shape."""
    macros = dict(instance.defines)
    shape = _pointwise.Shape(*(int(macros[name]) for name in ("CHANNELS", "TEAMS", "HELD")))
    monkeypatch.setattr(_pointwise, "SHAPES", (shape,))
    channels, rows = chunks * shape.channels + 5, shape.rows + 33
    sizes = channels, rows, shape.places
    function, input_shape, weight_shape, options = POINTWISE_KINDS[kind](*sizes)
    return convolution(
        function, (batch or input_shape[0], *input_shape[1:]), weight_shape,
        bias=True, groups=input_shape[1] // channels, precision="tf32", **options,
    )  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("kind", POINTWISE_KINDS)
@pytest.mark.parametrize("instance", POINTWISE, ids=str)
def test_pointwise_instance(instance: Instance, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ragged last chunk, slab and tile, and more chunks than stages."""
    case = pointwise_case(instance, kind, 9, None, monkeypatch)
    backend = Recorder("pointwise")
    with monkeypatch.context() as patch:
        patch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
        test_convolution.check(backend, case)
    (plan,) = backend.plans
    layout, launch = plan.layout, backend.launches[-1]
    assert launch.instance == plan.launch.instance == instance
    assert layout.alone == (kind == "one tile")
    assert (launch.early, len(backend.launches)) == (True, 2)
    assert layout.units == (1 if layout.alone else 4)
    assert layout.chunks == 10 > layout.stages


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["in bulk", "odd"])
@pytest.mark.parametrize("instance", POINTWISE, ids=str)
def test_weights_that_stay(instance: Instance, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of blocks with several tiles, and more chunks than stages."""
    case = pointwise_case(instance, kind, 2, 5, monkeypatch)
    monkeypatch.setattr(_pointwise, "_LEAST_STAGES", 2)
    monkeypatch.setattr(_pointwise, "MAX_STAGES", 2)
    choose_among(monkeypatch, _pointwise, lambda _, layout: layout.stay)
    backend = Recorder("pointwise")
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    layout = plan.layout
    assert plan.launch.instance == instance
    assert layout.stay and (layout.chunks, layout.stages, layout.units) == (3, 2, 4)
    assert layout.tiles == 10 > layout.blocks


@pytest.mark.emulator
@pytest.mark.parametrize(("channels", "bulk"), [(67, False), (68, True)])
def test_each_warp_has_channels_to_copy_in_bulk(channels: int, bulk: bool) -> None:
    """With fewer than four in the last chunk, one could fall behind the others by a phase."""
    backend, packed = EmulatorBackend("pointwise"), []
    run = backend.path.device.run

    def seen(launch: Launch, arguments: Any) -> None:
        packed.append((launch.instance.source, arguments[-2]))
        run(launch, arguments)

    backend.path.device.run = seen  # type: ignore[method-assign]
    case = convolution("conv1d", (3, channels, 300), (70, channels, 1), precision="tf32")
    test_convolution.check(backend, case)
    assert packed[-1] == ("pointwise_conv.cu", bulk)


# What that of 16-bit numbers tells apart, for c channels, r rows and tiles of n positions: inputs
# and weights in words of 16 bytes, halves, pairs, and one by one; small images that share a tile.
POINTWISE16_KINDS: dict[str, Any] = {
    "words": lambda c, r, n: ("conv1d", (3, 2 * c, n + 24), (2 * r, c, 1), {}),
    "halves": lambda c, r, n: ("conv_transpose1d", (3, 2 * c, n + 20), (2 * c, r // 4 * 4, 1), {}),
    "halves of weights": lambda c, r, n: (
        "conv1d", (1, 2 * (c + 4), n + 12), (2 * r, c + 4, 1), {},
    ),
    "pairs": lambda c, r, n: ("conv1d", (3, 2 * c, n + 22), (2 * r, c, 1), {}),
    "pairs of weights": lambda c, r, n: ("conv1d", (1, 2 * (c + 2), n + 8), (2 * r, c + 2, 1), {}),
    "rows of weights": lambda c, r, n: (
        "conv_transpose1d", (1, 2 * c, n + 8), (2 * c, r + 7, 1), {},
    ),
    "odd": lambda c, r, n: ("conv1d", (2, 2 * c, n + 33), (2 * r, c, 1), {}),
    "odd, transposed": lambda c, r, n: (
        "conv_transpose1d", (1, 2 * c, n + 33), (2 * c, r + 7, 1), {},
    ),
    "weights one by one": lambda c, r, n: ("conv1d", (1, 2 * (c + 1), n), (2 * r, c + 1, 1), {}),
    "small": lambda c, r, n: ("conv2d", (7, c, 3, 8), (r, c, 1, 1), {}),
    "steps": lambda c, r, n: ("conv2d", (4, 2 * c, 5, 80), (2 * r, c, 1, 1), {"stride": 2}),
}  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("kind", POINTWISE16_KINDS)
@pytest.mark.parametrize("instance", POINTWISE16, ids=str)
def test_pointwise16_instance(
    instance: Instance, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ragged last chunk, slab and tile, and more chunks than stages."""
    macros = dict(instance.defines)
    names = "TEAMS", "SLABS", "BLOCKS", "RESIDENT"
    shape = _pointwise16.Shape(*(int(macros[name]) for name in names))
    monkeypatch.setattr(_pointwise16, "SHAPES", {shape: 1})
    monkeypatch.setattr(_pointwise16, "MAX_STAGES", 2)
    sizes = 3 * _pointwise16.SIDE + 8, shape.rows + 33, _pointwise16.SIDE * shape.blocks
    function, input_shape, weight_shape, options = POINTWISE16_KINDS[kind](*sizes)
    groups = 1 if kind == "small" else 2
    case = convolution(
        function, input_shape, weight_shape, dtype_of(macros["ELEMENT"]),
        bias=True, groups=groups, **options,
    )  # fmt: skip
    backend = Recorder("pointwise")
    with monkeypatch.context() as patch:
        patch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
        test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert [launch.instance for launch in backend.launches] == [instance]
    layout = plan.layout
    assert (layout.units, layout.chunks, layout.stages) == (2 * groups, 4, 2)
    assert layout.blocks > shape.blocks or kind in ("small", "weights one by one")


# What the kernel for few products tells apart, by the width n of its tiles. Groups have two slabs
# of rows, of which the second is ragged.
PLAIN_KINDS: dict[str, Any] = {
    "neighbours": lambda n: (
        "conv2d", (2, 6, 19, n + n // 2 + 1), (22, 3, 2, 3), {"padding": (1, 2)},
    ),
    "phases": lambda n: (
        "conv_transpose2d", (1, 10, 13, n + 9), (10, 11, 3, 4), {"stride": (2, 3), "padding": 1},
    ),
    "pairs": lambda n: (
        "conv_transpose2d", (2, 4, 14, n + 8), (4, 9, 3, 2), {"stride": 2},
    ),
    "steps": lambda n: (
        "conv2d", (2, 4, 19, 2 * n + 31), (22, 2, 2, 3),
        {"stride": (1, 2), "dilation": (1, 3), "padding": (0, 4)},
    ),
    "three axes": lambda n: (
        "conv_transpose3d", (1, 6, 5, 9, n + 3), (6, 10, 2, 3, 2),
        {"stride": (2, 1, 1), "padding": (0, 1, 0)},
    ),
    "phases without taps": lambda n: (
        "conv_transpose2d", (1, 6, 9, n + 5), (6, 10, 3, 3), {"stride": 2, "dilation": 2},
    ),
    "lines without taps": lambda n: (
        "conv_transpose2d", (1, 6, 13, n + 5), (6, 10, 3, 3),
        {"stride": (5, 1), "dilation": (2, 1)},
    ),
    "planes without taps": lambda n: (
        "conv_transpose3d", (1, 6, 5, 9, n + 3), (6, 10, 2, 3, 2),
        {"stride": (3, 1, 2), "padding": (0, 1, 0)},
    ),
    "one axis": lambda n: ("conv1d", (3, 10, 2 * n - 7), (22, 5, 7), {"padding": 3}),
}  # fmt: skip


@pytest.fixture
def several_tiles(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the layouts, plans choose among those of the instance that divide x and another axis.

    Where lines are many, tiles have several passes, and blocks have several tiles.
    """
    candidates = _plain._candidates

    def suitable(*arguments: Any) -> Iterator[_plain.Layout]:
        for layout in candidates(*arguments):
            *outer, x = layout.tiles
            several = x > 1 and (math.prod(outer) > 1 < layout.passes or arguments[0].rank == 1)
            if several and instance == _plan._plain_instances(dtype, layout.shape)[1]:
                yield layout

    dtype, plan_plain = DTYPES[dict(instance.defines)["ELEMENT"]], _plan.plan_plain.__wrapped__
    monkeypatch.setattr(_plain, "_candidates", suitable)
    monkeypatch.setattr(_plain, "_BEGIN", 10**12)
    monkeypatch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
    monkeypatch.setattr(_plan, "plan_plain", plan_plain)
    monkeypatch.setattr(_strides, "plan_joined", _plan.plan_joined.__wrapped__)


@pytest.mark.emulator
@pytest.mark.usefixtures("several_tiles")
@pytest.mark.parametrize("kind", PLAIN_KINDS)
@pytest.mark.parametrize("instance", PLAIN, ids=str)
def test_plain_instance(instance: Instance, kind: str) -> None:
    macros = dict(instance.defines)
    width = int(macros["POSITIONS"]) * int(macros["COLUMNS"])
    function, input_shape, weight_shape, options = PLAIN_KINDS[kind](width)
    groups = 1 if kind in ("three axes", "planes without taps") else 2
    case = convolution(
        function, input_shape, weight_shape, dtype_of(macros["ELEMENT"]),
        bias=True, groups=groups, **options,
    )  # fmt: skip
    backend = Recorder("plain")
    test_convolution.check(backend, case)
    pack, launch = backend.launches
    assert pack.instance.function == "pack_plain"
    assert launch.instance == instance
    assert launch.grid == launch.unit, "a block has some of the tiles of a unit"


# What the matrix kernel tells apart, each by the length n of the last axis of the output (or of one
# of its phases, or folded), by the input channels c of a group, and by its rows r.
KINDS: dict[str, Any] = {
    "lattices": lambda n, c, r: (
        "conv2d", (1, 2 * c, 4, 2 * n), (2 * r, c, 2, 2), {"stride": (1, 2)},
    ),
    "phases": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, n - 4), (2 * c, r, 4, 3),
        {"stride": (2, 1), "dilation": (3, 2), "padding": (1, 0)},
    ),
    "three axes": lambda n, c, r: (
        "conv3d", (1, 2 * c, 3, 1, n + 1), (2 * r, c, 2, 2, 2), {"padding": (0, 1, 0)},
    ),
    "a fold": lambda n, c, r: (
        "conv2d", (2, 2 * c, 2, 4 * n), (2 * 9, c, 1, 3), {"padding": (0, 1)},
    ),
    "three axes, transposed": lambda n, c, r: (
        "conv_transpose3d", (1, 2 * c, 1, 1, n - 1), (2 * c, r, 4, 2, 2), {"stride": (2, 1, 1)},
    ),
    "a folded stride": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, n - 1), (2 * c, 17, 2, 9), {"stride": (1, 8)},
    ),
    "two folded strides": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, n - 1), (2 * c, 9, 5, 3), {"stride": (3, 2)},
    ),
    "three folded strides": lambda n, c, r: (
        "conv_transpose3d", (1, 2 * c, 1, 2, n - 1), (2 * c, 7, 6, 2, 4), {"stride": (2, 2, 3)},
    ),
    "a fold of rows": lambda n, c, r: (
        "conv2d", (2, 2 * c, 5, n), (2 * 17, c, 3, 1), {},
    ),
    "a fold of places": lambda n, c, r: (
        "conv_transpose2d", (1, 2 * c, 2, 2 * n - 1), (2 * c, 17, 2, 3), {"stride": (1, 2)},
    ),
}  # fmt: skip

# How many outputs along z, y and x are one.
FOLDS = {
    "a fold": (1, 1, 4),
    "a folded stride": (1, 1, 8),
    "two folded strides": (1, 3, 2),
    "three folded strides": (2, 2, 3),
    "a fold of rows": (1, 2, 1),
    "a fold of places": (1, 1, 4),
}


class Parts(NamedTuple):
    """The kernel, the dtype, the precision, the mode and the shape that an instance is made for."""

    kernel: str
    dtype: str
    precision: str
    mode: _matrix.Mode
    shape: _matrix.Shape


def parts_of(instance: Instance) -> Parts:
    macros = dict(instance.defines)
    element, parts = macros["ELEMENT"], int(macros["PARTS"])
    shape = [int(macros[name]) for name in ("TEAMS", "SLABS", "SEGMENT", "SEGMENTS")]
    return Parts(
        {"MmaEngine": "portable", "WgmmaEngine": "hopper"}[macros["ENGINE"]],
        "float32" if element == "float" else element,
        "tf32" if element == "float" and parts == 1 else "float32",
        _matrix.Mode(element, macros.get("OPERAND", element), parts),
        _matrix.Shape(*shape),
    )


def kind_of(instance: Instance) -> str:
    """All of them in turn, for each mode; the largest shapes have no room for a fold's lattices."""
    before = 0
    for _, same in itertools.groupby(MATRIX, lambda other: parts_of(other)[:4]):
        own = list(same)
        if instance in own:
            place = own.index(instance)
            break
        before += len(own) // 4
    return list(KINDS)[(place % 4 + (place // 4 + before) * 2) % len(KINDS)]


def matrix_case(instance: Instance) -> Convolution:
    """A call of its kind, with an odd number of columns and more channels than rings hold."""
    _, dtype, precision, mode, shape = parts_of(instance)
    channels = (12 if shape.teams == 1 else 6) * mode.block + 3
    function, input_shape, weight_shape, options = KINDS[kind_of(instance)](
        3 * shape.columns // 4 + 7, channels, shape.rows + 9
    )
    return convolution(
        function, input_shape, weight_shape, dtype_of(ELEMENTS[dtype]),
        bias=True, groups=2, precision=precision, **options,
    )  # fmt: skip


@pytest.fixture
def several(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tilings, plans choose among those of the instance that divide x and another axis."""
    candidates, parts = _matrix._candidates, parts_of(instance)

    def suitable(*arguments: Any) -> Iterator[_matrix.Tiling]:
        for tiling in candidates(*arguments):
            *outer, x = tiling.tiles
            if tiling.shape == parts.shape and x > 1 and math.prod(outer) > 1:
                yield tiling

    monkeypatch.setattr(_matrix, "_candidates", suitable)
    monkeypatch.setattr(_matrix, "_least_cycles", lambda *_: 0)
    monkeypatch.setattr(_matrix, "mode", lambda *arguments: parts.mode)
    folds = FOLDS.get(kind_of(instance), (1, 1, 1)) if instance in MATRIX else (1, 1, 1)
    monkeypatch.setattr(_matrix, "folds_of", lambda *arguments: [folds])
    monkeypatch.setattr(_plan, "_matrix_sum", _plan._matrix_sum.__wrapped__)
    monkeypatch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
    monkeypatch.setattr(_plan, "_plan_fused", _plan._plan_fused.__wrapped__)


@pytest.mark.emulator
@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("instance", MATRIX, ids=str)
def test_matrix_instance(instance: Instance) -> None:
    backend = Recorder(parts_of(instance).kernel)
    test_convolution.check(backend, matrix_case(instance))
    (plan,) = backend.plans
    assert backend.launches == [plan.pack, plan.launch]
    assert plan.launch.instance == instance
    sum, tiling = plan.sum, plan.tiling
    assert plan.launch.grid < 2 * tiling.count * sum.phases, "each block has one tile"
    assert sum.axes[2].taps.positions(0) % tiling.tile[3]
    assert sum.channels % 8
    assert -(-sum.blocks // sum.depth) * sum.axes[0].most_taps > tiling.stages
    assert sum.steps > tiling.weight_stages * sum.group
    kind = kind_of(instance)
    if kind != "a fold":  # whose rows are few
        assert tiling.row_tiles > 1 or sum.matrix_rows % tiling.shape.rows
    assert (kind == "lattices") == (sum.axes[2].lattices > 1 and sum.folds == 1)
    assert ("phases" in kind or "transposed" in kind) == (sum.phases > 1)
    assert tuple(fold.count for fold in sum.fold) == FOLDS.get(kind, (1, 1, 1))
    assert ("three" in kind) == (sum.axes[0].most_taps > 1)


# What sums of several spans tell apart, by the channels c and the rows r of a group.
SPAN_KINDS: dict[str, Any] = {
    "apart": lambda c, r: ("conv2d", (1, 2 * c, 5, 9), (2 * r, c, 3, 2), {"padding": 1}),
    "together": lambda c, r: (
        "conv_transpose2d", (9, 2 * c, 5, 13), (2 * c, r, 3, 3), {"stride": (2, 1)},
    ),
    "three axes": lambda c, r: ("conv3d", (2, 2 * c, 4, 5, 7), (2 * r, c, 2, 1, 3), {}),
}  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("kind", SPAN_KINDS)
@pytest.mark.parametrize("instance", SPANS, ids=str)
def test_spans_instance(instance: Instance, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups, and three spans, the last one with a ragged block of channels."""
    _, dtype, precision, mode, shape = parts_of(instance)
    monkeypatch.setattr(_matrix, "span_shapes", lambda mode: (shape,))
    monkeypatch.setattr(_matrix, "mode", lambda *arguments: mode)
    monkeypatch.setattr(_plan, "_plan_conv", _plan._plan_conv.__wrapped__)
    monkeypatch.setattr(_plan, "_matrix_sum", _plan._matrix_sum.__wrapped__)
    cycles = _matrix._cycles
    apart = kind != "together"
    monkeypatch.setattr(_matrix, "_cycles", lambda *arguments: (cycles(*arguments)[0], apart))
    function, input_shape, weight_shape, options = SPAN_KINDS[kind](
        9 * mode.block - 5, shape.rows + 9
    )
    case = convolution(
        function, input_shape, weight_shape, dtype_of(ELEMENTS[dtype]),
        bias=True, groups=2, precision=precision, **options,
    )  # fmt: skip
    backend = Recorder("spans")
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert backend.launches == [plan.pack, plan.launch]
    assert plan.launch.instance == instance
    sum, tiling = plan.sum, plan.tiling
    assert sum.spans in (3, 9) and sum.channels % mode.block
    assert tiling.apart == apart and not tiling.resident
    assert tiling.row_tiles > 1
    tiles = 2 * tiling.count * sum.phases
    assert plan.launch.grid < tiles * (sum.spans if apart else 1), "each block has one tile"


@pytest.mark.emulator
@pytest.mark.parametrize(
    "case",
    [
        test_windows.late("float32", 2112),
        test_windows.late("tf32", 2112),
        convolution("conv2d", (2, 64, 3, 5), (64, 64, 5, 7), "float16", padding="same"),
    ],
    ids=["float32", "tf32", "float16"],
)
def test_rows_that_blocks_share(case: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a GPU has multiprocessors to spare, blocks share the weights of some rows."""
    backend = Recorder("hopper")
    monkeypatch.setattr(backend.path.device, "processor", lambda: Processor("sm_90a", 32))
    result = backend.compute(case)
    assert_convolution(result, case.defined, case["input"].dtype, case.precision)
    (plan,) = backend.plans
    assert backend.launches == [plan.pack, plan.launch]
    assert plan.splits > 1 and plan.pack.grid >= 2 * 64 // plan.sum.mode.pack_rows


@pytest.mark.emulator
@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("instance", POOLED, ids=str)
def test_pooled_instance(instance: Instance) -> None:
    """The fused operation, with odd sizes and more rows than a block has."""
    kernel, dtype, precision, _, shape = parts_of(instance)
    channels = shape.rows + 8
    case = test_fused.fused_case(
        (1, 22, 5, shape.columns // 2 + 5),
        (22, channels, 3, 5),
        dtype_of(ELEMENTS[dtype]),
        num_groups=channels,
        groups=2,
        precision=precision,
    )
    backend = Recorder(kernel)
    test_fused.check(backend, case)
    (plan,) = backend.plans
    assert plan.launch.instance == instance
    assert [launch.instance.function for launch in backend.launches] == [
        *("pack_weights", "matrix_conv", "combine", "normalize")
    ]
    assert {launch.instance for launch in backend.launches[2:]} <= set(INSTANCES)
    assert plan.launch.grid < 2 * plan.tiling.count, "each block has one tile"


def layouts(x: Any) -> Iterator[Any]:
    """The same values in packs and halves of them, across channels or samples, and one by one."""
    yield x
    for axis in (0, 1):
        yield np.moveaxis(np.moveaxis(x, axis, -1).copy(), -1, axis)
    yield x[:, :, ::-1, ::-1].copy()[:, :, ::-1, ::-1]
    longer = np.empty((*x.shape[:-1], x.shape[-1] + 16), x.dtype)
    for start in (16, max(2, 8 // x.itemsize), 1):  # rows that lie apart
        view = longer[..., start : start + x.shape[-1]]
        view[...] = x
        yield view
        longer = longer.copy()


@pytest.fixture
def few_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory is for none but the smallest groups."""
    monkeypatch.setattr(_plan, "_SHARED_ASIDE", _plan.SHARED["sm_90a"] - 64)
    monkeypatch.setattr(_launch, "plan_norm", _plan.plan_norm.__wrapped__)


def norms_on_all_layouts(
    function: str, shape: tuple[int, ...], dtype: Any, arrays: dict[str, Any], **options: Any
) -> list[Launch]:
    """Check a norm on each layout, of the input and of the result: all have the same bits."""
    x = values(np.random.default_rng(0), shape, dtype)
    backend, results = Recorder(), []
    for view in layouts(x):
        case = Case(function, {"input": view, **arrays}, options)
        test_norms.check(backend, case)
        results.append(backend.compute(case))
        for out in layouts(np.empty_like(x)):
            results.append(backend.compute(Case(function, case.arrays, options), out=out))
    for result in results[1:]:
        assert_same_bits(result, results[0])
    return backend.launches


@pytest.mark.emulator
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_one_tap_where_shared_memory_is_small(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages of many channels are shorter there, or none would fit."""
    backend = Recorder("portable")
    monkeypatch.setattr(backend.path.device, "processor", lambda: Processor("sm_86", 2))
    case = convolution("conv2d", (2, 75, 17, 44), (70, 75, 1, 1), bias=True, precision=precision)
    test_convolution.check(backend, case)
    (plan,) = backend.plans
    assert isinstance(plan, MatrixPlan)
    assert plan.sum.depth == (2 if precision == "float32" else 4)


FUSED_DTYPES = [i for i in OTHERS if dict(i.defines).get("INPUT") != dict(i.defines).get("OUTPUT")]
FUSED_ONLY = [i for i in OTHERS if i in FUSED_DTYPES or i.function == "normalize_tanh"]
NORMS = [i for i in OTHERS if i.source == "normalize.cu" and i not in FUSED_ONLY]
POOLS = [i for i in OTHERS if i.source == "max_pool2d.cu"]


@cache
def norm_launches(kind: str, dtype: Any, width: int) -> list[Launch]:
    """Several segments in each set, or several sets of several packs for each thread."""
    weight = values(np.random.default_rng(1), (8,), np.float64)
    arrays: dict[str, Any] = {"weight": weight, "bias": weight[::-1]}
    if kind == "sets":
        shape = (3, 8, 23, width)
        return norms_on_all_layouts("group_norm", shape, dtype, arrays, num_groups=2)
    if kind == "given":
        arrays |= {"mean": weight, "var": weight * weight}
        return norms_on_all_layouts("batch_norm", (2, 8, 5, width), dtype, arrays)
    return norms_on_all_layouts("batch_norm", (8, 8, 45, width), dtype, arrays)


@pytest.mark.emulator
@pytest.mark.parametrize("instance", NORMS, ids=str)
@pytest.mark.parametrize("width", [48, 47])
def test_norm_instance(instance: Instance, width: int) -> None:
    """Instances that one call has together are tested by it."""
    kind = {"normalize_sets": "sets", "given": "given"}.get(instance.function, "batch")
    dtype = dtype_of(dict(instance.defines)["INPUT"])
    assert instance in [launch.instance for launch in norm_launches(kind, dtype, width)]


@pytest.mark.emulator
@pytest.mark.usefixtures("few_fit")
def test_groups_that_do_not_fit() -> None:
    for width in (48, 47):
        launches = norms_on_all_layouts(
            "group_norm", (4, 4, 25, width), np.float32, {}, num_groups=2
        )
        assert {launch.instance.function for launch in launches} == {
            "statistics", "combine", "normalize"
        }  # fmt: skip


@pytest.mark.emulator
def test_more_axes_than_are_unrolled() -> None:
    """None of which lie as one."""
    x = np.random.default_rng(0).standard_normal((4, 8, 6, 4, 6, 10), np.float32)[
        (slice(None, None, 2),) * 6
    ]
    backend = Recorder()
    test_norms.check(backend, Case("batch_norm", {"input": x}, {}))
    test_norms.check(backend, Case("group_norm", {"input": x}, {"num_groups": 2}))
    test_pooling.check(backend, Case("max_pool2d", {"input": x[0, 0]}, {"kernel_size": 2}))


@pytest.mark.emulator
@pytest.mark.parametrize("instance", POOLS, ids=str)
@pytest.mark.parametrize("sizes", [(3, 2, 1), (2, 2, 0), (3, 1, 0)], ids=str)
def test_pool_instance(instance: Instance, sizes: tuple[int, int, int]) -> None:
    """Several blocks; windows that reach out of the array, pairs, and others."""
    options = dict(zip(("kernel_size", "stride", "padding"), sizes, strict=True))
    dtype = dtype_of(dict(instance.defines)["ELEMENT"])
    backend = Recorder()
    for width in (23, 24):
        for x in layouts(values(np.random.default_rng(0), (2, 3, 21, width), dtype)):
            test_pooling.check(backend, Case("max_pool2d", {"input": x}, options))
    assert {launch.instance for launch in backend.launches} == {instance}


@pytest.mark.emulator
@pytest.mark.usefixtures("few_fit")
@pytest.mark.parametrize("instance", FUSED_ONLY, ids=str)
def test_instance_of_the_fused_operation(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Recorder("direct")
    dtype = dtype_of(dict(instance.defines)["OUTPUT"])
    x = values(np.random.default_rng(0), (2, 4, 22, 26), dtype)
    w = values(np.random.default_rng(1), (4, 6, 3, 3), dtype)
    if instance.function == "normalize_sets":
        monkeypatch.undo()
    test_fused.check(backend, test_fused.fused_case(x.shape, w.shape, x.dtype, num_groups=3))
    assert instance in [launch.instance for launch in backend.launches]
