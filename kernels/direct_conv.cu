// The direct kernel, which takes every convolution: both directions, any number of axes, any element
// type, any strides, any groups.
//
//     out[n, g, row, o] = bias[g, row]
//                       + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// where i(o, tap) follows from the tap table (taps.cuh), and taps whose input lies outside of the
// array contribute nothing, whatever the weight.
//
// It is an implicit matrix product for each group and each phase, an implicit GEMM by ordinary
// multiply-adds. A tile has ROWS output channels and POSITIONS outputs (samples and positions count
// as one axis), and its sums run over k = (channel chunk, tap, channel).
//
//                        POSITIONS                           one thread: THREAD_ROWS neighbouring
//              +----------------------------+                rows, and the positions
//       slice  |  inputs[k][position]       | DEPTH          tx, tx + POSITION_THREADS, ...
//              +----------------------------+
//     +-----+  +----------------------------+
//     | w   |  |                            |                a slice is DEPTH K steps; the next slice
//     |[k]  |  |   total[row][position]     | ROWS           is loaded into registers while this
//     |[row]|  |                            |                slice is multiplied
//     +-----+  +----------------------------+
//      DEPTH
//
// The order of k is fixed by the geometry of one sample: chunks of CHUNK channels, in a chunk tap by
// tap, for a tap channel by channel; neighbouring taps then find the same inputs in the cache.
// Accumulation has two levels: sums of SEGMENT steps, or of a multiple, are added to the total in order, so
// that rounding errors stay small in long sums. One thread computes an output from the first product to
// the store, without atomics: the bits do not depend on the batch, the strides or the grid.
//
// Split-K: where few outputs have long sums, the K steps are divided into `splits` ranges of equal
// length. A block computes the sums of a tile over one range, and stores them in `partial`, which the
// strides of the output then describe; sum_splits.cu adds the ranges in order. Where a range is one
// segment, a block for each range and one block for all of them add in the same order.
//
// An infinite or NaN weight would turn the zeros that stand in for absent inputs into NaN. The
// threads that load weights look for one; a slice with such a weight is multiplied under a mask.
//
// Macros (set by cupyconv/_kernels/direct_conv.py):
//     ELEMENT             type of input, weight and output elements (scalar.cuh)
//     RANK                2 or 3: number of spatial axes, with 32-bit coordinates (a call with one
//                         axis has an axis of one element before it); 0: any number of axes up to
//                         MAX_RANK, with 64-bit coordinates. Offsets always have 64 bits.
//     ROW_THREADS         threads along the rows, a divisor of THREADS
//     THREAD_ROWS         rows of a thread
//     THREAD_POSITIONS    positions of a thread
//     DEPTH               K steps of a slice
//     RESIDENT            blocks that a multiprocessor shall hold, which bounds the registers
//
// Launch: THREADS threads, any number of blocks; each block takes every gridDim.x-th tile. Tiles run
// over rows fastest, then phases, positions, groups and splits.

#include "taps.cuh"

constexpr int THREADS = 128;
constexpr int POSITION_THREADS = THREADS / ROW_THREADS;
constexpr int ROWS = ROW_THREADS * THREAD_ROWS;
constexpr int POSITIONS = POSITION_THREADS * THREAD_POSITIONS;
constexpr int CHUNK = 8;
constexpr int SEGMENT = 128;  // the shortest segment
constexpr int TABLE = RANK ? THREADS : DEPTH;  // K steps that are described at a time, one by each thread
constexpr int MAX_RANK = 24;
constexpr int AXES = RANK ? RANK : MAX_RANK;
constexpr int64 NOWHERE = -0x7fffffffffffffffll - 1;

