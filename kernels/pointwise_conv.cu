// The pointwise kernel for float32: convolutions of one tap and many channels on the Tensor Cores of compute capability
// 9.0, by one TF32 product. (pointwise16_conv.cu is the kernel for 16-bit numbers.)
//
//     out[n, g, row, o] = bias[g, row] + sum over channels of in[n, g, channel, i(o)] * w[g, row, channel]
//
// where i(o) = o * step + low on each axis. So it computes all such convolutions but transposed ones with strides.
//
// It is a matrix product for each sample. Tiles of ROWS output channels by PLACES_OF_BLOCK positions are summed over
// chunks of channels, which pass through shared memory in a ring of pipeline stages:
//
//     a stage    weights of a chunk                inputs of a chunk, as they lie in memory
//                [step][row tile][half of K]...    channel 0   # # # # # # # # # # # # # # # #
//                                                  channel 1   # # # # # # # # # # # # # # # #
//                                                  ...         |  warpgroup 0  |  warpgroup 1  |
//
// A producer warpgroup fills the stages. It runs ahead of the consumer warpgroups, also from one tile to the next. The
// consumers have the same rows, and each multiplies its own positions. It loads them to registers (from_registers.cuh),
// and the inputs of the next chunk while the products of this chunk are under way.
//
// The inputs of a channel are one bulk copy if they are aligned to 16 bytes and a block has several tiles, else pieces
// of 16 or 8 bytes. Where neighbouring positions do not lie TOGETHER, the consumers load their inputs from global
// memory. pack_weights.cu packs the weights first, so that the weights of a chunk are one bulk copy. If the weights of
// all chunks fit in shared memory they may stay there, and are loaded with the block's first tile alone.
//
// A sum runs over the channels in K steps of 8. It is the order of streaming_conv.cu, and gives the same bits.
// Infinities and NaN are treated as there.
//
// Macros, beside the macros of matrix_tile.cuh:
//     CHANNELS    channels of a chunk, a multiple of the channels of a K step
//     TEAMS       consumer warpgroups of a block; with one of them a multiprocessor has two blocks
//     HELD        row tiles of 64 rows whose accumulators a consumer warpgroup holds
//
// With bulk copies each chunk has a channel for each of the four producer warps: a parity cannot tell a warp that is
// two turns of the ring late, and only the wait for its bytes keeps each warp from being so late.
//
// Launch: THREADS threads, a multiple of `units` blocks, shared memory for stages, weights that stay, biases and
// barriers (_kernels/pointwise_conv.py). A block stays with one unit, which is ROWS rows of a group. The blocks of a
// unit take its tiles of positions in turn.

#include "from_registers.cuh"

static_assert(PARTS == 1, "three products need sums of their own for each chunk");

constexpr int ROWS = HELD * SLAB_ROWS;
constexpr int PLACES_OF_BLOCK = TEAMS * TEAM_PLACES;
constexpr int THREADS = (TEAMS + 1) * TEAM;
constexpr int GIVEN = 40, TAKEN = TEAMS == 1 ? 208 : 232;  // registers of producer and consumer threads
// Bytes from one channel to the next in a stage; with this pitch the loads of a warp use all banks.
constexpr int PITCH = PLACES_OF_BLOCK * sizeof(Element) + 32;
constexpr int INPUT_BYTES = CHANNELS * PITCH, WEIGHT_BYTES = STEPS * HELD * SLAB_BYTES;  // of a chunk
constexpr int MAX_STAGES = 8;

// All strides are in elements.
struct Arguments {
    const Element* input;
    const Element* weight;
    const unsigned char* packed;
    Element* out;
    Parameter bias;
    int64 channels, rows;  // of a group
    int64 weight_group, weight_row, weight_channel;
    Space space;
    int64 tiles, tiles_of_sample, per_tiles;  // tiles of positions; per_tiles is a long reciprocal
    int64 units, units_of_group, chunks, stages;
    int64 stay;      // 1 if the weights of all chunks stay in shared memory beside the stages
    int64 bulk;      // 1 if the inputs of each channel are one bulk copy
    int64 together;  // 1 if a thread's positions are contiguous and aligned in input and output
};

