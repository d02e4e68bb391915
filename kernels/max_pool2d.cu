// Max pooling over the last two axes.
//
//     out[lead, oh, ow] = max over (kh, kw) of in[lead, oh * stride_h - pad_h + kh * dilation_h, ...]
//
// Of equal values (-0 and +0 are equal) the first in row-major order is the maximum, and the first NaN is larger than
// all other values. So a maximum of maxima, in order, has the same bits, and the host (cupyconv/_kernels/max_pool2d.py)
// pools a large window by several launches of this kernel through workspace: first each row of the window, perhaps in
// parts, and then the column of these maxima.
//
//     . . . . . . .
//     . a a|a a . .        A A                     ow
//     . b b|b b . .  --->  B B  --->  (A B C)  oh [ M ]
//     . c c|c c . .        C C
//     . . . . . . .
//
// Positions outside of the array take no part and no time: loops run over the taps inside. A part of a window without
// any tap inside gives the lowest value; the host has checked that each whole window has a tap inside.
//
// Macros (set by cupyconv/_kernels/max_pool2d.py):
//     ELEMENT   type of input and output; integers keep their sign
//     LANES     threads that share a window: 32 or 1
//     ACROSS    1 if a thread has the windows of a pack of channels, which lie innermost in the input, in out or in both
//
// Launch: THREADS threads, any number of blocks, grid-strided. With LANES = 1 a thread computes UNROLL windows along
// the longest axis, and neighbouring threads have neighbouring outputs; windows of 2 x 2 are read by two loads of two
// elements each, if these are aligned. With ACROSS, for LANES = 1, a thread has UNROLL windows of each of PACK channels,
// which are 16 bytes, and neighbouring threads have neighbouring packs or places.

#include "view.cuh"

constexpr int THREADS = 256;
constexpr int UNDER_WAY = 5;  // loads of a thread at a time: two times for a window of 3 x 3
constexpr bool SHARED = LANES > 1;

typedef ELEMENT Element;

constexpr int PACK = 16 / sizeof(Element);

struct PoolAxis {
    int64 size_in, size_out, kernel, stride, dilation, pad;
};

// The arrays and indices of the walk over the outputs: the offset of a window's first element and the offset of the
// output; and, if windows reach out of the array, the window's first positions on the pooled axes. Padding does not
// count in them.
enum { IN, RESULT, ROW, COLUMN };

struct Arguments {
    const Element* input;
    Element* out;
    PoolAxis axis[2];     // a warp shares the second one, which may be the height
    int64 input_axis[2];  // strides of the pooled axes
    int64 inside;         // 1 if all windows lie in the array
    int64 pairs;          // 1 if moreover all windows are 2 x 2 and their rows are aligned pairs
    int64 packs;          // 1 if neighbouring taps of a shared window are neighbours in memory
    // Elements from one channel of a pack to the next in the input and in out, 0 if they are contiguous and aligned.
    int64 gaps[2];
    Walk<4> outputs;
};

template <int WIDTH>
struct __align__(WIDTH * sizeof(Element)) Pack {
    Element of[WIDTH];
};

// The type as which elements are compared, and the lowest element.
template <typename T>
struct Compared {
    typedef T type;
    __device__ static T of(T value) { return value; }
    __device__ static T lowest() { return T(-1) < T(0) ? T(T(1) << (8 * sizeof(T) - 1)) : T(0); }
};
template <>
struct Compared<float> {
    typedef float type;
    __device__ static float of(float value) { return value; }
    __device__ static float lowest() { return __uint_as_float(0xff800000u); }
};
template <>
struct Compared<double> {
    typedef double type;
    __device__ static double of(double value) { return value; }
    __device__ static double lowest() { return __uint_as_float(0xff800000u); }
};
template <>
struct Compared<float16> {
    typedef float type;
    __device__ static float of(float16 value) { return widen<float>(value); }
    __device__ static float16 lowest() { return {0xfc00}; }
};
template <>
struct Compared<bfloat16> {
    typedef float type;
    __device__ static float of(bfloat16 value) { return widen<float>(value); }
    __device__ static bfloat16 lowest() { return {0xff80}; }
};

// The first of the largest elements so far, or the first NaN.
struct Largest {
    typedef typename Compared<Element>::type Value;
    Element element = Compared<Element>::lowest();
    Value value = Compared<Element>::of(element);
    int64 tap = (1ll << 62) + threadIdx.x % LANES;  // number in the window; before the first tap it differs by lane

    // Taps are considered in order.
    __device__ void consider(Element other, int64 number = 0) {
        const Value compared = Compared<Element>::of(other);
        if (!(compared <= value) && value == value) {  // larger, or the first NaN
            element = other;
            value = compared;
            tap = number;
        }
    }
};

