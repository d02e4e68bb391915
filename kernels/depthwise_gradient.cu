// The gradient of a weight whose groups have one input channel each (depthwise).
//
//     gradient[g, r, k] = sum over samples n and outputs o of grad[n, g, r, o] * input[n, g, i(o, k)]
//
// where i(o, k) = o * step - pad + k * dilation on each axis. There is little to compute for each byte, so that both
// arrays should be read once. A block has an output channel and goes over tiles of its outputs. It stages a tile of
// both arrays, zeros where they end, and each warp takes some windows of four taps next to each other along x, or a
// part of the outputs of a window:
//
//     a thread's outputs    d0  d1  d2  d3                     sums[0] += d0 * i0 + d1 * i1 + d2 * i2 + d3 * i3
//     its inputs            i0  i1  i2  i3  i4  i5  i6  i7     sums[1] += d0 * i1 + d1 * i2 + d2 * i3 + d3 * i4  ...
//
// With a stride the staged inputs lie by their residue, so that the inputs of neighbouring outputs are neighbours.
// Partial sums of blocks are added in order by gradient_sum.cu, which computes those that are not finite again.
//
// Macros (set by cupyconv/_kernels/depthwise_gradient.py):
//     ELEMENT   type of the arrays (scalar.cuh)
//
// Launch: THREADS threads and a block for each range of the tiles of each output channel.

#include "gradient_axis.cuh"
#include "division.cuh"

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;
constexpr int SIDE = 4;       // outputs of a thread, and taps of a window
constexpr int UNDER_WAY = 2;  // sides that a thread loads at a time
constexpr int MOST_TAPS = 64;

struct Arguments {
    const Element* input;
    const Element* grad;
    Accumulator* partial;  // [range, output channel, tap]
    int64 rows;            // output channels of a group
    int64 channels;        // output channels
    int64 batch;
    int64 input_batch, input_group;
    int64 grad_batch, grad_row;
    Axis axis[3];
    int64 samples, high, wide;  // outputs of a tile: of so many samples, in one plane
    int64 tiles_y, tiles_x;     // of a plane
    int64 tiles, splits;
    int64 staged_high;  // lines of inputs of a sample and a tap along z
    int64 residues;     // of x
    int64 pitch;        // staged inputs of a residue
    int64 per_pitch, per_wide;  // reciprocals of pitch times residues, and of wide, in sides
    int64 windows;
    int64 parts;  // into which the outputs of a window are divided; where windows are few, all warps have equally many
    int64 window[MOST_TAPS];  // where a window begins in a line of staged inputs
    unsigned char window_of[MOST_TAPS], place_of[MOST_TAPS];  // of the taps along x
};

// A line of an array that is staged; a line outside of the array is all zeros.
struct Line {
    const Element* from;
    int present;
};

// Neighbours in shared memory.
struct alignas(SIDE * sizeof(Accumulator)) Side {
    Accumulator of[SIDE];
};

// Where the elements of a side are loaded from: the address of the first one, and how far apart they are in memory; the
// place of the first one along x, the places to the next one, and the size of the line, 0 for a line outside of the
// array.
struct Source {
    const Element* from;
    int64 apart;
    int x, step, size;
};

struct Worker {
    const Arguments& p;
    int channel, group;
    int64 split;
    int taps, lines, rows;  // lines of inputs and of the gradient that are staged
    int line_pitch;
    // Shared memory.
    Side *grads, *inputs, *sums;
    Line* table;  // of the lines of the gradient, then those of inputs
    int* starts;  // where the inputs of a line of outputs begin

    __device__ Worker(const Arguments& p, unsigned char* memory) : p(p) {
        channel = int(blockIdx.x % p.channels), split = blockIdx.x / p.channels;
        group = channel / int(p.rows);
        taps = int(p.axis[0].kernel * p.axis[1].kernel);
        lines = int(p.samples * p.axis[0].kernel * p.staged_high), rows = int(p.samples * p.high);
        line_pitch = int(p.residues * p.pitch);
        grads = (Side*)memory;
        inputs = grads + rows * int(p.wide) / SIDE;
        sums = inputs + lines * line_pitch / SIDE;
        table = (Line*)(sums + taps * int(p.windows * p.parts));
        starts = (int*)(table + rows + lines);
    }

