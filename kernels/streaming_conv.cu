// Convolutions of one tap, or of few products of an output, on the matrix units of compute capability 9.0, for float32
// (by three products of tf32 numbers or by one), float16 and bfloat16.
//
//     out[n, g, row, o] = bias[g, row] + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// where i(o, tap) = o * step + low + tap * apart on each axis: all but transposed ones with strides.
//
// There is little to compute for each byte, so inputs take the shortest way: from memory to the registers of those that
// multiply them, and sums from there to memory. Positions, of all samples in a row, are the rows of the matrix
// products, and output channels their columns:
//
//      memory: a channel's positions lie            registers: a thread has PLACES neighbouring positions,
//      side by side                                 8 bytes, of a quarter of the channels
//
//      channel 0  # # # # # # # # ...               4 threads  x  8  have 8 * PLACES positions of a warp:
//      channel 1  # # # # # # # # ...     -->       its rows, in whatever order
//      ...            \_/
//                      a load
//
// A warp loads runs of 64 bytes of four channels at a time, and stores such runs. Weights lie in shared memory, as
//
//      [pass: 64 rows][step][part][half of K][64 rows][16 bytes]
//
// and a block brings those of its rows before its first tile. Then teams of four warps take tiles on their own: no warp
// waits for another team. A team goes over the rows in passes of 64. The loads of its next tile, or chunk, are on their
// way while it multiplies and stores.
//
// With several TAPS "channels" are the products of an output, channel by channel and tap by tap, and each position is
// loaded on its own: a table has for each product how far its input is from that of the first one, and its taps as bits,
// by which absent inputs are left out. Neighbouring taps and positions are in the same lines of the L1 cache.
//
// A sum runs over the channels, or the products, in steps of 8 (tf32) or 16; of three products all small ones come first.
//
// Infinities and NaN: as in matrix_conv.cu, sums of floats that are not finite are computed again from the arrays
// themselves. Those of 16-bit numbers of one tap, which are not split and have no absent terms but zeros times zeros, are
// right.
//
// Macros, with those of matrix_tile.cuh:
//     CHANNELS    of a chunk, a multiple of a step's: room for those of a group
//     TEAMS       of a block, which has a multiprocessor for itself
//     HELD        passes whose sums a team holds while it goes over several chunks of channels; not given where one has
//                 them all
//     TAPS        1 where there are several
//
// Launch: THREADS threads, a multiple of `units` blocks, shared memory for weights and biases (_streaming.py). A block
// stays with a unit, which are some rows of a group, and its teams take every so many-th tile of positions.

#include "matrix_tile.cuh"

#ifndef TAPS
#define TAPS 0
#endif
#ifdef HELD
#define LONG 1
#else
#define LONG 0
#define HELD 1
#endif

constexpr int TEAM = 128;
constexpr int THREADS = TEAMS * TEAM;
constexpr int STEPS = CHANNELS / BLOCK;
constexpr int TILES = TAPS ? 1 : 4 / sizeof(Element);  // products of 64 positions that a team has side by side
constexpr int PLACES = 2 * TILES;           // positions of a thread: 8 bytes of a channel
constexpr int TEAM_PLACES = TILES * 64;     // and of a team
constexpr int OWN = BLOCK / 4;              // channels of a thread in a step
constexpr int SUMS = 32;                    // of a thread in 64 positions by 64 rows
constexpr int UNDER_WAY = (TEAMS < 4 ? 32 : 16) / CHUNK;  // slots of weights that a thread loads together
constexpr bool REPAIRED = TAPS || sizeof(Element) == 4;  // where sums are not finite
constexpr int CHUNK_BYTES = STEPS * SLAB_BYTES;  // of weights, in a pass

