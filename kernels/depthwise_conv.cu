// Convolutions of one input channel for each group, in both directions, on one to three axes.
//
//     out[n, g, row, o] = bias[g, row] + sum over taps of in[n, g, i(o, tap)] * w[g, row, tap]
//
// where i(o, tap) follows from the tap table (taps.cuh), and taps whose input lies outside of the
// array contribute nothing, whatever the weight. There is little to multiply: what counts is that
// inputs are read once, outputs are written once, and that few instructions stand in between.
//
// A tile is a box of outputs of some channels. Its inputs, with the halo that taps reach, are staged
// in shared memory line by line, zeros where the array has nothing. Then a thread takes LINES lines of
// two outputs at a time.
//
//     staged lines of a channel                   outputs of a thread, where taps slide
//     +---------------------------------+
//     | halo                            |              x  x+1
//     |   +---------+---------+-----+   |            +----+----+
//     |   | LINES   |         |     |   |        y   | ## | ## |    window of a line: TAPS + 1
//     |   | x width |         |     |   |        y+1 | ## | ## |    inputs, for TAPS taps of both
//     |   +---------+---------+-----+   |        ... | ## | ## |
//     |   |         |         |     |   |            +----+----+
//     |   +---------+---------+-----+   |        the windows of LINES lines are in registers: for the
//     |                                 |        next y of the kernel, one new window is read
//     +---------------------------------+
//
// Taps slide where neighbouring outputs take neighbouring inputs and the kernel is TAPS wide. For all
// other geometries, with steps, dilation or phases, each tap reads its inputs; the two outputs of a
// thread are then half a line apart, so that neighbouring threads have neighbours. An output of one
// line is cut into LINES sections.
//
// Neighbouring inputs are read 16 bytes at a time, wherever lines begin: what separates them in shared
// memory equals their strides modulo 16 bytes, so that what is aligned here is aligned there. That
// needs even strides; others are read element by element. Where the array's lines are whole chunks of 16 bytes, each
// staged line is one copy (compute capability 9.0 and later).
//
// 16-bit elements whose taps slide may be multiplied by matrix units (MATRIX). A warp takes a band of 16 lines of 64
// outputs: the left operand are inputs as they lie in shared memory, the right one has the weights of a line of taps on
// its diagonals, so that products of 16 lines by 8 inputs, two or three of them, give 8 outputs of each line:
//
//                                              outputs 0 ... 7       skew: from a multiple of 8 to
//     inputs from a multiple of 8 on   row skew     w0               the first input of output 0
//     line 0    i0 i1 i2 ... i7        row skew + 1 w1 w0
//     line 1    i0 i1 i2 ... i7        row skew + 2 w2 w1 w0
//     ...                              ...
//
// So lines must begin at multiples of 16 bytes, which those of 8, 16, 24, ... inputs do. Others are put together from
// words (`shift_chunks`), and views whose neighbours do not lie together element by element. A zero of the right operand
// and an infinite input are NaN: outputs that are not finite are computed again.
//
// A sum runs over z, y and x of the taps in the order of their inputs, in one thread; or over lines of taps in that
// order, each on a matrix unit. Zeros that stand
// in for absent inputs would become NaN with an infinite or NaN weight: the outputs of a row that has
// one are computed under a mask.
//
// Macros (set by cupyconv/_kernels/depthwise_conv.py):
//     ELEMENT     type of input, weight and output elements (scalar.cuh), a real floating type
//     TAPS        width of the kernels whose taps slide, odd
//     LINES       lines of outputs of a thread
//     RESIDENT    blocks that a multiprocessor shall hold, which bounds the registers
//     MATRIX      1 where matrix units multiply: kernels up to 9 wide, whose taps slide; TAPS is 1 then
//
// Launch: THREADS threads, any number of blocks; each takes every gridDim.x-th tile. Tiles run over the
// rows of a group fastest, which share inputs, then over x, y, z, channels and samples.

#include "division.cuh"
#include "taps.cuh"

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

#ifndef MATRIX
#define MATRIX 0
#endif

constexpr int THREADS = 128;
constexpr int UNROLL = 4;  // elements of two bytes that a thread has on their way
constexpr int MAX_PHASES = 8;
constexpr int CHUNK = 16 / sizeof(Element);
constexpr int BAND = 16, WIDE = 64;         // lines and outputs that a warp computes together there
constexpr int BAND_PITCH = WIDE / 2 + 4;    // pairs; spreads lines over the banks
constexpr int STRIPS = BAND / LINES;        // of a band
constexpr int MARGIN = 14, DIAGONAL = 40;   // zeros in front of the weights of a line of taps, and all together
constexpr int ABSENT = -0x40000000;
constexpr int ANYWHERE = 2;  // of `vectors`

template <typename T, int N>
struct __align__(sizeof(T) * N) Vector {
    T values[N];
};
typedef Vector<Element, 2> Pair;
typedef Vector<unsigned, 4> Chunk;

