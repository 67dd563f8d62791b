// What kernel text is made of, for CUDA (NVRTC and nvcc, no headers). Text that keeps to these names also runs in the emulator.
//
// A kernel:
//
//     TL_KERNEL(256, 0) scale(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 N) {
//         tl_i64 i = (tl_i64)tl_block_x() * 256 + tl_thread_x();
//         if (i < N) y[i] = x[i] * 2.0f;
//     }
//
// Parameters are TL_IN(type) for what the kernel only reads, TL_OUT(type) for what it writes (and may read). Shared memory is an arena
// that arrays are placed in: TL_SHARED or TL_SHARED_DYNAMIC, then TL_SHARED_ARRAY. An access goes through `pointer[index]` or through
// the functions tl_load_…, tl_store_… and tl_copy_async_… of `pointer + offset`; the emulator watches all of them.
//
// Compile with -fmad=false: where a product and a sum are to be rounded once, the text says tl_fma_f32.

#define TL_FUNCTION static __device__ __forceinline__
#define TL_ALIGN(bytes) __align__(bytes)
#define TL_RESTRICT __restrict__
#define TL_UNROLL _Pragma("unroll")
#define TL_ROLLED _Pragma("unroll 1")

#include "types.h"
#include "vectors.h"

// ---------------------------------------------------------------- what the hardware converts and compares

#define TL_RSQRT_F32 rsqrtf
#define TL_RSQRT_F64 rsqrt

#define TL_HARDWARE_HALF
TL_FUNCTION tl_f32 tl_f32_from_f16(tl_f16 x) {
    tl_f32 result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
}
// Two numbers are converted at a time, one of which nobody needs: a multiprocessor does that four times as often as one by itself.
TL_FUNCTION tl_f16 tl_f16_from_f32(tl_f32 x) {
    tl_f16 result;
#if __CUDA_ARCH__ >= 800
    tl_u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    result.bits = (tl_u16)pair;
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
#endif
    return result;
}
TL_FUNCTION tl_bf16 tl_bf16_from_f32(tl_f32 x) {
    tl_bf16 result;
#if __CUDA_ARCH__ >= 800
    tl_u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    result.bits = (tl_u16)pair;
#else
    tl_u32 bits = tl_bits_f32(x);
    tl_u32 even = bits + 0x7fffu + ((bits >> 16) & 1u);
    result.bits = (tl_u16)(x != x ? (bits >> 16) | 0x40u : even >> 16);
#endif
    return result;
}

// By the power of two that the hardware has: off by less than 2^-17 before it is rounded to 16 bits, 0 below 2^-126.
#define TL_HARDWARE_EXP_16_BITS
TL_FUNCTION tl_f32 tl_exp_16_bits_f32(tl_f32 x) {
    tl_f32 result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
    return result;
}

// The ISA says of both that a NaN among the operands makes the result the canonical NaN, and that -0 is less than +0: what TL_FLOAT_EXTREMES
// does, but for which NaN it is (PTX ISA, min and max of floating point).
#if __CUDA_ARCH__ >= 800
#define TL_HARDWARE_EXTREMES_F32
TL_FUNCTION tl_f32 tl_min_f32(tl_f32 x, tl_f32 y) {
    tl_f32 result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
TL_FUNCTION tl_f32 tl_max_f32(tl_f32 x, tl_f32 y) {
    tl_f32 result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
}
#endif

#include "scalar.h"

// ---------------------------------------------------------------- kernels, blocks, threads

// `min_blocks` blocks are wanted on a multiprocessor at a time; 0: no wish.
#define TL_KERNEL(threads, min_blocks) extern "C" __global__ void __launch_bounds__(threads, min_blocks)
#define TL_IN(type) const type* TL_RESTRICT
#define TL_OUT(type) type* TL_RESTRICT
// The address of a parameter, for functions that this vocabulary does not know.
#define TL_RAW(parameter) (parameter)

TL_FUNCTION int tl_block_x() { return (int)blockIdx.x; }
TL_FUNCTION int tl_block_y() { return (int)blockIdx.y; }
TL_FUNCTION int tl_block_z() { return (int)blockIdx.z; }
TL_FUNCTION int tl_grid_x() { return (int)gridDim.x; }
TL_FUNCTION int tl_grid_y() { return (int)gridDim.y; }
TL_FUNCTION int tl_grid_z() { return (int)gridDim.z; }
TL_FUNCTION int tl_thread_x() { return (int)threadIdx.x; }
TL_FUNCTION int tl_thread_y() { return (int)threadIdx.y; }
TL_FUNCTION int tl_thread_z() { return (int)threadIdx.z; }

// A warp is 32 threads that follow each other, x first, then y, then z.
TL_FUNCTION int tl_thread() { return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)); }
TL_FUNCTION int tl_lane() { return tl_thread() & 31; }
TL_FUNCTION int tl_warp() { return tl_thread() >> 5; }

