// y[N, N] = x[N, N] w[N, N] by tiles of 16 x 16 in shared memory.
TL_KERNEL(256, 0) matmul(TL_IN(tl_f32) x, TL_IN(tl_f32) w, TL_OUT(tl_f32) y, tl_i64 N) {
    TL_SHARED(arena, 2048);
    TL_SHARED_ARRAY(tl_f32, x_s, arena, 0, 256);
    TL_SHARED_ARRAY(tl_f32, w_s, arena, 1024, 256);
    int tx = tl_thread_x(), ty = tl_thread_y();
    tl_i64 i = (tl_i64)tl_block_y() * 16 + ty, j = (tl_i64)tl_block_x() * 16 + tx;
    tl_f32 sum = 0.0f;
    for (tl_i64 k = 0; k < N; k += 16) {
        x_s[ty * 16 + tx] = i < N && k + tx < N ? x[i * N + k + tx] : 0.0f;
        w_s[ty * 16 + tx] = k + ty < N && j < N ? w[(k + ty) * N + j] : 0.0f;
        tl_barrier();
        TL_UNROLL
        for (int r = 0; r < 16; ++r) sum = tl_fma_f32(x_s[ty * 16 + r], w_s[r * 16 + tx], sum);
        tl_barrier();
    }
    if (i < N && j < N) y[i * N + j] = sum;
}
