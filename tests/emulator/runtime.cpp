// See runtime.hpp. This file is compiled without instrumentation.
#include "runtime.hpp"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

namespace emulator {
namespace {

constexpr size_t STACK = 256 * 1024;
constexpr int WARP = 32, WARPGROUP = 128;

typedef uint32_t Clock;
typedef std::vector<Clock> Clocks;  // one component for each thread of the block

void join(Clocks& a, const Clocks& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], b[i]);
}

// ---- memory ----

enum State : uint8_t { VALID = 1, WRITTEN = 2 };

// A global array: the bytes of its elements, and what became of them.
struct Array {
    uintptr_t low, high;
    uint8_t* state;    // a State for each byte
    uint32_t* writer;  // the thread that wrote it in this launch, 0 for none
};

// A word of shared memory, or a byte of a word that is accessed in parts.
struct Cell {
    uint32_t block = 0;  // the contents of another block's cell count for nothing
    bool written = false;
    bool asynchronous = false;  // written by a bulk copy, which needs no fence
    bool read = false;
    int writer = -1;
    Clock write_clock = 0;
};

struct Shared {
    uintptr_t low = 0, high = 0;
    // Of words: cells, and behind each other for each cell the clock of each thread's last read.
    std::vector<Cell> cells;
    std::vector<Clock> readers;
    // The same of the bytes of words that are accessed in parts.
    struct Bytes {
        Cell cells[4];
        std::vector<Clock> readers;
    };
    std::unordered_map<size_t, Bytes> bytes;
};

// ---- threads ----

// A copy under way from global to shared memory.
struct Copy {
    uintptr_t shared, global;
    int bytes, used;
};

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    int thread = 0;
    bool done = false, waiting = false;
    Clocks clocks;
    Clock fenced = 0;  // its writes up to this tick are known to the asynchronous proxy
    std::vector<Copy> open_copies;
    std::deque<std::vector<Copy>> copies;  // closed groups
};

// What a thread hands to the others of its warp or warpgroup.
union Parcel {
    unsigned long long bits;
    const void* pointer;
    struct {
        unsigned a[4], b[2];
    } words;
    struct {
        double a, b;
    } doubles;
};

// Threads that wait for each other: a block, a warp, a warpgroup or a named barrier.
struct Rendezvous {
    int arrived = 0;
    int line = 0;
    Clocks clocks, met;
    std::vector<int> waiting;
    std::vector<Parcel> sent, received;  // by the place of the thread among those that meet
};

// A count in shared memory, and the copies that are counted on it.
struct Mbarrier {
    int arrivals = 0, missing = 0, bytes = 0, phase = 0;
    Clocks arriving, arrived;
    struct Pending {
        Copy copy;
        int thread;
        Clock clock;
        Clocks clocks;
    };
    std::vector<Pending> copies;
};

// A matrix product under way, with the accumulators of all threads of the warpgroup.
struct Product {
    int type, n;
    uint64_t a, b;
    bool accumulate;
    std::vector<float*> registers;
    Clocks clocks, fenced;
};

struct Warpgroup {
    Rendezvous rendezvous;
    bool fenced = false;
    std::vector<Product> open_products;
    std::deque<std::vector<Product>> products;  // closed groups
    std::map<float*, std::vector<float>> contents;  // of accumulators in use
};

struct Launch {
    Index grid, block, at;
    int threads = 0;
    uint32_t block_number = 0;
    std::vector<Fiber> fibers;
    Fiber* current = nullptr;
    ucontext_t scheduler;
    uint64_t progress = 0;  // what polling threads wait for
    Rendezvous barrier;
    int sum = 0, last_sum = 0;
    std::vector<std::map<unsigned, Rendezvous>> warps;  // of each warp, by the mask of its lanes
    std::vector<Warpgroup> warpgroups;
    std::map<int, Rendezvous> named;
    std::map<uintptr_t, Mbarrier> mbarriers;
    std::vector<Array> arrays;
    Shared shared[2];  // the kernel's own, and what the launch asks for
    uintptr_t image_low = 0, image_high = 0;
    void (*call)(const void*) = nullptr;
    const void* arguments = nullptr;
    std::vector<unsigned char> dynamic;
    char error[1024];
    bool failed = false;
};

Launch launch;

void to_scheduler() { swapcontext(&launch.current->context, &launch.scheduler); }

