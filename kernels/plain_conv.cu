// The FMA kernel: convolutions by ordinary fused multiply-adds, in both directions, on one to three axes. It is for
// groups of few channels, and for transposed convolutions whose strides leave few products for each output.
//
//     out[n, g, row, o] = bias[g, row]
//                       + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// where i(o, tap) follows from the tap table (taps.cuh), and taps whose input lies outside of the array
// contribute nothing, whatever the weight. Tensor Cores would multiply mostly zeros here, and filling their
// operands would take longer than all multiply-adds.
//
// A tile is a box of positions, in one phase of z and y and all phases of x, for some row tiles (`slab` in names)
// of ROWS output channels. The inputs that its taps reach are staged in shared memory, with zeros where the array
// has nothing.
// A thread computes all rows of a row tile at POSITIONS positions of a line, one phase of x after the other:
//
//     inputs of a channel                       sums of a thread, at a step
//     +--------------------------------+                   positions, COLUMNS apart
//     | halo                           |                      x0   x1   x2   x3
//     |   +------------------------+   |                    +----+----+----+----+
//     |   | 0 1 2 ..  0 1 2 ..     |   |  lines      w[0]   | ## | ## | ## | ## |
//     |   +------------------------+   |             ...    | ## | ## | ## | ## |   ROWS
//     |   | columns   columns      |   |             w[7]   | ## | ## | ## | ## |
//     |   +------------------------+   |                    +----+----+----+----+
//     +--------------------------------+
//
// A K step is a tap of a channel: ROWS weights that neighbouring threads share, and an input for each position.
// The address of the input is the address of the thread's position plus an offset, which a table in shared
// memory has for each step. With a stride along x, inputs a stride apart are staged as neighbours: each residue
// of x modulo the stride has a plane of its own.
//
// A sum runs over channels, then z, y and x of the taps, in one thread. It has few products, so rounding errors
// stay small without partial sums.
//
// In the epilogue the phases of x of a line are interleaved in shared memory, at the same distance from a multiple of
// 16 bytes as the line has in the array. So the whole 16-byte chunks of the line are stored unchanged, by one bulk
// store on GPUs that have bulk copies:
//
//     in shared memory   | . . a b | c d e f | g h i j | k . . . |
//     stored             |     1 1 |    bulk store     | 1       |   chunks of four outputs
//
// A line has been put there by threads of one warp. The same warp stores it, so other warps need not wait. Phases of z
// and y without taps have no blocks of their own, because such blocks would hold shared memory for nothing. The blocks
// of the other phases store the bias in their outputs, some of them with each tile.
//
// Zeros that stand in for absent inputs would become NaN with an infinite or NaN weight, so a row tile with such a
// weight is summed under a mask.
//
// `pack_plain` runs first. It packs the weights in the order of K steps, with the ROWS weights of a step side by side,
// and finds the row tiles that have an infinite or NaN weight:
//
//     packed[group][row tile][phase of z and y][phase of x][channel][tap of z, y, x][row]
//
// Macros (set by cupyconv/_kernels/plain_conv.py):
//     ELEMENT     type of input, weight and output elements; sums are float
//     POSITIONS   positions of a thread (plain_conv alone)
//     COLUMNS     threads side by side along x (plain_conv alone)
//     RESIDENT    blocks that a multiprocessor shall hold, which bounds the registers (plain_conv alone)
//
// Launch: THREADS threads. `plain_conv` takes any multiple of `units` blocks. By programmatic dependent launch it may
// begin before `pack_plain` has ended; it waits before it reads packed weights. A block stays in one unit, which is
// some row tiles in a phase of z and y that has taps, so that it loads weights and computes offsets only once. The
// blocks of a unit take its tiles in turn; tiles run over x, y, z and samples. `pack_plain` takes any number of blocks.

#include "division.cuh"
#include "taps.cuh"

typedef ELEMENT Element;

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;
constexpr int ROWS = 8;
constexpr int MAX_PHASES = 8;
constexpr int CHUNK = 4;   // inputs that are copied together: 16 bytes as float
constexpr int STORED = 16;  // bytes that are stored together
constexpr int TOGETHER = STORED / sizeof(Element);  // outputs that are stored together
constexpr int UNROLL = 4;  // steps of an unrolled loop, and loads that a thread has under way

