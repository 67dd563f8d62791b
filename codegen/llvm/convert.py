"""Conversions between element types.

Narrow floats are raw bits in integer registers. They widen to f32 exactly, and f32 narrows to the nearest, ties to even, by integer
arithmetic (or one instruction for f16 where the machine has it). From f64 the value first becomes an f32 *rounded to odd*, which loses
nothing that the second rounding needs (Boldo and Melquiond 2008).

                exponent bits  mantissa bits  beyond the largest number
    f16         5              10             inf
    bf16        8              7              inf
    f8e5m2      5              2              inf
    f8e4m3      4              3              NaN (there is no inf; bits 0x7f)
    f8e4m3fnuz  4              3              NaN (there is no inf and no negative zero; bits 0x80)
    f8e5m2fnuz  5              2              NaN (the same)
    f4e2m1      2              1              the largest number (there is no inf, and NaN becomes a zero)
"""

from __future__ import annotations

from codegen.dtypes import FORMATS, DType, bf16, bool_, f32, f64, i32, largest
from codegen.llvm.arithmetic import binary, byte_text, constant, extremum, intrinsic, suffix, wrapped
from codegen.llvm.builder import Builder
from codegen.llvm.values import Literal, Value, bits_of, integer_range, literal, of_lanes, scalar_type
from codegen.loops.float_ranges import Floats


def cast(b: Builder, x: Value, to: DType, saturate: bool) -> Value:
    """Return `x` converted to `to`."""
    source = x.dtype
    limited = saturate and is_narrow(to)
    if source == to and not limited:
        return x
    if isinstance(x, Literal) and to in (f32, f64) and source.kind != "float":
        return literal(float(x.number), to)
    if source.is_float:
        return _from_float(b, x, to, saturate)
    if to.is_float:
        wide = to if to in (f32, f64) else f32
        return cast(b, _int_to_float(b, x, wide), to, saturate)
    return _int_to_int(b, x, to, saturate)


def is_narrow(dtype: DType) -> bool:
    """Tell whether a type is a float that is kept as raw bits."""
    return dtype.is_float and dtype.bits < 32


def _from_float(b: Builder, x: Value, to: DType, saturate: bool) -> Value:
    if is_narrow(x.dtype):
        return cast(b, widen(b, x), to, saturate)
    if to in (f32, f64):
        return Value(to, b.pure(f"{'fpext' if to == f64 else 'fptrunc'} {x.typed} to {_type(to, x)}"), x.lanes)
    if to.is_float:
        wide = x if x.dtype == f32 else _round_to_odd(b, x)
        return truncate(b, _limited(b, wide, largest(to)) if saturate else wide, to)
    if to == bool_:
        return Value(bool_, b.pure(f"fcmp une {x.typed}, {constant(x, 0.0)}"), x.lanes)
    return float_to_int(b, x, to)


def _limited(b: Builder, x: Value, limit: float) -> Value:
    """Return `x` in [-limit, limit]; NaN stays."""
    low, high = (Value(x.dtype, constant(x, number), x.lanes) for number in (-limit, limit))
    return extremum(b, "min", extremum(b, "max", x, low), high)


def float_to_int(b: Builder, x: Value, to: DType, known: Floats | None = None, nan_as_least: bool = False) -> Value:
    """Return `x`, an f32 or f64, truncated and limited to the range of `to`; 0 for NaN, or, with `nan_as_least`, perhaps the least number.
    What is `known` of `x` is not asked for."""
    known = known or Floats(x.dtype)
    low, high = integer_range(to)
    if to.bits > 32 and not known.nan and _is_within(known, max(low, integer_range(i32)[0]), integer_range(i32)[1]):
        return _int_to_int(b, float_to_int(b, x, i32, known), to, False)
    if to.bits <= 16:
        limited = _in_range(b, x, low, high, known)
        whole = Value(i32, b.pure(f"fptosi {limited.typed} to {_type(i32, x)}"), x.lanes)
        return _without_nan(b, x, _truncated(b, whole, to), known)
    signed, fits = to.kind == "int", _is_within(known, low, high)
    register = Value(to, "", x.lanes)
    if (x.lanes > 1 and b.target.is_x86) or (fits and not known.nan):
        with_sign = signed or _is_within(known, 0, high >> 1)
        return _saturated(b, x, Value(to, b.pure(f"fpto{'s' if with_sign else 'u'}i {x.typed} to {register.type}"), x.lanes), known)
    if b.target.is_x86 and signed and not x.lanes and known.high < high + 1:
        least_for_nan = _truncated_or_least(b, x, to)
        return least_for_nan if nan_as_least else _without_nan(b, x, least_for_nan, known)
    fn = b.declare(f"llvm.fpto{'s' if signed else 'u'}i.sat.{suffix(register)}.{suffix(x)}", f"{register.type} @({x.type})")
    return Value(to, b.pure(f"call {register.type} {fn}({x.typed})"), x.lanes)


