// Convolution on matrix units, in both directions, for float32 (by three tf32 products or by one),
// float16 and bfloat16.
//
//     out[n, g, row, o] = bias[g, row]
//                       + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// A block computes a tile of ROWS output channels by COLUMNS outputs. matrix_tile.cuh says how outputs,
// inputs and taps are laid out, pack_weights.cu how the weights lie that it has packed before.
//
//      inputs of a stage, as slots of 16 bytes      weights of a group of steps
//      (4 channels of float, 8 of 16 bits)          [step][slab][part][half of K][64 rows][16 bytes]
//
//                 slot 0 1 2 3 ...                         one wgmma: 64 rows x SEGMENT columns
//      half 0 of K   # # # # # # # # # # # #               over the two halves of K
//      half 1 of K   # # # # # # # # # # # #
//                      \___________/                       the columns of a tap start at its
//                       columns of tap 1                   distance: a shifted start address
//
// Warps have parts of their own. The first two teams of four warps multiply, each its slab of 64 rows or
// its half of the columns. Of the warps behind them one brings weights, the others stage inputs (read
// along rows of the image as NCHW lies, transposed to slots in registers). Rings of stages with an mbarrier for
// "full" and one for "empty" each lie between them:
//
//      inputs   ring of `stages`: one K block or a few of channels with the tile's halo, one tap of z
//      weights  ring of `weight_stages`: a group of up to `group` steps
//
// The order of a sum is that of `Steps` in matrix_tile.cuh, whatever the tile, the grid or the batch.
//
// Infinities and NaN: a slot that holds an absent input is zero, and zero times an infinite weight is
// NaN; an infinite input splits into inf and NaN; a number near the largest rounds to infinity. None of
// that is lost in a sum: what should be finite, or infinite, is then infinite or NaN. So an output that
// is not finite is computed again by plain arithmetic from the arrays themselves, and no other is.
//
// Macros, with those of matrix_tile.cuh and matrix_engine.cuh:
//     ENGINE       WgmmaEngine or MmaEngine
//     SLABS        slabs of 64 rows of a block: 1 (two teams share them) or 2 (one for each team)
//
// Launch: THREADS threads, any multiple of `phases` blocks, `shared` bytes of shared memory (_matrix.py).
// A block stays in phase blockIdx % phases and takes every so many-th of its tiles. Tiles run over rows
// fastest, then x, y, planes (z, then samples), then groups.

#include "matrix_engine.cuh"

constexpr int TEAMS = 2;
constexpr int THREADS = (TEAMS + ENGINE::STAGING_TEAMS) * TEAM;
constexpr int ROWS = SLABS * SLAB_ROWS;
constexpr int COLUMN_TEAMS = TEAMS / SLABS;
constexpr int COLUMNS = COLUMN_TEAMS * TEAM_COLUMNS;
constexpr int MAX_STAGES = 8;
constexpr int STAGERS = ENGINE::STAGING_TEAMS * TEAM - 32;  // threads that stage inputs
constexpr int BATCH = CHUNK == 4 ? 5 : 3;   // pixels of which one of them has a K block under way
constexpr int64 NOWHERE = -0x7fffffffffffffffll - 1;
// Outputs pass through a buffer of each warp, so that stores run along rows: 16 rows, a few tiles wide,
// or 8 rows of pairs of folds. The padding spreads the lanes' rows over the banks.
constexpr int PASS_TILES = ENGINE::COLUMNS < 8 ? ENGINE::COLUMNS : 8;
constexpr int PASS_PAIRS = PASS_TILES * 4;  // of a row
constexpr int PASS_PITCH = PASS_PAIRS + 4;
constexpr int PASSES = 16 * PASS_PAIRS / 32;          // pairs of a lane
constexpr int BURST = PASSES < 4 ? PASSES : 4;        // of which it stores so many together
enum Barriers { STAGING = 1, FIRST_TEAM };  // named barriers, one for the stagers and one for each team

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
    Fold fold;
    Steps sum;
    int64 phases, steps;  // steps of the phase that has most
    int64 row_tiles, tiles[4];                  // along samples, z, y and x
    int64 tile[4];                              // outputs of a tile along them
    int64 plane_pitch, row_pitch, segment_pitch;  // in slots
    int64 slots, lattice_slots;                 // of a half of K in a stage; of one lattice
    int64 stages, weight_stages, group;
    int64 plane_reciprocal, row_reciprocal, depth_reciprocal;  // of plane_pitch, row_pitch, tile[1]
    int64 groups_reciprocal;  // of the groups of 32 slots in a half of K
    int64 pairs;  // whether neighbouring outputs exist together and lie together, aligned to two elements
};

