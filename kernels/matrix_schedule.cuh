// The tile scheduler of matrix_conv.cu: which tiles a block computes, in which order.
//
// A block stays in one phase (output residue of a strided transposed convolution) and takes every n-th of its tiles,
// n being the number of blocks of the phase. Tiles are numbered along rows first, then x, y, z, samples and groups.
#pragma once
#include "matrix_passes.cuh"

struct Tile {
    int group, row_tile;
    int start[4];  // of the outputs of the phase, along samples, z, y and x
    int size[4];   // outputs from there on that exist
};

// The phase that a block stays in: runs of blocks share a phase, or blocks have the phases in turn.
__device__ inline int phase_of_block(const Arguments& p) {
    const int phases = int(p.phases);
    return p.by_phase ? p.phase_order[blockIdx.x / (gridDim.x / phases)] : blockIdx.x % phases;
}

struct Schedule : Passes {
    const int tile_step, first_tile;
    const int tile_count, own_tiles;

    __device__ __forceinline__ Schedule(const Arguments& p, Shared& shared, int taps = 0, int z_taps = 0)
        : Passes(p, shared, phase_of_block(p), taps, z_taps),
          tile_step(gridDim.x / int(p.phases)),
          first_tile(p.by_phase ? blockIdx.x % tile_step : blockIdx.x / int(p.phases)),
          tile_count(int(p.row_tiles * p.tiles[0] * p.tiles[1] * p.tiles[2] * p.tiles[3] * p.groups)),
          own_tiles(first_tile < tile_count ? (tile_count - first_tile + tile_step - 1) / tile_step : 0) {}

    // The number of tiles of a sweep, and the i-th of them.
    __device__ int tiles_of(int sweep) const {
        if (sweep > 0 && listed()) return repeated_tiles();
        return own_tiles;
    }
    __device__ int tile_of(int sweep, int i) const {
        if (sweep > 0 && listed()) return repeated_tile(i);
        return first_tile + i * tile_step;
    }

    // Describes a tile by its number. Returns whether it has outputs, as phases differ in theirs.
    __device__ __forceinline__ bool describe(int index, Tile& tile) const {
        const int next = long_quotient(index, p.tile_reciprocals[0]);
        tile.row_tile = index - next * int(p.row_tiles);
        index = next;
        describe_axis<3>(index, phase.positions[2], tile);
        describe_axis<2>(index, phase.positions[1], tile);
        describe_axis<1>(index, phase.positions[0], tile);
        describe_axis<0>(index, int(p.batch), tile);
        tile.group = index;
        return (tile.size[0] > 0) & (tile.size[1] > 0) & (tile.size[2] > 0) & (tile.size[3] > 0);
    }
    template <int AXIS>
    __device__ __forceinline__ void describe_axis(int& index, int outputs, Tile& tile) const {
        const int next = long_quotient(index, p.tile_reciprocals[4 - AXIS]);
        tile.start[AXIS] = (index - next * int(p.tiles[AXIS])) * int(p.tile[AXIS]);
        tile.size[AXIS] = outputs - tile.start[AXIS];
        index = next;
    }

    // The offset of the tile's first output, in row 0 of its group.
    __device__ __forceinline__ int64 first_output(const Tile& tile) const {
        int64 offset = tile.group * p.out_group + tile.start[0] * p.out_batch;
#pragma unroll
        for (int a = 0; a < 3; ++a)
            offset += (phase.residue[a] + tile.start[a + 1] * int(p.axis[a].taps.phases)) * p.fold[a].count *
                      p.out_axis[a];
        return offset;
    }
    // Rows of outputs from the tile's first one on that exist.
    __device__ int rows_from(const Tile& tile) const {
        return STACKED == 1 ? tile.size[2] : int(p.taps[1].size_out) - tile.start[2] * STACKED;
    }
    // The first row of a warpgroup among all rows, and its first column in a tile.
    __device__ static int first_row(const Tile& tile, int warpgroup) {
        return tile.row_tile * ROWS + (ROW_WARPGROUPS == 2 ? warpgroup : 0) * WARPGROUP_ROWS;
    }
    __device__ static int first_column(int warpgroup) {
        return ROW_WARPGROUPS == 2 ? 0 : warpgroup * WARPGROUP_COLUMNS;
    }
};
