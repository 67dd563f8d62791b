// Products by four warps of matrices in shared memory. `cuda/prelude/wgmma.h` says what the names mean, and where elements lie.
//
// A product reads its operands at any time until the warpgroup has waited for it; until then its sums hold nothing: the emulator takes
// them away when it begins and gives them back when they have been waited for.

namespace tl_emulator {

const int warpgroup_size = 128;
const int most_products = 64; // of a warpgroup, under way

struct Matrix {
    char* arena;
    uint64_t descriptor; // of shared memory
    bool in_registers, transposed;
    int element_bytes;
};

struct Product {
    Matrix a, b;
    void (*run)(const Product&, void* sums, const uint32_t* registers);
    int columns, sums; // which of the sums of the warpgroup
    bool adds, done;
    uint32_t group;
    uint32_t* registers; // of a: [thread][4]
};

// Sums that are under way: what they hold, and where they are to be in each thread.
struct Sums {
    char* at[warpgroup_size];
    int count; // of each thread
    int products;
    uint32_t value[warpgroup_size * 128];
};

struct Warpgroup {
    Meeting meeting;
    Product products[most_products];
    int count;
    Sums* sums[8];
    uint32_t committed; // groups
    bool fenced;
    int agent; // 0: none yet
    uint64_t posted[warpgroup_size][2]; // descriptors
    void* posted_sums[warpgroup_size];
    uint32_t registers[warpgroup_size][4];
    int adds[warpgroup_size];
};
inline Warpgroup* warpgroups[most_threads / warpgroup_size];
const uint32_t taken_away = 0xffe0bad0u; // a NaN that nothing computes

TL_ONCE void begin_wgmma() {
    for (int i = 0; i < most_threads / warpgroup_size; ++i) {
        Warpgroup* w = warpgroups[i];
        if (!w) continue;
        for (int n = 0; n < w->count; ++n) free(w->products[n].registers);
        w->meeting = Meeting{warpgroup_size, 0, 0, 0, "", 0};
        w->count = 0, w->committed = 0, w->fenced = false, w->agent = 0;
        for (Sums* s : w->sums)
            if (s) s->products = 0;
    }
}

TL_ONCE Warpgroup& warpgroup_of(const char* what, int line) {
    needs_clocks(what);
    int i = running->number / warpgroup_size;
    if (running->in_block / warpgroup_size * warpgroup_size + warpgroup_size > threads_of_block)
        fault("%s of line %d: thread %d is in no group of four warps", what, line, running->in_block);
    if (!warpgroups[i]) {
        warpgroups[i] = (Warpgroup*)calloc(1, sizeof(Warpgroup));
        warpgroups[i]->meeting = Meeting{warpgroup_size, 0, 0, 0, "", 0};
    }
    if (!warpgroups[i]->agent) warpgroups[i]->agent = new_agent("a product", running->number / warpgroup_size * warpgroup_size);
    return *warpgroups[i];
}

// Where sixteen bytes of a matrix lie: of its row `row` from `byte` on; of its column and rows, when it is transposed.
TL_ONCE char* place_of(const Matrix& m, int row, int byte) {
    static const int swizzles[] = {0, 128, 64, 32};
    int swizzle = swizzles[m.descriptor >> 62];
    int64_t start = (int64_t)(m.descriptor & 0x3fff) << 4, leading = (int64_t)(m.descriptor >> 16 & 0x3fff) << 4,
            stride = (int64_t)(m.descriptor >> 32 & 0x3fff) << 4;
    int64_t at;
    if (!m.transposed) {
        if (swizzle) at = start + row / 8 * stride + row % 8 * swizzle + byte;
        else at = start + row / 8 * stride + byte / 16 * leading + row % 8 * 16;
    } else {
        // `row` counts along K; bytes along the other axis.
        if (swizzle) at = start + row / 8 * stride + row % 8 * swizzle + byte / swizzle * leading + byte % swizzle;
        else at = start + row / 8 * leading + byte / 16 * stride + row % 8 * 16;
    }
    return swizzled(m.arena + at, swizzle);
}

// Calls f(row along M or N, index along K, place) for each element: rows that lie along K, or along the other axis.
template <class F> static void each_sixteen(const Matrix& m, int rows, int k_bytes, F f) {
    int per = 16 / m.element_bytes;
    if (!m.transposed) {
        for (int row = 0; row < rows; ++row)
            for (int byte = 0; byte < k_bytes; byte += 16) f(row, byte / m.element_bytes, place_of(m, row, byte));
        return;
    }
    for (int k = 0; k < k_bytes / m.element_bytes; ++k)
        for (int row = 0; row < rows; row += per) f(row, k, place_of(m, k, row * m.element_bytes));
}

template <class T, class V> static void gather(const Matrix& m, int rows, V* out, int k_count) {
    int per = 16 / m.element_bytes;
    each_sixteen(m, rows, 32, [&](int row, int k, const char* at) {
        uint32_t words[4];
        memcpy(words, at, 16);
        for (int i = 0; i < per; ++i) {
            V value = (V)T::value(words[i / T::count], i % T::count);
            if (m.transposed) out[(row + i) * k_count + k] = value;
            else out[row * k_count + k + i] = value;
        }
    });
}

template <class A, class B> __attribute__((optimize("O3"))) static void run_product(const Product& p, void* sums, const uint32_t* registers) {
    const int K = 8 * A::count;
    typedef typename A::Exact Exact;
    static Exact a[64 * K], b[256 * K], columns[K * 256];
    if (p.a.in_registers) {
        for (int t = 0; t < warpgroup_size; ++t)
            for (int r = 0; r < 4; ++r)
                for (int i = 0; i < A::count; ++i)
                    a[(t / 32 * 16 + t % 32 / 4 + r % 2 * 8) * K + t % 4 * A::count + r / 2 * 4 * A::count + i] =
                        (Exact)A::value(registers[t * 4 + r], i);
    } else
        gather<A>(p.a, 64, a, K);
    gather<B>(p.b, p.columns, b, K);
    for (int n = 0; n < p.columns; ++n)
        for (int k = 0; k < K; ++k) columns[k * 256 + n] = b[n * K + k];
    typedef typename A::Sum Sum;
    for (int row = 0; row < 64; ++row) {
        Exact total[256] = {};
        for (int k = 0; k < K; ++k) {
            Exact x = a[row * K + k];
            const Exact* y = columns + k * 256;
            for (int n = 0; n < p.columns; ++n) total[n] += x * y[n];
        }
        for (int n = 0; n < p.columns; ++n) {
            int thread = row / 16 * 32 + row % 8 * 4 + n % 8 / 2, r = n / 8 * 4 + row % 16 / 8 * 2 + n % 2;
            Sum* d = (Sum*)sums + thread * 128 + r;
            *d = rounded(p.adds ? total[n] + *d : total[n]);
        }
    }
}

TL_ONCE void run(Warpgroup& w, Product& p) {
    if (p.done) return;
    p.run(p, w.sums[p.sums]->value, p.registers);
    p.done = true;
}

// Runs what was begun before the product as well: they are done in order.
TL_ONCE void run_until(Warpgroup& w, int last) {
    for (int i = 0; i <= last; ++i) run(w, w.products[i]);
}

TL_ONCE int sums_of(Warpgroup& w, int count, int line) {
    int free_one = -1;
    for (int i = 0; i < 8; ++i) {
        if (w.sums[i] && w.sums[i]->products) {
            if (w.sums[i]->at[0] != (char*)w.posted_sums[0]) continue;
            if (w.sums[i]->count != count) fault("tl_wgmma of line %d: other sums are under way there", line);
            return i;
        }
        if (free_one < 0) free_one = i;
    }
    if (free_one < 0) fault("not supported yet: more than 8 sums of products under way");
    if (!w.sums[free_one]) w.sums[free_one] = (Sums*)calloc(1, sizeof(Sums));
    Sums& s = *w.sums[free_one];
    s.count = count;
    for (int t = 0; t < warpgroup_size; ++t) {
        s.at[t] = (char*)w.posted_sums[t];
        memcpy(s.value + t * 128, s.at[t], count * 4);
        for (int i = 0; i < count; ++i) memcpy(s.at[t] + 4 * i, &taken_away, 4);
    }
    return free_one;
}

TL_ONCE void watch_operand(const Matrix& m, int rows, const Actor& a, const char* what, int line) {
    static const int pattern[] = {0, 128, 64, 32};
    int swizzle = pattern[m.descriptor >> 62];
    int64_t start = (int64_t)(m.descriptor & 0x3fff) << 4;
    if (swizzle && start % (8 * swizzle) >= swizzle)
        fault("%s of line %d: a matrix at byte %lld of shared memory, which is not in the first row of a pattern of %d bytes", what, line,
              (long long)start, 8 * swizzle);
    const Region& region = whole_arenas[running->block];
    each_sixteen(m, rows, 32, [&](int, int, const char* at) {
        checked(&region, at, 16, 16, "multiplies");
        const Region named = named_region(at);
        each_cell(at, 16, false, [&](const char* p, Cell& c) { note_read_by(a, named, p, c, "multiplies"); });
    });
}

TL_ONCE void multiply_together(void (*run_it)(const Product&, void*, const uint32_t*), int columns, int element_bytes, void* d, const uint32_t* registers, uint64_t a,
                              uint64_t b, bool a_transposed, bool b_transposed, int adds, const char* what, int line) {
    Warpgroup& w = warpgroup_of(what, line);
    int me = running->in_block % warpgroup_size;
    w.posted[me][0] = a, w.posted[me][1] = b, w.posted_sums[me] = d, w.adds[me] = adds != 0;
    if (registers) memcpy(w.registers[me], registers, sizeof w.registers[me]);
    if (!meet(w.meeting, what, line)) return;
    if (!w.fenced) fault("%s of line %d: no tl_wgmma_fence since the last group was committed", what, line);
    for (int t = 1; t < warpgroup_size; ++t)
        if (w.posted[t][0] != w.posted[0][0] || w.posted[t][1] != w.posted[0][1] || w.adds[t] != w.adds[0])
            fault("%s of line %d: threads of the warpgroup give different operands", what, line);
    if (w.count == most_products) fault("not supported yet: more than %d products under way", most_products);
    char* base = whole_arenas[running->block].base;
    Product p = {};
    p.a = Matrix{base, a, registers != nullptr, a_transposed, element_bytes};
    p.b = Matrix{base, b, false, b_transposed, element_bytes};
    p.run = run_it, p.columns = columns, p.adds = adds != 0, p.group = w.committed;
    // All that every thread of the warpgroup has seen.
    int first = running->number / warpgroup_size * warpgroup_size;
    Sight all = sight(1);
    copy_sight(all, sight_of(threads[first]));
    for (int t = 1; t < warpgroup_size; ++t) take_least(all, sight_of(threads[first + t]));
    Actor actor = {all, w.agent, w.committed + 1, true};
    if (!p.a.in_registers) watch_operand(p.a, 64, actor, what, line);
    watch_operand(p.b, columns, actor, what, line);
    if (p.a.in_registers) {
        p.registers = (uint32_t*)malloc(sizeof w.registers);
        memcpy(p.registers, w.registers, sizeof w.registers);
    }
    p.sums = sums_of(w, columns / 2, line);
    w.sums[p.sums]->products++;
    w.products[w.count++] = p;
    if (landing == at_once || (landing == at_random && random_below(2))) run_until(w, w.count - 1);
}

TL_ONCE void wgmma_fence(int line) {
    Warpgroup& w = warpgroup_of("tl_wgmma_fence", line);
    if (meet(w.meeting, "tl_wgmma_fence", line)) w.fenced = true;
}

TL_ONCE void wgmma_commit(int line) {
    Warpgroup& w = warpgroup_of("tl_wgmma_commit", line);
    if (meet(w.meeting, "tl_wgmma_commit", line)) w.committed++, w.fenced = false;
}

TL_ONCE void give_back(Warpgroup& w, Sums& s, int line) {
    for (int t = 0; t < warpgroup_size; ++t) {
        for (int i = 0; i < s.count; ++i)
            if (memcmp(s.at[t] + 4 * i, &taken_away, 4))
                fault("TL_WGMMA_WAIT of line %d: a thread has changed sums of products that were under way", line);
        memcpy(s.at[t], s.value + t * 128, s.count * 4);
    }
}

TL_ONCE void wgmma_wait(int groups, int line) {
    Warpgroup& w = warpgroup_of("TL_WGMMA_WAIT", line);
    uint32_t done = w.committed > (uint32_t)groups ? w.committed - groups : 0;
    if (meet(w.meeting, "TL_WGMMA_WAIT", line)) {
        int kept = 0;
        for (int i = 0; i < w.count; ++i) {
            Product& p = w.products[i];
            if (p.group >= done) {
                if (kept != i) w.products[kept] = p;
                ++kept;
                continue;
            }
            run(w, p);
            free(p.registers);
            if (--w.sums[p.sums]->products == 0) give_back(w, *w.sums[p.sums], line);
        }
        w.count = kept;
    }
    uint32_t& seen = sight_of(*running).seen[w.agent];
    if (seen < done) seen = done;
}

TL_ONCE void leave_wgmma() {
    Warpgroup* w = warpgroups[running->number / warpgroup_size];
    if (!w || !w->agent) return;
    leave(w->meeting);
    if (w->count) fault("leaves with %d products under way that it has not waited for", w->count);
}

// What a thread must not leave behind.
TL_ONCE void leave_beside() {
    if (!clocks) return;
    leave_cluster();
    leave_bulk();
    leave_wgmma();
}

TL_ONCE uint64_t descriptor(Address at, int64_t leading, int64_t stride, int swizzle, int line) {
    needs_clocks("tl_descriptor");
    if (!in_arena(at.at)) fault("tl_descriptor of line %d: a matrix that is not in shared memory", line);
    int64_t start = (at.at - arena) % arena_stride;
    if (start % 16 || leading % 16 || stride % 16) fault("tl_descriptor of line %d: bytes that are no multiple of 16", line);
    if (leading < 0 || stride < 0 || leading >> 18 || stride >> 18) fault("tl_descriptor of line %d: strides that do not fit", line);
    if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128) fault("tl_descriptor of line %d: a swizzle of %d bytes", line, swizzle);
    uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return (uint64_t)start >> 4 | (uint64_t)leading >> 4 << 16 | (uint64_t)stride >> 4 << 32 | mode << 62;
}

} // namespace tl_emulator

#define tl_descriptor(at, leading, stride, swizzle) tl_emulator::descriptor(at, leading, stride, swizzle, __LINE__)
#define tl_wgmma_fence() tl_emulator::wgmma_fence(__LINE__)
#define tl_wgmma_commit() tl_emulator::wgmma_commit(__LINE__)
#define TL_WGMMA_WAIT(n) tl_emulator::wgmma_wait(n, __LINE__)
#define TL_WGMMA(A, B, n, d, registers, a, b, a_transposed, b_transposed, adds, name)                                                  \
    tl_emulator::multiply_together(tl_emulator::run_product<tl_emulator::A, tl_emulator::B>, n, 4 / tl_emulator::A::count, d, registers, \
                                   a, b, a_transposed, b_transposed, adds, name, __LINE__)
