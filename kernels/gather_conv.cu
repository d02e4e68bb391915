// The gathering kernel: convolutions of one input channel for each group on one to three axes, with strides, or of
// images that are small or oddly wide. depthwise_conv.cu computes the others.
//
//     out[n, g, row, o] = bias[g, row] + sum over taps of in[n, g, i(o, tap)] * w[g, row, tap]
//
// where i(o, tap) = o * step + low + tap * apart, and taps whose input lies outside of the array contribute
// nothing, whatever the weight. Taps are numbered as their inputs ascend.
//
// A tile is a band of outputs, along the first axis, of some output channels. Its inputs are contiguous in each
// channel, without a halo, so they are copied to shared memory unchanged, in one piece. Contiguous whole channels are
// one piece together.
//
//     input of a channel            shared memory             outputs
//     +-------------------+
//     |                   |         +---------------+         +-----------+
//     +-------------------+  -->    | channel 0     |  -->    | band      |    a thread has a position,
//     | what a band needs |         | channel 1     |         +-----------+    and goes through TOGETHER
//     +-------------------+         | ...           |         |           |    channels at a time
//     |                   |         +---------------+
//
// A thread finds out which taps of its position exist, once for all channels, and loads no others.
//
// With square kernels, taps that are neighbours along y and x, and one or two lines of inputs from output to output, a
// thread computes a strip of up to LINES outputs below each other, in one channel at a time. It goes through the lines
// of inputs with the weights of a plane of taps in registers, and loads each input once for all outputs that need it:
//
//     line of inputs         0    1    2    3    4    5    6    7    8
//     outputs, STEP 1        0    01   012  123  234  345  ...
//     outputs, STEP 2        0    0    01   1    12   2    23   3    ...       HEIGHT 3
//
// The strips of a tile are divided among the threads. If there are fewer strips than threads, groups of threads share
// the channels.
//
// A sum begins with the bias and runs over z, y and x of the taps, in one thread.
//
// Macros (set by cupyconv/_kernels/gather_conv.py):
//     ELEMENT    type of input, weight and output elements (scalar.cuh), a real floating type
//     TAPS       width of the kernel
//     HEIGHT     height of the kernel if threads compute strips, else 0
//     STEP       inputs along y from one output of a strip to the next
//     LINES      most outputs of a strip
//
// Launch: whole warps of MOST_THREADS threads at most and `channels` at least, a block for each tile, and shared
// memory for an mbarrier (16 bytes), for `channels` output channels (a Channel and the weights of each) and for the
// inputs. Tiles run along the band's axis fastest, then over channels, samples. Without strips `channels` is a multiple
// of TOGETHER.

#include "division.cuh"

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

constexpr int MOST_THREADS = 256;
constexpr int TOGETHER = 4;
constexpr int UNROLL = 4;  // weights of a thread that are under way together
constexpr int CHUNK = 16 / sizeof(Element);
constexpr int PLANE = (HEIGHT * TAPS + TOGETHER) / TOGETHER;  // Weights of strips for a plane of taps and the bias

// The weights of a tap in several channels; or of several taps, for strips.
struct __align__(16) Weights {
    Accumulator values[TOGETHER];
};

// Strides are in elements.
struct Axis {
    int64 size_in, size_out, kernel;
    int64 step, low, apart;
    int64 input, weight_first, weight, out;  // offset of the weight of tap 0; the others are strides
    int64 pitch;                             // staged elements from one input to the next
};

struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 outputs, rows;  // output channels of all groups, and of one group
    int64 input_batch, input_group, out_batch, out_row;
    int64 weight_rows, weight_group, weight_row;  // weight_rows output channels are weight_row apart in the weights
    Axis axis[3];
    int64 band;  // the axis that is divided into tiles; axes before it have one element
    int64 tile, tiles;  // outputs of a tile along this axis, and number of tiles
    int64 positions;    // positions for each output along this axis
    int64 lines;        // lines of a strip
    int64 channels, channel_tiles;
    int64 per_tiles, per_channel_tiles;  // long reciprocals of the numbers of tiles along the band, and over channels
    int64 room;  // elements of shared memory for an input channel, a multiple of CHUNK
    int64 taps;
    int64 dense;           // 1 if the inputs of a channel are contiguous
    int64 bulk;            // 1 if moreover each piece is one bulk copy, and not copied chunk by chunk
    int64 joined;          // 1 if tiles need whole channels, which are contiguous
    int64 weights_joined;  // 1 if all weights are contiguous, in the order of taps
};

// An output channel of a tile.
struct Channel {
    int64 out;   // offset of its outputs
    int inputs;  // index of its staged inputs
};

struct Worker {
    const Arguments& p;
    const Axis& band;
    const int threads;
    int sample, first, count;  // output channels
    int group, groups;         // input channels
    int start, size;           // outputs along the band's axis
    int low, elements;         // inputs: the first one along it, and how many of a channel
    int pieces, length;        // what is staged: how many, and elements of each
    mbarrier* copied;
    Channel* channels;
    Weights* weights;  // of TOGETHER channels in turn: each tap's, and the biases; or of each channel, plane by plane
    Element* inputs;

    __device__ Worker(const Arguments& p, unsigned char* memory) : p(p), band(p.axis[p.band]), threads(blockDim.x) {
        const int tile = long_quotient(int(blockIdx.x), p.per_tiles);
        sample = long_quotient(tile, p.per_channel_tiles);
        first = (tile - sample * int(p.channel_tiles)) * int(p.channels);
        count = least(int(p.outputs) - first, int(p.channels));
        group = divided(first, int(p.rows)), groups = divided(first + count - 1, int(p.rows)) - group + 1;
        start = (blockIdx.x - tile * int(p.tiles)) * int(p.tile);
        size = least(int(band.size_out) - start, int(p.tile));
        const int from = start * int(band.step) + int(band.low);
        const int to = from + (size - 1) * int(band.step) + (int(band.kernel) - 1) * int(band.apart) + 1;
        low = from < 0 ? 0 : from;
        const int end = least(to, int(band.size_in));
        elements = end > low ? (end - low) * int(band.pitch) : 0;
        pieces = p.joined ? 1 : groups, length = p.joined ? groups * elements : elements;
        copied = (mbarrier*)memory;
        channels = (Channel*)(memory + 16);
        weights = (Weights*)(channels + int(p.channels));
        inputs = (Element*)(weights + (HEIGHT ? int(p.channels * p.axis[0].kernel) * PLANE
                                              : int(p.channels) / TOGETHER * (int(p.taps) + 1)));
    }

    __device__ static int least(int a, int b) { return a < b ? a : b; }

    // The first element of a piece, and its distance from an aligned chunk, which is the same in shared memory.
    __device__ const Element* source(int piece) const {
        return p.input + sample * p.input_batch + (group + piece) * p.input_group + low * band.input;
    }
    __device__ int skew(int piece) const {
        return p.dense ? int((unsigned long long)source(piece) / sizeof(Element)) & (CHUNK - 1) : 0;
    }
    // The index of the first staged input of a channel.
    __device__ int place_of(int channel) const {
        return p.joined ? channel * elements + skew(0) : channel * int(p.room) + skew(channel);
    }

