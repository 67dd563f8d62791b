// Scalar arithmetic of kernel text, the same for every target: integers that wrap, quotients that floor, conversions that saturate,
// elementary functions. What it computes is what codegen/loops/interp.py says.
//
// A target provides C's mathematical functions and TL_RSQRT_F32 and TL_RSQRT_F64 before it reads this. It defines TL_HARDWARE_HALF when it
// has made the conversions between f32 and the 16-bit floats itself, TL_HARDWARE_EXTREMES_F32 when it has made tl_min_f32 and tl_max_f32.

// ---------------------------------------------------------------- integers

// Sums, differences and products wrap: they are taken in the unsigned type of at least 32 bits, `U`. `//` and `%` floor and are 0 when
// the divisor is; shifts by a negative count or by the width and more push everything out.
#define TL_INTEGER(name, T, U, width)                                                                                                  \
    TL_FUNCTION T tl_add_##name(T a, T b) { return (T)((U)a + (U)b); }                                                                 \
    TL_FUNCTION T tl_sub_##name(T a, T b) { return (T)((U)a - (U)b); }                                                                 \
    TL_FUNCTION T tl_mul_##name(T a, T b) { return (T)((U)a * (U)b); }                                                                 \
    TL_FUNCTION T tl_neg_##name(T a) { return (T)((U)0 - (U)a); }                                                                      \
    TL_FUNCTION T tl_min_##name(T a, T b) { return b < a ? b : a; }                                                                    \
    TL_FUNCTION T tl_max_##name(T a, T b) { return a < b ? b : a; }                                                                    \
    TL_FUNCTION T tl_shl_##name(T a, T b) { return b >= 0 && b < width ? (T)((U)a << (int)b) : (T)0; }

#define TL_SIGNED(name, T, U, width)                                                                                                   \
    TL_INTEGER(name, T, U, width)                                                                                                      \
    TL_FUNCTION T tl_abs_##name(T a) { return a < 0 ? tl_neg_##name(a) : a; }                                                          \
    TL_FUNCTION T tl_shr_##name(T a, T b) { return (T)(a >> (b >= 0 && b < width ? (int)b : width - 1)); }                             \
    TL_FUNCTION T tl_floordiv_##name(T a, T b) {                                                                                       \
        if (b == 0) return (T)0;                                                                                                       \
        if (b == -1) return tl_neg_##name(a); /* the least number has no opposite: it wraps */                                         \
        T quotient = (T)(a / b);                                                                                                       \
        return (T)(quotient - (a % b != 0 && (a < 0) != (b < 0)));                                                                     \
    }                                                                                                                                  \
    TL_FUNCTION T tl_floormod_##name(T a, T b) {                                                                                       \
        if (b == 0 || b == -1) return (T)0;                                                                                            \
        T rest = (T)(a % b);                                                                                                           \
        return (T)(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);                                                              \
    }

#define TL_UNSIGNED(name, T, U, width)                                                                                                 \
    TL_INTEGER(name, T, U, width)                                                                                                      \
    TL_FUNCTION T tl_abs_##name(T a) { return a; }                                                                                     \
    TL_FUNCTION T tl_shr_##name(T a, T b) { return b < width ? (T)(a >> (int)b) : (T)0; }                                              \
    TL_FUNCTION T tl_floordiv_##name(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }                                                  \
    TL_FUNCTION T tl_floormod_##name(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }

TL_SIGNED(i2, tl_i2, tl_u32, 2)
TL_SIGNED(i4, tl_i4, tl_u32, 4)
TL_SIGNED(i8, tl_i8, tl_u32, 8)
TL_SIGNED(i16, tl_i16, tl_u32, 16)
TL_SIGNED(i32, tl_i32, tl_u32, 32)
TL_SIGNED(i64, tl_i64, tl_u64, 64)
TL_UNSIGNED(u2, tl_u2, tl_u32, 2)
TL_UNSIGNED(u4, tl_u4, tl_u32, 4)
TL_UNSIGNED(u8, tl_u8, tl_u32, 8)
TL_UNSIGNED(u16, tl_u16, tl_u32, 16)
TL_UNSIGNED(u32, tl_u32, tl_u32, 32)
TL_UNSIGNED(u64, tl_u64, tl_u64, 64)

