"""Mutants of the gradients of depthwise weights."""

from __future__ import annotations

from unittest import mock

import numpy as np

from backends import EmulatorBackend
from bounds import assert_close, assert_convolution
from cupyconv._kernels import depthwise_gradient, gradient_sum
from gradients import Gradient, gradient
from mutants import Mutant, Suite
from planning import forget

SOURCE = "depthwise_gradient.cu"

MUTANTS = {
    "the inputs of the first group": Mutant(
        "group * p.input_group", "0 * p.input_group", case="multiplier",
    ),
    "the inputs of another group": Mutant(
        "group = channel / int(p.rows);", "group = channel;", case="multiplier",
    ),
    "the first sample for all": Mutant(
        "tile.sample + own;", "tile.sample;", case="samples of a tile",
    ),
    "samples beyond the last one": Mutant(
        "(sample < p.batch) & (y < ay.size_out)", "y < ay.size_out", case="samples of a tile",
    ),
    "lines of outputs beyond the last one": Mutant(
        "(sample < p.batch) & (y < ay.size_out)", "sample < p.batch", case="unread",
    ),
    "lines of inputs beside the array": Mutant(
        "(sample < p.batch) & inside(y, ay) & inside(z, az)", "sample < p.batch", case="three axes",
    ),
    "outputs beyond the end of a line": Mutant(
        "1, table[row].present * int(ax.size_out)}", "1, table[row].present << 30}", case="ragged",
    ),
    "the first residue for all": Mutant(
        "residues == 1 ? 0 : small_quotient(place, pitch)", "0", case="stride",
    ),
    "the taps of the first plane": Mutant(
        "z * int(p.staged_high) + y", "y", case="three axes",
    ),
    "no dilation of y": Mutant(
        "y * int(p.axis[1].dilation)", "y", case="dilation",
    ),
    "the first window for all": Mutant("int(p.window[window])", "int(p.window[0])", case="stride"),
    "the first part for all": Mutant("part * 32 + lane", "lane", case="samples of a tile"),
    "the outputs of all parts for each": Mutant(
        "k += parts * 32", "k += 32", case="samples of a tile",
    ),
    "one part of a sum": Mutant("part < int(p.parts)", "part < 1", case="samples of a tile"),
    "the lines of outputs side by side": Mutant(
        "y * int(p.axis[1].step)) * line_pitch", "y) * line_pitch", case="stride",
    ),
    "the last tile alone": Mutant("of[lane / 8] += sum;", "of[lane / 8] = sum;", case="ragged"),
    "a tile staged while another is read": Mutant(
        "__syncthreads();  // before the next tile is staged", "", case="ragged",
    ),
    "the sums of half a warp": Mutant(
        "int apart = 4; apart > 0", "int apart = 2; apart > 0", case="ragged",
    ),
}  # fmt: skip


def _infinite() -> Gradient:
    case = gradient("weight", (2, 2, 6, 7), (2, 1, 3, 3), groups=2, padding=1)
    case["input"][0, 0, 0, 0] = np.inf
    return case


CASES = {
    "multiplier": gradient("weight", (2, 3, 40), (6, 1, 3), groups=3),
    "samples of a tile": gradient("weight", (19, 4, 5, 6), (4, 1, 3, 3), groups=4, padding=1),
    "ragged": gradient("weight", (2, 2, 23, 70), (2, 1, 6, 5), groups=2, padding=2),
    "three axes": gradient("weight", (5, 2, 4, 5, 9), (2, 1, 3, 2, 3), groups=2, padding=1),
    "stride": gradient("weight", (2, 2, 11, 40), (2, 1, 3, 5), groups=2, stride=(2, 3)),
    "dilation": gradient("weight", (2, 2, 14, 20), (2, 1, 3, 4), groups=2, dilation=(3, 2)),
    "unread": gradient("weight", (2, 2, 269, 6), (2, 1, 2, 3), groups=2, stride=(4, 1)),
    "halves": gradient("weight", (2, 2, 9, 20), (2, 1, 3, 3), np.float16, groups=2),
    "infinity": _infinite(),
}


def check(backend: EmulatorBackend, case: Gradient) -> None:
    """Compare with the definition. Tiles are small and ranges few, so that there are several."""
    with (
        mock.patch.object(depthwise_gradient, "_AREA", 256),
        mock.patch.object(gradient_sum, "MOST_PARTIAL", 300),
    ):
        forget()
        with np.errstate(invalid="ignore"):
            expected = case.defined
            result = backend.compute(case)
    forget()
    if np.isfinite(expected.value).all():
        assert_convolution(result, expected, case.dtype)
    else:
        assert_close(result, expected.value, 1e-4, case.dtype)


SUITE = Suite(
    "depthwise_gradient",
    SOURCE,
    MUTANTS,
    CASES,
    kernels=("depthwise",),
    files=(SOURCE,),
    check=check,
)
