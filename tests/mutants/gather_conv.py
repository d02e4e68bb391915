"""Mutants of the gathering kernel."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite, depthwise, infinite
from strategies import Convolution

GATHER_CONV = "gather_conv.cu"


def scattered(case: Convolution) -> Convolution:
    """The case with the channels of a place next to each other in memory."""
    x = np.moveaxis(case["input"], 1, -1).copy()
    return case.with_arrays(input=np.moveaxis(x, -1, 1))


# Several bands and tiles of channels, neither divided evenly, and whole images.
CASES = {
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
CASES["infinite"] = infinite(CASES["image"])
CASES["scattered"] = scattered(CASES["steps"])
CASES["infinite strips"] = infinite(CASES["strips"])
FLIPPED = CASES["flipped"]
CASES["rows first"] = FLIPPED.with_arrays(
    weight=FLIPPED["weight"].swapaxes(0, 1).copy().swapaxes(0, 1)
)

MUTANTS = {
    "inputs behind the array": Mutant(
        GATHER_CONV, "const int end = least(to, int(band.size_in));",
        "const int end = least(to, int(band.size_in) + 1);",
        "out of bounds|between the elements|wrong", case="image",
    ),
    "inputs in front of the array": Mutant(
        GATHER_CONV, "low = from < 0 ? 0 : from;", "low = from;",
        "out of bounds|between the elements|wrong", case="image",
    ),
    "a band that begins as if there were no steps": Mutant(
        GATHER_CONV, "const int from = start * int(band.step) + int(band.low);",
        "const int from = start + int(band.low);",
        "wrong|nothing wrote|out of bounds", case="steps",
    ),
    "bands of one size": Mutant(
        GATHER_CONV, "size = least(int(band.size_out) - start, int(p.tile));",
        "size = int(p.tile);",
        "out of bounds|another thread", case="steps",
    ),
    "outputs of the first band": Mutant(
        GATHER_CONV, "p.band == 1 ? start + lines :", "p.band == 1 ? lines :",
        "out of bounds|another thread|nothing wrote", case="image",
    ),
    "a group too few": Mutant(
        GATHER_CONV, "int(p.rows)) - group + 1;", "int(p.rows)) - group;",
        "nothing wrote", case="channels",
    ),
    "inputs of the first sample": Mutant(
        GATHER_CONV, "p.input + sample * p.input_batch + ", "p.input + ",
        "wrong", case="steps",
    ),
    "inputs of the first group": Mutant(
        GATHER_CONV, "(group + piece) * p.input_group", "piece * p.input_group",
        "wrong", case="channels",
    ),
    "chunks that do not lie as their inputs": Mutant(
        GATHER_CONV, "sizeof(Element)) & (CHUNK - 1) : 0;",
        "sizeof(Element) + 1) & (CHUNK - 1) : 0;",
        "misaligned", case="channels", chunks=True,
    ),
    "inputs without skew": Mutant(
        GATHER_CONV, ": channel * int(p.room) + skew(channel);",
        ": channel * int(p.room);",
        "wrong|nothing wrote", case="steps",
    ),
    "channels apart that lie together": Mutant(
        GATHER_CONV, "p.joined ? channel * elements + skew(0) : ", "",
        "wrong|nothing wrote|out of bounds", case="channels",
    ),
    "ends that nobody brings": Mutant(
        GATHER_CONV, "    worker.store(end);\n", "",
        "nothing wrote", case="steps",
    ),
    "ends of the first piece": Mutant(
        GATHER_CONV, "piece(number / (2 * CHUNK))", "piece(0)",
        "nothing wrote|race", case="steps",
    ),
    "whole chunks from the first element on": Mutant(
        GATHER_CONV, "bulk_copy(own.to + own.before, own.from + own.before,",
        "bulk_copy(own.to, own.from,",
        "misaligned|without a fence|race", case="steps",
    ),
    "a chunk too many": Mutant(
        GATHER_CONV, "(length - before) & -CHUNK}", "(length - before + CHUNK - 1) & -CHUNK}",
        "out of bounds|between the elements|race|under way", case="steps",
    ),
    "no wait for bulk copies": Mutant(
        GATHER_CONV, "    if (bulk) mbarrier_wait(worker.copied, 0);\n", "",
        "race|nothing wrote|under way", case="steps",
    ),
    "a chunk too far": Mutant(
        GATHER_CONV, "element + CHUNK <= length)", "element + CHUNK <= length + 1)",
        "out of bounds|between the elements", case="strips with steps", chunks=True,
    ),
    "a part of a chunk too far": Mutant(
        GATHER_CONV, "unsigned(element + e) < unsigned(length)",
        "unsigned(element + e) <= unsigned(length)",
        "out of bounds|between the elements", case="steps", chunks=True,
    ),
    "scattered inputs of another place": Mutant(
        GATHER_CONV, "rest -= along * int(p.axis[a].pitch);", "",
        "wrong|nothing wrote|out of bounds|between the elements", case="scattered",
    ),
    "channels behind the last one": Mutant(
        GATHER_CONV, "first + least(own, count - 1)", "first + own",
        "out of bounds", case="steps",
    ),
    "outputs of the first channels": Mutant(
        GATHER_CONV, "p.out_batch + own * p.out_row,", "p.out_batch + i * p.out_row,",
        "nobody wrote|another thread", case="steps",
    ),
    "weights of the first channels, together": Mutant(
        GATHER_CONV, "return int64(first) * taps + ", "return ",
        "wrong", case="channels",
    ),
    "weights behind the last channel": Mutant(
        GATHER_CONV, "least(i, count * taps - 1);", "i;",
        "out of bounds", case="steps",
    ),
    "weights of the first group": Mutant(
        GATHER_CONV, "return of * p.weight_group + row", "return row",
        "wrong", case="flipped",
    ),
    "weights of the first row": Mutant(
        GATHER_CONV, "row * p.weight_row +", "0 * p.weight_row +",
        "wrong", case="rows first",
    ),
    "flipped kernel": Mutant(
        GATHER_CONV, "ay.weight_first + ax.weight_first +", "ay.weight_first +",
        "wrong|out of bounds", case="flipped",
    ),
    "bias of the first channels": Mutant(
        GATHER_CONV, "load_parameter<Accumulator>(p.bias, number(threadIdx.x));",
        "load_parameter<Accumulator>(p.bias, threadIdx.x);",
        "wrong|out of bounds", case="channels",
    ),
    "taps next to each other": Mutant(
        GATHER_CONV, "first[i][line + x * apart];", "first[i][line + x];",
        "wrong|nothing wrote", case="dilated",
    ),
    "lines of the first tap": Mutant(
        GATHER_CONV, " + (iy - y0) * int(ay.pitch), weight", ", weight",
        "wrong|nothing wrote|out of bounds", case="steps",
    ),
    "planes of the first tap": Mutant(
        GATHER_CONV, "first, (iz - z0) * int(az.pitch) + ", "first, ",
        "wrong|nothing wrote|out of bounds", case="three axes",
    ),
    "padding that counts against an infinite weight": Mutant(
        GATHER_CONV,
        "if (present >> x & 1u)\n                    sums[i] = ",
        "if (!(present >> x & 1u))\n"
        "    sums[i] = multiply_add(own.values[i], zero<Accumulator>(), sums[i]);\n"
        "else sums[i] = ",
        "wrong", case="infinite",
    ),
    "x bound of taps off by one": Mutant(
        GATHER_CONV, "int(ax.apart)) < unsigned(ax.size_in)) << tap;",
        "int(ax.apart)) <= unsigned(ax.size_in)) << tap;",
        "wrong|nothing wrote|out of bounds", case="image",
    ),
    "no z bound of taps": Mutant(
        GATHER_CONV, "(unsigned(iz) < unsigned(az.size_in)) & (", "(",
        "wrong|nothing wrote|out of bounds", case="three axes",
    ),
    "y bound of taps off by one": Mutant(
        GATHER_CONV, "(unsigned(iy) < unsigned(ay.size_in))",
        "(unsigned(iy) <= unsigned(ay.size_in))",
        "wrong|nothing wrote|out of bounds", case="image",
    ),
    "weights of the first channels": Mutant(
        GATHER_CONV, "weights + c / TOGETHER * (int(p.taps) + 1);", "weights;",
        "wrong", case="steps",
    ),
    "a channel that is left out": Mutant(
        GATHER_CONV, "if (c + i < count) out", "if (c + i + 1 < count) out",
        "nobody wrote", case="image",
    ),
    "no wait for copies": Mutant(
        GATHER_CONV, "    copy_async_wait<0>();\n", "",
        "race|nothing wrote|under way", case="steps", chunks=True,
    ),
    "no barrier": Mutant(
        GATHER_CONV, "    copy_async_wait<0>();\n    __syncthreads();\n",
        "    copy_async_wait<0>();\n",
        "race|nothing wrote", case="steps",
    ),
    # Strips.
    "the x bound of strips off by one": Mutant(
        GATHER_CONV, "unsigned(x0 + tap) < unsigned(ax.size_in)) << tap;",
        "unsigned(x0 + tap) <= unsigned(ax.size_in)) << tap;",
        "wrong|nothing wrote|out of bounds", case="strips",
    ),
    "lines behind the last one": Mutant(
        GATHER_CONV, "unsigned(y0 + r) < unsigned(end)", "unsigned(y0 + r) <= unsigned(end)",
        "wrong|nothing wrote|out of bounds", case="strips",
    ),
    "lines of outputs that do not exist": Mutant(
        GATHER_CONV, "least(last, int(ay.size_in));", "int(ay.size_in);",
        "wrong|nothing wrote|out of bounds", case="wide strips",
    ),
    "lines of strips in front of the array": Mutant(
        GATHER_CONV, "end = last < 0 ? 0 : least", "end = least",
        "wrong|nothing wrote|out of bounds", case="far strips",
    ),
    "every line, but for the first ones": Mutant(
        GATHER_CONV, "bool every = y0 >= 0 && ", "bool every = ",
        "wrong|nothing wrote|out of bounds", case="strips",
    ),
    "every line, and one more": Mutant(
        GATHER_CONV, "* STEP + HIGH <= end;", "* STEP + HIGH <= end + 1;",
        "wrong|nothing wrote|out of bounds", case="even strips",
    ),
    "channels of all teams": Mutant(
        GATHER_CONV, "for (int c = team; c < count; c += teams)",
        "for (int c = 0; c < count; ++c)",
        "another thread|race", case="strips of channels",
    ),
    "channels of the first team": Mutant(
        GATHER_CONV, "for (int c = team; c < count;", "for (int c = 0; c < count;",
        "another thread|nobody wrote", case="strips of channels",
    ),
    "strips of the first plane": Mutant(
        GATHER_CONV, "(across - plane * strips) * lines", "across * lines",
        "nobody wrote|another thread", case="strips of planes",
    ),
    "planes of the first band": Mutant(
        GATHER_CONV, "z = p.band == 1 ? 0 : start + plane;", "z = p.band == 1 ? 0 : plane;",
        "wrong|nothing wrote|out of bounds|another thread", case="bands of planes",
    ),
    "strips of the first band": Mutant(
        GATHER_CONV, "y = p.band == 1 ? start + line : line,", "y = line,",
        "wrong|nothing wrote|out of bounds|another thread", case="even strips",
    ),
    "a plane too far": Mutant(
        GATHER_CONV, "int(az.apart)) >= unsigned(az.size_in)) continue;",
        "int(az.apart)) > unsigned(az.size_in)) continue;",
        "wrong|nothing wrote|out of bounds", case="strips of planes",
    ),
    "weights of the first strip's channel": Mutant(
        GATHER_CONV, "weights + c * deep * PLANE;", "weights;",
        "wrong", case="strips",
    ),
    "weights of the first plane": Mutant(
        GATHER_CONV, "int(az.apart * az.pitch), weight += PLANE)", "int(az.apart * az.pitch))",
        "wrong", case="strips of planes",
    ),
    "inputs of the first plane": Mutant(
        GATHER_CONV, "++j, first += int(az.apart * az.pitch), weight", "++j, weight",
        "wrong|nothing wrote", case="bands of planes",
    ),
    "weights of the first line of taps": Mutant(
        GATHER_CONV, "own[tap * TAPS + x]", "own[x]",
        "wrong", case="strips",
    ),
    "strips without steps": Mutant(
        GATHER_CONV, "const int tap = r - o * STEP;", "const int tap = r - o;",
        "wrong", case="strips with steps",
    ),
    "a strip that ends early": Mutant(
        GATHER_CONV, "(r - HIGH) / STEP + 1 == lines) break;",
        "(r - HIGH) / STEP + 2 == lines) break;",
        "wrong", case="strips",
    ),
    "strips of the first turn": Mutant(
        GATHER_CONV, "for (int turn = 0; turn * threads < all; ++turn)",
        "for (int turn = 0; turn < 1; ++turn)",
        "nobody wrote", case="wide image of strips",
    ),
    "an output of a strip that is left out": Mutant(
        GATHER_CONV, "if (o < own) *to", "if (o + 1 < own) *to",
        "nobody wrote", case="strips",
    ),
    "padding of strips that counts against an infinite weight": Mutant(
        GATHER_CONV, "if (tap >= 0 && tap < HIGH && here >> x & 1u)\n",
        "if (!(here >> x & 1u)) values[x] = zero<Accumulator>();\n"
        "if (tap >= 0 && tap < HIGH)\n",
        "wrong", case="infinite strips",
    ),
    "parts of vectors that nobody writes": Mutant(
        GATHER_CONV, "k < PLANE * TOGETHER; ++k)", "k <= HEIGHT * TAPS; ++k)",
        "nothing wrote", case="strips",
    ),
    "weights without room for the bias": Mutant(
        GATHER_CONV, "weights[i / AREA * PLANE].values + i % AREA",
        "weights[0].values + i",
        "wrong|nothing wrote|another thread|race", case="strips",
    ),
}  # fmt: skip

SUITE = Suite("gather", GATHER_CONV, MUTANTS, CASES, kernels=("gather",), chunks=True)
