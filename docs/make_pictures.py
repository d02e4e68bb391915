"""Draw the pictures of the documentation: ``python docs/make_pictures.py [folder] [svg|png]``.

The numbers in them are results of the library, or of a record of the benchmark. The same code and
records give the same files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import kernel_pictures
import numpy as np
from drawing import BLUE, FADED, GREEN, GREY, INK, ORANGE, PALE, PURPLE, TINTS, Picture

import cupyconv
from cupyconv._taps import conv_transpose_taps

FOLDER = Path(__file__).parent / "build" / "pictures"


def conv1d(x: Sequence[float], w: Sequence[float], **options: object) -> list[float]:
    return cupyconv.conv1d(np.array([x], float), np.array([[w]], float), **options)[0].tolist()


def conv_transpose1d(x: Sequence[float], w: Sequence[float], **options: object) -> list[float]:
    arrays = np.array([x], float), np.array([[w]], float)
    return cupyconv.conv_transpose1d(*arrays, **options)[0].tolist()


# Convolution ---------------------------------------------------------------------------------


def convolution() -> Picture:
    """Two axes: a window of the input, the kernel, and the output that they give."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 5, (5, 7)).astype(float)
    w = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    y = cupyconv.conv2d(x[None], w[None, None], stride=(1, 2))[0]
    row, column = 2, 1
    p = Picture(18.6, 7.4)
    for title, left, size in (("input", 1, 7), ("weight", 10, 3), ("output", 15, 3)):
        p.text(left + size / 2, 0.5, title, bold=True)
    p.indices(1, 1.15, range(7))
    p.indices(10, 1.15 + 1.5, range(3))
    p.indices(15, 1.15 + 0.5, range(3))
    for i in range(5):
        p.text(0.65, 1.5 + i + 0.5, str(i), colour=FADED, size=8)
        for j in range(7):
            inside = row <= i < row + 2 and 2 * column <= j < 2 * column + 3
            fill = TINTS[BLUE] if inside else "white"
            p.cell(1 + j, 1.5 + i, x[i, j], fill=fill)
    for i in range(2):
        p.text(9.65, 3 + i + 0.5, str(i), colour=FADED, size=8)
        p.row(10, 3 + i, w[i].tolist(), fill=TINTS[ORANGE])
    for i in range(4):
        p.text(14.65, 2 + i + 0.5, str(i), colour=FADED, size=8)
        for j in range(3):
            fill = TINTS[GREEN] if (i, j) == (row, column) else "white"
            p.cell(15 + j, 2 + i, y[i, j], fill=fill)
    p.text(9, 4.1, "*", size=17)
    p.text(14, 4, "=", size=15)
    p.text(
        9.3,
        6.95,
        "stride (1, 2):   out[2, 1] = sum over k, l of "
        f"input[2*1 + k, 1*2 + l] * weight[k, l] = {y[row, column]:g}",
    )
    return p


def window_rows(
    p: Picture,
    x0: float,
    values: Sequence[object],
    results: Sequence[object],
    taps: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    before: int = 0,
    after: int = 0,
    strong: int | None = None,
    top: float = 1.6,
    bottom: float = 4.4,
) -> None:
    """Input and output of one axis, and a line from each output to each of its taps."""
    p.indices(x0, top - 0.35, range(-before, len(values) + after))
    for i in range(before):
        p.cell(x0 + i, top, edge=FADED, dashed=True)
    for i in range(after):
        p.cell(x0 + before + len(values) + i, top, edge=FADED, dashed=True)
    reach = dilation * (taps - 1)
    read = {o * stride + k * dilation for o in range(len(results)) for k in range(taps)}
    for i, value in enumerate(values, before):
        p.cell(x0 + i, top, value, fill="white" if i in read else PALE)
    colours = (BLUE, ORANGE, GREEN, PURPLE)
    for o, result in enumerate(results):
        colour = colours[o % len(colours)]
        centre = x0 + o * stride + reach / 2
        p.cell(centre, bottom, result, fill=TINTS[colour], edge=colour)
        p.text(centre + 0.5, bottom + 1.35, str(o), colour=FADED, size=8)
        for k in range(taps):
            place = o * stride + k * dilation
            inside = before <= place < before + len(values)
            p.line(
                (centre + 0.5, bottom),
                (x0 + place + 0.5, top + 1),
                colour if inside else FADED,
                width=2.4 if o == strong else 1.2,
                dashed=not inside,
                behind=o != strong,
            )


