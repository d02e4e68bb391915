// What lies outside of an array: the border modes, in the words of numpy.pad.
//
//     mode         0 1 2 3 is continued as
//     reflect      ... 2 1 | 0 1 2 3 | 2 1 ...
//     symmetric    ... 1 0 | 0 1 2 3 | 3 2 ...
//     edge         ... 0 0 | 0 1 2 3 | 3 3 ...
//     wrap         ... 2 3 | 0 1 2 3 | 0 1 ...
//
// Pads may be longer than the array. The order equals PADDING_MODES (cupyconv/_arguments.py).
#pragma once
#include "scalar.cuh"

enum BorderMode : int64 { NO_BORDER, REFLECT, SYMMETRIC, EDGE, WRAP };

// The distance after which a mode repeats the `size` positions of an array; 0 where it repeats one position for ever.
template <typename Int>
__device__ inline Int border_period(Int size, int64 mode) {
    if (mode == EDGE || size == 1) return 0;
    return mode == WRAP ? size : 2 * size - (mode == REFLECT ? 2 : 0);
}

// The index of the element that lies at `position`, which may be outside of the array.
template <typename Int>
__device__ inline Int border_index(Int position, Int size, int64 mode) {
    if (position >= 0 && position < size) return position;
    const Int period = border_period(size, mode);
    if (period == 0) return position < 0 ? 0 : size - 1;
    Int rest = position % period;
    if (rest < 0) rest += period;
    if (rest < size) return rest;
    return period - rest - (mode == SYMMETRIC ? 1 : 0);
}

// The index of the element that lies at `position`, where elements are `step` apart; -1 if none lies there. A mode shows
// elements everywhere, side by side.
__device__ inline int64 placed_index(int64 position, int64 size, int64 step, int64 mode) {
    if (mode) return border_index(position, size, mode);
    if (position < 0 || position >= size * step) return -1;
    if (step == 1) return position;
    const int64 index = position / step;
    return index * step == position ? index : -1;
}

// The positions of a padded axis that show one element, in ascending order. Every second one is a period apart.
struct Appearances {
    int64 first, next, period, count;

    // `wide` positions begin `before` positions ahead of the array.
    __device__ Appearances(int64 index, int64 size, int64 before, int64 wide, int64 mode) {
        const int64 step = border_period(size, mode), place = before + index, own = mode == SYMMETRIC;
        // The neighbours of the element's own place, where they are not further away.
        const int64 lower = mode == WRAP ? place - size : before - index - own;
        const int64 upper = mode == WRAP ? place + size : place + 2 * (size - 1 - index) + own;
        if (step == 0) {  // a run of neighbours at each end
            first = index == 0 ? 0 : place;
            next = 1, period = 2;
            count = (index == size - 1 ? wide : place + 1) - first;
            if (place >= wide) count = index == 0 ? wide : 0;
        } else if (lower < 0 && upper >= wide) {  // most elements, without a division
            first = place;
            next = period = 1;
            count = place < wide;
        } else {
            const int64 twin = mode == WRAP ? place : before - index - own;
            const int64 a = place % step, b = (twin % step + step) % step;
            first = a < b ? a : b;
            next = a == b ? step : a < b ? b - a : a - b;
            period = a == b ? 2 * step : step;
            const int64 last = wide - 1 - first;
            count = last < 0 ? 0 : 2 * (last / period) + (last % period < next ? 1 : 2);
        }
    }
    __device__ int64 at(int64 number) const { return first + number / 2 * period + number % 2 * next; }
};
