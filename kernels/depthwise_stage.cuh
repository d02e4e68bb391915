// Producer of the depthwise kernel: it copies the inputs of a tile, with the halo that taps reach, and its
// weights to shared memory.
//
// Lines of inputs come in one of four ways, which the host and the alignment of the array choose:
//
//     BulkProducer      one bulk copy per line, where lines of the array are whole chunks (compute capability 9.0)
//     ChunkProducer     cp.async copies of aligned 16-byte chunks, or of single elements
//     (its registers)   single elements of two bytes, which cp.async cannot copy
//     WordProducer      chunks that begin anywhere, shifted into aligned ones, for Tensor Cores
//
// Where the convolution has a padding mode, the places outside of the array are filled afterwards.
#pragma once
#include "depthwise_tile.cuh"

// ---- where staged lines lie ----

// The staged lines of a tile, in shared memory and in the array.
struct StagedLines {
    const Arguments& p;
    const SharedMemory& memory;
    const Tile& tile;
    const int start;  // index of the first input of the first line

    __device__ StagedLines(const Arguments& p, const SharedMemory& memory, const Tile& tile)
        : p(p), memory(memory), tile(tile), start(first_index()) {}

    // The address of the first staged input, of a sample and channel that exist.
    __device__ const Element* origin() const {
        return p.input + tile.sample * p.input_batch + tile.channel * p.input_group +
               tile.first(p, 0) * p.axis[0].input + tile.first(p, 1) * p.axis[1].input +
               tile.first(p, 2) * p.axis[2].input;
    }

    // An input is as far from an aligned chunk in shared memory as it is in the array. Tensor Cores read lines that
    // are skewed by a constant instead.
    __device__ int first_index() const {
        const int width = p.vectors ? CHUNK : 1;
        return TENSOR_CORES ? int(p.skew) : int((unsigned long long)origin() / sizeof(Element)) & (width - 1);
    }

    // The run of a staged line that begins `further` elements after the first chunk of the line.
    __device__ __forceinline__ Run run_at(int line, int further) const {
        const int depth = int(p.axis[0].extent), height = int(p.axis[1].extent);
        const int plane = quotient(line, p.per_extent[1]), y = line - plane * height;
        const int channel = quotient(plane, p.per_extent[0]), z = plane - channel * depth;
        const int place = start + channel * int(p.channel_pitch) + z * int(p.axis[0].pitch) +
                          y * int(p.axis[1].pitch);
        // Distance from the first input of the line.
        const int x = further - (place & (TENSOR_CORES || p.vectors ? CHUNK - 1 : 0));
        const bool present = tile.exists(p, 0, channel) &
                             (unsigned(tile.first(p, 0) + z) < unsigned(p.axis[0].taps.size_in)) &
                             (unsigned(tile.first(p, 1) + y) < unsigned(p.axis[1].taps.size_in));
        return {origin() + channel * p.input_group + z * p.axis[0].input + y * p.axis[1].input + x * p.axis[2].input,
                place + x, present ? tile.first(p, 2) + x : ABSENT};
    }

    __device__ __forceinline__ void describe_runs() const {
        const int width = int(p.chunks) * (p.vectors ? CHUNK : 1);
        for (int i = threadIdx.x; i < int(p.runs_of_tile); i += THREADS) {
            const int line = quotient(i, p.per_runs);
            memory.runs[i] = run_at(line, (i - line * int(p.runs)) * width);
        }
    }

    // The end along x of the inputs that the tile needs and the array has.
    __device__ int end() const {
        const int size = int(p.axis[2].taps.size_in), reach = tile.first(p, 2) + int(p.axis[2].extent);
        return reach < 0 ? 0 : reach < size ? reach : size;
    }
};

// ---- one bulk copy per line ----

// Stages lines that are whole chunks in the array. One thread has a line: it issues one copy of the chunks that the
// array has, and stores zeros for the others.
//
//     line    | 0 0 0 0 | # # # # | # # # # | # # # # | 0 0 0 0 |       chunks of 4 float32
//             0         from                          to        all
struct BulkProducer {
    const StagedLines& lines;

    __device__ __forceinline__ void copy() const {
        const Arguments& p = lines.p;
        mbarrier* const there = lines.memory.lines_there;
        const int all = int(p.chunks) * int(p.runs), end = (lines.end() + CHUNK - 1) / CHUNK;
        // The lines go around the warps, because the threads of one warp issue their copies one after the other.
        for (int line = threadIdx.x % 32 * WARPS + threadIdx.x / 32; line < int(p.whole); line += THREADS) {
            const Run run = lines.run_at(line, 0);
            const int first = run.x / CHUNK;  // without a remainder
            int from = first < 0 ? -first : 0, to = end - first;
            if (from > all) from = all;
            if (to > all) to = all;
            if (to < from) to = from;
            Chunk* const chunks = (Chunk*)(lines.memory.inputs + run.place);
            mbarrier_arrive_expect(there, (to - from) * 16);
            if (from < to) bulk_copy(chunks + from, run.source + from * CHUNK, (to - from) * 16, there);
#pragma unroll 1
            for (int i = 0; i < all; ++i) {
                if (i == from) i = to;
                if (i < all) chunks[i] = {};
            }
        }
    }
};

