TL_KERNEL(256, 2) kernel_0(TL_IN(tl_f32) x, TL_OUT(tl_f32) y) {
    TL_SHARED(shared, 16636);
    TL_SHARED_ARRAY(tl_f32, x_pack, shared, 0, 4159);
    const int thread = tl_thread_x();
    const int y_xo = tl_block_y();
    const int y_jo = tl_block_x();
    TL_UNROLL
    for (int u = 0; u < 4; ++u) {
        {
            const int t = thread;
            const tl_f32x4 x_v = tl_load_f32x4(x + 65536 * y_jo + 16384 * u + 1024 * (t / 16) + 64 * y_xo + 4 * (t % 16));
            TL_UNROLL
            for (int lane = 0; lane < 4; ++lane) {
                const int v = lane;
                x_pack[260 * (t % 16) + 65 * v + 16 * u + t / 16] = x_v.v[lane];
            }
        }
    }
    tl_barrier();
    TL_UNROLL
    for (int y_xu = 0; y_xu < 4; ++y_xu) {
        {
            const int y_xl = thread / 16;
            {
                const int y_jl = thread % 16;
                tl_f32x4 y_v;
                TL_UNROLL
                for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
                    const int y_jv = lane_1;
                    y_v.v[lane_1] = x_pack[1040 * y_xu + 65 * y_xl + 4 * y_jl + y_jv];
                }
                tl_store_f32x4(y + 32768 * y_xo + 8192 * y_xu + 512 * y_xl + 64 * y_jo + 4 * y_jl, y_v);
            }
        }
    }
}
