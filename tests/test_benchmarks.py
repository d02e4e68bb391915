"""The benchmark's parts that need no GPU: cases, limits, float64 sums, records and tables."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

import cupyconv
import reference as definition
from benchmarks import __main__ as program
from benchmarks import cases, charts, data, draw, jobs, limits, mine, peers, reference, run, timing
from benchmarks import report as reports
from benchmarks.cases import Convolution, Fused
from benchmarks.limits import Ceilings
from benchmarks.precisions import PRECISIONS, RATES
from benchmarks.report import HostRow, Report, Row, Timing
from cupyconv import _explain
from cupyconv._kernels import choice
from cupyconv._kernels.chips import CHIPS

ROOT = Path(__file__).parents[1]
ALL = cases.load()
BY_ID = {case.id: case for case in ALL}
H200 = Ceilings(
    copy=4.27e12,
    rates={"float32": 50.9e12, "tf32": 404e12, "float16": 746e12, "bfloat16": 776e12},
    source="a test",
    scaled=True,
)


# Cases ---------------------------------------------------------------------------------------


def items() -> list[dict[str, Any]]:
    return [
        item
        for path in sorted((ROOT / "benchmarks").glob("*.json"))
        for item in json.loads(path.read_text(encoding="utf-8"))
    ]


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(ALL) == len(items()) >= 38


@pytest.mark.parametrize("item", items(), ids=lambda item: item["id"])
def test_the_files_agree_with_what_is_computed(item: dict[str, Any]) -> None:
    case = BY_ID[item["id"]]
    if "output" in item:
        assert case.output == tuple(item["output"])
    if "gflop" in item:
        assert case.operations / 1e9 == pytest.approx(item["gflop"], abs=0.0051)
        assert 4 * case.elements / 1e9 == pytest.approx(item["gbyte_f32"], abs=0.00051)


def chosen(*names: str) -> set[str]:
    return {case.id for case in cases.select(ALL, names)[0]}


def test_kinds_of_kernelbench() -> None:
    """Dense are the cases for Tensor Cores; each case is of one kind."""
    dense = "55 56 57 58 61 62 63 64 65 67 68 69 70 71 73 74 76 77 78 79 80 86b 87"
    level1 = {
        "dense": dense,
        "few-channels": "50 54 59 60 66",
        "grouped": "72 75",
        "sparse": "81",
        "depthwise": "82 83 84 85 86a",
    }
    kernelbench = chosen("kernelbench_l1")
    assert len(kernelbench) == 36
    for kind, numbers in level1.items():
        assert chosen(kind) & kernelbench == {f"1/{number}" for number in numbers.split()}
    assert chosen("pointwise") & kernelbench == {"1/86b", "1/87"}
    assert chosen("fused") >= {"2/11", "2/11-given"}
    assert chosen("transposed") & chosen("1d") & kernelbench == {"1/64", "1/74", "1/79"}
    assert chosen("matrix") == chosen("dense") & kernelbench
    assert len(chosen("matrix")) == 23


def test_selection() -> None:
    assert cases.select(ALL, []) == (ALL, True)
    assert cases.select(ALL, ["host"]) == ([], True)
    assert chosen("1/65", "1/70") == {"1/65", "1/70"}
    assert cases.select(ALL, ["1/65", "host"]) == ([BY_ID["1/65"]], True)
    assert chosen("1/86*") == {"1/86a", "1/86b"}
    with pytest.raises(ValueError, match=r"no case is called '1/99'.*depthwise.*host"):
        cases.select(ALL, ["1/99"])


def test_a_case_in_words() -> None:
    assert str(BY_ID["1/75"]) == "16×32×128×256 * 32×16×3×5 T s2,3 p1,2 d2,1 g4"
    assert str(BY_ID["1/50"]) == "256×3×224×224 * 96×3×11×11 s4 p2"


def test_a_new_file_is_found(tmp_path: Path) -> None:
    item = items()[0]
    (tmp_path / "more.json").write_text(json.dumps([{**item, "id": "more/1", "note": "ignored"}]))
    (case,) = cases.load(tmp_path)
    assert (case.section, case.id, case.input) == ("more", "more/1", tuple(item["input"]))


def section(name: str) -> list[Any]:
    return [case for case in ALL if case.section == name]


def drawn(prefix: str = "d") -> list[Convolution]:
    return section({"d": "dense_seeded", "e": "depthwise_seeded"}[prefix])


def drawn_fused() -> list[Fused]:
    return section("fused_seeded")


@pytest.mark.parametrize("name", draw.SECTIONS)
def test_drawing_again_gives_the_committed_file(name: str) -> None:
    committed = (ROOT / "benchmarks" / f"{name}_seeded.json").read_text(encoding="utf-8")
    again = draw.SECTIONS[name]()
    assert draw.text(again) == committed
    assert again == section(f"{name}_seeded")


def test_drawn_cases_are_within_the_bounds() -> None:
    assert [case.id for case in drawn()] == [f"d/{number:02}" for number in range(1, 25)]
    assert chosen("dense_seeded") == {case.id for case in drawn()} <= chosen("dense")
    for case in drawn():
        assert 0.2e9 <= case.operations <= 300e9
        for shape in (case.input, case.weight, case.output):
            assert 4 * math.prod(shape) < 2e9
        for size, pad, dilation in zip(case.weight[2:], case.padding, case.dilation, strict=True):
            assert 0 <= 2 * pad <= dilation * (size - 1)


def test_what_drawn_cases_cover() -> None:
    """Everything in which dense convolutions differ, and small images of many channels."""
    small = [case for case in drawn() if case.rank == 2 and max(case.input[2:]) <= 56]
    small = [case for case in small if min(case.weight[:2]) >= 256]
    assert sum(case.input[0] == 1 for case in small) >= 4
    assert sum(8 <= case.input[0] <= 64 for case in small) >= 4
    assert all(min(case.input[2:]) >= 14 and max(case.weight[:2]) <= 512 for case in small)
    counts = {32, 48, 64, 80, 96, 100, 128, 192, 256, 384, 512}
    assert {count for case in drawn() for count in case.weight[:2]} == counts
    kernels = {(1, 1), (3, 3), (5, 5), (3, 7), (7,), (3, 3, 3)}
    assert {case.weight[2:] for case in drawn()} == kernels
    both = {False, True}
    for rank in (1, 2, 3):
        assert {case.transposed for case in drawn() if case.rank == rank} == both
    assert {(case.transposed, max(case.stride)) for case in drawn()} == {
        (transposed, stride) for transposed in both for stride in (1, 2)
    }
    assert {(case.transposed, max(case.dilation)) for case in drawn()} == {
        (transposed, dilation) for transposed in both for dilation in (1, 2)
    }
    assert {max(case.output_padding) for case in drawn()} == {0, 1}
    assert sum(case.bias for case in drawn()) == 12
    assert sum(case.input[-1] % 2 for case in drawn()) >= 8


def test_drawn_depthwise_cases_are_within_the_bounds() -> None:
    found = drawn("e")
    assert [case.id for case in found] == [f"e/{number:02}" for number in range(1, 13)]
    assert chosen("depthwise_seeded") == {case.id for case in found} <= chosen("depthwise")
    for case in found:
        assert case.groups == case.input[1]
        assert 32 <= case.groups <= 1024
        for shape in (case.input, case.output):
            assert 10**6 <= math.prod(shape) <= 300 * 10**6
        for size, pad in zip(case.weight[2:], case.padding, strict=True):
            assert pad in (0, size // 2)


def test_what_drawn_depthwise_cases_cover() -> None:
    """Images of 7×7 to 112×112 above all, one line, two volumes, rows, and a transposed one."""
    found = drawn("e")
    images = [case for case in found if case.rank == 2]
    assert [case.rank for case in found] == [2] * 9 + [1] + [3] * 2
    assert [case.id for case in found if case.transposed] == ["e/09"]
    assert [case.rows for case in found] == [1] * 6 + [2] * 2 + [1] * 4
    assert all(7 <= size <= 112 for case in images for size in case.input[2:])
    assert sum(case.input[0] == 1 for case in found) >= 2
    assert sum(16 <= case.input[0] <= 64 for case in found) >= 5
    assert {max(case.stride) for case in found if case.rank == 3} == {1, 2}
    assert {max(case.stride) for case in found if case.transposed} == {2}
    assert {case.weight[2:] for case in images if case.stride == (1, 1)} == {(3, 3), (5, 5), (7, 7)}
    assert any(max(case.input[2:]) <= 14 for case in images if not case.transposed)
    assert any(min(case.input[2:]) >= 56 for case in images)
    assert sum(case.bias for case in found) == 6
    assert 4 <= sum(case.input[-1] % 2 for case in found) <= 8


def test_drawn_fused_operations_are_within_the_bounds() -> None:
    found = drawn_fused()
    assert [case.id for case in found] == [f"f/{number:02}" for number in range(1, 7)]
    assert chosen("fused") == {case.id for case in found} | {"2/11", "2/11-given"}
    for case in found:
        assert 1e9 <= case.operations <= 300e9
        # The check holds the convolution's result several times over, in float64.
        assert 8 * math.prod(case.convolution.output) <= 0.64e9
        assert case.output[1] % case.num_groups == 0


def test_what_drawn_fused_operations_cover() -> None:
    """Other channel counts, kernels, odd sizes, small batches and group norms than KernelBench's,
    and the kernel of 4×4 with stride 2 that doubles a size.
    """
    found = drawn_fused()
    assert [case.input[0] for case in found[:2]] == [1, 4]
    assert all(case.input[0] >= 16 for case in found[2:])
    assert [case.weight[2:] for case in found if max(case.stride) == 2] == [(4, 4)]
    assert {case.weight[2:] for case in found[:5]} == {(3, 3), (5, 5), (3, 7)}
    assert len({case.weight[:2] for case in found}) == 6
    assert (64, 128) not in {case.weight[:2] for case in found}
    assert any(count % 16 for case in found for count in case.weight[:2])
    groups = [case.num_groups for case in found]
    assert 1 in groups and len(set(groups)) >= 4
    assert any(case.num_groups == case.output[1] for case in found)
    assert sum(case.input[-1] % 2 for case in found) >= 3
    assert {case.statistics for case in found} == {"batch", "given"}
    for axis in (2, 3):
        dropped = {case.convolution.output[axis] - 2 * case.output[axis] for case in found}
        assert dropped == {0, 1}


def test_fused_sets_that_cover_too_little_are_drawn_again() -> None:
    assert draw.fused_covers(drawn_fused())
    assert not draw.fused_covers([replace(c, statistics="batch") for c in drawn_fused()])
    extremes = [
        c if c.num_groups == c.output[1] else replace(c, num_groups=1) for c in drawn_fused()
    ]
    assert not draw.fused_covers(extremes)
    assert not draw.fused_covers(drawn_fused()[:5])
    first, *_ = drawn_fused()
    assert draw.fused_fits(first)
    assert not draw.fused_fits(replace(first, input=(1, 100, 9, 9)))
    assert not draw.fused_fits(replace(first, input=(100, 100, 99, 65)))
    pointwise = replace(first, weight=(100, 256, 1, 1), padding=(0, 0))
    assert draw.fused_fits(replace(pointwise, input=(20, 100, 99, 99)))
    assert not draw.fused_fits(replace(pointwise, input=(40, 100, 99, 99)))
    assert not draw.fused_fits(replace(first, input=(1000, 100, 1, 1)))  # no window to pool


def test_sets_that_cover_too_little_are_drawn_again() -> None:
    assert draw.dense_covers(drawn())
    assert not draw.dense_covers([replace(case, bias=True) for case in drawn()])
    assert not draw.dense_covers([case for case in drawn() if max(case.stride) == 1])
    first, *_ = drawn()
    assert draw.dense_fits(first)
    assert not draw.dense_fits(replace(first, groups=2))
    assert not draw.dense_fits(replace(first, input=(1, 256, 3, 3)))
    assert not draw.dense_fits(replace(first, input=(1000, 256, 64, 64)))


def test_depthwise_sets_that_cover_too_little_are_drawn_again() -> None:
    assert draw.depthwise_covers(drawn("e"))
    assert not draw.depthwise_covers([replace(case, bias=True) for case in drawn("e")])
    assert not draw.depthwise_covers([c for c in drawn("e") if c.weight[2:] != (5, 5)])
    first, *_ = drawn("e")
    assert draw.depthwise_fits(first)
    assert not draw.depthwise_fits(drawn()[0])
    assert not draw.depthwise_fits(replace(first, input=(1, first.groups, 9, 9)))
    assert not draw.depthwise_fits(replace(first, input=(1, first.groups, 1, 3000), padding=(0, 0)))
    assert not draw.depthwise_fits(replace(first, input=(1000, first.groups, 112, 112)))


@pytest.mark.parametrize("name", draw.SECTIONS)
def test_the_command_that_draws(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert draw.main([name]) == 0
    assert capsys.readouterr().out == draw.text(section(f"{name}_seeded"))


# A user's own cases --------------------------------------------------------------------------

FUSED = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"


def line(case: cases.Case, times: str = "x") -> str:
    """A case as its user would write it."""

    def numbers(values: Sequence[int]) -> str:
        same = len(set(values)) == 1
        return str(values[0]) if same else times.join(map(str, values))

    fused = isinstance(case, Fused)
    words = [FUSED if fused else case.function]
    words += [times.join(map(str, shape)) for shape in (case.input, case.weight)]
    words += [f"{name}={numbers(getattr(case, name))}" for name in ("stride", "padding")]
    if fused or case.transposed:
        words.append(f"output_padding={numbers(case.output_padding)}")
    words.append(f"groups={case.groups}")
    if fused:
        words += [f"num_groups={case.num_groups}", f"statistics={case.statistics}"]
    else:
        words += [f"dilation={numbers(case.dilation)}", f"bias={'yes' if case.bias else 'no'}"]
    return " ".join(words)


@pytest.mark.parametrize("times", ["x", "×", ","])
def test_every_case_can_be_written_as_a_line(times: str) -> None:
    for case in ALL:
        assert mine.parse(line(case, times), case.id) == replace(case, section="mine")


def test_what_a_line_leaves_out() -> None:
    (plain,) = mine.load(["conv2d 8x64x56x56 128x64x3x3"])
    assert str(plain) == "8×64×56×56 * 128×64×3×3"
    assert plain.output == (8, 128, 54, 54)
    (depthwise,) = mine.load(["depthwise_conv2d 8x96x14x15 192x1x7x7 stride=2,1 bias=yes"])
    assert isinstance(depthwise, Convolution)
    assert (depthwise.function, depthwise.groups, depthwise.bias) == ("conv2d", 96, True)
    assert (depthwise.kind, depthwise.output) == ("depthwise", (8, 192, 4, 9))
    (fused,) = mine.load(["fused 8x64x33x29 64x96x3x3 num_groups=8"])
    assert fused == mine.load([f"{FUSED} 8x64x33x29 64x96x3x3 num_groups=8"])[0]
    assert str(fused) == "8×64×33×29 * 64×96×3×3 T, 8 groups, batch statistics"


def test_lines_and_files_together(tmp_path: Path) -> None:
    path = tmp_path / "shapes of mine.txt"
    path.write_text(
        "# the encoder\n\nconv1d 1x3x100 8x3x5 stride=2  # its first layer\n"
        "  conv3d\t1x4x8x8x8 8x2x3x3x3   groups=2\n",
        encoding="utf-8",
    )
    found = mine.load(["conv_transpose1d 2x8x40 8x3x4", str(path), "conv2d 1x1x9x9 1x1x3x3"])
    assert [case.id for case in found] == ["mine/1", "mine/2", "mine/3", "mine/4"]
    assert [str(case) for case in found] == [
        "2×8×40 * 8×3×4 T",
        "1×3×100 * 8×3×5 s2",
        "1×4×8×8×8 * 8×2×3×3×3 g2",
        "1×1×9×9 * 1×1×3×3",
    ]
    assert {case.section for case in found} == {"mine"}


SHAPES_2D = "8x64x56x56 128x64x3x3"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "'' is no file and no function; there are conv1d, conv2d"),
        ("shapes.txt", "'shapes.txt' is no file and no function"),
        (f"conv4d {SHAPES_2D}", "'conv4d' is no file and no function"),
        ("conv2d 8x64x56x56", "conv2d: needs two shapes, of input and weight"),
        (f"conv2d {SHAPES_2D} 128", "'128' is no shape"),
        (f"conv2d {SHAPES_2D} 1x128", "needs two shapes, of input and weight.* got 3"),
        ("conv2d 8x64x0x56 128x64x3x3", "'8x64x0x56' is no shape of positive sizes"),
        ("conv2d 8x64x-5x56 128x64x3x3", "'8x64x-5x56' is no shape"),
        (f"conv2d {SHAPES_2D} stride = 2", "'stride' is no shape"),
        ("conv2d 64x56x56 128x64x3x3", r"input must have 4 axes.*\(64, 56, 56\)"),
        ("conv1d 8x64x56 128x64x3x3", r"weight must have 3 axes.*\(128, 64, 3, 3\)"),
        (f"conv2d {SHAPES_2D} pading=1", "has no option 'pading'; it has stride, padding,"),
        (f"conv2d {SHAPES_2D} output_padding=0", "has no option 'output_padding'"),
        (f"depthwise_conv2d {SHAPES_2D} groups=64", "has no option 'groups'"),
        (f"conv2d {SHAPES_2D} stride=2 stride=1", "stride is given twice"),
        (
            f"conv2d {SHAPES_2D} stride=two",
            "stride must be an integer, or one for .*got stride=two",
        ),
        (f"conv2d {SHAPES_2D} stride=2,", "stride must be an integer, or one for .*got stride=2,"),
        (f"conv2d {SHAPES_2D} padding=same", "padding must be an integer, or one for "),
        (f"conv2d {SHAPES_2D} stride=0", "stride must be positive, got stride=0"),
        (f"conv2d {SHAPES_2D} padding=-1", "padding must not be negative, got padding=-1"),
        (f"conv2d {SHAPES_2D} stride=1,2,3", r"one value for each of 2 .*\(1, 2, 3\)"),
        (f"conv2d {SHAPES_2D} groups=1,1", "groups must be an integer, got groups=1,1"),
        (f"conv2d {SHAPES_2D} groups=0", "groups must be positive, got groups=0"),
        (f"conv2d {SHAPES_2D} bias=true", "bias must be yes or no, got bias=true"),
        ("conv2d 8x64x56x56 128x32x3x3", "64 channels with groups=1"),
        ("conv2d 1x2x3x3 4x2x5x5", "the kernel must not be larger than the padded input"),
        ("depthwise_conv2d 8x6x9x9 12x2x3x3", r"\(C_out, 1, \*kernel\).*\(12, 2, 3, 3\)"),
        ("conv_transpose2d 8x32x9x9 64x32x3x3", "input must have weight.shape.0. channels"),
        ("conv_transpose1d 1x2x9 2x3x3 output_padding=1", "output_padding must be smaller than"),
        ("fused 8x64x9x9 64x96x3x3", "needs num_groups, the groups of its group norm"),
        ("fused 8x64x9x9 64x96x3x3 num_groups=7", "num_groups must divide the channels"),
        ("fused 8x64x9x9 64x96x3x3 num_groups=8 dilation=1", "has no option 'dilation'"),
        ("fused 8x64x9x9 64x96x3x3 num_groups=8 statistics=own", "must be batch or given"),
        ("fused 8x64x1x1 64x96x1x1 num_groups=8", "every spatial size of the output must be"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(text: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=wrong) as raised:
        mine.load(["conv1d 1x1x3 1x1x3", text])
    assert str(raised.value).startswith(f"--mine {text!r}: ")
    if text:
        path = tmp_path / "shapes"
        path.write_text(f"# none yet\n\nconv1d 1x1x3 1x1x3\n{text}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=wrong) as raised:
            mine.load([str(path)])
        assert str(raised.value).startswith(f"{path}, line 4: ")


def test_a_file_of_no_case(tmp_path: Path) -> None:
    path = tmp_path / "shapes"
    path.write_text("\n# later\n", encoding="utf-8")
    with pytest.raises(ValueError, match="there is no case in this file"):
        mine.load(["conv1d 1x1x3 1x1x3", str(path)])


# Limits and statistics -----------------------------------------------------------------------


UNSCALED = replace(H200, scaled=False)
GEFORCE = Ceilings(0.9e12, {"float32": 30e12, "tf32": 36e12, "float16": 71e12}, "a test", False)


@pytest.mark.parametrize(
    ("name", "ceilings", "rate"),
    [
        ("float32", H200, 746e12 / 2),  # two products of scaled float16 numbers
        ("float32", UNSCALED, 404e12 / 3),
        ("float32", GEFORCE, 30e12),  # ordinary multiply-adds beat three TF32 products
        ("tf32", H200, 746e12),
        ("tf32", UNSCALED, 404e12),
        ("tf32", GEFORCE, 36e12),
        ("float16", H200, 746e12),
        ("bfloat16", H200, 776e12),
    ],
)
def test_limit_by_operations(name: str, ceilings: Ceilings, rate: float) -> None:
    """The units that may be used, at their best, take 2 * 8*64*512*512 * 64 * 21 operations."""
    limit = limits.limit(BY_ID["1/65"], PRECISIONS[name], ceilings)
    assert limit.ms == pytest.approx(360.777e9 / rate * 1e3, rel=1e-5)
    assert limit.by == "operations"


@pytest.mark.parametrize(("name", "size"), [("float32", 4), ("tf32", 4), ("float16", 2)])
def test_limit_by_bytes(name: str, size: int) -> None:
    """Depthwise: 64*8*512*512 numbers in, 8*3 weights, 64*8*510*512 out."""
    limit = limits.limit(BY_ID["1/83"], PRECISIONS[name], H200)
    numbers = 134_217_728 + 24 + 133_693_440
    assert limit.ms == pytest.approx(numbers * size / 4.27e12 * 1e3)
    assert limit.by == "bytes"


def test_the_bias_counts() -> None:
    with_bias = BY_ID["1/50"]
    shapes = ((256, 3, 224, 224), (96, 3, 11, 11), (256, 96, 55, 55))
    assert with_bias.elements == sum(map(math.prod, shapes)) + 96


def test_limit_of_the_fused_operation() -> None:
    case = BY_ID["2/11"]
    limit = limits.limit(case, PRECISIONS["tf32"], UNSCALED)
    assert limit.ms == pytest.approx(2 * 512 * 64 * 32 * 32 * 128 * 25 / 404e12 * 1e3)
    assert case.elements == 512 * 64 * 32 * 32 + 64 * 128 * 25 + 4 * 128 + 512 * 128 * 17 * 17


def test_plain_limit_is_float32s_alone() -> None:
    plain = limits.plain_limit(BY_ID["1/72"], PRECISIONS["float32"], H200)
    assert plain is not None
    assert plain.ms == pytest.approx(BY_ID["1/72"].operations / 50.9e12 * 1e3)
    for name in ("tf32", "float16", "bfloat16"):
        assert limits.plain_limit(BY_ID["1/72"], PRECISIONS[name], H200) is None


def test_nominal_rates_are_complete() -> None:
    assert (
        set(limits.NOMINAL)
        == set(RATES)
        == {way.rate for precision in PRECISIONS.values() for way in precision.ways}
    )


def test_repeats() -> None:
    assert timing.repeats_within(1.0, round_ms=50.0) == 20
    assert timing.repeats_within(0.5, round_ms=400.0) == timing.MIN_REPEATS == 5
    assert timing.repeats_within(1.0, round_ms=0.0) == timing.MAX_REPEATS


def test_statistics() -> None:
    assert timing.median([5.0, 1.0, 2.0]) == 2.0
    assert timing.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 4.0)
    assert timing.quartiles([3.0]) == (3.0, 3.0)
    assert timing.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert timing.geometric_mean([]) is None


def test_host_time_leaves_out_the_first_block() -> None:
    calls: list[str] = []
    times = timing.host_microseconds(
        [lambda: calls.append("a"), lambda: calls.append("b")],
        lambda: calls.append("|"),
        blocks=3,
        calls_a_block=2,
    )
    assert "".join(calls) == "|aa|bb" * 4 + "|"
    assert all(time > 0 for time in times)


# Float64 sums --------------------------------------------------------------------------------

SHAPES = {
    "1-D": ([2, 3, 11], [4, 3, 3], {}),
    "stride": ([2, 4, 9, 7], [6, 2, 3, 2], {"stride": [2, 3], "groups": 2}),
    "padding": ([1, 4, 5, 6], [4, 1, 3, 3], {"padding": [1, 2], "groups": 4, "bias": True}),
    "dilation": ([2, 2, 8, 9], [4, 2, 2, 3], {"dilation": [3, 2], "padding": [2, 1]}),
    "3-D": ([1, 2, 4, 5, 6], [2, 2, 2, 1, 3], {"stride": [1, 2, 2], "bias": True}),
}
TRANSPOSED = {
    "1-D": ([2, 3, 6], [3, 4, 3], {}),
    "stride": ([2, 4, 5, 3], [4, 3, 3, 2], {"stride": [2, 3], "groups": 2}),
    "output_padding": (
        [1, 4, 4, 5],
        [4, 2, 3, 3],
        {"stride": [3, 2], "padding": [1, 2], "output_padding": [2, 1], "bias": True},
    ),
    "dilation": ([2, 4, 4, 5], [4, 1, 3, 2], {"dilation": [2, 3], "stride": [5, 2], "groups": 4}),
    "3-D": ([1, 2, 3, 2, 4], [2, 2, 2, 3, 1], {"stride": [2, 1, 2], "padding": [0, 1, 0]}),
}


def convolution(
    shapes: tuple[list[int], list[int], dict[str, Any]], transposed: bool
) -> Convolution:
    input, weight, options = shapes
    rank = len(input) - 2
    item = {
        "id": "test",
        "transposed": transposed,
        "input": input,
        "weight": weight,
        "stride": [1] * rank,
        "padding": [0] * rank,
        "output_padding": [0] * rank,
        "dilation": [1] * rank,
        "groups": 1,
        "bias": False,
    }
    (case,) = cases.parse("tests", [item | options])
    assert isinstance(case, Convolution)
    return case


SMALL = [
    pytest.param(convolution(shapes, transposed), id=f"{name}{' transposed' * transposed}")
    for transposed, group in enumerate((SHAPES, TRANSPOSED))
    for name, shapes in group.items()
]


def arrays(case: Convolution, dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng()
    shapes = (case.input, case.weight, case.output[1:2])
    x, w, bias = (rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes)
    return x, w, bias if case.bias else None


def exact(case: Convolution, x: Any, w: Any, bias: Any) -> definition.Sums:
    shape = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation}
    if case.transposed:
        shape["output_padding"] = case.output_padding
        return definition.conv_transpose(x, w, bias, groups=case.groups, **shape)
    return definition.conv(x, w, bias, groups=case.groups, **shape)


@pytest.mark.parametrize("case", SMALL)
def test_sums_at_every_place_are_the_definition(case: Convolution) -> None:
    x, w, bias = arrays(case)
    where = tuple(index.ravel() for index in np.indices(case.output))
    sums = reference.sums_at(case, where, x, w, bias)
    expected = exact(case, x, w, bias)
    assert expected.value.shape == case.output
    np.testing.assert_allclose(sums.values, expected.value.ravel(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(sums.scale, expected.scale.ravel(), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(sums.terms, expected.terms.ravel())


@pytest.mark.parametrize("case", [case for case in SMALL if case.values[0].transposed])
def test_the_whole_transposed_convolution_is_the_definition(case: Convolution) -> None:
    x, w, _ = arrays(case)
    expected = exact(case, x, w, None).value
    np.testing.assert_allclose(reference.transposed(case, x, w), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("statistics", ["batch", "given"])
def test_the_fused_operation_is_the_definition(statistics: str) -> None:
    case = Fused(
        section="tests",
        id="test",
        input=(3, 4, 5, 6),
        weight=(4, 3, 3, 2),
        stride=(2, 1),
        padding=(1, 0),
        output_padding=(1, 0),
        groups=2,
        num_groups=3,
        statistics=statistics,
    )
    rng = np.random.default_rng()
    x, w = rng.uniform(-1, 1, case.input), rng.uniform(-1, 1, case.weight)
    names = ("bn_weight", "bn_bias", "gn_weight", "gn_bias")
    parameters = {name: rng.uniform(-1, 1, 6) for name in names}
    convolved = reference.transposed(case.convolution, x, w)
    mean, var = reference.statistics(convolved)
    given = {}
    if statistics == "given":
        mean, var = rng.uniform(-1, 1, 6), rng.uniform(1, 2, 6)
        given = {"mean": mean, "var": var}
    result = reference.fused_rest(case, convolved, mean, var, parameters)
    expected = definition.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(
        x,
        w,
        **parameters,
        **given,
        num_groups=case.num_groups,
        stride=case.stride,
        padding=case.padding,
        output_padding=case.output_padding,
        groups=case.groups,
        eps=reference.EPS,
    )
    assert result.shape == case.output == expected.pooled.shape
    group = expected.group
    value = (group.x - group.mean) / group.std * group.weight + group.bias
    np.testing.assert_allclose(result.ravel(), value.ravel(), rtol=0, atol=1e-11)


def test_places_hold_the_corners() -> None:
    where = reference.places((3, 1, 5), 20, np.random.default_rng())
    found = set(zip(*(index.tolist() for index in where), strict=True))
    assert found >= {(0, 0, 0), (0, 0, 4), (2, 0, 0), (2, 0, 4)}
    assert all(len(index) == 24 for index in where)
    assert all((0 <= i).all() and (i < n).all() for i, n in zip(where, (3, 1, 5), strict=True))


def explained(kernel: str) -> Any:
    """What the benchmark reads of an explanation."""
    return SimpleNamespace(kernel=kernel, expected_ms=1.5, limit_ms=0.25)


def job(case: Convolution, name: str = "float32") -> jobs.Job:
    """A job on NumPy arrays: what `jobs.prepare` makes on a GPU."""
    precision = PRECISIONS[name]
    x, w, bias = arrays(case, precision.numpy_dtype())
    out = np.empty(case.output, x.dtype)
    where = reference.places(case.output, 100, np.random.default_rng())
    sums = reference.sums_at(case, where, x, w, bias)
    options = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation}
    if case.transposed:
        options["output_padding"] = case.output_padding
    return jobs.Job(
        case,
        precision,
        {"input": x, "weight": w, "bias": bias},
        out,
        lambda: getattr(cupyconv, case.function)(
            x, w, bias, groups=case.groups, out=out, **options
        ),
        lambda: explained(choice.forced_kernel() or "direct"),
        lambda y: y[where].astype(np.float64),
        reference.Exact(sums.values, reference.bound(sums, precision), precision.error),
    )


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("case", SMALL)
def test_right_results_pass(case: Convolution, name: str) -> None:
    one = job(case, name)
    assert reference.complaint(one.sample(one.call()), one.exact) is None


@pytest.mark.parametrize("name", PRECISIONS)
def test_wrong_results_do_not_pass(name: str) -> None:
    one = job(convolution(TRANSPOSED["stride"], True), name)
    right = one.sample(one.call())
    assert "in norm" in str(reference.complaint(right * (1 + 4 * one.exact.error), one.exact))
    not_a_number = right.copy()
    not_a_number[3] = np.nan
    assert "nan in norm" in str(reference.complaint(not_a_number, one.exact))
    # One output off by what drowns in the norm of many large ones.
    large = reference.Exact(np.full(10**6, 1e3), np.full(10**6, 1e-3), one.exact.error)
    values = large.values.copy()
    assert reference.complaint(values, large) is None
    values[7] += 0.01
    assert "1 of 1000000 outputs" in str(reference.complaint(values, large))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_nan_are_found_by_their_bits(dtype: Any) -> None:
    values = np.array([0, -0.0, 1, -3, np.inf, -np.inf, np.nan, -np.nan]).astype(dtype)
    values = np.append(values, np.full(values.itemsize, 0xFF, np.uint8).view(dtype))  # poison
    magnitude, infinity = data.nan_bits(values.dtype)
    bits = values.view(f"u{values.itemsize}").astype(np.uint64)
    found = (bits & np.uint64(magnitude)) > np.uint64(infinity)
    assert found.tolist() == [False] * 6 + [True] * 3 == np.isnan(values).tolist()


# What is timed -------------------------------------------------------------------------------


class Stopwatch:
    """Runs the calls and says that each takes one millisecond more than the one before it."""

    def __init__(self) -> None:
        self.rounds = 0

    def alternate(self, calls: Sequence[Callable[[], Any]], repeats: int) -> list[list[float]]:
        self.rounds += repeats
        for call in calls:
            call()
        return [[1.0 + place] * repeats for place in range(len(calls))]

    def alternate_within(
        self, calls: Sequence[Callable[[], Any]], seconds: float
    ) -> list[list[float]]:
        return self.alternate(calls, 7)

    def synchronize(self) -> None:
        pass


class Peer:
    """A peer that runs, and one that does not."""

    def contenders(self, job: jobs.Job, compiled: bool) -> dict[str, Callable[[], Any]]:
        def broken() -> None:
            raise RuntimeError("no engine\nat line 3")

        return {"broken": lambda: broken, "torch": lambda: lambda: job.out.copy()}

    def array(self, tensor: Any) -> Any:
        return tensor


@pytest.fixture
def no_gpu_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_free", lambda peer: None)
    monkeypatch.setattr(jobs, "poison", lambda array: array.fill(np.nan))
    monkeypatch.setattr(jobs, "count_nan", lambda array: int(np.isnan(array).sum()))


@pytest.fixture
def numpy_for_cupy(monkeypatch: pytest.MonkeyPatch, no_gpu_memory: None) -> mock.MagicMock:
    """Whole runs on NumPy arrays, with a stopwatch that makes times up; returns CuPy's ``cuda``."""
    cuda = mock.MagicMock()
    cuda.runtime.getDeviceProperties.return_value = {"name": b"GPU"}
    # NumPy, but for the type of the arrays: none is one of CuPy's.
    stand_in = SimpleNamespace(**{**vars(np), "ndarray": (), "cuda": cuda})
    monkeypatch.setitem(sys.modules, "cupy", stand_in)

    def uniform(shape: Any, dtype: Any, seed: int, low: float = -1.0) -> Any:
        return np.random.default_rng(seed).uniform(low, 1, shape).astype(dtype)

    monkeypatch.setattr(jobs, "uniform", uniform)
    monkeypatch.setattr(run, "missing", lambda: None)
    monkeypatch.setattr(run, "versions", dict)
    monkeypatch.setattr(run, "Stopwatch", Stopwatch)
    monkeypatch.setattr(peers, "load", lambda: None)
    monkeypatch.setattr(limits, "measure", lambda *arguments: H200)
    return cuda


