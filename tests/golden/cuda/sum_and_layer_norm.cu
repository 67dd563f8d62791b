TL_KERNEL(32, 16) kernel_0(TL_IN(tl_f32) x, TL_IN(tl_f32) r, TL_IN(tl_f32) g, TL_IN(tl_f32) b, TL_OUT(tl_f32) s, TL_OUT(tl_f32) y) {
    const int thread = tl_thread_x();
    const int y_fb = tl_block_x();
    tl_f32 x_pack[6][4];
    tl_f32 r_pack[6][4];
    tl_f32 mean;
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
    TL_UNROLL
    for (int r_pack_jo = 0; r_pack_jo < 6; ++r_pack_jo) {
        {
            const int r_pack_jl = thread;
            const tl_f32x4 r_v = tl_load_f32x4(r + 768 * y_fb + 128 * r_pack_jo + 4 * r_pack_jl);
            TL_UNROLL
            for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
                const int r_pack_jv = lane_1;
                r_pack[r_pack_jo][r_pack_jv] = r_v.v[lane_1];
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
                own = own + (x_pack[mean_ro][mean_rv] + r_pack[mean_ro][mean_rv]);
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
    tl_f32 inv_0_acc;
    inv_0_acc = 0.0f;
    tl_f32 own_1;
    {
        const int inv_rl_1 = thread;
        own_1 = 0.0f;
    }
    {
        const int inv_rl = thread;
        TL_UNROLL
        for (int inv_ro = 0; inv_ro < 6; ++inv_ro) {
            TL_UNROLL
            for (int inv_rv = 0; inv_rv < 4; ++inv_rv) {
                const tl_f32 d = x_pack[inv_ro][inv_rv] + r_pack[inv_ro][inv_rv] - mean;
                own_1 = own_1 + d * d;
            }
        }
    }
    {
        const int inv_rl_2 = thread;
        tl_f32 part_1 = own_1;
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 16, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 8, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 4, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 2, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 1, 32);
        inv_0_acc = inv_0_acc + part_1;
    }
    inv = 1.0f / tl_sqrt_f32(inv_0_acc / 768.0f + 0x1.4f8b580000000p-17f);
    TL_UNROLL
    for (int y_jo = 0; y_jo < 6; ++y_jo) {
        {
            const int y_jl = thread;
            const tl_f32x4 g_v = tl_load_f32x4(g + 128 * y_jo + 4 * y_jl);
            const tl_f32x4 b_v = tl_load_f32x4(b + 128 * y_jo + 4 * y_jl);
            tl_f32x4 y_v;
            tl_f32x4 s_v;
            TL_UNROLL
            for (int lane_2 = 0; lane_2 < 4; ++lane_2) {
                const int y_jv = lane_2;
                const tl_f32 result = (x_pack[y_jo][y_jv] + r_pack[y_jo][y_jv] - mean) * inv * g_v.v[lane_2] + b_v.v[lane_2];
                const tl_f32 result_1 = x_pack[y_jo][y_jv] + r_pack[y_jo][y_jv];
                y_v.v[lane_2] = result;
                s_v.v[lane_2] = result_1;
            }
            tl_store_f32x4(y + 768 * y_fb + 128 * y_jo + 4 * y_jl, y_v);
            tl_store_f32x4(s + 768 * y_fb + 128 * y_jo + 4 * y_jl, s_v);
        }
    }
}
