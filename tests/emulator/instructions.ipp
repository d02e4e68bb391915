// What the instructions of kernels/ptx.cuh do, from the PTX manual. Part of runtime.cpp.

namespace emulator {
namespace {

// ---- meeting points ----

// Only __syncwarp puts an order between the lanes' accesses to memory; an exchange does not.
const std::vector<Parcel>& meet_warp(unsigned mask, int line, bool ordered, const Parcel& parcel) {
    const int lane = launch.current->thread % WARP;
    Rendezvous& r = launch.warps[launch.current->thread / WARP][mask];
    if (!(mask >> lane & 1)) fail("%s takes part in an exchange whose mask leaves it out", place());
    if (r.arrived && r.line != line) fail("%s: the lanes of a warp have diverged", place());
    r.line = line;
    r.sent.resize(WARP);
    return meet(r, __builtin_popcount(mask), ordered, lane, parcel);
}

// An instruction that all lanes of the warp execute; `line` tells instructions apart.
const std::vector<Parcel>& meet_lanes(int line, const Parcel& parcel) {
    return meet_warp(~0u, -line, false, parcel);
}

Warpgroup& warpgroup() { return launch.warpgroups[launch.current->thread / WARPGROUP]; }

void meet_warpgroup(int line) {
    Rendezvous& r = warpgroup().rendezvous;
    if (r.arrived && r.line != line) fail("%s: the threads of a warpgroup have diverged", place());
    r.line = line;
    meet(r, WARPGROUP, false);
}

// ---- numbers ----

float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// Element `k` of a row of operands that is `words` long.
double operand(int type, const uint32_t* words, int k) {
    if (type == 0) return float_of(words[k] & ~0x1fffu);  // tf32 ignores the last bits
    const uint16_t bits = uint16_t(words[k / 2] >> (k % 2 * 16));
    return type == 1 ? float_from_float16(bits) : float_of(uint32_t(bits) << 16);
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
    for_cells(shared, copy.shared, copy.bytes, [](Cell& cell, Clock*) { cell.written = false; });
    memset(reinterpret_cast<void*>(copy.shared), 0xff, copy.bytes);
    if (copy.used) check(copy.global, copy.used, false);
}

void end_copy(const Copy& copy, int thread, Clock clock, bool asynchronous) {
    Shared& shared = shared_of(copy.shared, copy.bytes);
    memset(reinterpret_cast<void*>(copy.shared), 0, copy.bytes);
    memcpy(reinterpret_cast<void*>(copy.shared), reinterpret_cast<void*>(copy.global), copy.used);
    for_cells(shared, copy.shared, copy.bytes, [&](Cell& cell, Clock*) {
        cell.written = true;
        cell.asynchronous = asynchronous;
        cell.writer = thread;
        cell.write_clock = clock;
    });
}

// ---- matrix products of a warpgroup ----

// The word of 32 bits at byte `k` of row `row` of an operand, checked as a read of the product.
uint32_t operand_word(const Product& product, uint64_t descriptor, int row, int k) {
    const uintptr_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
                    stride = (descriptor >> 32 & 0x3fff) << 4;
    uintptr_t address;
    switch (descriptor >> 62) {
        case 0: address = start + row / 8 * stride + k / 16 * leading + row % 8 * 16 + k % 16; break;
        case 1:
            address = start + row / 8 * stride + row % 8 * 128 + k;
            address ^= (address >> 7 & 7) << 4;
            break;
        default: fail("%s multiplies with a swizzle that is not emulated", place());
    }
    const uintptr_t pointer = pointer_of(address);
    Shared& shared = shared_of(pointer, 4);
    for_cells(shared, pointer, 4, [&](Cell& cell, Clock* readers) {
        if (!cell.written) fail("%s multiplies shared memory that nothing wrote", place());
        if (cell.write_clock > product.clocks[cell.writer])
            fail("race: %s multiplies shared memory that thread %d wrote, and nothing puts an order", place(),
                 cell.writer);
        if (!cell.asynchronous && cell.write_clock > product.fenced[cell.writer])
            fail("%s multiplies shared memory that thread %d wrote without a fence of the proxy", place(),
                 cell.writer);
        cell.read = true;
        readers[launch.current->thread] = launch.current->clocks[launch.current->thread];
    });
    uint32_t word;
    memcpy(&word, reinterpret_cast<void*>(pointer), 4);
    return word;
}

const float POISON = float_of(0x7fedbeef);

bool is_poison(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits == 0x7fedbeef;
}

void multiply(Warpgroup& group, const Product& product) {
    const int words = 8, depth = product.type == 0 ? 8 : 16;
    std::vector<uint32_t> a(64 * words), b(product.n * words);
    for (int i = 0; i < 64 * words; ++i) a[i] = operand_word(product, product.a, i / words, i % words * 4);
    for (int i = 0; i < product.n * words; ++i) b[i] = operand_word(product, product.b, i / words, i % words * 4);
    for (int thread = 0; thread < WARPGROUP; ++thread) {
        std::vector<float>& d = group.contents[product.registers[thread]];
        const int row0 = thread / WARP * 16 + thread % WARP / 4, column0 = thread % 4 * 2;
        for (int i = 0; i < product.n / 2; ++i) {
            const int row = row0 + i % 4 / 2 * 8, column = i / 4 * 8 + column0 + i % 2;
            double sum = product.accumulate ? d[i] : 0;
            for (int k = 0; k < depth; ++k)
                sum += operand(product.type, &a[row * words], k) * operand(product.type, &b[column * words], k);
            d[i] = float(sum);
        }
    }
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
                       : exponent == 0 ? __builtin_ldexpf(float(mantissa), -24)
                                       : __builtin_ldexpf(float(mantissa + 1024), exponent - 25);
    return bits >> 15 ? -size : size;
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

// ---- exchanges of a warp ----

void warp_barrier(unsigned mask, int line) { meet_warp(mask, line, true, Parcel()); }

unsigned warp_ballot(unsigned mask, bool value, int line) {
    Parcel parcel;
    parcel.bits = value;
    const std::vector<Parcel>& lanes = meet_warp(mask, line, false, parcel);
    unsigned result = 0;
    for (int lane = 0; lane < WARP; ++lane)
        if (mask >> lane & 1 && lanes[lane].bits) result |= 1u << lane;
    return result;
}

unsigned long long warp_shuffle(unsigned mask, unsigned long long value, int source, int line) {
    Parcel parcel;
    parcel.bits = value;
    const std::vector<Parcel>& lanes = meet_warp(mask, line, false, parcel);
    if (!(mask >> source & 1)) fail("%s shuffles from lane %d, which takes no part", place(), source);
    return lanes[source].bits;
}

// ---- matrix products of a warp ----

namespace {
void mma_16n8(int type, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Parcel parcel;
    memcpy(parcel.words.a, a, sizeof a);
    memcpy(parcel.words.b, b, sizeof b);
    const std::vector<Parcel>& lanes = meet_lanes(1 + type, parcel);
    const int lane = lane_index(), depth = type == 0 ? 8 : 16, pack = depth / 8;
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = d[i];
        for (int k = 0; k < depth; ++k) {
            // Lane g * 4 + t holds t of the first four words along k, and t of the last four.
            const int word = k / pack, t = word % 4, late = word / 4;
            const uint32_t x = lanes[row % 8 * 4 + t].words.a[row / 8 + 2 * late];
            const uint32_t y = lanes[column * 4 + t].words.b[late];
            sum += operand(type, &x, k % pack) * operand(type, &y, k % pack);
        }
        d[i] = float(sum);
    }
}
}  // namespace

void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_16n8(0, d, a, b); }
void mma_float16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_16n8(1, d, a, b); }
void mma_bfloat16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { mma_16n8(2, d, a, b); }

