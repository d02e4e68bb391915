// Mainloops of the depthwise kernel that use multiply-adds, and their epilogue.
//
// A thread has two outputs in each of STRIP_LINES lines. Where taps slide, the two are neighbours and the windows of
// their inputs are kept in registers (SlidingMainloop). For all other geometries each tap reads its inputs
// (GeneralMainloop); so it is for rows with a weight that is not finite, whose absent inputs are left out.
#pragma once
#include "depthwise_tile.cuh"

// ---- taps that slide ----

// Adds the products of two neighbouring outputs in each line, by windows that slide down. There is one phase, so
// weights lie in the order in which they are used.
struct SlidingMainloop {
    const Arguments& p;

    // The inputs that SLIDING_TAPS taps of two neighbouring outputs read. They are loaded as pairs; where the first
    // input is the second of a pair (SKEW), that is one more.
    struct Window {
        Accumulator values[SLIDING_TAPS + 3];
    };
    template <int SKEW>
    __device__ static void read(Window& window, const Element* first) {
#pragma unroll
        for (int i = 0; i < SLIDING_TAPS + 1 + SKEW; i += 2) {
            const Pair pair = *(const Pair*)(first - SKEW + i);
            window.values[i] = widen<Accumulator>(pair.values[0]);
            window.values[i + 1] = widen<Accumulator>(pair.values[1]);
        }
    }

    template <int SKEW>
    __device__ void add(Accumulator (&sum)[2][STRIP_LINES], const Accumulator* weight, const Element* input) const {
        const int height = int(p.axis[1].taps.kernel), pitch = int(p.line_pitch);
        int z = int(p.axis[0].taps.kernel);
        do {
            const Element* next = input;
            Window window[STRIP_LINES];
#pragma unroll
            for (int r = 0; r < STRIP_LINES - 1; ++r, next += pitch) read<SKEW>(window[r], next);
            int left = height;
            do {
                // This loop is unrolled so that each window has registers of its own.
#pragma unroll
                for (int u = 0; u < STRIP_LINES; ++u, next += pitch, weight += SLIDING_TAPS) {
                    if (left == 0) break;
                    --left;
                    read<SKEW>(window[(u + STRIP_LINES - 1) % STRIP_LINES], next);
#pragma unroll
                    for (int x = 0; x < SLIDING_TAPS; ++x) {
                        const Accumulator w = weight[x];
#pragma unroll
                        for (int r = 0; r < STRIP_LINES; ++r)
#pragma unroll
                            for (int v = 0; v < 2; ++v)
                                sum[v][r] = multiply_add(
                                    w, window[(u + r) % STRIP_LINES].values[SKEW + x + v], sum[v][r]);
                    }
                }
            } while (left > 0);
            input += int(p.axis[0].apart) * int(p.axis[0].pitch);
        } while (--z > 0);
    }
};

// ---- all other geometries ----

// Adds the products of one output in each line, tap by tap. MASKED leaves absent inputs out.
struct GeneralMainloop {
    const Arguments& p;

    // `input` is the input of the first tap, and z0, y0, x0 are its coordinates (MASKED alone reads them).
    template <bool MASKED>
    __device__ void add(Accumulator (&sum)[STRIP_LINES], const Accumulator* weight, const Element* input,
                        const Taps& tz, const Taps& ty, const Taps& tx, int z0, int y0, int x0) const {
        const int height = int(p.axis[1].taps.kernel), width = int(p.axis[2].taps.kernel);
        const int pitch = int(p.line_pitch);
        for (int jz = 0; jz < tz.count; ++jz)
            for (int jy = 0; jy < ty.count; ++jy)
                for (int jx = 0; jx < tx.count; ++jx) {
                    const int line = (tz.first + jz * tz.step) * height + ty.first + jy * ty.step;
                    const Accumulator w = weight[line * width + tx.first + jx * tx.step];
                    const int z = jz * int(p.axis[0].apart), y = jy * int(p.axis[1].apart),
                              x = jx * int(p.axis[2].apart);
                    const Element* from = input + z * int(p.axis[0].pitch) + y * int(p.axis[1].pitch) + x;
#pragma unroll
                    for (int r = 0; r < STRIP_LINES; ++r) {
                        const bool present =
                            (unsigned(z0 + z) < unsigned(p.axis[0].taps.size_in)) &
                            (unsigned(y0 + y + r * int(p.line_place[0])) < unsigned(p.axis[1].taps.size_in)) &
                            (unsigned(x0 + x + r * int(p.line_place[1])) < unsigned(p.axis[2].taps.size_in));
                        if (!MASKED || present) sum[r] = multiply_add(w, widen<Accumulator>(from[r * pitch]), sum[r]);
                    }
                }
    }
};

// ---- strips of a tile ----

// The two columns of outputs in which a thread stays for all strips of a tile. They are neighbours where taps SLIDE,
// else half a line apart, so that neighbouring threads have neighbouring outputs.
template <bool SLIDE>
struct Columns {
    int strips;       // strips that the block computes at a time
    int first_strip;  // the thread's first strip
    int x, apart;     // outputs from the tile's first one to the first column, and from there to the second
    int most[2];      // lines that exist in each column

