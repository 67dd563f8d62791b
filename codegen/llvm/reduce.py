"""Reductions over the lanes of a vector: all lanes combined into one element."""

from __future__ import annotations

from codegen.dtypes import bool_
from codegen.llvm import arithmetic
from codegen.llvm.builder import Builder
from codegen.llvm.state import splat
from codegen.llvm.values import Value, bits_of, constant_text, integer_range, literal, of_lanes, scalar_type

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
        parts = []
        for start in (0, half):
            order = ", ".join(f"i32 {start + i}" for i in range(half))
            parts.append(Value(x.dtype, b.pure(f"shufflevector {x.typed}, {x.type} poison, <{half} x i32> <{order}>"), half))
        x = arithmetic.binary(b, op, parts[0], parts[1])  # type: ignore[arg-type]  # min or max
    lanes = [Value(x.dtype, b.pure(f"extractelement {x.typed}, i64 {lane}")) for lane in range(x.lanes)]
    return arithmetic.binary(b, op, lanes[0], lanes[1]) if len(lanes) > 1 else lanes[0]  # type: ignore[arg-type]


def running(b: Builder, op: str, old: Value, x: Value) -> tuple[Value, Value]:
    """Return in each lane `old` combined with all lanes of `x` up to it, and `old` combined with all of them, in logarithmically many steps
    (Hillis and Steele 1986; across quarters of a register Sklansky 1960, where one element is what moves)."""
    if x.dtype == bool_:
        return _running_bits(b, op, old, x)
    neutral, near = identity(op, x), max(1, QUARTER // bits_of(x.dtype))
    step = 1
    while step < x.lanes:
        if step < near:
            taken = [lane - step if lane % near >= step else -1 for lane in range(x.lanes)]
        else:
            taken = [lane // step * step - 1 if lane // step % 2 else -1 for lane in range(x.lanes)]
        order = ", ".join(f"i32 {x.lanes if t < 0 else t}" for t in taken)
        before = b.pure(f"shufflevector {x.typed}, {x.type} {neutral}, <{x.lanes} x i32> <{order}>")
        x = arithmetic.binary(b, op, Value(x.dtype, before, x.lanes), x)  # type: ignore[arg-type]  # `op` is a BinaryOp here
        step *= 2
    last = Value(x.dtype, b.pure(f"extractelement {x.typed}, i64 {x.lanes - 1}"))
    # What the next lanes wait for is one operation.
    return arithmetic.binary(b, op, splat(b, old, x.lanes), x), arithmetic.binary(b, op, old, last)  # type: ignore[arg-type]


def _running_bits(b: Builder, op: str, old: Value, x: Value) -> tuple[Value, Value]:
    """Return the same of truths, as one number whose bits they are."""
    name, kind = _COMBINES[op], f"i{x.lanes}"
    bits = b.pure(f"bitcast {x.typed} to {kind}")
    if name == "and":
        bits = b.pure(f"xor {kind} {bits}, -1")
    step = 1
    while step < x.lanes:
        moved = b.pure(f"shl {kind} {bits}, {step}")
        bits = b.pure(f"{'xor' if name == 'xor' else 'or'} {kind} {bits}, {moved}")
        step *= 2
    if name == "and":
        bits = b.pure(f"xor {kind} {bits}, -1")
    last = Value(bool_, b.pure(f"icmp slt {kind} {bits}, 0"))
    every = b.pure(f"sext i1 {old.text} to {kind}")
    found = b.pure(f"bitcast {kind} {b.pure(f'{name} {kind} {bits}, {every}')} to {x.type}")
    return Value(bool_, found, x.lanes), arithmetic.binary(b, op, old, last)  # type: ignore[arg-type]  # `op` is a BinaryOp here


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
    kind = x.dtype.kind
    name = _COMBINES[op]
    if kind == "bool":
        return "splat (i1 true)" if name == "and" else "zeroinitializer"
    if name in ("min", "max"):
        if kind == "float":
            return arithmetic.constant(x, float("inf") if name == "min" else float("-inf"))
        low, high = integer_range(x.dtype)
        return arithmetic.constant(x, high if name == "min" else low)
    number_ = {"add": -0.0 if kind == "float" else 0, "mul": 1, "and": -1, "or": 0, "xor": 0}[name]
    return arithmetic.constant(x, number_)
