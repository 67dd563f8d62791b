// What kernel text is made of, for HIP (clang with `-x hip`, no headers). `codegen/cuda/prelude/cuda.h` says what each name means; here is
// what AMD's devices do for it. Not here: products of matrices, boxes of tensors, clusters, registers dealt out anew.
//
// Compile with -ffp-contract=off: where a product and a sum are to be rounded once, the text says tl_fma_f32.
// TL_WARP is how many threads a warp has, 64 or 32: the text is written for it.

#if defined(__AMDGCN_WAVEFRONT_SIZE) && __AMDGCN_WAVEFRONT_SIZE != TL_WARP
#error "the text is written for warps of another width than this architecture has"
#endif

#define TL_DEVICE __attribute__((device))
#define TL_FUNCTION static inline TL_DEVICE __attribute__((always_inline))
#define TL_ALIGN(bytes) __attribute__((aligned(bytes)))
#define TL_RESTRICT __restrict__
#define TL_UNROLL _Pragma("unroll")
#define TL_ROLLED _Pragma("nounroll")

#include "types.h"
#include "vectors.h"

// ---------------------------------------------------------------- what the hardware converts, and AMD's library of device functions

#define TL_HARDWARE_HALF
TL_FUNCTION tl_f32 tl_f32_from_f16(tl_f16 x) {
    union { tl_u16 bits; _Float16 value; } u;
    u.bits = x.bits;
    return (tl_f32)u.value;
}
TL_FUNCTION tl_f16 tl_f16_from_f32(tl_f32 x) {
    union { _Float16 value; tl_u16 bits; } u;
    u.value = (_Float16)x;
    tl_f16 result = {u.bits};
    return result;
}
TL_FUNCTION tl_bf16 tl_bf16_from_f32(tl_f32 x) {
    tl_u32 bits = tl_bits_f32(x);
    tl_u32 even = bits + 0x7fffu + ((bits >> 16) & 1u);
    tl_bf16 result = {(tl_u16)(x != x ? (bits >> 16) | 0x40u : even >> 16)};
    return result;
}

#define TL_LIBRARY(name)                                                                                                               \
    extern "C" TL_DEVICE tl_f32 __ocml_##name##_f32(tl_f32);                                                                           \
    extern "C" TL_DEVICE tl_f64 __ocml_##name##_f64(tl_f64);
#define TL_LIBRARY_OF_TWO(name)                                                                                                        \
    extern "C" TL_DEVICE tl_f32 __ocml_##name##_f32(tl_f32, tl_f32);                                                                   \
    extern "C" TL_DEVICE tl_f64 __ocml_##name##_f64(tl_f64, tl_f64);
TL_LIBRARY(exp) TL_LIBRARY(exp2) TL_LIBRARY(expm1) TL_LIBRARY(log) TL_LIBRARY(log2) TL_LIBRARY(log1p) TL_LIBRARY(rsqrt) TL_LIBRARY(erf)
TL_LIBRARY(sin) TL_LIBRARY(cos) TL_LIBRARY(tan) TL_LIBRARY(asin) TL_LIBRARY(acos) TL_LIBRARY(atan)
TL_LIBRARY(sinh) TL_LIBRARY(cosh) TL_LIBRARY(tanh) TL_LIBRARY(asinh) TL_LIBRARY(acosh) TL_LIBRARY(atanh)
TL_LIBRARY_OF_TWO(pow) TL_LIBRARY_OF_TWO(fmod) TL_LIBRARY_OF_TWO(atan2)

