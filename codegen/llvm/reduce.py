"""Reductions over the lanes of a vector: all lanes combined into one element."""

from __future__ import annotations

from codegen.dtypes import bool_
from codegen.llvm import arithmetic
from codegen.llvm.builder import Builder
from codegen.llvm.state import splat
from codegen.llvm.values import Value, bits_of, constant_text, literal, of_lanes, scalar_type
from codegen.loops.running_results import neutral_of

_COMBINES = {
    "+": "add", "fma": "add", "-": "add", "*": "mul", "min": "min", "max": "max",
    "and": "and", "or": "or", "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip

QUARTER = 128
"""Bits within which elements move faster than across."""
MOST_COUNTED = 64
"""Lanes whose mask is a number in a register."""


def horizontal(b: Builder, op: str, x: Value) -> Value:
    """Return all lanes combined. Sums and products of floats are combined in whichever order is fastest."""
    element = scalar_type(x.dtype)
    suffix = arithmetic.suffix(x)
    name = _COMBINES[op]
    if x.dtype.is_float and name in ("add", "mul"):
        start = constant_text(-0.0 if name == "add" else 1.0, x.dtype)
        fn = b.declare(f"llvm.vector.reduce.f{name}.{suffix}", f"{element} @({element}, {x.type})")
        return Value(x.dtype, b.pure(f"call reassoc {element} {fn}({element} {start}, {x.typed})"))
    if name in ("min", "max"):
        return _extremum(b, name, x) if x.dtype.is_float else _halved(b, op, x)
    fn = b.declare(f"llvm.vector.reduce.{name}.{suffix}", f"{element} @({x.type})")
    return arithmetic.wrapped(b, Value(x.dtype, b.pure(f"call {element} {fn}({x.typed})")))


def _extremum(b: Builder, name: str, x: Value) -> Value:
    if name == "max" and arithmetic.collects_negated(b.target):
        return arithmetic.unary(b, "neg", _halved(b, "min", arithmetic.unary(b, "neg", x)))
    return _halved(b, name, x)


def _halved(b: Builder, op: str, x: Value) -> Value:
    """Combine the two halves until one element is left."""
    while x.lanes > 2:
        half = x.lanes // 2
        low, high = (arithmetic.picked(b, x, range(start, start + half)) for start in (0, half))
        x = arithmetic.binary(b, op, low, high)  # type: ignore[arg-type]  # min or max
    lanes = [Value(x.dtype, b.pure(f"extractelement {x.typed}, i64 {lane}")) for lane in range(x.lanes)]
    return arithmetic.binary(b, op, lanes[0], lanes[1]) if len(lanes) > 1 else lanes[0]  # type: ignore[arg-type]


def running(b: Builder, op: str, old: Value, x: Value, begins: Value | None = None) -> tuple[Value, Value]:
    """Return in each lane `old` combined with all lanes of `x` up to it, or with those from the last on that `begins`, and the same of the
    lane behind the last: in logarithmically many steps (Hillis and Steele 1986; across quarters of a register Sklansky 1960, where one
    element is what moves; with beginnings Blelloch 1990)."""
    bits, kind = None, f"i{x.lanes}"
    if begins is not None:
        bits = b.pure(f"bitcast {begins.typed} to {kind}")
    if x.dtype == bool_:
        return _running_bits(b, op, old, x, bits)
    neutral, near = identity(op, x), max(1, QUARTER // bits_of(x.dtype))
    step = 1
    while step < x.lanes:
        if bits is not None:
            taken = [lane - step for lane in range(x.lanes)]
        elif step < near:
            taken = [lane - step if lane % near >= step else -1 for lane in range(x.lanes)]
        else:
            taken = [lane // step * step - 1 if lane // step % 2 else -1 for lane in range(x.lanes)]
        order = ", ".join(f"i32 {x.lanes if t < 0 else t}" for t in taken)
        before = b.pure(f"shufflevector {x.typed}, {x.type} {neutral}, <{x.lanes} x i32> <{order}>")
        x = _unless(b, bits, arithmetic.binary(b, op, Value(x.dtype, before, x.lanes), x), x)  # type: ignore[arg-type]  # a BinaryOp
        bits = bits and b.pure(f"or {kind} {bits}, {b.pure(f'shl {kind} {bits}, {step}')}")
        step *= 2
    last = Value(x.dtype, b.pure(f"extractelement {x.typed}, i64 {x.lanes - 1}"))
    # What the next lanes wait for is one operation.
    found = _unless(b, bits, arithmetic.binary(b, op, splat(b, old, x.lanes), x), x)  # type: ignore[arg-type]  # a BinaryOp
    kept = arithmetic.binary(b, op, old, last)  # type: ignore[arg-type]  # a BinaryOp
    if bits is not None:
        kept = arithmetic.select(b, Value(bool_, b.pure(f"icmp slt {kind} {bits}, 0")), last, kept)
    return found, kept


def _unless(b: Builder, bits: str | None, combined: Value, alone: Value) -> Value:
    """Return what is combined, but alone in the lanes whose bits are 1."""
    if bits is None:
        return combined
    mask = Value(bool_, b.pure(f"bitcast i{alone.lanes} {bits} to {of_lanes('i1', alone.lanes)}"), alone.lanes)
    return arithmetic.select(b, mask, alone, combined)


def _running_bits(b: Builder, op: str, old: Value, x: Value, begins: str | None) -> tuple[Value, Value]:
    """Return the same of truths, as one number whose bits they are."""
    name, kind = _COMBINES[op], f"i{x.lanes}"
    bits = b.pure(f"bitcast {x.typed} to {kind}")
    turned = name == "and"  # what does not hold somewhere before
    bits = b.pure(f"xor {kind} {bits}, -1") if turned else bits
    every = b.pure(f"sext i1 {old.text} to {kind}")
    every = b.pure(f"xor {kind} {every}, -1") if turned else every
    combine = "xor" if name == "xor" else "or"
    step = 1
    while step < x.lanes:
        moved = b.pure(f"shl {kind} {bits}, {step}")
        if begins is not None:
            moved = b.pure(f"and {kind} {moved}, {b.pure(f'xor {kind} {begins}, -1')}")
            begins = b.pure(f"or {kind} {begins}, {b.pure(f'shl {kind} {begins}, {step}')}")
        bits = b.pure(f"{combine} {kind} {bits}, {moved}")
        step *= 2
    if begins is not None:
        every = b.pure(f"and {kind} {every}, {b.pure(f'xor {kind} {begins}, -1')}")
    bits = b.pure(f"{combine} {kind} {bits}, {every}")
    bits = b.pure(f"xor {kind} {bits}, -1") if turned else bits
    return Value(bool_, b.pure(f"bitcast {kind} {bits} to {x.type}"), x.lanes), Value(bool_, b.pure(f"icmp slt {kind} {bits}, 0"))


def place(b: Builder, op: str, begin: Value, step: int, mask: str | None, lanes: int) -> Value:
    """Return the least (`min`) or the greatest (`max`) of `begin + step * lane` of the lanes in a mask, None standing for all; where there
    is none, what changes nothing. `step` is positive, and there are `MOST_COUNTED` lanes at most."""
    if mask is None:
        number = literal(step * (0 if op == "min" else lanes - 1), begin.dtype)
        return arithmetic.binary(b, "+", begin, number)
    word = 32 if lanes <= 32 else 64
    bits = b.pure(f"bitcast {of_lanes('i1', lanes)} {mask} to i{lanes}")
    if lanes < word:
        bits = b.pure(f"zext i{lanes} {bits} to i{word}")
    counts = b.declare(f"llvm.{'cttz' if op == 'min' else 'ctlz'}.i{word}", f"i{word} @(i{word}, i1)")
    lane = b.pure(f"call i{word} {counts}(i{word} {bits}, i1 true)")
    if op == "max":
        lane = b.pure(f"sub i{word} {word - 1}, {lane}")
    kind = scalar_type(begin.dtype)
    if kind != f"i{word}":
        lane = b.pure(f"{'zext' if word == 32 else 'trunc'} i{word} {lane} to {kind}")
    moved = arithmetic.binary(b, "*", Value(begin.dtype, lane), literal(step, begin.dtype)) if step != 1 else Value(begin.dtype, lane)
    found = arithmetic.binary(b, "+", begin, moved)
    return Value(begin.dtype, b.pure(f"select i1 {b.pure(f'icmp ne i{word} {bits}, 0')}, {found.typed}, {kind} {identity(op, begin)}"))


def identity(op: str, x: Value) -> str:
    """Return what changes no element when it is combined with it, in every lane of the type of `x`."""
    if x.dtype == bool_:
        return "splat (i1 true)" if _COMBINES[op] == "and" else "zeroinitializer"
    return arithmetic.constant(x, neutral_of(op, x.dtype))
