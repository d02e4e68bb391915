// The engines of matrix_conv.cu: two ways to feed the Tensor Cores, with one interface. A consumer warpgroup of 128
// threads holds WARPGROUP_ROWS rows by WARPGROUP_COLUMNS columns of sums as fragments of 16 x 8, laid out over a warp
// as ptx.cuh draws them.
//
//     WgmmaEngine   compute capability 9.0: a warp has 16 of the rows and all columns; both operands
//                   come from shared memory by descriptor, so a tap is an addition to one
//     MmaEngine     compute capability 8.0 and later: a warp has all rows and a quarter of the columns,
//                   and reads its operands by ldmatrix
//
// With float32 accuracy (PARTS = 2) a step has three products: high * low, low * high, high * high. (Low parts that are
// float16 numbers are multiplied by LOW_SCALE, and their products are a chain of their own.) Tensor Cores truncate as
// they add, always towards zero, so that sums drift where all terms have one sign. Therefore the products of a few
// steps form a chain that starts at zero and is then added to the sum with rounding. The small products of the chain
// come first, where truncation loses less by a factor of 2**11. MmaEngine lacks the registers to sort the products of
// several steps: its chains are the three products of one step. tests/bounds.py derives the error.
//
// Macros: SEGMENT (columns of a column tile: this many neighbouring chunks, the N of a wgmma), SEGMENTS (column tiles
// of a warpgroup), and TEAMS and SLABS, the consumer warpgroups and the row tiles of a block. POOLS: where outputs are
// pooled two by two, and a warpgroup has two column tiles, these are STACKED: the upper and the lower rows of windows,
// so that a thread has all four outputs of a window.
#pragma once
#include "matrix_tile.cuh"

#ifndef POOLS
#define POOLS 0
#endif

constexpr int WARPGROUP = 128;
constexpr int STACKED = POOLS && SEGMENTS == 2 ? 2 : 1;
constexpr int BEHIND = STACKED - 1;  // groups of weights by which the second warpgroup lags, as pooling takes its time
constexpr int WARPGROUP_COLUMNS = SEGMENT * SEGMENTS;
constexpr int WARPGROUP_SLABS = SLABS > TEAMS ? SLABS : 1, WARPGROUP_ROWS = WARPGROUP_SLABS * SLAB_ROWS;

// The distances by which the operand of a step is shifted, in chunks: one for each of the rows that are stacked.
struct __align__(4 * STACKED) Distances {
    int of[STACKED];
};

// Steps whose distances are loaded before their products.
constexpr int AHEAD = TEAMS == 1 ? 4 : 1;

// The operands of a group of steps in shared memory.
struct Operands {
    const unsigned char* weights;  // of the warpgroup's first row tile in the first step
    int weight_pitch;              // bytes to the next step
    const unsigned char* inputs;   // the warpgroup's first chunk in the stage
    int half_pitch, part_pitch;    // chunks from one half of K, and from one part, to the next
    int segment_pitch;             // chunks from one column tile to the next, where they are not stacked
    const Distances* distance;     // of each step
    int steps;
    int warpgroup;
    int number, groups;            // the number of the group in this pass, and of groups in the pass
};

constexpr int TURN_BARRIER = 4;  // named barriers, one for each warpgroup

struct WgmmaEngine {
    static constexpr int ROWS = WARPGROUP_SLABS, COLUMNS = WARPGROUP_COLUMNS / 8;  // fragments of a warp
    static constexpr int PIECES = WARPGROUP_SLABS * SEGMENTS;  // instructions of a product
    static constexpr bool PROXY = true;  // operands are read by the asynchronous proxy
    static constexpr bool TURNS = TEAMS == 2;
    typedef Wgmma<matrix_type<Operand>::value, SEGMENT> Product;
    static_assert(PIECES * PARTS * SEGMENT <= 256, "registers for sum and chain");

    float sum[PIECES][SEGMENT / 2], chain[PIECES][SEGMENT / 2];