// Strides and pitches are in elements.
struct Axis {
    AxisTaps taps;
    int64 low;     // least input offset of any tap
    int64 apart;   // inputs from one tap of a phase to the next
    int64 tile;    // positions of a tile, in each phase
    int64 tiles;
    int64 extent;  // inputs that are staged
    int64 pitch;   // between them
    int64 input, weight, out;
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
    int64 inputs;    // elements that are staged
    int64 chunks;    // of a run
    int64 runs;      // of a line
    int64 vectors;   // whether a chunk is 16 bytes, aligned or ANYWHERE in the array; else it is an element
    int64 whole;     // lines of a tile where the array has all of a chunk or nothing, on GPUs that copy in bulk; else 0
    int64 slides;
    int64 skew;      // how far the first input of a line is from 16 bytes, for matrix units
    int64 columns;   // threads along x
    int64 strips;    // of LINES lines in a phase of y
    int64 section;   // outputs of a section where the lines of a thread are sections of one, else 0
    // From one line of a thread to the next: elements of the output, inputs along y and x, elements that are staged.
    int64 line_out, line_place[2], line_pitch;
    // Long reciprocals of row_tiles, of the tiles along x, y, z and of channel_tiles.
    int64 tile_reciprocals[5];
    // Reciprocals of what is counted here.
    int64 per_chunks, per_runs, per_extent[2], per_columns, per_strips[2], per_planes[2], per_channels, per_phases;
    int64 per_width, per_height, per_values, per_section;
    int64 pairs;  // whether two neighbouring outputs can be stored together
};

// The taps of a phase in the order of their inputs, of which `offset` is the first, from `Axis::low`. In
// shared memory the weights are in that order, too.
struct Taps {
    int first, step, count, offset;
};

// A run of chunks of a staged line. The first one of a line may begin in front of what is needed.
struct __align__(16) Run {
    const Element* source;
    int place;  // in shared memory
    int x;      // coordinate of its first element; far in front of the array where there is no line
};

// LINES lines of outputs, and the input that their first position and first tap take.
struct __align__(16) Strip {
    int64 out;  // offset of the tile's first column
    int lines;  // that exist
    int weights;  // place in shared memory
    int input;  // place in shared memory
    short phases[2];  // of z and y
    int place[2];     // coordinates z and y
};

struct Shared {
    Taps taps[3][MAX_PHASES];
};

// First positions of a tile, which are the same in all phases.
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

    // The input coordinate that staging begins with.
    __device__ int first(const Arguments& p, int a) const {
        return position[a] * int(p.axis[a].taps.step) + int(p.axis[a].low);
    }
};

struct Worker {
    const Arguments& p;
    const int thread;
    const Shared& shared;
    mbarrier* const lines_there;
    Run* const runs;
    Strip* const strips;
    Element* const inputs;
    Accumulator* const weights;  // of each row and channel, with the bias
    Element* const diagonals;    // for matrix units, of each line of taps, twice: from even and from odd places on
    unsigned* const band;        // of each warp, pairs of a strip's outputs

    __device__ Worker(const Arguments& p, unsigned char* memory)
        : p(p),
          thread(threadIdx.x),
          shared(*(const Shared*)memory),
          lines_there((mbarrier*)(memory + sizeof(Shared))),  // which takes the room of a run, where lines are whole
          runs((Run*)lines_there + (p.whole ? 1 : 0)),
          strips((Strip*)(runs + int(p.runs_of_tile))),
          inputs((Element*)(strips + int(p.strips_of_tile))),
          weights((Accumulator*)(inputs + int(p.inputs))),
          diagonals((Element*)(weights + int(p.rows_of_tile * p.channels * (p.taps + 1)))),
          band((unsigned*)(diagonals + lines_of_taps() * int(p.rows_of_tile * p.channels) * 2 * DIAGONAL) +
               threadIdx.x / 32 * LINES * BAND_PITCH) {}

    __device__ int lines_of_taps() const { return int(p.axis[0].taps.kernel * p.axis[1].taps.kernel); }

    __device__ bool exists(const Tile& tile, int row, int channel) const {
        return (tile.row + row < int(p.rows)) & (tile.channel + channel < int(p.groups));
    }

    // The input that staging begins with, of a sample and channel that exist.
    __device__ const Element* origin_of(const Tile& tile) const {
        return p.input + tile.sample * p.input_batch + tile.channel * p.input_group +
               tile.first(p, 0) * p.axis[0].input + tile.first(p, 1) * p.axis[1].input +
               tile.first(p, 2) * p.axis[2].input;
    }
    // Where the first line has its first input, as far from what is aligned to a chunk as that is in the array.
    __device__ int start_of(const Tile& tile) const {
        const int width = p.vectors ? CHUNK : 1;
        return MATRIX ? int(p.skew) : int((unsigned long long)origin_of(tile) / sizeof(Element)) & (width - 1);
    }
    // The run of a staged line that begins so many elements further than the line's first chunk.
    __device__ __forceinline__ Run run_at(const Tile& tile, int start, int line, int further) const {
        const int depth = int(p.axis[0].extent), height = int(p.axis[1].extent);
        const int plane = quotient(line, p.per_extent[1]), y = line - plane * height;
        const int channel = quotient(plane, p.per_extent[0]), z = plane - channel * depth;
        const int place = start + channel * int(p.channel_pitch) + z * int(p.axis[0].pitch) +
                          y * int(p.axis[1].pitch);
        const int x = further - (place & (MATRIX || p.vectors ? CHUNK - 1 : 0));  // from the line's first input
        const bool present = exists(tile, 0, channel) &
                             (unsigned(tile.first(p, 0) + z) < unsigned(p.axis[0].taps.size_in)) &
                             (unsigned(tile.first(p, 1) + y) < unsigned(p.axis[1].taps.size_in));
        return {origin_of(tile) + channel * p.input_group + z * p.axis[0].input + y * p.axis[1].input +
                    x * p.axis[2].input,
                place + x, present ? tile.first(p, 2) + x : ABSENT};
    }