struct Barriers {
    mbarrier full[MAX_STAGES], empty[MAX_STAGES];
};

struct Worker {
    const Arguments& p;
    unsigned char *const weights, *const inputs;  // of all stages; weights of all chunks where they stay
    float* const biases;
    Barriers& barriers;
    const int unit, group, first_row;

    __device__ __forceinline__ Worker(const Arguments& p, unsigned char* memory)
        : p(p),
          weights(memory),
          inputs(weights + int(p.stay ? p.chunks : p.stages) * WEIGHT_BYTES),
          biases((float*)(inputs + int(p.stages) * INPUT_BYTES)),
          barriers(*(Barriers*)(biases + ROWS)),
          unit(blockIdx.x % int(p.units)),
          group(divided(unit, int(p.units_of_group))),
          first_row((unit - group * int(p.units_of_group)) * ROWS) {}

    __device__ void begin() const {
        if (threadIdx.x < int(p.stages)) {
            mbarrier_init(&barriers.full[threadIdx.x], (p.bulk ? 0 : TEAM) + 1);
            mbarrier_init(&barriers.empty[threadIdx.x], TEAMS * TEAM / 32);
            mbarrier_init_fence();
        }
        for (int own = threadIdx.x; own < ROWS; own += THREADS) {
            const int row = first_row + own;
            biases[own] = p.bias.data && row < int(p.rows) ? load_parameter<float>(p.bias, group * p.rows + row) : 0.0f;
        }
    }

    // The first position of a tile, in its sample.
    struct Tile {
        int sample, first;
    };
    __device__ Tile tile_of(int tile) const {
        const int sample = long_quotient(tile, p.per_tiles);
        return {sample, (tile - sample * int(p.tiles_of_sample)) * PLACES_OF_BLOCK};
    }

    // The producer warpgroup copies `bytes` bytes of each of `count` channels; a warp copies every fourth channel.
    __device__ __forceinline__ void bring_in_bulk(const unsigned char* from, int bytes, int count, unsigned char* to,
                                                  mbarrier* full) const {
        const int warp = uniform(threadIdx.x % TEAM / 32);
        const int64 stride = p.space.input_channel * int64(sizeof(Element));
        if (!elected()) return;
        from += warp * stride, to += warp * PITCH;
#pragma unroll 1
        for (int channel = warp; channel < count; channel += TEAM / 32) {
            bulk_copy(to, from, bytes, full);
            from += TEAM / 32 * stride, to += TEAM / 32 * PITCH;
        }
    }
    // Copies inputs that are aligned to 8 bytes: a thread has 16 bytes of some channels, in one copy if aligned to 16.
    // The stride of channels is a multiple of 8 bytes, so the channels of one thread are multiples of 16 bytes apart.
    __device__ __forceinline__ void bring_in_pieces(const unsigned char* from, int bytes, int count,
                                                    unsigned char* to) const {
        constexpr int COLUMNS = PLACES_OF_BLOCK * sizeof(Element) / 16, APART = TEAM / COLUMNS;
        const int first = threadIdx.x % TEAM / COLUMNS, place = threadIdx.x % COLUMNS * 16;
        const int64 stride = p.space.input_channel * int64(sizeof(Element));
        from += first * stride + place, to += first * PITCH + place;
        const bool both = place + 8 < bytes, aligned = both && unsigned((unsigned long long)from) % 16 == 0;
#pragma unroll 4
        for (int channel = place < bytes ? first : count; channel < count; channel += APART) {
            if (aligned)
                copy_async<16>(to, from, 16);
            else {
                copy_async<8>(to, from, 8);
                if (both) copy_async<8>(to + 8, from + 8, 8);
            }
            from += APART * stride, to += APART * PITCH;
        }
    }
    // The weights of a chunk that comes through a stage.
    __device__ unsigned char* weights_of(int chunk, int stage) const {
        return weights + (p.stay ? chunk : stage) * WEIGHT_BYTES;
    }

