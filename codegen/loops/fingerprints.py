"""Loops that compute with fingerprints in place of floats: an integer modulo a prime says what a float was computed from.

    y[i] = fma(a[i], b[i], y[i])        y[i] = u32((u64(a[i]) * u64(b[i]) + u64(y[i])) % 2147483647)

An input element has a random one, a constant its own value; sums, differences and products are those of the field, so they are the same
however they are regrouped, and with them a product that is rounded with a sum or alone. A minimum or maximum is one of its operands, by a
random order of the field in which -inf comes first and inf last. What else there is, `exp` or a quotient, is a hash of its operands, and
rounding to a narrow type loses some bits. Two computations that agree on random inputs are the same sums of products of the same parts but
for a chance of about 1 in 2^31 for each element (Schwartz 1980, Zippel 1979). Integers and truth values are computed as they are; what
comparisons of floats decide, the random order does, and `isnan` and `isinf` are true of some.

What follows is written once, as arithmetic on unsigned integers of 64 bits that stay below 2^63: on arrays of NumPy, and on expressions of
loops (`Written`), which then are compiled as any others. So millions of elements take seconds. `terms` tells more, of fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final, TypeAlias, assert_never

import numpy as np

from codegen.dtypes import DType, bool_, called_dtype, f32, i32, i64, u32, u64
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Dot,
    Expr,
    Fma,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    Name,
    Prefetch,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
)
from codegen.loops.walk import map_index

PRIME: Final = (1 << 31) - 1
HOLE: Final = 1_234_567_891
"""Where no element is."""
_ANOTHER_PRIME: Final = 4_294_967_291
_STRETCH, _SHIFT = 1_395_630_315, 1_073_741_827
_SHRINK: Final = pow(_STRETCH, -1, PRIME)

V: TypeAlias = Any
"""A `Written`, or an array of uint64."""


@dataclass(frozen=True, slots=True)
class Written:
    """An expression of type u64, with the arithmetic of Python."""

    expr: Expr

    def _with(self, op: BinaryOp, other: Written | int) -> Written:
        return Written(Binary(op, self.expr, other.expr if isinstance(other, Written) else Const(other, u64)))

    def __add__(self, other: Written | int) -> Written:
        return self._with("+", other)

    def __rsub__(self, other: int) -> Written:
        return Written(Binary("-", Const(other, u64), self.expr))

    def __mul__(self, other: Written | int) -> Written:
        return self._with("*", other)

    def __mod__(self, other: int) -> Written:
        return self._with("%", other)

    def __xor__(self, other: int) -> Written:
        return self._with("bitxor", other)

    def __and__(self, other: int) -> Written:
        return self._with("bitand", other)

    def __or__(self, other: int) -> Written:
        return self._with("bitor", other)


def _extreme(op: str, x: V, y: V) -> V:
    if isinstance(x, Written) and isinstance(y, Written):
        return Written(Binary("min" if op == "min" else "max", x.expr, y.expr))
    return np.minimum(x, y) if op == "min" else np.maximum(x, y)


def storage_dtype(dtype: DType) -> DType:
    """Return the type of elements that keep the fingerprints of floats, or that of what is no float. f32 and f64 take as much room."""
    return dtype if not dtype.is_float else u64 if dtype.bits == 64 else u32


# ---------------------------------------------------------------- the arithmetic


def unary(op: str, x: V) -> V:
    """Return `-x` or `|x|`."""
    return (PRIME - x) % PRIME if op == "neg" else hashed("abs", x * x % PRIME)


def binary(op: str, x: V, y: V) -> V:
    """Return `x op y` of two floats."""
    match op:
        case "+":
            return (x + y) % PRIME
        case "-":
            return (x + (PRIME - y)) % PRIME
        case "*":
            return x * y % PRIME
        case "min" | "max":
            return (_extreme(op, place(x), place(y)) + (PRIME - _SHIFT)) * _SHRINK % PRIME
        case _:
            return hashed(op, x, y)


def fma(a: V, b: V, c: V) -> V:
    return (a * b + c) % PRIME


def place(x: V) -> V:
    """Return where `x` stands in the order of all."""
    return (x * _STRETCH + _SHIFT) % PRIME


def hashed(what: str, *xs: V) -> V:
    """Return what stands for a function of `xs` that is nothing but itself. Every operand is written once."""
    salts = _digest(what, 3 + len(xs))
    mixed = xs[0]
    for x, salt in zip(xs, salts[3:], strict=True):
        mixed = mixed * salt % PRIME if mixed is x else (mixed + x * salt) % PRIME
    for salt in salts[:3]:
        mixed = ((mixed + salt) * 3_266_489_917 % _ANOTHER_PRIME ^ salt) * 668_265_263 % PRIME
    return mixed


def rounded(dtype: DType, x: V) -> V:
    """Return `x` as a tensor of `dtype` holds it: rounded once more it is the same."""
    return x if dtype.bits >= 32 else (x & _KEPT) | (1 + _NARROW.index(dtype.name))


_KEPT = 0x7FFFFFF0
_NARROW = ("f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1", "round_bf16", "round_tf32")


def called(fn: str, *xs: V) -> V:
    """Return what stands for an elementary function that gives a float."""
    return (xs[0] & _KEPT) | (1 + _NARROW.index(fn)) if fn in _NARROW else hashed(fn, *xs)


def hashed_test(fn: str, x: V) -> V:
    """Return 0 where `isnan` or `isinf` is taken to be true, as it is of one fingerprint in eight, whatever it stands for."""
    return hashed(fn, x) % 8


def number(value: float | int) -> int:
    """Return the fingerprint of a constant."""
    if isinstance(value, float) and not math.isfinite(value):
        first, last = (PRIME - _SHIFT) * _SHRINK % PRIME, (PRIME - 1 + PRIME - _SHIFT) * _SHRINK % PRIME
        return _digest("nan", 1)[0] if math.isnan(value) else last if value > 0 else first
    exact = Fraction(value)
    return exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME


def numbers(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the fingerprints of constants, as uint64."""
    wide = values.astype(np.float64)
    fractions, exponents = np.frexp(np.where(np.isfinite(wide), wide, 0.0))
    digits = (np.ldexp(fractions, 53)).astype(np.int64) % PRIME
    out = digits.astype(np.uint64) * (np.uint64(1) << ((exponents.astype(np.int64) - 53) % 31).astype(np.uint64)) % PRIME  # 2**31 is 1
    for odd in np.unique(wide[~np.isfinite(wide)]):
        out[np.isnan(wide) if np.isnan(odd) else wide == odd] = number(float(odd))
    return np.asarray(out)


