// y[j, i] = x[i, j] by tiles of 32 x 32; the columns of a tile are exchanged by row, so that reading down a column visits every bank.
TL_KERNEL(256, 0) transpose(TL_IN(tl_f32) x, TL_OUT(tl_f32) y, tl_i64 M, tl_i64 N) {
    TL_SHARED(arena, 4096);
    TL_SHARED_ARRAY(tl_f32, tile_s, arena, 0, 1024);
    int tx = tl_thread_x(), ty = tl_thread_y();
    tl_i64 i0 = (tl_i64)tl_block_y() * 32, j0 = (tl_i64)tl_block_x() * 32;
    for (int r = ty; r < 32; r += 8)
        if (i0 + r < M && j0 + tx < N) tile_s[r * 32 + (tx ^ r)] = x[(i0 + r) * N + j0 + tx];
    tl_barrier();
    for (int r = ty; r < 32; r += 8)
        if (j0 + r < N && i0 + tx < M) y[(j0 + r) * M + i0 + tx] = tile_s[tx * 32 + (r ^ tx)];
}