    // The tile with a number: its first sample and outputs.
    struct Tile {
        int sample, z, y, x;
    };
    __device__ Tile tile_at(int64 number) const {
        const int64 planes = number / p.tiles_x, samples = planes / p.tiles_y, depth = samples / p.axis[0].size_out;
        return {int(depth) * int(p.samples), int(samples - depth * p.axis[0].size_out),
                int(planes - samples * p.tiles_y) * int(p.high), int(number - planes * p.tiles_x) * int(p.wide)};
    }

    __device__ void describe_lines(const Tile& tile) const {
        const Axis &az = p.axis[0], &ay = p.axis[1], &ax = p.axis[2];
        for (int i = threadIdx.x; i < rows + lines; i += THREADS) {
            if (i < rows) {
                const int own = i / int(p.high), y = tile.y + i - own * int(p.high), sample = tile.sample + own;
                table[i] = {p.grad + sample * p.grad_batch + channel * p.grad_row + tile.z * az.grad + y * ay.grad +
                                tile.x * ax.grad,
                            (sample < p.batch) & (y < ay.size_out)};
                continue;
            }
            int rest = i - rows;
            const int y = tile.y * int(ay.step) - int(ay.pad) + take_rest(rest, int(p.staged_high));
            const int tap = take_rest(rest, int(az.kernel)), sample = tile.sample + rest;
            const int z = tile.z * int(az.step) - int(az.pad) + tap * int(az.dilation);
            table[i] = {p.input + sample * p.input_batch + group * p.input_group + z * az.input + y * ay.input,
                        (sample < p.batch) & inside(y, ay) & inside(z, az)};
        }
    }
    __device__ static bool inside(int i, const Axis& axis) { return unsigned(i) < unsigned(axis.size_in); }

    // Stages `count` sides; `at` gives the source of each.
    template <typename At>
    __device__ __forceinline__ void stage(Side* sides, int count, At at) const {
#pragma unroll 1
        for (int i = threadIdx.x; i < count; i += THREADS * UNDER_WAY) {
            Element values[UNDER_WAY][SIDE];
#pragma unroll
            for (int k = 0; k < UNDER_WAY; ++k) {
                const int item = i + k * THREADS;
                const Source source = item < count ? at(item) : Source{};
#pragma unroll
                for (int o = 0; o < SIDE; ++o) {
                    values[k][o] = Element();
                    if (unsigned(source.x + o * source.step) < unsigned(source.size))
                        values[k][o] = source.from[o * source.apart];
                }
            }
#pragma unroll
            for (int k = 0; k < UNDER_WAY; ++k) {
                if (i + k * THREADS >= count) break;
                Side side = {};
#pragma unroll
                for (int o = 0; o < SIDE; ++o) side.of[o] = widen<Accumulator>(values[k][o]);
                sides[i + k * THREADS] = side;
            }
        }
    }
    __device__ __forceinline__ void stage(const Tile& tile) const {
        const Axis& ax = p.axis[2];
        const int wide = int(p.wide) / SIDE, pitch = int(p.pitch) / SIDE, line = line_pitch / SIDE;
        stage(grads, rows * wide, [&](int item) -> Source {
            const int row = quotient(item, p.per_wide), x = (item - row * wide) * SIDE;
            return {table[row].from + x * ax.grad, ax.grad, tile.x + x, 1, table[row].present * int(ax.size_out)};
        });
        const int first = tile.x * int(ax.step) - int(ax.pad), residues = int(p.residues);
        stage(inputs, lines * line, [&](int item) -> Source {
            const int own = quotient(item, p.per_pitch), place = item - own * line;
            const int residue = residues == 1 ? 0 : small_quotient(place, pitch);
            const int x = first + (place - residue * pitch) * SIDE * residues + residue;
            const Line from = table[rows + own];
            return {from.from + x * ax.input, residues * ax.input, x, residues, from.present * int(ax.size_in)};
        });
    }

