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
//
// Other sets are normalised by several kernels, which read the input twice (once where statistics are given):
//
//     statistics         one block for a segment of a set: mean and sum of squared deviations of the segment
//     statistics_across  one block for a segment of PACK sets that are neighbours in memory: channels come last
//     combine            one block for a set: mean and 1 / sqrt(var + eps) from the segments of the set
//     given              one thread for a channel: mean and 1 / sqrt(var + eps) from the caller's statistics
//     normalize          UNROLL packs of values for a thread
//     normalize_tanh     `normalize`, and then tanh
//
// A thread sums packs of PACK values, which are 16 bytes. It loads as many values at a time as are
// contiguous and aligned: a whole pack, half a pack or a single value. Which thread sums which values of
// a set follows from their numbers in the set, and never from their addresses. Segments depend on the
// size of the set alone, each is reduced by the same tree, and they are combined in order: so the bits
// are the same in every run and for every layout, and for group norm whatever the batch.
//
// Macros (set by cupyconv/_kernels/normalize.py):
//     INPUT, OUTPUT   element types
//     STATISTICS, STATISTICS_ACROSS, COMBINE, GIVEN, NORMALIZE, NORMALIZE_TANH or NORMALIZE_SETS
//                     the one kernel that is compiled: to compile all takes several times as long
//
// Launch: THREADS threads; normalize_sets takes whole warps, up to MOST_THREADS, and shared memory for the
// parameters and packs of a set. Blocks: one for each set for normalize_sets and combine, segments * sets for
// statistics, segments * sets / PACK for statistics_across, any number for given and normalize. All kernels are
// grid-strided.

#include "moments.cuh"
#include "view.cuh"

constexpr int THREADS = 256;
constexpr int MOST_THREADS = 384;
constexpr int MOST_CHANNELS = 4;
constexpr int RESIDENT = 3;  // blocks that a multiprocessor shall hold of the kernels that walk through arrays

typedef INPUT Input;
typedef OUTPUT Output;

constexpr int PACK = 16 / sizeof(Input);

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
    Pair* partials;  // [sets][segments]: mean, M2
    Parameter mean, var, weight, bias;
    double eps;
    int64 segment;   // elements of a segment, a multiple of PACK
    int64 segments;  // segments of one set
    int64 channels;
    int64 sets, sets_per_sample, set_channels;  // sets_per_sample is the number of all sets for batch norm
    int64 sample_strides[2], set_strides[2];    // strides of input and out from one sample, or set, to the next
    int64 elements;                             // elements of one set
    int64 in_order;  // 1 if a set is whole packs, aligned, in the order of the numbers
    // The values of a set. For normalize_sets they are walked in the order of the input. For other kernels
    // `starts` has all values in the order of their numbers, and `width` values are loaded at a time.
    Walk<2> values;
    // The outputs of normalize, or of a block of normalize_sets, in the order of out. All steps of a thread have the
    // same channels and sets. For normalize_sets channels count from the first one of the set.
    Walk<4> places;
    // Channels and sets from one neighbour in a step to the next; 0 for more than MOST_CHANNELS neighbours.
    int64 to_channel, to_set;
};

// ---- statistics ----

// Sums over a thread's values, each less the first value. The first value is not further
// from the mean than sqrt(M2), so at most `count` times M2 cancels in the end: a few bits of float64.
struct Sums {
    double count, first, sum, squares;

    __device__ void add(Input value) {
        const double deviation = widen<double>(value) - first;
        sum += deviation;
        squares = fma(deviation, deviation, squares);
    }
    // Adds the first `present` values of a pack, or all of them.
    __device__ void add(const Pack<Input, PACK>& pack, int64 present) {
        if (count == 0) first = widen<double>(pack.of[0]);
        if (present >= PACK) {  // no test for each value, so that one instruction loads all
            count += PACK;
#pragma unroll
            for (int i = 0; i < PACK; ++i) add(pack.of[i]);
            return;
        }
        count += double(present);
#pragma unroll
        for (int i = 0; i < PACK; ++i) {
            if (i >= present) break;
            add(pack.of[i]);
        }
    }
    __device__ Moments moments() const {
        if (count == 0) return {0, 0, 0};
        const double mean = sum / count, m2 = fma(-sum, mean, squares);
        if (is_special(squares) && !is_special(sum)) return {count, first + mean, squares};  // infinite
        return {count, first + mean, m2 < 0 ? 0 : m2};
    }
};

__device__ inline double inverse_deviation(const Arguments& p, const Moments& moments) {
    return 1 / sqrt(moments.m2 / moments.count + p.eps);
}

// The offset of the first value of a set, in the input or in out.
__device__ inline int64 set_offset(const Arguments& p, int64 set, int array) {
    const int64 sample = set / p.sets_per_sample;
    return sample * p.sample_strides[array] + (set - sample * p.sets_per_sample) * p.set_strides[array];
}

__device__ inline int64 segment_end(const Arguments& p, int64 begin) {
    return begin + p.segment < p.elements ? begin + p.segment : p.elements;
}

