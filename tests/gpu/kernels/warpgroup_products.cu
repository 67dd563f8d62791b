TL_KERNEL(384, 1) warpgroup_products(TL_OUT(tl_f32) y, TL_TENSOR_MAP(x_map), TL_TENSOR_MAP(w_map), tl_i64 M, tl_i64 N, tl_i64 K) {
    TL_SHARED_DYNAMIC(arena);
    TL_SHARED_ARRAY(tl_bf16, x_s, arena, 0, 3 * 8192);
    TL_SHARED_ARRAY(tl_bf16, w_s, arena, 49152, 3 * 4096);
    TL_SHARED_ARRAY(tl_u64, full, arena, 73728, 3);
    TL_SHARED_ARRAY(tl_u64, empty, arena, 73752, 3);
    const int t = tl_thread_x(), group = t / 128;
    const int i0 = tl_block_y() * 128, j0 = tl_block_x() * 64, steps = (int)((K + 63) / 64);
    if (t == 0) {
        for (int s = 0; s < 3; ++s) {
            tl_mbarrier_init(full + s, 1);
            tl_mbarrier_init(empty + s, 2);
        }
        tl_mbarrier_init_fence();
    }
    tl_barrier();
    if (group == 2) {
        TL_FEWER_REGISTERS(40);
        if (t == 256) {
            for (int k = 0; k < steps; ++k) {
                const int s = k % 3;
                tl_mbarrier_wait(empty + s, (k / 3 + 1) % 2);
                tl_mbarrier_expect(full + s, 24576);
                tl_tma_load_2d(x_s + s * 8192, x_map, k * 64, i0, full + s);
                tl_tma_load_2d(w_s + s * 4096, w_map, k * 64, j0, full + s);
            }
        }
    } else {
        TL_MORE_REGISTERS(232);
        tl_f32 d[32];
        for (int k = 0; k < steps; ++k) {
            const int s = k % 3;
            tl_mbarrier_wait(full + s, k / 3 % 2);
            const tl_u64 a = tl_descriptor(x_s + (s * 8192 + group * 4096), 16, 1024, 128), b = tl_descriptor(w_s + s * 4096, 16, 1024, 128);
            tl_wgmma_fence();
            TL_UNROLL
            for (int kk = 0; kk < 4; ++kk) tl_wgmma_m64n64k16_bf16(d, a + kk * 2, b + kk * 2, k + kk > 0);
            tl_wgmma_commit();
            TL_WGMMA_WAIT(1);
            if (k > 0 && t % 128 == 0) tl_mbarrier_arrive(empty + (k - 1) % 3);
        }
        TL_WGMMA_WAIT(0);
        const int row = i0 + group * 64 + t % 128 / 32 * 16 + t % 32 / 4;
        TL_UNROLL
        for (int j = 0; j < 8; ++j) {
            TL_UNROLL
            for (int r = 0; r < 4; ++r) {
                const tl_i64 i = row + r / 2 * 8, c = j0 + j * 8 + t % 4 * 2 + r % 2;
                if (i < M && c < N) y[i * N + c] = d[j * 4 + r];
            }
        }
    }
}
