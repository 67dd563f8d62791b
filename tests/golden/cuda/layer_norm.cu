TL_KERNEL(32, 16) kernel_0(TL_IN(tl_f32) x, TL_IN(tl_f32) g, TL_IN(tl_f32) b, TL_OUT(tl_f32) y) {
    const int thread = tl_thread_x();
    const int y_fb = tl_block_x();
    tl_f32 x_pack[6][4];
    tl_f32 mean;
    tl_f32 v;
    tl_f32 inv;
    TL_UNROLL
    for (int x_pack_jo = 0; x_pack_jo < 6; ++x_pack_jo) {
        {
            const int x_pack_jl = thread;
            const tl_f32x4 x_v = tl_load_f32x4(x + 768 * y_fb + 128 * x_pack_jo + 4 * x_pack_jl);
            TL_UNROLL
            for (int lane = 0; lane < 4; ++lane) {
                const int x_pack_jv = lane;
                x_pack[x_pack_jo][x_pack_jv] = x_v.v[lane];
            }
        }
    }
    tl_f32 mean_0_acc;
    mean_0_acc = 0.0f;
    tl_f32 own;
    {
        const int mean_rl_1 = thread;
        own = 0.0f;
    }
    {
        const int mean_rl = thread;
        TL_UNROLL
        for (int mean_ro = 0; mean_ro < 6; ++mean_ro) {
            TL_UNROLL
            for (int mean_rv = 0; mean_rv < 4; ++mean_rv) {
                own = own + x_pack[mean_ro][mean_rv];
            }
        }
    }
    {
        const int mean_rl_2 = thread;
        tl_f32 part = own;
        part = part + tl_shuffle_xor_f32(part, 16, 32);
        part = part + tl_shuffle_xor_f32(part, 8, 32);
        part = part + tl_shuffle_xor_f32(part, 4, 32);
        part = part + tl_shuffle_xor_f32(part, 2, 32);
        part = part + tl_shuffle_xor_f32(part, 1, 32);
        mean_0_acc = mean_0_acc + part;
    }
    mean = mean_0_acc / 768.0f;
    tl_f32 v_0_acc;
    v_0_acc = 0.0f;
    tl_f32 own_1;
    {
        const int v_rl_1 = thread;
        own_1 = 0.0f;
    }
    {
        const int v_rl = thread;
        TL_UNROLL
        for (int v_ro = 0; v_ro < 6; ++v_ro) {
            TL_UNROLL
            for (int v_rv = 0; v_rv < 4; ++v_rv) {
                const tl_f32 x_1 = x_pack[v_ro][v_rv] - mean;
                own_1 = own_1 + x_1 * x_1;
            }
        }
    }
    {
        const int v_rl_2 = thread;
        tl_f32 part_1 = own_1;
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 16, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 8, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 4, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 2, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 1, 32);
        v_0_acc = v_0_acc + part_1;
    }
    v = v_0_acc / 768.0f;
    inv = 1.0f / tl_sqrt_f32(v + 0x1.4f8b580000000p-17f);
    TL_UNROLL
    for (int y_jo = 0; y_jo < 6; ++y_jo) {
        {
            const int y_jl = thread;
            const tl_f32x4 g_v = tl_load_f32x4(g + 128 * y_jo + 4 * y_jl);
            const tl_f32x4 b_v = tl_load_f32x4(b + 128 * y_jo + 4 * y_jl);
            tl_f32x4 y_v;
            TL_UNROLL
            for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
                const int y_jv = lane_1;
                y_v.v[lane_1] = (x_pack[y_jo][y_jv] - mean) * inv * g_v.v[lane_1] + b_v.v[lane_1];
            }
            tl_store_f32x4(y + 768 * y_fb + 128 * y_jo + 4 * y_jl, y_v);
        }
    }
}
