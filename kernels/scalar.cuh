// The numbers that kernels handle: elements as they lie in memory, accumulators in which sums are
// kept, and the conversions between them, each with one rounding.
//
//   element                        accumulator
//   float16, bfloat16, float       float
//   double                         double
//   complex<float>, ...<double>    the same
//   unsigned integers              unsigned of 32 bits, or 64 (exact modulo 2**bits; signed
//                                  integers have the same bits)
#pragma once
#include "ptx.cuh"

typedef long long int64;

struct float16 {
    unsigned short bits;
};

struct bfloat16 {
    unsigned short bits;
};

template <typename Real>
struct complex {
    Real re, im;
};

template <typename Element>
struct accumulator_of {
    typedef Element type;
};
template <>
struct accumulator_of<float16> {
    typedef float type;
};
template <>
struct accumulator_of<bfloat16> {
    typedef float type;
};
template <>
struct accumulator_of<unsigned char> {
    typedef unsigned type;
};
template <>
struct accumulator_of<unsigned short> {
    typedef unsigned type;
};

template <typename T>
struct is_integer {
    static constexpr bool value = false;
};
template <>
struct is_integer<unsigned> {
    static constexpr bool value = true;
};
template <>
struct is_integer<unsigned long long> {
    static constexpr bool value = true;
};

// ---- element to accumulator: exact ----

template <typename Accumulator, typename Element>
__device__ inline Accumulator widen(Element value) {
    return Accumulator(value);
}
template <>
__device__ inline float widen<float, float16>(float16 value) {
    return float_from_float16(value.bits);
}
template <>
__device__ inline double widen<double, float16>(float16 value) {
    return float_from_float16(value.bits);
}
template <>
__device__ inline float widen<float, bfloat16>(bfloat16 value) {
    return __uint_as_float(unsigned(value.bits) << 16);
}
template <>
__device__ inline double widen<double, bfloat16>(bfloat16 value) {
    return __uint_as_float(unsigned(value.bits) << 16);
}

// ---- accumulator to element: one rounding, to nearest, ties to even ----

// Rounds to odd: an inexact value is truncated and its last bit is set. Rounding the result to fewer bits
// then gives the same number as rounding `value` itself.
__device__ inline float round_to_odd(double value) {
    const unsigned lost = unsigned(__double_as_longlong(value)) & 0x1fffffffu;
    return __uint_as_float(__float_as_uint(__double2float_rz(value)) | (lost != 0));
}
__device__ inline float round_to_odd(float value) { return value; }

template <typename Element, typename Accumulator>
struct Narrow {
    __device__ static Element apply(Accumulator value) { return Element(value); }
};
template <typename Accumulator>
struct Narrow<float16, Accumulator> {
    __device__ static float16 apply(Accumulator value) {
        return float16{float16_from_float(round_to_odd(value))};
    }
};
template <typename Accumulator>
struct Narrow<bfloat16, Accumulator> {
    __device__ static bfloat16 apply(Accumulator value) {
        return bfloat16{bfloat16_from_float(round_to_odd(value))};
    }
};

template <typename Element, typename Accumulator>
__device__ inline Element narrow(Accumulator value) {
    return Narrow<Element, Accumulator>::apply(value);
}

// Two accumulators, each rounded to an element, as the bits of a pair of neighbours. The last argument only gives the
// type of the elements.
__device__ inline Bits128 pair_of(double first, double second, double) {
    union {
        double values[2];
        Bits128 bits;
    } pair = {{first, second}};
    return pair.bits;
}
__device__ inline Bits64 pair_of(float first, float second, float) {
    return {__float_as_uint(first), __float_as_uint(second)};
}
__device__ inline unsigned pair_of(float first, float second, float16) { return float16_pair(first, second); }
__device__ inline unsigned pair_of(float first, float second, bfloat16) { return bfloat16_pair(first, second); }

// ---- arithmetic on accumulators ----

template <typename T>
__device__ inline T zero() {
    return T(0);
}
template <>
__device__ inline complex<float> zero<complex<float>>() {
    return {0.0f, 0.0f};
}
template <>
__device__ inline complex<double> zero<complex<double>>() {
    return {0.0, 0.0};
}

