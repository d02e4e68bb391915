"""The precisions that are measured, and what is expected of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cupyconv._arrays import named


@dataclass(frozen=True)
class Way:
    """A product of two numbers made of so many products of a type.

    Attributes
    ----------
    rate : str
        The matrix rate of the type, one of `RATES`.
    products : int
        Products of this type for each product of a sum.
    scaled : bool
        Whether the factors are scaled to fit float16, which only some GPUs' kernels do.
    """

    rate: str
    products: int = 1
    scaled: bool = False


@dataclass(frozen=True)
class Precision:
    """A dtype and a mode of its sums.

    Attributes
    ----------
    dtype : str
        Of input, weight and output.
    itemsize : int
        Its bytes.
    ways : tuple
        How a product of a sum may be made: by so many products of a type with a known matrix rate.
    error : float
        The most that ``‖result - exact‖ / ‖exact‖`` of a convolution may be.
    unit, smallest : float
        Relative error of rounding a result to the dtype, and absolute error near zero.
    """

    name: str
    dtype: str
    itemsize: int
    ways: tuple[Way, ...]
    error: float
    unit: float
    smallest: float

    @property
    def mode(self) -> str:
        """The ``precision`` of a call of cupyconv."""
        return "tf32" if self.name == "tf32" else "float32"

    @property
    def allows_tf32(self) -> bool:
        return self.name == "tf32"

    def numpy_dtype(self) -> np.dtype:
        return named("benchmark", self.dtype)


# The matrix rates that are measured; float32 is the rate without TF32.
RATES = ("float32", "tf32", "float16", "bfloat16")

# float32 accuracy takes three TF32 products, or at least two of scaled float16 numbers (the fewest
# that read both parts of both factors; the kernels compute three). Where Tensor Cores are slow, one
# product without them is faster.
_FLOAT32 = (Way("tf32", 3), Way("float16", 2, scaled=True), Way("float32"))
_TF32 = (Way("tf32"), Way("float16", scaled=True), Way("float32"))
PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float32", "float32", 4, _FLOAT32, 1e-6, 2.0**-24, 2.0**-120),
        Precision("tf32", "float32", 4, _TF32, 1e-3, 2.0**-24, 2.0**-120),
        Precision("float16", "float16", 2, (Way("float16"),), 2.0**-11, 2.0**-11, 2.0**-25),
        Precision("bfloat16", "bfloat16", 2, (Way("bfloat16"),), 2.0**-8, 2.0**-8, 2.0**-120),
    )
}
