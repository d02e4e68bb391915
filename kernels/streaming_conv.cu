// The few-channel kernel: convolutions of one tap, or of few products of an output, on the Tensor Cores of compute
// capability 9.0, for float32 (by three TF32 products or by one), float16 and bfloat16.
//
//     out[n, g, row, o] = bias[g, row] + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// where i(o, tap) = o * step + low + tap * apart on each axis. So it computes all convolutions but transposed ones with
// strides.
//
// There is little to compute for each byte, so inputs take the shortest way: from memory to the registers of the
// threads that multiply them, and outputs from registers to memory (from_registers.cuh). Positions run through all
// samples.
//
// A warp loads runs of 64 bytes of four channels at a time, and stores such runs. Weights lie in shared memory as
//
//      [pass][step][part][half of K][row][16 bytes]
//
// A block loads the weights of its rows before its first tile. Then each warpgroup ("team" in names) computes tiles
// on its own, without waiting for another one, and goes over the rows in passes. The loads of its next tile, or chunk,
// are under way while it multiplies and stores.
//
// With several TAPS "channels" are the products of an output, channel by channel and tap by tap, and each position is
// loaded alone. A table has for each product the distance of its input from the input of the first product, and its
// taps as bits, by which absent inputs are left out. A warp without absent inputs loads without conditions.
// Neighbouring taps and positions share lines of the L1 cache.
//
// Memory is slow when many warps write to it at once, so warpgroups may store in turn (TURNS), a whole tile each:
//
//      warpgroup 0   multiply  store            multiply  store
//      warpgroup 1     multiply      store        multiply      store
//      warpgroup 2       multiply          store    multiply          store
//
// A sum runs over the channels, or the products, in K steps of 8 (TF32) or 16. Of three TF32 products the small ones
// come first.
//
// Infinities and NaN: as in matrix_conv.cu, float32 outputs that are not finite are recomputed exactly from the arrays.
// 16-bit outputs of one tap need no recomputation: their operands are not split, and zeros only meet zeros.
//
// Macros, beside the macros of matrix_tile.cuh:
//     CHANNELS    channels of a chunk, a multiple of the channels of a K step
//     TEAMS       warpgroups of a block, which has a multiprocessor for itself
//     HELD        passes whose accumulators a warpgroup holds while it goes over several chunks of channels; not given
//                 if one chunk has all channels
//     PASS_ROWS   output channels of a pass if they are not 64
//     TAPS        1 with several taps
//
// Launch: THREADS threads, a multiple of `units` blocks, shared memory for weights and biases
// (_kernels/streaming_conv.py). A block stays with one unit, which is some rows of a group, and its warpgroups take the
// tiles of positions in turn with the other blocks of the unit.

#include "from_registers.cuh"

#ifdef HELD
#define LONG 1
#else
#define LONG 0
#define HELD 1
#endif

constexpr int THREADS = TEAMS * TEAM;
constexpr int UNDER_WAY = (TEAMS < 4 ? 32 : 16) / CHUNK;        // chunks of weights that a thread loads at a time
constexpr int STEP_BYTES = SLAB_BYTES / SLAB_ROWS * PASS_ROWS;  // weights of a K step in a pass
constexpr int CHUNK_BYTES = STEPS * STEP_BYTES;
constexpr bool TURNS = TAPS && TEAMS < 4;  // warpgroups may store in turn
constexpr int FIRST_TURN = 1;              // named barriers, one for each warpgroup

// All strides are in elements.
struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 positions, products, rows;  // positions of all samples; channels times taps, and output channels, of a group
    int64 weight_group, weight_row, weight_channel;
    Space space;
    int64 units, passes;   // passes of a unit: HELD, if that is given
    int64 chunks;          // chunks of the products of an output
    int64 taps, kernel[3], size_in[3], step[3], low[3], apart[3];
    int64 weight_axis[3];
    int64 padded;          // 1 if some outputs have taps without an input
    int64 together;        // 1 if a thread's positions are contiguous and aligned in input and output
};

