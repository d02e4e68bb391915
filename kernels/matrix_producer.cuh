// The producers of matrix_conv.cu: one warp loads weights, all other producer warps load inputs.
//
//     WeightProducer   packed weights in memory -> ring of weights, by a bulk copy (PROXY) or by cp.async
//     InputProducer    NCHW in memory -> registers, along rows of the image -> ring of inputs, 16-byte chunk by chunk
//
// A producer waits for a stage to be empty, fills it, and arrives at its "full" barrier.
#pragma once
#include "matrix_float16.cuh"

struct WeightProducer {
    static constexpr int64 STEP_BYTES = SLABS * SLAB_BYTES;

    const Schedule& schedule;
    const Memory& memory;
    const Arguments& p;
    Shared& shared;

    __device__ __forceinline__ WeightProducer(const Schedule& schedule, const Memory& memory)
        : schedule(schedule), memory(memory), p(schedule.p), shared(schedule.shared) {}

    // Brings the weights of all tiles; of one tile, if they stay in their ring.
    __device__ __forceinline__ void run() const {
        Turn turn = {0, 0};
        int filled = -1;  // a stage whose copies are under way
        if (!EMULATES) wait_for_grids();
        const int64 window_bytes = p.groups * p.phases * p.row_tiles * p.steps * STEP_BYTES;
        for (int sweep = 0; sweep < Schedule::SWEEPS && schedule.begins(sweep); ++sweep)
            for (int i = 0, tiles = schedule.tiles_of(sweep); i < tiles && (i + sweep == 0 || !schedule.stays()); ++i) {
                Tile tile;
                if (!schedule.describe(schedule.tile_of(sweep, i), tile)) continue;
                const int64 rows = (tile.group * p.phases + schedule.phase_index) * p.row_tiles + tile.row_tile;
                const unsigned char* const weights = p.packed + rows * p.steps * STEP_BYTES;
                for (int pass = schedule.first_pass(sweep, i); pass >= 0; pass = schedule.next_pass(sweep, pass))
                    bring(weights + schedule.weights_of_pass(pass) * window_bytes, pass, turn, filled);
            }
        if (filled >= 0) {
            copy_async_wait<0>();
            mbarrier_arrive(&shared.weights_full[filled]);
        }
    }
    // Brings the weights of a pass over a tile.
    __device__ __forceinline__ void bring(const unsigned char* from, int pass, Turn& turn, int& filled) const {
        const int blocks = schedule.blocks, depth = schedule.depth;
        const int lane = threadIdx.x % 32;
        for (int stage = 0, block = 0; stage < schedule.stages_of_tap() * schedule.z_taps; ++stage) {
            int left = schedule.steps_of(block);
            if (!schedule.has(pass, block)) from += left * STEP_BYTES, left = 0;
            block = block + depth < blocks ? block + depth : 0;
            while (left > 0) {
                const int steps = left < int(p.group) ? left : int(p.group), bytes = steps * int(STEP_BYTES);
                unsigned char* const to = memory.weights + turn.stage * memory.weight_bytes;
                if (ENGINE::PROXY) {
                    if (lane == 0) {
                        mbarrier_wait(&shared.weights_empty[turn.stage], turn.parity ^ 1);
                        mbarrier_arrive_expect(&shared.weights_full[turn.stage], bytes);
                        bulk_copy(to, from, bytes, &shared.weights_full[turn.stage]);
                    }
                } else {
                    mbarrier_wait(&shared.weights_empty[turn.stage], turn.parity ^ 1);
                    for (int i = lane * SLOT_BYTES; i < bytes; i += 32 * SLOT_BYTES)
                        copy_async<SLOT_BYTES>(to + i, from + i, SLOT_BYTES);
                    copy_async_commit();
                    if (filled >= 0) {
                        copy_async_wait<1>();
                        mbarrier_arrive(&shared.weights_full[filled]);
                    }
                    filled = turn.stage;
                }
                from += bytes;
                left -= steps;
                turn.advance(int(p.weight_stages));
            }
        }
    }
};

