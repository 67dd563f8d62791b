// Clocks: what happens before what in kernels whose threads are ordered by more than barriers of whole blocks and of warps.
//
// Everybody who does something (an agent: a thread, what a barrier in shared memory waits for, the products of a warpgroup, the bulk
// stores of a thread) counts its own time. What a thread does at time c happens before what another one does now when the other one has
// seen c of it. A barrier passes on what those who arrive have seen; then they count on, since nobody has seen what they do later.
//
// `fenced` is what has been seen and made visible to the asynchronous proxy: copies by boxes and products from shared memory do not see
// what threads have written there until a fence (tl_async_fence) lies between, wherever it stands on the way.

namespace tl_emulator {

inline bool clocks; // of the kernel that runs

const int most_agents_beside = 512;

struct Sight {
    uint32_t* seen; // by agent
    uint32_t* fenced;
};

inline uint32_t* sight_memory;
inline size_t sight_capacity;
inline int agent_count, agent_stride, sight_count, sight_limit;

// What an agent that is not a thread does, for reports: "a bulk copy", of which thread.
struct Beside {
    const char* what;
    int thread;
};
inline Beside beside[most_agents_beside];

TL_ONCE Sight sight(int row) {
    uint32_t* seen = sight_memory + (size_t)row * 2 * agent_stride;
    return Sight{seen, seen + agent_stride};
}

__attribute__((optimize("O3"))) TL_ONCE void take(Sight to, Sight from) {
    int n = 2 * agent_stride; // the two lie together
    uint32_t *a = to.seen, *b = from.seen;
    for (int i = 0; i < n; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
}

__attribute__((optimize("O3"))) TL_ONCE void take_least(Sight to, Sight from) {
    int n = 2 * agent_stride;
    uint32_t *a = to.seen, *b = from.seen;
    for (int i = 0; i < n; ++i) a[i] = a[i] < b[i] ? a[i] : b[i];
}

TL_ONCE void copy_sight(Sight to, Sight from) { memcpy(to.seen, from.seen, 2 * agent_stride * sizeof(uint32_t)); }

TL_ONCE void forget(Sight s) { memset(s.seen, 0, 2 * agent_stride * sizeof(uint32_t)); }

// Two rows are there to work with; then come those of threads, and more as they are asked for.
const int spare_rows = 2;
TL_ONCE Sight sight_of(const Thread& t) { return sight(spare_rows + t.number); }

TL_ONCE int new_sight() {
    if (sight_count == sight_limit) fault("not supported yet: more barriers in shared memory than the emulator has room for");
    forget(sight(sight_count));
    return sight_count++;
}

TL_ONCE int new_agent(const char* what, int thread) {
    int n = agent_count - thread_count;
    if (n == most_agents_beside) fault("not supported yet: more asynchronous work than the emulator has room for");
    beside[n] = Beside{what, thread};
    return agent_count++;
}

TL_ONCE void count_on(const Thread& t) { ++sight_of(t).seen[t.number]; }

// What the thread has seen and done goes into `to`; what it does later does not.
TL_ONCE void release(const Thread& t, Sight to) {
    take(to, sight_of(t));
    count_on(t);
}

// All of these threads have come to a barrier.
TL_ONCE void share_clocks(int first, int count) {
    Sight all = sight(0);
    copy_sight(all, sight_of(threads[first]));
    for (int i = first + 1; i < first + count; ++i) take(all, sight_of(threads[i]));
    for (int i = first; i < first + count; ++i) {
        copy_sight(sight_of(threads[i]), all);
        count_on(threads[i]);
    }
}

__attribute__((optimize("O3"))) TL_ONCE void fence_of(const Thread& t) {
    Sight s = sight_of(t);
    for (int i = 0; i < agent_stride; ++i) s.fenced[i] = s.seen[i];
    count_on(t);
}

// Who accesses memory: a thread at its time, or what goes on beside threads, with what those who began it have seen.
struct Actor {
    Sight sight;
    int agent;
    uint32_t time;
    bool beside;
};

TL_ONCE Actor running_thread() {
    Sight s = sight_of(*running);
    return Actor{s, running->number, s.seen[running->number], false};
}

// ---------------------------------------------------------------- who has read a cell

// By lanes of one warp at one time; or by an agent that is not a thread, which is the only lane.
struct Reads {
    int next; // -1: the last one
    int group; // of a warp, or -1 - agent
    uint32_t time;
    Lanes lanes;
};

inline Reads* reads;
inline int reads_capacity, reads_used, reads_free;

TL_ONCE int new_reads(Reads value) {
    int i = reads_free;
    if (i >= 0) reads_free = reads[i].next;
    else {
        if (reads_used == reads_capacity) {
            reads_capacity = reads_capacity ? 2 * reads_capacity : 65536;
            reads = (Reads*)realloc(reads, reads_capacity * sizeof(Reads));
            if (!reads) fault("no memory for who has read what");
        }
        i = reads_used++;
    }
    reads[i] = value;
    return i;
}

TL_ONCE void free_reads(int head) {
    while (head >= 0) {
        int next = reads[head].next;
        reads[head].next = reads_free, reads_free = head;
        head = next;
    }
}

TL_ONCE void begin_clocks() {
    if (!clocks) return;
    agent_count = thread_count, agent_stride = thread_count + most_agents_beside;
    sight_count = spare_rows + thread_count, sight_limit = sight_count + 2 * most_agents_beside;
    size_t words = (size_t)sight_limit * 2 * agent_stride;
    if (words > sight_capacity) {
        free(sight_memory);
        sight_memory = (uint32_t*)malloc(words * sizeof(uint32_t));
        if (!sight_memory) fault("no memory for what %d threads have seen", thread_count);
        sight_capacity = words;
    }
    memset(sight_memory, 0, (size_t)sight_count * 2 * agent_stride * sizeof(uint32_t));
    for (int i = 0; i < thread_count; ++i) sight(spare_rows + i).seen[i] = 1;
    reads_used = 0, reads_free = -1; // lists of earlier epochs are not looked at
}

TL_ONCE int copy_reads(int head) {
    return head < 0 ? -1 : new_reads(Reads{copy_reads(reads[head].next), reads[head].group, reads[head].time, reads[head].lanes});
}

// Returns the list with one read more. Earlier reads of the same lane are left out: who has seen this one has seen them.
TL_ONCE int with_read(int head, const Actor& a) {
    int group = a.beside ? -1 - a.agent : a.agent / warp_size;
    Lanes lane = a.beside ? 1u : (Lanes)1 << a.agent % warp_size;
    bool there = false;
    for (int *link = &head, i = head; i >= 0; i = *link) {
        Reads& r = reads[i];
        if (r.group == group && r.time == a.time) r.lanes |= lane, there = true;
        else if (r.group == group) r.lanes &= ~lane;
        if (r.lanes) {
            link = &r.next;
            continue;
        }
        *link = r.next;
        r.next = reads_free, reads_free = i;
    }
    return there ? head : new_reads(Reads{head, group, a.time, lane});
}

// Returns an agent that has read what `a` has not seen it read, or -1.
TL_ONCE int unseen_reader(int head, const Actor& a) {
    for (int i = head; i >= 0; i = reads[i].next) {
        const Reads& r = reads[i];
        if (r.group < 0) {
            if (a.sight.seen[-1 - r.group] < r.time) return -1 - r.group;
            continue;
        }
        for (Lanes lanes = r.lanes; lanes; lanes &= lanes - 1) {
            int agent = r.group * warp_size + first_lane(lanes);
            if (agent != a.agent && a.sight.seen[agent] < r.time) return agent;
        }
    }
    return -1;
}

} // namespace tl_emulator