// Two neighbouring outputs.
struct __align__(2 * sizeof(Element)) Pair {
    Bits first, second;
};

struct Shared {
    mbarrier inputs_full[MAX_STAGES], inputs_empty[MAX_STAGES];
    mbarrier weights_full[MAX_STAGES], weights_empty[MAX_STAGES];
    int step[6];  // digits of the distance between a block's tiles
    // Of each team's columns: where their first output lies, and how many folds of it exist (0: none).
    int64 column_offset[TEAMS][TEAM_COLUMNS];
    int column_folds[TEAMS][TEAM_COLUMNS];
    // Of each team's rows: where they lie, which fold they are (as many as there are: none), their bias.
    int64 row_offset[TEAMS][SLAB_ROWS];
    int row_fold[TEAMS][SLAB_ROWS];
    float bias[TEAMS][SLAB_ROWS];
    Pair pass[TEAMS * TEAM / 32][16 * PASS_PITCH];
};

// The launch's shared memory, in this order.
struct Dynamic {
    unsigned char *weights, *inputs;  // rings
    int weight_bytes, input_bytes;    // of a stage
    int64* offset;                    // of each slot, the input that it holds, or NOWHERE
    int* z;                           // of each slot, the coordinate at the first tap of z
    int* distance;                    // of each step of a stage, in slots

    __device__ Dynamic(const Arguments& p, unsigned char* memory) {
        weight_bytes = int(p.group) * SLABS * SLAB_BYTES;
        input_bytes = int(p.sum.depth * p.slots) * PARTS * DEPTH * SLOT_BYTES;
        weights = memory;
        inputs = weights + int(p.weight_stages) * weight_bytes;
        offset = (int64*)(inputs + int(p.stages) * input_bytes);
        z = (int*)(offset + p.slots);
        distance = z + p.slots;
    }
};

