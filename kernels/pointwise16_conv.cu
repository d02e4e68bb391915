// The pointwise kernel for float16 and bfloat16: convolutions of one tap and many channels on the Tensor Cores of
// compute capability 9.0.
//
//     out[n, g, row, o] = bias[g, row] + sum over channels of in[n, g, channel, i(o)] * w[g, row, channel]
//
// where i(o) = o * step + low on each axis. So it computes all such convolutions but transposed ones with strides.
//
// It is a matrix product for each sample. Tensor Cores read both operands from shared memory, in blocks of 64 by 64
// numbers, 8 KB, whose rows are rows of the arrays. Nothing is packed, and nothing is transposed:
//
//     a block of inputs              one of weights                64 numbers of a row are 128 bytes, eight words of 16.
//                 64 positions                   64 channels       Word i of row r lies at i ^ (r % 8), so that neither
//     channel 0   # # # # # # #      row 0       # # # # # # #     words of a row nor words of a column share a bank
//     channel 1   # # # # # # #      row 1       # # # # # # #
//     ...                            ...
//
//     a stage: 64 channels of      [block of positions] x BLOCKS, [row tile] x TEAMS x SLABS
//
// In the weights of transposed convolutions rows are contiguous, and not channels. Blocks of such weights have the
// layout of blocks of inputs: Tensor Cores read either layout.
//
// A tile is TEAMS * SLABS row tiles of 64 output channels by BLOCKS blocks of positions, each of one sample: small
// images share a tile. Its sum runs over chunks of 64 channels, which pass through a ring of pipeline stages. A
// producer warpgroup copies them, and runs ahead of the consumer warpgroups, also from one tile to the next. A consumer
// has SLABS row tiles and all positions, and keeps the products of one chunk under way while it waits for the next
// chunk.
//
// 16-byte words are copied whole if arrays are aligned to 16 bytes, and in pieces if they are aligned to 8 or 4. For
// all other arrays both operands are put together from single numbers, which is slow, and right for any strides.
//
// In the accumulators four threads have eight neighbours of a row, two each, which are 16 bytes. So the epilogue moves
// the sums through shared memory, in the place of weights that the warpgroup has read, and stores rows of 128 bytes.
//
// A sum runs over the channels in K steps of 16. It is the order of streaming_conv.cu, and gives the same bits.
// Channels after the last one are zero in both operands. Infinities and NaN follow IEEE arithmetic.
//
// Macros, beside the macros of matrix_tile.cuh (PARTS is 1):
//     TEAMS       consumer warpgroups: 1 or 2
//     SLABS       row tiles of 64 rows of a consumer warpgroup
//     BLOCKS      blocks of 64 positions of a tile
//     RESIDENT    blocks of threads that share a multiprocessor
//
// Launch: THREADS threads, a multiple of `units` blocks, shared memory for stages, biases and barriers
// (_kernels/pointwise16_conv.py). A block stays with one unit, which is ROWS rows of a group. The blocks of a unit take
// its tiles of positions in turn.

#include "matrix_tile.cuh"
#include "space.cuh"

constexpr int TEAM = 128;
constexpr int THREADS = (TEAMS + 1) * TEAM;
constexpr int SIDE = 64;             // rows and columns of a block of numbers
constexpr int ROW_BYTES = 2 * SIDE;
constexpr int BLOCK_BYTES = SIDE * ROW_BYTES;
constexpr int WORD = 8;                        // numbers of a word of 16 bytes
constexpr int OWN_WORDS = SIDE * WORD / TEAM;  // words of a block that a thread copies
constexpr int APART = SIDE / OWN_WORDS;        // rows from one word of a thread to its next word
constexpr int PLACES = BLOCKS * SIDE, ROWS = TEAMS * SLABS * SIDE;
constexpr int STAGE_BYTES = (BLOCKS + TEAMS * SLABS) * BLOCK_BYTES;
constexpr int SUMS = PLACES / 2;  // accumulators of a thread in a row tile
constexpr int MAX_STAGES = 12;
constexpr int FIRST_BARRIER = 1;  // one for each warpgroup
// Registers of producer and consumer threads.
constexpr int GIVEN = 56, TAKEN = (512 / RESIDENT - GIVEN) / TEAMS / 8 * 8;

