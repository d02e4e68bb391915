// The tap table of one axis, as progressions (cupyconv/_taps.py has the theory and the same fields).
//
// The outputs o = phase + phases * q read the inputs q * step + offset(tap). The taps of a phase are
// first, first + tap_step, first + 2 * tap_step, ...; their offsets differ by offset_step. So a table
// of any length is three integers, and a convolution and a transposed one differ in nothing else.
#pragma once
#include "scalar.cuh"

struct AxisTaps {
    int64 size_in, size_out, kernel;
    int64 phases, step, origin, divisor, dilation, gcd, tap_step, inverse, offset_step;
};

struct Progression {
    int64 first;   // first tap
    int64 count;   // number of taps, 0 where the phase has none
    int64 offset;  // input offset of the first tap
};

__device__ inline Progression progression(const AxisTaps& axis, int64 phase) {
    int64 numerator = phase + axis.origin;
    if (axis.phases == 1) return {0, axis.kernel, numerator};  // a convolution, or stride 1
    if (numerator % axis.gcd != 0) return {0, 0, 0};
    // numerator >= 0 here: only convolutions have a negative origin.
    int64 first = numerator / axis.gcd % axis.tap_step * axis.inverse % axis.tap_step;
    int64 count = first < axis.kernel ? (axis.kernel - 1 - first) / axis.tap_step + 1 : 0;
    return {first, count, (numerator - first * axis.dilation) / axis.divisor};
}

// How many outputs belong to a phase.
__device__ inline int64 positions_of(const AxisTaps& axis, int64 phase) {
    return (axis.size_out - phase + axis.phases - 1) / axis.phases;
}
