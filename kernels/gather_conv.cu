// Convolutions of one input channel for each group on one to three axes, where taps do not slide (depthwise_conv.cu)
// or images are small.
//
//     out[n, g, row, o] = bias[g, row] + sum over taps of in[n, g, i(o, tap)] * w[g, row, tap]
//
// where i(o, tap) = o * step + low + tap * apart, and taps whose input lies outside of the array contribute
// nothing, whatever the weight. Taps are numbered as their inputs ascend.
//
// A tile is a band of outputs, along the first axis, of some output channels. The inputs that it needs lie together
// in each channel, without gaps or halos, and so they are staged in shared memory: as they lie, in one piece.
//
//     input of a channel            shared memory             outputs
//     +-------------------+
//     |                   |         +---------------+         +-----------+
//     +-------------------+  -->    | channel 0     |  -->    | band      |    a thread has a position,
//     | what a band needs |         | channel 1     |         +-----------+    and goes through TOGETHER
//     +-------------------+         | ...           |         |           |    channels at a time
//     |                   |         +---------------+
//
// A thread finds out which taps of its position exist, and loads no others. It does so once for all channels.
//
// A sum runs over z, y and x of the taps, in one thread, from the bias on.
//
// Macros (set by cupyconv/_plan.py):
//     ELEMENT    type of input, weight and output elements (scalar.cuh), a real floating type
//     TAPS       width of the kernel
//
// Launch: THREADS threads, a block for each tile, and shared memory for `channels` output channels (a Channel and
// the weights of each) and for the inputs. Tiles run along the band's axis fastest, then over channels, samples.

#include "division.cuh"

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

constexpr int THREADS = 128;
constexpr int TOGETHER = 4;
constexpr int CHUNK = 16 / sizeof(Element);

// The weights of a tap.
struct __align__(16) Weights {
    Accumulator values[TOGETHER];
};

// Strides are in elements.
struct Axis {
    int64 size_in, size_out, kernel;
    int64 step, low, apart;
    int64 input, weight_first, weight, out;  // the weight of tap 0, and from one tap's to the next
    int64 pitch;                             // staged elements
};

struct Arguments {
    const Element* input;
    const Element* weight;
    Element* out;
    Parameter bias;
    int64 outputs, rows;  // output channels in all, and those of a group
    int64 input_batch, input_group, weight_group, weight_row, out_batch, out_group, out_row;
    Axis axis[3];
    int64 band;  // the axis that is divided, and what a tile has of it; those in front of it have one element
    int64 tile, tiles;
    int64 positions;  // of each output along it
    int64 channels, channel_tiles;
    int64 room;  // elements of shared memory for an input channel, a multiple of CHUNK
    int64 taps;
    int64 dense;  // whether the inputs of a channel lie without gaps
};

struct Channel {
    int64 out;   // where its outputs begin
    int inputs;  // and where those are staged that it is a sum of
};

struct Worker {
    const Arguments& p;
    const Axis& band;
    int sample, first, count;  // output channels
    int group, groups;         // input channels
    int start, size;           // outputs along the band's axis
    int low, elements;         // inputs: the first one along it, and how many of a channel
    Channel* channels;
    Weights* weights;  // of TOGETHER channels in turn: each tap's, and the biases
    Element* inputs;

    __device__ Worker(const Arguments& p, unsigned char* memory) : p(p), band(p.axis[p.band]) {
        const int tile = blockIdx.x / int(p.tiles);
        sample = tile / int(p.channel_tiles);
        first = (tile - sample * int(p.channel_tiles)) * int(p.channels);
        count = least(int(p.outputs) - first, int(p.channels));
        group = first / int(p.rows), groups = (first + count - 1) / int(p.rows) - group + 1;
        start = (blockIdx.x - tile * int(p.tiles)) * int(p.tile);
        size = least(int(band.size_out) - start, int(p.tile));
        const int from = start * int(band.step) + int(band.low);
        const int to = from + (size - 1) * int(band.step) + (int(band.kernel) - 1) * int(band.apart) + 1;
        low = from < 0 ? 0 : from;
        const int end = least(to, int(band.size_in));
        elements = end > low ? (end - low) * int(band.pitch) : 0;
        channels = (Channel*)memory;
        weights = (Weights*)(channels + int(p.channels));
        inputs = (Element*)(weights + int(p.channels) / TOGETHER * (int(p.taps) + 1));
    }

