// Instructions on numbers in registers (a part of ptx.cuh): conversions, selections and maxima.
#pragma once

// ---- 16-bit floats ----

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

// Does the same for bfloat16. NaN becomes 0x7fff: all bits but the sign are set.
__device__ inline unsigned short bfloat16_from_float(float value) {
#ifndef __CUDACC__
    return emulator::bfloat16_from_float(value);
#elif __CUDA_ARCH__ >= 800
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, 0f00000000, %1;" : "=r"(bits) : "f"(value));
    return (unsigned short)bits;
#else
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

// Selects four of the eight bytes of two words. Four bits of `which` name each byte, and the lowest byte comes first.
__device__ inline unsigned byte_select(unsigned low, unsigned high, unsigned which) {
#ifdef __CUDACC__
    unsigned bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(which));
    return bytes;
#else
    return emulator::byte_select(low, high, which);
#endif
}

// Two floats, rounded in the same way to 16-bit floats; the first one is in the low half.
__device__ inline unsigned float16_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
#else
    return float16_from_float(first) | unsigned(float16_from_float(second)) << 16;
#endif
}
__device__ inline unsigned bfloat16_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
#else
    return bfloat16_from_float(first) | unsigned(bfloat16_from_float(second)) << 16;
#endif
}

// The larger, or smaller, magnitudes of two pairs of float16 numbers. Of a NaN and a number the result is the number.
__device__ inline unsigned larger_magnitudes(unsigned a, unsigned b) {
#ifdef __CUDACC__
    unsigned larger;
    asm("{.reg .b32 x, y; abs.f16x2 x, %1; abs.f16x2 y, %2; max.f16x2 %0, x, y;}" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    return emulator::magnitudes(a, b, true);
#endif
}
__device__ inline unsigned smaller_magnitudes(unsigned a, unsigned b) {
#ifdef __CUDACC__
    unsigned smaller;
    asm("{.reg .b32 x, y; abs.f16x2 x, %1; abs.f16x2 y, %2; min.f16x2 %0, x, y;}" : "=r"(smaller) : "r"(a), "r"(b));
    return smaller;
#else
    return emulator::magnitudes(a, b, false);
#endif
}

// The larger magnitudes of two pairs of 16-bit floats. Of a NaN and a number the result is NaN.
__device__ inline unsigned float16_magnitudes_or_nan(unsigned a, unsigned b) {
#ifdef __CUDACC__
    unsigned larger;
    asm("{.reg .b32 x, y; abs.f16x2 x, %1; abs.f16x2 y, %2; max.NaN.f16x2 %0, x, y;}"
        : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    return emulator::magnitudes_or_nan(a, b, 0x7c00u);
#endif
}
__device__ inline unsigned bfloat16_magnitudes_or_nan(unsigned a, unsigned b) {
#ifdef __CUDACC__
    unsigned larger;
    asm("{.reg .b32 x, y; abs.bf16x2 x, %1; abs.bf16x2 y, %2; max.NaN.bf16x2 %0, x, y;}"
        : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    return emulator::magnitudes_or_nan(a, b, 0x7f80u);
#endif
}

// All bits of a half are set where the float16 number of `a` is greater than that of `b`, or one of them is NaN.
__device__ inline unsigned float16_greater_or_nan(unsigned a, unsigned b) {
#ifdef __CUDACC__
    unsigned masks;
    asm("set.gtu.u32.f16x2 %0, %1, %2;" : "=r"(masks) : "r"(a), "r"(b));
    return masks;
#else
    return emulator::greater_or_nan(a, b);
#endif
}

// Converts a 16-bit float to a 32-bit one, exactly.
__device__ inline float float_from_float16(unsigned short bits) {
#ifdef __CUDACC__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return emulator::float_from_float16(bits);
#endif
}

// The bits of the nearest TF32 number (a float whose last 13 bits are zero), ties to even; NaN has all bits set. GPUs
// before compute capability 9.0 have another instruction: it rounds ties away from zero, and a NaN with only its
// last bits set becomes infinite.
__device__ inline unsigned tf32_from_float(float value) {
#ifndef __CUDACC__
    return emulator::tf32_from_float(value);
#else
    unsigned bits;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#endif
    return bits;
#endif
}

// The larger of two numbers, and NaN (all bits set but the sign) if one of them is NaN.
__device__ inline float max_or_nan(float a, float b) {
#ifdef __CUDACC__
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return a != a || b != b ? __uint_as_float(0x7fffffffu) : a > b ? a : b;
#endif
}

// ---- hints to the compiler ----

// Makes the compiler finish a number here, and not where it is used. Memory accesses are not moved across this point.
__device__ inline void settle(unsigned& value) {
#ifdef __CUDACC__
    asm volatile("" : "+r"(value)::"memory");
#endif
}
