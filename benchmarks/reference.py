"""What a result is compared with: float64 sums, written from the definitions.

The functions take NumPy and CuPy arrays alike; `xp` is the module that the arrays are from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from .cases import Convolution, Fused, Shape
from .data import Array
from .precisions import Precision

EPS = 1e-5  # added to variances


@dataclass(frozen=True)
class Exact:
    """Exact values, how far a result may be from each, and in norm."""

    values: Array
    bound: Array | None
    error: float


@dataclass(frozen=True)
class Sums:
    """Sums at some outputs, sums of the absolute values, and the number of products in each."""

    values: Array
    scale: Array
    terms: Array


def places(shape: Shape, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return an index array for each axis: the corners of `shape` and `count` random places."""
    corners = np.array(list(itertools.product(*({0, size - 1} for size in shape))))
    drawn = np.stack([rng.integers(size, size=count) for size in shape], axis=1)
    return tuple(np.concatenate([corners, drawn]).T)


def sums_at(
    case: Convolution,
    where: tuple[Array, ...],
    x: Array,
    w: Array,
    bias: Array | None,
    xp: ModuleType = np,
) -> Sums:
    """Return the convolution at the places `where`, by the gather definition, in float64."""
    sample, channel, *position = (index[:, None, None] for index in where)
    group, row = channel // case.rows, channel % case.rows
    member = xp.arange(case.channels)
    own = group * case.channels + member
    values, scale, terms = (xp.zeros(len(sample)) for _ in range(3))
    for taps in _blocks_of_taps(case, own.size):
        tap = [xp.asarray(one)[:, None] for one in taps]
        inside, source = _sources(case, tap, position, xp)
        factors = w[((own, row) if case.transposed else (channel, member)) + tuple(tap)]
        seen = x[(sample, own) + tuple(source)].astype(np.float64)
        products = seen * factors.astype(np.float64) * inside
        values += products.sum(axis=(1, 2))
        scale += abs(products).sum(axis=(1, 2))
        terms += inside.sum(axis=(1, 2)) * case.channels
    if bias is not None:
        own_bias = bias[where[1]].astype(np.float64)
        values, scale = values + own_bias, scale + abs(own_bias)
    return Sums(values, scale, terms)


_PRODUCTS = 2**22  # that are in memory at a time


