// Pointers that watch what is done through them, and the memory they point to.

namespace tl_emulator {

const int most_shared_bytes = 232448; // the most that any GPU gives one block
const int most_static_bytes = 48 * 1024;
const int arena_guard = 4096;

const int arena_stride = (most_shared_bytes + arena_guard + 1023) / 1024 * 1024;

// Shared memory of the blocks that run together; what lies behind each must stay as it is. `split` words are kept byte by byte.
inline int64_t shared_bytes_of_launch;
alignas(1024) inline char arena[most_blocks * arena_stride];
inline Cell word_cells[most_blocks * arena_stride / 4], byte_cells[most_blocks * arena_stride];
inline bool split[most_blocks * arena_stride / 4];
inline Region whole_arenas[most_blocks];

TL_ONCE bool in_arena(const void* p) { return (const char*)p >= arena && (const char*)p < arena + sizeof arena; }
TL_ONCE const Region* arena_of(const void* p) { return in_arena(p) ? &whole_arenas[((const char*)p - arena) / arena_stride] : nullptr; }

// The arrays that a kernel has named, so that reports can.
struct NamedArray {
    const char* name;
    int64_t offset, bytes;
    int element_bytes;
};
inline NamedArray named_arrays[64];
inline int named_array_count;

// Returns the array that lies there, and sets the index of the element.
TL_ONCE const char* name_of(const char* at, int* index) {
    int64_t offset = (at - arena) % arena_stride;
    for (int i = 0; i < named_array_count; ++i) {
        const NamedArray& a = named_arrays[i];
        if (offset < a.offset || offset >= a.offset + a.bytes) continue;
        *index = (int)((offset - a.offset) / a.element_bytes);
        return a.name;
    }
    *index = (int)offset;
    return "memory";
}

// Calls f(place, cell) for each cell of what an access of `bytes` at `at` touches in shared memory.
template <class F> static inline void each_cell(const char* at, int bytes, bool overwrites, F f) {
    int64_t start = at - arena, word = start / 4;
    if (__builtin_expect(bytes < 4, 0)) {
        if (!split[word]) {
            for (int i = 0; i < 4; ++i) byte_cells[word * 4 + i] = copy_of(word_cells[word]);
            split[word] = true;
        }
        for (int i = 0; i < bytes; ++i) f(at + i, byte_cells[start + i]);
        return;
    }
    for (int i = 0; i < bytes; i += 4, ++word) {
        if (__builtin_expect(!split[word], 1)) {
            f(at + i, word_cells[word]);
            continue;
        }
        for (int j = 0; j < 4; ++j) f(at + i + j, byte_cells[word * 4 + j]);
        if (overwrites) word_cells[word] = byte_cells[word * 4], split[word] = false; // the four are alike now
    }
}

// Checks an access of `bytes` at `at`; returns whether somebody keeps count of such.
TL_ONCE bool checked(const Region* r, const void* at, int bytes, int alignment, const char* did) {
    if (__builtin_expect((uintptr_t)at % alignment != 0, 0)) {
        if (!r) fault("misaligned: %s %d bytes at an address that is no multiple of %d", did, bytes, alignment);
        fault("misaligned: %s %d bytes of %s%s, %lld bytes from its start, which is no multiple of %d", did, bytes, space_of(*r), r->name,
              (long long)((const char*)at - r->base), alignment);
    }
    if (!r) return false;
    int64_t offset = (const char*)at - r->base;
    if (__builtin_expect(offset < 0 || offset + bytes > r->bytes, 0)) {
        int64_t element = offset >= 0 ? offset / r->element_bytes : -((r->element_bytes - 1 - offset) / r->element_bytes);
        fault("out of bounds: %s %s%s[%lld], which has %lld elements", did, space_of(*r), r->name, (long long)element,
              (long long)(r->bytes / r->element_bytes));
    }
    return r->cells;
}

TL_ONCE void watch_read(const Region* r, const void* at, int bytes, int alignment) {
    if (!checked(r, at, bytes, alignment, "reads")) return;
    const char* place = (const char*)at;
    if (r->shared) {
        each_cell(place, bytes, false, [r](const char* p, Cell& c) { note_read(*r, p, c); });
        return;
    }
    Cell* cells = r->cells + (place - r->base) / r->element_bytes;
    for (int i = 0; i < bytes; i += r->element_bytes) note_read(*r, place + i, *cells++);
}

TL_ONCE void watch_write(const Region* r, const void* at, int bytes, int alignment) {
    if (!checked(r, at, bytes, alignment, "writes")) return;
    const char* place = (const char*)at;
    if (r->shared) {
        each_cell(place, bytes, true, [r](const char* p, Cell& c) { note_write(*r, p, c); });
        return;
    }
    Cell* cells = r->cells + (place - r->base) / r->element_bytes;
    for (int i = 0; i < bytes; i += r->element_bytes) note_write(*r, place + i, *cells++);
}

template <class T> static inline T read(const Region* r, const T* at) {
    watch_read(r, at, sizeof(T), alignof(T));
    T value;
    memcpy(&value, at, sizeof(T));
    return value;
}

template <class T> static inline void write(const Region* r, T* at, const T& value) {
    watch_write(r, at, sizeof(T), alignof(T));
    memcpy(at, &value, sizeof(T));
}

// Returns the array that lies there as reports name it; its cells are those of all shared memory.
TL_ONCE Region named_region(const char* at) {
    Region r = *arena_of(at);
    int64_t offset = at - r.base;
    for (int i = 0; i < named_array_count; ++i) {
        const NamedArray& a = named_arrays[i];
        if (offset < a.offset || offset >= a.offset + a.bytes) continue;
        r.name = a.name, r.base += a.offset, r.bytes = a.bytes, r.element_bytes = a.element_bytes;
    }
    return r;
}

template <class T> struct Pointer;

// An element that may be assigned to.
template <class T> struct Element {
    T* at;
    const Region* region;

    Element(T* at, const Region* region) : at(at), region(region) {}
    Element(const Element&) = default;
    operator T() const { return read<T>(region, at); }
    const Element& operator=(T value) const { write<T>(region, at, value); return *this; }
    const Element& operator=(const Element& other) const { return *this = (T)other; }
    const Element& operator+=(T value) const { return *this = (T)((T)*this + value); }
    const Element& operator-=(T value) const { return *this = (T)((T)*this - value); }
    const Element& operator*=(T value) const { return *this = (T)((T)*this * value); }
    Pointer<T> operator&() const { return Pointer<T>(at, region); }
};

template <class T> struct Pointer {
    T* at;
    const Region* region;

    Pointer(T* at) : at(at), region(arena_of(at)) {}
    Pointer(T* at, const Region* region) : at(at), region(region) {}
    Element<T> operator[](int64_t i) const { return Element<T>(at + i, region); }
    Element<T> operator*() const { return Element<T>(at, region); }
    Pointer operator+(int64_t i) const { return Pointer(at + i, region); }
    Pointer operator-(int64_t i) const { return Pointer(at - i, region); }
    Pointer& operator+=(int64_t i) { at += i; return *this; }
};

template <class T> struct Pointer<const T> {
    const T* at;
    const Region* region;

    Pointer(const T* at) : at(at), region(arena_of(at)) {}
    Pointer(const T* at, const Region* region) : at(at), region(region) {}
    Pointer(const Pointer<T>& other) : at(other.at), region(other.region) {}
    T operator[](int64_t i) const { return read<T>(region, at + i); }
    T operator*() const { return read<T>(region, at); }
    Pointer operator+(int64_t i) const { return Pointer(at + i, region); }
    Pointer operator-(int64_t i) const { return Pointer(at - i, region); }
    Pointer& operator+=(int64_t i) { at += i; return *this; }
};

// Any pointer, where only bytes matter.
struct Address {
    char* at;
    const Region* region;

