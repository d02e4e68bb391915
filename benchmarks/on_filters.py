"""Filters of images beside cupyx.scipy: ``python -m benchmarks.on_filters``.

- Borders: square kernels on one image, with a padding mode and without one, beside
  ``cupyx.scipy.ndimage.correlate`` with the same border.
- A stack of images and one kernel: ``cupyconv.signal.convolve`` over two axes beside a loop of
  ``cupyx.scipy.signal.convolve2d``.

All arrays are float32 and random. Results are compared before they are timed. Times are medians by
CUDA events with the L2 cache flushed. ``--json`` writes a record.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import cupyconv
import cupyconv.signal

from . import timing

COMMAND = "python -m benchmarks.on_filters"
SECONDS = 0.3  # of a case
IMAGE = (2048, 2048)
WIDTHS = (5, 7, 9, 11, 13, 15)
STACK, STACK_WIDTH = (64, 512, 512), 7
# Padding modes, by the words of ndimage.
MODES = {"reflect": "mirror", "symmetric": "reflect", "edge": "nearest", "wrap": "wrap"}
TOLERANCE = 1e-4  # of the largest result: both sums are float32

Calls = Mapping[str, Callable[[], Any]]


def calls() -> Iterator[tuple[str, Calls]]:
    """Yield each case: its name, and the calls that are timed; all but "absent" agree."""
    import cupy
    from cupyx.scipy import ndimage, signal

    def random(*shape: int) -> Any:
        return cupy.random.standard_normal(shape, dtype=cupy.float32)

    image = random(*IMAGE)
    for width in WIDTHS:
        kernel = random(width, width)
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
    stack, kernel = random(*STACK), random(STACK_WIDTH, STACK_WIDTH)
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


def measured(watch: timing.Stopwatch) -> Iterator[dict[str, Any]]:
    """Yield the microseconds of each case."""
    import cupy

    for name, case in calls():
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
    options = parser.parse_args()
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    rows = []
    with stream:
        for row in measured(timing.Stopwatch()):
            rows.append(row)
            times = ", ".join(f"{k} {v:.1f} us" for k, v in row.items() if k != "case")
            print(f"{row['case']}: {times}", flush=True)
    if options.json:
        versions = {"cupyconv": cupyconv.__version__, "cupy": cupy.__version__}
        about = {"command": COMMAND, "date": date.today().isoformat(), "gpu": gpu}
        text = json.dumps({**about, "versions": versions, "cases": rows}, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
