// Convolution on Tensor Cores, in both directions, as an implicit GEMM: for float32 (by three products or by one, of
// TF32 or of float16 numbers), float16 and bfloat16.
//
//     out[n, g, row, o] = bias[g, row]
//                       + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// The directions, convolution and transposed convolution, differ in i(o, tap) alone (taps.cuh). Outputs of one residue
// modulo the stride of a transposed convolution have the same taps: they are a "phase", and a block stays in one. Other
// calls have a single phase, and so has an axis whose phases are packed into rows or pooled.
//
// A block computes tiles of ROWS output channels (M) by COLUMNS output positions (N). K runs over channels and taps; a
// K step is the depth of one instruction, 32 bytes of channels, at one tap. No matrix of windows is ever stored: in
// shared memory a tap of y and x is a shifted start address of the same inputs. matrix_tile.cuh explains this layout
// and its words, pack_weights.cu the layout of the weights, which it has packed before.
//
//     role          file                  structs and what they do
//     ----          ----                  ------------------------
//     parameters    matrix_arguments.cuh  Arguments, Shared, Memory: parameters and shared memory
//     scheduler     matrix_schedule.cuh   Schedule: which tiles a block computes, in which order
//                   matrix_passes.cuh     KLoop, Passes: the stages of a tile, and how often it goes through them
//     tables        matrix_layout.cuh     Layout: where inputs lie, the same for all tiles
//                   matrix_outputs.cuh    Outputs: where rows and columns lie, and which exist
//     producers     matrix_producer.cuh   WeightProducer, InputProducer: fill the stages
//     mainloop      matrix_consumer.cuh   Consumer: multiplies what is in the stages
//                   matrix_engine.cuh     WgmmaEngine, MmaEngine: the instructions
//     epilogue      matrix_store.cuh      Epilogue = Store: stores outputs, or
//                   matrix_pool.cuh       Epilogue = Pool: stores extrema of windows, and statistics (POOLS)
//                   matrix_exact.cuh      exact_sum: computes what is not finite again, from the arrays
//     variants      matrix_float16.cuh    Numbers: float16 emulation of float32 with exponent windows (OPERAND)
//
// Warps are specialised. The first TEAMS warpgroups are consumers: of two, each has its 64 rows of the tile or its half
// of the columns; a single one has all. Of the producer warps after them the first one loads weights, the others load
// inputs. With WgmmaEngine a block has four warpgroups in all, and two consumers, both of them at the same tile, take
// turns at the Tensor Cores, a group of steps at a time. Two rings of stages lie between producers and consumers, each
// stage with an mbarrier for "full" and one for "empty":
//
//     input, NCHW --> producer warps --> ring of `stages`:           --+
//                     (registers)        a few K blocks of the         |
//                                        tile's inputs with halo,      +--> consumer warpgroups --> epilogue --> out
//                                        one tap of z                  |    (sums in registers)
//     packed weights --> producer warp --> ring of `weight_stages`:  --+
//                        (bulk copies)     up to `group` K steps
//
// Inputs pass through registers and not by TMA: in NCHW neighbouring channels lie far apart, but side by side in the
// ring, and floats are rounded or split on the way. Where all tiles have the same weights, and these fit their ring
// (`resident`), they are copied once and stay.
//
//     all warps            for each sweep over tiles (one; with OPERAND another one of tiles that need more passes),
//                          for each of its tiles (Schedule), and for each pass over it (Passes):
//       WeightProducer       for each group of steps: wait until its stage is empty, copy
//       InputProducer        for each round of K blocks: wait until their stages are empty, convert and store the round
//                            before, load the next one
//       Consumer             describe rows and columns (Outputs), then for each stage (mainloop): wait until it is
//                            full, multiply, give it back; then add up passes (Numbers), and store (Epilogue)
//
// A stage of inputs consists of 16-byte chunks (`slot` in names; 4 channels of TF32, 8 of 16 bits):
//
//                chunk 0 1 2 3 ...                          one wgmma: 64 rows x SEGMENT columns
//       half 0 of K   # # # # # # # # # # # #               over the two halves of K
//       half 1 of K   # # # # # # # # # # # #
//                       \___________/                       the columns of a tap start at its
//                        columns of tap 1                   distance: a shifted start address
//
//       weights of a group of steps: [step][row tile][part][half of K][64 rows][16 bytes]
//
// Operands are not swizzled: a core matrix is 8 chunks in a row, and any chunk may be the first one. A column tile is
// chunks in a row, too: columns after the end of a row of the tile are multiplied as well, but not stored.
//
// Where a chunk holds all channels, half 1 is another tap of x: the same chunks, from another distance on.
//
// `Steps` in matrix_tile.cuh defines the order of a sum, whatever the tile, the grid or the batch: taps of z (the
// outermost loop), K blocks of channels, taps of y, taps of x; then the bias. For float32 accuracy (PARTS = 2) a float
// is split into a high and a low part, and the three products of parts of a few steps form chains, which are added to
// the sum with rounding (matrix_engine.cuh). Tile, grid and batch do not change the chains either.
//
// Absent inputs, and weights that a row does not have, are zeros that are multiplied, and an infinite float splits into
// infinity and NaN. So infinities and NaN may reach outputs that should not have them, and the epilogue computes each
// output that is not finite again (matrix_exact.cuh).
//
// Macros, beside the ones in matrix_tile.cuh and matrix_engine.cuh:
//     ENGINE       WgmmaEngine or MmaEngine
//     TEAMS        consumer warpgroups: 2, or 1 where tiles are small and mostly wait for their inputs
//     SLABS        row tiles (64 rows) of a block: 1, which its warpgroups share, or 2, one for each of two warpgroups
//                  or both for a single one
//     POOLS        1 where sums are not stored but pooled (matrix_pool.cuh)
//
// Launch: THREADS threads, any multiple of `phases` blocks, `shared` bytes of shared memory (_kernels/matrix_tiles.py),
// and, where the GPU can, before pack_weights.cu has ended (programmatic dependent launch): a thread that reads what
// that kernel writes waits for it here.

