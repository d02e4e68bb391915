// Parameters and memory of matrix_conv.cu: the constants that follow from its macros, the members of
// `struct Arguments`, and what a block holds in shared memory.
//
// Names of the layout, as matrix_tile.cuh explains them: a `slot` is a 16-byte chunk of channels of one input position,
// a `lattice` is a polyphase component of a strided input, a `fold` is one of several neighbouring outputs that are
// packed into the rows of a column, and a `segment` is a column tile. Comments say chunk, component, packed output and
// column tile. A "team" is a warpgroup, and a "slab" a row tile.
#pragma once
#include "matrix_engine.cuh"
#include "moments.cuh"

// ---- constants ----

// The variants of the kernel. Each has a policy type of its own, which is chosen once: Numbers
// (matrix_float16.cuh) with Passes (matrix_passes.cuh), and Epilogue (matrix_store.cuh, matrix_pool.cuh).
constexpr bool EMULATES = SCALED, POOLING = POOLS;

constexpr int CONSUMER_THREADS = TEAMS * WARPGROUP, CONSUMER_WARPS = CONSUMER_THREADS / 32;
constexpr int THREADS = CONSUMER_THREADS + ENGINE::PRODUCER_WARPGROUPS * WARPGROUP;
constexpr int INPUT_THREADS = ENGINE::PRODUCER_WARPGROUPS * WARPGROUP - 32;  // the first producer warp loads weights
// Two consumer warpgroups share the rows or the columns of a tile.
constexpr int ROW_WARPGROUPS = SLABS < TEAMS ? SLABS : TEAMS, COLUMN_WARPGROUPS = TEAMS / ROW_WARPGROUPS;
constexpr int ROWS = SLABS * SLAB_ROWS, COLUMNS = COLUMN_WARPGROUPS * WARPGROUP_COLUMNS;

// Outputs pass through a buffer of each warp, so that stores run along rows: 16 rows, a few mma fragments wide, or 8
// rows of pairs of packed outputs. The padding spreads the lanes' rows over the banks.
constexpr int BUFFER_FRAGMENTS = ENGINE::COLUMNS * sizeof(Pair) < 64 ? ENGINE::COLUMNS : 64 / sizeof(Pair);
constexpr int BUFFER_PAIRS = BUFFER_FRAGMENTS * 4;  // pairs of neighbouring outputs in a row of the buffer
constexpr int BUFFER_PITCH = BUFFER_PAIRS + 4;
// The columns of a warpgroup, rounded up to whole buffers.
constexpr int BUFFER_COLUMNS = BUFFER_FRAGMENTS * 8;
constexpr int BUFFERED_COLUMNS = (WARPGROUP_COLUMNS + BUFFER_COLUMNS - 1) / BUFFER_COLUMNS * BUFFER_COLUMNS;

constexpr int MAX_STAGES = 16;
constexpr int MOST_FOLDS = 32;    // of a column, as many as a word has bits
constexpr int MOST_ORDERED = 32;  // phases
constexpr int64 ABSENT = -0x7fffffffffffffffll - 1;  // the offset of an input that does not exist

// Named barriers, beside the engine's (TURN_BARRIER).
constexpr int WARPGROUP_BARRIER = 1;  // and the next one: of each consumer warpgroup
constexpr int POOL_BARRIER = 6;       // of two consumer warpgroups that share rows
constexpr int ALL_THREADS = 7, INPUTS_DESCRIBED = 8, OUTPUTS_DESCRIBED = 9;

// Float16 emulation of float32.
constexpr int MOST_TILES = 4 * MAX_STAGES;  // tiles whose windows are known at a time: of all stages, and more
constexpr int MOST_WIDE = 32;               // tiles that the second sweep finds in a list

// ---- parameters ----

