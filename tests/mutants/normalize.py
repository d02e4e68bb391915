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
        NORMALIZE,
        "return begin + p.segment < p.elements ? begin + p.segment : p.elements;",
        "return begin + p.segment < p.elements ? begin + p.segment : p.elements + 1;",
        "out of bounds|between the elements|wrong",
    ),
    "no barrier before a sum": Mutant(
        NORMALIZE, "    __syncthreads();  // all threads have read the last sum\n", "", "race"
    ),
    "no barrier behind the sums of the warps": Mutant(
        NORMALIZE, "    __syncthreads();\n    value = 0;", "    value = 0;", "race|nothing wrote"
    ),
    "no barrier behind the values of a set": Mutant(
        NORMALIZE, "    __syncthreads();\n    Sums", "    Sums", "race|nothing wrote"
    ),
    "a pack in order that is not summed": Mutant(
        NORMALIZE,
        "            sums.add(packs[i], PACK);",
        "            if (i) sums.add(packs[i], PACK);",
        "wrong",
    ),
    "the parameters of another set": Mutant(
        NORMALIZE, "set % p.sets_per_sample * p.set_channels;", "0;", "wrong"
    ),
    "no barrier before the next set": Mutant(
        NORMALIZE, "        __syncthreads();  // before the next set comes\n", "", "race"
    ),
    "a value too many in the last pack of a set": Mutant(
        NORMALIZE, "if (i >= present) break;", "if (i > present) break;", "nothing wrote|wrong"
    ),
    "packs that are not aligned": Mutant(
        NORMALIZE, "p.values.width == PACK       ?", "true ?", "misaligned|bounds|between|wrong"
    ),
    "a value too many across the sets": Mutant(
        NORMALIZE, "if (first + i < end)\n", "if (first + i <= end)\n", "bounds|between"
    ),
    "a step too many": Mutant(
        NORMALIZE,
        "return i * walk.lanes < left;",
        "return i * walk.lanes <= left;",
        "out of bounds|between the elements|another thread",
    ),
    # Misunderstandings.
    "only the first value of a thread": Mutant(NORMALIZE, "sum += deviation;", "", "wrong"),
    "each thread's mean for that of all": Mutant(
        NORMALIZE, "fma(own.count * apart, apart, own.m2)", "own.m2", "wrong"
    ),
    "one channel for all of a step": Mutant(NORMALIZE, "= j && one ?", "= j ?", "wrong"),
    "one partial for the sets of a pack": Mutant(
        NORMALIZE,
        "store_partial(p, set + j, part,",
        "store_partial(p, set, part,",
        "nothing wrote|wrong|another thread",
    ),
    "one channel for all groups": Mutant(
        NORMALIZE, "set % p.sets_per_sample * p.set_channels", "0", "wrong"
    ),
}

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

SUITE = Suite(
    "normalize",
    NORMALIZE,
    MUTANTS,
    search=st.one_of(
        batch_norms(given=False), group_norms(), st.sampled_from([CHANNELS_LAST, ROWS])
    ),
    view=CHANNELS_LAST,
    check=test_norms.check,
)
