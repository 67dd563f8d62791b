// Barriers in shared memory, barriers of some of the threads, of the blocks of a cluster, and fences. `cuda/prelude/barriers.h` says what the
// names mean.

namespace tl_emulator {

const int most_mbarriers = 512;

struct MbarrierState {
    Mbarrier barrier;
    uint32_t landed; // the last phase in which a bulk copy has landed, counted from 1; 0: none has
    int gathering, released; // rows of clocks.h: what those who arrived in this phase, and in all before, have seen
};
inline MbarrierState mbarriers[most_mbarriers];
inline int mbarrier_count;

const int named_barriers = 16;
struct NamedBarrier {
    int members, arrived, seen, passed; // rows of clocks.h
    uint64_t generation;
    Meeting meeting;
};
inline NamedBarrier named[most_blocks][named_barriers];
inline Meeting whole_cluster;
inline uint32_t reached_from_elsewhere[most_blocks][most_threads]; // the last time at which each thread of another block did

TL_ONCE void begin_barriers() {
    mbarrier_count = 0;
    memset(named, 0, sizeof named);
    if (block_count > 1) memset(reached_from_elsewhere, 0, sizeof reached_from_elsewhere);
    whole_cluster = Meeting{thread_count, 0, 0, 0, "", 0};
}

TL_ONCE void needs_clocks(const char* what) {
    if (!clocks) fault("%s in a kernel that is not said to use it", what);
}

TL_ONCE MbarrierState& mbarrier_at(const Address& b, const char* did, int line) {
    if (!in_arena(b.at)) fault("%s of line %d: a barrier that is not in shared memory", did, line);
    if ((b.at - arena) % 8) fault("%s of line %d: a barrier at an address that is no multiple of 8", did, line);
    checked(b.region, b.at, 8, 8, "uses");
    for (int i = 0; i < mbarrier_count; ++i) {
        MbarrierState& m = mbarriers[i];
        if (m.barrier.at != b.at) continue;
        Actor a = running_thread();
        each_cell(b.at, 8, false, [&](const char* p, Cell& c) { seen_write(*b.region, p, c, a, "uses"); });
        return m;
    }
    int index;
    const char* name = name_of(b.at, &index);
    fault("%s of line %d: shared %s[%d] is no barrier yet", did, line, name, index);
}

TL_ONCE void mbarrier_init(Address b, int arrivals, int line) {
    needs_clocks("tl_mbarrier_init");
    if (!in_arena(b.at)) fault("tl_mbarrier_init of line %d: a barrier that is not in shared memory", line);
    if (arrivals < 1) fault("tl_mbarrier_init of line %d: a barrier of %d arrivals", line, arrivals);
    watch_write(b.region, b.at, 8, 8);
    int i = 0;
    while (i < mbarrier_count && mbarriers[i].barrier.at != b.at) ++i;
    if (i == most_mbarriers) fault("not supported yet: more than %d barriers in shared memory", most_mbarriers);
    if (i == mbarrier_count) {
        ++mbarrier_count;
        mbarriers[i].gathering = new_sight(), mbarriers[i].released = new_sight();
        mbarriers[i].barrier.agent = new_agent("a bulk copy", running->number);
    }
    Mbarrier& m = mbarriers[i].barrier;
    mbarriers[i].landed = 0;
    m.at = b.at, m.arrivals = m.pending = arrivals, m.bytes = 0, m.phase = 0;
}

// Ends the phase if nothing is missing any more.
TL_ONCE void settle(MbarrierState& m) {
    if (m.barrier.pending || m.barrier.bytes) return;
    for (int i = 0; i < thread_count; ++i) {
        const Thread& t = threads[i];
        if (t.waits_for != &m.barrier || !completed(m.barrier, t.waits_parity)) continue;
        int index;
        const char* name = name_of(m.barrier.at, &index);
        fault("completes phase %u of shared %s[%d] while thread %d still waits for phase %u in line %d", m.barrier.phase, name, index,
              t.in_block, t.waits_phase, t.waits_line);
    }
    Sight gathered = sight(m.gathering);
    uint32_t time = m.barrier.phase + 1; // of what bulk copies have done in this phase
    if (gathered.seen[m.barrier.agent] < time) gathered.seen[m.barrier.agent] = time;
    take(sight(m.released), gathered);
    m.barrier.pending = m.barrier.arrivals;
    m.barrier.phase++;
}

TL_ONCE void arrive(MbarrierState& m, const char* did, int line) {
    if (!m.barrier.pending) {
        int index;
        const char* name = name_of(m.barrier.at, &index);
        fault("%s of line %d: arrives at shared %s[%d], which has had all %d arrivals of its phase %u", did, line, name, index,
              m.barrier.arrivals, m.barrier.phase);
    }
    release(*running, sight(m.gathering));
    --m.barrier.pending;
    settle(m);
}

TL_ONCE void mbarrier_arrive(Address b, int line) { arrive(mbarrier_at(b, "tl_mbarrier_arrive", line), "tl_mbarrier_arrive", line); }

// At the same place in another block of the cluster.
TL_ONCE void mbarrier_arrive_at(Address b, int block, int line) {
    if (block < 0 || block >= block_count) fault("tl_mbarrier_arrive_at of line %d: there is no block %d in the cluster", line, block);
    if (!in_arena(b.at)) fault("tl_mbarrier_arrive_at of line %d: a barrier that is not in shared memory", line);
    char* at = b.at + (int64_t)(block - running->block) * arena_stride;
    if (whole_blocks[block].left == threads_of_block)
        fault("tl_mbarrier_arrive_at of line %d: the threads of block %d of the cluster have left", line, block);
    Address there((const void*)at);
    reached_from_elsewhere[block][running->number] = block == running->block ? 0 : running_thread().time;
    arrive(mbarrier_at(there, "tl_mbarrier_arrive_at", line), "tl_mbarrier_arrive_at", line);
}

TL_ONCE void mbarrier_expect(Address b, int64_t bytes, int line) {
    MbarrierState& m = mbarrier_at(b, "tl_mbarrier_expect", line);
    if (bytes < 0 || bytes >= 1 << 20) fault("tl_mbarrier_expect of line %d: %lld bytes", line, (long long)bytes);
    m.barrier.bytes += bytes;
    arrive(m, "tl_mbarrier_expect", line);
}

TL_ONCE void mbarrier_wait(Address b, uint32_t parity, int line) {
    MbarrierState& m = mbarrier_at(b, "tl_mbarrier_wait", line);
    if (!completed(m.barrier, parity)) {
        running->waits_for = &m.barrier, running->waits_parity = parity, running->waits_line = line;
        running->waits_phase = m.barrier.phase;
        give_way();
        running->waits_for = nullptr;
    }
    take(sight_of(*running), sight(m.released));
}

// ---------------------------------------------------------------- barriers of some threads

// Counts an arrival; true for the last one, after which everybody has seen what all had.
TL_ONCE bool count_in(NamedBarrier& b, int number, int members, const char* what, int line) {
    needs_clocks(what);
    if (number < 1 || number >= named_barriers) fault("%s of line %d: there is no barrier %d", what, line, number);
    if (members < warp_size || members % warp_size || members > threads_of_block) fault("%s of line %d: %d threads", what, line, members);
    if (!b.seen) b.seen = new_sight(), b.passed = new_sight();
    if (b.arrived && b.members != members)
        fault("%s of line %d: comes with %d threads to barrier %d, where others wait for %d", what, line, members, number, b.members);
    b.members = members;
    release(*running, sight(b.seen));
    if (++b.arrived < members) return false;
    b.arrived = 0;
    copy_sight(sight(b.passed), sight(b.seen));
    forget(sight(b.seen));
    return true;
}

TL_ONCE void named_barrier(int number, int members, int line) {
    NamedBarrier& b = named[running->block][number & (named_barriers - 1)];
    bool last = count_in(b, number, members, "tl_named_barrier", line);
    b.meeting.what = "tl_named_barrier", b.meeting.line = line;
    if (last) b.meeting.generation++;
    else {
        running->waits_in = &b.meeting;
        running->waits_since = b.meeting.generation;
        give_way();
        running->waits_in = nullptr;
    }
    take(sight_of(*running), sight(b.passed));
}

TL_ONCE void named_barrier_arrive(int number, int members, int line) {
    NamedBarrier& b = named[running->block][number & (named_barriers - 1)];
    if (count_in(b, number, members, "tl_named_barrier_arrive", line)) b.meeting.generation++;
}

TL_ONCE void cluster_barrier(int line) {
    needs_clocks("tl_cluster_barrier");
    if (meet(whole_cluster, "tl_cluster_barrier", line)) share_clocks(0, thread_count);
}

TL_ONCE void async_fence() {
    needs_clocks("tl_async_fence");
    fence_of(*running);
}

// The last thread of a block leaves: what others do to its shared memory must lie before.
TL_ONCE void leave_cluster() {
    leave(whole_cluster);
    int block = running->block, first = block * threads_of_block;
    if (block_count == 1 || whole_blocks[block].left < threads_of_block) return;
    for (int i = 0; i < thread_count; ++i) {
        uint32_t time = reached_from_elsewhere[block][i];
        bool seen = !time;
        for (int t = first; t < first + threads_of_block && !seen; ++t) seen = sight_of(threads[t]).seen[i] >= time;
        if (!seen) fault("leaves, and thread %d of another block may reach its shared memory later", threads[i].in_block);
    }
}

TL_ONCE void set_registers(int count, const char* what, int line) {
    if (count < 24 || count > 256 || count % 8) fault("%s of line %d: %d registers", what, line, count);
    meet(warps[running->warp], what, line);
}

} // namespace tl_emulator

