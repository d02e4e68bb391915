// What the instructions of kernels/ptx.cuh do, from the PTX manual. Part of runtime.cpp.

namespace emulator {
namespace {

// ---- meeting points ----

// Only __syncwarp puts an order between the lanes' accesses to memory; an exchange does not. The last
// lane calls `finish` with all parcels; what that makes of them is returned to all lanes.
template <typename F>
const Parcel* meet_warp(unsigned mask, int line, bool ordered, const Parcel& parcel, F finish) {
    const int lane = launch.current->thread % WARP;
    Exchange& exchange = launch.warps[launch.current->thread / WARP][mask];
    Rendezvous& r = exchange.rendezvous;
    if (!(mask >> lane & 1)) fail("%s takes part in an exchange whose mask leaves it out", place());
    if (r.arrived && r.line != line) fail("%s: the lanes of a warp have diverged", place());
    r.line = line;
    exchange.sent[lane] = parcel;
    meet(r, __builtin_popcount(mask), ordered, [&] {
        std::copy(exchange.sent, exchange.sent + WARP, exchange.received);
        finish(exchange.received);
    });
    return exchange.received;
}
const Parcel* meet_warp(unsigned mask, int line, bool ordered, const Parcel& parcel) {
    return meet_warp(mask, line, ordered, parcel, [](Parcel*) {});
}

// An instruction that all lanes of the warp execute; `line` tells instructions apart.
template <typename F>
const Parcel* meet_lanes(int line, const Parcel& parcel, F finish) {
    return meet_warp(~0u, -line, false, parcel, finish);
}

Warpgroup& warpgroup() { return launch.warpgroups[launch.current->thread / WARPGROUP]; }

// Says that this thread is at an instruction that all threads of its warpgroup execute.
Rendezvous& come_to(int line) {
    Rendezvous& r = warpgroup().rendezvous;
    if (r.arrived && r.line != line) fail("%s: the threads of a warpgroup have diverged", place());
    r.line = line;
    return r;
}

template <typename F>
void meet_warpgroup(int line, F finish) {
    meet(come_to(line), WARPGROUP, false, finish);
}

// ---- numbers ----

float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// The elements of a word of an operand: one of tf32, two of 16 bits. Returns how many.
int decode(int type, uint32_t word, double* values) {
    if (type == 0) {
        values[0] = float_of(word & ~0x1fffu);  // tf32 ignores the last bits
        return 1;
    }
    for (int i = 0; i < 2; ++i) {
        const uint16_t bits = uint16_t(word >> (16 * i));
        values[i] = type == 1 ? float_from_float16(bits) : float_of(uint32_t(bits) << 16);
    }
    return 2;
}

// How a Tensor Core sums up, of compute capability 8.x and of 9.0. Products of operands are exact. A block of them and the
// number that it is added to are aligned to the largest exponent among them, truncated to so many bits of a fraction there,
// and summed up exactly; the sum is truncated to a float32 number. All truncation is toward zero. The figures are those of
// Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004), and of Xie et al., "MMA-Sim" (arXiv
// 2511.10909), who find the same bits in the chips'.
struct Summation {
    int fraction;    // bits
    int blocks;      // of an instruction, one after the other along K
    int least;       // exponent to which smaller numbers are aligned, too
};
constexpr Summation AMPERE = {24, 2, -132}, HOPPER = {25, 1, -133};
constexpr int ZERO = -10000, SPECIAL = 100000;  // exponents below and above all others

template <typename To, typename From>
To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

// The exponent of a number; subnormal numbers of its type, which are normal ones of double, have the type's `least` one.
inline int exponent_of(double value, int least) {
    if (value == 0) return ZERO;
    const int biased = same_bits<uint64_t>(value) >> 52 & 0x7ff;
    return biased == 0x7ff ? SPECIAL : std::max(biased - 1023, least);
}
constexpr int least_exponent(int type) { return type == 1 ? -14 : -126; }

double power_of_two(int exponent) { return same_bits<double>(uint64_t(exponent + 1023) << 52); }

// A float32 number no larger than the value; from 2**128 on it is infinite.
inline float truncated(double value) {
    const float nearest = float(value);
    const bool larger = std::abs(double(nearest)) > std::abs(value) && std::abs(value) < 0x1p128;
    return larger ? same_bits<float>(same_bits<uint32_t>(nearest) - 1) : nearest;
}

// d (rows, columns) = a (rows, depth) times b (depth, columns), on top of d where `accumulate`. It takes most of the time
// of kernels on Tensor Cores, so its loops over columns are such that the compiler makes vectors of them.
inline __attribute__((always_inline)) void multiply(const Summation& summation, int type, int rows, int columns, int depth,
                                                    const double* a, const double* b, float* d, bool accumulate) {
    constexpr int MOST_COLUMNS = 256, MOST_DEPTH = 16;
    const int block = depth / summation.blocks;
    int b_exponents[MOST_DEPTH * MOST_COLUMNS], largest[MOST_COLUMNS];
    double unit[MOST_COLUMNS], sums[MOST_COLUMNS];
    for (int i = 0; i < depth * columns; ++i) b_exponents[i] = exponent_of(b[i], least_exponent(type));
    for (int row = 0; row < rows; ++row, a += depth, d += columns) {
        if (!accumulate) std::fill_n(d, columns, 0.0f);
        for (int first = 0; first < depth; first += block) {
            for (int i = 0; i < columns; ++i) largest[i] = std::max(exponent_of(d[i], -126), summation.least);
            for (int k = first; k < first + block; ++k) {
                const int exponent = exponent_of(a[k], least_exponent(type));
                const int* const others = b_exponents + k * columns;
                for (int i = 0; i < columns; ++i) largest[i] = std::max(largest[i], exponent + others[i]);
            }
            bool special = false;
            for (int i = 0; i < columns; ++i) special |= largest[i] > SPECIAL / 2;
            if (special) {  // where a number is not finite, nothing is truncated
                for (int i = 0; i < columns; ++i) {
                    unit[i] = largest[i] > SPECIAL / 2 ? 0 : power_of_two(summation.fraction - largest[i]);
                    sums[i] = unit[i] ? double(int(d[i] * unit[i])) : d[i];
                }
                for (int k = first; k < first + block; ++k)
                    for (int i = 0; i < columns; ++i) {
                        const double product = a[k] * b[k * columns + i];
                        sums[i] += unit[i] ? double(int(product * unit[i])) : product;
                    }
                for (int i = 0; i < columns; ++i) d[i] = truncated(unit[i] ? sums[i] / unit[i] : sums[i]);
                continue;
            }
            for (int i = 0; i < columns; ++i) {
                unit[i] = power_of_two(summation.fraction - largest[i]);
                sums[i] = double(int(d[i] * unit[i]));
            }
            for (int k = first; k < first + block; ++k)
                for (int i = 0; i < columns; ++i) sums[i] += double(int(a[k] * b[k * columns + i] * unit[i]));
            for (int i = 0; i < columns; ++i) d[i] = truncated(sums[i] / unit[i]);
        }
    }
}

// ---- shared memory by address ----

// Addresses of shared memory: the kernel's own from 1024 on, the launch's behind it.
uintptr_t dynamic_base() {
    const uintptr_t own = launch.shared[0].high - launch.shared[0].low;
    return 1024 + ((own + 1023) & -uintptr_t(1024));
}

uintptr_t pointer_of(uintptr_t address) {
    const bool dynamic = address >= dynamic_base();
    return launch.shared[dynamic].low + address - (dynamic ? dynamic_base() : 1024);
}

Shared& shared_of(uintptr_t pointer, size_t size) {
    for (Shared& shared : launch.shared)
        if (pointer >= shared.low && pointer + size <= shared.high) return shared;
    fail("%s gives an instruction an address outside of shared memory", place());
}

// A copy has begun: its destination must be free, and holds nothing until the wait.
void begin_copy(const Copy& copy, int alignment) {
    if (copy.shared % alignment || (copy.used && copy.global % alignment))
        fail("misaligned: %s copies %d bytes between %#zx and %#zx", place(), copy.bytes,
             size_t(copy.global), size_t(copy.shared));
    Shared& shared = shared_of(copy.shared, copy.bytes);
    check_shared(shared, copy.shared, copy.bytes, true);
    for_cells(shared, copy.shared, copy.bytes, [](Cell& cell) { cell.written = false; });
    memset(reinterpret_cast<void*>(copy.shared), 0xff, copy.bytes);
    if (copy.used) check(copy.global, copy.used, false);
}

// Notes who wrote the shared memory of a copy, when it has ended.
void note_copy(const Copy& copy, int thread, Clock clock, bool asynchronous) {
    Shared& shared = shared_of(copy.shared, copy.bytes);
    for_cells(shared, copy.shared, copy.bytes, [&](Cell& cell) {
        cell.written = true;
        cell.asynchronous = asynchronous;
        cell.writer = thread;
        cell.write_clock = clock;
    });
}

void end_copy(const Copy& copy, int thread, Clock clock, bool asynchronous) {
    memset(reinterpret_cast<void*>(copy.shared), 0, copy.bytes);
    memcpy(reinterpret_cast<void*>(copy.shared), reinterpret_cast<void*>(copy.global), copy.used);
    note_copy(copy, thread, clock, asynchronous);
}

// ---- boxes of an array ----

// What the words of a TensorMap say here; on a GPU only the driver knows.
struct Box {
    uintptr_t address;
    int itemsize, sizes[3], counts[3];  // of the array, and of the box
    int64_t strides[3];                 // bytes
};
constexpr uint64_t IS_TENSOR_MAP = 0x7e5042;

Box box_of(const unsigned long long* words) {
    if (words[0] != IS_TENSOR_MAP) fail("%s copies a box of something that is no tensor map", place());
    Box box;
    box.address = words[1];
    box.itemsize = int(words[2]);
    for (int i = 0; i < 3; ++i) {
        box.sizes[i] = int(words[3 + i]), box.counts[i] = int(words[6 + i]);
        box.strides[i] = i ? int64_t(words[8 + i]) : box.itemsize;
    }
    return box;
}

// Where the chunk of 16 bytes at an address lies, with the swizzle of rows of 16, 32, 64 or 128 bytes.
uintptr_t swizzled(uintptr_t chunk, int row) { return chunk ^ ((chunk >> 7 & (row / 16 - 1)) << 4); }

// A GPU calls a copy that begins elsewhere an illegal instruction.
void check_innermost(int at, int itemsize) {
    if (at * itemsize % 16) fail("misaligned: %s copies from element %d of %d bytes on", place(), at, itemsize);
}

std::vector<BoxRow> rows_of(const Box& box, uintptr_t shared, const int (&at)[3]) {
    check_innermost(at[0], box.itemsize);
    std::vector<BoxRow> rows;
    const int before = std::max(0, -at[0]), first = std::max(0, at[0]);
    const int used = std::max(0, std::min(box.counts[0], box.sizes[0] - at[0]) - before);
    for (int z = at[2]; z < at[2] + box.counts[2]; ++z)
        for (int y = at[1]; y < at[1] + box.counts[1]; ++y) {
            const bool inside = y >= 0 && y < box.sizes[1] && z >= 0 && z < box.sizes[2] && used > 0;
            rows.push_back({shared + rows.size() * 128,
                            inside ? box.address + first * box.itemsize + y * box.strides[1] + z * box.strides[2] : 0,
                            128, before * box.itemsize, inside ? used * box.itemsize : 0, box.itemsize == 4});
        }
    return rows;
}

// An array of channels, up to three axes and samples, with the window that pixels are taken from.
struct Window {
    uintptr_t address;
    int itemsize, axes, sizes[5];  // channels, x, y, z, samples
    int64_t strides[5];            // bytes
    int lower[3], upper[3], steps[3], channels, pixels;
    bool rounds;                   // floats to TF32 numbers
};
constexpr uint64_t IS_WINDOW = 0x7e5043;

Window window_of(const unsigned long long* words, int axes) {
    if ((words[0] & 0xffffff) != IS_WINDOW || int(words[0] >> 24 & 15) != axes)
        fail("%s copies pixels of something that is no tensor map of %d axes", place(), axes);
    Window w = {words[1], int(words[0] >> 28 & 15), axes, {}, {}, {}, {}, {}, 0, 0, false};
    w.rounds = w.itemsize == 4 && !(words[0] >> 32);
    for (int i = 0; i < 5; ++i) w.sizes[i] = int(words[2 + i]);
    w.strides[0] = w.itemsize;
    for (int i = 0; i < 4; ++i) w.strides[1 + i] = int64_t(words[7 + i]);
    for (int i = 0; i < 3; ++i) {
        w.lower[i] = int16_t(words[11 + i]), w.upper[i] = int16_t(words[11 + i] >> 16);
        w.steps[i] = int(words[11 + i] >> 32);
    }
    w.channels = int(words[14] & 0xffff), w.pixels = int(words[14] >> 16);
    return w;
}

std::vector<BoxRow> pixels_of(const Window& w, uintptr_t shared, int channel, const int (&from)[3], int sample,
                              const int (&offsets)[3]) {
    check_innermost(channel, w.itemsize);
    std::vector<BoxRow> rows;
    int at[3] = {from[0], from[1], from[2]};
    const int most = (1 << 16 / w.axes) - 1;  // 16 bits, 8 each, or 5 each
    for (int i = 0; i < w.axes; ++i)
        if (offsets[i] < 0 || offsets[i] > most)
            fail("%s copies pixels at an offset of %d, of at most %d", place(), offsets[i], most);
    for (int i = 0; i < w.axes; ++i)
        if (at[i] < w.lower[i] || at[i] > w.sizes[1 + i] - 1 + w.upper[i])
            fail("%s copies pixels from a place outside of their window", place());
    const int used = std::max(0, std::min(w.channels, w.sizes[0] - channel));
    for (int pixel = 0; pixel < w.pixels; ++pixel) {
        bool inside = sample >= 0 && sample < w.sizes[4] && used > 0;
        int64_t offset = channel * w.strides[0] + sample * w.strides[4];
        for (int i = 0; i < w.axes; ++i) {
            const int own = at[i] + offsets[i];
            inside &= own >= 0 && own < w.sizes[1 + i];
            offset += own * w.strides[1 + i];
        }
        const int bytes = w.channels * w.itemsize;
        rows.push_back({shared + rows.size() * bytes, inside ? w.address + offset : 0, bytes, 0,
                        inside ? used * w.itemsize : 0, w.rounds});
        int i = 0;
        for (; i < w.axes; ++i) {
            at[i] += w.steps[i];
            if (at[i] <= w.sizes[1 + i] - 1 + w.upper[i]) break;
            at[i] = w.lower[i];
        }
        sample += i == w.axes;
    }
    return rows;
}

void end_row(const BoxRow& row) {
    unsigned char bytes[128] = {};
    memcpy(bytes + row.before, reinterpret_cast<void*>(row.global), row.used);
    for (int i = 0; row.floats && i < 128; i += 4) {
        float value;
        memcpy(&value, bytes + i, 4);
        const uint32_t nearest = value != value ? 0x7fffe000u : tf32_from_float(value);
        memcpy(bytes + i, &nearest, 4);
    }
    const uintptr_t address = shared_address(reinterpret_cast<void*>(row.shared));
    for (int i = 0; i < row.bytes; i += 16)
        memcpy(reinterpret_cast<void*>(row.shared + swizzled(address + i, row.bytes) - address), bytes + i, 16);
}

// ---- matrix products of a warpgroup ----

// The 16 bytes `chunk` of row `row` of an operand, checked as a read of the product by `reader`. A row has one number
// of M or N, or, where the operand is transposed, one of K.
const uint32_t* operand_words(const Product& product, uint64_t descriptor, int row, int chunk, const Fiber& reader) {
    const uintptr_t start = (descriptor & 0x3fff) << 4;
    uintptr_t leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
    const int bytes[] = {16, 128, 64, 32}, width = bytes[descriptor >> 62];  // of a row, with a swizzle from 32 on
    if (product.transposed && width == 16) std::swap(leading, stride);
    if (!product.transposed && width > 16) leading = 16;  // not used: chunks of a row lie together
    const int beside = product.transposed ? width / 16 : 1;  // chunks that lie together
    const uintptr_t address = swizzled(start + row / 8 * stride + row % 8 * width + chunk / beside * leading +
                                       chunk % beside * 16, width);
    const uintptr_t pointer = pointer_of(address);
    for_cells(shared_of(pointer, 16), pointer, 16, [&](Cell& cell) {
        if (!cell.written) fail("%s multiplies shared memory that nothing wrote", place());
        if (cell.write_clock > product.clocks[cell.writer])
            fail("race: %s multiplies shared memory that thread %d wrote, and nothing puts an order", place(),
                 cell.writer);
        if (!cell.asynchronous && cell.write_clock > product.clocks[launch.threads + cell.writer])
            fail("%s multiplies shared memory that thread %d wrote without a fence of the proxy", place(),
                 cell.writer);
        add_read(cell, reader);
    });
    return reinterpret_cast<const uint32_t*>(pointer);
}

// Where register `i` of a thread of the warpgroup lies in accumulators of n columns.
int place_of_register(int thread, int i, int n) {
    const int row = thread / WARP * 16 + thread % WARP / 4 + i % 4 / 2 * 8;
    return row * n + i / 4 * 8 + thread % 4 * 2 + i % 2;
}

const float POISON = float_of(0x7fedbeef);

bool is_poison(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits == 0x7fedbeef;
}

void multiply(const Product& product, const Fiber& reader) {
    const int n = product.n, depth = product.type == 0 ? 8 : 16;
    double a[64 * 16], b[16 * 256], values[8];
    const auto row_of = [&](uint64_t descriptor, int row, int chunks, double* elements, int step) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const uint32_t* const words = operand_words(product, descriptor, row, chunk, reader);
            for (int i = 0; i < 4; ++i) {
                const int count = decode(product.type, words[i], values);
                for (int j = 0; j < count; ++j, elements += step) *elements = values[j];
            }
        }
    };
    // What lies in registers is read as late as this: it must not be touched before.
    for (int i = 0; i < 4 * int(product.rows.size()); ++i) {
        const int thread = i / 4, lane = thread % WARP, row = thread / WARP * 16 + lane / 4 + i % 2 * 8;
        const int count = decode(product.type, product.rows[thread][i % 4], values);
        std::copy(values, values + count, a + row * depth + (lane % 4 + i % 4 / 2 * 4) * count);
    }
    if (product.transposed) {
        for (int k = 0; k < depth; ++k) {
            row_of(product.a, k, 64 / 8, a + k, depth);
            row_of(product.b, k, n / 8, b + k * n, 1);
        }
    } else {
        for (int row = 0; row < 64 && product.rows.empty(); ++row) row_of(product.a, row, 2, a + row * depth, 1);
        for (int column = 0; column < n; ++column) row_of(product.b, column, 2, b + column, n);
    }
    multiply(HOPPER, product.type, 64, n, depth, a, b, product.accumulators->values.data(), product.accumulate);
}

}  // namespace

