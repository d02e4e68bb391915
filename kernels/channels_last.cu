// Copies of an array with its channels innermost, in rows of whole chunks:
//
//     out[sample, block, place, group, channel] = array[...]
//
// It is a transposition: by default channels lie far from each other, and places lie together. A block of threads takes
// a tile of CHUNKS chunks of the copy through shared memory. A thread loads units of it, a word of channels at
// neighbouring places, and writes chunks:
//
//                 16-bit numbers                              places
//     array       channel 0    a b c d e f g h                0      [ a i ]
//                 channel 1    i j k l m n o p     unit       1      [ b j ]     a chunk has four such words
//                                                             ...
//
// Places that do not lie together in aligned chunks are loaded one by one; where channels lie together, neighbouring
// threads have neighbouring channels. Channels that fill the last chunk of a group are zero. A launch makes one copy, or
// two at the same time.
//
// The groups of a copy may be the high and the low parts of the same floats, as Tensor Cores multiply them (tf32.cuh).
//
// Macros (set by cupyconv/_kernels/channels_last.py):
//     BITS    type of an element's bits
//     PARTS   2 if the groups of a copy may be parts of floats
//
// Launch: THREADS threads, any number of blocks; blocks take tiles in turn.

#include "take.cuh"
#include "tf32.cuh"

typedef BITS Bits;

constexpr int PACKED = 4 / sizeof(Bits), ELEMENTS = 16 / sizeof(Bits);  // of a word, and of a chunk
constexpr int THREADS = 256, CHUNKS = 1024;
constexpr int UNITS = 4 * CHUNKS / ELEMENTS / THREADS;  // of a thread
constexpr int RESIDENT = PACKED == 2 ? 4 : 5;           // blocks of a multiprocessor

struct Copy {
    const Bits* array;
    Bits* out;
    int64 samples, blocks, groups, channels, size[3];  // z, y and x
    int64 sample, block, group, channel, axis[3];      // the strides of each
    int64 row;  // channels of a group in the copy
    int64 along_channels;  // whether these lie together in the array, else places do
    int64 aligned;         // whether neighbours along the places are chunks, if the first ones are
    int64 split;           // whether groups are parts of floats
    int64 width;           // a tile has 2**width chunks of channels
    int64 channel_tiles, place_tiles, tiles;

    __device__ int places() const { return int(size[0] * size[1] * size[2]); }
};

struct Arguments {
    Copy copy[2];
    int64 tiles;  // of both
};

// The channels and places of a sample, block and group of an array.
struct Source {
    const Copy& p;
    const Bits* array;
    bool aligned;  // whether neighbours along the places are chunks

    // Loads the elements of channels from `c` on at the places from `at` on; there are zeros where there are none.
    __device__ __forceinline__ void load(Bits128 (&bits)[PACKED], int c, int at) const {
        const Bits* from = array + c * p.channel;
        const int left = p.places() - at;
        if (aligned && left >= ELEMENTS) {
#pragma unroll
            for (int j = 0; j < PACKED; ++j)
                load_bits(bits[j], (const Bits128*)(from + j * p.channel + at), c + j, int(p.channels));
            return;
        }
        const int x = take(at, p.size[2]), y = take(at, p.size[1]);
        from += x * p.axis[2] + y * p.axis[1] + at * p.axis[0];
        int end_of_line = int(p.size[2]) - x, line = y;  // counted in elements of the unit
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e) {
            if (e == end_of_line) {
                end_of_line += int(p.size[2]);
                from += p.axis[1] - p.size[2] * p.axis[2];
                if (++line == int(p.size[1])) line = 0, from += p.axis[0] - p.size[1] * p.axis[1];
            }
#pragma unroll
            for (int j = 0; j < PACKED; ++j) {
                Bits own = 0;
                load_bits(own, from + j * p.channel, c + j, e < left ? int(p.channels) : 0);
                bits[j].words[e / PACKED] |= unsigned(own) << e % PACKED * 16;
            }
            from += p.axis[2];
        }
    }
};

// Where a chunk of a tile lies in shared memory. Eight threads that write to eight units, or read chunks beside each
// other, meet in no bank.
__device__ __forceinline__ int swizzled(int chunk, int place) { return chunk ^ place / ELEMENTS % 8; }

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) channels_last(const __grid_constant__ Arguments both) {
    __shared__ Bits128 tile[CHUNKS];  // by places and, within one, channels
    launch_grids();
    for (int i = blockIdx.x; i < int(both.tiles); i += gridDim.x) {
        const bool second = i >= int(both.copy[0].tiles);
        const Copy& p = both.copy[second];
        const int width = int(p.width), places = p.places();
        const bool whole = p.row % ELEMENTS == 0 && (unsigned long long)p.out % 16 == 0;  // whether rows are chunks
        int rest = second ? i - int(both.copy[0].tiles) : i;
        const int channel = take(rest, p.channel_tiles) * (ELEMENTS << width);
        const int place = take(rest, p.place_tiles) * (CHUNKS >> width);
        const int group = take(rest, p.groups), block = take(rest, p.blocks), sample = rest;
        const Bits* const array = p.array + sample * p.sample + block * p.block + group * p.group;
        const Source from = {p, array, p.aligned && (unsigned long long)array % 16 == 0};
        // All loads first, as each takes long.
        Bits128 bits[UNITS][PACKED] = {};
        int words[UNITS], units[UNITS];  // of channels, and of places
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
            const int number = threadIdx.x + u * THREADS, other = number >> 3;
            // Neighbouring threads read what lies together.
            words[u] = (p.along_channels ? number : other) & ((4 << width) - 1);
            units[u] = p.along_channels ? number >> (width + 2) : other >> (width + 2) << 3 | number % 8;
            const int c = channel + words[u] * PACKED, at = place + units[u] * ELEMENTS;
            if (c < int(p.channels) && at < places) from.load(bits[u], c, at);
        }
        __syncthreads();  // the tile before was written
#pragma unroll
        for (int u = 0; u < UNITS; ++u)
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e) {
                const int at = units[u] * ELEMENTS + e, chunk = swizzled((at << width) + words[u] / 4, at);
                unsigned low = bits[u][0].words[e / PACKED];
                const unsigned high = bits[u][PACKED - 1].words[e / PACKED];
                if constexpr (PARTS == 2)
                    if (p.split) low = tf32_part(low, group);
                tile[chunk].words[words[u] % 4] =
                    PACKED == 1 ? low : byte_select(low, high, e % 2 ? 0x7632 : 0x5410);
            }
        __syncthreads();
        Bits* const out =
            p.out + ((int64(sample * p.blocks + block) * places + place) * p.groups + group) * p.row + channel;
#pragma unroll
        for (int j = threadIdx.x; j < CHUNKS; j += THREADS) {
            const int at = j >> width, c = (j & ((1 << width) - 1)) * ELEMENTS, left = int(p.row) - channel - c;
            if (place + at >= places || left <= 0) continue;
            Bits* const to = out + at * p.groups * p.row + c;
            const Bits128& chunk = tile[swizzled(j, at)];
            if (whole)
                store_bits((Bits128*)to, chunk, true);
            else
                for (int e = 0; e < ELEMENTS && e < left; ++e) to[e] = ((const Bits*)&chunk)[e];
        }
    }
}