// A stage of a ring, and the parity of its current turn.
struct Turn {
    int stage, parity;
    __device__ void advance(int stages) {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// A tile: its number, and that number's digits, rows fastest, then x, y, z, samples and groups.
struct Tile {
    int index;
    int digits[6];
    int start[4];  // of the outputs of the phase, along samples, z, y and x
    int size[4];   // of these that exist from there on
};

__device__ __noinline__ void repair(const Arguments& p, Shared& shared, int index, int team);

struct Worker {
    const Arguments& p;
    Shared& shared;
    const Dynamic dynamic;
    const int phase_index;
    const Phase phase;
    const int taps, z_taps;  // of y and x; of z, 0 where a phase has no taps
    const int blocks, depth;
    const int first_tile, tile_step, tile_count;

    __device__ Worker(const Arguments& p, Shared& shared, unsigned char* memory, int phase_index,
                      const Phase& phase, int taps, int z_taps)
        : p(p),
          shared(shared),
          dynamic(p, memory),
          phase_index(phase_index),
          phase(phase),
          taps(taps),
          z_taps(z_taps),
          blocks(int(p.sum.blocks)),
          depth(int(p.sum.depth)),
          first_tile(blockIdx.x / int(p.phases)),
          tile_step(gridDim.x / int(p.phases)),
          tile_count(int(p.row_tiles * p.tiles[0] * p.tiles[1] * p.tiles[2] * p.tiles[3] * p.groups)) {}

    __device__ int radix(int digit) const {
        return int(digit == 0 ? p.row_tiles : digit == 5 ? p.groups : p.tiles[4 - digit]);
    }

    __device__ Tile tile_of(int index) const {
        Tile tile;
        tile.index = index;
#pragma unroll
        for (int d = 0; d < 6; ++d) {
            tile.digits[d] = index % radix(d);
            index /= radix(d);
        }
        return tile;
    }

    // The block's next tile: digits are added with their carries.
    __device__ void advance(Tile& tile) const {
        tile.index += tile_step;
        int carry = 0;
#pragma unroll
        for (int d = 0; d < 6; ++d) {
            tile.digits[d] += shared.step[d] + carry;
            carry = tile.digits[d] >= radix(d);
            tile.digits[d] -= carry ? radix(d) : 0;
        }
    }

    // Describes where the tile lies. Whether it has outputs: phases differ in their numbers.
    __device__ bool describe(Tile& tile) const {
        bool exists = true;
#pragma unroll
        for (int a = 0; a < 4; ++a) {
            tile.start[a] = tile.digits[4 - a] * int(p.tile[a]);
            tile.size[a] = (a ? phase.positions[a ? a - 1 : 0] : int(p.batch)) - tile.start[a];
            exists &= tile.size[a] > 0;
        }
        return exists;
    }

    // The place in a tile that belongs to a slot: along samples, z, y and x. Slots behind a row or a
    // plane are the next one's.
    __device__ void place_of(int slot, int (&place)[4]) const {
        const int plane = quotient(slot, p.plane_reciprocal);
        slot -= plane * int(p.plane_pitch);
        place[0] = quotient(plane, p.depth_reciprocal);
        place[1] = plane - place[0] * int(p.tile[1]);
        place[2] = quotient(slot, p.row_reciprocal);
        place[3] = slot - place[2] * int(p.row_pitch);
    }

    __device__ int stages() const { return (blocks + depth - 1) / depth * z_taps; }
    // K blocks and steps of the stage that starts with K block `block`.
    __device__ int depth_of(int block) const { return blocks - block < depth ? blocks - block : depth; }
    __device__ int steps_of(int block) const { return depth_of(block) * taps; }

    // ---- distances of the steps, by all threads ----

    __device__ void describe_steps() const {
        const Taps y = phase.taps[1], x = phase.taps[2];
        for (int step = threadIdx.x; step < depth * taps; step += THREADS) {
            const int block = step / taps, tap = step % taps;
            const int ty = tap / x.count, tx = tap % x.count;
            const int ly = int(p.axis[1].lattices), lx = int(p.axis[2].lattices);
            const int lattice = ty % ly * (x.count < lx ? x.count : lx) + tx % lx;
            dynamic.distance[step] = block * PARTS * DEPTH * int(p.slots) + lattice * int(p.lattice_slots) +
                                     ty / ly * int(p.axis[1].advance * p.row_pitch) +
                                     tx / lx * int(p.axis[2].advance);
        }
    }

    // ---- weights, by one warp ----

    __device__ void bring_weights() const {
        const int64 step_bytes = SLABS * SLAB_BYTES;
        const int lane = threadIdx.x % 32;
        Turn turn = {0, 0};
        int filled = -1;  // a stage whose copies are under way
        for (Tile tile = tile_of(first_tile); tile.index < tile_count; advance(tile)) {
            if (!describe(tile)) continue;
            const unsigned char* from =
                p.packed + ((tile.digits[5] * p.phases + phase_index) * p.row_tiles + tile.digits[0]) * p.steps * step_bytes;
            for (int stage = 0; stage < stages(); ++stage) {
                int left = steps_of(stage / z_taps * depth);
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
            }
        }
        if (filled >= 0) {
            copy_async_wait<0>();
            mbarrier_arrive(&shared.weights_full[filled]);
        }
    }

    // ---- inputs, by three warps ----

    // Which input each slot of the tile holds.
    __device__ void describe_slots(const Tile& tile, int thread) const {
        const Taps y = phase.taps[1], x = phase.taps[2];
        const int lattices_x = x.count < p.axis[2].lattices ? x.count : int(p.axis[2].lattices);
        const int lattice_slots = int(p.lattice_slots);
        named_barrier_wait(STAGING, STAGERS);  // nobody reads the last tile's any more
        for (int slot = thread; slot < int(p.slots); slot += STAGERS) {
            int lattice = 0, lattice_y = 0;
            if (lattice_slots < int(p.slots)) {  // the same for all
                lattice = slot / lattice_slots;
                lattice_y = lattice / (lattices_x > 0 ? lattices_x : 1);
            }
            const int lattice_x = lattice - lattice_y * lattices_x;
            int place[4];
            place_of(slot - lattice * lattice_slots, place);
            // Beyond the last row of a plane lies the first row of the next: it is absent there too.
            const int in_z = (tile.start[1] + place[1]) * int(p.axis[0].taps.step) + phase.taps[0].offset;
            const int in_y = (tile.start[2] + place[2]) * int(p.axis[1].taps.step) + y.offset + lattice_y * y.offset_step;
            const int in_x = (tile.start[3] + place[3]) * int(p.axis[2].taps.step) + x.offset + lattice_x * x.offset_step;
            // As unsigned numbers, negative coordinates are too large as well.
            const bool present = (place[0] < int(p.tile[0])) & (place[0] < tile.size[0]) &
                                 (lattice_y < y.count) & (unsigned(in_y) < unsigned(p.axis[1].taps.size_in)) &
                                 (unsigned(in_x) < unsigned(p.axis[2].taps.size_in));
            dynamic.offset[slot] = present ? (tile.start[0] + place[0]) * p.input_batch +
                                                 in_z * p.input_axis[0] + in_y * p.input_axis[1] +
                                                 in_x * p.input_axis[2]
                                           : NOWHERE;
            dynamic.z[slot] = in_z;
        }
        named_barrier_wait(STAGING, STAGERS);
    }

    __device__ void stage_inputs() const {
        const int thread = threadIdx.x - TEAMS * TEAM - 32, warp = uniform(thread / 32), slots = int(p.slots);
        Turn turn = {0, 0};
        for (Tile tile = tile_of(first_tile); tile.index < tile_count; advance(tile)) {
            if (!describe(tile)) continue;
            describe_slots(tile, thread);
            const Element* const input = p.input + tile.digits[5] * p.input_group;
            for (int block = 0; block < (z_taps ? blocks : 0); block += depth)
                for (int tap = 0; tap < z_taps; ++tap) {
                    stage_block(input, block, tap, warp, slots, turn);
                    turn.advance(int(p.stages));
                }
        }
    }

    // One stage. The slots of each K block are taken in groups of 32, one by a warp; a thread has one pixel.
    // There are no branches, so that the loads of a batch are under way together.
    __device__ void stage_block(const Element* input, int block, int tap, int warp, int slots,
                                const Turn& turn) const {
        const int lane = threadIdx.x % 32, groups = slots / 32, units = depth_of(block) * groups;
        const int shift = tap * phase.taps[0].offset_step, size_z = int(p.axis[0].taps.size_in);
        const int channels = int(p.sum.channels) - block * BLOCK;  // from here on
        const int64 pitch = p.input_channel;
        const Bits* const start = (const Bits*)input + shift * p.input_axis[0] + block * BLOCK * pitch;
        Slot* const stage = (Slot*)(dynamic.inputs + turn.stage * dynamic.input_bytes);
        bool waited = false;
        for (int first = warp; first < units; first += STAGERS / 32 * BATCH) {
            Bits values[BATCH][DEPTH][CHUNK];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const int unit = first + b * (STAGERS / 32), own = quotient(unit, p.groups_reciprocal);
                const int slot = (unit - own * groups) * 32 + lane;
                const int64 offset = dynamic.offset[slot];
                const bool present = (offset != NOWHERE) & (unsigned(dynamic.z[slot] + shift) < unsigned(size_z)) &
                                     (unit < units);
                const int left = channels - own * BLOCK;
                const Bits* from = start + own * BLOCK * pitch + (present ? offset : 0);
#pragma unroll
                for (int i = 0; i < BLOCK; ++i, from += pitch)
                    values[b][i / CHUNK][i % CHUNK] = load_bits(from, present & (i < left));
            }
            if (!waited) mbarrier_wait(&shared.inputs_empty[turn.stage], turn.parity ^ 1);
            waited = true;
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const int unit = first + b * (STAGERS / 32), own = quotient(unit, p.groups_reciprocal);
                // A K block has both halves of its first part, then those of the second.
                Slot* const to = stage + own * (PARTS * DEPTH - 1) * slots + unit * 32 + lane;
#pragma unroll
                for (int half = 0; half < DEPTH; ++half) {
                    Slot parts[PARTS];
                    Channels<CHUNK>::fill(parts, values[b][half]);
                    if (unit < units)
#pragma unroll
                        for (int part = 0; part < PARTS; ++part) to[(part * DEPTH + half) * slots] = parts[part];
                }
            }
        }
        if (!waited) mbarrier_wait(&shared.inputs_empty[turn.stage], turn.parity ^ 1);
        if (ENGINE::PROXY) async_proxy_fence();
        mbarrier_arrive(&shared.inputs_full[turn.stage]);
    }

