"""Add last what iterations wait for: the other terms of a sum are added while the iteration before is still at work.

    before   for c in 1 .. 256 { y[c] = y[c - 1] + a[c] - b[c] }
    after    for c in 1 .. 256 { y[c] = (a[c] - b[c]) + y[c - 1] }

    before   for c in 1 .. 256 { y[c] = min(max(min(y[c - 1], a[c]), -9), 9) }
    after    for c in 1 .. 256 { y[c] = max(min(y[c - 1], min(a[c], 9)), -9) }

Sums of whole numbers only, which wrap and are the same in any order; minima and maxima of floats, too. A term is late that reads, itself or
by a name, a buffer that the innermost serial loop around it stores to; of late ones those come first that take fewer operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from codegen.loops.nodes import Binary, BinaryOp, Const, Expr, For, Function, If, Index, Let, Load, Name, Stmt
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Node, children, map_expr, map_index, map_stmt, stores


def with_late_terms_last(function: Function) -> Function:
    """Return `function` with sums that serial loops wait for in such an order."""
    return replace(function, body=_block(function.body, _Scope(Env.of(function))))


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known around a statement: types, and what is late, buffers that the innermost serial loop stores to and names, each with how
    many operations after one another it is made by."""

    env: Env
    buffers: frozenset[str] = frozenset()
    names: Mapping[str, int] = field(default_factory=dict)

    def is_late(self, e: Expr) -> bool:
        return self.depth(e) is not None

    def depth(self, e: Node) -> int | None:
        """Return how many operations after one another it takes from what is late to an expression; None where it is not late."""
        match e:
            case Name(name):
                return self.names.get(name)
            case Load(buffer) if buffer in self.buffers:
                return 0
            case _:
                return max((d + 1 for part in children(e) if (d := self.depth(part)) is not None), default=None)


def _block(block: Iterable[Stmt], scope: _Scope) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        out.append(_statement(s, scope))
        depth = scope.depth(s.value) if isinstance(s, Let) else None
        names = {**scope.names, s.name: depth} if isinstance(s, Let) and depth is not None else scope.names
        scope = replace(scope, env=scope.env.after(s), names=names)
    return tuple(out)


def _statement(s: Stmt, scope: _Scope) -> Stmt:
    match s:
        case For():
            inside = replace(scope, env=scope.env.with_loop(s))
            if s.kind == "serial":
                inside = replace(inside, buffers=frozenset(x.buffer for x in stores(*s.body)), names={})
            return replace(s, body=_block(s.body, inside))
        case If():
            return replace(s, cond=_ordered(s.cond, scope), then=_block(s.then, scope), orelse=_block(s.orelse, scope))
        case _ if scope.buffers:
            return map_stmt(s, lambda e: _index(e, scope), lambda e: _ordered(e, scope), lambda inner: inner)
        case _:
            return s


def _index(e: Index, scope: _Scope) -> Index:
    return map_index(e, lambda child: _index(child, scope), lambda child: _ordered(child, scope))


def _ordered(e: Expr, scope: _Scope) -> Expr:
    """Return an expression in which sums, minima and maxima of several terms, some of them late, are in such an order."""
    if isinstance(e, Binary) and e.op in ("min", "max") and scope.is_late(e):
        limited = _limited_outside(e)
        found = _combined(limited.op, [_ordered(t, scope) for t in _sides(limited, limited.op)], scope)
        if scope.depth(found) != scope.depth(e):
            return found
    if isinstance(e, Binary) and e.op in ("+", "-") and not dtype_of(e, scope.env).is_float:
        terms = list(_terms(e))
        late = [(_ordered(t, scope), negative) for t, negative in terms if scope.is_late(t)]
        early = [(t, negative) for t, negative in terms if not scope.is_late(t)]
        if len(early) > 1 and late:
            taken = all(negative for _, negative in early)  # The first of all is added, so that a late one is.
            rest = _sum([(t, negative and not taken) for t, negative in early])
            return _sum([*late, (rest, True)]) if taken else _sum([(rest, False), *late])
    return map_expr(e, lambda child: _index(child, scope), lambda child: _ordered(child, scope))


_OPPOSITE: Mapping[BinaryOp, BinaryOp] = {"min": "max", "max": "min"}


def _limited_outside(e: Binary) -> Binary:
    """Return `max(min(x, high), low)` for `min(max(x, low), high)` where `x` is a minimum, and the other way round: then one of the limits
    is among what `x` is the minimum of. Limits of whole numbers LLVM puts outside again."""
    match e:
        case Binary(op, Binary(other, Binary(same) as x, Const() as near), Const() as far) if (same, other) == (op, _OPPOSITE[op]):
            low, high = (far, near) if op == "max" else (near, far)
            return Binary(other, Binary(op, x, far), near) if near.dtype.is_float and low.value < high.value else e
        case _:
            return e


def _sides(e: Expr, op: str) -> Iterator[Expr]:
    """Yield what a minimum or maximum is taken of."""
    if isinstance(e, Binary) and e.op == op:
        yield from _sides(e.lhs, op)
        yield from _sides(e.rhs, op)
    else:
        yield e


def _combined(op: BinaryOp, terms: Sequence[Expr], scope: _Scope) -> Expr:
    """Return the minimum or maximum of terms: of those that are there early, then always of the two that are there next."""
    early = [t for t in terms if not scope.is_late(t)]
    late = [(d, k, t) for k, t in enumerate(terms) if (d := scope.depth(t)) is not None]
    if early:
        late.append((-1, -1, reduce(lambda a, b: Binary(op, a, b), early)))
    while len(late) > 1:
        (_, _, first), (depth, place, second), *late = sorted(late, key=lambda x: x[:2])
        late.append((depth + 1, place, Binary(op, second, first)))
    return late[0][2]


def _sum(terms: Sequence[tuple[Expr, bool]]) -> Expr:
    """Return the sum of terms, some of them subtracted, of which one at least is not."""
    first = next(k for k, (_, negative) in enumerate(terms) if not negative)
    result = terms[first][0]
    for t, negative in (*terms[:first], *terms[first + 1 :]):
        result = Binary("-" if negative else "+", result, t)
    return result


def _terms(e: Expr, negative: bool = False) -> Iterator[tuple[Expr, bool]]:
    """Yield the terms of a sum, and whether each is subtracted; the first is not."""
    match e:
        case Binary("+", a, b):
            yield from _terms(a, negative)
            yield from _terms(b, negative)
        case Binary("-", a, b):
            yield from _terms(a, negative)
            yield from _terms(b, not negative)
        case _:
            yield e, negative