// The pack of a set that begins with value `number`, by loads of WIDTH values. Values from `end` on are zero.
template <int WIDTH>
__device__ inline Pack<Input, PACK> load_pack(const Arguments& p, const Input* input, int64 number, int64 end) {
    Pack<Input, PACK> pack = {};
#pragma unroll
    for (int i = 0; i < PACK; i += WIDTH) {
        if (number + i >= end) break;
        const auto part = *(const Pack<Input, WIDTH>*)(input + locate(p.values.starts, number + i).offset[IN]);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) pack.of[i + j] = part.of[j];
    }
    return pack;
}

// The sums of a thread's share of the values from `begin` to `end`.
template <int WIDTH>
__device__ inline Sums sum_segment(const Arguments& p, const Input* input, int64 begin, int64 end) {
    constexpr int PACKS = UNROLL * WIDTH < PACK ? 1 : UNROLL * WIDTH / PACK;
    Sums sums = {0, 0, 0, 0};
    for (int64 first = begin + threadIdx.x * PACK; first < end; first += PACKS * THREADS * PACK) {
        Pack<Input, PACK> packs[PACKS];  // all loads are issued before the first result is used
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            const int64 number = first + i * THREADS * PACK;
            if (number < end) packs[i] = load_pack<WIDTH>(p, input, number, end);
        }
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
            const int64 number = first + i * THREADS * PACK;
            if (number < end) sums.add(packs[i], end - number);
        }
    }
    return sums;
}

__device__ inline void store_partial(const Arguments& p, int64 set, int64 part, const Moments& moments) {
    if (threadIdx.x == 0) p.partials[set * p.segments + part] = {moments.mean, moments.m2};
}

#ifdef STATISTICS
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) statistics(const __grid_constant__ Arguments p) {
    for (int64 block = blockIdx.x; block < p.sets * p.segments; block += gridDim.x) {
        // Neighbouring blocks have neighbouring sets, which may share what they load.
        const int64 part = block / p.sets, set = block - part * p.sets, begin = part * p.segment;
        const int64 end = segment_end(p, begin);
        const Input* input = p.input + set_offset(p, set, IN);
        const Sums sums = p.values.width == PACK       ? sum_segment<PACK>(p, input, begin, end)
                          : p.values.width == PACK / 2 ? sum_segment<PACK / 2>(p, input, begin, end)
                                                : sum_segment<1>(p, input, begin, end);
        store_partial(p, set, part, merge_block(sums.moments(), double(end - begin)));
    }
}
#endif

#ifdef STATISTICS_ACROSS
extern "C" __global__ void __launch_bounds__(THREADS, 2) statistics_across(const __grid_constant__ Arguments p) {
    const int64 bundles = p.sets / PACK;
    for (int64 block = blockIdx.x; block < bundles * p.segments; block += gridDim.x) {
        const int64 part = block / bundles, set = (block - part * bundles) * PACK, begin = part * p.segment;
        const int64 end = segment_end(p, begin);
        const Input* input = p.input + set;
        Sums sums[PACK] = {};
        for (int64 first = begin + threadIdx.x * PACK; first < end; first += THREADS * PACK) {
            Pack<Input, PACK> rows[PACK];  // each row has one value of each set
#pragma unroll
            for (int i = 0; i < PACK; ++i)
                if (first + i < end)
                    rows[i] = *(const Pack<Input, PACK>*)(input + locate(p.values.starts, first + i).offset[IN]);
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                Pack<Input, PACK> pack;
#pragma unroll
                for (int i = 0; i < PACK; ++i) pack.of[i] = rows[i].of[j];
                sums[j].add(pack, end - first);
            }
        }
#pragma unroll
        for (int j = 0; j < PACK; ++j)
            store_partial(p, set + j, part, merge_block(sums[j].moments(), double(end - begin)));
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
        for (int64 i = threadIdx.x; i < p.segments; i += THREADS) {
            const int64 begin = i * p.segment;
            const Pair partial = p.partials[set * p.segments + i];
            moments = merge(moments, {double(segment_end(p, begin) - begin), partial.of[0], partial.of[1]});
        }
        const Moments all = merge_block(moments, double(p.elements));
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

// Normalises a thread's steps of WIDTH values. The channels of the values of a step repeat.
template <bool TANH, int WIDTH, int CHANNELS>
__device__ inline void normalize_steps(
    const Arguments& p, const Steps<4>& steps, const Input* from, const Affine (&affine)[CHANNELS], Output* out) {
    typedef typename BitsOf<WIDTH * sizeof(Output)>::type Bits;
    Pack<Input, WIDTH> packs[UNROLL];  // all loads are issued before the first result is used
#pragma unroll
    for (int i = 0; i < UNROLL; ++i)
        if (steps.has(p.places, i)) packs[i] = *(const Pack<Input, WIDTH>*)(from + steps.offset(p.places, i, FROM));
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
        union {
            Pack<Output, WIDTH> pack;
            Bits bits;
        } results;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            const double result = affine[j % CHANNELS].apply(packs[i].of[j]);
            results.pack.of[j] = narrow<Output>(TANH ? tanh(result) : result);
        }
        Output* const to = out + steps.offset(p.places, i, RESULT);
        store_bits((Bits*)to, results.bits, steps.has(p.places, i));
    }
}

