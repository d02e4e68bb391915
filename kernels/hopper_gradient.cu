// Products of the gradient of a weight by wgmma, for float32 (by three TF32 products or by one), float16 and bfloat16.
// Both arrays have been copied before by gradient_lines.cu, so that a tap is a shift along memory.
//
//     partial[range, g, r, (k, c)] = sum over i of a range of grad[g, r, i] * input[plane(k), g, c, i + shift(k)]
//
// It is a matrix product of few rows and columns and a long sum. The copy engine brings boxes of both arrays to shared
// memory: of a tile's rows, output channels, a box of ROWS channels; of its columns, for each tap a box of p.box
// channels. A box has 128 bytes of each channel, so the shift of a tap costs nothing.
//
//     lane of the producer     boxes of a stage                    consumers: two warpgroups
//     0                        grad   (ROWS channels)              side by side, or above each other;
//     0 ... COLUMNS / box - 1  input  (box channels of a tap)      each multiplies 64 rows by SEGMENT columns
//
// Zeros between lines and samples stand where a tap leaves the input, and what a box has beyond the ends of an array is
// zero as well.
//
// Tensor Cores round sums towards zero, and float32 sums of millions of products of one sign would become too small.
// So with PARTS == 2 the products of a step are a chain of their own, which begins with the small ones.
//
// A block has a range of the steps (split-K); gradient_sum.cu adds the ranges in order.
//
// Macros (set by cupyconv/_kernels/hopper_gradient.py):
//     ELEMENT    type of the numbers (scalar.cuh)
//     PARTS      2 if floats are multiplied as two TF32 numbers each, in three products
//     DOWN       warpgroups above each other, 1 or 2
//     SEGMENT    columns of a warpgroup
//
// Launch: THREADS threads and a block for each tile of each range, on compute capability 9.0; it may begin early.

#include "gradient_tile.cuh"

typedef ELEMENT Element;

constexpr int THREADS = CONSUMERS * WARPGROUP + 32;
constexpr int ROWS = 64 * DOWN, COLUMNS = SEGMENT * (CONSUMERS / DOWN);
constexpr int STEP_BYTES = 128, STEP = STEP_BYTES / sizeof(Element);  // of a channel
constexpr int ROW_BYTES = ROWS * STEP_BYTES, COLUMN_BYTES = COLUMNS * STEP_BYTES;
constexpr int STAGE_BYTES = PARTS * (ROW_BYTES + COLUMN_BYTES);
constexpr int ROOM = 224 * 1024, STAGES = ROOM / STAGE_BYTES < 8 ? ROOM / STAGE_BYTES : 8;
constexpr int MOST_TAPS = 64;  // of an axis

// Where a tap finds its inputs: in a plane, so many places further.
struct Place {
    int64 plane, shift;
};

struct Arguments {
    TensorMap grad, input;  // x: places; y: channels; z: samples where the arrays are read in place, else planes
    float* partial;
    int64 adds;  // whether sums are added to those in memory
    int64 rows, channels, groups;  // of a group; groups
    int64 samples, steps;  // samples that have steps of their own, and their steps
    int64 box;  // channels of a box of inputs: a power of two from 8 on
    int64 taps;
    int64 planes;  // of inputs, from one part to the next
    int64 row_tiles, column_tiles, splits;
    int64 kernel[3];
    Place tap[3][MOST_TAPS];  // along z, y and x
};

typedef Wgmma<matrix_type<Element>::value, SEGMENT> Product;

struct Block : GradientTile<ROWS, COLUMNS, Arguments> {
    unsigned char* const memory;  // stages, then the ring's barriers

    __device__ Block(const Arguments& p, unsigned char* memory)
        : GradientTile(p, p.samples * p.steps), memory(memory) {}
    __device__ unsigned char* rows(int stage, int part) const {
        return memory + stage * STAGE_BYTES + part * ROW_BYTES;
    }
    __device__ unsigned char* columns(int stage, int part) const {
        return rows(stage, PARTS) + part * COLUMN_BYTES;
    }
    __device__ Ring<STAGES>& ring() const { return *(Ring<STAGES>*)rows(STAGES, 0); }

