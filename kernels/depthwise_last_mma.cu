// Depthwise convolutions of 16-bit planes whose channels lie innermost, on Tensor Cores.
//
//     out[n, c, y, x] = bias[c] + sum over taps i, j of in[n, c, y + low + i, x + low + j] * w[c, i, j]
//
// where taps whose input lies outside of the array contribute nothing, whatever the weight. A sum has the order, and
// so the bits, of depthwise_mma.cuh, which computes the same geometries for all other layouts: line by line of its
// taps, each line by two products or three with blocks of 8 inputs, from multiples of 8 on.
//
// A block of threads has STRIPS strips of WIDTH outputs in up to `lines` lines, in CHANNELS channels. It walks down the
// lines of inputs, which lie in a ring of shared memory as they lie in the array. A warp has WARP_CHANNELS of the
// channels. One row of its left operands are 8 neighbouring inputs of a channel; the rows are the blocks of 8 inputs
// along a line of two strips:
//
//     line of strip 0     | block 0 | block 1 | ... | block 7 | 8 | 9 |      rows 0 ... 7 of the left operand
//     line of strip 1     | block 0 | block 1 | ... | block 7 | 8 | 9 |      rows 8 ... 15
//                           <-- first product -->
//                                     <-- second product -->
//
// The right operand has the weights of a line of taps on its diagonals (depthwise_band.cuh). The right operands of two
// or three products are parts of one band of up to 7 diagonals, 8 rows apart, so that a lane has weights in one of them
// and zeros in the others. A line of inputs is multiplied for all HEIGHT lines of outputs that read it; the first of
// these is complete then. Its outputs pass through shared memory, so that stores run along the channels. They are
// stored in the next turn, so that one barrier a turn is enough.
//
// A zero of the right operand times an infinite input is NaN where no product belongs, so outputs that are not finite
// are computed exactly once more, from the array. All outputs of a channel with a weight that is not finite are among
// them, as each of its weights is multiplied for each output; absent inputs are left out then.
//
// Macros (set by cupyconv/_kernels/depthwise_last_mma.py):
//     ELEMENT    type of input, weight and output elements: float16 or bfloat16
//     HEIGHT     lines of the kernel, which is up to 7 wide
//     RESIDENT   blocks that a multiprocessor shall hold, which bounds the registers
//
// Launch: THREADS threads, a block for each tile: CHANNELS channels of STRIPS strips. Tiles run over the channels
// fastest, because their inputs share lines of memory. Strips run over x, y and samples.

#include "depthwise_band.cuh"
#include "depthwise_strips.cuh"

typedef ELEMENT Element;
typedef HalfPairs<Element> Pairs;

constexpr int WARPS = HEIGHT > 3 ? 4 : 8;  // a warp has HEIGHT open lines of sums, so fewer have room at a time
constexpr int WARP_CHANNELS = 4;
constexpr int WIDTH = 64;  // outputs of a line of a strip
constexpr int STAGES = 4;  // lines of inputs in shared memory
constexpr int THREADS = 32 * WARPS, CHANNELS = WARPS * WARP_CHANNELS, STRIPS = 2;
constexpr int PIXELS = WIDTH + 16;        // inputs of a line of a strip: two blocks more than outputs
constexpr int CHUNK = 8;                  // elements of a 16-byte chunk
constexpr int CHUNKS = CHANNELS / CHUNK;  // of a pixel
constexpr int TOGETHER = THREADS / (STRIPS * CHUNKS);  // pixels of a strip that all its threads copy at a time

struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 input_batch, out_batch;
    int64 width;           // of the kernel
    int64 weight_channel;  // a stride
    int64 skew;            // inputs from a multiple of 8 to the first input of an output
    int64 weight_first;    // offset of the first tap of the first channel
    Axis axis[2];          // y and x
    int64 channels;
    int64 lines;  // of a strip
    int64 strips, strips_of_line, strips_of_sample, channel_tiles;
    int64 per_line, per_sample, per_channel_tiles;  // long reciprocals of the last three numbers
    int64 chunks[2];  // of inputs and of outputs: 1 if the chunks of all pixels are aligned where the first one is
};

