// Every PTX instruction that a kernel uses is one function, here or in one of the files below; all but the
// last are included.
// Each has its definition for a GPU and, beside it, one for a C++ compiler on the CPU (namespace emulator,
// tests/emulator/).
//
//     ptx_numbers.cuh     conversions, selections and maxima in registers
//     ptx_memory.cuh      addresses, loads and stores, asynchronous copies, atomics
//     ptx_barriers.cuh    programmatic dependent launch, barriers, bulk copies
//     ptx_mma.cuh         Tensor Core instructions of a warp
//     ptx_wgmma.cuh       Tensor Core instructions of a warpgroup
//     ptx_tensor.cuh      copies of boxes of an array, included by the kernels that need it
//
// Fragments of the Tensor Core instructions are laid out over the 32 lanes of a warp as the PTX manual
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

#include "ptx_numbers.cuh"
#include "ptx_memory.cuh"
#include "ptx_barriers.cuh"
#include "ptx_mma.cuh"
#include "ptx_wgmma.cuh"
