// part[b] = the sum of the 32 elements of x that block b has.
TL_KERNEL(32, 0) partial_sums(TL_IN(tl_f32) x, TL_OUT(tl_f32) part, tl_i64 N) {
    tl_i64 i = (tl_i64)tl_block_x() * 32 + tl_thread_x();
    tl_f32 sum = i < N ? x[i] : 0.0f;
    for (int mask = 16; mask > 0; mask /= 2) sum += tl_shuffle_xor_f32(sum, mask, 32);
    if (tl_thread_x() == 0) part[tl_block_x()] = sum;
}
