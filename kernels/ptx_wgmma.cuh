// Tensor Core instructions of a warpgroup (a part of ptx.cuh), on compute capability 9.0 alone: setmaxnreg and wgmma.
#pragma once
#include "ptx_memory.cuh"

// ---- registers of a warpgroup (compute capability 9.0 alone) ----

// Takes more registers for each of the warpgroup's threads, up to COUNT; waits until they are free.
template <int COUNT>
__device__ inline void take_registers() {
    PTX(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)), set_registers());
}

// Gives registers of each of the warpgroup's threads back, down to COUNT.
template <int COUNT>
__device__ inline void give_registers() {
    PTX(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)), set_registers());
}

// ---- matrix products of a warpgroup (compute capability 9.0 alone) ----

// The descriptor of an operand in shared memory, without swizzle. The operand consists of core matrices of 8 rows of
// 16 bytes, 128 bytes in a row: `leading` bytes from one to the next along K, `stride` bytes along M or N. An
// instruction takes two of them along K.
__device__ inline unsigned long long matrix_descriptor(const void* start, unsigned leading, unsigned stride) {
    return (unsigned long long)(shared_address(start) >> 4 & 0x3fff) |
           (unsigned long long)(leading >> 4 & 0x3fff) << 16 | (unsigned long long)(stride >> 4 & 0x3fff) << 32;
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

// d (64 x N, N/2 registers) = a * b, or d += a * b where `accumulate`; K is 8 in tf32, 16 otherwise. Operands lie with
// their K innermost, or, where they are TRANSPOSED, with M and N innermost, which 16-bit numbers may.
template <MatrixType TYPE, int N, bool TRANSPOSED = false>
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

#define WGMMA(TYPE, N, TRANSPOSED, SHAPE, TRANSPOSE, UNITS, A, B, S)                                \
    template <>                                                                                     \
    struct Wgmma<TYPE, N, TRANSPOSED> {                                                             \
        __device__ static void multiply(float (&d)[N / 2], unsigned long long a,                    \
                                        unsigned long long b, bool accumulate) {                    \
            PTX(asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" S ", 0;\n"                        \
                             "wgmma.mma_async.sync.aligned." SHAPE " {" WGMMA_D##UNITS "}, %" A     \
                             ", %" B ", p, 1, 1" TRANSPOSE ";\n}\n"                                 \
                             : WGMMA_R##UNITS                                                       \
                             : "l"(a), "l"(b), "r"(int(accumulate))),                               \
                wgmma(TYPE, d, N, a, b, accumulate, TRANSPOSED));                                   \
        }                                                                                           \
    };
#define WGMMA_TYPES(N, UNITS, A, B, S)                                                              \
    WGMMA(MATRIX_TF32, N, false, "m64n" #N "k8.f32.tf32.tf32", "", UNITS, A, B, S)                  \
    WGMMA(MATRIX_FLOAT16, N, false, "m64n" #N "k16.f32.f16.f16", ", 0, 0", UNITS, A, B, S)          \
    WGMMA(MATRIX_BFLOAT16, N, false, "m64n" #N "k16.f32.bf16.bf16", ", 0, 0", UNITS, A, B, S)
WGMMA_TYPES(8, 1, "4", "5", "6")
WGMMA_TYPES(16, 2, "8", "9", "10")
WGMMA_TYPES(32, 4, "16", "17", "18")
WGMMA_TYPES(64, 8, "32", "33", "34")
WGMMA_TYPES(96, 12, "48", "49", "50")
WGMMA_TYPES(104, 13, "52", "53", "54")
WGMMA_TYPES(112, 14, "56", "57", "58")
WGMMA_TYPES(120, 15, "60", "61", "62")
WGMMA_TYPES(128, 16, "64", "65", "66")

// Does the same with the rows of `a` in registers, in the layout of m16n8k8 (TF32) or m16n8k16 (16 bits); warp w has
// rows from 16w on. The registers must not be touched before the wait for the product.
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