// All strides are in elements.
struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 positions, products, rows;  // of all samples; channels times taps, and output channels of a group
    int64 first;  // input of the first product of the first output
    int64 input_batch, input_group, input_channel, input_axis[3];  // from the input of an output to that of the next
    int64 weight_group, weight_row, weight_channel;
    int64 out_batch, out_group, out_row, out_axis[3];
    int64 sizes[2], size;  // of outputs along y and x, and of all axes
    int64 reciprocals[3];  // of these; long ones
    int64 scattered;       // whether axes do not lie as one: the last one stands for all otherwise
    int64 units, passes;   // passes of a unit: HELD, if that is given
    int64 chunks;          // of the products
    int64 taps, kernel[3], size_in[3], step[3], low[3], apart[3];
    int64 weight_axis[3];
    int64 padded;          // whether taps of some outputs have no input
    int64 together;        // whether a thread's positions lie together, aligned, in input and output
};

// Where a position lies, in channel 0 and row 0 of a group.
struct Place {
    int64 input, out;
};

// The positions of a thread in a tile: where their next channels lie and where their outputs do, or null; the next
// channel, and how many there are.
template <bool TOGETHER>
struct Spots {
    static constexpr int COUNT = TOGETHER ? 1 : PLACES;
    Element* out[COUNT];
#if TAPS
    const Bits* from[PLACES];
    unsigned absent[PLACES];  // taps without an input, as bits
    int chunk;
#else
    const Bits* from[COUNT];
    int channel, channels[COUNT];
#endif
};

// A product of an output: how far its input is from that of the first one, and the taps of each axis as bits; it does
// not exist where one of them is absent.
struct __align__(16) Term {
    int64 input;
    unsigned taps;
};
constexpr unsigned NEVER = 1u << 30;

// Of a thread: its positions in each of its channels, the same as matrix units take them, and its sums.
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
// Numbers of 16 bits of two channels at one place, of two products.
__device__ inline unsigned both_of(const Bits64& first, const Bits64& second, int tile, int place) {
    return byte_select(pixel_of(first, tile), pixel_of(second, tile), place ? 0x7632 : 0x5410);
}
template <typename Number>
__device__ inline unsigned both_of(const Number (&first)[PLACES], const Number (&second)[PLACES], int, int place) {
    return first[place] | unsigned(second[place]) << 16;
}

// What matrix units take, from what loads have brought.
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

// Has them ready here, and not only where they are used: what wgmma_fence puts an order to.
__device__ __forceinline__ void settle(Operands& operands) {
#pragma unroll
    for (int i = 0; i < PARTS * TILES * STEPS; ++i)
#pragma unroll
        for (unsigned& value : operands[i / STEPS / TILES][i / STEPS % TILES][i % STEPS]) settle(value);
}

