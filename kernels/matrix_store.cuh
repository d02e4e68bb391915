// The epilogue of matrix_conv.cu that stores the sums of a tile as outputs, with their bias.
//
// A thread holds pairs of neighbouring outputs: two columns of a row, or, where x is packed (ACROSS), two packed
// outputs of a column. They pass through a buffer of their warp in shared memory, so that a warp's stores run along
// rows. Mostly two outputs of a pair, or four neighbours, lie together and are one store:
//
//     registers (mma fragments) -> fill -> buffer: 16 rows x BUFFER_PAIRS pairs -> empty -> rows of the output
//
// A warp that finds infinities or NaN among its outputs computes these outputs again (matrix_exact.cuh).
#pragma once
#include "matrix_exact.cuh"
#include "matrix_float16.cuh"

#if !POOLS
__device__ __noinline__ void recompute(const Arguments& p, Shared& shared, int index, int warpgroup, int border);

struct Store {
    typedef specials_of<Element>::type Special;

    const Schedule& schedule;
    const Arguments& p;
    Shared& shared;
    const int warpgroup, border;

    __device__ __forceinline__ Store(const Schedule& schedule, int warpgroup, int border)
        : schedule(schedule), p(schedule.p), shared(schedule.shared), warpgroup(warpgroup), border(border) {}

    // ---- what an epilogue does beside its tiles ----

    __device__ static void describe(const Schedule&, const Threads&) {}
    __device__ static void describe_column(Shared&, int, int, bool) {}
    __device__ static void describe_border(Shared&, int, int, bool) {}
    // Where outputs are packed: the offsets of a warpgroup's rows, which belong to several of them.
    __device__ __forceinline__ static void describe_fragment(const Schedule& schedule, const Tile& tile, int warpgroup,
                                                             int fragment) {
        schedule.shared.rows[warpgroup][fragment] =
            rows_of(schedule.p, schedule.first_row(tile, warpgroup) + fragment * 16, int(schedule.p.folds));
    }
    __device__ __forceinline__ static FragmentRows rows_of(const Arguments& p, int row, int folds) {
        FragmentRows rows;
        int64 first[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int channel = channel_of(row + half * 8, folds), fold = fold_of(row + half * 8, folds);
            first[half] = channel * p.out_row + p.fold_offset[fold];
            rows.count[half] = int(p.rows) - channel;
            rows.fold[half] = 1u << fold;
        }
        rows.offset = first[0];
        rows.apart = first[1] - first[0];
        return rows;
    }
    __device__ static void begin_rows(const Schedule&, int, const Tile&) {}
    __device__ static void end_rows(const Schedule&, int, int, int) {}

    // ---- a tile ----

    // Stores tile `index`, whose first output has offset `output` in row 0.
    template <typename Scale>
    __device__ __forceinline__ static void finish(const Schedule& schedule, ENGINE& engine, const Scale& scale,
                                                  const Tile& tile, int64 output, int index, int warpgroup,
                                                  int border) {
        const Store own(schedule, warpgroup, border);
        const int row = schedule.first_row(tile, warpgroup);
        if (schedule.p.fold[2].count > 1)
            own.store<true>(engine, scale, output, row, index);
        else
            own.store<false>(engine, scale, output, row, index);
    }

