// Every PTX instruction that a kernel uses is one function here. Each has its definition for a GPU
// and, beside it, one for a C++ compiler on the CPU (namespace emulator, tests/emulator/).
//
// Fragments of the matrix instructions are laid out over the 32 lanes of a warp as the PTX manual
// draws them; with g = lane / 4 and t = lane % 4:
//
//     m16n8k8 (tf32)       A: a[0..3] at (g, t), (g+8, t), (g, t+4), (g+8, t+4)
//                          B: b[0..1] at (t, g), (t+4, g)
//     m16n8k8 (16 bits)    A: pairs along k at (g, 2t), (g+8, 2t)
//                          B: pairs along k at (2t, g)
//     m16n8k16 (16 bits)   A: pairs along k at (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8)
//                          B: pairs along k at (2t, g), (2t+8, g)
//     m16n8 (all)          D: d[0..3] at (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
//     m8n8k4 (float64)     A: (g, t), B: (t, g), D: (g, 2t), (g, 2t+1)
//     m64nN (wgmma)        D: for warp w, columns 8j: d[4j..4j+3] as m16n8, rows from 16w on
#pragma once

#ifdef __CUDACC__
#define PTX(gpu, cpu) gpu
#else
#define PTX(gpu, cpu) emulator::cpu
#endif

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

// The same for bfloat16; NaN has all bits set but the sign.
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

// Four of the eight bytes of two words, each named by four bits of `which`, the lowest first.
__device__ inline unsigned byte_select(unsigned low, unsigned high, unsigned which) {
#ifdef __CUDACC__
    unsigned bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(which));
    return bytes;
#else
    return emulator::byte_select(low, high, which);
#endif
}

// Two floats rounded the same way, the first one in the low half.
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

// Of two pairs of float16 numbers the larger magnitudes, and the smaller ones; of a NaN and a number the number.
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

// Of two pairs of 16-bit floats the larger magnitudes; of a NaN and a number NaN.
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

// The nearest tf32 number (a float whose last 13 bits are zero), ties to even, as bits; NaN has all bits set. Before
// compute capability 9.0 there is another instruction: ties go away from zero, and a NaN of which only the last bits are
// set becomes infinite.
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

// ---- addresses ----

// The address of shared memory as the instructions below take it.
__device__ inline unsigned shared_address(const void* pointer) {
    return PTX((unsigned)__cvta_generic_to_shared(pointer), shared_address(pointer));
}

// Shared memory of the size that the launch gives, aligned for every use of it.
#ifdef __CUDACC__
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#else
#define DYNAMIC_SHARED(name) unsigned char* const name = emulator::dynamic_shared()
#endif

// ---- global memory ----

// Loads a number that nothing writes meanwhile, if `index` is below `count`; else it stays what it was:
// one instruction under a predicate, so that there is no branch and what the address takes is no part of
// the condition.
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

// The same for what is there, without a condition.
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

// Two neighbours of 32 bits, aligned to both.
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

// Four of them, aligned to 16 bytes.
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

// What is loaded and stored for so many bytes.
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

// Stores numbers, several by one instruction as well, if `stored`.
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

// Puts them into shared memory by one instruction, whatever they have been made of.
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

// Stores them in memory of the thread's own, and loads them, by one instruction: no register holds them meanwhile.
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

// The larger number, and NaN (all bits set but the sign) where one of them is.
__device__ inline float max_or_nan(float a, float b) {
#ifdef __CUDACC__
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return a != a || b != b ? __uint_as_float(0x7fffffffu) : a > b ? a : b;
#endif
}

// ---- matrix products of a warp: d += a * b ----

// tf32 operands are float32 numbers of which the last 13 bits are ignored.
__device__ inline void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    PTX(asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])),
        mma_tf32(d, a, b));
}

__device__ inline void mma_float16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])),
        mma_float16(d, a, b));
}
// d = c + a * b.
__device__ inline void mma_float16(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]) {
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
    emulator::mma_float16(d, a, b, c);
#endif
}

__device__ inline void mma_bfloat16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])),
        mma_bfloat16(d, a, b));
}
// d = c + a * b.
__device__ inline void mma_bfloat16(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]) {
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
    emulator::mma_bfloat16(d, a, b, c);
#endif
}

__device__ inline void mma_float64(double (&d)[2], double a, double b) {
    PTX(asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(d[0]), "+d"(d[1])
                     : "d"(a), "d"(b)),
        mma_float64(d, a, b));
}

