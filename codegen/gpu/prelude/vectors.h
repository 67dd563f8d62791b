// Vectors of the types of kernel text, the same for every target.

// Every vector type is a structure of `.v[n]`, aligned to its size, at most 16 bytes: X(element type, count).
#define TL_EACH_VECTOR(X)                                                                                                              \
    X(f64, 2) X(f32, 2) X(f32, 4) X(f16, 2) X(f16, 4) X(f16, 8) X(bf16, 2) X(bf16, 4) X(bf16, 8)                                       \
    X(i64, 2) X(u64, 2) X(i32, 2) X(i32, 4) X(u32, 2) X(u32, 4)                                                                        \
    X(i16, 2) X(i16, 4) X(i16, 8) X(u16, 2) X(u16, 4) X(u16, 8)                                                                        \
    X(i8, 2) X(i8, 4) X(i8, 8) X(i8, 16) X(u8, 2) X(u8, 4) X(u8, 8) X(u8, 16) X(bool, 2) X(bool, 4) X(bool, 8) X(bool, 16)             \
    X(f8e4m3, 4) X(f8e4m3, 8) X(f8e4m3, 16) X(f8e5m2, 4) X(f8e5m2, 8) X(f8e5m2, 16)                                                    \
    X(f8e4m3fnuz, 4) X(f8e4m3fnuz, 8) X(f8e4m3fnuz, 16) X(f8e5m2fnuz, 4) X(f8e5m2fnuz, 8) X(f8e5m2fnuz, 16)            \
    X(f4e2m1, 4) X(f4e2m1, 8) X(f4e2m1, 16)

#define TL_VECTOR_TYPE(name, n) \
    struct TL_ALIGN(n * sizeof(tl_##name)) tl_##name##x##n { tl_##name v[n]; };

TL_EACH_VECTOR(TL_VECTOR_TYPE)
