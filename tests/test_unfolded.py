"""The unfolded form of convolutions: taps of an axis without padding as input channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cupyconv
import subjects
import test_convolution
import test_promises
from backends import NumpyBackend, forced_backends
from cupyconv import _axes, _strides, _unfolding
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import choice, unfolded
from cupyconv._kernels.direct_conv import DirectPlan
from cupyconv._kernels.launches import TARGETS, Processor
from cupyconv._kernels.unfolded import UnfoldedPlan
from planning import HOPPER, any_mode, checked, conv, conv_transpose, plan_of
from reference import Array
from strategies import (
    DILATION,
    LONGEST,
    MODES,
    STRIDE,
    Convolution,
    convolution,
    drawn_convolution,
    lay_out,
    scalar_or_each,
)

subjects.subjects()  # imports tests, which a test of Hypothesis may not do

BACKENDS = [
    backend for name in choice.UNFOLDED for backend in forced_backends(name, "portable" not in name)
]
every_unfolded = pytest.mark.parametrize("backend", BACKENDS)
# A spectrogram, patches, groups with several filters each, axes with padding, a window that slides
# by one, and windows that leave inputs between them unread.
BANKS: dict[str, tuple[Any, ...]] = {
    "spectrogram": ("conv1d", (2, 1, 1024), (70, 1, 131), {"stride": 16}),
    "patches": ("conv2d", (3, 1, 32, 48), (70, 1, 8, 8), {"stride": 8}),
    "groups": ("conv2d", (2, 3, 9, 61), (60, 1, 2, 33), {"groups": 3, "dilation": (2, 1)}),
    "planes": (
        "conv3d", (2, 2, 21, 6, 9), (40, 1, 18, 2, 3), {"groups": 2, "padding": (0, 1, 2)},
    ),
    "sliding": ("conv1d", (3, 1, 150), (70, 1, 50), {"dilation": 2, "padding": ((0, 30),)}),
    "apart": ("conv2d", (2, 1, 40, 90), (66, 1, 3, 17), {"stride": (5, 40), "padding": (2, 1)}),
}  # fmt: skip
every_bank = pytest.mark.parametrize("bank", BANKS)


def bank_case(bank: str) -> Convolution:
    """One of the calls, each in another mode than the one before it."""
    function, input_shape, weight_shape, options = BANKS[bank]
    dtype, precision = MODES[list(BANKS).index(bank) % len(MODES)]
    return convolution(
        function, input_shape, weight_shape, dtype, bias=True, precision=precision, **options
    )


@st.composite
def filter_banks(draw: st.DrawFn) -> Convolution:
    """Calls of one input channel in each group, with many taps and little padding along an axis."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    most = LONGEST[rank]
    kernel = [draw(st.integers(1, most)) for _ in range(rank)]
    axis = draw(st.integers(0, rank - 1))
    kernel[axis] = draw(st.integers(2, {1: 70, 2: 40, 3: 20}[rank]))
    stride, dilation = (
        scalar_or_each(draw, rank, st.integers(1, longest[rank])) for longest in (STRIDE, DILATION)
    )
    reach = np.broadcast_to(dilation, rank) * (np.array(kernel) - 1)
    padded = st.booleans()
    pads = [
        (0, 0) if draw(padded) else tuple(draw(st.integers(0, int(r))) for _ in range(2))
        for r in reach
    ]
    outputs = [draw(st.integers(1, most + 1)) for _ in range(rank)]
    rest = [draw(st.integers(0, 2)) for _ in range(rank)]
    lengths = (np.array(outputs) - 1) * stride + reach + 1 + rest - np.sum(pads, axis=1)
    groups, rows, samples = (draw(st.integers(1, n)) for n in (3, 70, 3))
    options = {"stride": stride, "dilation": dilation, "padding": tuple(pads)}
    return drawn_convolution(
        draw, False, (samples, groups, 1, rows), np.maximum(lengths, 1).tolist(), kernel, options
    )


def described(case: Convolution) -> tuple[ConvGeometry, _strides.ConvStrides]:
    """The geometry of a call and the strides of its arrays."""
    options = {name: case.options[name] for name in ("stride", "padding", "dilation", "groups")}
    geometry = conv(case["input"].shape, case["weight"].shape, **options)
    out = np.empty(geometry.out_shape, case.dtype)
    return geometry, _strides.conv_strides(geometry, case["input"], case["weight"], out)


