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
// lies in two tiles. Where its two rows are STACKED in a team's two segments, a thread has all of a window:
//
//     columns   0   1   2   3   ...   SEGMENT
//     row k     a   a   b   b         a   a   b   b       windows a, b
//
// Else the teams that have the same rows pass them through a buffer, PASS_ROWS at a time, in which the lower
// row lies a pitch behind the upper one.
//
// Statistics combine from tile to tile, in the order of a block's tiles.
#pragma once

#if POOLS

// The sum over lanes that lie together, LANES of them.
template <int LANES, typename Value>
__device__ inline Value sum_over(Value value) {
#pragma unroll
    for (int apart = 1; apart < LANES; apart *= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

__device__ __noinline__ void repair_values(const Arguments& p, Shared& shared, int index, int team, int border,
                                           int first_row, int first_pass);
__device__ __noinline__ void look_again(const Arguments& p, Shared& shared, Four* all, Moments* found, int index,
                                        int team, int border, unsigned again);

struct Pool {
    // The bits of a row's sums that are flipped so that the extremum is the largest: none or the sign's. ODD
    // are those where more counts than the order of the sums.
    static constexpr unsigned SIGN = 0x80000000u, ODD = 1;
    static constexpr float MOST = 3.402823466e38f;  // that is finite
    __device__ __noinline__ static double of(const Parameter& parameter, int64 channel) {
        return load_parameter<double>(parameter, channel);
    }
    // A sum by the statistics that were given, in front of tanh.
    __device__ __noinline__ static double normalized(const Arguments& p, int64 channel, double sum) {
        const double rate = 1 / sqrt(of(p.var, channel) + p.eps);
        return (sum - of(p.mean, channel)) * rate * of(p.scale, channel) + of(p.shift, channel);
    }
    __device__ static bool is_unusual(const Arguments& p, int64 channel) {
        return p.mean.data && is_special(normalized(p, channel, 0));
    }
    // Which sum of a window stands for it in an odd row. Where statistics that were given are not finite an
    // infinity may become NaN, or all that is finite an infinity: each is looked at. Else the scale is zero,
    // which makes the same of all that is finite, and NaN of an infinity: the one of largest magnitude.
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

    // Those of the threads that share a buffer: a team, or two with half of the columns each.
    static constexpr int TOGETHER = COLUMN_TEAMS * TEAM;
    __device__ static void sync(int team) {
        named_barrier_wait(COLUMN_TEAMS == 2 ? FIRST_POOL : FIRST_TEAM + team, TOGETHER);
    }
    __device__ static int buffer_of(int team) { return ROW_TEAMS == 2 ? team : 0; }

    // Fills the list of windows, and empties the block's part of the statistics.
    __device__ static void describe(const Worker& worker, const Crew& crew) {
        const Arguments& p = worker.p;
        if (STACKED == 2)
            for (int i = crew.own; i < COLUMNS / 4; i += crew.size) {
                int place[4];  // in rows of windows
                worker.place_of(i / (SEGMENT / 2) * int(p.segment_pitch) + i % (SEGMENT / 2) * 2, place);
                worker.shared.window[i].offset =
                    place[0] * p.pooled_batch + place[2] * p.pooled_pitch + place[3] / 2;
            }
        else
            describe_passed(worker, crew);
        const int64 channels = p.groups * p.rows;
        if (p.partial)
            for (int64 i = crew.own; i < channels; i += crew.size)
                p.partial[blockIdx.x * channels + i] = {0, 0, 0};
    }
    __device__ static void describe_passed(const Worker& worker, const Crew& crew) {
        const Arguments& p = worker.p;
        const int height = int(p.tile[2]) / 2, width = int(p.tile[3]) / 2, windows = height * width;
        for (int i = crew.own; i < windows * int(p.tile[0]); i += crew.size) {
            const int place[4] = {i / windows, 0, i % windows / width * 2, i % width * 2};
            Window& window = worker.shared.window[i];
            window.offset = place[0] * p.pooled_batch + place[2] / 2 * p.pooled_pitch + place[3] / 2;
            window.column = place[0] * int(p.plane_pitch) + place[2] * pitch(p) + place[3];
            window.place = Packed::pack(place);
        }
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
        if (STACKED == 2) sync(team);  // all have added theirs
        for (int i = threadIdx.x % TEAM; i < TEAM_ROWS && own && p.partial; i += TEAM) {
            const int64 row = Worker::first_row(tile, team) + i;
            if (row >= p.rows) continue;
            PartMoments& part = p.partial[(blockIdx.x * p.groups + group) * p.rows + row];
            Moments all = moments_of(part);
#pragma unroll 1
            for (int other = team; other < team + COLUMN_TEAMS; ++other)
#pragma unroll 1
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
            const double scale = row < p.rows ? of(p.scale, channel) : 1;
            unsigned& flip = worker.shared.flip[team][i];
            flip = scale > 0 ? 0 : scale < 0 ? SIGN : ODD;
            // Where both are infinite, what lies on one side of the mean becomes NaN, and comes before all others: below it
            // by the sign of the scale, if the shift is positive.
            if (fabs(scale) > MOST && of(p.shift, channel) > MOST) flip ^= SIGN;
            if (row < p.rows && is_unusual(p, channel)) flip = ODD;
            for (int warp = 0; warp < ENGINE::COLUMN_WARPS; ++warp)
                worker.shared.moments[team][warp][i] = {0, 0, 0};
        }
    }

    __device__ __forceinline__ static void finish(const Worker& worker, ENGINE& engine, const Unscaled&,
                                                  const Tile& tile, int64, int index, int team, int border) {
        Shared& shared = worker.shared;
        const float* const present = shared.present[border][team];
        int outputs = 0;  // of the warp's columns
#pragma unroll
        for (int column = threadIdx.x % 32; column < (ENGINE::COLUMNS * 8 + 31) / 32 * 32; column += 32)
            outputs += __popc(__ballot_sync(
                ~0u, column < ENGINE::COLUMNS * 8 && present[ENGINE::first_column(0) + column] != 0));
        const float count = float(outputs);
        if (STACKED == 2)
            keep(worker, engine, tile, count, index, team, border);
        else
            pass(worker, engine, tile, count, index, team, border);
    }

    // By the buffer, where the rows of a window are a thread's and another's.
    __device__ __forceinline__ static void pass(const Worker& worker, ENGINE& engine, const Tile& tile, float count,
                                                int index, int team, int border) {
        Shared& shared = worker.shared;
        const float* const present = shared.present[border][team];
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sync(team);  // nobody reads the last rows any more
                float* const to = shared.values[buffer_of(team)][ENGINE::pass_row()] + worker.first_column(team);
#pragma unroll
                for (int c = 0; c < ENGINE::COLUMNS; ++c)
                    *(Neighbours*)(to + ENGINE::column(c)) = Unscaled::of(engine, r, half, c);
                const int row = ENGINE::row_of_pass(r, half, ENGINE::pass_row());
                Moments& all = shared.moments[team][ENGINE::column_warp()][row];
                Deviations deviations(float(all.mean));
#pragma unroll
                for (int c = 0; c < ENGINE::COLUMNS; ++c)
                    deviations.add(Unscaled::of(engine, r, half, c), *(const Neighbours*)(present + ENGINE::column(c)));
                Moments own = deviations.moments(count);
                // A sum that is not finite, or one whose square is not where that of a double is.
                const bool special = __any_sync(~0u, is_special(float(own.m2)));
                if (special)
                    repair_values(worker.p, shared, index, team, border, ENGINE::first_row(r) + half * 8,
                                  ENGINE::pass_row() - threadIdx.x % 32 / 4);
                if (special || (worker.p.partial && all.count == 0)) {
                    __syncwarp();
                    own = plain_moments(to, present);
                }
                __syncwarp();  // all lanes know the row's moments
                if (worker.p.partial && threadIdx.x % 4 == 0) add(all, own);
                sync(team);
                if (ENGINE::ROWS == 1)
                    pool(worker, tile, team, r, half);
                else
                    pool_apart(worker, tile, team, r, half);
            }
        }
    }

    // What a row has in this tile, of which four lanes have the columns, as deviations from a mean: that of the
    // tiles so far. What the tile's is off by is in the variance of all, so that no more cancels than that leaves.
    struct Deviations {
        float mean;
        float sums[2] = {0, 0}, squares[2] = {0, 0};  // two of each, as none waits for the other

        __device__ explicit Deviations(float mean) : mean(mean) {}
        // Two sums of a thread, each of which is an output where 1 is `present`, else 0.
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

    // Where rows are stacked: from a thread's own sums, those of two channels. What asks for a second look is looked
    // at again by the warp: sums that are not finite, and odd rows.
    __device__ __forceinline__ static void keep(const Worker& worker, ENGINE& engine, const Tile& tile, float count,
                                                int index, int team, int border) {
        constexpr int BELOW = ENGINE::COLUMNS / 2;  // tiles of columns
        const Arguments& p = worker.p;
        Shared& shared = worker.shared;
        const int own = ENGINE::row(0), row = worker.first_row(tile, team) + own;
        const int64 channel = tile.group * p.rows + row;
        float* const to = p.pooled + tile.start[0] * p.pooled_batch + channel * p.pooled_row +
                          tile.start[2] * p.pooled_pitch + tile.start[3] / 2;
        const Window* const windows = shared.window + first_window(team) + threadIdx.x % 4;
        const float* const present = shared.present[border][team];
        const unsigned flip[2] = {shared.flip[team][own], shared.flip[team][own + 8]};
        Moments* const all[2] = {&shared.moments[team][0][own], &shared.moments[team][0][own + 8]};
        Moments found[2] = {*all[0], *all[1]};
        // A first tile has its own mean, and is gone through twice.
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
        // A bit for each that is looked at again.
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
            look_again(p, shared, sums, looked, index, team, border, again);
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (again >> half & 1u) found[half] = looked[half];
        }
        __syncwarp();  // all lanes know the rows' moments
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (p.partial && threadIdx.x % 4 == 0) add(*all[half], found[half]);
    }
    __device__ static int first_window(int team) { return Worker::first_column(team) / 4; }
    __device__ static float extremum(const Neighbours& upper, const Neighbours& lower, unsigned flip) {
        return flipped(max_or_nan(max_or_nan(flipped(upper.first, flip), flipped(upper.second, flip)),
                                  max_or_nan(flipped(lower.first, flip), flipped(lower.second, flip))),
                       flip);
    }

    // Adds moments that are known as well as floats are.
    __device__ static void add(Moments& all, const Moments& own) {
        const double count = all.count + own.count, delta = own.mean - all.mean;
        const double share = own.count > 0 ? float(own.count) / float(count) : 0;
        all = {count, all.mean + delta * share, all.m2 + own.m2 + delta * delta * all.count * share};
    }
    // Those of the warp's rows of the buffer, where floats do not do or no mean is known.
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

    // Stores the extrema of the buffer's rows, which are channels in turn: a warp has a few of them, and its
    // lanes run along the windows of two at a time.
    __device__ __forceinline__ static void pool(const Worker& worker, const Tile& tile, int team, int r, int half) {
        constexpr int HEIGHT = PASS_ROWS / (TOGETHER / 32), PITCH = COLUMNS + 8;
        constexpr int DOWN = HEIGHT > 1 ? 2 : 1, ACROSS = 32 / DOWN;
        const Arguments& p = worker.p;
        Shared& shared = worker.shared;
        const int windows = int(p.tile[2]) / 2 * (int(p.tile[3]) / 2) * int(p.tile[0]), below = pitch(p);
        const int lane = threadIdx.x % 32, first = threadIdx.x % TOGETHER / 32 * HEIGHT + lane / ACROSS;
        const int first_row = ENGINE::row_of_pass(r, half, first), row = worker.first_row(tile, team) + first_row;
        const int rows = int(p.rows) - row;
        float* const to = p.pooled + tile.start[0] * p.pooled_batch + (tile.group * p.rows + row) * p.pooled_row +
                          tile.start[2] / 2 * p.pooled_pitch + tile.start[3] / 2;
        unsigned flip[HEIGHT / DOWN];
        bool odd = false;
#pragma unroll
        for (int k = 0; k < HEIGHT / DOWN; ++k) {
            flip[k] = shared.flip[team][first_row + k * DOWN];
            odd |= flip[k] == ODD;
        }
        for (int i = lane % ACROSS; i < windows; i += ACROSS) {
            const Window& window = shared.window[i];
            int place[4];
            Packed::unpack(window.place, place);
            if (place[0] >= tile.size[0] || place[2] + 1 >= tile.size[2] || place[3] + 1 >= tile.size[3]) continue;
            const float* const at = shared.values[buffer_of(team)][first] + window.column;
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
                if (shared.flip[team][first_row + k] == ODD)
                    stored[k * p.pooled_row] =
                        odd_extremum(p, tile.group * p.rows + row + k, at + k * PITCH, below);
        }
    }
    // The same, once in the code: for engines that have many passes.
    __device__ __noinline__ static void pool_apart(const Worker& worker, const Tile& tile, int team, int r, int half) {
        pool(worker, tile, team, r, half);
    }
    __device__ static float flipped(unsigned bits, unsigned flip) { return __uint_as_float(bits ^ flip); }
    __device__ static float flipped(float value, unsigned flip) { return flipped(__float_as_uint(value), flip); }
};

