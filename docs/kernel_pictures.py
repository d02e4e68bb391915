"""The pictures of the pages about kernels: how data flows, and what happens at the same time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from drawing import BLUE, FADED, GREEN, GREY, INK, ORANGE, PALE, PURPLE, TINTS, Picture

# The run whose rates and float32 times the roofline shows.
RECORD = Path(__file__).parents[1] / "benchmarks" / "records" / "h100-float32.json"


def job(
    p: Picture, x: float, y: float, width: float, words: str, colour: str, *, size: float = 9
) -> None:
    """One piece of work on a time line."""
    p.cell(x, y, fill=TINTS[colour], edge=colour, width=width)
    p.text(x + width / 2, y + 0.5, words, size=size)


def part(
    p: Picture,
    x: float,
    y: float,
    width: float,
    height: float,
    title: str,
    words: str,
    colour: str,
) -> None:
    """A box with a title and what happens in it."""
    p.box(x, y, width, height, colour)
    p.text(x + width / 2, y + 0.6, title, bold=True, size=10)
    p.text(x + width / 2, y + (height + 0.9) / 2, words, size=9)


def time_axis(p: Picture, y: float, end: float) -> None:
    p.arrow((end - 4.2, y), (end, y), FADED)
    p.text(end - 4.9, y, "time", colour=FADED, size=9)


# How it beats cuDNN --------------------------------------------------------------------------


def float32_roofline() -> Picture:
    """Rates over arithmetic intensity, below the roofs of four ways to multiply float32."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    rates, copy = record["ceilings"]["rates"], record["ceilings"]["copy"] / 1e12
    roofs = (
        (rates["float16"] / 2e12, "2 float16 products", INK),
        (rates["float16"] / 3e12, "3 float16 products", BLUE),
        (rates["tf32"] / 3e12, "3 TF32 products", PURPLE),
        (rates["float32"] / 1e12, "FMA instructions", GREY),
    )
    left, right, top, bottom = 2.0, 19.0, 1.0, 10.6
    low_x, high_x, low_y, high_y = 0.5, 1024.0, 0.3, 500.0
    p = Picture(23.6, 12.6)

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = math.log(intensity / low_x) / math.log(high_x / low_x)
        y = math.log(rate / low_y) / math.log(high_y / low_y)
        return left + x * (right - left), bottom - y * (bottom - top)

    for power in range(0, 11, 2):
        x, _ = at(2**power, 1)
        p.line((x, top), (x, bottom), PALE, width=0.8, behind=True)
        p.text(x, bottom + 0.5, str(2**power), colour=FADED, size=9)
    for rate in (0.3, 1, 3, 10, 30, 100, 300):
        _, y = at(1, rate)
        p.line((left, y), (right, y), PALE, width=0.8, behind=True)
        p.text(left - 0.3, y, str(rate), colour=FADED, size=9, align="right")
    p.text((left + right) / 2, bottom + 1.3, "FLOP for each byte of input, weight and output")
    p.text(0.3, 0.45, "TFLOP/s in float32", align="left")
    for rate, words, colour in roofs:
        knee = rate / copy
        p.line(at(knee, rate), at(high_x, rate), colour, width=1.6)
        _, y = at(high_x, rate)
        p.text(right + 0.3, y, f"{rate:.0f}: {words}", colour=colour, size=9, align="left")
    p.line(at(low_x, copy * low_x), at(roofs[0][0] / copy, roofs[0][0]), INK, width=1.6)
    x, y = at(5, copy * 5)
    p.text(x - 0.3, y - 0.4, f"copy: {copy:.2f} TB/s", size=9, align="right")
    for row in record["rows"]:
        if row["section"] != "kernelbench_l1":
            continue
        intensity = row["operations"] / row["nbytes"]
        for milliseconds, colour, fill in (
            (row["peers"]["torch"]["ms"], ORANGE, "white"),
            (row["ours"]["ms"], BLUE, BLUE),
        ):
            x, y = at(intensity, row["operations"] / milliseconds / 1e9)
            p.axes.plot([x], [y], "o", color=colour, markerfacecolor=fill, markersize=4.5, zorder=5)
    for i, (words, colour, fill) in enumerate(
        (("cupyconv", BLUE, BLUE), ("cuDNN", ORANGE, "white"))
    ):
        y = 9.0 + 0.8 * i
        p.axes.plot([15.0], [y], "o", color=colour, markerfacecolor=fill, markersize=4.5, zorder=5)
        p.text(15.5, y, words, align="left", size=9)
    return p


