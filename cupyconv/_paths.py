"""The path of a call: CUDA kernels for CuPy arrays, NumPy's functions for NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np

from . import _numpy_path
from ._arrays import Array, Blueprint, Convolution, Fused, WeightGradient, is_cupy
from ._device import CupyDevice
from ._geometry import ConvGeometry, NormGeometry, PoolGeometry
from ._launch import KernelPath
from ._placement import Placement


class Path(Protocol):
    """The operations of a path. Each one writes its result to `out`, which has elements."""

    def prepare(
        self,
        geometry: ConvGeometry,
        data: Array,
        weight: Array,
        bias: Array | None,
        out: Array,
        precision: str,
        times: int = 1,
    ) -> Convolution:
        """Return a function that convolves arrays with the layouts of these arrays.

        A call runs it the given number of times.
        """

    def takes_borders(self, geometry: ConvGeometry, dtype: np.dtype, precision: str) -> bool:
        """Return whether `prepare` takes a geometry with its padding mode."""

    def prepare_pad(
        self, placement: Placement, data: Array, times: int
    ) -> Callable[[Array, Array], None]:
        """Return a function that writes padded copies of arrays with the layout of `data`."""

    def prepare_fold(
        self, placement: Placement, bias: Array | None, out: Array, times: int
    ) -> Callable[[Array, Array | None, Array], None]:
        """Return a function that folds padded results to arrays with the layout of `out`.

        What lies in the padding is added to the elements that it shows, and the bias to the sum.
        """

    def prepare_sum(self, shape: tuple[int, ...], out: Array) -> Callable[[Array, Array], None]:
        """Return a function that adds two arrays of this shape, which follow each other."""

    def gain_by_fft(
        self, geometry: ConvGeometry, dtype: np.dtype, precision: str, gradient: bool
    ) -> float:
        """Return how many times as long sums over taps should take as FFT, whatever the batch.

        That is for the `gradient` with respect to the weight, or for the convolution.
        """

    def note_method(self, method: str, gain: Callable[[], float]) -> None:
        """Take note of the method by which a call runs."""

    def prepare_spectrum(
        self, array: Array, placement: Placement, dtype: np.dtype, conjugate: bool
    ) -> Callable[[Array], Array]:
        """Return a function that gives the spectra of arrays, or of conjugates, in larger ones.

        The first three axes are not transformed, and polyphase components follow each other on
        the first one. Real arrays have half of a spectrum.
        """

    def spectra(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return memory for the spectra of arrays of a shape."""

    def prepare_multiply(
        self, a: Array, b: Array, out: Array, scale: float, adds: bool
    ) -> Callable[[Array, Array, Array], None]:
        """Return a function that writes or adds scaled products of spectra.

        These are views ``(g, i, k, *f)``, which is conjugated, and ``(g, k, j, *f)``; the sum runs
        over k. The function takes the contiguous arrays that they are views of.
        """

    def values(self, spectrum: Array, lengths: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return the arrays of spectra, without their scale, perhaps in the same memory."""

    def write(self, values: Array, bias: Array | None, out: Array) -> None:
        """Write values to `out`, with a bias that is broadcast to them."""

    def prepare_weight_gradient(
        self,
        geometry: ConvGeometry,
        data: Array,
        grad_output: Array,
        out: Array,
        precision: str,
        times: int = 1,
    ) -> WeightGradient:
        """Return a function that writes the gradient with respect to the weight of a convolution.

        `geometry` is the convolution itself. The function takes arrays with the layouts of these.
        """

    def normalize(
        self,
        geometry: NormGeometry,
        data: Array,
        mean: Array | None,
        var: Array | None,
        weight: Array | None,
        bias: Array | None,
        eps: float,
        out: Array,
        tanh: bool = False,
    ) -> None:
        """Write a norm, or the tanh of a norm."""

    def max_pool2d(self, geometry: PoolGeometry, data: Array, out: Array) -> None:
        """Write the maximum of each window."""

    def fused(
        self,
        convolution: ConvGeometry,
        pooling: PoolGeometry,
        group_norm: NormGeometry,
        precision: str,
        data: Array,
        kernel: Array,
        given: bool,
        eps: float,
        out: Array,
    ) -> Fused | None:
        """Return a function that runs the fused operation on arrays with these layouts.

        Return None if the caller has to compose the operation of its parts.
        """

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for one call."""

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` itself if it has `dtype`, else a cast copy."""


numpy_path: Path = _numpy_path.NumpyPath()


@lru_cache(maxsize=1)
def _cupy_path() -> Path:
    """Return the path of CuPy arrays, which imports CuPy."""
    return KernelPath(CupyDevice())


def path_of(array: Array) -> Path:
    """Return the path of `array`. Its device must be the current one while the path is in use."""
    if is_cupy(array):
        return _cupy_path()
    return array.path if isinstance(array, Blueprint) else numpy_path