// A thread loads LOAD_STEPS K steps of a slice, each at LOAD_POSITIONS positions, and LOAD_WEIGHTS weights.
constexpr int LOAD_POSITIONS = POSITIONS > THREADS ? POSITIONS / THREADS : 1;
constexpr int LOAD_GROUPS = POSITIONS > THREADS ? 1 : THREADS / POSITIONS;
constexpr int LOAD_STEPS = DEPTH / LOAD_GROUPS;
constexpr int WEIGHT_ROWS = THREADS / DEPTH;  // rows whose weights the block loads at the same time
constexpr int LOAD_WEIGHTS = (ROWS + WEIGHT_ROWS - 1) / WEIGHT_ROWS;
constexpr bool MAY_SHARE_TAPS = CHUNK % LOAD_STEPS == 0;  // the K steps that a thread loads may have one tap

static_assert(SEGMENT % DEPTH == 0, "a segment is a whole number of slices");
static_assert(TABLE % DEPTH == 0, "a table is a whole number of slices");
static_assert(SEGMENT % TABLE == 0, "a split begins with a table");
static_assert(LOAD_GROUPS * LOAD_STEPS == DEPTH, "loads divide the slice");

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

// Positions of a thread whose inputs lie side by side in shared memory, so that one instruction loads them.
constexpr int VECTOR = 16 / int(sizeof(Accumulator));
constexpr int TOGETHER = VECTOR < THREAD_POSITIONS ? VECTOR : THREAD_POSITIONS;
static_assert(THREAD_POSITIONS % TOGETHER == 0, "vectors divide the positions of a thread");

// Threads that store the weights of neighbouring steps do so in different banks. Vectors stay aligned.
constexpr int WEIGHT_PITCH = ROWS + (THREAD_ROWS % VECTOR == 0 ? VECTOR : 1);

template <int>
struct Coordinates {
    typedef int Signed;
    typedef unsigned Unsigned;
};
template <>
struct Coordinates<0> {
    typedef int64 Signed;
    typedef unsigned long long Unsigned;
};
typedef Coordinates<RANK>::Signed Coordinate;
typedef Coordinates<RANK>::Unsigned Unsigned;

// All strides are in elements.
struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Accumulator* partial;  // null unless there are several splits
    Parameter bias;
    int64 rank, batch, groups, channels, rows;
    int64 input_batch, input_group, input_channel;
    int64 weight_group, weight_row, weight_channel;
    int64 out_batch, out_group, out_row;
    int64 phases;          // number of phases that have outputs, over all axes
    int64 row_tiles;       // tiles along the rows of a group
    int64 position_tiles;  // tiles along the positions of the largest phase
    int64 splits;          // ranges of the K steps; with 1, sums are finished here
    int64 split_steps;     // K steps of a range, a multiple of SEGMENT and of TABLE
    int64 split_outputs;   // sums of a range in `partial`
    int64 segment_steps;   // K steps of a partial sum: SEGMENT times a power of two
    AxisTaps axis[AXES];
    int64 input_axis[AXES], weight_axis[AXES], out_axis[AXES];
};

// One K step, relative to tap 0 and channel 0.
struct Step {
    int64 input_offset, weight_offset;
    Coordinate shift[AXES];  // distance between the input coordinates on each axis
};

struct Shared {
    Accumulator inputs[2][DEPTH][POSITIONS];  // in the order of slot_of
    Accumulator weights[2][DEPTH][WEIGHT_PITCH];
    unsigned char present[DEPTH][POSITIONS];  // 1 if the array has the input; for masked slices only
    int64 out_offset[POSITIONS];              // NOWHERE after the last position
    Accumulator bias[ROWS];
    Step steps[TABLE];
};

// The phase of a tile on each axis: its residue and its taps.
struct Phase {
    Coordinate residue[AXES];
    Coordinate first[AXES];   // first tap
    Coordinate count[AXES];   // number of taps
    Coordinate offset[AXES];  // input offset of the first tap
    int64 taps;               // product of the counts
    int64 positions;          // outputs of the phase, over all samples
};

// A position for which a thread loads inputs.
struct Position {
    const Element* input;         // the input of tap 0 and channel 0; it may lie outside of the array
    Coordinate coordinate[AXES];  // input coordinate of tap 0
};

__device__ inline int rank_of(const Arguments& p) { return RANK ? RANK : int(p.rank); }