def _is_within(known: Floats, low: int, high: int) -> bool:
    """Tell whether floats are in a range once they are truncated, but for NaN."""
    return known.low > low - 1 and known.high < high + 1


def _truncated_or_least(b: Builder, x: Value, to: DType) -> Value:
    """Return a number, truncated, as an i32 or i64, that has it; the least of these for what is less, and for NaN, as x86 converts."""
    lanes, operand = (4, "ss") if x.dtype == f32 else (2, "sd")
    vector = of_lanes(x.type, lanes)
    name = f"llvm.x86.sse{'' if x.dtype == f32 else '2'}.cvtt{operand}2si{'64' if to.bits == 64 else ''}"
    fn = b.declare(name, f"{_type(to, x)} @({vector})")
    first = b.pure(f"insertelement {vector} poison, {x.typed}, i64 0")
    return Value(to, b.pure(f"call {_type(to, x)} {fn}({vector} {first})"))


def _saturated(b: Builder, x: Value, whole: Value, known: Floats) -> Value:
    """Return `whole`, made of `x` where that is in the range of its type, elsewhere the nearest number of that; 0 for NaN. x86 has no
    such instruction, and LLVM would convert the lanes of its own one by one."""
    (low, high), kind = integer_range(whole.dtype), of_lanes("i1", x.lanes)

    def where(condition: str, limit: float, this: str, that: str) -> str:
        holds = b.pure(f"fcmp {condition} {x.typed}, {constant(x, limit)}")
        return b.pure(f"select {kind} {holds}, {whole.type} {this}, {whole.type} {that}")

    text = whole.text
    if _may_be_below(known, whole.dtype):
        text = where("oge", float(low), text, constant(whole, low))
    if known.high >= high + 1:
        text = where("oge", float(high + 1), constant(whole, high), text)
    return _without_nan(b, x, Value(whole.dtype, text, x.lanes), known)


def _may_be_below(known: Floats, dtype: DType) -> bool:
    """Tell whether floats may be less than an integer type has, or a NaN that becomes its least number."""
    return known.low <= integer_range(dtype)[0] - 1 or (known.nan and dtype.kind == "uint")


def rounded(b: Builder, x: Value, offset: int, to: DType) -> Value:
    """Return `x`, an f32, rounded to the nearest whole number, ties to even, plus `offset`, limited to the range of `to`, of at most 16
    bits; 0 for NaN. Limits are whole numbers, so rounding after them is as good as before, and is part of the conversion."""
    low, high = integer_range(to)
    limited = _in_range(b, x, low - offset, high - offset, Floats(x.dtype))
    whole = _nearest_whole(b, limited)
    if offset:
        whole = _int_op(b, "add", whole, offset, x)
    return _without_nan(b, x, _truncated(b, Value(i32, whole, x.lanes), to), Floats(x.dtype))


def _nearest_whole(b: Builder, x: Value) -> str:
    """Return the whole number next to `x`, which an i32 holds. WebAssembly rounds and converts in two instructions; asked for one, LLVM
    would call the C library there."""
    if b.target.is_wasm:
        return b.pure(f"fptosi {intrinsic(b, 'rint', x).typed} to {_type(i32, x)}")
    fn = b.declare(f"llvm.lrint.{suffix(Value(i32, '', x.lanes))}.{suffix(x)}", f"{_type(i32, x)} @({x.type})")
    return b.pure(f"call {_type(i32, x)} {fn}({x.typed})")


