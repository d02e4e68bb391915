"""Mutants of the direct kernel."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mutants import Mutant, Suite, infinite
from strategies import convolution, convolutions

DIRECT_CONV = "direct_conv.cu"
TAPS = "taps.cuh"

NUMERATOR = "numerator = phase + Integer(axis.origin)"
OUTPUT_PADDING = (
    "(axis.size_out - ((axis.size_in - 1) * axis.divisor - 2 * axis.origin"
    " + axis.dilation * (axis.kernel - 1) + 1))"
)

MUTANTS = {
    # Accidents.
    "input bound off by one": Mutant(
        DIRECT_CONV,
        "present &= Unsigned(i) < Unsigned(p.axis[a].size_in);",
        "present &= Unsigned(i) <= Unsigned(p.axis[a].size_in);",
        "out of bounds|between the elements|wrong",
    ),
    "rows of the result off by one": Mutant(
        DIRECT_CONV,
        "if (row >= rows) break;",
        "if (row > rows) break;",
        "nothing wrote|out of bounds",
    ),
    "rows of the weight off by one": Mutant(
        DIRECT_CONV,
        "if ((k < left) & (row < rows))",
        "if ((k < left) & (row <= rows))",
        "out of bounds",
    ),
    "steps off by one": Mutant(
        DIRECT_CONV, "if (k < steps) describe_step(", "if (k + 1 < steps) describe_step(", "wrong"
    ),
    "no barrier behind the steps": Mutant(
        DIRECT_CONV,
        "phase, Coordinate(k), shared.steps[thread]);\n        }\n        __syncthreads();",
        "phase, Coordinate(k), shared.steps[thread]);\n        }",
        "race|nothing wrote",
    ),
    "no barrier between tiles": Mutant(
        DIRECT_CONV,
        "    __syncthreads();  // before the next tile describes its outputs\n",
        "",
        "race",
    ),
    "no barrier behind a slice": Mutant(
        DIRECT_CONV,
        "masked = __syncthreads_or(special);\n    }\n    promote",
        "masked = special;\n    }\n    promote",
        "race|nothing wrote",
    ),
    "no barrier behind the mask": Mutant(
        DIRECT_CONV,
        "worker.store_present(load.present);\n            __syncthreads();",
        "worker.store_present(load.present);",
        "race|nothing wrote",
    ),
    "misaligned vector load": Mutant(
        DIRECT_CONV,
        "load.weights[i] = weight[row * p.weight_row + step[k].weight_offset];",
        "{ struct __align__(16) Vector { Element element[16 / sizeof(Element)]; };\n"
        "const Vector vector = *(const Vector*)(weight + row * p.weight_row "
        "+ step[k].weight_offset);\n"
        "load.weights[i] = vector.element[0]; }",
        "misaligned",
    ),
    "steps behind the last one that nothing wrote": Mutant(
        DIRECT_CONV,
        "shared.steps[thread] = Step();",
        "",
        "reads shared memory that nothing wrote",
    ),
    "a barrier for half of the block": Mutant(
        DIRECT_CONV,
        "        __syncthreads();\n    }\n\n    __device__ void load(",
        "        if (thread < 64) __syncthreads();\n    }\n\n    __device__ void load(",
        "hangs|waits at the barrier|race|nothing wrote",
    ),
    "two threads write one output": Mutant(
        DIRECT_CONV,
        "const int64 offset = shared.out_offset[worker.tx + c * POSITION_THREADS];",
        "const int64 offset = shared.out_offset[(worker.tx & ~1) + c * POSITION_THREADS];",
        "writes what another thread wrote",
    ),
    "an output that nobody writes": Mutant(
        DIRECT_CONV,
        "if (offset != NOWHERE) out[offset]",
        "if (offset > 0) out[offset]",
        "nobody wrote",
    ),
    # Misunderstandings.
    "output_padding in the index": Mutant(
        TAPS,
        NUMERATOR,
        f"{NUMERATOR} + Integer(axis.phases > 1 ? {OUTPUT_PADDING} : 0)",
        "wrong",
    ),
    "no test of divisibility": Mutant(
        TAPS, "quotient * gcd != numerator || first >= kernel", "first >= kernel", "wrong"
    ),
    "first tap not sought": Mutant(
        TAPS,
        "Integer first = quotient % tap_step;",
        "Integer first = 0;",
        "wrong",
    ),
    "groups ignored in the input": Mutant(
        DIRECT_CONV, "p.input + group * p.input_group;", "p.input;", "wrong"
    ),
    "groups ignored in the weight": Mutant(
        DIRECT_CONV, "p.weight + group * p.weight_group + row0", "p.weight + row0", "wrong"
    ),
    "flipped kernel": Mutant(
        DIRECT_CONV,
        "(phase.first[a] + j * p.axis[a].tap_step) * p.weight_axis[a]",
        "(p.axis[a].kernel - 1 - phase.first[a] - j * p.axis[a].tap_step) * p.weight_axis[a]",
        "wrong",
    ),
    "swapped strides of the input": Mutant(
        DIRECT_CONV,
        "p.input_axis[a]",
        "p.input_axis[rank_of(p) - 1 - a]",
        "wrong|bounds|between",
        True,
    ),
    "swapped strides of the convolution": Mutant(
        DIRECT_CONV,
        "q * axis.step",
        "q * p.axis[rank_of(p) - 1 - a].step",
        "wrong|out of bounds",
        True,
    ),
    "last channel dropped": Mutant(DIRECT_CONV, "p.channels", "(p.channels - 1)", "wrong", True),
    "dilation ignored": Mutant(
        DIRECT_CONV,
        "j * Coordinate(p.axis[a].offset_step)",
        "j * (p.axis[a].offset_step < 0 ? -1 : 1)",
        "wrong",
    ),
    "bias of another group": Mutant(
        DIRECT_CONV, "group * p.rows + row0 + row", "row0 + row", "wrong"
    ),
    "padding that counts against an infinite weight": Mutant(
        DIRECT_CONV, "if (MASKED && !shared.present", "if (false && !shared.present", "wrong"
    ),
}

# Calls that Hypothesis does not draw: sums of several slices and tables, blocks of several tiles.
LARGE = [
    convolution("conv2d", (3, 40, 17, 13), (70, 40, 3, 3), bias=True, padding=1),
    convolution("conv_transpose2d", (2, 12, 9, 11), (12, 20, 3, 5), bias=True, stride=2),
    convolution("conv1d", (2, 150, 5), (9, 150, 5), bias=True),
    infinite(convolution("conv2d", (1, 4, 6, 7), (20, 4, 3, 3), padding=1)),
    infinite(convolution("conv2d", (1, 4, 6, 7), (5, 4, 3, 3), padding=1)),
]

# One dtype, so that few instances are built.
DTYPE = np.dtype(np.float32)
DRAWN = convolutions(
    functions=("conv", "conv_transpose"), dtypes=st.just((DTYPE, DTYPE)), unbatched=False
)

SUITE = Suite("direct", DIRECT_CONV, MUTANTS, search=st.one_of(DRAWN, st.sampled_from(LARGE)))
