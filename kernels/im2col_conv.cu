// Convolution of arrays whose channels lie innermost, by wgmma: an implicit matrix product, for float16, bfloat16 and
// TF32 numbers, and for floats as two TF32 numbers each.
//
//     out[n, q, g, r] = sum over taps k and channels c of input[n, q * step + offset(k), g, c] * weight[g, r, k, c]
//
// Rows of the product are output pixels, columns are output channels, and the sum runs over taps and, within a tap, over
// channels. The copy engine has two operations for this. Its im2col mode brings neighbouring pixels of an array, a step
// apart and moved by the offset of a tap, from one image row and one sample to the next, with zeros for what lies
// outside; its tiled mode brings a box of weights.
//
//     K step: 128 bytes of channels of one tap
//
//     input    pixel 0  [ channels ]        weight   channel 0 [ channels ]
//              pixel 1  [ channels ]   x             channel 1 [ channels ]   =  PIXELS x COLUMNS sums
//              ...                                   ...
//
// Two threads have the operands brought to a ring of stages, one the pixels and one the weights; two warpgroups multiply
// half of the pixels each. Blocks are persistent: while the warpgroups store a tile, the ring fills for the next one.
//
// For float32 accuracy (PARTS == 2) the high and the low parts of weights come apart, as channels_last.cu copies them.
// Pixels come as floats, and consumers divide them in registers, from which wgmma takes them. Tensor Cores round sums
// towards zero, so the three products of a step are a chain of their own, which begins with the small ones and is added
// to the sums with rounding.
//
// Outputs that are phases apart have different taps (a transposed convolution with a stride): each phase has tiles, a
// tensor map and taps of its own. A step of the last channels of a group multiplies no more of them than there are, in
// units of 32 bytes; the copies of channels_last.cu fill such units with zeros.
//
// Long sums of samples with few tiles are divided into ranges (split-K), which are added in order. Where a batch has few
// tiles, too, ranges are tiles of their own, and sum_splits.cu adds them; else a block adds the ranges of its tile.
//
// Macros (set by cupyconv/_kernels/im2col_conv.py):
//     ELEMENT   type of the numbers (scalar.cuh)
//     PARTS     2 if floats are multiplied as two TF32 numbers each, in three products
//     PIXELS    pixels of a tile: 128 or 256
//     COLUMNS   output channels of a tile: 64, 128, 160 or 256
//
// Launch: THREADS threads, a multiprocessor's block each, on compute capability 9.0; it may begin early.

#include "stage_ring.cuh"
#include "take.cuh"
#include "tf32.cuh"

typedef ELEMENT Element;

constexpr int WARPGROUP = 128, CONSUMERS = 2, THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr int BLOCKS = PIXELS / (64 * CONSUMERS);  // of 64 pixels, of a warpgroup
constexpr int STEP_BYTES = 128, STEP = STEP_BYTES / sizeof(Element);  // channels of a K step
constexpr int SLICE_BYTES = 32, SLICES = STEP_BYTES / SLICE_BYTES;    // of an instruction
constexpr int PIXEL_BYTES = PIXELS * STEP_BYTES, WEIGHT_BYTES = COLUMNS * STEP_BYTES;
constexpr int STAGE_BYTES = PIXEL_BYTES + PARTS * WEIGHT_BYTES;
constexpr int PATCH = COLUMNS % 64 ? 32 : 64;  // channels of a tile that are stored at a time
constexpr int ROOM = (224 - PATCH / 2) * 1024, STAGES = ROOM / STAGE_BYTES < 8 ? ROOM / STAGE_BYTES : 8;
constexpr int MOST_PHASES = 8;
constexpr bool RANGES = PARTS * PIXELS * COLUMNS <= 128 * 128;  // whether there are registers for totals of ranges
constexpr int TURN_BARRIER = 1;  // named barriers, one for each consumer warpgroup

// An axis in a phase: its outputs, and its taps as the copy engine and the weights count them.
struct Window {
    Divisor outputs, taps;
    int64 first;                // of the outputs
    int64 tap, tap_step;        // in the weight: the first one, and the distance to the next
    int64 offset, offset_step;  // of the first tap from the window's corner, and to the next
    int64 lower;                // where the window begins
};

