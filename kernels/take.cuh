// Division by numbers that are known late, for code that runs seldom.
#pragma once
#include "scalar.cuh"

// Divides a number; returns the rest.
__device__ __forceinline__ int take(int& number, int64 divisor) {
    const int whole = number / int(divisor), rest = number - whole * int(divisor);
    number = whole;
    return rest;
}