// Four 8x8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 (16
// bytes, aligned) and receives of each matrix elements 2t and 2t+1 of row g; with TRANSPOSED of
// column g.
template <bool TRANSPOSED>
__device__ inline void load_matrices(unsigned (&r)[4], const void* row) {
#ifdef __CUDACC__
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row)) : "memory");
#else
    emulator::load_matrices(r, row, TRANSPOSED);
#endif
}

// ---- asynchronous copies of a thread, from global to shared memory ----

// BYTES is 4, 8 or 16; only the first `used` bytes are read, the others become zero.
// Before compute capability 8.0 it is an ordinary copy, and `used` is a multiple of 4.
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

// The same for all of the bytes, or for none of them (compute capability 8.0).
template <int BYTES>
__device__ inline void copy_async_or_zeros(void* shared, const void* global, bool exists) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "sizes of cp.async");
#ifndef __CUDACC__
    emulator::copy_async(shared, global, BYTES, exists ? BYTES : 0);
#else
    if (BYTES == 16)
        asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %2, 0;\n"
                     "cp.async.cg.shared.global [%0], [%1], 16, p;\n}\n" ::"r"(shared_address(shared)),
                     "l"(global), "r"(int(exists)) : "memory");
    else
        asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, %2, 0;\n"
                     "cp.async.ca.shared.global [%0], [%1], %3, p;\n}\n" ::"r"(shared_address(shared)),
                     "l"(global), "r"(int(exists)), "n"(BYTES) : "memory");
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

// Brings what lies at an address to the L2 cache, sometime.
__device__ inline void prefetch(const void* global) {
    PTX(asm volatile("prefetch.global.L2 [%0];" ::"l"(global)), prefetch(global));
}

// ---- kernels that follow each other (compute capability 9.0) ----

// Lets the next kernel's blocks begin, if it is launched so, as soon as all blocks of this one have.
__device__ inline void launch_grids() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the kernel in front of this one has ended, where this one has begun before. What that has written can
// be read behind it.
__device__ inline void wait_for_grids() {
#ifndef __CUDACC__
    emulator::wait_for_grids();
#elif __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- what blocks hand over to each other ----

// Counts one more in global memory, and returns how many there were. What a thread has written in front of this, and
// what others have that it has waited for, is there for those who count later.
__device__ inline unsigned count_one(unsigned* global) {
#ifdef __CUDACC__
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(global) : "memory");
    return before;
#else
    return emulator::count_one(global);
#endif
}

// ---- barriers of a part of the block ----

// Barrier `id` (1 to 15) of `threads` threads, a multiple of 32.
__device__ inline void named_barrier_wait(int id, int threads) {
    PTX(asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"),
        named_barrier(id, threads, true));
}
__device__ inline void named_barrier_arrive(int id, int threads) {
    PTX(asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"),
        named_barrier(id, threads, false));
}

// ---- mbarriers: 64 bits of shared memory that count arrivals and bytes, phase after phase ----

typedef unsigned long long mbarrier;

__device__ inline void mbarrier_init(mbarrier* barrier, int arrivals) {
    PTX(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                     "r"(arrivals) : "memory"),
        mbarrier_init(barrier, arrivals));
}

// Makes initialised mbarriers known to asynchronous copies.
__device__ inline void mbarrier_init_fence() {
    PTX(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"), mbarrier_init_fence());
}

__device__ inline void mbarrier_arrive(mbarrier* barrier) {
    PTX(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"),
        mbarrier_arrive(barrier, 0));
}

// Arrives, and makes the phase wait for `bytes` of asynchronous copies as well.
__device__ inline void mbarrier_arrive_expect(mbarrier* barrier, int bytes) {
    PTX(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                     "r"(bytes) : "memory"),
        mbarrier_arrive(barrier, bytes));
}

// Before compute capability 9.0 a wait asks again and again; from then on it may sleep in between.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MBARRIER_ASK "mbarrier.test_wait.parity.shared::cta.b64"
#else
#define MBARRIER_ASK "mbarrier.try_wait.parity.shared::cta.b64"
#endif

// Waits for the end of the phase of this parity (0 for the first phase, then 1, 0, ...). On a new
// barrier, parity 1 is that of a phase that has ended.
__device__ inline void mbarrier_wait(mbarrier* barrier, int parity) {
#ifdef __CUDACC__
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n" MBARRIER_ASK " done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}\n" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
#else
    emulator::mbarrier_wait(barrier, parity);