// A warp takes 32 times PIXELS positions at a time, a thread PIXELS of them (neighbours, or, if `apart`, one in each of
// two components), of `deep` K blocks in turn: a unit. The warps share the units of a chunk of K blocks, each taking
// every WARPS-th one, in rounds of one or a few. While a round is stored to shared memory, the loads of the next one
// are on their way, which may belong to another chunk or tile.
//
//     unit    0     1     2     3     4     5     6     7     ...    positions of K blocks 0 ... deep - 1, and so on
//     warp    0     1     2     0     1     2     0     1            3 warps
//
// The second sweep takes positions one by one, and a chunk of K blocks is a stage.
template <int PIXELS, int SWEEP = 0>
struct InputProducer {
    typedef typename BitsOf<PIXELS * sizeof(Element)>::type Loads;
    typedef Loads Values[DEPTH][CHUNK];
    static constexpr int TOGETHER = ENGINE::LOADS / (BLOCK * (int(sizeof(Loads) + 3) / 4));
    static constexpr int ROUND = SWEEP || TOGETHER < 1 ? 1 : TOGETHER;  // K blocks
    static constexpr int WARPS = INPUT_THREADS / 32;

    const Schedule& schedule;
    const Memory& memory;
    const Arguments& p;
    Shared& shared;
    const int lane, warp, groups, deep;
    const int count;     // units of a round
    const bool apart, odd;  // whether there are several components; an odd number, with a table of the places of pairs
    const int turned;       // 1 where the second of two neighbours is stored first
    int number, pass;    // of the tile in the sweep
    int begun;           // tiles
    int block, tap;      // of the chunk
    int unit, units;     // the first unit of the round, and the number of units of the chunk
    int blocks;          // K blocks of the chunk
    const Bits* input;   // the chunk's first input
    int first[4];        // its coordinates
    bool inside;         // whether all inputs of the chunk exist
    Turn turn, ahead;    // the stage that is stored, and the first stage that is not known to be empty
    int begin, entered;  // their first K blocks in the chunk

    __device__ __forceinline__ InputProducer(const Schedule& schedule, const Memory& memory, Turn turn = {0, 0})
        : schedule(schedule),
          memory(memory),
          p(schedule.p),
          shared(schedule.shared),
          lane(threadIdx.x % 32),
          warp(uniform((threadIdx.x - CONSUMER_THREADS) / 32 - 1)),
          groups(int(p.slots) / (32 * PIXELS)),
          deep(ROUND == 1 ? 1 : int(p.deep)),
          count(ROUND == 1 ? 1 : ROUND / deep),
          apart(PIXELS == 2 && p.axis[2].lattices > 1),
          odd(PIXELS == 2 && in_odd_lattices(p)),
          turned(PIXELS == 2 && !apart ? lane / 4 % 2 : 0),  // eight lanes store to all banks together
          number(-1),
          pass(2 * WINDOWS - 1),  // the last pass there may be
          begun(0),
          block(schedule.blocks),
          tap(schedule.z_taps),
          unit(warp),
          units(0),
          blocks(0),
          turn(turn),
          ahead(turn),
          begin(0),
          entered(0) {}

    // Fills the stages of all tiles of the sweep. Returns the stage after the last one. The code of a round stands
    // once: before the first round there is nothing to store. Nor is anything loaded; but with no loads in sight where
    // a loop begins, compilers would wait at its end for the loads of a round.
    __device__ __forceinline__ Turn run() {
        Values values[ROUND] = {};
        int shifts[ROUND] = {};
        if (p.stages < 0) load(values, shifts);
        bool more = true;
        while (more) {
            const int stored = unit, next = stored + count * WARPS, end = units, all = blocks, taken = pass;
            const int tile = begun - 1;
            more = advance();
            // All stores, then all zeros, then all loads: compilers count loads under way together, so that writing to
            // a register of an old load after a new one would wait for both.
            store(values, shifts, taken, tile, stored, end, all);
#pragma unroll
            for (int i = 0; i < ROUND; ++i) clear(values[i]);
            if (more) load(values, shifts);
            if (next < end) continue;
            leave(all + schedule.depth - 1);  // the last stage may have fewer K blocks
            begin = entered = 0;
        }
        return turn;
    }

    // ---- rounds, chunks and tiles ----

