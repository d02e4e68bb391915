// Packs the weights of a call in the order in which matrix_conv.cu reads them, rounded or split for Tensor Cores:
//
//     packed[group][phase][rows of a block][step][row tile of 64][part][half of K][row][16 bytes]
//
// A K step is the product of one block of channels (two 16-byte chunks: 8 channels of float, 16 of other
// types) at one tap; the steps have the order of `Steps` in matrix_tile.cuh. So the weights of one pipeline
// stage are contiguous in memory. Rows and channels after the last one are zeros, and so are taps that a
// packed output does not have.
//
// In the float16 emulation of float32 (windows.cuh), a second array of the same shape follows with the weights in the
// second exponent window. The shifts of the weights of each row are found here, and the shifts of the inputs of each
// sample as well.
//
// Macros: the macros of matrix_tile.cuh.
// Launch: any multiple of `phases` blocks of THREADS threads, for fewer than 2**21 steps (small_quotient). An equal
// number of neighbouring blocks has each phase, so that blocks of all phases run on a multiprocessor together: some
// phases have far more taps than others. A block packs SIDE rows of its phase at a time, or its share of their steps if
// `splits` blocks share the rows:
//
//     thread    0 1 .. 7 | 8 9 .. 15 | 16 ...     neighbouring threads have neighbouring rows (here SIDE is 8), whose
//               chunk 0  | chunk 1   | chunk 2    chunks are neighbours, and then steps of a block of channels
//
// At each of these steps a thread packs up to DEEP blocks of channels of the same tap, one after the other.

#include "matrix_tile.cuh"

struct Arguments {
    const Element* weight;
    Slot* packed;
    int64 groups, rows;
    int64 weight_group, weight_row, weight_channel;
    int64 phases, row_tiles, slabs;
    int64 steps;   // most K steps of a phase
    int64 splits;  // blocks that share the steps of SIDE rows
    Steps sum;
    Fold fold[3];
    int64 folds;  // number of packed outputs, over all axes
    MatrixAxis axis[3];
    const Element* input;
    int64 lines;  // lines of 128 bytes of the input that are prefetched to the L2 cache
#if SCALED
    RowShifts* row_shifts;
    int* sample_shifts;
    int64 batch, input_channels, input_size[3], input_batch, input_channel, input_axis[3];
#endif
};

constexpr int SIDE = SCALED ? 4 : 8;
constexpr int THREADS = SCALED ? 512 : 256;
constexpr int APART = THREADS / SIDE;  // chunks of a row from one chunk of a thread to its next one
constexpr int DEEP = 4;                // blocks of channels that a thread packs in a row

// The weights of a phase.
struct Weights {
    const Arguments& p;
    const Phase& phase;
    const int phase_index, blocks, along_x, folds;
    const int inner, turns;  // K steps of a block of channels in a tap of z, and turns of each of these steps
    const int64 tap_z, tap_y, tap_x, block;  // weights from one tap, or block of channels, to the next

    __device__ Weights(const Arguments& p, const Phase& phase, int phase_index)
        : p(p),
          phase(phase),
          phase_index(phase_index),
          blocks(int(p.sum.blocks)),
          along_x(p.sum.along_x(phase.taps[2].count)),
          folds(int(p.folds)),
          inner(phase.taps[1].count * along_x),
          turns((blocks + DEEP - 1) / DEEP),
          tap_z(phase.taps[0].step * p.axis[0].weight_stride),
          tap_y(phase.taps[1].step * p.axis[1].weight_stride),
          tap_x(phase.taps[2].step * p.axis[2].weight_stride),
          block(BLOCK * p.weight_channel) {}
    // Taps of the weights along an axis, for all of its packed outputs.
    __device__ int extent(int a) const { return p.fold[a].count > 1 ? int(p.fold[a].kernel) : phase.taps[a].count; }
};

// The taps of a packed output on the three axes, -1 where it has none. Most calls pack no outputs, so this function is
// not inlined: less code loads faster.
__device__ __noinline__ OnAxes taps_of_fold(const Fold (&folding)[3], OnAxes tap, OnAxes fold) {
    return {folding[0].find(tap.z, fold.z), folding[1].find(tap.y, fold.y), folding[2].find(tap.x, fold.x)};
}

// The chunks of a row that one thread packs: one half of K of some steps.
struct Row {
    const Weights& w;
    const int half;
    const bool present;
    OnAxes fold;
    const Bits* weight;  // weight of the first channel and taps
    const Bits* at;      // first weight of the current block of channels and tap
    int channels;        // channels from that block on, 0 if the row lacks the tap

