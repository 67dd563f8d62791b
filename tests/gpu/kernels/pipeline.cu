// y[r, i] = x[r, i] with every 128 elements reversed; copies into one of two stages run ahead by one tile. Beyond N there are zeros.
TL_KERNEL(32, 0) pipeline(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 N, tl_i64 T) {
    TL_SHARED(arena, 1024);
    TL_SHARED_ARRAY(tl_f32, x_s, arena, 0, 256);
    int t = tl_thread_x();
    tl_i64 row = tl_block_x();
    tl_copy_async_zfill_16(x_s + 4 * t, x + (row * N + 4 * t), 4 * t < N);
    tl_copy_commit();
    for (tl_i64 k = 0; k < T; ++k) {
        int stage = (int)(k % 2);
        if (k + 1 < T) {
            tl_i64 next = 128 * (k + 1) + 4 * t;
            tl_copy_async_zfill_16(x_s + ((1 - stage) * 128 + 4 * t), x + (row * N + next), next < N);
        }
        tl_copy_commit();
        TL_COPY_WAIT(1);
        tl_barrier();
        for (int j = 0; j < 4; ++j) y[(row * T + k) * 128 + 4 * t + j] = x_s[stage * 128 + 127 - 4 * t - j];
        tl_barrier();
    }
}
