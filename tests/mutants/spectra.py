"""Mutants of the products of spectra."""

from __future__ import annotations

from unittest import mock

import numpy as np

from backends import NumpyBackend
from cupyconv import _fft
from gradients import gradient
from mutants import Mutant, Suite
from planning import forget
from strategies import Case, convolution

SPECTRA = "spectra.cu"

MUTANTS = {
    "a product without a conjugate": Mutant(
        "left[u].re * right[v].re + left[u].im * right[v].im",
        "left[u].re * right[v].re - left[u].im * right[v].im", case="channels",
    ),
    "a last column that is another row's": Mutant(
        "i + u >= p.rows || j + v >= p.columns", "i + u >= p.rows", case="rows",
    ),
    "the first sample alone": Mutant("if (p.adds)", "if (false)", case="gradient"),
    "the first group for all": Mutant("group * p.a_group", "0 * p.a_group", case="groups"),
}  # fmt: skip

CASES = {
    "one channel": convolution("conv1d", (1, 1, 300), (1, 1, 9), method="fft"),
    "channels": convolution("conv2d", (2, 3, 6, 7), (5, 3, 3, 2), method="fft"),
    "rows": convolution("conv1d", (5, 2, 9), (6, 2, 3), method="fft"),
    "groups": convolution("conv1d", (3, 6, 9), (9, 2, 3), groups=3, method="fft"),
    "gradient": gradient("weight", (3, 2, 9), (5, 2, 3), method="fft"),
    "complex": convolution("conv1d", (2, 2, 9), (3, 2, 3), "complex128", method="fft"),
}


def check(backend: NumpyBackend, case: Case) -> None:
    """Compare with sums over taps. The samples of a gradient are added one after the other."""
    expected = NumpyBackend().call(
        case.function, **case.arrays, **{**case.options, "method": "direct"}
    )
    least = -(2**40) if case.function.startswith("grad") else _fft._SPARE_BYTES
    with mock.patch.object(_fft, "_SPARE_BYTES", least):
        forget()
        np.testing.assert_allclose(backend.compute(case), expected, atol=1e-4)
    forget()


SUITE = Suite("spectra", SPECTRA, MUTANTS, CASES, files=(SPECTRA,), check=check)