#if TAPS
// The positions of a thread in a tile: addresses of their inputs and outputs; null for an output that does not exist.
template <bool TOGETHER>
struct Spots {
    static constexpr int COUNT = TOGETHER ? 1 : PLACES;
    Element* out[COUNT];
    const Bits* from[PLACES];
    unsigned absent[PLACES];  // taps without an input, as bits
    bool whole;               // no position of the warp has absent taps
    int chunk;
};
#endif

// A product of an output. It does not exist where one of its taps is absent. Products that only fill up the last chunk
// NEVER exist, and have the input of the first product.
struct __align__(16) Term {
    int64 input;    // distance of its input from the input of the first product, in bytes
    unsigned taps;  // its taps along each axis, as bits
};
constexpr unsigned NEVER = 1u << 30;

__device__ inline const Bits* behind(const Bits* first, int64 bytes) {
    return (const Bits*)((const unsigned char*)first + bytes);
}

// The begin of a warpgroup's tile, or the distance to its next tile: samples, and positions of a sample.
struct Start {
    int sample, rest;
};

struct Worker {
    const Arguments& p;
    unsigned char* const weights;
    float* const biases;
    Term* const terms;      // of each product, and where its weight is
    int64* const weight_at;
    const int group_units, group, first_row;  // units of a group

    __device__ __forceinline__ Worker(const Arguments& p, unsigned char* memory)
        : p(p),
          weights(memory),
          biases((float*)(memory + int(p.passes) * int(p.chunks) * CHUNK_BYTES)),
          terms((Term*)(biases + int(p.passes) * PASS_ROWS)),
          weight_at((int64*)(terms + int(p.chunks) * CHANNELS)),
          group_units((int(p.rows) + int(p.passes) * PASS_ROWS - 1) / (int(p.passes) * PASS_ROWS)),
          group(blockIdx.x % int(p.units) / group_units),
          first_row((blockIdx.x % int(p.units) - group * group_units) * int(p.passes) * PASS_ROWS) {}

    // Fills the table of the products of a group, in the order of channels, z, y and x.
    __device__ void describe_terms() const {
        for (int k = threadIdx.x; k < int(p.chunks) * CHANNELS; k += THREADS) {
            const int channel = k / int(p.taps);
            int rest = k - channel * int(p.taps), bit = 0;
            Term term = {channel * p.space.input_channel, k < int(p.products) ? 0u : NEVER};
            int64 weight = channel * p.weight_channel;
            for (int a = 2; a >= 0; --a) {
                const int tap = rest % int(p.kernel[a]);
                rest /= int(p.kernel[a]);
                term.input += tap * p.apart[a] * (p.space.input_axis[a] / p.step[a]);
                weight += tap * p.weight_axis[a];
                term.taps |= 1u << (bit + tap);
                bit += int(p.kernel[a]);
            }
            term.input = term.taps & NEVER ? 0 : term.input * int(sizeof(Element));
            terms[k] = term, weight_at[k] = weight;
        }
    }

