// Batch norm and group norm: sets of values brought to mean 0 and variance 1, then an affine map for
// each channel and, where asked for, tanh.
//
//     out = (in - mean[set]) / sqrt(var[set] + eps) * weight[channel] + bias[channel]
//
// A set is a channel over all samples (batch norm) or a group of channels of one sample (group norm).
// All arithmetic is in float64 with one rounding at the end, so that nothing is lost where the mean is
// large against the deviation. It costs no time, because a pass over an array is bound by memory.
//
// Sets that fit in shared memory are normalised by one kernel, which reads the input once:
//
//     normalize_sets     one block for a set: loads it, finds mean and deviation, normalises and stores it
//     normalize_bundles  one block for neighbouring sets that fill sectors: for channels that lie innermost in the
//                        input, in out or in both
//
// Other sets are normalised by several kernels, which read the input twice (once where statistics are given). A set is
// one line of values or several, and a line is cut into segments:
//
//     statistics         one warp for a segment of a line: mean and sum of squared deviations of the segment
//     statistics_across  WARPS threads for a lane of that warp: for channels that lie innermost in memory
//     combine            one block for a set: mean and 1 / sqrt(var + eps) from the segments of the set
//     given              one thread for a channel: mean and 1 / sqrt(var + eps) from the caller's statistics
//     normalize          UNROLL packs of values for a thread
//     normalize_tanh     `normalize`, and then tanh
//     normalize_across   packs of channels for a thread, of one place after the other: for channels that lie innermost
//                        in the input, in out or in both
//
// A thread sums packs of PACK values, which are 16 bytes. It loads as many values at a time as are
// contiguous and aligned: a whole pack, half a pack or a single value. Which thread sums which values of
// a line follows from their numbers in the line, and never from their addresses. Segments depend on the
// size of the line alone, each is reduced by the same tree, and they are combined in order: so the bits
// are the same in every run and for every layout, and for group norm whatever the batch.
//
// Where channels lie innermost, a pack in memory has PACK lines at one place instead. Then a thread loads PACK places,
// which are a pack of each of PACK lines, and keeps the sums of all of them:
//
//                     thread 0   thread 1     ...   thread 7
//     place 0         # # # #    # # # #            # # # #     128 bytes of one place
//     place 1         # # # #    # # # #            # # # #
//     place 2         # # # #    # # # #            # # # #
//     place 3         # # # #    # # # #            # # # #     lane 0 of 8 * PACK lines
//     place 4       thread 8   thread 9                         lane 1
//
// Macros (set by cupyconv/_kernels/normalize.py):
//     INPUT, OUTPUT   element types
//     STATISTICS, STATISTICS_ACROSS, COMBINE, GIVEN, NORMALIZE, NORMALIZE_TANH, NORMALIZE_ACROSS, NORMALIZE_SETS or
//     NORMALIZE_BUNDLES
//                     the one kernel that is compiled: to compile all takes several times as long
//
// Launch: THREADS threads; normalize_sets and normalize_bundles take whole warps, up to MOST_THREADS, and shared memory
// for the parameters, moments and packs of their sets. Blocks: one for each set for normalize_sets and combine, one for
// a bundle of sets for normalize_bundles, one for WARPS segments for statistics, one for WARPS * PACK segments for
// statistics_across, any number for the others. All kernels are grid-strided.

#include "moments.cuh"
#include "view.cuh"

constexpr int THREADS = 256;
constexpr int LANES = 32;  // threads that share a segment
constexpr int WARPS = THREADS / LANES;
constexpr int MOST_THREADS = 384;
constexpr int MOST_CHANNELS = 4;  // of a step of normalize_bundles, which has few registers for parameters
constexpr int RESIDENT = 3;         // blocks that a multiprocessor shall hold of the kernels that walk through arrays
constexpr int RESIDENT_ACROSS = 2;  // where a thread has the sums or parameters of PACK channels

typedef INPUT Input;
typedef OUTPUT Output;