// C's names stand for these while the scalar functions are made of them, and for nothing after that.
#define TL_RSQRT_F32 __ocml_rsqrt_f32
#define TL_RSQRT_F64 __ocml_rsqrt_f64
#define expf __ocml_exp_f32
#define exp __ocml_exp_f64
#define exp2f __ocml_exp2_f32
#define exp2 __ocml_exp2_f64
#define expm1f __ocml_expm1_f32
#define expm1 __ocml_expm1_f64
#define logf __ocml_log_f32
#define log __ocml_log_f64
#define log2f __ocml_log2_f32
#define log2 __ocml_log2_f64
#define log1pf __ocml_log1p_f32
#define log1p __ocml_log1p_f64
#define erff __ocml_erf_f32
#define erf __ocml_erf_f64
#define sinf __ocml_sin_f32
#define sin __ocml_sin_f64
#define cosf __ocml_cos_f32
#define cos __ocml_cos_f64
#define tanf __ocml_tan_f32
#define tan __ocml_tan_f64
#define asinf __ocml_asin_f32
#define asin __ocml_asin_f64
#define acosf __ocml_acos_f32
#define acos __ocml_acos_f64
#define atanf __ocml_atan_f32
#define atan __ocml_atan_f64
#define sinhf __ocml_sinh_f32
#define sinh __ocml_sinh_f64
#define coshf __ocml_cosh_f32
#define cosh __ocml_cosh_f64
#define tanhf __ocml_tanh_f32
#define tanh __ocml_tanh_f64
#define asinhf __ocml_asinh_f32
#define asinh __ocml_asinh_f64
#define acoshf __ocml_acosh_f32
#define acosh __ocml_acosh_f64
#define atanhf __ocml_atanh_f32
#define atanh __ocml_atanh_f64
#define powf __ocml_pow_f32
#define pow __ocml_pow_f64
#define fmodf __ocml_fmod_f32
#define fmod __ocml_fmod_f64
#define atan2f __ocml_atan2_f32
#define atan2 __ocml_atan2_f64
#define fabsf __builtin_fabsf
#define fabs __builtin_fabs
#define sqrtf __builtin_sqrtf
#define sqrt __builtin_sqrt
#define floorf __builtin_floorf
#define floor __builtin_floor
#define ceilf __builtin_ceilf
#define ceil __builtin_ceil
#define rintf __builtin_rintf
#define rint __builtin_rint
#define truncf __builtin_truncf
#define trunc __builtin_trunc
#define fmaf __builtin_fmaf
#define fma __builtin_fma
#include "scalar.h"
#undef expf
#undef exp
#undef exp2f
#undef exp2
#undef expm1f
#undef expm1
#undef logf
#undef log
#undef log2f
#undef log2
#undef log1pf
#undef log1p
#undef erff
#undef erf
#undef sinf
#undef sin
#undef cosf
#undef cos
#undef tanf
#undef tan
#undef asinf
#undef asin
#undef acosf
#undef acos
#undef atanf
#undef atan
#undef sinhf
#undef sinh
#undef coshf
#undef cosh
#undef tanhf
#undef tanh
#undef asinhf
#undef asinh
#undef acoshf
#undef acosh
#undef atanhf
#undef atanh
#undef powf
#undef pow
#undef fmodf
#undef fmod
#undef atan2f
#undef atan2
#undef fabsf
#undef fabs
#undef sqrtf
#undef sqrt
#undef floorf
#undef floor
#undef ceilf
#undef ceil
#undef rintf
#undef rint
#undef truncf
#undef trunc
#undef fmaf
#undef fma

// ---------------------------------------------------------------- kernels, blocks, threads

// How many blocks are wanted on a compute unit at a time is not said: clang takes as many registers as the block's size allows.
#define TL_KERNEL(threads, min_blocks) extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void
#define TL_IN(type) const type* TL_RESTRICT
#define TL_OUT(type) type* TL_RESTRICT

TL_FUNCTION int tl_block_x() { return (int)__builtin_amdgcn_workgroup_id_x(); }
TL_FUNCTION int tl_block_y() { return (int)__builtin_amdgcn_workgroup_id_y(); }
TL_FUNCTION int tl_block_z() { return (int)__builtin_amdgcn_workgroup_id_z(); }
TL_FUNCTION int tl_grid_x() { return (int)(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()); }
TL_FUNCTION int tl_grid_y() { return (int)(__builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y()); }
TL_FUNCTION int tl_grid_z() { return (int)(__builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z()); }
TL_FUNCTION int tl_thread_x() { return (int)__builtin_amdgcn_workitem_id_x(); }
TL_FUNCTION int tl_thread_y() { return (int)__builtin_amdgcn_workitem_id_y(); }
TL_FUNCTION int tl_thread_z() { return (int)__builtin_amdgcn_workitem_id_z(); }