// ---- chunks ----

// A thread's place in the runs of a tile: it copies the same chunk of every `runs`-th run.
struct ChunkThread {
    int runs;   // runs that the block copies at a time
    int first;  // the thread's first run
    int chunk;  // its chunk in each run

    __device__ explicit ChunkThread(const Arguments& p) {
        runs = quotient(THREADS, p.per_chunks);
        first = quotient(threadIdx.x, p.per_chunks);
        chunk = int(threadIdx.x) - first * int(p.chunks);
    }
    __device__ bool is_idle() const { return first >= runs; }
};

// Stages the inputs in chunks of WIDTH elements.
template <int WIDTH>
struct ChunkProducer {
    static constexpr int BYTES = WIDTH * sizeof(Element);
    static constexpr int UNROLL = 4;  // elements of two bytes that a thread loads at a time

    const StagedLines& lines;

    __device__ __forceinline__ void copy() const {
        const Arguments& p = lines.p;
        const ChunkThread thread(p);
        if (thread.is_idle()) return;
        const int offset = thread.chunk * WIDTH;
        const int64 distance = WIDTH == 1 ? offset * p.axis[2].input : offset;  // the same in the array
        if constexpr (BYTES >= 4)
            copy_asynchronously(thread, offset, distance);
        else
            copy_by_registers(thread, offset, distance);
    }

    // Issues all copies of the thread before it waits for any.
    __device__ __forceinline__ void copy_asynchronously(const ChunkThread& thread, int offset, int64 distance) const {
        const Arguments& p = lines.p;
        const int size = int(p.axis[2].taps.size_in), end = lines.end();
        const int whole = size < WIDTH ? 0 : size - WIDTH + 1 < end ? size - WIDTH + 1 : end;
        for (int i = thread.first; i < int(p.runs_of_tile); i += thread.runs) {
            const Run run = lines.memory.runs[i];
            const int x = run.x + offset;
            Element* const to = lines.memory.inputs + (run.place + offset);
            const bool present = unsigned(x) < unsigned(whole);
            // Chunks for Tensor Cores begin at multiples of CHUNK, so none lies across an end of the array.
            const bool across = WIDTH > 1 && !TENSOR_CORES && !present &&
                                unsigned(x + WIDTH - 1) < unsigned(end + WIDTH - 1);
            if (across) {
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)
                    to[e] = unsigned(x + e) < unsigned(size) ? run.source[distance + e] : Element();
            } else {
                copy_async<BYTES>(to, present ? run.source + distance : p.input, present ? BYTES : 0);
            }
        }
        copy_async_commit();
    }

    // Loads several elements, then stores them.
    __device__ __forceinline__ void copy_by_registers(const ChunkThread& thread, int offset, int64 distance) const {
        typedef typename BitsOf<sizeof(Element)>::type Bits;
        const int all = int(lines.p.runs_of_tile), end = lines.end();
        for (int first = thread.first; first < all; first += UNROLL * thread.runs) {
            Bits loaded[UNROLL];
            int place[UNROLL];
            // All registers become zero before the first load: a zero between two loads could make the second load
            // wait for the first one.
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) loaded[u] = Bits();
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const int i = first + u * thread.runs;
                const Run run = lines.memory.runs[i < all ? i : first];
                place[u] = run.place + offset;
                load_bits(loaded[u], (const Bits*)(run.source + distance), 0, unsigned(run.x + offset) < unsigned(end));
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                if (first + u * thread.runs < all) *(Bits*)(lines.memory.inputs + place[u]) = loaded[u];
        }
    }
};

// ---- chunks that begin anywhere ----

// Stages 16-bit lines that begin anywhere as aligned chunks, for Tensor Cores. A thread loads a chunk as words of two
// elements. If the chunk begins at an odd element, that element is loaded alone, and so is a last element without a
// neighbour.
//
//     from an odd element on                     head e0 | e1 e2 | e3 e4 | e5 e6 | tail e7
//     from an even one, where 5 elements remain          | e0 e1 | e2 e3 | tail e4
struct WordProducer {
    static constexpr int UNROLL = 3;  // chunks that a thread loads at a time

    const StagedLines& lines;