def stride() -> Picture:
    x, w = [2, 0, 1, 3, 1, 0, 4, 2, 1], [1, 2, 1]
    y = conv1d(x, w, stride=2)
    p = Picture(14, 6.3)
    p.text(0.3, 2.1, "input", align="left", bold=True)
    p.text(0.3, 4.9, "output", align="left", bold=True)
    window_rows(p, 2.4, x, y, 3, stride=2, strong=1)
    p.text(12.6, 1.25, "weight", bold=True)
    for k, value in enumerate(w):
        p.text(11.8, 1.6 + k + 0.5, f"{k}", colour=FADED, size=8)
        p.cell(12.1, 1.6 + k, value, fill=TINTS[ORANGE])
    products = " + ".join(f"{a}*{b}" for a, b in zip(x[2:5], w, strict=True))
    p.text(7, 0.5, f"stride 2:   out[1] = {products} = {y[1]:g}")
    return p


def padding() -> Picture:
    x, w = [1, 2, 3, 4, 5], [1, 1, 1]
    y = conv1d(x, w, padding=((2, 1),))
    p = Picture(13.6, 6.3)
    p.text(0.3, 2.1, "input", align="left", bold=True)
    p.text(0.3, 4.9, "output", align="left", bold=True)
    window_rows(p, 2.6, x, y, 3, before=2, after=1)
    p.text(7, 0.5, "padding ((2, 1),), weight (1, 1, 1)")
    p.text(12.1, 3.5, "dashed:\nno product", colour=FADED, size=9)
    return p


def dilation() -> Picture:
    x, w = [2, 0, 1, 3, 1, 0, 4, 2, 1], [1, 2, 1]
    y = conv1d(x, w, dilation=3)
    p = Picture(14, 6.3)
    p.text(0.3, 2.1, "input", align="left", bold=True)
    p.text(0.3, 4.9, "output", align="left", bold=True)
    window_rows(p, 2.4, x, y, 3, dilation=3)
    p.text(12.6, 1.25, "weight", bold=True)
    for k, value in enumerate(w):
        p.text(11.8, 1.6 + k + 0.5, f"{k}", colour=FADED, size=8)
        p.cell(12.1, 1.6 + k, value, fill=TINTS[ORANGE])
    p.text(7, 0.5, "dilation 3: three taps that span 3*(3 - 1) + 1 = 7 inputs")
    return p


def groups() -> Picture:
    """Which output channels read which input channels."""
    p = Picture(21.4, 8.9)
    colours = (BLUE, ORANGE, GREEN)

    def matrix(x: float, title: str, shape: str, inputs: int, outputs: int, count: int) -> None:
        width = 6 / inputs
        p.text(x + 3, 0.5, title, bold=True)
        p.text(x + 3, 1.15, "input channel", size=9)
        for c in range(inputs):
            p.text(x + (c + 0.5) * width, 1.75, str(c), colour=FADED, size=8)
        for row in range(outputs):
            p.text(x - 0.3, 2.1 + row + 0.5, str(row), colour=FADED, size=8)
            for c in range(inputs):
                group = row * count // outputs
                own = c * count // inputs == group
                fill = TINTS[colours[group]] if own else "white"
                edge = colours[group] if own else "#d0d0d0"
                p.cell(x + c * width, 2.1 + row, fill=fill, edge="#d0d0d0", width=width)
                if own:
                    p.text(x + (c + 0.5) * width, 2.6 + row, "w", colour=edge, size=9)
        p.text(x + 3, 8.55, shape, size=9)

    p.axes.text(
        0.4, 5.1, "output channel", rotation=90, fontsize=9, ha="center", va="center", color=INK
    )
    matrix(1.4, "groups=1", "weight (6, 6, *kernel)", 6, 6, 1)
    matrix(8.4, "groups=3", "weight (6, 2, *kernel)", 6, 6, 3)
    matrix(15.2, "depthwise: groups=C_in=3", "weight (6, 1, *kernel)", 3, 6, 3)
    return p


# Transposed convolution ----------------------------------------------------------------------