def float16_pair() -> Picture:
    """A scaled float32 number as two float16 numbers, the exponent windows, the products."""
    p = Picture(24.4, 10.6)
    left, bit = 5.6, 0.62
    p.text(left - 0.4, 1.0, "value * 2**shift", align="right", size=9.5)
    p.cell(left, 0.5, "24 significant bits of float32", width=24 * bit, fill=PALE)
    p.text(left - 0.4, 2.7, "float16 numbers", align="right", size=9.5)
    p.cell(left, 2.2, "high: 11 bits", width=11 * bit, fill=TINTS[BLUE], edge=BLUE)
    p.cell(
        left + 11.2 * bit,
        2.2,
        "low: 11 bits, times 2**11",
        width=11 * bit,
        fill=TINTS[ORANGE],
        edge=ORANGE,
    )
    p.cell(left + 22.4 * bit, 2.2, "rest", width=1.9 * bit, edge=FADED, dashed=True, colour=FADED)
    for x in (0, 11.1, 22.3):
        p.line((left + x * bit, 1.5), (left + x * bit, 2.2), FADED, dashed=True, width=0.9)
    p.text(left - 0.4, 4.6, "exponent", align="right", size=9.5)
    p.text(left - 0.4, 5.6, "window", align="right", size=9.5)
    width = 3.7
    windows = (("43 ... 15", "-1"), ("14 ... -14", "0"), ("-15 ... -43", "1"), ("-44 ... -72", "2"))
    for i, (exponents, number) in enumerate(windows):
        x = left + i * (width + 0.1)
        fill = TINTS[GREEN] if number == "0" else "white"
        p.text(x + width / 2, 4.6, exponents, size=9)
        p.cell(x, 5.1, number, width=width, fill=fill, edge=GREEN)
    p.text(left + width * 1.5 + 0.1, 6.6, "nearly all numbers", colour=GREEN, size=9)
    p.text(left - 0.4, 8.2, "one product", align="right", size=9.5)
    terms = (
        ("high * low", ORANGE, "chain of small products,\nadded times 2**-11"),
        ("low * high", ORANGE, ""),
        ("high * high", BLUE, "chain of large products,\nadded with rounding"),
        ("low * low", GREY, "left out:\n2**-22 of the product"),
    )
    for i, (words, colour, note) in enumerate(terms):
        x = left + i * (width + 0.1)
        dashed = colour == GREY
        p.cell(
            x,
            7.7,
            words,
            width=width,
            fill="white" if dashed else TINTS[colour],
            edge=colour,
            dashed=dashed,
        )
        centre = x + width / 2 + (width / 2 + 0.05 if i == 0 else 0)
        if note:
            p.text(centre, 9.5, note, colour=FADED, size=8.5)
    return p


def shifted_taps() -> Picture:
    """The operand of each tap is the same staged row of chunks from another start address."""
    p = Picture(24.4, 8.8)
    left, count, width = 6.4, 12, 7
    p.text(left - 0.4, 1.5, "channels 0-7", align="right", size=9)
    p.text(left - 0.4, 2.5, "channels 8-15", align="right", size=9)
    p.indices(left, 0.6, range(count))
    p.text(0.3, 0.6, "16-byte chunk", align="left", size=9, colour=FADED)
    for half in range(2):
        for i in range(count):
            p.cell(left + i, 1 + half, fill=TINTS[BLUE], edge=BLUE)
    for tap, colour in enumerate((ORANGE, GREEN, PURPLE)):
        y = 4.0 + 1.25 * tap
        p.text(
            left - 0.4, y + 0.5, f"tap {tap}: start + {tap}", align="right", size=9, colour=colour
        )
        p.cell(
            left + tap,
            y,
            "N columns of one instruction",
            width=width,
            fill=TINTS[colour],
            edge=colour,
        )
        p.line((left + tap, 3.05), (left + tap, y), colour, dashed=True, width=1)
    p.text(left + count + 0.6, 1.5, "positions x of one row,\nstaged once,", align="left", size=9)
    p.text(left + count + 0.6, 2.75, "zeros for the padding", align="left", size=9)
    p.text(
        left + 10.6, 5.8, "A tap of y is the same with\nthe row pitch added.", align="left", size=9
    )
    p.text(
        left,
        8.2,
        "No copy, no im2col buffer: the descriptor's start address moves by 16 bytes a tap.",
        align="left",
        size=9.5,
    )
    return p


