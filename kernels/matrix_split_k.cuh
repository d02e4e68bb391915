// Split-K in matrix_conv.cu: the sum of an output is the sum of several slices of the K loop, in order.
//
//     apart     each slice of a tile has its partial sums in memory; the warp that is the last one there adds up all
//               slices, and stores the tile. No warp waits for another one.
//     in turn   a block has all slices of a tile, one after the other, and keeps the sum so far: in registers, or, with
//               three products for each, in memory
//
// All slices have equally many K blocks of channels, with all taps of these. The host chooses by a model of the time
// (_kernels/matrix_tiles.py): slices are apart where tiles are too few for all multiprocessors. Both give the same
// bits. matrix_schedule.cuh has the order of the slices.
#pragma once
#include "matrix_float16.cuh"

// The sums of a tile are complete after its K loop.
struct WholeSums {
    struct Kept {};
    __device__ static bool add(const Schedule&, ENGINE&, Kept&, const Numbers::Scale&, const Tile&, int, int) {
        return true;
    }
    __device__ static void wait_for_counters() {}
};

#if SPANS
struct SplitK {
    // With one product for each, tiles are such that registers have room for a thread's sum of the slices so far.
    static constexpr bool IN_REGISTERS = PARTS == 1;
    typedef Neighbours Kept[IN_REGISTERS ? ENGINE::ROWS * ENGINE::COLUMNS * 2 : 1];

    // The packing kernel sets the counters of slices to zero.
    __device__ static void wait_for_counters() { wait_for_grids(); }

    // Adds the sums of a thread to the sums of the other slices. Returns whether all slices are there: the warp has the
    // sums of the tile then.
    __device__ __forceinline__ static bool add(const Schedule& schedule, ENGINE& engine, Kept& kept,
                                               const Numbers::Scale& scale, const Tile& tile, int index,
                                               int warpgroup) {
        constexpr int COUNT = ENGINE::ROWS * ENGINE::COLUMNS * 4 * WARPGROUP;  // floats of a warpgroup
        const Arguments& p = schedule.p;
        const int slice = tile.slice, slices = Slices::count(p), phase = schedule.phase_index;
        const bool in_turn = !p.apart, last = slice == slices - 1;
        const int place = (p.apart ? index * int(p.phases) + phase : int(blockIdx.x)) * TEAMS + warpgroup;
        Neighbours* const own = (Neighbours*)(p.partial + int64(place) * COUNT) + threadIdx.x % WARPGROUP;
        if (IN_REGISTERS && in_turn) {
            each_pair(engine, [&](int i, int r, int half, int c, float&, float&) {
                const Neighbours sums = scale.of(engine, r, half, c), before = kept[i];
                kept[i] = slice > 0 ? Neighbours{before.first + sums.first, before.second + sums.second} : sums;
            });
            if (!last) return false;
            each_pair(engine, [&](int i, int, int, int, float& first, float& second) {
                first = kept[i].first, second = kept[i].second;
            });
            return true;
        }
        scale_sums(engine, scale);
        if (in_turn && slice > 0)
            each_pair(engine, [&](int i, int, int, int, float& first, float& second) {
                const Neighbours before = own[i * WARPGROUP];
                first = before.first + first, second = before.second + second;
            });
        if (in_turn && last) return true;
        each_pair(engine, [&](int i, int, int, int, float& first, float& second) {
            own[i * WARPGROUP] = {first, second};
        });
        if (in_turn) return false;
        // The warp that counts the last slice sees what all others have written before they counted.
        __syncwarp();
        unsigned before = 0;
        if (threadIdx.x % 32 == 0)
            before = count_one(
                &p.arrived[((index - slice) / slices * int(p.phases) + phase) * (THREADS / 32) + threadIdx.x / 32]);
        if (uniform(before) != slices - 1) return false;
        __syncwarp();
        const int64 next = int(p.phases) * TEAMS * int64(COUNT) / 2;  // from a slice to the next
        const Neighbours* const all = own - slice * next;
        for (int s = 0; s < slices; ++s)
            each_pair(engine, [&](int i, int, int, int, float& first, float& second) {
                const Neighbours other = all[s * next + i * WARPGROUP];
                first = s ? first + other.first : other.first, second = s ? second + other.second : other.second;
            });
        return true;
    }
};
typedef SplitK Slicing;
#else
typedef WholeSums Slicing;
#endif