constexpr int PACK = 16 / sizeof(Input);
constexpr int CHANNELS = PACK < MOST_CHANNELS ? PACK : MOST_CHANNELS;

template <typename Element, int WIDTH>
struct __align__(WIDTH * sizeof(Element)) Pack {
    Element of[WIDTH];
};
typedef Pack<double, 2> Pair;

// The arrays and indices of walks.
enum { IN, NUMBER };                  // the input, and the number of a value in its set
enum { FROM, RESULT, CHANNEL, SET };  // FROM: the input, or for normalize_sets shared memory; RESULT: the output

struct Arguments {
    const Input* input;
    Output* out;
    Pair* moments;   // [sets]: mean, 1 / sqrt(var + eps)
    Pair* affine;    // [channels]: weight, bias
    Pair* partials;  // [lines][segments]: mean, M2
    Parameter mean, var, weight, bias;
    double eps;
    int64 segment;   // elements of a segment, a multiple of PACK
    int64 segments;  // segments of one line
    int64 channels;
    int64 sets, set_channels, set_lines, elements;  // channels, lines and elements are those of one set
    // A line is a set, or for large groups a channel of a sample. lines_per_sample is the number of all lines for batch
    // norm. The strides of input and out are those from one sample, or line, to the next.
    int64 line, lines_per_sample;  // elements of one line
    int64 sample_strides[2], line_strides[2];
    int64 bundle;    // sets that a block of normalize_bundles has; several ones are whole packs
    int64 in_order;  // 1 if a set is whole packs, aligned, in the order of the numbers
    // The values of a line. For normalize_sets they are walked in the order of the input. For other kernels
    // `starts` has all values in the order of their numbers, and `width` values are loaded at a time.
    Walk<2> values;
    // The outputs of normalize, or of a block of normalize_sets, in the order of out. All steps of a thread have the
    // same channels and set. For normalize_sets channels count from the first one of the set. For normalize_across SET
    // is the first set of the sample, and a thread takes `rounds` times UNROLL steps.
    Walk<4> places;
    int64 rounds;
    // Elements from one neighbour of a step to the next, 0 if neighbours are contiguous and aligned: in shared memory
    // for values, and for places in the source and in the result.
    int64 value_gap, place_gaps[2];
};

// ---- statistics ----

// Sums over a thread's values, each less the first value. The first value is not further
// from the mean than sqrt(M2), so at most `count` times M2 cancels in the end: a few bits of float64.
struct Sums {
    double first, sum, squares;

    __device__ void add(Input value) {
        const double deviation = widen<double>(value) - first;
        sum += deviation;
        squares = fma(deviation, deviation, squares);
    }
    // Adds the first `present` values of a pack, or all of them.
    __device__ void add(const Pack<Input, PACK>& pack, int present, bool is_first) {
        if (is_first) first = widen<double>(pack.of[0]);
        if (present >= PACK) {  // no test for each value, so that one instruction loads all
#pragma unroll
            for (int i = 0; i < PACK; ++i) add(pack.of[i]);
            return;
        }
#pragma unroll
        for (int i = 0; i < PACK; ++i) {
            if (i >= present) break;
            add(pack.of[i]);
        }
    }
    // The moments of all `count` values.
    __device__ Moments moments(double count) const {
        if (count == 0) return {0, 0, 0};
        const double mean = sum / count, m2 = fma(-sum, mean, squares);
        if (is_special(squares) && !is_special(sum)) return {count, first + mean, squares};  // infinite
        return {count, first + mean, m2 < 0 ? 0 : m2};
    }
};

__device__ inline double inverse_deviation(const Arguments& p, const Moments& moments) {
    return 1 / sqrt(moments.m2 / moments.count + p.eps);
}

// The values of one of `threads` threads that take `count` values in turn, a pack at a time.
__device__ inline int share_of(int thread, int threads, int count) {
    const int rounds = count / (threads * PACK), left = count - (rounds * threads + thread) * PACK;
    return rounds * PACK + (left < 0 ? 0 : left < PACK ? left : PACK);
}