def small(case: Fused) -> Fused:
    """A case with its channels, kernel and groups on a small image of a small batch."""
    batch, channels, *space = case.input
    return replace(case, input=(min(batch, 2), channels, *(min(size, 7) for size in space)))


@pytest.mark.usefixtures("numpy_for_cupy")
@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("case", drawn_fused(), ids=lambda case: case.id)
def test_fused_operations_are_checked_and_timed(case: Fused, name: str) -> None:
    precision = PRECISIONS[name]
    row = run.measure(small(case), precision, H200, Stopwatch(), None, run.Options(seed=3))
    assert (row.ours.failure, row.ours.ms, row.repeats) == (None, 1.0, 7)
    assert row.ours.error is not None and row.ours.error > 0
    assert row.limit_ms == limits.limit(small(case), precision, H200).ms
    assert (row.plain_limit_ms is not None) == (name == "float32")


@pytest.mark.usefixtures("numpy_for_cupy")
@pytest.mark.parametrize("transposed", [False, True])
def test_channels_last(transposed: bool) -> None:
    """The channels of all arrays lie innermost, and the results are as right as others."""
    case = Convolution(
        *("own", "mine", transposed, (2, 6, 5, 4), (6, 6, 3, 2)),
        *((1, 1), (0, 0), (0, 0), (1, 1), 1, True),
    )
    job = jobs.prepare(case, PRECISIONS["float32"], 3, -1.0, channels_last=True)
    job.checked()
    for array in (job.arrays["input"], job.arrays["weight"], job.out):
        assert np.moveaxis(array, 1, -1).flags.c_contiguous and not array.flags.c_contiguous
    row = run.measure(
        *(case, PRECISIONS["float32"], H200, Stopwatch(), None),
        run.Options(seed=3, channels_last=True),
    )
    assert (row.ours.failure, row.ours.ms) == (None, 1.0)