    template <class T> Address(const Pointer<T>& p) : at((char*)p.at), region(p.region) {}
    Address(const void* p) : at((char*)p), region(arena_of(p)) {}
};

TL_ONCE unsigned char* arena_of_block(int64_t bytes) {
    whole_arenas[running->block].bytes = bytes;
    return (unsigned char*)whole_arenas[running->block].base;
}

// The arena that a kernel declares, once: what it says when it is static, otherwise what the launch asks for.
TL_ONCE unsigned char* shared_arena(int64_t bytes) {
    if (running->has_arena) fault("declares shared memory twice");
    if (bytes > most_static_bytes) fault("declares %lld bytes of shared memory; more than %d have to be asked for", (long long)bytes, most_static_bytes);
    if (bytes > shared_bytes_of_launch)
        fault("declares %lld bytes of shared memory, the launch %lld", (long long)bytes, (long long)shared_bytes_of_launch);
    running->has_arena = true;
    return arena_of_block(bytes);
}

TL_ONCE unsigned char* dynamic_arena() {
    if (running->has_arena) fault("declares shared memory twice");
    if (shared_bytes_of_launch <= most_static_bytes)
        fault("takes shared memory that the launch does not ask for: up to %d bytes are declared with TL_SHARED", most_static_bytes);
    running->has_arena = true;
    return arena_of_block(shared_bytes_of_launch);
}

template <class T> struct SharedArray : Pointer<T> {
    Region own;

    SharedArray(const char* name, char* base, int64_t count)
        : Pointer<T>((T*)base, &own), own{name, base, count * (int64_t)sizeof(T), word_cells, (int)sizeof(T), true, true, false} {
        const Region& whole = whole_arenas[running->block];
        int64_t offset = base - whole.base;
        if (offset % (int)sizeof(T)) fault("misaligned: shared %s starts at byte %lld", name, (long long)offset);
        if (offset + own.bytes > whole.bytes)
            fault("out of bounds: shared %s ends at byte %lld; there are %lld bytes of shared memory", name, (long long)(offset + own.bytes),
                  (long long)whole.bytes);
        for (int i = 0; i < named_array_count; ++i)
            if (named_arrays[i].name == name) return;
        if (named_array_count < (int)(sizeof named_arrays / sizeof *named_arrays))
            named_arrays[named_array_count++] = NamedArray{name, offset, own.bytes, (int)sizeof(T)};
    }
    SharedArray(const SharedArray&) = delete;
};

} // namespace tl_emulator

#define TL_IN(type) tl_emulator::Pointer<const type>
#define TL_OUT(type) tl_emulator::Pointer<type>
#define TL_SHARED(name, bytes) unsigned char* const name = tl_emulator::shared_arena(bytes)
#define TL_SHARED_DYNAMIC(name) unsigned char* const name = tl_emulator::dynamic_arena()
#define TL_SHARED_ARRAY(type, name, arena, offset, count) tl_emulator::SharedArray<type> name(#name, (char*)(arena) + (offset), count)

#define TL_VECTOR_ACCESS(name, n)                                                                                                      \
    TL_FUNCTION tl_##name##x##n tl_load_##name##x##n(tl_emulator::Pointer<const tl_##name> p) {                                        \
        return tl_emulator::read(p.region, (const tl_##name##x##n*)p.at);                                                              \
    }                                                                                                                                  \
    TL_FUNCTION void tl_store_##name##x##n(tl_emulator::Pointer<tl_##name> p, tl_##name##x##n value) {                                 \
        tl_emulator::write(p.region, (tl_##name##x##n*)p.at, value);                                                                   \
    }
TL_EACH_VECTOR(TL_VECTOR_ACCESS)
