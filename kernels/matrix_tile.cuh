// How the convolution on Tensor Cores divides its work: shared by matrix_conv.cu, its engines and pack_weights.cu.
//
// There are three spatial axes z, y, x (axes that a call lacks have one element). A tile of outputs consists of samples
// and z together ("planes"), of y and of x. Its inputs are staged in shared memory position by position, in chunks of
// 16 bytes (`slot` in names), which hold channels of one position. Along a row, from row to row and from plane to plane
// the chunk of an output is a linear function of its coordinates in the tile:
//
//     chunk(plane, y, x) = plane * plane_pitch + y * row_pitch + x
//
// so that a tap of y and x is a distance in chunks, the same for all outputs. (A tap of z is another stage of the
// pipeline, with inputs of its own.) The columns of an instruction are neighbouring chunks: columns between the end
// of a row of the tile and the next row are multiplied as well, but are no outputs.
//
// If outputs are several inputs apart, as with strides, the inputs are stored as polyphase components (`lattice` in
// names): all inputs of one residue modulo that step are neighbours.
//
//     step 2, taps 0 .. 4    component 0: inputs 0 2 4 6 8 ...    taps 0, 2, 4 at distances 0, 1, 2
//                            component 1: inputs 1 3 5 7 9 ...    taps 1, 3    at distances 0, 1
//
// Neighbouring inputs can be loaded as pairs: both go to neighbouring chunks, or, with a step along x, to two
// components. Of an even number of components, the odd ones begin at half of all chunks. So that pairs begin with an
// even input, staging begins with the input before the first one if that is odd (skew).
//
// Few output channels leave rows of the Tensor Cores empty. Then several neighbouring outputs along x are packed into
// rows of one column (`fold` in names): with F of them, output x = F * q + fold is row `fold` of column q. Their taps
// together are a convolution with F times the step (a transposed convolution with stride F packs its phases, and has
// step 1); weights that a packed output does not have are zeros. Phases of z and y are packed as well, where that fills
// more rows than it adds zeros.
//
// Where outputs are pooled, the phases of a strided transposed convolution are not computed apart: it is a convolution
// without strides, of inputs between which others are absent (spread).
//
// Macros: ELEMENT (float, float16, bfloat16); OPERAND (float16) where floats are multiplied as float16 numbers
// (windows.cuh) and not as TF32; PARTS (2 for float32 accuracy by three products, 1 for the accuracy of TF32 and for
// 16-bit types).
#pragma once
#include "division.cuh"
#include "taps.cuh"
#include "tf32.cuh"
#include "windows.cuh"

#ifdef OPERAND
#define SCALED 1
#else
#define SCALED 0
#define OPERAND ELEMENT
#endif

typedef ELEMENT Element;
typedef OPERAND Operand;

template <typename>
struct matrix_type {
    static constexpr MatrixType value = MATRIX_TF32;
};
template <>
struct matrix_type<float16> {
    static constexpr MatrixType value = MATRIX_FLOAT16;
};
template <>
struct matrix_type<bfloat16> {
    static constexpr MatrixType value = MATRIX_BFLOAT16;
};

// Rows of the product come in row tiles of 64 output channels, the M of a wgmma.
constexpr int SLAB_ROWS = 64;
constexpr int SLOT_BYTES = 16;
constexpr int DEPTH = 2;  // chunks along K in an instruction, its halves
constexpr int CHUNK = SLOT_BYTES / sizeof(Operand);  // channels of a chunk

constexpr int BLOCK = DEPTH * CHUNK;                 // channels of a K block, the K of an instruction
constexpr int SLAB_BYTES = SLAB_ROWS * DEPTH * SLOT_BYTES * PARTS;  // weights of a row tile in a step

struct __align__(16) Slot {
    unsigned words[SLOT_BYTES / 4];
};

// The bits of one element, and of two or four neighbours.
typedef BitsOf<sizeof(Element)>::type Bits;
typedef BitsOf<2 * sizeof(Element)>::type Pair;
typedef BitsOf<4 * sizeof(Element)>::type Quad;

// One of the positions of a load.
__device__ inline unsigned pixel_of(unsigned bits, int) { return bits; }
__device__ inline unsigned pixel_of(const Bits64& bits, int pixel) { return pixel ? bits.second : bits.first; }