    // A warp takes 32 chunks of a piece at a time.
    __device__ void stage() const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int turns = ((length + CHUNK - 1) / CHUNK + 32) / 32;  // of a piece, which may have a part more in front
        for (int i = warp; i < pieces * turns; i += threads / 32) {
            const int piece = small_quotient(i, turns), place = ((i - piece * turns) * 32 + lane) * CHUNK;
            const int element = place - skew(piece);
            const Element* const from = source(piece) + element;
            Element* const to = inputs + piece * int(p.room) + place;
            if (element >= 0 && element + CHUNK <= length)
                copy_async<16>(to, from, 16);
            else if (element < length)
#pragma unroll
                for (int e = 0; e < CHUNK; ++e)
                    if (unsigned(element + e) < unsigned(length)) to[e] = from[e];
        }
        copy_async_commit();
    }

    // A piece: `before` elements before its first whole chunk, `whole` elements of whole chunks, and a rest.
    struct Piece {
        const Element* from;
        Element* to;
        int before, whole;
    };
    __device__ __forceinline__ Piece piece(int number) const {
        const Element* const from = source(number);
        const int skew = int((unsigned long long)from / sizeof(Element)) & (CHUNK - 1);
        const int before = least(-skew & (CHUNK - 1), length);
        return {from, inputs + number * int(p.room) + skew, before, (length - before) & -CHUNK};
    }

    // The first warp has the whole chunks of each piece copied by one instruction.
    __device__ __forceinline__ void stage_in_bulk() const {
        if (threadIdx.x >= 32) return;
        if (threadIdx.x == 0) {
            mbarrier_init(copied, 32);
            mbarrier_init_fence();
        }
        __syncwarp();
        int bytes = 0;
        for (int i = threadIdx.x; i < pieces; i += 32) bytes += piece(i).whole * int(sizeof(Element));
        mbarrier_arrive_expect(copied, bytes);
        for (int i = threadIdx.x; i < pieces; i += 32) {
            const Piece own = piece(i);
            if (own.whole)
                bulk_copy(own.to + own.before, own.from + own.before, own.whole * int(sizeof(Element)), copied);
        }
    }
    // The ends of pieces are single elements. Their loads and their stores are apart in the code, so that other loads
    // are under way with them.
    struct End {
        Element* to;  // null, if there is none
        Element value;
    };
    __device__ __forceinline__ End end(int number, int ends) const {
        if (number >= ends) return {};
        const Piece own = piece(number / (2 * CHUNK));
        const int place = number % (2 * CHUNK), behind = own.before + own.whole - CHUNK;
        const int element = place < CHUNK ? place : behind + place;
        if (element >= (place < CHUNK ? own.before : length)) return {};
        return {own.to + element, own.from[element]};
    }
    __device__ static void store(End end) {
        if (end.to) *end.to = end.value;
    }
    // Elements that do not lie together, one by one.
    __device__ void stage_scattered() const {
        for (int i = threadIdx.x; i < groups * elements; i += threads) {
            const int channel = small_quotient(i, elements);
            int rest = i - channel * elements;
            Element* const to = inputs + channel * int(p.room) + rest;
            const Element* from = source(channel);
            for (int a = int(p.band); a < 3; ++a) {
                const int along = small_quotient(rest, int(p.axis[a].pitch));
                from += along * p.axis[a].input;
                rest -= along * int(p.axis[a].pitch);
            }
            *to = *from;
        }
    }

    // Channels after the last one repeat the last one.
    __device__ int number(int own) const { return first + least(own, count - 1); }

    // Each of the first threads has a channel.
    __device__ Accumulator bias() const {
        if (int(threadIdx.x) >= int(p.channels) || !p.bias.data) return zero<Accumulator>();
        return load_parameter<Accumulator>(p.bias, number(threadIdx.x));
    }
    __device__ void describe_channel(Accumulator bias) const {
        const int i = threadIdx.x, own = number(i), deep = int(p.axis[0].kernel);
        if (i >= int(p.channels)) return;
        channels[i] = {sample * p.out_batch + own * p.out_row, place_of(divided(own, int(p.rows)) - group)};
        if (!HEIGHT) weights[i / TOGETHER * (int(p.taps) + 1) + int(p.taps)].values[i % TOGETHER] = bias;
        // For strips, each plane of taps is whole vectors, and the bias fills their last elements.
        for (int z = 0; z < (HEIGHT ? deep : 0); ++z)
#pragma unroll
            for (int k = HEIGHT * TAPS; k < PLANE * TOGETHER; ++k)
                weights[(i * deep + z) * PLANE + k / TOGETHER].values[k % TOGETHER] = bias;
    }

    // The i-th weight of the tile's channels: an offset.
    __device__ __forceinline__ int64 weight_at(int i) const {
        const Axis &az = p.axis[0], &ay = p.axis[1], &ax = p.axis[2];
        const int taps = int(p.taps), high = HEIGHT ? HEIGHT : int(ay.kernel);
        if (p.weights_joined) return int64(first) * taps + least(i, count * taps - 1);
        const int own = small_quotient(i, taps), tap = i - own * taps;
        const int z = small_quotient(tap, high * TAPS), y = (tap - z * high * TAPS) / TAPS, x = tap % TAPS;
        const int of = divided(number(own), int(p.weight_rows)), row = number(own) - of * int(p.weight_rows);
        return of * p.weight_group + row * p.weight_row + az.weight_first + ay.weight_first + ax.weight_first +
               z * az.weight + y * ay.weight + x * ax.weight;
    }
    __device__ __forceinline__ Accumulator* weight_place(int i) const {
        constexpr int AREA = HEIGHT ? HEIGHT * TAPS : 1;
        if (HEIGHT) return weights[i / AREA * PLANE].values + i % AREA;
        const int taps = int(p.taps), own = small_quotient(i, taps);
        return weights[own / TOGETHER * (taps + 1) + i - own * taps].values + own % TOGETHER;
    }
    // UNROLL weights, `threads` apart.
    struct Batch {
        Element values[UNROLL];
    };
    __device__ __forceinline__ Batch load_weights(int begin) const {
        Batch batch = {};
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const int i = begin + k * threads;
            if (i < int(p.channels * p.taps)) batch.values[k] = p.weight[weight_at(i)];
        }
        return batch;
    }
    __device__ __forceinline__ void store_weights(int begin, const Batch& batch) const {
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const int i = begin + k * threads;
            if (i < int(p.channels * p.taps)) *weight_place(i) = widen<Accumulator>(batch.values[k]);
        }
    }

    // Adds the products of a line of taps. `present` has a bit for each whose input exists. NEXT, where these are
    // neighbours.
    template <bool NEXT>
    __device__ __forceinline__ void add(Accumulator (&sums)[TOGETHER], const Element* const (&first)[TOGETHER],
                                        int line, const Weights* weight, unsigned present) const {
        const int apart = NEXT ? 1 : int(p.axis[2].apart);
        Element values[TOGETHER][TAPS];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
            for (int x = 0; x < TAPS; ++x)
                if (present >> x & 1u) values[i][x] = first[i][line + x * apart];
#pragma unroll
        for (int x = 0; x < TAPS; ++x) {
            const Weights own = weight[x];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i)
                if (present >> x & 1u)
                    sums[i] = multiply_add(own.values[i], widen<Accumulator>(values[i][x]), sums[i]);
        }
    }

    template <bool NEXT>
    __device__ __forceinline__ void convolve() const {
        const Axis &az = p.axis[0], &ay = p.axis[1], &ax = p.axis[2];
        for (int i = threadIdx.x; i < size * int(p.positions); i += threads) {
            // A position, and where its first inputs are.
            const int lines = small_quotient(i, int(ax.size_out)), planes = small_quotient(lines, int(ay.size_out));
            const int x = p.band == 2 ? start + i : i - lines * int(ax.size_out);
            const int y = p.band == 2 ? 0 : p.band == 1 ? start + lines : lines - planes * int(ay.size_out);
            const int z = p.band == 0 ? start + planes : 0;
            const int z0 = z * int(az.step) + int(az.low), y0 = y * int(ay.step) + int(ay.low),
                      x0 = x * int(ax.step) + int(ax.low);
            const int place = z0 * int(az.pitch) + y0 * int(ay.pitch) + x0 - low * int(band.pitch);
            unsigned present = 0;
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap)
                present |= unsigned(unsigned(x0 + tap * int(ax.apart)) < unsigned(ax.size_in)) << tap;
            Element* const out = p.out + (z * az.out + y * ay.out + x * ax.out);
#pragma unroll 1
            for (int c = 0; c < count; c += TOGETHER) {
                const Element* first[TOGETHER];
                Accumulator sums[TOGETHER];
                const Weights* weight = weights + c / TOGETHER * (int(p.taps) + 1);
                const Weights bias = weight[int(p.taps)];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i)
                    first[i] = inputs + (channels[c + i].inputs + place), sums[i] = bias.values[i];
#pragma unroll 1
                for (int jz = 0, iz = z0; jz < int(az.kernel); ++jz, iz += int(az.apart)) {
#pragma unroll 1
                    for (int jy = 0, iy = y0; jy < int(ay.kernel); ++jy, iy += int(ay.apart), weight += TAPS)
                        if ((unsigned(iz) < unsigned(az.size_in)) & (unsigned(iy) < unsigned(ay.size_in)))
                            add<NEXT>(sums, first, (iz - z0) * int(az.pitch) + (iy - y0) * int(ay.pitch), weight,
                                      present);
                }
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i)
                    if (c + i < count) out[channels[c + i].out] = narrow<Element>(sums[i]);
            }
        }
    }

    // Strips of outputs. A thread has one at a time, in every `teams`-th channel.
    template <int HIGH>
    __device__ __forceinline__ void convolve_strips() const {
        constexpr int READ = (LINES - 1) * STEP + HIGH;  // lines of inputs
        const Axis &az = p.axis[0], &ay = p.axis[1], &ax = p.axis[2];
        const int lines = int(p.lines), deep = int(az.kernel), wide = int(ax.size_out);
        const int high = p.band == 1 ? size : int(ay.size_out);  // outputs along y
        const int strips = small_quotient(high + lines - 1, lines), all = strips * wide * (p.band == 1 ? 1 : size);
        const int teams = all < threads ? small_quotient(threads, all) : 1, team = small_quotient(threadIdx.x, all);
        for (int turn = 0; turn * threads < all; ++turn) {
            const int i = turn * threads + threadIdx.x - team * all;
            const bool active = team < teams && i < all;
            // The strip's first output, and where its first inputs are.
            const int across = small_quotient(i, wide), plane = small_quotient(across, strips);
            const int line = (across - plane * strips) * lines, own = least(high - line, lines);
            const int x = i - across * wide, y = p.band == 1 ? start + line : line, z = p.band == 1 ? 0 : start + plane;
            const int z0 = z * int(az.step) + int(az.low), y0 = y * STEP + int(ay.low),
                      x0 = x * int(ax.step) + int(ax.low);
            const int place = z0 * int(az.pitch) + y0 * int(ay.pitch) + x0 - low * int(band.pitch);
            unsigned present = 0;  // taps along x whose input exists
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap) present |= unsigned(unsigned(x0 + tap) < unsigned(ax.size_in)) << tap;
            // Lines of inputs exist from 0 to the end, and are needed to the last output of the strip.
            const int last = y0 + (own - 1) * STEP + HIGH, end = last < 0 ? 0 : least(last, int(ay.size_in));
            unsigned rows[READ];  // the taps along x in each line
#pragma unroll
            for (int r = 0; r < READ; ++r) rows[r] = unsigned(y0 + r) < unsigned(end) ? present : 0;
            bool every = y0 >= 0 && y0 + (lines - 1) * STEP + HIGH <= end;
            every = __all_sync(~0u, every || !active);
            if (!active) continue;
            Element* const out = p.out + (z * az.out + y * ay.out + x * ax.out);
#pragma unroll 1
            for (int c = team; c < count; c += teams) {
                const Channel channel = channels[c];
                const Element* first = inputs + (channel.inputs + place);
                const Weights* weight = weights + c * deep * PLANE;
                Accumulator sums[LINES];
#pragma unroll
                for (int o = 0; o < LINES; ++o)
                    sums[o] = weight[HIGH * TAPS / TOGETHER].values[HIGH * TAPS % TOGETHER];
#pragma unroll 1
                for (int j = 0; j < deep; ++j, first += int(az.apart * az.pitch), weight += PLANE) {
                    if (unsigned(z0 + j * int(az.apart)) >= unsigned(az.size_in)) continue;
                    if (TAPS < 7 && every)  // more bits would not be kept as predicates
                        add_strip<HIGH, true>(sums, first, weight, rows, present);
                    else
                        add_strip<HIGH, false>(sums, first, weight, rows, present);
                }
                Element* to = out + channel.out;
#pragma unroll
                for (int o = 0; o < LINES; ++o, to += ay.out)
                    if (o < own) *to = narrow<Element>(sums[o]);
            }
        }
    }

    // Adds the products of a plane of taps. `present` has a bit for each input that exists of a line, if EVERY line
    // does, else `rows`.
    template <int HIGH, bool EVERY, int READ>
    __device__ __forceinline__ void add_strip(Accumulator (&sums)[LINES], const Element* line, const Weights* weight,
                                              const unsigned (&rows)[READ], unsigned present) const {
        const int pitch = int(p.axis[1].pitch), lines = int(p.lines);
        Accumulator own[PLANE * TOGETHER];
#pragma unroll
        for (int i = 0; i < PLANE; ++i) {
            const Weights some = weight[i];
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) own[i * TOGETHER + k] = some.values[k];
        }
