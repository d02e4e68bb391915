// Convolution on matrix units, in both directions, for float32 (by three products or by one, of tf32 or of
// float16 numbers), float16 and bfloat16.
//
//     out[n, g, row, o] = bias[g, row]
//                       + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// A block computes a tile of ROWS output channels by COLUMNS outputs. matrix_tile.cuh says how outputs,
// inputs and taps are laid out, pack_weights.cu how the weights lie that it has packed before.
//
//      inputs of a stage, as slots of 16 bytes      weights of a group of steps
//      (4 channels of tf32, 8 of 16 bits)           [step][slab][part][half of K][64 rows][16 bytes]
//
//                 slot 0 1 2 3 ...                         one wgmma: 64 rows x SEGMENT columns
//      half 0 of K   # # # # # # # # # # # #               over the two halves of K
//      half 1 of K   # # # # # # # # # # # #
//                      \___________/                       the columns of a tap start at its
//                       columns of tap 1                   distance: a shifted start address
//
// Where a slot holds all channels, half 1 is another tap of x: the same slots, from another distance on.
//
// Warps have parts of their own. The first teams of four warps multiply: of two, each has its slab of 64
// rows or its half of the columns; a single one has all. Of the warps behind them one brings weights, the
// others stage inputs (read along rows of the image as NCHW lies, transposed to slots in registers). Rings
// of stages with an mbarrier for "full" and one for "empty" each lie between them:
//
//      inputs   ring of `stages`: one K block or a few of channels with the tile's halo, one tap of z
//      weights  ring of `weight_stages`: a group of up to `group` steps
//
// The order of a sum is that of `Steps` in matrix_tile.cuh, whatever the tile, the grid or the batch.
//
// Where floats are multiplied as float16 numbers, a block takes its tiles in two sweeps (windows.cuh, and "sweeps
// and passes" below).
//
// With SPANS the sum of an output is that of several sums, in order, each of as many K blocks: of few tiles they are
// divided among blocks that lie beside each other, and the warp that is the last one there adds them up:
//
//     block   0 1 2 3 | 4 5 6 7 | ...        the spans of a tile, each with its own sums in memory; the block that
//     tile    0       | 1       |            counts the last one adds all of them up, and stores the tile
//
// of many tiles a block has all spans of a tile in turn, and keeps what it has added up: in registers, or, with three
// products for each, in memory. All give the same bits.
//
// Infinities and NaN: a slot that holds an absent input is zero, and zero times an infinite weight is
// NaN; an infinite input splits into inf and NaN; a number near the largest rounds to infinity. None of
// that is lost in a sum: what should be finite, or infinite, is then infinite or NaN. So an output that
// is not finite is computed again by plain arithmetic from the arrays themselves, and no other is.
//
// Macros, with those of matrix_tile.cuh and matrix_engine.cuh:
//     ENGINE       WgmmaEngine or MmaEngine
//     TEAMS        that multiply: 2, or 1 where tiles are small and mostly wait for their inputs
//     SLABS        slabs of 64 rows of a block: 1, which its teams share, or 2, one for each of two teams
//                  or both for a single one
//     POOLS        1 where sums are not stored but pooled (matrix_pool.cuh)
//     SPANS        1 where there are several (sum.blocks is the number of K blocks of one)
//
// Launch: THREADS threads, any multiple of `phases` blocks, `shared` bytes of shared memory (_kernels/matrix_tiles.py), and, where
// the GPU can, before pack_weights.cu has ended: what that kernel writes is waited for here.
// A block stays in a phase and takes every so many-th of its tiles. Blocks beside each other have all phases in turn,
// blockIdx % phases, or the same one, those of most taps first: as the phases' order says. Tiles run over rows
// fastest, then x, y, planes (z, then samples), then groups.

#include "matrix_engine.cuh"
#include "moments.cuh"

#ifndef SPANS
#define SPANS 0
#endif

constexpr int THREADS = (TEAMS + ENGINE::STAGING_TEAMS) * TEAM;
constexpr int ROWS = SLABS * SLAB_ROWS;
constexpr int ROW_TEAMS = SLABS < TEAMS ? SLABS : TEAMS, COLUMN_TEAMS = TEAMS / ROW_TEAMS;
constexpr int COLUMNS = COLUMN_TEAMS * TEAM_COLUMNS;
constexpr int MAX_STAGES = 16;
constexpr int STAGERS = ENGINE::STAGING_TEAMS * TEAM - 32;  // threads that stage inputs
constexpr int64 NOWHERE = -0x7fffffffffffffffll - 1;
// Outputs pass through a buffer of each warp, so that stores run along rows: 16 rows, a few tiles wide,
// or 8 rows of pairs of folds. The padding spreads the lanes' rows over the banks.
constexpr int PASS_TILES = ENGINE::COLUMNS * sizeof(Pair) < 64 ? ENGINE::COLUMNS : 64 / sizeof(Pair);
constexpr int PASS_PAIRS = PASS_TILES * 4;  // of a row
constexpr int PASS_PITCH = PASS_PAIRS + 4;
constexpr int PASSED_COLUMNS = (TEAM_COLUMNS + PASS_TILES * 8 - 1) / (PASS_TILES * 8) * (PASS_TILES * 8);
constexpr int FIRST_TEAM = 1;  // named barriers, one for each team
constexpr int FIRST_POOL = 6;  // one for both
constexpr int ALL_THREADS = 7, INPUTS_DESCRIBED = 8, OUTPUTS_DESCRIBED = 9;
constexpr int MOST_WIDE = 32;
constexpr int MOST_FOLDS = 32;  // of a column, as many as a word has bits
constexpr int MOST_ORDERED = 32;  // phases
constexpr int FIRST_BLOCK = WINDOWS, BLOCK_BITS = 16;  // bits of K blocks, behind those of windows
constexpr unsigned ABOVE = 1;  // the bit of numbers above the first window
constexpr bool KEEPS = SCALED && PLACED_TWICE;
constexpr int MOST_TILES = 4 * MAX_STAGES;  // of which inputs are staged while others of them are in use
constexpr int SWEEPS = SCALED ? 2 : 1;

#if POOLS
constexpr int PASS_ROWS = ENGINE::PASS_ROWS;  // that pass through a team's buffer together
// Of a tile: a window's first column, where it is stored behind the first one, and its place.
struct Window {
    int64 offset;
    int column;
    unsigned place;
};
#endif

// All strides are in elements.
struct Arguments {
    const Element* input;
    const Element* weight;
    const unsigned char* packed;
    Element* out;
    Parameter bias;
    int64 batch, groups, rows;
    int64 input_batch, input_group, input_channel, input_axis[3];
    int64 weight_group, weight_row, weight_channel;
    int64 out_batch, out_group, out_row, out_axis[3];
    AxisTaps taps[3];     // as called
    MatrixAxis axis[3];   // as computed
    Fold fold[3];
    int64 folds;          // of all axes together
    int64 fold_offset[MOST_FOLDS];  // where they lie, from the first one on
    Steps sum;
    int64 phases, steps;  // steps of the phase that has most
    int64 by_phase;       // whether blocks beside each other have the same phase
    unsigned char phase_order[MOST_ORDERED];  // then, of those blocks that begin first on
    int64 row_tiles, tiles[4];                  // along samples, z, y and x
    int64 tile[4];                              // outputs of a tile along them
    int64 plane_pitch, row_pitch, segment_pitch;  // in slots
    int64 slots, lattice_slots;                 // of a half of K in a stage; of one lattice
    int64 extent[2];  // slots that a tile reads of an axis: y and x
    int64 reach[4];   // how far inputs of a tile are from its first one: samples, z, y and x
    int64 stages, weight_stages;
    int64 chunk;     // K blocks of which rounds of staging are made up, a multiple of `depth` and `deep`
    int64 deep;      // K blocks of which a staging thread has the same slots in turn
    int64 resident;  // whether the weights of a sum fit their ring and stay there
    int64 group;     // steps of a stage of weights
    int64 plane_reciprocal, row_reciprocal, depth_reciprocal;  // of plane_pitch, row_pitch, tile[1]
    int64 tile_reciprocals[5];  // of row_tiles, and of tiles along x, y, z and samples; long ones
    int64 groups_reciprocal;  // of the groups of slots in a half of K that a warp takes at a time
    int64 input_pairs;   // whether neighbouring inputs exist and lie together, aligned to two elements
    int64 output_unit;   // 1, 2 or 4: neighbouring outputs that do, and that tiles have together
#if SCALED
    const RowShifts* row_shifts;  // of the rows of tiles, as weights are packed
    const int* sample_shifts;
#endif
#if POOLS
    float* pooled;
    PartMoments* partial;  // null: no statistics
    // Of each channel: the sign of the scale counts, and whether the statistics, if given, are finite.
    Parameter scale, shift, mean, var;
    double eps;
    int64 pooled_batch, pooled_row, pooled_pitch;
#endif
#if SPANS
    float* partial;     // sums of spans, as threads hold them: of each span of a tile, or of each block that keeps them there
    unsigned* arrived;  // of each warp of a tile, how many of its spans are there
    int64 spans, spans_reciprocal;
    int64 apart;        // whether they are those of blocks beside each other
#endif
};

// Two times eight rows, each channels in turn of one fold.
struct Rows {
    int64 offset, apart;  // from row 0 to the first ones, and from these to the others
    int count[2];         // of those that exist, or more
    unsigned fold[2];     // a bit for theirs
};

