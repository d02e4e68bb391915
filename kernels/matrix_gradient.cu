// Products of the gradient of a weight on Tensor Cores, for float64, float32 (by three TF32 products or by one), float16
// and bfloat16. Both arrays have been copied before, so that the sum over outputs runs along memory.
//
//     partial[range, g, r, (c, k)] = sum over the words i of a range of grad[g, r, i] * input[plane(k), g, c, i + shift(k)]
//
// It is a matrix product of few rows and columns and a long sum. A row is an output channel r; a column is an input
// channel c with a tap k. A word is 32 bits, a float or two neighbouring 16-bit numbers; or a double.
//
//                             columns: (c0, k0) (c0, k1) ... (c1, k0) ...
//                                       ________________________________
//     rows: r0   [ 128 bytes       ]   |  the same words, moved by k    |
//           r1   [             ]   x   |________________________________|   summed over steps of 128 bytes
//
// The copies have all samples of a channel in one line, with zeros between lines of outputs and between samples, so
// that a tap is a shift: where it leaves the input it meets zeros, and where it leaves the outputs it is multiplied by
// zeros. Inputs that taps reach in steps (a stride), or at odd places of 16-bit numbers, have planes of their own.
// A pointwise convolution needs no copies where channels lie without gaps.
//
// For each step a block copies the words of its rows, and lines of inputs that taps share along x: the taps of a class
// have one plane and lie near each other. Four or eight warps multiply a tile of ROWS x COLUMNS. Tensor Cores round
// sums of floats towards zero, and float32 sums of millions of products of one sign would become too small, so these are
// added up apart after each SEGMENT of steps.
//
// A block has a range of the steps (split-K); gradient_sum.cu adds the ranges in order.
//
// Macros (set by cupyconv/_kernels/matrix_gradient.py):
//     ELEMENT        type of the numbers (scalar.cuh)
//     PARTS          2 if floats are multiplied as two TF32 numbers each, in three products
//     ROW_TILES      tiles of 16 rows of a warp
//     COLUMN_TILES   tiles of 8 columns of a warp
//     WARPS          warps of a block
//     WARPS_DOWN     warps above each other
//
// Launch: THREADS threads and a block for each tile of each range.

#include "division.cuh"
#include "tf32.cuh"

typedef ELEMENT Element;

template <typename>
struct word_of {
    typedef unsigned type;
};
template <>
struct word_of<double> {
    typedef double type;
};
typedef word_of<Element>::type Word;
typedef accumulator_of<Element>::type Accumulator;

constexpr int THREADS = 32 * WARPS;
constexpr int WARP_ROWS = ROW_TILES * 16, WARP_COLUMNS = COLUMN_TILES * 8;
constexpr int ROWS = WARPS_DOWN * WARP_ROWS, COLUMNS = WARPS / WARPS_DOWN * WARP_COLUMNS;
constexpr int WORDS = 128 / sizeof(Word);  // of a step
constexpr int CHUNK = 16 / sizeof(Word);   // words of a copy
constexpr int PITCH = WORDS + 4;  // words from one row to the next, so that fragments have no bank conflicts
constexpr int STAGES = 3;
constexpr int SEGMENT = 2;
constexpr int MOST_TAPS = 64, MOST_CLASSES = 32;
constexpr bool PAIRS = sizeof(Element) == 2;

// Where a tap, or a class of taps, finds its inputs: words from the plane of the first tap to its own, and from an
// output's place to that of its input.
struct Place {
    int64 plane, shift;
};

struct Arguments {
    const Word* grad;
    const Word* input;
    Accumulator* partial;
    int64 adds;  // whether sums are added to those in memory
    int64 rows, channels, columns;  // of a group; columns are channels times taps
    int64 groups;
    int64 samples;  // of a channel; copies have all of them in one
    int64 words;    // of a sample
    int64 grad_sample, grad_row, input_sample, input_channel;  // words from one to the next
    int64 row_tiles, column_tiles, splits;
    int64 kernel[3];
    Place tap_z[MOST_TAPS], tap_y[MOST_TAPS], class_x[MOST_CLASSES];
    int64 classes;
    unsigned char class_of[MOST_TAPS], shift_of[MOST_TAPS];  // of taps along x: words from the class's first one
    int64 line_chunks, per_line_chunks;  // copies of a line of inputs, and the reciprocal
    int64 lines;  // room for the lines of a step
};

// Where a step begins.
struct Step {
    int64 sample, word;

