TL_KERNEL(384, 1) wide_0(TL_OUT(tl_bf16) y, TL_TENSOR_MAP(a_map), TL_TENSOR_MAP(b_map)) {
    TL_SHARED_DYNAMIC(shared);
    TL_SHARED_ARRAY(tl_bf16, a_pack, shared, 0, 32768);
    TL_SHARED_ARRAY(tl_bf16, b_pack, shared, 65536, 65536);
    TL_SHARED_ARRAY(tl_u64, full, shared, 196608, 4);
    TL_SHARED_ARRAY(tl_u64, empty, shared, 196640, 4);
    const int thread = tl_thread_x();
    const int b_1 = tl_block_x();
    if (thread == 0) {
        tl_mbarrier_init(full + 0, 1);
        tl_mbarrier_init(full + 1, 1);
        tl_mbarrier_init(full + 2, 1);
        tl_mbarrier_init(full + 3, 1);
        tl_mbarrier_init(empty + 0, 8);
        tl_mbarrier_init(empty + 1, 8);
        tl_mbarrier_init(empty + 2, 8);
        tl_mbarrier_init(empty + 3, 8);
        tl_mbarrier_init_fence();
    }
    tl_barrier();
    if (thread >= 256) {
        TL_FEWER_REGISTERS(40);
        if (thread < 288 && tl_elect()) {
            TL_ROLLED
            for (int turn = 0; turn < tl_floordiv_i32(115 - b_1, 132) + 4; ++turn) {
                TL_ROLLED
                for (int y_ko = 0; y_ko < 16; ++y_ko) {
                    tl_mbarrier_wait(empty + y_ko % 4, (y_ko / 4 + 1) % 2);
                    tl_mbarrier_expect(full + y_ko % 4, 49152);
                    tl_tma_load_2d(a_pack + 8192 * (y_ko % 4), a_map, 64 * y_ko, 128 * ((132 * turn + b_1) / 16), full + y_ko % 4);
                    tl_tma_load_2d(b_pack + 16384 * (y_ko % 4), b_map, 64 * y_ko, 256 * ((4 * turn + b_1) % 16), full + y_ko % 4);
                }
            }
        }
    }
    else {
        TL_MORE_REGISTERS(232);
        for (int turn = 0; turn < tl_floordiv_i32(115 - b_1, 132) + 4; ++turn) {
            tl_f32 y_0_acc[128];
            {
                const int y_iw = thread / 128;
                {
                    const int w = thread / 32 % 4;
                    {
                        const int g = thread / 4 % 8;
                        {
                            const int t = thread % 4;
                            TL_UNROLL
                            for (int y_ni_r = 0; y_ni_r < 32; ++y_ni_r) {
                                TL_UNROLL
                                for (int y_mi_r = 0; y_mi_r < 2; ++y_mi_r) {
                                    TL_UNROLL
                                    for (int y_ni_r_1 = 0; y_ni_r_1 < 2; ++y_ni_r_1) {
                                        y_0_acc[4 * y_ni_r + 2 * y_mi_r + y_ni_r_1] = 0.0f;
                                    }
                                }
                            }
                        }
                    }
                }
            }
            for (int y_ko = 0; y_ko < 16; ++y_ko) {
                tl_mbarrier_wait(full + y_ko % 4, y_ko / 4 % 2);
                tl_wgmma_fence();
                {
                    const int y_iw = thread / 128;
                    {
                        const int w_1 = thread / 32 % 4;
                        {
                            const int g_1 = thread / 4 % 8;
                            {
                                const int t_1 = thread % 4;
                                TL_UNROLL
                                for (int y_kf = 0; y_kf < 4; ++y_kf) {
                                    tl_wgmma_m64n256k16_bf16(y_0_acc, tl_descriptor(a_pack + 8192 * (y_ko % 4) + 4096 * y_iw + 16 * y_kf, 16, 1024, 128), tl_descriptor(b_pack + 16384 * (y_ko % 4) + 16 * y_kf, 16, 1024, 128), 1);
                                }
                            }
                        }
                    }
                }
                tl_wgmma_commit();
                TL_WGMMA_WAIT(1);
                if (y_ko > 0) {
                    tl_warp_barrier();
                    if (thread % 32 == 0) {
                        tl_mbarrier_arrive(empty + (y_ko + 3) % 4);
                    }
                }
            }
            TL_WGMMA_WAIT(0);
            tl_warp_barrier();
            if (thread % 32 == 0) {
                tl_mbarrier_arrive(empty + 3);
            }
            {
                const int y_iw = thread / 128;
                {
                    const int w_2 = thread / 32 % 4;
                    {
                        const int g_2 = thread / 4 % 8;
                        {
                            const int t_2 = thread % 4;
                            TL_UNROLL
                            for (int y_ni_r_2 = 0; y_ni_r_2 < 32; ++y_ni_r_2) {
                                TL_UNROLL
                                for (int y_mi_r_1 = 0; y_mi_r_1 < 2; ++y_mi_r_1) {
                                    tl_bf16x2 y_v;
                                    TL_UNROLL
                                    for (int lane = 0; lane < 2; ++lane) {
                                        const int y_ni_r_3 = lane;
                                        y_v.v[lane] = tl_bf16_from_f32(tl_max_f32(y_0_acc[4 * y_ni_r_2 + 2 * y_mi_r_1 + y_ni_r_3], 0.0f));
                                    }
                                    tl_store_bf16x2(y + 524288 * ((132 * turn + b_1) / 16) + 262144 * y_iw + 65536 * w_2 + 32768 * y_mi_r_1 + 4096 * g_2 + 256 * ((4 * turn + b_1) % 16) + 8 * y_ni_r_2 + 2 * t_2, y_v);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
