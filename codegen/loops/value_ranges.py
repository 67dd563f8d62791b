"""Between which numbers the integers and the floats of a function lie, whatever its arguments are.

    x[0] = 1_i64
    for t in 1 .. N { x[t] = x[t - 1] * 48271_i64 % 2147483647_i64 }      elements of x: 0 .. 2147483646, the product: 0 .. 103661183076066

Found of all statements at once, in whatever order they run: a buffer has the numbers that anything stores to it, a name those of all values
that are bound to it. What an element keeps, or takes from another of its buffer, adds nothing: `m = select(x > 0, index(i), m)` is an `i`.
Of what a caller fills nothing is known but its type, and what wraps may be any number of its type; where loops ask at the beginning of
every element that it lies in a range, and return where one does not, all that follows knows the range. On a side of a choice what its
condition says is known of what that compares: `select(x > 1.0, 1.0, x)` is 1 at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from codegen.dtypes import DType, bool_, i64, limits, u32, u64
from codegen.loops import float_ranges
from codegen.loops.float_ranges import Floats
from codegen.loops.indices import Range, range_of
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Boxes,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Fma,
    For,
    Function,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Mma,
    Name,
    Require,
    Select,
    Store,
    Unary,
    Var,
)
from codegen.loops.walk import FLIPPED, loads, range_of_condition, statements, stores, walk

ROUNDS = 4
"""How often what is known of all buffers is made of what is known of them: more find less than that in time."""
NARROW = 32
"""Bits of the narrowest type that divides faster, as far as integers are computed in it."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The integers of a type from `low` to `high`."""

    dtype: DType
    low: int
    high: int


Numbers: TypeAlias = Whole | Floats