// ---- strips ----

// Where a strip's first output lies and the first block of inputs that it reads, which may begin before the array, with
// the coordinates of these inputs; and how many lines and columns of outputs the strip has.
struct Strip {
    const Element* input;
    Element* out;
    int y, x, lines, columns;

    __device__ Strip(const Arguments& p, int number) {
        const Axis &ay = p.axis[0], &ax = p.axis[1];
        const bool exists = number < int(p.strips);
        const StripPlace first(p, number, WIDTH);
        const int left = int(ay.size_out) - first.y;
        lines = !exists ? 0 : left < int(p.lines) ? left : int(p.lines), columns = int(ax.size_out) - first.x;
        y = first.y + int(ay.low), x = first.x + int(ax.low - p.skew);
        input = p.input + (first.sample * p.input_batch + y * ay.input + x * ax.input);
        out = p.out + (first.sample * p.out_batch + first.y * ay.out + first.x * ax.out);
    }
};

// ---- shared memory ----

struct Shared {
    Bits128 inputs[STAGES][STRIPS][PIXELS * CHUNKS];
    Bits128 outputs[2][STRIPS][PIXELS * CHUNKS];  // one line is computed while the line before it is stored
    Element taps[CHANNELS][HEIGHT][2 * DIAGONAL];
    float bias[CHANNELS];
    Strip strips[STRIPS];
};

// Where a chunk of a pixel lies. The chunks of every second pixel, which neighbouring threads read, are spread over the
// banks: all banks have 8 chunks. The chunk of the next pixel, or of the pixel 8 later, lies at a constant distance
// from this place with one bit flipped (`Consumer::own`).
__device__ __forceinline__ int swizzled(int pixel, int chunk) {
    const int place = pixel * CHUNKS + chunk;
    return place ^ place / 8 % (2 * CHUNKS);
}

// ---- exact recomputation ----

// Returns an output of a strip by multiply-adds. Absent inputs are zero, or are left out if a weight of the channel is
// not finite.
__device__ __noinline__ float compute_exactly(const Arguments& p, const Strip& strip, int channel, int line, int pixel,
                                              const Element (*taps)[2 * DIAGONAL], float bias) {
    bool masked = false;
    for (int i = 0; i < HEIGHT; ++i)
        for (int j = 0; j < int(p.width); ++j) masked |= is_special(widen<float>(taps[i][MARGIN + j]));
    float sum = bias;
    for (int i = 0; i < HEIGHT; ++i)
        for (int j = 0; j < int(p.width); ++j) {
            const int y = line + i, x = pixel + int(p.skew) + j;
            const bool exists = (unsigned(strip.y + y) < unsigned(p.axis[0].size_in)) &
                                (unsigned(strip.x + x) < unsigned(p.axis[1].size_in));
            if (!exists && masked) continue;
            float value = 0;
            if (exists) value = widen<float>(strip.input[y * p.axis[0].input + x * p.axis[1].input + channel]);
            sum = multiply_add(widen<float>(taps[i][MARGIN + j]), value, sum);
        }
    return sum;
}

// ---- the block ----

struct Block {
    const Arguments& p;
    Shared& memory;
    const int first;  // channel

    __device__ void clear_taps() const {
        Element* const taps = memory.taps[0][0];
        for (int i = threadIdx.x; i < CHANNELS * HEIGHT * 2 * DIAGONAL; i += THREADS) taps[i] = Element();
    }
    __device__ void load_taps() const {
        const int width = int(p.width), taps = HEIGHT * width;
        for (int i = threadIdx.x; i < CHANNELS * taps; i += THREADS) {
            const int channel = small_quotient(i, taps), tap = i - channel * taps;
            const int y = small_quotient(tap, width), x = tap - y * width;
            if (first + channel >= int(p.channels)) break;
            put_on_diagonal(memory.taps[channel][y], x,
                            p.weight[p.weight_first + (first + channel) * p.weight_channel + y * p.axis[0].weight +
                                     x * p.axis[1].weight]);
        }
    }
    __device__ void load_bias() const {
        const int channel = first + threadIdx.x;
        if (threadIdx.x >= CHANNELS) return;
        const bool given = p.bias.data && channel < int(p.channels);
        memory.bias[threadIdx.x] = given ? load_parameter<float>(p.bias, channel) : 0;
    }
};

