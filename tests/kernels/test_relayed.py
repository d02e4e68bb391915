"""Copies in C order between channels-last arrays and kernels that read along places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from test_im2col_conv import (
    ARRANGED,
    arranged_calls,
    assert_bits_as_arranged,
    check_arranged,
    compute_into,
    last,
)

from backends import CupyBackend, EmulatorBackend, NumpyBackend
from bounds import assert_same_bits
from cupyconv import _chunks
from cupyconv._kernels import choice, relayed, row_blocks
from planning import Steering
from reference import Array
from running import Recorder
from strategies import Convolution, convolution, poison

every_backend = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(EmulatorBackend(), id="emulator", marks=[pytest.mark.emulator]),
        pytest.param(CupyBackend(), id="cupy", marks=[pytest.mark.gpu]),
    ],
)


@pytest.fixture(autouse=True)
def of_any_size(steer: Steering) -> None:
    """Let small arrays be copied, too."""
    steer.replace(relayed, LEAST_BYTES=0, LEAST_WIDTH=2)
    # The direct kernel takes most small calls, and reads arrays as they lie.
    steer.replace(choice, relay=lambda question, strides: relayed.relay(question, strides))


def channels_last(case: Convolution) -> Convolution:
    return case.with_arrays(input=last(case["input"]))


def copies(backend: Recorder) -> int:
    return sum(launch.instance.function == "channels_last" for launch in backend.launches)


@every_backend
@given(calls=arranged_calls())
def test_how_arrays_lie_changes_no_bit(
    backend: NumpyBackend, calls: tuple[Convolution, Convolution, str]
) -> None:
    check_arranged(backend, calls)


CASES = {
    "float32": convolution("conv2d", (3, 6, 9, 11), (4, 6, 3, 3), bias=True, padding=1),
    "float16": convolution("conv2d", (3, 6, 9, 11), (4, 6, 3, 3), "float16", bias=True),
    "groups": convolution("conv2d", (3, 6, 9, 11), (4, 3, 3, 3), "float16", groups=2),
    "one axis": convolution("conv1d", (2, 70, 90), (66, 70, 3), "float16", padding=1),
    "three axes": convolution("conv3d", (2, 5, 3, 4, 5), (6, 5, 2, 2, 2), stride=2),
    "transposed": convolution("conv_transpose2d", (3, 5, 4, 5), (5, 6, 3, 3), stride=2),
    "depthwise": convolution("conv2d", (3, 6, 9, 11), (6, 1, 3, 3), "float16", groups=6),
    "an odd width": convolution("conv2d", (2, 7, 9, 11), (3, 7, 2, 2), "float16"),
    "unbatched": convolution("conv2d", (6, 9, 11), (4, 6, 3, 3)),
}
# How input and result lie, and how many of both are copied.
WAYS = [
    ("channels last", "channels last", 2),
    ("channels last", "C order", 1),
    ("C order", "channels last", 1),
    ("C order", "C order", 0),
    ("whole chunks", "whole chunks", 1),  # between places there is room, which results keep
    ("misaligned", "C order", 1),
    ("every other", "every other", 1),
    ("cropped", "cropped", 0),
    ("reversed", "reversed", 0),
    ("another axis", "another axis", 0),
]


@pytest.mark.emulator
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(("of_input", "of_out", "copied"), WAYS)
def test_what_is_copied(kind: str, of_input: str, of_out: str, copied: int) -> None:
    """Inputs whose places lie as one, and results that lie as one array."""
    case, axis = CASES[kind], 0 if kind == "unbatched" else 1
    if kind == "unbatched" and "other" in of_input + of_out:
        return
    backend = Recorder()
    expected = backend.compute(case)
    arranged = case.with_arrays(input=ARRANGED[of_input](case["input"], axis))
    backend = Recorder()
    out = ARRANGED[of_out](poison(np.empty_like(expected)), axis)
    assert_same_bits(compute_into(backend, arranged, out), expected)
    # The places of a part of one axis are as far from each other as those of the whole.
    assert copies(backend) == copied + (kind == "one axis" and of_input == "cropped")


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["float32", "float16", "transposed"])
def test_chunks_of_samples(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[kind]
    expected = EmulatorBackend().compute(case)
    monkeypatch.setattr(
        _chunks, "_CHUNK_BYTES", 2 * expected[0].nbytes + 2 * case["input"][0].nbytes
    )
    backend = Recorder()
    out = last(poison(np.empty_like(expected)))
    assert_same_bits(compute_into(backend, channels_last(case), out), expected)
    assert copies(backend) > 2


# Which of both are copied: their channels lie innermost.
every_copy = pytest.mark.parametrize(
    ("of_input", "of_out"),
    [
        ("channels last", "channels last"),
        ("channels last", "C order"),
        ("C order", "channels last"),
    ],
)


@pytest.mark.emulator
@pytest.mark.parametrize("kernel", choice.UNFOLDED)
@every_copy
def test_padded_ends_of_an_axis(kernel: str, of_input: str, of_out: str) -> None:
    """Where taps are channels, outputs at both ends are computed from slices of the copies."""
    padding = (4, 5), (0, 0)
    case = convolution("conv2d", (2, 3, 40, 9), (60, 1, 33, 2), groups=3, padding=padding)
    expected = EmulatorBackend(kernel).compute(case)
    backend = Recorder(kernel)
    assert_bits_as_arranged(backend, case, expected, of_input, "C order", of_out)
    functions = [launch.instance.function for launch in backend.launches]
    assert functions.count("direct_conv") == 2 and copies(backend)


@pytest.mark.emulator
@pytest.mark.parametrize("batch", [(), (2,)], ids=["unbatched", "batched"])
@every_copy
def test_blocks_of_output_channels(
    batch: tuple[int, ...], of_input: str, of_out: str, steer: Steering
) -> None:
    """Each writes its slice of the results, with a batch axis or without one."""
    case = convolution("conv2d", (*batch, 40, 9, 11), (150, 40, 3, 3), "float16", padding=1)
    expected, axis = EmulatorBackend("portable").compute(case), len(batch)
    # The packed weights of a block of 128 channels take about this.
    steer.replace(row_blocks, most_workspace=lambda question: 2**17)
    arranged = case.with_arrays(input=ARRANGED[of_input](case["input"], axis))
    backend = Recorder("portable")
    out = ARRANGED[of_out](poison(np.empty_like(expected)), axis)
    assert_same_bits(compute_into(backend, arranged, out), expected)
    functions = [launch.instance.function for launch in backend.launches]
    assert functions.count("matrix_conv") == 2 and copies(backend)


@pytest.mark.emulator
def test_small_arrays_are_not_copied(steer: Steering) -> None:
    steer.replace(relayed, LEAST_BYTES=2**22)
    backend = Recorder()
    backend.compute(channels_last(CASES["float32"]))
    assert copies(backend) == 0


@pytest.mark.emulator
@pytest.mark.parametrize("dtype", ["float64", "complex64", "int16"])
def test_other_numbers_are_not_copied(dtype: Any) -> None:
    backend = Recorder()
    case = convolution("conv2d", (3, 6, 9, 11), (4, 6, 3, 3), dtype)
    assert_same_bits(backend.compute(channels_last(case)), Recorder().compute(case))
    assert copies(backend) == 0


def nan_between(a: Array) -> Array:
    """The array with NaN after the channels of each place."""
    return last(a, gap=2)


@pytest.mark.emulator
def test_what_lies_between_places_is_not_read() -> None:
    case = CASES["float32"]
    expected = Recorder().compute(case)
    assert_same_bits(
        Recorder().compute(case.with_arrays(input=nan_between(case["input"]))), expected
    )