def whole(dtype: DType, x: V, saturate: bool) -> V:
    """Return the integer that a float becomes, not negative: one of the first few, or of all that 8 bits have."""
    return hashed("whole.saturate" if saturate else "whole", x) % (128 if dtype.bits <= 8 else 4)


def _digest(text: str, count: int) -> list[int]:
    data = blake2b(text.encode(), digest_size=4 * count).digest()
    return [1 + int.from_bytes(data[4 * k : 4 * k + 4], "little") % (PRIME - 1) for k in range(count)]


# ---------------------------------------------------------------- loops


class Unwritten(Exception):
    """There is nothing that loops on fingerprints could do instead."""


def on_fingerprints(function: Function) -> Function:
    """Return the function with fingerprints for floats, one iteration after the other. Raises Unwritten for what only a graphics
    processor does."""
    buffers = {b.name: b.dtype for b in function.params}
    params = tuple(_held(b) for b in function.params)
    return replace(function, params=params, body=_block(function.body, buffers, {}))


def uninitialised(dtype: DType) -> int | bool:
    """Return what is in memory, of a type as it is held, where nothing has been stored: no number that a computation starts from."""
    return HOLE if dtype.is_float else True if dtype == bool_ else 5


def _emptied(buffer: Buffer, dtype: DType) -> Stmt:
    """Return the loops that leave nothing in a buffer, which was of type `dtype`."""
    variables = [f"{buffer.name}.{k}" for k in range(len(buffer.shape))]
    out: Stmt = Store(buffer.name, tuple(map(Var, variables)), Const(uninitialised(dtype), buffer.dtype))
    for var, extent in zip(reversed(variables), reversed(buffer.shape), strict=True):
        out = For(var, Int(0), extent, (out,))
    return out


def _held(buffer: Buffer) -> Buffer:
    space = "stack" if buffer.space in ("registers", "tiles") else buffer.space
    return replace(buffer, dtype=storage_dtype(buffer.dtype), space=space)


