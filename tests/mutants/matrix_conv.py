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
    "many samples": convolution("conv1d", (23, 8, 9), (64, 8, 3), padding=1),
    "many rows": convolution("conv1d", (1, 8, 30), (600, 8, 3), bias=True),
    "one step": convolution("conv1d", (2, 8, 40), (64, 8, 1)),
    "three axes": convolution("conv3d", (1, 9, 3, 4, 5), (70, 9, 3, 3, 3), padding=1),
    "fold": convolution("conv1d", (3, 9, 129), (7, 9, 3), bias=True, padding=1),
    "fold of rows": convolution("conv2d", (1, 9, 7, 31), (20, 9, 3, 1), bias=True),
    "folds of both": convolution("conv_transpose2d", (1, 9, 4, 12), (9, 13, 3, 3), stride=(3, 2)),
    "phases": convolution("conv_transpose2d", (1, 12, 4, 5), (12, 70, 3, 4), stride=2, padding=1),
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
    "three lattices": convolution("conv1d", (2, 9, 70), (70, 9, 3), stride=3, dilation=4),
    "two times three lattices": convolution(
        "conv2d", (1, 9, 9, 60), (18, 9, 2, 3), stride=(2, 3), padding=(1, 2)
    ),
    "few, odd phases": convolution("conv_transpose1d", (1, 4, 40), (4, 70, 5), stride=2),
    "fours": convolution("conv2d", (2, 9, 6, 40), (70, 9, 3, 3), bias=True, padding=1),
    "short fours": convolution("conv2d", (2, 9, 6, 40), (70, 9, 3, 3), "float16", padding=1),
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
        MATRIX_CONV, "distance_of(p.axis[2], int(p.sum.apart) * phase.taps[2].offset_step)", "0",
        "wrong", by="hopper", case="few",
    ),
    "steps of two taps lie one tap apart": Mutant(
        MATRIX_CONV, "p.sum.tap_of(tap - row * along_x, 0) *", "(tap - row * along_x) *",
        "wrong", by="portable", case="few",
    ),
    "two taps of a step on different lattices": Mutant(
        PACK, "w.p.sum.tap_of(x, half)", "2 * x + half",
        "wrong|out of bounds|between the elements", by="hopper", case="few, strided",
    ),
    "a tap behind the last one": Mutant(
        PACK, "bool exists = (tap.x < w.phase.taps[2].count) & present;", "bool exists = present;",
        "out of bounds|between the elements|wrong", by="hopper", case="few",
    ),
    "pairs of three lattices as of two": Mutant(
        MATRIX_CONV, "if (odd) places =", "if (false) places =",
        "misaligned|wrong|nothing wrote", by="hopper", case="three lattices",
    ),
    "inputs of a lattice's second slot in its first": Mutant(
        MATRIX_CONV, "(own_slots / 2)) + further", "(own_slots / 2))",
        "misaligned|wrong|nothing wrote|race", by="portable", case="three lattices",
    ),
    "lattices of y in each other's place": Mutant(
        MATRIX_CONV, "(input - further * lattices) * lattices_y + lattice_y;",
        "(input - further * lattices) * lattices_y;",
        "wrong|nothing wrote|race", by="hopper", case="two times three lattices",
    ),
    "three lattices in the order of two": Mutant(
        TILE, "axis.pairs && lattices % 2 == 0 ?", "axis.pairs ?",
        "wrong|nothing wrote", by="hopper", case="three lattices",
    ),
    "parts as far apart as with both halves": Mutant(
        MATRIX_CONV, "int(p.sum.halves * p.slots);", "int(2 * p.slots);",
        "wrong|nothing wrote|nothing puts an order", by="hopper", case="few",
    ),
    "neighbours in each other's place": Mutant(
        MATRIX_CONV, "fill<SWEEP>(parts, values[half], pixel ^ turned, placing, range);",
        "fill<SWEEP>(parts, values[half], pixel, placing, range);",
        "wrong", by="hopper", case="even",
    ),
    "columns of four outputs one too far": Mutant(
        MATRIX_CONV, "column = column0 + unit * SIZE / FOLDS;",
        "column = column0 + unit * SIZE / FOLDS + (SIZE == 4);",
        "wrong|misaligned|out of bounds|nothing wrote", by="hopper", case="fours",
    ),
    "a tap one slot too far": Mutant(
        MATRIX_CONV, "+ distance_of(p.axis[2], x);", "+ distance_of(p.axis[2], x) + (x > 0);",
        "wrong|nothing wrote", by="portable", case="long",
    ),
    "x bound of the slots off by one": Mutant(
        MATRIX_CONV, "< unsigned(p.axis[2].taps.size_in)", "<= unsigned(p.axis[2].taps.size_in)",
        "out of bounds|between the elements|wrong", by="portable", case="strided",
    ),
    "y bound of the slots off by one": Mutant(
        MATRIX_CONV, "< unsigned(p.axis[1].taps.size_in)", "<= unsigned(p.axis[1].taps.size_in)",
        "out of bounds|between the elements|wrong", by="hopper", case="odd",
    ),
    "no z bound": Mutant(
        MATRIX_CONV, "(unsigned(first[1] + from[1]) < unsigned(p.axis[0].taps.size_in)) &", "",
        "out of bounds|between the elements|wrong", by="hopper", case="three axes",
    ),
    "a sample too many": Mutant(
        MATRIX_CONV, "(first[0] + from[0] < int(p.batch))", "(first[0] + from[0] <= int(p.batch))",
        "out of bounds|between the elements|wrong", by="hopper", case="many samples",
    ),
    "a channel too many": Mutant(
        MATRIX_CONV, "(before + block + own) * BLOCK : 0", "(block + own) * BLOCK + 1 : 0",
        "out of bounds|between the elements|wrong", by="portable", case="three axes",
    ),
    "no skew of odd starts": Mutant(
        MATRIX_CONV, "phase.taps[2].offset_step + skew();", "phase.taps[2].offset_step;",
        "wrong|nothing wrote", by="hopper", case="even",
    ),
    "no barrier behind what all threads describe": Mutant(
        MATRIX_CONV, "    if (!EARLY) __syncthreads();\n", "",
        "race|nothing wrote", by="portable", case="long",
    ),
    "no wait for inputs": Mutant(
        MATRIX_CONV, "mbarrier_wait(&shared.inputs_full[input.stage], input.parity);", "",
        "race|nothing wrote", by="portable", case="long",
    ),
    "no wait for inputs of a warpgroup": Mutant(
        MATRIX_CONV, "mbarrier_wait(&shared.inputs_full[input.stage], input.parity);", "",
        "race|nothing wrote", by="hopper", case="long",
    ),
    "no wait for weights": Mutant(
        MATRIX_CONV, "mbarrier_wait(&shared.weights_full[weight.stage],", "(void)(",
        "race|nothing wrote", by="portable", case="long",
    ),
    "no wait for weights of a warpgroup": Mutant(
        MATRIX_CONV, "mbarrier_wait(&shared.weights_full[weight.stage],", "(void)(",
        "race|nothing wrote", by="hopper", case="long",
    ),
    "no wait for room for inputs": Mutant(
        MATRIX_CONV,
        "mbarrier_wait(&worker.shared.inputs_empty[ahead.stage], ahead.parity ^ 1);", ";",
        "race|hangs|arrive", by="hopper", case="chunks",
    ),
    "no wait for room for single blocks of inputs": Mutant(
        MATRIX_CONV,
        "mbarrier_wait(&worker.shared.inputs_empty[turn.stage], turn.parity ^ 1);", ";",
        "race|hangs|arrive", by="hopper", case="even chunks",
    ),
    "no wait for room for weights": Mutant(
        MATRIX_CONV, "mbarrier_wait(&shared.weights_empty[turn.stage], turn.parity ^ 1);", "",
        "race|hangs|arrive", True, by="hopper", case="long",
    ),
    "parity of the first turn": Mutant(
        MATRIX_CONV, "turn.parity ^ 1", "turn.parity", "hangs", True, by="portable", case="long",
    ),
    "no wait for copies": Mutant(
        MATRIX_CONV, "copy_async_wait<1>();", "copy_async_wait<2>();",
        "nothing wrote|race", by="portable", case="long",
    ),
    "a stage given away before it is stored": Mutant(
        MATRIX_CONV, "leave(block);\n", "leave(block + worker.depth);\n",
        "race|nothing wrote", by="hopper", case="chunks",
    ),
    "the last stage is kept": Mutant(
        MATRIX_CONV, "leave(all + worker.depth - 1);", "leave(all);",
        "hangs|wait for each other|race", by="portable", case="chunks",
    ),
    "stages that do not go around the ring": Mutant(
        MATRIX_CONV, "behind < ring ? behind : behind - ring", "behind",
        "out of bounds|race|nothing wrote", by="portable", case="around the ring",
    ),
    "units that belong to no warp": Mutant(
        MATRIX_CONV, "unit -= units;", "unit = warp + 1;",
        "nothing wrote|race|wrong", by="portable", case="chunks",
    ),
    "stages given back before the products are done": Mutant(
        ENGINE, "wgmma_wait<0>();", "wgmma_wait<1>();",
        "race|accumulators|nothing wrote", by="hopper", case="tf32",
    ),
    "no wait for the products of a chain": Mutant(
        ENGINE, "wgmma_wait<0>();", "", "accumulators of a product", by="hopper", case="long"
    ),
    "no fence between stores and products": Mutant(
        MATRIX_CONV, "if (ENGINE::PROXY) async_proxy_fence();", "",
        "fence", by="hopper", case="long",
    ),
    "no fence between accumulators and products": Mutant(
        ENGINE, "wgmma_fence();", "", "fence", True, by="hopper", case="long"
    ),
    "a chain that is not added": Mutant(
        ENGINE, "fmaf(chain[s][i], scale, sum[s][i]);", "sum[s][i];",
        "wrong", by="hopper", case="one step",
    ),
    "a chain that is not added by warps": Mutant(
        ENGINE, "sum[r][c + j][i] += chain[i];", ";", "wrong", by="portable", case="one step"
    ),
    "a total that is not added": Mutant(
        ENGINE, "sum[r][c][i] += total[(r * COLUMNS + c) * 4 + i];", ";",
        "wrong", by="portable", case="very long",
    ),
    "a total that begins anew": Mutant(
        ENGINE, "own = is_long ? own + sum[r][c][i] : sum[r][c][i];", "own = sum[r][c][i];",
        "wrong", by="portable", case="very long",
    ),
    "a chain that goes on": Mutant(
        ENGINE, "high ? 0 : part_pitch, step > 0);", "high ? 0 : part_pitch, true);",
        "wrong|nothing wrote|accumulators", by="hopper", case="long",
    ),
    "no second parts of weights": Mutant(
        ENGINE, "if (!high) multiply(chain, weights, w + LOW, inputs, x, 0, true);", "",
        "wrong", by="hopper", case="one step",
    ),
    "no second parts of inputs": Mutant(
        ENGINE, "mma(chain, a[0][r], b[PARTS - 1][j]);", "",
        "wrong", by="portable", case="one step",
    ),
    "a row too many": Mutant(
        MATRIX_CONV, "{int(p.rows) - row, ", "{int(p.rows) + 1 - row, ",
        "out of bounds|between the elements|another thread", by="portable", case="long",
    ),
    "bias of the next row": Mutant(
        MATRIX_CONV, "p.rows + channel)", "p.rows + (channel ^ 1))",
        "wrong|out of bounds", by="portable", case="long",
    ),
    "bias of another group": Mutant(
        MATRIX_CONV, "tile.group * p.rows + channel", "channel",
        "wrong", by="hopper", case="groups",
    ),
    "a fold too many": Mutant(
        MATRIX_CONV, "if (folds > 1 && exists)", "if (false)",
        "out of bounds|between the elements|another thread", by="hopper", case="fold",
    ),
    "folds of the next row that are not there": Mutant(
        MATRIX_CONV,
        "for (int y = 0; y < count[1]; ++y)", "for (int y = 0; y < int(p.fold[1].count); ++y)",
        "out of bounds|between the elements|another thread", by="portable", case="fold of rows",
    ),
    "a fold of rows that counts along x": Mutant(
        MATRIX_CONV, "(z * int(p.fold[1].count) + y) * int(p.fold[2].count)",
        "z * int(p.fold[1].count) + y",
        "nobody wrote|wrong|another thread", by="hopper", case="folds of both",
    ),
    "other rows beside the first": Mutant(
        MATRIX_CONV, "if (ACROSS || p.folds > 1) rows =", "if (ACROSS) rows =",
        "nobody wrote|wrong|another thread|out of bounds", by="portable", case="fold of rows",
    ),
    "other rows of the first fold": Mutant(
        MATRIX_CONV, "rows.fold[half] = 1u << fold;", "rows.fold[half] = 1u;",
        "out of bounds|between the elements|another thread", by="portable", case="fold of rows",
    ),
    "no way between folds": Mutant(
        MATRIX_CONV, "channel * p.out_row + p.fold_offset[fold];\n            rows.count",
        "channel * p.out_row;\n            rows.count",
        "nobody wrote|wrong|another thread", by="portable", case="folds of both",
    ),
    "a repair in another row": Mutant(
        MATRIX_CONV,
        "own[3] = {split.z, split.y, split.x};", "own[3] = {split.y, split.z, split.x};",
        "wrong", by="hopper", case="special folds",
    ),
    "no barrier before the next tile's columns": Mutant(
        MATRIX_CONV,
        "named_barrier_wait(FIRST_TEAM + team, TEAM);  // nobody reads the last tile's any more",
        "",
        "race", by="portable", case="many rows",
    ),
    "no barrier behind a tile's columns": Mutant(
        MATRIX_CONV, "named_barrier_wait(FIRST_TEAM + team, TEAM);\n        return", "return",
        "race|nothing wrote", by="portable", case="many rows",
    ),
    "no order behind the pass to rows": Mutant(
        MATRIX_CONV, "__syncwarp();\n                const int column =", "const int column =",
        "race|nothing wrote", by="portable", case="odd",
    ),
    "no order before the next pass": Mutant(
        MATRIX_CONV,
        "__syncwarp();  // the buffer is empty\n", "\n",
        "race", by="portable", case="odd",
    ),
    "the first part of a row twice": Mutant(
        MATRIX_CONV, "half * 8) * PITCH + start;", "half * 8) * PITCH + lane % LANES;",
        "wrong", by="hopper", case="wide rows",
    ),
    "the first rows twice": Mutant(
        MATRIX_CONV, "(lane / LANES + half * 8) * PITCH", "lane / LANES * PITCH",
        "wrong", by="hopper", case="short fours",
    ),
    "pairs of odd outputs": Mutant(
        MATRIX_CONV, "else if (p.output_unit >= 2)", "else if (true)",
        "misaligned|out of bounds|another thread", by="hopper", case="odd",
    ),
    "pairs of odd inputs": Mutant(
        MATRIX_CONV, "= p.input_pairs ?", "= true ?",
        "misaligned|out of bounds|wrong", by="hopper", case="odd",
    ),
    "no repair": Mutant(
        MATRIX_CONV, "if (__any_sync(~0u, specials.found()))", "if (false)",
        "wrong", by="portable", case="special",
    ),
    "padding that counts in a repair": Mutant(
        MATRIX_CONV, "present &= i >= 0 && i < p.taps[a].size_in;", "",
        "wrong|out of bounds|between", by="hopper", case="special",
    ),
    "a tap of the next fold": Mutant(
        PACK, "fold * int(apart)", "(fold + 1) * int(apart)",
        "wrong", by="hopper", case="fold",
    ),
    "taps that a fold does not have": Mutant(
        PACK, " & (quotient < int(kernel))", "",
        "out of bounds|between the elements|wrong", by="portable", case="fold",
    ),
    "steps in another order": Mutant(
        PACK,
        "y = small_quotient(inner, w.along_x), x = inner - y * w.along_x;",
        "x = small_quotient(inner, w.phase.taps[1].count), y = inner - x * w.phase.taps[1].count;",
        "wrong|out of bounds", by="hopper", case="long",
    ),
    "a weight's channel too many": Mutant(
        PACK,
        "int(w.p.sum.channels) - channel : 0", "int(w.p.sum.channels) - channel + 1 : 0",
        "out of bounds|between the elements|wrong", by="portable", case="three axes",
    ),
    "a weight's row too many": Mutant(
        PACK, "channel_of(row, w.folds) < w.p.rows", "channel_of(row, w.folds) <= w.p.rows",
        "out of bounds|between the elements", by="portable", case="long",
    ),
    "weights of another phase": Mutant(
        PACK, "p.axis, phase_index, threadIdx.x);", "p.axis, 0, threadIdx.x);",
        "nothing wrote", by="hopper", case="phases",
    ),
    "phases in turn where they lie apart": Mutant(
        MATRIX_CONV,
        "p.by_phase ? p.phase_order[blockIdx.x / (gridDim.x / phases)] : blockIdx.x % phases",
        "blockIdx.x % phases",
        "nobody wrote|another thread|nothing wrote", by="hopper", case="phases of planes",
    ),
    "tiles in turn where phases lie apart": Mutant(
        MATRIX_CONV, "p.by_phase ? blockIdx.x % tile_step :", "",
        "nobody wrote|another thread|nothing wrote", by="hopper", case="phases of planes",
    ),
    "weights of another group": Mutant(
        PACK, "(const Bits*)w.p.weight + group * w.p.weight_group", "(const Bits*)w.p.weight",
        "wrong", by="hopper", case="groups",
    ),
    "small products that are not made small again": Mutant(
        ENGINE, "promote(high ? 1 : 1 / LOW_SCALE);", "promote(1);",
        "wrong", by="hopper", case="one step",
    ),
    "numbers beyond the first window": Mutant(
        MATRIX_CONV, "(range.reaches_above() | range.reaches_below())", "false",
        "wrong", by="hopper", case="wide",
    ),
    "small numbers in the first window": Mutant(
        WINDOWS, "return smallest - LEAST - 0x00010001u & SIGNS;", "return false;",
        "wrong", by="hopper", case="wide",
    ),
    "tiles that are done once": Mutant(
        MATRIX_CONV, "note(index - s, windows, keep);", ";",
        "wrong|nobody wrote", by="hopper", case="wide",
    ),
    "one window of the second sweep": Mutant(
        MATRIX_CONV, "window == 0 || uniform(shared.wide_windows)", "window == 0 || 0u",
        "wrong", by="hopper", case="wide",
    ),
    "sums that are not shifted between passes": Mutant(
        MATRIX_CONV, "shift_of(team, row, 0) - shift_of(team, row, pass)", "0",
        "wrong", by="hopper", case="wide weights",
    ),
    "sums that begin anew in each pass": Mutant(
        MATRIX_CONV, "if (pass > 0) take_back(engine, sums, team, pass);", "",
        "wrong", by="hopper", case="wide",
    ),
    "sums put aside without those of earlier passes": Mutant(
        MATRIX_CONV, "if (pass > 0)\n            each_sum(", "if (false)\n            each_sum(",
        "wrong", by="hopper", case="wide",
    ),
    "windows that are as large as each other": Mutant(
        MATRIX_CONV, "[row] + window_of_pass(pass) * WINDOW", "[row]",
        "wrong", by="hopper", case="wide",
    ),
    "sums that are not kept": Mutant(
        MATRIX_CONV, "if (keep) put_aside(engine, sums, team, 0);", "",
        "wrong", by="hopper", case="nearly zero",
    ),
    "sums of another tile": Mutant(
        MATRIX_CONV, "KEEPS && !noted &&", "KEEPS &&",
        "wrong", by="hopper", case="nearly zero",
    ),
    "kept sums that others have overwritten": Mutant(
        MATRIX_CONV, "atomicOr(&shared.lost, 1u);", ";",
        "wrong", by="hopper", case="nearly zero, and all small",
    ),
    "small numbers that count twice": Mutant(
        TILE, "placed[i] - high_of(slots, i)", "placed[i]",
        "wrong", by="hopper", case="nearly zero",
    ),
    "other stages left out": Mutant(
        MATRIX_CONV, "windows | bit_of_block(own)", "windows | bit_of_block(own + 1)",
        "wrong", by="hopper", case="nearly zero",
    ),
    "stages left out by those who stage": Mutant(
        MATRIX_CONV, "count += !has(pass, block);", "count += 0;",
        "hangs|nobody", by="hopper", case="nearly zero",
    ),
    "the shift of the first sample": Mutant(
        MATRIX_CONV, "return shifts[own < count ? own : 0];", "return shifts[0];",
        "wrong", by="hopper", case="samples apart",
    ),
    "the powers of no sample": Mutant(
        MATRIX_CONV, "shared.powers[p.tile[0] > 1][team]", "shared.powers[0][team]",
        "wrong", by="hopper", case="samples apart",
    ),
    "no order between the sweeps": Mutant(
        MATRIX_CONV, "named_barrier_wait(ALL_THREADS, THREADS);", "",
        "race|nothing wrote|hangs", by="hopper", case="wide",
    ),
    "weights not waited for": Mutant(
        MATRIX_CONV, "if (!SCALED) wait_for_grids();", "",
        "does not wait", by="hopper", case="odd",
    ),
    "shifts not waited for": Mutant(
        MATRIX_CONV, "    wait_for_grids();\n    bool two", "    bool two",
        "does not wait", by="hopper", case="wide",
    ),
    "inputs staged before their slots are described": Mutant(
        MATRIX_CONV, "named_barrier_wait(INPUTS_DESCRIBED, THREADS - 32);", "{}",
        "race", by="hopper", case="odd",
    ),
    "one window of weights": Mutant(
        PACK, "wide &= !again && smallest <= largest - WINDOW;", "wide = false;",
        "wrong", by="hopper", case="wide weights",
    ),
    "half of a row's weights looked at": Mutant(
        PACK, "i < APART / 32; ++i", "i < 1; ++i",
        "wrong", by="hopper", case="late weights",
    ),
    "taps of a row's threads alone looked at": Mutant(
        PACK, "tap < taps; tap += APART", "tap < taps; tap += taps",
        "wrong", by="hopper", case="late taps",
    ),
    "channels looked at that are loaded together": Mutant(
        PACK, "channel += LOADS * together", "channel = channels",
        "wrong", by="hopper", case="late taps",
    ),
    "a turn that goes on behind the last K block": Mutant(
        PACK, "count = left < DEEP ? left : DEEP;", "count = DEEP;",
        "wrong|another thread|out of bounds", by="hopper", case="even chunks",
    ),
    "turns that begin where the last one did": Mutant(
        PACK, "block = (outer - z * w.turns) * DEEP;", "block = outer - z * w.turns;",
        "another thread|nothing wrote|wrong", by="hopper", case="even chunks",
    ),
    "a phase's rows packed in another": Mutant(
        PACK, "phase_index = blockIdx.x / blocks;", "phase_index = 0;",
        "nothing wrote|wrong|another thread", by="hopper", case="phases",
    ),
    "a block's steps those of the first one": Mutant(
        PACK, "(share + 1) * turns / splits", "turns / splits",
        "wrong|nothing wrote", by="hopper", case="shared rows",
    ),
    "a quotient rounded away": Mutant(
        DIVISION, "float(number) + 0.5f", "float(number)",
        "wrong|nothing wrote|out of bounds|between", by="hopper", case="long",
    ),
    "the second window of weights in the place of the first": Mutant(
        MATRIX_CONV, "weights_of_pass(pass) * window_bytes", "0 * window_bytes",
        "wrong", by="hopper", case="wide weights",
    ),
}  # fmt: skip  # fmt: skip

SUITE = Suite("matrix", MATRIX_CONV, MUTANTS, CASES, kernels=("portable", "hopper"))
