"""``method="fft"`` and ``method="auto"``: the bound in the norm, tiles, memory, errors, choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import signal

import cupyconv
from backends import BACKENDS, NumpyBackend, every_backend
from bounds import UNIT32, UNIT64, accumulator, assert_same_bits
from cupyconv import _fft
from cupyconv._kernels import choice
from gradients import KINDS, Gradient, gradient, gradients
from norm_bounds import AnyCase, C, check_by_fft, products_of_norms
from planning import HOPPER, Steering, conv, conv_geometries
from reference import Array, Shape
from running import Recorder
from strategies import (
    BORDERS,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    Convolution,
    convolution,
    convolutions,
    lay_out,
    pairs_of,
    poison,
    values,
)

dtypes = pairs_of(DTYPES).filter(lambda pair: np.result_type(*pair).kind not in "iu")
cases = st.one_of(
    convolutions(dtypes=dtypes),
    convolutions(dtypes=dtypes, functions=["conv_transpose"]),
    gradients(dtypes=dtypes),
).filter(lambda case: len(case.axes) <= 3)


def by_fft(case: Any, method: str = "fft") -> Any:
    return type(case)(case.function, case.arrays, {**case.options, "method": method})


def check(case: AnyCase, result: Array) -> None:
    check_by_fft(case, result, case.defined.value)


# The bound -----------------------------------------------------------------------------------


@every_backend
@given(case=cases)
def test_definition(backend: NumpyBackend, case: AnyCase) -> None:
    """Any geometry, dtypes, layouts and magnitudes; the same call has the same bits."""
    result = backend.compute(by_fft(case))
    check(case, result)
    assert_same_bits(backend.compute(by_fft(case)), result)


@every_backend
@given(
    case=cases,
    layout=st.sampled_from([layout for layout in LAYOUTS if layout != "broadcast"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_out(backend: NumpyBackend, case: AnyCase, layout: str, seed: int) -> None:
    """A view of any layout is written to, and nothing between its elements."""
    shape = case.defined.value.shape
    assume(0 not in shape)
    blank = lay_out(np.random.default_rng(seed), poison(np.empty(shape, case.dtype)), layout)
    out = backend.asarray(blank)
    one = by_fft(case)
    arrays = one.map(backend.asarray).arrays
    assert backend.call(one.function, **arrays, **one.options, out=out) is out
    check(case, backend.to_numpy(out).copy())
    out[...] = backend.asarray(poison(np.empty(shape, case.dtype)))
    base = backend.to_numpy(out.base if out.base is not None else out)
    if base.dtype == case.dtype:
        assert np.isnan(base.astype(np.complex128)).all()


@st.composite
def strided(draw: st.DrawFn) -> AnyCase:
    """Strides and dilations with a common factor or without one; few taps or many on each axis."""
    rank = draw(st.integers(1, 2))
    axes = [[draw(st.integers(1, most)) for most in (7, 6, 6, 9)] for _ in range(rank)]
    kernel, stride, dilation, _ = zip(*axes, strict=True)
    before = tuple(draw(st.integers(0, 5)) for _ in range(rank))
    sizes = tuple(
        max((n - 1) * s + (k - 1) * d + 1 - pad + draw(st.integers(0, s - 1)), pad + 1)
        for k, s, d, n, pad in zip(*zip(*axes, strict=True), before, strict=True)
    )
    options: dict[str, Any] = {
        "stride": stride,
        "dilation": dilation,
        "padding": tuple((pad, 0) for pad in before),
        "groups": 2,
        **draw(BORDERS),
    }
    shapes = (2, 4, *sizes), (2, 2, *kernel)
    dtype, seed = draw(st.sampled_from(FLOATS + COMPLEX)), draw(st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        return gradient("weight", *shapes, dtype, seed=seed, **options)
    return convolution("conv", *shapes, dtype, bias=True, seed=seed, **options)


def of_line(taps: int, stride: int, dilation: int, **options: Any) -> dict[str, AnyCase]:
    shapes = (2, 3, 60), (4, 3, taps)
    options |= {"stride": stride, "dilation": dilation, "padding": 3}
    return {
        "conv": convolution("conv1d", *shapes, **options),
        "gradient": gradient("weight", *shapes, **options),
    }


@every_backend
@given(case=strided())
@example(case=of_line(7, 2, 1)["conv"])
@example(case=of_line(7, 3, 2)["conv"])  # coprime
@example(case=of_line(7, 4, 6)["conv"])  # a common factor, and a longer period
@example(case=of_line(7, 3, 3)["conv"])  # one component
@example(case=of_line(3, 5, 1)["conv"])  # fewer taps than components
@example(case=of_line(1, 4, 1)["conv"])
@example(case=of_line(7, 3, 2, padding_mode="reflect")["conv"])
@example(case=of_line(7, 2, 3)["gradient"])
@example(case=of_line(7, 6, 4, padding_mode="wrap")["gradient"])
def test_polyphase(backend: NumpyBackend, case: AnyCase) -> None:
    """Components that taps read, and no other ones, are input channels of transforms."""
    check(case, backend.compute(by_fft(case)))


# Two groups, so that a bound per group can be told from a bound of the whole sample.
UNEQUAL = {
    "conv": convolution("conv2d", (3, 4, 9, 8), (6, 2, 3, 2), bias=True, padding=1, groups=2),
    "conv_transpose": convolution("conv_transpose2d", (3, 4, 9, 8), (4, 3, 3, 2), groups=2),
    "grad.conv_input": gradient("input", (3, 4, 9, 8), (6, 2, 3, 2), padding=1, groups=2),
    "grad.conv_weight": gradient("weight", (3, 4, 9, 8), (6, 2, 3, 2), padding=1, groups=2),
}


@every_backend
@pytest.mark.parametrize("kind", UNEQUAL)
@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_inf_and_nan_spread_over_their_group_or_channel(
    backend: NumpyBackend, kind: str, odd: float
) -> None:
    """All results of the group or channel are NaN or infinite, and no other one."""
    case = UNEQUAL[kind]
    for name in case.arrays:
        if name == "bias" or case.arrays[name] is None:
            continue
        array = case[name].copy()
        array[-1, -1, 0, 0] = odd
        one = case.with_arrays(**{name: array})
        result = backend.compute(by_fft(one))
        check(one, result)
        reached = np.broadcast_to(~np.isfinite(products_of_norms(one)), result.shape)
        assert 0 < np.count_nonzero(reached) < reached.size / 2
        assert not np.isfinite(result[reached]).any()


@every_backend
@pytest.mark.parametrize("kind", UNEQUAL)
def test_norms_are_those_of_a_sample_and_a_channel(backend: NumpyBackend, kind: str) -> None:
    """Small samples and channels beside large ones keep a bound of their own."""
    case = UNEQUAL[kind]
    arrays = {}
    for name, a in case.arrays.items():
        if a is not None and name != "bias":
            first = np.exp2(-12.0 * np.arange(len(a))).reshape(-1, 1, 1, 1)
            arrays[name] = (a * first).astype(a.dtype)
    if case.arrays.get("bias") is not None:
        arrays["bias"] = case["bias"] * 0
    case = case.with_arrays(**arrays)
    if kind == "conv_transpose":  # its first axis has input channels, whose norms are joined
        case = case.with_arrays(weight=UNEQUAL[kind]["weight"])
    check(case, backend.compute(by_fft(case)))


@pytest.mark.parametrize("dtype", [*FLOATS[:2], *COMPLEX], ids=str)
@pytest.mark.parametrize(
    "shapes", [((1000,), (301,)), ((40, 50), (21, 17)), ((9, 8, 7), (5, 6, 3))]
)
def test_scipy(dtype: np.dtype[Any], shapes: tuple[Shape, Shape]) -> None:
    """SciPy's own convolution by FFT is a transposed one here."""
    rng = np.random.default_rng(0)
    x, w = (values(rng, shape, dtype) for shape in shapes)
    expected = signal.fftconvolve(x.astype(np.complex128), w.astype(np.complex128))
    found = cupyconv.conv_transpose(x[None, None], w[None, None], method="fft")[0, 0]
    unit = UNIT32 if accumulator(dtype) == np.float32 else UNIT64
    error = 2 * C * unit * math.log2(expected.size) * np.linalg.norm(x) * np.linalg.norm(w)
    assert (np.abs(found - expected) <= error).all()


