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

// The positions that show an element first before and after its own place, counted from the array's begin. At an end
// of the array `reflect` has only the place itself.
template <typename Int>
__device__ inline Int shown_before(Int index, Int size, int64 mode) {
    return mode == WRAP ? index - size : -index - (mode == SYMMETRIC ? 1 : 0);
}
template <typename Int>
__device__ inline Int shown_after(Int index, Int size, int64 mode) {
    return mode == WRAP ? index + size : 2 * (size - 1) - index + (mode == SYMMETRIC ? 1 : 0);
}

// The index of the element that lies at `position`, which may be outside of the array.
template <typename Int>
__device__ inline Int border_index(Int position, Int size, int64 mode) {
    if (position >= 0 && position < size) return position;
    const Int period = border_period(size, mode);
    if (period == 0) return position < 0 ? 0 : size - 1;
    // Most pads are shorter than the array: the position before or after is inside.
    const Int near = position < 0 ? mode == WRAP ? position + size : shown_before(position, size, mode)
                                  : mode == WRAP ? position - size : shown_after(position, size, mode);
    if (near >= 0 && near < size) return near;
    Int rest = position % period;
    if (rest < 0) rest += period;
    if (rest < size) return rest;
    return period - rest - (mode == SYMMETRIC ? 1 : 0);
}

// The index of the element that lies at `position`, where elements are `step` apart; -1 if none lies there. A mode shows
// elements everywhere, side by side.
template <typename Int>
__device__ inline Int placed_index(Int position, Int size, Int step, int64 mode) {
    if (mode) return border_index(position, size, mode);
    if (position < 0) return -1;
    if (step == 1) return position < size ? position : -1;
    const Int index = position / step;
    return index < size && index * step == position ? index : -1;
}

// The positions of a padded axis that show one element, in ascending order. Every second one is a period apart.
template <typename Int>
struct Appearances {
    Int first, next, period, count;

    // `wide` positions begin `before` positions ahead of the array.
    __device__ Appearances(Int index, Int size, Int before, Int wide, int64 mode) {
        const Int step = border_period(size, mode), place = before + index;
        if (step == 0) {  // a run of neighbours at each end
            first = index == 0 ? 0 : place;
            next = 1, period = 2;
            count = (index == size - 1 ? wide : place + 1) - first;
            if (place >= wide) count = index == 0 ? wide : 0;
            return;
        }
        const Int lower = before + shown_before(index, size, mode), upper = before + shown_after(index, size, mode);
        const Int further = mode == WRAP ? 2 * size : step;
        if (place < wide && place - further < 0 && place + further >= wide) {  // three at the most
            const bool has_lower = lower >= 0 && lower != place, has_upper = upper < wide && upper != place;
            first = has_lower ? lower : place;
            next = has_lower ? place - lower : upper - place;
            period = upper - lower;
            count = 1 + has_lower + has_upper;
            return;
        }
        const Int twin = mode == WRAP ? place : lower;
        const Int a = place % step, b = (twin % step + step) % step;
        first = a < b ? a : b;
        next = a == b ? step : a < b ? b - a : a - b;
        period = a == b ? 2 * step : step;
        const Int last = wide - 1 - first;
        count = last < 0 ? 0 : 2 * (last / period) + (last % period < next ? 1 : 2);
    }
    __device__ Int at(Int number) const { return first + number / 2 * period + number % 2 * next; }
};
