// The K loop of matrix_conv.cu, and how often a tile goes through it.
//
// Mostly it is one pass. Where float32 is emulated by float16 numbers (windows.cuh), a tile takes a pass for each
// exponent window that its numbers lie in:
//
//     sweep 0   all tiles of the block, the first window alone; producers note which tiles have other windows
//     sweep 1   these tiles again, in all windows:  pass  = window of weights * WINDOWS + window of inputs
//
// The first window is window 0. Inputs of the windows 0, 1, 2 and -1 have the passes 0, 1, 2 and 3, in this order.
//
// Passes of other windows leave out the stages whose numbers all lie in the first one. With one product, the first such
// tile has its sums kept, if it has no numbers above the first window, and goes on with the other passes: mostly a
// block has no more than that, for a number that is nearly zero by chance. Where weights lie in two windows, each pass
// is two. All warps of a block walk through sweeps, tiles, passes and stages in the same order, so that producers and
// consumers agree on the stages of the rings without telling each other.
#pragma once
#include "matrix_arguments.cuh"

// The stages of one pass over a tile: taps of z, then `depth` K blocks at a time, with all taps of y and x.
struct KLoop {
    const Arguments& p;
    Shared& shared;
    const int phase_index;
    const Phase& phase;
    const int taps, z_taps;   // steps along y and x of one K block; taps of z, 0 where a phase has none
    const int blocks, depth;  // K blocks of a tap of z, and of a stage

    __device__ __forceinline__ KLoop(const Arguments& p, Shared& shared, int phase_index, int taps, int z_taps)
        : p(p),
          shared(shared),
          phase_index(phase_index),
          phase(shared.phase),
          taps(taps),
          z_taps(z_taps),
          blocks(int(p.sum.blocks)),
          depth(int(p.sum.depth)) {}

    __device__ int stages_of_tap() const { return (blocks + depth - 1) / depth; }
    // K blocks, steps and stages of weights that belong to the stage that starts with K block `block`.
    __device__ int depth_of(int block) const { return blocks - block < depth ? blocks - block : depth; }
    __device__ int steps_of(int block) const { return depth_of(block) * taps; }
    __device__ int groups_of(int block) const { return (steps_of(block) + int(p.group) - 1) / int(p.group); }

    // Pairs begin with an even input, so that staging begins with the input before an odd first one.
    __device__ int skew() const { return p.axis[2].pairs ? phase.taps[2].offset & 1 : 0; }
};

// Numbers are multiplied as they are: one sweep, one pass.
struct OnePass : KLoop {
    static constexpr int SWEEPS = 1;
    static constexpr bool KEEPS = false;
    using KLoop::KLoop;

    __device__ static bool begins(int sweep) { return sweep == 0; }
    __device__ static bool listed() { return false; }
    __device__ static int repeated_tiles() { return 0; }
    __device__ static int repeated_tile(int) { return 0; }
    __device__ static int first_pass(int, int) { return 0; }
    __device__ static int next_pass(int, int) { return -1; }
    __device__ static int window_of_pass(int) { return 0; }
    __device__ static int weights_of_pass(int) { return 0; }
    __device__ static bool has(int, int) { return true; }
    __device__ static int left_out(int) { return 0; }
    __device__ static bool weights_in_one_window() { return true; }
    __device__ static void find_weight_windows() {}
    __device__ bool stays() const { return p.resident; }
};

#if SCALED
// A pass for each exponent window.
struct WindowPasses : KLoop {
    static constexpr int SWEEPS = 2;
    static constexpr bool KEEPS = PLACED_TWICE;  // whether the first sweep may keep the sums of a tile
    static constexpr int FIRST_BLOCK = WINDOWS, BLOCK_BITS = 16;  // bits of K blocks, after the bits of windows
    using KLoop::KLoop;
    int weight_windows = 1;

    // Counts the windows of weights, by all threads.
    __device__ __forceinline__ void find_weight_windows() {
        bool two = false;
        for (int group = 0; group < int(p.groups); ++group)
            for (int i = threadIdx.x; i < int(p.row_tiles) * ROWS; i += THREADS)
                two |= row_shifts(group)[i].second != NO_SHIFT;
        weight_windows = uniform(__syncthreads_or(two)) ? 2 : 1;
    }
    __device__ bool weights_in_one_window() const { return weight_windows == 1; }
    // The shifts of a group's rows.
    __device__ const RowShifts* row_shifts(int group) const {
        return p.row_shifts + (group * p.phases + phase_index) * p.row_tiles * ROWS;
    }
    // Whether the weights of all tiles stay in their ring.
    __device__ bool stays() const { return p.resident && weight_windows == 1; }

    // Whether there is anything to do in a sweep, by all threads.
    __device__ bool begins(int sweep) const {
        if (sweep == 0) return true;
        named_barrier_wait(ALL_THREADS, THREADS);
        return uniform(shared.wide_count) > 0;
    }
    // Whether the list has room for the tiles that the second sweep takes. If not, it takes all tiles.
    __device__ bool listed() const { return uniform(shared.wide_count) <= MOST_WIDE; }
    __device__ int repeated_tiles() const { return uniform(shared.wide_count); }
    __device__ int repeated_tile(int i) const { return uniform(shared.wide_tiles[i]); }

    // For a window of weights there is a pass for each window of inputs: the first one, smaller numbers, larger ones.
    // The sweep's first pass of tile i.
    __device__ int first_pass(int sweep, int i) const {
        if (KEEPS && sweep > 0 && i == 0 && uniform(shared.kept & ~shared.lost) && listed()) return next_pass(sweep, 0);
        return 0;
    }
    // The pass after a pass, -1 after the last one.
    __device__ int next_pass(int sweep, int pass) const {
        if (sweep == 0) return pass == 0 && weight_windows == 2 ? WINDOWS : -1;
        while (++pass < weight_windows * WINDOWS) {
            const int window = window_of_pass(pass);
            if (window == 0 || uniform(shared.wide_windows) >> (window - FIRST_WINDOW) & 1u) return pass;
        }
        return -1;
    }
    __device__ static int window_of_pass(int pass) {
        const int window = pass % WINDOWS;
        return window <= LAST_WINDOW ? window : FIRST_WINDOW;
    }
    __device__ static int weights_of_pass(int pass) { return pass / WINDOWS; }
    // Whether a pass has the stage that begins with a K block. If weights stay in their ring it has all stages, as
    // these are in step. It always has a stage with fewer K blocks, so that consumers need not know which stages are
    // left out.
    __device__ bool has(int pass, int block) const {
        if (window_of_pass(pass) == 0 || stays() || block + depth > blocks) return true;
        const int first = block % int(p.chunk);
        unsigned own = 0;
#pragma unroll 1
        for (int i = 0; i < depth; ++i) own |= bit_of_block(first + i);
        return uniform(shared.wide_windows & own);
    }
    // The bit of a K block of a chunk, as producers know it. Some K blocks share one.
    __device__ static unsigned bit_of_block(int block) { return 1u << (FIRST_BLOCK + block % BLOCK_BITS); }
    // The number of stages of a tap that a pass leaves out.
    __device__ int left_out(int pass) const {
        if (window_of_pass(pass) == 0) return 0;
        int count = 0;
#pragma unroll 1
        for (int block = 0; block < blocks; block += depth) count += !has(pass, block);
        return uniform(count);
    }
};
typedef WindowPasses Passes;
#else
typedef OnePass Passes;
#endif
