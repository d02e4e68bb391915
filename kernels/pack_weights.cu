// Packs the weights of a call as matrix_conv.cu reads them, rounded or split for the matrix units:
//
//     packed[group][phase][row tile][step][slab of 64 rows][part][half of K][row][16 bytes]
//
// A step is the product of one K block of channels (two slots of 16 bytes: 8 channels of float, 16 of
// the others) at one tap; steps run as `Steps` in matrix_tile.cuh says. So what one stage of the
// pipeline takes is one piece of memory. Rows and channels behind the last one, and taps that a folded
// row does not have, are zeros.
//
// Where floats become float16 numbers (windows.cuh), what lies in the second window follows as a whole, and
// with the shifts of the weights of each row those of the inputs of each sample are found.
//
// Macros: those of matrix_tile.cuh.
// Launch: any multiple of `phases` blocks of any number of threads (256 where floats become float16 numbers),
// together below 2**31, as are the slots; a block packs every so many-th slot, or few rows at a time, of phase
// blockIdx % phases.

#include "matrix_tile.cuh"

struct Arguments {
    const Element* weight;
    Slot* packed;
    int64 groups, rows;
    int64 weight_group, weight_row, weight_channel;
    int64 phases, row_tiles, slabs;
    int64 steps;  // of the phase that has most
    Steps sum;
    Fold fold;
    MatrixAxis axis[3];
#if SCALED
    RowShifts* row_shifts;
    int* sample_shifts;
    const Element* input;
    int64 splits;  // blocks that share the steps of SIDE rows
    int64 batch, input_channels, input_size[3], input_batch, input_channel, input_axis[3];
#endif
};

// Where a step of a phase lies in the weights: its tap of z, K block, tap of y and step along x. To add one to
// another takes no divisions.
struct Place {
    int z, block, y, x;
};

// What is the same for all slots of a row.
struct Line {
    const Bits* weight;  // of its first channel and the phase's first taps
    int fold;
    bool present;
};

constexpr int SIDE = 8;  // rows

// A thread's slot: a step of 64 rows of a slab, one half of it, one row.
struct Slots {
    const Arguments& p;
    const Phase phase;
    const int phase_index, blocks, along_x, folds;
    int64 apart[3];  // weights from one tap to the next

    __device__ Slots(const Arguments& p, int phase_index)
        : p(p),
          phase(phase_of(p.axis, phase_index)),
          phase_index(phase_index),
          blocks(int(p.sum.blocks)),
          along_x(p.sum.along_x(phase.taps[2].count)),
          folds(int(p.fold.count)) {
        for (int a = 0; a < 3; ++a)
            apart[a] = (a == 2 && folds > 1 ? 1 : phase.taps[a].step) * p.axis[a].weight_stride;
    }

    __device__ Place place_of(int step) const {
        const int inner = phase.taps[1].count * along_x;
        if (inner == 0) return {phase.taps[0].count, 0, 0, 0};  // a phase without steps
        const int outer = step / inner;
        step -= outer * inner;
        return {outer / blocks, outer % blocks, step / along_x, step % along_x};
    }
    __device__ void advance(Place& place, const Place& by) const {
        place.x += by.x, place.y += by.y, place.block += by.block, place.z += by.z;
        if (place.x >= along_x) place.x -= along_x, ++place.y;
        if (place.y >= phase.taps[1].count) place.y -= phase.taps[1].count, ++place.block;
        if (place.block >= blocks) place.block -= blocks, ++place.z;
    }

    __device__ Line line_of(int64 group, int row) const {
        const int channel_out = channel_of(row, folds);
        const Bits* weight = (const Bits*)p.weight + group * p.weight_group + channel_out * p.weight_row;
        for (int a = 0; a < (folds > 1 ? 2 : 3); ++a) weight += phase.taps[a].first * p.axis[a].weight_stride;
        return {weight, fold_of(row, folds), channel_out < p.rows};
    }

