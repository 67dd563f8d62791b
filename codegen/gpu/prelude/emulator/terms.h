// Floats that are terms: an element of memory or of a register says, instead of being a number, what was computed.
//
// Every operation on floats makes an entry: what it is (as codegen/loops/terms.py calls it), of which entries, and the number that it
// would be for the numbers of this run. An element holds the number of its entry among those of its type, in the bits that it has anyway,
// so that memory, copies, shuffles and matrices in registers are what they are for numbers. All bits 0 is the constant 0.0, as it is of
// floats; what no entry has (all bits 1: memory that nobody has written) is a hole.
//
// Integers are numbers. Where one is made of floats (a comparison, a conversion), there is an entry for it as well: what was asked, and
// the answer, which the numbers of this run give.

#include <type_traits>

namespace tl_emulator {

struct Entry {
    char op[16], type[16];
    int32_t operands[3]; // entries, or -1; of a leaf its number
    uint32_t bits;       // which one of its type it is
    double value;
};

enum TermType {
    term_f32, term_f64, term_f16, term_bf16, term_f8e4m3, term_f8e5m2, term_f8e4m3fnuz, term_f8e5m2fnuz, term_f4e2m1, term_types
};
static const char* const names_of_types[] = {"f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1"};
static const int bits_of_types[] = {32, 64, 16, 16, 8, 8, 8, 8, 8};

inline Entry* entries;
inline int entry_count, entry_capacity, entry_limit;
inline int* entry_table; // by hash, -1 where there is none; twice as many as there is room for entries
inline int hole_entry;
inline int* entries_of_type[term_types];
inline uint32_t count_of_type[term_types];

TL_ONCE uint32_t hash_of(const Entry& e) {
    uint64_t words[7], h = 0;
    memcpy(words, &e, sizeof words);
    words[5] &= 0xffffffffu; // without the bits
    if (e.operands[0] >= 0) words[6] = 0;
    for (uint64_t w : words) h = (h ^ w) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    return (uint32_t)(h >> 32);
}

TL_ONCE bool are_alike(const Entry& a, const Entry& b) {
    if (memcmp(a.op, b.op, 44)) return false;
    return a.operands[0] >= 0 || !memcmp(&a.value, &b.value, sizeof a.value);
}

TL_ONCE int place_of_entry(const Entry& e) {
    int at = (int)(hash_of(e) & (uint32_t)(2 * entry_capacity - 1));
    while (entry_table[at] >= 0 && !are_alike(entries[entry_table[at]], e)) at = (at + 1) & (2 * entry_capacity - 1);
    return at;
}

TL_ONCE void more_entries() {
    entry_capacity = entry_capacity ? 2 * entry_capacity : 4096;
    entries = (Entry*)realloc(entries, entry_capacity * sizeof(Entry));
    entry_table = (int*)realloc(entry_table, 2 * entry_capacity * sizeof(int));
    for (int*& of : entries_of_type) of = (int*)realloc(of, entry_capacity * sizeof(int));
    memset(entry_table, 0xff, 2 * entry_capacity * sizeof(int));
    for (int i = 0; i < entry_count; ++i) entry_table[place_of_entry(entries[i])] = i;
}

// Returns the entry of an operation; `type` is that of its result, term_types for what is no float. Equal operations are one entry.
TL_ONCE int entry_of(const char* op, const char* name, int type, int a, int b, int c, double value) {
    Entry e = {};
    snprintf(e.op, sizeof e.op, "%s", op), snprintf(e.type, sizeof e.type, "%s", name);
    e.operands[0] = a, e.operands[1] = b, e.operands[2] = c, e.value = value;
    if (entry_count == entry_capacity) more_entries();
    int at = place_of_entry(e);
    if (entry_table[at] >= 0) return entry_table[at];
    if (entry_count == entry_limit) fault("too large: more than %d operations on floats", entry_limit);
    if (type < term_types) {
        if (bits_of_types[type] < 32 && count_of_type[type] + 1 == 1u << bits_of_types[type])
            fault("too large: more terms of %s than its bits tell apart", name);
        e.bits = count_of_type[type]++;
        entries_of_type[type][e.bits] = entry_count;
    }
    entries[entry_count] = e;
    return entry_table[at] = entry_count++;
}

TL_ONCE int entry_of(const char* op, int type, int a, int b, int c, double value) {
    return entry_of(op, names_of_types[type], type, a, b, c, value);
}

TL_ONCE uint32_t bits_of(int entry) { return entries[entry].bits; } // entries may have moved while this one was made
TL_ONCE int entry_at(int type, uint64_t bits) { return bits < count_of_type[type] ? entries_of_type[type][bits] : hole_entry; }

// A float that is loaded, stored and converted.
template <int type, class Bits> struct Narrow {
    Bits bits;
    int entry() const { return entry_at(type, bits); }
    double value() const { return entries[entry()].value; }
};

template <class T> static T narrow_of(int entry) { return T{(decltype(T::bits))bits_of(entry)}; }

template <class T> struct Element;

// A float that is computed with.
template <int of_type, class Bits, class Number> struct Wide {
    typedef Number number_type;
    static const int type = of_type;
    Bits bits;

    Wide() = default;
#define TL_FROM(T) Wide(T x) : bits((Bits)bits_of(entry_of("const", type, -1, -1, -1, (double)(Number)x))) {}
    TL_FROM(float) TL_FROM(double) TL_FROM(bool) TL_FROM(signed char) TL_FROM(unsigned char) TL_FROM(short) TL_FROM(unsigned short)
    TL_FROM(int) TL_FROM(unsigned) TL_FROM(long) TL_FROM(unsigned long) TL_FROM(long long) TL_FROM(unsigned long long)
#undef TL_FROM
    template <int other, class B, class N> explicit Wide(const Wide<other, B, N>& x) : bits(made("cast", x.entry(), -1, -1, (Number)x.value()).bits) {}
    template <class E> explicit Wide(const Element<E>& x) : Wide(x.operator E()) {}

    int entry() const { return entry_at(type, bits); }
    Number value() const { return (Number)entries[entry()].value; }
    static Wide of(int entry) { return at((Bits)bits_of(entry)); }
    static Wide at(Bits bits) {
        Wide made;
        made.bits = bits;
        return made;
    }
    static Wide made(const char* op, int a, int b, int c, Number value) { return of(entry_of(op, type, a, b, c, (double)value)); }
    static Wide made(const char* op, Wide x, Number value) { return made(op, x.entry(), -1, -1, value); }
    static Wide made(const char* op, Wide x, Wide y, Number value) { return made(op, x.entry(), y.entry(), -1, value); }
};

// What is asked of floats: an entry, and the answer for the numbers of this run.
template <class T, class Answer> static Answer asked(const char* what, const char* type, T x, T y, Answer answer) {
    entry_of(what, type, term_types, x.entry(), y.entry(), -1, (double)answer);
    return answer;
}
template <class T, class Answer> static Answer asked(const char* what, const char* type, T x, Answer answer) {
    entry_of(what, type, term_types, x.entry(), -1, -1, (double)answer);
    return answer;
}

} // namespace tl_emulator

