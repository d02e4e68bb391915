"""Mutants of the shipped kernels, run on the emulator: the suite must reject every one.

A mutant is a patch to a kernel's text. One that no longer applies fails its test, so that it is
brought up to date with the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st

import test_convolution
import test_fused
import test_norms
import test_pooling
import test_windows
from backends import EmulatorBackend, without_bulk_copies
from cupyconv import _compile
from reference import Shape
from strategies import (
    Case,
    Convolution,
    batch_norms,
    convolution,
    convolutions,
    group_norms,
    lay_out,
    max_pools,
)


class Mutant(NamedTuple):
    file: str
    before: str
    after: str
    caught: str  # by what: part of the emulator's message, or "wrong" for a comparison
    everywhere: bool = False
    by: str = "direct"  # the kernel that a convolution runs by
    case: str | None = None  # of the kernel's cases; None draws cases
    chunks: bool = False  # copied one by one, as on GPUs without bulk copies

    def patch(self) -> dict[str, str]:
        """The changed text of the file, all headers included."""
        includers = {
            "direct": CONV,
            "depthwise": DEPTHWISE_CONV,
            "gather": GATHER_CONV,
            "plain": PLAIN_CONV,
            "streaming": STREAMING_CONV,
            "pointwise": POINTWISE_CONV,
        }
        including = includers.get(self.by, MATRIX_CONV)
        kernel = self.file if self.file.endswith(".cu") else including
        text = _compile.source(kernel)
        count = text.count(self.before)
        assert count, f"the patch no longer applies: {self.before!r}"
        assert self.everywhere or count == 1, f"the patch applies {count} times: {self.before!r}"
        return {kernel: text.replace(self.before, self.after)}


CONV = "direct_conv.cu"
DEPTHWISE_CONV = "depthwise_conv.cu"
GATHER_CONV = "gather_conv.cu"
PLAIN_CONV = "plain_conv.cu"
STREAMING_CONV = "streaming_conv.cu"
POINTWISE_CONV = "pointwise_conv.cu"
POINTWISE16_CONV = "pointwise16_conv.cu"
MATRIX_CONV = "matrix_conv.cu"
ENGINE = "matrix_engine.cuh"
PACK = "pack_weights.cu"
TILE = "matrix_tile.cuh"
DIVISION = "division.cuh"
WINDOWS = "windows.cuh"
MATRIX_POOL = "matrix_pool.cuh"
POOLED_NORM = "pooled_norm.cu"
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
        "return begin + p.segment < p.elements ? begin + p.segment : p.elements;",
        "return begin + p.segment < p.elements ? begin + p.segment : p.elements + 1;",
        "out of bounds|between the elements|wrong",
    ),
    "no barrier before a sum": Mutant(
        NORM, "    __syncthreads();  // a former sum has been read\n", "", "race"
    ),
    "no barrier behind the sums of the warps": Mutant(
        NORM, "    __syncthreads();\n    value = 0;", "    value = 0;", "race|nothing wrote"
    ),
    "no barrier behind the values of a set": Mutant(
        NORM, "    __syncthreads();\n    Sums", "    Sums", "race|nothing wrote"
    ),
    "a pack in order that is not summed": Mutant(
        NORM,
        "            sums.add(packs[i], PACK);",
        "            if (i) sums.add(packs[i], PACK);",
        "wrong",
    ),
    "the parameters of another set": Mutant(
        NORM, "set % p.sets_per_sample * p.set_channels;", "0;", "wrong"
    ),
    "no barrier before the next set": Mutant(
        NORM, "        __syncthreads();  // before the next set comes\n", "", "race"
    ),
    "a value too many in the last pack of a set": Mutant(
        NORM, "if (i >= present) break;", "if (i > present) break;", "nothing wrote|wrong"
    ),
    "packs that are not aligned": Mutant(
        NORM, "p.values.width == PACK       ?", "true ?", "misaligned|bounds|between|wrong"
    ),
    "a value too many across the sets": Mutant(
        NORM, "if (first + i < end)\n", "if (first + i <= end)\n", "bounds|between"
    ),
    "a step too many": Mutant(
        NORM,
        "return i * walk.lanes < left;",
        "return i * walk.lanes <= left;",
        "out of bounds|between the elements|another thread",
    ),
    "a window too many": Mutant(
        POOL,
        "return i * walk.lanes < left;",
        "return i * walk.lanes <= left;",
        "out of bounds|between the elements|another thread",
    ),
    "a column too many in a window": Mutant(
        POOL,
        "if (present <= axis.dilation * (axis.kernel - 1))",
        "if (present < axis.dilation * (axis.kernel - 1))",
        "out of bounds|between the elements|wrong",
    ),
    "windows that are not clipped at the end": Mutant(
        POOL,
        "if (present <= axis.dilation * (axis.kernel - 1))",
        "if (false)",
        "out of bounds|between the elements|wrong",
    ),
    "windows that are not clipped at the start": Mutant(
        POOL, "if (start < 0)", "if (false)", "out of bounds|between the elements|wrong"
    ),
    "packs that begin where the line does": Mutant(
        POOL, "head = before < count ? before : count;", "head = 0;", "misaligned"
    ),
    "a pack too many in a line": Mutant(
        POOL,
        "(count - head) / PACK, lane",
        "(count - head) / PACK + 1, lane",
        "out of bounds|between the elements|wrong",
    ),
    "an element too many behind the packs": Mutant(
        POOL,
        "if (last < count)",
        "if (last <= count)",
        "out of bounds|between the elements|wrong",
    ),
    "no element behind the packs": Mutant(POOL, "if (last < count)", "if (false)", "wrong"),
    "no element before the packs": Mutant(POOL, "if (lane < head)", "if (false)", "wrong"),
    "only the first load of a lane": Mutant(
        POOL,
        "if (first + i * LANES >= count) break;",
        "if (i > 0 || first + i * LANES >= count) break;",
        "wrong",
    ),
}

NUMERATOR = "numerator = phase + Integer(axis.origin)"
OUTPUT_PADDING = (
    "(axis.size_out - ((axis.size_in - 1) * axis.divisor - 2 * axis.origin"
    " + axis.dilation * (axis.kernel - 1) + 1))"
)

MISUNDERSTANDINGS = {
    "output_padding in the index": Mutant(
        "taps.cuh",
        NUMERATOR,
        f"{NUMERATOR} + Integer(axis.phases > 1 ? {OUTPUT_PADDING} : 0)",
        "wrong",
    ),
    "no test of divisibility": Mutant(
        "taps.cuh", "quotient * gcd != numerator || first >= kernel", "first >= kernel", "wrong"
    ),
    "first tap not sought": Mutant(
        "taps.cuh",
        "Integer first = quotient % tap_step;",
        "Integer first = 0;",
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
        POOL, "|| (compared != compared && value == value))", ")", "wrong"
    ),
    "the last NaN stays": Mutant(POOL, "&& value == value)", ")", "wrong"),
    "the last of equal elements stays": Mutant(
        POOL, "if (compared > value ||", "if (compared >= value ||", "wrong"
    ),
    "any lane of those with the largest element": Mutant(
        POOL, "equal ? number < tap :", "equal ? false :", "wrong|another thread|nobody wrote"
    ),
    "the last lane of those with the largest element": Mutant(
        POOL, "equal ? number < tap :", "equal ? number > tap :",
        "wrong|another thread|nobody wrote",
    ),
    "NaN of other lanes loses": Mutant(
        POOL, "other > value || other != other)", "other > value)",
        "wrong|another thread|nobody wrote",
    ),
    "NaN in several lanes": Mutant(
        POOL, "|| (value != value && other != other);", ";", "wrong|another thread|nobody wrote"
    ),
    "rows of a window that count from its first tap": Mutant(
        POOL, "number = row * p.axis[1].kernel;", "number = 0;", "wrong|another thread|nobody wrote"
    ),
    "packs that count from the first of a line": Mutant(
        POOL, "packs, number + head);", "packs, number);", "wrong|another thread|nobody wrote"
    ),
    "a part without elements that is zero": Mutant(
        POOL, "__uint_as_float(0xff800000u)", "0", "wrong", everywhere=True
    ),
    "half of a pair": Mutant(
        POOL, "                largest.consider(lower[i].of[1]);\n", "", "wrong"
    ),
    "only the first value of a thread": Mutant(
        NORM, "sum += deviation;", "", "wrong"
    ),
    "each thread's mean for that of all": Mutant(
        NORM, "fma(own.count * apart, apart, own.m2)", "own.m2", "wrong"
    ),
    "one channel for all of a step": Mutant(NORM, "= j && one ?", "= j ?", "wrong"),
    "one partial for the sets of a pack": Mutant(
        NORM, "store_partial(p, set + j, part,", "store_partial(p, set, part,",
        "nothing wrote|wrong|another thread",
    ),
    "one channel for all groups": Mutant(
        NORM, "set % p.sets_per_sample * p.set_channels", "0", "wrong"
    ),
}  # fmt: skip


# Calls in which the mutants below go wrong, as small as they can be: sums longer than the rings,
# rows of two slabs, tiles of which a block has several.
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

MATRIX = {
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
        PACK, "(own + 1) * turns / splits", "turns / splits",
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
}  # fmt: skip


def depthwise(
    function: str,
    shape: Shape,
    kernel: Shape,
    multiplier: int = 1,
    dtype: str = "float32",
    **options: Any,
) -> Convolution:
    """A call with one input channel in each group."""
    groups = shape[1]
    rows = (groups, multiplier) if function.startswith("conv_t") else (groups * multiplier, 1)
    weight = (*rows, *kernel)
    return convolution(function, shape, weight, dtype, bias=True, groups=groups, **options)


DEPTHWISE_CASES = {
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
# Lines that lie aligned, and end within a chunk of 16 bytes.
DEPTHWISE_CASES["halves, aligned lines"] = DEPTHWISE_CASES["halves, even lines"].map(
    lambda a: lay_out(np.random.default_rng(0), a, "aligned")
)

DEPTHWISE = {
    "the last chunk of a line left out": Mutant(
        DEPTHWISE_CONV, "const int left = size - x < WIDTH ? size - x : WIDTH;",
        "const int left = size - x < WIDTH ? 0 : WIDTH;",
        "wrong", by="depthwise", case="halves, aligned lines",
    ),
    "the last chunk of a line taken whole": Mutant(
        DEPTHWISE_CONV, "const int left = size - x < WIDTH ? size - x : WIDTH;",
        "const int left = WIDTH;",
        "out of bounds|between the elements|wrong", by="depthwise", case="halves, aligned lines",
    ),
    "x bound of chunks off by one": Mutant(
        DEPTHWISE_CONV,
        "unsigned(x) < unsigned(whole);", "unsigned(x) < unsigned(whole + WIDTH);",
        "out of bounds|between the elements|wrong", by="depthwise", case="even",
    ),
    "x bound of elements off by one": Mutant(
        DEPTHWISE_CONV, "size - WIDTH + 1 < end ? size - WIDTH + 1 : end",
        "size - WIDTH + 1 < end ? size - WIDTH + 2 : end + 1",
        "out of bounds|between the elements|wrong", by="depthwise", case="odd",
    ),
    "x bound of a part of a chunk off by one": Mutant(
        DEPTHWISE_CONV, "to[e] = unsigned(x + e) < unsigned(size)",
        "to[e] = unsigned(x + e) <= unsigned(size)",
        "out of bounds|between the elements|wrong", by="depthwise", case="three axes",
    ),
    "no parts of chunks": Mutant(
        DEPTHWISE_CONV, "WIDTH > 1 && !present && unsigned(x", "false && unsigned(x",
        "wrong", by="depthwise", case="three axes",
    ),
    "y bound of lines off by one": Mutant(
        DEPTHWISE_CONV, "(unsigned(tile.first(p, 1) + y) < unsigned(p.axis[1].taps.size_in))",
        "(unsigned(tile.first(p, 1) + y) <= unsigned(p.axis[1].taps.size_in))",
        "out of bounds|between the elements|wrong", by="depthwise", case="odd",
    ),
    "no z bound of lines": Mutant(
        DEPTHWISE_CONV,
        "(unsigned(tile.first(p, 0) + z) < unsigned(p.axis[0].taps.size_in)) &\n", "true &\n",
        "out of bounds|between the elements|wrong", True, by="depthwise", case="three axes",
    ),
    "a channel too many": Mutant(
        DEPTHWISE_CONV, "(tile.channel + channel < int(p.groups))",
        "(tile.channel + channel <= int(p.groups))",
        "out of bounds|between the elements|another thread", by="depthwise", case="channels",
    ),
    "a row too many": Mutant(
        DEPTHWISE_CONV, "(tile.row + row < int(p.rows))", "(tile.row + row <= int(p.rows))",
        "out of bounds|between the elements|another thread", by="depthwise", case="many rows",
    ),
    "samples ignored in the input": Mutant(
        DEPTHWISE_CONV, "p.input + tile.sample * p.input_batch + ", "p.input + ",
        "wrong", by="depthwise", case="even",
    ),
    "bias of the first row": Mutant(
        DEPTHWISE_CONV, "group * p.rows + in_group)", "group * p.rows)",
        "wrong", by="depthwise", case="even",
    ),
    "flipped kernel": Mutant(
        DEPTHWISE_CONV, "taps.offset_step < 0 ? int(taps.kernel) - 1 - place : place", "place",
        "wrong", by="depthwise", case="flipped",
    ),
    "chunks that do not lie as their inputs": Mutant(
        DEPTHWISE_CONV, "sizeof(Element)) & (width - 1);", "sizeof(Element) + 1) & (width - 1);",
        "misaligned", by="depthwise", case="even",
    ),
    "windows without skew": Mutant(
        DEPTHWISE_CONV, "if (start % 2)", "if (false)",
        "misaligned", by="depthwise", case="even",
    ),
    "a window of another line": Mutant(
        DEPTHWISE_CONV, "window[(u + r) % LINES].values", "window[(u + r + 1) % LINES].values",
        "wrong|nothing wrote", by="depthwise", case="odd",
    ),
    "windows of one plane": Mutant(
        DEPTHWISE_CONV, "input += int(p.axis[0].apart) * int(p.axis[0].pitch);", "",
        "wrong", by="depthwise", case="three axes",
    ),
    "taps of the first phase": Mutant(
        DEPTHWISE_CONV, "shared.taps[1][strip.phases[1]];", "shared.taps[1][0];",
        "wrong|nothing wrote", by="depthwise", case="phases",
    ),
    "columns of one phase": Mutant(
        DEPTHWISE_CONV, "x_first + v * apart - qx * int(ax.taps.phases)", "0",
        "wrong|nothing wrote", by="depthwise", case="phases",
    ),
    "steps ignored along y": Mutant(
        DEPTHWISE_CONV, "qy * int(ay.taps.step)", "qy",
        "wrong", by="depthwise", case="steps",
    ),
    "a line too many": Mutant(
        DEPTHWISE_CONV, "if (r < count[0])", "if (r <= count[0])",
        "out of bounds|another thread", by="depthwise", case="odd",
    ),
    "a section too many": Mutant(
        DEPTHWISE_CONV, "+ int(p.section) - 1, p.per_section)", "+ int(p.section), p.per_section)",
        "out of bounds|another thread|wrong", by="depthwise", case="sections",
    ),
    "pairs of odd outputs": Mutant(
        DEPTHWISE_CONV, "if (SLIDE && p.pairs && count[1] == LINES) {", "if (count[1] == LINES) {",
        "misaligned|another thread|out of bounds", by="depthwise", case="odd",
    ),
    "no barrier behind the phases": Mutant(
        DEPTHWISE_CONV, "    __syncthreads();\n\n    for (int turn", "\n    for (int turn",
        "race|nothing wrote", by="depthwise", case="phases",
    ),
    "chunks from odd elements on that are not shifted": Mutant(
        DEPTHWISE_CONV, "odd[u] ? byte_select(before, word, 0x5432) : word;", "word;",
        "wrong", by="depthwise", case="halves, odd lines",
    ),
    "no element in front of words": Mutant(
        DEPTHWISE_CONV, "unsigned(head[u]) << 16;", "0;",
        "wrong", by="depthwise", case="halves, odd lines",
    ),
    "no element behind words": Mutant(
        DEPTHWISE_CONV, "if (odd[u] + 2 * w + 1 == count[u]) word = tail[u];", "",
        "wrong", by="depthwise", case="halves, odd lines",
    ),
    "words that reach over the end of a line": Mutant(
        DEPTHWISE_CONV, "word + w, odd[u] + 2 * w + 1,", "word + w, odd[u] + 2 * w,",
        "wrong|out of bounds|between", by="depthwise", case="halves, odd lines",
    ),
    "chunks in front of lines": Mutant(
        DEPTHWISE_CONV, "(i < all) & (x >= 0) & (x < end)", "(i < all) & (x < end)",
        "wrong|out of bounds|between", by="depthwise", case="halves, odd lines",
    ),
    "weights of chunks from anywhere": Mutant(
        DEPTHWISE_CONV, "if (begins) special = load_weights(tile);", "",
        "nothing wrote", by="depthwise", case="halves, odd lines",
    ),
    "no barrier behind descriptions": Mutant(
        DEPTHWISE_CONV, "__syncthreads();\n            if (MATRIX && p", "if (MATRIX && p",
        "race|nothing wrote", by="depthwise", case="odd",
    ),
    "no wait for copies": Mutant(
        DEPTHWISE_CONV, "copy_async_wait<0>();", ";",
        "race|nothing wrote|under way", by="depthwise", case="even",
    ),
    "no barrier behind inputs and weights": Mutant(
        DEPTHWISE_CONV, "__syncthreads_or(own);", "own;",
        "race|nothing wrote", by="depthwise", case="odd",
    ),
    "no barrier before the next tile": Mutant(
        DEPTHWISE_CONV, "        __syncthreads();  // before the next tile is described\n", "",
        "race", by="depthwise", case="channels",
    ),
    "zeros in front of a line left out": Mutant(
        DEPTHWISE_CONV, "for (int i = 0; i < all; ++i) {\n", "for (int i = from; i < all; ++i) {\n",
        "nothing wrote", by="depthwise", case="whole lines",
    ),
    "zeros behind a line left out": Mutant(
        DEPTHWISE_CONV, "if (i == from) i = to;", "if (i == from) break;",
        "nothing wrote", by="depthwise", case="whole lines",
    ),
    "a line without its last chunk": Mutant(
        DEPTHWISE_CONV, "to = end - first;", "to = end - first - 1;",
        "wrong", by="depthwise", case="whole lines",
    ),
    "a line with a chunk of the next one": Mutant(
        DEPTHWISE_CONV, "(end_of_lines(tile) + CHUNK - 1) / CHUNK;",
        "(end_of_lines(tile) + CHUNK) / CHUNK;",
        "wrong|out of bounds", by="depthwise", case="whole lines",
    ),
    "a line that begins with its padding": Mutant(
        DEPTHWISE_CONV, "run.source + from * CHUNK,", "run.source,",
        "wrong|out of bounds", by="depthwise", case="whole lines",
    ),
    "no wait for whole lines": Mutant(
        DEPTHWISE_CONV, "mbarrier_wait(worker.lines_there, turn % 2);", ";",
        "under way|nothing wrote|race", by="depthwise", case="whole lines",
    ),
    "a wait for the lines of the first tile": Mutant(
        DEPTHWISE_CONV, "mbarrier_wait(worker.lines_there, turn % 2);",
        "mbarrier_wait(worker.lines_there, 0);",
        "under way|nothing wrote|race|waits", by="depthwise", case="tall",
    ),
    "copies that overtake zeros": Mutant(
        DEPTHWISE_CONV, "if (turn > 0) async_proxy_fence();", "",
        "fence", by="depthwise", case="tall",
    ),
    "a line that nobody waits for": Mutant(
        DEPTHWISE_CONV, "mbarrier_init(worker.lines_there, int(p.whole));",
        "mbarrier_init(worker.lines_there, int(p.whole) - 1);",
        "under way|race|nothing wrote|wait|arriv", by="depthwise", case="whole lines",
    ),
    "padding that counts against an infinite weight": Mutant(
        DEPTHWISE_CONV, "if (!MASKED || present)", "if (true)",
        "wrong", by="depthwise", case="infinite",
    ),
    "infinite weights that nobody sees": Mutant(
        DEPTHWISE_CONV, "} else if (p.slides && !special)", "} else if (p.slides)",
        "wrong", by="depthwise", case="infinite",
    ),
    "lines for matrix units that begin elsewhere": Mutant(
        DEPTHWISE_CONV, "MATRIX ? int(p.skew)", "MATRIX ? 0",
        "misaligned|wrong|nothing wrote", by="depthwise", case="halves",
    ),
    "a diagonal that is off by one": Mutant(
        DEPTHWISE_CONV, "MARGIN + 2 * t - g - skew", "MARGIN + 2 * t - g - skew + 1",
        "wrong|nothing wrote|out of bounds|misaligned", by="depthwise", case="halves",
    ),
    "weights from even places for odd ones": Mutant(
        DEPTHWISE_CONV, "(place % 2) * (DIAGONAL - 1)", "(place % 2) * DIAGONAL",
        "misaligned|wrong", by="depthwise", case="halves",
    ),
    "diagonals that are not cleared": Mutant(
        DEPTHWISE_CONV, "if (MATRIX) worker.clear_diagonals();", "",
        "nothing wrote", by="depthwise", case="halves",
    ),
    "a third block that is left out": Mutant(
        DEPTHWISE_CONV, "int(p.axis[2].taps.kernel) > 9;", "int(p.axis[2].taps.kernel) > 20;",
        "wrong", by="depthwise", case="halves",
    ),
    "a third block that is another one": Mutant(
        DEPTHWISE_CONV, "blocks[j + 2], weights[2]", "blocks[j + 1], weights[2]",
        "wrong", by="depthwise", case="halves",
    ),
    "weights of another row and channel": Mutant(
        DEPTHWISE_CONV, "diagonals + own * lines_of_taps() * 2 * DIAGONAL,", "diagonals,",
        "wrong", by="depthwise", case="halves",
    ),
    "one plane of taps, on matrix units": Mutant(
        DEPTHWISE_CONV, "y = 0, plane += next_plane)", "y = 0)",
        "wrong", by="depthwise", case="halves, three axes",
    ),
    "a strip that is stored before it is there": Mutant(
        DEPTHWISE_CONV, "__syncwarp();\n            empty<Half>", "empty<Half>",
        "race|nothing wrote", by="depthwise", case="halves",
    ),
    "a strip that is overwritten too early": Mutant(
        DEPTHWISE_CONV, "2 * lane, width);\n            __syncwarp();", "2 * lane, width);",
        "race", by="depthwise", case="halves",
    ),
    "lines of a strip that do not exist": Mutant(
        DEPTHWISE_CONV, "store_bits((unsigned*)out, pairs[r], r < lines);",
        "store_bits((unsigned*)out, pairs[r], true);",
        "out of bounds|another thread|between the elements|wrong", by="depthwise", case="halves",
    ),
    "zeros that count against an infinite input": Mutant(
        DEPTHWISE_CONV, "larger_of(largest, pairs[r], Half());", "largest;",
        "wrong", by="depthwise", case="an infinite half",
    ),
    "infinite weights on matrix units": Mutant(
        DEPTHWISE_CONV, "(special && is_masked(weight))) continue;", "false) continue;",
        "wrong|another thread", by="depthwise", case="infinite halves",
    ),
    "finite weights beside an infinite one by other sums": Mutant(
        DEPTHWISE_CONV, "if (MATRIX && !masked) continue;", "",
        "another thread", by="depthwise", case="an infinite weight of halves",
    ),
}  # fmt: skip


# Several units and tiles, of which the last ones are ragged; several chunks of channels.
STREAMING_CASES = {
    "image": convolution("conv2d", (3, 40, 17, 44), (180, 20, 1, 1), bias=True, groups=2),
    "odd": convolution("conv1d", (3, 40, 701), (100, 20, 1), "float16", bias=True, groups=2),
    "halves": convolution("conv_transpose1d", (3, 75, 700), (75, 70, 1), "bfloat16", bias=True),
    "steps": convolution(
        "conv3d", (2, 20, 3, 23, 31), (70, 20, 1, 1, 1), bias=True, stride=(1, 2, 3)
    ),
    "one product": convolution("conv1d", (3, 75, 700), (70, 75, 1), bias=True, precision="tf32"),
    "no bias": convolution("conv1d", (2, 20, 300), (70, 20, 1)),
    "taps": convolution(
        "conv2d",
        (2, 6, 23, 31),
        (140, 3, 3, 4),
        bias=True,
        padding=(2, 1),
        dilation=(2, 1),
        stride=(1, 2),
        groups=2,
    ),
    "three axes": convolution("conv_transpose3d", (2, 3, 5, 7, 9), (3, 70, 2, 3, 3), "float16"),
    "chunks of taps": convolution("conv1d", (2, 50, 300), (70, 50, 3)),
    "small images": convolution("conv2d", (990, 3, 6, 7), (70, 3, 3, 3)),
    "few products": convolution("conv2d", (3, 3, 27, 34), (70, 3, 3, 3)),
    "two narrow passes": convolution("conv2d", (2, 4, 21, 30), (90, 4, 3, 3), bias=True),
    "chunks": convolution("conv1d", (2, 150, 300), (150, 150, 1), bias=True),
    "chunks, one product": convolution(
        "conv1d", (2, 300, 300), (70, 300, 1), bias=True, precision="tf32"
    ),
}

STREAMING = {
    "weights of the first group": Mutant(
        STREAMING_CONV, "p.weight + group * p.weight_group + row * p.weight_row;\n#pragma",
        "p.weight + row * p.weight_row;\n#pragma",
        "wrong", by="streaming", case="image",
    ),
    "rows of the weight off by one": Mutant(
        STREAMING_CONV, "row < int(p.rows) ? int(p.products) : 0;",
        "row <= int(p.rows) ? int(p.products) : 0;",
        "out of bounds|between the elements", by="streaming", case="odd",
    ),
    "channels of the weight off by one": Mutant(
        STREAMING_CONV, ", channel, products);", ", channel, products + 1);",
        "out of bounds|between the elements|wrong", by="streaming", case="odd",
    ),
    "halves of a step in one place": Mutant(
        STREAMING_CONV, "at.slot % DEPTH * PASS_ROWS + at.row % PASS_ROWS;", "at.row % PASS_ROWS;",
        "nothing wrote|another thread|race", by="streaming", case="image",
    ),
    "slots of weights behind the last one": Mutant(
        STREAMING_CONV, "weight_place(i < all ? i : first, slots)", "weight_place(i, slots)",
        "out of bounds|race|another thread", by="streaming", case="odd",
    ),
    "half of eight rows": Mutant(
        STREAMING_CONV, "rows * 8 + i % 8", "rows * 8 + i % 4",
        "nothing wrote|race|another thread", by="streaming", case="image",
    ),
    "channels of the first slot": Mutant(
        STREAMING_CONV, "const int channel = at.slot * CHUNK + c;", "const int channel = c;",
        "wrong", by="streaming", case="image",
    ),
    "bias of the first group": Mutant(
        STREAMING_CONV, "load_parameter<float>(p.bias, group * p.rows + row)",
        "load_parameter<float>(p.bias, row)",
        "wrong", by="streaming", case="image",
    ),
    "outputs of the first rows": Mutant(
        STREAMING_CONV, "first_row + first, int(p.rows)", "first, int(p.rows)",
        "another thread|nobody wrote|wrong", by="streaming", case="chunks",
    ),
    "no fence of the proxy": Mutant(
        STREAMING_CONV, "    async_proxy_fence();\n", "",
        "without a fence of the proxy", by="streaming", case="image",
    ),
    "no barrier behind the weights": Mutant(
        STREAMING_CONV, "    async_proxy_fence();\n    __syncthreads();\n",
        "    async_proxy_fence();\n",
        "race|nothing wrote", by="streaming", case="image",
    ),
    "inputs of the first sample": Mutant(
        STREAMING_CONV, "{first + scaled(sample, input_batch) + ", "{first + ",
        "wrong|between the elements", by="streaming", case="image",
    ),
    "inputs of the first group": Mutant(
        STREAMING_CONV, " + group * input_group,\n", ",\n",
        "wrong|between the elements", by="streaming", case="odd",
    ),
    "inputs of the first line": Mutant(
        STREAMING_CONV,
        "place.input += scaled(at[0], input_axis[0]) + scaled(at[1], input_axis[1]);", "",
        "wrong", by="streaming", case="steps",
    ),
    "outputs of the first plane": Mutant(
        STREAMING_CONV, "place.out += scaled(at[0], out_axis[0]) + ", "place.out += ",
        "another thread|nobody wrote", by="streaming", case="steps",
    ),
    "a position too many": Mutant(
        STREAMING_CONV, "position_of<TOGETHER>(tile, s) < p.positions",
        "position_of<TOGETHER>(tile, s) <= p.positions",
        "out of bounds|another thread|between the elements", by="streaming", case="odd",
    ),
    "a channel too many": Mutant(
        STREAMING_CONV, "spots.channels[s] = exists ? int(p.products) : 0;",
        "spots.channels[s] = exists ? int(p.products) + 1 : 0;",
        "out of bounds|between the elements|wrong", by="streaming", case="odd",
    ),
    "channels of a step one too far": Mutant(
        STREAMING_CONV, "i * 4 : i % 2 + i / 2 * 8;", "i * 4 : i % 2 + i / 2 * 9;",
        "wrong|out of bounds|between the elements", by="streaming", case="halves",
    ),
    "channels of the first thread": Mutant(
        STREAMING_CONV, "            spots.from[s] += spots.channel * p.space.input_channel;\n", "",
        "wrong", by="streaming", case="image",
    ),
    "positions of a warp in those of another one": Mutant(
        STREAMING_CONV, "warp * 8 * PLACES + (", "warp * 8 + (",
        "another thread|nobody wrote|wrong", by="streaming", case="image",
    ),
    "operands in another order": Mutant(
        STREAMING_CONV, "number_of(inputs[step][i / 2], i % 2)",
        "number_of(inputs[step][i % 2], i / 2)",
        "wrong", by="streaming", case="one product",
    ),
    "halves in another order": Mutant(
        STREAMING_CONV, "inputs[step][i / 2 * 2], ", "inputs[step][i % 2 * 2], ",
        "wrong", by="streaming", case="halves",
    ),
    "no low parts of the inputs": Mutant(
        STREAMING_CONV, "operands[product == 0 ? PARTS - 1 : 0]", "operands[0]",
        "wrong", by="streaming", case="image",
    ),
    "no low parts of the weights": Mutant(
        STREAMING_CONV, "(step * PARTS + (product == 1)) * PART", "step * PARTS * PART",
        "wrong", by="streaming", case="image",
    ),
    "no fence in front of products": Mutant(
        STREAMING_CONV, "        wgmma_fence();\n", "",
        "without a fence in front", by="streaming", case="image",
    ),
    "no wait for products": Mutant(
        STREAMING_CONV, "        wgmma_wait<0>();\n", "",
        "touched before the wait", by="streaming", case="image",
    ),
    "sums of the last chunk": Mutant(
        STREAMING_CONV, "add || product > FIRST", "product > FIRST",
        "wrong", by="streaming", case="chunks, one product",
    ),
    "a chain in place of a sum": Mutant(
        STREAMING_CONV, "sums[tile][i] += chain[tile][i];", "sums[tile][i] = chain[tile][i];",
        "wrong", by="streaming", case="chunks",
    ),
    "sums that begin anywhere": Mutant(
        STREAMING_CONV, "            if (LONG && PARTS == 2) clear(sums);\n", "",
        "wrong", by="streaming", case="chunks",
    ),
    "weights of the first chunk": Mutant(
        STREAMING_CONV, "(pass * int(p.chunks) + chunk) * CHUNK_BYTES",
        "pass * int(p.chunks) * CHUNK_BYTES",
        "wrong", by="streaming", case="chunks, one product",
    ),
    "weights of the first pass": Mutant(
        STREAMING_CONV, "(pass * int(p.chunks) + chunk) * CHUNK_BYTES", "chunk * CHUNK_BYTES",
        "wrong", by="streaming", case="image",
    ),
    "the next tile is the same again": Mutant(
        STREAMING_CONV, "                            find(spots, next, start);\n", "",
        "another thread|nobody wrote|between the elements", by="streaming", case="image",
    ),
    "the next tile in the sample of this one": Mutant(
        STREAMING_CONV, "start.sample += step.sample, start.rest", "start.rest",
        "another thread|nobody wrote|wrong", by="streaming", case="small images",
    ),
    "positions behind their sample": Mutant(
        STREAMING_CONV, "start.sample += more, start.rest -= more * size;", "",
        "another thread|nobody wrote|wrong|out of bounds|between the elements", by="streaming",
        case="small images",
    ),
    "a second position at the first one": Mutant(
        STREAMING_CONV, "++at[2], place.input += p.space.input_axis[2];", ";",
        "wrong", by="streaming", case="few products",
    ),
    "a warp that is whole by one position": Mutant(
        STREAMING_CONV, "s < COUNT; ++s) absent |= spots.absent[s];",
        "s < 1; ++s) absent |= spots.absent[s];",
        "wrong|out of bounds|between the elements", by="streaming", case="taps",
    ),
    "products that are never there at another input": Mutant(
        STREAMING_CONV, "term.taps & NEVER ? 0 : ", "",
        "out of bounds|between the elements", by="streaming", case="few products",
    ),
    "ends of the taps not looked at": Mutant(
        STREAMING_CONV, " || unsigned(first + (kernel - 1) * int(p.apart[a])) >= size)", ")",
        "wrong|out of bounds|between the elements", by="streaming", case="taps",
    ),
    "rows of a narrow pass in another one": Mutant(
        STREAMING_CONV, "const int pass = at.row / PASS_ROWS, ", "const int pass = at.row / 64, ",
        "nothing wrote|another thread|race|wrong", by="streaming", case="two narrow passes",
    ),
    "a narrow pass as far as a wide one": Mutant(
        STREAMING_CONV, "const int first = (pass + h) * PASS_ROWS;",
        "const int first = (pass + h) * 64;",
        "another thread|nobody wrote|wrong|out of bounds", by="streaming",
        case="two narrow passes",
    ),
    "infinite sums of a narrow pass in those of a wide one": Mutant(
        STREAMING_CONV, "i / 2 % (PASS_ROWS / 8) * 8", "i / 2 % 8 * 8",
        "nothing wrote|wrong", by="streaming", case="infinite, narrow",
    ),
    "outputs of the next tile": Mutant(
        STREAMING_CONV, "store<TOGETHER>(sums[h], outs, ", "store<TOGETHER>(sums[h], spots.out, ",
        "another thread|nobody wrote|wrong", by="streaming", case="image",
    ),
    "tiles that are left out": Mutant(
        STREAMING_CONV, "tile + blocks * TEAMS;", "tile + blocks * (TEAMS + 1);",
        "nobody wrote", by="streaming", case="image",
    ),
    "nobody begins the turns": Mutant(
        STREAMING_CONV, "if (turns && team == TEAMS - 1)", "if (turns && team < 0)",
        "hangs", by="streaming", case="chunks of taps",
    ),
    "turns of several passes, which not all teams have": Mutant(
        STREAMING_CONV, "TURNS && (LONG || p.passes == 1)", "TURNS",
        "hangs", by="streaming", case="small images",
    ),
    "a turn that goes to the team that had it": Mutant(
        STREAMING_CONV, "FIRST_TURN + (team + 1) % TEAMS", "FIRST_TURN + team",
        "hangs", by="streaming", case="chunks of taps",
    ),
    "rows of the result off by one": Mutant(
        STREAMING_CONV, "if (outs[s] && row < rows)", "if (outs[s] && row <= rows)",
        "out of bounds|another thread", by="streaming", case="odd",
    ),
    "rows of the result off by one, together": Mutant(
        STREAMING_CONV, "outs[0] && row < rows);", "outs[0] && row <= rows);",
        "out of bounds|another thread", by="streaming", case="image",
    ),
    "weights of the first tap": Mutant(
        STREAMING_CONV, "weight += tap * p.weight_axis[a];", "",
        "wrong", by="streaming", case="taps",
    ),
    "inputs of the first tap": Mutant(
        STREAMING_CONV, "term.input += tap * p.apart[a]", "term.input += 0 * p.apart[a]",
        "wrong|out of bounds|between the elements", by="streaming", case="taps",
    ),
    "taps apart by one": Mutant(
        STREAMING_CONV, "first + tap * int(p.apart[a])) >= size)", "first + tap) >= size)",
        "wrong|out of bounds|between the elements", by="streaming", case="taps",
    ),
    "bits of the first axis": Mutant(
        STREAMING_CONV, "bit += int(p.kernel[a]);", "",
        "wrong|out of bounds|between the elements", by="streaming", case="taps",
    ),
    "no padding": Mutant(
        STREAMING_CONV, "if (!p.padded) return absent;", "return absent;",
        "wrong|out of bounds|between the elements", by="streaming", case="taps",
    ),
    "a product too many": Mutant(
        STREAMING_CONV, "k < int(p.products) ? 0u : NEVER", "0u",
        "out of bounds|between the elements|wrong", by="streaming", case="three axes",
    ),
    "the input bound off by one": Mutant(
        STREAMING_CONV, "first + tap * int(p.apart[a])) >= size)",
        "first + tap * int(p.apart[a])) > size)",
        "wrong|out of bounds|between the elements", by="streaming", case="taps",
    ),
    "no barrier behind the table": Mutant(
        STREAMING_CONV, "        worker.describe_terms();\n        __syncthreads();\n",
        "        worker.describe_terms();\n",
        "race|nothing wrote", by="streaming", case="taps",
    ),
    "products of the first chunk": Mutant(
        STREAMING_CONV, "spots.chunk++ * CHANNELS", "0 * CHANNELS",
        "wrong", by="streaming", case="chunks of taps",
    ),
    "zeros that count against an infinite weight": Mutant(
        STREAMING_CONV, "constexpr bool REPAIRED = TAPS || sizeof(Element) == 4;",
        "constexpr bool REPAIRED = sizeof(Element) == 4;",
        "wrong", by="streaming", case="infinite taps",
    ),
    "absent inputs of infinite weights": Mutant(
        STREAMING_CONV, "if (!(terms[k].taps & absent))", "",
        "wrong|out of bounds|between the elements", by="streaming", case="infinite taps",
    ),
    "infinite parts": Mutant(
        STREAMING_CONV, "__any_sync(~0u, found)", "false",
        "wrong", by="streaming", case="infinite",
    ),
    "scattered sums that are infinite where others are": Mutant(
        STREAMING_CONV, "repair<TOGETHER, Worker>(p, weights", "repair<true, Worker>(p, weights",
        "wrong|another thread", by="streaming", case="infinite, odd",
    ),
    "weights of the first group where a sum is infinite": Mutant(
        STREAMING_CONV, "p.weight + group * p.weight_group + row * p.weight_row;\n        float",
        "p.weight + row * p.weight_row;\n        float",
        "wrong", by="streaming", case="infinite",
    ),
    "a bias of rows that are not there": Mutant(
        STREAMING_CONV, "p.bias.data && row < int(p.rows)", "p.bias.data",
        "out of bounds|between the elements", by="streaming", case="image",
    ),
    "other weights where a sum is infinite": Mutant(
        STREAMING_CONV, "group * p.weight_group + row * p.weight_row;\n        float",
        "group * p.weight_group;\n        float",
        "wrong", by="streaming", case="infinite",
    ),
    "no bias where a sum is infinite": Mutant(
        STREAMING_CONV, " + worker.biases[own]);", ");",
        "wrong", by="streaming", case="infinite",
    ),
}  # fmt: skip


# Several bands and tiles of channels, neither divided evenly, and whole images.
GATHER_CASES = {
    "steps": depthwise("conv2d", (3, 7, 23, 39), (4, 3), 2, padding=1, stride=2),
    "image": depthwise("conv2d", (2, 5, 61, 53), (4, 3), padding=2),
    "channels": depthwise("conv2d", (2, 70, 7, 7), (4, 3), padding=1),
    "three axes": depthwise("conv3d", (2, 3, 7, 9, 14), (3, 2, 3), 2, padding=1, stride=(2, 1, 2)),
    "dilated": depthwise("conv2d", (2, 5, 21, 45), (3, 3), 2, padding=(2, 3), dilation=(2, 3)),
    "flipped": depthwise("conv_transpose2d", (2, 3, 13, 18), (4, 3), 2, padding=1),
    # Strips.
    "strips": depthwise("conv2d", (2, 5, 61, 53), (3, 3), 2, padding=1),
    "strips with steps": depthwise("conv2d", (3, 7, 61, 39), (5, 5), 2, padding=2, stride=2),
    "strips of channels": depthwise("conv2d", (2, 70, 9, 7), (3, 3), padding=1),
    "strips of some lines": depthwise("conv2d", (2, 30, 10, 9), (3, 3), stride=2),
    "strips of planes": depthwise(
        "conv3d", (2, 3, 15, 11, 14), (3, 3, 3), 2, padding=1, stride=(2, 1, 2)
    ),
    "bands of planes": depthwise(
        "conv3d", (1, 2, 15, 11, 14), (3, 3, 3), padding=1, stride=(2, 1, 2)
    ),
    "wide strips": depthwise("conv2d", (1, 5, 44, 30), (7, 7), padding=3),
    "wide image of strips": depthwise("conv2d", (1, 3, 30, 300), (3, 3), padding=1),
    "far strips": depthwise("conv2d", (1, 5, 2, 30), (3, 3), padding=14),
    "even strips": depthwise("conv2d", (1, 5, 64, 30), (3, 3), padding=1),
}

GATHER = {
    "inputs behind the array": Mutant(
        GATHER_CONV, "const int end = least(to, int(band.size_in));",
        "const int end = least(to, int(band.size_in) + 1);",
        "out of bounds|between the elements|wrong", by="gather", case="image",
    ),
    "inputs in front of the array": Mutant(
        GATHER_CONV, "low = from < 0 ? 0 : from;", "low = from;",
        "out of bounds|between the elements|wrong", by="gather", case="image",
    ),
    "a band that begins as if there were no steps": Mutant(
        GATHER_CONV, "const int from = start * int(band.step) + int(band.low);",
        "const int from = start + int(band.low);",
        "wrong|nothing wrote|out of bounds", by="gather", case="steps",
    ),
    "bands of one size": Mutant(
        GATHER_CONV, "size = least(int(band.size_out) - start, int(p.tile));",
        "size = int(p.tile);",
        "out of bounds|another thread", by="gather", case="steps",
    ),
    "outputs of the first band": Mutant(
        GATHER_CONV, "p.band == 1 ? start + lines :", "p.band == 1 ? lines :",
        "out of bounds|another thread|nothing wrote", by="gather", case="image",
    ),
    "a group too few": Mutant(
        GATHER_CONV, "int(p.rows)) - group + 1;", "int(p.rows)) - group;",
        "nothing wrote", by="gather", case="channels",
    ),
    "inputs of the first sample": Mutant(
        GATHER_CONV, "p.input + sample * p.input_batch + ", "p.input + ",
        "wrong", by="gather", case="steps",
    ),
    "inputs of the first group": Mutant(
        GATHER_CONV, "(group + piece) * p.input_group", "piece * p.input_group",
        "wrong", by="gather", case="channels",
    ),
    "chunks that do not lie as their inputs": Mutant(
        GATHER_CONV, "sizeof(Element)) & (CHUNK - 1) : 0;",
        "sizeof(Element) + 1) & (CHUNK - 1) : 0;",
        "misaligned", by="gather", case="channels", chunks=True,
    ),
    "inputs without skew": Mutant(
        GATHER_CONV, ": channel * int(p.room) + skew(channel);",
        ": channel * int(p.room);",
        "wrong|nothing wrote", by="gather", case="steps",
    ),
    "channels apart that lie together": Mutant(
        GATHER_CONV, "p.joined ? channel * elements + skew(0) : ", "",
        "wrong|nothing wrote|out of bounds", by="gather", case="channels",
    ),
    "ends that nobody brings": Mutant(
        GATHER_CONV, "    worker.store(end);\n", "",
        "nothing wrote", by="gather", case="steps",
    ),
    "ends of the first piece": Mutant(
        GATHER_CONV, "piece(number / (2 * CHUNK))", "piece(0)",
        "nothing wrote|race", by="gather", case="steps",
    ),
    "whole chunks from the first element on": Mutant(
        GATHER_CONV, "bulk_copy(own.to + own.before, own.from + own.before,",
        "bulk_copy(own.to, own.from,",
        "misaligned|without a fence|race", by="gather", case="steps",
    ),
    "a chunk too many": Mutant(
        GATHER_CONV, "(length - before) & -CHUNK}", "(length - before + CHUNK - 1) & -CHUNK}",
        "out of bounds|between the elements|race|under way", by="gather", case="steps",
    ),
    "no wait for bulk copies": Mutant(
        GATHER_CONV, "    if (bulk) mbarrier_wait(worker.copied, 0);\n", "",
        "race|nothing wrote|under way", by="gather", case="steps",
    ),
    "a chunk too far": Mutant(
        GATHER_CONV, "element + CHUNK <= length)", "element + CHUNK <= length + 1)",
        "out of bounds|between the elements", by="gather", case="strips with steps", chunks=True,
    ),
    "a part of a chunk too far": Mutant(
        GATHER_CONV, "unsigned(element + e) < unsigned(length)",
        "unsigned(element + e) <= unsigned(length)",
        "out of bounds|between the elements", by="gather", case="steps", chunks=True,
    ),
    "scattered inputs of another place": Mutant(
        GATHER_CONV, "rest -= along * int(p.axis[a].pitch);", "",
        "wrong|nothing wrote|out of bounds|between the elements", by="gather", case="scattered",
    ),
    "channels behind the last one": Mutant(
        GATHER_CONV, "first + least(own, count - 1)", "first + own",
        "out of bounds", by="gather", case="steps",
    ),
    "outputs of the first channels": Mutant(
        GATHER_CONV, "p.out_batch + own * p.out_row,", "p.out_batch + i * p.out_row,",
        "nobody wrote|another thread", by="gather", case="steps",
    ),
    "weights of the first channels, together": Mutant(
        GATHER_CONV, "return int64(first) * taps + ", "return ",
        "wrong", by="gather", case="channels",
    ),
    "weights behind the last channel": Mutant(
        GATHER_CONV, "least(i, count * taps - 1);", "i;",
        "out of bounds", by="gather", case="steps",
    ),
    "weights of the first group": Mutant(
        GATHER_CONV, "return of * p.weight_group + row", "return row",
        "wrong", by="gather", case="flipped",
    ),
    "weights of the first row": Mutant(
        GATHER_CONV, "row * p.weight_row +", "0 * p.weight_row +",
        "wrong", by="gather", case="rows first",
    ),
    "flipped kernel": Mutant(
        GATHER_CONV, "ay.weight_first + ax.weight_first +", "ay.weight_first +",
        "wrong|out of bounds", by="gather", case="flipped",
    ),
    "bias of the first channels": Mutant(
        GATHER_CONV, "load_parameter<Accumulator>(p.bias, number(threadIdx.x));",
        "load_parameter<Accumulator>(p.bias, threadIdx.x);",
        "wrong|out of bounds", by="gather", case="channels",
    ),
    "taps next to each other": Mutant(
        GATHER_CONV, "first[i][line + x * apart];", "first[i][line + x];",
        "wrong|nothing wrote", by="gather", case="dilated",
    ),
    "lines of the first tap": Mutant(
        GATHER_CONV, " + (iy - y0) * int(ay.pitch), weight", ", weight",
        "wrong|nothing wrote|out of bounds", by="gather", case="steps",
    ),
    "planes of the first tap": Mutant(
        GATHER_CONV, "first, (iz - z0) * int(az.pitch) + ", "first, ",
        "wrong|nothing wrote|out of bounds", by="gather", case="three axes",
    ),
    "padding that counts against an infinite weight": Mutant(
        GATHER_CONV,
        "if (present >> x & 1u)\n                    sums[i] = ",
        "if (!(present >> x & 1u))\n"
        "    sums[i] = multiply_add(own.values[i], zero<Accumulator>(), sums[i]);\n"
        "else sums[i] = ",
        "wrong", by="gather", case="infinite",
    ),
    "x bound of taps off by one": Mutant(
        GATHER_CONV, "int(ax.apart)) < unsigned(ax.size_in)) << tap;",
        "int(ax.apart)) <= unsigned(ax.size_in)) << tap;",
        "wrong|nothing wrote|out of bounds", by="gather", case="image",
    ),
    "no z bound of taps": Mutant(
        GATHER_CONV, "(unsigned(iz) < unsigned(az.size_in)) & (", "(",
        "wrong|nothing wrote|out of bounds", by="gather", case="three axes",
    ),
    "y bound of taps off by one": Mutant(
        GATHER_CONV, "(unsigned(iy) < unsigned(ay.size_in))",
        "(unsigned(iy) <= unsigned(ay.size_in))",
        "wrong|nothing wrote|out of bounds", by="gather", case="image",
    ),
    "weights of the first channels": Mutant(
        GATHER_CONV, "weights + c / TOGETHER * (int(p.taps) + 1);", "weights;",
        "wrong", by="gather", case="steps",
    ),
    "a channel that is left out": Mutant(
        GATHER_CONV, "if (c + i < count) out", "if (c + i + 1 < count) out",
        "nobody wrote", by="gather", case="image",
    ),
    "no wait for copies": Mutant(
        GATHER_CONV, "    copy_async_wait<0>();\n", "",
        "race|nothing wrote|under way", by="gather", case="steps", chunks=True,
    ),
    "no barrier": Mutant(
        GATHER_CONV, "    copy_async_wait<0>();\n    __syncthreads();\n",
        "    copy_async_wait<0>();\n",
        "race|nothing wrote", by="gather", case="steps",
    ),
    # Strips.
    "the x bound of strips off by one": Mutant(
        GATHER_CONV, "unsigned(x0 + tap) < unsigned(ax.size_in)) << tap;",
        "unsigned(x0 + tap) <= unsigned(ax.size_in)) << tap;",
        "wrong|nothing wrote|out of bounds", by="gather", case="strips",
    ),
    "lines behind the last one": Mutant(
        GATHER_CONV, "unsigned(y0 + r) < unsigned(end)", "unsigned(y0 + r) <= unsigned(end)",
        "wrong|nothing wrote|out of bounds", by="gather", case="strips",
    ),
    "lines of outputs that do not exist": Mutant(
        GATHER_CONV, "least(last, int(ay.size_in));", "int(ay.size_in);",
        "wrong|nothing wrote|out of bounds", by="gather", case="wide strips",
    ),
    "lines of strips in front of the array": Mutant(
        GATHER_CONV, "end = last < 0 ? 0 : least", "end = least",
        "wrong|nothing wrote|out of bounds", by="gather", case="far strips",
    ),
    "every line, but for the first ones": Mutant(
        GATHER_CONV, "bool every = y0 >= 0 && ", "bool every = ",
        "wrong|nothing wrote|out of bounds", by="gather", case="strips",
    ),
    "every line, and one more": Mutant(
        GATHER_CONV, "* STEP + HIGH <= end;", "* STEP + HIGH <= end + 1;",
        "wrong|nothing wrote|out of bounds", by="gather", case="even strips",
    ),
    "channels of all teams": Mutant(
        GATHER_CONV, "for (int c = team; c < count; c += teams)",
        "for (int c = 0; c < count; ++c)",
        "another thread|race", by="gather", case="strips of channels",
    ),
    "channels of the first team": Mutant(
        GATHER_CONV, "for (int c = team; c < count;", "for (int c = 0; c < count;",
        "another thread|nobody wrote", by="gather", case="strips of channels",
    ),
    "strips of the first plane": Mutant(
        GATHER_CONV, "(across - plane * strips) * lines", "across * lines",
        "nobody wrote|another thread", by="gather", case="strips of planes",
    ),
    "planes of the first band": Mutant(
        GATHER_CONV, "z = p.band == 1 ? 0 : start + plane;", "z = p.band == 1 ? 0 : plane;",
        "wrong|nothing wrote|out of bounds|another thread", by="gather", case="bands of planes",
    ),
    "strips of the first band": Mutant(
        GATHER_CONV, "y = p.band == 1 ? start + line : line,", "y = line,",
        "wrong|nothing wrote|out of bounds|another thread", by="gather", case="even strips",
    ),
    "a plane too far": Mutant(
        GATHER_CONV, "int(az.apart)) >= unsigned(az.size_in)) continue;",
        "int(az.apart)) > unsigned(az.size_in)) continue;",
        "wrong|nothing wrote|out of bounds", by="gather", case="strips of planes",
    ),
    "weights of the first strip's channel": Mutant(
        GATHER_CONV, "weights + c * deep * PLANE;", "weights;",
        "wrong", by="gather", case="strips",
    ),
    "weights of the first plane": Mutant(
        GATHER_CONV, "int(az.apart * az.pitch), weight += PLANE)", "int(az.apart * az.pitch))",
        "wrong", by="gather", case="strips of planes",
    ),
    "inputs of the first plane": Mutant(
        GATHER_CONV, "++j, first += int(az.apart * az.pitch), weight", "++j, weight",
        "wrong|nothing wrote", by="gather", case="bands of planes",
    ),
    "weights of the first line of taps": Mutant(
        GATHER_CONV, "own[tap * TAPS + x]", "own[x]",
        "wrong", by="gather", case="strips",
    ),
    "strips without steps": Mutant(
        GATHER_CONV, "const int tap = r - o * STEP;", "const int tap = r - o;",
        "wrong", by="gather", case="strips with steps",
    ),
    "a strip that ends early": Mutant(
        GATHER_CONV, "(r - HIGH) / STEP + 1 == lines) break;",
        "(r - HIGH) / STEP + 2 == lines) break;",
        "wrong", by="gather", case="strips",
    ),
    "strips of the first turn": Mutant(
        GATHER_CONV, "for (int turn = 0; turn * threads < all; ++turn)",
        "for (int turn = 0; turn < 1; ++turn)",
        "nobody wrote", by="gather", case="wide image of strips",
    ),
    "an output of a strip that is left out": Mutant(
        GATHER_CONV, "if (o < own) *to", "if (o + 1 < own) *to",
        "nobody wrote", by="gather", case="strips",
    ),
    "padding of strips that counts against an infinite weight": Mutant(
        GATHER_CONV, "if (tap >= 0 && tap < HIGH && here >> x & 1u)\n",
        "if (!(here >> x & 1u)) values[x] = zero<Accumulator>();\n"
        "if (tap >= 0 && tap < HIGH)\n",
        "wrong", by="gather", case="infinite strips",
    ),
    "parts of vectors that nobody writes": Mutant(
        GATHER_CONV, "k < PLANE * TOGETHER; ++k)", "k <= HEIGHT * TAPS; ++k)",
        "nothing wrote", by="gather", case="strips",
    ),
    "weights without room for the bias": Mutant(
        GATHER_CONV, "weights[i / AREA * PLANE].values + i % AREA",
        "weights[0].values + i",
        "wrong|nothing wrote|another thread|race", by="gather", case="strips",
    ),
}  # fmt: skip


# Several tiles of a block, and a ragged last slab of rows.
PLAIN_CASES = {
    "neighbours": convolution(
        "conv2d", (3, 6, 19, 131), (26, 3, 2, 3), bias=True, groups=2, padding=(1, 2)
    ),
    "phases": convolution(
        "conv_transpose2d", (2, 10, 13, 70), (10, 11, 3, 4), bias=True, groups=2,
        stride=(2, 3), padding=1,
    ),
    "pairs": convolution(
        "conv_transpose2d", (3, 4, 14, 70), (4, 9, 3, 2), bias=True, groups=2, stride=2
    ),
    "steps": convolution(
        "conv2d", (2, 4, 19, 141), (22, 2, 2, 3), bias=True, groups=2,
        stride=(1, 2), dilation=(1, 3), padding=(0, 4),
    ),
    "three axes": convolution(
        "conv_transpose3d", (2, 6, 5, 9, 67), (6, 10, 3, 3, 2), bias=True,
        stride=(2, 1, 1), padding=(0, 1, 0),
    ),
    "no taps": convolution(
        "conv_transpose2d", (2, 6, 9, 69), (6, 10, 3, 3), bias=True, stride=2, dilation=2
    ),
    "no taps, wide": convolution(
        "conv_transpose2d", (1, 6, 9, 141), (6, 10, 3, 3), bias=True, stride=2, dilation=2
    ),
    "busy phases": convolution(
        "conv_transpose2d", (2, 6, 19, 39), (6, 10, 3, 3), bias=True, stride=5, dilation=2
    ),
    "half": convolution(
        "conv2d", (2, 6, 19, 131), (38, 3, 2, 3), np.float16, bias=True, groups=2, padding=(1, 2)
    ),
}  # fmt: skip

PLAIN = {
    "a row too many": Mutant(
        PLAIN_CONV, "if ((r < rows) & ", "if ((r <= rows) & ",
        "out of bounds|between the elements|another thread", by="plain", case="neighbours",
    ),
    "a column too many": Mutant(
        PLAIN_CONV, "(i * COLUMNS < end))", "(i * COLUMNS <= end))",
        "out of bounds|between the elements|another thread", by="plain", case="neighbours",
    ),
    "all rows of a ragged slab": Mutant(
        PLAIN_CONV, "if ((rows >= ROWS) & (end", "if ((end",
        "out of bounds|between the elements|another thread", by="plain", case="neighbours",
    ),
    "a line too many": Mutant(
        PLAIN_CONV,
        "        if (!stores() | (line.z >= tile.left[0]) | (line.y >= tile.left[1])) return;\n"
        "        const int rows",
        "        if (!stores() | (line.z >= tile.left[0])) return;\n        const int rows",
        "out of bounds|between the elements|another thread", by="plain", case="steps",
    ),
    "threads without a slab that store": Mutant(
        PLAIN_CONV, "(turn() < slabs()) & (unit().slab + turn() < int(p.slabs))", "true",
        "nothing wrote|race|wrong|out of bounds|another thread", by="plain", case="half",
    ),
    "a row of lines too many": Mutant(
        PLAIN_CONV, "if (row >= rows) return;", "if (row >= ROWS) return;",
        "out of bounds|between the elements|another thread|nothing wrote",
        by="plain", case="phases",
    ),
    "a line of the buffer too many": Mutant(
        PLAIN_CONV,
        "        if (!stores() | (line.z >= tile.left[0]) | (line.y >= tile.left[1])) return;\n"
        "        const int left",
        "        if (!stores() | (line.z >= tile.left[0])) return;\n        const int left",
        "out of bounds|between the elements|another thread", by="plain", case="phases",
    ),
    "an output of lines too many": Mutant(
        PLAIN_CONV,
        "                if (x < width) out[x] = from[x];\n            }\n        } else {",
        "                if (x <= width) out[x] = from[x];\n            }\n        } else {",
        "out of bounds|between the elements|another thread|nothing wrote",
        by="plain", case="phases",
    ),
    "a chunk of lines too many": Mutant(
        PLAIN_CONV,
        "count = (width - begin) / TOGETHER;", "count = (width - begin) / TOGETHER + 1;",
        "out of bounds|between the elements|another thread|nothing wrote",
        by="plain", case="phases",
    ),
    "lines that begin with a chunk": Mutant(
        PLAIN_CONV, "begin = ahead < width ? ahead : width,", "begin = 0,",
        "misaligned", by="plain", case="phases",
    ),
    "lines of the buffer that do not lie as in the array": Mutant(
        PLAIN_CONV, "/ sizeof(Element) % TOGETHER);\n        return buffer()",
        "/ sizeof(Element) % TOGETHER + 1);\n        return buffer()",
        "misaligned", by="plain", case="phases",
    ),
    "lines of the first pass": Mutant(
        PLAIN_CONV, "const Line& own = results()[pass * lines() + line()];",
        "const Line& own = results()[line()];",
        "nobody wrote|another thread|wrong", by="plain", case="pairs",
    ),
    "no fence in front of bulk stores": Mutant(
        PLAIN_CONV, "        if (in_bulk()) async_proxy_fence();\n", "",
        "without a fence of the proxy", by="plain", case="phases",
    ),
    "no wait for the threads of a line": Mutant(
        PLAIN_CONV,
        "        if (in_bulk()) async_proxy_fence();\n        __syncwarp();\n",
        "        if (in_bulk()) async_proxy_fence();\n",
        "race|nothing wrote|without a fence", by="plain", case="pairs",
    ),
    "no wait for the buffer": Mutant(
        PLAIN_CONV, "if (phase == 0) empty();", "",
        "race|was written before the wait", by="plain", case="pairs",
    ),
    "no wait for packed weights": Mutant(
        PLAIN_CONV,
        "    wait_for_grids();\n    worker.load_weights();", "    worker.load_weights();",
        "does not wait", by="plain", case="pairs",
    ),
    "no wait for the last lines": Mutant(
        PLAIN_CONV,
        "    if (worker.in_bulk()) bulk_store_wait();  // before the block",
        "    // before the block",
        "ends before its bulk stores", by="plain", case="pairs",
    ),
    "no wait for the threads of a line, chunk by chunk": Mutant(
        PLAIN_CONV,
        "        if (in_bulk()) async_proxy_fence();\n        __syncwarp();\n",
        "",
        "race|nothing wrote", by="plain", case="pairs", chunks=True,
    ),
    "an output of lines too many, chunk by chunk": Mutant(
        PLAIN_CONV, "                if (x < width) out[x] = from[x];\n            }\n        }\n",
        "                if (x <= width) out[x] = from[x];\n            }\n        }\n",
        "out of bounds|between|another thread|nothing wrote",
        by="plain", case="phases", chunks=True,
    ),
    "inputs of the first sample": Mutant(
        PLAIN_CONV, "unit().input + next * p.input_batch", "unit().input",
        "wrong", by="plain", case="neighbours",
    ),
    "bias of the first group": Mutant(
        PLAIN_CONV, "load_parameter<float>(p.bias, unit().group * p.rows + ",
        "load_parameter<float>(p.bias, ",
        "wrong", by="plain", case="neighbours",
    ),
    "chunks that do not lie as their inputs": Mutant(
        PLAIN_CONV,
        "sizeof(Element) % CHUNK) : 0;\n        if",
        "sizeof(Element) % CHUNK + 1) : 0;\n        if",
        "misaligned", by="plain", case="neighbours",
    ),
    "x bound of chunks off by one": Mutant(
        PLAIN_CONV,
        "(left >= 0) & (left + EACH <= size)", "(left >= 0) & (left + EACH <= size + 1)",
        "out of bounds|between the elements|wrong", by="plain", case="neighbours",
    ),
    "x bound of a part of a chunk off by one": Mutant(
        PLAIN_CONV, "unsigned(left + e) < unsigned(size)", "unsigned(left + e) <= unsigned(size)",
        "out of bounds|between the elements|wrong", by="plain", case="neighbours",
    ),
    "x bound of elements off by one": Mutant(
        PLAIN_CONV, "(left >= 0) & (left + EACH <= size)",
        "(left >= 0) & (left + EACH <= size + (EACH == 1))",
        "out of bounds|between the elements|wrong", by="plain", case="steps",
    ),
    "y bound of lines off by one": Mutant(
        PLAIN_CONV, "(unsigned(at[1] + line.y) < unsigned(p.axis[1].taps.size_in))",
        "(unsigned(at[1] + line.y) <= unsigned(p.axis[1].taps.size_in))",
        "out of bounds|between the elements|wrong", by="plain", case="neighbours",
    ),
    "no z bound of lines": Mutant(
        PLAIN_CONV, "(unsigned(at[0] + line.z) < unsigned(p.axis[0].taps.size_in)) &", "true &",
        "out of bounds|between the elements|wrong", by="plain", case="three axes",
    ),
    "inputs that are not staged": Mutant(
        PLAIN_CONV, "all = int(p.channels) * unit().deep * unit().high * each;",
        "all = int(p.channels) * unit().deep * unit().high * each - each;",
        "nothing wrote|wrong", by="plain", case="neighbours",
    ),
    "taps of the first phase": Mutant(
        PLAIN_CONV, "spread(offset_of(2, p.phases[2][step.phase], step.x))",
        "spread(offset_of(2, p.phases[2][0], step.x))",
        "wrong|nothing wrote", by="plain", case="phases",
    ),
    "inputs that are not spread": Mutant(
        PLAIN_CONV, "return (x - index * int(p.axis[2].taps.step)) * int(p.axis[2].pitch) + index;",
        "return x;",
        "wrong|nothing wrote", by="plain", case="steps",
    ),
    "ascending taps": Mutant(
        PLAIN_CONV, "int(phase(a).offset) + (apart < 0 ? (int(phase(a).count) - 1) * apart : 0);",
        "int(phase(a).offset);",
        "wrong|nothing wrote|out of bounds", by="plain", case="three axes",
    ),
    "outputs of one phase": Mutant(
        PLAIN_CONV, "to += column() * phases + phase_x;", "to += column() * phases;",
        "wrong|nothing wrote|race", by="plain", case="phases",
    ),
    "a rest of steps": Mutant(
        PLAIN_CONV, "for (; steps > 0; --steps", "for (; steps > 1; --steps",
        "wrong", by="plain", case="neighbours",
    ),
    "another row's weights": Mutant(
        PLAIN_CONV, "half[r / 4].values[r % 4]", "half[r / 4].values[r % 2]",
        "wrong", by="plain", case="neighbours",
    ),
    "weights of neighbouring taps": Mutant(
        PLAIN_CONV, "(tx.first + step.x * p.axis[2].taps.tap_step)", "(tx.first + step.x)",
        "wrong", by="plain", case="phases",
    ),
    "weights of the first group": Mutant(
        PLAIN_CONV, "p.weight[group * p.weight_group + row * p.weight_row +",
        "p.weight[row * p.weight_row +",
        "wrong", by="plain", case="neighbours",
    ),
    "a phase without taps that is not filled": Mutant(
        PLAIN_CONV, "            fill(tile, index);\n", "",
        "nobody wrote", by="plain", case="no taps",
    ),
    "phases without taps that nobody fills": Mutant(
        PLAIN_CONV, "i < idle; i += busy", "i < idle - 1; i += busy",
        "nobody wrote", by="plain", case="no taps",
    ),
    "phases without taps in the place of others": Mutant(
        PLAIN_CONV, "to += (phase[a] - unit().phase[a]) * p.axis[a].out;",
        "to += phase[a] * p.axis[a].out;",
        "nobody wrote|another thread|out of bounds|between", by="plain", case="busy phases",
    ),
    "phases without taps by the same blocks": Mutant(
        PLAIN_CONV, "turn - divided(turn, busy) * busy;",
        "index - divided(index, busy) * busy;",
        "nobody wrote|another thread", by="plain", case="busy phases",
    ),
    "an output of a phase without taps too many": Mutant(
        PLAIN_CONV, "if (end < width) out[end] = value;", "if (end <= width) out[end] = value;",
        "out of bounds|between the elements|another thread|race", by="plain", case="no taps",
    ),
    "a line of a phase without taps too many": Mutant(
        PLAIN_CONV, "if ((own.z >= left[0]) | (own.y >= left[1])) continue;", "",
        "out of bounds|between the elements|another thread|race", by="plain", case="no taps",
    ),
    "a row of a phase without taps too many": Mutant(
        PLAIN_CONV,
        "rows = left < all ? left : all;\n        const int lane",
        "rows = all;\n        const int lane",
        "out of bounds|between the elements|another thread|race", by="plain", case="no taps",
    ),
    "the tile in front": Mutant(
        PLAIN_CONV, "stage(index + apart, turn ^ 1);", "stage(index + apart, turn);",
        "race|wrong|another thread|nothing wrote", by="plain", case="neighbours",
    ),
    "lines without taps of each tile of a row": Mutant(
        PLAIN_CONV, "line = tile.column; line <", "line = 0; line <",
        "another thread|race", by="plain", case="no taps, wide",
    ),
    "lines without taps from a tile on": Mutant(
        PLAIN_CONV, "tile.out - tile.position[2] * p.axis[2].taps.phases * p.axis[2].out;",
        "tile.out;",
        "nobody wrote|another thread|out of bounds|between|race", by="plain",
        case="no taps, wide",
    ),
    "phases without taps in the order of all": Mutant(
        PLAIN_CONV, "both = p.order[busy + i],", "both = i,",
        "nobody wrote|another thread|race", by="plain", case="busy phases",
    ),
    "units of the first phases": Mutant(
        PLAIN_CONV, "const int phase = p.order[unit.number];", "const int phase = unit.number;",
        "nobody wrote|another thread|nothing wrote|wrong", by="plain", case="busy phases",
    ),
    "no barrier behind the unit": Mutant(
        PLAIN_CONV, "    __syncthreads();\n    worker.describe();", "    worker.describe();",
        "race|nothing wrote", by="plain", case="phases",
    ),
    "no barrier behind descriptions": Mutant(
        PLAIN_CONV,
        "    __syncthreads();\n    worker.convolve",
        "    worker.convolve",
        "race|nothing wrote", by="plain", case="phases",
    ),
    "no wait for copies": Mutant(
        PLAIN_CONV, "            copy_async_wait<0>();\n", "",
        "race|nothing wrote|under way", by="plain", case="neighbours",
    ),
    "no barrier behind inputs": Mutant(
        PLAIN_CONV, "            copy_async_wait<0>();\n            __syncthreads();\n",
        "            copy_async_wait<0>();\n",
        "race|nothing wrote|under way", by="plain", case="neighbours",
    ),
    "no barrier before the next inputs": Mutant(
        PLAIN_CONV, "__syncthreads();  // nobody reads these inputs any more", "",
        "race", by="plain", case="neighbours",
    ),
    "padding that counts against an infinite weight": Mutant(
        PLAIN_CONV, "if (!present | (unsigned(x)", "if (false & (unsigned(x)",
        "wrong", by="plain", case="infinite",
    ),
    "infinite weights that nobody sees": Mutant(
        PLAIN_CONV, "special |= is_special(value);", "",
        "wrong", by="plain", case="infinite",
    ),
}  # fmt: skip


# Odd sizes and several tiles; parameters of both signs, and one that is infinite.
FUSED_CASES = {
    "own": test_fused.fused_case((3, 9, 12, 37), (9, 20, 3, 3), num_groups=4, padding=1),
    "given": test_fused.fused_case((2, 9, 12, 37), (9, 20, 3, 3), num_groups=4, given=True),
    "wide": test_fused.fused_case((1, 9, 4, 475), (9, 20, 3, 3), num_groups=20, padding=1),
    "stacked": test_fused.fused_case(
        (5, 40, 23, 37), (40, 20, 3, 3), num_groups=4, padding=1, precision="tf32"
    ),
    "groups": test_fused.fused_case(
        (1, 18, 12, 37), (18, 20, 3, 3), num_groups=4, groups=2, given=True
    ),
}
FUSED_CASES["spread"] = test_fused.fused_case(
    (1, 9, 12, 37), (9, 20, 4, 4), num_groups=4, stride=(2, 3), padding=1, precision="tf32"
)
# Of no window all sums are infinite.
FUSED_CASES["infinite"] = test_fused.fused_case(
    (2, 9, 12, 37), (9, 20, 1, 1), num_groups=4, given=True
)
few = np.full((2, 9, 12, 37), 0.5, np.float32)
few[:, 0, ::5, ::7] = -np.inf
FUSED_CASES["infinite"] = FUSED_CASES["infinite"].with_arrays(
    input=few,
    kernel=np.ones((9, 20, 1, 1), np.float32),
    bn_weight=np.ones(20, np.float32),
    bn_bias=np.full(20, np.inf, np.float32),
)

infinite = np.full(20, np.inf, np.float32)
FUSED_CASES["infinite scales"] = test_fused.fused_case(
    (4, 2, 5, 9), (2, 20, 2, 2), num_groups=20
).with_arrays(bn_weight=-infinite, bn_bias=infinite)

# Infinities that tanh makes ones of.
FUSED_CASES["stacked infinite"] = test_fused.fused_case(
    (2, 9, 12, 37), (9, 20, 1, 1), num_groups=4, given=True, precision="tf32"
).with_arrays(input=np.abs(few), kernel=np.ones((9, 20, 1, 1), np.float32))

# In the lower eight rows of sixteen.
lower = np.ones((9, 20, 1, 1), np.float32)
lower[:, 8:16] = np.inf
FUSED_CASES["stacked infinite rows"] = test_fused.fused_case(
    (2, 9, 12, 37), (9, 20, 1, 1), num_groups=4, precision="tf32"
).with_arrays(kernel=lower)

FUSED: dict[str, Mutant] = {
    "the extremum that is not NaN": Mutant(
        MATRIX_POOL, "flip ^= SIGN;", ";", "wrong", by="portable", case="infinite scales",
    ),
    "one extremum for both signs": Mutant(
        MATRIX_POOL, "= scale > 0 ? 0 : scale < 0 ? SIGN : ODD;", "= 0;",
        "wrong", by="hopper", case="own",
    ),
    "statistics of what is no output": Mutant(
        MATRIX_POOL, "sums[i] = fmaf(deviation, counts, sums[i]);", "sums[i] += deviation;",
        "wrong", by="hopper", case="own",
    ),
    "statistics of the last tile": Mutant(
        MATRIX_POOL, "threadIdx.x % 4 == 0) add(all, own);", "threadIdx.x % 4 == 0) all = own;",
        "wrong", by="hopper", case="own",
    ),
    "statistics of one team": Mutant(
        MATRIX_POOL, "other < team + COLUMN_TEAMS", "other < team + 1",
        "wrong", by="hopper", case="own",
    ),
    "statistics of the first block": Mutant(
        POOLED_NORM, "part < p.parts", "part < 1",
        "wrong", True, by="hopper", case="own",
    ),
    "the upper row for the lower one": Mutant(
        MATRIX_CONV, "phase.taps[1].offset_step + stacked;", "phase.taps[1].offset_step;",
        "wrong|nothing wrote", by="hopper", case="stacked",
    ),
    "a row behind the last": Mutant(
        MATRIX_POOL, "below.second != 0 && row", "row",
        "out of bounds|another thread|wrong", by="hopper", case="stacked",
    ),
    "rows of stacked outputs that are not counted": Mutant(
        MATRIX_CONV, "int(p.taps[1].size_out) - tile.start[2] * STACKED", "tile.size[2] * STACKED",
        "wrong|out of bounds|another thread", by="hopper", case="stacked",
    ),
    "no mean of a first tile": Mutant(
        MATRIX_POOL, "int turn = p.partial && uniform(all[0]->count == 0) ? 0 : 1;",
        "int turn = (found[0].mean = found[1].mean += uniform(all[0]->count == 0) * 1e6, 1);",
        "wrong", by="hopper", case="stacked",
    ),
    "no second look": Mutant(
        MATRIX_POOL, "is_special(float(found[half].m2)) | (flip[half] == ODD)", "false",
        "wrong", by="hopper", case="stacked infinite",
    ),
    "a second look at the upper row's sums for both": Mutant(
        MATRIX_POOL, ".of[half * 2 + i % 2]", ".of[i % 2]",
        "wrong", by="hopper", case="stacked infinite rows",
    ),
    "moments of a second look at the other row": Mutant(
        MATRIX_POOL, "if (again >> half & 1u) found[half] = looked[half];",
        "if (again) found[half] = looked[half];",
        "wrong", by="hopper", case="stacked infinite rows",
    ),
    "absent inputs between others": Mutant(
        MATRIX_CONV, "if (element * spread(a) != input) offset = NOWHERE;", "",
        "wrong", by="hopper", case="spread",
    ),
    "a first input that is an element": Mutant(
        MATRIX_CONV, "return offset - element_of(a, offset) * spread(a);", "return 0;",
        "wrong|out of bounds", by="hopper", case="spread",
    ),
    "a turn that nobody gives": Mutant(
        ENGINE, "o.number >= BEHIND", "o.number > BEHIND",
        "hangs|waits at the barrier", by="hopper", case="stacked",
    ),
    "no barrier behind copies of extrema": Mutant(
        POOLED_NORM, "copy_async_wait<0>();\n    __syncthreads();", "copy_async_wait<0>();",
        "race|nothing wrote", by="hopper", case="given",
    ),
    "the last values of a group": Mutant(
        POOLED_NORM, "threadIdx.x < count % 4", "false",
        "wrong", by="hopper", case="wide",
    ),
    "a window of half a column": Mutant(
        MATRIX_POOL, "place[3] + 1 >= tile.size[3]", "place[3] >= tile.size[3]",
        "wrong|out of bounds|another thread", by="hopper", case="wide",
    ),
    "no barrier before sums are read": Mutant(
        MATRIX_POOL, "                sync(team);\n                if (E", "                if (E",
        "race|nothing wrote", by="hopper", case="given",
    ),
    "no barrier before sums are written": Mutant(
        MATRIX_POOL, "sync(team);  // nobody reads the last rows any more", "",
        "race", by="hopper", case="given",
    ),
    "no barrier before rows are new": Mutant(
        MATRIX_POOL, "sync(team);  // nobody reads what is known of the rows any more", "",
        "race|wrong", by="hopper", case="groups",
    ),
    "infinite parameters that nobody sees": Mutant(
        MATRIX_POOL, "p.mean.data && is_special", "p.mean.data && false && is_special",
        "wrong", by="hopper", case="infinite",
    ),
    "a mean that is off": Mutant(
        POOLED_NORM, "low(float(value - high))", "low(1e-3f)",
        "wrong", by="hopper", case="given",
    ),
    "no barrier between sums": Mutant(
        POOLED_NORM, "    __syncthreads();  // a former sum has been read\n", "",
        "race", by="hopper", case="given",
    ),
}  # fmt: skip


def verdict(backend: EmulatorBackend, case: Case) -> str | None:
    """What the suite says against the result of a case, or nothing."""
    try:
        if isinstance(case, Convolution):
            test_convolution.check(backend, case)
        elif case.function == "max_pool2d":
            test_pooling.check_bits(backend, case)
        elif case.function == test_fused.FUSED:
            test_fused.check(backend, case)
        else:
            test_norms.check(backend, case)
    except AssertionError as error:
        return str(error)
    return None


def infinite(case: Convolution) -> Convolution:
    weight = case["weight"].copy()
    weight.flat[::7] = np.inf
    return case.with_arrays(weight=weight)


def enormous(case: Convolution) -> Convolution:
    """With numbers of which tf32 makes infinities, and a bias that counts beside them."""
    x, weight = case["input"].copy(), case["weight"]
    x[:, 3::20, ..., ::9] = np.finfo(np.float32).max
    rows = np.arange(1, len(weight) + 1).reshape(-1, *(1,) * (weight.ndim - 1)) % 7 + 1
    small = np.float32(2.0**-10) * np.broadcast_to(rows, weight.shape).astype(np.float32)
    return case.with_arrays(input=x, weight=small, bias=np.full_like(case["bias"], 2.0**112))


def scattered(case: Convolution) -> Convolution:
    """The channels of a place lie together."""
    x = np.moveaxis(case["input"], 1, -1).copy()
    return case.with_arrays(input=np.moveaxis(x, -1, 1))


def infinite_input(case: Convolution) -> Convolution:
    x = case["input"].copy()
    x.flat[::301] = np.inf
    return case.with_arrays(input=x)


DEPTHWISE_CASES["infinite"] = infinite(DEPTHWISE_CASES["even"])
DEPTHWISE_CASES["infinite halves"] = infinite(DEPTHWISE_CASES["halves"])
HALVES = DEPTHWISE_CASES["halves"]
ONE = np.eye(1, HALVES["weight"].size, dtype=bool).reshape(HALVES["weight"].shape)
DEPTHWISE_CASES["an infinite weight of halves"] = HALVES.with_arrays(
    weight=np.where(ONE, np.float16(np.inf), HALVES["weight"])
)
DEPTHWISE_CASES["an infinite half"] = infinite_input(DEPTHWISE_CASES["halves"])
# Inputs that come in bulk, in pieces, or straight from memory; weights that are packed, or lie as
# they are copied.
POINTWISE_CASES = {
    "bulk": convolution(
        "conv1d", (3, 150, 700), (400, 75, 1), bias=True, groups=2, precision="tf32"
    ),
    "pieces": convolution(
        "conv1d", (3, 160, 302), (240, 80, 1), bias=True, groups=2, precision="tf32"
    ),
    "odd": convolution(
        "conv1d", (3, 150, 333), (240, 75, 1), bias=True, groups=2, precision="tf32"
    ),
    "ring": convolution("conv_transpose1d", (1, 600, 300), (600, 70, 1), precision="tf32"),
    "stay": convolution("conv1d", (2, 200, 300), (120, 200, 1), precision="tf32"),
    # Of 16-bit numbers.
    "words": convolution("conv1d", (5, 272, 200), (520, 136, 1), "float16", bias=True, groups=2),
    "slabs": convolution("conv1d", (5, 272, 200), (260, 136, 1), "float16", groups=2),
    "halves": convolution("conv1d", (3, 132, 300), (70, 132, 1), "bfloat16", bias=True),
    "pairs": convolution("conv1d", (3, 154, 302), (70, 154, 1), "float16", bias=True),
    "across": convolution("conv_transpose1d", (2, 160, 304), (160, 72, 1), "float16"),
    "numbers": convolution("conv1d", (2, 150, 333), (160, 75, 1), "float16", groups=2),
    "many chunks": convolution("conv1d", (1, 900, 304), (60, 900, 1), "float16"),
}
STREAMING_CASES["infinite taps"] = infinite(
    convolution("conv2d", (2, 3, 9, 11), (70, 3, 3, 3), "float16", padding=1)
)
STREAMING_CASES["infinite"] = enormous(STREAMING_CASES["image"])
STREAMING_CASES["infinite, odd"] = enormous(
    convolution("conv1d", (3, 40, 701), (100, 20, 1), bias=True, groups=2)
)
STREAMING_CASES["infinite, narrow"] = infinite(STREAMING_CASES["two narrow passes"])
POINTWISE_CASES["infinite"] = enormous(POINTWISE_CASES["bulk"])
POINTWISE_CASES["infinite, odd"] = enormous(
    convolution("conv1d", (3, 80, 333), (200, 40, 1), bias=True, groups=2, precision="tf32")
)
GATHER_CASES["infinite"] = infinite(GATHER_CASES["image"])
GATHER_CASES["scattered"] = scattered(GATHER_CASES["steps"])
GATHER_CASES["infinite strips"] = infinite(GATHER_CASES["strips"])
FLIPPED = GATHER_CASES["flipped"]
GATHER_CASES["rows first"] = FLIPPED.with_arrays(
    weight=FLIPPED["weight"].swapaxes(0, 1).copy().swapaxes(0, 1)
)
PLAIN_CASES["infinite"] = infinite(PLAIN_CASES["neighbours"])

# Beside what Hypothesis draws: sums of several slices and tables, blocks of several tiles.
LARGE = [
    convolution("conv2d", (3, 40, 17, 13), (70, 40, 3, 3), bias=True, padding=1),
    convolution("conv_transpose2d", (2, 12, 9, 11), (12, 20, 3, 5), bias=True, stride=2),
    convolution("conv1d", (2, 150, 5), (9, 150, 5), bias=True),
    infinite(convolution("conv2d", (1, 4, 6, 7), (20, 4, 3, 3), padding=1)),
    infinite(convolution("conv2d", (1, 4, 6, 7), (5, 4, 3, 3), padding=1)),
]
# A warp shares a window: numbers before and behind its packs, zeros of both signs, NaN, and parts.
ROWS_OF_ZEROS = np.full((1, 1, 2, 32), -1.0)
ROWS_OF_ZEROS[0, 0, [0, 1], [30, 3]] = -0.0, 0.0
LARGE_POOLS = [
    *(
        test_pooling.pool(line.reshape(1, 1, 1, 330)[..., 1:], (1, 329))
        for line in (np.arange(330, dtype=np.float32), -np.arange(330, dtype=np.float32))
    ),
    test_pooling.pool(ROWS_OF_ZEROS, (2, 32)),
    *(
        test_pooling.pool(
            test_pooling.odd_numbers(np.float32, position, kind, 1, 1, 2, 165)[..., 1:], (2, 32)
        )
        for position in (0, 34, 100)
        for kind in ("zeros", "nan")
    ),
    *(
        test_pooling.pool(
            test_pooling.odd_numbers(np.float32, position, kind, 1, 1, 1, 330)[..., 1:], (1, 329)
        )
        for position in (2, 33, 200)
        for kind in ("zeros", "nan")
    ),
    test_pooling.pool(-1 - test_pooling.LINE, (1, 30_001), 7_000, (0, 15_000)),
]
NAN = [
    test_pooling.pool(np.roll([np.nan, 1.0, 2.0, 3.0], k).reshape(1, 1, 2, 2), 2) for k in range(4)
]

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


def cases(mutant: Mutant) -> st.SearchStrategy[Case]:
    if mutant.file == NORM:
        listed = st.sampled_from([CHANNELS_LAST, ROWS])
        return st.one_of(batch_norms(given=False), group_norms(), listed)
    if mutant.file == POOL:
        return st.one_of(
            max_pools(), test_pooling.large_pools, st.sampled_from([*NAN, *LARGE_POOLS])
        )
    # One dtype, so that few instances are built.
    dtype = np.dtype(np.float32)
    drawn = convolutions(
        functions=("conv", "conv_transpose"), dtypes=st.just((dtype, dtype)), unbatched=False
    )
    return st.one_of(drawn, st.sampled_from(LARGE))


@pytest.mark.emulator
def test_places_of_large_numbers() -> None:
    """Numbers of more than 31 bits are divided in another way, right for small ones as well."""
    pool = test_pooling.pool(np.random.default_rng(0).standard_normal((2, 3, 5, 7)), 2, 1)

    def found(change: Callable[[str], str]) -> list[str | None]:
        def far(kernel: str) -> dict[str, str]:
            return {kernel: change(_compile.source(kernel))}

        backends = EmulatorBackend(patches=far(NORM)), EmulatorBackend(patches=far(POOL))
        return [verdict(*pair) for pair in zip(backends, (CHANNELS_LAST, pool), strict=True)]

    always = "if (number >> 31)", "if (true)"
    assert found(lambda text: text.replace(*always)) == [None, None]
    cut = "return close + (number - close * divisor >= divisor);", "return close;"
    assert all(found(lambda text: text.replace(*always).replace(*cut)))


@pytest.mark.emulator
@pytest.mark.parametrize("name", [*ACCIDENTS, *MISUNDERSTANDINGS])
def test_is_rejected(name: str) -> None:
    mutant = {**ACCIDENTS, **MISUNDERSTANDINGS}[name]
    backend = EmulatorBackend(mutant.by, mutant.patch())

    def rejected(case: Case) -> bool:
        return re.search(mutant.caught, verdict(backend, case) or "") is not None

    search = settings(
        max_examples=400,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],  # a new instance takes a second to build
        database=None,
    )
    find(cases(mutant), rejected, settings=search)  # raises NoSuchExample where nothing rejects it


def reject(mutant: Mutant, cases: Mapping[str, Case]) -> None:
    """Assert that a mutant is caught, in its case, by what it is said to be."""
    assert mutant.case
    with without_bulk_copies() if mutant.chunks else nullcontext():
        found = verdict(EmulatorBackend(mutant.by, mutant.patch()), cases[mutant.case])
    assert found, "nothing rejects it"
    assert re.search(mutant.caught, found), found


@pytest.mark.emulator
@pytest.mark.parametrize("kernel", ["portable", "hopper"])
@pytest.mark.parametrize("name", CASES)
def test_the_kernels_are_right(name: str, kernel: str) -> None:
    """In the cases in which their mutants are not."""
    assert verdict(EmulatorBackend(kernel), CASES[name]) is None


@pytest.mark.emulator
@pytest.mark.parametrize("name", MATRIX)
def test_is_rejected_on_matrix_units(name: str) -> None:
    reject(MATRIX[name], CASES)


SPANS_CASES = {
    "apart": convolution("conv2d", (2, 70, 5, 7), (70, 70, 3, 3), bias=True, padding=1),
    "tiles apart": convolution("conv2d", (9, 70, 5, 7), (70, 70, 3, 3), padding=1),
    "lines apart": convolution("conv1d", (5, 224, 20), (40, 224, 3), "bfloat16", padding=1),
    "phases apart": convolution(
        "conv_transpose2d",
        (1, 224, 2, 3),
        (224, 70, 5, 5),
        "float16",
        stride=(3, 1),
        dilation=(2, 1),
    ),
    "rows apart": convolution("conv2d", (3, 140, 5, 7), (140, 140, 3, 3), padding=1),
    "together": convolution(
        "conv_transpose2d", (9, 70, 5, 7), (70, 70, 3, 3), "bfloat16", bias=True, stride=2
    ),
    "together in memory": convolution(
        "conv_transpose2d", (9, 70, 5, 7), (70, 70, 3, 3), "float32", bias=True, stride=2
    ),
    "three axes": convolution("conv3d", (2, 40, 3, 4, 5), (20, 40, 3, 1, 2), precision="tf32"),
    "three axes together": convolution(
        "conv_transpose3d", (9, 40, 3, 4, 5), (40, 20, 3, 1, 2), "float16", padding=(1, 0, 0)
    ),
}
for name, case in (
    (
        "wide apart",
        convolution("conv2d", (5, 96, 5, 7), (40, 96, 3, 3), precision="tf32", padding=1),
    ),
    (
        "wide together",
        convolution("conv_transpose2d", (9, 70, 5, 7), (70, 70, 3, 3), precision="tf32", stride=2),
    ),
):
    x = case["input"].copy()
    x[:1, 48:64] *= np.exp2(np.linspace(-30, 0, 16, dtype=np.float32))[:, None, None]
    SPANS_CASES[name] = case.with_arrays(input=x)

SPANS = {
    "inputs of the first span": Mutant(
        MATRIX_CONV, "before = tile.span * worker.blocks;", "before = 0;",
        "wrong", by="spans", case="apart",
    ),
    "channels counted from the first span": Mutant(
        MATRIX_CONV, "int(p.sum.channels) - (before + block + own) * BLOCK",
        "int(p.sum.channels) - (block + own) * BLOCK",
        "out of bounds|between the elements|wrong", by="spans", case="apart",
    ),
    "weights of the first span": Mutant(
        MATRIX_CONV, " +\n                    tile.span * blocks * taps * step_bytes;", ";",
        "wrong", by="spans", case="together",
    ),
    "weights of z as if there were one span": Mutant(
        MATRIX_CONV, "            if (SPANS && block == 0) from += others;\n", "",
        "wrong", by="spans", case="three axes",
    ),
    "weights of one tap of z": Mutant(
        PACK, "turns = phase.taps[0].count * weights.turns", "turns = weights.turns",
        "nothing wrote", by="spans", case="three axes",
    ),
    "no order of a warp in front of a count": Mutant(
        MATRIX_CONV, "        __syncwarp();\n        unsigned before = 0;",
        "        unsigned before = 0;",
        "another thread", by="spans", case="rows apart",
    ),
    "no order of a warp behind a count": Mutant(
        MATRIX_CONV, "!= spans() - 1) return false;\n        __syncwarp();",
        "!= spans() - 1) return false;",
        "another thread", by="spans", case="rows apart",
    ),
    "the first span is the last one": Mutant(
        MATRIX_CONV, "if (uniform(before) != spans() - 1)", "if (uniform(before) != 0)",
        "nothing wrote", by="spans", case="apart",
    ),
    "tiles are counted as one": Mutant(
        MATRIX_CONV, "&p.arrived[((index - span) / spans() * int(p.phases) + phase_index)",
        "&p.arrived[phase_index",
        "nobody wrote|nothing wrote|another thread", by="spans", case="tiles apart",
    ),
    "phases are counted as one": Mutant(
        MATRIX_CONV, "/ spans() * int(p.phases) + phase_index) * (THREADS",
        "/ spans() * int(p.phases)) * (THREADS",
        "nobody wrote|nothing wrote|another thread", by="spans", case="phases apart",
    ),
    "sums of all phases in one place": Mutant(
        MATRIX_CONV, "(p.apart ? index * int(p.phases) + phase_index : int(blockIdx.x))",
        "(p.apart ? index : int(blockIdx.x))",
        "another thread|out of bounds|nothing wrote", by="spans", case="phases apart",
    ),
    "sums of all blocks in one place": Mutant(
        MATRIX_CONV, "+ phase_index : int(blockIdx.x))", "+ phase_index : 0)",
        "another thread", by="spans", case="together in memory",
    ),
    "sums of both teams in one place": Mutant(
        MATRIX_CONV, "int(blockIdx.x)) * TEAMS + team;", "int(blockIdx.x)) * TEAMS;",
        "another thread", by="spans", case="together in memory",
    ),
    "a span's sums are not added": Mutant(
        MATRIX_CONV, "if (in_turn && span > 0)", "if (in_turn && span > 1)",
        "wrong", by="spans", case="together in memory",
    ),
    "a span's sums are not added to those in registers": Mutant(
        MATRIX_CONV, "kept[i] = span > 0 ?", "kept[i] = span > 1 ?",
        "wrong", by="spans", case="together",
    ),
    "inputs of the next span are those of the last one": Mutant(
        MATRIX_CONV, "input += (before - last) * BLOCK * p.input_channel;", "{}",
        "wrong", by="spans", case="together",
    ),
    "spans apart are taken for those in turn": Mutant(
        MATRIX_CONV, "if (other && worker.z_taps == 1 && !p.apart &&",
        "if (other && worker.z_taps == 1 &&",
        "wrong", by="spans", case="rows apart",
    ),
    "taps of z are taken for one": Mutant(
        MATRIX_CONV, "if (other && worker.z_taps == 1 &&", "if (other &&",
        "wrong", by="spans", case="three axes together",
    ),
    "the first span of a tile is taken for the next of the last": Mutant(
        MATRIX_CONV, "!p.apart && before + worker.blocks < worker.spans() * worker.blocks)",
        "!p.apart)",
        "hangs", by="spans", case="together",
    ),
    "own sums are added twice": Mutant(
        MATRIX_CONV, "first = s ? first + other.first : other.first", "first = first + other.first",
        "wrong", by="spans", case="apart",
    ),
    "sums are scaled again": Mutant(
        MATRIX_CONV, "engine, Unscaled(), tile", "engine, scale, tile",
        "wrong", by="spans", case="apart",
    ),
    "counts begin anywhere": Mutant(
        "pack_weights.cu", "p.arrived[i] = 0;", "{}",
        "nothing wrote", by="spans", case="apart",
    ),
    "no wait in front of a count": Mutant(
        MATRIX_CONV, "    if (SPANS) wait_for_grids();  // for what counts spans\n", "",
        "does not wait", by="spans", case="phases apart",
    ),
    "windows of the last span alone": Mutant(
        MATRIX_CONV, "windows = tile.span % together() ? windows | own : own;", "windows = own;",
        "wrong", by="spans", case="wide together",
    ),
    "the last span alone is done again": Mutant(
        MATRIX_CONV, "for (int s = together() - 1; s >= 0; --s) note(index - s, windows, keep);",
        "note(index, windows, keep);",
        "wrong|nobody wrote", by="spans", case="wide together",
    ),
    "spans that are wide are not done again": Mutant(
        MATRIX_CONV, "(tile.span + 1) % together() == 0)", "tile.span == 0)",
        "nobody wrote|wrong", by="spans", case="wide apart",
    ),
}  # fmt: skip

POINTWISE = {
    "weights of the first unit": Mutant(
        POINTWISE_CONV, "(int64(unit) * chunks + chunk)", "chunk",
        "wrong", by="pointwise", case="bulk",
    ),
    "weights of the first chunk": Mutant(
        POINTWISE_CONV, "(int64(unit) * chunks + chunk)", "int64(unit) * chunks",
        "wrong", by="pointwise", case="bulk",
    ),
    "no wait for packed weights": Mutant(
        POINTWISE_CONV, "wait_for_grids();  // where weights come from", "",
        "does not wait", by="pointwise", case="bulk",
    ),
    "bytes of weights that nobody waits for": Mutant(
        POINTWISE_CONV, " + (brought ? WEIGHT_BYTES : 0));", ");",
        "hangs|nothing wrote|race", by="pointwise", case="bulk",
    ),
    "bytes of inputs that nobody waits for": Mutant(
        POINTWISE_CONV, "(p.bulk ? count * bytes : 0) + ", "",
        "hangs|nothing wrote|race", by="pointwise", case="bulk",
    ),
    "channels of the first warp": Mutant(
        POINTWISE_CONV, "        from += warp * stride, to += warp * PITCH;\n", "",
        "wrong|race|another thread|nothing wrote", by="pointwise", case="bulk",
    ),
    "inputs behind the last channel": Mutant(
        POINTWISE_CONV, "channels < CHANNELS ? channels : CHANNELS", "CHANNELS",
        "out of bounds", by="pointwise", case="bulk",
    ),
    "inputs behind the last position": Mutant(
        POINTWISE_CONV, "(left < PLACES_OF_BLOCK ? left : PLACES_OF_BLOCK)", "PLACES_OF_BLOCK",
        "out of bounds", by="pointwise", case="pieces",
    ),
    "no wait for a stage to be empty": Mutant(
        POINTWISE_CONV, "mbarrier_wait(&barriers.empty[turn.stage], turn.parity ^ 1);", "",
        "race|one more than", by="pointwise", case="ring",
    ),
    "no wait for a stage to be full": Mutant(
        POINTWISE_CONV, "mbarrier_wait(&barriers.full[turn.stage], turn.parity);\n        const",
        "const",
        "race|nothing wrote", by="pointwise", case="bulk",
    ),
    "no wait for weights alone": Mutant(
        POINTWISE_CONV, "mbarrier_wait(&barriers.full[turn.stage], turn.parity);\n        fill",
        "fill",
        "race|nothing wrote", by="pointwise", case="odd",
    ),
    "no barrier of the warp in front of a release": Mutant(
        POINTWISE_CONV, "wgmma_wait<0>();\n        __syncwarp();", "wgmma_wait<0>();",
        "race", by="pointwise", case="ring",
    ),
    "no wait for products": Mutant(
        POINTWISE_CONV, "        wgmma_wait<0>();\n", "",
        "touched before the wait", by="pointwise", case="bulk",
    ),
    "no fence in front of products": Mutant(
        POINTWISE_CONV, "        wgmma_fence();\n", "",
        "without a fence in front", by="pointwise", case="bulk",
    ),
    "the same turn of all stages": Mutant(
        POINTWISE_CONV, "stage = 0, parity ^= 1", "stage = 0",
        "hangs|race|one more than", by="pointwise", case="ring",
    ),
    "large pieces that are not aligned": Mutant(
        POINTWISE_CONV, "            if (aligned)\n", "            if (both)\n",
        "misaligned", by="pointwise", case="pieces",
    ),
    "the first half of two pieces": Mutant(
        POINTWISE_CONV, "if (both) copy_async<8>(to + 8, from + 8, 8);", "",
        "nothing wrote|wrong", by="pointwise", case="pieces",
    ),
    "a piece behind the last position": Mutant(
        POINTWISE_CONV, "const bool both = place + 8 < bytes,", "const bool both = true,",
        "out of bounds|wrong", by="pointwise", case="pieces",
    ),
    "one arrival for the pieces of all": Mutant(
        POINTWISE_CONV, "(p.bulk ? 0 : TEAM) + 1", "1",
        "one more than|nothing wrote", by="pointwise", case="pieces",
    ),
    "copies that no arrival waits for": Mutant(
        POINTWISE_CONV, "copy_async_arrive(full);", "mbarrier_arrive(full);",
        "nothing wrote|race|wrong", by="pointwise", case="pieces",
    ),
    "weights that stay, of the first chunk": Mutant(
        POINTWISE_CONV, "(p.stay ? chunk : stage)", "(p.stay ? 0 : stage)",
        "wrong|race", by="pointwise", case="stay",
    ),
    "weights that stay, through the ring": Mutant(
        POINTWISE_CONV, "(p.stay ? chunk : stage)", "stage",
        "wrong|race|nothing wrote", by="pointwise", case="stay",
    ),
    "weights that come once": Mutant(
        POINTWISE_CONV, "brought = brought && !p.stay;", "brought = false;",
        "wrong|race|nothing wrote", by="pointwise", case="ring",
    ),
    "no room for weights that stay": Mutant(
        POINTWISE_CONV, "int(p.stay ? p.chunks : p.stages)", "int(p.stages)",
        "wrong|race|out of bounds", by="pointwise", case="stay",
    ),
    "the first slab again": Mutant(
        POINTWISE_CONV, "slab + (step * HELD + h) * SLAB", "slab + step * HELD * SLAB",
        "wrong", by="pointwise", case="bulk",
    ),
    "slabs of one step": Mutant(
        POINTWISE_CONV, "slab + (step * HELD + h) * SLAB", "slab + h * SLAB",
        "wrong", by="pointwise", case="bulk",
    ),
    "the first chunk again": Mutant(
        POINTWISE_CONV, "stage), chunk > 0);", "stage), chunk > 1);",
        "wrong", by="pointwise", case="bulk",
    ),
    "channels of the first chunk": Mutant(
        POINTWISE_CONV, "        spots.channel += CHANNELS;\n        fill", "        fill",
        "nothing wrote|wrong|race", by="pointwise", case="bulk",
    ),
    "channels behind the last one": Mutant(
        POINTWISE_CONV, "if (channel < left) own", "own",
        "nothing wrote|wrong|race", by="pointwise", case="bulk",
    ),
    "positions behind the last one": Mutant(
        POINTWISE_CONV, "if (position >= int(p.space.size)) return false;", "",
        "out of bounds|another thread|race|wrong|nothing wrote", by="pointwise", case="bulk",
    ),
    "tiles of the first sample": Mutant(
        POINTWISE_CONV, "return {sample, (tile", "return {0, (tile",
        "another thread|nobody wrote", by="pointwise", case="bulk",
    ),
    "inputs of the first sample": Mutant(
        POINTWISE_CONV, "p.space.first + own.sample * p.space.input_batch +", "p.space.first +",
        "wrong", by="pointwise", case="bulk",
    ),
    "inputs of the first group": Mutant(
        POINTWISE_CONV, "group * p.space.input_group + own.first);", "own.first);",
        "wrong", by="pointwise", case="bulk",
    ),
    "positions of the first team": Mutant(
        POINTWISE_CONV, "first + int(threadIdx.x) / TEAM * TEAM_PLACES + ", "first + ",
        "another thread|nobody wrote", by="pointwise", case="bulk",
    ),
    "biases of the first slab": Mutant(
        POINTWISE_CONV, "spots.out, biases + first,", "spots.out, biases,",
        "wrong", by="pointwise", case="bulk",
    ),
    "bias of the first group": Mutant(
        POINTWISE_CONV, "load_parameter<float>(p.bias, group * p.rows + row)",
        "load_parameter<float>(p.bias, row)",
        "wrong", by="pointwise", case="bulk",
    ),
    "outputs of the first slab": Mutant(
        POINTWISE_CONV, "first_row + first, int(p.rows)", "first_row, int(p.rows)",
        "another thread|nobody wrote", by="pointwise", case="bulk",
    ),
    "scattered channels of the first thread": Mutant(
        POINTWISE_CONV, "place.input + spots.channel * p.space.input_channel;", "place.input;",
        "wrong", by="pointwise", case="odd",
    ),
    "infinite parts": Mutant(
        POINTWISE_CONV, "__any_sync(~0u, found)", "false",
        "wrong", by="pointwise", case="infinite",
    ),
    "another slab where a sum is infinite": Mutant(
        POINTWISE_CONV, "(p, memory, tile, h);", "(p, memory, tile, 0);",
        "wrong", by="pointwise", case="infinite",
    ),
    "scattered sums that are infinite where others are": Mutant(
        POINTWISE_CONV, "repair<TOGETHER, Worker>", "repair<true, Worker>",
        "wrong|another thread", by="pointwise", case="infinite, odd",
    ),
    "weights of the first group where a sum is infinite": Mutant(
        POINTWISE_CONV, "p.weight + group * p.weight_group + row * p.weight_row;",
        "p.weight + row * p.weight_row;",
        "wrong", by="pointwise", case="infinite",
    ),
}  # fmt: skip

POINTWISE16 = {
    "16 bits: weights of the first group": Mutant(
        POINTWISE16_CONV, "group * p.weight_group + first_row * p.weight_row",
        "first_row * p.weight_row",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: inputs of the first group": Mutant(
        POINTWISE16_CONV, "group * p.space.input_group + block.first,",
        "block.first,",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: outputs of the first group": Mutant(
        POINTWISE16_CONV, "group * p.space.out_group + block.first}",
        "block.first}",
        "another thread|nobody wrote", by="pointwise", case="words",
    ),
    "16 bits: inputs of the first sample": Mutant(
        POINTWISE16_CONV, "scaled(block.sample, p.space.input_batch) + ",
        "",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: blocks of the first sample": Mutant(
        POINTWISE16_CONV, "return {sample, first, index",
        "return {0, first, index",
        "another thread|nobody wrote", by="pointwise", case="words",
    ),
    "16 bits: positions behind the last one of a sample": Mutant(
        POINTWISE16_CONV, "left < SIDE ? left : SIDE}",
        "SIDE}",
        "out of bounds|another thread|wrong", by="pointwise", case="words",
    ),
    "16 bits: blocks behind the last one": Mutant(
        POINTWISE16_CONV, "index >= int(p.blocks) ? 0 : ",
        "",
        "out of bounds", by="pointwise", case="halves",
    ),
    "16 bits: no wait for a stage to be empty": Mutant(
        POINTWISE16_CONV,
        "mbarrier_wait(&barriers.empty[turn.stage], turn.parity ^ 1);\n                if (WHOLE",
        "if (WHOLE",
        "race|one more than", by="pointwise", case="many chunks",
    ),
    "16 bits: no wait for a stage to be full": Mutant(
        POINTWISE16_CONV, "mbarrier_wait(&barriers.full[stage], turn.parity);",
        "",
        "race|nothing wrote", by="pointwise", case="words",
    ),
    "16 bits: copies that no arrival waits for": Mutant(
        POINTWISE16_CONV, "copy_async_arrive(&barriers.full",
        "mbarrier_arrive(&barriers.full",
        "race|nothing wrote|wrong", by="pointwise", case="words",
    ),
    "16 bits: no fence of the proxy": Mutant(
        POINTWISE16_CONV, "async_proxy_fence();",
        "",
        "without a fence of the proxy", by="pointwise", case="words",
    ),
    "16 bits: no fence in front of products": Mutant(
        POINTWISE16_CONV, "        wgmma_fence();\n",
        "",
        "without a fence in front", by="pointwise", case="words",
    ),
    "16 bits: no wait for the last products": Mutant(
        POINTWISE16_CONV, "            wgmma_wait<0>();\n",
        "",
        "touched before the wait", by="pointwise", case="words",
    ),
    "16 bits: a stage is released that is in use": Mutant(
        POINTWISE16_CONV, "if (chunk > 0) release(last);\n                last = stage;",
        "last = stage;\n                if (chunk > 0) release(last);",
        "race|hangs|one more than", by="pointwise", case="many chunks",
    ),
    "16 bits: the same turn of all stages": Mutant(
        POINTWISE16_CONV, "stage = 0, parity ^= 1",
        "stage = 0",
        "hangs|race|one more than", by="pointwise", case="many chunks",
    ),
    "16 bits: the first piece of words": Mutant(
        POINTWISE16_CONV, "piece < WORD; piece += TOGETHER", "piece < 1; piece += TOGETHER",
        "nothing wrote|wrong", by="pointwise", case="halves",
    ),
    "16 bits: pieces behind the last one": Mutant(
        POINTWISE16_CONV, "(piece < count ? rows : 0)", "(0 < count ? rows : 0)",
        "out of bounds|wrong", by="pointwise", case="halves",
    ),
    "16 bits: pieces in the place of the first": Mutant(
        POINTWISE16_CONV, "(to + 2 * piece, from + piece,", "(to, from + piece,",
        "nothing wrote|race|wrong", by="pointwise", case="pairs",
    ),
    "16 bits: channels behind the last one": Mutant(
        POINTWISE16_CONV, "left - own_row(), counts[block]",
        "SIDE, counts[block]",
        "out of bounds|wrong", by="pointwise", case="words",
    ),
    "16 bits: rows of weights behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? left : rows) - own_row()",
        "(p.across ? left : SIDE) - own_row()",
        "out of bounds", by="pointwise", case="halves",
    ),
    "16 bits: channels of weights behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? rows : left) - own_word()",
        "(p.across ? rows : SIDE) - own_word()",
        "out of bounds", by="pointwise", case="halves",
    ),
    "16 bits: rows across behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? rows : left) - own_word()",
        "(p.across ? SIDE : left) - own_word()",
        "out of bounds", by="pointwise", case="across",
    ),
    "16 bits: channels across behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? left : rows) - own_row()",
        "(p.across ? SIDE : rows) - own_row()",
        "out of bounds", by="pointwise", case="across",
    ),
    "16 bits: rows across taken for rows along": Mutant(
        POINTWISE16_CONV, "                if (p.across)\n",
        "                if (false)\n",
        "wrong", by="pointwise", case="across",
    ),
    "16 bits: channels of the first chunk": Mutant(
        POINTWISE16_CONV, "own += SIDE * channel;",
        "{}",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: weights of the first chunk": Mutant(
        POINTWISE16_CONV, "weights += SIDE * p.weight_channel;",
        "",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: weights of the first slab": Mutant(
        POINTWISE16_CONV, "from + slab * SIDE * p.weight_row, APART",
        "from, APART",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: products of the first slab": Mutant(
        POINTWISE16_CONV, "weights + s * BLOCK_BYTES / 16 + ",
        "weights + ",
        "wrong", by="pointwise", case="slabs",
    ),
    "16 bits: products of the first team": Mutant(
        POINTWISE16_CONV, "(BLOCKS + team * SLABS) * BLOCK_BYTES;\n        const",
        "BLOCKS * BLOCK_BYTES;\n        const",
        "wrong|race", by="pointwise", case="words",
    ),
    "16 bits: positions of the first block": Mutant(
        POINTWISE16_CONV, "matrix_descriptor(stage, BLOCK_BYTES,",
        "matrix_descriptor(stage, 0,",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: steps of weights as far as those of inputs": Mutant(
        POINTWISE16_CONV, "OWN_STEP = ACROSS ? STEP : BLOCK * 2 / 16",
        "OWN_STEP = STEP",
        "wrong|nothing wrote|race", by="pointwise", case="words",
    ),
    "16 bits: the first chunk again": Mutant(
        POINTWISE16_CONV, "team, chunk > 0);\n                else",
        "team, chunk > 1);\n                else",
        "wrong", by="pointwise", case="across",
    ),
    "16 bits: no barrier behind what other warps read": Mutant(
        POINTWISE16_CONV, "named_barrier_wait(FIRST_BARRIER + team, TEAM);",
        "",
        "race", by="pointwise", case="words",
    ),
    "16 bits: no order of a warp behind sums": Mutant(
        POINTWISE16_CONV, "                __syncwarp();\n                store(own",
        "                store(own",
        "race|nothing wrote|another thread|wrong", by="pointwise", case="words",
    ),
    "16 bits: no order of a warp in front of the next sums": Mutant(
        POINTWISE16_CONV, "first_row - row);\n                __syncwarp();",
        "first_row - row);",
        "race", by="pointwise", case="words",
    ),
    "16 bits: sums of the upper rows for both": Mutant(
        POINTWISE16_CONV, "pair_of(sum[2], sum[3], Element())",
        "pair_of(sum[0], sum[1], Element())",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: biases of the upper rows for both": Mutant(
        POINTWISE16_CONV, "biases[row + lane / 4 + half * 8]",
        "biases[row + lane / 4]",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: biases of the first group": Mutant(
        POINTWISE16_CONV, "load_parameter<float>(p.bias, group * p.rows + row)",
        "load_parameter<float>(p.bias, row)",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: outputs behind the last position": Mutant(
        POINTWISE16_CONV, "i * 4 + own < rows && count > 0);\n        } else if",
        "i * 4 + own < rows);\n        } else if",
        "out of bounds|another thread|wrong", by="pointwise", case="words",
    ),
    "16 bits: outputs behind the last row": Mutant(
        POINTWISE16_CONV, "i * 4 + own < rows && count > 0);\n        } else if",
        "count > 0);\n        } else if",
        "out of bounds|another thread|wrong", by="pointwise", case="words",
    ),
    "16 bits: words of other rows": Mutant(
        POINTWISE16_CONV, "(own_word() ^ own ^ 4) * 16}",
        "(own_word() ^ own) * 16}",
        "wrong", by="pointwise", case="words",
    ),
    "16 bits: pieces of outputs behind the last one": Mutant(
        POINTWISE16_CONV, "i * TOGETHER < count);", "0 < count);",
        "out of bounds|another thread", by="pointwise", case="halves",
    ),
    "16 bits: outputs in pieces behind the last row": Mutant(
        POINTWISE16_CONV,
        "(unsigned*)to, words[i % 2] + i * 4 * ROW_BYTES, i * 4 + own < rows ? count : 0)",
        "(unsigned*)to, words[i % 2] + i * 4 * ROW_BYTES, count)",
        "out of bounds|another thread", by="pointwise", case="pairs",
    ),
    "16 bits: numbers of the first chunk": Mutant(
        POINTWISE16_CONV, "(channel + row) * p.space.input_channel",
        "row * p.space.input_channel",
        "wrong", by="pointwise", case="numbers",
    ),
    "16 bits: weights of the first chunk, one by one": Mutant(
        POINTWISE16_CONV, "(channel + column) * p.weight_channel",
        "column * p.weight_channel",
        "wrong", by="pointwise", case="numbers",
    ),
    "16 bits: numbers behind the last one": Mutant(
        POINTWISE16_CONV, "if (row < rows && column < columns)",
        "if (row < rows)",
        "out of bounds|wrong", by="pointwise", case="numbers",
    ),
    "16 bits: outputs behind the last one, one by one": Mutant(
        POINTWISE16_CONV, "if (row < rows && i % WORD < count)",
        "if (row < rows)",
        "out of bounds|another thread|wrong", by="pointwise", case="numbers",
    ),
}  # fmt: skip

# Of each kernel with cases of its own.
OWN = {
    "spans": (SPANS, SPANS_CASES),
    "depthwise": (DEPTHWISE, DEPTHWISE_CASES),
    "gather": (GATHER, GATHER_CASES),
    "streaming": (STREAMING, STREAMING_CASES),
    "pointwise": (POINTWISE | POINTWISE16, POINTWISE_CASES),
    "plain": (PLAIN, PLAIN_CASES),
}


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("kernel", "name"), [(kernel, name) for kernel, (_, own) in OWN.items() for name in own]
)
def test_the_kernel_is_right(kernel: str, name: str) -> None:
    """In the cases in which its mutants are not."""
    assert verdict(EmulatorBackend(kernel), OWN[kernel][1][name]) is None


@pytest.mark.emulator
@pytest.mark.parametrize("name", GATHER_CASES)
def test_the_gathering_kernel_is_right_by_chunks(name: str) -> None:
    with without_bulk_copies():
        assert verdict(EmulatorBackend("gather"), GATHER_CASES[name]) is None


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("kernel", "name"), [(kernel, name) for kernel, (own, _) in OWN.items() for name in own]
)
def test_is_rejected_by_its_cases(kernel: str, name: str) -> None:
    mutants, cases = OWN[kernel]
    reject(mutants[name], cases)


@pytest.mark.emulator
@pytest.mark.parametrize("kernel", ["portable", "hopper"])
@pytest.mark.parametrize("name", FUSED_CASES)
def test_the_fused_operation_is_right(name: str, kernel: str) -> None:
    """In the cases in which its mutants are not."""
    assert verdict(EmulatorBackend(kernel), FUSED_CASES[name]) is None


@pytest.mark.emulator
@pytest.mark.parametrize("name", FUSED)
def test_is_rejected_in_the_fused_operation(name: str) -> None:
    reject(FUSED[name], FUSED_CASES)
