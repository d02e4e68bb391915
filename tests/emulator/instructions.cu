// One small kernel for each instruction of kernels/ptx_*.cuh and each exchange between threads, run on
// the emulator and on a GPU with the same inputs. Launch: one block of the size that the kernel's
// comment says.
#include "ptx.cuh"
#include "ptx_tensor.cuh"

struct Arguments {
    const unsigned* a;
    const unsigned* b;
    unsigned* out;
};

// What kernels of boxes take: descriptions of a and b, and the place of each box.
struct BoxArguments {
    TensorMap a, b;
    const int* places;
    unsigned* out;
};

#define KERNEL(name) extern "C" __global__ void name(const __grid_constant__ Arguments p)

// 32 threads: a (16, 8) times b (8, 8) on top of a's first 8 columns, row-major.
KERNEL(matrix_tf32) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const unsigned a[4] = {p.a[g * 8 + t], p.a[(g + 8) * 8 + t], p.a[g * 8 + t + 4], p.a[(g + 8) * 8 + t + 4]};
    const unsigned b[2] = {p.b[t * 8 + g], p.b[(t + 4) * 8 + g]};
    float d[4] = {1, 2, 3, 4};
    mma_tf32(d, a, b);
    for (int i = 0; i < 4; ++i) p.out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = __float_as_uint(d[i]);
}

// 32 threads: a (16, 16) times the transpose of b (8, 16), pairs of 16 bits.
template <bool BFLOAT16>
__device__ inline void matrix_16_bits(const Arguments& p) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const unsigned a[4] = {p.a[g * 8 + t], p.a[(g + 8) * 8 + t], p.a[g * 8 + t + 4], p.a[(g + 8) * 8 + t + 4]};
    const unsigned b[2] = {p.b[g * 8 + t], p.b[g * 8 + t + 4]};
    float d[4] = {1, 2, 3, 4};
    if (BFLOAT16)
        mma_bfloat16(d, a, b);
    else
        mma_float16(d, a, b);
    for (int i = 0; i < 4; ++i) p.out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = __float_as_uint(d[i]);
}
KERNEL(matrix_float16) { matrix_16_bits<false>(p); }
KERNEL(matrix_bfloat16) { matrix_16_bits<true>(p); }

// 32 threads: a (16, 8) times the transpose of b (8, 8), the first halves of their rows, added to something else.
template <bool BFLOAT16>
__device__ inline void half_a_matrix(const Arguments& p) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const unsigned a[2] = {p.a[g * 8 + t], p.a[(g + 8) * 8 + t]};
    const float c[4] = {1, 2, 3, 4};
    float d[4];
    if (BFLOAT16)
        mma_bfloat16(d, a, p.b[g * 8 + t], c);
    else
        mma_float16(d, a, p.b[g * 8 + t], c);
    for (int i = 0; i < 4; ++i) p.out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = __float_as_uint(d[i]);
}
KERNEL(half_a_matrix_float16) { half_a_matrix<false>(p); }
KERNEL(half_a_matrix_bfloat16) { half_a_matrix<true>(p); }

// 128 threads: the values of a, each warp turned around; the warp that counts the last one adds up all of them.
KERNEL(counts) {
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    unsigned* const count = p.out + 160;
    if (thread == 0) *count = 0;
    __syncthreads();
    p.out[warp * 32 + lane] = p.a[warp * 32 + 31 - lane];
    __syncwarp();
    unsigned before = 0;
    if (lane == 0) before = count_one(count);
    if (__shfl_sync(~0u, before, 0) != 3) return;
    __syncwarp();
    unsigned sum = 0;
    for (int w = 0; w < 4; ++w) sum += p.out[w * 32 + 31 - lane];
    p.out[128 + lane] = sum;
}

// 32 threads: a (8, 4) times b (4, 8) of float64.
KERNEL(matrix_float64) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    double d[2] = {1, 2};
    mma_float64(d, ((const double*)p.a)[g * 4 + t], ((const double*)p.b)[t * 8 + g]);
    ((double*)p.out)[g * 8 + 2 * t] = d[0];
    ((double*)p.out)[g * 8 + 2 * t + 1] = d[1];
}

