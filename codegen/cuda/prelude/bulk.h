// Boxes of tensors copied in bulk between global and shared memory, asked for by one thread (TMA). sm_90 and later.
//
// A tensor map is a parameter, TL_TENSOR_MAP(name): where a tensor of up to five axes lies, the extents of a box, and a swizzle; the launch
// makes it. Coordinates are those of the first element of a box, the innermost first; what lies outside of the tensor is loaded as 0 and
// not stored. The box in shared memory starts at a multiple of 128 bytes, with a swizzle at a multiple of 8 times its bytes, and its
// bytes are exchanged by sixteens: in the address, bits 7 … are added to bits 4 …, 3 of them for 128 bytes, 2 for 64, 1 for 32.
//
// A load lands at any time until the barrier has counted its bytes. A multicast lands in the same place in each block of the cluster whose
// bit is set, and counts at the barrier in the same place there. A store reads shared memory at any time until the thread has waited for
// its group (TL_TMA_STORE_WAIT_READ), and is done after TL_TMA_STORE_WAIT; `n` groups committed last may still be under way.

// tl_elect() is true for one thread of a warp, always the same; all of them ask. The assembler then knows that boxes are asked for once, and
// does not look for the threads that do.

TL_FUNCTION bool tl_elect() {
    tl_u32 chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen != 0;
}

struct TL_ALIGN(64) tl_tensor_map { tl_u64 opaque[16]; };
#define TL_TENSOR_MAP(name) const __grid_constant__ tl_tensor_map name

TL_FUNCTION void tl_tma_load_1d(void* to, const tl_tensor_map& map, tl_i32 a, tl_u64* barrier) {
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)), "r"(a) : "memory");
}
TL_FUNCTION void tl_tma_multicast_1d(void* to, const tl_tensor_map& map, tl_i32 a, tl_u64* barrier, int blocks) {
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4}], [%2], %3;"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)),
                    "h"((tl_u16)blocks), "r"(a) : "memory");
}
TL_FUNCTION void tl_tma_store_1d(const tl_tensor_map& map, tl_i32 a, const void* from) {
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];"
                 :: "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(from)), "r"(a) : "memory");
}

TL_FUNCTION void tl_tma_load_2d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_u64* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)), "r"(a), "r"(b) : "memory");
}
TL_FUNCTION void tl_tma_multicast_2d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_u64* barrier, int blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)),
                    "h"((tl_u16)blocks), "r"(a), "r"(b) : "memory");
}
TL_FUNCTION void tl_tma_store_2d(const tl_tensor_map& map, tl_i32 a, tl_i32 b, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(from)), "r"(a), "r"(b) : "memory");
}

TL_FUNCTION void tl_tma_load_3d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_u64* barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)), "r"(a), "r"(b), "r"(c) : "memory");
}
TL_FUNCTION void tl_tma_multicast_3d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_u64* barrier, int blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)),
                    "h"((tl_u16)blocks), "r"(a), "r"(b), "r"(c) : "memory");
}
TL_FUNCTION void tl_tma_store_3d(const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, const void* from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :: "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(from)), "r"(a), "r"(b), "r"(c) : "memory");
}

TL_FUNCTION void tl_tma_load_4d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d, tl_u64* barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
TL_FUNCTION void tl_tma_multicast_4d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d, tl_u64* barrier, int blocks) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)),
                    "h"((tl_u16)blocks), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
TL_FUNCTION void tl_tma_store_4d(const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d, const void* from) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 :: "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(from)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

TL_FUNCTION void tl_tma_load_5d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d, tl_i32 e, tl_u64* barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e) : "memory");
}
TL_FUNCTION void tl_tma_multicast_5d(void* to, const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d, tl_i32 e, tl_u64* barrier, int blocks) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;"
                 :: "r"((tl_u32)__cvta_generic_to_shared(to)), "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(barrier)),
                    "h"((tl_u16)blocks), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e) : "memory");
}
TL_FUNCTION void tl_tma_store_5d(const tl_tensor_map& map, tl_i32 a, tl_i32 b, tl_i32 c, tl_i32 d, tl_i32 e, const void* from) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
                 :: "l"(&map), "r"((tl_u32)__cvta_generic_to_shared(from)), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e) : "memory");
}

TL_FUNCTION void tl_tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
#define TL_TMA_STORE_WAIT(n) asm volatile("cp.async.bulk.wait_group %0;" :: "n"(n) : "memory")
#define TL_TMA_STORE_WAIT_READ(n) asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(n) : "memory")
