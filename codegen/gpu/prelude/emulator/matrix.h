// Products of small matrices by a warp, and what fills their registers: all lanes meet, the last one computes. `cuda/prelude/matrix.h` says which
// lane holds what.

TL_FUNCTION tl_u32 tl_pack_bf16x2(tl_bf16 low, tl_bf16 high) { return (tl_u32)low.bits | ((tl_u32)high.bits << 16); }
TL_FUNCTION tl_u32 tl_pack_f16x2(tl_f16 low, tl_f16 high) { return (tl_u32)low.bits | ((tl_u32)high.bits << 16); }
TL_FUNCTION tl_bf16 tl_low_bf16x2(tl_u32 x) { return tl_bf16{(tl_u16)x}; }
TL_FUNCTION tl_bf16 tl_high_bf16x2(tl_u32 x) { return tl_bf16{(tl_u16)(x >> 16)}; }
TL_FUNCTION tl_f16 tl_low_f16x2(tl_u32 x) { return tl_f16{(tl_u16)x}; }
TL_FUNCTION tl_f16 tl_high_f16x2(tl_u32 x) { return tl_f16{(tl_u16)(x >> 16)}; }
TL_FUNCTION tl_u32 tl_pack_8x4(tl_u8 x, tl_u8 y, tl_u8 z, tl_u8 w) {
    return (tl_u32)x | ((tl_u32)y << 8) | ((tl_u32)z << 16) | ((tl_u32)w << 24);
}
TL_FUNCTION tl_u32 tl_round_bf16x2(tl_f32 low, tl_f32 high) { return tl_pack_bf16x2(tl_bf16_from_f32(low), tl_bf16_from_f32(high)); }
TL_FUNCTION tl_u32 tl_round_f16x2(tl_f32 low, tl_f32 high) { return tl_pack_f16x2(tl_f16_from_f32(low), tl_f16_from_f32(high)); }

namespace tl_emulator {

// Integers as elements of matrices, several of which share 32 bits: what they are, and what their products add up to (floats: numbers.h).
struct S8 {
    static const int count = 4;
    typedef tl_i32 Sum;
    typedef int64_t Exact;
    static int64_t value(uint32_t word, int i) { return (int8_t)(word >> 8 * i); }
};
struct U8 {
    static const int count = 4;
    typedef tl_i32 Sum;
    typedef int64_t Exact;
    static int64_t value(uint32_t word, int i) { return (uint8_t)(word >> 8 * i); }
};

// Sums of integers wrap.
TL_ONCE tl_i32 rounded(int64_t x) { return (tl_i32)(uint32_t)(uint64_t)x; }

struct Operands {
    void* d;
    uint32_t a[4], b[2];
};
inline Operands operands[most_threads];

TL_ONCE void whole_warp(const char* what, int line) {
    if (warps[running->warp].members != warp_size) fault("%s of line %d: a warp of %d lanes", what, line, warps[running->warp].members);
}

template <class A, class B> static __attribute__((noinline)) void multiply(const Operands* lanes) {
    typename A::Exact a[16][8 * A::count], b[8][8 * B::count];
    for (int lane = 0; lane < warp_size; ++lane) {
        int row = lane / 4, first = lane % 4 * A::count;
        for (int r = 0; r < 4; ++r)
            for (int i = 0; i < A::count; ++i) a[row + r % 2 * 8][first + r / 2 * 4 * A::count + i] = A::value(lanes[lane].a[r], i);
        for (int r = 0; r < 2; ++r)
            for (int i = 0; i < B::count; ++i) b[row][first + r * 4 * B::count + i] = B::value(lanes[lane].b[r], i);
    }
    for (int lane = 0; lane < warp_size; ++lane) {
        typename A::Sum* d = (typename A::Sum*)lanes[lane].d;
        for (int r = 0; r < 4; ++r) {
            int m = lane / 4 + r / 2 * 8, n = lane % 4 * 2 + r % 2;
            typename A::Exact sum = d[r];
            for (int k = 0; k < 8 * A::count; ++k) sum += a[m][k] * b[n][k];
            d[r] = rounded(sum);
        }
    }
}

template <class A, class B> static void mma(typename A::Sum* d, const uint32_t* a, const uint32_t* b, const char* what, int line) {
    whole_warp(what, line);
    Operands& mine = operands[running->number];
    mine.d = d;
    memcpy(mine.a, a, sizeof mine.a), memcpy(mine.b, b, sizeof mine.b);
    if (meet(warps[running->warp], what, line)) multiply<A, B>(operands + running->warp * warp_size);
}

// Rows that lanes have read for each other; two sets, as for shuffles.
inline uint16_t rows_read[2][most_threads][8];

template <int matrices, bool transposed> static void ldmatrix(uint32_t* r, Address row, const char* what, int line) {
    whole_warp(what, line);
    int set = (int)(warps[running->warp].generation & 1);
    uint16_t(*rows)[8] = rows_read[set] + running->warp * warp_size;
    if (running->lane < 8 * matrices) {
        if (!in_arena(row.at)) fault("%s of line %d: reads memory that is not shared", what, line);
        watch_read(row.region, row.at, 16, 16);
        memcpy(rows[running->lane], row.at, 16);
    }
    meet(warps[running->warp], what, line);
    int g = running->lane / 4, t = running->lane % 4;
    for (int i = 0; i < matrices; ++i) {
        uint16_t(*matrix)[8] = rows + 8 * i;
        r[i] = transposed ? matrix[2 * t][g] | (uint32_t)matrix[2 * t + 1][g] << 16 : matrix[g][2 * t] | (uint32_t)matrix[g][2 * t + 1] << 16;
    }
}

} // namespace tl_emulator