// All strides are in elements.
struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 channels, rows;  // of a group
    int64 weight_group, weight_row, weight_channel;
    Space space;
    int64 blocks, blocks_of_sample, per_blocks;  // blocks of 64 positions; per_blocks is a long reciprocal
    int64 units, units_of_group, stages;
    int64 inputs_of, weights_of, outs_of;  // numbers that are copied, or stored, together: 8, 4, 2, or 1
    int64 across;                          // 1 if rows of the weights are contiguous, and not channels
};

struct Barriers {
    mbarrier full[MAX_STAGES], empty[MAX_STAGES];
};

// Products with weights whose rows run along K, or across K.
template <bool ACROSS>
struct Products {
    typedef WgmmaAcross<matrix_type<Operand>::value, PLACES> type;
};
template <>
struct Products<true> {
    typedef WgmmaBothAcross<matrix_type<Operand>::value, PLACES> type;
};

struct Worker {
    const Arguments& p;
    unsigned char* const stages;
    float* const biases;
    Barriers& barriers;
    const int first_tile, unit, group, first_row;

    __device__ __forceinline__ Worker(const Arguments& p, unsigned char* memory)
        : p(p),
          stages(memory),
          biases((float*)(memory + int(p.stages) * STAGE_BYTES)),
          barriers(*(Barriers*)(biases + ROWS)),
          first_tile(divided(blockIdx.x, int(p.units))),
          unit(blockIdx.x - first_tile * int(p.units)),
          group(p.units == p.units_of_group ? 0 : divided(unit, int(p.units_of_group))),
          first_row((unit - group * int(p.units_of_group)) * ROWS) {}

    // This function is not inlined, because code that seldom runs would delay other code while the cache is cold.
    __device__ __noinline__ static void load_biases(const Arguments& p, float* biases, int group, int first_row) {
        for (int own = threadIdx.x; own < ROWS; own += THREADS) {
            const int row = first_row + own;
            biases[own] = row < int(p.rows) ? load_parameter<float>(p.bias, group * p.rows + row) : 0.0f;
        }
    }
    __device__ void begin() const {
        if (threadIdx.x < int(p.stages)) {
            mbarrier_init(&barriers.full[threadIdx.x], TEAM);
            mbarrier_init(&barriers.empty[threadIdx.x], TEAMS * TEAM / 32);
            mbarrier_init_fence();
        }
        if (p.bias.data) load_biases(p, biases, group, first_row);
    }

    __device__ int apart() const { return divided(gridDim.x, int(p.units)); }
    __device__ int tiles() const { return (int(p.blocks) + BLOCKS - 1) / BLOCKS; }

    // A block of positions of a tile: its sample, its first position, and its number of positions (0 after the last
    // block).
    struct Positions {
        int sample, first, count;
    };
    __device__ __forceinline__ Positions positions(int tile, int block) const {
        const int index = tile * BLOCKS + block, sample = long_quotient(index, p.per_blocks);
        const int first = (index - sample * int(p.blocks_of_sample)) * SIDE, left = int(p.space.size) - first;
        return {sample, first, index >= int(p.blocks) ? 0 : left < SIDE ? left : SIDE};
    }
    __device__ Place place(const Positions& block, int position) const {
        int at[3];
        return p.space.place_of(block.sample, group, block.first + position, at);
    }
    // The offsets of the first position of a block, if the positions of a sample are contiguous.
    __device__ Place start_of(const Positions& block) const {
        return {scaled(block.sample, p.space.input_batch) + group * p.space.input_group + block.first,
                scaled(block.sample, p.space.out_batch) + group * p.space.out_group + block.first};
    }

    // The first row of a block that a thread copies, its word of each row, and the byte offset of that word.
    __device__ static int own_row() { return threadIdx.x % TEAM / WORD; }
    __device__ static int own_word() { return threadIdx.x % WORD; }
    __device__ static int own_place() { return own_row() * ROW_BYTES + (own_word() ^ own_row() % WORD) * 16; }