// The offset of the first value of a line, in the input or in out.
__device__ inline int64 line_offset(const Arguments& p, int64 line, int array) {
    const int64 sample = line / p.lines_per_sample;
    return sample * p.sample_strides[array] + (line - sample * p.lines_per_sample) * p.line_strides[array];
}

// The values of a segment that begins with value `begin` of its line.
__device__ inline int segment_count(const Arguments& p, int64 begin) {
    return int(begin + p.segment < p.line ? p.segment : p.line - begin);
}

// The segment of a line with a number, or the same places of `width` lines that are neighbours in memory. Neighbouring
// segments have neighbouring lines, which may share what they load.
struct Segment {
    int64 part, line, begin;
    int count;

    __device__ Segment(const Arguments& p, int64 number, int width) {
        const int64 lines = p.sets * p.set_lines / width;
        part = number / lines, line = (number - part * lines) * width;
        begin = part * p.segment, count = segment_count(p, begin);
    }
    __device__ static int64 number_of(const Arguments& p, int width) {
        return p.sets * p.set_lines / width * p.segments;
    }
    // Merges the moments of the lanes of a warp to the moments of the segment of one of the lines.
    __device__ void store(const Arguments& p, int own, const Moments& of_lane) const {
        const Moments all = merge_threads<warp_sum>(of_lane, count);
        if (threadIdx.x % LANES == 0) p.partials[(line + own) * p.segments + part] = {all.mean, all.m2};
    }
};

// The pack of a line that begins with value `number`, by loads of WIDTH values. Only the first `present` values exist,
// the others are zero.
template <int WIDTH>
__device__ inline Pack<Input, PACK> load_pack(const Arguments& p, const Input* input, int64 number, int present) {
    Pack<Input, PACK> pack = {};
#pragma unroll
    for (int i = 0; i < PACK; i += WIDTH) {
        if (i >= present) break;
        const auto part = *(const Pack<Input, WIDTH>*)(input + locate(p.values.starts, number + i).offset[IN]);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) pack.of[i + j] = part.of[j];
    }
    return pack;
}

// The sums of a lane's share of a segment.
template <int WIDTH>
__device__ inline Sums sum_segment(const Arguments& p, const Input* input, const Segment& segment) {
    constexpr int PACKS = UNROLL * WIDTH < PACK ? 1 : UNROLL * WIDTH / PACK;
    const int lane = threadIdx.x % LANES;
    Sums sums = {0, 0, 0};
    for (int first = lane * PACK; first < segment.count; first += PACKS * LANES * PACK) {
        Pack<Input, PACK> packs[PACKS];  // all loads are issued before the first result is used
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            const int at = first + i * LANES * PACK;
            if (at < segment.count) packs[i] = load_pack<WIDTH>(p, input, segment.begin + at, segment.count - at);
        }
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            const int at = first + i * LANES * PACK;
            if (at < segment.count) sums.add(packs[i], segment.count - at, at == lane * PACK);
        }
    }
    return sums;
}

#ifdef STATISTICS
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) statistics(const __grid_constant__ Arguments p) {
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    for (int64 first = blockIdx.x * int64(WARPS); first < Segment::number_of(p, 1); first += gridDim.x * int64(WARPS)) {
        if (first + warp >= Segment::number_of(p, 1)) break;
        const Segment segment(p, first + warp, 1);
        const Input* input = p.input + line_offset(p, segment.line, IN);
        const Sums sums = p.values.width == PACK       ? sum_segment<PACK>(p, input, segment)
                          : p.values.width == PACK / 2 ? sum_segment<PACK / 2>(p, input, segment)
                                                : sum_segment<1>(p, input, segment);
        segment.store(p, 0, sums.moments(share_of(lane, LANES, segment.count)));
    }
}
#endif