// ---- copies of inputs and outputs ----

// What one thread copies: a chunk of every TOGETHER-th pixel of one strip, at most COPIES of a line. Lines are copied
// in their order, and what is the same for all of them is computed once.
struct Copier {
    static constexpr int COPIES = (PIXELS + TOGETHER - 1) / TOGETHER;

    const Block& block;
    const int pixel;  // the first one
    unsigned place;   // of the first chunk, in lines of all strips
    unsigned exist;   // a bit for each pixel that exists: COPIES of the inputs, then of the outputs
    int y, lines;     // the next line of inputs, and how many lines of outputs are left
    const Element* input;
    Element* out;

    __device__ explicit Copier(const Block& block) : block(block), pixel(threadIdx.x / CHUNKS % TOGETHER), exist(0) {
        const Arguments& p = block.p;
        const int s = threadIdx.x / (TOGETHER * CHUNKS);
        const Strip& strip = block.memory.strips[s];
        place = s * PIXELS * CHUNKS + swizzled(pixel, threadIdx.x % CHUNKS);
        y = strip.y, lines = strip.lines;
        input = strip.input + (pixel * p.axis[1].input + channel());
        out = strip.out + (pixel * p.axis[1].out + channel());
        if (lines > 0 && channel() < int(p.channels))
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                const int x = pixel + i * TOGETHER;
                exist |= unsigned(unsigned(strip.x + x) < unsigned(p.axis[1].size_in)) << i;
                exist |= unsigned(x < strip.columns && x < WIDTH) << (COPIES + i);
            }
        settle(place), settle(exist);  // else they are computed again for each line
    }
    // The first of the chunk's channels.
    __device__ int channel() const { return block.first + threadIdx.x % CHUNKS * CHUNK; }

    // Copies the next line of inputs, with zeros where the array has none.
    __device__ __forceinline__ void stage(int stage) {
        const Arguments& p = block.p;
        const unsigned used = unsigned(y) < unsigned(p.axis[0].size_in) ? exist : 0;
        const int64 apart = TOGETHER * p.axis[1].input;
        Bits128* const to = block.memory.inputs[stage][0] + place;
        if (p.chunks[0] && (unsigned long long)p.input % 16 == 0) {
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                if (pixel + i * TOGETHER >= PIXELS) break;
                copy_async<16>(to + i * TOGETHER * CHUNKS, input + i * apart, used >> i & 1u ? 16 : 0);
            }
        } else {
#pragma unroll 1
            for (int i = 0; pixel + i * TOGETHER < PIXELS; ++i)
                to[i * TOGETHER * CHUNKS] = load(input + i * apart, used >> i & 1u);
        }
        input += p.axis[0].input, ++y;
    }
    // Loads a chunk element by element, with zeros for channels that do not exist.
    __device__ Bits128 load(const Element* from, bool exists) const {
        Bits128 bits = {};
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) {
            unsigned short own = 0;
            load_bits(own, (const unsigned short*)from + e, channel() + e, exists ? int(block.p.channels) : 0);
            bits.words[e / 2] |= unsigned(own) << e % 2 * 16;
        }
        return bits;
    }

    // Stores the next line of outputs from shared memory.
    __device__ __forceinline__ void store(int stage) {
        const Arguments& p = block.p;
        const unsigned used = lines > 0 ? exist >> COPIES : 0;
        const int64 apart = TOGETHER * p.axis[1].out;
        const Bits128* const from = block.memory.outputs[stage][0] + place;
        if (p.chunks[1] && (unsigned long long)p.out % 16 == 0) {
#pragma unroll
            for (int i = 0; i < WIDTH / TOGETHER; ++i)
                store_bits((Bits128*)(out + i * apart), from[i * TOGETHER * CHUNKS], used >> i & 1u);
        } else {
#pragma unroll 1
            for (int i = 0; used >> i; ++i) {
                const Bits128 bits = from[i * TOGETHER * CHUNKS];
#pragma unroll
                for (int e = 0; e < CHUNK; ++e)
                    store_bits((unsigned short*)(out + i * apart) + e,
                               (unsigned short)(bits.words[e / 2] >> e % 2 * 16), channel() + e < int(p.channels));
            }
        }
        out += p.axis[0].out, --lines;
    }
};