// The elements of a pack, or the words that hold them.
union PackWords {
    Pack<PACK> pack;
    Bits128 bits;
};

// The first of the largest elements so far, or the first NaN, for each element of a pack.
template <typename T>
struct LargestPack {
    Largest largest[PACK];

    __device__ void consider(const Bits128& bits) {
        PackWords others;
        others.bits = bits;
#pragma unroll
        for (int j = 0; j < PACK; ++j) largest[j].consider(others.pack.of[j]);
    }
    __device__ Bits128 elements() const {
        PackWords all;
#pragma unroll
        for (int j = 0; j < PACK; ++j) all.pack.of[j] = largest[j].element;
        return all.bits;
    }
};
// Instructions compare two of these at a time.
template <>
struct LargestPack<float16> {
    Bits128 largest = {{0xfc00fc00, 0xfc00fc00, 0xfc00fc00, 0xfc00fc00}};

    __device__ void consider(const Bits128& others) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned own = largest.words[i], other = others.words[i];
            const unsigned taken = float16_greater_or_nan(other, own) & ~float16_greater_or_nan(own, own);
            largest.words[i] = (other & taken) | (own & ~taken);
        }
    }
    __device__ Bits128 elements() const { return largest; }
};

// The taps of a window that lie in the array, along one axis.
struct Taps {
    int64 first, end;

    __device__ Taps(const PoolAxis& axis, int64 start, bool inside) : first(0), end(axis.kernel) {
        if (inside) return;
        const int64 present = axis.size_in - start;  // positions from the start to the end of the array
        if (start < 0) first = steps_over(-start, axis.dilation);
        if (present <= axis.dilation * (axis.kernel - 1)) end = steps_over(present, axis.dilation);
    }
    // The number of steps that pass over `positions` positions; zero steps pass over none.
    __device__ static int64 steps_over(int64 positions, int64 step) {
        if (positions <= 0) return 0;
        return step == 1 ? positions : (positions + step - 1) / step;
    }
};

// A window of the input, or a part of one.
struct Window {
    const Element* input;  // address of tap 0, 0, which may lie outside of the array
    int64 step[2];         // elements from one tap to the next
    Taps rows, columns;

    __device__ Window(const Arguments& p, const Steps<4>& steps, int i)
        : input(p.input + steps.offset(p.outputs, i, IN) - p.axis[0].pad * p.input_axis[0] -
                p.axis[1].pad * p.input_axis[1]),
          step{p.axis[0].dilation * p.input_axis[0], p.axis[1].dilation * p.input_axis[1]},
          rows(p.axis[0], steps.offset(p.outputs, i, ROW) - p.axis[0].pad, p.inside),
          columns(p.axis[1], steps.offset(p.outputs, i, COLUMN) - p.axis[1].pad, p.inside) {}
};

// Lets `largest` consider what `load` returns of each tap of a window, in order.
template <typename Largests, typename Load>
__device__ inline void consider_taps(Largests& largest, const Window& window, Load load) {
    const int64 width = window.columns.end - window.columns.first;
    const int64 taps = (window.rows.end - window.rows.first) * width, to_line = window.step[0] - width * window.step[1];
    const Element* from = window.input + window.rows.first * window.step[0] + window.columns.first * window.step[1];
    int64 column = 0;
    for (int64 left = taps; left > 0; left -= UNDER_WAY) {
        decltype(load(from)) loaded[UNDER_WAY];  // all loads are issued before the first result is used
#pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i) {
            if (i >= left) break;
            loaded[i] = load(from);
            from += window.step[1];
            if (++column == width) column = 0, from += to_line;
        }
#pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i) {
            if (i >= left) break;
            largest.consider(loaded[i]);
        }
    }
}

// ---- one thread for a window ----

__device__ inline Element largest_of(const Window& window) {
    Largest largest;
    consider_taps(largest, window, [](const Element* from) { return *from; });
    return largest.element;
}

// ---- one thread for the windows of a pack of channels ----

template <bool TOGETHER>
__device__ inline Bits128 load_channels(const Element* from, int64 gap) {
    if constexpr (TOGETHER) return *(const Bits128*)from;
    PackWords loaded;
#pragma unroll
    for (int j = 0; j < PACK; ++j) loaded.pack.of[j] = from[j * gap];
    return loaded.bits;
}

template <bool IN_TOGETHER, bool OUT_TOGETHER>
__device__ inline void pool_channels(const Arguments& p, const Window& window, Element* out) {
    LargestPack<Element> largest;
    consider_taps(largest, window, [&p](const Element* from) { return load_channels<IN_TOGETHER>(from, p.gaps[IN]); });
    PackWords result;
    result.bits = largest.elements();
    if constexpr (OUT_TOGETHER) {
        *(Bits128*)out = result.bits;
    } else {
#pragma unroll
        for (int j = 0; j < PACK; ++j) out[j * p.gaps[RESULT]] = result.pack.of[j];
    }
}

