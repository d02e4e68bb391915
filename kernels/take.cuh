// Division of numbers below 2**31.
#pragma once
#include "division.cuh"

// A number that others are divided by, and its long reciprocal, as the host passes them.
struct Divisor {
    int64 value, reciprocal;
};

// Divides a number; returns the rest.
__device__ __forceinline__ int take(int& number, const Divisor& divisor) {
    const int whole = long_quotient(number, divisor.reciprocal), rest = number - whole * int(divisor.value);
    number = whole;
    return rest;
}
// Does the same without a reciprocal, for code that runs seldom.
__device__ __forceinline__ int take(int& number, int64 divisor) {
    const int whole = number / int(divisor), rest = number - whole * int(divisor);
    number = whole;
    return rest;
}