// The low bits, extended: what is computed from elements of fewer than eight bits, and what is loaded.
TL_FUNCTION tl_i2 tl_i2_wrap(tl_i64 x) { return (tl_i2)((int)(((tl_u32)x & 3u) ^ 2u) - 2); }
TL_FUNCTION tl_u2 tl_u2_wrap(tl_i64 x) { return (tl_u2)((tl_u32)x & 3u); }
TL_FUNCTION tl_i4 tl_i4_wrap(tl_i64 x) { return (tl_i4)((int)(((tl_u32)x & 15u) ^ 8u) - 8); }
TL_FUNCTION tl_u4 tl_u4_wrap(tl_i64 x) { return (tl_u4)((tl_u32)x & 15u); }

// Casts that saturate, from the widest types: every narrower one reaches these without loss.
#define TL_SATURATE(name, T, low, high)                                                                                                \
    TL_FUNCTION T tl_##name##_saturate_i64(tl_i64 x) { return (T)(x < (tl_i64)(low) ? (tl_i64)(low) : x > (tl_i64)(high) ? (tl_i64)(high) : x); } \
    TL_FUNCTION T tl_##name##_saturate_u64(tl_u64 x) { return (T)(x > (tl_u64)(high) ? (tl_u64)(high) : x); }

TL_SATURATE(i2, tl_i2, -2, 1)
TL_SATURATE(i4, tl_i4, -8, 7)
TL_SATURATE(i8, tl_i8, -128, 127)
TL_SATURATE(i16, tl_i16, -32768, 32767)
TL_SATURATE(i32, tl_i32, -2147483647 - 1, 2147483647)
TL_SATURATE(i64, tl_i64, -9223372036854775807ll - 1, 9223372036854775807ll)
TL_SATURATE(u2, tl_u2, 0, 3)
TL_SATURATE(u4, tl_u4, 0, 15)
TL_SATURATE(u8, tl_u8, 0, 255)
TL_SATURATE(u16, tl_u16, 0, 65535)
TL_SATURATE(u32, tl_u32, 0, 4294967295ll)
TL_FUNCTION tl_u64 tl_u64_saturate_i64(tl_i64 x) { return x < 0 ? 0ull : (tl_u64)x; }
TL_FUNCTION tl_u64 tl_u64_saturate_u64(tl_u64 x) { return x; }

// ---------------------------------------------------------------- floats to integers

// Towards zero; what is beyond saturates, NaN gives 0. `low` and `high` are the least value and the greatest plus one: both are exact.
#define TL_TRUNCATE(name, T, low, high, least, greatest)                                                                               \
    TL_FUNCTION T tl_##name##_from_f32(tl_f32 x) {                                                                                     \
        return x != x ? (T)0 : x <= (tl_f32)(low) ? (T)(least) : x >= (tl_f32)(high) ? (T)(greatest) : (T)x;                           \
    }                                                                                                                                  \
    TL_FUNCTION T tl_##name##_from_f64(tl_f64 x) {                                                                                     \
        return x != x ? (T)0 : x <= (tl_f64)(low) ? (T)(least) : x >= (tl_f64)(high) ? (T)(greatest) : (T)x;                           \
    }

TL_TRUNCATE(i2, tl_i2, -2.0, 2.0, -2, 1)
TL_TRUNCATE(i4, tl_i4, -8.0, 8.0, -8, 7)
TL_TRUNCATE(i8, tl_i8, -128.0, 128.0, -128, 127)
TL_TRUNCATE(i16, tl_i16, -32768.0, 32768.0, -32768, 32767)
TL_TRUNCATE(i32, tl_i32, -2147483648.0, 2147483648.0, -2147483647 - 1, 2147483647)
TL_TRUNCATE(i64, tl_i64, -9223372036854775808.0, 9223372036854775808.0, -9223372036854775807ll - 1, 9223372036854775807ll)
TL_TRUNCATE(u2, tl_u2, 0.0, 4.0, 0, 3)
TL_TRUNCATE(u4, tl_u4, 0.0, 16.0, 0, 15)
TL_TRUNCATE(u8, tl_u8, 0.0, 256.0, 0, 255)
TL_TRUNCATE(u16, tl_u16, 0.0, 65536.0, 0, 65535)
TL_TRUNCATE(u32, tl_u32, 0.0, 4294967296.0, 0, 4294967295u)
TL_TRUNCATE(u64, tl_u64, 0.0, 18446744073709551616.0, 0, 18446744073709551615ull)