void wait() {
    launch.current->waiting = true;
    to_scheduler();
}

// Everything that this thread does from now on comes after a new tick of its own clock.
void tick(Fiber& fiber) { ++fiber.clocks[fiber.thread]; }

void run_fiber() {
    launch.call(launch.arguments);
    launch.current->done = true;
    ++launch.progress;
    to_scheduler();
}

// One more of `count` threads has come here; the last one wakes those that wait. What they did before
// is visible to all of them afterwards only where the meeting is `ordered`.
bool arrive(Rendezvous& r, int count, bool ordered) {
    ++launch.progress;
    if (!r.arrived) r.clocks.assign(launch.threads, 0);
    if (ordered) join(r.clocks, launch.current->clocks);
    if (++r.arrived < count) return false;
    r.arrived = 0;
    r.met = r.clocks;
    r.received = r.sent;
    for (int thread : r.waiting) launch.fibers[thread].waiting = false;
    r.waiting.clear();
    return true;
}

// Waits until `count` threads have come here; returns what they sent, by `place`.
const std::vector<Parcel>& meet(Rendezvous& r, int count, bool ordered, int place = 0,
                                const Parcel& parcel = Parcel()) {
    Fiber& self = *launch.current;
    if (int(r.sent.size()) <= place) r.sent.resize(place + 1);
    r.sent[place] = parcel;
    if (!arrive(r, count, ordered)) {
        r.waiting.push_back(self.thread);
        wait();
    }
    join(self.clocks, r.met);
    tick(self);
    return r.received;
}

// ---- checks ----

const char* place() {
    static char text[128];
    snprintf(text, sizeof text, "thread %d of block %u", launch.current->thread, launch.at.x);
    return text;
}

void check_array(const Array& array, uintptr_t address, size_t size, bool write) {
    const uint32_t self = launch.block_number * uint32_t(launch.threads) + launch.current->thread + 1;
    for (size_t i = address - array.low; i < address - array.low + size; ++i) {
        if (!(array.state[i] & VALID))
            fail("%s %s between the elements of an array", place(), write ? "writes" : "reads");
        if (write) {
            if (array.writer[i] && array.writer[i] != self)
                fail("%s writes what another thread wrote in the same launch", place());
            array.writer[i] = self;
            array.state[i] |= WRITTEN;
        } else {
            if (!(array.state[i] & WRITTEN))
                fail("%s reads global memory that nothing wrote", place());
            if (array.writer[i] && array.writer[i] != self)
                fail("%s reads what another thread wrote in the same launch", place());
        }
    }
}

// Calls f(cell, clocks of its readers) for each cell of some bytes of shared memory.
template <typename F>
void for_cells(Shared& shared, uintptr_t address, size_t size, F f) {
    const uint32_t block = launch.block_number + 1;
    const size_t threads = launch.threads;
    const auto fresh = [&](Cell& cell, Clock* readers) {
        if (cell.block == block) return;
        if (cell.read) std::fill(readers, readers + threads, 0);
        cell = Cell();
        cell.block = block;
    };
    for (size_t first = address - shared.low, end = first + size; first < end;) {
        const size_t word = first / 4, begin = first % 4, stop = std::min<size_t>(4, end - word * 4);
        Cell& whole = shared.cells[word];
        Clock* const readers = &shared.readers[word * threads];
        const auto parts = shared.bytes.empty() ? shared.bytes.end() : shared.bytes.find(word);
        if (parts == shared.bytes.end() && begin == 0 && stop == 4) {
            fresh(whole, readers);
            f(whole, readers);
        } else {
            Shared::Bytes& bytes = parts == shared.bytes.end() ? shared.bytes[word] : parts->second;
            if (bytes.readers.empty()) {
                fresh(whole, readers);
                std::fill(bytes.cells, bytes.cells + 4, whole);
                for (int i = 0; i < 4; ++i) bytes.readers.insert(bytes.readers.end(), readers, readers + threads);
            }
            for (size_t i = begin; i < stop; ++i) {
                fresh(bytes.cells[i], &bytes.readers[i * threads]);
                f(bytes.cells[i], &bytes.readers[i * threads]);
            }
        }
        first = word * 4 + stop;
    }
}

