"""Mutants of the Tensor Core kernel, and of the kernel that packs its weights."""

from __future__ import annotations

import test_convolution
import test_windows
from mutants import Mutant, Suite
from strategies import convolution

MATRIX_CONV = "matrix_conv.cu"
ENGINE = "matrix_engine.cuh"
PACK = "pack_weights.cu"
TILE = "matrix_tile.cuh"
DIVISION = "division.cuh"
WINDOWS = "windows.cuh"
ROLES = ("arguments", "consumer", "engine", "exact", "float16", "layout", "outputs", "passes")
ROLES += ("producer", "schedule", "store", "sums", "tile")

# Sums longer than the rings, rows of two row tiles, several tiles in a block.
CASES = {
    "long": convolution("conv2d", (2, 44, 5, 9), (70, 44, 3, 3), bias=True, padding=1),
    "around the ring": convolution("conv2d", (1, 200, 8, 9), (70, 200, 3, 3), padding=1),
    "tf32": convolution(
        "conv2d", (4, 108, 5, 9), (70, 108, 3, 3), bias=True, padding=1, precision="tf32"
    ),
    "odd": convolution("conv2d", (2, 8, 5, 7), (70, 8, 3, 3), "float16", padding=1),
    "strided": convolution("conv2d", (2, 8, 5, 7), (70, 8, 3, 3), stride=2, padding=1),
    "even": convolution("conv2d", (2, 8, 5, 8), (70, 8, 3, 3), "float16", padding=1),
    "many rows": convolution("conv1d", (1, 8, 30), (600, 8, 3), bias=True),
    "three axes": convolution("conv3d", (1, 9, 3, 4, 5), (70, 9, 3, 3, 3), padding=1),
    "fold of rows": convolution("conv2d", (1, 9, 7, 31), (20, 9, 3, 1), bias=True),
    "folds of both": convolution("conv_transpose2d", (1, 9, 4, 12), (9, 13, 3, 3), stride=(3, 2)),
    "phases of planes": convolution(
        "conv_transpose3d",
        (2, 12, 3, 5, 9),
        (12, 70, 3, 2, 2),
        bias=True,
        stride=(2, 1, 1),
        padding=(1, 0, 0),
    ),
    "groups": convolution("conv1d", (1, 24, 20), (36, 8, 3), bias=True, groups=3),
    "chunks": convolution("conv2d", (2, 68, 5, 9), (70, 68, 3, 3), padding=1),
    "very long": convolution("conv1d", (1, 8300, 9), (9, 8300, 1)),
    "few": convolution("conv2d", (2, 3, 9, 22), (64, 3, 3, 5), bias=True, padding=1),
    "few, strided": convolution("conv2d", (2, 3, 9, 22), (64, 3, 3, 7), stride=2, padding=1),
    "three components": convolution("conv1d", (2, 9, 70), (70, 9, 3), stride=3, dilation=4),
    "twice three components": convolution(
        "conv2d", (1, 9, 9, 60), (18, 9, 2, 3), stride=(2, 3), padding=(1, 2)
    ),
    "fours": convolution("conv2d", (2, 9, 6, 40), (70, 9, 3, 3), bias=True, padding=1),
    "wide rows": convolution("conv2d", (1, 9, 3, 121), (9, 9, 1, 1), "float16"),
    "special": test_convolution.special(
        convolution("conv2d", (5, 9, 4, 5), (70, 9, 3, 3), bias=True, padding=1)
    ),
    "special folds": test_convolution.special(
        convolution("conv_transpose2d", (5, 9, 4, 5), (9, 16, 4, 4), stride=2, padding=1)
    ),
    "wide": test_windows.wide("plain", "float32", "slope", "none", 35),
    "wide weights": test_windows.silent("plain", "float32", 45),
    "nearly zero": test_windows.nearly_zero("tf32", (-31, -33, -35, -31, -33)),
    "nearly zero, and all small": test_windows.nearly_zero("tf32", (-31, -33), (-70, -40)),
    "late weights": test_windows.late("float32", 320, 288),
    "late taps": test_windows.late_taps("float32"),
    "even chunks": convolution("conv2d", (2, 148, 5, 8), (70, 148, 3, 3), padding=1),
    "samples apart": test_windows.wide("samples", "float32", "first axis", "none", 10),
    "shared rows": convolution("conv2d", (1, 64, 3, 5), (64, 64, 5, 7), "float16", padding="same"),
}

