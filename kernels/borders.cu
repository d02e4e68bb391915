// Arrays with borders: a padded copy, and its transpose, which folds what lies in the pads back.
//
//     pad     wide[n, c, j] = array[n, c, i(j)]
//     fold    array[n, c, i] = bias[c] + sum over all j with i(j) = i of wide[n, c, j]
//
// where i(j) is the element that a border mode shows at position j of a padded axis (border_modes.cuh); each axis has
// pads of its own. Without a mode, `pad` puts elements `step` apart and zeros everywhere else. A sum runs over z, y and
// x in ascending order, and is rounded once.
//
// `components` does as `pad` and writes polyphase components, one contiguous array after the other: position j of
// component m of an axis is position j * wide_step + m * shift of the padded axis. Components are counted in C order.
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
//     ELEMENT   type of the array's elements (scalar.cuh); for `pad` and `components` any type of their size
//
// Launch: THREADS threads, any number of blocks. `lanes` neighbouring threads share a task: ROWS lines of COLUMNS times
// as many elements of the result; tasks are taken in turn.

#include "border_modes.cuh"
#include "view.cuh"

constexpr int THREADS = 256;
constexpr int ROWS = 8, COLUMNS = 8;

typedef ELEMENT Element;
typedef accumulator_of<Element>::type Accumulator;

// Axes in their order: samples, channels, then the spatial axes. The last one is x and the one before it is y, which
// are the channels of a signal.
struct Arguments {
    void* array;
    void* wide;
    Parameter bias;
    int64 mode;  // a BorderMode
    int64 axes, tasks, lanes;
    int64 far;  // 1 if a position may exceed 32 bits
    int64 size[MAX_AXES], wide_size[MAX_AXES], before[MAX_AXES], step[MAX_AXES];
    int64 elements;  // of a component
    int64 wide_step[MAX_AXES], components[MAX_AXES], shift[MAX_AXES];
    int64 stride[MAX_AXES], wide_stride[MAX_AXES];  // in elements
    // Of the result: tasks along an axis, which are positions but on y and x, and their long reciprocals. The
    // components have a number of parts after the last axis.
    int64 parts[MAX_AXES], reciprocal[MAX_AXES];
};

// Splits the last axis off the number of a task; returns the part of the axis.
__device__ inline int64 take_part(int64& number, const Arguments& p, int axis) {
    const int64 next = long_quotient(number, p.parts[axis], p.reciprocal[axis]), part = number - next * p.parts[axis];
    number = next;
    return part;
}

// The tasks of this thread's lanes, and its place in them.
struct Tasks {
    int64 first, step, lane;

    __device__ explicit Tasks(const Arguments& p) {
        const int lanes = int(p.lanes), group = int(threadIdx.x) / lanes;
        first = int64(blockIdx.x) * (THREADS / lanes) + group, step = int64(gridDim.x) * (THREADS / lanes);
        lane = int(threadIdx.x) - group * lanes;
    }
};

// Takes an axis, the last one first, off the number of a polyphase component; returns the place of position 0 on the
// padded axis. Places are of the type Int.
template <typename Int, bool COMPONENTS>
__device__ inline Int take_place(int64& component, const Arguments& p, int axis) {
    if (!COMPONENTS || p.components[axis] == 1) return 0;
    const int64 next = component / p.components[axis], own = component - next * p.components[axis];
    component = next;
    return Int(own * p.shift[axis]);
}

// The element at a position, where position 0 is at `place`.
template <typename Int, bool COMPONENTS>
__device__ inline Int element_at(const Arguments& p, int axis, Int place, Int position) {
    place += COMPONENTS ? position * Int(p.wide_step[axis]) : position;
    return placed_index(Int(place - Int(p.before[axis])), Int(p.size[axis]), Int(p.step[axis]), p.mode);
}

