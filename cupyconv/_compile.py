"""The compile layer: it turns a kernel instance into a `cupy.RawKernel`, once for each device.

CuPy caches binaries on disk by a key of the source text and the options. The text of a header
replaces its ``#include`` line, so a changed header changes the key. Macros are part of the source
text rather than of the options, since CuPy compiles an empty file for each new set of options to
identify the compiler. So the options equal the options of CuPy's own kernels, except that kernels
with wgmma need one more for their target.
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
    """Return the folder of the ``.cu`` files, in the installed package or in the source tree."""
    here = Path(__file__).resolve().parent
    installed = here / "kernels"
    return installed if installed.is_dir() else here.parent / "kernels"


@lru_cache(maxsize=64)
def source(name: str) -> str:
    """Return the text of kernel file `name`, with headers in the place of ``#include`` lines."""
    return _inlined(name, set())


def _inlined(name: str, seen: set[str]) -> str:
    """Return the text of a file, with each header that is not in `seen` at its first occurrence."""
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

    wgmma exists only on the target sm_90a. CuPy itself adds the option for sm_90, and the more
    specific option takes effect.
    """
    wgmma = instance.source in _WGMMA or ("ENGINE", "WgmmaEngine") in instance.defines
    return ("--std=c++17", *(("-arch=sm_90a",) if wgmma else ()))


# Files whose instances all have wgmma.
_WGMMA = ("streaming_conv.cu", "hopper_gradient.cu", "im2col_conv.cu", "im2col_gradient.cu")


def macros(instance: Instance) -> str:
    """Return the lines that define the macros of `instance`."""
    return "".join(f"#define {name} {value}\n" for name, value in instance.defines)


def code(instance: Instance) -> str:
    """Return the source text that is compiled for `instance`: its macros and its file."""
    return macros(instance) + source(instance.source)


@lru_cache(maxsize=1024)
def kernel(instance: Instance) -> cupy.RawKernel:
    """Return the kernel of `instance`. CuPy compiles it at its first launch on each device."""
    import cupy

    return cupy.RawKernel(code(instance), instance.function, options(instance))
