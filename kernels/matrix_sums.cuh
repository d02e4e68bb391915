// The sums that a consumer thread of matrix_conv.cu holds in registers, as the engines lay them out.
#pragma once
#include "matrix_engine.cuh"

// Two neighbouring sums. Unlike a pair of words of bits, floats are not read while products still run, for which ptxas
// would wait for each product.
struct __align__(8) Neighbours {
    float first, second;
};

// The scale of sums that need no scaling.
struct Unscaled {
    __device__ __forceinline__ static Neighbours powers_of(int) { return {1, 1}; }
    __device__ __forceinline__ static Neighbours of(ENGINE& engine, int r, int half, int c, const Neighbours&) {
        return {engine.value(r, c, 2 * half), engine.value(r, c, 2 * half + 1)};
    }
    __device__ __forceinline__ static Neighbours of(ENGINE& engine, int r, int half, int c) {
        return of(engine, r, half, c, {1, 1});
    }
};

// Multiplies all sums by their scale.
template <typename Scale>
__device__ __forceinline__ void scale_sums(ENGINE& engine, const Scale& scale) {
#pragma unroll
    for (int r = 0; r < ENGINE::ROWS; ++r)
#pragma unroll
        for (int c = 0; c < ENGINE::COLUMNS; ++c)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const Neighbours sums = scale.of(engine, r, half, c);
                engine.value(r, c, 2 * half) = sums.first;
                engine.value(r, c, 2 * half + 1) = sums.second;
            }
}
