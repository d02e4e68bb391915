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
    "wide together": wide(
        convolution("conv_transpose2d", (9, 70, 5, 7), (70, 70, 3, 3), precision="tf32", stride=2)
    ),
}

MUTANTS = {
    "channels counted from the first span": Mutant(
        "int(p.sum.channels) - (before + block + own) * BLOCK",
        "int(p.sum.channels) - (block + own) * BLOCK", case="apart",
    ),
    "weights of one tap of z": Mutant(
        "turns = phase.taps[0].count * weights.turns", "turns = weights.turns", case="three axes",
        file=PACK,
    ),
    "no order of a warp before a count": Mutant(
        "        __syncwarp();\n        unsigned before = 0;", "        unsigned before = 0;",
        case="rows apart",
    ),
    "tiles are counted as one": Mutant(
        "&p.arrived[((index - slice) / slices * int(p.phases) + phase)", "&p.arrived[phase",
        case="tiles apart",
    ),
    "phases are counted as one": Mutant(
        "/ slices * int(p.phases) + phase) * (THREADS",
        "/ slices * int(p.phases)) * (THREADS", case="phases apart",
    ),
    "sums of all phases in one place": Mutant(
        "(p.apart ? index * int(p.phases) + phase : int(blockIdx.x))",
        "(p.apart ? index : int(blockIdx.x))", case="phases apart",
    ),
    "a span's sums are not added": Mutant(
        "if (in_turn && slice > 0)", "if (in_turn && slice > 1)", case="together in memory",
    ),
    "inputs of the next slice are the last one's": Mutant(
        "input += (before - last) * BLOCK * p.input_channel;", "{}", case="together",
    ),
    "slices apart are taken for slices in turn": Mutant(
        "other && schedule.z_taps == 1 && Slices::apart(p) == 1 &&",
        "other && schedule.z_taps == 1 &&",
        case="rows apart",
    ),
    "taps of z are taken for one": Mutant(
        "if (SPLITS && other && schedule.z_taps == 1 &&", "if (SPLITS && other &&",
        case="three axes together",
    ),
    "the first span of a tile is taken for the next of the last": Mutant(
        "before + schedule.blocks < Slices::count(p) * schedule.blocks)", "true)", case="together",
    ),
    "own sums are added twice": Mutant(
        "first = s ? first + other.first : other.first", "first = first + other.first",
        case="apart",
    ),
    "sums are scaled again": Mutant(
        "engine, Unscaled(), tile", "engine, scale, tile", case="apart",
    ),
    "counts begin anywhere": Mutant("p.arrived[i] = 0;", "{}", case="apart", file=PACK),
    "windows of the last span alone": Mutant(
        "windows = tile.slice % Slices::in_turn(p) ? windows | own : own;", "windows = own;",
        case="wide together",
    ),
    "the last span alone is done again": Mutant(
        "for (int s = in_turn - 1; s >= 0; --s) note(index - s, windows, keep);",
        "note(index, windows, keep);", case="wide together",
    ),
}  # fmt: skip

SUITE = Suite(
    "spans",
    MATRIX_CONV,
    MUTANTS,
    CASES,
    kernels=("spans",),
    files=("matrix_split_k.cuh",),
    most=10,
)
