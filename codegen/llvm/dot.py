"""Dot products of neighbouring narrow elements: one instruction where the processor has it, a short sequence where not.

    bf16 x bf16    vdpbf16ps, bfdot                 two multiply-adds of the halves, widened by a shift and a mask
    u8 x i8        vpdpbusd, usdot, or sdot on a - 128 plus 128 times the sum of b;
                                                    four products of bytes extended to i32
    i8 x i8        vpdpbssd, sdot, or vpdpbusd on a + 128 less 128 times the sum of b
    u8 x u8        vpdpbuud, udot, or vpdpbusd on b - 128 plus 128 times the sum of a
    bytes          pmaddwd, i32x4.dot_i16x8_s on the even ones and on the odd ones, extended to i16
    i16 x i16      vpdpwssd, pmaddwd, i32x4.dot_i16x8_s
                                                    two products extended to i32

Integers are exact on every way. For bf16 the ways differ in the last bits: `vdpbf16ps` rounds after each of its two products is added and
takes subnormal numbers for zero, as `bfdot` does, which rounds both to odd; `fma` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from codegen.dtypes import DType, bf16, f32, i8, i16, i32, u8, u32
from codegen.intrinsics import Intrinsic
from codegen.llvm import arithmetic
from codegen.llvm.builder import Builder
from codegen.llvm.intrinsics import operand_type, signature
from codegen.llvm.state import splat
from codegen.llvm.tile_forms import form as tile_form
from codegen.llvm.values import Value, of_lanes, scalar_type
from codegen.loops.dots import BITS, group
from codegen.loops.tiles import SIDE


@dataclass(frozen=True, slots=True)
class Group:
    """Elements of `dtype` next to each other, the first one lowest, as one u32, or one per lane."""

    dtype: DType
    bits: Value


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction: its operands' types, the lanes it works on, what the processor must have, and LLVM's name for it."""

    a: DType
    b: DType
    lanes: int
    needs: tuple[str, ...]
    intrinsic: str
    element: str
    """How LLVM sees the elements of an operand."""
    adds: bool = True
    """Whether it adds what it is given to the products."""


_WIDTHS = ((16, "512", ()), (8, "256", ("avx512vl",)), (4, "128", ("avx512vl",)))
FORMS: tuple[Form, ...] = (
    *(Form(bf16, bf16, n, ("avx512bf16", *vl), f"llvm.x86.avx512bf16.dpbf16ps.{w}", "bfloat") for n, w, vl in _WIDTHS),
    *(Form(u8, i8, n, ("avx512vnni", *vl), f"llvm.x86.avx512.vpdpbusd.{w}", "i32") for n, w, vl in _WIDTHS),
    *(Form(i16, i16, n, ("avx512vnni", *vl), f"llvm.x86.avx512.vpdpwssd.{w}", "i32") for n, w, vl in _WIDTHS),
    *(Form(i8, i8, n, ("avxvnniint8",), f"llvm.x86.avx2.vpdpbssd.{w}", "i32") for n, w, _ in _WIDTHS[1:]),
    *(Form(u8, u8, n, ("avxvnniint8",), f"llvm.x86.avx2.vpdpbuud.{w}", "i32") for n, w, _ in _WIDTHS[1:]),
    *(Form(u8, i8, n, ("avxvnni",), f"llvm.x86.avx512.vpdpbusd.{w}", "i32") for n, w, _ in _WIDTHS[1:]),
    *(Form(i16, i16, n, ("avxvnni",), f"llvm.x86.avx512.vpdpwssd.{w}", "i32") for n, w, _ in _WIDTHS[1:]),
    Form(i16, i16, 16, ("avx512bw",), "llvm.x86.avx512.pmaddw.d.512", "i16", adds=False),
    Form(i16, i16, 8, ("avx2",), "llvm.x86.avx2.pmadd.wd", "i16", adds=False),
    Form(i16, i16, 4, ("sse2",), "llvm.x86.sse2.pmadd.wd", "i16", adds=False),
    Form(i16, i16, 4, ("simd128",), "llvm.wasm.dot", "i16", adds=False),
    Form(bf16, bf16, 4, ("neon", "bf16"), "llvm.aarch64.neon.bfdot.v4f32.v8bf16", "bfloat"),
    Form(u8, i8, 4, ("neon", "i8mm"), "llvm.aarch64.neon.usdot.v4i32.v16i8", "i8"),
    Form(i8, i8, 4, ("neon", "dotprod"), "llvm.aarch64.neon.sdot.v4i32.v16i8", "i8"),
    Form(u8, u8, 4, ("neon", "dotprod"), "llvm.aarch64.neon.udot.v4i32.v16i8", "i8"),
)
"""The instruction table. Of several forms the first is taken that the processor has."""
_NAMES = {f.intrinsic for f in FORMS if f.adds}
_BYTES = frozenset({(u8, i8), (i8, u8), (i8, i8), (u8, u8)})
"""Whoever has an instruction for one of these, or for i16, makes the others of it."""