    // Copies a thread's words of a block, TOGETHER numbers at a time. `rows` rows exist from the thread's first row on,
    // and `count` numbers of each row from its word on; zeros take the place of others.
    template <int TOGETHER>
    __device__ __forceinline__ static void copy(unsigned char* to, const Element* from, int64 apart, int rows, int count) {
        settle(from);  // or registers are kept for the addresses of all chunks, for each way to copy
#pragma unroll
        for (int i = 0; i < OWN_WORDS; ++i, to += APART * ROW_BYTES, from += apart)
#pragma unroll
            for (int piece = 0; piece < WORD; piece += TOGETHER)
                copy_async_or_zeros<2 * TOGETHER>(to + 2 * piece, from + piece, i * APART < (piece < count ? rows : 0));
    }
    // Copies the inputs of a chunk, where `left` channels remain.
    template <int TOGETHER>
    __device__ __forceinline__ void copy_inputs(unsigned char* to, const Element* const (&from)[BLOCKS],
                                                const int (&counts)[BLOCKS], int left) const {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block, to += BLOCK_BYTES)
            copy<TOGETHER>(to, from[block], APART * p.space.input_channel, left - own_row(), counts[block]);
    }
    template <int TOGETHER>
    __device__ __forceinline__ void copy_weights(unsigned char* to, const Element* from, int64 row, int left) const {
#pragma unroll
        for (int slab = 0; slab < TEAMS * SLABS; ++slab, to += BLOCK_BYTES) {
            const int rows = int(p.rows) - first_row - slab * SIDE;
            copy<TOGETHER>(to, from + slab * SIDE * p.weight_row, APART * row, (p.across ? left : rows) - own_row(),
                           (p.across ? rows : left) - own_word() * WORD);
        }
    }

    // All chunks of all tiles of the block, by a warpgroup; of both operands WHOLE words, or pieces.
    template <bool WHOLE>
    __device__ __forceinline__ void bring() const {
        const int64 channel = p.space.input_channel, row = p.across ? p.weight_channel : p.weight_row;
        Turn turn = {0, 0};
#pragma unroll 1
        for (int tile = first_tile; tile < tiles(); tile += apart()) {
            const Element* inputs[BLOCKS];
            int counts[BLOCKS];
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                const Positions own = positions(tile, block);
                counts[block] = own.count - own_word() * WORD;
                inputs[block] = p.input + start_of(own).input + own_word() * WORD + own_row() * channel;
            }
            const Element* weights = p.weight + group * p.weight_group + first_row * p.weight_row + own_row() * row +
                                     own_word() * WORD;
#pragma unroll 1
            for (int left = int(p.channels); left > 0; left -= SIDE) {
                unsigned char* const to = stages + turn.stage * STAGE_BYTES + own_place();
                mbarrier_wait(&barriers.empty[turn.stage], turn.parity ^ 1);
                if (WHOLE || p.inputs_of == 8)
                    copy_inputs<8>(to, inputs, counts, left);
                else if (p.inputs_of == 4)
                    copy_inputs<4>(to, inputs, counts, left);
                else
                    copy_inputs<2>(to, inputs, counts, left);
                if (WHOLE || p.weights_of == 8)
                    copy_weights<8>(to + BLOCKS * BLOCK_BYTES, weights, row, left);
                else if (p.weights_of == 4)
                    copy_weights<4>(to + BLOCKS * BLOCK_BYTES, weights, row, left);
                else
                    copy_weights<2>(to + BLOCKS * BLOCK_BYTES, weights, row, left);
#pragma unroll
                for (const Element*& own : inputs) own += SIDE * channel;
                weights += SIDE * p.weight_channel;
                copy_async_arrive(&barriers.full[turn.stage]);
                turn.advance(int(p.stages));
            }
        }
    }

    // Copies a block number by number. `rows` rows and `columns` columns of it exist; `find` returns their addresses.
    template <typename Find>
    __device__ static void gather(unsigned char* to, int rows, int columns, Find find) {
#pragma unroll 1
        for (int i = 0; i < OWN_WORDS; ++i) {
            const int row = own_row() + i * APART;
            Bits128 bits = {{0, 0, 0, 0}};
#pragma unroll
            for (int k = 0; k < WORD; ++k) {
                const int column = own_word() * WORD + k;
                if (row < rows && column < columns)
                    bits.words[k / 2] |= unsigned(*(const Bits*)find(row, column)) << k % 2 * 16;
            }
            store_bits(to + i * APART * ROW_BYTES, bits);
        }
    }
    __device__ __forceinline__ void gather() const {
        Turn turn = {0, 0};
#pragma unroll 1
        for (int tile = first_tile; tile < tiles(); tile += apart())
#pragma unroll 1
            for (int channel = 0; channel < int(p.channels); channel += SIDE) {
                const int left = int(p.channels) - channel;
                unsigned char* to = stages + turn.stage * STAGE_BYTES + own_place();
                mbarrier_wait(&barriers.empty[turn.stage], turn.parity ^ 1);
#pragma unroll 1
                for (int block = 0; block < BLOCKS; ++block, to += BLOCK_BYTES) {
                    const Positions own = positions(tile, block);
                    gather(to, left, own.count, [&](int row, int column) {
                        return p.input + place(own, column).input + (channel + row) * p.space.input_channel;
                    });
                }
#pragma unroll 1
                for (int slab = 0; slab < TEAMS * SLABS; ++slab, to += BLOCK_BYTES) {
                    const int first = first_row + slab * SIDE;
                    gather(to, int(p.rows) - first, left, [&](int row, int column) {
                        return p.weight + group * p.weight_group + (first + row) * p.weight_row +
                               (channel + column) * p.weight_channel;
                    });
                }
                mbarrier_arrive(&barriers.full[turn.stage]);
                turn.advance(int(p.stages));
            }
    }

    // Issues the products of a chunk.
    template <bool ACROSS>
    __device__ __forceinline__ static void multiply(float (&sums)[SLABS][SUMS], const unsigned char* stage, int team,
                                                    bool add) {
        const unsigned char* const slab = stage + (BLOCKS + team * SLABS) * BLOCK_BYTES;
        const unsigned long long inputs = matrix_descriptor(stage, BLOCK_BYTES, 8 * ROW_BYTES, 128);
        const unsigned long long weights = matrix_descriptor(slab, BLOCK_BYTES, 8 * ROW_BYTES, 128);
        constexpr int STEP = BLOCK * ROW_BYTES / 16, OWN_STEP = ACROSS ? STEP : BLOCK * 2 / 16;  // words
        typedef typename Products<ACROSS>::type Product;
        async_proxy_fence();  // after the copies of the producer
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < SIDE / BLOCK; ++step)
#pragma unroll
            for (int s = 0; s < SLABS; ++s)
                Product::multiply(sums[s], weights + s * BLOCK_BYTES / 16 + step * OWN_STEP, inputs + step * STEP,
                                  add || step > 0);
        wgmma_commit();
    }
    __device__ __forceinline__ void release(int stage) const {
        if (threadIdx.x % 32 == 0) mbarrier_arrive(&barriers.empty[stage]);
    }

    // Stores the first `count` outputs of a word, by pieces.
    template <typename Piece>
    __device__ __forceinline__ static void store_pieces(Piece* to, const unsigned char* word, int count) {
        constexpr int TOGETHER = sizeof(Piece) / 2;
#pragma unroll
        for (int i = 0; i < WORD / TOGETHER; ++i) store_bits(to + i, ((const Piece*)word)[i], i * TOGETHER < count);
    }
    // Stores a warp's outputs of 16 rows by 64 positions; `rows` rows exist from `first_row` on. A thread stores a word
    // of every fourth row.
    __device__ __forceinline__ void store(const unsigned char* from, const Positions& block, int first_row, int rows) const {
        const int lane = threadIdx.x % 32, own = lane / WORD, column = own_word() * WORD, count = block.count - column;
        const int64 apart = 4 * p.space.out_row;
        from += own * ROW_BYTES;
        const unsigned char* const words[2] = {from + (own_word() ^ own) * 16, from + (own_word() ^ own ^ 4) * 16};
        Element* to = p.out + start_of(block).out + column + (first_row + own) * p.space.out_row;
        if (p.outs_of == 8) {
#pragma unroll
            for (int i = 0; i < 4; ++i, to += apart)
                store_bits((Bits128*)to, *(const Bits128*)(words[i % 2] + i * 4 * ROW_BYTES), i * 4 + own < rows && count > 0);
        } else if (p.outs_of == 4) {
#pragma unroll
            for (int i = 0; i < 4; ++i, to += apart)
                store_pieces((Bits64*)to, words[i % 2] + i * 4 * ROW_BYTES, i * 4 + own < rows ? count : 0);
        } else if (p.outs_of == 2) {
#pragma unroll
            for (int i = 0; i < 4; ++i, to += apart)
                store_pieces((unsigned*)to, words[i % 2] + i * 4 * ROW_BYTES, i * 4 + own < rows ? count : 0);
        } else
#pragma unroll 1
            for (int i = 0; i < 4 * WORD; ++i) {
                const int row = i / WORD * 4 + own;
                const Element* const word = (const Element*)(from + i / WORD * 4 * ROW_BYTES + (own_word() ^ row % WORD) * 16);
                if (row < rows && i % WORD < count)
                    p.out[place(block, column + i % WORD).out + (first_row + row) * p.space.out_row] = word[i % WORD];
            }
    }
    // Stores all sums of a warpgroup. Each warp puts a block of 16 rows by 64 positions into 2 KB of weights that it
    // has read and no other warp reads, and then stores the block row by row.
    __device__ __forceinline__ void finish(float (&sums)[SLABS][SUMS], unsigned char* slabs, int tile, int team) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x % TEAM / 32;
        named_barrier_wait(FIRST_BARRIER + team, TEAM);  // all warps have read their weights