struct __align__(16) Quad {
    float values[4];
};

// Strides and pitches are in elements.
struct Axis {
    AxisTaps taps;
    int64 tile, tiles;  // positions of a tile in each phase, and number of tiles
    int64 pitch;        // staged elements from one input to the next; along x from one plane to the next
    int64 input, weight, out;  // strides
};

// A phase of an axis: first tap, number of taps, input offset of the first tap, and number of outputs. Along x,
// `before` counts the taps of the phases before this one.
struct Phase {
    int64 first, count, offset, before, positions;
};

struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    float* packed;
    int* special;  // for each row tile and phase of z and y 1 if it has an infinite or NaN weight
    int64 groups, rows, channels;
    int64 input_batch, input_group, input_channel;
    int64 weight_group, weight_row, weight_channel;
    int64 out_batch, out_group, out_row;
    Axis axis[3];
    Phase phases[3][MAX_PHASES];
    int64 busy;                 // number of phases of z and y that have taps
    unsigned char order[MAX_PHASES * MAX_PHASES];  // all phases of z and y, the busy ones first
    int64 units, tiles;         // number of units, and tiles of each unit
    int64 row_tiles, slabs, slabs_of_tile;
    int64 lines, passes;        // a tile has `passes` times `lines` lines; the lines of a pass are computed together
    int64 steps;                // most K steps of a phase of z and y, over all phases of x
    int64 low, extent;          // along x: least input offset of any tap, and number of staged inputs
    int64 channel_pitch;        // staged elements from one channel to the next
    // Offsets in bytes of the parts of shared memory.
    int64 place_results, place_bias, place_weights, place_offsets, place_inputs, place_buffer;
    int64 buffer_line, buffer_row;  // elements of the buffer from one line or row of outputs to the next
    int64 pieces;               // chunks, or single inputs, of a staged line
    int64 reciprocals[3];       // long reciprocals of the tiles along x, y and z
    int64 per_step, per_lines, per_pieces;  // reciprocals of the step of x, of lines and of pieces
    int64 chunks, bulk;         // 1 if inputs are staged in chunks, and 1 if lines are stored in bulk
};

// The work of a block: some row tiles of a group, in a phase of z and y that has taps.
struct Unit {
    int slab, phase[2], group;
    int number;        // index of the phase among the phases with taps
    int products;      // taps of z times taps of y
    int deep, high;    // staged lines of a channel along z and y
    int64 input, out;  // offset of the group's inputs, and of the unit's first output
};

struct __align__(16) Tile {
    int position[3];   // first positions, which are the same in all phases
    int left[2];       // positions along z and y from the first ones to the end of the phase
    int column;        // index of the tile along x
    int width;         // outputs of a line
    int64 input, out;  // offset of the sample's inputs, and of the tile's first output
};

// Values that are the same for all threads lie in shared memory, because the registers are for sums.
struct __align__(16) Shared {
    Unit unit;
    Tile tiles[2];  // the tile that is computed, and the tile that is staged
};

// A K step in a phase of z and y: a phase of x, a channel and a tap.
struct Step {
    int phase, channel, z, y, x;

    __device__ Step(const Arguments& p, int phase_z, int phase_y, int index) : phase(0) {
        const int height = int(p.phases[1][phase_y].count), depth = int(p.phases[0][phase_z].count);
        const int lines = int(p.channels) * depth * height;
        while (index >= lines * int(p.phases[2][phase].count)) index -= lines * int(p.phases[2][phase++].count);
        const int width = int(p.phases[2][phase].count);
        x = take_rest(index, width);
        y = take_rest(index, height);
        z = take_rest(index, depth);
        channel = index;
    }
};

#ifndef POSITIONS

// ---- packing of the weights ----