void mma_float64(double (&d)[2], double a, double b) {
    Parcel parcel;
    parcel.doubles = {a, b};
    const std::vector<Parcel>& lanes = meet_lanes(4, parcel);
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
    const std::vector<Parcel>& lanes = meet_lanes(transposed ? 6 : 5, parcel);
    const int g = lane_index() / 4, t = lane_index() % 4;
    for (int m = 0; m < 4; ++m) {
        uint16_t pair[2];
        for (int i = 0; i < 2; ++i) {
            const int from = transposed ? 2 * t + i : g, column = transposed ? g : 2 * t + i;
            const uintptr_t element = uintptr_t(lanes[m * 8 + from].pointer) + column * 2;
            check_shared(shared_of(element, 2), element, 2, false);
            memcpy(&pair[i], reinterpret_cast<void*>(element), 2);
        }
        r[m] = pair[0] | unsigned(pair[1]) << 16;
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
        meet(r, threads, true);
        return;
    }
    arrive(r, threads, true);
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

void mbarrier_init(unsigned long long* barrier, int arrivals) {
    const uintptr_t address = uintptr_t(barrier);
    if (address % 8) fail("misaligned: %s puts an mbarrier at %p", place(), static_cast<void*>(barrier));
    check_shared(shared_of(address, 8), address, 8, true);
    Mbarrier& state = launch.mbarriers[address];
    state = Mbarrier();
    state.arrivals = state.missing = arrivals;
    state.arriving.assign(launch.threads, 0);
    state.arrived.assign(launch.threads, 0);
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
            end_copy(pending.copy, pending.thread, pending.clock, true);
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

void bulk_copy(void* shared, const void* global, int bytes, unsigned long long* barrier) {
    Fiber& self = *launch.current;
    if (bytes % 16) fail("misaligned: %s copies %d bytes in bulk", place(), bytes);
    const Copy copy = {uintptr_t(shared), uintptr_t(global), bytes, bytes};
    begin_copy(copy, 16);
    mbarrier_at(barrier).copies.push_back({copy, self.thread, self.clocks[self.thread], self.clocks});
    tick(self);
    ++launch.progress;
}

void async_proxy_fence() {
    Fiber& self = *launch.current;
    self.fenced = self.clocks[self.thread];
}

// ---- matrix products of a warpgroup ----

void wgmma_fence() {
    meet_warpgroup(1);
    warpgroup().fenced = true;
}

void wgmma(int type, float* d, int n, unsigned long long a, unsigned long long b, bool accumulate) {
    Warpgroup& group = warpgroup();
    const int place_in_group = launch.current->thread % WARPGROUP;
    if (!group.fenced) fail("%s multiplies without a fence in front", place());
    std::vector<float>& contents = group.contents[d];
    if (contents.empty()) contents.assign(d, d + n / 2);
    std::fill(d, d + n / 2, POISON);
    Rendezvous& r = group.rendezvous;
    if (!r.arrived)
        group.open_products.push_back({type, n, a, b, accumulate, std::vector<float*>(WARPGROUP),
                                       Clocks(launch.threads, ~Clock(0)), Clocks(launch.threads)});
    Product& product = group.open_products.back();
    if (product.a != a || product.b != b || product.n != n || product.accumulate != accumulate)
        fail("%s: the threads of a warpgroup multiply different operands", place());
    product.registers[place_in_group] = d;
    // What all of the threads know to have happened is there.
    for (int t = 0; t < launch.threads; ++t)
        product.clocks[t] = std::min(product.clocks[t], launch.current->clocks[t]);
    for (int t = 0; t < launch.threads; ++t) product.fenced[t] = launch.fibers[t].fenced;
    meet_warpgroup(2);
}

void wgmma_commit() {
    meet_warpgroup(3);
    Warpgroup& group = warpgroup();
    if (launch.current->thread % WARPGROUP == 0) {
        group.products.push_back(group.open_products);
        group.open_products.clear();
    }
    meet_warpgroup(4);
}

void wgmma_wait(int pending) {
    meet_warpgroup(5);
    Warpgroup& group = warpgroup();
    if (launch.current->thread % WARPGROUP == 0) {
        while (int(group.products.size()) > pending) {
            for (const Product& product : group.products.front()) multiply(group, product);
            group.products.pop_front();
        }
        // Accumulators that no product uses any more get their values.
        std::map<float*, std::vector<float>> busy;
        for (const std::vector<Product>& products : group.products)
            for (const Product& product : products)
                for (float* d : product.registers) busy[d] = group.contents[d];
        for (const auto& [d, values] : group.contents) {
            if (busy.count(d)) continue;
            for (size_t i = 0; i < values.size(); ++i) {
                if (!is_poison(d[i])) fail("the accumulators of a product were touched before the wait for it");
                d[i] = values[i];
            }
        }
        group.contents = busy;
        group.fenced = false;
    }
    meet_warpgroup(6);
}

}  // namespace emulator
