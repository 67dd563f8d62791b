// Floats as elements of matrices: what they are, and what their products add up to. `terms.h` has the same of terms.

TL_FUNCTION tl_u32 tl_round_tf32(tl_f32 x) { return x == x ? tl_bits_f32(tl_round_tf32_f32(x)) : 0x7fffffffu; }
TL_FUNCTION tl_u32 tl_round_tf32_bits(tl_u32 x) { return tl_round_tf32(tl_f32_from_bits(x)); }

namespace tl_emulator {

struct Bf16 {
    static const int count = 2;
    typedef tl_f32 Sum;
    typedef double Exact;
    static double value(uint32_t word, int i) { return tl_f32_from_bits(i ? word & 0xffff0000u : word << 16); }
};
struct F16 {
    static const int count = 2;
    typedef tl_f32 Sum;
    typedef double Exact;
    static double value(uint32_t word, int i) { return tl_f32_from_f16(tl_f16{(tl_u16)(word >> 16 * i)}); }
};
struct Tf32 {
    static const int count = 1;
    typedef tl_f32 Sum;
    typedef double Exact;
    static double value(uint32_t word, int) { return tl_f32_from_bits(word & 0xffffe000u); }
};

// The sum is taken exactly, or nearly so, and rounded once.
TL_ONCE tl_f32 rounded(double x) { return (tl_f32)x; }

} // namespace tl_emulator