template <typename T>
__device__ inline T add(T a, T b) {
    return a + b;
}
template <typename Real>
__device__ inline complex<Real> add(complex<Real> a, complex<Real> b) {
    return {a.re + b.re, a.im + b.im};
}

template <typename T>
__device__ inline T multiply_add(T a, T b, T sum) {
    return a * b + sum;
}
__device__ inline float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
__device__ inline double multiply_add(double a, double b, double sum) { return fma(a, b, sum); }
template <typename Real>
__device__ inline complex<Real> multiply_add(complex<Real> a, complex<Real> b, complex<Real> sum) {
    return {multiply_add(-a.im, b.im, multiply_add(a.re, b.re, sum.re)),
            multiply_add(a.im, b.re, multiply_add(a.re, b.im, sum.im))};
}

// True for an infinity or a NaN: 0 * value is not 0.
template <typename T>
__device__ inline bool is_special(T value) {
    return value - value != 0;
}
template <typename Real>
__device__ inline bool is_special(complex<Real> value) {
    return is_special(value.re) || is_special(value.im);
}

// ---- parameters: vectors of any dtype, one value for each channel ----

// Codes of the dtypes that a parameter may have, in the order of `PARAMETER_DTYPES`.
enum ParameterType : int64 {
    PARAMETER_FLOAT16,
    PARAMETER_BFLOAT16,
    PARAMETER_FLOAT32,
    PARAMETER_FLOAT64,
    PARAMETER_COMPLEX64,
    PARAMETER_COMPLEX128,
    PARAMETER_INT8,
    PARAMETER_INT16,
    PARAMETER_INT32,
    PARAMETER_INT64,
    PARAMETER_UINT8,
    PARAMETER_UINT16,
    PARAMETER_UINT32,
    PARAMETER_UINT64,
};

struct Parameter {
    const void* data;  // null where the parameter was not given
    int64 type;        // a ParameterType
    int64 stride;      // in elements
};

template <typename T>
struct FromReal {
    template <typename Real>
    __device__ static T apply(Real re, Real) {
        return T(re);
    }
};
template <typename Part>
struct FromReal<complex<Part>> {
    template <typename Real>
    __device__ static complex<Part> apply(Real re, Real im) {
        return {Part(re), Part(im)};
    }
};

// Value `index` of a parameter in the precision of the accumulator T.
template <typename T>
__device__ inline T load_parameter(const Parameter& parameter, int64 index) {
    typedef FromReal<T> From;
    int64 i = index * parameter.stride;
    switch (parameter.type) {
        case PARAMETER_FLOAT16:
            return From::apply(widen<float>(((const float16*)parameter.data)[i]), 0.0f);
        case PARAMETER_BFLOAT16:
            return From::apply(widen<float>(((const bfloat16*)parameter.data)[i]), 0.0f);
        case PARAMETER_FLOAT32:
            return From::apply(((const float*)parameter.data)[i], 0.0f);
        case PARAMETER_FLOAT64:
            return From::apply(((const double*)parameter.data)[i], 0.0);
        case PARAMETER_COMPLEX64: {
            complex<float> value = ((const complex<float>*)parameter.data)[i];
            return From::apply(value.re, value.im);
        }
        case PARAMETER_COMPLEX128: {
            complex<double> value = ((const complex<double>*)parameter.data)[i];
            return From::apply(value.re, value.im);
        }
        case PARAMETER_INT8:
            return From::apply(int64(((const signed char*)parameter.data)[i]), int64(0));
        case PARAMETER_INT16:
            return From::apply(int64(((const short*)parameter.data)[i]), int64(0));
        case PARAMETER_INT32:
            return From::apply(int64(((const int*)parameter.data)[i]), int64(0));
        case PARAMETER_INT64:
            return From::apply(((const int64*)parameter.data)[i], int64(0));
        case PARAMETER_UINT8:
            return From::apply(int64(((const unsigned char*)parameter.data)[i]), int64(0));
        case PARAMETER_UINT16:
            return From::apply(int64(((const unsigned short*)parameter.data)[i]), int64(0));
        case PARAMETER_UINT32:
            return From::apply(int64(((const unsigned*)parameter.data)[i]), int64(0));
        default:
            return From::apply(((const unsigned long long*)parameter.data)[i], 0ull);
    }
}
