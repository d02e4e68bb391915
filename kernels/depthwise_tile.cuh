// What all roles of the depthwise kernel share: its macros, parameters, tiles and shared memory, and the
// strips of outputs that a tile is divided into.
//
//     depthwise_conv.cu      contract and entry point
//     depthwise_stage.cuh    producer: inputs and weights come to shared memory
//     depthwise_fma.cuh      mainloops of multiply-adds and their epilogue
//     depthwise_mma.cuh      mainloop on Tensor Cores, its epilogue, exact recomputation
#pragma once
#include "border_modes.cuh"
#include "depthwise_band.cuh"
#include "division.cuh"
#include "taps.cuh"

// ---- parameters ----

#ifndef MATRIX
#define MATRIX 0
#endif

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;
constexpr bool TENSOR_CORES = MATRIX;
constexpr int SLIDING_TAPS = TAPS;
constexpr int STRIP_LINES = LINES;

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;
constexpr int MAX_PHASES = 8;
constexpr int CHUNK = 16 / sizeof(Element);  // elements of a 16-byte chunk
constexpr int ABSENT = -0x40000000;          // coordinate of a line that does not exist: far before the array

template <typename T, int N>
struct __align__(sizeof(T) * N) Vector {
    T values[N];
};
typedef Vector<Element, 2> Pair;
typedef Vector<unsigned, 4> Chunk;

// How inputs are loaded: by elements, by chunks that are aligned in the array, or by chunks that begin anywhere.
enum Loads : int64 { ELEMENTWISE, ALIGNED, ANYWHERE };

// Strides and pitches are in elements.
struct Axis {
    AxisTaps taps;
    int64 low;     // least input offset of any tap
    int64 apart;   // inputs from one tap of a phase to the next
    int64 tile;    // positions of a tile, in each phase
    int64 tiles;
    int64 extent;  // staged inputs of a tile
    int64 pitch;   // staged elements from one input to the next
    int64 input, weight, out;  // strides
};

struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 groups, rows;
    int64 input_batch, input_group, weight_group, weight_row, out_batch, out_group, out_row;
    Axis axis[3];
    int64 tiles, row_tiles, channel_tiles;
    int64 rows_of_tile, channels, channel_pitch;
    int64 runs_of_tile, strips_of_tile, taps;
    int64 inputs;    // staged elements
    int64 chunks;    // chunks of a run
    int64 runs;      // runs of a line
    int64 vectors;   // a value of Loads; a chunk is one element if it is ELEMENTWISE
    int64 whole;     // lines of a tile if each is one bulk copy, else 0
    int64 slides;    // 1 if taps slide
    int64 skew;      // elements from a chunk's begin to the first input of a line, for Tensor Cores
    int64 columns;   // threads along x
    int64 strips;    // strips in a phase of y
    int64 border;    // a BorderMode
    int64 section;   // outputs of a section if the lines of a thread are sections of one line, else 0
    // From one line of a thread to the next: elements of the output, inputs along y and x, staged elements.
    int64 line_out, line_place[2], line_pitch;
    // Long reciprocals of row_tiles, of the tiles along x, y, z and of channel_tiles.
    int64 tile_reciprocals[5];
    // Reciprocals of the numbers after `per_` (depthwise_conv.py).
    int64 per_chunks, per_runs, per_extent[2], per_columns, per_strips[2], per_planes[2], per_channels, per_phases;
    int64 per_width, per_height, per_values, per_section;
    int64 pairs;  // 1 if two neighbouring outputs can be stored together
};

// ---- taps ----

// The taps of a phase in ascending order of their inputs. Weights lie in shared memory in the same order.
struct Taps {
    int first, step, count;
    int offset;  // input of the first tap, counted from `Axis::low`
};

__device__ inline Taps ascending_taps(const Axis& axis, int phase) {
    // On Tensor Cores there is one phase, and its first tap reads the first input.
    if constexpr (TENSOR_CORES) return {0, 1, int(axis.taps.kernel), 0};
    const Progression<int> found = progression(axis.taps, phase);
    if (found.count == 0) return {0, 0, 0, 0};
    const AxisTaps& taps = axis.taps;
    const int64 last = found.first + (found.count - 1) * taps.tap_step;
    if (taps.offset_step >= 0)
        return {int(found.first), int(taps.tap_step), int(found.count), int(found.offset - axis.low)};
    return {int(taps.kernel - 1 - last), int(taps.tap_step), int(found.count),
            int(found.offset + (found.count - 1) * taps.offset_step - axis.low)};
}

// ---- tiles ----

// First position of a tile on each axis (the same in all phases), first channel and row, and the sample.
struct Tile {
    int position[3];
    int channel, row, sample;

    __device__ Tile(const Arguments& p, int index) {
        int next = long_quotient(index, p.tile_reciprocals[0]);
        row = (index - next * int(p.row_tiles)) * int(p.rows_of_tile);
#pragma unroll
        for (int a = 2; a >= 0; --a) {
            index = next;
            next = long_quotient(index, p.tile_reciprocals[3 - a]);
            position[a] = (index - next * int(p.axis[a].tiles)) * int(p.axis[a].tile);
        }
        sample = long_quotient(next, p.tile_reciprocals[4]);
        channel = (next - sample * int(p.channel_tiles)) * int(p.channels);
    }

    // The input coordinate of the first staged input.
    __device__ int first(const Arguments& p, int a) const {
        return position[a] * int(p.axis[a].taps.step) + int(p.axis[a].low);
    }
    // True if inputs of the tile lie outside of the array.
    __device__ bool reaches_out(const Arguments& p) const {
        bool out = false;
#pragma unroll
        for (int a = 0; a < 3; ++a)
            out |= first(p, a) < 0 || first(p, a) + int(p.axis[a].extent) > int(p.axis[a].taps.size_in);
        return out;
    }
    __device__ bool exists(const Arguments& p, int tile_row, int tile_channel) const {
        return (row + tile_row < int(p.rows)) & (channel + tile_channel < int(p.groups));
    }
};

