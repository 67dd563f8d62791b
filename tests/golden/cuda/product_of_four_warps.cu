TL_KERNEL(128, 4) dense_0(TL_IN(tl_f32) bias, TL_IN(tl_bf16) r, TL_OUT(tl_bf16) y, TL_TENSOR_MAP(a_map), TL_TENSOR_MAP(b_map)) {
    TL_SHARED_DYNAMIC(shared);
    TL_SHARED_ARRAY(tl_bf16, a_pack, shared, 0, 16384);
    TL_SHARED_ARRAY(tl_bf16, b_pack, shared, 32768, 16384);
    TL_SHARED_ARRAY(tl_u64, full, shared, 65536, 4);
    const int thread = tl_thread_x();
    const int y_ig = tl_block_z();
    const int y_jo = tl_block_y();
    const int y_il = tl_block_x();
    tl_f32 y_0_acc[32];
    {
        const int w = thread / 32;
        {
            const int g = thread / 4 % 8;
            {
                const int t = thread % 4;
                TL_UNROLL
                for (int y_jr_1_1_r = 0; y_jr_1_1_r < 8; ++y_jr_1_1_r) {
                    TL_UNROLL
                    for (int y_ir_1_1_r = 0; y_ir_1_1_r < 2; ++y_ir_1_1_r) {
                        TL_UNROLL
                        for (int y_jr_1_1_r_1 = 0; y_jr_1_1_r_1 < 2; ++y_jr_1_1_r_1) {
                            y_0_acc[4 * y_jr_1_1_r + 2 * y_ir_1_1_r + y_jr_1_1_r_1] = 0.0f;
                        }
                    }
                }
            }
        }
    }
    if (thread == 0) {
        tl_mbarrier_init(full + 0, 1);
        tl_mbarrier_init(full + 1, 1);
        tl_mbarrier_init(full + 2, 1);
        tl_mbarrier_init(full + 3, 1);
        tl_mbarrier_init_fence();
    }
    tl_barrier();
    if (thread == 0) {
        tl_mbarrier_expect(full + 0, 16384);
        tl_tma_load_2d(a_pack + 0, a_map, 0, 64 * y_il, full + 0);
        tl_tma_load_2d(b_pack + 0, b_map, 0, 64 * y_jo, full + 0);
    }
    if (thread == 0) {
        tl_mbarrier_expect(full + 1, 16384);
        tl_tma_load_2d(a_pack + 4096, a_map, 64, 64 * y_il, full + 1);
        tl_tma_load_2d(b_pack + 4096, b_map, 64, 64 * y_jo, full + 1);
    }
    for (int y_co = 0; y_co < 5; ++y_co) {
        tl_mbarrier_wait(full + y_co % 4, y_co / 4);
        tl_barrier();
        if (y_co + 2 < 5) {
            if (thread == 0) {
                tl_mbarrier_expect(full + (y_co + 2) % 4, 16384);
                tl_tma_load_2d(a_pack + 4096 * ((y_co + 2) % 4), a_map, 64 * y_co + 128, 64 * y_il, full + (y_co + 2) % 4);
                tl_tma_load_2d(b_pack + 4096 * ((y_co + 2) % 4), b_map, 64 * y_co + 128, 64 * y_jo, full + (y_co + 2) % 4);
            }
        }
        tl_wgmma_fence();
        {
            const int w_1 = thread / 32;
            {
                const int g_1 = thread / 4 % 8;
                {
                    const int t_1 = thread % 4;
                    TL_UNROLL
                    for (int y_cf = 0; y_cf < 4; ++y_cf) {
                        tl_wgmma_m64n64k16_bf16(y_0_acc, tl_descriptor(a_pack + 4096 * (y_co % 4) + 16 * y_cf, 16, 1024, 128), tl_descriptor(b_pack + 4096 * (y_co % 4) + 16 * y_cf, 16, 1024, 128), 1);
                    }
                }
            }
        }
        tl_wgmma_commit();
        TL_WGMMA_WAIT(1);
    }
    TL_WGMMA_WAIT(0);
    {
        const int w_2 = thread / 32;
        {
            const int g_2 = thread / 4 % 8;
            {
                const int t_2 = thread % 4;
                TL_UNROLL
                for (int y_jr_1_3_r = 0; y_jr_1_3_r < 8; ++y_jr_1_3_r) {
                    TL_UNROLL
                    for (int y_ir_1_3_r = 0; y_ir_1_3_r < 2; ++y_ir_1_3_r) {
                        if (16 * w_2 + 8 * y_ir_1_3_r + g_2 < tl_min_i32(64, 200 - 64 * y_il)) {
                            if (8 * y_jr_1_3_r + 2 * t_2 < tl_min_i32(64, 136 - 64 * y_jo)) {
                                const tl_f32x2 bias_v = tl_load_f32x2(bias + 64 * y_jo + 8 * y_jr_1_3_r + 2 * t_2);
                                const tl_bf16x2 r_v = tl_load_bf16x2(r + 8704 * y_il + 2176 * w_2 + 1088 * y_ir_1_3_r + 136 * g_2 + 64 * y_jo + 8 * y_jr_1_3_r + 2 * t_2);
                                tl_bf16x2 y_v;
                                TL_UNROLL
                                for (int lane = 0; lane < 2; ++lane) {
                                    const int y_jr_1_3_r_1 = lane;
                                    y_v.v[lane] = tl_bf16_from_f32(tl_max_f32(y_0_acc[4 * y_jr_1_3_r + 2 * y_ir_1_3_r + y_jr_1_3_r_1] + bias_v.v[lane], 0.0f) + tl_f32_from_bf16(r_v.v[lane]));
                                }
                                tl_store_bf16x2(y + 8704 * y_il + 2176 * w_2 + 1088 * y_ir_1_3_r + 136 * g_2 + 64 * y_jo + 8 * y_jr_1_3_r + 2 * t_2, y_v);
                            }
                        }
                    }
                }
            }
        }
    }
}