// 32 threads: four matrices of 8 rows of 16 bytes, as they are and transposed.
KERNEL(load_matrix) {
    __shared__ __align__(16) unsigned tile[128];
    const int lane = threadIdx.x;
    for (int i = lane; i < 128; i += 32) tile[i] = p.a[i];
    __syncthreads();
    unsigned r[4];
    load_matrices<false>(r, tile + lane * 4);
    for (int i = 0; i < 4; ++i) p.out[lane * 8 + i] = r[i];
    load_matrices<true>(r, tile + lane * 4);
    for (int i = 0; i < 4; ++i) p.out[lane * 8 + 4 + i] = r[i];
}

// 32 threads: copies of 16, 8 and 4 bytes in two groups, some of them in part.
KERNEL(asynchronous_copies) {
    __shared__ __align__(16) unsigned tile[2][32][8];
    const int lane = threadIdx.x;
    copy_async<16>(tile[0][lane], p.a + lane * 4, 16);
    copy_async<8>(tile[0][lane] + 4, p.a + lane * 2, lane % 3 * 4);
    copy_async<4>(tile[0][lane] + 6, p.a + lane, 4);
    copy_async<4>(tile[0][lane] + 7, p.a + lane, lane % 2 * 4);
    copy_async_commit();
    copy_async<16>(tile[1][lane], p.b + lane * 4, lane % 5 * 4);
    copy_async<16>(tile[1][lane] + 4, p.b + lane * 4, 16);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    for (int i = 0; i < 8; ++i) p.out[lane * 16 + i] = tile[0][31 - lane][i];
    copy_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 8; ++i) p.out[lane * 16 + 8 + i] = tile[1][31 - lane][i];
}

// 128 threads: two warps produce, two consume, by two named barriers, three times.
KERNEL(named_barriers) {
    __shared__ unsigned tile[64];
    const int thread = threadIdx.x;
    for (int round = 0; round < 3; ++round) {
        if (thread < 64) {
            tile[thread] = p.a[round * 64 + thread];
            named_barrier_arrive(1, 128);
            named_barrier_wait(2, 128);
        } else {
            named_barrier_wait(1, 128);
            p.out[round * 64 + thread - 64] = tile[127 - thread];
            named_barrier_arrive(2, 128);
        }
    }
}

// 128 threads: two warps fill two stages in turn, two empty them, by mbarriers. The first waits for an
// empty stage are for the phase before the first one.
KERNEL(mbarriers) {
    __shared__ unsigned tile[2][64];
    __shared__ mbarrier full[2], empty[2];
    const int thread = threadIdx.x;
    if (thread < 2) {
        mbarrier_init(&full[thread], 64);
        mbarrier_init(&empty[thread], 64);
    }
    __syncthreads();
    for (int round = 0; round < 6; ++round) {
        const int stage = round % 2, parity = round / 2 % 2;
        if (thread < 64) {
            mbarrier_wait(&empty[stage], 1 - parity);
            tile[stage][thread] = p.a[round * 64 + thread];
            mbarrier_arrive(&full[stage]);
        } else {
            mbarrier_wait(&full[stage], parity);
            p.out[round * 64 + thread - 64] = tile[stage][127 - thread];
            mbarrier_arrive(&empty[stage]);
        }
    }
}

// 160 threads: a warp copies in bulk, through two stages, what four warps read; four rounds.
KERNEL(bulk_copies) {
    __shared__ __align__(16) unsigned tile[2][128];
    __shared__ mbarrier full[2], empty[2];
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], 128);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    for (int round = 0; round < 4; ++round) {
        const int stage = round % 2, parity = round / 2 % 2;
        if (thread >= 128) {
            if (thread == 128) {
                if (round >= 2) mbarrier_wait(&empty[stage], 1 - parity);
                mbarrier_arrive_expect(&full[stage], 512);
                bulk_copy(tile[stage], p.a + round * 128, 256, &full[stage]);
                bulk_copy(tile[stage] + 64, p.a + round * 128 + 64, 256, &full[stage]);
            }
        } else {
            mbarrier_wait(&full[stage], parity);
            p.out[round * 128 + thread] = tile[stage][127 - thread];
            mbarrier_arrive(&empty[stage]);
        }
    }
}

