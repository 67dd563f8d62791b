"""Compute once, before a loop, what every iteration would compute anew.

    before   for e in 0 .. 768 { y[m, e] = (x[m, e] - mean[]) / sqrt(v[] + eps) }
    after    let h = sqrt(v[] + eps)
             for e in 0 .. 768 { y[m, e] = (x[m, e] - mean[]) / h }

Only expressions with a division, an elementary function or an integer made of a float in them move, since a value kept across a loop costs
a register. An expression moves when it mentions neither the loop's variable nor anything the body binds or stores to, and when it is
evaluated in every iteration, or in some lanes of vectors and reads what is there in any case; an integer made of a float, which takes few
instructions, moves from under any condition then. Of a buffer that the body stores to it may read elements that are proven to
be others, as those of earlier columns are (`m[i, k] / m[k, k]` where `m[i, j]` is stored for `j > k`).
A serial loop that may not run at all stands under a condition then, with what is computed before it: nothing is read or divided that was
not before (`if 0 < N // 16 { let h = sqrt(v[] + eps) for jo in 0 .. N // 16 { … } }`). What is read at an index from data stays behind
the checks of the loop. Parallel loops are left alone: their bodies become functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, TypeAlias

from codegen.dtypes import DType
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Expr,
    FloorDiv,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    Mod,
    Name,
    Require,
    Select,
    Stmt,
    Store,
    ValueIndex,
)
from codegen.loops.simplify import assuming
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import (
    Fresh,
    Node,
    binders,
    children,
    free_vars,
    map_expr,
    map_index,
    map_stmt,
    names,
    runs_at_least_once,
    statements,
    stores,
    walk,
)
from codegen.polynomials import ONE

_DIVISIONS = ("/", "//", "%")
_TRAPPING = ("//", "%")
_When: TypeAlias = Literal["always", "in some lanes", "perhaps"]
"""Whether an iteration computes something."""
_ON_ONE_THREAD = ("serial", "unroll", "vector")
"""Loops whose bodies are no functions of their own."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known around a statement: of indices, and of the buffers of the function."""

    algebra: Algebra
    buffers: Mapping[str, Buffer]
    sizes: frozenset[str]
    fresh: Fresh
    values: dict[str, DType] = field(default_factory=dict)
    """The types of what is bound so far, whatever the scope."""

    def inside(self, loop: For) -> _Scope:
        return replace(self, algebra=self.algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent))

    def where(self, cond: Expr, truth: bool) -> _Scope:
        return replace(self, algebra=assuming(self.algebra, cond, truth))

    def types(self) -> Env:
        return Env(values=self.values, buffers=self.buffers)


def hoist(function: Function) -> Function:
    """Return `function` with such expressions bound before the outermost loop they do not depend on."""
    fresh = Fresh({*names(*function.body), *binders(*function.body), *(p.name for p in function.params), *function.sizes})
    allocated = (n.buffer for n in statements(*function.body) if isinstance(n, Alloc))
    buffers = {b.name: b for b in (*function.params, *allocated)}
    return replace(function, body=_block(function.body, _Scope(Algebra.outside(function), buffers, frozenset(function.sizes), fresh)))


def _block(body: Iterable[Stmt], scope: _Scope) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                out += _before(replace(stmt, body=_block(stmt.body, scope.inside(stmt))), scope)
            case If(cond):
                then, orelse = _block(stmt.then, scope.where(cond, True)), _block(stmt.orelse, scope.where(cond, False))
                out.append(replace(stmt, then=then, orelse=orelse))
            case _:
                if isinstance(stmt, Let):
                    scope.values[stmt.name] = dtype_of(stmt.value, scope.types())
                out.append(stmt)
    parts = (tuple(group) for _, group in groupby(out, lambda s: isinstance(s, If) and _asks_sizes(s.cond, scope)))
    return tuple(s for part in parts for s in _shared(part, scope))


