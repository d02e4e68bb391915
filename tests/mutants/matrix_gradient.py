"""Mutants of the weight gradient on Tensor Cores, and of the sum of its ranges."""

from __future__ import annotations

from unittest import mock

import numpy as np

from backends import EmulatorBackend
from bounds import assert_close, assert_convolution
from cupyconv import _chunks
from gradients import Gradient, gradient
from mutants import Mutant, Suite
from planning import forget
from strategies import BFLOAT16

PRODUCTS, SUMS = "matrix_gradient.cu", "gradient_sum.cu"

MUTANTS = {
    # Lines of inputs, and the rows of gradients.
    "the inputs of the first group": Mutant(
        "(group * p.channels + rest) * p.input_channel", "rest * p.input_channel", case="groups",
    ),
    "the rows of the first group": Mutant(
        "(group * p.rows + first_row) * p.grad_row", "first_row * p.grad_row", case="groups",
    ),
    "the first plane of z for all": Mutant("p.tap_z[z].plane + ", "", case="three axes"),
    "no step from line to line": Mutant(
        "p.tap_y[y].shift + p.class_x[own].shift", "p.class_x[own].shift", case="strides",
    ),
    "the first class of a line for all": Mutant(
        "p.class_of[tap] - first_line", "0 - first_line", case="lines apart",
    ),
    "words beyond the end of a channel": Mutant(
        "const bool exists = at < p.words;", "const bool exists = true;", case="halves",
    ),
    "rows beyond the end of a channel": Mutant(
        "const bool present = begin + place < p.words;", "const bool present = true;",
        case="halves",
    ),
    "the first sample for all that lie in place": Mutant(
        "p.input + step.sample * p.input_sample", "p.input", case="one tap",
    ),
    "a step that goes on to the next sample": Mutant(
        "if (word < p.words) return;", "if (word < 2 * p.words) return;", case="one tap",
    ),
    # The pipeline.
    "a step that may be under way": Mutant(
        "copy_async_wait<STAGES - 2>();", "copy_async_wait<STAGES - 1>();", case="strides",
    ),
    "a stage that is read yet": Mutant(
        "__syncthreads();  // the step is there, and nobody reads the one before any more", "",
        case="strides",
    ),
    # Products and sums.
    "no product of a low part": Mutant(
        "multiply(own, a.of[1], b[c].of[0], Element());", "", case="strides",
    ),
    "the first words of doubles alone": Mutant(
        "for (int k = 0; k < 2; ++k) mma_float64", "for (int k = 0; k < 1; ++k) mma_float64",
        case="doubles",
    ),
    "the upper rows of doubles for all": Mutant(
        "a[2 * k + half], b[k]", "a[2 * k], b[k]", case="doubles",
    ),
    "doubles without the sums of the steps before": Mutant(
        "double own[2] = {sums[2 * half], sums[2 * half + 1]};", "double own[2] = {0, 0};",
        case="doubles",
    ),
    "the sums before a segment's end alone": Mutant(
        "if (PARTS == 2) sum += totals.of[r][c][j];", "", case="one sign",
    ),
    "one segment for all steps": Mutant(
        "(i - begin) % SEGMENT == SEGMENT - 1", "i < 0", case="one sign",
    ),
    "the last chunk of samples alone": Mutant("p.adds ? *own + sum : sum", "sum", case="chunks"),
    "the partial sums of the first group": Mutant(
        "(split * p.groups + group) * p.rows", "(split * p.groups) * p.rows", case="groups",
    ),
    # The sum of the ranges.
    "the last range dropped": Mutant(
        "split < p.splits; ++split", "split + 1 < p.splits; ++split", case="one sign", file=SUMS,
    ),
    "sums that are not finite as they are": Mutant(
        "__ballot_sync(~0u, is_special(total))", "0u", case="padding beside infinity", file=SUMS,
    ),
    "an exact sum without its padding": Mutant(
        "present &= at >= 0 && at < axis.size_in;", "present &= at >= 0;",
        case="padding beside infinity", file=SUMS,
    ),
    "an exact sum of a thread's own element": Mutant(
        "exact_sum(p, __shfl_sync(~0u, element, lane))", "exact_sum(p, element)",
        case="padding beside infinity", file=SUMS,
    ),
    "an exact sum of the first sample": Mutant(
        "sample * p.input_batch", "0 * p.input_batch", case="padding beside infinity", file=SUMS,
    ),
    "an exact sum of the first group": Mutant(
        "group * p.grad_group", "0 * p.grad_group", case="padding beside infinity", file=SUMS,
    ),
}  # fmt: skip