// All strides are in elements. All members have 64 bits, or are arrays of bytes that fill whole words.
struct Arguments {
    const Element* input;
    const Element* weight;
    const unsigned char* packed;  // weights as pack_weights.cu lays them out
    Element* out;
    Parameter bias;
    int64 batch, groups, rows;
    int64 input_batch, input_group, input_channel, input_axis[3];
    int64 weight_group, weight_row, weight_channel;
    int64 out_batch, out_group, out_row, out_axis[3];
    AxisTaps taps[3];     // as called
    MatrixAxis axis[3];   // as computed, outputs being packed
    Fold fold[3];
    int64 folds;          // of all axes together
    int64 fold_offset[MOST_FOLDS];  // from the first output that is packed into a column to each of them
    Steps sum;
    int64 phases, steps;  // steps of the phase that has most
    int64 by_phase;       // whether neighbouring blocks have the same phase
    // The order in which blocks visit the phases if by_phase, the most expensive phase first.
    unsigned char phase_order[MOST_ORDERED];
    int64 row_tiles, tiles[4];                  // tiles of ROWS rows, and tiles along samples, z, y and x
    int64 tile[4];                              // outputs of a tile along them
    int64 plane_pitch, row_pitch, segment_pitch;  // in chunks
    int64 slots, lattice_slots;                 // of a half of K in a stage, and of one component
    int64 extent[2];  // chunks that a tile reads along y and x
    int64 reach[4];   // distance of a tile's last input from its first one along samples, z, y and x
    int64 stages, weight_stages;
    int64 chunk;     // K blocks that a round of loads stays in, a multiple of `depth` and `deep`
    int64 deep;      // consecutive K blocks for which a producer thread keeps its chunks
    int64 resident;  // whether the weights of a sum fit their ring, where they stay for all tiles
    int64 group;     // steps of a stage of weights
    int64 plane_reciprocal, row_reciprocal, depth_reciprocal;  // of plane_pitch, row_pitch, tile[1]
    int64 tile_reciprocals[5];  // long ones of row_tiles and of tiles along x, y, z and samples
    int64 groups_reciprocal;  // of the number of groups of chunks that a warp takes at a time, in a half of K
    int64 input_pairs;   // whether all inputs come as aligned pairs of neighbours
    int64 output_unit;   // 1, 2 or 4: neighbouring outputs that are aligned and lie in one tile
#if SCALED
    const RowShifts* row_shifts;  // in the order of the packed weights' rows
    const int* sample_shifts;
#endif
#if POOLS
    float* pooled;
    PartMoments* partial;  // null: no statistics
    // Parameters of each channel. If statistics are given, only whether the normalized values are finite counts.
    Parameter scale, shift, mean, var;
    double eps;
    int64 pooled_batch, pooled_row, pooled_pitch;
#endif
};

// ---- shared memory ----
//
// `Shared` is a chain of structs, whose links the variants choose: a struct with several bases would test its
// address at each access. _kernels/matrix_tiles.py counts its bytes (_declared).

template <bool FIRST, typename A, typename B>
struct choose {
    typedef A type;
};
template <typename A, typename B>
struct choose<false, A, B> {
    typedef B type;
};

// The barriers of the pipeline, and what consumer warpgroups know of their rows and columns.
struct CommonState {
    mbarrier inputs_full[MAX_STAGES], inputs_empty[MAX_STAGES];
    mbarrier weights_full[MAX_STAGES], weights_empty[MAX_STAGES];
    Phase phase;
    // For each column its offset from the tile's first output, its coordinates in the tile (PackedPlace), and a bit
    // for each packed output that exists, in tiles inside of the output (0) and in the present one at its border (1).
    int64 column_offset[TEAMS][BUFFERED_COLUMNS];
    unsigned column_place[TEAMS][BUFFERED_COLUMNS];
    unsigned column_folds[2][TEAMS][BUFFERED_COLUMNS];
    float bias[TEAMS][WARPGROUP_ROWS];
};