def transposed() -> Picture:
    """Scatter: each input adds a copy of the kernel, and the ends are cut off."""
    x, w, step = [1, 2, 3], [1, 10, 100], 2
    full = conv_transpose1d(x, w, stride=step)
    out = conv_transpose1d(x, w, stride=step, padding=1)
    p = Picture(18.6, 9.6)
    left, colours = 6, (BLUE, ORANGE, GREEN)
    p.text(1.5, 0.5, "input", bold=True)
    p.text(left + 3.5, 0.5, "what each input adds:  stride 2, weight (1, 10, 100)", bold=True)
    for i, value in enumerate(x):
        y = 1.1 + 1.4 * i
        colour = colours[i]
        p.cell(1, y, value, fill=TINTS[colour], edge=colour)
        p.text(0.6, y + 0.5, str(i), colour=FADED, size=8)
        p.text(3.9, y + 0.5, f"{value} * weight", colour=colour)
        for k, factor in enumerate(w):
            p.cell(left + i * step + k, y, value * factor, fill=TINTS[colour], edge=colour)
        p.text(left + 7.4, y + 0.5, f"at {i}*stride + k", align="left", colour=FADED, size=9)
    p.text(left - 0.4, 5.8, "sum", align="right", bold=True)
    p.text(left + 7.4, 5.8, "102 and 203 have two terms", align="left", colour=FADED, size=9)
    for j, value in enumerate(full):
        cut = j in (0, len(full) - 1)
        colour = FADED if cut else INK
        p.cell(left + j, 5.3, value, edge=colour, dashed=cut, colour=colour)
    for j, side, align in ((0, "before", "right"), (len(full) - 1, "after", "left")):
        p.line((left + j + 0.25, 6.55), (left + j + 0.75, 7.05), FADED)
        p.line((left + j + 0.25, 7.05), (left + j + 0.75, 6.55), FADED)
        x_text = left + j + (-0.1 if j == 0 else 1.1)
        words = f"pad_{side} = 1: dropped"
        p.text(x_text, 6.8, words, align=align, colour=FADED, size=9)
    p.text(left - 0.4, 8.0, "output", align="right", bold=True)
    p.row(left + 1, 7.5, out)
    p.indices(left + 1, 8.85, range(len(out)))
    return p


def output_padding() -> Picture:
    """Two input sizes of a convolution that have one output size, and the ways back."""
    p = Picture(22.6, 7.9)
    for left, size, extra in ((1.2, 7, 0), (12.8, 8, 1)):
        middle = left + size / 2
        p.text(middle, 0.5, f"size {size}  ↔  size 3", bold=True)
        window_rows(p, left, [""] * size, [""] * 3, 3, stride=2, top=1.7, bottom=4.5)
        p.text(middle, 6.55, f"↓  conv(stride=2): {size} becomes 3", size=9)
        p.text(
            middle,
            7.25,
            f"↑  conv_transpose(stride=2, output_padding={extra}): 3 becomes {size}",
            size=9,
        )
    p.text(12.8 + 8.1, 3.45, "no window\ntakes it", colour=FADED, size=8)
    p.line((12.8 + 7.6, 3.0), (12.8 + 7.55, 2.8), FADED)
    return p


# Architecture --------------------------------------------------------------------------------


def layers() -> Picture:
    """The way of a call."""
    p = Picture(25.4, 9.9)
    p.text(1.6, 1.6, "arguments,\narrays")
    names = (
        ("1  Geometry", "_geometry.py", "shapes and values\nchecked; output\nshape", BLUE),
        ("2  Plan", "_kernels/", "kernel, macros,\ngrid and block,\nby rules", ORANGE),
        (
            "3  Compile",
            "_compile.py",
            ".cu file and macros\nto a kernel, once\nfor each device",
            GREEN,
        ),
        ("4  Launch", "_launch.py", "arguments packed,\nkernel on the\ncurrent stream", PURPLE),
    )
    passes = ("ConvGeometry", "Plan", "RawKernel")
    width, gap = 4.3, 1.3
    for i, (title, file, words, colour) in enumerate(names):
        x = 3.8 + i * (width + gap)
        p.box(x, 0.9, width, 4.2, colour)
        p.text(x + width / 2, 1.5, title, bold=True, size=11)
        p.text(x + width / 2, 2.25, file, colour=FADED, size=9)
        p.text(x + width / 2, 3.75, words, size=9.5)
        if i:
            p.arrow((x - gap + 0.08, 1.6), (x - 0.08, 1.6))
            p.text(x - gap / 2, 0.45, passes[i - 1], size=9)
    p.arrow((3.0, 1.6), (3.72, 1.6))
    p.box(9.4, 6.9, 9.9, 2.5, GREY)
    p.text(14.35, 7.5, "NumPy path", bold=True, size=11)
    p.text(14.35, 8.1, "_numpy_path.py", colour=FADED, size=9)
    p.text(14.35, 8.75, "matrix products and strided adds", size=9.5)
    geometry = 3.8 + width / 2
    p.line((geometry, 5.1), (geometry, 8.15))
    p.arrow((geometry, 8.15), (9.32, 8.15))
    p.text(geometry + 0.25, 6.4, "NumPy arrays", align="left", size=8)
    p.text(3.8 + width + gap / 2, 2.4, "CuPy\narrays", size=8)
    last = 3.8 + 3 * (width + gap) + width / 2
    p.arrow((last, 5.1), (last, 7.6))
    p.arrow((19.3, 8.15), (last - 1.0, 8.15))
    p.text(last, 8.15, "result")
    return p


