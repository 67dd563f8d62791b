"""Divide seldom: regroup products and quotients of floats, so that few divisions are left where iterations are many.

    before   for i in 0 .. 9 { y[i] = x[i] / s[] }              y[i] = x[i] / r      y[i] = x[i] / a[i] / b[i]        y[i] = x[i] / 3
                                                                z[i] = w[i] / r
    after    for i in 0 .. 9 { y[i] = x[i] * (1 / s[]) }        y[i] = x[i] * (1 / r)   y[i] = x[i] / (a[i] * b[i])   y[i] = x[i] * (1 / 3)
                                                                z[i] = w[i] * (1 / r)

For programs that allow it everywhere (`fast`): where a divisor or a product on the way is so large or so small that its reciprocal or the
product overflows or is subnormal, results differ by more than rounding. By what the innermost loop leaves as it is, or one that is written
out in copies, is divided once, before the loop (`codegen.loops.hoist`); by what several quotients of an iteration share, once in it:
equal reciprocals are one value to LLVM.

Conditions, indices, and whole numbers with all the names and buffers that they are made of are left as they are: a rounding more would
make them others, and what is proven of indices rests on them. So is a power of two, by which a division is exact.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal, TypeAlias

from codegen.dtypes import FORMATS
from codegen.loops import scalars
from codegen.loops.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Function,
    If,
    IndexValue,
    Let,
    Load,
    Name,
    Stmt,
    Store,
    ValueIndex,
    Var,
)
from codegen.loops.scalars import Value
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Node, children, map_expr, statements, stores, walk

_Users: TypeAlias = Mapping[Expr, frozenset[tuple[Expr, int]]]
"""The quotients that divide by a factor, each with how often it does."""
_COPIES = ("unroll", "vector", "tensor")
"""Loops whose iterations are written out, next to each other."""
_WHOLE = ("floor", "ceil", "round", "trunc", "fmod")
"""Functions of floats that jump from one value to the next."""


def fewer_quotients(function: Function) -> Function:
    """Return `function` with fewer divisions of floats."""
    scope = _Scope(Env.of(function), exact=_exact(function.body))
    return replace(function, body=_block(function.body, replace(scope, users=_users(function.body))))


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known around a statement: types, loops from the outermost on with the buffers that they store to, what names depend on,
    which quotients of the iteration divide by a factor, and the names and buffers whose values stay exactly what they are."""

    env: Env
    loops: tuple[tuple[For, frozenset[str]], ...] = ()
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    users: _Users = field(default_factory=dict)
    exact: frozenset[str] = frozenset()

    def inside(self, loop: For) -> _Scope:
        written = frozenset(s.buffer for s in stores(*loop.body))
        inner = replace(self, env=self.env.with_loop(loop), loops=(*self.loops, (loop, written)))
        return inner if loop.kind in _COPIES else replace(inner, users=_users(loop.body))

    def after(self, s: Stmt) -> _Scope:
        names = {**self.names, s.name: self.depends_on(s.value)} if isinstance(s, Let) else self.names
        return replace(self, env=self.env.after(s), names=names)

    def depends_on(self, e: Node) -> frozenset[str]:
        """Return the loop variables and buffers that a value is made of."""
        found: set[str] = set()
        for part in walk(e):
            match part:
                case Var(name) | Load(name):
                    found.add(name)
                case Name(name):
                    found |= self.names.get(name, frozenset())
                case _:
                    pass
        return frozenset(found)

    def keeps(self, e: Expr) -> bool:
        """Tell whether the innermost loop leaves a value as it is, as all do a constant."""
        return isinstance(e, Const) or self._leave(self.loops[-1:], e)

    def copies_keep(self, e: Expr) -> bool:
        """Tell whether one of the loops around that are written out leaves a value as it is."""
        serial = max((k for k, (loop, _) in enumerate(self.loops) if loop.kind not in _COPIES), default=-1)
        return self._leave(self.loops[serial + 1 :], e)

    def _leave(self, loops: Iterable[tuple[For, frozenset[str]]], e: Expr) -> bool:
        needed = self.depends_on(e)
        return any(loop.extent != 1 and loop.var not in needed and not needed & written for loop, written in loops)


def _users(body: Iterable[Stmt]) -> _Users:
    """Return which quotients divide by a factor, of those that an iteration computes outside of its own serial loops."""
    found: dict[Expr, set[tuple[Expr, int]]] = {}
    for e in _values(body):
        for quotient, chain in _quotients(e):
            for factor, times in Counter(chain.below).items():
                found.setdefault(factor, set()).add((quotient, times))
    return {factor: frozenset(quotients) for factor, quotients in found.items()}


def _values(body: Iterable[Stmt]) -> Iterator[Expr]:
    for s in body:
        match s:
            case For(kind=kind):
                yield from _values(s.body) if kind in _COPIES else ()
            case If(_, then, orelse):
                yield from _values((*then, *orelse))
            case Let(value=value) | Store(value=value):
                yield value
            case _:
                pass


def _quotients(e: Expr) -> Iterator[tuple[Expr, _Chain]]:
    """Yield the products and quotients that are regrouped below an expression, each as a whole."""
    if _is_left(e):
        return
    chain = _chain(e)
    if chain.below:
        yield e, chain
    for part in (*chain.above, *chain.below) if chain.below else children(e):
        if isinstance(part, Expr):
            yield from _quotients(part)


def _is_left(e: Expr) -> bool:
    """Tell whether an expression is left as it is: a condition, a whole number, or what is read."""
    return isinstance(e, Compare | Load | IndexValue) or _is_whole(e)


