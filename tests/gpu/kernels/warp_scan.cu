// y[i] = the sum of x over the 32 elements that i lies among, through shared memory that only one warp uses.
TL_KERNEL(64, 0) warp_scan(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 N) {
    TL_SHARED(arena, 256);
    TL_SHARED_ARRAY(tl_f32, x_s, arena, 0, 64);
    int t = tl_thread_x();
    tl_i64 i = (tl_i64)tl_block_x() * 64 + t;
    x_s[t] = i < N ? x[i] : 0.0f;
    tl_warp_barrier();
    for (int step = 16; step > 0; step /= 2) {
        tl_f32 other = x_s[t ^ step];
        tl_warp_barrier();
        x_s[t] += other;
        tl_warp_barrier();
    }
    if (i < N) y[i] = x_s[t];
}
