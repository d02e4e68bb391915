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

// Where a half of a step of a phase lies in the weights: its first channel, and its taps.
struct Place {
    int64 channel;
    int tap[3];
};

__device__ inline Place place_of(const Arguments& p, const Phase& phase, int step, int half) {
    const int along_x = p.sum.along_x(phase.taps[2].count), blocks = int(p.sum.blocks);
    const int inner = phase.taps[1].count * along_x;
    Place place;
    place.tap[0] = step / inner / blocks;
    place.channel = step / inner % blocks * BLOCK + (p.sum.halves == 1 ? 0 : half * CHUNK);
    step %= inner;
    place.tap[1] = step / along_x;
    place.tap[2] = p.sum.tap_of(step % along_x, half);
    return place;
}

constexpr int SIDE = 8;  // rows

// A thread's slot: a step of 64 rows of a slab, one half of it, one row.
struct Slots {
    const Arguments& p;
    const Phase phase;
    const int phase_index, taps, folds;

    __device__ Slots(const Arguments& p, int phase_index)
        : p(p),
          phase(phase_of(p.axis, phase_index)),
          phase_index(phase_index),
          taps(phase.taps[0].count * phase.taps[1].count * p.sum.along_x(phase.taps[2].count)),
          folds(int(p.fold.count)) {}

    // The weights of a slot of a row of a group, zeros where there are none.
    __device__ __forceinline__ void load(Bits (&values)[CHUNK], int64 group, int row, int step, int half) const {
        const int64 channel_out = channel_of(row, folds);
        if (step >= int(p.sum.blocks) * taps || channel_out >= p.rows) return;
        const Place place = place_of(p, phase, step, half);
        int64 k[3];
        for (int a = 0; a < 3; ++a) k[a] = phase.taps[a].first + int64(place.tap[a]) * phase.taps[a].step;
        bool exists = place.tap[2] < phase.taps[2].count;
        if (folds > 1) {
            k[2] = p.fold.start + place.tap[2] * p.fold.step + fold_of(row, folds) * p.fold.apart;
            exists &= k[2] % p.fold.divisor == 0 && k[2] >= 0;
            k[2] /= p.fold.divisor;
            exists &= k[2] < p.fold.kernel;
        }
        const int channels = exists ? int(p.sum.channels - place.channel) : 0;
        const Bits* weight = (const Bits*)p.weight + group * p.weight_group + channel_out * p.weight_row +
                             place.channel * p.weight_channel;
        for (int a = 0; a < 3; ++a) weight += k[a] * p.axis[a].weight_stride;
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
        for (int i = begin * DEPTH + first; i < end * DEPTH; i += BATCH * APART) {
            Bits values[BATCH][CHUNK] = {};
#pragma unroll
            for (int b = 0; b < BATCH; ++b)
                if (i + b * APART < end * DEPTH)
                    slots.load(values[b], group, row, (i + b * APART) / DEPTH, i % DEPTH);
#pragma unroll
            for (int b = 0; b < BATCH; ++b)
                if (i + b * APART < end * DEPTH) use(values[b], (i + b * APART) / DEPTH, i % DEPTH);
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
                float floats[CHUNK];
#pragma unroll
                for (int c = 0; c < CHUNK; ++c) floats[c] = shift < NO_SHIFT ? placed(values[c], shift, w == 0) : 0;
                Slot parts[PARTS];
                Channels<Element, Operand>::split(parts, floats);
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
        own.load(values, group, row, step, half);
        Slot parts[PARTS];
        Range none;
        Channels<Element, Operand>::fill<0>(parts, values, 0, {}, none);
        Slot* const to = own.at(group, row, step, half);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) to[part * DEPTH * SLAB_ROWS] = parts[part];
    }
}
#endif
