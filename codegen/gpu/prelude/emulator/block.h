// A block: its threads, who runs next, where they meet, and how a fault ends the launch.

namespace tl_emulator {

const int warp_size = 32;
const int most_threads = 1024;

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

struct Thread {
    Context context;
    Place place;
    int number, lane, warp;
    bool done, has_arena;
    Meeting* waits_in; // until its generation is no longer `waits_since`
    uint64_t waits_since;
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

static Thread threads[most_threads];
static Thread* running;
static int order[most_threads]; // thread numbers, as they take turns
static int turn;                // of the running thread in `order`
static int thread_count, alive;
static Meeting whole_block, warps[most_threads / warp_size];
static uint32_t warp_steps[most_threads / warp_size]; // barriers that each warp has passed
static Place block_place, block_shape, grid_shape;
static Context outside;
static Fault* fault_of_launch;
static Landing landing;
static Turns turns;
static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 16) % limit;
}

// Ends the launch. The fibres are left where they are.
[[noreturn]] static __attribute__((noinline, format(printf, 1, 2))) void fault(const char* problem, ...) {
    Fault& f = *fault_of_launch;
    f.happened = 1;
    f.block[0] = block_place.x, f.block[1] = block_place.y, f.block[2] = block_place.z;
    f.thread[0] = running->place.x, f.thread[1] = running->place.y, f.thread[2] = running->place.z;
    va_list values;
    va_start(values, problem);
    vsnprintf(f.problem, sizeof f.problem, problem, values);
    va_end(values);
    Context abandoned;
    change(abandoned, outside);
    abort();
}

static bool can_run(const Thread& t) { return !t.done && (!t.waits_in || t.waits_in->generation != t.waits_since); }

[[noreturn]] static void deadlock() {
    int at_block = 0, at_warp = 0;
    Thread *first_at_block = nullptr, *first_at_warp = nullptr;
    for (int i = thread_count - 1; i >= 0; --i) {
        Thread& t = threads[i];
        if (t.done) continue;
        if (t.waits_in == &whole_block) ++at_block, first_at_block = &t;
        else ++at_warp, first_at_warp = &t;
    }
    if (!at_warp) fault("deadlock: %d of %d threads wait in %s of line %d", at_block, thread_count, whole_block.what, whole_block.line);
    const Meeting& warp = *first_at_warp->waits_in;
    if (!at_block) fault("deadlock: %d threads wait in %s of line %d, thread %d among them", at_warp, warp.what, warp.line, first_at_warp->number);
    fault("deadlock: %d threads wait in %s of line %d, %d in %s of line %d, thread %d and thread %d among them", at_block, whole_block.what,
          whole_block.line, at_warp, warp.what, warp.line, first_at_block->number, first_at_warp->number);
}

// Returns the turn of a thread that can run, the first of `count` from `start` on after skipping `skip`, or -1.
static int first_of(int start, int count, int skip) {
    for (int i = 0; i < count; ++i) {
        int candidate = start + (skip + i) % count;
        if (can_run(threads[order[candidate]])) return candidate;
    }
    return -1;
}

static int choose_turn() {
    if (turns == one_warp_ahead) {
        int start = turn / warp_size * warp_size;
        int count = start + warp_size <= thread_count ? warp_size : thread_count - start;
        int next = first_of(start, count, turn - start + 1);
        if (next >= 0) return next;
    }
    return first_of(0, thread_count, turns == anybody ? (int)random_below(thread_count) : turn + 1);
}

// Lets somebody else run, until it is the turn of this thread again.
static void give_way() {
    Thread* me = running;
    int next = choose_turn();
    if (next < 0) deadlock();
    turn = next;
    running = &threads[order[turn]];
    if (running != me) change(me->context, running->context);
}

// Returns when all members have come here. True for the last one to arrive, which nobody has overtaken yet.
static bool meet(Meeting& meeting, const char* what, int line) {
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

static void leave(Meeting& meeting) {
    if (meeting.arrived) fault("leaves while %d threads wait in %s of line %d", meeting.arrived, meeting.what, meeting.line);
    meeting.left++;
}

} // namespace tl_emulator