    // ---- products and outputs, by two teams ----

    __device__ void describe_outputs(const Tile& tile, int team, int slab, int columns) const {
        const int thread = threadIdx.x % TEAM, folds = int(p.fold.count);
        named_barrier_wait(FIRST_TEAM + team, TEAM);  // nobody reads the last tile's any more
        for (int i = thread; i < TEAM_COLUMNS; i += TEAM) {
            const int column = columns + i;
            int place[4];
            place_of(column / SEGMENT * int(p.segment_pitch) + column % SEGMENT, place);
            bool exists = true;
            int o[3];
#pragma unroll
            for (int a = 0; a < 4; ++a) exists &= (place[a] < int(p.tile[a])) & (place[a] < tile.size[a]);
#pragma unroll
            for (int a = 0; a < 3; ++a)
                o[a] = phase.residue[a] + (tile.start[a + 1] + place[a + 1]) * int(p.axis[a].taps.phases);
            o[2] *= folds;
            const int left = int(p.taps[2].size_out) - o[2];
            shared.column_offset[team][i] = (tile.start[0] + place[0]) * p.out_batch + o[0] * p.out_axis[0] +
                                            o[1] * p.out_axis[1] + o[2] * p.out_axis[2];
            shared.column_folds[team][i] = exists ? (left < folds ? left : folds) : 0;
        }
        for (int i = thread; i < SLAB_ROWS; i += TEAM) {
            const int row = tile.digits[0] * ROWS + slab * SLAB_ROWS + i;
            const int channel = channel_of(row, folds), fold = fold_of(row, folds);
            const bool exists = channel < p.rows;
            shared.row_offset[team][i] = channel * p.out_row + fold * p.out_axis[2];
            shared.row_fold[team][i] = exists ? fold : folds;
            shared.bias[team][i] = exists && p.bias.data
                                       ? load_parameter<float>(p.bias, tile.digits[5] * p.rows + channel)
                                       : 0.0f;
        }
        named_barrier_wait(FIRST_TEAM + team, TEAM);
    }

