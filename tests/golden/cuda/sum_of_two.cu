TL_KERNEL(256, 2) kernel_0(TL_IN(tl_f32) a, TL_IN(tl_f32) b, TL_OUT(tl_f32) y) {
    const int thread = tl_thread_x();
    const int y_fb = tl_block_x();
    {
        const int y_ft = thread;
        const tl_f32x4 a_v = tl_load_f32x4(a + 1024 * y_fb + 4 * y_ft);
        const tl_f32x4 b_v = tl_load_f32x4(b + 1024 * y_fb + 4 * y_ft);
        tl_f32x4 y_v;
        TL_UNROLL
        for (int lane = 0; lane < 4; ++lane) {
            const int y_jv = lane;
            y_v.v[lane] = a_v.v[lane] + b_v.v[lane];
        }
        tl_store_f32x4(y + 1024 * y_fb + 4 * y_ft, y_v);
    }
}
