// The second half of the fused operation, on what matrix_conv.cu has left of a convolution: batch norm and
// tanh of the extrema of its windows, then group norm.
//
//     t   = tanh((pooled - mean[channel]) * scale[channel] + shift[channel])
//     out = (t - mean of the group's t) / sqrt(their variance + eps) * gn_weight[channel] + gn_bias[channel]
//
// Two kernels:
//
//     combine     one warp a channel: its statistics from those of all blocks of the convolution, or from
//                 the caller's; then mean, scale and shift
//     normalize   one block a sample and group of channels, whose values stay in shared memory from their
//                 one load to their store
//
// Sums are taken by trees that the sizes alone determine: the same bits in every run.
//
// Macros: OUTPUT, the element type of the result. Launch: THREADS threads; combine: any number of blocks,
// normalize: samples * groups of them, with 4 bytes of shared memory for each value of a group.

#include "block_sum.cuh"
#include "moments.cuh"
#include "ptx.cuh"

constexpr int THREADS = 256;
constexpr int BATCH = 5;  // values that a lane loads together

typedef OUTPUT Output;

struct Affine {
    double mean;
    float scale, shift;
};

// A number in two floats: differences from it lose nothing where it is large.
struct Number {
    float high, low;
    __device__ explicit Number(double value) : high(float(value)), low(float(value - high)) {}
    __device__ float from(float value) const { return (value - high) - (is_special(low) ? 0.0f : low); }
};

struct Arguments {
    const float* pooled;         // [sample][channel][space]
    const PartMoments* partial;  // [part][channel]; null where mean and var are given
    Affine* affine;              // [channel], may lie in the place of the first part
    Output* out;
    Parameter mean, var, bn_weight, bn_bias, gn_weight, gn_bias;
    int64 parts, channels, groups, space, width;
    int64 out_batch, out_channel, out_axis[2];  // strides in elements
    double eps;
};

extern "C" __global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ Arguments p) {
    const int lane = threadIdx.x % 32, warps = gridDim.x * (THREADS / 32);
    for (int64 c = blockIdx.x * (THREADS / 32) + threadIdx.x / 32; c < p.channels; c += warps) {
        Moments all = {0, 0, 0};
        if (p.partial) {
            for (int64 part = lane; part < p.parts; part += 32)
                all = merge(all, moments_of(p.partial[part * p.channels + c]));
            for (int apart = 16; apart > 0; apart /= 2)
                all = merge(all, {__shfl_down_sync(~0u, all.count, apart), __shfl_down_sync(~0u, all.mean, apart),
                                  __shfl_down_sync(~0u, all.m2, apart)});
        }
        if (lane > 0) continue;
        const double mean = p.partial ? all.mean : load_parameter<double>(p.mean, c);
        const double var = p.partial ? all.m2 / all.count : load_parameter<double>(p.var, c);
        p.affine[c] = {mean, float(load_parameter<double>(p.bn_weight, c) / sqrt(var + p.eps)),
                       load_parameter<float>(p.bn_bias, c)};
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) normalize(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    float* const values = (float*)memory;
    const int space = int(p.space), channels = int(p.channels / p.groups);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64 sample = blockIdx.x / p.groups, first = blockIdx.x % p.groups * channels;
    const double count = double(channels) * space;
    // A warp has every so many-th channel. Sums of a lane's values of one channel are short.
    double sum = 0;
    for (int own = warp; own < channels; own += THREADS / 32) {
        const Affine affine = p.affine[first + own];
        const Number center(affine.mean);
        const float* const from = p.pooled + (sample * p.channels + first + own) * space;
        float part = 0;
        for (int start = lane; start < space; start += BATCH * 32) {
            float batch[BATCH];  // all on their way before the first one is needed
#pragma unroll
            for (int k = 0; k < BATCH; ++k)
                if (start + k * 32 < space) batch[k] = from[start + k * 32];
#pragma unroll
            for (int k = 0; k < BATCH; ++k) {
                if (start + k * 32 >= space) break;
                const float value = tanhf(fmaf(center.from(batch[k]), affine.scale, affine.shift));
                values[own * space + start + k * 32] = value;
                part += value;
            }
        }
        sum += part;
    }
    const double mean = block_sum(sum) / count;
    const Number center(mean);
    double m2 = 0;
    for (int own = warp; own < channels; own += THREADS / 32) {
        float part = 0;
#pragma unroll 4
        for (int i = lane; i < space; i += 32) {
            const float deviation = center.from(values[own * space + i]);
            part = fmaf(deviation, deviation, part);
        }
        m2 += part;
    }
    const float rate = float(1 / sqrt(block_sum(m2) / count + p.eps));
    const bool dense = p.out_axis[1] == 1 && p.out_axis[0] == p.width;
    for (int own = warp; own < channels; own += THREADS / 32) {
        const int64 channel = first + own;
        const float scale = load_parameter<float>(p.gn_weight, channel), shift = load_parameter<float>(p.gn_bias, channel);
        Output* const out = p.out + sample * p.out_batch + channel * p.out_channel;
#pragma unroll 4
        for (int i = lane; i < space; i += 32) {
            const float value = fmaf(center.from(values[own * space + i]) * rate, scale, shift);
            out[dense ? i : i / int(p.width) * p.out_axis[0] + i % int(p.width) * p.out_axis[1]] =
                narrow<Output>(value);
        }
    }
}
