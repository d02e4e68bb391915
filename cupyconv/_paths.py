"""The path of a call: kernels for CuPy arrays, NumPy's functions for NumPy arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import numpy as np

from . import _numpy_path
from ._arrays import Array, Blueprint, Convolution, Fused, is_cupy
from ._device import CupyDevice
from ._geometry import ConvGeometry, NormGeometry, PoolGeometry
from ._launch import KernelPath


class Path(Protocol):
    """The operations of a path. Each writes its result to `out`, which is not empty."""

    def prepare(
        self,
        geometry: ConvGeometry,
        data: Array,
        weight: Array,
        bias: Array | None,
        out: Array,
        precision: str,
    ) -> Convolution:
        """Return a function that convolves arrays with the same layouts as these."""

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
        """Write a norm, or tanh of it."""

    def max_pool2d(self, geometry: PoolGeometry, data: Array, out: Array) -> None:
        """Write a max pooling."""

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

        Return None if the operation has to be composed of its parts.
        """

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return uninitialised memory for one call."""

    def cast(self, array: Array, dtype: np.dtype) -> Array:
        """Return `array` in `dtype`: itself, or a copy."""


numpy_path: Path = _numpy_path.NumpyPath()


@lru_cache(maxsize=1)
def _cupy_path() -> Path:
    return KernelPath(CupyDevice())


def path_of(array: Array) -> Path:
    """Return the path of `array`, which must be used with its device as the current one."""
    if is_cupy(array):
        return _cupy_path()
    return array.path if isinstance(array, Blueprint) else numpy_path
