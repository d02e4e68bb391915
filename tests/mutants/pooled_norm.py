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

MUTANTS = {
    "the extremum that is not NaN": Mutant(
        MATRIX_POOL, "flip ^= SIGN;", ";", "wrong", by="portable", case="infinite scales",
    ),
    "one extremum for both signs": Mutant(
        MATRIX_POOL, "= scale > 0 ? 0 : scale < 0 ? SIGN : ODD;", "= 0;",
        "wrong", by="hopper", case="own",
    ),
    "statistics of what is no output": Mutant(
        MATRIX_POOL, "sums[i] = fmaf(deviation, counts, sums[i]);", "sums[i] += deviation;",
        "wrong", by="hopper", case="own",
    ),
    "statistics of the last tile": Mutant(
        MATRIX_POOL, "threadIdx.x % 4 == 0) add(all, own);", "threadIdx.x % 4 == 0) all = own;",
        "wrong", by="hopper", case="own",
    ),
    "statistics of one team": Mutant(
        MATRIX_POOL, "other < team + COLUMN_TEAMS", "other < team + 1",
        "wrong", by="hopper", case="own",
    ),
    "statistics of the first block": Mutant(
        POOLED_NORM, "part < p.parts", "part < 1",
        "wrong", True, by="hopper", case="own",
    ),
    "the upper row for the lower one": Mutant(
        MATRIX_CONV, "phase.taps[1].offset_step + stacked;", "phase.taps[1].offset_step;",
        "wrong|nothing wrote", by="hopper", case="stacked",
    ),
    "a row behind the last": Mutant(
        MATRIX_POOL, "below.second != 0 && row", "row",
        "out of bounds|another thread|wrong", by="hopper", case="stacked",
    ),
    "rows of stacked outputs that are not counted": Mutant(
        MATRIX_CONV, "int(p.taps[1].size_out) - tile.start[2] * STACKED", "tile.size[2] * STACKED",
        "wrong|out of bounds|another thread", by="hopper", case="stacked",
    ),
    "no mean of a first tile": Mutant(
        MATRIX_POOL, "int turn = p.partial && uniform(all[0]->count == 0) ? 0 : 1;",
        "int turn = (found[0].mean = found[1].mean += uniform(all[0]->count == 0) * 1e6, 1);",
        "wrong", by="hopper", case="stacked",
    ),
    "no second look": Mutant(
        MATRIX_POOL, "is_special(float(found[half].m2)) | (flip[half] == ODD)", "false",
        "wrong", by="hopper", case="stacked infinite",
    ),
    "a second look at the upper row's sums for both": Mutant(
        MATRIX_POOL, ".of[half * 2 + i % 2]", ".of[i % 2]",
        "wrong", by="hopper", case="stacked infinite rows",
    ),
    "moments of a second look at the other row": Mutant(
        MATRIX_POOL, "if (again >> half & 1u) found[half] = looked[half];",
        "if (again) found[half] = looked[half];",
        "wrong", by="hopper", case="stacked infinite rows",
    ),
    "absent inputs between others": Mutant(
        MATRIX_CONV, "if (element * spread(a) != input) offset = NOWHERE;", "",
        "wrong", by="hopper", case="spread",
    ),
    "a first input that is an element": Mutant(
        MATRIX_CONV, "return offset - element_of(a, offset) * spread(a);", "return 0;",
        "wrong|out of bounds", by="hopper", case="spread",
    ),
    "a turn that nobody gives": Mutant(
        ENGINE, "o.number >= BEHIND", "o.number > BEHIND",
        "hangs|waits at the barrier", by="hopper", case="stacked",
    ),
    "no barrier behind copies of extrema": Mutant(
        POOLED_NORM, "copy_async_wait<0>();\n    __syncthreads();", "copy_async_wait<0>();",
        "race|nothing wrote", by="hopper", case="given",
    ),
    "the last values of a group": Mutant(
        POOLED_NORM, "threadIdx.x < count % 4", "false",
        "wrong", by="hopper", case="wide",
    ),
    "a window of half a column": Mutant(
        MATRIX_POOL, "place[3] + 1 >= tile.size[3]", "place[3] >= tile.size[3]",
        "wrong|out of bounds|another thread", by="hopper", case="wide",
    ),
    "no barrier before sums are read": Mutant(
        MATRIX_POOL, "                sync(team);\n                if (E", "                if (E",
        "race|nothing wrote", by="hopper", case="given",
    ),
    "no barrier before sums are written": Mutant(
        MATRIX_POOL, "sync(team);  // nobody reads the last rows any more", "",
        "race", by="hopper", case="given",
    ),
    "no barrier before rows are new": Mutant(
        MATRIX_POOL, "sync(team);  // nobody reads what is known of the rows any more", "",
        "race|wrong", by="hopper", case="groups",
    ),
    "infinite parameters that nobody sees": Mutant(
        MATRIX_POOL, "p.mean.data && is_special", "p.mean.data && false && is_special",
        "wrong", by="hopper", case="infinite",
    ),
    "a mean that is off": Mutant(
        POOLED_NORM, "low(float(value - high))", "low(1e-3f)",
        "wrong", by="hopper", case="given",
    ),
    "no barrier between sums": Mutant(
        POOLED_NORM, "    __syncthreads();  // all threads have read the last sum\n", "",
        "race", by="hopper", case="given",
    ),
}  # fmt: skip  # fmt: skip

SUITE = Suite(
    "fused",
    MATRIX_CONV,
    MUTANTS,
    CASES,
    kernels=("portable", "hopper"),
    check=test_fused.check,
)
