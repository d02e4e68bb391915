"""Mutants of the copies with borders, and of their transpose."""

from __future__ import annotations

import numpy as np

from backends import NumpyBackend
from gradients import gradient
from mutants import Mutant, Suite
from mutants.direct_conv import check
from strategies import PADDING_MODES, Case, convolution

BORDERS, MODES = "borders.cu", "border_modes.cuh"

MUTANTS = {
    "a reflection that repeats the border": Mutant(
        "(mode == REFLECT ? 2 : 0)", "(mode == REFLECT ? 1 : 0)", case="pad, reflect",
    ),
    "a reflection that leaves the border out": Mutant(
        "return period - rest - (mode == SYMMETRIC ? 1 : 0);", "return period - rest;",
        case="pad, symmetric",
    ),
    "a remainder below zero": Mutant("if (rest < 0) rest += period;", "", case="pad, wrap"),
    "one border for both ends": Mutant("position < 0 ? 0 : size - 1", "0", case="pad, edge"),
    "a last position that is left out": Mutant(
        "(last % period < next ? 1 : 2)", "1", case="fold, reflect",
    ),
    "an element of both ends that has one": Mutant(
        "index == size - 1 ? wide : place + 1", "index == size - 1 && size > 1 ? wide : place + 1",
        case="fold of one element",
    ),
    "as many lanes for all lines": Mutant(
        "group = int(threadIdx.x) / lanes;", "group = int(threadIdx.x) / 32;", case="lanes",
    ),
    "the first plane for all": Mutant(
        "planes.gathered(p, turn);", "planes.gathered(p, 0);", case="four axes, of a gradient",
    ),
    "the bias of the first channel": Mutant(
        "int64(y) : planes.channel", "int64(y) : 0", case="fold, edge",
    ),
    "a first term that counts twice": Mutant(
        "if (turn || j || i) total", "total", case="fold, symmetric",
    ),
    "a turning element that counts twice": Mutant(
        "lower >= 0 && lower != place", "lower >= 0", case="long lines, folded",
    ),
    "elements between those that lie apart": Mutant(
        "index < size && index * step == position ? index", "index < size ? index",
        case="apart, by FFT",
    ),
    "the first component of an axis for all": Mutant(
        "return Int(own * p.shift[axis]);", "return 0;",
        case="components, by FFT",
    ),
    "all places of a component": Mutant(
        "COMPONENTS ? position * Int(p.wide_step[axis]) : position", "position",
        case="placed, by FFT",
    ),
    "elements beyond the last one": Mutant(
        "return position < size ? position : -1;", "return position;", case="placed, by FFT",
    ),
}  # fmt: skip

CASES = {
    f"pad, {mode}": convolution(
        "conv2d", (2, 3, 4, 5), (2, 3, 2, 2), bias=True,
        padding=((9, 2), (14, 11)), stride=(1, 2), padding_mode=mode,
    )
    for mode in PADDING_MODES
}  # fmt: skip
CASES |= {
    f"fold, {mode}": convolution(
        "conv_transpose2d", (2, 3, 9, 16), (3, 2, 5, 4), bias=True,
        padding=((3, 6), (9, 7)), padding_mode=mode,
    )
    for mode in PADDING_MODES
}  # fmt: skip
CASES |= {
    "lanes": convolution(
        "conv3d", (2, 2, 3, 2, 3), (2, 2, 1, 2, 1), padding=(2, 1, 1), padding_mode="wrap"
    ),
    "long lines": convolution("conv1d", (2, 2, 70), (2, 2, 3), padding=40, padding_mode="reflect"),
    "long lines, folded": convolution(
        "conv_transpose1d", (9, 2, 150), (2, 3, 3), padding=40, padding_mode="reflect"
    ),
    "fold of one element": convolution(
        "conv_transpose2d", (1, 1, 7, 3), (1, 2, 1, 1), padding=(3, 1), padding_mode="edge"
    ),
    "fold of a pad alone": convolution(  # which does not show the second row
        "conv_transpose2d", (1, 1, 1, 2), (1, 2, 3, 1), bias=True, stride=(3, 1),
        padding=((3, 0), (0, 0)), output_padding=(2, 0), padding_mode="edge",
    ),
    "fold of a pad alone, along x": convolution(
        "conv_transpose2d", (1, 1, 2, 1), (1, 2, 1, 3), stride=(1, 3),
        padding=((0, 0), (3, 0)), output_padding=(0, 2), padding_mode="edge",
    ),
    "fold of a pad alone, of planes": convolution(
        "conv_transpose3d", (1, 1, 1, 2, 2), (1, 2, 3, 1, 1), stride=(3, 1, 1),
        padding=((3, 0), (0, 0), (0, 0)), output_padding=(2, 0, 0), padding_mode="edge",
    ),
    "fold of halves": convolution(
        "conv_transpose1d", (2, 2, 9), (2, 3, 3), "float16", stride=2, padding=6,
        output_padding=1, padding_mode="symmetric",
    ),
    "four axes, of a gradient": gradient(
        "input", (1, 2, 2, 3, 2, 4), (2, 2, 1, 2, 1, 2), padding=1, padding_mode="symmetric"
    ),
}  # fmt: skip
CASES |= {
    "placed, by FFT": convolution(
        "conv2d", (2, 2, 5, 6), (2, 2, 3, 2), padding=((2, 1), (0, 3)), stride=(2, 1), method="fft"
    ),
    "components, by FFT": convolution(
        "conv3d",
        (2, 2, 7, 9, 8),
        (2, 2, 3, 4, 3),
        stride=(2, 3, 4),
        dilation=(1, 2, 3),
        padding=(1, 0, 2),
        method="fft",
    ),
    "components with borders, by FFT": convolution(
        "conv2d",
        (2, 2, 4, 5),
        (2, 2, 3, 4),
        stride=(2, 3),
        padding=7,
        padding_mode="reflect",
        method="fft",
    ),
    "apart, by FFT": convolution(
        "conv_transpose3d", (1, 2, 2, 3, 4), (2, 1, 2, 2, 3), stride=(1, 2, 3), method="fft"
    ),
}
LANES = CASES["lanes"]
CASES["reversed lanes"] = LANES.with_arrays(input=np.flip(LANES["input"]).copy()[..., ::-1])


def check_calls(backend: NumpyBackend, case: Case) -> None:
    """Check a call: by FFT beside sums over taps, all others as the direct kernel's."""
    if case.options.get("method") != "fft":
        check(backend, case)
        return
    direct = {**case.options, "method": "direct"}
    expected = NumpyBackend().call(case.function, **case.arrays, **direct)
    np.testing.assert_allclose(backend.compute(case), expected, atol=1e-4)


SUITE = Suite(
    "borders",
    BORDERS,
    MUTANTS,
    CASES,
    files=(BORDERS, MODES),
    check=check_calls,
)
