"""Kernel sources: headers in their place, line numbers that lead back, and what files may hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cupyconv import _compile
from cupyconv._kernels.choice import instances
from cupyconv._kernels.launches import TARGETS, Instance

KERNELS = sorted(path.name for path in _compile.directory().glob("*.cu"))
HEADERS = sorted(path.name for path in _compile.directory().glob("*.cuh"))
LISTED = [instance for target in TARGETS for instance in instances(target)]


def text_of(name: str) -> str:
    return (_compile.directory() / name).read_text(encoding="utf-8")


def lines_of(name: str) -> list[str]:
    return text_of(name).split("\n")


def included(name: str) -> set[str]:
    """The headers that a file includes, directly or through other headers."""
    direct = re.findall(r'^\s*#\s*include\s*"([^"]+)"', text_of(name), re.MULTILINE)
    return set(direct).union(*map(included, direct))


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def origins(source: str) -> list[tuple[str, int, str]]:
    """The file and the line that a compiler takes each line of a source for."""
    result = []
    name, number = "", 0
    for line in source.split("\n"):
        directive = re.fullmatch(r'#line (\d+) "([^"]+)"', line)
        if directive:
            name, number = directive[2], int(directive[1])
        else:
            assert name, "the source begins with no #line"
            result.append((name, number, line))
            number += 1
    return result


@pytest.mark.parametrize("name", KERNELS)
def test_each_header_is_inlined_once(name: str) -> None:
    source = _compile.source(name)
    assert '#include "' not in without_comments(source)
    assert "#pragma once" not in source
    openings = re.findall(r'^#line 1 "([^"]+)"$', source, re.MULTILINE)
    assert sorted(openings) == sorted({name, *included(name)})


@pytest.mark.parametrize("name", KERNELS)
def test_line_numbers_lead_back(name: str) -> None:
    """An error message names the file and the line that a person has to look at."""
    seen = set()
    for file, number, line in origins(_compile.source(name)):
        original = lines_of(file)[number - 1]
        assert line == original or (not line and is_replaced(original)), (file, number)
        if line:
            assert (file, number) not in seen
            seen.add((file, number))
    for file in {name, *included(name)}:
        for number, line in enumerate(lines_of(file), 1):
            assert (file, number) in seen or not line or is_replaced(line), (file, number)


@pytest.mark.parametrize("name", KERNELS + HEADERS)
def test_includes_stand_outside_of_conditions(name: str) -> None:
    """In a group that is skipped, the line number after a header would be skipped with it."""
    depth = 0
    for line in lines_of(name):
        depth += line.startswith("#if") - line.startswith("#endif")
        assert not (depth and is_replaced(line)), line


def is_replaced(line: str) -> bool:
    """Whether a line of a file has no place in the source."""
    return line == "#pragma once" or line.startswith('#include "')


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the kernels that the library reads instead of its own."""
    folder = tmp_path / "kernels"
    shutil.copytree(_compile.directory(), folder)
    monkeypatch.setattr(_compile, "directory", lambda: folder)
    yield folder
    _compile.source.cache_clear()


def read(name: str) -> str:
    """The source of a kernel as its files are now."""
    _compile.source.cache_clear()
    return _compile.source(name)


@pytest.mark.parametrize("name", KERNELS)
def test_a_changed_header_is_a_changed_source(copy: Path, name: str) -> None:
    """CuPy's cache of binaries has the source in its key, and would not see a header."""
    before = read(name)
    for header in HEADERS:
        path = copy / header
        text = path.read_text(encoding="utf-8")
        path.write_text(f"{text}int changed;\n", encoding="utf-8")
        assert (read(name) != before) == (header in included(name)), header
        path.write_text(text, encoding="utf-8")
        assert read(name) == before


def test_nested_and_repeated_headers(copy: Path) -> None:
    """Each is put where it is met first; what follows an include keeps its line."""
    (copy / "a.cuh").write_text('// a\n#pragma once\n#include "b.cuh"\nint a;\n')
    (copy / "b.cuh").write_text("#pragma once\nint b;")
    (copy / "k.cu").write_text(
        '// k\n\n#include "b.cuh"\n#include "a.cuh"\n#include "a.cuh"\nint k;\n'
    )
    code = [origin for origin in origins(read("k.cu")) if origin[2].startswith("int")]
    assert code == [("b.cuh", 2, "int b;"), ("a.cuh", 4, "int a;"), ("k.cu", 6, "int k;")]


def test_a_missing_header_is_an_error(copy: Path) -> None:
    (copy / "k.cu").write_text('#include "missing.cuh"\n')
    with pytest.raises(FileNotFoundError, match=r"missing\.cuh"):
        read("k.cu")


@pytest.mark.parametrize("name", KERNELS)
def test_each_kernel_file_opens_with_its_contract(name: str) -> None:
    """What it computes, in a comment that names each macro and the launch.

    Macros of headers are named in theirs, and the headers in the kernel's.
    """
    contract = opening(name)
    assert contract.count("\n") >= 5
    assert re.search(r"\bLaunch: ", contract)
    named = "".join(opening(header) for header in included(name) if header in contract)
    macros = {key for i in LISTED if i.source == name for key, _ in i.defines}
    assert macros
    for macro in macros:
        assert re.search(rf"\b{macro}\b", contract + named), macro