// 64 threads: each warp turns four lines around in shared memory, and stores them in bulk, a line by each of four lanes;
// four rounds.
KERNEL(bulk_stores) {
    __shared__ __align__(16) unsigned lines[2][4][32];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    for (int round = 0; round < 4; ++round) {
        const int first = (round * 2 + warp) * 4;
        bulk_store_wait();
        __syncwarp();
        for (int i = 0; i < 4; ++i) lines[warp][i][lane] = p.a[(first + i) * 32 + 31 - lane];
        async_proxy_fence();
        __syncwarp();
        if (lane < 4) bulk_store(p.out + (first + lane) * 32, lines[warp][lane], 128);
        bulk_store_commit();
    }
    bulk_store_wait();
}

// 128 threads: the sums of a warpgroup's matrix (64, N), row-major.
template <int N, int REGISTERS>
__device__ inline void store_matrix(unsigned* out, const float (&d)[REGISTERS]) {
    const int thread = threadIdx.x;
    for (int i = 0; i < N / 2; ++i) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
        out[row * N + i / 4 * 8 + thread % 4 * 2 + i % 2] = __float_as_uint(d[i]);
    }
}

// 128 threads: a (64, 16 words) times the transpose of b (N, 16 words), in steps of 8 words along K.
// The operands lie in columns of 16 bytes, [chunk][row], and b begins at row 3 of its column.
template <MatrixType TYPE, int N>
__device__ inline void matrix_of_warpgroup(const Arguments& p) {
    constexpr int SHIFT = 3, WORDS = 16, ROWS = N + SHIFT;
    DYNAMIC_SHARED(memory);
    unsigned* const a = (unsigned*)memory;
    unsigned* const b = (unsigned*)(memory + 8192);
    const int thread = threadIdx.x;
    for (int i = thread; i < 64 * WORDS; i += 128) {
        const int row = i / WORDS, k = i % WORDS;
        a[(k / 4 * 64 + row) * 4 + k % 4] = p.a[i];
    }
    for (int i = thread; i < N * WORDS; i += 128) {
        const int row = i / WORDS, k = i % WORDS;
        b[(k / 4 * ROWS + row + SHIFT) * 4 + k % 4] = p.b[i];
    }
    async_proxy_fence();
    __syncthreads();
    float d[N / 2];
    for (int i = 0; i < N / 2; ++i) d[i] = float(i);
    wgmma_fence();
    for (int step = 0; step < 2; ++step) {
        const unsigned* const x = a + step * 2 * 64 * 4;
        const unsigned* const y = b + (step * 2 * ROWS + SHIFT) * 4;
        Wgmma<TYPE, N>::multiply(d, matrix_descriptor(x, 64 * 16, 128), matrix_descriptor(y, ROWS * 16, 128), true);
        wgmma_commit();
    }
    wgmma_wait<0>();
    store_matrix<N>(p.out, d);
}
#ifdef WGMMA_TESTS
KERNEL(warpgroup_tf32) { matrix_of_warpgroup<MATRIX_TF32, 16>(p); }
KERNEL(warpgroup_float16) { matrix_of_warpgroup<MATRIX_FLOAT16, 64>(p); }
KERNEL(warpgroup_bfloat16) { matrix_of_warpgroup<MATRIX_BFLOAT16, 8>(p); }
KERNEL(warpgroup_tf32_64) { matrix_of_warpgroup<MATRIX_TF32, 64>(p); }
KERNEL(warpgroup_float16_32) { matrix_of_warpgroup<MATRIX_FLOAT16, 32>(p); }
KERNEL(warpgroup_tf32_96) { matrix_of_warpgroup<MATRIX_TF32, 96>(p); }
KERNEL(warpgroup_bfloat16_96) { matrix_of_warpgroup<MATRIX_BFLOAT16, 96>(p); }
KERNEL(warpgroup_tf32_104) { matrix_of_warpgroup<MATRIX_TF32, 104>(p); }
KERNEL(warpgroup_float16_104) { matrix_of_warpgroup<MATRIX_FLOAT16, 104>(p); }
KERNEL(warpgroup_tf32_120) { matrix_of_warpgroup<MATRIX_TF32, 120>(p); }
KERNEL(warpgroup_bfloat16_120) { matrix_of_warpgroup<MATRIX_BFLOAT16, 120>(p); }
KERNEL(warpgroup_tf32_wide) { matrix_of_warpgroup<MATRIX_TF32, 128>(p); }
KERNEL(warpgroup_float16_wide) { matrix_of_warpgroup<MATRIX_FLOAT16, 128>(p); }
KERNEL(warpgroup_bfloat16_wide) { matrix_of_warpgroup<MATRIX_BFLOAT16, 128>(p); }
KERNEL(warpgroup_tf32_256) { matrix_of_warpgroup<MATRIX_TF32, 256>(p); }
KERNEL(warpgroup_float16_256) { matrix_of_warpgroup<MATRIX_FLOAT16, 256>(p); }
KERNEL(warpgroup_bfloat16_256) { matrix_of_warpgroup<MATRIX_BFLOAT16, 256>(p); }

