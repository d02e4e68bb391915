// What a consumer warpgroup of matrix_conv.cu knows of its rows and columns, in shared memory: their offsets, which of
// them exist, their bias and their scale. Columns are described once for a tile inside of the output (set 0), and again
// for each tile at its border (set 1); rows where a tile has others than the tile before.
#pragma once
#include "matrix_pool.cuh"
#include "matrix_store.cuh"

struct Outputs {
    const Schedule& schedule;
    const Arguments& p;
    Shared& shared;

    __device__ __forceinline__ explicit Outputs(const Schedule& schedule)
        : schedule(schedule), p(schedule.p), shared(schedule.shared) {}

    // Describes the columns of all warpgroups, in tiles inside of the output.
    __device__ __forceinline__ void describe_columns(const Threads& threads) const {
        for (int i = threads.rank; i < TEAMS * BUFFERED_COLUMNS; i += threads.count) {
            const int warpgroup = i / BUFFERED_COLUMNS, own = i % BUFFERED_COLUMNS;
            const int column = schedule.first_column(warpgroup) + own;
            int place[4];
            place_of(p, column / SEGMENT / STACKED * int(p.segment_pitch) + column % SEGMENT, place);
            int64 offset = place[0] * p.out_batch;
            bool used = own < WARPGROUP_COLUMNS && place[0] < int(p.tile[0]);
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                used &= place[a + 1] < int(p.tile[a + 1]);
                offset += place[a + 1] * p.axis[a].taps.phases * p.fold[a].count * p.out_axis[a];
            }
            place[2] = place[2] * STACKED + column / SEGMENT % STACKED;
            shared.column_offset[warpgroup][own] = offset;
            shared.column_place[warpgroup][own] = PackedPlace::pack(place);
            shared.column_folds[0][warpgroup][own] = used ? ~0u >> (MOST_FOLDS - int(p.folds)) : 0;
            Numbers::describe_column(shared, warpgroup, own);
            Epilogue::describe_column(shared, warpgroup, own, used);
        }
    }

    // Describes a tile's rows and columns, by their warpgroup. Returns which of the two sets of columns holds.
    __device__ __forceinline__ int describe(const Tile& tile, int warpgroup, bool new_rows) const {
        const int thread = threadIdx.x % WARPGROUP, folds = int(p.folds);
        const int size[4] = {tile.size[0], tile.size[1], schedule.rows_from(tile), tile.size[3]};
        bool inside = true;
#pragma unroll
        for (int a = 0; a < 4; ++a) inside &= size[a] >= int(p.tile[a]) * (a == 2 ? STACKED : 1);
        int left[3] = {};  // outputs from the tile's first one on, where outputs are packed
        if (folds > 1)
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                const int count = int(p.fold[a].count);
                left[a] = count == 1 ? size[a + 1] : int(p.taps[a].size_out) - tile.start[a + 1] * count;
                inside &= left[a] >= int(p.tile[a + 1]) * count;
            }
        inside = uniform(inside);
        if (inside && !new_rows && !(EMULATES && p.tile[0] > 1)) return 0;
        named_barrier_wait(WARPGROUP_BARRIER + warpgroup, WARPGROUP);  // nobody reads the last tile's any more
        if (!inside)
            for (int i = thread; i < BUFFERED_COLUMNS; i += WARPGROUP) {
                int place[4];
                PackedPlace::unpack(shared.column_place[warpgroup][i], place);
                bool exists = true;
#pragma unroll
                for (int a = 0; a < 4; ++a) exists &= place[a] < size[a];
                unsigned found = exists ? shared.column_folds[0][warpgroup][i] : 0;
                if (folds > 1 && exists)
                    found &= folds_within({left[0] - place[1] * int(p.fold[0].count),
                                           left[1] - place[2] * int(p.fold[1].count),
                                           left[2] - place[3] * int(p.fold[2].count)});
                shared.column_folds[1][warpgroup][i] = found;
                Epilogue::describe_border(shared, warpgroup, i, found != 0);
            }
        if (new_rows)
            for (int i = thread; i < WARPGROUP_ROWS; i += WARPGROUP) {
                const int channel = channel_of(schedule.first_row(tile, warpgroup) + i, folds);
                shared.bias[warpgroup][i] = channel < p.rows && p.bias.data
                                                ? load_parameter<float>(p.bias, tile.group * p.rows + channel)
                                                : 0.0f;
                Numbers::describe_row(schedule, tile, warpgroup, i);
            }
        if (folds > 1 && new_rows && thread < WARPGROUP_ROWS / 16)
            Epilogue::describe_fragment(schedule, tile, warpgroup, thread);
        Numbers::describe_samples(schedule, tile, warpgroup);
        named_barrier_wait(WARPGROUP_BARRIER + warpgroup, WARPGROUP);
        return !inside;
    }
    // Which packed outputs of a column exist, given how many outputs are left along z, y and x from its first one on.
    __device__ unsigned folds_within(const int (&left)[3]) const {
        int count[3];
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            const int most = int(p.fold[a].count);
            count[a] = left[a] < most ? left[a] : most;
        }
        unsigned found = 0;
#pragma unroll 1
        for (int z = 0; z < count[0]; ++z)
#pragma unroll 1
            for (int y = 0; y < count[1]; ++y)
                found |= ((1u << count[2]) - 1) << (z * int(p.fold[1].count) + y) * int(p.fold[2].count);
        return found;
    }
};
