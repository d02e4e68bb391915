// The epilogue of matrix_conv.cu that pools the sums of a tile, for the fused operation: it stores only the extremum of
// each 2 x 2 window of outputs, and gathers the statistics of each channel.
//
// Normalisation and tanh are monotonic, so that the largest of their values in a window belongs to the largest sum, or,
// where the scale of the channel is negative, to the smallest sum. NaN is both.
//
//     pooled[n][channel][y][x] = extremum of out[n][channel][2y .. 2y + 1][2x .. 2x + 1]
//     partial[block][channel]  = count, mean and squared deviations of all outputs that the block computed, including
//                                outputs that belong to no window
//
// Tiles begin with even outputs along y and x, and have even sizes, so that no window lies in two tiles. Where its two
// rows are STACKED in the two column tiles of a warpgroup, a thread has all of a window:
//
//     columns   0   1   2   3   ...   SEGMENT
//     row k     a   a   b   b         a   a   b   b       windows a, b
//
//     registers -> Deviations -> moments      (keep)
//               -> extremum   -> pooled
//
// Otherwise the warpgroups that have the same rows exchange them through a buffer, PASS_ROWS at a time, in which the
// lower row of windows lies a pitch after the upper one:
//
//     registers -> Deviations -> moments      (pass)
//               -> values, buffer of rows -> extremum -> pooled      (pool)
//
// Statistics combine from tile to tile, in the order of a block's tiles.
#pragma once
#include "matrix_exact.cuh"
#include "matrix_float16.cuh"