unsigned shared_address(const void* pointer) {
    const uintptr_t address = uintptr_t(pointer);
    const Shared& own = launch.shared[0];
    if (address >= own.low && address < own.high) return unsigned(1024 + address - own.low);
    shared_of(address, 0);
    return unsigned(dynamic_base() + address - launch.shared[1].low);
}

float float_from_float16(unsigned short bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float size = exponent == 31  ? (mantissa ? __builtin_nanf("") : __builtin_inff())
                       : exponent == 0 ? float(mantissa) * 0x1p-24f
                                       : float(mantissa + 1024) * float_of(uint32_t(exponent + 102) << 23);
    return bits >> 15 ? -size : size;
}

unsigned greater_or_nan(unsigned a, unsigned b) {
    unsigned masks = 0;
    for (int half = 0; half < 2; ++half) {
        const float first = float_from_float16((unsigned short)(a >> half * 16));
        const float second = float_from_float16((unsigned short)(b >> half * 16));
        if (!(first <= second)) masks |= 0xffffu << half * 16;
    }
    return masks;
}

unsigned magnitudes(unsigned a, unsigned b, bool larger) {
    unsigned both = 0;
    for (int i = 0; i < 32; i += 16) {
        const unsigned first = a >> i & 0x7fffu, second = b >> i & 0x7fffu, infinite = 0x7c00u;
        const bool one = first > infinite || second > infinite;  // of a NaN and a number the number
        const unsigned least = first < second ? first : second, most = first < second ? second : first;
        both |= (least > infinite ? 0x7fffu : one ? least : larger ? most : least) << i;
    }
    return both;
}

