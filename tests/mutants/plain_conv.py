"""Mutants of the FMA kernel."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite, infinite
from strategies import convolution

PLAIN_CONV = "plain_conv.cu"

# Several tiles of a block, and a ragged last row tile.
CASES = {
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
CASES["infinite"] = infinite(CASES["neighbours"])

MUTANTS = {
    "a row too many": Mutant(
        PLAIN_CONV, "if ((r < rows) & ", "if ((r <= rows) & ",
        "out of bounds|between the elements|another thread", case="neighbours",
    ),
    "a column too many": Mutant(
        PLAIN_CONV, "(i * COLUMNS < end))", "(i * COLUMNS <= end))",
        "out of bounds|between the elements|another thread", case="neighbours",
    ),
    "all rows of a ragged slab": Mutant(
        PLAIN_CONV, "if ((rows >= ROWS) & (end", "if ((end",
        "out of bounds|between the elements|another thread", case="neighbours",
    ),
    "a line too many": Mutant(
        PLAIN_CONV,
        "        if (!stores() | (line.z >= tile.left[0]) | (line.y >= tile.left[1])) return;\n"
        "        const int rows",
        "        if (!stores() | (line.z >= tile.left[0])) return;\n        const int rows",
        "out of bounds|between the elements|another thread", case="steps",
    ),
    "threads without a slab that store": Mutant(
        PLAIN_CONV, "(turn() < slabs()) & (unit().slab + turn() < int(p.slabs))", "true",
        "nothing wrote|race|wrong|out of bounds|another thread", case="half",
    ),
    "a row of lines too many": Mutant(
        PLAIN_CONV, "if (row >= rows) return;", "if (row >= ROWS) return;",
        "out of bounds|between the elements|another thread|nothing wrote",
        case="phases",
    ),
    "a line of the buffer too many": Mutant(
        PLAIN_CONV,
        "        if (!stores() | (line.z >= tile.left[0]) | (line.y >= tile.left[1])) return;\n"
        "        const int left",
        "        if (!stores() | (line.z >= tile.left[0])) return;\n        const int left",
        "out of bounds|between the elements|another thread", case="phases",
    ),
    "an output of lines too many": Mutant(
        PLAIN_CONV,
        "                if (x < width) out[x] = from[x];\n            }\n        } else {",
        "                if (x <= width) out[x] = from[x];\n            }\n        } else {",
        "out of bounds|between the elements|another thread|nothing wrote",
        case="phases",
    ),
    "a chunk of lines too many": Mutant(
        PLAIN_CONV,
        "count = (width - begin) / TOGETHER;", "count = (width - begin) / TOGETHER + 1;",
        "out of bounds|between the elements|another thread|nothing wrote",
        case="phases",
    ),
    "lines that begin with a chunk": Mutant(
        PLAIN_CONV, "begin = ahead < width ? ahead : width,", "begin = 0,",
        "misaligned", case="phases",
    ),
    "lines of the buffer that do not lie as in the array": Mutant(
        PLAIN_CONV, "/ sizeof(Element) % TOGETHER);\n        return buffer()",
        "/ sizeof(Element) % TOGETHER + 1);\n        return buffer()",
        "misaligned", case="phases",
    ),
    "lines of the first pass": Mutant(
        PLAIN_CONV, "const Line& position_line = results()[pass * lines() + line()];",
        "const Line& position_line = results()[line()];",
        "nobody wrote|another thread|wrong", case="pairs",
    ),
    "no fence in front of bulk stores": Mutant(
        PLAIN_CONV, "        if (in_bulk()) async_proxy_fence();\n", "",
        "without a fence of the proxy", case="phases",
    ),
    "no wait for the threads of a line": Mutant(
        PLAIN_CONV,
        "        if (in_bulk()) async_proxy_fence();\n        __syncwarp();\n",
        "        if (in_bulk()) async_proxy_fence();\n",
        "race|nothing wrote|without a fence", case="pairs",
    ),
    "no wait for the buffer": Mutant(
        PLAIN_CONV, "if (phase == 0) empty();", "",
        "race|was written before the wait", case="pairs",
    ),
    "no wait for packed weights": Mutant(
        PLAIN_CONV,
        "    wait_for_grids();\n    worker.load_weights();", "    worker.load_weights();",
        "does not wait", case="pairs",
    ),
    "no wait for the last lines": Mutant(
        PLAIN_CONV,
        "    if (worker.in_bulk()) bulk_store_wait();  // before the block",
        "    // before the block",
        "ends before its bulk stores", case="pairs",
    ),
    "no wait for the threads of a line, chunk by chunk": Mutant(
        PLAIN_CONV,
        "        if (in_bulk()) async_proxy_fence();\n        __syncwarp();\n",
        "",
        "race|nothing wrote", case="pairs", chunks=True,
    ),
    "an output of lines too many, chunk by chunk": Mutant(
        PLAIN_CONV, "                if (x < width) out[x] = from[x];\n            }\n        }\n",
        "                if (x <= width) out[x] = from[x];\n            }\n        }\n",
        "out of bounds|between|another thread|nothing wrote",
        case="phases", chunks=True,
    ),
    "inputs of the first sample": Mutant(
        PLAIN_CONV, "unit().input + next * p.input_batch", "unit().input",
        "wrong", case="neighbours",
    ),
    "bias of the first group": Mutant(
        PLAIN_CONV, "load_parameter<float>(p.bias, unit().group * p.rows + ",
        "load_parameter<float>(p.bias, ",
        "wrong", case="neighbours",
    ),
    "chunks that do not lie as their inputs": Mutant(
        PLAIN_CONV,
        "sizeof(Element) % CHUNK) : 0;\n        if",
        "sizeof(Element) % CHUNK + 1) : 0;\n        if",
        "misaligned", case="neighbours",
    ),
    "x bound of chunks off by one": Mutant(
        PLAIN_CONV,
        "(left >= 0) & (left + EACH <= size)", "(left >= 0) & (left + EACH <= size + 1)",
        "out of bounds|between the elements|wrong", case="neighbours",
    ),
    "x bound of a part of a chunk off by one": Mutant(
        PLAIN_CONV, "unsigned(left + e) < unsigned(size)", "unsigned(left + e) <= unsigned(size)",
        "out of bounds|between the elements|wrong", case="neighbours",
    ),
    "x bound of elements off by one": Mutant(
        PLAIN_CONV, "(left >= 0) & (left + EACH <= size)",
        "(left >= 0) & (left + EACH <= size + (EACH == 1))",
        "out of bounds|between the elements|wrong", case="steps",
    ),
    "y bound of lines off by one": Mutant(
        PLAIN_CONV, "(unsigned(at[1] + line.y) < unsigned(p.axis[1].taps.size_in))",
        "(unsigned(at[1] + line.y) <= unsigned(p.axis[1].taps.size_in))",
        "out of bounds|between the elements|wrong", case="neighbours",
    ),
    "no z bound of lines": Mutant(
        PLAIN_CONV, "(unsigned(at[0] + line.z) < unsigned(p.axis[0].taps.size_in)) &", "true &",
        "out of bounds|between the elements|wrong", case="three axes",
    ),
    "inputs that are not staged": Mutant(
        PLAIN_CONV, "all = int(p.channels) * unit().deep * unit().high * each;",
        "all = int(p.channels) * unit().deep * unit().high * each - each;",
        "nothing wrote|wrong", case="neighbours",
    ),
    "taps of the first phase": Mutant(
        PLAIN_CONV, "spread(offset_of(2, p.phases[2][step.phase], step.x))",
        "spread(offset_of(2, p.phases[2][0], step.x))",
        "wrong|nothing wrote", case="phases",
    ),
    "inputs that are not spread": Mutant(
        PLAIN_CONV, "return (x - index * int(p.axis[2].taps.step)) * int(p.axis[2].pitch) + index;",
        "return x;",
        "wrong|nothing wrote", case="steps",
    ),
    "ascending taps": Mutant(
        PLAIN_CONV, "int(phase(a).offset) + (apart < 0 ? (int(phase(a).count) - 1) * apart : 0);",
        "int(phase(a).offset);",
        "wrong|nothing wrote|out of bounds", case="three axes",
    ),
    "outputs of one phase": Mutant(
        PLAIN_CONV, "to += column() * phases + phase_x;", "to += column() * phases;",
        "wrong|nothing wrote|race", case="phases",
    ),
    "a rest of steps": Mutant(
        PLAIN_CONV, "for (; steps > 0; --steps", "for (; steps > 1; --steps",
        "wrong", case="neighbours",
    ),
    "another row's weights": Mutant(
        PLAIN_CONV, "half[r / 4].values[r % 4]", "half[r / 4].values[r % 2]",
        "wrong", case="neighbours",
    ),
    "weights of neighbouring taps": Mutant(
        PLAIN_CONV, "(tx.first + step.x * p.axis[2].taps.tap_step)", "(tx.first + step.x)",
        "wrong", case="phases",
    ),
    "weights of the first group": Mutant(
        PLAIN_CONV, "p.weight[group * p.weight_group + row * p.weight_row +",
        "p.weight[row * p.weight_row +",
        "wrong", case="neighbours",
    ),
    "a phase without taps that is not filled": Mutant(
        PLAIN_CONV, "            fill(tile, index);\n", "",
        "nobody wrote", case="no taps",
    ),
    "phases without taps that nobody fills": Mutant(
        PLAIN_CONV, "i < idle; i += busy", "i < idle - 1; i += busy",
        "nobody wrote", case="no taps",
    ),
    "phases without taps in the place of others": Mutant(
        PLAIN_CONV, "to += (phase[a] - unit().phase[a]) * p.axis[a].out;",
        "to += phase[a] * p.axis[a].out;",
        "nobody wrote|another thread|out of bounds|between", case="busy phases",
    ),
    "phases without taps by the same blocks": Mutant(
        PLAIN_CONV, "turn - divided(turn, busy) * busy;",
        "index - divided(index, busy) * busy;",
        "nobody wrote|another thread", case="busy phases",
    ),
    "an output of a phase without taps too many": Mutant(
        PLAIN_CONV, "if (end < width) out[end] = value;", "if (end <= width) out[end] = value;",
        "out of bounds|between the elements|another thread|race", case="no taps",
    ),
    "a line of a phase without taps too many": Mutant(
        PLAIN_CONV, "if ((position_line.z >= left[0]) | (position_line.y >= left[1])) continue;",
        "",
        "out of bounds|between the elements|another thread|race", case="no taps",
    ),
    "a row of a phase without taps too many": Mutant(
        PLAIN_CONV,
        "rows = left < all ? left : all;\n        const int lane",
        "rows = all;\n        const int lane",
        "out of bounds|between the elements|another thread|race", case="no taps",
    ),
    "the tile in front": Mutant(
        PLAIN_CONV, "stage(index + apart, turn ^ 1);", "stage(index + apart, turn);",
        "race|wrong|another thread|nothing wrote", case="neighbours",
    ),
    "lines without taps of each tile of a row": Mutant(
        PLAIN_CONV, "line = tile.column; line <", "line = 0; line <",
        "another thread|race", case="no taps, wide",
    ),
    "lines without taps from a tile on": Mutant(
        PLAIN_CONV, "tile.out - tile.position[2] * p.axis[2].taps.phases * p.axis[2].out;",
        "tile.out;",
        "nobody wrote|another thread|out of bounds|between|race",
        case="no taps, wide",
    ),
    "phases without taps in the order of all": Mutant(
        PLAIN_CONV, "both = p.order[busy + i],", "both = i,",
        "nobody wrote|another thread|race", case="busy phases",
    ),
    "units of the first phases": Mutant(
        PLAIN_CONV, "const int phase = p.order[unit.number];", "const int phase = unit.number;",
        "nobody wrote|another thread|nothing wrote|wrong", case="busy phases",
    ),
    "no barrier behind the unit": Mutant(
        PLAIN_CONV, "    __syncthreads();\n    worker.describe();", "    worker.describe();",
        "race|nothing wrote", case="phases",
    ),
    "no barrier behind descriptions": Mutant(
        PLAIN_CONV,
        "    __syncthreads();\n    worker.convolve",
        "    worker.convolve",
        "race|nothing wrote", case="phases",
    ),
    "no wait for copies": Mutant(
        PLAIN_CONV, "            copy_async_wait<0>();\n", "",
        "race|nothing wrote|under way", case="neighbours",
    ),
    "no barrier behind inputs": Mutant(
        PLAIN_CONV, "            copy_async_wait<0>();\n            __syncthreads();\n",
        "            copy_async_wait<0>();\n",
        "race|nothing wrote|under way", case="neighbours",
    ),
    "no barrier before the next inputs": Mutant(
        PLAIN_CONV, "__syncthreads();  // nobody reads these inputs any more", "",
        "race", case="neighbours",
    ),
    "padding that counts against an infinite weight": Mutant(
        PLAIN_CONV, "if (!present | (unsigned(x)", "if (false & (unsigned(x)",
        "wrong", case="infinite",
    ),
    "infinite weights that nobody sees": Mutant(
        PLAIN_CONV, "special |= is_special(value);", "",
        "wrong", case="infinite",
    ),
}  # fmt: skip

SUITE = Suite("plain", PLAIN_CONV, MUTANTS, CASES, kernels=("plain",))
