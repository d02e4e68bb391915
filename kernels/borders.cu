// Arrays with borders: a padded copy, and its transpose, which folds what lies in the pads back.
//
//     pad     wide[n, c, j] = array[n, c, i(j)]
//     fold    array[n, c, i] = bias[c] + sum over all j with i(j) = i of wide[n, c, j]
//
// where i(j) is the element that a border mode shows at position j of a padded axis (border_modes.cuh); each spatial
// axis has pads of its own. A sum runs over z, y and x in ascending order, and is rounded once.
//
//               before                        after
//     wide    | 2   1 | 0   1   2   3   4   | 3   2 |      reflect
//                 \ \___________/___/___________/ /
//     array           0   1   2   3   4                    element 1 gathers three positions
//
// The padded array is contiguous in C order and has the type of partial sums where it is folded. It may end before
// the pad does: a convolution does not read on. The other array has any strides.
//
// Macros (set by cupyconv/_kernels/borders.py):
//     ELEMENT   type of the array's elements (scalar.cuh); for `pad` any type of their size
//
// Launch: THREADS threads, any number of blocks. `lanes` neighbouring threads share a line of the result; lines are
// taken in turn.

#include "border_modes.cuh"
#include "view.cuh"

constexpr int THREADS = 256;

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

// Axes in their order: samples, channels, then the spatial axes; the last one is x.
struct Arguments {
    void* array;
    void* wide;
    Parameter bias;
    int64 mode;  // a BorderMode
    int64 axes, lines, lanes;
    int64 size[MAX_AXES], wide_size[MAX_AXES], before[MAX_AXES];
    int64 stride[MAX_AXES], wide_stride[MAX_AXES];  // in elements
    int64 reciprocal[MAX_AXES];  // long reciprocals of the sizes of the result
};

// The result's lines that a group of lanes takes.
struct Lines {
    int64 first, step, lane;

    __device__ explicit Lines(const Arguments& p) {
        const int64 groups = THREADS / p.lanes, group = threadIdx.x / p.lanes;
        first = blockIdx.x * groups + group, step = gridDim.x * groups;
        lane = threadIdx.x - group * p.lanes;
    }
};

// Splits the last position off a number that counts the lines of `size` along an axis.
__device__ inline int64 take_position(int64& number, const int64 (&size)[MAX_AXES], const Arguments& p, int axis) {
    const int64 next = long_quotient(number, size[axis], p.reciprocal[axis]), position = number - next * size[axis];
    number = next;
    return position;
}

extern "C" __global__ void __launch_bounds__(THREADS) pad(const __grid_constant__ Arguments p) {
    const int x_axis = int(p.axes) - 1;
    const int64 width = p.wide_size[x_axis], size = p.size[x_axis], before = p.before[x_axis];
    const Lines lines(p);
    for (int64 line = lines.first; line < p.lines; line += lines.step) {
        const Element* from = (const Element*)p.array;
        int64 rest = line;
        for (int a = x_axis - 1; a >= 0; --a)
            from += border_index(take_position(rest, p.wide_size, p, a) - p.before[a], p.size[a], p.mode) * p.stride[a];
        Element* const to = (Element*)p.wide + line * width;
#pragma unroll 4
        for (int64 x = lines.lane; x < width; x += p.lanes)
            to[x] = from[border_index(x - before, size, p.mode) * p.stride[x_axis]];
    }
}

// A line of the array: where it lies, its channel, and how many lines of the padded array it gathers.
struct Line {
    int64 number, out, channel, count;

    __device__ Line(const Arguments& p, int64 number) : number(number), out(0), channel(0), count(1) {
        for (int a = int(p.axes) - 2; a >= 0; --a) {
            const int64 position = take_position(number, p.size, p, a);
            out += position * p.stride[a];
            if (a == 1) channel = position;
            count *= Appearances(position, p.size[a], p.before[a], p.wide_size[a], p.mode).count;
        }
    }

    // Where a gathered line begins in the padded array; they count in row-major order.
    __device__ int64 gathered(const Arguments& p, int64 turn) const {
        int64 rest = number, from = 0;
        for (int a = int(p.axes) - 2; a >= 0; --a) {
            const int64 position = take_position(rest, p.size, p, a);
            const Appearances places(position, p.size[a], p.before[a], p.wide_size[a], p.mode);
            const int64 next = turn / places.count;
            from += places.at(turn - next * places.count) * p.wide_stride[a];
            turn = next;
        }
        return from;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) fold(const __grid_constant__ Arguments p) {
    const int x_axis = int(p.axes) - 1;
    const int64 width = p.size[x_axis];
    const Lines lines(p);
    for (int64 number = lines.first; number < p.lines; number += lines.step) {
        const Line line(p, number);
        const int64 start = line.count ? line.gathered(p, 0) : 0;
        const Accumulator bias =
            p.bias.data ? load_parameter<Accumulator>(p.bias, line.channel) : zero<Accumulator>();
        Element* const out = (Element*)p.array + line.out;
        for (int64 x = lines.lane; x < width; x += p.lanes) {
            const Appearances places(x, width, p.before[x_axis], p.wide_size[x_axis], p.mode);
            Accumulator total = zero<Accumulator>();
            for (int64 turn = 0; turn < line.count; ++turn) {
                const Accumulator* const from =
                    (const Accumulator*)p.wide + (turn ? line.gathered(p, turn) : start);
                for (int64 i = 0; i < places.count; ++i) total = add(total, from[places.at(i)]);
            }
            out[x * p.stride[x_axis]] = narrow<Element>(add(total, bias));
        }
    }
}