    __device__ static int most(int number, int limit) { return number < limit ? number : limit; }
    __device__ __forceinline__ int chunk() const { return SWEEP ? schedule.depth : int(p.chunk); }
    __device__ __forceinline__ void size_chunk() {
        blocks = most(schedule.blocks - block, chunk());
        units = (blocks + deep - 1) / deep * groups;
    }
    // Goes on to the next round. Returns whether there is one.
    __device__ __forceinline__ bool advance() {
        for (int i = 0; i < count && unit < units; ++i) unit += WARPS;
        if (unit < units) return true;
        unit -= units;
        bool other = false;
        do {
            block += chunk();
            if (block >= schedule.blocks) block = 0, ++tap;
            if (tap < schedule.z_taps) continue;
            tap = 0;
            pass = schedule.next_pass(SWEEP, pass);
            other = pass < 0;
            if (other) pass = schedule.first_pass(SWEEP, number + 1);
        } while (SWEEP && !schedule.has(pass, block));
        Tile tile;
        do {
            number += other;
            if (schedule.z_taps == 0 || number >= schedule.tiles_of(SWEEP)) return false;
        } while (!schedule.describe(schedule.tile_of(SWEEP, number), tile));
        begun += other;
        size_chunk();
        first[0] = tile.start[0];
        inside = tile.size[0] >= int(p.tile[0]);
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            const Taps& taps = schedule.phase.taps[a];
            int start = tile.start[a + 1] * int(p.axis[a].taps.step) + taps.offset;
            if (a == 0) start += tap * taps.offset_step;
            if (a == 2) start -= schedule.skew();
            first[a + 1] = start;
            inside &= (start >= 0) & (start + int(p.reach[a + 1]) < int(p.axis[a].taps.size_in));
        }
        input = (const Bits*)p.input + tile.group * p.input_group + first[0] * p.input_batch +
                block * BLOCK * p.input_channel;
#pragma unroll
        for (int a = 0; a < 3; ++a) input += element_of(p, a, first[a + 1]) * p.input_axis[a];
        return true;
    }

    // ---- units ----

    // The first K block of a unit.
    __device__ __forceinline__ int block_of(int unit) const { return turns_of(unit) * deep; }
    __device__ __forceinline__ int turns_of(int unit) const {
        return SWEEP ? unit / groups : quotient(unit, p.groups_reciprocal);
    }
    // The thread's first 16-byte chunk in a unit, or the number of its pair.
    __device__ __forceinline__ int slot_of(int unit) const {
        const int group = unit - turns_of(unit) * groups;
        return (group * 32 + lane) * (apart ? 1 : PIXELS);
    }
    // The thread's 16-byte chunks, given what slot_of returned.
    __device__ __forceinline__ PairSlots slots_of(int slot) const {
        PairSlots slots = {slot, slot + (apart ? int(p.slots) / 2 : PIXELS - 1)};
        if (odd) slots = memory.pairs[slot];
        return slots;
    }

    // ---- loads ----

    // The address of a thread's first input of a unit, the number of channels from there on, 0 where the input is
    // absent, and the shift of its sample.
    __device__ __forceinline__ void find(int unit, const Bits*& at, int& channels, int& shift) const {
        const int slot = slots_of(slot_of(unit)).first, own = block_of(unit);
        const int64 offset = memory.offset[slot];
        bool present = offset != ABSENT;
        if (!inside) {
            int from[4];
            PackedPlace::unpack(memory.from[slot], from);
            // As unsigned numbers, negative coordinates are too large as well.
            present &= (first[0] + from[0] < int(p.batch)) &
                       (unsigned(first[1] + from[1]) < unsigned(p.axis[0].taps.size_in)) &
                       (unsigned(first[2] + from[2]) < unsigned(p.axis[1].taps.size_in)) &
                       (unsigned(first[3] + from[3]) < unsigned(p.axis[2].taps.size_in));
        }
        channels = present ? int(p.sum.channels) - (block + own) * BLOCK : 0;
        at = input + own * BLOCK * p.input_channel + (present ? offset : 0);
        if (present) Numbers::find_shift(p, first[0] + PackedPlace::sample(memory.from[slot]), shift);
    }
    // Loads the channels of a K block. What is absent stays zero. There are no branches around these loads, so that all
    // are under way together. Two addresses, so that half as many additions wait for each other.
    __device__ __forceinline__ void load(Values& values, const Bits*& at, int& channels) const {
        const int64 pitch = p.input_channel;
        const Bits* next = at + pitch;
#pragma unroll
        for (int i = 0; i < BLOCK; i += 2, at += 2 * pitch, next += 2 * pitch) {
            load_bits(values[i / CHUNK][i % CHUNK], (const Loads*)at, i, channels);
            load_bits(values[i / CHUNK][i % CHUNK + 1], (const Loads*)next, i + 1, channels);
        }
        channels -= BLOCK;
    }
    __device__ static void clear(Values& values) {
#pragma unroll
        for (int i = 0; i < BLOCK; ++i) values[i / CHUNK][i % CHUNK] = Loads();
    }
    // Loads a round, K block by K block of each of its units.
    __device__ __forceinline__ void load(Values (&values)[ROUND], int (&shifts)[ROUND]) const {
        const Bits* at = nullptr;
        int channels = 0, left = 0, own = unit, shift = 0;
#pragma unroll
        for (int i = 0; i < ROUND; ++i) {
            if (i >= count * deep || own >= units) break;
            if (left == 0) find(own, at, channels, shift), left = deep;
            shifts[i] = shift;
            load(values[i], at, channels);
            if (--left == 0) own += WARPS;
        }
    }

    // ---- stores ----

    // Waits until all stages up to a K block of the chunk are empty. In rounds of one K block it is the stage that is
    // stored: to wait for it again takes less than to know about it.
    __device__ __forceinline__ void enter(int own) {
        if (ROUND == 1) {
            mbarrier_wait(&shared.inputs_empty[turn.stage], turn.parity ^ 1);
            return;
        }
        for (; own >= entered; entered += schedule.depth) {
            mbarrier_wait(&shared.inputs_empty[ahead.stage], ahead.parity ^ 1);
            ahead.advance(int(p.stages));
        }
    }
    // Goes on to the stage of a K block of the chunk: the stages before it have all that the warp brings.
    __device__ __forceinline__ void leave(int own) {
        for (; own >= begin + schedule.depth; begin += schedule.depth) {
            enter(begin);
            if (ENGINE::PROXY) async_proxy_fence();
            mbarrier_arrive(&shared.inputs_full[turn.stage]);
            turn.advance(int(p.stages));
        }
    }
    // Stores a K block of a thread's 16-byte chunks, as the Tensor Cores read it.
    __device__ __forceinline__ void store(const Values& values, int own, const PairSlots& places,
                                          const Placing& placing, int tile) const {
        const int slots = int(p.slots), halves = int(p.sum.halves);
        // K blocks follow each other around the ring.
        const int ring = int(p.stages) * schedule.depth, behind = turn.stage * schedule.depth + own - begin;
        // A K block has both halves of its first part, then both halves of the second.
        Range range;
        Slot* const to = (Slot*)memory.inputs + (behind < ring ? behind : behind - ring) * PARTS * halves * slots;
        Slot* const at[2] = {to + places.first, to + places.second};
#pragma unroll
        for (int half = 0; half < DEPTH; ++half) {
            if (half >= halves) break;
#pragma unroll
            for (int pixel = 0; pixel < PIXELS; ++pixel) {
                Slot parts[PARTS];
                Channels<Element, Operand>::fill<SWEEP>(parts, values[half], pixel ^ turned, placing, range);
#pragma unroll
                for (int part = 0; part < PARTS; ++part)
                    at[pixel][(part * halves + half) * slots] = parts[part];
            }
        }
        if (SWEEP == 0)
            Numbers::note_windows<PIXELS>(shared, values, range, placing.shift, tile, own);
    }
    // Stores a round that begins with unit `own`, of a chunk with `units` units and `blocks` K blocks.
    __device__ __forceinline__ void store(const Values (&values)[ROUND], const int (&shifts)[ROUND], int pass, int tile,
                                          int own, int units, int blocks) {
        int block = 0, left = 0;
        PairSlots slots = {0, 0};
#pragma unroll
        for (int i = 0; i < ROUND; ++i) {
            if (i >= count * deep || own >= units) break;
            if (left == 0) {
                slots = slots_of(slot_of(own));
                if (turned) slots = {slots.second, slots.first};
                block = block_of(own), left = deep;
                leave(block);
            }
            if (block < blocks) {
                enter(block);
                store(values[i], block, slots,
                      {shifts[i], schedule.window_of_pass(pass), schedule.weights_in_one_window()}, tile);
            }
            ++block;
            if (--left == 0) own += WARPS;
        }
    }
};