struct Shared {
    mbarrier inputs_full[MAX_STAGES], inputs_empty[MAX_STAGES];
    mbarrier weights_full[MAX_STAGES], weights_empty[MAX_STAGES];
    Phase phase;
    // Of each team's columns, filled up to whole buffers: where they lie from the tile's first output on, the place that belongs to
    // them (NOWHERE: none), and a bit for each fold of it that exists, in any tile and in one at the border.
    int64 column_offset[TEAMS][PASSED_COLUMNS];
    unsigned column_place[TEAMS][PASSED_COLUMNS];
    unsigned column_folds[2][TEAMS][PASSED_COLUMNS];
    float bias[TEAMS][TEAM_ROWS];  // of each team's rows
#if SCALED
    unsigned windows[MOST_TILES];     // of the inputs of the last tiles and the next ones: those but the first one
    int shifts[2][TEAMS][TEAM_ROWS];  // of each team's rows, for either window of weights
    // What sums are multiplied by, column by column, beside what a row's have in common: one, and what the
    // samples of a tile ask for.
    __align__(8) float powers[2][TEAMS][PASSED_COLUMNS];
    // Tiles to be done again, or more than there is room for: all of them. Their windows, and the stages that have these.
    // And whether the sums of the first such tile have been kept, and whether a warp has lost its part of them.
    int wide_tiles[MOST_WIDE], wide_count;
    unsigned wide_windows, kept, lost;
#endif
#if POOLS
    // Rows of sums, with what spreads them over the banks; of each team, how a row's extrema are found
    // and what is known of its outputs. And the windows of a tile.
    __align__(16) float values[ROW_TEAMS][STACKED == 1 ? PASS_ROWS : 1][COLUMNS + 8];
    Window window[COLUMNS / 4];
    __align__(8) float present[2][TEAMS][PASSED_COLUMNS];  // of each column, as with folds: 1 for an output, else 0
    Moments moments[TEAMS][ENGINE::COLUMN_WARPS][TEAM_ROWS];
    unsigned flip[TEAMS][TEAM_ROWS];
#else
    __align__(16) Pair pass[TEAMS * TEAM / 32][16 * PASS_PITCH];
    Rows rows[TEAMS][TEAM_ROWS / 16];
#endif
};

// Threads that share some work, of which this is one.
struct Crew {
    int own, size;
};

// The slots of two neighbouring inputs.
struct __align__(8) Places {
    int first, second;
};

// Whether neighbouring inputs are staged together in an odd number of lattices.
__device__ inline bool in_odd_lattices(const Arguments& p) {
    return p.axis[2].pairs && p.axis[2].lattices > 1 && p.axis[2].lattices % 2 != 0;
}

// The launch's shared memory: `Shared`, and behind it, in this order:
struct Dynamic {
    unsigned char *weights, *inputs;  // rings
    int weight_bytes, input_bytes;    // of a stage
    int64* offset;   // of each slot, where its input lies from the tile's first one on, or NOWHERE
    unsigned* from;  // of each slot, how far its input is from the first one
    Places* pairs;   // of each pair of neighbouring inputs in an odd number of lattices
    Distances* distance;  // of each step of a stage; and some more that are read, but not used

    __device__ Dynamic(const Arguments& p, unsigned char* memory) {
        weight_bytes = int(p.group) * SLABS * SLAB_BYTES;
        input_bytes = int(p.sum.depth * p.sum.halves * p.slots) * PARTS * SLOT_BYTES;
        weights = memory + (sizeof(Shared) + 127) / 128 * 128;
        inputs = weights + int(p.weight_stages) * weight_bytes;
        offset = (int64*)(inputs + int(p.stages) * input_bytes);
        from = (unsigned*)(offset + p.slots);
        pairs = (Places*)(from + p.slots);
        distance = (Distances*)(pairs + (in_odd_lattices(p) ? p.slots / 2 : 0));
    }
};

// Four small coordinates in a word: along samples, z, y and x.
struct Packed {
    static constexpr int Z = 27, Y = 22, X = 12;
    __device__ static unsigned pack(const int (&at)[4]) {
        return unsigned(at[0]) << Z | unsigned(at[1]) << Y | unsigned(at[2]) << X | unsigned(at[3]);
    }
    __device__ static void unpack(unsigned word, int (&at)[4]) {
        at[0] = int(word >> Z);
        at[1] = int(word >> Y & 31u);
        at[2] = int(word >> X & 1023u);
        at[3] = int(word & 4095u);
    }
};

// Two sums beside each other. As bits they would be taken while products still run, which makes ptxas wait for
// each of these.
struct __align__(8) Neighbours {
    float first, second;
};

struct Tile {
    int group, row_tile;
    int start[4];  // of the outputs of the phase, along samples, z, y and x
    int size[4];   // of these that exist from there on
#if SPANS
    int span;  // of their sums
#else
    static constexpr int span = 0;
#endif
};

__device__ __noinline__ void repair(const Arguments& p, Shared& shared, int index, int team, int border);

#if SCALED
// The shifts of a tile's samples.
struct SampleShifts {
    const int* shifts;
    int count, least, most;
    __device__ SampleShifts(const Arguments& p, const Tile& tile)
        : shifts(p.sample_shifts + tile.start[0]),
          count(tile.size[0] < int(p.tile[0]) ? tile.size[0] : int(p.tile[0])),
          least(shifts[0]),
          most(shifts[0]) {
#pragma unroll 1
        for (int i = 1; i < count; ++i) {
            least = shifts[i] < least ? shifts[i] : least;
            most = shifts[i] > most ? shifts[i] : most;
        }
    }
    // That of a column, by its place.
    __device__ int of(unsigned place) const {
        const int own = int(place >> Packed::Z);
        return shifts[own < count ? own : 0];
    }
};
#endif

// Sums of a thread that are those of the convolution.
struct Unscaled {
    __device__ __forceinline__ static Neighbours powers_of(int) { return {1, 1}; }
    __device__ __forceinline__ static Neighbours of(ENGINE& engine, int r, int half, int c, const Neighbours&) {
        return {engine.value(r, c, 2 * half), engine.value(r, c, 2 * half + 1)};
    }
    __device__ __forceinline__ static Neighbours of(ENGINE& engine, int r, int half, int c) {
        return of(engine, r, half, c, {1, 1});
    }
};

#if SCALED
// What they are multiplied by to be that.
struct Scale {
    float rows[ENGINE::ROWS][2];
    const float* columns;

    // Of a tile of columns.
    __device__ __forceinline__ Neighbours powers_of(int c) const {
        return *(const Neighbours*)(columns + ENGINE::column(c));
    }
    // Of a row in it.
    __device__ __forceinline__ Neighbours of(ENGINE& engine, int r, int half, int c, const Neighbours& powers) const {
        const Neighbours sums = Unscaled::of(engine, r, half, c);
        return {sums.first * rows[r][half] * powers.first, sums.second * rows[r][half] * powers.second};
    }
    __device__ __forceinline__ Neighbours of(ENGINE& engine, int r, int half, int c) const {
        return of(engine, r, half, c, powers_of(c));
    }
};
#else
typedef Unscaled Scale;
#endif

// The phase that a block stays in: of a run of blocks, or, in turn, of those beside each other.
__device__ inline int phase_of_block(const Arguments& p) {
    const int phases = int(p.phases);
    return p.by_phase ? p.phase_order[blockIdx.x / (gridDim.x / phases)] : blockIdx.x % phases;
}

struct Worker {
    const Arguments& p;
    Shared& shared;
    const Dynamic dynamic;
    const int phase_index;
    const Phase& phase;
    const int taps, z_taps;  // steps of y and x; taps of z, 0 where a phase has none
    const int blocks, depth;
    const int tile_step, first_tile;
    const int tile_count, own_tiles;  // spans apart are tiles of their own
    int weight_windows = 1;

    __device__ __forceinline__ Worker(const Arguments& p, Shared& shared, unsigned char* memory = nullptr,
                                      int taps = 0, int z_taps = 0)
        : p(p),
          shared(shared),
          dynamic(p, memory),
          phase_index(phase_of_block(p)),
          phase(shared.phase),
          taps(taps),
          z_taps(z_taps),
          blocks(int(p.sum.blocks)),
          depth(int(p.sum.depth)),
          tile_step(gridDim.x / int(p.phases)),
          first_tile(p.by_phase ? blockIdx.x % tile_step : blockIdx.x / int(p.phases)),
          tile_count(int(p.row_tiles * p.tiles[0] * p.tiles[1] * p.tiles[2] * p.tiles[3] * p.groups)
#if SPANS
                     * (p.apart ? int(p.spans) : 1)
#endif
                         ),
          own_tiles(first_tile < tile_count ? (tile_count - first_tile + tile_step - 1) / tile_step : 0) {}

    // ---- spans ----

    __device__ int spans() const {
#if SPANS
        return int(p.spans);
#else
        return 1;
#endif
    }
    // Of how many a block has the sums of a tile in turn. Each span of a tile is numbered like a tile.
    __device__ int together() const {
#if SPANS
        return p.apart ? 1 : int(p.spans);
#else
        return 1;
#endif
    }

    // ---- sweeps and passes ----

