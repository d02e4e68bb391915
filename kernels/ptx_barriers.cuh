// Instructions by which threads wait for each other and for copies (a part of ptx.cuh): programmatic dependent launch,
// named barriers, mbarriers and the bulk copies that they count.
#pragma once
#include "ptx_memory.cuh"

// ---- programmatic dependent launch (compute capability 9.0) ----

// Lets the blocks of the next kernel begin as soon as all blocks of this kernel have come here, if the next kernel is
// launched as a dependent one.
__device__ inline void launch_grids() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the kernel before this one has ended, if this one has begun earlier. After the wait its results can be
// read.
__device__ inline void wait_for_grids() {
#ifndef __CUDACC__
    emulator::wait_for_grids();
#elif __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- named barriers of a part of the block ----

// Barrier `id` (1 to 15) of `threads` threads, a multiple of 32.
__device__ inline void named_barrier_wait(int id, int threads) {
    PTX(asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"),
        named_barrier(id, threads, true));
}
__device__ inline void named_barrier_arrive(int id, int threads) {
    PTX(asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"),
        named_barrier(id, threads, false));
}

// ---- mbarriers: 64 bits of shared memory that count arrivals and bytes, phase after phase ----

typedef unsigned long long mbarrier;

__device__ inline void mbarrier_init(mbarrier* barrier, int arrivals) {
    PTX(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                     "r"(arrivals) : "memory"),
        mbarrier_init(barrier, arrivals));
}

// Makes initialised mbarriers visible to asynchronous copies.
__device__ inline void mbarrier_init_fence() {
    PTX(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"), mbarrier_init_fence());
}

__device__ inline void mbarrier_arrive(mbarrier* barrier) {
    PTX(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"),
        mbarrier_arrive(barrier, 0));
}

// Arrives, and makes the phase wait for `bytes` of asynchronous copies as well.
__device__ inline void mbarrier_arrive_expect(mbarrier* barrier, int bytes) {
    PTX(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                     "r"(bytes) : "memory"),
        mbarrier_arrive(barrier, bytes));
}

// Before compute capability 9.0 a wait polls; from 9.0 on the thread may sleep in between.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MBARRIER_ASK "mbarrier.test_wait.parity.shared::cta.b64"
#else
#define MBARRIER_ASK "mbarrier.try_wait.parity.shared::cta.b64"
#endif

// Waits for the end of the phase with this parity (0 for the first phase, then 1, 0, ...). On a new barrier the
// phase of parity 1 counts as ended.
__device__ inline void mbarrier_wait(mbarrier* barrier, int parity) {
#ifdef __CUDACC__
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n" MBARRIER_ASK " done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}\n" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
#else
    emulator::mbarrier_wait(barrier, parity);
#endif
}

// True if the GPU has bulk copies (compute capability 9.0 and later).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool BULK_COPIES = false;
#else
constexpr bool BULK_COPIES = true;
#endif

// Copies `bytes` (a multiple of 16, both addresses aligned to 16) and counts them on the mbarrier.
__device__ inline void bulk_copy(void* shared, const void* global, int bytes, mbarrier* barrier) {
    PTX(asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier))
                     : "memory"),
        bulk_copy(shared, global, bytes, barrier));
}

// Copies `bytes` (a multiple of 16, both addresses aligned to 16) out of shared memory, in this thread's open group.
__device__ inline void bulk_store(void* global, const void* shared, int bytes) {
    PTX(asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     ::"l"(global), "r"(shared_address(shared)), "r"(bytes)
                     : "memory"),
        bulk_store(global, shared, bytes));
}

// Closes the group of this thread's bulk stores.
__device__ inline void bulk_store_commit() {
    PTX(asm volatile("cp.async.bulk.commit_group;" ::: "memory"), bulk_store_commit());
}

// Waits until all of this thread's closed groups have read their shared memory.
__device__ inline void bulk_store_wait() {
    PTX(asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"), bulk_store_wait());
}

// Makes this thread's ordinary writes to shared memory visible to wgmma and to bulk copies.
__device__ inline void async_proxy_fence() {
    PTX(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"), async_proxy_fence());
}
