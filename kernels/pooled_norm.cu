// The second half of the fused operation. matrix_conv.cu stores one extremum of each pooling window of a convolution;
// these kernels apply batch norm and tanh to the extrema, and then group norm.
//
//     t   = tanh((pooled - mean[channel]) * scale[channel] + shift[channel])
//     out = (t - mean of the group) / sqrt(variance of the group + eps) * gn_weight[channel] + gn_bias[channel]
//
// where mean and variance of a group are over its t. There are three kernels:
//
//     combine     one block for a channel: mean, scale and shift, from the statistics that all blocks of the
//                 convolution have stored, or from the caller's statistics
//     normalize   one block for a group of channels of a sample, whose values stay in shared memory between
//                 one load and one store
//     activate    for groups that do not fit in shared memory: it replaces the extrema by t, and the kernels of
//                 normalize.cu compute the group norm
//
// Sums are trees that depend on the sizes alone, so the bits are the same in every run.
//
// Macros: OUTPUT, the element type of the result.
//
// Launch: combine and activate take any number of blocks of THREADS threads; normalize takes samples * groups blocks of
// whole warps, at most MOST_THREADS threads, with 4 bytes of shared memory for each value of a group.

#include "block_sum.cuh"
#include "moments.cuh"
#include "ptx.cuh"

constexpr int THREADS = 256;  // threads of `combine` and `activate`
constexpr int WARPS = THREADS / 32;
constexpr int MOST_THREADS = 512;  // most threads of `normalize`
constexpr int RESIDENT = 3;        // blocks of `normalize` that a multiprocessor shall hold
constexpr int BATCH = 5;           // values that a lane loads at a time
constexpr int UNIT = 2 * BATCH * 32;

typedef OUTPUT Output;

// A number as the sum of two floats, so that a difference from a large number loses no bits.
struct Number {
    float high, low;
    __device__ Number(float high, float low) : high(high), low(low) {}
    __device__ explicit Number(double value) : high(float(value)), low(float(value - high)) {
        if (is_special(low)) low = 0;
    }
    __device__ float from(float value) const { return (value - high) - low; }
};

// The affine map of the values of a channel.
struct __align__(16) Affine {
    Number mean;
    float scale, shift;
    __device__ float of(float value) const { return fmaf(mean.from(value), scale, shift); }
    // Returns the map of lane `k` to all lanes of the warp.
    __device__ Affine of_lane(int k) const {
        return {{__shfl_sync(~0u, mean.high, k), __shfl_sync(~0u, mean.low, k)},
                __shfl_sync(~0u, scale, k),
                __shfl_sync(~0u, shift, k)};
    }
};

struct Arguments {
    float* pooled;               // [sample][channel][space]
    const PartMoments* partial;  // [part][channel]; null where mean and var are given
    Affine* affine;              // [channel]; it may share the memory of the first part
    Output* out;
    Parameter mean, var, bn_weight, bn_bias, gn_weight, gn_bias;
    int64 samples, parts, channels, groups, group_channels, space, width;
    int64 out_batch, out_channel, out_axis[2];  // strides in elements
    double eps;
};

extern "C" __global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ Arguments p) {
    for (int64 c = blockIdx.x; c < p.channels; c += gridDim.x) {
        double mean, var;
        if (p.partial) {
            Moments moments = {0, 0, 0};
            for (int64 part = threadIdx.x; part < p.parts; part += THREADS)
                moments = merge(moments, moments_of(p.partial[part * p.channels + c]));
            const Moments all = merge_threads<block_sum>(moments, block_sum(moments.count));
            mean = all.mean, var = all.m2 / all.count;
        } else {
            mean = load_parameter<double>(p.mean, c), var = load_parameter<double>(p.var, c);
        }
        if (threadIdx.x > 0) continue;
        p.affine[c] = {Number(mean), float(load_parameter<double>(p.bn_weight, c) / sqrt(var + p.eps)),
                       load_parameter<float>(p.bn_bias, c)};
    }
}

// A warp computes a channel of a sample.
extern "C" __global__ void __launch_bounds__(THREADS) activate(const __grid_constant__ Arguments p) {
    const int64 warps = int64(gridDim.x) * WARPS, channels = p.samples * p.channels;
    for (int64 c = int64(blockIdx.x) * WARPS + threadIdx.x / 32; c < channels; c += warps) {
        const Affine affine = p.affine[c % p.channels];
        float* const values = p.pooled + c * p.space;
#pragma unroll 4
        for (int64 i = threadIdx.x % 32; i < p.space; i += 32) values[i] = tanhf(affine.of(values[i]));
    }
}

// tanh, by tanhf for float32 results. For 16-bit results the absolute error is below 3e-7 and the relative error below
// 4e-6.
__device__ inline float tanh_for(float x, float) { return tanhf(x); }
template <typename Sixteen>
__device__ inline float tanh_for(float x, Sixteen) {
    constexpr float TWICE_LOG2_E = 2.8853900817779268f;
    const float near_zero = fmaf(x * x * x, -1.0f / 3, x);
    const float others = fmaf(-2, __fdividef(1, 1 + exp2f(TWICE_LOG2_E * x)), 1);
    return fabsf(x) < 0.05f ? near_zero : others;
}

