// y[r, :] = softmax(x[r, :]), a row per block; maximum and sum go through the same four cells.
TL_KERNEL(128, 0) softmax(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 N) {
    TL_SHARED(arena, 16);
    TL_SHARED_ARRAY(tl_f32, part_s, arena, 0, 4);
    int t = tl_thread_x();
    tl_i64 row = tl_block_x();
    tl_f32 most = -TL_INF_F32;
    for (tl_i64 i = t; i < N; i += 128) most = tl_max_f32(most, x[row * N + i]);
    for (int mask = 16; mask > 0; mask /= 2) most = tl_max_f32(most, tl_shuffle_xor_f32(most, mask, 32));
    if (tl_lane() == 0) part_s[tl_warp()] = most;
    tl_barrier();
    most = part_s[0];
    for (int w = 1; w < 4; ++w) most = tl_max_f32(most, part_s[w]);
    tl_f32 sum = 0.0f;
    for (tl_i64 i = t; i < N; i += 128) sum += tl_exp_f32(x[row * N + i] - most);
    for (int mask = 16; mask > 0; mask /= 2) sum += tl_shuffle_xor_f32(sum, mask, 32);
    tl_barrier();
    if (tl_lane() == 0) part_s[tl_warp()] = sum;
    tl_barrier();
    sum = part_s[0];
    for (int w = 1; w < 4; ++w) sum += part_s[w];
    for (tl_i64 i = t; i < N; i += 128) y[row * N + i] = tl_exp_f32(x[row * N + i] - most) / sum;
}
