"""What a run found: a record that goes to a JSON file and back, and tables of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from . import cases, limits
from .limits import Ceilings
from .precisions import PRECISIONS, RATES
from .timing import geometric_mean

Summary: TypeAlias = Callable[[Sequence[float | None]], str]

NONE = "–"
AUTO = "auto"  # the kernels that the planner chooses


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one contender in one case, or why there are none.

    ``ms`` is the median of the repeats, ``error`` is ``‖result - exact‖ / ‖exact‖``.
    """

    ms: float | None = None
    quartiles: tuple[float, float] | None = None
    error: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Row:
    """A case in one precision. ``plain_limit_ms`` is float32's limit without Tensor Cores.

    ``operations`` and ``nbytes`` are what the limit is made of: multiplications and additions, and
    the bytes of input, weight, bias and output once each.
    """

    section: str
    id: str
    precision: str
    shapes: str
    operations: int
    nbytes: int
    limit_ms: float
    limited_by: str
    plain_limit_ms: float | None
    repeats: int
    ours: Timing
    peers: dict[str, Timing]

    @property
    def of_limit(self) -> float | None:
        return None if self.ours.ms is None else self.limit_ms / self.ours.ms

    @property
    def of_plain_limit(self) -> float | None:
        if self.ours.ms is None or self.plain_limit_ms is None:
            return None
        return self.plain_limit_ms / self.ours.ms

    def ratio(self, peer: str) -> float | None:
        """Return the peer's time over ours."""
        theirs = self.peers.get(peer, Timing()).ms
        return None if theirs is None or self.ours.ms is None else theirs / self.ours.ms


@dataclass(frozen=True)
class HostRow:
    """Microseconds that a small call takes of the host; ``failure`` says why there are none."""

    call: str
    ours_us: float | None = None
    peer_us: float | None = None
    failure: str | None = None

    @property
    def ratio(self) -> float | None:
        """The peer's time over ours."""
        if self.ours_us is None or self.peer_us is None:
            return None
        return self.peer_us / self.ours_us


@dataclass
class Report:
    """A run."""

    date: str
    gpu: str
    seed: int
    data: str
    versions: dict[str, str]
    ceilings: Ceilings
    rows: list[Row] = field(default_factory=list)
    host: list[HostRow] = field(default_factory=list)
    seconds: float = 0.0  # that the run took
    kernel: str = AUTO  # that dense convolutions were forced to run on
    command: str = ""  # that makes such a record

    def failures(self) -> list[str]:
        """Return what of ours is wrong or did not run."""
        rows = [f"{r.id}, {r.precision}: {r.ours.failure}" for r in self.rows if r.ours.failure]
        return rows + [f"{h.call}: {h.failure}" for h in self.host if h.failure]

    def write(self, path: Path) -> None:
        path.write_text(
            json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
            encoding="utf-8",
        )

    @classmethod
    def read(cls, path: Path) -> Report:
        record = json.loads(path.read_text(encoding="utf-8"))
        record["ceilings"] = Ceilings(**record["ceilings"])
        known = {case.id: case for case in cases.load()}
        record["rows"] = [_row(row, known) for row in record["rows"]]
        record["host"] = [HostRow(**row) for row in record["host"]]
        return cls(**record)


def _row(record: dict[str, Any], known: dict[str, cases.Case]) -> Row:
    if "operations" not in record:  # as in records of before, all of whose cases are known
        case = known[record["id"]]
        record["operations"] = case.operations
        record["nbytes"] = limits.nbytes(case, PRECISIONS[record["precision"]])
    peers = {name: _timing(timing) for name, timing in record["peers"].items()}
    return Row(**{**record, "ours": _timing(record["ours"]), "peers": peers})


def _timing(record: dict[str, Any]) -> Timing:
    spread = record["quartiles"]
    return Timing(**{**record, "quartiles": None if spread is None else tuple(spread)})