@dataclass(frozen=True, slots=True)
class ValueRanges:
    """What is known of the variables of loops, of names, of the elements of buffers and of `values` that a condition compares: nothing of
    those that are missing."""

    variables: Mapping[str, Range] = field(default_factory=dict)
    names: Mapping[str, Numbers] = field(default_factory=dict)
    buffers: Mapping[str, Numbers] = field(default_factory=dict)
    values: Mapping[Expr, Numbers] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    """The parameters of which something is known because the function asks for it."""

    def of(self, e: Expr) -> Whole | None:
        """Return between which numbers a value lies; None where it is no integer, or its type is not known."""
        found = self.numbers(e)
        return found if isinstance(found, Whole) else None

    def floats(self, e: Expr) -> Floats | None:
        """Return between which numbers a value lies; None where it is no float, or its type is not known."""
        found = self.numbers(e)
        return found if isinstance(found, Floats) else None

    def numbers(self, e: Expr) -> Numbers | None:
        """Return between which numbers a value lies; None where its type is not known."""
        if self.values and e in self.values:
            return self.values[e]
        match e:
            case Const(number, dtype) if dtype.is_integer:
                return Whole(dtype, int(number), int(number))
            case Const(number, dtype) if dtype.is_float:
                return float_ranges.number(float(number), dtype)
            case Load(buffer):
                return self.buffers.get(buffer)
            case Name(name):
                return self.names.get(name)
            case IndexValue(index):
                low, high = range_of(index, self.variables)
                return _fitting(i64, (low, high)) if low is not None and high is not None else _any(i64)
            case Compare():
                return Whole(bool_, 0, 1)
            case Cast(dtype, x):
                return _converted(self.numbers(x), dtype)
            case Select(cond, x, y):
                return _either((self.where(cond, True).numbers(x), self.where(cond, False).numbers(y)))
            case Unary(op, x):
                found = self.numbers(x)
                return None if found is None else _turned(op, found)
            case Binary("and" | "or"):
                return None
            case Binary(op, lhs, rhs):
                a, b = self.numbers(lhs), self.numbers(rhs)
                if isinstance(a, Floats) and isinstance(b, Floats):
                    return float_ranges.binary(op, a, b, same=lhs == rhs)
                return _made(op, a, b) if isinstance(a, Whole) and isinstance(b, Whole) else None
            case Fma(x, y, z):
                parts = [found for part in (x, y, z) if (found := self.floats(part)) is not None]
                return float_ranges.multiply_add(*parts) if len(parts) == 3 else None
            case Call(fn, (x,)):
                found = self.numbers(x)
                return float_ranges.call(fn, found) if isinstance(found, Floats) else None
            case _:
                return None

    def where(self, cond: Expr, holds: bool) -> ValueRanges:
        """Return what is known where a condition holds, or where it does not."""
        match cond:
            case Binary("and", x, y) if holds:
                return self.where(x, True).where(y, True)
            case Binary("or", x, y) if not holds:
                return self.where(x, False).where(y, False)
            case Compare(op, Const(), value) if op in FLIPPED and not isinstance(value, Const):
                return self.where(Compare(FLIPPED[op], value, cond.lhs), holds)
            case Compare("==" | "!=" as op, x, y) if x == y:
                floats = self.floats(x) if (op == "==") == holds else None
                return self if floats is None else replace(self, values={**self.values, x: replace(floats, nan=False)})
            case Compare(op, value, Const() as limit) if not isinstance(value, Const | IndexValue):
                limited = _limited(self.numbers(value), op, self.numbers(limit), holds)
                return self if limited is None else replace(self, values={**self.values, value: limited})
            case _:
                return self

    def holds(self, cond: Expr) -> bool:
        """Tell whether a condition holds that asks nothing of parameters which only questions tell about."""
        match cond:
            case Binary("and", x, y):
                return self.holds(x) and self.holds(y)
            case Compare(op, x, y) if op in FLIPPED and not any(load.buffer in self.asked for load in loads(cond)):
                a, b = (self.of(x), self.of(y)) if op in ("<", "<=") else (self.of(y), self.of(x))
                return a is not None and b is not None and (a.high < b.low or (a.high == b.low and op in ("<=", ">=")))
            case _:
                return False

    def unsigned(self, e: Binary) -> DType | None:
        """Return the type without a sign that has both sides of a division, and divides them sooner: neither is less than zero. None where
        there is none, or the divisor is a power of two, by which nothing divides."""
        found = self.of(e.lhs), self.of(e.rhs)
        if found[0] is None or found[1] is None or found[0].dtype.kind != "int" or found[0].dtype.bits < NARROW:
            return None
        if min(found[0].low, found[1].low) < 0 or (isinstance(e.rhs, Const) and found[1].low.bit_count() == 1):
            return None
        most = max(found[0].high, found[1].high)
        return u32 if most <= limits(u32)[1] else u64

    def remainder_step(self, e: Binary) -> int | None:
        """Return by what the left side of a remainder differs from it, where it does at all, and the lesser of the two is the remainder if
        their bits are those of numbers without a sign: a divisor to take off, or to add, once. None where it may be another number."""
        found = self.of(e.lhs)
        if e.op != "%" or found is None or not isinstance(e.rhs, Const) or found.dtype.bits < 8 or not found.dtype.is_integer:
            return None
        divisor = int(e.rhs.value)
        if not 0 < divisor <= limits(found.dtype)[1] // 2:
            return None
        if found.low >= 0 and found.high < 2 * divisor:
            return -divisor
        return divisor if -divisor <= found.low and found.high < divisor else None


def value_ranges(function: Function) -> ValueRanges:
    """Return what is known of the integers of `function`, and of its floats where it makes integers of any."""
    every = [*statements(*function.body)]
    if any(isinstance(s, LoadMatrix | Mma | Boxes) for s in every):
        return ValueRanges()
    own = {s.buffer.name: s.buffer.dtype for s in every if isinstance(s, Alloc)}
    types = {p.name: p.dtype for p in function.params} | own
    floats = any(isinstance(n, Cast) and _may_make_integers(n, types) for n in walk(*function.body))
    variables = dict[str, Range]()
    for s in every:
        if isinstance(s, For):
            low, high = range_of(s.lo, variables)[0], range_of(s.hi, variables)[1]
            between = low, None if high is None else high - 1
            variables[s.var] = _both(variables[s.var], between) if s.var in variables else between
    start: dict[str, Numbers] = {}
    for name, dtype in types.items():
        if dtype.is_integer or (dtype.is_float and floats):
            start[name] = _any(dtype) if dtype.is_integer else Floats(dtype)
    asked = _asked(function)
    start |= asked
    known = ValueRanges(variables, {}, start)
    lets: dict[str, list[Expr]] = {}
    for s in every:
        if isinstance(s, Let):
            lets.setdefault(s.name, []).append(s.value)
    others = {name: _Kept(name, lets) for name in own}
    for _ in range(ROUNDS):
        bound: dict[str, list[Numbers | None]] = {}
        stored: dict[str, list[Numbers | None]] = {}
        for s in every:
            match s:
                case Let(name, value):
                    bound.setdefault(name, []).append(known.numbers(value))
                case Store(buffer=buffer, value=value) if buffer in start:
                    stored.setdefault(buffer, []).extend(map(known.numbers, others[buffer].others(value) if buffer in own else (value,)))
                case _:
                    pass
        names = {name: found for name, values in bound.items() if (found := _either(values)) is not None}
        filled = {name: found for name, values in stored.items() if (found := _either(values)) is not None}
        known = ValueRanges(variables, names, start | filled, asked=frozenset(asked))
    return known