    __device__ static int least(int a, int b) { return a < b ? a : b; }

    // The first element that is staged of an input channel, and how far it is from what is aligned to a chunk, here
    // as there.
    __device__ const Element* source(int channel) const {
        return p.input + sample * p.input_batch + (group + channel) * p.input_group + low * band.input;
    }
    __device__ int skew(int channel) const {
        return p.dense ? int((unsigned long long)source(channel) / sizeof(Element)) & (CHUNK - 1) : 0;
    }

    // A warp takes 32 chunks of a channel at a time.
    __device__ void stage() const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int turns = (int(p.room) / CHUNK + 31) / 32;  // of a channel
        for (int i = warp; i < groups * turns; i += THREADS / 32) {
            const int channel = small_quotient(i, turns), place = ((i - channel * turns) * 32 + lane) * CHUNK;
            const int element = place - skew(channel);
            const Element* const from = source(channel) + element;
            Element* const to = inputs + channel * int(p.room) + place;
            if (element >= 0 && element + CHUNK <= elements)
                copy_async<16>(to, from, 16);
            else if (element < elements)
#pragma unroll
                for (int e = 0; e < CHUNK; ++e)
                    if (unsigned(element + e) < unsigned(elements)) to[e] = from[e];
        }
        copy_async_commit();
    }
    // The same, one by one.
    __device__ void stage_scattered() const {
        for (int i = threadIdx.x; i < groups * elements; i += THREADS) {
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

    // Channels behind the last one are the last one again.
    __device__ int number(int own) const { return first + least(own, count - 1); }

    __device__ void describe_channels() const {
        for (int i = threadIdx.x; i < int(p.channels); i += THREADS) {
            const int own = number(i) / int(p.rows), row = number(i) - own * int(p.rows);
            channels[i] = {sample * p.out_batch + own * p.out_group + row * p.out_row,
                           (own - group) * int(p.room) + skew(own - group)};
        }
    }

    __device__ void bring_weights() const {
        const Axis &az = p.axis[0], &ay = p.axis[1], &ax = p.axis[2];
        const int taps = int(p.taps);
        const int64 tap0 = az.weight_first + ay.weight_first + ax.weight_first;
        for (int i = threadIdx.x; i < int(p.channels) * (taps + 1); i += THREADS) {
            const int own = small_quotient(i, taps + 1), tap = i - own * (taps + 1);
            const int line = small_quotient(tap, TAPS), x = tap - line * TAPS;
            const int z = small_quotient(line, int(ay.kernel)), y = line - z * int(ay.kernel);
            const int of = number(own) / int(p.rows), row = number(own) - of * int(p.rows);
            Accumulator value = zero<Accumulator>();
            if (tap < taps)
                value = widen<Accumulator>(p.weight[of * p.weight_group + row * p.weight_row + tap0 + z * az.weight +
                                                    y * ay.weight + x * ax.weight]);
            else if (p.bias.data)
                value = load_parameter<Accumulator>(p.bias, number(own));
            weights[own / TOGETHER * (taps + 1) + tap].values[own % TOGETHER] = value;
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
        for (int i = threadIdx.x; i < size * int(p.positions); i += THREADS) {
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
};

extern "C" __global__ void __launch_bounds__(THREADS) gather_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Worker worker(p, memory);
    if (p.dense)
        worker.stage();
    else
        worker.stage_scattered();
    worker.describe_channels();
    worker.bring_weights();
    copy_async_wait<0>();
    __syncthreads();
    if (p.axis[2].apart == 1)
        worker.convolve<true>();
    else
        worker.convolve<false>();
}