MUTANTS = {
    "the second tap of a step is the first one again": Mutant(
        "distance_of(p.axis[2], int(p.sum.apart) * schedule.phase.taps[2].offset_step)", "0",
        case="few", by="hopper",
    ),
    "two taps of a step on different components": Mutant(
        "w.p.sum.tap_of(x, half)", "2 * x + half", case="few, strided", by="hopper", file=PACK,
    ),
    "pairs of three components as of two": Mutant(
        "if (odd) slots =", "if (false) slots =", case="three components", by="hopper",
    ),
    "components of y in each other's place": Mutant(
        "(input - further * lattices) * lattices_y + lattice_y;",
        "(input - further * lattices) * lattices_y;", case="twice three components", by="hopper",
    ),
    "neighbours in each other's place": Mutant(
        "fill<SWEEP>(parts, values[half], pixel ^ turned, placing, range);",
        "fill<SWEEP>(parts, values[half], pixel, placing, range);", case="even", by="hopper",
    ),
    "columns of four outputs one too far": Mutant(
        "column = column0 + unit * SIZE / FOLDS;",
        "column = column0 + unit * SIZE / FOLDS + (SIZE == 4);", case="fours", by="hopper",
    ),
    "a tap one slot too far": Mutant(
        "+ distance_of(p.axis[2], x);", "+ distance_of(p.axis[2], x) + (x > 0);", case="long",
        by="portable",
    ),
    "a channel too many": Mutant(
        "(block + own) * BLOCK : 0", "(block + own) * BLOCK + 1 : 0", case="three axes",
        by="portable",
    ),
    "a stage given away before it is stored": Mutant(
        "leave(block);\n", "leave(block + schedule.depth);\n", case="chunks", by="hopper",
    ),
    "the same turn of all stages": Mutant(
        "stage = 0, parity ^= 1", "stage = 0", case="around the ring", by="hopper", file=TILE,
    ),
    "units that belong to no warp": Mutant(
        "unit -= units;", "unit = warp + 1;", case="chunks", by="portable",
    ),
    "bias of the next row": Mutant(
        "p.rows + channel)", "p.rows + (channel ^ 1))", case="long", by="portable",
    ),
    "a fold of rows that counts along x": Mutant(
        "(z * int(p.fold[1].count) + y) * int(p.fold[2].count)", "z * int(p.fold[1].count) + y",
        case="folds of both", by="hopper",
    ),
    "a repair in another row": Mutant(
        "own[3] = {split.z, split.y, split.x};", "own[3] = {split.y, split.z, split.x};",
        case="special folds", by="hopper",
    ),
    "the first part of a row twice": Mutant(
        "half * 8) * PITCH + start;", "half * 8) * PITCH + lane % LANES;", case="wide rows",
        by="hopper",
    ),
    "pairs of odd inputs": Mutant("= p.input_pairs ?", "= true ?", case="odd", by="hopper"),
    "no repair": Mutant(
        "if (__any_sync(~0u, specials.found()))", "if (false)", case="special", by="portable",
    ),
    "a total that is not added": Mutant(
        "sum[r][c][i] += total[(r * COLUMNS + c) * 4 + i];", ";", case="very long", by="portable",
    ),
    "a total that begins anew": Mutant(
        "own = is_long ? own + sum[r][c][i] : sum[r][c][i];", "own = sum[r][c][i];",
        case="very long", by="portable",
    ),
    "steps in another order": Mutant(
        "y = small_quotient(inner, w.along_x), x = inner - y * w.along_x;",
        "x = small_quotient(inner, w.phase.taps[1].count), y = inner - x * w.phase.taps[1].count;",
        case="long", by="hopper", file=PACK,
    ),
    "a weight's channel too many": Mutant(
        "int(w.p.sum.channels) - channel : 0", "int(w.p.sum.channels) - channel + 1 : 0",
        case="three axes", by="portable", file=PACK,
    ),
    "phases in turn where they lie apart": Mutant(
        "p.by_phase ? p.phase_order[blockIdx.x / (gridDim.x / phases)] : blockIdx.x % phases",
        "blockIdx.x % phases", case="phases of planes", by="hopper",
    ),
    "weights of one tap of z": Mutant(
        "turns = phase.taps[0].count * weights.turns", "turns = weights.turns", case="three axes",
        by="portable", file=PACK,
    ),
    "weights of another group": Mutant(
        "(const Bits*)w.p.weight + group * w.p.weight_group", "(const Bits*)w.p.weight",
        case="groups", by="hopper", file=PACK,
    ),
    "tiles that are done once": Mutant(
        "note(index, windows, keep);", ";", case="wide", by="hopper",
    ),
    "one window of the second sweep": Mutant(
        "window == 0 || uniform(shared.wide_windows)", "window == 0 || 0u", case="wide",
        by="hopper",
    ),
    "sums that are not shifted between passes": Mutant(
        "shift_of(warpgroup, row, 0) - shift_of(warpgroup, row, pass)", "0", case="wide weights",
        by="hopper",
    ),
    "windows that are as large as each other": Mutant(
        "[row] + schedule.window_of_pass(pass) * WINDOW", "[row]", case="wide", by="hopper",
    ),
    "kept sums that others have overwritten": Mutant(
        "atomicOr(&shared.lost, 1u);", ";", case="nearly zero, and all small", by="hopper",
    ),
    "small numbers that count twice": Mutant(
        "placed[i] - high_of(slots, i)", "placed[i]", case="nearly zero", by="hopper", file=TILE,
    ),
    "the powers of no sample": Mutant(
        "shared.powers[p.tile[0] > 1][warpgroup]", "shared.powers[0][warpgroup]",
        case="samples apart", by="hopper",
    ),
    "half of a row's weights looked at": Mutant(
        "i < APART / 32; ++i", "i < 1; ++i", case="late weights", by="hopper", file=PACK,
    ),
    "taps of a row's threads alone looked at": Mutant(
        "tap < taps; tap += APART", "tap < taps; tap += taps", case="late taps", by="hopper",
        file=PACK,
    ),
    "a quotient rounded away": Mutant(
        "float(number) + 0.5f", "float(number)", case="long", by="hopper", file=DIVISION,
    ),
}  # fmt: skip

# The calls of generated mutants, some for each kernel: one takes seconds to build.
HOPPER = ("long", "odd", "folds of both", "even chunks", "groups", "wide", "wide weights", "tf32")
HOPPER += ("special", "few, strided", "three components", "phases of planes", "many rows")
HOPPER += ("shared rows",)
PORTABLE = ("long", "fold of rows", "three axes", "chunks", "around the ring", "strided")
DECISIVE = [("hopper", name) for name in HOPPER] + [("portable", name) for name in PORTABLE]

SUITE = Suite(
    "matrix",
    MATRIX_CONV,
    MUTANTS,
    CASES,
    kernels=("portable", "hopper"),
    most=15,
    files=(MATRIX_CONV, *(f"matrix_{role}.cuh" for role in ROLES), WINDOWS, PACK),
    decisive=tuple(DECISIVE),
)
