"""Run the benchmark: ``python -m benchmarks`` from the root of the repository."""

from __future__ import annotations

import argparse
import importlib.util
import re
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from cupyconv._kernels.choice import KERNELS

from . import cases as cases_
from . import charts, mine
from .precisions import PRECISIONS
from .report import AUTO, Report, render, table

NO_GPU = 2
RANDOM = "random"  # the first argument, for random calls


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Speed and accuracy on one GPU, beside its limits and beside PyTorch.",
        epilog=f"'{RANDOM}' as the first argument times random calls instead; it has --help too.",
    )
    add = result.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="cases to run, all by default: ids, sections, kinds, patterns such as '1/7*', "
        f"'{cases_.HOST}' for the host time of a small call; before the options",
    )
    add(
        "--mine",
        nargs="+",
        default=[],
        metavar="CASE",
        help="your own cases: lines in quotes such as 'conv2d 8x64x56x56 128x64x3x3 stride=2 "
        "padding=1', or files of such lines; without NAME, they alone",
    )
    add(
        "--precision",
        nargs="+",
        default=["float32"],
        choices=[*PRECISIONS, "all"],
        help="default: float32",
    )
    add(
        "--kernel",
        default=AUTO,
        choices=(AUTO, *KERNELS),
        help="run convolutions on this kernel where it can take them, to compare kernels; default: "
        "the planner's choice",
    )
    add(
        "--beside",
        nargs="+",
        default=[],
        choices=KERNELS,
        metavar="KERNEL",
        help="time convolutions on these kernels too, where they can take them, in the same run",
    )
    add("--no-peer", action="store_true", help="without PyTorch")
    add("--compile", action="store_true", help="torch.compile too, for the fused operation")
    add("--positive", action="store_true", help="inputs and weights in [0, 1), not [-1, 1)")
    add(
        "--channels-last",
        action="store_true",
        help="our arrays have their channels innermost, as PyTorch's in this format",
    )
    add("--repeats", type=int, metavar="N", help="a fixed number of repeats")
    add(
        "--seconds",
        type=float,
        default=0.5,
        help="time for the repeats of a case, at least 5 of them; default: 0.5",
    )
    add("--seed", type=int, help="of the random data; default: a fresh one")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="where to write the record, all numbers; default: benchmarks/records/GPU-WHAT.json",
    )
    add("--markdown", action="store_true", help="print Markdown")
    add("--list", action="store_true", help="print the cases and their names, and run nothing")
    add("--read", type=Path, metavar="FILE", help="print the tables of a file of --json")
    add(
        "--draw",
        type=_picture,
        metavar="FILE",
        help="draw a roofline plot and the speed-up over PyTorch: NAME.svg (or .png) gives "
        "NAME-roofline.svg and NAME-speedup.svg; needs matplotlib; with --read too",
    )
    return result


def _picture(text: str) -> Path:
    """Return where to draw; what is missing is said now, not at the end of a long run."""
    forms = (".svg", ".png")
    path = Path(text)
    if path.suffix not in forms:
        raise argparse.ArgumentTypeError(f"{text!r} must end in {' or '.join(forms)}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("drawing needs matplotlib: pip install matplotlib")
    return path


def record_name(gpu: str, names: Sequence[str], mine: bool, precisions: Sequence[str]) -> str:
    """Return the name of a run's record: the GPU, the cases if they are not all, the precisions."""
    short = re.sub(r"^NVIDIA |[ -](SXM|PCIe|HBM|NVL|\d+GB).*$", "", gpu)
    parts = [short, *names, *(["mine"] if mine else []), *precisions]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")[:120] + ".json"


def listing(cases: Sequence[cases_.Case], host: bool) -> str:
    rows = [["case", "input * weight", "other names"]]
    rows += [[case.id, str(case), " ".join(sorted(case.names - {case.id}))] for case in cases]
    if host:
        rows.append([cases_.HOST, "host time of a small call", ""])
    return table(rows, markdown=False, left=3)


def show(report: Report, markdown: bool, picture: Path | None) -> None:
    """Print the tables, and draw the pictures where they are asked for."""
    print(render(report, markdown))
    if picture:
        from . import pictures

        for path in pictures.draw(report, picture):
            print(f"\ndrawn: {path}")


def measure(
    options: argparse.Namespace, given: Sequence[str], cases: Sequence[cases_.Case], host: bool
) -> int:
    """Measure cases as the options that were `given` say, and show and keep the report."""
    from . import run

    if reason := run.missing():
        print(f"benchmarks: {reason}", file=sys.stderr)
        return NO_GPU
    names = PRECISIONS if "all" in options.precision else dict.fromkeys(options.precision)
    seed = secrets.randbits(31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    command = given if options.seed is not None else [*given, "--seed", str(seed)]

    def place(report: Report) -> Path:
        """Return where the record goes."""
        if options.json:
            return Path(options.json)
        name = record_name(report.gpu, options.names, bool(options.mine), list(names))
        return charts.RECORDS / name

    def save(report: Report) -> None:
        report.command = shlex.join(["python", "-m", "benchmarks", *command])
        (path := place(report)).parent.mkdir(parents=True, exist_ok=True)
        report.write(path)

    report = run.run(
        cases,
        [PRECISIONS[name] for name in names],
        host,
        run.Options(
            seed=seed,
            seconds=options.seconds,
            repeats=options.repeats,
            peer=not options.no_peer,
            compiled=options.compile,
            positive=options.positive,
            channels_last=options.channels_last,
            kernel=options.kernel,
            beside=options.beside,
        ),
        save=save,
    )
    print()
    show(report, options.markdown, options.draw)
    print(f"\nrecord: {place(report)}")
    if charts.shows(place(report)) and importlib.util.find_spec("matplotlib"):
        for path in charts.draw():
            print(f"drawn: {path}")
    failures = report.failures()
    if failures:
        print("\nNot timed, as ours is wrong or failed:", *failures, sep="\n- ", file=sys.stderr)
    return 1 if failures else 0


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [RANDOM]:
        from . import on_random

        return on_random.main(given[1:])
    options = (parse := parser()).parse_args(given)
    if options.read:
        show(Report.read(options.read), options.markdown, options.draw)
        return 0
    try:
        cases, host = mine.load(options.mine), False
        if options.names or not cases:
            named, host = cases_.select(cases_.load(), options.names)
            cases = named + cases
    except ValueError as error:
        parse.error(str(error))
    if options.list:
        print(listing(cases, host))
        return 0
    if options.repeats is not None and options.repeats < 1:
        parse.error("--repeats must be positive")
    if options.json and options.json.resolve().parent == cases_.DIRECTORY.resolve():
        parse.error(f"--json must not lie among the cases in {cases_.DIRECTORY}")
    return measure(options, given, cases, host)


if __name__ == "__main__":
    raise SystemExit(main())
