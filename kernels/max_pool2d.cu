// Max pooling over the last two axes.
//
//     out[lead, oh, ow] = max over (kh, kw) of in[lead, oh * stride_h - pad_h + kh * dilation_h, ...]
//
// Positions outside of the array take no part; the host has checked that every window holds at least
// one inside. A NaN in a window is its maximum.
//
// Macros (set by cupyconv/_plan.py): ELEMENT, the type of input and output; integers keep their sign.
// Launch: THREADS threads, any number of blocks, grid-strided. A thread takes UNROLL outputs along the
// longest axis. Neighbouring threads have neighbouring outputs; windows of 2 x 2 are read by two loads,
// of two elements each, where these are aligned.

#include "view.cuh"

constexpr int THREADS = 256;

typedef ELEMENT Element;

struct PoolAxis {
    int64 size_in, size_out, kernel, stride, dilation, pad;
};

// What grows along the axes of the outputs: where a window's first element lies, where the output
// lies, and, where windows reach out of the array, its numbers along the pooled axes.
enum { IN, RESULT, ROW, COLUMN };

struct Arguments {
    const Element* input;
    Element* out;
    PoolAxis axis[2];
    int64 input_axis[2];  // strides of the pooled axes
    int64 inside;         // whether all windows lie in the array
    int64 pairs;          // whether, moreover, all are 2 x 2 and their rows are aligned pairs
    Walk<4> outputs;
};

struct __align__(2 * sizeof(Element)) Pair {
    Element first, second;
};

// What elements are compared as.
template <typename T>
struct Compared {
    typedef T type;
    __device__ static T of(T value) { return value; }
};
template <>
struct Compared<float16> {
    typedef float type;
    __device__ static float of(float16 value) { return widen<float>(value); }
};
template <>
struct Compared<bfloat16> {
    typedef float type;
    __device__ static float of(bfloat16 value) { return widen<float>(value); }
};

// The largest element so far, or the first NaN.
struct Largest {
    Element element;
    typename Compared<Element>::type value;
    bool seen;

    __device__ void consider(Element other) {
        const typename Compared<Element>::type compared = Compared<Element>::of(other);
        if (!seen || compared > value || compared != compared) {
            if (seen && value != value) return;  // the first NaN stays
            element = other;
            value = compared;
            seen = true;
        }
    }
};

// The largest element of a window that begins at `input`, in this row and column of the outputs.
__device__ inline Largest largest_of(const Arguments& p, const Element* input, int64 row, int64 column) {
    const PoolAxis &h = p.axis[0], &w = p.axis[1];
    Largest largest = {};
    input -= h.pad * p.input_axis[0] + w.pad * p.input_axis[1];
    for (int64 kh = 0; kh < h.kernel; ++kh) {
        const int64 ih = row * h.stride - h.pad + kh * h.dilation;
        if (!p.inside && (ih < 0 || ih >= h.size_in)) continue;
        for (int64 kw = 0; kw < w.kernel; ++kw) {
            const int64 iw = column * w.stride - w.pad + kw * w.dilation;
            if (!p.inside && (iw < 0 || iw >= w.size_in)) continue;
            largest.consider(input[kh * h.dilation * p.input_axis[0] + kw * w.dilation * p.input_axis[1]]);
        }
    }
    return largest;
}

extern "C" __global__ void __launch_bounds__(THREADS) max_pool2d(const __grid_constant__ Arguments p) {
    const Walk<4>& outputs = p.outputs;
    const int64 threads = gridDim.x * int64(THREADS), line = p.axis[0].dilation * p.input_axis[0];
    for (int64 thread = blockIdx.x * int64(THREADS) + threadIdx.x; thread < outputs.threads; thread += threads) {
        const Steps<4> steps(outputs, thread);
        if (p.pairs) {
            Pair upper[UNROLL], lower[UNROLL];  // all on their way before the first one is needed
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                if (!steps.has(outputs, i)) continue;
                const Element* const input = p.input + steps.offset(outputs, i, IN);
                upper[i] = *(const Pair*)input;
                lower[i] = *(const Pair*)(input + line);
            }
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                if (!steps.has(outputs, i)) continue;
                Largest largest = {};
                largest.consider(upper[i].first);
                largest.consider(upper[i].second);
                largest.consider(lower[i].first);
                largest.consider(lower[i].second);
                p.out[steps.offset(outputs, i, RESULT)] = largest.element;
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < UNROLL && steps.has(outputs, i); ++i) {
                const int64 row = steps.offset(outputs, i, ROW), column = steps.offset(outputs, i, COLUMN);
                const Largest largest = largest_of(p, p.input + steps.offset(outputs, i, IN), row, column);
                p.out[steps.offset(outputs, i, RESULT)] = largest.element;
            }
        }
    }
}
