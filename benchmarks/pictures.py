"""Pictures of a record: a roofline plot, and bars of the speed-up over a peer. Nothing else here
imports matplotlib.

All places are in inches, and none follows from how large a text becomes. So a record gives the same
picture with any version of matplotlib and any font; what shows a number has an id in an SVG file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from .limits import Ceilings, matrix_rate
from .peers import EAGER
from .precisions import PRECISIONS
from .report import Report, Row, Timing
from .timing import geometric_mean

# The colours of docs/make_pictures.py, on white for pages of any colour.
INK, FADED, PALE, FAINT = "#222222", "#777777", "#dddddd", "#f3f3f3"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#c96a00", "#00805e", "#a34d7f"
SHAPES = ("o", "s", "^", "D", "v", "P")  # of the points of a section
OURS = "ours"
POINTS: dict[str, dict[str, Any]] = {
    OURS: {"color": BLUE, "zorder": 4},
    EAGER: {"color": ORANGE, "markerfacecolor": "white", "zorder": 3},
}
OTHERS = (("D", GREEN), ("^", PURPLE))  # peers beside the one that has bars

WIDTH = 8.0  # inches
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.spines.bottom": False,
    "svg.fonttype": "none",  # text stays text: to be searched, and a fraction of the bytes
}
SMALL = 7.5
LEGEND: dict[str, Any] = {
    "frameon": False,
    "fontsize": 8,
    "handletextpad": 0.5,
    "columnspacing": 1.4,
}
TITLES = {
    "kernelbench_l1": "KernelBench level 1",
    "kernelbench_l2": "KernelBench level 2",
    "dense_seeded": "random layers",
    "depthwise_seeded": "random depthwise layers",
    "fused_seeded": "random fused operations",
    "mine": "your own cases",
}


def draw(report: Report, path: Path) -> list[Path]:
    """Draw what a record has beside `path`, whose suffix is ".svg" or ".png"; return the files."""
    files = []
    with matplotlib.rc_context(STYLE):
        for name, picture in {"roofline": roofline, "speedup": speedup}.items():
            figure = picture(report)
            if figure is not None:
                files.append(save(figure, path.with_name(f"{path.stem}-{name}{path.suffix}")))
    return files


def save(figure: Figure, path: Path) -> Path:
    """Write a figure, the same bytes each time, and return the file."""
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, dpi=150, metadata=metadata)
    return path


# Roofline ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roof:
    """TFLOP/s of matrix products, of those without Tensor Cores for float32, and of a FLOP per
    byte.
    """

    matrix: float
    plain: float | None
    copy: float

    @classmethod
    def of(cls, precision: str, ceilings: Ceilings) -> Roof:
        of = PRECISIONS[precision]
        plain = ceilings.rates["float32"] / 1e12 if precision == "float32" else None
        return cls(matrix_rate(of, ceilings) / 1e12, plain, ceilings.copy / 1e12)


def roofline(report: Report) -> Figure | None:
    """Return what is achieved over the arithmetic intensity, below the rates of the GPU: a panel
    for each precision. None where nothing was timed.
    """
    rows = [row for row in report.rows if row.ours.ms is not None]
    if not rows:
        return None
    panels = {
        name: Roof.of(name, report.ceilings) for name in dict.fromkeys(r.precision for r in rows)
    }
    shapes = dict(zip(dict.fromkeys(r.section for r in rows), itertools.cycle(SHAPES)))
    lowest = min(rate for row in rows for name in (OURS, EAGER) if (rate := _rate(row, name)))
    intensities = [row.operations / row.nbytes for row in rows]
    ridges = [roof.matrix / roof.copy for roof in panels.values()]
    x = (min(*intensities, *ridges) / 2, 2 * max(*intensities, *(2 * ridge for ridge in ridges)))
    y = (
        min(lowest, x[0] * report.ceilings.copy / 1e12) / 1.6,
        1.6 * max(roof.matrix for roof in panels.values()),
    )

    left, right, head, foot, gap = 0.6, 0.95, 0.15, 0.78, 0.2
    height = 4.2 if len(panels) == 1 else 2.6
    figure = _figure(head + len(panels) * (height + gap) - gap + foot)
    legend = [
        _point("o", BLUE, "cupyconv"),
        _point("o", ORANGE, "PyTorch with cuDNN", hollow=True),
        *(_point(shape, FADED, TITLES.get(name, name)) for name, shape in shapes.items()),
    ]
    for place, (name, roof) in enumerate(reversed(panels.items())):
        box = (left, foot + place * (height + gap), WIDTH - left - right, height)
        axes = _axes(figure, *box)
        axes.set(xscale="log", yscale="log", xlim=x, ylim=y)
        axes.tick_params(labelbottom=place == 0)
        _roof(axes, roof, name)
        if place == len(panels) - 1:  # on the topmost panel, where no point can be
            axes.legend(handles=legend, loc="upper left", **LEGEND)
        for row in rows:
            if row.precision == name:
                _achieved(axes, row, shapes[row.section])
    _write(
        figure,
        (left + WIDTH - right) / 2,
        foot - 0.4,
        "FLOP for each byte of input, weight, bias and output",
        ha="center",
    )
    middle = foot + (len(panels) * (height + gap) - gap) / 2
    _write(figure, 0.14, middle, "TFLOP/s", rotation=90, ha="center", va="center")
    return _signed(figure, report)


def _roof(axes: Axes, roof: Roof, precision: str) -> None:
    axes.grid(which="major", color=PALE, linewidth=0.7)
    axes.grid(which="minor", color=FAINT, linewidth=0.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim()
    ridge = roof.matrix / roof.copy
    axes.plot([low, ridge, high], [low * roof.copy, roof.matrix, roof.matrix], color=INK, lw=1.6)
    beside = {f"{precision}\n{roof.matrix:.0f} TFLOP/s": roof.matrix}
    if roof.plain is not None:
        line = ([roof.plain / roof.copy, high], [roof.plain] * 2)
        axes.plot(*line, color=INK, linewidth=1, dashes=(4, 3))
        beside[f"without\nTensor Cores\n{roof.plain:.0f} TFLOP/s"] = roof.plain
    for words, rate in beside.items():
        _label(axes, words, (high, rate), (5, 0), va="center", linespacing=1.3)
    ends = [axes.transData.transform((x, x * roof.copy)) for x in (low, ridge)]
    slope = math.degrees(math.atan2(*reversed(ends[1] - ends[0])))
    start, words = (low, low * roof.copy), f"copy: {roof.copy:.2f} TB/s"
    _label(axes, words, start, (4, 9), rotation=slope, rotation_mode="anchor")


def _achieved(axes: Axes, row: Row, shape: str) -> None:
    """Draw a case: our point, the peer's, and a line between them."""
    x = row.operations / row.nbytes
    rates = {name: rate for name in (EAGER, OURS) if (rate := _rate(row, name)) is not None}
    if len(rates) > 1:
        axes.plot([x, x], list(rates.values()), color="#c4c4c4", linewidth=0.8, zorder=2)
    for name, rate in rates.items():
        id = f"{name}-{row.id}-{row.precision}"
        axes.plot(x, rate, shape, gid=id, markersize=4.5, **POINTS[name])


