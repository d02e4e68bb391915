// Convolutions by plain multiply-adds, in both directions, on one to three axes: those whose groups have few
// channels, and transposed ones whose strides leave few products for each output.
//
//     out[n, g, row, o] = bias[g, row]
//                       + sum over (channel, tap) of in[n, g, channel, i(o, tap)] * w[g, row, channel, tap]
//
// where i(o, tap) follows from the tap table (taps.cuh), and taps whose input lies outside of the array
// contribute nothing, whatever the weight. Matrix units would multiply mostly zeros here, and what surrounds
// their products would take longer than all of these.
//
// A tile is a box of positions, in one phase of z and y and all phases of x, for some slabs of ROWS output
// channels. The inputs that its taps reach are staged in shared memory, zeros where the array has nothing. A
// thread has all rows of a slab at POSITIONS positions of a line, and takes the phases of x in turn:
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
// A step is a tap of a channel: ROWS weights that neighbouring threads have in common, and an input for each
// position, whose place is that of the thread's position plus what a table in shared memory has for the step.
// With a stride along x, inputs that lie a stride apart are staged as neighbours, in planes.
//
// A sum runs over channels, then z, y and x of the taps, in one thread. It has few products, so that rounding
// does not drift.
//
// The phases of x of a line are put together in shared memory, as far behind a multiple of 16 bytes as the line lies in
// the array. So its whole chunks of 16 bytes are stored as they are, by one bulk store where there is one:
//
//     in shared memory   | . . a b | c d e f | g h i j | k . . . |
//     stored             |     1 1 |    bulk store     | 1       |   chunks of four outputs
//
// A line has been put there by threads of one warp, which stores it: others need not wait for that. Phases of z and y
// that have no taps have no blocks of their own, which would hold shared memory for nothing. Those of the other phases
// store the bias there, at the positions of each tile in its turn.
//
// Zeros that stand in for absent inputs would become NaN with an infinite or NaN weight: a slab that has one is
// summed under a mask.
//
// `pack_plain` runs first. It brings the weights into the order of steps, ROWS of them side by side, and finds
// the slabs that have special ones:
//
//     packed[group][slab][phase of z and y][phase of x][channel][tap of z, y, x][row]
//
// Macros (set by cupyconv/_kernels/plain_conv.py):
//     ELEMENT     type of input, weight and output elements, of which sums are float
//     POSITIONS   of a thread (plain_conv alone)
//     COLUMNS     threads side by side along x (plain_conv alone)
//     RESIDENT    blocks that a multiprocessor shall hold, which bounds the registers (plain_conv alone)
//
// Launch: THREADS threads. `plain_conv` is launched with any multiple of `units` blocks, and, where the GPU can, before
// `pack_plain` has ended: what that writes is waited for here. A block stays in a unit,
// some slabs in a phase of z and y that has taps, whose weights and places it has to find only once; it takes every
// so many-th of the tiles, which run over x, y, z and samples. `pack_plain` takes any number of blocks.

#include "division.cuh"
#include "taps.cuh"

typedef ELEMENT Element;

constexpr int THREADS = 128;
constexpr int WARPS = THREADS / 32;
constexpr int ROWS = 8;
constexpr int MAX_PHASES = 8;
// Floats that are copied together.
constexpr int CHUNK = 4;
// Bytes that are stored together, and the outputs that these are.
constexpr int STORED = 16;
constexpr int TOGETHER = STORED / sizeof(Element);
// Steps, or elements of a thread, that are under way together.
constexpr int UNROLL = 4;

struct __align__(16) Quad {
    float values[4];
};

// Strides and pitches are in elements.
struct Axis {
    AxisTaps taps;
    int64 tile, tiles;  // positions of a tile in each phase, and how many tiles there are
    int64 pitch;        // between inputs in shared memory; of x between its planes
    int64 input, weight, out;
};

// A phase of an axis: its taps and outputs. Along x, the taps of earlier phases are `before` it.
struct Phase {
    int64 first, count, offset, before, positions;
};

struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    float* packed;
    int* special;  // whether a slab has such weights in a phase
    int64 groups, rows, channels;
    int64 input_batch, input_group, input_channel;
    int64 weight_group, weight_row, weight_channel;
    int64 out_batch, out_group, out_row;
    Axis axis[3];
    Phase phases[3][MAX_PHASES];
    int64 busy;                 // phases of z and y that have taps
    unsigned char order[MAX_PHASES * MAX_PHASES];  // of all, these first
    int64 units, tiles;         // what blocks stay in, and tiles of each
    int64 row_tiles, slabs, slabs_of_tile;
    int64 lines, passes;        // of a tile: lines that are computed together, and how often
    int64 steps;                // of the phase of z and y that has most, in all phases of x
    int64 low, extent;          // of x: the least input offset of any tap, and inputs that are staged
    int64 channel_pitch;        // between inputs in shared memory
    // Bytes of shared memory in front of what lies there.
    int64 place_results, place_bias, place_weights, place_offsets, place_inputs, place_buffer;
    int64 buffer_line, buffer_row;  // from one line of outputs to the next, and from one row to the next
    int64 pieces;               // of a line, in which inputs are staged
    int64 reciprocals[3];       // long ones, of the tiles along x, y and z
    int64 per_step, per_lines, per_pieces;  // short ones
    int64 chunks, bulk;         // whether inputs are staged in chunks, and whether lines are stored in bulk
};

// What a block computes: some slabs of a group, in a phase of z and y that has taps.
struct Unit {
    int slab, phase[2], group;
    int number;        // of the phase among those with taps
    int products;      // taps of z and y
    int deep, high;    // lines that are staged for a channel
    int64 input, out;  // offset of the group, and of its first output
};

struct __align__(16) Tile {
    int position[3];   // the first ones, which are the same in all phases
    int left[2];       // how many positions of z and y there are from these on
    int column;        // its number along x
    int width;         // outputs of a line
    int64 input, out;  // offset of the sample, and of the first output
};

// What all threads have in common lies here: their registers are for sums.
struct __align__(16) Shared {
    Unit unit;
    Tile tiles[2];  // this one and the last, or the next
};

// A step of a phase of z and y: a phase of x, a channel and a tap.
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

// A line of inputs that are staged, or of positions, of a tile: where it lies in the array from the tile's first
// one on, and where its inputs are in shared memory.
struct __align__(16) Line {
    int64 offset;
    int place;
    short z, y;
};

struct __align__(STORED) Chunk {
    Element elements[TOGETHER];
};

