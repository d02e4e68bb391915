// See runtime.hpp. This file is compiled without instrumentation.
#include "runtime.hpp"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace emulator {
namespace {

constexpr size_t STACK = 256 * 1024;
constexpr int WARP = 32, WARPGROUP = 128;

typedef int32_t Clock;
// One component for each thread of the block; and after them one more for each, the tick up to which
// its writes are known to the asynchronous proxy.
typedef std::vector<Clock> Clocks;

// These are most of the work at barriers. Without the vectors' checks the compiler vectorises them.
void join(Clock* __restrict a, const Clock* __restrict b, size_t size) {
    for (size_t i = 0; i < size; ++i) a[i] = std::max(a[i], b[i]);
}
void take_least(Clocks& clocks, const Clocks& others) {
    Clock* const a = clocks.data();
    const Clock* const b = others.data();
    if (clocks.size() > others.size()) clocks.resize(others.size());
    for (size_t i = 0, size = clocks.size(); i < size; ++i) a[i] = std::min(a[i], b[i]);
}
bool any_later(const Clock* a, const Clock* b, int threads) {
    int later = 0;
    for (int i = 0; i < threads; ++i) later |= a[i] > b[i];
    return later;
}

// ---- memory ----

// What the previous launch has written is PENDING, where the two may overlap.
enum State : uint8_t { VALID = 1, WRITTEN = 2, PENDING = 4 };

// A global array: the bytes of its elements, and what became of them.
struct Array {
    uintptr_t low, high;
    uint8_t* state;    // a State for each byte
    uint32_t* writer;  // the thread that wrote it in this launch, 0 for none
    std::unique_ptr<Clock[]> clocks;  // when, for each byte that has a writer; none where nothing has

    bool changed() const { return bool(clocks); }
};

struct Read {
    int thread;
    Clock clock;
};

// A word of shared memory, or a byte of a word that is accessed in parts.
struct alignas(64) Cell {
    static constexpr int FEW = 4, MANY = -1;