// 128 threads: the same product, with a's rows in registers.
template <MatrixType TYPE, int COLUMNS>
__device__ void rows_of_registers(const Arguments& p) {
    constexpr int WORDS = 16;  // two steps along K
    DYNAMIC_SHARED(memory);
    unsigned* const b = (unsigned*)memory;
    const int thread = threadIdx.x, row = thread / 32 * 16 + thread % 32 / 4;
    for (int i = thread; i < COLUMNS * WORDS; i += 128) b[(i % WORDS / 4 * COLUMNS + i / WORDS) * 4 + i % 4] = p.b[i];
    async_proxy_fence();
    __syncthreads();
    float d[COLUMNS / 2];
    for (int i = 0; i < COLUMNS / 2; ++i) d[i] = float(i);
    unsigned a[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        a[i / 4][i % 4] = p.a[(row + i % 2 * 8) * WORDS + i / 4 * 8 + i % 4 / 2 * 4 + thread % 4];
        settle(a[i / 4][i % 4]);
    }
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 2; ++step)
        WgmmaOfRegisters<TYPE, COLUMNS>::multiply(
            d, a[step], matrix_descriptor(b + step * 2 * COLUMNS * 4, COLUMNS * 16, 128), true);
    wgmma_commit();
    wgmma_wait<0>();
    store_matrix<COLUMNS>(p.out, d);
}
KERNEL(warpgroup_rows_tf32) { rows_of_registers<MATRIX_TF32, 64>(p); }
KERNEL(warpgroup_rows_tf32_128) { rows_of_registers<MATRIX_TF32, 128>(p); }
KERNEL(warpgroup_rows_tf32_48) { rows_of_registers<MATRIX_TF32, 48>(p); }
KERNEL(warpgroup_rows_tf32_32) { rows_of_registers<MATRIX_TF32, 32>(p); }
KERNEL(warpgroup_rows_float16) { rows_of_registers<MATRIX_FLOAT16, 48>(p); }
KERNEL(warpgroup_rows_float16_64) { rows_of_registers<MATRIX_FLOAT16, 64>(p); }
KERNEL(warpgroup_rows_bfloat16) { rows_of_registers<MATRIX_BFLOAT16, 32>(p); }
KERNEL(warpgroup_rows_bfloat16_64) { rows_of_registers<MATRIX_BFLOAT16, 64>(p); }

// 256 threads: a warpgroup gives registers to another one. Each starts with 128 for a thread, as two
// blocks fit on a multiprocessor.
extern "C" __global__ void __launch_bounds__(256, 2)
    warpgroup_registers(const __grid_constant__ Arguments p) {
    const int thread = threadIdx.x;
    if (thread < 128) {
        give_registers<40>();
        p.out[thread] = p.a[thread] + 1;
    } else {
        take_registers<216>();
        p.out[thread] = p.a[thread] * 2;
    }
}

#define KERNEL_OF_BOXES(name) extern "C" __global__ void name(const __grid_constant__ BoxArguments p)

// 128 threads: 12 boxes of a, of 36 rows each, through two stages; what lies in shared memory, word by word.
KERNEL_OF_BOXES(boxes) {
    constexpr int ROWS = 36, STAGE = 5120, BOXES = 12;
    DYNAMIC_SHARED(memory);
    mbarrier* const full = (mbarrier*)(memory + 2 * STAGE);
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; ++i) mbarrier_init(&full[i], 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    for (int box = 0; box < BOXES; ++box) {
        const int stage = box % 2, parity = box / 2 % 2;
        unsigned char* const start = memory + stage * STAGE;
        const int* const place = p.places + 3 * box;
        if (thread == 0) {
            mbarrier_arrive_expect(&full[stage], ROWS * 128);
            tensor_copy(start, &p.a, place[0], place[1], place[2], &full[stage]);
        }
        mbarrier_wait(&full[stage], parity);
        for (int i = thread; i < ROWS * 32; i += 128) p.out[box * ROWS * 32 + i] = ((const unsigned*)start)[i];
        __syncthreads();
    }
}

