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

// Copies the box whose first element is at (x, y, z) of an array of three axes, x innermost, and counts its bytes on
// the mbarrier. Elements beyond the array's ends are zero, and count as well. The box lies in rows of 128 bytes, from
// an address that is a multiple of 1024 on; of row r, chunk c of 16 bytes is at place c ^ (r % 8) (the 128-byte
// swizzle), so that no chunks of eight neighbouring rows meet in a bank.
__device__ inline void tensor_copy(void* shared, const TensorMap* map, int x, int y, int z, mbarrier* barrier) {
    PTX(asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(shared)),
                     "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)) : "memory"),
        tensor_copy(shared, map->words, x, y, z, barrier));
}

// The descriptor of an operand whose rows of 128 bytes lie so, from the chunk at `start` on; an instruction takes two
// chunks along K. It has the bytes from eight rows to the next, and the kind of swizzle.
__device__ inline unsigned long long swizzled_descriptor(const void* start) {
    return (unsigned long long)(shared_address(start) >> 4 & 0x3fff) | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

// Products of more columns than those of ptx_wgmma.cuh.
#define WGMMA_D32                                                                                                    \
    WGMMA_D16 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83" \
              ", %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102"   \
              ", %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118"     \
              ", %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_R32                                                                                           \
    WGMMA_R16, WGMMA_U(16), WGMMA_U(17), WGMMA_U(18), WGMMA_U(19), WGMMA_U(20), WGMMA_U(21), WGMMA_U(22),   \
        WGMMA_U(23), WGMMA_U(24), WGMMA_U(25), WGMMA_U(26), WGMMA_U(27), WGMMA_U(28), WGMMA_U(29), WGMMA_U(30), \
        WGMMA_U(31)
WGMMA_TYPES(256, 32, "128", "129", "130")