def products(geometry: ConvGeometry, strides: _strides.ConvStrides) -> Array:
    """The places of output, input and weight of all products, in elements and in order."""
    g, rank = geometry, geometry.rank
    kernel = [axis.kernel for axis in g.axes]
    sizes = (g.batch, g.groups, g.rows, g.channels, *g.out_shape[-rank:], *kernel)
    n, group, row, channel, *rest = np.indices(sizes, sparse=True)
    out, taps = rest[:rank], rest[rank:]
    at = [o * a.step + a.origin + t * a.dilation for o, t, a in zip(out, taps, g.axes, strict=True)]

    def offset(strides: Sequence[int], place: Sequence[Array]) -> Array:
        return sum(s * p for s, p in zip(strides, place, strict=True))

    places = (
        offset((*strides.out, *strides.out_axes), (n, group, row, *out)),
        offset((*strides.input, *strides.input_axes), (n, group, channel, *at)),
        offset((*strides.weight, *strides.weight_axes), (group, row, channel, *taps)),
    )
    inside = np.ones(sizes, bool)
    for i, axis in zip(at, g.axes, strict=True):
        inside &= (i >= 0) & (i < axis.size_in)
    found = np.stack([np.broadcast_to(place, sizes)[inside] for place in places])
    return in_order(found)


def in_order(places: Array) -> Array:
    return places[:, np.lexsort(places)]


@given(case=filter_banks())
def test_the_products_stay_the_same(case: Convolution) -> None:
    """Each output has the same pairs of input and weight, which lie at the same places."""
    geometry, strides = described(case)
    geometry = replace(geometry, batch=1, rows=min(geometry.rows, 2))  # few products to list
    assume(_unfolding.parts(geometry))
    found = []
    for number, part in enumerate(_unfolding.parts(geometry)):
        own = part.geometry, strides
        if number == 0:
            form = _unfolding.unfolded(part.geometry, part.axis)
            windows = strides.unfolded(part.geometry, part.axis)
            raised = products(_axes.raised(form), windows.raised(form))
            own = form, windows
            assert np.array_equal(raised, products(*own))
        place = part.outputs.start * strides.out_axes[part.axis]
        first = part.first * strides.input_axes[part.axis]
        found.append(products(*own) + [[place], [first], [0]])
    assert np.array_equal(in_order(np.concatenate(found, axis=1)), products(geometry, strides))


@pytest.mark.parametrize(
    ("geometry", "outputs"),
    [
        (conv((1, 1, 30), (4, 1, 5)), {0: (range(26),)}),
        (conv((1, 2, 30), (4, 1, 5), groups=2), {0: (range(26),)}),
        (conv((1, 1, 30), (4, 1, 5), padding=3), {0: (range(3, 29), range(3), range(29, 32))}),
        (
            conv((1, 1, 30), (4, 1, 5), stride=2, padding=3),
            {0: (range(2, 15), range(2), range(15, 16))},
        ),
        (
            conv((1, 1, 5), (4, 1, 5), stride=9, padding=((0, 20),)),
            {0: (range(1), range(1, 3))},
        ),
        (conv((1, 1, 30), (4, 1, 5), padding=((0, 1),)), {0: (range(26), range(26, 27))}),
        # Padding that no output reaches.
        (conv((1, 1, 30), (4, 1, 3), stride=5, padding=((0, 2),)), {0: (range(6),)}),
        # Most taps, and of equal axes the last one, or the one where most outputs have all taps.
        (conv((1, 1, 30, 30), (4, 1, 5, 4)), {0: (range(26),)}),
        (conv((1, 1, 30, 30), (4, 1, 5, 5)), {1: (range(26),)}),
        (conv((1, 1, 30, 30), (4, 1, 5, 5), padding=(0, 2)), {0: (range(26),)}),
        # Several channels, one tap, another direction; and no output that has all taps.
        (conv((1, 2, 30), (4, 2, 5)), {}),
        (conv((1, 1, 30), (4, 1, 1)), {}),
        (conv_transpose((1, 1, 30), (1, 4, 5)), {}),
        (conv((1, 1, 3), (4, 1, 5), padding=2), {}),
        (conv((1, 1, 0), (4, 1, 5), padding=5), {}),
    ],
)  # fmt: skip
def test_which_outputs_are_unfolded(
    geometry: ConvGeometry, outputs: dict[int, tuple[range, ...]]
) -> None:
    found = _unfolding.parts(geometry)
    assert {part.axis for part in found} == set(outputs)
    assert tuple(part.outputs for part in found) == sum(outputs.values(), ())
    for part in found:
        axis = geometry.axes[part.axis]
        assert part.first + part.geometry.axes[part.axis].size_in == axis.size_in
        assert 0 <= part.first < axis.size_in


