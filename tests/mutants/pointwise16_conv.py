"""Mutants of the pointwise kernel for 16-bit numbers."""

from __future__ import annotations

from mutants import Mutant, Suite
from strategies import convolution

POINTWISE16_CONV = "pointwise16_conv.cu"

# Numbers that are loaded by words, by pairs, across the rows, or one by one.
CASES = {
    "words": convolution("conv1d", (5, 272, 200), (520, 136, 1), "float16", bias=True, groups=2),
    "halves": convolution("conv1d", (3, 132, 300), (70, 132, 1), "bfloat16", bias=True),
    "pairs": convolution("conv1d", (3, 154, 302), (70, 154, 1), "float16", bias=True),
    "across": convolution("conv_transpose1d", (2, 160, 304), (160, 72, 1), "float16"),
    "numbers": convolution("conv1d", (2, 150, 333), (160, 75, 1), "float16", groups=2),
    "many chunks": convolution("conv1d", (1, 900, 304), (60, 900, 1), "float16"),
}

MUTANTS = {
    "16 bits: weights of the first group": Mutant(
        POINTWISE16_CONV, "group * p.weight_group + first_row * p.weight_row",
        "first_row * p.weight_row",
        "wrong", case="words",
    ),
    "16 bits: inputs of the first group": Mutant(
        POINTWISE16_CONV, "group * p.space.input_group + block.first,",
        "block.first,",
        "wrong", case="words",
    ),
    "16 bits: outputs of the first group": Mutant(
        POINTWISE16_CONV, "group * p.space.out_group + block.first}",
        "block.first}",
        "another thread|nobody wrote", case="words",
    ),
    "16 bits: inputs of the first sample": Mutant(
        POINTWISE16_CONV, "scaled(block.sample, p.space.input_batch) + ",
        "",
        "wrong", case="words",
    ),
    "16 bits: blocks of the first sample": Mutant(
        POINTWISE16_CONV, "return {sample, first, index",
        "return {0, first, index",
        "another thread|nobody wrote", case="words",
    ),
    "16 bits: positions behind the last one of a sample": Mutant(
        POINTWISE16_CONV, "left < SIDE ? left : SIDE}",
        "SIDE}",
        "out of bounds|another thread|wrong", case="words",
    ),
    "16 bits: blocks behind the last one": Mutant(
        POINTWISE16_CONV, "index >= int(p.blocks) ? 0 : ",
        "",
        "out of bounds", case="halves",
    ),
    "16 bits: no wait for a stage to be empty": Mutant(
        POINTWISE16_CONV,
        "mbarrier_wait(&barriers.empty[turn.stage], turn.parity ^ 1);\n                if (WHOLE",
        "if (WHOLE",
        "race|one more than", case="many chunks",
    ),
    "16 bits: no wait for a stage to be full": Mutant(
        POINTWISE16_CONV, "mbarrier_wait(&barriers.full[stage], turn.parity);",
        "",
        "race|nothing wrote", case="words",
    ),
    "16 bits: copies that no arrival waits for": Mutant(
        POINTWISE16_CONV, "copy_async_arrive(&barriers.full",
        "mbarrier_arrive(&barriers.full",
        "race|nothing wrote|wrong", case="words",
    ),
    "16 bits: no fence of the proxy": Mutant(
        POINTWISE16_CONV, "async_proxy_fence();",
        "",
        "without a fence of the proxy", case="words",
    ),
    "16 bits: no fence in front of products": Mutant(
        POINTWISE16_CONV, "        wgmma_fence();\n",
        "",
        "without a fence in front", case="words",
    ),
    "16 bits: no wait for the last products": Mutant(
        POINTWISE16_CONV, "            wgmma_wait<0>();\n",
        "",
        "touched before the wait", case="words",
    ),
    "16 bits: a stage is released that is in use": Mutant(
        POINTWISE16_CONV, "if (chunk > 0) release(last);\n                last = stage;",
        "last = stage;\n                if (chunk > 0) release(last);",
        "race|hangs|one more than", case="many chunks",
    ),
    "16 bits: the same turn of all stages": Mutant(
        POINTWISE16_CONV, "stage = 0, parity ^= 1",
        "stage = 0",
        "hangs|race|one more than", case="many chunks",
    ),
    "16 bits: the first piece of words": Mutant(
        POINTWISE16_CONV, "piece < WORD; piece += TOGETHER", "piece < 1; piece += TOGETHER",
        "nothing wrote|wrong", case="halves",
    ),
    "16 bits: pieces behind the last one": Mutant(
        POINTWISE16_CONV, "(piece < count ? rows : 0)", "(0 < count ? rows : 0)",
        "out of bounds|wrong", case="halves",
    ),
    "16 bits: pieces in the place of the first": Mutant(
        POINTWISE16_CONV, "(to + 2 * piece, from + piece,", "(to, from + piece,",
        "nothing wrote|race|wrong", case="pairs",
    ),
    "16 bits: channels behind the last one": Mutant(
        POINTWISE16_CONV, "left - own_row(), counts[block]",
        "SIDE, counts[block]",
        "out of bounds|wrong", case="words",
    ),
    "16 bits: rows of weights behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? left : rows) - own_row()",
        "(p.across ? left : SIDE) - own_row()",
        "out of bounds", case="halves",
    ),
    "16 bits: channels of weights behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? rows : left) - own_word()",
        "(p.across ? rows : SIDE) - own_word()",
        "out of bounds", case="halves",
    ),
    "16 bits: rows across behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? rows : left) - own_word()",
        "(p.across ? SIDE : left) - own_word()",
        "out of bounds", case="across",
    ),
    "16 bits: channels across behind the last one": Mutant(
        POINTWISE16_CONV, "(p.across ? left : rows) - own_row()",
        "(p.across ? SIDE : rows) - own_row()",
        "out of bounds", case="across",
    ),
    "16 bits: rows across taken for rows along": Mutant(
        POINTWISE16_CONV, "                if (p.across)\n",
        "                if (false)\n",
        "wrong", case="across",
    ),
    "16 bits: channels of the first chunk": Mutant(
        POINTWISE16_CONV, "own += SIDE * channel;",
        "{}",
        "wrong", case="words",
    ),
    "16 bits: weights of the first chunk": Mutant(
        POINTWISE16_CONV, "weights += SIDE * p.weight_channel;",
        "",
        "wrong", case="words",
    ),
    "16 bits: weights of the first slab": Mutant(
        POINTWISE16_CONV, "from + slab * SIDE * p.weight_row, APART",
        "from, APART",
        "wrong", case="words",
    ),
    "16 bits: products of the first team": Mutant(
        POINTWISE16_CONV, "(BLOCKS + team * SLABS) * BLOCK_BYTES;\n        const",
        "BLOCKS * BLOCK_BYTES;\n        const",
        "wrong|race", case="words",
    ),
    "16 bits: positions of the first block": Mutant(
        POINTWISE16_CONV, "matrix_descriptor(stage, BLOCK_BYTES,",
        "matrix_descriptor(stage, 0,",
        "wrong", case="words",
    ),
    "16 bits: steps of weights as far as those of inputs": Mutant(
        POINTWISE16_CONV, "OWN_STEP = ACROSS ? STEP : BLOCK * 2 / 16",
        "OWN_STEP = STEP",
        "wrong|nothing wrote|race", case="words",
    ),
    "16 bits: the first chunk again": Mutant(
        POINTWISE16_CONV, "team, chunk > 0);\n                else",
        "team, chunk > 1);\n                else",
        "wrong", case="across",
    ),
    "16 bits: no barrier behind what other warps read": Mutant(
        POINTWISE16_CONV, "named_barrier_wait(FIRST_BARRIER + team, TEAM);",
        "",
        "race", case="words",
    ),
    "16 bits: no order of a warp behind sums": Mutant(
        POINTWISE16_CONV, "                __syncwarp();\n                store(own",
        "                store(own",
        "race|nothing wrote|another thread|wrong", case="words",
    ),
    "16 bits: no order of a warp in front of the next sums": Mutant(
        POINTWISE16_CONV, "first_row - row);\n                __syncwarp();",
        "first_row - row);",
        "race", case="words",
    ),
    "16 bits: sums of the upper rows for both": Mutant(
        POINTWISE16_CONV, "pair_of(sum[2], sum[3], Element())",
        "pair_of(sum[0], sum[1], Element())",
        "wrong", case="words",
    ),
    "16 bits: biases of the upper rows for both": Mutant(
        POINTWISE16_CONV, "biases[row + lane / 4 + half * 8]",
        "biases[row + lane / 4]",
        "wrong", case="words",
    ),
    "16 bits: biases of the first group": Mutant(
        POINTWISE16_CONV, "load_parameter<float>(p.bias, group * p.rows + row)",
        "load_parameter<float>(p.bias, row)",
        "wrong", case="words",
    ),
    "16 bits: outputs behind the last position": Mutant(
        POINTWISE16_CONV, "i * 4 + own < rows && count > 0);\n        } else if",
        "i * 4 + own < rows);\n        } else if",
        "out of bounds|another thread|wrong", case="words",
    ),
    "16 bits: outputs behind the last row": Mutant(
        POINTWISE16_CONV, "i * 4 + own < rows && count > 0);\n        } else if",
        "count > 0);\n        } else if",
        "out of bounds|another thread|wrong", case="words",
    ),
    "16 bits: words of other rows": Mutant(
        POINTWISE16_CONV, "(own_word() ^ own ^ 4) * 16}",
        "(own_word() ^ own) * 16}",
        "wrong", case="words",
    ),
    "16 bits: pieces of outputs behind the last one": Mutant(
        POINTWISE16_CONV, "i * TOGETHER < count);", "0 < count);",
        "out of bounds|another thread", case="halves",
    ),
    "16 bits: outputs in pieces behind the last row": Mutant(
        POINTWISE16_CONV,
        "(unsigned*)to, words[i % 2] + i * 4 * ROW_BYTES, i * 4 + own < rows ? count : 0)",
        "(unsigned*)to, words[i % 2] + i * 4 * ROW_BYTES, count)",
        "out of bounds|another thread", case="pairs",
    ),
    "16 bits: numbers of the first chunk": Mutant(
        POINTWISE16_CONV, "(channel + row) * p.space.input_channel",
        "row * p.space.input_channel",
        "wrong", case="numbers",
    ),
    "16 bits: weights of the first chunk, one by one": Mutant(
        POINTWISE16_CONV, "(channel + column) * p.weight_channel",
        "column * p.weight_channel",
        "wrong", case="numbers",
    ),
    "16 bits: numbers behind the last one": Mutant(
        POINTWISE16_CONV, "if (row < rows && column < columns)",
        "if (row < rows)",
        "out of bounds|wrong", case="numbers",
    ),
    "16 bits: outputs behind the last one, one by one": Mutant(
        POINTWISE16_CONV, "if (row < rows && i % WORD < count)",
        "if (row < rows)",
        "out of bounds|another thread|wrong", case="numbers",
    ),
}  # fmt: skip

SUITE = Suite("pointwise", POINTWISE16_CONV, MUTANTS, CASES, kernels=("pointwise",))
