// A ring of stages in shared memory: one thread or warp has operands brought by the copy engine, warpgroups multiply
// them and give the stages back. Also the operands' type as wgmma names it.
#pragma once
#include "scalar.cuh"
#include "ptx_tensor.cuh"

template <int STAGES>
struct Ring {
    mbarrier full[STAGES], empty[STAGES];

    // By all threads of a block. So many warps say that they have read a stage.
    __device__ void initialise(int readers) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; ++i) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], readers);
            mbarrier_init_fence();
        }
        __syncthreads();
    }
    // Gives a stage back, whose products a warp has.
    __device__ void release(int stage) {
        if (threadIdx.x % 32 == 0) mbarrier_arrive(&empty[stage]);
    }
};

// A stage, and the parity of its phase.
template <int STAGES>
struct Turn {
    int stage = 0, parity = 0;

    // To the next of so many stages.
    __device__ void advance(int stages = STAGES) {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

template <typename>
struct matrix_type {
    static constexpr MatrixType value = MATRIX_TF32;
};
template <>
struct matrix_type<float16> {
    static constexpr MatrixType value = MATRIX_FLOAT16;
};
template <>
struct matrix_type<bfloat16> {
    static constexpr MatrixType value = MATRIX_BFLOAT16;
};
