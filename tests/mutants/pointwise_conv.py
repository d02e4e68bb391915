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
    "weights of the first unit": Mutant(
        POINTWISE_CONV, "(int64(unit) * chunks + chunk)", "chunk",
        "wrong", case="bulk",
    ),
    "weights of the first chunk": Mutant(
        POINTWISE_CONV, "(int64(unit) * chunks + chunk)", "int64(unit) * chunks",
        "wrong", case="bulk",
    ),
    "no wait for packed weights": Mutant(
        POINTWISE_CONV, "wait_for_grids();  // where weights come from", "",
        "does not wait", case="bulk",
    ),
    "bytes of weights that nobody waits for": Mutant(
        POINTWISE_CONV, " + (brought ? WEIGHT_BYTES : 0));", ");",
        "hangs|nothing wrote|race", case="bulk",
    ),
    "bytes of inputs that nobody waits for": Mutant(
        POINTWISE_CONV, "(p.bulk ? count * bytes : 0) + ", "",
        "hangs|nothing wrote|race", case="bulk",
    ),
    "channels of the first warp": Mutant(
        POINTWISE_CONV, "        from += warp * stride, to += warp * PITCH;\n", "",
        "wrong|race|another thread|nothing wrote", case="bulk",
    ),
    "inputs behind the last channel": Mutant(
        POINTWISE_CONV, "channels < CHANNELS ? channels : CHANNELS", "CHANNELS",
        "out of bounds", case="bulk",
    ),
    "inputs behind the last position": Mutant(
        POINTWISE_CONV, "(left < PLACES_OF_BLOCK ? left : PLACES_OF_BLOCK)", "PLACES_OF_BLOCK",
        "out of bounds", case="pieces",
    ),
    "no wait for a stage to be empty": Mutant(
        POINTWISE_CONV, "mbarrier_wait(&barriers.empty[turn.stage], turn.parity ^ 1);", "",
        "race|one more than", case="ring",
    ),
    "no wait for a stage to be full": Mutant(
        POINTWISE_CONV, "mbarrier_wait(&barriers.full[turn.stage], turn.parity);\n        const",
        "const",
        "race|nothing wrote", case="bulk",
    ),
    "no wait for weights alone": Mutant(
        POINTWISE_CONV, "mbarrier_wait(&barriers.full[turn.stage], turn.parity);\n        fill",
        "fill",
        "race|nothing wrote", case="odd",
    ),
    "no barrier of the warp in front of a release": Mutant(
        POINTWISE_CONV, "wgmma_wait<0>();\n        __syncwarp();", "wgmma_wait<0>();",
        "race", case="ring",
    ),
    "no wait for products": Mutant(
        POINTWISE_CONV, "        wgmma_wait<0>();\n", "",
        "touched before the wait", case="bulk",
    ),
    "no fence in front of products": Mutant(
        POINTWISE_CONV, "        wgmma_fence();\n", "",
        "without a fence in front", case="bulk",
    ),
    "the same turn of all stages": Mutant(
        POINTWISE_CONV, "stage = 0, parity ^= 1", "stage = 0",
        "hangs|race|one more than", case="ring",
    ),
    "large pieces that are not aligned": Mutant(
        POINTWISE_CONV, "            if (aligned)\n", "            if (both)\n",
        "misaligned", case="pieces",
    ),
    "the first half of two pieces": Mutant(
        POINTWISE_CONV, "if (both) copy_async<8>(to + 8, from + 8, 8);", "",
        "nothing wrote|wrong", case="pieces",
    ),
    "a piece behind the last position": Mutant(
        POINTWISE_CONV, "const bool both = place + 8 < bytes,", "const bool both = true,",
        "out of bounds|wrong", case="pieces",
    ),
    "one arrival for the pieces of all": Mutant(
        POINTWISE_CONV, "(p.bulk ? 0 : TEAM) + 1", "1",
        "one more than|nothing wrote", case="pieces",
    ),
    "copies that no arrival waits for": Mutant(
        POINTWISE_CONV, "copy_async_arrive(full);", "mbarrier_arrive(full);",
        "nothing wrote|race|wrong", case="pieces",
    ),
    "weights that stay, of the first chunk": Mutant(
        POINTWISE_CONV, "(p.stay ? chunk : stage)", "(p.stay ? 0 : stage)",
        "wrong|race", case="stay",
    ),
    "weights that stay, through the ring": Mutant(
        POINTWISE_CONV, "(p.stay ? chunk : stage)", "stage",
        "wrong|race|nothing wrote", case="stay",
    ),
    "weights that come once": Mutant(
        POINTWISE_CONV, "brought = brought && !p.stay;", "brought = false;",
        "wrong|race|nothing wrote", case="ring",
    ),
    "no room for weights that stay": Mutant(
        POINTWISE_CONV, "int(p.stay ? p.chunks : p.stages)", "int(p.stages)",
        "wrong|race|out of bounds", case="stay",
    ),
    "the first slab again": Mutant(
        POINTWISE_CONV, "slab + (step * HELD + h) * SLAB", "slab + step * HELD * SLAB",
        "wrong", case="bulk",
    ),
    "slabs of one step": Mutant(
        POINTWISE_CONV, "slab + (step * HELD + h) * SLAB", "slab + h * SLAB",
        "wrong", case="bulk",
    ),
    "the first chunk again": Mutant(
        POINTWISE_CONV, "stage), chunk > 0);", "stage), chunk > 1);",
        "wrong", case="bulk",
    ),
    "channels of the first chunk": Mutant(
        POINTWISE_CONV, "        spots.channel += CHANNELS;\n        fill", "        fill",
        "nothing wrote|wrong|race", case="bulk",
    ),
    "channels behind the last one": Mutant(
        POINTWISE_CONV, "if (channel < left) own", "own",
        "nothing wrote|wrong|race", case="bulk",
    ),
    "positions behind the last one": Mutant(
        POINTWISE_CONV, "if (position >= int(p.space.size)) return false;", "",
        "out of bounds|another thread|race|wrong|nothing wrote", case="bulk",
    ),
    "tiles of the first sample": Mutant(
        POINTWISE_CONV, "return {sample, (tile", "return {0, (tile",
        "another thread|nobody wrote", case="bulk",
    ),
    "inputs of the first sample": Mutant(
        POINTWISE_CONV, "p.space.first + own.sample * p.space.input_batch +", "p.space.first +",
        "wrong", case="bulk",
    ),
    "inputs of the first group": Mutant(
        POINTWISE_CONV, "group * p.space.input_group + own.first);", "own.first);",
        "wrong", case="bulk",
    ),
    "positions of the first team": Mutant(
        POINTWISE_CONV, "first + int(threadIdx.x) / TEAM * TEAM_PLACES + ", "first + ",
        "another thread|nobody wrote", case="bulk",
    ),
    "biases of the first slab": Mutant(
        POINTWISE_CONV, "spots.out, biases + first,", "spots.out, biases,",
        "wrong", case="bulk",
    ),
    "bias of the first group": Mutant(
        POINTWISE_CONV, "load_parameter<float>(p.bias, group * p.rows + row)",
        "load_parameter<float>(p.bias, row)",
        "wrong", case="bulk",
    ),
    "outputs of the first slab": Mutant(
        POINTWISE_CONV, "first_row + first, int(p.rows)", "first_row, int(p.rows)",
        "another thread|nobody wrote", case="bulk",
    ),
    "scattered channels of the first thread": Mutant(
        POINTWISE_CONV, "place.input + spots.channel * p.space.input_channel;", "place.input;",
        "wrong", case="odd",
    ),
    "infinite parts": Mutant(
        POINTWISE_CONV, "__any_sync(~0u, found)", "false",
        "wrong", case="infinite",
    ),
    "another slab where a sum is infinite": Mutant(
        POINTWISE_CONV, "(p, memory, tile, h);", "(p, memory, tile, 0);",
        "wrong", case="infinite",
    ),
    "scattered sums that are infinite where others are": Mutant(
        POINTWISE_CONV, "repair<TOGETHER, Worker>", "repair<true, Worker>",
        "wrong|another thread", case="infinite, odd",
    ),
    "weights of the first group where a sum is infinite": Mutant(
        POINTWISE_CONV, "p.weight + group * p.weight_group + row * p.weight_row;",
        "p.weight + row * p.weight_row;",
        "wrong", case="infinite",
    ),
}  # fmt: skip

SUITE = Suite("pointwise", POINTWISE_CONV, MUTANTS, CASES, kernels=("pointwise",))