// ---------------------------------------------------------------- narrow floats

// Returns |x|, finite, rounded to nearest even, as exponent and mantissa of a float with `digits` bits of mantissa and this `bias`. A carry
// runs into the exponent; what is too large for the format comes out as an exponent that the format does not have for numbers.
TL_FUNCTION tl_u32 tl_narrowed(tl_f64 x, int digits, int bias) {
    tl_u64 bits = tl_bits_f64(x) & 0x7fffffffffffffffull;
    int exponent = (int)(bits >> 52) - 1023;
    int below = exponent < 1 - bias ? 1 - bias - exponent : 0; // how far under the least normal number
    int shift = 52 - digits + below;
    if (shift > 53) return 0u; // less than half of the least number
    tl_u64 significand = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
    tl_u64 kept = significand >> shift;
    tl_u64 rest = significand - (kept << shift);
    tl_u64 half = 1ull << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1ull));
    // The leading bit of a normal number adds one to the exponent's field.
    tl_u32 field = below ? 0u : (tl_u32)(exponent + bias - 1);
    return exponent >= 512 ? 0x7fffffffu : (field << digits) + (tl_u32)kept;
}

// Returns the number whose exponent and mantissa these bits are. Infinities and NaN are the caller's.
TL_FUNCTION tl_f32 tl_widened(tl_u32 bits, int digits, int bias) {
    tl_u32 exponent = bits >> digits, mantissa = bits & ((1u << digits) - 1u);
    if (exponent == 0u) return (tl_f32)mantissa * tl_f32_from_bits((tl_u32)(128 - bias - digits) << 23);
    return tl_f32_from_bits(((exponent + 127u - (tl_u32)bias) << 23) | (mantissa << (23 - digits)));
}

TL_FUNCTION tl_u32 tl_sign_f64(tl_f64 x) { return (tl_u32)(tl_bits_f64(x) >> 63); }

TL_FUNCTION tl_f16 tl_f16_from_f64(tl_f64 x) {
    tl_u32 size = x != x ? 0x7e00u : x - x != 0.0 ? 0x7c00u : tl_narrowed(x, 10, 15);
    tl_f16 result = {(tl_u16)((tl_sign_f64(x) << 15) | (x == x && size > 0x7c00u ? 0x7c00u : size))};
    return result;
}

TL_FUNCTION tl_bf16 tl_bf16_from_f64(tl_f64 x) {
    tl_u32 size = x != x ? 0x7fc0u : x - x != 0.0 ? 0x7f80u : tl_narrowed(x, 7, 127);
    tl_bf16 result = {(tl_u16)((tl_sign_f64(x) << 15) | (x == x && size > 0x7f80u ? 0x7f80u : size))};
    return result;
}

// Without infinities: what is too large is NaN.
TL_FUNCTION tl_f8e4m3 tl_f8e4m3_from_f64(tl_f64 x) {
    tl_u32 size = x - x != 0.0 ? 0x7fu : tl_narrowed(x, 3, 7);
    tl_f8e4m3 result = {(tl_u8)((tl_sign_f64(x) << 7) | (size > 0x7fu ? 0x7fu : size))};
    return result;
}

TL_FUNCTION tl_f8e5m2 tl_f8e5m2_from_f64(tl_f64 x) {
    tl_u32 size = x != x ? 0x7eu : x - x != 0.0 ? 0x7cu : tl_narrowed(x, 2, 15);
    tl_f8e5m2 result = {(tl_u8)((tl_sign_f64(x) << 7) | (x == x && size > 0x7cu ? 0x7cu : size))};
    return result;
}

