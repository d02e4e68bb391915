"""Mutants of the depthwise kernel."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite, depthwise, infinite
from strategies import Convolution

DEPTHWISE_CONV = "depthwise_conv.cu"


def infinite_input(case: Convolution) -> Convolution:
    """The case with some infinite inputs."""
    x = case["input"].copy()
    x.flat[::301] = np.inf
    return case.with_arrays(input=x)


CASES = {
    "odd": depthwise("conv2d", (2, 3, 21, 37), (3, 3), padding=1),
    "even": depthwise("conv2d", (3, 3, 21, 40), (3, 3), 2, padding=1),
    "whole lines": depthwise("conv2d", (2, 3, 21, 72), (3, 3), 2, padding=1),
    "tall": depthwise("conv2d", (1, 3, 200, 76), (3, 3), padding=1),
    "channels": depthwise("conv2d", (2, 70, 7, 7), (3, 3), padding=1),
    "three axes": depthwise("conv3d", (1, 3, 5, 17, 18), (3, 3, 3), padding=1),
    "sections": depthwise("conv1d", (2, 3, 61), (3,), padding=1),
    "steps": depthwise("conv2d", (2, 3, 21, 38), (3, 2), padding=1, stride=2),
    "phases": depthwise("conv_transpose2d", (2, 3, 9, 14), (3, 4), 2, padding=1, stride=2),
    "flipped": depthwise("conv_transpose2d", (2, 3, 9, 14), (3, 3), padding=1),
    "many rows": depthwise("conv1d", (1, 1, 30), (9,), 150),
    "halves": depthwise("conv2d", (2, 3, 21, 72), (3, 5), 2, "float16", padding=(1, 2)),
    "halves, odd lines": depthwise("conv2d", (1, 3, 21, 61), (3, 5), 2, "float16", padding=(1, 2)),
    "halves, even lines": depthwise("conv2d", (1, 3, 21, 62), (3, 4), 1, "float16"),
    "halves, three axes": depthwise("conv3d", (1, 3, 5, 17, 64), (3, 3, 3), 2, "float16"),
}
CASES["infinite"] = infinite(CASES["even"])
CASES["infinite halves"] = infinite(CASES["halves"])
HALVES = CASES["halves"]
ONE = np.eye(1, HALVES["weight"].size, dtype=bool).reshape(HALVES["weight"].shape)
CASES["an infinite weight of halves"] = HALVES.with_arrays(
    weight=np.where(ONE, np.float16(np.inf), HALVES["weight"])
)
CASES["an infinite half"] = infinite_input(HALVES)

MUTANTS = {
    "x bound of chunks off by one": Mutant(
        DEPTHWISE_CONV,
        "unsigned(x) < unsigned(whole);", "unsigned(x) < unsigned(whole + WIDTH);",
        "out of bounds|between the elements|wrong", case="even",
    ),
    "x bound of elements off by one": Mutant(
        DEPTHWISE_CONV, "size - WIDTH + 1 < end ? size - WIDTH + 1 : end",
        "size - WIDTH + 1 < end ? size - WIDTH + 2 : end + 1",
        "out of bounds|between the elements|wrong", case="odd",
    ),
    "x bound of a part of a chunk off by one": Mutant(
        DEPTHWISE_CONV, "to[e] = unsigned(x + e) < unsigned(size)",
        "to[e] = unsigned(x + e) <= unsigned(size)",
        "out of bounds|between the elements|wrong", case="three axes",
    ),
    "no parts of chunks": Mutant(
        DEPTHWISE_CONV, "WIDTH > 1 && !TENSOR_CORES && !present &&", "false &&",
        "wrong", case="three axes",
    ),
    "y bound of lines off by one": Mutant(
        DEPTHWISE_CONV, "(unsigned(tile.first(p, 1) + y) < unsigned(p.axis[1].taps.size_in))",
        "(unsigned(tile.first(p, 1) + y) <= unsigned(p.axis[1].taps.size_in))",
        "out of bounds|between the elements|wrong", case="odd",
    ),
    "no z bound of lines": Mutant(
        DEPTHWISE_CONV,
        "(unsigned(tile.first(p, 0) + z) < unsigned(p.axis[0].taps.size_in)) &\n", "true &\n",
        "out of bounds|between the elements|wrong", True, case="three axes",
    ),
    "a channel too many": Mutant(
        DEPTHWISE_CONV, "(channel + tile_channel < int(p.groups))",
        "(channel + tile_channel <= int(p.groups))",
        "out of bounds|between the elements|another thread", case="channels",
    ),
    "a row too many": Mutant(
        DEPTHWISE_CONV, "(row + tile_row < int(p.rows))", "(row + tile_row <= int(p.rows))",
        "out of bounds|between the elements|another thread", case="many rows",
    ),
    "samples ignored in the input": Mutant(
        DEPTHWISE_CONV, "p.input + tile.sample * p.input_batch + ", "p.input + ",
        "wrong", case="even",
    ),
    "bias of the first row": Mutant(
        DEPTHWISE_CONV, "group * p.rows + in_group)", "group * p.rows)",
        "wrong", case="even",
    ),
    "flipped kernel": Mutant(
        DEPTHWISE_CONV, "taps.offset_step < 0 ? int(taps.kernel) - 1 - place : place", "place",
        "wrong", case="flipped",
    ),
    "chunks that do not lie as their inputs": Mutant(
        DEPTHWISE_CONV, "sizeof(Element)) & (width - 1);", "sizeof(Element) + 1) & (width - 1);",
        "misaligned", case="even",
    ),
    "windows without skew": Mutant(
        DEPTHWISE_CONV, "if (start % 2)", "if (false)",
        "misaligned", case="even",
    ),
    "a window of another line": Mutant(
        DEPTHWISE_CONV, "window[(u + r) % STRIP_LINES].values",
        "window[(u + r + 1) % STRIP_LINES].values",
        "wrong|nothing wrote", case="odd",
    ),
    "windows of one plane": Mutant(
        DEPTHWISE_CONV, "input += int(p.axis[0].apart) * int(p.axis[0].pitch);", "",
        "wrong", case="three axes",
    ),
    "taps of the first phase": Mutant(
        DEPTHWISE_CONV, "memory.taps[1][strip.phases[1]];", "memory.taps[1][0];",
        "wrong|nothing wrote", case="phases",
    ),
    "columns of one phase": Mutant(
        DEPTHWISE_CONV, "columns.x + v * columns.apart - qx * int(ax.taps.phases)", "0",
        "wrong|nothing wrote", case="phases",
    ),
    "steps ignored along y": Mutant(
        DEPTHWISE_CONV, "qy * int(ay.taps.step)", "qy",
        "wrong", case="steps",
    ),
    "a line too many": Mutant(
        DEPTHWISE_CONV, "if (r < count[0])", "if (r <= count[0])",
        "out of bounds|another thread", case="odd",
    ),
    "a section too many": Mutant(
        DEPTHWISE_CONV, "+ int(p.section) - 1, p.per_section)", "+ int(p.section), p.per_section)",
        "out of bounds|another thread|wrong", case="sections",
    ),
    "pairs of odd outputs": Mutant(
        DEPTHWISE_CONV, "if (SLIDE && p.pairs && count[1] == STRIP_LINES) {",
        "if (count[1] == STRIP_LINES) {",
        "misaligned|another thread|out of bounds", case="odd",
    ),
    "no barrier behind the phases": Mutant(
        DEPTHWISE_CONV, "    __syncthreads();\n\n    for (int turn", "\n    for (int turn",
        "race|nothing wrote", case="phases",
    ),
    "chunks from odd elements on that are not shifted": Mutant(
        DEPTHWISE_CONV, "odd[u] ? byte_select(before, word, 0x5432) : word;", "word;",
        "wrong", case="halves, odd lines",
    ),
    "no element in front of words": Mutant(
        DEPTHWISE_CONV, "unsigned(head[u]) << 16;", "0;",
        "wrong", case="halves, odd lines",
    ),
    "no element behind words": Mutant(
        DEPTHWISE_CONV, "if (odd[u] + 2 * w + 1 == count[u]) word = tail[u];", "",
        "wrong", case="halves, odd lines",
    ),
    "words that reach over the end of a line": Mutant(
        DEPTHWISE_CONV, "word + w, odd[u] + 2 * w + 1,", "word + w, odd[u] + 2 * w,",
        "wrong|out of bounds|between", case="halves, odd lines",
    ),
    "chunks in front of lines": Mutant(
        DEPTHWISE_CONV, "(i < all) & (x >= 0) & (x < end)", "(i < all) & (x < end)",
        "wrong|out of bounds|between", case="halves, odd lines",
    ),
    "weights of chunks from anywhere": Mutant(
        DEPTHWISE_CONV, "if (begins) meanwhile();", "",
        "nothing wrote", case="halves, odd lines",
    ),
    "no barrier behind descriptions": Mutant(
        DEPTHWISE_CONV, "__syncthreads();  // after the description of runs", "",
        "race|nothing wrote", case="odd",
    ),
    "no wait for copies": Mutant(
        DEPTHWISE_CONV, "copy_async_wait<0>();", ";",
        "race|nothing wrote|under way", case="even",
    ),
    "no barrier behind inputs and weights": Mutant(
        DEPTHWISE_CONV, "__syncthreads_or(special);", "special;",
        "race|nothing wrote", case="odd",
    ),
    "no barrier before the next tile": Mutant(
        DEPTHWISE_CONV, "        __syncthreads();  // before the next tile is described\n", "",
        "race", case="channels",
    ),
    "zeros in front of a line left out": Mutant(
        DEPTHWISE_CONV, "for (int i = 0; i < all; ++i) {\n", "for (int i = from; i < all; ++i) {\n",
        "nothing wrote", case="whole lines",
    ),
    "zeros behind a line left out": Mutant(
        DEPTHWISE_CONV, "if (i == from) i = to;", "if (i == from) break;",
        "nothing wrote", case="whole lines",
    ),
    "a line without its last chunk": Mutant(
        DEPTHWISE_CONV, "to = end - first;", "to = end - first - 1;",
        "wrong", case="whole lines",
    ),
    "a line with a chunk of the next one": Mutant(
        DEPTHWISE_CONV, "(lines.end() + CHUNK - 1) / CHUNK;",
        "(lines.end() + CHUNK) / CHUNK;",
        "wrong|out of bounds", case="whole lines",
    ),
    "a line that begins with its padding": Mutant(
        DEPTHWISE_CONV, "run.source + from * CHUNK,", "run.source,",
        "wrong|out of bounds", case="whole lines",
    ),
    "no wait for whole lines": Mutant(
        DEPTHWISE_CONV, "mbarrier_wait(memory.lines_there, turn % 2);", ";",
        "under way|nothing wrote|race", case="whole lines",
    ),
    "a wait for the lines of the first tile": Mutant(
        DEPTHWISE_CONV, "mbarrier_wait(memory.lines_there, turn % 2);",
        "mbarrier_wait(memory.lines_there, 0);",
        "under way|nothing wrote|race|waits", case="tall",
    ),
    "copies that overtake zeros": Mutant(
        DEPTHWISE_CONV, "if (turn > 0) async_proxy_fence();", "",
        "fence", case="tall",
    ),
    "a line that nobody waits for": Mutant(
        DEPTHWISE_CONV, "mbarrier_init(memory.lines_there, int(p.whole));",
        "mbarrier_init(memory.lines_there, int(p.whole) - 1);",
        "under way|race|nothing wrote|wait|arriv", case="whole lines",
    ),
    "padding that counts against an infinite weight": Mutant(
        DEPTHWISE_CONV, "if (!MASKED || present)", "if (true)",
        "wrong", case="infinite",
    ),
    "infinite weights that nobody sees": Mutant(
        DEPTHWISE_CONV, "if (p.slides && !special)", "if (p.slides)",
        "wrong", case="infinite",
    ),
    "lines for matrix units that begin elsewhere": Mutant(
        DEPTHWISE_CONV, "TENSOR_CORES ? int(p.skew)", "TENSOR_CORES ? 0",
        "misaligned|wrong|nothing wrote", case="halves",
    ),
    "a diagonal that is off by one": Mutant(
        DEPTHWISE_CONV, "MARGIN + 2 * t - g - skew", "MARGIN + 2 * t - g - skew + 1",
        "wrong|nothing wrote|out of bounds|misaligned", case="halves",
    ),
    "weights from even places for odd ones": Mutant(
        DEPTHWISE_CONV, "(place % 2) * (DIAGONAL - 1)", "(place % 2) * DIAGONAL",
        "misaligned|wrong", case="halves",
    ),
    "diagonals that are not cleared": Mutant(
        DEPTHWISE_CONV, "WeightProducer{p, memory}.clear_diagonals();", ";",
        "nothing wrote", case="halves",
    ),
    "a third block that is left out": Mutant(
        DEPTHWISE_CONV, "int(p.axis[2].taps.kernel) > 9;", "int(p.axis[2].taps.kernel) > 20;",
        "wrong", case="halves",
    ),
    "a third block that is another one": Mutant(
        DEPTHWISE_CONV, "blocks[j + 2], weights[2]", "blocks[j + 1], weights[2]",
        "wrong", case="halves",
    ),
    "weights of another row and channel": Mutant(
        DEPTHWISE_CONV, "memory.diagonals + row_and_channel * SharedMemory",
        "memory.diagonals + 0 * SharedMemory",
        "wrong", case="halves",
    ),
    "one plane of taps, on matrix units": Mutant(
        DEPTHWISE_CONV, "y = 0, plane += next_plane)", "y = 0)",
        "wrong", case="halves, three axes",
    ),
    "a strip that is stored before it is there": Mutant(
        DEPTHWISE_CONV, "__syncwarp();\n            epilogue.store", "epilogue.store",
        "race|nothing wrote", case="halves",
    ),
    "a strip that is overwritten too early": Mutant(
        DEPTHWISE_CONV, "2 * lane, width);\n            __syncwarp();", "2 * lane, width);",
        "race", case="halves",
    ),
    "lines of a strip that do not exist": Mutant(
        DEPTHWISE_CONV, "store_bits((unsigned*)out, pairs[r], r < lines);",
        "store_bits((unsigned*)out, pairs[r], true);",
        "out of bounds|another thread|between the elements|wrong", case="halves",
    ),
    "zeros that count against an infinite input": Mutant(
        DEPTHWISE_CONV, "Pairs::larger_magnitudes(largest, pairs[r]);", "largest;",
        "wrong", case="an infinite half",
    ),
    "infinite weights on matrix units": Mutant(
        DEPTHWISE_CONV, "(special && has_special_weight(p, weight))) continue;",
        "false) continue;",
        "wrong|another thread", case="infinite halves",
    ),
    "finite weights beside an infinite one by other sums": Mutant(
        DEPTHWISE_CONV, "if (TENSOR_CORES && !masked) continue;", "",
        "another thread", case="an infinite weight of halves",
    ),
}  # fmt: skip

SUITE = Suite("depthwise", DEPTHWISE_CONV, MUTANTS, CASES, kernels=("depthwise",))
