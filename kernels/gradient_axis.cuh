// An axis of the gradient of a weight: output o and tap k meet at input o * step + k * dilation - pad.
#pragma once
#include "scalar.cuh"

struct Axis {
    int64 size_in, size_out;
    int64 kernel, step, dilation, pad;
    int64 input, grad;  // elements from one to the next
};
