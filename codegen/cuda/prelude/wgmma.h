// Products by four warps (a warpgroup) of matrices in shared memory: sm_90a alone.
//
//     tl_wgmma_m64n<N>k<K>_<type>(d, a, b, adds)        d[64, N] = a[64, K] * b[N, K]^T, + d where `adds`, which all threads agree on
//
// for bf16 and f16 (K = 16, N = 8, 16, …, 256, f32 sums), tf32 (K = 8), s8 and u8 (K = 32, i32 sums). Thread t of the warpgroup has in d[]:
//
//     d[4 j + r]      row 16 (t / 32) + t % 32 / 4 + 8 (r / 2), column 8 j + 2 (t % 4) + r % 2
//
// `a` and `b` are descriptors, or `a` is what tl_mma_… takes of the 16 rows of each warp, in registers (…_register_a). Both lie along K;
// …_transposed_a and …_transposed_b are for those of 16 bits that lie along M or N.
//
// A descriptor says where a matrix begins and how its parts follow each other: tl_descriptor(start, leading, stride, swizzle), in bytes.
//
//     along K, swizzle s      rows of s bytes, 8 of them one after the other; `stride` from 8 rows to the next 8. The start of a step along K
//                             is in the first row. `leading` is not used.
//     along K, no swizzle     parts of 8 rows of 16 bytes; `stride` from 8 rows to the next 8, `leading` from 16 bytes of K to the next
//     transposed, swizzle s   8 of K, each s bytes of M or N; `stride` from 8 of K to the next 8, `leading` from s bytes to the next
//     transposed, no swizzle  8 of K, each 16 bytes of M or N; `leading` from 8 of K to the next 8, `stride` from 16 bytes to the next
//
// The pattern of a swizzle begins at a multiple of 8 s bytes of shared memory; a multiple of 16 bytes is added to a descriptor as sixteenths.
//
// Products go on while threads do: between tl_wgmma_fence and tl_wgmma_commit they are begun, and after TL_WGMMA_WAIT(n) all groups but
// the `n` committed last are done. Until then nobody touches their sums or writes their operands.

TL_FUNCTION tl_u64 tl_descriptor(const void* start, tl_u32 leading, tl_u32 stride, int swizzle) {
    const tl_u64 mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return (tl_u64)(((tl_u32)__cvta_generic_to_shared(start) & 0x3ffffu) >> 4) | (tl_u64)(leading >> 4) << 16 | (tl_u64)(stride >> 4) << 32
        | mode << 62;
}
TL_FUNCTION void tl_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TL_FUNCTION void tl_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define TL_WGMMA_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(n) : "memory")
