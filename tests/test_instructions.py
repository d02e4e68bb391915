"""Each instruction of ptx_*.cuh: the emulator against NumPy, and a GPU against the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from cupyconv import _compile, _tensor_maps
from cupyconv._kernels.choice import instances
from cupyconv._kernels.launches import Instance, Launch
from cupyconv._tensor_maps import WORDS, Boxes, Pixels
from emulator.device import FLAGS, EmulatedDevice, KernelError

FILE = Path(__file__).parent / "emulator" / "instructions.cu"
SHARED = 48 * 1024


def text() -> str:
    """The test kernels with the texts of the headers that they test."""
    included: set[str] = set()
    return _compile._INCLUDE.sub(
        lambda line: _compile._inlined(line["name"], included), FILE.read_text(encoding="utf-8")
    )


def needs_9_0(name: str) -> bool:
    """Whether a test kernel has instructions of compute capability 9.0 alone."""
    return any(word in name for word in ("warpgroup", "boxes", "pixels"))


def function(name: str) -> str:
    """The test kernel of a case: boxes and pixels of all types have one."""
    return name.split("_of_")[0]


def instance(name: str) -> Instance:
    return Instance(FILE.name, function(name), (("WGMMA_TESTS", "1"),) if needs_9_0(name) else ())


class Boxed(NamedTuple):
    """What the copy engine knows of the arrays of a case, and where boxes or pixels begin."""

    a: Boxes | Pixels
    b: Boxes | None
    places: np.ndarray

    def arguments(
        self, addresses: Sequence[int], encode: Callable[[int, Any], Sequence[int]]
    ) -> np.ndarray:
        """The words of BoxArguments, for the addresses of a, b, the places and the output.

        The struct is aligned to 64 bytes, as its tensor maps are.
        """
        a, b, *rest = addresses
        none = (0,) * WORDS
        words = *encode(a, self.a), *(none if self.b is None else encode(b, self.b)), *rest
        return np.array((*words, *[0] * (-len(words) % 8)), np.int64)


def emulated(
    name: str, threads: int, a: Any, b: Any, out: Any, source: str | None = None,
    boxed: Boxed | None = None,
) -> None:  # fmt: skip
    device = EmulatedDevice()
    with device.call(out):
        arrays = (a, b, out) if boxed is None else (a, b, boxed.places, out)
        addresses = [device.address(array) for array in arrays]
        arguments = boxed.arguments(addresses, device.tensor_map) if boxed else addresses
        launch = Launch(instance(name), 1, threads, SHARED if needs_9_0(name) else 0)
        device.run_source(source or text(), launch, np.array(arguments, np.int64))


def on_gpu(
    name: str, threads: int, a: Any, b: Any, out: Any, boxed: Boxed | None = None
) -> None:  # fmt: skip
    import cupy

    options = _compile.options(instance(name))
    if needs_9_0(name):
        options += ("-arch=sm_90a",)
    kernel = cupy.RawKernel(_compile.macros(instance(name)) + text(), function(name), options)
    arrays = [cupy.asarray(array) for array in ((a, b) if boxed is None else (a, b, boxed.places))]
    result = cupy.asarray(out)
    addresses = [array.data.ptr for array in (*arrays, result)]
    words = boxed.arguments(addresses, _tensor_maps.encode) if boxed else addresses
    struct = np.array(words, np.int64).view(f"V{8 * len(words)}")
    kernel((1,), (threads,), (struct,), shared_mem=SHARED if needs_9_0(name) else 0)
    out[...] = cupy.asnumpy(result)


def float32_of(bits: np.ndarray, kind: str) -> np.ndarray:
    """The float64 values that a row of operand words holds."""
    if kind == "tf32":
        return (bits & 0xFFFFE000).view(np.float32).astype(np.float64)
    halves = bits.view(np.uint16)
    if kind == "bfloat16":
        return (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return halves.view(np.float16).astype(np.float64)


class Case(NamedTuple):
    threads: int
    a: np.ndarray
    b: np.ndarray
    out: np.ndarray  # of the right shape and dtype
    expected: np.ndarray
    error: Any  # 0 for equal bits
    boxed: Boxed | None = None


def words_of(values: np.ndarray, kind: str) -> np.ndarray:
    """The operand words of rows of numbers; those of bfloat16 are truncated."""
    if kind == "float16":
        return values.astype(np.float16).view(np.uint32)
    words = values.astype(np.float32).view(np.uint32)
    return words if kind == "tf32" else (words >> 16).astype(np.uint16).view(np.uint32)


def operands(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    """Random words of a matrix operand, with all bits of the mantissas in use.

    They are of many magnitudes, and in some rows all of them are subnormal as float16 numbers.
    """
    rows, words = shape
    size = (rows, words if kind == "tf32" else 2 * words)
    powers = rng.integers(-16, 5, size) - rng.choice([0, 0, 0, 20], (rows, 1))
    return words_of(rng.standard_normal(size) * np.exp2(powers), kind)


class Summation(NamedTuple):
    """How a Tensor Core sums up, as tests/emulator/instructions.ipp explains it."""

    fraction: int
    blocks: int


AMPERE, HOPPER = Summation(24, 2), Summation(25, 1)


def exponent(values: np.ndarray, least: int) -> np.ndarray:
    return np.where(values == 0, -10_000, np.maximum(np.frexp(values)[1] - 1, least))


def truncated(values: np.ndarray, exponents: np.ndarray, bits: int) -> np.ndarray:
    unit = np.ldexp(1.0, np.maximum(exponents - bits, -1000))  # where all are zero as well
    return np.trunc(values / unit) * unit


def product(
    a: np.ndarray, b: np.ndarray, start: np.ndarray, summation: Summation, kind: str
) -> np.ndarray:
    """a times b on top of start, by instructions that take 8 words of a row."""
    least = -14 if kind == "float16" else -126
    total = start.astype(np.float64)
    depth = (8 if kind == "tf32" else 16) // summation.blocks
    for first in range(0, a.shape[1], depth):
        x, y = a.T[first : first + depth, :, None], b[first : first + depth, None]
        terms = np.concatenate([total[None], x * y])
        exponents = np.concatenate(
            [exponent(total, -126)[None], exponent(x, least) + exponent(y, least)]
        )
        total = truncated(terms, exponents.max(axis=0), summation.fraction).sum(axis=0)
        total = truncated(total, exponent(total, -126), 23)
    return total.astype(np.float32)


def warp_matrix(kind: str, depth: int | None = None) -> Callable[[np.random.Generator], Case]:
    """A product in which the first `depth` operands count, or all of them."""

    def make(rng: np.random.Generator, summation: Summation = AMPERE) -> Case:
        a = operands(rng, kind, 16, 8)
        b = operands(rng, kind, 8, 8)
        matrix = float32_of(b, kind).reshape(8, -1)
        start = np.tile([1.0, 2.0], (16, 4)) + np.repeat([0.0, 2.0], 8)[:, None]
        value = product(
            float32_of(a, kind).reshape(16, -1)[:, :depth],
            (matrix if kind == "tf32" else matrix.T)[:depth],
            *(start, summation, kind),
        )
        return Case(32, a, b, np.empty((16, 8), np.float32), value, 0)

    return make


def matrix_float64(rng: np.random.Generator) -> Case:
    a, b = rng.standard_normal((8, 4)), rng.standard_normal((4, 8))
    value = a @ b + np.tile([1.0, 2.0], (8, 4))
    return Case(32, a, b, np.empty((8, 8)), value, 1e-14)


def load_matrix(rng: np.random.Generator) -> Case:
    a = rng.integers(2**32, size=128, dtype=np.uint32)
    rows = a.view(np.uint16).reshape(4, 8, 8)  # matrix, row, column
    plain = rows.reshape(4, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, 8)
    flipped = rows.swapaxes(1, 2).reshape(4, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, 8)
    expected = np.concatenate([plain, flipped], axis=1).copy().view(np.uint32)
    return Case(32, a, a, np.empty((32, 8), np.uint32), expected, 0)


def asynchronous_copies(rng: np.random.Generator) -> Case:
    a, b = rng.integers(2**32, size=(2, 128), dtype=np.uint32)
    first, second = np.zeros((2, 32, 8), np.uint32)
    for lane in range(32):
        used = lane % 3
        first[lane, :4] = a[lane * 4 : lane * 4 + 4]
        first[lane, 4 : 4 + used] = a[lane * 2 : lane * 2 + used]
        first[lane, 6] = a[lane]
        first[lane, 7] = a[lane] * (lane % 2)
        second[lane, : lane % 5] = b[lane * 4 : lane * 4 + lane % 5]
        second[lane, 4:] = b[lane * 4 : lane * 4 + 4]
    expected = np.concatenate([first[::-1], second[::-1]], axis=1)
    return Case(32, a, b, np.empty((32, 16), np.uint32), expected, 0)


def named_barriers(rng: np.random.Generator) -> Case:
    a = rng.integers(2**32, size=(3, 64), dtype=np.uint32)
    return Case(128, a, a, np.empty_like(a), a[:, ::-1], 0)


def counts(rng: np.random.Generator) -> Case:
    a = rng.integers(2**20, size=(4, 32), dtype=np.uint32)
    expected = np.concatenate([a[:, ::-1].reshape(-1), a.sum(0, np.uint32), [4]]).astype(np.uint32)
    return Case(128, a, a, np.empty(161, np.uint32), expected, 0)


def mbarriers(rng: np.random.Generator) -> Case:
    a = rng.integers(2**32, size=(6, 64), dtype=np.uint32)
    return Case(128, a, a, np.empty_like(a), a[:, ::-1], 0)


def bulk_copies(rng: np.random.Generator) -> Case:
    a = rng.integers(2**32, size=(4, 128), dtype=np.uint32)
    return Case(160, a, a, np.empty_like(a), a[:, ::-1], 0)


def bulk_stores(rng: np.random.Generator) -> Case:
    a = rng.integers(2**32, size=(32, 32), dtype=np.uint32)
    return Case(64, a, a, np.empty_like(a), a[:, ::-1], 0)


def warpgroup_matrix(kind: str, columns: int) -> Callable[[np.random.Generator], Case]:
    def make(rng: np.random.Generator) -> Case:
        a, b = operands(rng, kind, 64, 16), operands(rng, kind, columns, 16)
        registers = np.arange(columns // 2).reshape(-1, 2, 2)  # unit of 8 columns, row half, pair
        row, column = np.divmod(np.arange(64 * columns), columns)
        start = registers[column // 8, row % 16 // 8, column % 2].reshape(64, columns)
        value = product(
            float32_of(a, kind).reshape(64, -1),
            float32_of(b, kind).reshape(columns, -1).T,
            *(start, HOPPER, kind),
        )
        return Case(128, a, b, np.empty((64, columns), np.float32), value, 0)

    return make


def swizzled(rows: np.ndarray) -> np.ndarray:
    """The words of rows as a copy leaves them in shared memory: of 128 bytes, 64, 32 or 16."""
    count = rows[0].nbytes // 16
    chunks = rows.reshape(len(rows), count, -1)
    places = np.arange(count) ^ np.arange(len(rows))[:, None] // (8 // count) % count
    return np.take_along_axis(chunks, places[..., None], axis=1).reshape(len(rows), -1)


def as_copied(bits: np.ndarray) -> np.ndarray:
    """The bits of elements as a copy has them: floats become the nearest TF32 numbers."""
    if bits.itemsize == 2:
        return bits
    floats = bits.view(np.float32)
    wide = bits.astype(np.uint64)
    nearest = (wide + 0xFFF + (wide >> np.uint64(13) & 1) & ~np.uint64(0x1FFF)).astype(np.uint32)
    return np.where(np.isnan(floats), np.uint32(0x7FFFE000), nearest)


def box_of(a: np.ndarray, boxes: Boxes, place: Sequence[int]) -> np.ndarray:
    """The rows of a box of an array by z, y and x, with zeros beyond its ends."""
    grids = [first + np.arange(count) for first, count in zip(place, boxes.box, strict=True)]
    inside = [(0 <= at) & (at < size) for at, size in zip(grids, boxes.sizes, strict=True)]
    x, y, z = (np.where(known, at, 0) for known, at in zip(inside, grids, strict=True))
    present = inside[2][:, None, None] & inside[1][:, None] & inside[0]
    values = np.where(present, a[np.ix_(z, y, x)], 0)
    return values.reshape(-1, boxes.box[0]).astype(a.dtype)


# Where boxes begin along x, y and z: in the array, before it, near its ends and beyond.
PLACES = (
    (0, 0, 0), (8, 0, 0), (16, 5, 2), (-8, 1, 1), (24, -5, 1), (32, 1, -2),
    (72, 3, 0), (16, 9, 1), (8, 2, 4), (-200, 0, 0), (40, 11, 0), (80, -3, 3),
)  # fmt: skip


def boxes(dtype: type) -> Callable[[np.random.Generator], Case]:
    """The array has other elements beyond its ends along each axis, which no box may bring."""

    def make(rng: np.random.Generator) -> Case:
        a = rng.integers(1, np.iinfo(dtype).max, (6, 13, 96), dtype)
        line = a.strides[1]
        own = Boxes(a.itemsize, (90, 11, 5), (line, 13 * line), (128 // a.itemsize, 12, 3))
        a_copied = as_copied(a)
        expected = [swizzled(box_of(a_copied, own, place)).view(np.uint32) for place in PLACES]
        boxed = Boxed(own, None, np.array(PLACES, np.int32))
        return Case(128, a, a, np.empty((12, 36, 32), np.uint32), np.stack(expected), 0, boxed)

    return make


class Window(NamedTuple):
    """Where pixels of an array are taken from, along x, y and z."""

    sizes: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]  # of taps, up to the largest that there are

    def pixels(self, samples: int) -> np.ndarray:
        """All of them, the samples of the array and of as many after it: by sample, and x, y, z.

        Their last one lies at the window's end along each axis.
        """
        axes = [
            np.arange(low, size + high, step)
            for low, size, high, step in zip(
                self.lower, self.sizes, self.upper, self.steps, strict=True
            )
        ]
        ends = [size - 1 + high for size, high in zip(self.sizes, self.upper, strict=True)]
        assert [axis[-1] for axis in axes] == ends
        grid = np.meshgrid(np.arange(2 * samples), *axes[::-1], indexing="ij")
        sample, *places = (part.reshape(-1) for part in grid)
        return np.stack([sample, *places[::-1]], axis=1)


# Corners on either side of an axis's ends, steps, and windows of one pixel.
WINDOWS: dict[int, Window] = {
    1: Window((50,), (-3,), (2,), (3,), ((0,), (1,), (60,), (2**16 - 1,))),
    2: Window((11, 7), (-2, 1), (2, -2), (2, 1), ((0, 0), (3, 1), (1, 5), (12, 2), (255, 255))),
    3: Window(
        (5, 4, 3), (-1, 0, 2), (2, -1, 0), (1, 2, 8),
        ((0, 0, 0), (1, 2, 0), (3, 0, 1), (0, 5, 0), (31, 31, 31)),
    ),
}  # fmt: skip


def pixels_from(
    a: np.ndarray, window: Window, own: Pixels, place: np.ndarray, offsets: Sequence[int]
) -> np.ndarray:
    """The rows of pixels of an array by sample, z, y, x and channel, from a place on."""
    channel, *start = place
    samples, width = own.sizes[-1], own.sizes[0]
    every = window.pixels(samples)
    (first,) = np.flatnonzero((every == start).all(axis=1))
    rows = np.zeros((own.pixels, own.channels), a.dtype)
    for row, (sample, *at) in zip(rows, every[first:], strict=False):
        at = [x + offset for x, offset in zip(at, offsets, strict=True)]
        if sample < samples and all(0 <= x < n for x, n in zip(at, window.sizes, strict=True)):
            line = a[(sample, *at[::-1])][channel:width][: own.channels]
            row[: len(line)] = line
    return rows if own.exact else as_copied(rows)


def pixels(
    axes: int, dtype: type, row: int = 128, exact: bool = False
) -> Callable[[np.random.Generator], Case]:
    """Pixels of so many bytes, from an array with other elements beyond its ends along each axis.

    No copy may bring these.

    Copies go over the ends of lines and samples, and of the last sample; they begin anywhere, and
    at channels of which some or all lie beyond the last one.
    """
    window, samples = WINDOWS[axes], 5

    def make(rng: np.random.Generator) -> Case:
        shape = (samples + 1, *(n + 2 for n in window.sizes[::-1]), 96)
        a = rng.integers(1, np.iinfo(dtype).max, shape, dtype)
        own = Pixels(
            a.itemsize, (90, *window.sizes, samples), a.strides[-2::-1], window.lower,
            window.upper, window.steps, row // a.itemsize, 40, exact,
        )  # fmt: skip
        every, places, expected = window.pixels(samples), [], []
        for copy, channel in enumerate((0, 16, 8, 64, 0, 88, 32, 96)):
            # The first pixel of all, others of any sample, and the last one of the last sample.
            last = len(every) // 2 - 1
            start = every[rng.integers(last) if 0 < copy < 7 else copy * last // 7]
            offsets = window.offsets[copy % len(window.offsets)]
            none = (0,) * (3 - axes)
            places.append((channel, *start[1:], *none, start[0], *offsets, *none))
            rows = pixels_from(a, window, own, np.array([channel, *start]), offsets)
            expected.append(swizzled(rows).view(np.uint32))
        boxed = Boxed(own, None, np.array(places, np.int32))
        out = np.empty((8, 40, row // 4), np.uint32)
        return Case(128, a, a, out, np.stack(expected), 0, boxed)

    return make


def warpgroup_boxes(kind: str, columns: int) -> Callable[[np.random.Generator], Case]:
    """Boxes of which one begins before its array, and both end beyond."""

    def make(rng: np.random.Generator) -> Case:
        itemsize = 4 if kind == "tf32" else 2
        wide = 160 // itemsize
        places = np.array([[24, 0, 1], [-8, 0, 0]], np.int32)
        arrays, own, values = [], [], []
        for rows, place in zip((64, columns), places, strict=True):
            words = operands(rng, kind, 2 * rows, 40)
            arrays.append(words)
            copied = as_copied(words) if kind == "tf32" else words
            numbers = float32_of(copied, kind).reshape(2, rows, wide)
            size = wide - 5 if place[0] > 0 else wide
            boxes = Boxes(itemsize, (size, rows, 2), (160, rows * 160), (128 // itemsize, rows, 1))
            own.append(boxes)
            values.append(box_of(numbers, boxes, place))
        registers = np.arange(columns // 2).reshape(-1, 2, 2)
        row, column = np.divmod(np.arange(64 * columns), columns)
        start = registers[column // 8, row % 16 // 8, column % 2].reshape(64, columns)
        value = product(values[0], values[1].T, start, HOPPER, kind)
        out = np.empty((64, columns), np.float32)
        return Case(128, *arrays, out, value, 0, Boxed(*own, places))

    return make


def warpgroup_pixels(
    kind: str, columns: int, box: int, shared: bool = False
) -> Callable[[np.random.Generator], Case]:
    """Products of pixels, over the ends of lines and samples.

    Copies of `box` channels lie an offset apart, or are parts of one copy, a pixel apart.
    """

    def make(rng: np.random.Generator) -> Case:
        counts, steps, samples = (64, box), (1, 2), 5
        lengths = 13, 26 + columns // box
        arrays, own, values = [], [], []
        for channels, length, step, most in zip(
            counts, lengths, steps, (1, columns // box), strict=True
        ):
            words = operands(rng, kind, samples * length, channels // 2)
            arrays.append(words)
            bits = words.view(np.uint16).reshape(samples, length, channels)
            # The window begins before a line; its end, the last place, is not copied.
            window = Window((length - 1,), (-1,), (12 * step - length + 1,), (step,), ((0,),))
            boxes = Pixels(
                2, (channels, length - 1, samples), (2 * channels, 2 * channels * length),
                window.lower, window.upper, window.steps, channels, 63 + most if shared else 64,
            )  # fmt: skip
            own.append(boxes)
            first = np.array([0, 1, -1])
            if shared:
                copy = pixels_from(bits, window, boxes, first, (0,))
                copies = [copy[i : i + 64] for i in range(most)]
            else:
                copies = [pixels_from(bits, window, boxes, first, (i,)) for i in range(most)]
            values.append(float32_of(np.concatenate(copies, axis=1), kind))
        registers = np.arange(columns // 2).reshape(-1, 2, 2)
        row, column = np.divmod(np.arange(64 * columns), columns)
        start = registers[column // 8, row % 16 // 8, column % 2].reshape(64, columns)
        value = product(values[0].T, values[1], start, HOPPER, kind)
        out = np.empty((64, columns), np.float32)
        places = np.array([-1, 1], np.int32)
        return Case(128, *arrays, out, value, 0, Boxed(*own, places))

    return make


def warpgroup_registers(rng: np.random.Generator) -> Case:
    a = rng.integers(2**31, size=(2, 128), dtype=np.uint32)
    return Case(256, a, a, np.empty_like(a), np.stack([a[0] + 1, a[1] * 2]), 0)


def exchanges(rng: np.random.Generator) -> Case:
    a = rng.integers(2**20, size=64, dtype=np.uint32)
    expected = np.zeros((64, 16), np.uint32)
    for thread in range(64):
        warp, lane = a[thread // 32 * 32 : thread // 32 * 32 + 32], thread % 32
        ballot = sum(1 << i for i in range(32) if warp[i] & 1)
        expected[thread, :13] = [
            warp[5],
            warp[lane // 8 * 8 + 3],
            warp[lane ^ 9],
            warp[lane - 3 if lane >= 3 else lane],
            warp[lane + 4 if lane % 16 + 4 < 16 else lane],
            ballot,
            (warp % 64 == 7).any(),
            (warp != 12345).all(),
            warp[lane ^ 1] if lane < 8 else 0,
            (a % 32 == 7).any(),
            (a != 12345).all(),
            (a & 2 != 0).sum(),
            int(warp[lane ^ 1] * 1.5),
        ]
    return Case(64, a, a, np.zeros((64, 16), np.uint32), expected, 0)


def conversions(rng: np.random.Generator) -> Case:
    half = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16)
    # Floats of all sizes, ties between two halves among them.
    b = rng.integers(2**32, size=65536, dtype=np.uint32)
    b[::2] = (half[::2].astype(np.float32).view(np.uint32)) ^ np.uint32(0x1000)
    with np.errstate(over="ignore"):
        rounded = b.view(np.float32).astype(np.float16)
    expected = np.concatenate(
        [
            half.astype(np.float32).view(np.uint32),
            half.view(np.uint16).astype(np.uint32),
            rounded.view(np.uint16).astype(np.uint32),
        ]
    )
    return Case(256, b, b, np.empty(3 * 65536, np.uint32), expected, 0)


def tf32_conversions(rng: np.random.Generator) -> Case:
    """Floats of all sizes; at each exponent the two sides of a tie and the tie itself.

    These are the conversions of compute capability 9.0.
    """
    b = rng.integers(2**32, size=65536, dtype=np.uint32)
    sides = np.array([0x0FFF, 0x1000, 0x1001], np.uint32)
    b[: 3 * 4096] = ((b[:4096] & 0xFFFFE000)[:, None] | sides).reshape(-1)
    special = [
        *(0, 1, 0x0FFF, 0x1000, 0x7FFFFF),  # zero and subnormal numbers
        *(0x7F7FEFFF, 0x7F7FF000, 0x7F7FFFFF),  # the last two become infinite
        *(0x7F800000, 0x7F800001, 0x7F801000, 0x7FBFFFFF, 0x7FC00000, 0x7FFFF000, 0x7FFFFFFF),
    ]
    bits = np.array(special, np.uint32)
    b[-2 * len(bits) :] = np.concatenate([bits, bits | np.uint32(1 << 31)])
    with np.errstate(invalid="ignore"):  # signaling NaN
        value = b.view(np.float32).astype(np.float64)
    finite = np.isfinite(value)
    size = np.abs(np.where(finite, value, 0))
    # Eleven bits of the mantissa, fewer below the smallest normal number, 2**-126.
    unit = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 11, -136))
    rounded = np.copysign(np.rint(size / unit) * unit, value)
    with np.errstate(over="ignore", invalid="ignore"):
        number = np.where(finite, rounded, 0).astype(np.float32).view(np.uint32)
    expected = np.where(finite, number, np.where(np.isnan(value), np.uint32(0x7FFFFFFF), b))
    return Case(256, b, b, np.empty(65536, np.uint32), expected, 0)


def pair_conversions(rng: np.random.Generator) -> Case:
    """Floats of all sizes, ties between two 16-bit ones among them; any NaN becomes 0x7fff.

    Then the larger of two, where any NaN becomes 0x7fffffff; and the larger and smaller magnitudes
    of the same bits as 16-bit floats, where a NaN is what there is no number beside; and for each
    kind of these the larger magnitudes, where any NaN becomes 0x7fff; at last masks, which are set
    unless the first one is at most as large as the second.
    """
    b = rng.integers(2**32, size=65536, dtype=np.uint32)
    b[::4] = b[::4] & np.uint32(0xFFFF0000) | np.uint32(0x8000)
    b[1::4] = b[1::4] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    b[2::16] = b[3::16]
    b[6::16], b[7::16] = 0x80000000, 0x00008000  # zeros of both signs
    value = b.view(np.float32)
    columns, magnitudes = [], []
    for dtype in (np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore", invalid="ignore"):
            bits = value.astype(dtype).view(np.uint16).astype(np.uint32)
        bits[np.isnan(value)] = 0x7FFF
        columns.append(bits[:-1] | bits[1:] << np.uint32(16))
    larger = np.maximum(value[:-1], value[1:])
    larger_bits = np.where(np.isnan(larger), np.uint32(0x7FFFFFFF), larger.view(np.uint32))
    halves = np.abs(b.view(np.float16)).reshape(-1, 2)
    for choose in (np.fmax, np.fmin):
        chosen = choose(halves[:-1], halves[1:])
        chosen_bits = np.where(np.isnan(chosen), np.uint16(0x7FFF), chosen.view(np.uint16))
        magnitudes.append(chosen_bits.view(np.uint32)[:, 0])
    for infinite in (0x7C00, 0x7F80):
        sizes = (b.view(np.uint16) & np.uint16(0x7FFF)).reshape(-1, 2)
        sizes = np.maximum(sizes[:-1], sizes[1:])
        sizes[sizes > infinite] = 0x7FFF
        magnitudes.append(sizes.view(np.uint32)[:, 0])
    numbers = b.view(np.float16).reshape(-1, 2)
    masks = np.where(numbers[:-1] <= numbers[1:], 0, 0xFFFF).astype(np.uint16).view(np.uint32)[:, 0]
    expected = np.stack([*columns, bits[:-1], larger_bits, *magnitudes, masks], axis=1).reshape(-1)
    return Case(256, b, b, np.empty(9 * 65535, np.uint32), expected, 0)


def bytes_and_pairs(rng: np.random.Generator) -> Case:
    """Any four of eight bytes, or their signs; pairs and single words that are stored or not."""
    b = rng.integers(2**32, size=65536, dtype=np.uint32)
    source = np.stack([b[:-2], b[1:-1]], axis=1).copy().view(np.uint8)
    which = b[2:, None] >> np.uint32([0, 4, 8, 12]) & np.uint32(15)
    chosen = np.take_along_axis(source, (which & 7).astype(np.intp), axis=1)
    chosen = np.where(which & 8, np.where(chosen & 0x80, 0xFF, 0), chosen).astype(np.uint8)
    pairs = b[:2048].reshape(-1, 2)
    stored = np.where(pairs[:, :1] & 1, pairs, 0).astype(np.uint32)
    single = np.where(pairs[:, 1] & 1, pairs[:, 1], 0).astype(np.uint32)
    expected = np.concatenate([chosen.view(np.uint32)[:, 0], stored.reshape(-1), single])
    return Case(256, b, b, np.empty(expected.size, np.uint32), expected, 0)


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "matrix_tf32": warp_matrix("tf32"),
    "matrix_float16": warp_matrix("float16"),
    "matrix_bfloat16": warp_matrix("bfloat16"),
    "half_a_matrix_float16": warp_matrix("float16", 8),
    "half_a_matrix_bfloat16": warp_matrix("bfloat16", 8),
    "matrix_float64": matrix_float64,
    "load_matrix": load_matrix,
    "asynchronous_copies": asynchronous_copies,
    "named_barriers": named_barriers,
    "counts": counts,
    "mbarriers": mbarriers,
    "bulk_copies": bulk_copies,
    "bulk_stores": bulk_stores,
    "warpgroup_tf32": warpgroup_matrix("tf32", 16),
    "warpgroup_float16": warpgroup_matrix("float16", 64),
    "warpgroup_bfloat16": warpgroup_matrix("bfloat16", 8),
    "warpgroup_tf32_64": warpgroup_matrix("tf32", 64),
    "warpgroup_float16_32": warpgroup_matrix("float16", 32),
    "warpgroup_tf32_96": warpgroup_matrix("tf32", 96),
    "warpgroup_bfloat16_96": warpgroup_matrix("bfloat16", 96),
    "warpgroup_tf32_104": warpgroup_matrix("tf32", 104),
    "warpgroup_float16_104": warpgroup_matrix("float16", 104),
    "warpgroup_tf32_120": warpgroup_matrix("tf32", 120),
    "warpgroup_bfloat16_120": warpgroup_matrix("bfloat16", 120),
    "warpgroup_tf32_wide": warpgroup_matrix("tf32", 128),
    "warpgroup_float16_wide": warpgroup_matrix("float16", 128),
    "warpgroup_bfloat16_wide": warpgroup_matrix("bfloat16", 128),
    "warpgroup_tf32_256": warpgroup_matrix("tf32", 256),
    "warpgroup_float16_256": warpgroup_matrix("float16", 256),
    "warpgroup_bfloat16_256": warpgroup_matrix("bfloat16", 256),
    "warpgroup_rows_tf32": warpgroup_matrix("tf32", 64),
    "warpgroup_rows_tf32_128": warpgroup_matrix("tf32", 128),
    "warpgroup_rows_tf32_48": warpgroup_matrix("tf32", 48),
    "warpgroup_rows_tf32_32": warpgroup_matrix("tf32", 32),
    "warpgroup_rows_float16": warpgroup_matrix("float16", 48),
    "warpgroup_rows_float16_64": warpgroup_matrix("float16", 64),
    "warpgroup_rows_bfloat16": warpgroup_matrix("bfloat16", 32),
    "warpgroup_rows_bfloat16_64": warpgroup_matrix("bfloat16", 64),
    "warpgroup_registers": warpgroup_registers,
    "boxes_of_words": boxes(np.uint32),
    "boxes_of_halves": boxes(np.uint16),
    **{
        f"pixels_{axes}_of_{name}": pixels(axes, dtype, exact=name == "floats")
        for axes in WINDOWS
        for name, dtype in (("words", np.uint32), ("floats", np.uint32), ("halves", np.uint16))
    },
    "warpgroup_boxes_tf32": warpgroup_boxes("tf32", 64),
    "warpgroup_boxes_float16": warpgroup_boxes("float16", 128),
    "warpgroup_boxes_bfloat16": warpgroup_boxes("bfloat16", 256),
    **{f"narrow_pixels_{row}": pixels(2, np.uint16, row) for row in (64, 32, 16)},
    "warpgroup_pixels_float16": warpgroup_pixels("float16", 256, 64),
    "warpgroup_pixels_bfloat16": warpgroup_pixels("bfloat16", 192, 64),
    "warpgroup_pixels_float16_32": warpgroup_pixels("float16", 192, 32),
    "warpgroup_pixels_bfloat16_32": warpgroup_pixels("bfloat16", 256, 32),
    "warpgroup_pixels_float16_16": warpgroup_pixels("float16", 64, 16),
    "warpgroup_pixels_bfloat16_16": warpgroup_pixels("bfloat16", 128, 16),
    "warpgroup_pixels_float16_8": warpgroup_pixels("float16", 128, 8),
    "warpgroup_pixels_bfloat16_8": warpgroup_pixels("bfloat16", 64, 8),
    "warpgroup_shared_pixels_float16": warpgroup_pixels("float16", 192, 64, shared=True),
    "warpgroup_shared_pixels_bfloat16_32": warpgroup_pixels("bfloat16", 224, 32, shared=True),
    "warpgroup_shared_pixels_float16_32": warpgroup_pixels("float16", 160, 32, shared=True),
    "warpgroup_shared_pixels_bfloat16_16": warpgroup_pixels("bfloat16", 96, 16, shared=True),
    "warpgroup_shared_pixels_float16_8": warpgroup_pixels("float16", 64, 8, shared=True),
    "exchanges": exchanges,
    "conversions": conversions,
    "tf32_conversions": tf32_conversions,
    "pair_conversions": pair_conversions,
    "bytes_and_pairs": bytes_and_pairs,
}


WARP_MATRICES = [name for name in CASES if "matrix_" in name and name[-1] in "26"]
TENSOR_CORES = [*WARP_MATRICES[:3], "warpgroup_tf32", "warpgroup_float16", "warpgroup_bfloat16"]
NEW_IN_9_0 = ("tf32_conversions",)  # done by another instruction before


def nan_is_nan(bits: np.ndarray, name: str) -> np.ndarray:
    """Conversions of NaN keep a payload on some machines only."""
    if name not in ("conversions", "tf32_conversions"):
        return bits
    single, half = bits[:65536].copy(), bits[65536:].copy()
    single[np.isnan(single.view(np.float32))] = 0x7FFFFFFF
    half[(half & 0x7FFF) > 0x7C00] = 0x7FFF
    return np.concatenate([single, half])


def check(name: str, case: Case, result: np.ndarray) -> None:
    if np.ndim(case.error) or case.error:
        wrong = ~(np.abs(result - case.expected) <= case.error)
    else:
        wrong = nan_is_nan(result, name) != nan_is_nan(case.expected, name)
    assert not wrong.any(), (
        f"{np.count_nonzero(wrong)} of {wrong.size} wrong: {np.argwhere(wrong)[:4]}"
    )


@pytest.mark.emulator
@pytest.mark.parametrize("name", CASES)
def test_emulator(name: str) -> None:
    case = CASES[name](np.random.default_rng())
    emulated(name, case.threads, case.a, case.b, case.out, boxed=case.boxed)
    check(name, case, case.out)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.wgmma if needs_9_0(n) or n in NEW_IN_9_0 else ())
        for n in CASES
    ],
)
def test_gpu_agrees(name: str) -> None:
    import cupy

    case = CASES[name](np.random.default_rng())
    if name in WARP_MATRICES and int(cupy.cuda.Device().compute_capability) >= 90:
        case = CASES[name](np.random.default_rng(), HOPPER)  # the emulator's are less exact
    on_gpu(name, case.threads, case.a, case.b, case.out, case.boxed)
    check(name, case, case.out)
    if name in WARP_MATRICES:
        return
    other = np.zeros_like(case.out)
    emulated(name, case.threads, case.a, case.b, other, boxed=case.boxed)
    check(name, case._replace(expected=other), case.out)


def added_to_one(run: Any, name: str, *products: float) -> np.ndarray:
    """1 and some products, the first ones of an instruction; its other products are zero."""
    kind, group = name.split("_")[1], "warpgroup" in name
    rows, words = (64, 16) if group else (16, 8)
    columns = {"tf32": 16, "float16": 64, "bfloat16": 8}[kind] if group else 8
    a = np.zeros((rows, words if kind == "tf32" else 2 * words))
    a[:, : len(products)] = np.array(products) * 2.0**12
    b = np.full((columns, a.shape[1]), 2.0**-12)
    out = np.empty((rows, columns), np.float32)
    run(name, 128 if group else 32, words_of(a, kind), words_of(b, kind), out)
    return out[:8, 1] if group else out[:8, ::2]  # what the test kernels add to 1


def fraction(run: Any, name: str) -> int:
    """The bits after 1 that are left of each product that is added to it."""
    products = {bit: (2.0**-bit,) * 2 ** (bit - 23) for bit in (23, 24, 25, 26)}
    return max(bit for bit, own in products.items() if (added_to_one(run, name, *own) > 1).all())


def check_truncation(run: Any, name: str) -> None:
    """Sums are truncated toward zero, from either side; to nearest they were others."""
    size = 1.75 * 2.0**-24
    assert (added_to_one(run, name, size) == 1).all()
    assert (added_to_one(run, name, -2, -size) == -1).all()


@pytest.mark.emulator
@pytest.mark.parametrize("name", TENSOR_CORES)
def test_emulated_tensor_cores_truncate(name: str) -> None:
    assert fraction(emulated, name) == (HOPPER if "warp" in name else AMPERE).fraction
    check_truncation(emulated, name)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.wgmma if "warp" in n else ()) for n in TENSOR_CORES],
)
def test_emulated_tensor_cores_are_no_more_exact_than_a_gpu(name: str) -> None:
    """They keep no bit that the GPU's do not: bounds that hold for them hold on it."""
    assert fraction(on_gpu, name) >= fraction(emulated, name)
    check_truncation(on_gpu, name)