void check_shared(Shared& shared, uintptr_t address, size_t size, bool write) {
    const Fiber& self = *launch.current;
    for_cells(shared, address, size, [&](Cell& cell, Clock* readers) {
        if (cell.writer >= 0 && cell.write_clock > self.clocks[cell.writer])
            fail("race: %s %s shared memory that thread %d wrote, and nothing puts an order", place(),
                 write ? "writes" : "reads", cell.writer);
        if (!write) {
            if (!cell.written) fail("%s reads shared memory that nothing wrote", place());
            readers[self.thread] = self.clocks[self.thread];
            cell.read = true;
            return;
        }
        if (cell.read)
            for (int t = 0; t < launch.threads; ++t)
                if (readers[t] > self.clocks[t])
                    fail("race: %s writes shared memory that thread %d read, and nothing puts an order",
                         place(), t);
        cell.written = true;
        cell.asynchronous = false;
        cell.writer = self.thread;
        cell.write_clock = self.clocks[self.thread];
    });
}

void check(uintptr_t address, size_t size, bool write) {
    const uintptr_t end = address + size;
    if (!launch.current) return;
    const uintptr_t stack = uintptr_t(launch.current->stack.get());
    if (address >= stack && end <= stack + STACK) return;
    for (Shared& shared : launch.shared)
        if (address >= shared.low && end <= shared.high) return check_shared(shared, address, size, write);
    bool touches = false;
    for (const Array& array : launch.arrays) {
        if (address >= array.low && end <= array.high) {
            // Of two views into one buffer, the one whose elements these are.
            touches = true;
            if (array.state[address - array.low] & VALID) return check_array(array, address, size, write);
        }
    }
    if (touches) fail("%s %s between the elements of an array", place(), write ? "writes" : "reads");
    if (!write && address >= launch.image_low && end <= launch.image_high) return;  // constants
    fail("%s %s %zu bytes out of bounds, at %#zx", place(), write ? "writes" : "reads", size,
         size_t(address));
}

void start_block(std::mt19937& random) {
    std::fill(launch.dynamic.begin(), launch.dynamic.end(), 0xff);
    memset(reinterpret_cast<void*>(launch.shared[0].low), 0xff, launch.shared[0].high - launch.shared[0].low);
    launch.barrier = Rendezvous();
    launch.warps.assign((launch.threads + WARP - 1) / WARP, {});
    launch.warpgroups.assign((launch.threads + WARPGROUP - 1) / WARPGROUP, Warpgroup());
    launch.named.clear();
    launch.mbarriers.clear();
    launch.sum = 0;
    for (int t = 0; t < launch.threads; ++t) {
        Fiber& fiber = launch.fibers[t];
        fiber.thread = t;
        fiber.done = fiber.waiting = false;
        fiber.clocks.assign(launch.threads, 0);
        fiber.clocks[t] = 1;
        fiber.fenced = 0;
        fiber.open_copies.clear();
        fiber.copies.clear();
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = &launch.scheduler;
        makecontext(&fiber.context, run_fiber, 0);
    }
    std::vector<int> order(launch.threads);
    for (int t = 0; t < launch.threads; ++t) order[t] = t;
    for (;;) {
        std::shuffle(order.begin(), order.end(), random);
        const uint64_t progress = launch.progress;
        int done = 0;
        for (int t : order) {
            Fiber& fiber = launch.fibers[t];
            done += fiber.done;
            if (fiber.done || fiber.waiting) continue;
            launch.current = &fiber;
            swapcontext(&launch.scheduler, &fiber.context);
            launch.current = nullptr;
            if (launch.failed) return;
        }
        if (done == launch.threads) return;
        if (launch.progress == progress) {  // all that ran was polling
            snprintf(launch.error, sizeof launch.error,
                     "block %u hangs: %d threads wait for others, %d have ended; a barrier that not all "
                     "threads reach",
                     launch.at.x, launch.threads - done, done);
            launch.failed = true;
            return;
        }
    }
}

}  // namespace

Index thread_index() { return {unsigned(launch.current->thread), 0, 0}; }
Index block_index() { return launch.at; }
Index grid_size() { return launch.grid; }
Index block_size() { return launch.block; }
int lane_index() { return launch.current->thread % WARP; }
unsigned char* dynamic_shared() { return reinterpret_cast<unsigned char*>(launch.shared[1].low); }

