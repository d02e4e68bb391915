"""Replay a selection of the GPU tests under NVIDIA's compute-sanitizer.

``python tests/sanitize.py`` runs all four tools, ``python tests/sanitize.py racecheck`` just one:

- memcheck: accesses out of bounds or misaligned;
- racecheck: accesses to shared memory that nothing puts an order between;
- initcheck: reads of device memory that nothing wrote;
- synccheck: barriers that not all threads reach.

CuPy's memory pool is off meanwhile, so that arrays do not lie in one large allocation in which an
access beyond the end of one goes unnoticed. initcheck does not see what cp.async.bulk stores, so
for it calls are planned as for a GPU without bulk copies. Two tools do not know the order that the
dense kernel keeps, so its launches are not theirs to check; docs/testing.rst has the reasons.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# racecheck: mbarriers on which one lane arrives for its warp. synccheck: one named barrier that
# warps of several roles reach, each from its own branch.
NOT_CHECKED = {"racecheck": "matrix_conv", "synccheck": "matrix_conv"}
# Every kernel, convolutions by each one that can take them, and every instruction; the bitwise
# promises and the layouts go through them as well.
SELECTION = (
    "test_convolution.py",
    "test_complex.py",
    "test_grad.py",
    "kernels",
    "test_kernels.py",
    "test_norms.py",
    "test_pooling.py",
    "test_fused.py",
    "test_instructions.py",
)


def sanitize(tool: str) -> int:
    """Run one tool; return its exit code, which is not 0 where a test or the tool finds a fault."""
    here = Path(__file__).parent
    # What plans choose for small calls is the direct kernel. Of tensor maps that the driver has to
    # refuse memcheck reports each. And racecheck knows no order by bar.arrive, on which that one
    # test kernel builds.
    left_out = ["cupy-direct", "driver_has_no_tensor_map"]
    left_out += ["named_barriers"] if tool == "racecheck" else []
    command = [
        "compute-sanitizer",
        f"--tool={tool}",
        "--error-exitcode=3",
        "--print-limit=10",
        *(
            [f"--kernel-name-exclude=kernel_name={NOT_CHECKED[tool]}"]
            if tool in NOT_CHECKED
            else []
        ),
        sys.executable,
        *("-m", "pytest", "-q", "-m", "gpu and not large", "-p", "no:cacheprovider"),
        *("-k", " and ".join(f"not {name}" for name in left_out)),
        *(str(here / name) for name in SELECTION),
    ]
    print("::", *command, flush=True)
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "sanitizer", "CUPYCONV_NO_POOL": "1"}
    if tool == "initcheck":
        environment["CUPYCONV_NO_BULK"] = "1"
    return subprocess.run(command, cwd=here.parent, env=environment, check=False).returncode


def main() -> int:
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer, a part of the CUDA toolkit, is not on the PATH", file=sys.stderr)
        return 2
    codes = {tool: sanitize(tool) for tool in sys.argv[1:] or TOOLS}
    for tool, code in codes.items():
        print(f"{tool}: {'clean' if code == 0 else f'exit code {code}'}")
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main())