unsigned magnitudes_or_nan(unsigned a, unsigned b, unsigned infinite) {
    unsigned both = 0;
    for (int i = 0; i < 32; i += 16) {
        const unsigned first = a >> i & 0x7fffu, second = b >> i & 0x7fffu, most = first < second ? second : first;
        both |= (most > infinite ? 0x7fffu : most) << i;
    }
    return both;
}

unsigned byte_select(unsigned low, unsigned high, unsigned which) {
    const uint64_t both = uint64_t(high) << 32 | low;
    unsigned bytes = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned own = which >> 4 * i & 15u;
        unsigned byte = unsigned(both >> 8 * (own & 7u)) & 0xffu;
        if (own & 8u) byte = byte & 0x80u ? 0xffu : 0;  // its sign instead
        bytes |= byte << 8 * i;
    }
    return bytes;
}

unsigned short float16_from_float(float value) {
    const unsigned short sign = __builtin_signbit(value) ? 0x8000 : 0;
    const float size = __builtin_fabsf(value);
    if (size == 0) return sign;
    if (size != size) return 0x7fff;
    if (size >= 65520.0f) return sign | 0x7c00;
    int exponent;
    __builtin_frexpf(size, &exponent);
    // Multiples of the unit in the last place, to an integer with ties to even. The bits of a normal
    // number are 1024 a unit's doubling, and a mantissa that overflows carries into the exponent.
    const int unit = std::max(exponent - 11, -24);
    const int multiple = int(__builtin_nearbyintf(__builtin_ldexpf(size, -unit)));
    return sign | (((unit + 24) << 10) + multiple);
}