    // Where floats are summed up as float16 numbers, a tile takes a pass for each window that its numbers lie in. A
    // first sweep takes the first window alone, and with it finds out which tiles have others; a second one does these
    // again. Passes of other windows leave stages out where all numbers lie in the first one. With one product, the first
    // such tile has its sums kept, if it has no numbers above the window, and goes on with the other passes: mostly a
    // block has no more, for a number that is nearly zero by chance. Where weights lie in two windows, each pass is two.
    // All warps of a block walk through sweeps, tiles, passes and stages in the same way.
#if SCALED
    // Whether there is room for all tiles that the second sweep does again.
    __device__ bool listed() const { return uniform(shared.wide_count) <= MOST_WIDE; }
#endif
    __device__ int tiles_of(int sweep) const {
#if SCALED
        if (sweep > 0 && listed()) return uniform(shared.wide_count);
#endif
        return own_tiles * together();
    }
    __device__ int tile_of(int sweep, int i) const {
#if SCALED
        if (sweep > 0 && listed()) return uniform(shared.wide_tiles[i]);
#endif
        if (SPANS) return (first_tile + i / together() * tile_step) * together() + i % together();
        return first_tile + i * tile_step;
    }
    // Passes are numbered by windows of weights, and in each by those of inputs: the first one, those of smaller numbers,
    // that of larger ones. This is their order. Behind the last one it is -1.
    __device__ int first_pass(int sweep, int i) const {
#if SCALED
        if (KEEPS && sweep > 0 && i == 0 && uniform(shared.kept & ~shared.lost) && listed()) return next_pass(sweep, 0);
#endif
        return 0;
    }
    __device__ int next_pass(int sweep, int pass) const {
#if SCALED
        if (sweep == 0) return pass == 0 && weight_windows == 2 ? WINDOWS : -1;
        while (++pass < weight_windows * WINDOWS) {
            const int window = window_of_pass(pass);
            if (window == 0 || uniform(shared.wide_windows) >> (window - FIRST_WINDOW) & 1u) return pass;
        }
#endif
        return -1;
    }
    __device__ static int window_of_pass(int pass) {
        const int window = pass % WINDOWS;
        return !SCALED ? 0 : window <= LAST_WINDOW ? window : FIRST_WINDOW;
    }
    __device__ static int weights_of_pass(int pass) { return SCALED ? pass / WINDOWS : 0; }
    // Whether a pass has the stage that begins with a K block: all of them where weights stay, as these are in step, and
    // always one with fewer K blocks, so that the teams need not know which others.
    __device__ bool has(int pass, int block) const {
#if SCALED
        if (window_of_pass(pass) == 0 || stays() || block + depth > blocks) return true;
        const int first = block % int(p.chunk);
        unsigned own = 0;
#pragma unroll 1
        for (int i = 0; i < depth; ++i) own |= bit_of_block(first + i);
        return uniform(shared.wide_windows & own);
#else
        return true;
#endif
    }
    // The bit of a K block of a chunk: as those who stage know it. Some share one.
    __device__ static unsigned bit_of_block(int block) { return 1u << (FIRST_BLOCK + block % BLOCK_BITS); }
    // How many stages of a tap a pass leaves out.
    __device__ int left_out(int pass) const {
        if (window_of_pass(pass) == 0) return 0;
        int count = 0;
#pragma unroll 1
        for (int block = 0; block < blocks; block += depth) count += !has(pass, block);
        return uniform(count);
    }
    // Whether there is anything to do in a sweep, by all threads.
    __device__ bool begins(int sweep) const {
        if (sweep == 0) return true;
        named_barrier_wait(ALL_THREADS, THREADS);
#if SCALED
        return uniform(shared.wide_count) > 0;
#else
        return false;
#endif
    }
#if SCALED
    // Of the rows of a group.
    __device__ const RowShifts* row_shifts(int group) const {
        return p.row_shifts + (group * p.phases + phase_index) * p.row_tiles * ROWS;
    }
#endif
    __device__ bool stays() const { return p.resident && weight_windows == 1; }

    // Describes a tile by its number. Whether it has outputs: phases differ in theirs.
    __device__ __forceinline__ bool describe(int index, Tile& tile) const {
#if SPANS
        const int whole = long_quotient(index, p.spans_reciprocal);
        tile.span = index - whole * spans();
        index = whole;
#endif
        const int next = long_quotient(index, p.tile_reciprocals[0]);
        tile.row_tile = index - next * int(p.row_tiles);
        index = next;
        describe_axis<3>(index, phase.positions[2], tile);
        describe_axis<2>(index, phase.positions[1], tile);
        describe_axis<1>(index, phase.positions[0], tile);
        describe_axis<0>(index, int(p.batch), tile);
        tile.group = index;
        return (tile.size[0] > 0) & (tile.size[1] > 0) & (tile.size[2] > 0) & (tile.size[3] > 0);
    }
    template <int AXIS>
    __device__ __forceinline__ void describe_axis(int& index, int outputs, Tile& tile) const {
        const int next = long_quotient(index, p.tile_reciprocals[4 - AXIS]);
        tile.start[AXIS] = (index - next * int(p.tiles[AXIS])) * int(p.tile[AXIS]);
        tile.size[AXIS] = outputs - tile.start[AXIS];
        index = next;
    }

    // The place in a tile that belongs to a slot: along samples, z, y and x. Slots behind a row or a
    // plane are the next one's.
    __device__ __forceinline__ void place_of(int slot, int (&place)[4]) const {
        const int plane = quotient(slot, p.plane_reciprocal);
        slot -= plane * int(p.plane_pitch);
        place[0] = quotient(plane, p.depth_reciprocal);
        place[1] = plane - place[0] * int(p.tile[1]);
        place[2] = quotient(slot, p.row_reciprocal);
        place[3] = slot - place[2] * int(p.row_pitch);
    }

    __device__ int stages_of_tap() const { return (blocks + depth - 1) / depth; }
    // K blocks and steps of the stage that starts with K block `block`.
    __device__ int depth_of(int block) const { return blocks - block < depth ? blocks - block : depth; }
    __device__ int steps_of(int block) const { return depth_of(block) * taps; }
    __device__ int groups_of(int block) const { return (steps_of(block) + int(p.group) - 1) / int(p.group); }

    __device__ int skew() const { return p.axis[2].pairs ? phase.taps[2].offset & 1 : 0; }

    // ---- what is the same for all tiles, by the teams ----

    __device__ __forceinline__ void describe_steps(const Crew& crew) const {
        const int along_x = p.sum.along_x(phase.taps[2].count), halves = int(p.sum.halves);
        for (int step = crew.own; step < depth * taps; step += crew.size) {
            const int block = small_quotient(step, taps), tap = step - block * taps;
            const int row = small_quotient(tap, along_x);
            const int x = p.sum.tap_of(tap - row * along_x, 0) * phase.taps[2].offset_step + skew();
#pragma unroll
            for (int stacked = 0; stacked < STACKED; ++stacked) {
                const int y = row * phase.taps[1].offset_step + stacked;
                const int lattice = lattice_of(p.axis[2], x) * int(p.axis[1].lattices) + lattice_of(p.axis[1], y);
                dynamic.distance[step].of[stacked] =
                    block * PARTS * halves * int(p.slots) + lattice * int(p.lattice_slots) +
                    distance_of(p.axis[1], y) * int(p.row_pitch) + distance_of(p.axis[2], x);
            }
        }
        if (crew.own < 2 * AHEAD) dynamic.distance[depth * taps + crew.own] = {};
    }

    // ---- weights, by one warp ----

    // Those of a pass of a tile, from its span's first ones on.
    __device__ __forceinline__ void bring_weights(const unsigned char* from, int pass, Turn& turn, int& filled) const {
        const int64 step_bytes = SLABS * SLAB_BYTES;
        const int64 others = (spans() - 1) * blocks * taps * step_bytes;  // those of a tap of z
        const int lane = threadIdx.x % 32;
        for (int stage = 0, block = 0; stage < stages_of_tap() * z_taps; ++stage) {
            int left = steps_of(block);
            if (!has(pass, block)) from += left * step_bytes, left = 0;
            block = block + depth < blocks ? block + depth : 0;
            while (left > 0) {
                const int steps = left < int(p.group) ? left : int(p.group), bytes = steps * int(step_bytes);
                unsigned char* const to = dynamic.weights + turn.stage * dynamic.weight_bytes;
                if (ENGINE::PROXY) {
                    if (lane == 0) {
                        mbarrier_wait(&shared.weights_empty[turn.stage], turn.parity ^ 1);
                        mbarrier_arrive_expect(&shared.weights_full[turn.stage], bytes);
                        bulk_copy(to, from, bytes, &shared.weights_full[turn.stage]);
                    }
                } else {
                    mbarrier_wait(&shared.weights_empty[turn.stage], turn.parity ^ 1);
                    for (int i = lane * SLOT_BYTES; i < bytes; i += 32 * SLOT_BYTES)
                        copy_async<SLOT_BYTES>(to + i, from + i, SLOT_BYTES);
                    copy_async_commit();
                    if (filled >= 0) {
                        copy_async_wait<1>();
                        mbarrier_arrive(&shared.weights_full[filled]);
                    }
                    filled = turn.stage;
                }
                from += bytes;
                left -= steps;
                turn.advance(int(p.weight_stages));
            }
            if (SPANS && block == 0) from += others;
        }
    }
    __device__ __forceinline__ void bring_weights() const {
        const int64 step_bytes = SLABS * SLAB_BYTES;
        Turn turn = {0, 0};
        int filled = -1;  // a stage whose copies are under way
        if (!SCALED) wait_for_grids();
        const int64 window_bytes = p.groups * p.phases * p.row_tiles * p.steps * step_bytes;
        for (int sweep = 0; sweep < SWEEPS && begins(sweep); ++sweep)
            for (int i = 0, tiles = tiles_of(sweep); i < tiles && (i + sweep == 0 || !stays()); ++i) {
                Tile tile;
                if (!describe(tile_of(sweep, i), tile)) continue;
                const unsigned char* const weights =
                    p.packed + ((tile.group * p.phases + phase_index) * p.row_tiles + tile.row_tile) * p.steps * step_bytes +
                    tile.span * blocks * taps * step_bytes;
                for (int pass = first_pass(sweep, i); pass >= 0; pass = next_pass(sweep, pass))
                    bring_weights(weights + weights_of_pass(pass) * window_bytes, pass, turn, filled);
            }
        if (filled >= 0) {
            copy_async_wait<0>();
            mbarrier_arrive(&shared.weights_full[filled]);
        }
    }

    // ---- where inputs lie, by all threads but those who bring weights ----

