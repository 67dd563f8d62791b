// y[i] = x[i] + x[i] rounded to f16, by way of shared memory, two bytes per element, neighbours exchanged.
TL_KERNEL(64, 0) narrow(TL_IN(tl_f16) x, TL_OUT(tl_f16) y, tl_i64 N) {
    TL_SHARED(arena, 128);
    TL_SHARED_ARRAY(tl_f16, x_s, arena, 0, 64);
    int t = tl_thread_x();
    tl_i64 first = (tl_i64)tl_block_x() * 64;
    if (first + t < N) x_s[t] = x[first + t];
    tl_barrier();
    tl_i64 from = first + t;
    if (from < N) {
        tl_f32 value = tl_f32_from_f16(x_s[63 - t < N - first ? 63 - t : t]);
        y[first + t] = tl_f16_from_f32(value + value);
    }
}