@every_unfolded
@given(case=filter_banks())
def test_definition(backend: NumpyBackend, case: Convolution) -> None:
    test_convolution.check(backend, case)


@every_unfolded
@every_bank
def test_special_values(backend: NumpyBackend, bank: str) -> None:
    """They are in the outputs that have them in their sums, and nowhere else."""
    case = bank_case(bank)
    x, w = case["input"].copy(), case["weight"].copy()
    for i, value in enumerate((np.inf, np.nan, -np.inf)):
        x.reshape(-1)[(i + 1) * x.size // 5] = value
        w[i].reshape(-1)[[0, -1]] = value
    test_convolution.check(backend, case.with_arrays(input=x, weight=w))


@pytest.mark.parametrize("backend", forced_backends("unfolded-hopper", wgmma=True))
def test_the_range_of_inputs_is_that_of_the_array(backend: NumpyBackend) -> None:
    """The probe of a sample walks through the channels of the array, not through windows."""
    case = convolution("conv1d", (2, 8, 40), (128, 1, 33), groups=8)
    x = lay_out(np.random.default_rng(0), case["input"].transpose(0, 2, 1), "contiguous")
    test_convolution.check(backend, case.with_arrays(input=x.transpose(0, 2, 1)))


@every_unfolded
@every_bank
def test_promises_of_equal_bits(backend: NumpyBackend, bank: str) -> None:
    test_promises.check_promises(backend, bank_case(bank))


# Plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", choice.UNFOLDED)
def test_unfolded_kernels_run_where_they_can(name: str, target: str) -> None:
    processor = Processor(target, 132)
    geometry = conv((8, 1, 500), (64, 1, 128), stride=16, padding=20)
    for mode in MODES:
        own = name.removeprefix(unfolded.PREFIX)
        plan = checked(lambda mode=mode: plan_of(geometry, *mode, processor, name), processor, own)
        able = target == "sm_90a" or (target != "sm_75" and "portable" in name)
        assert isinstance(plan, UnfoldedPlan if able else DirectPlan)
        if able:
            assert len(plan.ends) == 2
            launches = [launch for one in (plan.plan, *plan.ends) for launch in one.launches]
            assert list(plan.launches) == launches
            assert plan.workspace == max(one.workspace for one in (plan.plan, *plan.ends))


FILTERS = {
    "spectrogram": conv((1, 1, 256_000), (1026, 1, 1024), stride=256),
    "patches": conv((8, 1, 224, 224), (768, 1, 16, 16), stride=16),
    "Gabor": conv((16, 1, 256, 256), (40, 1, 31, 31), padding=15),
}


@pytest.mark.parametrize("mode", MODES, ids=["float32", "tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FILTERS)
def test_filter_banks_run_on_tensor_cores(name: str, mode: test_convolution.Mode) -> None:
    geometry = FILTERS[name]
    plan = plan_of(geometry, *mode, HOPPER)
    assert isinstance(plan, UnfoldedPlan)
    weights = geometry.rows * math.prod(-(-axis.kernel // 16) * 16 for axis in geometry.axes)
    assert plan.workspace <= 8 * weights + 2**22
    # The same kernel in the ordinary form has a name of its own.
    assert not isinstance(plan_of(geometry, *mode, HOPPER, "hopper"), UnfoldedPlan)


@given(
    case=st.builds(
        lambda rows, taps, stride, size, padding: conv(
            (1, 1, size + taps), (rows, 1, taps), stride=stride, padding=padding
        ),
        *(st.integers(1, most) for most in (300, 300, 99, 3000, 9)),
    ),
    mode=any_mode,
    batch=st.integers(2, 300),
)
def test_the_batch_does_not_choose(
    case: ConvGeometry, mode: test_convolution.Mode, batch: int
) -> None:
    one, many = (plan_of(replace(case, batch=n), *mode, HOPPER) for n in (1, batch))
    assert subjects.order_of(one) == subjects.order_of(many)


def test_an_explanation_names_the_form() -> None:
    shapes = (1, 1, 256_000), (1026, 1, 1024)
    found = cupyconv.explain(cupyconv.conv1d, *shapes, stride=256, padding=512, target="sm_90a")
    assert found.kernel == "unfolded-hopper"
    (plan,) = found.plans
    assert plan.startswith("taps as channels, tiles of ") and plan.count("; an end: ") == 2
    functions = [launch.instance.function for launch in found.launches]
    assert functions[:2] == ["pack_weights", "matrix_conv"]
    assert functions[2:].count("direct_conv") == 2