    // Where the input of each slot lies.
    __device__ __forceinline__ void describe_slots(const Crew& crew) const {
        const int lattices_y = int(p.axis[1].lattices);
        for (int slot = crew.own; slot < int(p.slots); slot += crew.size) {
            const int lattice = small_quotient(slot, int(p.lattice_slots));
            const int lattice_x = small_quotient(lattice, lattices_y);
            int place[4];
            place_of(slot - lattice * int(p.lattice_slots), place);
            const bool used = (place[0] < int(p.tile[0])) & (place[2] < int(p.extent[0])) &
                              (place[3] < int(p.extent[1])) & (lattice < lattices_y * int(p.axis[2].lattices));
            const int from[4] = {
                place[0], place[1] * int(p.axis[0].taps.step),
                place[2] * int(p.axis[1].taps.step) + lattice_start(p.axis[1], lattice - lattice_x * lattices_y),
                place[3] * int(p.axis[2].taps.step) +
                    (used ? lattice_start(p.axis[2], lattice_x) : 0)};
            dynamic.from[slot] = Packed::pack(from);
            int64 offset = used ? from[0] * p.input_batch : NOWHERE;
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                const int input = first_input(a) + from[a + 1];
                const int element = element_of(a, input);
                if (element * spread(a) != input) offset = NOWHERE;
                if (offset != NOWHERE) offset += element * p.input_axis[a];
            }
            dynamic.offset[slot] = offset;
        }
    }
    // Where the inputs of each pair are staged with an odd number of lattices: as many pairs as there are lattices fill
    // two slots of each.
    //
    //     three lattices, inputs 0 ... 5      0 | 0 3        pairs (0, 1) (2, 3) (4, 5)
    //                                         1 | 1 4
    //                                         2 | 2 5
    __device__ __forceinline__ void describe_pairs(const Crew& crew) const {
        const int lattices = int(p.axis[2].lattices), lattices_y = int(p.axis[1].lattices);
        const int own_slots = int(p.lattice_slots);
        if (!in_odd_lattices(p)) return;
        for (int i = crew.own; i < int(p.slots) / 2; i += crew.size) {
            const int turn = small_quotient(i, lattices), lattice_y = small_quotient(turn, own_slots / 2);
            int places[2];
#pragma unroll
            for (int own = 0; own < 2; ++own) {
                const int input = 2 * (i - turn * lattices) + own, further = input >= lattices;
                const int lattice = (input - further * lattices) * lattices_y + lattice_y;
                places[own] = lattice_y < lattices_y
                                  ? lattice * own_slots + 2 * (turn - lattice_y * (own_slots / 2)) + further
                                  : 2 * i + own;  // behind all lattices
            }
            dynamic.pairs[i] = {places[0], places[1]};
        }
    }
    __device__ int spread(int a) const { return POOLS ? int(p.axis[a].spread) : 1; }
    // The element of an input, or that in front of it.
    __device__ int element_of(int a, int input) const {
        constexpr int BEFORE = 4096;  // more than tiles reach (Packed), which begin as far in front of element 0
        if (!POOLS) return input;
        return long_quotient(input + BEFORE * spread(a), p.axis[a].spread_reciprocal) - BEFORE;
    }
    // How far the first input of any tile is behind its element.
    __device__ int first_input(int a) const {
        const int offset = phase.taps[a].offset;
        return offset - element_of(a, offset) * spread(a);
    }

    // ---- inputs, by the other warps behind the teams ----

    // A warp takes 32 times PIXELS slots at a time, a thread PIXELS of them (neighbours, or, if `apart`, one in each of
    // two lattices), of `deep` K blocks in turn: a unit. Of all units it takes
    // every so many-th, one or a few in a round, which stays in a chunk of K blocks. While a round is stored
    // to shared memory, the loads of the next one are on their way, be it of another chunk or tile.
    // The second sweep takes slots one by one, and a stage is a chunk.
    template <int PIXELS, int SWEEP = 0>
    struct Stager {
        typedef typename BitsOf<PIXELS * sizeof(Element)>::type Loads;
        typedef Loads Values[DEPTH][CHUNK];
        static constexpr int TOGETHER = ENGINE::LOADS / (BLOCK * (int(sizeof(Loads) + 3) / 4));
        static constexpr int ROUND = SWEEP || TOGETHER < 1 ? 1 : TOGETHER;  // K blocks
        static constexpr int WARPS = STAGERS / 32;

        const Worker& worker;
        const int lane, warp, groups, deep;
        const int count;     // units of a round
        const bool apart, odd;  // there are several lattices; an odd number, and a table says where pairs lie
        const int turned;       // 1 where the second of two neighbours is stored first
        int number, pass;    // of the tile among those of the sweep
        int begun;           // tiles
        int block, tap;      // of the chunk, in its span
#if SPANS
        int before;          // K blocks in front of the span
#else
        static constexpr int before = 0;
#endif
        int unit, units;     // the round's first one, those of the chunk
        int blocks;          // K blocks of the chunk
        const Bits* input;   // the chunk's first
        int first[4];        // its coordinates
        bool inside;         // whether all inputs of the chunk are there
        Turn turn, ahead;    // the stage that is stored, and the first not known to be empty;
        int begin, entered;  // their first K blocks in the chunk

        __device__ __forceinline__ Stager(const Worker& worker, Turn turn = {0, 0})
            : worker(worker),
              lane(threadIdx.x % 32),
              warp(uniform((threadIdx.x - TEAMS * TEAM) / 32 - 1)),
              groups(int(worker.p.slots) / (32 * PIXELS)),
              deep(ROUND == 1 ? 1 : int(worker.p.deep)),
              count(ROUND == 1 ? 1 : ROUND / deep),
              apart(PIXELS == 2 && worker.p.axis[2].lattices > 1),
              odd(PIXELS == 2 && in_odd_lattices(worker.p)),
              turned(PIXELS == 2 && !apart ? lane / 4 % 2 : 0),  // eight lanes store to all banks together
              number(-1),
              pass(2 * WINDOWS - 1),
              begun(0),
              block(worker.blocks),
              tap(worker.z_taps),
#if SPANS
              before(worker.spans() * worker.blocks),
#endif
              unit(warp),
              units(0),
              blocks(0),
              turn(turn),
              ahead(turn),
              begin(0),
              entered(0) {}

        __device__ static int most(int number, int limit) { return number < limit ? number : limit; }

        __device__ __forceinline__ int chunk() const { return SWEEP ? worker.depth : int(worker.p.chunk); }
        __device__ __forceinline__ void size_chunk() {
            blocks = most(worker.blocks - block, chunk());
            units = (blocks + deep - 1) / deep * groups;
        }
        // Goes on to the next round; returns whether there is one.
        __device__ __forceinline__ bool advance() {
            const Arguments& p = worker.p;
            for (int i = 0; i < count && unit < units; ++i) unit += WARPS;
            if (unit < units) return true;
            unit -= units;
            const int last = before + block;
            bool other = false;
            do {
                block += chunk();
                if (block >= worker.blocks) block = 0, ++tap;
                if (tap < worker.z_taps) continue;
                tap = 0;
                pass = worker.next_pass(SWEEP, pass);
                other = pass < 0;
                if (other) pass = worker.first_pass(SWEEP, number + 1);
            } while (SWEEP && !worker.has(pass, block));
#if SPANS
            // Of the next span of the same tile only the channels are others.
            if (other && worker.z_taps == 1 && !p.apart && before + worker.blocks < worker.spans() * worker.blocks) {
                ++number, ++begun;
                before += worker.blocks;
                input += (before - last) * BLOCK * p.input_channel;
                size_chunk();
                return true;
            }
#endif
            Tile tile;
            do {
                number += other;
                if (worker.z_taps == 0 || number >= worker.tiles_of(SWEEP)) return false;
            } while (!worker.describe(worker.tile_of(SWEEP, number), tile));
            begun += other;
#if SPANS
            before = tile.span * worker.blocks;
#endif
            size_chunk();
            first[0] = tile.start[0];
            inside = tile.size[0] >= int(p.tile[0]);
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                int start = tile.start[a + 1] * int(p.axis[a].taps.step) + worker.phase.taps[a].offset;
                if (a == 0) start += tap * worker.phase.taps[0].offset_step;
                if (a == 2) start -= worker.skew();
                first[a + 1] = start;
                inside &= (start >= 0) & (start + int(p.reach[a + 1]) < int(p.axis[a].taps.size_in));
            }
            input = (const Bits*)p.input + tile.group * p.input_group + first[0] * p.input_batch +
                    (before + block) * BLOCK * p.input_channel;
#pragma unroll
            for (int a = 0; a < 3; ++a) input += worker.element_of(a, first[a + 1]) * p.input_axis[a];
            return true;
        }

        // The first K block of a unit.
        __device__ __forceinline__ int block_of(int unit) const {
            return turns_of(unit) * deep;
        }
        __device__ __forceinline__ int turns_of(int unit) const {
            return SWEEP ? unit / groups : quotient(unit, worker.p.groups_reciprocal);
        }
        __device__ __forceinline__ int slot_of(int unit) const {
            const int group = unit - turns_of(unit) * groups;
            return (group * 32 + lane) * (apart ? 1 : PIXELS);
        }

        // The slots of a thread's inputs, of which this is the first one or the number of a pair.
        __device__ __forceinline__ Places places_of(int slot) const {
            Places places = {slot, slot + (apart ? int(worker.p.slots) / 2 : PIXELS - 1)};
            if (odd) places = worker.dynamic.pairs[slot];
            return places;
        }

        // Where a thread's inputs of a unit begin, and how many channels there are from there on, 0 where
        // they are absent. And the shift of their sample.
        __device__ __forceinline__ void find(int unit, const Bits*& at, int& channels, int& shift) const {
            const Arguments& p = worker.p;
            const int slot = places_of(slot_of(unit)).first, own = block_of(unit);
            const int64 offset = worker.dynamic.offset[slot];
            bool present = offset != NOWHERE;
            if (!inside) {
                int from[4];
                Packed::unpack(worker.dynamic.from[slot], from);
                // As unsigned numbers, negative coordinates are too large as well.
                present &= (first[0] + from[0] < int(p.batch)) &
                           (unsigned(first[1] + from[1]) < unsigned(p.axis[0].taps.size_in)) &
                           (unsigned(first[2] + from[2]) < unsigned(p.axis[1].taps.size_in)) &
                           (unsigned(first[3] + from[3]) < unsigned(p.axis[2].taps.size_in));
            }
            channels = present ? int(p.sum.channels) - (before + block + own) * BLOCK : 0;
            at = input + own * BLOCK * p.input_channel + (present ? offset : 0);
#if SCALED
            if (present) shift = p.sample_shifts[first[0] + (worker.dynamic.from[slot] >> Packed::Z)];
#endif
        }

        // What is absent stays zero. There are no branches around the loads of a K block, so that all are
        // under way together. Two addresses, so that half as many additions wait for each other.
        __device__ __forceinline__ void load(Values& values, const Bits*& at, int& channels) const {
            const int64 pitch = worker.p.input_channel;
            const Bits* next = at + pitch;
#pragma unroll
            for (int i = 0; i < BLOCK; i += 2, at += 2 * pitch, next += 2 * pitch) {
                load_bits(values[i / CHUNK][i % CHUNK], (const Loads*)at, i, channels);
                load_bits(values[i / CHUNK][i % CHUNK + 1], (const Loads*)next, i + 1, channels);
            }
            channels -= BLOCK;
        }
        __device__ static void clear(Values& values) {
#pragma unroll
            for (int i = 0; i < BLOCK; ++i) values[i / CHUNK][i % CHUNK] = Loads();
        }

        // Waits until the stages up to that of a K block of the chunk may be filled. Of single ones it is the stage that
        // is stored: to wait for that again takes less than to know about it.
        __device__ __forceinline__ void enter(int own) {
            if (ROUND == 1) {
                mbarrier_wait(&worker.shared.inputs_empty[turn.stage], turn.parity ^ 1);
                return;
            }
            for (; own >= entered; entered += worker.depth) {
                mbarrier_wait(&worker.shared.inputs_empty[ahead.stage], ahead.parity ^ 1);
                ahead.advance(int(worker.p.stages));
            }
        }
        // Goes on to the stage of a K block of the chunk: those before it have all that the warp brings.
        __device__ __forceinline__ void leave(int own) {
            for (; own >= begin + worker.depth; begin += worker.depth) {
                enter(begin);
                if (ENGINE::PROXY) async_proxy_fence();
                mbarrier_arrive(&worker.shared.inputs_full[turn.stage]);
                turn.advance(int(worker.p.stages));
            }
        }

        __device__ __forceinline__ void store(const Values& values, int own, const Places& places,
                                              const Placing& placing, int tile) const {
            const int slots = int(worker.p.slots), halves = int(worker.p.sum.halves);
            // K blocks follow each other around the ring.
            const int ring = int(worker.p.stages) * worker.depth, behind = turn.stage * worker.depth + own - begin;
            // A K block has both halves of its first part, then those of the second.
            Range range;
            Slot* const to = (Slot*)worker.dynamic.inputs +
                             (behind < ring ? behind : behind - ring) * PARTS * halves * slots;
            Slot* const at[2] = {to + places.first, to + places.second};
#pragma unroll
            for (int half = 0; half < DEPTH; ++half) {
                if (half >= halves) break;
#pragma unroll
                for (int pixel = 0; pixel < PIXELS; ++pixel) {
                    Slot parts[PARTS];
                    Channels<Element, Operand>::fill<SWEEP>(parts, values[half], pixel ^ turned, placing, range);
#pragma unroll
                    for (int part = 0; part < PARTS; ++part)
                        at[pixel][(part * halves + half) * slots] = parts[part];
                }
            }
#if SCALED
            if (SWEEP == 0 && (range.reaches_above() | range.reaches_below())) {
                unsigned least = ~0u;
#pragma unroll
                for (int i = 0; i < BLOCK; ++i)
#pragma unroll
                    for (int pixel = 0; pixel < PIXELS; ++pixel) {
                        const unsigned rank = rank_of(pixel_of(values[i / CHUNK][i % CHUNK], pixel));
                        least = rank < least ? rank : least;
                    }
                const unsigned windows = range.windows(least, placing.shift);
                if (windows)
                    atomicOr(&worker.shared.windows[tile % MOST_TILES], windows | bit_of_block(own));
            }
#endif
        }

        // The loads of a round, K block by K block of each of its units.
        __device__ __forceinline__ void load(Values (&values)[ROUND], int (&shifts)[ROUND]) const {
            const Bits* at = nullptr;
            int channels = 0, left = 0, own = unit, shift = 0;
#pragma unroll
            for (int i = 0; i < ROUND; ++i) {
                if (i >= count * deep || own >= units) break;
                if (left == 0) find(own, at, channels, shift), left = deep;
                shifts[i] = shift;
                load(values[i], at, channels);
                if (--left == 0) own += WARPS;
            }
        }
        // Stores a round that begins with unit `own`, of a chunk with so many units and K blocks.
        __device__ __forceinline__ void store(const Values (&values)[ROUND], const int (&shifts)[ROUND], int pass,
                                              int tile, int own, int units, int blocks) {
            int block = 0, left = 0;
            Places places = {0, 0};
#pragma unroll
            for (int i = 0; i < ROUND; ++i) {
                if (i >= count * deep || own >= units) break;
                if (left == 0) {
                    places = places_of(slot_of(own));
                    if (turned) places = {places.second, places.first};
                    block = block_of(own), left = deep;
                    leave(block);
                }
                if (block < blocks) {
                    enter(block);
                    store(values[i], block, places,
                          {shifts[i], window_of_pass(pass), worker.weight_windows == 1}, tile);
                }
                ++block;
                if (--left == 0) own += WARPS;
            }
        }

        // Returns the stage that is the next one. The code of a round stands once: in front of the first one there is
        // nothing to store. Nor is anything loaded; but with no loads in sight where a loop begins, compilers would wait
        // at its end for those of a round.
        __device__ __forceinline__ Turn run() {
            Values values[ROUND] = {};
            int shifts[ROUND] = {};
            if (worker.p.stages < 0) load(values, shifts);
            bool more = true;
            while (more) {
                const int stored = unit, next = stored + count * WARPS, end = units, all = blocks, taken = pass;
                const int tile = begun - 1;
                more = advance();
                // All stores, then all zeros, then all loads: compilers count loads under way together, so
                // that what writes a register of an old load behind a new one would wait for both.
                store(values, shifts, taken, tile, stored, end, all);
#pragma unroll
                for (int i = 0; i < ROUND; ++i) clear(values[i]);
                if (more) load(values, shifts);
                if (next < end) continue;
                leave(all + worker.depth - 1);  // the last stage may have fewer K blocks
                begin = entered = 0;
            }
            return turn;
        }
    };

    // ---- products and outputs, by the teams ----

    // Where the columns lie, from the first output of a tile on.
    __device__ __forceinline__ void describe_columns(const Crew& crew) const {
        for (int i = crew.own; i < TEAMS * PASSED_COLUMNS; i += crew.size) {
            const int team = i / PASSED_COLUMNS, own = i % PASSED_COLUMNS, column = first_column(team) + own;
            int place[4];
            place_of(column / SEGMENT / STACKED * int(p.segment_pitch) + column % SEGMENT, place);
            int64 offset = place[0] * p.out_batch;
            bool used = own < TEAM_COLUMNS && place[0] < int(p.tile[0]);
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                used &= place[a + 1] < int(p.tile[a + 1]);
                offset += place[a + 1] * p.axis[a].taps.phases * p.fold[a].count * p.out_axis[a];
            }
            place[2] = place[2] * STACKED + column / SEGMENT % STACKED;
            shared.column_offset[team][own] = offset;
            shared.column_place[team][own] = Packed::pack(place);
            shared.column_folds[0][team][own] = used ? ~0u >> (MOST_FOLDS - int(p.folds)) : 0;
#if SCALED
            shared.powers[0][team][own] = 1;
#endif
#if POOLS
            shared.present[0][team][own] = used;
#endif
        }
    }
    __device__ static int first_row(const Tile& tile, int team) {
        return tile.row_tile * ROWS + (ROW_TEAMS == 2 ? team : 0) * TEAM_ROWS;
    }
    __device__ static int first_column(int team) { return ROW_TEAMS == 2 ? 0 : team * TEAM_COLUMNS; }
    // Rows of outputs from the tile's first one on.
    __device__ int rows_from(const Tile& tile) const {
        return STACKED == 1 ? tile.size[2] : int(p.taps[1].size_out) - tile.start[2] * STACKED;
    }

    // The folds of a column that exist, where so many outputs are left along z, y and x from its first one on.
    __device__ unsigned folds_within(const int (&left)[3]) const {
        int count[3];
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            const int most = int(p.fold[a].count);
            count[a] = left[a] < most ? left[a] : most;
        }
        unsigned found = 0;