struct Phase {
    Window window[3];   // along x, y and z
    int64 tile;         // the first of its tiles of pixels
    int64 pixels;
};

struct Arguments {
    TensorMap input[MOST_PHASES], weight;  // weight: channels, taps, rows
    Element* out;
    float* partial;  // sums of ranges that are tiles of their own
    Parameter bias;
    int64 input_group;  // channels from one group to the next in the input's map
    int64 low_part;     // and from the high part of a weight to its low part in the weight's map
    // The arrays themselves, for sums that are not finite.
    const Element* array;
    const Element* kernels;
    Phase phase[MOST_PHASES];
    int64 phases;
    int64 axes;               // of the input's maps
    int64 step[3], apart[3];  // of the input, and of outputs of a phase; all axes are x, y and z
    int64 kernel[2];          // taps along x and y
    int64 channels, rows;          // of a group
    Divisor groups, blocks;        // blocks: K steps of a tap
    int64 last_slices;             // units of the last one
    int64 sample, group, channel, axis[3], size[3];       // of the input, with its strides
    int64 of_group, of_row, of_channel, of_axis[3];       // strides of the weight
    int64 out_sample, out_group, out_row, out_axis[3];    // of the output, or of a range's sums
    int64 range;  // sums of a range
    int64 together;  // what lies together in outputs: OF_CHANNELS in aligned units of eight, OF_PIXELS of four
    Divisor pixel_tiles, column_tiles, splits;
    int64 tiles;
};

enum Together { NOTHING, OF_CHANNELS, OF_PIXELS };

typedef Wgmma<matrix_type<Element>::value, COLUMNS> Product;

// What a tile computes: some pixels of a phase and output channels of a group, in ranges of K steps.
struct Tile {
    int phase, pixel, column, group;
    int steps;
    int range, ranges;  // the first one, and how many

    __device__ Tile(const Arguments& p, int number) {
        // Neighbouring blocks have the same pixels.
        int rest = number;
        column = take(rest, p.column_tiles) * COLUMNS;
        const int tile = take(rest, p.pixel_tiles);
        group = take(rest, p.groups), range = rest;
        ranges = p.partial ? 1 : int(p.splits.value);
        phase = 0;
        while (phase + 1 < int(p.phases) && tile >= p.phase[phase + 1].tile) ++phase;
        pixel = (tile - int(p.phase[phase].tile)) * PIXELS;
        const Window* const window = p.phase[phase].window;
        steps = int(window[0].taps.value * window[1].taps.value * window[2].taps.value * p.blocks.value);
    }
    __device__ int begin(const Arguments& p, int range) const {
        return long_quotient(range * steps, p.splits.reciprocal);
    }
};

// Where a pixel of a phase lies along x, y and z, and its sample.
struct Place {
    int at[3], sample;

    __device__ Place(const Phase& phase, int pixel) {
#pragma unroll
        for (int i = 0; i < 3; ++i) at[i] = take(pixel, phase.window[i].outputs);
        sample = pixel;
    }
};

// Sums of a warp on their way to memory: its 16 pixels by some channels, and the channels' bias. Where a unit of eight
// channels lies depends on the pixel and on its unit of four, so that the lanes' accesses meet in few banks.
struct Patch {
    float sums[16][PATCH], bias[PATCH];

    __device__ float* at(int pixel, int channel) { return &sums[pixel][channel ^ (pixel ^ pixel / 4) % 4 * 8]; }
};

// Stores four numbers that lie together.
__device__ __forceinline__ void store_unit(float* out, const float (&value)[4]) {
    const Bits64 low = pair_of(value[0], value[1], 0.0f), high = pair_of(value[2], value[3], 0.0f);
    store_bits((Bits128*)out, Bits128{{low.first, low.second, high.first, high.second}}, true);
}
template <typename Number>
__device__ __forceinline__ void store_unit(Number* out, const float (&value)[4]) {
    store_bits((Bits64*)out, Bits64{pair_of(value[0], value[1], Number()), pair_of(value[2], value[3], Number())}, true);
}
// Stores eight.
template <typename Number>
__device__ __forceinline__ void store_unit(Number* out, const float (&low)[4], const float (&high)[4]) {
    Bits128 bits;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        bits.words[i] = pair_of(low[2 * i], low[2 * i + 1], Number());
        bits.words[i + 2] = pair_of(high[2 * i], high[2 * i + 1], Number());
    }
    store_bits((Bits128*)out, bits, true);
}
__device__ __forceinline__ void store_unit(float* out, const float (&low)[4], const float (&high)[4]) {
    store_unit(out, low), store_unit(out + 4, high);
}

