// What matrix_conv.cu does with the sums of a tile where the fused operation asks for it: of each 2 x 2
// window of outputs only the extremum is stored, and the statistics of each channel are gathered.
//
// Normalisation and tanh are monotonic, so that the largest of their values in a window belongs to the
// largest sum, or, where the scale of the channel is negative, to the smallest one. NaN is both.
//
//     pooled[n][channel][y][x] = extremum of out[n][channel][2y .. 2y + 1][2x .. 2x + 1]
//     partial[block][channel]  = count, mean and squared deviations of the outputs that the block computed,
//                                those that no window takes among them
//
// Tiles begin with even outputs along y and x, and end with one unless the axis does, so that no window
// lies in two tiles. A team passes its sums through a buffer of PASS_ROWS of its rows at a time:
//
//     columns   0   1   2   3   ...            pitch
//     row k     a   a   b   b                  a   a   b   b        windows a, b
//
// Statistics combine from tile to tile, in the order of a block's tiles.
#pragma once

// The sum over lanes that lie together, LANES of them.
template <int LANES, typename Value>
__device__ inline Value sum_over(Value value) {
#pragma unroll
    for (int apart = 1; apart < LANES; apart *= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

// The larger one, for an order of -1 the smaller one, for 0 (where all that is finite becomes the same) the
// one of larger magnitude; NaN before all others.
__device__ inline float extremum(float a, float b, int order) {
    const float key_a = order ? order * a : fabsf(a), key_b = order ? order * b : fabsf(b);
    return a != a || key_a >= key_b ? a : b;
}

__device__ __noinline__ void repair_values(const Arguments& p, Shared& shared, int index, int team, int border,
                                           int first_row, int first_pass);

struct Pool {
    static_assert(COLUMN_TEAMS == 1, "a team has all columns of its rows");

    // Fills the list of windows, by all threads, and empties the block's part of the statistics.
    __device__ static void describe(const Worker& worker) {
        const Arguments& p = worker.p;
        const int height = int(p.tile[2]) / 2, width = int(p.tile[3]) / 2, windows = height * width;
        for (int i = threadIdx.x; i < windows * int(p.tile[0]); i += THREADS) {
            const int place[4] = {i / windows, 0, i % windows / width * 2, i % width * 2};
            Window& window = worker.shared.window[i];
            window.offset = place[0] * p.pooled_batch + place[2] / 2 * p.pooled_pitch + place[3] / 2;
            window.column = place[0] * int(p.plane_pitch) + place[2] * pitch(p) + place[3];
            window.place = Packed::pack(place);
        }
        const int64 channels = p.groups * p.rows;
        if (p.partial)
            for (int64 i = threadIdx.x; i < channels; i += THREADS) p.partial[blockIdx.x * channels + i] = {0, 0, 0};
    }
    // Columns from one row of outputs to the next.
    __device__ static int pitch(const Arguments& p) {
        return p.segment_pitch == SEGMENT ? int(p.row_pitch) : SEGMENT;
    }

    // What the team's rows are from the next tile on; the statistics of the former ones are put away.
    __device__ static void take_rows(const Worker& worker, int team, const Tile& tile) {
        const Arguments& p = worker.p;
        for (int i = threadIdx.x % TEAM; i < TEAM_ROWS; i += TEAM) {
            const int64 row = worker.first_row(tile, team) + i, channel = tile.group * p.rows + row;
            const double scale = row < p.rows ? load_parameter<double>(p.scale, channel) : 0;
            worker.shared.order[team][i] = scale > 0 ? 1 : scale < 0 ? -1 : 0;
            worker.shared.moments[team][i] = {0, 0, 0};
        }
    }
    __device__ static void put_away(const Worker& worker, int team, int row_tile, int group) {
        const Arguments& p = worker.p;
        if (row_tile < 0) return;
        named_barrier_wait(FIRST_TEAM + team, TEAM);  // the last tile is done
        if (!p.partial) return;
        Tile tile;
        tile.row_tile = row_tile;
        for (int i = threadIdx.x % TEAM; i < TEAM_ROWS; i += TEAM) {
            const int64 row = worker.first_row(tile, team) + i;
            if (row >= p.rows) continue;
            PartMoments& own = p.partial[(blockIdx.x * p.groups + group) * p.rows + row];
            own = part_of(merge(moments_of(own), worker.shared.moments[team][i]));
        }
    }

    __device__ __forceinline__ static void finish(const Worker& worker, const ENGINE& engine, int index, int team, int border) {
        Shared& shared = worker.shared;
        Tile tile;
        worker.describe(index, tile);
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                named_barrier_wait(FIRST_TEAM + team, TEAM);  // nobody reads the last rows any more
                float* const to = shared.values[team][ENGINE::pass_row()];
                float zeros = 0;
#pragma unroll
                for (int c = 0; c < ENGINE::COLUMNS; ++c) {
                    const float first = engine.value(r, c, 2 * half), second = engine.value(r, c, 2 * half + 1);
                    zeros = fmaf(second, 0.0f, fmaf(first, 0.0f, zeros));
                    *(Bits64*)(to + ENGINE::column(c)) = {__float_as_uint(first), __float_as_uint(second)};
                }
                if (__any_sync(~0u, zeros != zeros))
                    repair_values(worker.p, shared, index, team, border, ENGINE::first_row(r) + half * 8,
                                  ENGINE::pass_row() - threadIdx.x % 32 / 4);
                named_barrier_wait(FIRST_TEAM + team, TEAM);
                if (worker.p.partial) gather(worker, team, border, r, half);
                pool(worker, tile, team, r, half);
            }
        }
    }

    // Adds what the buffer's rows have in this tile to their statistics.
    __device__ static void gather(const Worker& worker, int team, int border, int r, int half) {
        constexpr int LANES = TEAM / PASS_ROWS;  // of a row
        Shared& shared = worker.shared;
        const int own = threadIdx.x % TEAM / LANES, lane = threadIdx.x % LANES;
        const float* const values = shared.values[team][own];
        const int* const folds = shared.column_folds[border][team];
        // From the first output on, so that a large mean takes nothing from the deviations.
        const float origin = values[0];
        float count = 0, sum = 0, m2 = 0;
        for (int c = lane; c < TEAM_COLUMNS; c += LANES)
            if (folds[c]) sum += values[c] - origin, count += 1;
        count = sum_over<LANES>(count);
        const float mean = sum_over<LANES>(sum) / count;
        for (int c = lane; c < TEAM_COLUMNS; c += LANES) {
            const float deviation = values[c] - origin - mean;
            if (folds[c]) m2 = fmaf(deviation, deviation, m2);
        }
        m2 = sum_over<LANES>(m2);
        Moments own_moments = {count, double(origin) + mean, m2};
        if (__any_sync(~0u, is_special(m2))) own_moments = large_moments<LANES>(values, folds, lane, count);
        if (lane > 0) return;
        Moments& all = shared.moments[team][ENGINE::row_of_pass(r, half, own)];
        all = merge(all, own_moments);
    }
    // The same of numbers whose squares are too large for float.
    template <int LANES>
    __device__ static Moments large_moments(const float* values, const int* folds, int lane, float count) {
        double sum = 0, m2 = 0;
        for (int c = lane; c < TEAM_COLUMNS; c += LANES)
            if (folds[c]) sum += values[c];
        const double mean = sum_over<LANES>(sum) / count;
        for (int c = lane; c < TEAM_COLUMNS; c += LANES)
            if (folds[c]) m2 += (values[c] - mean) * (values[c] - mean);
        return {count, mean, sum_over<LANES>(m2)};
    }

    // Stores the extrema of the buffer's rows.
    __device__ static void pool(const Worker& worker, const Tile& tile, int team, int r, int half) {
        const Arguments& p = worker.p;
        Shared& shared = worker.shared;
        const int windows = int(p.tile[2]) / 2 * (int(p.tile[3]) / 2) * int(p.tile[0]), below = pitch(p);
        float* const first = p.pooled + tile.start[0] * p.pooled_batch + tile.start[2] / 2 * p.pooled_pitch +
                             tile.start[3] / 2;
        for (int own = threadIdx.x % TEAM / 32; own < PASS_ROWS; own += TEAM / 32) {
            const int team_row = ENGINE::row_of_pass(r, half, own);
            const int64 row = worker.first_row(tile, team) + team_row;
            if (row >= p.rows) continue;
            float* const to = first + (tile.group * p.rows + row) * p.pooled_row;
            const float* const values = shared.values[team][own];
            const int order = shared.order[team][team_row];
            for (int i = threadIdx.x % 32; i < windows; i += 32) {
                const Window& window = shared.window[i];
                int place[4];
                Packed::unpack(window.place, place);
                if (place[0] >= tile.size[0] || place[2] + 1 >= tile.size[2] || place[3] + 1 >= tile.size[3]) continue;
                const float* const at = values + window.column;
                const float above = extremum(at[0], at[1], order);
                to[window.offset] = extremum(above, extremum(at[below], at[below + 1], order), order);
            }
        }
    }
};

// Computes sums that are not finite again, in the eight rows of the buffer that the warp wrote.
__device__ __noinline__ void repair_values(const Arguments& p, Shared& shared, int index, int team, int border,
                                           int first_row, int first_pass) {
    constexpr int WIDTH = ENGINE::COLUMNS * 8;
    const int phase_index = blockIdx.x % int(p.phases);
    const Worker worker(p, shared, nullptr, phase_index, phase_of(p.axis, phase_index), 0, 0);
    Tile tile;
    worker.describe(index, tile);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 8 * WIDTH; i += 32) {
        const int column = ENGINE::first_column(0) + i % WIDTH;
        const int channel = worker.first_row(tile, team) + first_row + i / WIDTH;
        float& value = shared.values[team][first_pass + i / WIDTH][column];
        if (channel >= p.rows || !shared.column_folds[border][team][column] || !is_special(value)) continue;
        int place[4];
        Packed::unpack(shared.column_place[team][column], place);
        const int64 o[3] = {0, tile.start[2] + place[2], tile.start[3] + place[3]};
        value = plain_sum(p, tile.group, channel, tile.start[0] + place[0], o);
    }
}
