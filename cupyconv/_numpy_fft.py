"""Spectra of NumPy arrays: transforms by SciPy where it is installed, else by NumPy."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ._numpy_products import quiet
from ._shape_rules import Shape


def _module() -> tuple[ModuleType, dict[str, Any]]:
    """Return the module of transforms, and its options."""
    try:
        import scipy.fft  # type: ignore[import-untyped]
    except ImportError:
        return np.fft, {}
    return scipy.fft, {"workers": -1}


@quiet
def forward(array: np.ndarray, rank: int, dtype: np.dtype) -> np.ndarray:
    """Return the spectrum of the last `rank` axes, for real arrays half of it."""
    module, options = _module()
    transform = module.fftn if dtype.kind == "c" else module.rfftn
    found: np.ndarray = transform(array, axes=tuple(range(-rank, 0)), **options)
    return np.ascontiguousarray(found, np.result_type(dtype, np.complex64))


@quiet
def inverse(spectrum: np.ndarray, lengths: Shape, dtype: np.dtype) -> np.ndarray:
    """Return the array of a spectrum, multiplied by the number of its elements."""
    module, options = _module()
    transform = module.ifftn if dtype.kind == "c" else module.irfftn
    axes = tuple(range(-len(lengths), 0))
    found: np.ndarray = transform(spectrum, lengths, axes, norm="forward", **options)
    return found.astype(dtype, copy=False)


@quiet
def multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray, scale: float, adds: bool) -> None:
    """Write or add the product of spectra ``(g, i, k, *f)`` and ``(g, k, j, *f)`` to `out`."""
    if not adds:
        out[...] = 0
    factor = out.real.dtype.type(scale)
    for k in range(a.shape[2]):
        out += (a[:, :, k, None].conj() * factor) * b[:, None, k]