// ---- a warp's mainloop ----

struct Consumer {
    typedef float Sums[HEIGHT][WARP_CHANNELS][4];

    const Block& block;
    unsigned place;  // of the warp's channels of the lane's first pixel, in 8 bytes
    unsigned band;   // of the lane's weights, in elements
    unsigned part;   // the block of inputs that they are multiplied with

    __device__ static int warp() { return threadIdx.x / 32; }
    __device__ static int g() { return threadIdx.x % 32 / 4; }
    __device__ static int t() { return threadIdx.x % 4; }

    __device__ explicit Consumer(const Block& block)
        : block(block), place(2 * swizzled(pixel(0), warp() / 2) + warp() % 2) {
        const int skew = int(block.p.skew);
        // The lane's pairs of taps begin with 2t - g - skew, 8 more, and 16 more. One of these is from -1 to 6.
        part = (6 - 2 * t() + g() + skew) / 8;
        band = warp() * WARP_CHANNELS * HEIGHT * 2 * DIAGONAL + band_place(skew) + 8 * part;
        settle(place), settle(band), settle(part);  // else they are computed again for each line
    }

    // Begins a line of outputs.
    __device__ __forceinline__ void begin(float (&sums)[WARP_CHANNELS][4]) const {
#pragma unroll
        for (int i = 0; i < 4 * WARP_CHANNELS; ++i) sums[i / 4][i % 4] = bias(i / 4);
    }
    __device__ float bias(int c) const { return block.memory.bias[warp() * WARP_CHANNELS + c]; }

    // The warp's channels of the lane's first or second pixel of a line, or of one that many blocks of 8 pixels later.
    __device__ Bits64& own(Bits128* line, int which, int blocks = 0) const {
        return ((Bits64*)line)[(place ^ (which + blocks) % 2 * (2 * CHUNKS)) + blocks * 16 * CHUNKS];
    }

    // Adds the products of a line of inputs, in the order of their blocks. Of the open lines of outputs, the first one
    // reads the last line of taps.
    template <int BLOCKS>
    __device__ __forceinline__ void add(Sums& sums, int line) const {
        Bits64 inputs[BLOCKS][STRIPS][2];
#pragma unroll
        for (int i = 0; i < BLOCKS * STRIPS * 2; ++i)
            inputs[i / 2 / STRIPS][i / 2 % STRIPS][i % 2] =
                own(block.memory.inputs[line % STAGES][i / 2 % STRIPS], i % 2, i / 2 / STRIPS);
#pragma unroll
        for (int c = 0; c < WARP_CHANNELS; ++c) {
            unsigned pairs[BLOCKS][STRIPS];
#pragma unroll
            for (int i = 0; i < BLOCKS * STRIPS; ++i) {
                const Bits64 &left = inputs[i / STRIPS][i % STRIPS][0], &right = inputs[i / STRIPS][i % STRIPS][1];
                const unsigned which = c % 2 ? 0x7632 : 0x5410;
                pairs[i / STRIPS][i % STRIPS] =
                    c / 2 ? byte_select(left.second, right.second, which) : byte_select(left.first, right.first, which);
            }
#pragma unroll
            for (int o = 0; o < HEIGHT; ++o) {
                const unsigned weights = *(const unsigned*)(block.memory.taps[c][HEIGHT - 1 - o] + band);
#pragma unroll
                for (int i = 0; i < BLOCKS; ++i)
                    Pairs::mma(sums[o][c], pairs[i], i == part ? weights : 0, sums[o][c]);
            }
        }
    }

