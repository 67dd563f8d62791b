"""Add last what iterations wait for: the other terms of a sum are added while the iteration before is still at work.

    before   for c in 1 .. 256 { y[c] = y[c - 1] + a[c] - b[c] }
    after    for c in 1 .. 256 { y[c] = (a[c] - b[c]) + y[c - 1] }

Whole numbers only, whose sums wrap and are the same in any order. A term is late that reads, itself or by a name, a buffer that the
innermost serial loop around it stores to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from codegen.loops.nodes import Alloc, Binary, Expr, For, Function, If, Index, Let, Load, Name, Stmt
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import map_expr, map_index, map_stmt, stores, walk


def with_late_terms_last(function: Function) -> Function:
    """Return `function` with sums that serial loops wait for in such an order."""
    return replace(function, body=_block(function.body, _Scope(Env.of(function))))


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known around a statement: types, and what is late, buffers that the innermost serial loop stores to and names."""

    env: Env
    buffers: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def is_late(self, e: Expr) -> bool:
        return any((isinstance(n, Load) and n.buffer in self.buffers) or (isinstance(n, Name) and n.name in self.names) for n in walk(e))


def _block(block: Iterable[Stmt], scope: _Scope) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        out.append(_statement(s, scope))
        match s:
            case Let(name, value):
                names = scope.names | {name} if scope.is_late(value) else scope.names
                scope = replace(scope, env=scope.env.with_value(name, dtype_of(value, scope.env)), names=names)
            case Alloc(buffer):
                scope = replace(scope, env=scope.env.with_buffer(buffer))
            case _:
                pass
    return tuple(out)


def _statement(s: Stmt, scope: _Scope) -> Stmt:
    match s:
        case For():
            inside = replace(scope, env=scope.env.with_loop(s))
            if s.kind == "serial":
                inside = replace(inside, buffers=frozenset(x.buffer for x in stores(*s.body)), names=frozenset())
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
    """Return an expression in which sums of several terms that are there early, and of late ones, are in such an order."""
    if isinstance(e, Binary) and e.op in ("+", "-") and not dtype_of(e, scope.env).is_float:
        terms = list(_terms(e))
        late = [(_ordered(t, scope), negative) for t, negative in terms if scope.is_late(t)]
        early = [(t, negative) for t, negative in terms if not scope.is_late(t)]
        if len(early) > 1 and late:
            taken = all(negative for _, negative in early)  # The first of all is added, so that a late one is.
            rest = _sum([(t, negative and not taken) for t, negative in early])
            return _sum([*late, (rest, True)]) if taken else _sum([(rest, False), *late])
    return map_expr(e, lambda child: _index(child, scope), lambda child: _ordered(child, scope))


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
