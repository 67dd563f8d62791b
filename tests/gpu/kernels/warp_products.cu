TL_KERNEL(64, 0) warp_products(TL_IN(tl_bf16) x, TL_IN(tl_bf16) w, TL_OUT(tl_f32) y, tl_i64 M, tl_i64 N, tl_i64 K) {
    TL_SHARED(arena, 2304);
    TL_SHARED_ARRAY(tl_bf16, x_s, arena, 0, 32 * 24);
    TL_SHARED_ARRAY(tl_bf16, w_s, arena, 1536, 16 * 24);
    const int t = tl_thread_x(), lane = tl_lane(), warp = tl_warp();
    const tl_i64 i0 = (tl_i64)tl_block_y() * 32, j0 = (tl_i64)tl_block_x() * 16;
    const tl_bf16 zero = {0};
    tl_f32 d[2][4] = {};
    for (tl_i64 k0 = 0; k0 < K; k0 += 16) {
        for (int c = t; c < 512; c += 64) {
            const tl_i64 i = i0 + c / 16, k = k0 + c % 16;
            if (i < M && k < K) x_s[c / 16 * 24 + c % 16] = x[i * K + k];
            else x_s[c / 16 * 24 + c % 16] = zero;
        }
        for (int c = t; c < 256; c += 64) {
            const tl_i64 k = k0 + c / 16, j = j0 + c % 16;
            if (k < K && j < N) w_s[c / 16 * 24 + c % 16] = w[k * N + j];
            else w_s[c / 16 * 24 + c % 16] = zero;
        }
        tl_barrier();
        tl_u32 a[4], b[4];
        tl_ldmatrix_x4(a, x_s + ((warp * 16 + lane % 16) * 24 + lane / 16 * 8));
        tl_ldmatrix_x4_trans(b, w_s + (lane % 16 * 24 + lane / 16 * 8));
        tl_mma_m16n8k16_bf16(d[0], a, b);
        tl_mma_m16n8k16_bf16(d[1], a, b + 2);
        tl_barrier();
    }
    TL_UNROLL
    for (int n = 0; n < 2; ++n) {
        TL_UNROLL
        for (int r = 0; r < 4; ++r) {
            const tl_i64 i = i0 + warp * 16 + lane / 4 + r / 2 * 8, j = j0 + n * 8 + lane % 4 * 2 + r % 2;
            if (i < M && j < N) y[i * N + j] = d[n][r];
        }
    }
}