#pragma unroll 1
        for (int z = 0; z < count[0]; ++z)
#pragma unroll 1
            for (int y = 0; y < count[1]; ++y)
                found |= ((1u << count[2]) - 1) << (z * int(p.fold[1].count) + y) * int(p.fold[2].count);
        return found;
    }

#if !POOLS
    // Describes sixteen rows from one on.
    __device__ __forceinline__ Rows rows_of(int row, int folds) const {
        Rows rows;
        int64 first[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int channel = channel_of(row + half * 8, folds), fold = fold_of(row + half * 8, folds);
            first[half] = channel * p.out_row + p.fold_offset[fold];
            rows.count[half] = int(p.rows) - channel;
            rows.fold[half] = 1u << fold;
        }
        rows.offset = first[0];
        rows.apart = first[1] - first[0];
        return rows;
    }
#endif

    // Describes, by a team, what of its rows and columns is there; returns which of the two sets of
    // folds holds.
    __device__ __forceinline__ int describe_outputs(const Tile& tile, int team, bool new_rows) const {
        const int thread = threadIdx.x % TEAM, folds = int(p.folds);
        const int size[4] = {tile.size[0], tile.size[1], rows_from(tile), tile.size[3]};
        bool inside = true;
#pragma unroll
        for (int a = 0; a < 4; ++a) inside &= size[a] >= int(p.tile[a]) * (a == 2 ? STACKED : 1);
        int left[3] = {};  // outputs from the tile's first one on, where there are folds
        if (folds > 1)
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                const int count = int(p.fold[a].count);
                left[a] = count == 1 ? size[a + 1] : int(p.taps[a].size_out) - tile.start[a + 1] * count;
                inside &= left[a] >= int(p.tile[a + 1]) * count;
            }
        inside = uniform(inside);
        if (inside && !new_rows && !(SCALED && p.tile[0] > 1)) return 0;
        named_barrier_wait(FIRST_TEAM + team, TEAM);  // nobody reads the last tile's any more
        if (!inside)
            for (int i = thread; i < PASSED_COLUMNS; i += TEAM) {
                int place[4];
                Packed::unpack(shared.column_place[team][i], place);
                bool exists = true;
#pragma unroll
                for (int a = 0; a < 4; ++a) exists &= place[a] < size[a];
                unsigned found = exists ? shared.column_folds[0][team][i] : 0;
                if (folds > 1 && exists)
                    found &= folds_within({left[0] - place[1] * int(p.fold[0].count),
                                           left[1] - place[2] * int(p.fold[1].count),
                                           left[2] - place[3] * int(p.fold[2].count)});
                shared.column_folds[1][team][i] = found;
#if POOLS
                shared.present[1][team][i] = found != 0;
#endif
            }
        if (new_rows)
            for (int i = thread; i < TEAM_ROWS; i += TEAM) {
                const int channel = channel_of(first_row(tile, team) + i, folds);
                shared.bias[team][i] = channel < p.rows && p.bias.data
                                           ? load_parameter<float>(p.bias, tile.group * p.rows + channel)
                                           : 0.0f;
#if SCALED
                const RowShifts shifts = row_shifts(tile.group)[first_row(tile, team) + i];
                shared.shifts[0][team][i] = shifts.first;
                shared.shifts[1][team][i] = shifts.second;
#endif
            }
