TL_KERNEL(64, 0) TL_CLUSTER(2, 1, 1) multicast(TL_OUT(tl_f32) y, TL_TENSOR_MAP(x_map), TL_TENSOR_MAP(y_map), tl_i64 T) {
    TL_SHARED(arena, 2320);
    TL_SHARED_ARRAY(tl_f32, x_s, arena, 0, 2 * 128);
    TL_SHARED_ARRAY(tl_f32, y_s, arena, 1024, 320);
    TL_SHARED_ARRAY(tl_u64, full, arena, 2304, 1);
    TL_SHARED_ARRAY(tl_u64, empty, arena, 2312, 1);
    const int t = tl_thread_x(), rank = tl_cluster_rank();
    if (t == 0) {
        tl_mbarrier_init(full, 1);
        tl_mbarrier_init(empty, 4);
        tl_mbarrier_init_fence();
    }
    tl_cluster_barrier();
    tl_f32 sum = 0.0f;
    for (int k = 0; k < (int)T; ++k) {
        if (t == 0) {
            tl_mbarrier_wait(empty, (k + 1) % 2);
            tl_mbarrier_expect(full, 1024);
            tl_tma_multicast_2d(x_s + rank * 128, x_map, 0, k * 8 + rank * 4, full, 3);
        }
        tl_mbarrier_wait(full, k % 2);
        for (int r = 0; r < 4; ++r) sum += x_s[(rank * 4 + r) * 32 + t % 32] * (t < 32 ? 1.0f : 2.0f) + x_s[((1 - rank) * 4 + r) * 32 + t % 32];
        tl_warp_barrier();
        if (t % 32 == 0) {
            tl_mbarrier_arrive_at(empty, 0);
            tl_mbarrier_arrive_at(empty, 1);
        }
    }
    y_s[t] = sum;
    tl_async_fence();
    tl_named_barrier(1, 64);
    if (t == 0) {
        tl_tma_store_2d(y_map, 0, tl_block_x(), y_s);
        tl_tma_store_commit();
        TL_TMA_STORE_WAIT(0);
    }
    tl_cluster_barrier();
}
