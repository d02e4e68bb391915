"""Complex convolutions that run as real ones of their parts: which do, their results and copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cupyconv
from backends import NumpyBackend, forced_backends
from bounds import assert_same_bits
from cupyconv import _chunks, _complex
from cupyconv._geometry import ConvGeometry
from cupyconv._kernels import choice, packed_weights
from cupyconv._kernels.launches import TARGETS, Processor
from cupyconv._launch import KernelPath
from planning import HOPPER, Recorder, conv, conv_transpose, dense_geometries, forget, recorded
from reference import Array
from running import Recorder as EmulatedRecorder
from strategies import Convolution, convolution, convolutions, lay_out, poison
from test_convolution import check
from test_promises import check_promises

COMPLEX64 = np.dtype(np.complex64)
# Several row tiles, groups, and a transposed convolution with phases.
CASES = [
    convolution("conv2d", (2, 9, 7, 13), (70, 9, 3, 3), COMPLEX64, bias=True, padding=1),
    convolution("conv2d", (2, 12, 5, 11), (8, 6, 3, 2), COMPLEX64, bias=True, groups=2),
    convolution("conv_transpose2d", (2, 9, 4, 7), (9, 10, 3, 4), COMPLEX64, stride=(2, 3)),
]
# The channels of all parts lie together.
ONE_PIXEL = convolution("conv2d", (2, 48, 1, 1), (7, 48, 1, 1), COMPLEX64, bias=True)
every_engine = pytest.mark.parametrize(
    "backend",
    [
        *forced_backends("portable"),
        *forced_backends("hopper", wgmma=True),
        *forced_backends("im2col", wgmma=True),
    ],
)
# The result is complex64, and one of the arrays may be real.
dtype_pairs = st.sampled_from(
    [(COMPLEX64, COMPLEX64)] * 4
    + [(np.dtype(real), COMPLEX64) for real in ("float32", "int16", "float16")]
    + [(COMPLEX64, np.dtype("float32"))]
)


@contextmanager
def chunks_of_a_sample() -> Iterator[None]:
    """The planar copy of an input has one sample at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_chunks, "_CHUNK_BYTES", 1)
        forget(_complex)
        yield
    forget(_complex)


def refusal(geometry: ConvGeometry, processor: Processor = HOPPER) -> str | None:
    return choice.refuse_parts(geometry, COMPLEX64, processor)


# Results --------------------------------------------------------------------------------------


@every_engine
@example(case=ONE_PIXEL)
@given(case=convolutions(functions=["conv", "conv_transpose"], dtypes=dtype_pairs))
def test_definition(backend: NumpyBackend, case: Convolution) -> None:
    """Any arrays, whatever the chunks of samples, and through any view as `out`."""
    check(backend, case)
    result = backend.compute(case)
    out = backend.asarray(
        lay_out(np.random.default_rng(0), poison(np.empty_like(result)), "sliced")
    )
    with chunks_of_a_sample():
        backend.call(case.function, **case.map(backend.asarray).arrays, **case.options, out=out)
    assert_same_bits(backend.to_numpy(out), result)


@every_engine
@pytest.mark.parametrize("case", CASES[1:3], ids=str)
def test_promises(backend: NumpyBackend, case: Convolution) -> None:
    check_promises(backend, case)