def ping_pong() -> Picture:
    """Producers run ahead; two consumer warpgroups take turns on the Tensor Cores."""
    p = Picture(25.0, 9.4)
    left = 5.4
    lanes = {
        "weights": 0.7,
        "inputs": 2.0,
        "first": 3.6,
        "second": 4.9,
        "tensor": 6.5,
    }
    for lane, words in (
        ("weights", "producer warp:\nweights, bulk copy"),
        ("inputs", "producer warps:\ninputs, load and store"),
        ("first", "consumer warpgroup 0"),
        ("second", "consumer warpgroup 1"),
        ("tensor", "Tensor Cores"),
    ):
        p.text(left - 0.4, lanes[lane] + 0.5, words, align="right", size=8.5)
    for i in range(6):
        job(p, left + 1.55 * i, lanes["weights"], 1.3, f"W{i}", ORANGE)
    job(p, left + 6 * 1.55, lanes["weights"], 6.9, "next tile", ORANGE)
    for i in range(3):
        job(p, left + 2.9 * i, lanes["inputs"], 2.7, f"inputs {i}", BLUE)
    job(p, left + 3 * 2.9, lanes["inputs"], 7.5, "inputs of the next tile", BLUE)
    turn, begin = 2.2, left + 2.9
    for i in range(6):
        colour = GREEN if i % 2 == 0 else PURPLE
        lane = "first" if i % 2 == 0 else "second"
        x = begin + turn * i
        width = turn - 0.1
        if x + width > left + 16.3:
            break
        job(p, x, lanes[lane], width, "multiply", colour)
        job(p, x, lanes["tensor"], width, str(i % 2), colour)
        if i < 4:
            p.cell(x + turn, lanes[lane], "add, wait", width=width, edge=FADED, colour=FADED)
    job(p, begin + 5 * turn, lanes["first"], 5.1, "epilogue", GREEN)
    job(p, begin + 6 * turn, lanes["second"], 2.9, "epilogue", PURPLE)
    time_axis(p, 8.7, 24.4)
    p.text(
        left,
        8.7,
        "W0, W1, ...: stages of the rings; full and empty mbarriers",
        align="left",
        size=9,
        colour=FADED,
    )
    return p


# The kernels ---------------------------------------------------------------------------------


