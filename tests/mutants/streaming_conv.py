"""Mutants of the few-channel kernel."""

from __future__ import annotations

from mutants import Mutant, Suite, enormous, infinite
from strategies import convolution

STREAMING_CONV = "streaming_conv.cu"

# Several units and tiles, the last ones ragged; several chunks of channels.
CASES = {
    "image": convolution("conv2d", (3, 40, 17, 44), (180, 20, 1, 1), bias=True, groups=2),
    "odd": convolution("conv1d", (3, 40, 701), (100, 20, 1), "float16", bias=True, groups=2),
    "halves": convolution("conv_transpose1d", (3, 75, 700), (75, 70, 1), "bfloat16", bias=True),
    "steps": convolution(
        "conv3d", (2, 20, 3, 23, 31), (70, 20, 1, 1, 1), bias=True, stride=(1, 2, 3)
    ),
    "one product": convolution("conv1d", (3, 75, 700), (70, 75, 1), bias=True, precision="tf32"),
    "no bias": convolution("conv1d", (2, 20, 300), (70, 20, 1)),
    "taps": convolution(
        "conv2d",
        (2, 6, 23, 31),
        (140, 3, 3, 4),
        bias=True,
        padding=(2, 1),
        dilation=(2, 1),
        stride=(1, 2),
        groups=2,
    ),
    "three axes": convolution("conv_transpose3d", (2, 3, 5, 7, 9), (3, 70, 2, 3, 3), "float16"),
    "chunks of taps": convolution("conv1d", (2, 50, 300), (70, 50, 3)),
    "small images": convolution("conv2d", (990, 3, 6, 7), (70, 3, 3, 3)),
    "few products": convolution("conv2d", (3, 3, 27, 34), (70, 3, 3, 3)),
    "two narrow passes": convolution("conv2d", (2, 4, 21, 30), (90, 4, 3, 3), bias=True),
    "chunks": convolution("conv1d", (2, 150, 300), (150, 150, 1), bias=True),
    "chunks, one product": convolution(
        "conv1d", (2, 300, 300), (70, 300, 1), bias=True, precision="tf32"
    ),
}
CASES["infinite taps"] = infinite(
    convolution("conv2d", (2, 3, 9, 11), (70, 3, 3, 3), "float16", padding=1)
)
CASES["infinite"] = enormous(CASES["image"])
CASES["infinite, odd"] = enormous(
    convolution("conv1d", (3, 40, 701), (100, 20, 1), bias=True, groups=2)
)
CASES["infinite, narrow"] = infinite(CASES["two narrow passes"])

MUTANTS = {
    "channels of the weight off by one": Mutant(
        ", channel, products);", ", channel, products + 1);", case="odd",
    ),
    "a channel too many": Mutant(
        "spots.channels[s] = exists ? int(p.products) : 0;",
        "spots.channels[s] = exists ? int(p.products) + 1 : 0;", case="odd",
    ),
    "channels of a step one too far": Mutant(
        "i * 4 : i % 2 + i / 2 * 8;", "i * 4 : i % 2 + i / 2 * 9;", case="halves",
    ),
    "operands in another order": Mutant(
        "number_of(inputs[step][i / 2], i % 2)", "number_of(inputs[step][i % 2], i / 2)",
        case="one product",
    ),
    "halves in another order": Mutant(
        "inputs[step][i / 2 * 2], ", "inputs[step][i % 2 * 2], ", case="halves",
    ),
    "no low parts of the inputs": Mutant(
        "operands[product == 0 ? PARTS - 1 : 0]", "operands[0]", case="image",
    ),
    "no low parts of the weights": Mutant(
        "(step * PARTS + (product == 1)) * PART", "step * PARTS * PART", case="image",
    ),
    "a warp that is whole by one position": Mutant(
        "s < COUNT; ++s) absent |= spots.absent[s];", "s < 1; ++s) absent |= spots.absent[s];",
        case="taps",
    ),
    "products that are never there at another input": Mutant(
        "term.taps & NEVER ? 0 : ", "", case="few products",
    ),
    "rows of a narrow pass in another one": Mutant(
        "const int pass = at.row / PASS_ROWS, ", "const int pass = at.row / 64, ",
        case="two narrow passes",
    ),
    "a narrow pass as far as a wide one": Mutant(
        "const int first = (pass + h) * PASS_ROWS;", "const int first = (pass + h) * 64;",
        case="two narrow passes",
    ),
    "infinite sums of a narrow pass in a wide one": Mutant(
        "i / 2 % (PASS_ROWS / 8) * 8", "i / 2 % 8 * 8", case="infinite, narrow",
    ),
    "outputs of the next tile": Mutant(
        "store<TOGETHER>(sums[h], outs, ", "store<TOGETHER>(sums[h], spots.out, ", case="image",
    ),
    "tiles that are left out": Mutant(
        "tile + blocks * TEAMS;", "tile + blocks * (TEAMS + 1);", case="image",
    ),
    "nobody begins the turns": Mutant(
        "if (turns && team == TEAMS - 1)", "if (turns && team < 0)", case="chunks of taps",
    ),
    "turns of several passes, which not all teams have": Mutant(
        "TURNS && (LONG || p.passes == 1)", "TURNS", case="small images",
    ),
    "a turn that goes to the team that had it": Mutant(
        "FIRST_TURN + (team + 1) % TEAMS", "FIRST_TURN + team", case="chunks of taps",
    ),
    "zeros that count against an infinite weight": Mutant(
        "constexpr bool REPAIRED = TAPS || sizeof(Element) == 4;",
        "constexpr bool REPAIRED = sizeof(Element) == 4;", case="infinite taps",
    ),
    "infinite parts": Mutant("__any_sync(~0u, found)", "false", case="infinite"),
    "scattered sums that are infinite where others are": Mutant(
        "repair<TOGETHER, Worker>(p, weights", "repair<true, Worker>(p, weights",
        case="infinite, odd",
    ),
    "other weights where a sum is infinite": Mutant(
        "group * p.weight_group + row * p.weight_row;\n        float",
        "group * p.weight_group;\n        float", case="infinite",
    ),
}  # fmt: skip

SUITE = Suite(
    "streaming",
    STREAMING_CONV,
    MUTANTS,
    CASES,
    kernels=("streaming",),
    files=(STREAMING_CONV, "from_registers.cuh", "space.cuh"),
)
