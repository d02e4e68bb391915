"""Hypothesis strategies that draw whole calls: geometry, dtypes, values and memory layouts.

Geometries are valid by construction.  The numbers come from a seeded generator, so that an
example is drawn fast and shrinks in what matters: its geometry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import DTypeLike

import reference
from reference import Array, Axis, Shape, Sums, per_axis, pool_size

if TYPE_CHECKING:
    from typing_extensions import Self

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(t) for t in ("float32", "float64", "float16", BFLOAT16)]
COMPLEX = [np.dtype(t) for t in ("complex64", "complex128")]
INTEGERS = [np.dtype(f"{kind}int{bits}") for bits in (8, 16, 32, 64) for kind in ("", "u")]
DTYPES = FLOATS + COMPLEX + INTEGERS
# What Tensor Cores multiply: a dtype and, for float32, a precision.
MODES = [
    (np.dtype(np.float32), "float32"),
    (np.dtype(np.float32), "tf32"),
    (np.dtype(np.float16), "float32"),
    (BFLOAT16, "float32"),
]
LAYOUTS = (
    "contiguous",
    "offset",
    "sliced",
    "cropped",
    "aligned",
    "interleaved",
    "reversed",
    "transposed",
    "fortran",
    "broadcast",
)
STYLES = ("signed", "positive", "uneven", "wide", "whole", "scaled", "holes", "outliers")


@dataclass(frozen=True)
class Case:
    """One call of the library: the function's name, its arrays by name, and its options."""

    function: str
    arrays: Mapping[str, Array | None]
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        arrays = [
            f"{name}=None" if a is None else f"{name}={a.dtype}{a.shape} by {a.strides}"
            for name, a in self.arrays.items()
        ]
        options = [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.function}({', '.join(arrays + options)})"

    def __str__(self) -> str:
        """Short, for the name of a test."""
        arrays = [f"{a.dtype}{a.shape}" for a in self.arrays.values() if a is not None]
        options = [f"{name}={value}" for name, value in self.options.items()]
        return f"{self.function} {' '.join(arrays + options)}".replace(", ", ",")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __getitem__(self, name: str) -> Array:
        """An array that is there."""
        a = self.arrays[name]
        assert a is not None
        return a

    def map(self, change: Callable[[Array], Any]) -> Self:
        """The case with each of its arrays changed."""
        arrays = {name: None if a is None else change(a) for name, a in self.arrays.items()}
        return replace(self, arrays=arrays)

    def with_arrays(self, **arrays: Array | None) -> Self:
        return replace(self, arrays={**self.arrays, **arrays})


class Convolution(Case):
    """A call of a convolution or a transposed one."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the result."""
        return np.result_type(self["input"], self["weight"])

    @property
    def precision(self) -> str:
        return self.options.get("precision") or "float32"

    @property
    def transposed(self) -> bool:
        return self.function.startswith("conv_transpose")

    @property
    def groups(self) -> int:
        depthwise = "depthwise" in self.function  # two axes, perhaps unbatched
        return self["input"].shape[-3] if depthwise else self.options.get("groups", 1)

    @property
    def padding_mode(self) -> str | None:
        return self.options.get("padding_mode")

    @property
    def geometry(self) -> dict[str, Any]:
        """The options that the definition knows: all but the precision."""
        return {name: value for name, value in self.options.items() if name != "precision"}

    @property
    def axes(self) -> list[Axis]:
        kernel = self["weight"].shape[2:]
        lengths = self["input"].shape[-len(kernel) :]
        of_no_axis = ("groups", "padding_mode", "precision")
        options = {name: value for name, value in self.options.items() if name not in of_no_axis}
        if self.transposed:
            return reference.conv_transpose_axes(lengths, kernel, **options)
        return reference.conv_axes(lengths, kernel, **options)

    @property
    def defined(self) -> Sums:
        """The result by definition."""
        return getattr(reference, self.function)(**self.arrays, **self.geometry)

    @property
    def cotangent(self) -> Array:
        """An array like the result, of small integers."""
        value = self.with_arrays(bias=None).defined.value
        return values(np.random.default_rng(0), value.shape, self.dtype, "whole")

    @property
    def explicit(self) -> Self:
        """The same with its padding as pairs, and each option given for each axis."""
        axes = self.axes
        options: dict[str, Any] = {
            "stride": tuple(axis.stride for axis in axes),
            "padding": tuple((axis.before, axis.after) for axis in axes),
            "dilation": tuple(axis.dilation for axis in axes),
            "groups": self.groups,
        }
        if self.padding_mode:
            options["padding_mode"] = self.padding_mode
        if self.transposed:
            options["output_padding"] = tuple(axis.longer for axis in axes)
        return replace(self, options=options)

    @property
    def adjoint(self) -> Convolution:
        """The call that takes the result's cotangent to the input's: the other direction, with
        the same weight, conjugated.  A transposed one takes the same options and the input's size.
        (The adjoint of a transposed one is longer than the input, if output_padding is at least the
        stride: a convolution has no means to leave its last outputs out.)"""
        if self.transposed:
            options = dict(self.explicit.options)
            del options["output_padding"]
        else:
            options = {**self.geometry, "groups": self.groups}
            options["output_size"] = tuple(axis.large for axis in self.axes)
        arrays = {"input": self.cotangent, "weight": self["weight"].conj(), "bias": None}
        return Convolution("conv" if self.transposed else "conv_transpose", arrays, options)


