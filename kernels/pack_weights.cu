// Packs the weights of a call as matrix_conv.cu reads them, rounded or split for the matrix units:
//
//     packed[group][phase][row tile][step][slab of 64 rows][part][half of K][row][16 bytes]
//
// A step is the product of one K block of channels (two slots of 16 bytes: 8 channels of float, 16 of
// the others) at one tap; steps run as `Steps` in matrix_tile.cuh says. So what one stage of the
// pipeline takes is one piece of memory. Rows and channels behind the last one, and taps that a folded
// row does not have, are zeros.
//
// Macros: those of matrix_tile.cuh.
// Launch: any multiple of `phases` blocks of any number of threads, together below 2**31, as are the slots;
// a thread packs every so many-th slot of phase blockIdx % phases.

#include "matrix_tile.cuh"

struct Arguments {
    const Element* weight;
    Slot* packed;
    int64 groups, rows;
    int64 weight_group, weight_row, weight_channel;
    int64 phases, row_tiles, slabs;
    int64 steps;  // of the phase that has most
    Steps sum;
    Fold fold;
    MatrixAxis axis[3];
};

// Where a half of a step of a phase lies in the weights: its first channel, and its taps.
struct Place {
    int64 channel;
    int tap[3];
};

__device__ inline Place place_of(const Arguments& p, const Phase& phase, int step, int half) {
    const int along_x = p.sum.along_x(phase.taps[2].count), blocks = int(p.sum.blocks);
    const int inner = phase.taps[1].count * along_x;
    Place place;
    place.tap[0] = step / inner / blocks;
    place.channel = step / inner % blocks * BLOCK + (p.sum.halves == 1 ? 0 : half * CHUNK);
    step %= inner;
    place.tap[1] = step / along_x;
    place.tap[2] = step % along_x;
    if (p.sum.halves == 1) place.tap[2] = place.tap[2] * 2 + half;
    return place;
}

constexpr int SIDE = 8;  // rows

extern "C" __global__ void pack_weights(const __grid_constant__ Arguments p) {
    const int slabs = int(p.slabs), steps = int(p.steps), row_tiles = int(p.row_tiles);
    const int phases = int(p.phases), folds = int(p.fold.count);
    // What a phase has in common takes long to find out: a block stays in one.
    const int phase_index = blockIdx.x % phases;
    const Phase phase = phase_of(p.axis, phase_index);
    const int taps = phase.taps[0].count * phase.taps[1].count * p.sum.along_x(phase.taps[2].count);
    const int blocks = gridDim.x / phases, slots = int(p.groups) * row_tiles * steps * slabs * DEPTH * SLAB_ROWS;
    for (int slot = blockIdx.x / phases * blockDim.x + threadIdx.x; slot < slots; slot += blocks * blockDim.x) {
        // Lanes run along a few rows, whose slots lie side by side, and then along the steps, whose weights do.
        const int step = slot / SIDE % steps;
        int index = slot / SIDE / steps;
        const int half = index % DEPTH, slab_row = index / DEPTH % (SLAB_ROWS / SIDE) * SIDE + slot % SIDE;
        index /= DEPTH * SLAB_ROWS / SIDE;
        const int slab = index % slabs;
        index /= slabs;
        const int row_tile = index % row_tiles, row = (row_tile * slabs + slab) * SLAB_ROWS + slab_row;
        const int64 group = index / row_tiles, tile = (group * phases + phase_index) * row_tiles + row_tile;
        const int64 channel_out = channel_of(row, folds);
        Bits values[CHUNK] = {};
        if (step < int(p.sum.blocks) * taps && channel_out < p.rows) {
            const Place place = place_of(p, phase, step, half);
            int64 k[3];
            for (int a = 0; a < 3; ++a) k[a] = phase.taps[a].first + int64(place.tap[a]) * phase.taps[a].step;
            bool exists = place.tap[2] < phase.taps[2].count;
            if (folds > 1) {
                k[2] = p.fold.start + place.tap[2] * p.fold.step + fold_of(row, folds) * p.fold.apart;
                exists &= k[2] % p.fold.divisor == 0 && k[2] >= 0;
                k[2] /= p.fold.divisor;
                exists &= k[2] < p.fold.kernel;
            }
            const int channels = exists ? int(p.sum.channels - place.channel) : 0;
            const Bits* weight = (const Bits*)p.weight + group * p.weight_group + channel_out * p.weight_row +
                                    place.channel * p.weight_channel;
            for (int a = 0; a < 3; ++a) weight += k[a] * p.axis[a].weight_stride;
#pragma unroll
            for (int i = 0; i < CHUNK; ++i)
                load_bits(values[i], weight + i * p.weight_channel, i, channels);
        }
        Slot parts[PARTS];
        Channels<CHUNK>::fill<1>(parts, values, 0);
        Slot* const to = p.packed + ((tile * steps + step) * slabs + slab) * (PARTS * DEPTH * SLAB_ROWS) +
                         half * SLAB_ROWS + slab_row;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) to[part * DEPTH * SLAB_ROWS] = parts[part];
    }
}