def _block(block: tuple[Stmt, ...], buffers: Mapping[str, DType], names: Mapping[str, DType]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    buffers, names = dict(buffers), dict(names)
    for s in block:
        rewriter = _Rewriter(buffers, names)
        match s:
            case For():
                lo, hi = rewriter.index(s.lo), rewriter.index(s.hi)
                out.append(For(s.var, lo, hi, _block(s.body, buffers, names)))
            case Store(buffer, index, value):
                made, dtype = rewriter.typed(value)
                if dtype.is_float:
                    made = Cast(storage_dtype(buffers[buffer]), _expr(rounded(buffers[buffer], Written(made))))
                out.append(Store(buffer, tuple(map(rewriter.index, index)), made))
            case Let(name, value):
                made, names[name] = rewriter.typed(value)
                out.append(Let(name, made))
            case If(cond, then, orelse):
                out.append(If(rewriter.expr(cond), _block(then, buffers, names), _block(orelse, buffers, names)))
            case Alloc(buffer):
                buffers[buffer.name] = buffer.dtype
                made_of = replace(_held(buffer), shape=tuple(map(rewriter.index, buffer.shape)))
                out += (Alloc(made_of), _emptied(made_of, buffer.dtype))
            case Require(cond, code):
                out.append(Require(rewriter.expr(cond), code))
            case Prefetch():
                pass
            case _:
                raise Unwritten(f"`{type(s).__name__}` is no statement of a processor")
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Rewriter:
    """`buffers` and `names`: the types of what loads and names give."""

    buffers: Mapping[str, DType]
    names: Mapping[str, DType]

    def index(self, e: Index) -> Index:
        return map_index(e, self.index, self.expr)

    def expr(self, e: Expr) -> Expr:
        return self.typed(e)[0]

    def typed(self, e: Expr) -> tuple[Expr, DType]:
        """Return the expression on fingerprints, u64 for floats, and the type it had."""
        match e:
            case Const(value, dtype):
                return (Const(number(float(value)), u64) if dtype.is_float else e), dtype
            case Load(buffer, at):
                dtype = self.buffers[buffer]
                load = Load(buffer, tuple(map(self.index, at)))
                return (Cast(u64, load) if dtype.is_float else load), dtype
            case IndexValue(index):
                return IndexValue(self.index(index)), i64
            case Name(name):
                return e, self.names[name]
            case Unary(op, value):
                x, dtype = self.typed(value)
                return (unary(op, Written(x)).expr if dtype.is_float else Unary(op, x)), dtype
            case Binary(op, lhs, rhs):
                (x, dtype), y = self.typed(lhs), self.expr(rhs)
                return (binary(op, Written(x), Written(y)).expr if dtype.is_float else Binary(op, x, y)), dtype
            case Compare(op, lhs, rhs):
                (x, dtype), y = self.typed(lhs), self.expr(rhs)
                if dtype.is_float:
                    x, y = place(Written(x)).expr, place(Written(y)).expr
                return Compare(op, x, y), bool_
            case Select(cond, then, orelse):
                yes, dtype = self.typed(then)
                return Select(self.expr(cond), yes, self.expr(orelse)), dtype
            case Cast(dtype, value):
                x, source = self.typed(value)
                return self._cast(x, source, e), dtype
            case Call(fn, args):
                return self._call(fn, args)
            case Fma(a, b, c):
                (x, dtype), y, z = self.typed(a), self.expr(b), self.expr(c)
                return fma(Written(x), Written(y), Written(z)).expr, dtype
            case Dot():
                return self.typed(_sum_of_products(e, self.buffers[e.a.buffer]))
            case _:
                assert_never(e)

    def _cast(self, x: Expr, source: DType, e: Cast) -> Expr:
        dtype = e.dtype
        if source.is_float and dtype.is_float:
            return _expr(rounded(dtype, Written(x)))
        if source.is_float:
            return Compare("!=", x, Const(0, u64)) if dtype == bool_ else Cast(dtype, whole(dtype, Written(x), e.saturate).expr)
        if not dtype.is_float:
            return replace(e, value=x)
        wide = x if source == u64 else Cast(i64, x)
        modulus = Const(PRIME, u64 if source == u64 else i64)
        return _expr(rounded(dtype, Written(Cast(u64, Binary("%", wide, modulus)))))

    def _is_odd(self, fn: str, arg: Expr, made: Expr) -> Expr:
        if isinstance(arg, Const):
            return Const(bool(np.isnan(arg.value) if fn == "isnan" else np.isinf(arg.value)), bool_)
        return Compare("<", hashed_test(fn, Written(made)).expr, Const(1, u64))

    def _call(self, fn: str, args: tuple[Expr, ...]) -> tuple[Expr, DType]:
        made = [self.typed(a) for a in args]
        if fn in ("isnan", "isinf"):
            return self._is_odd(fn, args[0], made[0][0]), bool_
        if fn == "from_bits":
            number = Cast(u64, made[0][0])
            return called(fn, Written(Binary("%", number, Const(PRIME, u64)))).expr, called_dtype(fn, made[0][1])
        result = called(fn, *(Written(x) for x, _ in made))
        if fn == "bits":
            dtype = called_dtype(fn, made[0][1])
            return Cast(dtype, whole(u32, result, saturate=False).expr), dtype
        return result.expr, made[0][1]


def _expr(x: Written) -> Expr:
    return x.expr


def _sum_of_products(e: Dot, dtype: DType) -> Expr:
    """Return a dot product as its products added one after the other."""
    total = e.c
    for k in range(e.count):
        a, b = (Load(x.buffer, (*x.index[:-1], Add(x.index[-1], Int(k)))) for x in (e.a, e.b))
        x, y = (Cast(f32 if dtype.is_float else i32, load) for load in (a, b))
        total = Fma(x, y, total) if dtype.is_float else Binary("+", total, Binary("*", x, y))
    return total