#endif
}

// Arrives as soon as the copies that this thread has issued by copy_async have ended (compute capability 8.0).
__device__ inline void copy_async_arrive(mbarrier* barrier) {
    PTX(asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory"),
        copy_async_arrive(barrier));
}

// Whether this is the one lane of a warp that has been chosen, the same each time (compute capability 9.0). The compiler
// knows then that one lane alone goes on, and what it copies in bulk needs no loop over lanes.
__device__ inline bool elected() {
#ifndef __CUDACC__
    return threadIdx.x % 32 == 0;
#elif __CUDA_ARCH__ >= 900
    unsigned chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(chosen));
    return chosen;
#else
    return threadIdx.x % 32 == 0;
#endif
}

// Whether there are bulk copies (compute capability 9.0 and later).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool BULK_COPIES = false;
#else
constexpr bool BULK_COPIES = true;
#endif

// Copies `bytes` (a multiple of 16, both addresses aligned to 16) and counts them on the mbarrier.
__device__ inline void bulk_copy(void* shared, const void* global, int bytes, mbarrier* barrier) {
    PTX(asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier))
                     : "memory"),
        bulk_copy(shared, global, bytes, barrier));
}

// Copies `bytes` (a multiple of 16, both addresses aligned to 16) out of shared memory, in this thread's open group.
__device__ inline void bulk_store(void* global, const void* shared, int bytes) {
    PTX(asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     ::"l"(global), "r"(shared_address(shared)), "r"(bytes)
                     : "memory"),
        bulk_store(global, shared, bytes));
}

// Closes the group of this thread's bulk stores.
__device__ inline void bulk_store_commit() {
    PTX(asm volatile("cp.async.bulk.commit_group;" ::: "memory"), bulk_store_commit());
}

// Waits until all of this thread's closed groups have read their shared memory.
__device__ inline void bulk_store_wait() {
    PTX(asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"), bulk_store_wait());
}

// Makes this thread's ordinary writes to shared memory known to wgmma and to bulk copies.
__device__ inline void async_proxy_fence() {
    PTX(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"), async_proxy_fence());
}

// ---- registers of a warpgroup (compute capability 9.0 alone) ----

// Takes more registers for each of the warpgroup's threads, up to COUNT; waits until they are free.
template <int COUNT>
__device__ inline void take_registers() {
    PTX(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)), set_registers());
}

// Gives registers back, down to COUNT.
template <int COUNT>
__device__ inline void give_registers() {
    PTX(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)), set_registers());
}

// ---- matrix products of a warpgroup (compute capability 9.0 alone) ----

// How an operand lies in shared memory. One whose rows run along K, of which an instruction takes 32 bytes:
//     swizzle 0    core matrices of 8 rows of 16 bytes, 128 bytes in a row; `leading` bytes from one
//                  to the next along K, `stride` bytes from one to the next along M or N
//     swizzle 128  rows of 128 bytes, 8 rows of them 1024 bytes; in a row the 16-byte word i lies at
//                  i ^ (row % 8); `stride` bytes between groups of 8 rows, `leading` counts for nothing
// And one whose rows run across K, of 64 numbers of 16 bits each:
//     swizzle 128  the same rows; `stride` bytes between groups of 8 rows, along K, and `leading` bytes
//                  between 64 columns and the next ones
__device__ inline unsigned long long matrix_descriptor(const void* start, unsigned leading,
                                                       unsigned stride, int swizzle) {
    return (unsigned long long)(shared_address(start) >> 4 & 0x3fff) |
           (unsigned long long)(leading >> 4 & 0x3fff) << 16 |
           (unsigned long long)(stride >> 4 & 0x3fff) << 32 |
           (unsigned long long)(swizzle == 128) << 62;
}

// Has a number ready here, and not only where it is used; what accesses memory stays on its side.
__device__ inline void settle(unsigned& value) {
#ifdef __CUDACC__
    asm volatile("" : "+r"(value)::"memory");
#endif
}
// An address of which the compiler does not know here how it comes about: it finds no use in others that it has.
template <typename T>
__device__ inline void settle(const T*& address) {
#ifdef __CUDACC__
    asm volatile("" : "+l"(address));
#endif
}

