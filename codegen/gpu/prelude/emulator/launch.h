// A launch: the blocks of a grid one after the other. `codegen/gpu/emulator.py` has the same structures.

namespace tl_emulator {

struct Argument {
    void* data; // of a buffer
    int64_t value; // of a size; the bytes of a buffer
    const char* name;
    void* cells; // zero-filled, one per element, or null: `tl_emulator_cell_bytes` each
    int32_t element_bytes;
    int32_t unset;
};

// A tensor map: `data` of its argument.
struct MapArgument {
    Argument buffer;
    tl_tensor_map map; // its region is not set
};

struct Launch {
    int32_t grid[3];
    int32_t block[3];
    int32_t cluster[3]; // blocks that run together
    int32_t clocks;     // whether threads are ordered by more than barriers of whole blocks and of warps
    int64_t shared_bytes;
    uint64_t seed;
};

inline const Argument* arguments;
inline Region regions[64];
inline void (*body)();
inline Context between_blocks;

// How a parameter of the kernel is made of an argument.
template <class P> struct Parameter {
    static P of(int i) { return (P)arguments[i].value; }
    static void check(int) {}
};

template <> struct Parameter<tl_tensor_map> {
    static tl_tensor_map of(int i) {
        tl_tensor_map map = ((const MapArgument*)arguments[i].data)->map;
        map.region = &regions[i];
        return map;
    }
    static void check(int) {}
};

template <class T> struct Parameter<T*> {
    static T* of(int i) { return (T*)arguments[i].data; }
    static void check(int) {}
};

template <class T> struct Parameter<Pointer<T>> {
    static Pointer<T> of(int i) { return Pointer<T>((T*)arguments[i].data, &regions[i]); }
    static void check(int i) {
        if (arguments[i].element_bytes != (int)sizeof(T))
            fault("parameter %s has elements of %d bytes, its buffer of %d", arguments[i].name, (int)sizeof(T), arguments[i].element_bytes);
    }
};

template <class T> struct IsConstant { static const bool value = false; };
template <class T> struct IsConstant<Pointer<const T>> { static const bool value = true; };

template <int... I> struct Numbers {};
template <int N, int... I> struct NumbersTo : NumbersTo<N - 1, N - 1, I...> {};
template <int... I> struct NumbersTo<0, I...> { typedef Numbers<I...> Type; };

template <class... P, int... I> static void call_with(void (*kernel)(P...), Numbers<I...>) { kernel(Parameter<P>::of(I)...); }
template <class... P> static void call(void (*kernel)(P...)) { call_with(kernel, typename NumbersTo<sizeof...(P)>::Type()); }

TL_ONCE void prepare_region(int i, const Argument& a, bool constant) {
    bool watched = a.cells && a.element_bytes && (!constant || a.unset);
    regions[i] = Region{a.name, (char*)a.data, a.value, watched ? (Cell*)a.cells : nullptr, a.element_bytes, false, a.unset != 0,
                        constant};
}

template <class P> struct Prepared {
    static void region(int i) { prepare_region(i, arguments[i], IsConstant<P>::value); }
};
template <> struct Prepared<tl_tensor_map> {
    static void region(int i) { prepare_region(i, ((const MapArgument*)arguments[i].data)->buffer, false); }
};

template <class... P, int... I> static void prepare_with(void (*)(P...), Numbers<I...>) {
    int each[] = {0, (Prepared<P>::region(I), Parameter<P>::check(I), 0)...};
    (void)each;
}
template <class... P> static void prepare_parameters(void (*kernel)(P...), int count) {
    static_assert(sizeof...(P) <= sizeof regions / sizeof *regions, "the emulator has room for fewer parameters");
    if (count != (int)sizeof...(P)) fault("the kernel has %d parameters; the launch gives %d arguments", (int)sizeof...(P), count);
    prepare_with(kernel, typename NumbersTo<sizeof...(P)>::Type());
}

TL_ONCE void run_thread() {
    body();
    if (running->copies_under_way) fault("leaves with %d copies under way that it has not waited for", running->copies_under_way);
    leave(warps[running->warp]);
    leave(whole_blocks[running->block]);
    leave_beside();
    running->done = true;
    if (--alive == 0) change(running->context, between_blocks);
    give_way();
    abort();
}

TL_ONCE void shuffle(int* items, int count) {
    for (int i = count - 1; i > 0; --i) {
        int j = (int)random_below(i + 1), item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

// Warps in some order, and lanes in some order in each; a partial warp stays the last, so that turns of one warp are found by division.
TL_ONCE void choose_order(bool natural) {
    int warp_count = (thread_count + warp_size - 1) / warp_size, whole = thread_count / warp_size;
    int warp_order[most_threads / warp_size];
    for (int w = 0; w < warp_count; ++w) warp_order[w] = w;
    if (!natural) shuffle(warp_order, whole);
    int n = 0;
    for (int w = 0; w < warp_count; ++w) {
        int first = n;
        for (int number = warp_order[w] * warp_size; number < thread_count && number < (warp_order[w] + 1) * warp_size; ++number) order[n++] = number;
        if (!natural) shuffle(order + first, n - first);
    }
}

TL_ONCE void begin_blocks(char* stack, bool natural) {
    epoch_of_block = ++epoch;
    for (int b = 0; b < block_count; ++b) {
        memset(arena + b * arena_stride, 0xff, shared_bytes_of_launch + arena_guard);
        whole_arenas[b] = Region{"memory", arena + b * arena_stride, 0, word_cells, 1, true, true, false};
        whole_blocks[b] = Meeting{threads_of_block, 0, 0, 0, "", 0};
    }
    for (int first = 0; first < thread_count; first += warp_size) {
        int members = thread_count - first < warp_size ? thread_count - first : warp_size;
        warps[first / warp_size] = Meeting{members, 0, 0, 0, "", 0};
        warp_steps[first / warp_size] = 0;
    }
    named_array_count = 0;
    begin_clocks();
    begin_barriers();
    begin_bulk();
    begin_wgmma();
    choose_order(natural);
    alive = thread_count;
    for (int i = 0; i < thread_count; ++i) {
        Thread& t = threads[i];
        int n = i % threads_of_block;
        t.place = Place{n % block_shape.x, n / block_shape.x % block_shape.y, n / (block_shape.x * block_shape.y)};
        t.number = i, t.lane = i % warp_size, t.warp = i / warp_size, t.block = i / threads_of_block, t.in_block = n;
        t.done = t.has_arena = false, t.waits_in = nullptr, t.waits_for = nullptr, t.copies_under_way = 0, t.copies_committed = 0;
        prepare(t.context, stack + (i + 1) * stack_bytes, run_thread);
    }
}

TL_ONCE void check_guard() {
    for (int b = 0; b < block_count; ++b) {
        const Region& whole = whole_arenas[b];
        for (int i = 0; i < arena_guard; ++i)
            if (whole.base[whole.bytes + i] != (char)0xff)
                fault("out of bounds: byte %lld of shared memory was written; it has %lld", (long long)whole.bytes + i, (long long)whole.bytes);
    }
}

// A launch runs on a stack of its own, so that a fault can leave it as it leaves a thread.
inline const Launch* launched;
inline int argument_count;
inline void (*prepare_arguments)(int);
inline char* stack_memory;

TL_ONCE void run_blocks() {
    const Launch& l = *launched;
    threads_of_block = l.block[0] * l.block[1] * l.block[2];
    block_count = cluster_shape.x * cluster_shape.y * cluster_shape.z;
    if (threads_of_block < 1 || threads_of_block > most_threads_of_block) fault("a block of %d threads", threads_of_block);
    if (block_count < 1 || block_count > most_blocks) fault("a cluster of %d blocks", block_count);
    if (grid_shape.x % cluster_shape.x || grid_shape.y % cluster_shape.y || grid_shape.z % cluster_shape.z)
        fault("a grid of (%d, %d, %d) blocks is no whole number of clusters of (%d, %d, %d)", grid_shape.x, grid_shape.y, grid_shape.z,
              cluster_shape.x, cluster_shape.y, cluster_shape.z);
    thread_count = threads_of_block * block_count;
    if (block_count > 1 && (thread_count > most_threads || threads_of_block % warp_size || !clocks))
        fault("not supported yet: %d blocks of %d threads in a cluster", block_count, threads_of_block);
    if (l.shared_bytes > most_shared_bytes) fault("%lld bytes of shared memory are more than any GPU has", (long long)l.shared_bytes);
    prepare_arguments(argument_count);
    Place clusters = {grid_shape.x / cluster_shape.x, grid_shape.y / cluster_shape.y, grid_shape.z / cluster_shape.z};
    int64_t count = (int64_t)clusters.x * clusters.y * clusters.z;
    for (int64_t n = 0; n < count; ++n) {
        int64_t i = l.seed % 2 ? count - 1 - n : n;
        for (int b = 0; b < block_count; ++b)
            block_places[b] = Place{(int)(i % clusters.x) * cluster_shape.x + b % cluster_shape.x,
                                    (int)(i / clusters.x % clusters.y) * cluster_shape.y + b / cluster_shape.x % cluster_shape.y,
                                    (int)(i / clusters.x / clusters.y) * cluster_shape.z + b / (cluster_shape.x * cluster_shape.y)};
        begin_blocks(stack_memory, l.seed == 0);
        turn = 0;
        running = &threads[order[0]];
        change(between_blocks, running->context);
        check_guard();
    }
    change(between_blocks, outside);
    abort();
}

// Runs the launch and returns 0, or 1 with `fault_of_launch` filled in.
TL_ONCE int launch(const Launch* l, const Argument* given, int count, Fault* report, void (*prepare_given)(int), void (*run_body)()) {
    static bool dirty;
    static int dirty_blocks;
    launched = l, arguments = given, argument_count = count, fault_of_launch = report, prepare_arguments = prepare_given, body = run_body;
    *report = Fault{};
    if (dirty) {
        size_t used = (size_t)(dirty_blocks * arena_stride / 4);
        memset(word_cells, 0, used * sizeof *word_cells), memset(split, 0, used * sizeof *split);
    }
    grid_shape = Place{l->grid[0], l->grid[1], l->grid[2]};
    block_shape = Place{l->block[0], l->block[1], l->block[2]};
    cluster_shape = Place{l->cluster[0], l->cluster[1], l->cluster[2]};
    clocks = l->clocks != 0;
    running = &threads[0];
    running->place = block_places[0] = Place{0, 0, 0};
    running->block = 0;
    shared_bytes_of_launch = l->shared_bytes;
    landing = (Landing)(l->seed % 3), turns = (Turns)(l->seed / 3 % 3);
    random_state = l->seed * 2654435761u + 88172645463325252ull;
    epoch_of_launch = ++epoch;
    const long long asked = 1ll * l->block[0] * l->block[1] * l->block[2] * l->cluster[0] * l->cluster[1] * l->cluster[2];
    const int fibres = asked < 1 || asked > most_threads ? most_threads : (int)asked;
    stack_memory = stacks(fibres + 1);
    if (!stack_memory) {
        snprintf(report->problem, sizeof report->problem, "no memory for the stacks of %d threads", fibres);
        return report->happened = 1;
    }
    prepare(between_blocks, stack_memory + (fibres + 1) * stack_bytes, run_blocks);
    change(outside, between_blocks);
    dirty = report->happened;
    dirty_blocks = block_count < 1 || block_count > most_blocks ? most_blocks : block_count;
    return report->happened;
}

} // namespace tl_emulator

// Makes a kernel known by its name.
#define TL_EXPORT(kernel)                                                                                                              \
    extern "C" TL_ASKED int tl_emulate_##kernel(const tl_emulator::Launch* launch, const tl_emulator::Argument* arguments, int count,  \
                                                tl_emulator::Fault* fault) {                                                           \
        return tl_emulator::launch(                                                                                                    \
            launch, arguments, count, fault, [](int n) { tl_emulator::prepare_parameters(kernel, n); }, [] { tl_emulator::call(kernel); }); \
    }

#define TL_KERNEL(threads, min_blocks) static void
#define TL_CLUSTER(x, y, z)

#ifdef TL_EMULATOR

extern "C" TL_ASKED void tl_emulator_release() { tl_emulator::release_stacks(); }
extern "C" TL_ASKED int tl_emulator_cell_bytes() { return (int)sizeof(tl_emulator::Cell); }

// ---------------------------------------------------------------- what g++ has checked in the text itself

// -fsanitize=bounds,signed-integer-overflow calls these: an index outside an array of the text, an index that overflows its type.
struct tl_emulator_place {
    const char* file;
    uint32_t line, column;
};
extern "C" void __ubsan_handle_out_of_bounds_abort(tl_emulator_place* place, uintptr_t index) {
    tl_emulator::fault("out of bounds: index %lld of an array in line %u", (long long)index, place->line);
}
#define TL_OVERFLOW(name)                                                                                                              \
    extern "C" void __ubsan_handle_##name##_overflow_abort(tl_emulator_place* place, uintptr_t, uintptr_t) { \
        tl_emulator::fault("overflow: an integer in line %u", place->line);                                                            \
    }
TL_OVERFLOW(add)
TL_OVERFLOW(sub)
TL_OVERFLOW(mul)
TL_OVERFLOW(negate)
TL_OVERFLOW(divrem)

#endif
