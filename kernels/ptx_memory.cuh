// Instructions on memory (a part of ptx.cuh): addresses, loads and stores, asynchronous copies, atomics.
#pragma once

// ---- addresses ----

// The 32-bit address of shared memory that instructions take.
__device__ inline unsigned shared_address(const void* pointer) {
    return PTX((unsigned)__cvta_generic_to_shared(pointer), shared_address(pointer));
}

// Declares the dynamic shared memory of a launch, aligned for every use.
#ifdef __CUDACC__
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#else
#define DYNAMIC_SHARED(name) unsigned char* const name = emulator::dynamic_shared()
#endif

// ---- global memory ----

// Loads a number if `index` is below `count`, else leaves it unchanged. The memory must be constant during
// the kernel. It is one instruction under a predicate, so there is no branch, and the address is computed
// whether the condition holds or not.
__device__ inline void load_bits(unsigned& bits, const unsigned* global, int index, int count) {
#ifdef __CUDACC__
    asm volatile("{\n.reg .pred p;\nsetp.lt.s32 p, %2, %3;\n@p ld.global.nc.b32 %0, [%1];\n}\n"
                 : "+r"(bits)
                 : "l"(global), "r"(index), "r"(count));
#else
    if (index < count) bits = *global;
#endif
}
__device__ inline void load_bits(unsigned short& bits, const unsigned short* global, int index, int count) {
#ifdef __CUDACC__
    asm volatile("{\n.reg .pred p;\nsetp.lt.s32 p, %2, %3;\n@p ld.global.nc.b16 %0, [%1];\n}\n"
                 : "+h"(bits)
                 : "l"(global), "r"(index), "r"(count));
#else
    if (index < count) bits = *global;
#endif
}

// Loads a number unconditionally.
__device__ inline void load_bits(unsigned& bits, const unsigned* global) {
#ifdef __CUDACC__
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(bits) : "l"(global));
#else
    bits = *global;
#endif
}
__device__ inline void load_bits(unsigned short& bits, const unsigned short* global) {
#ifdef __CUDACC__
    asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(bits) : "l"(global));
#else
    bits = *global;
#endif
}

// Two neighbouring 32-bit numbers, aligned to 8 bytes.
struct __align__(8) Bits64 {
    unsigned first, second;
};
__device__ inline void load_bits(Bits64& bits, const Bits64* global, int index, int count) {
#ifdef __CUDACC__
    asm volatile("{\n.reg .pred p;\nsetp.lt.s32 p, %3, %4;\n@p ld.global.nc.v2.b32 {%0, %1}, [%2];\n}\n"
                 : "+r"(bits.first), "+r"(bits.second)
                 : "l"(global), "r"(index), "r"(count));
#else
    if (index < count) bits = *global;
#endif
}

// Four neighbouring 32-bit numbers, aligned to 16 bytes.
struct __align__(16) Bits128 {
    unsigned words[4];
};
__device__ inline void load_bits(Bits128& bits, const Bits128* global, int index, int count) {
#ifdef __CUDACC__
    asm volatile(
        "{\n.reg .pred p;\nsetp.lt.s32 p, %5, %6;\n@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}\n"
        : "+r"(bits.words[0]), "+r"(bits.words[1]), "+r"(bits.words[2]), "+r"(bits.words[3])
        : "l"(global), "r"(index), "r"(count));
#else
    if (index < count) bits = *global;
#endif
}

// The type whose loads and stores move a given number of bytes.
template <int>
struct BitsOf;
template <>
struct BitsOf<2> {
    typedef unsigned short type;
};
template <>
struct BitsOf<4> {
    typedef unsigned type;
};
template <>
struct BitsOf<8> {
    typedef Bits64 type;
};
template <>
struct BitsOf<16> {
    typedef Bits128 type;
};

