"""The package as a user gets it: from a wheel, an editable install and the source tree.

Each is loaded by a Python of its own, in an environment that holds NumPy and nothing else.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import cupyconv

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "typed_script.py"
KERNELS = sorted(path.name for path in (ROOT / "kernels").glob("*.cu"))

FUNCTIONS = {
    "batch_norm",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm",
    "conv_transpose3d",
    "depthwise_conv2d",
    "explain",
    "group_norm",
    "max_pool2d",
    "precision",
    "show_config",
}

# Prints where the package lies, whether its kernels hold an unresolved include of their own, and
# what a small convolution gives.
PROBE = """
import sys
import numpy, cupyconv
from cupyconv import _compile
print(cupyconv.__file__)
for name in sys.argv[1:]:
    text = _compile.source(name)
    assert "__global__" in text, name
    assert '#include "' not in text, name
print(cupyconv.conv1d(numpy.arange(6.0).reshape(1, 1, 6), numpy.array([[[1.0, -2.0, 1.0]]])))
"""


def run(*command: str | Path, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the source tree, so that building leaves nothing in the tree itself."""
    copy = tmp_path_factory.mktemp("packaging") / "tree"
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "output")
    return Path(shutil.copytree(ROOT, copy, ignore=unwanted))


def build(hook: str, tree: Path, place: Path) -> Path:
    """The file that pip would make, by the same hook of the build backend, without the network."""
    code = f"from setuptools import build_meta; build_meta.{hook}({str(place)!r})"
    run(sys.executable, "-c", code, cwd=tree)
    (made,) = place.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory) -> Path:
    return build("build_wheel", tree, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def editable(tree, tmp_path_factory) -> Path:
    return build("build_editable", tree, tmp_path_factory.mktemp("editable"))


@pytest.fixture(scope="module")
def sdist(tree, tmp_path_factory) -> Path:
    return build("build_sdist", tree, tmp_path_factory.mktemp("sdist"))


@pytest.fixture
def environment(tmp_path) -> Path:
    """An environment of its own, with this one's NumPy and nothing else."""
    place = tmp_path / "environment"
    venv.create(place, with_pip=False)
    (site,) = place.glob("lib/python*/site-packages")
    numpy = Path(importlib.util.find_spec("numpy").origin).parent
    for package in (numpy, numpy.with_name("numpy.libs")):
        if package.exists():
            (site / package.name).symlink_to(package)
    return place


def install(wheel: Path, environment: Path) -> None:
    python = environment / "bin" / "python"
    options = ("--quiet", "--no-index", "--no-deps")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)


def probe(environment: Path, **variables: str) -> Path:
    """Where the package was found by that environment's Python, in a folder far from the tree."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    python = environment / "bin" / "python"
    output = run(python, "-c", PROBE, *KERNELS, cwd=environment, env=clean | variables)
    place, result = output.splitlines()
    assert result == "[[[0. 0. 0. 0.]]]"
    return Path(place).parent


def test_wheel(wheel, environment):
    install(wheel, environment)
    assert environment in probe(environment).parents


def test_editable_install(editable, tree, environment):
    install(editable, environment)
    assert probe(environment) == tree / "cupyconv"


def test_source_tree(tree, environment):
    assert probe(environment, PYTHONPATH=str(tree)) == tree / "cupyconv"


def test_types(wheel, environment, tmp_path):
    """A script that uses every function passes mypy's strict mode, and is right to run as well."""
    install(wheel, environment)
    python = environment / "bin" / "python"
    options = ("--strict", "--config-file=", "--cache-dir", tmp_path / "cache")
    run(sys.executable, "-m", "mypy", *options, "--python-executable", python, SCRIPT, cwd=tmp_path)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    used = set(re.findall(r"\bcupyconv\.(\w+)", SCRIPT.read_text(encoding="utf-8")))
    assert used == set(cupyconv.__all__)


def test_wheel_contents(wheel):
    files = set(zipfile.ZipFile(wheel).namelist())
    assert "cupyconv/py.typed" in files
    for path in (ROOT / "kernels").glob("*.cu*"):
        assert f"cupyconv/kernels/{path.name}" in files
    for path in (ROOT / "cupyconv").rglob("*.py"):
        assert path.relative_to(ROOT).as_posix() in files
    folders = {name.split("/")[0] for name in files}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"cupyconv"}


def test_sdist_contents(sdist):
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md"} <= files
    for path in (*(ROOT / "kernels").glob("*.cu*"), *(ROOT / "cupyconv").rglob("*.py")):
        assert path.relative_to(ROOT).as_posix() in files


def test_version(wheel, sdist):
    assert wheel.name.split("-")[:2] == ["cupyconv", cupyconv.__version__]
    assert sdist.name == f"cupyconv-{cupyconv.__version__}.tar.gz"


def test_citation():
    """It has the version of the package, the date of the changelog and the licence's owner."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["title"] == "cupyconv"
    assert citation["version"] == cupyconv.__version__
    releases = re.findall(r"^## \[(.+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert releases[0] == (citation["version"], str(citation["date-released"]))
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith(f"{citation['license']} License\n")
    assert [f"Copyright (c) {author['name']}" for author in citation["authors"]] == re.findall(
        r"^Copyright .*$", licence, re.M
    )


def test_all_is_complete():
    public = {
        name
        for name, value in vars(cupyconv).items()
        if not name.startswith("_") and not isinstance(value, type(cupyconv))
    }
    assert public - {"annotations"} == set(cupyconv.__all__) == FUNCTIONS
    assert len(cupyconv.__all__) == len(FUNCTIONS)
    assert all(getattr(cupyconv, name).__doc__ for name in cupyconv.__all__)
