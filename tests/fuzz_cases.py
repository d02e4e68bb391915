"""Random calls of the library, each drawn from a seed and a number, which replay it.

Hypothesis shrinks and remembers; it also takes milliseconds for each example. This generator is for
many calls: sizes are bounded by a budget of products and elements, which is large for a GPU and
small for NumPy and the emulator. Values and memory layouts are made as in `strategies`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from cupyconv._kernels import choice, launches
from fuzz_sizes import (
    FAMILIES,
    Budget,
    Draw,
    Sizes,
    padding,
    shrink,
    too_large,
)
from gradients import KINDS, Gradient, gradient_of, result_shape
from reference import Array, Shape
from strategies import (
    COMPLEX,
    DTYPES,
    FLOATS,
    FUSED,
    INTEGERS,
    LAYOUTS,
    MODES,
    PADDING_MODES,
    STYLES,
    Case,
    Convolution,
    dilation_extent,
    lay_out,
    plant,
    positive,
    values,
    windows_are_inhabited,
)

T = TypeVar("T")
Order = tuple[str | None, ...]

PARAMETERS = [np.dtype(np.float32), np.dtype(np.float64)]
OUT_LAYOUTS = tuple(layout for layout in LAYOUTS if layout != "broadcast")


@dataclass
class Example:
    """What one number draws: calls in a row, each but the first of the result of the one before.

    Attributes
    ----------
    cases : list of Case
        The calls; the input of a later one is drawn as None.
    kernels : list of tuple
        For each call, the kernels in the order in which they are tried; None leaves the choice.
    layouts : dict of str to str
        How each array lies in memory, by the name of the argument; "out" if the result is written
        to an array of the caller's.
    """

    cases: list[Case]
    kernels: list[Order]
    layouts: dict[str, str] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        return self.cases[0]

    @property
    def kind(self) -> str:
        return "chain" if len(self.cases) > 1 else self.case.function

    @property
    def samples_are_independent(self) -> bool:
        """Whether each sample of the result follows from that sample of the input alone."""
        case = self.case
        if isinstance(case, Gradient):
            y = case["grad_output"]
            return case.kind == "input" and y.ndim == case["weight"].ndim and y.shape[0] > 0
        if len(self.cases) > 1 or not case["input"].shape[0]:
            return False
        if case.function in ("batch_norm", FUSED):
            return case.arrays.get("mean") is not None
        return not isinstance(case, Convolution) or case["input"].ndim == case["weight"].ndim


def example(seed: int, number: int, budget: Budget) -> Example:
    """Return what a number draws."""
    draw = Draw(np.random.default_rng([seed, number]))
    kind = draw.rng.random()
    if kind < 0.60:
        return _with_layouts(draw, *_convolution(draw, budget))
    if kind < 0.74:
        return _with_layouts(draw, *_gradient(draw, budget))
    if kind < 0.80:
        return _with_layouts(draw, _norm(draw, budget), (None,))
    if kind < 0.85:
        return _with_layouts(draw, _pool(draw, budget), (None,))
    if kind < 0.92:
        return _with_layouts(draw, *_fused(draw, budget))
    return _chain(draw, budget)


def _with_layouts(draw: Draw, case: Case, kernels: Order) -> Example:
    """Lay the arrays of a case out in memory."""
    layouts: dict[str, str] = {}
    arrays: dict[str, Array | None] = {}
    for name, a in case.arrays.items():
        if a is None:
            arrays[name] = None
            continue
        layouts[name] = "contiguous" if draw.chance(0.4) else draw.one(LAYOUTS)
        arrays[name] = lay_out(draw.rng, a, layouts[name])
    if draw.chance(0.3):
        layouts["out"] = draw.one(OUT_LAYOUTS)
    return Example([case.with_arrays(**arrays)], [kernels], layouts)


def _arrays(
    draw: Draw, shapes: dict[str, Shape | None], dtypes: dict[str, Any]
) -> dict[str, Array | None]:
    """Values for each shape, one of the styles for all of them or one for each."""
    style = draw.one(STYLES)
    styles = STYLES if draw.chance(0.3) else (style,)
    odd = draw.chance(0.12)
    arrays: dict[str, Array | None] = {}
    for name, shape in shapes.items():
        arrays[name] = None
        if shape is not None:
            a = values(draw.rng, shape, dtypes[name], draw.one(styles))
            if odd and draw.chance(0.6):
                plant(draw.rng, a)
            arrays[name] = a
    return arrays


# Convolutions --------------------------------------------------------------------------------


def _dtypes(draw: Draw) -> tuple[Any, Any, str | None]:
    """The dtypes of input and weight, and the precision."""
    kind = draw.rng.random()
    if kind < 0.76:
        dtype, precision = draw.one(MODES)
        return dtype, dtype, precision if draw.chance(0.8) else None
    if kind < 0.82:
        return FLOATS[1], FLOATS[1], None
    if kind < 0.95:
        dtype = draw.one(COMPLEX if draw.chance(0.4) else INTEGERS)
        return dtype, dtype, None
    while True:
        pair = draw.one(DTYPES), draw.one(DTYPES)
        try:
            np.result_type(*pair)
        except TypeError:  # such as bfloat16 and int32
            continue
        return *pair, None


def _convolution(draw: Draw, budget: Budget) -> tuple[Convolution, Order]:
    """A call of a convolution or a transposed one, and the kernels that are to run it."""
    return _either(draw, budget, draw.chance(0.5))


def _gradient(draw: Draw, budget: Budget) -> tuple[Gradient, Order]:
    """A call of a gradient of a convolution, and the kernels that are to run it."""
    case, kernels = _either(draw, budget, transposed=False)
    kind = draw.one(KINDS)
    kept, replaced = ("weight", "input") if kind == "input" else ("input", "weight")
    shapes = case["input"].shape, case["weight"].shape
    steps = {name: case.options[name] for name in ("stride", "padding", "dilation")}
    y = values(draw.rng, result_shape(*shapes, **steps), case[replaced].dtype, draw.one(STYLES))
    if draw.chance(0.06):
        plant(draw.rng, y)
    options = {**case.options, "groups": case.groups}
    named = len(shapes[1]) - 2 if len(shapes[1]) < 6 and draw.chance(0.5) else None
    gradient = gradient_of(kind, (case[kept], y), shapes, options, named)
    return gradient, kernels


def _either(draw: Draw, budget: Budget, transposed: bool) -> tuple[Convolution, Order]:
    """A call of one of both directions, and the kernels that are to run it."""
    sizes = draw.one(FAMILIES)(draw)
    empty = draw.rng.random()
    if empty < 0.06:
        return _of_sizes(draw, budget, sizes, transposed, empty_axis=True), _kernels(draw)
    if empty < 0.075:
        sizes.samples = 0
    elif empty < 0.09:
        sizes.channels = 0
    elif empty < 0.095:
        sizes.rows = 0
    return _of_sizes(draw, budget, sizes, transposed), _kernels(draw)


def _kernels(draw: Draw) -> Order:
    if draw.chance(0.4):
        return (None,)
    return tuple(choice.KERNELS[i] for i in draw.rng.permutation(len(choice.KERNELS)))


def _of_sizes(
    draw: Draw, budget: Budget, sizes: Sizes, transposed: bool, empty_axis: bool = False
) -> Convolution:
    s = sizes
    pads, output_padding = padding(draw, s, transposed, empty_axis)
    while too_large(s, transposed, budget):
        shrink(draw, s, transposed)
        pads, output_padding = padding(draw, s, transposed, empty_axis)
    input_dtype, weight_dtype, precision = _dtypes(draw)
    result = np.result_type(input_dtype, weight_dtype)
    wider = {"i": "int64", "u": "uint64", "c": "complex128"}.get(result.kind, "float32")
    lead = (s.groups * s.channels, s.rows) if transposed else (s.groups * s.rows, s.channels)
    shapes: dict[str, Shape | None] = {
        "input": (s.samples, s.groups * s.channels, *s.lengths),
        "weight": (*lead, *s.kernel),
        "bias": (s.groups * s.rows,) if draw.chance(0.5) else None,
    }
    bias = draw.one([result, np.dtype(wider)])
    arrays = _arrays(draw, shapes, {"input": input_dtype, "weight": weight_dtype, "bias": bias})
    if s.samples and draw.chance(0.08):
        arrays["input"] = arrays["input"][0]  # type: ignore[index]
    function = "conv_transpose" if transposed else "conv"
    options: dict[str, Any] = {
        "stride": _listed(draw, s.stride),
        "padding": pads,
        "dilation": _listed(draw, s.dilation),
    }
    if transposed:
        options["output_padding"] = output_padding
    if not transposed and s.channels == 1 and s.rank == 2 and draw.chance(0.3):
        function = "depthwise_conv2d"
    else:
        options["groups"] = s.groups
        function += f"{s.rank}d" if s.rank < 4 and draw.chance(0.5) else ""
    case = Convolution(function, arrays, {**options, "precision": precision})
    case = _sized(draw, case) if transposed and draw.chance(0.3) else case
    if draw.chance(0.2) and all(axis.large for axis in case.axes):  # there are elements to show
        case = replace(case, options={**case.options, "padding_mode": draw.one(PADDING_MODES)})
    return case


def _sized(draw: Draw, case: Convolution) -> Convolution:
    """The call by an output_size, where there is one: an output_padding of the stride has none."""
    axes = case.axes
    if any(axis.longer >= axis.stride or not axis.small for axis in axes):
        return case
    size = tuple(axis.large for axis in axes)
    if case.options["padding"] == "same":
        size = tuple(axis.large - draw.integer(0, axis.stride - 1) for axis in axes)
    options = {name: value for name, value in case.options.items() if name != "output_padding"}
    return replace(case, options={**options, "output_size": size})


def _listed(draw: Draw, sizes: Sequence[int]) -> Any:
    """A scalar where all are the same, or now and then a tuple all the same."""
    return sizes[0] if len(set(sizes)) == 1 and draw.chance(0.7) else tuple(sizes)


# Norms, pooling, the fused operation, and chains ----------------------------------------------


def _norm(draw: Draw, budget: Budget) -> Case:
    elements = draw.size(1, max(8, budget.elements // 8))
    channels = draw.size(1, min(64, elements))
    rank = draw.integer(0, 3)
    samples = draw.size(1, max(1, min(6, elements // channels)))
    left = max(1, elements // (channels * samples))
    space = [draw.size(1, max(1, round(left ** (1 / rank)))) for _ in range(rank)]
    if space and draw.chance(0.5):
        space[-1] = max(1, left // math.prod(space[:-1]))
    input_dtype = draw.one(FLOATS + FLOATS + INTEGERS)
    if draw.chance(0.04):  # sets of about as many bytes as a block has of shared memory unasked
        channels, samples = draw.integer(1, 4), draw.integer(1, 2)
        space = [(48 * 1024 - 16 * draw.integer(0, 80)) // (input_dtype.itemsize * channels)]
    parameter = draw.one(PARAMETERS)
    batch = draw.chance(0.5)
    given = batch and draw.chance(0.4)

    def optional() -> Shape | None:
        return (channels,) if draw.chance(0.5) else None

    shapes: dict[str, Shape | None] = {"input": (samples, channels, *space)}
    if batch:
        shapes |= {"mean": (channels,) if given else None, "var": (channels,) if given else None}
    shapes |= {"weight": optional(), "bias": optional()}
    arrays = _arrays(draw, shapes, {name: parameter for name in shapes} | {"input": input_dtype})
    options: dict[str, Any] = {"eps": draw.one([1e-5, 1e-3, 1.0])}
    if batch:
        arrays["var"] = positive(arrays["var"])
        return Case("batch_norm", arrays, options)
    divisors = [n for n in range(1, channels + 1) if channels % n == 0]
    return Case("group_norm", arrays, {"num_groups": draw.one(divisors), **options})


def _pool(draw: Draw, budget: Budget) -> Case:
    large = draw.chance(0.3)
    kernel = draw.each(2, 1, 40 if large else 4)
    stride = draw.each(2, 1, 6) if draw.chance(0.6) else None
    dilation = draw.each(2, 1, 3)
    ceil_mode = draw.chance(0.5)
    extents = [dilation_extent(k, d) for k, d in zip(kernel, dilation, strict=True)]
    padding = tuple(draw.integer(0, e // 2) for e in extents)
    lengths = []
    for k, s, p, d, e in zip(kernel, stride or kernel, padding, dilation, extents, strict=True):
        length = max(draw.size(1, 60), e - 2 * p)
        while not windows_are_inhabited(length, k, s, p, d, ceil_mode):
            length += 1
        lengths.append(length)
    planes = max(1, min(12, budget.elements // math.prod(lengths)))
    channels = draw.size(1, planes)
    shape = (draw.size(1, max(1, planes // channels)), channels, *lengths)
    dtype = draw.one(FLOATS + FLOATS + INTEGERS)
    arrays = _arrays(draw, {"input": shape}, {"input": dtype})
    options = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return Case("max_pool2d", arrays, {**options, "ceil_mode": ceil_mode})


def _fused(draw: Draw, budget: Budget) -> tuple[Case, Order]:
    """The fused operation; the largest sets of a norm have about as many bytes as shared memory."""
    while True:
        kernel, stride = draw.each(2, 1, 5), draw.each(2, 1, 3)
        lengths = draw.each(2, 1, 40)
        output_padding = tuple(draw.integer(0, s - 1) for s in stride)
        padding = tuple((draw.integer(0, k // 2), draw.integer(0, k // 2)) for k in kernel)
        space = [
            (n - 1) * s + k + more - sum(pads)
            for n, s, k, more, pads in zip(
                lengths, stride, kernel, output_padding, padding, strict=True
            )
        ]
        groups, num_groups = draw.one([1, 1, 2, 3]), draw.one([1, 2, 3, 4])
        channels = groups * draw.size(1, 40)
        rows = math.lcm(groups, num_groups) * draw.size(1, 12)
        samples = draw.size(1, 4)
        values_out = samples * rows * math.prod(space)
        products = samples * channels * rows // groups * math.prod(lengths) * math.prod(kernel)
        limit = min(budget.elements, 40_000)  # NumPy's reference of a norm takes its time
        if min(space) >= 2 and values_out <= limit and products <= budget.products:
            break
    given = draw.chance(0.5)
    dtype, precision = draw.one([*MODES, *MODES, (FLOATS[1], None), (INTEGERS[2], None)])
    parameter = draw.one(PARAMETERS)
    statistic = (rows,) if given else None
    shapes: dict[str, Shape | None] = {
        "input": (samples, channels, *lengths),
        "kernel": (channels, rows // groups, *kernel),
        **dict.fromkeys(("bn_weight", "bn_bias", "gn_weight", "gn_bias"), (rows,)),
        **dict.fromkeys(("mean", "var"), statistic),
    }
    dtypes = {name: parameter for name in shapes} | {"input": dtype, "kernel": dtype}
    style = draw.one(["signed", "positive", "whole"])
    arrays: dict[str, Array | None] = {
        name: None if shape is None else values(draw.rng, shape, dtypes[name], style)
        for name, shape in shapes.items()
    }
    arrays["var"] = positive(arrays["var"])
    options = {
        "num_groups": num_groups,
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
        "groups": groups,
        "eps": draw.one([1e-5, 1e-3]),
        "precision": precision,
    }
    return Case(FUSED, arrays, options), (draw.one([None, None, "portable", "hopper", "direct"]),)


def _chain(draw: Draw, budget: Budget) -> Example:
    """Two to four calls: convolutions that keep the number of channels, norms and pooling."""
    small = budget.products < 1e6
    channels = draw.one([3, 8] if small else [3, 8, 16, 33, 48])
    shape = (draw.size(1, 3), channels, *draw.each(2, 5, 8 if small else 24))
    dtype, precision = draw.one(MODES)
    cases: list[Case] = []
    kernels: list[Order] = []
    first = values(draw.rng, shape, dtype, draw.one(["signed", "positive"]))
    for step in range(draw.integer(2, 4)):
        source: dict[str, Array | None] = {"input": first if step == 0 else None}
        kind = draw.one(["conv2d", "conv2d", "conv_transpose2d", "group_norm", "batch_norm"])
        if kind.startswith("conv"):
            k = draw.one([1, 3, 3, 5])
            weight = values(draw.rng, (channels, channels, k, k), dtype, "signed") / k
            source["weight"] = weight.astype(dtype)
            options: dict[str, Any] = {"padding": k // 2, "precision": precision}
            cases.append(Convolution(kind, {**source, "bias": None}, options))
        elif kind == "group_norm":
            divisors = [n for n in (1, 2, 3, 4, 8) if channels % n == 0]
            cases.append(Case(kind, source, {"num_groups": draw.one(divisors)}))
        else:
            cases.append(Case(kind, source, {}))
        kernels.append(_kernels(draw) if kind.startswith("conv") else (None,))
    return Example(cases, kernels)


def kernel_name(launch: launches.Launch) -> str:
    """The kernel of a launch, for a count: its function, its engine and its variant."""
    defines = dict(launch.instance.defines)
    shown = [defines[name] for name in ("ENGINE",) if name in defines]
    shown += [name.lower() for name in ("POOLS", "MATRIX") if name in defines]
    return " ".join((launch.instance.function, *shown))