# Tables --------------------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]], markdown: bool, left: int = 1) -> str:
    """Return rows, the first one being the head, as a table; `left` columns are text."""
    widths = [max(2, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    if markdown:
        rule = [
            "-" * width if place < left else "-" * (width - 1) + ":"
            for place, width in enumerate(widths)
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])
    rule = ["-" * width for width in widths]
    return "\n".join("  ".join(line).rstrip() for line in [lines[0], rule, *lines[1:]])


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def _ms(timing: Timing) -> str:
    return "failed" if timing.failure else _number(timing.ms, ".3f")


def _mean(values: Sequence[float | None], form: str) -> str:
    """Return the geometric mean, with the number of values where some are missing."""
    known = [value for value in values if value is not None]
    text = _number(geometric_mean(known), form)
    return text if len(known) in (0, len(values)) else f"{text} ({len(known)})"


def _lowest(values: Sequence[float | None], form: str) -> str:
    return _number(min((value for value in values if value is not None), default=None), form)


def _below_one(ratios: Sequence[float | None]) -> str:
    """Return how many ratios are below one, where there are any."""
    known = [ratio for ratio in ratios if ratio is not None]
    return str(sum(ratio < 1 for ratio in known)) if known else NONE


def rows_table(rows: Sequence[Row], markdown: bool) -> str:
    """Return the table of a section in one precision, with what sums it up below: the geometric
    means, the lowest values, and the number of cases in which a peer is faster.
    """
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    plain = any(row.plain_limit_ms is not None for row in rows)
    head = ["case", "input * weight", "ms", "limit", "of limit"]
    head += ["of plain"] if plain else []
    for name in peers:
        head += [name, "×"]
    head += ["error", *(f"{name}'s" for name in peers[:1])]
    lines = [head]
    for row in rows:
        line = [row.id, row.shapes, _ms(row.ours), f"{row.limit_ms:.3f}"]
        line.append(_number(row.of_limit, ".0%"))
        line += [_number(row.of_plain_limit, ".0%")] if plain else []
        for name in peers:
            line += [_ms(row.peers.get(name, Timing())), _number(row.ratio(name), ".2f")]
        line.append(_number(row.ours.error, ".1e"))
        line += [_number(row.peers.get(name, Timing()).error, ".1e") for name in peers[:1]]
        lines.append(line)
    if len(rows) == 1:
        return table(lines, markdown, left=2)
    shares = [[row.of_limit for row in rows]]
    shares += [[row.of_plain_limit for row in rows]] if plain else []
    ratios = [[row.ratio(name) for row in rows] for name in peers]

    def summary(first: str, name: str, of_shares: Summary, of_ratios: Summary) -> list[str]:
        line = [first, name, "", "", *map(of_shares, shares)]
        for own in ratios:
            line += ["", of_ratios(own)]
        return line + [""] * (len(head) - len(line))

    for first, name, summed in (
        (f"{len(rows)} cases", "geometric mean", _mean),
        ("", "lowest", _lowest),
    ):
        lines.append(summary(first, name, partial(summed, form=".0%"), partial(summed, form=".2f")))
    if peers:
        lines.append(summary("", "below 1.00", lambda _: "", _below_one))
    return table(lines, markdown, left=2)


def host_table(rows: Sequence[HostRow], markdown: bool) -> str:
    lines = [["small call", "µs", "torch", "×"]]
    for row in rows:
        ours = "failed" if row.failure else _number(row.ours_us, ".1f")
        lines.append([row.call, ours, _number(row.peer_us, ".1f"), _number(row.ratio, ".2f")])
    return table(lines, markdown)


def head(report: Report) -> list[str]:
    """Return what must be known to read the tables, paragraph by paragraph."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    ceilings = report.ceilings
    rates = ", ".join(f"{name} {ceilings.rates[name] / 1e12:.1f}" for name in RATES)
    forced = f" The {report.kernel} kernel is forced." if report.kernel != AUTO else ""
    scaled = " or half of the float16 rate, the larger" if ceilings.scaled else ""
    return [
        f"One {report.gpu}, {report.date}. {versions}. Random data, {report.data}, "
        f"seed {report.seed}. The run took {report.seconds:.0f} s.{forced}",
        "ms: medians of times by CUDA events, all contenders in turn, L2 flushed before each. "
        "×: the other's time over ours. error: ‖result - exact‖ / ‖exact‖ against float64. "
        "T: transposed; s, p, o, d, g: stride, padding, output_padding, dilation, groups.",
        "limit: the larger of bytes (input, weight, bias and output once each) over the copy rate "
        "and operations over the rate of matrix products; for float32 accuracy that is a third of "
        f"the TF32 rate{scaled}. of plain: the same with the float32 rate in its place. "
        f"Copy, measured: {ceilings.copy / 1e12:.2f} TB/s, read and written. Matrix products in "
        f"TFLOP/s ({ceilings.source}): {rates}.",
    ]


def render(report: Report, markdown: bool = False) -> str:
    """Return the whole report as text or Markdown."""
    parts = head(report)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        groups.setdefault((row.section, row.precision), []).append(row)
    for (section, precision), rows in groups.items():
        parts.append(_title(f"{section}, {precision}", markdown))
        parts.append(rows_table(rows, markdown))
        failures = [
            f"{row.id}, {who}: {timing.failure}"
            for row in rows
            for who, timing in {"cupyconv": row.ours, **row.peers}.items()
            if timing.failure
        ]
        if failures:
            parts.append("\n".join(f"- {failure}" for failure in failures))
    if report.host:
        parts.append(_title("Host time of a small call", markdown))
        parts.append(host_table(report.host, markdown))
        failures = [f"- {row.call}: {row.failure}" for row in report.host if row.failure]
        parts += ["\n".join(failures)] if failures else []
    return "\n\n".join(parts)


def _title(text: str, markdown: bool) -> str:
    return f"### {text}" if markdown else text