// 128 threads: 8 copies of 40 pixels of a, through two stages; what lies in shared memory, word by word. A copy has the
// first channel, the place of its first pixel, the sample and the offsets; a pixel has so many bytes.
template <int AXES, int ROW = 128>
__device__ inline void copy_pixels(const BoxArguments& p) {
    constexpr int PIXELS = 40, BYTES = PIXELS * ROW, STAGE = (BYTES + 1023) / 1024 * 1024, COPIES = 8;
    DYNAMIC_SHARED(memory);
    mbarrier* const full = (mbarrier*)(memory + 2 * STAGE);
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; ++i) mbarrier_init(&full[i], 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    for (int copy = 0; copy < COPIES; ++copy) {
        const int stage = copy % 2, parity = copy / 2 % 2;
        unsigned char* const start = memory + stage * STAGE;
        const int* const place = p.places + 8 * copy;
        if (thread == 0) {
            const int at[3] = {place[1], place[2], place[3]}, offsets[3] = {place[5], place[6], place[7]};
            mbarrier_arrive_expect(&full[stage], BYTES);
            im2col_copy<AXES>(start, &p.a, place[0], at, place[4], offsets, &full[stage]);
        }
        mbarrier_wait(&full[stage], parity);
        for (int i = thread; i < BYTES / 4; i += 128) p.out[copy * (BYTES / 4) + i] = ((const unsigned*)start)[i];
        __syncthreads();
    }
}
KERNEL_OF_BOXES(pixels_1) { copy_pixels<1>(p); }
KERNEL_OF_BOXES(pixels_2) { copy_pixels<2>(p); }
KERNEL_OF_BOXES(pixels_3) { copy_pixels<3>(p); }
KERNEL_OF_BOXES(narrow_pixels_64) { copy_pixels<2, 64>(p); }
KERNEL_OF_BOXES(narrow_pixels_32) { copy_pixels<2, 32>(p); }
KERNEL_OF_BOXES(narrow_pixels_16) { copy_pixels<2, 16>(p); }

// 128 threads: a box of a (64 rows) times the transpose of one of b (N rows), in four steps of 32 bytes along K.
template <MatrixType TYPE, int N>
__device__ inline void matrix_of_boxes(const BoxArguments& p) {
    constexpr int ROW_BYTES = 64 * 128, COLUMN_BYTES = N * 128;
    DYNAMIC_SHARED(memory);
    unsigned char* const columns = memory + ROW_BYTES;
    mbarrier* const full = (mbarrier*)(columns + COLUMN_BYTES);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_init_fence();
        mbarrier_arrive_expect(full, ROW_BYTES + COLUMN_BYTES);
        tensor_copy(memory, &p.a, p.places[0], p.places[1], p.places[2], full);
        tensor_copy(columns, &p.b, p.places[3], p.places[4], p.places[5], full);
    }
    __syncthreads();
    float d[N / 2];
    for (int i = 0; i < N / 2; ++i) d[i] = float(i);
    mbarrier_wait(full, 0);
    wgmma_fence();
    for (int k = 0; k < 128; k += 32)
        Wgmma<TYPE, N>::multiply(d, swizzled_descriptor(memory + k), swizzled_descriptor(columns + k), true);
    wgmma_commit();
    wgmma_wait<0>();
    store_matrix<N>(p.out, d);
}
KERNEL_OF_BOXES(warpgroup_boxes_tf32) { matrix_of_boxes<MATRIX_TF32, 64>(p); }
KERNEL_OF_BOXES(warpgroup_boxes_float16) { matrix_of_boxes<MATRIX_FLOAT16, 128>(p); }
KERNEL_OF_BOXES(warpgroup_boxes_bfloat16) { matrix_of_boxes<MATRIX_BFLOAT16, 256>(p); }

