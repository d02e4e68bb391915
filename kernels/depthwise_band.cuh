// A line of taps as the right operand of an `mma`: what the mainloops of depthwise convolutions on Tensor Cores share,
// for arrays whose lines are along x (depthwise_mma.cuh) and along the channels (depthwise_last_mma.cu).
#pragma once
#include "scalar.cuh"

// ---- pairs of 16-bit numbers ----

template <typename Half>
struct HalfPairs;
template <>
struct HalfPairs<float16> {
    __device__ static void mma(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]) {
        mma_float16(d, a, b, c);
    }
    __device__ static unsigned larger_magnitudes(unsigned a, unsigned b) { return float16_magnitudes_or_nan(a, b); }
    // A mask with the top bit of each half that is infinite or NaN: all bits of its exponent are set.
    __device__ static unsigned special(unsigned pair) { return ((pair & 0x7fff7fffu) + 0x04000400u) & 0x80008000u; }
};
template <>
struct HalfPairs<bfloat16> {
    __device__ static void mma(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]) {
        mma_bfloat16(d, a, b, c);
    }
    __device__ static unsigned larger_magnitudes(unsigned a, unsigned b) { return bfloat16_magnitudes_or_nan(a, b); }
    __device__ static unsigned special(unsigned pair) { return ((pair & 0x7fff7fffu) + 0x00800080u) & 0x80008000u; }
};

// ---- the weights of a line of taps ----

// Zeros around the weights: DIAGONAL elements, weights from MARGIN on. A line is stored twice, so that pairs that begin
// at odd elements are aligned, too.
constexpr int MARGIN = 14, DIAGONAL = 40;

template <typename Half>
__device__ __forceinline__ void put_on_diagonal(Half* line, int tap, Half weight) {
    line[MARGIN + tap] = line[MARGIN + tap + DIAGONAL - 1] = weight;
}

// Where the lane's pair of weights for the first block of 8 inputs lies in a line. A block begins `skew` inputs before
// the first input of its outputs. The pairs for the next blocks follow at a distance of 8.
__device__ __forceinline__ int band_place(int skew) {
    const int lane = threadIdx.x % 32, place = MARGIN + 2 * (lane % 4) - lane / 4 - skew;
    return place + (place % 2) * (DIAGONAL - 1);
}

// True if 8 outputs reach into a third block of 8 inputs.
__device__ __forceinline__ bool reaches_third_block(int skew, int width) { return skew + width > 9; }