    __device__ void compute(int team) const {
        const int slab = SLABS == 2 ? team : 0, columns = SLABS == 2 ? 0 : team * TEAM_COLUMNS;
        ENGINE engine;
        Turn input = {0, 0}, weight = {0, 0};
        for (Tile tile = tile_of(first_tile); uniform(tile.index < tile_count); advance(tile)) {
            if (!uniform(describe(tile))) continue;
            describe_outputs(tile, team, slab, columns);
            engine.clear();
            mbarrier *input_read = nullptr, *weight_read = nullptr;  // of stages in products under way
            for (int stage = 0; stage < stages(); ++stage) {
                mbarrier_wait(&shared.inputs_full[input.stage], input.parity);
                Operands operands;
                operands.weight_pitch = SLABS * SLAB_BYTES;
                operands.inputs = dynamic.inputs + input.stage * dynamic.input_bytes +
                                  columns / SEGMENT * int(p.segment_pitch) * SLOT_BYTES;
                operands.slots = int(p.slots);
                operands.segment_pitch = int(p.segment_pitch);
                operands.distance = dynamic.distance;
                int left = steps_of(stage / z_taps * depth);
                while (left > 0) {
                    operands.steps = left < int(p.group) ? left : int(p.group);
                    operands.weights = dynamic.weights + weight.stage * dynamic.weight_bytes + slab * SLAB_BYTES;
                    mbarrier_wait(&shared.weights_full[weight.stage], weight.parity);
                    engine.multiply(operands);
                    operands.distance += operands.steps;
                    left -= operands.steps;
                    if (ENGINE::UNDER_WAY) release(input_read, weight_read);
                    input_read = left ? nullptr : &shared.inputs_empty[input.stage];
                    weight_read = &shared.weights_empty[weight.stage];
                    if (!ENGINE::UNDER_WAY) release(input_read, weight_read);
                    weight.advance(int(p.weight_stages));
                }
                input.advance(int(p.stages));
            }
            engine.finish();
            if (ENGINE::UNDER_WAY) release(input_read, weight_read);
            if (p.fold.count > 1)
                store<true>(engine, tile, team);
            else
                store<false>(engine, tile, team);
        }
    }