extern "C" __global__ void __launch_bounds__(THREADS) pack_plain(const __grid_constant__ Arguments p) {
    launch_grids();
    const int heights = int(p.axis[1].taps.phases), phases = heights * int(p.axis[0].taps.phases);
    const int slabs = int(p.slabs);
    for (int64 unit = blockIdx.x; unit < p.groups * slabs * phases; unit += gridDim.x) {
        const int phase = int(unit % phases), slab = int(unit / phases % slabs);
        const Phase &tz = p.phases[0][phase / heights], &ty = p.phases[1][phase % heights];
        const int64 group = unit / phases / slabs;
        const int count = int(p.channels * tz.count * ty.count * p.axis[2].taps.kernel);
        bool special = false;
        for (int i = threadIdx.x; i < count * ROWS; i += THREADS) {
            const int64 row = slab * ROWS + i % ROWS;
            const Step step(p, phase / heights, phase % heights, i / ROWS);
            const Phase& tx = p.phases[2][step.phase];
            float value = 0;
            if (row < p.rows)
                value = widen<float>(p.weight[group * p.weight_group + row * p.weight_row +
                                              step.channel * p.weight_channel +
                                              (tz.first + step.z * p.axis[0].taps.tap_step) * p.axis[0].weight +
                                              (ty.first + step.y * p.axis[1].taps.tap_step) * p.axis[1].weight +
                                              (tx.first + step.x * p.axis[2].taps.tap_step) * p.axis[2].weight]);
            special |= is_special(value);
            p.packed[unit * p.steps * ROWS + i] = value;
        }
        special = __syncthreads_or(special);
        if (threadIdx.x == 0) p.special[unit] = special;
    }
}

#else

// A line of staged inputs, or of positions, of a tile.
struct __align__(16) Line {
    int64 offset;  // offset in the array from the tile's first line
    int place;     // index of its first input among the staged inputs
    short z, y;
};

struct __align__(STORED) Chunk {
    Element elements[TOGETHER];
};

// The whole aligned chunks of a line of outputs: `begin` outputs lie before the first chunk.
struct Whole {
    int begin, count;

    __device__ Whole(const Element* out, int width) {
        const int ahead = int(-((unsigned long long)out / sizeof(Element)) % TOGETHER);
        begin = ahead < width ? ahead : width, count = (width - begin) / TOGETHER;
    }
    __device__ int end() const { return begin + count * TOGETHER; }
};

struct Worker {
    const Arguments& p;
    unsigned char* const memory;
    const int thread;

    __device__ Worker(const Arguments& p, unsigned char* memory) : p(p), memory(memory), thread(threadIdx.x) {}

    __device__ Shared& shared() const { return *(Shared*)memory; }
    __device__ const Unit& unit() const { return shared().unit; }
    __device__ const Phase& phase(int a) const { return p.phases[a][unit().phase[a]]; }  // the unit's phase of z or y
    __device__ Line* sources() const { return (Line*)(memory + sizeof(Shared)); }
    __device__ Line* results() const { return (Line*)(memory + int(p.place_results)); }
    __device__ float* bias() const { return (float*)(memory + int(p.place_bias)); }        // one for each row
    __device__ float* weights() const { return (float*)(memory + int(p.place_weights)); }  // in packed order
    // For each K step the distance in bytes from a position's first input to the input of the step.
    __device__ int* offsets() const { return (int*)(memory + int(p.place_offsets)); }
    __device__ float* inputs() const { return (float*)(memory + int(p.place_inputs)); }
    __device__ Element* buffer() const { return (Element*)(memory + int(p.place_buffer)); }

    __device__ bool in_bulk() const { return BULK_COPIES && p.bulk; }
    __device__ int slabs() const { return int(p.slabs_of_tile); }
    __device__ int lines() const { return int(p.lines); }  // lines of a pass
    // The thread's column, line and row tile in a pass. A thread without one computes row tile 0 and does not store.
    __device__ int column() const { return thread % COLUMNS; }
    __device__ int turn() const { return quotient(thread / COLUMNS, p.per_lines); }
    __device__ int line() const { return thread / COLUMNS - turn() * lines(); }
    __device__ bool stores() const { return (turn() < slabs()) & (unit().slab + turn() < int(p.slabs)); }
    __device__ int slab() const { return stores() ? turn() : 0; }

