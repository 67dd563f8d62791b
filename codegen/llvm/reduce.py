"""Reductions over the lanes of a vector: all lanes combined into one element."""

from __future__ import annotations

from codegen.llvm import arithmetic
from codegen.llvm.builder import Builder
from codegen.llvm.values import Value, constant_text, integer_range, literal, of_lanes, scalar_type

_COMBINES = {
    "+": "add", "fma": "add", "-": "add", "*": "mul", "min": "min", "max": "max",
    "and": "and", "or": "or", "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip

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
