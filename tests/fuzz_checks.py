"""What the fuzz asks of a call: its definition in float64, its promises of bits, and its memory.

All of it runs on NumPy arrays and on CuPy ones, there on the GPU: of thousands of calls a second,
copies to the host would be the slowest part. What looks wrong on the GPU is judged again by
`bounds` on the host.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

import bounds
import fuzz_cases
import reference
from backends import CupyBackend, EmulatorBackend, NumpyBackend
from bounds import assert_normalized, assert_same_bits
from cupyconv import _device
from cupyconv._kernels.launches import Launch
from emulator.device import EmulatedDevice
from fuzz_definitions import Result, largest, sums, weight_sums
from gradients import Gradient
from norm_bounds import check_by_fft
from reference import Array, Sums
from strategies import FUSED, Case, Convolution, floating, lay_out, poison


class Wrong(AssertionError):
    """A result, or what lies around it, is not what it must be."""


# A definition that takes longer is not worth it on each call.
_MOST_TAPS = 1500
_BY_FFT = 0.1  # share of convolutions and gradients that run by FFT, too


class Checks:
    """Counts of what is wrong, each with a function that says what it is.

    On a GPU they are looked at together at the end of an example, as each look is a wait.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[Result, Callable[[], None]]] = []

    def expect_none(self, count: Result, complain: Callable[[], None]) -> None:
        self.pending.append((count, complain))

    def settle(self) -> None:
        """Let each complain whose count is not zero."""
        pending, self.pending = self.pending, []
        counts = [count for count, _ in pending]
        if counts and not isinstance(counts[0], np.integer):
            counts = _cupy().stack(counts).get()
        for count, (_, complain) in zip(counts, pending, strict=True):
            if count:
                complain()

    def equal_bits(self, actual: Result, expected: Result, what: str) -> None:
        """Equal bit by bit; NaN is NaN, whatever its payload."""

        def complain() -> None:
            try:
                assert_same_bits(_host(actual), _host(expected))
            except AssertionError as error:
                raise Wrong(f"{what}: {str(error)[:300]}") from None

        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            complain()
        elif actual.size:
            self.expect_none(_different(actual, expected), complain)

    def unchanged(self, memory: Result, before: Result, what: str) -> None:
        def complain() -> None:
            raise Wrong(f"{what} was written to")

        self.expect_none((memory != before).sum(), complain)


def check_value(checks: Checks, case: Case, arrays: dict[str, Result], result: Result) -> None:
    """The result of a call on `arrays`, the case's arrays on the backend's device."""
    if isinstance(case, (Convolution, Gradient)):
        defined = _defined(case, arrays)
        if defined is not None:
            _check_sums(checks, case, *defined, result)
    elif case.function == "max_pool2d":
        expected = largest(arrays["input"], result.shape, **case.options)
        checks.equal_bits(result + 0, expected + 0, "pooling")
    else:
        host = _host(result)
        expected, error, dtype = _expected(case)
        assert_normalized(host, expected, error, dtype)


def _defined(case: Convolution | Gradient, arrays: dict[str, Result]) -> tuple[Sums, bool] | None:
    """The sums of a call, and whether the first one counts alone; None for very many taps."""
    axes, mode = case.axes, case.padding_mode
    if math.prod(axis.kernel for axis in axes) > _MOST_TAPS:
        return None
    batches = {
        name: a[None] if a is not None and name in BATCHED and a.ndim == len(axes) + 1 else a
        for name, a in arrays.items()
    }
    unbatched = any(batches[name] is not a for name, a in arrays.items())
    with np.errstate(all="ignore"):
        if isinstance(case, Convolution):
            x, w, b = (batches[name] for name in ("input", "weight", "bias"))
            return sums(x, w, b, axes, case.groups, case.transposed, mode), unbatched
        y, groups = batches["grad_output"], case.options["groups"]
        if case.kind == "input":
            return sums(y, batches["weight"], None, axes, groups, True, mode), unbatched
        return weight_sums(batches["input"], y, axes, groups, mode), False


BATCHED = ("input", "grad_output")


def _check_sums(
    checks: Checks, case: Convolution | Gradient, found: Sums, unbatched: bool, result: Result
) -> None:
    """A result beside sums, of which the first one counts where the call is unbatched."""
    value, scale = (a[0] if unbatched else a for a in found[:2])
    dtype = case.dtype
    if result.shape != value.shape or result.dtype != dtype:
        raise Wrong(f"{result.dtype}{result.shape} is no {dtype}{value.shape}")
    if dtype.kind in "iu":
        right = result == value.astype(dtype)
    else:
        expected = Sums(value, scale, found.terms)
        error = bounds.sum_error(expected, dtype, case.precision)
        with np.errstate(all="ignore"):
            right = _is_within(result, value, error, dtype)

    def complain() -> None:  # on the host, as CuPy may round twice to 16 bits
        host = Sums(*(_host(a) for a in (value, scale, found.terms)))
        bounds.assert_convolution(_host(result), host, dtype, case.precision)

    checks.expect_none((~right).sum(), complain)


