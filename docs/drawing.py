"""The sheet on which the pictures of the documentation are drawn, and its colours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

INCHES = 0.42  # the side of one cell
INK, FADED, PALE = "#222222", "#8a8a8a", "#e8e8e8"
# Colours that the colour-blind can tell apart (Okabe and Ito), each with a pale one for areas.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#c96a00", "#00805e", "#a34d7f", "#777777"
TINTS = {
    BLUE: "#d3e7f4",
    ORANGE: "#fbe3c2",
    GREEN: "#cdebe0",
    PURPLE: "#f1d9e6",
    GREY: "#eeeeee",
}


class Picture:
    """A white sheet, measured in cells from its upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width * INCHES, height * INCHES), facecolor="white")
        FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        self.axes.set_axis_off()

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        colour: str = INK,
        size: float = 10,
        align: str = "center",
        bold: bool = False,
    ) -> None:
        self.axes.text(
            x,
            y,
            words,
            color=colour,
            fontsize=size,
            ha=align,
            va="center_baseline" if "\n" not in words else "center",
            fontweight="bold" if bold else "normal",
            linespacing=1.35,
            zorder=4,
        )

    def cell(
        self,
        x: float,
        y: float,
        content: object = "",
        *,
        fill: str = "white",
        edge: str = INK,
        dashed: bool = False,
        colour: str = INK,
        width: float = 1,
        height: float = 1,
    ) -> None:
        style = {"linestyle": (0, (2, 2)) if dashed else "-"}
        self.axes.add_patch(
            Rectangle((x, y), width, height, facecolor=fill, edgecolor=edge, zorder=3, **style)
        )
        if content != "":
            words = f"{content:g}" if isinstance(content, float) else str(content)
            self.text(x + width / 2, y + height / 2, words, colour=colour)

    def row(self, x: float, y: float, values: Sequence[object], **options: str) -> None:
        for i, value in enumerate(values):
            self.cell(x + i, y, value, **options)

    def indices(self, x: float, y: float, values: Sequence[int], step: float = 1) -> None:
        for i, value in enumerate(values):
            self.text(x + i * step + 0.5, y, str(value), colour=FADED, size=8)

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str = INK,
        *,
        width: float = 1.4,
        dashed: bool = False,
        behind: bool = False,
    ) -> None:
        style = (0, (3, 2)) if dashed else "-"
        self.axes.plot(
            *zip(start, end, strict=True),
            color=colour,
            linewidth=width,
            linestyle=style,
            solid_capstyle="round",
            zorder=1 if behind else 2,
        )

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], colour: str = INK
    ) -> None:
        self.axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=11,
                color=colour,
                linewidth=1.3,
                shrinkA=0,
                shrinkB=0,
                zorder=2,
            )
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=0.25",
                facecolor=TINTS[colour],
                edgecolor=colour,
                linewidth=1.4,
                zorder=2,
            )
        )

    def save(self, path: Path) -> None:
        salt = {"svg.hashsalt": path.stem}
        with matplotlib.rc_context(salt):
            metadata = {"Date": None} if path.suffix == ".svg" else None
            self.figure.savefig(path, dpi=130, metadata=metadata)