    // Gives stages back that all lanes of the warp have read.
    __device__ static void release(mbarrier* input, mbarrier* weight) {
        __syncwarp();
        if (threadIdx.x % 32 != 0) return;
        if (input) mbarrier_arrive(input);
        if (weight) mbarrier_arrive(weight);
    }

    // A thread holds pairs of neighbouring outputs: two columns of a row, or, where x is folded (ACROSS),
    // two folds of a column. They pass through shared memory, so that a warp's stores run along rows.
    // Mostly the two of a pair lie together and are one store.
    template <bool ACROSS>
    __device__ void store(const ENGINE& engine, const Tile& tile, int team) const {
        constexpr int LENGTH = ACROSS ? 2 * PASS_PAIRS : PASS_PAIRS;  // pairs of a row of the buffer
        constexpr int PITCH = ACROSS ? 2 * PASS_PITCH : PASS_PITCH;
        const int lane = threadIdx.x % 32;
        Pair* const pass = shared.pass[threadIdx.x / 32];
        Bits* const out = (Bits*)p.out + tile.digits[5] * p.out_group;
        float special = 0;
#pragma unroll
        for (int r = 0; r < ENGINE::ROWS; ++r) {
            const float bias[2] = {shared.bias[team][ENGINE::row(r)], shared.bias[team][ENGINE::row(r) + 8]};
#pragma unroll
            for (int c0 = 0; c0 < ENGINE::COLUMNS; c0 += PASS_TILES) {
                __syncwarp();
#pragma unroll
                for (int c = 0; c < PASS_TILES; ++c) {
                    Bits bits[2][2];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const float value = engine.value(r, c0 + c, i) + bias[i / 2];
                        special = fmaf(value, 0.0f, special);  // NaN from then on
                        bits[i / 2][i % 2] = bits_of(value, Element());
                    }
                    Pair* const to = pass + lane / 4 * PITCH;
                    const int column = c * 8 + lane % 4 * 2;
                    if (ACROSS) {
                        to[column] = {bits[0][0], bits[1][0]};
                        to[column + 1] = {bits[0][1], bits[1][1]};
                    } else {
                        to[column / 2] = {bits[0][0], bits[0][1]};
                        to[column / 2 + 8 * PITCH] = {bits[1][0], bits[1][1]};
                    }
                }
                __syncwarp();
                const int row0 = ENGINE::first_row(r), column0 = ENGINE::first_column(c0);
                if (p.pairs) {
                    // A few loads at a time, then their stores, which nothing could pass.
#pragma unroll
                    for (int start = 0; start < PASSES; start += BURST) {
                        Pair value[BURST];
                        Bits* to[BURST];
                        bool present[BURST];
#pragma unroll
                        for (int b = 0; b < BURST; ++b) {
                            const int i = (start + b) * 32 + lane, pair = i % LENGTH;
                            const int row = row0 + i / LENGTH, column = column0 + (ACROSS ? pair : 2 * pair);
                            value[b] = pass[i / LENGTH * PITCH + pair];
                            to[b] = out + shared.row_offset[team][row] + shared.column_offset[team][column];
                            present[b] = shared.row_fold[team][row] < shared.column_folds[team][column];
                        }
#pragma unroll
                        for (int b = 0; b < BURST; ++b)
                            if (present[b]) *(Pair*)to[b] = value[b];
                    }
                } else {
                    for (int i = lane; i < 32 * PASSES; i += 32) {
                        const int pair = i % LENGTH;
                        const Pair value = pass[i / LENGTH * PITCH + pair];
                        store_one(row0 + i / LENGTH, column0 + (ACROSS ? pair : 2 * pair), out, value.first, team);
                        store_one(row0 + i / LENGTH + (ACROSS ? 8 : 0), column0 + (ACROSS ? pair : 2 * pair + 1), out,
                                  value.second, team);
                    }
                }
            }
        }
        if (special != 0) repair(p, shared, tile.index, team);
    }

    __device__ void store_one(int row, int column, Bits* out, Bits bits, int team) const {
        if (shared.row_fold[team][row] < shared.column_folds[team][column])
            out[shared.row_offset[team][row] + shared.column_offset[team][column]] = bits;
    }
};