def _in_range(b: Builder, x: Value, low: int, high: int, known: Floats) -> Value:
    """Return `x` limited to [low, high], where it may be beyond; `low` for NaN where that is 0."""
    kind = of_lanes("i1", x.lanes)
    least, most = constant(x, float(low)), constant(x, float(high))
    if known.low <= low - 1 or (known.nan and low == 0):
        above = b.pure(f"fcmp ogt {x.typed}, {least}")
        x = Value(x.dtype, b.pure(f"select {kind} {above}, {x.typed}, {x.type} {least}"), x.lanes)
    if known.high >= high + 1:
        below = b.pure(f"fcmp olt {x.typed}, {most}")
        x = Value(x.dtype, b.pure(f"select {kind} {below}, {x.typed}, {x.type} {most}"), x.lanes)
    return x


def _truncated(b: Builder, x: Value, to: DType) -> Value:
    return Value(to, b.pure(f"trunc {x.typed} to {_type(to, x)}"), x.lanes)


def _without_nan(b: Builder, x: Value, result: Value, known: Floats) -> Value:
    """Return `result`, 0 where `x` is NaN: unsigned, the least value is that already."""
    if result.dtype.kind == "uint" or not known.nan:
        return result
    number = b.pure(f"fcmp ord {x.typed}, {x.text}")
    kind = of_lanes("i1", x.lanes)
    return Value(result.dtype, b.pure(f"select {kind} {number}, {result.typed}, {result.type} {constant(result, 0)}"), x.lanes)


def _int_to_float(b: Builder, x: Value, to: DType) -> Value:
    return Value(to, b.pure(f"{'sitofp' if x.dtype.kind == 'int' else 'uitofp'} {x.typed} to {_type(to, x)}"), x.lanes)


def _int_to_int(b: Builder, x: Value, to: DType, saturate: bool) -> Value:
    if to == bool_:
        return Value(bool_, b.pure(f"icmp ne {x.typed}, {constant(x, 0)}"), x.lanes)
    if saturate:
        x = _clamped(b, x, x.dtype, to)
    have, want = bits_of(x.dtype), bits_of(to)
    text = x.text
    if have < want:
        if x.dtype == bool_ and x.lanes and b.target.is_x86 and b.target.vector_bits == 256:
            # A comparison makes all bits of a lane: what is added to a sum is taken off as it is.
            mask = b.pure(f"sext {x.typed} to {_type(to, x)}")
            return Value(to, b.pure(f"sub {_type(to, x)} zeroinitializer, {mask}"), x.lanes)
        text = b.pure(f"{'sext' if x.dtype.kind == 'int' else 'zext'} {x.typed} to {_type(to, x)}")
        b.widened[text] = x
    elif have > want:
        made = _lowest_bits(b, x, to) if x.lanes and not saturate else None
        text = b.pure(f"trunc {x.typed} to {_type(to, x)}") if made is None else made.text
    result = Value(to, text, x.lanes)
    return result if saturate else wrapped(b, result)


MOST_STEPS = 6
"""How many operations after one another are looked through for what is left in fewer bits."""


def _lowest_bits(b: Builder, x: Value, to: DType, steps: int = MOST_STEPS) -> Value | None:
    """Return what is left in fewer bits of a number that is made of such as have no more, computed in these bits: a register has more lanes
    of them. None where it is made of others, or otherwise."""
    if isinstance(x, Literal):
        low, high = integer_range(to)
        return literal((int(x.number) - low) % (high - low + 1) + low, to)
    if not x.lanes:
        return _int_to_int(b, x, to, False)
    narrow = b.widened.get(x.text)
    if narrow is not None:
        return _int_to_int(b, narrow, to, False) if bits_of(narrow.dtype) <= bits_of(to) else None
    op, left, right = b.made_of.get(x.text, ("//", x, x))
    if op not in ("+", "-", "*", "bitand", "bitor", "bitxor") or not steps:
        return None
    lhs = _lowest_bits(b, left, to, steps - 1)
    rhs = None if lhs is None else _lowest_bits(b, right, to, steps - 1)
    return None if lhs is None or rhs is None else binary(b, op, lhs, rhs)