    __device__ void describe_runs(const Tile& tile, int start) const {
        const int width = int(p.chunks) * (p.vectors ? CHUNK : 1);
        for (int i = thread; i < int(p.runs_of_tile); i += THREADS) {
            const int line = quotient(i, p.per_runs);
            runs[i] = run_at(tile, start, line, (i - line * int(p.runs)) * width);
        }
    }
    // Behind the last input of a line that is needed, if the array has it.
    __device__ int end_of_lines(const Tile& tile) const {
        const int size = int(p.axis[2].taps.size_in), reach = tile.first(p, 2) + int(p.axis[2].extent);
        return reach < 0 ? 0 : reach < size ? reach : size;
    }

    // Stages lines that are whole chunks in the array: a thread has a line, of which one copy brings what there is.
    //
    //     line    | 0 0 0 0 | # # # # | # # # # | # # # # | 0 0 0 0 |       chunks of 4 float32
    //             0         from                          to        all
    __device__ void copy_lines(const Tile& tile, int start) const {
        constexpr int WARPS = THREADS / 32;
        const int all = int(p.chunks) * int(p.runs), end = (end_of_lines(tile) + CHUNK - 1) / CHUNK;
        // The lines go around the warps, each of which issues the copies of its own one by one.
        for (int line = thread % 32 * WARPS + thread / 32; line < int(p.whole); line += THREADS) {
            const Run run = run_at(tile, start, line, 0);
            const int first = run.x / CHUNK;  // without a remainder
            int from = first < 0 ? -first : 0, to = end - first;
            if (from > all) from = all;
            if (to > all) to = all;
            if (to < from) to = from;
            Chunk* const chunks = (Chunk*)(inputs + run.place);
            mbarrier_arrive_expect(lines_there, (to - from) * 16);
            if (from < to) bulk_copy(chunks + from, run.source + from * CHUNK, (to - from) * 16, lines_there);
#pragma unroll 1
            for (int i = 0; i < all; ++i) {
                if (i == from) i = to;
                if (i < all) chunks[i] = {};
            }
        }
    }

    __device__ void describe_strips(const Tile& tile, int start) const {
        const Axis &az = p.axis[0], &ay = p.axis[1], &ax = p.axis[2];
        const int phases_y = MATRIX ? 1 : int(ay.taps.phases);
        // From the last thread on: the first ones describe runs, where there are any.
        const int planes = int(az.tile * az.taps.phases), strips_of_plane = int(p.strips * ay.taps.phases);
        for (int i = THREADS - 1 - thread; i < int(p.strips_of_tile); i += THREADS) {
            int index = quotient(i, p.per_strips[1]);
            const int strip = i - index * strips_of_plane, phase_y = quotient(strip, p.per_strips[0]);
            const int own = quotient(index, p.per_planes[1]);
            const int plane = index - own * planes, phase_z = quotient(plane, p.per_planes[0]);
            const int row = quotient(own, p.per_channels), channel = own - row * int(p.channels);
            const int qz = plane - phase_z * int(az.tile), qy = (strip - phase_y * int(p.strips)) * LINES;
            const int z = phase_z + (tile.position[0] + qz) * int(az.taps.phases);
            const int y = phase_y + (tile.position[1] + qy) * int(ay.taps.phases);
            const int left = (int(ay.taps.size_out) - y + phases_y - 1) / phases_y;
            const bool present = exists(tile, row, channel) & (z < int(az.taps.size_out)) & (left > 0);
            const int iz = qz * int(az.taps.step) + shared.taps[0][phase_z].offset;
            const int iy = qy * int(ay.taps.step) + shared.taps[1][phase_y].offset;
            strips[i] = {tile.sample * p.out_batch + (tile.channel + channel) * p.out_group +
                             (tile.row + row) * p.out_row + z * az.out + y * ay.out +
                             tile.position[2] * ax.taps.phases * ax.out,
                         !present ? 0 : p.section || left > LINES ? LINES : left,
                         own * (int(p.taps) + 1),
                         start + channel * int(p.channel_pitch) + iz * int(az.pitch) + iy * int(ay.pitch),
                         {short(phase_z), short(phase_y)},
                         {tile.first(p, 0) + iz, tile.first(p, 1) + iy}};
        }
    }

    // Which tap of the kernel is in this place, in the order of their inputs.
    __device__ int tap_at(int a, int place) const {
        const AxisTaps& taps = p.axis[a].taps;
        return taps.offset_step < 0 ? int(taps.kernel) - 1 - place : place;
    }

