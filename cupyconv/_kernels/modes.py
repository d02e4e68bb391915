"""What Tensor Cores multiply: the types of operands, and how float32 is divided into them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .._geometry import ConvGeometry
from .launches import Processor

SLAB_ROWS = 64  # output channels of a row tile, the M of an instruction
SLOT = 16  # bytes of a chunk in shared memory
TEAM = 128  # threads of a warpgroup


def engine_of(processor: Processor) -> str:
    """Return the engine to ask for: wgmma ("hopper") where there is one, else mma ("portable")."""
    return "hopper" if processor.has_wgmma else "portable"


@dataclass(frozen=True)
class Mode:
    """What a Tensor Core multiplies.

    Attributes
    ----------
    element : str
        Device type of the arrays' elements.
    operand : str
        Type of the operands: the same (a float is then a tf32 number), or float16 for floats that
        are scaled by powers of two first (windows.cuh).
    parts : int
        Numbers into which an element is split; two of them need three products.
    """

    element: str
    operand: str
    parts: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return {"float": 4, "double": 8}.get(self.element, 2)

    @property
    def wide(self) -> bool:
        """Whether its numbers have 64 bits."""
        return self.itemsize == 8

    @property
    def scaled(self) -> bool:
        """Whether floats are multiplied as float16 numbers, which have fewer exponents."""
        return self.operand != self.element

    @property
    def block(self) -> int:
        """Channels of a K step."""
        return 2 * SLOT // (4 if self.operand == "float" else 2)

    @property
    def rate(self) -> int:
        """Multiply-adds a cycle of a multiprocessor of compute capability 9.0."""
        return 64 * self.block * 2

    @property
    def products(self) -> int:
        """Matrix products of a K step."""
        return 3 if self.parts == 2 else 1

    @property
    def slab_bytes(self) -> int:
        """Bytes of the weights of a row tile in a K step."""
        return 2 * SLOT * SLAB_ROWS * self.parts

    @property
    def pack_rows(self) -> int:
        """Rows whose weights a block of pack_weights.cu packs at a time."""
        return 4 if self.scaled else 8

    @property
    def group(self) -> int:
        """K steps of the largest stage of weights: 32 KiB for a row tile."""
        return 32768 // self.slab_bytes


# By dtype and, for float32, precision.
_TF32 = {"float32": Mode("float", "float", 2), "tf32": Mode("float", "float", 1)}
_SCALED = {"float32": Mode("float", "float16", 2), "tf32": Mode("float", "float16", 1)}
_SIXTEEN = {name: Mode(name, name, 1) for name in ("float16", "bfloat16")}
# With so few channels, half of a float16 K step is empty even where it holds two taps.
_FEW_CHANNELS = 4
# From this many tf32 products of a sum on, the float16 emulation's half as many products repay its
# scaling. Large samples in the tf32 precision need fewer, with strides fewer still, as a strided
# convolution stages more inputs for each product.
_MANY_PRODUCTS, _SOME_PRODUCTS, _STRIDED_PRODUCTS = 50, 36, 24
_LARGE_SAMPLE = 2**28  # products


def mode(
    dtype: str, precision: str, engine: str, geometry: ConvGeometry, forced: bool = False
) -> Mode | None:
    """Return the mode for a convolution, None where Tensor Cores do not multiply its dtype.

    Where the kernel is `forced`, few products are no reason for another mode.
    """
    plain = unscaled_mode(dtype, precision)
    if plain is None or dtype != "float32":
        return plain
    axes, channels = geometry.axes, geometry.channels
    taps = math.prod(axis.kernel / axis.phases for axis in axes)
    products = -(-channels // plain.block) * taps * plain.products
    outputs = geometry.groups * geometry.rows * math.prod(axis.size_out for axis in axes)
    least = _MANY_PRODUCTS
    if plain.products == 1 and taps * channels * outputs >= _LARGE_SAMPLE:
        least = _STRIDED_PRODUCTS if axes[-1].step > 1 else _SOME_PRODUCTS
    scaled = engine == "hopper" and channels > _FEW_CHANNELS and (forced or products >= least)
    return _SCALED[precision] if scaled else plain


def unscaled_mode(dtype: str, precision: str) -> Mode | None:
    """Return the mode that multiplies numbers without scaling, None where there is none."""
    return _TF32[precision] if dtype == "float32" else _SIXTEEN.get(dtype)


def modes(engine: str) -> tuple[Mode, ...]:
    """Return the modes that an engine's kernels are built for."""
    scaled = _SCALED if engine == "hopper" else {}
    return (*_TF32.values(), *scaled.values(), *_SIXTEEN.values())