// Fills a chunk, of each part, with channels as the Tensor Cores read them. Each channel has been loaded at one or two
// positions, and `pixel` says which one to take.
template <typename Element, typename Operand>
struct Channels {  // 16-bit numbers as they are
    template <int SWEEP, typename Loads>
    __device__ static void fill(Slot (&slots)[PARTS], const Loads (&values)[8], int pixel, const Placing&, Range&) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            slots[0].words[i] = byte_select(values[2 * i], values[2 * i + 1], pixel ? 0x7632 : 0x5410);
    }
};
template <>
struct Channels<float, float> {
    template <int SWEEP, typename Loads>
    __device__ static void fill(Slot (&slots)[PARTS], const Loads (&values)[4], int pixel, const Placing&, Range&) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                slots[part].words[i] = tf32_part(pixel_of(values[i], pixel), part);
    }
};
template <>
struct Channels<float, float16> {  // scaled, and added to the range of a thread's numbers
    template <int SWEEP, typename Loads>
    __device__ static void fill(Slot (&slots)[PARTS], const Loads (&values)[8], int pixel, const Placing& placing,
                                Range& range) {
        float placed[8];
        if (SWEEP == 0) {
            const float power = PowerOfTwo(placing.shift).first;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const unsigned bits = pixel_of(values[i], pixel);
                placed[i] = __uint_as_float(bits) * power;
            }
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) placed[i] = placing.place(pixel_of(values[i], pixel));
            const float power = PowerOfTwo(placing.window * WINDOW).first;
            const bool lower = PLACED_TWICE && placing.window > 0;
            if (lower) split(slots, placed);  // the part that counts in the first window is subtracted here
#pragma unroll
            for (int i = 0; i < 8; ++i)
                placed[i] = (lower ? placed[i] - high_of(slots, i) : placed[i]) * power;
        }
        split(slots, placed);
#pragma unroll
        for (int i = 0; i < 4; ++i) range.add(slots[0].words[i]);
    }
    __device__ static float high_of(const Slot (&slots)[PARTS], int i) {
        return float_from_float16((unsigned short)(slots[0].words[i / 2] >> i % 2 * 16));
    }
    // Splits each number into two float16 numbers, or rounds it to one.
    __device__ static void split(Slot (&slots)[PARTS], const float (&values)[8]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float first = values[2 * i], second = values[2 * i + 1];
            const unsigned high = float16_pair(first, second);
            slots[0].words[i] = high;
            if (PARTS == 2)
                slots[PARTS - 1].words[i] =
                    float16_pair((first - float_from_float16((unsigned short)high)) * LOW_SCALE,
                                 (second - float_from_float16((unsigned short)(high >> 16))) * LOW_SCALE);
        }
    }
};

// Whether an infinity or a NaN is among rounded outputs. Floats: times zero they are NaN, which stays in a sum. Pairs
// of 16 bits: adding LEAST, the lowest bit of the exponent, to an exponent of ones carries into the sign.
template <unsigned LEAST>
struct Specials {
    unsigned carries = 0;
    __device__ void add(unsigned pair) { carries |= (pair & 0x7fff7fffu) + LEAST; }
    __device__ void add(const Bits64& pairs) { add(pairs.first), add(pairs.second); }
    __device__ bool found() const { return carries & 0x80008000u; }
};
template <>
struct Specials<0> {
    float zeros[2] = {0, 0};  // two independent chains of additions
    __device__ void add(const Bits64& pair) {
        zeros[0] = fmaf(__uint_as_float(pair.first), 0.0f, zeros[0]);
        zeros[1] = fmaf(__uint_as_float(pair.second), 0.0f, zeros[1]);
    }
    __device__ bool found() const { return zeros[0] + zeros[1] != 0; }
};
template <typename>
struct specials_of {
    typedef Specials<0> type;
};
template <>
struct specials_of<float16> {
    typedef Specials<0x04000400u> type;
};
template <>
struct specials_of<bfloat16> {
    typedef Specials<0x00800080u> type;
};

// An axis as the kernel sees it, after packing.
struct MatrixAxis {
    AxisTaps taps;
    int64 weight_stride;
    int64 spacing;   // inputs from one component to the next
    int64 lattices;  // polyphase components that taps lie on
    int64 pairs;     // whether staging begins with an even input
    int64 spread;    // where sums are pooled, every n-th input is an element of the array; else 1
    int64 spread_reciprocal;  // long
};

// Packing of neighbouring outputs along an axis. For output `fold` of the `count`, tap j of the packed axis is tap
// (start + j * step + fold * apart) / divisor of the weights, if that is an integer less than `kernel`.
struct Fold {
    int64 count;  // 1: not packed
    int64 kernel, start, step, apart, divisor;
    // The tap of the weights for a tap of the packed axis; -1 where there is none.
    __device__ int find(int tap, int fold) const {
        if (count == 1) return tap;
        const int own = int(divisor), found = int(start) + tap * int(step) + fold * int(apart), quotient = found / own;
        return (found >= 0) & (quotient * own == found) & (quotient < int(kernel)) ? quotient : -1;
    }
};