// A warp is TL_WARP threads that follow each other, x first, then y, then z.
TL_FUNCTION int tl_thread() {
    int row = tl_thread_y() + (int)__builtin_amdgcn_workgroup_size_y() * tl_thread_z();
    return tl_thread_x() + (int)__builtin_amdgcn_workgroup_size_x() * row;
}
TL_FUNCTION int tl_lane() { return tl_thread() % TL_WARP; }
TL_FUNCTION int tl_warp() { return tl_thread() / TL_WARP; }

TL_FUNCTION void tl_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
TL_FUNCTION void tl_warp_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// What HIP's __shfl_xor is made of. No mask says who takes part: those do who come, and text comes with whole warps.
TL_FUNCTION tl_u32 tl_of_other_lane(tl_u32 value, int mask) {
    int self = (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    return (tl_u32)__builtin_amdgcn_ds_bpermute((self ^ mask) * 4, (int)value);
}
TL_FUNCTION tl_u64 tl_of_other_lane(tl_u64 value, int mask) {
    tl_u32 low = tl_of_other_lane((tl_u32)value, mask), high = tl_of_other_lane((tl_u32)(value >> 32), mask);
    return (tl_u64)high << 32 | low;
}
#define TL_SHUFFLE(name, bits)                                                                                                         \
    TL_FUNCTION tl_##name tl_shuffle_xor_##name(tl_##name value, int mask, int width) {                                                \
        union { tl_##name value; bits word; } u;                                                                                       \
        u.value = value;                                                                                                               \
        u.word = tl_of_other_lane(u.word, mask);                                                                                       \
        return u.value;                                                                                                                \
    }
TL_SHUFFLE(f32, tl_u32)
TL_SHUFFLE(f64, tl_u64)
TL_SHUFFLE(i32, tl_u32)
TL_SHUFFLE(u32, tl_u32)
TL_SHUFFLE(i64, tl_u64)
TL_SHUFFLE(u64, tl_u64)

// The first code stays.
TL_FUNCTION void tl_fail(tl_i32* status, tl_i32 code) {
    tl_i32 nothing = 0;
    __hip_atomic_compare_exchange_strong(status, &nothing, code, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
// Whether a launch before this one has written a code.
TL_FUNCTION bool tl_failed(const tl_i32* status) { return *status != 0; }

// ---------------------------------------------------------------- memory

#define TL_SHARED(name, bytes) __attribute__((shared)) TL_ALIGN(128) unsigned char name[bytes]
#define TL_SHARED_DYNAMIC(name) extern __attribute__((shared)) TL_ALIGN(128) unsigned char name[]
#define TL_SHARED_ARRAY(type, name, arena, offset, count) type* const name = (type*)((arena) + (offset))

#define TL_VECTOR_ACCESS(name, n) \
    TL_FUNCTION tl_##name##x##n tl_load_##name##x##n(const tl_##name* p) { return *(const tl_##name##x##n*)p; } \
    TL_FUNCTION void tl_store_##name##x##n(tl_##name* p, tl_##name##x##n value) { *(tl_##name##x##n*)p = value; }
TL_EACH_VECTOR(TL_VECTOR_ACCESS)

// Copies that CUDA makes beside the threads: here each thread makes its own at once.
#define TL_COPY_ASYNC(bytes, vector) \
    TL_FUNCTION void tl_copy_async_zfill_##bytes(void* to, const void* from, bool present) { \
        vector zero = {}; \
        *(vector*)to = present ? *(const vector*)from : zero; \
    } \
    TL_FUNCTION void tl_copy_async_##bytes(void* to, const void* from) { *(vector*)to = *(const vector*)from; }
TL_COPY_ASYNC(4, tl_u32)
TL_COPY_ASYNC(8, tl_u32x2)
TL_COPY_ASYNC(16, tl_u32x4)
TL_FUNCTION void tl_copy_commit() {}
#define TL_COPY_WAIT(n) ((void)0)
