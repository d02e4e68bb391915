// The sums of outputs whose products another kernel has added up in several ranges (split-K).
//
//     out[i] = sum over split of partial[split][i] + bias[row of i]
//
// The ranges are added in order, by one thread for each output, and rounded once. Outputs are numbered
// in row-major order; a view says where each lies.
//
//     partial   [split 0: outputs 0, 1, ... ] [split 1: outputs 0, 1, ... ] ...
//                           |                            |
//     thread i              +-------------- + -----------+-- ...  -->  out[view(i)]
//
// Macros (set by cupyconv/_kernels/sum_splits.py):
//     ELEMENT   type of the outputs (scalar.cuh); partial sums have the type of its accumulator
//
// Launch: THREADS threads, any number of blocks; threads take outputs in turn. It may begin early.

#include "scalar.cuh"
#include "view.cuh"

constexpr int THREADS = 128;

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

struct Arguments {
    const Accumulator* partial;
    Element* out;
    Parameter bias;
    int64 splits, outputs;
    int64 row_outputs, rows;  // outputs of a row, neighbours that have one bias; and rows
    View<1> view;  // of the output, in elements
};

extern "C" __global__ void __launch_bounds__(THREADS) sum_splits(const __grid_constant__ Arguments p) {
    launch_grids();
    wait_for_grids();  // before any array is read or written
    const int64 stride = int64(gridDim.x) * THREADS;
    for (int64 i = int64(blockIdx.x) * THREADS + threadIdx.x; i < p.outputs; i += stride) {
        Accumulator total = zero<Accumulator>();
#pragma unroll 8
        for (int64 split = 0; split < p.splits; ++split) total = add(total, p.partial[split * p.outputs + i]);
        const Accumulator bias =
            p.bias.data ? load_parameter<Accumulator>(p.bias, i / p.row_outputs % p.rows) : zero<Accumulator>();
        p.out[locate(p.view, i).offset[0]] = narrow<Element>(add(total, bias));
    }
}