unsigned short bfloat16_from_float(float value) {
    if (value != value) return 0x7fff;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    // A little less than half a unit in the last place is added, and that little where the last bit is one.
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

unsigned tf32_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    // A little less than half a unit in the last place is added, and that little where the last bit is one; a carry
    // goes into the exponent.
    return value != value ? 0x7fffffffu : (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
}

// ---- exchanges of a warp ----

void warp_barrier(unsigned mask, int line) { meet_warp(mask, line, true, Parcel()); }

unsigned warp_ballot(unsigned mask, bool value, int line) {
    Parcel parcel;
    parcel.bits = value;
    const Parcel* const lanes = meet_warp(mask, line, false, parcel);
    unsigned result = 0;
    for (int lane = 0; lane < WARP; ++lane)
        if (mask >> lane & 1 && lanes[lane].bits) result |= 1u << lane;
    return result;
}

unsigned long long warp_shuffle(unsigned mask, unsigned long long value, int source, int line) {
    Parcel parcel;
    parcel.bits = value;
    const Parcel* const lanes = meet_warp(mask, line, false, parcel);
    if (!(mask >> source & 1)) fail("%s shuffles from lane %d, which takes no part", place(), source);
    return lanes[source].bits;
}

// ---- matrix products of a warp ----

namespace {
void mma_16n8(int type, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Parcel parcel;
    memcpy(parcel.words.a, a, sizeof a);
    memcpy(parcel.words.b, b, sizeof b);
    memcpy(parcel.words.d, d, sizeof d);
    const Parcel* const lanes = meet_lanes(1 + type, parcel, [&](Parcel* parcels) {
        const int depth = type == 0 ? 8 : 16, pack = depth / 8;
        double x[16 * 16], y[16 * 8], values[2];
        float sums[16 * 8];
        for (int lane = 0; lane < WARP; ++lane) {
            const auto& words = parcels[lane].words;
            const int g = lane / 4, t = lane % 4;
            for (int i = 0; i < 4; ++i)
                decode(type, words.a[i], x + (g + i % 2 * 8) * depth + (t + i / 2 * 4) * pack);
            for (int i = 0; i < 2; ++i) {
                decode(type, words.b[i], values);
                for (int j = 0; j < pack; ++j) y[((t + i * 4) * pack + j) * 8 + g] = values[j];
            }
            for (int i = 0; i < 4; ++i) sums[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = words.d[i];
        }
        if (type == 0)
            multiply(AMPERE, type, 16, 8, 8, x, y, sums, true);
        else
            multiply(AMPERE, type, 16, 8, 16, x, y, sums, true);
        for (int lane = 0; lane < WARP; ++lane)
            for (int i = 0; i < 4; ++i)
                parcels[lane].words.d[i] = sums[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
    });
    memcpy(d, lanes[lane_index()].words.d, sizeof d);
}
}  // namespace

void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_16n8(0, d, a, b); }
void mma_float16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_16n8(1, d, a, b); }
void mma_bfloat16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_16n8(2, d, a, b); }