def _blocks_of_taps(case: Convolution, products: int) -> Iterator[list[np.ndarray]]:
    """Yield blocks of the taps, an index array for each axis, for so many products of a tap."""
    taps = np.indices(case.weight[2:]).reshape(case.rank, -1)
    for block in np.array_split(taps, -(-taps.shape[1] * products // _PRODUCTS), axis=1):
        if block.size:
            yield list(block)


def _at_tap(w: Array, tap: Shape) -> Array:
    """Return the matrix of a weight at one tap, in float64."""
    return w[(slice(None),) * 2 + tap].astype(np.float64)


def _sources(
    case: Convolution, tap: list[Array], position: list[Array], xp: ModuleType
) -> tuple[Array, list[Array]]:
    """Return which outputs take these taps, and the input positions that they meet (else 0)."""
    inside, source = True, []
    for o, k, size, stride, pad, dilation in zip(
        position, tap, case.input[2:], case.stride, case.padding, case.dilation, strict=True
    ):
        if case.transposed:
            numerator = o + pad - k * dilation
            i = numerator // stride
            here = (i * stride == numerator) & (i >= 0) & (i < size)
        else:
            i = o * stride - pad + k * dilation
            here = (i >= 0) & (i < size)
        inside = inside & here
        source.append(xp.where(here, i, 0))
    return inside, source


def bound(sums: Sums, precision: Precision) -> Array:
    """Return how far a right result may be from each sum.

    A sum of K products in float32, in any order, is off by at most about K units of 2**-24 of the
    sum of their absolute values. Tensor Cores truncate, which takes up to two units for each
    product, in float32 of 12 products at most; there eight units more are for splitting factors.
    TF32 rounds both factors to 11 bits. In float64 the
    reference may be as far off as the result. Then comes the rounding to the result's dtype.
    """
    terms = sums.terms
    if precision.name == "tf32":
        tolerance = 2.0**-10 + (terms + 8) * 2.0**-23
    elif precision.name == "float64":
        tolerance = (2 * terms + 8) * 2.0**-53
    elif precision.name == "float32":
        tolerance = (terms + terms.clip(max=12) + 8) * 2.0**-24
    else:
        tolerance = (2 * terms + 8) * 2.0**-24
    error = tolerance * sums.scale
    return error + precision.unit * (abs(sums.values) + error) + precision.smallest


def relative_error(values: Array, exact: Array) -> float:
    """Return ``‖values - exact‖ / ‖exact‖``."""
    difference = values - exact
    return math.sqrt((difference * difference).sum() / (exact * exact).sum())


def complaint(values: Array, exact: Exact) -> str | None:
    """Return what is wrong with `values`, or None. NaN never passes."""
    error = relative_error(values, exact.values)
    if not error <= exact.error:
        return f"error {error:.1e} in norm, above {exact.error:.1e}"
    if exact.bound is not None:
        far = ~(abs(values - exact.values) <= exact.bound)
        if far.any():
            return f"{int(far.sum())} of {far.size} outputs are off by more than rounding can be"
    return None


def transposed(case: Convolution, x: Array, w: Array, xp: ModuleType = np) -> Array:
    """Return a whole transposed convolution in float64, by the scatter definition.

    It holds a matrix product for each tap, added onto a canvas from which the padding is cut.
    """
    samples, _, *sizes = x.shape
    axes = list(
        zip(sizes, w.shape[2:], case.stride, case.dilation, case.output_padding, strict=True)
    )
    canvas = xp.zeros(
        (
            samples,
            case.groups,
            case.rows,
            *((n - 1) * s + d * (k - 1) + 1 + extra for n, k, s, d, extra in axes),
        )
    )
    columns = x.astype(np.float64).reshape(samples, case.groups, case.channels, -1)
    for tap in np.ndindex(*w.shape[2:]):
        matrix = _at_tap(w, tap)
        matrix = matrix.reshape(case.groups, case.channels, case.rows).transpose(0, 2, 1)
        product = xp.matmul(matrix[None], columns)
        steps = tuple(
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, (n, _, s, d, _) in zip(tap, axes, strict=True)
        )
        canvas[(...,) + steps] += product.reshape(*canvas.shape[:3], *sizes)
    inner = tuple(
        slice(pad, pad + size) for pad, size in zip(case.padding, case.output[2:], strict=True)
    )
    return canvas[(...,) + inner].reshape(case.output)


def statistics(convolved: Array) -> tuple[Array, Array]:
    """Return mean and biased variance of each channel."""
    return convolved.mean(axis=(0, 2, 3)), convolved.var(axis=(0, 2, 3))


def fused_rest(
    case: Fused,
    convolved: Array,
    mean: Array,
    var: Array,
    parameters: dict[str, Array],
    xp: ModuleType = np,
) -> Array:
    """Return batch norm, tanh, max pool and group norm of a float64 convolution."""

    def channels(values: Array) -> Array:
        return values.astype(np.float64)[:, None, None]

    gain = channels(parameters["bn_weight"]) / xp.sqrt(channels(var) + EPS)
    y = xp.tanh((convolved - channels(mean)) * gain + channels(parameters["bn_bias"]))
    samples, rows, height, width = case.output
    y = y[:, :, : 2 * height, : 2 * width].reshape(samples, rows, height, 2, width, 2)
    y = y.max(axis=(3, 5)).reshape(samples, case.num_groups, -1)
    y = y - y.mean(axis=2, keepdims=True)
    y = y / xp.sqrt((y * y).mean(axis=2, keepdims=True) + EPS)
    y = y.reshape(case.output)
    return y * channels(parameters["gn_weight"]) + channels(parameters["gn_bias"])
