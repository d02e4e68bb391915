"""A report on the machine and its software, for bug reports."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import __version__, _precision
from ._device import CupyDevice
from ._signatures import readable


@readable
def show_config() -> None:
    """Print versions, devices and settings, for bug reports.

    For each device the report names the target that kernels are compiled for. It also has CuPy's
    folder of compiled kernels, the current precision, and each component that is missing, with the
    purpose that it would serve.

    See Also
    --------
    explain : describes what a call would do.

    Examples
    --------
    >>> import cupyconv
    >>> cupyconv.show_config()  # doctest: +ELLIPSIS
    cupyconv ...
    """
    missing: list[str] = []
    rows = [*_versions(missing), *_cuda(missing), ("precision", _precision.current())]
    rows += [("missing", component) for component in missing or ["nothing"]]
    width = max(len(name) for name, _ in rows)
    print(f"cupyconv {__version__}")
    for name, text in rows:
        print(f"  {name:{width}}  {text}")


def _version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    from importlib import metadata  # its import takes longer than the import of this library

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions(missing: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the rows about Python and its packages, and append to `missing`."""
    yield "Python", f"{platform.python_version()}, {platform.platform()}"
    yield "NumPy", np.__version__
    ml_dtypes = _version("ml_dtypes")
    if ml_dtypes:
        yield "ml_dtypes", ml_dtypes
    else:
        missing.append("ml_dtypes: there is no bfloat16 without it")


def _cuda(missing: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the rows about CuPy, CUDA and the devices, and append to `missing`."""
    try:
        import cupy
        from cupy.cuda import runtime
    except ImportError as error:
        missing.append(f"CuPy: only NumPy arrays can be convolved ({error})")
        return
    yield "CuPy", cupy.__version__
    try:
        from cupy_backends.cuda.libs import nvrtc

        yield "NVRTC", ".".join(map(str, nvrtc.getVersion()))
    except (ImportError, RuntimeError) as error:
        missing.append(f"NVRTC: kernels cannot be compiled ({error})")
    yield "CUDA runtime", _dotted(runtime.runtimeGetVersion())
    try:
        yield "CUDA driver", _dotted(runtime.driverGetVersion())
        devices = range(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        missing.append(f"a GPU: CuPy arrays cannot be made ({error})")
        devices = range(0)
    for device in devices:
        with cupy.cuda.Device(device):
            properties = runtime.getDeviceProperties(device)
            yield (
                f"device {device}",
                f"{properties['name'].decode()}, compute capability "
                f"{properties['major']}.{properties['minor']}, "
                f"{properties['multiProcessorCount']} multiprocessors, "
                f"{properties['totalGlobalMem'] / 2**30:.0f} GiB, "
                f"kernels for {CupyDevice().processor().target}",
            )
    yield "kernel cache", _cache()


def _dotted(version: int) -> str:
    """Return a CUDA version as "major.minor"; CUDA encodes it as 1000 * major + 10 * minor."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _cache() -> str:
    """Return CuPy's folder of compiled kernels, with the number and the size of its files."""
    folder = Path(os.environ.get("CUPY_CACHE_DIR", Path.home() / ".cupy" / "kernel_cache"))
    sizes = [path.stat().st_size for path in folder.glob("*") if path.is_file()]
    return f"{folder}, {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"