    // The i-th 16-byte chunk of the weights: eight rows have their first ones, then their second ones. So what eight
    // threads store lies in all banks, and what four times eight load in few lines, be rows or channels neighbours in
    // memory.
    struct WeightPlace {
        int row, slot;
    };
    __device__ __forceinline__ WeightPlace weight_place(int i, int slots) const {
        const int rows = small_quotient(i / 8, slots);
        return {rows * 8 + i % 8, i / 8 - rows * slots};
    }
    __device__ __forceinline__ void load_weight(Bits (&values)[CHUNK], const WeightPlace& at) const {
        const int row = first_row + at.row, products = row < int(p.rows) ? int(p.products) : 0;
        const Bits* const from = (const Bits*)p.weight + group * p.weight_group + row * p.weight_row;
#pragma unroll
        for (int c = 0; c < CHUNK; ++c) {
            const int channel = at.slot * CHUNK + c;
            load_bits(values[c], from + (TAPS ? weight_at[channel] : channel * p.weight_channel), channel, products);
        }
    }
    __device__ __forceinline__ void store_weight(const Bits (&values)[CHUNK], const WeightPlace& at) const {
        Slot parts[PARTS];
        Range range;
        Channels<Element, Operand>::template fill<0>(parts, values, 0, Placing(), range);
        const int pass = at.row / PASS_ROWS, step = at.slot / DEPTH;
        Slot* const to = (Slot*)(weights + (pass * int(p.chunks) * STEPS + step) * STEP_BYTES) +
                         at.slot % DEPTH * PASS_ROWS + at.row % PASS_ROWS;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) to[part * DEPTH * PASS_ROWS] = parts[part];
    }

    // By 16-byte chunks, a few of a thread under way together; and the biases.
    __device__ void bring_weights() const {
        const int slots = int(p.chunks) * STEPS * DEPTH;  // of a row
        const int all = int(p.passes) * PASS_ROWS * slots;
#pragma unroll 1
        for (int first = threadIdx.x; first < all; first += UNDER_WAY * THREADS) {
            Bits values[UNDER_WAY][CHUNK] = {};
            WeightPlace at[UNDER_WAY];
#pragma unroll
            for (int b = 0; b < UNDER_WAY; ++b) {
                const int i = first + b * THREADS;
                at[b] = weight_place(i < all ? i : first, slots);
                load_weight(values[b], at[b]);
            }
#pragma unroll
            for (int b = 0; b < UNDER_WAY; ++b) store_weight(values[b], at[b]);
        }
        for (int own = threadIdx.x; own < int(p.passes) * PASS_ROWS; own += THREADS) {
            const int row = first_row + own;
            biases[own] = p.bias.data && row < int(p.rows) ? load_parameter<float>(p.bias, group * p.rows + row) : 0.0f;
        }
    }

    __device__ Start start_of(int64 position) const {
        const int64 sample = long_quotient(position, p.space.size, p.space.reciprocals[2]);
        return {int(sample), int(position - sample * p.space.size)};
    }
    __device__ Place place_of(Start start, int behind, int (&at)[3]) const {
        const int size = int(p.space.size);
        start.rest += behind;
        if (start.rest >= size) {
            const int more = start.rest / size;
            start.sample += more, start.rest -= more * size;
        }
        return p.space.place_of(start.sample, group, start.rest, at);
    }
    template <bool TOGETHER>
    __device__ static int64 position_of(int tile, int i) {
        return int64(tile) * TEAM_PLACES + team_place<TOGETHER>(i);
    }
    // Returns true if a thread's i-th position exists, and sets its offsets and coordinates.
    template <bool TOGETHER>
    __device__ bool locate(int tile, int i, Place& place, int (&at)[3]) const {
        const int64 position = position_of<TOGETHER>(tile, i);
        if (position >= p.positions) return false;
        place = place_of(start_of(position), 0, at);
        return true;
    }

    template <bool TOGETHER>
    __device__ __forceinline__ void find(Spots<TOGETHER>& spots, int tile, const Start& start) const {
        constexpr int COUNT = TAPS ? PLACES : Spots<TOGETHER>::COUNT;
#if TAPS
        spots.chunk = 0;
#else
        spots.channel = first_channel();
#endif
        int at[3];
        Place place;
#pragma unroll
        for (int s = 0; s < COUNT; ++s) {
            const bool exists = position_of<TOGETHER>(tile, s) < p.positions;
            if (TOGETHER && s > 0)  // beside the first one, in the same line
                ++at[2], place.input += p.space.input_axis[2];
            else
                place = place_of(exists ? start : Start{0, 0}, exists ? team_place<TOGETHER>(s) : 0, at);
            if (s < spots.COUNT) spots.out[s] = exists ? p.out + place.out : nullptr;
            spots.from[s] = (const Bits*)p.input + place.input;
#if TAPS
            spots.absent[s] = exists ? absent_at(at) : ~0u;
#else
            spots.from[s] += spots.channel * p.space.input_channel;
            spots.channels[s] = exists ? int(p.products) : 0;
#endif
        }
#if TAPS
        unsigned absent = NEVER;
#pragma unroll
        for (int s = 0; s < COUNT; ++s) absent |= spots.absent[s];
        spots.whole = __all_sync(~0u, absent == NEVER);
#else
        __syncwarp();
#endif
    }