    __device__ __forceinline__ Row(const Weights& w, int64 group, int row, int half)
        : w(w),
          half(half),
          present(channel_of(row, w.folds) < w.p.rows),
          fold{},
          weight((const Bits*)w.p.weight + group * w.p.weight_group + channel_of(row, w.folds) * w.p.weight_row) {
        if (w.folds > 1) fold = split_fold(fold_of(row, w.folds), w.p.fold);
        for (int a = 0; a < 3; ++a) weight += w.phase.taps[a].first * w.p.axis[a].weight_stride;
        if (w.p.sum.halves == 2) weight += half * CHUNK * w.p.weight_channel;
    }
    // Goes to a block of channels of a tap of z, and to one of its taps of y and x.
    __device__ __forceinline__ void go_to(int z, int block, int inner) {
        const int y = small_quotient(inner, w.along_x), x = inner - y * w.along_x;
        OnAxes tap = {z, y, w.p.sum.tap_of(x, half)};
        bool exists = (tap.x < w.phase.taps[2].count) & present;
        if (w.folds > 1) {
            tap = taps_of_fold(w.p.fold, tap, fold);
            exists &= (tap.z >= 0) & (tap.y >= 0) & (tap.x >= 0);
        }
        const int channel = block * BLOCK + (w.p.sum.halves == 1 ? 0 : half * CHUNK);
        channels = exists ? int(w.p.sum.channels) - channel : 0;
        at = weight + tap.z * w.tap_z + block * w.block + tap.y * w.tap_y + tap.x * w.tap_x;
    }
    // Loads the weights of the current block and goes on to the next block. Weights that do not exist keep their
    // values. There are two addresses, so that the chain of additions is half as long.
    __device__ __forceinline__ void load(Bits (&values)[CHUNK]) {
        const int64 pitch = w.p.weight_channel;
        const Bits *even = at, *odd = at + pitch;
#pragma unroll
        for (int i = 0; i < CHUNK; i += 2, even += 2 * pitch, odd += 2 * pitch) {
            load_bits(values[i], even, i, channels);
            load_bits(values[i + 1], odd, i + 1, channels);
        }
        at += w.block;
        channels -= BLOCK;
    }
};

// Calls `use` for each chunk of a row that a thread packs, in the turns from `begin` to `end`. A turn has DEEP blocks
// of channels of a tap, because finding their address takes longer than packing one block. Two blocks are loaded
// together.
template <typename Use>
__device__ __forceinline__ void each_slot(const Weights& w, int64 group, int row, int first, int begin, int end,
                                          Use use) {
    constexpr int BATCH = 2;
    Row cursor(w, group, row, first % DEPTH);
#pragma unroll 1
    for (int turn = begin + first / DEPTH; turn < end; turn += APART / DEPTH) {
        const int outer = small_quotient(turn, w.inner), inner = turn - outer * w.inner;
        const int z = small_quotient(outer, w.turns), block = (outer - z * w.turns) * DEEP;
        const int left = w.blocks - block, count = left < DEEP ? left : DEEP;
        cursor.go_to(z, block, inner);
        int step = (z * w.blocks + block) * w.inner + inner;
#pragma unroll 1
        for (int b = 0; b < count; b += BATCH) {
            Bits values[BATCH][CHUNK] = {};
#pragma unroll
            for (int i = 0; i < BATCH; ++i)
                if (b + i < count) cursor.load(values[i]);
#pragma unroll
            for (int i = 0; i < BATCH; ++i, step += w.inner)
                if (b + i < count) use(values[i], step);
        }
    }
}

#if SCALED

// ---- float16 emulation of float32: the shifts of inputs and weights ----

constexpr int WARPS = THREADS / 32;
constexpr int LINES = 64;        // probed lines of 32 inputs of each sample
constexpr int PROBED = 13;       // the exponent that the largest probed input has after its shift
constexpr int MOST_SHIFT = 110;  // largest shift whose power of two is used as a float

struct Shared {
    int largest[WARPS], smallest[WARPS];
    RowShifts shifts[SIDE];
};

__device__ inline int largest_of_warp(int value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        const int other = __shfl_xor_sync(~0u, value, apart);
        value = other > value ? other : value;
    }
    return value;
}

// A weight of a row with two exponent windows, in the sum of one window: zero if it lies in the other window.
__device__ inline float placed(unsigned bits, int shift, bool first) {
    const int field = exponent_field(bits), exponent = field - FIELD_BIAS + shift;
    if (field == SPECIAL_FIELD) return __uint_as_float(first ? NOT_A_NUMBER : 0);
    const bool inside = field > 0 && exponent <= HIGHEST && exponent > HIGHEST - WINDOW;
    return inside ? __uint_as_float(bits + (unsigned(shift) << 23)) : 0.0f;
}

