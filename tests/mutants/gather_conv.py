"""Mutants of the gathering kernel."""

from __future__ import annotations

import numpy as np

from mutants import Mutant, Suite, depthwise, infinite
from strategies import Convolution

GATHER_CONV = "gather_conv.cu"


def scattered(case: Convolution) -> Convolution:
    """The case with the channels of a place next to each other in memory."""
    x = np.moveaxis(case["input"], 1, -1).copy()
    return case.with_arrays(input=np.moveaxis(x, -1, 1))


# Several bands and tiles of channels, neither divided evenly, and whole images.
CASES = {
    "steps": depthwise("conv2d", (3, 7, 23, 39), (4, 3), 2, padding=1, stride=2),
    "image": depthwise("conv2d", (2, 5, 61, 53), (4, 3), padding=2),
    "channels": depthwise("conv2d", (2, 70, 7, 7), (4, 3), padding=1),
    "three axes": depthwise("conv3d", (2, 3, 7, 9, 14), (3, 2, 3), 2, padding=1, stride=(2, 1, 2)),
    "dilated": depthwise("conv2d", (2, 5, 21, 45), (3, 3), 2, padding=(2, 3), dilation=(2, 3)),
    "flipped": depthwise("conv_transpose2d", (2, 3, 13, 18), (4, 3), 2, padding=1),
    # Strips.
    "strips": depthwise("conv2d", (2, 5, 61, 53), (3, 3), 2, padding=1),
    "strips with steps": depthwise("conv2d", (3, 7, 61, 39), (5, 5), 2, padding=2, stride=2),
    "strips of channels": depthwise("conv2d", (2, 70, 9, 7), (3, 3), padding=1),
    "strips of some lines": depthwise("conv2d", (2, 30, 10, 9), (3, 3), stride=2),
    "strips of planes": depthwise(
        "conv3d", (2, 3, 15, 11, 14), (3, 3, 3), 2, padding=1, stride=(2, 1, 2)
    ),
    "bands of planes": depthwise(
        "conv3d", (1, 2, 15, 11, 14), (3, 3, 3), padding=1, stride=(2, 1, 2)
    ),
    "wide strips": depthwise("conv2d", (1, 5, 44, 30), (7, 7), padding=3),
    "wide image of strips": depthwise("conv2d", (1, 3, 30, 300), (3, 3), padding=1),
    "far strips": depthwise("conv2d", (1, 5, 2, 30), (3, 3), padding=14),
    "even strips": depthwise("conv2d", (1, 5, 64, 30), (3, 3), padding=1),
}
CASES["infinite"] = infinite(CASES["image"])
CASES["scattered"] = scattered(CASES["steps"])
CASES["infinite strips"] = infinite(CASES["strips"])
# Lines that begin anywhere: the first of them too.
STEPS = CASES["steps"]["input"]
SHIFTED = np.concatenate([[0], STEPS.ravel()]).astype(np.float32)[1:].reshape(STEPS.shape)
CASES["shifted"] = CASES["steps"].with_arrays(input=SHIFTED)
FLIPPED = CASES["flipped"]
CASES["rows first"] = FLIPPED.with_arrays(
    weight=FLIPPED["weight"].swapaxes(0, 1).copy().swapaxes(0, 1)
)

MUTANTS = {
    "chunks that do not lie as their inputs": Mutant(
        "sizeof(Element)) & (CHUNK - 1) : 0;", "sizeof(Element) + 1) & (CHUNK - 1) : 0;",
        case="channels", chunks=True,
    ),
    "inputs without skew": Mutant(
        ": channel * int(p.room) + skew(channel);", ": channel * int(p.room);", case="steps",
    ),
    "channels apart that lie together": Mutant(
        "p.joined ? channel * elements + skew(0) : ", "", case="channels",
    ),
    "whole chunks from the first element on": Mutant(
        "bulk_copy(own.to + own.before, own.from + own.before,", "bulk_copy(own.to, own.from,",
        case="steps",
    ),
    "a chunk too far": Mutant(
        "element + CHUNK <= length)", "element + CHUNK <= length + 1)", case="strips with steps",
        chunks=True,
    ),
    "flipped kernel": Mutant(
        "ay.weight_first + ax.weight_first +", "ay.weight_first +", case="flipped",
    ),
    "bias of the first channels": Mutant(
        "load_parameter<Accumulator>(p.bias, number(threadIdx.x));",
        "load_parameter<Accumulator>(p.bias, threadIdx.x);", case="channels",
    ),
    "taps next to each other": Mutant(
        "first[i][line + x * apart];", "first[i][line + x];", case="dilated",
    ),
    # Strips.
    "channels of the first team": Mutant(
        "for (int c = team; c < count;", "for (int c = 0; c < count;", case="strips of channels",
    ),
    "weights of the first plane": Mutant(
        "int(az.apart * az.pitch), weight += PLANE)", "int(az.apart * az.pitch))",
        case="strips of planes",
    ),
    "strips without steps": Mutant(
        "const int tap = r - o * STEP;", "const int tap = r - o;", case="strips with steps",
    ),
    "parts of vectors that nobody writes": Mutant(
        "k < PLANE * TOGETHER; ++k)", "k <= HEIGHT * TAPS; ++k)", case="strips",
    ),
    "weights without room for the bias": Mutant(
        "weights[i / AREA * PLANE].values + i % AREA", "weights[0].values + i", case="strips",
    ),
}  # fmt: skip

SUITE = Suite(
    "gather",
    GATHER_CONV,
    MUTANTS,
    CASES,
    kernels=("gather",),
    by_chunks=("steps", "channels", "strips with steps", "image", "shifted"),
    files=(GATHER_CONV, "division.cuh"),
)