#if TAPS
    // The taps that have no input for an output at these coordinates.
    __device__ unsigned absent_at(const int (&at)[3]) const {
        unsigned absent = NEVER;
        if (!p.padded) return absent;
        int bit = 0;
        for (int a = 2; a >= 0; --a) {
            const int kernel = int(p.kernel[a]), first = at[a] * int(p.step[a]) + int(p.low[a]);
            const unsigned size = unsigned(p.size_in[a]);
            if (unsigned(first) >= size || unsigned(first + (kernel - 1) * int(p.apart[a])) >= size)
                for (int tap = 0; tap < kernel; ++tap)
                    absent |= unsigned(unsigned(first + tap * int(p.apart[a])) >= size) << (bit + tap);
            bit += kernel;
        }
        return absent;
    }

    // Issues the loads of a chunk.
    template <bool TOGETHER>
    __device__ __forceinline__ void load_chunk(Inputs& inputs, Spots<TOGETHER>& spots) const {
        const Term* const own = terms + spots.chunk++ * CHANNELS + first_channel();
        if (spots.whole) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step)
#pragma unroll
                for (int i = 0; i < OWN; ++i) {
                    const int64 input = own[step * BLOCK + behind_first(i)].input;
#pragma unroll
                    for (int s = 0; s < PLACES; ++s) load_bits(inputs[step][i][s], behind(spots.from[s], input));
                }
            return;
        }
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                const Term term = own[step * BLOCK + behind_first(i)];
#pragma unroll
                for (int s = 0; s < PLACES; ++s) {
                    inputs[step][i][s] = 0;
                    load_bits(inputs[step][i][s], behind(spots.from[s], term.input),
                              int(term.taps & spots.absent[s]), 1);
                }
            }
    }
#else
    template <bool TOGETHER>
    __device__ __forceinline__ void load_chunk(Inputs& inputs, Spots<TOGETHER>& spots) const {
        load(inputs, spots, p.space.input_channel);
    }