    // All chunks of all tiles of the block, by a warpgroup.
    __device__ __forceinline__ void bring() const {
        const int blocks = gridDim.x / int(p.units), chunks = int(p.chunks);
        const int64 chunk_stride = CHANNELS * p.space.input_channel * int64(sizeof(Element));
        const bool first_warp = uniform(threadIdx.x % TEAM / 32) == 0;
        bool brought = true;  // whether weights come with this tile
        Turn turn = {0, 0};
#pragma unroll 1
        for (int tile = blockIdx.x / int(p.units); tile < int(p.tiles); tile += blocks) {
            const Tile own = tile_of(tile);
            const int left = int(p.space.size) - own.first;
            const int bytes = (left < PLACES_OF_BLOCK ? left : PLACES_OF_BLOCK) * int(sizeof(Element));
            const unsigned char* from =
                (const unsigned char*)(p.input + p.space.first + own.sample * p.space.input_batch +
                                       group * p.space.input_group + own.first);
#pragma unroll 1
            for (int chunk = 0; chunk < chunks; ++chunk) {
                const int channels = int(p.channels) - chunk * CHANNELS;
                const int count = !p.together ? 0 : channels < CHANNELS ? channels : CHANNELS;
                mbarrier* const full = &barriers.full[turn.stage];
                mbarrier_wait(&barriers.empty[turn.stage], turn.parity ^ 1);
                if (p.bulk)
                    bring_in_bulk(from, bytes, count, inputs + turn.stage * INPUT_BYTES, full);
                else {
                    bring_in_pieces(from, bytes, count, inputs + turn.stage * INPUT_BYTES);
                    copy_async_arrive(full);
                }
                if (first_warp && elected()) {
                    mbarrier_arrive_expect(full, (p.bulk ? count * bytes : 0) + (brought ? WEIGHT_BYTES : 0));
                    if (brought) {
                        wait_for_grids();  // where weights come from
                        bulk_copy(weights_of(chunk, turn.stage),
                                  p.packed + (int64(unit) * chunks + chunk) * WEIGHT_BYTES, WEIGHT_BYTES, full);
                    }
                }
                __syncwarp();
                from += chunk_stride;
                turn.advance(int(p.stages));
            }
            brought = brought && !p.stay;
        }
    }

    // A thread's i-th position in its sample, in a tile that begins there.
    template <bool TOGETHER>
    __device__ static int position_of(int first, int i) {
        return first + int(threadIdx.x) / TEAM * TEAM_PLACES + team_place<TOGETHER>(i);
    }
    // Returns true if a thread's i-th position exists, and sets its offsets and coordinates.
    template <bool TOGETHER>
    __device__ bool locate(int tile, int i, Place& place, int (&at)[3]) const {
        const Tile own = tile_of(tile);
        const int position = position_of<TOGETHER>(own.first, i);
        if (position >= int(p.space.size)) return false;
        place = p.space.place_of(own.sample, group, position, at);
        return true;
    }
    // The sum of an output, from the arrays themselves.
    __device__ float plain_sum(const Place& place, int row, const int (&)[3]) const {
        const Element* const input = p.input + place.input;
        const Element* const weight = p.weight + group * p.weight_group + row * p.weight_row;
        float sum = 0;
        for (int c = 0; c < int(p.channels); ++c)
            sum = fmaf(widen<float>(input[c * p.space.input_channel]), widen<float>(weight[c * p.weight_channel]), sum);
        return sum;
    }

    template <bool TOGETHER>
    __device__ __forceinline__ void find(Spots<TOGETHER>& spots, int tile) const {
        spots.channel = first_channel();
#pragma unroll
        for (int s = 0; s < spots.COUNT; ++s) {
            Place place = {0, 0};
            int at[3];
            const bool exists = locate<TOGETHER>(tile, s, place, at);
            spots.out[s] = exists ? p.out + place.out : nullptr;
            spots.from[s] = (const Bits*)p.input + place.input + spots.channel * p.space.input_channel;
            spots.channels[s] = exists ? int(p.channels) : 0;
        }
    }

