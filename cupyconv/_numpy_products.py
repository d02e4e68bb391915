"""Products of NumPy arrays with the arithmetic of a GPU: no warnings, complex numbers by parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Overflow, infinities and signalling NaN cause no warnings, as on a GPU.
quiet = np.errstate(all="ignore")


def by_parts(multiply: Callable[..., Any], a: np.ndarray, b: np.ndarray) -> Any:
    """Return ``multiply(a, b)``; complex arrays are multiplied by real and imaginary parts.

    BLAS multiplies a complex matrix product by 1 + 0j at the end, which turns infinities into NaN.
    NumPy's elementwise complex product rounds equal products differently, since its vector
    instructions use fused multiply-adds and the remaining elements do not.
    """
    if a.dtype.kind != "c":
        return multiply(a, b)
    a_real, a_imag = map(np.ascontiguousarray, (a.real, a.imag))
    b_real, b_imag = map(np.ascontiguousarray, (b.real, b.imag))
    real = multiply(a_real, b_real) - multiply(a_imag, b_imag)
    result = np.empty(real.shape, a.dtype)
    result.real = real
    result.imag = multiply(a_real, b_imag) + multiply(a_imag, b_real)
    return result