@pytest.mark.usefixtures("numpy_for_cupy")
def test_a_wrong_fused_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm

    def other_groups(*arguments: Any, num_groups: int, **options: Any) -> Any:
        return right(*arguments, num_groups=2 * num_groups, **options)

    monkeypatch.setattr(cupyconv, right.__name__, other_groups)
    stopwatch = Stopwatch()
    row = run.measure(
        small(drawn_fused()[0]),
        PRECISIONS["float32"],
        H200,
        stopwatch,
        None,
        run.Options(seed=3),
    )
    assert "in norm, above" in str(row.ours.failure)
    assert (row.ours.ms, stopwatch.rounds) == (None, 0)


def measured(
    monkeypatch: pytest.MonkeyPatch, one: jobs.Job, peer: Any, **options: Any
) -> tuple[Row, Stopwatch]:
    stopwatch = Stopwatch()
    monkeypatch.setattr(jobs, "prepare", lambda *arguments, **options: one)
    row = run.measure(
        one.case, one.precision, H200, stopwatch, peer, run.Options(seed=1, **options)
    )
    return row, stopwatch


@pytest.mark.usefixtures("no_gpu_memory")
def test_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(convolution(SHAPES["stride"], False))
    row, stopwatch = measured(monkeypatch, one, Peer())
    assert (row.ours.ms, row.ours.quartiles, row.repeats, stopwatch.rounds) == (1.0, (1, 1), 7, 7)
    assert row.ours.error is not None and row.ours.error < 1e-6
    assert row.peers["broken"] == Timing(failure="RuntimeError: no engine")
    assert (row.peers["torch"].ms, row.ratio("torch"), row.ratio("broken")) == (2.0, 2.0, None)
    assert row.limit_ms == limits.limit(one.case, one.precision, H200).ms
    assert (row.operations, row.nbytes) == (one.case.operations, 4 * one.case.elements)
    row, _ = measured(monkeypatch, one, None, repeats=3)
    assert (row.repeats, row.peers) == (3, {})


