"""Mutants of the depthwise kernel."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite, depthwise, infinite
from strategies import Convolution

DEPTHWISE_CONV = "depthwise_conv.cu"
ROLES = ("tile", "stage", "fma", "mma", "band")


def infinite_input(case: Convolution) -> Convolution:
    """The case with some infinite inputs."""
    x = case["input"].copy()
    x.flat[::301] = np.inf
    return case.with_arrays(input=x)


def bordered(name: str, mode: str) -> Convolution:
    """One of the cases, with a padding mode."""
    case = CASES[name]
    return Convolution(case.function, case.arrays, {**case.options, "padding_mode": mode})


CASES = {
    "odd": depthwise("conv2d", (2, 3, 21, 37), (3, 3), padding=1),
    "even": depthwise("conv2d", (3, 3, 21, 40), (3, 3), 2, padding=1),
    "whole lines": depthwise("conv2d", (2, 3, 21, 72), (3, 3), 2, padding=1),
    "whole lines, no padding": depthwise("conv2d", (1, 3, 4, 72), (3, 3), padding=(1, 0)),
    "tall": depthwise("conv2d", (1, 3, 200, 76), (3, 3), padding=1),
    "channels": depthwise("conv2d", (2, 70, 7, 7), (3, 3), padding=1),
    "three axes": depthwise("conv3d", (1, 3, 5, 17, 18), (3, 3, 3), padding=1),
    "sections": depthwise("conv1d", (2, 3, 61), (3,), padding=1),
    "steps": depthwise("conv2d", (2, 3, 21, 38), (3, 2), padding=1, stride=2),
    "dilated": depthwise("conv2d", (2, 3, 21, 38), (3, 3), padding=2, dilation=(2, 1)),
    "phases": depthwise("conv_transpose2d", (2, 3, 9, 14), (3, 4), 2, padding=1, stride=2),
    "phases of planes": depthwise("conv_transpose3d", (1, 2, 3, 5, 6), (3, 2, 2), stride=2),
    "flipped": depthwise("conv_transpose2d", (2, 3, 9, 14), (3, 3), padding=1),
    "many rows": depthwise("conv1d", (1, 1, 30), (9,), 150),
    "halves": depthwise("conv2d", (2, 3, 21, 72), (3, 5), 2, "float16", padding=(1, 2)),
    "halves, odd lines": depthwise("conv2d", (1, 3, 21, 61), (3, 5), 2, "float16", padding=(1, 2)),
    "halves, even lines": depthwise("conv2d", (1, 3, 21, 62), (3, 4), 1, "float16"),
    "halves, three axes": depthwise("conv3d", (1, 3, 5, 17, 64), (3, 3, 3), 2, "float16"),
}
for name, case in {
    "odd borders": ("odd", "reflect"),
    "borders of whole lines": ("whole lines", "symmetric"),
    "borders of many tiles": ("tall", "wrap"),
    "borders of planes": ("three axes", "edge"),
    "borders of many channels": ("channels", "symmetric"),
    "borders of halves": ("halves", "wrap"),
    "borders of halves, odd lines": ("halves, odd lines", "reflect"),
}.items():
    CASES[name] = bordered(*case)
CASES["long borders"] = depthwise(
    "conv2d", (1, 2, 3, 5), (9, 11), padding=(13, 20), padding_mode="reflect"
)
CASES["borders of two axes"] = depthwise(
    "conv3d", (1, 3, 5, 17, 18), (3, 3, 3), padding=(1, 0, 1), padding_mode="edge"
)
CASES["borders at the ends"] = depthwise(
    "conv2d", (2, 3, 21, 37), (3, 3), padding=((0, 2), (0, 2)), padding_mode="symmetric"
)
CASES["infinite"] = infinite(CASES["even"])
CASES["infinite with borders"] = infinite(CASES["odd borders"])
CASES["infinite halves"] = infinite(CASES["halves"])
HALVES = CASES["halves"]
ONE = np.eye(1, HALVES["weight"].size, dtype=bool).reshape(HALVES["weight"].shape)
CASES["an infinite weight of halves"] = HALVES.with_arrays(
    weight=np.where(ONE, np.float16(np.inf), HALVES["weight"])
)
CASES["an infinite half"] = infinite_input(HALVES)
CASES["an infinite bfloat16"] = infinite_input(
    depthwise("conv2d", (1, 3, 21, 72), (3, 5), 1, "bfloat16", padding=1)
)

MUTANTS = {
    "x bound of chunks off by one": Mutant(
        "unsigned(x) < unsigned(whole);", "unsigned(x) < unsigned(whole + WIDTH);", case="even",
    ),
    "bias of the first row": Mutant("group * p.rows + in_group)", "group * p.rows)", case="even"),
    "flipped kernel": Mutant(
        "taps.offset_step < 0 ? int(taps.kernel) - 1 - place : place", "place", case="flipped",
    ),
    "chunks that do not lie as their inputs": Mutant(
        "sizeof(Element)) & (width - 1);", "sizeof(Element) + 1) & (width - 1);", case="even",
    ),
    "windows without skew": Mutant("if (start % 2)", "if (false)", case="even"),
    "taps of the first phase": Mutant(
        "memory.taps[1][strip.phases[1]];", "memory.taps[1][0];", case="phases",
    ),
    "columns of one phase": Mutant(
        "columns.x + v * columns.apart - qx * int(ax.taps.phases)", "0", case="phases",
    ),
    "pairs of odd outputs": Mutant(
        "if (SLIDE && p.pairs && count[1] == STRIP_LINES) {",
        "if (count[1] == STRIP_LINES) {", case="odd",
    ),
    "a wait for the lines of the first tile": Mutant(
        "mbarrier_wait(memory.lines_there, turn % 2);", "mbarrier_wait(memory.lines_there, 0);",
        case="tall",
    ),
    "a line that nobody waits for": Mutant(
        "mbarrier_init(memory.lines_there, int(p.whole));",
        "mbarrier_init(memory.lines_there, int(p.whole) - 1);", case="whole lines",
    ),
    "padding that counts against an infinite weight": Mutant(
        "if (!MASKED || present)", "if (true)", case="infinite",
    ),
    "lines for Tensor Cores that begin elsewhere": Mutant(
        "TENSOR_CORES ? int(p.skew)", "TENSOR_CORES ? 0", case="halves",
    ),
    "a third block that is left out": Mutant(
        "return skew + width > 9;", "return skew + width > 20;", case="halves",
    ),
    "zeros that count against an infinite input": Mutant(
        "Pairs::larger_magnitudes(largest, pairs[r]);", "largest;", case="an infinite half",
    ),
    "borders that are not waited for": Mutant(
        "before the copies of the next tile\n            __syncthreads();", "\n",
        case="odd borders",
    ),
    "borders before the copies are there": Mutant(
        "special = __syncthreads_or(special);", "", case="odd borders",
    ),
    "borders of one element a thread": Mutant(
        "if (first + u * THREADS < count) memory", "if (u == 0 && first < count) memory",
        case="borders of whole lines",
    ),
    "borders at the ends of lines alone": Mutant(
        "in_line ? y.outside() : y.within()", "y.within()", case="odd borders",
    ),
    "borders of the first channel": Mutant(
        "origin[rest * p.input_group", "origin[0 * p.input_group",
        case="borders of many channels",
    ),
    "tiles that reach out at their begin alone": Mutant(
        "first(p, a) < 0 || first(p, a) + int(p.axis[a].extent) > int(p.axis[a].taps.size_in);",
        "first(p, a) < 0;", case="borders at the ends",
    ),
    "borders that are absent for an infinite weight": Mutant(
        "masked && !p.border", "masked", case="infinite with borders",
    ),
    "infinite weights on Tensor Cores": Mutant(
        "(special && has_special_weight(p, weight))) continue;", "false) continue;",
        case="infinite halves",
    ),
}  # fmt: skip

SUITE = Suite(
    "depthwise",
    DEPTHWISE_CONV,
    MUTANTS,
    CASES,
    kernels=("depthwise",),
    files=(DEPTHWISE_CONV, *(f"depthwise_{role}.cuh" for role in ROLES)),
)