// The sum of one output, as it is defined. NaN stays NaN, so there it may end.
__device__ inline float plain_sum(const Arguments& p, int64 group, int channel_out, int64 sample,
                                  const int64 (&o)[3]) {
    Progression taps[3];
    int64 start[3];  // inputs of the first taps
    for (int a = 0; a < 3; ++a) {
        taps[a] = progression(p.taps[a], o[a] % p.taps[a].phases);
        start[a] = o[a] / p.taps[a].phases * p.taps[a].step + taps[a].offset;
    }
    const Element* input = p.input + sample * p.input_batch + group * p.input_group;
    const Element* weight = p.weight + group * p.weight_group + channel_out * p.weight_row;
    float sum = 0;
    for (int64 channel = 0; channel < p.sum.channels && sum == sum; ++channel)
        for (int64 j = 0; j < taps[0].count * taps[1].count * taps[2].count; ++j) {
            int64 rest = j, x = channel * p.input_channel, w = channel * p.weight_channel;
            bool present = true;
            for (int a = 2; a >= 0; --a) {
                const int64 tap = rest % taps[a].count, i = start[a] + tap * p.taps[a].offset_step;
                rest /= taps[a].count;
                present &= i >= 0 && i < p.taps[a].size_in;
                x += i * p.input_axis[a];
                w += (taps[a].first + tap * p.taps[a].tap_step) * p.axis[a].weight_stride;
            }
            if (present) sum = fmaf(widen<float>(input[x]), widen<float>(weight[w]), sum);
        }
    return sum;
}

