"""Mutants of the copies with borders, and of their transpose."""

from __future__ import annotations

import numpy as np

from gradients import gradient
from mutants import Mutant, Suite
from mutants.direct_conv import check
from strategies import PADDING_MODES, convolution

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
    "as many lanes for all lines": Mutant("groups = THREADS / p.lanes", "groups = 8", case="lanes"),
    "the first line for all": Mutant(
        "(turn ? line.gathered(p, turn) : start)", "start", case="fold, wrap",
    ),
    "the bias of the first channel": Mutant(
        "(p.bias, line.channel)", "(p.bias, 0)", case="fold, edge",
    ),
    "a sum that begins with the bias each time": Mutant(
        "total = add(total, from[places.at(i)]);",
        "total = add(add(total, bias), from[places.at(i)]);", case="fold, symmetric",
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
    "fold of halves": convolution(
        "conv_transpose1d", (2, 2, 9), (2, 3, 3), "float16", stride=2, padding=6,
        output_padding=1, padding_mode="symmetric",
    ),
    "four axes, of a gradient": gradient(
        "input", (1, 2, 2, 3, 2, 4), (2, 2, 1, 2, 1, 2), padding=1, padding_mode="symmetric"
    ),
}  # fmt: skip
LANES = CASES["lanes"]
CASES["reversed lanes"] = LANES.with_arrays(input=np.flip(LANES["input"]).copy()[..., ::-1])

SUITE = Suite(
    "borders",
    BORDERS,
    MUTANTS,
    CASES,
    files=(BORDERS, MODES),
    check=check,
)