// The whole chunks of a line of outputs, of which `begin` are in front of them.
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
    __device__ const Phase& phase(int a) const { return p.phases[a][unit().phase[a]]; }  // of z or y
    __device__ Line* sources() const { return (Line*)(memory + sizeof(Shared)); }
    __device__ Line* results() const { return (Line*)(memory + int(p.place_results)); }
    __device__ float* bias() const { return (float*)(memory + int(p.place_bias)); }        // of each row
    __device__ float* weights() const { return (float*)(memory + int(p.place_weights)); }  // as they are packed
    // Of each step among the inputs, in bytes.
    __device__ int* offsets() const { return (int*)(memory + int(p.place_offsets)); }
    __device__ float* inputs() const { return (float*)(memory + int(p.place_inputs)); }
    __device__ Element* buffer() const { return (Element*)(memory + int(p.place_buffer)); }

    __device__ bool in_bulk() const { return BULK_COPIES && p.bulk; }
    __device__ int slabs() const { return int(p.slabs_of_tile); }
    __device__ int lines() const { return int(p.lines); }  // of a pass
    // Of the thread, in a pass. One that has no slab computes another one's, and does not store.
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

    // Lines of inputs that are staged along z or y; none without taps.
    __device__ int extent(int a) const {
        const int apart = int(p.axis[a].taps.offset_step);
        return (int(p.axis[a].tile) - 1) * int(p.axis[a].taps.step) +
               (int(phase(a).count) - 1) * (apart < 0 ? -apart : apart) + 1;
    }
    // The least input offset: of a phase of z or y, of all phases of x.
    __device__ int low(int a) const {
        if (a == 2) return int(p.low);
        const int apart = int(p.axis[a].taps.offset_step);
        return int(phase(a).offset) + (apart < 0 ? (int(phase(a).count) - 1) * apart : 0);
    }
    // The input offset of a tap, from the least one on.
    __device__ int offset_of(int a, const Phase& phase, int tap) const {
        return int(phase.offset) + tap * int(p.axis[a].taps.offset_step) - low(a);
    }

    // ---- what holds for all tiles of a block ----

    // Where lines and steps lie, and the bias.
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

    // What is packed of the block's first slab, or of a later one.
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

    // ---- a tile ----

    // The input coordinate that staging begins with.
    __device__ int first(const Tile& tile, int a) const {
        return tile.position[a] * int(p.axis[a].taps.step) + low(a);
    }

    // Stages the inputs: in chunks where they lie in shared memory as they do in the array, else one by one. Returns
    // where the first one is.
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
    // Pieces of EACH inputs: a thread takes every so many-th one of all lines, and some of them together.
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
                const int own = start + line.place;
                int x = i - index * each;
                if (EACH > 1) x = x * EACH - own % EACH;
                const Element* const from = origin + line.offset + x * p.axis[2].input;
                const int left = at[2] + x, place = own + (EACH > 1 ? x : spread(x));
                const bool whole = present & (left >= 0) & (left + EACH <= size);
                if (x >= int(p.extent)) continue;
                if (EACH > 1 && present & !whole & (left + EACH > 0) & (left < size)) {
#pragma unroll
                    for (int e = 0; e < EACH; ++e)  // across an end of the array, one by one
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
    // The place in its line of an input: those a step apart are neighbours.
    __device__ int spread(int x) const {
        const int index = quotient(x, p.per_step);
        return (x - index * int(p.axis[2].taps.step)) * int(p.axis[2].pitch) + index;
    }

    // Adds up some steps, from the input that the first tap would take.
    __device__ void add(float (&sum)[ROWS][POSITIONS], const float* own, int begin, int steps) const {
        const Quad* weight = (const Quad*)(weights() + (slab() * int(p.steps) + begin) * ROWS);
        const int* offset = offsets() + begin;
        for (; steps >= UNROLL; steps -= UNROLL, weight += UNROLL * (ROWS / 4), offset += UNROLL) {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) multiply(sum, weight + u * (ROWS / 4), input_at(own, offset[u]));
        }
        for (; steps > 0; --steps, weight += ROWS / 4, ++offset) multiply(sum, weight, input_at(own, *offset));
    }
    __device__ __forceinline__ const float* input_at(const float* own, int offset) const {
        return (const float*)((const unsigned char*)own + offset);
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

    // The same without absent inputs.
    __device__ void add_present(float (&sum)[ROWS][POSITIONS], const float* own, const Tile& tile, const Line& line,
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
                const float value = input_at(own, offsets()[index])[i * COLUMNS];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) sum[r][i] = fmaf(weight[r], value, sum[r][i]);
            }
        }
    }

    // Where the thread's line of the buffer begins, for its first row: as far behind a multiple of STORED bytes as in
    // the array.
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
    // Stores the lines that the threads of a slab have put into the buffer, one of each row.
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
    // Waits until the buffer can be filled again.
    __device__ void empty() const {
        if (in_bulk()) bulk_store_wait();
        __syncwarp();
    }

    // Stores the outputs of a thread, where x has one phase.
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

    // The outputs of all tiles from one on. While the last ones of a tile are stored, the inputs of the next tile
    // are on their way.
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
                const Line& own = results()[pass * lines() + line()];
                const float* const input = staged + (own.place + column());
                Element* const lines = phases > 1 ? buffered(tile, own) : nullptr;
                float sum[ROWS][POSITIONS];
                for (int phase = 0; phase < phases; ++phase) {
                    const Phase& tx = p.phases[2][phase];
#pragma unroll
                    for (int r = 0; r < ROWS; ++r)
#pragma unroll
                        for (int i = 0; i < POSITIONS; ++i) sum[r][i] = 0;
                    if (masked)
                        add_present(sum, input, tile, own, int(tx.before) * taps, int(tx.count) * taps);
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
                    store_lines(lines, tile, own);
                } else if (p.axis[2].out == 1) {
                    store<true>(sum, tile, own);
                } else {
                    store<false>(sum, tile, own);
                }
            }
            fill(tile, index);
        }
    }
    // Stores the bias in some of the phases that have no taps, at the positions of a tile along z and y: such that the
    // blocks of all phases that have taps store it in all, and the tiles of a row some whole lines each.
    __device__ void fill(const Tile& tile, int index) const {
        const int heights = int(p.axis[1].taps.phases), busy = int(p.busy), idle = int(p.axis[0].taps.phases) * heights - busy;
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
                const Line own = results()[line];
                if ((own.z >= left[0]) | (own.y >= left[1])) continue;
                if (p.axis[2].out == 1)
                    fill_lines<true>(p.out + (to + own.offset));
                else
                    fill_lines<false>(p.out + (to + own.offset));
            }
        }
    }
    // A line of each row, which warps take in turn; outputs are neighbours or not.
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
