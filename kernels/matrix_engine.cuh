// What multiplies: the two ways to feed the matrix units, with one interface. A team of 128 threads
// holds TEAM_ROWS rows by TEAM_COLUMNS columns of sums as 16 x 8 tiles, laid out over a warp as ptx.cuh
// draws them.
//
//     WgmmaEngine   compute capability 9.0: a warp has 16 of the rows and all columns; both operands
//                   come from shared memory by descriptor, so a tap is an addition to one
//     MmaEngine     compute capability 8.0 and later: a warp has all rows and a quarter of the columns,
//                   and reads its operands by ldmatrix
//
// With float32 accuracy (PARTS = 2) a step has three products: high * low, low * high, high * high. (Low parts
// that are float16 numbers have been multiplied by LOW_SCALE: their products are a chain of their own.) Tensor
// Cores truncate as they add, always towards zero, which drifts where all terms have one sign. So the
// products of a few steps form a chain that starts at zero and is then added to the sum with rounding. The small
// products of the chain come first: what is truncated there is smaller by 2**11. To sort the products of several steps
// MmaEngine lacks registers: its chains are the three products of one step. tests/bounds.py derives the error.
//
// Macros: SEGMENT (columns of a segment: so many slots in a row), SEGMENTS (of a team), and of a block
// TEAMS and SLABS. POOLS: where outputs are pooled two by two, and a team has two segments, these are STACKED:
// the upper and the lower rows of its windows, so that a thread has all of a window.
#pragma once
#include "matrix_tile.cuh"

#ifndef POOLS
#define POOLS 0
#endif

constexpr int TEAM = 128;
constexpr int STACKED = POOLS && SEGMENTS == 2 ? 2 : 1;
constexpr int BEHIND = STACKED - 1;  // groups of weights by which the second team is, where pooling takes its time
constexpr int TEAM_COLUMNS = SEGMENT * SEGMENTS;
constexpr int TEAM_SLABS = SLABS > TEAMS ? SLABS : 1, TEAM_ROWS = TEAM_SLABS * SLAB_ROWS;

// The distances of a step, in slots: of each of the rows that are stacked.
struct __align__(4 * STACKED) Distances {
    int of[STACKED];
};

// Steps of which these are known in front of their products.
constexpr int AHEAD = TEAMS == 1 ? 4 : 1;

// Where the operands of a group of steps lie.
struct Operands {
    const unsigned char* weights;  // of the team's slab in the first step
    int weight_pitch;              // bytes to the next step
    const unsigned char* inputs;   // the team's first slot in the stage
    int half_pitch, part_pitch;    // slots from one half of K, and from one part, to the next
    int segment_pitch;             // slots from one segment to the next, where they are not stacked
    const Distances* distance;     // of each step
    int steps;
    int team;
    int number, groups;            // of the group in this pass, and how many it has
};

constexpr int FIRST_TURN = 4;  // named barriers, one for each team

struct WgmmaEngine {
    static constexpr int ROWS = TEAM_SLABS, COLUMNS = TEAM_COLUMNS / 8;  // tiles of a warp
    static constexpr int PIECES = TEAM_SLABS * SEGMENTS;  // a product each
    static constexpr bool PROXY = true;  // operands are read by the asynchronous proxy
    static constexpr bool TURNS = TEAMS == 2;
    typedef Wgmma<matrix_type<Operand>::value, SEGMENT> Product;
    static_assert(PIECES * PARTS * SEGMENT <= 256, "registers for sum and chain");

    float sum[PIECES][SEGMENT / 2], chain[PIECES][SEGMENT / 2];

    // Rows of which a team passes one half of its tiles' on together, eight of each warp.
    static constexpr int PASS_ROWS = 32, COLUMN_WARPS = 1;  // and warps that share a row
    __device__ static int column_warp() { return 0; }
    __device__ static int pass_row() { return threadIdx.x % TEAM / 4; }
    __device__ static int row_of_pass(int r, int half, int row) {
        return r * SLAB_ROWS + row / 8 * 16 + half * 8 + row % 8;
    }
    // Where the tiles of the warp lie, and of them the sums of the thread.
    __device__ static int first_row(int r) { return r * SLAB_ROWS + threadIdx.x % TEAM / 32 * 16; }
    __device__ static int first_column(int c) { return c * 8; }
    __device__ static int row(int r) { return first_row(r) + threadIdx.x % 32 / 4; }
    __device__ static int column(int c) { return first_column(c) + threadIdx.x % 4 * 2; }
    __device__ float& value(int r, int c, int i) {
        return sum[r * SEGMENTS + c / (SEGMENT / 8)][c % (SEGMENT / 8) * 4 + i];
    }
    // Registers go from the teams that bring operands to those that multiply: more of them where stages are stored
    // as they come, or where sums take most of a thread's.
    static constexpr int STAGING_TEAMS = 4 - TEAMS;
    static constexpr int TAKEN = PARTS == 1 && (!SCALED || SEGMENTS * SEGMENT == 256) ? 176 : 168;
    __device__ static void take() { take_registers<TAKEN>(); }
    __device__ static void give() { give_registers<256 - TAKEN>(); }
    // In how many registers a staging thread has loads under way: small tiles are for small calls, in which every
    // instruction is waited for. And whether it begins before all is described.
    static constexpr int LOADS = PARTS * PIECES * SEGMENT / 2 <= 64 ? 16 : 32;
    static constexpr bool EARLY = true;