def dense_flow() -> Picture:
    """What moves where in a block of the dense kernel."""
    p = Picture(25.4, 10.4)
    for x, words in ((2.5, "global memory"), (11.0, "shared memory"), (20.0, "registers")):
        p.text(x, 0.5, words, colour=FADED, size=9)
    part(p, 0.4, 1.1, 4.4, 2.6, "Packed weights", "split or rounded,\nin mainloop order", ORANGE)
    part(p, 0.4, 5.0, 4.4, 2.6, "Input", "any strides,\nrows along x", BLUE)
    part(
        p,
        8.2,
        1.1,
        5.6,
        2.6,
        "Ring of weights",
        "stage: up to 8 or 16 K steps\nof 64 or 128 rows",
        ORANGE,
    )
    part(
        p,
        8.2,
        5.0,
        5.6,
        2.6,
        "Ring of inputs",
        "stage: channels of a tile\nwith its halo, zeros outside",
        BLUE,
    )
    part(
        p,
        17.2,
        2.6,
        5.6,
        3.6,
        "Consumer warpgroups",
        "wgmma reads both rings;\naccumulators, and chains\nfor float32 accuracy",
        GREEN,
    )
    part(p, 17.2, 7.4, 5.6, 2.6, "Epilogue", "bias, scale, round;\nrows of outputs by warp", GREEN)
    part(p, 0.4, 8.3, 4.4, 1.8, "Output", "any strides", PURPLE)
    p.arrow((4.9, 2.4), (8.1, 2.4))
    p.text(6.5, 1.9, "bulk copy", size=8.5)
    p.arrow((4.9, 6.3), (8.1, 6.3))
    p.text(6.5, 5.5, "loads, then\n16-byte chunks", size=8.5)
    p.arrow((13.9, 2.6), (17.1, 3.7))
    p.arrow((13.9, 6.0), (17.1, 4.9))
    p.text(15.4, 2.6, "left\noperand", size=8.5)
    p.text(15.3, 6.4, "right operand", size=8.5)
    p.arrow((20.0, 6.3), (20.0, 7.3))
    p.arrow((17.1, 9.0), (4.9, 9.0))
    p.text(11, 8.6, "through a buffer of each warp", size=8.5)
    p.text(24.0, 9.0, "not finite?\nexact\nrecom-\nputation", size=8, colour=FADED)
    return p


def depthwise_windows() -> Picture:
    """Windows of inputs in registers move up by one line for each tap of y."""
    p = Picture(24.0, 9.2)
    p.text(4.0, 0.5, "staged lines (shared memory)", bold=True, size=9.5)
    for line in range(6):
        for x in range(7):
            inside = 2 <= x < 6
            colour = (BLUE, BLUE, BLUE, BLUE, ORANGE, GREEN)[line]
            p.cell(
                0.6 + x,
                1.1 + line * 1.15,
                fill=TINTS[colour] if inside else "white",
                edge=colour if inside else "#d0d0d0",
            )
        p.text(8.0, 1.6 + line * 1.15, f"w{line}", align="left", size=9)
    p.text(
        4.0, 8.5, "a window: TAPS + 1 inputs,\nfor two outputs of 3 taps", size=8.5, colour=FADED
    )
    p.text(16.6, 0.5, "windows in the registers of a thread", bold=True, size=9.5)
    p.text(11.6, 1.35, "outputs", size=8.5, colour=FADED, align="right")
    for line in range(4):
        p.text(12.6 + 2.4 * line, 1.35, f"line {line}", size=8.5, colour=FADED)
    for tap in range(3):
        y = 1.9 + 2.0 * tap
        p.text(11.4, y + 0.5, f"tap {tap} of y", align="right", size=9)
        for line in range(4):
            window = tap + line
            new = tap > 0 and line == 3
            colour = (BLUE, ORANGE, GREEN)[tap] if new else BLUE
            if window == 4 and tap == 2:
                colour = ORANGE
            p.cell(11.8 + 2.4 * line, y, f"w{window}", width=1.8, fill=TINTS[colour], edge=colour)
    p.text(21.4, 4.4, "read into\nthe place\nof w0", align="left", size=8.5)
    p.text(21.4, 6.4, "read into\nthe place\nof w1", align="left", size=8.5)
    p.text(
        16.4,
        8.5,
        "each tap of y reads one window and TAPS weights\nfor 2 * LINES * TAPS multiply-adds",
        size=9,
    )
    return p


