"""Mutants of the kernel of max pooling."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import test_pooling
from mutants import Mutant, Suite, into_both_layouts
from running import channels_last
from strategies import max_pools

MAX_POOL2D = "max_pool2d.cu"

MUTANTS = {
    # Accidents.
    "only the first load of a lane": Mutant(
        "if (first + i * LANES >= count) break;", "if (i > 0 || first + i * LANES >= count) break;",
    ),
    # Misunderstandings.
    "NaN loses against a number": Mutant("!(compared <= value)", "compared > value"),
    "the last NaN stays": Mutant(" && value == value)", ")"),
    "any lane of those with the largest element": Mutant(
        "equal ? number < tap :", "equal ? false :",
    ),
    "the last lane of those with the largest element": Mutant(
        "equal ? number < tap :", "equal ? number > tap :",
    ),
    "NaN of other lanes loses": Mutant("other > value || other != other)", "other > value)"),
    "NaN in several lanes": Mutant("|| (value != value && other != other);", ";"),
    "rows of a window that count from its first tap": Mutant(
        "number = row * p.axis[1].kernel;", "number = 0;",
    ),
    "packs that count from the first of a line": Mutant(
        "packs, number + head);", "packs, number);",
    ),
    "a part without elements that is zero": Mutant(
        "__uint_as_float(0xff800000u)", "0", everywhere=True,
    ),
    "half of a pair": Mutant("                largest.consider(lower[i].of[1]);\n", ""),
    "one channel for all of a pack": Mutant(
        "of[j] = largest[j].element;", "of[j] = largest[0].element;", "channels last",
    ),
    "the last NaN of two halves stays": Mutant(
        " & ~float16_greater_or_nan(own, own)", "", "channels last, halves",
    ),
    "the last of two equal halves": Mutant(
        "float16_greater_or_nan(other, own)", "~float16_greater_or_nan(own, other)",
        "channels last, halves",
    ),
    "one line of a window": Mutant(
        "column = 0, from += to_line;", "column = 0;", "channels last",
    ),
}  # fmt: skip

# A warp shares a window: numbers before and after its packs, zeros of both signs, NaN, and parts.
ROWS_OF_ZEROS = np.full((1, 1, 2, 32), -1.0)
ROWS_OF_ZEROS[0, 0, [0, 1], [30, 3]] = -0.0, 0.0
LARGE = [
    *(
        test_pooling.pool(line.reshape(1, 1, 1, 330)[..., 1:], (1, 329))
        for line in (np.arange(330, dtype=np.float32), -np.arange(330, dtype=np.float32))
    ),
    test_pooling.pool(ROWS_OF_ZEROS, (2, 32)),
    *(
        test_pooling.pool(
            test_pooling.odd_numbers(np.float32, position, kind, 1, 1, 2, 165)[..., 1:], (2, 32)
        )
        for position in (0, 34, 100)
        for kind in ("zeros", "nan")
    ),
    *(
        test_pooling.pool(
            test_pooling.odd_numbers(np.float32, position, kind, 1, 1, 1, 330)[..., 1:], (1, 329)
        )
        for position in (2, 33, 200)
        for kind in ("zeros", "nan")
    ),
    test_pooling.pool(-1 - test_pooling.LINE, (1, 30_001), 7_000, (0, 15_000)),
]
NAN = [
    test_pooling.pool(np.roll([np.nan, 1.0, 2.0, 3.0], k).reshape(1, 1, 2, 2), 2) for k in range(4)
]

NUMBERS = np.random.default_rng(0).standard_normal((2, 3, 20, 21))
CASES = {
    "small": test_pooling.pool(NUMBERS[..., :5, :7], 2, 1),
    "borders": test_pooling.pool(NUMBERS, (3, 4), (2, 3), (1, 2), (2, 1), True),
    "pairs": test_pooling.pool(NUMBERS[..., :20], 2),
    "passes": test_pooling.pool(NUMBERS, 9, 1, 4),
    "many axes": test_pooling.pool(NUMBERS[:, ::2, ::3, ::2], 2),
    "halves": test_pooling.pool(NUMBERS, (12, 20), 5, dtype=np.float16),
    "integers": test_pooling.pool(-9 - NUMBERS, 3, 2, 1, dtype=np.int16),
    "natural numbers": test_pooling.pool(np.maximum(NUMBERS, 0), 1, dtype=np.uint8),
    "channels last": test_pooling.pool(
        channels_last(np.random.default_rng(0).standard_normal((2, 8, 5, 7))), 3, 2, 1
    ),
    "channels last, few taps": test_pooling.pool(
        channels_last(-1 - np.random.default_rng(0).random((2, 8, 5, 7))), (1, 2)
    ),
    "channels last, halves": test_pooling.pool(
        channels_last(
            np.random.default_rng(0).choice([-1, -0.0, 0.0, np.nan, -np.nan], (2, 16, 5, 7))
        ),
        2,
        dtype=np.float16,
    ),
    "few pairs": test_pooling.pool(NUMBERS[:1, :1, :4, :6], 2),
    **{f"large {number}": case for number, case in enumerate(LARGE)},
    **{f"NaN {number}": case for number, case in enumerate(NAN)},
}


SUITE = Suite(
    "max_pool2d",
    MAX_POOL2D,
    MUTANTS,
    CASES,
    files=(MAX_POOL2D,),
    search=st.one_of(max_pools(), test_pooling.large_pools, st.sampled_from([*NAN, *LARGE])),
    view=test_pooling.pool(np.random.default_rng(0).standard_normal((2, 3, 5, 7)), 2, 1),
    check=into_both_layouts(test_pooling.check_bits),
)