# Values --------------------------------------------------------------------------------------


def values(
    rng: np.random.Generator, shape: Shape, dtype: DTypeLike, style: str = "signed"
) -> Array:
    """Random numbers: integers cover their whole range; "whole" are small integers in any dtype,
    with which sums of products are exact; "wide" spreads over magnitudes, to float16's overflow.
    "uneven" are positive, and a little more than powers of two: one product is most of a sum, of
    which truncation takes as much as it can. Along one axis "scaled" numbers are of very different
    magnitudes; most "holes" are zero, and a few "outliers" are far larger than all others.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        real = dtype.type().real.dtype
        parts = values(rng, shape, real, style), values(rng, shape, real, style)
        return (parts[0] + 1j * parts[1]).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if style == "whole":
        return rng.integers(-8, 9, shape).astype(dtype)
    if style == "positive":
        return rng.uniform(0.5, 1.5, shape).astype(dtype)
    if style == "uneven":
        powers = np.exp2(rng.integers(-3, 3, shape))
        return (powers * rng.uniform(1, 1 + 2.0**-5, shape)).astype(dtype)
    most = 8 if dtype == np.float16 else 24
    scale: Any = 1.0
    if style == "wide":
        scale = np.exp2(rng.integers(-10, 11, shape))
    elif style == "scaled" and shape:
        axis = int(rng.integers(len(shape)))
        along = [n if i == axis else 1 for i, n in enumerate(shape)]
        scale = np.exp2(rng.integers(-most, most + 1, along))
    elif style == "holes":
        scale = rng.random(shape) < 0.2
    elif style == "outliers":
        scale = np.where(rng.random(shape) < 0.02, 2.0**most, 1.0)
    return (rng.standard_normal(shape) * scale).astype(dtype)


def plant(rng: np.random.Generator, a: Array) -> None:
    """Put an infinity or a NaN somewhere."""
    if a.size and a.dtype.kind not in "iu":
        a[tuple(rng.integers(0, a.shape))] = rng.choice([np.inf, -np.inf, np.nan])


def lay_out(rng: np.random.Generator, a: Array, layout: str) -> Array:
    """The array's values in another memory layout, with NaN in whatever lies between them.

    "broadcast" repeats the first entry along one axis, which changes the values. The rows of
    "aligned" lie multiples of 16 bytes apart, whatever their length.
    """
    if layout == "offset":
        before = int(rng.integers(1, 16))
        flat = poison(np.empty(a.size + before, a.dtype))
        flat[before:] = a.reshape(-1)
        return flat[before:].reshape(a.shape)
    if layout == "aligned":
        chunk = max(1, 16 // a.itemsize)
        pitch = (a.shape[-1] + int(rng.integers(1, chunk + 1))) // chunk * chunk
        pitch = max(pitch, -(-a.shape[-1] // chunk) * chunk)
        view = poison(np.empty([*a.shape[:-1], pitch], a.dtype))[..., : a.shape[-1]]
        view[...] = a
        return view
    if layout == "interleaved":
        axis = min(1, a.ndim - 1)
        index = (*(slice(None),) * axis, slice(None, None, 2))
        shape = [2 * n if i == axis else n for i, n in enumerate(a.shape)]
        view = poison(np.empty(shape, a.dtype))[index]
        view[...] = a
        return view
    if layout == "sliced":
        buffer = poison(np.empty([n + 2 for n in a.shape[:-1]] + [2 * a.shape[-1] + 3], a.dtype))
        view = buffer[(*(slice(1, 1 + n) for n in a.shape[:-1]), slice(2, 2 + 2 * a.shape[-1], 2))]
        view[...] = a
        return view
    if layout == "cropped":
        more = int(rng.integers(1, 8))
        first = int(rng.integers(more + 1))
        buffer = poison(np.empty([*a.shape[:-1], a.shape[-1] + more], a.dtype))
        view = buffer[..., first : first + a.shape[-1]]
        view[...] = a
        return view
    if layout == "reversed":
        axes = tuple(i for i in range(a.ndim) if rng.integers(2)) or (a.ndim - 1,)
        return np.flip(np.flip(a, axes).copy(), axes)
    if layout == "transposed":
        axes = tuple(int(i) for i in rng.permutation(a.ndim))
        return a.transpose(axes).copy().transpose(np.argsort(axes))
    if layout == "fortran":
        return np.asfortranarray(a)
    if layout == "broadcast" and a.size:
        axis = int(rng.integers(a.ndim))
        return np.broadcast_to(a.take([0], axis=axis), a.shape)
    return np.ascontiguousarray(a)


def inner(a: Array, b: Array) -> complex:
    """The sum of conj(a) * b, in float64; of integers, modulo their range."""
    if a.dtype.kind in "iu":
        return int((a.astype(np.uint64) * b.astype(np.uint64)).sum().astype(a.dtype))
    return complex(np.vdot(a.astype(np.complex128), b.astype(np.complex128)))


def zero_stuffed(a: Array, steps: tuple[int, ...]) -> Array:
    """The array with zeros between the elements of its last axes."""
    lead = a.ndim - len(steps)
    shape = [(n - 1) * s + 1 for n, s in zip(a.shape[lead:], steps, strict=True)]
    stuffed = np.zeros((*a.shape[:lead], *shape), a.dtype)
    stuffed[(..., *(slice(None, None, s) for s in steps))] = a
    return stuffed


def poison(a: Array) -> Array:
    """Fill with what no result should be taken for: NaN, or the largest integer."""
    a[...] = np.iinfo(a.dtype).max if a.dtype.kind in "iu" else np.nan
    return a


@st.composite
def drawn_values(
    draw: st.DrawFn, shapes: Sequence[Shape | None], dtypes: Sequence[Any], style: str
) -> list[Array | None]:
    """Arrays of the shapes, each laid out in its own way; None stays None."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    odd = draw(st.integers(0, 3)) == 3 and style != "whole"
    arrays: list[Array | None] = []
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if shape is None:
            arrays.append(None)
            continue
        a = values(rng, shape, dtype, style)
        if odd and draw(st.booleans()):
            plant(rng, a)
        arrays.append(lay_out(rng, a, draw(st.sampled_from(LAYOUTS))))
    return arrays