// ---- shared memory ----

// A run of chunks of a staged line. The first run of a line may begin before the first input of the line.
struct __align__(16) Run {
    const Element* source;
    int place;  // index in SharedMemory::inputs
    int x;      // input coordinate of its first element; ABSENT if the array lacks the line
};

// STRIP_LINES lines of outputs over the width of a tile, and where their inputs and weights lie.
struct __align__(16) Strip {
    int64 out;  // offset of the tile's first column
    int lines;  // number of lines that exist
    int weights;      // index in SharedMemory::weights
    int input;        // index in SharedMemory::inputs of the input of the first position and tap
    short phases[2];  // phases of z and y
    int place[2];     // coordinates z and y of that input
};

// A band is what a warp computes together on Tensor Cores: BAND_LINES lines of BAND_WIDTH outputs.
constexpr int BAND_LINES = 16, BAND_WIDTH = 64;
constexpr int BAND_PITCH = BAND_WIDTH / 2 + 4;  // pairs; the padding spreads lines over the banks

// The parts of a block's shared memory, in their order there.
struct SharedMemory {
    typedef Taps TapTable[3][MAX_PHASES];

    TapTable& taps;               // by axis and phase
    mbarrier* const lines_there;  // counts the bytes of bulk copies; it takes the bytes of one run if there are any
    Run* const runs;
    Strip* const strips;
    Element* const inputs;
    Accumulator* const weights;  // for each row and channel its weights, then its bias
    Element* const diagonals;    // for Tensor Cores each line of taps twice: aligned at even and at odd taps
    unsigned* const band;        // for Tensor Cores a warp's buffer: pairs of outputs of one strip

    __device__ SharedMemory(const Arguments& p, unsigned char* memory)
        : taps(*(TapTable*)memory),
          lines_there((mbarrier*)(memory + sizeof(TapTable))),
          runs((Run*)lines_there + (p.whole ? 1 : 0)),
          strips((Strip*)(runs + int(p.runs_of_tile))),
          inputs((Element*)(strips + int(p.strips_of_tile))),
          weights((Accumulator*)(inputs + int(p.inputs))),
          diagonals((Element*)(weights + int(p.rows_of_tile * p.channels * (p.taps + 1)))),
          band((unsigned*)(diagonals + lines_of_taps(p) * int(p.rows_of_tile * p.channels) * 2 * DIAGONAL) +
               threadIdx.x / 32 * STRIP_LINES * BAND_PITCH) {}

    __device__ static int lines_of_taps(const Arguments& p) {
        return int(p.axis[0].taps.kernel * p.axis[1].taps.kernel);
    }
};

// Describes the strips of a tile whose first staged input has index `start`.
__device__ __forceinline__ void describe_strips(const Arguments& p, const SharedMemory& memory, const Tile& tile,
                                                int start) {
    const Axis &az = p.axis[0], &ay = p.axis[1], &ax = p.axis[2];
    const int phases_y = TENSOR_CORES ? 1 : int(ay.taps.phases);
    const int planes = int(az.tile * az.taps.phases), strips_of_plane = int(p.strips * ay.taps.phases);
    // The last threads begin, because the first ones describe runs.
    for (int i = THREADS - 1 - int(threadIdx.x); i < int(p.strips_of_tile); i += THREADS) {
        int index = quotient(i, p.per_strips[1]);
        const int strip = i - index * strips_of_plane, phase_y = quotient(strip, p.per_strips[0]);
        const int row_and_channel = quotient(index, p.per_planes[1]);
        const int plane = index - row_and_channel * planes, phase_z = quotient(plane, p.per_planes[0]);
        const int row = quotient(row_and_channel, p.per_channels), channel = row_and_channel - row * int(p.channels);
        const int qz = plane - phase_z * int(az.tile), qy = (strip - phase_y * int(p.strips)) * STRIP_LINES;
        const int z = phase_z + (tile.position[0] + qz) * int(az.taps.phases);
        const int y = phase_y + (tile.position[1] + qy) * int(ay.taps.phases);
        const int left = (int(ay.taps.size_out) - y + phases_y - 1) / phases_y;
        const bool present = tile.exists(p, row, channel) & (z < int(az.taps.size_out)) & (left > 0);
        const int iz = qz * int(az.taps.step) + memory.taps[0][phase_z].offset;
        const int iy = qy * int(ay.taps.step) + memory.taps[1][phase_y].offset;
        memory.strips[i] = {tile.sample * p.out_batch + (tile.channel + channel) * p.out_group +
                                (tile.row + row) * p.out_row + z * az.out + y * ay.out +
                                tile.position[2] * ax.taps.phases * ax.out,
                            !present ? 0 : p.section || left > STRIP_LINES ? STRIP_LINES : left,
                            row_and_channel * (int(p.taps) + 1),
                            start + channel * int(p.channel_pitch) + iz * int(az.pitch) + iy * int(ay.pitch),
                            {short(phase_z), short(phase_y)},
                            {tile.first(p, 0) + iz, tile.first(p, 1) + iy}};
    }
}

// True if a row and channel has a weight that is not finite.
__device__ inline bool has_special_weight(const Arguments& p, const Accumulator* weight) {
    bool special = false;
#pragma unroll 1
    for (int i = 0; i < int(p.taps); ++i) special |= is_special(weight[i]);
    return special;
}