struct Block {
    const Arguments& p;
    unsigned char* const memory;  // stages, the warps' patches, then the ring's barriers

    __device__ unsigned char* pixels(int stage) const { return memory + stage * STAGE_BYTES; }
    __device__ unsigned char* weights(int stage, int part) const {
        return pixels(stage) + PIXEL_BYTES + part * WEIGHT_BYTES;
    }
    __device__ Patch* patches() const { return (Patch*)pixels(STAGES); }
    __device__ Ring<STAGES>& ring() const { return *(Ring<STAGES>*)(patches() + CONSUMERS * WARPGROUP / 32); }

    // The thread that has one of the operands brought. The other one's may come first: a stage is full when the arrival
    // of the thread of the pixels and all bytes are there.
    __device__ void produce(bool of_pixels) const {
        prefetch_map(of_pixels ? &p.input[0] : &p.weight);
        Turn<STAGES> turn;
        for (int number = blockIdx.x; number < int(p.tiles); number += gridDim.x) {
            const Tile tile(p, number);
            const Phase& phase = p.phase[tile.phase];
            const int begin = tile.begin(p, tile.range), end = tile.begin(p, tile.range + tile.ranges);
            const Place place(phase, tile.pixel);
            int from[3];
#pragma unroll
            for (int i = 0; i < 3; ++i) from[i] = int(phase.window[i].lower + place.at[i] * p.step[i]);
            int rest = begin, tap[3], offsets[3], of_weight;
            int block = take(rest, p.blocks);
#pragma unroll
            for (int i = 0; i < 3; ++i) tap[i] = take(rest, phase.window[i].taps);
            locate(phase, tap, offsets, of_weight);
            wait_for_grids();  // before any array is read
            for (int step = begin; step < end; ++step, turn.advance()) {
                mbarrier* const full = &ring().full[turn.stage];
                mbarrier_wait(&ring().empty[turn.stage], 1 - turn.parity);
                if (of_pixels) {
                    mbarrier_arrive_expect(full, STAGE_BYTES);
                    const int channel = tile.group * int(p.input_group) + block * STEP;
                    im2col_copy(int(p.axes), pixels(turn.stage), &p.input[tile.phase], channel, from, place.sample,
                                offsets, full);
                } else {
#pragma unroll
                    for (int part = 0; part < PARTS; ++part)
                        tensor_copy(weights(turn.stage, part), &p.weight, part * int(p.low_part) + block * STEP,
                                    of_weight, tile.group * int(p.rows) + tile.column, full);
                }
                if (++block < int(p.blocks.value)) continue;
                block = 0;
                for (int i = 0; i < 3; ++i) {
                    if (++tap[i] < int(phase.window[i].taps.value)) break;
                    tap[i] = 0;
                }
                locate(phase, tap, offsets, of_weight);
            }
        }
    }
    // Where a tap lies in the input, from the window's corner, and in the weight.
    __device__ void locate(const Phase& phase, const int (&tap)[3], int (&offsets)[3], int& of_weight) const {
        of_weight = 0;
#pragma unroll
        for (int i = 2; i >= 0; --i) {
            offsets[i] = int(phase.window[i].offset + tap[i] * phase.window[i].offset_step);
            const int own = int(phase.window[i].tap + tap[i] * phase.window[i].tap_step);
            of_weight = i == 2 ? own : of_weight * int(p.kernel[i]) + own;
        }
    }

    __device__ void consume() const;
    // How many slices K steps have, from a step on: the last one of a tap may have fewer.
    struct Slices {
        const Arguments& p;
        int block;