    template <bool ACROSS, typename Scale>
    __device__ __forceinline__ void store(ENGINE& engine, const Scale& scale, int64 output, int row0, int index) const {
        Bits* const out = (Bits*)p.out + output;
        Pair* const buffer = shared.buffer[threadIdx.x / 32];
        Special specials;
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
            const int row = row0 + ENGINE::first_row(r);
            // Without packed outputs nothing is read, as loads would be waited for.
            FragmentRows rows = {row * p.out_row, 8 * p.out_row, {int(p.rows) - row, int(p.rows) - row - 8}, {1, 1}};
            if (ACROSS || p.folds > 1) rows = shared.rows[warpgroup][row / 16 % (WARPGROUP_ROWS / 16)];
            Bits* const own = out + rows.offset;
            // With packed outputs the code of a buffer stands once, as it takes long to compile. Which sums go into a
            // buffer has to be known when compiling all the same.
#pragma unroll(ACROSS ? 1 : 8)
            for (int first = 0; first < ENGINE::COLUMNS; first += BUFFER_FRAGMENTS) {
#pragma unroll
                for (int c0 = 0; c0 < ENGINE::COLUMNS; c0 += BUFFER_FRAGMENTS)
                    if (c0 == first) fill<ACROSS>(engine, scale, r, c0, specials);
                __syncwarp();
                const int column = ENGINE::first_column(first);
                if (!ACROSS && p.output_unit == 4)
                    empty<ACROSS>((const Quad*)buffer, own, rows, column);
                else if (p.output_unit >= 2)
                    empty<ACROSS>(buffer, own, rows, column);
                else
                    empty<ACROSS>((const Bits*)buffer, own, rows, column);
            }
        }
        if (__any_sync(~0u, specials.found())) recompute(p, shared, index, warpgroup, border);
    }

    // Fills the warp's buffer with the outputs of row fragment r, from column fragment c0 on.
    template <bool ACROSS, typename Scale>
    __device__ __forceinline__ void fill(ENGINE& engine, const Scale& scale, int r, int c0, Special& specials) const {
        constexpr int PITCH = ACROSS ? 2 * BUFFER_PITCH : BUFFER_PITCH;
        const int lane = threadIdx.x % 32;
        Pair* const buffer = shared.buffer[threadIdx.x / 32];
        const float bias[2] = {shared.bias[warpgroup][ENGINE::row(r)], shared.bias[warpgroup][ENGINE::row(r) + 8]};
        // Loaded two fragments ahead, as no load passes the stores to shared memory.
        Neighbours powers[2] = {scale.powers_of(c0), scale.powers_of(c0 + 1)};
        __syncwarp();  // the buffer is empty
#pragma unroll
        for (int c = 0; c < BUFFER_FRAGMENTS && c0 + c < ENGINE::COLUMNS; ++c) {
            const Neighbours own = powers[c % 2];
            if (c + 2 < BUFFER_FRAGMENTS && c0 + c + 2 < ENGINE::COLUMNS) powers[c % 2] = scale.powers_of(c0 + c + 2);
            const Neighbours upper = scale.of(engine, r, 0, c0 + c, own);
            const Neighbours lower = scale.of(engine, r, 1, c0 + c, own);
            const float value[4] = {upper.first + bias[0], upper.second + bias[0], lower.first + bias[1],
                                    lower.second + bias[1]};
            Pair* const to = buffer + lane / 4 * PITCH + (c * 8 + lane % 4 * 2) / (ACROSS ? 1 : 2);
            const Pair pairs[2] = {pair_of(value[0], value[ACROSS ? 2 : 1], Element()),
                                   pair_of(value[ACROSS ? 1 : 2], value[3], Element())};
            to[0] = pairs[0];
            to[ACROSS ? 1 : 8 * PITCH] = pairs[1];
            specials.add(pairs[0]);
            specials.add(pairs[1]);
        }
    }

    // Stores the contents of the warp's buffer, from a column of the tile on, in rows that begin at `out`. Lanes run
    // along its rows, by units of one, two or four outputs. Each lane has its columns and all rows, or, of packed
    // outputs side by side, the rows of one of them.
    template <bool ACROSS, typename Unit>
    __device__ __forceinline__ void empty(const Unit* buffer, Bits* out, const FragmentRows& rows, int column0) const {
        constexpr int SIZE = sizeof(Unit) / sizeof(Bits);  // outputs of a unit
        constexpr int FOLDS = ACROSS ? 2 : 1;              // of a column, side by side
        constexpr int LENGTH = BUFFER_PAIRS * 2 * FOLDS / SIZE, PITCH = BUFFER_PITCH * 2 * FOLDS / SIZE;
        constexpr int LANES = LENGTH < 32 ? LENGTH : 32, STEP = 32 / LANES;
        constexpr int HALVES = ACROSS ? 1 : 2, OWN_ROWS = 8 / STEP;  // groups of eight rows; a lane's rows of a group
        // Units of a lane that are loaded together: a few where outputs are packed, whose code stands once.
        constexpr int MOST = LENGTH / LANES < 4 / SIZE ? LENGTH / LANES : 4 / SIZE, TOGETHER = ACROSS ? MOST : 1;
        const int lane = threadIdx.x % 32;
        const int64 pitch = STEP * p.out_row, between = rows.apart - 8 * p.out_row;
        out += lane / LANES * p.out_row;
        // Single outputs are seldom stored, and their code is not repeated, as it takes long to compile.
#pragma unroll(SIZE > 1 || ACROSS ? 8 : 1)
        for (int start = lane % LANES; start < LENGTH; start += TOGETHER * LANES) {
            Bits* to[TOGETHER];
            unsigned folds[TOGETHER];
            bool odd[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const int unit = start + i * LANES, column = column0 + unit * SIZE / FOLDS;
                odd[i] = SIZE < FOLDS && unit % 2;
                folds[i] = shared.column_folds[border][warpgroup][column];
                to[i] = out + shared.column_offset[warpgroup][column] + (odd[i] ? rows.apart : 0);
            }
#pragma unroll(SIZE > 1 ? 2 : 1)
            for (int half = 0; half < HALVES; ++half) {
                // Some loads together, then their stores, as no load could pass these.
                const Unit* const from = buffer + (lane / LANES + half * 8) * PITCH + start;
                Unit value[TOGETHER][OWN_ROWS];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
                    for (int row = 0; row < OWN_ROWS; ++row) value[i][row] = from[row * STEP * PITCH + i * LANES];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const bool second = ACROSS ? odd[i] : half != 0;
                    const int count = folds[i] & (second ? rows.fold[1] : rows.fold[0])
                                          ? (second ? rows.count[1] : rows.count[0]) - lane / LANES
                                          : 0;
#pragma unroll
                    for (int row = 0; row < OWN_ROWS; ++row, to[i] += pitch)
                        store_bits((Unit*)to[i], value[i][row], row * STEP < count);
                    to[i] += between;
                }
            }
        }
    }
};
typedef Store Epilogue;

