"""Mutants of the weight gradient by wgmma from pixels."""

from __future__ import annotations

import numpy as np

from gradients import gradient
from mutants import Mutant, Suite
from mutants.hopper_gradient import check
from mutants.matrix_gradient import special
from running import channels_last
from strategies import BFLOAT16

KERNEL, TILE = "im2col_gradient.cu", "gradient_tile.cuh"

MUTANTS = {
    # Boxes.
    "the inputs of the first group": Mutant(
        "group * int(p.input_group) + describe_box", "describe_box", case="groups",
    ),
    "the rows of the first group": Mutant(
        "group * int(p.grad_group) + first_row", "first_row", case="groups",
    ),
    "the first tile of rows": Mutant(
        "group * int(p.grad_group) + first_row", "group * int(p.grad_group)", case="rows",
    ),
    "the first box of rows for all": Mutant("first_row + lane * ROW_BOX", "first_row", case="rows"),
    "a box of a tap for each that shares it": Mutant(
        "first_box / int(p.shared) + lane", "first_box + lane", case="shared",
    ),
    "the first tile of columns": Mutant(
        "first_box / int(p.shared) + lane", "lane", case="shared",
    ),
    "taps of x along all axes": Mutant("take(rest, p.boxes[i])", "take(rest, p.boxes[0])",
        case="volumes",
    ),
    "boxes of taps without their distance": Mutant(
        "take(rest, p.boxes[i]) * int(p.offset[i])", "take(rest, p.boxes[i])", case="apart",
    ),
    "the first channels for all boxes": Mutant(
        "return rest * int(p.box);", "return 0;", case="shared",
    ),
    "inputs without a step": Mutant(
        "output[axis] * int(p.step[axis])", "output[axis]", case="long strides",
    ),
    "inputs without a border": Mutant(
        " + int(p.lower[axis]);", ";", case="shared",
    ),
    "the first sample for all": Mutant(
        "p.input, channel, input, sample, offsets", "p.input, channel, input, 0, offsets",
        case="long samples",
    ),
    "the first sample's rows for all": Mutant(
        "sample, none, full);", "0, none, full);", case="long samples",
    ),
    "rows at the offset of a tap": Mutant(
        "sample, none, full);", "sample, offsets, full);", case="strides",
    ),
    "inputs without the offset of their tap": Mutant(
        "input, sample, offsets, full", "input, sample, none, full", case="strides",
    ),
    "the first pixels for all steps": Mutant(
        "int sample = int(i) * PIXELS", "int sample = int(i - begin) * PIXELS", case="long",
    ),
    "boxes of columns over each other": Mutant(
        "+ box * int(p.box_bytes)", "", case="strides",
    ),
    "two axes for three": Mutant(
        "if (axes == 3) im2col_copy<3>", "if (axes == 3) im2col_copy<2>", case="volumes",
    ),
    # The pipeline.
    "a stage that is read yet": Mutant(
        "mbarrier_wait(&ring().empty[turn.stage], 1 - turn.parity);", "", case="long",
    ),
    "a wait for the phase before": Mutant(
        "empty[turn.stage], 1 - turn.parity", "empty[turn.stage], turn.parity", case="long",
    ),
    "a stage of which no bytes are expected": Mutant(
        "mbarrier_arrive_expect(full, bytes);", "mbarrier_arrive(full);", case="strides",
    ),
    "a stage of whole blocks of the swizzle": Mutant(
        "boxes * int(p.pixels) * pixel", "boxes * int(p.box_bytes)", case="shared",
    ),
    "boxes by all lanes": Mutant("if (lane < boxes)\n", "if (true)\n", case="strides"),
    "a stage for one warpgroup of two": Mutant(
        "ring().initialise(CONSUMERS * WARPGROUP / 32)", "ring().initialise(WARPGROUP / 32)",
        case="long",
    ),
    "a step that may be under way": Mutant(
        "mbarrier_wait(&ring().full[stage], turn.parity);", "", case="strides",
    ),
    "the stage of a product that is under way": Mutant(
        "if (before >= 0) ring().release(before);", "ring().release(stage);", case="long",
    ),
    "no wait for the product of a stage": Mutant("wgmma_wait<1>();", "", case="long"),
    "no wait for the last product": Mutant("        wgmma_wait<0>();\n", "", case="strides"),
    "registers before a fence": Mutant("            wgmma_fence();\n", "", case="strides"),
    "as many stages as barriers": Mutant(
        "turn.advance(stages)", "turn.advance()", case="long strides", everywhere=True,
    ),
    "produced by all warps of a warpgroup": Mutant(
        "if (threadIdx.x < CONSUMERS * WARPGROUP + 32) block.produce();", "block.produce();",
        case="strides",
    ),
    # Products.
    "the first rows for both warpgroups": Mutant(
        "DOWN == 2 ? warpgroup * BLOCKS * ROW_BOX : 0", "0", case="rows",
    ),
    "the first columns for both warpgroups": Mutant(
        "DOWN == 2 ? 0 : warpgroup * SEGMENT", "0", case="shared",
    ),
    "the first rows for all blocks": Mutant(
        "a + block * ROW_BOX * CHANNEL_BYTES", "a", case="blocks",
    ),
    "the sums of the first rows for all": Mutant(
        "row + block * ROW_BOX, column", "row, column", case="blocks",
    ),
    "the first pixels of rows for all": Mutant(" + k * ROW_BYTES", "", case="strides"),
    "the first pixels of columns for all": Mutant("b + k * pixel", "b", case="strides"),
    "one box for both warpgroups": Mutant(
        "column / int(p.box * p.shared)", "0", case="shared",
    ),
    "boxes of shared taps for warpgroups": Mutant(
        "column / int(p.box * p.shared)", "column / int(p.box)", case="shared",
    ),
    "taps that share a box without a distance": Mutant(
        "b + k * pixel, pixel, apart", "b + k * pixel, pixel, 0", case="shared",
    ),
    "taps that share a box as neighbours": Mutant(
        "b + k * pixel, pixel, apart", "b + k * pixel, pixel, pixel", case="apart",
    ),
    # Sums.
    "the rows of the next group": Mutant(
        "if (own_row + half * 8 < int(p.rows))", "if (true)", case="groups",
    ),
    "the channels of the next group": Mutant(
        "        if (left <= 0) return;\n", "", case="groups",
    ),
    "the last chunk of samples alone": Mutant(
        "add_pair(own, first, second);",
        "store_bits((Bits64*)own, pair_of(first, second, 0.0f), true);", case="chunks",
    ),
    "the last chunk of samples alone, of odd channels": Mutant(
        "p.adds ? own[0] + first : first", "first", case="odd chunks",
    ),
}  # fmt: skip