    // Puts line number `line` of the outputs in shared memory.
    __device__ __forceinline__ void finish(const float (&sums)[WARP_CHANNELS][4], int line) const {
        unsigned pairs[4][2], largest = 0;  // by strip and pixel, and by pairs of channels
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            unsigned& pair = pairs[i / 2][i % 2];
            pair = pair_of(sums[i % 2 * 2][i / 2], sums[i % 2 * 2 + 1][i / 2], Element());
            largest = Pairs::larger_magnitudes(largest, pair);
        }
        if (Pairs::special(largest))
#pragma unroll
            for (int i = 0; i < 8; ++i) repair(pairs[i / 2][i % 2], i % 2 * 2, i / 4, line, pixel(i / 2 % 2));
#pragma unroll
        for (int i = 0; i < 4; ++i)
            own(block.memory.outputs[line % 2][i / 2], i % 2) = {pairs[i][0], pairs[i][1]};
    }

    // The first or second of the lane's neighbouring outputs of a line.
    __device__ static int pixel(int which) { return 8 * g() + 2 * t() + which; }

    // Computes exactly those outputs of channels `c` and `c + 1` that are not finite.
    __device__ __forceinline__ void repair(unsigned& pair, int c, int s, int line, int pixel) const {
        const Strip& strip = block.memory.strips[s];
        if (line >= strip.lines || pixel >= strip.columns) return;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int number = warp() * WARP_CHANNELS + c + i;
            const bool found = Pairs::special(pair) >> (15 + 16 * i) & 1u;
            if (!found) continue;  // as are the zeros of channels that do not exist
            const float sum = compute_exactly(block.p, strip, block.first + number, line, pixel,
                                              block.memory.taps[number], block.memory.bias[number]);
            const unsigned exact = pair_of(sum, sum, Element());
            pair = i ? byte_select(pair, exact, 0x5410) : byte_select(pair, exact, 0x3254);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    depthwise_last_mma(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(bytes);
    Shared& memory = *(Shared*)bytes;
    const int tile = long_quotient(int(blockIdx.x), p.per_channel_tiles);
    const int first = (int(blockIdx.x) - tile * int(p.channel_tiles)) * CHANNELS;
    const Block block{p, memory, first};
    if (threadIdx.x < STRIPS) memory.strips[threadIdx.x] = Strip(p, tile * STRIPS + threadIdx.x);
    block.clear_taps();
    __syncthreads();
    Copier copier(block);
    const int turns = int(p.lines) + HEIGHT - 1;
    const bool three = reaches_third_block(int(p.skew), int(p.width));
#pragma unroll
    for (int line = 0; line < STAGES - 1; ++line) {
        copier.stage(line);  // there are HEIGHT lines at least
        copy_async_commit();
    }
    block.load_taps();
    block.load_bias();
    __syncthreads();
    const Consumer consumer(block);
    Consumer::Sums sums;
#pragma unroll
    for (int o = 0; o < HEIGHT; ++o) consumer.begin(sums[o]);
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();  // the line is there, the stage of the line before it is free, and its outputs are there
        const int line = turn - (HEIGHT - 1);  // the first open line of outputs, which this turn completes
        if (turn + STAGES - 1 < turns) copier.stage((turn + STAGES - 1) % STAGES);
        copy_async_commit();
        if (line > 0) copier.store((line - 1) % 2);
        if (three)
            consumer.add<3>(sums, turn);
        else
            consumer.add<2>(sums, turn);
        if (line >= 0) consumer.finish(sums[0], line);
#pragma unroll
        for (int i = 0; i < (HEIGHT - 1) * 4 * WARP_CHANNELS; ++i) {
            const int o = i / (4 * WARP_CHANNELS), c = i / 4 % WARP_CHANNELS;
            sums[o][c][i % 4] = sums[o + 1][c][i % 4];
        }
        consumer.begin(sums[HEIGHT - 1]);
    }
    __syncthreads();
    copier.store((int(p.lines) - 1) % 2);
}
