"""Mutants of the kernel of the norms."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import test_norms
from mutants import Mutant, Suite, into_both_layouts
from strategies import Case, batch_norms, group_norms

NORMALIZE = "normalize.cu"

MUTANTS = {
    # Accidents.
    "a value too many in a segment": Mutant(
        "? p.segment : p.line - begin);", "? p.segment : p.line - begin + 1);",
    ),
    "a pack in order that is not summed": Mutant(
        "            sums.add(packs[i], PACK,", "            if (i) sums.add(packs[i], PACK,",
    ),
    "packs that are not aligned": Mutant("p.values.width == PACK       ?", "true ?"),
    # Misunderstandings.
    "each thread's mean for all": Mutant("fma(own.count * apart, apart, own.m2)", "own.m2"),
    "one partial for the lines of a pack": Mutant("segment.store(p, j,", "segment.store(p, 0,"),
    "one channel for all groups": Mutant("set % p.lines_per_sample * p.set_channels", "0"),
    "one channel for all of a step": Mutant(
        "unsigned(steps.start.offset[CHANNEL]) + j;", "unsigned(steps.start.offset[CHANNEL]);",
        "large layout",
    ),
    "one channel for all of a step in shared memory": Mutant(
        "int(steps.start.offset[CHANNEL]) + j);", "int(steps.start.offset[CHANNEL]));", "layout",
    ),
    "the first group for all channels of a sample": Mutant(
        "channel / unsigned(p.set_channels), channel);", "0, channel);", "large groups, layout",
    ),
    "the same places in each round": Mutant(
        "            steps.go(p.places);\n", "", "large layout",
    ),
    "the first set of a bundle for all sums": Mutant(
        "sum_set(shared.values + own * count, count)", "sum_set(shared.values, count)", "bundles",
    ),
    "the first set of a bundle for all channels": Mutant(
        "p.bundle == 1 ? 0 :", "true ? 0 :", "bundles",
    ),
    "a pack in the order of the numbers": Mutant(
        "to[j * int(p.value_gap)] =", "to[j] =", "bundles",
    ),
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
    "large groups, layout": Case(
        "group_norm",
        {"input": np.moveaxis(values(1, 63, 65, 16), 3, 1), **affine(16)},
        {"num_groups": 2},
    ),
    "bundles": Case(
        "group_norm",
        {"input": np.moveaxis(values(2, 5, 8, 8).astype(np.float32), 3, 1), **affine(8)},
        {"num_groups": 4},
    ),
    "large layout": Case(
        "batch_norm", {"input": np.moveaxis(values(2, 2100, 32).astype(np.float32), 2, 1)}, {}
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
    check=into_both_layouts(test_norms.check),
)