# Geometry ------------------------------------------------------------------------------------

# By rank, the largest kernel (and small array) on each axis, stride and dilation.
LONGEST = {1: 12, 2: 6, 3: 3, 4: 2}
STRIDE = {1: 6, 2: 4, 3: 3, 4: 2}
DILATION = {1: 4, 2: 3, 3: 3, 4: 2}


def scalar_or_each(draw: st.DrawFn, rank: int, element: st.SearchStrategy[int]) -> Any:
    """An int for all axes, or a tuple with one for each."""
    if draw(st.booleans()):
        return draw(element)
    return tuple(draw(element) for _ in range(rank))


def kernel_shape(draw: st.DrawFn, rank: int) -> Shape:
    return tuple(draw(st.integers(1, LONGEST[rank])) for _ in range(rank))


PADDINGS = ("valid", "int", "each", "pairs", "same")
PADDING_MODES = ("reflect", "symmetric", "edge", "wrap")
# The modes of options, which are mostly left out.
NO_BORDERS: st.SearchStrategy[dict[str, str]] = st.just({})
BORDERS = st.sampled_from([*[{}] * 12, *[{"padding_mode": mode} for mode in PADDING_MODES]])


@st.composite
def conv_geometries(
    draw: st.DrawFn, rank: int, borders: st.SearchStrategy[dict[str, str]] = BORDERS
) -> tuple[Shape, Shape, dict[str, Any]]:
    """Spatial shape of the input, of the kernel, and stride, padding and dilation.

    Borders may repeat a short input many times.
    """
    mode = draw(borders)
    kernel = kernel_shape(draw, rank)
    stride = scalar_or_each(draw, rank, st.integers(1, STRIDE[rank]))
    dilation = scalar_or_each(draw, rank, st.integers(1, DILATION[rank]))
    pad = st.integers(0, dilation_extent(max(kernel), max(per_axis(dilation, rank))))
    form = draw(st.sampled_from(PADDINGS))
    padding: Any = {
        "int": lambda: draw(pad),
        "each": lambda: tuple(draw(pad) for _ in range(rank)),
        "pairs": lambda: tuple((draw(pad), draw(pad)) for _ in range(rank)),
    }.get(form, lambda: form)()
    lengths = []
    for i, (k, s, d) in enumerate(
        zip(kernel, per_axis(stride, rank), per_axis(dilation, rank), strict=True)
    ):
        outputs = draw(st.integers(1, LONGEST[rank] + 1))
        rest = draw(st.integers(0, s - 1))
        if form == "same":
            lengths.append(outputs * s + rest)
            continue
        pads = 0 if form == "valid" else per_axis(padding, rank)[i]
        total = sum(pads) if isinstance(pads, tuple) else 2 * pads
        # 0 where all outputs are padding, which shows nothing then
        least = draw(st.sampled_from([1, 2, 3] if mode else [1, 1, 1, 0]))
        lengths.append(max((outputs - 1) * s + dilation_extent(k, d) - total + rest, least))
    options = {"stride": stride, "padding": padding, "dilation": dilation, **mode}
    return tuple(lengths), kernel, options