// Stores numbers if `stored`; several neighbours are one instruction.
__device__ inline void store_bits(unsigned short* global, unsigned short bits, bool stored) {
    if (stored) *global = bits;
}
__device__ inline void store_bits(unsigned* global, unsigned bits, bool stored) {
    if (stored) *global = bits;
}
__device__ inline void store_bits(Bits64* global, const Bits64& bits, bool stored) {
#ifdef __CUDACC__
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p st.global.v2.b32 [%0], {%1, %2};\n}\n" ::"l"(global),
                 "r"(bits.first), "r"(bits.second), "r"(int(stored)) : "memory");
#else
    if (stored) *global = bits;
#endif
}

__device__ inline void store_bits(Bits128* global, const Bits128& bits, bool stored) {
#ifdef __CUDACC__
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}\n" ::"l"(global),
        "r"(bits.words[0]), "r"(bits.words[1]), "r"(bits.words[2]), "r"(bits.words[3]), "r"(int(stored))
        : "memory");
#else
    if (stored) *global = bits;
#endif
}

// Stores four numbers in shared memory by one instruction, however they were computed.
__device__ inline void store_bits(void* shared, const Bits128& bits) {
#ifdef __CUDACC__
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(shared)), "r"(bits.words[0]),
                 "r"(bits.words[1]), "r"(bits.words[2]), "r"(bits.words[3]) : "memory");
#else
    *(Bits128*)shared = bits;
#endif
}

struct __align__(16) Four {
    float of[4];
};

// Stores numbers in the thread's local memory, and loads them, by one instruction: no register holds them in between.
__device__ inline void store_own(Four* own, const Four& values) {
#ifdef __CUDACC__
    asm volatile("st.local.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_local(own)), "f"(values.of[0]),
                 "f"(values.of[1]), "f"(values.of[2]), "f"(values.of[3]) : "memory");
#else
    *own = values;
#endif
}
__device__ inline Four load_own(const Four* own) {
#ifdef __CUDACC__
    Four values;
    asm volatile("ld.local.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(values.of[0]), "=f"(values.of[1]), "=f"(values.of[2]), "=f"(values.of[3])
                 : "l"(__cvta_generic_to_local(own)) : "memory");
    return values;
#else
    return *own;
#endif
}

// ---- asynchronous copies of a thread, from global to shared memory ----

// BYTES is 4, 8 or 16; only the first `used` bytes are read, a multiple of 4, the others become zero.
// Before compute capability 8.0 it is an ordinary copy.
template <int BYTES>
__device__ inline void copy_async(void* shared, const void* global, int used) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "sizes of cp.async");
#ifndef __CUDACC__
    emulator::copy_async(shared, global, BYTES, used);
#elif __CUDA_ARCH__ >= 800
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                     "l"(global), "r"(used) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                     "l"(global), "n"(BYTES), "r"(used) : "memory");
#else
    for (int i = 0; i < BYTES; i += 4)
        ((unsigned*)shared)[i / 4] = i < used ? ((const unsigned*)global)[i / 4] : 0;
#endif
}

// Closes a group of this thread's copies.
__device__ inline void copy_async_commit() {
#ifndef __CUDACC__
    emulator::copy_async_commit();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most PENDING of this thread's groups are under way.
template <int PENDING>
__device__ inline void copy_async_wait() {
#ifndef __CUDACC__
    emulator::copy_async_wait(PENDING);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Asks for the line of an address to be brought to the L2 cache.
__device__ inline void prefetch(const void* global) {
    PTX(asm volatile("prefetch.global.L2 [%0];" ::"l"(global)), prefetch(global));
}

// ---- atomics between blocks ----

// Increments a counter in global memory, and returns its former value. Threads that increment it later see everything
// that this thread wrote before, and everything that it had waited for.
__device__ inline unsigned count_one(unsigned* global) {
#ifdef __CUDACC__
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(global) : "memory");
    return before;
#else
    return emulator::count_one(global);
#endif
}

// Adds to two neighbours in global memory, aligned to 8 bytes, each as one addition with rounding to nearest (compute
// capability 9.0 and later). Nothing waits for it. As in all code here on GPUs, subnormal numbers count as zero.
__device__ inline void add_pair(float* global, float first, float second) {
#ifdef __CUDACC__
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(global), "f"(first), "f"(second) : "memory");
#else
    global[0] += first, global[1] += second;
#endif
}