    // Calls `meanwhile` once, between the first loads and the first stores.
    template <typename Work>
    __device__ __forceinline__ void copy(const Work& meanwhile) const {
        const Arguments& p = lines.p;
        const ChunkThread thread(p);
        const int all = int(p.runs_of_tile), offset = thread.chunk * CHUNK;
        const int size = int(p.axis[2].taps.size_in), end = lines.end();
        int first = thread.is_idle() ? all : thread.first;
#pragma unroll 1
        for (bool begins = true; begins || first < all; begins = false, first += UNROLL * thread.runs) {
            unsigned words[UNROLL][4] = {};
            unsigned short head[UNROLL] = {}, tail[UNROLL] = {};
            int place[UNROLL], count[UNROLL], odd[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const int i = first + u * thread.runs;
                const Run run = lines.memory.runs[i < all ? i : 0];
                const int x = run.x + offset, left = size - x < CHUNK ? size - x : CHUNK;  // x is a multiple of CHUNK
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
            if (begins) meanwhile();
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                Chunk chunk;
                unsigned before = unsigned(head[u]) << 16;
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    unsigned word = words[u][w];
                    if (odd[u] + 2 * w + 1 == count[u]) word = tail[u];
                    chunk.values[w] = odd[u] ? byte_select(before, word, 0x5432) : word;
                    before = word;
                }
                if (place[u] >= 0) *(Chunk*)(lines.memory.inputs + place[u]) = chunk;
            }
        }
    }
};

// ---- weights ----

struct WeightProducer {
    const Arguments& p;
    const SharedMemory& memory;

    // The kernel's tap at a place in the order of inputs.
    __device__ int tap_at(int a, int place) const {
        const AxisTaps& taps = p.axis[a].taps;
        return taps.offset_step < 0 ? int(taps.kernel) - 1 - place : place;
    }

    // Loads the weights of a tile, with the bias after the last tap; returns true if one of this thread's weights is
    // not finite.
    __device__ __forceinline__ bool load(const Tile& tile) const {
        const int taps = int(p.taps), values = int(p.rows_of_tile) * int(p.channels) * (taps + 1);
        bool special = false;
        for (int i = threadIdx.x; i < values; i += THREADS) {
            const int row_and_channel = quotient(i, p.per_values), tap = i - row_and_channel * (taps + 1);
            const int row = quotient(row_and_channel, p.per_channels);
            const int channel = row_and_channel - row * int(p.channels);
            const int line = quotient(tap, p.per_width), x = tap - line * int(p.axis[2].taps.kernel);
            const int z = quotient(line, p.per_height), y = line - z * int(p.axis[1].taps.kernel);
            const int64 group = tile.channel + channel, in_group = tile.row + row;
            Accumulator value = zero<Accumulator>();
            if (tap == taps && p.bias.data && tile.exists(p, row, channel))
                value = load_parameter<Accumulator>(p.bias, group * p.rows + in_group);
            if (tap < taps && tile.exists(p, row, channel)) {
                value = widen<Accumulator>(p.weight[group * p.weight_group + in_group * p.weight_row +
                                                    tap_at(0, z) * p.axis[0].weight +
                                                    tap_at(1, y) * p.axis[1].weight +
                                                    tap_at(2, x) * p.axis[2].weight]);
                special |= is_special(value);
            }
            memory.weights[i] = value;
            if (TENSOR_CORES && tap < taps) {
                const int lines = row_and_channel * SharedMemory::lines_of_taps(p) + line;
                put_on_diagonal(memory.diagonals + lines * 2 * DIAGONAL, x, narrow<Element>(value));
            }
        }
        return special;
    }

    // Zeros the diagonals; `load` writes only the weights on them.
    __device__ void clear_diagonals() const {
        const int all = SharedMemory::lines_of_taps(p) * int(p.rows_of_tile * p.channels) * 2 * DIAGONAL;
        for (int i = threadIdx.x; i < all; i += THREADS) memory.diagonals[i] = Element();
    }
};

// ---- borders ----

// Some of the staged positions of an axis: those inside of the array, those outside at both ends, or all.
struct Positions {
    int count, first, before_gap, gap;

    __device__ int at(int number) const { return first + number + (number < before_gap ? 0 : gap); }
};

// The staged positions of an axis, from the first one's coordinate on.
struct StagedAxis {
    int first, size, extent, before, inside;

    __device__ StagedAxis(const Arguments& p, const Tile& tile, int a)
        : first(tile.first(p, a)), size(int(p.axis[a].taps.size_in)), extent(int(p.axis[a].extent)) {
        const int end = size - first < extent ? size - first : extent;
        before = first < 0 ? (-first < extent ? -first : extent) : 0;
        inside = end > before ? end - before : 0;
    }
    __device__ Positions all() const { return {extent, 0, extent, 0}; }
    __device__ Positions within() const { return {inside, before, inside, 0}; }
    __device__ Positions outside() const { return {extent - inside, 0, before, inside}; }
};