__device__ inline void pool_layouts(const Arguments& p, const Window& window, Element* out) {
    if (p.gaps[RESULT])
        pool_channels<true, false>(p, window, out);
    else if (p.gaps[IN])
        pool_channels<false, true>(p, window, out);
    else
        pool_channels<true, true>(p, window, out);
}

// ---- one warp for a window ----

// Considers a lane's share of `count` packs of WIDTH elements, with several loads under way at a time.
template <int WIDTH>
__device__ inline void take(Largest& largest, const Element* from, int64 step, int64 count, int64 number) {
    for (int64 first = threadIdx.x % LANES; first < count; first += LANES * UNROLL) {
        Pack<WIDTH> packs[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            if (first + i * LANES < count) packs[i] = *(const Pack<WIDTH>*)(from + (first + i * LANES) * step);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            if (first + i * LANES >= count) break;
#pragma unroll
            for (int k = 0; k < WIDTH; ++k)
                largest.consider(packs[i].of[k], number + (first + i * LANES) * WIDTH + k);
        }
    }
}

// Considers a lane's share of contiguous elements: aligned packs, and the elements before and after them.
__device__ inline void take_line(Largest& largest, const Element* from, int64 count, int64 number) {
    const int64 before = -(unsigned long long)from / sizeof(Element) % PACK, head = before < count ? before : count;
    const int64 packs = (count - head) / PACK, lane = threadIdx.x % LANES, last = head + packs * PACK + lane;
    if (lane < head) largest.consider(from[lane], number + lane);
    take<PACK>(largest, from + head, PACK, packs, number + head);
    if (last < count) largest.consider(from[last], number + last);
}

// The number of the tap that is the maximum over all lanes.
__device__ inline int64 largest_of_warp(const Largest& largest) {
    auto value = largest.value;
    int64 tap = largest.tap;
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        const typename Largest::Value other = __shfl_xor_sync(~0u, value, apart);
        const int64 number = __shfl_xor_sync(~0u, tap, apart);
        const bool equal = value == other || (value != value && other != other);
        if (equal ? number < tap : other > value || other != other) value = other, tap = number;
    }
    return tap;
}

// Computes a window by a warp.
__device__ inline void share(const Arguments& p, const Window& window, Element* out) {
    const int64 count = window.columns.end - window.columns.first;
    Largest largest;
    for (int64 row = window.rows.first; row < window.rows.end; ++row) {
        const Element* const line = window.input + row * window.step[0] + window.columns.first * window.step[1];
        const int64 number = row * p.axis[1].kernel;
        if (p.packs)
            take_line(largest, line, count, number);
        else
            take<1>(largest, line, window.step[1], count, number);
    }
    if (largest.tap == largest_of_warp(largest)) *out = largest.element;
}

// ---- entry point ----

extern "C" __global__ void __launch_bounds__(THREADS) max_pool2d(const __grid_constant__ Arguments p) {
    constexpr int WORKERS = THREADS / LANES;
    const Walk<4>& outputs = p.outputs;
    const int64 workers = gridDim.x * int64(WORKERS);
    for (int64 worker = blockIdx.x * int64(WORKERS) + threadIdx.x / LANES; worker < outputs.threads;
         worker += workers) {
        const Steps<4> steps(outputs, worker);
        if constexpr (SHARED) {
            share(p, Window(p, steps, 0), p.out + steps.offset(outputs, 0, RESULT));
        } else if constexpr (ACROSS) {
#pragma unroll 1
            for (int i = 0; i < UNROLL && steps.has(outputs, i); ++i)
                pool_layouts(p, Window(p, steps, i), p.out + steps.offset(outputs, i, RESULT));
        } else if (p.pairs) {
            const int64 line = p.axis[0].dilation * p.input_axis[0];
            Pack<2> upper[UNROLL], lower[UNROLL];  // all loads are issued before the first result is used
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                if (!steps.has(outputs, i)) continue;
                const Element* const input = p.input + steps.offset(outputs, i, IN);
                upper[i] = *(const Pack<2>*)input;
                lower[i] = *(const Pack<2>*)(input + line);
            }
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                if (!steps.has(outputs, i)) continue;
                Largest largest;
                largest.consider(upper[i].of[0]);
                largest.consider(upper[i].of[1]);
                largest.consider(lower[i].of[0]);
                largest.consider(lower[i].of[1]);
                p.out[steps.offset(outputs, i, RESULT)] = largest.element;
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < UNROLL && steps.has(outputs, i); ++i)
                p.out[steps.offset(outputs, i, RESULT)] = largest_of(Window(p, steps, i));
        }
    }
}