def _may_make_integers(e: Cast, types: Mapping[str, DType]) -> bool:
    """Tell whether a conversion may be that of a float to an integer; `types`: those of buffers."""
    if isinstance(e.value, Load):
        return e.dtype.is_integer and types[e.value.buffer].is_float
    return e.dtype.is_integer and not isinstance(e.value, IndexValue | Compare | Const)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is stored to a buffer and is no element of it that was there before. `lets`: what is bound to names, `known`: what was found
    of names."""

    buffer: str
    lets: Mapping[str, Sequence[Expr]]
    known: dict[str, tuple[Expr, ...]] = field(default_factory=dict)

    def others(self, e: Expr) -> tuple[Expr, ...]:
        """Return values of which one is `e`, unless that is an element of the buffer."""
        match e:
            case Load(buffer) if buffer == self.buffer:
                return ()
            case Select(_, x, y) | Binary("min" | "max", x, y):
                return self._of_parts(e, (x, y))
            case Name(name) if name not in self.known:
                self.known[name] = (e,)
                self.known[name] = self._of_parts(e, self.lets.get(name, ()))
                return self.known[name]
            case Name(name):
                return self.known[name]
            case _:
                return (e,)

    def _of_parts(self, e: Expr, parts: Sequence[Expr]) -> tuple[Expr, ...]:
        found = tuple(dict.fromkeys(part for x in parts for part in self.others(x)))
        return (e,) if found == tuple(parts) else found


def _asked(function: Function) -> dict[str, Whole]:
    """Return between which numbers the elements of parameters lie that are integers and only read, of all of which the function asks before
    it does anything else, and returns where one lies elsewhere."""
    written, found = {s.buffer for s in stores(*function.body)}, dict[str, Whole]()
    params = {p.name: p for p in function.params if p.dtype.is_integer and p.name not in written}
    for s in function.body:
        variables = list[tuple[str, Index]]()
        while isinstance(s, For) and s.lo == Int(0) and len(s.body) == 1:
            variables.append((s.var, s.hi))
            s = s.body[0]
        if not isinstance(s, Require):
            break
        match range_of_condition(s.cond):
            case (Cast(dtype, Load(name, index)), low, high) if dtype == i64 and name in params:
                param = params[name]
                ends = [None if e is None else _number(e) for e in (low, high)]
                if [*zip(index, param.shape, strict=True)] != [(Var(v), extent) for v, extent in variables] or param.dtype.bits > 63 + (
                    param.dtype.kind == "int"
                ):
                    continue
                least, most = limits(param.dtype)
                least = least if ends[0] is None else max(least, ends[0])
                most = most if ends[1] is None else min(most, ends[1] - 1)
                if least <= most:
                    found[name] = Whole(param.dtype, least, most)
            case _:
                pass
    return found


def _number(e: Expr) -> int | None:
    """Return the integer that a value is known to be."""
    match e:
        case Const(number, dtype) if dtype == i64:
            return int(number)
        case IndexValue(Int(number)):
            return number
        case _:
            return None


def _magnitudes(x: Whole) -> tuple[int, int]:
    """Return between which numbers the absolute values of integers lie."""
    ends = sorted((abs(x.low), abs(x.high)))
    return (0 if x.low <= 0 <= x.high else ends[0]), ends[1]


def _any(dtype: DType) -> Whole:
    return Whole(dtype, *limits(dtype))


def _fitting(dtype: DType, numbers: Iterable[int]) -> Whole:
    """Return the integers of a type between these numbers; all of it where some of them are beyond it, and wrap."""
    low, high = limits(dtype)
    found = [*numbers]
    return Whole(dtype, min(found), max(found)) if low <= min(found) and max(found) <= high else Whole(dtype, low, high)


def _limited(x: Numbers | None, op: CompareOp, limit: Numbers | None, holds: bool) -> Numbers | None:
    """Return those numbers of which a comparison with a constant holds, or does not; None where that says nothing."""
    if x is None or limit is None or op not in FLIPPED or (isinstance(limit, Floats) and limit.nan):
        return None
    step = 1 if isinstance(x, Whole) else 0
    low, high = x.low, x.high
    if (op in ("<", "<=")) == holds:
        high = min(high, limit.high - step * (op in ("<", ">=")))
    else:
        low = max(low, limit.low + step * (op in (">", "<=")))
    if low > high:
        return None
    if isinstance(x, Floats):
        return Floats(x.dtype, low, high, x.nan and not holds)  # of a NaN none holds
    return Whole(x.dtype, int(low), int(high))


def _converted(x: Numbers | None, dtype: DType) -> Numbers | None:
    """Return what numbers are as those of another type; nothing is known of `x` where it is None."""
    if dtype.is_integer:
        if isinstance(x, Floats):
            return Whole(dtype, *float_ranges.truncated(x, *limits(dtype)))
        return _any(dtype) if x is None else _fitting(dtype, (x.low, x.high))
    if not dtype.is_float:
        return None
    if isinstance(x, Floats):
        return float_ranges.converted(x, dtype)
    return Floats(dtype) if x is None else float_ranges.of_whole(x.low, x.high, dtype)


def _turned(op: str, x: Numbers) -> Numbers | None:
    """Return what an operation makes of numbers."""
    if isinstance(x, Floats):
        return float_ranges.unary(op, x) if op in ("neg", "abs") else None
    match op:
        case "neg":
            return _fitting(x.dtype, (-x.low, -x.high))
        case "abs":
            return _fitting(x.dtype, _magnitudes(x))
        case "bitnot" if x.dtype.is_integer:
            return _fitting(x.dtype, (~x.low, ~x.high))
        case _:
            return None


def _either(found: Sequence[Numbers | None]) -> Numbers | None:
    """Return what any of several values may be; None where it is not known of all, or they are not of one type."""
    floats = [x for x in found if isinstance(x, Floats)]
    if floats:
        return float_ranges.either(floats) if len(floats) == len(found) else None
    every = [x for x in found if isinstance(x, Whole)]
    if len(every) < len(found) or len({x.dtype for x in every}) != 1:
        return None
    return Whole(every[0].dtype, min(x.low for x in every), max(x.high for x in every))


def _both(a: Range, b: Range) -> Range:
    """Return a range of loops that have one variable."""
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    return low, None if a[1] is None or b[1] is None else max(a[1], b[1])


def _made(op: str, a: Whole, b: Whole) -> Whole | None:
    """Return what an operation makes of integers of one type."""
    match op:
        case "+":
            return _fitting(a.dtype, (a.low + b.low, a.high + b.high))
        case "-":
            return _fitting(a.dtype, (a.low - b.high, a.high - b.low))
        case "*":
            return _fitting(a.dtype, (x * y for x in (a.low, a.high) for y in (b.low, b.high)))
        case "min" | "max":
            chosen = min if op == "min" else max
            return Whole(a.dtype, chosen(a.low, b.low), chosen(a.high, b.high))
        case "%" if b.low >= 0:
            return Whole(a.dtype, 0, max(0, b.high - 1 if a.low < 0 else min(a.high, b.high - 1)))
        case "//" if b.low >= 0:
            by = [max(b.low, 1), max(b.high, 1)]
            found = [x // y for x in (a.low, a.high) for y in by] + ([0] if b.low == 0 else [])
            return Whole(a.dtype, min(found), max(found))
        case "bitand" if a.low >= 0 or b.low >= 0:
            return Whole(a.dtype, 0, min(x.high for x in (a, b) if x.low >= 0))
        case "bitor" | "bitxor" if a.low >= 0 and b.low >= 0:
            return Whole(a.dtype, 0, (1 << max(a.high, b.high).bit_length()) - 1)
        case "shl" if b.low >= 0 and b.high < a.dtype.bits:
            return _fitting(a.dtype, (x << n for x in (a.low, a.high) for n in (b.low, b.high)))
        case "shr" if b.low >= 0 and b.high < a.dtype.bits:
            found = [x >> n for x in (a.low, a.high) for n in (b.low, b.high)]
            return Whole(a.dtype, min(found), max(found))
        case _:
            return _any(a.dtype)
