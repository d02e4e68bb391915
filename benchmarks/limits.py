"""How fast a case can be at best on this GPU: its bytes and operations over measured rates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .cases import Case
from .precisions import PRECISIONS, RATES, Precision
from .timing import Stopwatch, median

if TYPE_CHECKING:
    from .peers import Torch

COPY_BYTES = 2**31
MATRIX = 8192

# Rates of one H200, for a machine that has no library of matrix products.
NOMINAL = {"float32": 50.9e12, "tf32": 404e12, "float16": 746e12, "bfloat16": 776e12}


@dataclass(frozen=True)
class Ceilings:
    """Rates of a GPU.

    Attributes
    ----------
    copy : float
        Bytes a second, read and written.
    rates : dict
        Operations a second of matrix products, for each of `RATES`.
    source : str
        Where the rates of matrix products are from.
    scaled : bool
        Whether floats may be multiplied as scaled float16 numbers, as on compute capability 9.0.
    """

    copy: float
    rates: dict[str, float]
    source: str
    scaled: bool


@dataclass(frozen=True)
class Limit:
    """The shortest time of a case, and which of the two sets it."""

    ms: float
    by: str


class Sized(Protocol):
    """What has a limit."""

    @property
    def elements(self) -> int: ...
    @property
    def operations(self) -> int: ...


def limit(case: Sized, precision: Precision, ceilings: Ceilings) -> Limit:
    """Return the larger of bytes over the copy rate and operations over the matrix rate."""
    return _limit(case, precision, ceilings.copy, matrix_rate(precision, ceilings))


def matrix_rate(precision: Precision, ceilings: Ceilings) -> float:
    """Return the operations a second that the fastest way to multiply gives a precision."""
    return max(
        ceilings.rates[way.rate] / way.products
        for way in precision.ways
        if ceilings.scaled or not way.scaled
    )


def plain_limit(case: Case, precision: Precision, ceilings: Ceilings) -> Limit | None:
    """Return float32's limit without Tensor Cores; None for the other precisions."""
    if precision.name != "float32":
        return None
    return _limit(case, precision, ceilings.copy, ceilings.rates["float32"])


def _limit(case: Sized, precision: Precision, copy: float, rate: float) -> Limit:
    memory = nbytes(case, precision) / copy
    arithmetic = case.operations / rate
    return Limit(1e3 * max(memory, arithmetic), "bytes" if memory > arithmetic else "operations")


def nbytes(case: Sized, precision: Precision) -> int:
    """Return the bytes that must be read or written."""
    return case.elements * precision.itemsize


def measure(stopwatch: Stopwatch, seed: int, torch: Torch | None) -> Ceilings:
    """Measure matrix products by PyTorch, or else by CuPy's cuBLAS, and the copy rate by CuPy."""
    rates, source = dict(NOMINAL), "nominal, of an H200"
    if torch is not None:
        rates, source = _matrix_rates(stopwatch, seed, torch.matrix_product), "torch.matmul"
    else:
        with contextlib.suppress(ImportError, RuntimeError):
            rates, source = _matrix_rates(stopwatch, seed, _cublas_product), "cuBLAS"
    return Ceilings(copy_rate(stopwatch, seed), rates, source, _multiplies_scaled())


def _multiplies_scaled() -> bool:
    """Return whether this GPU's kernels multiply floats as scaled float16 numbers."""
    import cupy

    return bool(cupy.cuda.Device().compute_capability == "90")


def copy_rate(stopwatch: Stopwatch, seed: int) -> float:
    import cupy

    from .data import uniform

    free, _ = cupy.cuda.runtime.memGetInfo()
    source = uniform((min(COPY_BYTES, free // 8) // 4,), "float32", seed)
    target = cupy.empty_like(source)

    def copy() -> None:
        target.data.copy_from_device_async(source.data, source.nbytes)

    nbytes: int = 2 * source.nbytes
    return nbytes / (1e-3 * _median_ms(stopwatch, copy))


def _matrix_rates(
    stopwatch: Stopwatch, seed: int, product: Callable[[Precision, Any, Any], Callable[[], Any]]
) -> dict[str, float]:
    from .data import uniform

    rates = {}
    for name in RATES:
        precision = PRECISIONS[name]
        dtype = precision.numpy_dtype()
        a, b = (uniform((MATRIX, MATRIX), dtype, seed + i) for i in range(2))
        rates[name] = 2 * MATRIX**3 / (1e-3 * _median_ms(stopwatch, product(precision, a, b)))
    return rates


def _median_ms(stopwatch: Stopwatch, call: Callable[[], Any]) -> float:
    stopwatch.alternate([call], 2)
    (times,) = stopwatch.alternate([call], 11)
    return median(times)


def _cublas_product(precision: Precision, a: Any, b: Any) -> Callable[[], None]:
    """Return a matrix product by cuBLAS that accumulates in float32."""
    import cupy
    import numpy as np
    from cupy.cuda import cublas, runtime

    types = {
        "float32": runtime.CUDA_R_32F,
        "float16": runtime.CUDA_R_16F,
        "bfloat16": runtime.CUDA_R_16BF,
    }
    code = types[precision.dtype]
    fast = precision.allows_tf32
    compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if fast else cublas.CUBLAS_COMPUTE_32F
    handle = cupy.cuda.device.get_cublas_handle()
    c = cupy.empty_like(a)
    one, zero = np.ones(1, "float32"), np.zeros(1, "float32")
    n = MATRIX

    def product() -> None:
        cublas.gemmEx(
            handle,
            cublas.CUBLAS_OP_N,
            cublas.CUBLAS_OP_N,
            *(n, n, n, one.ctypes.data),
            *(a.data.ptr, code, n),
            *(b.data.ptr, code, n),
            zero.ctypes.data,
            *(c.data.ptr, code, n),
            compute,
            cublas.CUBLAS_GEMM_DEFAULT,
        )

    return product