// Divides the values of a group of channels into units: up to UNIT values of one channel, a few BATCHes for each lane.
// The warps take units in turn. For 32 units of a warp, each lane holds the affine map of the channel of one unit.
struct Units {
    const int space, parts, count;  // values of a channel, units of a channel, units of all channels
    __device__ Units(int space, int channels)
        : space(space), parts((space + UNIT - 1) / UNIT), count(parts * channels) {}

    // know(channel) returns the affine map of a channel. use(map, channel, begin, left) computes a lane's batch, which
    // begins at value `begin` of the channel; `left` values of the channel remain from there on.
    template <typename Know, typename Use>
    __device__ __forceinline__ void each(Know know, Use use) const {
        const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
        for (int first = threadIdx.x / 32; first < count; first += warps * 32) {
            const int unit = first + lane * warps, channel = unit < count ? unit / parts : 0;
            const Affine known = know(channel);
            for (int k = 0; k < 32 && first + k * warps < count; ++k) {
                const Affine affine = known.of_lane(k);
                const int at = __shfl_sync(~0u, channel, k), begin = (first + k * warps - at * parts) * UNIT;
                const int end = begin + UNIT < space ? begin + UNIT : space;
                for (int start = begin; start < end; start += BATCH * 32)
                    use(affine, at, start + lane, space - start - lane);
            }
        }
    }
};

// Issues copies of `count` floats, SIZE floats at a time.
template <int SIZE>
__device__ inline void bring(float* to, const float* from, int count) {
#pragma unroll 4
    for (int i = threadIdx.x * SIZE; i < count; i += blockDim.x * SIZE)
        copy_async<SIZE * 4>(to + i, from + i, SIZE * 4);
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS, RESIDENT) normalize(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    float* const values = (float*)memory;
    const int channels = int(p.group_channels), space = int(p.space), count = channels * space;
    const Units units(space, channels);
    const int groups = int(p.groups), sample = blockIdx.x / groups, first = (blockIdx.x - sample * groups) * channels;
    const float* const from = p.pooled + (sample * p.channels + first) * space;
    if (count % 4 == 0)
        bring<4>(values, from, count);
    else
        bring<1>(values, from, count);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    // A batch is summed in float, and the batches in double.
    double sum = 0;
    units.each(
        [&](int channel) { return p.affine[first + channel]; },
        [&](const Affine& affine, int channel, int begin, int left) {
            float* const at = values + channel * space + begin;
            float found[BATCH], part = 0;
#pragma unroll
            for (int i = 0; i < BATCH; ++i) found[i] = i * 32 < left ? at[i * 32] : 0;
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                found[i] = tanh_for(affine.of(found[i]), Output());
                part += i * 32 < left ? found[i] : 0;
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i)
                if (i * 32 < left) at[i * 32] = found[i];
            sum += part;
        });
    const double share = 1.0 / count;
    const Number mean(block_sum(sum) * share);  // its barriers follow the last value of t
    double m2 = 0;
    const int four = count / 4;
    for (int i = threadIdx.x; i < four; i += blockDim.x) {
        const Four found = ((const Four*)values)[i];
        float part = 0;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float deviation = mean.from(found.of[k]);
            part = fmaf(deviation, deviation, part);
        }
        m2 += part;
    }
    if (threadIdx.x < count % 4) {
        const double deviation = mean.from(values[four * 4 + threadIdx.x]);
        m2 += deviation * deviation;
    }
    const float rate = float(rsqrt(block_sum(m2) * share + p.eps));
    const int width = int(p.width);
    const bool dense = p.out_axis[1] == 1 && p.out_axis[0] == width;
    Output* const to = p.out + sample * p.out_batch + first * p.out_channel;
    units.each(
        [&](int channel) {
            return Affine{mean, load_parameter<float>(p.gn_weight, first + channel) * rate,
                          load_parameter<float>(p.gn_bias, first + channel)};
        },
        [&](const Affine& affine, int channel, int begin, int left) {
            const float* const from = values + channel * space + begin;
            Output* const out = to + channel * p.out_channel;
            float found[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) found[i] = i * 32 < left ? from[i * 32] : 0;
#pragma unroll
            for (int i = 0; i < BATCH; ++i) found[i] = affine.of(found[i]);
            if (dense) {
#pragma unroll
                for (int i = 0; i < BATCH; ++i)
                    if (i * 32 < left) out[begin + i * 32] = narrow<Output>(found[i]);
            } else {
#pragma unroll
                for (int i = 0; i < BATCH; ++i) {
                    const int at = begin + i * 32;
                    if (i * 32 < left)
                        out[at / width * p.out_axis[0] + at % width * p.out_axis[1]] = narrow<Output>(found[i]);
                }
            }
        });
}