@pytest.mark.usefixtures("no_gpu_memory")
@pytest.mark.parametrize("fault", ["unwritten", "wrong", "unsteady", "raises"])
def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    one = job(convolution(SHAPES["stride"], False))
    right, count = one.call, [0]

    def call() -> None:
        count[0] += 1
        right()
        if fault == "unwritten":
            one.out[1, 2] = np.nan
        if fault == "wrong" or (fault == "unsteady" and count[0] > 1):
            np.multiply(one.out, np.float32(1.01), out=one.out)
        if fault == "raises":
            raise MemoryError("out of memory")

    row, stopwatch = measured(monkeypatch, replace(one, call=call), Peer())
    expected = {
        "unwritten": "outputs are NaN or were not written",
        "wrong": "in norm, above 1.0e-06",
        "unsteady": "repeated calls gave different results",
        "raises": "MemoryError: out of memory",
    }
    assert expected[fault] in str(row.ours.failure)
    assert (row.ours.ms, row.of_limit, row.repeats, row.peers) == (None, None, 0, {})
    assert stopwatch.rounds == (7 if fault == "unsteady" else 0)


@pytest.mark.usefixtures("no_gpu_memory")
def test_kernels_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(convolution(SHAPES["stride"], False))
    entered: list[str | None] = []

    def call() -> Any:
        entered.append(kernel := choice.forced_kernel())
        one.call()
        if kernel == "portable":
            np.multiply(one.out, np.float32(1.01), out=one.out)
        if kernel == "plain":  # right, but of other bits
            np.multiply(one.out, np.float32(1 + 2e-7), out=one.out)
        return one.out

    def takes() -> Any:
        asked = choice.forced_kernel()
        return explained("direct" if asked in (None, "hopper") else asked)

    row, stopwatch = measured(
        monkeypatch,
        replace(one, call=call, explained=takes),
        Peer(),
        beside=["plain", "portable", "hopper"],
    )
    assert (row.ours.failure, stopwatch.rounds) == (None, 7)
    # In turn: the kernel that gave a right result, ours, the peer.
    assert (row.peers["plain"].ms, row.ours.ms, row.peers["torch"].ms) == (1.0, 2.0, 3.0)
    assert entered == [None, "plain", "portable", "plain", None]
    assert row.peers["plain"].error != row.ours.error
    assert "in norm, above 1.0e-06" in str(row.peers["portable"].failure)
    assert row.peers["hopper"] == Timing(failure="direct takes it")
    assert list(row.peers) == ["plain", "portable", "hopper", "broken", "torch"]