    __device__ void find_unit(int index) const {
        Unit& unit = shared().unit;
        const int heights = int(p.axis[1].taps.phases), row_tiles = int(p.row_tiles), busy = int(p.busy);
        const int next = divided(index, row_tiles);
        unit.slab = (index - next * row_tiles) * slabs();
        unit.group = divided(next, busy), unit.number = next - unit.group * busy;
        const int phase = p.order[unit.number];
        unit.phase[0] = divided(phase, heights), unit.phase[1] = phase - unit.phase[0] * heights;
        unit.products = int(this->phase(0).count * this->phase(1).count);
        unit.deep = extent(0), unit.high = extent(1);
        unit.input = unit.group * p.input_group;
        unit.out = unit.group * p.out_group + unit.slab * ROWS * p.out_row;
        for (int a = 0; a < 2; ++a) unit.out += unit.phase[a] * p.axis[a].out;
    }
    __device__ Tile tile_of(int index) const {
        Tile tile;
        int next = index;
#pragma unroll
        for (int a = 2; a >= 0; --a) {
            index = next;
            next = long_quotient(index, p.reciprocals[2 - a]);
            const int number = index - next * int(p.axis[a].tiles);
            tile.position[a] = number * int(p.axis[a].tile);
            if (a == 2) tile.column = number;
        }
        tile.left[0] = int(phase(0).positions) - tile.position[0];
        tile.left[1] = int(phase(1).positions) - tile.position[1];
        const int phases = int(p.axis[2].taps.phases), all = int(p.axis[2].tile) * phases;
        const int rest = int(p.axis[2].taps.size_out) - tile.position[2] * phases;
        tile.width = rest < all ? rest : all;
        tile.input = unit().input + next * p.input_batch;
        tile.out = unit().out + next * p.out_batch;
#pragma unroll
        for (int a = 0; a < 3; ++a) tile.out += tile.position[a] * p.axis[a].taps.phases * p.axis[a].out;
        return tile;
    }

    // Staged lines along z or y.
    __device__ int extent(int a) const {
        const int apart = int(p.axis[a].taps.offset_step);
        return (int(p.axis[a].tile) - 1) * int(p.axis[a].taps.step) +
               (int(phase(a).count) - 1) * (apart < 0 ? -apart : apart) + 1;
    }
    // The least input offset of the unit's phase of z or y, or of all phases of x.
    __device__ int low(int a) const {
        if (a == 2) return int(p.low);
        const int apart = int(p.axis[a].taps.offset_step);
        return int(phase(a).offset) + (apart < 0 ? (int(phase(a).count) - 1) * apart : 0);
    }
    // The input offset of a tap, counted from the least offset.
    __device__ int offset_of(int a, const Phase& phase, int tap) const {
        return int(phase.offset) + tap * int(p.axis[a].taps.offset_step) - low(a);
    }

    // ---- tables, bias and weights, which hold for all tiles of a block ----

    // Fills the tables of staged lines, of lines of positions and of K steps, and loads the bias.
    __device__ void describe() const {
        for (int i = thread; i < int(p.channels) * unit().deep * unit().high; i += THREADS) {
            int channel = i;
            const int y = take_rest(channel, unit().high), z = take_rest(channel, unit().deep);
            sources()[i] = {channel * p.input_channel + z * p.axis[0].input + y * p.axis[1].input,
                            int(channel * p.channel_pitch + z * p.axis[0].pitch + y * p.axis[1].pitch), short(z),
                            short(y)};
        }
        for (int i = thread; i < int(p.axis[0].tile * p.axis[1].tile); i += THREADS) {
            int z = i;
            const int y = take_rest(z, int(p.axis[1].tile));
            results()[i] = {z * p.axis[0].taps.phases * p.axis[0].out + y * p.axis[1].taps.phases * p.axis[1].out,
                            int(z * p.axis[0].taps.step * p.axis[0].pitch + y * p.axis[1].taps.step * p.axis[1].pitch),
                            short(z), short(y)};
        }
        for (int row = thread; row < slabs() * ROWS; row += THREADS)
            bias()[row] = p.bias.data && unit().slab * ROWS + row < int(p.rows)
                              ? load_parameter<float>(p.bias, unit().group * p.rows + unit().slab * ROWS + row)
                              : 0.0f;
        for (int i = thread; i < int(p.channels) * unit().products * int(p.axis[2].taps.kernel); i += THREADS) {
            const Step step(p, unit().phase[0], unit().phase[1], i);
            const int64 line = step.channel * p.channel_pitch + offset_of(0, phase(0), step.z) * p.axis[0].pitch +
                               offset_of(1, phase(1), step.y) * p.axis[1].pitch;
            offsets()[i] = 4 * (int(line) + spread(offset_of(2, p.phases[2][step.phase], step.x)));
        }
    }

