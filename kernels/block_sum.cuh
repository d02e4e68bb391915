// Sums of one number of each thread of a warp or a block, returned to all threads. The order of the sums is fixed.
#pragma once

__device__ inline double warp_sum(double value) {
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

// The block has whole warps.
__device__ inline double block_sum(double value) {
    __shared__ double sums[32];
    value = warp_sum(value);
    __syncthreads();  // all threads have read the last sum
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) value += sums[i];
    return value;
}