# Tiles and memory ----------------------------------------------------------------------------


@given(least=st.one_of(st.integers(1, 5000), st.integers(1, 2**26)))
def test_fast_lengths(least: int) -> None:
    """Even numbers of no factor above 7, and none that is smaller."""
    found = _fft.fast_length(least)
    suitable = [n for n in range(max(least, 2), found + 1) if 210**26 % n == 0 and n % 2 == 0]
    assert suitable == [found]


DIVIDED: dict[str, AnyCase] = {
    "samples and rows": convolution(
        "conv2d", (5, 4, 9, 8), (6, 2, 3, 2), bias=True, padding=1, groups=2
    ),
    "a long line": convolution(
        "conv1d", (2, 3, 400), (4, 3, 7), bias=True, stride=2, padding=(9,), dilation=2
    ),
    "polyphase components": convolution(
        "conv2d", (3, 4, 41, 53), (6, 2, 3, 5), stride=(3, 2), dilation=(2, 2), groups=2
    ),
    "both axes": convolution("conv2d", (2, 2, 40, 50), (3, 2, 3, 5), padding=2),
    "borders": convolution(
        "conv2d", (2, 2, 40, 50), (3, 2, 5, 3), padding=(9, 70), padding_mode="reflect"
    ),
    "edges": convolution(
        "conv2d", (2, 2, 40, 50), (3, 2, 5, 3), padding=(9, 70), padding_mode="edge"
    ),
    "a transposed line": convolution(
        "conv_transpose1d", (2, 3, 100), (3, 4, 7), bias=True, stride=3, padding=2
    ),
    "both transposed axes": convolution(
        "conv_transpose2d", (2, 4, 17, 19), (4, 3, 3, 5), "complex64", stride=2, groups=2
    ),
    "a folded result": convolution(
        "conv_transpose2d", (3, 2, 17, 19), (2, 3, 3, 5), padding=2, padding_mode="wrap"
    ),
    "gradient of an input": gradient("input", (4, 2, 20, 25), (3, 2, 3, 5), padding=1),
    "gradient of a weight": gradient("weight", (5, 2, 20, 25), (3, 2, 3, 5), padding=1),
    "gradient of a dilated weight": gradient("weight", (5, 2, 20, 25), (3, 2, 3, 5), dilation=2),
}