#if !POOLS
        if (folds > 1 && new_rows && thread < TEAM_ROWS / 16)
            shared.rows[team][thread] = rows_of(first_row(tile, team) + thread * 16, folds);
#endif
#if SCALED
        // As if all samples had the least shift; the others' sums become smaller by what is left.
        const SampleShifts samples(p, tile);
        if (p.tile[0] > 1)
            for (int i = thread; i < PASSED_COLUMNS; i += TEAM)
                shared.powers[1][team][i] =
                    PowerOfTwo(samples.least - samples.of(shared.column_place[team][i])).first;
#endif
        named_barrier_wait(FIRST_TEAM + team, TEAM);
        return !inside;
    }

    // The products of a tile in a pass, as if the stages that it leaves out were the first ones of a tap.
    __device__ __forceinline__ void multiply(ENGINE& engine, int team, int left_out, Turn& input, Turn& weight) const {
        const int from = left_out * depth, stages = stages_of_tap() - left_out, all = stages * z_taps;
        const int groups = z_taps * ((stages - 1) * groups_of(from) + groups_of(from + (stages - 1) * depth));
        const int slab = ROW_TEAMS == 2 ? team : 0, columns = first_column(team);
        const bool stay = stays();
        int number = 0;
        for (int stage = 0, block = from; stage < all; ++stage) {
            mbarrier_wait(&shared.inputs_full[input.stage], input.parity);
            Operands operands;
            operands.weight_pitch = SLABS * SLAB_BYTES;
            operands.inputs = dynamic.inputs + input.stage * dynamic.input_bytes +
                              columns / SEGMENT / STACKED * int(p.segment_pitch) * SLOT_BYTES;
            operands.half_pitch =
                p.sum.halves == 1 ? distance_of(p.axis[2], int(p.sum.apart) * phase.taps[2].offset_step) : int(p.slots);
            operands.part_pitch = int(p.sum.halves * p.slots);
            operands.segment_pitch = int(p.segment_pitch);
            operands.distance = dynamic.distance;
            operands.team = team;
            operands.groups = groups;
            int left = steps_of(block);
            block = block + depth < blocks ? block + depth : from;
            while (left > 0) {
                operands.steps = left < int(p.group) ? left : int(p.group);
                operands.weights = dynamic.weights + weight.stage * dynamic.weight_bytes + slab * SLAB_BYTES;
                operands.number = number++;
                mbarrier_wait(&shared.weights_full[weight.stage], stay ? 0 : weight.parity);
                engine.multiply(operands);
                operands.distance += operands.steps;
                left -= operands.steps;
                release(left ? nullptr : &shared.inputs_empty[input.stage],
                        stay ? nullptr : &shared.weights_empty[weight.stage]);
                weight.advance(int(p.weight_stages));
            }
            input.advance(int(p.stages));
        }
    }

#if SCALED
    // The windows of the tile that is done, the i-th one. Those of another one are forgotten: nobody reads them
    // any more, and nobody writes them yet, as inputs are at most a ring of stages ahead.
    __device__ unsigned take_windows(int i) const {
        if (threadIdx.x == 0) shared.windows[(i + MOST_TILES / 2) % MOST_TILES] = 0;
        return shared.windows[i % MOST_TILES];
    }
    // Remembers a tile for the next sweep, and whether its sums are kept.
    __device__ void note(int index, unsigned windows, bool kept) const {
        if (shared.wide_count < MOST_WIDE) shared.wide_tiles[shared.wide_count] = index;
        ++shared.wide_count;
        shared.wide_windows |= windows;
        shared.kept |= kept;
    }
    // By how much the sums of a row are shifted in a pass, beside their sample's shift.
    __device__ int shift_of(int team, int row, int pass) const {
        return shared.shifts[weights_of_pass(pass)][team][row] + window_of_pass(pass) * WINDOW;
    }
    // What the sums of a row in a pass are multiplied by, to be like those of the first one. (A row that has nothing in
    // the second window of weights has sums of zero there.)
    __device__ float power_of(int team, int row, int pass) const {
        return PowerOfTwo(shift_of(team, row, 0) - shift_of(team, row, pass)).first;
    }
    // The sums of a thread in memory, as few tiles need them there: those of several passes, and those whose shifts are
    // too far apart or too large for one float. Between passes these are like those of the first one.
    typedef Four Sums[ENGINE::ROWS][ENGINE::COLUMNS];

    // use(sums of this pass, those in memory, powers) for the thread's part of each tile of 16 x 8.
    template <typename Use>
    __device__ __forceinline__ void each_sum(ENGINE& engine, Sums& sums, int team, int pass, Use use) const {
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
            const float powers[2] = {power_of(team, ENGINE::row(r), pass), power_of(team, ENGINE::row(r) + 8, pass)};
#pragma unroll
            for (int c = 0; c < ENGINE::COLUMNS; ++c) {
                Four own;
#pragma unroll
                for (int i = 0; i < 4; ++i) own.of[i] = engine.value(r, c, i);
                use(own, sums[r][c], powers);
#pragma unroll
                for (int i = 0; i < 4; ++i) engine.value(r, c, i) = own.of[i];
            }
        }
    }
    // Those in memory, with what is added to them.
    __device__ static Four sum_of(const Four& sum, const Four& own, const float (&powers)[2]) {
        Four all = load_own(&sum);
#pragma unroll
        for (int i = 0; i < 4; ++i) all.of[i] += own.of[i] * powers[i / 2];
        return all;
    }
    // Behind a pass: adds its sums to those of the passes before.
    __device__ __forceinline__ void put_aside(ENGINE& engine, Sums& sums, int team, int pass) const {
        if (pass > 0)
            each_sum(engine, sums, team, pass, [](const Four& own, Four& sum, const float (&powers)[2]) {
                store_own(&sum, sum_of(sum, own, powers));
            });
        else
            each_sum(engine, sums, team, 0, [](const Four& own, Four& sum, const float (&)[2]) { store_own(&sum, own); });
    }
    // Behind the last one: adds all of those to its own.
    __device__ __forceinline__ void take_back(ENGINE& engine, Sums& sums, int team, int pass) const {
        each_sum(engine, sums, team, pass, [](Four& own, Four& sum, const float (&powers)[2]) {
            own = sum_of(sum, own, powers);
        });
    }
    // By what sums are multiplied to be those of the convolution.
    __device__ __forceinline__ Scale scale_back(ENGINE& engine, Sums& sums, const Tile& tile, int team,
                                                int sweep) const {
        const SampleShifts samples(p, tile);
        bool rare = samples.most - samples.least > 126;
        Scale scale;
        scale.columns = shared.powers[p.tile[0] > 1][team];
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const PowerOfTwo power(-(shift_of(team, ENGINE::row(r) + half * 8, 0) + samples.least));
                scale.rows[r][half] = power.first;
                rare |= power.second != 1;
            }
        if (__any_sync(~0u, rare)) {
            if (KEEPS && sweep == 0 && threadIdx.x % 32 == 0) atomicOr(&shared.lost, 1u);
            put_aside(engine, sums, team, 0);
#pragma unroll 1
            for (int i = 0; i < ENGINE::ROWS * ENGINE::COLUMNS * 4; ++i) {
                const int r = i / 4 / ENGINE::COLUMNS, c = i / 4 % ENGINE::COLUMNS;
                const int row = ENGINE::row(r) + i / 2 % 2 * 8, column = ENGINE::column(c) + i % 2;
                const int shift = shift_of(team, row, 0) + samples.of(shared.column_place[team][column]);
                float& sum = sums[r][c].of[i % 4];
                sum = PowerOfTwo(-shift).times(sum);
            }
            each_sum(engine, sums, team, 0, [](Four& own, Four& sum, const float (&)[2]) { own = load_own(&sum); });
            scale.columns = shared.powers[0][team];
#pragma unroll
            for (int r = 0; r < ENGINE::ROWS; ++r) scale.rows[r][0] = scale.rows[r][1] = 1;
        }
        return scale;
    }
#endif

#if SPANS
    // A thread's sums of the spans so far, of those in turn. With one product for each, tiles are such that registers
    // have room for them.
    static constexpr bool KEPT = PARTS == 1;
    typedef Neighbours Kept[KEPT ? ENGINE::ROWS * ENGINE::COLUMNS * 2 : 1];

    // Adds the sums of a thread to those of the other spans. Whether all are there: the warp has those of the tile then.
    __device__ __forceinline__ bool add_spans(ENGINE& engine, Kept& kept, const Scale& scale, int index, int span,
                                              int team) const {
        constexpr int COUNT = ENGINE::ROWS * ENGINE::COLUMNS * 4 * TEAM;  // floats of a team
        const bool in_turn = !p.apart, last = span == spans() - 1;
        const int place = (p.apart ? index * int(p.phases) + phase_index : int(blockIdx.x)) * TEAMS + team;
        Neighbours* const own = (Neighbours*)(p.partial + int64(place) * COUNT) + threadIdx.x % TEAM;
        if (KEPT && in_turn) {
            each_pair(engine, [&](int i, int r, int half, int c, float&, float&) {
                const Neighbours sums = scale.of(engine, r, half, c), before = kept[i];
                kept[i] = span > 0 ? Neighbours{before.first + sums.first, before.second + sums.second} : sums;
            });
            if (!last) return false;
            each_pair(engine, [&](int i, int, int, int, float& first, float& second) {
                first = kept[i].first, second = kept[i].second;
            });
            return true;
        }
        scale_sums(engine, scale);
        if (in_turn && span > 0)
            each_pair(engine, [&](int i, int, int, int, float& first, float& second) {
                const Neighbours before = own[i * TEAM];
                first = before.first + first, second = before.second + second;
            });
        if (in_turn && last) return true;
        each_pair(engine, [&](int i, int, int, int, float& first, float& second) { own[i * TEAM] = {first, second}; });
        if (in_turn) return false;
        // Who counts the last one sees what all others have written in front of counting.
        __syncwarp();
        unsigned before = 0;
        if (threadIdx.x % 32 == 0)
            before = count_one(&p.arrived[((index - span) / spans() * int(p.phases) + phase_index) * (THREADS / 32) +
                                          threadIdx.x / 32]);
        if (uniform(before) != spans() - 1) return false;
        __syncwarp();
        const int64 next = int(p.phases) * TEAMS * int64(COUNT) / 2;  // from a span to the next
        const Neighbours* const all = own - span * next;
        for (int s = 0; s < spans(); ++s)
            each_pair(engine, [&](int i, int, int, int, float& first, float& second) {
                const Neighbours other = all[s * next + i * TEAM];
                first = s ? first + other.first : other.first, second = s ? second + other.second : other.second;
            });
        return true;
    }