// The order of a sum, from the outermost loop on: taps of z, K blocks of channels, taps of y, taps of x. A K block at a
// tap is a K step; `depth` K blocks at one tap of z are a pipeline stage. A chunk that holds all channels leaves the
// other half of K empty: then that half is the next tap of x in the same component, which is the same chunks at another
// distance.
//
//     step 2, taps 0 .. 4    steps: 0 and 2, 1 and 3, 4 and none
struct Steps {
    int64 channels;
    int64 blocks;  // K blocks of channels
    int64 depth;   // K blocks of a stage; the last stage may have fewer
    int64 halves;  // halves of K that are channels: 2, or 1 where a step has two taps of x
    int64 apart;   // from a tap to the next one in the same component
    // The number of steps for taps of x.
    __device__ int along_x(int taps) const {
        const int first = int(apart), both = taps / (2 * first) * first, rest = taps - 2 * both;
        return halves == 1 ? both + (rest < first ? rest : first) : taps;
    }
    // The tap of a half of a step.
    __device__ int tap_of(int step, int half) const {
        const int first = int(apart);
        return halves == 1 ? step / first * 2 * first + step % first + half * first : step;
    }
};

// The distance in chunks, and the component, of the tap that is `shift` inputs after the first one.
__device__ inline int distance_of(const MatrixAxis& axis, int shift) {
    return small_quotient(shift, int(axis.taps.step));
}
__device__ inline int lattice_of(const MatrixAxis& axis, int shift) {
    const int own = shift - distance_of(axis, shift) * int(axis.taps.step);
    const int lattice = small_quotient(own, int(axis.spacing)), lattices = int(axis.lattices);
    return axis.pairs && lattices % 2 == 0 ? lattice % 2 * (lattices / 2) + lattice / 2 : lattice;
}
// The distance from the first input of component 0 to the first input of a component.
__device__ inline int lattice_start(const MatrixAxis& axis, int lattice) {
    const int half = int(axis.lattices) / 2, odd = lattice >= half;
    const int own = axis.pairs && axis.lattices % 2 == 0 ? (lattice - odd * half) * 2 + odd : lattice;
    return own * int(axis.spacing);
}

// The taps of an axis in a phase, in the order of their inputs.
struct Taps {
    int count;
    int offset, offset_step;  // of the inputs
    int first, step;          // of the weights
};

__device__ inline Taps taps_of(const AxisTaps& axis, int residue) {
    const Progression<int> p = progression(axis, residue);
    const int offset_step = int(axis.offset_step), tap_step = int(axis.tap_step), last = p.count - 1;
    if (axis.offset_step >= 0) return {p.count, p.offset, offset_step, p.first, tap_step};
    return {p.count, p.offset + last * offset_step, -offset_step, p.first + last * tap_step, -tap_step};
}

// A phase (outputs of one residue) on z, y and x: residues, numbers of outputs, and taps.
struct Phase {
    int residue[3];
    int positions[3];
    Taps taps[3];
};

// Describes a phase in shared memory: the threads whose number `own` is 0, 1 or 2 have an axis each. A loop, as a block
// that begins waits for every instruction to be fetched.
__device__ inline void describe_phase(Phase& phase, const MatrixAxis (&axis)[3], int index, int own) {
    if (unsigned(own) >= 3) return;
#pragma unroll 1
    for (int a = 2;; --a) {
        const AxisTaps& taps = axis[a].taps;
        const int phases = int(taps.phases), size = int(taps.size_out), used = phases < size ? phases : size;
        const int next = divided(index, used), residue = index - next * used;
        index = next;
        if (a > own) continue;
        phase.residue[a] = residue;
        phase.positions[a] = divided(size - residue + phases - 1, phases);
        phase.taps[a] = taps_of(taps, residue);
        return;
    }
}

// A stage of a ring, and the parity of its current turn.
struct Turn {
    int stage, parity;
    __device__ void advance(int stages) {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// The same value, which the compiler then knows to be equal in all lanes of the warp: wgmma must not depend on a value
// that seems to differ from lane to lane.
__device__ inline int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// The channel and the packed output of a row. The same packed output of eight channels has neighbouring rows, so that a
// thread that holds rows r and r + 8 holds neighbouring outputs. Packed outputs of all axes are numbered along x first.
__device__ inline int channel_of(int row, int folds) { return row / 8 / folds * 8 + row % 8; }
__device__ inline int fold_of(int row, int folds) { return row / 8 % folds; }
struct OnAxes {
    int z, y, x;
};
__device__ inline OnAxes split_fold(int fold, const Fold (&folding)[3]) {
    const int width = int(folding[2].count), height = int(folding[1].count), row = fold / width, plane = row / height;
    return {plane, row - plane * height, fold - row * width};
}
