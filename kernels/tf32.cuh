// Parts of float32 numbers as Tensor Cores multiply them.
#pragma once
#include "scalar.cuh"

// The parts of a float: the nearest TF32 number, and the first 11 bits of the rest, which has at most 12. Tensor Cores
// of compute capability 9.0 ignore further bits, as a test shows; PTX does not say so.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
constexpr unsigned TF32_BITS = 0xffffe000u;
#else
constexpr unsigned TF32_BITS = 0xffffffffu;
#endif
__device__ inline unsigned tf32_part(unsigned bits, int part) {
    const float value = __uint_as_float(bits);
    const unsigned high = tf32_from_float(value);
    return part == 0 ? high : __float_as_uint(value - __uint_as_float(high)) & TF32_BITS;
}
