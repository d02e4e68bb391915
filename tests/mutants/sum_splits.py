"""Mutants of the sum of split-K ranges."""

from __future__ import annotations

import numpy as np

from gradients import gradient
from mutants import Mutant, Suite
from mutants.direct_conv import check
from strategies import convolution

SUM_SPLITS = "sum_splits.cu"

MUTANTS = {
    "the last range dropped": Mutant(
        "split < p.splits; ++split", "split + 1 < p.splits; ++split", case="several blocks",
    ),
    "the bias of another row": Mutant("i / p.row_outputs", "i", case="bias"),
    "the bias of rows that there are not": Mutant(
        " % p.rows", "", case="channels together", by="im2col",
    ),
}  # fmt: skip

CASES = {
    "bias": convolution("conv1d", (5, 128, 9), (6, 128, 7), bias=True, padding=3),
    "several blocks": gradient("weight", (2, 5, 700), (9, 5, 3), stride=2),
    "halves": gradient("weight", (2, 5, 700), (9, 5, 3), np.float16, stride=2),
    "channels together": convolution(
        "conv2d", (3, 550, 3, 4), (16, 550, 3, 3), np.float16, bias=True, padding=1
    ),
}

SUITE = Suite(
    "sum_splits",
    SUM_SPLITS,
    MUTANTS,
    CASES,
    kernels=("direct", "im2col"),
    files=(SUM_SPLITS,),
    check=check,
)
