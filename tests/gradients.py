"""Strategies that draw calls of `cupyconv.grad`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import DTypeLike

import reference
from reference import Array, Axis, Shape, Sums
from strategies import (
    BORDERS,
    CHANNELS,
    SAMPLES,
    STYLES,
    Case,
    conv_geometries,
    drawn_values,
    dtype_pairs,
    values,
)

KINDS = ("input", "weight")


class Gradient(Case):
    """A call of a gradient with respect to the input or to the weight."""

    @property
    def kind(self) -> str:
        return self.function.rpartition("_")[2]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the result."""
        return np.result_type(*(a for a in self.arrays.values() if a is not None))

    @property
    def precision(self) -> str:
        return self.options.get("precision") or "float32"

    @property
    def padding_mode(self) -> str | None:
        return self.options.get("padding_mode")

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        """The shapes of the convolution's input and weight."""
        if self.kind == "input":
            return self.options["input_size"], self["weight"].shape
        return self["input"].shape, self.options["weight_size"]

    @property
    def axes(self) -> list[Axis]:
        input_shape, (_, _, *kernel) = self.shapes
        names = ("stride", "padding", "dilation")
        options = {name: self.options[name] for name in names if name in self.options}
        lengths = input_shape[-len(kernel) :]
        return reference.conv_axes(lengths, tuple(kernel), **options)

    def with_options(self, **options: Any) -> Gradient:
        return replace(self, options={**self.options, **options})

    @property
    def defined(self) -> Sums:
        """The result by definition."""
        options = {name: value for name, value in self.options.items() if name != "precision"}
        define = reference.conv_input if self.kind == "input" else reference.conv_weight
        return define(**self.arrays, **options)


def result_shape(
    input_shape: Shape,
    weight_shape: Shape,
    stride: Any,
    padding: Any,
    dilation: Any,
    padding_mode: str | None = None,
) -> Shape:
    """The shape of a convolution's result, by the definition's arithmetic, for any mode."""
    rank = len(weight_shape) - 2
    lengths, kernel = input_shape[-rank:], weight_shape[2:]
    axes = reference.conv_axes(lengths, kernel, stride, padding, dilation)
    return *input_shape[: -rank - 1], weight_shape[0], *(axis.small for axis in axes)


def gradient_of(
    kind: str,
    arrays: Sequence[Array],
    shapes: tuple[Shape, Shape],
    options: dict[str, Any],
    rank: int | None = None,
) -> Gradient:
    """A call with two arrays: grad_output, and of input and weight the one that it takes.

    The shapes are those of the convolution's input and weight. With a rank the function is the one
    for so many axes.
    """
    other, size = ("weight", "input_size") if kind == "input" else ("input", "weight_size")
    named = dict(zip((other, "grad_output"), arrays, strict=True))
    options = {size: shapes[kind == "weight"], **options}
    name = "conv" if rank is None else f"conv{rank}d"
    return Gradient(f"grad.{name}_{kind}", named, options)


@st.composite
def gradients(
    draw: st.DrawFn,
    *,
    kinds: Sequence[str] = KINDS,
    dtypes: st.SearchStrategy[tuple[Any, Any]] = dtype_pairs,
    styles: Sequence[str] = STYLES,
    samples: st.SearchStrategy[int] = SAMPLES,
    unbatched: bool = True,
    borders: st.SearchStrategy[dict[str, str]] = BORDERS,
) -> Gradient:
    """A call of conv_input or conv_weight, or of one of their names for 1 to 3 axes."""
    kind = draw(st.sampled_from(kinds))
    rank = draw(st.sampled_from([1, 2, 3, 2, 1, 3, 4]))
    lengths, kernel, options = draw(conv_geometries(rank, borders))
    groups = draw(st.sampled_from([1, 1, 2, 3, 5]))
    channels, rows = draw(CHANNELS), draw(CHANNELS)
    if draw(st.integers(0, 5)) == 5:  # depthwise
        channels = 1
    batch = () if unbatched and draw(st.integers(0, 5)) == 5 else (draw(samples),)
    input_shape = (*batch, groups * channels, *lengths)
    weight_shape = (groups * rows, channels, *kernel)
    out_shape = result_shape(input_shape, weight_shape, **options)
    other = weight_shape if kind == "input" else input_shape
    arrays = draw(drawn_values([other, out_shape], draw(dtypes), draw(st.sampled_from(styles))))
    options["groups"] = groups
    options["precision"] = draw(st.sampled_from([None, "float32", "tf32"]))
    named = rank if rank < 4 and draw(st.booleans()) else None
    return gradient_of(kind, arrays, (input_shape, weight_shape), options, named)


def gradient(
    kind: str,
    input_shape: Shape,
    weight_shape: Shape,
    dtype: DTypeLike = np.float32,
    *,
    style: str = "signed",
    seed: int = 0,
    **options: Any,
) -> Gradient:
    """A call with given shapes and options, for explicit examples."""
    rng = np.random.default_rng(seed)
    steps = {name: options.get(name, 1) for name in ("stride", "dilation")}
    out_shape = result_shape(input_shape, weight_shape, padding=options.get("padding", 0), **steps)
    other = weight_shape if kind == "input" else input_shape
    arrays = [values(rng, shape, dtype, style) for shape in (other, out_shape)]
    return gradient_of(kind, arrays, (input_shape, weight_shape), options)