    // A chain begins with a product that adds to nothing, which is known only as it runs: where it seems to add to what was
    // never defined, NVRTC up to 12.8 lets each product wait for the one before.
    __device__ void clear() {
#pragma unroll
        for (int s = 0; s < PIECES; ++s)
#pragma unroll
            for (int i = 0; i < SEGMENT / 2; ++i) sum[s][i] = chain[s][i] = 0;
        touched();
    }
    // Behind what writes sums: here, or compilers put the fence where not all warps may pass.
    __device__ static void touched() { wgmma_fence(); }
    // A descriptor that moves along with its operand: what moves is in its low half.
    struct Descriptor {
        unsigned start, rest;
        __device__ explicit Descriptor(unsigned long long bits) : start(unsigned(bits)), rest(unsigned(bits >> 32)) {}
        __device__ unsigned long long at(int slots) const { return (unsigned long long)rest << 32 | (start + slots); }
    };
    // Of a step: where its segments begin, in slots.
    struct Starts {
        int of[SEGMENTS];
        __device__ Starts(const Distances& distance, int segment_pitch) {
#pragma unroll
            for (int s = 0; s < SEGMENTS; ++s)
                of[s] = distance.of[s % STACKED] + s / STACKED * segment_pitch;
        }
    };
    // The products of a step: slab by slab, segment by segment.
    __device__ static void multiply(float (&sums)[PIECES][SEGMENT / 2], const Descriptor& weights, int weight,
                                    const Descriptor& inputs, const Starts& starts, int part, bool add) {
#pragma unroll
        for (int s = 0; s < PIECES; ++s)
            Product::multiply(sums[s], weights.at(weight + s / SEGMENTS * (SLAB_BYTES / SLOT_BYTES)),
                              inputs.at(starts.of[s % SEGMENTS] + part), add);
    }
    // Goes through steps: use(step, weight, starts) has its slots. While the products of a few are issued, the
    // distances of the next ones are on their way: small products take less time than these.
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

    // Two teams take turns: while one waits for its next operands or adds its chain to its sum, the other
    // one's products keep the matrix units busy. Side by side, both would end at the same time. A turn
    // ends a little before its last products, so that the next one's are there in time.
    __device__ static void wait_for_turn(int team) {
        if (TURNS) named_barrier_wait(FIRST_TURN + team, 2 * TEAM);
    }
    __device__ static void give_turn(int team) {
        if (TURNS) named_barrier_arrive(FIRST_TURN + team, 2 * TEAM);
    }
    // Where the second team is BEHIND, each has so many groups of a pass alone, while the other one does something
    // else: nothing is waited for there, nor given.
    //
    //     first    0   1   2   3   4   5            0   1   2 ...
    //     second         0   1   2   3   4   5            0   1 ...     BEHIND 1
    __device__ static bool waits(const Operands& o) {
        return BEHIND == 0 || (o.team == 0 ? o.number > BEHIND : o.number < o.groups - BEHIND);
    }
    __device__ static bool gives(const Operands& o) {
        return BEHIND == 0 || (o.team == 0 ? o.number >= BEHIND : o.number < o.groups - BEHIND - 1);
    }