#endif
#if SPANS || POOLS
    // use(number, row, half, column, sum, the one beside it) for a thread's sums.
    template <typename Use>
    __device__ __forceinline__ static void each_pair(ENGINE& engine, Use use) {
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r)
#pragma unroll
            for (int c = 0; c < ENGINE::COLUMNS; ++c)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    use((r * ENGINE::COLUMNS + c) * 2 + half, r, half, c, engine.value(r, c, 2 * half),
                        engine.value(r, c, 2 * half + 1));
    }
    __device__ __forceinline__ static void scale_sums(ENGINE& engine, const Scale& scale) {
        each_pair(engine, [&](int, int r, int half, int c, float& first, float& second) {
            const Neighbours sums = scale.of(engine, r, half, c);
            first = sums.first, second = sums.second;
        });
    }
#endif

    template <typename Epilogue>
    __device__ __forceinline__ void compute(int team) const {
        int row_tile = -1, group = -1;  // of the last tile
        int done = 0;                   // tiles
        ENGINE engine;
#if SPANS
        Kept kept;
#endif
#if SCALED
        Sums sums;
        unsigned windows = 0;  // of the tile's spans, in the first sweep
        bool noted = false;    // whether a tile is done again
#endif
        ENGINE::begin(team);
        Turn input = {0, 0}, weight = {0, 0};
#pragma unroll 1
        for (int sweep = 0; sweep < SWEEPS && begins(sweep); ++sweep)
#pragma unroll 1
            for (int i = 0, tiles = tiles_of(sweep); i < tiles; ++i) {
                const int index = tile_of(sweep, i);
                Tile tile;
                if (!uniform(describe(index, tile))) continue;
                const bool new_rows = uniform((tile.row_tile != row_tile) | (tile.group != group));
                if (new_rows) {
                    Epilogue::put_away(*this, team, row_tile, group);
                    Epilogue::take_rows(*this, team, tile);
                }
                row_tile = tile.row_tile, group = tile.group;
                const int border = describe_outputs(tile, team, new_rows);
                const int64 output = first_output(tile);
                engine.clear();
                int pass = first_pass(sweep, i);  // behind that, or compilers clear again where not all warps pass
#pragma unroll 1
                for (;;) {
                    multiply(engine, team, left_out(pass), input, weight);
                    const int next = next_pass(sweep, pass);
                    if (next < 0) break;
#if SCALED
                    put_aside(engine, sums, team, pass);
#endif
                    engine.clear();
                    pass = next;
                }
                engine.finish();
#if SCALED
                if (sweep == 0) {
                    const unsigned own = uniform(take_windows(done++));
                    windows = tile.span % together() ? windows | own : own;
                    if (windows) {
                        // Not in the loop above, which would take longer.
                        const bool keep = KEEPS && !noted && weight_windows == 1 && together() == 1 && !(windows & ABOVE);
                        if (keep) put_aside(engine, sums, team, 0);
                        noted = true;
                        if (threadIdx.x == 0 && (tile.span + 1) % together() == 0)
                            for (int s = together() - 1; s >= 0; --s) note(index - s, windows, keep);
                        continue;
                    }
                }
                if (pass > 0) take_back(engine, sums, team, pass);
                const Scale scale = scale_back(engine, sums, tile, team, sweep);
#else
                const Scale scale = {};
#endif
#if SPANS
                if (!add_spans(engine, kept, scale, index, tile.span, team)) continue;
#elif POOLS
                scale_sums(engine, scale);  // who pools reads them more than once
#endif
#if SPANS || POOLS
                Epilogue::finish(*this, engine, Unscaled(), tile, output, index, team, border);
#else
                Epilogue::finish(*this, engine, scale, tile, output, index, team, border);
#endif
            }
        ENGINE::end(team);
        Epilogue::put_away(*this, team, row_tile, group);
    }

    // Gives stages back that all lanes of the warp have read.
    __device__ static void release(mbarrier* input, mbarrier* weight) {
        __syncwarp();
        if (threadIdx.x % 32 != 0) return;
        if (input) mbarrier_arrive(input);
        if (weight) mbarrier_arrive(weight);
    }

#if !POOLS
    typedef typename specials_of<Element>::type Special;

    // A thread holds pairs of neighbouring outputs: two columns of a row, or, where x is folded (ACROSS),
    // two folds of a column. They pass through shared memory, so that a warp's stores run along rows.
    // Mostly two of a pair, or four neighbours, lie together and are one store.
    template <bool ACROSS, typename Scaling>
    __device__ __forceinline__ void store(ENGINE& engine, const Scaling& scale, Bits* out, int row0, int index, int team,
                                          int border) const {
        Pair* const pass = shared.pass[threadIdx.x / 32];
        Special specials;
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
            const int row = row0 + ENGINE::first_row(r);
            // Without folds nothing is read, which would be waited for.
            Rows rows = {row * p.out_row, 8 * p.out_row, {int(p.rows) - row, int(p.rows) - row - 8}, {1, 1}};
            if (ACROSS || p.folds > 1) rows = shared.rows[team][row / 16 % (TEAM_ROWS / 16)];
            Bits* const own = out + rows.offset;
            // Of folds and of spans the code of a buffer stands once, as they take long to compile. Which sums go there
            // has to be known when compiling all the same.
#pragma unroll(ACROSS || SPANS ? 1 : 8)
            for (int first = 0; first < ENGINE::COLUMNS; first += PASS_TILES) {
#pragma unroll
                for (int c0 = 0; c0 < ENGINE::COLUMNS; c0 += PASS_TILES)
                    if (c0 == first) fill<ACROSS>(engine, scale, team, r, c0, specials);
                __syncwarp();
                const int column = ENGINE::first_column(first);
                if (!ACROSS && p.output_unit == 4)
                    empty<ACROSS>((const Quad*)pass, own, rows, team, border, column);
                else if (p.output_unit >= 2)
                    empty<ACROSS>(pass, own, rows, team, border, column);
                else
                    empty<ACROSS>((const Bits*)pass, own, rows, team, border, column);
            }
        }
        if (__any_sync(~0u, specials.found())) repair(p, shared, index, team, border);
    }

    // Fills a warp's buffer with the sums of its tiles of row r, from tile c0 on.
    template <bool ACROSS, typename Scaling>
    __device__ __forceinline__ void fill(ENGINE& engine, const Scaling& scale, int team, int r, int c0,
                                         Special& specials) const {
        constexpr int PITCH = ACROSS ? 2 * PASS_PITCH : PASS_PITCH;
        const int lane = threadIdx.x % 32;
        Pair* const pass = shared.pass[threadIdx.x / 32];
        const float bias[2] = {shared.bias[team][ENGINE::row(r)], shared.bias[team][ENGINE::row(r) + 8]};
        // Loaded two tiles ahead, as no load passes the stores to shared memory.
        Neighbours powers[2] = {scale.powers_of(c0), scale.powers_of(c0 + 1)};
        __syncwarp();  // the buffer is empty
#pragma unroll
        for (int c = 0; c < PASS_TILES && c0 + c < ENGINE::COLUMNS; ++c) {
            const Neighbours own = powers[c % 2];
            if (c + 2 < PASS_TILES && c0 + c + 2 < ENGINE::COLUMNS) powers[c % 2] = scale.powers_of(c0 + c + 2);
            const Neighbours upper = scale.of(engine, r, 0, c0 + c, own);
            const Neighbours lower = scale.of(engine, r, 1, c0 + c, own);
            const float value[4] = {upper.first + bias[0], upper.second + bias[0], lower.first + bias[1],
                                    lower.second + bias[1]};
            Pair* const to = pass + lane / 4 * PITCH + (c * 8 + lane % 4 * 2) / (ACROSS ? 1 : 2);
            const Pair pairs[2] = {pair_of(value[0], value[ACROSS ? 2 : 1], Element()),
                                   pair_of(value[ACROSS ? 1 : 2], value[3], Element())};
            to[0] = pairs[0];
            to[ACROSS ? 1 : 8 * PITCH] = pairs[1];
            specials.add(pairs[0]);
            specials.add(pairs[1]);
        }
    }

    // Stores what lies in a warp's buffer, from a column of a tile on, in rows of which the first one begins at `out`.
    // Lanes run along its rows, by single outputs or a few together; each has its columns then, and all rows, or, of
    // folds side by side, those of a fold.
    template <bool ACROSS, typename Unit>
    __device__ __forceinline__ void empty(const Unit* pass, Bits* out, const Rows& rows, int team, int border,
                                          int column0) const {
        constexpr int SIZE = sizeof(Unit) / sizeof(Bits);  // outputs
        constexpr int FOLDS = ACROSS ? 2 : 1;              // of a column, side by side
        constexpr int LENGTH = PASS_PAIRS * 2 * FOLDS / SIZE, PITCH = PASS_PITCH * 2 * FOLDS / SIZE;
        constexpr int LANES = LENGTH < 32 ? LENGTH : 32, STEP = 32 / LANES;
        constexpr int HALVES = ACROSS ? 1 : 2, OWN_ROWS = 8 / STEP;  // eight rows each, of which a lane has so many
        // Units of a lane that are loaded together: of folds a few, as their code stands once.
        constexpr int MOST = LENGTH / LANES < 4 / SIZE ? LENGTH / LANES : 4 / SIZE, TOGETHER = ACROSS ? MOST : 1;
        const int lane = threadIdx.x % 32;
        const int64 pitch = STEP * p.out_row, between = rows.apart - 8 * p.out_row;
        out += lane / LANES * p.out_row;
        // Single outputs are seldom stored, and their code is not repeated, as it takes long to compile.
#pragma unroll(SIZE > 1 || ACROSS ? 8 : 1)
        for (int start = lane % LANES; start < LENGTH; start += TOGETHER * LANES) {
            Bits* to[TOGETHER];
            unsigned folds[TOGETHER];
            bool odd[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const int unit = start + i * LANES, column = column0 + unit * SIZE / FOLDS;
                odd[i] = SIZE < FOLDS && unit % 2;
                folds[i] = shared.column_folds[border][team][column];
                to[i] = out + shared.column_offset[team][column] + (odd[i] ? rows.apart : 0);
            }
#pragma unroll(SIZE > 1 ? 2 : 1)
            for (int half = 0; half < HALVES; ++half) {
                // Some loads together, then their stores, which nothing could pass.
                const Unit* const from = pass + (lane / LANES + half * 8) * PITCH + start;
                Unit value[TOGETHER][OWN_ROWS];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
                    for (int row = 0; row < OWN_ROWS; ++row) value[i][row] = from[row * STEP * PITCH + i * LANES];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const bool second = ACROSS ? odd[i] : half != 0;
                    const int count = folds[i] & (second ? rows.fold[1] : rows.fold[0])
                                          ? (second ? rows.count[1] : rows.count[0]) - lane / LANES
                                          : 0;
#pragma unroll
                    for (int row = 0; row < OWN_ROWS; ++row, to[i] += pitch)
                        store_bits((Unit*)to[i], value[i][row], row * STEP < count);
                    to[i] += between;
                }
            }
        }
    }