    // Adds up four numbers over all lanes. A lane keeps half of its numbers and passes the other half on, two times, so
    // that lane 8 * s returns the sum of number s.
    __device__ __forceinline__ static Accumulator added(const Side& own, int lane) {
        Accumulator half[SIDE / 2];
        const bool upper = lane & 16;
#pragma unroll
        for (int s = 0; s < SIDE / 2; ++s)
            half[s] = kept(upper, own.of[s], own.of[s + SIDE / 2], 16);
        Accumulator sum = kept(lane & 8, half[0], half[1], 8);
#pragma unroll
        for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
        return sum;
    }
    // The number that this lane keeps of two, plus the same one of the lane `apart`, which keeps the other.
    __device__ __forceinline__ static Accumulator kept(bool second, Accumulator a, Accumulator b, int apart) {
        return (second ? b : a) + __shfl_xor_sync(~0u, second ? a : b, apart);
    }

    // Adds the products of a tile. Each part of a window belongs to one warp.
    __device__ __forceinline__ void multiply() const {
        const int lane = threadIdx.x % 32, sides = int(p.wide) / SIDE, windows = int(p.windows), parts = int(p.parts);
        for (int i = threadIdx.x / 32; i < taps * windows * parts; i += WARPS) {
            int tap = i;
            const int part = take_rest(tap, parts), window = take_rest(tap, windows);
            const int z = small_quotient(tap, int(p.axis[1].kernel)), y = tap - z * int(p.axis[1].kernel);
            const int line = z * int(p.staged_high) + y * int(p.axis[1].dilation);
            const Side* const from = inputs + (line * line_pitch + int(p.window[window])) / SIDE;
            Side own = {};
#pragma unroll 2
            for (int k = part * 32 + lane; k < rows * sides; k += parts * 32) {
                const int row = small_quotient(k, sides);
                const Side d = grads[k], *const at = from + starts[row] + (k - row * sides);
                const Side low = at[0], high = at[1];
#pragma unroll
                for (int s = 0; s < SIDE; ++s)
#pragma unroll
                    for (int o = 0; o < SIDE; ++o)
                        own.of[s] = multiply_add(d.of[o], s + o < SIDE ? low.of[s + o] : high.of[s + o - SIDE],
                                                 own.of[s]);
            }
            const Accumulator sum = added(own, lane);
            if (lane % 8 == 0) sums[i].of[lane / 8] += sum;
        }
    }

    __device__ __forceinline__ void run() const {
        const int windows = int(p.windows), wide = int(p.axis[2].kernel);
        for (int i = threadIdx.x; i < taps * windows * int(p.parts); i += THREADS) sums[i] = {};
        for (int i = threadIdx.x; i < rows; i += THREADS) {
            const int sample = i / int(p.high), y = i - sample * int(p.high);
            starts[i] = (sample * int(p.axis[0].kernel * p.staged_high) + y * int(p.axis[1].step)) * line_pitch / SIDE;
        }
        const int64 end = (split + 1) * p.tiles / p.splits;
        for (int64 i = split * p.tiles / p.splits; i < end; ++i) {
            const Tile tile = tile_at(i);
            describe_lines(tile);
            __syncthreads();
            stage(tile);
            __syncthreads();
            multiply();
            __syncthreads();  // before the next tile is staged
        }
        Accumulator* const out = p.partial + (split * p.channels + channel) * taps * wide;
        for (int i = threadIdx.x; i < taps * wide; i += THREADS) {
            const int tap = i / wide, x = i - tap * wide;
            const Side* const parts = sums + (tap * windows + p.window_of[x]) * int(p.parts);
            Accumulator sum = 0;
            for (int part = 0; part < int(p.parts); ++part) sum += parts[part].of[p.place_of[x]];
            out[i] = sum;
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) depthwise_gradient(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    Worker(p, memory).run();
}