__device__ inline Phase describe_phase(const Arguments& p, int64 index) {
    Phase phase;
    phase.taps = 1;
    phase.positions = p.batch;
    for (int a = rank_of(p) - 1; a >= 0; --a) {
        const AxisTaps& axis = p.axis[a];
        int64 used = axis.phases < axis.size_out ? axis.phases : axis.size_out;
        int64 residue = index % used;
        index /= used;
        Progression<int64> taps = progression(axis, residue);
        phase.residue[a] = Coordinate(residue);
        phase.first[a] = Coordinate(taps.first);
        phase.count[a] = Coordinate(taps.count);
        phase.offset[a] = Coordinate(taps.offset);
        phase.taps *= taps.count;
        phase.positions *= positions_of(axis, residue);
    }
    return phase;
}

// Returns position `index` of a phase, and sets the offset of its output in group 0 and row 0.
//
// After the last position it returns the last one, whose inputs can be loaded without a test, and NOWHERE.
__device__ inline Position describe_position(const Arguments& p, const Phase& phase, const Element* input,
                                             int64 index, int64& out_offset) {
    const bool exists = index < phase.positions;
    if (!exists) index = phase.positions - 1;
    Position position;
    position.input = input;
    out_offset = 0;
    for (int a = rank_of(p) - 1; a >= 0; --a) {
        const AxisTaps& axis = p.axis[a];
        int64 count = positions_of(axis, phase.residue[a]);
        int64 q = index % count;
        index /= count;
        int64 coordinate = q * axis.step + phase.offset[a];
        position.coordinate[a] = Coordinate(coordinate);
        position.input += coordinate * p.input_axis[a];
        out_offset += (phase.residue[a] + q * axis.phases) * p.out_axis[a];
    }
    position.input += index * p.input_batch;
    out_offset += index * p.out_batch;
    if (!exists) out_offset = NOWHERE;
    return position;
}

// Sets K step `k` of a phase.
__device__ inline void describe_step(const Arguments& p, const Phase& phase, Coordinate k, Step& step) {
    const Coordinate taps = Coordinate(phase.taps), channels = Coordinate(p.channels);
    const Coordinate chunk = k / (taps * CHUNK);
    const Coordinate left = channels - chunk * CHUNK, depth = left < CHUNK ? left : CHUNK;
    k -= chunk * taps * CHUNK;
    Coordinate tap = k / depth;
    const Coordinate channel = chunk * CHUNK + k - tap * depth;
    step.input_offset = channel * p.input_channel;
    step.weight_offset = channel * p.weight_channel;
    for (int a = rank_of(p) - 1; a >= 0; --a) {
        const Coordinate next = tap / phase.count[a], j = tap - next * phase.count[a];
        tap = next;
        step.shift[a] = j * Coordinate(p.axis[a].offset_step);
        step.input_offset += int64(step.shift[a]) * p.input_axis[a];
        step.weight_offset += (phase.first[a] + j * p.axis[a].tap_step) * p.weight_axis[a];
    }
}

__device__ inline bool is_present(const Arguments& p, const Position& position, const Step& step) {
    bool present = true;
    for (int a = 0; a < rank_of(p); ++a) {
        // As unsigned numbers, negative coordinates are too large as well.
        const Coordinate i = position.coordinate[a] + step.shift[a];
        present &= Unsigned(i) < Unsigned(p.axis[a].size_in);
    }
    return present;
}

// Returns true if the array has the inputs of all taps of a position: those of the first and the last tap.
__device__ inline bool is_inside(const Arguments& p, const Phase& phase, const Position& position) {
    bool inside = true;
    for (int a = 0; a < rank_of(p); ++a) {
        const Coordinate first = position.coordinate[a];
        const Coordinate last = first + (phase.count[a] - 1) * Coordinate(p.axis[a].offset_step);
        inside &= Unsigned(first) < Unsigned(p.axis[a].size_in);
        inside &= Unsigned(last) < Unsigned(p.axis[a].size_in);
    }
    return inside;
}

