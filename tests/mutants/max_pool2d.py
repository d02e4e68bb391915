"""Mutants of the kernel of max pooling."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import test_pooling
from mutants import Mutant, Suite
from strategies import max_pools

MAX_POOL2D = "max_pool2d.cu"

MUTANTS = {
    # Accidents.
    "a window too many": Mutant(
        MAX_POOL2D,
        "return i * walk.lanes < left;",
        "return i * walk.lanes <= left;",
        "out of bounds|between the elements|another thread",
    ),
    "a column too many in a window": Mutant(
        MAX_POOL2D,
        "if (present <= axis.dilation * (axis.kernel - 1))",
        "if (present < axis.dilation * (axis.kernel - 1))",
        "out of bounds|between the elements|wrong",
    ),
    "windows that are not clipped at the end": Mutant(
        MAX_POOL2D,
        "if (present <= axis.dilation * (axis.kernel - 1))",
        "if (false)",
        "out of bounds|between the elements|wrong",
    ),
    "windows that are not clipped at the start": Mutant(
        MAX_POOL2D, "if (start < 0)", "if (false)", "out of bounds|between the elements|wrong"
    ),
    "packs that begin where the line does": Mutant(
        MAX_POOL2D, "head = before < count ? before : count;", "head = 0;", "misaligned"
    ),
    "a pack too many in a line": Mutant(
        MAX_POOL2D,
        "(count - head) / PACK, lane",
        "(count - head) / PACK + 1, lane",
        "out of bounds|between the elements|wrong",
    ),
    "an element too many behind the packs": Mutant(
        MAX_POOL2D,
        "if (last < count)",
        "if (last <= count)",
        "out of bounds|between the elements|wrong",
    ),
    "no element behind the packs": Mutant(MAX_POOL2D, "if (last < count)", "if (false)", "wrong"),
    "no element before the packs": Mutant(MAX_POOL2D, "if (lane < head)", "if (false)", "wrong"),
    "only the first load of a lane": Mutant(
        MAX_POOL2D,
        "if (first + i * LANES >= count) break;",
        "if (i > 0 || first + i * LANES >= count) break;",
        "wrong",
    ),
    # Misunderstandings.
    "NaN loses against a number": Mutant(
        MAX_POOL2D, "|| (compared != compared && value == value))", ")", "wrong"
    ),
    "the last NaN stays": Mutant(MAX_POOL2D, "&& value == value)", ")", "wrong"),
    "the last of equal elements stays": Mutant(
        MAX_POOL2D, "if (compared > value ||", "if (compared >= value ||", "wrong"
    ),
    "any lane of those with the largest element": Mutant(
        MAX_POOL2D, "equal ? number < tap :", "equal ? false :", "wrong|another thread|nobody wrote"
    ),
    "the last lane of those with the largest element": Mutant(
        MAX_POOL2D,
        "equal ? number < tap :",
        "equal ? number > tap :",
        "wrong|another thread|nobody wrote",
    ),
    "NaN of other lanes loses": Mutant(
        MAX_POOL2D,
        "other > value || other != other)",
        "other > value)",
        "wrong|another thread|nobody wrote",
    ),
    "NaN in several lanes": Mutant(
        MAX_POOL2D,
        "|| (value != value && other != other);",
        ";",
        "wrong|another thread|nobody wrote",
    ),
    "rows of a window that count from its first tap": Mutant(
        MAX_POOL2D,
        "number = row * p.axis[1].kernel;",
        "number = 0;",
        "wrong|another thread|nobody wrote",
    ),
    "packs that count from the first of a line": Mutant(
        MAX_POOL2D, "packs, number + head);", "packs, number);", "wrong|another thread|nobody wrote"
    ),
    "a part without elements that is zero": Mutant(
        MAX_POOL2D, "__uint_as_float(0xff800000u)", "0", "wrong", everywhere=True
    ),
    "half of a pair": Mutant(
        MAX_POOL2D, "                largest.consider(lower[i].of[1]);\n", "", "wrong"
    ),
}

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

SUITE = Suite(
    "max_pool2d",
    MAX_POOL2D,
    MUTANTS,
    search=st.one_of(max_pools(), test_pooling.large_pools, st.sampled_from([*NAN, *LARGE])),
    view=test_pooling.pool(np.random.default_rng(0).standard_normal((2, 3, 5, 7)), 2, 1),
    check=test_pooling.check_bits,
)
