"""The rules of the layers: who may import whom, and what a kernel's module offers."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import cupyconv
from cupyconv import _compile
from cupyconv._kernels import choice, launches

PACKAGE = Path(cupyconv.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = sorted(path.stem for path in (PACKAGE / "_kernels").glob("*.py") if path.stem[0] != "_")
MODULES = {name: importlib.import_module(f"cupyconv._kernels.{name}") for name in NAMES}
# A kernel's module names its sources; what several of them use names none.
KERNELS = {name for name, module in MODULES.items() if hasattr(module, "SOURCES")}
# Modules that know several kernels; the direct kernel's ranges of sums are added by another one.
COMPOSED = {
    "choice",
    "depthwise_gradient",
    "direct_conv",
    "fused",
    "gradient_products",
    "hopper_gradient",
    "im2col_conv",
    "im2col_gradient",
    "im2col_maps",
    "relayed",
    "matrix_gradient",
    "row_blocks",
    "unfolded",
    "weight_gradient",
}


def first_word(name: str) -> str:
    return name.split("_")[0]


# Helpers of one kernel begin with its first word.
HELPERS = {
    name
    for name in NAMES
    if name not in KERNELS and "_" in name and first_word(name) in set(map(first_word, KERNELS))
}
# Modules of the package that the plans may use: geometry, and words about arrays.
BELOW = {
    *("_arrays", "_axes", "_borders", "_geometry", "_packing", "_placement", "_shape_rules"),
    *("_strides", "_taps", "_unfolding"),
}


def imported(path: Path) -> Iterator[str]:
    """The modules of the package that a module imports as it runs, by their last names."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.level or "cupyconv" in str(node.module)):
            if node.module is None or node.module == "_kernels":
                yield from (alias.name for alias in node.names)
            else:
                yield node.module.split(".")[-1]


def path_of(name: str) -> Path:
    return PACKAGE / "_kernels" / f"{name}.py"


@pytest.mark.parametrize("name", NAMES)
def test_kernels_do_not_know_each_other(name: str) -> None:
    others = set(imported(path_of(name))) - {name}
    if name in COMPOSED:
        return
    assert not others & (KERNELS | COMPOSED)
    helpers = {other for other in others if other in HELPERS}
    assert all(first_word(other) == first_word(name) for other in helpers)
    assert others <= set(NAMES) | BELOW


@pytest.mark.parametrize("name", ["_arrays", "_arguments", "_geometry", "_taps"])
def test_geometry_knows_no_plan(name: str) -> None:
    others = set(imported(PACKAGE / f"{name}.py"))
    assert not others & {"_kernels", "_compile", "_device", "_launch", "_strides", *NAMES}


def test_only_the_choice_knows_all_kernels() -> None:
    """Files beside the kernels' modules name none of those for convolutions."""
    convolutions = {name for name in KERNELS if name.endswith("_conv")}
    for path in FILES:
        if path.parent == PACKAGE:
            assert not set(imported(path)) & convolutions, path


def test_helpers_of_kernels_are_found() -> None:
    assert {"depthwise_tiles", "matrix_blocks", "matrix_shapes", "matrix_tiles"} <= HELPERS


def test_every_source_has_a_module() -> None:
    sources = {path.name for path in _compile.directory().glob("*.cu")}
    assert {source for name in KERNELS for source in MODULES[name].SOURCES} == sources
    for name in KERNELS:
        assert MODULES[name].SOURCES[0] == f"{name}.cu"


@pytest.mark.parametrize("module", choice.CONVOLUTIONS, ids=lambda module: module.__name__)
def test_modules_keep_to_the_protocol(module: ModuleType) -> None:
    assert module.PLANS
    for name in ("bind", "instances"):
        assert callable(getattr(module, name))
    assert module.UNIT in ("Tensor Core", "FMA", "memory")
    assert module.ORDER
    for member in ("launches", "cycles", "workspace", "tiles"):
        assert hasattr(module.PLAN, member) or member in module.PLAN.__annotations__
    for target in launches.TARGETS:
        assert {one.source for one in module.instances(target)} <= set(module.SOURCES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_fit_in_a_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600