MISTAKES = {
    # name: kernel, what is changed, into what, what the emulator says
    "no wait for copies": (
        "asynchronous_copies",
        "copy_async_wait<1>();",
        "",
        "reads shared memory that nothing wrote",
    ),
    "wait for too few copies": (
        "asynchronous_copies",
        "copy_async_wait<0>();",
        "copy_async_wait<1>();",
        "reads shared memory that nothing wrote",
    ),
    "no barrier after the wait": (
        "asynchronous_copies",
        "copy_async_wait<1>();\n    __syncthreads();",
        "copy_async_wait<1>();",
        "race|reads shared memory that nothing wrote",
    ),
    "misaligned copy": (
        "asynchronous_copies",
        "copy_async<8>(tile[0][lane] + 4,",
        "copy_async<8>(tile[0][lane] + 5,",
        "misaligned",
    ),
    "no named barrier": (
        "named_barriers",
        "named_barrier_wait(1, 128);",
        "named_barrier_arrive(1, 128);",
        "race|reads shared memory that nothing wrote",
    ),
    "wrong number at a named barrier": (
        "named_barriers",
        "named_barrier_arrive(2, 128);",
        "",
        "hangs",
    ),
    "no order before a count": (
        "counts",
        "    __syncwarp();\n    unsigned before = 0;",
        "    unsigned before = 0;",
        "reads what another thread wrote",
    ),
    "no order after a count": (
        "counts",
        "!= 3) return;\n    __syncwarp();",
        "!= 3) return;",
        "reads what another thread wrote",
    ),
    "a count without a beginning": (
        "counts",
        "    if (thread == 0) *count = 0;\n",
        "",
        "reads global memory that nothing wrote",
    ),
    "no wait for a full stage": (
        "mbarriers",
        "mbarrier_wait(&full[stage], parity);\n            p.out[round * 64",
        "p.out[round * 64",
        "race|nothing wrote|one more than the mbarrier expects",
    ),
    "no wait for an empty stage": (
        "mbarriers",
        "mbarrier_wait(&empty[stage], 1 - parity);\n            tile",
        "tile",
        "race|nothing wrote|one more than the mbarrier expects",
    ),
    "wait for the first phase of an empty stage": (
        "mbarriers",
        "mbarrier_wait(&empty[stage], 1 - parity);\n            tile",
        "mbarrier_wait(&empty[stage], parity);\n            tile",
        "hangs",
    ),
    "no wait for a bulk copy": (
        "bulk_copies",
        "mbarrier_wait(&full[stage], parity);",
        "",
        "reads shared memory that nothing wrote|hangs|race",
    ),
    "no wait for the stage to be free": (
        "bulk_copies",
        "if (round >= 2) mbarrier_wait(&empty[stage], 1 - parity);",
        "",
        "race|one more than the mbarrier expects",
    ),
    "too few bytes expected": ("bulk_copies", "&full[stage], 512", "&full[stage], 768", "hangs"),
    "no wait before the lines of bulk stores are written again": (
        "bulk_stores",
        "        bulk_store_wait();\n        __syncwarp();\n",
        "        __syncwarp();\n",
        "was written before the wait",
    ),
    "no wait for the lane that waits for its bulk stores": (
        "bulk_stores",
        "        bulk_store_wait();\n        __syncwarp();\n",
        "        bulk_store_wait();\n",
        "race|was written before the wait",
    ),
    "no wait for the last bulk stores": (
        "bulk_stores",
        "    }\n    bulk_store_wait();\n",
        "    }\n",
        "ends before its bulk stores",
    ),
    "bulk stores in no group": (
        "bulk_stores",
        "        bulk_store_commit();\n",
        "",
        "was written before the wait|ends before its bulk stores",
    ),
    "no fence of the proxy before bulk stores": (
        "bulk_stores",
        "        async_proxy_fence();\n        __syncwarp();\n        if (lane < 4)",
        "        __syncwarp();\n        if (lane < 4)",
        "without a fence of the proxy",
    ),
    "a part of 16 bytes in a bulk store": (
        "bulk_stores",
        "lines[warp][lane], 128);",
        "lines[warp][lane], 120);",
        "misaligned",
    ),
    "no fence of the proxy": (
        "warpgroup_tf32",
        "    async_proxy_fence();\n",
        "",
        "without a fence of the proxy",
    ),
    "a fence of the proxy before the last writes": (
        "warpgroup_tf32",
        "    for (int i = thread; i < N * WORDS; i += 128) {",
        "    async_proxy_fence();\n#define async_proxy_fence() ((void)0)\n"
        "    for (int i = thread; i < N * WORDS; i += 128) {",
        "without a fence of the proxy",
    ),
    "a fence of the proxy in one warp of those that wait": (
        "warpgroup_tf32",
        "    async_proxy_fence();\n    __syncthreads();",
        "    __syncthreads();\n    if (thread < 32) async_proxy_fence();",
        "without a fence of the proxy",
    ),
    "no barrier before the product": (
        "warpgroup_tf32",
        "    async_proxy_fence();\n    __syncthreads();",
        "    async_proxy_fence();",
        "race|nothing wrote",
    ),
    "no fence of the accumulators": (
        "warpgroup_float16",
        "    wgmma_fence();\n    for",
        "    for",
        "without a fence before",
    ),
    "accumulators touched between products": (
        "warpgroup_float16",
        "        wgmma_commit();\n    }",
        "        wgmma_commit();\n        if (step == 0) d[0] += 1;\n    }",
        "touched before the wait",
    ),
    "no wait for the product": (
        "warpgroup_tf32",
        "    wgmma_wait<0>();\n",
        "",
        "touched before the wait",
    ),
    "wait for too few products": (
        "warpgroup_tf32",
        "wgmma_wait<0>",
        "wgmma_wait<1>",
        "touched before the wait",
    ),
    "rows touched before the wait": (
        "warpgroup_rows_float16",
        "COLUMNS * 16, 128), true);\n    wgmma_commit();\n",
        "COLUMNS * 16, 128), true);\n    wgmma_commit();\n    a[0][1] += 1;\n",
        "wrong",
    ),
    "no wait for the product of registers": (
        "warpgroup_rows_tf32",
        "    wgmma_wait<0>();\n",
        "",
        "touched before the wait",
    ),
    "no wait for a box": (
        "boxes_of_words",
        "        mbarrier_wait(&full[stage], parity);\n        for",
        "        for",
        "reads shared memory that nothing wrote|race",
    ),
    "a box over one that is read yet": (
        "boxes_of_words",
        "((const unsigned*)start)[i];\n        __syncthreads();\n",
        "((const unsigned*)start)[i];\n",
        "race|hangs",
    ),
    "a box that nothing waits for": (
        "boxes_of_words",
        "tensor_copy(start, &p.a, place[0], place[1], place[2], &full[stage]);",
        "tensor_copy(start, &p.a, place[0], place[1], place[2], &full[stage]);\n"
        "            if (box == 11) tensor_copy(memory, &p.a, 0, 0, 0, full);",
        "ends before copies",
    ),
    "fewer bytes expected than a box has": (
        "boxes_of_halves",
        "mbarrier_arrive_expect(&full[stage], ROWS * 128);",
        "mbarrier_arrive_expect(&full[stage], ROWS * 128 - 128);",
        "hangs",
    ),
    "a box at no multiple of 1024 bytes": (
        "boxes_of_words",
        "tensor_copy(start,",
        "tensor_copy(start + 128,",
        "misaligned",
    ),
    "a box between chunks": (
        "boxes_of_halves",
        "&p.a, place[0],",
        "&p.a, place[0] + 4,",
        "misaligned",
    ),
    "a box of something that is no tensor map": (
        "boxes_of_words",
        "tensor_copy(start, &p.a,",
        "tensor_copy(start, &p.b,",
        "no tensor map",
    ),
    "a box over what threads wrote": (
        "boxes_of_words",
        "        if (thread == 0) {\n            mbarrier_arrive_expect(&full[stage], ROWS",
        "        *start = 0;\n        __syncthreads();\n"
        "        if (thread == 0) {\n            mbarrier_arrive_expect(&full[stage], ROWS",
        "without a fence of the proxy|race",
    ),
    "no wait for pixels": (
        "pixels_2_of_words",
        "        mbarrier_wait(&full[stage], parity);\n        for (int i = thread; i < BYTES",
        "        for (int i = thread; i < BYTES",
        "reads shared memory that nothing wrote|race",
    ),
    "pixels of a map of other axes": (
        "pixels_2_of_words",
        "copy_pixels<2>(p)",
        "copy_pixels<3>(p)",
        "no tensor map of 3 axes",
    ),
    "pixels of something that is no tensor map": (
        "pixels_1_of_halves",
        "im2col_copy<AXES>(start, &p.a,",
        "im2col_copy<AXES>(start, &p.b,",
        "no tensor map",
    ),
    "a place before the window": (
        "pixels_1_of_words",
        "at[3] = {place[1],",
        "at[3] = {place[1] - 3,",
        "outside of their window",
    ),
    "a place after the window": (
        "pixels_3_of_words",
        "place[3]}, offsets",
        "place[3] + 1}, offsets",
        "outside of their window",
    ),
    "an offset before the first tap": (
        "pixels_3_of_halves",
        "{place[5], place[6], place[7]}",
        "{place[5], place[6], place[7] - 1}",
        "an offset of -1, of at most 31",
    ),
    "an offset beyond the last one": (
        "pixels_2_of_halves",
        "{place[5], place[6], place[7]}",
        "{place[5], place[6] + 1, place[7]}",
        "an offset of 256, of at most 255",
    ),
    "pixels between chunks": (
        "pixels_2_of_words",
        "&p.a, place[0],",
        "&p.a, place[0] + 2,",
        "misaligned",
    ),
    "pixels at no multiple of 1024 bytes": (
        "pixels_1_of_words",
        "im2col_copy<AXES>(start,",
        "im2col_copy<AXES>(start + 128,",
        "misaligned",
    ),
    "fewer bytes expected than pixels have": (
        "pixels_3_of_words",
        "mbarrier_arrive_expect(&full[stage], BYTES);",
        "mbarrier_arrive_expect(&full[stage], BYTES - 128);",
        "hangs",
    ),
    "a product of a box that is under way": (
        "warpgroup_boxes_tf32",
        "    mbarrier_wait(full, 0);\n",
        "",
        "multiplies shared memory that nothing wrote",
    ),
    "a swizzled operand as one without": (
        "warpgroup_boxes_tf32",
        "swizzled_descriptor(memory + k)",
        "matrix_descriptor(memory + k, 16, 1024)",
        "wrong",
    ),
    "a lane of the mask that is not there": (
        "exchanges",
        "if (lane < 8) out[8]",
        "if (lane < 7) out[8]",
        "hangs|diverged",
    ),
    "a barrier that half of the threads reach": (
        "exchanges",
        "    __syncwarp();\n",
        "    if (thread < 32) __syncthreads();\n",
        "hangs|waits at the barrier",
    ),
}


