// Copies of an array with its channels innermost, in rows of whole chunks:
//
//     out[sample, block, place, group, channel] = array[...]
//
// It is a transposition: by default channels lie far from each other. Each block of threads brings a tile of TILE
// channels by TILE places through shared memory, reads along what lies together, and writes along the channels, words
// of 32 bits where it can. Channels that fill the last chunk of a group are zero.
//
// Macros (set by cupyconv/_kernels/channels_last.py):
//     BITS   type of an element's bits
//
// Launch: THREADS threads, any number of blocks; blocks take tiles in turn.

#include "take.cuh"

typedef BITS Bits;

constexpr int PACKED = 4 / sizeof(Bits), TILE = 32 * PACKED, THREADS = 256;  // PACKED: elements of a word
constexpr int LINES = TILE / (THREADS / 32);  // of a warp

struct Arguments {
    const Bits* array;
    Bits* out;
    int64 samples, blocks, groups, channels, size[3];  // z, y and x
    int64 sample, block, group, channel, axis[3];      // the strides of each
    int64 row;  // channels of a group in the copy
    int64 along_channels;  // whether these lie together in the array, else places do
    int64 words;           // whether neighbours in the array are words, if the first ones are
    int64 channel_tiles, place_tiles, tiles;
};

// A tile, from its first channel and place on.
struct Tile {
    const Arguments& p;
    const Bits* array;  // of its sample, block and group
    int channel, place;

    // A channel at a place of the tile; zero where there is none.
    __device__ Bits load(int c, int at) const {
        int rest = place + at;
        if (channel + c >= int(p.channels) || rest >= int(p.size[0] * p.size[1] * p.size[2])) return 0;
        int64 offset = (channel + c) * p.channel;
        if (p.size[0] * p.size[1] > 1) {
            const int x = take(rest, p.size[2]), y = take(rest, p.size[1]);
            offset += x * p.axis[2] + y * p.axis[1] + rest * p.axis[0];
        } else {
            offset += rest * p.axis[2];
        }
        return array[offset];
    }
    // Neighbours along the channels or the places as a word.
    __device__ unsigned load_word(int c, int at) const {
        return *(const unsigned*)(array + (channel + c) * p.channel + (place + at) * p.axis[2]);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) channels_last(const __grid_constant__ Arguments p) {
    __shared__ Bits tile[TILE][TILE + PACKED];  // places, channels
    launch_grids();
    const int first = threadIdx.x % 32 * PACKED, line = threadIdx.x / 32;
    const int places = int(p.size[0] * p.size[1] * p.size[2]);
    const bool whole = p.row % PACKED == 0 && (unsigned long long)p.out % 4 == 0;  // whether rows are words
    for (int i = blockIdx.x; i < int(p.tiles); i += gridDim.x) {
        int rest = i;
        const int channel = take(rest, p.channel_tiles) * TILE, place = take(rest, p.place_tiles) * TILE;
        const int group = take(rest, p.groups), block = take(rest, p.blocks), sample = rest;
        const Tile from = {p, p.array + sample * p.sample + block * p.block + group * p.group, channel, place};
        const bool words = p.words && (unsigned long long)from.array % 4 == 0;
        __syncthreads();  // the tile before was written
        const int next_c = p.along_channels ? PACKED - 1 : 0, next = PACKED - 1 - next_c;
        if (words && channel + TILE <= int(p.channels) && place + TILE <= places) {
            // All loads first, as each takes long.
            unsigned word[LINES];
#pragma unroll
            for (int j = 0; j < LINES; ++j) {
                const int own = line + j * (THREADS / 32);
                word[j] = p.along_channels ? from.load_word(first, own) : from.load_word(own, first);
            }
#pragma unroll
            for (int j = 0; j < LINES; ++j) {
                const int own = line + j * (THREADS / 32);
                const int c = p.along_channels ? first : own, at = p.along_channels ? own : first;
                tile[at][c] = Bits(word[j]);
                tile[at + next][c + next_c] = Bits(word[j] >> (32 - 8 * sizeof(Bits)));
            }
        } else {
            for (int j = line; j < TILE; j += THREADS / 32) {
                const int c = p.along_channels ? first : j, at = p.along_channels ? j : first;
                tile[at][c] = from.load(c, at);
                if (PACKED == 2) tile[at + next][c + next_c] = from.load(c + next_c, at + next);
            }
        }
        __syncthreads();
        Bits* const out =
            p.out + ((int64(sample * p.blocks + block) * places + place) * p.groups + group) * p.row + channel + first;
        const int left = int(p.row) - channel - first;
#pragma unroll
        for (int j = line; j < TILE; j += THREADS / 32) {
            if (place + j >= places || left <= 0) continue;
            Bits* const to = out + j * p.groups * p.row;
            if (whole)
                *(unsigned*)to = *(const unsigned*)&tile[j][first];
            else
                for (int e = 0; e < PACKED && e < left; ++e) to[e] = tile[j][first + e];
        }
    }
}
