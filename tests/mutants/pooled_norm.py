"""Mutants of the fused operation's kernels: a convolution that pools, and the norm after it."""

from __future__ import annotations

import numpy as np

import test_fused
from mutants import Mutant, Suite

MATRIX_CONV = "matrix_conv.cu"
ENGINE = "matrix_engine.cuh"
MATRIX_POOL = "matrix_pool.cuh"
POOLED_NORM = "pooled_norm.cu"

ONES = np.ones((9, 20, 1, 1), np.float32)
INFINITE = np.full(20, np.inf, np.float32)
SOME_INFINITE = np.full((2, 9, 12, 37), 0.5, np.float32)
SOME_INFINITE[:, 0, ::5, ::7] = -np.inf
LOWER_ROWS = ONES.copy()  # the lower eight rows of sixteen
LOWER_ROWS[:, 8:16] = np.inf

# Odd sizes and several tiles; parameters of both signs, and an infinite one.
CASES = {
    "own": test_fused.fused_case((3, 9, 12, 37), (9, 20, 3, 3), num_groups=4, padding=1),
    "given": test_fused.fused_case((2, 9, 12, 37), (9, 20, 3, 3), num_groups=4, given=True),
    "wide": test_fused.fused_case((1, 9, 4, 475), (9, 20, 3, 3), num_groups=20, padding=1),
    "stacked": test_fused.fused_case(
        (5, 40, 23, 37), (40, 20, 3, 3), num_groups=4, padding=1, precision="tf32"
    ),
    "groups": test_fused.fused_case(
        (1, 18, 12, 37), (18, 20, 3, 3), num_groups=4, groups=2, given=True
    ),
    "spread": test_fused.fused_case(
        (1, 9, 12, 37), (9, 20, 4, 4), num_groups=4, stride=(2, 3), padding=1, precision="tf32"
    ),
    # No window has infinite sums only.
    "infinite": test_fused.fused_case(
        (2, 9, 12, 37), (9, 20, 1, 1), num_groups=4, given=True
    ).with_arrays(
        input=SOME_INFINITE,
        kernel=ONES,
        bn_weight=np.ones(20, np.float32),
        bn_bias=INFINITE,
    ),
    "infinite scales": test_fused.fused_case(
        (4, 2, 5, 9), (2, 20, 2, 2), num_groups=20
    ).with_arrays(bn_weight=-INFINITE, bn_bias=INFINITE),
    # tanh turns the infinities into ones.
    "stacked infinite": test_fused.fused_case(
        (2, 9, 12, 37), (9, 20, 1, 1), num_groups=4, given=True, precision="tf32"
    ).with_arrays(input=np.abs(SOME_INFINITE), kernel=ONES),
    "stacked infinite rows": test_fused.fused_case(
        (2, 9, 12, 37), (9, 20, 1, 1), num_groups=4, precision="tf32"
    ).with_arrays(kernel=LOWER_ROWS),
}
# The squares of deviations overflow in float.
HUGE = test_fused.fused_case((2, 9, 12, 37), (9, 20, 1, 1), num_groups=4, precision="tf32")
CASES["stacked huge"] = HUGE.with_arrays(input=HUGE["input"] * np.float32(2.0**70))

MUTANTS = {
    "the extremum that is not NaN": Mutant(
        "flip ^= SIGN;", ";", case="infinite scales", by="portable", file=MATRIX_POOL,
    ),
    "one extremum for both signs": Mutant(
        "= scale > 0 ? 0 : scale < 0 ? SIGN : ODD;", "= 0;", case="own", by="hopper",
        file=MATRIX_POOL,
    ),
    "statistics of what is no output": Mutant(
        "sums[i] = fmaf(deviation, counts, sums[i]);", "sums[i] += deviation;", case="own",
        by="hopper", file=MATRIX_POOL,
    ),
    "statistics of the last tile": Mutant(
        "threadIdx.x % 4 == 0) add(all, own);", "threadIdx.x % 4 == 0) all = own;", case="own",
        by="hopper", file=MATRIX_POOL,
    ),
    "statistics of the first block": Mutant(
        "part < p.parts", "part < 1", case="own", by="hopper", file=POOLED_NORM, everywhere=True,
    ),
    "the upper row for the lower one": Mutant(
        "phase.taps[1].offset_step + stacked;", "phase.taps[1].offset_step;", case="stacked",
        by="hopper",
    ),
    "sums that are not scaled": Mutant(
        "scale_sums(engine, scale);", ";", case="stacked", by="hopper",
    ),
    "rows of stacked outputs that are not counted": Mutant(
        "int(p.taps[1].size_out) - tile.start[2] * STACKED", "tile.size[2] * STACKED",
        case="stacked", by="hopper",
    ),
    "no mean of a first tile": Mutant(
        "int turn = p.partial && uniform(all[0]->count == 0) ? 0 : 1;",
        "int turn = (found[0].mean = found[1].mean += uniform(all[0]->count == 0) * 1e6, 1);",
        case="stacked", by="hopper", file=MATRIX_POOL,
    ),
    "a second look at the upper row's sums for both": Mutant(
        ".of[half * 2 + i % 2]", ".of[i % 2]", case="stacked infinite rows", by="hopper",
        file=MATRIX_POOL,
    ),
    "moments of a second look at the other row": Mutant(
        "if (again >> half & 1u) found[half] = looked[half];",
        "if (again) found[half] = looked[half];", case="stacked infinite rows", by="hopper",
        file=MATRIX_POOL,
    ),
    "absent inputs between others": Mutant(
        "if (element * spread_of(p, a) != input) offset = ABSENT;", "", case="spread",
        by="hopper",
    ),
    "a first input that is an element": Mutant(
        "return offset - element_of(p, a, offset) * spread_of(p, a);", "return 0;", case="spread",
        by="hopper",
    ),
    "a turn that nobody gives": Mutant(
        "o.number >= BEHIND", "o.number > BEHIND", case="stacked", by="hopper", file=ENGINE,
    ),
    "infinite parameters that nobody sees": Mutant(
        "p.mean.data && is_special", "p.mean.data && false && is_special", case="infinite",
        by="hopper", file=MATRIX_POOL,
    ),
    "a mean that is off": Mutant(
        "low(float(value - high))", "low(1e-3f)", case="given", by="hopper", file=POOLED_NORM,
    ),
}  # fmt: skip

SUITE = Suite(
    "fused",
    MATRIX_CONV,
    MUTANTS,
    CASES,
    kernels=("portable", "hopper"),
    most=15,
    files=(MATRIX_POOL, POOLED_NORM),
    decisive=tuple(("hopper", name) for name in CASES) + (("portable", "own"),),
    check=test_fused.check,
)