// Returns the place of a position in a line of shared memory.
__device__ inline int slot_of(int position) {
    const int thread = position % POSITION_THREADS, c = position / POSITION_THREADS;
    return (c / TOGETHER * POSITION_THREADS + thread) * TOGETHER + c % TOGETHER;
}

// One thread's part of a slice, in registers on the way from global to shared memory.
struct Load {
    Element inputs[LOAD_POSITIONS][LOAD_STEPS];
    Element weights[LOAD_WEIGHTS];
};

struct Worker {
    const Arguments& p;
    Shared& shared;
    const int thread, tx, ty;            // tx: the first of the thread's positions; ty: its group of rows
    const int load_position, load_step;  // the first position and the first K step of the inputs it loads
    const int weight_row, weight_step;   // the first row and the K step of the weights that it loads

    __device__ Worker(const Arguments& p, Shared& shared)
        : p(p),
          shared(shared),
          thread(threadIdx.x),
          tx(threadIdx.x % POSITION_THREADS),
          ty(threadIdx.x / POSITION_THREADS),
          load_position(threadIdx.x % (THREADS / LOAD_GROUPS)),
          load_step(threadIdx.x / (THREADS / LOAD_GROUPS) * LOAD_STEPS),
          weight_row(threadIdx.x / DEPTH),
          weight_step(threadIdx.x % DEPTH) {}

    // ---- producer ----

    // Fills the table of K steps from the first step of a slice on, if the table has ended before that slice.
    __device__ void describe_steps(const Phase& phase, Coordinate slice, Coordinate steps) const {
        if (slice % (TABLE / DEPTH) != 0) return;
        if (thread < TABLE) {
            shared.steps[thread] = Step();  // entries after the last step are read, but not used
            const Coordinate k0 = slice * DEPTH;
            if (thread < steps - k0) describe_step(p, phase, k0 + thread, shared.steps[thread]);
        }
        __syncthreads();
    }

    __device__ const Step* steps_of(Coordinate slice) const {
        return shared.steps + Unsigned(slice) % (TABLE / DEPTH) * DEPTH;
    }

    // Loads inputs from the K step `step` on, of which `left` are in the sum; the others give zeros.
    //
    // With SAME_TAP, the steps are neighbouring channels of one tap, and all of them are in the sum or none.
    // With WHOLE, the array has all of these inputs, and the sum all steps.
    template <bool SAME_TAP, bool WHOLE>
    __device__ void load_inputs(Load& load, const Position (&position)[LOAD_POSITIONS], const Step* step,
                                int left) const {
        const Element* at[LOAD_POSITIONS];
        bool present[LOAD_POSITIONS];
#pragma unroll
        for (int k = 0; k < LOAD_STEPS; ++k) {
#pragma unroll
            for (int i = 0; i < LOAD_POSITIONS; ++i) {
                if (k > 0 && SAME_TAP) {
                    at[i] += p.input_channel;
                } else {
                    at[i] = position[i].input + step[k].input_offset;
                    present[i] = WHOLE || ((k < left) & is_present(p, position[i], step[k]));
                }
                if (!WHOLE) load.inputs[i][k] = Element{};
                if (WHOLE || present[i]) load.inputs[i][k] = *at[i];
            }
        }
    }

    // Loads a slice; `weight` is the weight of tap 0 and channel 0 in the thread's first row. With `inside`,
    // the array has all inputs of the warp's positions.
    //
    // Neighbouring threads load weights of neighbouring steps, which lie closer together than rows.
    __device__ void load(Load& load, const Position (&position)[LOAD_POSITIONS], const Element* weight,
                         int rows, bool inside, Coordinate slice, Coordinate steps) const {
        const Step* step = steps_of(slice);
        const int left = steps - slice * DEPTH < DEPTH ? int(steps - slice * DEPTH) : DEPTH;
        if (MAY_SHARE_TAPS && p.channels % LOAD_STEPS == 0)
            load_inputs<MAY_SHARE_TAPS, false>(load, position, step + load_step, left - load_step);
        else if (inside & (left == DEPTH))
            load_inputs<false, true>(load, position, step + load_step, left - load_step);
        else
            load_inputs<false, false>(load, position, step + load_step, left - load_step);
        const Element* at = weight + step[weight_step].weight_offset;
#pragma unroll
        for (int i = 0; i < LOAD_WEIGHTS; ++i) {
            load.weights[i] = Element{};
            if ((weight_step < left) & (weight_row + i * WEIGHT_ROWS < rows))
                load.weights[i] = at[i * WEIGHT_ROWS * p.weight_row];
        }
    }

