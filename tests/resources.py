"""What each kernel instance takes of a multiprocessor, as NVRTC's assembler reports it.

``python tests/resources.py`` brings the table up to date. A row has a digest of what was compiled,
so that what has not changed need not be compiled again.

Whether products of a group of warps may follow each other is for the assembler to prove, and not
all versions find the same. So instances with wgmma are compiled by an NVRTC of CUDA 12, too.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import re
import sys
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from cupyconv import _compile
from cupyconv._kernels.choice import instances
from cupyconv._kernels.launches import TARGETS, Instance

TABLE = Path(__file__).with_suffix(".json")

WGMMA = "-arch=sm_90a"  # the option of instances that have it

_FUNCTION = re.compile(
    r"Compiling entry function '(?P<function>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_COMMENT = re.compile(r"[ \t]*//.*")
_SHARED = re.compile(r"(\d+) bytes smem")


class Resources(NamedTuple):
    """Registers of a thread, bytes that it spills, bytes of shared memory of a block."""

    registers: int
    spills: int
    shared: int


def version() -> str:
    """The version of NVRTC."""
    from cupy_backends.cuda.libs import nvrtc

    return ".".join(map(str, nvrtc.getVersion()))


def all_options(options: tuple[str, ...], target: str) -> tuple[str, ...]:
    """What CuPy gives the compiler for a target, and that it shall report."""
    architecture = f"-arch={target}"
    return (
        *(option for option in options if option != architecture),
        "-ftz=true",
        "--device-as-default-execution-space",
        architecture,
        "--ptxas-options=-v",
    )


def report(source: str, options: tuple[str, ...], target: str) -> str:
    """Compile a source as CuPy does; return what the compiler reports."""
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, all_options(options, target))
        assert nvrtc.getCUBIN(program)
    except Exception as error:
        raise AssertionError(f"{target}: {nvrtc.getProgramLog(program)[-2000:]}") from error
    else:
        return nvrtc.getProgramLog(program)  # type: ignore[no-any-return]
    finally:
        nvrtc.destroyProgram(program)


@lru_cache(maxsize=1)
def nvrtc12() -> ctypes.CDLL:
    """The compiler of CUDA 12."""
    (folder,) = importlib.import_module("nvidia.cuda_nvrtc.lib").__path__
    return ctypes.CDLL(str(Path(folder, "libnvrtc.so.12")))


def report12(source: str, options: tuple[str, ...], target: str) -> str:
    """The same by the compiler of CUDA 12, which CuPy has not loaded."""
    nvrtc, program, size = nvrtc12(), ctypes.c_void_p(), ctypes.c_size_t()
    own = [option.encode() for option in all_options(options, target)]
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
    )
    assert made == 0
    status = nvrtc.nvrtcCompileProgram(program, len(own), (ctypes.c_char_p * len(own))(*own))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    text = log.value.decode()
    assert status == 0, f"{target}, CUDA 12: {text[-2000:]}"
    return text


def compiled(source: str, options: tuple[str, ...], target: str) -> dict[str, Resources]:
    """Compile a source as CuPy does; return the resources of each of its kernels."""
    log = report(source, options, target)
    wait = f"{target}: products of Tensor Cores wait for each other: "
    assert "(C75" not in log, wait + log[-2000:]
    if WGMMA in options:  # by CUDA 12 there are notes of that kind on fences, which cost nothing
        log12 = report12(source, options, target)
        assert "wgmma.mma_async instructions are serialized" not in log12, wait + log12[-2000:]
    result = {}
    for function in _FUNCTION.finditer(log):
        shared = _SHARED.search(function["rest"])
        result[function["function"]] = Resources(
            int(function["registers"]),
            int(function["stores"]) + int(function["loads"]),
            int(shared[1]) if shared else 0,
        )
    return result


def digest(instance: Instance) -> str:
    """Of all that the compiler is given for an instance, but the target, comments and layout."""
    lines = (_COMMENT.sub("", line) for line in _compile.code(instance).splitlines())
    code = "".join(f"{line}\n" for line in lines if line.strip() and not line.startswith("#line"))
    text = "\0".join((version(), code, *_compile.options(instance)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measured(target: str, chosen: Collection[Instance]) -> dict[str, Resources]:
    """Compile instances for a target; return their resources by name."""
    groups: dict[tuple[Any, ...], list[Instance]] = {}
    for instance in chosen:
        given = _compile.code(instance), _compile.options(instance)
        groups.setdefault(given, []).append(instance)

    # NVRTC does one thing at a time in a process.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        sources = [code for code, _ in groups]
        options = [options for _, options in groups]
        found = pool.map(compiled, sources, options, [target] * len(groups))
        return {
            str(instance): functions[instance.function]
            for group, functions in zip(groups.values(), found, strict=True)
            for instance in group
        }


def main() -> None:
    table: dict[str, Any] = {"nvrtc": version(), "targets": {}}
    old = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    for target in TARGETS:
        digests = {instance: digest(instance) for instance in instances(target)}
        rows = old.get(target, {})
        missing = [i for i, own in digests.items() if rows.get(str(i), [None])[-1] != own]
        print(target, len(missing), file=sys.stderr)
        found = measured(target, missing)
        table["targets"][target] = {
            str(i): [*found[str(i)], own] if i in missing else rows[str(i)]
            for i, own in digests.items()
        }
    lines = [f' "nvrtc": "{table["nvrtc"]}"']
    for target, rows in table["targets"].items():
        body = ",\n".join(f"   {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
        lines.append(f' "{target}": {{\n{body}\n }}')
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
