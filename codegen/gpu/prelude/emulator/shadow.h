// Shadow memory: who touched a cell, and whether that is ordered with who touches it now. A cell is an element of a buffer; in shared
// memory it is a word of four bytes, or one byte of a word that has been touched in parts.
//
// Barriers of the block number the time of all blocks and launches (`epoch`), barriers of a warp the time of a warp between two of these
// (`warp_steps`). Two accesses of different threads are ordered when they lie in different epochs of one block or different launches, or
// in different steps of one warp. If they are not, and one of them writes, it is a race; it does not have to go wrong in this run.
//
// Kernels that order threads by other means have clocks instead (clocks.h): within a block, or a cluster, the steps are times, and all
// reads since the latest write are listed.

namespace tl_emulator {

struct Cell {
    uint32_t write_epoch; // 0: never written
    uint32_t write_step;  // with clocks: the time of the writer
    uint16_t writer;      // with clocks: an agent
    uint16_t in_flight;   // a copy into it is under way
    // The latest reads: by lanes of one warp in one step. If other warps have read in the same epoch, other_epoch says so; if other blocks
    // have in the same launch, so does foreign_epoch. With clocks, read_step is where the list of reads begins.
    uint32_t read_epoch, read_step, read_warp;
    Lanes read_lanes;
    uint32_t other_epoch, foreign_epoch;
};

inline uint32_t epoch = 1, epoch_of_block = 1, epoch_of_launch = 1;

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

TL_ONCE const char* space_of(const Region& r) { return r.shared ? "shared " : ""; }
TL_ONCE long long element_of(const Region& r, const char* at) { return (long long)((at - r.base) / r.element_bytes); }

// Who an agent is: a thread of this block, of another one, or something that a thread has begun.
TL_ONCE const char* name_of_agent(int agent) {
    static char text[2][80];
    static int turn_of_text;
    char* name = text[turn_of_text ^= 1];
    const char* what = "";
    if (agent >= thread_count) what = beside[agent - thread_count].what, agent = beside[agent - thread_count].thread;
    const Thread& t = threads[agent];
    const char* of = t.block == running->block ? "" : " of another block";
    if (*what) snprintf(name, sizeof *text, "%s of thread %d%s", what, t.in_block, of);
    else snprintf(name, sizeof *text, "thread %d%s", t.in_block, of);
    return name;
}

[[noreturn]] TL_ONCE __attribute__((noinline)) void race(const Region& r, const char* at, const char* did, const char* other_did, int other) {
    fault("race: %s %s%s[%lld], which %s %s, with no barrier between", did, space_of(r), r.name, element_of(r, at), name_of_agent(other),
          other_did);
}

[[noreturn]] TL_ONCE __attribute__((noinline)) void race_of_blocks(const Region& r, const char* at, const char* did, const char* other_did) {
    fault("race: %s %s[%lld], which another block %s in the same launch", did, r.name, element_of(r, at), other_did);
}

[[noreturn]] TL_ONCE __attribute__((noinline)) void under_way(const Region& r, const char* at, const char* did, int other) {
    fault("%s %s%s[%lld] while a copy into it is under way, begun by %s, which has not waited for it", did, space_of(r), r.name,
          element_of(r, at), name_of_agent(other));
}

[[noreturn]] TL_ONCE __attribute__((noinline)) void never_written(const Region& r, const char* at) {
    fault("reads %s%s[%lld], which nobody has written", space_of(r), r.name, element_of(r, at));
}

// Checks that the latest write is ordered before what the running thread does to the cell now.
TL_ONCE void after_write(const Region& r, const char* at, const Cell& c, const char* did) {
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

TL_ONCE void after_reads(const Region& r, const char* at, const Cell& c) {
    if (!r.shared && c.foreign_epoch >= epoch_of_launch) race_of_blocks(r, at, "writes", "reads");
    if (c.read_epoch < epoch_of_launch) return;
    if (c.read_epoch < epoch_of_block) {
        if (!r.shared) race_of_blocks(r, at, "writes", "reads");
        return;
    }
    if (c.read_epoch < epoch) return;
    int other = (int)c.read_warp * warp_size + first_lane(c.read_lanes | (Lanes)1 << (warp_size - 1));
    if ((int)c.read_warp != running->warp || c.other_epoch == epoch) race(r, at, "writes", "reads", other);
    Lanes others = c.read_lanes & ~((Lanes)1 << running->lane);
    if (c.read_step == warp_steps[running->warp] && others) race(r, at, "writes", "reads", running->warp * warp_size + first_lane(others));
}

// ---------------------------------------------------------------- with clocks

// Returns a copy of what is known of a word, for one of its bytes.
TL_ONCE Cell copy_of(const Cell& c) {
    Cell copy = c;
    if (clocks && c.read_epoch == epoch) copy.read_step = (uint32_t)copy_reads((int)c.read_step);
    return copy;
}

TL_ONCE void seen_write(const Region& r, const char* at, const Cell& c, const Actor& a, const char* did) {
    if (c.in_flight) under_way(r, at, did, c.writer);
    if (c.write_epoch < epoch_of_launch) return;
    if (c.write_epoch < epoch_of_block) {
        if (!r.shared) race_of_blocks(r, at, did, "writes");
        return;
    }
    if (a.sight.seen[c.writer] < c.write_step) race(r, at, did, "writes", c.writer);
    if (a.beside && c.writer < thread_count && a.sight.fenced[c.writer] < c.write_step)
        fault("%s %s%s[%lld] asynchronously, which thread %d writes, with no tl_async_fence between", did, space_of(r), r.name,
              element_of(r, at), threads[c.writer].in_block);
}

TL_ONCE void note_read_by(const Actor& a, const Region& r, const char* at, Cell& c, const char* did) {
    seen_write(r, at, c, a, did);
    if (r.unset && c.write_epoch < (r.shared ? epoch_of_block : 1u)) never_written(r, at);
    if (r.constant) return;
    if (c.read_epoch != epoch) {
        if (c.read_epoch >= epoch_of_launch) c.foreign_epoch = c.read_epoch;
        c.read_epoch = epoch, c.read_step = (uint32_t)-1;
    }
    c.read_step = (uint32_t)with_read((int)c.read_step, a);
}

TL_ONCE void note_write_by(const Actor& a, const Region& r, const char* at, Cell& c, const char* did) {
    seen_write(r, at, c, a, did);
    if (!r.shared && c.foreign_epoch >= epoch_of_launch) race_of_blocks(r, at, did, "reads");
    if (c.read_epoch == epoch) {
        int other = unseen_reader((int)c.read_step, a);
        if (other >= 0) race(r, at, did, "reads", other);
        free_reads((int)c.read_step);
        c.read_step = (uint32_t)-1;
    } else if (!r.shared && c.read_epoch >= epoch_of_launch)
        race_of_blocks(r, at, did, "reads");
    c.write_epoch = epoch, c.write_step = a.time, c.writer = (uint16_t)a.agent;
}

// ---------------------------------------------------------------- either way

TL_ONCE void note_read(const Region& r, const char* at, Cell& c) {
    if (clocks) return note_read_by(running_thread(), r, at, c, "reads");
    after_write(r, at, c, "reads");
    if (r.unset && c.write_epoch < (r.shared ? epoch_of_block : 1u)) never_written(r, at);
    if (r.constant) return;
    uint32_t step = warp_steps[running->warp];
    Lanes lane = (Lanes)1 << running->lane;
    if (c.read_epoch == epoch && (int)c.read_warp == running->warp) {
        c.read_lanes = c.read_step == step ? c.read_lanes | lane : lane;
        c.read_step = step;
        return;
    }
    if (c.read_epoch == epoch) c.other_epoch = epoch;
    else if (c.read_epoch < epoch_of_block) c.foreign_epoch = c.read_epoch;
    c.read_epoch = epoch, c.read_step = step, c.read_lanes = lane, c.read_warp = (uint32_t)running->warp;
}

TL_ONCE void set_writer(Cell& c) {
    c.write_epoch = epoch, c.writer = (uint16_t)running->number;
    c.write_step = clocks ? running_thread().time : warp_steps[running->warp];
}

TL_ONCE void note_write(const Region& r, const char* at, Cell& c) {
    if (clocks) return note_write_by(running_thread(), r, at, c, "writes");
    after_write(r, at, c, "writes");
    after_reads(r, at, c);
    set_writer(c);
}

} // namespace tl_emulator
