"""What elementary functions are written in: arithmetic on values of one or many lanes under short names, and calls of the C library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

from codegen.dtypes import DType, bool_, f32, f64, i32, i64
from codegen.llvm.arithmetic import compare, constant, extremum, intrinsic, multiply_add, select
from codegen.llvm.builder import Builder
from codegen.llvm.values import Value, of_lanes, scalar_type
from codegen.loops.nodes import CompareOp


@dataclass(frozen=True, slots=True)
class Lane:
    """Short names for arithmetic on values with as many lanes as the argument has."""

    b: Builder
    lanes: int

    def of(self, number: float | int, dtype: DType = f32) -> Value:
        return Value(dtype, constant(Value(dtype, "", self.lanes), number), self.lanes)

    def op(self, name: str, x: Value, y: Value | float | int) -> Value:
        y = y if isinstance(y, Value) else self.of(y, x.dtype)
        return Value(x.dtype, self.b.pure(f"{name} {x.typed}, {y.text}"), self.lanes)

    def add(self, x: Value, y: Value | float) -> Value:
        return self.op("fadd", x, y)

    def sub(self, x: Value, y: Value | float) -> Value:
        return self.op("fsub", x, y)

    def mul(self, x: Value, y: Value | float) -> Value:
        return self.op("fmul", x, y)

    def div(self, x: Value, y: Value | float) -> Value:
        return self.op("fdiv", x, y)

    def mad(self, x: Value, y: Value | float, z: Value | float) -> Value:
        """Return x * y + z, rounded once where the machine can."""
        y = y if isinstance(y, Value) else self.of(y, x.dtype)
        z = z if isinstance(z, Value) else self.of(z, x.dtype)
        return multiply_add(self.b, x, y, z)

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Return c0 + c1 x + c2 x^2 + ..."""
        result = self.of(coefficients[-1], x.dtype)
        for c in reversed(coefficients[:-1]):
            result = self.mad(result, x, c)
        return result

    def at_least(self, x: Value, low: float) -> Value:
        return extremum(self.b, "max", self.of(low, x.dtype), x)

    def at_most(self, x: Value, high: float) -> Value:
        return extremum(self.b, "min", self.of(high, x.dtype), x)

    def negative(self, x: Value) -> Value:
        """Return whether the sign of `x` is set, be it of a zero."""
        bits = self.bits(x)
        return self.test("<", bits, self.of(0, bits.dtype))

    def conjunction(self, x: Value, y: Value) -> Value:
        """Return whether two conditions hold."""
        return Value(bool_, self.b.pure(f"and {x.typed}, {y.text}"), self.lanes)

    def with_sign(self, x: Value, sign: Value) -> Value:
        """Return |x| with the sign of another number."""
        return intrinsic(self.b, "copysign", x, sign)

    def quadrant(self, sine: Value, cosine: Value, count: Value, more: int) -> Value:
        """Return the sine of an angle and `count + more` quarters of a turn, of the sine and the cosine of the angle."""
        count = self.op("add", count, more)
        value = self.where(self.test("!=", self.op("and", count, 1), self.of(0, count.dtype)), cosine, sine)
        flip = self.op("shl", self.op("and", count, 2), 30 if count.dtype == i32 else 62)
        return self.float(self.op("xor", self.bits(value), flip))

    def slope(self, sine: Value, cosine: Value, count: Value) -> Value:
        """Return the tangent of an angle and `count` quarters of a turn, of the sine and the cosine of the angle."""
        odd = self.test("!=", self.op("and", count, 1), self.of(0, count.dtype))
        opposite = Value(sine.dtype, self.b.pure(f"fneg {cosine.typed}"), self.lanes)
        return self.div(self.where(odd, opposite, sine), self.where(odd, sine, cosine))

    def zero_kept(self, x: Value, result: Value) -> Value:
        """Return `result`, but `x` where that is a zero: of an odd function, whose sums lose the sign of it."""
        return self.where(self.test("==", x, 0.0), x, result)

    def abs(self, x: Value) -> Value:
        return intrinsic(self.b, "fabs", x)

    def where(self, cond: Value, then: Value | float, orelse: Value | float) -> Value:
        like = then if isinstance(then, Value) else orelse
        dtype = like.dtype if isinstance(like, Value) else f32
        x = then if isinstance(then, Value) else self.of(then, dtype)
        y = orelse if isinstance(orelse, Value) else self.of(orelse, dtype)
        return select(self.b, cond, x, y)

    def test(self, op: CompareOp, x: Value, y: Value | float) -> Value:
        return compare(self.b, op, x, y if isinstance(y, Value) else self.of(y, x.dtype))

    def bits(self, x: Value) -> Value:
        """Return the bits of an f32 or f64 as an integer of its width."""
        return self.convert("bitcast", x, i32 if x.dtype == f32 else i64)

    def float(self, x: Value) -> Value:
        """Return the f32 or f64 of these bits."""
        return self.convert("bitcast", x, f32 if x.dtype == i32 else f64)

    def convert(self, op: str, x: Value, dtype: DType) -> Value:
        return Value(dtype, self.b.pure(f"{op} {x.typed} to {of_lanes(scalar_type(dtype), self.lanes)}"), self.lanes)


def libm(b: Builder, fn: str, args: tuple[Value, ...]) -> Value:
    """Return `fn` as the C library computes it, one lane after the other."""
    dtype = args[0].dtype
    kind = scalar_type(dtype)
    lanes = args[0].lanes
    callee = b.declare(fn + ("f" if dtype == f32 else ""), f"{kind} @({', '.join([kind] * len(args))})")
    if not lanes:
        return Value(dtype, b.op(f"call {kind} {callee}({', '.join(a.typed for a in args)})"))
    result = "poison"
    for lane in range(lanes):
        parts = ", ".join(f"{kind} " + b.pure(f"extractelement {a.typed}, i64 {lane}") for a in args)
        one = b.op(f"call {kind} {callee}({parts})")
        result = b.pure(f"insertelement {of_lanes(kind, lanes)} {result}, {kind} {one}, i64 {lane}")
    return Value(dtype, result, lanes)


def unless(t: Lane, chosen: Value, near: Value, name: str, args: tuple[Value, ...]) -> Value:
    """Return `near`, but what the C library says in lanes that are chosen; it is only called when there is such a lane."""
    b = t.b
    any_chosen = chosen.text
    if t.lanes:
        fn = b.declare(f"llvm.vector.reduce.or.v{t.lanes}i1", f"i1 @({chosen.type})")
        any_chosen = b.pure(f"call i1 {fn}({chosen.typed})")
    slow, end = b.fresh_label("large"), b.fresh_label("end")
    b.open_placeholder()
    origin = b.label
    b.write(f"br i1 {any_chosen}, label %{slow}, label %{end}")
    b.enter()
    b.start(slow)
    exact = select(b, chosen, libm(b, name, args), near)
    b.write(f"br label %{end}")
    b.leave()
    b.region.placeholder = None
    b.start(end)
    return Value(near.dtype, b.op(f"phi {near.type} [ {near.text}, %{origin} ], [ {exact.text}, %{slow} ]"), t.lanes)


def log_edges(t: Lane, x: Value, zero: float, result: Value) -> Value:
    """Return `result`, but what a logarithm is at `zero` and below, at infinity, and for NaN."""
    inside = t.test("<", x, inf)
    beyond = t.add(x, x)
    above = t.where(inside, result, beyond)
    at_zero = t.where(t.test("==", x, zero), -inf, above)
    return t.where(t.test("<", x, zero), nan, at_zero)
