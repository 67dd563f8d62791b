TL_KERNEL(32, 16) kernel_0(TL_IN(tl_f32) x, TL_OUT(tl_f32) y) {
    const int thread = tl_thread_x();
    const int y_fb = tl_block_x();
    tl_f32 x_pack[4][4];
    tl_f32 m;
    tl_f32 e[4][4];
    tl_f32 r;
    TL_UNROLL
    for (int x_pack_jo = 0; x_pack_jo < 4; ++x_pack_jo) {
        {
            const int x_pack_jl = thread;
            const tl_f32x4 x_v = tl_load_f32x4(x + 512 * y_fb + 128 * x_pack_jo + 4 * x_pack_jl);
            TL_UNROLL
            for (int lane = 0; lane < 4; ++lane) {
                const int x_pack_jv = lane;
                x_pack[x_pack_jo][x_pack_jv] = x_v.v[lane];
            }
        }
    }
    tl_f32 m_0_acc;
    m_0_acc = (-TL_INF_F32);
    tl_f32 own;
    {
        const int m_rl_1 = thread;
        own = (-TL_INF_F32);
    }
    {
        const int m_rl = thread;
        TL_UNROLL
        for (int m_ro = 0; m_ro < 4; ++m_ro) {
            TL_UNROLL
            for (int m_rv = 0; m_rv < 4; ++m_rv) {
                own = tl_max_f32(own, x_pack[m_ro][m_rv]);
            }
        }
    }
    {
        const int m_rl_2 = thread;
        tl_f32 part = own;
        part = tl_max_f32(part, tl_shuffle_xor_f32(part, 16, 32));
        part = tl_max_f32(part, tl_shuffle_xor_f32(part, 8, 32));
        part = tl_max_f32(part, tl_shuffle_xor_f32(part, 4, 32));
        part = tl_max_f32(part, tl_shuffle_xor_f32(part, 2, 32));
        part = tl_max_f32(part, tl_shuffle_xor_f32(part, 1, 32));
        m_0_acc = tl_max_f32(m_0_acc, part);
    }
    m = m_0_acc;
    TL_UNROLL
    for (int e_jo = 0; e_jo < 4; ++e_jo) {
        {
            const int e_jl = thread;
            TL_UNROLL
            for (int e_jv = 0; e_jv < 4; ++e_jv) {
                e[e_jo][e_jv] = tl_exp_f32(x_pack[e_jo][e_jv] - m);
            }
        }
    }
    tl_f32 r_0_acc;
    r_0_acc = 0.0f;
    tl_f32 own_1;
    {
        const int r_rl_1 = thread;
        own_1 = 0.0f;
    }
    {
        const int r_rl = thread;
        TL_UNROLL
        for (int r_ro = 0; r_ro < 4; ++r_ro) {
            TL_UNROLL
            for (int r_rv = 0; r_rv < 4; ++r_rv) {
                own_1 = own_1 + e[r_ro][r_rv];
            }
        }
    }
    {
        const int r_rl_2 = thread;
        tl_f32 part_1 = own_1;
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 16, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 8, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 4, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 2, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 1, 32);
        r_0_acc = r_0_acc + part_1;
    }
    r = 1.0f / r_0_acc;
    TL_UNROLL
    for (int y_jo = 0; y_jo < 4; ++y_jo) {
        {
            const int y_jl = thread;
            tl_f32x4 y_v;
            TL_UNROLL
            for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
                const int y_jv = lane_1;
                y_v.v[lane_1] = e[y_jo][y_jv] * r;
            }
            tl_store_f32x4(y + 512 * y_fb + 128 * y_jo + 4 * y_jl, y_v);
        }
    }
}
