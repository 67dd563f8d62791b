// Boxes of tensors copied in bulk, between global and shared memory. `cuda/prelude/bulk.h` says what the names mean.

struct tl_tensor_map {
    tl_emulator::Region* region; // of the buffer
    const char* base;
    int32_t element_bytes, rank, swizzle; // swizzle: 0, 32, 64 or 128 bytes
    int32_t box[5];      // innermost first, as the others
    int64_t extents[5];
    int64_t strides[5];  // bytes
};

namespace tl_emulator {

struct Coordinates {
    int32_t at[5];
};

struct BulkCopy {
    tl_tensor_map map;
    Coordinates from;
    char* to;          // a load: in the first of its blocks
    Mbarrier* barriers[most_blocks];
    int64_t shifts[most_blocks]; // of each block's memory from `to`
    int targets;
    int agent; // a store: whose reads these are
    uint32_t time;
};

inline BulkCopy* loads;
inline int loads_under_way, loads_capacity;

struct Stores {
    BulkCopy copies[64];
    uint32_t groups[64];
    int count;
    uint32_t committed; // groups
    int agent;          // 0: none yet
};
inline Stores* stores_of_threads[most_threads];

TL_ONCE void begin_bulk() {
    loads_under_way = 0;
    for (int i = 0; i < most_threads; ++i)
        if (stores_of_threads[i]) stores_of_threads[i]->count = 0, stores_of_threads[i]->committed = 0, stores_of_threads[i]->agent = 0;
}

// Where a byte of shared memory lies when the sixteens in rows of `swizzle` bytes are exchanged: as many bits of the address from the
// seventh on as tell them apart are added to those from the fourth on, without carry. 0 leaves everything where it is.
TL_ONCE char* swizzled(char* at, int swizzle) {
    int64_t address = (at - arena) % arena_stride;
    return at - address + (address ^ (swizzle ? address >> 3 & (swizzle - 1) & ~15 : 0));
}

TL_ONCE int64_t box_bytes(const tl_tensor_map& m) {
    int64_t bytes = m.element_bytes;
    for (int d = 0; d < m.rank; ++d) bytes *= m.box[d];
    return bytes;
}

// Calls f(byte of the box, address in global memory or null) for each run of sixteen bytes of the box.
template <class F> static void each_run(const tl_tensor_map& m, const Coordinates& from, F f) {
    int64_t total = box_bytes(m), done = 0;
    int per_run = 16 / m.element_bytes;
    int32_t place[5] = {};
    while (done < total) {
        const char* at = m.base;
        bool row_inside = true;
        for (int d = 1; d < m.rank; ++d) {
            int64_t i = (int64_t)from.at[d] + place[d];
            row_inside &= i >= 0 && i < m.extents[d];
            at += i * m.strides[d];
        }
        for (int e = 0; e < per_run; ++e) {
            int64_t i = (int64_t)from.at[0] + place[0] + e;
            bool inside = row_inside && i >= 0 && i < m.extents[0];
            f(done + e * m.element_bytes, inside ? at + i * m.element_bytes : nullptr);
        }
        done += 16;
        place[0] += per_run;
        for (int d = 0; d + 1 < m.rank && place[d] >= m.box[d]; ++d) place[d] = 0, ++place[d + 1];
    }
}

TL_ONCE void land(int i) {
    BulkCopy c = loads[i];
    loads[i] = loads[--loads_under_way];
    for (int b = 0; b < c.targets; ++b) {
        char* to = c.to + c.shifts[b];
        each_run(c.map, c.from, [&](int64_t byte, const char* from) {
            char* place = swizzled(to + byte, c.map.swizzle);
            if (from) memcpy(place, from, c.map.element_bytes);
            else memset(place, 0, c.map.element_bytes);
        });
        MbarrierState* m = (MbarrierState*)c.barriers[b]; // its first member
        uint32_t time = m->landed = m->barrier.phase + 1;
        each_cell(to, (int)box_bytes(c.map), true, [&](const char*, Cell& cell) {
            cell.in_flight = 0;
            cell.write_epoch = epoch, cell.write_step = time, cell.writer = (uint16_t)m->barrier.agent;
        });
        m->barrier.bytes -= box_bytes(c.map);
        settle(*m);
    }
}

TL_ONCE bool go_on_without_threads() {
    if (!loads_under_way) return false;
    land((int)random_below((uint32_t)loads_under_way));
    return true;
}

TL_ONCE void check_box(const tl_tensor_map& m, const char* shared, int rank, const char* what, int line) {
    needs_clocks(what);
    if (m.rank != rank) fault("%s of line %d: the tensor map has %d axes", what, line, m.rank);
    if (!in_arena(shared)) fault("%s of line %d: a box that is not in shared memory", what, line);
    int64_t offset = (shared - arena) % arena_stride;
    int alignment = m.swizzle ? 8 * m.swizzle : 128; // where the pattern begins
    if (offset % alignment) fault("misaligned: %s of line %d: a box at byte %lld of shared memory, no multiple of %d", what, line, (long long)offset, alignment);
    if (offset + box_bytes(m) > whole_arenas[running->block].bytes)
        fault("out of bounds: %s of line %d: a box of %lld bytes at byte %lld of shared memory, which has %lld", what, line,
              (long long)box_bytes(m), (long long)offset, (long long)whole_arenas[running->block].bytes);
}

TL_ONCE void tma_load(Address to, const tl_tensor_map& m, Coordinates from, int rank, Address barrier, int mask, const char* what, int line) {
    check_box(m, to.at, rank, what, line);
    mbarrier_at(barrier, what, line);
    BulkCopy c = {};
    c.map = m, c.from = from, c.to = to.at;
    if (mask <= 0 || mask >> block_count) fault("%s of line %d: blocks of a mask of %d, in a cluster of %d", what, line, mask, block_count);
    // Reads of global memory are those of the thread that asks.
    each_run(m, from, [&](int64_t, const char* at) {
        if (at) watch_read(m.region, at, m.element_bytes, m.element_bytes);
    });
    Actor a = running_thread();
    a.beside = true;
    for (int b = 0; b < block_count; ++b) {
        if (!(mask >> b & 1)) continue;
        int64_t shift = (int64_t)(b - running->block) * arena_stride;
        if (whole_blocks[b].left == threads_of_block) fault("%s of line %d: the threads of block %d of the cluster have left", what, line, b);
        MbarrierState& there = mbarrier_at(Address((const void*)(barrier.at + shift)), what, line);
        const Region barriers = named_region(there.barrier.at), region = named_region(to.at + shift);
        each_cell(there.barrier.at, 8, false, [&](const char* p, Cell& cell) { seen_write(barriers, p, cell, a, "uses"); });
        each_cell(to.at + shift, (int)box_bytes(m), true, [&](const char* p, Cell& cell) {
            note_write_by(a, region, p, cell, "copies into");
            cell.in_flight = 1;
        });
        c.barriers[c.targets] = &there.barrier;
        c.shifts[c.targets++] = shift;
    }
    count_on(*running);
    if (loads_under_way == loads_capacity) {
        loads_capacity = loads_capacity ? 2 * loads_capacity : 64;
        loads = (BulkCopy*)realloc(loads, loads_capacity * sizeof(BulkCopy));
    }
    loads[loads_under_way++] = c;
    if (landing == at_once || (landing == at_random && random_below(2))) land(loads_under_way - 1);
}

TL_ONCE void store_now(const BulkCopy& c) {
    each_run(c.map, c.from, [&](int64_t byte, const char* at) {
        if (at) memcpy((char*)at, swizzled(c.to + byte, c.map.swizzle), c.map.element_bytes);
    });
}

TL_ONCE void tma_store(const tl_tensor_map& m, Coordinates to, int rank, Address from, const char* what, int line) {
    check_box(m, from.at, rank, what, line);
    Stores*& s = stores_of_threads[running->number];
    if (!s) s = (Stores*)calloc(1, sizeof(Stores));
    if (!s->agent) s->agent = new_agent("a bulk store", running->number);
    if (s->count == (int)(sizeof s->copies / sizeof *s->copies)) fault("not supported yet: %d bulk stores of one thread under way", s->count);
    Actor a = running_thread();
    a.beside = true, a.agent = s->agent, a.time = s->committed + 1;
    each_cell(from.at, (int)box_bytes(m), false, [&](const char* p, Cell& cell) { note_read_by(a, *from.region, p, cell, "stores"); });
    each_run(m, to, [&](int64_t, const char* at) {
        if (at) watch_write(m.region, at, m.element_bytes, m.element_bytes);
    });
    BulkCopy& c = s->copies[s->count];
    c.map = m, c.from = to, c.to = from.at;
    s->groups[s->count++] = s->committed;
    if (landing == at_once || (landing == at_random && random_below(2))) {
        store_now(c);
        c.to = nullptr;
    }
}

TL_ONCE void tma_store_commit() {
    Stores* s = stores_of_threads[running->number];
    if (s) s->committed++;
}

// Waits until shared memory has been read for all groups but the last ones; global memory is written then, too.
TL_ONCE void tma_store_wait(int groups) {
    Stores* s = stores_of_threads[running->number];
    if (!s || !s->agent) return;
    int kept = 0;
    for (int i = 0; i < s->count; ++i) {
        if (s->groups[i] + groups >= s->committed) {
            s->copies[kept] = s->copies[i], s->groups[kept++] = s->groups[i];
            continue;
        }
        if (s->copies[i].to) store_now(s->copies[i]);
    }
    s->count = kept;
    uint32_t& seen = sight_of(*running).seen[s->agent];
    uint32_t done = s->committed > (uint32_t)groups ? s->committed - groups : 0;
    if (seen < done) seen = done;
}

TL_ONCE void leave_bulk() {
    Stores* s = stores_of_threads[running->number];
    if (s && s->count) fault("leaves with %d bulk stores under way that it has not waited for", s->count);
    if (alive > 1) return;
    if (loads_under_way) fault("leaves with %d bulk copies into shared memory under way", loads_under_way);
    for (int i = 0; i < mbarrier_count; ++i) {
        const MbarrierState& m = mbarriers[i];
        bool waited = !m.landed;
        for (int t = 0; t < thread_count && !waited; ++t) waited = sight_of(threads[t]).seen[m.barrier.agent] >= m.landed;
        if (waited) continue;
        int index;
        const char* name = name_of(m.barrier.at, &index);
        fault("leaves with bulk copies under way for all that is known: nobody has waited for phase %u of shared %s[%d]", m.landed - 1, name, index);
    }
}

} // namespace tl_emulator

