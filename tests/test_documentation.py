"""The documentation: its examples run, its pictures are drawn, and Sphinx builds it."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cupyconv

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.rst"))
WITH_EXAMPLES = [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8")]
RECORDS = Path(__file__).parents[1] / "benchmarks" / "records"
EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = {path.stem for path in EXAMPLES.glob("*.py")} - {"gallery"}
# The library's functions, and those of its public modules by the module's name and their own.
PUBLIC = [
    *cupyconv.__all__,
    *(
        f"{name.removeprefix('cupyconv.')}.{function}"
        for _, name, _ in pkgutil.walk_packages(cupyconv.__path__, "cupyconv.")
        if "._" not in name
        for function in importlib.import_module(name).__all__
    ),
]
GPU_EXAMPLES = {
    page.stem: re.findall(
        r"^\.\. code-block:: python\n\n((?:(?: {3}.*)?\n)+)", page.read_text(encoding="utf-8"), re.M
    )
    for page in PAGES
}


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_examples_run(page: Path) -> None:
    failures, attempted = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert attempted > 0
    assert failures == 0


@pytest.mark.gpu
@pytest.mark.parametrize("page", [page for page, examples in GPU_EXAMPLES.items() if examples])
def test_gpu_examples_run(page: str) -> None:
    for example in GPU_EXAMPLES[page]:
        exec(re.sub("^ {3}", "", example, flags=re.M), {})


def test_errors_in_the_precision_guide() -> None:
    """They are the largest ones of the convolutions in the benchmark's records, rounded up."""
    page = (DOCS / "precision.rst").read_text(encoding="utf-8")
    stated = re.findall(r"- up to (\S+)\n     - (\S+)", page)
    for precision, bounds in zip(["float32", "tf32", "float16", "bfloat16"], stated, strict=True):
        rows = [
            row
            for gpu in ("h100", "h200")
            for row in json.loads((RECORDS / f"{gpu}-{precision}.json").read_text("utf-8"))["rows"]
        ]
        ours = max(row["ours"]["error"] for row in rows)
        theirs = max(row["peers"]["torch"]["error"] for row in rows)
        for worst, bound in zip((ours, theirs), map(float, bounds), strict=True):
            assert worst <= bound < 1.1 * worst, precision


def test_the_reference_has_a_page_for_every_public_function() -> None:
    listed = re.findall(
        r"^   (\w[\w.]*)$", (DOCS / "reference.rst").read_text(encoding="utf-8"), re.M
    )
    assert sorted(listed) == sorted(PUBLIC)


def test_pictures(tmp_path: Path) -> None:
    """The script draws all that the pages show and no more, the same in each run."""
    for folder in ("once", "twice"):
        run(sys.executable, DOCS / "make_pictures.py", tmp_path / folder)
    drawn = {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()}
    assert drawn == {path.name: path.read_bytes() for path in (tmp_path / "twice").iterdir()}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(drawn) == set(re.findall(r"^\.\. figure:: build/pictures/(\S+)$", text, re.M))


def test_build(tmp_path: Path) -> None:
    """As by ``make docs``: no warning, no reference that leads nowhere; the gallery is drawn."""
    options = ("-q", "-n", "-W", "--keep-going", "-d", tmp_path / "doctrees")
    run(sys.executable, "-m", "sphinx", *options, DOCS, tmp_path / "html")
    assert (tmp_path / "html" / "index.html").exists()
    pages = {path.stem for path in (tmp_path / "html" / "reference").iterdir()}
    assert pages == {f"cupyconv.{name}" for name in PUBLIC}
    for script in SCRIPTS:
        assert (tmp_path / "html" / "gallery" / f"{script}.html").exists()
        assert (tmp_path / "html" / "_images" / f"sphx_glr_{script}_002.png").exists()