@pytest.fixture
def kernels() -> Iterator[list[str | None]]:
    """What is forced: the kernels that have been entered and not left."""
    entered: list[str | None] = []

    @contextmanager
    def forced(kernel: str | None) -> Iterator[None]:
        entered.append(kernel)
        yield
        entered.pop()

    with mock.patch.object(choice, "forced", forced, create=True):
        yield entered


@pytest.mark.usefixtures("no_gpu_memory")
@pytest.mark.parametrize(
    ("options", "kernel", "inside"),
    [({}, "auto", []), ({"kernel": "direct"}, "direct", ["direct"])],
)
def test_a_kernel_is_forced_for_the_whole_run(
    monkeypatch: pytest.MonkeyPatch,
    kernels: list[str | None],
    options: dict[str, Any],
    kernel: str,
    inside: list[str],
) -> None:
    seen: list[list[str | None]] = []

    def measure(case: Convolution, *arguments: Any) -> Row:
        seen.append(kernels[:])
        return row(case.id, Timing(1.0), {})

    def small_calls(*arguments: Any) -> list[HostRow]:
        seen.append(kernels[:])
        return []

    monkeypatch.setitem(sys.modules, "cupy", mock.MagicMock())
    monkeypatch.setattr(peers, "load", lambda: None)
    monkeypatch.setattr(limits, "measure", lambda *arguments: H200)
    monkeypatch.setattr(run, "versions", dict)
    monkeypatch.setattr(run, "Stopwatch", Stopwatch)
    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "small_calls", small_calls)
    found = run.run(
        [BY_ID["1/65"], BY_ID["1/70"]],
        [PRECISIONS["float32"]],
        True,
        run.Options(seed=1, **options),
    )
    assert (seen, kernels) == ([inside] * 3, [])
    assert (found.kernel, len(found.rows)) == (kernel, 2)