// Finds the shift of a sample's inputs. The block probes some lines of inputs; which ones depends only on the
// row-major order of the inputs, and not on how the host has merged axes.
__device__ inline void judge(const Arguments& p, int64 sample, int* shared) {
    constexpr int64 MOST = 0xffffffff;  // lines are probed among the first MOST inputs
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned depth = unsigned(p.input_size[0]), height = unsigned(p.input_size[1]),
                   width = unsigned(p.input_size[2]);
    const int64 all = p.input_channels * p.input_size[0] * p.input_size[1] * p.input_size[2];
    const unsigned count = unsigned(all < MOST ? all : MOST);
    const Bits* const input = (const Bits*)p.input + sample * p.input_batch;
    Bits found[LINES / WARPS];
#pragma unroll
    for (int i = 0; i < LINES / WARPS; ++i) {
        const unsigned first = unsigned((unsigned long long)count * (i * WARPS + warp) / LINES);
        const unsigned place = (first + lane) % count, row = place / width, plane = row / height;
        found[i] = input[plane / depth * p.input_channel + plane % depth * p.input_axis[0] +
                         row % height * p.input_axis[1] + place % width * p.input_axis[2]];
    }
    int largest = 0;
#pragma unroll
    for (int i = 0; i < LINES / WARPS; ++i) {
        const int field = exponent_field(found[i]);
        if (field > largest && field < SPECIAL_FIELD) largest = field;
    }
    largest = largest_of_warp(largest);
    if (lane == 0) shared[warp] = largest;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < WARPS; ++i) largest = shared[i] > largest ? shared[i] : largest;
        const int shift = largest ? FIELD_BIAS + PROBED - largest : 0;
        p.sample_shifts[sample] = shift < MOST_SHIFT ? shift : MOST_SHIFT;
    }
    __syncthreads();
}

// Finds the largest exponent field below a limit of the weights of a row, and the smallest of all; zeros do not count.
// APART neighbouring threads share a row. A thread reads one tap at every `together`-th channel, because reading chunk
// by chunk would take far more code, which each call must load.
//
//     9 taps      thread   0 1 ... 8 | 9 ... 17 | ... | 117 ... 125 | 126 127
//                 channel  0, 14 ... | 1, 15    | ... | 13, 27      | none
__device__ __forceinline__ void look(const Weights& w, int64 group, int row, int limit, Shared& shared, int& largest,
                                     int& smallest) {
    constexpr unsigned FIELD = 1u << 24;  // one exponent field in twice the bits, which lack the sign
    constexpr int LOADS = 20;             // loads under way together
    const unsigned most = limit * FIELD;
    unsigned high = 0, low = ~0u;
    const Row own_row(w, group, row + threadIdx.x / APART, 0);
    const int thread = threadIdx.x % APART, width = w.extent(2);
    const int plane = w.extent(1) * width, taps = w.extent(0) * plane;
    const int together = 0 < taps && taps < APART ? small_quotient(APART, taps) : 1;
    const int first = together > 1 ? small_quotient(thread, taps) : 0;
    const int channels = own_row.present && first < together ? int(w.p.sum.channels) : 0;
    const int64 pitch = together * w.p.weight_channel;
#pragma unroll 1
    for (int tap = thread - first * taps; tap < taps; tap += APART) {
        const int z = small_quotient(tap, plane), y = small_quotient(tap - z * plane, width);
        const Bits* at = own_row.weight + z * w.tap_z + y * w.tap_y + (tap - z * plane - y * width) * w.tap_x +
                         first * w.p.weight_channel;
#pragma unroll 1
        for (int channel = first; channel < channels; channel += LOADS * together) {
            Bits values[LOADS] = {};
#pragma unroll
            for (int i = 0; i < LOADS; ++i, at += pitch) load_bits(values[i], at, channel + i * together, channels);
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const unsigned twice = 2 * values[i], counted = twice < most ? twice : 0;
                high = counted > high ? counted : high;
                low = twice - FIELD < low ? twice - FIELD : low;
            }
        }
    }
    const int field = int((low + FIELD) / FIELD);
    const int extrema[2] = {largest_of_warp(int(high / FIELD)), -largest_of_warp(field ? -field : -SPECIAL_FIELD)};
    __syncthreads();  // all threads have read the last results
    if (threadIdx.x % 32 == 0)
        shared.largest[threadIdx.x / 32] = extrema[0], shared.smallest[threadIdx.x / 32] = extrema[1];
    __syncthreads();
    const int warps = threadIdx.x / APART * (APART / 32);  // first warp of the row
    largest = 0, smallest = SPECIAL_FIELD;
#pragma unroll
    for (int i = 0; i < APART / 32; ++i) {
        largest = shared.largest[warps + i] > largest ? shared.largest[warps + i] : largest;
        smallest = shared.smallest[warps + i] < smallest ? shared.smallest[warps + i] : smallest;
    }
}