    // The first channel of a box of inputs, and where its tap finds them. After the last box of a group come boxes of
    // channels that the group does not have, whose sums are not stored.
    __device__ int describe_box(int lane, Place& place) const {
        int rest = first_box + lane;
        place = {0, 0};
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const int next = rest / int(p.kernel[axis]);
            const Place& own = p.tap[axis][rest - next * int(p.kernel[axis])];
            place.plane += own.plane, place.shift += own.shift;
            rest = next;
        }
        return rest * int(p.box);
    }

    // The warp that has boxes brought: a lane for each of the inputs', of which the first one has the rows brought, too.
    __device__ void produce() const {
        const int lane = threadIdx.x % 32;
        const bool brings = lane < COLUMNS / int(p.box);
        Place place;
        const int channel = group * int(p.channels) + describe_box(lane, place), row = group * int(p.rows) + first_row;
        int sample = int(begin / p.steps), step = int(begin - sample * p.steps);
        Turn<STAGES> turn;
        for (int64 i = begin; i < end; ++i, turn.advance()) {
            mbarrier* const full = &ring().full[turn.stage];
            mbarrier_wait(&ring().empty[turn.stage], 1 - turn.parity);
            if (lane == 0) {
                mbarrier_arrive_expect(full, STAGE_BYTES);
#pragma unroll
                for (int part = 0; part < PARTS; ++part)
                    tensor_copy(rows(turn.stage, part), &p.grad, step * STEP, row, sample + part, full);
            }
            // Other lanes may be first: the phase waits for the arrival whatever bytes were counted before.
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                if (brings)
                    tensor_copy(columns(turn.stage, part) + lane * int(p.box) * STEP_BYTES, &p.input,
                                step * STEP + int(place.shift), channel,
                                sample + int(place.plane) + part * int(p.planes), full);
            if (++step == int(p.steps)) step = 0, ++sample;
        }
    }

    // Multiplies the operands of a step.
    __device__ __forceinline__ static void multiply(float (&sums)[SEGMENT / 2], const unsigned char* a,
                                                    const unsigned char* b, bool adds) {
        constexpr int DEPTH_BYTES = 32;  // of an instruction
#pragma unroll
        for (int k = 0; k < STEP_BYTES; k += DEPTH_BYTES)
            Product::multiply(sums, swizzled_descriptor(a + k), swizzled_descriptor(b + k), adds || k > 0);
    }

    __device__ void consume() const {
        const int warpgroup = threadIdx.x / WARPGROUP;
        const int row = DOWN == 2 ? warpgroup * 64 : 0, column = DOWN == 2 ? 0 : warpgroup * SEGMENT;
        float sums[SEGMENT / 2], chain[SEGMENT / 2];  // one of them is in use where PARTS == 1
#pragma unroll
        for (int i = 0; i < SEGMENT / 2; ++i) sums[i] = chain[i] = 0;
        Turn<STAGES> turn;
        int before = -1;  // the stage of the step before
        for (int64 i = begin; i < end; ++i, turn.advance()) {
            const int stage = turn.stage;
            const auto a = [&](int part) { return rows(stage, part) + row * STEP_BYTES; };
            const auto b = [&](int part) { return columns(stage, part) + column * STEP_BYTES; };
            mbarrier_wait(&ring().full[stage], turn.parity);
            wgmma_fence();
            if constexpr (PARTS == 2) {
                multiply(chain, a(1), b(0), false);
                multiply(chain, a(0), b(1), true);
                multiply(chain, a(0), b(0), true);
                wgmma_commit();
                wgmma_wait<0>();
                ring().release(stage);
#pragma unroll
                for (int j = 0; j < SEGMENT / 2; ++j) sums[j] += chain[j];
            } else {
                multiply(sums, a(0), b(0), true);
                wgmma_commit();
                wgmma_wait<1>();
                if (before >= 0) ring().release(before);
                before = stage;
            }
        }
        wgmma_wait<0>();
        store(sums, row, column);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_gradient(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Block block(p, memory);
    block.ring().initialise(CONSUMERS * WARPGROUP / 32);
    wait_for_grids();  // before any array is read or written
    if (threadIdx.x < CONSUMERS * WARPGROUP)
        block.consume();
    else
        block.produce();
}