#define TL_TENSOR_MAP(name) const tl_tensor_map name
TL_FUNCTION bool tl_elect() { return tl_thread_x() % 32 == 0; }
#define TL_TMA(rank, axes, ...)                                                                                                        \
    TL_FUNCTION void tl_tma_load(int line, tl_emulator::Address to, const tl_tensor_map& map, axes, tl_emulator::Address barrier) {    \
        tl_emulator::tma_load(to, map, tl_emulator::Coordinates{{__VA_ARGS__}}, rank, barrier, 1 << tl_emulator::running->block,       \
                              "tl_tma_load_" #rank "d", line);                                                                         \
    }                                                                                                                                  \
    TL_FUNCTION void tl_tma_multicast(int line, tl_emulator::Address to, const tl_tensor_map& map, axes, tl_emulator::Address barrier, int blocks) { \
        tl_emulator::tma_load(to, map, tl_emulator::Coordinates{{__VA_ARGS__}}, rank, barrier, blocks, "tl_tma_multicast_" #rank "d", line); \
    }                                                                                                                                  \
    TL_FUNCTION void tl_tma_store(int line, const tl_tensor_map& map, axes, tl_emulator::Address from) {                               \
        tl_emulator::tma_store(map, tl_emulator::Coordinates{{__VA_ARGS__}}, rank, from, "tl_tma_store_" #rank "d", line);             \
    }
#define TL_AXES(...) __VA_ARGS__
TL_TMA(1, TL_AXES(tl_i32 a), a)
TL_TMA(2, TL_AXES(tl_i32 a, tl_i32 b), a, b)
TL_TMA(3, TL_AXES(tl_i32 a, tl_i32 b, tl_i32 c), a, b, c)
TL_TMA(4, TL_AXES(tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d), a, b, c, d)
TL_TMA(5, TL_AXES(tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d, tl_i32 e), a, b, c, d, e)
#define tl_tma_load_1d(...) tl_tma_load(__LINE__, __VA_ARGS__)
#define tl_tma_load_2d(...) tl_tma_load(__LINE__, __VA_ARGS__)
#define tl_tma_load_3d(...) tl_tma_load(__LINE__, __VA_ARGS__)
#define tl_tma_load_4d(...) tl_tma_load(__LINE__, __VA_ARGS__)
#define tl_tma_load_5d(...) tl_tma_load(__LINE__, __VA_ARGS__)
#define tl_tma_multicast_1d(...) tl_tma_multicast(__LINE__, __VA_ARGS__)
#define tl_tma_multicast_2d(...) tl_tma_multicast(__LINE__, __VA_ARGS__)
#define tl_tma_multicast_3d(...) tl_tma_multicast(__LINE__, __VA_ARGS__)
#define tl_tma_multicast_4d(...) tl_tma_multicast(__LINE__, __VA_ARGS__)
#define tl_tma_multicast_5d(...) tl_tma_multicast(__LINE__, __VA_ARGS__)
#define tl_tma_store_1d(...) tl_tma_store(__LINE__, __VA_ARGS__)
#define tl_tma_store_2d(...) tl_tma_store(__LINE__, __VA_ARGS__)
#define tl_tma_store_3d(...) tl_tma_store(__LINE__, __VA_ARGS__)
#define tl_tma_store_4d(...) tl_tma_store(__LINE__, __VA_ARGS__)
#define tl_tma_store_5d(...) tl_tma_store(__LINE__, __VA_ARGS__)
TL_FUNCTION void tl_tma_store_commit() { tl_emulator::tma_store_commit(); }
#define TL_TMA_STORE_WAIT(n) tl_emulator::tma_store_wait(n)
#define TL_TMA_STORE_WAIT_READ(n) tl_emulator::tma_store_wait(n)