    // Brings the weights and the bias, which is put behind the last tap; returns whether this thread saw a
    // special weight.
    __device__ bool load_weights(const Tile& tile) const {
        const int taps = int(p.taps), values = int(p.rows_of_tile) * int(p.channels) * (taps + 1);
        bool special = false;
        for (int i = thread; i < values; i += THREADS) {
            const int own = quotient(i, p.per_values), tap = i - own * (taps + 1);
            const int row = quotient(own, p.per_channels), channel = own - row * int(p.channels);
            const int line = quotient(tap, p.per_width), x = tap - line * int(p.axis[2].taps.kernel);
            const int z = quotient(line, p.per_height), y = line - z * int(p.axis[1].taps.kernel);
            const int64 group = tile.channel + channel, in_group = tile.row + row;
            Accumulator value = zero<Accumulator>();
            if (tap == taps && p.bias.data && exists(tile, row, channel))
                value = load_parameter<Accumulator>(p.bias, group * p.rows + in_group);
            if (tap < taps && exists(tile, row, channel)) {
                value = widen<Accumulator>(p.weight[group * p.weight_group + in_group * p.weight_row +
                                                    tap_at(0, z) * p.axis[0].weight +
                                                    tap_at(1, y) * p.axis[1].weight +
                                                    tap_at(2, x) * p.axis[2].weight]);
                special |= is_special(value);
            }
            weights[i] = value;
            if (MATRIX && tap < taps) {
                Element* const to = diagonals + (own * lines_of_taps() + line) * 2 * DIAGONAL + MARGIN + x;
                to[0] = to[DIAGONAL - 1] = narrow<Element>(value);
            }
        }
        return special;
    }
    __device__ void clear_diagonals() const {
        const int all = lines_of_taps() * int(p.rows_of_tile * p.channels) * 2 * DIAGONAL;
        for (int i = thread; i < all; i += THREADS) diagonals[i] = Element();
    }

    // Stages the inputs in chunks of WIDTH elements. A thread stays in its chunk of the runs.
    template <int WIDTH>
    __device__ void stage(const Tile& tile) const {
        const int chunks = int(p.chunks), teams = quotient(THREADS, p.per_chunks);
        const int team = quotient(thread, p.per_chunks), offset = (thread - team * chunks) * WIDTH;
        if (team >= teams) return;
        const int size = int(p.axis[2].taps.size_in), end = end_of_lines(tile);
        const int whole = size < WIDTH ? 0 : size - WIDTH + 1 < end ? size - WIDTH + 1 : end;
        const int64 distance = WIDTH == 1 ? offset * p.axis[2].input : offset;
        if constexpr (WIDTH * sizeof(Element) >= 4)
            copy_chunks<WIDTH>(team, teams, offset, distance, whole, end, size);
        else
            move_elements(team, teams, offset, distance, end);
    }