def _clamped(b: Builder, x: Value, result: DType, to: DType) -> Value:
    """Return `x` limited to the range of `to`, in the type `result` of the same width."""
    low, high = integer_range(to)
    least, most = integer_range(x.dtype)
    name = "s" if x.dtype.kind == "int" else "u"
    if low > least:
        x = intrinsic(b, f"{name}max", x, Value(x.dtype, constant(x, low), x.lanes))
    if high < most:
        x = intrinsic(b, f"{name}min", x, Value(x.dtype, constant(x, high), x.lanes))
    return Value(result, x.text, x.lanes)


# ---------------------------------------------------------------- narrow floats


def _bias(dtype: DType) -> int:
    return 1 - FORMATS[dtype.name].lowest_exponent


def _magnitudes(dtype: DType) -> int:
    """Return the greatest bits that a value without its sign has."""
    return (1 << (dtype.bits - 1)) - 1


def _infinity(dtype: DType) -> int:
    mantissa = FORMATS[dtype.name].mantissa_bits
    return _magnitudes(dtype) >> mantissa << mantissa


def _nan(dtype: DType) -> int:
    """Return the bits of NaN, or of what takes its place."""
    shape = FORMATS[dtype.name]
    if not shape.has_nan or not shape.has_negative_zero:
        return _magnitudes(dtype) + 1
    return _infinity(dtype) | 1 << (shape.mantissa_bits - 1) if shape.has_inf else _magnitudes(dtype)


def widen(b: Builder, x: Value) -> Value:
    """Return a narrow float as f32."""
    name = x.dtype.name
    if name == "f16" and b.target.has_f16:
        half = b.pure(f"bitcast {x.typed} to {of_lanes('half', x.lanes)}")
        return Value(f32, b.pure(f"fpext {of_lanes('half', x.lanes)} {half} to {_type(f32, x)}"), x.lanes)
    bits = b.pure(f"zext {x.typed} to {_type(i32, x)}")
    if name == "bf16":
        return _float_of(b, _int_op(b, "shl", bits, 16, x), x)
    shape = FORMATS[name]
    width = x.dtype.bits
    sign = _int_op(b, "shl", _int_op(b, "and", bits, 1 << (width - 1), x), 32 - width, x)
    magnitude = _int_op(b, "and", bits, _magnitudes(x.dtype), x)
    shifted = _float_of(b, _int_op(b, "shl", magnitude, 23 - shape.mantissa_bits, x), x)
    # Multiplying by a power of two moves the exponent and makes subnormal numbers normal.
    scaled = b.pure(f"fmul {shifted.typed}, {constant(shifted, 2.0 ** (127 - _bias(x.dtype)))}")
    number = b.pure(f"bitcast {shifted.type} {scaled} to {_type(i32, x)}")
    if shape.has_nan:
        if shape.has_negative_zero:
            limit = _infinity(x.dtype) if shape.has_inf else _magnitudes(x.dtype)
            special = b.pure(f"icmp uge {_type(i32, x)} {magnitude}, {_number(x, limit)}")
        else:
            special = b.pure(f"icmp eq {_type(i32, x)} {bits}, {_number(x, _nan(x.dtype))}")
        beyond = _int_op(b, "or", number, 0x7F800000 if shape.has_inf else 0x7FC00000, x)
        number = b.pure(f"select {_type(bool_, x)} {special}, {_type(i32, x)} {beyond}, {_type(i32, x)} {number}")
    return _float_of(b, b.pure(f"or {_type(i32, x)} {number}, {sign}"), x)


_ROUNDS = {16: ("512", {"+avx512bf16"}), 8: ("256", {"+avx512bf16", "+avx512vl"})}
"""Lanes → the width of the instruction that rounds them to bf16, subnormal numbers to zero, and what a processor needs to have it."""