def phases() -> Picture:
    """A transposed convolution of stride 2 by gather: the taps of each phase."""
    axis = conv_transpose_taps(size_in=4, size_out=7, kernel=3, stride=2, dilation=1, pad=1)
    p = Picture(14.6, 7.5)
    left, top, bottom = 4, 1.5, 5
    p.text(0.3, top + 0.5, "input", align="left", bold=True)
    p.text(0.3, bottom + 0.5, "output", align="left", bold=True)
    p.text(7.5, 0.4, "kernel 3, stride 2, padding 1; the numbers on the lines are taps")
    for i in range(axis.size_in):
        p.cell(left + 2 * i, top, i)
    colours = (BLUE, ORANGE)
    for o in range(axis.size_out):
        q, phase = divmod(o, axis.phases)
        colour = colours[phase]
        p.cell(left + o, bottom, o, fill=TINTS[colour], edge=colour)
        for tap, offset in axis.table(phase):
            i = q * axis.step + offset
            start, end = (left + o + 0.5, bottom), (left + 2 * i + 0.5, top + 1)
            p.line(start, end, colour, behind=True)
            at = 0.42
            x, y = (a + at * (b - a) for a, b in zip(start, end, strict=True))
            p.cell(x - 0.2, y - 0.25, fill="white", edge="white", width=0.4, height=0.5)
            p.text(x, y, str(tap), colour=colour, size=9)
    for phase, colour in enumerate(colours):
        words = ", ".join(f"({tap}, {offset})" for tap, offset in axis.table(phase))
        x = 0.3 + 6.6 * phase
        p.cell(x, 6.55, fill=TINTS[colour], edge=colour, width=0.6, height=0.6)
        p.text(x + 0.9, 6.85, f"phase {phase}: (tap, offset) = {words}", align="left", size=9)
    return p


def tap_table() -> Picture:
    """Which taps divide, with a stride and a dilation that have a common divisor."""
    axis = conv_transpose_taps(size_in=4, size_out=37, kernel=5, stride=4, dilation=6, pad=0)
    p = Picture(20, 6.8)
    left, top, width = 2.4, 1.9, 2.4
    p.text(left + 2.5 * width, 0.5, "phase + pad - tap*dilation,  over the stride where it divides")
    p.text(left + 2.5 * width, 1.15, "tap", bold=True, size=9)
    p.text(1.2, 1.6, "phase", bold=True, size=9)
    for k in range(axis.kernel):
        p.text(left + (k + 0.5) * width, 1.6, str(k), colour=FADED, size=9)
    for phase in range(axis.phases):
        y = top + phase * 1.15
        table = dict(axis.table(phase))
        p.text(1.2, y + 0.5, str(phase), colour=FADED, size=9)
        for k in range(axis.kernel):
            numerator = phase + axis.origin - k * axis.dilation
            taken = k in table
            p.cell(
                left + k * width,
                y,
                f"{numerator}/{axis.divisor} = {table[k]}" if taken else str(numerator),
                fill=TINTS[BLUE] if taken else "white",
                edge=BLUE if taken else "#d0d0d0",
                colour=INK if taken else FADED,
                width=width - 0.15,
            )
        first, count, offset = axis.progression(phase)
        words = f"first {first}, count {count}, offset {offset}" if count else "no tap"
        p.text(left + 5 * width + 0.15, y + 0.5, words, align="left", size=9)
    return p


PICTURES: tuple[Callable[[], Picture], ...] = (
    convolution,
    stride,
    padding,
    dilation,
    groups,
    transposed,
    output_padding,
    layers,
    phases,
    tap_table,
    *kernel_pictures.PICTURES,
)


def make(folder: Path = FOLDER, form: str = "svg") -> None:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        picture().save(folder / f"{picture.__name__}.{form}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("form", nargs="?", choices=("svg", "png"), default="svg")
    make(**vars(parser.parse_args()))