typedef tl_emulator::Wide<tl_emulator::term_f32, tl_u32, float> tl_term_f32;
typedef tl_emulator::Wide<tl_emulator::term_f64, tl_u64, double> tl_term_f64;
typedef tl_emulator::Narrow<tl_emulator::term_f16, tl_u16> tl_term_f16;
typedef tl_emulator::Narrow<tl_emulator::term_bf16, tl_u16> tl_term_bf16;
typedef tl_emulator::Narrow<tl_emulator::term_f8e4m3, tl_u8> tl_term_f8e4m3;
typedef tl_emulator::Narrow<tl_emulator::term_f8e5m2, tl_u8> tl_term_f8e5m2;
typedef tl_emulator::Narrow<tl_emulator::term_f8e4m3fnuz, tl_u8> tl_term_f8e4m3fnuz;
typedef tl_emulator::Narrow<tl_emulator::term_f8e5m2fnuz, tl_u8> tl_term_f8e5m2fnuz;
typedef tl_emulator::Narrow<tl_emulator::term_f4e2m1, tl_u8> tl_term_f4e2m1;

// ---------------------------------------------------------------- operators

#define TL_TERM_SUM(T, op) \
    TL_FUNCTION T operator op(T x, T y) { return T::made(#op, x, y, x.value() op y.value()); }
#define TL_TERM_ORDER(T, op) \
    TL_FUNCTION bool operator op(T x, T y) { return tl_emulator::asked(#op, "bool", x, y, x.value() op y.value()); }
#define TL_TERM_OPERATORS(T)                                                                                                           \
    TL_FUNCTION T operator-(T x) { return T::made("neg", x, -x.value()); }                                                             \
    TL_TERM_SUM(T, +) TL_TERM_SUM(T, -) TL_TERM_SUM(T, *) TL_TERM_SUM(T, /)                                                            \
    TL_TERM_ORDER(T, <) TL_TERM_ORDER(T, <=) TL_TERM_ORDER(T, >) TL_TERM_ORDER(T, >=) TL_TERM_ORDER(T, ==) TL_TERM_ORDER(T, !=)        \
    TL_FUNCTION T& operator+=(T& x, T y) { return x = x + y; }                                                                         \
    TL_FUNCTION T& operator-=(T& x, T y) { return x = x - y; }                                                                         \
    TL_FUNCTION T& operator*=(T& x, T y) { return x = x * y; }
TL_TERM_OPERATORS(tl_term_f32)
TL_TERM_OPERATORS(tl_term_f64)

// ---------------------------------------------------------------- functions of the prelude

#define TL_TERM_1(name, op, type) \
    TL_FUNCTION tl_term_##type tl_##name##_##type(tl_term_##type x) { return tl_term_##type::made(op, x, tl_##name##_##type(x.value())); }
#define TL_TERM_2(name, op, type)                                                                                                      \
    TL_FUNCTION tl_term_##type tl_##name##_##type(tl_term_##type x, tl_term_##type y) {                                                \
        return tl_term_##type::made(op, x, y, tl_##name##_##type(x.value(), y.value()));                                               \
    }
#define TL_TERM_CALL(name, type) TL_TERM_1(name, "call " #name, type)
#define TL_TERM_CALLS(type)                                                                                                            \
    TL_TERM_CALL(exp, type) TL_TERM_CALL(exp2, type) TL_TERM_CALL(expm1, type) TL_TERM_CALL(log, type) TL_TERM_CALL(log2, type)        \
    TL_TERM_CALL(log1p, type) TL_TERM_CALL(sqrt, type) TL_TERM_CALL(sin, type) TL_TERM_CALL(cos, type) TL_TERM_CALL(tan, type)         \
    TL_TERM_CALL(asin, type) TL_TERM_CALL(acos, type) TL_TERM_CALL(atan, type) TL_TERM_CALL(sinh, type) TL_TERM_CALL(cosh, type)       \
    TL_TERM_CALL(tanh, type) TL_TERM_CALL(asinh, type) TL_TERM_CALL(acosh, type) TL_TERM_CALL(atanh, type) TL_TERM_CALL(erf, type)     \
    TL_TERM_CALL(floor, type) TL_TERM_CALL(ceil, type) TL_TERM_CALL(round, type) TL_TERM_CALL(trunc, type) TL_TERM_CALL(rsqrt, type)   \
    TL_TERM_CALL(sigmoid, type) TL_TERM_CALL(round_bf16, type) TL_TERM_1(abs, "abs", type)                                             \
    TL_TERM_2(pow, "call pow", type) TL_TERM_2(fmod, "call fmod", type) TL_TERM_2(atan2, "call atan2", type)                           \
    TL_TERM_2(copysign, "call copysign", type) TL_TERM_2(min, "min", type) TL_TERM_2(max, "max", type)                                 \
    TL_TERM_2(floordiv, "//", type) TL_TERM_2(floormod, "%", type)                                                                     \
    TL_FUNCTION tl_term_##type tl_fma_##type(tl_term_##type x, tl_term_##type y, tl_term_##type z) {                                   \
        return tl_term_##type::made("fma", x.entry(), y.entry(), z.entry(), tl_fma_##type(x.value(), y.value(), z.value()));           \
    }                                                                                                                                  \
    TL_FUNCTION tl_bool tl_isnan_##type(tl_term_##type x) { return tl_emulator::asked("call isnan", "bool", x, tl_isnan_##type(x.value())); } \
    TL_FUNCTION tl_bool tl_isinf_##type(tl_term_##type x) { return tl_emulator::asked("call isinf", "bool", x, tl_isinf_##type(x.value())); }
TL_TERM_CALLS(f32)
TL_TERM_CALLS(f64)
TL_FUNCTION tl_u32 tl_number_bits_f32(tl_term_f32 x) { return tl_emulator::asked("call bits", "u32", x, tl_number_bits_f32(x.value())); }
TL_FUNCTION tl_u64 tl_number_bits_f64(tl_term_f64 x) { return tl_emulator::asked("call bits", "u64", x, tl_number_bits_f64(x.value())); }
TL_TERM_CALL(round_tf32, f32)
TL_TERM_1(exp_16_bits, "call exp", f32)

#define TL_TERM_TRUNCATED(name, type) \
    TL_FUNCTION tl_##name tl_##name##_from_##type(tl_term_##type x) { return tl_emulator::asked("cast", #name, x, tl_##name##_from_##type(x.value())); }
#define TL_TERM_INTEGER(name) TL_TERM_TRUNCATED(name, f32) TL_TERM_TRUNCATED(name, f64)
TL_TERM_INTEGER(i2) TL_TERM_INTEGER(i4) TL_TERM_INTEGER(i8) TL_TERM_INTEGER(i16) TL_TERM_INTEGER(i32) TL_TERM_INTEGER(i64)
TL_TERM_INTEGER(u2) TL_TERM_INTEGER(u4) TL_TERM_INTEGER(u8) TL_TERM_INTEGER(u16) TL_TERM_INTEGER(u32) TL_TERM_INTEGER(u64)

#define TL_TERM_NARROWED(name, how, op, wide)                                                                                          \
    TL_FUNCTION tl_term_##name tl_##name##_##how##_##wide(tl_term_##wide x) {                                                          \
        double value = tl_f32_from_##name(tl_##name##_##how##_##wide(x.value()));                                                      \
        return tl_emulator::narrow_of<tl_term_##name>(tl_emulator::entry_of(op, tl_emulator::term_##name, x.entry(), -1, -1, value));  \
    }
#define TL_TERM_WIDENED(name, wide) \
    TL_FUNCTION tl_term_##wide tl_##wide##_from_##name(tl_term_##name x) { return tl_term_##wide::made("cast", x.entry(), -1, -1, x.value()); }
#define TL_TERM_NARROW(name)                                                                                                           \
    TL_TERM_NARROWED(name, from, "cast", f32) TL_TERM_NARROWED(name, from, "cast", f64)                                                \
    TL_TERM_NARROWED(name, saturate, "cast.saturate", f32) TL_TERM_NARROWED(name, saturate, "cast.saturate", f64)                      \
    TL_TERM_WIDENED(name, f32) TL_TERM_WIDENED(name, f64)
TL_TERM_NARROW(f16)
TL_TERM_NARROW(bf16)
TL_TERM_NARROW(f8e4m3)
TL_TERM_NARROW(f8e5m2)
TL_TERM_NARROW(f8e4m3fnuz)
TL_TERM_NARROW(f8e5m2fnuz)
TL_TERM_NARROW(f4e2m1)

TL_FUNCTION tl_u32 tl_round_tf32(tl_term_f32 x) { return tl_round_tf32_f32(x).bits; }
TL_FUNCTION tl_u32 tl_round_tf32_bits(tl_u32 x) { return tl_round_tf32(tl_term_f32::at(x)); }

// ---------------------------------------------------------------- products of matrices

namespace tl_emulator {

struct MatrixProduct {
    int a, b;
};

// An element of a matrix, or a sum of products of such.
struct MatrixTerm {
    int entry; // 0: 0.0

    MatrixTerm() = default;
    MatrixTerm(int entry) : entry(entry) {}
    MatrixTerm(tl_term_f32 sum) : entry(sum.entry()) {}
    MatrixProduct operator*(MatrixTerm other) const { return MatrixProduct{entry, other.entry}; }
    MatrixTerm& operator+=(MatrixProduct p) {
        double value = entries[entry].value + entries[p.a].value * entries[p.b].value;
        entry = entry_of("dot", term_f32, p.a, p.b, entry, (float)value);
        return *this;
    }
    MatrixTerm operator+(tl_term_f32 x) const { return tl_term_f32::of(entry) + x; }
};

template <int type, int elements> struct MatrixElement {
    static const int count = elements;
    typedef tl_term_f32 Sum;
    typedef MatrixTerm Exact;
    static MatrixTerm value(uint32_t word, int i) { return entry_at(type, count == 1 ? word : (uint16_t)(word >> 16 * i)); }
};
typedef MatrixElement<term_bf16, 2> Bf16;
typedef MatrixElement<term_f16, 2> F16;

// The lowest bits of a number are not looked at, so that it has to have been rounded.
struct Tf32 : MatrixElement<term_f32, 1> {
    static MatrixTerm value(uint32_t word, int) {
        int entry = entry_at(term_f32, word);
        const char* op = entries[entry].op;
        return strcmp(op, "call round_tf32") && strcmp(op, "const") ? entry_of("call cut_tf32", term_f32, entry, -1, -1, entries[entry].value) : entry;
    }
};

TL_ONCE tl_term_f32 rounded(MatrixTerm x) { return tl_term_f32::of(x.entry); }

} // namespace tl_emulator

// ---------------------------------------------------------------- for who runs kernels

#ifdef TL_EMULATOR

// Forgets all entries; there may be `limit` new ones.
extern "C" TL_ASKED void tl_terms_begin(int limit) {
    using namespace tl_emulator;
    entry_count = 0, entry_limit = limit;
    if (entry_table) memset(entry_table, 0xff, 2 * entry_capacity * sizeof(int));
    for (uint32_t& count : count_of_type) count = 0;
    for (int type = 0; type < term_types; ++type) entry_of("const", type, -1, -1, -1, 0.0);
    hole_entry = entry_of("hole", "", term_types, -1, -1, -1, NAN);
}

// Returns the bits of something given, which for this run is a number.
extern "C" TL_ASKED uint64_t tl_terms_leaf(int type, int number, double value) {
    using namespace tl_emulator;
    return bits_of(entry_of("leaf", type, number, -1, -1, value));
}
extern "C" TL_ASKED const tl_emulator::Entry* tl_terms_entries() { return tl_emulator::entries; }
extern "C" TL_ASKED int tl_terms_count() { return tl_emulator::entry_count; }

#endif

// ---------------------------------------------------------------- what kernel text means by floats

#define tl_f32 tl_term_f32
#define tl_f64 tl_term_f64
#define tl_f16 tl_term_f16
#define tl_bf16 tl_term_bf16
#define tl_f8e4m3 tl_term_f8e4m3
#define tl_f8e5m2 tl_term_f8e5m2
#define tl_f8e4m3fnuz tl_term_f8e4m3fnuz
#define tl_f8e5m2fnuz tl_term_f8e5m2fnuz
#define tl_f4e2m1 tl_term_f4e2m1
#undef TL_INF_F32
#undef TL_NAN_F32
#undef TL_INF_F64
#undef TL_NAN_F64
#define TL_INF_F32 tl_term_f32(INFINITY)
#define TL_NAN_F32 tl_term_f32(NAN)
#define TL_INF_F64 tl_term_f64(INFINITY)
#define TL_NAN_F64 tl_term_f64(NAN)
