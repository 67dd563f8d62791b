// Types of kernel text, the same for every target, and their bits. A target defines TL_FUNCTION (what stands before a function) and
// TL_ALIGN(bytes) before it reads this.

typedef double tl_f64;
typedef float tl_f32;
typedef long long tl_i64;
typedef int tl_i32;
typedef short tl_i16;
typedef signed char tl_i8;
typedef unsigned long long tl_u64;
typedef unsigned int tl_u32;
typedef unsigned short tl_u16;
typedef unsigned char tl_u8;
typedef unsigned char tl_bool; // 0 or 1
typedef tl_i8 tl_i4, tl_i2; // a byte: in memory its upper bits are 0, as a value it is extended
typedef tl_u8 tl_u4, tl_u2;

// Narrow floats are only loaded, stored and converted; as structures they cannot be mistaken for integers.
typedef struct { tl_u16 bits; } tl_f16;
typedef struct { tl_u16 bits; } tl_bf16;
typedef struct { tl_u8 bits; } tl_f8e4m3;
typedef struct { tl_u8 bits; } tl_f8e5m2;
typedef struct { tl_u8 bits; } tl_f8e4m3fnuz;
typedef struct { tl_u8 bits; } tl_f8e5m2fnuz;
typedef struct { tl_u8 bits; } tl_f4e2m1; // a byte: its upper half is 0

// Both values are computed, so that no branch parts what comes before from what comes after.
template <typename T> TL_FUNCTION T tl_select(tl_bool condition, T then, T otherwise) { return condition ? then : otherwise; }

// ---------------------------------------------------------------- bits

TL_FUNCTION tl_u32 tl_bits_f32(tl_f32 x) { union { tl_f32 value; tl_u32 bits; } u; u.value = x; return u.bits; }
TL_FUNCTION tl_f32 tl_f32_from_bits(tl_u32 x) { union { tl_u32 bits; tl_f32 value; } u; u.bits = x; return u.value; }
TL_FUNCTION tl_u64 tl_bits_f64(tl_f64 x) { union { tl_f64 value; tl_u64 bits; } u; u.value = x; return u.bits; }
TL_FUNCTION tl_f64 tl_f64_from_bits(tl_u64 x) { union { tl_u64 bits; tl_f64 value; } u; u.bits = x; return u.value; }

#define TL_INF_F32 tl_f32_from_bits(0x7f800000u)
#define TL_NAN_F32 tl_f32_from_bits(0x7fc00000u)
#define TL_INF_F64 tl_f64_from_bits(0x7ff0000000000000ull)
#define TL_NAN_F64 tl_f64_from_bits(0x7ff8000000000000ull)