// All threads of the block, all lanes of the warp: every one reaches the same barrier, or none does.
TL_FUNCTION void tl_barrier() { __syncthreads(); }
TL_FUNCTION void tl_warp_barrier() { __syncwarp(); }

// The value of the lane whose number differs by `mask`, among `width` lanes that follow each other. All lanes of the warp take part.
#define TL_SHUFFLE(name) \
    TL_FUNCTION tl_##name tl_shuffle_xor_##name(tl_##name value, int mask, int width) { \
        return __shfl_xor_sync(0xffffffffu, value, mask, width); \
    }
TL_SHUFFLE(f32)
TL_SHUFFLE(f64)
TL_SHUFFLE(i32)
TL_SHUFFLE(u32)
TL_SHUFFLE(i64)
TL_SHUFFLE(u64)

// The first code stays.
TL_FUNCTION void tl_fail(tl_i32* status, tl_i32 code) { atomicCAS(status, 0, code); }
// Whether a launch before this one has written a code.
TL_FUNCTION bool tl_failed(const tl_i32* status) { return *status != 0; }

// ---------------------------------------------------------------- memory

// An arena of shared memory at 1024 bytes, and an array of `count` elements in it, `offset` bytes from its start.
#define TL_SHARED(name, bytes) __shared__ TL_ALIGN(1024) unsigned char name[bytes]
#define TL_SHARED_DYNAMIC(name) extern __shared__ TL_ALIGN(1024) unsigned char name[]
#define TL_SHARED_ARRAY(type, name, arena, offset, count) type* const name = (type*)((arena) + (offset))

// One access of n elements; the address is a multiple of their size together.
#define TL_VECTOR_ACCESS(name, n) \
    TL_FUNCTION tl_##name##x##n tl_load_##name##x##n(const tl_##name* p) { return *(const tl_##name##x##n*)p; } \
    TL_FUNCTION void tl_store_##name##x##n(tl_##name* p, tl_##name##x##n value) { *(tl_##name##x##n*)p = value; }
TL_EACH_VECTOR(TL_VECTOR_ACCESS)

// ---------------------------------------------------------------- asynchronous copies from global to shared memory

// A copy of 4, 8 or 16 bytes may land at any time until the thread that began it has waited for its group; then that thread sees it, and
// others do after a barrier. `zfill` writes zeros, and reads nothing, where `present` is false. TL_COPY_WAIT(n) waits until at most
// the n groups committed last are under way.
#if __CUDA_ARCH__ >= 800
#define TL_COPY_ASYNC(bytes, cached) \
    TL_FUNCTION void tl_copy_async_zfill_##bytes(void* to, const void* from, bool present) { \
        asm volatile("cp.async." cached ".shared.global [%0], [%1], " #bytes ", %2;" \
                     :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from)), "r"(present ? bytes : 0) \
                     : "memory"); \
    } \
    TL_FUNCTION void tl_copy_async_##bytes(void* to, const void* from) { \
        asm volatile("cp.async." cached ".shared.global [%0], [%1], " #bytes ";" \
                     :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from)) \
                     : "memory"); \
    }
TL_COPY_ASYNC(4, "ca")
TL_COPY_ASYNC(8, "ca")
TL_COPY_ASYNC(16, "cg")
TL_FUNCTION void tl_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define TL_COPY_WAIT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
#else
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
#endif