def _rate(row: Row, name: str) -> float | None:
    """Return the TFLOP/s of ours or of a peer."""
    ms = (row.ours if name == OURS else row.peers.get(name, Timing())).ms
    return None if ms is None else row.operations / (1e9 * ms)


# Bars ----------------------------------------------------------------------------------------


def speedup(report: Report) -> Figure | None:
    """Return the peer's times over ours: a panel for each section and precision, sorted, with other
    peers as points. None where the peer did not run.
    """
    panels: dict[tuple[str, str], list[tuple[float, Row]]] = {}
    for row in report.rows:
        if (ratio := row.ratio(EAGER)) is not None:
            panels.setdefault((row.section, row.precision), []).append((ratio, row))
    if not panels:
        return None
    rows = [row for own in panels.values() for _, row in own]
    names = dict.fromkeys(name for row in rows for name in row.peers if name != EAGER)
    others = dict(zip(names, itertools.cycle(OTHERS)))
    ratios = [ratio for row in rows for name in row.peers if (ratio := row.ratio(name))]
    limits = (min(0.8, *ratios) / 1.1, max(1.6, *ratios) * 1.1)

    ids, bar, title, ticks, head, foot, right = 0.15, 0.165, 0.32, 0.32, 0.42, 0.62, 0.55
    shapes = ids + 0.25 + 0.065 * max(len(row.id) for row in rows)
    left = shapes + 0.1 + 0.056 * max(len(row.shapes) for row in rows)
    top = head + len(panels) * (title + ticks) + bar * len(rows) + foot
    figure = _figure(top)
    _legend(
        figure,
        [
            Patch(color=BLUE, label="faster than PyTorch with cuDNN"),
            Patch(color=ORANGE, label="slower"),
            *(
                _point(shape, colour, f"compared with {name}", hollow=True)
                for name, (shape, colour) in others.items()
            ),
        ],
    )
    top -= head
    for (section, precision), own in panels.items():
        own.sort(key=lambda pair: pair[0])
        _write(
            figure,
            ids,
            top - 0.22,
            f"{TITLES.get(section, section)}, {precision}",
            fontweight="bold",
        )
        bottom = top - title - bar * len(own)
        axes = _axes(figure, left, bottom, WIDTH - left - right, bar * len(own))
        axes.set(xscale="log", xlim=limits, ylim=(-0.5, len(own) - 0.5))
        _bars(axes, own, others)
        for place, (ratio, row) in enumerate(own):
            style: dict[str, Any] = {
                "y": bottom + bar * (place + 0.5),
                "va": "center_baseline",
                "size": SMALL,
            }
            _write(figure, ids, words=row.id, **style)
            _write(figure, shapes, words=row.shapes, **style)
            _write(figure, WIDTH - 0.15, words=f"{ratio:.2f}", ha="right", **style)
        top = bottom - ticks
    middle = (left + WIDTH - right) / 2
    _write(figure, middle, foot - 0.2, "PyTorch's time over cupyconv's", ha="center")
    return _signed(figure, report)