#ifdef STATISTICS_ACROSS
// The sums of a lane's share of the segment, for each of its lines. The places of a pack have the same distance.
__device__ inline void sum_places(const Arguments& p, const Segment& segment, int lane, Sums (&sums)[PACK]) {
    const Input* input = p.input + line_offset(p, segment.line, IN);
    const int64 step = p.values.starts.stride[IN][0];
    for (int first = lane * PACK; first < segment.count; first += LANES * PACK) {
        const Input* const from = input + locate(p.values.starts, segment.begin + first).offset[IN];
        Pack<Input, PACK> places[PACK];  // each has one value of each line
#pragma unroll
        for (int i = 0; i < PACK; ++i)
            if (first + i < segment.count) places[i] = *(const Pack<Input, PACK>*)(from + i * step);
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            Pack<Input, PACK> pack;
#pragma unroll
            for (int i = 0; i < PACK; ++i) pack.of[i] = places[i].of[j];
            sums[j].add(pack, segment.count - first, first == lane * PACK);
        }
    }
}

// Neighbouring threads have the same lane of neighbouring segments.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_ACROSS)
    statistics_across(const __grid_constant__ Arguments p) {
    __shared__ Pair moments[PACK][WARPS][LANES + 1];  // mean and M2; threads of a warp write to different banks
    const int64 segments = Segment::number_of(p, PACK);
    for (int64 first = blockIdx.x * int64(WARPS); first < segments; first += gridDim.x * int64(WARPS)) {
        const int own = threadIdx.x % WARPS, lane = threadIdx.x / WARPS;
        if (first + own < segments) {
            const Segment segment(p, first + own, PACK);
            Sums sums[PACK] = {};
            sum_places(p, segment, lane, sums);
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const Moments found = sums[j].moments(share_of(lane, LANES, segment.count));
                moments[j][own][lane] = {found.mean, found.m2};
            }
        }
        __syncthreads();
        const int warp = threadIdx.x / LANES, rank = threadIdx.x % LANES;  // a warp merges the lanes of a segment
        if (first + warp < segments) {
            const Segment segment(p, first + warp, PACK);
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                const Pair found = moments[j][warp][rank];
                segment.store(p, j, {double(share_of(rank, LANES, segment.count)), found.of[0], found.of[1]});
            }
        }
        __syncthreads();  // before the moments of the next segments come
    }
}
#endif

__device__ inline double weight_of(const Arguments& p, int64 channel) {
    return p.weight.data ? load_parameter<double>(p.weight, channel) : 1;
}
__device__ inline double bias_of(const Arguments& p, int64 channel) {
    return p.bias.data ? load_parameter<double>(p.bias, channel) : -0.0;  // -0.0 keeps the sign of a zero
}

#ifdef COMBINE
extern "C" __global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ Arguments p) {
    for (int64 c = blockIdx.x * int64(THREADS) + threadIdx.x; c < p.channels; c += gridDim.x * int64(THREADS))
        p.affine[c] = {weight_of(p, c), bias_of(p, c)};
    for (int64 set = blockIdx.x; set < p.sets; set += gridDim.x) {
        Moments moments = {0, 0, 0};
        const int64 parts = p.set_lines * p.segments;
        for (int64 i = threadIdx.x; i < parts; i += THREADS) {
            const int64 begin = i % p.segments * p.segment;
            const Pair partial = p.partials[set * parts + i];
            moments = merge(moments, {double(segment_count(p, begin)), partial.of[0], partial.of[1]});
        }
        const Moments all = merge_threads<block_sum>(moments, double(p.elements));
        if (threadIdx.x == 0) p.moments[set] = {all.mean, inverse_deviation(p, all)};
    }
}
#endif

#ifdef GIVEN
extern "C" __global__ void __launch_bounds__(THREADS) given(const __grid_constant__ Arguments p) {
    for (int64 c = blockIdx.x * int64(THREADS) + threadIdx.x; c < p.channels; c += gridDim.x * int64(THREADS)) {
        p.affine[c] = {weight_of(p, c), bias_of(p, c)};
        p.moments[c] = {load_parameter<double>(p.mean, c), 1 / sqrt(load_parameter<double>(p.var, c) + p.eps)};
    }
}
#endif

// ---- normalisation ----

// The affine map of the values of one channel of one set.
struct Affine {
    double mean, inverse, weight, bias;

