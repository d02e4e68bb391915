// Mainloop of the depthwise kernel on Tensor Cores, for 16-bit elements whose taps slide.
//
// A warp computes a band of 16 lines of 64 outputs. The left operand of an `mma` is 16 lines by 8 inputs as they lie
// in shared memory, the right one has the weights of a line of taps on its diagonals. Two products, or three of them,
// give 8 outputs of each line:
//
//                                              outputs 0 ... 7       skew: from a multiple of 8 to
//     inputs from a multiple of 8 on   row skew     w0               the first input of output 0
//     line 0    i0 i1 i2 ... i7        row skew + 1 w1 w0
//     line 1    i0 i1 i2 ... i7        row skew + 2 w2 w1 w0
//     ...                              ...
//
// So lines begin at multiples of 16 bytes in shared memory. A zero of the right operand times an infinite input is
// NaN where no product belongs, so outputs that are not finite are computed exactly once more. Rows with a weight that
// is not finite are left to the general mainloop.
#pragma once
#include "depthwise_band.cuh"
#include "depthwise_fma.cuh"

// ---- exact recomputation ----

// Returns a pair of outputs in which each output that is not finite in `pair` is computed by multiply-adds, from the
// `first` input of the first output on. It has few arguments, because they take registers from the mainloop.
template <typename Half>
__device__ __noinline__ unsigned recompute_exactly(const Arguments& p, const Element* first, const Accumulator* weight,
                                                   unsigned pair) {
    Accumulator sum[2];
    for (int v = 0; v < 2; ++v) {
        sum[v] = weight[int(p.taps)];
        const Accumulator* w = weight;
        for (int z = 0; z < int(p.axis[0].taps.kernel); ++z)
            for (int y = 0; y < int(p.axis[1].taps.kernel); ++y)
                for (int x = 0; x < int(p.axis[2].taps.kernel); ++x, ++w) {
                    const Element* const from = first + v + z * int(p.axis[0].apart * p.axis[0].pitch) +
                                                y * int(p.axis[1].pitch) + x;
                    sum[v] = multiply_add(*w, widen<Accumulator>(*from), sum[v]);
                }
    }
    // A finite output of the pair keeps its bits.
    const unsigned both = pair_of(sum[0], sum[1], Half());
    const unsigned mask = (HalfPairs<Half>::special(pair) >> 15) * 0xffffu;
    return (both & mask) | (pair & ~mask);
}

// ---- epilogue ----

// Stores the outputs of a strip, which pass through the warp's buffer so that stores run along lines.
template <typename Half>
struct TensorCoreEpilogue {
    typedef HalfPairs<Half> Pairs;

    const Arguments& p;
    const SharedMemory& memory;

    // Stores two columns of a strip from the buffer.
    __device__ __forceinline__ void store(const Strip& strip, const Accumulator* weight, int column, int width) const {
        if (column >= width) return;
        const int lines = strip.lines;
        unsigned* const from = memory.band + threadIdx.x % 32;
        unsigned pairs[STRIP_LINES], largest = 0;
#pragma unroll
        for (int r = 0; r < STRIP_LINES; ++r) {
            pairs[r] = from[r * BAND_PITCH];
            largest = Pairs::larger_magnitudes(largest, pairs[r]);
        }
        if (Pairs::special(largest)) {
#pragma unroll 1
            for (int r = 0; r < lines; ++r) {
                unsigned& pair = from[r * BAND_PITCH];
                if (Pairs::special(pair)) {
                    const Element* const first = memory.inputs + (strip.input + r * int(p.line_pitch) + column);
                    pair = recompute_exactly<Half>(p, first, weight, pair);
                }
            }
#pragma unroll
            for (int r = 0; r < STRIP_LINES; ++r) pairs[r] = from[r * BAND_PITCH];
        }
        Element* out = p.out + strip.out + column * p.axis[2].out;
        if (p.pairs && column + 1 < width) {
#pragma unroll
            for (int r = 0; r < STRIP_LINES; ++r, out += p.line_out) store_bits((unsigned*)out, pairs[r], r < lines);
            return;
        }
#pragma unroll
        for (int r = 0; r < STRIP_LINES; ++r, out += p.line_out) {
            if (r >= lines) break;
            *(unsigned short*)out = (unsigned short)pairs[r];
            if (column + 1 < width) *(unsigned short*)(out + p.axis[2].out) = (unsigned short)(pairs[r] >> 16);
        }
    }
};

// ---- mainloop ----

// Computes the outputs of a tile. Half is Element: a template, because it is compiled for 16-bit elements alone.
template <typename Half>
struct TensorCoreMainloop {
    typedef HalfPairs<Half> Pairs;
    static constexpr int TILES = BAND_WIDTH / 8;             // results of an `mma`, 8 outputs wide
    static constexpr int STRIPS = BAND_LINES / STRIP_LINES;  // strips of a band
    typedef float Sums[TILES][4];