@pytest.mark.emulator
@pytest.mark.parametrize("mistake", MISTAKES)
def test_emulator_catches(mistake: str) -> None:
    name, before, after, message = MISTAKES[mistake]
    source = text()
    assert before in source, "the mistake no longer applies"
    case = CASES[name](np.random.default_rng())
    with pytest.raises(AssertionError, match=message):
        changed = source.replace(before, after)
        emulated(name, case.threads, case.a, case.b, case.out, changed, case.boxed)
        check(name, case, case.out)


# The copy engine brings boxes of the first one, and pixels of the second one; a driver has no map
# for the others.
ABLE = Boxes(4, (40, 12, 5), (160, 1920), (32, 8, 1))
ABLE_PIXELS = Pixels(4, (40, 12, 5, 3), (160, 1920, 9600), (-128, 0), (127, -4), (2, 8), 32, 1024)
UNABLE: dict[str, tuple[int, Boxes | Pixels]] = {
    "an address between chunks": (8, ABLE),
    "rows between chunks": (0, ABLE._replace(strides=(168, 2016))),
    "planes between chunks": (0, ABLE._replace(strides=(160, 1928))),
    "planes too far from each other": (0, ABLE._replace(strides=(160, 2**40))),
    "no elements": (0, ABLE._replace(sizes=(0, 12, 5))),
    "too many rows": (0, ABLE._replace(sizes=(40, 2**32 + 16, 5))),
    "a box of no rows": (0, ABLE._replace(box=(32, 0, 1))),
    "a box of too many rows": (0, ABLE._replace(box=(32, 257, 1))),
    "a box of rows of more than 128 bytes": (0, ABLE._replace(box=(64, 8, 1))),
    "pixels between chunks": (0, ABLE_PIXELS._replace(strides=(168, 1920, 9600))),
    "no pixels": (0, ABLE_PIXELS._replace(sizes=(40, 0, 5, 3))),
    "a window that begins too far before": (0, ABLE_PIXELS._replace(lower=(-129, 0))),
    "a window that ends too far after": (0, ABLE_PIXELS._replace(upper=(128, -4))),
    "a window of no pixels": (0, ABLE_PIXELS._replace(upper=(127, -5))),
    "a window that ends too far before": (0, ABLE_PIXELS._replace(upper=(127, -129))),
    "steps too long": (0, ABLE_PIXELS._replace(steps=(9, 1))),
    "too many pixels": (0, ABLE_PIXELS._replace(pixels=1025)),
    "channels of more than 128 bytes": (0, ABLE_PIXELS._replace(channels=64)),
}
every_unable = pytest.mark.parametrize("kind", UNABLE)


