"""Mutants of the products of spectra."""

from __future__ import annotations

from unittest import mock

import numpy as np

from backends import NumpyBackend
from cupyconv import _fft
from gradients import gradient
from mutants import Mutant, Suite
from planning import forget
from strategies import Case, Convolution, convolution

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
    "the last segment's real part alone": Mutant(
        "total[u][v].re += sum[u][v].re", "total[u][v].re = sum[u][v].re", case="segments",
    ),
    "the last segment's imaginary part alone": Mutant(
        "total[u][v].im += sum[u][v].im", "total[u][v].im = sum[u][v].im", case="segments",
    ),
    "the first segment alone": Mutant(
        "for (int64 k = 0; k < p.depth;)", "for (int64 k = 0; k == 0;)", case="segments",
    ),
    "a last segment that is dropped": Mutant(
        "for (int64 k = 0; k < p.depth;)", "for (int64 k = 0; k == 0 || k + SEGMENT <= p.depth;)",
        case="segments",
    ),
    "a sum that goes on in the next segment": Mutant(
        "        for (int64 k = 0; k < p.depth;) {\n            Element sum[TILE][TILE] = {};",
        "        Element sum[TILE][TILE] = {};\n        for (int64 k = 0; k < p.depth;) {",
        case="segments",
    ),
    "one segment of all products": Mutant(
        "k + SEGMENT < p.depth ? k + SEGMENT : p.depth;", "p.depth;", case="one sign",
    ),
    "segments of one product": Mutant(
        "k + SEGMENT < p.depth ? k + SEGMENT : p.depth;", "k + 1;", case="one sign",
    ),
}  # fmt: skip


def one_sign() -> Convolution:
    """A call of as many products as round a growing sum down, each by as much as they can."""
    channels = 2**12
    case = convolution("conv1d", (1, channels, 5), (1, channels, 2), method="fft")
    x, weight = np.zeros_like(case["input"]), np.zeros_like(case["weight"])
    x[..., 0], weight[..., 0] = 1 + 0.45 / channels, 1
    return case.with_arrays(input=x, weight=weight)


CASES = {
    "one channel": convolution("conv1d", (1, 1, 300), (1, 1, 9), method="fft"),
    "channels": convolution("conv2d", (2, 3, 6, 7), (5, 3, 3, 2), method="fft"),
    "segments": convolution("conv1d", (2, 37, 9), (3, 37, 3), method="fft"),
    "one sign": one_sign(),
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
        np.testing.assert_allclose(backend.compute(case), expected, rtol=1e-5, atol=1e-4)
    forget()


SUITE = Suite("spectra", SPECTRA, MUTANTS, CASES, files=(SPECTRA,), check=check)
