"""A network as a CUDA graph beside PyTorch's: ``python -m benchmarks.on_graphs``.

The 53 convolutions of ResNet-50 run one after the other in a captured graph, each on arrays of its
own, without norms and activations. All arrays have their channels innermost, ours as views and with
``out=``, PyTorch's in its format ``channels_last``. Results are compared before they are timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import cupyconv

from . import peers, timing
from .data import uniform, with_channels_last

MOST_ERROR = 5e-3  # of the largest number of a result: both round to float16
REPEATS = 30


class Layer(NamedTuple):
    """A convolution of square images: input channels, output channels, taps, step and size."""

    channels: int
    rows: int
    kernel: int
    stride: int
    size: int


def resnet50() -> Iterator[Layer]:
    """Yield the convolutions of ResNet-50 in the order in which they run."""
    yield Layer(3, 64, 7, 2, 224)
    size, channels = 56, 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            after = size // stride
            yield Layer(channels, width, 1, 1, size)
            yield Layer(width, width, 3, stride, size)
            yield Layer(width, 4 * width, 1, 1, after)
            if block == 0:
                yield Layer(channels, 4 * width, 1, stride, size)
            size, channels = after, 4 * width


def prepared(layer: Layer, batch: int, seed: int) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Return input and weight of a layer, and its options."""
    channels, rows, kernel, stride, size = layer
    data = uniform((batch, channels, size, size), np.dtype(np.float16), seed, -1.0)
    weight = uniform((rows, channels, kernel, kernel), np.dtype(np.float16), seed + 1, -1.0)
    options = {"stride": stride, "padding": kernel // 2}
    return (with_channels_last(data), with_channels_last(weight)), options


def milliseconds(batch: int, torch: peers.Torch, stream: Any) -> tuple[float, float]:
    """Return the times of both graphs."""
    import cupy

    layers = [prepared(layer, batch, 2 * i) for i, layer in enumerate(resnet50())]
    outs = [with_channels_last(cupyconv.conv2d(*arrays, **options)) for arrays, options in layers]

    def ours() -> None:
        for (arrays, options), out in zip(layers, outs, strict=True):
            cupyconv.conv2d(*arrays, **options, out=out)

    theirs, found = torch.sequence("conv2d", layers)
    for run in (ours, theirs, ours, theirs):
        run()
    for out, other in zip(outs, found(), strict=True):
        difference = cupy.abs(out.astype(np.float32) - other.astype(np.float32)).max()
        assert difference <= MOST_ERROR * cupy.abs(out).max()
    stream.synchronize()
    stream.begin_capture()
    ours()
    graph, replay = stream.end_capture(), torch.captured(theirs)
    calls = [lambda: graph.launch(stream), replay]
    watch = timing.Stopwatch()
    watch.alternate(calls, 3)
    mine, other = map(timing.median, watch.alternate(calls, REPEATS))
    return mine, other


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    options = parser.parse_args()
    torch = peers.load()
    if torch is None:
        parser.error("PyTorch and a GPU are needed")
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, torch.on(stream):
        for batch in options.batch:
            mine, other = milliseconds(batch, torch, stream)
            print(f"batch {batch}: {mine:.3f} ms, PyTorch {other:.3f}, {other / mine:.2f}")


if __name__ == "__main__":
    main()