def _shared(body: tuple[Stmt, ...], scope: _Scope) -> tuple[Stmt, ...]:
    """Return statements behind what several of them compute that stand under conditions on sizes alone, where these do."""
    if len(body) < 2 or not isinstance(body[0], If) or not _asks_sizes(body[0].cond, scope):
        return body
    if any(isinstance(s, For) and s.kind not in _ON_ONE_THREAD for s in statements(*body)):
        return body
    bound, written = {*binders(*body)}, {s.buffer for s in stores(*body)}

    def movable(e: Expr) -> bool:
        parts = list(walk(e))
        read = {p.buffer for p in parts if isinstance(p, Load)}
        own = free_vars(e) | {p.name for p in parts if isinstance(p, Name)} | read
        if not any(map(_takes_long, parts)) or own & bound or read & written or any(isinstance(p, ValueIndex) for p in parts):
            return False
        return is_safe(parts, scope.algebra, scope.buffers)

    def computed(nodes: Iterable[Node]) -> Iterator[Expr]:
        for node in nodes:
            if isinstance(node, Expr) and movable(node):
                yield node
            else:
                yield from computed(children(node))

    found = Counter(e for s in body for e in dict.fromkeys(computed((s,))))
    kept = {e: Name(scope.fresh("common")) for e, count in found.items() if count > 1}

    def swapped(e: Expr) -> Expr:
        return kept[e] if e in kept else map_expr(e, lambda index: index, swapped)

    def statement(s: Stmt) -> Stmt:
        return map_stmt(s, lambda index: index, swapped, statement)

    return (*(Let(name.name, e) for e, name in kept.items()), *map(statement, body)) if kept else body


def _asks_sizes(cond: Expr, scope: _Scope) -> bool:
    return _asks_lanes(cond) and free_vars(cond) <= scope.sizes


def _before(loop: For, scope: _Scope) -> tuple[Stmt, ...]:
    """Return a loop behind what is computed before it, both under a condition where it may not run."""
    runs = runs_at_least_once(loop) or scope.algebra.nonnegative(scope.algebra.poly(loop.hi) - scope.algebra.poly(loop.lo) - ONE)
    if loop.kind == "parallel" or not (runs or loop.kind == "serial"):
        return (loop,)
    lets: list[Stmt] = []
    hoisted = _hoisted(loop, scope, lets)
    if runs or not lets:
        return (*lets, hoisted)
    return (If(Compare("<", IndexValue(loop.lo), IndexValue(loop.hi)), (*lets, hoisted)),)


def _hoisted(loop: For, scope: _Scope, before: list[Stmt]) -> For:
    """Return `loop` without its invariant expressions, whose bindings are appended to `before`. What is bound is read wherever it stands:
    what a condition says of a value and an index made of it remain about one value."""
    bound = {loop.var, *binders(*loop.body)}
    written = {s.buffer for s in stores(*loop.body)}
    checks = any(isinstance(s, Require) for s in statements(*loop.body))
    known: dict[Expr, Name] = {}

    def movable(e: Expr, when: _When) -> bool:
        parts = list(walk(e))
        if not _expensive(parts) or free_vars(e) & bound:
            return False
        if checks and any(isinstance(p, ValueIndex) for p in parts):
            return False
        loads = [p for p in parts if isinstance(p, Load)]
        if any(isinstance(p, Name) and p.name in bound for p in parts) or any(p.buffer in bound for p in loads):
            return False
        if not all(p.buffer not in written or _is_kept(p, loop, scope) for p in loads):
            return False
        if (when == "perhaps" or not any(map(_takes_long, parts))) and not is_of_float(e, scope.types()):
            return False
        return when == "always" or is_safe(parts, scope.algebra, scope.buffers)

    def rewrite(e: Expr, when: _When = "always") -> Expr:
        if movable(e, when):
            if e not in known:
                known[e] = Name(scope.fresh("invariant"))
                before.append(Let(known[e].name, e))
            return known[e]
        match e:
            case Select(cond, then, orelse):
                return replace(e, cond=rewrite(cond, when), then=rewrite(then, "perhaps"), orelse=rewrite(orelse, "perhaps"))
            case Binary("and" | "or", lhs, rhs):
                return replace(e, lhs=rewrite(lhs, when), rhs=rewrite(rhs, "perhaps"))
            case _:
                return map_expr(e, lambda index: index, lambda child: rewrite(child, when))

    def statement(s: Stmt, when: _When = "always") -> Stmt:
        match s:
            case Store():
                return replace(s, value=rewrite(s.value, when))
            case Let():
                return replace(s, value=rewrite(s.value, when))
            case If(cond, then, orelse):
                own: _When = (
                    "in some lanes" if loop.kind == "vector" and not orelse and _asks_lanes(cond) and when != "perhaps" else "perhaps"
                )
                return replace(s, then=tuple(statement(x, own) for x in then), orelse=tuple(statement(x, own) for x in orelse))
            case _:
                return s

    def swapped(e: Expr) -> Expr:
        return known[e] if e in known else map_expr(e, index, swapped)

    def index(e: Index) -> Index:
        return map_index(e, index, swapped)

    def everywhere(s: Stmt) -> Stmt:
        return s if isinstance(s, For) else map_stmt(s, index, swapped, everywhere)

    body = tuple(statement(s) for s in loop.body)
    return replace(loop, body=tuple(map(everywhere, body)) if known else body)


