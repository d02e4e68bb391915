// Convolutions of one input channel for each group on one plane, of arrays whose channels lie innermost.
//
//     out[n, o, y, x] = bias[o] + sum over taps i, j of in[n, o / rows, at(y, i), at(x, j)] * w[o, i, j]
//
// where at(y, i) = y * STEP + low + i, and taps whose input lies outside of the array contribute nothing, whatever the
// weight. Neighbouring threads have neighbouring output channels, so loads and stores of a warp run along the channels
// and need no shared memory.
//
// A thread has a strip of outputs of one channel: COLUMNS neighbours in up to `lines` lines. It walks down the lines
// of inputs with its weights in registers, and loads each input once. An input of a line is multiplied for all outputs
// that read it before the next one is; the sums of OPEN lines of outputs are under way together:
//
//     line of inputs         0    1    2    3    4    5    6    7    8
//     outputs, STEP 1        0    01   012  123  234  345  ...
//     outputs, STEP 2        0    0    01   1    12   2    23   3    ...       HEIGHT 3
//
// The inputs of the next turn (STEP lines) are loaded while this turn's are multiplied. A warp has one strip, so its
// threads agree on which taps exist.
//
// A sum begins with the bias and runs over y and x of the taps in the order of their inputs, in one thread: it has the
// bits of gather_conv.cu, which computes the same geometries for all other layouts.
//
// Macros (set by cupyconv/_kernels/depthwise_last.py):
//     ELEMENT    type of input, weight and output elements (scalar.cuh), of at most 32 bits
//     HEIGHT     lines and columns of the kernel
//     STEP       inputs from one output to the next along both axes
//     RESIDENT   blocks that a multiprocessor shall hold, which bounds the registers
//
// Launch: THREADS threads, a block for each tile: LANES output channels of WARPS strips. Tiles run over the channels
// fastest, because their inputs share lines of memory. Strips run over x, y and samples.

#include "depthwise_strips.cuh"

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

constexpr int LANES = 32;  // output channels of a tile
constexpr int WARPS = 4;   // and its strips
constexpr int THREADS = LANES * WARPS;
constexpr int TAPS = HEIGHT * HEIGHT;
constexpr int COLUMNS = 8 / STEP;                    // neighbouring outputs of a strip
constexpr int OPEN = (HEIGHT + STEP - 1) / STEP;     // lines of outputs that read one line of inputs, at most
constexpr int READ = (COLUMNS - 1) * STEP + HEIGHT;  // inputs of a line that a strip reads
constexpr int PITCH = LANES + 1;                     // spreads the taps of a channel over the banks

struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 input_batch, out_batch;
    int64 rows;                      // output channels that read one input channel
    int64 weight_group, weight_row;  // strides
    int64 weight_first;              // offset of the first tap of the first channel
    Axis axis[2];                    // y and x
    int64 channels;                  // output channels
    int64 lines;                     // of a strip
    int64 strips, strips_of_line, strips_of_sample, channel_tiles;
    int64 per_line, per_sample, per_channel_tiles;  // long reciprocals of the last three numbers
};

// The first output of a strip and how many it has, and where its inputs begin.
struct Strip : StripPlace {
    int lines, columns;
    int first_line, first_column;  // of the inputs, which may lie before the array

    __device__ Strip(const Arguments& p, int number) : StripPlace(p, number, COLUMNS) {
        const int left_y = int(p.axis[0].size_out) - y, left_x = int(p.axis[1].size_out) - x;
        lines = left_y < int(p.lines) ? left_y : int(p.lines), columns = left_x < COLUMNS ? left_x : COLUMNS;
        first_line = y * STEP + int(p.axis[0].low), first_column = x * STEP + int(p.axis[1].low);
    }
};

// One thread's strip of outputs of one channel.
struct Worker {
    const Arguments& p;
    const Strip& strip;
    const Element* input;  // the first input of the strip, which need not exist
    Element* out;          // the first output
    unsigned present;      // a bit for each column of inputs that exists

    typedef Accumulator Weights[HEIGHT][HEIGHT];
    typedef Accumulator Sums[OPEN][COLUMNS];

    __device__ Worker(const Arguments& p, const Strip& strip, int channel)
        : p(p), strip(strip),
          input(p.input + strip.sample * p.input_batch + divided(channel, int(p.rows)) +
                strip.first_line * p.axis[0].input + strip.first_column * p.axis[1].input),
          out(p.out + strip.sample * p.out_batch + channel + strip.y * p.axis[0].out + strip.x * p.axis[1].out),
          present(0) {
#pragma unroll
        for (int i = 0; i < READ; ++i)
            present |= unsigned(unsigned(strip.first_column + i) < unsigned(p.axis[1].size_in)) << i;
    }

