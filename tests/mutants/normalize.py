"""Mutants of the kernel of the norms."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import test_norms
from mutants import Mutant, Suite
from strategies import Case, batch_norms, group_norms

NORMALIZE = "normalize.cu"

MUTANTS = {
    # Accidents.
    "a value too many in a segment": Mutant(
        "return begin + p.segment < p.elements ? begin + p.segment : p.elements;",
        "return begin + p.segment < p.elements ? begin + p.segment : p.elements + 1;",
    ),
    "a pack in order that is not summed": Mutant(
        "            sums.add(packs[i], PACK);", "            if (i) sums.add(packs[i], PACK);",
    ),
    "packs that are not aligned": Mutant("p.values.width == PACK       ?", "true ?"),
    # Misunderstandings.
    "each thread's mean for all": Mutant("fma(own.count * apart, apart, own.m2)", "own.m2"),
    "one channel for all of a step": Mutant("= j && one ?", "= j ?"),
    "one partial for the sets of a pack": Mutant(
        "store_partial(p, set + j, part,", "store_partial(p, set, part,",
    ),
    "one channel for all groups": Mutant("set % p.sets_per_sample * p.set_channels", "0"),
}  # fmt: skip

# Neighbours of different channels, in the input and in the result.
CHANNELS_LAST = Case(
    "batch_norm",
    {
        "input": np.moveaxis(np.random.default_rng(0).standard_normal((3, 5, 8)), 2, 1),
        "weight": np.arange(8.0),
    },
    {},
)
ROWS = Case(
    "batch_norm", {"input": np.arange(40.0).reshape(5, 8) ** 2, "weight": np.arange(8.0)}, {}
)


def values(*shape: int) -> np.ndarray:
    """Random numbers around 5."""
    return np.random.default_rng(0).standard_normal(shape) + 5


def affine(channels: int) -> dict[str, np.ndarray]:
    """Parameters that differ from channel to channel."""
    return {"weight": np.arange(1.0, channels + 1), "bias": np.arange(3.0, channels + 3)}


SHORT = values(3, 6, 5, 7).astype(np.float32)
CASES = {
    "channels last": CHANNELS_LAST,
    "rows": ROWS,
    "batch": Case("batch_norm", {"input": SHORT, **affine(6)}, {}),
    "segments": Case("batch_norm", {"input": values(2, 2, 9001), **affine(2)}, {}),
    "large numbers": Case("batch_norm", {"input": np.float32(1e25) * SHORT}, {"eps": 1.0}),
    "given": Case(
        "batch_norm",
        {"input": SHORT, "mean": np.arange(6.0), "var": np.arange(1.0, 7.0), **affine(6)},
        {"eps": 0.5},
    ),
    "groups": Case("group_norm", {"input": SHORT, **affine(6)}, {"num_groups": 3}),
    "one value": Case("group_norm", {"input": SHORT[..., :1, :1]}, {"num_groups": 6}),
    "aligned": Case(
        "group_norm", {"input": values(2, 4, 50).astype(np.float32)}, {"num_groups": 2}
    ),
    "halves": Case("group_norm", {"input": values(2, 4, 30).astype(np.float16)}, {"num_groups": 2}),
    "long halves": Case(
        "group_norm", {"input": values(1, 2, 1029).astype(np.float16)}, {"num_groups": 1}
    ),
    "large groups": Case("group_norm", {"input": values(1, 2, 30_000)}, {"num_groups": 1}),
    "layout": Case(
        "group_norm",
        {"input": np.moveaxis(values(2, 5, 9, 8), 3, 1), **affine(8)},
        {"num_groups": 2},
    ),
    "many axes": Case(
        "batch_norm", {"input": values(4, 3, 4, 3, 4, 3, 4).T[(slice(None, None, 2),) * 7]}, {}
    ),
    "large layout": Case(
        "batch_norm", {"input": np.moveaxis(values(2, 2100, 8).astype(np.float32), 2, 1)}, {}
    ),
}

SUITE = Suite(
    "normalize",
    NORMALIZE,
    MUTANTS,
    CASES,
    files=(NORMALIZE, "block_sum.cuh", "moments.cuh", "view.cuh"),
    search=st.one_of(
        batch_norms(given=False), group_norms(), st.sampled_from([CHANNELS_LAST, ROWS])
    ),
    view=CHANNELS_LAST,
    check=test_norms.check,
)
