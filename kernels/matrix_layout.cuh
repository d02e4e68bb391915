// Where the inputs of a tile lie, in memory and in a stage of matrix_conv.cu: tables that are the same for all tiles
// of a block.
//
//     producers   offset, from, pairs     chunk -> input, from the tile's first one on
//     consumers   distance                step -> chunks by which a tap's operand is shifted
#pragma once
#include "matrix_schedule.cuh"

// Four small coordinates in a word: along samples, z, y and x.
struct PackedPlace {
    static constexpr int Z = 27, Y = 22, X = 12;
    __device__ static unsigned pack(const int (&at)[4]) {
        return unsigned(at[0]) << Z | unsigned(at[1]) << Y | unsigned(at[2]) << X | unsigned(at[3]);
    }
    __device__ static void unpack(unsigned word, int (&at)[4]) {
        at[0] = sample(word);
        at[1] = int(word >> Y & 31u);
        at[2] = int(word >> X & 1023u);
        at[3] = int(word & 4095u);
    }
    __device__ static int sample(unsigned word) { return int(word >> Z); }
};

// The coordinates of a chunk in a tile: along samples, z, y and x. Chunks after the end of a row or a plane belong to
// the next one.
__device__ __forceinline__ void place_of(const Arguments& p, int slot, int (&place)[4]) {
    const int plane = quotient(slot, p.plane_reciprocal);
    slot -= plane * int(p.plane_pitch);
    place[0] = quotient(plane, p.depth_reciprocal);
    place[1] = plane - place[0] * int(p.tile[1]);
    place[2] = quotient(slot, p.row_reciprocal);
    place[3] = slot - place[2] * int(p.row_pitch);
}

// Pooled transposed convolutions read inputs between which others are absent: every n-th one is an element.
__device__ inline int spread_of(const Arguments& p, int a) { return POOLING ? int(p.axis[a].spread) : 1; }
// The element of an input, or the one before it.
__device__ inline int element_of(const Arguments& p, int a, int input) {
    constexpr int BEFORE = 4096;  // more than tiles reach (PackedPlace), which begin as far before element 0
    if (!POOLING) return input;
    return long_quotient(input + BEFORE * spread_of(p, a), p.axis[a].spread_reciprocal) - BEFORE;
}

struct Layout {
    const Schedule& schedule;
    const Memory& memory;
    const Arguments& p;
    const Phase& phase;

    __device__ __forceinline__ Layout(const Schedule& schedule, const Memory& memory)
        : schedule(schedule), memory(memory), p(schedule.p), phase(schedule.phase) {}

    // The distances of all steps of a stage.
    __device__ __forceinline__ void describe_steps(const Threads& threads) const {
        const int along_x = p.sum.along_x(phase.taps[2].count), halves = int(p.sum.halves);
        const int taps = schedule.taps, steps = schedule.depth * taps;
        for (int step = threads.rank; step < steps; step += threads.count) {
            const int block = small_quotient(step, taps), tap = step - block * taps;
            const int row = small_quotient(tap, along_x);
            const int x = p.sum.tap_of(tap - row * along_x, 0) * phase.taps[2].offset_step + schedule.skew();
#pragma unroll
            for (int stacked = 0; stacked < STACKED; ++stacked) {
                const int y = row * phase.taps[1].offset_step + stacked;
                const int lattice = lattice_of(p.axis[2], x) * int(p.axis[1].lattices) + lattice_of(p.axis[1], y);
                memory.distance[step].of[stacked] =
                    block * PARTS * halves * int(p.slots) + lattice * int(p.lattice_slots) +
                    distance_of(p.axis[1], y) * int(p.row_pitch) + distance_of(p.axis[2], x);
            }
        }
        if (threads.rank < 2 * AHEAD) memory.distance[steps + threads.rank] = {};
    }

    // The input of each chunk.
    __device__ __forceinline__ void describe_slots(const Threads& threads) const {
        const int lattices_y = int(p.axis[1].lattices);
        for (int slot = threads.rank; slot < int(p.slots); slot += threads.count) {
            const int lattice = small_quotient(slot, int(p.lattice_slots));
            const int lattice_x = small_quotient(lattice, lattices_y);
            int place[4];
            place_of(p, slot - lattice * int(p.lattice_slots), place);
            const bool used = (place[0] < int(p.tile[0])) & (place[2] < int(p.extent[0])) &
                              (place[3] < int(p.extent[1])) & (lattice < lattices_y * int(p.axis[2].lattices));
            const int from[4] = {
                place[0], place[1] * int(p.axis[0].taps.step),
                place[2] * int(p.axis[1].taps.step) + lattice_start(p.axis[1], lattice - lattice_x * lattices_y),
                place[3] * int(p.axis[2].taps.step) +
                    (used ? lattice_start(p.axis[2], lattice_x) : 0)};
            memory.from[slot] = PackedPlace::pack(from);
            int64 offset = used ? from[0] * p.input_batch : ABSENT;
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                const int input = first_input(a) + from[a + 1];
                const int element = element_of(p, a, input);
                if (element * spread_of(p, a) != input) offset = ABSENT;
                if (offset != ABSENT) offset += element * p.input_axis[a];
            }
            memory.offset[slot] = offset;
        }
    }
    // The distance of any tile's first input from its element.
    __device__ int first_input(int a) const {
        const int offset = phase.taps[a].offset;
        return offset - element_of(p, a, offset) * spread_of(p, a);
    }

    // The chunks of each pair of inputs, where the number of components is odd: as many pairs as there are components
    // fill two chunks of each component.
    //
    //     three components, inputs 0 ... 5    0 | 0 3        pairs (0, 1) (2, 3) (4, 5)
    //                                         1 | 1 4
    //                                         2 | 2 5
    __device__ __forceinline__ void describe_pairs(const Threads& threads) const {
        const int lattices = int(p.axis[2].lattices), lattices_y = int(p.axis[1].lattices);
        const int own_slots = int(p.lattice_slots);
        if (!in_odd_lattices(p)) return;
        for (int i = threads.rank; i < int(p.slots) / 2; i += threads.count) {
            const int turn = small_quotient(i, lattices), lattice_y = small_quotient(turn, own_slots / 2);
            int slots[2];
#pragma unroll
            for (int own = 0; own < 2; ++own) {
                const int input = 2 * (i - turn * lattices) + own, further = input >= lattices;
                const int lattice = (input - further * lattices) * lattices_y + lattice_y;
                slots[own] = lattice_y < lattices_y
                                 ? lattice * own_slots + 2 * (turn - lattice_y * (own_slots / 2)) + further
                                 : 2 * i + own;  // after the chunks of all components
            }
            memory.pairs[i] = {slots[0], slots[1]};
        }
    }
};