    __device__ bool has_line(int line) const {
        return unsigned(strip.first_line + line) < unsigned(p.axis[0].size_in);
    }
    // Loads a line of inputs. EVERY says that all columns exist.
    template <bool EVERY>
    __device__ __forceinline__ void load(Element (&values)[READ], const Element* from) const {
        const int apart = int(p.axis[1].input);
#pragma unroll
        for (int i = 0; i < READ; ++i)
            if (EVERY || (present >> i & 1u)) values[i] = from[i * apart];
    }

    // Adds the products of line `s` of a turn's inputs. The first open line of outputs reads the last taps.
    template <bool EVERY>
    __device__ __forceinline__ void add(Sums& sums, const Weights& weights, const Accumulator (&values)[READ],
                                        int s) const {
#pragma unroll
        for (int i = 0; i < READ; ++i) {
            if (!EVERY && !(present >> i & 1u)) continue;
#pragma unroll
            for (int o = 0; o < OPEN; ++o)
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    const int y = (OPEN - 1 - o) * STEP + s, x = i - c * STEP;
                    if (y < HEIGHT && x >= 0 && x < HEIGHT)
                        sums[o][c] = multiply_add(weights[y][x], values[i], sums[o][c]);
                }
        }
    }

    template <bool EVERY>
    __device__ __forceinline__ void convolve(const Weights& weights, Accumulator bias) const {
        const int across = int(p.axis[1].out), turns = strip.lines + OPEN - 1;
        Sums sums = {};
        Element next[STEP][READ] = {};
        const Element* from = input;
        Element* to = out;
        // Turn -1 only loads, and ends with the bias in the last open line.
#pragma unroll 1
        for (int turn = -1; turn < turns; ++turn) {
            const int line = turn * STEP;
            // The thread waits for all inputs of this turn before it loads any of the next one: loads share the few
            // counters by which a warp waits for them.
            Accumulator values[STEP][READ];
#pragma unroll
            for (int i = 0; i < STEP * READ; ++i)
                values[i / READ][i % READ] = widen<Accumulator>(next[i / READ][i % READ]);
#pragma unroll
            for (int s = 0; s < STEP; ++s, from += p.axis[0].input)
                if (turn + 1 < turns && has_line(line + STEP + s)) load<EVERY>(next[s], from);
#pragma unroll
            for (int s = 0; s < STEP; ++s)
                if (turn >= 0 && has_line(line + s)) add<EVERY>(sums, weights, values[s], s);
            // The first open line of outputs is complete. In the first turns it lies before the strip.
            if (turn >= OPEN - 1) {
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    if (c < strip.columns) to[c * across] = narrow<Element>(sums[0][c]);
                to += p.axis[0].out;
            }
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
#pragma unroll
                for (int o = 0; o < OPEN - 1; ++o) sums[o][c] = sums[o + 1][c];
                sums[OPEN - 1][c] = bias;
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    depthwise_last(const __grid_constant__ Arguments p) {
    __shared__ Accumulator staged[TAPS * PITCH];  // the weights of LANES channels, by taps
    const int tile = long_quotient(int(blockIdx.x), p.per_channel_tiles);
    const int first = (int(blockIdx.x) - tile * int(p.channel_tiles)) * LANES;
    for (int i = threadIdx.x; i < LANES * TAPS; i += THREADS) {
        const int own = i / TAPS, tap = i % TAPS, channel = first + own;
        if (channel >= int(p.channels)) break;
        const int group = divided(channel, int(p.rows)), row = channel - group * int(p.rows);
        staged[tap * PITCH + own] = widen<Accumulator>(
            p.weight[p.weight_first + group * p.weight_group + row * p.weight_row + tap / HEIGHT * p.axis[0].weight +
                     tap % HEIGHT * p.axis[1].weight]);
    }
    __syncthreads();
    const int lane = threadIdx.x % LANES, channel = first + lane, number = tile * WARPS + threadIdx.x / LANES;
    if (number >= int(p.strips) || channel >= int(p.channels)) return;
    Worker::Weights weights;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) weights[tap / HEIGHT][tap % HEIGHT] = staged[tap * PITCH + lane];
    const Accumulator bias = p.bias.data ? load_parameter<Accumulator>(p.bias, channel) : zero<Accumulator>();
    const Strip strip(p, number);
    const Worker worker(p, strip, channel);
    if (worker.present == (1u << READ) - 1)
        worker.convolve<true>(weights, bias);
    else
        worker.convolve<false>(weights, bias);
}
