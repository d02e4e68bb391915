"""Filters of images beside cupyx.scipy: ``python -m benchmarks.on_filters``.

- Borders: square kernels on one image, with a padding mode and without one, beside
  ``cupyx.scipy.ndimage.correlate`` with the same border.
- Large kernels: ``method="fft"`` beside ``fftconvolve`` and ``oaconvolve`` of
  ``cupyx.scipy.signal``, and beside sums over taps.
- A separable filter of a stack, beside ``ndimage.correlate1d`` along both axes and two copies.
- A stack of images and one kernel: ``cupyconv.signal.convolve`` over two axes beside a loop of
  ``cupyx.scipy.signal.convolve2d``.

``--random N`` times both methods on N random calls with large kernels instead, and prints how long
the method that "auto" takes needs, over the better one.

All arrays are float32 and random. Results are compared before they are timed. Times are medians by
CUDA events with the L2 cache flushed. ``--json`` writes a record.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cupyconv
import cupyconv.signal

from . import run, timing

COMMAND = "python -m benchmarks.on_filters"
SECONDS = 0.3  # of a case
IMAGE = (2048, 2048)
WIDTHS = (5, 7, 9, 11, 13, 15)
STACK, STACK_WIDTH, SEPARABLE_TAPS = (64, 512, 512), 7, 13
# Padding modes, by the words of ndimage.
MODES = {"reflect": "mirror", "symmetric": "reflect", "edge": "nearest", "wrap": "wrap"}
TOLERANCE = 1e-4  # of the largest result: both sums are float32

LARGE = (  # name, input, weight, groups
    ("volume 256^3 by 31^3", (1, 1, 256, 256, 256), (1, 1, 31, 31, 31), 1),
    ("40 filters of 31^2", (16, 1, 256, 256), (40, 1, 31, 31), 1),
    ("depthwise 31^2", (4, 16, 512, 512), (16, 1, 31, 31), 16),
    ("image 2048^2 by 51^2", (1, 1, 2048, 2048), (1, 1, 51, 51), 1),
    ("signals by 48,000 taps", (8, 1, 480_000), (1, 1, 48_000), 1),
    ("volume 512^3 by 65^3", (1, 1, 512, 512, 512), (1, 1, 65, 65, 65), 1),
)

Calls = Mapping[str, Callable[[], Any]]


def calls() -> Iterator[tuple[str, Calls]]:
    """Yield each case: its name, and the calls that are timed; all but "absent" agree."""
    import cupy
    from cupyx.scipy import ndimage, signal

    def normal(*shape: int) -> Any:
        return cupy.random.standard_normal(shape, dtype=cupy.float32)

    image = normal(*IMAGE)
    for width in WIDTHS:
        kernel = normal(width, width)
        for mode, word in MODES.items() if width == 9 else [("reflect", MODES["reflect"])]:
            options = {"padding": width // 2, "padding_mode": mode}
            arguments = image[None], kernel[None, None]
            yield (
                f"{mode} {width} x {width}",
                {
                    "ours": lambda a=arguments, o=options: cupyconv.conv2d(*a, **o)[0],
                    "ndimage": lambda k=kernel, w=word: ndimage.correlate(image, k, mode=w),
                    "absent": lambda a=arguments, w=width: cupyconv.conv2d(*a, padding=w // 2)[0],
                },
            )
    stack, kernel = normal(*STACK), normal(STACK_WIDTH, STACK_WIDTH)
    taps = normal(SEPARABLE_TAPS)
    half = SEPARABLE_TAPS // 2

    def passes() -> Any:
        down, across = taps[None, None, :, None], taps[None, None, None]
        once = cupyconv.conv2d(stack[:, None], down, padding=(half, 0), padding_mode="reflect")
        twice = cupyconv.conv2d(once, across, padding=(0, half), padding_mode="reflect")
        return twice[:, 0]

    def ndimage_passes() -> Any:
        once = ndimage.correlate1d(stack, taps, axis=1, mode="mirror")
        return ndimage.correlate1d(once, taps, axis=2, mode="mirror")

    yield (
        f"stack {STACK} by {SEPARABLE_TAPS} + {SEPARABLE_TAPS} taps, reflect",
        {
            "ours": passes,
            "ndimage": ndimage_passes,
            "two copies": lambda: stack.copy().copy(),
        },
    )
    convolve = cupyconv.signal.convolve
    yield (
        f"stack {STACK} by {STACK_WIDTH} x {STACK_WIDTH}",
        {
            "ours": lambda: convolve(stack, kernel[None], mode="same", axes=(1, 2)),
            "loop of convolve2d": lambda: cupy.stack(
                [signal.convolve2d(one, kernel, mode="same") for one in stack]
            ),
        },
    )


def large_calls() -> Iterator[tuple[str, Calls]]:
    """Yield the calls with large kernels."""
    import cupy
    from cupyx.scipy import signal

    for name, shape, kernel, groups in LARGE:
        x = cupy.random.standard_normal(shape, dtype=cupy.float32)
        w = cupy.random.standard_normal(kernel, dtype=cupy.float32)
        axes = tuple(range(2, x.ndim))
        flipped = cupy.ascontiguousarray(cupy.flip(w, axes)).swapaxes(0, 1)

        def ours(method: str = "fft", x: Any = x, w: Any = w, groups: int = groups) -> Any:
            return cupyconv.conv(x, w, padding="same", groups=groups, method=method)

        def peer(function: Any, x: Any = x, w: Any = flipped, axes: Any = axes) -> Any:
            # The middle is cut out here, as "same" would also cut the axis that is broadcast.
            full = function(x, w, axes=axes)
            cuts = (k // 2 for k in w.shape[2:])
            middle = (slice(cut, cut + n) for cut, n in zip(cuts, x.shape[2:], strict=True))
            return full[(..., *middle)]

        found = {
            "ours": ours,
            "fftconvolve": lambda peer=peer: peer(signal.fftconvolve),
            "oaconvolve": lambda peer=peer: peer(signal.oaconvolve),
        }
        if x.ndim == 5:
            del found["oaconvolve"]  # it takes many times as long
        if x.ndim == 4:
            found["direct"] = lambda ours=ours: ours("direct")
        yield name, found


def random_large(count: int, seed: int) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """Yield random calls: a name, the shapes of input and weight, and the options."""
    rng = random.Random(seed)

    def log_uniform(low: float, high: float) -> int:
        return round(math.exp(rng.uniform(math.log(low), math.log(high))))

    found = 0
    while found < count:
        rank = rng.choice((1, 2, 2, 3))
        taps = {1: (10, 50_000), 2: (5, 65), 3: (3, 31)}[rank]
        sizes = {1: (500, 1_000_000), 2: (16, 2048), 3: (8, 256)}[rank]
        width, size = log_uniform(*taps), log_uniform(*sizes)
        batch = log_uniform(1, 32)
        kind = rng.choice(("single", "few", "depthwise", "dense"))
        channels, rows, groups = {
            "single": (1, 1, 1),
            "few": (rng.choice((1, 3)), log_uniform(1, 64), 1),
            "depthwise": (1, 1, log_uniform(2, 64)),
            "dense": (log_uniform(2, 64), log_uniform(2, 64), 1),
        }[kind]
        shape = (batch, groups * channels, *(size,) * rank)
        kernel = (groups * rows, channels, *(width,) * rank)
        results = batch * groups * rows * size**rank
        if width > size or max(math.prod(shape), results) > 2**27 or math.prod(kernel) > 2**25:
            continue
        if not 1e6 < results * channels * width**rank < 2e12:
            continue
        found += 1
        yield f"{kind} {shape} {kernel}", shape, kernel, {"groups": groups, "padding": "same"}


def compare_methods(count: int, seed: int, watch: timing.Stopwatch) -> Iterator[dict[str, Any]]:
    """Yield the microseconds of both methods on random calls, and which one "auto" takes."""
    import cupy

    for name, shape, kernel, options in random_large(count, seed):
        x = cupy.random.standard_normal(shape, dtype=cupy.float32)
        w = cupy.random.standard_normal(kernel, dtype=cupy.float32)

        def call(method: str, x: Any = x, w: Any = w, options: Any = options) -> Any:
            return cupyconv.conv(x, w, method=method, **options)

        auto = cupyconv.explain(cupyconv.conv, x, w, method="auto", **options)
        direct, by_fft = call("direct"), call("fft")
        difference = float(cupy.linalg.norm((direct - by_fft).ravel()))
        difference /= float(cupy.linalg.norm(direct.ravel()))
        del direct, by_fft
        if not difference < TOLERANCE:
            raise AssertionError(f"{name}: results differ by {difference} in the norm")
        times = watch.alternate_within([lambda: call("direct"), lambda: call("fft")], 0.02)
        direct_us, fft_us = (1e3 * timing.median(own) for own in times)
        taken = "fft" if auto.kernel == "fft" else "direct"
        yield {"case": name, "direct": direct_us, "fft": fft_us, "auto": taken}
        del x, w
        cupy.get_default_memory_pool().free_all_blocks()


def show_methods(rows: list[dict[str, Any]]) -> None:
    ratios = sorted(row[row["auto"]] / min(row["direct"], row["fft"]) for row in rows)
    mean, high = sum(ratios) / len(ratios), ratios[int(0.95 * (len(ratios) - 1))]
    print(f"{len(ratios)} calls: mean {mean:.3f}, 95% {high:.2f}, worst {ratios[-1]:.2f}")


def measured(watch: timing.Stopwatch) -> Iterator[dict[str, Any]]:
    """Yield the microseconds of each case."""
    import cupy

    for name, case in itertools.chain(calls(), large_calls()):
        ours, other = (call() for call in list(case.values())[:2])
        difference = float(cupy.abs(ours - other).max() / cupy.abs(other).max())
        if not difference < TOLERANCE:
            raise AssertionError(f"{name}: results differ by {difference} of the largest one")
        del ours, other
        times = watch.alternate_within(list(case.values()), SECONDS)
        medians = {key: 1e3 * timing.median(own) for key, own in zip(case, times, strict=True)}
        yield {"case": name, **medians}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    rows = []
    with stream:
        watch = timing.Stopwatch()
        found = (
            compare_methods(options.random, options.seed, watch)
            if options.random
            else measured(watch)
        )
        for row in found:
            rows.append(row)
            times = [f"{k} {v:.1f} us" for k, v in row.items() if not isinstance(v, str)]
            print(f"{row['case']}: {', '.join(times)} {row.get('auto', '')}", flush=True)
        if options.random:
            show_methods(rows)
    if options.json:
        text = json.dumps({**run.about(COMMAND), "cases": rows}, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