def _bars(
    axes: Axes, pairs: Sequence[tuple[float, Row]], others: dict[str, tuple[str, str]]
) -> None:
    low, high = axes.get_xlim()
    steps = (1, 1.5) if high < 8 * low else (1,)
    ratios = [step * 2.0**n for n in range(-9, 10) for step in steps]
    ticks = [ratio for ratio in ratios if low <= ratio <= high]
    axes.xaxis.set(major_locator=FixedLocator(ticks), minor_locator=NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(NullLocator())
    axes.grid(axis="x", color=PALE, linewidth=0.7)
    for place, (ratio, row) in enumerate(pairs):
        id = f"{row.id}-{row.precision}"
        colour = BLUE if ratio >= 1 else ORANGE
        (patch,) = axes.barh(place, ratio - 1, left=1, height=0.72, color=colour, zorder=2)
        patch.set_gid(f"bar-{id}")
        for name, (shape, colour) in others.items():
            if (other := row.ratio(name)) is not None:
                (point,) = axes.plot(other, place, shape, color=colour, gid=f"{name}-{id}")
                point.set(markerfacecolor="white", markersize=3.8, zorder=5)
    axes.axvline(1, color=INK, linewidth=1.4, zorder=3)
    mean = geometric_mean(ratio for ratio, _ in pairs)
    if len(pairs) > 1 and mean is not None:
        axes.axvline(mean, color=INK, linewidth=1.1, dashes=(4, 3), zorder=4)
        top = (mean, len(pairs) - 0.5)
        _label(axes, f"geometric mean {mean:.2f}", top, (0, 3), ha="center")


def layers(
    ratios: Mapping[str, Sequence[float | None]], names: Sequence[str], report: Report
) -> Figure:
    """Return bars of cuDNN's times over ours: a row for each layer, with a bar for each name."""
    with matplotlib.rc_context(STYLE):
        bar, gap, left, right, head, foot = 0.15, 0.12, 3.1, 0.55, 0.4, 0.75
        pitch = len(names) * bar + gap
        figure = _figure(head + pitch * len(ratios) + foot)
        colours = dict(zip(names, (BLUE, GREEN, ORANGE, PURPLE), strict=False))
        _legend(figure, [Patch(color=colour, label=name) for name, colour in colours.items()])
        axes = _axes(figure, left, foot, WIDTH - left - right, pitch * len(ratios))
        known = [ratio for own in ratios.values() for ratio in own if ratio is not None]
        axes.set(xlim=(0, 1.02 * max(known)), ylim=(pitch * len(ratios), 0))
        axes.yaxis.set_major_locator(NullLocator())
        axes.grid(axis="x", color=PALE, linewidth=0.7)
        for place, (layer, own) in enumerate(ratios.items()):
            top = place * pitch + gap / 2
            middle = foot + pitch * (len(ratios) - place - 0.5)
            _write(figure, left - 0.1, middle, layer, ha="right", va="center_baseline", size=8.5)
            for line, (name, ratio) in enumerate(zip(names, own, strict=True)):
                if ratio is None:
                    continue
                y = top + (line + 0.5) * bar
                (patch,) = axes.barh(y, ratio, height=0.85 * bar, color=colours[name], zorder=2)
                patch.set_gid(f"bar-{place}-{name}")
                style: dict[str, Any] = {"va": "center", "color": INK}
                _label(axes, f"{ratio:.2f}", (max(1.0, ratio), y), (4, 0), **style)
        axes.axvline(1, color=INK, linewidth=1.4, zorder=3)
        words = "cuDNN's time, in the faster of its two layouts, over cupyconv's"
        _write(figure, (left + WIDTH - right) / 2, foot - 0.42, words, ha="center")
        return _signed(figure, report)


# The sheet -----------------------------------------------------------------------------------


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    tall = figure.get_figheight()
    axes = figure.add_axes((left / WIDTH, bottom / tall, width / WIDTH, height / tall))
    axes.tick_params(which="both", length=0, labelsize=SMALL, labelcolor=INK)
    axes.set_axisbelow(True)
    return axes


def _write(figure: Figure, x: float, y: float, words: str, **style: Any) -> None:
    figure.text(x / WIDTH, y / figure.get_figheight(), words, **style)


def _label(
    axes: Axes, words: str, place: tuple[float, float], points: tuple[float, float], **style: Any
) -> None:
    """Write some points away from a place of the axes."""
    away: dict[str, Any] = {
        "xytext": points,
        "textcoords": "offset points",
        "annotation_clip": False,
    }
    axes.annotate(words, place, fontsize=SMALL, **away, **style)


def _point(shape: str, colour: str, label: str, hollow: bool = False) -> Line2D:
    face = "white" if hollow else colour
    return Line2D([], [], marker=shape, color=colour, mfc=face, ms=5, ls="", label=label)


def _legend(figure: Figure, handles: Sequence[Line2D | Patch]) -> None:
    place = {"loc": "upper left", "bbox_to_anchor": (0.005, 1)}
    figure.legend(handles=handles, ncols=len(handles), **place, **LEGEND)


def _signed(figure: Figure, report: Report) -> Figure:
    """Return a figure with what it was measured on below."""
    versions = [
        f"{name} {report.versions[name]}" for name in ("torch", "cudnn") if name in report.versions
    ]
    words = ", ".join([f"One {report.gpu}", report.date[:10], *versions])
    _write(figure, 0.15, 0.1, words, color=FADED, fontsize=SMALL)
    return figure