template <typename Int, bool COMPONENTS>
__device__ inline void pad_array(const Arguments& p) {
    const int x_axis = int(p.axes) - 1, y_axis = x_axis - 1;
    const Int width = Int(p.wide_size[x_axis]), height = Int(p.wide_size[y_axis]), apart = Int(p.lanes);
    const Tasks tasks(p);
    for (int64 task = tasks.first; task < p.tasks; task += tasks.step) {
        int64 rest = task, component = COMPONENTS ? take_part(rest, p, x_axis + 1) : 0;
        const Int first_x = Int(take_part(rest, p, x_axis)) * COLUMNS * apart + Int(tasks.lane);
        const Int first_y = Int(take_part(rest, p, y_axis)) * ROWS;
        Element* const to = (Element*)p.wide + component * p.elements + (rest * height + first_y) * width;
        const Int place_x = take_place<Int, COMPONENTS>(component, p, x_axis);
        const Int place_y = take_place<Int, COMPONENTS>(component, p, y_axis);
        const Element* from = (const Element*)p.array;
        bool present = true;
        for (int a = y_axis - 1; a >= 0; --a) {
            const Int place = take_place<Int, COMPONENTS>(component, p, a);
            const Int index = element_at<Int, COMPONENTS>(p, a, place, Int(take_part(rest, p, a)));
            present &= index >= 0;
            from += index * p.stride[a];
        }
        const auto line_at = [&](int r) {
            const bool inside = present && first_y + r < height;
            return inside ? element_at<Int, COMPONENTS>(p, y_axis, place_y, first_y + r) : Int(-1);
        };
        // The lines of a task are found once. Where positions are long, registers would not hold them.
        constexpr bool HELD = sizeof(Int) == 4;
        Int lines[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) lines[r] = HELD ? line_at(r) : Int(-1);
        for (Int x = first_x; x < width && x - first_x < COLUMNS * apart; x += apart) {
            const Int column = element_at<Int, COMPONENTS>(p, x_axis, place_x, x);
            const Element* const at = from + column * p.stride[x_axis];
            Element values[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                values[r] = Element();
                const Int line = HELD ? lines[r] : line_at(r);
                if (line >= 0 && column >= 0) values[r] = at[line * p.stride[y_axis]];
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                if (first_y + r < height) to[int64(r) * width + x] = values[r];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) pad(const __grid_constant__ Arguments p) {
    if (p.far)
        pad_array<int64, false>(p);
    else
        pad_array<int, false>(p);
}

extern "C" __global__ void __launch_bounds__(THREADS) components(const __grid_constant__ Arguments p) {
    if (p.far)
        pad_array<int64, true>(p);
    else
        pad_array<int, true>(p);
}

// The places on all axes but y and x whose planes an element gathers, in row-major order.
struct Planes {
    int64 number, out, channel, count;

    // `number` counts the planes of the array.
    __device__ Planes(const Arguments& p, int64 number) : number(number), out(0), channel(0), count(1) {
        for (int a = int(p.axes) - 3; a >= 0; --a) {
            const int64 position = take_part(number, p, a);
            out += position * p.stride[a];
            if (a == 1) channel = position;
            count *= Appearances<int64>(position, p.size[a], p.before[a], p.wide_size[a], p.mode).count;
        }
    }

    // Where a gathered plane begins.
    __device__ int64 gathered(const Arguments& p, int64 turn) const {
        int64 rest = number, from = 0;
        for (int a = int(p.axes) - 3; a >= 0; --a) {
            const int64 position = take_part(rest, p, a);
            const Appearances<int64> places(position, p.size[a], p.before[a], p.wide_size[a], p.mode);
            const int64 next = turn / places.count;
            from += places.at(turn - next * places.count) * p.wide_stride[a];
            turn = next;
        }
        return from;
    }
};

// Adds the terms after the first one: planes, then lines, then places along x, each in ascending order.
template <typename Int>
__device__ __noinline__ Accumulator add_others(const Arguments& p, const Planes& planes, const Appearances<Int>& down,
                                               const Appearances<Int>& across, Accumulator total) {
    const int64 along_y = p.wide_stride[int(p.axes) - 2];
    for (int64 turn = 0; turn < planes.count; ++turn) {
        const Accumulator* const plane = (const Accumulator*)p.wide + planes.gathered(p, turn);
        for (Int j = 0; j < down.count; ++j)
            for (Int i = 0; i < across.count; ++i)
                if (turn || j || i) total = add(total, plane[down.at(j) * along_y + across.at(i)]);
    }
    return total;
}

template <typename Int>
__device__ inline void fold_array(const Arguments& p) {
    const int x_axis = int(p.axes) - 1, y_axis = x_axis - 1;
    const Int width = Int(p.size[x_axis]), height = Int(p.size[y_axis]), apart = Int(p.lanes);
    const Int wide_x = Int(p.wide_size[x_axis]), wide_y = Int(p.wide_size[y_axis]);
    const Accumulator* const wide = (const Accumulator*)p.wide;
    const Tasks tasks(p);
    for (int64 task = tasks.first; task < p.tasks; task += tasks.step) {
        int64 rest = task;
        const Int first_x = Int(take_part(rest, p, x_axis)) * COLUMNS * apart + Int(tasks.lane);
        const Int first_y = Int(take_part(rest, p, y_axis)) * ROWS;
        const Planes planes(p, rest);
        const int64 first_plane = planes.count ? planes.gathered(p, 0) : 0;
        for (Int x = first_x; x < width && x - first_x < COLUMNS * apart; x += apart) {
            const Appearances<Int> across(x, width, Int(p.before[x_axis]), wide_x, p.mode);
            // The first term of each sum is loaded at once; most sums have no other.
            Accumulator total[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                total[r] = zero<Accumulator>();
                const Appearances<Int> down(first_y + r, height, Int(p.before[y_axis]), wide_y, p.mode);
                if (planes.count && down.count && across.count)
                    total[r] = wide[first_plane + down.first * p.wide_stride[y_axis] + across.first];
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const Int y = first_y + r;
                if (y >= height) break;
                const Appearances<Int> down(y, height, Int(p.before[y_axis]), wide_y, p.mode);
                if (planes.count * down.count * across.count > 1)
                    total[r] = add_others(p, planes, down, across, total[r]);
                const Accumulator bias =
                    p.bias.data ? load_parameter<Accumulator>(p.bias, y_axis == 1 ? int64(y) : planes.channel)
                                : zero<Accumulator>();
                Element* const out = (Element*)p.array + planes.out + y * p.stride[y_axis];
                out[x * p.stride[x_axis]] = narrow<Element>(add(total[r], bias));
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) fold(const __grid_constant__ Arguments p) {
    if (p.far)
        fold_array<int64>(p);
    else
        fold_array<int>(p);
}