# Records and tables --------------------------------------------------------------------------


def row(id: str, ours: Timing, peers: dict[str, Timing], precision: str = "float32") -> Row:
    plain = 1.0 if precision == "float32" else None
    return Row("file", id, precision, "1×2 * 3×2", 2000, 100, 0.5, "bytes", plain, 9, ours, peers)


@pytest.fixture
def report() -> Report:
    return Report(
        date="2026-01-02T03:04:05+00:00",
        gpu="GPU",
        seed=7,
        data="uniform in [-1, 1)",
        versions={"cupyconv": "1.2", "torch": "3.4"},
        ceilings=H200,
        seconds=12.3,
        rows=[
            row(
                "a",
                Timing(1.0, (0.9, 1.1), 1e-7),
                {
                    "torch": Timing(2.0, (2.0, 2.0), 2e-7),
                    "channels-last": Timing(failure="OutOfMemoryError: large"),
                },
            ),
            row(
                "b",
                Timing(2.0, (2.0, 2.0), 3e-7),
                {
                    "torch": Timing(16.0, (16.0, 16.0), 1e-7),
                    "channels-last": Timing(6.0, (6.0, 6.0), 1e-7),
                },
            ),
            row("c", Timing(failure="error 2.0e-02 in norm, above 1.0e-06"), {}),
            row("a", Timing(1.0, (1.0, 1.0), 2e-4), {}, "float16"),
        ],
        host=[HostRow("conv2d", 20.0, 16.0), HostRow("conv_transpose2d", failure="broken")],
    )


