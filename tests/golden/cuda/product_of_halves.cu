TL_KERNEL(256, 2) kernel_0(TL_IN(tl_f16) x, TL_IN(tl_f16) s, TL_OUT(tl_f16) y) {
    const int thread = tl_thread_x();
    const int y_fb = tl_block_x();
    {
        const int y_ft = thread;
        const tl_f16x8 x_v = tl_load_f16x8(x + 2048 * y_fb + 8 * y_ft);
        const tl_f16x8 s_v = tl_load_f16x8(s + 2048 * y_fb + 8 * y_ft);
        tl_f16x8 y_v;
        TL_UNROLL
        for (int lane = 0; lane < 8; ++lane) {
            const int y_jv = lane;
            y_v.v[lane] = tl_f16_from_f32(tl_f32_from_f16(x_v.v[lane]) * tl_f32_from_f16(s_v.v[lane]));
        }
        tl_store_f16x8(y + 2048 * y_fb + 8 * y_ft, y_v);
    }
}