    __device__ double apply(Input value) const {
        return fma((widen<double>(value) - mean) * inverse, weight, bias);
    }
};

__device__ inline Affine affine_at(const Arguments& p, int64 set, int64 channel) {
    const Pair moments = p.moments[set], affine = p.affine[channel];
    return {moments.of[0], moments.of[1], affine.of[0], affine.of[1]};
}

// Loads the neighbours of a step, `gap` elements apart if they are not TOGETHER.
template <int WIDTH, bool TOGETHER>
__device__ inline Pack<Input, WIDTH> load_neighbours(const Input* from, int64 gap) {
    if constexpr (TOGETHER) return *(const Pack<Input, WIDTH>*)from;
    Pack<Input, WIDTH> pack;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) pack.of[j] = from[j * gap];
    return pack;
}

// Stores the neighbours of a step if `stored`.
template <int WIDTH, bool TOGETHER>
__device__ inline void store_neighbours(Output* to, int64 gap, const Pack<Output, WIDTH>& pack, bool stored) {
    if constexpr (TOGETHER) {
        typedef typename BitsOf<WIDTH * sizeof(Output)>::type Bits;
        union {
            Pack<Output, WIDTH> pack;
            Bits bits;
        } results = {pack};
        store_bits((Bits*)to, results.bits, stored);
    } else if (stored) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) to[j * gap] = pack.of[j];
    }
}

// Normalises UNROLL steps of WIDTH values of a thread; all values have one affine map, or each neighbour has its own.
template <bool TANH, int WIDTH, bool FROM_TOGETHER, bool TO_TOGETHER, int MAPS>
__device__ inline void normalize_steps(
    const Arguments& p, const Steps<4>& steps, const Input* from, const Affine (&affine)[MAPS], Output* out) {
    Pack<Input, WIDTH> packs[UNROLL];  // all loads are issued before the first result is used
#pragma unroll
    for (int i = 0; i < UNROLL; ++i)
        if (steps.has(p.places, i)) {
            const Input* const at = from + steps.offset(p.places, i, FROM);
            packs[i] = load_neighbours<WIDTH, FROM_TOGETHER>(at, p.place_gaps[FROM]);
        }
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
        Pack<Output, WIDTH> results;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            const double result = affine[j % MAPS].apply(packs[i].of[j]);
            results.of[j] = narrow<Output>(TANH ? tanh(result) : result);
        }
        store_neighbours<WIDTH, TO_TOGETHER>(
            out + steps.offset(p.places, i, RESULT), p.place_gaps[RESULT], results, steps.has(p.places, i));
    }
}

template <bool TANH, int WIDTH>
__device__ inline void normalize_places(const Arguments& p) {
    const int64 threads = gridDim.x * int64(THREADS);
    for (int64 thread = blockIdx.x * int64(THREADS) + threadIdx.x; thread < p.places.threads; thread += threads) {
        const Steps<4> steps(p.places, thread);
        const Affine affine[] = {affine_at(p, steps.start.offset[SET], steps.start.offset[CHANNEL])};
        normalize_steps<TANH, WIDTH, true, true>(p, steps, p.input, affine, p.out);
    }
}

template <bool TANH>
__device__ inline void normalize_all(const Arguments& p) {
    if (p.places.width == PACK)
        normalize_places<TANH, PACK>(p);
    else if (p.places.width == PACK / 2)
        normalize_places<TANH, PACK / 2>(p);
    else
        normalize_places<TANH, 1>(p);
}

#ifdef NORMALIZE
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) normalize(const __grid_constant__ Arguments p) {
    normalize_all<false>(p);
}
#endif

// For the fused operation where it is composed of separate kernels: for floats of 32 and 64 bits.
#ifdef NORMALIZE_TANH
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) normalize_tanh(const __grid_constant__ Arguments p) {
    normalize_all<true>(p);
}
#endif