// Half of the depth: zeros are the other half.
void mma_float16(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]) {
    std::copy(c, c + 4, d);
    mma_16n8(1, d, {a[0], a[1], 0, 0}, {b, 0});
}
void mma_bfloat16(float (&d)[4], const unsigned (&a)[2], unsigned b, const float (&c)[4]) {
    std::copy(c, c + 4, d);
    mma_16n8(2, d, {a[0], a[1], 0, 0}, {b, 0});
}

void mma_float64(double (&d)[2], double a, double b) {
    Parcel parcel;
    parcel.doubles = {a, b};
    const Parcel* const lanes = meet_lanes(4, parcel, [](Parcel*) {});
    const int lane = lane_index();
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 4; ++k)
            d[i] = __builtin_fma(lanes[lane / 4 * 4 + k].doubles.a, lanes[(lane % 4 * 2 + i) * 4 + k].doubles.b,
                                 d[i]);
}

void load_matrices(unsigned (&r)[4], const void* row, bool transposed) {
    if (uintptr_t(row) % 16) fail("misaligned: %s loads a matrix row from %p", place(), row);
    Parcel parcel;
    parcel.pointer = row;
    const Parcel* const lanes = meet_lanes(transposed ? 6 : 5, parcel, [](Parcel*) {});
    const int g = lane_index() / 4, t = lane_index() % 4;
    const auto load = [](const void* row, int byte, void* value, int size) {
        const uintptr_t element = uintptr_t(row) + byte;
        check_shared(shared_of(element, size), element, size, false);
        memcpy(value, reinterpret_cast<void*>(element), size);
    };
    for (int m = 0; m < 4; ++m) {
        if (transposed) {
            uint16_t pair[2];
            for (int i = 0; i < 2; ++i) load(lanes[m * 8 + 2 * t + i].pointer, g * 2, &pair[i], 2);
            r[m] = pair[0] | unsigned(pair[1]) << 16;
        } else {
            load(lanes[m * 8 + g].pointer, t * 4, &r[m], 4);
        }
    }
}