@every_backend
@pytest.mark.parametrize("kind", DIVIDED)
def test_tiles(
    backend: NumpyBackend, kind: str, steer: Steering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples, output channels and blocks of outputs that are transformed one after another."""
    case = DIVIDED[kind]
    whole = backend.compute(by_fft(case))
    check(case, whole)
    asked, parts = [], _fft._parts

    def noted(count: int, most: int) -> list[slice]:
        asked.append((count, most))
        return parts(count, most)

    # Twice the arrays is more than small ones need, so that a negative rest leaves nothing.
    steer.replace(_fft, _SPARE_BYTES=-(2**30), _parts=noted)
    result = backend.compute(by_fft(case))
    assert any(most < count for count, most in asked)
    if kind in ("a long line", "a transposed line", "both axes", "borders", "edges"):
        assert any(1 < most < count for count, most in asked), "blocks of outputs"
    check(case, result)


@given(
    geometry=conv_geometries((1, 2, 3)),
    dtype=st.sampled_from(FLOATS + COMPLEX),
    arrays=st.integers(0, 2**34),
)
def test_memory(geometry: Any, dtype: np.dtype[Any], arrays: int) -> None:
    """Twice the arrays and 256 MB, unless nothing smaller is left."""
    assume(_fft.suits(geometry, dtype))
    tile, axes = _fft.tile_of(geometry, dtype, arrays), _fft.axes_of(geometry)
    work = _fft.accumulator(dtype)
    needed = tile.workspace(geometry, axes, work)
    assert needed <= 2 * arrays + 2**28 or tile.halved(axes) is None
    assert math.prod(tile.lengths(axes)) < 2**31 or tile.halved(axes) is None
    assert 1 <= tile.samples <= geometry.batch and 1 <= tile.rows <= geometry.rows
    whole = _fft.Tile(geometry.batch, geometry.rows, tuple(axis.outputs for axis in axes))
    fits = whole.workspace(geometry, axes, work) <= 2 * arrays + 2**28
    if fits and math.prod(whole.lengths(axes)) < 2**31:
        assert tile == whole


@given(
    geometry=conv_geometries((1, 2, 3), (False,)),
    dtype=st.sampled_from(FLOATS + COMPLEX),
    arrays=st.integers(0, 2**34),
)
@example(conv((1000, 8, 9000), (8, 8, 3), dilation=2), np.dtype(np.float32), 0)
def test_memory_of_weight_gradients(geometry: Any, dtype: np.dtype[Any], arrays: int) -> None:
    """The same, for spectra of as many samples as fit."""
    assume(_fft.suits(geometry, dtype))
    axes, work = _fft._gradient_axes(geometry), _fft.accumulator(dtype)
    samples = _fft._samples_at_a_time(geometry, axes, work, arrays)
    needed = bytes_of_gradient(geometry, axes, work, samples)
    assert needed <= 2 * arrays + 2**28 or samples == 1
    assert 1 <= samples <= geometry.batch


def bytes_of_gradient(geometry: Any, axes: Any, dtype: np.dtype[Any], samples: int) -> int:
    """Bytes of the spectra of both operands and of the result, and of as much for transforms."""
    inputs = samples * (geometry.rows + geometry.channels)
    inputs *= math.prod(axis.components for axis in axes)
    one = _fft._spectrum_bytes([axis.length(axis.outputs) for axis in axes], dtype)
    return 2 * one * geometry.groups * (inputs + geometry.rows * geometry.channels)


@pytest.mark.emulator
@pytest.mark.parametrize("kind", DIVIDED)
def test_workspaces_are_what_tiles_say(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spectra that a call holds at once, beside which cuFFT has an area of its own."""
    case = DIVIDED[kind]
    backend, planned = Recorder(), []
    tile_of, most_samples = _fft.tile_of, _fft._samples_at_a_time

    def noted(geometry: Any, dtype: np.dtype[Any], arrays: int) -> Any:
        tile = tile_of(geometry, dtype, arrays)
        planned.append(tile.workspace(geometry, _fft.axes_of(geometry), _fft.accumulator(dtype)))
        return tile

    def noted_samples(geometry: Any, axes: Any, dtype: np.dtype[Any], arrays: int) -> int:
        samples = most_samples(geometry, axes, dtype, arrays)
        planned.append(bytes_of_gradient(geometry, axes, dtype, samples))
        return samples

    monkeypatch.setattr(_fft, "tile_of", noted)
    monkeypatch.setattr(_fft, "_samples_at_a_time", noted_samples)
    backend.compute(by_fft(case))
    wide = 0
    if isinstance(case, Convolution) and case.transposed and case.padding_mode:
        lengths = (axis.bordered.large for axis in case.axes)
        wide = 4 * math.prod(case.defined.value.shape[:2]) * math.prod(lengths)
    assert 0 < max(backend.held) <= max(planned) + wide


# Errors --------------------------------------------------------------------------------------

FUNCTIONS: dict[str, AnyCase] = {
    "conv1d": convolution("conv1d", (2, 2, 9), (4, 2, 3)),
    "conv2d": UNEQUAL["conv"],
    "conv3d": convolution("conv3d", (2, 2, 5, 5, 5), (4, 2, 3, 3, 3)),
    "conv": convolution("conv", (2, 2, 9), (4, 2, 3)),
    "conv_transpose1d": convolution("conv_transpose1d", (2, 2, 9), (2, 4, 3)),
    "conv_transpose2d": UNEQUAL["conv_transpose"],
    "conv_transpose3d": convolution("conv_transpose3d", (2, 2, 5, 5, 5), (2, 4, 3, 3, 3)),
    "conv_transpose": convolution("conv_transpose", (2, 2, 9), (2, 4, 3)),
    "depthwise_conv2d": convolution("depthwise_conv2d", (2, 3, 9, 8), (6, 1, 3, 3)),
    **{f"grad.conv_{kind}": gradient(kind, (2, 2, 9), (4, 2, 3)) for kind in KINDS},
    **{
        f"grad.conv{rank}d_{kind}": Gradient(f"grad.conv{rank}d_{kind}", one.arrays, one.options)
        for rank in (1, 2, 3)
        for kind in KINDS
        for one in [gradient(kind, (2, 2, *(5,) * rank), (4, 2, *(3,) * rank))]
    },
}


def refused(
    backend: NumpyBackend, case: AnyCase, error: type[Exception], text: str, method: Any
) -> None:
    """Assert that a call raises, names its method, and leaves `out` as it is."""
    shape = case.defined.value.shape
    out = backend.poisoned(shape, case.dtype)
    before = backend.to_numpy(out).copy()
    one = by_fft(case, method)
    arrays = one.map(backend.asarray).arrays
    name = case.function.removeprefix("grad.")
    with pytest.raises(error, match=rf"^{name}: method.*{text}"):
        backend.call(one.function, **arrays, **one.options, out=out)
    assert_same_bits(backend.to_numpy(out), before)


@every_backend
@pytest.mark.parametrize("function", FUNCTIONS)
def test_wrong_methods(backend: NumpyBackend, function: str) -> None:
    """Of all functions: integers, and other words and types."""
    case = FUNCTIONS[function]
    refused(backend, case, ValueError, "'winograd'", "winograd")
    for value in (None, 1, ["fft"]):
        refused(backend, case, TypeError, "got method=", value)
    whole = case.map(lambda a: (8 * a).astype(np.int32))
    refused(backend, whole, TypeError, "int32", "fft")
    check(case, backend.compute(by_fft(case)))


@every_backend
@pytest.mark.parametrize("kind", ["conv", "conv_transpose", *KINDS])
def test_more_than_three_axes(backend: NumpyBackend, kind: str) -> None:
    space, kernel = (3, 4, 3, 4), (2, 2, 1, 2)
    if kind in KINDS:
        case: AnyCase = gradient(kind, (1, 2, *space), (2, 2, *kernel))
    else:
        case = convolution(kind, (1, 2, *space), (2, 2, *kernel))
    refused(backend, case, ValueError, "at most 3 spatial axes, got 4", "fft")
    assert_same_bits(backend.compute(by_fft(case, "auto")), backend.compute(case))


# The choice ----------------------------------------------------------------------------------


@pytest.fixture
def fft_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it may be."""
    monkeypatch.setattr(_fft, "LEAST_GAIN", 0)
    cupyconv._calls.kept.clear()
    monkeypatch.setattr(cupyconv._calls, "kept", {})


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.usefixtures("fft_is_taken")
def test_auto_is_exact_for_integers(backend: NumpyBackend, dtype: np.dtype[Any]) -> None:
    case = convolution("conv1d", (2, 3, 90), (4, 3, 40), dtype)
    assert_same_bits(backend.compute(by_fft(case, "auto")), case.defined.value)


@given(geometry=conv_geometries(), dtype=st.sampled_from(FLOATS + COMPLEX), gradient=st.booleans())
def test_auto_does_not_look_at_the_batch(
    geometry: Any, dtype: np.dtype[Any], gradient: bool
) -> None:
    from dataclasses import replace

    assume(_fft.suits(geometry, dtype) and not (gradient and geometry.transposed))
    assume(0 not in geometry.out_shape)
    gains = {
        choice.gain_by_fft(replace(geometry, batch=batch), dtype, "float32", gradient, HOPPER)
        for batch in (1, 2, 7, 1000)
    }
    assert len(gains) == 1 and min(gains) > 0


# A call that each of the methods is faster for, whatever the machine.
LONG, SHORT = ((2, 1, 2**17), (1, 1, 2**15)), ((2, 16, 300), (16, 16, 3))


def test_auto_takes_either() -> None:
    for shapes, taken in ((LONG, "fft"), (SHORT, "direct")):
        found = cupyconv.explain(cupyconv.conv1d, *shapes, method="auto", target="H100")
        other = {"fft": "direct", "direct": "fft"}[taken]
        assert ("fft" in found.kernel) == (taken == "fft")
        assert "times as long" in found.refused[f"method='{other}'"]
        assert f"method='{taken}'" not in found.refused
    found = cupyconv.explain(cupyconv.conv1d, *LONG, target="H100")
    assert "it should take 0" in found.refused["method='fft'"]
    found = cupyconv.explain(cupyconv.conv1d, *SHORT, method="fft", target="H100")
    assert "fft" in found.kernel
    assert "times as long" in found.refused["method='direct'"]
    found = cupyconv.explain(cupyconv.conv1d, *SHORT, dtype="int32", target="H100")
    assert not any("method" in name for name in found.refused)


@pytest.mark.parametrize("kind", KINDS)
def test_explain_of_gradients(kind: str) -> None:
    function = getattr(cupyconv.grad, f"conv1d_{kind}")
    x, w = LONG
    y = (2, 1, x[2] - w[2] + 1)
    first = (x, w, y)
    found = cupyconv.explain(function, *first, method="auto", target="H100")
    assert "fft" in found.kernel
    assert found.expected_ms > 0


@pytest.mark.parametrize("backend", BACKENDS[:1])
def test_auto_on_numpy_arrays(backend: NumpyBackend) -> None:
    """Each of the two calls runs by its method: the bits are those of the method."""
    for shapes, taken, other in (
        (((1, 1, 2**14), (1, 1, 2**12)), "fft", "direct"),
        (SHORT, "direct", "fft"),
    ):
        case = convolution("conv1d", *shapes)
        results = {name: backend.compute(by_fft(case, name)) for name in ("auto", taken, other)}
        assert_same_bits(results["auto"], results[taken])
        assert not np.array_equal(results["auto"], results[other])


# On a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("kind", UNEQUAL)
def test_other_streams(kind: str) -> None:
    """Calls in turn on streams, whose plans have memory of their own, have the same bits."""
    import cupy

    case = by_fft(UNEQUAL[kind])
    arrays = case.map(cupy.asarray).arrays
    cupy.cuda.get_current_stream().synchronize()
    results = []
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    for _ in range(5):
        for stream in streams:
            with stream:
                results.append(NumpyBackend().call(case.function, **arrays, **case.options))
    for stream in streams:
        stream.synchronize()
    check(UNEQUAL[kind], cupy.asnumpy(results[0]))
    for result in results[1:]:
        assert_same_bits(cupy.asnumpy(result), cupy.asnumpy(results[0]))


@pytest.mark.gpu
def test_no_graph() -> None:
    """The error says what to do, and the library works on after it."""
    import cupy

    case = by_fft(UNEQUAL["conv"])
    arrays = case.map(cupy.asarray).arrays
    expected = cupyconv.conv2d(**arrays, **case.options)
    out = cupy.empty_like(expected)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        cupyconv.conv2d(**arrays, **case.options, out=out)
        stream.begin_capture()
        try:
            with pytest.raises(RuntimeError, match=r"method='fft' cannot be captured.*'direct'"):
                cupyconv.conv2d(**arrays, **case.options, out=out)
        finally:
            stream.end_capture()
        cupyconv.conv2d(**arrays, **case.options, out=out)
        stream.synchronize()
    assert_same_bits(cupy.asnumpy(out), cupy.asnumpy(expected))
