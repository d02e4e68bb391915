// Statistics of sets of values, and their combination.
#pragma once
#include "block_sum.cuh"
#include "scalar.cuh"

// The number of values, their mean, and the sum of their squared deviations from the mean.
struct Moments {
    double count, mean, m2;
};

// The moments of two sets together, by the formula of Chan, Golub and LeVeque (1979).
__device__ inline Moments merge(const Moments& a, const Moments& b) {
    if (b.count == 0) return a;
    if (a.count == 0) return b;
    const double count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

// The moments of all `count` values of a warp or a block, whose sums SUM returns to each thread: first the mean, then
// the deviations of the threads' means from it. No product is fused with an addition of the tree, because all threads
// must get the same mean.
template <double SUM(double)>
__device__ inline Moments merge_threads(const Moments& own, double count) {
    const double mean = SUM(__dmul_rn(own.count, own.mean)) / count, apart = own.mean - mean;
    return {count, mean, SUM(own.count == 0 ? 0 : fma(own.count * apart, apart, own.m2))};
}

// Moments in 16 bytes. A deviation fits in float where its square may not.
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