def _exact(body: Sequence[Stmt]) -> frozenset[str]:
    """Return the names and buffers that whole numbers are made of, directly or through others; where data are indices also those that
    conditions are made of, under which an index may be in range."""
    nodes = list(walk(*body))
    left = (Compare,) if any(isinstance(e, ValueIndex) for e in nodes) else ()
    pending = _read(*(e for e in nodes if _is_whole(e) or isinstance(e, left)))
    if not pending:
        return frozenset()
    sources: dict[str, set[str]] = {}
    for s in statements(*body):
        if isinstance(s, Let | Store):
            sources.setdefault(s.name if isinstance(s, Let) else s.buffer, set()).update(_read(s.value))
    found: set[str] = set()
    while pending:
        found |= pending
        pending = {source for name in pending for source in sources.get(name, ())} - found
    return frozenset(found)


def _is_whole(e: Node) -> bool:
    """Tell whether a value is an integer or a whole number that is made of a float: a rounding more or less before may make it the next."""
    match e:
        case Cast(dtype):
            return not dtype.is_float
        case Call(name):
            return name in _WHOLE
        case Binary(op):
            return op in ("//", "%")
        case _:
            return False


def _read(*values: Node) -> set[str]:
    return {part.name if isinstance(part, Name) else part.buffer for part in walk(*values) if isinstance(part, Name | Load)}


# ---------------------------------------------------------------- one product


@dataclass(frozen=True, slots=True)
class _Chain:
    """The product of what is `above`, divided by what is `below`; `divisions` it is written with."""

    above: tuple[Expr, ...]
    below: tuple[Expr, ...] = ()
    divisions: int = 0

    def times(self, other: _Chain) -> _Chain:
        return _Chain((*self.above, *other.above), (*self.below, *other.below), self.divisions + other.divisions)

    def over(self, other: _Chain) -> _Chain:
        return _Chain((*self.above, *other.below), (*self.below, *other.above), self.divisions + other.divisions + 1)


def _chain(e: Expr) -> _Chain:
    match e:
        case Binary("*", lhs, rhs):
            return _chain(lhs).times(_chain(rhs))
        case Binary("/", lhs, rhs):
            return _chain(lhs).over(_chain(rhs))
        case _:
            return _Chain((e,))


def _block(block: Iterable[Stmt], scope: _Scope) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        out.append(_statement(s, scope))
        scope = scope.after(s)
    return tuple(out)


def _statement(s: Stmt, scope: _Scope) -> Stmt:
    match s:
        case For():
            return replace(s, body=_block(s.body, scope.inside(s)))
        case If():
            return replace(s, then=_block(s.then, scope), orelse=_block(s.orelse, scope))
        case Let(name=name) | Store(buffer=name) if name in scope.exact:
            return s
        case Store(buffer, index, Binary(op, Load() as here, rest)) if here == Load(buffer, index) and op != "/":
            return replace(s, value=Binary(op, here, _regrouped(rest, scope)))  # reductions keep the form that they are known by
        case Let() | Store():
            return replace(s, value=_regrouped(s.value, scope))
        case _:
            return s


def _regrouped(e: Expr, scope: _Scope) -> Expr:
    if _is_left(e):
        return e
    chain = _chain(e)
    return _product(e, chain, scope) if chain.below else map_expr(e, lambda index: index, lambda part: _regrouped(part, scope))


def _product(e: Expr, chain: _Chain, scope: _Scope) -> Expr:
    """Return a product with fewer divisions, as it stands where it has no fewer."""
    one = Const(1.0, dtype_of(e, scope.env))
    above, below = [c for c in chain.above if c != one], [c for c in chain.below if not isinstance(c, Const) or _is_rounded(c)]
    alone, reciprocals = [c for c in chain.below if c not in below], list[Expr]()
    for is_kept in (scope.keeps, scope.copies_keep):
        if kept := [c for c in below if is_kept(c)]:
            along = [c for c in above if is_kept(c)]
            reciprocals.append(_quotient(along, kept, one, scope))
            above, below = [c for c in above if c not in along], [c for c in below if c not in kept]
    together: dict[frozenset[tuple[Expr, int]], list[Expr]] = {}
    for c in below:
        if len(users := scope.users.get(c, frozenset())) > 1:
            together.setdefault(users, []).append(c)
        else:
            alone.append(c)
    for group in together.values():
        factors = Counter(group)
        reciprocals += [_quotient([], list(factors), one, scope)] * max(factors.values())
    if not reciprocals and chain.divisions < 2:
        return map_expr(e, lambda index: index, lambda part: _regrouped(part, scope))
    product = _times([*(_regrouped(c, scope) for c in above), *reciprocals], one)
    return Binary("/", product, _times([_regrouped(c, scope) for c in alone], one)) if alone else product


def _quotient(above: Iterable[Expr], below: Iterable[Expr], one: Const, scope: _Scope) -> Expr:
    return _combined("/", _times([_regrouped(c, scope) for c in above], one), _times([_regrouped(c, scope) for c in below], one))


def _times(factors: Sequence[Expr], one: Const) -> Expr:
    return reduce(lambda a, b: _combined("*", a, b), factors) if factors else one


def _combined(op: Literal["*", "/"], a: Expr, b: Expr) -> Expr:
    if not isinstance(a, Const) or not isinstance(b, Const):
        return Binary(op, a, b)
    found = scalars.binary(op, *(Value(c.dtype, scalars.literal(c.value, c.dtype)) for c in (a, b)))
    return Const(float(found.scalar), found.dtype)


def _is_rounded(c: Const) -> bool:
    """Tell whether dividing by a number is to multiply by its reciprocal, but for rounding: it is not exact, and normal."""
    mantissa, exponent = math.frexp(abs(float(c.value)))
    return 0.5 < mantissa < 1 and abs(exponent) < FORMATS[c.dtype.name].highest_exponent - 2
