// Division by numbers that the host knows: the host passes their reciprocals.
#pragma once
#include "scalar.cuh"

// An integer below 2**16 divided by another one, whose reciprocal is (2**32 - 1) / divisor.
__device__ inline int quotient(int number, int64 reciprocal) {
    return int(__umulhi(unsigned(number) + 1u, unsigned(reciprocal)));
}

// An integer below 2**21 divided by another one without a reciprocal, in few instructions. The half keeps rounding
// errors from changing the integer part of the quotient.
__device__ inline int small_quotient(int number, int divisor) {
    return int(__fdividef(float(number) + 0.5f, float(divisor)));
}

// Returns the remainder of such a division, and replaces the number by the quotient.
__device__ inline int take_rest(int& number, int divisor) {
    const int whole = small_quotient(number, divisor), rest = number - whole * divisor;
    number = whole;
    return rest;
}

// A number from 0 to 2**31 - 1 times a 64-bit factor: an unsigned product takes fewer instructions than a signed one.
__device__ inline int64 scaled(int number, int64 factor) {
    return int64((unsigned long long)unsigned(number) * (unsigned long long)factor);
}

// A number below 2**31 divided by means of a long reciprocal, (2**64 - 1) / divisor.
__device__ inline int long_quotient(int number, int64 reciprocal) {
    return int(__umul64hi((unsigned long long)number + 1, (unsigned long long)reciprocal));
}

// Does the same for unsigned numbers below 2**32 - 1.
__device__ inline unsigned long_quotient(unsigned number, int64 reciprocal) {
    return unsigned(__umul64hi((unsigned long long)(number + 1), (unsigned long long)reciprocal));
}

// Does the same for 64-bit numbers, whose product with the long reciprocal is at most one too small.
__device__ inline int64 long_quotient(int64 number, int64 divisor, int64 reciprocal) {
    const int64 close = int64(__umul64hi((unsigned long long)number, (unsigned long long)reciprocal));
    return close + (number - close * divisor >= divisor);
}

// Division by a number that is one in most calls.
__device__ inline int divided(int number, int divisor) { return divisor == 1 ? number : number / divisor; }