@st.composite
def conv_transpose_geometries(
    draw: st.DrawFn, rank: int, borders: st.SearchStrategy[dict[str, str]] = BORDERS
) -> tuple[Shape, Shape, dict[str, Any]]:
    """The same for a transposed one, with output_padding up to its bound, or with output_size."""
    kernel = kernel_shape(draw, rank)
    stride = scalar_or_each(draw, rank, st.integers(1, STRIDE[rank]))
    dilation = scalar_or_each(draw, rank, st.integers(1, DILATION[rank]))
    strides, dilations = per_axis(stride, rank), per_axis(dilation, rank)
    lengths = tuple(draw(st.integers(1, LONGEST[rank] + 1)) for _ in range(rank))
    form = draw(st.sampled_from(PADDINGS))
    bounds = [max(s, d) - 1 for s, d in zip(strides, dilations, strict=True)]
    output_padding: Any = 0
    if form != "same" and draw(st.booleans()):
        output_padding = draw(st.integers(0, min(bounds)))
    elif form != "same":
        output_padding = tuple(draw(st.integers(0, bound)) for bound in bounds)
    extents = [dilation_extent(k, d) for k, d in zip(kernel, dilations, strict=True)]
    more = per_axis(output_padding, rank)
    if form != "same" and draw(st.integers(0, 7)) == 7:  # an input of no length has outputs, too
        lengths = tuple(
            0 if e + longer > s and draw(st.booleans()) else n
            for n, s, e, longer in zip(lengths, strides, extents, more, strict=True)
        )
    removable = [  # an output keeps at least one position
        (length - 1) * s + e + more - 1
        for length, s, e, more in zip(
            lengths, strides, extents, per_axis(output_padding, rank), strict=True
        )
    ]
    padding: Any = form
    if form == "int":
        padding = draw(st.integers(0, min(min(removable) // 2, max(extents))))
    elif form == "each":
        padding = tuple(
            draw(st.integers(0, min(r // 2, e))) for r, e in zip(removable, extents, strict=True)
        )
    elif form == "pairs":
        befores = [
            draw(st.integers(0, min(r, e + 1))) for r, e in zip(removable, extents, strict=True)
        ]
        padding = tuple(
            (before, draw(st.integers(0, min(r - before, e + 1))))
            for before, r, e in zip(befores, removable, extents, strict=True)
        )
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    smallest = [
        axis.large - (s - 1 if form == "same" else 0)
        for axis, s in zip(
            reference.conv_transpose_axes(lengths, kernel, **options), strides, strict=True
        )
    ]
    # An output_size chooses among the inputs of a convolution, which has one output at least.
    if all(lengths) and min(smallest) > 0 and draw(st.integers(0, 3)) == 3:
        sizes = tuple(
            draw(st.integers(n, n + s - 1)) for n, s in zip(smallest, strides, strict=True)
        )
        return lengths, kernel, {**options, "output_size": sizes, **draw(borders)}
    return lengths, kernel, {**options, "output_padding": output_padding, **draw(borders)}


def dilation_extent(kernel: int, dilation: int) -> int:
    return dilation * (kernel - 1) + 1


# Convolutions --------------------------------------------------------------------------------


def result_type(*dtypes: Any) -> np.dtype[Any] | None:
    """The common type, or None where there is none."""
    try:
        return np.result_type(*dtypes)
    except TypeError:
        return None


def pairs_of(dtypes: Sequence[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Two of the dtypes that have a common type, and are mostly the same."""
    same = st.sampled_from([(dtype, dtype) for dtype in dtypes])
    pairs = [(a, b) for a in dtypes for b in dtypes if a != b and result_type(a, b) is not None]
    return st.one_of(same, same, st.sampled_from(pairs))


def twice(dtypes: Sequence[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """One of the dtypes, for both arrays."""
    return st.sampled_from([(dtype, dtype) for dtype in dtypes])


# Tensor Cores can take more than half of the calls.
matrix_pairs = twice([dtype for dtype, _ in MODES])
dtype_pairs = st.one_of(pairs_of(DTYPES), *[matrix_pairs] * 3)
# Numbers of samples and of channels; zero is drawn, but not often.
SAMPLES = st.sampled_from([*[1, 2, 3, 5] * 5, 0])
CHANNELS = st.sampled_from([*[1, 2, 3, 4, 5, 9] * 4, 0])
EXACT = [np.dtype(t) for t in ("float32", "float64", "int32", "uint8", "int64", "complex64")]
FUNCTIONS = ("conv", "conv_transpose", "conv", "conv_transpose", "depthwise_conv2d")


@st.composite
def convolutions(
    draw: st.DrawFn,
    *,
    functions: Sequence[str] = FUNCTIONS,
    dtypes: st.SearchStrategy[tuple[Any, Any]] = dtype_pairs,
    styles: Sequence[str] = STYLES,
    samples: st.SearchStrategy[int] = SAMPLES,
    unbatched: bool = True,
    borders: st.SearchStrategy[dict[str, str]] = BORDERS,
) -> Convolution:
    """A call of conv, conv_transpose (or one of their 1d, 2d, 3d names) or depthwise_conv2d."""
    function = draw(st.sampled_from(functions))
    rank = 2 if function == "depthwise_conv2d" else draw(st.sampled_from([1, 2, 3, 2, 1, 3, 4]))
    geometries = conv_transpose_geometries if function == "conv_transpose" else conv_geometries
    lengths, kernel, options = draw(geometries(rank, borders))
    if function == "depthwise_conv2d":
        channels = groups = draw(st.integers(1, 5))
        out_channels = channels * draw(st.integers(1, 3))
        weight_shape = (out_channels, 1, *kernel)
    else:
        groups = draw(st.sampled_from([1, 1, 2, 3, 5]))
        channels, out_channels = groups * draw(CHANNELS), groups * draw(CHANNELS)
        weight_shape = (out_channels, channels // groups, *kernel)
        if function == "conv_transpose":
            weight_shape = (channels, out_channels // groups, *kernel)
        options["groups"] = groups
        if rank < 4 and draw(st.booleans()):
            function = f"{function}{rank}d"
    options["precision"] = draw(st.sampled_from([None, "float32", "tf32"]))
    input_dtype, weight_dtype = draw(dtypes)
    input_shape = (draw(samples), channels, *lengths)
    if unbatched and draw(st.integers(0, 5)) == 5:
        input_shape = input_shape[1:]
    bias_shape = (out_channels,) if draw(st.booleans()) else None
    arrays = draw(
        drawn_values(
            [input_shape, weight_shape, bias_shape],
            [input_dtype, weight_dtype, bias_dtype(draw, input_dtype, weight_dtype)],
            draw(st.sampled_from(styles)),
        )
    )
    return Convolution(
        function, dict(zip(("input", "weight", "bias"), arrays, strict=True)), options
    )


@st.composite
def one_channel_convolutions(draw: st.DrawFn, chunks: bool) -> Convolution:
    """Calls of one input channel in each group and one phase.

    With `chunks` of 16 bytes in a line, and taps that slide, they are for Tensor Cores in the
    depthwise kernel, or for copies of whole lines.
    """
    rank = draw(st.sampled_from([2, 2, 3] if chunks else [1, 2, 2, 3]))
    transposed = draw(st.booleans())

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    widths = st.integers(2, 9) if chunks else st.sampled_from([3, 5, 7])
    kernel = (*each(1, 4)[1:], draw(widths))
    if not chunks and rank > 1 and draw(st.booleans()):  # outputs below each other share inputs
        kernel = (*kernel[:-2], kernel[-1], kernel[-1])
    stride = 1 if chunks or transposed else each(1, 3)
    dilation = (1,) * rank if chunks else each(1, 2)
    before, after, more = each(0, 8), each(0, 8), each(1, 20)
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    padding = tuple(
        (min(b, r), min(a, r - min(b, r))) for b, a, r in zip(before, after, reach, strict=True)
    )
    lengths = [
        max(1, n if transposed else n + r - sum(pad))
        for n, r, pad in zip(more, reach, padding, strict=True)
    ]
    if chunks:
        whole = draw(st.booleans())  # lines of whole chunks, or lines that end within one
        lengths[-1] += -lengths[-1] % 8 if whole else 0
        lengths[-1] += draw(st.sampled_from([48, 40, 56, 64, 104, 120]))
    groups, rows, samples = (draw(st.integers(1, most)) for most in (9, 3, 3))
    weight_shape = (groups, rows) if transposed else (groups * rows, 1)
    dtypes = draw(twice(FLOATS + FLOATS[2:] if chunks else FLOATS))
    arrays = draw(
        drawn_values(
            [(samples, groups, *lengths), (*weight_shape, *kernel), (groups * rows,)],
            [*dtypes, bias_dtype(draw, *dtypes)],
            draw(st.sampled_from(STYLES)),
        )
    )
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    options |= draw(BORDERS)
    function = "conv_transpose" if transposed else "conv"
    return Convolution(
        function, dict(zip(("input", "weight", "bias"), arrays, strict=True)), options
    )


@st.composite
def geometries_of_either_direction(draw: st.DrawFn) -> tuple[bool, Any, Any, dict[str, Any]]:
    """Whether a call is transposed, and its lengths, kernel and options, on one to three axes."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    transposed = draw(st.booleans())
    return transposed, *draw((conv_transpose_geometries if transposed else conv_geometries)(rank))


def drawn_convolution(
    draw: st.DrawFn,
    transposed: bool,
    sizes: tuple[int, int, int, int],
    lengths: Sequence[int],
    kernel: Sequence[int],
    options: dict[str, Any],
) -> Convolution:
    """A call for Tensor Cores, of so many samples, groups, and channels and rows of a group."""
    samples, groups, channels, rows = sizes
    dtype, precision = draw(st.sampled_from(MODES))
    weight = (groups * channels, rows) if transposed else (groups * rows, channels)
    arrays = draw(
        drawn_values(
            [(samples, groups * channels, *lengths), (*weight, *kernel), (groups * rows,)],
            [dtype, dtype, bias_dtype(draw, dtype, dtype)],
            draw(st.sampled_from(STYLES)),
        )
    )
    return Convolution(
        "conv_transpose" if transposed else "conv",
        dict(zip(("input", "weight", "bias"), arrays, strict=True)),
        {**options, "groups": groups, "precision": precision},
    )


@st.composite
def streaming_convolutions(draw: st.DrawFn) -> Convolution:
    """Calls of few products of an output and one phase, with several taps."""
    transposed, lengths, kernel, options = draw(geometries_of_either_direction())
    if transposed:
        assume(set(np.ravel(options["stride"])) == {1})
    assume(sum(kernel) <= 20)
    most = max(1, 300 // math.prod(kernel))
    groups, rows, samples = (draw(st.integers(1, most)) for most in (3, 80, 3))
    channels = draw(st.integers(1, min(most, 40)))
    sizes = samples, groups, channels, rows
    return drawn_convolution(draw, transposed, sizes, lengths, kernel, options)


@st.composite
def deep_convolutions(draw: st.DrawFn) -> Convolution:
    """Calls of two blocks of channels and more in a group, on small images."""
    transposed, lengths, kernel, options = draw(geometries_of_either_direction())
    assume(math.prod(kernel) <= 30)
    groups, rows, samples = (draw(st.integers(1, most)) for most in (2, 80, 5))
    channels = draw(st.sampled_from([17, 32, 33, 48, 60, 70]))
    sizes = samples, groups, channels, rows
    return drawn_convolution(draw, transposed, sizes, lengths, kernel, options)


@st.composite
def pointwise_convolutions(draw: st.DrawFn) -> Convolution:
    """Calls of one tap and no padding, with some or with many channels in a group."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    transposed = draw(st.booleans())
    lengths = [draw(st.integers(1, most)) for most in (20, 20, 4)[:rank]]
    groups, rows, samples = (draw(st.integers(1, most)) for most in (3, 80, 3))
    channels = draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 65, 100, 129, 150])))
    stride = 1 if transposed else tuple(draw(st.sampled_from([1, 1, 2])) for _ in range(rank))
    sizes = samples, groups, channels, rows
    return drawn_convolution(draw, transposed, sizes, lengths, (1,) * rank, {"stride": stride})


def bias_dtype(draw: st.DrawFn, *dtypes: Any) -> np.dtype[Any]:
    """The result's dtype, or another one that may be added to it."""
    dtype = np.result_type(*dtypes)
    wider = {"i": "int64", "u": "uint64", "c": "complex128"}.get(dtype.kind, "float32")
    return draw(st.sampled_from([dtype, np.dtype(wider)]))


exact_pairs = st.one_of(twice(EXACT), st.just((EXACT[0], EXACT[0])))
# For identities whose two sides round the same sum once: that may round to 16 bits.
rounded_pairs = st.one_of(twice(EXACT), matrix_pairs)


def exact_convolutions(
    *functions: str,
    dtypes: st.SearchStrategy[tuple[Any, Any]] = exact_pairs,
    borders: st.SearchStrategy[dict[str, str]] = BORDERS,
) -> st.SearchStrategy[Convolution]:
    """Calls whose sums are exact, so that identities hold to the last bit."""
    return convolutions(
        functions=functions, dtypes=dtypes, styles=["whole"], unbatched=False, borders=borders
    )


def convolution(
    function: str,
    input_shape: Shape,
    weight_shape: Shape,
    dtype: DTypeLike = np.float32,
    *,
    bias: bool = False,
    style: str = "signed",
    seed: int = 0,
    **options: Any,
) -> Convolution:
    """A call with given shapes and options, for explicit examples."""
    rng = np.random.default_rng(seed)
    groups = options.get("groups", 1)
    transposed = function.startswith("conv_transpose")
    channels = weight_shape[1] * groups if transposed else weight_shape[0]
    arrays = {
        "input": values(rng, input_shape, dtype, style),
        "weight": values(rng, weight_shape, dtype, style),
        "bias": values(rng, (channels,), dtype, style) if bias else None,
    }
    return Convolution(function, arrays, options)


@st.composite
def short_sums(draw: st.DrawFn) -> Convolution:
    """Float32 calls of few products for each of many outputs.

    What a Tensor Core truncates is most of their error, and among so many some come close to the
    bound.
    """
    groups, channels, *kernel = (draw(st.integers(1, most)) for most in (2, 2, 3, 3))
    rows, samples = draw(st.sampled_from([16, 32])), draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    weight = (groups * channels, rows) if transposed else (groups * rows, channels)
    return convolution(
        "conv_transpose2d" if transposed else "conv2d",
        (samples, groups * channels, 20, 30),
        (*weight, *kernel),
        style="uneven",
        seed=draw(st.integers(0, 2**32 - 1)),
        groups=groups,
        stride=tuple(draw(st.integers(1, k)) for k in kernel),
    )


# Norms, pooling, and the fused operation -----------------------------------------------------

REALS = FLOATS + INTEGERS
spatial_shapes = st.lists(st.integers(1, 5), min_size=0, max_size=3).map(tuple)


def floating(dtype: Any) -> np.dtype[Any]:
    """The dtype of a norm's result."""
    return np.dtype(np.float64) if np.dtype(dtype).kind in "iu" else np.dtype(dtype)


def optional(draw: st.DrawFn, shape: Shape) -> Shape | None:
    return shape if draw(st.booleans()) else None


def positive(a: Array | None) -> Array | None:
    """Variances: the absolute values, in the same memory layout; odd numbers become 1."""
    if a is None:
        return None
    a = np.array(a, order="K")
    a[~np.isfinite(a)] = 1
    return np.abs(a)


parameter_dtypes = st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)])
epsilons = st.sampled_from([1e-5, 1e-3, 1.0])


@st.composite
def batch_norms(draw: st.DrawFn, *, given: bool | None = None) -> Case:
    """A call of batch_norm; given says whether the statistics are, None draws it."""
    given = draw(st.booleans()) if given is None else given
    samples = draw(st.sampled_from([1, 2, 3, 4, 0] if given else [1, 2, 3, 4]))
    shape = (samples, draw(st.sampled_from([1, 2, 3, 5, 0])), *draw(spatial_shapes))
    channels = (shape[1],)
    shapes = [shape, channels if given else None, channels if given else None]
    shapes += [optional(draw, channels), optional(draw, channels)]
    dtypes = [draw(st.sampled_from(REALS)), *[draw(parameter_dtypes)] * 4]
    arrays = draw(drawn_values(shapes, dtypes, draw(st.sampled_from(STYLES))))
    named = dict(zip(("input", "mean", "var", "weight", "bias"), arrays, strict=True))
    named["var"] = positive(named["var"])
    return Case("batch_norm", named, {"eps": draw(epsilons)})


@st.composite
def group_norms(draw: st.DrawFn) -> Case:
    """A call of group_norm, from instance norm to layer norm."""
    num_groups = draw(st.sampled_from([1, 2, 3, 5]))
    channels = num_groups * draw(st.integers(1, 4))
    shape = (draw(st.sampled_from([1, 2, 3, 4, 0])), channels, *draw(spatial_shapes))
    shapes = [shape, optional(draw, (channels,)), optional(draw, (channels,))]
    dtypes = [draw(st.sampled_from(REALS)), *[draw(parameter_dtypes)] * 2]
    arrays = draw(drawn_values(shapes, dtypes, draw(st.sampled_from(STYLES))))
    named = dict(zip(("input", "weight", "bias"), arrays, strict=True))
    return Case("group_norm", named, {"num_groups": num_groups, "eps": draw(epsilons)})


WINDOW_SIZES = st.integers(1, 4)


@st.composite
def max_pools(
    draw: st.DrawFn,
    *,
    samples: st.SearchStrategy[int] = SAMPLES,
    channels: st.SearchStrategy[int] = CHANNELS,
    kernels: st.SearchStrategy[int] = WINDOW_SIZES,
    unbatched: bool = True,
) -> Case:
    """A call of max_pool2d in which each window holds at least one element of the input."""
    kernel = scalar_or_each(draw, 2, kernels)
    stride = scalar_or_each(draw, 2, st.integers(1, 5)) if draw(st.booleans()) else None
    dilation = scalar_or_each(draw, 2, st.integers(1, 3))
    ceil_mode = draw(st.booleans())
    extents = [
        dilation_extent(k, d)
        for k, d in zip(per_axis(kernel, 2), per_axis(dilation, 2), strict=True)
    ]
    padding: Any = scalar_or_each(draw, 2, st.integers(0, min(extents) // 2))
    lengths = []
    for k, s, p, d, extent in zip(
        per_axis(kernel, 2),
        per_axis(kernel if stride is None else stride, 2),
        per_axis(padding, 2),
        per_axis(dilation, 2),
        extents,
        strict=True,
    ):
        length = max(draw(st.integers(1, 9)), extent - 2 * p)
        while not windows_are_inhabited(length, k, s, p, d, ceil_mode):
            length += 1
        lengths.append(length)
    shape = (draw(samples), draw(channels), *lengths)
    if unbatched and draw(st.integers(0, 5)) == 5:
        shape = shape[1:]
    dtype = draw(st.sampled_from(REALS))
    (array,) = draw(drawn_values([shape], [dtype], draw(st.sampled_from(STYLES))))
    options = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return Case("max_pool2d", {"input": array}, {**options, "ceil_mode": ceil_mode})


def windows_are_inhabited(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> bool:
    count = pool_size(size, kernel, stride, padding, dilation, ceil_mode)
    return count > 0 and all(
        any(0 <= o * stride - padding + k * dilation < size for k in range(kernel))
        for o in range(count)
    )


real_pairs = pairs_of(REALS)
FUSED = "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm"


@st.composite
def fused_operations(draw: st.DrawFn, *, given: bool | None = None) -> Case:
    """A call of the fused operation; its convolution is large enough to be pooled."""
    given = draw(st.booleans()) if given is None else given
    kernel = (draw(st.integers(2, 4)), draw(st.integers(2, 4)))
    lengths = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    stride = scalar_or_each(draw, 2, st.integers(1, 3))
    output_padding = draw(st.integers(0, min(per_axis(stride, 2)) - 1))
    spare = min(
        (n - 1) * s + k + output_padding - 2
        for n, s, k in zip(lengths, per_axis(stride, 2), kernel, strict=True)
    )
    padding: Any = scalar_or_each(draw, 2, st.integers(0, spare // 2))
    if draw(st.booleans()):
        before = draw(st.integers(0, spare))
        padding = ((before, draw(st.integers(0, spare - before))), (0, spare))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    num_groups = draw(st.sampled_from([1, 2, 3]))
    channels = groups * draw(st.integers(1, 3))
    out_channels = math.lcm(groups, num_groups) * draw(st.integers(1, 2))
    samples = draw(st.sampled_from([1, 2, 3, 0] if given else [1, 2, 3]))
    parameter = (out_channels,)
    statistic = parameter if given else None
    shapes = [(samples, channels, *lengths), (channels, out_channels // groups, *kernel)]
    shapes += [parameter] * 4 + [statistic] * 2
    dtypes = [*draw(real_pairs), *[draw(parameter_dtypes)] * 6]
    style = draw(st.sampled_from(["signed", "positive", "whole"]))
    arrays = draw(drawn_values(shapes, dtypes, style))
    names = ("input", "kernel", "bn_weight", "bn_bias", "gn_weight", "gn_bias", "mean", "var")
    named = dict(zip(names, arrays, strict=True))
    named["var"] = positive(named["var"])
    options = {
        "num_groups": num_groups,
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
        "groups": groups,
        "eps": draw(epsilons),
        "precision": draw(st.sampled_from([None, "float32", "tf32"])),
    }
    return Case(FUSED, named, options)
