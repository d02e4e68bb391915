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
// lies in two tiles. The teams that have the same rows pass them through a buffer, PASS_ROWS at a time:
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
    static constexpr int UNUSUAL = 2;  // order of a row whose parameters are not finite
    // A sum by the statistics that were given, in front of tanh.
    __device__ __noinline__ static double normalized(const Arguments& p, int64 channel, double sum) {
        const double rate = 1 / sqrt(load_parameter<double>(p.var, channel) + p.eps);
        return (sum - load_parameter<double>(p.mean, channel)) * rate * load_parameter<double>(p.scale, channel) +
               load_parameter<double>(p.shift, channel);
    }
    // With them an infinity may become NaN, or all that is finite an infinity: each is looked at.
    __device__ __noinline__ static float unusual(const Arguments& p, int64 channel, const float* at, int below) {
        float kept = 0;
        double largest = 0;
        for (int i = 0; i < 4; ++i) {
            const float sum = at[i / 2 * below + i % 2];
            const double value = normalized(p, channel, sum);
            if (i == 0 || value != value || value > largest) kept = sum, largest = value;
            if (largest != largest) break;
        }
        return kept;
    }

    // Those of the threads that share a buffer: a team, or two with half of the columns each.
    static constexpr int TOGETHER = COLUMN_TEAMS * TEAM;
    __device__ static void sync(int team) {
        named_barrier_wait(COLUMN_TEAMS == 2 ? FIRST_POOL : FIRST_TEAM + team, TOGETHER);
    }
    __device__ static int buffer_of(int team) { return ROW_TEAMS == 2 ? team : 0; }

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
            for (int64 i = threadIdx.x; i < channels; i += THREADS)
                p.partial[blockIdx.x * channels + i] = {0, 0, 0};
    }
    // Columns from one row of outputs to the next.
    __device__ static int pitch(const Arguments& p) {
        return p.segment_pitch == SEGMENT ? int(p.row_pitch) : SEGMENT;
    }

    // Adds the statistics of the rows so far, if there are any, to the block's.
    __device__ static void put_away(const Worker& worker, int team, int row_tile, int group) {
        if (row_tile >= 0) put_away(worker.p, worker.shared, team, row_tile, group);
    }
    // Called from two places, and seldom.
    __device__ __noinline__ static void put_away(const Arguments& p, Shared& shared, int team, int row_tile,
                                                 int group) {
        Tile tile;
        tile.row_tile = row_tile;
        const bool own = COLUMN_TEAMS == 1 || team == 0;
        for (int i = threadIdx.x % TEAM; i < TEAM_ROWS && own && p.partial; i += TEAM) {
            const int64 row = Worker::first_row(tile, team) + i;
            if (row >= p.rows) continue;
            PartMoments& part = p.partial[(blockIdx.x * p.groups + group) * p.rows + row];
            Moments all = moments_of(part);
            for (int other = team; other < team + COLUMN_TEAMS; ++other)
                for (int warp = 0; warp < ENGINE::COLUMN_WARPS; ++warp)
                    all = merge(all, shared.moments[other][warp][i]);
            part = part_of(all);
        }
        sync(team);  // nobody reads what is known of the rows any more
    }
    // What the team's rows are from the next tile on.
    __device__ static void take_rows(const Worker& worker, int team, const Tile& tile) {
        const Arguments& p = worker.p;
        for (int i = threadIdx.x % TEAM; i < TEAM_ROWS; i += TEAM) {
            const int64 row = worker.first_row(tile, team) + i, channel = tile.group * p.rows + row;
            const double scale = row < p.rows ? load_parameter<double>(p.scale, channel) : 0;
            worker.shared.order[team][i] = scale > 0 ? 1 : scale < 0 ? -1 : 0;
            if (row < p.rows && p.mean.data && is_special(normalized(p, channel, 0)))
                worker.shared.order[team][i] = UNUSUAL;
            for (int warp = 0; warp < ENGINE::COLUMN_WARPS; ++warp)
                worker.shared.moments[team][warp][i] = {0, 0, 0};
        }
    }

    __device__ __forceinline__ static void finish(const Worker& worker, ENGINE& engine, int index, int team,
                                                  int border) {
        Shared& shared = worker.shared;
        Tile tile;
        worker.describe(index, tile);
        // Two bits for each tile of columns: which of the thread's are outputs.
        unsigned exists[(ENGINE::COLUMNS + 15) / 16] = {};
#pragma unroll
        for (int c = 0; c < ENGINE::COLUMNS; ++c) {
            const Bits64 folds = *(const Bits64*)&shared.column_folds[border][team][ENGINE::column(c)];
            exists[c / 16] |= ((folds.first ? 1u : 0u) | (folds.second ? 2u : 0u)) << c % 16 * 2;
        }
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sync(team);  // nobody reads the last rows any more
                float* const to = shared.values[buffer_of(team)][ENGINE::pass_row()] + worker.first_column(team);
                float zeros = 0;
#pragma unroll
                for (int c = 0; c < ENGINE::COLUMNS; ++c) {
                    const float first = engine.value(r, c, 2 * half), second = engine.value(r, c, 2 * half + 1);
                    zeros = fmaf(second, 0.0f, fmaf(first, 0.0f, zeros));
                    *(Bits64*)(to + ENGINE::column(c)) = {__float_as_uint(first), __float_as_uint(second)};
                }
                if (__any_sync(~0u, zeros != zeros)) {
                    repair_values(worker.p, shared, index, team, border, ENGINE::first_row(r) + half * 8,
                                  ENGINE::pass_row() - threadIdx.x % 32 / 4);
                    __syncwarp();
#pragma unroll
                    for (int c = 0; c < ENGINE::COLUMNS; ++c)
#pragma unroll
                        for (int i = 0; i < 2; ++i)
                            engine.value(r, c, 2 * half + i) = to[ENGINE::column(c) + i];
                }
                if (worker.p.partial) gather(worker, engine, exists, to, team, border, r, half);
                sync(team);
                pool(worker, tile, team, r, half);
            }
        }
    }

    // Adds what a row has in this tile to its statistics: four lanes have its columns.
    __device__ __forceinline__ static void gather(const Worker& worker, ENGINE& engine, const unsigned* exists,
                                                  const float* values, int team, int border, int r, int half) {
        Moments own = moments(engine, exists, r, half);
        // Squares that are too large for float are not for double.
        if (__any_sync(~0u, own.count > 0 && is_special(float(own.m2)))) {
            __syncwarp();
            own = large_moments(values, worker.shared.column_folds[border][team]);
        }
        if (threadIdx.x % 4 > 0) return;
        Moments& all =
            worker.shared.moments[team][ENGINE::column_warp()][ENGINE::row_of_pass(r, half, ENGINE::pass_row())];
        all = merge(all, own);
    }
    // In two passes: what the rounded mean is off by corrects both.
    __device__ __forceinline__ static Moments moments(ENGINE& engine, const unsigned* exists, int r, int half) {
        int number = 0;
        float sum = 0, rest = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < (ENGINE::COLUMNS + 15) / 16; ++i) number += __popc(exists[i]);