#if POOLS
// The sum over LANES neighbouring lanes.
template <int LANES, typename Value>
__device__ inline Value sum_over(Value value) {
#pragma unroll
    for (int apart = 1; apart < LANES; apart *= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

__device__ __noinline__ void recompute_values(const Arguments& p, Shared& shared, int index, int warpgroup,
                                              int border, int first_row, int first_pass);
__device__ __noinline__ void look_again(const Arguments& p, Shared& shared, Four* all, Moments* found, int index,
                                        int warpgroup, int border, unsigned again);

struct Pool {
    // The bits of a row's sums that are flipped so that the extremum is the largest sum: none or the sign. ODD marks a
    // row in which more counts than the order of the sums.
    static constexpr unsigned SIGN = 0x80000000u, ODD = 1;
    static constexpr float MOST = 3.402823466e38f;  // the largest finite float
    __device__ __noinline__ static double of(const Parameter& parameter, int64 channel) {
        return load_parameter<double>(parameter, channel);
    }
    // A sum normalized by the given statistics, before tanh.
    __device__ __noinline__ static double normalized(const Arguments& p, int64 channel, double sum) {
        const double rate = 1 / sqrt(of(p.var, channel) + p.eps);
        return (sum - of(p.mean, channel)) * rate * of(p.scale, channel) + of(p.shift, channel);
    }
    __device__ static bool is_unusual(const Arguments& p, int64 channel) {
        return p.mean.data && is_special(normalized(p, channel, 0));
    }
    // The sum that stands for a window in an odd row. Where given statistics are not finite, an infinity may become
    // NaN, or all finite sums an infinity: then each sum is normalized. Otherwise the scale is zero, which makes the
    // same of all finite sums, and NaN of an infinity: then it is the sum of largest magnitude.
    __device__ __noinline__ static float odd_extremum(const Arguments& p, int64 channel, const float* at, int below) {
        const bool unusual = is_unusual(p, channel);
        float kept = 0;
        double largest = 0;
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
            const float sum = at[i / 2 * below + i % 2];
            const double value = unusual ? normalized(p, channel, sum) : fabs(double(sum));
            if (i == 0 || value != value || value > largest) kept = sum, largest = value;
            if (largest != largest) break;
        }
        return kept;
    }

    // Threads that share a buffer: one warpgroup, or two with half of the columns each.
    static constexpr int TOGETHER = COLUMN_WARPGROUPS * WARPGROUP;
    __device__ static void sync(int warpgroup) {
        named_barrier_wait(COLUMN_WARPGROUPS == 2 ? POOL_BARRIER : WARPGROUP_BARRIER + warpgroup, TOGETHER);
    }
    __device__ static int buffer_of(int warpgroup) { return ROW_WARPGROUPS == 2 ? warpgroup : 0; }

    __device__ static void describe_column(Shared& shared, int warpgroup, int column, bool used) {
        shared.present[0][warpgroup][column] = used;
    }
    __device__ static void describe_border(Shared& shared, int warpgroup, int column, bool exists) {
        shared.present[1][warpgroup][column] = exists;
    }
    __device__ static void describe_fragment(const Schedule&, const Tile&, int, int) {}
    // Fills the list of windows, and clears the block's part of the statistics.
    __device__ static void describe(const Schedule& schedule, const Threads& threads) {
        const Arguments& p = schedule.p;
        if (STACKED == 2)
            for (int i = threads.rank; i < COLUMNS / 4; i += threads.count) {
                int place[4];  // in rows of windows
                place_of(p, i / (SEGMENT / 2) * int(p.segment_pitch) + i % (SEGMENT / 2) * 2, place);
                schedule.shared.window[i].offset =
                    place[0] * p.pooled_batch + place[2] * p.pooled_pitch + place[3] / 2;
            }
        else
            describe_passed(schedule, threads);
        const int64 channels = p.groups * p.rows;
        if (p.partial)
            for (int64 i = threads.rank; i < channels; i += threads.count)
                p.partial[blockIdx.x * channels + i] = {0, 0, 0};
    }
    __device__ static void describe_passed(const Schedule& schedule, const Threads& threads) {
        const Arguments& p = schedule.p;
        const int height = int(p.tile[2]) / 2, width = int(p.tile[3]) / 2, windows = height * width;
        for (int i = threads.rank; i < windows * int(p.tile[0]); i += threads.count) {
            const int place[4] = {i / windows, 0, i % windows / width * 2, i % width * 2};
            Window& window = schedule.shared.window[i];
            window.offset = place[0] * p.pooled_batch + place[2] / 2 * p.pooled_pitch + place[3] / 2;
            window.column = place[0] * int(p.plane_pitch) + place[2] * pitch(p) + place[3];
            window.place = PackedPlace::pack(place);
        }
    }
    // Columns from one row of outputs to the next.
    __device__ static int pitch(const Arguments& p) {
        return p.segment_pitch == SEGMENT ? int(p.row_pitch) : SEGMENT;
    }

    // Before a tile of other rows, and after the last tile: adds the statistics of the rows so far to the
    // block's.
    __device__ static void end_rows(const Schedule& schedule, int warpgroup, int row_tile, int group) {
        if (row_tile >= 0) end_rows(schedule.p, schedule.shared, warpgroup, row_tile, group);
    }
    // Not inlined, as it is called from two places, and seldom.
    __device__ __noinline__ static void end_rows(const Arguments& p, Shared& shared, int warpgroup, int row_tile,
                                                 int group) {
        Tile tile;
        tile.row_tile = row_tile;
        const bool own = COLUMN_WARPGROUPS == 1 || warpgroup == 0;
        if (STACKED == 2) sync(warpgroup);  // all threads have added their part
        for (int i = threadIdx.x % WARPGROUP; i < WARPGROUP_ROWS && own && p.partial; i += WARPGROUP) {
            const int64 row = Schedule::first_row(tile, warpgroup) + i;
            if (row >= p.rows) continue;
            PartMoments& part = p.partial[(blockIdx.x * p.groups + group) * p.rows + row];
            Moments all = moments_of(part);
#pragma unroll 1
            for (int other = warpgroup; other < warpgroup + COLUMN_WARPGROUPS; ++other)
#pragma unroll 1
                for (int warp = 0; warp < ENGINE::COLUMN_WARPS; ++warp)
                    all = merge(all, shared.moments[other][warp][i]);
            part = part_of(all);
        }
        sync(warpgroup);  // nobody reads the moments and flips of these rows any more
    }
    // Before the first tile of other rows: how their extrema are found; their moments are empty.
    __device__ static void begin_rows(const Schedule& schedule, int warpgroup, const Tile& tile) {
        const Arguments& p = schedule.p;
        for (int i = threadIdx.x % WARPGROUP; i < WARPGROUP_ROWS; i += WARPGROUP) {
            const int64 row = schedule.first_row(tile, warpgroup) + i, channel = tile.group * p.rows + row;
            const double scale = row < p.rows ? of(p.scale, channel) : 1;
            unsigned& flip = schedule.shared.flip[warpgroup][i];
            flip = scale > 0 ? 0 : scale < 0 ? SIGN : ODD;
            // Where scale and shift are infinite, the sums on one side of the mean become NaN, which is the extremum:
            // the smaller sums times the sign of the scale, if the shift is positive.
            if (fabs(scale) > MOST && of(p.shift, channel) > MOST) flip ^= SIGN;
            if (row < p.rows && is_unusual(p, channel)) flip = ODD;
            for (int warp = 0; warp < ENGINE::COLUMN_WARPS; ++warp)
                schedule.shared.moments[warpgroup][warp][i] = {0, 0, 0};
        }
    }

    template <typename Scale>
    __device__ __forceinline__ static void finish(const Schedule& schedule, ENGINE& engine, const Scale&,
                                                  const Tile& tile, int64, int index, int warpgroup, int border) {
        Shared& shared = schedule.shared;
        const float* const present = shared.present[border][warpgroup];
        int outputs = 0;  // of the warp's columns
#pragma unroll
        for (int column = threadIdx.x % 32; column < (ENGINE::COLUMNS * 8 + 31) / 32 * 32; column += 32)
            outputs += __popc(__ballot_sync(
                ~0u, column < ENGINE::COLUMNS * 8 && present[ENGINE::first_column(0) + column] != 0));
        const float count = float(outputs);
        if (STACKED == 2)
            keep(schedule, engine, tile, count, index, warpgroup, border);
        else
            pass(schedule, engine, tile, count, index, warpgroup, border);
    }

    // A tile whose windows have rows of two threads, through the buffer.
    __device__ __forceinline__ static void pass(const Schedule& schedule, ENGINE& engine, const Tile& tile, float count,
                                                int index, int warpgroup, int border) {
        Shared& shared = schedule.shared;
        const float* const present = shared.present[border][warpgroup];
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sync(warpgroup);  // nobody reads the rows before any more
                float* const to =
                    shared.values[buffer_of(warpgroup)][ENGINE::pass_row()] + schedule.first_column(warpgroup);
#pragma unroll
                for (int c = 0; c < ENGINE::COLUMNS; ++c)
                    *(Neighbours*)(to + ENGINE::column(c)) = Unscaled::of(engine, r, half, c);
                const int row = ENGINE::row_of_pass(r, half, ENGINE::pass_row());
                Moments& all = shared.moments[warpgroup][ENGINE::column_warp()][row];
                Deviations deviations(float(all.mean));
#pragma unroll
                for (int c = 0; c < ENGINE::COLUMNS; ++c)
                    deviations.add(Unscaled::of(engine, r, half, c), *(const Neighbours*)(present + ENGINE::column(c)));
                Moments own = deviations.moments(count);
                // A sum that is not finite, or a sum whose square overflows in float.
                const bool special = __any_sync(~0u, is_special(float(own.m2)));
                if (special)
                    recompute_values(schedule.p, shared, index, warpgroup, border, ENGINE::first_row(r) + half * 8,
                                  ENGINE::pass_row() - threadIdx.x % 32 / 4);
                if (special || (schedule.p.partial && all.count == 0)) {
                    __syncwarp();
                    own = plain_moments(to, present);
                }
                __syncwarp();  // all lanes know the row's moments
                if (schedule.p.partial && threadIdx.x % 4 == 0) add(all, own);
                sync(warpgroup);
                if (ENGINE::ROWS == 1)
                    pool(schedule, tile, warpgroup, r, half);
                else
                    pool_apart(schedule, tile, warpgroup, r, half);
            }
        }
    }

    // The moments of a row in this tile, whose columns four lanes share, by deviations from the mean of the tiles so
    // far. The difference between the tile's mean and this one is part of the total variance, so that little cancels
    // compared to that.
    struct Deviations {
        float mean;
        float sums[2] = {0, 0}, squares[2] = {0, 0};  // two independent chains of additions each

        __device__ explicit Deviations(float mean) : mean(mean) {}
        // Adds two sums of a thread; `present` is 1 for a sum that is an output, else 0.
        __device__ __forceinline__ void add(const Neighbours& values, const Neighbours& present) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float deviation = (i ? values.second : values.first) - mean;
                const float counts = i ? present.second : present.first;
                sums[i] = fmaf(deviation, counts, sums[i]);
                squares[i] = fmaf(deviation * counts, deviation, squares[i]);
            }
        }
        __device__ __forceinline__ Moments moments(float count) const {
            const float sum = sum_over<4>(sums[0] + sums[1]);
            const float apart = count > 0 ? sum / count : 0;
            const float rest = sum_over<4>(squares[0] + squares[1]) - sum * apart;
            return {count, double(mean) + apart, rest < 0 ? 0 : rest};
        }
    };

    // A tile whose rows are stacked, from a thread's own sums of two channels. If sums are not finite, or rows are odd,
    // the warp looks at them again.
    __device__ __forceinline__ static void keep(const Schedule& schedule, ENGINE& engine, const Tile& tile, float count,
                                                int index, int warpgroup, int border) {
        constexpr int BELOW = ENGINE::COLUMNS / 2;  // fragments from the upper row of windows to the lower one
        const Arguments& p = schedule.p;
        Shared& shared = schedule.shared;
        const int own = ENGINE::row(0), row = schedule.first_row(tile, warpgroup) + own;
        const int64 channel = tile.group * p.rows + row;
        float* const to = p.pooled + tile.start[0] * p.pooled_batch + channel * p.pooled_row +
                          tile.start[2] * p.pooled_pitch + tile.start[3] / 2;
        const Window* const windows = shared.window + first_window(warpgroup) + threadIdx.x % 4;
        const float* const present = shared.present[border][warpgroup];
        const unsigned flip[2] = {shared.flip[warpgroup][own], shared.flip[warpgroup][own + 8]};
        Moments* const all[2] = {&shared.moments[warpgroup][0][own], &shared.moments[warpgroup][0][own + 8]};
        Moments found[2] = {*all[0], *all[1]};
        // Before the first tile no mean is known: it is gone through twice.
#pragma unroll 1
        for (int turn = p.partial && uniform(all[0]->count == 0) ? 0 : 1; turn < 2; ++turn) {
            Deviations deviations[2] = {Deviations(float(found[0].mean)), Deviations(float(found[1].mean))};
#pragma unroll
            for (int c = 0; c < BELOW; ++c) {
                const Neighbours above = *(const Neighbours*)(present + ENGINE::column(c));
                const Neighbours below = *(const Neighbours*)(present + ENGINE::column(c + BELOW));
                float* const at = to + windows[c * 4].offset;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const Neighbours upper = Unscaled::of(engine, 0, half, c);
                    const Neighbours lower = Unscaled::of(engine, 0, half, c + BELOW);
                    deviations[half].add(upper, above);
                    deviations[half].add(lower, below);
                    const float kept = extremum(upper, lower, flip[half]);
                    store_bits((unsigned*)at + half * 8 * p.pooled_row, __float_as_uint(kept),
                               turn == 1 && below.second != 0 && row + half * 8 < p.rows);
                }
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) found[half] = deviations[half].moments(count);
        }
        // A bit for each of the two rows that are looked at again.
        unsigned again = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            again |= unsigned(__any_sync(~0u, is_special(float(found[half].m2)) | (flip[half] == ODD))) << half;
        if (again) {
            Four sums[ENGINE::COLUMNS];
#pragma unroll
            for (int c = 0; c < ENGINE::COLUMNS; ++c)
                store_own(&sums[c], {engine.value(0, c, 0), engine.value(0, c, 1), engine.value(0, c, 2),
                                     engine.value(0, c, 3)});
            Moments looked[2];
            look_again(p, shared, sums, looked, index, warpgroup, border, again);
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (again >> half & 1u) found[half] = looked[half];
        }
        __syncwarp();  // all lanes know the rows' moments
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (p.partial && threadIdx.x % 4 == 0) add(*all[half], found[half]);
    }
    __device__ static int first_window(int warpgroup) { return Schedule::first_column(warpgroup) / 4; }
    __device__ static float extremum(const Neighbours& upper, const Neighbours& lower, unsigned flip) {
        return flipped(max_or_nan(max_or_nan(flipped(upper.first, flip), flipped(upper.second, flip)),
                                  max_or_nan(flipped(lower.first, flip), flipped(lower.second, flip))),
                       flip);
    }

    // Adds moments that are as exact as floats.
    __device__ static void add(Moments& all, const Moments& own) {
        const double count = all.count + own.count, delta = own.mean - all.mean;
        const double share = own.count > 0 ? float(own.count) / float(count) : 0;
        all = {count, all.mean + delta * share, all.m2 + own.m2 + delta * delta * all.count * share};
    }
    // The moments of a row of the buffer, in double, where floats overflow or no mean is known.
    __device__ __noinline__ static Moments plain_moments(const float* row, const float* present) {
        constexpr int WIDTH = ENGINE::COLUMNS * 8;
        const int first = ENGINE::first_column(0);
        double count = 0, sum = 0, squares = 0;
        for (int c = first + threadIdx.x % 4; c < first + WIDTH; c += 4)
            if (present[c] != 0) sum += row[c], count += 1;
        count = sum_over<4>(count);
        const double mean = sum_over<4>(sum) / (count > 0 ? count : 1);
        for (int c = first + threadIdx.x % 4; c < first + WIDTH; c += 4)
            if (present[c] != 0) squares += (row[c] - mean) * (row[c] - mean);
        return {count, mean, sum_over<4>(squares)};
    }

    // Stores the extrema of the buffer's rows, which are consecutive channels: each warp has a few of them, and its
    // lanes run along the windows of two rows at a time.
    __device__ __forceinline__ static void pool(const Schedule& schedule, const Tile& tile, int warpgroup, int r,
                                                int half) {
        constexpr int HEIGHT = ENGINE::PASS_ROWS / (TOGETHER / 32), PITCH = COLUMNS + 8;
        constexpr int DOWN = HEIGHT > 1 ? 2 : 1, ACROSS = 32 / DOWN;
        const Arguments& p = schedule.p;
        Shared& shared = schedule.shared;
        const int windows = int(p.tile[2]) / 2 * (int(p.tile[3]) / 2) * int(p.tile[0]), below = pitch(p);
        const int lane = threadIdx.x % 32, first = threadIdx.x % TOGETHER / 32 * HEIGHT + lane / ACROSS;
        const int first_row = ENGINE::row_of_pass(r, half, first), row = schedule.first_row(tile, warpgroup) + first_row;
        const int rows = int(p.rows) - row;
        float* const to = p.pooled + tile.start[0] * p.pooled_batch + (tile.group * p.rows + row) * p.pooled_row +
                          tile.start[2] / 2 * p.pooled_pitch + tile.start[3] / 2;
        unsigned flip[HEIGHT / DOWN];
        bool odd = false;
#pragma unroll
        for (int k = 0; k < HEIGHT / DOWN; ++k) {
            flip[k] = shared.flip[warpgroup][first_row + k * DOWN];
            odd |= flip[k] == ODD;
        }
        for (int i = lane % ACROSS; i < windows; i += ACROSS) {
            const Window& window = shared.window[i];
            int place[4];
            PackedPlace::unpack(window.place, place);
            if (place[0] >= tile.size[0] || place[2] + 1 >= tile.size[2] || place[3] + 1 >= tile.size[3]) continue;
            const float* const at = shared.values[buffer_of(warpgroup)][first] + window.column;
            float* const stored = to + window.offset;
#pragma unroll
            for (int k = 0; k < HEIGHT / DOWN; ++k) {
                const float* const own = at + k * DOWN * PITCH;
                const Bits64 upper = *(const Bits64*)own, lower = *(const Bits64*)(own + below);
                const float above = max_or_nan(flipped(upper.first, flip[k]), flipped(upper.second, flip[k]));
                const float under = max_or_nan(flipped(lower.first, flip[k]), flipped(lower.second, flip[k]));
                const float kept = flipped(max_or_nan(above, under), flip[k]);
                if (k * DOWN < rows) stored[k * DOWN * p.pooled_row] = kept;
            }
            for (int k = 0; odd && k < HEIGHT && k < rows; k += DOWN)
                if (shared.flip[warpgroup][first_row + k] == ODD)
                    stored[k * p.pooled_row] =
                        odd_extremum(p, tile.group * p.rows + row + k, at + k * PITCH, below);
        }
    }
    // The same, not inlined, for engines that have many passes.
    __device__ __noinline__ static void pool_apart(const Schedule& schedule, const Tile& tile, int warpgroup, int r,
                                                   int half) {
        pool(schedule, tile, warpgroup, r, half);
    }
    __device__ static float flipped(unsigned bits, unsigned flip) { return __uint_as_float(bits ^ flip); }
    __device__ static float flipped(float value, unsigned flip) { return flipped(__float_as_uint(value), flip); }
};