def test_the_record_survives_a_file(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path / "run.json")
    assert Report.read(tmp_path / "run.json") == report


def test_a_record_without_a_kernel_can_be_read(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    replace(report, kernel="direct").write(path)
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record.pop("kernel") == Report.read(path).kernel == "direct"
    path.write_text(json.dumps(record), encoding="utf-8")
    assert Report.read(path) == report


def test_a_record_without_operations_and_bytes_has_those_of_its_cases(
    report: Report, tmp_path: Path
) -> None:
    case = BY_ID["1/65"]
    rows = [
        replace(
            row(case.id, Timing(1.0), {}, name),
            operations=case.operations,
            nbytes=case.elements * size,
        )
        for name, size in {"float32": 4, "float16": 2}.items()
    ]
    path = tmp_path / "run.json"
    replace(report, rows=rows).write(path)
    record = json.loads(path.read_text(encoding="utf-8"))
    for one in record["rows"]:
        del one["operations"], one["nbytes"]
    path.write_text(json.dumps(record), encoding="utf-8")
    assert Report.read(path).rows == rows


def test_failures_are_ours_alone(report: Report) -> None:
    assert report.failures() == [
        "c, float32: error 2.0e-02 in norm, above 1.0e-06",
        "conv_transpose2d: broken",
    ]


def test_the_table_as_text(report: Report) -> None:
    text = reports.rows_table(report.rows[:3], markdown=False)
    assert [line.split() for line in text.splitlines()] == [
        "case,input,*,weight,ms,limit,of,limit,of,plain,torch,×,channels-last,×,error,torch's".split(
            ","
        ),
        ["-" * n for n in (7, 14, 6, 5, 8, 8, 6, 8, 13, 8, 7, 7)],
        "a 1×2 * 3×2 1.000 0.500 50% 100% 2.000 2.00 failed – 1.0e-07 2.0e-07".split(),
        "b 1×2 * 3×2 2.000 0.500 25% 50% 16.000 8.00 6.000 3.00 3.0e-07 1.0e-07".split(),
        "c 1×2 * 3×2 failed 0.500 – – – – – – – –".split(),
        "3 cases geometric mean 35% (2) 71% (2) 4.00 (2) 3.00 (1)".split(),
        "lowest 25% 50% 2.00 3.00".split(),
        "below 1.00 0 0".split(),
    ]
    assert len({len(line) for line in text.splitlines()[1:3]}) == 1


def test_cases_below_one_are_counted(report: Report) -> None:
    first, second, failed = report.rows[:3]
    slower = replace(first, peers={"torch": Timing(0.9)})
    rows = [slower, replace(slower, peers={"torch": Timing(0.25)}), second, failed]
    *_, mean, lowest, below = reports.rows_table(rows, markdown=False).splitlines()
    assert mean.split() == "4 cases geometric mean 40% (3) 79% (3) 1.22 (3) 3.00 (1)".split()
    assert lowest.split() == "lowest 25% 50% 0.25 3.00".split()
    assert below.split() == "below 1.00 2 0".split()
    # Without a peer, and with one that ran nowhere.
    alone = [replace(one, peers={}) for one in rows]
    assert reports.rows_table(alone, markdown=False).splitlines()[-1].split() == [
        "lowest",
        "25%",
        "50%",
    ]
    broken = [replace(one, peers={"torch": Timing(failure="no engine")}) for one in rows]
    assert reports.rows_table(broken, markdown=False).splitlines()[-1].split() == [
        *("below", "1.00"),
        reports.NONE,
    ]


def test_the_table_as_markdown(report: Report) -> None:
    text = reports.rows_table(report.rows[:3], markdown=True)
    lines = text.splitlines()
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)
    assert len({line.count("|") for line in lines}) == 1
    rule = [cell.strip() for cell in lines[1].strip("|").split("|")]
    assert all(set(cell) == {"-"} for cell in rule[:2])
    assert all(set(cell[:-1]) == {"-"} and cell[-1] == ":" for cell in rule[2:])


def test_the_whole_report(report: Report) -> None:
    text = reports.render(report)
    assert "file, float32" in text and "file, float16" in text
    for part in ("GPU", "2026-01-02", "seed 7", "cupyconv 1.2", "4.27 TB/s", "tf32 404.0"):
        assert part in text
    assert "a third of the TF32 rate or half of the float16 rate, the larger." in text
    unscaled = reports.render(replace(report, ceilings=UNSCALED))
    assert "a third of the TF32 rate." in unscaled
    assert "- a, channels-last: OutOfMemoryError: large" in text
    assert "- c, cupyconv: error 2.0e-02 in norm, above 1.0e-06" in text
    assert "- conv_transpose2d: broken" in text
    assert "of plain" not in text.partition("file, float16")[2]
    assert "### file, float32" in reports.render(report, markdown=True)
    assert "is forced" not in text
    forced = reports.render(replace(report, kernel="hopper"))
    assert "The hopper kernel is forced." in forced.splitlines()[0]


# The command ---------------------------------------------------------------------------------


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **variables},
        capture_output=True,
        encoding="utf-8",
    )


def test_list() -> None:
    done = command("depthwise", "2/11", "--list")
    assert done.returncode == 0, done.stderr
    head, _, *lines = done.stdout.splitlines()
    assert head.split() == "case input * weight other names".split()
    listed = {line.split()[0] for line in lines}
    assert listed >= {"1/82", "1/83", "1/84", "1/85", "1/86a", "2/11"} and "1/65" not in listed
    assert command("--list").stdout.count("\n") == len(ALL) + 3


