// y[r] = the sum of x[r, :]: in every thread, over the lanes of a warp, over the warps of the block.
TL_KERNEL(128, 0) row_sum(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 N) {
    TL_SHARED(arena, 16);
    TL_SHARED_ARRAY(tl_f32, part_s, arena, 0, 4);
    int t = tl_thread_x();
    tl_i64 row = tl_block_x();
    tl_f32 sum = 0.0f;
    for (tl_i64 i = t; i < N; i += 128) sum += x[row * N + i];
    for (int mask = 16; mask > 0; mask /= 2) sum += tl_shuffle_xor_f32(sum, mask, 32);
    if (tl_lane() == 0) part_s[tl_warp()] = sum;
    tl_barrier();
    if (tl_warp() == 0) {
        tl_f32 total = tl_lane() < 4 ? part_s[tl_lane()] : 0.0f;
        for (int mask = 2; mask > 0; mask /= 2) total += tl_shuffle_xor_f32(total, mask, 4);
        if (t == 0) y[row] = total;
    }
}
