// Copies of an array by channel, in which a tap of a convolution is a shift along memory:
//
//     lines[part, plane, channel, ((n * Z + z) * Y + y) * X + x]
//
// The axes have places for outputs and, where taps leave the input, zeros between lines. Inputs that taps reach in
// steps (a stride) have planes of their own, one for each residue, and so have shifts that are no multiple of a chunk,
// where no copy of the copy engine can begin. Floats may be divided into two TF32 numbers.
//
//     input, stride 2, one tap to the left         plane 0    . b d . b d      the first zero is padding,
//         a b c                                    plane 1    a c . a c .      the last place a gap
//         a b c                                               line  line
//
// Each thread writes CHUNK bytes at a time.
//
// Macros (set by cupyconv/_kernels/gradient_lines.py):
//     BITS     type of an element's bits
//     PARTS    1: the bits as they are; 2: a float as the nearest TF32 number, and its rest
//
// Launch: any number of blocks of any number of threads.

#include "division.cuh"
#include "tf32.cuh"

typedef BITS Bits;

constexpr int CHUNK = 16, ELEMENTS = CHUNK / sizeof(Bits);

// An axis of the copies: place i of a plane holds input i * step + first + apart * (the plane's number).
struct Axis {
    int64 places, per_places;  // and the long reciprocal
    int64 size, step, first, apart, planes;
    int64 stride;
};

struct Arguments {
    const Bits* array;
    Bits* lines;
    Axis axis[3];  // z, y and x
    int64 samples, sample, channels, channel;  // with their strides
    int64 chunks, per_chunks;  // of a channel's line, and the long reciprocal
    int64 tasks;  // chunks of all lines
    int64 part;   // elements of a part
};

// A place along an axis, and the input there.
struct Place {
    int place, input;

    __device__ __forceinline__ bool inside(const Axis& axis) const { return unsigned(input) < unsigned(axis.size); }
    // Goes on to the next place; returns whether a new line begins.
    __device__ __forceinline__ bool advance(const Axis& axis, int first) {
        input += int(axis.step);
        if (++place < int(axis.places)) return false;
        place = 0, input = first;
        return true;
    }
};

__device__ __forceinline__ int take(int& number, int64 divisor, int64 reciprocal) {
    const int whole = long_quotient(number, reciprocal), rest = number - whole * int(divisor);
    number = whole;
    return rest;
}

__device__ __forceinline__ void copy_chunk(const Arguments& p, int64 task) {
    const int64 line = long_quotient(task, p.chunks, p.per_chunks);
    int rest = int(task - line * p.chunks) * ELEMENTS, plane = int(line / p.channels);
    const int64 channel = line - plane * p.channels;
    int first[3];
    Place at[3];
#pragma unroll
    for (int i = 2; i >= 0; --i) {
        const Axis& axis = p.axis[i];
        const int next = plane / int(axis.planes);
        first[i] = int(axis.first) + int(axis.apart) * (plane - next * int(axis.planes));
        plane = next;
        at[i].place = take(rest, axis.places, axis.per_places);
        at[i].input = first[i] + at[i].place * int(axis.step);
    }
    int64 sample = rest;
    const Bits* const array = p.array + channel * p.channel;
    Bits bits[ELEMENTS];
#pragma unroll
    for (int e = 0; e < ELEMENTS; ++e) {
        const bool inside =
            at[0].inside(p.axis[0]) & at[1].inside(p.axis[1]) & at[2].inside(p.axis[2]) & (sample < p.samples);
        bits[e] = 0;
        load_bits(bits[e],
                  array + sample * p.sample + at[0].input * p.axis[0].stride + at[1].input * p.axis[1].stride +
                      at[2].input * p.axis[2].stride,
                  0, int(inside));
        if (at[2].advance(p.axis[2], first[2]) && at[1].advance(p.axis[1], first[1]))
            sample += at[0].advance(p.axis[0], first[0]);
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        Bits128 chunk = {};
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e)
            chunk.words[e * int(sizeof(Bits)) / 4] |=
                unsigned(PARTS == 1 ? bits[e] : Bits(tf32_part(bits[e], part))) << e * int(sizeof(Bits)) % 4 * 8;
        store_bits((Bits128*)(p.lines + part * p.part + task * ELEMENTS), chunk, true);
    }
}

extern "C" __global__ void __launch_bounds__(256) gradient_lines(const __grid_constant__ Arguments p) {
    launch_grids();
    const int64 threads = int64(gridDim.x) * blockDim.x;
    for (int64 task = int64(blockIdx.x) * blockDim.x + threadIdx.x; task < p.tasks; task += threads)
        copy_chunk(p, task);
}
