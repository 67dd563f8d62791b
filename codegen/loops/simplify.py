"""Simplifies a function without changing a bit of its results.

    before   for io in 0 .. (N + 31) // 32 {
                 for ii in 0 .. min(32, N - 32*io) {
                     for u in 0 .. 1 unroll 1 {
                         let x = a[(32*io + ii) // 32, (32*io + ii) % 32 + u]
                         if index(32*io + ii) < index(N) { c[32*io + ii] = f32(bf16(1.5_f32)) * 1.0_f32 }
    after    for io in 0 .. (N + 31) // 32 {
                 for ii in 0 .. min(32, N - 32*io) {
                     c[32*io + ii] = 1.5_f32

Indices get the canonical form of `indices`, with the ranges that the loops and conditions around imply. Values are folded where the
arithmetic of `interp` gives the result exactly; floats keep every rounding (`x + 0.0` stays: it turns -0.0 into 0.0), and operations
that make a NaN are left to the machine. What was rounded to a narrow float and widened is not rounded again. Gone are branches that are
never taken, loops that never run, loops that run once, values that nobody uses and local buffers that nobody reads. Loops over blocks stay,
even where there is one block: they are launches.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from codegen.dtypes import bool_, holds, i64
from codegen.loops import interp
from codegen.loops.indices import Algebra, Poly, Range
from codegen.loops.nodes import (
    BLOCKS,
    Add,
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Buffer,
    Call,
    Cast,
    Commit,
    Compare,
    Const,
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
    LoadMatrix,
    Mma,
    Mul,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Wait,
    WaitBoxes,
)
from codegen.loops.walk import Fresh, Shared, binders, fresh_for, loads, map_expr, names, rename, substitute, substitution, walk
from codegen.polynomials import ONE

_TRUE, _FALSE = Const(True, bool_), Const(False, bool_)
_EXACT_CALLS = frozenset(("floor", "ceil", "trunc", "round", "round_tf32", "sqrt", "isnan", "isinf", "bits", "from_bits"))
_NEGATED: Mapping[str, str] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def simplify(function: Function, sizes: Mapping[str, Range] | None = None) -> Function:
    """Return a function that does the same as `function` whenever `sizes` lie in the given ranges.

    A size that is the extent of a parameter is known not to be negative."""
    simplifier = _Simplifier(fresh_for(function), Counter(binders(*function.body)))
    return replace(function, body=simplifier.block(function.body, Algebra.outside(function, sizes)))


class _Simplifier:
    """Rewrites statements under the algebra of their scope."""

    def __init__(self, fresh: Fresh, bound: Counter[str]) -> None:
        self._fresh = fresh
        self._bound = bound

    def block(self, body: tuple[Stmt, ...], algebra: Algebra) -> tuple[Stmt, ...]:
        values = _Values(algebra)
        return _live(_required_once([new for s in body for new in self.stmt(s, values)]))

    def stmt(self, s: Stmt, values: _Values) -> tuple[Stmt, ...]:
        """Return what becomes of `s`: nothing, one statement, or the statements of a block that is dissolved."""
        match s:
            case For():
                return self.loop(s, values)
            case Store(index=index, value=value):
                place, stored = values.indices(index), values.expr(value)
                if stored == Load(s.buffer, place):
                    return ()
                return (s if place is index and stored is value else replace(s, index=place, value=stored),)
            case Let(name, value):
                bound = values.expr(value)
                return (s if bound is value else Let(name, bound),)
            case If(cond, then, orelse):
                return self.choice(values.expr(cond), then, orelse, values)
            case Alloc(buffer):
                return (Alloc(replace(buffer, shape=values.indices(buffer.shape))),)
            case Prefetch(index=index):
                return (replace(s, index=values.indices(index)),)
            case Require(cond, code):
                simple = values.expr(cond)
                return () if simple == _TRUE else (Require(simple, code),)
            case LoadMatrix(index=index, lane=lane, source=source):
                inside = _Values(values.algebra.with_loop(lane, Int(0), Int(8 * s.count)))
                there = Load(source.buffer, inside.indices(source.index))
                return (replace(s, index=values.indices(index), source=there),)
            case Mma(_, sums, rows, columns):
                sums, rows, columns = (Load(o.buffer, values.indices(o.index)) for o in (sums, rows, columns))
                return (Mma(s.name, sums, rows, columns),)
            case Boxes(barriers, group, boxes):
                ends = [[Load(o.buffer, values.indices(o.index)) for o in (b.target, b.source)] for b in boxes]
                copied = tuple(replace(b, target=to, source=of) for b, (to, of) in zip(boxes, ends, strict=True))
                return (Boxes(barriers, values.index(group), copied),)
            case WaitBoxes(_, group) | Release(_, group) | Reclaim(_, group):
                return (replace(s, group=values.index(group)),)
            case Producer(body):
                return (replace(s, body=self.block(body, values.algebra)),)
            case Barrier() | Commit() | Wait():
                return (s,)
            case _:
                assert_never(s)

    def loop(self, loop: For, values: _Values) -> tuple[Stmt, ...]:
        algebra = values.algebra
        lo, hi = values.index(loop.lo), values.index(loop.hi)
        trips = algebra.poly(hi) - algebra.poly(lo)
        if algebra.nonnegative(trips.scaled(-1)):
            return ()
        if _is_one(algebra, trips) and not any(isinstance(n, ValueIndex) for n in walk(lo)):
            fixed, body = _through({loop.var: lo}, loop.body, values)
            shared = substitution(fixed)
            once = tuple(new for s in self.unshared(body) for new in self.stmt(shared(s), values))
            return (replace(loop, lo=lo, hi=hi, body=once),) if loop.kind in BLOCKS and once else once
        body = self.block(loop.body, values.algebra.with_loop(loop.var, lo, hi, loop.extent))
        extent = algebra.most_copies(loop.lo, loop.hi, loop.extent) if loop.kind == "unroll" else loop.extent
        return (replace(loop, lo=lo, hi=hi, extent=extent, body=body),) if body else ()

    def choice(self, cond: Expr, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...], values: _Values) -> tuple[Stmt, ...]:
        if cond in (_TRUE, _FALSE):
            return tuple(new for s in self.unshared(then if cond == _TRUE else orelse) for new in self.stmt(s, values))
        then = self.block(then, values.assuming(cond, True))
        orelse = self.block(orelse, values.assuming(cond, False))
        return (If(cond, then, orelse),) if then or orelse else ()

    def unshared(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return `body` with new names for what other blocks bind by the same name, so that it can join the block around."""
        inside = Counter(binders(*body))
        new = {name: self._fresh(name) for name in inside if self._bound[name] > 1}
        for old, name in new.items():
            self._bound[name] = inside[old]
        return rename(body, new)