// What is stored of neighbouring sums.
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
          terms((Term*)(biases + int(p.passes) * SLAB_ROWS)),
          weight_at((int64*)(terms + int(p.chunks) * CHANNELS)),
          group_units((int(p.rows) + int(p.passes) * SLAB_ROWS - 1) / (int(p.passes) * SLAB_ROWS)),
          group(blockIdx.x % int(p.units) / group_units),
          first_row((blockIdx.x % int(p.units) - group * group_units) * int(p.passes) * SLAB_ROWS) {}

    // Each product, of a group, in the order of channels, z, y and x.
    __device__ void describe_terms() const {
        for (int k = threadIdx.x; k < int(p.chunks) * CHANNELS; k += THREADS) {
            const int channel = k / int(p.taps);
            int rest = k - channel * int(p.taps), bit = 0;
            Term term = {channel * p.input_channel, k < int(p.products) ? 0u : NEVER};
            int64 weight = channel * p.weight_channel;
            for (int a = 2; a >= 0; --a) {
                const int tap = rest % int(p.kernel[a]);
                rest /= int(p.kernel[a]);
                term.input += tap * p.apart[a] * (p.input_axis[a] / p.step[a]);
                weight += tap * p.weight_axis[a];
                term.taps |= 1u << (bit + tap);
                bit += int(p.kernel[a]);
            }
            terms[k] = term, weight_at[k] = weight;
        }
    }

    // The i-th slot: eight rows have their first ones, then their second ones. So what eight threads store lies in all
    // banks, and what four times eight load in few lines, be rows or channels neighbours in memory.
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
        const int pass = at.row / SLAB_ROWS, step = at.slot / DEPTH;
        Slot* const to = (Slot*)(weights + (pass * int(p.chunks) * STEPS + step) * SLAB_BYTES) +
                         at.slot % DEPTH * SLAB_ROWS + at.row % SLAB_ROWS;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) to[part * DEPTH * SLAB_ROWS] = parts[part];
    }

    // Slot by slot, a few of a thread under way together; and the biases.
    __device__ void bring_weights() const {
        const int slots = int(p.chunks) * STEPS * DEPTH;  // of a row
        const int all = int(p.passes) * SLAB_ROWS * slots;
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
        for (int own = threadIdx.x; own < int(p.passes) * SLAB_ROWS; own += THREADS) {
            const int row = first_row + own;
            biases[own] = p.bias.data && row < int(p.rows) ? load_parameter<float>(p.bias, group * p.rows + row) : 0.0f;
        }
    }

    // Which channels a thread has: its first one, and how far the i-th of a step is behind it.
    __device__ static int first_channel() { return threadIdx.x % 4 * (sizeof(Element) == 4 ? 1 : 2); }
    __device__ static int behind_first(int i) { return sizeof(Element) == 4 ? i * 4 : i % 2 + i / 2 * 8; }
    // And which positions: neighbours, or, one by one, each beside those of the next threads.
    template <bool TOGETHER>
    __device__ static int64 position_of(int tile, int i) {
        const int warp = threadIdx.x % TEAM / 32, own = threadIdx.x % 32 / 4;
        return int64(tile) * TEAM_PLACES + warp * 8 * PLACES + (TOGETHER ? own * PLACES + i : i * 8 + own);
    }

    __device__ Place place_of(int64 position, int (&at)[3]) const {
        const int64 sample = long_quotient(position, p.size, p.reciprocals[2]);
        const int rest = int(position - sample * p.size);
        Place place = {p.first + sample * p.input_batch + group * p.input_group, sample * p.out_batch + group * p.out_group};
        at[0] = at[1] = 0, at[2] = rest;
        if (p.scattered) {
            const int line = long_quotient(rest, p.reciprocals[1]);
            at[0] = long_quotient(line, p.reciprocals[0]);
            at[1] = line - at[0] * int(p.sizes[0]), at[2] = rest - line * int(p.sizes[1]);
            place.input += at[0] * p.input_axis[0] + at[1] * p.input_axis[1];
            place.out += at[0] * p.out_axis[0] + at[1] * p.out_axis[1];
        }
        return {place.input + at[2] * p.input_axis[2], place.out + at[2] * p.out_axis[2]};
    }

    template <bool TOGETHER>
    __device__ __forceinline__ void find(Spots<TOGETHER>& spots, int tile) const {
        constexpr int COUNT = TAPS ? PLACES : Spots<TOGETHER>::COUNT;
#if TAPS
        spots.chunk = 0;
#else
        spots.channel = first_channel();
#endif
#pragma unroll
        for (int s = 0; s < COUNT; ++s) {
            const int64 position = position_of<TOGETHER>(tile, s);
            const bool exists = position < p.positions;
            int at[3];
            const Place place = place_of(exists ? position : 0, at);
            if (s < spots.COUNT) spots.out[s] = exists ? p.out + place.out : nullptr;
            spots.from[s] = (const Bits*)p.input + place.input;
#if TAPS
            spots.absent[s] = exists ? absent_at(at) : ~0u;
#else
            spots.from[s] += spots.channel * p.input_channel;
            spots.channels[s] = exists ? int(p.products) : 0;
#endif
        }
    }

#if TAPS
    // The taps that have no input for an output at these coordinates.
    __device__ unsigned absent_at(const int (&at)[3]) const {
        unsigned absent = NEVER;
        if (!p.padded) return absent;
        int bit = 0;
        for (int a = 2; a >= 0; --a) {
            int place = at[a] * int(p.step[a]) + int(p.low[a]);
            for (int tap = 0; tap < int(p.kernel[a]); ++tap, ++bit, place += int(p.apart[a]))
                absent |= unsigned(unsigned(place) >= unsigned(p.size_in[a])) << bit;
        }
        return absent;
    }

    // Issues the loads of a chunk.
    template <bool TOGETHER>
    __device__ __forceinline__ void load(Inputs& inputs, Spots<TOGETHER>& spots) const {
        const Term* const own = terms + spots.chunk++ * CHANNELS + first_channel();
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                const Term term = own[step * BLOCK + behind_first(i)];
#pragma unroll
                for (int s = 0; s < PLACES; ++s) {
                    inputs[step][i][s] = 0;
                    load_bits(inputs[step][i][s], spots.from[s] + term.input, int(term.taps & spots.absent[s]), 1);
                }
            }
    }