    // The weights of a slot, zeros where there are none.
    __device__ __forceinline__ void load(Bits (&values)[CHUNK], const Line& line, const Place& place, int half) const {
        if (place.z >= phase.taps[0].count || !line.present) return;
        int tap = p.sum.tap_of(place.x, half);
        bool exists = tap < phase.taps[2].count;
        if (folds > 1) {
            const int divisor = int(p.fold.divisor);
            const int found = int(p.fold.start) + tap * int(p.fold.step) + line.fold * int(p.fold.apart);
            tap = found / divisor;
            exists &= (found >= 0) & (tap * divisor == found) & (tap < int(p.fold.kernel));
        }
        const int channel = place.block * BLOCK + (p.sum.halves == 1 ? 0 : half * CHUNK);
        const int channels = exists ? int(p.sum.channels - channel) : 0;
        const Bits* const weight = line.weight + place.z * apart[0] + place.y * apart[1] + tap * apart[2] +
                                   channel * p.weight_channel;
#pragma unroll
        for (int i = 0; i < CHUNK; ++i)
            load_bits(values[i], weight + i * p.weight_channel, i, channels);
    }
    // Where its first part goes.
    __device__ __forceinline__ Slot* at(int64 group, int row, int step, int half) const {
        const int steps = int(p.steps), slabs = int(p.slabs), slab = row / SLAB_ROWS;
        const int64 tile = (group * p.phases + phase_index) * p.row_tiles + slab / slabs;
        return p.packed + ((tile * steps + step) * slabs + slab % slabs) * (PARTS * DEPTH * SLAB_ROWS) +
               half * SLAB_ROWS + row % SLAB_ROWS;
    }
};

#if SCALED

// Floats as float16 numbers: shifts are found first, those of inputs as well.
constexpr int WARPS = SIDE, THREADS = WARPS * 32;  // a warp looks at a row
constexpr int LINES = 64;                       // of 32 inputs, that a sample is judged by
constexpr int PROBED = 13;                      // the exponent of the largest of these behind its shift
constexpr int MOST_SHIFT = 110;                 // so that a power of two is a float

__device__ inline int largest_of_warp(int value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        const int other = __shfl_xor_sync(~0u, value, apart);
        value = other > value ? other : value;
    }
    return value;
}

// A weight as the sum of a window has it: zero where its exponent is another one's.
__device__ inline float placed(unsigned bits, int shift, bool first) {
    const int field = exponent_field(bits), exponent = field - FIELD_BIAS + shift;
    if (field == SPECIAL_FIELD) return __uint_as_float(first ? NOT_A_NUMBER : 0);
    const bool inside = field > 0 && exponent <= HIGHEST && exponent > HIGHEST - WINDOW;
    return inside ? __uint_as_float(bits + (unsigned(shift) << 23)) : 0.0f;
}

