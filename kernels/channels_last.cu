// Copies of an array with its channels innermost, in rows of whole chunks:
//
//     out[sample, block, place, group, channel] = array[...]
//
// It is a transposition: by default channels lie far from each other. Each block of threads brings a tile of TILE
// channels by TILE places through shared memory, reads along what lies together, and writes along the channels. Channels
// that fill the last chunk of a group are zero.
//
// Macros (set by cupyconv/_kernels/channels_last.py):
//     BITS   type of an element's bits
//
// Launch: THREADS threads, any number of blocks; blocks take tiles in turn.

#include "scalar.cuh"

typedef BITS Bits;

constexpr int TILE = 32, THREADS = 256;

struct Arguments {
    const Bits* array;
    Bits* out;
    int64 samples, blocks, groups, channels, size[3];  // z, y and x
    int64 sample, block, group, channel, axis[3];      // the strides of each
    int64 row;  // channels of a group in the copy
    int64 along_channels;  // whether these lie together in the array, else places do
    int64 channel_tiles, place_tiles, tiles;
};

__device__ __forceinline__ int64 take(int64& number, int64 divisor) {
    const int64 next = number / divisor, rest = number - next * divisor;
    number = next;
    return rest;
}

extern "C" __global__ void __launch_bounds__(THREADS) channels_last(const __grid_constant__ Arguments p) {
    __shared__ Bits tile[TILE][TILE + 1];  // places, channels
    launch_grids();
    const int first = threadIdx.x % TILE, second = threadIdx.x / TILE;
    const int64 places = p.size[0] * p.size[1] * p.size[2];
    for (int64 i = blockIdx.x; i < p.tiles; i += gridDim.x) {
        int64 rest = i;
        const int64 channel = take(rest, p.channel_tiles) * TILE, place = take(rest, p.place_tiles) * TILE;
        const int64 group = take(rest, p.groups), block = take(rest, p.blocks), sample = rest;
        const Bits* const array = p.array + sample * p.sample + block * p.block + group * p.group;
        __syncthreads();  // the tile before was written
#pragma unroll
        for (int j = second; j < TILE; j += THREADS / TILE) {
            const int c = p.along_channels ? first : j, at = p.along_channels ? j : first;
            int64 of_axis = place + at;
            const bool inside = channel + c < p.channels && of_axis < places;
            const int64 x = take(of_axis, p.size[2]), y = take(of_axis, p.size[1]);
            Bits bits = 0;
            if (inside)
                bits = array[(channel + c) * p.channel + of_axis * p.axis[0] + y * p.axis[1] + x * p.axis[2]];
            tile[at][c] = bits;
        }
        __syncthreads();
        Bits* const out = p.out + (((sample * p.blocks + block) * places + place) * p.groups + group) * p.row + channel;
#pragma unroll
        for (int j = second; j < TILE; j += THREADS / TILE)
            if (place + j < places && channel + first < p.row) out[j * p.groups * p.row + first] = tile[j][first];
    }
}