// Puts what a border mode shows in the staged places outside of the array: in whole planes, in lines of the other
// planes, and in the ends of the other lines. It is inlined, because a call would make the kernel spill registers.
__device__ __forceinline__ void stage_borders(const Arguments& p, const SharedMemory& memory, const Tile& tile,
                                              int start) {
    // Elements that a thread loads at a time: as many as there are registers for.
    constexpr int UNROLL = TENSOR_CORES ? 1 : sizeof(Element) < 4 ? 2 : 4;
    const StagedAxis z(p, tile, 0), y(p, tile, 1), x(p, tile, 2);
    const int left = int(p.groups) - tile.channel, channels = left < int(p.channels) ? left : int(p.channels);
    const Element* const origin = p.input + tile.sample * p.input_batch + tile.channel * p.input_group;
    const int in_planes = channels * (z.extent - z.inside) * y.extent * x.extent;
    const int in_lines = channels * z.inside * (y.extent - y.inside) * x.extent;
    const int count = in_planes + in_lines + channels * z.inside * y.inside * (x.extent - x.inside);
    for (int first = threadIdx.x; first < count; first += UNROLL * THREADS) {
        Element values[UNROLL];
        int to[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            int rest = first + u * THREADS;
            if (rest >= count) break;
            const bool in_plane = rest < in_planes, in_line = !in_plane && rest < in_planes + in_lines;
            rest -= in_plane ? 0 : in_line ? in_planes : in_planes + in_lines;
            const Positions planes = in_plane ? z.outside() : z.within();
            const Positions lines = in_plane ? y.all() : in_line ? y.outside() : y.within();
            const Positions places = in_plane || in_line ? x.all() : x.outside();
            const int at_x = places.at(take_rest(rest, places.count)), at_y = lines.at(take_rest(rest, lines.count));
            const int at_z = planes.at(take_rest(rest, planes.count));  // the rest is the channel
            to[u] = start + rest * int(p.channel_pitch) + at_z * int(p.axis[0].pitch) +
                    at_y * int(p.axis[1].pitch) + at_x;
            values[u] = origin[rest * p.input_group + border_index(z.first + at_z, z.size, p.border) * p.axis[0].input +
                               border_index(y.first + at_y, y.size, p.border) * p.axis[1].input +
                               border_index(x.first + at_x, x.size, p.border) * p.axis[2].input];
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS < count) memory.inputs[to[u]] = values[u];
    }
}

// ---- the producer ----

// Stages inputs and weights of a tile in the way that the arguments name.
struct Producer {
    const Arguments& p;
    const SharedMemory& memory;

    // True if each line is one bulk copy.
    __device__ bool in_bulk() const { return BULK_COPIES && p.whole; }

    // Prepares shared memory before the first tile.
    __device__ __forceinline__ void begin() const {
        if (in_bulk() && threadIdx.x == 0) {
            mbarrier_init(memory.lines_there, int(p.whole));
            mbarrier_init_fence();
        }
        if constexpr (TENSOR_CORES) WeightProducer{p, memory}.clear_diagonals();
    }

    // Describes tile number `turn` of the block, stages it, and waits until all of it is there. Returns true if one of
    // the tile's weights is not finite.
    __device__ __forceinline__ bool stage(const StagedLines& lines, int turn) const {
        const WeightProducer weights{p, memory};
        bool special = false;
        if (in_bulk()) {
            // The fence orders a thread's zeros of the last tile before its copies: a line keeps its thread and place.
            if (turn > 0) async_proxy_fence();
            BulkProducer{lines}.copy();
        } else {
            lines.describe_runs();
        }
        describe_strips(p, memory, lines.tile, lines.start);
        if (!in_bulk()) {
            __syncthreads();  // after the description of runs
            if (TENSOR_CORES && p.vectors == ANYWHERE)
                WordProducer{lines}.copy([&] { special = weights.load(lines.tile); });
            else if (p.vectors)
                ChunkProducer<CHUNK>{lines}.copy();
            else
                ChunkProducer<1>{lines}.copy();
        }
        // Weights are loaded while inputs are under way.
        if (!TENSOR_CORES || p.vectors != ANYWHERE) special = weights.load(lines.tile);
        if (in_bulk())
            mbarrier_wait(memory.lines_there, turn % 2);
        else
            copy_async_wait<0>();
        special = __syncthreads_or(special);
        if (p.border && lines.tile.reaches_out(p)) {
            stage_borders(p, memory, lines.tile, lines.start);
            if (in_bulk()) async_proxy_fence();  // before the copies of the next tile
            __syncthreads();
        }
        return special;
    }
};
