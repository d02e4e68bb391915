"""Mutants of the shipped kernels, run on the emulator: the suite must reject every one.

A mutant is a patch to a kernel's text. One that no longer applies fails its test, so that it is
brought up to date with the kernel.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st

import test_convolution
import test_norms
import test_pooling
from backends import EmulatorBackend
from cupyconv import _compile
from strategies import (
    Case,
    Convolution,
    batch_norms,
    convolution,
    convolutions,
    group_norms,
    max_pools,
)


class Mutant(NamedTuple):
    file: str
    before: str
    after: str
    caught: str  # by what: part of the emulator's message, or "wrong" for a comparison
    everywhere: bool = False

    def patch(self) -> dict[str, str]:
        """The changed text of the file, all headers included."""
        kernel = self.file if self.file.endswith(".cu") else "direct_conv.cu"
        text = _compile.source(kernel)
        count = text.count(self.before)
        assert count, f"the patch no longer applies: {self.before!r}"
        assert self.everywhere or count == 1, f"the patch applies {count} times: {self.before!r}"
        return {kernel: text.replace(self.before, self.after)}


CONV = "direct_conv.cu"
NORM = "normalize.cu"
POOL = "max_pool2d.cu"

ACCIDENTS = {
    "input bound off by one": Mutant(
        CONV,
        "present &= Unsigned(i) < Unsigned(p.axis[a].size_in);",
        "present &= Unsigned(i) <= Unsigned(p.axis[a].size_in);",
        "out of bounds|between the elements|wrong",
    ),
    "rows of the result off by one": Mutant(
        CONV, "if (row >= rows) break;", "if (row > rows) break;", "nothing wrote|out of bounds"
    ),
    "rows of the weight off by one": Mutant(
        CONV, "if ((k < left) & (row < rows))", "if ((k < left) & (row <= rows))", "out of bounds"
    ),
    "steps off by one": Mutant(
        CONV, "if (k < steps) describe_step(", "if (k + 1 < steps) describe_step(", "wrong"
    ),
    "no barrier behind the steps": Mutant(
        CONV,
        "phase, Coordinate(k), shared.steps[thread]);\n        }\n        __syncthreads();",
        "phase, Coordinate(k), shared.steps[thread]);\n        }",
        "race|nothing wrote",
    ),
    "no barrier between tiles": Mutant(
        CONV, "    __syncthreads();  // before the next tile describes its outputs\n", "", "race"
    ),
    "no barrier behind a slice": Mutant(
        CONV,
        "masked = __syncthreads_or(special);\n    }\n    promote",
        "masked = special;\n    }\n    promote",
        "race|nothing wrote",
    ),
    "no barrier behind the mask": Mutant(
        CONV,
        "worker.store_present(load.present);\n            __syncthreads();",
        "worker.store_present(load.present);",
        "race|nothing wrote",
    ),
    "misaligned vector load": Mutant(
        CONV,
        "load.weights[i] = weight[row * p.weight_row + step[k].weight_offset];",
        "{ struct __align__(16) Vector { Element element[16 / sizeof(Element)]; };\n"
        "const Vector vector = *(const Vector*)(weight + row * p.weight_row "
        "+ step[k].weight_offset);\n"
        "load.weights[i] = vector.element[0]; }",
        "misaligned",
    ),
    "steps behind the last one that nothing wrote": Mutant(
        CONV,
        "shared.steps[thread] = Step();",
        "",
        "reads shared memory that nothing wrote",
    ),
    "a barrier for half of the block": Mutant(
        CONV,
        "        __syncthreads();\n    }\n\n    __device__ void load(",
        "        if (thread < 64) __syncthreads();\n    }\n\n    __device__ void load(",
        "hangs|waits at the barrier|race|nothing wrote",
    ),
    "two threads write one output": Mutant(
        CONV,
        "const int64 offset = shared.out_offset[worker.tx + c * POSITION_THREADS];",
        "const int64 offset = shared.out_offset[(worker.tx & ~1) + c * POSITION_THREADS];",
        "writes what another thread wrote",
    ),
    "an output that nobody writes": Mutant(
        CONV, "if (offset != NOWHERE) out[offset]", "if (offset > 0) out[offset]", "nobody wrote"
    ),
    "a value too many in a segment": Mutant(
        NORM,
        "const int64 end = begin + p.segment < p.elements ? begin + p.segment : p.elements;",
        "const int64 end = begin + p.segment < p.elements ? begin + p.segment : p.elements + 1;",
        "out of bounds|between the elements|wrong",
    ),
    "no barrier in the tree": Mutant(
        NORM,
        "        __syncthreads();\n        if (threadIdx.x < half)",
        "        if (threadIdx.x < half)",
        "race|nothing wrote",
    ),
    "a normalised value too many": Mutant(
        NORM,
        "i < values; i += gridDim.x",
        "i <= values; i += gridDim.x",
        "out of bounds|between the elements",
    ),
    "a column too many in a window": Mutant(
        POOL,
        "if (iw < 0 || iw >= w.size_in) continue;",
        "if (iw < 0 || iw > w.size_in) continue;",
        "out of bounds|between the elements|wrong",
    ),
}

NUMERATOR = "int64 numerator = phase + axis.origin;"
OUTPUT_PADDING = (
    "(axis.size_out - ((axis.size_in - 1) * axis.divisor - 2 * axis.origin"
    " + axis.dilation * (axis.kernel - 1) + 1))"
)

MISUNDERSTANDINGS = {
    "output_padding in the index": Mutant(
        "taps.cuh",
        NUMERATOR,
        f"int64 numerator = phase + axis.origin + (axis.phases > 1 ? {OUTPUT_PADDING} : 0);",
        "wrong",
    ),
    "no test of divisibility": Mutant(
        "taps.cuh", "if (numerator % axis.gcd != 0) return {0, 0, 0};", "", "wrong"
    ),
    "first tap not sought": Mutant(
        "taps.cuh",
        "int64 first = numerator / axis.gcd % axis.tap_step * axis.inverse % axis.tap_step;",
        "int64 first = 0;",
        "wrong",
    ),
    "groups ignored in the input": Mutant(
        CONV, "p.input + group * p.input_group;", "p.input;", "wrong"
    ),
    "groups ignored in the weight": Mutant(
        CONV, "p.weight + group * p.weight_group + row0", "p.weight + row0", "wrong"
    ),
    "flipped kernel": Mutant(
        CONV,
        "(phase.first[a] + j * p.axis[a].tap_step) * p.weight_axis[a]",
        "(p.axis[a].kernel - 1 - phase.first[a] - j * p.axis[a].tap_step) * p.weight_axis[a]",
        "wrong",
    ),
    "swapped strides of the input": Mutant(
        CONV, "p.input_axis[a]", "p.input_axis[rank_of(p) - 1 - a]", "wrong|bounds|between", True
    ),
    "swapped strides of the convolution": Mutant(
        CONV, "q * axis.step", "q * p.axis[rank_of(p) - 1 - a].step", "wrong|out of bounds", True
    ),
    "last channel dropped": Mutant(CONV, "p.channels", "(p.channels - 1)", "wrong", True),
    "dilation ignored": Mutant(
        CONV,
        "j * Coordinate(p.axis[a].offset_step)",
        "j * (p.axis[a].offset_step < 0 ? -1 : 1)",
        "wrong",
    ),
    "bias of another group": Mutant(CONV, "group * p.rows + row0 + row", "row0 + row", "wrong"),
    "padding that counts against an infinite weight": Mutant(
        CONV, "if (MASKED && !shared.present", "if (false && !shared.present", "wrong"
    ),
    "NaN loses against a number": Mutant(
        POOL, "|| value != value)", ")", "wrong"
    ),
}  # fmt: skip


def verdict(backend: EmulatorBackend, case: Case) -> str | None:
    """What the suite says against the result of a case, or nothing."""
    try:
        if isinstance(case, Convolution):
            test_convolution.check(backend, case)
        elif case.function == "max_pool2d":
            test_pooling.check(backend, case)
        else:
            test_norms.check(backend, case)
    except AssertionError as error:
        return str(error)
    return None


def infinite(case: Convolution) -> Convolution:
    weight = case["weight"].copy()
    weight.flat[::7] = np.inf
    return case.with_arrays(weight=weight)


# Beside what Hypothesis draws: sums of several slices and tables, blocks of several tiles.
LARGE = [
    convolution("conv2d", (3, 40, 17, 13), (70, 40, 3, 3), bias=True, padding=1),
    convolution("conv_transpose2d", (2, 12, 9, 11), (12, 20, 3, 5), bias=True, stride=2),
    convolution("conv1d", (2, 150, 5), (9, 150, 5), bias=True),
    infinite(convolution("conv2d", (1, 4, 6, 7), (20, 4, 3, 3), padding=1)),
    infinite(convolution("conv2d", (1, 4, 6, 7), (5, 4, 3, 3), padding=1)),
]
NAN = [
    test_pooling.pool(np.roll([np.nan, 1.0, 2.0, 3.0], k).reshape(1, 1, 2, 2), 2) for k in range(4)
]


def cases(mutant: Mutant) -> st.SearchStrategy[Case]:
    if mutant.file == NORM:
        return st.one_of(batch_norms(given=False), group_norms())
    if mutant.file == POOL:
        return st.one_of(max_pools(), st.sampled_from(NAN))
    # One dtype, so that few instances are built.
    dtype = np.dtype(np.float32)
    drawn = convolutions(
        functions=("conv", "conv_transpose"), dtypes=st.just((dtype, dtype)), unbatched=False
    )
    return st.one_of(drawn, st.sampled_from(LARGE))


@pytest.mark.emulator
@pytest.mark.parametrize("name", [*ACCIDENTS, *MISUNDERSTANDINGS])
def test_is_rejected(name: str) -> None:
    mutant = {**ACCIDENTS, **MISUNDERSTANDINGS}[name]
    backend = EmulatorBackend(mutant.patch())

    def rejected(case: Case) -> bool:
        return re.search(mutant.caught, verdict(backend, case) or "") is not None

    search = settings(
        max_examples=400,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],  # a new instance takes a second to build
        database=None,
    )
    find(cases(mutant), rejected, settings=search)  # raises NoSuchExample where nothing rejects it
