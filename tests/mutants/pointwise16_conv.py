"""Mutants of the pointwise kernel for 16-bit numbers."""

from __future__ import annotations

from mutants import Mutant, Suite
from strategies import convolution

POINTWISE16_CONV = "pointwise16_conv.cu"

# Numbers that are loaded by words, by pairs, across the rows, or one by one.
CASES = {
    "words": convolution("conv1d", (5, 272, 200), (520, 136, 1), "float16", bias=True, groups=2),
    "slabs": convolution("conv1d", (5, 272, 200), (260, 136, 1), "float16", groups=2),
    "halves": convolution("conv1d", (3, 132, 300), (70, 132, 1), "bfloat16", bias=True),
    "pairs": convolution("conv1d", (3, 154, 302), (70, 154, 1), "float16", bias=True),
    "across": convolution("conv_transpose1d", (2, 160, 304), (160, 72, 1), "float16"),
    "numbers": convolution("conv1d", (2, 150, 333), (160, 75, 1), "float16", groups=2),
    "whole chunks": convolution("conv1d", (9, 128, 400), (70, 128, 1), "float16"),
    "many chunks": convolution("conv1d", (1, 900, 304), (60, 900, 1), "float16"),
}

MUTANTS = {
    "16 bits: blocks of the first sample": Mutant(
        "return {sample, first, index", "return {0, first, index", case="words",
    ),
    "16 bits: copies that no arrival waits for": Mutant(
        "copy_async_arrive(&barriers.full", "mbarrier_arrive(&barriers.full", case="words",
    ),
    "16 bits: a stage is released that is in use": Mutant(
        "if (chunk > 0) release(last);\n                last = stage;",
        "last = stage;\n                if (chunk > 0) release(last);", case="many chunks",
    ),
    "16 bits: the first piece of words": Mutant(
        "piece < WORD; piece += TOGETHER", "piece < 1; piece += TOGETHER", case="halves",
    ),
    "16 bits: pieces after the last one": Mutant(
        "(piece < count ? rows : 0)", "(0 < count ? rows : 0)", case="halves",
    ),
    "16 bits: channels after the last one": Mutant(
        "left - own_row(), counts[block]", "SIDE, counts[block]", case="words",
    ),
    "16 bits: rows of weights after the last one": Mutant(
        "(p.across ? left : rows) - own_row()", "(p.across ? left : SIDE) - own_row()",
        case="halves",
    ),
    "16 bits: channels of weights after the last one": Mutant(
        "(p.across ? rows : left) - own_word()", "(p.across ? rows : SIDE) - own_word()",
        case="halves",
    ),
    "16 bits: rows across after the last one": Mutant(
        "(p.across ? rows : left) - own_word()", "(p.across ? SIDE : left) - own_word()",
        case="across",
    ),
    "16 bits: channels across after the last one": Mutant(
        "(p.across ? left : rows) - own_row()", "(p.across ? SIDE : rows) - own_row()",
        case="across",
    ),
    "16 bits: rows across taken for rows along": Mutant(
        "                if (p.across)\n", "                if (false)\n", case="across",
    ),
    "16 bits: positions of the first block": Mutant(
        "matrix_descriptor(stage, BLOCK_BYTES,", "matrix_descriptor(stage, 0,", case="words",
    ),
    "16 bits: steps of weights as far as steps of inputs": Mutant(
        "OWN_STEP = ACROSS ? STEP : BLOCK * 2 / 16", "OWN_STEP = STEP", case="words",
    ),
    "16 bits: sums of the upper rows for both": Mutant(
        "pair_of(sum[2], sum[3], Element())", "pair_of(sum[0], sum[1], Element())", case="words",
    ),
    "16 bits: biases of the upper rows for both": Mutant(
        "biases[row + lane / 4 + half * 8]", "biases[row + lane / 4]", case="words",
    ),
    "16 bits: words of other rows": Mutant(
        "(own_word() ^ own ^ 4) * 16}", "(own_word() ^ own) * 16}", case="words",
    ),
}  # fmt: skip

SUITE = Suite(
    "pointwise16",
    POINTWISE16_CONV,
    MUTANTS,
    CASES,
    kernels=("pointwise",),
    files=(POINTWISE16_CONV,),
)