def depthwise_band() -> Picture:
    """A line of taps as a banded matrix: 16 lines of 8 inputs give 8 outputs of each line."""
    p = Picture(24.6, 8.4)
    p.text(4.8, 0.5, "left operand: inputs as they lie", bold=True, size=9.5)
    p.text(15.2, 0.5, "right operand: taps on diagonals", bold=True, size=9.5)
    for row in range(5):
        for x in range(8):
            p.cell(0.8 + x, 1.4 + row, fill=TINTS[BLUE], edge=BLUE)
    p.indices(0.8, 1.05, range(8))
    p.text(4.8, 6.9, "16 lines x 8 inputs (ldmatrix)", size=9)
    p.text(9.8, 3.9, "x", size=15)
    names = "abc"
    for i in range(8):
        p.text(10.9, 1.4 + 0.62 * i + 0.31, str(i), size=8, colour=FADED)
        for o in range(8):
            tap = i - o
            inside = 0 <= tap < 3
            p.cell(
                11.2 + o,
                1.4 + 0.62 * i,
                names[tap] if inside else "",
                height=0.62,
                fill=TINTS[ORANGE] if inside else "white",
                edge="#d0d0d0",
            )
    p.text(15.2, 1.05, "outputs 0 ... 7", size=8, colour=FADED)
    p.text(15.2, 6.9, "inputs 8, 9: a second product adds what is missing", size=9)
    p.text(20.0, 3.9, "=", size=15)
    for row in range(5):
        p.cell(20.8, 1.4 + row, fill=TINTS[GREEN], edge=GREEN, width=3.2)
    p.text(22.4, 0.5, "accumulators", bold=True, size=9.5)
    p.text(22.4, 6.9, "16 lines x 8 outputs", size=9)
    p.text(
        12.3,
        7.8,
        "one mma of 16 x 8 x 8 in place of 4 multiply-adds a lane for each tap",
        size=9,
        colour=FADED,
    )
    return p


def fma_flow() -> Picture:
    """A tile of the FMA kernel: staged inputs, sums of a thread, the buffer of a line."""
    p = Picture(25.0, 9.0)
    part(
        p,
        0.4,
        1.2,
        5.0,
        5.6,
        "Staged inputs",
        "all channels of a tile\nwith its halo;\nstrided axes split\ninto planes",
        BLUE,
    )
    part(p, 7.4, 1.2, 4.4, 2.5, "Weights", "8 rows of a step:\ntwo 16-byte loads", ORANGE)
    part(p, 7.4, 4.3, 4.4, 2.5, "Step table", "offset of the step's\ninput", GREY)
    p.text(15.6, 0.6, "sums of a thread", bold=True, size=9.5)
    for row in range(8):
        for column in range(4):
            p.cell(13.6 + column, 1.2 + 0.66 * row, fill=TINTS[GREEN], edge=GREEN, height=0.66)
    p.text(15.6, 6.9, "8 output channels x\n2, 4 or 8 positions", size=8.5)
    p.arrow((5.5, 4.0), (13.5, 4.0))
    p.arrow((11.9, 2.4), (13.5, 2.4))
    p.arrow((11.9, 5.5), (13.5, 5.5))
    part(p, 19.6, 1.2, 5.0, 2.9, "Line buffer", "phases of x are\ninterleaved here", PURPLE)
    part(p, 19.6, 5.2, 5.0, 1.9, "Output", "one bulk store a line", PURPLE)
    p.arrow((17.7, 2.6), (19.5, 2.6))
    p.arrow((22.1, 4.2), (22.1, 5.1))
    p.arrow((17.7, 6.0), (19.5, 6.0))
    p.text(18.6, 5.4, "one phase", size=8)
    p.text(
        2.9, 7.4, "copied by cp.async while the\nprevious tile is stored", size=8.5, colour=FADED
    )
    p.text(
        12.5,
        8.5,
        "A block keeps one phase of z and y and its weights, and takes tile after tile.",
        size=9,
    )
    return p