template <bool TANH, int WIDTH>
__device__ inline void normalize_places(const Arguments& p) {
    constexpr int CHANNELS = WIDTH > MOST_CHANNELS ? 1 : WIDTH;
    const int64 threads = gridDim.x * int64(THREADS);
    for (int64 thread = blockIdx.x * int64(THREADS) + threadIdx.x; thread < p.places.threads; thread += threads) {
        const Steps<4> steps(p.places, thread);
        const int64 set = steps.start.offset[SET], channel = steps.start.offset[CHANNEL];
        const bool one = !p.to_channel && !p.to_set;
        Affine affine[CHANNELS];
#pragma unroll
        for (int j = 0; j < CHANNELS; ++j)
            affine[j] = j && one ? affine[0] : affine_at(p, set + j * p.to_set, channel + j * p.to_channel);
        normalize_steps<TANH, WIDTH>(p, steps, p.input, affine, p.out);
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

// Loads a set to shared memory, in the order of the numbers.
template <int WIDTH>
__device__ inline void load_set(const Arguments& p, const Input* input, Input* values) {
    for (int thread = threadIdx.x; thread < int(p.values.threads); thread += blockDim.x) {
        const Steps<2> steps(p.values, thread);
        Pack<Input, WIDTH> packs[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            if (steps.has(p.values, i))
                packs[i] = *(const Pack<Input, WIDTH>*)(input + steps.offset(p.values, i, IN));
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            if (steps.has(p.values, i))
                *(Pack<Input, WIDTH>*)(values + steps.offset(p.values, i, NUMBER)) = packs[i];
    }
}

// Copies a thread's share of a set that lies in order to shared memory, and returns its sums.
__device__ inline Sums load_in_order(const Input* input, Input* values, int count) {
    typedef Pack<Input, PACK> Whole;
    Sums sums = {0, 0, 0, 0};
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
            sums.add(packs[i], PACK);
        }
    }
    return sums;
}

// Does the same for a set that lies in another order: the whole set is loaded to shared memory first.
__device__ inline Sums load_and_sum(const Arguments& p, const Input* input, Input* values, int count) {
    if (p.values.width == PACK)
        load_set<PACK>(p, input, values);
    else if (p.values.width == PACK / 2)
        load_set<PACK / 2>(p, input, values);
    else
        load_set<1>(p, input, values);
    __syncthreads();
    Sums sums = {0, 0, 0, 0};
    for (int first = threadIdx.x * PACK; first < count; first += blockDim.x * PACK)
        sums.add(*(const Pack<Input, PACK>*)(values + first), count - first);
    return sums;
}

// Stores the normalised values of a set; `parameters` has weight and bias of each channel of the set.
template <int WIDTH>
__device__ inline void store_set(
    const Arguments& p, const Input* values, double mean, double inverse, const Pair* parameters, Output* out) {
    for (int thread = threadIdx.x; thread < int(p.places.threads); thread += blockDim.x) {
        const Steps<4> steps(p.places, thread);
        const Pair parameter = parameters[steps.start.offset[CHANNEL]];
        const Affine affine[] = {{mean, inverse, parameter.of[0], parameter.of[1]}};
        normalize_steps<false, WIDTH>(p, steps, values, affine, out);
    }
}

#ifdef NORMALIZE_SETS
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 2) normalize_sets(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(shared);
    Pair* const parameters = (Pair*)shared;
    Input* const values = (Input*)(parameters + p.set_channels);
    const int count = int(p.elements);
    for (int64 set = blockIdx.x; set < p.sets; set += gridDim.x) {
        const Input* input = p.input + set_offset(p, set, IN);
        const int64 channel = set % p.sets_per_sample * p.set_channels;
        for (int c = threadIdx.x; c < int(p.set_channels); c += blockDim.x)
            parameters[c] = {weight_of(p, channel + c), bias_of(p, channel + c)};
        const Sums sums = p.in_order ? load_in_order(input, values, count) : load_and_sum(p, input, values, count);
        const Moments all = merge_block(sums.moments(), count);  // its barriers follow the last load of the set

        const double inverse = inverse_deviation(p, all);
        Output* const out = p.out + set_offset(p, set, RESULT);
        if (p.places.width == PACK)
            store_set<PACK>(p, values, all.mean, inverse, parameters, out);
        else if (p.places.width == PACK / 2)
            store_set<PACK / 2>(p, values, all.mean, inverse, parameters, out);
        else
            store_set<1>(p, values, all.mean, inverse, parameters, out);
        __syncthreads();  // before the next set comes
    }
}
#endif