// Computes a thread's outputs of tile `index` that are not finite again. It stands apart, as what is in
// sight of a function that is not inlined cannot lie in registers.
__device__ __noinline__ void repair(const Arguments& p, Shared& shared, int index, int team) {
    const int phase_index = blockIdx.x % int(p.phases);
    const Worker worker(p, shared, nullptr, phase_index, phase_of(p.axis, phase_index), 0, 0);
    Tile tile = worker.tile_of(index);
    worker.describe(tile);
    const int slab = SLABS == 2 ? team : 0, columns = SLABS == 2 ? 0 : team * TEAM_COLUMNS;
    Element* const out = p.out + tile.digits[5] * p.out_group;
    for (int i = 0; i < ENGINE::ROWS * ENGINE::COLUMNS * 4; ++i) {
        const int row = ENGINE::row(i / 4 / ENGINE::COLUMNS) + i % 4 / 2 * 8;
        const int own = ENGINE::column(i / 4 % ENGINE::COLUMNS) + i % 2, column = columns + own;
        const int fold = shared.row_fold[team][row];
        if (fold >= shared.column_folds[team][own]) continue;
        Element* const at = out + shared.row_offset[team][row] + shared.column_offset[team][own];
        if (!is_special(widen<float>(*at))) continue;
        int place[4];
        worker.place_of(column / SEGMENT * int(p.segment_pitch) + column % SEGMENT, place);
        int64 o[3];
        for (int a = 0; a < 3; ++a)
            o[a] = worker.phase.residue[a] + (tile.start[a + 1] + place[a + 1]) * p.axis[a].taps.phases;
        o[2] = o[2] * p.fold.count + fold;
        const int channel =
            channel_of(tile.digits[0] * ROWS + slab * SLAB_ROWS + row, int(p.fold.count));
        const float sum = plain_sum(p, tile.digits[5], channel, tile.start[0] + place[0], o);
        *at = narrow<Element>(sum + shared.bias[team][row]);
    }
}


extern "C" __global__ void __launch_bounds__(THREADS, 1) matrix_conv(const __grid_constant__ Arguments p) {
    __shared__ Shared shared;
    DYNAMIC_SHARED(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < int(p.stages); ++i) {
            mbarrier_init(&shared.inputs_full[i], STAGERS);
            mbarrier_init(&shared.inputs_empty[i], TEAMS * TEAM / 32);
        }
        for (int i = 0; i < int(p.weight_stages); ++i) {
            mbarrier_init(&shared.weights_full[i], ENGINE::PROXY ? 1 : 32);
            mbarrier_init(&shared.weights_empty[i], TEAMS * TEAM / 32);
        }
        if (ENGINE::PROXY) mbarrier_init_fence();
    }
    const int phase_index = blockIdx.x % int(p.phases);
    const Phase phase = phase_of(p.axis, phase_index);
    const int taps = uniform(phase.taps[1].count * phase.taps[2].count);
    const int z_taps = uniform(taps ? phase.taps[0].count : 0);
    const Worker worker(p, shared, memory, phase_index, phase, taps, z_taps);
    worker.describe_steps();
    if (threadIdx.x == 0) {
        const Tile step = worker.tile_of(worker.tile_step);
#pragma unroll
        for (int d = 0; d < 6; ++d) shared.step[d] = step.digits[d];
    }
    __syncthreads();
    const int team = uniform(threadIdx.x / TEAM);
    if (team >= TEAMS) {
        ENGINE::give();
        if (threadIdx.x < TEAMS * TEAM + 32)
            worker.bring_weights();
        else
            worker.stage_inputs();
    } else {
        ENGINE::take();
        worker.compute(team);
    }
}