#else
    // Issues the loads of a chunk.
    template <bool TOGETHER>
    __device__ __forceinline__ void load(Inputs& inputs, Spots<TOGETHER>& spots) const {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            Bits values[OWN][PLACES];
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                const int next = behind_first(i + 1) - behind_first(i);
                inputs[step][i] = {0, 0};
                if (TOGETHER)
                    load_bits(inputs[step][i], (const Bits64*)spots.from[0], spots.channel, spots.channels[0]);
#pragma unroll
                for (int s = 0; s < spots.COUNT; ++s) {
                    values[i][s] = 0;
                    if (!TOGETHER) load_bits(values[i][s], spots.from[s], spots.channel, spots.channels[s]);
                    spots.from[s] += next * p.input_channel;
                }
                spots.channel += next;
            }
#pragma unroll
            for (int i = 0; i < OWN && !TOGETHER; ++i) inputs[step][i] = joined(values[i]);
        }
    }
    __device__ static Bits64 joined(const unsigned (&values)[2]) { return {values[0], values[1]}; }
    __device__ static Bits64 joined(const unsigned short (&values)[4]) {
        return {values[0] | unsigned(values[1]) << 16, values[2] | unsigned(values[3]) << 16};
    }
#endif

    // Adds the products of a chunk to the sums of a pass, or begins them.
    __device__ __forceinline__ void multiply(Sums& sums, const Operands& operands, int pass, int chunk) const {
        const unsigned long long slab =
            matrix_descriptor(weights + (pass * int(p.chunks) + chunk) * CHUNK_BYTES, SLAB_ROWS * SLOT_BYTES,
                              8 * SLOT_BYTES, 0);
        if (!LONG || PARTS == 1) {
            multiply(sums, operands, slab, LONG && chunk > 0);
            return;
        }
        Sums chain;
        multiply(chain, operands, slab, false);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int i = 0; i < SUMS; ++i) sums[tile][i] = chunk > 0 ? sums[tile][i] + chain[tile][i] : chain[tile][i];
    }
    __device__ __forceinline__ static void multiply(Sums& sums, const Operands& operands, unsigned long long slab,
                                                    bool add) {
        constexpr int PART = DEPTH * SLAB_ROWS;  // slots
        constexpr int FIRST = PARTS == 2 ? 0 : 2;
        wgmma_fence();
#pragma unroll
        for (int product = FIRST; product < 3; ++product)  // low by high, high by low, high by high
#pragma unroll
            for (int step = 0; step < STEPS; ++step)
#pragma unroll
                for (int tile = 0; tile < TILES; ++tile)
                    WgmmaOfRegisters<matrix_type<Operand>::value>::multiply(
                        sums[tile], operands[product == 0 ? PARTS - 1 : 0][tile][step],
                        slab + (step * PARTS + (product == 1)) * PART, add || product > FIRST || step > 0);
        wgmma_commit();
        wgmma_wait<0>();
    }

    template <bool TOGETHER>
    __device__ __forceinline__ void store(Sums& sums, Element* const (&outs)[Spots<TOGETHER>::COUNT], int tile,
                                          int pass) const {
        const int first = pass * SLAB_ROWS + threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            const float bias = biases[first + i / 4 * 8 + i % 2];
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) sums[tile][i] += bias;
        }
        Specials<0> specials;
        int row = first_row + first;
        int64 to = row * p.out_row;