// 128 threads: the transpose of 64 pixels of a by 64 channels, times copies of as many pixels of b by BOX channels,
// each an offset further, beside each other; in four steps of 16 pixels. If they are SHARED, these are parts of one
// copy, each a pixel further.
template <MatrixType TYPE, int N, int BOX, bool SHARED = false>
__device__ inline void matrix_of_pixels(const BoxArguments& p) {
    constexpr int PIXELS = 64, PIXEL = BOX * 2, COPIES = SHARED ? 1 : N / BOX;
    constexpr int ROW_BYTES = PIXELS * 128, BOX_BYTES = (SHARED ? PIXELS + N / BOX - 1 : PIXELS) * PIXEL;
    constexpr int COLUMN_BYTES = COPIES * BOX_BYTES;
    DYNAMIC_SHARED(memory);
    unsigned char* const columns = memory + ROW_BYTES;
    mbarrier* const full = (mbarrier*)(columns + COLUMN_BYTES);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_init_fence();
        mbarrier_arrive_expect(full, ROW_BYTES + COLUMN_BYTES);
        const int first[3] = {p.places[0]}, none[3] = {};
        im2col_copy<1>(memory, &p.a, 0, first, p.places[1], none, full);
        for (int box = 0; box < COPIES; ++box) {
            const int offsets[3] = {box};
            im2col_copy<1>(columns + box * BOX_BYTES, &p.b, 0, first, p.places[1], offsets, full);
        }
    }
    __syncthreads();
    float d[N / 2];
    for (int i = 0; i < N / 2; ++i) d[i] = float(i);
    mbarrier_wait(full, 0);
    wgmma_fence();
    for (int k = 0; k < PIXELS; k += 16)
        Wgmma<TYPE, N, true>::multiply(d, transposed_descriptor(memory + k * 128, 128, ROW_BYTES),
                                       transposed_descriptor(columns + k * PIXEL, PIXEL, SHARED ? PIXEL : BOX_BYTES),
                                       true);
    wgmma_commit();
    wgmma_wait<0>();
    store_matrix<N>(p.out, d);
}
KERNEL_OF_BOXES(warpgroup_pixels_float16) { matrix_of_pixels<MATRIX_FLOAT16, 256, 64>(p); }
KERNEL_OF_BOXES(warpgroup_pixels_bfloat16) { matrix_of_pixels<MATRIX_BFLOAT16, 192, 64>(p); }
KERNEL_OF_BOXES(warpgroup_pixels_float16_32) { matrix_of_pixels<MATRIX_FLOAT16, 192, 32>(p); }
KERNEL_OF_BOXES(warpgroup_pixels_bfloat16_32) { matrix_of_pixels<MATRIX_BFLOAT16, 256, 32>(p); }
KERNEL_OF_BOXES(warpgroup_pixels_float16_16) { matrix_of_pixels<MATRIX_FLOAT16, 64, 16>(p); }
KERNEL_OF_BOXES(warpgroup_pixels_bfloat16_16) { matrix_of_pixels<MATRIX_BFLOAT16, 128, 16>(p); }
KERNEL_OF_BOXES(warpgroup_pixels_float16_8) { matrix_of_pixels<MATRIX_FLOAT16, 128, 8>(p); }
KERNEL_OF_BOXES(warpgroup_pixels_bfloat16_8) { matrix_of_pixels<MATRIX_BFLOAT16, 64, 8>(p); }
KERNEL_OF_BOXES(warpgroup_shared_pixels_float16) { matrix_of_pixels<MATRIX_FLOAT16, 192, 64, true>(p); }
KERNEL_OF_BOXES(warpgroup_shared_pixels_bfloat16_32) { matrix_of_pixels<MATRIX_BFLOAT16, 224, 32, true>(p); }
KERNEL_OF_BOXES(warpgroup_shared_pixels_float16_32) { matrix_of_pixels<MATRIX_FLOAT16, 160, 32, true>(p); }
KERNEL_OF_BOXES(warpgroup_shared_pixels_bfloat16_16) { matrix_of_pixels<MATRIX_BFLOAT16, 96, 16, true>(p); }
KERNEL_OF_BOXES(warpgroup_shared_pixels_float16_8) { matrix_of_pixels<MATRIX_FLOAT16, 64, 8, true>(p); }
#endif

