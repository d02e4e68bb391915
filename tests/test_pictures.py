"""The benchmark's pictures: that they show a record's numbers, and the committed ones the committed
records'.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import charts, pictures
from benchmarks.limits import Ceilings
from benchmarks.report import Report, Row, Timing

ROOT = Path(__file__).parents[1]
COMMITTED = charts.CHARTS
SVG = "{http://www.w3.org/2000/svg}"
PEERS = ("torch", "channels-last", "torch.compile")
MARKS = ("ours", "bar", *PEERS)


def marks(path: Path) -> dict[str, list[float]]:
    """The places of what shows a number, by their ids: a point's, or a bar's corners."""
    found = {}
    for group in ElementTree.parse(path).iter(f"{SVG}g"):
        id = group.get("id", "")
        if id.startswith(tuple(f"{mark}-" for mark in MARKS)):
            if (point := group.find(f".//{SVG}use")) is not None:
                place = [point.get("x", ""), point.get("y", "")]
            else:
                (bar,) = group.iter(f"{SVG}path")
                place = re.findall(r"[-\d.]+", bar.get("d", ""))
            assert id not in found
            found[id] = [float(number) for number in place]
    return found


def words(path: Path) -> list[str]:
    return [text.text or "" for text in ElementTree.parse(path).iter(f"{SVG}text")]


# The committed ones --------------------------------------------------------------------------


def test_committed_charts_are_those_of_their_records(tmp_path: Path) -> None:
    drawn = charts.draw(tmp_path)
    assert {path.name for path in drawn} == {path.name for path in COMMITTED.iterdir()}
    for path in drawn:
        committed = COMMITTED / path.name
        assert words(committed) == words(path)
        shown, expected = marks(committed), marks(path)
        assert list(shown) == list(expected) != []
        for id, place in expected.items():
            assert shown[id] == pytest.approx(place, abs=0.01), id


def test_documents_show_the_committed_charts_and_tables() -> None:
    """All charts are on the benchmarks page, and the README has one of them."""
    page = (ROOT / "docs" / "benchmarks.rst").read_text(encoding="utf-8")
    shown = re.findall(r"^\.\. figure:: benchmarks/(\S+)$", page, re.M)
    assert sorted(shown) == sorted(path.name for path in COMMITTED.iterdir())
    for gpu in charts.GPUS:
        assert f"\n{charts.page_table(gpu)}\n" in page
    assert f"\n{charts.fused_table()}\n" in page
    downloads = re.findall(r"<\.\./benchmarks/records/(\S+)\.json>", page)
    assert sorted(downloads) == sorted(path.stem for path in charts.RECORDS.glob("*.json"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{charts.readme_table()}\n" in readme
    images = re.findall(r"!\[[^]]+\]\((.+)\)", readme)
    assert images == ["docs/static/deblurring.png", "docs/benchmarks/layers.svg"]


def test_layers_have_a_bar_for_each_precision() -> None:
    found = marks(COMMITTED / "layers.svg")
    assert len(found) == len(charts.LAYERS_IN) * len(charts.LAYERS) == 16
    text = words(COMMITTED / "layers.svg")
    assert set(charts.LAYERS.values()) | set(charts.LAYERS_IN) <= set(text)


def test_the_best_layout_is_the_faster_one() -> None:
    both = {"torch": Timing(2.0), "channels-last": Timing(1.5), "torch.compile": Timing(0.1)}
    one = row("a", 1.0, 4.0)
    assert charts.best(one) == 4
    assert charts.best(replace(one, peers=both)) == 1.5
    assert charts.best(replace(one, peers={})) is None
    rows = [one, replace(one, peers={**both, "channels-last": Timing(0.5)})]
    assert charts.figures(rows) == ["2.83", "2.00", "1.41", "50%"]
    assert charts.figures([]) == ["–"] * 4


# What is drawn -------------------------------------------------------------------------------


def row(id: str, ours: float, theirs: float | None, section: str = "one") -> Row:
    """2 GFLOP and a tenth of a GB: 20 FLOP per byte."""
    peers = {} if theirs is None else {"torch": Timing(theirs)}
    shapes = "1×2×3 * 4×2×3"
    return Row(
        section, id, "float32", shapes, 2 * 10**9, 10**8, 0.1, "bytes", None, 9, Timing(ours), peers
    )


def report(*rows: Row) -> Report:
    rates = {"float32": 50e12, "tf32": 300e12, "float16": 800e12, "bfloat16": 800e12}
    ceilings = Ceilings(4e12, rates, "a test", scaled=False)
    versions = {"torch": "1.2", "cudnn": "3.4"}
    return Report("2026-01-02T03:04:05+00:00", "GPU", 7, "ones", versions, ceilings, list(rows))


def drawn(tmp_path: Path, *rows: Row) -> dict[str, Path]:
    files = pictures.draw(report(*rows), tmp_path / "run.svg")
    return {path.stem.removeprefix("run-"): path for path in files}


def test_bars_are_ratios_and_sorted(tmp_path: Path) -> None:
    rows = row("a", 2.0, 4.0), row("b", 1.0, 8.0), row("c", 4.0, 2.0), row("d", 1.0, None)
    path = drawn(tmp_path, *rows)["speedup"]
    corners = {id: np.reshape(place, (-1, 2)) for id, place in marks(path).items()}
    # A logarithmic axis: from 1 to 8 is three times as far as to 2, and to 1/2 on the other side.
    spans = {id: corner[:, 0] for id, corner in corners.items()}
    one = min(spans["bar-a-float32"])
    assert min(spans["bar-b-float32"]) == pytest.approx(one, abs=0.01)
    assert max(spans["bar-c-float32"]) == pytest.approx(one, abs=0.01)
    octave = max(spans["bar-a-float32"]) - one
    assert octave > 10
    assert max(spans["bar-b-float32"]) - one == pytest.approx(3 * octave, abs=0.05)
    assert one - min(spans["bar-c-float32"]) == pytest.approx(octave, abs=0.05)
    heights = {id: corner[:, 1].mean() for id, corner in corners.items()}  # downwards in SVG
    assert sorted(heights, key=lambda id: heights[id]) == [
        "bar-b-float32",
        "bar-a-float32",
        "bar-c-float32",
    ]
    text = words(path)
    assert [word for word in text if word in "abcd"] == ["c", "a", "b"]
    assert {"0.50", "2.00", "8.00", "geometric mean 2.00", "one, float32"} <= set(text)
    assert "One GPU, 2026-01-02, torch 1.2, cudnn 3.4" in text


def test_slower_ones_have_another_colour(tmp_path: Path) -> None:
    path = drawn(tmp_path, row("a", 1.0, 2.0), row("b", 1.0, 0.9))["speedup"]
    fills = {
        group.get("id"): re.findall("fill: (#[0-9a-f]+)", bar.get("style", ""))
        for group in ElementTree.parse(path).iter(f"{SVG}g")
        for bar in group.iterfind(f"{SVG}path")
    }
    assert fills["bar-a-float32"] == [pictures.BLUE]
    assert fills["bar-b-float32"] == [pictures.ORANGE]


def test_other_peers_are_points_on_the_same_axis(tmp_path: Path) -> None:
    one = row("a", 1.0, 2.0)
    more = {"channels-last": Timing(2.0), "torch.compile": Timing(0.5)}
    one = replace(one, peers=one.peers | more | {"broken": Timing(failure="no engine")})
    path = drawn(tmp_path, one)["speedup"]
    found = marks(path)
    bar = np.reshape(found["bar-a-float32"], (-1, 2))
    start, end = min(bar[:, 0]), max(bar[:, 0])
    assert found["channels-last-a-float32"] == pytest.approx([end, bar[:, 1].mean()], abs=0.5)
    assert found["torch.compile-a-float32"][0] == pytest.approx(2 * start - end, abs=0.5)
    assert len(found) == 3
    assert {"compared with channels-last", "compared with torch.compile"} <= set(words(path))


def test_the_roofline_shows_rates_over_intensity(tmp_path: Path) -> None:
    one = row("a", 0.1, 0.2)  # 20 and 10 TFLOP/s
    dense = replace(row("b", 0.1, 0.8), nbytes=one.nbytes // 8)
    path = drawn(tmp_path, one, dense, row("c", 0.1, None, "two"))["roofline"]
    found = marks(path)
    assert set(found) == {f"{who}-{id}-float32" for id in "ab" for who in ("ours", "torch")} | {
        "ours-c-float32"
    }
    (x, y), (below_x, below_y) = found["ours-a-float32"], found["torch-a-float32"]
    octave = below_y - y
    assert octave > 5 and below_x == pytest.approx(x)
    right_x, right_y = found["ours-b-float32"]
    assert right_y == pytest.approx(y)
    assert found["torch-b-float32"] == pytest.approx([right_x, right_y + 3 * octave], abs=0.05)
    # Both axes are logarithmic: the copy rate is a line of slope 1 in octaves.
    assert right_x > x
    assert found["ours-c-float32"] == pytest.approx([x, y])
    assert {"float32", "100 TFLOP/s", "50 TFLOP/s", "copy: 4.00 TB/s", "one", "two"} <= set(
        words(path)
    )


def test_points_lie_below_the_roof_by_their_share_of_the_limit(tmp_path: Path) -> None:
    """A case as fast as a copy is on the roof's slope, one as fast as a product on its top."""
    slope = replace(row("a", 1e3 * 10**8 / 4e12, None))
    top = replace(row("b", 1e3 * 2e9 / 100e12, None), nbytes=10**6)
    path = drawn(tmp_path, slope, top)["roofline"]
    found = marks(path)
    roof = next(
        np.reshape([float(n) for n in re.findall(r"[-\d.]+", line.get("d", ""))], (-1, 2))
        for line in ElementTree.parse(path).iter(f"{SVG}path")
        if f"stroke: {pictures.INK}" in line.get("style", "")
    )
    x, y = np.transpose(roof)
    assert np.all(np.diff(x) > 0)
    for id in ("ours-a-float32", "ours-b-float32"):
        place, height = found[id]
        assert height == pytest.approx(np.interp(place, x, y), abs=0.1)
    assert found["ours-a-float32"][1] > found["ours-b-float32"][1] + 5  # the slope, and the top