// The shift of a sample's inputs, by a block. Some lines of them are looked at: which ones depends on their
// order alone, and not on which axes of an array are taken for one.
__device__ inline void judge(const Arguments& p, int64 sample, int* shared) {
    constexpr int64 MOST = 0xffffffff;  // inputs of which lines are taken
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

// The weights of a row of a group. A thread has every so many-th of its slots.
struct Row {
    static constexpr int APART = 32;
    const Slots& slots;
    const int64 group;
    const int row;
    const int first;  // of the thread's

    // Slots of some steps, BATCH of them loaded together.
    template <int BATCH, typename Use>
    __device__ __forceinline__ void each(int begin, int end, Use use) const {
        const Line line = slots.line_of(group, row);
        const int half = first % DEPTH;
        const Place apart = slots.place_of(APART / DEPTH);
        Place place = slots.place_of(begin + first / DEPTH);
        for (int i = begin * DEPTH + first; i < end * DEPTH; i += BATCH * APART) {
            Bits values[BATCH][CHUNK] = {};
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (i + b * APART < end * DEPTH) slots.load(values[b], line, place, half);
                slots.advance(place, apart);
            }
#pragma unroll
            for (int b = 0; b < BATCH; ++b)
                if (i + b * APART < end * DEPTH) use(values[b], (i + b * APART) / DEPTH, half);
        }
    }
    // By a warp, whose lanes run along the steps, whose weights lie side by side: the largest exponent field
    // below a limit, and the smallest; zeros have none.
    __device__ __forceinline__ void look(int limit, int& largest, int& smallest) const {
        largest = 0, smallest = SPECIAL_FIELD;
        each<4>(0, int(slots.p.steps), [&](const Bits (&values)[CHUNK], int, int) {
#pragma unroll
            for (int c = 0; c < CHUNK; ++c) {
                const int field = exponent_field(values[c]);
                if (field > largest && field < limit) largest = field;
                if (field < smallest && field > 0) smallest = field;
            }
        });
        largest = largest_of_warp(largest), smallest = -largest_of_warp(-smallest);
    }
    __device__ __forceinline__ RowShifts shifts() const {
        int first, second, smallest;
        look(SPECIAL_FIELD, first, smallest);
        RowShifts found = {first ? FIELD_BIAS + HIGHEST - first : 0, NO_SHIFT};
        const bool wide = smallest <= first - WINDOW;
        if (!wide) return found;
        look(first - WINDOW + 1, second, smallest);
        if (smallest <= second - WINDOW || first - second > MOST_APART) return {NO_SHIFTS, NO_SHIFT};
        found.second = FIELD_BIAS + HIGHEST - second;
        return found;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) pack_weights(const __grid_constant__ Arguments p) {
    __shared__ int largest[WARPS];
    __shared__ RowShifts shifts[SIDE];
    const int phases = int(p.phases), steps = int(p.steps), splits = int(p.splits), thread = threadIdx.x;
    const Slots slots(p, blockIdx.x % phases);
    const int rows = int(p.row_tiles * p.slabs) * SLAB_ROWS, sides = rows / SIDE, blocks = gridDim.x / phases;
    const int64 window = p.groups * p.phases * p.steps * rows * PARTS * DEPTH;
    for (int64 sample = gridDim.x - 1 - blockIdx.x; sample < p.batch; sample += gridDim.x) judge(p, sample, largest);
    for (int64 unit = blockIdx.x / phases; unit < p.groups * sides * splits; unit += blocks) {
        const int64 group = unit / splits / sides;
        const int own = int(unit % splits), row = int(unit / splits % sides) * SIDE;
        const RowShifts found = Row{slots, group, row + thread / 32, thread % 32}.shifts();
        __syncthreads();  // nobody reads the last rows' any more
        if (thread % 32 == 0) shifts[thread / 32] = found;
        __syncthreads();
        if (thread < SIDE && own == 0)
            p.row_shifts[(group * phases + slots.phase_index) * rows + row + thread] = shifts[thread];
        // Here lanes run along the rows, whose slots lie side by side, and then along the steps.
        const Row side = {slots, group, row + thread % SIDE, thread / SIDE};
        side.each<2>(own * steps / splits, (own + 1) * steps / splits, [&](const Bits (&values)[CHUNK], int step, int half) {
            Slot* const to = slots.at(group, side.row, step, half);
#pragma unroll
            for (int w = 0; w < 2; ++w) {
                const int shift = w ? shifts[thread % SIDE].second : shifts[thread % SIDE].first;
                Slot parts[PARTS] = {};
                if (shift < NO_SHIFT) {  // few rows have anything in the second window
                    float floats[CHUNK];
#pragma unroll
                    for (int c = 0; c < CHUNK; ++c) floats[c] = placed(values[c], shift, w == 0);
                    Channels<Element, Operand>::split(parts, floats);
                }
#pragma unroll
                for (int part = 0; part < PARTS; ++part) to[w * window + part * DEPTH * SLAB_ROWS] = parts[part];
            }
        });
    }
}

#else

extern "C" __global__ void pack_weights(const __grid_constant__ Arguments p) {
    const int slabs = int(p.slabs), steps = int(p.steps), row_tiles = int(p.row_tiles), phases = int(p.phases);
    // What a phase has in common takes long to find out: a block stays in one.
    const Slots own(p, blockIdx.x % phases);
    const int blocks = gridDim.x / phases, slots = int(p.groups) * row_tiles * steps * slabs * DEPTH * SLAB_ROWS;
    for (int slot = blockIdx.x / phases * blockDim.x + threadIdx.x; slot < slots; slot += blocks * blockDim.x) {
        // Lanes run along a few rows, whose slots lie side by side, and then along the steps, whose weights do.
        const int step = slot / SIDE % steps;
        int index = slot / SIDE / steps;
        const int half = index % DEPTH, side = index / DEPTH % (row_tiles * slabs * SLAB_ROWS / SIDE);
        const int64 group = index / DEPTH / (row_tiles * slabs * SLAB_ROWS / SIDE);
        const int row = side * SIDE + slot % SIDE;
        Bits values[CHUNK] = {};
        own.load(values, own.line_of(group, row), own.place_of(step), half);
        Slot parts[PARTS];
        Range none;
        Channels<Element, Operand>::fill<0>(parts, values, 0, {}, none);
        Slot* const to = own.at(group, row, step, half);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) to[part * DEPTH * SLAB_ROWS] = parts[part];
    }
}
#endif
