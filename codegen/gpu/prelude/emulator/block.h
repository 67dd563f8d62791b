// The blocks that run together (one, or a cluster): their threads, who runs next, where they meet, and how a fault ends the launch.

namespace tl_emulator {

// Threads of a warp: 32, or 64 where the kernels that follow are for such devices.
#ifndef TL_WARP
#define TL_WARP 32
#endif
const int warp_size = TL_WARP;

// Lanes of a warp, a bit for each.
#if TL_WARP > 32
typedef uint64_t Lanes;
inline int first_lane(Lanes lanes) { return __builtin_ctzll(lanes); }
#else
typedef uint32_t Lanes;
inline int first_lane(Lanes lanes) { return __builtin_ctz(lanes); }
#endif
const int most_threads_of_block = 1024;
const int most_threads = 2048; // of all blocks that run together
const int most_blocks = 8;     // of a cluster, on every device that has clusters

struct Place {
    int x, y, z;
};

// Where threads wait for each other: the whole block, or a warp.
struct Meeting {
    int members, arrived, left;
    uint64_t generation;
    const char* what; // what those who have arrived called
    int line;
};

struct Copy {
    char* to;
    const char* from; // null: zeros
    int bytes;
    int group;
    bool landed;
};

// A barrier in shared memory: it completes a phase when all arrivals and all bytes that it expects in it have come.
struct Mbarrier {
    char* at;
    int arrivals, pending;
    int64_t bytes; // expected and not there yet
    uint32_t phase;
    int agent; // in clocks.h
};

struct Thread {
    Context context;
    Place place;
    int number, lane, warp; // the number among all threads that run together, likewise the warp
    int block, in_block;    // which of the blocks that run together, and the number there
    bool done, has_arena;
    Meeting* waits_in; // until its generation is no longer `waits_since`
    uint64_t waits_since;
    Mbarrier* waits_for; // until it has completed the phase of this parity
    uint32_t waits_parity, waits_phase; // the phase that the barrier was in then
    int waits_line;
    Copy* copies; // under way, the oldest first
    int copies_under_way, copies_capacity, copies_committed;
};

enum Landing { late, at_once, at_random };
enum Turns { the_next, one_warp_ahead, anybody };

// What the caller learns of a launch that went wrong.
struct Fault {
    int32_t happened;
    int32_t block[3];
    int32_t thread[3];
    char problem[512];
};

inline Thread threads[most_threads];
inline Thread* running;
inline int order[most_threads]; // thread numbers, as they take turns
inline int turn;                // of the running thread in `order`
inline int thread_count, threads_of_block, block_count, alive;
inline Meeting whole_blocks[most_blocks], warps[most_threads / warp_size];
inline uint32_t warp_steps[most_threads / warp_size]; // barriers that each warp has passed
inline Place block_places[most_blocks], block_shape, grid_shape, cluster_shape;
inline Context outside;
inline Fault* fault_of_launch;
inline Landing landing;
inline Turns turns;
inline uint64_t random_state;

TL_ONCE uint32_t random_below(uint32_t limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16) % limit;
}

// Ends the launch. The fibres are left where they are.
[[noreturn]] TL_ONCE __attribute__((noinline, format(printf, 1, 2))) void fault(const char* problem, ...) {
    Fault& f = *fault_of_launch;
    f.happened = 1;
    const Place& block = block_places[running->block];
    f.block[0] = block.x, f.block[1] = block.y, f.block[2] = block.z;
    f.thread[0] = running->place.x, f.thread[1] = running->place.y, f.thread[2] = running->place.z;
    va_list values;
    va_start(values, problem);
    vsnprintf(f.problem, sizeof f.problem, problem, values);
    va_end(values);
    Context abandoned;
    change(abandoned, outside);
    abort();
}

TL_ONCE bool completed(const Mbarrier& m, uint32_t parity) { return (m.phase & 1) != (parity & 1); }

TL_ONCE bool can_run(const Thread& t) {
    if (t.done || (t.waits_in && t.waits_in->generation == t.waits_since)) return false;
    return !t.waits_for || completed(*t.waits_for, t.waits_parity);
}

TL_ONCE const char* name_of(const char* at, int* index);