// ---- asynchronous copies of a thread ----

void copy_async(void* shared, const void* global, int bytes, int used) {
    const Copy copy = {uintptr_t(shared), uintptr_t(global), bytes, used};
    begin_copy(copy, bytes);
    launch.current->open_copies.push_back(copy);
}

void copy_async_commit() {
    Fiber& self = *launch.current;
    self.copies.push_back(self.open_copies);
    self.open_copies.clear();
}

void copy_async_wait(int pending) {
    Fiber& self = *launch.current;
    while (int(self.copies.size()) > pending) {
        for (const Copy& copy : self.copies.front())
            end_copy(copy, self.thread, self.clocks[self.thread], false);
        self.copies.pop_front();
    }
}

// ---- barriers ----

void named_barrier(int id, int threads, bool wait_for_others) {
    if (id < 1 || id > 15 || threads % WARP) fail("%s uses named barrier %d of %d threads", place(), id, threads);
    Rendezvous& r = launch.named[id];
    if (r.arrived && r.line != threads) fail("%s: threads expect different numbers at a named barrier", place());
    r.line = threads;
    if (wait_for_others) {
        meet(r, threads, true, [] {});
        return;
    }
    arrive(r, threads, true, [] {});
    tick(*launch.current);
}

namespace {
Mbarrier& mbarrier_at(const void* barrier) {
    const auto found = launch.mbarriers.find(uintptr_t(barrier));
    if (found == launch.mbarriers.end()) fail("%s uses an mbarrier that was not initialised", place());
    return found->second;
}

void end_phase(Mbarrier& barrier) {
    if (barrier.missing || barrier.bytes) return;
    barrier.arrived = barrier.arriving;
    barrier.missing = barrier.arrivals;
    ++barrier.phase;
    ++launch.progress;
}
}  // namespace

// Atomic operations on a word do not race with each other, and put no order between anything else.
int atomic(int* address, int value, int (*operation)(int, int)) {
    Fiber& self = *launch.current;
    const Clocks own = self.clocks;
    Clocks& before = launch.atomics[uintptr_t(address)];
    before.resize(own.size());
    join(self.clocks, before);
    check_shared(shared_of(uintptr_t(address), 4), uintptr_t(address), 4, true);
    self.clocks = own;
    join(before, own);
    tick(self);
    const int old = *address;
    *address = operation(old, value);
    return old;
}

unsigned count_one(unsigned* address) {
    Fiber& self = *launch.current;
    check(uintptr_t(address), 4, false);
    Clocks& known = launch.counted[uintptr_t(address)];
    join(self.clocks, known);
    for (size_t i = 2 * launch.threads; i < known.size(); ++i) {
        const Count& count = launch.counts[i - 2 * launch.threads];
        if (known[i] && count.block == launch.block_number) join(self.clocks, count.clocks);
    }
    launch.counts.push_back({launch.block_number, self.clocks});
    self.clocks.resize(2 * launch.threads + launch.counts.size());
    self.clocks.back() = 1;
    known = self.clocks;
    std::fill_n(known.begin(), 2 * launch.threads, 0);  // those of this block's threads
    tick(self);
    return (*address)++;
}