    // The index in `p.packed` and `p.special` of row tile number `slab` of the unit.
    __device__ int64 packed(int slab) const {
        const int64 heights = p.axis[1].taps.phases, phases = p.axis[0].taps.phases * heights;
        return (unit().group * p.slabs + unit().slab + slab) * phases + unit().phase[0] * heights + unit().phase[1];
    }
    __device__ bool is_masked() const { return stores() && p.special[packed(slab())]; }

    __device__ void load_weights() const {
        const int quads = int(p.channels) * unit().products * int(p.axis[2].taps.kernel) * (ROWS / 4);
        for (int i = 0; i < slabs() && unit().slab + i < int(p.slabs); ++i) {
            const float* const source = p.packed + packed(i) * p.steps * ROWS;
            float* const to = weights() + i * int(p.steps) * ROWS;
            for (int quad = thread; quad < quads; quad += THREADS) copy_async<16>(to + quad * 4, source + quad * 4, 16);
        }
    }

    // ---- producer: inputs of a tile ----

    // The coordinate of the first staged input.
    __device__ int first(const Tile& tile, int a) const {
        return tile.position[a] * int(p.axis[a].taps.step) + low(a);
    }

    // Stages the inputs of a tile, in chunks where inputs lie in shared memory in the order of the array, else one by
    // one. Returns the address of the first input.
    __device__ const float* stage(int index, int turn) const {
        const Tile tile = tile_of(index);
        if (thread == 0) shared().tiles[turn] = tile;
        const int at[3] = {first(tile, 0), first(tile, 1), first(tile, 2)};
        const Element* origin = p.input + tile.input;
#pragma unroll
        for (int a = 0; a < 3; ++a) origin += at[a] * p.axis[a].input;
        const int start = p.chunks ? int((unsigned long long)origin / sizeof(Element) % CHUNK) : 0;
        if (p.chunks)
            stage_pieces<CHUNK>(origin, start, at);
        else
            stage_pieces<1>(origin, start, at);
        return inputs() + start;
    }
    // Stages pieces of EACH inputs. Threads take the pieces of all lines in turn, UNROLL of them at a time.
    template <int EACH>
    __device__ void stage_pieces(const Element* origin, int start, const int (&at)[3]) const {
        typedef typename BitsOf<EACH * sizeof(Element)>::type Word;
        constexpr bool COPIED = EACH * sizeof(Element) == 16;
        const int each = int(p.pieces), all = int(p.channels) * unit().deep * unit().high * each;
        const int size = int(p.axis[2].taps.size_in);
        for (int begin = thread; begin < all; begin += UNROLL * THREADS) {
            int places[UNROLL];
            Word loaded[UNROLL] = {};
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const int i = begin + u * THREADS, index = quotient(i, p.per_pieces);
                places[u] = -1;
                if (i >= all) continue;
                const Line line = sources()[index];
                const bool present = (unsigned(at[0] + line.z) < unsigned(p.axis[0].taps.size_in)) &
                                     (unsigned(at[1] + line.y) < unsigned(p.axis[1].taps.size_in));
                const int line_start = start + line.place;
                int x = i - index * each;
                if (EACH > 1) x = x * EACH - line_start % EACH;
                const Element* const from = origin + line.offset + x * p.axis[2].input;
                const int left = at[2] + x, place = line_start + (EACH > 1 ? x : spread(x));
                const bool whole = present & (left >= 0) & (left + EACH <= size);
                if (x >= int(p.extent)) continue;
                if (EACH > 1 && present & !whole & (left + EACH > 0) & (left < size)) {
#pragma unroll
                    for (int e = 0; e < EACH; ++e)  // a piece across an end of the array
                        inputs()[place + e] = unsigned(left + e) < unsigned(size) ? widen<float>(from[e]) : 0.0f;
                } else if (COPIED) {
                    copy_async<16>(inputs() + place, whole ? from : p.input, whole ? 16 : 0);
                } else {
                    places[u] = place;
                    load_bits(loaded[u], (const Word*)from, 0, whole);
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                if (COPIED || places[u] < 0) continue;
                struct __align__(EACH * 4) Floats {
                    float values[EACH];
                } floats;
#pragma unroll
                for (int e = 0; e < EACH; ++e) floats.values[e] = widen<float>(((const Element*)&loaded[u])[e]);
                *(Floats*)(inputs() + places[u]) = floats;
            }
        }
    }
    // The index of an input in its staged line, where inputs a step apart are neighbours.
    __device__ int spread(int x) const {
        const int index = quotient(x, p.per_step);
        return (x - index * int(p.axis[2].taps.step)) * int(p.axis[2].pitch) + index;
    }

