// Strips of outputs: what depthwise convolutions of planes whose channels lie innermost share.
#pragma once
#include "division.cuh"

// Strides are in elements.
struct Axis {
    int64 size_in, size_out, low;
    int64 input, weight, out;
};

// The sample of a strip, and its first output.
struct StripPlace {
    int sample, y, x;

    // Strips have so many columns, and p.lines lines. They run over x, y and samples.
    template <typename Arguments>
    __device__ StripPlace(const Arguments& p, int number, int columns) {
        sample = long_quotient(number, p.per_sample);
        number -= sample * int(p.strips_of_sample);
        const int row = long_quotient(number, p.per_line);
        y = row * int(p.lines), x = (number - row * int(p.strips_of_line)) * columns;
    }
};
