// Max pooling over the last two axes.
//
//     out[lead, oh, ow] = max over (kh, kw) of in[lead, oh * stride_h - pad_h + kh * dilation_h, ...]
//
// Positions outside of the array take no part; the host has checked that every window holds at least
// one inside. A NaN in a window is its maximum.
//
// Macros (set by cupyconv/_plan.py): ELEMENT, the type of input and output; integers keep their sign.
// Launch: THREADS threads, any number of blocks, one thread an output, grid-strided.

#include "view.cuh"

constexpr int THREADS = 256;

typedef ELEMENT Element;

struct PoolAxis {
    int64 size_in, size_out, kernel, stride, dilation, pad;
};

struct Arguments {
    const Element* input;
    Element* out;
    int64 images;  // product of the leading axes
    PoolAxis axis[2];
    int64 input_axis[2], out_axis[2];  // strides of the pooled axes
    View input_lead, out_lead;
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

extern "C" __global__ void __launch_bounds__(THREADS) max_pool2d(const __grid_constant__ Arguments p) {
    const PoolAxis &h = p.axis[0], &w = p.axis[1];
    const int64 values = p.images * h.size_out * w.size_out;
    for (int64 i = blockIdx.x * int64(THREADS) + threadIdx.x; i < values; i += gridDim.x * int64(THREADS)) {
        const int64 rest = i / w.size_out, ow = i - rest * w.size_out;
        const int64 image = rest / h.size_out, oh = rest - image * h.size_out;
        const Element* input = p.input + offset_of(p.input_lead, image);
        Element best = Element{};
        typename Compared<Element>::type largest = Compared<Element>::of(best);
        bool seen = false;
        for (int64 kh = 0; kh < h.kernel; ++kh) {
            const int64 ih = oh * h.stride - h.pad + kh * h.dilation;
            if (ih < 0 || ih >= h.size_in) continue;
            for (int64 kw = 0; kw < w.kernel; ++kw) {
                const int64 iw = ow * w.stride - w.pad + kw * w.dilation;
                if (iw < 0 || iw >= w.size_in) continue;
                const Element element = input[ih * p.input_axis[0] + iw * p.input_axis[1]];
                const typename Compared<Element>::type value = Compared<Element>::of(element);
                if (!seen || value > largest || value != value) {
                    if (seen && largest != largest) continue;  // the first NaN stays
                    best = element;
                    largest = value;
                    seen = true;
                }
            }
        }
        p.out[offset_of(p.out_lead, image) + oh * p.out_axis[0] + ow * p.out_axis[1]] = best;
    }
}
