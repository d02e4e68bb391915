// Float16 emulation of float32 in matrix_conv.cu, as windows.cuh defines it: shifts of rows and samples, exponent
// windows of inputs, and the sums of several passes. matrix_passes.cuh has the order of the passes.
//
//     producer   float -> float16 numbers, times 2**(shift of the sample); notes the windows beside the first one
//     consumer   sums of pass 0, 1, ... -> memory of the thread -> one sum, times 2**-(shift of row and sample)
#pragma once
#include "matrix_layout.cuh"
#include "matrix_sums.cuh"

// Numbers that are multiplied as they are.
struct NativeNumbers {
    typedef Unscaled Scale;
    struct Sums {};

    // Producers.
    __device__ static void find_shift(const Arguments&, int, int&) {}
    template <int PIXELS, typename Values>
    __device__ __forceinline__ static void note_windows(Shared&, const Values&, const Range&, int, int, int) {}

    // Tables of rows and columns.
    __device__ static void describe_column(Shared&, int, int) {}
    __device__ static void describe_row(const Schedule&, const Tile&, int, int) {}
    __device__ static void describe_samples(const Schedule&, const Tile&, int) {}

    // Consumers.
    __device__ __forceinline__ explicit NativeNumbers(const Schedule&) {}
    __device__ static void begin_block(Shared&) {}
    __device__ static void put_aside(ENGINE&, Sums&, int, int) {}
    __device__ static bool finds_windows() { return false; }
    __device__ static void postpone(ENGINE&, Sums&, int, int) {}
    __device__ static Scale finish(ENGINE&, Sums&, const Tile&, int, int, int) { return {}; }
};

#if SCALED
// The shifts of a tile's samples.
struct SampleShifts {
    const int* shifts;
    int count, least, most;
    __device__ SampleShifts(const Arguments& p, const Tile& tile)
        : shifts(p.sample_shifts + tile.start[0]),
          count(tile.size[0] < int(p.tile[0]) ? tile.size[0] : int(p.tile[0])),
          least(shifts[0]),
          most(shifts[0]) {
#pragma unroll 1
        for (int i = 1; i < count; ++i) {
            least = shifts[i] < least ? shifts[i] : least;
            most = shifts[i] > most ? shifts[i] : most;
        }
    }
    // The shift of a column, given its coordinates.
    __device__ int of(unsigned place) const {
        const int sample = PackedPlace::sample(place);
        return shifts[sample < count ? sample : 0];
    }
};

// Factors that undo the scaling of the float16 operands, one per row and column.
struct WindowScale {
    float rows[ENGINE::ROWS][2];
    const float* columns;

    // The factors of a thread's two columns in fragment c.
    __device__ __forceinline__ Neighbours powers_of(int c) const {
        return *(const Neighbours*)(columns + ENGINE::column(c));
    }
    // The scaled sums of a row there.
    __device__ __forceinline__ Neighbours of(ENGINE& engine, int r, int half, int c, const Neighbours& powers) const {
        const Neighbours sums = Unscaled::of(engine, r, half, c);
        return {sums.first * rows[r][half] * powers.first, sums.second * rows[r][half] * powers.second};
    }
    __device__ __forceinline__ Neighbours of(ENGINE& engine, int r, int half, int c) const {
        return of(engine, r, half, c, powers_of(c));
    }
};

struct EmulatedNumbers {
    typedef WindowScale Scale;
    // The sums of a thread in memory, for the few tiles that have several passes, or whose shifts are too far apart or
    // too large for one float. Between passes they are scaled as in the first one.
    typedef Four Sums[ENGINE::ROWS][ENGINE::COLUMNS];

    const Schedule& schedule;
    const Arguments& p;
    Shared& shared;
    int done = 0;          // tiles of the first sweep
    unsigned windows = 0;  // of the tile, in the first sweep
    bool noted = false;    // whether a tile is computed again

    // ---- producers ----

