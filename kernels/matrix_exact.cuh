// Exact recomputation in matrix_conv.cu: the sum of an output as it is defined, from the arrays themselves.
//
// A chunk that holds an absent input is zero, and zero times an infinite weight is NaN, as is an infinite input times a
// zero for a weight that a row does not have; an infinite number splits into infinity and NaN; a number near the
// largest rounds to infinity. None of that is lost in a sum: an output that should be finite, or infinite, is then
// infinite or NaN. So an output that is not finite is computed again, and no other is.
#pragma once
#include "matrix_arguments.cuh"

// The sum of one output. NaN stays NaN, so there it may end. Nothing is unrolled, as it seldom runs and is often
// compiled.
__device__ inline float exact_sum(const Arguments& p, int64 group, int channel_out, int64 sample,
                                  const int (&o)[3]) {
    Progression<int> taps[3];
    int start[3];  // inputs of the first taps
#pragma unroll 1
    for (int a = 0; a < 3; ++a) {
        const int phases = int(p.taps[a].phases), place = o[a] / phases;
        taps[a] = progression(p.taps[a], o[a] - place * phases);
        start[a] = place * int(p.taps[a].step) + taps[a].offset;
    }
    const Element* input = p.input + sample * p.input_batch + group * p.input_group;
    const Element* weight = p.weight + group * p.weight_group + channel_out * p.weight_row;
    float sum = 0;
#pragma unroll 1
    for (int64 channel = 0; channel < p.sum.channels && sum == sum; ++channel)
#pragma unroll 1
        for (int j = 0; j < taps[0].count * taps[1].count * taps[2].count; ++j) {
            int rest = j;
            int64 x = channel * p.input_channel, w = channel * p.weight_channel;
            bool present = true;
#pragma unroll 1
            for (int a = 2; a >= 0; --a) {
                const int next = rest / taps[a].count, tap = rest - next * taps[a].count;
                const int i = start[a] + tap * int(p.taps[a].offset_step);
                rest = next;
                present &= i >= 0 && i < p.taps[a].size_in;
                x += i * p.input_axis[a];
                w += (taps[a].first + tap * int(p.taps[a].tap_step)) * p.axis[a].weight_stride;
            }
            if (present) sum = fmaf(widen<float>(input[x]), widen<float>(weight[w]), sum);
        }
    return sum;
}