def nearest_bf16(b: Builder, x: Value) -> Value:
    """Return an f32 rounded to bf16, subnormal numbers perhaps to zero."""
    if x.lanes not in _ROUNDS or not _ROUNDS[x.lanes][1] <= set(b.target.features.split(",")):
        return truncate(b, x, bf16)
    kind = of_lanes("bfloat", x.lanes)
    fn = b.declare(f"llvm.x86.avx512bf16.cvtneps2bf16.{_ROUNDS[x.lanes][0]}", f"{kind} @({x.type})")
    half = b.pure(f"call {kind} {fn}({x.typed})")
    return Value(bf16, b.pure(f"bitcast {kind} {half} to {_type(bf16, x)}"), x.lanes)


def nearest_tf32(b: Builder, x: Value) -> Value:
    """Return an f32 rounded to 10 bits after the point, ties away from zero."""
    kind = _type(i32, x)
    bits = b.pure(f"bitcast {x.typed} to {kind}")
    kept = _int_op(b, "and", _int_op(b, "add", bits, 0x1000, x), -0x2000, x)
    finite = b.pure(f"icmp ult {kind} {_int_op(b, 'and', bits, 0x7FFFFFFF, x)}, {_number(x, 0x7F800000)}")
    return _float_of(b, b.pure(f"select {_type(bool_, x)} {finite}, {kind} {kept}, {kind} {bits}"), x)


def truncate(b: Builder, x: Value, to: DType) -> Value:
    """Return an f32 rounded to a narrow float."""
    if to.name == "f16" and b.target.has_f16:
        half = b.pure(f"fptrunc {x.typed} to {of_lanes('half', x.lanes)}")
        return Value(to, b.pure(f"bitcast {of_lanes('half', x.lanes)} {half} to {_type(to, x)}"), x.lanes)
    shape = FORMATS[to.name]
    kind = _type(i32, x)
    flag = _type(bool_, x)
    bits = b.pure(f"bitcast {x.typed} to {kind}")
    magnitude = _int_op(b, "and", bits, 0x7FFFFFFF, x)
    normal = _rounded(b, magnitude, to, x)
    result = normal
    if _bias(to) != 127:
        tiny = b.pure(f"icmp ult {kind} {magnitude}, {_number(x, (128 - _bias(to)) << 23)}")
        result = b.pure(f"select {flag} {tiny}, {kind} {_subnormal(b, magnitude, to, x)}, {kind} {normal}")
    most = _infinity(to) if shape.has_inf else _magnitudes(to)
    over = b.pure(f"icmp ugt {kind} {result}, {_number(x, most)}")
    if _bias(to) != 127:
        # The exponent may have wrapped around: compare the number itself with 2 to the power of the first exponent that does not exist.
        huge = b.pure(f"icmp uge {kind} {magnitude}, {_number(x, (shape.highest_exponent + 127) << 23)}")
        over = b.pure(f"or {flag} {over}, {huge}")
    beyond = most if shape.has_negative_zero else _nan(to)
    result = b.pure(f"select {flag} {over}, {kind} {_number(x, beyond)}, {kind} {result}")
    nan = b.pure(f"icmp ugt {kind} {magnitude}, {_number(x, 0x7F800000)}")
    result = b.pure(f"select {flag} {nan}, {kind} {_number(x, _nan(to))}, {kind} {result}")
    sign = _int_op(b, "and", _int_op(b, "lshr", bits, 32 - to.bits, x), 1 << (to.bits - 1), x)
    if not shape.has_negative_zero:
        signed = b.pure(f"icmp ult {kind} {_int_op(b, 'sub', result, 1, x)}, {_number(x, _magnitudes(to))}")
        sign = b.pure(f"select {flag} {signed}, {kind} {sign}, {kind} {_number(x, 0)}")
    joined = b.pure(f"{'or' if shape.has_nan else 'xor'} {kind} {result}, {sign}")
    return Value(to, b.pure(f"trunc {kind} {joined} to {_type(to, x)}"), x.lanes)


