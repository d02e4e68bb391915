// A GPU in so far as one block sees it, on the CPU.
//
// The threads of a block are fibers of one host thread. They run in a random order, each until it
// waits for others. Kernels are compiled with the compiler's calls before each load and store
// (-fsanitize=thread) and alignment check (-fsanitize=alignment); the functions called are
// the runtime's own, and each access is checked:
//
//     bounds      the bytes belong to an array that the launch was given, element by element, or to
//                 the block's shared memory, or to the thread itself
//     alignment   the address suits the type
//     arithmetic  no division by zero
//     contents    a byte that is read has been written
//     races       between two accesses of different threads to the same byte of shared memory, one of
//                 them a write, something has put an order: vector clocks, passed on by barriers
//                 (Flanagan and Freund, "FastTrack", PLDI 2009)
//     outputs     no byte of global memory is written by two threads of a launch, or read by one
//                 thread after another wrote it, unless something has put an order: as above, or
//                 between blocks a count
//     barriers    all threads reach a barrier, and the same one
//     waiting     what an asynchronous instruction writes is there only after the wait for it, and
//                 what it reads is read as late as that; shared memory that ordinary stores wrote is
//                 fenced before a matrix product reads it or a bulk copy reads or writes it
//
// The first violation ends the launch with a message.
#pragma once

namespace emulator {

struct Index {
    unsigned x, y, z;
};

Index thread_index();
Index block_index();
Index grid_size();
Index block_size();
int lane_index();

// Ends the launch.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Waits for all threads of the block; returns the sum of their values.
int block_barrier(int line, int value);

// Exchanges between the lanes of a warp; all lanes of `mask` wait for each other.
void warp_barrier(unsigned mask, int line);
unsigned warp_ballot(unsigned mask, bool value, int line);
unsigned long long warp_shuffle(unsigned mask, unsigned long long value, int source, int line);

// The memory that a launch asks for beside the kernel's own.
unsigned char* dynamic_shared();

// The instructions of kernels/ptx.cuh, which says what they do.
unsigned short float16_from_float(float value);
unsigned short bfloat16_from_float(float value);
float float_from_float16(unsigned short bits);
unsigned magnitudes(unsigned a, unsigned b, bool larger);
unsigned magnitudes_or_nan(unsigned a, unsigned b, unsigned infinite);
unsigned greater_or_nan(unsigned a, unsigned b);
unsigned tf32_from_float(float value);
unsigned shared_address(const void* pointer);
void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
void mma_float16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
void mma_bfloat16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
void mma_float16(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]);
void mma_bfloat16(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]);
void mma_float64(double (&d)[2], double a, double b);
void load_matrices(unsigned (&r)[4], const void* row, bool transposed);
void copy_async(void* shared, const void* global, int bytes, int used);
void copy_async_commit();
void copy_async_wait(int pending);
inline void prefetch(const void*) {}
void wait_for_grids();
void named_barrier(int id, int threads, bool wait);
int atomic(int* address, int value, int (*operation)(int, int));
unsigned count_one(unsigned* address);
void mbarrier_init(unsigned long long* barrier, int arrivals);
void mbarrier_init_fence();
void mbarrier_arrive(unsigned long long* barrier, int bytes);
void mbarrier_wait(unsigned long long* barrier, int parity);
void bulk_copy(void* shared, const void* global, int bytes, unsigned long long* barrier);
void tensor_copy(void* shared, const unsigned long long* map, int x, int y, int z, unsigned long long* barrier);
void im2col_copy(void* shared, const unsigned long long* map, int axes, int channel, const int (&at)[3], int sample,
                 const int (&offsets)[3], unsigned long long* barrier);
void bulk_store(void* global, const void* shared, int bytes);
void bulk_store_commit();
void bulk_store_wait();
void async_proxy_fence();
void set_registers();
unsigned byte_select(unsigned low, unsigned high, unsigned which);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int pending);
void wgmma(int type, float* d, int n, unsigned long long a, unsigned long long b, bool accumulate,
           bool transposed = false, const unsigned* rows = nullptr);
inline void wgmma_of_registers(int type, float* d, int n, const unsigned (&a)[4], unsigned long long b,
                               bool accumulate) {
    wgmma(type, d, n, 0, b, accumulate, false, a);
}

}  // namespace emulator