#pragma unroll
        for (int i = 0; i < SUMS; i += i % 2 ? 3 : 1) {  // each row
            float values[PLACES];
#pragma unroll
            for (int s = 0; s < PLACES; ++s) values[s] = sums[s / 2][i + s % 2 * 2];
            if (REPAIRED) specials.add({__float_as_uint(values[0]), __float_as_uint(values[1])});
            if (TOGETHER)
                store_bits((Neighbours*)(outs[0] + to), bits_of(values, Element()), outs[0] && row < int(p.rows));
            else
#pragma unroll
                for (int s = 0; s < PLACES; ++s)
                    if (outs[s] && row < int(p.rows)) outs[s][to] = narrow<Element>(values[s]);
            row += i % 2 ? 7 : 1, to += (i % 2 ? 7 : 1) * p.out_row;
        }
        if (REPAIRED && __any_sync(~0u, specials.found())) repair<TOGETHER>(p, weights, tile, pass);
        __syncwarp();
    }

    // Computes those of a thread's outputs that are not finite again. It stands apart, as what is in sight of a
    // function that is not inlined cannot lie in registers.
    template <bool TOGETHER>
    __device__ __noinline__ static void repair(const Arguments& p, unsigned char* memory, int tile, int pass) {
        const Worker worker(p, memory);
        const int first = pass * SLAB_ROWS + threadIdx.x % 4 * 2;
        for (int i = 0; i < PLACES * 16; ++i) {
            const int own = first + i / 2 % 8 * 8 + i % 2, row = worker.first_row + own;
            const int64 position = position_of<TOGETHER>(tile, i / 16);
            if (row >= int(p.rows) || position >= p.positions) continue;
            int coordinates[3];
            const Place place = worker.place_of(position, coordinates);
            Element* const at = p.out + place.out + row * p.out_row;
            if (!is_special(widen<float>(*at))) continue;
            const Element* const input = p.input + place.input;
            const Element* const weight = p.weight + worker.group * p.weight_group + row * p.weight_row;
            float sum = 0;
#if TAPS
            const unsigned absent = worker.absent_at(coordinates);
            for (int k = 0; k < int(p.products); ++k)
                if (!(worker.terms[k].taps & absent))
                    sum = fmaf(widen<float>(input[worker.terms[k].input]), widen<float>(weight[worker.weight_at[k]]),
                               sum);
#else
            for (int c = 0; c < int(p.products); ++c)
                sum = fmaf(widen<float>(input[c * p.input_channel]), widen<float>(weight[c * p.weight_channel]), sum);
#endif
            *at = narrow<Element>(sum + worker.biases[own]);
        }
    }

    template <bool TOGETHER>
    __device__ __forceinline__ void run() const {
        const int blocks = gridDim.x / int(p.units), chunks = LONG ? int(p.chunks) : 1;
        const int tiles = int((p.positions + TEAM_PLACES - 1) / TEAM_PLACES);
        int tile = blockIdx.x / int(p.units) + uniform(threadIdx.x / TEAM) * blocks;
        if (tile >= tiles) return;
        Inputs inputs;
        Spots<TOGETHER> spots;
        find(spots, tile);
        load(inputs, spots);
#pragma unroll 1
        while (tile < tiles) {
            const int next = tile + blocks * TEAMS;
            Element* outs[spots.COUNT];
#pragma unroll
            for (int s = 0; s < spots.COUNT; ++s) outs[s] = spots.out[s];
            Operands operands;
            Sums sums[HELD];
#pragma unroll 1
            for (int pass = 0; pass < (LONG ? 1 : int(p.passes)); ++pass) {
#pragma unroll 1
                for (int chunk = 0; chunk < chunks; ++chunk) {
                    if (LONG || pass == 0) {
                        fill(operands, inputs, Element());
                        settle(operands);
                        if (chunk == chunks - 1 && next < tiles) find(spots, next);
                        if (chunk < chunks - 1 || next < tiles) load(inputs, spots);
                    }
#pragma unroll
                    for (int h = 0; h < HELD; ++h) multiply(sums[h], operands, pass + h, chunk);
                }
#pragma unroll
                for (int h = 0; h < HELD; ++h) store<TOGETHER>(sums[h], outs, tile, pass + h);
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
