"""Mutants of the sum of split-K ranges."""

from __future__ import annotations

import numpy as np

import test_grad
from gradients import gradient
from mutants import Mutant, Suite

SUM_SPLITS = "sum_splits.cu"

MUTANTS = {
    "the last range dropped": Mutant(
        "split < p.splits; ++split", "split + 1 < p.splits; ++split", case="several blocks",
    ),
}  # fmt: skip

CASES = {
    "several blocks": gradient("weight", (2, 5, 700), (9, 5, 3), stride=2),
    "halves": gradient("weight", (2, 5, 700), (9, 5, 3), np.float16, stride=2),
}

SUITE = Suite(
    "sum_splits",
    SUM_SPLITS,
    MUTANTS,
    CASES,
    files=(SUM_SPLITS,),
    check=test_grad.check,
)