def _is_within(result: Result, value: Result, error: Result, dtype: np.dtype[Any]) -> Result:
    if dtype.kind != "c":
        return bounds._within(result, value, error, dtype)
    real = np.dtype(dtype.type().real.dtype)
    parts = [bounds._within(getattr(result, p), getattr(value, p), error, real) for p in PARTS]
    known = np.isfinite(value) & np.isfinite(error)
    return np.where(known, parts[0] & parts[1], ~np.isfinite(result))


PARTS = ("real", "imag")


def _expected(case: Case) -> tuple[Array, Any, np.dtype[Any]]:
    """The value of a norm or of the fused operation, the error it may have, and its dtype."""
    shape = case["input"].shape
    options = dict(case.options)
    if case.function == FUSED:
        precision = options.pop("precision", None) or "float32"
        fused = getattr(reference, FUSED)(**case.arrays, **options)
        dtype = floating(np.result_type(case["input"], case["kernel"]))
        error = bounds.fused_error(fused, dtype, precision if dtype == np.float32 else "float32")
        shape = fused.pooled.shape
        return fused.group.value.reshape(shape), error.reshape(shape), dtype
    norm = getattr(reference, case.function)(**case.arrays, **options)
    value, error = norm.value, bounds.norm_error(norm)
    if case.function == "batch_norm":
        value, error = (reference.from_channel_rows(a, shape) for a in (value, error))
    return value.reshape(shape), error.reshape(shape), floating(case["input"].dtype)


# Bits and memory -----------------------------------------------------------------------------


def _different(a: Result, b: Result) -> Result:
    """How many numbers differ in their bits; NaN does not differ from NaN."""
    if a.dtype.kind == "c":
        return sum(_different(getattr(a, part), getattr(b, part)) for part in PARTS)
    if not isinstance(a, np.ndarray):
        bits = np.dtype(f"u{a.dtype.itemsize}")
        magnitude = bits.type(np.iinfo(bits).max >> (a.dtype.kind not in "iu"))
        # As in IEEE arithmetic, NaN is above infinity; an integer is never above the largest one.
        infinity = magnitude if a.dtype.kind in "iu" else np.array(np.inf, a.dtype).view(bits)[()]
        return _count_different()(a.view(bits), b.view(bits), magnitude, infinity)
    bits = np.dtype(f"u{a.dtype.itemsize}")
    different = a.view(bits) != b.view(bits)
    return (different if a.dtype.kind in "iu" else different & ((a == a) | (b == b))).sum()


@lru_cache(maxsize=1)
def _count_different() -> Any:
    return _cupy().ReductionKernel(
        "B a, B b, B magnitude, B infinity",
        "int64 count",
        "a != b && !((a & magnitude) > infinity && (b & magnitude) > infinity)",
        "a + b",
        "count = a",
        "0",
        "count_different",
    )


def memory_of(a: Result) -> Result:
    """The bytes from the first to the last one of a view."""
    if isinstance(a, np.ndarray):
        low, high = byte_bounds(a)
        return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
    reach = [(n - 1) * s for n, s in zip(a.shape, a.strides, strict=True)]
    before, behind = (sum(pick(0, r) for r in reach) for pick in (min, max))
    low = a.data + before
    return _cupy().ndarray((behind - before + a.itemsize,), np.uint8, low)


def _host(a: Result) -> Array:
    return a if isinstance(a, np.ndarray) else a.get()


def _cupy() -> Any:
    import cupy

    return cupy