#include "matrix_producer.cuh"
#include "matrix_consumer.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) matrix_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(bytes);
    Shared& shared = *(Shared*)bytes;
    if (threadIdx.x < MAX_STAGES) {
        mbarrier_init(&shared.inputs_full[threadIdx.x], INPUT_THREADS);
        mbarrier_init(&shared.inputs_empty[threadIdx.x], CONSUMER_WARPS);
        mbarrier_init(&shared.weights_full[threadIdx.x], ENGINE::PROXY ? 1 : 32);
        mbarrier_init(&shared.weights_empty[threadIdx.x], CONSUMER_WARPS);
        if (ENGINE::PROXY) mbarrier_init_fence();
    }
    Numbers::begin_block(shared);
    // By the second warp, as the first one initialises the barriers.
    describe_phase(shared.phase, p.axis, phase_of_block(p), int(threadIdx.x) - 32);
    __syncthreads();
    const Phase& phase = shared.phase;
    const int taps = uniform(phase.taps[1].count * p.sum.along_x(phase.taps[2].count));
    const int z_taps = uniform(taps ? phase.taps[0].count : 0);
    const Memory memory(p, bytes);
    Schedule schedule(p, shared, taps, z_taps);

    // Tables. With EARLY, producers of inputs begin as soon as theirs are described, while consumers describe the rest.
    // Emulation needs no named barriers here: find_weight_windows is a barrier of all threads. The warp that loads
    // weights reads no table.
    constexpr bool EARLY = ENGINE::EARLY;
    const bool consumes = threadIdx.x < CONSUMER_THREADS;
    const bool loads_weights = !consumes && threadIdx.x < CONSUMER_THREADS + 32;
    const Layout layout(schedule, memory);
    if (!EARLY || !loads_weights) {
        const Threads others = {int(threadIdx.x) - (EARLY && !consumes ? 32 : 0), EARLY ? THREADS - 32 : THREADS};
        layout.describe_slots(others);
        layout.describe_pairs(others);
        if (EARLY && !EMULATES && consumes) named_barrier_arrive(INPUTS_DESCRIBED, THREADS - 32);
        if (EARLY && !EMULATES && !consumes) named_barrier_wait(INPUTS_DESCRIBED, THREADS - 32);
    }
    if (!EARLY || consumes) {
        const Threads consumers = {int(threadIdx.x), EARLY ? CONSUMER_THREADS : THREADS};
        layout.describe_steps(consumers);
        Outputs(schedule).describe_columns(consumers);
        Epilogue::describe(schedule, consumers);
        if (EARLY && !EMULATES) named_barrier_wait(OUTPUTS_DESCRIBED, CONSUMER_THREADS);
    }
    if (!EARLY) __syncthreads();
    if constexpr (EMULATES) {
        wait_for_grids();
        schedule.find_weight_windows();
    }

    // Producers give registers to the consumers (setmaxnreg, WgmmaEngine alone).
    const int warpgroup = uniform(threadIdx.x / WARPGROUP);
    if (warpgroup >= TEAMS) {
        ENGINE::give();
        if (loads_weights)
            WeightProducer(schedule, memory).run();
        else {
            const Turn turn = p.input_pairs ? InputProducer<2>(schedule, memory).run()
                                            : InputProducer<1>(schedule, memory).run();
            if (Schedule::SWEEPS > 1 && schedule.begins(1))
                InputProducer<1, Schedule::SWEEPS - 1>(schedule, memory, turn).run();
        }
    } else {
        ENGINE::take();
        Consumer(schedule, memory, warpgroup).run();
    }
}
