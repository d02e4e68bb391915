// Products of spectra, summed over channels: the middle of a convolution by FFT.
//
//     out[g, i, j, f] = scale * sum over k of conj(a[g, i, k, f]) * b[g, k, j, f]
//
// For a convolution a has weights, b samples, and k runs over input channels; for the gradient with respect to a
// weight a has gradients of the output, and k runs over samples. Each polyphase component of a strided convolution has
// values of k of its own. The spectra stay as the transforms left them: the frequencies f are neighbours, and the other
// axes have any strides.
//
//     thread f:      b[k, j ... j + TILE - 1]
//                    |
//     a[i ...]  -->  TILE x TILE sums in registers, for one frequency; neighbouring threads have
//     conjugated     neighbouring frequencies, so that all loads and stores are whole lines
//
// A sum runs over k in ascending order, SEGMENT products at a time: sums of segments are added up apart, so that the
// rounding error of products of one sign grows little with their number. With `adds` the result is added to what is
// there.
//
// Macros (set by cupyconv/_kernels/spectra.py):
//     ELEMENT   complex<float> or complex<double> (scalar.cuh)
//     TILE      sums of a thread along i and j
//
// Launch: THREADS threads, any number of blocks; blocks take tasks in turn, a task is THREADS frequencies of a tile.

#include "division.cuh"

constexpr int THREADS = 128;
constexpr int SEGMENT = 16;

typedef ELEMENT Element;

struct Arguments {
    const Element* a;
    const Element* b;
    Element* out;
    int64 adds;   // 1 if the result is added to `out`
    double scale;
    int64 tasks, frequencies, rows, columns, depth;  // of out's i and j, and of k
    int64 a_group, a_row, a_depth, b_group, b_depth, b_column, out_group, out_row, out_column;
    int64 parts[3], reciprocals[3];  // tasks along f, j and i, and their long reciprocals
};

extern "C" __global__ void __launch_bounds__(THREADS) spectra(const __grid_constant__ Arguments p) {
    typedef decltype(Element().re) Real;
    for (int64 task = blockIdx.x; task < p.tasks; task += gridDim.x) {
        int64 group = task, part[3];
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            const int64 next = long_quotient(group, p.parts[a], p.reciprocals[a]);
            part[a] = group - next * p.parts[a];
            group = next;
        }
        const int64 f = part[0] * THREADS + threadIdx.x, j = part[1] * TILE, i = part[2] * TILE;
        if (f >= p.frequencies) continue;
        const Element* a = p.a + group * p.a_group + i * p.a_row + f;
        const Element* b = p.b + group * p.b_group + j * p.b_column + f;
        Element total[TILE][TILE] = {};
        for (int64 k = 0; k < p.depth;) {
            Element sum[TILE][TILE] = {};
            const int64 end = k + SEGMENT < p.depth ? k + SEGMENT : p.depth;
            for (; k < end; ++k, a += p.a_depth, b += p.b_depth) {
                Element left[TILE], right[TILE];
#pragma unroll
                for (int t = 0; t < TILE; ++t) {
                    left[t] = i + t < p.rows ? a[t * p.a_row] : Element();
                    right[t] = j + t < p.columns ? b[t * p.b_column] : Element();
                }
#pragma unroll
                for (int u = 0; u < TILE; ++u)
#pragma unroll
                    for (int v = 0; v < TILE; ++v) {
                        sum[u][v].re += left[u].re * right[v].re + left[u].im * right[v].im;
                        sum[u][v].im += left[u].re * right[v].im - left[u].im * right[v].re;
                    }
            }
#pragma unroll
            for (int u = 0; u < TILE; ++u)
#pragma unroll
                for (int v = 0; v < TILE; ++v) total[u][v].re += sum[u][v].re, total[u][v].im += sum[u][v].im;
        }
        Element* const out = p.out + group * p.out_group + i * p.out_row + j * p.out_column + f;
#pragma unroll
        for (int u = 0; u < TILE; ++u)
#pragma unroll
            for (int v = 0; v < TILE; ++v) {
                if (i + u >= p.rows || j + v >= p.columns) continue;
                Element& to = out[u * p.out_row + v * p.out_column];
                Element value = {Real(total[u][v].re * p.scale), Real(total[u][v].im * p.scale)};
                if (p.adds) value = {value.re + to.re, value.im + to.im};
                to = value;
            }
    }
}
