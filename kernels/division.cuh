// Division by numbers that the host knows: it hands over their reciprocals.
#pragma once
#include "scalar.cuh"

// Integers below 2**16 are divided by one of them with its reciprocal, (2**32 - 1) / divisor.
__device__ inline int quotient(int number, int64 reciprocal) {
    return int(__umulhi(unsigned(number) + 1u, unsigned(reciprocal)));
}

// Integers below 2**21 by any of them, in few instructions. The half keeps what rounding takes away from the
// quotient below.
__device__ inline int small_quotient(int number, int divisor) {
    return int(__fdividef(float(number) + 0.5f, float(divisor)));
}

// The rest of such a quotient; the number becomes the quotient.
__device__ inline int take_rest(int& number, int divisor) {
    const int whole = small_quotient(number, divisor), rest = number - whole * divisor;
    number = whole;
    return rest;
}

// A number below 2**31 times one of 64 bits, in fewer instructions than with a sign.
__device__ inline int64 scaled(int number, int64 factor) {
    return int64((unsigned long long)unsigned(number) * (unsigned long long)factor);
}

// Any other is divided with the long reciprocal, (2**64 - 1) / divisor.
__device__ inline int long_quotient(int number, int64 reciprocal) {
    return int(__umul64hi((unsigned long long)number + 1, (unsigned long long)reciprocal));
}

// The same without a sign, for numbers below 2**32 - 1.
__device__ inline unsigned long_quotient(unsigned number, int64 reciprocal) {
    return unsigned(__umul64hi((unsigned long long)(number + 1), (unsigned long long)reciprocal));
}

// Numbers of 64 bits: what the long reciprocal gives then is at most one too small.
__device__ inline int64 long_quotient(int64 number, int64 divisor, int64 reciprocal) {
    const int64 close = int64(__umul64hi((unsigned long long)number, (unsigned long long)reciprocal));
    return close + (number - close * divisor >= divisor);
}

// Division by what mostly is one.
__device__ inline int divided(int number, int divisor) { return divisor == 1 ? number : number / divisor; }
