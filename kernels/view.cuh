// Addresses of elements in arrays of any number of axes and any strides.
#pragma once
#include "division.cuh"

constexpr int MAX_AXES = 28;
// Axes of unrolled loops, whose sizes and strides are operands of instructions. More axes are rare.
constexpr int FEW_AXES = 4;

// The common axes of ARRAYS arrays, the fastest first; there is at least one. The host merges
// neighbouring axes that are contiguous in all arrays. An "array" may also be an index that grows along
// some of the axes, such as the index of the channel.
template <int ARRAYS>
struct View {
    int64 axes;
    int64 size[MAX_AXES];
    int64 reciprocal[MAX_AXES];  // long reciprocals of the sizes
    int64 stride[ARRAYS][MAX_AXES];  // in elements
};

template <int ARRAYS>
struct Place {
    int64 offset[ARRAYS];

    __device__ void go(const View<ARRAYS>& view, int axis, int64 steps) {
#pragma unroll
        for (int i = 0; i < ARRAYS; ++i) offset[i] += steps * view.stride[i][axis];
    }
};

// Does what `locate` does for numbers of 2**31 and more.
template <int ARRAYS>
__device__ __noinline__ Place<ARRAYS> locate_far(const View<ARRAYS>& view, int64 number) {
    Place<ARRAYS> place = {};
    for (int a = 0; a + 1 < view.axes; ++a) {
        const int64 next = long_quotient(number, view.size[a], view.reciprocal[a]);
        place.go(view, a, number - next * view.size[a]);
        number = next;
    }
    place.go(view, int(view.axes - 1), number);
    return place;
}

// The offsets of the element with a number, counted in row-major order.
template <int ARRAYS>
__device__ inline Place<ARRAYS> locate(const View<ARRAYS>& view, int64 number) {
    if (number >> 31) return locate_far(view, number);
    Place<ARRAYS> place = {};
    const int axes = int(view.axes);
    unsigned rest = unsigned(number);
#pragma unroll
    for (int a = 0; a < FEW_AXES; ++a) {
        if (a + 1 == axes) {
            place.go(view, a, rest);
            return place;
        }
        const unsigned next = long_quotient(rest, view.reciprocal[a]);
        place.go(view, a, rest - next * unsigned(view.size[a]));
        rest = next;
    }
#pragma unroll 1
    for (int a = FEW_AXES; a < axes; ++a) {
        const unsigned next = a + 1 == axes ? 0 : long_quotient(rest, view.reciprocal[a]);
        place.go(view, a, rest - next * unsigned(view.size[a]));
        rest = next;
    }
    return place;
}

// How threads walk through arrays. A step moves `width` neighbours. A thread takes UNROLL steps along one
// axis, the run, and `lanes` threads take the steps of a run in turn. A thread computes one address for
// all of its steps, so that all of its loads are soon under way.
template <int ARRAYS>
struct Walk {
    int64 width;              // contiguous, aligned neighbours of a step
    int64 threads;            // number of threads
    int64 run, lanes;         // steps of the run, and distance in steps from one step of a thread to its next
    int64 stride[ARRAYS];     // that distance in elements
    View<ARRAYS + 1> starts;  // offset of each thread's first step, and at last the number of that step in its run
};

constexpr int UNROLL = 4;

// One thread's part of a walk.
template <int ARRAYS>
struct Steps {
    Place<ARRAYS + 1> start;
    int64 left;

    __device__ Steps(const Walk<ARRAYS>& walk, int64 thread) : start(locate(walk.starts, thread)) {
        left = walk.run - start.offset[ARRAYS];
    }
    __device__ bool has(const Walk<ARRAYS>& walk, int i) const { return i * walk.lanes < left; }
    __device__ int64 offset(const Walk<ARRAYS>& walk, int i, int array) const {
        return start.offset[array] + i * walk.stride[array];
    }
    // Goes on to the next UNROLL steps.
    __device__ void go(const Walk<ARRAYS>& walk) {
#pragma unroll
        for (int array = 0; array < ARRAYS; ++array) start.offset[array] += UNROLL * walk.stride[array];
        left -= UNROLL * walk.lanes;
    }
};