void fail(const char* format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(launch.error, sizeof launch.error, format, values);
    va_end(values);
    launch.failed = true;
    to_scheduler();
    abort();  // a failed thread is never resumed
}

int block_barrier(int line, int value) {
    Rendezvous& r = launch.barrier;
    if (r.arrived && r.line != line)
        fail("%s waits at the barrier of line %d, others at that of line %d", place(), line, r.line);
    r.line = line;
    launch.sum += value;
    if (r.arrived + 1 == launch.threads) {
        launch.last_sum = launch.sum;
        launch.sum = 0;
    }
    meet(r, launch.threads, true);
    return launch.last_sum;
}

}  // namespace emulator

#include "instructions.ipp"

// ---- what the compiler calls ----

using emulator::check;

#define ACCESSES(n)                                                                        \
    extern "C" void __tsan_read##n(uintptr_t address) { check(address, n, false); }           \
    extern "C" void __tsan_write##n(uintptr_t address) { check(address, n, true); }           \
    extern "C" void __tsan_unaligned_read##n(uintptr_t address) { check(address, n, false); } \
    extern "C" void __tsan_unaligned_write##n(uintptr_t address) { check(address, n, true); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
extern "C" void __tsan_read_range(uintptr_t address, size_t size) { check(address, size, false); }
extern "C" void __tsan_write_range(uintptr_t address, size_t size) { check(address, size, true); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

struct TypeMismatch {
    struct {
        const char* file;
        uint32_t line, column;
    } where;
    const void* type;
    unsigned char log_alignment, kind;
};
extern "C" void __ubsan_handle_type_mismatch_v1(const TypeMismatch* data, uintptr_t address) {
    if (!emulator::launch.current) return;
    emulator::fail("misaligned: %s accesses %#zx, which is no multiple of %d (line %u)", emulator::place(),
                   size_t(address), 1 << data->log_alignment, data->where.line);
}

extern "C" void __ubsan_handle_divrem_overflow(const void*, uintptr_t, uintptr_t) {
    emulator::fail("%s divides by zero, or the smallest integer by -1", emulator::place());
}
extern "C" void __ubsan_handle_out_of_bounds(const void*, uintptr_t index) {
    emulator::fail("%s is out of bounds of an array's type, with index %zd", emulator::place(), ssize_t(index));
}

// ---- what Python calls ----

extern "C" void emulator_add_array(uintptr_t low, size_t size, uint8_t* state, uint32_t* writer) {
    emulator::launch.arrays.push_back({low, low + size, state, writer});
}

extern "C" void emulator_clear_arrays() { emulator::launch.arrays.clear(); }

// Runs a kernel; returns null, or what went wrong.
extern "C" const char* emulator_run(void (*call)(const void*), const void* arguments, unsigned grid,
                                    unsigned block, size_t dynamic, uintptr_t shared_low,
                                    uintptr_t shared_high, uintptr_t image_low, uintptr_t image_high,
                                    unsigned seed) {
    using namespace emulator;
    constexpr size_t ALIGNMENT = 1024;
    launch.grid = {grid, 1, 1};
    launch.block = {block, 1, 1};
    launch.threads = int(block);
    launch.call = call;
    launch.arguments = arguments;
    launch.failed = false;
    launch.image_low = image_low;
    launch.image_high = image_high;
    launch.dynamic.assign(dynamic + ALIGNMENT, 0);
    const uintptr_t dynamic_low = (uintptr_t(launch.dynamic.data()) + ALIGNMENT - 1) & -ALIGNMENT;
    const uintptr_t ranges[2][2] = {{shared_low, shared_high}, {dynamic_low, dynamic_low + dynamic}};
    for (int i = 0; i < 2; ++i) {
        Shared& shared = launch.shared[i];
        shared.low = ranges[i][0];
        shared.high = ranges[i][1];
        const size_t words = (shared.high - shared.low + 3) / 4;
        shared.cells.assign(words, Cell());
        shared.readers.assign(words * block, 0);
        shared.bytes.clear();
    }
    if (launch.fibers.size() < block) launch.fibers = std::vector<Fiber>(block);
    std::mt19937 random(seed);
    for (unsigned b = 0; b < grid && !launch.failed; ++b) {
        launch.at = {b, 0, 0};
        launch.block_number = b;
        start_block(random);
    }
    launch.current = nullptr;
    return launch.failed ? launch.error : nullptr;
}