        __device__ Slices(const Arguments& p, int step) : p(p), block(take(step, p.blocks)) {}
        __device__ int next() {
            const bool last = ++block == int(p.blocks.value);
            if (last) block = 0;
            // That all warps multiply as many slices, compilers do not see by themselves.
            return __shfl_sync(~0u, last ? int(p.last_slices) : SLICES, 0);
        }
    };
    __device__ __forceinline__ static void clear(float (&sums)[BLOCKS][COLUMNS / 2]) {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; ++i) sums[block][i] = 0;
    }
    // The descriptor of an operand that begins some bytes further.
    __device__ static unsigned long long moved(unsigned long long descriptor, int bytes) {
        return descriptor >> 32 << 32 | (unsigned(descriptor) + bytes / 16);
    }
    // The products of some slices of a stage, and a wait for those of the stage before. Each number of slices has
    // straight code: ptxas makes products between branches groups of their own, and the wait would be for nearly all.
    template <int COUNT = SLICES>
    __device__ __forceinline__ static void multiply_slices(float (&sums)[BLOCKS][COLUMNS / 2], unsigned long long a,
                                                           unsigned long long b, int slices) {
        if constexpr (COUNT > 1)
            if (slices < COUNT) return multiply_slices<COUNT - 1>(sums, a, b, slices);
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < COUNT; ++slice)
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i)
                Product::multiply(sums[i], moved(a, i * 64 * STEP_BYTES + slice * SLICE_BYTES),
                                  moved(b, slice * SLICE_BYTES), true);
        wgmma_commit();
        wgmma_wait<1>();
    }
    // The sums of some K steps.
    __device__ __forceinline__ void multiply(float (&sums)[BLOCKS][COLUMNS / 2], int begin, int end, int warpgroup,
                                             Turn<STAGES>& turn) const {
        clear(sums);
        wgmma_fence();  // else compilers put it where not all warps may pass
        int before = -1;
        Slices counts(p, begin);
        for (int step = begin; step < end; ++step, turn.advance()) {
            const int stage = turn.stage, slices = counts.next();
            const unsigned long long a = swizzled_descriptor(pixels(stage) + warpgroup * PIXEL_BYTES / CONSUMERS);
            const unsigned long long b = swizzled_descriptor(weights(stage, 0));
            mbarrier_wait(&ring().full[stage], turn.parity);
            multiply_slices(sums, a, b, slices);
            if (before >= 0) ring().release(before);
            before = stage;
        }
        wgmma_wait<0>();
        if (before >= 0) ring().release(before);
    }

    // Two TF32 numbers for each float of a warp's pixels, in the order of an instruction's operands: a thread has two
    // channels of each slice, for two pixels.
    struct Operands {
        unsigned part[2][SLICES][4];

        __device__ __forceinline__ explicit Operands(const unsigned char* pixels) {
            const int lane = threadIdx.x % 32, pixel = threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
            const unsigned char* const row = pixels + pixel * STEP_BYTES + lane % 4 * 4;
            unsigned bits[SLICES][4];  // all loads first, as each takes long
#pragma unroll
            for (int i = 0; i < SLICES * 4; ++i) {
                const int chunk = i / 2 ^ pixel % 8;  // of 16 bytes, with the swizzle
                bits[i / 4][i % 4] = *(const unsigned*)(row + i % 2 * 8 * STEP_BYTES + chunk * 16);
            }
#pragma unroll
            for (int i = 0; i < 2 * SLICES * 4; ++i) {
                unsigned& own = part[i % 2][i / 8][i / 2 % 4];
                own = tf32_part(bits[i / 8][i / 2 % 4], i % 2);
                settle(own);
            }
        }
    };
    // The chain of some slices, in a turn: low parts by high ones, high ones by low ones, and both high ones.
    template <typename ProductOfParts, int COUNT = SLICES>
    __device__ __forceinline__ static void multiply_chain(float (&chain)[COLUMNS / 2], const Operands& a,
                                                          unsigned long long b, int slices, int warpgroup) {
        if constexpr (COUNT > 1)
            if (slices < COUNT) return multiply_chain<ProductOfParts, COUNT - 1>(chain, a, b, slices, warpgroup);
        wait_for_turn(warpgroup);
        wgmma_fence();
#pragma unroll
        for (int product = 0; product < 3; ++product)
#pragma unroll
            for (int slice = 0; slice < COUNT; ++slice) {
                if (product == 2 && slice + 1 == COUNT) give_turn(1 - warpgroup);
                ProductOfParts::multiply(chain, a.part[product == 0][slice],
                                         moved(b, (product == 1) * WEIGHT_BYTES + slice * SLICE_BYTES),
                                         product + slice > 0);
            }
        wgmma_commit();
        wgmma_wait<0>();
    }
    // The sums of some K steps with float32 accuracy. The warpgroups take turns: while one divides pixels and adds a
    // chain to its sums, the products of the other one keep the Tensor Cores busy.
    template <typename ProductOfParts>
    __device__ __forceinline__ void multiply_parts(float (&sums)[BLOCKS][COLUMNS / 2], int begin, int end,
                                                   int warpgroup, Turn<STAGES>& turn) const {
        float chain[COLUMNS / 2];
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) chain[i] = 0;
        clear(sums);
        wgmma_fence();  // else compilers put it where not all warps may pass
        Slices counts(p, begin);
        for (int step = begin; step < end; ++step, turn.advance()) {
            const int slices = counts.next();
            mbarrier_wait(&ring().full[turn.stage], turn.parity);
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) {
                const Operands a(pixels(turn.stage) + (warpgroup * BLOCKS + i) * 64 * STEP_BYTES);
                const unsigned long long b = swizzled_descriptor(weights(turn.stage, 0));
                multiply_chain<ProductOfParts>(chain, a, b, slices, warpgroup);
#pragma unroll
                for (int j = 0; j < COLUMNS / 2; ++j) sums[i][j] += chain[j];
            }
            ring().release(turn.stage);
        }
    }
    __device__ static void wait_for_turn(int warpgroup) {
        named_barrier_wait(TURN_BARRIER + warpgroup, CONSUMERS * WARPGROUP);
    }
    __device__ static void give_turn(int warpgroup) {
        named_barrier_arrive(TURN_BARRIER + warpgroup, CONSUMERS * WARPGROUP);
    }

    // A sum as it is defined. A zero that stands for an absent input makes NaN of an infinite weight, and a number near
    // the largest rounds to infinity; neither is lost in a sum, so no other sum is concerned. NaN stays NaN.
    __device__ __noinline__ static float exact_sum(const Arguments& p, const Tile& tile, int range, int pixel, int row) {
        const Place place(p.phase[tile.phase], pixel);
        const Window* const axis = p.phase[tile.phase].window;
        float sum = 0;
#pragma unroll 1
        for (int step = tile.begin(p, range); step < tile.begin(p, range + 1); ++step) {
            int rest = step;
            const int first = take(rest, p.blocks) * STEP;
            const Element* input = p.array + place.sample * p.sample + tile.group * p.group;
            const Element* weight = p.kernels + tile.group * p.of_group + row * p.of_row;
            bool present = true;
#pragma unroll 1
            for (int i = 0; i < 3; ++i) {
                const int tap = take(rest, axis[i].taps);
                const int64 at = axis[i].lower + place.at[i] * p.step[i] + axis[i].offset + tap * axis[i].offset_step;
                present &= at >= 0 && at < p.size[i];
                input += at * p.axis[i], weight += (axis[i].tap + tap * axis[i].tap_step) * p.of_axis[i];
            }
            if (!present) continue;
#pragma unroll 1
            for (int c = first; c < int(p.channels) && c < first + STEP && sum == sum; ++c)
                sum = fmaf(widen<float>(input[c * p.channel]), widen<float>(weight[c * p.of_channel]), sum);
        }
        return sum;
    }

    // Computes sums of a range that are not finite as they are defined. A thread has two channels of each unit of eight,
    // for two pixels.
    __device__ __forceinline__ void repair(const Tile& tile, int range, int block, float (&sums)[COLUMNS / 2]) const {
        bool special = false;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) special |= is_special(sums[i]);
        if (!special) return;
        const int lane = threadIdx.x % 32, pixel = first_pixel(tile, block) + lane / 4;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) {
            if (!is_special(sums[i])) continue;
            const int own = pixel + i / 2 % 2 * 8, row = tile.column + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (own < int(p.phase[tile.phase].pixels) && row < int(p.rows))
                sums[i] = exact_sum(p, tile, range, own, row);
        }
    }
    // The first of a warp's 16 pixels.
    __device__ static int first_pixel(const Tile& tile, int block) {
        const int warp = threadIdx.x / 32;
        return tile.pixel + (warp / 4 * BLOCKS + block) * 64 + warp % 4 * 16;
    }
};