    __device__ __forceinline__ Columns(const Arguments& p, const Tile& tile) {
        const Axis& ax = p.axis[2];
        const int columns = int(p.columns);
        strips = quotient(THREADS, p.per_columns);
        first_strip = quotient(threadIdx.x, p.per_columns);
        const int column = int(threadIdx.x) - first_strip * columns;
        apart = SLIDE ? 1 : columns;
        x = SLIDE ? 2 * column : column;
        const int left = int(ax.taps.size_out) - tile.position[2] * int(ax.taps.phases) - x;
#pragma unroll
        for (int v = 0; v < 2; ++v) {
            most[v] = left > v * apart ? STRIP_LINES : 0;
            if (p.section && most[v] && left - v * apart <= STRIP_LINES * int(p.section))
                most[v] = quotient(left - v * apart + int(p.section) - 1, p.per_section);
        }
    }
    __device__ bool is_idle() const { return first_strip >= strips; }
};

// Computes the outputs of a tile by multiply-adds.
struct FmaMainloop {
    const Arguments& p;
    const SharedMemory& memory;
    const Tile& tile;
    const int start;  // index of the first staged input

    // `special` says that a weight of the tile is not finite.
    __device__ __forceinline__ void compute(bool special) const {
        if (p.slides && !special)
            compute_strips<true>(false);
        else
            compute_strips<false>(special);
    }

    template <bool SLIDE>
    __device__ __forceinline__ void compute_strips(bool special) const {
        const Columns<SLIDE> columns(p, tile);
        if (columns.is_idle()) return;
        for (int i = columns.first_strip; i < int(p.strips_of_tile); i += columns.strips) {
            const Strip strip = memory.strips[i];
            // Lines that exist in each column.
            const int count[2] = {strip.lines < columns.most[0] ? strip.lines : columns.most[0],
                                  strip.lines < columns.most[1] ? strip.lines : columns.most[1]};
            if (count[0] == 0) continue;
            const Accumulator* const weight = memory.weights + strip.weights;
            const Element* const input = memory.inputs + strip.input;
            const Accumulator bias = weight[int(p.taps)];
            Accumulator sum[2][STRIP_LINES];
#pragma unroll
            for (int r = 0; r < STRIP_LINES; ++r) sum[0][r] = sum[1][r] = bias;
            if constexpr (SLIDE) {
                const SlidingMainloop mainloop{p};
                if (start % 2)
                    mainloop.add<1>(sum, weight, input + columns.x);
                else
                    mainloop.add<0>(sum, weight, input + columns.x);
            } else {
                const bool masked = special && has_special_weight(p, weight);
                if (TENSOR_CORES && !masked) continue;  // Tensor Cores have computed this strip
                add_columns(sum, weight, input, strip, columns, masked && !p.border);
            }
            store<SLIDE>(sum, strip, columns, count);
        }
    }

    // Adds the products of one column after the other.
    __device__ __forceinline__ void add_columns(Accumulator (&sum)[2][STRIP_LINES], const Accumulator* weight,
                                                const Element* input, const Strip& strip,
                                                const Columns<false>& columns, bool masked) const {
        const GeneralMainloop mainloop{p};
        const Axis& ax = p.axis[2];
        const Taps tz = memory.taps[0][strip.phases[0]], ty = memory.taps[1][strip.phases[1]];
#pragma unroll 1
        for (int v = 0; v < 2; ++v) {
            const int qx = quotient(columns.x + v * columns.apart, p.per_phases);
            const Taps tx = memory.taps[2][columns.x + v * columns.apart - qx * int(ax.taps.phases)];
            const int ix = qx * int(ax.taps.step) + tx.offset;
            // The columns change places, so that registers are indexed by constants.
#pragma unroll
            for (int r = 0; r < STRIP_LINES; ++r) {
                const Accumulator done = sum[1][r];
                sum[1][r] = sum[0][r];
                sum[0][r] = done;
            }
            if (masked)
                mainloop.add<true>(sum[1], weight, input + ix, tz, ty, tx, strip.place[0], strip.place[1],
                                   tile.first(p, 2) + ix);
            else
                mainloop.add<false>(sum[1], weight, input + ix, tz, ty, tx, 0, 0, 0);
        }
    }

    // ---- epilogue ----

    template <bool SLIDE>
    __device__ __forceinline__ void store(const Accumulator (&sum)[2][STRIP_LINES], const Strip& strip,
                                          const Columns<SLIDE>& columns, const int (&count)[2]) const {
        const int64 first = columns.x * p.axis[2].out, second = columns.apart * p.axis[2].out;
        Element* out = p.out + (strip.out + first);
        if (SLIDE && p.pairs && count[1] == STRIP_LINES) {
#pragma unroll
            for (int r = 0; r < STRIP_LINES; ++r, out += p.line_out)
                *(BitsOf<2 * sizeof(Element)>::type*)out = pair_of(sum[0][r], sum[1][r], Element());
        } else {
#pragma unroll
            for (int r = 0; r < STRIP_LINES; ++r, out += p.line_out) {
                if (r < count[0]) out[0] = narrow<Element>(sum[0][r]);
                if (r < count[1]) out[second] = narrow<Element>(sum[1][r]);
            }
        }
    }
};