    // Stores a loaded slice in shared memory; returns true if one of this thread's weights is infinite or NaN.
    __device__ bool store(const Load& load, Coordinate slice) const {
        const int stage = slice & 1;
        bool special = false;
#pragma unroll
        for (int k = 0; k < LOAD_STEPS; ++k)
#pragma unroll
            for (int i = 0; i < LOAD_POSITIONS; ++i)
                shared.inputs[stage][load_step + k][slot_of(load_position + i * THREADS)] =
                    widen<Accumulator>(load.inputs[i][k]);
#pragma unroll
        for (int i = 0; i < LOAD_WEIGHTS; ++i) {
            const int row = weight_row + i * WEIGHT_ROWS;
            const Accumulator value = widen<Accumulator>(load.weights[i]);
            if (row < ROWS) shared.weights[stage][weight_step][row] = value;
            if (!is_integer<Accumulator>::value) special = special || is_special(value);
        }
        return special;
    }

    __device__ void store_present(const Position (&position)[LOAD_POSITIONS], Coordinate slice) const {
        const Step* step = steps_of(slice) + load_step;
        for (int k = 0; k < LOAD_STEPS; ++k)
            for (int i = 0; i < LOAD_POSITIONS; ++i)
                shared.present[load_step + k][load_position + i * THREADS] = is_present(p, position[i], step[k]);
    }

    // ---- mainloop ----

    // One step of the matrix product; MASKED leaves absent inputs out instead of multiplying zeros.
    template <bool MASKED>
    __device__ void multiply(int stage, int k, Accumulator (&sum)[THREAD_ROWS][THREAD_POSITIONS]) const {
        Accumulator w[THREAD_ROWS], x[THREAD_POSITIONS];
#pragma unroll
        for (int r = 0; r < THREAD_ROWS; ++r) w[r] = shared.weights[stage][k][ty * THREAD_ROWS + r];
#pragma unroll
        for (int c = 0; c < THREAD_POSITIONS; ++c)
            x[c] = shared.inputs[stage][k][slot_of(tx + c * POSITION_THREADS)];
#pragma unroll
        for (int c = 0; c < THREAD_POSITIONS; ++c) {
            if (MASKED && !shared.present[k][tx + c * POSITION_THREADS]) continue;
#pragma unroll
            for (int r = 0; r < THREAD_ROWS; ++r) sum[r][c] = multiply_add(w[r], x[c], sum[r][c]);
        }
    }
};

// Adds the partial sums to the totals, and starts new ones.
__device__ inline void promote(Accumulator (&sum)[THREAD_ROWS][THREAD_POSITIONS],
                               Accumulator (&total)[THREAD_ROWS][THREAD_POSITIONS]) {
#pragma unroll
    for (int r = 0; r < THREAD_ROWS; ++r)
#pragma unroll
        for (int c = 0; c < THREAD_POSITIONS; ++c) {
            total[r][c] = add(total[r][c], sum[r][c]);
            sum[r][c] = zero<Accumulator>();
        }
}

