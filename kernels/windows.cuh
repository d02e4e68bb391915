// Float16 emulation of float32: Tensor Cores multiply float16 numbers twice as fast as TF32 numbers, and both have as
// many significant bits. float16 lacks exponents, so numbers are multiplied by powers of two, which changes no bit.
//
//     value * 2**shift = high + low / LOW_SCALE + rest,    |rest| <= 2**-22 * |value| * 2**shift
//
// holds with two float16 numbers where the exponent of the left side lies in a window of WINDOW exponents: from -14 on
// float16 has all of its bits, and up to 14 it does not overflow by rounding.
//
//     exponent   ...  43 ... 15 | 14 ......... -14 | -15 ... -43 | -44 ... -72 |  ...
//     window            -1               0                1             2
//
// The inputs of a sample share a shift, and so do the weights of an output channel. Nearly all of them lie in window 0.
// The products of numbers in other windows are summed window by window, which is the same sum with a shift that is a
// multiple of WINDOW larger or smaller. Numbers beyond all windows become NaN, so that their outputs are computed again
// from the arrays. So no number is rounded to fewer bits than the others.
#pragma once
#include "scalar.cuh"

constexpr int WINDOW = 29, HIGHEST = 14;
constexpr float LOW_SCALE = 2048;
constexpr unsigned NOT_A_NUMBER = 0x7fffffffu;
constexpr int FIELD_BIAS = 127, SPECIAL_FIELD = 255;  // of a float's exponent; 0 is a zero, as is what is subnormal

__device__ inline int exponent_field(unsigned bits) { return int(bits >> 23 & 255u); }
__device__ inline int window_of(int exponent) {
    constexpr int FAR = 32;  // so that nothing is divided that is negative
    return (HIGHEST - exponent + FAR * WINDOW) / WINDOW - FAR;
}

// The shift of an output channel's weights, and the shift of its weights below the first window, if there are any.
struct RowShifts {
    int first, second;
};
constexpr int NO_SHIFT = 1 << 20;   // there is no second window
constexpr int NO_SHIFTS = 1 << 21;  // weights span more than two windows: the channel's outputs become NaN
constexpr int MOST_APART = 64;      // the largest difference of shifts, so that no sum underflows between the windows

// 2**exponent in two factors; NaN for NO_SHIFTS.
struct PowerOfTwo {
    float first, second;
    __device__ explicit PowerOfTwo(int exponent) {
        const int part = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent, rest = exponent - part;
        first = __uint_as_float(unsigned(part + FIELD_BIAS) << 23);
        second = __uint_as_float(rest < -NO_SHIFT ? NOT_A_NUMBER
                                 : rest < -126    ? 0
                                                  : unsigned((rest > 127 ? 127 : rest) + FIELD_BIAS) << 23);
    }
    __device__ float times(float value) const { return value * first * second; }
};

// The least and the greatest number of a window. "The first window", in all comments, is not FIRST_WINDOW but window 0,
// which a tile's first pass computes.
constexpr int FIRST_WINDOW = -1, LAST_WINDOW = 2, WINDOWS = LAST_WINDOW - FIRST_WINDOW + 1;

// Ranks magnitudes. Zeros and subnormal numbers, which count as zeros, come after all others.
__device__ inline unsigned rank_of(unsigned bits) { return 2 * bits - 0x01000000u; }

// Whether numbers lie in window 0, as far as their high parts tell, which are pairs of float16 numbers. Numbers at the
// ends of the window may lie outside of it, and a zero may be a number that was too small.
struct Range {
    static constexpr unsigned SIGNS = 0x80008000u, ABOVE = 0x78007800u, LEAST = 0x04000400u, INFINITE = 0x7c007c00u;
    unsigned largest = 0, smallest = INFINITE;
    __device__ void add(unsigned pair) {
        largest = larger_magnitudes(largest, pair);
        smallest = smaller_magnitudes(smallest, pair);
    }
    __device__ bool reaches_above() const { return largest + (SIGNS - ABOVE) & SIGNS; }
    __device__ bool reaches_below() const { return smallest - LEAST - 0x00010001u & SIGNS; }
    // The windows that the numbers lie in, as bits, given the least of their ranks: no bit if all lie in window 0.
    __device__ unsigned windows(unsigned least_rank, int shift) const {
        const int below = FIELD_BIAS + HIGHEST + 1 - WINDOW - shift;
        const bool lower = least_rank < rank_of(unsigned(below > 1 ? below : 1) << 23);
        if (!lower && !reaches_above()) return 0;
        const int from = reaches_above() ? FIRST_WINDOW : 0;
        const int low = lower ? window_of(int((least_rank >> 24) + 1) - FIELD_BIAS + shift) : 0;
        const int to = low < LAST_WINDOW ? low : LAST_WINDOW;
        return (2u << (to - FIRST_WINDOW)) - (1u << (from - FIRST_WINDOW));
    }
};

// With one product for each step, a number below the first window counts in that window with the bits that float16 has
// for it, and in the next window with the rest. So the first sweep, which looks at no number on its own, has the sums
// of the first window. With three products, the product of two low parts, which is left out, would be too large for
// that.
constexpr bool PLACED_TWICE = PARTS == 1;

// How inputs become float16 numbers: their shift, the window of this pass, and whether weights lie in one window. If
// they lie in two, sums have room for fewer windows of inputs.
struct Placing {
    int shift, window;
    bool one;

    // The shifted number, where it counts in this window, else zero. A number beyond all windows is NaN in each window,
    // as a tile may have a single pass.
    __device__ float place(unsigned bits) const {
        const int field = exponent_field(bits), exponent = field - FIELD_BIAS + shift;
        const int most = HIGHEST - (one ? FIRST_WINDOW : 0) * WINDOW;
        const int least = -HIGHEST - (one ? LAST_WINDOW : 1) * WINDOW;
        if (field == 0) return 0;
        if (field == SPECIAL_FIELD || exponent > most || exponent < least) return __uint_as_float(NOT_A_NUMBER);
        const bool counts = PLACED_TWICE && window == 0 ? exponent <= HIGHEST
                                                        : unsigned(exponent + window * WINDOW + HIGHEST) < WINDOW;
        return counts ? __uint_as_float(bits + (unsigned(shift) << 23)) : 0;
    }
};