    // Rows of fragments that a warpgroup exchanges at a time, eight of each warp; warps that share a row.
    static constexpr int PASS_ROWS = 32, COLUMN_WARPS = 1;
    __device__ static int column_warp() { return 0; }
    __device__ static int pass_row() { return threadIdx.x % WARPGROUP / 4; }
    __device__ static int row_of_pass(int r, int half, int row) {
        return r * SLAB_ROWS + row / 8 * 16 + half * 8 + row % 8;
    }
    // The first row and column of a fragment of the warp, and of the thread's sums in it.
    __device__ static int first_row(int r) { return r * SLAB_ROWS + threadIdx.x % WARPGROUP / 32 * 16; }
    __device__ static int first_column(int c) { return c * 8; }
    __device__ static int row(int r) { return first_row(r) + threadIdx.x % 32 / 4; }
    __device__ static int column(int c) { return first_column(c) + threadIdx.x % 4 * 2; }
    __device__ float& value(int r, int c, int i) {
        return sum[r * SEGMENTS + c / (SEGMENT / 8)][c % (SEGMENT / 8) * 4 + i];
    }
    // Registers go from producer warpgroups to consumers: more of them where inputs are stored as they come, or where
    // sums take most of a thread's registers.
    static constexpr int PRODUCER_WARPGROUPS = 4 - TEAMS;
    static constexpr int TAKEN = PARTS == 1 && (!SCALED || SEGMENTS * SEGMENT == 256) ? 176 : 168;
    __device__ static void take() { take_registers<TAKEN>(); }
    __device__ static void give() { give_registers<256 - TAKEN>(); }
    // Registers of a producer thread for loads under way: small tiles are for small calls, in which every instruction
    // is waited for. EARLY: producers begin before the tables of consumers are complete.
    static constexpr int LOADS = PARTS * PIECES * SEGMENT / 2 <= 64 ? 16 : 32;
    static constexpr bool EARLY = true;

