// Sums over the threads of a warp or of a block: of a number that each has, for all of them, by trees that do
// not change.
#pragma once

__device__ inline double warp_sum(double value) {
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) value += __shfl_xor_sync(~0u, value, apart);
    return value;
}

// Blocks have whole warps.
__device__ inline double block_sum(double value) {
    __shared__ double sums[32];
    value = warp_sum(value);
    __syncthreads();  // a former sum has been read
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) value += sums[i];
    return value;
}
