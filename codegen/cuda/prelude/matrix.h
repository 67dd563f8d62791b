// Products of small matrices by a warp, from registers to registers (mma.sync), and what fills the registers (ldmatrix). sm_80 and later.
//
// Every lane of the warp holds a part of each matrix; with g = lane / 4 and t = lane % 4, and e elements in 32 bits:
//
//     d[16, 8]      d[0], d[1]: row g, columns 2t, 2t + 1        d[2], d[3]: row g + 8
//     a[16, 8 e]    a[r]: row g + 8 (r % 2), columns e t … e t + e - 1 of the (r / 2)-th four words of a row
//     b[8, 8 e]     b[r]: row g, columns e t … e t + e - 1 of the r-th four words; the product is with b transposed
//
// All lanes come to the same call. The lowest bits hold the first element.

// ---------------------------------------------------------------- two elements in 32 bits, in registers

TL_FUNCTION tl_u32 tl_pack_bf16x2(tl_bf16 low, tl_bf16 high) { return (tl_u32)low.bits | ((tl_u32)high.bits << 16); }
TL_FUNCTION tl_u32 tl_pack_f16x2(tl_f16 low, tl_f16 high) { return (tl_u32)low.bits | ((tl_u32)high.bits << 16); }
TL_FUNCTION tl_bf16 tl_low_bf16x2(tl_u32 x) { tl_bf16 result; result.bits = (tl_u16)x; return result; }
TL_FUNCTION tl_bf16 tl_high_bf16x2(tl_u32 x) { tl_bf16 result; result.bits = (tl_u16)(x >> 16); return result; }
TL_FUNCTION tl_f16 tl_low_f16x2(tl_u32 x) { tl_f16 result; result.bits = (tl_u16)x; return result; }
TL_FUNCTION tl_f16 tl_high_f16x2(tl_u32 x) { tl_f16 result; result.bits = (tl_u16)(x >> 16); return result; }
TL_FUNCTION tl_u32 tl_pack_8x4(tl_u8 x, tl_u8 y, tl_u8 z, tl_u8 w) {
    return (tl_u32)x | ((tl_u32)y << 8) | ((tl_u32)z << 16) | ((tl_u32)w << 24);
}

#if __CUDA_ARCH__ >= 800
// Rounded to the nearest, ties to even; to tf32, whose lowest 13 bits are 0, ties away from zero.
TL_FUNCTION tl_u32 tl_round_bf16x2(tl_f32 low, tl_f32 high) {
    tl_u32 result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}
TL_FUNCTION tl_u32 tl_round_f16x2(tl_f32 low, tl_f32 high) {
    tl_u32 result;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}
TL_FUNCTION tl_u32 tl_round_tf32(tl_f32 x) {
    tl_u32 result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
    return result;
}
TL_FUNCTION tl_u32 tl_round_tf32_bits(tl_u32 x) { return tl_round_tf32(tl_f32_from_bits(x)); }

// ---------------------------------------------------------------- d += a * b

#define TL_MMA(name, shape, types, D, c)                                                                                               \
    TL_FUNCTION void tl_mma_##name(D* d, const tl_u32* a, const tl_u32* b) {                                                           \
        asm volatile("mma.sync.aligned." shape ".row.col." types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"               \
                     : "+" c(d[0]), "+" c(d[1]), "+" c(d[2]), "+" c(d[3])                                                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                              \
    }
TL_MMA(m16n8k16_bf16, "m16n8k16", "f32.bf16.bf16.f32", tl_f32, "f")
TL_MMA(m16n8k16_f16, "m16n8k16", "f32.f16.f16.f32", tl_f32, "f")
TL_MMA(m16n8k8_tf32, "m16n8k8", "f32.tf32.tf32.f32", tl_f32, "f") // of what was rounded to tf32
TL_MMA(m16n8k32_s8, "m16n8k32", "s32.s8.s8.s32", tl_i32, "r")     // sums wrap
TL_MMA(m16n8k32_u8, "m16n8k32", "s32.u8.u8.s32", tl_i32, "r")
TL_MMA(m16n8k32_u8_s8, "m16n8k32", "s32.u8.s8.s32", tl_i32, "r")
TL_MMA(m16n8k32_s8_u8, "m16n8k32", "s32.s8.u8.s32", tl_i32, "r")

// ---------------------------------------------------------------- matrices of 8 rows of 16 bytes from shared memory

// Lane 8 i + j gives the address of row j of matrix i, a multiple of 16; r[i] becomes columns e t … of row g of matrix i. `_trans` is for
// elements of 16 bits: r[i] becomes rows 2t, 2t + 1 of column g. Addresses of other lanes are not read.
#define TL_LDMATRIX(name, modifiers, registers, address, ...)                                                                          \
    TL_FUNCTION void tl_ldmatrix_##name(tl_u32* r, const void* row) {                                                                  \
        asm volatile("ldmatrix.sync.aligned.m8n8." modifiers ".shared.b16 {" registers "}, [" address "];"                             \
                     : __VA_ARGS__ : "r"((tl_u32)__cvta_generic_to_shared(row)) : "memory");                                           \
    }
TL_LDMATRIX(x1, "x1", "%0", "%1", "=r"(r[0]))
TL_LDMATRIX(x2, "x2", "%0,%1", "%2", "=r"(r[0]), "=r"(r[1]))
TL_LDMATRIX(x4, "x4", "%0,%1,%2,%3", "%4", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
TL_LDMATRIX(x1_trans, "x1.trans", "%0", "%1", "=r"(r[0]))
TL_LDMATRIX(x2_trans, "x2.trans", "%0,%1", "%2", "=r"(r[0]), "=r"(r[1]))
TL_LDMATRIX(x4_trans, "x4.trans", "%0,%1,%2,%3", "%4", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
#endif