// Finds the shifts of SIDE rows.
__device__ __forceinline__ void find_shifts(const Weights& w, int64 group, int row, Shared& shared) {
    RowShifts found = {0, NO_SHIFT};
    int limit = SPECIAL_FIELD;
    bool wide = true;
#pragma unroll 1
    for (bool again = false; __syncthreads_or(wide); again = true) {  // mostly once, else twice
        int largest, smallest;
        look(w, group, row, limit, shared, largest, smallest);
        const int shift = FIELD_BIAS + HIGHEST - largest;
        if (!again) {
            if (largest) found.first = shift;
        } else if (wide) {
            found.second = shift;
            if (smallest <= largest - WINDOW || shift - found.first > MOST_APART) found = {NO_SHIFTS, NO_SHIFT};
        }
        wide &= !again && smallest <= largest - WINDOW;
        limit = wide ? largest - WINDOW + 1 : 0;
    }
    if (threadIdx.x % APART == 0) shared.shifts[threadIdx.x / APART] = found;
    __syncthreads();
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, SCALED ? 2 : 4)
    pack_weights(const __grid_constant__ Arguments p) {
    launch_grids();
    // The next kernel reads these inputs; this kernel does not wait for them.
    for (int64 line = blockIdx.x * THREADS + threadIdx.x; line < p.lines; line += gridDim.x * THREADS)
        prefetch((const char*)p.input + line * 128);
    const int slabs = int(p.slabs), splits = int(p.splits);
    // Describing a phase takes long, so a block stays in one phase.
    __shared__ Phase phase;
    const int blocks = gridDim.x / int(p.phases), phase_index = blockIdx.x / blocks;
    describe_phase(phase, p.axis, phase_index, threadIdx.x);
    __syncthreads();
    const Weights weights(p, phase, phase_index);
    const int rows = int(p.row_tiles) * slabs * SLAB_ROWS, sides = rows / SIDE;
#if SCALED
    __shared__ Shared shared;
    const int64 window = p.groups * p.phases * p.steps * rows * PARTS * DEPTH;
    for (int64 sample = gridDim.x - 1 - blockIdx.x; sample < p.batch; sample += gridDim.x)
        judge(p, sample, shared.largest);
#endif
    const int units = int(p.groups) * sides * splits;
    for (int unit = blockIdx.x - phase_index * blocks; unit < units; unit += blocks) {
        const int side = unit / splits, share = unit - side * splits;
        const int64 group = side / sides;
        const int first_row = (side - int(group) * sides) * SIDE;
        const int row = first_row + threadIdx.x % SIDE, first = threadIdx.x / SIDE;
#if SCALED
        find_shifts(weights, group, first_row, shared);
        if (threadIdx.x < SIDE && share == 0)
            p.row_shifts[(group * p.phases + weights.phase_index) * rows + row] = shared.shifts[threadIdx.x];
#endif
        const int64 tile = (group * p.phases + weights.phase_index) * p.row_tiles + row / SLAB_ROWS / slabs;
        const int64 step_slots = slabs * (PARTS * DEPTH * SLAB_ROWS);
        Slot* const packed = p.packed + tile * p.steps * step_slots +
                             row / SLAB_ROWS % slabs * (PARTS * DEPTH * SLAB_ROWS) + first % DEPTH * SLAB_ROWS +
                             row % SLAB_ROWS;
        const int turns = phase.taps[0].count * weights.turns * weights.inner;
        const int begin = share * turns / splits, end = (share + 1) * turns / splits;
#if SCALED
        const RowShifts shifts = shared.shifts[threadIdx.x % SIDE];
        const PowerOfTwo power(shifts.first);
#endif
        each_slot(weights, group, row, first, begin, end, [&](const Bits (&values)[CHUNK], int step) {
            Slot* const to = packed + scaled(step, step_slots);
#if SCALED
            float floats[CHUNK];
            Slot parts[2][PARTS] = {};
            if (shifts.second != NO_SHIFT) {  // few rows have weights in the second window
#pragma unroll
                for (int c = 0; c < CHUNK; ++c) floats[c] = placed(values[c], shifts.second, false);
                Channels<Element, Operand>::split(parts[1], floats);
#pragma unroll
                for (int c = 0; c < CHUNK; ++c) floats[c] = placed(values[c], shifts.first, true);
            } else {
#pragma unroll
                for (int c = 0; c < CHUNK; ++c) floats[c] = power.times(__uint_as_float(values[c]));
            }
            if (shifts.first < NO_SHIFT) Channels<Element, Operand>::split(parts[0], floats);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                to[part * DEPTH * SLAB_ROWS] = parts[0][part];
                to[window + part * DEPTH * SLAB_ROWS] = parts[1][part];
            }
#else
            Slot parts[PARTS];
            Range none;
            Channels<Element, Operand>::fill<0>(parts, values, 0, {}, none);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) to[part * DEPTH * SLAB_ROWS] = parts[part];
#endif
        });
    }
}