    __device__ void multiply(const Operands& o) {
        constexpr int LOW = SLAB_ROWS * DEPTH;  // slots from the first part of a weight to the second
        const Descriptor weights(matrix_descriptor(o.weights, SLAB_ROWS * SLOT_BYTES, 8 * SLOT_BYTES, 0));
        const Descriptor inputs(matrix_descriptor(o.inputs, o.half_pitch * SLOT_BYTES, 8 * SLOT_BYTES, 0));
        const int part_pitch = o.part_pitch, last = o.steps - 1, other = 1 - o.team;
        if (SCALED && PARTS == 2) {
            // The small products, 2**11 times as large as they are, and then the others.
#pragma unroll 1
            for (int high = 0; high < 2; ++high) {
                open(o.team);
                each(o, [&](int step, int w, const Starts& x) {
                    if (step == last) give_turn(other);
                    multiply(chain, weights, w, inputs, x, high ? 0 : part_pitch, step > 0);
                    if (!high) multiply(chain, weights, w + LOW, inputs, x, 0, true);
                });
                close();
                promote(high ? 1 : 1 / LOW_SCALE);
            }
        } else if (PARTS == 2) {
            open(o.team);
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
            if (waits(o)) wait_for_turn(o.team);
            wgmma_fence();
            const int turn = gives(o) ? last : -1;
            each(o, [&](int step, int w, const Starts& x) {
                if (step == turn) give_turn(other);
                multiply(sum, weights, w, inputs, x, 0, true);
            });
            close();
        }
    }
    __device__ static void open(int team) {
        wait_for_turn(team);
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

    // Before the first products it is the first team's turn; behind the last ones its turn is left over.
    __device__ static void begin(int team) {
        if (team == 1 && BEHIND == 0) give_turn(0);
    }
    __device__ static void end(int team) {
        if (team == 0 && BEHIND == 0) wait_for_turn(0);
    }
};

__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    constexpr MatrixType TYPE = matrix_type<Operand>::value;
    if (TYPE == MATRIX_TF32) mma_tf32(d, a, b);
    if (TYPE == MATRIX_FLOAT16) mma_float16(d, a, b);
    if (TYPE == MATRIX_BFLOAT16) mma_bfloat16(d, a, b);
}

// A template, as what it asks of its columns does not hold where it is not used.
template <int ALL_COLUMNS>
struct MmaEngineOf {
    static constexpr int ROWS = SLAB_ROWS / 16, COLUMNS = ALL_COLUMNS / 4 / 8;  // tiles of a warp
    static constexpr bool PROXY = false;
    static constexpr int LONG = 128;  // groups, whose sum is added to a total where there are more
    static_assert(COLUMNS % 2 == 0, "inputs are read for two tiles of columns together");
    static_assert(SEGMENT % (COLUMNS * 8) == 0, "a warp stays in one segment");

    static constexpr int PASS_ROWS = 8, COLUMN_WARPS = 4;
    __device__ static int column_warp() { return threadIdx.x % TEAM / 32; }
    __device__ static int pass_row() { return threadIdx.x % 32 / 4; }
    __device__ static int row_of_pass(int r, int half, int row) { return r * 16 + half * 8 + row; }

    float sum[ROWS][COLUMNS][4];
    int groups;    // of steps in the sum
    bool is_long;  // whether there is a total
    volatile float total[PARTS == 2 ? ROWS * COLUMNS * 4 : 1];  // not in registers, as few sums are so long

    __device__ static void touched() {}

    // Where the tiles of the warp lie, and of them the sums of the thread.
    __device__ static int first_row(int r) { return r * 16; }
    __device__ static int first_column(int c) { return (threadIdx.x % TEAM / 32 * COLUMNS + c) * 8; }
    __device__ static int row(int r) { return first_row(r) + threadIdx.x % 32 / 4; }
    __device__ static int column(int c) { return first_column(c) + threadIdx.x % 4 * 2; }
    __device__ float& value(int r, int c, int i) { return sum[r][c][i]; }
    // Sums take most of the registers that all threads have alike: with two ways to begin, ptxas spills what each group of
    // steps needs. Few sums leave registers for a second team that stages.
    static constexpr int STAGING_TEAMS = ROWS * COLUMNS * 4 * PARTS <= 64 && !POOLS ? 2 : 1, LOADS = 32;
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
    // The inputs of two tiles of columns: lane l gives slot l % 8 of half l / 8 % 2 of tile l / 16.
    __device__ static void load_inputs(unsigned (&b)[2][2], const unsigned char* inputs, int half_pitch) {
        const int lane = threadIdx.x % 32;
        unsigned r[4];
        load_matrices<false>(r, inputs + (lane / 8 % 2 * half_pitch + lane / 16 * 8 + lane % 8) * SLOT_BYTES);
        b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
    }

    __device__ void multiply(const Operands& o) {
        constexpr int WARP_COLUMNS = COLUMNS * 8;
        const int first = threadIdx.x % TEAM / 32 * WARP_COLUMNS;
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
typedef MmaEngineOf<TEAM_COLUMNS> MmaEngine;