void mbarrier_init(unsigned long long* barrier, int arrivals) {
    const uintptr_t address = uintptr_t(barrier);
    if (address % 8) fail("misaligned: %s puts an mbarrier at %p", place(), static_cast<void*>(barrier));
    check_shared(shared_of(address, 8), address, 8, true);
    Mbarrier& state = launch.mbarriers[address];
    state = Mbarrier();
    state.arrivals = state.missing = arrivals;
    state.arriving.assign(2 * launch.threads, 0);
    state.arrived.assign(2 * launch.threads, 0);
}

void mbarrier_init_fence() {}

void mbarrier_arrive(unsigned long long* barrier, int bytes) {
    const uintptr_t address = uintptr_t(barrier);
    check_shared(shared_of(address, 8), address, 8, false);
    Mbarrier& state = mbarrier_at(barrier);
    if (!state.missing) fail("%s is one more than the mbarrier expects to arrive", place());
    join(state.arriving, launch.current->clocks);
    tick(*launch.current);
    ++launch.progress;
    state.bytes += bytes;
    --state.missing;
    end_phase(state);
}

void mbarrier_wait(unsigned long long* barrier, int parity) {
    Fiber& self = *launch.current;
    const uintptr_t address = uintptr_t(barrier);
    check_shared(shared_of(address, 8), address, 8, false);
    Mbarrier& state = mbarrier_at(barrier);
    while (state.phase % 2 == parity) {
        // The copies take as long as anybody is willing to wait.
        std::vector<Mbarrier::Pending> copies;
        copies.swap(state.copies);
        for (const Mbarrier::Pending& pending : copies) {
            if (pending.rows.empty()) {
                end_copy(pending.copy, pending.thread, pending.clock, true);
            } else {
                for (const BoxRow& row : pending.rows) end_row(row);
                note_copy(pending.copy, pending.thread, pending.clock, true);
            }
            join(state.arriving, pending.clocks);
            state.bytes -= pending.copy.bytes;
            ++launch.progress;
        }
        end_phase(state);
        if (state.phase % 2 == parity) to_scheduler();
    }
    join(self.clocks, state.arrived);
    tick(self);
    ++launch.progress;
}

namespace {
void begin_counted(const Copy& copy, int alignment, unsigned long long* barrier, std::vector<BoxRow>&& rows) {
    Fiber& self = *launch.current;
    for_cells(shared_of(copy.shared, copy.bytes), copy.shared, copy.bytes, [&](Cell& cell) {
        if (cell.written && !cell.asynchronous && cell.write_clock > self.clocks[launch.threads + cell.writer])
            fail("%s copies over shared memory that thread %d wrote without a fence of the proxy", place(),
                 cell.writer);
    });
    begin_copy(copy, alignment);
    mbarrier_at(barrier).copies.push_back(
        {copy, self.thread, self.clocks[self.thread], self.clocks, std::move(rows)});
    tick(self);
    ++launch.progress;
}
}  // namespace

void bulk_copy(void* shared, const void* global, int bytes, unsigned long long* barrier) {
    if (bytes % 16) fail("misaligned: %s copies %d bytes in bulk", place(), bytes);
    begin_counted({uintptr_t(shared), uintptr_t(global), bytes, bytes}, 16, barrier, {});
}

namespace {
void copy_rows(void* shared, std::vector<BoxRow>&& rows, unsigned long long* barrier) {
    if (shared_address(shared) % 1024) fail("misaligned: %s copies a box to %p", place(), shared);
    for (const BoxRow& row : rows)
        if (row.used) check(row.global, row.used, false);
    begin_counted({uintptr_t(shared), 0, rows[0].bytes * int(rows.size()), 0}, 16, barrier, std::move(rows));
}
}  // namespace

void im2col_copy(void* shared, const unsigned long long* map, int axes, int channel, const int (&at)[3], int sample,
                 const int (&offsets)[3], unsigned long long* barrier) {
    copy_rows(shared, pixels_of(window_of(map, axes), uintptr_t(shared), channel, at, sample, offsets), barrier);
}

void tensor_copy(void* shared, const unsigned long long* map, int x, int y, int z, unsigned long long* barrier) {
    copy_rows(shared, rows_of(box_of(map), uintptr_t(shared), {x, y, z}), barrier);
}

void bulk_store(void* global, const void* shared, int bytes) {
    Fiber& self = *launch.current;
    const Copy copy = {uintptr_t(shared), uintptr_t(global), bytes, bytes};
    if (bytes % 16 || copy.shared % 16 || copy.global % 16)
        fail("misaligned: %s stores %d bytes in bulk from %#zx at %#zx", place(), bytes, size_t(copy.shared),
             size_t(copy.global));
    Shared& from = shared_of(copy.shared, bytes);
    check_shared(from, copy.shared, bytes, false);
    for_cells(from, copy.shared, bytes, [&](Cell& cell) {
        if (!cell.asynchronous && cell.write_clock > self.clocks[launch.threads + cell.writer])
            fail("%s stores shared memory that thread %d wrote without a fence of the proxy", place(), cell.writer);
    });
    check(copy.global, bytes, true);
    const unsigned char* const contents = static_cast<const unsigned char*>(shared);
    self.open_stores.push_back({copy, std::vector<unsigned char>(contents, contents + bytes)});
}