// The sum at a column of a tile, as it is defined.
__device__ inline float sum_again(const Worker& worker, const Tile& tile, int team, int channel, int column) {
    int place[4];
    Packed::unpack(worker.shared.column_place[team][column], place);
    const int o[3] = {0, tile.start[2] * STACKED + place[2], tile.start[3] + place[3]};
    return plain_sum(worker.p, tile.group, channel, tile.start[0] + place[0], o);
}

// Computes sums that are not finite again, in the eight rows of the buffer that the warp wrote.
__device__ __noinline__ void repair_values(const Arguments& p, Shared& shared, int index, int team, int border,
                                           int first_row, int first_pass) {
    constexpr int WIDTH = ENGINE::COLUMNS * 8;
    const Worker worker(p, shared);
    Tile tile;
    worker.describe(index, tile);
    __syncwarp();
    for (int i = threadIdx.x % 32; i < 8 * WIDTH; i += 32) {
        const int column = ENGINE::first_column(0) + i % WIDTH;
        const int channel = worker.first_row(tile, team) + first_row + i / WIDTH;
        float& value = shared.values[Pool::buffer_of(team)][first_pass + i / WIDTH][worker.first_column(team) + column];
        if (channel < p.rows && shared.present[border][team][column] != 0 && is_special(value))
            value = sum_again(worker, tile, team, channel, column);
    }
}