#define TL_MMA(name, A, B, d, a, b) tl_emulator::mma<tl_emulator::A, tl_emulator::B>(d, a, b, "tl_mma_" name, __LINE__)
#define tl_mma_m16n8k16_bf16(d, a, b) TL_MMA("m16n8k16_bf16", Bf16, Bf16, d, a, b)
#define tl_mma_m16n8k16_f16(d, a, b) TL_MMA("m16n8k16_f16", F16, F16, d, a, b)
#define tl_mma_m16n8k8_tf32(d, a, b) TL_MMA("m16n8k8_tf32", Tf32, Tf32, d, a, b)
#define tl_mma_m16n8k32_s8(d, a, b) TL_MMA("m16n8k32_s8", S8, S8, d, a, b)
#define tl_mma_m16n8k32_u8(d, a, b) TL_MMA("m16n8k32_u8", U8, U8, d, a, b)
#define tl_mma_m16n8k32_u8_s8(d, a, b) TL_MMA("m16n8k32_u8_s8", U8, S8, d, a, b)
#define tl_mma_m16n8k32_s8_u8(d, a, b) TL_MMA("m16n8k32_s8_u8", S8, U8, d, a, b)

#define TL_LDMATRIX(name, n, transposed, r, row) tl_emulator::ldmatrix<n, transposed>(r, row, "tl_ldmatrix_" name, __LINE__)
#define tl_ldmatrix_x1(r, row) TL_LDMATRIX("x1", 1, false, r, row)
#define tl_ldmatrix_x2(r, row) TL_LDMATRIX("x2", 2, false, r, row)
#define tl_ldmatrix_x4(r, row) TL_LDMATRIX("x4", 4, false, r, row)
#define tl_ldmatrix_x1_trans(r, row) TL_LDMATRIX("x1_trans", 1, true, r, row)
#define tl_ldmatrix_x2_trans(r, row) TL_LDMATRIX("x2_trans", 2, true, r, row)
#define tl_ldmatrix_x4_trans(r, row) TL_LDMATRIX("x4_trans", 4, true, r, row)