# What else computes sums again would hide that they are not finite.
UNREPAIRED = MUTANTS["sums that are not finite as they are"].patch(SUMS)


def special(case: Gradient) -> Gradient:
    """The case with infinities and NaN in some channels, at the ends of lines and inside."""
    x, y = case["input"].copy(), case["grad_output"].copy()
    x[-1, 0, ..., 0], x[0, -1, ..., -1], y[-1, -1, ..., 1] = np.inf, np.nan, -np.inf
    return case.with_arrays(input=x, grad_output=y)


def infinite_ends(case: Gradient) -> Gradient:
    """The case with infinity at the ends of lines, which padding parts from the first tap."""
    x = case["input"].copy()
    x[0, ..., -1] = np.inf
    return case.with_arrays(input=x)


CASES = {
    "strides": gradient("weight", (2, 3, 9, 11), (7, 3, 3, 3), padding=1, stride=2),
    "halves": gradient(
        "weight", (2, 3, 5, 33), (7, 3, 2, 5), np.float16, padding=((0, 1), (3, 0)), stride=(1, 2)
    ),
    "doubles": gradient("weight", (2, 3, 9, 41), (19, 3, 3, 3), np.float64, padding=1),
    "lines apart": gradient("weight", (2, 2, 300), (5, 2, 5), BFLOAT16, dilation=61),
    "three axes": gradient(
        "weight", (2, 2, 5, 6, 7), (3, 2, 3, 2, 3), stride=(2, 3, 1), padding=1, precision="tf32"
    ),
    "groups": gradient("weight", (2, 9, 6, 7), (12, 3, 3, 2), groups=3, padding=1),
    "one tap": gradient("weight", (2, 20, 6, 12), (24, 5, 1, 1), groups=4),
    "tiles": gradient("weight", (1, 85, 2, 40), (75, 85, 1, 9), np.float16, padding=(0, 4)),
    "warps": gradient("weight", (2, 33, 4, 40), (130, 33, 1, 3), precision="tf32"),
    "chunks": gradient("weight", (5, 3, 40), (5, 3, 4), padding=2),
    "one sign": gradient("weight", (1, 1, 2**12 + 1), (1, 1, 2), style="positive"),
    "a volume beside infinity": infinite_ends(
        gradient("weight", (2, 1, 3, 4, 9), (5, 1, 2, 3, 3), padding=1)
    ),
    "padding beside infinity": special(
        gradient(
            "weight",
            (2, 4, 6, 30),
            (6, 2, 3, 3),
            groups=2,
            padding=1,
            dilation=(2, 1),
            stride=(1, 2),
        )
    ),
}


def check(backend: EmulatorBackend, case: Gradient) -> None:
    """Compare with the definition. Many samples are in chunks, and errors do not grow with sums."""
    sample_bytes = 1 if case["input"].shape[0] > 2 else _chunks._CHUNK_BYTES
    with mock.patch.object(_chunks, "_CHUNK_BYTES", sample_bytes):
        forget()
        result, defined = backend.compute(case), case.defined
    forget()
    assert_convolution(result, defined, case.dtype, case.precision)
    if case.dtype == np.float32 and case.precision == "float32" and np.isfinite(result).all():
        assert_close(result, defined.value, 2.0**-18 * defined.scale, case.dtype)


SUITE = Suite(
    "matrix_gradient",
    PRODUCTS,
    MUTANTS,
    CASES,
    kernels=("portable",),
    files=(PRODUCTS, "tf32.cuh", "gradient_axis.cuh"),
    check=check,
)