// Nobody can go on: says where the first thread waits, and where the first one that waits elsewhere.
[[noreturn]] TL_ONCE void deadlock() {
    struct Wait {
        int count;
        const Thread* first;
    } waits[2] = {};
    int kinds = 0;
    auto alike = [](const Thread& a, const Thread& b) {
        if (a.waits_for || b.waits_for) return a.waits_for == b.waits_for;
        return a.waits_in == b.waits_in || (a.waits_in->line == b.waits_in->line && !strcmp(a.waits_in->what, b.waits_in->what));
    };
    for (int i = 0; i < thread_count; ++i) {
        const Thread& t = threads[i];
        if (t.done) continue;
        if (kinds && alike(*waits[0].first, t)) ++waits[0].count;
        else if (kinds == 2 && alike(*waits[1].first, t)) ++waits[1].count;
        else if (kinds < 2) waits[kinds++] = Wait{1, &t};
    }
    char text[2][200];
    for (int k = 0; k < kinds; ++k) {
        const Thread& t = *waits[k].first;
        if (!t.waits_for) {
            snprintf(text[k], sizeof *text, "in %s of line %d", t.waits_in->what, t.waits_in->line);
            continue;
        }
        const Mbarrier& m = *t.waits_for;
        int index;
        const char* name = name_of(m.at, &index);
        int n = snprintf(text[k], sizeof *text, "for shared %s[%d] of line %d to complete its phase %u, which lacks %d of %d arrivals", name, index,
                         t.waits_line, m.phase, m.pending, m.arrivals);
        if (m.bytes > 0) snprintf(text[k] + n, sizeof *text - n, " and %lld bytes", (long long)m.bytes);
        if (m.bytes < 0) snprintf(text[k] + n, sizeof *text - n, " and has %lld bytes too many", (long long)-m.bytes);
    }
    if (kinds == 1 && waits[0].count == thread_count) fault("deadlock: all %d threads wait %s", thread_count, text[0]);
    if (kinds == 1) fault("deadlock: %d of %d threads wait %s", waits[0].count, thread_count, text[0]);
    fault("deadlock: %d threads wait %s, %d %s, thread %d and thread %d among them", waits[0].count, text[0], waits[1].count, text[1],
          waits[0].first->in_block, waits[1].first->in_block);
}

// Returns the turn of a thread that can run, the first of `count` from `start` on after skipping `skip`, or -1.
TL_ONCE int first_of(int start, int count, int skip) {
    for (int i = 0; i < count; ++i) {
        int candidate = start + (skip + i) % count;
        if (can_run(threads[order[candidate]])) return candidate;
    }
    return -1;
}

TL_ONCE int choose_turn() {
    if (turns == one_warp_ahead) {
        int start = turn / warp_size * warp_size;
        int count = start + warp_size <= thread_count ? warp_size : thread_count - start;
        int next = first_of(start, count, turn - start + 1);
        if (next >= 0) return next;
    }
    return first_of(0, thread_count, turns == anybody ? (int)random_below(thread_count) : turn + 1);
}

// Something that goes on beside the threads gets done, if there is such a thing (bulk.h).
TL_ONCE bool go_on_without_threads();

// Lets somebody else run, until it is the turn of this thread again.
TL_ONCE void give_way() {
    Thread* me = running;
    if (landing == at_random && random_below(4) == 0) go_on_without_threads();
    int next = choose_turn();
    while (next < 0) {
        if (!go_on_without_threads()) deadlock();
        next = choose_turn();
    }
    turn = next;
    running = &threads[order[turn]];
    if (running != me) change(me->context, running->context);
}

// Returns when all members have come here. True for the last one to arrive, which nobody has overtaken yet.
TL_ONCE bool meet(Meeting& meeting, const char* what, int line) {
    if (meeting.left) fault("waits in %s of line %d, which %d threads that have left will never reach", what, line, meeting.left);
    if (meeting.arrived && (meeting.line != line || strcmp(meeting.what, what)))
        fault("comes to %s of line %d while others wait in %s of line %d", what, line, meeting.what, meeting.line);
    meeting.what = what;
    meeting.line = line;
    if (++meeting.arrived == meeting.members) {
        meeting.arrived = 0;
        meeting.generation++;
        return true;
    }
    running->waits_in = &meeting;
    running->waits_since = meeting.generation;
    give_way();
    running->waits_in = nullptr;
    return false;
}

TL_ONCE void leave(Meeting& meeting) {
    if (meeting.arrived) fault("leaves while %d threads wait in %s of line %d", meeting.arrived, meeting.what, meeting.line);
    meeting.left++;
}

} // namespace tl_emulator
