// The tap table of one axis, as progressions (cupyconv/_taps.py has the theory and the same fields).
//
// The outputs o = phase + phases * q read the inputs q * step + offset(tap). The taps of a phase are
// first, first + tap_step, first + 2 * tap_step, ...; their offsets differ by offset_step. So three
// integers describe the taps of a phase, however many there are, and a convolution differs from a
// transposed one in nothing but these integers.
#pragma once
#include "scalar.cuh"

struct AxisTaps {
    int64 size_in, size_out, kernel;
    int64 phases, step, origin, divisor, dilation, gcd, tap_step, inverse, offset_step;
};

template <typename Integer>
struct Progression {
    Integer first;   // first tap
    Integer count;   // number of taps, which may be 0
    Integer offset;  // input offset of the first tap
};

// The taps of a phase. A division of 32-bit integers takes a fifth of the time of a 64-bit one.
template <typename Integer>
__device__ inline Progression<Integer> progression(const AxisTaps& axis, Integer phase) {
    const Integer numerator = phase + Integer(axis.origin), kernel = Integer(axis.kernel);
    if (axis.phases == 1) return {0, kernel, numerator};  // a convolution, or a transposed one of stride 1
    const Integer gcd = Integer(axis.gcd), tap_step = Integer(axis.tap_step);
    // numerator >= 0 here: only convolutions have a negative origin.
    const Integer quotient = numerator / gcd;
    Integer first = quotient % tap_step;
    if (axis.inverse != 1) first = Integer(first * axis.inverse % axis.tap_step);
    if (quotient * gcd != numerator || first >= kernel) return {0, 0, 0};
    return {first, (kernel - 1 - first) / tap_step + 1,
            (numerator - first * Integer(axis.dilation)) / Integer(axis.divisor)};
}

// The number of outputs of a phase.
__device__ inline int64 positions_of(const AxisTaps& axis, int64 phase) {
    return (axis.size_out - phase + axis.phases - 1) / axis.phases;
}