#endif

    // Where the first output of the tile lies, in row 0 of its group.
    __device__ __forceinline__ int64 first_output(const Tile& tile) const {
        int64 offset = tile.group * p.out_group + tile.start[0] * p.out_batch;
#pragma unroll
        for (int a = 0; a < 3; ++a)
            offset += (phase.residue[a] + tile.start[a + 1] * int(p.axis[a].taps.phases)) * p.fold[a].count *
                      p.out_axis[a];
        return offset;
    }
};

// The sum of one output, as it is defined. NaN stays NaN, so there it may end. Nothing is unrolled: it is seldom run
// and often compiled.
__device__ inline float plain_sum(const Arguments& p, int64 group, int channel_out, int64 sample,
                                  const int (&o)[3]) {
    Progression<int> taps[3];
    int start[3];  // inputs of the first taps
#pragma unroll 1
    for (int a = 0; a < 3; ++a) {
        const int phases = int(p.taps[a].phases), place = o[a] / phases;
        taps[a] = progression(p.taps[a], o[a] - place * phases);
        start[a] = place * int(p.taps[a].step) + taps[a].offset;
    }
    const Element* input = p.input + sample * p.input_batch + group * p.input_group;
    const Element* weight = p.weight + group * p.weight_group + channel_out * p.weight_row;
    float sum = 0;
#pragma unroll 1
    for (int64 channel = 0; channel < p.sum.channels && sum == sum; ++channel)
#pragma unroll 1
        for (int j = 0; j < taps[0].count * taps[1].count * taps[2].count; ++j) {
            int rest = j;
            int64 x = channel * p.input_channel, w = channel * p.weight_channel;
            bool present = true;
#pragma unroll 1
            for (int a = 2; a >= 0; --a) {
                const int next = rest / taps[a].count, tap = rest - next * taps[a].count;
                const int i = start[a] + tap * int(p.taps[a].offset_step);
                rest = next;
                present &= i >= 0 && i < p.taps[a].size_in;
                x += i * p.input_axis[a];
                w += (taps[a].first + tap * int(p.taps[a].tap_step)) * p.axis[a].weight_stride;
            }
            if (present) sum = fmaf(widen<float>(input[x]), widen<float>(weight[w]), sum);
        }
    return sum;
}

#include "matrix_pool.cuh"

#if POOLS
typedef Pool Epilogue;
#else
// What becomes of the sums of a tile: they are stored.
struct Store {
    __device__ static void describe(const Worker&, const Crew&) {}
    __device__ static void take_rows(const Worker&, int, const Tile&) {}
    __device__ static void put_away(const Worker&, int, int, int) {}
    template <typename Scaling>
    __device__ __forceinline__ static void finish(const Worker& worker, ENGINE& engine, const Scaling& scale,
                                                  const Tile& tile, int64 output, int index, int team, int border) {
        Bits* const out = (Bits*)worker.p.out + output;
        const int row = worker.first_row(tile, team);
        if (worker.p.fold[2].count > 1)
            worker.store<true>(engine, scale, out, row, index, team, border);
        else
            worker.store<false>(engine, scale, out, row, index, team, border);
    }
};
typedef Store Epilogue;

// Computes the outputs of tile `index` that are not finite again, by the warp that stored them. It stands
// apart, as what is in sight of a function that is not inlined cannot lie in registers.
__device__ __noinline__ void repair(const Arguments& p, Shared& shared, int index, int team, int border) {
    constexpr int WIDTH = ENGINE::COLUMNS * 8;
    const int folds = int(p.folds);
    const Worker worker(p, shared);
    Tile tile;
    worker.describe(index, tile);
    Element* const out = p.out + worker.first_output(tile);
    __syncwarp();
#pragma unroll 1  // of few columns some compilers would unroll all
    for (int i = threadIdx.x % 32; i < ENGINE::ROWS * 16 * WIDTH; i += 32) {
        const int row = ENGINE::first_row(i / WIDTH / 16) + i / WIDTH % 16;
        const int column = ENGINE::first_column(0) + i % WIDTH;
        const int channel = channel_of(worker.first_row(tile, team) + row, folds);
        const int fold = fold_of(worker.first_row(tile, team) + row, folds);
        if (channel >= p.rows || !(shared.column_folds[border][team][column] >> fold & 1u)) continue;
        Element* const at =
            out + shared.column_offset[team][column] + channel * p.out_row + p.fold_offset[fold];
        if (!is_special(widen<float>(*at))) continue;
        int place[4];
        Packed::unpack(shared.column_place[team][column], place);
        int o[3];
        const OnAxes split = split_fold(fold, p.fold);
        const int own[3] = {split.z, split.y, split.x};
        for (int a = 0; a < 3; ++a)
            o[a] = (worker.phase.residue[a] + (tile.start[a + 1] + place[a + 1]) * int(p.axis[a].taps.phases)) *
                       int(p.fold[a].count) +
                   own[a];
        const float sum = plain_sum(p, tile.group, channel, tile.start[0] + place[0], o);
        *at = narrow<Element>(sum + shared.bias[team][row]);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) matrix_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    Shared& shared = *(Shared*)memory;
    if (threadIdx.x < MAX_STAGES) {
        mbarrier_init(&shared.inputs_full[threadIdx.x], STAGERS);
        mbarrier_init(&shared.inputs_empty[threadIdx.x], TEAMS * TEAM / 32);
        mbarrier_init(&shared.weights_full[threadIdx.x], ENGINE::PROXY ? 1 : 32);
        mbarrier_init(&shared.weights_empty[threadIdx.x], TEAMS * TEAM / 32);
        if (ENGINE::PROXY) mbarrier_init_fence();
    }
#if SCALED
    if (threadIdx.x < MOST_TILES) shared.windows[threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.wide_count = 0, shared.wide_windows = shared.kept = shared.lost = 0;
#endif
    // By the second warp: the first one has the barriers.
    describe_phase(shared.phase, p.axis, phase_of_block(p), int(threadIdx.x) - 32);
    __syncthreads();
    const Phase& phase = shared.phase;
    const int taps = uniform(phase.taps[1].count * p.sum.along_x(phase.taps[2].count));
    const int z_taps = uniform(taps ? phase.taps[0].count : 0);
    Worker worker(p, shared, memory, taps, z_taps);
    // Who stages inputs begins EARLY, when slots and pairs are described, while the teams describe the rest.
    constexpr bool EARLY = ENGINE::EARLY;
    const bool multiplies = threadIdx.x < TEAMS * TEAM, brings = !multiplies && threadIdx.x < TEAMS * TEAM + 32;
    if (!EARLY || !brings) {
        const Crew others = {int(threadIdx.x) - (EARLY && !multiplies ? 32 : 0), EARLY ? THREADS - 32 : THREADS};
        worker.describe_slots(others);
        worker.describe_pairs(others);
        if (EARLY && !SCALED && multiplies) named_barrier_arrive(INPUTS_DESCRIBED, THREADS - 32);
        if (EARLY && !SCALED && !multiplies) named_barrier_wait(INPUTS_DESCRIBED, THREADS - 32);
    }
    if (!EARLY || multiplies) {
        const Crew teams = {int(threadIdx.x), EARLY ? TEAMS * TEAM : THREADS};
        worker.describe_steps(teams);
        worker.describe_columns(teams);
        Epilogue::describe(worker, teams);
        if (SPANS) wait_for_grids();  // for what counts spans
        if (EARLY && !SCALED) named_barrier_wait(OUTPUTS_DESCRIBED, TEAMS * TEAM);
    }
    if (!EARLY) __syncthreads();
#if SCALED
    wait_for_grids();
    bool two = false;
    for (int group = 0; group < int(p.groups); ++group)
        for (int i = threadIdx.x; i < int(p.row_tiles) * ROWS; i += THREADS)
            two |= worker.row_shifts(group)[i].second != NO_SHIFT;
    worker.weight_windows = uniform(__syncthreads_or(two)) ? 2 : 1;
#endif
    const int team = uniform(threadIdx.x / TEAM);
    if (team >= TEAMS) {
        ENGINE::give();
        if (brings)
            worker.bring_weights();
        else {
            const Turn turn = p.input_pairs ? Worker::Stager<2>(worker).run() : Worker::Stager<1>(worker).run();
            if (SWEEPS > 1 && worker.begins(1)) Worker::Stager<1, SWEEPS - 1>(worker, turn).run();
        }
    } else {
        ENGINE::take();
        worker.compute<Epilogue>(team);
    }
}
