// y[i] = 2 x[i] + 1, four elements per thread; what is left of four, one by one.
TL_KERNEL(64, 0) elementwise(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 N) {
    tl_i64 i = 4 * ((tl_i64)tl_block_x() * 64 + tl_thread_x());
    if (i + 4 <= N) {
        tl_f32x4 v = tl_load_f32x4(x + i);
        for (int j = 0; j < 4; ++j) v.v[j] = tl_fma_f32(v.v[j], 2.0f, 1.0f);
        tl_store_f32x4(y + i, v);
    } else {
        for (tl_i64 j = i; j < N; ++j) y[j] = tl_fma_f32(x[j], 2.0f, 1.0f);
    }
}