// Without infinities and without a negative zero: 0x80 is NaN, which what is too large becomes.
#define TL_WITHOUT_NEGATIVE_ZERO(name, digits, bias)                                                                                   \
    TL_FUNCTION tl_##name tl_##name##_from_f64(tl_f64 x) {                                                                             \
        tl_u32 size = x - x != 0.0 ? 0x80u : tl_narrowed(x, digits, bias);                                                             \
        tl_##name result = {(tl_u8)(size > 0x7fu ? 0x80u : size == 0u ? 0u : (tl_sign_f64(x) << 7) | size)};                           \
        return result;                                                                                                                 \
    }                                                                                                                                  \
    TL_FUNCTION tl_##name tl_##name##_from_f32(tl_f32 x) { return tl_##name##_from_f64((tl_f64)x); }                                   \
    TL_FUNCTION tl_f32 tl_f32_from_##name(tl_##name x) {                                                                               \
        tl_u32 size = x.bits & 0x7fu, sign = (tl_u32)(x.bits >> 7) << 31;                                                              \
        return tl_f32_from_bits(tl_bits_f32(x.bits == 0x80u ? TL_NAN_F32 : tl_widened(size, digits, bias)) | sign);                    \
    }
TL_WITHOUT_NEGATIVE_ZERO(f8e4m3fnuz, 3, 8)
TL_WITHOUT_NEGATIVE_ZERO(f8e5m2fnuz, 2, 16)

// Without infinities and NaN: what is too large is the largest number, NaN is a zero of the other sign. The sign is that of the number as it
// was given: hardware that widens a NaN may lose it.
TL_FUNCTION tl_f4e2m1 tl_f4e2m1_signed(tl_f64 x, tl_u32 sign) {
    tl_u32 size = x != x ? 8u : x - x != 0.0 ? 7u : tl_narrowed(x, 1, 1);
    tl_f4e2m1 result = {(tl_u8)((sign << 3) ^ (x == x && size > 7u ? 7u : size))};
    return result;
}
TL_FUNCTION tl_f4e2m1 tl_f4e2m1_from_f64(tl_f64 x) { return tl_f4e2m1_signed(x, tl_sign_f64(x)); }
TL_FUNCTION tl_f4e2m1 tl_f4e2m1_from_f32(tl_f32 x) { return tl_f4e2m1_signed((tl_f64)x, tl_bits_f32(x) >> 31); }
TL_FUNCTION tl_f32 tl_f32_from_f4e2m1(tl_f4e2m1 x) {
    return tl_f32_from_bits(tl_bits_f32(tl_widened(x.bits & 7u, 1, 1)) | (tl_u32)(x.bits >> 3 & 1) << 31);
}

#ifndef TL_HARDWARE_HALF
TL_FUNCTION tl_f16 tl_f16_from_f32(tl_f32 x) { return tl_f16_from_f64((tl_f64)x); }
TL_FUNCTION tl_bf16 tl_bf16_from_f32(tl_f32 x) {
    tl_u32 bits = tl_bits_f32(x);
    tl_u32 even = bits + 0x7fffu + ((bits >> 16) & 1u);
    tl_bf16 result = {(tl_u16)(x != x ? (bits >> 16) | 0x40u : even >> 16)};
    return result;
}
TL_FUNCTION tl_f32 tl_f32_from_f16(tl_f16 x) {
    tl_u32 size = x.bits & 0x7fffu, sign = (tl_u32)(x.bits >> 15) << 31;
    tl_f32 value = size > 0x7c00u ? TL_NAN_F32 : size == 0x7c00u ? TL_INF_F32 : tl_widened(size, 10, 15);
    return tl_f32_from_bits(tl_bits_f32(value) | sign);
}
#endif
TL_FUNCTION tl_f32 tl_f32_from_bf16(tl_bf16 x) { return tl_f32_from_bits((tl_u32)x.bits << 16); }
TL_FUNCTION tl_f8e4m3 tl_f8e4m3_from_f32(tl_f32 x) { return tl_f8e4m3_from_f64((tl_f64)x); }
TL_FUNCTION tl_f8e5m2 tl_f8e5m2_from_f32(tl_f32 x) { return tl_f8e5m2_from_f64((tl_f64)x); }
TL_FUNCTION tl_f32 tl_f32_from_f8e4m3(tl_f8e4m3 x) {
    tl_u32 size = x.bits & 0x7fu, sign = (tl_u32)(x.bits >> 7) << 31;
    return tl_f32_from_bits(tl_bits_f32(size == 0x7fu ? TL_NAN_F32 : tl_widened(size, 3, 7)) | sign);
}
TL_FUNCTION tl_f32 tl_f32_from_f8e5m2(tl_f8e5m2 x) {
    tl_u32 size = x.bits & 0x7fu, sign = (tl_u32)(x.bits >> 7) << 31;
    tl_f32 value = size > 0x7cu ? TL_NAN_F32 : size == 0x7cu ? TL_INF_F32 : tl_widened(size, 2, 15);
    return tl_f32_from_bits(tl_bits_f32(value) | sign);
}

