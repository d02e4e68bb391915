// Batch norm and group norm: sets of values brought to mean 0 and variance 1, then an affine map for
// each channel and, where asked for, tanh.
//
//     out = (in - mean[set]) / sqrt(var[set] + eps) * weight[channel] + bias[channel]
//
// A set is a channel over all samples (batch norm) or a group of channels of one sample (group norm).
// All arithmetic is in float64 with one rounding at the end: a pass over an array waits for memory,
// and so nothing is lost where the mean is large against the deviation.
//
// Four kernels, each over the values or sets in its name:
//
//     statistics   one block a segment of a set: mean and sum of squared deviations of the segment
//     combine      one block a set: the set's mean and 1 / sqrt(var + eps) from its segments
//     given        one thread a channel: the same from the caller's mean and variance
//     normalize    one thread a value, grid-strided
//
// Segments are a function of the set's size alone, each is reduced by the same tree, and they are
// combined in order: the same bits in every run, and for group norm whatever the batch. Means and
// squared deviations (M2) combine by the formula of Chan, Golub and LeVeque (1979).
//
// Macros (set by cupyconv/_plan.py): INPUT and OUTPUT, the element types. Launch: THREADS threads;
// statistics: segments * sets blocks, combine: sets blocks, given and normalize: any number; all are
// grid-strided.

#include "moments.cuh"
#include "view.cuh"

constexpr int THREADS = 256;
constexpr int UNROLL = 8;

typedef INPUT Input;
typedef OUTPUT Output;

struct Arguments {
    const Input* input;
    Output* out;
    double* moments;   // [sets][2]: mean, 1 / sqrt(var + eps)
    double* partials;  // [sets][segments][2]: mean, M2
    Parameter mean, var, weight, bias;
    int64 samples, channels, space;   // shape of the array, spatial axes as one
    int64 sets, sets_per_sample, set_channels;
    int64 elements;    // of one set
    int64 segment;     // elements of a segment, a multiple of THREADS
    int64 segments;    // of one set
    int64 tanh;        // whether tanh follows
    View set_view;     // offset of a set's first value
    View element_view;  // offset of a value in its set
    View input_view, out_view;  // offset of a value in the arrays
    double eps;
};

// Merges the moments of all threads by a fixed tree; the result is valid in thread 0.
__device__ inline Moments merge_block(Moments own) {
    __shared__ Moments shared[THREADS];
    __syncthreads();  // a former round may still be read
    shared[threadIdx.x] = own;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            own = merge(own, shared[threadIdx.x + half]);
            shared[threadIdx.x] = own;
        }
    }
    return own;
}

extern "C" __global__ void __launch_bounds__(THREADS) statistics(const __grid_constant__ Arguments p) {
    for (int64 block = blockIdx.x; block < p.sets * p.segments; block += gridDim.x) {
        const int64 set = block / p.segments, begin = (block - set * p.segments) * p.segment;
        const int64 end = begin + p.segment < p.elements ? begin + p.segment : p.elements;
        const Input* input = p.input + offset_of(p.set_view, set);
        Moments own = {0, 0, 0};
        for (int64 first = begin + threadIdx.x; first < end; first += THREADS * UNROLL) {
            // A handful of values at a time: their mean, their deviations from it, one merge.
            double value[UNROLL];
            Moments part = {0, 0, 0};
            double sum = 0;
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const int64 element = first + i * THREADS;
                value[i] = 0;
                if (element < end) {
                    value[i] = widen<double>(input[offset_of(p.element_view, element)]);
                    part.count += 1;
                }
                sum += value[i];
            }
            part.mean = sum / part.count;
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const double deviation = value[i] - part.mean;
                if (first + i * THREADS < end) part.m2 += deviation * deviation;
            }
            own = merge(own, part);
        }
        const Moments all = merge_block(own);
        if (threadIdx.x == 0) {
            p.partials[2 * block] = all.mean;
            p.partials[2 * block + 1] = all.m2;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ Arguments p) {
    for (int64 set = blockIdx.x; set < p.sets; set += gridDim.x) {
        Moments own = {0, 0, 0};
        for (int64 i = threadIdx.x; i < p.segments; i += THREADS) {
            const int64 left = p.elements - i * p.segment;
            const double* partial = p.partials + 2 * (set * p.segments + i);
            own = merge(own, {double(left < p.segment ? left : p.segment), partial[0], partial[1]});
        }
        const Moments all = merge_block(own);
        if (threadIdx.x == 0) {
            p.moments[2 * set] = all.mean;
            p.moments[2 * set + 1] = 1 / sqrt(all.m2 / all.count + p.eps);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) given(const __grid_constant__ Arguments p) {
    for (int64 c = blockIdx.x * int64(THREADS) + threadIdx.x; c < p.channels; c += gridDim.x * int64(THREADS)) {
        p.moments[2 * c] = load_parameter<double>(p.mean, c);
        p.moments[2 * c + 1] = 1 / sqrt(load_parameter<double>(p.var, c) + p.eps);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) normalize(const __grid_constant__ Arguments p) {
    const int64 values = p.samples * p.channels * p.space;
    for (int64 i = blockIdx.x * int64(THREADS) + threadIdx.x; i < values; i += gridDim.x * int64(THREADS)) {
        const int64 row = i / p.space, n = row / p.channels, c = row - n * p.channels;
        const int64 set = n * p.sets_per_sample + c / p.set_channels;
        double value = widen<double>(p.input[offset_of(p.input_view, i)]);
        value = (value - p.moments[2 * set]) * p.moments[2 * set + 1];
        if (p.weight.data) value *= load_parameter<double>(p.weight, c);
        if (p.bias.data) value += load_parameter<double>(p.bias, c);
        p.out[offset_of(p.out_view, i)] = narrow<Output>(p.tanh ? tanh(value) : value);
    }
}