    // A chain begins with a product that does not add, which a register says at run time. The registers of the chain
    // are cleared nevertheless: if they are undefined, NVRTC up to 12.8 lets each product wait for the one before.
    __device__ void clear() {
#pragma unroll
        for (int s = 0; s < PIECES; ++s)
#pragma unroll
            for (int i = 0; i < SEGMENT / 2; ++i) sum[s][i] = chain[s][i] = 0;
        touched();
    }
    // After any write to sums: without it compilers put the fence where not all warps may pass.
    __device__ static void touched() { wgmma_fence(); }
    // A descriptor of an operand that moves: its address is in the low half.
    struct Descriptor {
        unsigned start, rest;
        __device__ explicit Descriptor(unsigned long long bits) : start(unsigned(bits)), rest(unsigned(bits >> 32)) {}
        __device__ unsigned long long at(int slots) const { return (unsigned long long)rest << 32 | (start + slots); }
    };
    // The chunks at which the column tiles of a step begin.
    struct Starts {
        int of[SEGMENTS];
        __device__ Starts(const Distances& distance, int segment_pitch) {
#pragma unroll
            for (int s = 0; s < SEGMENTS; ++s)
                of[s] = distance.of[s % STACKED] + s / STACKED * segment_pitch;
        }
    };
    // The instructions of a product: row tile by row tile, column tile by column tile.
    __device__ static void multiply(float (&sums)[PIECES][SEGMENT / 2], const Descriptor& weights, int weight,
                                    const Descriptor& inputs, const Starts& starts, int part, bool add) {
#pragma unroll
        for (int s = 0; s < PIECES; ++s)
            Product::multiply(sums[s], weights.at(weight + s / SEGMENTS * (SLAB_BYTES / SLOT_BYTES)),
                              inputs.at(starts.of[s % SEGMENTS] + part), add);
    }
    // use(step, its weights, starts of its inputs) for all steps. While the products of a few steps are issued,
    // the distances of the next steps are loaded, which takes longer than small products.
    template <typename Use>
    __device__ __forceinline__ static void each(const Operands& o, Use use) {
        const int pitch = o.weight_pitch / SLOT_BYTES;
        Distances next[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) next[i] = o.distance[i];
        int step = 0;
        for (; step + AHEAD <= o.steps; step += AHEAD) {
            Distances own[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) own[i] = next[i], next[i] = o.distance[step + AHEAD + i];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) use(step + i, (step + i) * pitch, Starts(own[i], o.segment_pitch));
        }
#pragma unroll
        for (int i = 0; i < AHEAD - 1; ++i)
            if (step + i < o.steps) use(step + i, (step + i) * pitch, Starts(next[i], o.segment_pitch));
    }

    // Two consumer warpgroups take turns (ping-pong): while one waits for its next operands or adds its chain to its
    // sum, the products of the other one keep the Tensor Cores busy. Side by side, both would end at the same time. A
    // turn ends a little before its last products, so that the first products of the next turn are there in time.
    __device__ static void wait_for_turn(int warpgroup) {
        if (TURNS) named_barrier_wait(TURN_BARRIER + warpgroup, 2 * WARPGROUP);
    }
    __device__ static void give_turn(int warpgroup) {
        if (TURNS) named_barrier_arrive(TURN_BARRIER + warpgroup, 2 * WARPGROUP);
    }
    // If the second warpgroup lags, each has BEHIND groups of a pass alone, while the other one is in its epilogue:
    // there it neither waits for its turn nor gives one.
    //
    //     first    0   1   2   3   4   5            0   1   2 ...
    //     second         0   1   2   3   4   5            0   1 ...     BEHIND 1
    __device__ static bool waits(const Operands& o) {
        return BEHIND == 0 || (o.warpgroup == 0 ? o.number > BEHIND : o.number < o.groups - BEHIND);
    }
    __device__ static bool gives(const Operands& o) {
        return BEHIND == 0 || (o.warpgroup == 0 ? o.number >= BEHIND : o.number < o.groups - BEHIND - 1);
    }

    __device__ void multiply(const Operands& o) {
        constexpr int LOW = SLAB_ROWS * DEPTH;  // chunks from the first part of a weight to the second
        const Descriptor weights(matrix_descriptor(o.weights, SLAB_ROWS * SLOT_BYTES, 8 * SLOT_BYTES));
        const Descriptor inputs(matrix_descriptor(o.inputs, o.half_pitch * SLOT_BYTES, 8 * SLOT_BYTES));
        const int part_pitch = o.part_pitch, last = o.steps - 1, other = 1 - o.warpgroup;
        if (SCALED && PARTS == 2) {
            // The small products, scaled by 2**11, and then the others.
#pragma unroll 1
            for (int high = 0; high < 2; ++high) {
                open(o.warpgroup);
                each(o, [&](int step, int w, const Starts& x) {
                    if (step == last) give_turn(other);
                    multiply(chain, weights, w, inputs, x, high ? 0 : part_pitch, step > 0);
                    if (!high) multiply(chain, weights, w + LOW, inputs, x, 0, true);
                });
                close();
                promote(high ? 1 : 1 / LOW_SCALE);
            }
        } else if (PARTS == 2) {
            open(o.warpgroup);
            each(o, [&](int step, int w, const Starts& x) {
                multiply(chain, weights, w, inputs, x, part_pitch, step > 0);
                multiply(chain, weights, w + LOW, inputs, x, 0, true);
            });
            each(o, [&](int step, int w, const Starts& x) {
                if (step == last) give_turn(other);
                multiply(chain, weights, w, inputs, x, 0, true);
            });
            close();
            promote(1);
        } else {
            if (waits(o)) wait_for_turn(o.warpgroup);
            wgmma_fence();
            const int turn = gives(o) ? last : -1;
            each(o, [&](int step, int w, const Starts& x) {
                if (step == turn) give_turn(other);
                multiply(sum, weights, w, inputs, x, 0, true);
            });
            close();
        }
    }
    __device__ static void open(int warpgroup) {
        wait_for_turn(warpgroup);
        wgmma_fence();
    }
    __device__ static void close() {
        wgmma_commit();
        wgmma_wait<0>();
    }
    __device__ void promote(float scale) {
#pragma unroll
        for (int s = 0; s < PIECES; ++s)
#pragma unroll
            for (int i = 0; i < SEGMENT / 2; ++i) sum[s][i] = fmaf(chain[s][i], scale, sum[s][i]);
    }
    __device__ void finish() {}

    // Before the first products it is the first warpgroup's turn; after the last ones its turn is left over.
    __device__ static void begin(int warpgroup) {
        if (warpgroup == 1 && BEHIND == 0) give_turn(0);
    }
    __device__ static void end(int warpgroup) {
        if (warpgroup == 0 && BEHIND == 0) wait_for_turn(0);
    }
};

__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    constexpr MatrixType TYPE = matrix_type<Operand>::value;
    if (TYPE == MATRIX_TF32) mma_tf32(d, a, b);
    if (TYPE == MATRIX_FLOAT16) mma_float16(d, a, b);
    if (TYPE == MATRIX_BFLOAT16) mma_bfloat16(d, a, b);
}

// A template, as its assertions do not hold for the columns of some instances that do not use it.
template <int ALL_COLUMNS>
struct MmaEngineOf {
    static constexpr int ROWS = SLAB_ROWS / 16, COLUMNS = ALL_COLUMNS / 4 / 8;  // fragments of a warp
    static constexpr bool PROXY = false;
    static constexpr int LONG = 128;  // groups of steps in a sum; the sums of more groups are added up in a total
    static_assert(COLUMNS % 2 == 0, "inputs are read for two fragments together");
    static_assert(SEGMENT % (COLUMNS * 8) == 0, "a warp stays in one segment");

