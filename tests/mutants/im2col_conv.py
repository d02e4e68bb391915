"""Mutants of the im2col kernel, and of the copies that it multiplies."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np

from backends import EmulatorBackend
from bounds import assert_convolution, assert_same_bits
from cupyconv import _compile
from cupyconv._kernels import choice, relayed
from mutants import Mutant, Suite
from planning import forget
from reference import Array
from strategies import Convolution, convolution, poison

IM2COL_CONV, COPIES, RING = "im2col_conv.cu", "channels_last.cu", "stage_ring.cuh"
TAKE = "take.cuh"


def infinite(case: Convolution) -> Convolution:
    """The case with infinite weights at a tap of each row: the first, the last or the second one.

    Their sums are finite where that tap meets no input.
    """
    weight = case["weight"].copy()
    rows = weight.swapaxes(0, 1) if case.transposed else weight
    for first, tap in enumerate((0, -1, 1)):
        at = (tap if n > 1 else 0 for n in weight.shape[2:])
        rows[(slice(first, None, 3), slice(None), *at)] = np.inf
    return case.with_arrays(weight=weight)


class Relayed(Convolution):
    """A convolution between whose arrays and kernel copies in C order come."""


def as_relayed(case: Convolution) -> Relayed:
    return Relayed(case.function, case.arrays, case.options)


def misaligned(a: Array) -> Array:
    """A copy in C order that begins beside a multiple of 16 bytes."""
    memory = np.empty(a.nbytes + 32, np.uint8)
    first = -memory.ctypes.data % 16 + a.itemsize
    copy = memory[first : first + a.nbytes].view(a.dtype).reshape(a.shape)
    copy[...] = a
    return copy


def cropped(a: Array) -> Array:
    """The array within a larger one, of which the rest is NaN."""
    wide = poison(np.empty([n + 2 for n in a.shape], a.dtype))
    inside = wide[(slice(1, -1),) * a.ndim]
    inside[...] = a
    return inside


def beside_a_channel(a: Array) -> Array:
    """The array with one more channel, of NaN, after the last one."""
    wide = poison(np.empty((a.shape[0], a.shape[1] + 1, *a.shape[2:]), a.dtype))
    wide[:, :-1] = a
    return wide[:, :-1]


def together(a: Array) -> Array:
    """The array with its channels innermost, in rows without gaps."""
    return np.moveaxis(np.moveaxis(a, 1, -1).copy(), -1, 1)


# Several tiles for a block, the last one ragged, and a last K step that is not whole.
CASES = {
    "groups": convolution(
        "conv2d", (7, 80, 9, 11), (48, 40, 3, 4), "float16", bias=True, groups=2,
        padding=((2, 0), (0, 1)), stride=(2, 1),
    ),
    "tiles": convolution("conv2d", (2, 24, 9, 11), (280, 24, 2, 3), "bfloat16", bias=True),
    "three axes": convolution(
        "conv3d", (2, 24, 4, 5, 6), (9, 24, 2, 3, 4), "float16", stride=(1, 2, 1), padding=1,
        dilation=(2, 1, 1),
    ),
    "phases": convolution(
        "conv_transpose2d", (3, 24, 5, 7), (24, 16, 3, 4), "float16", bias=True, stride=(2, 3),
        dilation=(1, 2),
    ),
    "phases of two taps": convolution(
        "conv_transpose2d", (3, 24, 5, 7), (24, 16, 4, 5), "float16", stride=(2, 3),
        dilation=(1, 2),
    ),
    "phases without taps": convolution(
        "conv_transpose2d", (3, 8, 5, 6), (8, 16, 1, 2), "float16", bias=True, stride=(2, 3)
    ),
    "ranges": convolution(
        "conv2d", (3, 550, 3, 4), (9, 550, 3, 3), "float16", bias=True, padding=1
    ),
    "ranges together": convolution(
        "conv2d", (3, 550, 3, 4), (16, 550, 3, 3), "float16", bias=True, padding=1
    ),
    "words": convolution("conv1d", (2, 144, 200), (16, 72, 3), "float16", groups=2),
    "many places": convolution("conv1d", (1, 8, 2000), (8, 8, 3), "float16"),
    "units of pixels": convolution(
        "conv2d", (3, 8, 9, 13), (166, 8, 2, 2), "bfloat16", bias=True, style="uneven"
    ),
    "few channels": convolution("conv2d", (2, 13, 5, 6), (8, 13, 2, 3), "float16"),
    "misaligned": convolution("conv1d", (2, 16, 64), (8, 16, 3), "float16"),
    "an odd channel": convolution("conv1d", (2, 13, 64), (8, 13, 3), "float16"),
    "channels together": convolution("conv2d", (2, 13, 5, 6), (8, 13, 2, 3), "float16"),
    # Lines and planes that end within eight places.
    "cropped": convolution("conv3d", (2, 24, 4, 2, 3), (9, 24, 2, 2, 2), "float16", padding=1),
    "cropped lines": convolution("conv3d", (2, 8, 5, 1, 3), (8, 8, 2, 2, 2), "float16", padding=1),
    # With rows of results that are no whole chunks, or that are.
    "relayed": convolution("conv2d", (3, 6, 5, 7), (6, 6, 3, 3), "float16"),
    "relayed chunks": convolution("conv2d", (3, 6, 5, 7), (8, 6, 3, 3), "float16"),
    "ranges in a block": convolution(
        "conv2d", (20, 150, 3, 4), (24, 150, 3, 3), "float16", bias=True, padding=1
    ),
    "tf32": convolution(
        "conv2d", (2, 37, 7, 19), (20, 37, 3, 3), bias=True, padding=1, precision="tf32",
        style="uneven",
    ),
    "tf32 together": convolution(
        "conv1d", (2, 40, 90), (48, 20, 3), bias=True, padding=1, precision="tf32", groups=2
    ),
    "float32": convolution(
        "conv2d", (2, 37, 7, 19), (20, 37, 3, 3), bias=True, padding=1, style="uneven"
    ),
    "float32 in two blocks": convolution("conv2d", (3, 44, 11, 13), (72, 44, 2, 3), padding=1),
    "float32, ranges": convolution("conv2d", (20, 80, 3, 4), (24, 80, 3, 3), padding=1),
}  # fmt: skip
INFINITE = "groups", "three axes", "phases of two taps", "ranges", "ranges in a block", "tf32"
for name in (*INFINITE, "float32"):
    CASES[f"infinite, {name}"] = infinite(CASES[name])

ARRANGED = {
    "misaligned": misaligned,
    "an odd channel": beside_a_channel,
    "channels together": together,
    "cropped": cropped,
    "cropped lines": cropped,
}
for name, arrange in ARRANGED.items():
    CASES[name] = CASES[name].map(arrange)
for name in ("relayed", "relayed chunks"):
    CASES[name] = as_relayed(CASES[name])

x = CASES["tf32"]["input"].copy()
x[1, 3, 2, 2] = np.inf
CASES["infinite, tf32"] = CASES["infinite, tf32"].with_arrays(input=x)

MUTANTS = {
    # Tiles.
    "the first tile of columns for all": Mutant(
        "column = take(rest, p.column_tiles) * COLUMNS;",
        "take(rest, p.column_tiles), column = 0;",
        case="tiles",
    ),
    "the first group for all": Mutant(
        "group = take(rest, p.groups), range",
        "take(rest, p.groups), group = 0, range",
        case="groups",
    ),
    "the first phase for all": Mutant("tile >= p.phase[phase + 1].tile", "false", case="phases"),
    "pixels counted from the first phase on": Mutant(
        "pixel = (tile - int(p.phase[phase].tile))",
        "pixel = tile",
        case="phases",
    ),
    "taps of x and y alone": Mutant(
        "window[1].taps.value * window[2].taps.value", "window[1].taps.value", case="three axes",
    ),
    "ranges that leave the last step out": Mutant(
        "long_quotient(range * steps, p.splits.reciprocal)",
        "range * long_quotient(steps, p.splits.reciprocal)",
        case="ranges",
    ),
    "the first sample for all": Mutant(
        "        sample = pixel;", "        sample = 0;", case="groups",
    ),
    # What is brought.
    "places without a step": Mutant(
        "from[i] = int(phase.window[i].lower + place.at[i] * p.step[i]);",
        "from[i] = int(phase.window[i].lower + place.at[i]);", case="groups",
    ),
    "windows that begin at the first input": Mutant(
        "from[i] = int(phase.window[i].lower + ", "from[i] = int(", case="groups",
    ),
    "a range that begins with the first tap": Mutant(
        "tap[i] = take(rest, phase.window[i].taps);",
        "take(rest, phase.window[i].taps), tap[i] = 0;",
        case="ranges",
    ),
    "a range that begins with the first channels": Mutant(
        "int block = take(rest, p.blocks);",
        "int block = (take(rest, p.blocks), 0);",
        case="ranges",
    ),
    "taps without offsets": Mutant(
        "int(phase.window[i].offset + tap[i] * phase.window[i].offset_step)",
        "int(phase.window[i].offset)", case="groups",
    ),
    "offsets from the first tap on": Mutant(
        "int(phase.window[i].offset + tap[i]", "int(tap[i]", case="phases",
    ),
    "taps of the first phase": Mutant(
        "int(phase.window[i].tap + tap[i]", "int(tap[i]", case="phases",
    ),
    "neighbouring taps of a phase": Mutant(
        "tap[i] * phase.window[i].tap_step)", "tap[i])", case="phases",
    ),
    "the inputs of the first group": Mutant(
        "tile.group * int(p.input_group) + block * STEP", "block * STEP", case="groups",
    ),
    "the inputs of the first block": Mutant(
        "tile.group * int(p.input_group) + block * STEP", "tile.group * int(p.input_group)",
        case="ranges in a block",
    ),
    "the map of the first phase": Mutant("&p.input[tile.phase]", "&p.input[0]", case="phases"),
    "the weights of the first block": Mutant(
        "int(p.low_part) + block * STEP,", "int(p.low_part),", case="ranges in a block",
    ),
    "the weights of the first group": Mutant(
        "tile.group * int(p.rows) + tile.column, full", "tile.column, full", case="groups",
    ),
    "the weights of the first tile": Mutant(
        "tile.group * int(p.rows) + tile.column, full", "tile.group * int(p.rows), full",
        case="tiles",
    ),
    "taps of x before those of z": Mutant(
        "of_weight = i == 2 ? own : of_weight * int(p.kernel[i]) + own;",
        "of_weight = i == 2 ? own : own * int(p.kernel[i]) + of_weight;",
        case="three axes",
    ),
    "a tap too many": Mutant(
        "if (++tap[i] < int(phase.window[i].taps.value)) break;",
        "if (++tap[i] <= int(phase.window[i].taps.value)) break;", case="three axes",
    ),
    "taps of y before those of x": Mutant(
        "for (int i = 0; i < 3; ++i) {\n                    if (++tap[i]",
        "for (int i = 1; i < 3; ++i) {\n                    if (++tap[i]", case="groups",
    ),
    # The pipeline.
    "arrays that are read before the copies have ended": Mutant(
        "            wait_for_grids();  // before any array is read\n", "", case="groups",
    ),
    "a stage that is read yet": Mutant(
        "mbarrier_wait(&ring().empty[turn.stage], 1 - turn.parity);", "", case="ranges in a block",
    ),
    "a wait for the phase before": Mutant(
        "empty[turn.stage], 1 - turn.parity", "empty[turn.stage], turn.parity",
        case="ranges in a block",
    ),
    "a stage of which the weights are not expected": Mutant(
        "mbarrier_arrive_expect(full, STAGE_BYTES);", "mbarrier_arrive_expect(full, PIXEL_BYTES);",
        case="groups",
    ),
    "products of a stage that is not full": Mutant(
        "mbarrier_wait(&ring().full[stage], turn.parity);", "", case="groups",
    ),
    "a stage that is given back before it is read": Mutant(
        "multiply_slices(sums, a, b, slices);\n"
        "            if (before >= 0) ring().release(before);",
        "ring().release(stage);\n            multiply_slices(sums, a, b, slices);",
        case="ranges in a block",
    ),
    "products that are under way as a stage is given back": Mutant(
        "wgmma_commit();\n        wgmma_wait<1>();", "wgmma_commit();",
        case="ranges in a block",
    ),
    "the last stage of a sum is kept": Mutant(
        "        wgmma_wait<0>();\n        if (before >= 0) ring().release(before);\n",
        "        wgmma_wait<0>();\n", case="tiles",
    ),
    "sums that are stored before the last products": Mutant(
        "        }\n        wgmma_wait<0>();\n", "        }\n", case="groups",
    ),
    "products without a fence": Mutant(
        "        wgmma_fence();\n#pragma unroll\n        for (int slice",
        "#pragma unroll\n        for (int slice", case="groups",
    ),
    "one warp alone gives stages back": Mutant(
        "if (threadIdx.x % 32 == 0) mbarrier_arrive", "if (threadIdx.x % 128 == 0) mbarrier_arrive",
        case="ranges in a block",
    ),
    "a warp that is not waited for": Mutant(
        "mbarrier_init(&empty[i], readers)", "mbarrier_init(&empty[i], readers - 1)",
        case="ranges in a block",
    ),
    "phases of stages that do not change": Mutant(
        "stage = 0, parity ^= 1;", "stage = 0;", case="ranges in a block",
    ),
    # Products.
    "units of the next group in the last step": Mutant(
        "last ? int(p.last_slices) : SLICES", "SLICES", case="groups",
    ),
    "as many units in all steps as in the last one": Mutant(
        "last ? int(p.last_slices) : SLICES", "int(p.last_slices)", case="ranges in a block",
    ),
    "a range that begins with the first channels as it counts units": Mutant(
        "block(take(step, p.blocks))", "block(0)", case="ranges",
    ),
    "the first unit of pixels for all": Mutant(
        "moved(a, i * 64 * STEP_BYTES + slice * SLICE_BYTES)",
        "moved(a, i * 64 * STEP_BYTES)",
        case="groups",
    ),
    "the first unit of weights for all": Mutant(
        "moved(b, slice * SLICE_BYTES)", "b", case="groups",
    ),
    "the pixels of the first warpgroup": Mutant(
        " + warpgroup * PIXEL_BYTES / CONSUMERS);",
        ");",
        case="groups",
    ),
    # Parts of floats.
    "the high parts of weights alone": Mutant(
        "part * int(p.low_part) + block * STEP", "block * STEP", case="float32",
    ),
    "the weights of the high part": Mutant(
        "(product == 1) * WEIGHT_BYTES + slice", "slice", case="float32",
    ),
    "the pixels of the high part": Mutant(
        "a.part[product == 0][slice]", "a.part[0][slice]", case="float32",
    ),
    "products of low parts": Mutant(
        "(product == 1) * WEIGHT_BYTES", "(product < 2) * WEIGHT_BYTES", case="float32",
    ),
    "a chain that goes on": Mutant("product + slice > 0);", "true);", case="float32"),
    "the last chain alone": Mutant(
        "sums[i][j] += chain[j];", "sums[i][j] = chain[j];", case="float32",
    ),
    "the pixels of the first block": Mutant(
        "(warpgroup * BLOCKS + i) * 64 * STEP_BYTES);", "warpgroup * BLOCKS * 64 * STEP_BYTES);",
        case="float32",
    ),
    "the pixels of the first warpgroup in all": Mutant(
        "(warpgroup * BLOCKS + i) * 64 * STEP_BYTES);", "i * 64 * STEP_BYTES);", case="float32",
    ),
    "pixels without the swizzle": Mutant("i / 2 ^ pixel % 8;", "i / 2;", case="float32"),
    "channels of half an instruction": Mutant(
        "own = tf32_part(bits[i / 8][i / 2 % 4], i % 2);",
        "own = tf32_part(bits[i / 8][i / 2 % 2], i % 2);", case="float32",
    ),
    "parts in another order": Mutant("part[i % 2][i / 8]", "part[1 - i % 2][i / 8]",
        case="float32",
    ),
    "parts of a stage that is not full": Mutant(
        "mbarrier_wait(&ring().full[turn.stage], turn.parity);", "", case="float32",
    ),
    "parts without a fence": Mutant(
        "wait_for_turn(warpgroup);\n        wgmma_fence();", "wait_for_turn(warpgroup);",
        case="float32 in two blocks",
    ),
    "chains that are added before they are complete": Mutant(
        "wgmma_commit();\n        wgmma_wait<0>();", "wgmma_commit();", case="float32",
    ),
    "a stage of parts that is given back before it is read": Mutant(
        "                multiply_chain<", "                ring().release(turn.stage);\n"
        "                multiply_chain<", case="float32, ranges",
    ),
    "a turn for oneself": Mutant("give_turn(1 - warpgroup);", "give_turn(warpgroup);",
        case="float32",
    ),
    "no first turn": Mutant("if (PARTS == 2 && warpgroup == 1) give_turn(0);", "", case="float32"),
    "numbers of copies for their parts": Mutant(
        "if (p.split) low = tf32_part(low, group);", "", case="float32", file=COPIES,
    ),
    "parts of inputs": Mutant("if (p.split) low", "low", case="float32", file=COPIES),
    # Ranges.
    "the last range alone": Mutant(
        "totals[block][i] += sums[block][i];",
        "totals[block][i] = sums[block][i];",
        case="ranges in a block",
    ),
    "ranges that are stored over each other": Mutant(
        "p.partial[tile.range * p.range + at]", "p.partial[at]", case="ranges",
    ),
    "ranges in a block that stay NaN": Mutant(
        "repair(tile, range, block, sums[block]);",
        "",
        case="infinite, ranges in a block",
    ),
    "sums that stay NaN": Mutant("repair(pixel, pixels, row, rows);", ";", case="infinite, groups"),
    # Sums as they are defined.
    "sums of the first range": Mutant(
        "step < tile.begin(p, range + 1); ++step)", "step < tile.begin(p, 1); ++step)",
        case="infinite, ranges in a block",
    ),
    "sums from the first range on": Mutant(
        "int step = tile.begin(p, range); step <", "int step = 0; step <",
        case="infinite, ranges in a block",
    ),
    "sums of the first sample": Mutant(
        "p.array + place.sample * p.sample + tile.group", "p.array + tile.group",
        case="infinite, groups",
    ),
    "sums of the first group": Mutant(
        "place.sample * p.sample + tile.group * p.group;", "place.sample * p.sample;",
        case="infinite, groups",
    ),
    "weights of the first group": Mutant(
        "p.kernels + tile.group * p.of_group + row", "p.kernels + row", case="infinite, groups",
    ),
    "weights of the first row": Mutant(
        "tile.group * p.of_group + row * p.of_row;", "tile.group * p.of_group;",
        case="infinite, groups",
    ),
    "inputs before the first one": Mutant(
        "present &= at >= 0 && at < p.size[i];", "present &= at < p.size[i];",
        case="infinite, groups",
    ),
    "inputs after the last one": Mutant(
        "present &= at >= 0 && at < p.size[i];", "present &= at >= 0;", case="infinite, groups",
    ),
    "sums without a step": Mutant(
        "lower + place.at[i] * p.step[i] + axis[i].offset", "lower + place.at[i] + axis[i].offset",
        case="infinite, groups",
    ),
    "sums from the window's begin on": Mutant(
        " + axis[i].offset + tap *", " + tap *", case="infinite, phases of two taps",
    ),
    "sums of neighbouring inputs": Mutant(
        "tap * axis[i].offset_step;", "tap;", case="infinite, three axes",
    ),
    "sums of taps of the first phase": Mutant(
        "(axis[i].tap + tap * axis[i].tap_step)", "(tap * axis[i].tap_step)",
        case="infinite, phases of two taps",
    ),
    "sums of neighbouring taps": Mutant(
        "(axis[i].tap + tap * axis[i].tap_step)", "(axis[i].tap + tap)",
        case="infinite, phases of two taps",
    ),
    "sums of all channels for each block": Mutant(
        "for (int c = first;", "for (int c = 0;", case="infinite, tf32",
    ),
    "sums over the end of a step": Mutant(" && c < first + STEP", "", case="infinite, tf32"),
    "sums over the last channel": Mutant(
        "c < int(p.channels) && c < first", "c < first", case="infinite, groups",
    ),
    "the row beside a sum": Mutant(
        "tile.range, pixel + own, row + i);",
        "tile.range, pixel + own, row);",
        case="infinite, groups",
    ),
    "the pixel beside a sum": Mutant(
        "tile.range, pixel + own, row + i);", "tile.range, pixel, row + i);",
        case="infinite, groups",
    ),
    "the pixel beside a sum of ranges": Mutant(
        "own = pixel + i / 2 % 2 * 8,", "own = pixel,", case="infinite, ranges in a block",
    ),
    "sums after the last row": Mutant(
        "own < pixels && i < rows)",
        "own < pixels)",
        case="infinite, tf32",
    ),
    "sums after the last pixel": Mutant(
        "own < pixels && i < rows)",
        "i < rows)",
        case="infinite, tf32",
    ),
    # What is stored.
    "outputs of the first warpgroup": Mutant(
        "(warp / 4 * BLOCKS + block) * 64",
        "block * 64",
        case="groups",
    ),
    "outputs of the first sample": Mutant(
        "found = place.sample * p.out_sample + ",
        "found = ",
        case="groups",
    ),
    "outputs of the first group": Mutant(
        "place.sample * p.out_sample + tile.group * p.out_group;", "place.sample * p.out_sample;",
        case="groups",
    ),
    "outputs of the first phase": Mutant(
        "(phase.window[i].first + place.at[i]", "(place.at[i]", case="phases",
    ),
    "outputs of phases beside each other": Mutant(
        "place.at[i] * p.apart[i])", "place.at[i])", case="phases",
    ),
    "the bias of the row before": Mutant(
        "const int row = tile.column + lane + i * 32;",
        "const int row = tile.column + lane + i * 32 - 1;",
        case="groups",
    ),
    "the bias of the first group": Mutant(
        "(p.bias, tile.group * p.rows + row)",
        "(p.bias, row)",
        case="groups",
    ),
    "the bias of rows that there are not": Mutant(
        "!p.partial && row < int(p.rows)",
        "!p.partial",
        case="tf32",
    ),
    "pixels that there are not": Mutant("        if (pixel >= pixels) return;\n", "", case="tf32"),
    "rows that there are not": Mutant(
        "            if (i >= rows) break;\n            const float sum",
        "            const float sum",
        case="tf32",
    ),
    "rows of units of pixels that there are not": Mutant(
        "            if (i >= rows) break;\n            float value", "            float value",
        case="units of pixels",
    ),
    "units of pixels after the last one": Mutant(
        "        if (first >= pixels) return;\n", "", case="units of pixels",
    ),
    "units of the first pixels": Mutant(
        "= *patch.at(first + k, i)", "= *patch.at(k, i)", case="units of pixels",
    ),
    "units of pixels where the first ones lie": Mutant(
        "__shfl_sync(~0u, target, first);", "__shfl_sync(~0u, target, 0);", case="units of pixels",
    ),
    "units of pixels with the first bias": Mutant(
        "*patch.at(first + k, i) + patch.bias[i];", "*patch.at(first + k, i) + patch.bias[0];",
        case="units of pixels",
    ),
    "units that there are not": Mutant(
        "pixel >= pixels || first >= rows) continue;",
        "pixel >= pixels) continue;",
        case="groups",
    ),
    "units of pixels that there are not": Mutant(
        "pixel >= pixels || first >= rows) continue;",
        "first >= rows) continue;",
        case="groups",
    ),
    "units that lie by their channels": Mutant(
        "&sums[pixel][channel ^ (pixel ^ pixel / 4) % 4 * 8]",
        "&sums[pixel][channel ^ channel % 4 * 8]",
        case="groups",
    ),
    "sums of the first eight pixels": Mutant(
        "lane / 4 + i / 2 % 2 * 8, i / 4 * 8",
        "lane / 4, i / 4 * 8",
        case="groups",
    ),
    "sums of the first unit": Mutant(
        "i / 4 * 8 + lane % 4 * 2) = pair",
        "lane % 4 * 2) = pair",
        case="tf32 together",
    ),
    "the bias of the first patch": Mutant(
        "patch.bias[i + lane] = bias[(part * PATCH + i) / 32];",
        "patch.bias[i + lane] = bias[i / 32];",
        case="tiles",
    ),
    "the sums of the first patch": Mutant(
        "marked = write(sums[own / PATCHES], own % PATCHES);",
        "marked = write(sums[own / PATCHES], 0);",
        case="tiles",
    ),
    "the places of the first block of pixels": Mutant(
        "target = offset[own / PATCHES];",
        "target = offset[0];",
        case="tf32",
    ),
    "units of the first channels": Mutant(
        "store_channels(target + row, pixels, rows);",
        "store_channels(target, pixels, rows);",
        case="tiles",
    ),
    "units of the first tile of columns": Mutant(
        "row = tile.column + part % PATCHES * PATCH;",
        "row = part % PATCHES * PATCH;",
        case="tiles",
    ),
    "as many rows left in each tile": Mutant(
        "rows = int(p.rows) - row;",
        "rows = int(p.rows);",
        case="tiles",
    ),
    # Copies.
    "copies of the first sample": Mutant(
        "p.array + sample * p.sample + block", "p.array + block", file=COPIES, case="groups",
    ),
    "copies of the first block": Mutant(" + block * p.block", "", case="cropped", file=COPIES),
    "copies of the first group": Mutant(" + group * p.group;", ";", case="groups", file=COPIES),
    "copies of the first channels": Mutant(
        "c = channel + words[u] * PACKED,", "c = words[u] * PACKED,", case="ranges", file=COPIES,
    ),
    "copies of the first places": Mutant(
        "at = place + units[u] * ELEMENTS;", "at = units[u] * ELEMENTS;", case="many places",
        file=COPIES,
    ),
    "channels after the last one": Mutant(
        "c + j, e < left", "c, e < left", case="few channels", file=COPIES,
    ),
    "other channels than zero": Mutant(
        "Bits own = 0;", "Bits own = Bits(0x7c01);", case="few channels", file=COPIES,
    ),
    "the last place of a word alone": Mutant(
        "|= unsigned(own)", "= unsigned(own)", case="few channels", file=COPIES,
    ),
    "x and y in another order": Mutant(
        "x * p.axis[2] + y * p.axis[1]", "x * p.axis[1] + y * p.axis[2]", case="groups",
        file=COPIES,
    ),
    "the first plane for all": Mutant(" + at * p.axis[0];", ";", case="cropped", file=COPIES),
    # Copies of chunks.
    "chunks at any address": Mutant(
        "p.aligned && (unsigned long long)array % 16 == 0", "p.aligned != 0", case="misaligned",
        file=COPIES,
    ),
    "chunks at any distance": Mutant(
        "p.aligned && (unsigned long long)array", "(unsigned long long)array", case="groups",
        file=COPIES,
    ),
    "the first channel of chunks twice": Mutant(
        "(const Bits128*)(from + j * p.channel + at)", "(const Bits128*)(from + at)",
        case="words", file=COPIES,
    ),
    "the first chunk of a channel": Mutant(
        "(const Bits128*)(from + j * p.channel + at)", "(const Bits128*)(from + j * p.channel)",
        case="words", file=COPIES,
    ),
    "chunks after the last channel": Mutant(
        "c + j, int(p.channels));", "c, int(p.channels));", case="an odd channel", file=COPIES,
    ),
    # The walk along places.
    "lines without an end": Mutant("e == end_of_line", "false", case="cropped", file=COPIES),
    "ends of lines counted from the first place on": Mutant(
        "end_of_line = int(p.size[2]) - x,", "end_of_line = int(p.size[2]),", case="cropped",
        file=COPIES,
    ),
    "one end of a line in a unit": Mutant(
        "                end_of_line += int(p.size[2]);\n", "", case="cropped", file=COPIES,
    ),
    "lines that begin at the end of the one before": Mutant(
        "p.axis[1] - p.size[2] * p.axis[2];", "p.axis[1];", case="cropped", file=COPIES,
    ),
    "the same line again": Mutant(
        "p.axis[1] - p.size[2] * p.axis[2];", "-p.size[2] * p.axis[2];", case="cropped",
        file=COPIES,
    ),
    "planes without an end": Mutant(
        "++line == int(p.size[1])", "false", case="cropped", file=COPIES,
    ),
    "lines counted from the first one on": Mutant(
        "line = y;", "line = 0;", case="cropped", file=COPIES,
    ),
    "one end of a plane in a unit": Mutant(
        "line = 0, from +=", "from +=", case="cropped lines", file=COPIES,
    ),
    "planes that begin at the end of the one before": Mutant(
        "p.axis[0] - p.size[1] * p.axis[1];", "p.axis[0];", case="cropped", file=COPIES,
    ),
    # Tiles of copies.
    "tiles as wide as the widest": Mutant(
        "width = int(p.width),", "width = 3,", case="many places", file=COPIES,
    ),
    "tiles as wide as a chunk": Mutant(
        "width = int(p.width),", "width = 0,", case="words", file=COPIES,
    ),
    "channels of threads as if these lay together": Mutant(
        "(p.along_channels ? number : other)", "number", case="groups", file=COPIES,
    ),
    "places of threads as if channels lay together": Mutant(
        "p.along_channels ? number >> (width + 2) : other >> (width + 2) << 3 | number % 8;",
        "number >> (width + 2);", case="groups", file=COPIES,
    ),
    "places of threads as if these lay together": Mutant(
        "p.along_channels ? number >> (width + 2) : other", "other", case="channels together",
        file=COPIES,
    ),
    "a tile that is read yet": Mutant(
        "        __syncthreads();  // the tile before", "        // the tile before", file=COPIES,
        case="many places",
    ),
    "a tile that is not written yet": Mutant(
        "        __syncthreads();\n        Bits* const out", "        Bits* const out", file=COPIES,
        case="groups",
    ),
    "places for channels": Mutant(
        "PACKED == 1 ? low : byte_select(low, high, e % 2 ? 0x7632 : 0x5410);", "low;",
        case="groups", file=COPIES,
    ),
    "the other place of a word": Mutant(
        "e % 2 ? 0x7632 : 0x5410", "e % 2 ? 0x5410 : 0x7632", case="words", file=COPIES,
    ),
    "words of a chunk in another order": Mutant(
        "words[words[u] % 4] =", "words[3 - words[u] % 4] =", case="relayed", file=COPIES,
    ),
    "a swizzle as a tile is read alone": Mutant(
        "swizzled((at << width) + words[u] / 4, at)", "(at << width) + words[u] / 4",
        case="words", file=COPIES,
    ),
    "a swizzle as a tile is written alone": Mutant(
        "tile[swizzled(j, at)]", "tile[j]", case="words", file=COPIES,
    ),
    "another swizzle as a tile is read": Mutant(
        "tile[swizzled(j, at)]", "tile[swizzled(j, at + 1)]", case="many places", file=COPIES,
    ),
    # What copies write.
    "copies beside the row's end": Mutant(
        "|| left <= 0) continue;",
        ") continue;",
        case="groups", file=COPIES,
    ),
    "copies after the last place": Mutant(
        "if (place + at >= places || left", "if (left", case="groups", file=COPIES,
    ),
    "copies over the first channels": Mutant(
        "p.groups + group) * p.row + channel;", "p.groups + group) * p.row;", case="ranges",
        file=COPIES,
    ),
    "chunks of rows that are none": Mutant(
        "p.row % ELEMENTS == 0 && ", "", case="relayed", file=COPIES,
    ),
    "chunks of rows at any address": Mutant(
        " && (unsigned long long)p.out % 16 == 0;", ";", case="relayed chunks", file=COPIES,
    ),
    "a row's last chunk over its end": Mutant(
        "e < ELEMENTS && e < left;", "e < ELEMENTS;", case="relayed", file=COPIES,
    ),
    "the first element of a chunk for all": Mutant(
        "((const Bits*)&chunk)[e]", "*(const Bits*)&chunk", case="relayed", file=COPIES,
    ),
}  # fmt: skip


def guarded(a: Array, gap: int = 0) -> Array:
    """A copy of the array with its last axis innermost, in rows of whole chunks and a gap.

    It lies at a multiple of 16 bytes, with NaN between rows, and far from all other arrays: no
    sample, row or number beyond it lies in one of these.
    """
    row = -(-a.shape[-1] // 8) * 8 + gap
    shape = (*a.shape[:-1], row)
    nbytes = math.prod(shape) * a.itemsize
    memory = np.empty(nbytes + 2**18, np.uint8)
    first = -memory.ctypes.data % 16 + 2**17
    rows = poison(memory[first : first + nbytes].view(a.dtype).reshape(shape))
    rows[..., : a.shape[-1]] = a
    return rows[..., : a.shape[-1]]


def channels_last(a: Array, axis: int = 1, gap: int = 0) -> Array:
    return np.moveaxis(guarded(np.moveaxis(a, axis, -1), gap), -1, axis)


# What computes sums again, and what does not instead.
REPAIRED = {
    "if (!is_special(sums[i])) continue;": "continue;",
    "if (__any_sync(~0u, marked != 0 && tile.ranges == 1))": "if (false)",
}


def check_relayed(backend: EmulatorBackend, case: Relayed) -> None:
    """Compare results that are written beside a multiple of 16 bytes, and at one, with others.

    What lies before and after them stays.
    """
    expected = backend.compute(case)
    with (
        mock.patch.multiple(relayed, LEAST_BYTES=0, LEAST_WIDTH=2),
        mock.patch.object(choice, "relay", relayed.relay),
    ):
        forget()
        samples, rows, *places = expected.shape
        for first in (8, 9):
            memory = poison(np.empty(expected.size + 32, expected.dtype))
            before = first - memory.ctypes.data % 16 // memory.itemsize
            end = before + expected.size
            out = np.moveaxis(memory[before:end].reshape(samples, *places, rows), -1, 1)
            x = together(case["input"])
            arrays = case.with_arrays(input=x).arrays
            backend.call(case.function, **arrays, **case.options, out=out)
            assert_same_bits(out, expected)
            around = np.concatenate([memory[:before], memory[end:]])
            assert_same_bits(around, poison(np.empty_like(around)))
    forget()


def check(backend: EmulatorBackend, case: Convolution) -> None:
    """Compare with the definition, and bits of arrays whose channels lie innermost with others.

    A group has the same bits beside one that is NaN. Finite sums are compared as they are, as
    others would be computed again.
    """
    expected, device = case.defined, backend.path.device
    if np.isfinite(expected.value).all():
        text = device.patches.get(IM2COL_CONV) or _compile.source(IM2COL_CONV)
        for repairs, repairs_not in REPAIRED.items():
            text = text.replace(repairs, repairs_not)
        device.patches = {**device.patches, IM2COL_CONV: text}  # of this case alone
    result = backend.compute(case)
    assert_convolution(result, expected, case.dtype, case.precision)
    if isinstance(case, Relayed):
        check_relayed(backend, case)
    arranged = case.with_arrays(
        input=channels_last(case["input"]),
        weight=channels_last(case["weight"], 0 if case.transposed else 1),
        bias=None if case.arrays["bias"] is None else guarded(case["bias"]),
    )
    out = channels_last(poison(np.empty_like(result)), gap=8)
    backend.call(case.function, **arranged.arrays, **case.options, out=out)
    assert_same_bits(out, result)
    if case.groups == 2:
        x, rows = case["input"].copy(), result.shape[1] // 2
        x[:, x.shape[1] // 2 :] = np.nan
        beside = arranged.with_arrays(input=channels_last(x))
        assert_same_bits(backend.compute(beside)[:, :rows], result[:, :rows])


SUITE = Suite(
    "im2col_conv",
    IM2COL_CONV,
    MUTANTS,
    CASES,
    kernels=("im2col",),
    files=(IM2COL_CONV, COPIES, RING, TAKE),
    check=check,
)
