// Matrix products of a warpgroup ("team" in names) on the Tensor Cores of compute capability 9.0, with the inputs as
// the operand in registers: operands, epilogue and exact recomputation of streaming_conv.cu, which loads the inputs.
//
// Output positions are the rows of the products, and output channels are their columns, PASS_ROWS in a pass:
//
//      memory: a channel's positions lie            registers: a thread has PLACES neighbouring positions,
//      side by side                                 8 bytes, of a quarter of the channels
//
//      channel 0  # # # # # # # # ...               4 threads  x  8  have 8 * PLACES positions of a warp:
//      channel 1  # # # # # # # # ...     -->       its rows, in whatever order
//      ...            \_/
//                      a load
//
// Where neighbours do not lie TOGETHER, neighbouring threads have neighbouring positions. With several TAPS "channels"
// are the products of an output.
//
// Macros, beside the macros of matrix_tile.cuh:
//     CHANNELS    channels of a chunk, a multiple of the channels of a K step
//     TAPS        1 with several taps
//     PASS_ROWS   output channels of a pass if they are not 64
#pragma once
#include "matrix_tile.cuh"
#include "space.cuh"

#ifndef TAPS
#define TAPS 0
#endif
#ifndef PASS_ROWS
#define PASS_ROWS SLAB_ROWS
#endif

constexpr int TEAM = 128;
constexpr int STEPS = CHANNELS / BLOCK;
constexpr int TILES = TAPS ? 1 : 4 / sizeof(Element);  // row tiles of 64 positions of a warpgroup
constexpr int PLACES = 2 * TILES;                      // positions of a thread: 8 bytes of a channel
constexpr int TEAM_PLACES = TILES * 64;                // positions of a warpgroup
constexpr int OWN = BLOCK / 4;                         // channels of a thread in a K step
constexpr int SUMS = PASS_ROWS / 2;                    // accumulators of a thread in 64 positions and a pass
constexpr bool REPAIRED = TAPS || sizeof(Element) == 4;  // outputs that are not finite are recomputed exactly

// The first channel of a thread in a chunk, and the distance from it to the thread's i-th channel of a K step.
__device__ inline int first_channel() { return threadIdx.x % 4 * (sizeof(Element) == 4 ? 1 : 2); }
__device__ inline int behind_first(int i) { return sizeof(Element) == 4 ? i * 4 : i % 2 + i / 2 * 8; }
// The i-th position of a thread among the positions of its warpgroup.
template <bool TOGETHER>
__device__ inline int team_place(int i) {
    const int warp = threadIdx.x % TEAM / 32, own = threadIdx.x % 32 / 4;
    return warp * 8 * PLACES + (TOGETHER ? own * PLACES + i : i * 8 + own);
}

// A thread's inputs as they are loaded, the same inputs as operands of wgmma, and its accumulators.
#if TAPS
typedef Bits Own[PLACES];
#else
typedef Bits64 Own;
#endif
typedef Own Inputs[STEPS][OWN];
typedef unsigned Operands[PARTS][TILES][STEPS][4];
typedef float Sums[TILES][SUMS];

__device__ inline unsigned number_of(const Bits64& own, int place) { return pixel_of(own, place); }
template <typename Number>
__device__ inline unsigned number_of(const Number (&own)[PLACES], int place) {
    return own[place];
}
// The 16-bit inputs of two channels at one position, as a pair.
__device__ inline unsigned both_of(const Bits64& first, const Bits64& second, int tile, int place) {
    return byte_select(pixel_of(first, tile), pixel_of(second, tile), place ? 0x7632 : 0x5410);
}
template <typename Number>
__device__ inline unsigned both_of(const Number (&first)[PLACES], const Number (&second)[PLACES], int, int place) {
    return first[place] | unsigned(second[place]) << 16;
}

// Makes the operands of wgmma from loaded inputs.
__device__ __forceinline__ void fill(Operands& operands, const Inputs& inputs, float) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned bits = number_of(inputs[step][i / 2], i % 2);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) operands[part][0][step][i] = tf32_part(bits, part);
        }
}
template <typename Sixteen>
__device__ __forceinline__ void fill(Operands& operands, const Inputs& inputs, Sixteen) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                operands[0][tile][step][i] =
                    both_of(inputs[step][i / 2 * 2], inputs[step][i / 2 * 2 + 1], tile, i % 2);
}

// Makes the compiler finish the operands here, before wgmma_fence, and not where they are used.
__device__ __forceinline__ void settle(Operands& operands) {
#pragma unroll
    for (int i = 0; i < PARTS * TILES * STEPS; ++i)
#pragma unroll
        for (unsigned& value : operands[i / STEPS / TILES][i / STEPS % TILES][i % STEPS]) settle(value);
}