    __device__ void advance(const Arguments& p) {
        word += WORDS;
        if (word < p.words) return;
        word = 0, ++sample;
    }
};

// ---- products ----

__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], float) {
    mma_tf32(sums, a, b);
}
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], float16) {
    mma_float16(sums, a, b);
}
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], bfloat16) {
    mma_bfloat16(sums, a, b);
}
// Four instructions take the place of one: by halves of the rows and of the words.
__device__ __forceinline__ void multiply(double (&sums)[4], const double (&a)[4], const double (&b)[2], double) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        double own[2] = {sums[2 * half], sums[2 * half + 1]};
#pragma unroll
        for (int k = 0; k < 2; ++k) mma_float64(own, a[2 * k + half], b[k]);
        sums[2 * half] = own[0], sums[2 * half + 1] = own[1];
    }
}

// The words of a fragment as numbers of Tensor Cores, in parts.
template <int COUNT>
struct Fragment {
    Word of[PARTS][COUNT];

    __device__ __forceinline__ void set(int i, unsigned word) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) of[part][i] = PAIRS ? word : tf32_part(word, part);
    }
    __device__ __forceinline__ void set(int i, double word) { of[0][i] = word; }
};

// The sums of a warp.
struct Sums {
    Accumulator of[ROW_TILES][COLUMN_TILES][4];

    template <typename Use>
    __device__ __forceinline__ void each(Use use) {
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
            for (int c = 0; c < COLUMN_TILES; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) use(of[r][c][i], r, c, i);
    }
};

struct Worker {
    const Arguments& p;
    Word* const memory;  // stages, then the table of lines
    int first_row, first_column;
    int64 group, split;
    int first_line, lines;  // of the tile; a line for each class of each row of taps
    int line_pitch;         // words

    __device__ Worker(const Arguments& p, unsigned char* memory) : p(p), memory((Word*)memory) {
        int64 rest = blockIdx.x;
        first_row = int(rest % p.row_tiles) * ROWS, rest /= p.row_tiles;
        first_column = int(rest % p.column_tiles) * COLUMNS, rest /= p.column_tiles;
        group = rest % p.groups, split = rest / p.groups;
        const int wide = int(p.kernel[2]), last = least(first_column + COLUMNS, int(p.columns)) - 1;
        first_line = first_column / wide * int(p.classes);
        lines = (last / wide + 1) * int(p.classes) - first_line;
        line_pitch = int(p.line_chunks) * CHUNK;
    }
    __device__ static int least(int a, int b) { return a < b ? a : b; }

    __device__ Word* stage(int i) const { return memory + i * (ROWS * PITCH + int(p.lines) * line_pitch); }
    __device__ Place* table() const { return (Place*)stage(STAGES); }

    // Where lines of inputs are, by their channels and the words from there.
    __device__ void describe_lines() const {
        for (int i = threadIdx.x; i < lines; i += THREADS) {
            int rest = (first_line + i) / int(p.classes);
            const int own = first_line + i - rest * int(p.classes);
            const int y = take(rest, int(p.kernel[1])), z = take(rest, int(p.kernel[0]));
            table()[i] = {(group * p.channels + rest) * p.input_channel + p.tap_z[z].plane + p.tap_y[y].plane +
                              p.class_x[own].plane,
                          p.tap_z[z].shift + p.tap_y[y].shift + p.class_x[own].shift};
        }
    }
    __device__ static int take(int& number, int divisor) {
        const int next = number / divisor, rest = number - next * divisor;
        number = next;
        return rest;
    }

    // Begins to copy the words of a step. Beyond the end of a sample words are zero.
    __device__ __forceinline__ void bring(const Step& step, Word* to) const {
        constexpr int CHUNKS = WORDS / CHUNK;
        const int64 begin = step.word;
        const int place = threadIdx.x % CHUNKS * CHUNK, row = threadIdx.x / CHUNKS;
        const bool present = begin + place < p.words;
        const Word* const from = p.grad + step.sample * p.grad_sample + (group * p.rows + first_row) * p.grad_row +
                                     (present ? begin + place : 0);
        const int rows = least(ROWS, int(p.rows) - first_row);
#pragma unroll
        for (int r = 0; r < ROWS; r += THREADS / CHUNKS) {
            const int own = least(row + r, rows - 1);  // sums of other rows are not stored
            copy_async<16>(to + (row + r) * PITCH + place, from + own * p.grad_row, present ? 16 : 0);
        }
        Word* const inputs = to + ROWS * PITCH;
        const Word* const sample = p.input + step.sample * p.input_sample;
        for (int i = threadIdx.x; i < lines * int(p.line_chunks); i += THREADS) {
            const int line = quotient(i, p.per_line_chunks);
            const Place& own = table()[line];
            const int64 at = own.shift + begin + (i - line * int(p.line_chunks)) * CHUNK;
            const bool exists = at < p.words;
            copy_async<16>(inputs + i * CHUNK, sample + own.plane + (exists ? at : 0), exists ? 16 : 0);
        }
        copy_async_commit();
    }

