"""Third room: a kernel instance to a `cupy.RawKernel`, once for each device.

CuPy keeps the binary on disk between processes, under a key of the source text and the options. So
the text of the headers is put in the place of their ``#include`` lines: a changed header is then a
changed source. And for all options that are new in a process CuPy compiles an empty file first, to
know its compiler. So macros are a part of the text, and options are those of CuPy's own kernels,
but for the target of those with wgmma.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ._kernels.launches import Instance

if TYPE_CHECKING:
    import cupy

_INCLUDE = re.compile(r'^#include "(?P<name>[^"]+)"$', re.MULTILINE)


@lru_cache(maxsize=1)
def directory() -> Path:
    """Return where the ``.cu`` files lie: in the installed package, or beside it in its source."""
    here = Path(__file__).resolve().parent
    installed = here / "kernels"
    return installed if installed.is_dir() else here.parent / "kernels"


@lru_cache(maxsize=64)
def source(name: str) -> str:
    """Return the text of kernel file `name`, each included header in its first place."""
    return _inlined(name, set())


def _inlined(name: str, seen: set[str]) -> str:
    text = (directory() / name).read_text(encoding="utf-8").replace("#pragma once\n", "\n")
    pieces = [f'#line 1 "{name}"\n']
    end = 0
    for include in _INCLUDE.finditer(text):
        pieces.append(text[end : include.start()])
        header = include["name"]
        if header not in seen:
            seen.add(header)
            pieces.append(_inlined(header, seen))
            line = text.count("\n", 0, include.end()) + 2
            pieces.append(f'\n#line {line} "{name}"')
        end = include.end()
    return "".join((*pieces, text[end:]))


def options(instance: Instance) -> tuple[str, ...]:
    """Return the compiler's options for `instance`.

    wgmma needs the target that has the instructions of compute capability 9.0 alone; CuPy asks for
    the one without them, and the more special of the two counts.
    """
    always = instance.source in ("streaming_conv.cu", "pointwise_conv.cu", "pointwise16_conv.cu")
    wgmma = always or ("ENGINE", "WgmmaEngine") in instance.defines
    return ("--std=c++17", *(("-arch=sm_90a",) if wgmma else ()))


def macros(instance: Instance) -> str:
    """Return the lines that define the macros of `instance`."""
    return "".join(f"#define {name} {value}\n" for name, value in instance.defines)


def code(instance: Instance) -> str:
    """Return what is compiled for `instance`: its macros, and the text of its file."""
    return macros(instance) + source(instance.source)


@lru_cache(maxsize=1024)
def kernel(instance: Instance) -> cupy.RawKernel:
    """Return the kernel; CuPy compiles it at its first launch on each device."""
    import cupy

    return cupy.RawKernel(code(instance), instance.function, options(instance))
