// Products of the gradient of a weight by wgmma, for float16 and bfloat16 arrays whose channels lie innermost: an
// implicit matrix product.
//
//     partial[range, g, r, (k, c)] = sum over output pixels q of a range of grad[q, g, r] * input[place(q, k), g, c]
//     place(q, k)                  = q * step + k * dilation + lower, in the sample of q
//
// Rows of the product are output channels, columns are input channels of a tap, and the sum runs over the outputs of
// all samples in K steps of 64 pixels. The im2col mode of the copy engine brings neighbouring pixels of both arrays,
// over the ends of image rows and samples, those of the input a step apart and moved by the offset of a tap. What lies
// outside is zero, so neither borders nor taps need copies.
//
//     K step           rows: grad                  columns: input at tap 0     at tap 1
//     pixel 0          [ 64 channels ]  ...        [ p.box channels ]          [ p.box channels ]  ...
//     ...
//     pixel 63         [ 64 channels ]  ...        [ p.box channels ]          [ p.box channels ]  ...
//
// So both operands have the sum's index outermost, which wgmma takes of 16-bit numbers (transposed operands). A lane
// of the producer has a box of columns brought, and the first ones those of the rows; consumers are two warpgroups
// above each other, or side by side, of BLOCKS times 64 rows and SEGMENT columns each.
//
// Neighbouring taps along x can share a box, if there is no step along x: of a longer box each takes 64 pixels, the
// tap's distance further. Image rows then have more places than outputs, with zeros of grad where a tap would meet the
// next row. A warpgroup's columns are one such box.
//
//     tap 0     pixels 0 ... 63           places of an image row     outputs 0 ... n - 1     zeros
//     tap 1     pixels 1 ... 64                                      inputs 0 ... n - 1      the last taps' inputs
//
// A block has a range of the steps (split-K); gradient_sum.cu adds the ranges in order, and computes sums again in which
// a zero that stands for an absent input has met infinity.
//
// Macros (set by cupyconv/_kernels/im2col_gradient.py):
//     ELEMENT    type of the numbers (scalar.cuh)
//     DOWN       warpgroups above each other, 1 or 2
//     BLOCKS     blocks of 64 rows of a warpgroup
//     SEGMENT    columns of a warpgroup
//
// Launch: THREADS threads and a block for each tile of each range, on compute capability 9.0; it may begin early.

#include "gradient_tile.cuh"
#include "take.cuh"

typedef ELEMENT Element;

constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr int ROW_BOX = 64, ROWS = ROW_BOX * BLOCKS * DOWN, COLUMNS = SEGMENT * (CONSUMERS / DOWN);
constexpr int PIXELS = 64, DEPTH = 16;  // of a K step, and of an instruction
constexpr int ROW_BYTES = ROW_BOX * sizeof(Element);     // of a pixel in a box of rows
constexpr int CHANNEL_BYTES = PIXELS * sizeof(Element);  // of a channel in a K step
constexpr int ROOM = 224 * 1024, MOST_STAGES = 8;

struct Arguments {
    TensorMap grad, input;
    float* partial;
    int64 adds;                     // whether sums are added to those in memory
    int64 grad_group, input_group;  // channels from one group to the next in the maps
    int64 rows, channels, groups;   // of a group; groups
    int64 steps;
    int64 axes;                          // of the maps
    int64 places[3], lower[3], step[3];  // of outputs; of the window of the input; all axes are x, y and z
    int64 boxes[3], offset[3];           // boxes of taps, and from one to the next
    int64 box, shared;                   // channels of a box of inputs: 8, 16, 32 or 64; taps that share it
    int64 pixels, box_bytes;             // of a box of inputs; its bytes in whole blocks of the swizzle
    int64 apart;                         // bytes from the pixels of a tap to those of the next one
    int64 taps;
    int64 row_tiles, column_tiles, splits;
};

typedef Wgmma<matrix_type<Element>::value, SEGMENT, true> Product;

struct Block : GradientTile<ROWS, COLUMNS, Arguments> {
    unsigned char* const memory;  // stages, then the ring's barriers
    const int boxes, pixel;       // boxes of columns; bytes of a pixel in one
    const int stage_bytes, stages;