@pytest.mark.emulator
@every_unable
def test_emulator_has_no_tensor_map(kind: str) -> None:
    shift, described = UNABLE[kind]
    device = EmulatedDevice()
    assert len(device.tensor_map(2**20, ABLE)) == WORDS
    assert len(device.tensor_map(2**20, ABLE_PIXELS)) == WORDS
    with pytest.raises(KernelError, match="no tensor map"):
        device.tensor_map(2**20 + shift, described)


@pytest.mark.gpu
@pytest.mark.wgmma
@every_unable
def test_driver_has_no_tensor_map(kind: str) -> None:
    import cupy

    shift, described = UNABLE[kind]
    address = cupy.empty(8192, np.uint32).data.ptr
    assert len(_tensor_maps.encode(address, ABLE)) == WORDS
    assert len(_tensor_maps.encode(address, ABLE_PIXELS)) == WORDS
    too_long = described.row > 128  # for a swizzle
    with pytest.raises(KeyError if too_long else cupy.cuda.driver.CUDADriverError):
        _tensor_maps.encode(address + shift, described)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("__shared__ int flag; if (threadIdx.x == 0) flag = p.a[0]; p.out[threadIdx.x] = flag;",
         "race|nothing wrote"),
        ("__shared__ int flag; p.out[threadIdx.x] = flag;", "nothing wrote"),
        ("__shared__ int flags[32]; if (threadIdx.x) flags[threadIdx.x] = 1; __syncthreads();"
         " p.out[threadIdx.x] = flags[0];", "nothing wrote"),
        ("if (threadIdx.x) p.out[threadIdx.x] = 1;", "nobody wrote"),
    ],
)  # fmt: skip
def test_emulator_sees_fixed_places(body: str, message: str) -> None:
    """Accesses to shared memory at a place that the compiler knows are seen as well."""
    source = (
        "struct Arguments { const int* a; const int* b; int* out; };\n"
        'extern "C" __global__ void body(const __grid_constant__ Arguments p) '
        f"{{ {body} }}\n"
    )
    a = np.ones(32, np.int32)
    with pytest.raises(KernelError, match=message):
        emulated("body", 32, a, a, np.empty(32, np.int32), source)


