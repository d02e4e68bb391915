"""Mutants of the Tensor Core kernel that adds the partial sums of split-K slices."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite
from strategies import Convolution, convolution

MATRIX_CONV = "matrix_conv.cu"
PACK = "pack_weights.cu"


def wide(case: Convolution) -> Convolution:
    """The case with 16 channels of the first sample whose inputs span 30 powers of two."""
    x = case["input"].copy()
    x[:1, 48:64] *= np.exp2(np.linspace(-30, 0, 16, dtype=np.float32))[:, None, None]
    return case.with_arrays(input=x)


CASES = {
    "apart": convolution("conv2d", (2, 70, 5, 7), (70, 70, 3, 3), bias=True, padding=1),
    "tiles apart": convolution("conv2d", (9, 70, 5, 7), (70, 70, 3, 3), padding=1),
    "lines apart": convolution("conv1d", (5, 224, 20), (40, 224, 3), "bfloat16", padding=1),
    "phases apart": convolution(
        "conv_transpose2d",
        (1, 224, 2, 3),
        (224, 70, 5, 5),
        "float16",
        stride=(3, 1),
        dilation=(2, 1),
    ),
    "rows apart": convolution("conv2d", (3, 140, 5, 7), (140, 140, 3, 3), padding=1),
    "together": convolution(
        "conv_transpose2d", (9, 70, 5, 7), (70, 70, 3, 3), "bfloat16", bias=True, stride=2
    ),
    "together in memory": convolution(
        "conv_transpose2d", (9, 70, 5, 7), (70, 70, 3, 3), "float32", bias=True, stride=2
    ),
    "three axes": convolution("conv3d", (2, 40, 3, 4, 5), (20, 40, 3, 1, 2), precision="tf32"),
    "three axes together": convolution(
        "conv_transpose3d", (9, 40, 3, 4, 5), (40, 20, 3, 1, 2), "float16", padding=(1, 0, 0)
    ),
    "wide apart": wide(
        convolution("conv2d", (5, 96, 5, 7), (40, 96, 3, 3), precision="tf32", padding=1)
    ),
    "wide together": wide(
        convolution("conv_transpose2d", (9, 70, 5, 7), (70, 70, 3, 3), precision="tf32", stride=2)
    ),
}

MUTANTS = {
    "inputs of the first span": Mutant(
        MATRIX_CONV, "before = tile.span * worker.blocks;", "before = 0;",
        "wrong", case="apart",
    ),
    "channels counted from the first span": Mutant(
        MATRIX_CONV, "int(p.sum.channels) - (before + block + own) * BLOCK",
        "int(p.sum.channels) - (block + own) * BLOCK",
        "out of bounds|between the elements|wrong", case="apart",
    ),
    "weights of the first span": Mutant(
        MATRIX_CONV, " +\n                    tile.span * blocks * taps * step_bytes;", ";",
        "wrong", case="together",
    ),
    "weights of z as if there were one span": Mutant(
        MATRIX_CONV, "            if (SPANS && block == 0) from += others;\n", "",
        "wrong", case="three axes",
    ),
    "weights of one tap of z": Mutant(
        PACK, "turns = phase.taps[0].count * weights.turns", "turns = weights.turns",
        "nothing wrote", case="three axes",
    ),
    "no order of a warp in front of a count": Mutant(
        MATRIX_CONV, "        __syncwarp();\n        unsigned before = 0;",
        "        unsigned before = 0;",
        "another thread", case="rows apart",
    ),
    "no order of a warp behind a count": Mutant(
        MATRIX_CONV, "!= spans() - 1) return false;\n        __syncwarp();",
        "!= spans() - 1) return false;",
        "another thread", case="rows apart",
    ),
    "the first span is the last one": Mutant(
        MATRIX_CONV, "if (uniform(before) != spans() - 1)", "if (uniform(before) != 0)",
        "nothing wrote", case="apart",
    ),
    "tiles are counted as one": Mutant(
        MATRIX_CONV, "&p.arrived[((index - span) / spans() * int(p.phases) + phase_index)",
        "&p.arrived[phase_index",
        "nobody wrote|nothing wrote|another thread", case="tiles apart",
    ),
    "phases are counted as one": Mutant(
        MATRIX_CONV, "/ spans() * int(p.phases) + phase_index) * (THREADS",
        "/ spans() * int(p.phases)) * (THREADS",
        "nobody wrote|nothing wrote|another thread", case="phases apart",
    ),
    "sums of all phases in one place": Mutant(
        MATRIX_CONV, "(p.apart ? index * int(p.phases) + phase_index : int(blockIdx.x))",
        "(p.apart ? index : int(blockIdx.x))",
        "another thread|out of bounds|nothing wrote", case="phases apart",
    ),
    "sums of all blocks in one place": Mutant(
        MATRIX_CONV, "+ phase_index : int(blockIdx.x))", "+ phase_index : 0)",
        "another thread", case="together in memory",
    ),
    "sums of both teams in one place": Mutant(
        MATRIX_CONV, "int(blockIdx.x)) * TEAMS + team;", "int(blockIdx.x)) * TEAMS;",
        "another thread", case="together in memory",
    ),
    "a span's sums are not added": Mutant(
        MATRIX_CONV, "if (in_turn && span > 0)", "if (in_turn && span > 1)",
        "wrong", case="together in memory",
    ),
    "a span's sums are not added to those in registers": Mutant(
        MATRIX_CONV, "kept[i] = span > 0 ?", "kept[i] = span > 1 ?",
        "wrong", case="together",
    ),
    "inputs of the next span are those of the last one": Mutant(
        MATRIX_CONV, "input += (before - last) * BLOCK * p.input_channel;", "{}",
        "wrong", case="together",
    ),
    "spans apart are taken for those in turn": Mutant(
        MATRIX_CONV, "if (other && worker.z_taps == 1 && !p.apart &&",
        "if (other && worker.z_taps == 1 &&",
        "wrong", case="rows apart",
    ),
    "taps of z are taken for one": Mutant(
        MATRIX_CONV, "if (other && worker.z_taps == 1 &&", "if (other &&",
        "wrong", case="three axes together",
    ),
    "the first span of a tile is taken for the next of the last": Mutant(
        MATRIX_CONV, "!p.apart && before + worker.blocks < worker.spans() * worker.blocks)",
        "!p.apart)",
        "hangs", case="together",
    ),
    "own sums are added twice": Mutant(
        MATRIX_CONV, "first = s ? first + other.first : other.first", "first = first + other.first",
        "wrong", case="apart",
    ),
    "sums are scaled again": Mutant(
        MATRIX_CONV, "engine, Unscaled(), tile", "engine, scale, tile",
        "wrong", case="apart",
    ),
    "counts begin anywhere": Mutant(
        PACK, "p.arrived[i] = 0;", "{}",
        "nothing wrote", case="apart",
    ),
    "no wait in front of a count": Mutant(
        MATRIX_CONV, "    if (SPANS) wait_for_grids();  // for what counts spans\n", "",
        "does not wait", case="phases apart",
    ),
    "windows of the last span alone": Mutant(
        MATRIX_CONV, "windows = tile.span % together() ? windows | own : own;", "windows = own;",
        "wrong", case="wide together",
    ),
    "the last span alone is done again": Mutant(
        MATRIX_CONV, "for (int s = together() - 1; s >= 0; --s) note(index - s, windows, keep);",
        "note(index, windows, keep);",
        "wrong|nobody wrote", case="wide together",
    ),
    "spans that are wide are not done again": Mutant(
        MATRIX_CONV, "(tile.span + 1) % together() == 0)", "tile.span == 0)",
        "nobody wrote|wrong", case="wide apart",
    ),
}  # fmt: skip  # fmt: skip

SUITE = Suite("spans", MATRIX_CONV, MUTANTS, CASES, kernels=("spans",))