    __device__ Block(const Arguments& p, unsigned char* memory)
        : GradientTile(p, p.steps), memory(memory), boxes(COLUMNS / int(p.box * p.shared)),
          pixel(int(p.box) * sizeof(Element)), stage_bytes(ROWS * CHANNEL_BYTES + boxes * int(p.box_bytes)),
          stages(ROOM / stage_bytes < MOST_STAGES ? ROOM / stage_bytes : MOST_STAGES) {}
    __device__ unsigned char* rows(int stage) const { return memory + stage * stage_bytes; }
    __device__ unsigned char* columns(int stage, int box) const {
        return rows(stage) + ROWS * CHANNEL_BYTES + box * int(p.box_bytes);
    }
    __device__ Ring<MOST_STAGES>& ring() const { return *(Ring<MOST_STAGES>*)rows(stages); }

    // The first channel of a box of inputs in its group, and its first tap's offsets from the windows' corners. After
    // the last box of a group come boxes of channels that the group does not have, whose sums are not stored.
    __device__ int describe_box(int lane, int (&offsets)[3]) const {
        int rest = first_box / int(p.shared) + lane;
#pragma unroll
        for (int i = 0; i < 3; ++i) offsets[i] = take(rest, p.boxes[i]) * int(p.offset[i]);
        return rest * int(p.box);
    }

    // The warp that has boxes brought: a lane for each of the inputs', and the first ones for the rows, too.
    __device__ void produce() const {
        const int lane = threadIdx.x % 32, bytes = ROWS * CHANNEL_BYTES + boxes * int(p.pixels) * pixel;
        const int none[3] = {};
        int offsets[3];
        const int channel = group * int(p.input_group) + describe_box(lane, offsets);
        const int row = group * int(p.grad_group) + first_row + lane * ROW_BOX;
        Turn<MOST_STAGES> turn;
        for (int64 i = begin; i < end; ++i, turn.advance(stages)) {
            int sample = int(i) * PIXELS, output[3], input[3];  // places of the first pixel
#pragma unroll
            for (int axis = 0; axis < 3; ++axis) {
                output[axis] = take(sample, p.places[axis]);
                input[axis] = output[axis] * int(p.step[axis]) + int(p.lower[axis]);
            }
            mbarrier* const full = &ring().full[turn.stage];
            mbarrier_wait(&ring().empty[turn.stage], 1 - turn.parity);
            // Other lanes may be first: the phase waits for the arrival whatever bytes were counted before.
            if (lane == 0) mbarrier_arrive_expect(full, bytes);
            if (lane < ROWS / ROW_BOX)
                im2col_copy(int(p.axes), rows(turn.stage) + lane * ROW_BOX * CHANNEL_BYTES, &p.grad, row, output,
                            sample, none, full);
            if (lane < boxes)
                im2col_copy(int(p.axes), columns(turn.stage, lane), &p.input, channel, input, sample, offsets, full);
        }
    }

    __device__ void consume() const {
        const int warpgroup = threadIdx.x / WARPGROUP;
        const int row = DOWN == 2 ? warpgroup * BLOCKS * ROW_BOX : 0, column = DOWN == 2 ? 0 : warpgroup * SEGMENT;
        const int first = column / int(p.box * p.shared), apart = int(p.apart);
        float sums[BLOCKS][SEGMENT / 2];
#pragma unroll
        for (int i = 0; i < BLOCKS * SEGMENT / 2; ++i) sums[i / (SEGMENT / 2)][i % (SEGMENT / 2)] = 0;
        Turn<MOST_STAGES> turn;
        int before = -1;  // the stage of the step before
        for (int64 i = begin; i < end; ++i, turn.advance(stages)) {
            const int stage = turn.stage;
            const unsigned char* const a = rows(stage) + row * CHANNEL_BYTES;
            const unsigned char* const b = columns(stage, first);
            mbarrier_wait(&ring().full[stage], turn.parity);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < PIXELS; k += DEPTH)
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block)
                    Product::multiply(sums[block],
                                      transposed_descriptor(a + block * ROW_BOX * CHANNEL_BYTES + k * ROW_BYTES,
                                                            ROW_BYTES, ROW_BOX * CHANNEL_BYTES),
                                      transposed_descriptor(b + k * pixel, pixel, apart), true);
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0) ring().release(before);
            before = stage;
        }
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) store(sums[block], row + block * ROW_BOX, column);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) im2col_gradient(const __grid_constant__ Arguments p) {
    DYNAMIC_SHARED(memory);
    const Block block(p, memory);
    block.ring().initialise(CONSUMERS * WARPGROUP / 32);
    wait_for_grids();  // before any array is read or written
    // The third warpgroup has operands brought, by one warp, and gives its registers to the others.
    if (threadIdx.x < CONSUMERS * WARPGROUP) {
        take_registers<240>();
        block.consume();
    } else {
        give_registers<24>();
        if (threadIdx.x < CONSUMERS * WARPGROUP + 32) block.produce();
    }
}