    const Arguments& p;
    const SharedMemory& memory;
    const Tile& tile;
    const int start;  // index of the first staged input

    // `special` says that a weight of the tile is not finite.
    __device__ __forceinline__ void compute(bool special) const {
        compute_bands(special);
        if (special) FmaMainloop{p, memory, tile, start}.compute_strips<false>(true);
    }

    // Warps take the bands of a tile in turn.
    __device__ __forceinline__ void compute_bands(bool special) const {
        const int left = int(p.axis[2].taps.size_out) - tile.position[2], all = int(p.strips);
        const int width = left < int(p.axis[2].tile) ? left : int(p.axis[2].tile);
        int x = threadIdx.x / 32 * BAND_WIDTH, strip = 0, first = 0, plane = 0, row_and_channel = 0;
        for (;; x += WARPS * BAND_WIDTH) {
            while (x >= width) {
                x -= (width + BAND_WIDTH - 1) / BAND_WIDTH * BAND_WIDTH;
                strip += STRIPS;
                if (strip < all) continue;
                strip = 0, first += all;
                if (first >= int(p.strips_of_tile)) return;
                if (++plane == int(p.axis[0].tile)) plane = 0, ++row_and_channel;
            }
            const Strip* const strips = memory.strips + first + strip;
            const Accumulator* const weight = memory.weights + strips->weights;
            if (strips->lines == 0 || (special && has_special_weight(p, weight))) continue;
            compute_band(strips, all - strip < STRIPS ? all - strip : STRIPS,
                         memory.diagonals + row_and_channel * SharedMemory::lines_of_taps(p) * 2 * DIAGONAL, weight, x,
                         width);
        }
    }

    // Computes BAND_WIDTH outputs from x on of `count` strips.
    __device__ void compute_band(const Strip* strips, int count, const Element* diagonal, const Accumulator* weight,
                                 int x, int width) const {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const int pitch = int(p.line_pitch), skew = int(p.skew);
        // A lane has the address of one line, of the first strip's line where its own strip does not exist.
        const int line = lane % BAND_LINES;
        const Strip& strip = strips[line / STRIP_LINES < count ? line / STRIP_LINES : 0];
        const Element* plane =
            memory.inputs + (strip.input - skew + line % STRIP_LINES * pitch + lane / BAND_LINES * 8 + x);
        const Element* taps = diagonal + band_place(skew);
        const bool three = reaches_third_block(skew, int(p.axis[2].taps.kernel));
        Sums sum;
        add_line<true>(sum, plane, taps, three, weight[int(p.taps)]);
        const int64 next_plane = p.axis[0].apart * p.axis[0].pitch;
        for (int z = 0, y = 1; z < int(p.axis[0].taps.kernel); ++z, y = 0, plane += next_plane)
            for (const Element* from = plane + y * pitch; y < int(p.axis[1].taps.kernel); ++y, from += pitch)
                add_line<false>(sum, from, taps += 2 * DIAGONAL, three, 0);
        const TensorCoreEpilogue<Half> epilogue{p, memory};
#pragma unroll
        for (int i = 0; i < STRIPS; ++i) {
            if (i >= count) break;
#pragma unroll
            for (int j = 0; j < TILES; ++j)
                memory.band[g * BAND_PITCH + j * 4 + t] = pair_of(sum[j][2 * i], sum[j][2 * i + 1], Half());
            __syncwarp();
            epilogue.store(strips[i], weight, x + 2 * lane, width);
            __syncwarp();
        }
    }

    // Adds the products of a line of taps. The FIRST line is added to the bias, and other lines to the sum.
    template <bool FIRST>
    __device__ __forceinline__ static void add_line(Sums& sum, const Element* from, const Element* taps, bool three,
                                                    float bias) {
        const float first[4] = {bias, bias, bias, bias};
        unsigned weights[3], blocks[TILES + 2][2];
#pragma unroll
        for (int i = 0; i < 3; ++i) weights[i] = *(const unsigned*)(taps + i * 8);
#pragma unroll
        for (int j = 0; j < TILES + 2; j += 2) {
            unsigned two[4];
            load_matrices<false>(two, from + j * 8);
#pragma unroll
            for (int i = 0; i < 4; ++i) blocks[j + i / 2][i % 2] = two[i];
        }
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            if (FIRST)
                Pairs::mma(sum[j], blocks[j], weights[0], first);
            else
                Pairs::mma(sum[j], blocks[j], weights[0], sum[j]);
            Pairs::mma(sum[j], blocks[j + 1], weights[1], sum[j]);
            if (three) Pairs::mma(sum[j], blocks[j + 2], weights[2], sum[j]);
        }
    }
};
