// Boxes of arrays in global memory, which the copy engine of compute capability 9.0 brings to shared memory by one
// instruction of one thread, and matrix products of what it has brought. ptx.cuh leaves this file to the kernels that
// need it.
#pragma once
#include "ptx_barriers.cuh"
#include "ptx_wgmma.cuh"

// An array and the box of its elements that a copy takes, as the host describes it (cupyconv/_tensor_maps.py).
struct __align__(64) TensorMap {
    unsigned long long words[16];
};

// Has the copy engine load a map before its first use.
__device__ inline void prefetch_map(const TensorMap* map) {
    PTX(asm volatile("prefetch.tensormap [%0];" ::"l"(map)), prefetch(map));
}

// Copies the box whose first element is at (x, y, z) of an array of three axes, x innermost, and counts its bytes on
// the mbarrier; x is at a multiple of 16 bytes. Floats become the nearest TF32 numbers on their way. Elements beyond
// the array's ends are zero, and count as well. The box lies in rows of 128 bytes, from an address that is a multiple
// of 1024 on; of row r, chunk c of 16 bytes is at place c ^ (r % 8) (the 128-byte swizzle), so that no chunks of eight
// neighbouring rows meet in a bank.
__device__ inline void tensor_copy(void* shared, const TensorMap* map, int x, int y, int z, mbarrier* barrier) {
    PTX(asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(shared)),
                     "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)) : "memory"),
        tensor_copy(shared, map->words, x, y, z, barrier));
}

// Copies neighbouring pixels of an array of samples, up to three axes and channels, the channels innermost, and counts
// its bytes: of each pixel as many channels as the map says, from `channel` on, which is at a multiple of 16 bytes. A
// map describes an array with a window around or in it, and steps. The first pixel is at (x, y, z) in the array's
// coordinates. The next one is a step further along x, or, at the end of the window, at its begin and a step further
// along y, and so on up to the next sample. What is copied lies so many `offsets` from the pixel, at a tap; what lies
// outside of the array is zero. Floats become the nearest TF32 numbers on their way, if the map does not say that they
// are kept. Pixels are rows of 128, 64, 32 or 16 bytes with the swizzle of as many bytes, which changes the number of a
// 16-byte chunk within its row by the bits of its address from bit 7 on.
template <int SPATIAL>
__device__ inline void im2col_copy(void* shared, const TensorMap* map, int channel, const int (&at)[3], int sample,
                                   const int (&offsets)[3], mbarrier* barrier) {
#ifdef __CUDACC__
    const unsigned to = shared_address(shared), counter = shared_address(barrier);
    const unsigned short x = offsets[0], y = offsets[1], z = offsets[2];
    if constexpr (SPATIAL == 1)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3, %4}], [%5], {%6};" ::"r"(to), "l"(map), "r"(channel), "r"(at[0]),
                     "r"(sample), "r"(counter), "h"(x) : "memory");
    else if constexpr (SPATIAL == 2)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to), "l"(map), "r"(channel), "r"(at[0]),
                     "r"(at[1]), "r"(sample), "r"(counter), "h"(x), "h"(y) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(to), "l"(map), "r"(channel),
                     "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(sample), "r"(counter), "h"(x), "h"(y), "h"(z) : "memory");
#else
    emulator::im2col_copy(shared, map->words, SPATIAL, channel, at, sample, offsets, barrier);
#endif
}

// Does so for an array of so many axes beside its samples and channels.
__device__ __forceinline__ void im2col_copy(int axes, void* shared, const TensorMap* map, int channel,
                                            const int (&at)[3], int sample, const int (&offsets)[3],
                                            mbarrier* barrier) {
    if (axes == 1) im2col_copy<1>(shared, map, channel, at, sample, offsets, barrier);
    if (axes == 2) im2col_copy<2>(shared, map, channel, at, sample, offsets, barrier);
    if (axes == 3) im2col_copy<3>(shared, map, channel, at, sample, offsets, barrier);
}

// The descriptor of an operand whose rows of 128 bytes lie so, from the chunk at `start` on; an instruction takes two
// chunks along K. It has the bytes from eight rows to the next, and the kind of swizzle.
__device__ inline unsigned long long swizzled_descriptor(const void* start) {
    return (unsigned long long)(shared_address(start) >> 4 & 0x3fff) | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

// The descriptor of a transposed operand: rows of `row` bytes, of the numbers of a k, as im2col_copy leaves them. An
// instruction takes 16 of them, from the one at `start` on, which may be any; along M or N it goes on so many bytes
// `apart`, in another copy or some rows further in the same one. (PTX ISA, canonical layouts of wgmma: the leading
// offset is for M or N and the stride from eight rows to the next, without a swizzle the other way round. The swizzle
// goes by the address.)
__device__ inline unsigned long long transposed_descriptor(const void* start, int row, int apart) {
    const unsigned long long from = shared_address(start) >> 4 & 0x3fff, along = apart >> 4, eight = row * 8 >> 4;
    const unsigned long long swizzle = row == 128 ? 1 : row == 64 ? 2 : row == 32 ? 3 : 0;
    return from | (swizzle ? along : eight) << 16 | (swizzle ? eight : along) << 32 | swizzle << 62;
}

// Products of more columns than those of ptx_wgmma.cuh.
#define WGMMA_D20 \
    WGMMA_D16 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_D24 \
    WGMMA_D20 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_D28 \
    WGMMA_D24 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_D32 \
    WGMMA_D28 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_R20 WGMMA_R16, WGMMA_U(16), WGMMA_U(17), WGMMA_U(18), WGMMA_U(19)
#define WGMMA_R24 WGMMA_R20, WGMMA_U(20), WGMMA_U(21), WGMMA_U(22), WGMMA_U(23)
#define WGMMA_R28 WGMMA_R24, WGMMA_U(24), WGMMA_U(25), WGMMA_U(26), WGMMA_U(27)
#define WGMMA_R32 WGMMA_R28, WGMMA_U(28), WGMMA_U(29), WGMMA_U(30), WGMMA_U(31)
WGMMA_TYPES(160, 20, "80", "81", "82")
WGMMA_TYPES(256, 32, "128", "129", "130")
WGMMA_OF_REGISTERS(MATRIX_TF32, 128, "m64n128k8.f32.tf32.tf32", "", 16, "64", "65", "66", "67", "68", "69")

// Transposed products.
#define WGMMA_TRANSPOSED_TYPES(N, UNITS, A, B, S)                                                           \
    WGMMA(MATRIX_FLOAT16, N, true, "m64n" #N "k16.f32.f16.f16", ", 1, 1", UNITS, A, B, S)                   \
    WGMMA(MATRIX_BFLOAT16, N, true, "m64n" #N "k16.f32.bf16.bf16", ", 1, 1", UNITS, A, B, S)
WGMMA_TRANSPOSED_TYPES(64, 8, "32", "33", "34")
WGMMA_TRANSPOSED_TYPES(96, 12, "48", "49", "50")
WGMMA_TRANSPOSED_TYPES(128, 16, "64", "65", "66")
WGMMA_TRANSPOSED_TYPES(160, 20, "80", "81", "82")
WGMMA_TRANSPOSED_TYPES(192, 24, "96", "97", "98")
WGMMA_TRANSPOSED_TYPES(224, 28, "112", "113", "114")
WGMMA_TRANSPOSED_TYPES(256, 32, "128", "129", "130")
