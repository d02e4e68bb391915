"""Mutants of the weight gradient by wgmma, and of the copies that it multiplies."""

from __future__ import annotations

import numpy as np

from backends import EmulatorBackend
from gradients import Gradient, gradient
from mutants import Mutant, Suite, matrix_gradient
from mutants.matrix_gradient import CASES as MATRIX_CASES
from mutants.matrix_gradient import UNREPAIRED
from running import channels_last

PRODUCTS, COPIES, SUMS = "hopper_gradient.cu", "gradient_lines.cu", "gradient_sum.cu"

MUTANTS = {
    # Boxes.
    "the inputs of the first group": Mutant(
        "group * int(p.channels) + describe_box(lane, place)", "describe_box(lane, place)",
        case="groups",
    ),
    "the rows of the first group": Mutant(
        "row = group * int(p.rows) + first_row", "row = first_row", case="groups",
    ),
    "taps without a shift": Mutant(
        "place.plane += own.plane, place.shift += own.shift;", "place.plane += own.plane;",
        case="strides",
    ),
    "the first plane for all taps": Mutant(
        "place.plane += own.plane, place.shift += own.shift;", "place.shift += own.shift;",
        case="strides",
    ),
    "the taps of x along all axes": Mutant("p.tap[axis]", "p.tap[2]", case="three axes"),
    "the channels of the first block": Mutant(
        "return rest * int(p.box);", "return 0;", case="tiles",
    ),
    "the first tile of columns for all": Mutant(
        "int(rest % p.column_tiles) * (COLUMNS / int(p.box))", "0", case="tiles",
    ),
    "the low parts of the first plane": Mutant(
        "part * int(p.planes), full", "part, full", case="strides",
    ),
    "the high parts of rows alone": Mutant("sample + part, full", "sample, full", case="strides"),
    "a range that begins with the first sample": Mutant(
        "int sample = int(begin / p.steps)", "int sample = 0", case="one tap",
    ),
    "steps over the end of a sample": Mutant(
        "if (++step == int(p.steps)) step = 0, ++sample;", "++step;", case="groups of one tap",
    ),
    # The pipeline.
    "a stage that is read yet": Mutant(
        "mbarrier_wait(&ring().empty[turn.stage], 1 - turn.parity);", "", case="long halves",
    ),
    "a wait for the phase before": Mutant(
        "empty[turn.stage], 1 - turn.parity", "empty[turn.stage], turn.parity", case="long halves",
    ),
    "a stage of which no bytes are expected": Mutant(
        "mbarrier_arrive_expect(full, STAGE_BYTES);", "mbarrier_arrive(full);", case="strides",
    ),
    "a stage of which the columns are not expected": Mutant(
        "mbarrier_arrive_expect(full, STAGE_BYTES);",
        "mbarrier_arrive_expect(full, PARTS * ROW_BYTES);", case="strides",
    ),
    "boxes by all lanes": Mutant(
        "brings = lane < COLUMNS / int(p.box)", "brings = true", case="strides",
    ),
    "a stage for one warpgroup of two": Mutant(
        "ring().initialise(CONSUMERS * WARPGROUP / 32)",
        "ring().initialise(WARPGROUP / 32)", case="long halves",
    ),
    "a step that may be under way": Mutant(
        "mbarrier_wait(&ring().full[stage], turn.parity);", "", case="strides",
    ),
    "the stage of a product that is under way": Mutant(
        "if (before >= 0) ring().release(before);", "ring().release(stage);", case="long halves",
    ),
    "no wait for the product of a stage": Mutant("wgmma_wait<1>();", "", case="long halves"),
    "a stage given back before its products": Mutant(
        "                wgmma_wait<0>();\n                ring().release(stage);",
        "                ring().release(stage);\n                wgmma_wait<0>();", case="one sign",
    ),
    "no wait for the last product": Mutant(
        "wgmma_wait<0>();\n        store(", "store(", case="long halves",
    ),
    "registers before a fence": Mutant("            wgmma_fence();\n", "", case="strides"),
    # Products and sums.
    "no low part of the rows": Mutant(
        "multiply(chain, a(1)", "multiply(chain, a(0)", case="strides",
    ),
    "no low part of the columns": Mutant(
        "multiply(chain, a(0), b(1), true);", "", case="strides",
    ),
    "a chain that goes on": Mutant("a(1), b(0), false", "a(1), b(0), true", case="one sign"),
    "the last chain alone": Mutant("sums[j] += chain[j];", "sums[j] = chain[j];", case="one sign"),
    "the last 32 bytes of a step alone": Mutant("adds || k > 0", "adds", case="strides"),
    "the first rows for both warpgroups": Mutant(
        "DOWN == 2 ? warpgroup * 64 : 0", "0", case="rows",
    ),
    "the first columns for both warpgroups": Mutant(
        "DOWN == 2 ? 0 : warpgroup * SEGMENT", "0", case="many channels",
    ),
    "the rows of the next group": Mutant(
        "if (own_row + half * 8 < int(p.rows))", "if (true)", case="groups",
    ),
    "the channels of the next group": Mutant(
        "        if (left <= 0) return;\n", "", case="groups",
    ),
    "the channel after the last one": Mutant(
        "if (left > 1) own[1]", "own[1]", case="halves",
    ),
    "sums of an odd number of channels in pairs": Mutant(
        "p.channels % 2 == 0", "true", case="long halves",
    ),
    "the first tap for all sums": Mutant(
        "if (++tap == taps) tap = 0, ++block;", "++block;", case="tiles",
    ),
    "taps without an end": Mutant(
        "if (++tap == taps) tap = 0, ++block;", "++tap;", case="tiles",
    ),
    "the channels of a box one after the other for all taps": Mutant(
        "            if (within < box) continue;\n            within = 0;\n",
        "            if (within < box) continue;\n", case="strides",
    ),
    "taps of one channel apart": Mutant(
        "tap * p.channels + channel", "tap + channel * taps", case="tiles",
    ),
    "the partial sums of the first group": Mutant(
        "(split * p.groups + group) * p.rows", "(split * p.groups) * p.rows", case="groups",
    ),
    "the partial sums of the first groups": Mutant(
        "(split * p.groups + group) * p.rows", "(split + group) * p.rows", case="long halves",
    ),
    "the last chunk of samples alone": Mutant(
        "add_pair(own, first, second);",
        "store_bits((Bits64*)own, pair_of(first, second, 0.0f), true);", case="even chunks",
    ),
    # Copies.
    "the inputs of the first plane": Mutant(
        "int(axis.first) + int(axis.apart) * (plane - next * int(axis.planes))", "int(axis.first)",
        case="strides", file=COPIES,
    ),
    "the first channel for all": Mutant(
        "p.array + (number - plane * channels) * p.channel", "p.array", case="strides", file=COPIES,
    ),
    "the first sample for all": Mutant(
        "array + sample * p.sample + in_z", "array + in_z", case="strides", file=COPIES,
    ),
    "neighbours for a plane": Mutant(
        "from += x.step * x.stride, input += unsigned(x.step);", "from += x.stride, ++input;",
        case="halves", file=COPIES,
    ),
    "neighbours at the end of a plane": Mutant(
        "input += unsigned(x.step);", "++input;", case="halves", file=COPIES,
    ),
    "places for inputs along x": Mutant(
        "(e - start) * int(x.step)", "(e - start)", case="halves", file=COPIES,
    ),
    "places for inputs along y": Mutant(
        "at[1] * int(p.axis[1].step)", "at[1]", case="strides", file=COPIES,
    ),
    "places for inputs along z": Mutant(
        "at[0] * int(p.axis[0].step)", "at[0]", case="three axes", file=COPIES,
    ),
    # Their lines that end within a chunk.
    "the first line for all of a chunk": Mutant(
        "e > 0 && e == end", "false", case="short lines", file=COPIES,
    ),
    "one end of a line in a chunk": Mutant(
        "start = e, end += int(x.places);", "start = e;", case="short planes", file=COPIES,
    ),
    "lines that begin before the chunk": Mutant(
        "start = e, end +=", "end +=", case="short lines", file=COPIES,
    ),
    "a chunk that begins with a line": Mutant(
        "int start = -at[2],", "int start = 0,", case="short lines", file=COPIES,
    ),
    "a line that begins with the second place": Mutant(
        "(e - start) * int(x.step)", "(e - start + (e > 0)) * int(x.step)", case="short lines",
        file=COPIES,
    ),
    "the same line again": Mutant(
        "if (++at[1] == int", "if (at[1] + 1 == int", case="short lines", file=COPIES,
    ),
    "planes without an end": Mutant(
        "if (++at[1] == int(p.axis[1].places)) at[1] = 0, ++at[0];", "++at[1];",
        case="short planes", file=COPIES,
    ),
    "the same plane again": Mutant("at[1] = 0, ++at[0];", "at[1] = 0;", case="short planes",
        file=COPIES,
    ),
    "planes that begin with the second line": Mutant(
        "at[1] = 0, ++at[0];", "at[1] = 1, ++at[0];", case="short planes", file=COPIES,
    ),
    # Their zeros.
    "inputs beyond the end": Mutant(
        "input = unsigned(in_x) ^ 1u << 31, count = (inside ? unsigned(x.size) : 0) ^ 1u << 31;",
        "input = in_x < 0 ? 0 : -1, count = inside ? 0 : -1;", case="halves", file=COPIES,
    ),
    "inputs before the begin": Mutant(
        "input = unsigned(in_x) ^ 1u << 31, count = (inside ? unsigned(x.size) : 0) ^ 1u << 31;",
        "input = in_x, count = inside ? int(x.size) : -99;", case="strides", file=COPIES,
    ),
    "lines beyond the end": Mutant(
        "(unsigned(in_y) < unsigned(p.axis[1].size))", "(in_y >= 0)", case="halves", file=COPIES,
    ),
    "lines before the begin": Mutant(
        "(unsigned(in_y) < unsigned(p.axis[1].size))", "(in_y < int(p.axis[1].size))",
        case="strides", file=COPIES,
    ),
    "planes beyond the end": Mutant(
        "(unsigned(in_z) < unsigned(p.axis[0].size))", "(in_z >= 0)", case="volumes", file=COPIES,
    ),
    "planes before the begin": Mutant(
        "(unsigned(in_z) < unsigned(p.axis[0].size))", "(in_z < int(p.axis[0].size))",
        case="volumes", file=COPIES,
    ),
    # Their spans.
    "the first chunk of a span": Mutant(
        "place = begin + i * ELEMENTS;", "place = begin;", case="strides", file=COPIES,
    ),
    "the first span of a line": Mutant(
        "begin + i * ELEMENTS", "i * ELEMENTS", case="one sign", file=COPIES,
    ),
    "spans of as many places as bytes": Mutant(
        "(SPAN / int(sizeof(Bits)))", "SPAN", case="one sign", file=COPIES,
    ),
    "half of a span": Mutant(
        "i < SPAN / CHUNK;", "i < SPAN / CHUNK / 2;", case="one sign", file=COPIES,
    ),
    "spans over the end of a line": Mutant(
        "            if (place >= int(p.places)) break;\n", "", case="strides", file=COPIES,
    ),
    "the first line for all": Mutant(
        "+ number * p.places + place", "+ place", case="strides", file=COPIES,
    ),
    # Their parts.
    "the high part twice": Mutant(
        "tf32_part(bits[e], part)", "tf32_part(bits[e], 0)", case="strides", file=COPIES,
    ),
    "the low part over the high one": Mutant(
        "p.lines + part * p.part", "p.lines", case="strides", file=COPIES,
    ),
    "pairs in one place": Mutant(
        " << e * int(sizeof(Bits)) % 4 * 8", "", case="halves", file=COPIES,
    ),
}  # fmt: skip