// Before the first product, and after registers that products use were touched.
__device__ inline void wgmma_fence() {
    PTX(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"), wgmma_fence());
}

// Closes a group of products.
__device__ inline void wgmma_commit() {
    PTX(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"), wgmma_commit());
}

// Waits until at most PENDING groups are under way; their accumulators must not be touched before.
template <int PENDING>
__device__ inline void wgmma_wait() {
    PTX(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"), wgmma_wait(PENDING));
}

enum MatrixType { MATRIX_TF32, MATRIX_FLOAT16, MATRIX_BFLOAT16 };

// d (64 x N, N/2 registers) = a * b, or d += a * b where `accumulate`; K is 8 in tf32, 16 otherwise.
template <MatrixType TYPE, int N>
struct Wgmma;

// The compiler takes the registers of d one by one, so each N is spelled out, in units of 8 columns.
#define WGMMA_D1 "%0, %1, %2, %3"
#define WGMMA_D2 WGMMA_D1 ", %4, %5, %6, %7"
#define WGMMA_D4 WGMMA_D2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_D6 WGMMA_D4 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_D8                                                                               \
    WGMMA_D4 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_D12                                                                              \
    WGMMA_D8 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_D13 WGMMA_D12 ", %48, %49, %50, %51"
#define WGMMA_D14 WGMMA_D13 ", %52, %53, %54, %55"
#define WGMMA_D15 WGMMA_D14 ", %56, %57, %58, %59"
#define WGMMA_D16 WGMMA_D15 ", %60, %61, %62, %63"
#define WGMMA_D32                                                                              \
    WGMMA_D16 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
              "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
              "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
              "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
              "%122, %123, %124, %125, %126, %127"
#define WGMMA_U(i) "+f"(d[4 * i]), "+f"(d[4 * i + 1]), "+f"(d[4 * i + 2]), "+f"(d[4 * i + 3])
#define WGMMA_R1 WGMMA_U(0)
#define WGMMA_R2 WGMMA_R1, WGMMA_U(1)
#define WGMMA_R4 WGMMA_R2, WGMMA_U(2), WGMMA_U(3)
#define WGMMA_R6 WGMMA_R4, WGMMA_U(4), WGMMA_U(5)
#define WGMMA_R8 WGMMA_R4, WGMMA_U(4), WGMMA_U(5), WGMMA_U(6), WGMMA_U(7)
#define WGMMA_R12 WGMMA_R8, WGMMA_U(8), WGMMA_U(9), WGMMA_U(10), WGMMA_U(11)
#define WGMMA_R13 WGMMA_R12, WGMMA_U(12)
#define WGMMA_R14 WGMMA_R13, WGMMA_U(13)
#define WGMMA_R15 WGMMA_R14, WGMMA_U(14)
#define WGMMA_R16 WGMMA_R15, WGMMA_U(15)
#define WGMMA_R32                                                                            \
    WGMMA_R16, WGMMA_U(16), WGMMA_U(17), WGMMA_U(18), WGMMA_U(19), WGMMA_U(20), WGMMA_U(21), \
        WGMMA_U(22), WGMMA_U(23), WGMMA_U(24), WGMMA_U(25), WGMMA_U(26), WGMMA_U(27),        \
        WGMMA_U(28), WGMMA_U(29), WGMMA_U(30), WGMMA_U(31)

#define WGMMA(WGMMA_OF, TYPE, N, SHAPE, TRANSPOSE, UNITS, A, B, S, EMULATED)                        \
    template <>                                                                                     \
    struct WGMMA_OF<TYPE, N> {                                                                      \
        __device__ static void multiply(float (&d)[N / 2], unsigned long long a,                    \
                                        unsigned long long b, bool accumulate) {                    \
            PTX(asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" S ", 0;\n"                        \
                             "wgmma.mma_async.sync.aligned." SHAPE " {" WGMMA_D##UNITS "}, %" A     \
                             ", %" B ", p, 1, 1" TRANSPOSE ";\n}\n"                                 \
                             : WGMMA_R##UNITS                                                       \
                             : "l"(a), "l"(b), "r"(int(accumulate))),                               \
                EMULATED(TYPE, d, N, a, b, accumulate));                                            \
        }                                                                                           \
    };
#define WGMMA_TYPES(N, UNITS, A, B, S)                                                              \
    WGMMA(Wgmma, MATRIX_TF32, N, "m64n" #N "k8.f32.tf32.tf32", "", UNITS, A, B, S, wgmma)           \
    WGMMA(Wgmma, MATRIX_FLOAT16, N, "m64n" #N "k16.f32.f16.f16", ", 0, 0", UNITS, A, B, S, wgmma)   \
    WGMMA(Wgmma, MATRIX_BFLOAT16, N, "m64n" #N "k16.f32.bf16.bf16", ", 0, 0", UNITS, A, B, S, wgmma)
WGMMA_TYPES(8, 1, "4", "5", "6")
WGMMA_TYPES(16, 2, "8", "9", "10")
WGMMA_TYPES(32, 4, "16", "17", "18")
WGMMA_TYPES(64, 8, "32", "33", "34")
WGMMA_TYPES(96, 12, "48", "49", "50")
WGMMA_TYPES(104, 13, "52", "53", "54")
WGMMA_TYPES(112, 14, "56", "57", "58")
WGMMA_TYPES(120, 15, "60", "61", "62")
WGMMA_TYPES(128, 16, "64", "65", "66")

// The same, of which the rows of `b` run across K, or those of both. The numbers have 16 bits.
template <MatrixType TYPE, int N>
struct WgmmaAcross;
template <MatrixType TYPE, int N>
struct WgmmaBothAcross;

#define WGMMA_ACROSS(N, ...)                                                                                      \
    WGMMA(WgmmaAcross, MATRIX_FLOAT16, N, "m64n" #N "k16.f32.f16.f16", ", 0, 1", __VA_ARGS__, wgmma_across)       \
    WGMMA(WgmmaAcross, MATRIX_BFLOAT16, N, "m64n" #N "k16.f32.bf16.bf16", ", 0, 1", __VA_ARGS__, wgmma_across)    \
    WGMMA(WgmmaBothAcross, MATRIX_FLOAT16, N, "m64n" #N "k16.f32.f16.f16", ", 1, 1", __VA_ARGS__, wgmma_both_across) \
    WGMMA(WgmmaBothAcross, MATRIX_BFLOAT16, N, "m64n" #N "k16.f32.bf16.bf16", ", 1, 1", __VA_ARGS__, wgmma_both_across)
WGMMA_ACROSS(64, 8, "32", "33", "34")
WGMMA_ACROSS(128, 16, "64", "65", "66")
WGMMA_ACROSS(256, 32, "128", "129", "130")

// The same, of which the rows of `a` lie in registers, as m16n8k8 (tf32) or m16n8k16 (16 bits) has them: warp w has rows
// from 16w on. They must not be touched before the product has been waited for.
template <MatrixType TYPE, int N>
struct WgmmaOfRegisters;

#define WGMMA_OF_REGISTERS(TYPE, N, SHAPE, TRANSPOSE, UNITS, A0, A1, A2, A3, B, S)                          \
    template <>                                                                                             \
    struct WgmmaOfRegisters<TYPE, N> {                                                                      \
        __device__ static void multiply(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b,    \
                                        bool accumulate) {                                                  \
            PTX(asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" S ", 0;\n"                               \
                             "wgmma.mma_async.sync.aligned." SHAPE " {" WGMMA_D##UNITS                      \
                             "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B ", p, 1, 1" TRANSPOSE ";\n}\n"  \
                             : WGMMA_R##UNITS                                                               \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate))),   \
                wgmma_of_registers(TYPE, d, N, a, b, accumulate));                                          \
        }                                                                                                   \
    };
#define WGMMA_OF_REGISTERS_TYPES(N, ...)                                                                    \
    WGMMA_OF_REGISTERS(MATRIX_TF32, N, "m64n" #N "k8.f32.tf32.tf32", "", __VA_ARGS__)                       \
    WGMMA_OF_REGISTERS(MATRIX_FLOAT16, N, "m64n" #N "k16.f32.f16.f16", ", 0", __VA_ARGS__)                  \
    WGMMA_OF_REGISTERS(MATRIX_BFLOAT16, N, "m64n" #N "k16.f32.bf16.bf16", ", 0", __VA_ARGS__)
WGMMA_OF_REGISTERS_TYPES(32, 4, "16", "17", "18", "19", "20", "21")
WGMMA_OF_REGISTERS_TYPES(48, 6, "24", "25", "26", "27", "28", "29")
WGMMA_OF_REGISTERS_TYPES(64, 8, "32", "33", "34", "35", "36", "37")