#ifdef NORMALIZE_ACROSS
// Normalises places of WIDTH channels, whose parameters a thread loads once.
template <int WIDTH, bool IN_TOGETHER, bool OUT_TOGETHER>
__device__ inline void normalize_channels(const Arguments& p) {
    const int64 threads = gridDim.x * int64(THREADS);
    for (int64 thread = blockIdx.x * int64(THREADS) + threadIdx.x; thread < p.places.threads; thread += threads) {
        Steps<4> steps(p.places, thread);
        Affine affine[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            const unsigned channel = unsigned(steps.start.offset[CHANNEL]) + j;
            affine[j] = affine_at(p, steps.start.offset[SET] + channel / unsigned(p.set_channels), channel);
        }
        for (int64 round = 0; round < p.rounds; ++round) {
            normalize_steps<false, WIDTH, IN_TOGETHER, OUT_TOGETHER>(p, steps, p.input, affine, p.out);
            steps.go(p.places);
        }
    }
}

template <int WIDTH>
__device__ inline void normalize_layouts(const Arguments& p) {
    if (p.place_gaps[RESULT])
        normalize_channels<WIDTH, true, false>(p);
    else if (p.place_gaps[FROM])
        normalize_channels<WIDTH, false, true>(p);
    else
        normalize_channels<WIDTH, true, true>(p);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_ACROSS)
    normalize_across(const __grid_constant__ Arguments p) {
    if (p.places.width == PACK)
        normalize_layouts<PACK>(p);
    else
        normalize_layouts<PACK / 2>(p);
}
#endif

// Loads sets to shared memory, in the order of the numbers. The neighbours of a step have neighbouring numbers, or they
// lie ACROSS, in WIDTH channels.
template <int WIDTH, bool ACROSS>
__device__ inline void load_sets(const Arguments& p, const Input* input, Input* values) {
    for (int thread = threadIdx.x; thread < int(p.values.threads); thread += blockDim.x) {
        const Steps<2> steps(p.values, thread);
        Pack<Input, WIDTH> packs[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            if (steps.has(p.values, i))
                packs[i] = *(const Pack<Input, WIDTH>*)(input + steps.offset(p.values, i, IN));
        Input* to = values + int(steps.start.offset[NUMBER]);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i, to += int(p.values.stride[NUMBER])) {
            if (!steps.has(p.values, i)) break;
            if constexpr (!ACROSS) {
                *(Pack<Input, WIDTH>*)to = packs[i];
            } else {
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) to[j * int(p.value_gap)] = packs[i].of[j];
            }
        }
    }
}

// Copies a thread's share of a set that lies in order to shared memory, and returns its sums.
__device__ inline Sums load_in_order(const Input* input, Input* values, int count) {
    typedef Pack<Input, PACK> Whole;
    Sums sums = {0, 0, 0};
    const int step = blockDim.x * PACK;
    for (int first = threadIdx.x * PACK; first < count; first += UNROLL * step) {
        Whole packs[UNROLL];  // all loads are issued before the first result is used
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            if (first + i * step < count) packs[i] = *(const Whole*)(input + first + i * step);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            if (first + i * step >= count) break;
            *(Whole*)(values + first + i * step) = packs[i];
            sums.add(packs[i], PACK, first + i * step == threadIdx.x * PACK);
        }
    }
    return sums;
}

// Loads values that lie in another order to shared memory.
template <bool ACROSS>
__device__ inline void load_values(const Arguments& p, const Input* input, Input* values) {
    if (ACROSS && p.value_gap && p.values.width == CHANNELS)
        load_sets<CHANNELS, true>(p, input, values);
    else if (ACROSS && p.value_gap)
        load_sets<CHANNELS / 2, true>(p, input, values);
    else if (p.values.width == PACK)
        load_sets<PACK, false>(p, input, values);
    else if (p.values.width == PACK / 2)
        load_sets<PACK / 2, false>(p, input, values);
    else
        load_sets<1, false>(p, input, values);
}

// The sums of a thread's share of a set in shared memory.
__device__ inline Sums sum_set(const Input* values, int count) {
    Sums sums = {0, 0, 0};
    for (int first = threadIdx.x * PACK; first < count; first += blockDim.x * PACK)
        sums.add(*(const Pack<Input, PACK>*)(values + first), count - first, first == threadIdx.x * PACK);
    return sums;
}

