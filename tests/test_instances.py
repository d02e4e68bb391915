"""Every instance that the planner can return, on the emulator: more than one tile on each axis,
a ragged last tile, and sums that are longer than what the kernel has under way at once.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import test_convolution
import test_fused
import test_norms
import test_pooling
from backends import EmulatorBackend
from cupyconv import _plan
from cupyconv._plan import Instance, Launch
from strategies import Case, Convolution, values

# The planner's names of elements, to those of NumPy and ml_dtypes; signed integers are summed as
# unsigned ones.
DTYPES = {element: dtype for dtype, element in {**_plan._ELEMENTS, **_plan._SIGNED}.items()}
INSTANCES = _plan.instances("sm_90a")
CONVOLUTIONS = [i for i in INSTANCES if i.source == "direct_conv.cu"]
OTHERS = [i for i in INSTANCES if i.source != "direct_conv.cu"]


def dtype_of(element: str) -> np.dtype[Any]:
    name = DTYPES[element]
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class Recorder(EmulatorBackend):
    """Remembers what was launched."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []
        run = self.path.device.run

        def recorded(launch: Launch, arguments: np.ndarray) -> None:
            self.launches.append(launch)
            run(launch, arguments)

        self.path.device.run = recorded  # type: ignore[method-assign]


def tile_of(instance: Instance) -> _plan.Tile:
    macros = {name: value for name, value in instance.defines if name not in ("ELEMENT", "RANK")}
    return _plan.Tile(*map(int, macros.values()))


def convolution_for(instance: Instance, transposed: bool) -> Convolution:
    """A call that the instance runs: two groups, one and a half tiles of rows and positions."""
    macros = dict(instance.defines)
    tile, rank = tile_of(instance), int(macros["RANK"]) or 4
    rows = tile.rows + tile.rows // 2 + 1
    if tile.row_threads == 1:
        rows = min(rows, _plan._NARROW_ROWS - 1)
    channels = 11  # more than a chunk of them, and not a multiple
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
def test_convolution_instance(instance: Instance) -> None:
    transposed = sum(map(ord, str(instance))) % 2 == 0
    case, tile = convolution_for(instance, transposed), tile_of(instance)
    backend = Recorder()
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


def other_case(instance: Instance) -> Case:
    """A norm of several segments in each set, or a pooling of several blocks."""
    rng = np.random.default_rng(0)
    macros = dict(instance.defines)
    if instance.source == "max_pool2d.cu":
        x = values(rng, (2, 3, 21, 23), dtype_of(macros["ELEMENT"]))
        return Case("max_pool2d", {"input": x}, {"kernel_size": 3, "stride": 2, "padding": 1})
    x = values(rng, (2, 2, 81, 103), dtype_of(macros["INPUT"]))
    statistics = {"mean": np.ones(2), "var": np.ones(2)} if instance.function == "given" else {}
    return Case("batch_norm", {"input": x, **statistics}, {})


@pytest.mark.emulator
@pytest.mark.parametrize("instance", OTHERS, ids=str)
def test_other_instance(instance: Instance) -> None:
    macros = dict(instance.defines)
    backend = Recorder()
    if macros.get("INPUT") != macros.get("OUTPUT"):  # the last stage of the fused operation
        x = values(np.random.default_rng(0), (2, 4, 6, 7), dtype_of(macros["OUTPUT"]))
        w = values(np.random.default_rng(1), (4, 6, 3, 3), dtype_of(macros["OUTPUT"]))
        test_fused.check(backend, test_fused.fused_case(x.shape, w.shape, x.dtype, num_groups=3))
    else:
        case = other_case(instance)
        check = test_pooling.check if case.function == "max_pool2d" else test_norms.check
        check(backend, case)
    assert instance in [launch.instance for launch in backend.launches]