__device__ inline void convolve_tile(const Arguments& p, Shared& shared, int64 tile) {
    const int64 row0 = tile % p.row_tiles * ROWS;
    tile /= p.row_tiles;
    const Phase phase = describe_phase(p, tile % p.phases);
    tile /= p.phases;
    const int64 position0 = tile % p.position_tiles * POSITIONS;
    tile /= p.position_tiles;
    const int64 group = tile % p.groups, split = tile / p.groups;
    if (position0 >= phase.positions) return;  // all threads of the block return, or none

    const Worker worker(p, shared);
    const Element* input = p.input + group * p.input_group;
    const int rows = p.rows - row0 < ROWS ? int(p.rows - row0) : ROWS;
    const Element* weight =
        p.weight + group * p.weight_group + (row0 + worker.weight_row) * p.weight_row;
    const Coordinate steps = Coordinate(phase.taps * p.channels);
    // Slices of the range; a range after the last step has none, in a phase with fewer taps than another one.
    const int64 slices = (int64(steps) + DEPTH - 1) / DEPTH;
    const int64 of_range = p.splits > 1 ? p.split_steps / DEPTH : slices;
    const Coordinate first = Coordinate(split * of_range < slices ? split * of_range : slices);
    const Coordinate end = Coordinate(first + of_range < slices ? first + of_range : slices);
    const Coordinate last_of_segment = Coordinate(p.segment_steps / DEPTH) - 1;  // a mask

    Position position[LOAD_POSITIONS];
    bool inside = true;
#pragma unroll
    for (int i = 0; i < LOAD_POSITIONS; ++i) {
        const int place = worker.load_position + i * THREADS;
        int64 out_offset;
        position[i] = describe_position(p, phase, input, position0 + place, out_offset);
        if (worker.load_step == 0) shared.out_offset[place] = out_offset;
        inside &= is_inside(p, phase, position[i]);
    }
    inside = __all_sync(~0u, inside);  // else some warps would run both ways to load

    for (int row = worker.thread; row < rows; row += THREADS)
        shared.bias[row] = p.bias.data ? load_parameter<Accumulator>(p.bias, group * p.rows + row0 + row)
                                       : zero<Accumulator>();

    Accumulator total[THREAD_ROWS][THREAD_POSITIONS], sum[THREAD_ROWS][THREAD_POSITIONS];
#pragma unroll
    for (int r = 0; r < THREAD_ROWS; ++r)
#pragma unroll
        for (int c = 0; c < THREAD_POSITIONS; ++c) total[r][c] = sum[r][c] = zero<Accumulator>();

    // The next slice is under way while a slice is multiplied. The slice before the first has nothing to
    // multiply.
    Load load;
    bool masked = false;
    for (Coordinate slice = first - 1; slice < end; ++slice) {
        if (masked) {
            worker.store_present(position, slice);
            __syncthreads();
        }
        const bool more = slice + 1 < end;
        if (more) {
            worker.describe_steps(phase, slice + 1, steps);
            worker.load(load, position, weight, rows, inside, slice + 1, steps);
        }
        if (masked) {
#pragma unroll 1
            for (int k = 0; k < DEPTH; ++k) worker.multiply<true>(slice & 1, k, sum);
        } else if (slice >= first) {
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) worker.multiply<false>(slice & 1, k, sum);
        }
        if ((slice & last_of_segment) == last_of_segment) promote(sum, total);
        const bool special = more && worker.store(load, slice + 1);
        masked = __syncthreads_or(special);
    }
    promote(sum, total);

    // Epilogue.
#pragma unroll
    for (int r = 0; r < THREAD_ROWS; ++r) {
        const int row = worker.ty * THREAD_ROWS + r;
        if (row >= rows) break;
        const int64 line = group * p.out_group + (row0 + row) * p.out_row;
#pragma unroll
        for (int c = 0; c < THREAD_POSITIONS; ++c) {
            const int64 offset = shared.out_offset[worker.tx + c * POSITION_THREADS];
            if (offset == NOWHERE) continue;
            if (p.partial)
                p.partial[split * p.split_outputs + line + offset] = total[r][c];
            else
                p.out[line + offset] = narrow<Element>(add(total[r][c], shared.bias[row]));
        }
    }
    __syncthreads();  // before the next tile describes its outputs
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    direct_conv(const __grid_constant__ Arguments p) {
    __shared__ __align__(16) Shared shared;
    const int64 tiles = p.row_tiles * p.phases * p.position_tiles * p.groups * p.splits;
    for (int64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) convolve_tile(p, shared, tile);
}