def left_of(s: Stmt, algebra: Algebra) -> tuple[Stmt, ...]:
    """Return what `simplify` leaves of a statement around no others that stands under an algebra."""
    return _Simplifier(Fresh(set()), Counter()).stmt(s, _Values(algebra))


def assuming(algebra: Algebra, cond: Expr, truth: bool) -> Algebra:
    """Return the algebra where `cond` is known to be `truth`."""
    return _Values(algebra).assuming(cond, truth)


def nonnegative_when(algebra: Algebra, op: str, lhs: Expr, rhs: Expr) -> list[Poly]:
    """Return what is not negative when `lhs op rhs`, for indices; of an equation both signs. Nothing where they are no indices."""
    a, b = _as_index(lhs), _as_index(rhs)
    return [] if a is None or b is None else _Values(algebra).order("==" if op == "!=" else op, a, b)


def _is_one(algebra: Algebra, trips: Poly) -> bool:
    return trips == ONE or algebra.interval(trips) == (1, 1)


def _through(fixed: dict[str, Index], body: tuple[Stmt, ...], values: _Values) -> tuple[dict[str, Index], tuple[Stmt, ...]]:
    """Return what loops that run once and stand alone in each other leave: their variables' values and the innermost body."""
    match body:
        case (For(var, lo, hi, inner),):
            low, high = (values.index(substitute(e, fixed)) for e in (lo, hi))
            if _is_one(values.algebra, values.algebra.poly(high) - values.algebra.poly(low)):
                return _through({**fixed, var: low}, inner, values)
        case _:
            pass
    return fixed, body


