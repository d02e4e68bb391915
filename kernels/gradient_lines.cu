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
// A block writes SPAN bytes of a line, each thread CHUNK bytes at a time.
//
// Macros (set by cupyconv/_kernels/gradient_lines.py):
//     BITS     type of an element's bits
//     PARTS    1: the bits as they are; 2: a float as the nearest TF32 number, and its rest
//
// Launch: THREADS threads, any number of blocks; blocks take spans in turn.

#include "division.cuh"
#include "tf32.cuh"

typedef BITS Bits;

constexpr int CHUNK = 16, ELEMENTS = CHUNK / sizeof(Bits);
constexpr int THREADS = 256, SPAN = 4 * THREADS * CHUNK;

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
    int64 places;  // of a line, in whole chunks
    int64 spans;   // of a line
    int64 tasks;   // spans of all lines
    int64 part;    // elements of a part
};

// A channel in a plane.
struct Line {
    const Arguments& p;
    const Bits* array;
    int first[3];  // the inputs at the first place

    __device__ Line(const Arguments& p, int number) : p(p) {
        const int channels = int(p.channels);
        int plane = number / channels;
        array = p.array + (number - plane * channels) * p.channel;
#pragma unroll
        for (int i = 2; i >= 0; --i) {
            const Axis& axis = p.axis[i];
            const int next = plane / int(axis.planes);
            first[i] = int(axis.first) + int(axis.apart) * (plane - next * int(axis.planes));
            plane = next;
        }
    }

    // Loads the elements of the chunk that begins at a place.
    __device__ __forceinline__ void load(Bits (&bits)[ELEMENTS], int place) const {
        int at[3], sample = place;
#pragma unroll
        for (int i = 2; i >= 0; --i) {
            const int next = long_quotient(sample, p.axis[i].per_places);
            at[i] = sample - next * int(p.axis[i].places);
            sample = next;
        }
        const Axis& x = p.axis[2];
        int start = -at[2], end = start + int(x.places);  // the elements at which a line along x begins and ends
        const Bits* from;
        unsigned input, count;
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e) {
            const bool next = e > 0 && e == end;
            if (next) {
                start = e, end += int(x.places);
                if (++at[1] == int(p.axis[1].places)) at[1] = 0, ++at[0];
                if (at[0] == int(p.axis[0].places)) at[0] = 0, ++sample;
            }
            if (e == 0 || next) {
                const int in_z = at[0] * int(p.axis[0].step) + first[0], in_y = at[1] * int(p.axis[1].step) + first[1];
                const int in_x = (e - start) * int(x.step) + first[2];
                const bool inside = (unsigned(in_z) < unsigned(p.axis[0].size)) &
                                    (unsigned(in_y) < unsigned(p.axis[1].size)) & (sample < int(p.samples));
                from = array + sample * p.sample + in_z * p.axis[0].stride + in_y * p.axis[1].stride + in_x * x.stride;
                // Signed comparison finds both ends at once, of numbers whose highest bit is another one.
                input = unsigned(in_x) ^ 1u << 31, count = (inside ? unsigned(x.size) : 0) ^ 1u << 31;
            }
            bits[e] = 0;
            load_bits(bits[e], from, int(input), int(count));
            from += x.step * x.stride, input += unsigned(x.step);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 5) gradient_lines(const __grid_constant__ Arguments p) {
    launch_grids();
    for (int64 task = blockIdx.x; task < p.tasks; task += gridDim.x) {
        const int number = int(task / p.spans);
        const Line line(p, number);
        const int begin = int(task - number * p.spans) * (SPAN / int(sizeof(Bits)));
        for (int i = threadIdx.x; i < SPAN / CHUNK; i += THREADS) {
            const int place = begin + i * ELEMENTS;
            if (place >= int(p.places)) break;
            Bits bits[ELEMENTS];
            line.load(bits, place);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                Bits128 chunk = {};
#pragma unroll
                for (int e = 0; e < ELEMENTS; ++e)
                    chunk.words[e * int(sizeof(Bits)) / 4] |=
                        unsigned(PARTS == 1 ? bits[e] : Bits(tf32_part(bits[e], part))) << e * int(sizeof(Bits)) % 4 * 8;
                store_bits((Bits128*)(p.lines + part * p.part + number * p.places + place), chunk, true);
            }
        }
    }
}
