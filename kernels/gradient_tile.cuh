// What kernels of the gradient of a weight by wgmma have in common: which tile of the product a block has, and which
// range of the steps of its sums; and where consumers store the sums.
//
// Columns of the product are boxes of p.box input channels of a tap: all taps of the first channels, then of the next.
// Rows of a next group, or columns beyond the last box, are multiplied and not stored.
#pragma once
#include "stage_ring.cuh"

constexpr int WARPGROUP = 128, CONSUMERS = 2;

template <int ROWS, int COLUMNS, typename Arguments>
struct GradientTile {
    const Arguments& p;
    int first_row, first_box, group;
    int64 split, begin, end;  // a range of steps

    __device__ GradientTile(const Arguments& p, int64 steps) : p(p) {
        int64 rest = blockIdx.x;
        first_row = int(rest % p.row_tiles) * ROWS, rest /= p.row_tiles;
        first_box = int(rest % p.column_tiles) * (COLUMNS / int(p.box)), rest /= p.column_tiles;
        group = int(rest % p.groups), split = rest / p.groups;
        begin = split * steps / p.splits, end = (split + 1) * steps / p.splits;
    }

    // Stores sums of a warpgroup by tap and then channel, or adds them to those of other chunks.
    template <int SUMS>
    __device__ void store(const float (&sums)[SUMS], int row, int column) const {
        const int thread = threadIdx.x % WARPGROUP, g = thread % 32 / 4, t = thread % 4;
        const int taps = int(p.taps), box = int(p.box), number = first_box + column / box;
        int block = number / taps, tap = number - block * taps, within = column % box;
        const int own_row = first_row + row + thread / 32 * 16 + g;
        const int64 columns = p.channels * taps;
        float* const out = p.partial + ((split * p.groups + group) * p.rows + own_row) * columns + 2 * t;
#pragma unroll
        for (int unit = 0; unit < SUMS / 4; ++unit) {
            const int channel = block * box + within, left = int(p.channels) - channel - 2 * t;
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (own_row + half * 8 < int(p.rows))
                    put(out + half * 8 * columns + tap * p.channels + channel, left, sums[unit * 4 + half * 2],
                        sums[unit * 4 + half * 2 + 1]);
            within += 8;
            if (within < box) continue;
            within = 0;
            if (++tap == taps) tap = 0, ++block;
        }
    }
    // Stores or adds two sums, if so many channels are left; an even number of channels makes aligned pairs.
    __device__ __forceinline__ void put(float* own, int left, float first, float second) const {
        if (left <= 0) return;
        if (p.channels % 2 == 0) {
            if (p.adds)
                add_pair(own, first, second);
            else
                store_bits((Bits64*)own, pair_of(first, second, 0.0f), true);
            return;
        }
        own[0] = p.adds ? own[0] + first : first;
        if (left > 1) own[1] = p.adds ? own[1] + second : second;
    }
};