// What a block has in shared memory.
struct SharedSets {
    Pair* parameters;  // weight and bias of each channel
    Pair* moments;     // mean and 1 / sqrt(var + eps) of each set
    Input* values;

    __device__ SharedSets(const Arguments& p, unsigned char* memory)
        : parameters((Pair*)memory),
          moments(parameters + p.bundle * p.set_channels),
          values((Input*)(moments + p.bundle)) {}
    __device__ Affine affine(const Arguments& p, int channel) const {
        const Pair own = moments[p.bundle == 1 ? 0 : channel / int(p.set_channels)], parameter = parameters[channel];
        return {own.of[0], own.of[1], parameter.of[0], parameter.of[1]};
    }
};

// Stores the normalised values of sets. The neighbours of a step are of one channel, or they lie ACROSS.
template <int WIDTH, bool ACROSS>
__device__ inline void store_sets(const Arguments& p, const SharedSets& shared, Output* out) {
    constexpr int MAPS = ACROSS ? WIDTH : 1;
    for (int thread = threadIdx.x; thread < int(p.places.threads); thread += blockDim.x) {
        const Steps<4> steps(p.places, thread);
        Affine affine[MAPS];
#pragma unroll
        for (int j = 0; j < MAPS; ++j) affine[j] = shared.affine(p, int(steps.start.offset[CHANNEL]) + j);
        normalize_steps<false, WIDTH, !ACROSS, true>(p, steps, shared.values, affine, out);
    }
}

template <bool ACROSS>
__device__ inline void store_values(const Arguments& p, const SharedSets& shared, Output* out) {
    if (ACROSS && p.place_gaps[FROM] && p.places.width == CHANNELS)
        store_sets<CHANNELS, true>(p, shared, out);
    else if (ACROSS && p.place_gaps[FROM])
        store_sets<CHANNELS / 2, true>(p, shared, out);
    else if (p.places.width == PACK)
        store_sets<PACK, false>(p, shared, out);
    else if (p.places.width == PACK / 2)
        store_sets<PACK / 2, false>(p, shared, out);
    else
        store_sets<1, false>(p, shared, out);
}

template <bool ACROSS>
__device__ inline void normalize_shared(const Arguments& p, unsigned char* memory) {
    const SharedSets shared(p, memory);
    const int count = int(p.elements), bundle = ACROSS ? int(p.bundle) : 1, channels = bundle * int(p.set_channels);
    for (int64 set = blockIdx.x * int64(bundle); set < p.sets; set += gridDim.x * int64(bundle)) {
        const Input* input = p.input + line_offset(p, set, IN);
        const int64 channel = set % p.lines_per_sample * p.set_channels;
        for (int c = threadIdx.x; c < channels; c += blockDim.x)
            shared.parameters[c] = {weight_of(p, channel + c), bias_of(p, channel + c)};
        const bool in_order = !ACROSS && p.in_order;
        if (!in_order) {
            load_values<ACROSS>(p, input, shared.values);
            __syncthreads();
        }
        for (int own = 0; own < bundle; ++own) {
            const Sums sums = in_order ? load_in_order(input, shared.values, count)
                                       : sum_set(shared.values + own * count, count);
            const Moments of_thread = sums.moments(share_of(threadIdx.x, blockDim.x, count));
            const Moments all = merge_threads<block_sum>(of_thread, count);
            if (threadIdx.x == 0) shared.moments[own] = {all.mean, inverse_deviation(p, all)};
        }
        __syncthreads();
        store_values<ACROSS>(p, shared, p.out + line_offset(p, set, RESULT));
        __syncthreads();  // before the next sets come
    }
}

#ifdef NORMALIZE_SETS
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 2) normalize_sets(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    normalize_shared<false>(p, memory);
}
#endif

#ifdef NORMALIZE_BUNDLES
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 2) normalize_bundles(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    normalize_shared<true>(p, memory);
}
#endif
