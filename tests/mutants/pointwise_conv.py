"""Mutants of the pointwise kernel."""

from __future__ import annotations

from mutants import Mutant, Suite, enormous
from strategies import convolution

POINTWISE_CONV = "pointwise_conv.cu"

# Inputs that come in bulk, in pieces, or straight from memory; weights that are packed, or lie as
# they are copied.
CASES = {
    "bulk": convolution(
        "conv1d", (3, 150, 700), (400, 75, 1), bias=True, groups=2, precision="tf32"
    ),
    "pieces": convolution(
        "conv1d", (3, 160, 302), (240, 80, 1), bias=True, groups=2, precision="tf32"
    ),
    "odd": convolution(
        "conv1d", (3, 150, 333), (240, 75, 1), bias=True, groups=2, precision="tf32"
    ),
    "ring": convolution("conv_transpose1d", (1, 600, 300), (600, 70, 1), precision="tf32"),
    "stay": convolution("conv1d", (2, 200, 300), (120, 200, 1), precision="tf32"),
}
CASES["infinite"] = enormous(CASES["bulk"])
CASES["infinite, odd"] = enormous(
    convolution("conv1d", (3, 80, 333), (200, 40, 1), bias=True, groups=2, precision="tf32")
)

MUTANTS = {
    "the same turn of all stages": Mutant("stage = 0, parity ^= 1", "stage = 0", case="ring"),
    "large pieces that are not aligned": Mutant(
        "            if (aligned)\n", "            if (both)\n", case="pieces",
    ),
    "one arrival for the pieces of all": Mutant("(p.bulk ? 0 : TEAM) + 1", "1", case="pieces"),
    "copies that no arrival waits for": Mutant(
        "copy_async_arrive(full);", "mbarrier_arrive(full);", case="pieces",
    ),
    "weights that come once": Mutant(
        "brought = brought && !p.stay;", "brought = false;", case="ring",
    ),
    "no room for weights that stay": Mutant(
        "int(p.stay ? p.chunks : p.stages)", "int(p.stages)", case="stay",
    ),
    "slabs of one step": Mutant("slab + (step * HELD + h) * SLAB", "slab + h * SLAB", case="bulk"),
    "tiles of the first sample": Mutant("return {sample, (tile", "return {0, (tile", case="bulk"),
    "infinite parts": Mutant("__any_sync(~0u, found)", "false", case="infinite"),
    "another slab where a sum is infinite": Mutant(
        "(p, memory, tile, h);", "(p, memory, tile, 0);", case="infinite",
    ),
    "scattered sums that are infinite where others are": Mutant(
        "repair<TOGETHER, Worker>", "repair<true, Worker>", case="infinite, odd",
    ),
    "weights of the first group where a sum is infinite": Mutant(
        "p.weight + group * p.weight_group + row * p.weight_row;", "p.weight + row * p.weight_row;",
        case="infinite",
    ),
}  # fmt: skip

SUITE = Suite(
    "pointwise",
    POINTWISE_CONV,
    MUTANTS,
    CASES,
    kernels=("pointwise",),
    files=(POINTWISE_CONV,),
)
