TL_KERNEL(128, 4) matmul_0_0(TL_IN(tl_bf16) a, TL_IN(tl_bf16) b, TL_OUT(tl_bf16) y) {
    TL_SHARED(shared, 24576);
    TL_SHARED_ARRAY(tl_bf16, a_pack, shared, 0, 6144);
    TL_SHARED_ARRAY(tl_bf16, b_pack, shared, 12288, 6144);
    const int thread = tl_thread_x();
    const int y_io = tl_block_y();
    const int y_jo = tl_block_x();
    tl_f32 y_0_acc[2][4][4];
    {
        const int y_iw_1_1_1 = thread / 64;
        {
            const int y_jw_1_1_1 = thread / 32 % 2;
            TL_UNROLL
            for (int y_im_1_1_1 = 0; y_im_1_1_1 < 2; ++y_im_1_1_1) {
                TL_UNROLL
                for (int y_jn_1_1_1 = 0; y_jn_1_1_1 < 4; ++y_jn_1_1_1) {
                    {
                        const int y_mi_1_l = thread / 4 % 8;
                        TL_UNROLL
                        for (int y_mi_1_r = 0; y_mi_1_r < 2; ++y_mi_1_r) {
                            {
                                const int y_ni_1_l = thread % 4;
                                TL_UNROLL
                                for (int y_ni_1_r = 0; y_ni_1_r < 2; ++y_ni_1_r) {
                                    y_0_acc[y_im_1_1_1][y_jn_1_1_1][2 * y_mi_1_r + y_ni_1_r] = 0.0f;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    TL_UNROLL
    for (int u_2_1 = 0; u_2_1 < 2; ++u_2_1) {
        {
            const int t_1_1_1 = thread;
            tl_copy_async_16(a_pack + ((1024 * u_2_1 + 8 * t_1_1_1) ^ (8 * (t_1_1_1 / 8 % 4))), a + 6144 * y_io + 3072 * u_2_1 + 96 * (t_1_1_1 / 4) + 8 * (t_1_1_1 % 4));
        }
    }
    TL_UNROLL
    for (int u_1_1_1 = 0; u_1_1_1 < 2; ++u_1_1_1) {
        {
            const int t_2_1_1 = thread;
            tl_copy_async_16(b_pack + ((1024 * u_1_1_1 + 8 * t_2_1_1) ^ (8 * (t_2_1_1 / 8 % 4))), b + 3072 * u_1_1_1 + 96 * (t_2_1_1 / 4) + 8 * (t_2_1_1 % 4));
        }
    }
    tl_copy_commit();
    TL_UNROLL
    for (int u_2_2 = 0; u_2_2 < 2; ++u_2_2) {
        {
            const int t_1_1_2 = thread;
            tl_copy_async_16(a_pack + ((1024 * u_2_2 + 8 * t_1_1_2 + 2048) ^ (8 * (t_1_1_2 / 8 % 4))), a + 6144 * y_io + 3072 * u_2_2 + 96 * (t_1_1_2 / 4) + 8 * (t_1_1_2 % 4) + 32);
        }
    }
    TL_UNROLL
    for (int u_1_1_2 = 0; u_1_1_2 < 2; ++u_1_1_2) {
        {
            const int t_2_1_2 = thread;
            tl_copy_async_16(b_pack + ((1024 * u_1_1_2 + 8 * t_2_1_2 + 2048) ^ (8 * (t_2_1_2 / 8 % 4))), b + 3072 * u_1_1_2 + 96 * (t_2_1_2 / 4) + 8 * (t_2_1_2 % 4) + 32);
        }
    }
    tl_copy_commit();
    for (int y_ko = 0; y_ko < 3; ++y_ko) {
        TL_COPY_WAIT(1);
        tl_barrier();
        if (y_ko + 2 < 3) {
            TL_UNROLL
            for (int u_2 = 0; u_2 < 2; ++u_2) {
                {
                    const int t_1_1 = thread;
                    tl_copy_async_16(a_pack + ((2048 * y_ko + 1024 * u_2 + 8 * t_1_1 + 4096) ^ (8 * (t_1_1 / 8 % 4))), a + 6144 * y_io + 3072 * u_2 + 96 * (t_1_1 / 4) + 32 * y_ko + 8 * (t_1_1 % 4) + 64);
                }
            }
            TL_UNROLL
            for (int u_1_1 = 0; u_1_1 < 2; ++u_1_1) {
                {
                    const int t_2_1 = thread;
                    tl_copy_async_16(b_pack + ((2048 * y_ko + 1024 * u_1_1 + 8 * t_2_1 + 4096) ^ (8 * (t_2_1 / 8 % 4))), b + 3072 * u_1_1 + 96 * (t_2_1 / 4) + 32 * y_ko + 8 * (t_2_1 % 4) + 64);
                }
            }
        }
        tl_copy_commit();
        {
            const int y_iw_1_1_1 = thread / 64;
            {
                const int y_jw_1_1_1 = thread / 32 % 2;
                TL_UNROLL
                for (int y_kf = 0; y_kf < 2; ++y_kf) {
                    tl_u32 a_pack_f[2][4];
                    TL_UNROLL
                    for (int y_im_1_1_1 = 0; y_im_1_1_1 < 2; ++y_im_1_1_1) {
                        {
                            const int l = thread % 32;
                            tl_ldmatrix_x4(a_pack_f[y_im_1_1_1], a_pack + ((2048 * y_ko + 1024 * y_iw_1_1_1 + 512 * y_im_1_1_1 + 256 * (l / 8 % 2) + 32 * (l % 8) + 16 * y_kf + 8 * (l / 16)) ^ (8 * (l % 8 / 2))));
                        }
                    }
                    tl_u32 b_pack_f[2][4];
                    TL_UNROLL
                    for (int y_jn_1_1_1 = 0; y_jn_1_1_1 < 2; ++y_jn_1_1_1) {
                        {
                            const int l_1 = thread % 32;
                            tl_ldmatrix_x4(b_pack_f[y_jn_1_1_1], b_pack + ((2048 * y_ko + 1024 * y_jw_1_1_1 + 512 * y_jn_1_1_1 + 256 * (l_1 / 16) + 32 * (l_1 % 8) + 16 * y_kf + 8 * (l_1 / 8 % 2)) ^ (8 * (l_1 % 8 / 2))));
                        }
                    }
                    {
                        const int g = thread / 4 % 8;
                        {
                            const int t = thread % 4;
                            TL_UNROLL
                            for (int y_im_1_1_1 = 0; y_im_1_1_1 < 2; ++y_im_1_1_1) {
                                TL_UNROLL
                                for (int y_jn_1_1_1 = 0; y_jn_1_1_1 < 4; ++y_jn_1_1_1) {
                                    tl_mma_m16n8k16_bf16(y_0_acc[y_im_1_1_1][y_jn_1_1_1], a_pack_f[y_im_1_1_1], b_pack_f[y_jn_1_1_1 / 2] + 2 * (y_jn_1_1_1 % 2));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    {
        const int y_iw_1_1_1 = thread / 64;
        {
            const int y_jw_1_1_1 = thread / 32 % 2;
            TL_UNROLL
            for (int y_im_1_1_1 = 0; y_im_1_1_1 < 2; ++y_im_1_1_1) {
                TL_UNROLL
                for (int y_jn_1_1_1 = 0; y_jn_1_1_1 < 4; ++y_jn_1_1_1) {
                    {
                        const int y_mi_1_l_1 = thread / 4 % 8;
                        TL_UNROLL
                        for (int y_mi_1_r_1 = 0; y_mi_1_r_1 < 2; ++y_mi_1_r_1) {
                            {
                                const int y_ni_1_l_1 = thread % 4;
                                tl_bf16x2 y_v;
                                TL_UNROLL
                                for (int lane_6 = 0; lane_6 < 2; ++lane_6) {
                                    const int y_ni_1_r_1 = lane_6;
                                    y_v.v[lane_6] = tl_bf16_from_f32(tl_max_f32(y_0_acc[y_im_1_1_1][y_jn_1_1_1][2 * y_mi_1_r_1 + y_ni_1_r_1], 0.0f));
                                }
                                tl_store_bf16x2(y + 4096 * y_io + 2048 * y_iw_1_1_1 + 1024 * y_im_1_1_1 + 512 * y_mi_1_r_1 + 64 * y_mi_1_l_1 + 32 * y_jw_1_1_1 + 8 * y_jn_1_1_1 + 2 * y_ni_1_l_1, y_v);
                            }
                        }
                    }
                }
            }
        }
    }
}