// Computes the outputs of tile `index` that are not finite again, by the warp that stored them. It is not inlined, as
// it seldom runs, and takes no object, as an object that such a function sees cannot lie in registers.
__device__ __noinline__ void recompute(const Arguments& p, Shared& shared, int index, int warpgroup, int border) {
    constexpr int WIDTH = ENGINE::COLUMNS * 8;
    const int folds = int(p.folds);
    const Schedule schedule(p, shared);
    Tile tile;
    schedule.describe(index, tile);
    Element* const out = p.out + schedule.first_output(tile);
    __syncwarp();
#pragma unroll 1  // of few columns some compilers would unroll all
    for (int i = threadIdx.x % 32; i < ENGINE::ROWS * 16 * WIDTH; i += 32) {
        const int row = ENGINE::first_row(i / WIDTH / 16) + i / WIDTH % 16;
        const int column = ENGINE::first_column(0) + i % WIDTH;
        const int channel = channel_of(schedule.first_row(tile, warpgroup) + row, folds);
        const int fold = fold_of(schedule.first_row(tile, warpgroup) + row, folds);
        if (channel >= p.rows || !(shared.column_folds[border][warpgroup][column] >> fold & 1u)) continue;
        Element* const at =
            out + shared.column_offset[warpgroup][column] + channel * p.out_row + p.fold_offset[fold];
        if (!is_special(widen<float>(*at))) continue;
        int place[4];
        PackedPlace::unpack(shared.column_place[warpgroup][column], place);
        int o[3];
        const OnAxes split = split_fold(fold, p.fold);
        const int own[3] = {split.z, split.y, split.x};
        for (int a = 0; a < 3; ++a)
            o[a] = (schedule.phase.residue[a] + (tile.start[a + 1] + place[a + 1]) * int(p.axis[a].taps.phases)) *
                       int(p.fold[a].count) +
                   own[a];
        const float sum = exact_sum(p, tile.group, channel, tile.start[0] + place[0], o);
        *at = narrow<Element>(sum + shared.bias[warpgroup][row]);
    }
}
#endif