def test_list_of_own_cases(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--mine", "conv1d 1x3x100 8x3x5", "conv1d 1x3x100 8x3x7"]
    for names, ids in {
        (): ["mine/1", "mine/2"],
        ("1/65",): ["1/65", "mine/1", "mine/2"],
        ("host",): ["mine/1", "mine/2", "host"],
    }.items():
        assert program.main([*names, "--list", *own]) == 0
        listed = capsys.readouterr().out.splitlines()[2:]
        assert [line.split()[0] for line in listed] == ids


OWN = {
    "conv1d": "conv1d 2x3x20 4x3x5 stride=2 bias=yes",
    "conv2d": "conv2d 2x4x9x8 6x2x3x3 padding=1,0 groups=2",
    "conv3d": "conv3d 1x2x5x6x7 3x2x3x1x2 dilation=1,2,1",
    "conv_transpose1d": "conv_transpose1d 2x3x9 3x4x5 stride=3 output_padding=2",
    "conv_transpose2d": "conv_transpose2d 2x4x5x6 4x3x3x3 stride=2 groups=2 bias=yes",
    "conv_transpose3d": "conv_transpose3d 1x2x3x4x3 2x3x2x3x2 padding=1",
    "depthwise_conv2d": "depthwise_conv2d 2x6x9x9 12x1x3x3 padding=1",
    "fused": "fused 2x4x7x6 4x6x3x4 num_groups=3 stride=2 output_padding=1",
}


@pytest.mark.usefixtures("numpy_for_cupy")
def test_a_run_of_own_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables, record and pictures, as of any other cases."""
    assert set(OWN) | {FUSED} == set(mine.OPTIONS) | set(mine.SHORT)
    path, picture = tmp_path / "run.json", tmp_path / "own.svg"
    options = ["--precision", "float32", "float16", "--json", str(path), "--draw", str(picture)]
    assert program.main(["--mine", *OWN.values(), *options]) == 0
    report = Report.read(path)
    assert report.failures() == report.host == []
    ids = [f"mine/{i}" for i in range(1, 9)]
    assert [(row.id, row.precision) for row in report.rows] == [
        (id, name) for name in ("float32", "float16") for id in ids
    ]
    printed = capsys.readouterr().out
    assert reports.render(report) in printed
    # Only ours ran here.
    drawn = {file.name for file in tmp_path.iterdir()} - {path.name}
    assert drawn == {"own-roofline.svg"}
    assert f"drawn: {tmp_path / 'own-roofline.svg'}" in printed.splitlines()


@pytest.mark.usefixtures("numpy_for_cupy")
@pytest.mark.parametrize("line", OWN.values())
def test_the_kernel_of_a_case(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """A case says on which kernel a GPU would run it."""
    monkeypatch.setattr(_explain, "current", lambda: CHIPS["sm_90a"])
    (case,) = mine.load([line])
    one = jobs.prepare(case, PRECISIONS["float32"], 5, -1.0)
    chosen = one.kernel()
    with choice.forced("direct"):
        assert one.kernel().split(" + ")[0] == "direct"
    assert one.kernel() == chosen


def test_without_a_gpu() -> None:
    done = command("1/65", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("benchmarks: ") and "GPU" in line


def test_wrong_arguments() -> None:
    for arguments, text in {
        ("1/99",): "no case is called '1/99'",
        ("--repeats", "0"): "--repeats must be positive",
        ("--json", "benchmarks/run.json"): "must not lie among the cases",
        ("--kernel", "cudnn"): "argument --kernel: invalid choice",
        ("--beside", "cudnn"): "argument --beside: invalid choice",
        ("--mine", "conv2d 1x2"): "error: --mine 'conv2d 1x2': conv2d: needs two shapes",
        ("--draw", "run.pdf"): "'run.pdf' must end in .svg or .png",
        ("--draw", "nowhere/run.svg"): "there is no folder 'nowhere'",
    }.items():
        done = command(*arguments)
        assert done.returncode == 2
        assert text in done.stderr


def test_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That drawing will not work is said before anything runs."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(run, "run", lambda *arguments: pytest.fail("it ran"))
    with pytest.raises(SystemExit, match="2"):
        program.main(["--draw", "run.svg"])
    assert "drawing needs matplotlib: pip install matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize("kernel", ["auto", "direct", "portable", "hopper"])
def test_the_kernel_of_a_run(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path, kernel: str
) -> None:
    asked: list[run.Options] = []

    def measured(
        cases: Any,
        precisions: Any,
        host: bool,
        options: run.Options,
        save: Callable[[Report], None],
    ) -> Report:
        asked.append(options)
        report.kernel = options.kernel
        save(report)
        return report

    monkeypatch.setattr(run, "missing", lambda: None)
    monkeypatch.setattr(run, "run", measured)
    arguments = ["1/65", "--json", str(path := tmp_path / "run.json")]
    program.main([*arguments, *(["--kernel", kernel] if kernel != "auto" else [])])
    assert [options.kernel for options in asked] == [kernel] == [Report.read(path).kernel]
    program.main([*arguments, "--beside", "plain", kernel if kernel != "auto" else "direct"])
    assert asked[0].beside == []
    assert asked[1].beside == ["plain", kernel if kernel != "auto" else "direct"]


@pytest.mark.parametrize(
    ("gpu", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
    ],
)
def test_the_name_of_a_record(gpu: str, short: str) -> None:
    assert program.record_name(gpu, [], False, ["float32"]) == f"{short}-float32.json"
    named = program.record_name(gpu, ["1/65", "d/*"], True, ["tf32", "float16"])
    assert named == f"{short}-1-65-d-mine-tf32-float16.json"
    assert len(program.record_name(gpu, ["1/65"] * 99, False, ["float32"])) <= 125


@pytest.mark.usefixtures("numpy_for_cupy")
def test_a_record_lies_among_the_others_and_says_how_it_was_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default; charts that show it are drawn again."""
    monkeypatch.setattr(charts, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(charts, "draw", lambda: [tmp_path / "drawn.svg"])
    arguments = ["--mine", "conv1d 1x3x100 8x3x5", "--seed", "7"]
    path = tmp_path / "records" / "gpu-mine-float32.json"
    for shown in ((), ("gpu-mine-float32",)):
        monkeypatch.setattr(charts, "SHOWN", shown)
        assert program.main(arguments) == 0
        printed = capsys.readouterr().out.splitlines()
        assert f"record: {path}" in printed
        assert (f"drawn: {tmp_path / 'drawn.svg'}" in printed) == bool(shown)
    command = "python -m benchmarks --mine 'conv1d 1x3x100 8x3x5' --seed 7"
    assert Report.read(path).command == command
    assert program.main(arguments[:-2]) == 0
    record = Report.read(path)
    assert record.command == command.replace("--seed 7", f"--seed {record.seed}")


@pytest.mark.parametrize("path", sorted(charts.RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_records(path: Path) -> None:
    """Each says how and when it was made, and no time in it lies below its limit."""
    record = Report.read(path)
    assert record.command.startswith("python -m benchmarks ")
    assert f"--seed {record.seed}" in record.command
    assert {"cupyconv", "CuPy", "torch", "cudnn", "CUDA driver"} <= set(record.versions)
    assert record.date and record.gpu and record.rows
    for row in record.rows:
        assert row.of_limit is not None and row.of_limit < 1, row.id
        precision = PRECISIONS[row.precision]
        limit = limits.limit(BY_ID[row.id], precision, record.ceilings)
        assert (row.limit_ms, row.limited_by) == (pytest.approx(limit.ms), limit.by)


def test_reading_a_record(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    report.write(path)
    done = command("--read", str(path), "--markdown")
    assert done.returncode == 0, done.stderr
    assert done.stdout == reports.render(report, markdown=True) + "\n"


def test_nothing_heavy_is_imported_for_a_listing() -> None:
    code = (
        "import sys; from benchmarks.__main__ import main; main(['--list']); "
        "print(*({'torch', 'cupy', 'tqdm', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0
    assert done.stderr.strip() == ""