    __device__ static void find_shift(const Arguments& p, int sample, int& shift) { shift = p.sample_shifts[sample]; }
    // Notes the windows of what a thread has stored in the first sweep, and the K block that has them.
    template <int PIXELS, typename Values>
    __device__ __forceinline__ static void note_windows(Shared& shared, const Values& values, const Range& range,
                                                        int shift, int tile, int block) {
        if (!(range.reaches_above() | range.reaches_below())) return;
        unsigned least = ~0u;
#pragma unroll
        for (int i = 0; i < BLOCK; ++i)
#pragma unroll
            for (int pixel = 0; pixel < PIXELS; ++pixel) {
                const unsigned rank = rank_of(pixel_of(values[i / CHUNK][i % CHUNK], pixel));
                least = rank < least ? rank : least;
            }
        const unsigned windows = range.windows(least, shift);
        if (windows) atomicOr(&shared.windows[tile % MOST_TILES], windows | Schedule::bit_of_block(block));
    }

    // ---- tables of rows and columns ----

    __device__ static void describe_column(Shared& shared, int warpgroup, int column) {
        shared.powers[0][warpgroup][column] = 1;
    }
    __device__ static void describe_row(const Schedule& schedule, const Tile& tile, int warpgroup, int row) {
        const RowShifts shifts = schedule.row_shifts(tile.group)[schedule.first_row(tile, warpgroup) + row];
        schedule.shared.shifts[0][warpgroup][row] = shifts.first;
        schedule.shared.shifts[1][warpgroup][row] = shifts.second;
    }
    // Sums are scaled as if all samples had the least shift; sums of the others become smaller by the difference.
    __device__ static void describe_samples(const Schedule& schedule, const Tile& tile, int warpgroup) {
        const Arguments& p = schedule.p;
        Shared& shared = schedule.shared;
        const SampleShifts samples(p, tile);
        if (p.tile[0] > 1)
            for (int i = threadIdx.x % WARPGROUP; i < BUFFERED_COLUMNS; i += WARPGROUP)
                shared.powers[1][warpgroup][i] =
                    PowerOfTwo(samples.least - samples.of(shared.column_place[warpgroup][i])).first;
    }

    // ---- consumers ----

    __device__ __forceinline__ explicit EmulatedNumbers(const Schedule& schedule)
        : schedule(schedule), p(schedule.p), shared(schedule.shared) {}

    __device__ static void begin_block(Shared& shared) {
        if (threadIdx.x < MOST_TILES) shared.windows[threadIdx.x] = 0;
        if (threadIdx.x == 0) shared.wide_count = 0, shared.wide_windows = shared.kept = shared.lost = 0;
    }

    // The windows of the i-th tile. Those of another tile are forgotten, which nobody reads any more, and nobody writes
    // yet, as inputs are at most a ring of stages ahead.
    __device__ unsigned take_windows(int i) const {
        if (threadIdx.x == 0) shared.windows[(i + MOST_TILES / 2) % MOST_TILES] = 0;
        return shared.windows[i % MOST_TILES];
    }
    // Adds a tile to the list of the second sweep.
    __device__ void note(int index, unsigned windows, bool kept) const {
        if (shared.wide_count < MOST_WIDE) shared.wide_tiles[shared.wide_count] = index;
        ++shared.wide_count;
        shared.wide_windows |= windows;
        shared.kept |= kept;
    }
    // After the K loop of a tile in the first sweep: whether its numbers have windows beside the first one, so that the
    // second sweep computes it again.
    __device__ __forceinline__ bool finds_windows() {
        windows = uniform(take_windows(done++));
        return windows;
    }
    // Leaves tile `index` to the second sweep. A mainloop that kept sums on its way would take longer.
    __device__ __forceinline__ void postpone(ENGINE& engine, Sums& sums, int index, int warpgroup) {
        const bool keep = Schedule::KEEPS && !noted && schedule.weight_windows == 1 && !(windows & ABOVE);
        if (keep) put_aside(engine, sums, warpgroup, 0);
        noted = true;
        if (threadIdx.x == 0) note(index, windows, keep);
    }
    static constexpr unsigned ABOVE = 1;  // the bit of numbers above the first window

    // The shift of a row's sums in a pass, beside the shift of their sample.
    __device__ int shift_of(int warpgroup, int row, int pass) const {
        return shared.shifts[schedule.weights_of_pass(pass)][warpgroup][row] + schedule.window_of_pass(pass) * WINDOW;
    }
    // The factor that scales a row's sums of a pass as in the first pass. (A row without weights in the second
    // window has sums of zero there.)
    __device__ float power_of(int warpgroup, int row, int pass) const {
        return PowerOfTwo(shift_of(warpgroup, row, 0) - shift_of(warpgroup, row, pass)).first;
    }