// The exact sum at a column of a tile.
__device__ inline float sum_again(const Schedule& schedule, const Tile& tile, int warpgroup, int channel, int column) {
    int place[4];
    PackedPlace::unpack(schedule.shared.column_place[warpgroup][column], place);
    const int o[3] = {0, tile.start[2] * STACKED + place[2], tile.start[3] + place[3]};
    return exact_sum(schedule.p, tile.group, channel, tile.start[0] + place[0], o);
}

// Computes the sums again that are not finite, in the eight rows of the buffer that the warp has written.
__device__ __noinline__ void recompute_values(const Arguments& p, Shared& shared, int index, int warpgroup,
                                              int border, int first_row, int first_pass) {
    constexpr int WIDTH = ENGINE::COLUMNS * 8;
    const Schedule schedule(p, shared);
    Tile tile;
    schedule.describe(index, tile);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 8 * WIDTH; i += 32) {
        const int column = ENGINE::first_column(0) + i % WIDTH;
        const int channel = schedule.first_row(tile, warpgroup) + first_row + i / WIDTH;
        float& value = shared.values[Pool::buffer_of(warpgroup)][first_pass + i / WIDTH]
                                    [schedule.first_column(warpgroup) + column];
        if (channel < p.rows && shared.present[border][warpgroup][column] != 0 && is_special(value))
            value = sum_again(schedule, tile, warpgroup, channel, column);
    }
}

