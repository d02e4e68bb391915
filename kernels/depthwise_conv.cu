// Convolutions of one input channel for each group, in both directions, on one to three axes.
//
//     out[n, g, row, o] = bias[g, row] + sum over taps of in[n, g, i(o, tap)] * w[g, row, tap]
//
// where i(o, tap) follows from the tap table (taps.cuh), and taps whose input lies outside of the
// array contribute nothing, whatever the weight. There is little to multiply, so memory is the limit:
// the kernel reads inputs once, writes outputs once, and spends few instructions in between.
//
// A tile is a box of outputs of some channels. The producer (depthwise_stage.cuh) stages its inputs,
// with the halo that taps reach, in shared memory line by line, with zeros where the array has
// nothing. In the mainloop (depthwise_fma.cuh) a thread computes LINES lines of two outputs at a time.
//
//     staged lines of a channel                   outputs of a thread, where taps slide
//     +---------------------------------+
//     | halo                            |              x  x+1
//     |   +---------+---------+-----+   |            +----+----+
//     |   | LINES   |         |     |   |        y   | ## | ## |    window of a line: TAPS + 1
//     |   | x width |         |     |   |        y+1 | ## | ## |    inputs, for TAPS taps of both
//     |   +---------+---------+-----+   |        ... | ## | ## |
//     |   |         |         |     |   |            +----+----+
//     |   +---------+---------+-----+   |        the windows of LINES lines are in registers: for the
//     |                                 |        next y of the kernel, one new window is read
//     +---------------------------------+
//
// Taps slide where neighbouring outputs read neighbouring inputs and the kernel is TAPS wide. For all
// other geometries, with steps, dilation or phases, each tap reads its inputs; the two outputs of a
// thread are then half a line apart, so that neighbouring threads have neighbouring outputs. If the
// output has one line, that line is cut into LINES sections.
//
// 16-bit elements whose taps slide may be multiplied by Tensor Cores (depthwise_mma.cuh).
//
// Neighbouring inputs are read 16 bytes at a time, wherever lines begin: the pitches of shared memory
// equal the strides of the array modulo 16 bytes, so that an address is aligned in both or in neither.
// That needs even strides; inputs with odd strides are read element by element. Where the lines of the
// array are whole chunks of 16 bytes, each staged line is one bulk copy (compute capability 9.0 and
// later).
//
// A sum runs over z, y and x of the taps in the order of their inputs, in one thread; or over lines of
// taps in that order, each on a Tensor Core. Zeros that stand in for absent inputs would become NaN
// with an infinite or NaN weight, so the outputs of a row with such a weight are computed under a mask. With a padding
// mode no input is absent: tiles at the borders fill their halo from the array.
//
// Macros (set by cupyconv/_kernels/depthwise_conv.py, read in depthwise_tile.cuh):
//     ELEMENT     type of input, weight and output elements (scalar.cuh), a real floating type
//     TAPS        width of the kernels whose taps slide, odd
//     LINES       lines of outputs of a thread
//     RESIDENT    blocks that a multiprocessor shall hold, which bounds the registers
//     MATRIX      1 for Tensor Cores: kernels up to 9 wide, whose taps slide; TAPS is 1 then
//
// Launch: THREADS threads, any number of blocks; each takes every gridDim.x-th tile. Tiles run over the
// rows of a group fastest, because they share inputs, then over x, y, z, channels and samples.

#include "depthwise_tile.cuh"
#include "depthwise_stage.cuh"
#include "depthwise_fma.cuh"
#include "depthwise_mma.cuh"

// The mainloop of this instance.
template <bool ON_TENSOR_CORES>
struct MainloopOf {
    typedef FmaMainloop type;
};
template <>
struct MainloopOf<true> {
    typedef TensorCoreMainloop<Element> type;
};
typedef MainloopOf<TENSOR_CORES>::type Mainloop;

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    depthwise_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(bytes);
    const SharedMemory memory(p, bytes);
    const int axis = threadIdx.x / MAX_PHASES, phase = threadIdx.x % MAX_PHASES;
    if (axis < 3 && phase < int(p.axis[axis].taps.phases))
        memory.taps[axis][phase] = ascending_taps(p.axis[axis], phase);
    const Producer producer{p, memory};
    producer.begin();
    __syncthreads();

    for (int turn = 0; blockIdx.x + turn * gridDim.x < unsigned(p.tiles); ++turn) {
        const Tile tile(p, blockIdx.x + turn * gridDim.x);
        const StagedLines lines(p, memory, tile);
        const bool special = producer.stage(lines, turn);
        Mainloop{p, memory, tile, lines.start}.compute(special);
        __syncthreads();  // before the next tile is described
    }
}
