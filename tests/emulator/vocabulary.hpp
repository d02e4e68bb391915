// The CUDA words that kernels use, for a C++ compiler on the CPU. It is included before a
// shipped .cu file, which is compiled as it is; what a word does is in runtime.cpp.
#pragma once
#include "runtime.hpp"

// What is taken of C's library. To read its headers, with all that they have in C++, would be most of
// what the compiler does for a small kernel.
extern "C" {
void* memcpy(void* to, const void* from, unsigned long bytes);
double fabs(double);
double fma(double, double, double);
double sqrt(double);
double tanh(double);
float exp2f(float);
float fabsf(float);
float fmaf(float, float, float);
float nextafterf(float, float);
float tanhf(float);
}

#define __device__
#define __host__
#define __global__ inline  // of several kernels of a file, the one that is called is compiled
#define __launch_bounds__(...)
#define __grid_constant__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline  // copies in all callers would take long to compile
#define __align__(n) __attribute__((aligned(n)))
// One block runs at a time, so its shared memory is a section of the library that it is built into.
// In a template the compiler ignores the section: shared memory is declared in the kernel itself.
#define __shared__ static __attribute__((section("emulated_shared")))

#define threadIdx (emulator::thread_index())
#define blockIdx (emulator::block_index())
#define gridDim (emulator::grid_size())
#define blockDim (emulator::block_size())

// A little more inexact than it may be: up to two and a half units in the last place, here too little.
inline float __fdividef(float a, float b) { return nextafterf(nextafterf(a / b, 0), 0); }
inline double rsqrt(double value) { return 1 / sqrt(value); }
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline long long __double_as_longlong(double value) {
    long long bits;
    memcpy(&bits, &value, 8);
    return bits;
}
inline float __double2float_rz(double value) {
    const float nearest = float(value);
    return fabs(double(nearest)) > fabs(value) ? nextafterf(nearest, 0) : nearest;
}
inline double __dmul_rn(double a, double b) { return a * b; }

inline unsigned atomicOr(unsigned* address, unsigned value) {
    return unsigned(emulator::atomic((int*)address, int(value), [](int a, int b) { return a | b; }));
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return unsigned((unsigned long long)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// The line tells barriers apart: threads that wait at different ones have diverged.
inline void __syncthreads(int line = __builtin_LINE()) { emulator::block_barrier(line, 0); }
inline int __syncthreads_or(int value, int line = __builtin_LINE()) {
    return emulator::block_barrier(line, value != 0) > 0;
}
inline int __syncthreads_and(int value, int line = __builtin_LINE()) {
    return emulator::block_barrier(line, value == 0) == 0;
}
inline int __syncthreads_count(int value, int line = __builtin_LINE()) {
    return emulator::block_barrier(line, value != 0);
}
inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
    emulator::warp_barrier(mask, line);
}

inline unsigned __ballot_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return emulator::warp_ballot(mask, value != 0, line);
}
inline int __any_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return emulator::warp_ballot(mask, value != 0, line) != 0;
}
inline int __all_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return emulator::warp_ballot(mask, value != 0, line) == mask;
}

template <typename T>
inline T emulated_shuffle(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 64 bits");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = emulator::warp_shuffle(mask, bits, source, line);
    memcpy(&value, &bits, sizeof(T));
    return value;
}
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, int line = __builtin_LINE()) {
    const int own = emulator::lane_index();
    return emulated_shuffle(mask, value, (own & -width) | (lane & (width - 1)), line);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    const int own = emulator::lane_index(), other = own ^ bits;
    return emulated_shuffle(mask, value, (other & -width) <= (own & -width) ? other : own, line);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int own = emulator::lane_index(), other = own - int(delta);
    return emulated_shuffle(mask, value, other < (own & -width) ? own : other, line);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int own = emulator::lane_index(), other = own + int(delta);
    return emulated_shuffle(mask, value, other >= (own & -width) + width ? own : other, line);
}

// How the runtime calls the one kernel of a library.
namespace emulator {
template <typename Arguments>
unsigned long size_of_arguments(void (*)(Arguments)) {
    return sizeof(Arguments);
}
template <typename Arguments>
void call(void (*kernel)(Arguments), const void* arguments) {
    Arguments copy;
    memcpy(static_cast<void*>(&copy), arguments, sizeof(Arguments));
    kernel(copy);
}
}  // namespace emulator

// The linker marks the ends of the section; both are null where a kernel has no shared memory.
#define EMULATED extern "C" __attribute__((visibility("default")))
#define EMULATED_KERNEL(kernel)                                                                  \
    extern "C" __attribute__((weak)) char __start_emulated_shared, __stop_emulated_shared;       \
    EMULATED unsigned long emulated_size() { return emulator::size_of_arguments(kernel); }       \
    EMULATED void emulated_call(const void* arguments) { emulator::call(kernel, arguments); }    \
    EMULATED void emulated_shared_range(char** low, char** high) {                               \
        *low = &__start_emulated_shared;                                                         \
        *high = &__stop_emulated_shared;                                                         \
    }