#pragma unroll
        for (int c = 0; c < ENGINE::COLUMNS; ++c)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                sum += exists[c / 16] >> (c % 16 * 2 + i) & 1u ? engine.value(r, c, 2 * half + i) : 0.0f;
        const float count = sum_over<4>(float(number)), mean = sum_over<4>(sum) / count;
#pragma unroll
        for (int c = 0; c < ENGINE::COLUMNS; ++c)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float deviation = engine.value(r, c, 2 * half + i) - mean;
                const float present = exists[c / 16] >> (c % 16 * 2 + i) & 1u ? deviation : 0.0f;
                rest += present;
                squares += present * present;
            }
        rest = sum_over<4>(rest) / count;
        squares = sum_over<4>(squares) - count * rest * rest;
        return {count, double(mean) + rest, squares};
    }
    // The same from the warp's rows of the buffer.
    __device__ __noinline__ static Moments large_moments(const float* row, const int* folds) {
        constexpr int WIDTH = ENGINE::COLUMNS * 8;
        const int first = ENGINE::first_column(0);
        double count = 0, sum = 0, squares = 0;
        for (int c = first + threadIdx.x % 4; c < first + WIDTH; c += 4)
            if (folds[c]) sum += row[c], count += 1;
        count = sum_over<4>(count);
        const double mean = sum_over<4>(sum) / count;
        for (int c = first + threadIdx.x % 4; c < first + WIDTH; c += 4)
            if (folds[c]) squares += (row[c] - mean) * (row[c] - mean);
        return {count, mean, sum_over<4>(squares)};
    }

    // Stores the extrema of the buffer's rows: a warp has a few rows, its lanes run along the windows.
    __device__ __forceinline__ static void pool(const Worker& worker, const Tile& tile, int team, int r, int half) {
        constexpr int HEIGHT = PASS_ROWS / (TOGETHER / 32);
        const Arguments& p = worker.p;
        Shared& shared = worker.shared;
        const int windows = int(p.tile[2]) / 2 * (int(p.tile[3]) / 2) * int(p.tile[0]), below = pitch(p);
        const int first = threadIdx.x % TOGETHER / 32 * HEIGHT;  // of the warp's rows, which are channels in turn
        const int first_row = ENGINE::row_of_pass(r, half, first), row = worker.first_row(tile, team) + first_row;
        const int rows = int(p.rows) - row;
        float* const to = p.pooled + tile.start[0] * p.pooled_batch + (tile.group * p.rows + row) * p.pooled_row +
                          tile.start[2] / 2 * p.pooled_pitch + tile.start[3] / 2;
        for (int i = threadIdx.x % 32; i < windows; i += 32) {
            const Window& window = shared.window[i];
            int place[4];
            Packed::unpack(window.place, place);
            if (place[0] >= tile.size[0] || place[2] + 1 >= tile.size[2] || place[3] + 1 >= tile.size[3]) continue;
            const float* const from = shared.values[buffer_of(team)][first] + window.column;
#pragma unroll
            for (int k = 0; k < HEIGHT; ++k) {
                const int order = shared.order[team][first_row + k];
                const float* const at = from + k * (COLUMNS + 8);
                const Bits64 upper = *(const Bits64*)at, lower = *(const Bits64*)(at + below);
                const float above =
                    extremum(__uint_as_float(upper.first), __uint_as_float(upper.second), order);
                const float under =
                    extremum(__uint_as_float(lower.first), __uint_as_float(lower.second), order);
                float kept = extremum(above, under, order);
                if (order == UNUSUAL && k < rows) kept = unusual(p, tile.group * p.rows + row + k, at, below);
                if (k < rows) to[window.offset + k * p.pooled_row] = kept;
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
        float& value = shared.values[Pool::buffer_of(team)][first_pass + i / WIDTH][worker.first_column(team) + column];
        if (channel >= p.rows || !shared.column_folds[border][team][column] || !is_special(value)) continue;
        int place[4];
        Packed::unpack(shared.column_place[team][column], place);
        const int64 o[3] = {0, tile.start[2] + place[2], tile.start[3] + place[3]};
        value = plain_sum(p, tile.group, channel, tile.start[0] + place[0], o);
    }
}