@cache
def form(features: str, a: DType, b: DType, lanes: int) -> Form | None:
    """Return the instruction for `lanes` dot products of `a` with `b` on a processor with `features` (`+avx2,+fma`), if there is one."""
    has = {f[1:] for f in features.split(",") if f.startswith("+")}
    return next((f for f in FORMS if (f.a, f.b, f.lanes) == (a, b, lanes) and has.issuperset(f.needs)), None)


@cache
def pairs(features: str, lanes: int) -> frozenset[tuple[DType, DType]]:
    """Return the types of which a processor with `features` adds up products faster than those of wide elements, at `lanes` a register."""
    found = {(f.a, f.b) for f in FORMS if form(features, f.a, f.b, lanes) is not None}
    return frozenset(found | (_BYTES if found & {*_BYTES, (i16, i16)} else set()))


def rate(features: str, vector_bits: int, a: DType, b: DType) -> int:
    """Return how many products of an `a` and a `b` instructions add up in the time of a multiply-add of f32, 0 where there are none."""
    wide = vector_bits // BITS
    found, tile = form(features, a, b, wide), tile_form(features, a, b)
    return max(0 if found is None else found.lanes * group(a) // wide, 0 if tile is None or wide != SIDE else tile.rate)


def gathered(b: Builder, parts: Sequence[Value]) -> Value:
    """Return elements held apart as one number."""
    total: Value | None = None
    for r, part in enumerate(parts):
        wide = Value(u32, b.pure(f"zext {part.typed} to {of_lanes('i32', part.lanes)}"), part.lanes)
        shifted = wide if r == 0 else _shift(b, "shl", wide, r * part.dtype.bits)
        total = shifted if total is None else Value(u32, b.pure(f"or {total.typed}, {shifted.text}"), part.lanes)
    assert total is not None, "a group has elements"
    return total


def dot(b: Builder, x: Group, y: Group, c: Value) -> Value:
    """Return `c` plus the products of the elements of `x` and `y`."""
    lanes = max(x.bits.lanes, y.bits.lanes, c.lanes)
    c = splat(b, c, lanes)
    given = _given(b, x.dtype, y.dtype, c.dtype, lanes, group(x.dtype))
    if given is not None:
        x, y = (x, y) if (given.a, given.b) == (x.dtype, y.dtype) else (y, x)
        return _call_given(b, given, x.bits, y.bits, c)
    if (room := _room(b.target.features, x.dtype, y.dtype, lanes)) > lanes:
        first, second, total = (_widened(b, splat(b, v, lanes), room) for v in (x.bits, y.bits, c))
        return _first(b, dot(b, Group(x.dtype, first), Group(y.dtype, second), total), lanes)
    if (x.dtype, y.dtype) == (i8, u8):
        x, y = y, x
    found = form(b.target.features, x.dtype, y.dtype, lanes)
    if found is not None:
        return _call(b, found, x.bits, y.bits, c)
    mixed = form(b.target.features, u8, i8, lanes)
    if mixed is not None and x.dtype == y.dtype == i8:
        raised = _call(b, mixed, _flipped(b, x.bits), y.bits, c)
        excess = _call(b, mixed, Value(u32, _splat(lanes, _TOP), lanes), y.bits, Value(i32, "zeroinitializer", lanes))
        return arithmetic.binary(b, "-", raised, excess)
    if mixed is not None and x.dtype == y.dtype == u8:
        lowered = _call(b, mixed, x.bits, _flipped(b, y.bits), c)
        ones = _call(b, mixed, x.bits, Value(u32, _splat(lanes, 0x01010101), lanes), Value(i32, "zeroinitializer", lanes))
        return arithmetic.binary(b, "+", lowered, _shift(b, "shl", ones, 7))
    signed = form(b.target.features, i8, i8, lanes)
    if signed is not None and (x.dtype, y.dtype) == (u8, i8):
        lowered = _call(b, signed, _flipped(b, x.bits), y.bits, c)
        ones = _call(b, signed, Value(u32, _splat(lanes, 0x01010101), lanes), y.bits, Value(i32, "zeroinitializer", lanes))
        return arithmetic.binary(b, "+", lowered, _shift(b, "shl", ones, 7))
    words = form(b.target.features, i16, i16, lanes)
    if words is not None and x.dtype.bits == 8:
        for half in (_even, _odd):
            c = _call(b, words, half(b, x, lanes), half(b, y, lanes), c)
        return c
    return _two_halves(b, x, y, c) if x.dtype == bf16 else _extended(b, x, y, c)


def _room(features: str, x: DType, y: DType, lanes: int) -> int:
    """Return on how many lanes the narrowest instruction works that has as many as `lanes`, or `lanes` where there is none."""
    return next((n for n in sorted({f.lanes for f in FORMS}) if n >= lanes and (x, y) in pairs(features, n)), lanes)


def _widened(b: Builder, v: Value, lanes: int) -> Value:
    """Return a vector that begins with the lanes of `v`; nobody reads the others."""
    if v.lanes == 0:
        kind = of_lanes(scalar_type(v.dtype), lanes)
        return Value(v.dtype, b.pure(f"insertelement {kind} poison, {v.typed}, i64 0"), lanes)
    return arithmetic.picked(b, v, range(lanes))


def _first(b: Builder, v: Value, lanes: int) -> Value:
    """Return the first lanes of a vector, or the element of the first one where `lanes` is 0."""
    if lanes == 0:
        return Value(v.dtype, b.pure(f"extractelement {v.typed}, i64 0"))
    return arithmetic.picked(b, v, range(lanes))


def multiply_add(b: Builder, x: Value, y: Value, c: Value) -> Value:
    """Return `x * y + c` rounded once."""
    lanes = max(x.lanes, y.lanes, c.lanes)
    given = _given(b, x.dtype, y.dtype, c.dtype, lanes, 1)
    return arithmetic.fma(b, x, y, c) if given is None else _call_given(b, given, x, y, splat(b, c, lanes))


def _given(b: Builder, x: DType, y: DType, total: DType, lanes: int, count: int) -> Intrinsic | None:
    """Return the instruction of the file's own for such sums, if it has one that is not in the table."""
    found = (i for i in b.intrinsics if (i.total, i.lanes, i.count) == (total, lanes, count) and i.name not in _NAMES)
    return next((i for i in found if (i.a, i.b) in ((x, y), (y, x))), None)


def _call_given(b: Builder, it: Intrinsic, x: Value, y: Value, c: Value) -> Value:
    fn = b.declare(it.name, signature(it))
    vectors = {"a": splat(b, x, it.lanes), "b": splat(b, y, it.lanes), "c": c}
    operands = ", ".join(_as(b, vectors[o], operand_type(it, o)) for o in it.operands)
    result = Value(c.dtype, b.pure(f"call {c.type} {fn}({operands})"), it.lanes)
    return result if "c" in it.operands else arithmetic.binary(b, "+", result, c)


_TOP = 0x80808080
_GROUPED = {"i32": 1, "bfloat": 2, "i16": 2, "i8": 4}
"""Elements, as LLVM sees them, of a lane of an operand."""


def _call(b: Builder, form: Form, x: Value, y: Value, c: Value) -> Value:
    operand = of_lanes(form.element, form.lanes * _GROUPED[form.element])
    args = [_as(b, splat(b, v, form.lanes), operand) for v in (x, y)]
    if not form.adds:
        fn = b.declare(form.intrinsic, f"{c.type} @({operand}, {operand})")
        return arithmetic.binary(b, "+", c, Value(c.dtype, b.pure(f"call {c.type} {fn}({', '.join(args)})"), form.lanes))
    fn = b.declare(form.intrinsic, f"{c.type} @({c.type}, {operand}, {operand})")
    return Value(c.dtype, b.pure(f"call {c.type} {fn}({c.typed}, {', '.join(args)})"), form.lanes)


def _as(b: Builder, v: Value, kind: str) -> str:
    return v.typed if kind == v.type else f"{kind} {b.pure(f'bitcast {v.typed} to {kind}')}"


def _flipped(b: Builder, v: Value) -> Value:
    """Return every byte with 128 added or, which is the same, taken away."""
    return Value(v.dtype, b.pure(f"xor {v.typed}, {_splat(v.lanes, _TOP)}"), v.lanes)


def _splat(lanes: int, number: int) -> str:
    signed = number - (1 << 32) if number >> 31 else number
    return f"splat (i32 {signed})" if lanes else str(signed)


def _shift(b: Builder, op: str, v: Value, by: int) -> Value:
    return Value(v.dtype, b.pure(f"{op} {v.typed}, {_splat(v.lanes, by)}"), v.lanes)


def _even(b: Builder, v: Group, lanes: int) -> Value:
    """Return the bytes at even places, extended to 16 bits."""
    if v.dtype.kind == "uint":
        return Value(u32, b.pure(f"and {v.bits.typed}, {_splat(v.bits.lanes, 0x00FF00FF)}"), v.bits.lanes)
    return _words(b, _words(b, splat(b, v.bits, lanes), "shl"), "ashr")


def _odd(b: Builder, v: Group, lanes: int) -> Value:
    """Return the bytes at odd places, extended to 16 bits."""
    return _words(b, splat(b, v.bits, lanes), "ashr" if v.dtype.kind == "int" else "lshr")


def _words(b: Builder, v: Value, op: str) -> Value:
    """Return every 16 bits shifted by 8."""
    kind = of_lanes("i16", 2 * v.lanes)
    moved = b.pure(f"{op} {_as(b, v, kind)}, splat (i16 8)")
    return Value(u32, b.pure(f"bitcast {kind} {moved} to {v.type}"), v.lanes)


# ---------------------------------------------------------------- without the instruction


def _two_halves(b: Builder, x: Group, y: Group, c: Value) -> Value:
    for half in (_low, _high):
        c = arithmetic.multiply_add(b, half(b, x.bits), half(b, y.bits), c)
    return c


def _low(b: Builder, v: Value) -> Value:
    return _float(b, _shift(b, "shl", v, 16))


def _high(b: Builder, v: Value) -> Value:
    return _float(b, Value(u32, b.pure(f"and {v.typed}, {_splat(v.lanes, 0xFFFF0000)}"), v.lanes))


def _float(b: Builder, v: Value) -> Value:
    return Value(f32, b.pure(f"bitcast {v.typed} to {of_lanes('float', v.lanes)}"), v.lanes)


def _extended(b: Builder, x: Group, y: Group, c: Value) -> Value:
    for r in range(32 // x.dtype.bits):
        product = arithmetic.binary(b, "*", _element(b, x, r), _element(b, y, r))
        c = arithmetic.binary(b, "+", c, product)
    return c


def _element(b: Builder, v: Group, r: int) -> Value:
    """Return element `r` of a group as an i32."""
    bits = v.dtype.bits
    high = _shift(b, "shl", v.bits, 32 - bits * (r + 1)) if bits * (r + 1) < 32 else v.bits
    low = _shift(b, "ashr" if v.dtype.kind == "int" else "lshr", high, 32 - bits)
    return Value(i32, low.text, low.lanes)
