"""cuFFT's plans through CuPy, kept in CuPy's own cache of plans."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._fft import spectrum_lengths


def plan(lengths: tuple[int, ...], batch: int, dtype: np.dtype, inverse: bool) -> tuple[Any, int]:
    """Return the plan of transforms in place, and their direction.

    A plan has memory of its own, so it belongs to one stream. `dtype` is that of the arrays, whose
    lines of real numbers have room for the last frequency.
    """
    import cupy
    from cupy.cuda import cufft

    stream = cupy.cuda.get_current_stream()
    if stream.is_capturing():
        raise RuntimeError(
            "method='fft' cannot be captured in a graph, because cuFFT's plans have memory of "
            "their own; method='direct' can"
        )
    kinds = {
        "float32": (cufft.CUFFT_R2C, cufft.CUFFT_C2R),
        "float64": (cufft.CUFFT_D2Z, cufft.CUFFT_Z2D),
        "complex64": (cufft.CUFFT_C2C, cufft.CUFFT_C2C),
        "complex128": (cufft.CUFFT_Z2Z, cufft.CUFFT_Z2Z),
    }
    kind = kinds[dtype.name][inverse]
    cache = cupy.fft.config.get_plan_cache()
    key = ("cupyconv", lengths, batch, kind, stream.ptr)
    found = cache.get(key)
    if found is None:
        frequencies = spectrum_lengths(lengths, dtype)
        lines = lengths if dtype.kind == "c" else (*lengths[:-1], 2 * frequencies[-1])
        sides = frequencies, lines
        given, made = sides if inverse else sides[::-1]
        found = cufft.PlanNd(
            *(lengths, given, 1, math.prod(given), made, 1, math.prod(made)),
            *(kind, batch, "C", len(lengths) - 1, None),
        )
        cache[key] = found
    return found, cufft.CUFFT_INVERSE if inverse else cufft.CUFFT_FORWARD