def _expensive(parts: Iterable[Node]) -> bool:
    return any(_takes_long(p) or (isinstance(p, Cast) and p.dtype.is_integer) for p in parts)


def _takes_long(e: Node) -> bool:
    return isinstance(e, Call) or (isinstance(e, Binary) and e.op in _DIVISIONS)


def _asks_lanes(cond: Expr) -> bool:
    """Tell whether a condition is about indices alone: it leaves out lanes at an edge, and seldom all."""
    return not any(isinstance(p, Load | Name) for p in walk(cond))


def is_of_float(e: Node, types: Env) -> bool:
    """Tell whether an expression is an integer made of a float."""
    return isinstance(e, Cast) and e.dtype.is_integer and dtype_of(e.value, types).is_float


def is_safe(parts: Sequence[Node], algebra: Algebra, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether parts of an expression may be computed whatever conditions inside hold: they read what is there, and divide by no
    integer that is 0."""
    divided = any(
        (isinstance(p, Binary) and p.op in _TRAPPING) or (isinstance(p, FloorDiv | Mod) and not isinstance(p.rhs, Int)) for p in parts
    )
    return not divided and all(_is_inside(p, algebra, buffers[p.buffer]) for p in parts if isinstance(p, Load))


def _is_inside(load: Load, algebra: Algebra, buffer: Buffer) -> bool:
    """Tell whether an element is known to lie in its buffer, whatever loops and conditions inside say."""
    polys = zip(map(algebra.poly, load.index), map(algebra.poly, buffer.shape), strict=True)
    return all(algebra.nonnegative(i) and algebra.nonnegative(extent - i - ONE) for i, extent in polys)


def _is_kept(load: Load, loop: For, scope: _Scope) -> bool:
    """Tell whether no iteration of `loop` stores to an element of a buffer: each store is to one further on or back along some axis."""
    if any(isinstance(p, ValueIndex) for i in load.index for p in walk(i)):
        return False
    found = list(_stores_below((loop,), load.buffer, scope))
    return all(isinstance(s, Store) and _is_apart(s.index, load.index, there.algebra) for s, there in found)


def _stores_below(body: Sequence[Stmt], buffer: str, scope: _Scope) -> Iterator[tuple[Stmt, _Scope]]:
    """Yield the statements that store to a buffer, each with what is known there."""
    for s in body:
        match s:
            case For():
                yield from _stores_below(s.body, buffer, scope.inside(s))
            case If(cond):
                yield from _stores_below(s.then, buffer, scope.where(cond, True))
                yield from _stores_below(s.orelse, buffer, scope.where(cond, False))
            case _:
                if any(found.buffer == buffer for found in stores(s)):
                    yield s, scope


def _is_apart(first: Sequence[Index], second: Sequence[Index], algebra: Algebra) -> bool:
    """Tell whether two elements are known to be different ones: one lies further on or back along some axis."""
    sides = (algebra.poly(a) - algebra.poly(b) for a, b in zip(first, second, strict=True))
    return any(algebra.nonnegative(d - ONE) or algebra.nonnegative(d.scaled(-1) - ONE) for d in sides)
