// Statistics of some values, and how those of more come from them.
#pragma once
#include "block_sum.cuh"
#include "scalar.cuh"

// Their number, their mean, and the sum of their squared deviations from it.
struct Moments {
    double count, mean, m2;
};

// By the formula of Chan, Golub and LeVeque (1979).
__device__ inline Moments merge(const Moments& a, const Moments& b) {
    if (b.count == 0) return a;
    if (a.count == 0) return b;
    const double count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

// The moments of all threads of a block together, for each of them: the mean first, and then what
// theirs deviate from it. They have `count` values. No product is fused with an addition of the tree:
// all threads are to have the same mean.
__device__ inline Moments merge_block(const Moments& own, double count) {
    const double mean = block_sum(__dmul_rn(own.count, own.mean)) / count, apart = own.mean - mean;
    return {count, mean, block_sum(own.count == 0 ? 0 : fma(own.count * apart, apart, own.m2))};
}

// The same in 16 bytes: a deviation fits float where its square may not.
struct PartMoments {
    double mean;
    float deviation, count;
};
__device__ inline PartMoments part_of(const Moments& m) {
    return {m.mean, float(sqrt(m.m2 / (m.count == 0 ? 1 : m.count))), float(m.count)};
}
__device__ inline Moments moments_of(const PartMoments& p) {
    return {p.count, p.mean, double(p.deviation) * p.deviation * p.count};
}
