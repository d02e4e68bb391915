"""Mutants of the few-channel kernel."""

from __future__ import annotations

from mutants import Mutant, Suite, enormous, infinite
from strategies import convolution

STREAMING_CONV = "streaming_conv.cu"

# Several units and tiles, the last ones ragged; several chunks of channels.
CASES = {
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
CASES["infinite taps"] = infinite(
    convolution("conv2d", (2, 3, 9, 11), (70, 3, 3, 3), "float16", padding=1)
)
CASES["infinite"] = enormous(CASES["image"])
CASES["infinite, odd"] = enormous(
    convolution("conv1d", (3, 40, 701), (100, 20, 1), bias=True, groups=2)
)
CASES["infinite, narrow"] = infinite(CASES["two narrow passes"])

MUTANTS = {
    "weights of the first group": Mutant(
        STREAMING_CONV, "p.weight + group * p.weight_group + row * p.weight_row;\n#pragma",
        "p.weight + row * p.weight_row;\n#pragma",
        "wrong", case="image",
    ),
    "rows of the weight off by one": Mutant(
        STREAMING_CONV, "row < int(p.rows) ? int(p.products) : 0;",
        "row <= int(p.rows) ? int(p.products) : 0;",
        "out of bounds|between the elements", case="odd",
    ),
    "channels of the weight off by one": Mutant(
        STREAMING_CONV, ", channel, products);", ", channel, products + 1);",
        "out of bounds|between the elements|wrong", case="odd",
    ),
    "halves of a step in one place": Mutant(
        STREAMING_CONV, "at.slot % DEPTH * PASS_ROWS + at.row % PASS_ROWS;", "at.row % PASS_ROWS;",
        "nothing wrote|another thread|race", case="image",
    ),
    "slots of weights behind the last one": Mutant(
        STREAMING_CONV, "weight_place(i < all ? i : first, slots)", "weight_place(i, slots)",
        "out of bounds|race|another thread", case="odd",
    ),
    "half of eight rows": Mutant(
        STREAMING_CONV, "rows * 8 + i % 8", "rows * 8 + i % 4",
        "nothing wrote|race|another thread", case="image",
    ),
    "channels of the first slot": Mutant(
        STREAMING_CONV, "const int channel = at.slot * CHUNK + c;", "const int channel = c;",
        "wrong", case="image",
    ),
    "bias of the first group": Mutant(
        STREAMING_CONV, "load_parameter<float>(p.bias, group * p.rows + row)",
        "load_parameter<float>(p.bias, row)",
        "wrong", case="image",
    ),
    "outputs of the first rows": Mutant(
        STREAMING_CONV, "first_row + first, int(p.rows)", "first, int(p.rows)",
        "another thread|nobody wrote|wrong", case="chunks",
    ),
    "no fence of the proxy": Mutant(
        STREAMING_CONV, "    async_proxy_fence();\n", "",
        "without a fence of the proxy", case="image",
    ),
    "no barrier behind the weights": Mutant(
        STREAMING_CONV, "    async_proxy_fence();\n    __syncthreads();\n",
        "    async_proxy_fence();\n",
        "race|nothing wrote", case="image",
    ),
    "inputs of the first sample": Mutant(
        STREAMING_CONV, "{first + scaled(sample, input_batch) + ", "{first + ",
        "wrong|between the elements", case="image",
    ),
    "inputs of the first group": Mutant(
        STREAMING_CONV, " + group * input_group,\n", ",\n",
        "wrong|between the elements", case="odd",
    ),
    "inputs of the first line": Mutant(
        STREAMING_CONV,
        "place.input += scaled(at[0], input_axis[0]) + scaled(at[1], input_axis[1]);", "",
        "wrong", case="steps",
    ),
    "outputs of the first plane": Mutant(
        STREAMING_CONV, "place.out += scaled(at[0], out_axis[0]) + ", "place.out += ",
        "another thread|nobody wrote", case="steps",
    ),
    "a position too many": Mutant(
        STREAMING_CONV, "position_of<TOGETHER>(tile, s) < p.positions",
        "position_of<TOGETHER>(tile, s) <= p.positions",
        "out of bounds|another thread|between the elements", case="odd",
    ),
    "a channel too many": Mutant(
        STREAMING_CONV, "spots.channels[s] = exists ? int(p.products) : 0;",
        "spots.channels[s] = exists ? int(p.products) + 1 : 0;",
        "out of bounds|between the elements|wrong", case="odd",
    ),
    "channels of a step one too far": Mutant(
        STREAMING_CONV, "i * 4 : i % 2 + i / 2 * 8;", "i * 4 : i % 2 + i / 2 * 9;",
        "wrong|out of bounds|between the elements", case="halves",
    ),
    "channels of the first thread": Mutant(
        STREAMING_CONV, "            spots.from[s] += spots.channel * p.space.input_channel;\n", "",
        "wrong", case="image",
    ),
    "positions of a warp in those of another one": Mutant(
        STREAMING_CONV, "warp * 8 * PLACES + (", "warp * 8 + (",
        "another thread|nobody wrote|wrong", case="image",
    ),
    "operands in another order": Mutant(
        STREAMING_CONV, "number_of(inputs[step][i / 2], i % 2)",
        "number_of(inputs[step][i % 2], i / 2)",
        "wrong", case="one product",
    ),
    "halves in another order": Mutant(
        STREAMING_CONV, "inputs[step][i / 2 * 2], ", "inputs[step][i % 2 * 2], ",
        "wrong", case="halves",
    ),
    "no low parts of the inputs": Mutant(
        STREAMING_CONV, "operands[product == 0 ? PARTS - 1 : 0]", "operands[0]",
        "wrong", case="image",
    ),
    "no low parts of the weights": Mutant(
        STREAMING_CONV, "(step * PARTS + (product == 1)) * PART", "step * PARTS * PART",
        "wrong", case="image",
    ),
    "no fence in front of products": Mutant(
        STREAMING_CONV, "        wgmma_fence();\n", "",
        "without a fence in front", case="image",
    ),
    "no wait for products": Mutant(
        STREAMING_CONV, "        wgmma_wait<0>();\n", "",
        "touched before the wait", case="image",
    ),
    "sums of the last chunk": Mutant(
        STREAMING_CONV, "add || product > FIRST", "product > FIRST",
        "wrong", case="chunks, one product",
    ),
    "a chain in place of a sum": Mutant(
        STREAMING_CONV, "sums[tile][i] += chain[tile][i];", "sums[tile][i] = chain[tile][i];",
        "wrong", case="chunks",
    ),
    "sums that begin anywhere": Mutant(
        STREAMING_CONV, "            if (LONG && PARTS == 2) clear(sums);\n", "",
        "wrong", case="chunks",
    ),
    "weights of the first chunk": Mutant(
        STREAMING_CONV, "(pass * int(p.chunks) + chunk) * CHUNK_BYTES",
        "pass * int(p.chunks) * CHUNK_BYTES",
        "wrong", case="chunks, one product",
    ),
    "weights of the first pass": Mutant(
        STREAMING_CONV, "(pass * int(p.chunks) + chunk) * CHUNK_BYTES", "chunk * CHUNK_BYTES",
        "wrong", case="image",
    ),
    "the next tile is the same again": Mutant(
        STREAMING_CONV, "                            find(spots, next, start);\n", "",
        "another thread|nobody wrote|between the elements", case="image",
    ),
    "the next tile in the sample of this one": Mutant(
        STREAMING_CONV, "start.sample += step.sample, start.rest", "start.rest",
        "another thread|nobody wrote|wrong", case="small images",
    ),
    "positions behind their sample": Mutant(
        STREAMING_CONV, "start.sample += more, start.rest -= more * size;", "",
        "another thread|nobody wrote|wrong|out of bounds|between the elements",
        case="small images",
    ),
    "a second position at the first one": Mutant(
        STREAMING_CONV, "++at[2], place.input += p.space.input_axis[2];", ";",
        "wrong", case="few products",
    ),
    "a warp that is whole by one position": Mutant(
        STREAMING_CONV, "s < COUNT; ++s) absent |= spots.absent[s];",
        "s < 1; ++s) absent |= spots.absent[s];",
        "wrong|out of bounds|between the elements", case="taps",
    ),
    "products that are never there at another input": Mutant(
        STREAMING_CONV, "term.taps & NEVER ? 0 : ", "",
        "out of bounds|between the elements", case="few products",
    ),
    "ends of the taps not looked at": Mutant(
        STREAMING_CONV, " || unsigned(first + (kernel - 1) * int(p.apart[a])) >= size)", ")",
        "wrong|out of bounds|between the elements", case="taps",
    ),
    "rows of a narrow pass in another one": Mutant(
        STREAMING_CONV, "const int pass = at.row / PASS_ROWS, ", "const int pass = at.row / 64, ",
        "nothing wrote|another thread|race|wrong", case="two narrow passes",
    ),
    "a narrow pass as far as a wide one": Mutant(
        STREAMING_CONV, "const int first = (pass + h) * PASS_ROWS;",
        "const int first = (pass + h) * 64;",
        "another thread|nobody wrote|wrong|out of bounds",
        case="two narrow passes",
    ),
    "infinite sums of a narrow pass in those of a wide one": Mutant(
        STREAMING_CONV, "i / 2 % (PASS_ROWS / 8) * 8", "i / 2 % 8 * 8",
        "nothing wrote|wrong", case="infinite, narrow",
    ),
    "outputs of the next tile": Mutant(
        STREAMING_CONV, "store<TOGETHER>(sums[h], outs, ", "store<TOGETHER>(sums[h], spots.out, ",
        "another thread|nobody wrote|wrong", case="image",
    ),
    "tiles that are left out": Mutant(
        STREAMING_CONV, "tile + blocks * TEAMS;", "tile + blocks * (TEAMS + 1);",
        "nobody wrote", case="image",
    ),
    "nobody begins the turns": Mutant(
        STREAMING_CONV, "if (turns && team == TEAMS - 1)", "if (turns && team < 0)",
        "hangs", case="chunks of taps",
    ),
    "turns of several passes, which not all teams have": Mutant(
        STREAMING_CONV, "TURNS && (LONG || p.passes == 1)", "TURNS",
        "hangs", case="small images",
    ),
    "a turn that goes to the team that had it": Mutant(
        STREAMING_CONV, "FIRST_TURN + (team + 1) % TEAMS", "FIRST_TURN + team",
        "hangs", case="chunks of taps",
    ),
    "rows of the result off by one": Mutant(
        STREAMING_CONV, "if (outs[s] && row < rows)", "if (outs[s] && row <= rows)",
        "out of bounds|another thread", case="odd",
    ),
    "rows of the result off by one, together": Mutant(
        STREAMING_CONV, "outs[0] && row < rows);", "outs[0] && row <= rows);",
        "out of bounds|another thread", case="image",
    ),
    "weights of the first tap": Mutant(
        STREAMING_CONV, "weight += tap * p.weight_axis[a];", "",
        "wrong", case="taps",
    ),
    "inputs of the first tap": Mutant(
        STREAMING_CONV, "term.input += tap * p.apart[a]", "term.input += 0 * p.apart[a]",
        "wrong|out of bounds|between the elements", case="taps",
    ),
    "taps apart by one": Mutant(
        STREAMING_CONV, "first + tap * int(p.apart[a])) >= size)", "first + tap) >= size)",
        "wrong|out of bounds|between the elements", case="taps",
    ),
    "bits of the first axis": Mutant(
        STREAMING_CONV, "bit += int(p.kernel[a]);", "",
        "wrong|out of bounds|between the elements", case="taps",
    ),
    "no padding": Mutant(
        STREAMING_CONV, "if (!p.padded) return absent;", "return absent;",
        "wrong|out of bounds|between the elements", case="taps",
    ),
    "a product too many": Mutant(
        STREAMING_CONV, "k < int(p.products) ? 0u : NEVER", "0u",
        "out of bounds|between the elements|wrong", case="three axes",
    ),
    "the input bound off by one": Mutant(
        STREAMING_CONV, "first + tap * int(p.apart[a])) >= size)",
        "first + tap * int(p.apart[a])) > size)",
        "wrong|out of bounds|between the elements", case="taps",
    ),
    "no barrier behind the table": Mutant(
        STREAMING_CONV, "        worker.describe_terms();\n        __syncthreads();\n",
        "        worker.describe_terms();\n",
        "race|nothing wrote", case="taps",
    ),
    "products of the first chunk": Mutant(
        STREAMING_CONV, "spots.chunk++ * CHANNELS", "0 * CHANNELS",
        "wrong", case="chunks of taps",
    ),
    "zeros that count against an infinite weight": Mutant(
        STREAMING_CONV, "constexpr bool REPAIRED = TAPS || sizeof(Element) == 4;",
        "constexpr bool REPAIRED = sizeof(Element) == 4;",
        "wrong", case="infinite taps",
    ),
    "absent inputs of infinite weights": Mutant(
        STREAMING_CONV, "if (!(terms[k].taps & absent))", "",
        "wrong|out of bounds|between the elements", case="infinite taps",
    ),
    "infinite parts": Mutant(
        STREAMING_CONV, "__any_sync(~0u, found)", "false",
        "wrong", case="infinite",
    ),
    "scattered sums that are infinite where others are": Mutant(
        STREAMING_CONV, "repair<TOGETHER, Worker>(p, weights", "repair<true, Worker>(p, weights",
        "wrong|another thread", case="infinite, odd",
    ),
    "weights of the first group where a sum is infinite": Mutant(
        STREAMING_CONV, "p.weight + group * p.weight_group + row * p.weight_row;\n        float",
        "p.weight + row * p.weight_row;\n        float",
        "wrong", case="infinite",
    ),
    "a bias of rows that are not there": Mutant(
        STREAMING_CONV, "p.bias.data && row < int(p.rows)", "p.bias.data",
        "out of bounds|between the elements", case="image",
    ),
    "other weights where a sum is infinite": Mutant(
        STREAMING_CONV, "group * p.weight_group + row * p.weight_row;\n        float",
        "group * p.weight_group;\n        float",
        "wrong", case="infinite",
    ),
    "no bias where a sum is infinite": Mutant(
        STREAMING_CONV, " + worker.biases[own]);", ");",
        "wrong", case="infinite",
    ),
}  # fmt: skip

SUITE = Suite("streaming", STREAMING_CONV, MUTANTS, CASES, kernels=("streaming",))