@pytest.mark.emulator
def test_one_buffer_is_two_arrays() -> None:
    """Elements between those of a view are out of bounds."""
    source = (
        "struct Arguments { const int* a; const int* b; int* out; };\n"
        'extern "C" __global__ void copy(const __grid_constant__ Arguments p) '
        "{ p.out[threadIdx.x] = p.a[threadIdx.x]; }\n"
    )
    every_other = np.arange(64, dtype=np.int32)[::2]
    out = np.empty(32, np.int32)
    with pytest.raises(KernelError, match="between the elements"):
        emulated("copy", 32, every_other, every_other, out, source)


@pytest.mark.emulator
def test_emulator_needs_no_cuda_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an emulated kernel includes lies beside the emulator or belongs to the C++ compiler."""
    for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"):
        monkeypatch.delenv(name, raising=False)
    for source in ("direct_conv.cu", "normalize.cu", "max_pool2d.cu"):
        chosen = next(i for i in instances("sm_90a") if i.source == source)
        defines = [f"-D{name}={value}" for name, value in chosen.defines]
        command = ["g++", f"-I{FILE.parent}", *FLAGS, *defines, "-M", "-x", "c++", "-"]
        code = f'#include "vocabulary.hpp"\n{_compile.source(source)}'
        rule = subprocess.run(
            command, input=code, capture_output=True, text=True, check=True
        ).stdout
        headers = [Path(word) for word in rule.replace("\\\n", " ").split()[2:]]
        assert {path.name for path in headers} >= {"vocabulary.hpp", "runtime.hpp"}
        for path in headers:
            assert path.parent == FILE.parent or path.is_relative_to("/usr"), path
            assert "cuda" not in str(path), path


@pytest.mark.emulator
@pytest.mark.parametrize("element", ["float", "float16", "bfloat16"])
def test_emulator_sees_arguments(element: str) -> None:
    """Numbers beside an array are seen as well where a call takes them as they are."""
    source = (
        _compile._inlined("scalar.cuh", set())
        + f"""
struct Arguments {{ const {element}* a; const {element}* b; float* out; }};
extern "C" __global__ void body(const __grid_constant__ Arguments p) {{
    p.out[threadIdx.x] = widen<float>(p.a[threadIdx.x + 1]);
}}
"""
    )
    memory = np.ones(64, np.float32 if element == "float" else np.uint16)
    with pytest.raises(KernelError, match="out of bounds"):
        emulated("body", 32, memory[:32], memory[:32], np.empty(32, np.float32), source)