#pragma unroll
        for (int slab = 0; slab < SLABS; ++slab) {
            const int row = (team * SLABS + slab) * SIDE + warp * 16;  // the warp's first one
            unsigned char* const own = slabs + warp * 16 * ROW_BYTES;
            if (p.bias.data) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float bias = biases[row + lane / 4 + half * 8];
#pragma unroll
                    for (int i = half * 2; i < SUMS; i += 4) sums[slab][i] += bias, sums[slab][i + 1] += bias;
                }
            }
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                unsigned char* const to = own + lane / 4 * ROW_BYTES + lane % 4 * 4;
#pragma unroll
                for (int word = 0; word < WORD; ++word) {
                    const float* const sum = &sums[slab][(block * WORD + word) * 4];
                    unsigned* const at = (unsigned*)(to + (word ^ lane / 4) * 16);
                    at[0] = pair_of(sum[0], sum[1], Element());
                    at[8 * ROW_BYTES / 4] = pair_of(sum[2], sum[3], Element());
                }
                __syncwarp();
                store(own, positions(tile, block), first_row + row, int(p.rows) - first_row - row);
                __syncwarp();
            }
        }
    }

    __device__ __forceinline__ void run(int team) const {
        // Defined here, as where the first products seem to add to nothing NVRTC up to 12.8 lets each wait for the one
        // before.
        float sums[SLABS][SUMS] = {};
        Turn turn = {0, 0};
#pragma unroll 1
        for (int tile = first_tile; tile < tiles(); tile += apart()) {
            int last = 0;
#pragma unroll 1
            for (int chunk = 0; chunk * SIDE < int(p.channels); ++chunk) {
                const int stage = uniform(turn.stage);
                mbarrier_wait(&barriers.full[stage], turn.parity);
                if (p.across)
                    multiply<true>(sums, stages + stage * STAGE_BYTES, team, chunk > 0);
                else
                    multiply<false>(sums, stages + stage * STAGE_BYTES, team, chunk > 0);
                wgmma_wait<1>();
                if (chunk > 0) release(last);
                last = stage;
                turn.advance(int(p.stages));
            }
            wgmma_wait<0>();
            finish(sums, stages + last * STAGE_BYTES + (BLOCKS + team * SLABS) * BLOCK_BYTES, tile, team);
            release(last);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    pointwise16_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Worker worker(p, memory);
    worker.begin();
    __syncthreads();
    const int team = uniform(threadIdx.x / TEAM);
    if (team == TEAMS) {
        give_registers<GIVEN>();
        if (p.inputs_of == 8 && p.weights_of == 8)
            worker.bring<true>();
        else if (p.inputs_of > 1 && p.weights_of > 1)
            worker.bring<false>();
        else
            worker.gather();
    } else {
        take_registers<TAKEN>();
        worker.run(team);
    }
}
