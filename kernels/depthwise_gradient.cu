// The gradient of a weight whose groups have one input channel each (depthwise).
//
//     gradient[g, r, k] = sum over samples n and outputs o of grad[n, g, r, o] * input[n, g, i(o, k)]
//
// where i(o, k) = o * step - pad + k * dilation on each axis. There is little to compute for each byte, so that both
// arrays should be read once. A block has an output channel and goes over tiles of its outputs. It stages a tile of
// both arrays, zeros where they end, and each warp takes some windows of four taps next to each other along x:
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
constexpr int UNDER_WAY = 8;  // elements that a thread loads at a time
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
    int64 per_pitch, per_wide;  // reciprocals of pitch times residues, and of wide
    int64 windows;
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
        table = (Line*)(sums + taps * int(p.windows));
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

    // Stages `count` elements; `at` gives of an element its address, or null outside of the arrays.
    template <typename At>
    __device__ __forceinline__ void stage(Side* sides, int count, At at) const {
        Accumulator* const to = sides->of;
#pragma unroll 1
        for (int i = threadIdx.x; i < count; i += THREADS * UNDER_WAY) {
            Element values[UNDER_WAY];
#pragma unroll
            for (int k = 0; k < UNDER_WAY; ++k) {
                const int item = i + k * THREADS;
                const Element* const from = item < count ? at(item) : nullptr;
                values[k] = Element();
                if (from) values[k] = *from;
            }
#pragma unroll
            for (int k = 0; k < UNDER_WAY; ++k)
                if (i + k * THREADS < count) to[i + k * THREADS] = widen<Accumulator>(values[k]);
        }
    }
    __device__ __forceinline__ void stage(const Tile& tile) const {
        const Axis& ax = p.axis[2];
        stage(grads, rows * int(p.wide), [&](int item) {
            const int row = quotient(item, p.per_wide), x = item - row * int(p.wide);
            const Line line = table[row];
            return line.present && tile.x + x < ax.size_out ? line.from + x * ax.grad : nullptr;
        });
        const int first = tile.x * int(ax.step) - int(ax.pad);
        stage(inputs, lines * line_pitch, [&](int item) {
            const int own = quotient(item, p.per_pitch), place = item - own * line_pitch;
            const int residue = p.residues == 1 ? 0 : small_quotient(place, int(p.pitch));
            const int x = first + (place - residue * int(p.pitch)) * int(p.residues) + residue;
            const Line line = table[rows + own];
            return line.present && inside(x, ax) ? line.from + x * ax.input : nullptr;
        });
    }

    // Adds the products of a tile. Each window belongs to one warp.
    __device__ __forceinline__ void multiply() const {
        const int lane = threadIdx.x % 32, sides = int(p.wide) / SIDE, windows = int(p.windows);
        for (int i = threadIdx.x / 32; i < taps * windows; i += WARPS) {
            const int tap = small_quotient(i, windows), z = small_quotient(tap, int(p.axis[1].kernel));
            const int y = tap - z * int(p.axis[1].kernel);
            const int line = z * int(p.staged_high) + y * int(p.axis[1].dilation);
            const Side* const from = inputs + (line * line_pitch + int(p.window[i - tap * windows])) / SIDE;
            Side own = {};
#pragma unroll 2
            for (int k = lane; k < rows * sides; k += 32) {
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
#pragma unroll
            for (int s = 0; s < SIDE; ++s)
#pragma unroll
                for (int apart = 16; apart > 0; apart /= 2)
                    own.of[s] += __shfl_xor_sync(~0u, own.of[s], apart);
            if (lane == 0)
#pragma unroll
                for (int s = 0; s < SIDE; ++s) sums[i].of[s] += own.of[s];
        }
    }

    __device__ __forceinline__ void run() const {
        const int windows = int(p.windows), wide = int(p.axis[2].kernel);
        for (int i = threadIdx.x; i < taps * windows; i += THREADS) sums[i] = {};
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
            out[i] = sums[tap * windows + p.window_of[x]].of[p.place_of[x]];
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) depthwise_gradient(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    Worker(p, memory).run();
}
