// Tensor Core instructions of a warp (a part of ptx.cuh): mma.sync and ldmatrix.
#pragma once
#include "ptx_memory.cuh"

// ---- matrix products of a warp: d += a * b ----

// TF32 operands are float32 numbers whose last 13 bits are ignored.
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