#define TL_NARROW(name, greatest)                                                                                                      \
    TL_FUNCTION tl_f64 tl_f64_from_##name(tl_##name x) { return (tl_f64)tl_f32_from_##name(x); }                                       \
    TL_FUNCTION tl_##name tl_##name##_saturate_f32(tl_f32 x) {                                                                         \
        return tl_##name##_from_f32(x > (greatest) ? (greatest) : x < -(greatest) ? -(greatest) : x);                                  \
    }                                                                                                                                  \
    TL_FUNCTION tl_##name tl_##name##_saturate_f64(tl_f64 x) {                                                                         \
        return tl_##name##_from_f64(x > (tl_f64)(greatest) ? (tl_f64)(greatest) : x < -(tl_f64)(greatest) ? -(tl_f64)(greatest) : x);  \
    }

TL_NARROW(f16, 65504.0f)
TL_NARROW(bf16, tl_f32_from_bits(0x7f7f0000u))
TL_NARROW(f8e4m3, 448.0f)
TL_NARROW(f8e5m2, 57344.0f)
TL_NARROW(f8e4m3fnuz, 240.0f)
TL_NARROW(f8e5m2fnuz, 57344.0f)
TL_NARROW(f4e2m1, 6.0f)

// ---------------------------------------------------------------- floats

#define TL_FLOAT_UNARY(name, of_f32, of_f64)                                                                                           \
    TL_FUNCTION tl_f32 tl_##name##_f32(tl_f32 x) { return of_f32(x); }                                                                 \
    TL_FUNCTION tl_f64 tl_##name##_f64(tl_f64 x) { return of_f64(x); }
#define TL_FLOAT_BINARY(name, of_f32, of_f64)                                                                                          \
    TL_FUNCTION tl_f32 tl_##name##_f32(tl_f32 x, tl_f32 y) { return of_f32(x, y); }                                                    \
    TL_FUNCTION tl_f64 tl_##name##_f64(tl_f64 x, tl_f64 y) { return of_f64(x, y); }

TL_FLOAT_UNARY(abs, fabsf, fabs)
TL_FLOAT_UNARY(exp, expf, exp)
#ifndef TL_HARDWARE_EXP_16_BITS
TL_FUNCTION tl_f32 tl_exp_16_bits_f32(tl_f32 x) { return tl_exp_f32(x); }
#endif
TL_FLOAT_UNARY(exp2, exp2f, exp2)
TL_FLOAT_UNARY(expm1, expm1f, expm1)
TL_FLOAT_UNARY(log, logf, log)
TL_FLOAT_UNARY(log2, log2f, log2)
TL_FLOAT_UNARY(log1p, log1pf, log1p)
TL_FLOAT_UNARY(sqrt, sqrtf, sqrt)
TL_FLOAT_UNARY(sin, sinf, sin)
TL_FLOAT_UNARY(cos, cosf, cos)
TL_FLOAT_UNARY(tan, tanf, tan)
TL_FLOAT_UNARY(asin, asinf, asin)
TL_FLOAT_UNARY(acos, acosf, acos)
TL_FLOAT_UNARY(atan, atanf, atan)
TL_FLOAT_UNARY(sinh, sinhf, sinh)
TL_FLOAT_UNARY(cosh, coshf, cosh)
TL_FLOAT_UNARY(tanh, tanhf, tanh)
TL_FLOAT_UNARY(asinh, asinhf, asinh)
TL_FLOAT_UNARY(acosh, acoshf, acosh)
TL_FLOAT_UNARY(atanh, atanhf, atanh)
TL_FLOAT_UNARY(erf, erff, erf)
TL_FLOAT_UNARY(floor, floorf, floor)
TL_FLOAT_UNARY(ceil, ceilf, ceil)
TL_FLOAT_UNARY(round, rintf, rint) // half to even
TL_FLOAT_UNARY(trunc, truncf, trunc)
TL_FLOAT_UNARY(rsqrt, TL_RSQRT_F32, TL_RSQRT_F64)
TL_FLOAT_BINARY(pow, powf, pow)
TL_FLOAT_BINARY(fmod, fmodf, fmod)
TL_FLOAT_BINARY(atan2, atan2f, atan2)