def _rounded(b: Builder, magnitude: str, to: DType, x: Value) -> str:
    """Return the bits of a normal result: the exponent moved, the mantissa rounded to even."""
    drop = 23 - FORMATS[to.name].mantissa_bits
    odd = _int_op(b, "and", _int_op(b, "lshr", magnitude, drop, x), 1, x)
    moved = _int_op(b, "add", magnitude, ((_bias(to) - 127) << 23) + (1 << (drop - 1)) - 1, x)
    return _int_op(b, "lshr", b.pure(f"add {_type(i32, x)} {moved}, {odd}"), drop, x)


def _subnormal(b: Builder, magnitude: str, to: DType, x: Value) -> str:
    """Return the bits of a subnormal result: adding a power of two lets the processor round at the right place."""
    exponent = 127 - _bias(to) + (23 - FORMATS[to.name].mantissa_bits) + 1
    number = _float_of(b, magnitude, x)
    total = b.pure(f"fadd {number.typed}, {constant(number, 2.0 ** (exponent - 127))}")
    bits = b.pure(f"bitcast {number.type} {total} to {_type(i32, x)}")
    return _int_op(b, "sub", bits, exponent << 23, x)


def _round_to_odd(b: Builder, x: Value) -> Value:
    """Return an f64 as f32: exact, or the neighbour with an odd mantissa."""
    near = Value(f32, b.pure(f"fptrunc {x.typed} to {_type(f32, x)}"), x.lanes)
    back = Value(f64, b.pure(f"fpext {near.typed} to {x.type}"), x.lanes)
    bits = b.pure(f"bitcast {near.typed} to {_type(i32, x)}")
    flag = _type(bool_, x)
    inexact = b.pure(f"fcmp one {x.typed}, {back.text}")
    even = b.pure(f"icmp eq {_type(i32, x)} {_int_op(b, 'and', bits, 1, x)}, {_number(x, 0)}")
    larger = b.pure(f"fcmp ogt {x.type} {intrinsic(b, 'fabs', x).text}, {intrinsic(b, 'fabs', back).text}")
    step = b.pure(f"select {flag} {larger}, {_type(i32, x)} {_number(x, 1)}, {_type(i32, x)} {_number(x, -1)}")
    moved = b.pure(f"add {_type(i32, x)} {bits}, {step}")
    adjust = b.pure(f"and {flag} {inexact}, {even}")
    return _float_of(b, b.pure(f"select {flag} {adjust}, {_type(i32, x)} {moved}, {_type(i32, x)} {bits}"), x)


def _type(dtype: DType, like: Value) -> str:
    return of_lanes(scalar_type(dtype), like.lanes)


def _number(like: Value, number: int) -> str:
    return constant(Value(i32, "", like.lanes), number)


def _int_op(b: Builder, op: str, text: str, number: int, like: Value) -> str:
    return b.pure(f"{op} {_type(i32, like)} {text}, {_number(like, number)}")


def _float_of(b: Builder, bits: str, like: Value) -> Value:
    return Value(f32, b.pure(f"bitcast {_type(i32, like)} {bits} to {_type(f32, like)}"), like.lanes)


def from_memory(b: Builder, dtype: DType, text: str, lanes: int) -> Value:
    """Return what was loaded as a value, one or one per lane: truth values and numbers of less than eight bits lie in bytes."""
    if dtype == bool_:
        zero = "zeroinitializer" if lanes else "0"
        text = b.pure(f"icmp ne {of_lanes('i8', lanes)} {text}, {zero}")
    elif dtype.is_integer and dtype.bits < 8:
        vector, above = of_lanes("i8", lanes), byte_text(8 - dtype.bits, lanes)
        high = b.pure(f"shl {vector} {text}, {above}")
        text = b.pure(f"{'ashr' if dtype.kind == 'int' else 'lshr'} {vector} {high}, {above}")
    return Value(dtype, text, lanes)


def to_memory(b: Builder, value: Value) -> str:
    """Return a value as it lies in memory."""
    if value.dtype.is_integer and value.dtype.bits < 8:
        return b.pure(f"and {value.typed}, {byte_text((1 << value.dtype.bits) - 1, value.lanes)}")
    if value.dtype != bool_:
        return value.text
    return b.pure(f"zext {value.typed} to {of_lanes('i8', value.lanes)}")
