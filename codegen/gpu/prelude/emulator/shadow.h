// Shadow memory: who touched a cell, and whether that is ordered with who touches it now. A cell is an element of a buffer; in shared
// memory it is a word of four bytes, or one byte of a word that has been touched in parts.
//
// Barriers of the block number the time of all blocks and launches (`epoch`), barriers of a warp the time of a warp between two of these
// (`warp_steps`). Two accesses of different threads are ordered when they lie in different epochs of one block or different launches, or
// in different steps of one warp. If they are not, and one of them writes, it is a race; it does not have to go wrong in this run.

namespace tl_emulator {

struct Cell {
    uint32_t write_epoch; // 0: never written
    uint32_t write_step;
    uint16_t writer;
    uint16_t in_flight; // a copy into it is under way
    // The latest reads: by lanes of one warp in one step. If other warps have read in the same epoch, other_epoch says so; if other blocks
    // have in the same launch, so does foreign_epoch.
    uint32_t read_epoch, read_step, read_lanes;
    uint32_t read_warp;
    uint32_t other_epoch, foreign_epoch;
};

static uint32_t epoch = 1, epoch_of_block = 1, epoch_of_launch = 1;

// What can be pointed into: a parameter, or an array in shared memory. `cells` has one per element of a parameter; null for what needs none.
struct Region {
    const char* name;
    char* base;
    int64_t bytes;
    Cell* cells;
    int element_bytes;
    bool shared;   // visible to one block, and gone after it
    bool unset;    // nobody has given it values before the kernels write them
    bool constant; // no kernel of this launch writes it
};

static const char* space_of(const Region& r) { return r.shared ? "shared " : ""; }
static long long element_of(const Region& r, const char* at) { return (long long)((at - r.base) / r.element_bytes); }

[[noreturn]] static __attribute__((noinline)) void race(const Region& r, const char* at, const char* did, const char* other_did, int other) {
    fault("race: %s %s%s[%lld], which thread %d %s, with no barrier between", did, space_of(r), r.name, element_of(r, at), other, other_did);
}

[[noreturn]] static __attribute__((noinline)) void race_of_blocks(const Region& r, const char* at, const char* did, const char* other_did) {
    fault("race: %s %s[%lld], which another block %s in the same launch", did, r.name, element_of(r, at), other_did);
}

[[noreturn]] static __attribute__((noinline)) void under_way(const Region& r, const char* at, const char* did, int other) {
    fault("%s %s%s[%lld] while a copy into it is under way, begun by thread %d, which has not waited for it", did, space_of(r), r.name,
          element_of(r, at), other);
}

[[noreturn]] static __attribute__((noinline)) void never_written(const Region& r, const char* at) {
    fault("reads %s%s[%lld], which nobody has written", space_of(r), r.name, element_of(r, at));
}

// Checks that the latest write is ordered before what the running thread does to the cell now.
static inline void after_write(const Region& r, const char* at, const Cell& c, const char* did) {
    if (c.in_flight) under_way(r, at, did, c.writer);
    if (c.write_epoch < epoch_of_launch) return;
    if (c.write_epoch < epoch_of_block) {
        if (!r.shared) race_of_blocks(r, at, did, "writes");
        return;
    }
    if (c.write_epoch < epoch || c.writer == running->number) return;
    if (c.writer / warp_size == running->warp && c.write_step < warp_steps[running->warp]) return;
    race(r, at, did, "writes", c.writer);
}

static inline void after_reads(const Region& r, const char* at, const Cell& c) {
    if (!r.shared && c.foreign_epoch >= epoch_of_launch) race_of_blocks(r, at, "writes", "reads");
    if (c.read_epoch < epoch_of_launch) return;
    if (c.read_epoch < epoch_of_block) {
        if (!r.shared) race_of_blocks(r, at, "writes", "reads");
        return;
    }
    if (c.read_epoch < epoch) return;
    int other = (int)c.read_warp * warp_size + __builtin_ctz(c.read_lanes | 0x80000000u);
    if ((int)c.read_warp != running->warp || c.other_epoch == epoch) race(r, at, "writes", "reads", other);
    uint32_t others = c.read_lanes & ~(1u << running->lane);
    if (c.read_step == warp_steps[running->warp] && others) race(r, at, "writes", "reads", running->warp * warp_size + __builtin_ctz(others));
}

static inline void note_read(const Region& r, const char* at, Cell& c) {
    after_write(r, at, c, "reads");
    if (r.unset && c.write_epoch < (r.shared ? epoch_of_block : 1u)) never_written(r, at);
    if (r.constant) return;
    uint32_t step = warp_steps[running->warp], lane = 1u << running->lane;
    if (c.read_epoch == epoch && (int)c.read_warp == running->warp) {
        c.read_lanes = c.read_step == step ? c.read_lanes | lane : lane;
        c.read_step = step;
        return;
    }
    if (c.read_epoch == epoch) c.other_epoch = epoch;
    else if (c.read_epoch < epoch_of_block) c.foreign_epoch = c.read_epoch;
    c.read_epoch = epoch, c.read_step = step, c.read_lanes = lane, c.read_warp = (uint32_t)running->warp;
}

static inline void set_writer(Cell& c) {
    c.write_epoch = epoch, c.write_step = warp_steps[running->warp], c.writer = (uint16_t)running->number;
}

static inline void note_write(const Region& r, const char* at, Cell& c) {
    after_write(r, at, c, "writes");
    after_reads(r, at, c);
    set_writer(c);
}

} // namespace tl_emulator