    __device__ __forceinline__ void run() const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        const int warp_row = warp % WARPS_DOWN * WARP_ROWS, warp_column = warp / WARPS_DOWN * WARP_COLUMNS;
        int columns[COLUMN_TILES];  // where the inputs of a thread's columns begin
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; ++c) {
            const int column = least(first_column + warp_column + c * 8 + g, int(p.columns) - 1);
            const int line = column / int(p.kernel[2]), tap = column - line * int(p.kernel[2]);
            columns[c] = (line * int(p.classes) + p.class_of[tap] - first_line) * line_pitch + p.shift_of[tap] + t;
        }

        Sums totals = {}, sums = {};
        const int64 of_sample = (p.words + WORDS - 1) / WORDS, steps = p.samples * of_sample;
        const int64 begin = split * steps / p.splits, end = (split + 1) * steps / p.splits;
        Step next = {begin / of_sample, begin % of_sample * WORDS};
        for (int i = 0; i < STAGES - 1; ++i, next.advance(p))
            if (begin + i < end)
                bring(next, stage(i));
            else
                copy_async_commit();
        int at = 0;
        for (int64 i = begin; i < end; ++i) {
            copy_async_wait<STAGES - 2>();
            __syncthreads();  // the step is there, and nobody reads the one before any more
            if (i + STAGES - 1 < end)
                bring(next, stage(at == 0 ? STAGES - 1 : at - 1)), next.advance(p);
            else
                copy_async_commit();
            const Word* const rows = stage(at) + (warp_row + g) * PITCH + t;
            const Word* const inputs = stage(at) + ROWS * PITCH;
#pragma unroll
            for (int k = 0; k < WORDS; k += 8) {
                Fragment<2> b[COLUMN_TILES];
#pragma unroll
                for (int c = 0; c < COLUMN_TILES; ++c)
#pragma unroll
                    for (int j = 0; j < 2; ++j) b[c].set(j, inputs[columns[c] + k + j * 4]);
#pragma unroll
                for (int r = 0; r < ROW_TILES; ++r) {
                    Fragment<4> a;
#pragma unroll
                    for (int j = 0; j < 4; ++j) a.set(j, rows[(r * 16 + j % 2 * 8) * PITCH + k + j / 2 * 4]);
#pragma unroll
                    for (int c = 0; c < COLUMN_TILES; ++c) {
                        Accumulator(&own)[4] = sums.of[r][c];
                        if constexpr (PARTS == 2) {
                            multiply(own, a.of[1], b[c].of[0], Element());
                            multiply(own, a.of[0], b[c].of[1], Element());
                        }
                        multiply(own, a.of[0], b[c].of[0], Element());
                    }
                }
            }
            if (PARTS == 2 && (i - begin) % SEGMENT == SEGMENT - 1)
                sums.each([&](Accumulator& sum, int r, int c, int j) { totals.of[r][c][j] += sum, sum = 0; });
            at = at + 1 == STAGES ? 0 : at + 1;
        }
        store(sums, totals, warp_row + g, warp_column + 2 * t);
    }

    __device__ __forceinline__ void store(Sums& sums, const Sums& totals, int row, int column) const {
        Accumulator* const out = p.partial + (split * p.groups + group) * p.rows * p.columns;
        sums.each([&](Accumulator sum, int r, int c, int j) {
            const int own_row = first_row + row + r * 16 + j / 2 * 8;
            const int own_column = first_column + column + c * 8 + j % 2;
            if ((own_row >= int(p.rows)) | (own_column >= int(p.columns))) return;
            Accumulator* const own = out + own_row * p.columns + own_column;
            if (PARTS == 2) sum += totals.of[r][c][j];
            *own = p.adds ? *own + sum : sum;
        });
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS) matrix_gradient(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Worker worker(p, memory);
    worker.describe_lines();
    __syncthreads();
    worker.run();
}