// Of the sums that four lanes have of two rows, where rows are stacked, and of those rows that `again` has a bit for:
// what is not finite is computed again, and the extrema are stored once more, each in the way of its row. Finds the
// moments, of which no mean need be known.
__device__ __noinline__ void look_again(const Arguments& p, Shared& shared, Four* all, Moments* found, int index,
                                        int team, int border, unsigned again) {
    constexpr int COUNT = ENGINE::COLUMNS * 2;
    const Worker worker(p, shared);
    const float* const present = shared.present[border][team];
    Tile tile;
    worker.describe(index, tile);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        if (!(again >> half & 1u)) continue;
        const int own = ENGINE::row(0) + half * 8, row = worker.first_row(tile, team) + own;
        const int64 channel = tile.group * p.rows + row;
        const unsigned flip = shared.flip[team][own];
        const auto sum_at = [&](int i) -> float& { return all[i / 2].of[half * 2 + i % 2]; };
        double count = 0, sum = 0, squares = 0;
#pragma unroll 1
        for (int i = 0; i < COUNT; ++i) {
            const int column = ENGINE::column(i / 2) + i % 2;
            if (present[column] == 0) continue;
            float& value = sum_at(i);
            if (row < p.rows && is_special(value)) value = sum_again(worker, tile, team, row, column);
            sum += value, count += 1;
        }
#pragma unroll 1
        for (int i = 0; i < COUNT / 2 && row < p.rows; i += 2) {
            if (present[ENGINE::column((COUNT / 2 + i) / 2) + 1] == 0) continue;
            const Neighbours upper = {sum_at(i), sum_at(i + 1)};
            const Neighbours lower = {sum_at(COUNT / 2 + i), sum_at(COUNT / 2 + i + 1)};
            const float at[4] = {upper.first, upper.second, lower.first, lower.second};
            p.pooled[tile.start[0] * p.pooled_batch + channel * p.pooled_row + tile.start[2] * p.pooled_pitch +
                     tile.start[3] / 2 + shared.window[Pool::first_window(team) + threadIdx.x % 4 + i * 2].offset] =
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
#endif