def few_channel_flow() -> Picture:
    """Inputs pass from memory to registers; warpgroups overlap by taking tiles independently."""
    p = Picture(25.0, 10.2)
    part(p, 0.4, 0.7, 4.6, 2.6, "Input", "8 bytes of a channel\nfor each thread", BLUE)
    part(p, 7.2, 0.7, 5.0, 2.6, "Registers", "left operand:\npositions are the rows", BLUE)
    part(p, 14.2, 0.7, 4.4, 2.6, "wgmma", "64 positions x\noutput channels", GREEN)
    part(p, 20.2, 0.7, 4.4, 2.6, "Output", "runs of 64 bytes\nof each channel", PURPLE)
    part(p, 14.2, 4.3, 4.4, 2.0, "Shared memory", "weights, copied once", ORANGE)
    for a, b in ((5.1, 7.1), (12.3, 14.1), (18.7, 20.1)):
        p.arrow((a, 2.0), (b, 2.0))
    p.arrow((16.4, 4.2), (16.4, 3.4))
    p.text(7.2, 5.3, "No input and no accumulator passes\nthrough shared memory.", size=9)
    left = 4.6
    for group in range(3):
        y = 6.9 + 0.85 * group
        p.text(left - 0.4, y + 0.35, f"warpgroup {group}", align="right", size=8.5)
        x = left + 1.7 * group
        while x < 22.0:
            for words, width, colour in (
                ("wait: loads", 1.9, BLUE),
                ("multiply", 1.7, GREEN),
                ("store", 1.4, PURPLE),
            ):
                if x + width > 23.0:
                    x = 30
                    break
                p.cell(x, y, fill=TINTS[colour], edge=colour, width=width, height=0.7)
                p.text(x + width / 2, y + 0.35, words, size=8)
                x += width + 0.05
    time_axis(p, 9.75, 24.4)
    return p


def gather_strip() -> Picture:
    """Which outputs of a strip take each line of inputs, with one and with two lines a step."""
    p = Picture(22.0, 6.6)
    left = 6.0
    p.text(left - 0.4, 0.9, "line of inputs", align="right", size=9)
    for line in range(9):
        p.text(left + 1.7 * line + 0.8, 0.9, str(line), colour=FADED, size=9)
    for block, step in enumerate((1, 2)):
        y = 1.4 + 2.4 * block
        p.text(left - 0.4, y + 0.9, f"outputs that take it,\nstride {step}", align="right", size=9)
        for line in range(9):
            takes = [o for o in range(8) if 0 <= line - o * step < 3]
            for i, output in enumerate(takes[:3]):
                colour = (BLUE, ORANGE, GREEN, PURPLE)[output % 4]
                p.cell(
                    left + 1.7 * line + 0.52 * i,
                    y + 0.4,
                    str(output),
                    width=0.52,
                    fill=TINTS[colour],
                    edge=colour,
                )
    p.text(
        11.0,
        6.1,
        "3 taps high: each input is loaded once for all outputs of the strip that take it",
        size=9,
    )
    return p


def pipeline() -> Picture:
    """What a block of direct_conv.cu does at the same time."""
    p = Picture(21.6, 6.1)
    left, lanes = 5.0, {"load": 0.6, "store": 2.1, "multiply": 3.6}
    for lane, words in (
        ("load", "global memory\nto registers"),
        ("store", "registers to\nshared memory"),
        ("multiply", "multiply-adds"),
    ):
        p.text(left - 0.5, lanes[lane] + 0.5, words, align="right", size=9)

    def job(lane: str, x: float, width: float, words: str, colour: str) -> None:
        p.cell(x, lanes[lane], words, fill=TINTS[colour], edge=colour, width=width)

    x, load, store, multiply = left, 2.2, 2.0, 3.4
    job("load", x, load, "slice 0", BLUE)
    x += load
    job("store", x, store, "stage 0", ORANGE)
    x += store + 0.15
    for slice_ in range(2):
        p.line((x, 0.2), (x, 4.9), FADED, dashed=True)
        x += 0.15
        job("load", x, load, f"slice {slice_ + 1}", BLUE)
        job("multiply", x, multiply, f"slice {slice_}", GREEN)
        x += multiply
        job("store", x, store, f"stage {(slice_ + 1) % 2}", ORANGE)
        x += store + 0.15
    p.line((x, 0.2), (x, 4.9), FADED, dashed=True)
    p.text(x + 0.5, 2.6, "...", size=12)
    p.text(left, 5.5, "dashed: a barrier of the block", align="left", colour=FADED, size=9)
    p.arrow((15.4, 5.5), (20.6, 5.5), FADED)
    p.text(14.7, 5.5, "time", colour=FADED, size=9)
    return p


PICTURES: tuple[Callable[[], Picture], ...] = (
    float32_roofline,
    float16_pair,
    shifted_taps,
    ping_pong,
    dense_flow,
    depthwise_windows,
    depthwise_band,
    fma_flow,
    few_channel_flow,
    gather_strip,
    pipeline,
)