def special(case: Convolution) -> Convolution:
    """Infinities, NaN and the largest number in parts, each in a sample and a row of its own.

    The other numbers are small enough for sums with the largest number to be finite.
    """
    x, w = (
        np.concatenate([case[name] / np.float32(16)] * n)
        for name, n in (("input", 2), ("weight", 1))
    )
    rows = w.swapaxes(0, 1) if case.transposed else w
    inside = tuple(n // 2 for n in x.shape[2:])
    largest = float(np.finfo(np.float32).max)
    for i, value in enumerate(
        (complex(np.inf, 1), complex(0, np.nan), largest, complex(1, -np.inf))
    ):
        x[(i, i, *inside)] = value
        rows[(i, i, *(0 for _ in inside))] = value
        rows[(i, i, *(-1 for _ in inside))] = value
    return case.with_arrays(input=x, weight=w)


@pytest.mark.parametrize(
    "backend",
    [
        *forced_backends("direct"),
        *forced_backends("portable"),
        *forced_backends("hopper", wgmma=True),
    ],
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_special_values(backend: NumpyBackend, case: Convolution) -> None:
    """They reach the numbers that have them in their sums, as by multiply-adds of the parts."""
    check(backend, special(case))


@pytest.mark.emulator
def test_the_planner_chooses_the_parts() -> None:
    """On the emulator's small GPU a small call has work for Tensor Cores."""
    case = convolution("conv2d", (1, 32, 16, 16), (32, 32, 3, 3), COMPLEX64, bias=True)
    backend = EmulatedRecorder()
    check(backend, case)
    assert [launch.instance.function for launch in backend.launches] == [
        "pack_weights",
        "matrix_conv",
    ]


# Which calls ----------------------------------------------------------------------------------

DENSE = conv((8, 64, 256, 256), (64, 64, 3, 3), padding=1)
TAKEN = {
    "dense": DENSE,
    "one sample": replace(DENSE, batch=1),
    "transposed": conv_transpose((1, 64, 64, 64), (64, 32, 4, 4), stride=2),
    "one axis": conv((1, 256, 2000), (256, 256, 9)),
    "three axes": conv((1, 32, 24, 24, 24), (32, 32, 3, 3, 3)),
    "groups": conv((1, 128, 96, 96), (128, 64, 3, 3), groups=2),
    "one tap": conv((1, 512, 128, 128), (512, 512, 1, 1)),
}
LEFT = {
    "depthwise": conv((8, 64, 256, 256), (64, 1, 3, 3), groups=64),
    "one channel": conv((8, 1, 512, 512), (4, 1, 3, 3)),
    "small": conv((64, 16, 16, 16), (16, 16, 3, 3)),
    "four axes": conv((1, 64, 9, 9, 9, 9), (64, 64, 3, 3, 3, 3)),
    "no channels": conv((1, 0, 56, 56), (64, 0, 3, 3)),
    "bytes": conv((8, 8, 512, 512), (8, 8, 1, 1)),
    "64-bit coordinates": conv((1, 64, 2**31), (64, 64, 3)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_which_calls_run_as_real_ones(name: str, target: str) -> None:
    taken = name in TAKEN and target in ("sm_80", "sm_90a", "sm_100")
    found = refusal(TAKEN[name] if name in TAKEN else LEFT[name], Processor(target, 132))
    assert (found is None) == taken, found


@pytest.mark.parametrize("dtype", ["complex128", "float32", "int64"])
def test_other_dtypes_do_not(dtype: str) -> None:
    assert choice.refuse_parts(DENSE, np.dtype(dtype), HOPPER)


@pytest.mark.parametrize("kernel", choice.KERNELS)
def test_a_forced_kernel_decides(kernel: str) -> None:
    with choice.forced(kernel):
        assert (refusal(DENSE) is None) == (kernel in ("hopper", "im2col", "portable"))


@given(geometry=dense_geometries(), batch=st.integers(1, 2**20))
def test_the_batch_does_not_choose(geometry: ConvGeometry, batch: int) -> None:
    assert refusal(replace(geometry, batch=batch)) == refusal(geometry)


@pytest.mark.parametrize("channels", [32, 100, 300])
def test_what_lies_as_one_does_not_choose(channels: int) -> None:
    apart, one = (
        conv((2, channels, *sizes), (channels, channels, *(1 for _ in sizes)))
        for sizes in ((48, 64), (48 * 64,))
    )
    assert refusal(apart) == refusal(one)


def blank(shape: tuple[int, ...]) -> Array:
    """An array that takes no memory."""
    return np.broadcast_to(COMPLEX64.type(0), shape)


@pytest.mark.parametrize("groups", [1, 2])
def test_launches(groups: int) -> None:
    """A launch has both parts of the result, or one of them where there are groups."""
    arrays: dict[str, Any] = {
        "input": blank((3, 128, 64, 64)),
        "weight": blank((64, 128 // groups, 3, 3)),
    }
    with recorded() as found:
        cupyconv.conv2d(**arrays, groups=groups, precision="tf32")
    functions = [launch.instance.function for launch in found.launches]
    assert functions == ["pack_weights", "matrix_conv"] * groups
    assert all(dict(launch.instance.defines)["PARTS"] == "2" for launch in found.launches)
    assert found.splits == [arrays["weight"].shape] * 2 + [arrays["input"].shape]


@pytest.mark.parametrize("groups", [1, 2])
def test_all_input_channels_decide_on_the_scale(groups: int) -> None:
    """Those of all groups, each once, although both parts of the result read them."""
    geometry = conv((3, 128, 64, 64), (64, 128 // groups, 3, 3), groups=groups)
    templates: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        make = packed_weights.Template

        def noted(source: str, members: Any) -> Any:
            templates.append(members)
            return make(source, members)

        patch.setattr(packed_weights, "Template", noted)
        path, out = KernelPath(Recorder(HOPPER)), blank(geometry.out_shape)
        path.prepare(geometry, blank((3, 128, 64, 64)), out, None, out, "float32")
    (members,) = templates
    assert members["input_channels"] == 2 * 128
    assert members["input_channel"] == 64 * 64 and members["input_batch"] == 2 * 128 * 64 * 64


# Copies and memory ----------------------------------------------------------------------------


@given(batch=st.integers(1, 2**20), sample_bytes=st.integers(1, 2**40))
def test_chunks(batch: int, sample_bytes: int) -> None:
    """All samples in order, in at most 64 chunks unless samples are large."""
    found = _chunks.chunks(batch, min(sample_bytes, 2**26) if batch > 5000 else sample_bytes)
    ends = [chunk.stop for chunk in found]
    assert [chunk.start for chunk in found] == [0, *ends[:-1]] and ends[-1] == batch
    sizes = {chunk.stop - chunk.start for chunk in found}
    assert max(sizes) - min(sizes) <= 1
    assert len(found) <= 64
    if max(sizes) > 1:
        assert max(sizes) * sample_bytes <= max(2**26, -(-batch // 64) * sample_bytes)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("batch", [1, 7, 200])
def test_workspace(batch: int, groups: int) -> None:
    """A planar copy of at most 64 MB or a sample, real weights and packed ones, and a real bias."""
    x, w = (batch, 64, 512, 128), (64, 64 // groups, 3, 3)
    found = cupyconv.explain(
        cupyconv.conv2d, x, w, (64,), groups=groups, dtype="complex64", target="H100"
    )
    assert found.kernel == "hopper"
    sample = 8 * 64 * 512 * 128
    copy = min(batch, max(2**26 // sample, -(-batch // 64))) * sample
    real_weights, packed = 16 * np.prod(w), 32 * np.prod((64, -(-64 // groups // 16) * 16, 3, 3))
    assert copy < found.workspace <= copy + real_weights + 2 * packed + 2**20


# Explanations ---------------------------------------------------------------------------------


def test_explanations() -> None:
    def explained(target: str, **options: Any) -> cupyconv.Explanation:
        shapes = (8, 64, 256, 256), (64, 64, 3, 3)
        return cupyconv.explain(
            cupyconv.conv2d, *shapes, padding=1, target=target, **{"dtype": "complex64", **options}
        )

    hopper, ampere = explained("H100"), explained("A100")
    assert (hopper.kernel, ampere.kernel) == ("hopper", "portable")
    assert "parts" not in hopper.refused
    # The copies of the input move its bytes twice.
    copied = 2 * 8 * 8 * 64 * 256**2 / (0.88 * 3.36e12)
    real = cupyconv.explain(
        cupyconv.conv2d, (8, 128, 256, 256), (128, 128, 3, 3), padding=1, target="H100"
    )
    assert hopper.expected_ms == pytest.approx(real.expected_ms + 1e3 * copied, rel=0.1)
    assert hopper.expected_ms < 1.6
    direct = explained("RTX 3090")
    assert direct.kernel == "direct" and "not run on Tensor Cores" in direct.refused["parts"]
    assert explained("H100", dtype="complex128").kernel == "direct"
    assert hopper.limit_ms == explained("H100", precision="tf32").limit_ms
