"""Kernels compile with what the cuda extra brings, where no CUDA toolkit is installed.

A toolkit that the system may have is hidden: no variable and no search path leads to it. That it
really was not used is then read from the process: the compiler that it loaded, and the folders in
which it looked for headers, belong to the installed wheels. The compiler has no folders of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

# Compiles by the way that a cupy.RawKernel takes, short of asking a GPU for its architecture.
PROLOGUE = """
import sys
from pathlib import Path

import cupy
from cupy._core.core import assemble_cupy_compiler_options
from cupy.cuda.compiler import CompileException, _NVRTCProgram

SITE = Path(cupy.__file__).parents[1]


def compile(source, options=("-std=c++17",), keep=lambda folder: True):
    options = assemble_cupy_compiler_options(tuple(options))
    folders = [option[2:] for option in options if option.startswith("-I")]
    assert folders and all(Path(folder).is_relative_to(SITE) for folder in folders), folders
    options = [o for o in options if not o.startswith("-I") or keep(Path(o[2:]))]
    fixed = ("-ftz=true", "-arch=sm_90", "--device-as-default-execution-space")
    program = _NVRTCProgram(source, "kernel.cu", (), (), name_expressions=None, method="cubin")
    cubin, _ = program.compile((*options, *fixed), None)
    return cubin


def loaded(library):
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]) for line in lines if library in line}
"""

HALVES = """
source = '''
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void add(__half* a, __nv_bfloat16* b) {
    a[0] = __hadd(a[0], a[1]);
    b[0] = __hadd(b[0], b[1]);
}
'''
assert compile(source).startswith(b"\\x7fELF")
compilers = loaded("libnvrtc")
assert compilers and all(path.is_relative_to(SITE / "nvidia") for path in compilers), compilers

# The headers of the wheel are needed: nothing else stands in for them.
try:
    compile(source, keep=lambda folder: not folder.is_relative_to(SITE / "nvidia"))
except CompileException as error:
    assert "cuda_fp16.h" in str(error)
else:
    raise AssertionError("cuda_fp16.h came from outside of the wheels")
"""

KERNELS = """
from cupyconv._kernels import choice
from cupyconv import _compile

one_of_each = {instance.source: instance for instance in choice.instances("sm_90a")}
for instance in one_of_each.values():
    cubin = compile(_compile.code(instance), _compile.options(instance))
    assert cubin.startswith(b"\\x7fELF"), instance
    assert instance.function.encode() in cubin, instance
"""


def python_without_toolkit(code: str) -> None:
    hidden = ("CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "LD_LIBRARY_PATH", "CPATH", "CONDA_PREFIX")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    without = [f for f in folders if not os.path.exists(os.path.join(f, "nvcc"))]
    environment["PATH"] = os.pathsep.join(without)
    command = [sys.executable, "-c", PROLOGUE + code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_header_of_the_runtime_wheel():
    python_without_toolkit(HALVES)


def test_kernels():
    python_without_toolkit(KERNELS)