class _Values:
    """Rewrites values and indices under one algebra."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = replace(algebra, value=self.expr)
        self._shared = Shared()

    def index(self, e: Index) -> Index:
        return self._shared.of(e, self._index)

    def _index(self, e: Index) -> Index:
        match self.algebra.simplify(e):
            case ValueIndex(IndexValue(inner)):
                return inner
            case ValueIndex(Const(value, _)):
                return Int(int(value))
            case simple:
                return simple

    def indices(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """Return indices equal to these, these themselves where none becomes simpler."""
        simple = tuple([self.index(e) for e in index])
        return index if all(map(operator.is_, simple, index)) else simple

    def expr(self, e: Expr) -> Expr:
        """Return a value equal to `e`, bit for bit."""
        match e:
            case Const() | Name():
                return e
            case Load():
                return self._shared.of(e, self._load)
            case Select(cond, then, orelse):
                return self._select(self.expr(cond), then, orelse)
            case Binary("and" | "or" as op, lhs, rhs):
                return self._lazy(op, self.expr(lhs), rhs)
        match map_expr(e, self.index, self.expr):
            case IndexValue(Int(value)):
                return Const(value, i64)
            case IndexValue(ValueIndex(value)) if isinstance(value, Const):
                return Const(int(value.value), i64)
            case Unary(_, Const()) | Binary(_, Const(), Const()) | Compare(_, Const(), Const()) | Cast(_, Const()) as constant:
                return _folded(constant)
            case Fma(Const(), Const(), Const()) as constant:
                return _folded(constant)
            case Call(fn, args) as constant if fn in _EXACT_CALLS and all(isinstance(arg, Const) for arg in args):
                return _folded(constant)
            case Call("pow", (x, Const(1))):
                return x
            case Binary() as binary:
                return self._binary(binary)
            case Compare() as comparison:
                return self._compare(comparison)
            case Cast(dtype, IndexValue() as value) if dtype == i64:
                return value
            case Cast(narrow, Cast(wide, Cast(same) as rounded, _), False) if narrow == same and narrow.is_float and holds(wide, narrow):
                return rounded
            case other:
                return other

    def _load(self, e: Load) -> Load:
        place = self.indices(e.index)
        return e if place is e.index else Load(e.buffer, place)

    def assuming(self, cond: Expr, truth: bool) -> Algebra:
        """Return the algebra where `cond` is known to be `truth`."""
        algebra = self.algebra
        for fact in self._facts(cond, truth):
            algebra = algebra.with_fact(fact)
        return algebra

    def _facts(self, cond: Expr, truth: bool) -> list[Poly]:
        match cond:
            case Binary("and", lhs, rhs) if truth:
                return [*self._facts(lhs, truth), *self._facts(rhs, truth)]
            case Binary("or", lhs, rhs) if not truth:
                return [*self._facts(lhs, truth), *self._facts(rhs, truth)]
            case Unary("not", value):
                return self._facts(value, not truth)
            case Compare(op, lhs, rhs):
                a, b = _as_index(lhs), _as_index(rhs)
                return [] if a is None or b is None else self.order(op if truth else _NEGATED[op], a, b)
            case _:
                return []

    def order(self, op: str, a: Index, b: Index) -> list[Poly]:
        """Return what is not negative when `a op b`."""
        p, q = self.algebra.poly(a), self.algebra.poly(b)
        match op:
            case "<":
                return [q - p - ONE]
            case "<=":
                return [q - p]
            case ">":
                return [p - q - ONE]
            case ">=":
                return [p - q]
            case "==":
                return [p - q, q - p]
            case _:
                return []

    def _select(self, cond: Expr, then: Expr, orelse: Expr) -> Expr:
        if cond in (_TRUE, _FALSE):
            return self.expr(then if cond == _TRUE else orelse)
        first = _Values(self.assuming(cond, True)).expr(then)
        second = _Values(self.assuming(cond, False)).expr(orelse)
        return first if first == second else Select(cond, first, second)

    def _lazy(self, op: Literal["and", "or"], lhs: Expr, rhs: Expr) -> Expr:
        """Return an `and` or `or`, whose right side is evaluated where the left one does not decide."""
        decided = self._facts(lhs, op == "and")
        right = (_Values(self.assuming(lhs, op == "and")) if decided else self).expr(rhs)
        return _logic(op, lhs, right) or Binary(op, lhs, right)

    def _binary(self, e: Binary) -> Expr:
        a, b = _as_index(e.lhs), _as_index(e.rhs)
        if a is not None and b is not None:
            match e.op:
                case "+":
                    return self.expr(IndexValue(Add(a, b)))
                case "-":
                    return self.expr(IndexValue(Add(a, Mul(Int(-1), b))))
                case "*":
                    return self.expr(IndexValue(Mul(a, b)))
                case _:
                    return e
        return _without_identity(e)

    def _compare(self, e: Compare) -> Expr:
        a, b = _as_index(e.lhs), _as_index(e.rhs)
        if a is None or b is None:
            return self._by_range(e)
        if self._certain(e.op, a, b):
            return _TRUE
        return _FALSE if self._certain(_NEGATED[e.op], a, b) else e

    def _by_range(self, e: Compare) -> Expr:
        """Return what a comparison of integers is, if the ranges in which they lie tell."""
        (low, high), (least, most) = self.algebra.value_interval(e.lhs), self.algebra.value_interval(e.rhs)
        match e.op:
            case "<" | ">=" if high < least or low >= most:
                return _TRUE if (e.op == "<") == (high < least) else _FALSE
            case "<=" | ">" if high <= least or low > most:
                return _TRUE if (e.op == "<=") == (high <= least) else _FALSE
            case _:
                return e

    def _certain(self, op: str, a: Index, b: Index) -> bool:
        if op == "!=":
            return any(self.algebra.nonnegative(p) for way in ("<", ">") for p in self.order(way, a, b))
        return all(self.algebra.nonnegative(p) for p in self.order(op, a, b))


def _as_index(e: Expr) -> Index | None:
    """Return the index whose value `e` is."""
    match e:
        case IndexValue(index):
            return index
        case Const(value, dtype) if dtype == i64:
            return Int(int(value))
        case _:
            return None


def _folded(e: Expr) -> Expr:
    """Return the constant that `e`, an operation on constants, evaluates to; `e` itself when that is NaN."""
    result = interp.evaluate(e)
    scalar = float(result.scalar) if result.dtype.is_float else result.scalar
    return e if isinstance(scalar, float) and math.isnan(scalar) else Const(scalar, result.dtype)


def _logic(op: str, lhs: Expr, rhs: Expr) -> Expr | None:
    """Return what a lazy `and` or `or` with a constant side amounts to."""
    neutral, absorbing = (_TRUE, _FALSE) if op == "and" else (_FALSE, _TRUE)
    if lhs == neutral:
        return rhs
    if rhs == neutral:
        return lhs
    return absorbing if absorbing in (lhs, rhs) else None


def _without_identity(e: Binary) -> Expr:
    """Return `e` without an operand that leaves every bit of the other one as it is."""
    match e:
        case Binary("+", x, Const(value, dtype) as zero) | Binary("+", Const(value, dtype) as zero, x) if value == 0:
            return e if dtype.is_float and zero == Const(0.0, dtype) else x
        case Binary("-", x, Const(value, dtype) as zero) if value == 0:
            return e if dtype.is_float and zero == Const(-0.0, dtype) else x
        case Binary("*", x, Const(1)) | Binary("*", Const(1), x) | Binary("/", x, Const(1)):
            return x
        case Binary("//", x, Const(1, dtype)) if dtype.is_integer:
            return x
        case _:
            return e


# ---------------------------------------------------------------- what is dead


def _required_once(block: list[Stmt]) -> list[Stmt]:
    """Return `block` without what it has required before, of elements that nothing has been stored to since, and with one requirement for
    two that ask the same where something holds and where it does not."""
    if sum(isinstance(s, Require) for s in block) < 2:
        return block
    kept: list[Stmt] = []
    required: dict[_Clause, tuple[int, int]] = {}  # its code, and where it is kept
    for s in block:
        match s:
            case Require(cond, code):
                clause = _Clause.of(cond)
                if any(clause.follows_from(other) for other in required):
                    continue
                joined = _joined(clause, code, required, kept)
                if joined is not None:
                    made, other = joined
                    _, at = required[made] = required.pop(other)
                    kept[at] = Require(made.expr(), code)
                    continue
                required[clause] = (code, len(kept))
            case Store(buffer=name) | Alloc(Buffer(name=name)) | Let(name):
                required = {c: at for c, at in required.items() if not c.mentions(name)}
            case _:
                required.clear()
        kept.append(s)
    return kept


def _joined(clause: _Clause, code: int, required: Mapping[_Clause, tuple[int, int]], kept: list[Stmt]) -> tuple[_Clause, _Clause] | None:
    """Return what a requirement and an earlier one say together, which ask the same on two sides of a condition, and the earlier one. It is
    asked there: what has been required since says nothing on the side of the later one, which may rely on it."""
    for other, (its, at) in required.items():
        side = clause.other_side(other)
        since = (s.cond for s in kept[at + 1 :] if isinstance(s, Require))
        if its == code and side is not None and all(side in _Clause.of(cond).unless for cond in since):
            return other.without(side), other
    return None


@dataclass(frozen=True, slots=True)
class _Clause:
    """What has to hold: one of `unless`, asked in this order, or `cond`."""

    unless: tuple[Expr, ...]
    cond: Expr

    @staticmethod
    def of(cond: Expr) -> _Clause:
        *unless, last = _alternatives(cond)
        return _Clause(tuple(unless), last)

    def expr(self) -> Expr:
        made = self.cond
        for e in reversed(self.unless):
            made = Binary("or", e, made)
        return made

    def follows_from(self, other: _Clause) -> bool:
        return self.cond == other.cond and {*other.unless} <= {*self.unless}

    def without(self, e: Expr) -> _Clause:
        return replace(self, unless=tuple(x for x in self.unless if x != e))

    def other_side(self, other: _Clause) -> Expr | None:
        """Return the condition of another clause that is the opposite of one of this, where they are the same but for these."""
        only, others = {*self.unless} - {*other.unless}, {*other.unless} - {*self.unless}
        if len(only) != 1 or len(others) != 1:
            return None
        (a,), (b,) = only, others
        return b if (Unary("not", a) == b or Unary("not", b) == a) and self.without(a) == other.without(b) else None

    def mentions(self, name: str) -> bool:
        return any(name in names(e) or any(read.buffer == name for read in loads(e)) for e in (*self.unless, self.cond))


def _alternatives(e: Expr) -> tuple[Expr, ...]:
    return (*_alternatives(e.lhs), *_alternatives(e.rhs)) if isinstance(e, Binary) and e.op == "or" else (e,)


def _live(block: list[Stmt]) -> tuple[Stmt, ...]:
    """Return `block` without values that the rest does not use and without local buffers that the rest does not read."""
    if not any(isinstance(s, Let | Alloc) for s in block):
        return tuple(block)
    kept: list[Stmt] = []  # the last one first
    used, read = _mentioned(())
    for s in reversed(block):
        match s:
            case Let(name, _) if name not in used:
                continue
            case Alloc(buffer) if buffer.name not in read:
                rest = _without_writes(tuple(reversed(kept)), buffer.name)
                kept, (used, read) = [*reversed(rest)], _mentioned(rest)
                continue
            case _:
                kept.append(s)
                more_used, more_read = _mentioned((s,))
                used |= more_used
                read |= more_read
    return tuple(reversed(kept))


def _mentioned(block: tuple[Stmt, ...]) -> tuple[set[str], set[str]]:
    """Return the values that `block` uses and the buffers that it reads."""
    used: set[str] = set()
    read: set[str] = set()
    for node in walk(*block):
        if isinstance(node, Load):
            read.add(node.buffer)
        elif isinstance(node, Name):
            used.add(node.name)
        elif isinstance(node, (Boxes, WaitBoxes, Release, Reclaim)):
            read.add(node.barriers)
    return used, read


def _without_writes(block: tuple[Stmt, ...], buffer: str) -> tuple[Stmt, ...]:
    """Return `block` without the stores to `buffer`, and without what is dead then."""
    kept: list[Stmt] = []
    for s in block:
        match s:
            case Store(buffer=name) | Prefetch(buffer=name) if name == buffer:
                continue
            case For(body=body):
                rest = _without_writes(body, buffer)
                kept.extend((replace(s, body=rest),) if rest else ())
            case If(cond, then, orelse):
                then, orelse = _without_writes(then, buffer), _without_writes(orelse, buffer)
                kept.extend((If(cond, then, orelse),) if then or orelse else ())
            case _:
                kept.append(s)
    return _live(kept)