// What is made of the functions above. Minima and maxima propagate NaN and take -0 for less than 0; the floored quotient and remainder
// are NumPy's: `x // y` is the floor of a quotient that `x % y` was first taken from, so that both agree.
#define TL_FLOAT(name, T, B, sign_bit, quiet_nan)                                                                                      \
    TL_FUNCTION tl_bool tl_isnan_##name(T x) { return x != x; }                                                                        \
    TL_FUNCTION tl_bool tl_isinf_##name(T x) { return x == x && x - x != x - x; }                                                      \
    TL_FUNCTION B tl_number_bits_##name(T x) { return x != x ? (B)(quiet_nan) : tl_bits_##name(x); }                                    \
    TL_FUNCTION T tl_copysign_##name(T x, T y) {                                                                                       \
        return tl_##name##_from_bits((tl_bits_##name(x) & ~(B)(sign_bit)) | (tl_bits_##name(y) & (B)(sign_bit)));                      \
    }                                                                                                                                  \
    TL_FUNCTION T tl_sigmoid_##name(T x) { return (T)1 / ((T)1 + tl_exp_##name(-x)); }                                                 \
    TL_FUNCTION T tl_round_bf16_##name(T x) { return (T)tl_f32_from_bf16(tl_bf16_from_##name(x)); }                                    \
    TL_FUNCTION T tl_floormod_##name(T x, T y) {                                                                                       \
        T rest = tl_fmod_##name(x, y);                                                                                                 \
        if (y == (T)0 || rest != rest) return rest;                                                                                    \
        if (rest == (T)0) return tl_copysign_##name((T)0, y);                                                                          \
        return (y < (T)0) != (rest < (T)0) ? rest + y : rest;                                                                          \
    }                                                                                                                                  \
    TL_FUNCTION T tl_floordiv_##name(T x, T y) {                                                                                       \
        if (y == (T)0) return x / y;                                                                                                   \
        T rest = tl_fmod_##name(x, y);                                                                                                 \
        T quotient = (x - rest) / y;                                                                                                   \
        if (rest != (T)0 && (y < (T)0) != (rest < (T)0)) quotient -= (T)1;                                                             \
        if (quotient == (T)0) return tl_copysign_##name((T)0, x / y);                                                                  \
        T whole = tl_floor_##name(quotient);                                                                                           \
        return quotient - whole > (T)0.5 ? whole + (T)1 : whole;                                                                       \
    }

TL_FLOAT(f32, tl_f32, tl_u32, 0x80000000u, 0x7fc00000u)
TL_FLOAT(f64, tl_f64, tl_u64, 0x8000000000000000ull, 0x7ff8000000000000ull)

// To the nearest with 10 bits after the point, ties away from zero.
TL_FUNCTION tl_f32 tl_round_tf32_f32(tl_f32 x) { return x - x == 0.0f ? tl_f32_from_bits((tl_bits_f32(x) + 0x1000u) & 0xffffe000u) : x; }

#define TL_FLOAT_EXTREMES(name, T)                                                                                                     \
    TL_FUNCTION T tl_min_##name(T x, T y) {                                                                                            \
        return x != x || y != y ? x + y : x < y || (x == y && tl_bits_##name(x) > tl_bits_##name(y)) ? x : y;                          \
    }                                                                                                                                  \
    TL_FUNCTION T tl_max_##name(T x, T y) {                                                                                            \
        return x != x || y != y ? x + y : x > y || (x == y && tl_bits_##name(x) < tl_bits_##name(y)) ? x : y;                          \
    }

#ifndef TL_HARDWARE_EXTREMES_F32
TL_FLOAT_EXTREMES(f32, tl_f32)
#endif
TL_FLOAT_EXTREMES(f64, tl_f64)

TL_FUNCTION tl_f32 tl_fma_f32(tl_f32 a, tl_f32 b, tl_f32 c) { return fmaf(a, b, c); }
TL_FUNCTION tl_f64 tl_fma_f64(tl_f64 a, tl_f64 b, tl_f64 c) { return fma(a, b, c); }
