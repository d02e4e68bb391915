"""The charts and tables of the documents, from the committed records.

``python -m benchmarks.charts`` draws the charts into ``docs/benchmarks`` and prints the tables,
which README.md and docs/benchmarks.rst hold as they are printed. A run draws the charts again when
it writes a record that they show.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .cases import KERNELBENCH, load
from .report import NONE, Report, Row, table
from .timing import geometric_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "records"
CHARTS = ROOT / "docs" / "benchmarks"
GPUS = ("h100", "h200")
PRECISIONS = {"float32": "float32", "tf32": "TF32", "float16": "float16", "bfloat16": "bfloat16"}
LAYOUTS = ("torch", "channels-last")  # the two in which cuDNN runs

# Layers that people know, of KernelBench's cases.
LAYERS = {
    "1/50": "AlexNet's first layer, 11×11, stride 4",
    "1/55": "VGG-style 3×3, 64 to 128 channels",
    "1/57": "decoder, transposed 3×3, 64 channels",
    "1/82": "MobileNet-style depthwise 3×3",
    "1/87": "pointwise 1×1, 64 to 128 channels",
    "1/54": "video stem, 3×3×3, 3 to 64 channels",
    "1/73": "volume decoder, transposed 3×3×3, stride 2",
    "1/76": "WaveNet-style 1-D, dilation 4, stride 3",
}
LAYERS_IN = ("float32", "float16")


def read(name: str) -> Report:
    return Report.read(RECORDS / f"{name}.json")


def reports(gpu: str) -> dict[str, Report]:
    return {name: read(f"{gpu}-{name}") for name in PRECISIONS}


def best(row: Row) -> float | None:
    """Return the time of cuDNN in its faster layout over ours."""
    ratios = [ratio for name in LAYOUTS if (ratio := row.ratio(name)) is not None]
    return min(ratios, default=None)


# Tables --------------------------------------------------------------------------------------

HEAD = ("NCHW, mean", "NCHW, lowest", "best layout, mean", "calls below 1")


def figures(rows: Sequence[Row]) -> list[str]:
    """Return the ratios of cuDNN's times to ours: in NCHW, and in its faster layout for each."""
    ratios = [ratio for row in rows if (ratio := row.ratio(LAYOUTS[0])) is not None]
    bests = [ratio for row in rows if (ratio := best(row)) is not None]
    if not ratios:
        return [NONE] * len(HEAD)
    below = sum(ratio < 1 for ratio in bests) / len(bests)
    numbers = geometric_mean(ratios), min(ratios), geometric_mean(bests)
    return [*(f"{number:.2f}" for number in numbers), f"{below:.0%}"]


def readme_table(gpu: str = "h100") -> str:
    """Return KernelBench's convolutions in each precision, in Markdown."""
    lines = [["precision", *HEAD]]
    for name, report in reports(gpu).items():
        rows = [row for row in report.rows if row.section == KERNELBENCH]
        lines.append([PRECISIONS[name], *figures(rows)])
    return table(lines, markdown=True)


def groups() -> dict[str, set[str]]:
    """Return the ids of each group of cases, by the words of the documents."""
    cases = [case for case in load() if case.kind != "fused"]

    def ids(section: str) -> set[str]:
        return {case.id for case in cases if case.section == section}

    return {
        "KernelBench, all 36": ids(KERNELBENCH),
        "24 random dense": ids("dense_seeded"),
        "12 random depthwise": ids("depthwise_seeded"),
    }


def page_table(gpu: str) -> str:
    """Return the table of a GPU for docs/benchmarks.rst."""
    lines = [["cases", "precision", *HEAD]]
    of = reports(gpu)
    for words, ids in groups().items():
        for place, (name, report) in enumerate(of.items()):
            rows = [row for row in report.rows if row.id in ids]
            if rows:
                # An empty first cell would continue the row above it.
                lines.append([words if place == 0 else "\\", PRECISIONS[name], *figures(rows)])
    return simple(lines, left=2)


def fused_table(gpu: str = "h200") -> str:
    """Return the fused operation of KernelBench and the random ones, in each precision."""
    lines = [["cases", "precision", "PyTorch", "torch.compile", "lowest"]]
    report = read(f"{gpu}-fused")
    for section, words in {
        "kernelbench_l2": "KernelBench 2/11, two",
        "fused_seeded": "6 random",
    }.items():
        for place, (name, shown) in enumerate(PRECISIONS.items()):
            rows = [r for r in report.rows if (r.section, r.precision) == (section, name)]
            ratios = [[r.ratio(peer) for r in rows] for peer in ("torch", "torch.compile")]
            known = [[ratio for ratio in own if ratio is not None] for own in ratios]
            means = [f"{geometric_mean(own):.2f}" if own else NONE for own in known]
            lowest = f"{min(itertools.chain(*known)):.2f}"
            lines.append([words if place == 0 else "\\", shown, *means, lowest])
    return simple(lines, left=2)


def simple(lines: Sequence[Sequence[str]], left: int) -> str:
    """Return a simple table of reStructuredText."""
    head, rule, *rows = table(lines, markdown=False, left=left).splitlines()
    rule = rule.replace("-", "=")
    return "\n".join([rule, head, rule, *rows, rule])


# Charts --------------------------------------------------------------------------------------


def layers(of: Mapping[str, Report]) -> Figure:
    """Return bars of cuDNN's times over ours, in its faster layout, for layers that people know."""
    from . import pictures

    ratios = {
        id: [best(next(row for row in of[name].rows if row.id == id)) for name in LAYERS_IN]
        for id in LAYERS
    }
    return pictures.layers(
        {LAYERS[id]: own for id, own in ratios.items()}, LAYERS_IN, of[LAYERS_IN[0]]
    )


SHOWN = ("h100-float32", "h100-float16")  # the records of rooflines and bars


def draw(folder: Path = CHARTS) -> list[Path]:
    """Draw all charts of the documents, and return the files."""
    from . import pictures

    folder.mkdir(exist_ok=True)
    files = [path for name in SHOWN for path in pictures.draw(read(name), folder / f"{name}.svg")]
    figure = layers({name: read(f"h100-{name}") for name in LAYERS_IN})
    files.append(pictures.save(figure, folder / "layers.svg"))
    return files


def shows(record: Path) -> bool:
    """Return whether the charts of the documents show a record."""
    return record.resolve().parent == RECORDS.resolve() and record.stem in SHOWN


def main() -> None:
    for path in draw():
        print(f"drawn: {path.relative_to(ROOT)}")
    tables = {"README.md": readme_table()}
    tables |= {f"docs/benchmarks.rst, {gpu}": page_table(gpu) for gpu in GPUS}
    tables["docs/benchmarks.rst, the fused operation"] = fused_table()
    for name, words in tables.items():
        print(f"\n{name}\n\n{words}")


if __name__ == "__main__":
    main()