    // ---- mainloop ----

    // Adds the products of some K steps. `origin` is the first input of the thread's first position.
    __device__ void add(float (&sum)[ROWS][POSITIONS], const float* origin, int begin, int steps) const {
        const Quad* weight = (const Quad*)(weights() + (slab() * int(p.steps) + begin) * ROWS);
        const int* offset = offsets() + begin;
        for (; steps >= UNROLL; steps -= UNROLL, weight += UNROLL * (ROWS / 4), offset += UNROLL) {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) multiply(sum, weight + u * (ROWS / 4), input_at(origin, offset[u]));
        }
        for (; steps > 0; --steps, weight += ROWS / 4, ++offset) multiply(sum, weight, input_at(origin, *offset));
    }
    __device__ __forceinline__ const float* input_at(const float* origin, int offset) const {
        return (const float*)((const unsigned char*)origin + offset);
    }
    __device__ __forceinline__ void multiply(float (&sum)[ROWS][POSITIONS], const Quad* weight,
                                             const float* input) const {
        const Quad half[2] = {weight[0], weight[1]};
        float x[POSITIONS];
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i) x[i] = input[i * COLUMNS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int i = 0; i < POSITIONS; ++i) sum[r][i] = fmaf(half[r / 4].values[r % 4], x[i], sum[r][i]);
    }

    // Does the same without absent inputs.
    __device__ void add_present(float (&sum)[ROWS][POSITIONS], const float* origin, const Tile& tile, const Line& line,
                                int begin, int steps) const {
        for (int index = begin; index < begin + steps; ++index) {
            const Step step(p, unit().phase[0], unit().phase[1], index);
            const int iz = first(tile, 0) + line.z * int(p.axis[0].taps.step) + offset_of(0, phase(0), step.z);
            const int iy = first(tile, 1) + line.y * int(p.axis[1].taps.step) + offset_of(1, phase(1), step.y);
            const int x0 = first(tile, 2) + offset_of(2, p.phases[2][step.phase], step.x);
            const bool present = (unsigned(iz) < unsigned(p.axis[0].taps.size_in)) &
                                 (unsigned(iy) < unsigned(p.axis[1].taps.size_in));
            const float* const weight = weights() + (slab() * int(p.steps) + index) * ROWS;
#pragma unroll
            for (int i = 0; i < POSITIONS; ++i) {
                const int x = x0 + (column() + i * COLUMNS) * int(p.axis[2].taps.step);
                if (!present | (unsigned(x) >= unsigned(p.axis[2].taps.size_in))) continue;
                const float value = input_at(origin, offsets()[index])[i * COLUMNS];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) sum[r][i] = fmaf(weight[r], value, sum[r][i]);
            }
        }
    }

    // ---- epilogue ----

    // The begin of the thread's line in the buffer, for its first row. It is as far from a multiple of STORED bytes as
    // the line is in the array.
    __device__ Element* buffered(const Tile& tile, const Line& line) const {
        const int before = int((unsigned long long)(p.out + (tile.out + line.offset)) / sizeof(Element) % TOGETHER);
        return buffer() + (slab() * ROWS * int(p.buffer_row) + this->line() * int(p.buffer_line) + before);
    }
    // Puts the outputs of a phase of x into the buffer.
    __device__ void put(Element* to, const float (&sum)[ROWS][POSITIONS], int phase_x) const {
        if (!stores()) return;
        const int phases = int(p.axis[2].taps.phases), row = int(p.buffer_row);
        to += column() * phases + phase_x;
        const Quad* const terms = (const Quad*)(bias() + slab() * ROWS);
        const Quad term[2] = {terms[0], terms[1]};
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i, to += COLUMNS * phases)
#pragma unroll
            for (int r = 0; r < ROWS; ++r) to[r * row] = narrow<Element>(sum[r][i] + term[r / 4].values[r % 4]);
    }
    // Stores one line of each row of a row tile from the buffer.
    __device__ void store_lines(const Element* from, const Tile& tile, const Line& line) const {
        if (in_bulk()) async_proxy_fence();
        __syncwarp();
        if (!stores() | (line.z >= tile.left[0]) | (line.y >= tile.left[1])) return;
        const int left = int(p.rows) - (unit().slab + slab()) * ROWS, rows = left < ROWS ? left : ROWS;
        const int row_pitch = int(p.buffer_row), width = tile.width;
        const int64 apart = p.axis[2].out;
        Element* out = p.out + (tile.out + line.offset + slab() * ROWS * p.out_row);
        if (apart != 1) {
            for (int row = 0; row < rows; ++row, out += p.out_row, from += row_pitch)
                for (int x = column(); x < width; x += COLUMNS) out[x * apart] = from[x];
        } else if (in_bulk()) {
            const int row = column();
            if (row >= rows) return;
            out += row * p.out_row, from += row * row_pitch;
            const Whole whole(out, width);
            if (whole.count) bulk_store(out + whole.begin, from + whole.begin, whole.count * STORED);
            bulk_store_commit();
#pragma unroll
            for (int e = 0; e < TOGETHER - 1; ++e) {
                const int x = whole.end() + e;
                if (e < whole.begin) out[e] = from[e];
                if (x < width) out[x] = from[x];
            }
        } else {
            for (int row = 0; row < rows; ++row, out += p.out_row, from += row_pitch) {
                const Whole whole(out, width);
                for (int i = column(); i < whole.count; i += COLUMNS)
                    ((Chunk*)(out + whole.begin))[i] = ((const Chunk*)(from + whole.begin))[i];
                const int x = whole.end() + column();
                if (column() < whole.begin) out[column()] = from[column()];
                if (x < width) out[x] = from[x];
            }
        }
    }
    // Waits until the warp's stores have read the buffer.
    __device__ void empty() const {
        if (in_bulk()) bulk_store_wait();
        __syncwarp();
    }

    // Stores the outputs of a thread from its registers, where x has one phase. NEIGHBOURS says that they are
    // contiguous along x.
    template <bool NEIGHBOURS>
    __device__ void store(const float (&sum)[ROWS][POSITIONS], const Tile& tile, const Line& line) const {
        if (!stores() | (line.z >= tile.left[0]) | (line.y >= tile.left[1])) return;
        const int rows = int(p.rows) - (unit().slab + slab()) * ROWS, end = tile.width - column();
        const int64 apart = NEIGHBOURS ? 1 : p.axis[2].out;
        Element* out = p.out + (tile.out + line.offset + slab() * ROWS * p.out_row + column() * apart);
        if ((rows >= ROWS) & (end > (POSITIONS - 1) * COLUMNS)) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r, out += p.out_row) {
                const float term = bias()[slab() * ROWS + r];
#pragma unroll
                for (int i = 0; i < POSITIONS; ++i) out[i * COLUMNS * apart] = narrow<Element>(sum[r][i] + term);
            }
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; ++r, out += p.out_row)
#pragma unroll
                for (int i = 0; i < POSITIONS; ++i)
                    if ((r < rows) & (i * COLUMNS < end))
                        out[i * COLUMNS * apart] = narrow<Element>(sum[r][i] + bias()[slab() * ROWS + r]);
        }
    }

    // ---- tiles of a block ----

    // Computes every `apart`-th tile from `index` on. The inputs of the next tile are under way while the last outputs
    // of a tile are stored.
    __device__ void convolve(int index, int apart) const {
        const bool masked = is_masked();
        const int phases = int(p.axis[2].taps.phases), taps = int(p.channels) * unit().products;
        const float* staged = stage(index, 0);
        copy_async_commit();
        for (int turn = 0; index < int(p.tiles); index += apart, turn ^= 1) {
            const Tile& tile = shared().tiles[turn];
            copy_async_wait<0>();
            __syncthreads();
            for (int pass = 0; pass < int(p.passes); ++pass) {
                const Line& position_line = results()[pass * lines() + line()];
                const float* const input = staged + (position_line.place + column());
                Element* const lines = phases > 1 ? buffered(tile, position_line) : nullptr;
                float sum[ROWS][POSITIONS];
                for (int phase = 0; phase < phases; ++phase) {
                    const Phase& tx = p.phases[2][phase];
#pragma unroll
                    for (int r = 0; r < ROWS; ++r)
#pragma unroll
                        for (int i = 0; i < POSITIONS; ++i) sum[r][i] = 0;
                    if (masked)
                        add_present(sum, input, tile, position_line, int(tx.before) * taps, int(tx.count) * taps);
                    else
                        add(sum, input, int(tx.before) * taps, int(tx.count) * taps);
                    if (phases > 1) {
                        if (phase == 0) empty();
                        put(lines, sum, phase);
                    }
                }
                const bool last = pass == int(p.passes) - 1;
                if (last) {
                    __syncthreads();  // nobody reads these inputs any more
                    if (index + apart < int(p.tiles)) staged = stage(index + apart, turn ^ 1);
                    copy_async_commit();
                }
                if (phases > 1) {
                    store_lines(lines, tile, position_line);
                } else if (p.axis[2].out == 1) {
                    store<true>(sum, tile, position_line);
                } else {
                    store<false>(sum, tile, position_line);
                }
            }
            fill(tile, index);
        }
    }
    // Stores the bias in some of the phases that have no taps, at the positions of a tile along z and y. The blocks of
    // the busy phases share the idle phases, and the tiles along x share the lines, each of which is stored whole.
    __device__ void fill(const Tile& tile, int index) const {
        const int heights = int(p.axis[1].taps.phases), busy = int(p.busy);
        const int idle = int(p.axis[0].taps.phases) * heights - busy;
        if (idle == 0) return;
        const int64 first = tile.out - tile.position[2] * p.axis[2].taps.phases * p.axis[2].out;
        const int turn = unit().number + index;
        for (int i = turn - divided(turn, busy) * busy; i < idle; i += busy) {
            const int both = p.order[busy + i], z = divided(both, heights), phase[2] = {z, both - z * heights};
            int left[2];
            int64 to = first;
#pragma unroll
            for (int a = 0; a < 2; ++a) {
                left[a] = int(p.phases[a][phase[a]].positions) - tile.position[a];
                to += (phase[a] - unit().phase[a]) * p.axis[a].out;
            }
            for (int line = tile.column; line < int(p.lines * p.passes); line += int(p.axis[2].tiles)) {
                const Line position_line = results()[line];
                if ((position_line.z >= left[0]) | (position_line.y >= left[1])) continue;
                if (p.axis[2].out == 1)
                    fill_lines<true>(p.out + (to + position_line.offset));
                else
                    fill_lines<false>(p.out + (to + position_line.offset));
            }
        }
    }
    // Fills one line of each row with the bias. Warps take the rows in turn.
    template <bool NEIGHBOURS>
    __device__ void fill_lines(Element* first) const {
        const int width = int(p.axis[2].taps.size_out);
        const int left = int(p.rows) - unit().slab * ROWS, all = slabs() * ROWS, rows = left < all ? left : all;
        const int lane = thread % 32;
        Element* out = first + thread / 32 * p.out_row;
        for (int row = thread / 32; row < rows; row += WARPS, out += WARPS * p.out_row) {
            const Element value = narrow<Element>(bias()[row]);
            if (NEIGHBOURS) {
                const Whole whole(out, width);
                Chunk chunk;
#pragma unroll
                for (int e = 0; e < TOGETHER; ++e) chunk.elements[e] = value;
                Chunk* const chunks = (Chunk*)(out + whole.begin);
#pragma unroll UNROLL
                for (int i = lane; i < whole.count; i += 32) chunks[i] = chunk;
                const int end = whole.end() + lane;
                if (lane < whole.begin) out[lane] = value;
                if (end < width) out[end] = value;
            } else {
                for (int x = lane; x < width; x += 32) out[x * p.axis[2].out] = value;
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) plain_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Worker worker(p, memory);
    const int units = int(p.units), first = blockIdx.x / units, apart = gridDim.x / units;
    if (worker.thread == 0) worker.find_unit(blockIdx.x % units);
    __syncthreads();
    worker.describe();
    wait_for_grids();
    worker.load_weights();
    __syncthreads();
    worker.convolve(first, apart);
    if (worker.in_bulk()) bulk_store_wait();  // before the block gives its shared memory back
}
#endif