// Stores the sums of a warp by way of shared memory: straight code for all registers would outgrow the instruction
// cache.
struct Stores {
    const Arguments& p;
    const Tile& tile;
    Patch& patch;
    int64 offset[BLOCKS];        // of the first channel of pixel lane % 16
    float bias[COLUMNS / 32];    // of channels lane, lane + 32, ...

    // Before the products, which hide the latency of the loads.
    __device__ __forceinline__ Stores(const Block& block, const Tile& tile)
        : p(block.p), tile(tile), patch(block.patches()[threadIdx.x / 32]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) offset[i] = target(Block::first_pixel(tile, i) + lane % 16);
#pragma unroll
        for (int i = 0; i < COLUMNS / 32; ++i) {
            const int row = tile.column + lane + i * 32;
            bias[i] = p.bias.data && !p.partial && row < int(p.rows)
                          ? load_parameter<float>(p.bias, tile.group * p.rows + row)
                          : 0;
        }
    }
    // Where a pixel is stored: its first channel.
    __device__ int64 target(int pixel) const {
        const Phase& phase = p.phase[tile.phase];
        const Place place(phase, pixel);
        int64 found = place.sample * p.out_sample + tile.group * p.out_group;
#pragma unroll
        for (int i = 0; i < 3; ++i) found += (phase.window[i].first + place.at[i] * p.apart[i]) * p.out_axis[i];
        return found;
    }

    __device__ __forceinline__ void store(const float (&sums)[BLOCKS][COLUMNS / 2]) const {
        constexpr int PATCHES = COLUMNS / PATCH;
#pragma unroll 1
        for (int part = 0; part < BLOCKS * PATCHES; ++part) {
            float marked = 0;
            int64 target = 0;
            // Only the code that names registers is there for each part.
#pragma unroll
            for (int own = 0; own < BLOCKS * PATCHES; ++own) {
                if (own != part) continue;
                marked = write(sums[own / PATCHES], own % PATCHES);
                target = offset[own / PATCHES];
            }
            __syncwarp();
            const int pixel = Block::first_pixel(tile, part / PATCHES), row = tile.column + part % PATCHES * PATCH;
            const int pixels = int(p.phase[tile.phase].pixels) - pixel, rows = int(p.rows) - row;
            if (__any_sync(~0u, marked != 0 && tile.ranges == 1)) repair(pixel, pixels, row, rows);
            if (p.together == OF_CHANNELS)
                store_channels(target + row, pixels, rows);
            else if (p.together == OF_PIXELS)
                store_pixels(target + row * p.out_row, pixels, rows);
            else
                store_each(target + row * p.out_row, pixels, rows);
            __syncwarp();
        }
    }
    // Writes a lane's two channels of each unit of eight, for two pixels; returns NaN if a sum is not finite, else zero.
    __device__ __forceinline__ float write(const float (&sums)[COLUMNS / 2], int part) const {
        const int lane = threadIdx.x % 32;
        float marked = 0;
#pragma unroll
        for (int i = 0; i < PATCH / 2; i += 2) {
            const float first = sums[part * (PATCH / 2) + i], second = sums[part * (PATCH / 2) + i + 1];
            marked = fmaf(first, 0.0f, marked), marked = fmaf(second, 0.0f, marked);
            *(Bits64*)patch.at(lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2) = pair_of(first, second, 0.0f);
        }
#pragma unroll
        for (int i = 0; i < PATCH; i += 32) patch.bias[i + lane] = bias[(part * PATCH + i) / 32];
        return marked;
    }
    // Computes sums that are not finite as they are defined.
    __device__ void repair(int pixel, int pixels, int row, int rows) const {
        const int own = threadIdx.x % 16;
#pragma unroll 1
        for (int i = threadIdx.x % 32 / 16; i < PATCH; i += 2) {
            float& sum = *patch.at(own, i);
            if (is_special(sum) && own < pixels && i < rows)
                sum = Block::exact_sum(p, tile, tile.range, pixel + own, row + i);
        }
        __syncwarp();
    }
    // Stores channels that lie together. A lane has the offset of the pixel of its number, and stores others.
    __device__ void store_channels(int64 target, int pixels, int rows) const {
        constexpr int UNITS = PATCH / 8;
        const int lane = threadIdx.x % 32, first = lane % UNITS * 8;
        float added[2][4];
#pragma unroll
        for (int j = 0; j < 8; ++j) added[j / 4][j % 4] = patch.bias[first + j];
#pragma unroll
        for (int i = 0; i < UNITS / 2; ++i) {
            const int pixel = lane / UNITS + i * (32 / UNITS);
            const int64 at = __shfl_sync(~0u, target, pixel);
            float value[2][4];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const Bits128 bits = *(const Bits128*)patch.at(pixel, first + j * 4);
#pragma unroll
                for (int k = 0; k < 4; ++k) value[j][k] = __uint_as_float(bits.words[k]) + added[j][k];
            }
            if (pixel >= pixels || first >= rows) continue;
            if (p.partial)
                store_unit(p.partial + tile.range * p.range + at + first, value[0], value[1]);
            else
                store_unit(p.out + at + first, value[0], value[1]);
        }
    }
    // Stores units of four pixels that lie together, of eight channels at a time.
    __device__ void store_pixels(int64 target, int pixels, int rows) const {
        const int lane = threadIdx.x % 32, first = lane % 4 * 4;
        const int64 at = __shfl_sync(~0u, target, first);
        if (first >= pixels) return;
#pragma unroll 4
        for (int i = lane / 4; i < PATCH; i += 8) {
            if (i >= rows) break;
            float value[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) value[k] = *patch.at(first + k, i) + patch.bias[i];
            if (p.partial)
                store_unit(p.partial + tile.range * p.range + at + i * p.out_row, value);
            else
                store_unit(p.out + at + i * p.out_row, value);
        }
    }
    // Stores channels anywhere, of results or of the sums of a range.
    __device__ void store_each(int64 target, int pixels, int rows) const {
        const int pixel = threadIdx.x % 16;
        if (pixel >= pixels) return;
#pragma unroll 4
        for (int i = threadIdx.x % 32 / 16; i < PATCH; i += 2) {
            if (i >= rows) break;
            const float sum = *patch.at(pixel, i);
            const int64 at = target + i * p.out_row;
            if (p.partial)
                p.partial[tile.range * p.range + at] = sum;
            else
                p.out[at] = narrow<Element>(sum + patch.bias[i]);
        }
    }
};