CASES = {
    "shared": gradient("weight", (2, 70, 3, 9), (5, 70, 2, 3), np.float16, padding=1),
    "apart": gradient(
        "weight", (2, 5, 3, 40), (5, 5, 2, 9), BFLOAT16, padding=(0, 5), dilation=(1, 2)
    ),
    "strides": gradient("weight", (2, 9, 7, 9), (5, 9, 3, 3), np.float16, padding=1, stride=2),
    "groups": gradient("weight", (2, 12, 5, 9), (9, 4, 2, 2), np.float16, groups=3),
    "rows": gradient("weight", (2, 33, 4, 40), (200, 33, 1, 3), np.float16),
    "blocks": gradient("weight", (1, 370, 70), (120, 370, 1), np.float16),
    "volumes": gradient(
        "weight", (2, 2, 3, 4, 5), (3, 2, 2, 2, 3), np.float16, padding=1, stride=(1, 2, 1)
    ),
    "long": gradient("weight", (1, 9, 3000), (210, 3, 3), np.float16, groups=3),
    "long strides": gradient("weight", (1, 70, 1300), (9, 70, 3), np.float16, stride=2),
    "long samples": gradient("weight", (2, 9, 90), (9, 9, 3), BFLOAT16),
    "chunks": gradient("weight", (5, 4, 40), (5, 4, 4), np.float16, padding=2),
    "odd chunks": gradient("weight", (5, 3, 40), (5, 3, 4), np.float16, padding=2),
    "one tap": gradient("weight", (2, 20, 6, 12), (24, 20, 1, 1), np.float16),
    "channels last": gradient(
        "weight", (2, 16, 5, 9), (24, 16, 3, 3), np.float16, padding=1, stride=(1, 2)
    ).map(channels_last),
    "padding beside infinity": special(
        gradient("weight", (2, 4, 6, 30), (6, 2, 3, 3), np.float16, groups=2, padding=1)
    ),
}

SUITE = Suite(
    "im2col_gradient",
    KERNEL,
    MUTANTS,
    CASES,
    kernels=("im2col",),
    files=(KERNEL, TILE),
    check=check,
)
