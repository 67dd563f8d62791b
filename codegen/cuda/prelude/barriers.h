// Barriers in shared memory, barriers of some of the threads, clusters of blocks, and fences. sm_90 and later.
//
// A barrier in shared memory (a tl_u64 of a TL_SHARED_ARRAY) goes from phase to phase, 0, 1, 2, …: a phase is complete when all the arrivals
// that the barrier was made for have come in it, and all the bytes that were expected of bulk copies. Who waits names the phase by its
// parity, 0 or 1, and goes on when the barrier is in a phase of the other parity: of the one before the first the parity is 1. What
// threads do before they arrive, and what bulk copies write, is seen by who has waited.

// By one thread, before others use it: then tl_mbarrier_init_fence, then a barrier of the block (of the cluster, if others arrive).
TL_FUNCTION void tl_mbarrier_init(tl_u64* b, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"((tl_u32)__cvta_generic_to_shared(b)), "r"(arrivals) : "memory");
}
TL_FUNCTION void tl_mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
TL_FUNCTION void tl_mbarrier_arrive(tl_u64* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"((tl_u32)__cvta_generic_to_shared(b)) : "memory");
}
// Arrives, and has this phase wait for so many bytes more.
TL_FUNCTION void tl_mbarrier_expect(tl_u64* b, tl_u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"((tl_u32)__cvta_generic_to_shared(b)), "r"(bytes) : "memory");
}
TL_FUNCTION void tl_mbarrier_wait(tl_u64* b, tl_u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" :: "r"((tl_u32)__cvta_generic_to_shared(b)), "r"(parity) : "memory");
}
// At the barrier in the same place of another block of the cluster, by its number there.
TL_FUNCTION void tl_mbarrier_arrive_at(tl_u64* b, int block) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
                 "}" :: "r"((tl_u32)__cvta_generic_to_shared(b)), "r"(block) : "memory");
}

// Barrier `number` (1 to 15) of `threads` threads, whole warps: a barrier for those who wait; others arrive and go on.
TL_FUNCTION void tl_named_barrier(int number, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(threads) : "memory"); }
TL_FUNCTION void tl_named_barrier_arrive(int number, int threads) { asm volatile("bar.arrive %0, %1;" :: "r"(number), "r"(threads) : "memory"); }

// Blocks of a cluster run at the same time. All threads of all of them meet in tl_cluster_barrier.
#define TL_CLUSTER(x, y, z) __cluster_dims__(x, y, z)
TL_FUNCTION void tl_cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
TL_FUNCTION int tl_cluster_rank() {
    tl_u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}

// What threads wrote to shared memory is seen by bulk copies and by products from shared memory that follow, of this thread and, after
// a barrier, of others.
TL_FUNCTION void tl_async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The threads of four warps give registers back, or wait until they can have more: `n` each, from 24 to 240 by eights.
#define TL_MORE_REGISTERS(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(n))
#define TL_FEWER_REGISTERS(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(n))
