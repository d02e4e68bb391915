// The gradient of a weight from the partial sums of another kernel, which are added in order and rounded once.
//
//     gradient[i] = sum over range of partial[range][i]
//
// Partial sums lie as the gradient, by group, row, channel and tap, or with the channels of a tap together. In that case
// a block takes all taps of some channels of a row through shared memory, so that it stores neighbours together.
//
// A sum that is not finite is computed again, exactly. Zeros that stand for absent inputs make NaN of infinity, and
// infinity splits into parts that are NaN; neither is lost in a sum, so no other sum is concerned.
//
// Macros (set by cupyconv/_kernels/gradient_sum.py):
//     ELEMENT   type of the arrays (scalar.cuh)
//
// Launch: THREADS threads, any number of blocks; threads take elements in turn, or blocks tiles.

#include "gradient_axis.cuh"
#include "view.cuh"

constexpr int THREADS = 128;
constexpr int TILE = 1024;  // sums of a tile at the most

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

struct Arguments {
    const Element* input;
    const Element* grad;
    const Accumulator* partial;
    Element* out;
    int64 splits;
    int64 groups, rows, columns;  // of a group; columns are channels times taps
    int64 together;  // partial sums of a tap that lie together: one, or those of all channels
    int64 width;     // channels of a tile; 0 if there are no tiles
    int64 batch;
    int64 input_batch, input_group, input_channel;
    int64 grad_batch, grad_group, grad_row;
    Axis axis[3];
    View<1> view;  // of the output, in elements
};

// The element of the gradient whose partial sums have this number.
__device__ __forceinline__ int64 element_of(const Arguments& p, int64 number) {
    if (p.together == 1) return number;
    const int64 row = number / p.columns, column = number - row * p.columns;
    const int64 tap = column / p.together, channel = column - tap * p.together;
    return row * p.columns + channel * (p.columns / p.together) + tap;
}

// An element of the gradient as it is defined, by a warp. NaN stays NaN, so there it may end.
__device__ __noinline__ Accumulator exact_sum(const Arguments& p, int64 element) {
    const int64 row = element / p.columns, group = row / p.rows;
    int64 column = element - row * p.columns, origin[3];
    for (int a = 2; a >= 0; --a) {
        const Axis& axis = p.axis[a];
        origin[a] = column % axis.kernel * axis.dilation - axis.pad;
        column /= axis.kernel;
    }
    const Element* const input = p.input + group * p.input_group + column * p.input_channel;
    const Element* const grad = p.grad + group * p.grad_group + (row - group * p.rows) * p.grad_row;
    const int64 outputs = p.batch * p.axis[0].size_out * p.axis[1].size_out * p.axis[2].size_out;
    Accumulator sum = 0;
    for (int64 i = threadIdx.x % 32; __any_sync(~0u, i < outputs) && !__any_sync(~0u, sum != sum); i += 32) {
        int64 sample = i, from = 0, of = 0;
        bool present = i < outputs;
        for (int a = 2; a >= 0; --a) {
            const Axis& axis = p.axis[a];
            const int64 next = sample / axis.size_out, o = sample - next * axis.size_out;
            const int64 at = o * axis.step + origin[a];
            present &= at >= 0 && at < axis.size_in;
            from += at * axis.input, of += o * axis.grad, sample = next;
        }
        if (present)
            sum = multiply_add(widen<Accumulator>(grad[of + sample * p.grad_batch]),
                               widen<Accumulator>(input[from + sample * p.input_batch]), sum);
    }
    for (int apart = 1; apart < 32; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    return sum;
}

// The sum of partial sums of a number, for an element of the gradient. All threads of a warp take part, those too whose
// number is not `present`.
__device__ __forceinline__ Accumulator total_of(const Arguments& p, int64 number, int64 element, bool present) {
    const int64 elements = p.groups * p.rows * p.columns;
    Accumulator total = 0;
    if (present) {
#pragma unroll 8
        for (int64 split = 0; split < p.splits; ++split) total += p.partial[split * elements + number];
    }
    const unsigned special = __ballot_sync(~0u, is_special(total));
    for (int lane = 0; special && lane < 32; ++lane) {
        if (!(special >> lane & 1u)) continue;
        const Accumulator sum = exact_sum(p, __shfl_sync(~0u, element, lane));
        if (int(threadIdx.x % 32) == lane) total = sum;
    }
    return total;
}

// Adds tiles of `width` channels with all taps.
__device__ __forceinline__ void add_tiles(const Arguments& p, Accumulator (&tile)[TILE]) {
    const int taps = int(p.columns / p.together);
    const int64 across = (p.together + p.width - 1) / p.width, tiles = p.groups * p.rows * across;
    for (int64 i = blockIdx.x; i < tiles; i += gridDim.x) {
        const int64 row = i / across, channel = (i - row * across) * p.width, left = p.together - channel;
        const int width = int(left < p.width ? left : p.width), count = width * taps;
        for (int j = threadIdx.x; __any_sync(~0u, j < count); j += THREADS) {
            const int tap = j / width, own = j - tap * width;
            const int64 first = row * p.columns, number = first + tap * p.together + channel + own;
            const Accumulator total = total_of(p, number, first + (channel + own) * taps + tap, j < count);
            if (j < count) tile[own * taps + tap] = total;
        }
        __syncthreads();
        for (int j = threadIdx.x; j < count; j += THREADS)
            p.out[locate(p.view, row * p.columns + channel * taps + j).offset[0]] = narrow<Element>(tile[j]);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gradient_sum(const __grid_constant__ Arguments p) {
    __shared__ Accumulator tile[TILE];
    if (p.width) {
        add_tiles(p, tile);
        return;
    }
    const int64 elements = p.groups * p.rows * p.columns, apart = int64(gridDim.x) * THREADS;
    for (int64 i = int64(blockIdx.x) * THREADS + threadIdx.x; __any_sync(~0u, i < elements); i += apart) {
        const int64 element = element_of(p, i);
        const Accumulator total = total_of(p, i, element, i < elements);
        if (i < elements) p.out[locate(p.view, element).offset[0]] = narrow<Element>(total);
    }
}
