"""The precisions that are measured, and what is expected of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cupyconv._arrays import named


@dataclass(frozen=True)
class Precision:
    """A dtype and a mode of its sums.

    Attributes
    ----------
    dtype : str
        Of input, weight and output.
    itemsize : int
        Its bytes.
    rate, products : str, int
        The matrix rate that limits it, and the matrix products for each product of a sum.
    error : float
        The most that ``‖result - exact‖ / ‖exact‖`` of a convolution may be.
    unit, smallest : float
        Relative error of rounding a result to the dtype, and absolute error near zero.
    """

    name: str
    dtype: str
    itemsize: int
    rate: str
    products: int
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

# float32 accuracy takes three TF32 products.
PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float32", "float32", 4, "tf32", 3, 1e-6, 2.0**-24, 2.0**-120),
        Precision("tf32", "float32", 4, "tf32", 1, 1e-3, 2.0**-24, 2.0**-120),
        Precision("float16", "float16", 2, "float16", 1, 2.0**-11, 2.0**-11, 2.0**-25),
        Precision("bfloat16", "bfloat16", 2, "bfloat16", 1, 2.0**-8, 2.0**-8, 2.0**-120),
    )
}