    // All chunks of a thread are on their way at a time.
    template <int WIDTH>
    __device__ void copy_chunks(int team, int teams, int offset, int64 distance, int whole, int end, int size) const {
        constexpr int BYTES = WIDTH * sizeof(Element);
        for (int i = team; i < int(p.runs_of_tile); i += teams) {
            const Run run = runs[i];
            const int x = run.x + offset;
            Element* const to = inputs + (run.place + offset);
            const bool present = unsigned(x) < unsigned(whole);
            if (WIDTH > 1 && !MATRIX && !present && unsigned(x + WIDTH - 1) < unsigned(end + WIDTH - 1)) {
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)  // across an end of the array, one by one
                    to[e] = unsigned(x + e) < unsigned(size) ? run.source[distance + e] : Element();
            } else {
                copy_async<BYTES>(to, present ? run.source + distance : p.input, present ? BYTES : 0);
            }
        }
        copy_async_commit();
    }

    // Two bytes cannot be copied alone. They pass through registers: several loads, then what waits for them.
    __device__ void move_elements(int team, int teams, int offset, int64 distance, int end) const {
        typedef typename BitsOf<sizeof(Element)>::type Bits;
        for (int first = team; first < int(p.runs_of_tile); first += UNROLL * teams) {
            Bits loaded[UNROLL];
            int place[UNROLL];
            // All zeros, then all loads: what writes a register of an old load behind a new one could wait
            // for both.
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) loaded[u] = Bits();
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const int i = first + u * teams;
                const Run run = runs[i < int(p.runs_of_tile) ? i : first];
                place[u] = run.place + offset;
                load_bits(loaded[u], (const Bits*)(run.source + distance), 0, unsigned(run.x + offset) < unsigned(end));
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                if (first + u * teams < int(p.runs_of_tile)) *(Bits*)(inputs + place[u]) = loaded[u];
        }
    }

    // Stages chunks of lines that begin anywhere, for matrix units: as words, behind a half of one where a chunk begins at
    // an odd element, and with another half at its end if that is left. Weights are loaded meanwhile; as `load_weights`
    // it returns whether this thread saw a special one.
    //
    //     from an odd element on      head e0 | e1 e2 | e3 e4 | e5 e6 | tail e7
    //     from an even one, 5 left            | e0 e1 | e2 e3 | tail e4
    __device__ bool shift_chunks(const Tile& tile) const {
        constexpr int TOGETHER = 3;  // chunks of a thread that are on their way
        const int chunks = int(p.chunks), all = int(p.runs_of_tile), teams = quotient(THREADS, p.per_chunks);
        const int team = quotient(thread, p.per_chunks), offset = (thread - team * chunks) * CHUNK;
        const int size = int(p.axis[2].taps.size_in), end = end_of_lines(tile);
        bool special = false;
        int first = team < teams ? team : all;
#pragma unroll 1
        for (bool begins = true; begins || first < all; begins = false, first += TOGETHER * teams) {
            unsigned words[TOGETHER][4] = {};
            unsigned short head[TOGETHER] = {}, tail[TOGETHER] = {};
            int place[TOGETHER], count[TOGETHER], odd[TOGETHER];
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                const int i = first + u * teams;
                const Run run = runs[i < all ? i : 0];
                const int x = run.x + offset, left = size - x < CHUNK ? size - x : CHUNK;  // x is a multiple of a chunk
                const unsigned short* const from = (const unsigned short*)run.source + offset;
                place[u] = i < all ? run.place + offset : -1;
                count[u] = (i < all) & (x >= 0) & (x < end) ? left : 0;
                odd[u] = int((unsigned long long)from / 2 % 2);
                const unsigned* const word = (const unsigned*)(from + odd[u]);
#pragma unroll
                for (int w = 0; w < 4; ++w) load_bits(words[u][w], word + w, odd[u] + 2 * w + 1, count[u]);
                load_bits(head[u], from, 0, odd[u] ? count[u] : 0);
                load_bits(tail[u], from + count[u] - 1, 0, count[u] ? (count[u] - odd[u]) % 2 : 0);
            }
            if (begins) special = load_weights(tile);
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                Chunk chunk;
                unsigned before = unsigned(head[u]) << 16;
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    unsigned word = words[u][w];
                    if (odd[u] + 2 * w + 1 == count[u]) word = tail[u];
                    chunk.values[w] = odd[u] ? byte_select(before, word, 0x5432) : word;
                    before = word;
                }
                if (place[u] >= 0) *(Chunk*)(inputs + place[u]) = chunk;
            }
        }
        return special;
    }

    // Adds the products of one output in each line, tap by tap; MASKED leaves absent inputs out. The
    // input of the first tap has these coordinates.
    template <bool MASKED>
    __device__ void gather(Accumulator (&sum)[LINES], const Accumulator* weight, const Element* input,
                           const Taps& tz, const Taps& ty, const Taps& tx, int z0, int y0, int x0) const {
        const int height = int(p.axis[1].taps.kernel), width = int(p.axis[2].taps.kernel);
        const int pitch = int(p.line_pitch);
        for (int jz = 0; jz < tz.count; ++jz)
            for (int jy = 0; jy < ty.count; ++jy)
                for (int jx = 0; jx < tx.count; ++jx) {
                    const int line = (tz.first + jz * tz.step) * height + ty.first + jy * ty.step;
                    const Accumulator w = weight[line * width + tx.first + jx * tx.step];
                    const int z = jz * int(p.axis[0].apart), y = jy * int(p.axis[1].apart),
                              x = jx * int(p.axis[2].apart);
                    const Element* own = input + z * int(p.axis[0].pitch) + y * int(p.axis[1].pitch) + x;
#pragma unroll
                    for (int r = 0; r < LINES; ++r) {
                        const bool present =
                            (unsigned(z0 + z) < unsigned(p.axis[0].taps.size_in)) &
                            (unsigned(y0 + y + r * int(p.line_place[0])) < unsigned(p.axis[1].taps.size_in)) &
                            (unsigned(x0 + x + r * int(p.line_place[1])) < unsigned(p.axis[2].taps.size_in));
                        if (!MASKED || present) sum[r] = multiply_add(w, widen<Accumulator>(own[r * pitch]), sum[r]);
                    }
                }
    }

    // The inputs that TAPS taps of two neighbouring outputs take. They are read as pairs; where the
    // first one is the second of a pair (SKEW), that is one more.
    struct Window {
        Accumulator values[TAPS + 3];
    };
    template <int SKEW>
    __device__ static void read(Window& window, const Element* first) {
#pragma unroll
        for (int i = 0; i < TAPS + 1 + SKEW; i += 2) {
            const Pair pair = *(const Pair*)(first - SKEW + i);
            window.values[i] = widen<Accumulator>(pair.values[0]);
            window.values[i + 1] = widen<Accumulator>(pair.values[1]);
        }
    }

    // Adds the products of two neighbouring outputs in each line, by windows that slide down. All phases
    // are one here, so the weights lie in the order in which they are taken.
    template <int SKEW>
    __device__ void slide(Accumulator (&sum)[2][LINES], const Accumulator* weight, const Element* input) const {
        const int height = int(p.axis[1].taps.kernel), pitch = int(p.line_pitch);
        int z = int(p.axis[0].taps.kernel);
        do {
            const Element* next = input;
            Window window[LINES];
#pragma unroll
            for (int r = 0; r < LINES - 1; ++r, next += pitch) read<SKEW>(window[r], next);
            int left = height;
            do {
                // Unrolled, so that each window is in registers of its own.
#pragma unroll
                for (int u = 0; u < LINES; ++u, next += pitch, weight += TAPS) {
                    if (left == 0) break;
                    --left;
                    read<SKEW>(window[(u + LINES - 1) % LINES], next);
#pragma unroll
                    for (int x = 0; x < TAPS; ++x) {
                        const Accumulator w = weight[x];
#pragma unroll
                        for (int r = 0; r < LINES; ++r)
#pragma unroll
                            for (int v = 0; v < 2; ++v)
                                sum[v][r] = multiply_add(
                                    w, window[(u + r) % LINES].values[SKEW + x + v], sum[v][r]);
                    }
                }
            } while (left > 0);
            input += int(p.axis[0].apart) * int(p.axis[0].pitch);
        } while (--z > 0);
    }

    // Whether a row and channel has a weight that is not finite.
    __device__ bool is_masked(const Accumulator* weight) const {
        bool special = false;
#pragma unroll 1
        for (int i = 0; i < int(p.taps); ++i) special |= is_special(weight[i]);
        return special;
    }

    // ---- by matrix units ----

    // Half is the element's type: the code below is there for those of 16 bits alone.

    // Computes the outputs of a tile but those of weights that are not finite. Warps take bands of 16 lines in turn.
    template <typename Half>
    __device__ void multiply(const Tile& tile, bool special) const {
        const int left = int(p.axis[2].taps.size_out) - tile.position[2], all = int(p.strips);
        const int width = left < int(p.axis[2].tile) ? left : int(p.axis[2].tile);
        int x = thread / 32 * WIDE, strip = 0, first = 0, plane = 0, own = 0;
        for (;; x += THREADS / 32 * WIDE) {
            while (x >= width) {
                x -= (width + WIDE - 1) / WIDE * WIDE;
                strip += STRIPS;
                if (strip < all) continue;
                strip = 0, first += all;
                if (first >= int(p.strips_of_tile)) return;
                if (++plane == int(p.axis[0].tile)) plane = 0, ++own;
            }
            const Strip* const strips_of_band = strips + first + strip;
            const Accumulator* const weight = weights + strips_of_band->weights;
            if (strips_of_band->lines == 0 || (special && is_masked(weight))) continue;
            multiply<Half>(strips_of_band, all - strip < STRIPS ? all - strip : STRIPS,
                           diagonals + own * lines_of_taps() * 2 * DIAGONAL, weight, x, width);
        }
    }

    static constexpr int TILES = WIDE / 8;  // of 8 outputs
    typedef float Sums[TILES][4];

    // Adds the products of a line of taps; to one number, if it is the FIRST one. Eight outputs take two blocks of 8
    // inputs, or three.
    template <typename Half, bool FIRST>
    __device__ __forceinline__ static void add_line(Sums& sum, const Element* from, const Element* taps, bool further,
                                                    float number) {
        const float start[4] = {number, number, number, number};
        unsigned weights[3], blocks[TILES + 2][2];
#pragma unroll
        for (int i = 0; i < 3; ++i) weights[i] = *(const unsigned*)(taps + i * 8);
#pragma unroll
        for (int j = 0; j < TILES + 2; j += 2) {
            unsigned two[4];
            load_matrices<false>(two, from + j * 8);
#pragma unroll
            for (int i = 0; i < 4; ++i) blocks[j + i / 2][i % 2] = two[i];
        }
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            if (FIRST)
                mma(sum[j], blocks[j], weights[0], start, Half());
            else
                mma(sum[j], blocks[j], weights[0], sum[j], Half());
            mma(sum[j], blocks[j + 1], weights[1], sum[j], Half());
            if (further) mma(sum[j], blocks[j + 2], weights[2], sum[j], Half());
        }
    }

    // 64 outputs, from x on, of as many strips as a band has.
    template <typename Half>
    __device__ void multiply(const Strip* own, int count, const Element* diagonal, const Accumulator* weight, int x,
                             int width) const {
        const int lane = thread % 32, g = lane / 4, t = lane % 4, pitch = int(p.line_pitch), skew = int(p.skew);
        // A lane has the address of a line, which is the first one's where there is none.
        const int line = lane % BAND;
        const Strip& strip = own[line / LINES < count ? line / LINES : 0];
        const Element* plane = inputs + (strip.input - skew + line % LINES * pitch + lane / BAND * 8 + x);
        // Of its column the weights for two neighbouring inputs.
        const int place = MARGIN + 2 * t - g - skew;
        const Element* taps = diagonal + place + (place % 2) * (DIAGONAL - 1);
        const bool further = skew + int(p.axis[2].taps.kernel) > 9;  // than two blocks of 8 inputs
        Sums sum;
        add_line<Half, true>(sum, plane, taps, further, weight[int(p.taps)]);
        const int64 next_plane = p.axis[0].apart * p.axis[0].pitch;
        for (int z = 0, y = 1; z < int(p.axis[0].taps.kernel); ++z, y = 0, plane += next_plane)
            for (const Element* from = plane + y * pitch; y < int(p.axis[1].taps.kernel); ++y, from += pitch)
                add_line<Half, false>(sum, from, taps += 2 * DIAGONAL, further, 0);
        // They pass through the warp's buffer strip by strip, so that stores run along lines.
#pragma unroll
        for (int i = 0; i < STRIPS; ++i) {
            if (i >= count) break;
#pragma unroll
            for (int j = 0; j < TILES; ++j)
                band[g * BAND_PITCH + j * 4 + t] = pair_of(sum[j][2 * i], sum[j][2 * i + 1], Half());
            __syncwarp();
            empty<Half>(own[i], weight, x + 2 * lane, width);
            __syncwarp();
        }
    }
    __device__ static void mma(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4], float16) {
        mma_float16(d, a, b, c);
    }
    __device__ static void mma(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4], bfloat16) {
        mma_bfloat16(d, a, b, c);
    }

    // Stores two columns of a strip from the warp's buffer. A zero of the right operand and an input that is not finite
    // are NaN, so outputs that are not finite are computed again.
    template <typename Half>
    __device__ __forceinline__ void empty(const Strip& strip, const Accumulator* weight, int column, int width) const {
        if (column >= width) return;
        const int lines = strip.lines;
        unsigned* const from = band + thread % 32;
        unsigned pairs[LINES], largest = 0;
#pragma unroll
        for (int r = 0; r < LINES; ++r) {
            pairs[r] = from[r * BAND_PITCH];
            largest = larger_of(largest, pairs[r], Half());
        }
        if (has_special(largest, Half())) {
#pragma unroll 1
            for (int r = 0; r < lines; ++r) {
                unsigned& pair = from[r * BAND_PITCH];
                if (has_special(pair, Half())) pair = again<Half>(pair, strip, r, weight, column);
            }
#pragma unroll
            for (int r = 0; r < LINES; ++r) pairs[r] = from[r * BAND_PITCH];
        }
        Element* out = p.out + strip.out + column * p.axis[2].out;
        if (p.pairs && column + 1 < width) {
#pragma unroll
            for (int r = 0; r < LINES; ++r, out += p.line_out) store_bits((unsigned*)out, pairs[r], r < lines);
            return;
        }
#pragma unroll
        for (int r = 0; r < LINES; ++r, out += p.line_out) {
            if (r >= lines) break;
            *(unsigned short*)out = (unsigned short)pairs[r];
            if (column + 1 < width) *(unsigned short*)(out + p.axis[2].out) = (unsigned short)(pairs[r] >> 16);
        }
    }
    __device__ static unsigned larger_of(unsigned a, unsigned b, float16) { return float16_magnitudes_or_nan(a, b); }
    __device__ static unsigned larger_of(unsigned a, unsigned b, bfloat16) { return bfloat16_magnitudes_or_nan(a, b); }
    // Whether an exponent has all bits set: not zero.
    __device__ static unsigned has_special(unsigned pair, float16) {
        return ((pair & 0x7fff7fffu) + 0x04000400u) & 0x80008000u;
    }
    __device__ static unsigned has_special(unsigned pair, bfloat16) {
        return ((pair & 0x7fff7fffu) + 0x00800080u) & 0x80008000u;
    }
    template <typename Half>
    __device__ __noinline__ unsigned again(unsigned pair, const Strip& strip, int r, const Accumulator* weight,
                                           int column) const {
        Accumulator sum[2];
        for (int v = 0; v < 2; ++v) {
            sum[v] = weight[int(p.taps)];
            const Element* const input = inputs + (strip.input + r * int(p.line_pitch) + column + v);
            const Accumulator* w = weight;
            for (int z = 0; z < int(p.axis[0].taps.kernel); ++z)
                for (int y = 0; y < int(p.axis[1].taps.kernel); ++y)
                    for (int x = 0; x < int(p.axis[2].taps.kernel); ++x, ++w) {
                        const Element* const from = input + z * int(p.axis[0].apart * p.axis[0].pitch) +
                                                    y * int(p.axis[1].pitch) + x;
                        sum[v] = multiply_add(*w, widen<Accumulator>(*from), sum[v]);
                    }
        }
        // A finite one of the two keeps its bits.
        const unsigned both = pair_of(sum[0], sum[1], Half());
        const unsigned mask = (has_special(pair, Half()) >> 15) * 0xffffu;
        return (both & mask) | (pair & ~mask);
    }

    // Computes the outputs of a tile, of which a thread stays in two columns. Where taps do not SLIDE,
    // weights may be `special`.
    template <bool SLIDE>
    __device__ void convolve(const Tile& tile, int start, bool special) const {
        const Axis& ax = p.axis[2];
        const int columns = int(p.columns), teams = quotient(THREADS, p.per_columns);
        const int team = quotient(thread, p.per_columns), column = thread - team * columns;
        if (team >= teams) return;
        const int apart = SLIDE ? 1 : columns, x_first = SLIDE ? 2 * column : column;
        const int left = int(ax.taps.size_out) - tile.position[2] * int(ax.taps.phases) - x_first;
        // Lines that exist in each column.
        int most[2];
#pragma unroll
        for (int v = 0; v < 2; ++v) {
            most[v] = left > v * apart ? LINES : 0;
            if (p.section && most[v] && left - v * apart <= LINES * int(p.section))
                most[v] = quotient(left - v * apart + int(p.section) - 1, p.per_section);
        }
        const int64 first = x_first * ax.out, second = apart * ax.out;

        for (int i = team; i < int(p.strips_of_tile); i += teams) {
            const Strip strip = strips[i];
            const int count[2] = {strip.lines < most[0] ? strip.lines : most[0],
                                  strip.lines < most[1] ? strip.lines : most[1]};
            if (count[0] == 0) continue;
            const Accumulator* const weight = weights + strip.weights;
            const Element* const input = inputs + strip.input;
            const Accumulator bias = weight[int(p.taps)];
            Accumulator sum[2][LINES];
#pragma unroll
            for (int r = 0; r < LINES; ++r) sum[0][r] = sum[1][r] = bias;
            if (SLIDE) {
                if (start % 2)
                    slide<1>(sum, weight, input + x_first);
                else
                    slide<0>(sum, weight, input + x_first);
            } else {
                const bool masked = special && is_masked(weight);
                if (MATRIX && !masked) continue;
                const Taps tz = shared.taps[0][strip.phases[0]], ty = shared.taps[1][strip.phases[1]];
#pragma unroll 1
                for (int v = 0; v < 2; ++v) {
                    const int qx = quotient(x_first + v * apart, p.per_phases);
                    const Taps tx = shared.taps[2][x_first + v * apart - qx * int(ax.taps.phases)];
                    const int ix = qx * int(ax.taps.step) + tx.offset;
                    // The columns change places, so that all sums are in registers.
#pragma unroll
                    for (int r = 0; r < LINES; ++r) {
                        const Accumulator done = sum[1][r];
                        sum[1][r] = sum[0][r];
                        sum[0][r] = done;
                    }
                    if (masked)
                        gather<true>(sum[1], weight, input + ix, tz, ty, tx, strip.place[0], strip.place[1],
                                     tile.first(p, 2) + ix);
                    else
                        gather<false>(sum[1], weight, input + ix, tz, ty, tx, 0, 0, 0);
                }
            }
            Element* out = p.out + (strip.out + first);
            if (SLIDE && p.pairs && count[1] == LINES) {
#pragma unroll
                for (int r = 0; r < LINES; ++r, out += p.line_out)
                    *(BitsOf<2 * sizeof(Element)>::type*)out = pair_of(sum[0][r], sum[1][r], Element());
            } else {
#pragma unroll
                for (int r = 0; r < LINES; ++r, out += p.line_out) {
                    if (r < count[0]) out[0] = narrow<Element>(sum[0][r]);
                    if (r < count[1]) out[second] = narrow<Element>(sum[1][r]);
                }
            }
        }
    }
};