// 64 threads: shuffles and votes of a warp, and the block's counting barriers.
KERNEL(exchanges) {
    const int thread = threadIdx.x, lane = thread % 32;
    const unsigned value = p.a[thread];
    unsigned* out = p.out + thread * 16;
    out[0] = __shfl_sync(~0u, value, 5);
    out[1] = __shfl_sync(~0u, value, 3, 8);
    out[2] = __shfl_xor_sync(~0u, value, 9);
    out[3] = __shfl_up_sync(~0u, value, 3);
    out[4] = __shfl_down_sync(~0u, value, 4, 16);
    out[5] = __ballot_sync(~0u, value & 1);
    out[6] = __any_sync(~0u, value % 64 == 7);
    out[7] = __all_sync(~0u, value != 12345);
    out[8] = 0;
    if (lane < 8) out[8] = __shfl_xor_sync(0xff, value, 1);
    __syncwarp();
    out[9] = __syncthreads_or(value % 32 == 7);
    out[10] = __syncthreads_and(value != 12345);
    out[11] = __syncthreads_count(value & 2);
    const double wide = __shfl_xor_sync(~0u, double(value) * 1.5, 1);
    out[12] = unsigned(wide);
    out[13] = out[14] = out[15] = 0;
}

// 256 threads: every 16-bit float to 32 bits and back, and the 32-bit floats of b to 16 bits.
KERNEL(conversions) {
    for (int i = threadIdx.x; i < 65536; i += 256) {
        const float value = float_from_float16((unsigned short)i);
        p.out[i] = __float_as_uint(value);
        p.out[65536 + i] = float16_from_float(value);
        p.out[131072 + i] = float16_from_float(__uint_as_float(p.b[i]));
    }
}

// 256 threads: the 32-bit floats of b to tf32.
KERNEL(tf32_conversions) {
    for (int i = threadIdx.x; i < 65536; i += 256) p.out[i] = tf32_from_float(__uint_as_float(p.b[i]));
}

// 256 threads: neighbouring 32-bit floats of b to pairs of either kind of 16-bit floats, the first one alone
// to bfloat16, and the larger one; and of the same bits as pairs of 16-bit floats the larger and smaller
// magnitudes, and for either kind of them the larger ones or NaN; and where the first one is greater or NaN.
KERNEL(pair_conversions) {
    for (int i = threadIdx.x; i < 65535; i += 256) {
        const float first = __uint_as_float(p.b[i]), second = __uint_as_float(p.b[i + 1]);
        p.out[9 * i] = float16_pair(first, second);
        p.out[9 * i + 1] = bfloat16_pair(first, second);
        p.out[9 * i + 2] = bfloat16_from_float(first);
        p.out[9 * i + 3] = __float_as_uint(max_or_nan(first, second));
        p.out[9 * i + 4] = larger_magnitudes(p.b[i], p.b[i + 1]);
        p.out[9 * i + 5] = smaller_magnitudes(p.b[i], p.b[i + 1]);
        p.out[9 * i + 6] = float16_magnitudes_or_nan(p.b[i], p.b[i + 1]);
        p.out[9 * i + 7] = bfloat16_magnitudes_or_nan(p.b[i], p.b[i + 1]);
        p.out[9 * i + 8] = float16_greater_or_nan(p.b[i], p.b[i + 1]);
    }
}

// 256 threads: bytes of neighbours in b, chosen by the low bits of a third; pairs of them, each if it is odd.
KERNEL(bytes_and_pairs) {
    for (int i = threadIdx.x; i < 65534; i += 256) p.out[i] = byte_select(p.b[i], p.b[i + 1], p.b[i + 2] & 0xffff);
    for (int i = threadIdx.x; i < 1024; i += 256) {
        const Bits64 bits = {p.b[2 * i], p.b[2 * i + 1]};
        store_bits((Bits64*)(p.out + 65534) + i, Bits64{0, 0}, true);
        store_bits((Bits64*)(p.out + 65534) + i, bits, bits.first & 1);
        store_bits(p.out + 65534 + 2048 + i, 0u, true);
        store_bits(p.out + 65534 + 2048 + i, bits.second, bits.second & 1);
    }
}
