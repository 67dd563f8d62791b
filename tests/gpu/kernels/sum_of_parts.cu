// y[0] = the sum of part, by one warp.
TL_KERNEL(32, 0) sum_of_parts(TL_IN(tl_f32) part, TL_OUT(tl_f32) y, tl_i64 B) {
    tl_f32 sum = 0.0f;
    for (tl_i64 i = tl_thread_x(); i < B; i += 32) sum += part[i];
    for (int mask = 16; mask > 0; mask /= 2) sum += tl_shuffle_xor_f32(sum, mask, 32);
    if (tl_thread_x() == 0) y[0] = sum;
}
