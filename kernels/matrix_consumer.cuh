// The consumer warpgroups of matrix_conv.cu: the mainloop, which multiplies what the producers have brought, and what
// becomes of the sums of a tile.
//
//     mainloop   for each stage of inputs: wait until it is full; for each group of steps: wait for its weights,
//                multiply, give the stage of weights back; give the stage of inputs back
//     then       float16 emulation adds up passes, and the epilogue stores or pools
#pragma once
#include "matrix_outputs.cuh"
#include "matrix_float16.cuh"

struct Consumer {
    const Schedule& schedule;
    const Memory& memory;
    const Arguments& p;
    Shared& shared;
    const int warpgroup;

    __device__ __forceinline__ Consumer(const Schedule& schedule, const Memory& memory, int warpgroup)
        : schedule(schedule), memory(memory), p(schedule.p), shared(schedule.shared), warpgroup(warpgroup) {}

    // The products of a tile in a pass, as if the stages that it leaves out were the first stages of each tap of z.
    __device__ __forceinline__ void mainloop(ENGINE& engine, int left_out, Turn& input, Turn& weight) const {
        const int blocks = schedule.blocks, depth = schedule.depth, z_taps = schedule.z_taps;
        const int from = left_out * depth, stages = schedule.stages_of_tap() - left_out, all = stages * z_taps;
        const int groups =
            z_taps * ((stages - 1) * schedule.groups_of(from) + schedule.groups_of(from + (stages - 1) * depth));
        const int slab = ROW_WARPGROUPS == 2 ? warpgroup : 0, columns = schedule.first_column(warpgroup);
        const bool stay = schedule.stays();
        int number = 0;
        for (int stage = 0, block = from; stage < all; ++stage) {
            mbarrier_wait(&shared.inputs_full[input.stage], input.parity);
            Operands operands;
            operands.weight_pitch = SLABS * SLAB_BYTES;
            operands.inputs = memory.inputs + input.stage * memory.input_bytes +
                              columns / SEGMENT / STACKED * int(p.segment_pitch) * SLOT_BYTES;
            operands.half_pitch = p.sum.halves == 1
                                      ? distance_of(p.axis[2], int(p.sum.apart) * schedule.phase.taps[2].offset_step)
                                      : int(p.slots);
            operands.part_pitch = int(p.sum.halves * p.slots);
            operands.segment_pitch = int(p.segment_pitch);
            operands.distance = memory.distance;
            operands.warpgroup = warpgroup;
            operands.groups = groups;
            int left = schedule.steps_of(block);
            block = block + depth < blocks ? block + depth : from;
            while (left > 0) {
                operands.steps = left < int(p.group) ? left : int(p.group);
                operands.weights = memory.weights + weight.stage * memory.weight_bytes + slab * SLAB_BYTES;
                operands.number = number++;
                mbarrier_wait(&shared.weights_full[weight.stage], stay ? 0 : weight.parity);
                engine.multiply(operands);
                operands.distance += operands.steps;
                left -= operands.steps;
                release(left ? nullptr : &shared.inputs_empty[input.stage],
                        stay ? nullptr : &shared.weights_empty[weight.stage]);
                weight.advance(int(p.weight_stages));
            }
            input.advance(int(p.stages));
        }
    }
    // Gives stages back that all lanes of the warp have read.
    __device__ static void release(mbarrier* input, mbarrier* weight) {
        __syncwarp();
        if (threadIdx.x % 32 != 0) return;
        if (input) mbarrier_arrive(input);
        if (weight) mbarrier_arrive(weight);
    }

    // All tiles of the block, in both sweeps.
    __device__ __forceinline__ void run() const {
        int row_tile = -1, group = -1;  // of the last tile
        ENGINE engine;
        Numbers::Sums sums;
        Numbers numbers(schedule);
        ENGINE::begin(warpgroup);
        Turn input = {0, 0}, weight = {0, 0};
#pragma unroll 1
        for (int sweep = 0; sweep < Schedule::SWEEPS && schedule.begins(sweep); ++sweep)
#pragma unroll 1
            for (int i = 0, tiles = schedule.tiles_of(sweep); i < tiles; ++i) {
                const int index = schedule.tile_of(sweep, i);
                Tile tile;
                if (!uniform(schedule.describe(index, tile))) continue;
                const bool new_rows = uniform((tile.row_tile != row_tile) | (tile.group != group));
                if (new_rows) {
                    Epilogue::end_rows(schedule, warpgroup, row_tile, group);
                    Epilogue::begin_rows(schedule, warpgroup, tile);
                }
                row_tile = tile.row_tile, group = tile.group;
                const int border = Outputs(schedule).describe(tile, warpgroup, new_rows);
                const int64 output = schedule.first_output(tile);
                engine.clear();
                // Not before that, or compilers clear again where not all warps pass.
                int pass = schedule.first_pass(sweep, i);
#pragma unroll 1
                for (;;) {
                    mainloop(engine, schedule.left_out(pass), input, weight);
                    const int next = schedule.next_pass(sweep, pass);
                    if (next < 0) break;
                    numbers.put_aside(engine, sums, warpgroup, pass);
                    engine.clear();
                    pass = next;
                }
                engine.finish();
                if (sweep == 0 && numbers.finds_windows()) {
                    numbers.postpone(engine, sums, index, warpgroup);
                    continue;
                }
                const Numbers::Scale scale = numbers.finish(engine, sums, tile, warpgroup, sweep, pass);
                if constexpr (POOLING) {
                    scale_sums(engine, scale);  // windows read them more than once
                    Epilogue::finish(schedule, engine, Unscaled(), tile, output, index, warpgroup, border);
                } else
                    Epilogue::finish(schedule, engine, scale, tile, output, index, warpgroup, border);
            }
        ENGINE::end(warpgroup);
        Epilogue::end_rows(schedule, warpgroup, row_tile, group);
    }
};