class Guard:
    """An allocator of CuPy's whose memory is poisoned, and has poison around it that is looked at.

    All that a call asks for, its workspaces too, stays until the look, so that nothing is handed
    out twice meanwhile.
    """

    AROUND = 1024  # bytes, a multiple of what CuPy's pool aligns to
    LOOK = """
    extern "C" __global__ void look(const unsigned long long* places, unsigned* spoilt) {
        const unsigned* words = (const unsigned*)places[blockIdx.x];
        for (int i = threadIdx.x; i < AROUND / 4; i += blockDim.x)
            if (words[i] != ~0u) atomicAdd(spoilt, 1);
    }"""

    def __init__(self) -> None:
        cupy = _cupy()
        self.pool = cupy.cuda.MemoryPool()
        self.taken: list[tuple[Any, int]] = []
        code = self.LOOK.replace("AROUND", str(self.AROUND))
        self.look = cupy.RawKernel(code, "look")

    def malloc(self, size: int) -> Any:
        cupy = _cupy()
        if size == 0:  # an array without elements has no memory
            return self.pool.malloc(0)
        whole = -(-size // 4) * 4 + 2 * self.AROUND
        memory = self.pool.malloc(whole)
        stream = cupy.cuda.get_current_stream().ptr
        cupy.cuda.runtime.memsetAsync(memory.ptr, 0xFF, whole, stream)
        self.taken.append((memory, whole))
        return memory + self.AROUND

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with _cupy().cuda.using_allocator(self.malloc):
            yield

    def check(self) -> None:
        """Raise where something was written around any of the memory, and give it all back."""
        cupy = _cupy()
        taken, self.taken = self.taken, []
        ends = [place for m, n in taken for place in (m.ptr, m.ptr + n - self.AROUND)]
        if not ends:
            return
        spoilt = cupy.zeros(1, np.uint32)
        self.look((len(ends),), (128,), (cupy.asarray(ends, np.uint64), spoilt))
        if spoilt.item():
            raise Wrong(f"{spoilt.item()} words around arrays or workspaces were written to")


# One example ---------------------------------------------------------------------------------


class Checker:
    """Runs examples on a backend; counts calls, and launches by their kernel."""

    def __init__(self, name: str) -> None:
        backends = {"numpy": NumpyBackend, "emulator": EmulatorBackend, "cupy": CupyBackend}
        self.backends: list[NumpyBackend] = [backends[name]()]
        if name == "emulator":  # plans for many multiprocessors are others than those for few
            self.backends.append(EmulatorBackend(multiprocessors=132))
        self.backend = self.backends[0]
        self.on_gpu = name == "cupy"
        self.guard = Guard() if self.on_gpu else None
        self.stream = _cupy().cuda.Stream(non_blocking=True) if self.on_gpu else None
        self.calls: Counter[str] = Counter()
        self.by_fft = 0  # calls that were compared by FFT, too
        self.launches: list[Launch] = []
        self.seen: Counter[str] = Counter()
        device = {"emulator": EmulatedDevice, "cupy": _device.CupyDevice}.get(name)
        if device is not None:
            _record(device, self.launches)

    def run(self, example: fuzz_cases.Example, seed: int) -> None:
        """Raise what is wrong with an example."""
        self.launches.clear()
        self.backend = self.backends[seed % len(self.backends)]
        rng = np.random.default_rng(seed)
        try:
            self.checks = Checks()
            with self.guard() if self.guard else nullcontext():
                if len(example.cases) > 1:
                    self._chain(example)
                else:
                    self._single(example, rng)
            self.checks.settle()
            if self.guard:
                self.guard.check()
        finally:
            if self.guard:
                self.guard.taken.clear()
            self.seen.update(map(fuzz_cases.kernel_name, self.launches))

    def _call(
        self, case: Case, kernel: str | None, arrays: dict[str, Result], **more: Any
    ) -> Result:
        self.backend.kernel = kernel
        self.calls[case.function] += 1
        return self.backend.call(case.function, **arrays, **{**case.options, **more})

    def _single(self, example: fuzz_cases.Example, rng: np.random.Generator) -> None:
        case = example.case
        arrays = {
            name: None if a is None else self.backend.asarray(a) for name, a in case.arrays.items()
        }
        kernel = self._settle_kernel(case, example.kernels[0], arrays)
        example.kernels[0] = (kernel,)
        there = {name: a for name, a in arrays.items() if a is not None and a.size}
        before = {name: memory_of(a).copy() for name, a in there.items()}

        def call(change: Callable[[str, Result], Result] | None = None, **more: Any) -> Result:
            given = {
                name: a if a is None or change is None else change(name, a)
                for name, a in arrays.items()
            }
            return self._call(case, kernel, given, **more)

        result = call()
        check_value(self.checks, case, arrays, result)
        self.checks.equal_bits(call(), result, "once more")
        copies = call(lambda _, a: a.copy(order="C"))
        self.checks.equal_bits(copies, result, "contiguous copies")
        if example.samples_are_independent:
            self._check_samples(case, call, result, rng)
        if "out" in example.layouts:
            self._check_out(call, result, rng, example.layouts["out"])
        if self.stream is not None:
            self._check_stream(call, result)
        if isinstance(case, (Convolution, Gradient)) and rng.random() < _BY_FFT:
            self._check_fft(case, arrays, call)
        for name, memory in before.items():
            what = f"{name}, or what lies between its elements,"
            self.checks.unchanged(memory_of(there[name]), memory, what)

    def _settle_kernel(
        self, case: Case, order: tuple[str | None, ...], arrays: dict[str, Result]
    ) -> str | None:
        """The first kernel that takes the call: where one refuses, the direct kernel runs."""
        for kernel in order:
            if kernel in (None, "direct") or not isinstance(case, (Convolution, Gradient)):
                return kernel
            first = len(self.launches)
            self._call(case, kernel, arrays)
            if any(x.instance.function != "direct_conv" for x in self.launches[first:]):
                return kernel
        return order[0]

    def _check_samples(
        self, case: Case, call: Callable[..., Result], result: Result, rng: np.random.Generator
    ) -> None:
        """One sample alone, and a part of the batch, are what they are in the whole batch."""
        samples = result.shape[0]
        gradient = isinstance(case, Gradient)
        batched = "grad_output" if gradient else "input"
        n = int(rng.integers(samples))
        spans = [(n, n + 1)] if samples > 1 else []
        if samples > 2:
            first = int(rng.integers(samples - 1))
            spans.append((first, int(rng.integers(first + 1, samples + 1))))
        for first, end in spans:
            size = {"input_size": (end - first, *result.shape[1:])} if gradient else {}
            part = call(lambda name, a, f=first, e=end: a[f:e] if name == batched else a, **size)
            self.checks.equal_bits(part, result[first:end], f"samples {first} to {end - 1} alone")

    def _check_out(
        self, call: Callable[..., Result], result: Result, rng: np.random.Generator, layout: str
    ) -> None:
        """The result in an array of the caller's; what lies between its elements stays."""
        blank = lay_out(rng, poison(np.empty(result.shape, result.dtype)), layout)
        out = self.backend.asarray(blank)
        if out.size == 0:
            return
        before, poisoned = memory_of(out).copy(), out.copy()
        if call(out=out) is not out:
            raise Wrong("out is not what was returned")
        self.checks.equal_bits(out.copy(), result, f"written to a {layout} array")
        out[...] = poisoned
        what = f"something between the elements of a {layout} out"
        self.checks.unchanged(memory_of(out), before, what)

    def _check_stream(self, call: Callable[..., Result], result: Result) -> None:
        """The same on another stream, with nothing but an event between the two."""
        cupy = _cupy()
        self.stream.wait_event(cupy.cuda.get_current_stream().record())
        with self.stream:
            other = call()
        cupy.cuda.get_current_stream().wait_event(self.stream.record())
        self.checks.equal_bits(other, result, "on another stream")

    def _check_fft(
        self, case: Convolution | Gradient, arrays: dict[str, Result], call: Callable[..., Result]
    ) -> None:
        """The same call by FFT keeps to its bound, and has the same bits once more."""
        defined = _defined(case, arrays)
        if case.dtype.kind in "iu" or len(case.axes) > 3 or defined is None:
            return
        found, unbatched = defined
        result = call(method="fft")
        self.by_fft += 1
        self.checks.equal_bits(call(method="fft"), result, "once more by FFT")
        value = _host(found.value[0] if unbatched else found.value)
        check_by_fft(case, _host(result), value)

    def _chain(self, example: fuzz_cases.Example) -> None:
        """Calls one by one, each checked, then without a pause in two buffers that they share."""
        results: list[Result] = []
        steps = []
        for case, order in zip(example.cases, list(example.kernels), strict=True):
            source = results[-1] if results else self.backend.asarray(case["input"])
            arrays = {
                name: None if a is None else self.backend.asarray(a)
                for name, a in case.arrays.items()
            }
            arrays["input"] = source
            whole = case.with_arrays(input=_host(source))
            kernel = self._settle_kernel(case, order, arrays)
            example.kernels[len(steps)] = (kernel,)
            results.append(self._call(case, kernel, arrays))
            check_value(self.checks, whole, arrays, results[-1])
            steps.append((case, kernel, arrays))
        size = max(r.size for r in results)
        buffers = [self.backend.poisoned((size,), results[0].dtype) for _ in range(2)]
        source = steps[0][2]["input"]
        for i, (case, kernel, arrays) in enumerate(steps):
            shape = results[i].shape
            out = buffers[i % 2][: math.prod(shape)].reshape(shape)
            source = self._call(case, kernel, {**arrays, "input": source}, out=out)
        self.checks.equal_bits(source.copy(), results[-1], "in buffers that calls share")


def _record(device: Any, launches: list[Launch]) -> None:
    """Let a device keep a list of what it launches."""
    original = device.launcher

    def launcher(self: Any, launch: Launch) -> Callable[[Any], None]:
        run = original(self, launch)

        def recorded(arguments: Any) -> None:
            launches.append(launch)
            run(arguments)

        return recorded

    device.launcher = launcher
