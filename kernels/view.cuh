// Offsets into arrays of any number of axes and any strides.
#pragma once
#include "scalar.cuh"

constexpr int MAX_AXES = 26;

// Axes of an array, the last one fastest; the host merges neighbours that lie as one.
struct View {
    int64 axes;
    int64 size[MAX_AXES];
    int64 stride[MAX_AXES];  // in elements
};

// Offset of the element with number `index` in row-major order.
__device__ inline int64 offset_of(const View& view, int64 index) {
    int64 offset = 0;
    for (int64 a = view.axes - 1; a > 0; --a) {
        const int64 next = index / view.size[a];
        offset += (index - next * view.size[a]) * view.stride[a];
        index = next;
    }
    return view.axes ? offset + index * view.stride[0] : 0;
}