    // use(sums of this pass, sums in memory, powers) for the thread's part of each fragment of 16 x 8.
    template <typename Use>
    __device__ __forceinline__ void each_sum(ENGINE& engine, Sums& sums, int warpgroup, int pass, Use use) const {
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
            const int row = ENGINE::row(r);
            const float powers[2] = {power_of(warpgroup, row, pass), power_of(warpgroup, row + 8, pass)};
#pragma unroll
            for (int c = 0; c < ENGINE::COLUMNS; ++c) {
                Four own;
#pragma unroll
                for (int i = 0; i < 4; ++i) own.of[i] = engine.value(r, c, i);
                use(own, sums[r][c], powers);
#pragma unroll
                for (int i = 0; i < 4; ++i) engine.value(r, c, i) = own.of[i];
            }
        }
    }
    __device__ static Four sum_of(const Four& sum, const Four& own, const float (&powers)[2]) {
        Four total = load_own(&sum);
#pragma unroll
        for (int i = 0; i < 4; ++i) total.of[i] += own.of[i] * powers[i / 2];
        return total;
    }
    // After a pass that is not the last one: adds its sums to those in memory.
    __device__ __forceinline__ void put_aside(ENGINE& engine, Sums& sums, int warpgroup, int pass) const {
        if (pass > 0)
            each_sum(engine, sums, warpgroup, pass, [](const Four& own, Four& sum, const float (&powers)[2]) {
                store_own(&sum, sum_of(sum, own, powers));
            });
        else
            each_sum(engine, sums, warpgroup, 0,
                     [](const Four& own, Four& sum, const float (&)[2]) { store_own(&sum, own); });
    }
    // After the last pass: adds the sums in memory to those in registers, if there are any. Returns their scale.
    __device__ __forceinline__ Scale finish(ENGINE& engine, Sums& sums, const Tile& tile, int warpgroup, int sweep,
                                            int pass) const {
        if (pass > 0)
            each_sum(engine, sums, warpgroup, pass, [](Four& own, Four& sum, const float (&powers)[2]) {
                own = sum_of(sum, own, powers);
            });
        return scale_back(engine, sums, tile, warpgroup, sweep);
    }
    // The factors of the sums. Where one float is no such factor, the sums are scaled here, one by one.
    __device__ __forceinline__ Scale scale_back(ENGINE& engine, Sums& sums, const Tile& tile, int warpgroup,
                                                int sweep) const {
        const SampleShifts samples(p, tile);
        bool rare = samples.most - samples.least > 126;
        Scale scale;
        scale.columns = shared.powers[p.tile[0] > 1][warpgroup];
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const PowerOfTwo power(-(shift_of(warpgroup, ENGINE::row(r) + half * 8, 0) + samples.least));
                scale.rows[r][half] = power.first;
                rare |= power.second != 1;
            }
        if (__any_sync(~0u, rare)) {
            if (Schedule::KEEPS && sweep == 0 && threadIdx.x % 32 == 0) atomicOr(&shared.lost, 1u);
            put_aside(engine, sums, warpgroup, 0);
#pragma unroll 1
            for (int i = 0; i < ENGINE::ROWS * ENGINE::COLUMNS * 4; ++i) {
                const int r = i / 4 / ENGINE::COLUMNS, c = i / 4 % ENGINE::COLUMNS;
                const int row = ENGINE::row(r) + i / 2 % 2 * 8, column = ENGINE::column(c) + i % 2;
                const int shift =
                    shift_of(warpgroup, row, 0) + samples.of(shared.column_place[warpgroup][column]);
                float& sum = sums[r][c].of[i % 4];
                sum = PowerOfTwo(-shift).times(sum);
            }
            each_sum(engine, sums, warpgroup, 0,
                     [](Four& own, Four& sum, const float (&)[2]) { own = load_own(&sum); });
            scale.columns = shared.powers[0][warpgroup];
#pragma unroll
            for (int r = 0; r < ENGINE::ROWS; ++r) scale.rows[r][0] = scale.rows[r][1] = 1;
        }
        return scale;
    }
};
typedef EmulatedNumbers Numbers;
#else
typedef NativeNumbers Numbers;
#endif