#define tl_mbarrier_init(b, arrivals) tl_emulator::mbarrier_init(b, arrivals, __LINE__)
#define tl_mbarrier_init_fence() tl_emulator::async_fence()
#define tl_mbarrier_arrive(b) tl_emulator::mbarrier_arrive(b, __LINE__)
#define tl_mbarrier_arrive_at(b, block) tl_emulator::mbarrier_arrive_at(b, block, __LINE__)
#define tl_mbarrier_expect(b, bytes) tl_emulator::mbarrier_expect(b, bytes, __LINE__)
#define tl_mbarrier_wait(b, parity) tl_emulator::mbarrier_wait(b, parity, __LINE__)
#define tl_named_barrier(number, threads) tl_emulator::named_barrier(number, threads, __LINE__)
#define tl_named_barrier_arrive(number, threads) tl_emulator::named_barrier_arrive(number, threads, __LINE__)
#define tl_cluster_barrier() tl_emulator::cluster_barrier(__LINE__)
#define tl_async_fence() tl_emulator::async_fence()
#define TL_MORE_REGISTERS(n) tl_emulator::set_registers(n, "TL_MORE_REGISTERS", __LINE__)
#define TL_FEWER_REGISTERS(n) tl_emulator::set_registers(n, "TL_FEWER_REGISTERS", __LINE__)
TL_FUNCTION int tl_cluster_rank() { return tl_emulator::running->block; }