def opening(name: str) -> str:
    found = re.match(r"(//[^\n]*\n)+", text_of(name))
    assert found, "no comment at the top"
    return found[0]


@pytest.mark.parametrize("name", HEADERS)
def test_each_header_opens_with_a_comment(name: str) -> None:
    assert text_of(name).startswith("// ")
    assert text_of(name).count("#pragma once\n") == 1


@pytest.mark.parametrize("name", KERNELS + HEADERS)
def test_inline_assembly_is_in_the_files_of_instructions(name: str) -> None:
    assembly = re.search(r"\b(__)?asm(__)?\b", without_comments(text_of(name)))
    assert (assembly is not None) == name.startswith("ptx_")


def test_every_file_is_reachable() -> None:
    sources = {instance.source for instance in LISTED}
    assert sources == set(KERNELS)
    assert set().union(*map(included, sources)) == set(HEADERS)
    files = {path.name for path in _compile.directory().iterdir() if path.is_file()}
    assert {n for n in files if not n.endswith(".py")} == {*KERNELS, *HEADERS}


def test_options() -> None:
    instance = Instance("k.cu", "k", (("ELEMENT", "complex<float>"), ("RANK", "2")))
    assert _compile.options(instance) == ("--std=c++17",)
    macros = {"MmaEngine": (), "WgmmaEngine": ("-arch=sm_90a",)}
    for engine, special in macros.items():
        instance = Instance("k.cu", "k", (("ENGINE", engine),))
        expected = ("--std=c++17", *special)
        assert _compile.options(instance) == expected, "instructions of one target alone"


def test_options_are_those_of_other_kernels() -> None:
    """CuPy compiles an empty file for all options that a process has not had before."""
    from cupy._core.core import assemble_cupy_compiler_options as assembled

    instance = Instance("k.cu", "k", (("RANK", "2"),))
    assert assembled(_compile.options(instance)) == assembled(())
    assert len({_compile.options(instance) for instance in LISTED}) == 2


def test_macros_are_a_part_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compile, "source", lambda name: f"// {name}\n")
    instance = Instance("k.cu", "k", (("ELEMENT", "complex<float>"), ("RANK", "2")))
    assert _compile.code(instance) == "#define ELEMENT complex<float>\n#define RANK 2\n// k.cu\n"


def test_kernel() -> None:
    """What CuPy is given to compile; it compiles at the first launch, so no GPU is needed."""
    for instance in {instance.source: instance for instance in LISTED}.values():
        kernel = _compile.kernel(instance)
        assert kernel is _compile.kernel(instance)
        assert kernel.code == _compile.code(instance)
        assert kernel.name == instance.function
        assert kernel.options == _compile.options(instance)


# Compiles the last listed shape of each kernel for an element.
COMPILE = """
import time
import cupy
from cupyconv import _compile, _device
from cupyconv._kernels import choice

(cupy.zeros(3) + 1).sum()
parts = ("ELEMENT", "INPUT", "OUTPUT", "PARTS", "ENGINE")
target = _device.processor_of(cupy.cuda.runtime.getDevice()).target
chosen = {
    (i.source, i.function, *(macro for macro in i.defines if macro[0] in parts)): i
    for i in choice.instances(target)
}
for instance in chosen.values():
    start = time.perf_counter()
    _compile.kernel(instance).compile()
    print(time.perf_counter() - start, instance)
"""

# The arrays are there, and with them all that CuPy does for its own first kernels.
FIRST_CALL = """
import time
import cupy, cupyconv

x = cupy.zeros({input}, "{dtype}")
w = cupy.zeros({weight}, "{dtype}")
(x + 1).sum()
cupy.cuda.runtime.deviceSynchronize()
start = time.perf_counter()
cupyconv.{function}(x, w)
cupy.cuda.runtime.deviceSynchronize()
print(time.perf_counter() - start)
"""


def python(code: str, cache: Path) -> str:
    """What another process prints that has its own folder for CuPy's binaries."""
    environment = {**os.environ, "CUPY_CACHE_DIR": str(cache)}
    root = Path(__file__).parents[1]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.gpu
def test_seconds_to_compile(tmp_path: Path) -> None:
    """The first call ever compiles its kernels. An instance that takes more than 10 s holds a
    loop that was unrolled by mistake."""
    lines = python(COMPILE, tmp_path).splitlines()
    assert lines
    assert list(tmp_path.iterdir()), "compiled elsewhere"
    assert not [line for line in lines if float(line.split()[0]) > 10]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("function", "input", "weight", "dtype"),
    [
        ("conv2d", (2, 3, 9, 9), (5, 3, 3, 3), "float32"),
        ("conv2d", (2, 64, 32, 32), (64, 64, 3, 3), "float32"),
        ("conv_transpose2d", (2, 64, 32, 32), (64, 64, 4, 4), "float16"),
    ],
)
def test_seconds_of_a_first_call(
    tmp_path: Path, function: str, input: tuple[int, ...], weight: tuple[int, ...], dtype: str
) -> None:
    """In a process of its own, with the kernels of an earlier one on disk."""
    code = FIRST_CALL.format(function=function, input=input, weight=weight, dtype=dtype)
    seconds = [float(python(code, tmp_path)) for _ in range(8)]
    assert min(seconds[1:]) <= 0.05, seconds