    uint32_t block = 0;  // the contents of another block's cell count for nothing
    bool written = false;
    bool asynchronous = false;  // written by a bulk copy, which needs no fence
    int8_t reads = 0;           // how many `few` holds; with MANY, `many` holds them
    int writer = -1;
    Clock write_clock = 0;
    // The reads since the last write, without those that come before another one.
    Read few[FEW];
    int parts = -1;         // place in Shared::parts of the word's bytes
    Clock* many = nullptr;  // the clock of each thread's last read, in launch.reads
};

struct Shared {
    uintptr_t low = 0, high = 0;
    std::vector<Cell> cells;                 // of words
    std::vector<std::array<Cell, 4>> parts;  // of the bytes of words that are accessed in parts
};

// ---- threads ----

// A copy under way from global to shared memory.
struct Copy {
    uintptr_t shared, global;
    int bytes, used;
};

// A row of a box under way: some of its bytes come from global memory, the others are zero.
struct BoxRow {
    uintptr_t shared, global;  // of the first byte of the row, and of the first that comes
    int bytes, before, used;   // of the row, the zeros before, and those that come
    bool floats;               // which become TF32 numbers
};

// One from shared to global memory, and what lay there when it was issued.
struct Store {
    Copy copy;
    std::vector<unsigned char> contents;
};

struct Range {
    uintptr_t low, high;
};

struct Fiber {
    jmp_buf place;  // where it goes on
    std::unique_ptr<char[]> stack{new char[STACK]};
    int thread = 0;
    bool begun = false, done = false, waiting = false;
    bool waited = false;  // for the previous launch
    Clocks clocks;
    std::vector<Copy> open_copies;
    std::deque<std::vector<Copy>> copies;  // closed groups
    std::vector<Store> open_stores, stores;
    std::vector<Range> accumulators;       // of matrix products under way
};

// What a thread hands to the others of its warp.
union Parcel {
    unsigned long long bits;
    const void* pointer;
    struct {
        unsigned a[4], b[2];
        float d[4];
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
};

// Lanes of a warp that wait for each other and exchange parcels.
struct Exchange {
    Rendezvous rendezvous;
    Parcel sent[WARP], received[WARP];
};

// A count in shared memory, and the bulk copies that are counted on it.
struct Mbarrier {
    int arrivals = 0, missing = 0, bytes = 0, phase = 0;
    Clocks arriving, arrived;
    struct Pending {
        Copy copy;
        int thread;
        Clock clock;
        Clocks clocks;
        std::vector<BoxRow> rows;  // of a copy of a box
    };
    std::vector<Pending> copies;
};

// The accumulators of matrix products under way. Meanwhile the registers hold nothing.
struct Accumulators {
    int n;
    float* registers[WARPGROUP] = {};
    std::vector<float> values;  // 64 x n
};

// A matrix product under way.
struct Product {
    int type, n;
    uint64_t a, b;
    bool accumulate, transposed;
    Accumulators* accumulators;
    Clocks clocks;
    std::vector<const uint32_t*> rows;  // of each thread the registers that `a` lies in, if it does
};

struct Warpgroup {
    Rendezvous rendezvous;
    bool fenced = false;
    std::vector<Product> open_products;
    std::deque<std::vector<Product>> products;  // closed groups
    std::list<Accumulators> accumulators;
};

// When a thread of a block counted, for threads of other blocks. A thread that knows of it has a one after the clocks of
// its own block's threads, at the count's number.
struct Count {
    uint32_t block;
    Clocks clocks;
};

struct Launch {
    Index grid, block, at;
    int threads = 0;
    uint32_t block_number = 0;
    uint32_t all_blocks = 0;  // of this launch and those before it
    std::vector<Fiber> fibers;
    Fiber* current = nullptr;
    jmp_buf scheduler;
    uint64_t progress = 0;  // what polling threads wait for
    Rendezvous barrier;
    bool proxy_fenced = false;  // whether a thread of the block has fenced the asynchronous proxy
    int sum = 0, last_sum = 0;
    std::vector<std::map<unsigned, Exchange>> warps;  // of each warp, by the mask of its lanes
    std::vector<Warpgroup> warpgroups;
    std::map<int, Rendezvous> named;
    std::map<uintptr_t, Mbarrier> mbarriers;
    std::map<uintptr_t, Clocks> atomics;  // when a word was changed so
    std::vector<Count> counts;
    std::map<uintptr_t, Clocks> counted;  // what is known to who counts next
    std::vector<Array> arrays;
    Shared shared[2];  // the kernel's own, and what the launch asks for
    std::deque<std::vector<Clock>> reads;  // of cells with many
    size_t used_reads = 0;
    uintptr_t image_low = 0, image_high = 0;
    void (*call)(const void*) = nullptr;
    const void* arguments = nullptr;
    std::vector<unsigned char> dynamic;
    char error[1024];
    bool failed = false;
};

Launch launch;

void join(Clocks& clocks, const Clocks& others) {
    if (clocks.size() < others.size()) clocks.resize(others.size());
    const size_t size = others.size(), threads = launch.threads, counts = std::min(2 * threads, size);
    // Until a block fences the proxy, nothing is known to the proxy: the second half is zero.
    join(clocks.data(), others.data(), launch.proxy_fenced ? counts : std::min(threads, size));
    join(clocks.data() + counts, others.data() + counts, size - counts);
}

void to_scheduler() {
    if (!_setjmp(launch.current->place)) _longjmp(launch.scheduler, 1);
}

const char* place() {
    static char text[128];
    snprintf(text, sizeof text, "thread %d of block %u", launch.current->thread, launch.at.x);
    return text;
}

// A fiber runs its thread of one block after the other.
void run_fiber() {
    for (;;) {
        launch.call(launch.arguments);
        Fiber& self = *launch.current;
        if (self.open_stores.size() + self.stores.size()) fail("%s ends before its bulk stores", place());
        self.done = true;
        ++launch.progress;
        to_scheduler();
    }
}

// Runs a fiber until it waits or ends. Only its first start goes through ucontext.h, whose switches
// each make a system call.
void resume(Fiber& fiber) {
    launch.current = &fiber;
    if (!_setjmp(launch.scheduler)) {
        if (fiber.begun) _longjmp(fiber.place, 1);
        fiber.begun = true;
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = fiber.stack.get();
        context.uc_stack.ss_size = STACK;
        context.uc_link = nullptr;
        makecontext(&context, run_fiber, 0);
        setcontext(&context);
    }
    launch.current = nullptr;
}

void wait() {
    launch.current->waiting = true;
    to_scheduler();
}

// Everything that this thread does from now on comes after a new tick of its own clock.
void tick(Fiber& fiber) { ++fiber.clocks[fiber.thread]; }

// One more of `count` threads has come here; the last one calls `finish` and wakes those that wait.
// What they did before is visible to all of them afterwards only where the meeting is `ordered`.
template <typename F>
bool arrive(Rendezvous& r, int count, bool ordered, F finish) {
    ++launch.progress;
    if (ordered) {
        if (!r.arrived) r.clocks.assign(2 * launch.threads, 0);
        join(r.clocks, launch.current->clocks);
    }
    if (r.arrived + 1 < count) {
        ++r.arrived;
        return false;
    }
    finish();
    r.arrived = 0;
    if (ordered) r.met.swap(r.clocks);
    for (int thread : r.waiting) launch.fibers[thread].waiting = false;
    r.waiting.clear();
    return true;
}

// Waits until `count` threads have come here.
template <typename F>
void meet(Rendezvous& r, int count, bool ordered, F finish) {
    Fiber& self = *launch.current;
    if (!arrive(r, count, ordered, finish)) {
        r.waiting.push_back(self.thread);
        wait();
    }
    if (ordered) join(self.clocks, r.met);
    tick(self);
}

// ---- checks ----

void check_array(Array& array, uintptr_t address, size_t size, bool write) {
    const uint8_t* const state = array.state + (address - array.low);
    const Fiber& fiber = *launch.current;
    const uint8_t ready = VALID | WRITTEN | (fiber.waited ? PENDING : 0);
    if (!write && !array.changed() &&
        std::all_of(state, state + size, [&](uint8_t s) { return (s | (ready & PENDING)) == ready; }))
        return;
    const uint32_t first = launch.block_number * uint32_t(launch.threads) + 1, self = first + fiber.thread;
    if (write && !array.changed()) array.clocks.reset(new Clock[array.high - array.low]);
    // Whether nothing puts this thread's access after another one's write.
    const auto unordered = [&](size_t i) {
        const uint32_t writer = array.writer[i], threads = uint32_t(launch.threads);
        if (!writer || writer == self) return false;
        if (writer >= first && writer < first + threads) return array.clocks[i] > fiber.clocks[writer - first];
        const uint32_t block = (writer - 1) / threads, thread = (writer - 1) % threads;
        for (size_t known = 2 * threads; known < fiber.clocks.size(); ++known) {
            const Count& count = launch.counts[known - 2 * threads];
            if (fiber.clocks[known] && count.block == block && array.clocks[i] <= count.clocks[thread]) return false;
        }
        return true;
    };
    for (size_t i = address - array.low; i < address - array.low + size; ++i) {
        if (!(array.state[i] & VALID))
            fail("%s %s between the elements of an array", place(), write ? "writes" : "reads");
        if (array.state[i] & ~ready & PENDING)
            fail("%s does not wait for what another kernel writes", place());
        if (write) {
            if (unordered(i)) fail("%s writes what another thread wrote in the same launch", place());
            array.writer[i] = self;
            array.clocks[i] = fiber.clocks[fiber.thread];
            array.state[i] |= WRITTEN;
        } else {
            if (!(array.state[i] & WRITTEN))
                fail("%s reads global memory that nothing wrote", place());
            if (unordered(i)) fail("%s reads what another thread wrote in the same launch", place());
        }
    }
}

// Room for the reads of a cell, until the end of the block.
Clock* new_reads() {
    if (launch.used_reads == launch.reads.size()) launch.reads.emplace_back();
    std::vector<Clock>& reads = launch.reads[launch.used_reads++];
    reads.resize(launch.threads);
    return reads.data();
}

// Calls f(cell) for each cell of some bytes of shared memory.
template <typename F>
void for_cells(Shared& shared, uintptr_t address, size_t size, F f) {
    for (size_t first = address - shared.low, end = first + size; first < end;) {
        const size_t word = first / 4, begin = first % 4, stop = std::min<size_t>(4, end - word * 4);
        Cell& whole = shared.cells[word];
        if (whole.block != launch.all_blocks) {
            whole = Cell();
            whole.block = launch.all_blocks;
        }
        if (whole.parts < 0 && stop - begin == 4) {
            f(whole);
        } else {
            if (whole.parts < 0) {
                std::array<Cell, 4> bytes;
                bytes.fill(whole);
                for (Cell& cell : bytes) {
                    if (!whole.many) break;
                    cell.many = new_reads();
                    std::copy(whole.many, whole.many + launch.threads, cell.many);
                }
                whole.parts = int(shared.parts.size());
                shared.parts.push_back(bytes);
            }
            for (size_t i = begin; i < stop; ++i) f(shared.parts[whole.parts][i]);
        }
        first = word * 4 + stop;
    }
}

void add_read(Cell& cell, const Fiber& self) {
    const Clock now = self.clocks[self.thread];
    if (cell.reads != Cell::MANY) {
        // What comes after this read comes after those before it as well.
        int count = 0;
        for (int i = 0; i < cell.reads; ++i)
            if (cell.few[i].clock > self.clocks[cell.few[i].thread]) cell.few[count++] = cell.few[i];
        if (count < Cell::FEW) {
            cell.few[count] = {self.thread, now};
            cell.reads = int8_t(count + 1);
            return;
        }
        if (!cell.many) cell.many = new_reads();
        std::fill(cell.many, cell.many + launch.threads, 0);
        for (const Read& read : cell.few) cell.many[read.thread] = read.clock;
        cell.reads = Cell::MANY;
    }
    cell.many[self.thread] = now;
}

// A thread that read a cell, where nothing puts an order between that and what `self` does now; or -1.
int unordered_reader(const Cell& cell, const Fiber& self) {
    if (cell.reads == Cell::MANY) {
        if (!any_later(cell.many, self.clocks.data(), launch.threads)) return -1;
        for (int t = 0;; ++t)
            if (cell.many[t] > self.clocks[t]) return t;
    }
    for (int i = 0; i < cell.reads; ++i)
        if (cell.few[i].clock > self.clocks[cell.few[i].thread]) return cell.few[i].thread;
    return -1;
}

void check_shared(Shared& shared, uintptr_t address, size_t size, bool write) {
    const Fiber& self = *launch.current;
    for_cells(shared, address, size, [&](Cell& cell) {
        if (cell.writer >= 0 && cell.write_clock > self.clocks[cell.writer])
            fail("race: %s %s shared memory that thread %d wrote, and nothing puts an order", place(),
                 write ? "writes" : "reads", cell.writer);
        if (!write) {
            if (!cell.written) fail("%s reads shared memory that nothing wrote", place());
            add_read(cell, self);
            return;
        }
        const int reader = unordered_reader(cell, self);
        if (reader >= 0)
            fail("race: %s writes shared memory that thread %d read, and nothing puts an order", place(),
                 reader);
        cell.written = true;
        cell.asynchronous = false;
        cell.writer = self.thread;
        cell.write_clock = self.clocks[self.thread];
        cell.reads = 0;
    });
}

#define TOUCHED "the accumulators of a product were touched before the wait for it"

// Checks an access to memory that is not the thread's own.
__attribute__((noinline)) void check_memory(uintptr_t address, size_t size, bool write) {
    const uintptr_t end = address + size;
    for (Shared& shared : launch.shared)
        if (address >= shared.low && end <= shared.high) return check_shared(shared, address, size, write);
    bool touches = false;
    for (Array& array : launch.arrays) {
        if (address >= array.low && end <= array.high) {
            // There may be two views into one buffer: the access belongs to the view that has these elements.
            touches = true;
            if (array.state[address - array.low] & VALID) return check_array(array, address, size, write);
        }
    }
    if (touches) fail("%s %s between the elements of an array", place(), write ? "writes" : "reads");
    if (!write && address >= launch.image_low && end <= launch.image_high) return;  // constants
    fail("%s %s %zu bytes out of bounds, at %#zx", place(), write ? "writes" : "reads", size,
         size_t(address));
}

// Short, as most accesses are to a thread's own memory.
inline void check(uintptr_t address, size_t size, bool write) {
    if (!launch.current) return;
    const uintptr_t own = address - uintptr_t(launch.current->stack.get());
    if (own > STACK - size) return check_memory(address, size, write);
    for (const Range& range : launch.current->accumulators)
        if (address < range.high && address + size > range.low) fail(TOUCHED);
}

void start_block(std::mt19937& random) {
    std::fill(launch.dynamic.begin(), launch.dynamic.end(), 0xff);
    memset(reinterpret_cast<void*>(launch.shared[0].low), 0xff, launch.shared[0].high - launch.shared[0].low);
    launch.barrier = Rendezvous();
    launch.warps.assign((launch.threads + WARP - 1) / WARP, {});
    launch.warpgroups.assign((launch.threads + WARPGROUP - 1) / WARPGROUP, Warpgroup());
    launch.named.clear();
    launch.mbarriers.clear();
    launch.atomics.clear();
    launch.sum = 0;
    launch.proxy_fenced = false;
    for (Shared& shared : launch.shared) shared.parts.clear();
    launch.used_reads = 0;
    for (int t = 0; t < launch.threads; ++t) {
        Fiber& fiber = launch.fibers[t];
        fiber.thread = t;
        fiber.done = fiber.waiting = fiber.waited = false;
        fiber.clocks.assign(2 * launch.threads, 0);
        fiber.clocks[t] = 1;
        fiber.open_copies.clear();
        fiber.copies.clear();
        fiber.open_stores.clear();
        fiber.stores.clear();
        fiber.accumulators.clear();
    }
    std::vector<int> ready;
    for (;;) {
        ready.clear();
        int done = 0;
        for (int t = 0; t < launch.threads; ++t) {
            const Fiber& fiber = launch.fibers[t];
            done += fiber.done;
            if (!fiber.done && !fiber.waiting) ready.push_back(t);
        }
        if (done == launch.threads) {
            for (const auto& barrier : launch.mbarriers) {
                if (barrier.second.copies.empty()) continue;
                snprintf(launch.error, sizeof launch.error, "block %u ends before copies to its shared memory",
                         launch.at.x);
                launch.failed = true;
            }
            return;
        }
        std::shuffle(ready.begin(), ready.end(), random);
        const uint64_t progress = launch.progress;
        for (int t : ready) {
            resume(launch.fibers[t]);
            if (launch.failed) return;
        }
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
    meet(r, launch.threads, true, [] {
        launch.last_sum = launch.sum;
        launch.sum = 0;
    });
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
    emulator::launch.arrays.push_back({low, low + size, state, writer, nullptr});
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
    launch.counts.clear();
    launch.counted.clear();
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
        if (shared.cells.size() < words) shared.cells.resize(words);
    }
    if (launch.fibers.size() < block) launch.fibers = std::vector<Fiber>(block);
    std::mt19937 random(seed);
    for (unsigned b = 0; b < grid && !launch.failed; ++b) {
        launch.at = {b, 0, 0};
        launch.block_number = b;
        ++launch.all_blocks;
        start_block(random);
    }
    // Fibers of a failed launch stopped halfway: they begin anew.
    if (launch.failed)
        for (Fiber& fiber : launch.fibers) fiber.begun = false;
    return launch.failed ? launch.error : nullptr;
}
