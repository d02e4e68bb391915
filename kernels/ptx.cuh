// Every PTX instruction that a kernel uses is one function here. Each has its definition for a GPU
// and, beside it, one in plain C++ for compilers without CUDA.
#pragma once

// The nearest 16-bit float of a 32-bit one, ties to even, as bits.
__device__ inline unsigned short float16_from_float(float value) {
#ifdef __CUDACC__
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return emulator::float16_from_float(value);
#endif
}

// The 32-bit float of a 16-bit one, exactly.
__device__ inline float float_from_float16(unsigned short bits) {
#ifdef __CUDACC__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return emulator::float_from_float16(bits);
#endif
}