struct EmulationState : CommonState {
    // For each of the latest tiles, bits of the windows of its inputs, if there are others than the first one, and
    // bits of the K blocks that have them.
    unsigned windows[MOST_TILES];
    int shifts[2][TEAMS][WARPGROUP_ROWS];  // of rows, for either window of weights
    // Factors of columns for the least shift of a tile's samples: 1, and the factors of the present tile.
    __align__(8) float powers[2][TEAMS][BUFFERED_COLUMNS];
    // Tiles that the second sweep computes again, or more than the list holds: all tiles then. The union of their
    // windows, whether the sums of the first such tile have been kept, and whether a warp has lost its part of these.
    int wide_tiles[MOST_WIDE], wide_count;
    unsigned wide_windows, kept, lost;
};
typedef choose<EMULATES, EmulationState, CommonState>::type NumbersState;

// The 16 rows of one mma fragment: two groups of eight consecutive output channels, each of one packed output.
struct FragmentRows {
    int64 offset, apart;  // of the first group, and from it to the second one
    int count[2];         // channels from the first of a group on that exist
    unsigned fold[2];     // a bit for the group's packed output
};
struct StoreState : NumbersState {
    __align__(16) Pair buffer[CONSUMER_WARPS][16 * BUFFER_PITCH];
    FragmentRows rows[TEAMS][WARPGROUP_ROWS / 16];
};

// A 2 x 2 window of outputs: offset of its extremum from the tile's first one, first column, and coordinates.
struct Window {
    int64 offset;
    int column;
    unsigned place;
};
struct PoolState : NumbersState {
    // Rows of sums that are exchanged between threads, with padding that spreads them over the banks.
    __align__(16) float values[ROW_WARPGROUPS][STACKED == 1 ? ENGINE::PASS_ROWS : 1][COLUMNS + 8];
    Window window[COLUMNS / 4];
    __align__(8) float present[2][TEAMS][BUFFERED_COLUMNS];  // as column_folds: 1 for an output, else 0
    Moments moments[TEAMS][ENGINE::COLUMN_WARPS][WARPGROUP_ROWS];
    unsigned flip[TEAMS][WARPGROUP_ROWS];  // how the extrema of a row are found
};

struct Shared : choose<POOLING, PoolState, StoreState>::type {};

// The chunks of two neighbouring inputs.
struct __align__(8) PairSlots {
    int first, second;
};

// Whether pairs of inputs belong to an odd number of components. Then a table says where they are stored.
__device__ inline bool in_odd_lattices(const Arguments& p) {
    return p.axis[2].pairs && p.axis[2].lattices > 1 && p.axis[2].lattices % 2 != 0;
}

// What follows `Shared` in the launch's shared memory: the two rings of stages, and tables that are the same for all
// tiles of a block (matrix_layout.cuh).
struct Memory {
    unsigned char *weights, *inputs;  // rings
    int weight_bytes, input_bytes;    // of a stage
    int64* offset;   // of each chunk, the offset of its input from the tile's first one, or ABSENT
    unsigned* from;  // of each chunk, the coordinates of its input from the first one on (PackedPlace)
    PairSlots* pairs;     // of each pair of inputs in an odd number of components
    Distances* distance;  // of each step of a stage, and of a few more, which are loaded ahead but not used

    __device__ Memory(const Arguments& p, unsigned char* memory) {
        weight_bytes = int(p.group) * SLABS * SLAB_BYTES;
        input_bytes = int(p.sum.depth * p.sum.halves * p.slots) * PARTS * SLOT_BYTES;
        weights = memory + (sizeof(Shared) + 127) / 128 * 128;
        inputs = weights + int(p.weight_stages) * weight_bytes;
        offset = (int64*)(inputs + int(p.stages) * input_bytes);
        from = (unsigned*)(offset + p.slots);
        pairs = (PairSlots*)(from + p.slots);
        distance = (Distances*)(pairs + (in_odd_lattices(p) ? p.slots / 2 : 0));
    }
};

// A group of cooperating threads and this thread's rank in it.
struct Threads {
    int rank, count;
};