void bulk_store_commit() {
    Fiber& self = *launch.current;
    self.stores.insert(self.stores.end(), self.open_stores.begin(), self.open_stores.end());
    self.open_stores.clear();
}

void bulk_store_wait() {
    Fiber& self = *launch.current;
    for (const Store& store : self.stores) {
        const Copy& copy = store.copy;
        if (memcmp(reinterpret_cast<void*>(copy.shared), store.contents.data(), copy.bytes))
            fail("race: what %s stores in bulk was written before the wait for it", place());
        for_cells(shared_of(copy.shared, copy.bytes), copy.shared, copy.bytes,
                  [&](Cell& cell) { add_read(cell, self); });
        memcpy(reinterpret_cast<void*>(copy.global), store.contents.data(), copy.bytes);
    }
    self.stores.clear();
    tick(self);
    ++launch.progress;
}

void wait_for_grids() { launch.current->waited = true; }

void async_proxy_fence() {
    Fiber& self = *launch.current;
    launch.proxy_fenced = true;
    // Whatever comes before it in this order is known: what others have written that it has waited for, too.
    for (int t = 0; t < launch.threads; ++t)
        self.clocks[launch.threads + t] = std::max(self.clocks[launch.threads + t], self.clocks[t]);
    tick(self);
}

// ---- matrix products of a warpgroup ----

void set_registers() { meet_warpgroup(5, [] {}); }

void wgmma_fence() {
    meet_warpgroup(1, [] { warpgroup().fenced = true; });
}

void wgmma(int type, float* d, int n, unsigned long long a, unsigned long long b, bool accumulate, bool transposed,
           const unsigned* rows) {
    Warpgroup& group = warpgroup();
    const int thread = launch.current->thread % WARPGROUP;
    if (!group.fenced) fail("%s multiplies without a fence before", place());
    if (!come_to(2).arrived) {
        auto used = group.accumulators.begin();
        while (used != group.accumulators.end() && used->registers[thread] != d) ++used;
        if (used == group.accumulators.end())
            used = group.accumulators.insert(used, {n, {}, std::vector<float>(64 * n)});
        group.open_products.push_back({type, n, a, b, accumulate, transposed, &*used,
                                       Clocks(2 * launch.threads, std::numeric_limits<Clock>::max()),
                                       std::vector<const uint32_t*>(rows ? WARPGROUP : 0)});
    }
    Product& product = group.open_products.back();
    if (rows) product.rows[thread] = rows;
    Accumulators& accumulators = *product.accumulators;
    float*& registers = accumulators.registers[thread];
    if (product.a != a || product.b != b || product.n != n || product.accumulate != accumulate ||
        product.transposed != transposed || accumulators.n != n || (registers && registers != d))
        fail("%s: the threads of a warpgroup multiply different operands", place());
    if (!registers) {
        registers = d;
        for (int i = 0; i < n / 2; ++i) {
            accumulators.values[place_of_register(thread, i, n)] = d[i];
            d[i] = POISON;
        }
        launch.current->accumulators.push_back({uintptr_t(d), uintptr_t(d + n / 2)});
    }
    // What all of the threads know to have happened is there.
    take_least(product.clocks, launch.current->clocks);
    meet_warpgroup(2, [] {});
}

void wgmma_commit() {
    meet_warpgroup(3, [] {
        Warpgroup& group = warpgroup();
        group.products.push_back(std::move(group.open_products));
        group.open_products.clear();
    });
}

void wgmma_wait(int pending) {
    meet_warpgroup(4, [=] {
        Warpgroup& group = warpgroup();
        // One thread stands for all: that it goes on means that the products were read.
        const Fiber& reader = launch.fibers[launch.current->thread / WARPGROUP * WARPGROUP];
        while (int(group.products.size()) > pending) {
            for (const Product& product : group.products.front()) multiply(product, reader);
            group.products.pop_front();
        }
        // Accumulators that no product uses any more get their values.
        std::set<const Accumulators*> busy;
        for (const Product& product : group.open_products) busy.insert(product.accumulators);
        for (const std::vector<Product>& products : group.products)
            for (const Product& product : products) busy.insert(product.accumulators);
        group.accumulators.remove_if([&](const Accumulators& accumulators) {
            if (busy.count(&accumulators)) return false;
            for (int thread = 0; thread < WARPGROUP; ++thread) {
                float* const d = accumulators.registers[thread];
                for (int i = 0; i < accumulators.n / 2; ++i) {
                    if (!is_poison(d[i])) fail(TOUCHED);
                    d[i] = accumulators.values[place_of_register(thread, i, accumulators.n)];
                }
                std::vector<Range>& ranges = launch.fibers[reader.thread + thread].accumulators;
                ranges.erase(std::find_if(ranges.begin(), ranges.end(),
                                          [&](const Range& range) { return range.low == uintptr_t(d); }));
            }
            return true;
        });
        group.fenced = false;
    });
}

}  // namespace emulator