#endif

    __device__ __forceinline__ static void clear(Sums (&sums)[HELD]) {
#pragma unroll
        for (int i = 0; i < HELD * TILES * SUMS; ++i) sums[i / SUMS / TILES][i / SUMS % TILES][i % SUMS] = 0;
    }

    // Adds the products of a chunk to the sums of a pass; of single ones, the first chunk begins them.
    __device__ __forceinline__ void multiply(Sums& sums, const Operands& operands, int pass, int chunk) const {
        const unsigned long long slab =
            matrix_descriptor(weights + (pass * int(p.chunks) + chunk) * CHUNK_BYTES, PASS_ROWS * SLOT_BYTES,
                              8 * SLOT_BYTES);
        if (!LONG || PARTS == 1) {
            multiply(sums, operands, slab, LONG && chunk > 0);
            return;
        }
        Sums chain;
        multiply(chain, operands, slab, false);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int i = 0; i < SUMS; ++i) sums[tile][i] += chain[tile][i];
    }
    __device__ __forceinline__ static void multiply(Sums& sums, const Operands& operands, unsigned long long slab,
                                                    bool add) {
        constexpr int PART = DEPTH * PASS_ROWS;  // chunks of 16 bytes
        constexpr int FIRST = PARTS == 2 ? 0 : 2;
        wgmma_fence();
#pragma unroll
        for (int product = FIRST; product < 3; ++product)  // low by high, high by low, high by high
#pragma unroll
            for (int step = 0; step < STEPS; ++step)
#pragma unroll
                for (int tile = 0; tile < TILES; ++tile)
                    WgmmaOfRegisters<matrix_type<Operand>::value, PASS_ROWS>::multiply(
                        sums[tile], operands[product == 0 ? PARTS - 1 : 0][tile][step],
                        slab + (step * PARTS + (product == 1)) * PART, add || product > FIRST || step > 0);
        wgmma_commit();
        wgmma_wait<0>();
    }

    // The sum of an output, from the arrays themselves.
    __device__ float plain_sum(const Place& place, int row, const int (&coordinates)[3]) const {
        const Element* const input = p.input + place.input;
        const Element* const weight = p.weight + group * p.weight_group + row * p.weight_row;
        float sum = 0;
#if TAPS
        const unsigned absent = absent_at(coordinates);
        for (int k = 0; k < int(p.products); ++k)
            if (!(terms[k].taps & absent))
                sum = fmaf(widen<float>(*(const Element*)behind((const Bits*)input, terms[k].input)),
                           widen<float>(weight[weight_at[k]]), sum);
#else
        for (int c = 0; c < int(p.products); ++c)
            sum = fmaf(widen<float>(input[c * p.space.input_channel]), widen<float>(weight[c * p.weight_channel]), sum);
#endif
        return sum;
    }

    template <bool TOGETHER>
    __device__ __forceinline__ void run() const {
        const int blocks = gridDim.x / int(p.units), chunks = LONG ? int(p.chunks) : 1;
        const int tiles = int((p.positions + TEAM_PLACES - 1) / TEAM_PLACES);
        const int team = uniform(threadIdx.x / TEAM);
        int tile = blockIdx.x / int(p.units) + team * blocks;
        // A warpgroup has as many tiles as the first one, or one less, and then all later ones have one less as well.
        // So each wait for a turn ends.
        const bool turns = TURNS && (LONG || p.passes == 1);
        if (turns && team == TEAMS - 1) named_barrier_arrive(FIRST_TURN, 2 * TEAM);
        if (tile >= tiles) return;
        Start start = start_of(int64(tile) * TEAM_PLACES);
        const Start step = start_of(int64(blocks) * TEAMS * TEAM_PLACES);
        Inputs inputs;
        Spots<TOGETHER> spots;
        find(spots, tile, start);
        load_chunk(inputs, spots);
        // Defined here, as where the first products seem to add to nothing NVRTC up to 12.8 lets each wait for the one
        // before.
        Sums sums[HELD] = {};
#pragma unroll 1
        while (tile < tiles) {
            const int next = tile + blocks * TEAMS;
            Element* outs[spots.COUNT];
#pragma unroll
            for (int s = 0; s < spots.COUNT; ++s) outs[s] = spots.out[s];
            Operands operands;
            if (LONG && PARTS == 2) clear(sums);
#pragma unroll 1
            for (int pass = 0; pass < (LONG ? 1 : int(p.passes)); ++pass) {
#pragma unroll 1
                for (int chunk = 0; chunk < chunks; ++chunk) {
                    if (LONG || pass == 0) {
                        fill(operands, inputs, Element());
                        settle(operands);
                        if (chunk == chunks - 1 && next < tiles) {
                            start.sample += step.sample, start.rest += step.rest;
                            if (start.rest >= int(p.space.size)) ++start.sample, start.rest -= int(p.space.size);
                            find(spots, next, start);
                        }
                        if (chunk < chunks - 1 || next < tiles) load_chunk(inputs, spots);
                    }
#pragma unroll
                    for (int h = 0; h < HELD; ++h) multiply(sums[h], operands, pass + h, chunk);
                }
                if (turns) named_barrier_wait(FIRST_TURN + team, 2 * TEAM);
#pragma unroll
                for (int h = 0; h < HELD; ++h) {
                    const int first = (pass + h) * PASS_ROWS;
                    const bool found = store<TOGETHER>(sums[h], outs, biases + first, first_row + first, int(p.rows),
                                                       p.space.out_row);
                    if (REPAIRED && __any_sync(~0u, found)) repair<TOGETHER, Worker>(p, weights, tile, pass + h);
                    __syncwarp();
                }
                if (turns) named_barrier_arrive(FIRST_TURN + (team + 1) % TEAMS, 2 * TEAM);
            }
            tile = next;
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) streaming_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Worker worker(p, memory);
    if (TAPS) {
        worker.describe_terms();
        __syncthreads();
    }
    worker.bring_weights();
    async_proxy_fence();
    __syncthreads();
    if (p.together)
        worker.run<true>();
    else
        worker.run<false>();
}
