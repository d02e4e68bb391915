// Sums over the threads of a block.
#pragma once

// The sum of a number that each thread has, for all of them, by a tree that does not change. Blocks
// have whole warps.
__device__ inline double block_sum(double value) {
    __shared__ double sums[32];
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) value += __shfl_xor_sync(~0u, value, apart);
    __syncthreads();  // a former sum has been read
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) value += sums[i];
    return value;
}