#pragma unroll
        for (int r = 0; r < READ; ++r, line += pitch) {
            if (r >= HIGH && (r - HIGH) % STEP == 0 && (r - HIGH) / STEP + 1 == lines) break;
            unsigned here = EVERY ? present : rows[r];
            if (!EVERY) settle(here);  // else each tap's bit is kept in a register of its own
            Accumulator values[TAPS];
#pragma unroll
            for (int x = 0; x < TAPS; ++x)
                if (here >> x & 1u) values[x] = widen<Accumulator>(line[x]);
#pragma unroll
            for (int x = 0; x < TAPS; ++x)
#pragma unroll
                for (int o = 0; o < LINES; ++o) {
                    const int tap = r - o * STEP;
                    if (tap >= 0 && tap < HIGH && here >> x & 1u)
                        sums[o] = multiply_add(own[tap * TAPS + x], values[x], sums[o]);
                }
        }
    }
};

extern "C" __global__ void __launch_bounds__(MOST_THREADS) gather_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Worker worker(p, memory);
    const bool bulk = BULK_COPIES && p.bulk;
    if (bulk)
        worker.stage_in_bulk();
    else if (p.dense)
        worker.stage();
    else
        worker.stage_scattered();
    // The first weights, ends and biases are all loaded before one of them is stored, so the block waits for them once.
    const int thread = threadIdx.x, threads = worker.threads, ends = bulk ? worker.pieces * 2 * CHUNK : 0;
    const Worker::Batch batch = worker.load_weights(thread);
    const Worker::End end = worker.end(thread, ends);
    const Accumulator bias = worker.bias();
    worker.store_weights(thread, batch);
    worker.store(end);
    worker.describe_channel(bias);
    for (int i = thread + UNROLL * threads; i < int(p.channels * p.taps); i += UNROLL * threads)
        worker.store_weights(i, worker.load_weights(i));
    for (int i = thread + threads; i < ends; i += threads) worker.store(worker.end(i, ends));
    copy_async_wait<0>();
    __syncthreads();
    if (bulk) mbarrier_wait(worker.copied, 0);
    if constexpr (HEIGHT > 0)
        worker.convolve_strips<HEIGHT>();
    else if (p.axis[2].apart == 1)
        worker.convolve<true>();
    else
        worker.convolve<false>();
}
