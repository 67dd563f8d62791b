// Shadow memory: who touched a cell, and whether that is ordered with who touches it now. A cell is a byte of shared memory or an element
// of a buffer.
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

// What can be pointed into: a parameter or an array in shared memory. `cells` are those of its first element on, null for what needs none.
struct Region {
    const char* name;
    char* base;
    int64_t bytes;
    Cell* cells;
    int bytes_per_cell;
    int element_bytes;
    bool shared;   // visible to one block, and gone after it
    bool unset;    // nobody has given it values before the kernels write them
    bool constant; // no kernel of this launch writes it
};

static const char* space_of(const Region& r) { return r.shared ? "shared " : ""; }

[[noreturn]] static __attribute__((noinline)) void race(const Region& r, int64_t cell, const char* did, const char* other_did, int other) {
    fault("race: %s %s%s[%lld], which thread %d %s, with no barrier between", did, space_of(r), r.name,
          (long long)(cell * r.bytes_per_cell / r.element_bytes), other, other_did);
}

[[noreturn]] static __attribute__((noinline)) void race_of_blocks(const Region& r, int64_t cell, const char* did, const char* other_did) {
    fault("race: %s %s[%lld], which another block %s in the same launch", did, r.name,
          (long long)(cell * r.bytes_per_cell / r.element_bytes), other_did);
}

[[noreturn]] static __attribute__((noinline)) void under_way(const Region& r, int64_t cell, const char* did, int other) {
    fault("%s %s%s[%lld] while a copy into it is under way, begun by thread %d, which has not waited for it", did, space_of(r), r.name,
          (long long)(cell * r.bytes_per_cell / r.element_bytes), other);
}

[[noreturn]] static __attribute__((noinline)) void never_written(const Region& r, int64_t cell) {
    fault("reads %s%s[%lld], which nobody has written", space_of(r), r.name, (long long)(cell * r.bytes_per_cell / r.element_bytes));
}

// Checks that the latest write is ordered before what the running thread does to the cell now.
static inline void after_write(const Region& r, int64_t i, const Cell& c, const char* did) {
    if (c.in_flight) under_way(r, i, did, c.writer);
    if (c.write_epoch < epoch_of_launch) return;
    if (c.write_epoch < epoch_of_block) {
        if (!r.shared) race_of_blocks(r, i, did, "writes");
        return;
    }
    if (c.write_epoch < epoch || c.writer == running->number) return;
    if (c.writer / warp_size == running->warp && c.write_step < warp_steps[running->warp]) return;
    race(r, i, did, "writes", c.writer);
}

static inline void after_reads(const Region& r, int64_t i, const Cell& c) {
    if (!r.shared && c.foreign_epoch >= epoch_of_launch) race_of_blocks(r, i, "writes", "reads");
    if (c.read_epoch < epoch_of_launch) return;
    if (c.read_epoch < epoch_of_block) {
        if (!r.shared) race_of_blocks(r, i, "writes", "reads");
        return;
    }
    if (c.read_epoch < epoch) return;
    int other = (int)c.read_warp * warp_size + __builtin_ctz(c.read_lanes | 0x80000000u);
    if ((int)c.read_warp != running->warp || c.other_epoch == epoch) race(r, i, "writes", "reads", other);
    uint32_t others = c.read_lanes & ~(1u << running->lane);
    if (c.read_step == warp_steps[running->warp] && others) race(r, i, "writes", "reads", running->warp * warp_size + __builtin_ctz(others));
}

static inline void note_read(const Region& r, int64_t i) {
    Cell& c = r.cells[i];
    after_write(r, i, c, "reads");
    if (r.unset && c.write_epoch < (r.shared ? epoch_of_block : 1u)) never_written(r, i);
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

static inline void note_write(const Region& r, int64_t i) {
    Cell& c = r.cells[i];
    after_write(r, i, c, "writes");
    after_reads(r, i, c);
    set_writer(c);
}

} // namespace tl_emulator
