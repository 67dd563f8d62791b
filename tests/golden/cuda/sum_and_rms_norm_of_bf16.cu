TL_KERNEL(64, 8) kernel_0(TL_IN(tl_bf16) x, TL_IN(tl_bf16) r, TL_IN(tl_bf16) g, TL_OUT(tl_bf16) s, TL_OUT(tl_bf16) y) {
    TL_SHARED(shared, 8);
    TL_SHARED_ARRAY(tl_f32, across, shared, 0, 2);
    const int thread = tl_thread_x();
    const int y_fb = tl_block_x();
    tl_bf16 x_pack[2][8];
    tl_bf16 r_pack[2][8];
    tl_f32 inv;
    TL_UNROLL
    for (int x_pack_jo = 0; x_pack_jo < 2; ++x_pack_jo) {
        {
            const int x_pack_jl = thread;
            const tl_bf16x8 x_v = tl_load_bf16x8(x + 1024 * y_fb + 512 * x_pack_jo + 8 * x_pack_jl);
            TL_UNROLL
            for (int lane = 0; lane < 8; ++lane) {
                const int x_pack_jv = lane;
                x_pack[x_pack_jo][x_pack_jv] = x_v.v[lane];
            }
        }
    }
    TL_UNROLL
    for (int r_pack_jo = 0; r_pack_jo < 2; ++r_pack_jo) {
        {
            const int r_pack_jl = thread;
            const tl_bf16x8 r_v = tl_load_bf16x8(r + 1024 * y_fb + 512 * r_pack_jo + 8 * r_pack_jl);
            TL_UNROLL
            for (int lane_1 = 0; lane_1 < 8; ++lane_1) {
                const int r_pack_jv = lane_1;
                r_pack[r_pack_jo][r_pack_jv] = r_v.v[lane_1];
            }
        }
    }
    tl_f32 inv_0_acc;
    inv_0_acc = 0.0f;
    tl_f32 own;
    {
        const int inv_rl_1 = thread;
        own = 0.0f;
    }
    {
        const int inv_rl = thread;
        TL_UNROLL
        for (int inv_ro = 0; inv_ro < 2; ++inv_ro) {
            TL_UNROLL
            for (int inv_rv = 0; inv_rv < 8; ++inv_rv) {
                own = tl_fma_f32(tl_f32_from_bf16(tl_bf16_from_f32(tl_f32_from_bf16(x_pack[inv_ro][inv_rv]) + tl_f32_from_bf16(r_pack[inv_ro][inv_rv]))), tl_f32_from_bf16(tl_bf16_from_f32(tl_f32_from_bf16(x_pack[inv_ro][inv_rv]) + tl_f32_from_bf16(r_pack[inv_ro][inv_rv]))), own);
            }
        }
    }
    tl_f32 within;
    {
        const int w_1 = thread / 32;
        within = 0.0f;
    }
    {
        const int w = thread / 32;
        {
            const int l = thread % 32;
            tl_f32 part = own;
            part = part + tl_shuffle_xor_f32(part, 16, 32);
            part = part + tl_shuffle_xor_f32(part, 8, 32);
            part = part + tl_shuffle_xor_f32(part, 4, 32);
            part = part + tl_shuffle_xor_f32(part, 2, 32);
            part = part + tl_shuffle_xor_f32(part, 1, 32);
            within = within + part;
        }
    }
    {
        const int w_2 = thread / 32;
        if (thread % 32 == 0) {
            across[w_2] = within;
        }
    }
    tl_barrier();
    {
        const int l_1 = thread % 32;
        tl_f32 part_1 = l_1 < 2 ? across[l_1] : 0.0f;
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 16, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 8, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 4, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 2, 32);
        part_1 = part_1 + tl_shuffle_xor_f32(part_1, 1, 32);
        inv_0_acc = inv_0_acc + part_1;
    }
    inv = 1.0f / tl_sqrt_f32(inv_0_acc / 1024.0f + 0x1.4f8b580000000p-17f);
    TL_UNROLL
    for (int y_jo = 0; y_jo < 2; ++y_jo) {
        {
            const int y_jl = thread;
            const tl_bf16x8 g_v = tl_load_bf16x8(g + 512 * y_jo + 8 * y_jl);
            tl_bf16x8 y_v;
            tl_bf16x8 s_v;
            TL_UNROLL
            for (int lane_2 = 0; lane_2 < 8; ++lane_2) {
                const int y_jv = lane_2;
                const tl_bf16 result = tl_bf16_from_f32(tl_f32_from_bf16(tl_bf16_from_f32(tl_f32_from_bf16(x_pack[y_jo][y_jv]) + tl_f32_from_bf16(r_pack[y_jo][y_jv]))) * inv * tl_f32_from_bf16(g_v.v[lane_2]));
                const tl_bf16 result_1 = tl_bf16_from_f32(tl_f32_from_bf16(x_pack[y_jo][y_jv]) + tl_f32_from_bf16(r_pack[y_jo][y_jv]));
                y_v.v[lane_2] = result;
                s_v.v[lane_2] = result_1;
            }
            tl_store_bf16x8(y + 1024 * y_fb + 512 * y_jo + 8 * y_jl, y_v);
            tl_store_bf16x8(s + 1024 * y_fb + 512 * y_jo + 8 * y_jl, s_v);
        }
    }
}