__device__ inline Taps ascending_taps(const Axis& axis, int phase) {
    const Progression<int> found = progression(axis.taps, phase);
    if (found.count == 0) return {0, 0, 0, 0};
    const AxisTaps& taps = axis.taps;
    const int64 last = found.first + (found.count - 1) * taps.tap_step;
    if (taps.offset_step >= 0)
        return {int(found.first), int(taps.tap_step), int(found.count), int(found.offset - axis.low)};
    return {int(taps.kernel - 1 - last), int(taps.tap_step), int(found.count),
            int(found.offset + (found.count - 1) * taps.offset_step - axis.low)};
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    depthwise_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const int thread = threadIdx.x, a = thread / MAX_PHASES, phase = thread % MAX_PHASES;
    // On matrix units there is one phase, whose taps begin with the first input.
    if (a < 3 && phase < int(p.axis[a].taps.phases))
        ((Shared*)memory)->taps[a][phase] =
            MATRIX ? Taps{0, 1, int(p.axis[a].taps.kernel), 0} : ascending_taps(p.axis[a], phase);
    const Worker worker(p, memory);
    if (BULK_COPIES && p.whole && thread == 0) {
        mbarrier_init(worker.lines_there, int(p.whole));
        mbarrier_init_fence();
    }
    if (MATRIX) worker.clear_diagonals();
    __syncthreads();

    for (int turn = 0; blockIdx.x + turn * gridDim.x < unsigned(p.tiles); ++turn) {
        const Tile tile(p, blockIdx.x + turn * gridDim.x);
        const int start = worker.start_of(tile);
        const bool whole = BULK_COPIES && p.whole;
        if (whole) {
            if (turn > 0) async_proxy_fence();  // behind its own zeros: a line keeps its thread and place
            worker.copy_lines(tile, start);
        } else {
            worker.describe_runs(tile, start);
        }
        worker.describe_strips(tile, start);
        bool own = false;
        if (!whole) {
            __syncthreads();
            if (MATRIX && p.vectors == ANYWHERE)
                own = worker.shift_chunks(tile);
            else if (p.vectors)
                worker.stage<CHUNK>(tile);
            else
                worker.stage<1>(tile);
        }
        if (!MATRIX || p.vectors != ANYWHERE) own = worker.load_weights(tile);  // while inputs are on their way
        if (whole)
            mbarrier_wait(worker.lines_there, turn % 2);
        else
            copy_async_wait<0>();
        const bool special = __syncthreads_or(own);
        if constexpr (MATRIX) {
            worker.multiply<Element>(tile, special);
            if (special) worker.convolve<false>(tile, start, true);
        } else if (p.slides && !special)
            worker.convolve<true>(tile, start, false);
        else
            worker.convolve<false>(tile, start, special);
        __syncthreads();  // before the next tile is described
    }
}
