"""Mutants of the channels-last depthwise kernel."""

from __future__ import annotations

import numpy as np

from backends import EmulatorBackend
from bounds import assert_convolution, assert_same_bits
from mutants import Mutant, Suite, depthwise, infinite
from running import channels_last
from strategies import Convolution, poison

DEPTHWISE_LAST = "depthwise_last.cu"
STRIPS = "depthwise_strips.cuh"


def check(backend: EmulatorBackend, case: Convolution) -> None:
    """Compare with the definition, and bits with arrays in C order, which another kernel takes."""
    out = channels_last(poison(np.empty(case.defined.value.shape, case.dtype)))
    arranged = case.with_arrays(input=channels_last(case["input"]))
    backend.call(case.function, **arranged.arrays, **case.options, out=out)
    assert_convolution(out, case.defined, case.dtype, case.precision)
    assert_same_bits(out, EmulatorBackend(backend.kernel).compute(case))


# Several tiles of channels, and strips along both axes, the last of each a part of one.
CASES = {
    "strips": depthwise("conv2d", (2, 20, 13, 30), (3, 3), 2, padding=1),
    "steps": depthwise("conv2d", (3, 20, 14, 27), (5, 5), stride=2, padding=((1, 2), (2, 0))),
    "flipped": depthwise("conv_transpose2d", (2, 33, 6, 11), (3, 3), padding=1),
    "flipped rows": depthwise("conv_transpose2d", (1, 20, 6, 11), (3, 3), 2),
    "halves": depthwise("conv2d", (1, 40, 9, 25), (7, 7), 1, "float16", padding=3),
    "far": depthwise("conv2d", (1, 20, 3, 5), (3, 3), padding=((2, 0), (0, 2))),
}
CASES["no bias"] = CASES["far"].with_arrays(bias=None)
CASES["infinite"] = infinite(CASES["strips"])

MUTANTS = {
    "transposed taps": Mutant("weights[y][x], value", "weights[x][y], value", case="strips"),
    "lines that do not exist": Mutant(
        "if (turn >= 0 && has_line(line + s))", "if (turn >= 0)", case="infinite"
    ),
    "columns that do not exist": Mutant(
        "if (EVERY || (present >> i & 1u)) values[i]", "values[i]", case="strips"
    ),
    "loads beyond the array": Mutant(
        "if (turn + 1 < turns && has_line(line + STEP + s))", "if (turn + 1 < turns)", case="strips"
    ),
    "a bias of the first channels": Mutant(
        "load_parameter<Accumulator>(p.bias, channel)", "load_parameter<Accumulator>(p.bias, lane)",
        case="strips",
    ),
    "sums without the bias": Mutant("sums[OPEN - 1][c] = bias;", "sums[OPEN - 1][c] = 0;", "steps"),
    "columns beyond the output": Mutant("if (c < strip.columns) to", "to", case="steps"),
    "inputs of other channels": Mutant(
        "input(p.input + strip.sample * p.input_batch + divided(channel, int(p.rows)) +",
        "input(p.input + strip.sample * p.input_batch + channel +", case="strips",
    ),
    "weights that nobody waits for": Mutant("__syncthreads();", "", case="strips"),
    "flipped kernel": Mutant("p.weight[p.weight_first + ", "p.weight[", case="flipped"),
    "weights of the first row": Mutant(
        "row * p.weight_row + ", "", case="flipped rows",
    ),
}  # fmt: skip

SUITE = Suite(
    "depthwise_last",
    DEPTHWISE_LAST,
    MUTANTS,
    CASES,
    kernels=("gather",),
    files=(DEPTHWISE_LAST, STRIPS),
    check=check,
)