CASES = {
    **{name: MATRIX_CASES[name] for name in ("strides", "halves", "three axes", "groups")},
    "one tap": gradient("weight", (2, 20, 6, 12), (24, 20, 1, 1), np.float16),
    "groups of one tap": gradient("weight", (2, 20, 6, 12), (24, 5, 1, 1), np.float16, groups=4),
    **{name: MATRIX_CASES[name] for name in ("tiles", "chunks", "one sign")},
    **{name: case for name, case in MATRIX_CASES.items() if name.endswith("beside infinity")},
    # Places of one tap, where lines and planes begin within a chunk.
    "short lines": gradient("weight", (2, 3, 4, 6), (5, 3, 1, 1), np.float16).map(channels_last),
    "short planes": gradient("weight", (2, 3, 4, 3, 2), (5, 3, 1, 1, 1), np.float16).map(
        channels_last
    ),
    "volumes": gradient(
        "weight", (2, 2, 2, 3, 3), (3, 2, 2, 2, 2), np.float16, padding=((1, 2), (0, 0), (0, 0))
    ),
    "a common divisor": gradient(
        "weight", (2, 4, 29), (9, 4, 4), np.float16, stride=6, dilation=4, padding=5
    ),
    "channels last": MATRIX_CASES["strides"].map(channels_last),
    "many channels": gradient("weight", (1, 250, 6), (3, 250, 5), np.float16),
    "many rows": gradient("weight", (1, 9, 6), (300, 9, 3), np.float16),
    "many taps": gradient("weight", (1, 2, 40, 60), (3, 2, 33, 35), np.float16),
    "even chunks": gradient("weight", (5, 4, 40), (5, 4, 4), padding=2),
    "long halves": gradient("weight", (1, 9, 3000), (210, 3, 3), np.float16, groups=3),
    "rows": gradient("weight", (2, 33, 4, 40), (200, 33, 1, 3), np.float16),
}


def check(backend: EmulatorBackend, case: Gradient) -> None:
    """Compare sums as they are where all of them are finite."""
    device = backend.path.device
    if np.isfinite(case.defined.value).all():
        device.patches = {**UNREPAIRED, **device.patches}
    matrix_gradient.check(backend, case)


SUITE = Suite(
    "hopper_gradient",
    PRODUCTS,
    MUTANTS,
    CASES,
    kernels=("hopper",),
    files=(PRODUCTS, COPIES, SUMS),
    check=check,
)