__device__ void Block::consume() const {
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);  // so that compilers see one for a warp
    if (PARTS == 2 && warpgroup == 1) give_turn(0);  // the first one begins
    Turn<STAGES> turn;
    for (int number = blockIdx.x; number < int(p.tiles); number += gridDim.x) {
        const Tile tile(p, number);
        wait_for_grids();  // before any array is read or written
        const Stores stores(*this, tile);
        float sums[BLOCKS][COLUMNS / 2], totals[BLOCKS][COLUMNS / 2];  // one of them is in use without ranges
        clear(totals);
#pragma unroll 1
        for (int range = tile.range; range < tile.range + tile.ranges; ++range) {
            const int begin = tile.begin(p, range), end = tile.begin(p, range + 1);
            if constexpr (PARTS == 2)
                multiply_parts<WgmmaOfRegisters<MATRIX_TF32, COLUMNS>>(sums, begin, end, warpgroup, turn);
            else
                multiply(sums, begin, end, warpgroup, turn);
            if constexpr (RANGES) {
                if (tile.ranges == 1) break;
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block) {
                    repair(tile, range, block, sums[block]);
#pragma unroll
                    for (int i = 0; i < COLUMNS / 2; ++i) totals[block][i] += sums[block][i];
                }
            }
        }
        if constexpr (RANGES) {
            if (tile.ranges > 1) {
                stores.store(totals);
                continue;
            }
        }
        stores.store(sums);
    }
    if (PARTS == 2 && warpgroup == 0) wait_for_turn(0);  // the last turn is nobody's
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) im2col_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Block block = {p, memory};
    block.ring().initialise(CONSUMERS * WARPGROUP / 32);
    launch_grids();
    // Two threads of the third warpgroup have operands brought; it gives its registers to the others.
    if (threadIdx.x < CONSUMERS * WARPGROUP) {
        take_registers<240>();
        block.consume();
    } else {
        give_registers<24>();
        const int role = (threadIdx.x - CONSUMERS * WARPGROUP) / 32;
        if (threadIdx.x % 32 == 0 && role < 2) block.produce(role == 0);
    }
}
