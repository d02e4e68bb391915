"""Mutants of the direct kernel."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import test_convolution
import test_grad
from backends import EmulatorBackend
from gradients import Gradient, gradient
from mutants import Mutant, Suite, infinite
from strategies import Case, convolution, convolutions

DIRECT_CONV = "direct_conv.cu"
TAPS = "taps.cuh"

NUMERATOR = "numerator = phase + Integer(axis.origin)"
OUTPUT_PADDING = (
    "(axis.size_out - ((axis.size_in - 1) * axis.divisor - 2 * axis.origin"
    " + axis.dilation * (axis.kernel - 1) + 1))"
)

MUTANTS = {
    "a barrier for half of the block": Mutant(
        "        __syncthreads();\n    }\n\n    __device__ const Step* steps_of(",
        "        if (thread < 64) __syncthreads();\n    }\n\n    __device__ const Step* steps_of(",
    ),
    "two threads write one output": Mutant(
        "const int64 offset = shared.out_offset[worker.tx + c * POSITION_THREADS];",
        "const int64 offset = shared.out_offset[(worker.tx & ~1) + c * POSITION_THREADS];",
    ),
    "an output that nobody writes": Mutant(
        "if (offset == NOWHERE) continue;", "if (offset <= 0) continue;",
    ),
    # Misunderstandings.
    "output_padding in the index": Mutant(
        NUMERATOR, f"{NUMERATOR} + Integer(axis.phases > 1 ? {OUTPUT_PADDING} : 0)", file=TAPS,
    ),
    "no test of divisibility": Mutant(
        "quotient * gcd != numerator || first >= kernel", "first >= kernel", file=TAPS,
    ),
    "first tap not sought": Mutant(
        "Integer first = quotient % tap_step;", "Integer first = 0;", file=TAPS,
    ),
    "groups ignored in the input": Mutant("p.input + group * p.input_group;", "p.input;"),
    "flipped kernel": Mutant(
        "(phase.first[a] + j * p.axis[a].tap_step) * p.weight_axis[a]",
        "(p.axis[a].kernel - 1 - phase.first[a] - j * p.axis[a].tap_step) * p.weight_axis[a]",
    ),
    "swapped strides of the input": Mutant(
        "p.input_axis[a]", "p.input_axis[rank_of(p) - 1 - a]", everywhere=True,
    ),
    "swapped strides of the convolution": Mutant(
        "q * axis.step", "q * p.axis[rank_of(p) - 1 - a].step", everywhere=True,
    ),
    "last channel dropped": Mutant("p.channels", "(p.channels - 1)", everywhere=True),
    "dilation ignored": Mutant(
        "j * Coordinate(p.axis[a].offset_step)", "j * (p.axis[a].offset_step < 0 ? -1 : 1)",
    ),
    "bias of another group": Mutant("group * p.rows + row0 + row", "row0 + row"),
    "an empty range without a barrier": Mutant(
        "split * of_range < slices ? split * of_range : slices", "split * of_range",
        case="ranges of phases",
    ),
    "the whole kernel inside, but its last tap": Mutant(
        "inside &= Unsigned(last) < Unsigned(p.axis[a].size_in);", "", case="three channels",
    ),
    "padding that counts against an infinite weight": Mutant(
        "if (MASKED && !shared.present", "if (false && !shared.present",
    ),
}  # fmt: skip

# Calls that Hypothesis does not draw: sums of several slices and tables, blocks of several tiles.
CASES = {
    "groups": convolution(
        "conv2d", (2, 6, 9, 8), (8, 3, 3, 2), bias=True,
        stride=(2, 1), padding=(1, 2), dilation=(1, 3), groups=2,
    ),
    "odd phases": convolution(
        "conv_transpose2d", (2, 4, 5, 4), (4, 3, 3, 2), bias=True,
        stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(3, 2), groups=2,
    ),
    "few outputs": convolution("conv_transpose2d", (2, 4, 5, 1), (4, 3, 3, 1), stride=(2, 3)),
    "three axes": convolution("conv3d", (2, 3, 4, 5, 6), (4, 3, 2, 3, 1), padding=(1, 0, 1)),
    "large": convolution("conv2d", (3, 40, 17, 13), (70, 40, 3, 3), bias=True, padding=1),
    "phases": convolution("conv_transpose2d", (2, 12, 9, 11), (12, 20, 3, 5), bias=True, stride=2),
    "long": convolution("conv1d", (2, 150, 5), (9, 150, 5), bias=True),
    "infinite": infinite(convolution("conv2d", (1, 4, 6, 7), (20, 4, 3, 3), padding=1)),
    "infinite, few rows": infinite(convolution("conv2d", (1, 4, 6, 7), (5, 4, 3, 3), padding=1)),
    "split sums": gradient("weight", (2, 5, 700), (9, 5, 3), stride=2),
    "split sums of groups": gradient("weight", (3, 4, 13, 14), (6, 2, 3, 2), groups=2, padding=1),
    "ranges": convolution("conv1d", (2, 101, 5), (6, 101, 7), bias=True, padding=3),
    "ranges of phases": convolution("conv_transpose1d", (2, 170, 3), (170, 3, 7), stride=3),
    "three channels": convolution("conv2d", (2, 3, 14, 15), (9, 3, 3, 4), padding=((0, 0), (0, 1))),
    "many axes": convolution("conv", (1, 2, 2, 3, 2, 3, 4), (3, 2, 1, 2, 2, 1, 3)),
}  # fmt: skip
LARGE = list(CASES.values())


def check(backend: EmulatorBackend, case: Case) -> None:
    """Check a convolution, or the gradient of a weight, whose sums are split."""
    if isinstance(case, Gradient):
        test_grad.check(backend, case)
    else:
        test_convolution.check(backend, case)


# One dtype, so that few instances are built.
DTYPE = np.dtype(np.float32)
DRAWN = convolutions(
    functions=("conv", "conv_transpose"), dtypes=st.just((DTYPE, DTYPE)), unbatched=False
)

SUITE = Suite(
    "direct",
    DIRECT_CONV,
    MUTANTS,
    CASES,
    files=(DIRECT_CONV, TAPS),
    search=st.one_of(DRAWN, st.sampled_from(LARGE)),
    check=check,
)