def test_a_panel_for_each_precision(tmp_path: Path) -> None:
    rows = [replace(row("a", 0.1, 0.2), precision=name) for name in ("float32", "tf32")]
    files = drawn(tmp_path, *rows)
    assert {"one, float32", "one, tf32"} <= set(words(files["speedup"]))
    found = marks(files["roofline"])
    assert found["ours-a-float32"][1] < found["ours-a-tf32"][1] - 50
    assert {"100 TFLOP/s", "300 TFLOP/s"} <= set(words(files["roofline"]))


def test_what_cannot_be_drawn_is_left_out(tmp_path: Path) -> None:
    assert set(drawn(tmp_path, row("a", 0.1, None))) == {"roofline"}
    failed = replace(row("b", 0.1, 0.2), ours=Timing(failure="wrong"))
    assert drawn(tmp_path, failed) == {}
    assert set(marks(drawn(tmp_path, row("a", 0.1, 0.2), failed)["roofline"])) == {
        "ours-a-float32",
        "torch-a-float32",
    }


def test_the_same_record_gives_the_same_file(tmp_path: Path) -> None:
    first = {name: path.read_bytes() for name, path in drawn(tmp_path, row("a", 1, 2)).items()}
    again = {name: path.read_bytes() for name, path in drawn(tmp_path, row("a", 1, 2)).items()}
    assert first == again


def test_png(tmp_path: Path) -> None:
    files = pictures.draw(report(row("a", 1.0, 2.0)), tmp_path / "run.png")
    assert [path.name for path in files] == ["run-roofline.png", "run-speedup.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files)
