"""Mutants of the channels-last depthwise kernel on Tensor Cores."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite, depthwise, infinite
from mutants.depthwise_conv import infinite_input
from mutants.depthwise_last import check

DEPTHWISE_LAST_MMA = "depthwise_last_mma.cu"

# Several tiles of channels and of strips, the last of each a part of one; channels are whole chunks
# of 16 bytes, or not.
CASES = {
    "chunks": depthwise("conv2d", (1, 40, 9, 75), (3, 3), 1, "float16", padding=1),
    "no chunks": depthwise("conv2d", (3, 20, 3, 50), (3, 4), 1, "float16", padding=(1, 2)),
    "flipped": depthwise("conv_transpose2d", (1, 33, 4, 50), (5, 3), 1, "bfloat16", padding=1),
    "tall": depthwise("conv2d", (1, 24, 12, 49), (7, 7), 1, "float16", padding=3),
    "two blocks": depthwise("conv2d", (5, 16, 4, 50), (3, 2), 1, "bfloat16"),
}
CASES["infinite"] = infinite(CASES["chunks"])
FIRST = CASES["chunks"]["weight"].copy()
FIRST[::2, :, 0, 0] = np.inf  # no other tap of these channels, nor of the next ones
CASES["an infinite first tap"] = CASES["chunks"].with_arrays(weight=FIRST)
CASES["an infinite half"] = infinite_input(CASES["chunks"])
CASES["an infinite bfloat16"] = infinite_input(CASES["flipped"])
CASES["no bias"] = CASES["two blocks"].with_arrays(bias=None)
CASES["large"] = CASES["chunks"].with_arrays(weight=CASES["chunks"]["weight"] * np.float16(20000))
# Sums that are zero, whose signs absent inputs change, beside infinite inputs.
CASES["zeros"] = infinite_input(
    CASES["chunks"].with_arrays(
        input=np.zeros_like(CASES["chunks"]["input"]),
        bias=np.full_like(CASES["chunks"]["bias"], -0.0),
    )
)

MUTANTS = {
    "a third block that is left out": Mutant(
        "if (three)", "if (false)", case="chunks"
    ),
    "channels that change places": Mutant(
        "which = c % 2 ? 0x7632 : 0x5410", "which = 0x5410", case="chunks"
    ),
    "weights of the first block alone": Mutant(" + 8 * part;", ";", case="chunks"),
    "weights for all blocks": Mutant("i == part ? weights : 0", "weights", case="chunks"),
    "one place for two lines of outputs": Mutant(
        "outputs[line % 2][i / 2]", "outputs[0][i / 2]", case="tall"
    ),
    "a line that is not waited for": Mutant(
        "copy_async_wait<STAGES - 2>();", "copy_async_wait<STAGES - 1>();", case="tall"
    ),
    "a stage that is not free": Mutant(
        "__syncthreads();  // the line is there", "  // the line is there", case="tall"
    ),
    "outputs that nobody waits for": Mutant(
        "__syncthreads();\n    copier.store(", "copier.store(", case="chunks"
    ),
    "chunks of inputs that are not aligned": Mutant("p.chunks[0] && ", "", case="no chunks"),
    "chunks of outputs that are not aligned": Mutant("p.chunks[1] && ", "", case="no chunks"),
    "lines of another stage": Mutant(
        "memory.inputs[line % STAGES]", "memory.inputs[(line + 1) % STAGES]", case="tall"
    ),
    "lines without skew": Mutant("int(ax.low - p.skew)", "int(ax.low)", "chunks"),
    "zeros that count against an infinite input": Mutant(
        "if (Pairs::special(largest))", "if (false)", case="an infinite half"
    ),
    "padding that counts against an infinite weight": Mutant(
        "if (!exists && masked) continue;", "", case="infinite"
    ),
    "sums without the bias": Mutant(
        "sums[i / 4][i % 4] = bias(i / 4);", "sums[i / 4][i % 4] = 0;", case="tall"
    ),
    "the same strip twice": Mutant(
        "tile * STRIPS + threadIdx.x", "tile * STRIPS", case="chunks"
    ),
    "strips that do not exist": Mutant("!exists ? 0 : left", "left", case="two blocks"),
    "columns beyond the output": Mutant("x < strip.columns && ", "", case="chunks"),
    "weights of odd places alone": Mutant(
        "line[MARGIN + tap] = line[MARGIN + tap + DIAGONAL - 1] = weight;",
        "line[MARGIN + tap + DIAGONAL - 1] = weight;", case="chunks",
    ),
    "flipped kernel": Mutant("p.weight[p.weight_first + ", "p.weight[", case="flipped"),
}  # fmt: skip

SUITE = Suite(
    "depthwise_last_mma",
    DEPTHWISE_LAST_MMA,
    MUTANTS,
    CASES,
    kernels=("depthwise",),
    files=(DEPTHWISE_LAST_MMA,),
    check=check,
)
