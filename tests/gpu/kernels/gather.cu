// y[i] = x[at[i]]; code 7 where at[i] is no index of x.
TL_KERNEL(32, 0) gather(TL_IN(tl_f32) x, TL_IN(tl_i64) at, TL_OUT(tl_f32) y, tl_i64 N, tl_i64 M, TL_OUT(tl_i32) status) {
    tl_i64 i = (tl_i64)tl_block_x() * 32 + tl_thread_x();
    if (i >= M) return;
    if (at[i] < 0 || at[i] >= N) {
        tl_fail(status, 7);
        return;
    }
    y[i] = x[at[i]];
}