// The bits of neighbouring outputs, which are stored together.
typedef BitsOf<PLACES * sizeof(Element)>::type Neighbours;
__device__ inline Bits64 bits_of(const float (&values)[PLACES], float) { return pair_of(values[0], values[1], 0.0f); }
#if TAPS
template <typename Sixteen>
__device__ inline unsigned bits_of(const float (&values)[PLACES], Sixteen kind) {
    return pair_of(values[0], values[1], kind);
}
#else
template <typename Sixteen>
__device__ inline Bits64 bits_of(const float (&values)[PLACES], Sixteen kind) {
    return {pair_of(values[0], values[1], kind), pair_of(values[PLACES - 2], values[PLACES - 1], kind)};
}
#endif

#if !TAPS
// The positions of a thread in a tile: where their next channels lie and where their outputs do, or null; the next
// channel, and how many there are.
template <bool TOGETHER>
struct Spots {
    static constexpr int COUNT = TOGETHER ? 1 : PLACES;
    Element* out[COUNT];
    const Bits* from[COUNT];
    int channel, channels[COUNT];
};

__device__ inline Bits64 joined(const unsigned (&values)[2]) { return {values[0], values[1]}; }
__device__ inline Bits64 joined(const unsigned short (&values)[4]) {
    return {values[0] | unsigned(values[1]) << 16, values[2] | unsigned(values[3]) << 16};
}

// Issues the loads of a chunk, from memory.
template <bool TOGETHER>
__device__ __forceinline__ void load(Inputs& inputs, Spots<TOGETHER>& spots, int64 input_channel) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        Bits values[OWN][PLACES];
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int next = behind_first(i + 1) - behind_first(i);
            inputs[step][i] = {0, 0};
            if (TOGETHER) load_bits(inputs[step][i], (const Bits64*)spots.from[0], spots.channel, spots.channels[0]);
#pragma unroll
            for (int s = 0; s < spots.COUNT; ++s) {
                values[i][s] = 0;
                if (!TOGETHER) load_bits(values[i][s], spots.from[s], spots.channel, spots.channels[s]);
                spots.from[s] += next * input_channel;
            }
            spots.channel += next;
        }
#pragma unroll
        for (int i = 0; i < OWN && !TOGETHER; ++i) inputs[step][i] = joined(values[i]);
    }
}
#endif

// Adds biases to the sums of a pass, and stores `rows` rows from `row` on. If outputs are recomputed exactly, it
// returns true if a stored one may not be finite, and misses none, whatever else a warp has.
template <bool TOGETHER>
__device__ __forceinline__ bool store(Sums& sums, Element* const (&outs)[TOGETHER ? 1 : PLACES], const float* biases,
                                      int row, int rows, int64 out_row) {
    const int own = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
        const float bias = biases[own + i / 4 * 8 + i % 2];
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) sums[tile][i] += bias;
    }
    typename specials_of<Element>::type specials;
    row += own;
    int64 to = row * out_row;
#pragma unroll
    for (int i = 0; i < SUMS; i += i % 2 ? 3 : 1) {  // each row
        float values[PLACES];
#pragma unroll
        for (int s = 0; s < PLACES; ++s) values[s] = sums[s / 2][i + s % 2 * 2];
        const Neighbours bits = bits_of(values, Element());
        if (REPAIRED) specials.add(bits);
        if (TOGETHER)
            store_bits((Neighbours*)(outs[0] + to), bits, outs[0] && row < rows);
        else
#pragma unroll
            for (int s = 0; s < PLACES; ++s)
                if (outs[s] && row < rows) outs[s][to] = narrow<Element>(values[s]);
        row += i % 2 ? 7 : 1, to += (i % 2 ? 7 : 1) * out_row;
    }
    return REPAIRED && specials.found();
}

// Recomputes a thread's outputs that are not finite exactly. It makes a Worker of its own, because a value that
// a function without inlining can see cannot stay in registers.
template <bool TOGETHER, typename Worker, typename Arguments>
__device__ __noinline__ void repair(const Arguments& p, unsigned char* memory, int tile, int pass) {
    const Worker worker(p, memory);
    const int first = pass * PASS_ROWS + threadIdx.x % 4 * 2;
    for (int i = 0; i < PLACES * PASS_ROWS / 4; ++i) {
        const int own = first + i / 2 % (PASS_ROWS / 8) * 8 + i % 2, row = worker.first_row + own;
        Place place;
        int coordinates[3];
        if (row >= int(p.rows) || !worker.template locate<TOGETHER>(tile, i / (PASS_ROWS / 4), place, coordinates)) continue;
        Element* const at = p.out + place.out + row * p.space.out_row;
        if (is_special(widen<float>(*at)))
            *at = narrow<Element>(worker.plain_sum(place, row, coordinates) + worker.biases[own]);
    }
}