// Where rows are stacked: of the two rows whose sums four lanes share, looks again at the rows that `again` has a bit
// for. Sums that are not finite are computed again, the extrema are stored once more, as `flip` says, and the moments
// are found, in double.
__device__ __noinline__ void look_again(const Arguments& p, Shared& shared, Four* all, Moments* found, int index,
                                        int warpgroup, int border, unsigned again) {
    constexpr int COUNT = ENGINE::COLUMNS * 2;
    const Schedule schedule(p, shared);
    const float* const present = shared.present[border][warpgroup];
    Tile tile;
    schedule.describe(index, tile);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        if (!(again >> half & 1u)) continue;
        const int own = ENGINE::row(0) + half * 8, row = schedule.first_row(tile, warpgroup) + own;
        const int64 channel = tile.group * p.rows + row;
        const unsigned flip = shared.flip[warpgroup][own];
        const auto sum_at = [&](int i) -> float& { return all[i / 2].of[half * 2 + i % 2]; };
        double count = 0, sum = 0, squares = 0;
#pragma unroll 1
        for (int i = 0; i < COUNT; ++i) {
            const int column = ENGINE::column(i / 2) + i % 2;
            if (present[column] == 0) continue;
            float& value = sum_at(i);
            if (row < p.rows && is_special(value)) value = sum_again(schedule, tile, warpgroup, row, column);
            sum += value, count += 1;
        }
#pragma unroll 1
        for (int i = 0; i < COUNT / 2 && row < p.rows; i += 2) {
            if (present[ENGINE::column((COUNT / 2 + i) / 2) + 1] == 0) continue;
            const Neighbours upper = {sum_at(i), sum_at(i + 1)};
            const Neighbours lower = {sum_at(COUNT / 2 + i), sum_at(COUNT / 2 + i + 1)};
            const float at[4] = {upper.first, upper.second, lower.first, lower.second};
            p.pooled[tile.start[0] * p.pooled_batch + channel * p.pooled_row + tile.start[2] * p.pooled_pitch +
                     tile.start[3] / 2 + shared.window[Pool::first_window(warpgroup) + threadIdx.x % 4 + i * 2].offset] =
                flip == Pool::ODD ? Pool::odd_extremum(p, channel, at, 2) : Pool::extremum(upper, lower, flip);
        }
        count = sum_over<4>(count);
        const double mean = sum_over<4>(sum) / (count > 0 ? count : 1);
#pragma unroll 1
        for (int i = 0; i < COUNT; ++i)
            if (present[ENGINE::column(i / 2) + i % 2] != 0) squares += (sum_at(i) - mean) * (sum_at(i) - mean);
        found[half] = {count, mean, sum_over<4>(squares)};
    }
}
typedef Pool Epilogue;
#endif