    static constexpr int PASS_ROWS = 8, COLUMN_WARPS = 4;
    __device__ static int column_warp() { return threadIdx.x % WARPGROUP / 32; }
    __device__ static int pass_row() { return threadIdx.x % 32 / 4; }
    __device__ static int row_of_pass(int r, int half, int row) { return r * 16 + half * 8 + row; }

    float sum[ROWS][COLUMNS][4];
    int groups;    // of steps in the sum
    bool is_long;  // whether there is a total
    volatile float total[PARTS == 2 ? ROWS * COLUMNS * 4 : 1];  // in local memory, as few sums are as long

    __device__ static void touched() {}

    // The first row and column of a fragment of the warp, and of the thread's sums in it.
    __device__ static int first_row(int r) { return r * 16; }
    __device__ static int first_column(int c) { return (threadIdx.x % WARPGROUP / 32 * COLUMNS + c) * 8; }
    __device__ static int row(int r) { return first_row(r) + threadIdx.x % 32 / 4; }
    __device__ static int column(int c) { return first_column(c) + threadIdx.x % 4 * 2; }
    __device__ float& value(int r, int c, int i) { return sum[r][c][i]; }
    // All threads have as many registers. Sums take most of them: with EARLY, ptxas would spill what each group of
    // steps needs. Few sums leave registers for a second producer warpgroup.
    static constexpr int PRODUCER_WARPGROUPS = ROWS * COLUMNS * 4 * PARTS <= 64 && !POOLS ? 2 : 1, LOADS = 32;
    static constexpr bool EARLY = false;
    __device__ static void take() {}
    __device__ static void give() {}

    __device__ void clear() {
        groups = 0, is_long = false;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[r][c][i] = 0;
    }

    // The weights of all rows: lane l gives row l % 16 of half l / 16.
    __device__ static void load_weights(unsigned (&a)[ROWS][4], const unsigned char* weights) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            load_matrices<false>(a[r], weights + (lane / 16 * SLAB_ROWS + r * 16 + lane % 16) * SLOT_BYTES);
    }
    // The inputs of two fragments: lane l gives chunk l % 8 of half l / 8 % 2 of fragment l / 16.
    __device__ static void load_inputs(unsigned (&b)[2][2], const unsigned char* inputs, int half_pitch) {
        const int lane = threadIdx.x % 32;
        unsigned r[4];
        load_matrices<false>(r, inputs + (lane / 8 % 2 * half_pitch + lane / 16 * 8 + lane % 8) * SLOT_BYTES);
        b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
    }

    __device__ void multiply(const Operands& o) {
        constexpr int WARP_COLUMNS = COLUMNS * 8;
        const int first = threadIdx.x % WARPGROUP / 32 * WARP_COLUMNS;
        const unsigned char* const inputs =
            o.inputs + (first / SEGMENT * o.segment_pitch + first % SEGMENT) * SLOT_BYTES;
        for (int step = 0; step < o.steps; ++step) {
            const unsigned char* const x = inputs + o.distance[step].of[0] * SLOT_BYTES;
            const unsigned char* const w = o.weights + step * o.weight_pitch;
            unsigned a[PARTS][ROWS][4];
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                load_weights(a[part], w + part * SLAB_ROWS * DEPTH * SLOT_BYTES);
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 2) {
                unsigned b[PARTS][2][2];
#pragma unroll
                for (int part = 0; part < PARTS; ++part)
                    load_inputs(b[part], x + (part * o.part_pitch + c * 8) * SLOT_BYTES, o.half_pitch);
#pragma unroll
                for (int j = 0; j < 2; ++j)
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        if (PARTS == 2) {
                            float chain[4] = {};
                            mma(chain, a[PARTS - 1][r], b[0][j]);
                            mma(chain, a[0][r], b[PARTS - 1][j]);
                            mma(chain, a[0][r], b[0][j]);
#pragma unroll
                            for (int i = 0; i < 4; ++i) sum[r][c + j][i] += chain[i];
                        } else {
                            mma(sum[r][c + j], a[0][r], b[0][j]);
                        }
                    }
            }
        }
        if (PARTS == 2 && ++groups == LONG) settle();
    }

    // Adds the sum to the total.
    __device__ void settle() {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    volatile float& own = total[(r * COLUMNS + c) * 4 + i];
                    own = is_long ? own + sum[r][c][i] : sum[r][c][i];
                    sum[r][c][i] = 0;
                }
        groups = 0, is_long = true;
    }
    __device__ void finish() {
        if (PARTS == 1 || !is_long) return;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[r][c][i] += total[(r * COLUMNS + c) * 4 + i];
    }

    __device__ static void begin(int) {}
    __device__ static void end(int) {}
};
typedef MmaEngineOf<WARPGROUP_COLUMNS> MmaEngine;