    // Loads the operands of the next chunk, from its stage as soon as the stage is full, or from global memory.
    __device__ __forceinline__ void take(Operands& operands, Spots<true>& spots, const Turn& turn) const {
        mbarrier_wait(&barriers.full[turn.stage], turn.parity);
        const unsigned char* const from = inputs + turn.stage * INPUT_BYTES +
                                          position_of<true>(0, 0) * int(sizeof(Element)) + first_channel() * PITCH;
        const int left = spots.channels[0] - spots.channel;
        Inputs own;
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                const int channel = step * BLOCK + behind_first(i);
                own[step][i] = {0, 0};
                if (channel < left) own[step][i] = *(const Bits64*)(from + channel * PITCH);
            }
        spots.channel += CHANNELS;
        fill(operands, own, Element());
    }
    __device__ __forceinline__ void take(Operands& operands, Spots<false>& spots, const Turn& turn) const {
        Inputs own;
        load(own, spots, p.space.input_channel);
        mbarrier_wait(&barriers.full[turn.stage], turn.parity);
        fill(operands, own, Element());
    }

    // Issues the products of a chunk.
    __device__ __forceinline__ static void multiply(Sums (&sums)[HELD], const Operands& operands, const void* weights,
                                                    bool add) {
        constexpr int SLAB = DEPTH * SLAB_ROWS;  // chunks of 16 bytes
        const unsigned long long slab = matrix_descriptor(weights, SLAB_ROWS * SLOT_BYTES, 8 * SLOT_BYTES, 0);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
                for (int h = 0; h < HELD; ++h)
                    WgmmaOfRegisters<matrix_type<Operand>::value, SLAB_ROWS>::multiply(
                        sums[h][tile], operands[0][tile][step], slab + (step * HELD + h) * SLAB, add || step > 0);
        wgmma_commit();
    }

    // Adds the products of a chunk, and takes the next one meanwhile.
    template <bool TOGETHER>
    __device__ __forceinline__ void advance(Sums (&sums)[HELD], Operands& now, Operands& next, Spots<TOGETHER>& spots,
                                            Turn& turn, int chunk) const {
        const int stage = uniform(turn.stage);
        settle(now);
        multiply(sums, now, weights_of(chunk, stage), chunk > 0);
        turn.advance(int(p.stages));
        if (chunk < int(p.chunks) - 1) take(next, spots, turn);
        wgmma_wait<0>();
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(&barriers.empty[stage]);
    }

    template <bool TOGETHER>
    __device__ __forceinline__ void run(unsigned char* memory) const {
        const int blocks = gridDim.x / int(p.units), chunks = int(p.chunks);
        // Defined here, as where the first products seem to add to nothing NVRTC up to 12.8 lets each wait for the one
        // before.
        Sums sums[HELD] = {};
        Turn turn = {0, 0};
#pragma unroll 1
        for (int tile = blockIdx.x / int(p.units); tile < int(p.tiles); tile += blocks) {
            Spots<TOGETHER> spots;
            Operands operands[2];
            find(spots, tile);
            take(operands[0], spots, turn);
#pragma unroll 1
            for (int chunk = 0; chunk < chunks; chunk += 2) {
                advance(sums, operands[0], operands[1], spots, turn, chunk);
                if (chunk < chunks - 1) advance(sums, operands[1], operands[0], spots, turn, chunk + 1);
            }
#pragma unroll
            for (int h = 0; h < HELD; ++h) {
                const int first = h * SLAB_ROWS;
                const bool found =
                    store<TOGETHER>(sums[h], spots.out, biases + first, first_row + first, int(p.rows), p.space.out_row);
                if (REPAIRED && __any_sync(~0u, found)) repair<TOGETHER, Worker>(p, memory, tile, h);
                __syncwarp();
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, TEAMS == 1 ? 2 : 1)
    pointwise_conv(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Worker worker(p, memory);
    worker.begin();
    __syncthreads();
    const int warp = uniform(threadIdx.x / 32);
    if (warp >= TEAMS * TEAM / 32) {
        give_registers<GIVEN>();
        worker.bring();
    } else {
        take_registers<TAKEN>();
        if (p.together)
            worker.run<true>(memory);
        else
            worker.run<false>(memory);
    }
}
