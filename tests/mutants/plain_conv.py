"""Mutants of the FMA kernel."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite, infinite
from strategies import convolution

PLAIN_CONV = "plain_conv.cu"

# Several tiles of a block, and a ragged last row tile.
CASES = {
    "neighbours": convolution(
        "conv2d", (3, 6, 19, 131), (26, 3, 2, 3), bias=True, groups=2, padding=(1, 2)
    ),
    "phases": convolution(
        "conv_transpose2d", (2, 10, 13, 70), (10, 11, 3, 4), bias=True, groups=2,
        stride=(2, 3), padding=1,
    ),
    "pairs": convolution(
        "conv_transpose2d", (3, 4, 14, 70), (4, 9, 3, 2), bias=True, groups=2, stride=2
    ),
    "steps": convolution(
        "conv2d", (2, 4, 19, 141), (22, 2, 2, 3), bias=True, groups=2,
        stride=(1, 2), dilation=(1, 3), padding=(0, 4),
    ),
    "three axes": convolution(
        "conv_transpose3d", (2, 6, 5, 9, 67), (6, 10, 3, 3, 2), bias=True,
        stride=(2, 1, 1), padding=(0, 1, 0),
    ),
    "no taps": convolution(
        "conv_transpose2d", (2, 6, 9, 69), (6, 10, 3, 3), bias=True, stride=2, dilation=2
    ),
    "no taps, wide": convolution(
        "conv_transpose2d", (1, 6, 9, 141), (6, 10, 3, 3), bias=True, stride=2, dilation=2
    ),
    "busy phases": convolution(
        "conv_transpose2d", (2, 6, 19, 39), (6, 10, 3, 3), bias=True, stride=5, dilation=2
    ),
    "half": convolution(
        "conv2d", (2, 6, 19, 131), (38, 3, 2, 3), np.float16, bias=True, groups=2, padding=(1, 2)
    ),
}  # fmt: skip
CASES["infinite"] = infinite(CASES["neighbours"])

MUTANTS = {
    "lines of the buffer that do not lie as in the array": Mutant(
        "/ sizeof(Element) % TOGETHER);\n        return buffer()",
        "/ sizeof(Element) % TOGETHER + 1);\n        return buffer()", case="phases",
    ),
    "no wait for the threads of a line, chunk by chunk": Mutant(
        "        if (in_bulk()) async_proxy_fence();\n        __syncwarp();\n", "", case="pairs",
        chunks=True,
    ),
    "inputs of the first sample": Mutant(
        "unit().input + next * p.input_batch", "unit().input", case="neighbours",
    ),
    "chunks that do not lie as their inputs": Mutant(
        "sizeof(Element) % CHUNK) : 0;\n        if",
        "sizeof(Element) % CHUNK + 1) : 0;\n        if", case="neighbours",
    ),
    "taps of the first phase": Mutant(
        "spread(offset_of(2, p.phases[2][step.phase], step.x))",
        "spread(offset_of(2, p.phases[2][0], step.x))", case="phases",
    ),
    "inputs that are not spread": Mutant(
        "return (x - index * int(p.axis[2].taps.step)) * int(p.axis[2].pitch) + index;",
        "return x;", case="steps",
    ),
    "ascending taps": Mutant(
        "int(phase(a).offset) + (apart < 0 ? (int(phase(a).count) - 1) * apart : 0);",
        "int(phase(a).offset);", case="three axes",
    ),
    "outputs of one phase": Mutant(
        "to += column() * phases + phase_x;", "to += column() * phases;", case="phases",
    ),
    "another row's weights": Mutant(
        "half[r / 4].values[r % 4]", "half[r / 4].values[r % 2]", case="neighbours",
    ),
    "weights of neighbouring taps": Mutant(
        "(tx.first + step.x * p.axis[2].taps.tap_step)", "(tx.first + step.x)", case="phases",
    ),
    "phases without taps that nobody fills": Mutant(
        "i < idle; i += busy", "i < idle - 1; i += busy", case="no taps",
    ),
    "phases without taps in the place of others": Mutant(
        "to += (phase[a] - unit().phase[a]) * p.axis[a].out;", "to += phase[a] * p.axis[a].out;",
        case="busy phases",
    ),
    "lines without taps of each tile of a row": Mutant(
        "line = tile.column; line <", "line = 0; line <", case="no taps, wide",
    ),
    "lines without taps from a tile on": Mutant(
        "tile.out - tile.position[2] * p.axis[2].taps.phases * p.axis[2].out;", "tile.out;",
        case="no taps, wide",
    ),
    "units of the first phases": Mutant(
        "const int phase = p.order[unit.number];", "const int phase = unit.number;",
        case="busy phases",
    ),
    "padding that counts against an infinite weight": Mutant(
        "if (!present | (unsigned(x)", "if (false & (unsigned(x)", case="infinite",
    ),
    "infinite weights that nobody sees": Mutant(
        "special |= is_special(value);", "", case="infinite",
    ),
}  # fmt: skip

SUITE = Suite(
    "plain",
    PLAIN_CONV,
    MUTANTS,
    CASES,
    kernels=("plain",),
    by_chunks=("pairs", "phases"),
    files=(PLAIN_CONV,),
)
