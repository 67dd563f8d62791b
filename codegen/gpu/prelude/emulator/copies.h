// Asynchronous copies into shared memory. The data may arrive at any time until the thread waits; the shadow holds the cells until then.

namespace tl_emulator {

TL_ONCE void land(Copy& c) {
    if (c.landed) return;
    if (c.from) memcpy(c.to, c.from, c.bytes);
    else memset(c.to, 0, c.bytes);
    c.landed = true;
}

TL_ONCE void begin_copy(Address to, Address from, int bytes, bool present) {
    if (!in_arena(to.at)) fault("copies into memory that is not shared");
    if (present) watch_read(from.region, from.at, bytes, bytes);
    watch_write(to.region, to.at, bytes, bytes);
    Thread& me = *running;
    if (me.copies_under_way == me.copies_capacity) {
        me.copies_capacity = me.copies_capacity ? 2 * me.copies_capacity : 16;
        me.copies = (Copy*)realloc(me.copies, me.copies_capacity * sizeof(Copy));
    }
    Copy& c = me.copies[me.copies_under_way++];
    c = Copy{to.at, present ? from.at : nullptr, bytes, me.copies_committed, false};
    each_cell(to.at, bytes, true, [](const char*, Cell& cell) { cell.in_flight = 1; });
    if (landing == at_once || (landing == at_random && random_below(2))) land(c);
}

// Waits for all groups but the last `groups` that were committed.
TL_ONCE void wait_for_copies(int groups) {
    Thread& me = *running;
    int done = 0;
    for (; done < me.copies_under_way && me.copies[done].group < me.copies_committed - groups; ++done) {
        Copy& c = me.copies[done];
        land(c);
        each_cell(c.to, c.bytes, true, [](const char*, Cell& cell) { cell.in_flight = 0, set_writer(cell); });
    }
    me.copies_under_way -= done;
    memmove(me.copies, me.copies + done, me.copies_under_way * sizeof(Copy));
}

} // namespace tl_emulator

#define TL_COPY_ASYNC(bytes)                                                                                                           \
    TL_FUNCTION void tl_copy_async_##bytes(tl_emulator::Address to, tl_emulator::Address from) {                                       \
        tl_emulator::begin_copy(to, from, bytes, true);                                                                                \
    }                                                                                                                                  \
    TL_FUNCTION void tl_copy_async_zfill_##bytes(tl_emulator::Address to, tl_emulator::Address from, bool present) {                   \
        tl_emulator::begin_copy(to, from, bytes, present);                                                                             \
    }
TL_COPY_ASYNC(4)
TL_COPY_ASYNC(8)
TL_COPY_ASYNC(16)
TL_FUNCTION void tl_copy_commit() { tl_emulator::running->copies_committed++; }
#define TL_COPY_WAIT(n) tl_emulator::wait_for_copies(n)
